# Transactions: what is in a version, and in which order versions are.
use strict;
use warnings;

[
	{
		number => '50',
		title => 'one large transaction',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v text)',
		# 2,000,000 rows in the report
		steps => [
			'INSERT INTO t SELECT g, repeat(md5(g::text), 20) FROM generate_series(1, ' . ($ENV{STREAMCDC_RECIPE_ROWS} // 20000) . ') g',
			'cut',
			'UPDATE t SET v = md5(v) WHERE id % 100 = 0',
		],
		expect => [
			[ q{SELECT count(*) FROM stream_changes('t', 1, 1)}, $ENV{STREAMCDC_RECIPE_ROWS} // 20000, 'all of it in one version' ],
			[ q{SELECT count(*), sum(inserts) FROM stream_versions('t', 1)}, '2|' . ($ENV{STREAMCDC_RECIPE_ROWS} // 20000) ],
		],
		fails => [
			[
				q{SET statement_timeout = '20ms'; SELECT count(*) FROM stream_changes('t'), stream_changes('t') AS again}, '57014', qr/statement timeout/,
				'a read can be cancelled' ],
		],
	},
	{
		number => '54',
		title => 'transactions that make and truncate temporary tables',
		setup => 'CREATE TABLE t(id int PRIMARY KEY)',
		steps => [
			q{DO $$ BEGIN FOR i IN 1..500 LOOP CREATE TEMP TABLE IF NOT EXISTS w(i int); INSERT INTO w VALUES (i); TRUNCATE w; COMMIT; END LOOP; END $$},
			'cut',
			q{CREATE TEMP TABLE x(i int); DROP TABLE x},
			'INSERT INTO t VALUES (1)',
			# within a timeout, not by the clock: 500 such transactions take capture well below a second
			{ query => q{SELECT count(*) FROM stream_changes('t')}, is => 1, name => 'the row is read at once' },
		],
		expect => [
			[ q{SELECT stream_latest_version('t')}, 1, 'nothing of them is in the log' ],
			[ q{SELECT count(*) FROM stream_tables WHERE table_name LIKE 'pg_temp%' OR table_name IN ('w', 'x')}, 0 ],
			[ q{SELECT lag_bytes >= 0 FROM stream_tables WHERE table_name = 't'}, 't', 'the lag is visible' ],
		],
	},
	{
		number => '55',
		title => 'ROLLBACK TO SAVEPOINT in a transaction that outgrows memory',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v text)',
		steps => [
			[ A => q{BEGIN; INSERT INTO t SELECT g, repeat('a',500) FROM generate_series(1,500) g} ],
			[ A => q{SAVEPOINT s; INSERT INTO t SELECT g, repeat('b',500) FROM generate_series(501,1000) g} ],
			'cut',
			[ A => q{ROLLBACK TO s; INSERT INTO t SELECT g, 'c' FROM generate_series(1001,1005) g; COMMIT} ],
			'crash',
		],
		expect => [
			[ q{SELECT count(*), count(DISTINCT row_data), count(*) FILTER (WHERE row_data->>'v' LIKE 'b%') FROM stream_changes('t')}, '505|505|0' ],
			[ q{SELECT stream_latest_version('t')}, 1 ],
		],
	},
	{
		number => '57',
		title => 'the first write is inside a savepoint',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v text)',
		steps => [
			q{BEGIN; SAVEPOINT s1; INSERT INTO t VALUES (1,'in savepoint'); RELEASE s1; COMMIT},
			'cut',
			q{BEGIN; SAVEPOINT a; SAVEPOINT b; INSERT INTO t VALUES (2,'nested'); RELEASE b; RELEASE a; COMMIT},
			q{BEGIN; SAVEPOINT a; SAVEPOINT b; INSERT INTO t VALUES (3,'gone'); RELEASE b; ROLLBACK TO a; COMMIT},
			q{DO $$ BEGIN BEGIN INSERT INTO t VALUES (4, 'caught'); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN INSERT INTO t VALUES (5, 'handler'); END; END $$},
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, row_data->>'v'), ', ') FROM stream_changes('t')}, '1 in savepoint, 2 nested, 3 handler' ],
		],
	},
	{
		number => '63',
		title => 'rows of a COPY have one position in WAL',
		setup => 'CREATE TABLE t(id int PRIMARY KEY)',
		steps => [
			q{COPY t FROM PROGRAM 'seq 1 20000'},
			'cut',
			q{COPY t FROM PROGRAM 'seq 20001 50000'},
			'INSERT INTO t VALUES (50001), (50002), (50003)',
		],
		expect => [
			[ q{SELECT count(*), count(DISTINCT row_data->>'id') FROM stream_changes('t')}, '50003|50003' ],
			[ q{SELECT string_agg(inserts::text, ' ') FROM stream_versions('t', 1)}, '20000 30000 3' ],
		],
	},
	{
		number => '64',
		title => 'COMMIT PREPARED and ROLLBACK PREPARED',
		setup => 'CREATE TABLE t(id int PRIMARY KEY)',
		steps => [
			q{BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'p1'},
			'INSERT INTO t VALUES (2)',
			{ query => q{SELECT string_agg(row_data->>'id', ' ') FROM stream_changes('t')}, is => 2, name => 'nothing of a prepared transaction is readable' },
			'cut',
			q{COMMIT PREPARED 'p1'},
			q{BEGIN; INSERT INTO t VALUES (3); PREPARE TRANSACTION 'p2'; ROLLBACK PREPARED 'p2'},
			q{BEGIN; SAVEPOINT s; INSERT INTO t VALUES (4); ROLLBACK TO s; INSERT INTO t VALUES (5); PREPARE TRANSACTION 'p3'; COMMIT PREPARED 'p3'},
			q{BEGIN; PREPARE TRANSACTION 'p4'; COMMIT PREPARED 'p4'},
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, row_data->>'id'), ', ') FROM stream_changes('t')}, '1 2, 2 1, 3 5', 'in the order of commits' ],
		],
	},
	{
		number => '66',
		title => 'versions are in the order of commits, not of writes',
		setup => 'CREATE TABLE t(id int PRIMARY KEY)',
		steps => [
			[ A => 'BEGIN; INSERT INTO t VALUES (1)' ],
			[ B => 'BEGIN; INSERT INTO t VALUES (2)' ],
			[ B => 'COMMIT' ],
			'cut',
			[ A => 'INSERT INTO t VALUES (3); COMMIT' ],
			'crash',
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, row_data->>'id'), ', ') FROM stream_changes('t')}, '1 2, 2 1, 2 3' ],
			[ q{SELECT bool_and(coalesce(later, true)) FROM (SELECT commit_lsn > lag(commit_lsn) OVER (ORDER BY _commit_version) AS later FROM stream_versions('t', 1)) v}, 't' ],
		],
	},
	{
		number => '68',
		title => 'a transaction that began earlier and commits later',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, at timestamptz DEFAULT now()); CREATE TABLE seen(v bigint)',
		steps => [
			[ A => 'BEGIN; INSERT INTO t VALUES (1)' ],
			[ B => 'INSERT INTO t VALUES (2)' ],
			# whatever capture has got to: what was seen is complete
			q{SET streamcdc.read_timeout = 0; INSERT INTO seen SELECT coalesce(max(_commit_version), 0) FROM stream_versions('t')},
			'cut',
			[ A => 'COMMIT' ],
			'crash',
		],
		expect => [
			[ q{SELECT string_agg(row_data->>'id', ' ') FROM seen, stream_changes('t', v + 1)
				WHERE (row_data->>'id')::int = 1}, 1, 'comes after the version that a reader has seen as the latest' ],
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, row_data->>'id'), ', ') FROM stream_changes('t')}, '1 2, 2 1' ],
		],
	},
	{
		number => '71',
		title => 'a long transaction is open elsewhere',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v int); INSERT INTO t VALUES (1,0); CREATE TABLE u(i int)',
		steps => [
			[ A => 'BEGIN; INSERT INTO u VALUES (1)' ],
			[ B => 'UPDATE t SET v = 1; UPDATE t SET v = 2; UPDATE t SET v = 3' ],
			'cut',
			{ query => q{SELECT string_agg(_commit_version || ' ' || (new_row->>'v'), ', ') FROM stream_events('t', 1)}, is => '1 1, 2 2, 3 3',
				name => 'all updates are read while it is open' },
			[ A => 'COMMIT' ],
			'crash',
		],
		expect => [ [ q{SELECT string_agg(_commit_version || ' ' || (new_row->>'v'), ', ') FROM stream_events('t', 1)}, '1 1, 2 2, 3 3' ] ],
	},
	{
		number => '158',
		title => 'many commits in a moment',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v int)',
		steps => [
			q{DO $$ BEGIN FOR i IN 1..150 LOOP INSERT INTO t VALUES (i, 0); COMMIT; UPDATE t SET v = 1 WHERE id = i; COMMIT; END LOOP; END $$},
			'cut',
			q{DO $$ BEGIN FOR i IN 151..300 LOOP INSERT INTO t VALUES (i, 0); COMMIT; UPDATE t SET v = 1 WHERE id = i; COMMIT; END LOOP; END $$},
			{ query => q{SELECT count(*) FROM stream_changes('t', 1, compute_updates => true)}, is => 900, name => 'the last commit does not wait for another' },
		],
		expect => [
			[ q{SELECT count(*) FILTER (WHERE _change_type = 'insert'), count(*) FILTER (WHERE _change_type = 'update_postimage'), max(_commit_version)
				FROM stream_changes('t', compute_updates => true)}, '300|300|600', 'nothing is dropped' ],
			# by version and by time the same: each version is reached by its timestamp alone
			[ q{SELECT count(*) FROM stream_versions('t', 1) v WHERE v._commit_version <> stream_version_at('t', v._commit_timestamp)}, 0 ],
			[ q{SELECT count(*) FROM stream_versions('t', 1) v
				WHERE 300 - ceil(v._commit_version / 2.0) <> (SELECT count(*) FILTER (WHERE inserts = 1) FROM stream_versions('t', v._commit_version + 1))}, 0 ],
		],
	},
]
