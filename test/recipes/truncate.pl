# TRUNCATE.
use strict;
use warnings;

[
	{
		number => '26',
		title => 'TRUNCATE does not stop anything',
		setup => 'CREATE TABLE t(id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1,100)',
		steps => [ 'TRUNCATE t', 'INSERT INTO t VALUES (7)' ],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, n), ', ')
				FROM (SELECT _commit_version, _change_type, count(*) AS n FROM stream_changes('t', 1) GROUP BY 1, 2 ORDER BY 1, 2) s},
				'1 delete 100, 2 insert 1', 'the rows are deleted, the stream goes on' ],
			[ q{SELECT count(*) FROM stream_changes('t', deduplication_mode => 'netChanges')}, 1 ],
			[ q{SELECT lag_bytes < 16 * 1024 * 1024 FROM stream_tables WHERE table_name = 't'}, 't', 'the slot moves on' ],
		],
	},
	{
		number => '26b',
		title => 'TRUNCATE of several tables, CASCADE, RESTART IDENTITY, and twice in a transaction',
		setup => q{
CREATE TABLE t(id int PRIMARY KEY); CREATE TABLE u(id serial PRIMARY KEY, t int REFERENCES t); CREATE TABLE w(a int, b text);
INSERT INTO t SELECT generate_series(1,3); INSERT INTO u(t) SELECT generate_series(1,3); INSERT INTO w VALUES (1,'x'),(1,'x'),(2,NULL);},
		track => [qw(t u w)],
		steps => [
			'TRUNCATE t CASCADE',
			'INSERT INTO t VALUES (1), (2); INSERT INTO u(t) VALUES (1)',
			'cut',
			'TRUNCATE t, u, w RESTART IDENTITY',
			q{BEGIN; INSERT INTO w VALUES (5,'a'); TRUNCATE w; INSERT INTO w VALUES (6,'b'); TRUNCATE w; INSERT INTO w VALUES (7,'c'); COMMIT},
			'TRUNCATE w; TRUNCATE w',
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, inserts, deletes), ', ') FROM stream_versions('t', 1)}, '1 0 3, 2 2 0, 3 0 2' ],
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, inserts, deletes), ', ') FROM stream_versions('u', 1)}, '1 0 3, 2 1 0, 3 0 1' ],
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'a', row_data->>'b'), ', ') FROM stream_changes('w', 1)},
				'1 delete 1 x, 1 delete 1 x, 1 delete 2, 2 insert 5 a, 2 delete 5 a, 2 insert 6 b, 2 delete 6 b, 2 insert 7 c, 3 delete 7 c' ],
		],
	},
	{
		number => '29',
		title => 'session_replication_role = replica',
		setup => 'CREATE TABLE t(id int PRIMARY KEY)',
		steps => [
			'SET session_replication_role = replica; INSERT INTO t VALUES (1); TRUNCATE t; INSERT INTO t VALUES (2); RESET session_replication_role',
			'ALTER TABLE t DISABLE TRIGGER ALL; UPDATE t SET id = 3; TRUNCATE t; ALTER TABLE t ENABLE TRIGGER ALL',
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id'), ', ') FROM stream_changes('t')},
				'1 insert 1, 2 delete 1, 3 insert 2, 4 delete 2, 4 insert 3, 5 delete 3' ],
		],
	},
	{
		number => '30',
		title => 'TRUNCATE inside of a transaction, and rolled back',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v text)',
		steps => [
			q{BEGIN; INSERT INTO t VALUES (1,'a'); TRUNCATE t; INSERT INTO t VALUES (2,'b'); SAVEPOINT s; TRUNCATE t; ROLLBACK TO s; COMMIT},
			q{BEGIN; TRUNCATE t; INSERT INTO t VALUES (9,'z'); ROLLBACK},
			'cut',
			q{BEGIN; TRUNCATE t; INSERT INTO t VALUES (2,'b'); COMMIT},
			q{BEGIN; SAVEPOINT a; TRUNCATE t; INSERT INTO t VALUES (2,'c'); RELEASE a; COMMIT},
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id', row_data->>'v'), ', ') FROM stream_changes('t', 1)},
				'1 insert 2 b, 3 delete 2 b, 3 insert 2 c', 'one row remains each time, and what is the same again is no change' ],
			[ q{SELECT stream_latest_version('t')}, 3 ],
		],
	},
]
