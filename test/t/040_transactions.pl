# Everything that a transaction can do to rows, without DDL: what the log says
# of it is what the server's own decoding says, and folds to the table.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $subtransactions = $ENV{STREAMCDC_TEST_SUBTRANSACTIONS} // 100_000;
my $payload = $ENV{STREAMCDC_TEST_PAYLOAD} // 100 * 1024 * 1024;

my $node = new_node('transactions', conf => "track_commit_timestamp = on\n");
start_extension($node);
sql($node, <<'SQL');
CREATE TABLE leveled (id int PRIMARY KEY, v text);
CREATE TABLE many (id int PRIMARY KEY, n int);
CREATE TABLE upserted (id int PRIMARY KEY, v text);
CREATE TABLE merged (id int PRIMARY KEY, n int);
CREATE TABLE copied (id int PRIMARY KEY, v text);
CREATE TABLE parents (id int PRIMARY KEY, v text);
CREATE TABLE children (id int PRIMARY KEY, parent int REFERENCES parents ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE orphans (id int PRIMARY KEY, parent int DEFAULT 0 REFERENCES parents ON DELETE SET NULL);
CREATE TABLE triggered (id int PRIMARY KEY, n int, note text);
CREATE TABLE deferred (id int PRIMARY KEY, position int UNIQUE DEFERRABLE INITIALLY DEFERRED,
	parent int REFERENCES parents DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE cursors (id int PRIMARY KEY, n int);
INSERT INTO cursors SELECT i, i FROM generate_series(1, 20) AS i;
SQL
my @tables = qw(leveled many upserted merged copied parents children orphans triggered deferred cursors);
twin_slot($node);
track($node, \@tables);

sub latest
{
	my ($table) = @_;
	return sql($node, "SELECT stream_latest_version('$table')");
}

# events of the newest version, shortened: "+1 ~1 -1" = insert, update, delete of the row with that id
sub newest
{
	my ($table, $column) = @_;
	$column //= 'id';
	return sql($node, <<"SQL");
SELECT string_agg(translate(left(event, 1), 'iud', '+~-') || coalesce(new_row ->> '$column', old_row ->> '$column'), ' ' ORDER BY event_number)
FROM stream_events('$table', stream_latest_version('$table'))
SQL
}

#
# Savepoints
#
# one is rolled back at each level; the top level comes last, and writes nothing itself
sql($node, <<'SQL');
BEGIN;
SAVEPOINT a;
INSERT INTO leveled VALUES (1, 'first write is inside a savepoint');
SAVEPOINT b;
INSERT INTO leveled VALUES (2, 'gone');
SAVEPOINT c;
INSERT INTO leveled VALUES (3, 'gone');
RELEASE c;
ROLLBACK TO b;
SAVEPOINT c;
INSERT INTO leveled VALUES (4, 'kept at the third level');
SAVEPOINT d;
UPDATE leveled SET v = 'gone';
ROLLBACK TO d;
INSERT INTO leveled VALUES (5, 'kept after ROLLBACK TO');
ROLLBACK TO d;
RELEASE d;
RELEASE c;
DELETE FROM leveled WHERE id = 4;
RELEASE a;
COMMIT;
SQL
is(newest('leveled'), '+1 +4 -4', 'savepoints: what was rolled back at any level is not there');
my $before = latest('leveled');
sql($node, 'BEGIN; SAVEPOINT a; INSERT INTO leveled VALUES (6, \'never\'); ROLLBACK TO a; INSERT INTO copied VALUES (-1, \'x\'); COMMIT');
sql($node, 'BEGIN; INSERT INTO leveled VALUES (6, \'never\'); SAVEPOINT a; INSERT INTO leveled VALUES (7, \'never\'); RELEASE a; ROLLBACK');
$node->psql('postgres', 'BEGIN; INSERT INTO leveled VALUES (6, \'never\'); SELECT 1 / 0; COMMIT');
is(latest('leveled'), $before, 'a transaction of which nothing is left makes no version');
sql($node, 'BEGIN; INSERT INTO leveled VALUES (8, \'one\'); SAVEPOINT a; INSERT INTO leveled VALUES (9, \'two\'); COMMIT AND CHAIN; INSERT INTO leveled VALUES (10, \'three\'); COMMIT');
is(newest('leveled'), '+10', 'COMMIT AND CHAIN begins another version');
is(latest('leveled'), $before + 2, 'and there are two');

# as many subtransactions as nobody should have, every other one rolled back; each updates a row of the one before
sql($node, <<"SQL");
DO \$\$
BEGIN
	FOR i IN 1 .. $subtransactions LOOP
		BEGIN
			INSERT INTO many VALUES (i, 0);
			IF i % 2 = 0 THEN RAISE division_by_zero; END IF;
			UPDATE many SET n = n + 1 WHERE id = i - 2;
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
	END LOOP;
END \$\$;
SQL
is(sql($node, q{SELECT inserts, updates, deletes FROM stream_versions('many', 1)}),
	join('|', $subtransactions / 2, $subtransactions / 2 - 1, 0),
	"$subtransactions subtransactions are one version, without the half that was rolled back");
is(sql($node, q{SELECT count(*) FROM stream_events('many', 1) WHERE (new_row ->> 'id')::int % 2 = 0}), 0, 'of which nothing is there');

#
# ON CONFLICT: a speculative insertion is taken back by the session that made it
#
# The function is called once to look for a conflict, and once more, after the row was inserted, for the index.  Between
# the two another session inserts the same key; a third call tells that this one tried again.
sql($node, <<'SQL');
CREATE FUNCTION hold(key text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$
DECLARE
	calls int := current_setting('hold.calls', true);
BEGIN
	IF calls IS NOT NULL THEN
		PERFORM set_config('hold.calls', (calls + 1)::text, false);
		IF calls = 1 THEN
			PERFORM pg_advisory_lock(1);
			PERFORM pg_advisory_unlock(1);
		END IF;
	END IF;
	RETURN key;
END $$;
CREATE UNIQUE INDEX upserted_hold ON upserted (hold(v));
SQL
my ($slow, $holder) = ($node->background_psql('postgres'), $node->background_psql('postgres'));
for my $action ('DO UPDATE SET id = upserted.id + 10', 'DO NOTHING')
{
	my ($key, $end) = $action =~ /UPDATE/ ? ('updated', 'BEGIN; INSERT INTO upserted VALUES (1, \'mine\');') : ('nothing', 'BEGIN;');
	$holder->query_safe('SELECT pg_advisory_lock(1)');
	$slow->query_until(qr/begun/, "SET hold.calls = 0;\n\\echo begun\n$end\nINSERT INTO upserted VALUES (3, '$key') ON CONFLICT (hold(v)) $action;\nCOMMIT;\n");
	$node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)})
	  or die 'nobody waits in the middle of an insertion';
	sql($node, "INSERT INTO upserted VALUES (2, '$key') ON CONFLICT (hold(v)) $action");
	$holder->query_safe('SELECT pg_advisory_unlock(1)');
	cmp_ok($slow->query_safe('SHOW hold.calls'), '>=', 3, "ON CONFLICT $action: the insertion was taken back, and tried again");
	is(sql($node, "SELECT string_agg(row_data ->> 'id', ',') FROM stream_changes('upserted') WHERE row_data ->> 'v' = '$key'"),
		$action =~ /UPDATE/ ? '2,2,12' : '2', 'and only what was there in the end is in the log');
}
$_->quit for $slow, $holder;
sql($node, 'DROP INDEX upserted_hold');
sql($node, 'INSERT INTO upserted VALUES (12, \'x\'), (20, \'y\') ON CONFLICT (id) DO UPDATE SET v = excluded.v');
is(newest('upserted'), '~12 +20', 'one command updates and inserts');

