-- Partitioned tables as one stream: columns in another order in each partition, rows that move, partitions that come and go.
-- After each step the log, folded, must be the table: typed and jsonb, nothing too much and nothing missing.

SET client_min_messages = warning;

SELECT plan(156);

CREATE SCHEMA p52;
SET search_path = p52, public;

-- Rows that are too much and that are missing in the fold of the typed changes, and of the events as jsonb.
CREATE FUNCTION pg_temp.differences(name text, typed_only boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	changes text := format('SELECT CASE WHEN _change_type = ''insert'' THEN 1 ELSE -1 END AS s, row_data AS r
		FROM stream_changes(NULL::%1$s)', name);
	events text := format('SELECT -1 AS s, jsonb_populate_record(NULL::%1$s, old_row) AS r
		FROM stream_events(''%1$s'') WHERE old_row IS NOT NULL
		UNION ALL
		SELECT 1, jsonb_populate_record(NULL::%1$s, new_row) FROM stream_events(''%1$s'') WHERE new_row IS NOT NULL', name);
	moves text;
	one text;
	result text;
BEGIN
	FOREACH moves IN ARRAY CASE WHEN typed_only THEN ARRAY[changes] ELSE ARRAY[changes, events] END LOOP
		EXECUTE format('WITH sums AS MATERIALIZED (SELECT r, sum(s) AS n FROM (%2$s
				UNION ALL SELECT -1, t FROM %1$s AS t) AS moves GROUP BY r)
			SELECT coalesce(sum(n) FILTER (WHERE n > 0), 0) || '' too much, '' || coalesce(-sum(n) FILTER (WHERE n < 0), 0) || '' missing''
			FROM sums', name, moves) INTO one;
		result := concat_ws('; ', result, one);
	END LOOP;
	RETURN result;
END $$;

CREATE FUNCTION pg_temp.folds(name text, step text) RETURNS text LANGUAGE sql AS $$
	SELECT is(pg_temp.differences(name, false), '0 too much, 0 missing; 0 too much, 0 missing', step || ': the log is the table')
$$;

-- jsonb has columns as they were, so with other columns only the typed form can be folded
CREATE FUNCTION pg_temp.folds_typed(name text, step text) RETURNS text LANGUAGE sql AS $$
	SELECT is(pg_temp.differences(name, true), '0 too much, 0 missing', step || ': the log is the table')
$$;

-- The events of the newest version, counted: inserts, updates, deletes.
CREATE FUNCTION pg_temp.newest(name text) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s+ %s~ %s-', inserts, updates, deletes) FROM stream_versions(name) ORDER BY _commit_version DESC LIMIT 1
$$;

-- Which tables below have which REPLICA IDENTITY.
CREATE FUNCTION pg_temp.identities(root regclass) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(format('%s %s', c.relname, c.relreplident), ', ' ORDER BY c.relname)
	FROM pg_partition_tree(root) AS t JOIN pg_class AS c ON c.oid = t.relid WHERE t.isleaf
$$;

/*
 * A tree of three levels; the root and a partition have dropped columns, and another order
 */
CREATE TABLE customers (id int PRIMARY KEY);
INSERT INTO customers SELECT generate_series(1, 9);
CREATE TABLE p (gone int, id int, region text, v text, n numeric, customer int REFERENCES customers ON DELETE CASCADE,
	PRIMARY KEY (id, region)) PARTITION BY LIST (region);
ALTER TABLE p DROP COLUMN gone;
CREATE TABLE p_eu (customer int, n numeric, junk text, region text NOT NULL, v text, id int NOT NULL);
INSERT INTO p_eu VALUES (1, 1.50, 'old', 'eu', 'before', 1);
ALTER TABLE p_eu DROP COLUMN junk;
ALTER TABLE p ATTACH PARTITION p_eu FOR VALUES IN ('eu');
CREATE TABLE p_us PARTITION OF p FOR VALUES IN ('us');
ALTER TABLE p_us ALTER COLUMN v SET STORAGE EXTERNAL;
CREATE TABLE p_as PARTITION OF p FOR VALUES IN ('as1', 'as2') PARTITION BY LIST (region);
CREATE TABLE p_as1 PARTITION OF p_as FOR VALUES IN ('as1');
CREATE TABLE p_as2 (v text, id int NOT NULL, n numeric, customer int, region text NOT NULL);
ALTER TABLE p_as ATTACH PARTITION p_as2 FOR VALUES IN ('as2');
CREATE UNIQUE INDEX p_as2_identity ON p_as2 (region, id);
ALTER TABLE p_as2 REPLICA IDENTITY USING INDEX p_as2_identity;
CREATE TABLE p_other PARTITION OF p DEFAULT;
ALTER TABLE p_other REPLICA IDENTITY NOTHING;
INSERT INTO p (id, region, v, customer) SELECT i, (ARRAY['eu', 'us', 'as1', 'as2', 'xx'])[i % 5 + 1], 'v' || i, i % 9 + 1
	FROM generate_series(10, 29) AS i;
SELECT stream_track('p');
SELECT stream_sync('180 s') \g /dev/null

SELECT is(pg_temp.identities('p'), 'p_as1 f, p_as2 f, p_eu f, p_other f, p_us f', 'each partition has REPLICA IDENTITY FULL');
SELECT is((SELECT baseline_rows FROM stream_tables WHERE table_name = 'p'), 21::bigint, 'the baseline has the rows of all partitions');
SELECT is((SELECT identity_columns::text FROM stream_tables WHERE table_name = 'p'), '{id,region}', 'the identity is the root''s');
SELECT pg_temp.folds('p', 'baseline');
SELECT is((SELECT row_data FROM stream_changes('p', 0, 0) WHERE row_data->>'id' = '1'),
	'{"id": 1, "region": "eu", "v": "before", "n": 1.50, "customer": 1}', 'a row of the partition with the other order');

INSERT INTO p (id, region, v) VALUES (30, 'eu', 'a'), (31, 'us', 'b'), (32, 'as1', 'c'), (33, 'as2', 'd'), (34, 'nowhere', 'e');
SELECT is(pg_temp.newest('p'), '5+ 0~ 0-', 'one version for all partitions');
SELECT pg_temp.folds('p', 'inserts through the root');
INSERT INTO p_as2 (id, region) VALUES (35, 'as2');
INSERT INTO p_as (id, region) VALUES (36, 'as1');
SELECT pg_temp.folds('p', 'inserts into a leaf and into the middle');
UPDATE p SET v = v || repeat(' long', 3000), n = coalesce(n, 0) + id;
UPDATE p SET n = n + 1;
SELECT pg_temp.folds('p', 'updates, with long values that stay');
SELECT is((SELECT string_agg(DISTINCT _change_type, ' ') FROM stream_changes('p', 5, 5, compute_updates => true)),
	'update_postimage update_preimage', 'updates are paired by the root''s identity');
DELETE FROM p WHERE id % 7 = 0;
SELECT pg_temp.folds('p', 'deletes');
UPDATE p SET region = 'us' WHERE id IN (30, 33);
SELECT is(pg_temp.newest('p'), '2+ 0~ 2-', 'a row that moves is deleted and inserted');
SELECT pg_temp.folds('p', 'rows moved to other partitions');
BEGIN;
UPDATE p SET region = 'us' WHERE id = 32;
UPDATE p SET region = 'as1', v = 'there and back' WHERE id = 32;
COMMIT;
SELECT is((SELECT string_agg(_change_type || ' ' || (row_data->>'region') || ' ' || length(row_data->>'v'), ', ')
	FROM stream_changes('p', (SELECT stream_latest_version('p')), compute_updates => true)),
	'update_preimage as1 15001, update_postimage as1 14', 'moved there and back is an update');
COPY p (id, region, v) FROM stdin;
40	eu	copied
41	as2	copied
42	zz	copied
\.
SELECT pg_temp.folds('p', 'COPY');
INSERT INTO p (id, region, v) VALUES (40, 'eu', 'x'), (43, 'as1', 'y') ON CONFLICT (id, region) DO UPDATE SET v = 'conflict';
SELECT is(pg_temp.newest('p'), '1+ 1~ 0-', 'ON CONFLICT');
SELECT pg_temp.folds('p', 'ON CONFLICT');
MERGE INTO p USING (VALUES (40, 'eu'), (41, 'as2'), (44, 'us')) AS s (id, region) ON p.id = s.id AND p.region = s.region
	WHEN MATCHED AND s.id = 41 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'merged'
	WHEN NOT MATCHED THEN INSERT (id, region) VALUES (s.id, s.region);
SELECT is(pg_temp.newest('p'), '1+ 1~ 1-', 'MERGE');
SELECT pg_temp.folds('p', 'MERGE');
DELETE FROM customers WHERE id IN (1, 2, 3);
SELECT pg_temp.folds('p', 'a foreign key that cascades');
BEGIN;
SAVEPOINT a;
INSERT INTO p (id, region) VALUES (50, 'eu'), (51, 'as1');
ROLLBACK TO a;
INSERT INTO p (id, region) VALUES (52, 'us');
COMMIT;
SELECT pg_temp.folds('p', 'a rolled-back subtransaction');

/*
 * Partitions that come
 */
CREATE TABLE p_af PARTITION OF p FOR VALUES IN ('af');
SELECT is((SELECT relreplident FROM pg_class WHERE oid = 'p_af'::regclass), 'f', 'a partition created later has REPLICA IDENTITY FULL');
INSERT INTO p (id, region) VALUES (60, 'af');
UPDATE p SET v = 'new' WHERE id = 60;
SELECT is(pg_temp.newest('p'), '0+ 1~ 0-', 'its changes are captured');
SELECT pg_temp.folds('p', 'CREATE TABLE PARTITION OF');
BEGIN;
CREATE TABLE IF NOT EXISTS p_au PARTITION OF p FOR VALUES IN ('au');
INSERT INTO p (id, region) VALUES (61, 'au');
CREATE TABLE IF NOT EXISTS p_au PARTITION OF p FOR VALUES IN ('au');
COMMIT;
SELECT is(pg_temp.newest('p'), '1+ 0~ 0-', 'created and used in one transaction');
CREATE TABLE p_as_more PARTITION OF p_as DEFAULT;
CREATE TABLE p_sub PARTITION OF p FOR VALUES IN ('s1', 's2') PARTITION BY LIST (region);
INSERT INTO p_as2 (id, region) VALUES (62, 'as2');
CREATE TABLE p_s1 PARTITION OF p_sub FOR VALUES IN ('s1');
INSERT INTO p (id, region) VALUES (63, 's1');
SELECT pg_temp.folds('p', 'partitions of partitions');

CREATE TABLE p_ca (n numeric, x int, id int NOT NULL, customer int, region text NOT NULL, v text);
INSERT INTO p_ca SELECT 1, 2, i, NULL, 'ca', repeat('v', i * 10) FROM generate_series(100, 119) AS i;
ALTER TABLE p_ca DROP COLUMN x;
ALTER TABLE p ATTACH PARTITION p_ca FOR VALUES IN ('ca');
SELECT is(pg_temp.newest('p'), '20+ 0~ 0-', 'ATTACH: the rows are inserts of one version');
SELECT is((SELECT relreplident FROM pg_class WHERE oid = 'p_ca'::regclass), 'f', 'and the partition has REPLICA IDENTITY FULL');
SELECT pg_temp.folds('p', 'ATTACH');
UPDATE p SET v = 'later' WHERE region = 'ca' AND id < 105;
SELECT pg_temp.folds('p', 'changes after ATTACH');

CREATE TABLE p_sa (v text, region text NOT NULL, n numeric, id int NOT NULL, customer int) PARTITION BY RANGE (id);
CREATE TABLE p_sa1 (customer int, v text, region text NOT NULL, n numeric, id int NOT NULL);
ALTER TABLE p_sa ATTACH PARTITION p_sa1 FOR VALUES FROM (0) TO (1000);
CREATE TABLE p_sa2 PARTITION OF p_sa DEFAULT;
INSERT INTO p_sa (id, region) VALUES (200, 'sa'), (201, 'sa'), (2000, 'sa');
ALTER TABLE p ATTACH PARTITION p_sa FOR VALUES IN ('sa');
SELECT is(pg_temp.newest('p'), '3+ 0~ 0-', 'ATTACH of a partitioned table: the rows of all below it');
SELECT pg_temp.folds('p', 'ATTACH of a subtree');
UPDATE p SET v = 'later', id = id + 900 WHERE region = 'sa';
SELECT pg_temp.folds('p', 'rows moved inside the subtree');

SELECT throws_ok($$CREATE TABLE p_zz PARTITION OF p FOR VALUES IN ('zz')$$, '23514', NULL,
	'the server refuses a partition whose rows are in the default one');
DELETE FROM p WHERE region = 'zz';
CREATE TABLE p_zz PARTITION OF p FOR VALUES IN ('zz');
SELECT pg_temp.folds('p', 'a value taken from the default partition');

BEGIN;
CREATE TABLE p_no (LIKE p_us INCLUDING CONSTRAINTS);
INSERT INTO p_no (id, region) VALUES (300, 'no');
SAVEPOINT a;
ALTER TABLE p ATTACH PARTITION p_no FOR VALUES IN ('no');
ROLLBACK TO a;
INSERT INTO p_no (id, region) VALUES (301, 'no');
COMMIT;
SELECT pg_temp.folds('p', 'ATTACH rolled back');
SELECT is((SELECT relreplident FROM pg_class WHERE oid = 'p_no'::regclass), 'd', 'and the table is as it was');
BEGIN;
INSERT INTO p_no (id, region) VALUES (302, 'no');
ALTER TABLE p ATTACH PARTITION p_no FOR VALUES IN ('no');
INSERT INTO p_no (id, region) VALUES (303, 'no');
UPDATE p SET v = 'both' WHERE region = 'no';
COMMIT;
SELECT is(pg_temp.newest('p'), '4+ 4~ 0-', 'rows written before and after ATTACH in its transaction');
SELECT pg_temp.folds('p', 'ATTACH among other changes');

/*
 * Partitions that go
 */
ALTER TABLE p DETACH PARTITION p_ca;
SELECT is(pg_temp.newest('p'), '0+ 0~ 20-', 'DETACH: the rows are deletes of one version');
SELECT is((SELECT relreplident FROM pg_class WHERE oid = 'p_ca'::regclass), 'd', 'and the table has its old REPLICA IDENTITY');
SELECT pg_temp.folds('p', 'DETACH');
UPDATE p_ca SET v = 'not captured';
SELECT pg_temp.folds('p', 'changes of the detached table');
SELECT is(pg_temp.newest('p'), '0+ 0~ 20-', 'are not in the log');
BEGIN;
UPDATE p_eu SET v = 'in the same transaction';
ALTER TABLE p DETACH PARTITION p_eu;
UPDATE p_eu SET v = 'after it';
COMMIT;
SELECT pg_temp.folds('p', 'changes before and after DETACH in its transaction');
BEGIN;
ALTER TABLE p ATTACH PARTITION p_eu FOR VALUES IN ('eu');
ALTER TABLE p DETACH PARTITION p_eu;
ALTER TABLE p ATTACH PARTITION p_eu FOR VALUES IN ('eu');
COMMIT;
SELECT pg_temp.folds('p', 'attached, detached and attached in one transaction');
BEGIN;
ALTER TABLE p DETACH PARTITION p_eu;
ALTER TABLE p ATTACH PARTITION p_eu FOR VALUES IN ('eu');
COMMIT;
SELECT is((SELECT count(*) FROM stream_changes('p', stream_latest_version('p'))), 0::bigint,
	'detached and attached again: nothing changed');
ALTER TABLE p DETACH PARTITION p_sa;
SELECT pg_temp.folds('p', 'DETACH of a subtree');
SELECT is(pg_temp.identities('p_sa'), 'p_sa1 d, p_sa2 d', 'the whole subtree has its old REPLICA IDENTITY');
ALTER TABLE p_as DETACH PARTITION p_as2;
SELECT is((SELECT relreplident FROM pg_class WHERE oid = 'p_as2'::regclass), 'i', 'REPLICA IDENTITY USING INDEX comes back');
SELECT pg_temp.folds('p', 'DETACH from the middle');
ALTER TABLE p_as ATTACH PARTITION p_as2 FOR VALUES IN ('as2');
SELECT pg_temp.folds('p', 'and back');

DROP TABLE p_no;
SELECT is(pg_temp.newest('p'), '0+ 0~ 4-', 'DROP of a partition: the rows are deletes');
SELECT pg_temp.folds('p', 'DROP TABLE');
BEGIN;
DROP TABLE p_eu, p_sub CASCADE;
ROLLBACK;
SELECT pg_temp.folds('p', 'DROP rolled back');
INSERT INTO p (id, region) VALUES (400, 'eu');
SELECT pg_temp.folds('p', 'and what follows');
DROP TABLE p_af, p_sub;
SELECT pg_temp.folds('p', 'DROP of a leaf and of a subtree');
CREATE SCHEMA p52_more;
CREATE TABLE p52_more.p_b PARTITION OF p FOR VALUES IN ('b1', 'b2') PARTITION BY LIST (region);
CREATE TABLE p52_more.p_b1 PARTITION OF p52_more.p_b FOR VALUES IN ('b1');
CREATE TABLE p_b2 PARTITION OF p52_more.p_b FOR VALUES IN ('b2');
INSERT INTO p (id, region) VALUES (410, 'b1'), (411, 'b2');
DROP SCHEMA p52_more CASCADE;
SELECT is(pg_temp.newest('p'), '0+ 0~ 2-', 'DROP SCHEMA CASCADE');
SELECT pg_temp.folds('p', 'DROP SCHEMA CASCADE');
CREATE ROLE p52_owner;
GRANT ALL ON SCHEMA p52 TO p52_owner;
CREATE TABLE p_c PARTITION OF p FOR VALUES IN ('c');
INSERT INTO p (id, region) VALUES (420, 'c');
ALTER TABLE p_c OWNER TO p52_owner;
DROP OWNED BY p52_owner;
SELECT is(pg_temp.newest('p'), '0+ 0~ 1-', 'DROP OWNED');
SELECT pg_temp.folds('p', 'DROP OWNED');
DROP ROLE p52_owner;

/*
 * TRUNCATE
 */
TRUNCATE p_us;
SELECT pg_temp.folds('p', 'TRUNCATE of a partition');
TRUNCATE p_as;
SELECT pg_temp.folds('p', 'TRUNCATE of a subtree');
SELECT throws_ok('TRUNCATE ONLY p', '42809', NULL, 'the server refuses ONLY on a partitioned table');
TRUNCATE ONLY p_other;
SELECT pg_temp.folds('p', 'TRUNCATE ONLY of a partition');
INSERT INTO p (id, region) SELECT i, (ARRAY['eu', 'us', 'as1', 'as2', 'xx'])[i % 5 + 1] FROM generate_series(500, 519) AS i;
BEGIN;
TRUNCATE p;
INSERT INTO p (id, region, v) SELECT i, (ARRAY['eu', 'us', 'as1', 'as2', 'xx'])[i % 5 + 1], 'again' FROM generate_series(510, 529) AS i;
COMMIT;
SELECT pg_temp.folds('p', 'TRUNCATE and rows again');
SELECT is((SELECT string_agg(DISTINCT event, ' ') FROM stream_events('p', stream_latest_version('p'))), 'delete insert',
	'TRUNCATE leaves no marker');
TRUNCATE customers CASCADE;
SELECT is((SELECT count(*) FROM p), 0::bigint, 'TRUNCATE CASCADE takes all');
SELECT pg_temp.folds('p', 'TRUNCATE CASCADE');

/*
 * Columns
 */
INSERT INTO p (id, region, v, n) SELECT i, (ARRAY['eu', 'us', 'as1', 'as2', 'xx'])[i % 5 + 1], 'v' || i, i FROM generate_series(600, 619) AS i;
ALTER TABLE p ALTER COLUMN n TYPE text USING n::text || '!';
SELECT is(pg_temp.newest('p'), '0+ 20~ 0-', 'a type changed: the rewritten rows of all partitions are updates of one version');
UPDATE p SET v = 'rewritten' WHERE id % 3 = 0;
SELECT pg_temp.folds_typed('p', 'a type changed');
ALTER TABLE p ADD COLUMN added int DEFAULT 7, ADD COLUMN note text;
INSERT INTO p (id, region, note) SELECT i, (ARRAY['eu', 'us', 'as1', 'as2', 'xx'])[i % 5 + 1], 'new' FROM generate_series(620, 629) AS i;
UPDATE p SET v = 'after it' WHERE id < 610;
SELECT pg_temp.folds_typed('p', 'columns added');
ALTER TABLE p DROP COLUMN customer;
UPDATE p SET v = 'after that' WHERE id < 610;
SELECT pg_temp.folds_typed('p', 'a column dropped');
CREATE TABLE p_d (added int, note text, v text, id int NOT NULL, n text, region text NOT NULL);
INSERT INTO p_d VALUES (1, 'd', 'd', 700, '7', 'd');
ALTER TABLE p ATTACH PARTITION p_d FOR VALUES IN ('d');
UPDATE p SET n = 8 WHERE region = 'd';
SELECT pg_temp.folds_typed('p', 'a partition attached after that');
ALTER TABLE p ADD COLUMN later text DEFAULT 'later';
ALTER TABLE p ALTER COLUMN note TYPE varchar(1000) USING note;
SELECT pg_temp.folds_typed('p', 'a column added with a default, and a rewrite that makes the catalogs forget it');
ALTER TABLE p ALTER COLUMN added TYPE text USING added || '!';
UPDATE p SET note = 'rewritten again' WHERE id % 3 = 0;
SELECT pg_temp.folds_typed('p', 'another');
-- defaults of their own that partitions bring along have nothing to do with rows that the root had without the column
ALTER TABLE p ADD COLUMN plain int;
CREATE TABLE p_f (LIKE p INCLUDING CONSTRAINTS);
INSERT INTO p_f (id, region) VALUES (701, 'f');
ALTER TABLE p_f DROP COLUMN plain;
ALTER TABLE p_f ADD COLUMN plain int DEFAULT 13;
ALTER TABLE p ATTACH PARTITION p_f FOR VALUES IN ('f');
ALTER TABLE p ADD COLUMN noted int DEFAULT 14;
SELECT pg_temp.folds_typed('p', 'a partition with a default of its own for a column that the others have without');
ALTER TABLE p DETACH PARTITION p_f;
DROP TABLE p_f;
ALTER TABLE p RENAME TO renamed;
ALTER TABLE p_eu RENAME TO renamed_eu;
CREATE SCHEMA p52_other;
ALTER TABLE renamed SET SCHEMA p52_other;
ALTER TABLE p_us SET SCHEMA p52_other;
UPDATE p52_other.renamed SET note = 'renamed';
SELECT pg_temp.folds_typed('p52_other.renamed', 'root and partitions renamed and moved to another schema');
ALTER TABLE p52_other.renamed SET SCHEMA p52;
ALTER TABLE renamed RENAME TO p;

/*
 * Rules and errors
 */
SELECT throws_ok($$SELECT stream_track('p')$$, '42710', 'table "p" is already tracked', 'tracked twice');
SELECT throws_ok($$SELECT stream_track('p_as1')$$, '42710', 'table "p_as1" is already tracked through "p"', 'a leaf of a tracked table');
SELECT throws_ok($$SELECT stream_track('p_as')$$, '42710', 'table "p_as" is already tracked through "p"', 'the middle of a tracked table');
SELECT throws_ok($$SELECT stream_untrack('p_as1')$$, '0A000', 'table "p_as1" is not tracked', 'untracking a leaf');
SELECT throws_ok($$SELECT * FROM stream_changes('p_as1')$$, '0A000', 'table "p_as1" is not tracked', 'reading a leaf');
CREATE TABLE mine (LIKE p);
SELECT stream_track('mine');
SELECT throws_ok($$ALTER TABLE p ATTACH PARTITION mine FOR VALUES IN ('mine')$$, '55000',
	'cannot attach tracked table "mine" to tracked table "p"', 'attaching a tracked table');
SELECT ok(NOT (SELECT relispartition FROM pg_class WHERE oid = 'mine'::regclass), 'and it is not attached');
CREATE TABLE mine_above (LIKE p) PARTITION BY LIST (region);
ALTER TABLE mine_above ATTACH PARTITION mine FOR VALUES IN ('mine');
SELECT throws_ok($$ALTER TABLE p ATTACH PARTITION mine_above FOR VALUES IN ('mine')$$, '55000',
	'cannot attach tracked table "mine" to tracked table "p"', 'attaching a table above a tracked one');
SELECT throws_ok($$SELECT stream_track('mine_above')$$, '42710', 'partition "mine" of table "mine_above" is already tracked',
	'tracking above a tracked table');
INSERT INTO mine_above (id, region, added) VALUES (1, 'mine', '1');
SELECT is((SELECT count(*) FROM stream_changes('mine')), 1::bigint, 'a tracked partition of a table that is not tracked');
ALTER TABLE mine_above DETACH PARTITION mine;
SELECT is((SELECT count(*) FROM stream_changes('mine')), 1::bigint, 'goes on when it is detached');
SELECT stream_untrack('mine');
ALTER TABLE mine_above ATTACH PARTITION mine FOR VALUES IN ('mine');
ALTER TABLE p ATTACH PARTITION mine_above FOR VALUES IN ('mine');
SELECT pg_temp.folds_typed('p', 'attached once it was untracked');

SELECT stream_alter('p', on_truncate => 'forbid');
SELECT throws_ok('ALTER TABLE p DETACH PARTITION p52_other.p_us', '55000', 'cannot detach partition "p_us" of table "p"', 'forbid: DETACH');
SELECT throws_ok('DROP TABLE p52_other.p_us', '55000', 'cannot drop partition "p_us" of table "p"', 'forbid: DROP');
SELECT throws_ok('DROP TABLE p_as', '55000', NULL, 'forbid: DROP of a subtree');
SELECT throws_ok('TRUNCATE p_as', '55000', 'cannot truncate table "p_as1"', 'forbid: TRUNCATE');
SELECT throws_ok('TRUNCATE p', '55000', NULL, 'forbid: TRUNCATE of the root');
SELECT lives_ok($$CREATE TABLE p_e PARTITION OF p FOR VALUES IN ('e')$$, 'forbid: a new partition is no harm');
SELECT pg_temp.folds_typed('p', 'forbid');
SELECT stream_alter('p', on_truncate => 'gap');
CREATE TABLE p_f PARTITION OF p FOR VALUES IN ('f');
SELECT stream_latest_version('p') AS before \gset
DROP TABLE p_f;
SELECT is(stream_latest_version('p')::text, :'before', 'gap: a partition without rows makes none');
ALTER TABLE p DETACH PARTITION p52_other.p_us;
SELECT is((SELECT event FROM stream_events('p', :before + 1)), 'gap', 'gap: DETACH');
SELECT throws_ok(format('SELECT * FROM stream_changes(''p'', %s)', :before), '55000', NULL, 'and it cannot be read across');
INSERT INTO p (id, region) VALUES (800, 'unknown');
SELECT is((SELECT count(*) FROM stream_changes('p', :before + 2)), 1::bigint, 'but after it');

CREATE EXTENSION IF NOT EXISTS file_fdw SCHEMA public;
CREATE SERVER p52_files FOREIGN DATA WRAPPER file_fdw;
CREATE TABLE q (id int, v text) PARTITION BY RANGE (id);
CREATE TABLE q1 PARTITION OF q FOR VALUES FROM (0) TO (100);
CREATE FOREIGN TABLE qf PARTITION OF q FOR VALUES FROM (100) TO (200) SERVER p52_files OPTIONS (filename '/dev/null');
SELECT throws_ok($$SELECT stream_track('q')$$, '0A000', 'cannot track table "q"', 'a foreign partition');
DROP FOREIGN TABLE qf;
CREATE UNLOGGED TABLE q2 PARTITION OF q FOR VALUES FROM (200) TO (300);
SELECT throws_ok($$SELECT stream_track('q')$$, '0A000', 'cannot track table "q"', 'an unlogged partition');
ALTER TABLE q2 SET LOGGED;
CREATE PUBLICATION p52_publication FOR TABLE q1 (id);
SELECT throws_ok($$SELECT stream_track('q')$$, '55000', 'cannot track table "q"', 'a partition in a publication with a column list');
DROP PUBLICATION p52_publication;
CREATE PUBLICATION p52_publication FOR TABLE q (id) WITH (publish_via_partition_root);
SELECT throws_ok($$SELECT stream_track('q')$$, '55000', 'cannot track table "q"', 'the root in a publication with a column list');
DROP PUBLICATION p52_publication;
SELECT is((SELECT relreplident FROM pg_class WHERE oid = 'q1'::regclass), 'd', 'nothing has been done to its partitions');
SELECT stream_track('q', baseline => false);
INSERT INTO q VALUES (1, 'a'), (1, 'a'), (201, 'b');
UPDATE q SET id = 202 WHERE (tableoid, ctid) = (SELECT tableoid, min(ctid) FROM q WHERE id = 1 GROUP BY tableoid);
SELECT is((SELECT string_agg(_change_type || (row_data->>'id'), ' ') FROM stream_changes('q', 2)), 'delete1 insert202',
	'without identity: a row that moves');
SELECT pg_temp.folds('q', 'without identity');
SELECT throws_ok($$SELECT * FROM stream_changes('q', compute_updates => true)$$, '42P17', NULL, 'updates need an identity');
SELECT stream_latest_version('q') AS before \gset
SET client_min_messages = error;
CREATE FOREIGN TABLE qf PARTITION OF q FOR VALUES FROM (100) TO (200) SERVER p52_files OPTIONS (filename '/dev/null');
SET client_min_messages = warning;
SELECT is((SELECT string_agg(event, ' ') FROM stream_events('q', :before + 1)), 'gap', 'a foreign partition that comes later is a gap');
DROP FOREIGN TABLE qf;
INSERT INTO q VALUES (2, 'c');
SELECT is((SELECT string_agg(event, ' ') FROM stream_events('q', :before + 2)), 'insert', 'and after it the others go on');
CREATE TABLE q3 (LIKE q);
CREATE PUBLICATION p52_publication FOR TABLE q3 (id);
SET client_min_messages = error;
ALTER TABLE q ATTACH PARTITION q3 FOR VALUES FROM (300) TO (400);
SET client_min_messages = warning;
INSERT INTO q VALUES (300, 'd');
SELECT lives_ok('DELETE FROM q2', 'the others');
SELECT is((SELECT string_agg(_change_type || ' ' || (row_data->>'id'), ', ') FROM stream_changes('q', :before + 3)),
	'insert 300, delete 201, delete 202', 'a partition in a publication with a column list: inserts are captured');
DROP PUBLICATION p52_publication;
DELETE FROM q WHERE id = 300;
SELECT throws_ok(format('SELECT * FROM stream_changes(''q'', %s)', :before + 5), '55000', NULL,
	'and a delete without the old row is no row that looks like data');

/*
 * Types that are stored as text, and columns added with a default of such a type; partitions from before and after that
 */
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TYPE pair AS (a int, b text);
CREATE TABLE e (id int PRIMARY KEY, m mood, c pair, ms mood[]) PARTITION BY RANGE (id);
CREATE TABLE e1 (ms mood[], x int, c pair, m mood, id int NOT NULL);
ALTER TABLE e1 DROP COLUMN x;
ALTER TABLE e ATTACH PARTITION e1 FOR VALUES FROM (0) TO (100);
CREATE TABLE e2 PARTITION OF e FOR VALUES FROM (100) TO (200);
INSERT INTO e VALUES (1, 'sad', (1, 'x'), '{sad,happy}'), (101, 'happy', (2, 'y'), NULL);
SELECT stream_track('e');
SELECT stream_sync('180 s') \g /dev/null
ALTER TABLE e ADD COLUMN added mood DEFAULT 'happy', ADD COLUMN at timestamptz DEFAULT '2020-01-02 03:04', ADD COLUMN long text DEFAULT repeat('long', 5000);
CREATE TABLE e3 PARTITION OF e FOR VALUES FROM (200) TO (300);
INSERT INTO e (id, m) VALUES (201, 'sad');
UPDATE e SET m = 'happy' WHERE id = 1;
SELECT pg_temp.folds_typed('e', 'a partition from after the columns were added, then one from before');
SELECT is((SELECT string_agg(event, ' ') FROM stream_events('e', 0)), 'insert insert schema change insert update',
	'one change of the columns');
ALTER TABLE e DETACH PARTITION e1;
ALTER TABLE e DETACH PARTITION e2;
SELECT pg_temp.folds_typed('e', 'DETACH of these');
ALTER TABLE e ATTACH PARTITION e2 FOR VALUES FROM (100) TO (200);
ALTER TABLE e ALTER COLUMN m TYPE text, ALTER COLUMN added TYPE text USING added || '!';
TRUNCATE e3;
SELECT pg_temp.folds_typed('e', 'rewrite and TRUNCATE');

/*
 * Rows that cannot be recorded: a gap, and the command goes on
 */
CREATE TYPE unprintable;
CREATE FUNCTION unprintable_in(cstring) RETURNS unprintable AS 'textin' LANGUAGE internal IMMUTABLE STRICT;
CREATE FUNCTION unprintable_out(unprintable) RETURNS cstring AS 'shell_out' LANGUAGE internal IMMUTABLE STRICT;
CREATE TYPE unprintable (INPUT = unprintable_in, OUTPUT = unprintable_out, LIKE = text);
CREATE TABLE g (id int PRIMARY KEY, u unprintable) PARTITION BY RANGE (id);
CREATE TABLE g1 PARTITION OF g FOR VALUES FROM (0) TO (100);
CREATE TABLE g2 (u unprintable, id int NOT NULL);
INSERT INTO g2 VALUES ('x', 101);
SELECT stream_track('g', baseline => false);
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO g VALUES (1);
SET client_min_messages = error;
ALTER TABLE g ATTACH PARTITION g2 FOR VALUES FROM (100) TO (200);
SET client_min_messages = warning;
SELECT is((SELECT string_agg(event, ' ') FROM stream_events('g', 2)), 'gap', 'ATTACH of rows that cannot be recorded');
INSERT INTO g VALUES (102);
SELECT is((SELECT row_data->>'id' FROM stream_changes('g', 3)), '102', 'later changes of that partition are captured');
SET client_min_messages = error;
ALTER TABLE g DETACH PARTITION g2;
SET client_min_messages = warning;
SELECT is((SELECT string_agg(event, ' ') FROM stream_events('g', 4)), 'gap', 'DETACH of such');
SELECT is((SELECT relreplident FROM pg_class WHERE oid = 'g2'::regclass), 'd', 'the partition is let go all the same');
INSERT INTO g2 VALUES (NULL, 103);
INSERT INTO g VALUES (2);
SELECT is((SELECT string_agg(row_data->>'id', ' ') FROM stream_changes('g', 5)), '2', 'and the others go on');

/*
 * What is done to a partition behind our back
 */
CREATE TABLE s (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE s1 PARTITION OF s FOR VALUES FROM (0) TO (100);
CREATE TABLE s2 PARTITION OF s FOR VALUES FROM (100) TO (200);
INSERT INTO s VALUES (1, 'a'), (101, 'b');
SELECT stream_track('s');
SELECT stream_sync('180 s') \g /dev/null
ALTER TABLE s1 REPLICA IDENTITY DEFAULT;
UPDATE s SET v = v || '!';
SELECT throws_ok($$SELECT * FROM stream_changes('s', 1)$$, '55000', NULL, 'another REPLICA IDENTITY: an error, no row that looks like data');
ALTER TABLE s1 REPLICA IDENTITY FULL;
UPDATE s SET v = v || '!';
SELECT is((SELECT count(*) FROM stream_changes('s', 2)), 4::bigint, 'with the right one it goes on');
ALTER TABLE s2 SET UNLOGGED;
SELECT stream_sync('180 s') \g /dev/null
SELECT is((SELECT status FROM stream_tables WHERE table_name = 's'), 'gap', 'SET UNLOGGED of a partition ends the stream');
CREATE TABLE s3 PARTITION OF s FOR VALUES FROM (200) TO (300);
ALTER TABLE s DETACH PARTITION s1;
SELECT is((SELECT relreplident FROM pg_class WHERE oid = 's1'::regclass), 'f', 'of which partitions come and go as they like');
SELECT stream_untrack('s');
SELECT is((SELECT string_agg(relname || ' ' || relreplident::text, ', ' ORDER BY relname) FROM pg_class WHERE relname ~ '^s[123]$' AND relnamespace = 'p52'::regnamespace),
	's1 d, s2 d, s3 d', 'and which gives back what it has taken, also to what has left');

-- a table whose own stream was given up becomes a partition
CREATE TABLE lost (id int PRIMARY KEY, v text);
SELECT stream_track('lost');
SELECT stream_sync('180 s') \g /dev/null
ALTER TABLE lost SET UNLOGGED;
SELECT stream_sync('180 s') \g /dev/null
ALTER TABLE lost SET LOGGED;
CREATE TABLE above (LIKE lost INCLUDING ALL) PARTITION BY RANGE (id);
SELECT stream_track('above');
ALTER TABLE above ATTACH PARTITION lost DEFAULT;
SELECT stream_untrack('lost');
INSERT INTO above VALUES (1, 'a');
UPDATE above SET v = 'b';
SELECT pg_temp.folds('above', 'untracking the old stream leaves the new one alone');
ALTER TABLE above DETACH PARTITION lost;
SELECT is((SELECT relreplident FROM pg_class WHERE oid = 'lost'::regclass), 'd', 'which gives back the oldest REPLICA IDENTITY');

/*
 * A tracked partition that is partitioned itself, below a table that is not tracked
 */
CREATE TABLE top (a int, b int, v text, PRIMARY KEY (a, b)) PARTITION BY LIST (a);
CREATE TABLE mid (v text, b int NOT NULL, a int NOT NULL) PARTITION BY LIST (b);
ALTER TABLE top ATTACH PARTITION mid FOR VALUES IN (1);
CREATE TABLE leaf (b int NOT NULL, v text, a int NOT NULL);
ALTER TABLE mid ATTACH PARTITION leaf FOR VALUES IN (1);
CREATE TABLE aside PARTITION OF top DEFAULT;
INSERT INTO top VALUES (1, 1, 'a'), (2, 2, 'not tracked');
SELECT stream_track('mid');
SELECT stream_sync('180 s') \g /dev/null
SELECT throws_ok($$SELECT stream_track('top')$$, '42710', 'partition "mid" of table "top" is already tracked', 'above a tracked partition');
CREATE TABLE leaf2 PARTITION OF mid FOR VALUES IN (2, 3);
INSERT INTO top VALUES (1, 3, 'b'), (3, 3, 'not tracked');
UPDATE top SET a = 1, v = 'moved in' WHERE a = 2;
UPDATE top SET a = 4, v = 'moved out' WHERE b = 1;
SELECT pg_temp.folds('mid', 'rows move in and out');
ALTER TABLE top DETACH PARTITION mid;
INSERT INTO mid VALUES ('c', 1, 1);
SELECT pg_temp.folds('mid', 'detached from above');
ALTER TABLE top ATTACH PARTITION mid FOR VALUES IN (1);
TRUNCATE top;
INSERT INTO top VALUES (1, 2, 'd');
SELECT pg_temp.folds('mid', 'truncated from above');
SELECT stream_latest_version('mid') AS last \gset
DROP TABLE top;
SELECT is((SELECT max(_commit_version)::text FROM stream_versions('mid')), :'last', 'dropped from above: no version more');

/*
 * Rights
 */
CREATE ROLE p52_reader;
GRANT USAGE ON SCHEMA p52 TO p52_reader;
GRANT SELECT ON q TO p52_reader;
SET ROLE p52_reader;
SELECT is((SELECT count(*) FROM stream_changes('q', 1, 2)), 5::bigint, 'SELECT on the root suffices');
SELECT throws_ok($$SELECT * FROM stream_changes('p', 0, 0)$$, '42501', NULL, 'and is needed');
SELECT is((SELECT count(*) FROM stream_tables WHERE table_name = 'q'), 1::bigint, 'it is listed too');
SELECT throws_ok($$SELECT stream_untrack('q')$$, '42501', NULL, 'untracking is the owner''s');
RESET ROLE;
CREATE TABLE r (id int) PARTITION BY LIST (id);
CREATE TABLE r1 PARTITION OF r DEFAULT;
ALTER TABLE r OWNER TO p52_reader;
SET ROLE p52_reader;
SELECT throws_ok($$SELECT stream_track('r')$$, '42501', NULL, 'tracking needs the partitions too');
RESET ROLE;

/*
 * The end
 */
SELECT stream_untrack('p');
SELECT is(pg_temp.identities('p'), 'mine d, p_as1 d, p_as2 i, p_as_more d, p_au d, p_d d, p_e d, p_other n, p_zz d, renamed_eu d',
	'untracked: each partition has its own REPLICA IDENTITY back');
SELECT is((SELECT count(*) FROM streamcdc.registry AS r LEFT JOIN streamcdc.streams AS s USING (stream_id) WHERE s.state IS DISTINCT FROM 'l'),
	0::bigint, 'nothing is left in the registry');
UPDATE p SET v = 'x';
SELECT stream_track('p');
SELECT stream_sync('180 s') \g /dev/null
SELECT pg_temp.folds('p', 'tracked again');
DROP TABLE p_e;
INSERT INTO p (id, region) VALUES (900, 'eu');
SELECT stream_sync('180 s') \g /dev/null
SELECT stream_latest_version('p') AS last, count(*) AS changes FROM stream_changes('p') \gset
DROP TABLE p;
SELECT is((SELECT max(_commit_version) || ' ' || count(*) FROM stream_changes('p')), :'last' || ' ' || :'changes',
	'DROP TABLE of the root: its log is readable, and ends with the last change');
SELECT is((SELECT status FROM stream_tables WHERE table_name LIKE 'p (dropped %'), 'dropped', 'and listed');
SELECT is((SELECT count(*) FROM streamcdc.members AS m JOIN streamcdc.streams AS s USING (stream_id) WHERE s.state <> 'l'), 0::bigint,
	'nothing is left of its partitions');
INSERT INTO q VALUES (3, 'd');
SELECT stream_latest_version('q') AS last \gset
CREATE SCHEMA p52_end;
ALTER TABLE q SET SCHEMA p52_end;
DROP SCHEMA p52_end CASCADE;
SELECT is((SELECT max(_commit_version)::text FROM stream_versions('p52_end.q')), :'last', 'DROP SCHEMA of the root''s too');

/*
 * Old-style inheritance: a parent's own rows only, children by themselves
 */
CREATE TABLE par (id int PRIMARY KEY, v text);
CREATE TABLE child1 (extra1 int) INHERITS (par);
CREATE TABLE child2 (extra2 text) INHERITS (par);
INSERT INTO par VALUES (1, 'own');
INSERT INTO child1 VALUES (1, 'child', 1);
SELECT stream_track('par');
SELECT stream_track('child2');
SELECT stream_sync('180 s') \g /dev/null
SELECT is((SELECT relreplident FROM pg_class WHERE oid = 'child1'::regclass), 'd', 'a child is left alone');
INSERT INTO child1 VALUES (2, 'child', 2);
INSERT INTO child2 VALUES (3, 'child', 'x');
INSERT INTO par VALUES (4, 'own');
UPDATE par SET v = v || '!';
DELETE FROM par WHERE id = 3;
SELECT is((SELECT string_agg(_change_type || ' ' || row_data::text, ', ') FROM stream_changes('par', compute_updates => true)),
	'insert {"v": "own", "id": 1}, insert {"v": "own", "id": 4}, update_preimage {"v": "own", "id": 1}, ' ||
	'update_postimage {"v": "own!", "id": 1}, update_preimage {"v": "own", "id": 4}, update_postimage {"v": "own!", "id": 4}',
	'the parent: its own rows');
SELECT is((SELECT string_agg(_change_type || ' ' || (row_data->>'extra2'), ', ') FROM stream_changes('child2')),
	'insert x, delete x, insert x, delete x', 'a child: its own rows, with its own columns');
ALTER TABLE par ADD COLUMN n int DEFAULT 5;
ALTER TABLE par ALTER COLUMN v TYPE varchar(20) USING upper(v);
INSERT INTO child2 VALUES (5, 'C', 'y', 6);
INSERT INTO par VALUES (6, 'P', 7);
SELECT is((SELECT string_agg(x, ', ' ORDER BY x) FROM (SELECT to_jsonb(t)::text AS x FROM ONLY par AS t) AS l),
	(SELECT string_agg(r::text, ', ' ORDER BY r::text) FROM (SELECT to_jsonb(row_data) AS r FROM stream_changes(NULL::par)
		GROUP BY row_data HAVING sum(CASE WHEN _change_type = 'insert' THEN 1 ELSE -1 END) > 0) AS l),
	'ALTER TABLE that recurses: the parent');
SELECT is((SELECT string_agg(row_data->>'v', ' ') FROM stream_changes('child2', stream_latest_version('child2'))), 'C', 'and the child');
INSERT INTO child1 VALUES (7, 'kept', 1, 1);
TRUNCATE ONLY par;
SELECT is((SELECT string_agg(DISTINCT _change_type, ' ') FROM stream_changes('par', stream_latest_version('par'))), 'delete', 'TRUNCATE ONLY');
SELECT is((SELECT count(*) FROM child2), 1::bigint, 'leaves the child');
INSERT INTO par VALUES (8, 'P', 8);
TRUNCATE par;
SELECT is((SELECT string_agg(_change_type || ' ' || (row_data->>'id'), ' ') FROM stream_changes('par', stream_latest_version('par'))),
	'delete 8', 'TRUNCATE: the parent');
SELECT is((SELECT string_agg(_change_type || ' ' || (row_data->>'id'), ' ') FROM stream_changes('child2', stream_latest_version('child2'))),
	'delete 5', 'and the child');

SELECT stream_untrack('par');
SELECT stream_untrack('child2');
DROP SERVER p52_files CASCADE;
DROP SCHEMA p52, p52_other CASCADE;
DROP OWNED BY p52_reader;
DROP ROLE p52_reader;
SELECT * FROM finish();
