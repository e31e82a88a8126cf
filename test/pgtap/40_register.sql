-- Change logs from elsewhere: which relations can be registered, by whom, and how they are read.  What the flags do is
-- in test/t/020_cases.pl.

SET client_min_messages = warning;

SELECT plan(123);

\ir include/errors.sql

-- of a registration
CREATE FUNCTION pg_temp.register_error(arguments text, role_name text DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$ SELECT pg_temp.error_of(format('SELECT stream_register_changelog(%s)', $1), $2) $$;

-- the changes in short: type, version and the value of v
CREATE FUNCTION pg_temp.changes(arguments text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('SELECT string_agg(concat_ws('' '', _change_type, _commit_version, row_data ->> ''v''), '', '') FROM stream_changes(%s)', arguments)
	INTO result;
	RETURN coalesce(result, '');
END $$;

CREATE ROLE p40_owner;
CREATE ROLE p40_reader;
CREATE ROLE p40_nobody;
CREATE SCHEMA p40 AUTHORIZATION p40_owner;
GRANT USAGE ON SCHEMA p40 TO PUBLIC;
SET search_path = p40, public;

CREATE TABLE log (id int, v text, rv bigint, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
ALTER TABLE log OWNER TO p40_owner;
INSERT INTO log VALUES
	(1, 'a', 1, 'insert', 1, '2024-01-01 00:00:01+00'),
	(2, 'b', 1, 'insert', 1, '2024-01-01 00:00:01+00'),
	(2, 'b', 1, 'delete', 2, '2024-01-01 00:00:02+00'),
	(2, 'b', 1, 'insert', 2, '2024-01-01 00:00:02+00'),
	(1, 'A', 3, 'insert', 3, '2024-01-01 00:00:03+00'),
	(1, 'a', 1, 'delete', 3, '2024-01-01 00:00:03+00');

/*
 * Arguments
 */
SELECT is(pg_temp.register_error($$NULL, true, true, true$$), '22004 / relation must not be null', 'no relation');
SELECT is(pg_temp.register_error($$'log', NULL, true, true, '{id}', 'rv'$$), '22004 / contains_carryover_rows must not be null', 'no first flag');
SELECT is(pg_temp.register_error($$'log', true, NULL, true, '{id}', 'rv'$$), '22004 / contains_intermediate_changes must not be null', 'no second flag');
SELECT is(pg_temp.register_error($$'log', true, true, NULL, '{id}', 'rv'$$), '22004 / represents_update_as_delete_and_insert must not be null', 'no third flag');
SELECT is(pg_temp.register_error($$'log', true, true, true, '{id,NULL}', 'rv'$$), '22004 / row_id must not contain nulls', 'NULL in row_id');
SELECT is(pg_temp.register_error($$'log', true, true, true, '{id,v,id}', 'rv'$$), '42701 / column "id" is named twice in row_id', 'a column twice');
SELECT is(pg_temp.register_error($$'log', true, true, true, '{{id},{v}}', 'rv'$$), '2202E / row_id must be a one-dimensional array', 'an array of arrays');
SELECT is(pg_temp.register_error($$4000000000, true, true, true, '{id}', 'rv'$$), '42P01 / relation with OID 4000000000 does not exist / Error condition: TABLE_OR_VIEW_NOT_FOUND.', 'an unknown OID');
SELECT is(pg_temp.register_error($$'log', true, true, true, '{nosuch}', 'rv'$$), '42703 / column "nosuch" of change log "log" does not exist / It is named in row_id.', 'an unknown column in row_id');
SELECT is(pg_temp.register_error($$'log', true, true, true, '{id,id.x}', 'rv'$$), '42703 / column "id.x" of change log "log" does not exist / It is named in row_id.', 'a field of what is no record');
SELECT is(pg_temp.register_error($$'log', true, true, true, '{id}', 'nosuch'$$), '42703 / column "nosuch" of change log "log" does not exist / It is named in row_version.', 'an unknown column as row_version');
SELECT is(pg_temp.register_error($$'log', true, true, true, '{ID}', 'rv'$$), '42703 / column "ID" of change log "log" does not exist / It is named in row_id.', 'names are exact');
SELECT is(pg_temp.register_error($$'log', true, true, true, '{""}', 'rv'$$), '42703 / column "" of change log "log" does not exist / It is named in row_id.', 'an empty name');
SELECT is(pg_temp.register_error($$'log', false, false, false, '{nosuch}'$$), '42703 / column "nosuch" of change log "log" does not exist / It is named in row_id.', 'names are checked although no flag asks for them');

/*
 * Kinds of relations
 */
CREATE SEQUENCE a_sequence;
CREATE TYPE a_type AS (id int);
CREATE INDEX log_id ON log (id);
SELECT is(pg_temp.register_error($$'a_sequence', false, false, false$$), '42809 / cannot register "a_sequence" as a change log / This operation is not supported for sequences.', 'a sequence');
SELECT is(pg_temp.register_error($$'a_type', false, false, false$$), '42809 / cannot register "a_type" as a change log / This operation is not supported for composite types.', 'a composite type');
SELECT is(pg_temp.register_error($$'log_id', false, false, false$$), '42809 / cannot register "log_id" as a change log / This operation is not supported for indexes.', 'an index');

CREATE VIEW a_view AS SELECT id, v, rv, upper(_change_type) <> 'X' AS plain, _change_type, _commit_version, _commit_timestamp FROM log;
CREATE MATERIALIZED VIEW a_matview AS SELECT * FROM log;
CREATE TABLE a_partitioned_table (LIKE log) PARTITION BY RANGE (_commit_version);
CREATE TABLE a_partition_2 PARTITION OF a_partitioned_table FOR VALUES FROM (2) TO (100);
CREATE TABLE a_partition_1 PARTITION OF a_partitioned_table FOR VALUES FROM (0) TO (2);
INSERT INTO a_partitioned_table SELECT * FROM log;
DO $$
BEGIN
	EXECUTE format('COPY p40.log TO %L', current_setting('data_directory') || '/p40.txt');
	CREATE EXTENSION file_fdw;
	CREATE SERVER p40_files FOREIGN DATA WRAPPER file_fdw;
	EXECUTE format('CREATE FOREIGN TABLE p40.a_foreign_table (id int, v text, rv bigint, _change_type text, _commit_version bigint,
		_commit_timestamp timestamptz) SERVER p40_files OPTIONS (filename %L)', current_setting('data_directory') || '/p40.txt');
END $$;
CREATE TEMP TABLE a_temporary_table AS SELECT * FROM log;
CREATE UNLOGGED TABLE "An ""odd"" table" AS SELECT * FROM log;

SELECT is(pg_temp.register_error($$'log', true, true, true, '{id}', 'rv'$$), 'none', 'a table can be registered');
SELECT is(pg_temp.register_error($$'a_view', true, true, true, '{id}', 'rv'$$), 'none', 'a view');
SELECT is(pg_temp.register_error($$'a_matview', true, true, true, '{id}', 'rv'$$), 'none', 'a materialized view');
SELECT is(pg_temp.register_error($$'a_partitioned_table', true, true, true, '{id}', 'rv'$$), 'none', 'a partitioned table');
SELECT is(pg_temp.register_error($$'a_foreign_table', true, true, true, '{id}', 'rv'$$), 'none', 'a foreign table');
SELECT is(pg_temp.register_error($$'a_temporary_table', true, true, true, '{id}', 'rv'$$), 'none', 'a temporary table');
SELECT is(pg_temp.register_error($$'"An ""odd"" table"', true, true, true, '{id}', 'rv'$$), 'none', 'an unlogged table with an odd name');
SELECT is(pg_temp.changes(format('%L, compute_updates => true', name)),
	'insert 1 a, insert 1 b, update_postimage 3 A, update_preimage 3 a', name || ' is read')
FROM unnest('{log,a_view,a_matview,a_partitioned_table,a_foreign_table,a_temporary_table,"\"An \"\"odd\"\" table\""}'::text[]) AS name;

SELECT is(pg_temp.register_error($$'log', false, false, false$$), '42710 / "log" is already registered as a change log', 'once is enough');
SELECT is(pg_temp.register_error($$'streamcdc.blocks', false, false, false$$), '42P17 / change log "blocks" has no column "_change_type" / Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_COLUMN.', 'a table of the extension');
SELECT is(pg_temp.register_error($$'pg_class', false, false, false$$), '42P17 / change log "pg_class" has no column "_change_type" / Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_COLUMN.', 'a system catalog');

/*
 * The schema
 */
CREATE TABLE s (x int);
SELECT is(pg_temp.register_error($$'s', true, true, true$$), '42P17 / change log "s" has no column "_change_type" / Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_COLUMN.', 'no change type');
ALTER TABLE s ADD _change_type "char";
SELECT is(pg_temp.register_error($$'s', true, true, true$$), '42P17 / column "_change_type" of change log "s" is of type "char", expected text / Error condition: INVALID_CHANGELOG_SCHEMA.INVALID_COLUMN_TYPE.', 'a change type of another type');
ALTER TABLE s ALTER _change_type TYPE varchar(20);
SELECT is(pg_temp.register_error($$'s', true, true, true$$), '42P17 / change log "s" has no column "_commit_version" / Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_COLUMN.', 'no version; varchar is as good as text');
ALTER TABLE s ADD _commit_version int;
SELECT is(pg_temp.register_error($$'s', true, true, true$$), '42P17 / column "_commit_version" of change log "s" is of type integer, expected bigint or text / Error condition: INVALID_CHANGELOG_SCHEMA.INVALID_COLUMN_TYPE.', 'a version of another type');
ALTER TABLE s ALTER _commit_version TYPE bigint;
SELECT is(pg_temp.register_error($$'s', true, true, true$$), '42P17 / change log "s" has no column "_commit_timestamp" / Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_COLUMN.', 'no timestamp');
ALTER TABLE s ADD _commit_timestamp timestamp;
SELECT is(pg_temp.register_error($$'s', true, true, true$$), '42P17 / column "_commit_timestamp" of change log "s" is of type timestamp without time zone, expected timestamp with time zone / Error condition: INVALID_CHANGELOG_SCHEMA.INVALID_COLUMN_TYPE.', 'a timestamp that is no instant');
CREATE DOMAIN p40_instant AS timestamptz;
ALTER TABLE s ALTER _commit_timestamp TYPE p40_instant;
SELECT is(pg_temp.register_error(format($$'s', %s$$, flags)), '42P17 / change log "s" needs a row_id / Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_ROW_ID.', 'no row_id, ' || flags)
FROM unnest('{"true, false, false","false, true, false","false, false, true","true, true, true, ''{}'', ''x''"}'::text[]) AS flags;
SELECT is(pg_temp.register_error(format($$'s', %s, '{nosuch}'$$, flags)), '0A000 / change log "s" needs a row_version', 'no row_version, ' || flags)
FROM unnest('{"true, false, false","false, false, true"}'::text[]) AS flags;
ALTER TABLE s ADD j json, ADD p point, ADD js json[];
SELECT is(pg_temp.register_error(format($$'s', false, true, false, '{%s}'$$, name)), format('42883 / column "%s" of change log "s" is of type %s, which has no equality operator', name, type), type || ' cannot be compared')
FROM (VALUES ('j', 'json'), ('js', 'json[]')) AS v(name, type);
SELECT is(pg_temp.register_error($$'s', false, true, false, '{x}'$$), 'none', 'domains are as good as their types; row_version is not needed');
SELECT is(pg_temp.error_of($$SELECT stream_unregister_changelog('s')$$), 'none', 'unregistered');
SELECT is(pg_temp.register_error($$'s', false, false, false$$), 'none', 'without flags, nothing more is needed');

/*
 * Rights
 */
CREATE TABLE of_owner AS SELECT * FROM log;
ALTER TABLE of_owner OWNER TO p40_owner;
GRANT SELECT ON of_owner TO p40_reader;
SELECT is(pg_temp.register_error($$'p40.of_owner', true, true, true, '{id}', 'rv'$$, 'p40_reader'), '42501 / must be owner of table of_owner', 'SELECT is not enough to register');
SELECT is(pg_temp.register_error($$'p40.of_owner', true, true, true, '{id}', 'rv'$$, 'p40_owner'), 'none', 'owning it is');
SELECT is(pg_temp.error_of($$SELECT stream_unregister_changelog('p40.of_owner')$$, 'p40_reader'), '42501 / must be owner of table of_owner', 'nor to unregister');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('p40.of_owner')$$, 'p40_reader'), 'none', 'but to read');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('p40.of_owner')$$, 'p40_nobody'), '42501 / permission denied for table of_owner', 'which takes SELECT');
GRANT SELECT (id, v, _change_type, _commit_version, _commit_timestamp) ON of_owner TO p40_nobody;
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('p40.of_owner')$$, 'p40_nobody'), '42501 / permission denied for table of_owner', 'on all columns');
GRANT SELECT (rv) ON of_owner TO p40_nobody;
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes(NULL::p40.of_owner)$$, 'p40_nobody'), 'none', 'one by one if need be');
ALTER TABLE of_owner ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON of_owner TO p40_reader USING (id = 1);
SET ROLE p40_reader;
SELECT is((SELECT string_agg(row_data ->> 'v', '') FROM stream_changes('p40.of_owner')), 'aAa', 'row-level security applies');
RESET ROLE;
SELECT is((SELECT string_agg(row_data ->> 'v', '') FROM stream_changes('p40.of_owner')), 'abAa', 'to whom it applies');
SET ROLE p40_owner;
SELECT is(pg_temp.error_of($$SELECT * FROM p40.log, stream_changes('p40.log')$$), 'none', 'as the owner');
RESET ROLE;
-- a view's own rights are its owner's, as for SELECT
CREATE VIEW of_owners_log AS SELECT * FROM log;
ALTER VIEW of_owners_log OWNER TO p40_owner;
GRANT SELECT ON of_owners_log TO p40_nobody;
SELECT stream_register_changelog('of_owners_log', false, false, false) \g /dev/null
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('p40.of_owners_log')$$, 'p40_nobody') || ' ' || left(pg_temp.error_of($$SELECT * FROM stream_changes('p40.log')$$, 'p40_nobody'), 5),
	'none 42501', 'a view opens what its owner may read');
