# Life cycle of streaming queries, at the level of the server: starting, stopping, resuming, waiting, failing; changes of source and
# sink while a query runs; roles; restarts; databases that are dropped, renamed and copied.  What queries bring into their
# sinks is in test/pgtap/60_jobs.sql.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('jobs', conf => "streamcdc.max_restarts = 1\n");
start_extension($node);

sub query_is
{
	my ($query, $status, $test, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $and = $params{error} ? " AND last_error ~ '$params{error}'" : '';
	return wait_for($node, "EXISTS (SELECT FROM stream_queries WHERE query_name = '$query' AND status = '$status'$and)", $test, $params{db})
	  || diag(sql($node, "SELECT status, last_error FROM stream_queries WHERE query_name = '$query'", $params{db}));
}

sub all_done
{
	my (@queries) = @_;
	sql($node, join '', map { "SELECT stream_process_all_available('$_', '120 s');\n" } @queries);
}

# the worker of a query
sub pid_of
{
	my ($query) = @_;
	return sql($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'streamcdc job' AND application_name = '$query'");
}

sub workers { return sql($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'streamcdc job'") }

# one test: the sink holds the rows of the source, each once, in the columns given
sub same_rows
{
	my ($source, $sink, $columns, $test, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql($node, "SELECT count(*) FROM ((SELECT $columns FROM $source EXCEPT ALL SELECT $columns FROM $sink)
		UNION ALL (SELECT $columns FROM $sink EXCEPT ALL SELECT $columns FROM $source)) AS x", $params{db}), '0', $test);
}

sql($node, <<'SQL');
CREATE TABLE src (id int PRIMARY KEY, v text);
INSERT INTO src VALUES (1, 'a');
SQL
track($node, ['src']);

# ---- start, stop, resume, drop ----

for my $wait ("await_any_termination('60 s')", map { "$_('own', '60 s')" } qw(await_termination process_all_available stop))
{
	fails_with($node, "BEGIN; SELECT stream_start('own', 'src', sink => 'own_sink'); SELECT stream_$wait", '25001', qr/query "own" was started by the current transaction.*COMMIT first/s,
		"stream_$wait would wait for its own transaction");
}
my $id = sql($node, "SELECT stream_start('q', 'src', sink => 'q_sink')");
like($id, qr/^[0-9a-f-]{36}$/, 'stream_start returns the id');
# prepared, it would keep everybody else from starting or stopping queries
sql($node, "SELECT stream_start('once', 'src', sink => 'once_sink', trigger => 'once')");
sql($node, "SELECT stream_await_termination('once', '60 s')");
for my $change ("stream_start('prepared', 'src', sink => 'prepared_sink')", "stream_resume('once')", "stream_stop('once')", "stream_drop('once')")
{
	fails_with($node, "BEGIN; SELECT $change; PREPARE TRANSACTION 'change'", '0A000', qr/cannot PREPARE a transaction that has started, stopped or dropped a streaming query/,
		"$change is not prepared");
}
sql($node, "SELECT stream_drop('once'); DROP TABLE once_sink");
all_done('q');
same_rows('src', 'q_sink', 'id, v', 'rows are in the sink');
is(sql($node, "SELECT backend_type || ' ' || application_name || ' ' || query FROM pg_stat_activity WHERE backend_type = 'streamcdc job'"),
	'streamcdc job q waiting for changes', 'in pg_stat_activity');
fails_with($node, "SELECT stream_start('q', 'src', sink => 'q_sink')", '42710', qr/CONCURRENT_QUERY.*stop_active_run_on_restart/s, 'a running query cannot be started');
fails_with($node, "SELECT stream_resume('q')", '42710', qr/CONCURRENT_QUERY/, 'nor resumed');
is(sql($node, "SELECT stream_await_termination('q', '10 ms'), stream_await_any_termination('10 ms')"), 'f|f', 'it does not end by itself');
is(sql($node, "BEGIN; DO \$\$ BEGIN PERFORM stream_start('own', 'src', sink => 'own_sink'); END \$\$; SELECT stream_await_any_termination('10 ms'); ROLLBACK"), 'f', 'one that runs may end');

my $run = sql($node, "SELECT run_id FROM stream_queries WHERE query_name = 'q'");
sql($node, "SELECT stream_stop('q')");
is(sql($node, "SELECT status, run_id = '$run' FROM stream_queries WHERE query_name = 'q'"), 'stopped|t', 'stopped');
is(workers(), 0, 'its worker is gone when stream_stop returns');
sql($node, "SELECT stream_stop('q')");
is(sql($node, "SELECT stream_await_termination('q'), stream_await_any_termination()"), 't|t', 'a stopped query has ended');
is(sql($node, "SELECT stream_reset_terminated(), stream_await_any_termination('10 ms')"), '|f', 'what has ended can be forgotten');
fails_with($node, "SELECT stream_process_all_available('q')", '55000', qr/query "q" is not running/, 'nothing is processed by a stopped query');
sql($node, "INSERT INTO src VALUES (2, 'b')");
my $new_run = sql($node, "SELECT stream_resume('q')");
isnt($new_run, $run, 'a new run');
is(sql($node, "SELECT id, run_id FROM stream_queries WHERE query_name = 'q'"), "$id|$new_run", 'of the same query');
all_done('q');
same_rows('src', 'q_sink', 'id, v', 'it goes on from where it was');

# stream_start of a stopped query; what may change and what may not
sub notice_of
{
	my ($text) = @_;
	my ($status, $out, $err) = $node->psql('postgres', $text);
	return "$status $err";
}
sql($node, "SET streamcdc.stop_active_run_on_restart = on; SELECT stream_start('q', 'src', sink => 'q_sink', trigger => '1 hour')");
is(sql($node, "SELECT id = '$id', run_id <> '$new_run', trigger FROM stream_queries WHERE query_name = 'q'"), 't|t|1 hour',
	'with stop_active_run_on_restart it is stopped and started with another trigger');
sql($node, "SELECT stream_stop('q')");
like(notice_of(q{SELECT stream_start('q', 'src', sink => 'public.q_sink', options => '{"startingVersion": 0, "maxVersionsPerTrigger": 5}')}),
	qr/^0 .*NOTICE: .*starting options are ignored/s, 'starting options are ignored, with a NOTICE; limits may change');
all_done('q');
same_rows('src', 'q_sink', 'id, v', 'nothing was read twice');
sql($node, "SELECT stream_stop('q')");
sql($node, "CREATE TABLE src2 (LIKE src INCLUDING ALL); SELECT stream_track('src2'); CREATE TABLE q_sink2 (LIKE q_sink)");
for my $case (
	[ 'another source', "'src2', sink => 'q_sink'", 'source' ],
	[ 'another query', "'src', sink => 'q_sink', query => 'SELECT * FROM batch WHERE true'", 'query' ],
	[ 'another sink', "'src', sink => 'q_sink2'", 'sink' ],
	[ 'another format', "'src', sink => 'q_sink', format => 'table'", 'format' ],
	[ 'net changes', q{'src', sink => 'q_sink', options => '{"deduplicationMode": "netChanges"}'}, 'deduplicationMode', 'STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA' ],
	[ 'computed updates', q{'src', sink => 'q_sink', options => '{"computeUpdates": true}'}, 'computeUpdates', 'STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA' ],
	[ 'another emission', q{'src', sink => 'q_sink', options => '{"emission": "watermark"}'}, 'emission', 'STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA' ])
{
	my ($what, $args, $name, $condition) = @$case;
	my $detail = $condition ? ".*Error condition: $condition" : '';
	fails_with($node, "SELECT stream_start('q', $args)", '55000', qr/query "q" exists with another "$name"$detail.*stream_drop\('q'\)/s, "$what is refused");
}
sql($node, q{SELECT stream_start('raw', 'src', sink => 'raw_sink', trigger => 'availableNow', options => '{"deduplicationMode": "none"}'); });
sql($node, q{SELECT stream_await_termination('raw', '60 s')});
fails_with($node, q{SELECT stream_start('raw', 'src', sink => 'raw_sink')}, '55000', qr/STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY/, 'a raw stream does not become stateful');

# a transaction that is rolled back, or takes long
sql($node, "BEGIN; SELECT stream_start('back', 'src', sink => 'back_sink'); SAVEPOINT s; SELECT stream_resume('q'); ROLLBACK TO s; ROLLBACK");
is(sql($node, "SELECT count(*) FROM stream_queries WHERE query_name = 'back' OR status = 'running'"), 0, 'a start that is rolled back has left nothing');
wait_for($node, "count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'streamcdc job'", 'nor a worker');
sql($node, "BEGIN; CREATE TABLE late (id int PRIMARY KEY); INSERT INTO late VALUES (1); SELECT stream_track('late'); SELECT stream_start('late', 'late', sink => 'late_sink'); COMMIT");
all_done('late');
same_rows('late', 'late_sink', 'id', 'a table that is made, tracked and read in one transaction');

# a start that is not committed yet does not keep others from stopping
my $starter = $node->background_psql('postgres', on_error_stop => 1);
$starter->query_safe("BEGIN; SELECT stream_start('open', 'src', sink => 'open_sink')");
sql($node, "SELECT stream_stop('late')");
is(sql($node, "SELECT status FROM stream_queries WHERE query_name = 'late'"), 'stopped', 'stopped while another is being started');
$starter->query_safe('ROLLBACK');
$starter->quit;
sql($node, "SELECT stream_resume('late')");
all_done('late');

# nor does it use up workers that would have to wait for it
$starter = $node->background_psql('postgres', on_error_stop => 1);
$starter->query_safe("BEGIN; SELECT stream_start('open', 'src', sink => 'open_sink')");
sql($node, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'late'");
query_is('late', 'restarting', 'a worker that is to be begun again waits for a transaction', error => 'has started, stopped or dropped a query is still open');
is(sql($node, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'streamcdc.queries'::regclass"), 0, 'but does not wait for its locks');
$starter->query_safe('ROLLBACK');
$starter->quit;
all_done('late');

# who stops a query that is about to be resumed waits for that
sql($node, "SELECT stream_stop('late')");
my $resumer = $node->background_psql('postgres', on_error_stop => 1);
$resumer->query_safe("BEGIN; SELECT stream_resume('late')");
fails_with($node, "SELECT stream_stop('late', '10 ms')", '57014', qr/query "late" did not stop in time.*asked to, and will/s, 'a run that is not committed yet is not stopped yet');
my $stopper = background_sql($node, "SELECT stream_stop('late', '60 s')");
wait_for($node, "EXISTS (SELECT FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT stream_stop(''late''%')", 'who stops it waits');
$resumer->query_safe('COMMIT');
$resumer->quit;
ok((finish_sql($stopper))[0], 'until it is committed');
is(sql($node, "SELECT status FROM stream_queries WHERE query_name = 'late'"), 'stopped', 'then it is stopped');
sql($node, "SELECT stream_resume('late')");
all_done('late');

# dropping: state and progress go, the sink stays; a batch that waits for the caller's own lock is given up
sql($node, "SELECT stream_resume('q')");
all_done('q');
sql($node, "BEGIN; LOCK TABLE q_sink; SELECT stream_stop('late'); INSERT INTO src VALUES (3, 'c'); COMMIT");
all_done('q');
my $locked = $node->background_psql('postgres', on_error_stop => 1);
$locked->query_safe('BEGIN; LOCK TABLE q_sink');
sql($node, "INSERT INTO src VALUES (4, 'd')");
$node->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'q_sink'::regclass)") or die 'the job does not wait';
$locked->query_safe("SELECT stream_stop('q', '10 s')");
$locked->query_safe('COMMIT');
is(sql($node, "SELECT status FROM stream_queries WHERE query_name = 'q'"), 'stopped', 'a batch that waits for the stopping transaction is rolled back');
sql($node, "SELECT stream_resume('q')");
all_done('q');
same_rows('src', 'q_sink', 'id, v', 'and is done when the query goes on');
$locked->query_safe('BEGIN; LOCK TABLE q_sink');
sql($node, "INSERT INTO src VALUES (5, 'e')");
$node->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'q_sink'::regclass)") or die 'the job does not wait';
$locked->query_safe("SELECT stream_drop('q')");
$locked->query_safe('COMMIT');
$locked->quit;
is(sql($node, "SELECT count(*) FROM stream_queries WHERE query_name = 'q'"), 0, 'the same with stream_drop');
is(sql($node, 'SELECT count(*) FROM q_sink'), 4, 'the sink stays');

# ---- notifications ----

sql($node, "SELECT stream_drop('late'); SELECT stream_drop('raw')");
my $listener = $node->background_psql('postgres', on_error_stop => 1);
$listener->query_safe('LISTEN streamcdc');
sql($node, q{SELECT stream_start('told', 'src', sink => 'told_sink', trigger => 'availableNow')});
sql($node, q{SELECT stream_await_termination('told', '60 s')});
wait_for($node, "count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'streamcdc job'", 'the worker has ended');
my $told = $listener->query('SELECT 1');
$listener->quit;
my @events = $told =~ /"streamcdc" with payload "(\{.*?\})" received/g;
my $run_of_told = sql($node, "SELECT id || ' ' || run_id FROM stream_queries WHERE query_name = 'told'");
is(join(' ', map { /"event": "(\w+)"/ ? $1 : '?' } @events), 'QueryStarted QueryProgress QueryTerminated', 'events') or diag($told);
is(scalar(grep { /"id": "(\S+)", "runId": "(\S+)", "name": "told"/ && "$1 $2" eq $run_of_told } @events), 3, 'with ids');
like($events[1] // '', qr/"batchId": 0, "timestamp": "\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"\}$/, 'batch and time');
unlike("@events", qr/src|sink/, 'and nothing else');

# ---- starts that are rolled back ----

sql($node, q{CREATE TABLE again_src (id int PRIMARY KEY); SELECT stream_track('again_src');
SELECT stream_start('again', 'again_src', sink => 'again_sink'); SELECT stream_stop('again')});
sql($node, "BEGIN; SELECT stream_resume('again'); ROLLBACK; SELECT stream_resume('again'); SELECT stream_stop('again')") for 1 .. 10;
query_is('again', 'stopped', 'the worker of a start that was rolled back is in nobody\'s way');

# savepoints: a start that is taken back leaves nothing that the rest of the transaction would stumble over
my $taken_back = workers();
sql($node, <<'SQL');
BEGIN;
SAVEPOINT a;
SELECT stream_resume('again');
ROLLBACK TO a;
SELECT stream_stop('again');
SELECT stream_resume('again');
SAVEPOINT b;
SELECT stream_start('again 2', 'again_src', sink => 'again_sink');
RELEASE b;
ROLLBACK TO a;
SELECT stream_start('again', 'again_src', sink => 'again_sink');
SELECT stream_start('again 2', 'again_src', sink => 'again_sink');
SAVEPOINT c;
SELECT stream_start('again 3', 'again_src', sink => 'again_sink');
ROLLBACK TO c;
DO $$ BEGIN PERFORM stream_start('again 3', 'again_src', sink => 'again_sink'); RAISE 'back'; EXCEPTION WHEN OTHERS THEN END $$;
COMMIT;
INSERT INTO again_src VALUES (1);
SQL
all_done('again', 'again 2');
is(sql($node, 'SELECT count(*) FROM again_sink'), 2, 'what was started again runs, once');
wait_for($node, "$taken_back + 2 = (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'streamcdc job')", 'and nothing else does');
is(sql($node, "SELECT count(*) FROM stream_queries WHERE query_name = 'again 3'"), 0, 'what was taken back is not there');
sql($node, <<'SQL');
BEGIN;
SAVEPOINT a;
SELECT stream_drop('again');
ROLLBACK TO a;
SELECT stream_resume('again');
ROLLBACK TO a;
SELECT stream_drop('again');
SELECT stream_start('again', 'again_src', sink => 'again_sink');
COMMIT;
SQL
all_done('again');
is(sql($node, 'SELECT count(*) FROM again_sink'), 3, 'dropped and started in one transaction');
sql($node, "SELECT stream_drop('again'); SELECT stream_drop('again 2')");

# the same with a table that is tracked
sql($node, 'CREATE TABLE again_tracked (id int PRIMARY KEY); INSERT INTO again_tracked VALUES (1)');
sql($node, "BEGIN; SAVEPOINT a; SELECT stream_track('again_tracked'); ROLLBACK TO a; SELECT stream_track('again_tracked'); SAVEPOINT b; SELECT stream_untrack('again_tracked'); ROLLBACK TO b; COMMIT");
sync($node);
is(sql($node, q{SELECT _commit_version || _change_type FROM stream_changes('again_tracked')}), '0insert', 'tracked in the second try');

# ---- columns of the source ----

sql($node, <<'SQL');
CREATE TABLE shape (id int PRIMARY KEY, a text, b int, d varchar(10));
INSERT INTO shape VALUES (1, 'x', 1, 'd');
SQL
track($node, ['shape']);
sql($node, q{SELECT stream_start('shape', 'shape', sink => 'shape_sink', sink_mode => 'apply', options => '{"deduplicationMode": "netChanges"}');
SELECT stream_start('merged', 'shape', sink => 'merged_sink', sink_mode => 'apply', options => '{"mergeSchema": true}')});
all_done('shape', 'merged');
sql($node, "ALTER TABLE shape ADD c text DEFAULT 'new'; INSERT INTO shape VALUES (2, 'y', 2, 'd', 'z')");
all_done('shape', 'merged');
same_rows('shape', 'shape_sink', 'id, a, b', 'an added column is ignored');
same_rows('shape', 'merged_sink', 'id, a, b', 'or, with mergeSchema');
same_rows('shape', 'merged_sink', 'id, c', 'added to the sink, with what rows have in it that were not touched');
sql($node, "SELECT stream_stop('merged')");
for my $change (
	[ 'renamed', 'ALTER TABLE shape RENAME a TO aa', 'id, aa, b, d', 'ALTER TABLE shape_sink RENAME a TO aa', ],
	[ 'retyped', 'ALTER TABLE shape ALTER d TYPE text', 'id, aa, b, d' ],
	[ 'dropped', 'ALTER TABLE shape DROP b', 'id, aa, d' ])
{
	my ($what, $ddl, $columns, $fit) = @$change;
	# what was committed before the change, and is read after it, has the old columns
	sql($node, "SELECT stream_stop('shape'); UPDATE shape SET id = id + 10; $ddl; SELECT stream_sync('60 s')");
	if ($fit)
	{
		fails_with($node, "SELECT stream_resume('shape')", '42703', qr/"aa" of relation "shape_sink" does not exist/, "$what: the sink does not fit");
		sql($node, "$fit; ALTER TABLE shape_sink ADD c text");
	}
	sql($node, "SELECT stream_resume('shape'); UPDATE shape SET aa = aa || '!'");
	all_done('shape');
	same_rows('shape', 'shape_sink', $columns, "$what while stopped: older versions are read by the columns of today");
}

sql($node, 'CREATE TABLE moving (id int PRIMARY KEY, a text)');
track($node, ['moving']);
sql($node, "SELECT stream_start('moving', 'moving', sink => 'moving_sink', sink_mode => 'apply')");
sql($node, "INSERT INTO moving VALUES (1, 'x')");
all_done('moving');
sql($node, "ALTER TABLE moving RENAME a TO aa; INSERT INTO moving VALUES (2, 'y')");
query_is('moving', 'failed', 'a column that is renamed while the query runs stops it', error => 'columns of source table "moving" have changed at version 2.*Column "a" was renamed to "aa"');
fails_with($node, "SELECT stream_await_termination('moving')", '55000', qr/have changed at version 2.*DETAIL:  Column "a" was renamed to "aa"\.\nError condition: STREAM_FAILED\..*HINT:  SELECT stream_resume\('moving'\); goes on with the columns/s, 'the error is that of who waits');
fails_with($node, "SELECT stream_await_any_termination()", '55000', qr/query "moving" has failed/, 'for any');
sql($node, "SELECT stream_reset_terminated()");
is(sql($node, "SELECT stream_exception('moving')"), qq{columns of source table "moving" have changed at version 2\nDETAIL:  Column "a" was renamed to "aa".\n}
	. q{HINT:  SELECT stream_resume('moving'); goes on with the columns that the table has now.}, 'stream_exception, as psql would show it');
is(sql($node, "SELECT last_error = stream_exception('moving') FROM stream_queries WHERE query_name = 'moving'"), 't', 'so does the view');
is(sql($node, "SELECT stream_status('moving') ->> 'message' ~ '^Terminated with exception: columns of source'"), 't', 'stream_status');
fails_with($node, "SELECT stream_resume('moving')", '42703', qr/"aa" of relation "moving_sink" does not exist/, 'it cannot go on while the sink does not fit');
sql($node, "ALTER TABLE moving_sink RENAME a TO aa; SELECT stream_resume('moving')");
all_done('moving');
same_rows('moving', 'moving_sink', 'id, aa', 'then it does, and no row is lost');

# ---- the source goes away ----

sql($node, "SELECT stream_untrack('moving')");
query_is('moving', 'failed', 'untracked: the query stops', error => 'not tracked any more');
sql($node, "SELECT stream_track('moving')");
fails_with($node, "SELECT stream_resume('moving')", '55000', qr/source table "moving" is not tracked any more|was tracked anew/, 'tracked anew: it does not go on');
fails_with($node, "SELECT stream_start('moving', 'moving', sink => 'moving_sink', sink_mode => 'apply')", '55000', qr/exists with another "source"|not retained/, 'nor is it started');
sql($node, "SELECT stream_drop('moving'); DROP TABLE moving_sink; SELECT stream_sync('60 s');");
sql($node, q{SELECT stream_start('moving', 'moving', sink => 'moving_sink', sink_mode => 'apply', options => '{"startingVersion": "earliest"}')});
all_done('moving');
same_rows('moving', 'moving_sink', 'id, aa', 'dropped and started anew');
sql($node, 'DROP TABLE moving');
query_is('moving', 'failed', 'the table is dropped: the query stops', error => 'was dropped|not tracked any more');
sql($node, "SELECT stream_drop('moving')");

# ---- the sink changes ----

sql($node, "SELECT stream_start('s', 'src', sink => 's_sink', sink_mode => 'apply')");
all_done('s');
sql($node, "ALTER TABLE s_sink RENAME TO s_elsewhere; INSERT INTO src VALUES (6, 'f')");
query_is('s', 'failed', 'a sink that is gone', error => 'sink "public.s_sink" does not exist');
sql($node, "ALTER TABLE s_elsewhere RENAME TO s_sink; ALTER TABLE s_sink ADD CHECK (id <> 7); SELECT stream_resume('s')");
all_done('s');
same_rows('src', 's_sink', 'id, v', 'it goes on when the sink is back');
sql($node, "INSERT INTO src VALUES (7, 'g')");
query_is('s', 'failed', 'a constraint that fails: tried again, then failed', error => 'violates check constraint');
is(sql($node, "SELECT batch_id FROM stream_queries WHERE query_name = 's'"), sql($node, "SELECT max(b.batch_id) - 1 FROM streamcdc.batches AS b JOIN stream_queries AS q ON q.id = b.query_id WHERE query_name = 's'"),
	'the batch was not done');
sql($node, "ALTER TABLE s_sink DROP CONSTRAINT s_sink_id_check; SELECT stream_resume('s')");
all_done('s');
same_rows('src', 's_sink', 'id, v', 'and is done when it can be');
# one that works in the end is no failure
$node->append_conf('postgresql.conf', 'streamcdc.max_restarts = 1000');
$node->reload;
sql($node, "ALTER TABLE s_sink ADD CHECK (id <> 8); INSERT INTO src VALUES (8, 'h')");
query_is('s', 'restarting', 'while it is tried again', error => 'violates check constraint .*\nDETAIL:  Failing row contains \(8, h');
sql($node, "ALTER TABLE s_sink DROP CONSTRAINT s_sink_id_check");
all_done('s');
query_is('s', 'running', 'it recovers');
same_rows('src', 's_sink', 'id, v', 'by itself');
$node->append_conf('postgresql.conf', 'streamcdc.max_restarts = 1');
$node->reload;

# a mirror whose rows cannot be deleted for a moment, as others would go with them
sql($node, <<'SQL');
CREATE TABLE places (id int PRIMARY KEY, place int);
INSERT INTO places VALUES (1, 1), (2, 2);
SELECT stream_track('places');
CREATE TABLE places_sink (id int PRIMARY KEY, place int CONSTRAINT one_each UNIQUE);
CREATE TABLE guests (place int REFERENCES places_sink ON DELETE CASCADE);
SELECT stream_start('places', 'places', sink => 'places_sink', sink_mode => 'apply');
SQL
all_done('places');
sql($node, 'INSERT INTO guests VALUES (1), (2); BEGIN; UPDATE places SET place = 0 WHERE id = 1; UPDATE places SET place = 1 WHERE id = 2; UPDATE places SET place = 2 WHERE id = 1; COMMIT');
query_is('places', 'failed', 'rows that exchange values of a unique constraint, and cannot be replaced', error => 'duplicate key .*"one_each"\nDETAIL:  Key \(place\)=\(.\) already exists\.\nHINT:  If rows exchange values, the constraint has to be DEFERRABLE');
is(sql($node, 'SELECT count(*) FROM guests'), 2, 'nor are they');
sql($node, "ALTER TABLE places_sink DROP CONSTRAINT one_each, ADD UNIQUE (place) DEFERRABLE INITIALLY DEFERRED; SELECT stream_resume('places')");
all_done('places');
same_rows('places', 'places_sink', 'id, place', 'deferred, the constraint lets them pass');
is(sql($node, 'SELECT count(*) FROM guests'), 2, 'and what refers to them stays');
sql($node, "SELECT stream_drop('places')");

# a column that was added to the sink by a try that failed is added by the next one, though nothing has changed in between
sql($node, <<'SQL');
CREATE TABLE known (id int PRIMARY KEY);
INSERT INTO known VALUES (1);
CREATE TABLE growing (id int PRIMARY KEY);
SELECT stream_track('growing');
SELECT stream_start('growing', 'growing', sink => 'growing_sink', options => '{"mergeSchema": true}');
ALTER TABLE growing_sink ADD FOREIGN KEY (id) REFERENCES known;
INSERT INTO growing VALUES (1);
SQL
all_done('growing');
$node->append_conf('postgresql.conf', 'streamcdc.max_restarts = 1000');
$node->reload;
sql($node, "ALTER TABLE growing ADD more text; INSERT INTO growing VALUES (2, 'more')");
query_is('growing', 'restarting', 'while it is tried again', error => 'violates foreign key');
sql($node, 'INSERT INTO known VALUES (2)');
all_done('growing');
is(sql($node, 'SELECT id, more FROM growing_sink ORDER BY id'), "1|\n2|more", 'in the end the sink has the column');
sql($node, "SELECT stream_drop('growing')");
$node->append_conf('postgresql.conf', 'streamcdc.max_restarts = 1');
$node->reload;

# ---- roles and rights ----

sql($node, <<'SQL');
CREATE ROLE alice LOGIN;
CREATE ROLE bob LOGIN;
GRANT CREATE ON SCHEMA public TO alice;
GRANT SELECT ON src TO alice;
SQL
$node->safe_psql('postgres', "SELECT stream_start('alice', 'src', sink => 'alice_sink')", extra_params => [ '-U', 'alice' ]);
all_done('alice');
is(sql($node, "SELECT relowner::regrole FROM pg_class WHERE relname = 'alice_sink'"), 'alice', 'a sink belongs to the owner of the query');
is(sql($node, "SELECT usename FROM pg_stat_activity WHERE application_name = 'alice'"), 'alice', 'who is the worker\'s session user');
sql($node, "REVOKE SELECT ON src FROM alice; INSERT INTO src VALUES (9, 'i')");
query_is('alice', 'failed', 'a right on the source that is taken away', error => 'permission denied for table src');
sql($node, "GRANT SELECT ON src TO alice; SELECT stream_resume('alice')");
all_done('alice');
sql($node, "ALTER TABLE alice_sink OWNER TO bob; INSERT INTO src VALUES (10, 'j')");
query_is('alice', 'failed', 'a right on the sink that is taken away', error => 'permission denied for table alice_sink');
sql($node, "ALTER TABLE alice_sink OWNER TO alice; SELECT stream_resume('alice')");
all_done('alice');
same_rows('src', 'alice_sink', 'id, v', 'nothing lost, nothing twice');
sql($node, "ALTER TABLE src ENABLE ROW LEVEL SECURITY; INSERT INTO src VALUES (11, 'k')");
query_is('alice', 'failed', 'row-level security that comes to apply', error => 'permission denied for changes of table src|Row-level security');
sql($node, "ALTER TABLE src DISABLE ROW LEVEL SECURITY; SELECT stream_resume('alice')");
all_done('alice');

# what an owner writes never runs as the superuser who looks at it or resumes it
sql($node, <<'SQL');
CREATE SCHEMA alice AUTHORIZATION alice;
SET ROLE alice;
CREATE FUNCTION alice.evil() RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF current_user <> 'alice' THEN
		RAISE EXCEPTION 'ran as %', current_user;
	END IF;
	RETURN true;
END $$;
CREATE DOMAIN alice.evil_text AS text CHECK (alice.evil());
SQL
my $evil = "SELECT stream_start('evil', 'src', sink => 'evil_sink', query => \$\$SELECT id, 'x'::alice.evil_text AS v FROM batch WHERE alice.evil()\$\$)";
sql($node, "SET ROLE alice; $evil");
all_done('evil');
is(sql($node, "SELECT count(*) > 5 FROM stream_explain('evil')"), 't', 'stream_explain by a superuser plans as the owner');
sql($node, "SELECT stream_stop('evil'); SELECT stream_resume('evil'); SELECT stream_stop('evil'); DROP TABLE alice.evil_sink; $evil");
all_done('evil');
is(sql($node, "SELECT relowner::regrole FROM pg_class WHERE relname = 'evil_sink'"), 'alice', 'resumed by a superuser, a sink that is made belongs to the owner');

# a superuser's query writes into nothing of an ordinary role; batch by batch, whatever it was before
sql($node, <<'SQL');
CREATE TABLE parted (id int, v text) PARTITION BY RANGE (id);
CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (1000);
CREATE TABLE parted_high PARTITION OF parted FOR VALUES FROM (1000) TO (MAXVALUE);
SELECT stream_start('parted', 'src', sink => 'parted', query => 'SELECT id, v FROM batch');
SQL
all_done('parted');
sql($node, "INSERT INTO src VALUES (12, 'l')");
all_done('parted');
sql($node, "ALTER TABLE parted_high OWNER TO alice; INSERT INTO src VALUES (13, 'm')");
query_is('parted', 'failed', 'a partition of the sink that comes to belong to somebody else', error => 'sink "parted_high" does not belong to a superuser');
sql($node, "ALTER TABLE parted_high OWNER TO CURRENT_USER; SELECT stream_resume('parted')");
all_done('parted');
same_rows('src', 'parted', 'id, v', 'given back, the query goes on');
sql($node, "SELECT stream_drop('parted')");

# objects that a search_path puts in front of ours
sql($node, <<'SQL');
CREATE SCHEMA traps;
GRANT ALL ON SCHEMA traps TO alice;
SET ROLE alice;
CREATE FUNCTION traps.never(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'captured'; END $$;
CREATE FUNCTION traps.never(int, int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'captured'; END $$;
CREATE FUNCTION traps.never(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'captured'; END $$;
CREATE FUNCTION traps.to_jsonb(anyelement) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'captured'; END $$;
CREATE OPERATOR traps.= (FUNCTION = traps.never, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR traps.= (FUNCTION = traps.never, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR traps.<= (FUNCTION = traps.never, LEFTARG = bigint, RIGHTARG = bigint);
CREATE OPERATOR traps.> (FUNCTION = traps.never, LEFTARG = bigint, RIGHTARG = bigint);
CREATE TABLE public.alice_log (id int, v text, _change_type text, _commit_version text, _commit_timestamp timestamptz);
SELECT stream_register_changelog('alice_log', false, true, false, '{id}');
INSERT INTO alice_log VALUES (1, 'a', 'insert', '1', '2020-01-01'), (2, 'b', 'insert', '1', '2020-01-01'), (1, 'a', 'delete', '2', '2020-01-02'), (1, 'b', 'insert', '2', '2020-01-02');
CREATE FUNCTION traps.each(jsonb) RETURNS void LANGUAGE sql AS '';
CREATE COLLATION traps."C" (LC_COLLATE = 'C.UTF-8', LC_CTYPE = 'C.UTF-8');
SET search_path = traps, pg_catalog, public;
SELECT stream_start('traps', 'src', sink => 'public.traps_sink', sink_mode => 'apply');
SELECT stream_start('traps log', 'alice_log', sink => 'public.traps_log_sink', sink_mode => 'apply', options => '{"deduplicationMode": "netChanges", "maxVersionsPerTrigger": 1}');
SELECT stream_start('traps each', 'alice_log', foreach => 'each');
SQL
all_done('traps', 'traps log', 'traps each');
same_rows('src', 'traps_sink', 'id, v', 'operators of the search_path are not used');
is(sql($node, 'SELECT id, v FROM traps_log_sink ORDER BY id'), "1|b\n2|b", 'nor for a registered change log');

# a role that may not log in any more, and one that is gone
fails_with($node, "SET ROLE alice; SELECT stream_drop('shape')", '42501', qr/must be owner/, 'somebody else\'s query');
sql($node, "SELECT stream_drop(query_name) FROM stream_queries WHERE query_name ~ '^(traps|evil|s\$|alice)'");
sql($node, "CREATE ROLE carol LOGIN; GRANT SELECT ON src TO carol; CREATE TABLE carol_sink (id int); GRANT INSERT ON carol_sink TO carol");
sql($node, "SET ROLE carol; SELECT stream_start('carol', 'src', foreach_batch => 'INSERT INTO carol_sink SELECT id FROM batch')");
all_done('carol');
sql($node, "ALTER ROLE carol NOLOGIN; INSERT INTO src VALUES (20, 't')");
all_done('carol');
query_is('carol', 'running', 'a session goes on although its role may not log in any more');
sql($node, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'carol'");
query_is('carol', 'failed', 'a new one cannot begin', error => 'not permitted to log in.*HINT:  ALTER ROLE carol LOGIN;');
sql($node, "ALTER ROLE carol LOGIN; SELECT stream_resume('carol')");
all_done('carol');
# the same with the right to connect
sql($node, "REVOKE CONNECT ON DATABASE postgres FROM public; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'carol'");
query_is('carol', 'failed', 'nor one that may not connect', error => 'role "carol" is not permitted to connect to database "postgres"');
for my $call ("stream_resume('carol')", "stream_start('carol 2', 'src', foreach_batch => 'SELECT 1')")
{
	fails_with($node, "SET ROLE carol; SELECT $call", '42501', qr/not permitted to connect to database "postgres".*GRANT CONNECT ON DATABASE postgres TO carol;/s, "$call says so");
}
sql($node, "GRANT CONNECT ON DATABASE postgres TO public; SELECT stream_resume('carol')");
all_done('carol');
sql($node, "DROP OWNED BY carol; DROP ROLE carol; INSERT INTO src VALUES (21, 'u')");
query_is('carol', 'failed', 'the owner is gone', error => 'owner of the query was dropped');
is(sql($node, "SELECT owner ~ '^[0-9]+\$' FROM stream_queries WHERE query_name = 'carol'"), 't', 'and has no name any more');
fails_with($node, "SELECT stream_resume('carol')", '28000', qr/owner of the query was dropped/, 'nobody can resume it');
sql($node, "SELECT stream_drop('carol')");

# ---- registered change logs ----

sql($node, <<'SQL');
CREATE TABLE elsewhere (id int, other int, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
SELECT stream_register_changelog('elsewhere', true, true, true, '{id}', '_commit_version');
INSERT INTO elsewhere VALUES (1, 1, 'insert', 1, '2020-01-01');
SELECT stream_start('elsewhere', 'elsewhere', sink => 'elsewhere_sink');
SQL
all_done('elsewhere');
my $again = "SELECT stream_unregister_changelog('elsewhere'); SELECT stream_register_changelog('elsewhere', true, true, true,";
sql($node, "BEGIN; $again '{other}', '_commit_version'); INSERT INTO elsewhere VALUES (2, 2, 'insert', 2, '2020-01-02'); COMMIT");
query_is('elsewhere', 'failed', 'registered with another identity: the query stops', error => 'has another row_id than when.*STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE');
fails_with($node, "SELECT stream_start('elsewhere', 'elsewhere', sink => 'elsewhere_sink')", '55000', qr/STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE/, 'and is not started');
sql($node, "$again '{id}', '_commit_version'); SELECT stream_resume('elsewhere')");
all_done('elsewhere');
is(sql($node, 'SELECT id FROM elsewhere_sink ORDER BY id'), "1\n2", 'as it was, it goes on');

# what waits in state is laid out by what the identity and the version are
my %retyped = (
	'the version gets another type' => ['{id}', 'contract', 'ALTER TABLE retyped ALTER _commit_version TYPE text'],
	'a column gets the name of the way to the identity' => ['{doc.id}', 'row_id', 'ALTER TABLE retyped ADD "doc.id" numeric'],
	'a part of a composite identity gets another type' => ['{pair.a}', 'row_id', 'ALTER TYPE retyped_pair DROP ATTRIBUTE a; ALTER TYPE retyped_pair ADD ATTRIBUTE a text'],
);
for my $what (sort keys %retyped)
{
	my ($row_id, $difference, $ddl) = @{ $retyped{$what} };
	sql($node, <<"SQL");
CREATE TYPE retyped_pair AS (a int, b int);
CREATE TABLE retyped (id int, doc jsonb, pair retyped_pair, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
SELECT stream_register_changelog('retyped', false, true, false, '$row_id');
CREATE TABLE retyped_seen (id int);
INSERT INTO retyped VALUES (1, '{"id": 1}', '(1,1)', 'insert', 1073741820, '2020-01-01');
SELECT stream_start('retyped', 'retyped', foreach_batch => 'INSERT INTO retyped_seen SELECT id FROM batch',
	options => '{"deduplicationMode": "netChanges", "noDataMicroBatchesEnabled": false}');
SQL
	all_done('retyped');
	sql($node, "BEGIN; $ddl; INSERT INTO retyped (id, doc, pair, _change_type, _commit_version, _commit_timestamp) VALUES (2, '{\"id\": 2}', '(2,2)', 'insert', '2000000000', '2020-01-02'); COMMIT");
	query_is('retyped', 'failed', "$what while a row waits: the query stops", error => "has another $difference than when");
	sql($node, "SELECT stream_drop('retyped'); DROP TABLE retyped, retyped_seen; DROP TYPE retyped_pair");
}

# versions of type text that look like numbers are none
sql($node, <<'SQL');
CREATE TABLE dated (id int, _change_type text, _commit_version text, _commit_timestamp timestamptz);
SELECT stream_register_changelog('dated', false, false, false);
INSERT INTO dated VALUES (1, 'insert', '007', '2020-01-01'), (2, 'insert', '2020-01-02', '2020-01-02');
SELECT stream_start('dated', 'dated', sink => 'dated_sink', trigger => 'availableNow', options => '{"maxVersionsPerTrigger": 1}');
SELECT stream_await_termination('dated', '60 s');
SQL
is(sql($node, "SELECT p -> 'sources' -> 0 ->> 'startOffset', p -> 'sources' -> 0 -> 'endOffset' FROM stream_recent_progress('dated') AS p ORDER BY p -> 'batchId'"),
	qq{|"007"\n007|"2020-01-02"}, 'text versions of digits are text in the progress');
sql($node, <<'SQL');
CREATE TABLE signed (LIKE elsewhere);
SELECT stream_register_changelog('signed', false, false, false);
INSERT INTO signed VALUES (1, 1, 'insert', 7, '2020-01-01'), (2, 2, 'insert', 8, '2020-01-02');
SELECT stream_start('signed', 'signed', sink => 'signed_sink', trigger => 'availableNow', options => '{"startingVersion": "+07", "startingBoundInclusive": false}');
SELECT stream_await_termination('signed', '60 s');
SQL
is(sql($node, "SELECT id FROM signed_sink"), '2', 'a version is a number, however it was written');

sql($node, <<'SQL');
CREATE TABLE twice (id int, n int, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
SELECT stream_register_changelog('twice', false, true, true, '{id}', '_commit_version');
INSERT INTO twice VALUES (1, 1, 'insert', 7, '2020-01-01'), (1, 2, 'insert', 7, '2020-01-01');
SELECT stream_start('twice', 'twice', sink => 'twice_sink', options => '{"computeUpdates": true, "emission": "commit"}');
SQL
query_is('twice', 'failed', 'a change log that breaks its contract stops the query', error => 'a row has more than one change in version 7 of change log "twice"\nDETAIL:  .*UNEXPECTED_MULTIPLE_CHANGES_PER_ROW_VERSION');
sql($node, q{UPDATE twice SET _change_type = 'upsert' WHERE n = 2; SELECT stream_drop('twice');
SELECT stream_start('twice', 'twice', sink => 'twice_sink', options => '{"deduplicationMode": "netChanges"}')});
query_is('twice', 'failed', 'so does a change type that there is not', error => 'unexpected change type "upsert" in version 7 of change log "twice"\nDETAIL:  .*UNEXPECTED_CHANGE_TYPE');
sql($node, "SELECT stream_drop('twice')");

# ---- progress records ----

$node->append_conf('postgresql.conf', "streamcdc.progress_retention = 2\n");
$node->reload;
sql($node, "SELECT stream_start('kept', 'src', sink => 'kept_sink', trigger => 'availableNow', options => '{\"maxVersionsPerTrigger\": 2}')");
sql($node, "SELECT stream_await_termination('kept', '60 s')");
is(sql($node, "SELECT count(*), max((p ->> 'batchId')::int) - min((p ->> 'batchId')::int) FROM stream_recent_progress('kept') AS p"), '2|1', 'streamcdc.progress_retention');
is(sql($node, "SELECT output_rows = (SELECT count(*) FROM kept_sink) AND output_rows > 10 FROM stream_queries WHERE query_name = 'kept'"), 't', 'rows are counted beyond that');

# ---- idle queries ----

# they say so after ten seconds without a batch, once; looked at further below, so that nobody has to wait
$listener = $node->background_psql('postgres', on_error_stop => 1);
$listener->query_safe('LISTEN streamcdc');
sql($node, "CREATE TABLE quiet (id int PRIMARY KEY); INSERT INTO quiet VALUES (1); SELECT stream_track('quiet')");
sql($node, q{SELECT stream_start('worked', 'quiet', sink => 'worked_sink'); SELECT stream_start('nothing', 'quiet', sink => 'nothing_sink', options => '{"startingVersion": "latest"}')});
all_done('worked', 'nothing');

# ---- signals ----

sql($node, "SELECT stream_start('w', 'src', sink => 'w_sink', sink_mode => 'apply')");
all_done('w');
sql($node, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'w'");
sql($node, "INSERT INTO src VALUES (30, 'x')");
all_done('w');
same_rows('src', 'w_sink', 'id, v', 'pg_cancel_backend costs a try');
my $first = pid_of('w');
sql($node, "SELECT pg_terminate_backend($first); INSERT INTO src VALUES (31, 'x')");
all_done('w');
isnt(pid_of('w'), $first, 'after pg_terminate_backend another worker goes on');
same_rows('src', 'w_sink', 'id, v', 'from where it was');

# ---- errors now and then ----

# each third look at the source fails; what counts is how many in a row
sql($node, <<'SQL');
CREATE SEQUENCE looks;
CREATE TABLE shaky_log (id int, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
CREATE FUNCTION look() RETURNS SETOF shaky_log LANGUAGE plpgsql AS $$ BEGIN IF nextval('looks') % 3 = 0 THEN RAISE 'not now'; END IF; RETURN QUERY TABLE shaky_log; END $$;
CREATE VIEW shaky AS SELECT * FROM look();
SELECT stream_register_changelog('shaky', false, false, false);
INSERT INTO shaky_log VALUES (1, 'insert', 1, '2020-01-01');
SELECT stream_start('shaky', 'shaky', sink => 'shaky_sink');
CREATE TABLE wakes ();
CREATE FUNCTION wake_and_count() RETURNS bigint LANGUAGE sql AS 'INSERT INTO wakes DEFAULT VALUES; SELECT last_value FROM looks';
SQL
wait_for($node, 'wake_and_count() > 20', 'a query that finds nothing to do in between goes on, however often it fails');
is(sql($node, "SELECT status <> 'failed', (SELECT count(*) FROM shaky_sink) FROM stream_queries WHERE query_name = 'shaky'"), 't|1', 'and has not failed');
sql($node, "SELECT stream_drop('shaky')");

# ---- memory ----

# Bytes that a query's worker has in what lives as long as it does.
sub kept_by
{
	my ($query) = @_;
	my $pid = pid_of($query);
	my $offset = -s $node->logfile;
	sql($node, "SELECT pg_log_backend_memory_contexts($pid)");
	$node->wait_for_log(qr/\[$pid\].*Grand total/, $offset);
	return slurp_file($node->logfile, $offset) =~ /\[$pid\].*level: 0; TopMemoryContext: .* (\d+) used/ ? $1 : die 'no memory contexts in the log';
}

my $batches = q{DO $$ BEGIN FOR i IN 1 .. 100 LOOP UPDATE kept_src SET n = n + 1 WHERE id = i % 2; COMMIT; END LOOP; END $$};
sql($node, q{CREATE TABLE kept_src (id int PRIMARY KEY, n int); INSERT INTO kept_src VALUES (0, 0), (1, 0); SELECT stream_track('kept_src');
SELECT stream_start('kept raw', 'kept_src', sink => 'kept_raw', options => '{"deduplicationMode": "none", "maxVersionsPerTrigger": 1}');
SELECT stream_start('kept state', 'kept_src', sink => 'kept_state', options => '{"emission": "watermark", "stateStoreProvider": "memory", "maxVersionsPerTrigger": 1}')});
for my $query ('kept raw', 'kept state')
{
	sql($node, $batches);
	all_done($query);
	my $before = kept_by($query);
	sql($node, $batches);
	all_done($query);
	cmp_ok(kept_by($query) - $before, '<', 100 * 100, "$query: a batch leaves less than a hundred bytes");
}
sql($node, "SELECT stream_drop(query_name) FROM stream_queries WHERE query_name LIKE 'kept%'");

# rows of a change log that are wide where they are read, not where they are stored: not many at a time
sql($node, <<'SQL');
CREATE TABLE narrow (id int, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
CREATE VIEW wide AS SELECT id, repeat(chr(97 + id % 26), 250000) AS v, _change_type, _commit_version, _commit_timestamp FROM narrow;
SELECT stream_register_changelog('wide', false, false, false);
CREATE TABLE wide_seen (id int, bytes int);
SELECT stream_start('wide', 'wide', foreach_batch => 'INSERT INTO wide_seen SELECT id, length(v) FROM batch', query => 'SELECT id, v FROM batch');
INSERT INTO narrow VALUES (0, 'insert', 0, '2020-01-01');
SQL
all_done('wide');

sub peak_of
{
	my ($query) = @_;
	return slurp_file('/proc/' . pid_of($query) . '/status') =~ /^VmHWM:\s+(\d+) kB/m ? $1 / 1024 : die 'no peak';
}

my $before_wide = peak_of('wide');
sql($node, "INSERT INTO narrow SELECT i, 'insert', i, '2020-01-02' FROM generate_series(1, 1000) AS i");
all_done('wide');
is(sql($node, 'SELECT count(*), sum(bytes) FROM wide_seen'), '1001|250250000', 'wide rows');
cmp_ok(peak_of('wide') - $before_wide, '<', 150, 'one at a time');
sql($node, "SELECT stream_drop('wide')");

# one that dies each time it tries
sql($node, "SELECT stream_start('mortal', 'src', foreach_batch => 'SELECT pg_terminate_backend(pg_backend_pid())')");
query_is('mortal', 'failed', 'a worker that dies again and again', error => 'has died too often');

# one that the postmaster could not start
$node->append_conf('postgresql.conf', "streamcdc.debug_point = 'job-begins:error:unborn'\n");
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('streamcdc.debug_point') <> ''}) or die 'the setting is not there';
sql($node, "SELECT stream_start('unborn', 'src', foreach_batch => 'SELECT 1')");
wait_for($node, "batch_id IS NOT NULL FROM stream_queries WHERE query_name = 'unborn'", 'a worker that did not begin is launched again');
ok(-e $node->data_dir . '/streamcdc_debug_unborn', 'the first one was struck');
$node->append_conf('postgresql.conf', "streamcdc.debug_point = ''\n");
$node->reload;
sql($node, "SELECT stream_drop('unborn')");

# ---- gaps, and queries over queries ----

sql($node, "SELECT stream_drop(query_name) FROM stream_queries WHERE query_name NOT IN ('worked', 'nothing'); SELECT stream_reset_terminated()");
sql($node, "CREATE TABLE first (id int PRIMARY KEY, v text); SELECT stream_track('first', on_truncate => 'gap'); CREATE TABLE second (id int PRIMARY KEY, v text); SELECT stream_track('second')");
sql($node, "SELECT stream_start('one', 'first', sink => 'second', sink_mode => 'apply'); SELECT stream_start('two', 'second', sink => 'third', sink_mode => 'apply')");
sql($node, "INSERT INTO first VALUES (1, 'a'), (2, 'b'); UPDATE first SET v = 'c' WHERE id = 1; DELETE FROM first WHERE id = 2");
all_done('one', 'two');
is(sql($node, 'TABLE third'), '1|c', 'the sink of a query is the source of another');
# whatever the next try would meet again stops a query at once
$node->append_conf('postgresql.conf', 'streamcdc.max_restarts = 1000');
$node->reload;
sql($node, "TRUNCATE first; INSERT INTO first VALUES (3, 'd')");
query_is('one', 'failed', 'a gap stops a query', error => 'gap');
fails_with($node, "SELECT stream_await_termination('one')", '55000', qr/query "one" has failed: /, 'with 55000');

sql($node, <<'SQL');
CREATE TABLE odd (id int PRIMARY KEY, v text);
SELECT stream_track('odd');
CREATE TABLE odd_log (id int, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
SELECT stream_register_changelog('odd_log', false, true, false, '{id}');
CREATE TABLE odd_seen (query text, id int);
SELECT stream_start('odd ' || n, CASE WHEN n < 3 THEN 'odd' ELSE 'odd_log' END, options => '{"deduplicationMode": "netChanges"}',
	foreach_batch => format('INSERT INTO odd_seen SELECT %L, id FROM batch', n)) FROM generate_series(1, 4) AS n;
SELECT stream_stop('odd 1');
SQL
all_done('odd 2', 'odd 3', 'odd 4');
sql($node, "INSERT INTO odd VALUES (1, 'a'); ALTER TABLE odd ALTER v TYPE date USING NULL; SELECT stream_sync('60 s'); SELECT stream_resume('odd 1')");
query_is('odd 1', 'failed', 'a value that cannot be cast', error => 'column "v" was of type text before version');
query_is('odd 2', 'failed', 'the same while it runs', error => 'columns of source table "odd" have changed');
sql($node, "SELECT stream_resume('odd 2')");
query_is('odd 2', 'failed', 'and is resumed', error => 'column "v" ');
sql($node, "SELECT stream_drop('odd 1'); SELECT stream_drop('odd 2'); SELECT stream_start('odd 1', 'odd', sink => 'odd_sink', options => '{\"startingVersion\": \"latest\", \"deduplicationMode\": \"netChanges\"}')");
all_done('odd 1');
sql($node, "ALTER TABLE odd DROP CONSTRAINT odd_pkey; UPDATE odd SET v = '2020-01-01'");
query_is('odd 1', 'failed', 'an identity that is lost', error => 'has no row identity in version');
sql($node, "INSERT INTO odd_log VALUES (1, 'insert', NULL, '2020-01-01'), (2, 'insert', 1, '2020-01-01')");
query_is('odd 3', 'failed', 'a version that is NULL', error => '_commit_version is null');
sql($node, "DELETE FROM odd_log WHERE _commit_version IS NULL; SELECT stream_resume('odd 3')");
all_done('odd 3');
sql($node, "INSERT INTO odd_log VALUES (1, 'upsert', 2, '2020-01-02')");
query_is('odd 3', 'failed', 'a change type that there is not', error => 'unexpected change type "upsert"');
sql($node, "DELETE FROM odd_log WHERE _change_type = 'upsert'; SELECT stream_resume('odd 4')");
all_done('odd 4');
sql($node, 'ALTER TABLE odd_log DROP _commit_timestamp');
query_is('odd 4', 'failed', 'a change log that is none any more', error => '_commit_timestamp');
sql($node, "SELECT stream_drop(query_name) FROM stream_queries WHERE query_name LIKE 'odd%'");

# ---- idle queries again ----

my %told = (worked => [], nothing => []);
for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	my $more = $listener->query('SELECT pg_sleep(0.1)');
	while ($more =~ /"event": "(\w+)"[^}]*"name": "(worked|nothing)"[^}]*"timestamp": "([^"]+)"/g)
	{
		push @{ $told{$2} }, [ $1, $3 ];
	}
	last unless grep { !@$_ || $_->[-1][0] ne 'QueryIdle' } values %told;
}
$listener->quit;
is(join(' ', map { $_->[0] } @{ $told{worked} }), 'QueryStarted QueryProgress QueryIdle', 'a query that has nothing to do says so');
is(join(' ', map { $_->[0] } @{ $told{nothing} }), 'QueryStarted QueryIdle', 'or that never had');
cmp_ok(sql($node, "SELECT extract(epoch FROM '$_->[-1][1]'::timestamptz - '$_->[-2][1]')"), '>=', 9.5, 'ten seconds later') for values %told;

$node->stop;
done_testing();
