# A dropped table's log is complete, however late capture is; a stream that nobody can ever read vanishes by itself.  Where a worker
# is missing, those who wait are told.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('dropped');
start_extension($node);

#
# Dropped while capture is behind
#
sql($node, 'CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE other (id int PRIMARY KEY)');
track($node, [ 't', 'other' ]);
my $pid = signal_worker($node, 'STOP');
sql($node, 'INSERT INTO t SELECT i, md5(i::text) FROM generate_series(1, 100000) AS i; INSERT INTO t VALUES (0); UPDATE t SET v = NULL WHERE id = 0; DROP TABLE t');
kill 'CONT', $pid;
is(sql($node, 'SELECT count(*), max(_commit_version) FROM stream_events(\'t\')'), '100002|3', 'a read of a dropped table waits for capture');
# once it has come so far, nobody waits for it any more
wait_for($node, 'EXISTS (SELECT FROM streamcdc.streams WHERE table_name = \'t\' AND last_version = 3)', 'the last version is known when capture has passed the drop');
$pid = signal_worker($node, 'STOP');
is(sql($node, 'SET streamcdc.read_timeout = \'600s\'; SELECT count(*) FROM stream_events(\'t\')'), 100002, 'then a read does not wait');
kill 'CONT', $pid;
# the last one: capture ends, but not before it has read what was committed until then
$pid = signal_worker($node, 'STOP');
sql($node, 'INSERT INTO other SELECT generate_series(1, 100000); INSERT INTO other VALUES (0); DROP TABLE other');
kill 'CONT', $pid;
is(sql($node, 'SELECT count(*), max(_commit_version) FROM stream_events(\'other\')'), '100001|2', 'also when it was the last one');
wait_for_no_capture($node, 'then capture ends');
is(sql($node, 'SET streamcdc.read_timeout = \'600s\'; SELECT count(*), max(_commit_version) FROM stream_events(\'other\')'), '100001|2', 'and nobody waits for it');
# the same over a crash, with nothing else tracked
sql($node, 'CREATE TABLE t (id int PRIMARY KEY)');
track($node, ['t']);
$pid = signal_worker($node, 'STOP');
sql($node, 'INSERT INTO t SELECT generate_series(1, 100000); INSERT INTO t VALUES (0); DROP TABLE t');
crash_with_worker($node);
is(sql($node, 'SET streamcdc.read_timeout = \'600s\'; SELECT count(*), max(_commit_version) FROM stream_events(\'t\')'), '100001|2', 'and after a crash');
wait_for_no_capture($node, 'then it ends, too');
is(sql($node, 'SELECT count(*) FROM stream_tables WHERE status = \'dropped\''), 3, 'three logs of dropped tables are kept');

#
# No worker for the baseline: those who wait are told
#
sql($node, 'CREATE TABLE kept (id int PRIMARY KEY); INSERT INTO kept VALUES (1); CREATE TABLE gone (id int PRIMARY KEY); INSERT INTO gone VALUES (1)');
# the server's own launcher of subscriptions, ours, and one for capture
reconfigure($node, 'max_worker_processes = 3');
sql($node, 'SELECT stream_track(\'kept\'), stream_track(\'gone\')');
wait_for($node, "EXISTS (SELECT FROM stream_tables WHERE table_name = 'kept' AND status = 'baseline' AND last_error ~ 'max_worker_processes')",
	'no worker for the baseline is in last_error');
fails_with($node, 'SET streamcdc.read_timeout = \'100ms\'; SELECT * FROM stream_changes(\'kept\')', '55000',
	qr/baseline of table "kept" is not complete.*DETAIL:[^\n]*max_worker_processes/s, 'and in the error of who waits for it');
fails_with($node, 'SELECT stream_sync(\'100ms\')', '57014', qr/DETAIL:[^\n]*max_worker_processes/s, 'also in that of stream_sync');

