# Recipes about whole databases and what goes on beside capture: each plain, with the worker killed in the middle, and with it
# held until the end (test/lib/Recipes.pm says what that is for).
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use Recipes;
use StreamCdc;

# how long load runs; minutes in the reports
my $seconds = $ENV{STREAMCDC_RECIPE_SECONDS} // 1;

my $node = new_node('recipes', conf => "max_connections = 100\n");
$node->start;

#
# 93. Databases of different encodings
#
in_modes('93', 'databases of different encodings', sub {
	my ($mode) = @_;
	sql($node, "CREATE DATABASE la ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0; CREATE DATABASE utf");
	my $utf8 = 'SET client_encoding = \'UTF8\';';
	for my $db (qw(la utf))
	{
		sql($node, 'CREATE EXTENSION streamcdc', $db);
		sql($node, qq{$utf8 CREATE TABLE "Größe"(id int PRIMARY KEY, "Straße" text); SELECT stream_track('"Größe"')}, $db);
		sync($node, $db);
	}
	my @held = map { hold($node, $mode, $_) } qw(la utf);
	sql($node, qq{$utf8 INSERT INTO "Größe" VALUES (1,'Ärger')}, $_) for qw(la utf);
	kill_in_the_middle($node, $mode, $_) for qw(la utf);
	sql($node, qq{$utf8 ALTER TABLE "Größe" RENAME "Straße" TO "Maß"; UPDATE "Größe" SET "Maß" = 'Öl'}, $_) for qw(la utf);
	go_on(@held);
	for my $db (qw(la utf))
	{
		sync($node, $db);
		is(sql($node, qq{$utf8 SELECT string_agg(row_data::text, ' ') FROM stream_changes('"Größe"')}, $db),
			'{"id": 1, "Straße": "Ärger"} {"id": 1, "Maß": "Ärger"} {"id": 1, "Maß": "Öl"}', "$db: values and names");
		is(sql($node, qq{$utf8 SELECT (row_data)."Maß" FROM stream_changes(NULL::"Größe", 2) WHERE _change_type = 'insert'}, $db), 'Öl', "$db: typed");
		is(sql($node, "$utf8 SELECT table_name, status FROM stream_tables", $db), '"Größe"|streaming', "$db: the view");
		fails_with($node, qq{$utf8 CREATE TABLE "Größer"(i int); SELECT * FROM stream_changes('"Größer"')}, '0A000', qr/Größer/, "$db: messages",
			db => $db);
	}
	sql($node, 'DROP DATABASE la; DROP DATABASE utf');
});

#
# 94. Names of databases
#
in_modes('94', 'a database with capitals in its name, and one that folds to the same', sub {
	my ($mode) = @_;
	my @dbs = ('Test_DB-1', 'test_db-1');
	for my $db (@dbs)
	{
		sql($node, qq{CREATE DATABASE "$db"});
		sql($node, q{CREATE EXTENSION streamcdc; CREATE TABLE "MyTable"("Id" int PRIMARY KEY, "select" text, "a b" text); SELECT stream_track('"MyTable"')}, $db);
		sync($node, $db);
	}
	my @held = map { hold($node, $mode, $_) } @dbs;
	sql($node, q{INSERT INTO "MyTable" VALUES (1,'x','y')}, $_) for @dbs;
	kill_in_the_middle($node, $mode, $_) for @dbs;
	sql($node, q{UPDATE "MyTable" SET "a b" = current_database()}, $_) for @dbs;
	go_on(@held);
	for my $db (@dbs)
	{
		sync($node, $db);
		is(sql($node, q{SELECT string_agg(row_data->>'a b', ',') FROM stream_changes('"MyTable"') WHERE _change_type = 'insert'}, $db), "y,$db", "$db is captured");
	}
	is(sql($node, q{SELECT count(DISTINCT slot_name), bool_and(slot_name ~ '^[a-z0-9_]{1,63}$') FROM pg_replication_slots}), '2|t', 'slots have names of their own');
	sql($node, qq{DROP DATABASE "$_"}) for @dbs;
});

start_extension($node);

