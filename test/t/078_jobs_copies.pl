# Queries in copies of the whole cluster: a standby, where nothing runs; the same promoted, and a restore to an earlier point in time,
# where they go on from what is true there, whatever state the directory holds.  Of a tracked table nothing is captured there any
# more, and its queries say so.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('primary', streaming => 1, conf => "streamcdc.max_restarts = 1\n");
$node->enable_archiving;
start_extension($node);
# the change log has what was done to rows, in the order of its versions
sql($node, <<'SQL');
CREATE TABLE acc (id int PRIMARY KEY, v int);
CREATE TABLE feed (_change_type text, _commit_version bigint, _commit_timestamp timestamptz, id int, v int, changed_in bigint);
CREATE TABLE rows (id int PRIMARY KEY, v int, changed_in bigint);
CREATE FUNCTION put(id int, v int) RETURNS void LANGUAGE sql AS $$
	WITH c AS (SELECT coalesce(max(_commit_version), 0) + 1 AS version FROM feed),
		old AS (INSERT INTO feed SELECT 'delete', c.version, timestamptz '2020-01-01' + c.version * interval '1 s', r.* FROM rows AS r, c WHERE r.id = put.id)
	INSERT INTO feed SELECT 'insert', c.version, timestamptz '2020-01-01' + c.version * interval '1 s', put.id, put.v, c.version FROM c;
	INSERT INTO rows SELECT f.id, f.v, f.changed_in FROM feed AS f WHERE f.id = put.id ORDER BY f._commit_version DESC, f._change_type DESC LIMIT 1
	ON CONFLICT (id) DO UPDATE SET v = excluded.v, changed_in = excluded.changed_in;
$$;
SELECT stream_register_changelog('feed', true, true, true, '{id}', 'changed_in');
SQL
track($node, ['acc']);
sql($node, <<'SQL');
SELECT stream_start('mirror', 'feed', sink => 'mirror_sink', sink_mode => 'apply', options => '{"deduplicationMode": "netChanges"}');
SELECT stream_start('late', 'feed', sink => 'late_sink', options => '{"computeUpdates": true}');
SELECT stream_start('waits', 'feed', sink => 'waits_sink', options => '{"computeUpdates": true, "noDataMicroBatchesEnabled": false, "maxVersionsPerTrigger": 1}');
SELECT stream_start('tracked', 'acc', sink => 'tracked_sink', options => '{"deduplicationMode": "netChanges", "noDataMicroBatchesEnabled": false}');
SQL
my @queries = qw(mirror late waits tracked);

# some versions, whose rows come back in later ones
sub put
{
	my ($n, $first) = @_;
	sql($n, join '', map { my $id = $_ % 7; "SELECT put($id, $first + $_);\n" } 1 .. 20);
}

sub done
{
	my ($n, @which) = @_;
	sql($n, "SELECT stream_process_all_available('$_', '120 s')") for @which;
}

# three tests: the sinks are what the change log comes to
sub all_there
{
	my ($n, $where) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $changes = "SELECT (row_data).id, (row_data).v, (row_data).changed_in, _change_type, _commit_version FROM stream_changes(NULL::feed, compute_updates => true)";
	my $sink = 'SELECT id, v, changed_in, _change_type, _commit_version FROM %s';
	my $difference = 'SELECT count(*) FROM ((%1$s EXCEPT ALL %2$s) UNION ALL (%2$s EXCEPT ALL %1$s)) AS x';

	done($n, qw(mirror late waits));
	is(sql($n, sprintf($difference, 'SELECT id, v, changed_in FROM mirror_sink', 'TABLE rows')), 0, "$where: the mirror is what the change log comes to");
	is(sql($n, sprintf($difference, sprintf($sink, 'late_sink'), $changes)), 0, "$where: each change was appended once");
	# the newest one waits
	my $newest = 'WHERE _commit_version < (SELECT max(_commit_version) FROM feed)';
	is(sql($n, sprintf($difference, sprintf($sink, 'waits_sink'), "$changes $newest")), 0, "$where: but for the last one, also where it waits");
}

sub jobs { return sql($_[0], "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'streamcdc job'") }

sub state_of { return $_[0]->data_dir . '/streamcdc' }

# what is below a directory, and when it was changed
sub listing
{
	my ($dir) = @_;
	return scalar(`cd '$dir' && find . -printf '%p %s %T@\\n' | sort`);
}

sql($node, 'INSERT INTO acc VALUES (1, 1), (2, 2)');
put($node, 100);
done($node, @queries);
$node->backup('backup');
put($node, 200);
all_there($node, 'before');

# ---- a standby ----

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
my $listing = listing(state_of($standby));
$standby->start;
put($node, 300);
$node->wait_for_catchup($standby);
is(jobs($standby), 0, 'no query runs on a standby');
is(sql($standby, "SELECT count(*), min(query_name) FROM stream_queries"), '4|late', 'they are listed');
fails_with($standby, "SELECT $_", '25006', qr/cannot|read-only|recovery/, "$_ there")
  for q{stream_stop('late')}, q{stream_resume('late')}, q{stream_drop('late')}, q{stream_start('new', 'feed', foreach_batch => 'SELECT 1')};
is(listing(state_of($standby)), $listing, 'nor is its state touched');

# ---- promoted ----

$standby->promote;
sql($standby, 'INSERT INTO acc VALUES (3, 3)');
put($standby, 400);
all_there($standby, 'promoted');
wait_for($standby, "status = 'failed' FROM stream_queries WHERE query_name = 'tracked'", 'a query over a tracked table has failed there')
  or diag(sql($standby, 'SELECT query_name, status, last_error FROM stream_queries'));
note(sql($standby, "SELECT last_error FROM stream_queries WHERE query_name = 'tracked'"));
is(sql($standby, "SELECT count(*) FROM (SELECT id FROM tracked_sink GROUP BY id, _commit_version, _change_type HAVING count(*) > 1) AS x"), 0, 'without writing anything twice');

sql($node, 'INSERT INTO acc VALUES (4, 4)');
put($node, 500);
all_there($node, 'the primary');
is(sql($node, "SELECT count(*) FROM stream_queries WHERE status = 'running'"), 4, 'where all of them go on');

# ---- restored to an earlier point ----

put($node, 600);
done($node, @queries);
my $version = sql($node, "SELECT max(_commit_version), pg_create_restore_point('point') IS NULL FROM feed");
put($node, 700);
done($node, @queries);
sql($node, 'SELECT pg_switch_wal()');
$node->stop;

for my $what ('of the backup', 'from after that point', 'of the promoted standby')
{
	(my $name = "restored $what") =~ tr/ /_/;
	my $restored = PostgreSQL::Test::Cluster->new($name);

	$restored->init_from_backup($node, 'backup', has_restoring => 1);
	$restored->append_conf('postgresql.conf', "recovery_target_name = 'point'\nrecovery_target_action = 'promote'\n");
	my $from = $what =~ /promoted/ ? $standby : $what =~ /after/ ? $node : undef;
	if ($from)
	{
		$from->stop if $from == $standby;
		system('rm', '-rf', state_of($restored));
		system('cp', '-a', state_of($from), state_of($restored)) == 0 or die 'could not copy state';
	}
	$restored->start;
	$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'recovery did not end';
	is(sql($restored, 'SELECT max(_commit_version), false FROM feed'), $version, "restored, with the state $what");
	all_there($restored, "restored, with the state $what");
	put($restored, 800);
	all_there($restored, 'and later');
	$restored->stop;
}

done_testing();