#
# MERGE, COPY
#
sql($node, 'INSERT INTO merged SELECT i, i FROM generate_series(1, 4) AS i');
sql($node, <<'SQL');
MERGE INTO merged AS m USING generate_series(3, 6) AS s(id) ON m.id = s.id
WHEN MATCHED AND s.id = 3 THEN DELETE
WHEN MATCHED THEN UPDATE SET n = -1
WHEN NOT MATCHED AND s.id = 6 THEN DO NOTHING
WHEN NOT MATCHED THEN INSERT VALUES (s.id, 0);
SQL
is(newest('merged'), '-3 ~4 +5', 'MERGE deletes, updates and inserts in one version');
sql($node, q{COPY copied FROM PROGRAM 'seq 1 5000 | sed "s/$/\tcopied/"'});
is(sql($node, q{SELECT inserts FROM stream_versions('copied', stream_latest_version('copied'))}), 5000, 'COPY is one version, with all of its rows');
is(sql($node, q{SELECT bool_and((new_row ->> 'id')::int = event_number) FROM stream_events('copied', stream_latest_version('copied'))}), 't',
	'in their order');
# frozen rows look older than every snapshot; only a table of the same transaction can have them
sql($node, <<'SQL');
BEGIN;
CREATE TABLE frozen (id int PRIMARY KEY);
SELECT stream_track('frozen', baseline => false);
COPY frozen FROM PROGRAM 'seq 1 1000' WITH (FREEZE);
COMMIT;
BEGIN;
CREATE TABLE frozen_base (id int PRIMARY KEY);
SELECT stream_track('frozen_base');
COPY frozen_base FROM PROGRAM 'seq 1 1000' WITH (FREEZE);
COMMIT;
SQL
is(sql($node, q{SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'frozen%' AND relallvisible >= 0), count(*) FROM frozen WHERE xmin::text = '2'}), '4|0',
	'(the rows are frozen by a mark, not by their xmin)');
