# What a read sees, and when: it waits for capture as far as its statement
# began, and no more.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('reading', streaming => 1);
start_extension($node);
sql($node, 'CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE u (id int PRIMARY KEY); INSERT INTO t VALUES (0, \'base\')');
track($node, [ 't', 'u' ]);

# for pgbench: one row, one version; none if another client was quicker
my $writer = "INSERT INTO u SELECT coalesce(max(id), 0) + 1 FROM u ON CONFLICT DO NOTHING;\n";

#
# INSERT, then read: one session, and each time.  The loop is the client's, for a statement of its own and a commit each.
#
sub read_own_writes
{
	my ($first, $count, $settings) = @_;
	my $script = $settings;
	for my $id ($first .. $first + $count - 1)
	{
		$script .= "INSERT INTO t VALUES ($id, 'own');\n"
		  . "SELECT 'missing' FROM (SELECT count(*) AS n FROM stream_changes('t', $id)) AS x WHERE n <> 1;\n";
	}
	my ($out, $err) = ('', '');
	my ($status) = $node->psql('postgres', $script, stdout => \$out, stderr => \$err);
	return $status == 0 && $err eq '' ? scalar(() = $out =~ /missing/g) : "status $status: $err";
}

is(read_own_writes(1, 1000, ''), 0, 'a session reads what it has just written, 1000 times');
is(read_own_writes(1001, 1000, "SET synchronous_commit = off;\n"), 0, 'with asynchronous commits too');
# and while others write
my $load = start_pgbench($node, [$writer], 3);
is(read_own_writes(2001, 300, ''), 0, 'and while others write');
my ($ok, $output) = finish_pgbench($load);
ok($ok, 'who did') or diag($output);
versions_are_dense($node, 't');
folds_to_table($node, 't');

#
# All reads wait, whatever they are
#
is(sql($node, 'INSERT INTO t VALUES (5000, NULL); SELECT stream_latest_version(\'t\')'), 2301, 'stream_latest_version waits');
is(sql($node, 'INSERT INTO t VALUES (5001, NULL); SELECT max(_commit_version) FROM stream_versions(\'t\')'), 2302, 'stream_versions waits');
is(sql($node, 'INSERT INTO t VALUES (5002, NULL); SELECT max(_commit_version) FROM stream_events(\'t\', 1)'), 2303, 'stream_events waits');
is(sql($node, 'INSERT INTO t VALUES (5003, NULL); SELECT stream_version_at(\'t\', \'infinity\')'), 2304, 'stream_version_at waits');
is(sql($node, 'INSERT INTO t VALUES (5004, NULL); SELECT count(*) FROM stream_changes(\'t\'::regclass, 2305)'), 1, 'stream_changes(regclass) waits');
is(sql($node, 'INSERT INTO t VALUES (5005, NULL); SELECT count(*) FROM stream_changes(NULL::t, 2306)'), 1, 'stream_changes(NULL::t) waits');

my $lsn = sql($node, 'SELECT pg_current_wal_insert_lsn()');
is(sql($node, "SELECT stream_sync() >= '$lsn'"), 't', 'stream_sync returns the position that it has waited for');

#
# Two calls in one statement have one end, also when capture gets on between them
#
$load = start_pgbench($node, [$writer], 4);
my ($statements, $different, $moved, $previous) = (0, 0, 0, -1);
while ($load->{run}->pumpable)
{
	$load->{run}->pump_nb;
	# the pauses are for capture to get on
	my ($changes, undef, $versions, undef, $newest) = split /\|/, sql($node, <<'SQL');
SELECT (SELECT count(*) FROM stream_changes('u')), pg_sleep(0.02),
	   (SELECT count(*) FROM stream_versions('u', 1)), pg_sleep(0.02),
	   stream_latest_version('u')
SQL
	$statements++;
	$different++ if $changes != $versions || $versions != $newest;
	$moved++ if $newest != $previous;
	$previous = $newest;
}
($ok, $output) = finish_pgbench($load);
ok($ok, 'others wrote') or diag($output);
is($different, 0, "reads of one statement have the same end, in $statements statements");
cmp_ok($moved, '>', 1, 'while those after one another have not');

