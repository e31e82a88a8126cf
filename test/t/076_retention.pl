# Old versions go, and nothing else does: whatever crashes while they are being
# removed, whoever still reads them, and whichever query still needs them.
# Retention in the background, also of dropped tables' logs.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('retention', conf => "streamcdc.max_restarts = 2\n");
start_extension($node);
sql($node, <<'SQL');
CREATE TABLE acc (id int PRIMARY KEY, v int NOT NULL, note text);
INSERT INTO acc SELECT i, 0, 'row ' || i FROM generate_series(1, 500) AS i;
CREATE TABLE bag (a int, b text);
INSERT INTO bag SELECT i % 10, 'x' FROM generate_series(1, 100) AS i;
SQL
track($node, [ 'acc', 'bag' ]);

# so many versions of each table
sub write_versions
{
	my ($n) = @_;
	sql($node, <<"SQL");
DO \$\$ BEGIN
	FOR i IN 1 .. $n LOOP
		UPDATE acc SET v = v + 1, note = md5(random()::text) WHERE id % 50 = i % 50;
		DELETE FROM acc WHERE id = 500 - i;
		INSERT INTO acc VALUES (1000 + i, i, 'new') ON CONFLICT (id) DO UPDATE SET v = acc.v + 100;
		UPDATE bag SET b = 'y' || i WHERE ctid = (SELECT min(ctid) FROM bag WHERE a = i % 10);
		DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag WHERE a = (i + 5) % 10);
		INSERT INTO bag VALUES (i % 10, 'x');
		COMMIT;
	END LOOP;
END \$\$
SQL
	sync($node);
}

sub first_version
{
	my ($table) = @_;
	return sql($node, "SELECT first_version FROM stream_tables WHERE table_name = '$table'");
}

write_versions(40);

sub log_of
{
	my ($table) = @_;
	return sql($node, "SELECT md5(string_agg(c::text, '' ORDER BY _commit_version, c::text)) FROM stream_changes('$table') AS c");
}

# ---- crashes ----

for my $point (qw(vacuum-deleted vacuum-written))
{
	(my $tag = $point) =~ tr/-/_/;
	my $log = log_of('acc');
	my $before = incarnation($node);

	debug_point($node, $point, 'kill', $tag);
	$node->psql('postgres', q{SELECT stream_vacuum('acc', 20)});
	wait_for_restart($node, $before);
	is(log_of('acc'), $log, "killed at $point, the log is what it was");
}
debug_point($node);
is(sql($node, q{SELECT stream_vacuum('acc', 20), stream_vacuum('bag', 20)}), '19|19', 'the same again, in peace');
changes_fold_to_table($node, $_) for qw(acc bag);
kill_server($node);
$node->start;
is(sql($node, q{SELECT min(_commit_version) FROM stream_changes('acc')}), 19, 'what was removed stays so, whatever happens to the server');
changes_fold_to_table($node, $_) for qw(acc bag);

# ---- open snapshots ----

my $reader = $node->background_psql('postgres');
my $all = q{SELECT md5(string_agg(c::text, '' ORDER BY _commit_version, c::text)) FROM stream_changes('acc', 25) AS c;};
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ;');
my $seen = $reader->query_safe($all);
my $cursor = $node->background_psql('postgres');
$cursor->query_safe(q{BEGIN; DECLARE d CURSOR FOR SELECT _commit_version FROM stream_changes('acc', 25);});
is($cursor->query_safe('FETCH 1 FROM d;'), 25, 'a cursor has begun to read');
is(sql($node, q{SELECT stream_vacuum('acc', 35)}), 15, 'versions are removed beside open snapshots');
sql($node, 'VACUUM streamcdc.blocks');
is($reader->query_safe($all), $seen, 'which go on to see what they saw');
like($cursor->query_safe('FETCH ALL FROM d;'), qr/\b26\n(.*\n)*40$/, 'so does the cursor');
$reader->query_safe('COMMIT;');
$cursor->query_safe('COMMIT;');
fails_with($node, q{SELECT count(*) FROM stream_changes('acc', 25)}, '55000', qr/version 25 of table "acc" is not retained.*oldest version is 35/s, 'others see that they are gone');
sql($node, 'VACUUM streamcdc.blocks');
changes_fold_to_table($node, 'acc');

