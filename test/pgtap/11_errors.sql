-- Each error of the reading functions: SQLSTATE, condition in DETAIL, and what comes first.

SET client_min_messages = warning;

SELECT plan(75);

\ir include/errors.sql

-- of a call of stream_changes
CREATE FUNCTION pg_temp.changes_error(arguments text, role_name text DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$ SELECT pg_temp.state_of(format('SELECT * FROM stream_changes(%s)', $1), $2) $$;

CREATE ROLE p11_owner;
CREATE ROLE p11_reader;
CREATE ROLE p11_nobody;
GRANT CREATE ON SCHEMA public TO p11_owner;

CREATE TABLE p11_keyed (id int PRIMARY KEY, v text);
ALTER TABLE p11_keyed OWNER TO p11_owner;
INSERT INTO p11_keyed VALUES (1, 'a');
SELECT stream_track('p11_keyed');
CREATE TABLE p11_bare (a int);
SELECT stream_track('p11_bare');
CREATE TABLE p11_untracked (id int);
CREATE TABLE "p11 Odd" (id int);
CREATE VIEW p11_view AS SELECT 1 AS id;
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p11_keyed VALUES (2, 'b');

/*
 * Which table
 */
SELECT is(pg_temp.changes_error('NULL::text'), '22004', 'no name');
SELECT is(pg_temp.changes_error('NULL::regclass'), '22004', 'no table');
SELECT is(pg_temp.changes_error($$'p11_missing'$$), '42P01 Error condition: TABLE_OR_VIEW_NOT_FOUND.', 'a table that does not exist');
SELECT is(pg_temp.changes_error($$'p11_missing.p11_keyed'$$), '42P01 Error condition: TABLE_OR_VIEW_NOT_FOUND.', 'a schema that does not exist');
SELECT throws_ok($$SELECT * FROM stream_changes('"p11 Missing"')$$, '42P01', 'relation "p11 Missing" does not exist', 'a name is shown without its quotes');
SELECT is(pg_temp.changes_error($$'4294967295'$$), '42P01 Error condition: TABLE_OR_VIEW_NOT_FOUND.', 'an OID that does not exist');
SELECT is(pg_temp.changes_error($$4294967295::regclass$$), '42P01 Error condition: TABLE_OR_VIEW_NOT_FOUND.', 'as regclass too');
SELECT is(pg_temp.changes_error($$'p11 missing'$$), '42602', 'not a name');
SELECT is(pg_temp.changes_error($$'p11_missing (dropped 1)'$$), '42P01 Error condition: TABLE_OR_VIEW_NOT_FOUND.', 'no such dropped table');
SELECT is(pg_temp.changes_error($$'p11_untracked'$$), '0A000 Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION.', 'a table that is not tracked');
SELECT is(pg_temp.hint_of($$SELECT * FROM stream_changes('p11_untracked')$$), $$SELECT stream_track('p11_untracked');$$, 'with the hint');
SELECT is(pg_temp.hint_of($$SELECT * FROM stream_changes('"p11 Odd"')$$), $$SELECT stream_track('"p11 Odd"');$$, 'quoted as needed');
SELECT is(pg_temp.changes_error($$NULL::p11_untracked$$), '0A000 Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION.', 'in the typed form');
SELECT is(pg_temp.changes_error($$'p11_view'$$), '0A000 Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION.', 'a view');
SELECT is(pg_temp.hint_of($$SELECT * FROM stream_changes('p11_view')$$), '', 'which cannot be tracked');
SELECT is(pg_temp.state_of($$SELECT * FROM stream_events('p11_untracked')$$), '0A000 Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION.', 'stream_events');
SELECT is(pg_temp.state_of($$SELECT * FROM stream_versions('p11_untracked')$$), '0A000 Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION.', 'stream_versions');
SELECT is(pg_temp.state_of($$SELECT stream_latest_version('p11_untracked')$$), '0A000 Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION.', 'stream_latest_version');
SELECT is(pg_temp.state_of($$SELECT stream_version_at('p11_untracked', now())$$), '0A000 Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION.', 'stream_version_at');

-- the typed form wants the row type of a table
CREATE TYPE p11_type AS (id int);
CREATE DOMAIN p11_domain AS p11_keyed;
SELECT is(pg_temp.changes_error($$1.5$$), '42809', 'a number');
SELECT is(pg_temp.changes_error($$NULL::p11_type$$), '42809', 'a composite type');
SELECT is(pg_temp.changes_error($$NULL::p11_view$$), '42809', 'a view''s row type');
SELECT is(pg_temp.changes_error($$NULL::p11_domain$$), '42809', 'a domain');
SELECT is(pg_temp.changes_error($$ROW(1, 'x')$$), '42809', 'an anonymous row');

/*
 * Rights
 */
SELECT alike(pg_temp.changes_error($$'p11_keyed'$$, 'p11_nobody'), '42501%', 'no SELECT');
SELECT alike(pg_temp.changes_error($$NULL::p11_keyed$$, 'p11_nobody'), '42501%', 'in the typed form');
SELECT alike(pg_temp.state_of($$SELECT * FROM stream_events('p11_keyed')$$, 'p11_nobody'), '42501%', 'stream_events');
SELECT alike(pg_temp.state_of($$SELECT * FROM stream_versions('p11_keyed')$$, 'p11_nobody'), '42501%', 'stream_versions');
SELECT alike(pg_temp.state_of($$SELECT stream_latest_version('p11_keyed')$$, 'p11_nobody'), '42501%', 'stream_latest_version');
SELECT alike(pg_temp.state_of($$SELECT stream_version_at('p11_keyed', now())$$, 'p11_nobody'), '42501%', 'stream_version_at');
SELECT alike(pg_temp.changes_error($$'p11_untracked'$$, 'p11_nobody'), '42501%', 'rights come before tracking');
GRANT SELECT (id) ON p11_keyed TO p11_reader;
SELECT alike(pg_temp.changes_error($$'p11_keyed'$$, 'p11_reader'), '42501%', 'SELECT on some columns is not enough');
GRANT SELECT (v) ON p11_keyed TO p11_reader;
SELECT is(pg_temp.changes_error($$'p11_keyed'$$, 'p11_reader'), 'none', 'on all columns it is');
ALTER TABLE p11_keyed ENABLE ROW LEVEL SECURITY;
SELECT is(pg_temp.changes_error($$'p11_keyed'$$, 'p11_reader'),
	'42501 Row-level security applies to you on this table, and cannot be applied to its change log.', 'row-level security');
SET row_security = off;
SELECT alike(pg_temp.changes_error($$'p11_keyed'$$, 'p11_reader'), '42501 Row-level security%', 'also with row_security off');
RESET row_security;
SELECT is(pg_temp.changes_error($$'p11_keyed'$$, 'p11_owner'), 'none', 'which does not apply to the owner');
ALTER TABLE p11_keyed FORCE ROW LEVEL SECURITY;
SELECT alike(pg_temp.changes_error($$'p11_keyed'$$, 'p11_owner'), '42501 Row-level security%', 'unless forced');
SELECT is(pg_temp.changes_error($$'p11_keyed'$$), 'none', 'nor to a superuser');
ALTER TABLE p11_keyed NO FORCE ROW LEVEL SECURITY;
ALTER TABLE p11_keyed DISABLE ROW LEVEL SECURITY;

/*
 * Options
 */
SELECT is(pg_temp.changes_error($$'p11_keyed', deduplication_mode => 'nosuch'$$), '22023 Error condition: INVALID_CDC_OPTION.INVALID_DEDUPLICATION_MODE.', 'a mode that does not exist');
SELECT is(pg_temp.changes_error($$'p11_keyed', deduplication_mode => ' none'$$), '22023 Error condition: INVALID_CDC_OPTION.INVALID_DEDUPLICATION_MODE.', 'nothing is trimmed');
SELECT is(pg_temp.changes_error($$'p11_keyed', 1, ending_timestamp => now()$$), '22023 Error condition: INVALID_CDC_OPTION.CONFLICTING_RANGE_TYPES.', 'version and timestamp');
SELECT is(pg_temp.changes_error($$'p11_keyed', ending_version => 1, ending_timestamp => now()$$), '22023 Error condition: INVALID_CDC_OPTION.CONFLICTING_RANGE_TYPES.', 'before missing starts');
SELECT is(pg_temp.changes_error($$'p11_keyed', ending_version => 1$$), '22023 Error condition: INVALID_CDC_OPTION.MISSING_STARTING_VERSION.', 'an end without a start');
SELECT is(pg_temp.changes_error($$'p11_keyed', ending_timestamp => now()$$), '22023 Error condition: INVALID_CDC_OPTION.MISSING_STARTING_TIMESTAMP.', 'an ending timestamp without a start');
SELECT is(pg_temp.changes_error($$'p11_keyed', 1, ending_timestamp => now(), deduplication_mode => 'nosuch'$$), '22023 Error condition: INVALID_CDC_OPTION.INVALID_DEDUPLICATION_MODE.', 'the mode comes first');
SELECT is(pg_temp.changes_error($$'p11_keyed', 2, 1$$), '22023', 'an end below the start');
SELECT alike(pg_temp.changes_error($$'p11_keyed', starting_timestamp => '2024-01-02', ending_timestamp => '2024-01-01'$$), '22023%', 'an end before the start');
SELECT is(pg_temp.state_of($$SELECT * FROM stream_events('p11_keyed', ending_version => 1)$$), '22023 Error condition: INVALID_CDC_OPTION.MISSING_STARTING_VERSION.', 'stream_events has the same rules');
SELECT is(pg_temp.state_of($$SELECT * FROM stream_versions('p11_keyed', 2, 1)$$), '22023', 'stream_versions too');
SELECT is(pg_temp.changes_error($$'p11_keyed', deduplication_mode => 'none', compute_updates => true$$),
	'22023 Error condition: INVALID_CDC_OPTION.UPDATE_DETECTION_REQUIRES_CARRY_OVER_REMOVAL.', 'updates without carry-over removal');
SELECT is(pg_temp.changes_error($$'p11_bare', compute_updates => true$$), '42P17 Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_ROW_ID.', 'updates without identity');
SELECT is(pg_temp.changes_error($$'p11_bare', deduplication_mode => 'netChanges'$$), '42P17 Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_ROW_ID.', 'net changes without identity');

/*
 * History
 */
CREATE TABLE p11_new (id int PRIMARY KEY);
INSERT INTO p11_new VALUES (1);
SELECT stream_track('p11_new', baseline => false);
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p11_new VALUES (2);								-- 1
SELECT is(pg_temp.changes_error($$'p11_new', 0$$), '55000 The oldest version is 1.', 'without a baseline there is no version 0');
SELECT is(pg_temp.changes_error($$'p11_new', 0, starting_bound_inclusive => false$$), 'none', 'but it may be the exclusive start');
SELECT is(pg_temp.changes_error($$'p11_new'$$), 'none', 'and no bound is the first retained');
SELECT stream_untrack('p11_new');
SELECT is(pg_temp.changes_error($$'p11_new'$$), '0A000 Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION.', 'untracked is not tracked');
SELECT stream_track('p11_new');
CREATE TABLE p11_before AS SELECT clock_timestamp() AS at;
SELECT stream_sync('180 s') \g /dev/null
SELECT is(pg_temp.changes_error($$'p11_new', 1$$), '55000 The oldest version is 2.', 'versions of an earlier tracking are gone');
SELECT is((SELECT string_agg(_commit_version::text, ' ') FROM stream_changes('p11_new', 2)), '2 2', 'and go on in the next one');
SELECT alike(pg_temp.changes_error($$'p11_new', starting_timestamp => '-infinity'$$), '55000 The oldest version is 2, and%', 'by time as well');
SELECT is(pg_temp.changes_error($$'p11_new', starting_timestamp => (SELECT at FROM p11_before)$$), 'none', 'after the last one that is gone nothing is missing');

-- a gap
SELECT stream_alter('p11_new', on_truncate => 'gap') \g /dev/null
TRUNCATE p11_new;											-- 3
INSERT INTO p11_new VALUES (3);								-- 4
SELECT alike(pg_temp.changes_error($$'p11_new'$$), '55000 The table was truncated%', 'a range with a gap');
SELECT is(pg_temp.changes_error($$'p11_new', 2, 2$$) || ' ' || pg_temp.changes_error($$'p11_new', 4$$), 'none none', 'before it and after it there is none');
SELECT is((SELECT string_agg(format('%s %s %s', _commit_version, event, old_row IS NULL), ', ') FROM stream_events('p11_new', 3)),
	'3 truncate t, 4 insert t', 'stream_events shows the marker');

-- old rows that were not in WAL
ALTER TABLE p11_new REPLICA IDENTITY DEFAULT;
UPDATE p11_new SET id = 4;									-- 5
ALTER TABLE p11_new REPLICA IDENTITY FULL;
INSERT INTO p11_new VALUES (5);								-- 6
SELECT alike(pg_temp.changes_error($$'p11_new', 5$$), '55000 It holds updates or deletes whose old rows were not written%', 'an incomplete version');
SELECT alike(pg_temp.state_of($$SELECT * FROM stream_events('p11_new', 5)$$), '55000 It holds updates or deletes whose old rows were not written%', 'stream_events refuses it too');
SELECT is(pg_temp.changes_error($$'p11_new', 6$$), 'none', 'the next one is complete');

-- a stream that was given up: what makes it so is tested elsewhere
UPDATE streamcdc.streams SET state = 'g', last_version = 6, reason = 'Something was lost.' WHERE relid = 'p11_new'::regclass AND state = 'l';
SELECT is(pg_temp.changes_error($$'p11_new', 6$$), '55000 Something was lost.', 'an open end');
SELECT is(pg_temp.changes_error($$'p11_new', 6, 7$$) || ' ' || pg_temp.changes_error($$'p11_new', starting_timestamp => now(), ending_timestamp => now()$$),
	'55000 Something was lost. 55000 Something was lost.', 'an end beyond the loss');
SELECT is(pg_temp.changes_error($$'p11_new', 6, 6$$), 'none', 'what lies before it is readable');
UPDATE streamcdc.streams SET state = 'l', last_version = NULL, reason = NULL WHERE relid = 'p11_new'::regclass AND state = 'g';

-- a damaged block
UPDATE streamcdc.blocks SET changes = set_byte(changes, 8, 255 - get_byte(changes, 8)) WHERE last_version = 6;
SELECT alike(pg_temp.changes_error($$'p11_new', 6$$), 'XX001 It holds versions % to 6 (chunk 0) of stream %', 'damage is found');

/*
 * The caller's own transaction tracks the table
 */
BEGIN;
SELECT stream_track('p11_untracked');
SELECT is(pg_temp.changes_error($$'p11_untracked'$$), '25001 Its changes can be captured only when the transaction has committed.', 'that is not committed yet');
ROLLBACK;

/*
 * Dropped tables
 */
CREATE TABLE p11_dropped (id int PRIMARY KEY);
ALTER TABLE p11_dropped OWNER TO p11_owner;
GRANT SELECT ON p11_dropped TO p11_reader;
SELECT stream_track('p11_dropped');
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO p11_dropped VALUES (1);
SELECT stream_latest_version('p11_dropped');
DROP TABLE p11_dropped;
SELECT is(pg_temp.changes_error($$'p11_dropped', 1$$, 'p11_owner'), 'none', 'the log of a dropped table is its owner''s');
SELECT alike(pg_temp.changes_error($$'p11_dropped', 1$$, 'p11_reader'), '42501%', 'and nobody else''s');
CREATE TABLE p11_dropped (id int PRIMARY KEY);
SELECT alike(pg_temp.hint_of($$SELECT * FROM stream_changes('p11_dropped')$$),
	'SELECT stream\_track(''p11\_dropped''); The change log of a dropped table of that name is called ''p11\_dropped (dropped %)''.', 'the plain name is the live table');
SELECT is((SELECT string_agg(row_data::text, '') FROM stream_changes((SELECT table_name FROM stream_tables WHERE table_name LIKE 'p11\_dropped (dropped %'), 1)),
	'{"id": 1}', 'the name with a number is the dropped one');

SELECT stream_untrack('p11_keyed'), stream_untrack('p11_bare'), stream_untrack('p11_new') \g /dev/null
DROP DOMAIN p11_domain;
DROP TYPE p11_type;
DROP VIEW p11_view;
DROP TABLE p11_keyed, p11_bare, p11_untracked, "p11 Odd", p11_new, p11_before, p11_dropped;
REVOKE CREATE ON SCHEMA public FROM p11_owner;
DROP ROLE p11_owner, p11_reader, p11_nobody;

SELECT * FROM finish();
