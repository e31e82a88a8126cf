# Exactly once: jobs over a table that changes all the time, while their workers
# are killed, at every step of a batch once and at random times, and their state
# directory is deleted, cut short and replaced by an old copy in between.
#
# In the end the append sink is stream_changes over the range, the mirror is the
# table, and what the net changes query wrote is what the batches that it made
# come to.
#
#   STREAMCDC_TEST_KILLS=100 make test-tap T=test/t/071_jobs_crash.pl
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $kills = $ENV{STREAMCDC_TEST_KILLS} // 4;
my $seed = $ENV{STREAMCDC_TEST_SEED} // time;
srand($seed);
note("STREAMCDC_TEST_SEED=$seed");

my $node = new_node('jobs_crash', conf => "streamcdc.progress_retention = 1000000\nstreamcdc.max_restarts = 1000\n");
start_extension($node);
sql($node, <<'SQL');
CREATE TABLE acc (id int PRIMARY KEY, v int NOT NULL, note text);
INSERT INTO acc SELECT i, i, 'row ' || i FROM generate_series(1, 200) AS i;
SQL
track($node, ['acc']);
sql($node, <<'SQL');
SELECT stream_start('net', 'acc', sink => 'acc_net', options => '{"deduplicationMode": "netChanges", "computeUpdates": true}');
SELECT stream_start('raw', 'acc', sink => 'acc_raw', options => '{"computeUpdates": true}');
SELECT stream_start('mirror', 'acc', sink => 'acc_mirror', sink_mode => 'apply', options => '{"deduplicationMode": "netChanges"}');
SQL

my $state = $node->data_dir . '/streamcdc/' . sql($node, "SELECT oid FROM pg_database WHERE datname = 'postgres'");
my $net_id = sql($node, "SELECT id FROM stream_queries WHERE query_name = 'net'");

# ---- the load: a client that is started again whenever the server was ----

my $script = <<'SCRIPT';
\set id random(1, 300)
\set other random(1, 300)
\set kind random(1, 10)
BEGIN;
INSERT INTO acc VALUES (:id, :kind, 'new') ON CONFLICT (id) DO UPDATE SET v = acc.v + 1;
\if :kind > 7
DELETE FROM acc WHERE id = :other;
\endif
\if :kind = 3
UPDATE acc SET id = id + 1000, note = 'moved' WHERE id = :other AND NOT EXISTS (SELECT FROM acc WHERE id = :other + 1000);
DELETE FROM acc WHERE id > 1000 AND id % 3 = :kind % 3;
\endif
UPDATE acc SET v = v WHERE id = :other;
COMMIT;
SCRIPT
my $load;

sub load_again
{
	stop_load($load) if $load;
	$node->poll_query_until('postgres', "SELECT true");
	$load = start_load($node, $script, '-c', 2, '-R', 150);
}

load_again();
query_works($node, 'net', 'the net changes query works');

# ---- at every step once ----

for my $point (qw(job-before-read job-before-sink job-after-sink job-before-commit job-after-commit job-after-mark))
{
	(my $tag = $point) =~ tr/-/_/;
	my $before = incarnation($node);

	debug_point($node, $point, 'kill', $tag);
	wait_for_restart($node, $before);
	load_again();
	query_works($node, 'net', "killed at $point, the net changes query works again");
}

# an error at each step costs a try, and nothing else
for my $point (qw(job-before-read job-before-sink job-after-sink job-before-commit job-after-commit job-after-mark))
{
	(my $tag = "error_$point") =~ tr/-/_/;
	debug_point($node, $point, 'error', $tag);
	ok($node->poll_query_until('postgres', "SELECT (pg_stat_file('streamcdc_debug_$tag', true)).size IS NOT NULL"), "an error at $point");
	query_works($node, 'net', "after an error at $point, the net changes query works again");
}
debug_point($node);

# ---- the state directory ----

sub with_net_stopped
{
	my ($do) = @_;
	sql($node, "SELECT stream_stop('net', '60 s')");
	$do->();
	sql($node, "SELECT stream_resume('net')");
	query_works($node, 'net', 'resumed, the net changes query works again');
}

sub copy_tree
{
	my ($from, $to) = @_;
	system('cp', '-a', $from, $to) == 0 or die "could not copy $from";
}

my $copy = $node->basedir . '/old_state';
with_net_stopped(sub { copy_tree("$state/$net_id", $copy) });
with_net_stopped(sub { system('rm', '-rf', "$state/$net_id") });
with_net_stopped(sub { system('rm', '-rf', "$state/$net_id"); copy_tree($copy, "$state/$net_id") });
with_net_stopped(
	sub {
		for my $file (glob("$state/$net_id/*.log"), glob("$state/$net_id/*.sst"))
		{
			truncate($file, (-s $file) / 2) or die "could not cut $file";
		}
	});
with_net_stopped(
	sub {
		for my $file (glob("$state/$net_id/MANIFEST-*"), glob("$state/$net_id/CURRENT"))
		{
			truncate($file, 3) or die "could not cut $file";
		}
	});