# whoever removes versions is waited for by those who would rely on them, and the other way round
my $starter = $node->background_psql('postgres');
$starter->query_safe(q{BEGIN; SELECT stream_start('held', 'acc', sink => 'held_sink', options => '{"startingVersion": 36}');});
my $vacuum = background_sql($node, q{SELECT stream_vacuum('acc', 39)});
wait_for($node, q{count(*) = 1 FROM pg_locks WHERE NOT granted AND locktype = 'object' AND mode = 'ExclusiveLock'}, 'it waits for a query that is being started');
$starter->query_safe('COMMIT;');
my ($ok, $out) = finish_sql($vacuum);
cmp_ok($out, '<=', 4, 'and leaves what that needs') or diag($out);
is(sql($node, q{SELECT stream_process_all_available('held', '60 s'); SELECT min(_commit_version), max(_commit_version) FROM held_sink}), "\n36|40", 'the query has it all');
sql($node, q{SELECT stream_drop('held')});
$_->quit for ($reader, $cursor, $starter);

# ---- under load: comparing with the log, while versions go ----

my $load = start_load($node, <<'SCRIPT', '-c', 3);
\set id random(1, 100)
\set other random(1, 100)
BEGIN;
UPDATE acc SET v = v + 1 WHERE id = :id;
INSERT INTO bag VALUES (:id, 'load');
DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag WHERE a = :other);
COMMIT;
SCRIPT
for my $n (1 .. 10)
{
	my $table = $n % 2 ? 'acc' : 'bag';
	is(sql($node, "SET streamcdc.read_timeout = '60s'; SELECT count(*), min(difference || row_data) FROM stream_verify('$table')"), '0|', "$table is what its log says, while it is written");
	cmp_ok(sql($node, "SELECT stream_vacuum('$table', older_than => '100 ms')"), '>', 0, 'and versions go');
}
stop_load($load);
sync($node);
changes_fold_to_table($node, $_) for qw(acc bag);

# ---- queries ----

# what net changes wrote, folded, is the table
my $difference = <<'SQL';
WITH s AS (SELECT id, v, note, sum(CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END) AS n FROM net_sink GROUP BY id, v, note)
SELECT (SELECT count(*) FROM s WHERE n NOT IN (0, 1)), (SELECT count(*) FROM (SELECT id, v, note FROM s WHERE n = 1 EXCEPT TABLE acc) AS x),
	(SELECT count(*) FROM (TABLE acc EXCEPT SELECT id, v, note FROM s WHERE n = 1) AS x)
SQL
my $net = q{'net', 'acc', sink => 'net_sink', options => '{"startingVersion": "earliest", "deduplicationMode": "netChanges", "noDataMicroBatchesEnabled": %s, "maxVersionsPerTrigger": 3}'};
sql($node, sprintf("SELECT stream_start($net)", 'false'));
sql($node, q{SELECT stream_start('raw', 'acc', sink => 'raw_sink', options => '{"startingVersion": "earliest"}')});
sql($node, "SELECT stream_process_all_available('$_', '120 s')") for qw(net raw);
write_versions(7);
sql($node, "SELECT stream_process_all_available('$_', '120 s')") for qw(net raw);
sql($node, "SELECT stream_stop('$_', '60 s')") for qw(net raw);
my $pending = sql($node, q{SELECT oldest_pending_version FROM stream_queries WHERE query_name = 'net'});
my $first = first_version('acc');
cmp_ok($pending, '>', $first, 'the net changes query holds rows in its state');
sql($node, q{SELECT stream_vacuum('acc', older_than => '0 s')});
cmp_ok(first_version('acc'), '<=', $pending, 'what they came from is kept');
cmp_ok(first_version('acc'), '>', $first, 'what came before is not');
my $state = $node->data_dir . '/streamcdc/' . sql($node, q{SELECT oid || '/' || (SELECT id FROM stream_queries WHERE query_name = 'net') FROM pg_database WHERE datname = current_database()});
ok(-d $state, 'it has a state directory');
system('rm', '-rf', $state);
write_versions(5);
sql($node, sprintf("SELECT stream_start($net)", 'true'));
sql($node, q{SELECT stream_process_all_available('net', '120 s')});
is(sql($node, $difference), '0|0|0', 'it goes on without its state directory, and nothing is lost or there twice');

