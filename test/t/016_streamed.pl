# Transactions that outgrow memory are decoded while they are still running
# (capture/streamed.c).  Whatever happens in one after its first part was
# streamed, the log says in the end what the server's own decoding says of it
# when it looks at the transaction as a whole.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('streamed', conf => "streamcdc.capture_memory = '4MB'\nmax_prepared_transactions = 5\n");
start_extension($node);

# streamed(): once capture has read all WAL up to here, how many parts of running transactions it has been handed
sql($node, <<'SQL');
CREATE TABLE keyed (id int PRIMARY KEY, n int, v text);
CREATE TABLE unkeyed (a int, v text);
CREATE TABLE toasted (id int PRIMARY KEY, n int, big text);
ALTER TABLE toasted ALTER COLUMN big SET STORAGE EXTERNAL;
INSERT INTO toasted SELECT i, 0, repeat(chr(64 + i), 3000 + i) FROM generate_series(1, 20) AS i;
CREATE TABLE small (id int PRIMARY KEY, n int);
INSERT INTO small SELECT i, 0 FROM generate_series(1, 10) AS i;
CREATE TABLE altered (id int PRIMARY KEY, n int, v text, dropped text);
CREATE TABLE emptied (id int PRIMARY KEY, v text);
INSERT INTO emptied SELECT i, 'row ' || i FROM generate_series(1, 10) AS i;
CREATE TABLE rewritten (id int PRIMARY KEY, v text);
INSERT INTO rewritten SELECT i, i FROM generate_series(1, 10) AS i;
CREATE TABLE late (id int PRIMARY KEY, v text);
CREATE TABLE late_without (id int PRIMARY KEY, v text);

CREATE FUNCTION streamed() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM stream_sync('180s');
	PERFORM pg_stat_clear_snapshot();
	RETURN (SELECT stream_count FROM pg_stat_replication_slots WHERE slot_name LIKE 'streamcdc%');
END $$;
CREATE FUNCTION wide(i int) RETURNS text LANGUAGE sql AS $$ SELECT md5(i::text) || md5((-i)::text) || md5((i + 1)::text) $$;
SQL
my @twins = qw(keyed unkeyed toasted small);
twin_slot($node);
track($node, [ @twins, qw(altered emptied rewritten) ]);

