-- stream_vacuum: which versions go, what is left of them, and what keeps them.

SET client_min_messages = warning;

SELECT no_plan();
\ir include/errors.sql
\ir include/waiting.sql

-- what folding a whole read comes to, in the table's own form
CREATE FUNCTION pg_temp.folded(table_name text) RETURNS SETOF jsonb
LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format($q$
		WITH c AS (SELECT to_jsonb(row_data) AS r, CASE WHEN _change_type = 'insert' THEN 1 ELSE -1 END AS n FROM stream_changes(NULL::%s))
		SELECT r FROM (SELECT r, sum(n) AS n FROM c GROUP BY r) AS x, generate_series(1, n)$q$, table_name);
END $$;

CREATE FUNCTION pg_temp.shape(name text) RETURNS text
LANGUAGE sql AS $$ SELECT concat_ws(' ', first_version, last_version, changes, baseline_rows, baseline_fraction, status) FROM stream_tables WHERE table_name = name $$;

CREATE TABLE p22_t (id int PRIMARY KEY, v text);
INSERT INTO p22_t VALUES (1, 'a'), (2, 'b'), (3, 'c');
SELECT stream_track('p22_t') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p22_t VALUES (4, 'd');					-- 1
UPDATE p22_t SET v = 'A' WHERE id = 1;				-- 2
DELETE FROM p22_t WHERE id = 2;						-- 3
UPDATE p22_t SET v = 'D' WHERE id = 4;				-- 4
INSERT INTO p22_t VALUES (5, 'e');					-- 5
UPDATE p22_t SET id = 6, v = 'six' WHERE id = 5;	-- 6
SELECT stream_sync('180 s') \g /dev/null
CREATE TABLE p22_before AS SELECT _commit_version, _change_type, row_data, _commit_timestamp FROM stream_changes('p22_t');

/*
 * Arguments and rights
 */
CREATE ROLE p22_other;
GRANT SELECT ON p22_t TO p22_other;
CREATE TABLE p22_plain (id int);
CREATE VIEW p22_view AS TABLE p22_t;
SELECT is(pg_temp.error_of($$SELECT stream_vacuum('p22_t', 3)$$, 'p22_other'), '42501 / must be owner of table p22_t', 'only the owner removes versions');
SELECT is(pg_temp.error_of($$SELECT stream_vacuum(older_than => '0 s')$$, 'p22_other'), 'none', 'who owns nothing removes nothing');
SELECT is(pg_temp.state_of($$SELECT stream_vacuum('p22_plain')$$), '0A000 Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION.', 'a table that is not tracked');
SELECT is(pg_temp.state_of($$SELECT stream_vacuum('p22_view')$$), '0A000 Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION.', 'a view');
SELECT is(pg_temp.state_of($$SELECT stream_vacuum(4294967295::oid::regclass)$$), '42P01 Error condition: TABLE_OR_VIEW_NOT_FOUND.', 'no table');
SELECT is(pg_temp.error_of($$SELECT stream_vacuum('p22_t', older_than => '-1 s')$$), '22023 / older_than must not be negative', 'an age is not negative');

/*
 * Nothing to remove
 */
SELECT is(stream_vacuum('p22_t'), 0::bigint, 'the retention of seven days has not passed');
SELECT is(stream_vacuum('p22_t', 0), 0::bigint, 'nothing is before version 0');
SELECT is(stream_vacuum('p22_t', 1), 0::bigint, 'the baseline is where it can be');
SELECT is(stream_vacuum('p22_t', -9223372036854775808), 0::bigint, 'nor before the least');
SELECT is(stream_vacuum('p22_t', older_than => '1 hour'), 0::bigint, 'nothing is that old');
SELECT is(stream_vacuum('p22_t', 5, '1 hour'), 0::bigint, 'what is given holds together');
SELECT is(pg_temp.shape('p22_t'), '0 6 9 3 1 streaming', 'and nothing has changed');

/*
 * The baseline moves
 */
