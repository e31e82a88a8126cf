# Queries over a table whose baseline is being copied: however they are triggered, they begin with its rows, and who waits for
# them waits for these, too.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('jobs_baseline');
start_extension($node);

sql($node, 'CREATE TABLE src (id int PRIMARY KEY); INSERT INTO src VALUES (1), (2)');
my $holder = $node->background_psql('postgres', on_error_stop => 1);
$holder->query_safe('BEGIN; LOCK TABLE streamcdc.schemas IN SHARE MODE');
sql($node, q{SELECT stream_track('src')});
wait_for_lock_of_worker($node, 'streamcdc.schemas', 'baseline');

my %trigger = (once => 'once', available => 'availableNow', interval => '0 seconds', seconds => '1 second');
sql($node, "SELECT stream_start('$_', 'src', sink => '$_', trigger => '$trigger{$_}')") for sort keys %trigger;
my @waiting = map { background_sql($node, "SELECT stream_process_all_available('$_', '120 s')") } qw(interval seconds);
wait_for($node, "count(*) = 4 FROM pg_stat_activity WHERE backend_type = 'streamcdc job' AND query = 'waiting for the baseline'",
	'all of them wait for the baseline');
fails_with($node, q{SELECT stream_process_all_available('interval', '10 ms')}, '57014', qr/has not processed all in time/, 'there is something to wait for');
is(sql($node, q{SELECT count(*) FROM stream_queries WHERE status <> 'running' OR batch_id IS NOT NULL}), 0, 'none has done anything');
$holder->query_safe('COMMIT');
$holder->quit;
sql($node, "SELECT stream_await_termination('$_', '120 s')") for qw(once available);
ok((finish_sql($_))[0], 'whoever waits for all is told') for @waiting;
is(sql($node, "SELECT string_agg(id::text, ' ' ORDER BY id) FROM \"$_\""), '1 2', "trigger $trigger{$_}: the rows of the baseline")
  for sort keys %trigger;

# ---- a table that somebody holds ----

# it is locked before the worker can lock it, and does not keep others waiting
sql($node, 'CREATE TABLE held (id int PRIMARY KEY); INSERT INTO held VALUES (1); CREATE TABLE free (id int PRIMARY KEY); INSERT INTO free VALUES (1)');
my $tracker = $node->background_psql('postgres', on_error_stop => 1);
$tracker->query_safe('SET client_min_messages = warning; BEGIN');
$tracker->query_safe(q{SELECT stream_track('held')});
$holder = $node->background_psql('postgres', on_error_stop => 1);
$holder->query_until(qr/locking/, "BEGIN;\n\\echo locking\nLOCK TABLE held;\n");
$node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'held'::regclass)}) or die 'nobody waits for the table';
$tracker->query_safe('COMMIT');
$tracker->quit;
wait_for($node, q{last_error ~ 'locked by another session' FROM stream_tables WHERE table_name = 'held'}, 'a table that is locked says so');
sql($node, q{SELECT stream_track('free'); SELECT stream_start('free', 'free', sink => 'free_sink')});
sql($node, q{SELECT stream_process_all_available('free', '120 s')});
is(sql($node, 'SELECT id FROM free_sink'), '1', 'another has its baseline');
is(status($node, 'held'), 'baseline', 'before that one');
$holder->query_safe('COMMIT');
$holder->quit;
sql($node, q{SELECT stream_start('held', 'held', sink => 'held_sink'); SELECT stream_process_all_available('held', '120 s')});
is(sql($node, 'SELECT id FROM held_sink'), '1', 'which comes when the lock is gone');
is(sql($node, q{SELECT count(*) FROM stream_tables WHERE last_error IS NOT NULL}), '0', 'and nothing is wrong any more');

$node->stop;
done_testing();
