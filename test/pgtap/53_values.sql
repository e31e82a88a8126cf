-- Values: whatever a column can hold comes out of the log as what it was.  Beside each change, in its own transaction, a plain
-- INSERT ... SELECT to_jsonb(row) writes the table into p53.oracle, under the settings that api.md fixes; the log, folded up to
-- each version, must be exactly that, and the typed form the table itself, bit by bit.

SET client_min_messages = warning;

SELECT plan(37);

CREATE SCHEMA p53;
CREATE EXTENSION IF NOT EXISTS hstore SCHEMA public;
CREATE EXTENSION IF NOT EXISTS citext SCHEMA public;
CREATE EXTENSION IF NOT EXISTS ltree SCHEMA public;

CREATE TABLE p53.oracle (tab text, xid xid8 DEFAULT pg_current_xact_id(), row_data jsonb);

CREATE FUNCTION p53.note(tab text) RETURNS void LANGUAGE plpgsql
SET TimeZone = 'UTC' SET DateStyle = 'ISO' SET IntervalStyle = 'postgres' SET bytea_output = 'hex' SET extra_float_digits = 1
SET search_path = pg_catalog SET quote_all_identifiers = off AS $$
BEGIN
	EXECUTE format('INSERT INTO p53.oracle (tab, row_data) SELECT %L, to_jsonb(t) FROM %s AS t', tab, tab);
	-- a table without rows is noted, too
	INSERT INTO p53.oracle (tab) VALUES (tab);
END $$;

-- Versions at which the log, folded, is not what the oracle says; as text, since jsonb takes 1.0 for 1.00.
CREATE FUNCTION p53.wrong(tab text) RETURNS TABLE (version bigint, what text, data text) LANGUAGE plpgsql AS $$
BEGIN
	-- each read once
	CREATE TEMP TABLE moves AS
		SELECT _commit_version AS v, CASE _change_type WHEN 'insert' THEN 1 ELSE -1 END AS s, row_data::text AS r FROM stream_changes(tab);
	CREATE TEMP TABLE noted AS
		SELECT v._commit_version AS v, o.row_data::text AS r FROM stream_versions(tab) AS v JOIN p53.oracle AS o ON o.xid = v.xid AND o.tab = wrong.tab;
	RETURN QUERY
		(SELECT n.v, 'missing in log', left(x.r, 300)
		FROM (SELECT DISTINCT v FROM noted) AS n, LATERAL (
			SELECT r FROM noted WHERE noted.v = n.v AND r IS NOT NULL
			EXCEPT ALL SELECT m.r FROM (SELECT r, sum(s) AS c FROM moves WHERE moves.v <= n.v GROUP BY r) AS m, generate_series(1, m.c)) AS x LIMIT 3)
		UNION ALL
		(SELECT n.v, 'too much in log', left(x.r, 300)
		FROM (SELECT DISTINCT v FROM noted) AS n, LATERAL (
			SELECT m.r FROM (SELECT r, sum(s) AS c FROM moves WHERE moves.v <= n.v GROUP BY r) AS m, generate_series(1, m.c)
			EXCEPT ALL SELECT r FROM noted WHERE noted.v = n.v AND r IS NOT NULL) AS x LIMIT 3)
		UNION ALL
		SELECT NULL, 'no version was compared', NULL WHERE NOT EXISTS (SELECT FROM noted);
	DROP TABLE moves, noted;
END $$;