SELECT is(stream_vacuum('p22_t', 4), 3::bigint, 'versions 1 to 3 go, the baseline is none');
SELECT is(stream_vacuum('p22_t', 4), 0::bigint, 'once');
SELECT is(pg_temp.shape('p22_t'), '4 6 6 3 1 streaming', 'the oldest version, and the rows of the baseline');
SELECT results_eq($$SELECT _commit_version, _change_type, row_data, _commit_timestamp FROM stream_changes('p22_t', 4)$$,
	'SELECT * FROM p22_before WHERE _commit_version >= 4', 'what is left is what it was');
SELECT results_eq($$SELECT _commit_version, _change_type, row_data, _commit_timestamp FROM stream_changes('p22_t', 3, starting_bound_inclusive => false)$$,
	'SELECT * FROM p22_before WHERE _commit_version >= 4', 'an exclusive start just before the oldest');
SELECT results_eq($$SELECT row_data, _change_type, _commit_version FROM stream_changes('p22_t') WHERE _commit_version < 4 ORDER BY row_data->'id'$$,
	$$VALUES ('{"v": "A", "id": 1}'::jsonb, 'insert', 3::bigint), ('{"v": "c", "id": 3}', 'insert', 3), ('{"v": "d", "id": 4}', 'insert', 3)$$,
	'a read from the beginning begins with the rows that there were after the last version removed');
SELECT is((SELECT DISTINCT _commit_timestamp FROM stream_changes('p22_t') WHERE _commit_version = 3),
	(SELECT DISTINCT _commit_timestamp FROM p22_before WHERE _commit_version = 3), 'and has its time');
SELECT bag_eq($$SELECT pg_temp.folded('p22_t')$$, 'SELECT to_jsonb(p22_t) FROM p22_t', 'and comes to the table');
SELECT bag_eq($$SELECT (row_data).* FROM stream_changes(NULL::p22_t, deduplication_mode => 'netChanges')$$, 'TABLE p22_t', 'also as net changes');
SELECT results_eq($$SELECT _commit_version, inserts, updates, deletes, xid IS NULL FROM stream_versions('p22_t')$$,
	$$VALUES (3::bigint, 3::bigint, 0::bigint, 0::bigint, true), (4, 0, 1, 0, false), (5, 1, 0, 0, false), (6, 0, 1, 0, false)$$, 'stream_versions');
SELECT is((SELECT string_agg(event || _commit_version, ' ' ORDER BY _commit_version, event_number) FROM stream_events('p22_t')),
	'insert3 insert3 insert3 update4 insert5 update6', 'stream_events');
SELECT is(stream_latest_version('p22_t'), 6::bigint, 'the newest version is the same');
SELECT is(stream_version_at('p22_t', (SELECT max(_commit_timestamp) FROM p22_before WHERE _commit_version = 3)), 3::bigint, 'the last version removed is known by its time');
SELECT is(stream_version_at('p22_t', (SELECT max(_commit_timestamp) FROM p22_before WHERE _commit_version = 2)), NULL, 'those before are not');

/*
 * Ranges that need what is gone
 */
SELECT is(pg_temp.error_of(format($$SELECT * FROM %s('p22_t', %s)$$, f, v)),
	format('55000 / version %s of table "p22_t" is not retained / The oldest version is 4.', greatest(v, 0)), format('%s from version %s', f, v))
FROM unnest('{stream_changes,stream_events,stream_versions}'::text[]) AS f, unnest('{3,2,0,-1}'::int[]) AS v;
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes(NULL::p22_t, 1, 2)$$), '55000 / version 1 of table "p22_t" is not retained / The oldest version is 4.', 'a range that is gone as a whole');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('p22_t', 2, starting_bound_inclusive => false)$$),
	'55000 / version 3 of table "p22_t" is not retained / The oldest version is 4.', 'an exclusive start before that');
SELECT is((pg_temp.raised(format($$SELECT * FROM stream_changes('p22_t', starting_timestamp => %L)$$, t))).state, state, what)
FROM (VALUES ((SELECT max(_commit_timestamp) FROM p22_before WHERE _commit_version = 3) + interval '1 us', NULL, 'a time after the last version removed'),
	((SELECT max(_commit_timestamp) FROM p22_before WHERE _commit_version = 3), '55000', 'its very time'),
	('-infinity', '55000', 'the beginning of time')) AS x (t, state, what);
