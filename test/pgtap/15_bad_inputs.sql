-- What functions get that nobody meant them to get: relations of every kind, names of every kind, arguments at and beyond their limits.

SET client_min_messages = warning;

SELECT plan(104);

\ir include/errors.sql
CREATE SCHEMA p15;
SET search_path = p15, public;

/*
 * Relations that are something else
 */
CREATE TABLE plain (id int PRIMARY KEY, v text, doc jsonb);
CREATE VIEW a_view AS SELECT 1 AS id;
CREATE MATERIALIZED VIEW a_matview AS SELECT 1 AS id;
CREATE SEQUENCE a_sequence;
CREATE TYPE a_type AS (id int);
CREATE FOREIGN DATA WRAPPER p15_wrapper;
CREATE SERVER p15_server FOREIGN DATA WRAPPER p15_wrapper;
CREATE FOREIGN TABLE a_foreign_table (id int) SERVER p15_server;
CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE a_partition PARTITION OF parted FOR VALUES FROM (1) TO (10);
CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY);
CREATE TEMP TABLE temporary (id int PRIMARY KEY);
CREATE TABLE gone (id int PRIMARY KEY);
SELECT 'gone'::regclass::oid AS gone \gset
DROP TABLE gone;
CREATE TABLE tracked (id int PRIMARY KEY, v text);
SELECT stream_track('tracked') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO tracked VALUES (1, 'a');								-- 1

-- a temporary table of another session
CREATE EXTENSION dblink;
SELECT dblink_connect('other', format('host=%s port=%s dbname=%s user=%s', split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database(), current_user)) \g /dev/null
SELECT dblink_exec('other', 'CREATE TEMP TABLE p15_of_another_session (id int PRIMARY KEY, _change_type text, _commit_version bigint, _commit_timestamp timestamptz)') \g /dev/null

-- kinds: r may be read if it were tracked, m does not exist, s can be selected from, x none of these, t temporary
CREATE TEMP TABLE relations (kind "char", name text);
INSERT INTO relations VALUES
	('r', 'plain'), ('r', 'a_partition'), ('r', 'parted'),
	('s', 'a_view'), ('s', 'a_matview'), ('s', 'a_foreign_table'), ('s', 'pg_class'), ('s', 'pg_database'), ('s', 'pg_stat_activity'), ('s', 'information_schema.tables'),
	('s', 'information_schema.sql_features'), ('s', 'streamcdc.blocks'), ('s', 'streamcdc.streams'), ('s', 'stream_tables'), ('s', 'unlogged'), ('s', 'temporary'),
	('x', 'a_sequence'), ('x', 'a_type'), ('x', 'plain_pkey'), ('x', 'parted_pkey'), ('x', 'streamcdc.stream_id_seq'), ('x', 'streamcdc.schemas_id'),
	('m', '0'), ('m', '4294967295'), ('m', :'gone');
INSERT INTO relations SELECT 'x', reltoastrelid::regclass FROM pg_class WHERE oid = 'plain'::regclass;
INSERT INTO relations SELECT 't', oid FROM pg_class WHERE relname = 'p15_of_another_session';

