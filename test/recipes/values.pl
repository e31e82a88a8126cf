# Values of all kinds of types, and names of all kinds.
use strict;
use warnings;

# the rows of the log and those of the table, as text, are the same
sub same_text
{
	my ($columns) = @_;
	my $list = join(" || '/' || ", map { "coalesce($_, 'NULL')" } @$columns);
	return "SELECT (SELECT string_agg($list, ',' ORDER BY (x).id) FROM (SELECT (row_data).* FROM stream_changes(NULL::t, deduplication_mode => 'netChanges')) x)"
	  . " = (SELECT string_agg($list, ',' ORDER BY id) FROM t x)";
}

[
	{
		number => '73',
		title => 'timestamps and dates far away',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, ts timestamp, tz timestamptz, d date)',
		steps => [
			q{INSERT INTO t VALUES (1,'294276-12-31 23:59:59.999999','294276-12-31 00:00+00','5874897-12-31'),
                     (2,'4713-01-01 00:00 BC','4713-01-01 00:00+00 BC','4713-01-01 BC'),
                     (3,'0001-01-01','0001-12-31 BC','0001-01-01'), (4, 'infinity', '-infinity', 'infinity'), (5, '-infinity', 'infinity', '-infinity')},
			q{UPDATE t SET id = id + 10},
		],
		expect => [
			[ q{SELECT count(*) FROM stream_changes(NULL::t, deduplication_mode => 'netChanges') AS c JOIN t ON (c.row_data).id = t.id
				WHERE ((c.row_data).ts, (c.row_data).tz, (c.row_data).d) = (t.ts, t.tz, t.d)}, 5, 'equal' ],
			[ q{SET timezone = 'UTC'; SELECT count(*) FROM stream_changes('t', deduplication_mode => 'netChanges') AS c JOIN t ON to_jsonb(t) = c.row_data}, 5,
				'also as jsonb' ],
			[ q{SET datestyle = 'German'; SET timezone = 'Asia/Tokyo'; SELECT string_agg(row_data->>'tz', ' ') FROM stream_changes('t', 1, 1) WHERE row_data->>'id' IN ('1', '4')},
				'294276-12-31T00:00:00+00:00 -infinity', 'which the session does not change' ],
		],
	},
	{
		number => '76',
		title => 'NaN and infinity',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, x numeric, y numeric(10,2), z float8, f float4)',
		# JSON has no minus zero
		fold => [ { table => 't', events => 0 } ],
		steps => [
			q{INSERT INTO t VALUES (1,'NaN','NaN','NaN','NaN'),(2,'Infinity',NULL,'Infinity','-Infinity'),(3,'-Infinity',0,'-Infinity','0'), (4, 0, 0, '-0', '-0')},
			q{UPDATE t SET x = 'NaN' WHERE id = 1; DELETE FROM t WHERE id = 2},
			'cut',
			q{UPDATE t SET z = '0' WHERE id = 4},
		],
		expect => [
			[ q{SELECT string_agg(row_data::text, ' ') FROM stream_changes(NULL::t, 1, 1)},
				'(1,NaN,NaN,NaN,NaN) (2,Infinity,,Infinity,-Infinity) (3,-Infinity,0.00,-Infinity,0) (4,0,0.00,-0,-0)' ],
			[ q{SELECT count(*) FROM stream_changes('t', 2, 2)}, 0, 'NaN set to NaN is a carry-over' ],
			[ q{SELECT string_agg(_change_type || (row_data).z, ' ') FROM stream_changes(NULL::t, 4)}, 'delete-0 insert0', 'minus zero set to zero is not' ],
		],
	},
	{
		number => '76b',
		title => 'NaN, NULL and zeros in the row identity',
		setup => q{
CREATE TABLE t(k float8 PRIMARY KEY, v int); INSERT INTO t VALUES ('NaN', 1), ('0', 1);
CREATE TABLE n(k numeric, v int, UNIQUE NULLS NOT DISTINCT (k)); INSERT INTO n VALUES (1.0, 1), (NULL, 1);},
		track => [ 't', q{stream_track('n', identity_columns => '{k}')} ],
		fold => [ { table => 't', events => 0 }, 'n' ],
		steps => [
			q{UPDATE t SET v = 2 WHERE k = 'NaN'; UPDATE t SET k = '-0', v = 2 WHERE k = 0},
			'UPDATE n SET k = 1.000, v = 2 WHERE k = 1; UPDATE n SET v = 2 WHERE k IS NULL',
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _change_type, (row_data).k, (row_data).v), ', ') FROM stream_changes(NULL::t, 1, compute_updates => true)},
				'update_preimage NaN 1, update_postimage NaN 2, update_preimage 0 1, update_postimage -0 2' ],
			[ q{SELECT string_agg(concat_ws(' ', _change_type, coalesce((row_data).k::text, 'NULL'), (row_data).v), ', ') FROM stream_changes(NULL::n, 1, compute_updates => true)},
				'update_preimage 1.0 1, update_postimage 1.000 2, update_preimage NULL 1, update_postimage NULL 2', 'equality is that of the type' ],
		],
	},
	{
		number => '78',
		title => 'numbers keep all their digits',
		setup => 'CREATE TABLE t(id bigint PRIMARY KEY, n numeric, f float8, r real)',
		steps => [
			q{INSERT INTO t VALUES (9223372036854775807, 12345678901234567890123456789.000000000100, float8 '0.1' + float8 '0.2', 16777217),
                     (2129020, 1e-300, 5e-324, 1.17549435e-38), (-9223372036854775808, 1e1000, 1.7976931348623157e308, 3.4e38)},
			'SET extra_float_digits = 0; UPDATE t SET n = n WHERE id = 2129020; UPDATE t SET r = r WHERE id < 0',
		],
		expect => [
			[ q{SELECT count(*) FROM stream_changes(NULL::t, 1, 1) AS c JOIN t ON (c.row_data).id = t.id
				WHERE (c.row_data).n = t.n AND (c.row_data).n::text = t.n::text AND (c.row_data).f = t.f AND (c.row_data).r = t.r}, 3 ],
			[ q{SET extra_float_digits = -15; SELECT count(*) FROM stream_changes(NULL::t, 1, 1) AS c JOIN t ON (c.row_data).id = t.id
				WHERE (c.row_data).n = t.n AND (c.row_data).f = t.f AND (c.row_data).r = t.r}, 3, 'whatever the reader has set' ],
			[ q{SET extra_float_digits = -15; SELECT row_data->>'f', row_data->>'n', row_data->>'id' FROM stream_changes('t', 1, 1) LIMIT 1},
				'0.30000000000000004|12345678901234567890123456789.000000000100|9223372036854775807', 'also as jsonb' ],
		],
	},
	{
		number => '79',
		title => 'json that jsonb refuses, and what jsonb would lose',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, j json, b jsonb)',
		fold => [ { table => 't', events => 0 } ],
		steps => [
			q{INSERT INTO t VALUES (1, '{"a":"x\u0000y"}', '{"a":1}'), (2, '{"k":1, "k":2,   "z":1.00}', '{"z":1.00}'), (3, 'null', 'null'), (4, NULL, NULL)},
			q{UPDATE t SET b = '{"a":12345678901234567890.123456789}' WHERE id = 1},
			q{INSERT INTO t VALUES (5, ' { "a" : [ 1 ,2] }', '{}')},
		],
		expect => [
			[ same_text([ '(x).j::text', '(x).b::text' ]), 't', 'byte for byte' ],
			[ q{SELECT (row_data).j IS NULL, (row_data).b IS NULL, (row_data).j::text FROM stream_changes(NULL::t) WHERE (row_data).id IN (3, 4) ORDER BY (row_data).id},
				"f|f|null\nt|t|", 'the null of JSON is not NULL' ],
			[ q{SELECT (row_data).b FROM stream_changes(NULL::t, 2) WHERE _change_type = 'insert' AND (row_data).id = 1}, '{"a": 12345678901234567890.123456789}' ],
			[ q{SELECT row_data->'j'->'a' FROM stream_changes('t', 3)}, '[1, 2]', 'versions without it are read as jsonb' ],
		],
		# to_jsonb(row) does the same
		fails => [ [ q{SELECT * FROM stream_changes('t', 1, 1)}, '22P05', qr/\\u0000|NULL::/, 'the jsonb form of what jsonb cannot hold is an error' ] ],
	},
	{
		number => '81',
		title => 'types without labels or definition elsewhere',
		setup => q{
CREATE TYPE empty_e AS ENUM (); CREATE TYPE shell_t; CREATE DOMAIN empty_d AS empty_e; CREATE TYPE empty_c AS ();
CREATE TABLE t(id int PRIMARY KEY); CREATE TABLE u(e empty_e, d empty_d, c empty_c, a empty_e[]); CREATE TABLE nothing();},
		track => [qw(t u nothing)],
		steps => [
			'INSERT INTO t VALUES (1)',
			q{INSERT INTO u VALUES (NULL, NULL, ROW(), '{}'); INSERT INTO nothing DEFAULT VALUES; INSERT INTO nothing DEFAULT VALUES},
			'cut',
			q{ALTER TYPE empty_e ADD VALUE 'now'},
			q{INSERT INTO u VALUES ('now', 'now', NULL, '{now}'); DELETE FROM nothing WHERE ctid = (SELECT min(ctid) FROM nothing)},
		],
		expect => [
			[ q{SELECT count(*) FROM stream_changes('t')}, 1 ],
			[ q{SELECT string_agg((row_data).e::text || (row_data).d || (row_data).a[1], '') FROM stream_changes(NULL::u)}, 'nownownow' ],
			[ q{SELECT count(*) FROM stream_events('nothing')}, 3, 'a table without columns has rows too' ],
		],
	},
	{
		number => '81b',
		title => 'an enum whose labels change',
		setup => q{CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE t(id int PRIMARY KEY, m mood, a mood[]); INSERT INTO t VALUES (1, 'sad', '{sad}');},
		fold => [ { table => 't', events => 0 } ],
		steps => [
			q{ALTER TYPE mood ADD VALUE 'happy' BEFORE 'ok'},
			q{UPDATE t SET m = 'happy'},
			'cut',
			q{ALTER TYPE mood RENAME TO temper; INSERT INTO t VALUES (2, 'ok', '{ok,happy}')},
		],
		expect => [
			[ q{SELECT string_agg(row_data->>'m', ' ') FROM stream_changes('t')}, 'sad sad happy ok' ],
			[ q{SELECT count(*) FROM stream_changes(NULL::t) WHERE (row_data).m > 'sad'}, 2, 'typed' ],
		],
	},
	{
		number => '81c',
		title => 'an enum label that was renamed',
		setup => q{CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE t(id int PRIMARY KEY, m mood); INSERT INTO t VALUES (1, 'ok');},
		fold => [ { table => 't', events => 0, changes => 0, updates => 0, net => 0 } ],
		steps => [
			q{INSERT INTO t VALUES (2, 'sad')},
			q{ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'; INSERT INTO t VALUES (3, 'blue')},
		],
		expect => [ [ q{SELECT string_agg(row_data->>'m', ' ') FROM stream_changes('t')}, 'ok sad blue', 'jsonb shows the label of that time' ] ],
		fails => [ [ q{SELECT * FROM stream_changes(NULL::t)}, '22P02', qr/version 1\b/, 'typed, that is an error naming the version' ] ],
	},
	{
		number => '83',
		title => 'composite types, and one that gets an attribute',
		setup => 'CREATE TYPE addr AS (street text, zip text, geo point); CREATE TABLE t(id int PRIMARY KEY, a addr, l addr[])',
		fold => [ { table => 't', events => 0 } ],
		steps => [
			q{INSERT INTO t VALUES (1, ROW('a "b", c','1',point(1,2)), ARRAY[ROW('x',NULL,NULL)::addr])},
			'ALTER TYPE addr ADD ATTRIBUTE country text CASCADE',
			q{UPDATE t SET a.zip = '2'},
			'cut',
			q{UPDATE t SET a.country = 'NZ', l[2] = ROW('y','5',NULL,'FR')},
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, (row_data).a.zip, coalesce((row_data).a.country, 'NULL'), (row_data).a.street, (row_data).a.geo), ', ')
				FROM stream_changes(NULL::t) WHERE _change_type = 'insert'},
				'1 1 NULL a "b", c (1,2), 2 2 NULL a "b", c (1,2), 3 2 NZ a "b", c (1,2)', 'typed' ],
			[ q{SELECT row_data->'a' FROM stream_changes('t', 1, 1)}, '{"geo": "(1,2)", "zip": "1", "street": "a \"b\", c"}', 'jsonb: as it was' ],
			[ q{SELECT row_data->'l'->0->>'street', (row_data->'a') ? 'country' FROM stream_changes('t', 3) WHERE _change_type = 'insert'}, 'x|t' ],
		],
	},
	{
		number => '83c',
		title => 'attributes that are added, dropped and renamed; nested, and of a table\'s row type',
		setup => q{
CREATE TYPE inner_t AS (a int, b text); CREATE TYPE outer_t AS (i inner_t, l inner_t[], n numeric); CREATE TYPE third_t AS (p int); CREATE TABLE other(x int, y text);
CREATE TABLE t(id int PRIMARY KEY, o outer_t, r other, s third_t);
INSERT INTO t VALUES (1, ROW(ROW(1, 'q "x", (y)'), ARRAY[ROW(2, 'l'), NULL]::inner_t[], 1.50), ROW(7, 'seven'), ROW(3));},
		fold => [ { table => 't', events => 0 } ],
		steps => [
			q{ALTER TABLE other RENAME y TO z; UPDATE t SET r.z = 'eight'},
			q{ALTER TYPE third_t ADD ATTRIBUTE q int CASCADE; UPDATE t SET s.q = 5},
			'cut',
			'ALTER TYPE inner_t DROP ATTRIBUTE a CASCADE; ALTER TYPE third_t ADD ATTRIBUTE w int[] CASCADE; UPDATE t SET id = 2',
		],
		expect => [
			[
				q{SELECT string_agg(concat_ws(' ', _commit_version, (row_data).o.i.b, (row_data).o.l[1].b, (row_data).o.n, (row_data).r.x, (row_data).r.z, (row_data).s), ' | ')
				  FROM stream_changes(NULL::t) WHERE _change_type = 'insert'},
				'0 q "x", (y) l 1.50 7 seven (3,,) | 1 q "x", (y) l 1.50 7 eight (3,,) | 2 q "x", (y) l 1.50 7 eight (3,5,) | 3 q "x", (y) l 1.50 7 eight (3,5,)' ],
			[ q{SELECT row_data->'s', row_data->'o'->'i', row_data->'r' FROM stream_changes('t', 0, 0)}, '{"p": 3}|{"a": 1, "b": "q \\"x\\", (y)"}|{"x": 7, "y": "seven"}',
				'jsonb: as it was' ],
		],
	},
	{
		number => '83d',
		title => 'an attribute that is renamed while others come and go',
		setup => q{CREATE TYPE pair AS (a int, b int); CREATE TABLE t(id int PRIMARY KEY, p pair); INSERT INTO t VALUES (1, ROW(1, 2));},
		fold => [ { table => 't', events => 0 } ],
		steps => [ 'ALTER TYPE pair RENAME ATTRIBUTE a TO x CASCADE; ALTER TYPE pair ADD ATTRIBUTE c int CASCADE; UPDATE t SET p = ROW(5, 6, 7)', 'INSERT INTO t VALUES (2, ROW(8, 9, 10))' ],
		expect => [
			[ q{SELECT row_data FROM stream_changes(NULL::t, 0, 0)}, '(1,"(1,2,)")', 'places tell which is which' ],
			[ q{SELECT string_agg(row_data::text, ' ') FROM stream_changes(NULL::t, 2)}, '(2,"(8,9,10)")' ],
			[ q{SELECT row_data->'p' FROM stream_changes('t', 0, 0)}, '{"a": 1, "b": 2}', 'jsonb: as it was' ],
		],
	},
	{
		number => '85',
		title => 'bytea, whatever bytea_output is',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, b bytea)',
		steps => [
			q{SET bytea_output = 'escape';
			INSERT INTO t VALUES (1, '\x00ff5c27'), (2, ''), (3, NULL), (4, (SELECT string_agg(set_byte('\x00',0,g),'' ORDER BY g) FROM generate_series(0,255) g))},
			q{SET bytea_output = 'escape'; UPDATE t SET id = id + 10},
		],
		expect => [
			map {
				(   [
						"SET bytea_output = '$_'; SELECT count(*) FROM stream_changes(NULL::t, 2) AS c JOIN t ON (c.row_data).id = t.id WHERE md5((c.row_data).b) IS NOT DISTINCT FROM md5(t.b)",
						4, "bytea_output = $_: the same bytes" ],
					[ "SET bytea_output = '$_'; SELECT row_data->>'b' FROM stream_changes('t', 1, 1) LIMIT 1", '\x00ff5c27', "bytea_output = $_: jsonb has the one form" ])
			} qw(escape hex)
		],
	},
	{
		number => '87',
		title => 'types of extensions, and one that is dropped',
		setup => q{CREATE EXTENSION citext; CREATE EXTENSION hstore; CREATE EXTENSION ltree; CREATE TABLE t(id citext PRIMARY KEY, h hstore, l ltree, hs hstore[])},
		fold => [ { table => 't', events => 0 } ],
		steps => [
			q{INSERT INTO t VALUES ('Abc','a=>1, b=>NULL','top.x', ARRAY['k=>v'::hstore])},
			q{UPDATE t SET h = h || 'c=>3' WHERE id = 'ABC'},
			{ query => q{SELECT string_agg(concat_ws(' ', _change_type, (row_data).h->'a', (row_data).h->'c'), ', ') FROM stream_changes(NULL::t, 2, compute_updates => true)},
				is => 'update_preimage 1, update_postimage 1 3', name => 'typed' },
			q{UPDATE t SET id = 'aBC', l = 'top.y'},
			'cut',
			'DROP EXTENSION hstore CASCADE; INSERT INTO t VALUES (1)',
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, (row_data).id, (row_data).l), ', ') FROM stream_changes(NULL::t, compute_updates => true)},
				'1 insert Abc top.x, 2 update_preimage Abc top.x, 2 update_postimage Abc top.x, 3 update_preimage Abc top.x, 3 update_postimage aBC top.y, 4 insert 1',
				'the key is compared as citext does' ],
			[ q{SELECT row_data->>'id', row_data->'h'->>'c', row_data->'hs'->0->>'k' FROM stream_changes('t', 2, 2) WHERE _change_type = 'insert'}, 'Abc|3|v',
				'values of a type that is gone are there, as they were' ],
		],
	},
	{
		number => '87b',
		title => 'the type of the key is dropped with its extension',
		setup => 'CREATE EXTENSION seg; CREATE TABLE t(id seg PRIMARY KEY, v int); CREATE TABLE u(id seg PRIMARY KEY, v int)',
		track => [qw(t u)],
		fold => [],
		steps => [
			q{INSERT INTO t VALUES ('1 .. 2', 1); UPDATE t SET v = 2; INSERT INTO u VALUES ('1 .. 2', 1); UPDATE u SET id = '2 .. 3'},
			'cut',
			'DROP TABLE u; DROP EXTENSION seg CASCADE; INSERT INTO t VALUES (3)',
		],
		expect => [
			[ q{SELECT string_agg(row_data::text, ' ') FROM stream_changes('t', deduplication_mode => 'none')},
				'{"v": 1, "id": "1 .. 2"} {"v": 1, "id": "1 .. 2"} {"v": 2, "id": "1 .. 2"} {"v": 3}' ],
			[ q{SELECT string_agg(row_data::text, ' ') FROM stream_changes('u')}, '{"v": 1, "id": "1 .. 2"} {"v": 1, "id": "1 .. 2"} {"v": 1, "id": "2 .. 3"}', 'of a dropped table too' ],
			[ q{SELECT status FROM stream_tables WHERE table_name = 't'}, 'streaming' ],
		],
	},
	{
		number => '89',
		title => 'types without equality',
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, j json, p point, x xml, g polygon); ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO t VALUES (1,'{"a":1}','(1,1)','<a/>','((0,0),(1,1),(1,0))');
CREATE TABLE u(j json, p point); INSERT INTO u VALUES ('1', '(1,2)'), ('1', '(1,2)');},
		identity => 0,
		track => [qw(t u)],
		fold => [ { table => 't', events => 0 }, { table => 'u', events => 0 } ],
		steps => [
			'UPDATE t SET id = 1; UPDATE u SET p = p',
			q{UPDATE t SET j = '{"a": 1}'; UPDATE u SET j = ' 1' WHERE ctid = (SELECT min(ctid) FROM u)},
			'DELETE FROM t',
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, (row_data).j), ', ') FROM stream_changes(NULL::t, 1, deduplication_mode => 'dropCarryovers')},
				'2 delete {"a":1}, 2 insert {"a": 1}, 3 delete {"a": 1}', 'bytes are compared' ],
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, (row_data).j), ', ') FROM stream_changes(NULL::u, 1)},
				'2 delete 1, 2 insert  1', 'also in a table without key' ],
		],
	},
	{
		number => '96',
		title => 'names with quotes, and worse',
		setup => q{CREATE SCHEMA "oz'an"; CREATE TABLE "oz'an"."a""b\c; drop table x"(id int PRIMARY KEY, "q'q" text); CREATE TABLE x(i int)},
		track => [ q{"oz'an"."a""b\c; drop table x"} ],
		steps => [
			q{INSERT INTO "oz'an"."a""b\c; drop table x" VALUES (1,'v')},
			q{ALTER TABLE "oz'an"."a""b\c; drop table x" RENAME COLUMN "q'q" TO "x"";'\"},
			'cut',
			q{UPDATE "oz'an"."a""b\c; drop table x" SET "x"";'\" = 'w'},
		],
		fold => [ { table => q{"oz'an"."a""b\c; drop table x"}, events => 0 } ],
		expect => [
			[ q{SELECT string_agg(row_data::text, ' ') FROM stream_changes('"oz''an"."a""b\c; drop table x"')},
				q[{"id": 1, "q'q": "v"} {"id": 1, "x\";'\\\\": "v"} {"id": 1, "x\";'\\\\": "w"}] ],
			[ q{SELECT to_regclass('x') IS NOT NULL}, 't', 'x is still there' ],
			[ q{SELECT stream_untrack('"oz''an"."a""b\c; drop table x"'); SELECT count(*) FROM stream_tables WHERE table_name ~ 'drop table'}, "\n0", 'and untracked' ],
		],
	},
	{
		number => '97',
		title => 'as many columns as a table can have',
		setup => q{
DO $$ BEGIN EXECUTE (SELECT format('CREATE TABLE w(%s)', 'id int PRIMARY KEY, ' || string_agg('c'||g||' smallint', ', ')) FROM generate_series(1,1599) g); END $$;
CREATE TABLE d(id int PRIMARY KEY, v int);
DO $$ BEGIN FOR g IN 1..300 LOOP EXECUTE format('ALTER TABLE d ADD x%s int', g); EXECUTE format('ALTER TABLE d DROP x%s', g); END LOOP; END $$;},
		track => [qw(w d)],
		fold => [ 'w', { table => 'd', events => 0 } ],
		steps => [ 'INSERT INTO w(id, c1599) VALUES (1, 7); INSERT INTO d VALUES (1,2)', 'UPDATE w SET c1 = 1; ALTER TABLE d ADD y int DEFAULT 3; UPDATE d SET v = 4' ],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, (row_data).id, coalesce((row_data).c1, -1), (row_data).c1599), ', ') FROM stream_changes(NULL::w) WHERE _change_type = 'insert'},
				'1 1 -1 7, 2 1 1 7' ],
			[ q{SELECT row_data->>'id', row_data->>'c1', row_data->>'c1599' FROM stream_changes('w', 2) WHERE _change_type = 'insert'}, '1|1|7' ],
			[ q{SELECT string_agg(row_data::text, ' ') FROM stream_changes(NULL::d)}, '(1,2,3) (1,2,3) (1,4,3)' ],
		],
	},
	{
		number => '99',
		title => 'rows that fill a page',
		setup => q{
DO $$ BEGIN EXECUTE (SELECT format('CREATE TABLE w(id int PRIMARY KEY, %s)', string_agg('c'||g||' float8', ', ')) FROM generate_series(1,1000) g); END $$;},
		track => ['w'],
		steps => [
			q{DO $$ BEGIN EXECUTE (SELECT format('INSERT INTO w VALUES (1, %s)', string_agg((g+0.5)::text, ', ')) FROM generate_series(1,1000) g); END $$},
			'UPDATE w SET c1 = 0',
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, (row_data).c1, (row_data).c1000), ', ') FROM stream_changes(NULL::w) WHERE _change_type = 'insert'},
				'1 1.5 1000.5, 2 0 1000.5' ],
		],
	},
]