# each value is larger than the one before: a part of the transaction was streamed in between
sub rises
{
	my ($text, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @counts = split /\n/, $text;
	my @late = grep { $counts[$_] <= $counts[ $_ - 1 ] } 1 .. $#counts;
	ok(@counts > 1 && !@late, "$test: parts were streamed while it ran") or diag("parts: @counts");
}

sub no_temp_files
{
	my ($test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql($node, 'SELECT count(*) FROM pg_ls_tmpdir()'), 0, "$test: no temporary file is left");
}

# what a session that stays prints, while others do something in between
sub ask
{
	my ($session, $text) = @_;
	return $session->query_safe($text);
}

sub latest
{
	my ($table) = @_;
	return sql($node, "SELECT stream_latest_version('$table')");
}

#
# Savepoints, released and rolled back at several levels, before and after parts were streamed
#
rises(sql($node, <<'SQL'), 'savepoints');
SELECT streamed();
BEGIN;
INSERT INTO keyed SELECT i, 0, wide(i) FROM generate_series(1, 200) AS i;
SAVEPOINT never_streamed;
UPDATE keyed SET n = 1;
ROLLBACK TO never_streamed;
SAVEPOINT kept;
INSERT INTO keyed SELECT i, 0, wide(i) FROM generate_series(1001, 16000) AS i;
INSERT INTO unkeyed SELECT i % 100, wide(i) FROM generate_series(1, 200) AS i;
SELECT streamed();
SAVEPOINT gone;
DELETE FROM keyed WHERE id BETWEEN 1001 AND 3000;
UPDATE unkeyed SET a = -a;
SAVEPOINT kept_in_gone;
INSERT INTO keyed SELECT i, 0, wide(i) FROM generate_series(30001, 45000) AS i;
INSERT INTO toasted VALUES (1000, 0, repeat('gone', 2000));
UPDATE keyed SET v = v || 'gone' WHERE id > 30000;
SELECT streamed();
RELEASE kept_in_gone;
DELETE FROM unkeyed WHERE a < -50;
ROLLBACK TO gone;
SAVEPOINT kept_too;
UPDATE keyed SET n = 2;
SELECT streamed();
SAVEPOINT gone_too;
DELETE FROM keyed;
SELECT streamed();
ROLLBACK TO gone_too;
DELETE FROM keyed WHERE id % 50 = 0;
RELEASE kept_too;
RELEASE kept;
INSERT INTO unkeyed VALUES (1, 'end');
SAVEPOINT at_the_end;
UPDATE keyed SET n = 9 WHERE id < 100;
ROLLBACK TO at_the_end;
COMMIT;
SQL

#
# Events of several tables in turn, toasted values, keys that change, thousands of subtransactions
#
rises(sql($node, <<'SQL'), 'several tables');
SELECT streamed();
BEGIN;
DO $$
BEGIN
	FOR i IN 1 .. 6000 LOOP
		INSERT INTO unkeyed VALUES (i % 10, wide(i));
		UPDATE keyed SET v = wide(i + 7), n = n + 1 WHERE id = 1000 + i;
		UPDATE toasted SET n = n + 1 WHERE id = i % 20 + 1;
		IF i % 100 = 0 THEN
			UPDATE toasted SET big = repeat(md5(i::text), 100) WHERE id = i / 100;
			UPDATE keyed SET id = -id WHERE id = 2000 + i;
			DELETE FROM unkeyed WHERE v = wide(i - 10);
		END IF;
	END LOOP;
END $$;
SELECT streamed();
UPDATE keyed SET id = id + 100000 WHERE id BETWEEN 9000 AND 12000;
UPDATE toasted SET id = id + 100;
COMMIT;
SQL

rises(sql($node, <<'SQL'), 'a subtransaction for each row');
SELECT streamed();
BEGIN;
DO $$
BEGIN
	FOR i IN 1 .. 8000 LOOP
		BEGIN
			INSERT INTO unkeyed VALUES (i, repeat(wide(i), 8));
			INSERT INTO keyed VALUES (CASE WHEN i % 3 = 0 THEN 1 ELSE 200000 + i END, i, wide(i));
		EXCEPTION WHEN unique_violation THEN
			UPDATE small SET n = n + 1 WHERE id = i % 10 + 1;
		END;
	END LOOP;
END $$;
SELECT streamed();
COMMIT;
SQL
is(sql($node, q{SELECT inserts FROM stream_versions('keyed') ORDER BY _commit_version DESC LIMIT 1}), 8000 - int(8000 / 3),
	'those that failed are not in the version');

#
# Transactions that end otherwise
#
my $before = latest('keyed');
rises(sql($node, <<'SQL'), 'ROLLBACK');
SELECT streamed();
BEGIN;
INSERT INTO keyed SELECT i, 0, wide(i) FROM generate_series(300001, 315000) AS i;
SELECT streamed();
ROLLBACK;
SQL
rises(sql($node, <<'SQL'), 'ROLLBACK PREPARED');
SELECT streamed();
BEGIN;
INSERT INTO keyed SELECT i, 0, wide(i) FROM generate_series(300001, 315000) AS i;
SELECT streamed();
PREPARE TRANSACTION 'back';
ROLLBACK PREPARED 'back';
SQL
sync($node);
is(latest('keyed'), $before, 'what was rolled back is no version');
no_temp_files('after that');

rises(sql($node, <<'SQL'), 'COMMIT PREPARED');
SELECT streamed();
BEGIN;
INSERT INTO keyed SELECT i, 0, wide(i) FROM generate_series(300001, 315000) AS i;
SAVEPOINT gone;
DELETE FROM keyed WHERE id > 300000;
SELECT streamed();
ROLLBACK TO gone;
PREPARE TRANSACTION 'on';
SQL
# capture answers in the meantime
sql($node, 'UPDATE small SET n = -1 WHERE id = 1');
is(latest('keyed'), $before, 'a prepared transaction is no version yet');
sql($node, q{COMMIT PREPARED 'on'});
is(latest('keyed'), $before + 1, 'but one when it commits');

#
# Two at once, and small ones in between
#
my ($one, $two) = map { $node->background_psql('postgres') } 1 .. 2;
my $start = sql($node, 'SELECT streamed()');
my $insert = 'INSERT INTO keyed SELECT i, 0, wide(i) FROM generate_series';
my $parts = ask($one, "BEGIN; $insert(400001, 416000) AS i; SELECT streamed();");
sql($node, 'UPDATE small SET n = 1');
$parts .= "\n" . ask($two, "BEGIN; SAVEPOINT s; $insert(500001, 516000) AS i; SELECT streamed();");
sql($node, 'UPDATE small SET n = 2');
$parts .= "\n" . ask($one, 'SAVEPOINT s; UPDATE keyed SET n = 5 WHERE id BETWEEN 400001 AND 416000; SELECT streamed(); ROLLBACK TO s;');
sql($node, q{INSERT INTO keyed VALUES (399999, 0, 'small')});
$parts .= "\n" . ask($two, 'UPDATE keyed SET n = 6 WHERE id BETWEEN 500001 AND 516000; SELECT streamed();');
rises("$start\n$parts", 'two at once');
cmp_ok(sql($node, 'SELECT count(*) FROM pg_ls_tmpdir() WHERE name LIKE \'pgsql_tmp' . worker_pid($node) . '.%\''), '>', 0,
	'capture keeps them in temporary files');
ask($two, 'COMMIT;');
sql($node, 'UPDATE small SET n = 3');
ask($one, 'DELETE FROM keyed WHERE id = 400001; COMMIT;');
is(sql($node, <<'SQL'), '1|0|0,16000|16000|0,16000|0|1', 'versions are in the order of the commits');
SELECT string_agg(inserts || '|' || updates || '|' || deletes, ',' ORDER BY _commit_version) FROM (
	SELECT * FROM stream_versions('keyed') ORDER BY _commit_version DESC LIMIT 3) AS v
SQL
no_temp_files('after both have committed');

#
# The worker ends while one is half streamed
#
# The next worker begins before the position of the last, and what it finds there is not streamed but goes to
# disk: a subtransaction's changes too, of whose rollback the plugin is then not told.
$start = sql($node, 'SELECT streamed()');
$parts = ask($one, "BEGIN; SAVEPOINT gone; $insert(600001, 660000) AS i; SELECT streamed();");
$parts .= "\n" . ask($two, "BEGIN; SAVEPOINT kept; $insert(700001, 760000) AS i; SELECT streamed();");
rises("$start\n$parts", 'before the worker ends');
# the position is beyond those
sql($node, 'UPDATE small SET n = 4');
sync($node);
my $pid = signal_worker($node, 'TERM');
$node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)") or die 'the worker did not end';
wait_for_capture($node);
$before = latest('keyed');
$start = sql($node, 'SELECT streamed()');
$parts = ask($one, "SAVEPOINT gone_too; $insert(800001, 812000) AS i; SELECT streamed();");
$parts .= "\n" . ask($two, "SAVEPOINT gone; $insert(900001, 912000) AS i; SELECT streamed(); ROLLBACK TO gone;");
rises("$start\n$parts", 'after it has started again');
ask($one, q{ROLLBACK TO gone; INSERT INTO keyed VALUES (600000, 0, 'alone'); COMMIT;});
ask($two, 'COMMIT;');
$_->quit for $one, $two;
is(sql($node, "SELECT string_agg(inserts::text, ',' ORDER BY _commit_version) FROM stream_versions('keyed', $before + 1)"), '1,60000',
	'what began before the worker ended is complete, and what was rolled back is not in it');

