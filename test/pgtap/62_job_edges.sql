-- Streaming queries at the edges: the first and last bounds there are, identities that are equal and not the same, sinks and
-- sources whose columns change.

SET client_min_messages = warning;
SET TimeZone = 'UTC';

SELECT no_plan();

\ir include/jobs.sql
\ir include/errors.sql

/*
 * Bounds: nothing is after the last version or infinity, nor before the first or -infinity
 */
CREATE TABLE p62_src (id int PRIMARY KEY);
SELECT stream_track('p62_src');
INSERT INTO p62_src VALUES (1);							-- version 1
INSERT INTO p62_src VALUES (2);							-- 2
CREATE TABLE p62_log (id int, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
SELECT stream_register_changelog('p62_log', false, false, false);
INSERT INTO p62_log VALUES (1, 'insert', -9223372036854775808, '-infinity'), (2, 'insert', 0, '2020-01-01'), (3, 'insert', 9223372036854775807, 'infinity');
CREATE TABLE p62_read (query text, id int);
CREATE TEMP TABLE p62_ranges (n int, o jsonb, tracked text, registered text);
INSERT INTO p62_ranges VALUES
	(1, '{"startingVersion": 9223372036854775807, "startingBoundInclusive": false}', NULL, NULL),
	(2, '{"startingVersion": 9223372036854775807}', NULL, '3'),
	(3, '{"startingVersion": -9223372036854775808, "startingBoundInclusive": false}', '1 2', '2 3'),
	(4, '{"startingVersion": -9223372036854775808}', '1 2', '1 2 3'),
	(5, '{"startingVersion": "earliest", "endingVersion": -9223372036854775808, "endingBoundInclusive": false}', NULL, NULL),
	(6, '{"startingVersion": "earliest", "endingVersion": -9223372036854775808}', NULL, '1'),
	(7, '{"startingVersion": "earliest", "endingVersion": 9223372036854775807, "endingBoundInclusive": false}', '1 2', '1 2'),
	(8, '{"startingTimestamp": "infinity", "startingBoundInclusive": false}', NULL, NULL),
	(9, '{"startingTimestamp": "infinity"}', NULL, '3'),
	(10, '{"startingTimestamp": "-infinity", "startingBoundInclusive": false}', '1 2', '2 3'),
	(11, '{"startingTimestamp": "-infinity", "endingTimestamp": "-infinity", "endingBoundInclusive": false}', NULL, NULL),
	(12, '{"startingTimestamp": "-infinity", "endingTimestamp": "-infinity"}', NULL, '1'),
	(13, '{"startingTimestamp": "-infinity", "endingTimestamp": "infinity"}', '1 2', '1 2 3');
SELECT format('SELECT stream_start(''%1$s %2$s'', %1$L, trigger => ''availableNow'', options => %3$L, foreach_batch => ''INSERT INTO p62_read SELECT ''''%1$s %2$s'''', id FROM batch'')', s, n, o)
FROM p62_ranges, unnest('{p62_src,p62_log}'::text[]) AS s ORDER BY s, n \gexec
SELECT ok(bool_and(stream_await_termination(query_name, '180 s')), 'all of them end') FROM stream_queries WHERE query_name ~ '^p62_(src|log) ';
SELECT is((SELECT string_agg(id::text, ' ' ORDER BY id) FROM p62_read WHERE query = 'p62_src ' || n), tracked, 'tracked: ' || o::text) FROM p62_ranges ORDER BY n;
SELECT is((SELECT string_agg(id::text, ' ' ORDER BY id) FROM p62_read WHERE query = 'p62_log ' || n), registered, 'registered: ' || o::text) FROM p62_ranges ORDER BY n;

-- the largest limit is none
SELECT stream_start('p62 limit', 'p62_src', sink => 'p62_limited', options => '{"maxVersionsPerTrigger": 9223372036854775807}') \g /dev/null
SELECT pg_temp.done('p62 limit') \g /dev/null
INSERT INTO p62_src VALUES (3);
SELECT pg_temp.done('p62 limit') \g /dev/null
SELECT results_eq('SELECT id FROM p62_limited ORDER BY id', ARRAY[1, 2, 3], 'the batches after the first one, too');

-- a row without version would be left out for ever
ALTER SYSTEM SET streamcdc.max_restarts = 0;
SELECT pg_reload_conf() \g /dev/null
INSERT INTO p62_log VALUES (4, 'insert', NULL, '2020-01-01');
SELECT stream_start('p62 null', 'p62_log', sink => 'p62_null', trigger => 'availableNow') \g /dev/null
SELECT stream_start('p62 null bound', 'p62_log', sink => 'p62_null_bound', options => '{"startingVersion": 0}', trigger => 'availableNow') \g /dev/null
SELECT throws_ok($$SELECT stream_await_termination('p62 null', '180 s')$$, 'XX001', 'query "p62 null" has failed: _commit_version is null in change log "p62_log"', 'a version that is NULL');
SELECT stream_await_termination('p62 null bound', '180 s') \g /dev/null
SELECT results_eq('SELECT id FROM p62_null_bound ORDER BY id', ARRAY[2, 3], 'is in no range');

-- text versions: what comes later and is before the start is not read, either
CREATE TABLE p62_text (id int, _change_type text, _commit_version text, _commit_timestamp timestamptz);
SELECT stream_register_changelog('p62_text', false, false, false);
SELECT format('SELECT stream_start(%1$L, ''p62_text'', sink => %1$L, options => %2$L)', q, o)
FROM (VALUES ('p62_text_from', '{"startingVersion": "b"}'), ('p62_text_after', '{"startingVersion": "b", "startingBoundInclusive": false}'), ('p62_text_to', '{"startingVersion": "b", "endingVersion": "c"}')) AS w(q, o) \gexec
INSERT INTO p62_text VALUES (1, 'insert', 'a', '2020-01-01');
SELECT pg_temp.done('p62_text_from', 'p62_text_after', 'p62_text_to') \g /dev/null
INSERT INTO p62_text VALUES (2, 'insert', 'b', '2020-01-01'), (3, 'insert', 'bb', '2020-01-01'), (4, 'insert', 'd', '2020-01-01');
SELECT pg_temp.done('p62_text_from', 'p62_text_after', 'p62_text_to') \g /dev/null
SELECT results_eq('SELECT id FROM p62_text_from ORDER BY id', ARRAY[2, 3, 4], 'from a text version on');
SELECT results_eq('SELECT id FROM p62_text_after ORDER BY id', ARRAY[3, 4], 'after it');
SELECT results_eq('SELECT id FROM p62_text_to ORDER BY id', ARRAY[2, 3], 'up to another');

-- times of which the year has more than four digits, or is none of ours
CREATE TABLE p62_times (id int, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
SELECT stream_register_changelog('p62_times', false, true, false, '{id}');
INSERT INTO p62_times VALUES (1, 'insert', 1, '0044-03-15 BC'), (2, 'insert', 2, '10000-01-01');
SELECT stream_start('p62 times', 'p62_times', sink => 'p62_times_sink', options => '{"deduplicationMode": "netChanges", "noDataMicroBatchesEnabled": false}') \g /dev/null
SELECT pg_temp.done('p62 times') \g /dev/null
SELECT is((p -> 'eventTime') - 'avg', '{"min": "-0043-03-15T00:00:00.000Z", "max": "+10000-01-01T00:00:00.000Z", "watermark": "1970-01-01T00:00:00.000Z"}', 'times as ISO 8601 writes them')
FROM stream_last_progress('p62 times') AS p;

/*
 * A start in the middle by time; the table as it is, however small the limit
 */
CREATE TABLE p62_facts (id int PRIMARY KEY, v text);
INSERT INTO p62_facts VALUES (1, 'a');					-- version 0
SELECT stream_track('p62_facts');
SELECT stream_sync('180 s') \g /dev/null
UPDATE p62_facts SET v = 'b';							-- 1
INSERT INTO p62_facts VALUES (2, 'c');					-- 2
INSERT INTO p62_facts VALUES (3, 'd');					-- 3
SELECT stream_sync('180 s') \g /dev/null
SELECT _commit_timestamp AS second FROM stream_versions('p62_facts') WHERE _commit_version = 2 \gset
SELECT format('SELECT stream_start(%1$L, ''p62_facts'', trigger => ''availableNow'', format => %2$L, options => %3$L, foreach_batch => ''INSERT INTO p62_read SELECT ''%1$L'', id FROM batch'')', q, f, o)
FROM (VALUES ('p62 from', 'changes', format('{"startingTimestamp": "%s"}', :'second')), ('p62 after', 'changes', format('{"startingTimestamp": "%s", "startingBoundInclusive": false}', :'second')),
	('p62 to', 'changes', format('{"startingTimestamp": "%1$s", "endingTimestamp": "%1$s"}', :'second')), ('p62 table from', 'table', format('{"startingTimestamp": "%s"}', :'second')),
	('p62 table', 'table', '{"maxVersionsPerTrigger": 1}')) AS w(q, f, o) \gexec
SELECT ok(bool_and(stream_await_termination(q, '180 s')), 'all end') FROM unnest('{p62 from,p62 after,p62 to,p62 table from,p62 table}'::text[]) AS q;
SELECT is((SELECT string_agg(id::text, ' ' ORDER BY id) FROM p62_read WHERE query = q), ids, q)
FROM (VALUES ('p62 from', '2 3'), ('p62 after', '3'), ('p62 to', '2'), ('p62 table from', '2 3'), ('p62 table', '1 2 3')) AS w(q, ids);
SELECT is(start_version, 2::bigint, 'the version that it starts with') FROM stream_queries WHERE query_name = 'p62 from';
-- without a baseline nobody knows the table as it is: what is read is what is inserted
CREATE TABLE p62_bare (id int PRIMARY KEY, v text);
INSERT INTO p62_bare VALUES (1, 'a'), (2, 'b');
SELECT stream_track('p62_bare', baseline => false);
INSERT INTO p62_bare VALUES (3, 'c');					-- 1
UPDATE p62_bare SET v = 'A' WHERE id = 1;				-- 2
DELETE FROM p62_bare WHERE id = 2;						-- 3
INSERT INTO p62_bare VALUES (4, 'd');					-- 4
SELECT stream_start('p62 bare', 'p62_bare', sink => 'p62_bare_sink', format => 'table') \g /dev/null
SELECT throws_ok($$SELECT stream_await_termination('p62 bare', '180 s')$$, '55000', 'query "p62 bare" has failed: version 2 of source table "p62_bare" holds updates or deletes', 'an update of a row that was there before');
SELECT stream_start('p62 bare', 'p62_bare', sink => 'p62_bare_sink', format => 'table', options => '{"skipChangeCommits": true}') \g /dev/null
SELECT pg_temp.done('p62 bare') \g /dev/null
SELECT results_eq('SELECT id, v FROM p62_bare_sink ORDER BY id', $$VALUES (3, 'c'), (4, 'd')$$, 'inserts are read');
-- an end in time comes by itself, whether or not anything was committed after it, or ever
CREATE TABLE p62_never (id int PRIMARY KEY);
SELECT stream_track('p62_never');
SELECT format('SELECT stream_start(%1$L, %2$L, sink => %1$L, trigger => %3$L, options => %4$L)', q, source, t,
	json_build_object('startingTimestamp', :'second', 'endingTimestamp', clock_timestamp(), 'maxVersionsPerTrigger', 1, 'deduplicationMode', 'netChanges'))
FROM (VALUES ('p62_over', 'p62_facts', '0 seconds'), ('p62_over_hourly', 'p62_facts', '1 hour'), ('p62_over_never', 'p62_never', '0 seconds')) AS w(q, source, t) \gexec
SELECT ok(bool_and(stream_await_termination(query_name, '180 s')), 'queries end when their time is over') FROM stream_queries WHERE query_name ~ '^p62_over' AND trigger <> '1 hour';
SELECT results_eq('SELECT id FROM p62_over ORDER BY id', ARRAY[2, 3], 'with all that was committed by then');
SELECT is_empty('TABLE p62_over_never', 'or with nothing');
SELECT is(status, 'running', 'but not between triggers') FROM stream_queries WHERE query_name = 'p62_over_hourly';

-- and not before: what is committed while the time comes is read as stream_changes reads it
SELECT set_config('p62.soon', (clock_timestamp() + '2 s')::text, false) AS soon \gset
SELECT stream_start('p62_soon', 'p62_never', sink => 'p62_soon', options => jsonb_build_object('startingTimestamp', '2000-01-01', 'endingTimestamp', :'soon')) \g /dev/null
DO $$
DECLARE
	n int := 0;
BEGIN
	WHILE n = 0 OR clock_timestamp() <= current_setting('p62.soon')::timestamptz LOOP
		n := n + 1;
		INSERT INTO p62_never VALUES (n);
		COMMIT;
	END LOOP;
END $$;
SELECT ok(stream_await_termination('p62_soon', '180 s'), 'one that waits for its time ends, too');
SELECT set_eq('SELECT id, _commit_version FROM p62_soon', format($$SELECT (row_data ->> 'id')::int, _commit_version FROM stream_changes('p62_never', starting_timestamp => '2000-01-01', ending_timestamp => %L)$$, :'soon'),
			  'with all that was committed by then');
-- a start that is yet to come
SELECT stream_start('p62 future', 'p62_facts', options => '{"startingTimestamp": "infinity"}', sink => 'p62_future') \g /dev/null
INSERT INTO p62_facts VALUES (4, 'e');
SELECT pg_temp.done('p62 future') \g /dev/null
SELECT is_empty('TABLE p62_future', 'what is before the start is left out, though it was captured later');
SELECT stream_stop('p62 future');

/*
 * An identity that is lost: what needs one stops, rather than taking two rows for one
 */
CREATE TABLE p62_lost (id int NOT NULL, v text);
CREATE UNIQUE INDEX p62_lost_id ON p62_lost (id);
SELECT stream_track('p62_lost', identity_columns => '{id}');
SELECT stream_sync('180 s') \g /dev/null
SELECT stream_start('p62 lost net', 'p62_lost', sink => 'p62_lost_net', options => '{"deduplicationMode": "netChanges"}') \g /dev/null
SELECT stream_start('p62 lost mirror', 'p62_lost', sink => 'p62_lost_mirror', sink_mode => 'apply') \g /dev/null
SELECT stream_start('p62 lost', 'p62_lost', sink => 'p62_lost_rows') \g /dev/null
INSERT INTO p62_lost VALUES (1, 'a');					-- version 1
SELECT pg_temp.done('p62 lost net', 'p62 lost mirror', 'p62 lost') \g /dev/null
DROP INDEX p62_lost_id;
INSERT INTO p62_lost VALUES (1, 'b');					-- 2
SELECT pg_temp.done('p62 lost') \g /dev/null
SELECT throws_ok(format('SELECT stream_await_termination(%L, ''180 s'')', q), '42P17', format('query "%s" has failed: table "p62_lost" has no row identity in version 2', q), q)
FROM unnest('{p62 lost net,p62 lost mirror}'::text[]) AS q;
SELECT results_eq('SELECT v FROM p62_lost_mirror', ARRAY['a'], 'the mirror is that of the version before');
SELECT results_eq('SELECT v FROM p62_lost_rows ORDER BY v', ARRAY['a', 'b'], 'events go on');

/*
 * Mirrors: identities that are equal and not the same
 */
CREATE COLLATION p62_folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE p62_number (k numeric PRIMARY KEY, v text);
CREATE TABLE p62_word (k text COLLATE p62_folded PRIMARY KEY, v text);
CREATE TABLE p62_only (k float8 PRIMARY KEY);
SELECT stream_track('p62_number');
SELECT stream_track('p62_word');
SELECT stream_track('p62_only');
CREATE TABLE p62_word_behind (LIKE p62_word INCLUDING ALL);
CREATE VIEW p62_word_view AS SELECT * FROM p62_word_behind;
SELECT stream_start('p62 number', 'p62_number', sink => 'p62_number_mirror', sink_mode => 'apply') \g /dev/null
SELECT stream_start('p62 word', 'p62_word', sink => 'p62_word_mirror', sink_mode => 'apply') \g /dev/null
SELECT stream_start('p62 word net', 'p62_word', sink => 'p62_word_net', sink_mode => 'apply', options => '{"deduplicationMode": "netChanges"}') \g /dev/null
SELECT stream_start('p62 word view', 'p62_word', sink => 'p62_word_view', sink_mode => 'apply') \g /dev/null
SELECT stream_start('p62 only', 'p62_only', sink => 'p62_only_mirror', sink_mode => 'apply') \g /dev/null
INSERT INTO p62_number VALUES (1.0, 'a'), (2, 'b');
INSERT INTO p62_word VALUES ('Ada', 'a'), ('Ben', 'b');
INSERT INTO p62_only VALUES ('-0'), (1);
SELECT pg_temp.done('p62 number', 'p62 word', 'p62 word net', 'p62 word view', 'p62 only') \g /dev/null
UPDATE p62_number SET k = 1.000 WHERE k = 1;
UPDATE p62_word SET k = 'ADA' WHERE k = 'ada';
UPDATE p62_only SET k = 0 WHERE k = 0;
SELECT pg_temp.done('p62 number', 'p62 word', 'p62 word net', 'p62 word view', 'p62 only') \g /dev/null
SELECT results_eq('SELECT k::text, v FROM p62_number_mirror ORDER BY k', $$VALUES ('1.000', 'a'), ('2', 'b')$$, 'a number with more digits');
SELECT results_eq(format('SELECT k COLLATE "C", v FROM %I ORDER BY k', t), $$VALUES ('ADA' COLLATE "C", 'a'), ('Ben', 'b')$$, 'a name in other letters: ' || t)
FROM unnest('{p62_word_mirror,p62_word_net,p62_word_view}'::text[]) AS t;
SELECT results_eq('SELECT k::text FROM p62_only_mirror ORDER BY k', ARRAY['0', '1'], 'zero without its sign');
-- a sink that compares in another way is no mirror
CREATE TABLE p62_other (k text PRIMARY KEY, v text);
SELECT is(pg_temp.told_of($$SELECT stream_start('p62 other', 'p62_word', sink => 'p62_other', sink_mode => 'apply')$$),
		  '42804 / column "k" of the sink compares in another way than the row identity of the source / sink_mode "apply" needs a column of the same type and collation.',
		  'what is one in the source is two in the sink');
CREATE TABLE p62_exact (k text PRIMARY KEY, v text);
SELECT stream_track('p62_exact');
CREATE TABLE p62_folding (k text COLLATE p62_folded PRIMARY KEY, v text);
SELECT matches(pg_temp.told_of($$SELECT stream_start('p62 other', 'p62_exact', sink => 'p62_folding', sink_mode => 'apply')$$), '^42804 ', 'and the other way round');
CREATE TABLE p62_wide (id numeric PRIMARY KEY);
SELECT stream_start('p62 wide', 'p62_src', sink => 'p62_wide', sink_mode => 'apply') \g /dev/null
SELECT pg_temp.done('p62 wide') \g /dev/null
SELECT results_eq('SELECT id::int FROM p62_wide ORDER BY id', ARRAY[1, 2, 3], 'a wider type is one');

-- rows that exchange values of an exclusion constraint
CREATE TABLE p62_places (id int PRIMARY KEY, place int);
SELECT stream_track('p62_places');
CREATE TABLE p62_places_mirror (id int PRIMARY KEY, place int, EXCLUDE (place WITH =));
SELECT stream_start('p62 places', 'p62_places', sink => 'p62_places_mirror', sink_mode => 'apply') \g /dev/null
INSERT INTO p62_places VALUES (1, 1), (2, 2);
SELECT pg_temp.done('p62 places') \g /dev/null
UPDATE p62_places SET place = 3 - place;
SELECT pg_temp.done('p62 places') \g /dev/null
SELECT results_eq('SELECT * FROM p62_places_mirror ORDER BY id', $$VALUES (1, 2), (2, 1)$$, 'an exchange under an exclusion constraint');

-- workers are few
SELECT stream_stop(query_name) FROM stream_queries WHERE status = 'running' \g /dev/null

/*
 * mergeSchema: collations, and what rows have in a column that was added without touching them
 */
CREATE TABLE p62_grown (id int PRIMARY KEY);
INSERT INTO p62_grown VALUES (1), (2);
SELECT stream_track('p62_grown');
SELECT stream_start('p62 grown', 'p62_grown', sink => 'p62_grown_mirror', sink_mode => 'apply', options => '{"mergeSchema": true}') \g /dev/null
SELECT stream_start('p62 grown append', 'p62_grown', sink => 'p62_grown_append', options => '{"mergeSchema": true}') \g /dev/null
SELECT pg_temp.done('p62 grown', 'p62 grown append') \g /dev/null
ALTER TABLE p62_grown ADD COLUMN "a 'b'" text COLLATE "C" DEFAULT 'it''s', ADD COLUMN n int;
INSERT INTO p62_grown VALUES (3, 'new', 3);
UPDATE p62_grown SET n = 1 WHERE id = 1;
SELECT pg_temp.done('p62 grown', 'p62 grown append') \g /dev/null
SELECT results_eq('TABLE p62_grown_mirror ORDER BY id', 'TABLE p62_grown ORDER BY id', 'a mirror has the default in rows that were not touched');
INSERT INTO p62_grown_mirror VALUES (4);
SELECT results_eq('SELECT "a ''b''" FROM p62_grown_mirror WHERE id = 4', ARRAY[NULL::text], 'but no default of its own');
SELECT results_eq('SELECT id, "a ''b''" FROM p62_grown_append WHERE _commit_version = 0 ORDER BY id', $$VALUES (1, NULL::text), (2, NULL)$$, 'appended rows stay what they were');
SELECT is(attcollation::regcollation::text, '"C"', 'the collation comes along: ' || attrelid::regclass)
FROM pg_attribute WHERE attrelid IN ('p62_grown_mirror'::regclass, 'p62_grown_append'::regclass) AND attname = 'a ''b''';

-- rows that wait in the state when that happens have it, too, as they have in stream_changes: whether the state is lost must make no difference
CREATE TABLE p62_waiting (id int PRIMARY KEY);
INSERT INTO p62_waiting VALUES (1);
SELECT stream_track('p62_waiting');
SELECT stream_start('p62 waiting', 'p62_waiting', sink => 'p62_waiting_sink', query => 'SELECT * FROM batch',
					options => '{"deduplicationMode": "netChanges", "mergeSchema": true, "noDataMicroBatchesEnabled": false}') \g /dev/null
SELECT pg_temp.done('p62 waiting') \g /dev/null
ALTER TABLE p62_waiting ADD n int DEFAULT 7;
INSERT INTO p62_waiting VALUES (2);
SELECT pg_temp.done('p62 waiting') \g /dev/null
SELECT results_eq('SELECT id, n FROM p62_waiting_sink', 'VALUES (1, 7)', 'a net change that waits when a column is added');
SELECT stream_stop('p62 waiting') \g /dev/null

-- a view has to be given the column by hand
CREATE TABLE p62_behind (id int PRIMARY KEY);
CREATE VIEW p62_view AS SELECT * FROM p62_behind;
CREATE TABLE p62_growing (id int PRIMARY KEY);
SELECT stream_track('p62_growing');
SELECT is(pg_temp.told_of($$SELECT stream_start('p62 view', 'p62_grown', sink => 'p62_view', query => 'SELECT id, n FROM batch', options => '{"mergeSchema": true}')$$),
		  '42703 / column "n" is missing in view "p62_view" / Add it to the view with CREATE OR REPLACE VIEW.', 'a view without a column');
SELECT stream_start('p62 view', 'p62_growing', sink => 'p62_view', sink_mode => 'apply', options => '{"mergeSchema": true}') \g /dev/null
SELECT pg_temp.done('p62 view') \g /dev/null
ALTER SYSTEM SET streamcdc.max_restarts = 100;			-- it is not tried again
SELECT pg_reload_conf() \g /dev/null
ALTER TABLE p62_growing ADD n int;
INSERT INTO p62_growing VALUES (1, 1);
SELECT is(pg_temp.told_of($$SELECT stream_await_termination('p62 view', '180 s')$$),
		  '42703 / query "p62 view" has failed: column "n" is missing in view "p62_view" / Add it to the view with CREATE OR REPLACE VIEW, then SELECT stream_resume(''p62 view'');',
		  'a column that comes to be');
SELECT matches(pg_temp.told_of($$SELECT stream_resume('p62 view')$$), '^42703 / column "n" is missing in view "p62_view"', 'it cannot go on as long as it is missing');
ALTER TABLE p62_behind ADD n int;
CREATE OR REPLACE VIEW p62_view AS SELECT * FROM p62_behind;
SELECT stream_resume('p62 view') \g /dev/null
SELECT pg_temp.done('p62 view') \g /dev/null
SELECT results_eq('TABLE p62_view', 'TABLE p62_growing', 'when the view has it, the query goes on');
ALTER SYSTEM SET streamcdc.max_restarts = 0;
SELECT pg_reload_conf() \g /dev/null

/*
 * Partitions of a sink
 */
CREATE TABLE p62_kinds (id int PRIMARY KEY, kind int, at timestamptz DEFAULT '2020-01-01 12:00+00', f float8 DEFAULT 0.1::float8 + 0.2);
SELECT stream_track('p62_kinds');
INSERT INTO p62_kinds VALUES (1, 1);
SELECT stream_start('p62 kinds', 'p62_kinds', sink => 'p62_kinds_sink', partition_by => '{kind}', query => 'SELECT id, kind FROM batch') \g /dev/null
SELECT pg_temp.done('p62 kinds') \g /dev/null
-- IST is read as another zone than it is printed for; three digits less and the value is another
SET TimeZone = 'Asia/Kolkata';
SET DateStyle = 'German';
SET extra_float_digits = -3;
SELECT stream_start('p62 shown', 'p62_kinds', sink => 'p62_shown', partition_by => '{at,f}', query => 'SELECT id, at, f FROM batch', trigger => 'availableNow') \g /dev/null
RESET TimeZone;
RESET DateStyle;
RESET extra_float_digits;
SELECT stream_await_termination('p62 shown', '180 s') \g /dev/null
SELECT results_eq('SELECT id, at, f FROM p62_shown', 'SELECT id, at, f FROM p62_kinds', 'values are what they are, whatever they look like to who started the query');
ALTER TABLE p62_kinds ALTER kind TYPE bigint;
INSERT INTO p62_kinds VALUES (2, 2);
SELECT throws_like($$SELECT stream_process_all_available('p62 kinds', '180 s')$$, '%columns of source table "p62_kinds" have changed%', 'another type');
SELECT stream_resume('p62 kinds') \g /dev/null
SELECT pg_temp.done('p62 kinds') \g /dev/null
SELECT results_eq('SELECT id, kind FROM p62_kinds_sink ORDER BY id', $$VALUES (1, 1), (2, 2)$$, 'goes on into partitions by the old one');

/*
 * The source's name
 */
ALTER TABLE p62_kinds RENAME TO "p62 Renamed";
SELECT is(source, '"p62 Renamed"', 'a source that is renamed is shown under its new name') FROM stream_queries WHERE query_name = 'p62 kinds';

/*
 * foreach: functions that are none
 */
CREATE AGGREGATE p62_aggregate(jsonb) (sfunc = jsonb_concat, stype = jsonb);
SELECT is(pg_temp.told_of($$SELECT stream_start('p62 each', 'p62_src', foreach => 'p62_aggregate')$$), '42809 / "p62_aggregate" is an aggregate or a window function', 'an aggregate');
CREATE FUNCTION p62_each(r jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION p62_each_open(partition_id bigint, epoch_id bigint) RETURNS text LANGUAGE sql AS 'SELECT ''false''';
SELECT is(pg_temp.told_of($$SELECT stream_start('p62 each', 'p62_src', foreach => 'p62_each')$$),
		  '42P13 / function public.p62_each_open must return type boolean / It tells whether the rows of a batch are to be processed.', '_open that says neither true nor false');

SELECT * FROM finish();
