# Row images, identities and keys.
use strict;
use warnings;

[
	{
		number => '1',
		title => 'a large value in an UPDATE of another column',
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, big text, n int);
ALTER TABLE t ALTER big SET STORAGE EXTERNAL;
INSERT INTO t VALUES (1, repeat('x',20000), 1);},
		steps => [ 'UPDATE t SET n = 2 WHERE id = 1', 'cut', 'UPDATE t SET n = 3 WHERE id = 1' ],
		expect => [
			[
				q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'n', row_data->>'big' = repeat('x',20000)), ', ')
				  FROM stream_changes('t', 1, compute_updates => true)},
				'1 update_preimage 1 t, 1 update_postimage 2 t, 2 update_preimage 2 t, 2 update_postimage 3 t',
				'the real value in all images' ],
			[ q{SELECT bool_and((row_data).big = repeat('x',20000)) FROM stream_changes(NULL::t)}, 't', 'typed too' ],
		],
	},
	{
		number => '1b',
		title => 'a large value kept through key changes, ON CONFLICT and several updates in a transaction',
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, big text, j jsonb, n int);
ALTER TABLE t ALTER big SET STORAGE EXTERNAL, ALTER j SET STORAGE EXTERNAL;
INSERT INTO t SELECT g, repeat('x', 9000 + g), jsonb_build_object('k', repeat('y', 7000 + g)), 0 FROM generate_series(1,4) g;},
		steps => [
			'UPDATE t SET id = 10 WHERE id = 1',
			q{BEGIN; UPDATE t SET n = 1 WHERE id = 2; UPDATE t SET big = repeat('z', 9000) WHERE id = 2; UPDATE t SET n = 2 WHERE id = 2; COMMIT},
			'cut',
			q{INSERT INTO t VALUES (3, 'no', '{}', 7) ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n},
			q{BEGIN; SAVEPOINT a; UPDATE t SET big = 'gone' WHERE id = 4; ROLLBACK TO a; UPDATE t SET n = 9 WHERE id = 4; COMMIT},
		],
		expect => [
			[
				q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id', row_data->>'n', length(row_data->>'big'), length(row_data->'j'->>'k')), ', ')
				  FROM stream_changes('t', 1, compute_updates => true)},
				'1 delete 1 0 9001 7001, 1 insert 10 0 9001 7001, 2 update_preimage 2 0 9002 7002, 2 update_postimage 2 2 9000 7002, '
				  . '3 update_preimage 3 0 9003 7003, 3 update_postimage 3 7 9003 7003, 4 update_preimage 4 0 9004 7004, 4 update_postimage 4 9 9004 7004' ],
		],
	},
	{
		number => '4',
		title => 'updates of large rows while the baseline is copied',
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, big text, n int);
ALTER TABLE t ALTER big SET STORAGE EXTERNAL;
INSERT INTO t SELECT g, repeat(md5(g::text),400), 0 FROM generate_series(1,2000) g;},
		track => [],
		fold => ['t'],
		steps => [
			q{SELECT stream_track('t')},
			[ B => 'UPDATE t SET n = n + 1 WHERE id % 7 = 0' ],
			'cut',
			[ B => 'UPDATE t SET n = n + 1 WHERE id % 7 = 0' ],
			'DELETE FROM t WHERE id % 70 = 0',
		],
		expect => [
			# which of the changes are in the baseline already is a matter of when its snapshot was taken
			[ q{SELECT count(*) FROM stream_changes('t') WHERE length(row_data->>'big') IS DISTINCT FROM 12800}, 0, 'the large value is in every image' ],
			[ q{SELECT count(*) FROM stream_changes('t', deduplication_mode => 'netChanges')}, 1972 ],
		],
	},
	{
		number => '5',
		title => 'a column set to NULL, and a large one not touched',
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, big text, n int);
ALTER TABLE t ALTER big SET STORAGE EXTERNAL;
INSERT INTO t VALUES (1, repeat('x',9000), 1), (2, repeat('y',9000), 1);},
		steps => [ 'UPDATE t SET big = NULL WHERE id = 1', 'UPDATE t SET n = 2 WHERE id = 2' ],
		expect => [
			[
				q{SELECT string_agg(concat_ws(' ', _change_type, row_data->>'id', coalesce(left(row_data->>'big', 1) || length(row_data->>'big'), 'NULL')), ', ')
				  FROM stream_changes('t', 1, compute_updates => true)},
				'update_preimage 1 x9000, update_postimage 1 NULL, update_preimage 2 y9000, update_postimage 2 y9000' ],
			[
				q{SELECT string_agg(concat_ws(' ', _change_type, row_data->>'id', coalesce(left(row_data->>'big', 1) || length(row_data->>'big'), 'NULL')), ', ')
				  FROM stream_changes('t', 1, compute_updates => true, deduplication_mode => 'netChanges')},
				'update_preimage 1 x9000, update_postimage 1 NULL, update_preimage 2 y9000, update_postimage 2 y9000', 'net changes say the same' ],
			[ q{SELECT bool_and(row_data ? 'big') FROM stream_changes('t')}, 't', 'the column is there, also when it is NULL' ],
		],
	},
	{
		number => '8',
		title => 'UPDATE and DELETE of a table without key',
		setup => q{CREATE TABLE t(a int, b text); INSERT INTO t VALUES (1,'x'),(2,'y');},
		steps => [ q{UPDATE t SET b = 'z' WHERE a = 1}, 'DELETE FROM t WHERE a = 2' ],
		expect => [
			[
				q{SELECT string_agg(concat_ws(' ', _commit_version, event, old_row, new_row), ', ') FROM stream_events('t', 1)},
				'1 update {"a": 1, "b": "x"} {"a": 1, "b": "z"}, 2 delete {"a": 2, "b": "y"}', 'neither is lost' ],
			[ q{SELECT relreplident FROM pg_class WHERE oid = 't'::regclass}, 'f', 'since the table was switched to full images' ],
			[ q{SELECT coalesce(cardinality(identity_columns), 0) = 0 FROM stream_tables WHERE table_name = 't'}, 't', 'no identity is claimed' ],
		],
	},
	{
		number => '10',
		title => 'equal rows in a table without key',
		setup => q{
CREATE TABLE t(a int, b text);
ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO t VALUES (1,'dup'),(1,'dup'),(1,'dup');},
		identity => 0,
		steps => [
			'DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t)',
			q{UPDATE t SET b = 'x' WHERE ctid = (SELECT min(ctid) FROM t)},
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, event), ', ') FROM stream_events('t', 1)}, '1 delete, 2 update' ],
			[
				q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'b'), ', ') FROM stream_changes('t', 1)},
				'1 delete dup, 2 delete dup, 2 insert x' ],
			[ q{SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM t}, '(1,dup) (1,x)', 'multiplicity is kept' ],
		],
		fails => [
			[ q{SELECT * FROM stream_changes('t', deduplication_mode => 'netChanges')}, '42P17', qr/INVALID_CHANGELOG_SCHEMA\.MISSING_ROW_ID/,
				'net changes are refused' ],
			[ q{SELECT * FROM stream_changes('t', compute_updates => true)}, '42P17', qr/INVALID_CHANGELOG_SCHEMA\.MISSING_ROW_ID/,
				'so are update images' ],
		],
	},
	{
		number => '13',
		title => 'the key identifies rows, though the replica identity is FULL',
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, v text, w float8);
ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO t VALUES (1,'a','NaN'),(2,NULL,0);},
		identity => 0,
		steps => [ q{UPDATE t SET v = 'b' WHERE id = 1}, 'DELETE FROM t WHERE id = 2' ],
		expect => [
			[ q{SELECT identity_columns FROM stream_tables WHERE table_name = 't'}, '{id}' ],
			[
				q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data), ', ') FROM stream_changes('t', 1, compute_updates => true)},
				'1 update_preimage {"v": "a", "w": "NaN", "id": 1}, 1 update_postimage {"v": "b", "w": "NaN", "id": 1}, 2 delete {"v": null, "w": 0, "id": 2}' ],
		],
	},
	{
		number => '15',
		title => 'the columns of the key, in its order',
		setup => q{
CREATE TABLE t(b text, a int, c int, PRIMARY KEY (c, a));
CREATE TABLE u(x int NOT NULL, y int NOT NULL, z int); CREATE UNIQUE INDEX u_yx ON u (y, x);},
		track => [ 't', q{stream_track('u', identity_columns => '{y,x}')} ],
		fold => [qw(t u)],
		steps => [ q{INSERT INTO t VALUES ('b', 1, 2); INSERT INTO u VALUES (1, 2, 3)}, q{UPDATE t SET b = 'c'; UPDATE u SET z = 4} ],
		expect => [
			[ q{SELECT table_name, identity_columns, relreplident FROM stream_tables, pg_class WHERE oid = table_name::regclass AND table_name IN ('t', 'u') ORDER BY 1},
				"t|{c,a}|f\nu|{y,x}|f", 'identity, and replica identity' ],
		],
	},
	{
		number => '17',
		title => 'UPDATE of the primary key',
		setup => q{CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (1,'a'),(2,'b'),(10,'j');},
		steps => [
			'UPDATE t SET id = id + 100 WHERE id < 10',
			'cut',
			'BEGIN; UPDATE t SET id = 11 WHERE id = 10; UPDATE t SET id = 12 WHERE id = 11; COMMIT',
		],
		expect => [
			[
				q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id', row_data->>'v'), ', ') FROM stream_changes('t', 1)},
				'1 delete 1 a, 1 insert 101 a, 1 delete 2 b, 1 insert 102 b, 2 delete 10 j, 2 insert 12 j',
				'the old key is deleted, the new one inserted, in one version' ],
			[
				q{SELECT string_agg(concat_ws(' ', event, old_row->>'id', new_row->>'id'), ', ') FROM stream_events('t', 2, 2)},
				'update 10 11, update 11 12', 'the key between is an event' ],
		],
	},
	{
		number => '17b',
		title => 'keys that are swapped, passed on and used again',
		setup => q{
CREATE TABLE t(id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v text);
INSERT INTO t SELECT g, 'v' || g FROM generate_series(1,6) g;},
		steps => [
			'UPDATE t SET id = 3 - id WHERE id IN (1, 2)',
			'UPDATE t SET id = id + 1 WHERE id >= 3',
			'cut',
			q{BEGIN; DELETE FROM t WHERE id = 4; INSERT INTO t VALUES (4, 'new'); COMMIT},
			q{BEGIN; UPDATE t SET id = 50 WHERE id = 5; UPDATE t SET id = 5 WHERE id = 50; COMMIT},
			q{BEGIN; INSERT INTO t VALUES (60, 'x'); UPDATE t SET id = 61 WHERE id = 60; DELETE FROM t WHERE id = 61; COMMIT},
		],
		expect => [
			[
				q{SELECT string_agg(concat_ws(' ', _change_type, row_data->>'id', row_data->>'v'), ', ' ORDER BY row_data->>'id', _change_type DESC)
				  FROM stream_changes('t', 1, 1, compute_updates => true)},
				'update_preimage 1 v1, update_postimage 1 v2, update_preimage 2 v2, update_postimage 2 v1', 'a swap is two updates' ],
			[
				q{SELECT string_agg(concat_ws(' ', _change_type, row_data->>'id', row_data->>'v'), ', ' ORDER BY row_data->>'id', _change_type DESC)
				  FROM stream_changes('t', 2, 2, compute_updates => true)},
				'delete 3 v3, update_preimage 4 v4, update_postimage 4 v3, update_preimage 5 v5, update_postimage 5 v4, '
				  . 'update_preimage 6 v6, update_postimage 6 v5, insert 7 v6', 'a shift' ],
			[
				q{SELECT string_agg(concat_ws(' ', _change_type, row_data->>'id', row_data->>'v'), ', ') FROM stream_changes('t', 3, compute_updates => true)},
				'update_preimage 4 v3, update_postimage 4 new', 'delete and insert is an update; there and back, and come and gone, nothing' ],
			[ q{SELECT stream_latest_version('t')}, 5, 'but versions' ],
		],
	},
	{
		number => '44',
		title => 'columns named like those of the result',
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, _change_type text, _commit_version int, _commit_timestamp timestamptz);
INSERT INTO t VALUES (1,'mine',7,now());
CREATE TABLE u(id int PRIMARY KEY, row_data text, event text, old_row int); INSERT INTO u VALUES (1, 'r', 'e', 5);},
		track => ['u'],
		steps => [
			{
				query => q{SELECT stream_track('t')}, fails => '55000', like => qr/_change_type/, name => 'such a table is refused, and the column named' },
			'ALTER TABLE t RENAME COLUMN _change_type TO a; ALTER TABLE t RENAME COLUMN _commit_version TO b',
			{
				query => q{SELECT stream_track('t')}, fails => '55000', like => qr/_commit_timestamp/, name => 'each of the three' },
			q{UPDATE u SET row_data = 's'},
		],
		expect => [
			[ q{SELECT string_agg((row_data).row_data || (row_data).event || (row_data).old_row, ' ') FROM stream_changes(NULL::u, 1)}, 're5 se5',
				'other names are free' ],
			[ q{SELECT relreplident FROM pg_class WHERE oid = 't'::regclass}, 'd', 'the refused table is as it was' ],
		],
	},
	{
		number => '45',
		title => 'stored generated columns',
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, a int, g int GENERATED ALWAYS AS (a * 2) STORED, u text GENERATED ALWAYS AS (upper('x' || id)) STORED);
INSERT INTO t(id,a) VALUES (1,5);},
		steps => [ 'UPDATE t SET a = 6', 'INSERT INTO t(id,a) VALUES (2,7)' ],
		expect => [
			[
				q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'a', row_data->>'g', row_data->>'u'), ', ')
				  FROM stream_changes('t', compute_updates => true)},
				'0 insert 5 10 X1, 1 update_preimage 5 10 X1, 1 update_postimage 6 12 X1, 2 insert 7 14 X2', 'in the baseline and in all images' ],
		],
	},
	{
		number => '59',
		title => 'INSERT ... ON CONFLICT',
		setup => q{CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (1,'a');},
		steps => [
			q{INSERT INTO t VALUES (1,'b'),(2,'c') ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v},
			q{INSERT INTO t VALUES (1,'zzz') ON CONFLICT DO NOTHING},
			'cut',
			q{INSERT INTO t VALUES (1,'zzz') ON CONFLICT (id) DO UPDATE SET v = 'd' WHERE t.v = 'never'},
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, event, old_row->>'v', new_row->>'v'), ', ') FROM stream_events('t', 1)},
				'1 update a b, 1 insert c', 'one update and one insert' ],
			[ q{SELECT stream_latest_version('t')}, 1, 'what does nothing makes no version' ],
		],
	},
	{
		number => '59b',
		title => 'MERGE, and triggers that change or refuse rows',
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, v int); INSERT INTO t VALUES (1,1),(2,2),(3,3);
CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN IF NEW.v = 13 THEN RETURN NULL; END IF; NEW.v := NEW.v * 10; RETURN NEW; END $$;
CREATE TRIGGER odd BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION odd();},
		steps => [
			q{MERGE INTO t USING (VALUES (1,5),(2,NULL),(4,4),(5,13)) AS s(id, v) ON t.id = s.id
			  WHEN MATCHED AND s.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v)},
			'UPDATE t SET v = 13 WHERE id = 1',
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, event, old_row->>'id', old_row->>'v', new_row->>'id', new_row->>'v'), ', ') FROM stream_events('t', 1)},
				'1 update 1 1 1 50, 1 delete 2 2, 1 insert 4 40', 'what was stored is logged' ],
		],
	},
	{
		number => '91',
		title => 'updates that change nothing',
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, v text, n numeric); ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO t VALUES (1,'a',1.0),(2,NULL,2);},
		identity => 0,
		steps => [ 'UPDATE t SET v = v', 'UPDATE t SET n = 1.00 WHERE id = 1' ],
		expect => [
			[
				q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id', row_data->>'n'), ', ')
				  FROM stream_changes('t', 1, deduplication_mode => 'none')},
				'1 delete 1 1.0, 1 insert 1 1.0, 1 delete 2 2, 1 insert 2 2, 2 delete 1 1.0, 2 insert 1 1.00', 'none: they are shown' ],
			[
				q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id', row_data->>'n'), ', ')
				  FROM stream_changes('t', 1, deduplication_mode => 'dropCarryovers')},
				'2 delete 1 1.0, 2 insert 1 1.00', 'dropCarryovers: without those in which no byte changed' ],
			[
				q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id', row_data->>'n'), ', ')
				  FROM stream_changes('t', 1, deduplication_mode => 'netChanges')},
				'2 delete 1 1.0, 2 insert 1 1.00', 'netChanges as well' ],
			[ q{SELECT count(*) FROM stream_changes('t', 1, 1, deduplication_mode => 'netChanges')}, 0 ],
			[ q{SELECT count(*), max(_commit_version) FROM stream_versions('t', 1)}, '2|2', 'versions are there all the same' ],
		],
	},
	{
		number => '162',
		title => 'old images of large and generated columns',
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, big text, small int, g int GENERATED ALWAYS AS (small * 2) STORED);
ALTER TABLE t ALTER big SET STORAGE EXTERNAL;
INSERT INTO t VALUES (1, repeat('x',5000), 1);},
		steps => [ 'UPDATE t SET small = 2', 'DELETE FROM t' ],
		expect => [
			[
				q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, length(row_data->>'big'), row_data->>'small', row_data->>'g'), ', ')
				  FROM stream_changes('t', 1, compute_updates => true)},
				'1 update_preimage 5000 1 2, 1 update_postimage 5000 2 4, 2 delete 5000 2 4' ],
			[ q{SELECT count(*) FROM stream_changes('t', deduplication_mode => 'netChanges')}, 0 ],
		],
	},
]
