# stream_track on tables that are busy: however it comes about, version 0 and
# what follows it fold to the table, and neither misses or repeats a row.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $rows = $ENV{STREAMCDC_TEST_BASELINE_ROWS} // 50_000;
my $rounds = $ENV{STREAMCDC_TEST_BASELINE_ROUNDS} // 4;

my $node = new_node('baseline', conf => "max_prepared_transactions = 5\n");
start_extension($node);

sub check
{
	my (@tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	sync($node);
	for my $table (@tables)
	{
		my $first = sql($node, "SELECT first_version FROM stream_tables WHERE table_name = '$table'");
		versions_are_dense($node, $table, $first);
		folds_to_table($node, $table);
		is(sql($node, "SELECT count(*) FROM stream_events('$table', $first, $first) WHERE event <> 'insert'"), 0, "the baseline of $table is inserts");
	}
}

#
# Under load, again and again, several tables at once: in one command, in one transaction, and each for itself
#
sql($node, workload_tables('') . workload_tables('_two'));
my @tables = map { ("keyed$_", "unkeyed$_", "toasted$_") } '', '_two';
my $load = start_pgbench($node, [ workload_script(''), workload_script('_two') ], 600);
$node->poll_query_until('postgres', "SELECT count(*) > 1 FROM $_ WHERE note = 'upsert'") or die 'nobody writes' for qw(keyed keyed_two);
my @ways = (
	sub { sql($node, 'SELECT stream_track(t::regclass) FROM unnest(ARRAY[' . join(',', map { "'$_'" } @_) . ']) AS t') },
	sub { sql($node, 'BEGIN; ' . join(' ', map { "SAVEPOINT a; SELECT stream_track('$_'); RELEASE a;" } @_) . ' COMMIT') },
	sub { sql($node, "SELECT stream_track('$_')") for @_ },
	sub { my @jobs = map { background_sql($node, "SELECT stream_track('$_')") } @_; finish_sql($_) for @jobs });
for my $round (1 .. $rounds)
{
	# tables in the order in which the load takes them, so that they do not deadlock with it; one that did is tried again
	my $way = $ways[ $round % @ways ];
	for my $suffix ('', '_two')
	{
		my @group = map { "$_$suffix" } qw(keyed unkeyed toasted);
		for (1 .. 20)
		{
			last if eval { $way->(grep { !defined(status($node, $_)) || status($node, $_) eq '' } @group); 1 };
		}
	}
	is(sql($node, q{SELECT count(*) FROM stream_tables}), scalar @tables, "round $round: all are tracked");
	sync($node);
	# some time in which it goes on
	my $seen = sql($node, q{SELECT last_version FROM stream_tables WHERE table_name = 'keyed'});
	$node->poll_query_until('postgres', "SELECT last_version > $seen + 20 FROM stream_tables WHERE table_name = 'keyed'") or die 'nothing is captured';
	if ($round == $rounds)
	{
		$load->{run}->signal('INT');
		finish_pgbench($load);
		check(@tables);
	}
	else
	{
		# the load stands still for a moment
		my $holder = $node->background_psql('postgres');
		$holder->query_safe('BEGIN; LOCK TABLE keyed, unkeyed IN SHARE MODE;');
		check('keyed', 'unkeyed');
		$holder->query_safe('ROLLBACK;');
		$holder->quit;
		sql($node, "SELECT stream_untrack('$_')") for @tables;
	}
}
sql($node, "SELECT stream_untrack('$_')") for @tables;

#
# A long transaction is open
#
sql($node, 'CREATE TABLE noise (id int); CREATE TABLE anchor (id int PRIMARY KEY); CREATE TABLE long (id int PRIMARY KEY, v text); INSERT INTO long VALUES (1, \'old\'), (2, \'old\')');
track($node, ['anchor']);
# it has written the table before, in a subtransaction that it rolled back, so that it holds no lock; and DDL, too
my $long = $node->background_psql('postgres');
$long->query_safe('BEGIN; INSERT INTO noise VALUES (1); INSERT INTO anchor VALUES (1);'
	  . 'SAVEPOINT a; INSERT INTO long VALUES (3, \'never\'); UPDATE long SET v = \'never\'; SAVEPOINT b; ALTER TABLE long ADD COLUMN never int; RELEASE b; ROLLBACK TO a;');
track($node, ['long']);
$long->query_safe('SAVEPOINT c; INSERT INTO long VALUES (4, \'new\'); SAVEPOINT d; DELETE FROM long WHERE id = 1; ROLLBACK TO d;');
sql($node, 'INSERT INTO long VALUES (5, \'beside\')');
sync($node);
$long->query_safe('UPDATE long SET v = \'new\' WHERE id = 2; COMMIT;');
check('long');
is(sql($node, q{SELECT string_agg(_commit_version || left(event, 1) || (new_row ->> 'id'), ' ' ORDER BY _commit_version, event_number) FROM stream_events('long')}),
	'0i1 0i2 1i5 2i4 2u2', 'a transaction that was open is a version of its own');
# it does hold the table: stream_track waits, nobody else waits longer than that
sql($node, 'SELECT stream_untrack(\'long\')');
$long->query_safe('BEGIN; INSERT INTO long VALUES (6, \'before\'); SAVEPOINT a; UPDATE long SET v = \'before\' WHERE id = 1; ROLLBACK TO a;');
my $waiting = background_sql($node, 'SELECT stream_track(\'long\'); INSERT INTO long VALUES (8, \'after\')');
$node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'long'::regclass AND NOT granted)}) or die 'nobody waits';
$long->query_safe('SAVEPOINT b; INSERT INTO long VALUES (7, \'before\'); COMMIT;');
my ($ok, undef, $errors) = finish_sql($waiting);
ok($ok, 'stream_track waits for a transaction that has written the table') or diag($errors);
check('long');
# an old snapshot, and an idle transaction with an xid, while the very first table is tracked
sql($node, 'SELECT stream_untrack(\'long\'); SELECT stream_untrack(\'anchor\')');
wait_for_no_capture($node, 'nothing is tracked');
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM noise');
$long->query_safe('BEGIN; INSERT INTO noise VALUES (2); SAVEPOINT a; INSERT INTO long VALUES (9, \'never\'); ROLLBACK TO a;');
sql($node, 'SELECT stream_track(\'long\'); INSERT INTO long VALUES (10, \'meanwhile\')');
is(status($node, 'long'), 'baseline', 'the first table waits for transactions that are open');
$long->query_safe('UPDATE long SET v = v || \'!\' WHERE id = 4; COMMIT;');
check('long');
$old->query_safe('COMMIT;');
$_->quit for $old, $long;