#
# 100. Nothing is written to what is tracked
#
in_modes('100', 'the slot moves on with other activity', sub {
	my ($mode) = @_;
	sql($node, 'CREATE TABLE t(id int PRIMARY KEY); CREATE TABLE busy(i int, v text)');
	track($node, ['t']);
	my $slot = slot_name($node);
	my @held = hold($node, $mode);
	sql($node, q{INSERT INTO busy SELECT g, repeat('x',200) FROM generate_series(1,100000) g});
	kill_in_the_middle($node, $mode);
	sql($node, q{INSERT INTO busy SELECT g, repeat('x',200) FROM generate_series(1,100000) g});
	go_on(@held);
	wait_for($node, qq{pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn) < 17 * 1024 * 1024 FROM pg_replication_slots WHERE slot_name = '$slot'},
		'it is confirmed, but for less than a segment');
	is(sql($node, q{SELECT count(*) FROM stream_changes('t')}), 0, 'though nothing was written');
	sql($node, q{SELECT stream_untrack('t'); DROP TABLE t, busy});
});

#
# 103. Set-up that is rolled back
#
in_modes('103', 'stream_track in a transaction that is rolled back', sub {
	my ($mode) = @_;
	# anew, so that there is no trace of streams of before
	sql($node, 'DROP EXTENSION streamcdc; CREATE EXTENSION streamcdc; CREATE TABLE t(id int PRIMARY KEY)');
	wait_for_no_capture($node, 'nothing is tracked');
	my $session = $node->background_psql('postgres');
	my $quiet = 'SET client_min_messages = warning;';

	for my $again (1, 2)
	{
		$session->query_safe("$quiet BEGIN; SELECT stream_track('t'); INSERT INTO t VALUES (1);");
		my @held = hold($node, $mode);
		kill_in_the_middle($node, $mode) if $again == 1;
		$session->query_safe('ROLLBACK;');
		go_on(@held);
		is_clean($node, 't', "rolled back, $again");
	}
	# with the extension itself
	sql($node, 'DROP EXTENSION streamcdc');
	$session->query_safe("$quiet BEGIN; CREATE EXTENSION streamcdc; CREATE TABLE t2(id int PRIMARY KEY); SELECT stream_track('t2');");
	my @held = hold($node, $mode);
	kill_in_the_middle($node, $mode);
	$session->query_safe('ROLLBACK;');
	$session->quit;
	go_on(@held);
	wait_for_no_capture($node, 'with the extension: nothing is left');
	is(sql($node, q{SELECT to_regnamespace('streamcdc') IS NULL, to_regclass('t2') IS NULL}), 't|t', 'nor is it there');
	# and one that commits
	@held = ();
	sql($node, q{BEGIN; CREATE EXTENSION streamcdc; SELECT stream_track('t'); INSERT INTO t VALUES (1); COMMIT});
	@held = hold($node, $mode);
	sql($node, 'INSERT INTO t VALUES (2)');
	kill_in_the_middle($node, $mode);
	go_on(@held);
	sync($node);
	# what is committed before the snapshot of the baseline is part of that
	my $in_baseline = sql($node, q{SELECT count(*) FROM stream_changes('t', starting_version => 0, ending_version => 0)});
	ok($in_baseline == 1 || $in_baseline == 2, "a baseline of $in_baseline");
	sql($node, 'INSERT INTO t VALUES (3)');
	is(sql($node, q{SELECT string_agg(concat_ws(' ', _commit_version, row_data->>'id'), ', ') FROM stream_changes('t')}),
		$in_baseline == 1 ? '0 1, 1 2, 2 3' : '0 1, 0 2, 1 3',
		'committed with the extension, it is tracked');
	sql($node, q{SELECT stream_untrack('t'); DROP TABLE t});
});

#
# 108. What is left behind
#
in_modes('108', 'no slot is left', sub {
	my ($mode) = @_;
	for my $end (q{SELECT stream_untrack('t')}, 'DROP TABLE t', 'DROP EXTENSION streamcdc', 'DROP SCHEMA s CASCADE')
	{
		sql($node, 'CREATE EXTENSION IF NOT EXISTS streamcdc; CREATE SCHEMA s; CREATE TABLE s.t(id int PRIMARY KEY); CREATE TABLE IF NOT EXISTS t(id int PRIMARY KEY)');
		my $table = $end =~ /SCHEMA/ ? 's.t' : 't';
		track($node, [$table]);
		my @held = hold($node, $mode);
		sql($node, "INSERT INTO $table VALUES (1)");
		kill_in_the_middle($node, $mode);
		# while capture is held it may have to wait
		my $job = background_sql($node, "SET statement_timeout = '${\ $PostgreSQL::Test::Utils::timeout_default}s'; $end");
		go_on(@held);
		my ($ok, $out, $err) = finish_sql($job);
		ok($ok, $end) or diag($err);
		wait_for_no_capture($node, "$end: no worker, slot or label");
		is(sql($node, 'SELECT count(*) FROM pg_publication'), 0, "$end: no publication");
		sql($node, 'DROP TABLE IF EXISTS t; DROP SCHEMA IF EXISTS s CASCADE; CREATE EXTENSION IF NOT EXISTS streamcdc');
	}
});

