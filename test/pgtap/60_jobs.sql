-- Streaming queries that work: what comes out, of which options, into which sinks.  What they refuse is in 61_job_errors.sql;
-- life cycle and failures are in test/t/070_jobs.pl.

SET client_min_messages = warning;
SET TimeZone = 'UTC';

SELECT no_plan();

ALTER SYSTEM SET streamcdc.max_restarts = 1;
SELECT pg_reload_conf() \g /dev/null

\ir include/jobs.sql

-- how many rows two queries do not have in common
CREATE FUNCTION pg_temp.differences(a text, b text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM ((SELECT * FROM (%1$s) AS a EXCEPT ALL SELECT * FROM (%2$s) AS b) UNION ALL (SELECT * FROM (%2$s) AS b EXCEPT ALL SELECT * FROM (%1$s) AS a)) AS x', a, b) INTO n;
	RETURN n;
END $$;

CREATE TABLE p60_src (id int PRIMARY KEY, v text, n int);
INSERT INTO p60_src VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3);
SELECT stream_track('p60_src');
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p60_src VALUES (4, 'd', 4);					-- version 1
UPDATE p60_src SET n = 10 WHERE id = 1;					-- 2
UPDATE p60_src SET n = n WHERE id = 2;					-- 3, a carry-over
DELETE FROM p60_src WHERE id = 3;						-- 4
UPDATE p60_src SET n = 11 WHERE id = 1;					-- 5
SELECT stream_sync('180 s') \g /dev/null

/*
 * The passes: an append sink is what stream_changes says
 */
SELECT stream_start('p60 default', 'p60_src', sink => 'p60_default') \g /dev/null
SELECT stream_start('p60 none', 'p60_src', sink => 'p60_none', options => '{"deduplication_mode": "NONE"}', output_mode => 'update') \g /dev/null
SELECT stream_start('p60 updates', 'p60_src', sink => 'p60_updates', options => '{"computeUpdates": "true"}') \g /dev/null
SELECT stream_start('p60 net', 'p60_src', sink => 'p60_net', options => '{"deduplicationMode": "netChanges", "startingVersion": 1}') \g /dev/null
SELECT stream_start('p60 net updates', 'p60_src', sink => 'p60_net_updates', options => '{"deduplicationMode": "netChanges", "computeUpdates": true, "startingVersion": "1"}') \g /dev/null
SELECT pg_temp.done('p60 default', 'p60 none', 'p60 updates', 'p60 net', 'p60 net updates') \g /dev/null
CREATE FUNCTION pg_temp.changes(arguments text) RETURNS text
LANGUAGE sql AS $$ SELECT format('SELECT (row_data).*, _change_type, _commit_version, _commit_timestamp FROM stream_changes(NULL::p60_src, %s)', arguments) $$;
SELECT is(pg_temp.differences('TABLE p60_default', pg_temp.changes('starting_version => 0')), 0::bigint, 'carry-overs dropped');
SELECT is(pg_temp.differences('TABLE p60_none', pg_temp.changes('starting_version => 0, deduplication_mode => ''none''')), 0::bigint, 'raw, in output mode update');
SELECT is(pg_temp.differences('TABLE p60_updates', pg_temp.changes('starting_version => 0, compute_updates => true')), 0::bigint, 'updates computed');
SELECT is(pg_temp.differences('TABLE p60_net', pg_temp.changes('starting_version => 1, deduplication_mode => ''netChanges''')), 0::bigint, 'net changes');
SELECT is(pg_temp.differences('TABLE p60_net_updates', pg_temp.changes('starting_version => 1, deduplication_mode => ''netChanges'', compute_updates => true')), 0::bigint, 'net changes with updates');
SELECT is(count(*), 3::bigint, 'a new sink has the columns of batch') FROM pg_attribute
WHERE attrelid = 'p60_default'::regclass AND (attname, atttypid) IN (('_change_type', 'text'::regtype), ('_commit_version', 'bigint'::regtype), ('_commit_timestamp', 'timestamptz'::regtype));

/*
 * Where it begins and ends.  The versions that come out.
 */
CREATE TABLE p60_versions (query text, batch bigint, version bigint);
SELECT format($f$SELECT stream_start('p60 start %1$s', 'p60_src', trigger => 'availableNow', options => %2$L, foreach_batch => 'INSERT INTO p60_versions SELECT ''%1$s'', $1, _commit_version FROM batch')$f$, n, o)
FROM (VALUES ('earliest', '{"startingVersion": "earliest"}'), ('from 4', '{"startingVersion": 4}'), ('after 4', '{"startingVersion": 4, "startingBoundInclusive": false}'),
	('latest', '{"startingVersion": "latest"}'), ('1 to 2', '{"startingVersion": 1, "endingVersion": 2}'),
	('1 before 2', '{"startingVersion": 1, "endingVersion": 2, "endingBoundInclusive": false}'),
	('far', '{"startingVersion": 100}'), ('2001', '{"startingTimestamp": "2001-01-01"}'), ('to 2001', '{"startingTimestamp": "2000-01-01", "endingTimestamp": "2001-01-01"}'),
	('one each', '{"maxVersionsPerTrigger": 1}'), ('two each', '{"maxVersionsPerTrigger": "2"}'), ('one byte', '{"maxBytesPerTrigger": 1}')) AS s(n, o) \gexec
SELECT ok(bool_and(stream_await_termination(query_name, '180 s')), 'availableNow ends') FROM stream_queries WHERE query_name LIKE 'p60 start %';
SELECT is(count(*), 0::bigint, 'as finished') FROM stream_queries WHERE query_name LIKE 'p60 start %' AND (status <> 'finished' OR last_error IS NOT NULL);
SELECT is((SELECT string_agg(DISTINCT version::text, ' ' ORDER BY version::text) FROM p60_versions WHERE query = n), v, 'versions of ' || n)
FROM (VALUES ('earliest', '0 1 2 4 5'), ('from 4', '4 5'), ('after 4', '5'), ('latest', NULL), ('1 to 2', '1 2'), ('1 before 2', '1'), ('far', NULL),
	('2001', '0 1 2 4 5'), ('to 2001', NULL), ('one each', '0 1 2 4 5'), ('two each', '0 1 2 4 5'), ('one byte', '0 1 2 4 5')) AS w(n, v);