#
# With a prepared transaction open
#
sql($node, q{BEGIN; INSERT INTO noise VALUES (3); SAVEPOINT a; INSERT INTO anchor VALUES (2); ROLLBACK TO a; PREPARE TRANSACTION 'open'});
track($node, ['anchor']);
sql($node, q{INSERT INTO anchor VALUES (3); COMMIT PREPARED 'open'; INSERT INTO anchor VALUES (4)});
check('anchor');

#
# An empty table, one that becomes empty, one that is full of dead rows
#
sql($node, 'CREATE TABLE empty (id int PRIMARY KEY); CREATE TABLE emptied (id int PRIMARY KEY, v text); INSERT INTO emptied SELECT i, \'x\' FROM generate_series(1, 5000) AS i; UPDATE emptied SET v = \'y\'; DELETE FROM emptied WHERE id > 10; CREATE TABLE without_columns ()');
sql($node, 'BEGIN; SELECT stream_track(\'empty\'); SELECT stream_track(\'emptied\'); SELECT stream_track(\'without_columns\'); DELETE FROM emptied; COMMIT');
sync($node);
sql($node, 'INSERT INTO empty VALUES (1); INSERT INTO without_columns DEFAULT VALUES');
check(qw(empty emptied));
is(sql($node, q{SELECT string_agg(table_name || baseline_rows, ' ' ORDER BY table_name) FROM stream_tables WHERE table_name IN ('empty', 'emptied', 'without_columns')}),
	'emptied0 empty0 without_columns0', 'tables without rows have a version 0 all the same');
is(sql($node, q{SELECT count(*) FROM stream_events('without_columns') WHERE event = 'insert'}), 1, 'a table without columns');

#
# One that becomes UNLOGGED between stream_track and the snapshot: the baseline may have its rows, but what comes then is lost
#
sql($node, 'CREATE TABLE unlogged (id int PRIMARY KEY); INSERT INTO unlogged VALUES (1)');
debug_point($node, 'baseline-before-snapshot', 'wait', 'unlogged');
sql($node, 'SELECT stream_track(\'unlogged\'); ALTER TABLE unlogged SET UNLOGGED; INSERT INTO unlogged VALUES (2)');
debug_point($node);
wait_for_status($node, 'unlogged', 'gap');
fails_with($node, 'SELECT * FROM stream_changes(\'unlogged\')', '55000', qr/UNLOGGED/, 'and is not read as if it went on');
sql($node, 'SELECT stream_untrack(\'unlogged\')');

