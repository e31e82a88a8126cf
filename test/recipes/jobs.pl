# Continuous jobs and their sinks.  Jobs are started in the steps, or, where all has to be one batch, by what is expected.
use strict;
use warnings;

# true as soon as the query is; false after a minute
my $patient = q{
CREATE FUNCTION patient(query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	result boolean;
BEGIN
	FOR i IN 1..600 LOOP
		EXECUTE query INTO result;
		EXIT WHEN result;
		PERFORM pg_sleep(0.1);
	END LOOP;
	RETURN result;
END $$;};

[
	{
		number => '48',
		title => 'a sink with an identity column GENERATED ALWAYS, and a generated one',
		setup => q{
CREATE TABLE sink(id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text, g text GENERATED ALWAYS AS (name || '!') STORED);
CREATE TABLE t(id int PRIMARY KEY, name text, g text);},
		steps => [
			q{SELECT stream_start('n48', 't', sink => 'sink', sink_mode => 'apply')},
			q{INSERT INTO t VALUES (5,'x','ignored')},
			'cut',
			q{INSERT INTO t VALUES (6,'y',NULL); UPDATE t SET name = 'z' WHERE id = 6},
		],
		expect => [ [ q{SELECT stream_process_all_available('n48', '2 min'); SELECT string_agg(sink::text, ' ' ORDER BY id) FROM sink; SELECT stream_stop('n48')}, "\n(5,x,x!) (6,z,z!)\n" ] ],
	},
	{
		number => '156c',
		title => 'a mirror kept by net changes',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v int); CREATE TABLE sink(id int PRIMARY KEY, v int)',
		steps => [
			q{SELECT stream_start('n156c', 't', sink => 'sink', sink_mode => 'apply', options => '{"deduplicationMode": "netChanges"}')},
			'INSERT INTO t VALUES (1,1); UPDATE t SET v = 2; UPDATE t SET v = 3; DELETE FROM t; INSERT INTO t VALUES (1,4)',
			'cut',
			'INSERT INTO t VALUES (2,1); DELETE FROM t WHERE id = 2',
		],
		expect => [ [ q{SELECT stream_process_all_available('n156c', '2 min'); SELECT string_agg(sink::text, ' ') FROM sink; SELECT stream_stop('n156c')}, "\n(1,4)\n" ] ],
	},
	{
		number => '158c',
		title => 'a job takes every commit of a moment',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v int)',
		steps => [
			q{SELECT stream_start('n158c', 't', sink => 'sink', options => '{"computeUpdates": true}')},
			q{DO $$ BEGIN FOR i IN 1..150 LOOP INSERT INTO t VALUES (i, 0); COMMIT; UPDATE t SET v = 1 WHERE id = i; COMMIT; END LOOP; END $$},
			'cut',
			q{DO $$ BEGIN FOR i IN 151..300 LOOP INSERT INTO t VALUES (i, 0); COMMIT; UPDATE t SET v = 1 WHERE id = i; COMMIT; END LOOP; END $$},
		],
		expect => [
			[ q{SELECT stream_process_all_available('n158c', '2 min');
				SELECT count(*) FILTER (WHERE _change_type = 'insert'), count(*) FILTER (WHERE _change_type = 'update_postimage'), count(DISTINCT (_commit_version, _change_type)) FROM sink;
				SELECT stream_stop('n158c')}, "\n300|300|900\n", 'once each' ],
		],
	},
	{
		number => '159c',
		title => 'net changes of one batch',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v int)',
		steps => [ 'INSERT INTO t VALUES (1,1); UPDATE t SET v = 2; UPDATE t SET v = 3', 'INSERT INTO t VALUES (2,1); DELETE FROM t WHERE id = 2' ],
		expect => [
			[ q{SELECT stream_start('n159c', 't', sink => 'sink', trigger => 'availableNow', options => '{"deduplicationMode": "netChanges"}') IS NOT NULL;
				SELECT stream_await_termination('n159c', '2 min'); SELECT _change_type, _commit_version, id, v FROM sink}, "t\nt\ninsert|3|1|3" ],
		],
	},
	{
		number => '165c',
		title => 'a mirror with a unique column whose values move between rows',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v text); CREATE TABLE sink(id int PRIMARY KEY, v text, UNIQUE (v))',
		steps => [
			q{SELECT stream_start('n165c', 't', sink => 'sink', sink_mode => 'apply')},
			q{BEGIN; INSERT INTO t VALUES (1,'a'),(2,'b'); UPDATE t SET v = 'c' WHERE id = 1; UPDATE t SET v = 'a' WHERE id = 2; UPDATE t SET id = 3 WHERE id = 1; COMMIT},
			'cut',
			q{BEGIN; DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (4, 'a'); COMMIT; UPDATE t SET v = v || '+'},
		],
		expect => [ [ q{SELECT stream_process_all_available('n165c', '2 min'); SELECT string_agg(sink::text, ' ' ORDER BY id) FROM sink; SELECT stream_stop('n165c')}, "\n(3,c+) (4,a+)\n" ] ],
	},
	{
		number => '167',
		title => 'a sink that refuses a row',
		setup => $patient . 'CREATE TABLE t(id int PRIMARY KEY); CREATE TABLE sink(id int PRIMARY KEY, CHECK (id < 100))',
		steps => [
			q{SELECT stream_start('n167', 't', sink => 'sink', sink_mode => 'apply')},
			'INSERT INTO t VALUES (1),(500),(2)',
			'cut',
			'INSERT INTO t VALUES (3)',
		],
		expect => [
			[ q{SELECT patient($$SELECT last_error LIKE '%sink_id_check%' FROM stream_queries WHERE query_name = 'n167'$$)}, 't', 'the error is in the view' ],
			[ q{SELECT count(*) FROM sink}, 0, 'a batch is written completely or not at all' ],
			[ q{ALTER TABLE sink DROP CONSTRAINT sink_id_check; SELECT patient($$SELECT count(*) = 4 FROM sink$$); SELECT string_agg(id::text, ' ' ORDER BY id) FROM sink; SELECT stream_stop('n167')},
				"t\n1 2 3 500\n", 'when it is mended, the next try goes on there' ],
		],
	},
]
