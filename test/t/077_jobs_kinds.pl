# The kinds of jobs that 071_jobs_crash.pl leaves out, all at once, over tables that change all the time: partitioned tables with rows
# and partitions that move, changes of keys, TRUNCATE, format "table", a registered change log, emission by watermark, state in
# memory, partitioned sinks.  Meanwhile workers of every kind and the server are killed, errors are raised at every step of a batch,
# and state directories are deleted, cut short, changed in a byte, exchanged, made older, and closed.
#
# In the end every sink is what the log says, and of each batch, however often it was tried, one set of rows was seen.
#
#   STREAMCDC_TEST_KILLS=100 make test-tap T=test/t/077_jobs_kinds.pl
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $kills = $ENV{STREAMCDC_TEST_KILLS} // 6;
my $seed = $ENV{STREAMCDC_TEST_SEED} // time;
srand($seed);
note("STREAMCDC_TEST_SEED=$seed");

my $node = new_node('jobs_kinds', conf => "streamcdc.progress_retention = 1000000\nstreamcdc.max_restarts = 1000\n");
start_extension($node);
sql($node, <<'SQL');
CREATE EXTENSION dblink;

CREATE TABLE part (id int, region text, v int NOT NULL, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE part_1 PARTITION OF part FOR VALUES IN ('r1');
CREATE TABLE part_2 (v int NOT NULL, region text NOT NULL, gone int, id int NOT NULL);
ALTER TABLE part_2 DROP COLUMN gone;
ALTER TABLE part ATTACH PARTITION part_2 FOR VALUES IN ('r2');
CREATE TABLE part_rest PARTITION OF part DEFAULT PARTITION BY LIST (region);
CREATE TABLE part_3 PARTITION OF part_rest FOR VALUES IN ('r3');

CREATE TABLE keyed (a int, b text, v int, PRIMARY KEY (a, b));
CREATE TABLE journal (n int, note text);

-- a change log with all that the flags stand for, whose versions are committed in their order
CREATE TABLE feed (_change_type text, _commit_version bigint, _commit_timestamp timestamptz, id int, v int, changed_in bigint);
CREATE TABLE feed_rows (id int PRIMARY KEY, v int, changed_in bigint);
CREATE TABLE feed_clock AS SELECT 0::bigint AS version, timestamptz '2020-01-01' AS at;
CREATE FUNCTION feed_step(id int, kind int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	c feed_clock;
	r feed_rows;
BEGIN
	UPDATE feed_clock SET version = version + 1, at = at + '1 s' RETURNING * INTO c;
	SELECT * INTO r FROM feed_rows AS f WHERE f.id = feed_step.id;
	IF r.id IS NOT NULL THEN
		INSERT INTO feed VALUES ('delete', c.version, c.at, r.id, r.v, r.changed_in);
		DELETE FROM feed_rows AS f WHERE f.id = r.id;
	END IF;
	IF r.id IS NOT NULL AND kind = 1 THEN
		RETURN;
	ELSIF r.id IS NULL OR kind <> 2 THEN
		r := ROW(id, coalesce(r.v, 0) + 1, c.version);
	END IF;
	INSERT INTO feed_rows SELECT r.*;
	INSERT INTO feed VALUES ('insert', c.version, c.at, r.id, r.v, r.changed_in);
END $$;
SELECT stream_register_changelog('feed', true, true, true, '{id}', 'changed_in');

INSERT INTO part SELECT i, 'r' || i % 3 + 1, i FROM generate_series(1, 60) AS i;
INSERT INTO keyed SELECT i, 'b', i FROM generate_series(1, 60) AS i;
INSERT INTO journal SELECT i, 'before' FROM generate_series(1, 20) AS i;
SELECT feed_step(i, 0) FROM generate_series(1, 40) AS i;

-- what a batch holds is noted in another session, so that it is known of batches that were rolled back, too
CREATE TABLE seen (query text, batch_id bigint, rows bigint, digest text);
CREATE FUNCTION see(query text, batch_id bigint, rows bigint, digest text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM dblink_exec(format('port=%s host=%s dbname=postgres', current_setting('port'), current_setting('unix_socket_directories')),
						format('INSERT INTO seen VALUES (%L, %s, %s, %L)', query, batch_id, rows, digest));
END $$;
SQL
track($node, [qw(part keyed journal)]);

# query => [ source, arguments ]
my %query = (
	part_mirror => [ 'part', q{sink => 'part_mirror_sink', sink_mode => 'apply', options => '{"deduplicationMode": "netChanges"}'} ],
	part_raw => [ 'part', q{sink => 'part_raw_sink', partition_by => '{region,_change_type}', options => '{"computeUpdates": true, "maxVersionsPerTrigger": 5}'} ],
	part_net => [ 'part', q{sink => 'part_net_sink', options => '{"deduplicationMode": "netChanges", "computeUpdates": true}'} ],
	keyed_net => [ 'keyed', q{sink => 'keyed_net_sink', options => '{"deduplicationMode": "netChanges", "computeUpdates": true, "emission": "watermark"}'} ],
	keyed_late => [ 'keyed', q{sink => 'keyed_late_sink', options => '{"computeUpdates": true, "emission": "watermark"}'} ],
	keyed_memory => [ 'keyed', q{sink => 'keyed_memory_sink', cluster_by => '{a}', options => '{"emission": "watermark", "stateStoreProvider": "memory"}'} ],
	keyed_mirror => [ 'keyed', q{sink => 'keyed_mirror_sink', sink_mode => 'apply'} ],
	journal_rows => [ 'journal', q{sink => 'journal_rows_sink', format => 'table', options => '{"skipChangeCommits": true}'} ],
	feed_net => [ 'feed', q{sink => 'feed_net_sink', partition_by => '{_change_type}', options => '{"deduplicationMode": "netChanges", "computeUpdates": true}'} ],
	feed_late => [ 'feed', q{sink => 'feed_late_sink', options => '{"computeUpdates": true}'} ],
	feed_mirror => [ 'feed', q{sink => 'feed_mirror_sink', sink_mode => 'apply', options => '{"deduplicationMode": "netChanges"}'} ],
);
# the same once more, to see what each batch holds
for my $kind (qw(part_net keyed_net keyed_late keyed_memory feed_net))
{
	my ($source, $arguments) = @{ $query{$kind} };

	$arguments =~ s/sink => '\w+'/foreach_batch => 'SELECT see(''${kind}_seen'', \$1, count(*), md5(string_agg(b::text, E''\\n'' ORDER BY b::text))) FROM batch AS b'/;
	$arguments =~ s/(partition|cluster)_by => '\{\w+\}', //;
	$query{"${kind}_seen"} = [ $source, $arguments ];
}
my @queries = sort keys %query;
my @kept = grep { $_ !~ /memory|part_raw|journal|keyed_mirror/ } @queries;

sql($node, join '', map { "SELECT stream_start('$_', '$query{$_}[0]', $query{$_}[1]);\n" } @queries);
$node->poll_query_until('postgres', "SELECT count(*) = count(batch_id) FROM stream_queries") or die 'not all queries have begun';
my $state = $node->data_dir . '/streamcdc/' . sql($node, "SELECT oid FROM pg_database WHERE datname = 'postgres'");
my %dir = map { split /\|/ } split /\n/, sql($node, "SELECT query_name, '$state/' || id FROM stream_queries");

# ---- the load: one client, so that nothing of it fails ----

my $script = <<'SCRIPT';
\set id random(1, 80)
\set other random(1, 80)
\set r random(1, 3)
\set kind random(1, 40)
BEGIN;
INSERT INTO part VALUES (:id, 'r' || :r, 0) ON CONFLICT (id, region) DO UPDATE SET v = part.v + 1;
UPDATE part SET region = 'r' || :r WHERE id = :other AND NOT EXISTS (SELECT FROM part AS p WHERE p.id = :other AND p.region = 'r' || :r)
	AND region = (SELECT min(region) FROM part AS p WHERE p.id = :other);
\if :kind = 1
TRUNCATE part_1;
\endif
\if :kind = 2
ALTER TABLE part DETACH PARTITION part_2;
UPDATE part_2 SET v = v + 1 WHERE id > 70;
ALTER TABLE part ATTACH PARTITION part_2 FOR VALUES IN ('r2');
\endif
\if :kind % 3 = 0
DELETE FROM part WHERE id = :other;
\endif
COMMIT;
BEGIN;
INSERT INTO keyed VALUES (:id, 'b', 0) ON CONFLICT (a, b) DO UPDATE SET v = keyed.v + 1;
UPDATE keyed SET v = v WHERE a = :other;
\if :kind = 3
TRUNCATE keyed;
INSERT INTO keyed SELECT i, 'b', -i FROM generate_series(1, 60, 3) AS i;
\endif
\if :kind > 30
DELETE FROM keyed WHERE b <> 'b' AND a % 10 = :kind % 10;
UPDATE keyed SET a = a + 1000, b = 'c' || :kind WHERE a = :other AND NOT EXISTS (SELECT FROM keyed AS k WHERE k.a = :other + 1000 AND k.b = 'c' || :kind);
\endif
COMMIT;
INSERT INTO journal SELECT :id, 'row ' || i FROM generate_series(1, :r) AS i;
\if :kind = 4
UPDATE journal SET note = 'changed' WHERE n = :other;
\endif
SELECT feed_step(:id, :kind % 5);
SELECT feed_step(:other, :kind % 5);
SCRIPT
my $load;

sub load_again
{
	stop_load($load) if $load;
	$node->poll_query_until('postgres', 'SELECT true');
	$load = start_load($node, $script, '-c', 1, '-R', 60);
}

sub one_of { return $_[ int(rand(@_)) ] }

sub pid_of
{
	my ($query) = @_;
	return sql($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'streamcdc job' AND application_name = '$query'");
}

# ---- what may happen ----

sub kill_it
{
	my ($pid) = @_;
	my $before = incarnation($node);

	return unless $pid =~ /^\d+$/ && kill('KILL', $pid) == 1;
	wait_for_restart($node, $before);
	load_again();
}

my $tags = 0;

# strikes whoever comes by first
sub strike
{
	my ($point, $how) = @_;
	my $tag = 'kinds_' . $tags++;
	my $before = incarnation($node);

	debug_point($node, $point, $how, $tag);
	if ($how eq 'kill')
	{
		wait_for_restart($node, $before);
		load_again();
	}
	else { $node->poll_query_until('postgres', "SELECT (pg_stat_file('streamcdc_debug_$tag', true)).size IS NOT NULL") or die "nobody came by $point" }
	debug_point($node);
}

sub copy_tree
{
	my ($from, $to) = @_;
	system('rm', '-rf', $to);
	system('cp', '-a', $from, $to) == 0 or die "could not copy $from";
}

my $old = $node->basedir . '/old_state';

sub change_file
{
	my ($dir, $how) = @_;
	my $file = one_of(grep { -s } glob("$dir/*")) or return;

	note("$how $file");
	if ($how eq 'cut') { truncate($file, int(rand(-s $file))) or die "could not cut $file" }
	else
	{
		open(my $f, '+<', $file) or die "could not open $file";
		seek($f, int(rand(-s $file)), 0);
		print $f chr(int(rand(256)));
		close($f);
	}
}

my %damage = (
	'deleted' => sub { system('rm', '-rf', $_[0]) },
	'cut short' => sub { change_file($_[0], 'cut') },
	'with another byte' => sub { change_file($_[0], 'changed') },
	'older' => sub { copy_tree("$old/a", $_[0]) if -d "$old/a" },
	'exchanged' => sub {
		my $other = $dir{ one_of(@kept) };
		return if $other eq $_[0] || !-d $other;
		rename($other, "$other.x") && rename($_[0], $other) && rename("$other.x", $_[0]) or die "could not exchange $other: $!";
	},
	'not to be read' => sub { chmod(0, one_of(glob("$_[0]/*"))) },
	'closed' => sub { chmod(0, $_[0]) },
);

sub damage_state
{
	my ($query, $what) = @_;

	note("state of $query: $what");
	sql($node, "SELECT stream_stop('$query', '120 s')");
	$damage{$what}->($dir{$query});
	sql($node, "SELECT stream_resume('$query')");
}

my %happens = (
	'killed worker' => sub { kill_it(pid_of($_[0])) },
	'killed worker whose state is gone' => sub { my $pid = pid_of($_[0]); system('rm', '-rf', $dir{ $_[0] }); kill_it($pid) },
	'killed capture' => sub { kill_it(worker_pid($node)) },
	'killed launcher' => sub { kill_it(worker_pid($node, 'launcher')) },
	'terminated' => sub { sql($node, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'streamcdc%'") },
	'cancelled' => sub { sql($node, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'streamcdc%'") },
	'killed server' => sub { kill_server($node); $node->start; load_again() },
	'immediate shutdown' => sub { $node->stop('immediate'); $node->start; load_again() },
	'fast shutdown' => sub { $node->stop('fast'); $node->start; load_again() },
	'kill at a step' => sub { strike(one_of(qw(job-before-read job-before-sink job-after-sink job-before-commit job-after-commit job-after-mark)), 'kill') },
	'error at a step' => sub { strike(one_of(qw(job-before-read job-before-sink job-after-sink job-before-commit job-after-commit job-after-mark)), 'error') },
	'copied state' => sub { sql($node, "SELECT stream_stop('$_[0]', '120 s')"); system('mkdir', '-p', $old); copy_tree($dir{ $_[0] }, "$old/a") if -d $dir{ $_[0] }; sql($node, "SELECT stream_resume('$_[0]')") },
	map { my $what = $_; ("state $what" => sub { damage_state(one_of(@kept), $what) }) } keys %damage
);

load_again();
query_works($node, $_, "$_ works") for @queries;
my @kinds = sort keys %happens;
for my $n (1 .. $kills)
{
	my $kind = one_of(@kinds);
	my $query = one_of(@queries);

	note("$n of $kills: $kind ($query)");
	$happens{$kind}->($query);
	query_works($node, one_of(@queries), "$n of $kills: $kind");
}
stop_load($load);

# ---- the end ----

$node->poll_query_until('postgres', "SELECT count(*) = ${\ scalar @queries} FROM stream_queries WHERE status = 'running'")
  or die 'queries do not run: ' . sql($node, "SELECT query_name, status, last_error FROM stream_queries WHERE status <> 'running'");
# capture may have been interrupted, too
$node->poll_query_until('postgres', "SELECT stream_sync('10 s') IS NOT NULL") or die 'capture does not go on';
sql($node, "SELECT stream_process_all_available('$_', '180 s')") for @queries;

# differs TABLE, QUERY: how many rows are in one of them only
sub differs
{
	my ($sink, $expected, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql($node, <<"SQL"), '0|0', $test);
WITH s AS ($sink), e AS ($expected)
SELECT (SELECT count(*) FROM (TABLE s EXCEPT ALL TABLE e) AS x), (SELECT count(*) FROM (TABLE e EXCEPT ALL TABLE s) AS x)
SQL
}

my $changes = 'SELECT %s, _change_type, _commit_version, _commit_timestamp FROM stream_changes(NULL::%s%s)';

differs("TABLE ${_}_mirror_sink", "TABLE $_", "the mirror is the table: $_") for qw(part keyed);
differs('SELECT id, v, changed_in FROM feed_mirror_sink', 'TABLE feed_rows', 'the mirror is what the change log comes to');
differs('TABLE part_raw_sink', sprintf($changes, '(row_data).*', 'part', ', compute_updates => true'), 'a partitioned sink');
differs('TABLE keyed_late_sink', sprintf($changes, '(row_data).*', 'keyed', ', compute_updates => true'), 'emission by watermark');
differs('TABLE keyed_memory_sink', sprintf($changes, '(row_data).*', 'keyed', ''), 'state in memory');
differs('SELECT id, v, changed_in, _change_type, _commit_version, _commit_timestamp FROM feed_late_sink',
	sprintf($changes, "(row_data).id, (row_data).v, (row_data).changed_in", 'feed', ', compute_updates => true'), 'a registered change log');
differs('TABLE journal_rows_sink', <<'SQL', 'format "table"');
SELECT (row_data).* FROM stream_changes(NULL::journal) WHERE _commit_version NOT IN (SELECT _commit_version FROM stream_changes('journal') WHERE _change_type = 'delete')
SQL

# Changes of an identity that come to one net change: those of a run of consecutive batches that have it; behind other passes, which
# let a batch's rows go all at once, those of one batch.
sub net_differs
{
	my ($query, $source, $columns, $key, $run) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $data = join ', ', map { "(row_data).$_" } split / /, $columns;
	my $listed = join ', ', split / /, $columns;
	differs("SELECT $listed, _change_type, _commit_version, _commit_timestamp FROM ${query}_sink", <<"SQL", "the net changes are what the batches come to: $query");
WITH boundaries AS (
	SELECT (p ->> 'batchId')::bigint AS batch, coalesce((p #>> '{sources,0,startOffset}')::bigint, -1) AS after, (p #>> '{sources,0,endOffset}')::bigint AS upto
	FROM stream_recent_progress('$query') AS p
), c AS (
	SELECT $data, _change_type, _commit_version, _commit_timestamp, b.batch, row_number() OVER () AS n, _change_type IN ('delete', 'update_preimage') AS deletes
	FROM stream_changes(NULL::$source, compute_updates => true) AS c
	JOIN boundaries AS b ON c._commit_version > b.after AND c._commit_version <= b.upto
), runs AS (
	SELECT c.*, $run AS run FROM c
), ends AS (
	SELECT r.*, row_number() OVER (PARTITION BY $key, run ORDER BY _commit_version, NOT deletes, n) AS first,
		   row_number() OVER (PARTITION BY $key, run ORDER BY _commit_version DESC, deletes, n DESC) AS last
	FROM runs AS r
), pairs AS (
	SELECT $key, run, bool_or(deletes) FILTER (WHERE first = 1) AS before, NOT bool_or(deletes) FILTER (WHERE last = 1) AS after
	FROM ends GROUP BY $key, run
)
SELECT $listed, CASE WHEN p.before AND p.after THEN CASE side WHEN 1 THEN 'update_preimage' ELSE 'update_postimage' END
			WHEN p.before THEN 'delete' ELSE 'insert' END AS _change_type, e._commit_version, e._commit_timestamp
FROM ends AS e JOIN pairs AS p USING ($key, run), generate_series(1, 2) AS side
WHERE (side = 1 AND e.first = 1 AND p.before) OR (side = 2 AND e.last = 1 AND p.after)
SQL
	is(sql($node, "SELECT count(*) = max((p ->> 'batchId')::bigint) + 1 FROM stream_recent_progress('$query') AS p"), 't', "each of its batches was done, once: $query");
}

net_differs('part_net', 'part', 'id region v', 'id, region', 'batch - dense_rank() OVER (PARTITION BY id, region ORDER BY batch)');
net_differs('keyed_net', 'keyed', 'a b v', 'a, b', 'batch');
net_differs('feed_net', 'feed', 'id v changed_in', 'id', 'batch');

is(sql($node, 'SELECT query, batch_id, count(DISTINCT (rows, digest)) FROM seen GROUP BY query, batch_id HAVING count(DISTINCT (rows, digest)) > 1'), '', 'a batch always holds the same rows');
is(sql($node, 'SELECT count(DISTINCT query) FROM seen'), 5, 'of which all were seen');
note(sql($node, 'SELECT query, count(DISTINCT batch_id), count(*) - count(DISTINCT batch_id) FROM seen GROUP BY query ORDER BY query'));

sql($node, "SELECT stream_drop('$_')") for @queries;
is(join(' ', map { s/.*\///r } glob("$state/*")), '', 'no state is left behind');
is(sql($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'streamcdc job'"), 0, 'nor are workers');

$node->stop;
done_testing();
