# A transaction larger than the memory of capture passes through temporary
# files, and is one version all the same.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $rows = 300_000;

# the server writes down which temporary files there were
my $node = new_node('big', conf => "streamcdc.capture_memory = '4MB'\nlog_temp_files = 0\n");
start_extension($node);
sql($node, <<'SQL');
CREATE TABLE big (id int PRIMARY KEY, n int, v text);
CREATE TABLE small (id int PRIMARY KEY, n int);
INSERT INTO small SELECT i, 0 FROM generate_series(1, 10) AS i;
SQL
track($node, [ 'big', 'small' ]);

my $settings = sql($node, 'SHOW streamcdc.capture_memory');
is($settings, '4MB', 'capture has little memory');

#
# One transaction with a subtransaction kept and one rolled back, while others write another table
#
my $load = start_pgbench($node, ["\\set id random(1, 10)\nUPDATE small SET n = n + 1 WHERE id = :id;\n"], 60);
$node->poll_query_until('postgres', 'SELECT sum(n) > 10 FROM small') or die 'nobody writes';
my $before = sql($node, 'SELECT sum(n) FROM small');
sql($node, <<"SQL");
BEGIN;
INSERT INTO big SELECT i, 0, md5(i::text) || md5(random()::text) FROM generate_series(1, $rows) AS i;
SAVEPOINT kept;
UPDATE big SET n = 1 WHERE id % 10 = 0;
UPDATE small SET n = n + 1 WHERE id = 1;
RELEASE kept;
SAVEPOINT gone;
DELETE FROM big WHERE id <= $rows / 2;
ROLLBACK TO gone;
DELETE FROM big WHERE id % 10 = 1;
COMMIT;
SQL
$node->poll_query_until('postgres', "SELECT sum(n) > $before + 100 FROM small") or die 'nobody writes any more';
# pgbench answers SIGINT by ending
$load->{run}->signal('INT');
finish_pgbench($load);
sync($node);

is(sql($node, 'SELECT count(*), sum(inserts), sum(updates), sum(deletes) FROM stream_versions(\'big\', 1)'),
	join('|', 1, $rows, $rows / 10, $rows / 10), 'the transaction is one version with all of its events');
is(sql($node, 'SELECT count(*), min(event_number), max(event_number), count(DISTINCT event_number) FROM stream_events(\'big\', 1)'),
	join('|', $rows * 1.2, 1, $rows * 1.2, $rows * 1.2), 'they are numbered throughout');
is(sql($node, <<"SQL"), 't', 'and in the order in which they happened');
SELECT bool_and(event = CASE WHEN event_number <= $rows THEN 'insert' WHEN event_number <= $rows * 1.1 THEN 'update' ELSE 'delete' END)
   AND bool_and((new_row ->> 'id')::int = event_number) FILTER (WHERE event = 'insert')
FROM stream_events('big', 1)
SQL
cmp_ok(sql($node, <<'SQL'), '>', 10, 'the version is spread over many blocks');
SELECT count(*) FROM streamcdc.blocks AS b JOIN streamcdc.streams AS s USING (stream_id)
WHERE s.table_name = 'big' AND b.first_version = 1
SQL
is(sql($node, <<'SQL'), 't', 'none of which is larger than memory allows');
SELECT max(raw_size) <= 1024 * 1024 FROM streamcdc.blocks AS b JOIN streamcdc.streams AS s USING (stream_id) WHERE s.table_name = 'big'
SQL
like(slurp_file($node->logfile), qr/streamcdc capture.*temporary file/, 'capture went through temporary files');
folds_to_table($node, 'big');

# the small ones
versions_are_dense($node, 'small');
timestamps_increase($node, 'small');
folds_to_table($node, 'small');
is(sql($node, <<'SQL'), 't', 'transactions of others are in commit order with it');
SELECT bool_and(later) FROM (
	SELECT commit_lsn > lag(commit_lsn) OVER (ORDER BY _commit_version) AS later FROM stream_versions('small', 1)
) AS v
SQL
is(sql($node, <<'SQL'), '1', 'its own change of the other table is a version of that, once');
SELECT count(*) FROM stream_versions('small', 1) AS s JOIN stream_versions('big', 1) AS b ON b.xid = s.xid AND b.commit_lsn = s.commit_lsn
SQL
is(sql($node, 'SELECT count(*) FROM stream_changes(\'big\', 1, deduplication_mode => \'netChanges\')'), $rows * 0.9,
	'net changes of the version are the rows that are left');

#
# The worker is ended in the middle of one
#
my $pid = signal_worker($node, 'STOP');
sql($node, 'UPDATE big SET n = n + 1');
kill 'CONT', $pid;
# the worker's spool, while it reads the transaction
$node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_ls_tmpdir()})
  or die 'the worker does not read the transaction';
is(sql($node, "SELECT pg_terminate_backend($pid, 100000); SELECT last_version FROM stream_tables WHERE table_name = 'big'"), "t\n1",
	'a worker in the middle of a big transaction ends when it is told to, and not after it');
wait_for_capture($node);
versions_are_dense($node, 'big');
is(sql($node, 'SELECT updates FROM stream_versions(\'big\', 2)'), $rows * 0.9, 'and the next one captures all of it');
folds_to_table($node, 'big');
is(sql($node, q{SELECT count(*) FROM pg_ls_tmpdir()}), 0, 'no temporary file is left');

$node->stop;
done_testing();
