-- stream_changes(NULL::table, ...): rows of today's row type.

SET client_min_messages = warning;

SELECT plan(30);

\ir include/errors.sql

CREATE TYPE p12_mood AS ENUM ('ok', 'bad');
CREATE TYPE p12_pair AS (x int, y text);
CREATE DOMAIN p12_small AS int CHECK (VALUE < 100);
CREATE TABLE p12_plain (id int PRIMARY KEY, v text, n numeric(10,2), t timestamptz);
INSERT INTO p12_plain VALUES (1, 'a', 1.5, '2024-01-01 00:00:00+00'), (2, NULL, NULL, NULL);
SELECT stream_track('p12_plain');
CREATE TABLE p12_rich (id int PRIMARY KEY, mood p12_mood, moods p12_mood[], pair p12_pair, small p12_small, big text, iv interval, d date);
INSERT INTO p12_rich VALUES (1, 'bad', '{ok,bad}', '(1,"a b")', 7, repeat('0123456789', 1000), '-1 day +02:03:04', '2024-02-01');
SELECT stream_track('p12_rich');
SELECT stream_sync('180 s') \g /dev/null

UPDATE p12_plain SET v = 'b' WHERE id = 1;					-- 1

SELECT results_eq($$SELECT (row_data).*, _change_type, _commit_version FROM stream_changes(NULL::p12_plain, 1)$$,
	$$VALUES (1, 'a', 1.50, '2024-01-01 00:00:00+00'::timestamptz, 'delete', 1::bigint), (1, 'b', 1.50, '2024-01-01 00:00:00+00', 'insert', 1)$$,
	'real columns');
SELECT results_eq($$SELECT (row_data).* FROM stream_changes(NULL::p12_plain, 0, 0)$$, $$VALUES (1, 'a', 1.50, '2024-01-01 00:00:00+00'::timestamptz), (2, NULL, NULL, NULL)$$,
	'NULLs');
SELECT is((SELECT pg_typeof(row_data) FROM stream_changes(NULL::p12_plain, 1) LIMIT 1), 'p12_plain'::regtype, 'row_data is of the row type');
SELECT results_eq($$SELECT to_jsonb(row_data) FROM stream_changes(NULL::p12_plain)$$, $$SELECT row_data FROM stream_changes('p12_plain')$$, 'the same as the jsonb form');
SELECT results_eq($$SELECT row_data FROM stream_changes(NULL::p12_plain, 1, compute_updates => true) WHERE _change_type = 'update_postimage'$$,
	$$SELECT p FROM p12_plain AS p WHERE id = 1$$, 'equal to the table''s own row');
SELECT is((SELECT count(*) FROM stream_changes(table_name => NULL::p12_plain)), 4::bigint, 'called by name');
SELECT results_eq($$SELECT (row_data).id, _change_type FROM stream_changes(NULL::p12_plain, deduplication_mode => 'netChanges')$$,
	$$VALUES (2, 'insert'), (1, 'insert')$$, 'net changes, typed');
SELECT results_eq($$SELECT p.id, (c.row_data).v FROM p12_plain AS p JOIN stream_changes(NULL::p12_plain, 1) AS c ON (c.row_data).id = p.id WHERE c._change_type = 'insert'$$,
	$$VALUES (1, 'b')$$, 'joined with the table');

-- values that are stored as text come back as what they were, whatever the session prefers
SET IntervalStyle = 'sql_standard';
SET DateStyle = 'SQL, DMY';
SELECT results_eq($$SELECT row_data FROM stream_changes(NULL::p12_rich)$$, $$SELECT r FROM p12_rich AS r$$, 'enum, array, composite, domain, a large value');
RESET IntervalStyle;
RESET DateStyle;

/*
 * The table changes
 */
ALTER TABLE p12_plain ADD added int DEFAULT 7;
ALTER TABLE p12_plain ADD extra text;
SELECT results_eq($$SELECT (row_data).* FROM stream_changes(NULL::p12_plain, 1)$$,
	$$VALUES (1, 'a', 1.50, '2024-01-01 00:00:00+00'::timestamptz, 7, NULL::text), (1, 'b', 1.50, '2024-01-01 00:00:00+00', 7, NULL)$$,
	'an added column has its fast default or NULL');
