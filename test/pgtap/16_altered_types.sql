-- Composite types and enums that are altered while a tracked table uses them: each value of the log is what it was.

SET client_min_messages = warning;

SELECT plan(34);

\ir include/errors.sql
CREATE SCHEMA p16;
SET search_path = p16, public;

CREATE TYPE inner_type AS (n int, t text);
CREATE TYPE pair AS (x int, y text, i inner_type);
CREATE DOMAIN pair_domain AS pair;
CREATE TABLE t (id int PRIMARY KEY, p pair, ps pair[], d pair_domain, ds pair_domain[]);
CREATE FUNCTION a_pair() RETURNS pair LANGUAGE sql AS $$ SELECT ROW(1, E'a "b" \\ ,()', ROW(7, NULL))::pair $$;
SELECT stream_track('t') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO t VALUES (1, a_pair(), ARRAY[[a_pair(), NULL]], a_pair(), ARRAY[a_pair(), NULL]);	-- 1
INSERT INTO t VALUES (2, NULL, '[5:5]={"(,,)"}', '(,"",)', '{}');							-- 2
INSERT INTO t VALUES (3, NULL, NULL, NULL, NULL);											-- 3

-- What the table itself says of its rows is right whatever happens to the types; the log has to say the same.
CREATE FUNCTION pg_temp.differences() RETURNS SETOF text LANGUAGE sql AS $$
	SELECT format('table: %s, log: %s', t, c.row_data)
	FROM t FULL JOIN stream_changes(NULL::t, deduplication_mode => 'netChanges') AS c ON (c.row_data).id = t.id
	WHERE t IS DISTINCT FROM c.row_data $$;

SELECT is_empty('SELECT pg_temp.differences()', 'as they were');
ALTER TYPE pair ADD ATTRIBUTE z numeric;
SELECT is_empty('SELECT pg_temp.differences()', 'an added attribute is NULL');
SELECT is((SELECT ((row_data).p).y FROM stream_changes(NULL::t, 1, 1)), E'a "b" \\ ,()', 'the others keep their places');
INSERT INTO t VALUES (4, ROW(4, 'd', NULL, 4.5), ARRAY[ROW(4, 'd', NULL, 4.5)::pair], NULL, NULL);	-- 4
SELECT is_empty('SELECT pg_temp.differences()', 'and is there from then on');
ALTER TYPE pair DROP ATTRIBUTE x;
SELECT is_empty('SELECT pg_temp.differences()', 'a dropped attribute is left out');
ALTER TYPE pair ADD ATTRIBUTE x text;
SELECT is_empty('SELECT pg_temp.differences()', 'one of the same name is another one');
SELECT is((SELECT count(*) FROM stream_changes(NULL::t) WHERE ((row_data).p).x IS NOT NULL), 0::bigint, 'without values');
ALTER TYPE pair RENAME ATTRIBUTE y TO renamed;
SELECT is_empty('SELECT pg_temp.differences()', 'a renamed attribute follows');
SELECT is((SELECT ((row_data).p).renamed FROM stream_changes(NULL::t, 4)), 'd', 'with its values');
ALTER TYPE inner_type ADD ATTRIBUTE more date;
ALTER TYPE inner_type DROP ATTRIBUTE n;
SELECT is_empty('SELECT pg_temp.differences()', 'inside of a composite');
SELECT throws_ok('ALTER TYPE inner_type ALTER ATTRIBUTE t TYPE int', '0A000', NULL, 'the type of an attribute in use cannot be altered');
UPDATE t SET p.z = 1, d.x = 'x';															-- 5
SELECT is_empty('SELECT pg_temp.differences()', 'updates');
BEGIN;
INSERT INTO t VALUES (6, ROW('before', NULL, 1, 'x'));										-- 6
ALTER TYPE pair ADD ATTRIBUTE last int;
INSERT INTO t VALUES (7, ROW('after', NULL, 1, 'x', 7));
SAVEPOINT s;
ALTER TYPE pair DROP ATTRIBUTE z;
INSERT INTO t VALUES (8, ROW('undone', NULL, 'x', 8));
ROLLBACK TO s;
INSERT INTO t VALUES (9, ROW('after', NULL, 1, 'x', 9));
COMMIT;
SELECT is_empty('SELECT pg_temp.differences()', 'in the middle of a transaction');
SELECT is((SELECT row_data ->> 'p' FROM stream_changes('t', 1, 1)), '{"i": {"n": 7, "t": null}, "x": 1, "y": "a \"b\" \\ ,()"}', 'jsonb has the names of the time');
SELECT is((SELECT count(*) FROM stream_events('t') WHERE event = 'schema change'), 0::bigint, 'the table''s columns are the same');
ALTER TYPE pair DROP ATTRIBUTE renamed, DROP ATTRIBUTE i, DROP ATTRIBUTE z, DROP ATTRIBUTE x;
SELECT is_empty('SELECT pg_temp.differences()', 'only one attribute is left');
ALTER TYPE pair DROP ATTRIBUTE last;
SELECT is_empty('SELECT pg_temp.differences()', 'none is left');

