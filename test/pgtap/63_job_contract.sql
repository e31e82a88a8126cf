-- What is claimed of streaming queries, where one would not look first: whose session a query is, what its SQL may use, what a
-- second stream_start changes, and the ends of waiting.

SET client_min_messages = warning;
SET TimeZone = 'UTC';

SELECT no_plan();

ALTER SYSTEM SET streamcdc.max_restarts = 0;
SELECT pg_reload_conf() \g /dev/null

\ir include/jobs.sql
\ir include/waiting.sql
\ir include/errors.sql

CREATE TABLE p63_src (id int PRIMARY KEY, v text);
SELECT stream_track('p63_src');
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p63_src VALUES (1, 'a');					-- version 1
CREATE ROLE p63_owner LOGIN;
GRANT ALL ON SCHEMA public TO p63_owner;
GRANT SELECT ON p63_src TO p63_owner;

/*
 * A query is its owner's, whatever role his sessions begin with
 */
CREATE ROLE p63_group;
GRANT p63_group TO p63_owner;
ALTER ROLE p63_owner SET role = 'p63_group';
SET SESSION AUTHORIZATION p63_owner;
SELECT stream_start('p63 role', 'p63_src', sink => 'p63_role', query => 'SELECT id, current_user::text AS who FROM batch') \g /dev/null
RESET SESSION AUTHORIZATION;
SELECT pg_temp.done('p63 role') \g /dev/null
INSERT INTO p63_src VALUES (2, 'b');					-- 2
SELECT pg_temp.done('p63 role') \g /dev/null
SELECT results_eq('SELECT id, who COLLATE "default" FROM p63_role ORDER BY id', $$VALUES (1, 'p63_owner'), (2, 'p63_owner')$$, 'all batches run as the owner');
SELECT stream_drop('p63 role');
ALTER ROLE p63_owner RESET role;

/*
 * A read-only transaction changes no query
 */
SELECT stream_start('p63 kept', 'p63_src', sink => 'p63_kept') \g /dev/null
SET default_transaction_read_only = on;
SELECT is(pg_temp.all_of(c), format('25006 / cannot execute %s() in a read-only transaction', substring(c FROM 'stream_\w+')), c)
FROM unnest(ARRAY['SELECT stream_start(''p63 new'', ''p63_src'', foreach_batch => ''SELECT FROM batch'')', 'SELECT stream_stop(''p63 kept'')', 'SELECT stream_resume(''p63 kept'')',
	'SELECT stream_drop(''p63 kept'')']) AS c;
RESET default_transaction_read_only;
SELECT is(status, 'running', 'it goes on') FROM stream_queries WHERE query_name = 'p63 kept';

/*
 * Nothing temporary: the query runs in another session
 */
