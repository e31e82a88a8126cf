# Partitioned tables beside other sessions: DETACH CONCURRENTLY, baselines while partitions come and go, large transactions,
# crashes in the middle, and everything at once.  What one session can see is in test/pgtap/52_partitions.sql.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('partitions', conf => "logical_decoding_work_mem = 64kB\nmax_locks_per_transaction = 256\n");
start_extension($node);

# partitions with columns in another order, or with dropped ones
sql($node, <<'SQL');
CREATE TABLE p (id int, part int, v text, n numeric, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE p0 PARTITION OF p FOR VALUES IN (0);
CREATE TABLE p1 (n numeric, gone text, v text, part int NOT NULL, id int NOT NULL);
ALTER TABLE p1 DROP COLUMN gone;
ALTER TABLE p ATTACH PARTITION p1 FOR VALUES IN (1);
CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2, 3) PARTITION BY LIST (part);
CREATE TABLE p2_2 (id int NOT NULL, n numeric, part int NOT NULL, v text);
ALTER TABLE p2 ATTACH PARTITION p2_2 FOR VALUES IN (2);
CREATE TABLE p2_3 PARTITION OF p2 FOR VALUES IN (3);
INSERT INTO p SELECT i, i % 4, 'v' || i, i FROM generate_series(1, 400) AS i;
SQL
track($node, ['p']);
folds_to_table($node, 'p');

sub identity_of
{
	my ($table) = @_;
	return sql($node, "SELECT relreplident FROM pg_class WHERE oid = '$table'::regclass");
}

# wait_for_blocked QUERY: a session waits for a lock in it
sub wait_for_blocked
{
	my ($query) = @_;
	$node->poll_query_until('postgres',
		"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '$query%')")
	  or die "\"$query\" does not wait";
}

#
# DETACH CONCURRENTLY commits in its middle, and waits there for those who use the table
#
my $user = $node->background_psql('postgres');
$user->query_safe('BEGIN; SELECT count(*) FROM p;');
my $job = background_sql($node, 'ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY');
wait_for_blocked('ALTER TABLE p DETACH');
# in the middle: no session but the old ones finds the partition through p
sql($node, 'INSERT INTO p1 (id, part, v) VALUES (1001, 1, \'half detached\'); UPDATE p1 SET v = \'half detached\' WHERE id = 5');
# other commands on the table leave it alone
sql($node, 'CREATE TABLE p4 (LIKE p INCLUDING ALL); ALTER TABLE p ATTACH PARTITION p4 FOR VALUES IN (4); INSERT INTO p VALUES (1002, 4, \'meanwhile\')');
is(sql($node, 'SELECT count(*) FROM stream_changes(\'p\', (SELECT stream_latest_version(\'p\') - 2)) WHERE row_data->>\'v\' = \'half detached\''),
	2, 'what is half detached is still captured');
$user->query_safe('COMMIT;');
my ($ok, $out, $err) = finish_sql($job);
ok($ok, 'DETACH CONCURRENTLY') or diag($err);
folds_to_table($node, 'p');
is(identity_of('p1'), 'd', 'what was detached has its REPLICA IDENTITY back');
is(sql($node, 'SELECT deletes FROM stream_versions(\'p\') ORDER BY _commit_version DESC LIMIT 1'), 101,
	'its rows are deleted in one version, also the one that came in the middle');
sql($node, 'UPDATE p1 SET v = \'not captured\'; ALTER TABLE p ATTACH PARTITION p1 FOR VALUES IN (1)');
folds_to_table($node, 'p');

# cancelled in the middle, and finished by another command
$user->query_safe('BEGIN; SELECT count(*) FROM p;');
$job = background_sql($node, 'ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY');
wait_for_blocked('ALTER TABLE p DETACH');
sql($node, 'SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE \'ALTER TABLE p DETACH%\'');
($ok) = finish_sql($job);
ok(!$ok, 'cancelled in the middle');
$user->query_safe('COMMIT;');
sql($node, 'UPDATE p1 SET v = \'pending\' WHERE id < 50');
is(identity_of('p1'), 'f', 'until it is finished, nothing changes');
sql($node, 'SELECT stream_alter(\'p\', on_truncate => \'forbid\')');
fails_with($node, 'ALTER TABLE p DETACH PARTITION p0', '55000', qr/cannot detach partition "p0"/, 'on_truncate => forbid');
sql($node, 'ALTER TABLE p DETACH PARTITION p1 FINALIZE');
folds_to_table($node, 'p');
is(identity_of('p1'), 'd', 'finished');
fails_with($node, 'ALTER TABLE p DETACH PARTITION p0 CONCURRENTLY', '55000', qr/cannot detach partition "p0"/, 'on_truncate => forbid, concurrently');
is(sql($node, 'SELECT count(*) FROM pg_inherits WHERE inhdetachpending'), 0, 'and it has not begun');
sql($node, 'SELECT stream_alter(\'p\', on_truncate => \'delete\')');