sync($node);
is(sql($node, q{SELECT inserts, _commit_version FROM stream_versions('frozen')}), '1000|1', 'COPY FREEZE into a table just tracked is captured');
is(sql($node, q{SELECT inserts, _commit_version FROM stream_versions('frozen_base')}), '1000|0', 'or in the baseline');
folds_to_table($node, $_) for qw(frozen frozen_base);

#
# Rows that change because others do
#
sql($node, <<'SQL');
INSERT INTO parents VALUES (0, 'zero'), (1, 'one'), (2, 'two'), (3, 'three');
INSERT INTO children VALUES (11, 1), (12, 1), (21, 2);
INSERT INTO orphans VALUES (11, 1), (21, 2);
SQL
sql($node, 'DELETE FROM parents WHERE id = 2');
is(join(', ', map { newest($_) } qw(parents children orphans)), '-2, -21, ~21', 'foreign keys: ON DELETE CASCADE and SET NULL');
is(sql($node, q{SELECT count(DISTINCT xid) FROM (SELECT xid FROM stream_versions('parents', stream_latest_version('parents'))
	UNION ALL SELECT xid FROM stream_versions('children', stream_latest_version('children'))
	UNION ALL SELECT xid FROM stream_versions('orphans', stream_latest_version('orphans'))) AS x}), 1, 'as one transaction');
sql($node, 'DELETE FROM orphans; UPDATE parents SET id = 10 WHERE id = 1');
is(newest('children'), '~11 ~12', 'ON UPDATE CASCADE');

sql($node, <<'SQL');
CREATE FUNCTION changes_new() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.note = 'before'; RETURN new; END $$;
CREATE FUNCTION changes_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF new.n < 3 THEN UPDATE triggered SET n = n + 1 WHERE id = new.id; END IF;
	IF new.n = 100 THEN DELETE FROM triggered WHERE id = new.id; END IF;
	RETURN NULL;
END $$;
CREATE FUNCTION suppresses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER a BEFORE INSERT OR UPDATE ON triggered FOR EACH ROW EXECUTE FUNCTION changes_new();
CREATE TRIGGER b AFTER INSERT OR UPDATE ON triggered FOR EACH ROW EXECUTE FUNCTION changes_again();
CREATE TRIGGER c BEFORE INSERT OR DELETE ON triggered FOR EACH ROW WHEN (pg_trigger_depth() > 5) EXECUTE FUNCTION suppresses();
INSERT INTO triggered VALUES (1, 0, 'mine');
SQL
is(sql($node, q{SELECT string_agg(event || (new_row ->> 'n') || (new_row ->> 'note'), ' ' ORDER BY event_number) FROM stream_events('triggered', 1)}),
	'insert0before update1before update2before update3before', 'triggers that change the row before and after it is written');
