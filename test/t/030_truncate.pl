# TRUNCATE is recorded as deletes of the rows that it takes away (design 3.15), whatever else is going on; what cannot be
# recorded is a gap, and never in the way of the command.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('truncate', conf => "max_prepared_transactions = 5\nshared_buffers = 16MB\n");
start_extension($node);

# "inserts|updates|deletes" of a table's newest version
sub newest_counts
{
	my ($table) = @_;
	sync($node);
	return sql($node, "SELECT inserts, updates, deletes FROM stream_versions('$table') ORDER BY _commit_version DESC LIMIT 1");
}

# one test: nothing waits in the inbox
sub inbox_is_empty
{
	my ($test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	sync($node);
	is(sql($node, 'SELECT count(*) FROM streamcdc.inbox'), 0, "$test: the inbox is empty");
}

#
# What one command can truncate
#
sql($node, <<'SQL');
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE pair AS (a int, b text);
CREATE TABLE plain (id int PRIMARY KEY, n serial, m mood DEFAULT 'ok', p pair DEFAULT (1, 'one'), big text);
ALTER TABLE plain ALTER COLUMN big SET STORAGE EXTERNAL;
INSERT INTO plain (id, big) SELECT i, repeat(chr(64 + i), 3000) FROM generate_series(1, 10) AS i;
CREATE TABLE unkeyed (a int, b text);
INSERT INTO unkeyed VALUES (1, 'x'), (1, 'x'), (2, NULL);
CREATE TABLE untracked (id int PRIMARY KEY);
INSERT INTO untracked VALUES (1);
CREATE TABLE parent (id int PRIMARY KEY, v text);
CREATE TABLE child (w int) INHERITS (parent);
CREATE TABLE grandchild (x int) INHERITS (child);
INSERT INTO parent VALUES (1, 'parent');
INSERT INTO child VALUES (2, 'child', 2);
INSERT INTO grandchild VALUES (3, 'grandchild', 3, 3);
CREATE TABLE referenced (id int PRIMARY KEY);
CREATE TABLE referring (id int PRIMARY KEY, r int REFERENCES referenced);
CREATE TABLE referring_too (id int REFERENCES referring);
INSERT INTO referenced VALUES (1), (2);
INSERT INTO referring VALUES (11, 1), (12, NULL);
INSERT INTO referring_too VALUES (11), (12), (11);
-- rows with a fast default, and with the remains of a dropped column
CREATE TABLE changed (id int PRIMARY KEY, gone text);
INSERT INTO changed VALUES (1, 'gone');
ALTER TABLE changed ADD COLUMN added text DEFAULT 'added';
INSERT INTO changed VALUES (2, 'gone', 'written');
ALTER TABLE changed DROP COLUMN gone;
SQL
my @tables = qw(plain unkeyed parent child grandchild referenced referring referring_too changed);
track($node, \@tables);

sql($node, 'TRUNCATE plain, untracked, plain, unkeyed, changed RESTART IDENTITY');
is(newest_counts('plain'), '0|0|10', 'every row is deleted, once');
is(newest_counts('unkeyed'), '0|0|3', 'also of a table without identity');
is(newest_counts('changed'), '0|0|2', 'and old rows of a table that was altered');
is(sql($node, q{SELECT string_agg(event, ',') FROM stream_events('plain', 1)}), join(',', ('delete') x 10), 'there is no marker');
is(sql($node, q{SELECT count(*) FROM stream_versions('plain', 1) AS a JOIN stream_versions('unkeyed', 1) AS b USING (xid)}), 1, 'it is one transaction');
is(sql($node, q{SELECT string_agg(row_data ->> 'added', ',') FROM stream_changes('changed', 1)}), 'added,written', 'with the default of that time');
sql($node, q{INSERT INTO plain (id) VALUES (1)});
is(sql($node, 'SELECT n FROM plain'), 1, 'RESTART IDENTITY did its work');

sql($node, 'TRUNCATE ONLY parent');
is(newest_counts('parent') . ' ' . newest_counts('child'), '0|0|1 1|0|0', 'ONLY: the parent alone') or diag('child has other versions');
sql($node, q{INSERT INTO parent VALUES (4, 'again'); TRUNCATE parent});
is(join(' ', map { newest_counts($_) } qw(parent child grandchild)), '0|0|1 0|0|1 0|0|1', 'without ONLY the children too');

fails_with($node, 'TRUNCATE referenced', '0A000', qr/referenced in a foreign key/, 'what the server refuses');
sql($node, 'TRUNCATE referenced CASCADE');
is(join(' ', map { newest_counts($_) } qw(referenced referring referring_too)), '0|0|2 0|0|2 0|0|3', 'CASCADE: everything that it reaches');
is(sql($node, q{SELECT max(_commit_version) FROM stream_versions('referenced')}), 1, 'and what was refused is not in the log');

my $before = sql($node, q{SELECT stream_latest_version('changed')});
sql($node, 'TRUNCATE changed');
sync($node);
is(sql($node, q{SELECT stream_latest_version('changed')}), $before, 'TRUNCATE of an empty table is no version');

#
# Where it can be
#
sql($node, <<'SQL');
BEGIN;
INSERT INTO plain (id, big) VALUES (20, 'before');
UPDATE plain SET big = 'changed' WHERE id = 20;
TRUNCATE plain;
INSERT INTO plain (id, big) VALUES (20, 'after'), (21, 'after');
SAVEPOINT gone;
TRUNCATE plain;
INSERT INTO plain (id, big) VALUES (22, 'gone');
ROLLBACK TO gone;
SAVEPOINT kept;
DELETE FROM plain WHERE id = 21;
TRUNCATE plain;
INSERT INTO plain (id, big) VALUES (23, 'kept');
RELEASE kept;
COMMIT;
SQL
sync($node);
is(sql($node, q{SELECT string_agg(event || ' ' || (coalesce(new_row, old_row) ->> 'id'), ', ') FROM stream_events('plain', 3, 3)}),
	'insert 20, update 20, delete 1, delete 20, insert 20, insert 21, delete 21, delete 20, insert 23',
	'in the middle of a transaction: each at its place, the rolled-back one not at all');
sql($node, <<'SQL');
DO $$ BEGIN
	INSERT INTO plain (id) VALUES (30);
	BEGIN
		TRUNCATE plain;
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
	END;
END $$;
SQL
is(newest_counts('plain'), '1|0|0', 'one that a function rolls back leaves nothing');
sql($node, q{CREATE FUNCTION empty_it() RETURNS void LANGUAGE sql AS 'TRUNCATE plain'; SELECT empty_it()});
is(newest_counts('plain'), '0|0|2', 'in a function');
sql($node, <<'SQL');
SET session_replication_role = replica;
INSERT INTO plain (id) VALUES (40);
TRUNCATE plain;
INSERT INTO plain (id) VALUES (41);
SQL
is(sql($node, q{SELECT string_agg(event, ',') FROM stream_events('plain', 6)}), 'insert,delete,insert', 'session_replication_role does not matter')
  if newest_counts('plain');
sql($node, q{BEGIN; TRUNCATE plain; PREPARE TRANSACTION 'later'});
sync($node);
is(newest_counts('plain'), '1|0|0', 'a prepared transaction has not happened yet');
$node->restart;
sql($node, q{COMMIT PREPARED 'later'});
wait_for_capture($node);
is(newest_counts('plain'), '0|0|1', 'after a restart it has');
sql($node, <<'SQL');
CREATE TABLE new (id int PRIMARY KEY);
BEGIN;
INSERT INTO new VALUES (1);
SELECT stream_track('new', baseline => false);
INSERT INTO new VALUES (2);
TRUNCATE new;
INSERT INTO new VALUES (3);
COMMIT;
SQL
is(newest_counts('new'), '2|0|2', 'in the transaction that tracks the table');
is(sql($node, <<'SQL'), 'insert 3', 'its net effect');
SELECT string_agg(_change_type || ' ' || (row_data ->> 'id'), ', ') FROM stream_changes('new', 1) WHERE row_data ->> 'id' <> '1'
SQL

# triggers
sql($node, <<'SQL');
CREATE TABLE before_it (id int PRIMARY KEY);
INSERT INTO before_it VALUES (1);
CREATE TABLE after_it (id int PRIMARY KEY);
INSERT INTO after_it VALUES (1);
CREATE FUNCTION writes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO %I VALUES (100)', TG_TABLE_NAME);
	RETURN NULL;
END $$;
CREATE TRIGGER writes BEFORE TRUNCATE ON before_it EXECUTE FUNCTION writes();
CREATE TRIGGER writes AFTER TRUNCATE ON after_it EXECUTE FUNCTION writes();
SQL
track($node, [ 'before_it', 'after_it' ]);
sql($node, 'TRUNCATE before_it, after_it');
sync($node);
is(sql($node, q{SELECT string_agg(event, ',') FROM stream_events('after_it', 1)}), 'delete,insert', 'a trigger that writes the empty table');
folds_to_table($node, 'after_it');
fails_with($node, q{SELECT * FROM stream_changes('before_it')}, '55000', qr/version 1\b/, 'one that writes the table before it is emptied makes a gap');
for my $table (@tables)
{
	folds_to_table($node, $table);
	versions_are_dense($node, $table);
}
inbox_is_empty('after all that');

#
# on_truncate
#
sql($node, <<'SQL');
INSERT INTO referenced VALUES (1);
INSERT INTO referring VALUES (1, 1);
SELECT stream_alter('referring', on_truncate => 'forbid');
INSERT INTO child VALUES (5, 'child', 5);
SELECT stream_alter('child', on_truncate => 'forbid');
SELECT stream_alter('unkeyed', on_truncate => 'gap');
INSERT INTO unkeyed VALUES (1, 'one');
SQL
fails_with($node, 'TRUNCATE referring_too, referring', '55000', qr/referring.*on_truncate => 'forbid'.*stream_alter/s, 'forbidden');
fails_with($node, 'TRUNCATE referenced CASCADE', '55000', qr/"referring"/, 'forbidden where CASCADE leads to');
fails_with($node, 'TRUNCATE parent', '55000', qr/"child"/, 'forbidden for a child');
is(sql($node, 'SELECT count(*) FROM referring'), 1, 'and not done');
sql($node, 'TRUNCATE ONLY parent');
sql($node, 'TRUNCATE unkeyed; INSERT INTO unkeyed VALUES (2, NULL)');
sync($node);
fails_with($node, q{SELECT * FROM stream_changes('unkeyed')}, '55000', qr/version 3\b/, 'a gap if that is wanted');
is(sql($node, q{SELECT count(*) FROM stream_changes('unkeyed', 4)}), 1, 'and what comes after it is readable');
sql($node, q{SELECT stream_alter('referring', on_truncate => 'delete'); TRUNCATE referenced CASCADE});
is(newest_counts('referring'), '0|0|1', 'allowed again');

#
# Rights: for somebody who may not truncate nothing is locked or read
#
sql($node, <<'SQL');
CREATE ROLE stranger LOGIN;
CREATE ROLE emptier LOGIN;
GRANT SELECT ON plain TO stranger;
GRANT TRUNCATE ON referenced, plain TO emptier;
INSERT INTO plain (id) VALUES (1), (2);
INSERT INTO referenced VALUES (5);
SQL
my $reader = $node->background_psql('postgres');
$reader->query_safe('BEGIN; SELECT count(*) FROM plain; SELECT count(*) FROM referenced;');
fails_with($node, q{SET lock_timeout = '100s'; TRUNCATE plain}, '42501', qr/permission denied for table plain/, 'no right to truncate', user => 'stranger');
fails_with($node, q{SET lock_timeout = '100s'; TRUNCATE unkeyed, plain}, '42501', qr/permission denied for table unkeyed/, 'only for one of two', user => 'emptier');
is(sql($node, q{SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND relation = 'plain'::regclass}), 0, 'the other one was not locked');
$reader->query_safe('COMMIT;');
$reader->quit;
fails_with($node, 'TRUNCATE referenced CASCADE', '42501', qr/permission denied for table referring/, 'no right on what CASCADE leads to', user => 'emptier');
is($node->safe_psql('postgres', 'TRUNCATE plain', extra_params => [ '-U', 'emptier' ]), '', 'TRUNCATE by somebody who may do nothing else');
is(newest_counts('plain'), '0|0|2', 'is recorded');
fails_with($node, q{SET default_transaction_read_only = on; TRUNCATE plain}, '25006', qr/read-only/, 'the server speaks for itself in a read-only transaction');

#
# Messages from anybody (3.15): they say nothing that the inbox does not
#
sql($node, <<'SQL');
INSERT INTO plain (id) VALUES (1), (2);
BEGIN;
SELECT pg_logical_emit_message(true, 'streamcdc', 'inbox');
TRUNCATE plain;
SELECT pg_logical_emit_message(true, 'streamcdc', 'inbox');
SELECT pg_logical_emit_message(false, 'streamcdc', 'inbox');
INSERT INTO plain (id) VALUES (3);
SELECT pg_logical_emit_message(true, 'streamcdc', 'inbox');
SELECT pg_logical_emit_message(true, 'streamcdc', 'look');
SELECT pg_logical_emit_message(true, 'streamcdc', '');
SELECT pg_logical_emit_message(true, 'streamcdc', 'inboxes');
SELECT pg_logical_emit_message(true, 'streamcdc', '\x00ff00'::bytea);
SELECT pg_logical_emit_message(true, 'streamcdc', repeat('inbox', 1000000));
SELECT pg_logical_emit_message(true, '', 'inbox');
TRUNCATE plain;
SELECT pg_logical_emit_message(true, 'streamcdc', 'inbox');
COMMIT;
BEGIN; SELECT pg_logical_emit_message(true, 'streamcdc', 'inbox') FROM generate_series(1, 1000); COMMIT;
BEGIN; SELECT pg_logical_emit_message(true, 'streamcdc', 'inbox'); ROLLBACK;
SQL
is(newest_counts('plain'), '1|0|3', 'messages of others add nothing and take nothing away');
folds_to_table($node, 'plain');
fails_with($node, 'INSERT INTO streamcdc.inbox DEFAULT VALUES', '42501', qr/permission denied/, 'nobody else writes the inbox', user => 'emptier');
inbox_is_empty('after messages');

#
# If it cannot be recorded, there is a warning and a gap, and the table is empty all the same
#
sql($node, 'INSERT INTO plain (id) VALUES (1); INSERT INTO referenced VALUES (7)');
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE streamcdc.inbox IN ACCESS EXCLUSIVE MODE;');
fails_with($node, q{SET statement_timeout = '500ms'; TRUNCATE plain}, '57014', qr/statement timeout/, 'a cancelled TRUNCATE is cancelled');
is(sql($node, 'SELECT count(*) FROM plain'), 1, 'and has done nothing');
warns_with($node, q{SET lock_timeout = '200ms'; TRUNCATE plain}, qr/could not record the rows that TRUNCATE takes away from table "plain"/, 'one that cannot be recorded warns');
$holder->query_safe('COMMIT;');
$holder->quit;
is(sql($node, 'SELECT count(*) FROM plain'), 0, 'and is done');
sync($node);
is(sql($node, q{SELECT event FROM stream_events('plain', (SELECT stream_latest_version('plain')))}), 'truncate', 'a marker says so');
fails_with($node, q{SELECT * FROM stream_changes('plain')}, '55000', qr/there is a gap/, 'and readers are told');
sql($node, q{SELECT stream_untrack('plain')});
track($node, ['plain']);

#
# The worker is killed between the commit and its capture, and so is the server
#
for my $how ('worker', 'server')
{
	sql($node, 'INSERT INTO plain (id, big) SELECT i, repeat(md5(i::text), 100) FROM generate_series(1, 2000) AS i');
	sync($node);
	signal_worker($node, 'STOP');
	sql($node, q{BEGIN; INSERT INTO plain (id) VALUES (-1); TRUNCATE plain; INSERT INTO plain (id) VALUES (-2); COMMIT});
	cmp_ok(sql($node, 'SELECT count(*) FROM streamcdc.inbox'), '>', 0, "$how: the rows wait in the inbox");
	if ($how eq 'worker')
	{
		crash_with_worker($node);
	}
	else
	{
		# which also ends a worker that is stopped
		$node->stop('immediate');
		$node->start;
	}
	wait_for_capture($node);
	is(newest_counts('plain'), '2|0|2001', "$how: nothing is lost, nothing is there twice");
	folds_to_table($node, 'plain');
	inbox_is_empty($how);
	sql($node, 'DELETE FROM plain');
}

# a commit that is captured before it is visible: its rows are removed later, also by the next worker
sql($node, 'INSERT INTO plain (id) VALUES (1)');
for my $restart (0, 1)
{
	sql($node, q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'; SELECT pg_reload_conf()});
	$node->poll_query_until('postgres', q{SELECT setting = 'nobody' FROM pg_settings WHERE name = 'synchronous_standby_names'});
	my $waits = background_sql($node, 'TRUNCATE plain; INSERT INTO plain (id) VALUES (1)');
	$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'}) or die 'the commit does not wait';
	wait_for($node, q{(SELECT deletes FROM stream_versions('plain') ORDER BY _commit_version DESC LIMIT 1) = 1}, 'it is captured meanwhile');
	sql($node, q{SET synchronous_commit = local; CREATE TABLE noise (); DROP TABLE noise});
	sync($node);
	is(sql($node, q{SELECT count(*) FROM pg_locks WHERE relation = 'plain'::regclass AND mode = 'AccessExclusiveLock' AND granted}), 1,
		'and its session still waits');
	if ($restart)
	{
		my $pid = worker_pid($node);
		sql($node, "SELECT pg_terminate_backend($pid, 10000)");
		wait_for_capture($node);
	}
	sql($node, q{ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()});
	my ($ok) = finish_sql($waits);
	ok($ok, 'it becomes visible');
	sync($node);
	# what the worker before left is removed when capture has passed it, with the next change that is stored
	for (1 .. 2)
	{
		sql($node, 'UPDATE plain SET id = id');
		sync($node);
	}
	inbox_is_empty($restart ? 'the next worker' : 'afterwards');
	folds_to_table($node, 'plain');
}

#
# A million rows, more than anybody's memory
#
my $rows = 1_000_000;
sql($node, "ALTER SYSTEM SET streamcdc.capture_memory = '4MB'; SELECT pg_reload_conf()");
sql($node, <<"SQL");
CREATE TABLE big (id int PRIMARY KEY, v text);
INSERT INTO big SELECT i, md5(i::text) || md5((-i)::text) || md5((i + 1)::text) || md5((i + 2)::text) FROM generate_series(1, $rows) AS i;
SELECT stream_track('big', baseline => false);
SQL
sync($node);

sub peak_memory
{
	my ($pid) = @_;
	slurp_file("/proc/$pid/status") =~ /^VmHWM:\s+(\d+) kB/m or die "no peak of process $pid";
	return $1 / 1024;
}
my $session = $node->background_psql('postgres');
my $session_pid = $session->query_safe('SELECT pg_backend_pid()');
my $capture_pid = worker_pid($node);
$session->query_safe('SELECT count(*) FROM big');
my $session_before = peak_memory($session_pid);
$session->query_safe('BEGIN; UPDATE big SET v = v WHERE id % 100 = 0;');
$session->query_safe('SAVEPOINT gone; TRUNCATE big; INSERT INTO big SELECT generate_series(1, 10); ROLLBACK TO gone; TRUNCATE big;');
$session->query_safe('INSERT INTO big SELECT generate_series(1, 5); COMMIT;');
sync($node);
is(sql($node, q{SELECT inserts, updates, deletes FROM stream_versions('big')}), join('|', 5, $rows / 100, $rows), 'a million rows are deleted');
is(sql($node, q{SELECT count(DISTINCT old_row ->> 'id') FROM stream_events('big') WHERE event = 'delete'}), $rows, 'each of them');
# more than 150 MB of rows
cmp_ok(peak_memory($session_pid) - $session_before, '<', 40, 'the session has needed little memory for that');
cmp_ok(peak_memory($capture_pid), '<', 100, 'and so has capture');
$session->quit;
inbox_is_empty('a million rows');

#
# A subscription's TRUNCATE does not pass by us: a gap
#
my $publisher = new_node('publisher');
$publisher->start;
$publisher->safe_psql('postgres', 'CREATE TABLE copied (id int PRIMARY KEY); INSERT INTO copied VALUES (1); CREATE PUBLICATION p FOR TABLE copied');
sql($node, 'CREATE TABLE copied (id int PRIMARY KEY)');
sql($node, "CREATE SUBSCRIPTION s CONNECTION '" . $publisher->connstr . " dbname=postgres' PUBLICATION p");
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_subscription_rel WHERE srsubstate <> 'r'}) or die 'the subscription is not ready';
track($node, ['copied']);
$publisher->safe_psql('postgres', 'INSERT INTO copied VALUES (2); TRUNCATE copied; INSERT INTO copied VALUES (3)');
$publisher->wait_for_catchup('s');
sync($node);
is(sql($node, q{SELECT string_agg(event, ',') FROM stream_events('copied', 1)}), 'insert,truncate,insert', 'a TRUNCATE applied by a subscription is a marker');
fails_with($node, q{SELECT * FROM stream_changes('copied')}, '55000', qr/version 2\b/, 'and a gap');
sql($node, 'DROP SUBSCRIPTION s');
$publisher->stop;

$node->stop;
done_testing();