CREATE FUNCTION pg_temp.of_relations(kinds "char"[], call text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT DISTINCT concat_ws(' ', coalesce(r.state, 'none'), nullif(regexp_replace(r.detail, '^This operation is not supported for .*', 'kind'), ''),
		replace(r.hint, n.name, 'NAME'))
	FROM relations AS n, LATERAL pg_temp.raised(format('SELECT * FROM ' || call, n.name)) AS r
	WHERE n.kind = ANY (kinds) ORDER BY 1 $$;

SELECT results_eq(format('SELECT pg_temp.of_relations(''{r}'', %L)', call),
	$$VALUES ('0A000 Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION. SELECT stream_track(''NAME'');')$$, 'not tracked: ' || call)
FROM unnest('{stream_changes(%L),stream_changes(%L::regclass),stream_events(%L),stream_versions(%L),stream_latest_version(%L),"stream_version_at(%L, now())"}'::text[]) AS call;
SELECT results_eq(format('SELECT pg_temp.of_relations(''{s,x,t}'', %L)', call),
	$$VALUES ('0A000 Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION. ')$$, 'no hint at what cannot be done: ' || call)
FROM unnest('{stream_changes(%L),stream_changes(%L::regclass),stream_events(%L),stream_versions(%L),stream_latest_version(%L),"stream_version_at(%L, now())"}'::text[]) AS call;
SELECT results_eq(format('SELECT pg_temp.of_relations(''{m}'', %L)', call), $$VALUES ('42P01 Error condition: TABLE_OR_VIEW_NOT_FOUND. ')$$, 'not there: ' || call)
FROM unnest('{stream_changes(%L),stream_changes(%L::regclass),stream_events(%L),stream_versions(%L),stream_latest_version(%L),"stream_version_at(%L, now())",
	stream_track(%L),stream_untrack(%L),"stream_register_changelog(%L, false, false, false)",stream_unregister_changelog(%L)}'::text[]) AS call;
SELECT results_eq($$SELECT pg_temp.of_relations('{r,s,x,t}', 'stream_untrack(%L)')$$,
	$$VALUES ('0A000 Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION. ')$$, 'not tracked: stream_untrack');
SELECT results_eq($$SELECT pg_temp.of_relations('{x}', 'stream_track(%L)')$$, $$VALUES ('42809 kind ')$$, 'of a kind that cannot be tracked');
SELECT results_eq($$SELECT pg_temp.of_relations('{s,t}', 'stream_track(%L)')$$,
	$$VALUES ('0A000 System catalogs cannot be tracked. '), ('0A000 Tables of extension "streamcdc" cannot be tracked. '), ('0A000 Temporary tables are not written to WAL. '),
		('0A000 Unlogged tables are not written to WAL. ALTER TABLE NAME SET LOGGED;'), ('42809 kind ')$$, 'or not this one');
SELECT results_eq($$SELECT pg_temp.of_relations('{r,s}', 'stream_register_changelog(%L, false, false, false)')$$,
	$$VALUES ('42P17 Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_COLUMN. ')$$, 'no change logs');
SELECT results_eq($$SELECT pg_temp.of_relations('{x}', 'stream_register_changelog(%L, false, false, false)')$$, $$VALUES ('42809 kind ')$$, 'of a kind that cannot be read');
SELECT results_eq($$SELECT pg_temp.of_relations('{t}', 'stream_register_changelog(%L, false, false, false)')$$,
	$$VALUES ('0A000 Temporary tables of other sessions cannot be read. ')$$, 'or not this one');
SELECT results_eq($$SELECT pg_temp.of_relations('{r,s,t}', 'stream_unregister_changelog(%L)')$$, $$VALUES ('42704 ')$$, 'not registered');
SELECT dblink_disconnect('other') \g /dev/null

/*
 * What is no name
 */
SELECT is(pg_temp.state_of(format('SELECT * FROM stream_changes(%L)', name)), state, format('no name: %s', name))
FROM (VALUES ('', '42602'), (' ', '42602'), ('.', '42602'), ('a.', '42602'), ('"', '42602'), ('"a', '42602'), ('""', '42P01 Error condition: TABLE_OR_VIEW_NOT_FOUND.'), ('a b', '42602'),
	('plain;', '42P01 Error condition: TABLE_OR_VIEW_NOT_FOUND.'), ('99999999999', '22003'), ('-1', '42P01 Error condition: TABLE_OR_VIEW_NOT_FOUND.'),
	('a.b.c.d', '42601'), ('elsewhere.p15.plain', '0A000'), ('"PLAIN"', '42P01 Error condition: TABLE_OR_VIEW_NOT_FOUND.'),
	('tracked (dropped 99999)', '42P01 Error condition: TABLE_OR_VIEW_NOT_FOUND.'), ('tracked (dropped 99999999999999999999)', '42602'), ('tracked (dropped 0)', '42602'),
	('tracked (dropped x)', '42602')) AS v (name, state);

/*
 * What is a name: of table, column and schema
 */
CREATE TEMP TABLE names (name text);
INSERT INTO names VALUES ('Mixed Case'), ('with"quote'), ('with''apostrophe'), ('back\slash'), ('a.dot'), (E'new\nline'), ('$$dollar$$'), ('per%cent%s%n'), ('😀'),
	('مرحبا'), ('select'), (repeat('x', 63)), ('123'), ('odd (dropped 1)'), (' '), (E'\t'), ('{curly,braces}'), ('NULL'), ('--');

CREATE FUNCTION pg_temp.try_name(name text, OUT ok text) LANGUAGE plpgsql AS $$
DECLARE
	full_name text := format('%I.%I', 'p15' || right(name, 60), name);
	hint text;
	keys text;
BEGIN
	EXECUTE format('CREATE SCHEMA %I', 'p15' || right(name, 60));
	EXECUTE format('CREATE TABLE %s (%I int PRIMARY KEY, %I text)', full_name, name, left(name, 60) || 'v');
	-- the hint is a command
	hint := pg_temp.hint_of(format('SELECT * FROM stream_changes(%L)', full_name));
	EXECUTE hint;
	ok := hint;
END $$;
CREATE TEMP TABLE tried AS SELECT name, format('%I.%I', 'p15' || right(name, 60), name) AS full_name, pg_temp.try_name(name) AS hint FROM names;
SELECT is_empty($$SELECT full_name, hint FROM tried WHERE hint <> format('SELECT stream_track(%L);', full_name)$$, 'the hint has the name as it can be written');
SELECT stream_sync('180 s') \g /dev/null
SELECT format('INSERT INTO %s VALUES (1, %L)', full_name, name) FROM tried \gexec
SELECT is_empty($$SELECT full_name FROM tried AS t WHERE (SELECT row_data FROM stream_changes(t.full_name, 1)) IS DISTINCT FROM jsonb_build_object(t.name, 1, left(t.name, 60) || 'v', t.name)$$,
	'read by name');
SELECT is_empty($$SELECT full_name FROM tried AS t WHERE (SELECT row_data FROM stream_changes(t.full_name::regclass, 1)) IS DISTINCT FROM jsonb_build_object(t.name, 1, left(t.name, 60) || 'v', t.name)$$,
	'and as regclass');
SELECT is_empty($$SELECT full_name FROM tried EXCEPT SELECT table_name FROM stream_tables$$, 'stream_tables has them');
SELECT is_empty($$SELECT full_name FROM tried AS t WHERE (SELECT identity_columns FROM stream_tables WHERE table_name = t.full_name) IS DISTINCT FROM ARRAY[t.name]::name[]$$, 'with their columns');
SELECT is_empty($$SELECT full_name, e FROM tried AS t, LATERAL (SELECT pg_temp.error_of(format('SELECT * FROM stream_changes(%L, 2, 1)', full_name)) AS e) AS x WHERE e NOT LIKE '22023 / ending\_version 1 %'$$,
	'errors');
SELECT is((SELECT count(*) FROM stream_changes((SELECT full_name || 'x' FROM tried WHERE name LIKE 'xxx%'), 1)), 1::bigint, 'names are cut to their length, as everywhere');
-- dropped ones keep them
SELECT format('DROP TABLE %s', full_name) FROM tried WHERE name <> 'NULL' \gexec
SELECT is((SELECT count(*) FROM stream_tables AS s, LATERAL stream_changes(s.table_name, 1) AS c WHERE s.status = 'dropped' AND EXISTS (SELECT FROM tried AS t WHERE starts_with(s.table_name, t.full_name || ' (dropped '))),
	(SELECT count(*) - 1 FROM tried), 'dropped tables are read by the name that stream_tables has');
SELECT stream_untrack('"p15NULL"."NULL"') \g /dev/null

/*
 * NULL
 */
SELECT is(pg_temp.error_of('SELECT * FROM ' || call), '22004 / ' || argument || ' must not be null', 'NULL: ' || call)
FROM (VALUES ('stream_changes(NULL::text)', 'table_name'), ('stream_changes(NULL::regclass)', 'table_name'), ('stream_events(NULL)', 'table_name'), ('stream_versions(NULL)', 'table_name'),
	('stream_latest_version(NULL)', 'table_name'), ('stream_version_at(NULL, now())', 'table_name'), ('stream_track(NULL)', 'table_name'), ('stream_untrack(NULL)', 'table_name'),
	('stream_register_changelog(NULL, true, true, true)', 'relation'), ('stream_unregister_changelog(NULL)', 'relation')) AS v (call, argument);
SELECT is((SELECT array_agg(c::text) FROM stream_changes('tracked', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) AS c), (SELECT array_agg(c::text) FROM stream_changes('tracked') AS c), 'NULL is not given: stream_changes');
SELECT is((SELECT array_agg(c::text) FROM stream_events('tracked', NULL, NULL, NULL, NULL, NULL, NULL) AS c), (SELECT array_agg(c::text) FROM stream_events('tracked') AS c), 'stream_events');
SELECT is((SELECT array_agg(c::text) FROM stream_versions('tracked', NULL, NULL) AS c), (SELECT array_agg(c::text) FROM stream_versions('tracked') AS c), 'stream_versions');
SELECT is(stream_version_at('tracked', NULL), NULL, 'no time, no version');
SELECT isnt(stream_sync(NULL), NULL, 'stream_sync');

/*
 * Bounds
 */
CREATE FUNCTION pg_temp.versions(arguments text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('SELECT string_agg(_commit_version::text, '','') FROM stream_changes(''tracked'', %s)', arguments) INTO result;
	RETURN coalesce(result, '');
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SELECT is(string_agg(arguments, E'\n'), NULL, 'bounds at their limits')
FROM (VALUES
	('-1', '1'), ('-9223372036854775808', '1'), ('-9223372036854775808, -9223372036854775808', ''), ('9223372036854775807', ''), ('0, 9223372036854775807', '1'),
	('9223372036854775807, starting_bound_inclusive => false', ''), ('-9223372036854775808, -9223372036854775808, ending_bound_inclusive => false', ''),
	('-9223372036854775808, 9223372036854775807, starting_bound_inclusive => false, ending_bound_inclusive => false', '1'), ('0, -9223372036854775808', '22023'), ('1, 0', '22023'),
	('1, 1, starting_bound_inclusive => false', ''), ('0, 2, starting_bound_inclusive => false, ending_bound_inclusive => false', '1'), ('1, 2, starting_bound_inclusive => false, ending_bound_inclusive => false', ''),
	('9223372036854775808', '42883'),
	('starting_timestamp => ''infinity''', ''), ('starting_timestamp => ''-infinity''', '1'), ('starting_timestamp => ''-infinity'', ending_timestamp => ''infinity''', '1'),
	('starting_timestamp => ''-infinity'', starting_bound_inclusive => false', '1'), ('starting_timestamp => ''infinity'', starting_bound_inclusive => false', ''),
	('starting_timestamp => ''-infinity'', ending_timestamp => ''-infinity''', ''), ('starting_timestamp => ''-infinity'', ending_timestamp => ''-infinity'', ending_bound_inclusive => false', ''),
	('starting_timestamp => ''infinity'', ending_timestamp => ''-infinity''', '22023'), ('starting_timestamp => ''4713-01-01 BC''', '1'),
	('starting_timestamp => ''4713-01-01 BC'', ending_timestamp => ''294276-12-31''', '1'), ('starting_timestamp => ''294276-12-31''', ''), ('starting_timestamp => ''4714-01-01 BC''', '22008'),
	('starting_timestamp => ''nonsense''', '22007'), ('starting_timestamp => ''''', '22007'), ('''nonsense''', '42883'), ('''1''', '1'), ('''0x1''', '22P02')) AS v (arguments, expected)
WHERE pg_temp.versions(arguments) <> expected AND NOT (expected = '42883' AND pg_temp.versions(arguments) IN ('22P02'));
SELECT is(stream_version_at('tracked', 'infinity'), 1::bigint, 'stream_version_at at infinity');
SELECT is(stream_version_at('tracked', '-infinity'), NULL, 'and before everything');
SELECT is(pg_temp.state_of($$SELECT * FROM stream_versions('tracked', -5, -9)$$), '22023', 'stream_versions, the end below the start');
SELECT is(pg_temp.state_of($$SELECT stream_sync('-1 microsecond')$$), '22023', 'a timeout below zero');
SELECT isnt(stream_sync('100000 years'), NULL, 'a long one');

/*
 * Words and arrays
 */
SELECT is((SELECT count(*) FROM stream_changes('tracked', deduplication_mode => word)), 1::bigint, word) FROM unnest('{NONE,DROPcarryOVERS,netchanges}'::text[]) AS word;
SELECT is(pg_temp.state_of(format('SELECT * FROM stream_changes(''tracked'', deduplication_mode => %L)', word)), '22023 Error condition: INVALID_CDC_OPTION.INVALID_DEDUPLICATION_MODE.', format('no mode: "%s"', word))
FROM unnest(ARRAY['', ' none', 'none ', 'net_changes', E'none\n', 'nonе', '😀']) AS word;
SELECT is((pg_temp.raised(format('SELECT * FROM stream_changes(''tracked'', deduplication_mode => %L)', repeat('ä', 100000)))).message,
	'invalid value for "deduplication_mode": "' || repeat('ä', 32) || '"', 'a long one is cut');
SELECT is(pg_temp.state_of('SELECT stream_track(''plain'', ' || arguments || ')'), state, 'stream_track: ' || arguments)
FROM (VALUES ($$'{}'$$, '22023'), ($$'{NULL}'$$, '22004'), ($$'{id,NULL}'$$, '22004'), ($$'{{id},{v}}'$$, '2202E'), ($$'[5:5]={nosuch}'$$, '42P10'), ($$'{ctid}'$$, '42P10'), ($$'{""}'$$, '42P10'),
	($$'{ID}'$$, '42P10'), ($$'{id,id}'$$, '42701'), ($$'{v}'$$, '42P10'), ($$array_fill('id'::name, '{40}')$$, '54011'), ($$ARRAY[repeat('id', 100)]::name[]$$, '42P10'),
	($$retention => '-1 s'$$, '22023'), ($$retention => '-1 month 29 days'$$, '22023'), ($$on_truncate => ''$$, '22023'), ($$on_truncate => 'DROP'$$, '22023')) AS v (arguments, state);
SELECT is(pg_temp.state_of($$SELECT stream_track('plain', '[5:5]={id}')$$), 'none', 'arrays begin where they like');
SELECT stream_untrack('plain') \g /dev/null

SELECT stream_untrack('tracked') \g /dev/null
DROP EXTENSION dblink;
SELECT format('DROP SCHEMA %I CASCADE', 'p15' || right(name, 60)) FROM names \gexec
DROP SCHEMA p15 CASCADE;
DROP FOREIGN DATA WRAPPER p15_wrapper CASCADE;
SELECT * FROM finish();