is(sql($node, q{SELECT _change_type, row_data ->> 'n' FROM stream_changes('triggered', 1)}), 'insert|3', 'are one change');
sql($node, 'INSERT INTO triggered VALUES (2, 100, NULL)');
is(sql($node, q{SELECT count(*), (SELECT count(*) FROM stream_events('triggered', 2)) FROM stream_changes('triggered', 2)}), '0|2',
	'a row that its trigger deletes is no change, and two events');

#
# Constraints that are checked at the end
#
sql($node, q{INSERT INTO deferred VALUES (1, 1, 0), (2, 2, 0), (3, 3, 0)});
sql($node, 'UPDATE deferred SET position = 4 - position');
is(newest('deferred'), '~1 ~2 ~3', 'a deferrable unique constraint lets rows swap');
$before = latest('deferred');
my ($status) = $node->psql('postgres', 'BEGIN; INSERT INTO deferred VALUES (4, 3, 0); INSERT INTO copied VALUES (-2, \'never\'); COMMIT');
isnt($status, 0, 'a deferred constraint can fail the commit');
is(latest('deferred'), $before, 'and then there is no version');
sql($node, 'BEGIN; INSERT INTO deferred VALUES (5, 5, 5); INSERT INTO parents VALUES (5, \'late\'); SET CONSTRAINTS ALL IMMEDIATE; COMMIT');
is(join(', ', map { newest($_) } qw(deferred parents)), '+5, +5', 'a row before the row that it refers to');

#
# Row locks, cursors, the same row again and again
#
my ($one, $two) = map { $node->background_psql('postgres') } 1 .. 2;
$before = latest('cursors');
$one->query_safe('BEGIN; SELECT * FROM cursors WHERE id = 1 FOR KEY SHARE');
$two->query_safe('BEGIN; SELECT * FROM cursors WHERE id = 1 FOR KEY SHARE; SELECT * FROM cursors WHERE id = 2 FOR UPDATE;');
$one->query_safe('SAVEPOINT a; UPDATE cursors SET n = 100 WHERE id = 1; ROLLBACK TO a; UPDATE cursors SET n = 101 WHERE id = 1;');
$two->query_safe('ROLLBACK;');
$one->query_safe('COMMIT;');
$_->quit for $one, $two;
is(sql($node, "SELECT event, old_row ->> 'n', new_row ->> 'n' FROM stream_events('cursors', $before + 1)"), 'update|1|101',
	'a row that several transactions have locked is updated once; locks are no versions');
sql($node, <<'SQL');
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM cursors WHERE id IN (3, 4) ORDER BY id FOR UPDATE;
MOVE c;
UPDATE cursors SET n = 0 WHERE CURRENT OF c;
MOVE c;
DELETE FROM cursors WHERE CURRENT OF c;
COMMIT;
SQL
is(newest('cursors'), '~3 -4', 'WHERE CURRENT OF');
sql($node, 'BEGIN; ' . join(' ', map { "UPDATE cursors SET n = n + 1 WHERE id = 5;" } 1 .. 50) . ' DELETE FROM cursors WHERE id = 5; INSERT INTO cursors VALUES (5, 0); COMMIT');
is(sql($node, q{SELECT string_agg(_change_type || (row_data ->> 'n'), ',') FROM stream_changes('cursors', stream_latest_version('cursors'))}),
	'delete5,insert0', '52 events of one row in one transaction are one change');
sql($node, 'WITH gone AS (DELETE FROM cursors WHERE id = 6 RETURNING *), other AS (UPDATE cursors SET n = -7 WHERE id = 7 RETURNING *) INSERT INTO cursors SELECT id + 100, n FROM gone UNION ALL SELECT id + 100, n FROM other');
is(newest('cursors'), '-6 +106 ~7 +107', 'WITH that writes: one version');

