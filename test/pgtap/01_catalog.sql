-- What the catalogs hold after CREATE EXTENSION: rights, comments, owners, and the signatures that users rely on.
-- Each test lists the offenders, so that a failure names them.

SET client_min_messages = warning;
BEGIN;

SELECT plan(17 + 17);

CREATE TEMP VIEW member AS
SELECT d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) AS name
FROM pg_depend AS d JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE d.deptype = 'e' AND e.extname = 'streamcdc';

CREATE TEMP VIEW member_function AS
SELECT p.*, p.oid::regprocedure AS signature, l.lanname
FROM member AS m JOIN pg_proc AS p ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid JOIN pg_language AS l ON l.oid = p.prolang;

-- tables, views and sequences
CREATE TEMP VIEW member_relation AS
SELECT c.*, c.oid::regclass AS name
FROM member AS m JOIN pg_class AS c ON m.classid = 'pg_class'::regclass AND m.objid = c.oid;

SELECT cmp_ok((SELECT count(*) FROM member), '>', 10::bigint, 'the extension has members');

/*
 * Functions
 */
SELECT is_empty($$SELECT signature FROM member_function
	WHERE prosecdef AND NOT EXISTS (SELECT FROM unnest(proconfig) AS s WHERE s LIKE 'search\_path=%')$$,
	'SECURITY DEFINER comes with a search_path');
SELECT is_empty($$SELECT signature FROM member_function
	WHERE lanname NOT IN ('c', 'internal') AND prosqlbody IS NULL
	AND NOT EXISTS (SELECT FROM unnest(proconfig) AS s WHERE s LIKE 'search\_path=%')$$,
	'so does every function that is looked up by name when it is called');
SELECT is_empty($$SELECT signature, provolatile, proparallel FROM member_function WHERE provolatile <> 'v' OR proparallel <> 'u'$$,
	'functions are VOLATILE and PARALLEL UNSAFE, since they wait, write and look at what others just committed');
SELECT is_empty($$SELECT signature FROM member_function
	WHERE 'internal'::regtype = ANY (proargtypes) OR prorettype = 'internal'::regtype$$,
	'no function takes or gives pointers');
SELECT is_empty($$SELECT signature FROM member_function
	WHERE pronamespace <> 'streamcdc'::regnamespace AND proname NOT LIKE 'stream\_%'$$,
	'what is in the user''s schema is called stream_*');
-- the caller of a view needs EXECUTE on the functions in it
SELECT is_empty($$SELECT signature FROM member_function AS f
	WHERE pronamespace = 'streamcdc'::regnamespace AND has_function_privilege('public', oid, 'EXECUTE')
	AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_rewrite'::regclass AND refclassid = 'pg_proc'::regclass AND refobjid = f.oid)$$,
	'in schema streamcdc PUBLIC may execute only what views need');

/*
 * Rights on what holds the log
 */
