-- stream_verify: rows that a table and its log do not have in common.

SET client_min_messages = warning;

SELECT no_plan();
\ir include/errors.sql

CREATE TABLE p23_t (id int PRIMARY KEY, v text, n numeric, ts timestamptz, a int[], f float8, j jsonb);
INSERT INTO p23_t SELECT i, repeat('x', i * 1000), i / 3.0, now(), array[i, NULL], 1e300 / 7 * i, jsonb_build_object('i', i) FROM generate_series(1, 5) AS i;
SELECT stream_track('p23_t', on_truncate => 'gap') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null

/*
 * Rights and arguments
 */
CREATE ROLE p23_other;
GRANT SELECT ON p23_t TO p23_other;
CREATE TABLE p23_plain (id int);
CREATE TABLE p23_none (id int);
SELECT stream_track('p23_none', baseline => false) \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
SELECT is(pg_temp.error_of($$SELECT * FROM stream_verify('p23_t')$$, 'p23_other'), '42501 / must be owner of table p23_t', 'only the owner compares');
SELECT is(pg_temp.state_of($$SELECT * FROM stream_verify('p23_plain')$$), '0A000 Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION.', 'a table that is not tracked');
SELECT is(pg_temp.state_of($$SELECT * FROM stream_verify(NULL)$$), '22004', 'no table');
SELECT is(pg_temp.state_of($$SELECT * FROM stream_verify('p23_none')$$), '55000 What it held then is not in its log.', 'without a baseline there is nothing to compare with');
BEGIN;
SELECT stream_track('p23_plain') \g /dev/null
SELECT is((pg_temp.raised($$SELECT * FROM stream_verify('p23_plain')$$)).state, '25001', 'a table that this very transaction tracks');
ROLLBACK;

/*
 * Nothing differs
 */
SELECT is_empty($$SELECT * FROM stream_verify('p23_t')$$, 'the baseline');
UPDATE p23_t SET v = 'y', a = NULL WHERE id = 1;
ALTER TABLE p23_t ADD COLUMN c int DEFAULT 7;
ALTER TABLE p23_t RENAME COLUMN v TO w;
INSERT INTO p23_t (id) VALUES (9);
SELECT is_empty($$SELECT * FROM stream_verify('p23_t')$$, 'changes, also of columns');
ALTER TABLE p23_t ALTER COLUMN id TYPE bigint;
ALTER TABLE p23_t DROP COLUMN f;
UPDATE p23_t SET c = 8 WHERE id = 2;
SELECT is_empty($$SELECT * FROM stream_verify('p23_t')$$, 'a key that is wider now, and a column that is gone');
BEGIN;
UPDATE p23_t SET w = 'own' WHERE id = 2;
DELETE FROM p23_t WHERE id = 3;
INSERT INTO p23_t (id) VALUES (10);
SELECT is_empty($$SELECT * FROM stream_verify('p23_t')$$, 'what the own transaction has done does not count');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM p23_t \g /dev/null
SELECT is_empty($$SELECT * FROM stream_verify('p23_t')$$, 'in REPEATABLE READ');
COMMIT;
SELECT stream_vacuum('p23_t', older_than => '0 s') \g /dev/null
SELECT is_empty($$SELECT * FROM stream_verify('p23_t')$$, 'a baseline that has moved');

/*
 * Something does
 */
TRUNCATE p23_t;
SELECT results_eq($$SELECT difference, count(*) FROM stream_verify('p23_t') GROUP BY 1$$, $$VALUES ('missing in table', 6::bigint)$$, 'rows that went without being recorded');
INSERT INTO p23_t (id, w) VALUES (1, 'new'), (10, 'b');
SELECT bag_eq($$SELECT difference, (row_data->>'id')::int FROM stream_verify('p23_t')$$,
	$$SELECT 'missing in table', i FROM unnest('{2,3,4,5,9}'::int[]) AS i$$, 'one of them that has come back is another row with the same key');
DELETE FROM p23_t;
SELECT is((SELECT count(*) FROM stream_verify('p23_t')), 5::bigint, 'and goes again');

CREATE TABLE p23_behind (id int, v text);
INSERT INTO p23_behind VALUES (1, 'a'), (1, 'a'), (2, NULL);
SELECT stream_track('p23_behind') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p23_behind VALUES (1, 'a');
SELECT is_empty($$SELECT * FROM stream_verify('p23_behind')$$, 'rows without identity are counted');
SELECT stream_id AS id FROM streamcdc.streams WHERE table_name = 'p23_behind' \gset
-- a row of the log is made away with, as damage would
DELETE FROM streamcdc.blocks WHERE stream_id = :id AND first_version = 1;
SELECT results_eq($$SELECT * FROM stream_verify('p23_behind')$$, $$VALUES ('missing in log', '{"v": "a", "id": 1}'::jsonb)$$, 'one that is missing in the log');

-- partitions, with columns in another order
CREATE TABLE p23_p (x int, y text) PARTITION BY LIST (x);
CREATE TABLE p23_p1 PARTITION OF p23_p FOR VALUES IN (1);
CREATE TABLE p23_p2 (y text, gone int, x int);
ALTER TABLE p23_p2 DROP COLUMN gone;
ALTER TABLE p23_p ATTACH PARTITION p23_p2 FOR VALUES IN (2);
INSERT INTO p23_p VALUES (1, 'a'), (1, 'a'), (2, NULL), (2, 'long');
SELECT stream_track('p23_p') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
DELETE FROM p23_p1 WHERE ctid = (SELECT min(ctid) FROM p23_p1);
INSERT INTO p23_p VALUES (2, NULL), (1, 'z');
SELECT is_empty($$SELECT * FROM stream_verify('p23_p')$$, 'partitions');
ALTER TABLE p23_p DETACH PARTITION p23_p2;
SELECT is_empty($$SELECT * FROM stream_verify('p23_p')$$, 'one that was detached');

-- keys that are stored as text
CREATE TYPE p23_pair AS (a int, b int);
CREATE TABLE p23_typed (k p23_pair PRIMARY KEY, v int);
SELECT stream_track('p23_typed') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p23_typed VALUES ((1, 2), 1), ((1, 3), 2);
UPDATE p23_typed SET v = 3 WHERE v = 1;
SELECT is_empty($$SELECT * FROM stream_verify('p23_typed')$$, 'composite keys');

SELECT stream_untrack(t::regclass) FROM unnest('{p23_t,p23_none,p23_behind,p23_p,p23_typed}'::text[]) AS t \g /dev/null
DROP TABLE p23_t, p23_none, p23_behind, p23_p, p23_p2, p23_plain, p23_typed;
DROP TYPE p23_pair;
DROP ROLE p23_other;
SELECT * FROM finish();
