# A sink on another server: what is checked at start, and with a progress table exactly once, while either side is killed between any
# two steps.
#
#   STREAMCDC_TEST_KILLS=50 make test-tap T=test/t/072_jobs_foreign.pl
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $kills = $ENV{STREAMCDC_TEST_KILLS} // 3;
my $seed = $ENV{STREAMCDC_TEST_SEED} // time;
srand($seed);
note("STREAMCDC_TEST_SEED=$seed");

my $remote = new_node('remote');
$remote->start;
my $node = new_node('local', conf => "streamcdc.max_restarts = 1000\n");
start_extension($node);

$remote->safe_psql('postgres', <<'SQL');
CREATE TABLE acc_raw (id int, v int, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
CREATE TABLE acc_mirror (id int PRIMARY KEY, v int);
CREATE TABLE done (query_id uuid PRIMARY KEY, batch_id bigint);
CREATE TABLE plain (id int);
SQL
my ($host, $port) = ($remote->host, $remote->port);
sql($node, <<"SQL");
CREATE EXTENSION postgres_fdw;
CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres');
CREATE SERVER third FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres');
CREATE USER MAPPING FOR CURRENT_USER SERVER other;
CREATE USER MAPPING FOR CURRENT_USER SERVER third;
CREATE FOREIGN TABLE acc_raw (id int, v int, _change_type text, _commit_version bigint, _commit_timestamp timestamptz) SERVER other;
CREATE FOREIGN TABLE acc_mirror (id int NOT NULL, v int) SERVER other;
CREATE FOREIGN TABLE done (query_id uuid, batch_id bigint) SERVER other;
CREATE FOREIGN TABLE done_elsewhere (query_id uuid, batch_id bigint) SERVER third OPTIONS (table_name 'done');
CREATE FOREIGN TABLE plain (id int) SERVER other;
CREATE FOREIGN TABLE done_mistyped (query_id int, batch_id bigint) SERVER other OPTIONS (table_name 'done');
CREATE FOREIGN TABLE read_only (id int) SERVER other OPTIONS (table_name 'plain', updatable 'false');
CREATE VIEW acc_view AS SELECT * FROM acc_raw;
CREATE VIEW acc_view_of_view AS SELECT _change_type, v, id, _commit_version, _commit_timestamp FROM acc_view;
CREATE TABLE acc_ruled (LIKE acc_raw);
CREATE RULE elsewhere AS ON INSERT TO acc_ruled DO INSTEAD INSERT INTO acc_raw VALUES (NEW.*);
CREATE TABLE acc_parted (LIKE acc_raw) PARTITION BY LIST (id);
CREATE FOREIGN TABLE acc_part PARTITION OF acc_parted DEFAULT SERVER other OPTIONS (table_name 'acc_raw');
CREATE VIEW acc_parted_view AS SELECT * FROM acc_parted;
CREATE TABLE acc_local (LIKE acc_raw);
CREATE VIEW acc_local_view AS SELECT * FROM acc_local;
-- rows come in through a trigger only, and cannot be deleted
CREATE VIEW acc_triggered AS SELECT DISTINCT * FROM acc_raw;
CREATE FUNCTION nowhere() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER nowhere INSTEAD OF INSERT ON acc_triggered FOR EACH ROW EXECUTE FUNCTION nowhere();
CREATE TABLE done_here (query_id uuid, batch_id bigint);
CREATE TABLE acc (id int PRIMARY KEY, v int NOT NULL);
INSERT INTO acc SELECT i, i FROM generate_series(1, 50) AS i;
SQL
track($node, ['acc']);

# ---- at start ----

sub start
{
	my ($progress, $more) = @_;
	return "SELECT stream_start('x', 'acc', sink => 'acc_raw', sink_options => '{\"progressTable\": \"$progress\"}'" . ($more // '') . ')';
}
fails_with($node, start('nothing'), '42P01', qr/relation "nothing" does not exist/, 'no such progress table');
fails_with($node, start('done_here'), '42809', qr/"done_here" is not a foreign table on the server of the sink/, 'a progress table in this database');
fails_with($node, start('done_elsewhere'), '42809', qr/"done_elsewhere" is not a foreign table on the server of the sink/, 'or on another server');
fails_with($node, start('plain'), '42703', qr/needs the columns "query_id" and "batch_id"/, 'or with other columns');
fails_with($node, start('done_mistyped'), '42883', qr/operator does not exist: integer pg_catalog.= text/, 'or with columns of other types');
fails_with($node, "SELECT stream_start('x', 'acc', sink => 'read_only', query => 'SELECT id FROM batch')", '0A000', qr/foreign table "read_only" cannot be a sink.*It does not allow inserts/s,
	'a foreign table that cannot be written into');
fails_with($node, start('done; DROP TABLE acc'), '42602', qr/invalid name syntax/, 'or with a name that is none');
# whatever it is through which rows get to the other server
for my $sink (qw(acc_raw acc_view acc_view_of_view acc_ruled acc_parted acc_part acc_parted_view))
{
	my ($status, $out, $err) = $node->psql('postgres', "SELECT stream_start('loose', 'acc', sink => '$sink', query => 'SELECT * FROM batch WHERE false')");
	like($err, qr/NOTICE:  rows may be written to .*more than once.*progressTable/s, "$sink without a progress table: at least once, with a NOTICE");
	is(sql($node, "SELECT count(*) FROM stream_explain('loose') AS l WHERE l ~ '^Sink: .*at least once'"), 1, 'and in stream_explain');
	sql($node, "SELECT stream_drop('loose'); SELECT stream_start('loose', 'acc', sink => '$sink', query => 'SELECT * FROM batch WHERE false', sink_options => '{\"progressTable\": \"done\"}')");
	is(sql($node, "SELECT count(*) FROM stream_explain('loose') AS l WHERE l ~ '^Sink: .*exactly once'"), 1, 'but exactly once with one');
	sql($node, "SELECT stream_drop('loose'); DELETE FROM done");
}
for my $sink (qw(acc_local acc_local_view acc_triggered))
{
	my ($status, $out, $err) = $node->psql('postgres', "SELECT stream_start('here', 'acc', sink => '$sink')");
	is("$status$err", '0', "$sink: no NOTICE");
	is(sql($node, "SELECT count(*) FROM stream_explain('here') AS l WHERE l ~ '^Sink: .*exactly once'"), 1, 'exactly once as it is');
	sql($node, "SELECT stream_process_all_available('here', '60 s'); SELECT stream_drop('here')");
}
sql($node, q{SELECT stream_start('here', 'acc', foreach_batch => 'INSERT INTO acc_raw SELECT * FROM batch WHERE false')});
is(sql($node, "SELECT count(*) FROM stream_explain('here') AS l WHERE l ~ '^Sink: .*exactly once in this database, at least once elsewhere'"), 1, 'what SQL or functions write elsewhere may be written again');
sql($node, "SELECT stream_drop('here')");
(my $of_view = start('done')) =~ s/acc_raw/acc_local_view/;
fails_with($node, $of_view, '22023', qr/"progressTable" is for foreign tables.*"acc_local" is none/s, 'a view over a table of this database has no progress table');
# rows of this database would be lost if a batch was taken for written that was written on the other side only
sql($node, 'ALTER TABLE acc_parted DETACH PARTITION acc_part; ALTER TABLE acc_parted ATTACH PARTITION acc_part FOR VALUES IN (1); CREATE TABLE acc_part_here PARTITION OF acc_parted DEFAULT');
(my $of_both = start('done')) =~ s/acc_raw/acc_parted_view/;
fails_with($node, $of_both, '22023', qr/"progressTable" is for foreign tables.*"acc_part_here" is none/s, 'nor one over partitions here and there');

# ---- exactly once ----

sql($node, q{SELECT stream_start('raw', 'acc', sink => 'acc_view_of_view', sink_options => '{"progress_table": "public.done"}', options => '{"computeUpdates": true}');
SELECT stream_start('mirror', 'acc', sink => 'acc_mirror', sink_mode => 'apply', sink_options => '{"progressTable": "done"}')});
is(sql($node, "SELECT count(*) FROM stream_explain('raw') AS l WHERE l ~ '^Sink: .*exactly once'"), 1, 'with a progress table: exactly once');

my $script = <<'SCRIPT';
\set id random(1, 80)
\set other random(1, 80)
BEGIN;
INSERT INTO acc VALUES (:id, 1) ON CONFLICT (id) DO UPDATE SET v = acc.v + 1;
DELETE FROM acc WHERE id = :other AND v % 3 = 0;
COMMIT;
SCRIPT
my $load;

sub load_again
{
	stop_load($load) if $load;
	$load = start_load($node, $script, '-c', 1, '-R', 80);
}

# waits for the restart that the kill of a worker brings
sub after_kill
{
	my ($before) = @_;
	wait_for_restart($node, $before);
	load_again();
}

load_again();
query_works($node, $_, "$_ works") for qw(raw mirror);

# an error and a kill at each step; job-in-commit is when the other server has committed and this one has not
for my $how (qw(error kill))
{
	for my $point (qw(job-after-sink job-before-commit job-in-commit job-after-commit))
	{
		(my $tag = "${how}_$point") =~ tr/-/_/;
		my $before = incarnation($node);

		debug_point($node, $point, $how, $tag);
		if ($how eq 'kill') { after_kill($before) }
		else { $node->poll_query_until('postgres', "SELECT (pg_stat_file('streamcdc_debug_$tag', true)).size IS NOT NULL") or die "no $how at $point" }
		query_works($node, $_, "$how at $point: $_ works again") for qw(raw mirror);
	}
}
debug_point($node);

for my $n (1 .. $kills)
{
	my $query = (qw(raw mirror))[ int(rand(2)) ];

	if (rand() < 0.5)
	{
		$remote->stop('immediate');
		$remote->start;
		query_works($node, $query, "kill $n of $kills: the other server");
	}
	else
	{
		my $before = incarnation($node);
		my $pid = sql($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'streamcdc job' AND application_name = '$query'");

		after_kill($before) if $pid =~ /^\d+$/ && kill('KILL', $pid) == 1;
		query_works($node, $query, "kill $n of $kills: the worker of $query");
	}
}
# the connection is cut
$remote->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postgres_fdw'");
query_works($node, $_, "connections cut: $_ works again") for qw(raw mirror);
stop_load($load);

sql($node, "SELECT stream_process_all_available('$_', '120 s')") for qw(raw mirror);
is(sql($node, <<'SQL'), '0|0', 'the append sink is what stream_changes says, nothing missing and nothing twice');
WITH c AS (SELECT (row_data).*, _change_type, _commit_version, _commit_timestamp FROM stream_changes(NULL::acc, compute_updates => true))
SELECT (SELECT count(*) FROM (TABLE c EXCEPT ALL TABLE acc_raw) AS x), (SELECT count(*) FROM (TABLE acc_raw EXCEPT ALL TABLE c) AS x)
SQL
is(sql($node, <<'SQL'), '0|0', 'the mirror is the table');
SELECT (SELECT count(*) FROM (TABLE acc EXCEPT ALL TABLE acc_mirror) AS x), (SELECT count(*) FROM (TABLE acc_mirror EXCEPT ALL TABLE acc) AS x)
SQL
is(sql($node, 'SELECT count(*), count(DISTINCT query_id) FROM done'), '2|2', 'one row of progress for each query');
cmp_ok(sql($node, 'SELECT count(*) FROM acc_raw'), '>', 100, 'there were changes');

$node->stop;
$remote->stop;
done_testing();