SELECT is((SELECT string_agg(DISTINCT format('%s:%s', batch, version), ' ' ORDER BY format('%s:%s', batch, version)) FROM p60_versions WHERE query = n), v, 'batches of ' || n)
FROM (VALUES ('earliest', '0:0 0:1 0:2 0:4 0:5'), ('one each', '0:0 1:1 2:2 4:4 5:5'), ('two each', '0:0 0:1 1:2 2:4 2:5')) AS w(n, v);
SELECT is(max(batch), 5::bigint, 'at least one version each, however large') FROM p60_versions WHERE query = 'one byte';
-- "latest" goes on with what commits from then on
INSERT INTO p60_src VALUES (5, 'e', 5);					-- 6
SELECT stream_resume('p60 start latest') \g /dev/null
SELECT stream_await_termination('p60 start latest', '180 s') \g /dev/null
SELECT results_eq($$SELECT DISTINCT version FROM p60_versions WHERE query = 'latest'$$, ARRAY[6::bigint], 'from "latest" on');
-- an end in the future is waited for
SELECT stream_start('p60 until 8', 'p60_src', sink => 'p60_until', options => '{"startingVersion": 7, "endingVersion": 8, "deduplicationMode": "netChanges"}') \g /dev/null
INSERT INTO p60_src VALUES (6, 'f', 6);					-- 7
SELECT pg_temp.done('p60 until 8') \g /dev/null
SELECT is(status, 'running', 'before its end') FROM stream_queries WHERE query_name = 'p60 until 8';
INSERT INTO p60_src VALUES (7, 'g', 7);					-- 8
SELECT ok(stream_await_termination('p60 until 8', '180 s'), 'the end was reached');
SELECT results_eq('SELECT id FROM p60_until ORDER BY id', ARRAY[6, 7], 'and nothing was left in the state');
SELECT is(stream_status('p60 until 8'), '{"message": "Stopped", "isDataAvailable": false, "isTriggerActive": false}', 'status of a finished query');

/*
 * Emission: by watermark one batch late
 */
SELECT stream_start('p60 late', 'p60_src', sink => 'p60_late', trigger => 'once', options => '{"emission": "watermark", "maxVersionsPerTrigger": 1}') \g /dev/null
SELECT stream_await_termination('p60 late', '180 s') \g /dev/null
SELECT is((SELECT count(*) FROM p60_late), 0::bigint, 'by watermark: the first batch emits nothing');
SELECT is(state_rows > 0, true, 'it is in the state') FROM stream_queries WHERE query_name = 'p60 late';
SELECT stream_start('p60 late', 'p60_src', sink => 'p60_late', trigger => 'availableNow', options => '{"emission": "watermark", "noDataMicroBatchesEnabled": false}') \g /dev/null
SELECT stream_await_termination('p60 late', '180 s') \g /dev/null
SELECT is(pg_temp.differences('TABLE p60_late', pg_temp.changes('starting_version => 0')), 0::bigint, 'availableNow emits all, with and without batches that have no data');