SELECT is((pg_temp.raised(format($$SELECT * FROM stream_changes('p22_t', starting_timestamp => %L, starting_bound_inclusive => false)$$,
	(SELECT max(_commit_timestamp) FROM p22_before WHERE _commit_version = 3)))).state, NULL, 'after its very time');

-- all of it
SELECT is(stream_vacuum('p22_t', 5) + stream_vacuum('p22_t', 6), 2::bigint, 'twice in one command');
SELECT is(stream_vacuum('p22_t', older_than => '0 s'), 1::bigint, 'all versions are older than now');
SELECT is(pg_temp.shape('p22_t'), '7 6 4 4 1 streaming', 'the oldest version is yet to come');
SELECT bag_eq($$SELECT pg_temp.folded('p22_t')$$, 'SELECT to_jsonb(p22_t) FROM p22_t', 'the baseline is the table');
SELECT is_empty($$SELECT * FROM stream_changes('p22_t', 7)$$, 'after it there is nothing');
INSERT INTO p22_t VALUES (8, 'h');
SELECT results_eq($$SELECT _commit_version, row_data FROM stream_changes('p22_t', 7)$$, $$VALUES (7::bigint, '{"v": "h", "id": 8}'::jsonb)$$, 'versions go on');
SELECT is(stream_vacuum('p22_t', 9223372036854775807), 1::bigint, 'a version that is far away means all');

/*
 * Versions that share blocks, and versions of many blocks
 */
CREATE TABLE p22_many (id int PRIMARY KEY, v text);
SELECT stream_track('p22_many') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p22_many SELECT i, repeat(md5(i::text), 20) FROM generate_series(1, 6000) AS i;		-- 1, some MB
DO $$ BEGIN FOR i IN 1 .. 300 LOOP UPDATE p22_many SET v = i WHERE id = i; COMMIT; END LOOP; END $$;	-- 2 to 301
INSERT INTO p22_many SELECT i, repeat(md5(i::text), 20) FROM generate_series(6001, 9000) AS i;	-- 302
UPDATE p22_many SET v = 'x' WHERE id = 1;																-- 303
SELECT stream_sync('180 s') \g /dev/null
CREATE TABLE p22_many_before AS SELECT _commit_version, _change_type, md5(row_data::text) AS row, _commit_timestamp FROM stream_changes('p22_many', 1);
CREATE FUNCTION pg_temp.same_after(first bigint) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT concat_ws(' ', stream_vacuum('p22_many', first),
		-- a difference, or in the fold
		(SELECT count(*) FROM ((SELECT _commit_version, _change_type, md5(row_data::text), _commit_timestamp FROM stream_changes('p22_many', first)
			EXCEPT ALL (SELECT * FROM p22_many_before WHERE _commit_version >= first))
			UNION ALL ((SELECT * FROM p22_many_before WHERE _commit_version >= first)
			EXCEPT ALL SELECT _commit_version, _change_type, md5(row_data::text), _commit_timestamp FROM stream_changes('p22_many', first))) AS d)));
END $$;
SELECT is(pg_temp.same_after(2), '1 0', 'a version of many blocks goes');
SELECT bag_eq($$SELECT pg_temp.folded('p22_many')$$, 'SELECT to_jsonb(p22_many) FROM p22_many', 'and what is left comes to the table');
SELECT is(pg_temp.same_after(150), '148 0', 'a block is cut in the middle');
SELECT is(pg_temp.same_after(151), '1 0', 'and again');
SELECT is(pg_temp.same_after(302), '151 0', 'up to a version of many blocks');
SELECT is(pg_temp.same_after(303), '1 0', 'and that one goes');
SELECT bag_eq($$SELECT pg_temp.folded('p22_many')$$, 'SELECT to_jsonb(p22_many) FROM p22_many', 'what is left comes to the table still');
SELECT is((SELECT count(*) FROM stream_versions('p22_many')), 2::bigint, 'the baseline and a version');

/*
 * Columns that change
 */