SELECT is(pg_temp.error_of($$SELECT * FROM streamcdc.changelogs$$, 'p40_owner'), '42501 / permission denied for table changelogs', 'the registrations are nobody''s to look at');

/*
 * Reading
 */
SELECT is(pg_temp.changes($$'log', deduplication_mode => 'none'$$), 'insert 1 a, insert 1 b, delete 2 b, insert 2 b, insert 3 A, delete 3 a', 'by version, then as the relation gives them');
SELECT is(pg_temp.changes($$'log'$$), 'insert 1 a, insert 1 b, insert 3 A, delete 3 a', 'carry-overs are dropped');
SELECT is(pg_temp.changes($$'log', deduplication_mode => 'netChanges'$$), 'insert 1 b, insert 3 A', 'net changes');
SELECT is(pg_temp.changes($$'log', 3, deduplication_mode => 'netChanges', compute_updates => true$$), 'update_postimage 3 A, update_preimage 3 a', 'only what is in the range takes part');
SELECT is(pg_temp.changes($$'log', 2, 2, deduplication_mode => 'none'$$), 'delete 2 b, insert 2 b', 'a range of versions');
SELECT is(pg_temp.changes($$'log', 1, 3, starting_bound_inclusive => false, ending_bound_inclusive => false, deduplication_mode => 'none'$$), 'delete 2 b, insert 2 b', 'with exclusive bounds');
SELECT is(pg_temp.changes($$'log', starting_timestamp => '2024-01-01 00:00:01+00', ending_timestamp => '2024-01-01 00:00:03+00', starting_bound_inclusive => false, ending_bound_inclusive => false, deduplication_mode => 'none'$$),
	'delete 2 b, insert 2 b', 'a range of timestamps');