#
# Transactions that are older than an ATTACH, and go on after it
#
$user->query_safe('BEGIN; INSERT INTO p VALUES (2000, 0, \'older\');');
sql($node, 'ALTER TABLE p ATTACH PARTITION p1 FOR VALUES IN (1)');
$user->query_safe('INSERT INTO p VALUES (2001, 1, \'older\'); UPDATE p SET v = \'older\' WHERE part = 1 AND id < 20; COMMIT;');
folds_to_table($node, 'p');
is(sql($node, 'SELECT count(*) FROM stream_changes(\'p\') WHERE row_data->>\'id\' = \'2001\''), 1, 'its row in the new partition is there');
$user->quit;

#
# A large transaction, decoded while it runs: rows that move, partitions that come and go, a rolled-back subtransaction
#
# large ID: its commands, in two halves
sub large
{
	my ($id) = @_;
	return (<<"SQL", <<'SQL');
BEGIN;
INSERT INTO p SELECT i, i % 4, repeat('long ', 20) || i FROM generate_series($id, $id + 3999) AS i;
SAVEPOINT s;
UPDATE p SET part = (part + 1) % 4, v = 'rolled back' WHERE id BETWEEN $id AND $id + 3999;
ALTER TABLE p DETACH PARTITION p1;
ROLLBACK TO s;
UPDATE p SET part = (part + 1) % 4, v = v || ' moved' WHERE id BETWEEN $id AND $id + 1999;
CREATE TABLE p_large (v text, n numeric, id int NOT NULL, part int NOT NULL);
INSERT INTO p_large SELECT 'attached ' || i, i, i, 9 FROM generate_series($id, $id + 2999) AS i;
ALTER TABLE p ATTACH PARTITION p_large FOR VALUES IN (9);
UPDATE p SET v = v || '!' WHERE part = 9;
ALTER TABLE p DETACH PARTITION p0;
INSERT INTO p0 SELECT i, 0, 'outside' FROM generate_series($id + 4000, $id + 4999) AS i;
SQL
ALTER TABLE p ATTACH PARTITION p0 FOR VALUES IN (0);
TRUNCATE p2_2;
DELETE FROM p WHERE id % 3 = 0;
DROP TABLE p_large;
COMMIT;
SQL
}
sql($node, join('', large(10000)));
folds_to_table($node, 'p');
versions_are_dense($node, 'p');

#
# The worker is killed in the middle of one, the server too
#
my ($first_half, $second_half) = large(20000);
$user = $node->background_psql('postgres');
$user->query_safe($first_half);
signal_worker($node, 'TERM');
$user->query_safe($second_half);
$user->quit;
wait_for_capture($node);
folds_to_table($node, 'p');
sql($node, join('', large(30000)));
crash_with_worker($node);
wait_for_capture($node);
folds_to_table($node, 'p');
sql($node, join('', large(40000)));
kill_server($node);
$node->start;
wait_for_capture($node);
folds_to_table($node, 'p');
$node->restart;
wait_for_capture($node);
sql($node, 'UPDATE p SET v = \'after restart\' WHERE id < 100');
folds_to_table($node, 'p');
versions_are_dense($node, 'p');
is(sql($node, 'SELECT count(*) FROM streamcdc.inbox'), 0, 'the inbox is empty');

