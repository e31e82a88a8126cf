-- When are two rows the same row?  The identity's columns are compared by the equality of their type, seen through
-- netting inside a commit, update detection and net changes.

SET client_min_messages = warning;

SELECT plan(121);

CREATE SCHEMA p30;
SET search_path = p30, public;
CREATE EXTENSION IF NOT EXISTS citext SCHEMA public;
CREATE COLLATION p30.ignore_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE DOMAIN p30.amount AS numeric CHECK (VALUE >= 0);
CREATE DOMAIN p30.nickname AS public.citext;
CREATE TYPE p30.color AS ENUM ('red', 'green');
CREATE TYPE p30.pair AS (n numeric, t text);
CREATE TYPE p30.span AS RANGE (subtype = numeric);

-- Writes a key as "a", then as "b", each in all the ways that matter.
CREATE PROCEDURE p30.write(name text, a text, b text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO p30.%I VALUES (%L, 1)', name, a);					-- version 1
	COMMIT;
	EXECUTE format('UPDATE p30.%I SET k = %L, v = 2', name, b);						-- 2
	COMMIT;
	EXECUTE format('DELETE FROM p30.%I', name);										-- 3: in one commit
	EXECUTE format('INSERT INTO p30.%I VALUES (%L, 3)', name, a);
	COMMIT;
	EXECUTE format('DELETE FROM p30.%I', name);										-- 4
	COMMIT;
	EXECUTE format('INSERT INTO p30.%I VALUES (%L, 4)', name, b);					-- 5
	COMMIT;
END $$;

CREATE FUNCTION p30.labels(name text, first bigint, last bigint, mode text) RETURNS text
RETURN (SELECT string_agg(_change_type || ' ' || _commit_version, ', ')
		FROM stream_changes('p30.' || name, first, last, deduplication_mode => mode, compute_updates => true));

CREATE TABLE p30.cases (n int GENERATED ALWAYS AS IDENTITY, type text, a text, b text, same boolean);
INSERT INTO p30.cases (type, a, b, same) VALUES
	('numeric', '1.0', '1.00', true),
	('numeric', 'NaN', 'NaN', true),
	('numeric', '1', '1.01', false),
	('float8', '0', '-0', true),
	('float8', 'NaN', 'NaN', true),
	('float4', '0', '-0', true),
	('public.citext', 'Abc', 'aBC', true),
	('public.citext', 'abc', 'abd', false),
	('text COLLATE p30.ignore_case', 'Abc', 'aBC', true),
	('text COLLATE p30.ignore_case', 'abc', 'abd', false),
	('varchar(9) COLLATE p30.ignore_case', 'Abc', 'aBC', true),
	('text', 'Abc', 'aBC', false),
	('text', 'abc', 'abc', true),
	('text', repeat('long ', 4000), repeat('long ', 4000), true),
	('varchar(10)', 'abc', 'abc', true),
	('char(5)', 'a', 'a   ', true),
	('bpchar', 'a', 'a   ', true),
	('name', 'abc', 'abc', true),
	('p30.amount', '1.0', '1.00', true),
	('p30.nickname', 'Abc', 'aBC', true),
	('p30.color', 'red', 'red', true),
	('p30.color', 'red', 'green', false),
	('int[]', '{1,2}', '[1:2]={1,2}', true),
	('numeric[]', '{1.0,2}', '{1.00,2.0}', true),
	('public.citext[]', '{A,b}', '{a,B}', true),
	('numrange', '[1.0,2.0)', '[1.00,2.00)', true),
	('p30.span', '[1.0,2.0)', '[1.00,2.00)', true),
	('int4range', '[1,3)', '[1,2]', true),
	('p30.pair', '(1.0,x)', '(1.00,x)', true),
	('p30.pair', '(1.0,x)', '(1.0,y)', false),
	('uuid', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '{a0eebc999c0b4ef8bb6d6bb9bd380a11}', true),
	('timestamptz', '2020-01-01 00:00+00', '2020-01-01 01:00+01', true),
	('interval', '1 day', '24 hours', true),
	('timetz', '00:00+00', '01:00+01', false),
	('jsonb', '{"a": 1.0}', '{"a": 1.00}', true),
	('bytea', '\x00ff', '\000\377', true),
	('bytea', '\x00ff', '\x00fe', false),
	('int2', '-1', '-1', true),
	('int8', '-1', '4294967295', false),
	('bool', 't', 'yes', true),
	('inet', '10.0.0.1', '10.0.0.1/32', true),
	('bit(3)', '101', '101', true),
	('varbit', '101', '1010', false),
	('macaddr', '08:00:2b:01:02:03', '08002b010203', true);

SELECT format('CREATE TABLE p30.case_%s (k %s PRIMARY KEY, v int); DO $do$ BEGIN PERFORM stream_track(''p30.case_%s'', baseline => false); END $do$', n, type, n)
FROM p30.cases ORDER BY n \gexec
SELECT format('CALL p30.write(''case_%s'', %L, %L)', n, a, b) FROM p30.cases ORDER BY n \gexec
SELECT stream_sync('180 s') \g /dev/null

SELECT is(p30.labels('case_' || n, f.first, f.first + 4, 'dropCarryovers'),
	CASE WHEN same
		THEN format('insert %s, update_preimage %s, update_postimage %s, update_preimage %s, update_postimage %s, delete %s, insert %s', first, first+1, first+1, first+2, first+2, first+3, first+4)
		ELSE format('insert %s, delete %s, insert %s, delete %s, insert %s, delete %s, insert %s', first, first+1, first+1, first+2, first+2, first+3, first+4)
	END, left(format('%s: %s and %s are %s', type, a, b, CASE WHEN same THEN 'one row' ELSE 'two rows' END), 100))
FROM p30.cases, LATERAL (SELECT min(_commit_version) AS first FROM stream_versions('p30.case_' || n)) AS f ORDER BY n;

-- from the update to the delete: what was there before, and nothing after; to the last insert: there again, as b
SELECT is(p30.labels('case_' || n, f.first + 1, f.first + 4, 'netChanges'),
	CASE WHEN same THEN format('update_preimage %s, update_postimage %s', first + 1, first + 4)
		ELSE format('delete %s, insert %s', first + 1, first + 4) END,
	left(format('net changes of %s: %s and %s', type, a, b), 100))
FROM p30.cases, LATERAL (SELECT min(_commit_version) AS first FROM stream_versions('p30.case_' || n)) AS f ORDER BY n;

/*
 * Several columns, and NULL in a unique key
 */
CREATE TABLE p30.several (a numeric, b text COLLATE p30.ignore_case, v int, UNIQUE (a, b));
SELECT stream_track('p30.several', ARRAY['a', 'b'], baseline => false) \g /dev/null
INSERT INTO p30.several VALUES (1.0, 'x', 1), (1.0, 'y', 1), (NULL, 'x', 1);
UPDATE p30.several SET a = 1.00, b = 'X' WHERE b = 'x' AND a IS NOT NULL;
UPDATE p30.several SET b = 'X', v = 2 WHERE a IS NULL;
SELECT min(_commit_version) AS first FROM stream_versions('p30.several') \gset
SELECT is(p30.labels('several', :first + 1, :first + 2, 'dropCarryovers'),
	format('update_preimage %s, update_postimage %s, update_preimage %s, update_postimage %s', :first + 1, :first + 1, :first + 2, :first + 2),
	'all columns of an identity count, and NULL equals NULL');
SELECT is((SELECT string_agg(_change_type || ' ' || row_data::text, '; ') FROM stream_changes('p30.several', :first, deduplication_mode => 'netChanges')),
	'insert {"a": 1.0, "b": "y", "v": 1}; insert {"a": 1.00, "b": "X", "v": 1}; insert {"a": null, "b": "X", "v": 2}',
	'net changes by several columns');

BEGIN;
INSERT INTO p30.several VALUES (NULL, 'n', 1), (NULL, 'N', 2);
COMMIT;
SELECT is(p30.labels('several', :first + 3, :first + 3, 'dropCarryovers'), format('insert %s, insert %s', :first + 3, :first + 3),
	'rows that share NULL are not lost');

/*
 * A key that is stored out of line, not touched by the update
 */
CREATE TABLE p30.out_of_line (k text, w text, v int);
ALTER TABLE p30.out_of_line ALTER k SET STORAGE EXTERNAL, ALTER w SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX out_of_line_k ON p30.out_of_line (k);
SELECT stream_track('p30.out_of_line', ARRAY['k'], baseline => false) \g /dev/null
INSERT INTO p30.out_of_line VALUES (repeat('k', 2300), repeat('w', 9000), 1);
UPDATE p30.out_of_line SET v = 2;
UPDATE p30.out_of_line SET v = 3;
SELECT min(_commit_version) AS first FROM stream_versions('p30.out_of_line') \gset
SELECT is(p30.labels('out_of_line', :first + 1, :first + 2, 'netChanges'),
	format('update_preimage %s, update_postimage %s', :first + 1, :first + 2), 'a key out of line');

/*
 * The type is gone, or its labels have other names
 */
CREATE TYPE p30.gone AS ENUM ('a', 'b');
CREATE TABLE p30.of_gone (k p30.gone PRIMARY KEY, v int);
SELECT stream_track('p30.of_gone', baseline => false) \g /dev/null
INSERT INTO p30.of_gone VALUES ('a', 1), ('b', 1);
UPDATE p30.of_gone SET v = 2 WHERE k = 'a';
SELECT stream_sync('180 s') \g /dev/null
SELECT min(_commit_version) AS first FROM stream_versions('p30.of_gone') \gset
DROP TABLE p30.of_gone;
DROP TYPE p30.gone;
SELECT stream_sync('180 s') \g /dev/null
SELECT is((SELECT string_agg(_change_type || ' ' || _commit_version, ', ')
		FROM stream_changes('p30.of_gone', :first, :first + 1, deduplication_mode => 'netChanges')),
	format('insert %s, insert %s', :first, :first + 1), 'a type that was dropped: by what was written');

/*
 * What the reader's search_path has to do with it: nothing for names in a key, as for p30.pg_type here, which is not
 * pg_type; all for the functions of an operator class, as for whole numbers of which the last digit counts
 */
CREATE TABLE p30.pg_type ();
CREATE TABLE p30.named (k regclass PRIMARY KEY, v int);
SELECT stream_track('p30.named', baseline => false) \g /dev/null
INSERT INTO p30.named VALUES ('pg_catalog.pg_type', 1);
BEGIN;
INSERT INTO p30.named VALUES ('p30.pg_type', 2);
UPDATE p30.named SET v = v + 1;
COMMIT;
SELECT min(_commit_version) AS first FROM stream_versions('p30.named') \gset
SET search_path = p30, pg_catalog, public;
SELECT is((SELECT string_agg(_change_type || ' ' || (row_data).v, ', ') FROM stream_changes(NULL::p30.named, compute_updates => true)),
	'insert 1, update_preimage 1, update_postimage 2, insert 3', 'a name in a key is what it was when it was written');
SELECT is((SELECT string_agg((row_data ->> 'k') || ' ' || (row_data ->> 'v'), ', ')
		FROM stream_changes('p30.named', deduplication_mode => 'netChanges')),
	'pg_type 2, p30.pg_type 3', 'also for net changes');

CREATE TYPE p30.digit;
CREATE FUNCTION p30.digit_in(cstring) RETURNS digit LANGUAGE internal IMMUTABLE STRICT AS 'int4in';
CREATE FUNCTION p30.digit_out(digit) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'int4out';
CREATE TYPE p30.digit (INPUT = digit_in, OUTPUT = digit_out, LIKE = int4);
CREATE CAST (digit AS int) WITHOUT FUNCTION;
CREATE FUNCTION p30.last(digit) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT $1::int % 10';
CREATE FUNCTION p30.lt(digit, digit) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT AS 'SELECT last($1) < last($2)';
CREATE FUNCTION p30.le(digit, digit) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT AS 'SELECT last($1) <= last($2)';
CREATE FUNCTION p30.eq(digit, digit) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT AS 'SELECT last($1) = last($2)';
CREATE FUNCTION p30.ge(digit, digit) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT AS 'SELECT last($1) >= last($2)';
CREATE FUNCTION p30.gt(digit, digit) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT AS 'SELECT last($1) > last($2)';
CREATE FUNCTION p30.cmp(digit, digit) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT sign(last($1) - last($2))::int';
CREATE OPERATOR p30.< (LEFTARG = digit, RIGHTARG = digit, FUNCTION = lt);
CREATE OPERATOR p30.<= (LEFTARG = digit, RIGHTARG = digit, FUNCTION = le);
CREATE OPERATOR p30.= (LEFTARG = digit, RIGHTARG = digit, FUNCTION = eq);
CREATE OPERATOR p30.>= (LEFTARG = digit, RIGHTARG = digit, FUNCTION = ge);
CREATE OPERATOR p30.> (LEFTARG = digit, RIGHTARG = digit, FUNCTION = gt);
CREATE OPERATOR CLASS p30.digit_ops DEFAULT FOR TYPE digit USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 cmp(digit, digit);
CREATE TABLE p30.digits (k digit PRIMARY KEY, v int);
SELECT stream_track('p30.digits', baseline => false) \g /dev/null
INSERT INTO p30.digits SELECT g::text::digit, g FROM generate_series(0, 9) AS g;
UPDATE p30.digits SET k = (k::int + 10)::text::digit WHERE k::int > 7;
BEGIN;
DELETE FROM p30.digits WHERE k::int = 5;
UPDATE p30.digits SET k = '15' WHERE k::int = 4;
COMMIT;
SELECT min(_commit_version) AS first FROM stream_versions('p30.digits') \gset
SELECT is((SELECT string_agg(_change_type || ' ' || (row_data ->> 'k'), ', ') FROM stream_changes('p30.digits', compute_updates => true) WHERE _commit_version > :first),
	'update_preimage 8, update_postimage 18, update_preimage 9, update_postimage 19, delete 4, update_preimage 5, update_postimage 15',
	'an operator class in SQL');
SET search_path = p30, public;

/*
 * A key that gets another type or collation, without the table being rewritten: where that compares in another way, every
 * row takes another identity
 */
CREATE TABLE p30.retyped (n int GENERATED ALWAYS AS IDENTITY, before text, after text, a text, b text, alike boolean);
INSERT INTO p30.retyped (before, after, a, b, alike) VALUES
	('text', 'public.citext', 'a', 'A', false),
	('public.citext', 'text', 'a', 'a', false),
	('text', 'text COLLATE p30.ignore_case', 'a', 'A', false),
	('text COLLATE p30.ignore_case', 'text COLLATE "C"', 'a', 'a', false),
	('text', 'text COLLATE "C"', 'a', 'a', true),
	('text[]', 'public.citext[]', '{a}', '{A}', false),
	('int[]', 'bigint[]', '{1}', '{1}', false),							-- (this is a rewrite)
	('varchar(9)', 'text', 'a', 'a', true),
	('varchar(9)', 'bpchar', 'a', 'a ', false),
	('int', 'oid', '1', '1', false),
	('int', 'bigint', '1', '1', true);
SELECT format('CREATE TABLE p30.retyped_%s (k %s PRIMARY KEY, v int); DO $do$ BEGIN PERFORM stream_track(''p30.retyped_%s'', baseline => false); END $do$', n, before, n)
FROM p30.retyped ORDER BY n \gexec
SELECT format('INSERT INTO p30.retyped_%s VALUES (%L, 1)', n, a), format('ALTER TABLE p30.retyped_%s ALTER k TYPE %s', n, after),
	format('UPDATE p30.retyped_%s SET v = 2; UPDATE p30.retyped_%s SET k = %L', n, n, b)
FROM p30.retyped ORDER BY n \gexec
SELECT is(p30.labels('retyped_' || n, f.first, NULL, 'dropCarryovers'),
	CASE WHEN alike THEN format('insert %s, update_preimage %s, update_postimage %s', first, first + 1, first + 1)
		ELSE format('insert %s, delete %s, insert %s, update_preimage %s, update_postimage %s', first, first + 1, first + 1, first + 2, first + 2) END,
	format('%s becomes %s', before, after))
FROM p30.retyped, LATERAL (SELECT min(_commit_version) AS first FROM stream_versions('p30.retyped_' || n)) AS f ORDER BY n;
SELECT is(p30.labels('retyped_' || n, f.first, NULL, 'netChanges'), format('insert %s', f.last), format('%s becomes %s: net changes', before, after))
FROM p30.retyped, LATERAL (SELECT min(_commit_version) AS first, max(_commit_version) AS last FROM stream_versions('p30.retyped_' || n)) AS f ORDER BY n;

/*
 * An identity that lost its index
 */
CREATE TABLE p30.lost (k int CONSTRAINT lost_key PRIMARY KEY, v int);
SELECT stream_track('p30.lost', baseline => false) \g /dev/null
INSERT INTO p30.lost VALUES (1, 1);
ALTER TABLE p30.lost DROP CONSTRAINT lost_key;
BEGIN;
INSERT INTO p30.lost VALUES (2, 1);
DELETE FROM p30.lost WHERE k = 2;
COMMIT;
SELECT min(_commit_version) AS first FROM stream_versions('p30.lost') \gset
SELECT is((SELECT string_agg(_change_type, ', ') FROM stream_changes('p30.lost', :first + 1)), 'insert, delete',
	'without its unique index nothing is netted');
SELECT throws_ok(format($$SELECT * FROM stream_changes('p30.lost', %s, deduplication_mode => 'netChanges')$$, :first), '42P17', NULL,
	'and net changes are refused');
SELECT lives_ok(format($$SELECT * FROM stream_changes('p30.lost', %s, %s, deduplication_mode => 'netChanges')$$, :first, :first),
	'but not of versions before');

SELECT * FROM finish();
