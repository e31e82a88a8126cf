-- stream_versions, stream_latest_version, stream_version_at, stream_events and the view stream_tables.

SET client_min_messages = warning;

SELECT plan(38);

CREATE TABLE p13_t (id int PRIMARY KEY, v text);
INSERT INTO p13_t VALUES (1, 'a'), (2, 'b');
CREATE TABLE p13_other (id int PRIMARY KEY);
CREATE TABLE p13_late (id int PRIMARY KEY);
SELECT stream_track('p13_t'), stream_track('p13_other'), stream_track('p13_late', baseline => false) \g /dev/null
SELECT stream_sync('180 s') \g /dev/null

SELECT is(stream_latest_version('p13_t'), 0::bigint, 'the baseline is version 0');
SELECT is(stream_latest_version('p13_other'), 0::bigint, 'also of an empty table');
SELECT is(stream_latest_version('p13_late'), NULL, 'without a baseline there is no version yet');
SELECT is(stream_version_at('p13_late', 'infinity'), NULL, 'at no time');
SELECT is_empty($$SELECT * FROM stream_versions('p13_late')$$, 'and none is listed');
SELECT is_empty($$SELECT * FROM stream_changes('p13_late', 1)$$, 'nor any change');

CREATE TABLE p13_xids (version bigint, xid xid8);
BEGIN;														-- 1, and 1 of p13_other
INSERT INTO p13_t VALUES (3, 'c'), (4, 'd');
UPDATE p13_t SET v = 'x' WHERE id < 4;
DELETE FROM p13_t WHERE id = 1;
INSERT INTO p13_other VALUES (1);
INSERT INTO p13_xids VALUES (1, pg_current_xact_id());
COMMIT;
BEGIN;														-- 2: rolled back in part
INSERT INTO p13_t VALUES (5, 'e');
SAVEPOINT s;
INSERT INTO p13_t VALUES (6, 'f');
ROLLBACK TO s;
INSERT INTO p13_xids VALUES (2, pg_current_xact_id());
COMMIT;
BEGIN;														-- no version
INSERT INTO p13_t VALUES (7, 'g');
ROLLBACK;
SELECT pg_replication_origin_create('p13_origin') \g /dev/null
SELECT pg_replication_origin_session_setup('p13_origin') \g /dev/null
UPDATE p13_t SET v = 'remote' WHERE id = 5;					-- 3
SELECT pg_replication_origin_session_reset() \g /dev/null

/*
 * stream_versions
 */
SELECT results_eq($$SELECT _commit_version, inserts, updates, deletes, origin FROM stream_versions('p13_t')$$,
	$$VALUES (0::bigint, 2::bigint, 0::bigint, 0::bigint, NULL::text), (1, 2, 3, 1, NULL), (2, 1, 0, 0, NULL), (3, 0, 1, 0, 'p13_origin')$$,
	'one row per version, with the number of events and the origin');
SELECT results_eq($$SELECT _commit_version, xid FROM stream_versions('p13_t') WHERE _commit_version IN (1, 2)$$, 'SELECT version, xid FROM p13_xids', 'xid of the transaction');
SELECT is((SELECT count(*) FROM stream_versions('p13_t') AS a JOIN stream_versions('p13_other') AS b USING (xid)), 1::bigint, 'versions of two tables with one xid are one transaction');
SELECT results_eq($$SELECT commit_lsn IS NULL, xid IS NULL, commit_time = _commit_timestamp FROM stream_versions('p13_t', 0, 0)$$, 'VALUES (true, true, true)', 'a baseline is no transaction');
SELECT ok(bool_and(commit_lsn > before), 'positions rise with versions')
FROM (SELECT commit_lsn, lag(commit_lsn) OVER (ORDER BY _commit_version) AS before FROM stream_versions('p13_t', 1)) AS v WHERE before IS NOT NULL;
SELECT ok(bool_and(_commit_timestamp > before), 'and so do timestamps, strictly')
FROM (SELECT _commit_timestamp, lag(_commit_timestamp) OVER (ORDER BY _commit_version) AS before FROM stream_versions('p13_t')) AS v WHERE before IS NOT NULL;
SELECT ok(bool_and(_commit_timestamp >= commit_time), 'a timestamp is the commit time or later') FROM stream_versions('p13_t');
SELECT results_eq($$SELECT _commit_version FROM stream_versions('p13_t', 1, 2)$$, 'VALUES (1::bigint), (2)', 'a range');
SELECT results_eq($$SELECT _commit_version FROM stream_versions('p13_t', 3)$$, 'VALUES (3::bigint)', 'an open range');
SELECT is_empty($$SELECT _commit_version FROM stream_versions('p13_t', 4)$$, 'nothing beyond the newest');
SELECT results_eq($$SELECT DISTINCT _commit_version, _commit_timestamp FROM stream_changes('p13_t') ORDER BY 1$$,
	$$SELECT _commit_version, _commit_timestamp FROM stream_versions('p13_t')$$, 'the same timestamps as in stream_changes');

/*
 * stream_latest_version, stream_version_at
 */
SELECT is(stream_latest_version('p13_t'), 3::bigint, 'newest version');
SELECT results_eq($$SELECT stream_version_at('p13_t', _commit_timestamp) FROM stream_versions('p13_t')$$, 'VALUES (0::bigint), (1), (2), (3)', 'each version at its own time');
SELECT results_eq($$SELECT stream_version_at('p13_t', _commit_timestamp - interval '1 us') FROM stream_versions('p13_t')$$, 'VALUES (NULL::bigint), (0), (1), (2)', 'the one before just before it');
SELECT is(stream_version_at('p13_t', 'infinity'), 3::bigint, 'the newest at the end of time');
SELECT is(stream_version_at('p13_t', '-infinity'), NULL, 'none at its beginning');
SELECT is(stream_version_at('p13_t', NULL), NULL, 'nor at no time');

