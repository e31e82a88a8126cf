# The log says what the server's own decoding says.
#
# A second slot with test_decoding stands beside capture while pgbench writes.
# Afterwards both have the same transactions in the same order with the same
# values, and the log folds to each table.  Some tables are tracked before the
# load begins, others in the middle of it.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $versions = $ENV{STREAMCDC_TEST_VERSIONS} // 200;

my $node = new_node('twin');
start_extension($node);
run_log([ 'pgbench', '-i', '-q', '-h', $node->host, '-p', $node->port, 'postgres' ]) or die 'pgbench -i failed';
sql($node, workload_tables('') . workload_tables('_late'));

my @early = qw(pgbench_accounts pgbench_tellers pgbench_branches pgbench_history keyed unkeyed toasted);
my @late = qw(keyed_late unkeyed_late toasted_late);

twin_slot($node);
track($node, \@early);

my $load = start_pgbench($node, [ workload_script(''), workload_script('_late') ], 3600, '-b', 'tpcb-like');
# in the middle: each has been written
for my $written ('keyed_late WHERE note = \'upsert\'', 'unkeyed_late WHERE c LIKE \'multi%\'', 'toasted_late WHERE n > 0')
{
	$node->poll_query_until('postgres', "SELECT count(*) > 1 FROM $written") or die "there is no row in $written";
}
sql($node, "SELECT stream_track('$_')") for @late;
$node->poll_query_until('postgres', "SELECT bool_and(last_version >= $versions) FROM stream_tables") or die 'the load does not go on';
stop_load($load);
is($load->{err}, '', 'pgbench met no error');
sync($node);

cmp_ok(sql($node, "SELECT count(*) FROM stream_versions('keyed')"), '>', 100, 'there was something to compare');
twin_equals($node, since_twin => \@early, later => \@late);
for my $table (@early, @late)
{
	versions_are_dense($node, $table);
	timestamps_increase($node, $table);
	folds_to_table($node, $table);
}

# an update of another column carries the toasted value that it did not write
is(sql($node, <<'SQL'), 't', 'new images have every column, toasted ones that were not written included');
SELECT bool_and(new_row ? 'id' AND new_row ? 'n' AND new_row ? 'other' AND length(new_row ->> 'big') > 2000)
FROM stream_events('toasted') WHERE event = 'update'
SQL
cmp_ok(sql($node, <<'SQL'), '>', 0, 'and there were such updates');
SELECT count(*) FROM stream_events('toasted') WHERE event = 'update' AND new_row ->> 'big' = old_row ->> 'big'
SQL
is(sql($node, <<'SQL'), 't', 'versions of several tables with one xid are one transaction');
SELECT count(*) > 0 AND bool_and(a.commit_lsn = b.commit_lsn AND a.commit_time = b.commit_time)
FROM stream_versions('pgbench_accounts') AS a JOIN stream_versions('pgbench_history') AS b USING (xid) WHERE a._commit_version > 0
SQL

$node->stop;
done_testing();
