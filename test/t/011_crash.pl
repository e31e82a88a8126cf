# Nothing is lost, and nothing is there twice, when the capture worker is
# killed in the middle of its work, or the server is stopped without notice.
#
# A killed worker restarts the server, so the load is started again each time.
# The twin slot is read at the very end only: its own position survives a
# crash as of the last checkpoint, so that it would repeat what was read.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $versions = $ENV{STREAMCDC_TEST_VERSIONS} // 200;

my $node = new_node('crash');
start_extension($node);
sql($node, workload_tables(''));
my @tables = qw(keyed unkeyed toasted);
twin_slot($node);
track($node, \@tables);

# some transactions have been committed since the load began: counted in the log, which is what is to be disturbed
sub load_and
{
	my ($what) = @_;
	my $before = sql($node, "SELECT last_version FROM stream_tables WHERE table_name = 'keyed'");
	# longer than it takes to get there; it is ended by what is done
	my $load = start_pgbench($node, [ workload_script('') ], 3600);

	$node->poll_query_until('postgres',
		"SELECT last_version > $before + $versions FROM stream_tables WHERE table_name = 'keyed'")
	  or die 'nothing is captured';
	$what->($load);
	finish_pgbench($load);
	return $load->{err};
}

for my $round (1 .. 5)
{
	isnt(load_and(sub { crash_with_worker($node) }), '', "round $round: the server restarted under the load");
	wait_for_capture($node);
	pass("round $round: capture goes on by itself");
	if ($round == 3)
	{
		load_and(sub { $node->stop('immediate') });
		$node->start;
		wait_for_capture($node);
		pass('capture goes on after an immediate shutdown');
	}
}

# and undisturbed to the end, since the last crash may have hidden something
is(load_and(sub { stop_load($_[0]) }), '', 'pgbench met no error');
sync($node);

twin_equals($node, since_twin => \@tables);
for my $table (@tables)
{
	versions_are_dense($node, $table);
	timestamps_increase($node, $table);
	folds_to_table($node, $table);
	is(status($node, $table), 'streaming', "$table is streaming");
}
is(slots($node), 1, 'there is still one slot');
is(sql($node, 'SELECT count(*) FROM pg_stat_activity WHERE backend_type = \'streamcdc capture\''),
	1, 'and one worker');

# crashes of a worker that has nothing to do, and before it has come back
crash_with_worker($node, 'launcher');
wait_for_capture($node);
is(sql($node, "SELECT count(*) - count(DISTINCT _commit_version) FROM stream_versions('keyed')"),
	0, 'nothing is there twice after a crash while idle');

# kill -9 of the postmaster
sql($node, "INSERT INTO keyed VALUES (-1, 1, 'before the end', NULL, NULL)");
kill_server($node);
$node->start;
wait_for_capture($node);
is(sql($node, "SELECT count(*) FROM stream_events('keyed') WHERE new_row ->> 'note' = 'before the end' AND event = 'insert'"),
	1, 'what was committed before the postmaster was killed is there, once');
versions_are_dense($node, 'keyed');
folds_to_table($node, 'keyed');

$node->stop;
done_testing();