$first = first_version('acc');
my $read = sql($node, q{SELECT processed_version FROM stream_queries WHERE query_name = 'raw'});
sql($node, q{SELECT stream_vacuum('acc', older_than => '0 s')});
is(first_version('acc'), $read + 1, 'the other one keeps what it has not read');
sql($node, q{SELECT stream_resume('raw'); SELECT stream_process_all_available('raw', '120 s')});
is(sql($node, q{SELECT count(DISTINCT _commit_version) = max(_commit_version) - min(_commit_version) + 1 AND max(_commit_version) = stream_latest_version('acc') FROM raw_sink}), 't', 'and has every version in the end');

# for longer than max_job_retention nothing is kept
sql($node, "SELECT stream_stop('$_', '60 s')") for qw(net raw);
is(sql($node, q{SELECT stream_vacuum('acc', older_than => '0 s')}), 5, 'then they go');
$read = sql($node, q{SELECT processed_version FROM stream_queries WHERE query_name = 'raw'});
write_versions(3);
sql($node, q{ALTER SYSTEM SET streamcdc.max_job_retention = 0; SELECT pg_reload_conf()});
$node->poll_query_until('postgres', q{SELECT current_setting('streamcdc.max_job_retention') = '0'});
is(sql($node, q{SELECT stream_vacuum('acc', older_than => '0 s')}), 3, 'beyond max_job_retention nothing is kept');
for my $query (qw(raw net))
{
	sql($node, "SELECT stream_resume('$query')");
	fails_with($node, "SELECT stream_await_termination('$query', '60 s')", '55000',
		qr/versions @{[ $read + 1 ]} to @{[ $read + 3 ]} of source table "acc" are not retained any more/, "$query ends, and says what it has lost");
	is(sql($node, "SELECT status FROM stream_queries WHERE query_name = '$query'"), 'failed', "$query has failed");
}
# a baseline that has come to the place of the first version that a query was to read is not taken for that version
sql($node, q{SELECT stream_start('one', 'acc', sink => 'one_sink', options => '{"startingVersion": "latest"}'); SELECT stream_process_all_available('one', '60 s'); SELECT stream_stop('one')});
write_versions(1);
my $lost = sql($node, q{SELECT stream_latest_version('acc')});
is(sql($node, q{SELECT stream_vacuum('acc', older_than => '0 s')}), 1, 'a single version is taken from a query');
sql($node, q{SELECT stream_resume('one')});
fails_with($node, q{SELECT stream_await_termination('one', '60 s')}, '55000', qr/versions $lost to $lost of source table "acc" are not retained any more/, 'which says so');
is(sql($node, q{SELECT count(*) FROM one_sink}), 0, 'and has read nothing');
sql($node, "SELECT stream_drop('$_')") for qw(raw net one);
sql($node, q{ALTER SYSTEM RESET streamcdc.max_job_retention; SELECT pg_reload_conf()});

# ---- in the background ----

# a table's own retention, changed while it waits for the next look
write_versions(3);
sql($node, q{SELECT stream_alter('bag', retention => '10 ms')});
wait_for($node, q{first_version = last_version + 1 FROM stream_tables WHERE table_name = 'bag'}, 'the versions of a table with a short retention go');
write_versions(3);
wait_for($node, q{first_version = last_version + 1 FROM stream_tables WHERE table_name = 'bag'}, 'and again');
changes_fold_to_table($node, 'bag');
cmp_ok(first_version('acc'), '<', sql($node, q{SELECT stream_latest_version('acc')}), 'those of others stay');
sql($node, q{ALTER SYSTEM SET streamcdc.retention = '1s'; SELECT pg_reload_conf()});
wait_for($node, q{first_version = last_version + 1 FROM stream_tables WHERE table_name = 'acc'}, 'the setting is for those without their own');
changes_fold_to_table($node, 'acc');

