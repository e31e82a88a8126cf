# Streaming queries and the server around them: workers that run out, restarts and shutdowns in the middle of a batch, databases that
# are dropped, renamed and copied, DROP EXTENSION, and a state directory that cannot be used.  Nothing hangs, nothing stays behind.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('jobs_server', conf => "streamcdc.max_restarts = 1\nmax_worker_processes = 6\nmax_logical_replication_workers = 0\nmax_parallel_workers = 0\n");
start_extension($node);
my $state = $node->data_dir . '/streamcdc';

sub query_is
{
	my ($query, $status, $test, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $and = $params{error} ? " AND last_error ~ '$params{error}'" : '';
	return wait_for($node, "EXISTS (SELECT FROM stream_queries WHERE query_name = '$query' AND status = '$status'$and)", $test, $params{db})
	  || diag(sql($node, "SELECT query_name, status, last_error FROM stream_queries", $params{db}));
}

sub done
{
	my ($query, $db) = @_;
	sql($node, "SELECT stream_process_all_available('$query', '120 s')", $db);
}

sub is_mirror
{
	my ($test, $db, $sink) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$sink //= 'sink';
	is(sql($node, "SELECT count(*) FROM ((TABLE src EXCEPT ALL TABLE $sink) UNION ALL (TABLE $sink EXCEPT ALL TABLE src)) AS x", $db), 0, $test);
}

sub no_jobs
{
	my ($test, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_for($node, "count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'streamcdc job' AND datname = '$db'", $test);
}

my $setup = <<'SQL';
CREATE TABLE src (id int PRIMARY KEY, v text);
INSERT INTO src SELECT i, 'row ' || i FROM generate_series(1, 1000) AS i;
SELECT stream_track('src');
SELECT stream_start('q', 'src', sink => 'sink', sink_mode => 'apply', options => '{"deduplicationMode": "netChanges"}');
SQL

# ---- workers ----

sql($node, $setup);
done('q');
is_mirror('a mirror');
# launcher, capture and q are there; until there are no more
my $more = 0;
for my $n (1 .. 10)
{
	my ($status, $out, $err) = $node->psql('postgres', "SELECT stream_start('more $n', 'src', sink => 'more_$n', trigger => '1 day')", extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	if ($status != 0)
	{
		like($err, qr/ERROR:  53400: .*max_worker_processes/s, 'no worker is free: an error of the call, with the setting to raise');
		last;
	}
	$more = $n;
}
cmp_ok($more, '>', 0, 'a few could be started');
cmp_ok($more, '<', 6, 'not all');
is(sql($node, "SELECT count(*) FROM stream_queries"), $more + 1, 'what could not be started is not there');
# after a restart there are fewer workers
reconfigure($node, "max_worker_processes = 4\n");
wait_for($node, "count(*) > 0 AND bool_and(last_error ~ 'max_worker_processes') FROM stream_queries WHERE status = 'restarting'", 'without a worker a query waits, and says for what');
my $waits = sql($node, "SELECT query_name FROM stream_queries WHERE status = 'restarting' LIMIT 1");
like(sql($node, "LISTEN streamcdc; SELECT stream_stop('$waits')"), qr/"QueryTerminated".*"name": "\Q$waits\E"/, 'stopped, its end is told all the same');
is(sql($node, "SELECT status FROM stream_queries WHERE query_name = '$waits'"), 'stopped', 'and it waits no more');
sql($node, "SELECT stream_drop('$waits')");
reconfigure($node, "max_worker_processes = 24\n");
wait_for($node, "bool_and(status = 'running') FROM stream_queries", 'with enough of them all run');
sql($node, "SELECT stream_drop(query_name) FROM stream_queries WHERE query_name <> 'q'");
is(sql($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'streamcdc job'"), 1, 'those that are dropped are gone');

# one that ends when the worker that looks for such has just looked is not forgotten
my $one_waits = "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'streamcdc job' AND query = 'waiting for changes'";
debug_point($node, 'starter-looked', 'wait', 'starter');
signal_worker($node, 'TERM', 'job');
$node->poll_query_until('postgres', "SELECT (pg_stat_file('streamcdc_debug_starter', true)).size IS NOT NULL") or die 'nobody looks';
$node->poll_query_until('postgres', $one_waits) or die 'there is no other worker';
signal_worker($node, 'TERM', 'job');
$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'streamcdc job'") or die 'it does not end';
debug_point($node);
ok($node->poll_query_until('postgres', $one_waits), 'a worker that ends while others are looked for is replaced, too');

# ---- shutdown in the middle of a batch ----

for my $mode (qw(fast immediate smart))
{
	my $locker = $node->background_psql('postgres');
	$locker->query_safe('BEGIN; LOCK TABLE sink');
	sql($node, "UPDATE src SET v = '$mode ' || id");
	$node->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'sink'::regclass)") or die 'the job does not wait';
	# a smart shutdown waits for sessions, but not for workers
	$locker->quit if $mode eq 'smart';
	$node->stop($mode);
	eval { $locker->quit } if $mode ne 'smart';
	$node->start;
	done('q');
	is_mirror("$mode shutdown: the batch is done after the start");
}

# ---- the database ----

$node->safe_psql('postgres', 'CREATE DATABASE db');
$node->safe_psql('db', 'CREATE EXTENSION streamcdc');
sql($node, $setup, 'db');
done('q', 'db');
my $oid = sql($node, "SELECT oid FROM pg_database WHERE datname = 'db'");
ok(-d "$state/$oid", 'the database has state');
is((stat("$state"))[2] & 0777, 0700, 'in a directory of mode 0700');
is((stat("$state/$oid"))[2] & 0777, 0700, 'and so below');
chmod(0755, $state, "$state/$oid") == 2 or die "could not change the mode of $state";
sql($node, "SELECT stream_stop('q'); SELECT stream_resume('q')", 'db');
done('q', 'db');
is((stat($_))[2] & 0777, 0700, 'which is closed again') for $state, "$state/$oid";
$node->safe_psql('postgres', 'ALTER DATABASE db RENAME TO db2');
sql($node, 'DELETE FROM src WHERE id <= 10', 'db2');
done('q', 'db2');
is_mirror('ALTER DATABASE RENAME: the query goes on', 'db2');
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE db2');
done('q', 'db2');
query_is('q', 'running', 'CREATE DATABASE TEMPLATE: the query of the template goes on', db => 'db2');
is(sql($node, 'SELECT query_name, status FROM stream_queries', 'copy'), 'q|stopped', 'that of the copy is stopped');
sql($node, "INSERT INTO src VALUES (-1, 'in the copy')", 'copy');
fails_with($node, "SELECT stream_resume('q')", '55000', qr/nothing is captured of source table "src".*was copied.*stream_track\('src'\); then drop the query/s, 'and cannot go on, since nothing is captured', db => 'copy');
fails_with($node, "SELECT stream_process_all_available('q')", '55000', qr/query "q" is not running/, 'nor does anybody wait for it', db => 'copy');
sql($node, "CREATE TABLE other (id int PRIMARY KEY); SELECT stream_track('other')", 'copy');
fails_with($node, "SELECT stream_resume('q')", '55000', qr/nothing is captured of source table "src".*was copied/s, 'nor when another table is', db => 'copy');
sql($node, "SELECT stream_track('src')", 'copy');
fails_with($node, "SELECT stream_resume('q')", '55000', qr/source table "src" has another change log than .*was copied.* stream_track has begun a new.*stream_drop.*"earliest"/s, 'when its own is, it has another log', db => 'copy');
sql($node, "SELECT stream_drop('q')", 'copy');
is(sql($node, 'SELECT count(*) FROM stream_queries', 'copy'), 0, 'but can be dropped');
sql($node, q{SELECT stream_start('q', 'src', sink => 'new_sink', sink_mode => 'apply', options => '{"startingVersion": "earliest"}')}, 'copy');
done('q', 'copy');
is(sql($node, 'SELECT count(*) FROM src LEFT JOIN new_sink USING (id) WHERE src.v IS DISTINCT FROM new_sink.v', 'copy'), 0, 'and started anew');
query_is('q', 'running', 'the template\'s is another', db => 'db2');
$node->safe_psql('postgres', 'DROP DATABASE copy');
$node->safe_psql('postgres', 'DROP DATABASE db2 WITH (FORCE)');
ok(!-e "$state/$oid", 'DROP DATABASE WITH (FORCE): its state is gone');
$node->safe_psql('postgres', 'CREATE DATABASE db');
$node->safe_psql('db', 'CREATE EXTENSION streamcdc');
sql($node, $setup, 'db');
done('q', 'db');
$node->safe_psql('postgres', 'DROP DATABASE db');
is(sql($node, "SELECT count(*) FROM pg_shseclabel WHERE provider LIKE 'streamcdc%'"), 2, 'DROP DATABASE: only the labels of the other database are left');
no_jobs('and no worker', 'db');

# ---- the extension ----

$oid = sql($node, "SELECT oid FROM pg_database WHERE datname = 'postgres'");
ok(-d "$state/$oid", 'there is state');
# a DROP EXTENSION that is rolled back
sql($node, 'BEGIN; DROP EXTENSION streamcdc CASCADE; ROLLBACK');
sql($node, "UPDATE src SET v = 'still'");
$node->poll_query_until('postgres', "SELECT status = 'running' FROM stream_queries") or die 'the query does not run';
done('q');
is_mirror('DROP EXTENSION, rolled back: the query goes on');
$node->safe_psql('postgres', 'DROP EXTENSION streamcdc');
no_jobs('DROP EXTENSION: no worker is left', 'postgres');
wait_for_no_capture($node, 'nor capture');
ok(!-e "$state/$oid", 'nor state');
wait_for($node, "count(*) = 0 FROM pg_shseclabel WHERE provider LIKE 'streamcdc%'", 'nor a label');
is(sql($node, 'SELECT count(*) FROM sink'), 1000, 'the sink is');

# along with its schema
sql($node, "DROP TABLE sink, src; CREATE SCHEMA ext; CREATE EXTENSION streamcdc SCHEMA ext; SET search_path = public, ext; $setup
SELECT stream_process_all_available('q', '120 s');");
ok(-d "$state/$oid", 'there is state again');
sql($node, 'DROP SCHEMA ext CASCADE');
no_jobs('DROP SCHEMA with the extension in it: no worker is left', 'postgres');
wait_for_no_capture($node, 'nor capture');
ok(!-e "$state/$oid", 'nor state');
wait_for($node, "count(*) = 0 FROM pg_shseclabel WHERE provider LIKE 'streamcdc%'", 'nor a label');
is(sql($node, 'SELECT count(*) FROM sink'), 1000, 'the sink is');

# ---- the state directory ----

sql($node, 'DROP TABLE sink, src');
$node->safe_psql('postgres', 'CREATE EXTENSION streamcdc');
my $elsewhere = $node->basedir . '/elsewhere';
mkdir($elsewhere, 0700) or die "could not make $elsewhere";
symlink($elsewhere, $node->basedir . '/link') or die 'could not make a link';
$node->append_conf('postgresql.conf', "streamcdc.state_directory = '" . $node->basedir . "/link'\n");
$node->reload;
sql($node, $setup);
query_is('q', 'failed', 'a state directory that is a symbolic link is not used', error => 'is not a directory');
is(join(' ', glob("$elsewhere/*")), '', 'nothing is written there');
my $id = sql($node, "SELECT id FROM stream_queries WHERE query_name = 'q'");
$node->append_conf('postgresql.conf', "streamcdc.state_directory = '" . $node->basedir . "/link/'\n");
$node->reload;
sql($node, "SELECT stream_resume('q')");
query_is('q', 'failed', 'nor is one with a slash behind it', error => 'is not a directory');
mkdir("$elsewhere/$oid") && mkdir("$elsewhere/$oid/$id") or die "could not make $elsewhere/$oid/$id";
sql($node, "SELECT stream_drop('q')");
ok(-d "$elsewhere/$oid/$id", 'nothing is deleted there');
sql($node, 'DROP TABLE sink, src');
sql($node, $setup);
query_is('q', 'failed', 'a new query fails, too', error => 'is not a directory');
$node->append_conf('postgresql.conf', "streamcdc.state_directory = '" . $node->basedir . "/missing/streamcdc'\n");
$node->reload;
sql($node, "SELECT stream_resume('q')");
query_is('q', 'failed', 'one that cannot be made', error => 'could not create directory .*/missing/streamcdc.*No such file');
mkdir($node->basedir . '/readonly', 0500);
$node->append_conf('postgresql.conf', "streamcdc.state_directory = '" . $node->basedir . "/readonly/streamcdc'\n");
$node->reload;
sql($node, "SELECT stream_resume('q')");
query_is('q', 'failed', 'one that cannot be written', error => 'could not create directory .*/readonly/streamcdc.*Permission denied');
$node->append_conf('postgresql.conf', "streamcdc.state_directory = 'streamcdc'\n");
$node->reload;
sql($node, "SELECT stream_resume('q')");
done('q');
is_mirror('a good one');

# what is in the way of a query's state
sub with_state
{
	my ($do) = @_;
	my $dir = "$state/$oid/" . sql($node, "SELECT id FROM stream_queries WHERE query_name = 'q'");
	sql($node, "SELECT stream_stop('q')");
	$do->($dir);
	return $dir;
}
with_state(sub { chmod(0, $_[0]) or die "could not close $_[0]" });
sql($node, "SELECT stream_resume('q'); UPDATE src SET v = 'closed'");
done('q');
is_mirror('a directory that was closed is opened');
my $dir = with_state(sub { system('rm', '-rf', $_[0]); append_to_file($_[0], 'x') });
sql($node, "SELECT stream_resume('q')");
query_is('q', 'failed', 'a file in its place', error => 'is not a directory');
warns_with($node, "SELECT stream_drop('q')", qr/could not remove state directory/, 'what cannot be removed is no reason to keep a query');
is(sql($node, 'SELECT count(*) FROM stream_queries'), 0, 'it is gone');
ok(-f $dir, 'the file is not');

# where there are other things, too, none of them is deleted
$node->append_conf('postgresql.conf', "streamcdc.state_directory = 'base'\n");
$node->reload;
sql($node, 'DROP TABLE sink');
sql($node, "SELECT stream_start('q', 'src', sink => 'sink')");
sql($node, "SELECT stream_start('net', 'src', sink => 'net_sink', options => '{\"deduplicationMode\": \"netChanges\"}')");
done($_) for qw(q net);
is(scalar(my @s1 = glob($node->data_dir . "/base/$oid/????????-*")), 1, 'there is state among them');
$node->safe_psql('postgres', 'DROP EXTENSION streamcdc');
is(scalar(my @s0 = glob($node->data_dir . "/base/$oid/????????-*")), 0, 'it is gone');
$node->restart;
is(sql($node, 'SELECT count(*) FROM src'), 1000, 'nothing else is');

fails_with($node, "ALTER SYSTEM SET streamcdc.state_directory = '" . 'x' x 1000 . "'", '22023', qr/DETAIL:  The name is too long/, 'one whose name leaves no room');
fails_with($node, "ALTER SYSTEM SET streamcdc.state_directory = ''", '22023', qr/invalid value for parameter "streamcdc.state_directory"/, 'an empty one');

$node->stop;
done_testing();