#
# 109. One slot is enough
#
in_modes('109', 'a hundred tables, one slot; and none that is free', sub {
	my ($mode) = @_;
	sql($node, 'DROP EXTENSION streamcdc; CREATE EXTENSION streamcdc');
	wait_for_no_capture($node, 'nothing is tracked');
	sql($node, q{SELECT pg_create_physical_replication_slot('s' || g)
		FROM generate_series(1, current_setting('max_replication_slots')::int - (SELECT count(*)::int FROM pg_replication_slots)) g});
	sql($node, 'CREATE TABLE t(id int PRIMARY KEY)');
	fails_with($node, q{SELECT stream_track('t')}, '53400', qr/max_replication_slots/, 'no slot is free');
	is_clean($node, 't', 'no slot is free');
	sql($node, q{SELECT pg_drop_replication_slot('s1')});
	sql($node, join(' ', map { "CREATE TABLE many_$_(id int PRIMARY KEY);" } 1 .. 100));
	track($node, [ map { "many_$_" } 1 .. 50 ]);
	my @held = hold($node, $mode);
	sql($node, join(' ', map { "INSERT INTO many_$_ VALUES (1);" } 1 .. 50));
	kill_in_the_middle($node, $mode);
	# the first of them waits for whoever takes the snapshot, at most a second
	sql($node, 'BEGIN; ' . join(' ', map { "SELECT stream_track('many_$_');" } 51 .. 100) . ' COMMIT');
	sql($node, 'BEGIN; ' . join(' ', map { "INSERT INTO many_$_ VALUES (2);" } 1 .. 100) . ' COMMIT');
	go_on(@held);
	sync($node);
	is(slots($node), 1, 'one slot');
	is(sql($node, q{SELECT sum((SELECT count(*) FROM stream_changes(table_name))) FROM stream_tables}), 150, 'all are captured');
	is(sql($node, q{SELECT count(DISTINCT v.xid), count(*) FROM stream_tables t, stream_versions(t.table_name, t.last_version) v WHERE inserts = 1 AND t.table_name ~ '_([1-9]|[1-4]\d|50)$'}),
		'1|50', 'the last transaction is one version of each');
	sql($node, q{SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_type = 'physical'; DROP TABLE t;} . join(' ', map { "DROP TABLE many_$_;" } 1 .. 100));
	wait_for_no_capture($node, 'and none when they are gone');
});

#
# 129. Commands that every process has to take note of
#
in_modes('129', 'DROP DATABASE and others while capture is busy', sub {
	my ($mode) = @_;
	sql($node, 'CREATE TABLE t(id int PRIMARY KEY, v text)');
	track($node, ['t']);
	# a stopped process could not take note of anything; one that waits for a lock can
	my $holder;
	if ($mode eq 'paused')
	{
		$holder = $node->background_psql('postgres');
		$holder->query_safe('BEGIN; LOCK TABLE streamcdc.blocks IN SHARE MODE;');
	}
	sql($node, q{INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 100000) g});
	wait_for_lock_of_worker($node, 'streamcdc.blocks') if $holder;
	kill_in_the_middle($node, $mode);
	my $limit = "SET statement_timeout = '30s';";
	sql($node, 'CREATE DATABASE victim');
	sql($node, "$limit DROP DATABASE victim");
	sql($node, "$limit CREATE DATABASE copy1 TEMPLATE template1; DROP DATABASE copy1");
	sql($node, "$limit ALTER TABLESPACE pg_default SET (random_page_cost = 4)");
	pass('they do not wait for the worker');
	if ($holder)
	{
		$holder->query_safe('ROLLBACK;');
		$holder->quit;
	}
	sync($node);
	is(sql($node, q{SELECT count(*) FROM stream_changes('t')}), 100000, 'nor does it miss anything');
	sql($node, q{SELECT stream_untrack('t'); DROP TABLE t});
});