# it is in nobody's way
for my $what ([ 'commits and ALTER TABLE', q{INSERT INTO acc VALUES (-1, 0); ALTER TABLE acc ADD COLUMN more int; SELECT stream_sync()} ],
	[ 'stream_untrack', q{SELECT stream_untrack('acc'); SELECT stream_track('acc'); SELECT stream_sync()} ],
	[ 'DROP TABLE', q{DROP TABLE acc} ])
{
	my ($name, $command) = @$what;
	(my $tag = lc "wait_$name") =~ tr/a-z/_/c;

	debug_point($node, 'vacuum-written', 'wait', $tag);
	sql($node, 'INSERT INTO acc SELECT max(id) + 1, 0 FROM acc');
	wait_for($node, q{count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'streamcdc maintenance' AND query = 'looking for old versions of public.acc'}, "$name: versions are being removed");
	sql($node, "SET statement_timeout = '60s'; SET lock_timeout = '30s'; $command");
	pass("$name: works");
	debug_point($node);
}
wait_for($node, q{NOT EXISTS (SELECT FROM stream_tables WHERE table_name LIKE 'acc%')}, 'the log of a dropped table goes when retention has passed all of it');

# also where nothing is captured any more, and after a restart
sql($node, 'ALTER SYSTEM RESET streamcdc.retention; SELECT pg_reload_conf(); DROP TABLE bag');
wait_for_no_capture($node);
wait_for($node, q{NOT EXISTS (SELECT FROM stream_tables)}, 'the log of the last table goes, too');
wait_for($node, q{NOT EXISTS (SELECT FROM pg_shseclabel WHERE provider LIKE 'streamcdc%' AND provider <> 'streamcdc_jobs')}, 'and the mark of the database');

# a failure is told, and not the end
sql($node, q{CREATE TABLE again (id int PRIMARY KEY)});
track($node, ['again']);
debug_point($node, 'vacuum-written', 'error', 'an_error');
sql($node, q{SELECT stream_alter('again', retention => '10 ms'); INSERT INTO again VALUES (1)});
wait_for($node, q{last_error = 'Old versions could not be removed: debug point "vacuum-written"' FROM stream_tables WHERE table_name = 'again'}, '163: the view says why versions are not removed');
debug_point($node);
wait_for($node, q{first_version = 2 AND last_error IS NULL FROM stream_tables WHERE table_name = 'again'}, '163: it is tried again');

# shutdown in the middle, and a crash
debug_point($node, 'vacuum-written', 'wait', 'shutdown');
sql($node, 'INSERT INTO again VALUES (2)');
wait_for($node, q{count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'streamcdc maintenance' AND query LIKE 'looking%'}, 'versions are being removed');
$node->stop('fast');
$node->start;
pass('the server stops meanwhile');
debug_point($node, 'vacuum-written', 'kill', 'crash');
my $before = incarnation($node);
sql($node, 'INSERT INTO again VALUES (3)');
wait_for_restart($node, $before);
wait_for($node, q{first_version = last_version + 1 AND last_version = 3 FROM stream_tables WHERE table_name = 'again'}, 'it goes on after a crash');
changes_fold_to_table($node, 'again');

# a busy worker does not keep a database from being dropped
start_extension($node, 'other');
sql($node, q{CREATE TABLE t (id int PRIMARY KEY); SELECT stream_track('t', retention => '10 ms'); SELECT stream_sync()}, 'other');
debug_point($node, 'vacuum-written', 'wait', 'dropping');
sql($node, 'INSERT INTO t VALUES (1)', 'other');
wait_for($node, q{count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'streamcdc maintenance' AND datname = 'other' AND query LIKE 'looking%'}, 'versions are being removed in another database');
sql($node, 'DROP DATABASE other');
pass('which can be dropped');
debug_point($node);

$node->stop;
done_testing();
