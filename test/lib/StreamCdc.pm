# What the TAP tests of streamcdc have in common.
#
#   use lib "$FindBin::RealBin/../lib";
#   use StreamCdc;
#
# A $node is a PostgreSQL::Test::Cluster.  Functions that compare run one test
# (or the number said beside them); the others die if what they do fails.
package StreamCdc;

use strict;
use warnings;

use Exporter 'import';
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin . '/../lib';
use StreamCdc::Oracle qw(
  dense_differences timestamp_differences fold_difference event_moves change_moves
  twin_history stream_segments twin_differences
);

our @EXPORT = qw(
  new_node reconfigure start_extension
  sql fails_with warns_with background_sql finish_sql
  track sync wait_for status wait_for_status wait_for_capture wait_for_no_capture is_clean
  slot_name slots worker_pid signal_worker incarnation wait_for_restart crash_with_worker kill_server wait_for_lock_of_worker
  debug_point
  versions_are_dense timestamps_increase folds_to_table changes_fold_to_table
  workload_tables workload_script start_pgbench finish_pgbench start_load stop_load query_works
  twin_slot twin_equals
);

my $support = "$FindBin::RealBin/../support";
my $timeout = $PostgreSQL::Test::Utils::timeout_default;

# A psql that is refused while the server starts again may leave before its query was written to it, and for the module's own
# loop that is the end.
{
	no warnings 'redefine';
	my $poll = \&PostgreSQL::Test::Cluster::poll_query_until;
	*PostgreSQL::Test::Cluster::poll_query_until = sub {
		for (1 .. 100)
		{
			my $result = eval { $poll->(@_) };
			return $result if $@ eq '';
			die $@ unless $@ =~ /Broken pipe/;
		}
		die 'psql leaves again and again before it has read its query';
	};
}

# ---- servers ----