SELECT is(pg_temp.changes($$'log', starting_timestamp => '2024-01-01 00:00:02.000001+00'$$), 'insert 3 A, delete 3 a', 'timestamps are compared literally');
SELECT is(pg_temp.changes($$'log', starting_timestamp => '-infinity', ending_timestamp => 'infinity'$$), 'insert 1 a, insert 1 b, insert 3 A, delete 3 a', 'infinite bounds');
SELECT is(pg_temp.changes($$'log', -5, 1$$), 'insert 1 a, insert 1 b', 'there is no oldest version');
SELECT is(pg_temp.changes($$'log', 4$$) || pg_temp.changes($$'log', 4, 2$$) || pg_temp.changes($$'log', 9223372036854775807, starting_bound_inclusive => false$$), '', 'what is not there is an empty range, also one that ends before it starts');
SELECT is(pg_temp.changes($$'log'::regclass, 3$$) || pg_temp.changes(format('%L, 3', 'log'::regclass::oid)), 'insert 3 A, delete 3 ainsert 3 A, delete 3 a', 'as regclass, and by OID');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('log', deduplication_mode => 'None', compute_updates => true)$$),
	'22023 / compute_updates requires carry-over removal / Error condition: INVALID_CDC_OPTION.UPDATE_DETECTION_REQUIRES_CARRY_OVER_REMOVAL.', 'updates without carry-over removal');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('s', deduplication_mode => 'none', compute_updates => true)$$), 'none', 'which is no matter for a log without carry-overs');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('log', 1, ending_timestamp => now())$$),
	'22023 / version bounds and timestamp bounds cannot be combined / Error condition: INVALID_CDC_OPTION.CONFLICTING_RANGE_TYPES.', 'the options are checked');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('log', deduplication_mode => 'Net_Changes')$$),
	'22023 / invalid value for "deduplication_mode": "net_changes" / Error condition: INVALID_CDC_OPTION.INVALID_DEDUPLICATION_MODE.', 'the mode too');