# one that is prepared survives a crash, one that is open does not
$before = latest('keyed');
rises(sql($node, <<'SQL'), 'before the crash');
SELECT streamed();
BEGIN;
INSERT INTO keyed SELECT i, 0, wide(i) FROM generate_series(1000001, 1015000) AS i;
SAVEPOINT gone;
DELETE FROM keyed WHERE id > 1000000;
ROLLBACK TO gone;
SELECT streamed();
PREPARE TRANSACTION 'crash';
SQL
# the next checkpoint of a shutdown, or the walwriter, might find it unfinished; a crash always does
my $open = background_sql($node, <<'SQL');
BEGIN;
INSERT INTO keyed SELECT i, 0, wide(i) FROM generate_series(1100001, 1115000) AS i;
CREATE TEMP TABLE reached AS SELECT streamed();
SELECT pg_advisory_lock(1);
SELECT pg_sleep(600);
SQL
$node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted)})
  or die 'the transaction did not come to its middle';
crash_with_worker($node);
finish_sql($open);
wait_for_capture($node);
is(latest('keyed'), $before, 'after a crash nothing is there of transactions that have not committed');
sql($node, q{COMMIT PREPARED 'crash'; CHECKPOINT;});
is(sql($node, "SELECT inserts, updates, deletes FROM stream_versions('keyed', $before + 1)"), '15000|0|0',
	'a prepared one commits afterwards, complete and once');
