-- What stream_changes answers: modes, netting inside a commit, key changes, ranges, types.
-- Commits are what is tested, so nothing here runs in one big transaction.  stream_sync after stream_track: what is
-- committed before the baseline's snapshot is part of the baseline.

SET client_min_messages = warning;

SELECT plan(60);

-- Rows of a query with the columns of stream_changes, on one line each.
CREATE FUNCTION pg_temp.feed(arguments text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('SELECT string_agg(_commit_version || '' '' || _change_type || '' '' || row_data::text, E''\n'' ORDER BY n)
		FROM (SELECT row_number() OVER () AS n, * FROM stream_changes(%s)) AS c', arguments) INTO result;
	RETURN result;
END $$;

/*
 * A table with a primary key
 */
CREATE TABLE p10_keyed (id int PRIMARY KEY, v text);
INSERT INTO p10_keyed VALUES (1, 'a'), (2, 'b'), (3, 'c');
SELECT stream_track('p10_keyed');
SELECT stream_sync('180 s') \g /dev/null

SELECT is(pg_temp.feed($$'p10_keyed'$$),
	'0 insert {"v": "a", "id": 1}' || E'\n' ||
	'0 insert {"v": "b", "id": 2}' || E'\n' ||
	'0 insert {"v": "c", "id": 3}',
	'the baseline is version 0, all inserts');

INSERT INTO p10_keyed VALUES (4, 'd');						-- 1
SELECT is(pg_temp.feed($$'p10_keyed', 1, 1$$), '1 insert {"v": "d", "id": 4}', 'an insert is there at once');

UPDATE p10_keyed SET v = 'A' WHERE id = 1;					-- 2
SELECT is(pg_temp.feed($$'p10_keyed', 2, 2$$),
	E'2 delete {"v": "a", "id": 1}\n2 insert {"v": "A", "id": 1}', 'an update is delete and insert');
SELECT is(pg_temp.feed($$'p10_keyed', 2, 2, compute_updates => true$$),
	E'2 update_preimage {"v": "a", "id": 1}\n2 update_postimage {"v": "A", "id": 1}', 'or a pair of images');
SELECT is(pg_temp.feed($$'p10_keyed', 2, 2, deduplication_mode => 'none'$$),
	E'2 delete {"v": "a", "id": 1}\n2 insert {"v": "A", "id": 1}', 'mode none: delete and insert');
SELECT is(pg_temp.feed($$'p10_keyed', 2, 2, deduplication_mode => 'netChanges'$$),
	E'2 delete {"v": "a", "id": 1}\n2 insert {"v": "A", "id": 1}', 'mode netChanges: delete and insert');
SELECT is(pg_temp.feed($$'p10_keyed', 2, 2, deduplication_mode => 'netChanges', compute_updates => true$$),
	E'2 update_preimage {"v": "a", "id": 1}\n2 update_postimage {"v": "A", "id": 1}', 'mode netChanges with updates: a pair');

DELETE FROM p10_keyed WHERE id = 2;							-- 3
SELECT is(pg_temp.feed($$'p10_keyed', 3, 3, compute_updates => true$$), '3 delete {"v": "b", "id": 2}', 'a delete shows the old row');

UPDATE p10_keyed SET v = v WHERE id = 3;					-- 4
SELECT is(pg_temp.feed($$'p10_keyed', 4, 4$$), NULL, 'a carry-over is dropped');
SELECT is(pg_temp.feed($$'p10_keyed', 4, 4, compute_updates => true$$), NULL, 'also when updates are wanted');
SELECT is(pg_temp.feed($$'p10_keyed', 4, 4, deduplication_mode => 'NONE'$$),
	E'4 delete {"v": "c", "id": 3}\n4 insert {"v": "c", "id": 3}', 'mode none shows it, in any letter case');
SELECT is(pg_temp.feed($$'p10_keyed', 4, 4, deduplication_mode => 'netChanges'$$), NULL, 'netChanges drops it too');

UPDATE p10_keyed SET id = 30 WHERE id = 3;					-- 5
SELECT is(pg_temp.feed($$'p10_keyed', 5, 5, compute_updates => true$$),
	E'5 delete {"v": "c", "id": 3}\n5 insert {"v": "c", "id": 30}', 'a key change is delete and insert, never an update');

BEGIN;														-- 6
UPDATE p10_keyed SET id = -1 WHERE id = 1;
UPDATE p10_keyed SET id = 1 WHERE id = 4;
UPDATE p10_keyed SET id = 4 WHERE id = -1;
COMMIT;
SELECT is(pg_temp.feed($$'p10_keyed', 6, 6, compute_updates => true$$),
	'6 update_preimage {"v": "A", "id": 1}' || E'\n' ||
	'6 update_postimage {"v": "d", "id": 1}' || E'\n' ||
	'6 update_preimage {"v": "d", "id": 4}' || E'\n' ||
	'6 update_postimage {"v": "A", "id": 4}',
	'a swap of two keys is an update of both');

BEGIN;														-- 7
INSERT INTO p10_keyed VALUES (5, 'e');
UPDATE p10_keyed SET v = 'ee' WHERE id = 5;
UPDATE p10_keyed SET v = 'eee' WHERE id = 5;
COMMIT;
SELECT is(pg_temp.feed($$'p10_keyed', 7, 7$$), '7 insert {"v": "eee", "id": 5}', 'insert and updates are an insert of the last image');
SELECT is(pg_temp.feed($$'p10_keyed', 7, 7, deduplication_mode => 'none'$$), '7 insert {"v": "eee", "id": 5}', 'netted with mode none too');

BEGIN;														-- 8
INSERT INTO p10_keyed VALUES (6, 'f');
DELETE FROM p10_keyed WHERE id = 6;
COMMIT;
SELECT is(pg_temp.feed($$'p10_keyed', 8, 8, deduplication_mode => 'none'$$), NULL, 'insert and delete are nothing');

BEGIN;														-- 9
DELETE FROM p10_keyed WHERE id = 5;
INSERT INTO p10_keyed VALUES (5, 'E');
COMMIT;
SELECT is(pg_temp.feed($$'p10_keyed', 9, 9, compute_updates => true$$),
	E'9 update_preimage {"v": "eee", "id": 5}\n9 update_postimage {"v": "E", "id": 5}', 'delete and insert are an update');

BEGIN;														-- 10
UPDATE p10_keyed SET v = 'x' WHERE id = 5;
UPDATE p10_keyed SET v = 'E' WHERE id = 5;
COMMIT;
SELECT is(pg_temp.feed($$'p10_keyed', 10, 10$$), NULL, 'A to B to A is a carry-over');
SELECT is(pg_temp.feed($$'p10_keyed', 10, 10, deduplication_mode => 'none'$$),
	E'10 delete {"v": "E", "id": 5}\n10 insert {"v": "E", "id": 5}', 'which mode none shows');

BEGIN;														-- 11
INSERT INTO p10_keyed VALUES (13, 'm'), (11, 'k'), (12, 'l');
UPDATE p10_keyed SET v = 'K' WHERE id = 11;
DELETE FROM p10_keyed WHERE id = 30;
COMMIT;
SELECT is(pg_temp.feed($$'p10_keyed', 11, 11$$),
	'11 insert {"v": "m", "id": 13}' || E'\n' ||
	'11 insert {"v": "l", "id": 12}' || E'\n' ||
	'11 insert {"v": "K", "id": 11}' || E'\n' ||
	'11 delete {"v": "c", "id": 30}',
	'a netted change stands at the place of its last event');

BEGIN;														-- 12
UPDATE p10_keyed SET id = 130 WHERE id = 13;
UPDATE p10_keyed SET v = 'M' WHERE id = 130;
UPDATE p10_keyed SET id = 13 WHERE id = 130;
COMMIT;
SELECT is(pg_temp.feed($$'p10_keyed', 12, 12, compute_updates => true$$),
	E'12 update_preimage {"v": "m", "id": 13}\n12 update_postimage {"v": "M", "id": 13}', 'a key that goes and comes back is one update');

BEGIN;														-- 13
DELETE FROM p10_keyed WHERE id = 12;
DELETE FROM p10_keyed WHERE id = 11;
COMMIT;
SELECT is(pg_temp.feed($$'p10_keyed', 13$$),
	E'13 delete {"v": "l", "id": 12}\n13 delete {"v": "K", "id": 11}', 'a commit of deletes');

-- the whole history
SELECT is(pg_temp.feed($$'p10_keyed', deduplication_mode => 'netChanges', compute_updates => true$$),
	(SELECT string_agg(format('%s insert {"v": "%s", "id": %s}', version, p.v, p.id), E'\n' ORDER BY version, id)
	 FROM p10_keyed AS p JOIN (VALUES (1, 6), (4, 6), (5, 9), (13, 12)) AS last (id, version) USING (id)),
	'the net effect of everything is the table, each row with its last version');
SELECT is(pg_temp.feed($$'p10_keyed', 1, deduplication_mode => 'netChanges', compute_updates => true$$),
	'2 update_preimage {"v": "a", "id": 1}' || E'\n' ||
	'3 delete {"v": "b", "id": 2}' || E'\n' ||
	'5 delete {"v": "c", "id": 3}' || E'\n' ||
	'6 update_postimage {"v": "d", "id": 1}' || E'\n' ||
	'6 insert {"v": "A", "id": 4}' || E'\n' ||
	'9 insert {"v": "E", "id": 5}' || E'\n' ||
	'12 insert {"v": "M", "id": 13}',
	'net changes since the baseline: every row with the version of its own event');
SELECT is(pg_temp.feed($$'p10_keyed', 5, 6, deduplication_mode => 'netChanges'$$),
	'5 delete {"v": "c", "id": 3}' || E'\n' ||
	'5 insert {"v": "c", "id": 30}' || E'\n' ||
	'6 delete {"v": "A", "id": 1}' || E'\n' ||
	'6 insert {"v": "d", "id": 1}' || E'\n' ||
	'6 delete {"v": "d", "id": 4}' || E'\n' ||
	'6 insert {"v": "A", "id": 4}',
	'without compute_updates pairs are deletes and inserts');

-- folding the raw feed gives the table
SELECT set_eq(
	$$SELECT (row_data ->> 'id')::int AS id, row_data ->> 'v' AS v FROM (
		SELECT row_data, sum(CASE _change_type WHEN 'insert' THEN 1 ELSE -1 END) AS n
		FROM stream_changes('p10_keyed', deduplication_mode => 'none') GROUP BY row_data) AS c WHERE n > 0$$,
	'SELECT id, v FROM p10_keyed', 'inserts minus deletes are the table');

/*
 * Call forms and ranges
 */
SELECT is(pg_temp.feed($$'p10_keyed'::regclass, 1, 2$$), pg_temp.feed($$'p10_keyed', 1, 2$$), 'a regclass does as well');
SELECT is(pg_temp.feed($$'public.p10_keyed', 1, 2$$), pg_temp.feed($$'p10_keyed', 1, 2$$), 'so does a qualified name');
SELECT is(pg_temp.feed(format('%L, 1, 2', 'p10_keyed'::regclass::oid::text)), pg_temp.feed($$'p10_keyed', 1, 2$$), 'and a number, as for regclass');
SELECT is(pg_temp.feed($$'p10_keyed', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL$$), pg_temp.feed($$'p10_keyed'$$), 'NULL is not given');
SELECT results_eq($$SELECT DISTINCT _commit_version FROM stream_changes('p10_keyed', 2, 5) ORDER BY 1$$, 'VALUES (2::bigint), (3), (5)', 'both bounds are inclusive');
SELECT results_eq($$SELECT DISTINCT _commit_version FROM stream_changes('p10_keyed', 2, 5, starting_bound_inclusive => false) ORDER BY 1$$,
	'VALUES (3::bigint), (5)', 'an exclusive start');
SELECT results_eq($$SELECT DISTINCT _commit_version FROM stream_changes('p10_keyed', 2, 5, ending_bound_inclusive => false) ORDER BY 1$$,
	'VALUES (2::bigint), (3)', 'an exclusive end');
SELECT is_empty($$SELECT * FROM stream_changes('p10_keyed', 2, 2, starting_bound_inclusive => false, ending_bound_inclusive => false)$$, 'nothing between');
SELECT is_empty($$SELECT * FROM stream_changes('p10_keyed', 2, 3, starting_bound_inclusive => false, ending_bound_inclusive => false)$$, 'still nothing between');
SELECT is_empty($$SELECT * FROM stream_changes('p10_keyed', 1000)$$, 'a start in the future is empty');
SELECT is_empty($$SELECT * FROM stream_changes('p10_keyed', 9223372036854775807, starting_bound_inclusive => false)$$, 'and so is what follows the last number');
SELECT is(pg_temp.feed($$'p10_keyed', 13, 1000$$), pg_temp.feed($$'p10_keyed', 13$$), 'an end in the future reads to the newest');
SELECT is(pg_temp.feed($$'p10_keyed', -5, 1$$), pg_temp.feed($$'p10_keyed', 0, 1$$), 'negative versions never were, so nothing is missing');
SELECT is_empty($$SELECT * FROM stream_changes('p10_keyed', -5, -1)$$, 'nor is there anything');

-- timestamps: literal comparison with each commit's
CREATE TABLE p10_times AS SELECT _commit_version AS version, _commit_timestamp AS at FROM stream_versions('p10_keyed');
SELECT results_eq(
	$$SELECT DISTINCT _commit_version FROM stream_changes('p10_keyed',
		starting_timestamp => (SELECT at FROM p10_times WHERE version = 2), ending_timestamp => (SELECT at FROM p10_times WHERE version = 5)) ORDER BY 1$$,
	'VALUES (2::bigint), (3), (5)', 'timestamps, both inclusive');
SELECT results_eq(
	$$SELECT DISTINCT _commit_version FROM stream_changes('p10_keyed',
		starting_timestamp => (SELECT at FROM p10_times WHERE version = 2), ending_timestamp => (SELECT at FROM p10_times WHERE version = 5),
		starting_bound_inclusive => false, ending_bound_inclusive => false) ORDER BY 1$$,
	'VALUES (3::bigint)', 'timestamps, both exclusive');
SELECT results_eq(
	$$SELECT DISTINCT _commit_version FROM stream_changes('p10_keyed',
		starting_timestamp => (SELECT at + interval '1 us' FROM p10_times WHERE version = 2),
		ending_timestamp => (SELECT at - interval '1 us' FROM p10_times WHERE version = 5)) ORDER BY 1$$,
	'VALUES (3::bigint)', 'a start between two commits leaves the earlier one out');
SELECT is(pg_temp.feed($$'p10_keyed', starting_timestamp => '-infinity', ending_timestamp => 'infinity'$$), pg_temp.feed($$'p10_keyed'$$), 'the infinities are bounds');
SELECT is_empty($$SELECT * FROM stream_changes('p10_keyed', starting_timestamp => 'infinity')$$, 'nothing comes at the end of time');
SELECT is_empty($$SELECT * FROM stream_changes('p10_keyed', starting_timestamp => '-infinity', ending_timestamp => '2000-01-01')$$, 'nothing was there before');

-- what is not committed is not part of it; the same statement sees one end
BEGIN;
INSERT INTO p10_keyed VALUES (99, 'mine');
SELECT is_empty($$SELECT * FROM stream_changes('p10_keyed', 14)$$, 'the caller''s own uncommitted changes are not part of it');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT isnt(pg_temp.feed($$'p10_keyed', 13$$), NULL, 'REPEATABLE READ reads under its snapshot');
COMMIT;

/*
 * Without identity
 */
CREATE TABLE p10_bare (a int, b text);
INSERT INTO p10_bare VALUES (1, 'x'), (1, 'x');
SELECT stream_track('p10_bare');
SELECT stream_sync('180 s') \g /dev/null
BEGIN;														-- 1
UPDATE p10_bare SET b = 'y';
UPDATE p10_bare SET b = b;
DELETE FROM p10_bare WHERE ctid = (SELECT max(ctid) FROM p10_bare);
COMMIT;
SELECT is(pg_temp.feed($$'p10_bare', 1$$),
	'1 delete {"a": 1, "b": "x"}' || E'\n' || '1 insert {"a": 1, "b": "y"}' || E'\n' ||
	'1 delete {"a": 1, "b": "x"}' || E'\n' || '1 insert {"a": 1, "b": "y"}' || E'\n' ||
	'1 delete {"a": 1, "b": "y"}',
	'without identity nothing is netted, and an event with equal images is a carry-over');
SELECT is((SELECT count(*) FROM stream_changes('p10_bare', 1, deduplication_mode => 'none')), 9::bigint, 'which mode none shows');

/*
 * Identities are compared as their types say
 */
CREATE COLLATION p10_nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TYPE p10_enum AS ENUM ('red', 'green');
CREATE TABLE p10_identity (n numeric, t text COLLATE p10_nocase, e p10_enum, d int, UNIQUE (n, t, e));
INSERT INTO p10_identity VALUES (1.0, 'Abc', 'red', 1);
SELECT stream_track('p10_identity', ARRAY['n', 't', 'e']::name[]);
SELECT stream_sync('180 s') \g /dev/null
BEGIN;														-- 1
UPDATE p10_identity SET n = 1.00, t = 'aBC', d = 2;
UPDATE p10_identity SET d = 3;
COMMIT;
UPDATE p10_identity SET e = 'green';						-- 2
INSERT INTO p10_identity VALUES (NULL, NULL, NULL, 1);		-- 3
UPDATE p10_identity SET d = 2 WHERE n IS NULL;				-- 4
SELECT is(pg_temp.feed($$'p10_identity', 1, compute_updates => true$$),
	'1 update_preimage {"d": 1, "e": "red", "n": 1.0, "t": "Abc"}' || E'\n' ||
	'1 update_postimage {"d": 3, "e": "red", "n": 1.00, "t": "aBC"}' || E'\n' ||
	'2 delete {"d": 3, "e": "red", "n": 1.00, "t": "aBC"}' || E'\n' ||
	'2 insert {"d": 3, "e": "green", "n": 1.00, "t": "aBC"}' || E'\n' ||
	'3 insert {"d": 1, "e": null, "n": null, "t": null}' || E'\n' ||
	'4 update_preimage {"d": 1, "e": null, "n": null, "t": null}' || E'\n' ||
	'4 update_postimage {"d": 2, "e": null, "n": null, "t": null}',
	'numeric scale, a collation without case, NULL equal to NULL, an enum');

/*
 * jsonb is what to_jsonb says under fixed settings
 */
CREATE TYPE p10_pair AS (x int, y text);
CREATE DOMAIN p10_positive AS int CHECK (VALUE > 0);
CREATE TABLE p10_types (
	id int PRIMARY KEY, b bool, i2 int2, i8 int8, n numeric, nn numeric, f4 float4, f8 float8, fn float8, fi float4,
	t text, vc varchar(10), c char(5), na name, ch "char", ba bytea, d date, di date, ts timestamp, tz timestamptz, ti time, tt timetz, iv interval,
	u uuid, j json, jb jsonb, js jsonb, ia int[], ta text[], r int4range, rc regclass, e p10_enum, ea p10_enum[], co p10_pair, ca p10_pair[], po p10_positive,
	ip inet, pt point, bi bit(5), x xml, m money, lsn pg_lsn, o oid, tv tsvector, "Größe ""q" int, a int);
INSERT INTO p10_types VALUES (
	1, true, -2, 9007199254740993, 123456789012345678901234567890.1230, 'NaN', 0.1, 1e300, 'NaN', '-Infinity',
	E'tab\t"q" \\ é', 'vc', 'c', 'na', 'x', '\xdeadbeef', '2024-02-29', 'infinity', '2024-02-29 12:34:56.789', '2024-02-29 12:34:56.789+05', '12:00', '12:00+02', '1 mon -2 days 03:04:05.6',
	'6d0e3c2c-5b0a-4c1e-9d0b-2f6d6a0e7a11', '{"b": 1, "a": [1, {"z": null}], "b": 2}', '{"k": [1, 2.50, "s", {"n": {}}], "e": []}', '"scalar"', '{1,NULL,3}', '[2:3]={"a b",NULL}', '[1,10)', 'pg_class', 'green', '{red,green}', '(7,"a ""b"" c")', '{"(1,x)",NULL}', 42,
	'10.0.0.0/8', '(1.5,2)', B'10101', '<a>1</a>', 12.34, '16/B374D848', 4294967295, 'a fat cat', 5, NULL);
INSERT INTO p10_types (id) VALUES (2);
SELECT stream_track('p10_types');
SELECT stream_sync('180 s') \g /dev/null
UPDATE p10_types SET a = 1;

CREATE TABLE p10_expected (id int, row_data jsonb);
SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; SET bytea_output = 'hex'; SET extra_float_digits = 1;
SET search_path = pg_catalog;
INSERT INTO public.p10_expected SELECT id, to_jsonb(whole) FROM public.p10_types AS whole;
SET search_path = public;
-- what the session prefers must not matter
SET TimeZone = 'Asia/Kolkata'; SET DateStyle = 'SQL, DMY'; SET IntervalStyle = 'sql_standard'; SET bytea_output = 'escape'; SET extra_float_digits = -3;
SELECT results_eq(
	$$SELECT row_data FROM stream_changes('p10_types', 1) WHERE _change_type = 'insert'$$,
	'SELECT row_data FROM p10_expected ORDER BY id', 'captured rows are what to_jsonb says');
SELECT results_eq(
	$$SELECT row_data - 'a' FROM stream_changes('p10_types', 0, 0)$$,
	$$SELECT row_data - 'a' FROM p10_expected ORDER BY id$$, 'and so are the baseline''s');
SELECT is(current_setting('DateStyle') || current_setting('bytea_output'), 'SQL, DMYescape', 'settings are left as they were');
RESET TimeZone; RESET DateStyle; RESET IntervalStyle; RESET bytea_output; RESET extra_float_digits; RESET search_path;

/*
 * Columns come, go and are renamed
 */
CREATE TABLE p10_ddl (id int PRIMARY KEY, old_name text, secret text);
INSERT INTO p10_ddl VALUES (1, 'a', 's');
SELECT stream_track('p10_ddl');
SELECT stream_sync('180 s') \g /dev/null
ALTER TABLE p10_ddl RENAME old_name TO new_name;
ALTER TABLE p10_ddl ADD added int DEFAULT 7;
UPDATE p10_ddl SET new_name = 'b';							-- 1
ALTER TABLE p10_ddl DROP secret;
UPDATE p10_ddl SET new_name = new_name;						-- 2: rewrites the row without the dropped value
UPDATE p10_ddl SET id = 2;									-- 3
SELECT is(pg_temp.feed($$'p10_ddl'$$),
	'0 insert {"id": 1, "secret": "s", "old_name": "a"}' || E'\n' ||
	'1 delete {"id": 1, "added": 7, "secret": "s", "new_name": "a"}' || E'\n' ||
	'1 insert {"id": 1, "added": 7, "secret": "s", "new_name": "b"}' || E'\n' ||
	'3 delete {"id": 1, "added": 7, "new_name": "b"}' || E'\n' ||
	'3 insert {"id": 2, "added": 7, "new_name": "b"}',
	'names are those of the version; the loss of a dropped value is no change');
CREATE ROLE p10_reader;
GRANT SELECT ON p10_ddl TO p10_reader;
SET ROLE p10_reader;
SELECT is((SELECT string_agg(row_data::text, E'\n') FROM stream_changes('p10_ddl', 0, 1)),
	'{"id": 1, "old_name": "a"}' || E'\n' ||
	'{"id": 1, "added": 7, "new_name": "a"}' || E'\n' ||
	'{"id": 1, "added": 7, "new_name": "b"}',
	'a column dropped since is shown to the owner only');
RESET ROLE;

/*
 * A commit of many blocks
 */
CREATE TABLE p10_large (id int PRIMARY KEY, v text);
SELECT stream_track('p10_large', baseline => false);
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p10_large SELECT g, repeat(md5(g::text), 4) FROM generate_series(1, 30000) AS g;	-- 1
UPDATE p10_large SET v = 'x' || id;															-- 2
BEGIN;																						-- 3
UPDATE p10_large SET v = v || 'y';
UPDATE p10_large SET v = 'x' || id WHERE id % 2 = 0;
COMMIT;
SELECT results_eq(
	$$SELECT _commit_version, _change_type, count(*), count(DISTINCT row_data -> 'id') FROM stream_changes('p10_large', 1, compute_updates => true) GROUP BY 1, 2 ORDER BY 1, 2$$,
	$$VALUES (1::bigint, 'insert', 30000::bigint, 30000::bigint), (2, 'update_postimage', 30000, 30000), (2, 'update_preimage', 30000, 30000),
		(3, 'update_postimage', 15000, 15000), (3, 'update_preimage', 15000, 15000)$$,
	'a version over many blocks is one version, netted as a whole');
SELECT is((SELECT count(*) FROM stream_changes('p10_large', 2, 2)), 60000::bigint, 'a range may begin with it');
SELECT is((SELECT count(*) FROM stream_changes('p10_large', deduplication_mode => 'netChanges')), 30000::bigint, 'net changes over it');

SELECT stream_untrack('p10_keyed'), stream_untrack('p10_bare'), stream_untrack('p10_identity'), stream_untrack('p10_types'),
	stream_untrack('p10_ddl'), stream_untrack('p10_large') \g /dev/null
DROP TABLE p10_keyed, p10_times, p10_bare, p10_identity, p10_types, p10_expected, p10_ddl, p10_large;
DROP DOMAIN p10_positive;
DROP TYPE p10_pair, p10_enum;
DROP COLLATION p10_nocase;
DROP ROLE p10_reader;

SELECT * FROM finish();