SELECT is(pg_temp.error_of(format($$SELECT * FROM %s('log')$$, f)), '0A000 / "log" is a registered change log, not a tracked table / Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION.', f)
FROM unnest('{stream_events,stream_versions,stream_latest_version}'::text[]) AS f;

-- the row
SELECT results_eq($$SELECT DISTINCT k FROM stream_changes('a_view'), jsonb_object_keys(row_data) AS k ORDER BY k$$, $$VALUES ('id'), ('plain'), ('rv'), ('v')$$, 'jsonb has the data columns');
SELECT results_eq($$SELECT (row_data).*, _change_type FROM stream_changes(NULL::a_view, 3, compute_updates => true)$$,
	$$VALUES (1, 'A', 3::bigint, true, 'update_postimage', 3::bigint, '2024-01-01 00:00:03+00'::timestamptz, 'update_postimage'), (1, 'a', 1, true, 'update_preimage', 3, '2024-01-01 00:00:03+00', 'update_preimage')$$,
	'the typed form has all columns, with the type of the change');
CREATE TYPE p40_pair AS (x int, y text[]);
CREATE TABLE values_of_types (gone int, p p40_pair, iv interval, t timestamptz, b bytea, f float8, n numeric, also_gone text, _commit_timestamp timestamptz, _change_type text, _commit_version bigint);
ALTER TABLE values_of_types DROP gone, DROP also_gone;
INSERT INTO values_of_types VALUES ((1, '{a,NULL}'), '1 day 2 hours', '2024-06-01 12:00:00+02', '\xff', 'NaN', 1.50, NULL, 'whatever', 7), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 7);
SELECT stream_register_changelog('values_of_types', false, true, false, '{p}') \g /dev/null
SET TimeZone = 'America/New_York'; SET IntervalStyle = 'sql_standard'; SET bytea_output = 'escape';
SELECT results_eq($$SELECT row_data, _change_type, _commit_version, _commit_timestamp FROM stream_changes('values_of_types')$$,
	$$VALUES ('{"p": {"x": 1, "y": ["a", null]}, "iv": "1 day 02:00:00", "t": "2024-06-01T10:00:00+00:00", "b": "\\xff", "f": "NaN", "n": 1.50}'::jsonb, 'whatever', 7::bigint, NULL::timestamptz),
			 ('{"p": null, "iv": null, "t": null, "b": null, "f": null, "n": null}', NULL, 7, NULL)$$,
	'values are what to_jsonb gives under fixed settings; types, timestamps and labels are not looked at if no pass runs');