#
# A baseline while partitions come and go: the worker is held when it has its snapshot, and no lock on the partitions yet
#
sql($node, 'CREATE TABLE first (id int PRIMARY KEY)');
for my $change (
	[ 'nothing that the snapshot sees goes', 'INSERT INTO p SELECT i, i % 4 FROM generate_series(50000, 50099) AS i;'
		. 'CREATE TABLE p_new PARTITION OF p FOR VALUES IN (20); INSERT INTO p VALUES (1, 20);'
		. 'CREATE TABLE p_more (v text, part int NOT NULL, n numeric, id int NOT NULL); INSERT INTO p_more VALUES (\'v\', 21, 1, 1);'
		. 'ALTER TABLE p ATTACH PARTITION p_more FOR VALUES IN (21)' ],
	[ 'DETACH', 'ALTER TABLE p DETACH PARTITION p_more; ALTER TABLE p_more DROP COLUMN v; UPDATE p_more SET n = 2' ],
	[ 'DROP', 'DROP TABLE p_new' ],
	[ 'TRUNCATE', 'TRUNCATE p1; INSERT INTO p VALUES (60000, 1)' ],
	[ 'a rewrite', 'ALTER TABLE p ALTER n TYPE text' ],
	[ 'DETACH and ATTACH again', 'ALTER TABLE p DETACH PARTITION p1; UPDATE p1 SET v = \'outside\'; ALTER TABLE p ATTACH PARTITION p1 FOR VALUES IN (1)' ],
	[ 'a column added', 'ALTER TABLE p ADD COLUMN m int; INSERT INTO p (id, part, m) VALUES (60001, 0, 1)' ])
{
	my ($what, $commands) = @$change;

	sql($node, 'SELECT stream_untrack(\'p\')');
	my $holder = $node->background_psql('postgres');
	$holder->query_safe('BEGIN; LOCK TABLE streamcdc.schemas IN SHARE MODE;');
	sql($node, 'BEGIN; SELECT stream_track(\'first\'); SELECT stream_track(\'p\'); COMMIT');
	wait_for_lock_of_worker($node, 'streamcdc.schemas', 'baseline');
	sql($node, $commands);
	$holder->query_safe('ROLLBACK;');
	$holder->quit;
	sync($node);
	note("baseline: $what");
	folds_to_table($node, 'p');
	versions_are_dense($node, 'p', sql($node, 'SELECT min(_commit_version) FROM stream_versions(\'p\')'));
	sql($node, 'SELECT stream_untrack(\'first\')');
}

#
# A prepared transaction
#
reconfigure($node, 'max_prepared_transactions = 5');
wait_for_capture($node);
sql($node, 'BEGIN; ALTER TABLE p DETACH PARTITION p1; CREATE TABLE p_prepared PARTITION OF p FOR VALUES IN (30);'
	. 'INSERT INTO p (id, part) VALUES (1, 30); PREPARE TRANSACTION \'x\'');
$node->restart;
sql($node, 'COMMIT PREPARED \'x\'');
wait_for_capture($node);
folds_to_table($node, 'p');
is(identity_of('p_prepared'), 'f', 'a partition created in a prepared transaction');
sql($node, 'ALTER TABLE p ATTACH PARTITION p1 FOR VALUES IN (1)');

#
# A thousand partitions
#
sql($node, 'CREATE TABLE many (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)');
sql($node, <<'SQL');
SELECT format('CREATE TABLE many_%s PARTITION OF many FOR VALUES FROM (%s) TO (%s)', i, i * 10, i * 10 + 10) FROM generate_series(0, 999) AS i \gexec
SQL
sql($node, 'INSERT INTO many SELECT i, \'v\' FROM generate_series(0, 9999) AS i');
track($node, ['many']);
is(sql($node, 'SELECT count(*) FROM streamcdc.registry WHERE root = \'many\'::regclass'), 1001, 'all partitions are registered');
sql($node, 'UPDATE many SET v = \'w\'');
sql($node, 'BEGIN; TRUNCATE many; INSERT INTO many SELECT i, \'x\' FROM generate_series(0, 9999, 3) AS i; COMMIT');
folds_to_table($node, 'many');
sql($node, 'ALTER TABLE many ALTER v TYPE varchar(10)');
sql($node, 'ALTER TABLE many ALTER v TYPE varchar(5) USING v || \'y\'');
folds_to_table($node, 'many');
sql($node, 'SELECT stream_untrack(\'many\')');
is(sql($node, 'SELECT count(*) FROM pg_class WHERE relname LIKE \'many%\' AND relreplident = \'f\''), 0, 'untracked: every identity is back');