CREATE TABLE p22_columns (id int PRIMARY KEY, a text, b text, c int);
SELECT stream_track('p22_columns') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p22_columns VALUES (1, 'a', 'b', 1), (2, 'a', 'b', 2);						-- 1
ALTER TABLE p22_columns ADD COLUMN d text DEFAULT 'dd';
INSERT INTO p22_columns VALUES (3, 'a', 'b', 3, 'new');									-- 2
ALTER TABLE p22_columns DROP COLUMN b;
ALTER TABLE p22_columns RENAME COLUMN a TO aa;
UPDATE p22_columns SET c = 20 WHERE id = 2;												-- 3
ALTER TABLE p22_columns ALTER COLUMN c TYPE text USING 'c' || c;						-- 4
INSERT INTO p22_columns VALUES (4, 'a', 'four', 'dddd');								-- 5
SELECT is(stream_vacuum('p22_columns', 4), 3::bigint, 'versions of several sets of columns');
SELECT bag_eq($$SELECT pg_temp.folded('p22_columns')$$, 'SELECT to_jsonb(p22_columns) FROM p22_columns', 'come to the table');
SELECT is(stream_vacuum('p22_columns', 6), 2::bigint, 'also with a rewrite');
SELECT bag_eq($$SELECT (row_data).* FROM stream_changes(NULL::p22_columns)$$, 'TABLE p22_columns', 'come to the table still');

/*
 * Tables without identity, and that lose it
 */
CREATE TABLE p22_rows (a int, b text);
INSERT INTO p22_rows SELECT 1, 'x' FROM generate_series(1, 3);
INSERT INTO p22_rows VALUES (2, NULL), (3, repeat('long', 3000));
SELECT stream_track('p22_rows') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
DELETE FROM p22_rows WHERE ctid = (SELECT min(ctid) FROM p22_rows WHERE a = 1);			-- 1
ALTER TABLE p22_rows ADD COLUMN c int DEFAULT 5;
INSERT INTO p22_rows VALUES (1, 'x', 5);												-- 2: like two that are there
UPDATE p22_rows SET a = 10 WHERE ctid = (SELECT max(ctid) FROM p22_rows WHERE a = 1);	-- 3
DELETE FROM p22_rows WHERE a = 2;														-- 4
UPDATE p22_rows SET c = 6 WHERE a = 3;													-- 5
INSERT INTO p22_rows VALUES (2, NULL, NULL);											-- 6
SELECT is(stream_vacuum('p22_rows', 3), 2::bigint, 'rows without identity are counted');
SELECT bag_eq($$SELECT pg_temp.folded('p22_rows')$$, 'SELECT to_jsonb(p22_rows) FROM p22_rows', 'and come to the table');
SELECT is(stream_vacuum('p22_rows', 7), 4::bigint, 'all of them');
SELECT bag_eq($$SELECT (row_data).* FROM stream_changes(NULL::p22_rows)$$, 'TABLE p22_rows', 'come to the table still');

CREATE TABLE p22_lost (id int PRIMARY KEY, v text);
INSERT INTO p22_lost VALUES (1, 'a'), (2, 'b');
SELECT stream_track('p22_lost') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
UPDATE p22_lost SET v = 'A' WHERE id = 1;												-- 1
ALTER TABLE p22_lost DROP CONSTRAINT p22_lost_pkey;
INSERT INTO p22_lost VALUES (1, 'A'), (2, 'c');											-- 2: twice
DELETE FROM p22_lost WHERE ctid = (SELECT min(ctid) FROM p22_lost WHERE v = 'A');		-- 3
SELECT is(stream_vacuum('p22_lost', 4), 3::bigint, 'a table that has lost its identity');
SELECT bag_eq($$SELECT (row_data).* FROM stream_changes(NULL::p22_lost)$$, 'TABLE p22_lost', 'comes to the table');

/*
 * Without a baseline
 */