#
# The caller's own transaction
#
is(sql($node, <<'SQL'), "f\n1", 'a transaction with an xid reads the log, without its own changes');
BEGIN;
INSERT INTO cursors VALUES (200, 0);
SELECT bool_or(row_data ->> 'id' = '200') FROM stream_changes('cursors');
SAVEPOINT a;
CREATE TEMP TABLE t AS SELECT * FROM stream_changes('cursors', 1);
SELECT sign(count(*)) FROM t;
COMMIT;
SQL
sql($node, q{INSERT INTO leveled SELECT 1000 + (row_data ->> 'id')::int, _change_type FROM stream_changes('leveled', 0)});
is(sql($node, q{SELECT count(*) FROM leveled WHERE id > 1000}),
	sql($node, q{SELECT count(*) FROM stream_changes('leveled', 0) WHERE (row_data ->> 'id')::int < 1000}),
	'a table can be written from its own changes');

#
# Commits that do not wait for the disk
#
$before = latest('leveled');
sql($node, 'BEGIN; SET LOCAL synchronous_commit = off; INSERT INTO leveled VALUES (2000, \'async\'); COMMIT');
wait_for($node, "(SELECT last_version = $before + 1 FROM stream_tables WHERE table_name = 'leveled')",
	'an asynchronous commit is captured although nobody reads');
sql($node, <<'SQL');
SET synchronous_commit = off;
INSERT INTO leveled VALUES (2001, 'async');
CREATE TEMP TABLE seen AS SELECT * FROM stream_changes('leveled', stream_latest_version('leveled'));
DO $$ BEGIN ASSERT (SELECT row_data ->> 'id' FROM seen) = '2001'; END $$;
SQL
pass('and seen by the next statement of its session');

#
# Times
#
is(sql($node, <<'SQL'), 't', 'commit_time is what the server has as the time of that commit');
SELECT count(*) > 3 AND bool_and(commit_time = pg_xact_commit_timestamp(xid::xid)) FROM stream_versions('cursors', 1)
SQL

#
# What is not captured, and does not disturb
#
my $streams = sql($node, 'SELECT count(*) FROM streamcdc.streams');
sql($node, <<'SQL');
BEGIN;
CREATE TABLE made AS SELECT * FROM leveled;
CREATE MATERIALIZED VIEW materialized AS SELECT id, v FROM leveled;
CREATE UNIQUE INDEX ON materialized (id);
INSERT INTO leveled VALUES (3000, 'in between');
CREATE TEMP TABLE temporary ON COMMIT DROP AS SELECT * FROM leveled;
UPDATE temporary SET v = 'x';
CREATE UNLOGGED TABLE unlogged AS SELECT * FROM leveled;
SELECT * INTO into_table FROM leveled;
COMMIT;
REFRESH MATERIALIZED VIEW materialized;
INSERT INTO leveled VALUES (3001, 'x');
REFRESH MATERIALIZED VIEW CONCURRENTLY materialized;
DELETE FROM unlogged;
DROP MATERIALIZED VIEW materialized;
SQL
is(sql($node, q{SELECT string_agg(new_row ->> 'id', ',' ORDER BY _commit_version) FROM stream_events('leveled', stream_latest_version('leveled') - 1)}),
	'3000,3001', 'CREATE TABLE AS, materialized views, temporary and unlogged tables beside a tracked table');
is(sql($node, 'SELECT count(*) FROM streamcdc.streams'), $streams, 'are not captured');

#
# All of that is what test_decoding says
#
twin_equals($node, since_twin => \@tables);
sql($node, q{SELECT pg_drop_replication_slot('twin')});
for my $table (@tables)
{
	versions_are_dense($node, $table);
	timestamps_increase($node, $table);
	folds_to_table($node, $table);
}