-- Rows of the table that are not, bit by bit, the last image of their key in the typed form; and keys that are too many.
CREATE FUNCTION p53.wrong_typed(tab text, key text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format($q$
		WITH c AS (SELECT row_number() OVER () AS n, _change_type, row_data FROM stream_changes(NULL::%1$s)),
			 last AS (SELECT DISTINCT ON ((row_data).%2$I) _change_type, row_data FROM c ORDER BY (row_data).%2$I, n DESC),
			 kept AS (SELECT row_data FROM last WHERE _change_type = 'insert')
		SELECT left(concat(t, ' <> ', k.row_data), 1000) FROM %1$s AS t FULL JOIN kept AS k ON (k.row_data).%2$I = t.%2$I
		WHERE t IS NULL OR k.row_data IS NULL OR NOT coalesce(t *= k.row_data, false) $q$, tab, key);
END $$;

CREATE PROCEDURE p53.track(tab text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM stream_track(tab);
	COMMIT;
	PERFORM stream_sync('120 s');
END $$;

-- How a session that writes, and one that reads, must not set the tone.
CREATE PROCEDURE p53.odd_settings() LANGUAGE plpgsql AS $$
BEGIN
	SET TimeZone = 'Asia/Kolkata'; SET DateStyle = 'SQL, DMY'; SET IntervalStyle = 'sql_standard'; SET bytea_output = 'escape';
	SET extra_float_digits = -15; SET search_path = p53, public; SET xmloption = 'document'; SET lc_monetary = 'POSIX';
	SET quote_all_identifiers = on; SET xmlbinary = 'hex'; SET lc_time = 'POSIX'; SET lc_numeric = 'POSIX';
END $$;
CREATE PROCEDURE p53.usual_settings() LANGUAGE plpgsql AS $$
BEGIN
	RESET TimeZone; RESET DateStyle; RESET IntervalStyle; RESET bytea_output;
	RESET extra_float_digits; RESET search_path; RESET xmloption; RESET lc_monetary;
	RESET quote_all_identifiers; RESET xmlbinary; RESET lc_time; RESET lc_numeric;
END $$;

/*
 * Every type that PostgreSQL brings, and its array
 */
CREATE TABLE p53.type_values (type regtype PRIMARY KEY, vals text[]);
INSERT INTO p53.type_values VALUES
	('bool', '{t,f}'),
	('bytea', ARRAY['\x', '\x00ff5c27', repeat('\001\000', 2000)]),
	('"char"', ARRAY['a', '', '\377', E'\\']),
	('name', ARRAY['pg_catalog', '', repeat('ü', 31), 'with "quotes"']),
	('int8', '{9223372036854775807,-9223372036854775808,0}'),
	('int2', '{32767,-32768}'),
	('int4', '{2147483647,-2147483648}'),
	('regproc', '{pg_catalog.now,-,16}'),
	('text', ARRAY['', E'tab\tnewline\nquote"backslash\\', 'Grüße 日本語 😀', repeat('long ', 5000), E'\u0001\u001f\u007f']),
	('oid', '{0,4294967295}'),
	('tid', '{"(0,1)","(4294967295,65535)"}'),
	('xid', '{0,4294967295}'),
	('cid', '{0,4294967295}'),
	('json', ARRAY['{"b":1,  "a":[1,{"z":null}],"b":2}', 'null', '"\u00fc"', '1e400', '[]', '{"k":"\\u0000 as text"}']),
	('xml', ARRAY['<a b="c">d</a>', '<a/>', 'just <b>content</b> &amp; more', '<?xml version="1.0"?><r>ü</r>']),
	('point', '{"(1.5,-0)","(Infinity,NaN)","(1e-300,0.1)"}'),
	('lseg', '{"[(0,0),(1,1)]"}'),
	('path', '{"[(0,0),(1,1)]","((0,0),(1,1),(2,0))"}'),
	('box', ARRAY['(1,1),(0,0)', '(Infinity,2),(-Infinity,-2)']),
	('polygon', '{"((0,0),(1,1),(2,0))"}'),
	('line', '{"{1,-1,0}"}'),
	('cidr', '{10.0.0.0/8,2001:db8::/32}'),
	('float4', '{0.1,-0,NaN,Infinity,-Infinity,3.4028235e+38,1.1754944e-38,1e-45}'),
	('float8', '{0.1,-0,NaN,Infinity,-Infinity,1.7976931348623157e+308,2.2250738585072014e-308,5e-324,9007199254740993}'),
	('circle', '{"<(0,0),1.5>"}'),
	('macaddr8', '{08:00:2b:01:02:03:04:05}'),
	('money', '{1234.56,-0.01,92233720368547758.07,-92233720368547758.08}'),
	('macaddr', '{08:00:2b:01:02:03}'),
	('inet', '{10.0.0.1,10.0.0.1/8,::1,2001:db8::1/64}'),
	('aclitem', ARRAY['=r/' || quote_ident(current_user), quote_ident(current_user) || '=arwdDxt/' || quote_ident(current_user)]),
	('bpchar', ARRAY['blanks   ', '']),
	('varchar', ARRAY['v', '']),
	('date', ARRAY['infinity', '-infinity', '4713-11-24 BC', '0001-01-01 BC', '5874897-12-31', '2024-02-29']),
	('time', '{00:00,24:00,23:59:59.999999}'),
	('timestamp', ARRAY['infinity', '-infinity', '4713-11-24 00:00:00 BC', '294276-12-31 23:59:59.999999', '2024-02-29 12:34:56.7']),
	('timestamptz', ARRAY['infinity', '-infinity', '4713-11-24 00:00:00+00 BC', '294276-12-31 23:59:59.999999+00', '1883-11-18 12:00:00 America/New_York']),
	('interval', ARRAY['1 year -2 mons +3 days -04:05:06.789', '0', '-178000000 years', '178000000 years', '1 mon -1 us']),
	('timetz', '{00:00+15:59,24:00-15:59,12:34:56.789+05:30:15}'),
	('bit', ARRAY['', '0', repeat('10', 100)]),
	('varbit', ARRAY['', '1', repeat('110', 1000)]),
	('numeric', ARRAY['NaN', 'Infinity', '-Infinity', '0.000', '-1.50', '1e130000', '1e-16383', '12345678901234567890.12345678901234567890']),
	('refcursor', '{"<unnamed portal 1>"}'),
	('regprocedure', '{pg_catalog.now(),-,16}'),
	('regoper', '{pg_catalog.||/,0,16}'),
	('regoperator', ARRAY['pg_catalog.+(int4,int4)', '0', '16']),
	('regclass', '{pg_catalog.pg_class,p53.type_values,-,16}'),
	('regtype', ARRAY['integer', 'p53.type_values', '-', '16', 'timestamp with time zone[]']),
	('uuid', '{6d0e3c2c-5b0a-4c1e-9d0b-2f6d6a0e7a11}'),
	('txid_snapshot', '{"10:20:10,14,15"}'),
	('pg_lsn', '{16/B374D848,0/0,FFFFFFFF/FFFFFFFF}'),
	('tsvector', ARRAY['''a'':1A ''fat'':2B,4C ''it''''s''', '']),
	('tsquery', ARRAY['''fat'' & ( ''rat'':AB | !''cat'' ) <2> ''dog'':*', '']),
	('regconfig', '{pg_catalog.english,16}'),
	('regdictionary', '{pg_catalog.simple,16}'),
	('jsonb', ARRAY['{"a": [1, 2.50, null, {"n": {}}], "": "empty key", "ü": "é"}', 'null', '"scalar"', '1.000', '[]', '{}', 'true', '[[[[]]]]']),
	('int4range', ARRAY['empty', '(,)', '[1,10)', '(,5]']),
	('numrange', ARRAY['[1.0,1.00]', 'empty', '(NaN,)', '[-Infinity,1.5)']),
	('tsrange', ARRAY['[2024-01-01,infinity)', '["0044-03-15 12:00:00 BC",)']),
	('tstzrange', ARRAY['[2024-01-01 00:00+05:30,)', 'empty']),
	('daterange', ARRAY['[2024-01-01,2024-01-31]', '(-infinity,infinity)']),
	('int8range', ARRAY['[1,9223372036854775807)', 'empty']),
	('jsonpath', ARRAY['$.a[*] ? (@.b > 1)', 'strict $."ü"']),
	('regnamespace', '{pg_catalog,p53,-,16}'),
	('regrole', ARRAY[quote_ident(current_user), '-', '16']),
	('regcollation', ARRAY['"C"', '16']),
	('int4multirange', ARRAY['{}', '{[1,3),[5,7)}', '{(,)}']),
	('nummultirange', ARRAY['{[1.0,2.00)}']),
	('tsmultirange', ARRAY['{["2024-01-01 00:00","2024-01-02 00:00")}']),
	('tstzmultirange', ARRAY['{["2024-01-01 00:00+02","2024-01-02 00:00+02"),[infinity,)}']),
	('datemultirange', ARRAY['{[2024-01-01,2024-01-31],[2024-03-01,)}']),
	('int8multirange', ARRAY['{[1,3)}', '{}']),
	('pg_snapshot', '{"10:20:10,14,15"}'),
	('xid8', '{0,18446744073709551615}');

SELECT is_empty($$SELECT oid::regtype FROM pg_type
	WHERE oid < 16384 AND typtype IN ('b', 'r', 'm') AND typcategory <> 'A' AND typnamespace = 'pg_catalog'::regnamespace
	AND oid NOT IN (SELECT type FROM p53.type_values)
	-- nobody can write values of these but the server itself
	AND typname NOT IN ('pg_node_tree', 'pg_ndistinct', 'pg_dependencies', 'pg_mcv_list', 'gtsvector', 'pg_brin_bloom_summary', 'pg_brin_minmax_multi_summary')$$,
	'no type was forgotten');

SELECT format('CREATE TABLE p53.everything (id int PRIMARY KEY, extra int, oidvector oidvector, int2vector int2vector, tree pg_node_tree, deps pg_dependencies, '
		'nd pg_ndistinct, mcv pg_mcv_list, acls aclitem[], procs regproc[], row_of_catalog pg_catalog.pg_am, %s)',
	string_agg(format('%I %s%s', replace(type::text, '"', ''), type, CASE type::text WHEN 'xml' THEN '' ELSE '' END)
		|| format(', %I %s[]', replace(type::text, '"', '') || '_a', type), ', ')) FROM p53.type_values \gexec

-- row n has the n-th value of each type, and an array of all of them; typmods do not matter here ("bit" alone is bit(1))
ALTER TABLE p53.everything ALTER "bit" TYPE bit varying, ALTER bit_a TYPE bit varying[], ALTER "character" TYPE bpchar, ALTER character_a TYPE bpchar[];
CREATE FUNCTION p53.row_of(n int, idx int) RETURNS text
RETURN (SELECT format('INSERT INTO p53.everything (id, extra, oidvector, int2vector, %s) SELECT %s, %s, ''1 2 %s'', '''', %s',
		string_agg(format('%I, %I', replace(type::text, '"', ''), replace(type::text, '"', '') || '_a'), ', ' ORDER BY type), idx, n, n,
		string_agg(format('%L::%s, %s', vals[1 + (n - 1) % cardinality(vals)], CASE type WHEN '"char"'::regtype THEN '"char"' WHEN 'bit'::regtype THEN 'varbit' WHEN 'bpchar'::regtype THEN 'bpchar' ELSE type::text END,
			CASE n % 4 WHEN 0 THEN format('NULL')
				WHEN 1 THEN format('%L::text[]::%s[]', '{}', t)
				WHEN 2 THEN format('ARRAY[NULL, %L, NULL]::%s[]', vals[1], t)
				ELSE format('ARRAY[ARRAY[%1$L, NULL], ARRAY[%2$L, %1$L]]::%3$s[]', vals[1], vals[cardinality(vals)], t) END), ', ' ORDER BY type))
	FROM p53.type_values, LATERAL (SELECT CASE type WHEN 'bit'::regtype THEN 'varbit' WHEN 'bpchar'::regtype THEN 'bpchar' ELSE type::text END AS t) AS x);

SET xmloption = content;
SELECT p53.row_of(n, n) FROM generate_series(1, 5) AS n \gexec
INSERT INTO p53.everything (id) VALUES (100);
CREATE STATISTICS p53.extended ON type, vals FROM p53.type_values;
CREATE TABLE p53.correlated AS SELECT i / 100 AS a, i / 10 AS b FROM generate_series(1, 1000) AS i;
CREATE STATISTICS p53.correlation ON a, b FROM p53.correlated;
ANALYZE p53.correlated;
UPDATE p53.everything SET tree = (SELECT ev_action FROM pg_rewrite LIMIT 1), row_of_catalog = (SELECT a FROM pg_am AS a WHERE amname = 'heap'),
	acls = acldefault('r', current_user::regrole), procs = '{now,-,16}',
	deps = (SELECT stxddependencies FROM pg_statistic_ext_data AS d JOIN pg_statistic_ext AS s ON s.oid = d.stxoid WHERE stxname = 'correlation'),
	nd = (SELECT stxdndistinct FROM pg_statistic_ext_data AS d JOIN pg_statistic_ext AS s ON s.oid = d.stxoid WHERE stxname = 'correlation'),
	mcv = (SELECT stxdmcv FROM pg_statistic_ext_data AS d JOIN pg_statistic_ext AS s ON s.oid = d.stxoid WHERE stxname = 'correlation') WHERE id = 1;
SELECT ok(deps IS NOT NULL AND nd IS NOT NULL AND mcv IS NOT NULL AND tree IS NOT NULL, 'also values that only the server makes') FROM p53.everything WHERE id = 1;

CALL p53.track('p53.everything');
CALL p53.odd_settings();
SET xmloption = content;
BEGIN;
SELECT p53.row_of(n, n) FROM generate_series(6, 9) AS n \gexec
SELECT p53.note('p53.everything') \g /dev/null
COMMIT;
BEGIN;
UPDATE p53.everything SET extra = -extra WHERE id % 2 = 0;
SELECT p53.note('p53.everything') \g /dev/null
COMMIT;
BEGIN;
DELETE FROM p53.everything WHERE id % 3 = 0;
INSERT INTO p53.everything (id) VALUES (200);
SELECT p53.note('p53.everything') \g /dev/null
COMMIT;
SELECT is_empty($$SELECT * FROM p53.wrong('p53.everything')$$, 'jsonb of every type is to_jsonb(row), under odd settings of writer and reader');
SELECT is_empty($$SELECT * FROM p53.wrong_typed('p53.everything', 'id')$$, 'the typed form of every type is the table, bit by bit, under odd settings');
SELECT is((SELECT count(*) FROM p53.everything), 8::bigint, 'there was something to compare');
CALL p53.usual_settings();
SELECT is_empty($$SELECT * FROM p53.wrong('p53.everything')$$, 'and under the usual ones');
SELECT is_empty($$SELECT * FROM p53.wrong_typed('p53.everything', 'id')$$, 'the typed form, too');
SELECT is((SELECT count(*) FROM stream_changes('p53.everything', 2, 2)), 8::bigint, 'updates of another column of four rows; the one whose NULL stays NULL is a carry-over');

/*
 * What is stored out of line, compressed, and not written again
 */
CREATE TABLE p53.toasted (id int PRIMARY KEY, n int, ext text, main text, extd text, plain text, lz text COMPRESSION lz4, lz_ext text COMPRESSION lz4, j jsonb, a text[], b bytea);
ALTER TABLE p53.toasted ALTER ext SET STORAGE EXTERNAL, ALTER main SET STORAGE MAIN, ALTER plain SET STORAGE PLAIN, ALTER b SET STORAGE EXTERNAL;
CREATE FUNCTION p53.noise(seed int, size int) RETURNS text
RETURN (SELECT left(string_agg(md5(seed || '/' || i), ''), size) FROM generate_series(1, size / 32 + 1) AS i);
INSERT INTO p53.toasted
SELECT i, 0, p53.noise(i, 3000 * i), repeat('main ', 700 * i), p53.noise(i, 9000), p53.noise(i, 100), repeat('lz4 ', 2000 * i), p53.noise(i, 20000),
	jsonb_build_object('k', p53.noise(i, 5000)), ARRAY[p53.noise(i, 4000), NULL, p53.noise(-i, 10)], decode(p53.noise(i, 6000), 'hex')
FROM generate_series(1, 4) AS i;
INSERT INTO p53.toasted (id, ext) VALUES (5, p53.noise(5, 1024 * 1024)), (6, repeat('x', 1024 * 1024)), (7, '');
CALL p53.track('p53.toasted');
BEGIN;
UPDATE p53.toasted SET n = n + 1;											-- nothing else written again
SELECT p53.note('p53.toasted') \g /dev/null
COMMIT;
BEGIN;
UPDATE p53.toasted SET ext = upper(ext) WHERE id % 2 = 0;					-- one out of many written
UPDATE p53.toasted SET n = n + 1 WHERE id % 2 = 0;							-- and not, in the same transaction
UPDATE p53.toasted SET ext = NULL, extd = ext WHERE id = 3;					-- moved to another column
SELECT p53.note('p53.toasted') \g /dev/null
COMMIT;
BEGIN;
UPDATE p53.toasted SET id = id + 10 WHERE id < 4;							-- the key, with the rest unchanged
SAVEPOINT s;
UPDATE p53.toasted SET extd = extd || '!';
ROLLBACK TO s;
UPDATE p53.toasted SET extd = extd || '?', n = n WHERE id > 3;
SELECT p53.note('p53.toasted') \g /dev/null
COMMIT;
BEGIN;
INSERT INTO p53.toasted (id, ext, b) SELECT 20, p53.noise(99, 1024 * 1024), decode(p53.noise(98, 2 * 1024 * 1024), 'hex');
DELETE FROM p53.toasted WHERE id IN (5, 6);
ALTER TABLE p53.toasted ALTER ext SET COMPRESSION lz4, ALTER ext SET STORAGE EXTENDED, ALTER main SET STORAGE EXTERNAL;
UPDATE p53.toasted SET main = main || 'after', n = -n;
SELECT p53.note('p53.toasted') \g /dev/null
COMMIT;
SELECT is_empty($$SELECT * FROM p53.wrong('p53.toasted')$$, 'out of line, compressed, unchanged and moved values');
SELECT is_empty($$SELECT * FROM p53.wrong_typed('p53.toasted', 'id')$$, 'the same, typed');
UPDATE p53.toasted SET ext = ext, extd = extd, main = main, lz_ext = lz_ext, j = j, a = a, b = b;
SELECT is_empty(format($$SELECT _change_type, (row_data).id FROM stream_changes(NULL::p53.toasted, %s)$$, stream_latest_version('p53.toasted')),
	'the same values stored anew are carry-overs');
-- stored another way, but equal byte for byte
UPDATE p53.toasted SET ext = ext || '', extd = substr(extd || 'x', 1, length(extd)), j = j || '{}', b = b || '' WHERE id >= 10;
SELECT is_empty(format($$SELECT _change_type, (row_data).id FROM stream_changes(NULL::p53.toasted, %s)$$, stream_latest_version('p53.toasted')),
	'and so are values that were made anew and are the same');

/*
 * Types of users and of extensions, which change while the table is tracked
 */
CREATE TYPE p53.mood AS ENUM ('sad', 'ok', 'with ''quotes'' "and" ü');
CREATE DOMAIN p53.positive AS int CHECK (VALUE > 0);
CREATE DOMAIN p53.moods AS p53.mood[];
CREATE DOMAIN p53.positives AS p53.positive[] CHECK (cardinality(VALUE) < 5);
CREATE TYPE p53.pair AS (x float8, at timestamptz);
CREATE TYPE p53.nested AS (p p53.pair, ps p53.pair[], m p53.mood, i interval, b bytea);
CREATE DOMAIN p53.good_pair AS p53.pair CHECK ((VALUE).x > 0);
CREATE TYPE p53.spans AS RANGE (subtype = float8, multirange_type_name = p53.multispans);
CREATE TYPE p53.mood_range AS RANGE (subtype = p53.mood);
CREATE TABLE p53.as_type (k int, v date);
CREATE TABLE p53.user_types (id int PRIMARY KEY, m p53.mood, ms p53.mood[], dms p53.moods, pos p53.positive, poss p53.positives, pair p53.pair, pairs p53.pair[],
	good p53.good_pair, nested p53.nested, s p53.spans, mss p53.multispans, mr p53.mood_range, rows p53.as_type, h public.hstore, hs public.hstore[], c public.citext, cs public.citext[],
	l public.ltree, lq public.lquery, lt public.ltxtquery, ls public.ltree[]);
INSERT INTO p53.user_types VALUES (1, 'sad', '[0:1]={ok,sad}', '{sad,NULL}', 1, '{1,2}', '(0.1,"2024-01-01 00:00+00")', ARRAY['(-0,infinity)', NULL]::p53.pair[],
	'(1e300,)', ROW(ROW(0.1, '2024-06-01 12:00+02'), ARRAY['(1,)']::p53.pair[], 'ok', '1 mon -1 day', '\x00ff'), '[0.1,0.2)', '{[1,2),[3,4)}', '[sad,ok]', '(1,2024-01-01)',
	'a=>1, "b c"=>NULL, d=>"\"q\""', ARRAY['a=>1'::public.hstore], 'CiText', '{A,b}', 'Top.Science', '*.a|b{1,2}.!c@*', 'Europe & Russia*@ & !Transportation', '{a.b,c}');
INSERT INTO p53.user_types (id) VALUES (2);
CALL p53.track('p53.user_types');
CALL p53.odd_settings();
BEGIN;
INSERT INTO p53.user_types SELECT 3, m, ms, dms, pos, poss, pair, pairs, good, nested, s, mss, mr, rows, h, hs, c, cs, l, lq, lt, ls FROM p53.user_types WHERE id = 1;
UPDATE p53.user_types SET pos = 7 WHERE id = 1;
SELECT p53.note('p53.user_types') \g /dev/null
COMMIT;
-- a label added in a transaction that has written the table, and used in the next
BEGIN;
UPDATE p53.user_types SET m = 'ok' WHERE id = 1;
ALTER TYPE p53.mood ADD VALUE 'happy' AFTER 'ok';
UPDATE p53.user_types SET pos = 8 WHERE id = 1;
SELECT p53.note('p53.user_types') \g /dev/null
COMMIT;
BEGIN;
UPDATE p53.user_types SET m = 'happy', ms = '{happy,NULL,sad}', mr = '[ok,happy]' WHERE id IN (1, 2);
SELECT p53.note('p53.user_types') \g /dev/null
COMMIT;
-- renamed between two changes of one transaction
BEGIN;
UPDATE p53.user_types SET pos = 9 WHERE id = 1;
ALTER TYPE p53.mood RENAME VALUE 'happy' TO 'glad';
UPDATE p53.user_types SET ms = ms || 'glad'::p53.mood WHERE id = 2;
COMMIT;
SELECT results_eq($$SELECT new_row ->> 'm' FROM stream_events('p53.user_types', 4, 4)$$, $$VALUES ('happy'), ('glad')$$,
	'each event has the label that there was when it happened');
UPDATE p53.user_types SET m = NULL, ms = NULL, mr = NULL WHERE id IN (1, 2);
-- a composite type altered between changes of one transaction
BEGIN;
UPDATE p53.user_types SET pos = 10 WHERE id = 1;
ALTER TYPE p53.pair ADD ATTRIBUTE z text CASCADE;
UPDATE p53.user_types SET pair.z = 'new' WHERE id = 1;
ALTER TYPE p53.pair RENAME ATTRIBUTE at TO moment CASCADE;
ALTER TYPE p53.pair DROP ATTRIBUTE x CASCADE;
UPDATE p53.user_types SET pair.z = 'newer' WHERE id = 1;
COMMIT;
SELECT results_eq($$SELECT new_row -> 'pair' FROM stream_events('p53.user_types', 6, 6) WHERE event = 'update'$$,
	$$VALUES ('{"x": 0.1, "at": "2024-01-01T00:00:00+00:00"}'::jsonb), ('{"x": 0.1, "at": "2024-01-01T00:00:00+00:00", "z": "new"}'), ('{"moment": "2024-01-01T00:00:00+00:00", "z": "newer"}')$$,
	'a composite value has the attributes that its type had when it was written');
SELECT results_eq($$SELECT new_row -> 'nested' -> 'p', new_row -> 'pairs' -> 0 FROM stream_events('p53.user_types', 6, 6) WHERE event = 'update'$$,
	$$VALUES ('{"x": 0.1, "at": "2024-06-01T10:00:00+00:00"}'::jsonb, '{"x": 0, "at": "infinity"}'::jsonb),
		('{"x": 0.1, "at": "2024-06-01T10:00:00+00:00", "z": null}', '{"x": 0, "at": "infinity", "z": null}'),
		('{"moment": "2024-06-01T10:00:00+00:00", "z": null}', '{"moment": "infinity", "z": null}')$$, 'and so it is inside other composites and arrays');
BEGIN;
-- every row is written again: this transaction's oracle is about today's types
UPDATE p53.user_types SET pos = coalesce(pos, 0) + 1;
SELECT p53.note('p53.user_types') \g /dev/null
COMMIT;
SELECT is_empty(format($$SELECT * FROM p53.wrong('p53.user_types') WHERE version < 3 AND version > 0$$), 'enums, domains, composites, ranges, hstore, citext, ltree');
SELECT is_empty($$
	(SELECT new_row::text FROM stream_events('p53.user_types', 7, 7) EXCEPT ALL SELECT row_data::text FROM p53.oracle AS o WHERE row_data IS NOT NULL AND xid = (SELECT xid FROM stream_versions('p53.user_types', 7, 7)))
	UNION ALL
	(SELECT row_data::text FROM p53.oracle AS o WHERE row_data IS NOT NULL AND xid = (SELECT xid FROM stream_versions('p53.user_types', 7, 7)) EXCEPT ALL SELECT new_row::text FROM stream_events('p53.user_types', 7, 7))$$,
	'also when they have been altered');
SELECT is((SELECT count(*) FROM stream_events('p53.user_types', 7, 7)), 3::bigint, 'all three rows');
CALL p53.usual_settings();
BEGIN;
CREATE TYPE p53.fresh AS ENUM ('one', '2');
ALTER TABLE p53.user_types ADD fresh p53.fresh DEFAULT 'one';
ALTER TYPE p53.fresh RENAME VALUE '2' TO 'two';
UPDATE p53.user_types SET fresh = 'two' WHERE id = 1;
INSERT INTO p53.user_types (id, fresh) VALUES (4, 'two');
COMMIT;
SELECT results_eq($$SELECT old_row ->> 'fresh', new_row ->> 'fresh' FROM stream_events('p53.user_types', 8, 8) WHERE event <> 'schema change'$$, $$VALUES ('one', 'two'), (NULL, 'two')$$,
	'a type made, changed and used in one transaction');
-- a type goes, with its columns
DROP EXTENSION hstore CASCADE;
DROP TYPE p53.mood_range CASCADE;
UPDATE p53.user_types SET pos = 100 WHERE id = 1;
SELECT is((SELECT row_data -> 'h' FROM stream_changes('p53.user_types', 0, 0) WHERE row_data ->> 'id' = '1'), '{"a": "1", "d": "\"q\"", "b c": null}'::jsonb,
	'values of a type that was dropped can still be read');
SELECT results_eq($$SELECT row_data ? 'h', row_data ? 'c', row_data ->> 'pos' FROM stream_changes('p53.user_types', 9, 9) WHERE _change_type = 'insert'$$, $$VALUES (false, true, '100')$$,
	'and are no part of later rows');
SELECT is((SELECT string_agg((row_data).c::text, ' ') FROM stream_changes(NULL::p53.user_types, 9, 9)), 'CiText CiText', 'which the typed form reads, too');

/*
 * Values that are stored as text mean to every reader what they meant when they were written
 */
CREATE TABLE p53.pg_am (a int);
CREATE TYPE p53.by_text AS (content xml, rel regclass, typ regtype, amount money, span interval, at timestamptz, d date);
CREATE TABLE p53.as_text (id int PRIMARY KEY, v p53.by_text, rels regclass[]);
INSERT INTO p53.as_text VALUES (1, ROW('a <b/>', 'pg_am', 'pg_am', '1,234.50', '-1 mons +2 days', '2024-02-03 04:05:06.7+05', '2024-02-03'), '{pg_am,p53.pg_am}');
CALL p53.track('p53.as_text');
CALL p53.odd_settings();
UPDATE p53.as_text SET id = 2;
SET search_path = p53, pg_catalog, public;		-- in which "pg_am" is another table
SELECT is_empty($$SELECT * FROM p53.wrong_typed('p53.as_text', 'id')$$, 'content as xml, names of relations and types, money, times');
SELECT is(replace(current_setting('search_path'), '"', '') || current_setting('xmloption'), 'p53, pg_catalog, publicdocument', 'the settings are left as they were');
CALL p53.usual_settings();

/*
 * Tables of odd shapes
 */
CREATE TABLE p53.no_columns ();
INSERT INTO p53.no_columns DEFAULT VALUES;
CALL p53.track('p53.no_columns');
BEGIN;
INSERT INTO p53.no_columns SELECT FROM generate_series(1, 3);
SELECT p53.note('p53.no_columns') \g /dev/null
COMMIT;
BEGIN;
DELETE FROM p53.no_columns WHERE ctid = '(0,1)';
SELECT p53.note('p53.no_columns') \g /dev/null
COMMIT;
SELECT is_empty($$SELECT * FROM p53.wrong('p53.no_columns')$$, 'a table without columns');
SELECT is((SELECT count(*) FILTER (WHERE _change_type = 'insert') - count(*) FILTER (WHERE _change_type = 'delete') FROM stream_changes(NULL::p53.no_columns)), 3::bigint, 'and its typed form');
ALTER TABLE p53.no_columns ADD a int DEFAULT 5;
BEGIN;
INSERT INTO p53.no_columns VALUES (6);
UPDATE p53.no_columns SET a = a;
SELECT p53.note('p53.no_columns') \g /dev/null
COMMIT;
SELECT results_eq($$SELECT old_row, new_row FROM stream_events('p53.no_columns', 3, 3) WHERE event = 'update'$$,
	$$VALUES ('{"a": 5}'::jsonb, '{"a": 5}'::jsonb), ('{"a": 5}', '{"a": 5}'), ('{"a": 5}', '{"a": 5}'), ('{"a": 6}', '{"a": 6}')$$, 'one that has got its first');

SELECT format('CREATE TABLE p53.widest (%s)', string_agg(format('c%s %s', i, CASE i % 4 WHEN 0 THEN 'int2' WHEN 1 THEN 'text' WHEN 2 THEN 'bool' ELSE 'p53.positive' END), ', ')) FROM generate_series(1, 1600) AS i \gexec
ALTER TABLE p53.widest ADD PRIMARY KEY (c4);
INSERT INTO p53.widest (c1, c4, c1600) VALUES ('base', 1, 1);
CALL p53.track('p53.widest');
BEGIN;
SELECT format('INSERT INTO p53.widest VALUES (%s)', string_agg(CASE i % 4 WHEN 0 THEN '2' WHEN 1 THEN quote_literal('t' || i % 10) WHEN 2 THEN 'true' ELSE '3' END, ', ')) FROM generate_series(1, 1600) AS i \gexec
UPDATE p53.widest SET c1600 = -1, c1597 = 'last';
SELECT p53.note('p53.widest') \g /dev/null
COMMIT;
SELECT is_empty($$SELECT * FROM p53.wrong('p53.widest')$$, '1600 columns');
SELECT is_empty($$SELECT * FROM p53.wrong_typed('p53.widest', 'c4')$$, 'typed');

-- "bit" without a length is bit(1) when it is written, but a query gives a column without any
CREATE TABLE p53.bits AS SELECT 1 AS id, B'' AS b, B'101' AS c, NULL::bit(3) AS fixed;
CALL p53.track('p53.bits');
BEGIN;
INSERT INTO p53.bits VALUES (2, B'1', B'', B'110'), (3, B'', B'0101', B'000');
UPDATE p53.bits SET fixed = B'111' WHERE id = 1;
SELECT p53.note('p53.bits') \g /dev/null
COMMIT;
SELECT is_empty($$SELECT * FROM p53.wrong('p53.bits')$$, 'bits, also none');
SELECT is_empty($$SELECT * FROM p53.wrong_typed('p53.bits', 'id')$$, 'typed');
-- arrays of other shapes, whose bounds are part of the value
CREATE TABLE p53.arrays (id int PRIMARY KEY, i int[], txt text[], m p53.mood[], d p53.positive[]);
INSERT INTO p53.arrays VALUES (1, '[-2:-1][5:6]={{1,NULL},{3,4}}', '[0:0][7:7]={{"a,b{}\"\\"}}', '[3:4]={sad,NULL}', '[9:9]={1}'), (2, '{}', '{""}', '{}', '{NULL}'), (3, '{NULL}', '{{{{x}}}}', NULL, '{}');
CALL p53.track('p53.arrays');
BEGIN;
UPDATE p53.arrays SET i[10] = 7 WHERE id = 2;
UPDATE p53.arrays SET id = id + 10, m = ARRAY[m, m] WHERE id = 1;
INSERT INTO p53.arrays VALUES (4, '[2147483640:2147483641]={1,2}', '{NULL,"NULL"}', '[-5:-5]={ok}', '[0:1]={1,2}');
SELECT p53.note('p53.arrays') \g /dev/null
COMMIT;
SELECT is_empty($$SELECT * FROM p53.wrong('p53.arrays')$$, 'arrays with odd bounds, empty ones, NULLs');
SELECT is_empty($$SELECT * FROM p53.wrong_typed('p53.arrays', 'id')$$, 'typed');

CREATE TABLE p53.odd (gone1 text, id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, gone2 int, v text, up text GENERATED ALWAYS AS (upper(v)) STORED,
	len int GENERATED ALWAYS AS (length(v) * 2) STORED, seq int GENERATED BY DEFAULT AS IDENTITY (START 100), gone3 numeric, "Größe ""q"".x" int, "😀" int DEFAULT 1);
INSERT INTO p53.odd (gone1, gone2, v, gone3) VALUES ('g', 1, 'a', 1.5), (NULL, 2, 'b', 2.5);
ALTER TABLE p53.odd DROP gone1;
CALL p53.track('p53.odd');
BEGIN;
INSERT INTO p53.odd (v, gone2) VALUES ('c', 3);
UPDATE p53.odd SET v = 'ä' WHERE id = 1;
SELECT p53.note('p53.odd') \g /dev/null
COMMIT;
BEGIN;
ALTER TABLE p53.odd DROP gone2;
UPDATE p53.odd SET v = v || v, "Größe ""q"".x" = 1;
SELECT p53.note('p53.odd') \g /dev/null
COMMIT;
BEGIN;
ALTER TABLE p53.odd DROP gone3, ADD late int DEFAULT 7, ADD late_text text DEFAULT 'fast default', ADD late_enum p53.mood DEFAULT 'ok';
UPDATE p53.odd SET seq = seq + 1, "😀" = id;
ALTER TABLE p53.odd ALTER late SET DEFAULT 8, ALTER late_text DROP DEFAULT;
INSERT INTO p53.odd (v) VALUES ('d');
UPDATE p53.odd SET id = DEFAULT WHERE v = 'd';
SELECT p53.note('p53.odd') \g /dev/null
COMMIT;
SELECT is_empty($$SELECT * FROM p53.wrong('p53.odd') WHERE version < 2$$, 'dropped, generated and identity columns, odd names');
SELECT is_empty($$SELECT * FROM p53.wrong_typed('p53.odd', 'id')$$, 'typed');
SELECT results_eq($$SELECT new_row::text FROM stream_events('p53.odd', 3, 3) WHERE event = 'insert'$$,
	$$SELECT (to_jsonb(o) || jsonb_build_object('id', 4))::text FROM p53.odd AS o WHERE v = 'd'$$, 'defaults that were added and changed in the same transaction');
SELECT results_eq($$SELECT DISTINCT old_row ->> 'late', old_row ->> 'late_text', old_row ->> 'late_enum' FROM stream_events('p53.odd', 3, 3) WHERE event = 'update'$$, $$VALUES ('7', 'fast default', 'ok'), ('8', NULL, 'ok')$$,
	'rows older than the column have its default of then');

SELECT stream_untrack(t) FROM unnest('{p53.everything,p53.toasted,p53.user_types,p53.as_text,p53.no_columns,p53.widest,p53.bits,p53.arrays,p53.odd}'::regclass[]) AS t \g /dev/null
SELECT * FROM finish();
DROP SCHEMA p53 CASCADE;