CREATE TABLE p22_none (id int PRIMARY KEY);
INSERT INTO p22_none VALUES (-1);
SELECT stream_track('p22_none', baseline => false) \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p22_none VALUES (1);
INSERT INTO p22_none VALUES (2);
INSERT INTO p22_none VALUES (3);
SELECT is(stream_vacuum('p22_none', 3), 2::bigint, 'a table without baseline');
SELECT results_eq($$SELECT _commit_version, row_data FROM stream_changes('p22_none')$$, $$VALUES (3::bigint, '{"id": 3}'::jsonb)$$, 'has none afterwards');
SELECT results_eq($$SELECT _commit_version FROM stream_versions('p22_none')$$, 'VALUES (3::bigint)', 'nor a version for it');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('p22_none', 2)$$), '55000 / version 2 of table "p22_none" is not retained / The oldest version is 3.', 'what is gone is an error');
SELECT is(stream_vacuum('p22_none', older_than => '0 s'), 1::bigint, 'all of it goes');
SELECT is(pg_temp.shape('p22_none'), '4 3 0 streaming', 'and the next version is known');
INSERT INTO p22_none VALUES (4);
SELECT results_eq($$SELECT _commit_version, row_data FROM stream_changes('p22_none')$$, $$VALUES (4::bigint, '{"id": 4}'::jsonb)$$, 'versions go on');

-- a table that is tracked again goes on with versions, too, and forgets none
SELECT stream_untrack('p22_t') \g /dev/null
SELECT stream_track('p22_t') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
SELECT is(pg_temp.shape('p22_t'), '8 8 5 5 1 streaming', 'tracked again after all versions were removed');
UPDATE p22_t SET v = 'z' WHERE id = 1;
UPDATE p22_t SET v = 'zz' WHERE id = 1;
SELECT is(stream_vacuum('p22_t', 10), 1::bigint, 'counts from its baseline');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('p22_t', 9)$$), '55000 / version 9 of table "p22_t" is not retained / The oldest version is 10.', 'that has moved');

/*
 * Gaps
 */
CREATE TABLE p22_gap (id int PRIMARY KEY);
INSERT INTO p22_gap VALUES (1);
SELECT stream_track('p22_gap', on_truncate => 'gap') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p22_gap VALUES (2);			-- 1
TRUNCATE p22_gap;						-- 2
INSERT INTO p22_gap VALUES (3);			-- 3
INSERT INTO p22_gap VALUES (4);			-- 4
SELECT is(stream_vacuum('p22_gap', 2), 1::bigint, 'up to a gap');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('p22_gap')$$),
	'55000 / there is a gap in the changes of table "p22_gap" at version 2 / The table was truncated; which rows that took away was not recorded.', 'which stays');
SELECT is(stream_vacuum('p22_gap', 4), 2::bigint, 'across it');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('p22_gap')$$),
	'55000 / there is a gap in the changes of table "p22_gap" at version 3 / Changes of this version were not recorded.', 'the baseline is not known any more');
SELECT results_eq($$SELECT row_data FROM stream_changes('p22_gap', 4)$$, $$VALUES ('{"id": 4}'::jsonb)$$, 'what comes after it is');

/*
 * Dropped tables
 */
CREATE TABLE p22_dropped (id int PRIMARY KEY);
SELECT stream_track('p22_dropped') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p22_dropped VALUES (1);
INSERT INTO p22_dropped VALUES (2);
ALTER TABLE p22_dropped OWNER TO p22_other;
DROP TABLE p22_dropped;
SELECT is((SELECT count(*) FROM stream_changes('p22_dropped')), 2::bigint, 'a dropped table has its log');
-- capture says so in its own time
CALL pg_temp.wait_until($$last_version IS NOT NULL FROM streamcdc.streams WHERE table_name = 'p22_dropped'$$);
SET ROLE p22_other;
SELECT stream_vacuum(before_version => 2) \g /dev/null
RESET ROLE;
SELECT is((SELECT max(first_version) FROM stream_tables WHERE table_name LIKE 'p22_dropped%'), 2::bigint, 'its last owner removes versions');
SELECT results_eq($$SELECT _commit_version, row_data FROM stream_changes('p22_dropped')$$, $$VALUES (1::bigint, '{"id": 1}'::jsonb), (2, '{"id": 2}')$$, 'and reads the rest');
SET ROLE p22_other;
SELECT is(stream_vacuum(older_than => '0 s'), 1::bigint, 'and all of it');
RESET ROLE;
SELECT is_empty($$SELECT * FROM stream_tables WHERE table_name LIKE 'p22_dropped%'$$, 'then nothing is left of it');
SELECT is((pg_temp.raised($$SELECT * FROM stream_changes('p22_dropped')$$)).state, '42P01', 'not even its name');
SELECT is_empty($$SELECT * FROM streamcdc.blocks WHERE stream_id NOT IN (SELECT stream_id FROM streamcdc.streams WHERE state <> 'u')$$, 'no block is without a stream');

