# More stories of the same kinds.
use strict;
use warnings;

[
	{
		number => '1c',
		title => 'large values of every storage and compression, in arrays and composites',
		setup => q{
CREATE TYPE pair AS (a text, b int);
CREATE TABLE t(id int PRIMARY KEY, plain text, lz text, ext text, arr text[], c pair, n int);
ALTER TABLE t ALTER lz SET COMPRESSION lz4, ALTER ext SET STORAGE EXTERNAL, ALTER arr SET STORAGE EXTERNAL, ALTER c SET STORAGE EXTERNAL;
INSERT INTO t SELECT g, repeat('p', 200000), repeat('l' || g, 100000), repeat('e', 30000), ARRAY[repeat('x', 5000), NULL, repeat('y', 5000)], ROW(repeat('c', 9000), g)::pair, 0
FROM generate_series(1, 3) g;},
		steps => [
			'UPDATE t SET n = 1 WHERE id = 1',
			q{UPDATE t SET arr[2] = 'z', c.b = 7 WHERE id = 2},
			'cut',
			q{ALTER TABLE t ALTER ext SET STORAGE MAIN, ALTER lz SET COMPRESSION pglz; UPDATE t SET ext = ext || '!' WHERE id = 3; UPDATE t SET n = n WHERE id = 1},
			'DELETE FROM t WHERE id = 2',
		],
		expect => [
			[ q{SELECT count(*) FROM stream_changes('t', 4, 4)}, 0, 'a row that is written again as it is, is a carry-over' ],
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, length((row_data).plain), length((row_data).ext), length((row_data).arr[3]), (row_data).arr[2], (row_data).c.b), ', ')
				FROM stream_changes(NULL::t, 2, compute_updates => true)},
				'2 update_preimage 200000 30000 5000 2, 2 update_postimage 200000 30000 5000 z 7, 3 update_preimage 200000 30000 5000 3, '
				  . '3 update_postimage 200000 30001 5000 3, 5 delete 200000 30000 5000 z 7' ],
		],
	},
	{
		number => '8b',
		title => 'rows without key that are NULL, equal, or large',
		setup => q{
CREATE TABLE t(a int, b text, big text); ALTER TABLE t ALTER big SET STORAGE EXTERNAL;
INSERT INTO t VALUES (NULL, NULL, NULL), (NULL, NULL, NULL), (1, 'x', repeat('b', 9000)), (1, 'x', repeat('b', 9000));},
		steps => [
			'DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t)',
			'UPDATE t SET a = 2 WHERE ctid = (SELECT max(ctid) FROM t)',
			'cut',
			'UPDATE t SET b = b; UPDATE t SET b = NULL',
			'BEGIN; INSERT INTO t VALUES (5); DELETE FROM t WHERE a = 5; COMMIT',
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, event), ', ') FROM stream_events('t', 5)}, '5 insert, 5 delete', 'without identity nothing is netted' ],
			[ q{SELECT count(*) FROM stream_changes('t', 5)}, 2 ],
			[ q{SELECT count(*) FROM stream_changes('t', 3, 3)}, 0, 'what did not change a byte is a carry-over all the same' ],
		],
	},
	{
		number => '13b',
		title => 'replica identities of before, and what is left of them after',
		setup => q{
CREATE TABLE n(a int, b int); ALTER TABLE n REPLICA IDENTITY NOTHING; INSERT INTO n VALUES (1, 1);
CREATE TABLE i(a int NOT NULL, b int); CREATE UNIQUE INDEX i_a ON i (a); ALTER TABLE i REPLICA IDENTITY USING INDEX i_a; INSERT INTO i VALUES (1, 1);
CREATE TABLE f(a int PRIMARY KEY); ALTER TABLE f REPLICA IDENTITY FULL;},
		identity => 0,
		track => [qw(n i f)],
		unheld => 1,
		steps => [
			'UPDATE n SET b = 2; UPDATE i SET b = 2; INSERT INTO f VALUES (1)',
			'cut',
			'DELETE FROM n; UPDATE i SET a = 5',
		],
		expect => [
			[ q{SELECT string_agg(event || old_row, ' ') FROM stream_events('n', 1)}, 'update{"a": 1, "b": 1} delete{"a": 1, "b": 2}' ],
			[ q{SELECT string_agg(concat_ws(' ', table_name, identity_columns), ', ' ORDER BY table_name) FROM stream_tables WHERE table_name IN ('n', 'i', 'f')}, 'f {a}, i {a}, n {}' ],
			[ q{SELECT stream_untrack('n'), stream_untrack('i'), stream_untrack('f'); SELECT string_agg(relname::text || relreplident::text, ' ' ORDER BY relname) FROM pg_class WHERE oid IN ('n'::regclass, 'i'::regclass, 'f'::regclass)},
				"||\nff ii nn", 'untracked, they have it back' ],
		],
	},
	{
		number => '17c',
		title => 'keys that change by cascade',
		setup => q{
CREATE TABLE p(id int PRIMARY KEY); CREATE TABLE c(p int REFERENCES p ON UPDATE CASCADE ON DELETE CASCADE, k int, v text, PRIMARY KEY (p, k));
CREATE TABLE s(id int PRIMARY KEY, p int REFERENCES p ON DELETE SET NULL ON UPDATE CASCADE);
INSERT INTO p VALUES (1), (2); INSERT INTO c VALUES (1, 1, 'a'), (1, 2, 'b'), (2, 1, 'c'); INSERT INTO s VALUES (1, 1), (2, 2);},
		track => [qw(p c s)],
		steps => [ 'UPDATE p SET id = 10 WHERE id = 1', 'DELETE FROM p WHERE id = 2' ],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'p', row_data->>'k'), ', ') FROM stream_changes('c', 1)},
				'1 delete 1 1, 1 insert 10 1, 1 delete 1 2, 1 insert 10 2, 2 delete 2 1' ],
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id', coalesce(row_data->>'p', 'NULL')), ', ') FROM stream_changes('s', 1, compute_updates => true)},
				'1 update_preimage 1 1, 1 update_postimage 1 10, 2 update_preimage 2 2, 2 update_postimage 2 NULL' ],
			[ q{SELECT count(DISTINCT v.xid) FROM (SELECT xid FROM stream_versions('p', 1, 1) UNION ALL SELECT xid FROM stream_versions('c', 1, 1) UNION ALL SELECT xid FROM stream_versions('s', 1, 1)) v}, 1,
				'one transaction' ],
		],
	},
	{
		number => '26c',
		title => 'TRUNCATE that is forbidden, or recorded as a gap',
		setup => 'CREATE TABLE f(id int PRIMARY KEY); CREATE TABLE g(id int PRIMARY KEY); CREATE TABLE d(id int PRIMARY KEY); INSERT INTO f VALUES (1); INSERT INTO g VALUES (1); INSERT INTO d VALUES (1)',
		track => [ q{stream_track('f', on_truncate => 'forbid')}, q{stream_track('g', on_truncate => 'gap')}, 'd' ],
		fold => [qw(f d)],
		steps => [
			{ query => 'TRUNCATE f', fails => '55000', like => qr/f/, name => 'forbidden' },
			{ query => 'TRUNCATE d, f', fails => '55000', like => qr/f/, name => 'with another as well' },
			'TRUNCATE g',
			'cut',
			'INSERT INTO g VALUES (2)',
			q{SELECT stream_alter('f', on_truncate => 'delete')},
			'TRUNCATE f, d',
		],
		expect => [
			[ q{SELECT string_agg(_change_type, ' ') FROM stream_changes('f', 1)}, 'delete', 'allowed, it is recorded' ],
			[ q{SELECT string_agg(_change_type || (row_data->>'id'), ' ') FROM stream_changes('g', 2)}, 'insert2', 'what comes after a gap is readable' ],
			[ q{SELECT status FROM stream_tables WHERE table_name = 'g'}, 'gap' ],
			[ q{SELECT count(*) FROM stream_events('g') WHERE event IN ('truncate', 'gap')}, 1, 'it is marked' ],
		],
		fails => [ [ q{SELECT * FROM stream_changes('g')}, '55000', qr/version 1\b/, 'reads across it fail' ] ],
	},
	{
		number => '34b',
		title => 'type changes with and without rewrite, read typed',
		setup => q{CREATE TABLE t(id int PRIMARY KEY, a varchar(10), b numeric, c timestamp); INSERT INTO t VALUES (1, 'x', 7, '2024-01-01 12:00');},
		fold => [ { table => 't', events => 0 } ],
		steps => [
			'ALTER TABLE t ALTER a TYPE varchar(100); ALTER TABLE t ALTER a TYPE text; INSERT INTO t VALUES (2, repeat($$y$$, 50), 8, now())',
			q{BEGIN; UPDATE t SET b = 70 WHERE id = 1; ALTER TABLE t ALTER b TYPE int USING b::int; UPDATE t SET b = b + 1; COMMIT},
			'cut',
			q{ALTER TABLE t ALTER c TYPE date; ALTER TABLE t ADD d serial},
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', row_data->>'a', row_data->>'b'), ', ') FROM stream_changes('t', 0, 0)}, 'x 7', 'as it was' ],
			[ q{SELECT string_agg(row_data->>'b', ' ') FROM stream_changes('t', 2, 2, compute_updates => true) WHERE _change_type = 'update_postimage'}, '9 71', 'netted across the rewrite' ],
			[ q{SELECT count(*) FROM stream_events('t') WHERE event = 'gap'}, 0 ],
		],
	},
	{
		number => '36c',
		title => 'names that change inside of the transaction that writes',
		setup => q{CREATE TABLE t(id int PRIMARY KEY, v int); CREATE TABLE u(id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1); INSERT INTO u VALUES (2, 2);},
		track => [qw(t u)],
		fold => [ { table => 't', events => 0 }, { table => 'u', events => 0 } ],
		steps => [
			'BEGIN; UPDATE t SET v = 10; ALTER TABLE t RENAME TO x; ALTER TABLE u RENAME TO t; ALTER TABLE x RENAME TO u; UPDATE t SET v = 20; ALTER TABLE u RENAME v TO w; UPDATE u SET w = 11; COMMIT',
			'INSERT INTO t VALUES (3, 3); INSERT INTO u VALUES (4, 4)',
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, row_data), ', ') FROM stream_changes(NULL::u) WHERE _change_type = 'insert'}, '0 (1,1), 1 (1,11), 2 (4,4)',
				'streams follow the tables' ],
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, row_data), ', ') FROM stream_changes(NULL::t) WHERE _change_type = 'insert'}, '0 (2,2), 1 (2,20), 2 (3,3)' ],
			[ q{SELECT string_agg(new_row::text, ' ') FROM stream_events('u', 1, 1) WHERE event = 'update'}, '{"v": 10, "id": 1} {"w": 11, "id": 1}' ],
		],
	},
	{
		number => '41b',
		title => 'dropped, made again, and tracked again under the same name',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v text)',
		steps => [
			q{INSERT INTO t VALUES (1, 'first')},
			q{DROP TABLE t; CREATE TABLE t(v int, id text PRIMARY KEY); INSERT INTO t VALUES (7, 'before')},
			q{SELECT stream_track('t')},
			'cut',
			q{INSERT INTO t VALUES (8, 'second')},
		],
		expect => [
			[ q{SELECT string_agg(row_data->>'id', ' ' ORDER BY (row_data->>'v')::int) FROM stream_changes('t')}, 'before second', 'the name means the table that is there' ],
			[ q{SELECT string_agg(row_data->>'v', ' ') FROM stream_tables, stream_changes(table_name, 1) WHERE status = 'dropped' AND table_name ~ '^t \(dropped \d+\)$'}, 'first',
				'the old log goes by its number' ],
		],
	},
	{
		number => '44b',
		title => 'reserved names that come later',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v text)',
		fold => [ { table => 't', events => 0 } ],
		steps => [ q{ALTER TABLE t ADD COLUMN _change_type text DEFAULT 'mine'}, q{INSERT INTO t VALUES (1, 'a', 'yours'); ALTER TABLE t RENAME v TO _commit_version; UPDATE t SET _commit_version = 'b'} ],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _change_type, _commit_version, (row_data)._change_type, (row_data)._commit_version), ', ') FROM stream_changes(NULL::t)},
				'insert 1 yours a, delete 2 yours a, insert 2 yours b', 'DDL is not refused, and nothing is mixed up' ],
			[ q{SELECT row_data->>'_change_type', row_data->>'_commit_version' FROM stream_changes('t', 2) WHERE _change_type = 'insert'}, 'yours|b' ],
		],
	},
	{
		number => '45b',
		title => 'identity columns, defaults, and a generated column that becomes an ordinary one',
		setup => q{CREATE TABLE t(id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int DEFAULT 3, g int GENERATED ALWAYS AS (a + 1) STORED); INSERT INTO t DEFAULT VALUES;},
		steps => [ 'INSERT INTO t(a) VALUES (5); INSERT INTO t OVERRIDING SYSTEM VALUE VALUES (100)', 'ALTER TABLE t ALTER g DROP EXPRESSION; UPDATE t SET g = 0 WHERE id = 1' ],
		expect => [
			[ q{SELECT string_agg(row_data::text, ' ') FROM stream_changes(NULL::t) WHERE _change_type = 'insert'}, '(1,3,4) (2,5,6) (100,3,4) (1,3,0)' ],
		],
	},
	{
		number => '54b',
		title => 'catalogs that change all the time',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v int); INSERT INTO t VALUES (0, 0)',
		steps => [
			q{DO $$ BEGIN FOR i IN 1..30 LOOP EXECUTE format('CREATE TABLE tmp_%s(i int)', i); INSERT INTO t VALUES (i, i); EXECUTE format('ALTER TABLE tmp_%s ADD j int', i); COMMIT; END LOOP; END $$},
			'cut',
			q{DO $$ BEGIN FOR i IN 1..30 LOOP EXECUTE format('DROP TABLE tmp_%s', i); EXECUTE format('CREATE INDEX i%s ON t (v)', i); UPDATE t SET v = -v WHERE id = i; COMMIT; EXECUTE format('DROP INDEX i%s', i); ANALYZE t; COMMIT; END LOOP; END $$},
			'VACUUM t; REINDEX TABLE t; ALTER TABLE t SET (fillfactor = 50); COMMENT ON TABLE t IS $$x$$; GRANT SELECT ON t TO PUBLIC; CREATE STATISTICS st ON id, v FROM t; DROP STATISTICS st',
		],
		expect => [ [ q{SELECT count(*), sum(inserts), sum(updates) FROM stream_versions('t', 1)}, '60|30|30', 'a version for each transaction that writes rows, and for no other' ],
			[ q{SELECT count(*) FROM stream_events('t') WHERE event = 'schema change'}, 0, 'an index is no change of columns' ] ],
	},
	{
		number => '57b',
		title => 'hundreds of subtransactions, nested and mixed',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v int)',
		steps => [
			q{DO $$ BEGIN FOR i IN 1..300 LOOP BEGIN INSERT INTO t VALUES (i, 0); UPDATE t SET v = 1 WHERE id = i; IF i % 3 = 0 THEN RAISE division_by_zero; END IF; EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$},
			'cut',
			'BEGIN; SAVEPOINT a; INSERT INTO t VALUES (1001, 1); SAVEPOINT b; UPDATE t SET v = 2 WHERE id = 1001; ROLLBACK TO b; SAVEPOINT c; UPDATE t SET v = 3 WHERE id = 1001; RELEASE a; COMMIT',
			'BEGIN; SAVEPOINT a; ALTER TABLE t ADD x int; INSERT INTO t VALUES (1002, 1, 1); ROLLBACK TO a; INSERT INTO t VALUES (1003, 1); COMMIT',
			'BEGIN; SAVEPOINT a; INSERT INTO t VALUES (1004, 1); ROLLBACK',
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, inserts, updates), ', ') FROM stream_versions('t', 1)}, '1 200 200, 2 1 1, 3 1 0' ],
			[ q{SELECT string_agg(row_data->>'v', ' ') FROM stream_changes('t', 2, 2)}, 3 ],
		],
	},
	{
		number => '59c',
		title => 'rows that triggers and rules write, and updates that do not find their row',
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, v int); CREATE TABLE log(id serial, what text); INSERT INTO t VALUES (1, 1);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log(what) VALUES (TG_OP); IF TG_OP = 'UPDATE' AND NEW.v = 5 THEN UPDATE t SET v = 6 WHERE id = NEW.id; END IF; RETURN NULL; END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION note();
CREATE RULE kept AS ON DELETE TO t WHERE OLD.id = 1 DO INSTEAD UPDATE t SET v = -1 WHERE id = OLD.id;},
		track => [qw(t log)],
		steps => [ 'UPDATE t SET v = 5', 'DELETE FROM t', 'cut', 'UPDATE t SET v = 9 WHERE false; DELETE FROM t WHERE id = 99; INSERT INTO t SELECT 3, 3 WHERE false' ],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, old_row->>'v', new_row->>'v'), ', ') FROM stream_events('t', 1)}, '1 1 5, 1 5 6, 2 6 -1' ],
			[ q{SELECT string_agg(row_data->>'what', ' ') FROM stream_changes('log')}, 'UPDATE UPDATE UPDATE' ],
			[ q{SELECT count(*) FROM stream_changes('t', 1, 1, compute_updates => true)}, 2, 'netted' ],
		],
	},
	{
		number => '66b',
		title => 'transactions that overlap, with tables tracked and untracked while they run',
		setup => 'CREATE TABLE t(id int PRIMARY KEY); CREATE TABLE u(id int PRIMARY KEY)',
		fold => [qw(t u)],
		steps => [
			[ A => 'BEGIN; INSERT INTO t VALUES (1); INSERT INTO u VALUES (100)' ],
			[ B => 'BEGIN; INSERT INTO t VALUES (2)' ],
			[ B => 'SAVEPOINT s; INSERT INTO t VALUES (3)' ],
			[ A => 'COMMIT' ],
			# waits for nobody: A is over
			q{SELECT stream_track('u')},
			[ B => 'ROLLBACK TO s; INSERT INTO u VALUES (4); COMMIT' ],
			'cut',
			'INSERT INTO t VALUES (5); INSERT INTO u VALUES (5)',
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, row_data->>'id'), ', ') FROM stream_changes('t')}, '1 1, 2 2, 3 5' ],
			[ q{SELECT count(*) FROM stream_changes('u')}, 3 ],
		],
	},
	{
		number => '83b',
		title => 'domains, ranges, arrays of arrays, and record-like types',
		setup => q{
CREATE DOMAIN pos AS int CHECK (VALUE > 0); CREATE DOMAIN posses AS pos[]; CREATE TYPE comp AS (p pos, r int4range, c int[]); CREATE TYPE floats AS RANGE (subtype = float8);
CREATE TABLE t(id pos PRIMARY KEY, l posses, m int[][], c comp, cs comp[], r floats, mr int4multirange, oids regclass, ts tsvector, b bit varying, i interval, e inet);},
		fold => [ { table => 't', events => 0 } ],
		steps => [
			q{INSERT INTO t VALUES (1, '{1,2}', '[0:1][2:3]={{1,2},{3,NULL}}', ROW(1, '[1,5)', '{}'), ARRAY[ROW(2, 'empty', NULL)::comp, NULL], '[1.5,)', '{[1,2),[5,7)}', 't', 'a:1B b', B'0101', '1 mon -2 days 03:00:00.000001', '10.0.0.1/8')},
			'UPDATE t SET c.p = 2, cs[1].c = $${7}$$',
			'cut',
			q{ALTER DOMAIN pos DROP CONSTRAINT pos_check; UPDATE t SET c.p = -1; ALTER TABLE t RENAME TO t2; ALTER TABLE t2 RENAME TO t},
		],
		expect => [
			[ q{SELECT count(*) FROM stream_changes(NULL::t) c JOIN t ON c.row_data::text = t::text}, 1, 'byte for byte' ],
			[ q{SELECT string_agg(concat_ws(' ', row_data->'c'->>'p', row_data->'cs'->0->'c', row_data->>'oids'), ', ') FROM stream_changes('t') WHERE _change_type = 'insert'},
				'1 null n83b.t, 2 [7] n83b.t, -1 [7] n83b.t', 'jsonb' ],
		],
	},
	{
		number => '94b',
		title => 'long names, names with dots, and names in other scripts',
		setup => q{CREATE TABLE "a.b"("c.d" int PRIMARY KEY, "ключ" text, "SELECT" int); CREATE TABLE "таблица_с_очень_длинным_имене"("ñ" int PRIMARY KEY); CREATE SCHEMA "x.y"; CREATE TABLE "x.y"."a.b"(i int)},
		track => [ '"a.b"', '"таблица_с_очень_длинным_имене"', '"x.y"."a.b"' ],
		steps => [ q{INSERT INTO "a.b" VALUES (1, 'значение', 2); INSERT INTO "x.y"."a.b" VALUES (5)}, q{INSERT INTO "таблица_с_очень_длинным_имене" VALUES (3)} ],
		expect => [
			[ q{SELECT row_data FROM stream_changes('"a.b"')}, '{"c.d": 1, "SELECT": 2, "ключ": "значение"}' ],
			[ q{SELECT row_data->>'i' FROM stream_changes('"x.y"."a.b"')}, 5 ],
			[ q{SELECT (row_data)."ñ" FROM stream_changes(NULL::"таблица_с_очень_длинным_имене")}, 3 ],
		],
		fails => [ [ q{SELECT * FROM stream_changes('a.b')}, '42P01', qr/a\.b/, 'without quotes it is another name' ], [ q{SELECT * FROM stream_changes('')}, '42602', qr/./, 'no name' ] ],
	},
	{
		number => '138b',
		title => 'columns and rights that are gone',
		roles => [qw(recipe_owner recipe_reader)],
		setup => q{CREATE TABLE t(id int PRIMARY KEY, secret text); ALTER TABLE t OWNER TO recipe_owner; GRANT SELECT ON t TO recipe_reader; INSERT INTO t VALUES (1, 'hidden');
CREATE TABLE d(id int PRIMARY KEY); ALTER TABLE d OWNER TO recipe_owner; GRANT SELECT ON d TO recipe_reader; CREATE TABLE keep(id int PRIMARY KEY);},
		fold => [ { table => 't', events => 0 } ],
		track => [qw(t d keep)],
		steps => [ q{INSERT INTO t VALUES (2, 'hidden'); INSERT INTO d VALUES (1)}, 'ALTER TABLE t DROP COLUMN secret; DROP TABLE d' ],
		expect => [
			[ q{SET ROLE recipe_owner; SELECT string_agg(row_data->>'secret', ' ') FROM stream_changes('t')}, 'hidden hidden', 'the owner sees a column that was dropped' ],
			[ q{SET ROLE recipe_reader; SELECT string_agg(row_data::text, ' ') FROM stream_changes('t')}, '{"id": 1} {"id": 2}', 'others do not' ],
			[ q{SET ROLE recipe_reader; SELECT string_agg(new_row::text, ' ') FROM stream_events('t')}, '{"id": 1} {"id": 2}', 'nor as events' ],
			[ q{SET ROLE recipe_owner; SELECT count(*) FROM stream_changes('d')}, 1, 'a dropped table is read by its last owner' ],
		],
		fails => [ [ q{SET ROLE recipe_reader; SELECT * FROM stream_changes('d')}, '42501', qr/last owner/, 'and by nobody else' ] ],
	},
	{
		number => '146b',
		title => 'SET UNLOGGED, and back',
		setup => 'CREATE TABLE t(id int PRIMARY KEY); INSERT INTO t VALUES (1)',
		fold => [],
		steps => [ 'INSERT INTO t VALUES (2); ALTER TABLE t SET UNLOGGED; INSERT INTO t VALUES (3)', 'ALTER TABLE t SET LOGGED; INSERT INTO t VALUES (4)' ],
		expect => [
			[ q{SELECT status FROM stream_tables WHERE table_name = 't'}, 'gap', 'is a gap' ],
			[ q{SELECT string_agg(row_data->>'id', ' ') FROM stream_changes('t', 0, 1)}, '1 2', 'before it all is readable' ],
		],
		fails => [ [ q{SELECT * FROM stream_changes('t')}, '55000', qr/gap|unlogged/i, 'across it nothing is' ] ],
	},
	{
		number => '150b',
		title => 'tables that become children, and cease to be',
		setup => 'CREATE TABLE par(id int, v text); CREATE TABLE c(v text, extra int, id int)',
		track => [qw(par c)],
		steps => [
			q{INSERT INTO par VALUES (1, 'p'); INSERT INTO c VALUES ('c', 1, 2)},
			q{ALTER TABLE c INHERIT par; UPDATE par SET v = v || '1'; ALTER TABLE par ADD COLUMN later int DEFAULT 5},
			'cut',
			q{UPDATE par SET v = v || '2'; ALTER TABLE c NO INHERIT par; DELETE FROM par},
		],
		fold => [ { table => 'par', events => 0 }, { table => 'c', events => 0 } ],
		expect => [
			[ q{SELECT string_agg(row_data::text, ' ') FROM stream_changes(NULL::par)}, '(1,p,5) (1,p,5) (1,p1,5) (1,p1,5) (1,p12,5) (1,p12,5)' ],
			[ q{SELECT string_agg(row_data::text, ' ') FROM stream_changes(NULL::c)}, '(c,1,2,5) (c,1,2,5) (c1,1,2,5) (c1,1,2,5) (c12,1,2,5)' ],
		],
	},
]