SELECT is((SELECT (array_agg(row_data))[1]::text FROM stream_changes(NULL::values_of_types)), (SELECT (array_agg(v))[1]::text FROM values_of_types AS v), 'rows stay what they are');
RESET TimeZone; RESET IntervalStyle; RESET bytea_output;
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('values_of_types', deduplication_mode => 'netChanges')$$),
	'XX001 / unexpected change type "whatever" in version 7 of change log "values_of_types" / Error condition: CHANGELOG_CONTRACT_VIOLATION.UNEXPECTED_CHANGE_TYPE.', 'net changes want to know them');
DELETE FROM values_of_types WHERE _change_type IS NOT NULL;
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('values_of_types', deduplication_mode => 'netChanges')$$),
	'XX001 / change type is null in version 7 of change log "values_of_types" / Error condition: CHANGELOG_CONTRACT_VIOLATION.UNEXPECTED_CHANGE_TYPE.', 'also if there is none');
UPDATE values_of_types SET _commit_version = NULL, _change_type = 'insert';
SELECT is(pg_temp.changes($$'values_of_types'$$), 'insert', 'a version may be missing');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('values_of_types', deduplication_mode => 'netChanges')$$), 'XX001 / _commit_version is null in change log "values_of_types"', 'unless a pass runs');
CREATE TABLE no_jsonb (j json, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
INSERT INTO no_jsonb VALUES ('1', 'insert', 1, now()), ('"\u0000"', 'insert', 2, now());
SELECT stream_register_changelog('no_jsonb', false, false, false) \g /dev/null
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('no_jsonb')$$),
	'22P05 / unsupported Unicode escape sequence / \u0000 cannot be converted to text. The row is one of version 2.', 'a value without jsonb form is found');
