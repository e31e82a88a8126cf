# Recipes about whole servers: settings, restarts, standbys, upgrades, dumps.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use Recipes;
use StreamCdc;

#
# 140. wal_level
#
once('140', 'wal_level is not logical', sub {
	my $node = new_node('wal_level', conf => "wal_level = replica\n");
	$node->start;
	sql($node, 'CREATE EXTENSION streamcdc; CREATE TABLE t(id int PRIMARY KEY)');
	fails_with($node, q{SELECT stream_track('t')}, '55000', qr/wal_level.*logical/s, 'the call that needs it says so');
	is_clean($node, 't', 'refused');
	reconfigure($node, "wal_level = logical\n");
	track($node, ['t']);
	sql($node, 'INSERT INTO t VALUES (1)');
	folds_to_table($node, 't');

	# lowered while something is tracked: the server does not start, as with any logical slot
	$node->append_conf('postgresql.conf', "wal_level = replica\n");
	$node->stop;
	my $from = -s $node->logfile;
	ok(!$node->start(fail_ok => 1), 'with a slot the server does not start');
	like(substr(slurp_file($node->logfile), $from), qr/logical replication slot "streamcdc_\d+" exists, but wal_level < logical/, 'and says why');
	$node->append_conf('postgresql.conf', "wal_level = logical\n");
	$node->start;
	# without anybody's doing, also when its worker is killed on the way
	wait_for_capture($node);
	crash_with_worker($node);
	sql($node, 'INSERT INTO t VALUES (2)');
	wait_for_capture($node);
	folds_to_table($node, 't');
	$node->stop;
});

#
# 141. No worker is free
#
once('141', 'max_worker_processes is too small', sub {
	my $node = new_node('workers');
	start_extension($node);
	sql($node, 'CREATE TABLE t(id int PRIMARY KEY); CREATE TABLE u(id int PRIMARY KEY)');
	track($node, ['t']);
	my $from = -s $node->logfile;

	# taken by the launchers, ours and the server's
	reconfigure($node, "max_worker_processes = 2\n");
	sql($node, 'INSERT INTO t VALUES (1)');
	wait_for($node, q{last_error ~ 'max_worker_processes' FROM stream_tables WHERE table_name = 't'}, 'the view names the setting');
	# a worker may become free at any time, so they wait as long as ever
	warns_with($node, q{SET streamcdc.read_timeout = '300ms'; SELECT * FROM stream_changes('t')}, qr/max_worker_processes/, 'a read warns, and names it');
	fails_with($node, q{SELECT stream_sync('300 ms')}, '57014', qr/max_worker_processes/, 'so does stream_sync');
	fails_with($node, q{SELECT stream_track('u')}, '53400', qr/max_worker_processes/, 'and stream_track');
	# everybody asks for a worker again and again
	sql($node, join(' ', map { "INSERT INTO t VALUES ($_);" } 2 .. 200));
	fails_with($node, q{SELECT stream_sync('1 s')}, '57014', qr/max_worker_processes/, 'still') for 1 .. 3;
	my $said = substr(slurp_file($node->logfile), $from);
	my @lines = $said =~ /LOG: .*(?:worker|capture).*(?:free|start|max_worker)/g;
	cmp_ok(scalar @lines, '<=', 3, 'the log is not filled: one line for each change of state') or diag(join("\n", @lines));
	is(sql($node, 'SELECT pg_total_relation_size(oid) < 100000 FROM pg_class WHERE oid = \'streamcdc.positions\'::regclass'), 't', 'nor a table');

	reconfigure($node, "max_worker_processes = 8\n");
	wait_for_capture($node);
	is(status($node, 't'), 'streaming', 'with a worker capture goes on by itself');
	folds_to_table($node, 't');
	versions_are_dense($node, 't');
	$node->stop;
});

