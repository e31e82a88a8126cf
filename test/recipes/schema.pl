# DDL on tracked tables, and what can be tracked at all.
use strict;
use warnings;

[
	{
		number => '31',
		title => 'columns added, dropped and added again',
		setup => q{CREATE TABLE t(f1 int, f2 int, f3 int); ALTER TABLE t REPLICA IDENTITY FULL; INSERT INTO t VALUES (1,2,3);},
		identity => 0,
		fold => [ { table => 't', events => 0 } ],
		steps => [
			'ALTER TABLE t ADD COLUMN f4 int; INSERT INTO t VALUES (1,2,3,4)',
			'ALTER TABLE t DROP COLUMN f1;    INSERT INTO t VALUES (20,30,40)',
			q{ALTER TABLE t ADD COLUMN f1 text; INSERT INTO t VALUES (200,300,400,'new f1')},
		],
		expect => [
			[
				q{SELECT string_agg(_commit_version || ' ' || row_data, ', ') FROM stream_changes('t')},
				'0 {"f1": 1, "f2": 2, "f3": 3}, 1 {"f1": 1, "f2": 2, "f3": 3, "f4": 4}, 2 {"f2": 20, "f3": 30, "f4": 40}, '
				  . '3 {"f1": "new f1", "f2": 200, "f3": 300, "f4": 400}', 'each change in the shape of its time' ],
			[ q{SELECT string_agg(row_data::text, ' ') FROM stream_changes(NULL::t)}, '(2,3,,) (2,3,4,) (20,30,40,) (200,300,400,"new f1")',
				'typed: in the shape of today, the old f1 is not the new one' ],
			[ q{SELECT string_agg(_commit_version::text, ' ') FROM stream_events('t') WHERE event = 'schema change'}, '1 2 3' ],
		],
	},
	{
		number => '31b',
		title => 'columns with defaults, inside of transactions and rolled back',
		setup => q{CREATE TABLE t(id int PRIMARY KEY, a text, b int); INSERT INTO t SELECT g, 'a' || g, g FROM generate_series(1,3) g;},
		fold => [ { table => 't', events => 0 } ],
		steps => [
			q{BEGIN; UPDATE t SET b = 10 WHERE id = 1; ALTER TABLE t ADD COLUMN c int NOT NULL DEFAULT 7; UPDATE t SET b = 20 WHERE id = 2;
			  ALTER TABLE t DROP COLUMN a; INSERT INTO t VALUES (4, 4, 4); COMMIT},
			q{BEGIN; SAVEPOINT s; ALTER TABLE t ADD COLUMN x int DEFAULT 1; UPDATE t SET x = 2 WHERE id = 1; ROLLBACK TO s; UPDATE t SET b = 30 WHERE id = 3; COMMIT},
			'cut',
			q{BEGIN; ALTER TABLE t DROP COLUMN c; ROLLBACK; UPDATE t SET c = 8 WHERE id = 3},
			q{ALTER TABLE t ADD COLUMN a text DEFAULT 'fast'; UPDATE t SET b = 11 WHERE id = 1},
		],
		expect => [
			[ q{SELECT string_agg(row_data::text, ' ') FROM stream_changes('t', 1, 1) WHERE _change_type = 'insert'},
				'{"a": "a1", "b": 10, "id": 1} {"a": "a2", "b": 20, "c": 7, "id": 2} {"b": 4, "c": 4, "id": 4}' ],
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, row_data), ', ') FROM stream_changes('t', 2) WHERE _change_type = 'insert'},
				'2 {"b": 30, "c": 7, "id": 3}, 3 {"b": 30, "c": 8, "id": 3}, 4 {"a": "fast", "b": 11, "c": 7, "id": 1}' ],
			[ q{SELECT old_row->>'a' FROM stream_events('t', 4) WHERE event = 'update'}, 'fast', 'an old image has the default' ],
		],
	},
	{
		number => '34',
		title => 'ALTER COLUMN ... TYPE ... USING',
		setup => q{CREATE TABLE t(id int PRIMARY KEY, c int); INSERT INTO t VALUES (1,10),(2,20);},
		fold => [ { table => 't' } ],
		steps => [ 'ALTER TABLE t ALTER COLUMN c TYPE bigint USING c * 100', 'UPDATE t SET c = c + 1 WHERE id = 1' ],
		expect => [
			[ q{SELECT string_agg((row_data).c::text, ' ') FROM stream_changes(NULL::t, 0, 0)}, '10 20', 'the log before it is readable' ],
			[
				q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id', row_data->>'c'), ', ') FROM stream_changes('t', 1, compute_updates => true)},
				'1 update_preimage 1 10, 1 update_postimage 1 1000, 1 update_preimage 2 20, 1 update_postimage 2 2000, '
				  . '2 update_preimage 1 1000, 2 update_postimage 1 1001', 'the values that it changed are updates' ],
		],
	},
	{
		number => '36',
		title => 'RENAME COLUMN',
		setup => 'CREATE TABLE t(a int PRIMARY KEY, b int)',
		fold => [ { table => 't', events => 0 } ],
		steps => [ 'INSERT INTO t VALUES (1,2)', 'ALTER TABLE t RENAME COLUMN b TO new_b', 'INSERT INTO t VALUES (22,33)' ],
		expect => [
			[ q{SELECT string_agg((row_data).new_b::text, ' ') FROM stream_changes(NULL::t)}, '2 33', 'one column' ],
			[ q{SELECT string_agg(row_data::text, ' ') FROM stream_changes('t')}, '{"a": 1, "b": 2} {"a": 22, "new_b": 33}', 'under the name of its time' ],
			[ q{SELECT string_agg(concat_ws(' ', event, _commit_version), ', ') FROM stream_events('t')}, 'insert 1, schema change 2, insert 2', 'the log shows where' ],
		],
	},
	{
		number => '36b',
		title => 'columns that swap their names',
		setup => q{CREATE TABLE t(id int PRIMARY KEY, a text, b text); INSERT INTO t VALUES (1, 'a', 'b');},
		fold => [ { table => 't', events => 0 } ],
		steps => [
			'BEGIN; ALTER TABLE t RENAME a TO c; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME c TO b; COMMIT',
			q{UPDATE t SET a = a || '+'},
			'ALTER TABLE t RENAME id TO key; UPDATE t SET key = 2',
		],
		expect => [
			[ q{SELECT string_agg(row_data::text, ' ') FROM stream_changes(NULL::t)}, '(1,a,b) (1,a,b) (1,a,b+) (1,a,b+) (2,a,b+)' ],
			[ q{SELECT string_agg(row_data::text, ' ') FROM stream_changes('t', 1, 1)}, '{"a": "b", "b": "a", "id": 1} {"a": "b+", "b": "a", "id": 1}' ],
			[ q{SELECT identity_columns FROM stream_tables WHERE table_name = 't'}, '{key}', 'the identity goes by its new name' ],
		],
	},
	{
		number => '38',
		title => 'another table takes the name',
		setup => q{CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (1,'old');},
		fold => ['t_old'],
		steps => [
			q{CREATE TABLE t_new(id int PRIMARY KEY, v text); INSERT INTO t_new VALUES (2,'new')},
			'BEGIN; ALTER TABLE t RENAME TO t_old; ALTER TABLE t_new RENAME TO t; COMMIT',
			q{INSERT INTO t VALUES (3,'after'); INSERT INTO t_old VALUES (4,'old table')},
		],
		expect => [
			[ q{SELECT string_agg(row_data->>'v', ', ') FROM stream_changes('t_old')}, 'old, old table', 'the table is followed, not its name' ],
			[ q{SELECT table_name FROM stream_tables WHERE table_name IN ('t', 't_old')}, 't_old', 'and listed under its name of now' ],
		],
		fails => [
			[ q{SELECT * FROM stream_changes('t')}, '0A000', qr/CHANGE_DATA_CAPTURE_ON_RELATION/, 'the other one is not tracked' ],
			[ q{SELECT * FROM stream_changes(NULL::t)}, '0A000', qr/CHANGE_DATA_CAPTURE_ON_RELATION/ ],
		],
	},
	{
		number => '41',
		title => 'SET SCHEMA, and a name that needs quotes',
		setup => 'CREATE TABLE t(id int PRIMARY KEY); CREATE SCHEMA s3',
		fold => ['s3."T 2"'],
		steps => [
			'INSERT INTO t VALUES (1); ALTER TABLE t SET SCHEMA s3; INSERT INTO s3.t VALUES (2)',
			'ALTER TABLE s3.t RENAME TO "T 2"; INSERT INTO s3."T 2" VALUES (3)',
		],
		expect => [
			[ q{SELECT string_agg(row_data->>'id', ' ') FROM stream_changes('s3."T 2"')}, '1 2 3' ],
			[ q{SELECT string_agg(row_data->>'id', ' ') FROM stream_changes('s3."T 2"'::regclass)}, '1 2 3' ],
			[ q{SELECT string_agg((row_data).id::text, ' ') FROM stream_changes(NULL::s3."T 2")}, '1 2 3' ],
		],
	},
	{
		number => '43',
		title => 'the key goes away',
		setup => q{CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (1,'a');},
		fold => [ { table => 't', net => 0, updates => 0 } ],
		steps => [
			'ALTER TABLE t DROP CONSTRAINT t_pkey',
			# of the catalogs of now, hence also while capture is held
			{ query => q{SELECT identity_columns IS NULL FROM stream_tables WHERE table_name = 't'}, is => 't',
				name => 'the view says so at once' },
			q{UPDATE t SET v = 'b'},
			'cut',
			'ALTER TABLE t ADD PRIMARY KEY (v)',
			q{UPDATE t SET v = 'c'},
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, event, old_row->>'v', new_row->>'v'), ', ') FROM stream_events('t', 1)},
				'1 schema change, 1 update a b, 2 update b c', 'updates without key are complete, and where it went is marked' ],
			[ q{SELECT identity_columns IS NULL FROM stream_tables WHERE table_name = 't'}, 't', 'the view tells that the identity is lost' ],
			[ q{SELECT count(*) FROM stream_changes('t', 0, 0, deduplication_mode => 'netChanges')}, 1, 'versions before it can be netted' ],
		],
		fails => [
			[ q{SELECT * FROM stream_changes('t', deduplication_mode => 'netChanges')}, '42P17', qr/MISSING_ROW_ID/ ],
			[ q{SELECT * FROM stream_changes('t', 1, 1, compute_updates => true)}, '42P17', qr/MISSING_ROW_ID/ ],
		],
	},
	{
		number => '43b',
		title => 'a column of the key goes away, or the index of identity_columns',
		setup => q{
CREATE TABLE t(a int, b int, c int, PRIMARY KEY (a, b)); INSERT INTO t VALUES (1,1,1);
CREATE TABLE u(a int PRIMARY KEY, b int); CREATE UNIQUE INDEX u_b ON u (b); INSERT INTO u VALUES (1,1);
CREATE TABLE w(a int PRIMARY KEY, b int); INSERT INTO w VALUES (1,1);},
		track => [ 't', q{stream_track('u', identity_columns => '{b}')}, 'w' ],
		fold => [ { table => 't', events => 0, net => 0, updates => 0 }, { table => 'u', net => 0, updates => 0 }, 'w' ],
		steps => [
			'ALTER TABLE t DROP COLUMN b; UPDATE t SET c = 2',
			'DROP INDEX u_b; UPDATE u SET a = 2',
			'cut',
			# the index is another one afterwards, the identity is not
			'REINDEX TABLE w; REINDEX TABLE CONCURRENTLY w; ALTER TABLE w RENAME CONSTRAINT w_pkey TO w_key; UPDATE w SET b = 2',
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', table_name, coalesce(identity_columns::text, 'lost')), ', ' ORDER BY table_name) FROM stream_tables WHERE table_name IN ('t', 'u', 'w')},
				't lost, u lost, w {a}' ],
			[ q{SELECT string_agg(_change_type, ' ') FROM stream_changes('w', 1, compute_updates => true)}, 'update_preimage update_postimage' ],
		],
		fails => [
			[ q{SELECT * FROM stream_changes('t', deduplication_mode => 'netChanges')}, '42P17', qr/MISSING_ROW_ID/ ],
			[ q{SELECT * FROM stream_changes('u', compute_updates => true)}, '42P17', qr/MISSING_ROW_ID/ ],
		],
	},
	{
		number => '146',
		title => 'relations that cannot be tracked',
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, x text);
CREATE UNLOGGED TABLE u(id int PRIMARY KEY);
CREATE VIEW v AS SELECT 1 AS id;
CREATE MATERIALIZED VIEW mv AS SELECT 1 AS id;
CREATE SEQUENCE sq2;
CREATE TYPE comp AS (a int);
CREATE FOREIGN DATA WRAPPER none; CREATE SERVER nowhere FOREIGN DATA WRAPPER none; CREATE FOREIGN TABLE ft (id int) SERVER nowhere;},
		steps => [
			{ query => q{SELECT stream_track('u')}, fails => '0A000', like => qr/unlogged/i },
			{ query => q{CREATE TEMP TABLE tt(id int PRIMARY KEY); SELECT stream_track('tt')}, fails => '0A000', like => qr/temporary/i },
			{ query => q{SELECT stream_track('v')}, fails => '42809', like => qr/view/ },
			{ query => q{SELECT stream_track('mv')}, fails => '42809', like => qr/materialized view/ },
			{ query => q{SELECT stream_track('sq2')}, fails => '42809', like => qr/sequence/ },
			{ query => q{SELECT stream_track('t_pkey')}, fails => '42809', like => qr/index/ },
			'cut',
			{ query => q{SELECT stream_track('ft')}, fails => '42809', like => qr/foreign table/ },
			{ query => q{SELECT stream_track('comp')}, fails => '42809', like => qr/composite type/ },
			{ query => q{SELECT stream_track('pg_class')}, fails => '0A000', like => qr/system catalog/i },
			{ query => q{SELECT stream_track('streamcdc.blocks')}, fails => '0A000', like => qr/streamcdc/ },
			{ query => q{SELECT stream_track(reltoastrelid) FROM pg_class WHERE oid = 't'::regclass}, fails => '42809', like => qr/TOAST/i },
			{ query => q{SELECT stream_track('no_such')}, fails => '42P01', like => qr/no_such/ },
			{ query => q{SELECT stream_track(4294967295)}, fails => '42P01', like => qr/does not exist/ },
			{ query => q{SELECT stream_track('t')}, fails => '42710', like => qr/already/ },
			'INSERT INTO u VALUES (1); INSERT INTO t VALUES (1)',
		],
		expect => [
			[ q{SELECT string_agg(table_name, ' ') FROM stream_tables WHERE table_name IN ('t', 'u', 'v', 'mv', 'sq2', 'ft')}, 't', 'nothing of them is tracked' ],
			[ q{SELECT relreplident FROM pg_class WHERE oid = 'u'::regclass}, 'd', 'and they are as they were' ],
		],
	},
	{
		number => '148',
		title => 'materialized views over a tracked table',
		setup => 'CREATE TABLE t(id int PRIMARY KEY); INSERT INTO t VALUES (1)',
		steps => [
			'CREATE MATERIALIZED VIEW mv AS SELECT * FROM t',
			'DROP MATERIALIZED VIEW mv; CREATE MATERIALIZED VIEW mv AS SELECT * FROM t; CREATE TABLE copied AS SELECT * FROM t; SELECT * INTO copied2 FROM t',
			'INSERT INTO t VALUES (2)',
			'cut',
			'CREATE UNIQUE INDEX ON mv (id); REFRESH MATERIALIZED VIEW mv; INSERT INTO t VALUES (3); REFRESH MATERIALIZED VIEW CONCURRENTLY mv',
			{ query => q{SELECT stream_track('mv')}, fails => '42809', like => qr/materialized view/ },
		],
		expect => [
			[ q{SELECT string_agg(row_data->>'id', ' ') FROM stream_changes('t')}, '1 2 3' ],
			[ q{SELECT count(*) FROM stream_tables WHERE table_name IN ('mv', 'copied', 'copied2')}, 0 ],
		],
	},
	{
		number => '150',
		title => 'inheritance children with columns of their own',
		setup => q{
CREATE TABLE par(id int PRIMARY KEY, v text); INSERT INTO par VALUES (0, 'parent');
CREATE TABLE c1(extra1 int) INHERITS (par); CREATE TABLE c2(extra2 text, extra3 date) INHERITS (par); INSERT INTO c2 VALUES (9, 'child');},
		track => [qw(par c1)],
		steps => [
			q{INSERT INTO c1 VALUES (1,'a',11); INSERT INTO c2 VALUES (2,'b','x','2024-01-01')},
			'cut',
			q{INSERT INTO c1 VALUES (3,'c',33); INSERT INTO par VALUES (4,'d')},
			q{UPDATE par SET v = v || '!'},
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _change_type, row_data), ', ') FROM stream_changes('par')},
				'insert {"v": "parent", "id": 0}, insert {"v": "d", "id": 4}, delete {"v": "parent", "id": 0}, insert {"v": "parent!", "id": 0}, '
				  . 'delete {"v": "d", "id": 4}, insert {"v": "d!", "id": 4}', 'a parent is its own rows only' ],
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, row_data), ', ') FROM stream_changes('c1') WHERE _change_type = 'insert'},
				'1 {"v": "a", "id": 1, "extra1": 11}, 2 {"v": "c", "id": 3, "extra1": 33}, 3 {"v": "a!", "id": 1, "extra1": 11}, 3 {"v": "c!", "id": 3, "extra1": 33}',
				'a child has all its columns' ],
		],
	},
	{
		number => '152',
		title => 'rewrites are no phantom rows',
		setup => q{CREATE TABLE t(id int PRIMARY KEY, v int, w text); INSERT INTO t SELECT g, g, 'x' FROM generate_series(1,1000) g;},
		fold => [ { table => 't', events => 0 } ],
		steps => [
			'ALTER TABLE t ALTER v TYPE bigint',
			'VACUUM FULL t; CLUSTER t USING t_pkey',
			'cut',
			'ALTER TABLE t ADD COLUMN r float8 DEFAULT random()',
			'ALTER TABLE t SET TABLESPACE pg_default',
			q{UPDATE t SET w = 'y' WHERE id = 1},
		],
		expect => [
			[ q{SELECT count(*) FROM stream_events('t', 1) WHERE event NOT IN ('update', 'schema change')}, 0, 'no inserts, no deletes, no gap' ],
			[ q{SELECT count(*) FROM stream_changes('t', stream_latest_version('t'), compute_updates => true)}, 2, 'the one update is the last version' ],
			[ q{SELECT count(*) FROM stream_changes(NULL::t, compute_updates => true) WHERE _change_type = 'update_postimage' AND (row_data).r IS NOT NULL AND (row_data).w = 'x'}, 1000,
				'a default that differs from row to row is an update of each' ],
			[ q{SELECT count(*) FROM stream_tables WHERE table_name LIKE '%pg_temp%'}, 0 ],
		],
	},
]