/*
 * Queries keep what they need
 */
CREATE TABLE p22_src (id int PRIMARY KEY, v int);
INSERT INTO p22_src VALUES (1, 0), (2, 0);
SELECT stream_track('p22_src') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
SELECT stream_start('p22_raw', 'p22_src', sink => 'p22_raw_sink') \g /dev/null
SELECT stream_process_all_available('p22_raw', '180 s') \g /dev/null
UPDATE p22_src SET v = 1 WHERE id = 1;			-- 1
UPDATE p22_src SET v = 2 WHERE id = 1;			-- 2
SELECT stream_process_all_available('p22_raw', '180 s') \g /dev/null
SELECT stream_stop('p22_raw') \g /dev/null
UPDATE p22_src SET v = 3 WHERE id = 1;			-- 3
UPDATE p22_src SET v = 4 WHERE id = 1;			-- 4
SELECT is(stream_vacuum('p22_src', older_than => '0 s'), 2::bigint, 'a query that is stopped keeps what it has not read, and nothing else');
SELECT is(stream_vacuum('p22_src', 5), 0::bigint, 'whatever is asked for');
SELECT stream_resume('p22_raw') \g /dev/null
SELECT stream_process_all_available('p22_raw', '180 s') \g /dev/null
SELECT results_eq('SELECT _commit_version, _change_type, v FROM p22_raw_sink WHERE id = 1 ORDER BY _commit_version, v',
	$$VALUES (0::bigint, 'insert', 0), (1, 'delete', 0), (1, 'insert', 1), (2, 'delete', 1), (2, 'insert', 2), (3, 'delete', 2), (3, 'insert', 3), (4, 'delete', 3), (4, 'insert', 4)$$,
	'and misses nothing');
SELECT is(stream_vacuum('p22_src', older_than => '0 s'), 2::bigint, 'then it goes');

-- one that has not begun, and one that is stopped for ever
SELECT is((pg_temp.raised($$SELECT stream_start('p22_new', 'p22_src', sink => 'p22_new_sink')$$))::text,
	'(55000,"version 0 of table ""p22_src"" is not retained","The oldest version is 5.","Start with startingVersion ""earliest"" or ""latest"".")', 'a query without a start begins with version 0');