#
# 105. The slot is lost
#
for my $mode (qw(paused killed))
{
	once('105', "$mode: the slot exceeds max_slot_wal_keep_size", sub {
		my $node = new_node("lost_$mode", conf => "max_wal_size = 32MB\nmin_wal_size = 32MB\nlog_min_messages = log\n");
		start_extension($node);
		sql($node, 'CREATE TABLE t(id int PRIMARY KEY); CREATE TABLE busy(i int, v text)');
		track($node, ['t']);
		sql($node, 'INSERT INTO t VALUES (0)');
		sync($node);
		sql($node, q{ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'; SELECT pg_reload_conf()});
		my $pid = signal_worker($node, 'STOP');
		sql($node, q{INSERT INTO busy SELECT g, repeat('x',500) FROM generate_series(1,40000) g; SELECT pg_switch_wal(); INSERT INTO busy SELECT g, repeat('x',500) FROM generate_series(1,40000) g});
		sql($node, 'INSERT INTO t VALUES (1)');
		my $from = -s $node->logfile;
		if ($mode eq 'killed')
		{
			# the checkpoint after recovery gives the slot up; who comes next is a new worker
			kill 'KILL', $pid;
			$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'the server did not restart';
			sql($node, 'SELECT pg_switch_wal(); CHECKPOINT');
		}
		else
		{
			# a checkpoint asks the worker to let go, and waits for it
			my $checkpoint = background_sql($node, 'SELECT pg_switch_wal(); CHECKPOINT');
			$node->wait_for_log(qr/terminating process $pid to release replication slot/);
			kill 'CONT', $pid;
			my ($ok, $out, $err) = finish_sql($checkpoint);
			ok($ok, 'the checkpoint ends') or diag($err);
		}
		wait_for_status($node, 't', 'gap');
		like(sql($node, q{SELECT last_error FROM stream_tables WHERE table_name = 't'}), qr/max_slot_wal_keep_size/, 'the view says why');
		fails_with($node, q{SELECT * FROM stream_changes('t')}, '55000', qr/max_slot_wal_keep_size/, 'reads across the gap fail, and say why');
		is(sql($node, q{SELECT string_agg(row_data->>'id', ' ') FROM stream_changes('t', 0, 1)}), 0, 'what is before it is readable');
		wait_for($node, q{NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'streamcdc capture')}, 'no worker runs');
		sql($node, "INSERT INTO t VALUES ($_)") for 2 .. 5;
		my $said = substr(slurp_file($node->logfile), $from);
		my @starts = $said =~ /capture of database \d+ has started/g;
		cmp_ok(scalar @starts, '<=', 1, 'nor is one started again and again');
		sql($node, q{SELECT stream_untrack('t')});
		track($node, ['t']);
		folds_to_table($node, 't');
		$node->stop;
	});
}

#
# 116. A standby
#
once('116', 'calls on a standby', sub {
	my $node = new_node('primary', streaming => 1, conf => "wal_level = logical\n");
	start_extension($node);
	sql($node, 'CREATE TABLE t(id int PRIMARY KEY); CREATE TABLE t2(id int PRIMARY KEY); INSERT INTO t VALUES (1)');
	track($node, ['t']);
	$node->backup('copy');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'copy', has_streaming => 1);
	$standby->start;
	is(sql($standby, 'SELECT pg_is_in_recovery()'), 't', 'it is one');

	my $catch_up = sub { $node->wait_for_catchup($standby, 'replay', $node->lsn('insert')) };
	my $read = q{SELECT string_agg(row_data->>'id', ' ') FROM stream_changes('t')};
	# capture on the primary is held, and then killed: the standby has what has been captured
	my $pid = signal_worker($node, 'STOP');
	sql($node, 'INSERT INTO t VALUES (2)');
	$catch_up->();
	is(sql($standby, $read), 1, 'capture is held: what was captured is read, without waiting');
	kill 'CONT', $pid;
	crash_with_worker($node);
	wait_for_capture($node);
	sql($node, 'INSERT INTO t VALUES (3)');
	sync($node);
	$catch_up->();
	is(sql($standby, $read), '1 2 3', 'and later the rest');
	is(sql($standby, 'SELECT table_name, status FROM stream_tables'), 't|streaming', 'the view works');
	fails_with($standby, $_, '25006', qr/recovery/, "refused: $_") for q{SELECT stream_track('t2')}, q{SELECT stream_untrack('t')}, 'SELECT stream_sync()';
	is(sql($standby, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'streamcdc%'}), 0, 'no worker runs');
	unlike(slurp_file($standby->logfile), qr/streamcdc (launcher|capture)/, 'nor was one started');
	$standby->stop;
	$node->stop;
});

