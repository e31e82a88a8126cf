-- stream_changes in FROM is a scan that hands on rows as they are read.  WITH ORDINALITY the planner still takes the
-- executor's function scan, which is what the answers are compared with; and wherever both read alike, expected values
-- stand here.

SET client_min_messages = warning;

SELECT plan(174);

\ir include/errors.sql

-- the plan, a node or property a line
CREATE FUNCTION pg_temp.plan_of(query text, options text DEFAULT '') RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	line text;
	result text := '';
BEGIN
	FOR line IN EXECUTE format('EXPLAIN (COSTS OFF%s) %s', options, query) LOOP
		result := result || line || E'\n';
	END LOOP;
	RETURN result;
END $$;

-- how the query reads changes: scan, function, or both
CREATE FUNCTION pg_temp.reads_by(query text) RETURNS text
LANGUAGE sql AS $$
	SELECT concat_ws(' ', CASE WHEN p LIKE '%Custom Scan (streamcdc changes)%' THEN 'scan' END,
		CASE WHEN p ~ 'Function Scan on (public\.)?stream_changes' OR p ~ 'ProjectSet\n *->  Result' THEN 'function' END)
	FROM pg_temp.plan_of(query) AS p
$$;

-- rows that the scan and the function scan do not have in common, each with its place in the result; after the number of rows
CREATE FUNCTION pg_temp.difference(arguments text, columns text DEFAULT '_change_type, _commit_version, _commit_timestamp, row_data') RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	scan text := format('SELECT row_number() OVER () AS n, %s FROM stream_changes(%s)', columns, arguments);
	func text := format('SELECT ordinality AS n, %s FROM stream_changes(%s) WITH ORDINALITY', columns, arguments);
	nrows bigint;
	result bigint;
BEGIN
	IF pg_temp.reads_by(scan) <> 'scan' OR pg_temp.reads_by(func) <> 'function' THEN
		RETURN pg_temp.plan_of(scan) || pg_temp.plan_of(func);
	END IF;
	EXECUTE format('SELECT count(*) FROM (%s) AS s', scan) INTO nrows;
	EXECUTE format('SELECT count(*) FROM ((%1$s EXCEPT ALL %2$s) UNION ALL (%2$s EXCEPT ALL %1$s)) AS d', scan, func) INTO result;
	RETURN format('%s rows, %s differ', nrows, result);
END $$;