SELECT is((SELECT count(*) FROM stream_changes(NULL::no_jsonb)), 2::bigint, 'the typed form does without');
CREATE TABLE nothing_else (_change_type text, _commit_version bigint, _commit_timestamp timestamptz);
INSERT INTO nothing_else VALUES ('insert', 1, now());
SELECT stream_register_changelog('nothing_else', false, true, false, '{_commit_version}') \g /dev/null
SELECT is((SELECT string_agg(row_data::text, '') FROM stream_changes('nothing_else', deduplication_mode => 'netChanges')), '{}', 'no data columns');

-- a row twice in a version
INSERT INTO log VALUES (1, 'AA', 4, 'insert', 4, now()), (1, 'A', 3, 'delete', 4, now()), (1, 'a', 3, 'delete', 4, now());
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('log', compute_updates => true)$$),
	'XX001 / a row has more than one change in version 4 of change log "log" / Error condition: CHANGELOG_CONTRACT_VIOLATION.UNEXPECTED_MULTIPLE_CHANGES_PER_ROW_VERSION.', 'update detection finds more than one change of a row');
SELECT is(pg_temp.changes($$'log', 4$$), 'insert 4 AA, delete 4 A, delete 4 a', 'without it they pass');

-- parts of columns
CREATE TABLE nested (payload p40_pair, doc jsonb, "doc.id" text, v text, meta json, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
INSERT INTO nested VALUES
	((1, '{}'), '{"k": {"a": 1}, "id": 1}', 'p', 'old', '{"w": 1}', 'delete', 1, now()),
	((1, '{x}'), '{"k": {"a": 1.0}, "id": 2}', 'p', 'new', '{"w": 2}', 'insert', 1, now()),
	((2, '{}'), '{"k": {"a": null}, "id": 3}', 'q', 'before', '{"w": null}', 'delete', 1, now()),
	((2, '{}'), '{"k": 7, "id": 4}', 'q', 'after', NULL, 'insert', 1, now());
SELECT is(pg_temp.register_error($$'nested', true, true, true, '{payload.nosuch}', 'meta.w'$$), '42703 / column "payload.nosuch" of change log "nested" does not exist / It is named in row_id.', 'a field that is not there');
SELECT is(pg_temp.register_error($$'nested', true, true, true, '{payload.x.y}', 'meta.w'$$), '42703 / column "payload.x.y" of change log "nested" does not exist / It is named in row_id.', 'a field of a number');
SELECT is((SELECT string_agg(pg_temp.error_of(format($$SELECT stream_register_changelog('nested', true, true, true, %L, 'meta.w')$$, row_id)) || ': ' || pg_temp.changes($$'nested', compute_updates => true$$) ||
		pg_temp.error_of($$SELECT stream_unregister_changelog('nested')$$), E'\n') FROM unnest('{payload.x,doc.k.a,"\"doc.id\"","\"doc.id\",payload.x"}'::text[]) WITH ORDINALITY AS r(ref, n), format('{%s}', ref) AS row_id),
	rtrim(repeat(E'none: update_preimage 1 old, update_postimage 1 new, update_preimage 1 before, update_postimage 1 afternone\n', 4), E'\n'),
	'fields of a record, members of jsonb where null is as good as nothing, and columns with a dot in their name come first');

-- equality is the type's and the collation's
CREATE COLLATION p40_nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE keys (k text COLLATE p40_nocase, n numeric, v text, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
INSERT INTO keys VALUES ('a', 1.0, 'x', 'delete', 1, now()), ('A', 1.00, 'y', 'insert', 1, now()), ('b', NULL, 'z', 'delete', 1, now()), ('B', NULL, 'zz', 'insert', 1, now());
SELECT stream_register_changelog('keys', false, false, true, '{k,n}', '_commit_version') \g /dev/null
SELECT is(pg_temp.changes($$'keys', compute_updates => true$$), 'update_preimage 1 x, update_postimage 1 y, update_preimage 1 z, update_postimage 1 zz', 'equal is what the column''s type calls equal, and NULL equals NULL');

-- versions of type text
CREATE TABLE text_versions (id int, _change_type text, _commit_version text, _commit_timestamp timestamptz);
SELECT is(pg_temp.register_error($$'text_versions', false, false, false$$), 'none', 'versions may be text');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('text_versions')$$), '0A000 / versions of change log "text_versions" are of type text', 'but not to be read here');