#
# 121. Dump and restore
#
once('121', 'pg_dump and pg_restore', sub {
	my $node = new_node('dump');
	start_extension($node);
	sql($node, q{CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (1,'a'); CREATE TABLE u(a int); INSERT INTO u VALUES (1)});
	track($node, [qw(t u)]);
	sql($node, q{UPDATE t SET v = 'b'; DROP TABLE u; CREATE TABLE u(a int); INSERT INTO u VALUES (2); SELECT stream_track('u')});
	sync($node);
	my $file = PostgreSQL::Test::Utils::tempdir() . '/dump';
	my $whole = "$file.whole";
	my $schema = "$file.schema";

	# held and killed: a dump is a read, and asks nobody
	my $pid = signal_worker($node, 'STOP');
	$node->command_ok([ 'pg_dump', '-Fc', '-f', $whole, '-d', $node->connstr('postgres') ], 'dumped while capture is held');
	kill 'CONT', $pid;
	signal_worker($node, 'TERM');
	$node->command_ok([ 'pg_dump', '-s', '-f', $schema, '-d', $node->connstr('postgres') ], 'schema only');

	sql($node, 'CREATE DATABASE r TEMPLATE template0; CREATE DATABASE r2 TEMPLATE template0; CREATE DATABASE r3 TEMPLATE template0');
	my $restore = sub {
		my ($db, $what, @options) = @_;
		$node->command_ok([ 'pg_restore', '-e', '-d', $node->connstr($db), @options, $whole ], $what);
	};
	$restore->('r', 'restored');
	$node->command_ok([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('r2'), '-f', $schema ], 'the schema restored by psql');
	$restore->('r2', 'then the data', '-a');
	# as pg_restore does it with -1, and in parallel
	$restore->('r3', 'in one transaction', '-1');
	for my $db (qw(r r2 r3))
	{
		is(sql($node, 'SELECT (SELECT string_agg(t::text, \',\') FROM t), (SELECT string_agg(u::text, \',\') FROM u)', $db), '(1,b)|(2)', "$db: the rows");
		is(sql($node, "SELECT count(*) FROM pg_stat_activity WHERE datname = '$db' AND backend_type LIKE 'streamcdc%'"), 0, "$db: nothing runs");
		is(sql($node, 'SELECT count(*) FROM pg_replication_slots WHERE database = current_database()', $db), 0, "$db: there is no slot");
	}
	is(sql($node, q{SELECT string_agg(table_name || ' ' || status, ', ' ORDER BY table_name) FROM stream_tables}, 'r'), 't inert, u inert',
		'the streams are listed, and inert');
	sql($node, q{SELECT stream_track('t')}, 'r');
	sql($node, q{INSERT INTO t VALUES (2, 'c')}, 'r');
	sync($node, 'r');
	is(sql($node, q{SELECT string_agg(row_data->>'v', ' ') FROM stream_changes('t')}, 'r'), 'b c', 'tracked there, each row is reported once');
	folds_to_table($node, 't', 'r');

	# the one that was dumped goes on
	sql($node, q{INSERT INTO t VALUES (3, 'd')});
	wait_for_capture($node);
	folds_to_table($node, 't');
	$node->stop;
});

#
# 118, 119. pg_upgrade (to the same version: there is no other here)
#
once('118', 'pg_upgrade', sub {
	my $old = new_node('old');
	my $new = new_node('new');
	start_extension($old);
	sql($old, q{CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (1,'a'); CREATE TABLE u(a int)});
	track($old, [qw(t u)]);
	sql($old, q{UPDATE t SET v = 'b'; INSERT INTO u VALUES (1)});
	# it does not matter whether capture got to it
	my $pid = signal_worker($old, 'STOP');
	sql($old, q{INSERT INTO u VALUES (2)});
	kill 'CONT', $pid;
	signal_worker($old, 'KILL');
	$old->poll_query_until('postgres', 'SELECT true');
	sql($old, q{UPDATE t SET v = 'c'});
	my $last = sql($old, q{SELECT stream_latest_version('t')});
	$old->stop;

	my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
	chdir PostgreSQL::Test::Utils::tempdir();
	my @upgrade = ('pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $bindir, '-B', $bindir, '-s', $new->host,
		'-p', $old->port, '-P', $new->port);
	command_ok([ @upgrade, '--check' ], 'pg_upgrade --check');
	command_ok([@upgrade], 'pg_upgrade');
	my $during = join('', map { slurp_file($_) } glob($new->data_dir . '/pg_upgrade_output.d/*/log/*server*.log'));
	unlike($during, qr/streamcdc (launcher|capture)|capture of database/, 'no worker ran meanwhile');

	$new->start;
	is(sql($new, q{SELECT string_agg(table_name || ' ' || status, ', ' ORDER BY table_name) FROM stream_tables}), 't inert, u inert', 'the streams are there, and inert');
	is(sql($new, q{SELECT count(*) FROM pg_replication_slots}), 0, 'no slot is');
	is(sql($new, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'streamcdc capture'}), 0, 'nothing runs');
	fails_with($new, q{SELECT * FROM stream_changes('t')}, '55000', qr/not captured in this database.*stream_track/s, 'reads say what is to be done');

	# 119: going on is one call
	sql($new, q{INSERT INTO t VALUES (2,'d')});
	track($new, ['t']);
	sql($new, q{INSERT INTO t VALUES (3,'e')});
	sync($new);
	my $first = sql($new, q{SELECT first_version FROM stream_tables WHERE table_name = 't'});
	cmp_ok($first, '>', $last, '119: tracked again, versions go on');
	is(sql($new, q{SELECT string_agg(row_data->>'v', ' ' ORDER BY _commit_version, row_data->>'id') FROM stream_changes('t')}), 'c d e', '119: with a baseline of what is there');
	folds_to_table($new, 't');
	$new->stop;
});

done_testing();