sub kill_worker_of
{
	my ($query) = @_;
	my $pid = sql($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'streamcdc job' AND application_name = '$query'");
	my $before = incarnation($node);

	return unless $pid =~ /^\d+$/ && kill('KILL', $pid) == 1;
	wait_for_restart($node, $before);
	load_again();
}

# deleted while the worker is at work: it goes on with what it has open, until it is killed
system('rm', '-rf', "$state/$net_id");
kill_worker_of('net');
query_works($node, 'net', 'the state directory was deleted under a running query, which was killed');

# ---- at random times ----

for my $n (1 .. $kills)
{
	my @queries = qw(net raw mirror);
	my $query = $queries[ int(rand(3)) ];

	query_works($node, $query, "kill $n of $kills: $query is at work");
	system('rm', '-rf', "$state/$net_id") if rand() < 0.2;
	kill_worker_of($query);
}
# asked to end by the server's own means
for my $query (qw(net raw mirror))
{
	sql($node, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'streamcdc job' AND application_name = '$query'");
	query_works($node, $query, "$query was terminated, and works again");
}
stop_load($load);

# ---- the end ----

$node->poll_query_until('postgres', "SELECT count(*) = 3 FROM stream_queries WHERE status = 'running'") or die 'queries do not run';
sql($node, "SELECT stream_process_all_available('$_', '120 s')") for qw(net raw mirror);

is(sql($node, <<'SQL'), '0|0', 'the append sink is what stream_changes says, nothing missing and nothing twice');
WITH c AS (SELECT (row_data).*, _change_type, _commit_version, _commit_timestamp FROM stream_changes(NULL::acc, compute_updates => true))
SELECT (SELECT count(*) FROM (TABLE c EXCEPT ALL TABLE acc_raw) AS x), (SELECT count(*) FROM (TABLE acc_raw EXCEPT ALL TABLE c) AS x)
SQL
is(sql($node, <<'SQL'), '0|0', 'the mirror is the table');
SELECT (SELECT count(*) FROM (TABLE acc EXCEPT ALL TABLE acc_mirror) AS x), (SELECT count(*) FROM (TABLE acc_mirror EXCEPT ALL TABLE acc) AS x)
SQL

# Runs of consecutive batches that have an identity come to one net change.
sql($node, <<'SQL');
CREATE TABLE boundaries AS
	SELECT (p ->> 'batchId')::bigint AS batch, (p #>> '{sources,0,startOffset}')::bigint AS after, (p #>> '{sources,0,endOffset}')::bigint AS upto
	FROM stream_recent_progress('net') AS p;
CREATE TABLE expected AS
WITH c AS (
	SELECT c.*, (row_data).*, b.batch, row_number() OVER () AS n, _change_type IN ('delete', 'update_preimage') AS deletes
	FROM stream_changes(NULL::acc, compute_updates => true) AS c
	JOIN boundaries AS b ON c._commit_version > b.after AND c._commit_version <= b.upto
), runs AS (
	SELECT c.*, batch - dense_rank() OVER (PARTITION BY id ORDER BY batch) AS run FROM c
), ends AS (
	SELECT r.*, row_number() OVER (PARTITION BY id, run ORDER BY _commit_version, NOT deletes, n) AS first,
		   row_number() OVER (PARTITION BY id, run ORDER BY _commit_version DESC, deletes, n DESC) AS last
	FROM runs AS r
), pairs AS (
	SELECT id, run, bool_or(deletes) FILTER (WHERE first = 1) AS before, NOT bool_or(deletes) FILTER (WHERE last = 1) AS after
	FROM ends GROUP BY id, run
)
SELECT e.id, e.v, e.note,
	   CASE WHEN p.before AND p.after THEN CASE side WHEN 1 THEN 'update_preimage' ELSE 'update_postimage' END
			WHEN p.before THEN 'delete' ELSE 'insert' END AS _change_type, e._commit_version, e._commit_timestamp
FROM ends AS e JOIN pairs AS p USING (id, run), generate_series(1, 2) AS side
WHERE (side = 1 AND e.first = 1 AND p.before) OR (side = 2 AND e.last = 1 AND p.after);
SQL
is(sql($node, <<'SQL'), '0|0', 'the net changes are what the batches come to');
SELECT (SELECT count(*) FROM (TABLE expected EXCEPT ALL TABLE acc_net) AS x), (SELECT count(*) FROM (TABLE acc_net EXCEPT ALL TABLE expected) AS x)
SQL
is(sql($node, 'SELECT count(*) = max(batch) + 1 AND min(batch) = 0 FROM boundaries'), 't', 'every batch was done, each once');
cmp_ok(sql($node, 'SELECT count(*) FROM acc_net'), '>', 100, 'there were net changes');
cmp_ok(sql($node, 'SELECT count(DISTINCT batch) FROM boundaries'), '>', 50, 'there were many batches');

$node->stop;
done_testing();
