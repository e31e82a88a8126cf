# Jobs whose state directory is full, or that get no threads: they keep the error and try again, nobody else notices, and when there is
# space again no row is missing and none is there twice.
#
# The directory is a small file system of its own where an ordinary user may mount one (in a namespace, in which this test then
# runs again).  Elsewhere, as in most containers, the workers may not write large files; what comes of that is the same but for
# the words of the error.
use strict;
use warnings;
use File::Temp;
use FindBin;
use IPC::Run;

my ($mounted, $why);

# before the test modules keep the standard output for themselves
BEGIN
{
	$mounted = $ENV{STREAMCDC_TEST_MOUNTED};
	unless ($mounted)
	{
		my $dir = File::Temp::tempdir('full_disk_XXXX', TMPDIR => 1);
		my @own = (qw(unshare --user --map-current-user --mount --keep-caps sh -c), 'mount -t tmpfs -o size=64m none "$0" && exec "$@"', $dir);

		if (eval { IPC::Run::run([ @own, 'true' ], '>&', \$why) })
		{
			$ENV{STREAMCDC_TEST_MOUNTED} = $dir;
			exec(@own, $^X, $0, @ARGV) or die "could not run again: $!";
		}
		$why .= $@;
	}
}

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

note("no file system of its own: $why") unless $mounted;
my $node = new_node('full_disk', conf => "streamcdc.max_restarts = 1000\n" . ($mounted ? "streamcdc.state_directory = '$mounted/state'\n" : ''));
start_extension($node);

sub workers
{
	return split /\n/, sql($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'streamcdc job' AND application_name IN ('mirror', 'append')");
}

sub resize
{
	my ($size) = @_;
	system_or_bail('mount', '-o', "remount,size=$size", $mounted);
}

# beyond that size, a worker cannot write a file; those of WAL are just so large
sub limit
{
	my ($size) = @_;
	system_or_bail('prlimit', '--pid', $_, "--fsize=$size:") for workers();
}

# RocksDB has taken room for its log beforehand, but new files of state find none
sub make_full { $mounted ? resize((split ' ', `df --output=used -k '$mounted'`)[1] . 'k') : limit(16 * 1024 * 1024) }
sub make_room { $mounted ? resize('1g') : limit('unlimited') }

# what LZ4 cannot make smaller
sub rows
{
	my ($from, $to) = @_;
	return "INSERT INTO src SELECT i, 'row ' || i, (SELECT string_agg(md5(i || '.' || j), '') FROM generate_series(1, 32) AS j) FROM generate_series($from, $to) AS i;\n";
}

sub all_done
{
	sql($node, join '', map { "SELECT stream_process_all_available('$_', '120 s');\n" } @_);
}

sub nothing_lost
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql($node, 'SELECT count(*) FROM ((SELECT id, v FROM src EXCEPT ALL TABLE mirror_sink) UNION ALL (TABLE mirror_sink EXCEPT ALL SELECT id, v FROM src)) AS x'), 0, "$when: the mirror is the table");
	is(sql($node, <<'SQL'), '0|0', "$when: each change was appended once");
WITH c AS (SELECT (row_data).id, (row_data).v, _change_type, _commit_version FROM stream_changes(NULL::src))
SELECT (SELECT count(*) FROM (TABLE c EXCEPT ALL TABLE append_sink) AS x), (SELECT count(*) FROM (TABLE append_sink EXCEPT ALL TABLE c) AS x)
SQL
}

sub is_waiting
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_for($node, "count(*) = 2 FROM stream_queries WHERE status = 'restarting' AND last_error ~ 'IO error: .*(No space left on device|File too large)'", "$when: the error is there to be seen")
	  or diag(sql($node, 'SELECT query_name, status, last_error FROM stream_queries'));
}

sql($node, 'CREATE TABLE src (id int PRIMARY KEY, v text, pad text); ' . rows(1, 10));
track($node, ['src']);
# pad is in the state, and in no file that belongs to the server
my $columns = 'SELECT id, v, _change_type, _commit_version FROM batch';
sql($node, <<"SQL");
SELECT stream_start('mirror', 'src', sink => 'mirror_sink', sink_mode => 'apply', query => '$columns', options => '{"deduplicationMode": "netChanges"}');
SELECT stream_start('append', 'src', sink => 'append_sink', query => '$columns', options => '{"emission": "watermark"}');
SELECT stream_start('stateless', 'src', sink => 'stateless_sink', query => '$columns');
SQL
all_done('mirror', 'append', 'stateless');
nothing_lost('at first');