no_temp_files('after a crash');

#
# All of that is what test_decoding says, too
#
twin_equals($node, since_twin => \@twins);
sql($node, q{SELECT pg_drop_replication_slot('twin')});
for my $table (@twins)
{
	versions_are_dense($node, $table);
	timestamps_increase($node, $table);
	folds_to_table($node, $table);
}

#
# DDL in the middle
#
rises(sql($node, <<'SQL'), 'DDL');
SELECT streamed();
BEGIN;
INSERT INTO altered SELECT i, 0, wide(i), 'x' FROM generate_series(1, 16000) AS i;
SELECT streamed();
ALTER TABLE altered ADD COLUMN added int;
UPDATE altered SET added = id WHERE id % 2 = 0;
SAVEPOINT gone;
ALTER TABLE altered ADD COLUMN never int;
UPDATE altered SET never = 1;
SELECT streamed();
ROLLBACK TO gone;
ALTER TABLE altered DROP COLUMN dropped;
INSERT INTO altered SELECT i, 1, wide(i), i FROM generate_series(20001, 36000) AS i;
SELECT streamed();
ALTER TABLE altered RENAME COLUMN n TO renamed;
UPDATE altered SET renamed = renamed + 1;
SELECT streamed();
ALTER TABLE altered RENAME TO altered_too;
DELETE FROM altered_too WHERE id % 10 = 0;
ALTER TABLE altered_too RENAME TO altered;
COMMIT;
SQL
is(sql($node, q{SELECT inserts, updates, deletes FROM stream_versions('altered', 1)}), '32000|40000|3200', 'one version with all changes before and after DDL');
is(sql($node, <<'SQL'), 0, 'and nothing of a column that was rolled back');
SELECT count(*) FROM stream_events('altered', 1) WHERE new_row ? 'never' OR old_row ? 'never'
SQL
# events have the names of their time; changes read into the row type follow the renamed column
is(sql($node, <<'SQL'), 0, 'changes fold to altered');
SELECT count(*) FROM (
	SELECT r FROM (
		SELECT row_data AS r, CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS s
		FROM stream_changes(NULL::altered)
		UNION ALL SELECT t, -1 FROM altered AS t) AS moves
	GROUP BY r HAVING sum(s) <> 0) AS wrong
SQL