CREATE TABLE p60_log (id int, v text, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
SELECT stream_register_changelog('p60_log', true, true, true, ARRAY['id'], '_commit_version') \g /dev/null
INSERT INTO p60_log VALUES (1, 'a', 'insert', 1, '2020-01-01');
SELECT stream_start('p60 registered', 'p60_log', sink => 'p60_registered', options => '{"noDataMicroBatchesEnabled": false}') \g /dev/null
SELECT stream_start('p60 committed', 'p60_log', sink => 'p60_committed', options => '{"emission": "commit"}') \g /dev/null
SELECT pg_temp.done('p60 registered', 'p60 committed') \g /dev/null
SELECT is((SELECT count(*) FROM p60_registered), 0::bigint, 'registered change logs are emitted by watermark');
SELECT is((SELECT count(*) FROM p60_committed), 1::bigint, 'unless told otherwise');
INSERT INTO p60_log VALUES (2, 'b', 'insert', 2, '2020-01-02');
SELECT pg_temp.done('p60 registered', 'p60 committed') \g /dev/null
SELECT results_eq('SELECT v FROM p60_registered', ARRAY['a'], 'the next batch brings the first');
SELECT is((SELECT count(*) FROM p60_committed), 2::bigint, 'by commit at once');
INSERT INTO p60_log VALUES (3, 'c', 'insert', 3, NULL);
SELECT throws_like($$SELECT stream_await_termination('p60 registered', '180 s')$$, '%has failed%', 'a NULL timestamp');
SELECT matches(stream_exception('p60 registered'), 'NULL_COMMIT_TIMESTAMP', 'says which condition');
SELECT stream_drop('p60 registered'), stream_drop('p60 committed');

-- a time that is none: what follows must not be late because of it
DELETE FROM p60_log;
INSERT INTO p60_log VALUES (1, 'a', 'insert', 1, '2020-01-01'), (2, 'b', 'insert', 2, 'infinity');
SELECT stream_start('p60 ' || q, 'p60_log', sink => 'p60_' || q, options => o::jsonb)
FROM (VALUES ('endless', '{}'), ('endless_net', '{"deduplicationMode": "netChanges"}'), ('endless_commit', '{"emission": "commit"}'),
	('endless_raw', '{"deduplicationMode": "none"}')) AS w(q, o) \g /dev/null
SELECT throws_like(format('SELECT stream_await_termination(%L, ''180 s'')', q), '%: _commit_timestamp is infinite in the change log%', q)
FROM unnest('{p60 endless,p60 endless_net,p60 endless_commit}'::text[]) AS q;
INSERT INTO p60_log VALUES (3, 'c', 'insert', 3, '-infinity'), (4, 'd', 'insert', 4, '2020-01-04');
SELECT pg_temp.done('p60 endless_raw') \g /dev/null
SELECT results_eq('SELECT v FROM p60_endless_raw ORDER BY v', ARRAY['a', 'b', 'c', 'd'], 'a raw stream takes them as they are');
UPDATE p60_log SET _commit_timestamp = '2020-01-02' WHERE id = 2;
SELECT stream_resume('p60 endless') \g /dev/null
SELECT throws_like($$SELECT stream_await_termination('p60 endless', '180 s')$$, '%: _commit_timestamp is infinite in the change log%', 'a row before all times would be late itself');
UPDATE p60_log SET _commit_timestamp = '2020-01-03' WHERE id = 3;
SELECT stream_resume('p60 endless') \g /dev/null
SELECT pg_temp.done('p60 endless') \g /dev/null
SELECT results_eq('SELECT v FROM p60_endless ORDER BY v', ARRAY['a', 'b', 'c', 'd'], 'when the rows are mended, all come');
SELECT stream_drop(query_name) FROM stream_queries WHERE query_name LIKE 'p60 endless%' \g /dev/null

/*
 * Providers
 */
SELECT stream_start('p60 memory', 'p60_src', sink => 'p60_memory', options => '{"emission": "watermark", "stateStoreProvider": "memory"}') \g /dev/null
SELECT pg_temp.done('p60 memory') \g /dev/null
SELECT is(pg_temp.differences('TABLE p60_memory', pg_temp.changes('starting_version => 0')), 0::bigint, 'state in memory');

/*
 * The query: expressions, joins with tables, batch several times
 */
CREATE TABLE p60_names (id int PRIMARY KEY, name text);
INSERT INTO p60_names VALUES (1, 'one'), (4, 'four');
SELECT stream_start('p60 join', 'p60_src', sink => 'p60_join', query => $$
	SELECT b.id, n.name AS "the Name", b.n * 2 AS twice, b._commit_version FROM batch AS b JOIN p60_names AS n USING (id)
	WHERE b._change_type = 'insert' AND EXISTS (SELECT FROM batch AS c WHERE c.id = b.id) -- a comment$$) \g /dev/null
SELECT pg_temp.done('p60 join') \g /dev/null
SELECT results_eq('SELECT id, "the Name", twice FROM p60_join ORDER BY _commit_version', $$VALUES (1, 'one', 2), (4, 'four', 8), (1, 'one', 20), (1, 'one', 22)$$, 'a join');

/*
 * Format "table"
 */
CREATE TABLE p60_facts (id int PRIMARY KEY, v text);
INSERT INTO p60_facts VALUES (1, 'a'), (2, 'b');
SELECT stream_track('p60_facts');
SELECT stream_sync('180 s') \g /dev/null
UPDATE p60_facts SET v = 'bb' WHERE id = 2;
SELECT stream_start('p60 facts', 'p60_facts', sink => 'p60_facts_sink', format => 'table') \g /dev/null
SELECT stream_start('p60 facts skip', 'p60_facts', sink => 'p60_facts_skip', format => 'table', options => '{"skipChangeCommits": true}') \g /dev/null
SELECT stream_start('p60 facts new', 'p60_facts', sink => 'p60_facts_new', format => 'table', options => '{"startingVersion": "latest"}') \g /dev/null
SELECT pg_temp.done('p60 facts', 'p60 facts skip', 'p60 facts new') \g /dev/null
SELECT results_eq('SELECT * FROM p60_facts_sink ORDER BY id', 'SELECT * FROM p60_facts ORDER BY id', 'first the rows that are there, without metadata columns');
INSERT INTO p60_facts VALUES (3, 'c');
SELECT pg_temp.done('p60 facts', 'p60 facts skip', 'p60 facts new') \g /dev/null
SELECT results_eq('SELECT * FROM p60_facts_sink ORDER BY id', 'SELECT * FROM p60_facts ORDER BY id', 'then those that are inserted');
SELECT results_eq('SELECT id FROM p60_facts_new', ARRAY[3], 'from "latest" on only these');
BEGIN;
INSERT INTO p60_facts VALUES (4, 'd');
DELETE FROM p60_facts WHERE id = 1;
COMMIT;
INSERT INTO p60_facts VALUES (5, 'e');
SELECT throws_like($$SELECT stream_await_termination('p60 facts', '180 s')$$, '%version 3 of source table "p60_facts" holds updates or deletes%', 'a delete stops it');
SELECT pg_temp.done('p60 facts skip') \g /dev/null
SELECT results_eq('SELECT id FROM p60_facts_skip ORDER BY id', ARRAY[1, 2, 3, 5], 'or that version is left out');

/*
 * Sinks: defaults, generated columns, triggers, views, partitions
 */
CREATE TABLE p60_rich (n int, key serial, id int NOT NULL, v text DEFAULT 'none', twice int GENERATED ALWAYS AS (n * 2) STORED, by text DEFAULT current_user, CHECK (id > 0));
CREATE FUNCTION p60_upper() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.v := upper(NEW.v); RETURN NEW; END $$;
CREATE TRIGGER upper BEFORE INSERT ON p60_rich FOR EACH ROW EXECUTE FUNCTION p60_upper();
SELECT stream_start('p60 rich', 'p60_src', sink => 'p60_rich', query => $$SELECT id, v, n FROM batch WHERE _commit_version = 0$$, cluster_by => '{n}') \g /dev/null
CREATE TABLE p60_behind (id int, v text);
CREATE VIEW p60_view AS SELECT id, v, 1 AS one FROM p60_behind;
CREATE FUNCTION p60_instead() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO p60_behind VALUES (NEW.id, NEW.v || '!'); RETURN NEW; END $$;
CREATE TRIGGER instead INSTEAD OF INSERT ON p60_view FOR EACH ROW EXECUTE FUNCTION p60_instead();
SELECT stream_start('p60 view', 'p60_src', sink => 'p60_view', query => $$SELECT id, v, 1 AS one FROM batch WHERE _commit_version = 0$$) \g /dev/null
CREATE VIEW p60_simple AS SELECT id, v FROM p60_behind WHERE v = 'simple' WITH LOCAL CHECK OPTION;
SELECT stream_start('p60 simple', 'p60_src', sink => 'p60_simple', query => $$SELECT id, 'simple' AS v FROM batch WHERE _commit_version = 0$$) \g /dev/null
SELECT pg_temp.done('p60 rich', 'p60 view', 'p60 simple') \g /dev/null
SELECT results_eq('SELECT key, id, v, n, twice, by FROM p60_rich ORDER BY key', format('SELECT n, id, upper(v), n, n * 2, %L FROM (VALUES (1, ''a'', 1), (2, ''b'', 2), (3, ''c'', 3)) AS w(id, v, n)', current_user),
				  'defaults, generated columns, triggers, in the order of cluster_by');
SELECT results_eq('SELECT id, v FROM p60_behind ORDER BY v, id', $$VALUES (1, 'a!'), (2, 'b!'), (3, 'c!'), (1, 'simple'), (2, 'simple'), (3, 'simple')$$, 'views, with a trigger and without');

CREATE TABLE p60_identity (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED);
CREATE TABLE p60_identity_mirror (LIKE p60_identity INCLUDING ALL);
SELECT stream_track('p60_identity');
SELECT stream_start('p60 identity', 'p60_identity', sink => 'p60_identity_mirror', sink_mode => 'apply', cluster_by => '{n}') \g /dev/null
INSERT INTO p60_identity (n) VALUES (1), (2), (3);
UPDATE p60_identity SET n = n + 10 WHERE id = 2;
SELECT pg_temp.done('p60 identity') \g /dev/null
SELECT results_eq('SELECT * FROM p60_identity_mirror ORDER BY id', 'SELECT * FROM p60_identity ORDER BY id', 'identity and generated columns of a sink like the source');

CREATE TABLE "p60 ""Odd"" table
of two lines" ("q" int PRIMARY KEY, "f" text, "S" text, "a b" int, "x""y" text, "batch" int, "select" int);
SELECT stream_track('"p60 ""Odd"" table
of two lines"');
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO "p60 ""Odd"" table
of two lines" VALUES (1, 'a', 'b', 2, 'c', 3, 4), (2, 'a', 'b', 2, 'c', 3, 4);
UPDATE "p60 ""Odd"" table
of two lines" SET "a b" = 5, "q" = 3 WHERE "q" = 1;
SELECT stream_start('p60 odd', '"p60 ""Odd"" table
of two lines"', sink => '"p60 Odd ""sink"""', sink_mode => 'apply', cluster_by => '{"a b"}', options => '{"deduplicationMode": "netChanges"}') \g /dev/null
SELECT stream_start('p60 odd parts', '"p60 ""Odd"" table
of two lines"', sink => '"batch"', partition_by => ARRAY['a b', 'x"y']) \g /dev/null
SELECT pg_temp.done('p60 odd', 'p60 odd parts') \g /dev/null
SELECT is(pg_temp.differences('TABLE "p60 ""Odd"" table
of two lines"', 'TABLE "p60 Odd ""sink"""'), 0::bigint, 'names that need quotes');
SELECT is(count(*), 4::bigint, 'a sink called batch') FROM public.batch;

-- a query does not wait for itself
SELECT stream_start('p60 self', 'p60_src', foreach_batch => $$SELECT stream_stop('p60 self')$$) \g /dev/null
SELECT throws_ok($$SELECT stream_await_termination('p60 self', '180 s')$$, '25001', 'query "p60 self" has failed: query "p60 self" cannot wait for itself', 'a query that stops itself');

CREATE TABLE p60_parted_src (id int PRIMARY KEY, year int, kind text);
INSERT INTO p60_parted_src VALUES (1, 2024, 'x'), (2, 2024, 'a "odd" kind'), (3, NULL, NULL), (4, 2025, NULL), (5, 2025, repeat('ä', 100)), (6, 2025, repeat('ä', 101)), (7, NULL, 'x');
SELECT stream_track('p60_parted_src');
SELECT stream_start('p60 parted', 'p60_parted_src', sink => 'p60_parted', partition_by => '{year,kind}', query => 'SELECT id, year, kind FROM batch') \g /dev/null
SELECT pg_temp.done('p60 parted') \g /dev/null
SELECT results_eq('SELECT * FROM p60_parted ORDER BY id', 'SELECT * FROM p60_parted_src ORDER BY id', 'a partitioned sink');
SELECT is(count(DISTINCT tableoid), 7::bigint, 'a partition for each value, NULL included') FROM p60_parted;
SELECT is(pg_get_partkeydef('p60_parted'::regclass), 'LIST (year)', 'nested: first by year');
SELECT is(count(*), 3::bigint, 'then by kind') FROM pg_inherits WHERE inhparent = 'p60_parted'::regclass AND pg_get_partkeydef(inhrelid) = 'LIST (kind)';
-- somebody else's partition for a value is used
CREATE TABLE p60_mine PARTITION OF p60_parted FOR VALUES IN (2030, 2031);
INSERT INTO p60_parted_src VALUES (8, 2031, 'x'), (9, 2024, 'y');
SELECT pg_temp.done('p60 parted') \g /dev/null
SELECT results_eq('SELECT id FROM p60_mine', ARRAY[8], 'a partition that is there is used');
SELECT results_eq('SELECT * FROM p60_parted ORDER BY id', 'SELECT * FROM p60_parted_src ORDER BY id', 'and new ones are made');

-- workers are few
SELECT stream_stop(query_name) FROM stream_queries WHERE status = 'running' AND query_name NOT IN ('p60 default') \g /dev/null

/*
 * Mirrors
 */
CREATE TABLE p60_pair (a int, b int, email text, x int, PRIMARY KEY (a, b));
INSERT INTO p60_pair SELECT i / 10, i % 10, 'mail ' || i, i FROM generate_series(1, 40) AS i;
SELECT stream_track('p60_pair');
CREATE TABLE p60_own_mirror (x int, b int, note text DEFAULT 'mine', email text UNIQUE, a int, PRIMARY KEY (b, a), _commit_version bigint);
CREATE TABLE p60_deferred_mirror (LIKE p60_pair, PRIMARY KEY (a, b) DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE p60_parted_mirror (LIKE p60_pair, PRIMARY KEY (a, b)) PARTITION BY HASH (a);
CREATE TABLE p60_parted_mirror_0 PARTITION OF p60_parted_mirror FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE p60_parted_mirror_1 PARTITION OF p60_parted_mirror FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE p60_viewed (LIKE p60_pair, PRIMARY KEY (a, b));
CREATE VIEW p60_viewed_mirror AS SELECT * FROM p60_viewed;
-- foreign keys refer to it: of the kind that only forbids, of the kind that acts when a row is deleted, and from itself
CREATE TABLE p60_referred_mirror (LIKE p60_pair, UNIQUE (email), PRIMARY KEY (a, b), FOREIGN KEY (a, b) REFERENCES p60_referred_mirror);
CREATE TABLE p60_acting_mirror (LIKE p60_pair, UNIQUE (email) DEFERRABLE, PRIMARY KEY (a, b));
CREATE TABLE p60_excluding_mirror (LIKE p60_pair, EXCLUDE USING hash (email WITH =), PRIMARY KEY (a, b));
CREATE TABLE p60_referred_parted_mirror (LIKE p60_pair, UNIQUE (a, email), PRIMARY KEY (a, b)) PARTITION BY HASH (a);
CREATE TABLE p60_referred_parted_mirror_0 PARTITION OF p60_referred_parted_mirror FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE p60_referred_parted_mirror_1 PARTITION OF p60_referred_parted_mirror FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TEMP TABLE p60_mirrors AS SELECT * FROM (VALUES ('p60_new_mirror', '{}'), ('p60_net_mirror', '{"deduplicationMode": "netChanges"}'), ('p60_own_mirror', '{}'),
	('p60_deferred_mirror', '{"computeUpdates": true}'), ('p60_parted_mirror', '{}'), ('p60_viewed_mirror', '{}'), ('p60_referred_mirror', '{}'), ('p60_acting_mirror', '{}'),
	('p60_excluding_mirror', '{}'), ('p60_referred_parted_mirror', '{}'), ('p60_net_updates_mirror', '{"deduplicationMode": "netChanges", "computeUpdates": true}'),
	('p60_single_mirror', '{"maxVersionsPerTrigger": 1}'), ('p60_raw_mirror', '{"deduplicationMode": "none"}')) AS w(sink, options);
SELECT format('SELECT stream_start(%1$L, ''p60_pair'', sink => %1$L, sink_mode => ''apply'', options => %2$L)', sink, options) FROM p60_mirrors \gexec
CREATE FUNCTION pg_temp.mirrors(what text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_temp.done(sink) FROM p60_mirrors;
	RETURN QUERY SELECT is(pg_temp.differences('SELECT a, b, email, x FROM p60_pair', format('SELECT a, b, email, x FROM %I', sink)), 0::bigint, sink || ' ' || what) FROM p60_mirrors;
END $$;
SELECT pg_temp.mirrors('begins as the table');
SELECT is(count(*), 4::bigint, 'metadata columns are left out of a mirror') FROM pg_attribute WHERE attrelid = 'p60_new_mirror'::regclass AND attnum > 0;
UPDATE p60_pair SET x = x + 1 WHERE a = 1;
SELECT pg_temp.mirrors('after updates');
UPDATE p60_pair SET b = b + 100 WHERE a = 2;
SELECT pg_temp.mirrors('after new keys');
-- a swap of two keys, and a chain of three
BEGIN;
UPDATE p60_pair SET a = 99 WHERE (a, b) = (1, 1);
UPDATE p60_pair SET b = 1 WHERE (a, b) = (1, 2);
UPDATE p60_pair SET a = 1, b = 2 WHERE a = 99;
COMMIT;
SELECT pg_temp.mirrors('after a swap of keys');
BEGIN;
DELETE FROM p60_pair WHERE (a, b) = (3, 3);
UPDATE p60_pair SET b = 3 WHERE (a, b) = (3, 4);
UPDATE p60_pair SET b = 4 WHERE (a, b) = (3, 5);
INSERT INTO p60_pair VALUES (3, 5, 'new', 1);
COMMIT;
SELECT pg_temp.mirrors('after a chain of keys');
-- the sink has a unique index of its own, and rows exchange their values, also where others refer to them
CREATE TABLE p60_referring (a int, b int, FOREIGN KEY (a, b) REFERENCES p60_referred_mirror, FOREIGN KEY (a, b) REFERENCES p60_referred_parted_mirror);
CREATE TABLE p60_depending (a int, b int, FOREIGN KEY (a, b) REFERENCES p60_acting_mirror ON DELETE CASCADE);
INSERT INTO p60_referring SELECT a, b FROM p60_pair;
INSERT INTO p60_depending SELECT a, b FROM p60_pair;
BEGIN;
UPDATE p60_pair SET email = 'on its way' WHERE (a, b) = (1, 4);
UPDATE p60_pair SET email = 'mail 14' WHERE (a, b) = (1, 5);
UPDATE p60_pair SET email = 'mail 15' WHERE (a, b) = (1, 4);
COMMIT;
SELECT pg_temp.mirrors('after an exchange of unique values');
SELECT is(count(*), (SELECT count(*) FROM p60_pair), 'rows that would go with those of a sink are still there') FROM p60_depending;
TRUNCATE p60_referring, p60_depending;
DELETE FROM p60_pair WHERE b > 3;
INSERT INTO p60_pair VALUES (7, 7, 'x', 7);
UPDATE p60_pair SET x = 8 WHERE a = 7;
DELETE FROM p60_pair WHERE a = 7;
INSERT INTO p60_pair VALUES (7, 7, 'y', 9);
SELECT pg_temp.mirrors('after deletes and inserts');
SELECT is(count(*), 0::bigint, 'a column of the sink''s own keeps its default') FROM p60_own_mirror WHERE note IS DISTINCT FROM 'mine';
SELECT is(_commit_version, (SELECT max(_commit_version) FROM stream_versions('p60_pair')), 'a metadata column that the sink has is written') FROM p60_own_mirror WHERE a = 7;
-- workers are few
SELECT stream_stop(query_name) FROM stream_queries WHERE status = 'running' AND query_name NOT IN ('p60 default') \g /dev/null

-- a filter takes rows in and out
SELECT stream_start('p60 filtered', 'p60_pair', sink => 'p60_filtered', sink_mode => 'apply', query => 'SELECT * FROM batch WHERE x > 20') \g /dev/null
UPDATE p60_pair SET x = 40 - x;
SELECT pg_temp.done('p60 filtered') \g /dev/null
SELECT is(pg_temp.differences('SELECT * FROM p60_pair WHERE x > 20', 'TABLE p60_filtered'), 0::bigint, 'a mirror of a part');

CREATE TABLE p60_nulls (k int, v text);
CREATE UNIQUE INDEX p60_nulls_k ON p60_nulls (k) NULLS NOT DISTINCT;
SELECT stream_track('p60_nulls', identity_columns => '{k}');
CREATE TABLE p60_nulls_distinct (k int UNIQUE, v text);
SELECT stream_start('p60 nulls', 'p60_nulls', sink => 'p60_nulls_sink', sink_mode => 'apply') \g /dev/null
SELECT stream_start('p60 nulls distinct', 'p60_nulls', sink => 'p60_nulls_distinct', sink_mode => 'apply') \g /dev/null
INSERT INTO p60_nulls VALUES (NULL, 'a'), (1, 'b');
SELECT pg_temp.done('p60 nulls', 'p60 nulls distinct') \g /dev/null
UPDATE p60_nulls SET v = v || v;
SELECT pg_temp.done('p60 nulls', 'p60 nulls distinct') \g /dev/null
SELECT is(pg_temp.differences('TABLE p60_nulls', 'TABLE p60_nulls_sink'), 0::bigint, 'NULL is an identity');
SELECT is(pg_temp.differences('TABLE p60_nulls', 'TABLE p60_nulls_distinct'), 0::bigint, 'also where the sink''s index takes NULLs for different');
DELETE FROM p60_nulls;
SELECT pg_temp.done('p60 nulls', 'p60 nulls distinct') \g /dev/null
SELECT is_empty('TABLE p60_nulls_sink UNION ALL TABLE p60_nulls_distinct', 'and goes');

-- workers are few
SELECT stream_stop(query_name) FROM stream_queries WHERE status = 'running' AND query_name NOT IN ('p60 default') \g /dev/null

/*
 * foreach_batch
 */
CREATE TABLE p60_batches (batch bigint, what text);
SELECT stream_start('p60 commands', 'p60_src', options => '{"maxVersionsPerTrigger": 3}', foreach_batch => $$
	CREATE TEMP TABLE work AS SELECT count(*) AS n, (SELECT max(id) FROM batch) AS top FROM batch AS a JOIN batch AS b USING (id, _change_type, _commit_version);
	INSERT INTO p60_batches SELECT $1, format('%s rows, max %s', n, top) FROM work;
	SET work_mem = '1MB'; SET search_path = nowhere; SELECT pg_catalog.pg_advisory_lock(60);
	PREPARE p60 AS SELECT 1; DECLARE c CURSOR WITH HOLD FOR SELECT 1$$) \g /dev/null
SELECT pg_temp.done('p60 commands') \g /dev/null
SELECT results_eq('SELECT DISTINCT batch, what FROM p60_batches ORDER BY batch', $$VALUES (0::bigint, '6 rows, max 4'), (1, '3 rows, max 3'), (2, '3 rows, max 7')$$,
				  'several commands, batch more than once, the batch id; nothing of the session is left for the next batch');
SELECT is_empty('SELECT FROM pg_locks WHERE locktype = ''advisory'' AND objid = 60', 'advisory locks neither');
SELECT is(status, 'running', 'it works') FROM stream_queries WHERE query_name = 'p60 commands';

CREATE ROLE p60_other;
SELECT stream_start('p60 role', 'p60_src', options => '{"maxVersionsPerTrigger": 3}', foreach_batch => $$INSERT INTO p60_batches SELECT -1, current_user; SET ROLE p60_other$$) \g /dev/null
SELECT pg_temp.done('p60 role') \g /dev/null
SELECT is((SELECT string_agg(DISTINCT what, ' ') FROM p60_batches WHERE batch = -1), format('%s', current_user), 'a role that is set is not the next batch''s');

CREATE FUNCTION p60_cursor(batch_id bigint, batch refcursor) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	r record;
	n int := 0;
BEGIN
	LOOP
		FETCH batch INTO r;
		EXIT WHEN NOT FOUND;
		n := n + r.id;
	END LOOP;
	INSERT INTO p60_batches VALUES (batch_id, 'sum ' || n);
END $$;
SELECT stream_start('p60 cursor', 'p60_src', foreach_batch => 'p60_cursor', query => 'SELECT id FROM batch WHERE _commit_version = 0', trigger => 'availableNow') \g /dev/null
SELECT stream_await_termination('p60 cursor', '180 s') \g /dev/null
SELECT results_eq('SELECT batch, what FROM p60_batches WHERE what LIKE ''sum%''', $$VALUES (0::bigint, 'sum 6')$$, 'a function of batch id and cursor');

/*
 * foreach
 */
CREATE TABLE p60_calls (n serial, query text, what text);
CREATE FUNCTION p60_each(r jsonb) RETURNS void LANGUAGE sql AS $$ INSERT INTO p60_calls (query, what) VALUES ('jsonb', concat_ws(' ', 'row', r ->> 'id', r ->> '_change_type')) $$;
CREATE FUNCTION p60_each_open(partition_id bigint, epoch_id bigint) RETURNS boolean LANGUAGE sql AS $$ INSERT INTO p60_calls (query, what) VALUES ('jsonb', format('open %s %s', partition_id, epoch_id)); SELECT epoch_id <> 1 $$;
CREATE FUNCTION p60_each_close(error text) RETURNS void LANGUAGE sql AS $$ INSERT INTO p60_calls (query, what) VALUES ('jsonb', 'close ' || coalesce(error, 'well')) $$;
SELECT stream_start('p60 foreach', 'p60_src', foreach => 'p60_each', options => '{"startingVersion": 0, "endingVersion": 2, "maxVersionsPerTrigger": 1}') \g /dev/null
SELECT stream_await_termination('p60 foreach', '180 s') \g /dev/null
SELECT results_eq('SELECT what FROM p60_calls WHERE query = ''jsonb'' ORDER BY n',
	ARRAY['open 0 0', 'row 1 insert', 'row 2 insert', 'row 3 insert', 'close well', 'open 0 1', 'close well', 'open 0 2', 'row 1 delete', 'row 1 insert', 'close well'],
	'open, rows unless open says false, close');
CREATE TYPE p60_type AS (_change_type text, id bigint, missing text, v text);
CREATE FUNCTION p60_typed(r p60_type) RETURNS void LANGUAGE sql AS $$ INSERT INTO p60_calls (query, what) VALUES ('typed', r::text) $$;
SELECT stream_start('p60 typed', 'p60_src', foreach => 'p60_typed', options => '{"startingVersion": 1, "endingVersion": 1}') \g /dev/null
SELECT stream_await_termination('p60 typed', '180 s') \g /dev/null
SELECT results_eq('SELECT what FROM p60_calls WHERE query = ''typed''', ARRAY['(insert,4,,d)'], 'a composite argument: fields by name');
CREATE FUNCTION p60_bad(r jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'row % is bad', r ->> 'id' USING ERRCODE = 'P6060'; END $$;
CREATE SEQUENCE p60_closed;
CREATE FUNCTION p60_bad_close(error text) RETURNS void LANGUAGE sql AS $$ SELECT setval('p60_closed', 60) WHERE error = 'row 4 is bad' $$;
SELECT stream_start('p60 bad', 'p60_src', foreach => 'p60_bad', options => '{"startingVersion": 1, "endingVersion": 1}') \g /dev/null
SELECT throws_ok($$SELECT stream_await_termination('p60 bad', '120 s')$$, 'P6060', 'query "p60 bad" has failed: row 4 is bad', 'an error of a row');
SELECT is(last_value, 60::bigint, 'is what close is told') FROM p60_closed;

-- workers are few
SELECT stream_stop(query_name) FROM stream_queries WHERE status = 'running' AND query_name NOT IN ('p60 default') \g /dev/null

/*
 * Rows of many sizes; the starter's settings
 */
CREATE TABLE p60_wide (id int PRIMARY KEY, body text);
SELECT stream_track('p60_wide');
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p60_wide SELECT i, repeat(md5(i::text), 32768) FROM generate_series(1, 8) AS i;
INSERT INTO p60_wide SELECT i, md5(i::text) FROM generate_series(9, 20000) AS i;
SELECT stream_start('p60 wide', 'p60_wide', sink => 'p60_wide_sink', sink_mode => 'apply', options => '{"deduplicationMode": "netChanges", "emission": "watermark"}') \g /dev/null
SELECT pg_temp.done('p60 wide') \g /dev/null
SELECT is(pg_temp.differences('TABLE p60_wide', 'TABLE p60_wide_sink'), 0::bigint, 'rows of a megabyte, and many');
SELECT is(input_rows, 20000::bigint, 'input_rows') FROM stream_queries WHERE query_name = 'p60 wide';

-- batches far beyond the memory in which their rows are put into order: 9000 rows of 8 kB, and among them some of 1 MB, in 1 MB
SELECT format('ALTER DATABASE %I SET work_mem = %L', current_database(), '64kB') \gexec
SELECT format('ALTER DATABASE %I SET maintenance_work_mem = %L', current_database(), '1MB') \gexec
CREATE TABLE p60_large (id int PRIMARY KEY, v text);
ALTER TABLE p60_large ALTER COLUMN v SET STORAGE EXTERNAL;
SELECT stream_track('p60_large');
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p60_large SELECT i, repeat(md5(i::text), CASE WHEN i % 300 = 0 THEN 32768 ELSE 250 END) FROM generate_series(1, 9000) AS i;
SELECT stream_start('p60 large net', 'p60_large', sink => 'p60_large_net', options => '{"deduplicationMode": "netChanges", "startingVersion": 1}') \g /dev/null
SELECT stream_start('p60 large late', 'p60_large', sink => 'p60_large_late', options => '{"emission": "watermark", "startingVersion": 1}') \g /dev/null
SELECT pg_temp.done('p60 large net', 'p60 large late') \g /dev/null
SELECT is(pg_temp.differences('SELECT id, v, _change_type, _commit_version FROM p60_large_net', 'SELECT id, v, ''insert'', 1::bigint FROM p60_large'), 0::bigint, 'large rows, netted');
SELECT is(pg_temp.differences('SELECT id, v, _change_type, _commit_version FROM p60_large_late', 'SELECT id, v, ''insert'', 1::bigint FROM p60_large'), 0::bigint, 'buffered');
SELECT is((SELECT count(*) FROM (SELECT id < lag(id) OVER (ORDER BY ctid) AS falls FROM p60_large_net) AS s WHERE falls), 0::bigint, 'in the order in which they came');
-- a change log with versions that are text, where "a10" is before "a9"
CREATE TABLE p60_text_log AS SELECT (row_data).id, (row_data).v, _change_type, chr(97 + (row_data).id % 7) || (row_data).id % 23 AS _commit_version, _commit_timestamp FROM stream_changes(NULL::p60_large, 1);
INSERT INTO p60_text_log SELECT id, 'second of ' || id, CASE WHEN id % 2 = 0 THEN 'delete' ELSE 'insert' END, 'z' || id % 11, _commit_timestamp FROM p60_text_log WHERE id % 3 = 0;
SELECT stream_register_changelog('p60_text_log', false, true, false, '{id}');
CREATE TABLE p60_large_text (id int, v text, _change_type text, _commit_version text, _commit_timestamp timestamptz, place bigint GENERATED ALWAYS AS IDENTITY);
SELECT stream_start('p60 large text', 'p60_text_log', sink => 'p60_large_text', options => '{"deduplicationMode": "netChanges"}') \g /dev/null
SELECT pg_temp.done('p60 large text') \g /dev/null
SELECT is(pg_temp.differences('SELECT id, v, _change_type, _commit_version, _commit_timestamp FROM p60_large_text', 'SELECT * FROM p60_text_log WHERE id % 3 <> 0 OR v LIKE ''second%'' AND id % 2 <> 0'), 0::bigint, 'text versions');
SELECT is(count(*), 7500::bigint, 'of which half of every third row is gone again') FROM p60_large_text;
SELECT is((SELECT count(*) FROM (SELECT _commit_version < lag(_commit_version) OVER (ORDER BY place) AS falls FROM p60_large_text) AS s WHERE falls), 0::bigint, 'in their order');
-- small rows, each a few times, of a table with a dropped column, text that is stored as such, and NULLs; one of them is most of the batch
CREATE TYPE p60_mood AS ENUM ('sad', 'glad');
CREATE TABLE p60_hot (gone text, id bigint PRIMARY KEY, n numeric, mood p60_mood);
ALTER TABLE p60_hot DROP COLUMN gone;
SELECT stream_track('p60_hot');
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p60_hot SELECT i, nullif(i % 5, 0), CASE i % 3 WHEN 0 THEN 'sad'::p60_mood WHEN 1 THEN 'glad' END FROM generate_series(1, 20000) AS i;
DO $$ BEGIN FOR i IN 1 .. 15000 LOOP UPDATE p60_hot SET n = i WHERE id = 7; END LOOP; END $$;
UPDATE p60_hot SET mood = 'glad' WHERE id % 4 = 0;
DELETE FROM p60_hot WHERE id % 10 = 1;
UPDATE p60_hot SET id = id + 1000000 WHERE id % 7 = 0;
ALTER TABLE p60_hot ADD COLUMN added int DEFAULT 5;
INSERT INTO p60_hot SELECT i FROM generate_series(1, 20000, 10) AS i;
DO $$ BEGIN FOR i IN 1 .. 5 LOOP FOR k IN 1 .. 3000 LOOP UPDATE p60_hot SET n = k + i WHERE id = 1000007; END LOOP; COMMIT; END LOOP; END $$;
SELECT stream_sync('180 s') \g /dev/null
SELECT stream_start('p60 hot net', 'p60_hot', sink => 'p60_hot_net', trigger => 'availableNow', options => '{"deduplicationMode": "netChanges", "startingVersion": 1}') \g /dev/null
SELECT stream_start('p60 hot updates', 'p60_hot', sink => 'p60_hot_updates', trigger => 'availableNow', options => '{"deduplicationMode": "netChanges", "computeUpdates": true, "startingVersion": 3}') \g /dev/null
SELECT stream_start('p60 hot late', 'p60_hot', sink => 'p60_hot_late', trigger => 'availableNow', options => '{"computeUpdates": true, "emission": "watermark", "startingVersion": 1}') \g /dev/null
SELECT stream_await_termination(q, '180 s') FROM unnest('{p60 hot net,p60 hot updates,p60 hot late}'::text[]) AS q \g /dev/null
SELECT is(max(batch_id), 1::bigint, 'one batch, and one for what it left') FROM stream_queries WHERE query_name IN ('p60 hot net', 'p60 hot updates');
SELECT is(pg_temp.differences('SELECT * FROM p60_hot_net', 'SELECT (row_data).*, _change_type, _commit_version, _commit_timestamp FROM stream_changes(NULL::p60_hot, 1, deduplication_mode => ''netChanges'')'), 0::bigint,
	'many small rows and one that changes all the time, netted');
SELECT is(pg_temp.differences('SELECT * FROM p60_hot_updates', 'SELECT (row_data).*, _change_type, _commit_version, _commit_timestamp FROM stream_changes(NULL::p60_hot, 3, deduplication_mode => ''netChanges'', compute_updates => true)'), 0::bigint,
	'with updates');
SELECT is(pg_temp.differences('SELECT * FROM p60_hot_late', 'SELECT (row_data).*, _change_type, _commit_version, _commit_timestamp FROM stream_changes(NULL::p60_hot, 1, compute_updates => true)'), 0::bigint,
	'and buffered');
SELECT ok((SELECT count(*) FROM p60_hot_net) BETWEEN 20000 AND 21000 AND (SELECT count(*) FILTER (WHERE _change_type = 'delete') > 2000 FROM p60_hot_updates), 'none of which is empty');
SELECT format('ALTER DATABASE %I RESET %I', current_database(), s) FROM unnest('{work_mem,maintenance_work_mem}'::text[]) AS s \gexec

CREATE SCHEMA p60_schema;
CREATE FUNCTION p60_schema.shown(timestamptz) RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'mine ' || $1 $$;
SET search_path = p60_schema, public;
SET TimeZone = 'Asia/Tokyo';
SET DateStyle = 'German';
SELECT stream_start('p60 settings', 'p60_src', sink => 'shown', query => $$SELECT shown('2020-01-02 00:00:00+00') FROM batch WHERE _commit_version = 1$$) \g /dev/null
RESET search_path;
RESET DateStyle;
SET TimeZone = 'UTC';
SELECT pg_temp.done('p60 settings') \g /dev/null
SELECT results_eq('SELECT shown FROM p60_schema.shown', ARRAY['mine 02.01.2020 09:00:00 JST'], 'search_path and output settings of the starter');

/*
 * What is shown
 */
SELECT is(to_jsonb(q) - '{id,run_id,last_batch_at,start_version,state_bytes,watermark}'::text[], format('{"query_name": "p60 default", "owner": %s, "source": "p60_src", "sink": "public.p60_default", "status": "running", "output_mode": "append",
	"sink_mode": "append", "trigger": "0 seconds", "batch_id": %s, "processed_version": 8, "lag_versions": 0, "oldest_pending_version": null, "input_rows": 12, "output_rows": 12, "state_rows": 0, "last_error": null}',
	to_json(current_user), batch_id)::jsonb, 'a row of stream_queries') FROM (SELECT pg_temp.done('p60 default')) AS d, stream_queries AS q WHERE query_name = 'p60 default';
SELECT stream_start('p60 record', 'p60_src', sink => 'p60_record', trigger => 'availableNow', options => '{"deduplicationMode": "netChanges", "endingVersion": 4, "startingVersion": 0}') AS id \gset
SELECT stream_await_termination('p60 record', '180 s') \g /dev/null
SELECT array_agg(p ORDER BY (p ->> 'batchId')::bigint) AS records, count(*) AS n FROM stream_recent_progress('p60 record') AS p \gset
SELECT is(:'records'::jsonb[], array_agg(p), 'records come oldest first') FROM stream_recent_progress('p60 record') AS p;
SELECT is(:n, 2, 'one with data, one without');
CREATE TEMP TABLE p60_p AS SELECT (:'records'::jsonb[])[1] AS p, (:'records'::jsonb[])[2] AS q;
SELECT is(stream_last_progress('p60 record'), q, 'the last one') FROM p60_p;
SELECT is(array(SELECT jsonb_object_keys(p) ORDER BY 1), ARRAY['batchDuration', 'batchId', 'durationMs', 'eventTime', 'id', 'name', 'numInputRows', 'processedRowsPerSecond', 'runId', 'sink', 'sources', 'stateOperators', 'timestamp'],
		  'fields; a rate that nobody knows and empty maps are left out') FROM p60_p;
SELECT is(p -> 'id', to_jsonb(:'id'::text), 'id') FROM p60_p;
SELECT is(p ->> 'runId', (SELECT run_id::text FROM stream_queries WHERE query_name = 'p60 record'), 'runId') FROM p60_p;
SELECT is(p -> 'name', '"p60 record"', 'name') FROM p60_p;
SELECT matches(p ->> 'timestamp', '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$', 'timestamp') FROM p60_p;
SELECT is(jsonb_typeof(p -> 'batchDuration'), 'number', 'batchDuration') FROM p60_p;
SELECT is(p -> 'numInputRows', '7', 'numInputRows') FROM p60_p;
SELECT is(array(SELECT jsonb_object_keys(p -> 'durationMs') ORDER BY 1), ARRAY['addBatch', 'commitOffsets', 'getBatch', 'latestOffset', 'queryPlanning', 'triggerExecution', 'walCommit'], 'durationMs') FROM p60_p;
SELECT is(array(SELECT jsonb_object_keys(p -> 'eventTime') ORDER BY 1), ARRAY['avg', 'max', 'min', 'watermark'], 'eventTime') FROM p60_p;
SELECT is(p #>> '{eventTime,watermark}', '1970-01-01T00:00:00.000Z', 'the watermark that the batch used') FROM p60_p;
SELECT is(q #> '{eventTime,watermark}', p #> '{eventTime,max}', 'the next one used what the first had seen') FROM p60_p;
SELECT is(array(SELECT jsonb_object_keys(q -> 'eventTime')), ARRAY['watermark'], 'without rows there are no other times') FROM p60_p;
SELECT is(array(SELECT jsonb_object_keys(p #> '{stateOperators,0}') ORDER BY 1), ARRAY['allRemovalsTimeMs', 'allUpdatesTimeMs', 'commitTimeMs', 'customMetrics', 'memoryUsedBytes', 'numRowsDroppedByWatermark',
	'numRowsRemoved', 'numRowsTotal', 'numRowsUpdated', 'numShufflePartitions', 'numStateStoreInstances', 'operatorName'], 'stateOperators') FROM p60_p;
SELECT is((p #> '{stateOperators,0,numRowsTotal}', q #> '{stateOperators,0,numRowsTotal}', q #> '{stateOperators,0,numRowsRemoved}')::text, '(4,0,4)', 'rows in the state, and out of it') FROM p60_p;
SELECT is((p #> '{sources,0}') - '{latestOffset,processedRowsPerSecond}'::text[], '{"description": "StreamCdc[p60_src]", "startOffset": -1, "endOffset": 4, "numInputRows": 7}', 'sources') FROM p60_p;
SELECT is((p -> 'sink', q -> 'sink')::text, '("{""description"": ""Table[public.p60_record]"", ""numOutputRows"": 0}","{""description"": ""Table[public.p60_record]"", ""numOutputRows"": 3}")', 'sink') FROM p60_p;
SELECT is(stream_last_progress('p60 foreach') #> '{sink,numOutputRows}', '-1', 'nobody knows how many rows a function writes');
SELECT is((array(SELECT stream_explain('p60 join')))[1:5], ARRAY['Source: tracked table "p60_src"', 'Passes: carry-over removal (deduplicationMode dropCarryovers, computeUpdates false, emission by commit)',
	'State: none', 'Trigger: 0 seconds', 'Sink: Table[public.p60_join], append, exactly once'], 'stream_explain');
SELECT ok(string_agg(l, ' ') ~ 'Named Tuplestore Scan' AND string_agg(l, ' ') ~ 'p60_names', 'with the plan') FROM stream_explain('p60 join') AS l;
SELECT ok('State: first and last event of each row identity, in rocksdb' IN (SELECT stream_explain('p60 net')), 'state of net changes');
SELECT ok('State: rows that wait for the watermark, in memory' IN (SELECT stream_explain('p60 memory')), 'state in memory');
SELECT is(stream_exception('p60 default'), NULL, 'no exception');

CREATE ROLE p60_stranger LOGIN;
SET ROLE p60_stranger;
SELECT is(count(*), 0::bigint, 'strangers see name, owner and status')
FROM stream_queries AS q WHERE query_name LIKE 'p60%' AND (num_nulls(query_name, owner, status) > 0 OR num_nonnulls(run_id, source, sink, output_mode, sink_mode, trigger, batch_id,
	start_version, processed_version, lag_versions, watermark, oldest_pending_version, input_rows, output_rows, state_rows, state_bytes, last_batch_at, last_error) > 0);
SELECT ok(count(*) > 20, 'of all queries') FROM stream_queries WHERE query_name LIKE 'p60%';
RESET ROLE;

SELECT stream_drop(query_name) FROM stream_queries WHERE query_name LIKE 'p60%' \g /dev/null
SELECT is_empty('SELECT FROM stream_queries', 'all dropped');
SELECT is_empty('SELECT query_id FROM streamcdc.runs UNION ALL SELECT query_id FROM streamcdc.batches UNION ALL SELECT query_id FROM streamcdc.progress', 'and nothing is left of them');
SELECT is(count(*), 0::bigint, 'nor of their state')
FROM pg_ls_dir(current_setting('data_directory') || '/streamcdc/' || (SELECT oid FROM pg_database WHERE datname = current_database()), true, false);

ALTER SYSTEM RESET streamcdc.max_restarts;
SELECT pg_reload_conf() \g /dev/null
SELECT * FROM finish();