#
# REPEATABLE READ: no waiting, and what the transaction's snapshot sees
#
my $reader = $node->background_psql('postgres');
# one that waits fails
my $impatient = q{SET streamcdc.read_timeout = '1h'; SET statement_timeout = '100s';};
$reader->query_safe($impatient);
for my $level ('REPEATABLE READ', 'SERIALIZABLE')
{
	sync($node);
	$reader->query_safe("BEGIN ISOLATION LEVEL $level; SELECT 1;");
	my $seen = $reader->query_safe('SELECT count(*) FROM stream_changes(\'t\');');
	sql($node, "INSERT INTO t VALUES ((SELECT max(id) + 1 FROM t), '$level')");
	sync($node);
	is($reader->query_safe('SELECT count(*) FROM stream_changes(\'t\');'), $seen, "$level: reads under the snapshot of the transaction");
	my $pid = signal_worker($node, 'STOP');
	sql($node, 'INSERT INTO u VALUES (-1) ON CONFLICT DO NOTHING');
	is($reader->query_safe('SELECT count(*) FROM stream_changes(\'t\');'), $seen, "$level: again, without waiting for capture");
	kill 'CONT', $pid;
	$reader->query_safe('COMMIT;');
	is($reader->query_safe('SELECT count(*) FROM stream_changes(\'t\');'), $seen + 1, "$level: what came later is there afterwards");
}
# in READ COMMITTED each statement sees what is new, in a transaction as well, but for what that transaction wrote itself
$reader->query_safe('BEGIN;');
my $seen = $reader->query_safe('SELECT count(*) FROM stream_changes(\'t\');');
$reader->query_safe('INSERT INTO t VALUES (-1, \'own, not committed\');');
sql($node, 'INSERT INTO t VALUES (-2, \'committed by another\')');
is($reader->query_safe('SELECT count(*) FROM stream_changes(\'t\');'), $seen + 1,
	'READ COMMITTED: the commits of others, not the transaction\'s own changes');
$reader->query_safe('ROLLBACK;');
$reader->quit;

#
# Capture is late: a warning, and what is there
#
my $newest = sql($node, 'SELECT stream_latest_version(\'t\')');
my $pid = signal_worker($node, 'STOP');
my $start = time;
is(warns_with($node, 'INSERT INTO t VALUES (6000, NULL); SET streamcdc.read_timeout = \'300ms\'; SELECT stream_latest_version(\'t\')',
	qr/may be missing.*bytes of WAL/s, 'a read that waited in vain warns, with the lag'), $newest, 'and gives what is there');
cmp_ok(time - $start, '>=', 0.3, 'it has waited as long as streamcdc.read_timeout says');
my ($status, $out, $err) = $node->psql('postgres', 'SET streamcdc.read_timeout = 0; SELECT stream_latest_version(\'t\')');
is("$status $out $err", "0 $newest ", 'with streamcdc.read_timeout = 0 a read neither waits nor warns');
fails_with($node, 'SELECT stream_sync(\'300 ms\')', '57014', qr/timed out.*bytes of WAL/s, 'stream_sync times out, with the lag in DETAIL');
fails_with($node, 'SELECT stream_sync(\'0\')', '57014', qr/timed out/, 'also at once');
fails_with($node, 'SELECT stream_sync(\'-1 s\')', '22023', qr/negative/, 'a negative timeout is refused');
fails_with($node, 'SET statement_timeout = \'300ms\'; SET streamcdc.read_timeout = \'1min\'; SELECT * FROM stream_changes(\'t\')', '57014',
	qr/statement timeout/, 'a waiting read can be cancelled');
# whoever writes does not wait for capture
sql($node, 'SET statement_timeout = \'10s\'; INSERT INTO t VALUES (6001, NULL)');
kill 'CONT', $pid;
is(sql($node, 'SELECT stream_latest_version(\'t\')'), $newest + 2, 'when capture goes on, the next read has all');

