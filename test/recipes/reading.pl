# Ranges, modes and options of a read, and what readers make of it.
use strict;
use warnings;

[
	{
		number => '72',
		title => 'bounds of a range',
		setup => 'CREATE TABLE t(id int PRIMARY KEY)',
		steps => [ 'INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)', 'INSERT INTO t VALUES (3)' ],
		expect => [
			map { [ "SELECT string_agg(row_data->>'id', ' ') FROM stream_changes('t', $_->[0])", $_->[1], $_->[2] ] } (
				[ '2', '2 3', 'a start only: until the latest' ],
				[ '2, 2', '2', 'start = end' ],
				[ '1, 2', '1 2', 'both ends included' ],
				[ '4', '', 'a start after the latest is empty' ],
				[ '1000000', '', 'also far after it' ],
				[ '3, 1000000', '3', 'an end after the latest' ],
				[ '1, 3, starting_bound_inclusive => false', '2 3' ],
				[ '1, 3, ending_bound_inclusive => false', '1 2' ],
				[ '2, 2, starting_bound_inclusive => false', '' ],
				[ '2, 3, starting_bound_inclusive => false, ending_bound_inclusive => false', '' ],
				[ q{starting_timestamp => '-infinity'}, '1 2 3' ],
				[ q{starting_timestamp => '-infinity', ending_timestamp => 'infinity'}, '1 2 3' ],
				[ q{starting_timestamp => 'infinity'}, '' ],
				map {
					(   [ "starting_timestamp => $_", '2 3', 'a start that is exactly the time of a commit' ],
						[ "starting_timestamp => $_, starting_bound_inclusive => false", '3' ],
						[ "starting_timestamp => '-infinity', ending_timestamp => $_", '1 2', 'an end that is' ],
						[ "starting_timestamp => '-infinity', ending_timestamp => $_, ending_bound_inclusive => false", '1' ],
						[ "starting_timestamp => $_, ending_timestamp => $_", '2' ],
						[ "starting_timestamp => $_ + interval '1 us'", '3' ])
				} q{(SELECT _commit_timestamp FROM stream_versions('t', 2, 2))}
			)
		],
		fails => [
			[ q{SELECT * FROM stream_changes('t', 3, 2)}, '22023', qr/2.*3|3.*2/s, 'an end before the start' ],
			[ q{SELECT * FROM stream_changes('t', ending_version => 2)}, '22023', qr/starting/i, 'an end without a start' ],
			[ q{SELECT * FROM stream_changes('t', ending_timestamp => now())}, '22023', qr/starting/i ],
			[ q{SELECT * FROM stream_changes('t', starting_version => 1, ending_timestamp => now())}, '22023', qr/timestamp/i, 'versions and timestamps mixed' ],
			[ q{SELECT * FROM stream_changes('t', starting_timestamp => now(), ending_timestamp => now() - interval '1 s')}, '22023', qr/./ ],
		],
	},
	{
		number => '144',
		title => 'mistyped options',
		setup => 'CREATE TABLE t(id int PRIMARY KEY)',
		steps => [
			'INSERT INTO t VALUES (1)',
			{ query => q{CREATE TABLE u(id int); SELECT stream_track('u', on_truncate => 'ignore')}, fails => '22023', like => qr/delete.*forbid.*gap/s,
				name => 'a value that is none, with those that are' },
		],
		expect => [
			[ q{SELECT count(*) FROM stream_changes('t', starting_version => -1)}, 1, 'bounds are compared literally, a negative one too' ],
			[ q{SELECT count(*) FROM stream_changes('t', deduplication_mode => 'NETCHANGES')}, 1, 'letter case does not matter' ],
			[ q{SELECT count(*) FROM stream_changes('t', deduplication_mode => NULL, starting_version => NULL, compute_updates => NULL)}, 1, 'NULL is not given' ],
			[ q{SELECT count(*) FROM stream_tables WHERE table_name = 'u'}, 0 ],
		],
		fails => [
			[ q{SELECT stream_track('t', moed => 'x')}, '42883', qr/moed/, 'no such option of stream_track' ],
			[ q{SELECT * FROM stream_changes('t', deduplicationMode => 'none')}, '42883', qr/./i ],
			[ q{SELECT * FROM stream_changes('t', deduplication_mode => 'netchange')}, '22023', qr/netchange.*none.*dropCarryovers.*netChanges/s ],
			[ q{SELECT * FROM stream_changes('t', deduplication_mode => '')}, '22023', qr/none.*dropCarryovers.*netChanges/s ],
			[ q{SELECT * FROM stream_changes('t', starting_version => 'abc')}, '22P02', qr/abc/ ],
		],
	},
	{
		number => '160',
		title => 'five wrong calls, five messages',
		setup => 'CREATE TABLE t(id int PRIMARY KEY); CREATE TABLE not_tracked(i int)',
		track => [],
		fold => [],
		steps => [
			q{SELECT stream_track('t')},
			'INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); INSERT INTO t VALUES (3)',
			# the log of before is gone
			q{SELECT stream_untrack('t'); SELECT stream_track('t')},
			'cut',
			'INSERT INTO t VALUES (4)',
		],
		unheld => 1,
		expect => [
			[ q{SELECT count(*) FROM stream_changes('t', starting_version => NULL)}, 4, 'NULL: not given' ],
			[ q{SELECT first_version > 0, last_version >= first_version, stream_latest_version('t') = last_version FROM stream_tables WHERE table_name = 't'}, 't|t|t',
				'the range is there to be asked for' ],
		],
		fails => [
			[ q{SELECT * FROM stream_changes('t', starting_version => 0)}, '55000', qr/version 0\b.*\b[1-9]/s, 'no longer there: the oldest is named' ],
			[ q{SELECT * FROM stream_changes('t', ending_version => 1000000)}, '22023', qr/starting/i ],
			[ q{SELECT * FROM stream_changes('not_tracked')}, '0A000', qr/not tracked.*stream_track/s ],
			[ q{SELECT * FROM stream_changes('no_such_table')}, '42P01', qr/no_such_table/ ],
		],
	},
	{
		number => '156',
		title => 'a key that changes several times in the window',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v int); CREATE TABLE sink(id int PRIMARY KEY, v int); INSERT INTO sink VALUES (3, 3)',
		steps => [
			'INSERT INTO t VALUES (1,1); UPDATE t SET v = 2; UPDATE t SET v = 3; DELETE FROM t; INSERT INTO t VALUES (1,4)',
			'INSERT INTO t VALUES (2,1); DELETE FROM t WHERE id = 2',
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id', row_data->>'v'), ', ') FROM stream_changes('t', 1, deduplication_mode => 'netChanges')},
				'5 insert 1 4', 'one row for 1, none for 2' ],
			[ q{MERGE INTO sink USING (SELECT _change_type, (row_data).* FROM stream_changes(NULL::t, 1, deduplication_mode => 'netChanges')) AS c ON sink.id = c.id
				WHEN MATCHED AND _change_type = 'delete' THEN DELETE WHEN MATCHED THEN UPDATE SET v = c.v WHEN NOT MATCHED THEN INSERT VALUES (c.id, c.v);
				SELECT string_agg(sink::text, ' ' ORDER BY id) FROM sink}, '(1,4) (3,3)', 'so that it can be merged' ],
			# each step of the way, taken alone or together
			map { [ "SELECT count(*) FROM (SELECT row_data->>'id' FROM stream_changes('t', $_->[0], $_->[1], compute_updates => true, deduplication_mode => 'netChanges')
				WHERE _change_type <> 'update_preimage' GROUP BY 1 HAVING count(*) > 1) s", 0 ] } ([ 1, 3 ], [ 2, 4 ], [ 2, 5 ], [ 4, 7 ], [ 6, 7 ])
		],
	},
	{
		number => '159',
		title => 'net changes of a window',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v int)',
		steps => [ 'INSERT INTO t VALUES (1,1); UPDATE t SET v = 2; UPDATE t SET v = 3', 'INSERT INTO t VALUES (2,1); DELETE FROM t WHERE id = 2' ],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id', row_data->>'v'), ', ') FROM stream_changes('t', 1, deduplication_mode => 'netChanges')},
				'3 insert 1 3' ],
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id', row_data->>'v'), ', ')
				FROM stream_changes('t', 2, 4, deduplication_mode => 'netChanges', compute_updates => true)}, '2 update_preimage 1 1, 3 update_postimage 1 3, 4 insert 2 1' ],
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id', row_data->>'v'), ', ') FROM stream_changes('t', 4, 5, deduplication_mode => 'netChanges')}, '' ],
		],
	},
	{
		number => '165',
		title => 'unique values that move between rows in a transaction',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v text); CREATE TABLE sink(id int PRIMARY KEY, v text, UNIQUE (v) DEFERRABLE)',
		steps => [
			q{BEGIN; INSERT INTO t VALUES (1,'a'),(2,'b'); UPDATE t SET v = 'c' WHERE id = 1; UPDATE t SET v = 'a' WHERE id = 2; UPDATE t SET id = 3 WHERE id = 1; COMMIT},
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', _commit_version, _change_type, row_data->>'id', row_data->>'v'), ', ' ORDER BY row_data->>'id') FROM stream_changes('t', 1)},
				'1 insert 2 a, 1 insert 3 c', 'one change a row' ],
			[ q{INSERT INTO sink SELECT (row_data).* FROM stream_changes(NULL::t, 1) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v; SELECT count(*) FROM sink}, 2, 'which an upsert takes' ],
		],
	},
	{
		number => '178',
		title => 'who made a change',
		# no column of the table: a table of its own, written in the same transaction
		setup => 'CREATE TABLE t(id int PRIMARY KEY); CREATE TABLE context(tx xid8 DEFAULT pg_current_xact_id(), who name DEFAULT current_user, app text DEFAULT current_setting($$application_name$$), request text)',
		track => [qw(t context)],
		steps => [
			q{SET application_name = 'web'; BEGIN; INSERT INTO context(request) VALUES ('42'); INSERT INTO t VALUES (1); COMMIT; RESET application_name},
			'INSERT INTO t VALUES (2)',
			'cut',
			q{BEGIN; INSERT INTO t VALUES (3); SAVEPOINT s; INSERT INTO context(request) VALUES ('no'); ROLLBACK TO s; INSERT INTO context(request) VALUES ('43'); COMMIT},
		],
		expect => [
			[ q{SELECT string_agg(concat_ws(' ', c.row_data->>'id', coalesce((x.row_data).app = 'web' AND (x.row_data).who = current_user, false), (x.row_data).request), ', ' ORDER BY c._commit_version)
				FROM stream_changes('t') AS c JOIN stream_versions('t') AS v USING (_commit_version)
				LEFT JOIN (stream_changes(NULL::context) AS x JOIN stream_versions('context') AS xv USING (_commit_version)) ON v.xid = xv.xid},
				'1 t 42, 2 f, 3 f 43', 'versions of one transaction have one xid' ],
			[ q{SELECT bool_and((x.row_data).tx = v.xid) FROM stream_changes(NULL::context) AS x JOIN stream_versions('context') AS v USING (_commit_version)}, 't' ],
		],
	},
	{
		number => '180',
		title => 'validity intervals',
		setup => 'CREATE TABLE t(id int PRIMARY KEY, v text)',
		steps => [ q{INSERT INTO t VALUES (1,'a'); UPDATE t SET v = 'b'}, q{DELETE FROM t; INSERT INTO t VALUES (1,'c')} ],
		expect => [
			# the query of doc/recipes.md
			[ q{SELECT string_agg(concat_ws(' ', v, valid_from, coalesce(valid_to::text, 'current')), ', ' ORDER BY valid_from) FROM (
				SELECT (row_data).*, _commit_version AS valid_from, lead(_commit_version) OVER row_history AS valid_to, _change_type
				FROM stream_changes(NULL::t, compute_updates => true) WHERE _change_type <> 'update_preimage'
				WINDOW row_history AS (PARTITION BY (row_data).id ORDER BY _commit_version)
				) AS h WHERE _change_type <> 'delete'}, 'a 1 2, b 2 3, c 4 current' ],
		],
	},
]