# ---- a large batch ----

make_full();
# more than the file system holds, even if the other job has given up what it took; or than goes into a file, but not so much that it is
# sorted in one, which would be no matter of the state
sql($node, rows(11, $mounted ? 50000 : 25000) . "UPDATE src SET v = 'changed' WHERE id < 20; DELETE FROM src WHERE id = 15");
is_waiting('a batch that is too large');
sql($node, "SELECT stream_sync('60 s')");
all_done('stateless');
is(sql($node, 'SELECT count(*) FROM stateless_sink'), sql($node, 'SELECT count(*) FROM stream_changes(NULL::src)'), 'capture, readers and other jobs go on');
is(sql($node, 'SELECT count(*) FROM mirror_sink'), 10, 'nothing of it is in the sink');
# three tries at least: the last one came after a longer pause than the others
ok($node->wait_for_log(qr/(?:state store failed: IO error.*){6}/s), 'they are tried again');
is_waiting('after several tries');
make_room();
all_done('mirror', 'append');
is(sql($node, "SELECT count(*) FROM stream_queries WHERE status = 'running' AND last_error IS NULL"), 3, 'with space again they go on');
nothing_lost('after that');

# ---- not a byte ----

SKIP:
{
	skip 'no file system of its own', 3 unless $mounted;

	# stores that are closed keep no room for later
	sql($node, "SELECT stream_stop('$_')") for qw(mirror append);
	make_full();
	my $log = -s $node->logfile;
	sql($node, "UPDATE src SET v = 'small' WHERE id <= 1000; SELECT stream_resume('mirror'); SELECT stream_resume('append')");
	# one of them at least: the other may find the room that this one has given up
	ok($node->wait_for_log(qr/appending to file: [^\n]*\.(?:log|sst): No space/, $log), 'workers that begin on a full disk fail in small things');
	# and may go on by themselves, as a state that is made anew needs less room than the old one took
	make_room();
	all_done('mirror', 'append');
	nothing_lost('with space again');
}

# ---- no threads ----

# the store cannot be opened without them, and what a worker has begun to open it can never open again: another one does
my $log = -s $node->logfile;
system_or_bail('prlimit', '--pid', $_, '--nproc=1:') for workers();
sql($node, rows(60001, 75000));
ok($node->wait_for_log(qr/FATAL:  state store failed: Resource temporarily unavailable/, $log), 'a worker that cannot start threads ends');
all_done('mirror', 'append');
nothing_lost('with other workers');

# nor may opening one with files in it end the server, wherever memory or threads run out
sql($node, "SELECT stream_start('pending', 'src', sink => 'pending_sink', query => '$columns', options => '{\"deduplicationMode\": \"netChanges\", \"noDataMicroBatchesEnabled\": false}')");
all_done('pending');
sql($node, "ALTER TABLE pending_sink ADD CONSTRAINT never CHECK (false) NOT VALID; INSERT INTO src VALUES (0, 'lets the others out')");
my $server = incarnation($node);
for my $room (undef, 1, 16)
{
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'pending'") or die 'the query has no worker';
	my $pid = sql($node, "SELECT pid FROM pg_stat_activity WHERE application_name = 'pending'");
	# it may be leaving
	my ($size) = (eval { slurp_file("/proc/$pid/status") } // '') =~ /^VmSize:\s*(\d+) kB/m or redo;

	$log = -s $node->logfile;
	system('prlimit', '--pid', $pid, $room ? '--as=' . ($size + $room * 1024) * 1024 . ':' : '--nproc=1:') == 0 or redo;
	ok($node->wait_for_log(qr/(?:(?:violates check constraint "never"|out of memory|Resource temporarily|Cannot allocate memory).*){2}/s, $log),
		$room ? "little memory ($room MB): a worker that has failed opens its state again" : 'no thread: the same');
	system('prlimit', '--pid', $pid, '--as=unlimited:', '--nproc=unlimited:') if kill(0, $pid);
}
is(incarnation($node), $server, 'or another one does, and the server runs on');
sql($node, 'ALTER TABLE pending_sink DROP CONSTRAINT never');
all_done('pending');
is(sql($node, 'SELECT count(*) FROM pending_sink'), sql($node, 'SELECT count(*) - 1 FROM src'), 'the rows come out');

$node->stop;
done_testing();