-- another composite type is another one
CREATE TYPE other AS (a int);
CREATE TABLE changed (id int PRIMARY KEY, p other);
SELECT stream_track('changed') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO changed VALUES (1, ROW(1));														-- 1
ALTER TABLE changed ALTER p TYPE inner_type USING ROW('x', NULL);							-- 2
INSERT INTO changed VALUES (2, ROW('x', NULL));												-- 3
SELECT is(pg_temp.error_of('SELECT * FROM stream_changes(NULL::changed, 1, 1)'),
	'42846 / column "p" was of type p16.other before version 2, which cannot be cast to inner_type', 'a column of another composite type');
DROP TYPE other;
SELECT is(left(pg_temp.error_of('SELECT * FROM stream_changes(NULL::changed, 1, 1)'), 5), '42846', 'also when the old type is gone');

-- types that are stored as text and become others: cast as an assignment would, if there is a cast
CREATE TYPE size AS ENUM ('small', 'large');
CREATE DOMAIN size_domain AS size;
CREATE FUNCTION size_number(size) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT CASE $1 WHEN 'small' THEN 1 ELSE 2 END $$;
CREATE CAST (size AS int) WITH FUNCTION size_number(size) AS ASSIGNMENT;
CREATE TABLE sizes (id int PRIMARY KEY, a size, b size, c size, d size_domain, e size_domain);
SELECT stream_track('sizes') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO sizes VALUES (1, 'small', 'large', NULL, 'large', 'small');						-- 1
ALTER TABLE sizes ALTER a TYPE int USING a::int, ALTER b TYPE text, ALTER c TYPE date USING NULL, ALTER d TYPE int USING d::size::int, ALTER e TYPE size;	-- 2
INSERT INTO sizes VALUES (2, 2, 'x', '2024-01-01', 3, 'large');								-- 3
SELECT is(pg_temp.error_of('SELECT * FROM stream_changes(NULL::sizes, 1, 1)'), '42846 / column "c" was of type p16.size before version 2, which cannot be cast to date',
	'no cast: the version of the change');
ALTER TABLE sizes DROP c;
SELECT is((SELECT row_data::text FROM stream_changes(NULL::sizes, 1, 1)), '(1,1,large,2,small)', 'by their casts');

-- as keys
CREATE TYPE mood AS ENUM ('ok', 'bad', 'so so');
CREATE TYPE key_pair AS (m mood, n numeric);
CREATE TABLE keys (k mood, p key_pair, ms mood[], v int, PRIMARY KEY (k, p, ms));
SELECT stream_track('keys') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO keys VALUES ('ok', '(bad,1.0)', '{ok,"so so"}', 1), ('bad', '(ok,1)', '{}', 1);	-- 1
ALTER TYPE mood RENAME VALUE 'ok' TO 'x';
ALTER TYPE mood RENAME VALUE 'bad' TO 'ok';
ALTER TYPE mood RENAME VALUE 'so so' TO 'so, "so"';
UPDATE keys SET v = 2;																		-- 2
ALTER TYPE key_pair ADD ATTRIBUTE added int;
UPDATE keys SET v = 3, p.n = 1.00;															-- 3
SELECT results_eq($$SELECT _change_type, _commit_version, row_data ->> 'k', row_data ->> 'v' FROM stream_changes('keys', deduplication_mode => 'netChanges')$$,
	$$VALUES ('insert', 3::bigint, 'x', '3'), ('insert', 3, 'ok', '3')$$, 'renamed labels are the same keys, and so are altered composites');
SELECT results_eq($$SELECT _change_type, _commit_version, row_data ->> 'k', row_data ->> 'v' FROM stream_changes('keys', 2, deduplication_mode => 'netChanges', compute_updates => true)$$,
	$$VALUES ('update_preimage', 2::bigint, 'x', '1'), ('update_preimage', 2, 'ok', '1'), ('update_postimage', 3, 'x', '3'), ('update_postimage', 3, 'ok', '3')$$, 'from the middle on');