#
# TRUNCATE and a rewrite in the middle: what they do to rows is in the version, at its place
#
for my $case (
	[ 'emptied', 'TRUNCATE emptied', '60000|0|59020' ],
	[ 'rewritten', 'ALTER TABLE rewritten ALTER COLUMN v TYPE varchar(20) USING (v::int + 1)::text', '60000|59020|0' ])
{
	my ($table, $command, $counts) = @$case;
	rises(sql($node, <<"SQL"), $table);
SELECT streamed();
BEGIN;
INSERT INTO $table SELECT i, i FROM generate_series(1001, 30000) AS i;
SELECT streamed();
SAVEPOINT gone;
$command;
INSERT INTO $table SELECT i, i FROM generate_series(30001, 50000) AS i;
SELECT streamed();
ROLLBACK TO gone;
INSERT INTO $table SELECT i, i FROM generate_series(60001, 60010) AS i;
COMMIT;
SQL
	is(sql($node, "SELECT inserts, updates, deletes FROM stream_versions('$table', 1)"), '29010|0|0', "$table: one that is rolled back leaves nothing");
	folds_to_table($node, $table);

	rises(sql($node, <<"SQL"), $table);
SELECT streamed();
BEGIN;
INSERT INTO $table SELECT i, i FROM generate_series(100001, 130000) AS i;
SELECT streamed();
$command;
INSERT INTO $table SELECT i, i FROM generate_series(200001, 230000) AS i;
SELECT streamed();
COMMIT;
INSERT INTO $table VALUES (300000, 7);
SQL
	is(sql($node, "SELECT inserts, updates, deletes FROM stream_versions('$table', 2, 2)"), $counts, "$table: all rows that there were are in it");
	is(sql($node, "SELECT _change_type, _commit_version, row_data ->> 'id' FROM stream_changes('$table'::regclass, 3)"), 'insert|3|300000',
		"$table: the next version is readable");
	folds_to_table($node, $table);
}
is(sql($node, 'SELECT count(*) FROM streamcdc.inbox'), 0, 'nothing is left in the inbox');

#
# stream_track in the middle of a big transaction
#
rises(sql($node, <<'SQL'), 'stream_track');
CREATE TEMP TABLE n AS SELECT streamed();
TABLE n;
BEGIN;
INSERT INTO late SELECT i, wide(i) FROM generate_series(1, 15000) AS i;
INSERT INTO keyed SELECT i, 0, wide(i) FROM generate_series(1200001, 1212000) AS i;
SELECT streamed();
DO $$ BEGIN PERFORM stream_track('late'), stream_track('late_without', baseline => false); END $$;
INSERT INTO late SELECT i, wide(i) FROM generate_series(15001, 30000) AS i;
INSERT INTO late_without SELECT i, wide(i) FROM generate_series(1, 15000) AS i;
SAVEPOINT gone;
DELETE FROM late;
DELETE FROM late_without;
ROLLBACK TO gone;
UPDATE late SET v = 'updated' WHERE id % 100 = 0;
DELETE FROM late_without WHERE id % 100 = 0;
COMMIT;
SQL
sync($node);
is(sql($node, q{SELECT count(*), min(_commit_version) FROM stream_changes('late'::regclass)}), '30000|0', 'the baseline has what its own transaction wrote');
sql($node, q{DELETE FROM late WHERE id > 100; DELETE FROM late_without WHERE id > 14000;});
folds_to_table($node, 'late');
is(sql($node, q{SELECT string_agg(inserts || '|' || updates || '|' || deletes, ',' ORDER BY _commit_version) FROM stream_versions('late_without') WHERE _commit_version > 0}),
	'15000|0|150,0|0|990', 'without a baseline, what was written after stream_track is a version');
folds_to_table($node, 'late_without');
folds_to_table($node, 'keyed');
no_temp_files('at the end');

# nobody else's big transactions are in the way when all is over
sql($node, 'DROP EXTENSION streamcdc');
wait_for_no_capture($node, 'nothing is left');

$node->stop;
done_testing();