#
# Dropped before there was a baseline: nobody can read it, so it goes
#
my $stream = sql($node, 'SELECT stream_id FROM streamcdc.streams WHERE relid = \'gone\'::regclass');
sql($node, 'INSERT INTO gone VALUES (2); INSERT INTO kept VALUES (2); DROP TABLE gone');
wait_for($node, 'NOT EXISTS (SELECT FROM stream_tables WHERE table_name LIKE \'gone%\')', 'a table dropped before its baseline was copied is not listed');
is(sql($node, "SELECT (SELECT count(*) FROM streamcdc.blocks WHERE stream_id = $stream) + (SELECT count(*) FROM streamcdc.baselines WHERE stream_id = $stream)"), 0, 'and has left nothing');
fails_with($node, 'SELECT * FROM stream_changes(\'gone\')', '42P01', qr/"gone" does not exist/, 'nor can it be read');
reconfigure($node, "max_worker_processes = 24\nstreamcdc.debug_tracking_wait = '180s'");
wait_for_capture($node);
is(sql($node, 'SELECT last_error IS NULL, status FROM stream_tables WHERE table_name = \'kept\''), 't|streaming', 'the other is copied when there is a worker');
is(sql($node, 'SELECT string_agg(row_data ->> \'id\', \' \') FROM stream_changes(\'kept\', 0)'), '1 2', 'with all its rows');

# in the middle of the copy, which does not hold up the DROP
sql($node, 'CREATE TABLE copied (id int PRIMARY KEY); INSERT INTO copied VALUES (1)');
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE streamcdc.schemas IN SHARE MODE;');
sql($node, 'SELECT stream_track(\'copied\')');
wait_for_lock_of_worker($node, 'streamcdc.schemas', 'baseline');
sql($node, 'SET lock_timeout = \'60s\'; DROP TABLE copied');
pass('a table whose baseline is being copied is dropped at once');
$holder->query_safe('ROLLBACK;');
$holder->quit;
wait_for($node, 'NOT EXISTS (SELECT FROM stream_tables WHERE table_name LIKE \'copied%\')', 'and not listed');
is(sql($node, 'SELECT count(*) FROM streamcdc.streams WHERE table_name = \'copied\' AND state <> \'u\''), 0, 'its stream is gone');

#
# No worker for capture after a restart
#
reconfigure($node, 'max_worker_processes = 2');
wait_for($node, 'EXISTS (SELECT FROM stream_tables WHERE table_name = \'kept\' AND last_error ~ \'max_worker_processes\')', 'no worker for capture is in last_error');
warns_with($node, 'SET streamcdc.read_timeout = \'100ms\'; INSERT INTO kept VALUES (3); SELECT * FROM stream_changes(\'kept\')',
	qr/may be missing.*max_worker_processes/s, 'and in the warning of who waits for it');
fails_with($node, 'SELECT stream_sync(\'100ms\')', '57014', qr/DETAIL:[^\n]*max_worker_processes/s, 'also in the error of stream_sync');
reconfigure($node, 'max_worker_processes = 24');
wait_for_capture($node);
is(sql($node, 'SELECT last_error IS NULL, status FROM stream_tables WHERE table_name = \'kept\''), 't|streaming', 'all is well when there is one');
folds_to_table($node, 'kept');

#
# Two that track at once: each waits for its own snapshot (for a second at most), so its next row is a version of its own
#
sql($node, 'CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)');
my $session = $node->background_psql('postgres');
$session->query_safe('SET client_min_messages = warning');
for my $round (1 .. 10)
{
	# the stream with the lower number commits last
	$session->query_safe('BEGIN; SELECT stream_track(\'a\');');
	sql($node, 'SELECT stream_track(\'b\')');
	my $began = time;
	$session->query_safe('COMMIT;');
	my $in_vain = time - $began >= 1;
	$session->query_safe("INSERT INTO a VALUES ($round);");
	sync($node);
	my $own = sql($node, "SELECT count(*) FROM stream_changes('a') AS c, stream_tables AS t WHERE t.table_name = 'a' AND (row_data ->> 'id')::int = $round AND _commit_version = t.first_version + 1");
	$session->query_safe('SELECT stream_untrack(\'a\'), stream_untrack(\'b\');');
	if ($own != 1 && !$in_vain) { fail("round $round: the row inserted after stream_track is no version of its own"); last }
	pass('the row inserted after the later of two commits is a version of its own, ten times') if $round == 10;
}
$session->quit;

$node->stop;
done_testing();