#
# A large table, written all the time, and what can happen during the copy.  Each time it is held in its middle by somebody
# who locks the table of blocks: the copy has its snapshot by then.
#
sql($node, "CREATE TABLE large (id int PRIMARY KEY, n int, v text); INSERT INTO large SELECT i, 0, md5(i::text) FROM generate_series(1, $rows) AS i");
$load = start_pgbench($node, [ <<"SCRIPT" ], 600);
\\set id random(1, $rows)
\\set new random($rows + 1, 10 * $rows)
\\set gone random(1, 10 * $rows)
BEGIN;
UPDATE large SET n = n + 1 WHERE id = :id;
SAVEPOINT a;
DELETE FROM large WHERE id IN (:gone, :id - 5);
INSERT INTO large VALUES (:new, 0, 'new') ON CONFLICT (id) DO UPDATE SET n = large.n + 1000;
COMMIT;
SCRIPT
$node->poll_query_until('postgres', 'SELECT count(*) > 1 FROM large WHERE n > 0') or die 'nobody writes';
track($node, ['large']);
for my $what ('nothing', 'baseline worker is ended', 'baseline worker is killed', 'capture worker is killed', 'immediate shutdown', 'cancelled', 'VACUUM FULL', 'DDL')
{
	sql($node, 'SELECT stream_untrack(\'large\')');
	my $holder;
	if ($what ne 'nothing')
	{
		$holder = $node->background_psql('postgres', on_error_stop => 0);
		$holder->query_safe('BEGIN; LOCK TABLE streamcdc.schemas IN SHARE MODE;');
	}
	if ($what eq 'cancelled')
	{
		# the call itself, while it waits for the table
		my $table = $node->background_psql('postgres');
		$table->query_safe('BEGIN; SELECT FROM large LIMIT 1;');
		my $call = background_sql($node, 'SELECT stream_track(\'large\')');
		$node->poll_query_until('postgres', q{SELECT count(pg_cancel_backend(pid)) > 0 FROM pg_locks WHERE relation = 'large'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted})
		  or die 'nobody waits';
		my ($done, undef, $error) = finish_sql($call);
		like($error, qr/canceling statement/, 'stream_track can be cancelled while it waits');
		$table->query_safe('COMMIT;');
		$table->quit;
		is(sql($node, q{SELECT count(*) FROM stream_tables WHERE table_name = 'large'}), 0, 'and has done nothing then');
	}
	sql($node, 'SELECT stream_track(\'large\')');
	wait_for_lock_of_worker($node, 'streamcdc.schemas', 'baseline') if $holder;
	my $pid = worker_pid($node, 'baseline') if $holder;
	if ($what eq 'baseline worker is ended') { signal_worker($node, 'TERM', 'baseline') }
	elsif ($what eq 'cancelled') { sql($node, "SELECT pg_cancel_backend($pid)") }
	elsif ($what eq 'DDL')
	{
		my $ddl = background_sql($node, 'ALTER TABLE large ADD COLUMN w int DEFAULT 5, DROP COLUMN v');
		$node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'large'::regclass AND NOT granted)}) or die 'nobody waits';
		$holder->query_safe('ROLLBACK;');
		finish_sql($ddl);
	}
	elsif ($what eq 'VACUUM FULL')
	{
		# it would wait for the copy; after its end the storage is another
		my $vacuum = background_sql($node, 'VACUUM FULL large');
		$node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'large'::regclass AND NOT granted)}) or die 'nobody waits';
		signal_worker($node, 'TERM', 'baseline');
		$holder->query_safe('ROLLBACK;');
		finish_sql($vacuum);
	}
	elsif ($what ne 'nothing')
	{
		# the server restarts, and the load with it
		$holder->query('ROLLBACK;') if $what eq 'immediate shutdown';
		$holder->quit if $what eq 'immediate shutdown';
		$what eq 'baseline worker is killed' ? crash_with_worker($node, 'baseline')
		  : $what eq 'capture worker is killed' ? crash_with_worker($node)
		  : do { $node->stop('immediate'); $node->start };
		finish_pgbench($load);
		undef $holder;
		$load = start_pgbench($node, [ "\\set id random(1, $rows)\nUPDATE large SET n = n + 1 WHERE id = :id;\n" ], 600);
	}
	if ($holder)
	{
		$holder->query('ROLLBACK;') unless $what =~ /FULL|DDL/;
		$holder->quit;
	}
	sync($node);
	is(status($node, 'large'), 'streaming', "$what: the baseline is complete");
	$load->{run}->signal('INT');
	finish_pgbench($load);
	versions_are_dense($node, 'large', sql($node, 'SELECT first_version FROM stream_tables WHERE table_name = \'large\''));
	$what eq 'DDL' ? changes_fold_to_table($node, 'large') : folds_to_table($node, 'large');
	$load = start_pgbench($node, [ "\\set id random(1, $rows)\nUPDATE large SET n = n + 1 WHERE id = :id;\n" ], 600);
}
$load->{run}->signal('INT');
finish_pgbench($load);

$node->stop;
done_testing();