CREATE TEMP TABLE p63_temp (id int);
CREATE TEMP VIEW p63_temp_view AS SELECT 1 AS id;
CREATE FUNCTION pg_temp.p63_each(jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION pg_temp.p63_batch(bigint, refcursor) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION pg_temp.p63_plus(int) RETURNS int LANGUAGE sql AS 'SELECT $1 + 1';
CREATE DOMAIN pg_temp.p63_domain AS int;
SELECT matches(pg_temp.all_of(format('SELECT stream_start(''p63 temp'', ''p63_src'', %s)', a)), '^0A000 / ' || e || ' is temporary / A query runs in a session of its own.', a)
FROM (VALUES ($$query => 'SELECT id FROM batch JOIN p63_temp USING (id)', sink => 'p63_t'$$, 'relation "p63_temp"'),
	($$query => 'SELECT id FROM batch WHERE EXISTS (SELECT FROM p63_temp_view)', sink => 'p63_t'$$, 'view "p63_temp_view"'),
	($$query => 'WITH x AS (SELECT pg_temp.p63_plus(id) AS id FROM batch) SELECT * FROM x', sink => 'p63_t'$$, 'function pg_temp_\d+.p63_plus'),
	($$query => 'SELECT id::pg_temp.p63_domain AS id FROM batch', sink => 'p63_t'$$, 'type p63_domain'),
	($$query => 'SELECT NULL::p63_temp AS id FROM batch', sink => 'p63_t'$$, 'type p63_temp'),
	($$foreach => 'pg_temp.p63_each'$$, 'function pg_temp_\d+.p63_each'),
	($$foreach_batch => 'pg_temp.p63_batch'$$, 'function pg_temp_\d+.p63_batch'),
	($$foreach_batch => 'SELECT 1; INSERT INTO p63_temp SELECT id FROM batch'$$, 'relation "p63_temp"')) AS c(a, e);

/*
 * Rights are looked at when a query is started, to the column, not when the first rows come
 */
CREATE TABLE p63_columns (id int, secret int DEFAULT 7);
GRANT INSERT (id), SELECT (id) ON p63_columns TO p63_owner;
CREATE FUNCTION p63_secret(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
REVOKE EXECUTE ON FUNCTION p63_secret FROM PUBLIC;
CREATE FUNCTION p63_read(jsonb) RETURNS void LANGUAGE sql AS '';
SET SESSION AUTHORIZATION p63_owner;
SELECT is(pg_temp.all_of(format('SELECT stream_start(''p63 rights'', ''p63_src'', %s)', a)), '42501 / permission denied for ' || e, a)
FROM (VALUES ($$query => 'SELECT id, 1 AS secret FROM batch', sink => 'p63_columns'$$, 'table p63_columns'),
	($$query => 'SELECT id FROM batch WHERE id IN (SELECT secret FROM p63_columns)', sink => 'p63_t'$$, 'table p63_columns'),
	($$query => 'SELECT p63_secret(id) AS id FROM batch', sink => 'p63_t'$$, 'function p63_secret'),
	($$query => 'SELECT id FROM batch WHERE id IN (SELECT secret FROM p63_columns)', foreach => 'p63_read'$$, 'table p63_columns'),
	($$foreach_batch => 'SELECT 1; UPDATE p63_columns SET id = 1 FROM batch'$$, 'table p63_columns')) AS c(a, e);
SELECT stream_start('p63 rights', 'p63_src', query => 'SELECT id FROM batch WHERE NOT EXISTS (SELECT FROM p63_columns AS c WHERE c.id = batch.id)', sink => 'p63_columns') \g /dev/null
SELECT pg_temp.done('p63 rights') \g /dev/null
SELECT stream_drop('p63 rights');
RESET SESSION AUTHORIZATION;
SELECT results_eq('SELECT DISTINCT secret FROM p63_columns', ARRAY[7], 'what there are rights for is done');

/*
 * A superuser's query runs nothing of an ordinary role, which might become another thing
 */
SET SESSION AUTHORIZATION p63_owner;
CREATE FUNCTION p63_theirs(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION p63_check(int) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE DOMAIN p63_their_domain AS int CHECK (p63_check(value));
CREATE OPERATOR public.### (FUNCTION = p63_theirs, RIGHTARG = int);
CREATE TABLE p63_their_log (id int, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
CREATE VIEW p63_their_view AS TABLE p63_their_log;
SELECT stream_register_changelog('p63_their_log', false, false, false), stream_register_changelog('p63_their_view', false, false, false) \g /dev/null
INSERT INTO p63_their_log VALUES (1, 'insert', 1, '2020-01-01');
RESET SESSION AUTHORIZATION;
CREATE VIEW p63_view AS SELECT id FROM p63_their_view;
SELECT is(pg_temp.all_of(format('SELECT stream_start(''p63 theirs'', %s)', a)),
		  format('42501 / %s does not belong to a superuser / It would run with the rights of superuser "%s". / Start the query as role "p63_owner".', e, current_user), a)
FROM (VALUES ($$'p63_src', query => 'SELECT p63_theirs(id) AS id FROM batch', sink => 'p63_t'$$, 'function public.p63_theirs'),
	($$'p63_src', query => 'SELECT id FROM batch WHERE ### id = 1', sink => 'p63_t'$$, 'function public.p63_theirs'),
	($$'p63_src', query => 'SELECT id::p63_their_domain AS id FROM batch', sink => 'p63_t'$$, 'type p63_their_domain'),
	($$'p63_src', query => 'SELECT b.id FROM batch AS b, p63_view AS v', sink => 'p63_t'$$, 'view "p63_their_view"'),
	($$'p63_src', foreach_batch => 'INSERT INTO p63_kept (id) SELECT p63_theirs(id) FROM batch'$$, 'function public.p63_theirs'),
	($$'p63_their_view', sink => 'p63_t'$$, 'view "p63_their_view"')) AS c(a, e);
SELECT stream_start('p63 their log', 'p63_their_log', sink => 'p63_log_sink') \g /dev/null
SELECT pg_temp.done('p63 their log') \g /dev/null
SELECT results_eq('SELECT id FROM p63_log_sink', ARRAY[1], 'the rows of a table are values');
SELECT stream_drop('p63 their log');
-- nor what comes to belong to one
CREATE FUNCTION p63_ours(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
SELECT stream_start('p63 given', 'p63_src', query => 'SELECT p63_ours(id) AS id FROM batch', sink => 'p63_given') \g /dev/null
SELECT pg_temp.done('p63 given') \g /dev/null
ALTER FUNCTION p63_ours OWNER TO p63_owner;
INSERT INTO p63_src VALUES (3, 'c');					-- 3
SELECT matches(pg_temp.all_of($$SELECT stream_await_termination('p63 given', '180 s')$$), '42501 / query "p63 given" has failed: function public.p63_ours does not belong to a superuser', 'a function that is given away');
-- as the owner it runs
SET SESSION AUTHORIZATION p63_owner;
SELECT stream_start('p63 own', 'p63_their_view', query => 'SELECT p63_theirs(id)::p63_their_domain AS id FROM batch', sink => 'p63_own') \g /dev/null
SELECT pg_temp.done('p63 own') \g /dev/null
SELECT results_eq('SELECT id::int FROM p63_own', ARRAY[1], 'a query uses what belongs to its owner');
SELECT stream_drop('p63 own');
RESET SESSION AUTHORIZATION;

/*
 * Started again, a query is read as the new call means it, and ends where that says
 */
CREATE SCHEMA p63_a CREATE TABLE names (id int, name text);
CREATE SCHEMA p63_b CREATE TABLE names (id int, name text);
INSERT INTO p63_a.names VALUES (1, 'a'), (2, 'a'), (3, 'a');
INSERT INTO p63_b.names VALUES (1, 'b'), (2, 'b'), (3, 'b');
CREATE FUNCTION pg_temp.start_again(path text, options text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('search_path', path || ', public', true);
	PERFORM stream_start('p63 again', 'p63_src', query => 'SELECT id, name FROM batch JOIN names USING (id)', sink => 'public.p63_again', options => options::jsonb);
END $$;
SELECT pg_temp.start_again('p63_a', '{"startingVersion": 1, "endingVersion": 1}');
SELECT ok(stream_await_termination('p63 again', '180 s'), 'it ends with version 1');
SELECT pg_temp.start_again('p63_b', '{"startingVersion": 1, "endingVersion": 3, "endingBoundInclusive": false}');
SELECT ok(stream_await_termination('p63 again', '180 s'), 'then before version 3');
SELECT results_eq('SELECT id, name FROM p63_again ORDER BY id', $$VALUES (1, 'a'), (2, 'b')$$, 'with the tables of the new search_path');
SELECT pg_temp.start_again('p63_b', format('{"startingTimestamp": "2000-01-01", "endingTimestamp": "%s"}', (SELECT max(_commit_timestamp) FROM stream_versions('p63_src') WHERE _commit_version = 3)));
INSERT INTO p63_src VALUES (4, 'd');					-- 4
SELECT ok(stream_await_termination('p63 again', '180 s'), 'by a timestamp');
SELECT pg_temp.start_again('p63_b', '{}');
SELECT pg_temp.done('p63 again') \g /dev/null
SELECT is(status, 'running', 'without an end it goes on') FROM stream_queries WHERE query_name = 'p63 again';
SELECT results_eq('SELECT id, name FROM p63_again ORDER BY id', $$VALUES (1, 'a'), (2, 'b'), (3, 'b')$$, 'and has read each version once');

-- what is no other definition of the query leaves its run alone
SET streamcdc.stop_active_run_on_restart = on;
CREATE TEMP TABLE p63_run AS SELECT run_id FROM stream_queries WHERE query_name = 'p63 again';
SELECT matches(pg_temp.all_of($$SELECT stream_start('p63 again', 'p63_src', query => 'SELECT id FROM batch', sink => 'p63_again')$$), '^55000 / query "p63 again" exists with another "query"', 'another query');
SELECT is(q.run_id, r.run_id, 'does not stop this one') FROM p63_run AS r, stream_queries AS q WHERE query_name = 'p63 again' AND status = 'running';
SELECT pg_temp.start_again('p63_b', '{}');
SELECT isnt(q.run_id, r.run_id, 'the same one does') FROM p63_run AS r, stream_queries AS q WHERE query_name = 'p63 again';
RESET streamcdc.stop_active_run_on_restart;

/*
 * A start after the last version that there can be
 */
SELECT stream_start('p63 last', 'p63_src', sink => 'p63_last', options => '{"startingVersion": 9223372036854775807, "startingBoundInclusive": false}') \g /dev/null
SELECT pg_temp.done('p63 last') \g /dev/null
SELECT results_eq($$SELECT status, start_version, processed_version FROM stream_queries WHERE query_name = 'p63 last'$$, $$VALUES ('running', NULL::bigint, 9223372036854775807)$$, 'is waited for');

/*
 * Raw streams have no watermark; that of a table is one
 */
SELECT stream_start('p63 raw', 'p63_src', sink => 'p63_raw', options => '{"deduplicationMode": "none"}') \g /dev/null
SELECT stream_start('p63 table', 'p63_src', sink => 'p63_table', format => 'table') \g /dev/null
SELECT pg_temp.done('p63 raw', 'p63 table', 'p63 kept') \g /dev/null
SELECT is(watermark IS NULL AND NOT stream_last_progress(query_name) ? 'eventTime', query_name <> 'p63 kept', query_name) FROM stream_queries WHERE query_name IN ('p63 raw', 'p63 table', 'p63 kept');
SELECT is((array(SELECT stream_explain('p63 table')))[1], 'Source: tracked table "p63_src", format "table"', 'stream_explain says what is read');

/*
 * A column that gets another collation is retyped, too
 */
CREATE COLLATION p63_no_case (PROVIDER = icu, LOCALE = 'und-u-ks-level2', DETERMINISTIC = false);
CREATE TABLE p63_keys (id text PRIMARY KEY, n int);
SELECT stream_track('p63_keys');
SELECT stream_start('p63 keys', 'p63_keys', sink => 'p63_net', options => '{"deduplicationMode": "netChanges", "computeUpdates": true, "startingVersion": 1, "noDataMicroBatchesEnabled": false}') \g /dev/null
INSERT INTO p63_keys VALUES ('a', 1);					-- 1
SELECT pg_temp.done('p63 keys') \g /dev/null
ALTER TABLE p63_keys ALTER id TYPE text COLLATE p63_no_case; -- 2: each row has another identity now
UPDATE p63_keys SET id = 'A';							-- 3, of the same one
SELECT matches(pg_temp.all_of($$SELECT stream_await_termination('p63 keys', '180 s')$$), '55000 / query "p63 keys" has failed: columns of source table "p63_keys" have changed at version 2 / The collation of column "id" was changed', 'another collation');
SELECT stream_resume('p63 keys') \g /dev/null
SELECT pg_temp.done('p63 keys') \g /dev/null
INSERT INTO p63_keys VALUES ('b', 1);					-- 4
SELECT pg_temp.done('p63 keys') \g /dev/null
SELECT results_eq('SELECT id COLLATE "default", _change_type, _commit_version FROM p63_net', $$VALUES ('A', 'insert', 3::bigint)$$, 'resumed, it goes by the new identity');

/*
 * Many partitions whose names are cut off; the array type of each has a name of its own, too
 */
CREATE TABLE p63_long (id int PRIMARY KEY, v text);
SELECT stream_track('p63_long');
INSERT INTO p63_long SELECT g, repeat('ä', 30) || 'x' || g FROM generate_series(1, 150) AS g;
CREATE TYPE public."p63_parted_here" AS (id int);
INSERT INTO p63_long VALUES (151, 'here');
SELECT stream_start('p63 parted', 'p63_long', sink => 'p63_parted', partition_by => '{v}') \g /dev/null
SELECT pg_temp.done('p63 parted') \g /dev/null
SELECT is(count(DISTINCT tableoid), 151::bigint, 'as many partitions as values') FROM p63_parted;

/*
 * ForeachWriter: what close raises does not hide why it was called
 */
CREATE FUNCTION p63_each(x jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'row % is bad', x ->> 'id'; END $$;
CREATE FUNCTION p63_each_close(error text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'closed: %', error; END $$;
SELECT stream_start('p63 each', 'p63_src', foreach => 'p63_each') \g /dev/null
SELECT matches(pg_temp.all_of($$SELECT stream_await_termination('p63 each', '180 s')$$), 'P0001 / query "p63 each" has failed: row 1 is bad', 'the error of the row is kept');
CREATE OR REPLACE FUNCTION p63_each(x jsonb) RETURNS void LANGUAGE sql AS '';
SELECT stream_resume('p63 each') \g /dev/null
SELECT matches(pg_temp.all_of($$SELECT stream_await_termination('p63 each', '180 s')$$), 'P0001 / query "p63 each" has failed: closed: <NULL>', 'unless close is the first to fail');

/*
 * foreach is one function: the first of the search_path
 */
CREATE TYPE p63_one AS (id int);
CREATE TYPE p63_two AS (id int);
CREATE TABLE p63_called (who text);
CREATE FUNCTION p63_a.p63_over(x p63_one) RETURNS void LANGUAGE sql AS $$ INSERT INTO public.p63_called VALUES ('a one') $$;
CREATE FUNCTION p63_b.p63_over(x p63_two) RETURNS void LANGUAGE sql AS $$ INSERT INTO public.p63_called VALUES ('b two') $$;
SET search_path = p63_b, p63_a, public;
SELECT stream_start('p63 over', 'p63_src', foreach => 'p63_over', trigger => 'availableNow', options => '{"startingVersion": 1, "endingVersion": 1}') \g /dev/null
RESET search_path;
SELECT stream_await_termination('p63 over', '180 s') \g /dev/null
SELECT results_eq('TABLE p63_called', ARRAY['b two'], 'of two schemas');
CREATE FUNCTION p63_b.p63_over(x p63_one) RETURNS void LANGUAGE sql AS '';
SELECT is(pg_temp.all_of($$SELECT stream_start('p63 over', 'p63_src', foreach => 'p63_b.p63_over')$$), '42725 / function p63_b.p63_over is not unique / More than one function of that name takes a composite type.', 'but not of one');

/*
 * An interval: between two batches the query waits
 */
SELECT stream_start('p63 hourly', 'p63_src', sink => 'p63_hourly', trigger => '1 hour') \g /dev/null
CALL pg_temp.wait_until($$EXISTS (SELECT FROM p63_hourly)$$);
CALL pg_temp.wait_until($$EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'p63 hourly' AND state = 'idle' AND query = 'waiting for the next trigger')$$);
SELECT is(stream_status('p63 hourly'), '{"message": "Waiting for next trigger", "isDataAvailable": true, "isTriggerActive": false}', 'after a batch');

/*
 * A timeout that is no whole millisecond is a short one, and not none
 */
SET statement_timeout = '180 s';
SELECT is(pg_temp.all_of($$DO 'BEGIN LOOP PERFORM stream_process_all_available(''p63 hourly'', ''1 microsecond''); END LOOP; END'$$),
		  '57014 / query "p63 hourly" has not processed all in time', 'stream_process_all_available');
RESET statement_timeout;

SELECT stream_drop(query_name) FROM stream_queries WHERE query_name LIKE 'p63 %';
DROP OWNED BY p63_owner CASCADE;
DROP ROLE p63_owner, p63_group;
ALTER SYSTEM RESET streamcdc.max_restarts;
SELECT pg_reload_conf() \g /dev/null
SELECT * FROM finish();