UPDATE p12_plain SET added = 8, extra = 'e' WHERE id = 1;	-- 2
ALTER TABLE p12_plain DROP n;
SELECT results_eq($$SELECT (row_data).* FROM stream_changes(NULL::p12_plain, 1) WHERE _change_type = 'insert'$$,
	$$VALUES (1, 'b', '2024-01-01 00:00:00+00'::timestamptz, 7, NULL::text), (1, 'b', '2024-01-01 00:00:00+00', 8, 'e')$$,
	'a dropped column is left out');
ALTER TABLE p12_plain RENAME v TO renamed;
UPDATE p12_plain SET renamed = 'c' WHERE id = 1;			-- 3
SELECT results_eq($$SELECT (row_data).renamed, _commit_version FROM stream_changes(NULL::p12_plain, 1) WHERE _change_type = 'insert'$$,
	$$VALUES ('b', 1::bigint), ('b', 2), ('c', 3)$$, 'a renamed column follows');
ALTER TABLE p12_plain ADD n int;
SELECT is((SELECT count(*) FROM stream_changes(NULL::p12_plain, 1) WHERE (row_data).n IS NOT NULL), 0::bigint, 'a new column of an old name is another one');

-- values without a jsonb form: found out when read, or when captured (inside of another value)
CREATE TABLE p12_json (id int PRIMARY KEY, a json, "b c" json[]);
SELECT stream_track('p12_json');
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p12_json VALUES (1, '{"a": 1}', '{"{}"}');			-- 1
INSERT INTO p12_json VALUES (2, '{}', ARRAY['{"k": "\u0000"}'::json]);	-- 2
INSERT INTO p12_json VALUES (3, '"\u0000"', '{}');				-- 3
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('p12_json', 1, 2)$$),
	'22P05 / unsupported Unicode escape sequence / \u0000 cannot be converted to text. The value is that of column "b c" in version 2.', 'version and column of a value that is no jsonb');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_events('p12_json', 3)$$),
	'22P05 / unsupported Unicode escape sequence / \u0000 cannot be converted to text. The value is that of column "a" in version 3.', 'in stream_events too');
SELECT is(pg_temp.hint_of($$SELECT * FROM stream_changes('p12_json')$$), 'The typed form, stream_changes(NULL::table_name, ...), makes no jsonb of it.', 'with a hint');
SELECT is((SELECT string_agg(row_data::text, ' ') FROM stream_changes(NULL::p12_json, 2)), (SELECT string_agg(j::text, ' ' ORDER BY id) FROM p12_json AS j WHERE id > 1), 'the typed form has them');
SELECT is((SELECT count(*) FROM stream_changes('p12_json', 0, 1)), 1::bigint, 'and others are readable');

-- a row whose jsonb would be too large, although its image is small
CREATE TABLE p12_large (id int PRIMARY KEY, a text, b text, c text);
SELECT stream_track('p12_large');
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p12_large VALUES (1, repeat('x', 90000000), repeat('y', 100000000), repeat('z', 80000000));
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('p12_large', 1)$$),
	'54000 / total size of jsonb object elements exceeds the maximum of 268435455 bytes / The value is that of column "b" in version 1.', 'a row that is too large for jsonb: its largest column');
SELECT is((SELECT length((row_data).c) FROM stream_changes(NULL::p12_large, 1)), 80000000, 'the typed form has it');

-- types: what can be changed without a rewrite
CREATE TABLE p12_types (id int PRIMARY KEY, v varchar(5), w varchar(5), mood p12_mood);
INSERT INTO p12_types VALUES (1, 'abcde', 'x', 'ok');
SELECT stream_track('p12_types');
SELECT stream_sync('180 s') \g /dev/null
ALTER TABLE p12_types ALTER v TYPE varchar(10), ALTER w TYPE text;
UPDATE p12_types SET v = 'abcdefgh', w = 'longer than five';	-- 1
SELECT results_eq($$SELECT (row_data).v, (row_data).w FROM stream_changes(NULL::p12_types) WHERE _change_type = 'insert'$$,
	$$VALUES ('abcde'::varchar, 'x'), ('abcdefgh', 'longer than five')$$, 'a changed type is cast');