-- bounds are sent to a foreign server as text, which what is next to infinity has not
DO $$
BEGIN
	CREATE EXTENSION IF NOT EXISTS postgres_fdw;
	EXECUTE format('CREATE SERVER p40_here FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)',
		split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database());
	EXECUTE format('CREATE USER MAPPING FOR CURRENT_USER SERVER p40_here OPTIONS (user %L)', current_user);
END $$;
CREATE TABLE always AS SELECT g AS id, 'insert' AS _change_type, g::bigint AS _commit_version, ('{-infinity,2020-01-01,infinity}'::timestamptz[])[g] AS _commit_timestamp FROM generate_series(1, 3) AS g;
CREATE FOREIGN TABLE always_there (id int, _change_type text, _commit_version bigint, _commit_timestamp timestamptz) SERVER p40_here OPTIONS (table_name 'always', schema_name 'p40');
SELECT stream_register_changelog('always_there', false, false, false) \g /dev/null
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('always_there', starting_timestamp => '-infinity', starting_bound_inclusive => false)$$), 'none', 'an exclusive bound at infinity');
SELECT is((SELECT array_agg((row_data ->> 'id')::int) FROM stream_changes('always_there', starting_timestamp => '-infinity', ending_timestamp => 'infinity', starting_bound_inclusive => false, ending_bound_inclusive => false)),
	'{2}', 'excludes what is there');
DROP SERVER p40_here CASCADE;

-- an operator class whose functions the caller's search_path leads to; names in the result are written without it
CREATE TABLE pg_class ();
CREATE TYPE parity;
CREATE FUNCTION parity_in(cstring) RETURNS parity LANGUAGE internal IMMUTABLE STRICT AS 'int4in';
CREATE FUNCTION parity_out(parity) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'int4out';
CREATE TYPE parity (INPUT = parity_in, OUTPUT = parity_out, LIKE = int4);
CREATE CAST (parity AS int) WITHOUT FUNCTION;
CREATE FUNCTION odd(parity) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1::int % 2';
CREATE FUNCTION same_parity(parity, parity) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT odd($1) = odd($2)';
CREATE FUNCTION hash_parity(parity) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT odd($1)';
CREATE OPERATOR === (LEFTARG = parity, RIGHTARG = parity, FUNCTION = same_parity);
CREATE OPERATOR CLASS parity_ops DEFAULT FOR TYPE parity USING hash AS OPERATOR 1 ===, FUNCTION 1 hash_parity(parity);
CREATE TABLE parities AS SELECT g AS v, g::text::parity AS p, 'p40.pg_class'::regclass AS c, 'insert' AS _change_type, g::bigint AS _commit_version, now() AS _commit_timestamp FROM generate_series(1, 6) AS g;
SELECT stream_register_changelog('parities', false, true, false, '{p}') \g /dev/null
SET search_path = p40, pg_catalog, public;
SELECT is((SELECT string_agg(row_data::text, ', ') FROM stream_changes('parities', deduplication_mode => 'netChanges')),
	'{"c": "p40.pg_class", "p": "5", "v": 5}, {"c": "p40.pg_class", "p": "6", "v": 6}', 'a row_id with an operator class in SQL');
SET search_path = p40, public;

