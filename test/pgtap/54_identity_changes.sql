-- Identity: which columns may identify rows, what becomes of them while a table is tracked, keys that move, and a replica
-- identity that somebody changes behind our back.  (How values are compared is in 30_identity.sql.)

SET client_min_messages = warning;

SELECT plan(112);

\ir include/errors.sql

CREATE SCHEMA p54;
SET search_path = p54, public;

-- "SQLSTATE message detail" of a command, or "none"
CREATE FUNCTION p54.error_of(command text) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(state || ' ' || message || ' ' || detail, 'none') FROM pg_temp.raised(command)
$$;

-- The changes of a range, in an order that does not depend on the place of netted ones inside their commit.
CREATE FUNCTION p54.changes(tab text, first bigint, last bigint DEFAULT NULL, mode text DEFAULT 'dropCarryovers', pairs boolean DEFAULT true) RETURNS text
RETURN (SELECT string_agg(concat_ws(' ', replace(replace(_change_type, 'update_preimage', '-'), 'update_postimage', '+'), (SELECT string_agg(coalesce(left(value, 20), 'null'), '/' ORDER BY attnum NULLS FIRST) FROM jsonb_each_text(row_data) LEFT JOIN pg_attribute ON attrelid = tab::regclass AND attname = key)), ', '
			ORDER BY _commit_version, row_data, _change_type DESC)
		FROM stream_changes(tab, first, coalesce(last, first), deduplication_mode => mode, compute_updates => pairs));