-- "none", or SQLSTATE, message, and what DETAIL says of the value or row
CREATE FUNCTION pg_temp.row_error_of(command text, role_name text DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$
	SELECT coalesce(nullif(concat_ws(' ', state, message, '[' || substring(detail FROM 'The (?:value|row) .*') || ']'), ''), 'none')
	FROM pg_temp.raised(command, role_name)
$$;

-- of an open cursor: the next rows
CREATE FUNCTION pg_temp.take(cursor_name refcursor, direction text, count int) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	r record;
	result text[];
BEGIN
	FOR i IN 1 .. count LOOP
		IF direction = 'forward' THEN
			FETCH FORWARD FROM cursor_name INTO r;
		ELSE
			FETCH BACKWARD FROM cursor_name INTO r;
		END IF;
		EXIT WHEN NOT FOUND;
		result := result || r.v::text;
	END LOOP;
	RETURN array_to_string(result, ' ');
END $$;

CREATE ROLE p14_nobody;
CREATE TYPE p14_mood AS ENUM ('ok', 'bad');
CREATE TABLE p14_keyed (id int PRIMARY KEY, v text, n numeric(10,2));
CREATE TABLE p14_bare (id int, v text);
CREATE TABLE p14_rich (k text PRIMARY KEY, mood p14_mood, d date, iv interval);
CREATE TABLE p14_big (id int PRIMARY KEY, filler text);
ALTER TABLE p14_big ALTER filler SET STORAGE EXTERNAL;
INSERT INTO p14_keyed SELECT g, 'base ' || g, g / 4.0 FROM generate_series(1, 10) AS g;
INSERT INTO p14_big SELECT g, repeat(md5(g::text), 10) FROM generate_series(1, 20000) AS g;
SELECT stream_track('p14_keyed', on_truncate => 'gap');
SELECT stream_track('p14_bare', on_truncate => 'gap');
SELECT stream_track('p14_rich', on_truncate => 'gap');
SELECT stream_track('p14_big', on_truncate => 'gap');
SELECT stream_sync('180 s') \g /dev/null

/*
 * Commits: all rows different, some the same
 */
UPDATE p14_keyed SET v = 'one ' || id WHERE id <= 3;							-- 1: three rows, each once
BEGIN;																			-- 2: rows all different: a carry-over, a new key, an insert, a delete
UPDATE p14_keyed SET v = v WHERE id = 1;
UPDATE p14_keyed SET id = 20 WHERE id = 2;
INSERT INTO p14_keyed VALUES (30, 'new', NULL);
DELETE FROM p14_keyed WHERE id = 4;
COMMIT;
BEGIN;																			-- 3: a key is taken over
DELETE FROM p14_keyed WHERE id = 5;
UPDATE p14_keyed SET id = 5 WHERE id = 6;
COMMIT;
BEGIN;																			-- 4: a row again, with and without a NULL in it
UPDATE p14_keyed SET n = NULL WHERE id = 7;
UPDATE p14_keyed SET n = 77 WHERE id = 7;
UPDATE p14_keyed SET v = 'eight' WHERE id = 8;
COMMIT;
BEGIN;																			-- 5: there and gone
INSERT INTO p14_keyed VALUES (40, 'gone', 1);
UPDATE p14_keyed SET v = 'nine' WHERE id = 9;
DELETE FROM p14_keyed WHERE id = 40;
COMMIT;
INSERT INTO p14_bare VALUES (1, 'a'), (1, 'a'), (2, 'b');
UPDATE p14_bare SET v = v WHERE id = 1;
UPDATE p14_bare SET v = 'c';
INSERT INTO p14_rich VALUES ('x', 'ok', '2024-02-01', '1 day 02:03:04'), ('y', 'bad', NULL, NULL);
UPDATE p14_rich SET mood = 'bad', k = k || '!';
BEGIN;
UPDATE p14_rich SET k = 'y' WHERE k = 'y!';
UPDATE p14_rich SET k = 'z' WHERE k = 'y';
COMMIT;

CREATE FUNCTION pg_temp.version(v bigint, options text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('SELECT string_agg(concat_ws('' '', _change_type, (row_data).id, (row_data).v, (row_data).n), '', '')
		FROM stream_changes(NULL::p14_keyed, %s, %1$s%s)', v, options) INTO result;
	RETURN result;
END $$;

SELECT is(pg_temp.version(1, ''), 'delete 1 base 1 0.25, insert 1 one 1 0.25, delete 2 base 2 0.50, insert 2 one 2 0.50, delete 3 base 3 0.75, insert 3 one 3 0.75',
	'a commit of different rows: in the order of its events');
SELECT is(pg_temp.version(1, ', compute_updates => true'),
	'update_preimage 1 base 1 0.25, update_postimage 1 one 1 0.25, update_preimage 2 base 2 0.50, update_postimage 2 one 2 0.50, update_preimage 3 base 3 0.75, update_postimage 3 one 3 0.75',
	'as updates');
SELECT is(pg_temp.version(2, ''), 'delete 2 one 2 0.50, insert 20 one 2 0.50, insert 30 new, delete 4 base 4 1.00', 'of several kinds, without its carry-over');
SELECT is(pg_temp.version(2, ', compute_updates => true'), 'delete 2 one 2 0.50, insert 20 one 2 0.50, insert 30 new, delete 4 base 4 1.00', 'a new key is no update');
SELECT is(pg_temp.version(2, ', deduplication_mode => ''none'''),
	'delete 1 one 1 0.25, insert 1 one 1 0.25, delete 2 one 2 0.50, insert 20 one 2 0.50, insert 30 new, delete 4 base 4 1.00', 'with it');
SELECT is(pg_temp.version(3, ', compute_updates => true'), 'delete 6 base 6 1.50, update_preimage 5 base 5 1.25, update_postimage 5 base 6 1.50',
	'a key that is taken over is one row: netted');
SELECT is(pg_temp.version(4, ', compute_updates => true'),
	'update_preimage 7 base 7 1.75, update_postimage 7 base 7 77.00, update_preimage 8 base 8 2.00, update_postimage 8 eight 2.00', 'a row with and without NULL is one row');
SELECT is(pg_temp.version(5, ''), 'delete 9 base 9 2.25, insert 9 nine 2.25', 'what came and went is nothing');
SELECT is((SELECT string_agg(concat_ws(' ', _change_type, _commit_version, (row_data).k), ', ') FROM stream_changes(NULL::p14_rich, 2, compute_updates => true)),
	'delete 2 x, insert 2 x!, delete 2 y, insert 2 y!, delete 3 y!, insert 3 z', 'keys of text');

/*
 * The same as the function, whatever is asked
 */
SELECT is(pg_temp.difference(arguments || options), nrows || ' rows, 0 differ', arguments || options)
FROM (VALUES ($$'p14_keyed'$$, '', 29), ($$'p14_keyed'::regclass$$, '', 29), ('NULL::p14_keyed', '', 29),
	($$'p14_keyed'$$, $$, deduplication_mode => 'none'$$, 31), ('NULL::p14_keyed', $$, deduplication_mode => 'none'$$, 31),
	($$'p14_keyed'$$, $$, compute_updates => true$$, 29), ('NULL::p14_keyed', $$, compute_updates => true$$, 29),
	($$'p14_keyed'$$, $$, deduplication_mode => 'netChanges'$$, 9), ('NULL::p14_keyed', $$, deduplication_mode => 'netChanges'$$, 9),
	('NULL::p14_keyed', $$, 1, deduplication_mode => 'netChanges', compute_updates => true$$, 17),
	('NULL::p14_keyed', $$, 2, 3$$, 7), ('NULL::p14_keyed', $$, 2, 3, NULL, NULL, false, false$$, 0),
	('NULL::p14_keyed', $$, starting_timestamp => '-infinity', ending_timestamp => 'infinity'$$, 29),
	('NULL::p14_keyed', $$, 1000$$, 0),
	($$'p14_bare'$$, '', 9), ('NULL::p14_bare', $$, deduplication_mode => 'none'$$, 13),
	($$'p14_rich'$$, '', 8), ('NULL::p14_rich', '', 8), ('NULL::p14_rich', $$, deduplication_mode => 'netChanges'$$, 2)) AS v (arguments, options, nrows);
SELECT is(pg_temp.difference('NULL::p14_keyed', columns), '29 rows, 0 differ', columns)
FROM unnest(ARRAY['_change_type', '_commit_version', '_commit_timestamp', 'row_data', '(row_data).v', '(row_data).*', 'row_data, _change_type', '1 AS one',
	'(row_data).id + _commit_version', 'to_jsonb(row_data)', '(row_data).n IS NULL, row_data IS NULL']) AS columns;

-- settings that shape values are pinned while values are made, and only then
SET DateStyle = 'German';
SET IntervalStyle = 'iso_8601';
SELECT is(pg_temp.difference($$'p14_rich'$$), '8 rows, 0 differ', 'jsonb, with other settings');
SELECT is(pg_temp.difference('NULL::p14_rich'), '8 rows, 0 differ', 'typed');
SELECT is((SELECT string_agg(concat_ws(' ', row_data ->> 'd', date '2024-02-03', row_data ->> 'iv', interval '1 hour'), ', ')
		FROM stream_changes('p14_rich', 1) WHERE _change_type = 'insert' AND row_data ->> 'k' IN ('x', 'x!')),
	'2024-02-01 03.02.2024 1 day 02:03:04 PT1H, 2024-02-01 03.02.2024 1 day 02:03:04 PT1H', 'the caller''s own are left alone');
RESET DateStyle;
RESET IntervalStyle;

/*
 * Which calls are scans
 */
SELECT is(pg_temp.reads_by(query), how, query)
FROM (VALUES ($$SELECT * FROM stream_changes('p14_keyed')$$, 'scan'),
	($$SELECT * FROM stream_changes('p14_keyed'::regclass) AS c (a, b)$$, 'scan'),
	($$SELECT count(*) FROM stream_changes(NULL::p14_keyed)$$, 'scan'),
	($$SELECT * FROM ROWS FROM (stream_changes('p14_keyed'))$$, 'scan'),
	($$SELECT EXISTS (SELECT FROM stream_changes(NULL::p14_keyed))$$, 'scan'),
	($$WITH c AS MATERIALIZED (SELECT * FROM stream_changes(NULL::p14_keyed)) SELECT * FROM c$$, 'scan'),
	($$INSERT INTO p14_bare (id) SELECT (row_data).id FROM stream_changes(NULL::p14_keyed)$$, 'scan'),
	($$SELECT * FROM stream_changes('p14_keyed') WITH ORDINALITY$$, 'function'),
	($$SELECT * FROM ROWS FROM (stream_changes('p14_keyed'), generate_series(1, 2))$$, 'function'),
	($$SELECT c FROM stream_changes('p14_keyed') AS c$$, 'function'),
	($$SELECT count(c) FROM stream_changes('p14_keyed') AS c$$, 'function'),
	($$UPDATE p14_bare AS b SET v = 'x' FROM stream_changes(NULL::p14_keyed) AS c WHERE (c.row_data).id = b.id$$, 'function'),
	($$SELECT stream_changes('p14_keyed')$$, 'function')) AS v (query, how);
SELECT is((SELECT count(*) FROM ROWS FROM (stream_changes('p14_keyed'), generate_series(1, 2)) AS c (a, b, c, d, e)), 29::bigint, 'several functions');
SELECT is((SELECT count(c) FROM stream_changes('p14_keyed') AS c), 29::bigint, 'the whole row');
SELECT is((SELECT count(*) FROM (SELECT stream_changes('p14_keyed')) AS c), 29::bigint, 'in the SELECT list');
SELECT is((SELECT count(*) FROM (SELECT (stream_changes(NULL::p14_keyed, 1)).*) AS c), 19::bigint, 'all columns of it');

-- a function that somebody has altered is called as the server does it
BEGIN;
ALTER FUNCTION stream_changes(text, bigint, bigint, timestamptz, timestamptz, boolean, boolean, text, boolean) SET DateStyle = 'SQL';
SELECT is(pg_temp.reads_by($$SELECT * FROM stream_changes('p14_keyed')$$), 'function', 'with settings of its own');
ALTER FUNCTION stream_changes(text, bigint, bigint, timestamptz, timestamptz, boolean, boolean, text, boolean) RESET ALL;
ALTER FUNCTION stream_changes(text, bigint, bigint, timestamptz, timestamptz, boolean, boolean, text, boolean) SECURITY DEFINER;
SELECT is(pg_temp.reads_by($$SELECT * FROM stream_changes('p14_keyed')$$), 'function', 'with its owner''s rights');
ALTER FUNCTION stream_changes(text, bigint, bigint, timestamptz, timestamptz, boolean, boolean, text, boolean) SECURITY INVOKER STRICT;
SELECT is(pg_temp.reads_by($$SELECT * FROM stream_changes('p14_keyed')$$), 'scan', 'strict');
SELECT is((SELECT count(*) FROM stream_changes('p14_keyed')), 0::bigint, 'which then is not called with NULL');
ROLLBACK;
SELECT is((SELECT count(*) FROM stream_changes('p14_keyed')), 29::bigint, 'as it was');

SELECT is(pg_temp.plan_of($$SELECT (c.row_data).id FROM stream_changes(NULL::p14_keyed, 1) AS c WHERE _change_type = 'insert'$$, ', VERBOSE'),
	E'Custom Scan (streamcdc changes)\n' ||
	E'  Output: ((row_data).id)\n' ||
	E'  Filter: (c._change_type = ''insert''::text)\n' ||
	E'  Function Call: stream_changes(NULL::p14_keyed, ''1''::bigint, NULL::bigint, NULL::timestamp with time zone, NULL::timestamp with time zone, true, true, ''dropCarryovers''::text, false)\n',
	'EXPLAIN shows the call');
SELECT is(pg_temp.row_error_of($$EXPLAIN SELECT * FROM stream_changes('p14_missing')$$), 'none', 'and does not make it');

SELECT is(pg_temp.plan_of('SELECT (row_data).* FROM stream_changes(NULL::p14_keyed) WHERE (row_data).id = 1', ', VERBOSE') ~ E'\n  Output: \\(\\(row_data\\)\\.id\\), \\(\\(row_data\\)\\.v\\), \\(\\(row_data\\)\\.n\\)\n', true, 'and the fields that it takes out');

/*
 * Read no further than needed
 */
CREATE FUNCTION pg_temp.blocks_read(query text) RETURNS int
LANGUAGE sql AS $$
	SELECT substring(pg_temp.plan_of(query, ', ANALYZE, TIMING OFF, SUMMARY OFF') FROM 'Blocks Read: (\d+)')::int
$$;
SELECT cmp_ok(pg_temp.blocks_read('SELECT * FROM stream_changes(NULL::p14_big)'), '>=', 5, 'a large log');
SELECT is(pg_temp.blocks_read('SELECT * FROM stream_changes(NULL::p14_big) LIMIT 3'), 1, 'the first rows are in the first block');
SELECT is(pg_temp.blocks_read('SELECT EXISTS (SELECT FROM stream_changes(NULL::p14_big))'), 1, 'is there any?');
SELECT results_eq('SELECT (row_data).id FROM stream_changes(NULL::p14_big) LIMIT 3', 'VALUES (1), (2), (3)', 'the first rows');
SELECT is((SELECT count(*) FROM stream_changes(NULL::p14_big) WHERE (row_data).filler = md5((row_data).id::text) || repeat(md5((row_data).id::text), 9)),
	20000::bigint, 'all rows, longer than one lot');
SELECT is((SELECT sum((row_data ->> 'id')::int) FROM stream_changes('p14_big')), 200010000::bigint, 'as jsonb');

/*
 * Repeated scans
 */
SELECT results_eq($$SELECT g, (SELECT count(*) FROM stream_changes('p14_keyed') AS c WHERE c._commit_version <= g) FROM generate_series(0, 5) AS g$$,
	'VALUES (0, 10::bigint), (1, 16), (2, 20), (3, 23), (4, 27), (5, 29)', 'a correlated subquery');
SELECT results_eq($$SELECT g, (SELECT min((row_data).id) FROM (SELECT * FROM stream_changes(NULL::p14_big) OFFSET g LIMIT 2) AS c) FROM generate_series(0, 4) AS g$$,
	'SELECT g, g + 1 FROM generate_series(0, 4) AS g', 'scans that end early, and go further each time');
SELECT results_eq($$SELECT g, (SELECT string_agg(v, ' ') FROM (SELECT (row_data).v, (row_data).n FROM stream_changes(NULL::p14_keyed, 4) WHERE (row_data).id > g + 6 LIMIT 4) AS c) FROM generate_series(0, 3) AS g$$,
	$$VALUES (0, 'base 7 base 7 base 8 eight'), (1, 'base 8 eight base 9 nine'), (2, 'base 9 nine'), (3, NULL)$$, 'fields of rows that are kept');
SELECT results_eq($$SELECT g, (SELECT min((row_data).id) FROM (SELECT * FROM stream_changes(NULL::p14_big) OFFSET g LIMIT 2) AS c) FROM generate_series(4, 0, -1) AS g$$,
	'SELECT g, g + 1 FROM generate_series(4, 0, -1) AS g', 'and less far');
SELECT results_eq($$SELECT g, count(_change_type) FROM generate_series(0, 6) AS g LEFT JOIN LATERAL stream_changes(NULL::p14_keyed, g, g) AS c ON true GROUP BY g ORDER BY g$$,
	'VALUES (0, 10::bigint), (1, 6), (2, 4), (3, 3), (4, 4), (5, 2), (6, 0)', 'arguments out of another relation');
SELECT results_eq($$SELECT t, count(*) FROM (VALUES ('p14_keyed'), ('p14_bare'), ('p14_rich')) AS v (t), stream_changes(t) AS c GROUP BY t ORDER BY t$$,
	$$VALUES ('p14_bare', 9::bigint), ('p14_keyed', 29), ('p14_rich', 8)$$, 'another table each time');
SELECT results_eq($$SELECT g, (SELECT count(*) FROM stream_changes(NULL::p14_keyed, (SELECT max(v) FROM (VALUES (g), (2)) AS m (v)))) FROM generate_series(1, 4) AS g$$,
	'VALUES (1, 13::bigint), (2, 13), (3, 9), (4, 6)', 'an argument that is a subquery');

-- 50 rows with those before them
CREATE FUNCTION pg_temp.joined(ordinality text DEFAULT '') RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('SELECT count(*) || '' '' || sum((c.row_data).id) FROM (SELECT g FROM generate_series(1, 50) AS g OFFSET 0) AS g
		LEFT JOIN stream_changes(NULL::p14_keyed, 1) %s AS c ON (c.row_data).id < g', ordinality) INTO result;
	RETURN result;
END $$;
SELECT is(pg_temp.joined(), pg_temp.joined('WITH ORDINALITY'), 'a join');
SET enable_material = off;
SELECT alike(pg_temp.plan_of($$SELECT count(*) FROM (SELECT g FROM generate_series(1, 50) AS g OFFSET 0) AS g LEFT JOIN stream_changes(NULL::p14_keyed, 1) AS c ON (c.row_data).id < g$$),
	E'%Nested Loop Left Join\n%\n        ->  Custom Scan%', 'a nested loop that repeats the scan itself');
SELECT is(pg_temp.joined(), pg_temp.joined('WITH ORDINALITY'), 'which keeps its rows');
RESET enable_material;
SELECT is((SELECT count(*) FROM stream_changes(NULL::p14_keyed) AS a JOIN stream_changes('p14_keyed') AS b USING (_commit_version)), (100 + 36 + 16 + 9 + 16 + 4)::bigint, 'with itself');
SELECT is((SELECT count(*) FROM (SELECT * FROM stream_changes(NULL::p14_keyed) UNION ALL SELECT * FROM stream_changes(NULL::p14_keyed)) AS u), 58::bigint, 'twice');

SELECT is((SELECT string_agg(v, ' ') FROM (SELECT (row_data).v FROM stream_changes(NULL::p14_keyed, 5) UNION ALL SELECT (row_data).v FROM stream_changes(NULL::p14_keyed, 3, 3)) AS u),
	'base 9 nine base 6 base 5 base 6', 'fields, one after the other');
SELECT results_eq($$SELECT g, c.* FROM generate_series(1, 3) AS g LEFT JOIN (SELECT (row_data).id, coalesce((row_data).n, -1) AS n, 'there' AS there FROM stream_changes(NULL::p14_keyed, 2) WHERE _change_type = 'insert') AS c ON c.id = g * 10 ORDER BY g$$,
	$$VALUES (1, NULL::int, NULL::numeric, NULL::text), (2, 20, 0.50, 'there'), (3, 30, -1, 'there')$$, 'fields below an outer join');

/*
 * Aggregates: the scan gives them the fields of row_data that they ask for, and row_data only if they ask for that, too
 */
-- what the scan below an aggregate puts out
CREATE FUNCTION pg_temp.scan_puts_out(query text) RETURNS text
LANGUAGE sql AS $$
	SELECT substring(pg_temp.plan_of(query, ', VERBOSE') FROM 'Custom Scan \(streamcdc changes\)\n +Output: ([^\n]*)')
$$;

-- the query over what FROM gives it, by the scan, and by the function scan; both as text, or the one if they are alike
CREATE FUNCTION pg_temp.aggregated(query text, arguments text DEFAULT 'NULL::p14_keyed') RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	scan text := format(query, format('stream_changes(%s) AS c', arguments));
	func text := format(query, format('stream_changes(%s) WITH ORDINALITY AS c', arguments));
	by_scan text;
	by_function text;
BEGIN
	IF pg_temp.reads_by(scan) <> 'scan' OR pg_temp.reads_by(func) <> 'function' THEN
		RETURN pg_temp.plan_of(scan) || pg_temp.plan_of(func);
	END IF;
	EXECUTE format('SELECT string_agg(r::text, chr(32) ORDER BY r::text) FROM (%s) AS r', scan) INTO by_scan;
	EXECUTE format('SELECT string_agg(r::text, chr(32) ORDER BY r::text) FROM (%s) AS r', func) INTO by_function;
	RETURN CASE WHEN by_scan = by_function THEN by_scan ELSE concat_ws(' <> ', by_scan, by_function) END;
END $$;

SELECT is(pg_temp.scan_puts_out('SELECT count((row_data).v) FROM stream_changes(NULL::p14_keyed)'), '((row_data).v)', 'a field for an aggregate');
SELECT is(pg_temp.aggregated('SELECT count((row_data).v), sum((row_data).id), max((row_data).n), min((row_data).v) FROM %s'), '(29,187,77.00,"base 1")', 'several');
SELECT is(pg_temp.scan_puts_out('SELECT count(row_data), count((row_data).n) FROM stream_changes(NULL::p14_keyed)'), 'row_data, ((row_data).n)', 'beside the row');
SELECT is(pg_temp.aggregated('SELECT count(row_data), count((row_data).n) FROM %s'), '(29,28)', 'which count both');
SELECT is(pg_temp.scan_puts_out('SELECT count(*) FROM stream_changes(NULL::p14_keyed)') IS NULL, true, 'nothing to be counted');
SELECT is(pg_temp.aggregated('SELECT count(*) FROM %s'), '(29)', 'is');
SELECT is(pg_temp.scan_puts_out('SELECT (row_data).id, max((row_data).v) FROM stream_changes(NULL::p14_keyed) GROUP BY (row_data).id'),
	'((row_data).id), ((row_data).v)', 'grouped by a field');
SELECT is(pg_temp.aggregated('SELECT (row_data).id, max((row_data).v) FROM %s WHERE _commit_version >= 3 GROUP BY 1'), '(5,"base 6") (6,"base 6") (7,"base 7") (8,eight) (9,nine)', 'is');
SELECT is(pg_temp.aggregated('SELECT (row_data).id + 1, count(DISTINCT (row_data).v), array_agg(_change_type ORDER BY (row_data).n, _change_type) FROM %s WHERE _commit_version >= 3 GROUP BY (row_data).id + 1'),
	'(10,2,"{delete,insert}") (6,2,"{delete,insert}") (7,1,{delete}) (8,1,"{delete,insert}") (9,2,"{delete,insert}")', 'by what is computed from it');
SELECT is(pg_temp.aggregated('SELECT _change_type, max((row_data).id) FILTER (WHERE (row_data).n IS NULL) FROM %s WHERE (row_data).id > 5 GROUP BY 1 HAVING count((row_data).v) > 1'),
	'(delete,) (insert,30)', 'with conditions here and there');
SELECT is(pg_temp.aggregated('SELECT row_data, count(*), max((row_data).v) FROM %s WHERE (row_data).id = 8 GROUP BY row_data'),
	'("(8,""base 8"",2.00)",2,"base 8") ("(8,eight,2.00)",1,eight)', 'by the row');
SELECT is(pg_temp.aggregated('SELECT count((row_data).n) FROM %s WHERE row_data IS NOT NULL'), '(28)', 'with a condition on the row');
SELECT is(pg_temp.aggregated('SELECT (row_data).id, _change_type, grouping((row_data).id, _change_type), count(*) FROM %s WHERE _commit_version = 4 GROUP BY ROLLUP ((row_data).id, _change_type)'),
	'(,,3,4) (7,,1,2) (7,delete,0,1) (7,insert,0,1) (8,,1,2) (8,delete,0,1) (8,insert,0,1)', 'grouping sets');
SELECT is(pg_temp.aggregated('SELECT (row_data).id, max((row_data).v) FROM %s WHERE (row_data).id = 8 GROUP BY ROLLUP (row_data)'), '(,eight) (8,"base 8") (8,eight)',
	'grouping sets by the row: without it, its fields are NULL, too');
SELECT is(pg_temp.aggregated('SELECT (n).id, max((n).v) FROM (SELECT row_data AS n FROM %s) AS s WHERE (n).id = 8 GROUP BY GROUPING SETS ((n), ())'), '(,eight) (8,"base 8") (8,eight)', 'by another name');
SELECT is(pg_temp.scan_puts_out('SELECT (row_data).id + 1, max((row_data).v) FROM stream_changes(NULL::p14_keyed) WHERE now() > ''2000-01-01'' GROUP BY (row_data).id + 1'),
	'((row_data).id), ((row_data).v)', 'below a condition that looks at no row');
SELECT is(pg_temp.aggregated('SELECT i, max(u) FROM (SELECT (row_data).id + 1 AS i, (row_data).n + 1 AS n, upper((row_data).v) AS u FROM %s WHERE _commit_version = 4 AND now() > ''2000-01-01'') AS s GROUP BY GROUPING SETS ((i), (n), ())'),
	'(,"BASE 7") (,"BASE 7") (,EIGHT) (,EIGHT) (8,"BASE 7") (9,EIGHT)', 'and for grouping sets of what a sub-select computes');
SELECT is(pg_temp.aggregated('SELECT DISTINCT (row_data).id FROM %s WHERE _commit_version = 4 GROUP BY (row_data).id, (row_data).v'), '(7) (8)', 'groups without an aggregate');
SELECT is(pg_temp.aggregated('SELECT (row_data).id, sum(count(*)) OVER (ORDER BY (row_data).id) FROM %s WHERE _commit_version >= 4 GROUP BY (row_data).id'), '(7,2) (8,4) (9,6)', 'a window over groups');
SELECT is(pg_temp.scan_puts_out('SELECT (row_data).id + 1, rank() OVER (ORDER BY count(*)) FROM stream_changes(NULL::p14_keyed) GROUP BY (row_data).id'), '((row_data).id), row_data',
	'which get the row');
SELECT is(pg_temp.aggregated('SELECT (row_data).id + 1, rank() OVER (ORDER BY -(row_data).id), max((row_data).v) FROM %s WHERE _commit_version >= 4 GROUP BY (row_data).id'),
	'(10,1,nine) (8,3,"base 7") (9,2,eight)', 'and compute what they need');
SELECT is(pg_temp.aggregated('SELECT (row_data).id, generate_series(8, (row_data).id), count(*) FROM %s WHERE _commit_version >= 4 GROUP BY (row_data).id'), '(8,8,2) (9,8,2) (9,9,2)',
	'a set-returning function of groups');
SELECT is(pg_temp.aggregated('SELECT (row_data).id, (row_data).id + 0 * random() FROM %s GROUP BY (row_data).id ORDER BY (row_data).id LIMIT 2'), '(1,1) (2,2)', 'what is computed after sorting');
SELECT is(pg_temp.aggregated('SELECT max((row_data).id) + (SELECT count(*) FROM generate_series(1, 3)) FROM %s'), '(33)', 'beside a sub-select');
SELECT is(pg_temp.aggregated('SELECT max((SELECT (row_data).id + g FROM generate_series(2, 2) AS g)) FROM %s'), '(32)', 'and for one');
SELECT is(pg_temp.aggregated('SELECT max((SELECT count(*) FROM generate_series(1, 2) AS g WHERE (c.row_data).id = g)), sum((row_data).id) FROM %s'), '(1,187)', 'or both');
SELECT is(pg_temp.aggregated('SELECT count(v), max(id) FROM (SELECT (row_data).* FROM %s OFFSET 1) AS s'), '(28,30)', 'over a sub-select');
SELECT is(pg_temp.aggregated('SELECT count((c.row_data).v), sum(g) FROM %s JOIN generate_series(1, 3) AS g ON (c.row_data).id = g'), '(10,20)', 'over a join');
SELECT is(pg_temp.aggregated('SELECT g, (SELECT max((row_data).id) FROM %s WHERE (row_data).id < g * 10) FROM generate_series(1, 3) AS g'), '(1,9) (2,10) (3,20)', 'again and again');
SELECT is(pg_temp.aggregated('SELECT count((row_data).mood), max((row_data).k), min((row_data).d) FROM %s', 'NULL::p14_rich'), '(8,z,2024-02-01)', 'of types that are stored as text');

/*
 * Cursors
 */
BEGIN;
DECLARE p14_plain CURSOR FOR SELECT (row_data).id AS v FROM stream_changes(NULL::p14_big);
DECLARE p14_scroll SCROLL CURSOR FOR SELECT (row_data).id AS v FROM stream_changes(NULL::p14_big);
DECLARE p14_hold CURSOR WITH HOLD FOR SELECT (row_data ->> 'id')::int AS v FROM stream_changes('p14_keyed', 1) WHERE _change_type = 'insert';
DECLARE p14_open CURSOR FOR SELECT (row_data).id AS v FROM stream_changes(NULL::p14_big);
SELECT is(pg_temp.take('p14_plain', 'forward', 3), '1 2 3', 'a cursor');
SELECT is(pg_temp.take('p14_scroll', 'forward', 4), '1 2 3 4', 'another one beside it');
SELECT is(pg_temp.take('p14_plain', 'forward', 2), '4 5', 'goes on');
SELECT is(pg_temp.take('p14_scroll', 'backward', 5), '3 2 1', 'and backward, if it was declared to');
SELECT is(pg_temp.take('p14_scroll', 'forward', 2), '1 2', 'and forward again');
MOVE FORWARD 19994 IN p14_plain;
SELECT is(pg_temp.take('p14_plain', 'forward', 3), '20000', 'up to its end');
SELECT is(pg_temp.take('p14_plain', 'forward', 1), NULL, 'and no further');
SELECT is(pg_temp.take('p14_open', 'forward', 1), '1', 'one is left open');
SAVEPOINT s;
SELECT is(pg_temp.take('p14_open', 'forward', 1), '2', 'and read in a subtransaction');
ROLLBACK TO s;
SELECT is(pg_temp.take('p14_hold', 'forward', 1), '1', 'one to be held');
COMMIT;
SELECT is(pg_temp.take('p14_hold', 'forward', 20), '2 3 20 30 5 7 8 9', 'is read on after the transaction');
CLOSE p14_hold;
BEGIN;
DECLARE p14_plain CURSOR FOR SELECT (row_data).id AS v FROM stream_changes(NULL::p14_keyed);
SELECT is(pg_temp.take('p14_plain', 'forward', 1), '1', 'from its beginning');
SELECT alike(pg_temp.row_error_of('FETCH BACKWARD FROM p14_plain'), '55000 cursor can only scan forward%', 'a cursor without SCROLL goes forward only');
COMMIT;

-- fields of the row, with the table altered between the cursor and its first row: what the server's field selection makes of it
CREATE FUNCTION pg_temp.altered(command text, field text, ordinality text, version int DEFAULT 1) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	c refcursor;
	result text;
BEGIN
	OPEN c FOR EXECUTE format('SELECT (row_data).%s::text FROM stream_changes(NULL::p14_keyed, %s) %s', field, version, ordinality);
	EXECUTE command;
	FETCH c INTO result;
	CLOSE c;
	RAISE EXCEPTION USING MESSAGE = 'fetched ' || coalesce(result, 'NULL');
EXCEPTION WHEN OTHERS THEN
	RETURN SQLERRM;
END $$;
SELECT is(concat_ws(', ', pg_temp.altered(command, 'v', ''), pg_temp.altered(command, 'v', 'WITH ORDINALITY')), concat_ws(', ', expected, expected),
	command || ', with an open cursor of the scan, of the function')
FROM (VALUES ('ALTER TABLE p14_keyed ADD more int', 'fetched base 1'), ('ALTER TABLE p14_keyed DROP v', 'fetched NULL'),
	('ALTER TABLE p14_keyed DROP n', 'fetched base 1'), ('ALTER TABLE p14_keyed ALTER v TYPE varchar', 'attribute 2 has wrong type')) AS v (command, expected);
SELECT is(pg_temp.altered('ALTER TABLE p14_keyed ALTER v TYPE varchar', 'v', ordinality, 1000), 'fetched NULL', 'nothing without a row ' || ordinality)
FROM unnest('{"",WITH ORDINALITY}'::text[]) AS ordinality;

CREATE FUNCTION pg_temp.loop() RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	r record;
	n int := 0;
BEGIN
	FOR r IN SELECT (row_data).id FROM stream_changes(NULL::p14_big) LOOP
		-- a failure inside the loop leaves the scan alone
		BEGIN
			n := n + 1;
			PERFORM 1 / (r.id % 7);
		EXCEPTION WHEN division_by_zero THEN
			n := n - 1;
		END;
		EXIT WHEN r.id = 1000;
	END LOOP;
	RETURN n;
END $$;
SELECT is(pg_temp.loop(), '858', 'a loop with subtransactions');

CREATE TEMP TABLE p14_result (n bigint);
CREATE PROCEDURE pg_temp.commits() LANGUAGE plpgsql AS $$
DECLARE
	r record;
	n bigint := 0;
BEGIN
	FOR r IN SELECT (row_data).id FROM stream_changes(NULL::p14_big) LOOP
		n := n + r.id;
		IF r.id % 5000 = 0 THEN
			INSERT INTO p14_result VALUES (n);
			COMMIT;
		ELSIF r.id % 3000 = 0 THEN
			ROLLBACK;
		END IF;
	END LOOP;
END $$;
CALL pg_temp.commits();
SELECT results_eq('SELECT n FROM p14_result ORDER BY n', 'SELECT g::bigint * (g + 1) / 2 FROM generate_series(5000, 20000, 5000) AS g', 'a loop with transactions');

-- commits of others, and of oneself, are not seen by what has begun
CREATE FUNCTION pg_temp.sees_itself() RETURNS bigint
LANGUAGE sql AS $$
	WITH i AS (INSERT INTO p14_bare VALUES (99, 'own') RETURNING 1)
	SELECT count(*) FROM stream_changes('p14_bare'), i WHERE row_data ->> 'id' = '99'
$$;
SELECT is(pg_temp.sees_itself(), 0::bigint, 'not what the statement itself writes');

/*
 * Prepared statements
 */
PREPARE p14_read (text, bigint, bigint, text) AS SELECT count(*) FROM stream_changes($1, $2, $3, deduplication_mode => $4);
PREPARE p14_typed (bigint) AS SELECT count(*), max((row_data).id) FROM stream_changes(NULL::p14_keyed, $1) WHERE _commit_version <= $1 + 1;
SET plan_cache_mode = force_generic_plan;
SELECT results_eq($$EXECUTE p14_read('p14_keyed', 1, 2, 'none')$$, 'VALUES (12::bigint)', 'a generic plan');
SELECT results_eq($$EXECUTE p14_read('p14_keyed', 1, 2, NULL)$$, 'VALUES (10::bigint)', 'NULL takes the default');
SELECT results_eq($$EXECUTE p14_read('p14_bare', 1, NULL, NULL)$$, 'VALUES (10::bigint)', 'another table');
SELECT results_eq('EXECUTE p14_typed(1)', 'VALUES (10::bigint, 30)', 'typed');
SELECT results_eq('EXECUTE p14_typed(3)', 'VALUES (7::bigint, 8)', 'again');
ALTER TABLE p14_keyed ADD extra int DEFAULT 5;
SELECT results_eq('EXECUTE p14_typed(3)', 'VALUES (7::bigint, 8)', 'after the table has changed');
SELECT is((SELECT sum((row_data).extra) FROM stream_changes(NULL::p14_keyed)), (29 * 5)::bigint, 'with a new column');
RESET plan_cache_mode;

/*
 * Errors, and rights, as with the function
 */
SELECT is(pg_temp.row_error_of(format('SELECT * FROM stream_changes(%s)', arguments)), pg_temp.row_error_of(format('SELECT * FROM stream_changes(%s) WITH ORDINALITY', arguments)), arguments)
FROM (VALUES ('NULL::text'), ($$'p14_missing'$$), ($$'pg_class'$$), ('1'), ($$'p14_keyed', 2, 1$$), ($$'p14_keyed', deduplication_mode => 'some'$$),
	($$'p14_bare', compute_updates => true$$), ('NULL::p14_mood')) AS v (arguments);
SELECT alike(pg_temp.row_error_of('SELECT count(*) FROM stream_changes(NULL::p14_keyed)', 'p14_nobody'), '42501%', 'no rights on the table');
REVOKE EXECUTE ON FUNCTION stream_changes(text, bigint, bigint, timestamptz, timestamptz, boolean, boolean, text, boolean) FROM PUBLIC;
GRANT SELECT ON p14_keyed TO p14_nobody;
SELECT is(pg_temp.row_error_of($$SELECT count(*) FROM stream_changes('p14_keyed')$$, 'p14_nobody'), pg_temp.row_error_of($$SELECT count(*) FROM stream_changes('p14_keyed') WITH ORDINALITY$$, 'p14_nobody'),
	'no right to call it');
SELECT alike(pg_temp.row_error_of($$SELECT count(*) FROM stream_changes('p14_keyed')$$, 'p14_nobody'), '42501 permission denied for function stream_changes%', 'which is said');
SELECT alike(pg_temp.row_error_of($$EXPLAIN SELECT count(*) FROM stream_changes('p14_keyed')$$, 'p14_nobody'), '42501%', 'when the plan begins, as ever');
SELECT is(pg_temp.row_error_of('SELECT count(*) FROM stream_changes(NULL::p14_keyed)', 'p14_nobody'), 'none', 'the other forms are others');
GRANT EXECUTE ON FUNCTION stream_changes(text, bigint, bigint, timestamptz, timestamptz, boolean, boolean, text, boolean) TO PUBLIC;

-- a value that cannot be converted
SET IntervalStyle = 'postgres_verbose';
ALTER TYPE p14_mood RENAME VALUE 'ok' TO 'fine';
SELECT is(pg_temp.row_error_of('SELECT * FROM stream_changes(NULL::p14_rich)'), '22P02 invalid input value for enum public.p14_mood: "ok" [The value is that of column "mood" in version 1.]', 'a value that is no more');
SELECT is(pg_temp.row_error_of('SELECT _change_type FROM stream_changes(NULL::p14_rich)'), 'none', 'unless nobody asks for the row');
SELECT is(current_setting('IntervalStyle'), 'postgres_verbose', 'and settings are as they were');
RESET IntervalStyle;

-- a gap in the range is an error, even if the rows before it would do
INSERT INTO p14_bare VALUES (3, 'c');
TRUNCATE p14_bare;
INSERT INTO p14_bare VALUES (4, 'd');
SELECT alike(pg_temp.row_error_of('SELECT * FROM stream_changes(NULL::p14_bare)'), '55000 there is a gap%at version 6%', 'a gap');
SELECT alike(pg_temp.row_error_of('SELECT * FROM stream_changes(NULL::p14_bare) LIMIT 1'), '55000 there is a gap%at version 6%', 'far away');
SELECT is(pg_temp.row_error_of('SELECT * FROM stream_changes(NULL::p14_bare, 0, 5)'), 'none', 'before it');
SELECT is((SELECT count(*) FROM stream_changes(NULL::p14_bare, 7)), 1::bigint, 'after it');

/*
 * Registered change logs
 */
CREATE VIEW p14_log AS SELECT g AS id, 'v' || g AS v, 'insert' AS _change_type, g::bigint AS _commit_version, now() AS _commit_timestamp FROM generate_series(1, 4) AS g;
SELECT stream_register_changelog('p14_log', false, false, false);
SELECT is(pg_temp.difference($$'p14_log'$$), '4 rows, 0 differ', 'a change log that is a view');
SELECT is(pg_temp.difference('NULL::p14_log', 'row_data, _commit_version'), '4 rows, 0 differ', 'typed');
SELECT results_eq($$SELECT g, (SELECT string_agg(row_data ->> 'v', ' ') FROM stream_changes('p14_log') AS c WHERE c._commit_version >= g) FROM generate_series(1, 5) AS g$$,
	$$VALUES (1, 'v1 v2 v3 v4'), (2, 'v2 v3 v4'), (3, 'v3 v4'), (4, 'v4'), (5, NULL)$$, 'repeated');
SELECT results_eq($$SELECT g, _commit_version, (row_data).v FROM generate_series(3, 5) AS g, stream_changes(NULL::p14_log, g)$$,
	$$VALUES (3, 3::bigint, 'v3'), (3, 4, 'v4'), (4, 4, 'v4')$$, 'with other arguments');
SELECT is(pg_temp.aggregated('SELECT max((row_data).v), sum((row_data).id) FROM %s', 'NULL::p14_log'), '(v4,10)', 'aggregated');

-- these rows are in the store with short headers, and copied to be taken apart: 50000 times a hundred bytes are 5 MB
CREATE FUNCTION pg_temp.executor_memory() RETURNS bigint
LANGUAGE sql AS $$ SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts WHERE name = 'ExecutorState' $$;
CREATE VIEW p14_long AS SELECT g AS id, repeat('v', 60) AS v, 'insert' AS _change_type, g::bigint AS _commit_version, now() AS _commit_timestamp FROM generate_series(1, 50000) AS g;
SELECT stream_register_changelog('p14_long', false, false, false);
SET work_mem = '64kB';
SELECT cmp_ok((SELECT max(CASE WHEN (row_data).id = 50000 THEN pg_temp.executor_memory() END) FROM stream_changes(NULL::p14_long)), '<', 1000000::bigint, 'one copy at a time, below an aggregate');
SELECT cmp_ok((SELECT pg_temp.executor_memory() FROM stream_changes(NULL::p14_long) WHERE (row_data).id = 50000), '<', 1000000::bigint, 'and with a condition');
SELECT is((SELECT count(*) FROM stream_changes(NULL::p14_long) WHERE length((row_data).v) = 60 AND (row_data).id = _commit_version), 50000::bigint, 'each the right one');
RESET work_mem;

SELECT * FROM finish();

DROP VIEW p14_log, p14_long;
SELECT stream_untrack(t) FROM unnest('{p14_keyed,p14_bare,p14_rich,p14_big}'::regclass[]) AS t;
DROP TABLE p14_keyed, p14_bare, p14_rich, p14_big;
DROP TYPE p14_mood;
DROP ROLE p14_nobody;