-- a view with functions of the caller's search_path; a log as large as memory is small
CREATE FUNCTION twice(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN once($1) || once($1); END $$;
CREATE FUNCTION once(text) RETURNS text LANGUAGE sql AS $$ SELECT $1 $$;
CREATE VIEW computed AS SELECT g AS id, twice('v' || g) AS v, 1 AS rv, CASE g % 3 WHEN 0 THEN 'delete' ELSE 'insert' END AS _change_type, 100000 - g / 2::bigint AS _commit_version, now() AS _commit_timestamp FROM generate_series(1, 3000) AS g;
SELECT stream_register_changelog('computed', true, true, true, '{id}', 'rv') \g /dev/null
SET work_mem = '64kB';
SELECT results_eq($$SELECT count(*), bool_and(row_data ->> 'v' = 'v' || (row_data ->> 'id') || 'v' || (row_data ->> 'id')), bool_and(ordered)
	FROM (SELECT *, _commit_version >= lag(_commit_version, 1, 0::bigint) OVER () AS ordered FROM stream_changes('computed', deduplication_mode => 'netChanges')) AS c$$,
	$$VALUES (3000::bigint, true, true)$$, 'a view sees the caller''s settings; rows are sorted by version');
RESET work_mem;

/*
 * The relation changes
 */
ALTER TABLE log RENAME COLUMN id TO id2;
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('log')$$), '42703 / column "id" of change log "log" does not exist / It is named in row_id.', 'a column of row_id is renamed');
ALTER TABLE log RENAME COLUMN id2 TO id;
ALTER TABLE nothing_else RENAME COLUMN _commit_timestamp TO t;
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('nothing_else')$$), '42P17 / change log "nothing_else" has no column "_commit_timestamp" / Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_COLUMN.', 'a metadata column is renamed');
ALTER TABLE s RENAME TO s2;
ALTER TABLE s2 SET SCHEMA public;
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('s2')$$), 'none', 'it is renamed and moved itself');
SELECT is(pg_temp.error_of($$SELECT stream_unregister_changelog('s2')$$), 'none', 'unregistered');
SELECT is(pg_temp.error_of($$SELECT stream_unregister_changelog('s2')$$), '42704 / "s2" is not registered as a change log', 'it is not registered any more');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('s2')$$), '0A000 / table "s2" is not tracked / Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION.', 'nor read');
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes(NULL::a_type)$$), '42809 / type a_type is not the row type of a table', 'a type that is no relation''s');
SELECT is(pg_temp.error_of($$SELECT stream_unregister_changelog(NULL)$$), '22004 / relation must not be null', 'NULL cannot be unregistered');

-- dropped: forgotten, and gone with the next registration
SELECT 'keys'::regclass::oid AS dropped \gset
DROP TABLE keys;
SELECT is((SELECT count(*) FROM streamcdc.changelogs WHERE relid = :dropped), 1::bigint, 'a drop leaves the registration');
SELECT is(pg_temp.error_of(format('SELECT * FROM stream_changes(%L)', :'dropped')), format('42P01 / relation with OID %s does not exist / Error condition: TABLE_OR_VIEW_NOT_FOUND.', :'dropped'), 'which leads nowhere');
-- as if the OID had come into use again
UPDATE streamcdc.changelogs SET relid = 's2'::regclass WHERE relid = :dropped;
SELECT is(pg_temp.error_of($$SELECT * FROM stream_changes('s2')$$), '0A000 / table "s2" is not tracked / Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION.', 'also if its OID comes into use again');
SELECT is(pg_temp.register_error($$'s2', false, false, false$$) || (SELECT count(*) FROM streamcdc.changelogs WHERE relid = 's2'::regclass), 'none1', 'the next registration takes its place');

-- tracked or registered
SELECT is(left(pg_temp.error_of($$SELECT stream_track('p40.log')$$), 5), '55000', 'a change log cannot be tracked');
CREATE TABLE tracked (id int PRIMARY KEY);
SELECT stream_track('tracked') \g /dev/null
SELECT is(pg_temp.register_error($$'tracked', false, false, false$$), '55000 / cannot register table "tracked" as a change log / The table is tracked: its changes are in its own change log.', 'nor a tracked table registered');
SELECT stream_untrack('tracked') \g /dev/null

-- an open end is resolved again each time
PREPARE open_end AS SELECT count(*) FROM stream_changes('log', 1, deduplication_mode => 'none');
EXECUTE open_end \gset before_
INSERT INTO log VALUES (9, 'z', 5, 'insert', 5, now());
EXECUTE open_end \gset after_
SELECT is(:after_count - :before_count, 1, 'a prepared statement sees what was added');
DELETE FROM log WHERE id = 9;

-- in one transaction
BEGIN;
CREATE TABLE young AS SELECT * FROM log;
SELECT stream_register_changelog('young', false, false, false) \g /dev/null
SELECT is((SELECT count(*) FROM stream_changes('young')), 9::bigint, 'what the transaction itself wrote is read');
ROLLBACK;
BEGIN READ ONLY;
SELECT is(pg_temp.error_of($$SELECT stream_register_changelog('log', false, false, false)$$), '25006 / cannot execute stream_register_changelog() in a read-only transaction', 'registering writes');
SELECT is(pg_temp.changes($$'log', 3, 3$$), 'insert 3 A, delete 3 a', 'reading does not');
COMMIT;

SELECT * FROM finish();

DROP TABLE public.s2;
DROP EXTENSION file_fdw CASCADE;
DROP SCHEMA p40 CASCADE;
DROP ROLE p40_owner, p40_reader, p40_nobody;