SELECT results_eq($$SELECT row_data ->> 'k' FROM stream_changes('keys', 1, 1)$$, $$VALUES ('ok'), ('bad')$$, 'jsonb shows the labels of the time');
SELECT is(left(pg_temp.error_of('SELECT * FROM stream_changes(NULL::keys, 1, 1)'), 5), '22P02', 'the typed form has no value for a label that is gone');
ALTER TYPE mood ADD VALUE 'new' BEFORE 'x';
UPDATE keys SET v = 4;																		-- 4
SELECT is((SELECT count(*) FROM stream_changes('keys', deduplication_mode => 'netChanges')), 2::bigint, 'an added label changes nothing');
DELETE FROM keys;																			-- 5
SELECT is_empty($$SELECT * FROM stream_changes('keys', deduplication_mode => 'netChanges')$$, 'all is gone');

-- in the middle of a transaction: what it does to a row is still one change
CREATE TABLE middle (k mood PRIMARY KEY, p key_pair, gone text, v int);
SELECT stream_track('middle') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
CREATE FUNCTION pg_temp.middle(version bigint) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(format('%s %s', _change_type, row_data -> 'v'), ', ') FROM stream_changes('middle', version, version, compute_updates => true) $$;
INSERT INTO middle VALUES ('x', ROW('x', 1, 1), 'g', 0);									-- 1
BEGIN;
UPDATE middle SET v = 1;
ALTER TABLE middle ADD added int DEFAULT 7;
UPDATE middle SET v = 2;
COMMIT;																						-- 2
SELECT is(pg_temp.middle(2), 'update_preimage 0, update_postimage 2', 'a column is added');
BEGIN;
UPDATE middle SET v = 3;
ALTER TABLE middle DROP gone;
UPDATE middle SET v = 4;
COMMIT;																						-- 3
SELECT is(pg_temp.middle(3), 'update_preimage 2, update_postimage 4', 'a column is dropped');
BEGIN;
UPDATE middle SET v = 5;
ALTER TYPE mood RENAME VALUE 'x' TO 'y';
UPDATE middle SET v = 6;
ALTER TYPE key_pair ADD ATTRIBUTE another text;
UPDATE middle SET v = 7;
COMMIT;																						-- 4
SELECT is(pg_temp.middle(4), 'update_preimage 4, update_postimage 7', 'types are altered');
BEGIN;
INSERT INTO middle VALUES ('ok', NULL, 8);
ALTER TABLE middle ADD more int;
DELETE FROM middle WHERE k = 'ok';
COMMIT;																						-- 5
SELECT is(pg_temp.middle(5), NULL, 'a row that comes and goes');
SELECT stream_untrack('middle') \g /dev/null

-- tables OF a type are altered with it
CREATE EXTENSION IF NOT EXISTS citext SCHEMA public;
CREATE TYPE entry AS (k text, n int, gone text);
CREATE TABLE made_of OF entry (PRIMARY KEY (k));
SELECT stream_track('made_of', baseline => false) \g /dev/null
INSERT INTO made_of VALUES ('a', 1, 'x');													-- 1
ALTER TYPE entry ADD ATTRIBUTE new int CASCADE, DROP ATTRIBUTE gone CASCADE;
ALTER TYPE entry ALTER ATTRIBUTE n TYPE text CASCADE;										-- 2: a rewrite
ALTER TYPE entry ALTER ATTRIBUTE k TYPE citext CASCADE;										-- 3: none, but another identity
UPDATE made_of SET k = 'A', new = 4;														-- 4
SELECT results_eq($$SELECT _commit_version, _change_type, row_data FROM stream_changes('made_of', compute_updates => true)$$,
	$$VALUES (1::bigint, 'insert', '{"k": "a", "n": 1, "gone": "x"}'::jsonb),
		(2, 'update_preimage', '{"k": "a", "n": 1, "new": null}'), (2, 'update_postimage', '{"k": "a", "n": "1", "new": null}'),
		(3, 'delete', '{"k": "a", "n": "1", "new": null}'), (3, 'insert', '{"k": "a", "n": "1", "new": null}'),
		(4, 'update_preimage', '{"k": "a", "n": "1", "new": null}'), (4, 'update_postimage', '{"k": "A", "n": "1", "new": 4}')$$,
	'a table of the type: rewritten, and with a key that compares in another way');
SELECT results_eq($$SELECT _commit_version, (row_data).* FROM stream_changes(NULL::made_of, deduplication_mode => 'netChanges')$$,
	$$VALUES (4::bigint, 'A'::citext, '1', 4)$$, 'its net change');
BEGIN;
ALTER TYPE entry ALTER ATTRIBUTE n TYPE char(3) CASCADE;
ROLLBACK;
SELECT is(stream_latest_version('made_of'), 4::bigint, 'rolled back');

SELECT stream_untrack('made_of'), stream_untrack('t'), stream_untrack('changed'), stream_untrack('sizes'), stream_untrack('keys') \g /dev/null
DROP SCHEMA p16 CASCADE;
SELECT * FROM finish();