#
# 153. A table that is written while tracking begins
#
in_modes('153', 'the baseline and what follows it are joined without a seam', sub {
	my ($mode) = @_;
	# with a table that is tracked already, and, the second time, with a slot that is only being made
	for my $first (0, 1)
	{
		sql($node, 'CREATE TABLE t(id serial PRIMARY KEY, v int); CREATE TABLE other(id int PRIMARY KEY)');
		track($node, ['other']) unless $first;
		my @held = $first ? () : hold($node, $mode);
		my $load = start_pgbench($node, ["INSERT INTO t(v) VALUES (1);\n", "UPDATE t SET v = v + 1 WHERE id = (SELECT max(id) - 10 FROM t);\n", "BEGIN;\nDELETE FROM t WHERE id = (SELECT min(id) FROM t);\nINSERT INTO t(v) VALUES (2);\nCOMMIT;\n"],
			$seconds);
		$node->poll_query_until('postgres', 'SELECT count(*) > 100 FROM t') or die 'no load';
		sql($node, q{SELECT stream_track('t')});
		kill_in_the_middle($node, $mode);
		my ($ok, $output) = finish_pgbench($load);
		ok($ok, 'the load does not mind') or diag($output);
		go_on(@held);
		sync($node);
		folds_to_table($node, 't');
		versions_are_dense($node, 't');
		sql($node, q{SELECT stream_untrack('t'); DROP TABLE t});
		sql($node, q{SELECT stream_untrack('other')}) unless $first;
		sql($node, 'DROP TABLE other');
	}
});

#
# 124. A worker that is ended again and again
#
once('124', 'restarts of the worker under load', sub {
	sql($node, workload_tables('_n124'));
	my @tables = map { "${_}_n124" } qw(keyed unkeyed toasted);
	track($node, \@tables);
	my $load = start_pgbench($node, [ workload_script('_n124') ], 2 * $seconds, '-c', '8');
	my $ended = 0;
	while ($load->{run}->pumpable)
	{
		$load->{run}->pump_nb;
		$ended += sql($node, q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'streamcdc capture'});
	}
	my ($ok, $output) = finish_pgbench($load);
	ok($ok, 'the load does not mind') or diag($output);
	cmp_ok($ended, '>=', 5, 'it was ended often');
	wait_for_capture($node);
	for my $table (@tables)
	{
		versions_are_dense($node, $table);
		folds_to_table($node, $table);
	}
	sql($node, join(' ', map { "DROP TABLE $_;" } @tables));
});

#
# 127. Ended while busy, with signals that end one process
#
once('127', 'workers are ended while they are busy, and nobody else is', sub {
	sql($node, q{CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t SELECT g, repeat('x',200) FROM generate_series(1,50000) g});
	my $session = $node->background_psql('postgres');
	my $started = $session->query_safe('SELECT pg_postmaster_start_time();');
	my $settings = q{SET client_min_messages = warning;};
	for my $n (1 .. ($ENV{STREAMCDC_RECIPE_REPEATS} // 6))
	{
		sql($node, q{SELECT stream_track('t')});
		sql($node, q{UPDATE t SET v = v || '.' WHERE id % 5 = 0});
		# whichever are there, by the way that a user has, or by the operating system's
		sql($node, $n % 2 ? q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type IN ('streamcdc capture', 'streamcdc baseline')}
			: q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type IN ('streamcdc capture', 'streamcdc baseline')});
		sql($node, q{SELECT stream_untrack('t')}) if $n % 3;
		sql($node, q{SELECT stream_untrack('t') FROM stream_tables WHERE table_name = 't'}) unless $n % 3;
	}
	sql($node, q{SELECT stream_track('t')});
	sync($node);
	folds_to_table($node, 't');
	is($session->query_safe('SELECT pg_postmaster_start_time();'), $started, 'a session that was there is still, and so is the server');
	unlike(slurp_file($node->logfile), qr/terminating any other active server processes/, 'no process of ours is killed');
	$session->quit;
	sql($node, q{SELECT stream_untrack('t'); DROP TABLE t});
});