-- Rows by which the table and its log, folded, differ.
CREATE FUNCTION p54.differences(tab text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format($q$
		WITH moves AS (SELECT row_data::text AS r, CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS s FROM stream_changes(%1$L)),
			folded AS (SELECT r FROM (SELECT r, sum(s) AS n FROM moves GROUP BY r) AS m, generate_series(1, n)),
			live AS (SELECT to_jsonb(t)::text AS r FROM %1$s AS t)
		(SELECT 'missing ' || r FROM (TABLE live EXCEPT ALL TABLE folded) AS x) UNION ALL (SELECT 'too much ' || r FROM (TABLE folded EXCEPT ALL TABLE live) AS x)
		UNION ALL SELECT 'taken away too often ' || r FROM moves GROUP BY r HAVING sum(s) < 0 $q$, tab);
END $$;

CREATE FUNCTION p54.shown(tab text) RETURNS name[] RETURN (SELECT identity_columns FROM stream_tables WHERE table_name = tab);

-- while nothing is tracked there is no slot, and what is committed before there is one is in a baseline or nowhere
CREATE TABLE anchor ();
SELECT stream_track('anchor', baseline => false) \g /dev/null
SELECT stream_sync('120 s') \g /dev/null

/*
 * Which columns
 */
CREATE TABLE chosen (a int, b int, c int, d int NOT NULL, e text, f int, PRIMARY KEY (a, b), UNIQUE (c, d), CONSTRAINT late UNIQUE (f, e) DEFERRABLE INITIALLY DEFERRED);
CREATE UNIQUE INDEX with_more ON chosen (e) INCLUDE (c);
CREATE UNIQUE INDEX not_distinct ON chosen (f) NULLS NOT DISTINCT;
CREATE UNIQUE INDEX part ON chosen (d) WHERE d > 0;
CREATE UNIQUE INDEX expr ON chosen (d, lower(e));
CREATE INDEX plain ON chosen (b, c);
INSERT INTO chosen VALUES (1, 1, 1, 1, 'x', 1), (2, 2, 2, 2, 'x2', 2);
CREATE UNIQUE INDEX CONCURRENTLY valid_one ON chosen (b, c, d);
CREATE FUNCTION p54.tried(tab text, columns name[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	PERFORM stream_track(tab, columns, baseline => false);
	result := p54.shown(tab)::text;
	PERFORM stream_untrack(tab::regclass);
	RETURN coalesce(result, 'null');
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SELECT is(p54.tried('chosen', columns), result, test) FROM (VALUES
	(1, NULL::name[], '{a,b}', 'the primary key'),
	(2, '{a,b}', '{a,b}', 'the same, asked for'),
	(3, '{b,a}', '{b,a}', 'in another order'),
	(4, '{d,c}', '{d,c}', 'a unique constraint with a column that may be NULL'),
	(5, '{f,e}', '{f,e}', 'a deferrable one'),
	(6, '{e}', '{e}', 'a unique index with INCLUDE columns'),
	(7, '{e,c}', '42P10', 'which are no part of it'),
	(8, '{f}', '{f}', 'NULLS NOT DISTINCT'),
	(9, '{a}', '42P10', 'a part of a unique index'),
	(10, '{a,b,c}', '42P10', 'more than a unique index'),
	(11, '{d}', '42P10', 'a partial index'),
	(12, '{d,e}', '42P10', 'an index on an expression'),
	(13, '{b,c}', '42P10', 'an index that is not unique'),
	(14, '{b,c,d}', '{b,c,d}', 'one built concurrently'),
	(15, '{}', '22023', 'no column'),
	(16, '{nothing}', '42P10', 'a column that is not there'),
	(17, '{ctid}', '42P10', 'a system column'),
	(18, '{a,a}', '42701', 'one twice'),
	(19, '{a,NULL}', '22004', 'NULL')) AS t (n, columns, result, test) ORDER BY n;
SELECT is(relreplident, 'd', 'REPLICA IDENTITY is what it was') FROM pg_class WHERE oid = 'chosen'::regclass;

-- an index must not take for two rows what readers take for one
CREATE COLLATION p54.ignore_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TYPE p54.two AS (a numeric, b text);
CREATE TABLE compared (any_case text COLLATE ignore_case, same_case text, pattern varchar(9), image two, plain two, again text COLLATE ignore_case NOT NULL);
CREATE UNIQUE INDEX ON compared (any_case COLLATE "C");
CREATE UNIQUE INDEX ON compared (same_case COLLATE ignore_case);
CREATE UNIQUE INDEX ON compared (pattern varchar_pattern_ops);
CREATE UNIQUE INDEX ON compared (image record_image_ops);
CREATE UNIQUE INDEX ON compared (plain);
CREATE UNIQUE INDEX compared_again ON compared (again COLLATE "C");
SELECT is(p54.tried('compared', columns), result, test) FROM (VALUES
	(1, '{any_case}'::name[], '42P10', 'an index with a collation that tells more apart'),
	(2, '{same_case}', '{same_case}', 'one with a collation that tells less apart'),
	(3, '{pattern}', '{pattern}', 'an operator class with the same equality'),
	(4, '{image}', '42P10', 'one with another equality'),
	(5, '{plain}', '{plain}', 'a composite')) AS t (n, columns, result, test) ORDER BY n;
ALTER TABLE compared REPLICA IDENTITY USING INDEX compared_again;
SELECT is(p54.tried('compared', NULL), '{}', 'nor is such an index taken as REPLICA IDENTITY');
CREATE UNIQUE INDEX ON compared (again);
SELECT is(p54.tried('compared', '{again}'), '{again}', 'another index on the column will do');
CREATE TABLE refined (k text NOT NULL, v int);
CREATE UNIQUE INDEX ON refined (k COLLATE "C");
SELECT stream_track('refined', '{k}', baseline => false) \g /dev/null
ALTER TABLE refined ALTER k TYPE text COLLATE ignore_case;
SELECT is(p54.shown('refined'), NULL, 'the column gets a collation by which the index is none any more');
SELECT stream_untrack('refined') \g /dev/null

CREATE TABLE by_index (k int NOT NULL, v int);
CREATE UNIQUE INDEX by_index_k ON by_index (k);
ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_k;
SELECT is(p54.tried('by_index', NULL), '{k}', 'without a primary key that of REPLICA IDENTITY USING INDEX');
SELECT is(relreplident::text || (SELECT indexrelid::regclass FROM pg_index WHERE indrelid = c.oid AND indisreplident), 'iby_index_k', 'which is restored') FROM pg_class AS c WHERE oid = 'by_index'::regclass;
SELECT stream_track('by_index', baseline => false) \g /dev/null
SELECT is(relreplident, 'f', 'FULL while it is tracked') FROM pg_class AS c WHERE oid = 'by_index'::regclass;
DROP INDEX by_index_k;
SELECT is(p54.shown('by_index'), NULL, 'the index dropped meanwhile');
SELECT stream_untrack('by_index') \g /dev/null
SELECT is(relreplident, 'd', 'then it is DEFAULT afterwards') FROM pg_class AS c WHERE oid = 'by_index'::regclass;
CREATE TABLE nothing_unique (a int, b int);
CREATE UNIQUE INDEX ON nothing_unique (a) WHERE b > 0;
SELECT is(p54.tried('nothing_unique', NULL), '{}', 'no identity');

/*
 * Tracked and written in one transaction: the identity asked for is known from the first change on
 */
CREATE TABLE at_once (id int PRIMARY KEY, k text UNIQUE, v int);
BEGIN;
SELECT stream_track('at_once', '{k}', baseline => false) \g /dev/null
INSERT INTO at_once VALUES (1, 'one', 1), (2, 'two', 1);
COMMIT;																	-- 1
UPDATE at_once SET id = id + 10, v = 2;									-- 2
UPDATE at_once SET k = k || k WHERE id = 11;							-- 3
SELECT is(p54.changes('at_once', 2), '- 1/one/1, + 11/one/2, - 2/two/1, + 12/two/2', 'rows are recognized by it');
SELECT is(p54.changes('at_once', 3), 'delete 11/one/2, insert 11/oneone/2', 'and by nothing else');
SELECT is(p54.changes('at_once', 1, 3, 'netChanges'), 'insert 12/two/2, insert 11/oneone/2', 'net changes as well');
SELECT stream_untrack('at_once') \g /dev/null

/*
 * Duplicate rows, without identity
 */
CREATE TABLE dups (a int, b text);
INSERT INTO dups VALUES (1, 'x'), (1, 'x'), (1, 'x'), (NULL, NULL), (NULL, NULL);
SELECT stream_track('dups') \g /dev/null
SELECT stream_sync('120 s') \g /dev/null
DELETE FROM dups WHERE ctid = (SELECT min(ctid) FROM dups);				-- 1
UPDATE dups SET b = 'y' WHERE ctid = (SELECT min(ctid) FROM dups);		-- 2
INSERT INTO dups VALUES (1, 'x'), (NULL, NULL);							-- 3
BEGIN;
INSERT INTO dups VALUES (2, 'z');										-- 4
DELETE FROM dups WHERE a = 2;
UPDATE dups SET a = a;
COMMIT;
SELECT is_empty($$SELECT p54.differences('dups')$$, 'duplicate rows are counted');
SELECT is(p54.changes('dups', 1, pairs => false), 'delete 1/x', 'one of three equal rows is deleted once');
SELECT is(p54.changes('dups', 2, pairs => false), 'delete 1/x, insert 1/y', 'an update is a delete and an insert');
SELECT is(p54.changes('dups', 4, pairs => false), 'insert 2/z, delete 2/z', 'nothing is netted, carry-overs are dropped');
SELECT is(p54.changes('dups', 4, mode => 'none', pairs => false),
	'insert null/null, insert null/null, insert null/null, delete null/null, delete null/null, delete null/null, insert 1/x, insert 1/x, delete 1/x, delete 1/x, insert 1/y, delete 1/y, insert 2/z, delete 2/z',
	'or shown');
SELECT alike(p54.error_of($$SELECT p54.changes('dups', 1)$$), '42P17 %INVALID_CHANGELOG_SCHEMA.MISSING_ROW_ID.', 'updates need an identity');
SELECT alike(p54.error_of($$SELECT p54.changes('dups', 1, mode => 'netChanges', pairs => false)$$), '42P17 %INVALID_CHANGELOG_SCHEMA.MISSING_ROW_ID.', 'net changes, too');

/*
 * Keys that move
 */
CREATE TABLE moving (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v text);
INSERT INTO moving VALUES (1, 'a'), (2, 'b'), (3, 'c');
SELECT stream_track('moving') \g /dev/null
SELECT stream_sync('120 s') \g /dev/null
UPDATE moving SET id = id + 1;											-- 1
SELECT is(p54.changes('moving', 1), 'delete 1/a, + 2/a, - 2/b, + 3/b, - 3/c, insert 4/c', 'a chain');
BEGIN;
UPDATE moving SET id = CASE id WHEN 2 THEN 3 ELSE 2 END WHERE id IN (2, 3);	-- 2
COMMIT;
SELECT is(p54.changes('moving', 2), '- 2/a, + 3/a, + 2/b, - 3/b', 'a swap');
BEGIN;																	-- 3: a swap through a third key
UPDATE moving SET id = -1 WHERE id = 2;
UPDATE moving SET id = 2 WHERE id = 3;
UPDATE moving SET id = 3 WHERE id = -1;
COMMIT;
SELECT is(p54.changes('moving', 3), '+ 2/a, - 3/a, - 2/b, + 3/b', 'a swap by way of a third key');
BEGIN;																	-- 4: away and back
UPDATE moving SET id = 100 WHERE id = 2;
UPDATE moving SET v = 'changed' WHERE id = 100;
UPDATE moving SET id = 2, v = 'a' WHERE id = 100;
COMMIT;
SELECT is(p54.changes('moving', 4), NULL, 'away and back is a carry-over');
BEGIN;																	-- 5: three in a circle, twice, with values changed
UPDATE moving SET id = CASE id WHEN 2 THEN 3 WHEN 3 THEN 4 ELSE 2 END;
UPDATE moving SET id = CASE id WHEN 2 THEN 3 WHEN 3 THEN 4 ELSE 2 END, v = v || v;
COMMIT;
SELECT is(p54.changes('moving', 5), '- 2/a, + 4/aa, - 3/b, + 2/bb, - 4/c, + 3/cc', 'a circle');
BEGIN;																	-- 6: onto a key whose row is deleted
DELETE FROM moving WHERE id = 2;
UPDATE moving SET id = 2 WHERE id = 3;
INSERT INTO moving VALUES (3, 'new');
COMMIT;
SELECT is(p54.changes('moving', 6), '- 2/bb, + 2/cc, - 3/cc, + 3/new', 'a deleted row''s key taken over');
BEGIN;																	-- 7: a new row that moves, and one that comes and goes
INSERT INTO moving VALUES (50, 'n');
UPDATE moving SET id = 51 WHERE id = 50;
INSERT INTO moving VALUES (60, 'n');
UPDATE moving SET id = 61 WHERE id = 60;
DELETE FROM moving WHERE id = 61;
COMMIT;
SELECT is(p54.changes('moving', 7), 'insert 51/n', 'a new row that moves');
SELECT is(p54.changes('moving', 1, 7, 'netChanges'), 'delete 1/a, - 2/b, - 3/c, insert 4/aa, + 2/cc, + 3/new, insert 51/n', 'net changes over all of it');
SELECT is_empty($$SELECT p54.differences('moving')$$, 'which folds to the table');

/*
 * The primary key of a tracked table is dropped, changed, added
 */
CREATE TABLE losing (id int CONSTRAINT losing_key PRIMARY KEY, k int NOT NULL, v text);
INSERT INTO losing VALUES (1, 1, 'a');
SELECT stream_track('losing') \g /dev/null
SELECT stream_sync('120 s') \g /dev/null
UPDATE losing SET v = 'b';												-- 1
SELECT is(p54.shown('losing'), '{id}', 'the identity is shown');
ALTER TABLE losing DROP CONSTRAINT losing_key;
SELECT is(p54.shown('losing'), NULL, 'and, when its index is dropped, that it is lost');
UPDATE losing SET v = 'c';												-- 2
INSERT INTO losing VALUES (1, 1, 'c');									-- 3
BEGIN;
DELETE FROM losing WHERE ctid = (SELECT max(ctid) FROM losing);			-- 4
INSERT INTO losing VALUES (1, 1, 'c');
COMMIT;
SELECT is(p54.changes('losing', 0, 1), 'insert 1/1/a, - 1/1/a, + 1/1/b', 'before, all works as it did');
SELECT is(p54.changes('losing', 0, 1, 'netChanges'), 'insert 1/1/b', 'net changes, too');
SELECT is(p54.changes('losing', 2, 4, pairs => false), 'delete 1/1/b, insert 1/1/c, insert 1/1/c, insert 1/1/c, delete 1/1/c', 'afterwards nothing is netted or paired');
SELECT alike(p54.error_of($$SELECT p54.changes('losing', 1, 2)$$), '42P17 %version 2%INVALID_CHANGELOG_SCHEMA.MISSING_ROW_ID.', 'a range with such a version is refused where identity is needed');
SELECT alike(p54.error_of($$SELECT p54.changes('losing', 4, 4, 'netChanges', false)$$), '42P17 %version 4%INVALID_CHANGELOG_SCHEMA.MISSING_ROW_ID.', 'also for net changes');
DELETE FROM losing WHERE ctid = (SELECT max(ctid) FROM losing);			-- 5
ALTER TABLE losing ADD PRIMARY KEY (k);
UPDATE losing SET v = 'd';												-- 6
SELECT is(p54.shown('losing'), NULL, 'another primary key is not what was recorded');
SELECT alike(p54.error_of($$SELECT p54.changes('losing', 6)$$), '42P17 %version 6%', 'nor used');
ALTER TABLE losing ADD UNIQUE (id);
UPDATE losing SET v = 'e';												-- 7
SELECT is(p54.shown('losing'), '{id}', 'a unique index on the recorded columns is');
SELECT is(p54.changes('losing', 7), '- 1/1/d, + 1/1/e', 'from then on');
ALTER TABLE losing RENAME id TO ident;
SELECT is(p54.shown('losing'), '{ident}', 'a renamed column is shown by its name of today');
UPDATE losing SET v = 'f';												-- 8
SELECT is(p54.changes('losing', 7, 8, 'netChanges'), '- 1/1/d, + 1/1/f', 'and goes on to identify rows');
ALTER TABLE losing DROP ident;
SELECT is(p54.shown('losing'), NULL, 'a dropped column is no identity, and has no name');
UPDATE losing SET v = 'g';												-- 9
SELECT alike(p54.error_of($$SELECT p54.changes('losing', 9)$$), '42P17 %version 9%', 'nothing is recognized by it');
SELECT is(p54.changes('losing', 9, pairs => false), 'delete 1/f, insert 1/g', 'events are there');
SELECT stream_untrack('losing') \g /dev/null
SELECT is(p54.tried('losing', NULL), '{k}', 'tracked anew it has the new identity');

-- in the middle of a transaction
CREATE TABLE amid (id int, v text, CONSTRAINT amid_key PRIMARY KEY (id));
SELECT stream_track('amid', baseline => false) \g /dev/null
BEGIN;																	-- 1
INSERT INTO amid VALUES (1, 'a'), (2, 'a');
UPDATE amid SET v = 'b' WHERE id = 1;
ALTER TABLE amid DROP CONSTRAINT amid_key;
UPDATE amid SET v = 'c' WHERE id = 1;
COMMIT;
BEGIN;																	-- 2
UPDATE amid SET v = 'd' WHERE id = 1;
UPDATE amid SET v = 'd' WHERE id = 2;
ALTER TABLE amid ADD PRIMARY KEY (id);
UPDATE amid SET v = 'e' WHERE id = 2;
UPDATE amid SET v = 'f' WHERE id = 2;
COMMIT;
SELECT is_empty($$SELECT p54.differences('amid')$$, 'an identity that is lost and found inside transactions');
SELECT alike(p54.error_of($$SELECT p54.changes('amid', 1)$$), '42P17 %version 1%', 'such a version has none');
SELECT alike(p54.error_of($$SELECT p54.changes('amid', 2)$$), '42P17 %version 2%', 'neither one that begins without');
SELECT is(p54.shown('amid'), '{id}', 'at the end it is there');
UPDATE amid SET v = 'g';												-- 3
SELECT is(p54.changes('amid', 3), '- 1/d, - 2/f, + 1/g, + 2/g', 'and used');

-- a table that has got its first key only later
CREATE TABLE gaining (id int, v text);
SELECT stream_track('gaining', baseline => false) \g /dev/null
INSERT INTO gaining VALUES (1, 'a');									-- 1
ALTER TABLE gaining ADD PRIMARY KEY (id);
UPDATE gaining SET v = 'b';												-- 2
SELECT is(p54.shown('gaining'), '{}', 'identity is recorded when tracking begins');
SELECT alike(p54.error_of($$SELECT p54.changes('gaining', 2)$$), '42P17 %', 'a key that is added later is not used');

-- a dropped table shows what it had last
CREATE TABLE going (id int PRIMARY KEY, v text);
CREATE TABLE going_lost (id int CONSTRAINT going_key PRIMARY KEY, v text);
SELECT stream_track('going', baseline => false), stream_track('going_lost', baseline => false) \g /dev/null
INSERT INTO going VALUES (1, 'a');
ALTER TABLE going_lost DROP CONSTRAINT going_key;
INSERT INTO going_lost VALUES (1, 'a');
SELECT stream_sync('120 s') \g /dev/null
DROP TABLE going, going_lost;
SELECT results_eq($$SELECT identity_columns FROM stream_tables WHERE table_name LIKE 'going%' ORDER BY table_name$$, $$VALUES ('{id}'::name[]), (NULL)$$, 'a dropped table shows what it had last');

/*
 * REPLICA IDENTITY changed behind our back
 */
CREATE TABLE behind (id int PRIMARY KEY, v text, big text, n int);
ALTER TABLE behind ALTER big SET STORAGE EXTERNAL;
INSERT INTO behind SELECT i, 'a', repeat('b', 3000), 0 FROM generate_series(1, 3) AS i;
SELECT stream_track('behind') \g /dev/null
SELECT stream_sync('120 s') \g /dev/null
UPDATE behind SET n = 1 WHERE id = 1;									-- 1
ALTER TABLE behind REPLICA IDENTITY DEFAULT;
INSERT INTO behind VALUES (4, 'a', 'b', 0);								-- 2: an insert needs no old row
UPDATE behind SET n = 2 WHERE id = 1;									-- 3: the value out of line is not in WAL
DELETE FROM behind WHERE id = 2;										-- 4
UPDATE behind SET id = 30 WHERE id = 3;									-- 5: with a key
ALTER TABLE behind REPLICA IDENTITY NOTHING;
UPDATE behind SET v = 'c' WHERE id = 4;									-- 6
DELETE FROM behind WHERE id = 4;										-- 7
ALTER TABLE behind REPLICA IDENTITY FULL;
UPDATE behind SET n = 3 WHERE id = 1;									-- 8: fine again
SELECT is(p54.changes('behind', v), expected, 'version ' || v)
FROM (VALUES (1, '- 1/a/' || repeat('b', 20) || '/0, + 1/a/' || repeat('b', 20) || '/1'), (2, 'insert 4/a/b/0'),
	(8, '- 1/a/' || repeat('b', 20) || '/2, + 1/a/' || repeat('b', 20) || '/3')) AS t (v, expected);
SELECT alike(p54.error_of(format('SELECT p54.changes(%L, %s, %s, %L, %L)', 'behind', v, l, mode, mode <> 'none')), format('55000 %%version %s of table "behind" is incomplete%%replica identity%%', v),
	format('versions %s to %s are refused by %s, naming the first incomplete one', v, l, mode))
FROM (VALUES (3, 3), (4, 4), (5, 5), (6, 6), (7, 7), (3, 8), (7, 8)) AS t (v, l), (VALUES ('none'), ('dropCarryovers'), ('netChanges')) AS m (mode);
SELECT alike(p54.error_of($$SELECT row_data FROM stream_changes(NULL::p54.behind, 3, 3)$$), '55000 %version 3 %incomplete%', 'the typed form refuses them, too');
SELECT alike(p54.error_of($$SELECT * FROM stream_events('behind', 4, 4)$$), '55000 %version 4 %incomplete%', 'and stream_events');
SELECT results_eq($$SELECT _commit_version, inserts, updates, deletes FROM stream_versions('behind', 2, 7)$$,
	'VALUES (2::bigint, 1::bigint, 0::bigint, 0::bigint), (3, 0, 1, 0), (4, 0, 0, 1), (5, 0, 1, 0), (6, 0, 1, 0), (7, 0, 0, 1)', 'stream_versions counts them');
SELECT results_eq($$SELECT status, last_error ~ 'at version' FROM stream_tables WHERE table_name = 'behind'$$, $$VALUES ('gap', true)$$, 'the status tells of it');
-- between two changes of one transaction, and only there
BEGIN;																	-- 9
UPDATE behind SET n = 4 WHERE id = 1;
ALTER TABLE behind REPLICA IDENTITY DEFAULT;
UPDATE behind SET n = 5 WHERE id = 1;
ALTER TABLE behind REPLICA IDENTITY FULL;
UPDATE behind SET n = 6 WHERE id = 1;
COMMIT;
BEGIN;																	-- 10: set and not used
ALTER TABLE behind REPLICA IDENTITY DEFAULT;
INSERT INTO behind VALUES (5, 'a', 'b', 0);
ALTER TABLE behind REPLICA IDENTITY FULL;
DELETE FROM behind WHERE id = 5;
COMMIT;
BEGIN;																	-- 11: rolled back
UPDATE behind SET n = 7 WHERE id = 1;
SAVEPOINT s;
ALTER TABLE behind REPLICA IDENTITY NOTHING;
UPDATE behind SET n = 8 WHERE id = 1;
ROLLBACK TO s;
UPDATE behind SET n = 9 WHERE id = 1;
COMMIT;
SELECT alike(p54.error_of($$SELECT p54.changes('behind', 9)$$), '55000 %version 9 %incomplete%', 'one incomplete event among others');
SELECT is(p54.changes('behind', 10), NULL, 'inserts alone are complete');
SELECT is(p54.changes('behind', 11), format('- 1/a/%1$s/6, + 1/a/%1$s/9', repeat('b', 20)), 'what was rolled back does not count');
-- a table without a key, whose updates would fail in a publication, but not here
CREATE TABLE behind_keyless (v int);
INSERT INTO behind_keyless VALUES (1);
SELECT stream_track('behind_keyless') \g /dev/null
SELECT stream_sync('120 s') \g /dev/null
ALTER TABLE behind_keyless REPLICA IDENTITY DEFAULT;
UPDATE behind_keyless SET v = 2;
DELETE FROM behind_keyless;
SELECT alike(p54.error_of($$SELECT p54.changes('behind_keyless', 1, pairs => false)$$), '55000 %version 1 %incomplete%', 'an update without any old row');
SELECT alike(p54.error_of($$SELECT p54.changes('behind_keyless', 2, pairs => false)$$), '55000 %version 2 %incomplete%', 'a delete');

SELECT stream_untrack(t) FROM unnest('{anchor,dups,moving,amid,gaining,behind,behind_keyless}'::regclass[]) AS t \g /dev/null
SELECT is(relreplident, 'd', 'untracked, the old setting is back') FROM pg_class WHERE oid = 'behind'::regclass;
SELECT * FROM finish();
DROP SCHEMA p54 CASCADE;