ALTER TABLE p12_types DROP v;
ALTER TABLE p12_types ADD v int;
ALTER TYPE p12_mood RENAME VALUE 'ok' TO 'fine';
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes(NULL::p12_types, 0, 0)$$),
	'22P02 / invalid input value for enum public.p12_mood: "ok" / The value is that of column "mood" in version 0.', 'a label that was renamed is an error naming the version');
SELECT is((SELECT row_data ->> 'mood' FROM stream_changes('p12_types', 0, 0)), 'ok', 'jsonb shows the label of that time');
UPDATE p12_types SET w = 'y';								-- 2
SELECT results_eq($$SELECT (row_data).mood FROM stream_changes(NULL::p12_types, 2, 2)$$, $$VALUES ('fine'::p12_mood), ('fine')$$, 'the new label is there from the next version on');

-- a type that cannot be cast: versions before the rewrite are still there as jsonb
CREATE TABLE p12_cast (id int PRIMARY KEY, v text, j text);
INSERT INTO p12_cast VALUES (1, '10', '{}');
SELECT stream_track('p12_cast');
SELECT stream_sync('180 s') \g /dev/null
UPDATE p12_cast SET v = '11';								-- 1
ALTER TABLE p12_cast ALTER v TYPE int USING v::int, ALTER j TYPE jsonb USING j::jsonb;	-- 2
UPDATE p12_cast SET v = 12;									-- 3
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes(NULL::p12_cast, 1, 1)$$),
	'42846 / column "v" was of type text before version 2, which cannot be cast to integer', 'no assignment cast: an error naming the version of the change');
SELECT is((SELECT count(*) FROM stream_changes('p12_cast', 0, 1)), 3::bigint, 'jsonb has them');
SELECT results_eq($$SELECT (row_data).v FROM stream_changes(NULL::p12_cast, 3)$$, 'VALUES (11), (12)', 'after the change they are typed again');

-- a table without columns, and one with nothing but dropped ones
CREATE TABLE p12_empty ();
INSERT INTO p12_empty DEFAULT VALUES;
SELECT stream_track('p12_empty');
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p12_empty DEFAULT VALUES;						-- 1
SELECT results_eq($$SELECT _commit_version, row_data::text FROM stream_changes(NULL::p12_empty)$$, $$VALUES (0::bigint, '()'), (1, '()')$$, 'rows without columns');
SELECT results_eq($$SELECT _commit_version, row_data FROM stream_changes('p12_empty')$$, $$VALUES (0::bigint, '{}'::jsonb), (1, '{}')$$, 'also as jsonb');

-- a name in the default of an added column, whatever the search_path
CREATE SCHEMA p12_shadow;
CREATE TABLE p12_shadow.pg_type ();
CREATE TABLE p12_added (id int PRIMARY KEY);
SELECT stream_track('p12_added', baseline => false) \g /dev/null
INSERT INTO p12_added VALUES (1);
ALTER TABLE p12_added ADD r regclass DEFAULT 'pg_catalog.pg_type';
SET search_path = p12_shadow, pg_catalog, public;
SELECT is((SELECT (row_data).r::oid FROM stream_changes(NULL::p12_added)), 'pg_catalog.pg_type'::regclass::oid, 'a name in a fast default');
RESET search_path;
DROP SCHEMA p12_shadow CASCADE;

SELECT stream_untrack('p12_added'), stream_untrack('p12_plain'), stream_untrack('p12_rich'), stream_untrack('p12_types'), stream_untrack('p12_cast'), stream_untrack('p12_empty'), stream_untrack('p12_json'), stream_untrack('p12_large') \g /dev/null
DROP TABLE p12_added, p12_plain, p12_rich, p12_types, p12_cast, p12_empty, p12_json, p12_large;
DROP DOMAIN p12_small;
DROP TYPE p12_pair, p12_mood;

SELECT * FROM finish();