SELECT ok(NOT has_schema_privilege('public', 'streamcdc', 'CREATE'), 'PUBLIC makes nothing in schema streamcdc');
SELECT is_empty($$SELECT oid::regclass FROM pg_class
	WHERE relnamespace = 'streamcdc'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')
	AND (has_table_privilege('public', oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
		OR has_any_column_privilege('public', oid, 'SELECT, INSERT, UPDATE, REFERENCES'))
	-- pg_dump reads it, whoever runs that
	AND NOT (relname = 'definitions' AND NOT has_table_privilege('public', oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
		AND NOT has_any_column_privilege('public', oid, 'INSERT, UPDATE, REFERENCES'))$$,
	'nor has it any right on a table there, but to read what pg_dump takes along');
SELECT results_eq($$SELECT unnest(extconfig)::regclass::text FROM pg_extension WHERE extname = 'streamcdc'$$, $$VALUES ('streamcdc.definitions')$$, 'dumps hold definitions, never positions');
SELECT is_empty($$SELECT oid::regclass FROM pg_class
	WHERE relnamespace = 'streamcdc'::regnamespace
	AND CASE WHEN relkind = 'S' THEN has_sequence_privilege('public', oid, 'USAGE, SELECT, UPDATE') END$$,
	'or sequence');
SELECT is_empty('SELECT * FROM pg_default_acl', 'nobody''s default privileges have changed');

/*
 * Tables
 */
SELECT is_empty($$SELECT oid::regclass, relreplident FROM pg_class
	WHERE relnamespace = 'streamcdc'::regnamespace AND relkind IN ('r', 'p') AND relreplident <> 'n'$$,
	'tables of schema streamcdc have REPLICA IDENTITY NOTHING');
SELECT is_empty($$SELECT a.attrelid::regclass, a.attname, a.atttypid::regtype
	FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid JOIN pg_type AS t ON t.oid = a.atttypid
		LEFT JOIN pg_type AS e ON e.oid = t.typelem
	WHERE c.relnamespace = 'streamcdc'::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
	AND (t.typname LIKE 'reg%' OR e.typname LIKE 'reg%')$$,
	'no column is of a reg* type, which pg_upgrade refuses');

/*
 * Comments and owners
 */
SELECT is_empty($$SELECT name FROM member WHERE coalesce(obj_description(objid, classid::regclass::name), '') = ''$$,
	'every member has a comment');
SELECT is_empty($$SELECT obj, pg_get_userbyid(owner) FROM (
		SELECT signature::text AS obj, proowner AS owner FROM member_function
		UNION ALL SELECT name::text, relowner FROM member_relation
		UNION ALL SELECT nspname, nspowner FROM pg_namespace WHERE nspname = 'streamcdc'
		UNION ALL SELECT oid::regclass::text, relowner FROM pg_class WHERE relnamespace = 'streamcdc'::regnamespace) AS o
	WHERE owner <> (SELECT extowner FROM pg_extension WHERE extname = 'streamcdc')$$,
	'all belongs to the owner of the extension');

/*
 * The SQL surface, as it was agreed upon: names of arguments, defaults, results.  One that is not there yet is skipped.
 */
SELECT is((SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)
		FROM pg_attribute WHERE attrelid = 'stream_tables'::regclass AND attnum > 0),
	'table_name text, status text, identity_columns name[], first_version bigint, last_version bigint, '
	'last_commit_timestamp timestamp with time zone, changes bigint, log_bytes bigint, retention interval, on_truncate text, '
	'baseline_rows bigint, baseline_fraction double precision, confirmed_lsn pg_lsn, lag_bytes bigint, lag interval, last_error text',
	'columns of the view stream_tables');

-- the arguments that functions with a range have in common
\set versions 'starting_version bigint DEFAULT NULL::bigint, ending_version bigint DEFAULT NULL::bigint'
\set range :versions ', starting_timestamp timestamp with time zone DEFAULT NULL::timestamp with time zone, ending_timestamp timestamp with time zone DEFAULT NULL::timestamp with time zone, starting_bound_inclusive boolean DEFAULT true, ending_bound_inclusive boolean DEFAULT true'
\set modes ', deduplication_mode text DEFAULT ''dropCarryovers''::text, compute_updates boolean DEFAULT false'
\set feed '_change_type text, _commit_version bigint, _commit_timestamp timestamp with time zone, row_data'

CREATE TEMP TABLE surface (name text, arguments text, result text);
INSERT INTO surface VALUES
	('stream_track', 'table_name regclass, identity_columns name[] DEFAULT NULL::name[], baseline boolean DEFAULT true, '
		'retention interval DEFAULT NULL::interval, on_truncate text DEFAULT ''delete''::text', 'void'),
	('stream_untrack', 'table_name regclass', 'void'),
	('stream_alter', 'table_name regclass, retention interval DEFAULT NULL::interval, on_truncate text DEFAULT NULL::text', 'void'),
	('stream_sync', 'timeout interval DEFAULT ''00:00:10''::interval', 'pg_lsn'),
	('stream_vacuum', 'table_name regclass DEFAULT NULL::regclass, before_version bigint DEFAULT NULL::bigint, '
		'older_than interval DEFAULT NULL::interval', 'bigint'),
	('stream_verify', 'table_name regclass', 'TABLE(difference text, row_data jsonb)'),
	('stream_resync', 'table_name regclass', 'bigint'),
	('stream_latest_version', 'table_name regclass', 'bigint'),
	('stream_version_at', 'table_name regclass, at timestamp with time zone', 'bigint'),
	('stream_changes', 'table_name text, ' || :'range' || :'modes', 'TABLE(' || :'feed' || ' jsonb)'),
	('stream_changes', 'table_name regclass, ' || :'range' || :'modes', 'TABLE(' || :'feed' || ' jsonb)'),
	('stream_changes', 'table_name anyelement, ' || :'range' || :'modes', 'TABLE(' || :'feed' || ' anyelement)'),
	('stream_events', 'table_name text, ' || :'range', 'TABLE(event text, _commit_version bigint, '
		'_commit_timestamp timestamp with time zone, event_number bigint, old_row jsonb, new_row jsonb)'),
	('stream_versions', 'table_name text, ' || :'versions', 'TABLE(_commit_version bigint, _commit_timestamp timestamp with time zone, '
		'commit_time timestamp with time zone, commit_lsn pg_lsn, xid xid8, origin text, inserts bigint, updates bigint, deletes bigint)'),
	('stream_register_changelog', 'relation regclass, contains_carryover_rows boolean, contains_intermediate_changes boolean, '
		'represents_update_as_delete_and_insert boolean, row_id text[] DEFAULT NULL::text[], row_version text DEFAULT NULL::text', 'void'),
	('stream_unregister_changelog', 'relation regclass', 'void');

SELECT CASE WHEN EXISTS (SELECT FROM member_function WHERE proname = s.name) THEN
	is((SELECT pg_get_function_arguments(oid) || ' -> ' || pg_get_function_result(oid) FROM member_function
			-- of several by one name the one with this first argument
			WHERE proname = s.name AND split_part(pg_get_function_arguments(oid), ',', 1) = split_part(s.arguments, ',', 1)),
		s.arguments || ' -> ' || s.result, s.name || '(' || split_part(s.arguments, ',', 1) || ', ...)')
	ELSE skip(s.name || ' is not there yet', 1) END
FROM surface AS s;

SELECT is_empty($$SELECT signature FROM member_function AS f JOIN surface AS s ON s.name = f.proname
	WHERE NOT EXISTS (SELECT FROM surface WHERE name = f.proname AND arguments = pg_get_function_arguments(f.oid))$$,
	'and none of them has another form');

SELECT finish();
ROLLBACK;