-- many versions in few blocks, and in many
DO $$ BEGIN
	FOR i IN 1 .. 2000 LOOP
		UPDATE p13_other SET id = id + 1;
		COMMIT;
	END LOOP;
END $$;
SELECT is((SELECT count(*) FROM stream_versions('p13_other') WHERE stream_version_at('p13_other', _commit_timestamp) <> _commit_version), 0::bigint, 'every time is found');
SELECT is((SELECT string_agg(DISTINCT _commit_version::text, ' ') FROM stream_changes('p13_other', 1234, 1234)), '1234', 'and every version');
SELECT results_eq($$SELECT min(_commit_version), max(_commit_version), count(*) FROM stream_versions('p13_other')$$, 'VALUES (0::bigint, 2001::bigint, 2002::bigint)', 'versions are dense');

/*
 * stream_events
 */
SELECT results_eq($$SELECT event, event_number, old_row ->> 'v', new_row ->> 'v', coalesce(new_row, old_row) ->> 'id' FROM stream_events('p13_t', 1, 1)$$,
	$$VALUES ('insert', 1::bigint, NULL, 'c', '3'), ('insert', 2, NULL, 'd', '4'), ('update', 3, 'a', 'x', '1'), ('update', 4, 'b', 'x', '2'), ('update', 5, 'c', 'x', '3'), ('delete', 6, 'x', NULL, '1')$$,
	'every event, numbered inside the commit');
ALTER TABLE p13_t ADD w int;
SELECT is_empty($$SELECT * FROM stream_events('p13_t', 4)$$, 'a change of columns alone is no version');
BEGIN;														-- 4
UPDATE p13_t SET w = 1 WHERE id = 2;
ALTER TABLE p13_t RENAME w TO ww;
UPDATE p13_t SET ww = 2 WHERE id = 2;
COMMIT;
SELECT results_eq($$SELECT event, event_number, old_row ->> 'ww', new_row ->> 'w', new_row ->> 'ww' FROM stream_events('p13_t', 4)$$,
	$$VALUES ('schema change', 1::bigint, NULL, NULL, NULL), ('update', 1, NULL, '1', NULL), ('schema change', 2, NULL, NULL, NULL), ('update', 2, '1', NULL, '2')$$,
	'a marker stands before the first event with new columns');
UPDATE p13_t SET ww = 3 WHERE id = 2;						-- 5
SELECT results_eq($$SELECT event, _commit_version FROM stream_events('p13_t', 3, 5)$$,
	$$VALUES ('update', 3::bigint), ('schema change', 4), ('update', 4), ('schema change', 4), ('update', 4), ('update', 5)$$, 'only there');
SELECT stream_alter('p13_t', on_truncate => 'gap') \g /dev/null
TRUNCATE p13_t;												-- 6
SELECT results_eq($$SELECT event, _commit_version, event_number, old_row, new_row FROM stream_events('p13_t', 6)$$,
	$$VALUES ('truncate', 6::bigint, 1::bigint, NULL::jsonb, NULL::jsonb)$$, 'TRUNCATE is a marker');
SELECT results_eq($$SELECT inserts, updates, deletes FROM stream_versions('p13_t', 6)$$, 'VALUES (0::bigint, 0::bigint, 0::bigint)', 'and counts as no event');

/*
 * stream_tables
 */
SELECT results_eq(
	$$SELECT table_name, status, identity_columns, first_version, last_version, changes, baseline_rows, baseline_fraction, last_error IS NULL
	  FROM stream_tables WHERE table_name LIKE 'p13%' ORDER BY 1$$,
	$$VALUES ('p13_late', 'streaming', '{id}'::name[], NULL::bigint, NULL::bigint, 0::bigint, NULL::bigint, NULL::float8, true),
		('p13_other', 'streaming', '{id}', 0, 2001, 2001, 0, 1, true),
		('p13_t', 'gap', '{id}', 0, 5 + 1, 13, 2, 1, false)$$,
	'one row per stream');
SELECT ok(bool_and(log_bytes > 0 AND lag_bytes >= 0 AND lag >= '0' AND confirmed_lsn > '0/0' AND last_commit_timestamp <= clock_timestamp()), 'sizes and positions')
FROM stream_tables WHERE table_name IN ('p13_other', 'p13_t');
CREATE ROLE p13_reader;
GRANT SELECT ON p13_t TO p13_reader;
SET ROLE p13_reader;
SELECT results_eq($$SELECT table_name, status, last_error FROM stream_tables WHERE table_name LIKE 'p13%'$$, $$VALUES ('p13_t', 'gap', NULL::text)$$, 'only tables that one may select, without errors');
RESET ROLE;
DROP TABLE p13_other;
SELECT results_eq($$SELECT table_name ~ '^p13_other \(dropped \d+\)$', status, last_version, lag_bytes FROM stream_tables WHERE table_name LIKE 'p13_other%'$$,
	$$VALUES (true, 'dropped', 2001::bigint, NULL::bigint)$$, 'a dropped table');
SELECT is((SELECT count(*) FROM stream_versions('p13_other', 1, 10)), 10::bigint, 'whose log can still be read');

SELECT stream_untrack('p13_t'), stream_untrack('p13_late') \g /dev/null
SELECT is((SELECT count(*) FROM stream_tables WHERE table_name IN ('p13_t', 'p13_late')), 0::bigint, 'untracked is not listed');
DROP TABLE p13_t, p13_late, p13_xids;
SELECT pg_replication_origin_drop('p13_origin') \g /dev/null
DROP ROLE p13_reader;

SELECT * FROM finish();