SELECT is((pg_temp.raised(format($$SELECT stream_start('p22_new', 'p22_src', sink => 'p22_new_sink', options => '{"startingVersion": %s}')$$, v))).state, '55000', format('from version %s', v))
FROM unnest('{4,1,0,-3}'::int[]) AS v;
SELECT is((pg_temp.raised($$SELECT stream_start('p22_new', 'p22_src', sink => 'p22_new_sink', options => '{"startingTimestamp": "2000-01-01"}')$$)).state, '55000', 'from long ago');
-- the last version that is gone, by its time
SELECT stream_version_at('p22_src', 'infinity') AS at_four, last_commit_timestamp AS four FROM stream_tables WHERE table_name = 'p22_src' \gset
SELECT is(:at_four, 4, 'the baseline has the time of version 4');
SELECT is((pg_temp.raised(format($$SELECT stream_start('p22_new', 'p22_src', sink => 'p22_new_sink', options => '{"startingTimestamp": "%s"}')$$, :'four'))).state, '55000', 'from its time on');
SELECT stream_start('p22_after', 'p22_src', sink => 'p22_after_sink', options => format('{"startingTimestamp": "%s", "startingBoundInclusive": false}', :'four')::jsonb) \g /dev/null
SELECT stream_start('p22_new', 'p22_src', sink => 'p22_new_sink', sink_mode => 'apply', options => '{"startingVersion": "earliest"}') \g /dev/null
SELECT stream_process_all_available('p22_new', '180 s') \g /dev/null
SELECT bag_eq('TABLE p22_new_sink', 'TABLE p22_src', 'a mirror begins with the baseline');
SELECT is((SELECT start_version FROM stream_queries WHERE query_name = 'p22_new'), 4::bigint, 'wherever that is');
SELECT stream_start('p22_table', 'p22_src', sink => 'p22_table_sink', format => 'table', options => '{"startingVersion": "earliest"}') \g /dev/null
SELECT stream_process_all_available('p22_table', '180 s') \g /dev/null
SELECT bag_eq('TABLE p22_table_sink', 'TABLE p22_src', 'and so does a table');
SELECT stream_start('p22_five', 'p22_src', sink => 'p22_five_sink', options => '{"startingVersion": 5}') \g /dev/null
INSERT INTO p22_src VALUES (3, 0);				-- 5
SELECT stream_process_all_available(q, '180 s') FROM unnest('{p22_new,p22_table,p22_five,p22_after}'::text[]) AS q \g /dev/null
SELECT results_eq('SELECT _commit_version, id FROM p22_five_sink', 'VALUES (5::bigint, 3)', 'the oldest version is a start');
SELECT results_eq('SELECT _commit_version, id FROM p22_after_sink', 'VALUES (5::bigint, 3)', 'after the time of the last one that is gone, too');
SELECT stream_drop('p22_after') \g /dev/null
SELECT bag_eq('TABLE p22_new_sink', 'TABLE p22_src', 'the mirror follows');
-- one that has come to its end keeps nothing
SELECT stream_stop(q) FROM unnest('{p22_new,p22_table,p22_five}'::text[]) AS q \g /dev/null
SELECT stream_start('p22_ends', 'p22_src', sink => 'p22_ends_sink', options => '{"startingVersion": 5, "endingVersion": 5}') \g /dev/null
SELECT stream_await_termination('p22_ends', '180 s') \g /dev/null
INSERT INTO p22_src VALUES (4, 0);				-- 6
SELECT is(stream_vacuum('p22_src', 7), 1::bigint, 'queries that were stopped have not read the last version');
SELECT stream_drop(q) FROM unnest('{p22_new,p22_table,p22_five}'::text[]) AS q \g /dev/null
SELECT is(stream_vacuum('p22_src', 7), 1::bigint, 'one that has ended does not need it');
SELECT stream_drop(q) FROM unnest('{p22_raw,p22_ends}'::text[]) AS q \g /dev/null

/*
 * Settings
 */
SELECT results_eq($$SELECT name, setting, unit, min_val, context FROM pg_settings WHERE name IN ('streamcdc.retention', 'streamcdc.max_job_retention') ORDER BY 1$$,
	$$VALUES ('streamcdc.max_job_retention', '1209600', 's', '-1', 'sighup'), ('streamcdc.retention', '604800', 's', '0', 'sighup')$$, 'the settings');
SELECT is(current_setting('streamcdc.retention') || ' ' || current_setting('streamcdc.max_job_retention'), '7d 14d', 'seven and fourteen days');

-- a table's own retention is applied by stream_vacuum without more ado
CREATE TABLE p22_own (id int PRIMARY KEY);
SELECT stream_track('p22_own', retention => '1 day') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p22_own VALUES (1);
SELECT is(stream_vacuum('p22_own'), 0::bigint, 'one day has not passed');
SELECT stream_alter('p22_own', retention => '1 us') \g /dev/null
SELECT ok(stream_vacuum('p22_own') BETWEEN 0 AND 1, 'a microsecond has, unless somebody was faster');
SELECT is((SELECT first_version FROM stream_tables WHERE table_name = 'p22_own'), 2::bigint, 'the version is gone');
SELECT stream_alter('p22_own', retention => '0') \g /dev/null
INSERT INTO p22_own VALUES (2);
SELECT is(stream_vacuum('p22_own'), 0::bigint, '0 keeps them for ever');

SELECT stream_untrack(t::regclass) FROM unnest('{p22_t,p22_many,p22_columns,p22_rows,p22_lost,p22_none,p22_gap,p22_src,p22_own}'::text[]) AS t \g /dev/null
DROP VIEW p22_view;
DROP TABLE p22_t, p22_before, p22_many, p22_many_before, p22_columns, p22_rows, p22_lost, p22_none, p22_gap, p22_src, p22_own, p22_plain,
	p22_raw_sink, p22_new_sink, p22_table_sink, p22_five_sink, p22_ends_sink;
DROP ROLE p22_other;
SELECT * FROM finish();
