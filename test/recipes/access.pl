# Who may read what, and what tracking does to other tables.
use strict;
use warnings;

[
	{
		number => '11',
		title => 'tracking one table changes nothing for others',
		setup => 'CREATE TABLE t(id int PRIMARY KEY)',
		steps => [
			'CREATE TABLE other(v int); INSERT INTO other VALUES (1); UPDATE other SET v = 2; DELETE FROM other',
			'INSERT INTO t VALUES (1)',
			'cut',
			# nor for those that somebody else publishes
			q{CREATE TABLE published(v int); INSERT INTO published VALUES (1); CREATE PUBLICATION some_n11 FOR TABLE published WITH (publish = 'insert'); UPDATE published SET v = 2; DROP PUBLICATION some_n11},
		],
		expect => [
			[ q{SELECT count(*) FROM pg_publication}, 0, 'there is no publication of ours' ],
			[ q{SELECT string_agg(relreplident, '') FROM pg_class WHERE oid IN ('other'::regclass, 'published'::regclass)}, 'dd' ],
			[ q{SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass}, 0, 'nor a trigger' ],
		],
	},
	{
		number => '112',
		title => 'a transaction that stays open',
		setup => 'CREATE TABLE t(id int PRIMARY KEY); CREATE TABLE u(i int)',
		steps => [
			[ A => 'BEGIN; INSERT INTO t VALUES (1)' ],
			'INSERT INTO u VALUES (1)',
			'cut',
			{ query => q{SELECT stream_sync('30 s') IS NOT NULL; SELECT status, last_error IS NULL, lag_bytes < 1000000, lag < '30 s', confirmed_lsn IS NOT NULL FROM stream_tables WHERE table_name = 't'},
				is => "t\nstreaming|t|t|t|t", name => 'capture is not stuck, and the view shows it' },
			{ query => q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'streamcdc capture' AND datname = current_database() AND query <> ''}, is => 1,
				name => 'what it does is in pg_stat_activity' },
			[ A => 'COMMIT' ],
			'crash',
		],
		expect => [ [ q{SELECT count(*) FROM stream_changes('t')}, 1 ] ],
	},
	{
		number => '134',
		title => 'deleted rows that a policy hid',
		roles => [qw(recipe_alice)],
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, owner name, secret text); ALTER TABLE t REPLICA IDENTITY FULL, ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON t USING (owner = current_user); GRANT SELECT ON t TO recipe_alice;
INSERT INTO t VALUES (1,'recipe_alice','a'),(2,'bob','b');},
		identity => 0,
		steps => [ q{DELETE FROM t WHERE id = 2; UPDATE t SET owner = 'bob' WHERE id = 1} ],
		expect => [ [ q{SELECT count(*) FROM stream_changes('t')}, 5, 'who is above the policies reads all' ] ],
		fails => [
			map { [ "SET ROLE recipe_alice; SELECT * FROM $_", '42501', qr/row-level security/i, "refused, and why: $_" ] }
			  (q{stream_changes('t')}, q{stream_changes('t'::regclass)}, q{stream_changes(NULL::t)}, q{stream_events('t')}, q{stream_versions('t')})
		],
	},
	{
		number => '136',
		title => 'row-level security does not take rows from capture',
		roles => [qw(recipe_owner)],
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (0,'y'); ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY p ON t USING (current_setting('app.tenant', true) = v); ALTER TABLE t OWNER TO recipe_owner;
CREATE TABLE u(id int PRIMARY KEY, v text); INSERT INTO u VALUES (0,'y'); ALTER TABLE u ENABLE ROW LEVEL SECURITY; ALTER TABLE u OWNER TO recipe_owner;},
		track => [],
		fold => [qw(t u)],
		steps => [
			q{SET ROLE recipe_owner; SELECT stream_track('t'); SELECT stream_track('u'); RESET ROLE},
			'cut',
			q{INSERT INTO t VALUES (1,'x'); INSERT INTO u VALUES (1,'x')},
		],
		expect => [
			[ q{SELECT string_agg(row_data->>'v', ' ') FROM stream_changes('t')}, 'y x', 'the baseline is complete' ],
			[ q{SET ROLE recipe_owner; SELECT string_agg(row_data->>'v', ' ') FROM stream_changes('u')}, 'y x', 'an owner to whom policies do not apply reads' ],
		],
		fails => [
			[ q{SET ROLE recipe_owner; SET app.tenant = 'x'; SELECT * FROM stream_changes('t')}, '42501', qr/row-level security/i, 'with FORCE they apply to him as well' ],
		],
	},
	{
		number => '138',
		title => 'who may read changes, and who may track',
		roles => [qw(recipe_auditor recipe_reader recipe_column recipe_owner)],
		setup => q{
CREATE TABLE t(id int PRIMARY KEY, v text); ALTER TABLE t OWNER TO recipe_owner; GRANT SELECT ON t TO recipe_reader; GRANT SELECT (id) ON t TO recipe_column;
CREATE TABLE u(id int PRIMARY KEY); ALTER TABLE u OWNER TO recipe_owner;},
		steps => [
			q{INSERT INTO t VALUES (1,'x')},
			{ query => q{SET ROLE recipe_reader; SELECT stream_track('u')}, fails => '42501', like => qr/owner/, name => 'tracking is for the owner' },
			{ query => q{SELECT stream_untrack('t')}, fails => '42501', like => qr/owner/, name => 'so is untracking' },
			'RESET ROLE; GRANT SELECT (v) ON t TO recipe_column',
			'cut',
			q{UPDATE t SET v = 'y'; REVOKE SELECT (v) ON t FROM recipe_column},
		],
		expect => [
			[ q{SET ROLE recipe_reader; SELECT count(*) FROM stream_changes('t')}, 3, 'reading takes SELECT on the table' ],
			[ q{SET ROLE recipe_owner; SELECT count(*) FROM stream_changes('t')}, 3 ],
			[ q{SET ROLE recipe_auditor; SELECT count(*) FROM stream_tables WHERE table_name = 't'}, 0, 'who may not read does not see it listed' ],
			[ q{SET ROLE recipe_reader; SELECT count(*) FROM stream_tables WHERE table_name = 't'}, 1 ],
		],
		fails => [
			[ q{SET ROLE recipe_auditor; SELECT * FROM stream_changes('t')}, '42501', qr/permission denied/ ],
			[ q{SET ROLE recipe_column; SELECT * FROM stream_changes('t')}, '42501', qr/permission denied/, 'on all of it, and now' ],
			[ q{SET ROLE recipe_auditor; SELECT * FROM stream_events('t')}, '42501', qr/permission denied/ ],
			[ q{SET ROLE recipe_auditor; SELECT * FROM streamcdc.blocks}, '42501', qr/permission denied/, 'the log itself is for nobody' ],
		],
	},
]