#
# Logical messages: ours are a hint only, and anybody can write them
#
sql($node, 'CREATE ROLE anybody LOGIN');
my $versions = join(',', map { latest($_) } @tables);
for my $transactional ('true', 'false')
{
	$node->safe_psql('postgres', <<"SQL", extra_params => [ '-U', 'anybody' ]);
SELECT pg_logical_emit_message($transactional, 'streamcdc', x) FROM unnest(ARRAY['look', '', 'LOOK', E'\\n''"%s%n', repeat('x', 100000)]) AS x \\g (format=unaligned) /dev/null
SELECT pg_logical_emit_message($transactional, 'streamcdc', '\\x0001ff00'::bytea) \\g /dev/null
SELECT pg_logical_emit_message($transactional, p, 'look')
FROM unnest(ARRAY['', 'streamcdc ', 'Streamcdc', E'streamcdc\\n', '%s%n%x', E'''; DROP TABLE leveled; --', repeat('streamcdc', 100000)]) AS p \\g /dev/null
BEGIN;
SELECT pg_logical_emit_message($transactional, 'streamcdc', 'look') \\g /dev/null
ROLLBACK;
DO \$\$ BEGIN FOR i IN 1 .. 1000 LOOP PERFORM pg_logical_emit_message($transactional, 'streamcdc', 'look'); END LOOP; END \$\$;
SQL
	sql($node, "SELECT pg_logical_emit_message($transactional, 'streamcdc', repeat('x', $payload)); INSERT INTO leveled VALUES (4000 + $transactional\::int, 'after')");
	# rows and a large message in one transaction
	sql($node, "BEGIN; INSERT INTO leveled VALUES (4100 + $transactional\::int, 'with'); SELECT pg_logical_emit_message($transactional, 'anything', repeat('y', $payload)); INSERT INTO leveled VALUES (4200 + $transactional\::int, 'with'); COMMIT");
	is(newest('leveled'), $transactional eq 'true' ? '+4101 +4201' : '+4100 +4200', "messages, transactional $transactional: capture goes on");
}
is(join(',', map { latest($_) } grep { $_ ne 'leveled' } @tables), $versions =~ s/^\d+,//r, 'messages are no versions');
my @errors = grep { /ERROR|FATAL|PANIC/ && /streamcdc/ } split /\n/, slurp_file($node->logfile);
is(scalar @errors, 0, 'no worker of ours has failed') or diag(@errors);
folds_to_table($node, 'leveled');

#
# A clock that goes back: commits are in the order of WAL, and their timestamps rise
#
$node->stop;
my ($library) = glob('/usr/lib/*/faketime/libfaketime.so.1');
die 'faketime is not installed' unless defined $library;
my $clock = PostgreSQL::Test::Utils::tempdir() . '/clock';
sub set_clock { append_to_file("$clock.new", shift); rename "$clock.new", $clock or die $! }
set_clock("+0\n");
{
	local %ENV = (%ENV, LD_PRELOAD => $library, FAKETIME_TIMESTAMP_FILE => $clock, FAKETIME_NO_CACHE => 1, FAKETIME_DONT_FAKE_MONOTONIC => 1);
	$node->start;
}
wait_for_capture($node);
$before = latest('cursors');
for my $offset ('+3h', '+1h', '+1h', '-2h', '+30d', '-1d')
{
	set_clock("$offset\n");
	sql($node, 'UPDATE cursors SET n = n + 1 WHERE id = 1; UPDATE leveled SET v = v WHERE id = 1; UPDATE cursors SET n = n + 1 WHERE id = 2;');
	is(latest('leveled') . '/' . latest('cursors'), latest('leveled') . '/' . ($before += 2), "the clock at $offset: capture goes on");
}
cmp_ok(sql($node, <<'SQL'), '>=', 3, 'times of commits ran backwards');
SELECT count(*) FROM (SELECT commit_time < lag(commit_time) OVER (ORDER BY _commit_version) AS back FROM stream_versions('cursors')) AS v WHERE back
SQL
timestamps_increase($node, $_) for qw(cursors leveled);
versions_are_dense($node, 'cursors');
is(sql($node, q{SELECT count(*) FROM stream_versions('cursors') AS v WHERE stream_version_at('cursors', _commit_timestamp) <> _commit_version}), 0,
	'a timestamp finds its version');
# who waits for a second does not wait until the clock has come back to where it was
my $stopped = signal_worker($node, 'STOP');
my $waiting = background_sql($node, 'UPDATE cursors SET n = n + 1; SELECT stream_sync(\'4 s\')');
$node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE '%stream_sync%' AND wait_event = 'Extension' AND pid <> pg_backend_pid())})
  or die 'nobody waits';
set_clock("-2d\n");
my (undef, undef, $error) = finish_sql($waiting);
like($error, qr/timed out while waiting for capture/, 'a time-out comes in its time, though the clock was put back');
kill 'CONT', $stopped;
wait_for_capture($node);
folds_to_table($node, $_) for qw(cursors leveled);

$node->stop;
done_testing();