#
# What can only come after the caller's own commit is not waited for
#
sql($node, 'CREATE TABLE mine (id int PRIMARY KEY)');
for my $read ('SELECT * FROM stream_changes(\'mine\')', 'SELECT * FROM stream_events(\'mine\')', 'SELECT * FROM stream_versions(\'mine\')',
	'SELECT stream_latest_version(\'mine\')', 'SELECT stream_version_at(\'mine\', now())', 'SELECT stream_sync()')
{
	fails_with($node, "BEGIN; SELECT stream_track('mine'); $read; COMMIT", '25001', qr/HINT:.*commit/si, "in the transaction that tracks it: $read");
	fails_with($node, "BEGIN; SAVEPOINT s; SELECT stream_track('mine'); RELEASE s; $read; COMMIT", '25001', qr/HINT:.*commit/si,
		"in a subtransaction: $read");
}
is(sql($node, 'SELECT count(*) FROM stream_tables'), 2, 'and nothing was tracked');
is(sql($node, 'BEGIN; SAVEPOINT s; SELECT stream_track(\'mine\') \\g /dev/null
ROLLBACK TO s; SELECT count(*) FROM stream_changes(\'t\') WHERE _commit_version = 0; COMMIT'),
	1, 'a stream_track that was rolled back hinders nobody');

#
# A baseline is waited for as well
#
sql($node, 'INSERT INTO mine SELECT generate_series(1, 1000)');
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE streamcdc.schemas IN SHARE MODE;');
sql($node, 'SELECT stream_track(\'mine\')');
wait_for_lock_of_worker($node, 'streamcdc.schemas', 'baseline');
fails_with($node, 'SET streamcdc.read_timeout = \'300ms\'; SELECT * FROM stream_changes(\'mine\')', '55000', qr/baseline.*not complete.*DETAIL/s,
	'a read that waited in vain for the baseline fails, saying how far it is');
my $waiting = background_sql($node, 'SET streamcdc.read_timeout = \'1min\'; SELECT count(*) FROM stream_changes(\'mine\')');
$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%FROM stream_changes(''mine'')%' AND pid <> pg_backend_pid()")
  or die 'nobody reads';
$holder->query_safe('ROLLBACK;');
$holder->quit;
($ok, $out) = finish_sql($waiting);
is($out, 1000, 'a read waits until it is');

#
# A standby reads what it has replayed
#
sync($node);
$node->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'copy', has_streaming => 1);
$standby->start;
sql($node, 'INSERT INTO t VALUES (7000, \'replicated\')');
sync($node);
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
my $all = 'SELECT md5(string_agg(x::text, \',\' ORDER BY x::text)), count(*) FROM stream_changes(\'t\') AS x';
is(sql($standby, "$impatient $all"), sql($node, $all), 'a standby reads the same, without waiting');
for my $read ('SELECT count(*) FROM stream_events(\'t\')', 'SELECT count(*), max(_commit_version) FROM stream_versions(\'t\')',
	'SELECT stream_latest_version(\'t\')', 'SELECT stream_version_at(\'t\', now())', 'SELECT count(*) FROM stream_changes(NULL::t, 0)',
	'SELECT table_name, last_version, changes FROM stream_tables')
{
	is(sql($standby, $read), sql($node, $read), "on a standby: $read");
}
for my $write ('SELECT stream_track(\'mine\')', 'SELECT stream_untrack(\'t\')', 'SELECT stream_sync()')
{
	fails_with($standby, $write, '25006', qr/recovery/, "refused on a standby: $write");
}
is(sql($standby, 'SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE \'streamcdc%\''), 0, 'no worker of ours runs there');

# promoted, it has no slot: nothing proves that the log goes on where it ends
$node->stop;
$standby->promote;
wait_for_status($standby, 't', 'gap');
fails_with($standby, 'SELECT * FROM stream_changes(\'t\')', '55000', qr/slot.*missing/is, 'after promotion, readers get an error');
cmp_ok(sql($standby, 'SELECT count(*) FROM stream_changes(\'t\', 0, 100)'), '>', 100, 'and history can be read');
my $last = sql($standby, 'SELECT last_version FROM stream_tables WHERE table_name = \'t\'');
sql($standby, 'SELECT stream_untrack(\'t\')');
track($standby, ['t']);
cmp_ok(sql($standby, 'SELECT first_version FROM stream_tables WHERE table_name = \'t\''), '>=', $last, 'tracked again, versions go on');
sql($standby, 'DELETE FROM t WHERE id % 2 = 0');
folds_to_table($standby, 't');

$standby->stop;
done_testing();
