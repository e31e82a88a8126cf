# Partitioned tables.
use strict;
use warnings;

[
	{
		number => '19',
		title => 'ATTACH, DETACH and TRUNCATE of partitions',
		setup => q{
CREATE TABLE p(id int, d date, PRIMARY KEY (id,d)) PARTITION BY RANGE (d);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
INSERT INTO p VALUES (1,'2024-05-05');},
		track => ['p'],
		steps => [
			q{CREATE TABLE p2(LIKE p INCLUDING ALL); INSERT INTO p2 VALUES (2,'2025-05-05')},
			q{ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')},
			'cut',
			q{ALTER TABLE p DETACH PARTITION p1; INSERT INTO p1 VALUES (5,'2024-06-06')},
			'TRUNCATE p2',
			q{INSERT INTO p VALUES (3,'2025-01-01')},
			'DROP TABLE p2',
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id'), ', ') FROM stream_changes('p')},
				'0 insert 1, 1 insert 2, 2 delete 1, 3 delete 2, 4 insert 3, 5 delete 3' ],
		],
	},
	{
		number => '20',
		title => 'full images in every partition',
		setup => q{
CREATE TABLE p(id int PRIMARY KEY, v text) PARTITION BY LIST (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
ALTER TABLE p REPLICA IDENTITY FULL;
INSERT INTO p VALUES (1,'a');},
		identity => 0,
		track => ['p'],
		steps => [
			q{UPDATE p SET v = 'b'},
			'cut',
			q{CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2); INSERT INTO p VALUES (2,'x'); UPDATE p SET v = v || 'y' WHERE id = 2; DELETE FROM p WHERE id = 2},
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id', row_data->>'v'), ', ') FROM stream_changes('p', 1, compute_updates => true)},
				'1 update_preimage 1 a, 1 update_postimage 1 b, 2 insert 2 x, 3 update_preimage 2 x, 3 update_postimage 2 xy, 4 delete 2 xy' ],
			[ q{SELECT string_agg(relreplident, '' ORDER BY relname) FROM pg_class WHERE oid IN ('p1'::regclass, 'p2'::regclass)}, 'ff', 'leaves have it' ],
		],
	},
	{
		number => '22',
		title => 'all leaves of a tree are read through the root',
		setup => q{
CREATE TABLE p(id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (1) TO (100) PARTITION BY RANGE (id);
CREATE TABLE p11(gone int, v text, id int NOT NULL); ALTER TABLE p11 DROP COLUMN gone; ALTER TABLE p1 ATTACH PARTITION p11 FOR VALUES FROM (1) TO (50);
CREATE TABLE pd PARTITION OF p DEFAULT;},
		track => ['p'],
		steps => [
			q{INSERT INTO p VALUES (1,'a'),(500,'z')},
			'cut',
			# a row that moves to another leaf
			q{UPDATE p SET id = 700 WHERE id = 1},
			q{INSERT INTO p11 VALUES ('direct', 2)},
			{ query => q{SELECT stream_track('pd')}, fails => '42710', like => qr/"p"/, name => 'a leaf of a tracked root is not tracked a second time' },
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id', row_data->>'v'), ', ') FROM stream_changes('p')},
				'1 insert 1 a, 1 insert 500 z, 2 delete 1 a, 2 insert 700 a, 3 insert 2 direct' ],
		],
		fails => [ [ q{SELECT * FROM stream_changes('p11')}, '0A000', qr/CHANGE_DATA_CAPTURE_ON_RELATION/, 'a leaf alone is refused' ] ],
	},
	{
		number => '25',
		title => 'foreign tables as partitions',
		setup => q{
CREATE EXTENSION file_fdw; CREATE SERVER fs FOREIGN DATA WRAPPER file_fdw;
CREATE TABLE p(id int, v text) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (1) TO (100);
CREATE FOREIGN TABLE pf PARTITION OF p FOR VALUES FROM (100) TO (1000) SERVER fs OPTIONS (program 'echo 500,remote', format 'csv');
INSERT INTO p VALUES (1,'local');
CREATE TABLE t(id int PRIMARY KEY);},
		steps => [
			'INSERT INTO t VALUES (1)',
			{ query => q{SELECT stream_track('pf')}, fails => '42809', like => qr/foreign table/ },
			'cut',
			{ query => q{SELECT stream_track('p')}, fails => '0A000', like => qr/"pf" is a foreign table/, name => 'a root with a foreign partition is refused, and that named' },
		],
		expect => [ [ q{SELECT count(*) FROM stream_tables WHERE table_name IN ('p', 'pf')}, 0 ] ],
	},
]