#
# 127. The same of jobs
#
once('127', 'jobs are stopped and ended while they are busy', sub {
	sql($node, q{CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t SELECT g, repeat('x',200) FROM generate_series(1,50000) g});
	track($node, ['t']);
	my $session = $node->background_psql('postgres');
	my $started = $session->query_safe('SELECT pg_postmaster_start_time();');
	my $start = q{SELECT stream_start('busy', 't', sink => 'copy_of_t', sink_mode => 'apply', options => '{"deduplicationMode": "netChanges"}')};
	for my $n (1 .. ($ENV{STREAMCDC_RECIPE_REPEATS} // 6))
	{
		sql($node, $n == 1 ? $start : q{SELECT stream_resume('busy') FROM stream_queries WHERE query_name = 'busy' AND status = 'stopped'});
		sql($node, q{UPDATE t SET v = v || '.' WHERE id % 5 = 0});
		sql($node, $n % 2 ? q{SELECT stream_stop('busy')} : q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'streamcdc job'});
	}
	sql($node, q{SELECT stream_resume('busy') FROM stream_queries WHERE query_name = 'busy' AND status = 'stopped'});
	sql($node, q{SELECT stream_process_all_available('busy', '3 min')});
	is(sql($node, 'SELECT count(*) FROM ((TABLE t EXCEPT ALL TABLE copy_of_t) UNION ALL (TABLE copy_of_t EXCEPT ALL TABLE t)) AS x'), 0, 'the sink is the source');
	is($session->query_safe('SELECT pg_postmaster_start_time();'), $started, 'nobody else was disturbed');
	$session->quit;
	sql($node, q{SELECT stream_stop('busy'); SELECT stream_drop('busy'); SELECT stream_untrack('t'); DROP TABLE t, copy_of_t});
});

#
# 131. DROP EXTENSION under load
#
once('131', 'DROP EXTENSION and CREATE EXTENSION under load', sub {
	wait_for_no_capture($node, 'nothing is tracked');
	sql($node, 'CREATE TABLE t(id int PRIMARY KEY, v int); INSERT INTO t SELECT g,0 FROM generate_series(1,1000) g; CREATE TABLE u(LIKE t INCLUDING ALL)');
	track($node, [qw(t u)]);
	my $log = -s $node->logfile;
	my $load = start_pgbench($node, ["\\set id random(1, 1000)\nUPDATE t SET v = v + 1 WHERE id = :id;\n", "\\set id random(1, 1000000)\nINSERT INTO u VALUES (:id, 1) ON CONFLICT DO NOTHING;\n"],
		2 * $seconds);
	my $times = 0;
	while ($load->{run}->pumpable)
	{
		$load->{run}->pump_nb;
		sql($node, q{SET statement_timeout = '60s'; DROP EXTENSION streamcdc CASCADE; CREATE EXTENSION streamcdc; SELECT stream_track('t'); SELECT stream_track('u')});
		if (++$times % 3 == 1)
		{
			# killed while it is on its way in or out
			sql($node, q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type IN ('streamcdc capture', 'streamcdc baseline')});
		}
	}
	my ($ok, $output) = finish_pgbench($load);
	ok($ok, 'the load does not mind') or diag($output);
	cmp_ok($times, '>=', 3, 'often');
	wait_for_capture($node);
	for my $table (qw(t u))
	{
		folds_to_table($node, $table);
		versions_are_dense($node, $table);
	}
	my $said = substr(slurp_file($node->logfile), $log);
	unlike($said, qr/deadlock|does not exist|cache lookup/, 'no deadlock, and no error about what is gone');
	sql($node, 'DROP EXTENSION streamcdc; CREATE EXTENSION streamcdc; DROP TABLE t, u');
	wait_for_no_capture($node, 'no slot is left');
});

#
# 52. Memory
#
once('52', 'memory does not grow with the number of transactions', sub {
	sql($node, 'CREATE TABLE t(id int PRIMARY KEY, v int); INSERT INTO t SELECT g,0 FROM generate_series(1,100) g');
	track($node, ['t']);
	my $pid = worker_pid($node);
	my $transactions = $ENV{STREAMCDC_RECIPE_TRANSACTIONS} // 4000;
	my $script = PostgreSQL::Test::Utils::tempdir() . '/script';
	append_to_file($script, <<'SCRIPT');
\set id random(1, 100)
\set k random(1, 10)
UPDATE t SET v = v + 1 WHERE id = :id;
\if :k = 1
BEGIN;
CREATE TEMP TABLE w(i int) ON COMMIT DROP;
INSERT INTO w VALUES (1);
COMMIT;
\endif
SCRIPT
	my $load = sub {
		my ($n) = @_;
		# so many, not so long; a tenth of them with a temporary table
		run_command([ 'pgbench', '-n', '-c', '4', '-t', $n / 4, '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ]);
		sync($node);
		slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m or die 'no RssAnon';
		return $1;
	};
	my @kb = map { $load->($transactions) } 1 .. 3;
	is(worker_pid($node), $pid, 'one worker did it all');
	is(sql($node, 'SELECT sum(v) FROM t'), 3 * $transactions, 'the load was there');
	# a leak of 1 kB for each transaction would be 4 MB a round
	cmp_ok($kb[2] - $kb[1], '<', 2048, "it has @kb kB after each round");
	folds_to_table($node, 't');
});

$node->stop;
done_testing();