#
# All at once
#
sql($node, <<'SQL');
CREATE TABLE w (id int, part int, v text, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
SELECT CASE WHEN i % 2 = 0 THEN format('CREATE TABLE w%s (id int NOT NULL, part int NOT NULL, v text)', i)
			ELSE format('CREATE TABLE w%s (v text, x int, part int NOT NULL, id int NOT NULL); ALTER TABLE w%1$s DROP x', i) END,
	format('ALTER TABLE w ATTACH PARTITION w%s FOR VALUES IN (%1$s)', i) FROM generate_series(0, 7) AS i \gexec
INSERT INTO w SELECT i, i % 8, 'v' FROM generate_series(1, 800) AS i;
SQL
track($node, ['w']);
append_to_file($node->basedir . '/rows.sql', <<'SQL');
\set id random(1, 2000)
\set part random(0, 7)
\set to random(0, 7)
INSERT INTO w VALUES (:id, :part, 'insert') ON CONFLICT (id, part) DO UPDATE SET v = 'conflict';
UPDATE w SET v = 'update' WHERE id = :id;
UPDATE w SET part = :to, v = 'moved' WHERE id = :id AND part = :part AND NOT EXISTS (SELECT FROM w WHERE id = :id AND part = :to);
DELETE FROM w WHERE id = :id AND part = :to;
SQL
append_to_file($node->basedir . '/partitions.sql', <<'SQL');
\set part random(0, 7)
\set what random(1, 4)
BEGIN;
\if :what <= 2
	ALTER TABLE w DETACH PARTITION w:part;
	UPDATE w:part SET v = 'outside';
	INSERT INTO w:part (id, part, v) SELECT 10000 + count(*), :part, 'outside' FROM w:part;
	ALTER TABLE w ATTACH PARTITION w:part FOR VALUES IN (:part);
\elif :what = 3
	TRUNCATE w:part;
\else
	ALTER TABLE w ALTER v TYPE text USING v;
\endif
COMMIT;
SQL
my @pgbench = ('pgbench', '-n', '-h', $node->host, '-p', $node->port, 'postgres');
# rows find no partition while it is detached; such clients end, and others are started
$job = IPC::Run::start([ @pgbench, '-c', 2, '-t', 60, '-f', $node->basedir . '/partitions.sql' ],
	'>', \my $pgbench_out, '2>', \my $pgbench_err);
for (1 .. 6)
{
	IPC::Run::run([ @pgbench, '-c', 3, '-t', 100, '-f', $node->basedir . '/rows.sql' ], '>', \my $rows_out, '2>', \my $rows_err);
	signal_worker($node, 'TERM') if $_ == 3;
}
$job->finish;
wait_for_capture($node);
folds_to_table($node, 'w');
versions_are_dense($node, 'w');
cmp_ok(sql($node, 'SELECT stream_latest_version(\'w\')'), '>', 300, 'versions of both kinds of sessions');

#
# Continuous jobs over a partitioned table
#
sql($node, <<'SQL');
CREATE TABLE source (id int, part int, v text, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE source_0 PARTITION OF source FOR VALUES IN (0);
CREATE TABLE source_1 (v text, gone int, part int NOT NULL, id int NOT NULL);
ALTER TABLE source_1 DROP COLUMN gone;
ALTER TABLE source ATTACH PARTITION source_1 FOR VALUES IN (1);
INSERT INTO source SELECT i, i % 2, 'v' || i FROM generate_series(1, 100) AS i;
CREATE TABLE mirror (id int, part int, v text, PRIMARY KEY (id, part));
SQL
track($node, ['source']);
sql($node, <<'SQL');
SELECT stream_start('appends', 'source', sink => 'appended', options => '{"computeUpdates": true}');
SELECT stream_start('mirrors', 'source', sink => 'mirror', sink_mode => 'apply');
SQL
sql($node, <<'SQL');
UPDATE source SET v = v || '!' WHERE id % 3 = 0;
UPDATE source SET part = 1 WHERE id % 10 = 0;
CREATE TABLE source_2 PARTITION OF source FOR VALUES IN (2);
INSERT INTO source SELECT i, 2, 'later' FROM generate_series(101, 110) AS i;
ALTER TABLE source DETACH PARTITION source_0;
INSERT INTO source_0 VALUES (0, 0, 'while it was detached');
TRUNCATE source_1;
ALTER TABLE source ATTACH PARTITION source_0 FOR VALUES IN (0);
INSERT INTO source VALUES (1, 1, 'new');
SELECT stream_process_all_available('appends', '5 min');
SELECT stream_process_all_available('mirrors', '5 min');
SQL
my $columns = q{count(DISTINCT _commit_version), string_agg(concat_ws(' ', _commit_version, _change_type, %s, %s, %s), ', '
	ORDER BY _commit_version, %s, %s, _change_type)};
my $read = sql($node, sprintf("SELECT $columns FROM stream_changes(NULL::source, compute_updates => true)", map { "(row_data).$_" } qw(id part v id part)));
# the baseline, and what changed rows; nothing does that when a partition is made
like($read, qr/^8\|.*insert 0 0 while it was detached/, 'what there is to process');
is(sql($node, sprintf("SELECT $columns FROM appended", qw(id part v id part))), $read, 'a job that appends has all of it');
my $rows = q{SELECT string_agg(concat_ws(' ', id, part, v), ', ' ORDER BY id, part) FROM %s};
is(sql($node, sprintf($rows, 'mirror')), sql($node, sprintf($rows, 'source')), 'one that applies equals the table');
sql($node, q{SELECT stream_stop('appends'); SELECT stream_stop('mirrors')});

#
# Copies of the database: what REPLICA IDENTITY partitions had is known where the tables of the extension have come along
#
my $identities = q{SELECT string_agg(relreplident, '' ORDER BY relname) FROM pg_class WHERE relname LIKE 'source\__'};
sql($node, <<'SQL');
SELECT stream_untrack('source');
ALTER TABLE source_0 REPLICA IDENTITY USING INDEX source_0_pkey;
ALTER TABLE source_1 REPLICA IDENTITY NOTHING;
SQL
is(sql($node, $identities), 'ind', 'each its own');
track($node, ['source']);
sql($node, q{INSERT INTO source VALUES (2, 1, 'tracked again')});
my $last = sql($node, q{SELECT stream_latest_version('source')});
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-t', 'source*', '-t', 'streamcdc.definitions', '-f', $dump ], 'a dump');
sql($node, 'CREATE DATABASE forgotten TEMPLATE postgres');
sql($node, 'CREATE DATABASE adopted TEMPLATE postgres');
sql($node, 'CREATE DATABASE restored');
sql($node, 'CREATE EXTENSION streamcdc', 'restored');
command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $dump ], 'it is restored');
is(status($node, 'source', $_), 'inert', "$_: it is inert") for qw(forgotten adopted restored);
sql($node, q{ALTER TABLE source DETACH PARTITION source_2; SELECT stream_untrack('source')}, 'forgotten');
is(sql($node, $identities, 'forgotten'), 'ind', 'an inert one is untracked: partitions, also one that has gone, get back what they had');
for my $db (qw(adopted restored))
{
	sql($node, q{SELECT stream_track('source')}, $db);
	wait_for_capture($node, $db);
	is(sql($node, $identities, $db), 'fff', "$db: captured");
	sql($node, q{UPDATE source SET part = 2 WHERE id = 2 AND part = 1; DROP TABLE source_1}, $db);
	folds_to_table($node, 'source', $db);
	cmp_ok(sql($node, q{SELECT first_version FROM stream_tables WHERE table_name = 'source'}, $db), '>', $last, "$db: versions go on");
	sql($node, q{SELECT stream_untrack('source')}, $db);
}
is(sql($node, $identities, 'adopted'), 'id', 'TEMPLATE: partitions get back what they had before the original was tracked');
is(sql($node, $identities, 'restored'), 'ff', 'a dump does not say what that was: nothing is done to them');
wait_for_no_capture($node, "$_: capture ends", $_) for qw(adopted restored);
sql($node, "DROP DATABASE $_") for qw(forgotten adopted restored);
wait_for_capture($node);
folds_to_table($node, 'source');

#
# DROP EXTENSION
#
sql($node, 'DROP EXTENSION streamcdc');
wait_for_no_capture($node, 'DROP EXTENSION ends capture');
sql($node, 'UPDATE p SET v = \'untracked\'; ALTER TABLE p DETACH PARTITION p1; DROP TABLE w; CREATE EXTENSION streamcdc');
track($node, ['p']);
folds_to_table($node, 'p');
$node->stop;
done_testing();