# new_node NAME, conf => TEXT, streaming => BOOL: initialised with the settings of all tests, not started
sub new_node
{
	my ($name, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(allows_streaming => $params{streaming} ? 1 : 0, extra => [ '--encoding=UTF8', '--locale=C.UTF-8' ]);
	$node->append_conf('postgresql.conf', slurp_file("$support/postgresql.conf"));
	# the module's own defaults suit other tests: a killed worker has to be survived, and a log of all statements slows
	# pgbench down
	$node->append_conf('postgresql.conf', <<'CONF');
restart_after_crash = on
log_statement = none
log_min_messages = warning
autovacuum = off
shared_buffers = 64MB
max_connections = 50
CONF
	$node->append_conf('postgresql.conf', $params{conf}) if defined $params{conf};
	return $node;
}

# reconfigure NODE, CONF: with these settings after a restart
sub reconfigure
{
	my ($node, $conf) = @_;
	$node->append_conf('postgresql.conf', $conf);
	$node->restart;
}

# start_extension NODE, DATABASE...: starts the server if it does not run; the extension in each database
sub start_extension
{
	my ($node, @databases) = @_;
	@databases = ('postgres') unless @databases;

	$node->start unless -f $node->data_dir . '/postmaster.pid';
	for my $db (@databases)
	{
		$node->safe_psql('postgres', "CREATE DATABASE $db") unless $db eq 'postgres';
		$node->safe_psql($db, 'CREATE EXTENSION streamcdc');
	}
}

# ---- commands ----

# sql NODE, TEXT [, DATABASE]: what psql prints; NOTICEs are not shown
sub sql
{
	my ($node, $text, $db) = @_;
	return $node->safe_psql($db // 'postgres', "SET client_min_messages = warning;\n$text");
}

# fails_with NODE, TEXT, SQLSTATE, PATTERN, TEST [, db => , user => ]: the whole of the message is matched, hint included
sub fails_with
{
	my ($node, $text, $sqlstate, $pattern, $test, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $db = $params{db} // 'postgres';
	my ($status, $out, $err) = $node->psql($db, "SET client_min_messages = warning;\n$text",
		extra_params => [ '-v', 'VERBOSITY=verbose', $params{user} ? ('-U', $params{user}) : () ]);

	my $ok = $status != 0 && $err =~ /ERROR:  \Q$sqlstate\E: / && $err =~ $pattern;
	ok($ok, $test)
	  or diag("expected ERROR $sqlstate matching $pattern of:\n$text\ngot status $status\n$err$out");
	return $ok;
}

# warns_with NODE, TEXT, PATTERN, TEST: succeeds, with a WARNING; returns what it printed
sub warns_with
{
	my ($node, $text, $pattern, $test, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($status, $out, $err) = $node->psql($params{db} // 'postgres', "SET client_min_messages = warning;\n$text");

	ok($status == 0 && $err =~ /^(psql:\S+ )?WARNING:.*$pattern/s, $test)
	  or diag("expected a WARNING matching $pattern, got status $status\n$err");
	return $out;
}

# background_sql NODE, TEXT [, DATABASE]: psql that goes on while we do something else
sub background_sql
{
	my ($node, $text, $db) = @_;
	my %job = (out => '', err => '');
	# a file, since a pipe would have to be pumped
	my $file = PostgreSQL::Test::Utils::tempdir() . '/commands.sql';
	append_to_file($file, "SET client_min_messages = warning;\n$text");
	$job{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($db // 'postgres'), '-f', $file ],
		'<', \undef, '>', \$job{out}, '2>', \$job{err}, IPC::Run::timeout($timeout));
	return \%job;
}

# finish_sql JOB: waits for it; (succeeded, output, errors)
sub finish_sql
{
	my ($job) = @_;
	my $ok = $job->{run}->finish;
	chomp $job->{out};
	return ($ok, $job->{out}, $job->{err});
}

# ---- tracking ----

sub sync
{
	my ($node, $db) = @_;
	sql($node, "SELECT stream_sync('$timeout s')", $db);
}

# track NODE, TABLES (reference) [, DATABASE]: tracks them, and waits until their baselines are there
sub track
{
	my ($node, $tables, $db) = @_;
	sql($node, join("\n", map { "SELECT stream_track('$_');" } @$tables), $db);
	sync($node, $db);
}

# wait_for NODE, CONDITION, TEST [, DATABASE]: one test; polls
sub wait_for
{
	my ($node, $condition, $test, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until($db // 'postgres', "SELECT $condition"), $test);
}

sub status
{
	my ($node, $table, $db) = @_;
	return sql($node, "SELECT status FROM stream_tables WHERE table_name = '$table'", $db);
}

sub wait_for_status
{
	my ($node, $table, $status, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "'$status' = (SELECT status FROM stream_tables WHERE table_name = '$table')",
		"$table is $status", $db);
}

# the capture worker of the database runs and reads
sub wait_for_capture
{
	my ($node, $db) = @_;
	$db //= 'postgres';
	$node->poll_query_until('postgres', _capture_is_there($db)) or die "capture did not start";
	sync($node, $db);
}

sub _capture_is_there
{
	my ($db) = @_;
	return "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'streamcdc capture' AND datname = '$db'";
}

# one test: worker, slot and label are gone
sub wait_for_no_capture
{
	my ($node, $test, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$db //= 'postgres';
	return wait_for($node, _nothing_left($db), $test);
}

sub _nothing_left
{
	my ($db) = @_;
	return <<"SQL";
	NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type IN ('streamcdc capture', 'streamcdc baseline') AND datname = '$db')
	AND NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name LIKE 'streamcdc%' AND database = '$db')
	AND NOT EXISTS (SELECT FROM pg_shseclabel s, pg_database d
					WHERE s.provider = 'streamcdc' AND s.objoid = d.oid AND d.datname = '$db')
SQL
}

# one test: a call that failed has left nothing: no worker, slot, label or stream, and the table is as it was
sub is_clean
{
	my ($node, $table, $test, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$db //= 'postgres';
	wait_for($node, _nothing_left($db), "$test: no worker, slot or label is left", $db);
	is(sql($node, <<"SQL", $db), 't', "$test: no stream, and the table is as it was");
SELECT NOT EXISTS (SELECT FROM streamcdc.streams) AND NOT EXISTS (SELECT FROM streamcdc.registry)
   AND NOT EXISTS (SELECT FROM streamcdc.slots)
   AND 'd' = (SELECT relreplident FROM pg_class WHERE oid = '$table'::regclass)
SQL
}

sub slot_name
{
	my ($node, $db) = @_;
	return sql($node, "SELECT 'streamcdc_' || oid FROM pg_database WHERE datname = current_database()", $db);
}

# number of our slots in the cluster
sub slots
{
	my ($node) = @_;
	return sql($node, "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'streamcdc%'");
}

# ---- workers ----

# worker_pid NODE [, KIND [, DATABASE]]: of the capture worker, unless told otherwise; waits for it
sub worker_pid
{
	my ($node, $kind, $db) = @_;
	my $type = 'streamcdc ' . ($kind // 'capture');
	my $which = "backend_type = '$type'" . ($type =~ /launcher/ ? '' : " AND datname = '" . ($db // 'postgres') . "'");

	$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_stat_activity WHERE $which")
	  or die "there is no $type";
	return sql($node, "SELECT pid FROM pg_stat_activity WHERE $which LIMIT 1");
}

# signal_worker NODE, SIGNAL [, KIND [, DATABASE]]: returns the pid
sub signal_worker
{
	my ($node, $signal, $kind, $db) = @_;
	my $pid = worker_pid($node, $kind, $db);
	kill($signal, $pid) == 1 or die "could not send SIG$signal to $pid";
	return $pid;
}

# what the server is now: another after each restart
my $checkpointer = "SELECT max(pid) FROM pg_stat_activity WHERE backend_type = 'checkpointer'";

sub incarnation
{
	my ($node) = @_;
	return sql($node, $checkpointer);
}

sub wait_for_restart
{
	my ($node, $before) = @_;
	$node->poll_query_until('postgres', "SELECT ($checkpointer) <> $before") or die "the server did not restart";
}

# crash_with_worker NODE [, KIND [, DATABASE]]: kills it with SIGKILL; returns when the server has restarted
sub crash_with_worker
{
	my ($node, $kind, $db) = @_;
	my $before = incarnation($node);

	signal_worker($node, 'KILL', $kind, $db);
	wait_for_restart($node, $before);
}

# kills the postmaster with SIGKILL; returns when its children are gone too, before which it cannot be started again
sub kill_server
{
	my ($node) = @_;
	my @pids = split /\n/, sql($node, 'SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()');
	$node->kill9;
	for (1 .. 10 * $timeout)
	{
		@pids = grep { kill 0, $_ } @pids;
		return unless @pids;
		select(undef, undef, undef, 0.1);
	}
	die "these processes outlive the postmaster: @pids";
}

# wait_for_lock_of_worker NODE, RELATION [, KIND [, DATABASE]]: the worker waits for a lock on this relation
sub wait_for_lock_of_worker
{
	my ($node, $relation, $kind, $db) = @_;
	my $type = 'streamcdc ' . ($kind // 'capture');
	$node->poll_query_until($db // 'postgres', <<"SQL") or die "the $type does not wait for $relation";
SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			   WHERE a.backend_type = '$type' AND NOT l.granted AND l.relation = '$relation'::regclass)
SQL
}

# debug_point NODE [, PLACE, ACTION, TAG]: what happens to whoever comes by a place in the code (src/debug.h); nothing without
# a place.  Who starts later knows of it when this returns, and who runs has been told.
sub debug_point
{
	my ($node, @point) = @_;
	my $setting = join ':', @point;
	sql($node, "ALTER SYSTEM SET streamcdc.debug_point = '$setting'; SELECT pg_reload_conf();");
	$node->poll_query_until('postgres', "SELECT current_setting('streamcdc.debug_point') = '$setting'") or die 'the setting does not come';
}

# ---- what a log must be like ----

# SQL in a database, as the oracle wants to ask it
sub _asker
{
	my ($node, $db) = @_;
	return sub { sql($node, $_[0], $db) };
}

# versions_are_dense NODE, TABLE [, FIRST, DATABASE]: from FIRST (default 0) to the latest, each once
sub versions_are_dense
{
	my ($node, $table, $first, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$first //= 0;
	my ($count, @wrong) = dense_differences(_asker($node, $db), $table, $first);
	return ok(!@wrong, "versions of $table are dense from $first ($count of them)");
}

sub timestamps_increase
{
	my ($node, $table, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(join("\n", timestamp_differences(_asker($node, $db), $table)), '', "timestamps of versions of $table are strictly increasing");
}

# Two tests:
#   never: a row is taken away before it was added
#   in the end: what is there is the table
sub _fold
{
	my ($node, $table, $moves, $how, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 2;
	my ($early, $extra, $missing, $row) = fold_difference(_asker($node, $db), $moves, "SELECT whole::text AS r FROM $table AS whole");
	is($early, 0, "$how of $table never take away a row that is not there");
	is("$extra/$missing", '0/0', "$how fold to $table: nothing too much, nothing missing") or diag("one of them: $row");
}

# folds_to_table NODE, TABLE [, DATABASE]: four tests, through stream_events and through stream_changes
sub folds_to_table
{
	my ($node, $table, $db) = @_;
	_fold($node, $table, event_moves($table, "'$table'"), 'events', $db);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	changes_fold_to_table($node, $table, $db);
}

# changes_fold_to_table NODE, TABLE [, DATABASE]: two tests, through stream_changes alone; for tables whose columns were
# renamed or dropped since, which events have under the names of their time
sub changes_fold_to_table
{
	my ($node, $table, $db) = @_;
	_fold($node, $table, change_moves("NULL::$table"), 'changes', $db);
}

# ---- load ----

# workload_tables SUFFIX: SQL that makes the tables of workload_script, with some rows
sub workload_tables
{
	my ($x) = @_;
	return <<"SQL";
CREATE TABLE keyed$x (id int PRIMARY KEY, v int, note text, at timestamp, flag bool);
INSERT INTO keyed$x SELECT i, i, 'row ' || i, '2020-01-01', i % 2 = 0 FROM generate_series(1, 500) AS i;
CREATE TABLE unkeyed$x (a int, b numeric, c text);
CREATE INDEX ON unkeyed$x (a);
INSERT INTO unkeyed$x SELECT i % 100, i / 3.0, repeat('x', i % 7) FROM generate_series(1, 300) AS i;
CREATE TABLE toasted$x (id int PRIMARY KEY, n int, big text, other text);
ALTER TABLE toasted$x ALTER COLUMN big SET STORAGE EXTERNAL, ALTER COLUMN other SET STORAGE EXTERNAL;
INSERT INTO toasted$x SELECT i, 0, repeat(chr(64 + i), 2500 + i), NULL FROM generate_series(1, 20) AS i;
CREATE SEQUENCE fresh$x START 100000;
SQL
}

# workload_script SUFFIX: for pgbench; every kind of change, subtransactions kept and rolled back, transactions rolled back
sub workload_script
{
	my ($x) = @_;
	return <<"SCRIPT";
\\set kind random(1, 20)
\\set id random(1, 500)
\\set other random(1, 500)
\\set a random(0, 99)
\\set t random(1, 20)
\\set n random(1, 1000000)
BEGIN;
INSERT INTO keyed$x VALUES (:id, :n, 'upsert', now()::timestamp, NULL) ON CONFLICT (id) DO UPDATE SET v = keyed$x.v + 1, flag = NOT keyed$x.flag;
SAVEPOINT one;
DELETE FROM keyed$x WHERE id = :other;
UPDATE keyed$x SET v = -v WHERE id BETWEEN :a * 5 AND :a * 5 + 3;
\\if :kind > 10
ROLLBACK TO SAVEPOINT one;
\\else
RELEASE SAVEPOINT one;
\\endif
\\if :kind % 4 = 0
UPDATE keyed$x SET id = nextval('fresh$x'), note = 'it''s "moved" \\ ' || :n WHERE id = :id;
INSERT INTO keyed$x VALUES (:id, 1, NULL, NULL, false) ON CONFLICT DO NOTHING;
DELETE FROM keyed$x WHERE id >= 100000 AND id % 10 = :t % 10;
\\endif
\\if :kind % 3 = 0
INSERT INTO unkeyed$x SELECT :a, i * :n / 7.0, 'multi ' || i FROM generate_series(1, 4) AS i;
\\endif
SAVEPOINT two;
UPDATE unkeyed$x SET b = b + 1, c = NULL WHERE a = :a;
SAVEPOINT three;
DELETE FROM unkeyed$x WHERE a = (:a + 1) % 100;
\\if :kind % 5 = 0
ROLLBACK TO SAVEPOINT two;
\\endif
\\if :kind % 6 = 0
UPDATE toasted$x SET n = n + 1 WHERE id = :t;
\\endif
\\if :kind = 7
UPDATE toasted$x SET other = repeat(md5(:n::text), 80) WHERE id = :t;
\\endif
\\if :kind = 8
UPDATE toasted$x SET big = repeat(md5(:n::text), 90), n = n + 1 WHERE id = :t;
UPDATE toasted$x SET n = n WHERE id = :t;
\\endif
\\if :kind = 9
DELETE FROM toasted$x WHERE id = :t;
INSERT INTO toasted$x VALUES (:t, :n, repeat('again ', 500), 'short') ON CONFLICT DO NOTHING;
\\endif
\\if :kind % 10 = 1
ROLLBACK;
\\else
COMMIT;
\\endif
SCRIPT
}

# start_pgbench NODE, SCRIPTS (reference to texts), SECONDS, OPTIONS...
sub start_pgbench
{
	my ($node, $scripts, $seconds, @options) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my %job = (out => '', err => '');
	my $n = 0;
	for my $script (@$scripts)
	{
		append_to_file("$dir/script" . ++$n, $script);
		push @options, '-f', "$dir/script$n";
	}
	# a deadlock is tried again; what was rolled back then must not be in the log either
	$job{run} = IPC::Run::start(
		[ 'pgbench', '-n', '-c', '4', '-j', '2', '-T', $seconds, '--max-tries=100', @options, '-h', $node->host,
			'-p', $node->port, 'postgres' ],
		'>', \$job{out}, '2>', \$job{err});
	return \%job;
}

# start_load NODE, SCRIPT, OPTION...: pgbench until stop_load, or until the server is gone
sub start_load
{
	my ($node, $script, @options) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/load';
	my %job = (out => '', err => '');

	append_to_file($file, $script);
	$job{run} = IPC::Run::start([ 'pgbench', '-n', '-T', 3600, @options, '-f', $file, $node->connstr('postgres') ],
		'<', \undef, '>', \$job{out}, '2>', \$job{err});
	return \%job;
}

sub stop_load
{
	my ($job) = @_;
	$job->{run}->signal('TERM');
	$job->{run}->finish;
}

# query_works NODE, QUERY, TEST: one test; the streaming query finishes batches
sub query_works
{
	my ($node, $query, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $batch = sql($node, "SELECT coalesce(batch_id, -1) FROM stream_queries WHERE query_name = '$query'");
	return wait_for($node, "batch_id > $batch + 2 FROM stream_queries WHERE query_name = '$query'", $test);
}

# (succeeded, output)
sub finish_pgbench
{
	my ($job) = @_;
	my $ok = $job->{run}->finish;
	return ($ok, $job->{out} . $job->{err});
}

# ---- the twin: what the server's own test_decoding says ----

sub twin_slot
{
	my ($node) = @_;
	sql($node, "SELECT pg_create_logical_replication_slot('twin', 'test_decoding')");
}

# twin_equals NODE, since_twin => [ TABLE... ], later => [ TABLE... ]: the log says what test_decoding says, transaction by
# transaction.  A table that was tracked while it was being written has, as its log, the end of the twin's.
sub twin_equals
{
	my ($node, %tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $ask = _asker($node);
	my %later = map { $_ => 1 } @{ $tables{later} // [] };
	my @all = (@{ $tables{since_twin} }, sort keys %later);
	my %known = map { $_ => $_ } @all;
	my $twin = twin_history($ask, 'twin', sub { $known{ $_[0] } });
	my $segments = stream_segments($ask);
	my @leaks = @{ $twin->{'streamcdc.*'} // [] };

	is(scalar @leaks, 0, 'other consumers of WAL see no row of our tables') or diag(substr($leaks[0], 0, 500));
	for my $table (@all)
	{
		my ($stream, $base) = split /\|/, $ask->("SELECT stream_id, base_version FROM streamcdc.streams WHERE relid = '$table'::regclass AND state = 'l'");
		my $theirs = ($twin->{$table} // [ [] ])->[0];
		my ($nours, $ntheirs, @wrong) = twin_differences($ask, $table, $base, $theirs, $segments->{$stream});

		if ($later{$table}) { cmp_ok($nours, '<', $ntheirs, "$table: tracking began amid $ntheirs events") }
		else { is($nours, $ntheirs, "$table: as many events as test_decoding has") }
		ok($nours > 0 && !@wrong, "$table: the same transactions in the same order, with the same values") or diag(join("\n", @wrong));
	}
}

1;
