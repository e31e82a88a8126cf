# Two-phase commit: a prepared transaction is a version when it is committed,
# complete and once, whatever happens to the server, the worker, the table and
# tracking in between.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('twophase', conf => "max_prepared_transactions = 20\n");
start_extension($node);
sql($node, <<'SQL');
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE u (id int PRIMARY KEY);
CREATE TABLE shaped (id int PRIMARY KEY, v text);
CREATE TABLE untracked (id int);
SQL
twin_slot($node);
track($node, [qw(t u shaped)]);

sub latest
{
	my ($table) = @_;
	return sql($node, "SELECT stream_latest_version('$table')");
}

sub events
{
	my ($table, $version) = @_;
	return sql($node, "SELECT string_agg(_commit_version || left(event, 1) || coalesce(new_row ->> 'id', old_row ->> 'id'), ' ' ORDER BY _commit_version, event_number) FROM stream_events('$table', $version)");
}

# the order of the commits counts, not that of PREPARE; tables written together are one transaction
sql($node, <<'SQL');
BEGIN; INSERT INTO t VALUES (1); SAVEPOINT a; INSERT INTO t VALUES (-1); ROLLBACK TO a; INSERT INTO u VALUES (1); PREPARE TRANSACTION 'one';
BEGIN; INSERT INTO t VALUES (2); PREPARE TRANSACTION 'two';
BEGIN; INSERT INTO t VALUES (-2); PREPARE TRANSACTION 'never';
INSERT INTO t VALUES (3);
SQL
is(events('t', 1), '1i3', 'prepared transactions are no versions');
sql($node, q{ROLLBACK PREPARED 'never'; COMMIT PREPARED 'two'; INSERT INTO t VALUES (4); COMMIT PREPARED 'one'});
is(events('t', 1), '1i3 2i2 3i4 4i1', 'versions are in the order of the commits');
is(sql($node, q{SELECT count(*) FROM stream_versions('t', 4) AS t JOIN stream_versions('u', 1) AS u USING (xid, commit_lsn, commit_time)}), 1, 'one transaction in two tables');
timestamps_increase($node, 't');

# empty ones, and ones in which nothing is left
my $before = latest('t');
sql($node, <<'SQL');
BEGIN; PREPARE TRANSACTION 'nothing'; COMMIT PREPARED 'nothing';
BEGIN; SELECT * FROM t FOR UPDATE; PREPARE TRANSACTION 'locks'; COMMIT PREPARED 'locks';
BEGIN; INSERT INTO untracked VALUES (1); PREPARE TRANSACTION 'other'; COMMIT PREPARED 'other';
BEGIN; SAVEPOINT a; INSERT INTO t VALUES (-3); ROLLBACK TO a; PREPARE TRANSACTION 'left'; COMMIT PREPARED 'left';
BEGIN; PREPARE TRANSACTION 'nothing'; ROLLBACK PREPARED 'nothing';
SQL
is(latest('t'), $before, 'empty prepared transactions make no version');

# a name is used again, from another session, while the worker does not look
my $stopped = signal_worker($node, 'STOP');
for my $n (1 .. 10)
{
	sql($node, "BEGIN; INSERT INTO t VALUES (100 + $n); PREPARE TRANSACTION 'again'");
	sql($node, $n % 2 ? "COMMIT PREPARED 'again'" : "ROLLBACK PREPARED 'again'");
}
kill 'CONT', $stopped;
is(sql($node, q{SELECT string_agg(new_row ->> 'id', ',' ORDER BY _commit_version) FROM stream_events('t') WHERE (new_row ->> 'id')::int > 100}), '101,103,105,107,109',
	'names of prepared transactions that are used again');

# subtransactions, and an error in the middle
sql($node, <<'SQL');
BEGIN;
DO $$ BEGIN FOR i IN 1 .. 300 LOOP
	BEGIN
		INSERT INTO t VALUES (1000 + i);
		IF i % 2 = 0 THEN RAISE division_by_zero; END IF;
	EXCEPTION WHEN division_by_zero THEN NULL;
	END;
END LOOP; END $$;
PREPARE TRANSACTION 'many';
COMMIT PREPARED 'many';
SQL
is(sql($node, q{SELECT inserts FROM stream_versions('t', stream_latest_version('t'))}), 150, 'more subtransactions than are kept in memory');

# DDL, seen by others only when it commits
sql($node, <<'SQL');
BEGIN;
INSERT INTO shaped VALUES (1, 'before');
ALTER TABLE shaped ADD COLUMN w int DEFAULT 5;
INSERT INTO shaped VALUES (2, 'after', 6);
CREATE TABLE born (id int);
PREPARE TRANSACTION 'ddl';
SQL
sql($node, q{INSERT INTO u VALUES (2); CHECKPOINT; INSERT INTO u VALUES (3)});
sync($node);
sql($node, q{COMMIT PREPARED 'ddl'; INSERT INTO shaped VALUES (3, 'later', 7)});
is(sql($node, q{SELECT string_agg(event || coalesce(new_row ->> 'w', '-'), ' ' ORDER BY _commit_version, event_number) FROM stream_events('shaped', 1)}),
	'insert- schema change- insert6 insert7', 'prepared DDL');

twin_equals($node, since_twin => [qw(t u)]);
sql($node, q{SELECT pg_drop_replication_slot('twin')});

#
# Restarts: of the worker, of the server, and crashes, between PREPARE and the end
#
my $id = 2000;
for my $how ('worker', 'crash of the worker', 'restart', 'immediate shutdown', 'kill')
{
	$before = latest('t');
	sql($node, "BEGIN; INSERT INTO t VALUES ($id + 1); SAVEPOINT a; INSERT INTO t VALUES (-$id); ROLLBACK TO a; DELETE FROM t WHERE id = $id; PREPARE TRANSACTION 'on'");
	sql($node, "BEGIN; INSERT INTO t VALUES ($id + 2); PREPARE TRANSACTION 'back'");
	# what follows is in the log already when the prepared ones end
	sql($node, "INSERT INTO u VALUES ($id); CHECKPOINT; INSERT INTO t VALUES ($id + 3)");
	sync($node);
	if ($how eq 'worker')
	{
		my $pid = signal_worker($node, 'TERM');
		$node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)") or die 'the worker does not end';
	}
	elsif ($how eq 'crash of the worker') { crash_with_worker($node) }
	elsif ($how eq 'restart') { $node->restart }
	elsif ($how eq 'immediate shutdown') { $node->stop('immediate'); $node->start }
	else { kill_server($node); $node->start }
	# before or after capture has come back, as it happens
	sql($node, q{ROLLBACK PREPARED 'back'; COMMIT PREPARED 'on'});
	wait_for_capture($node);
	is(events('t', $before + 1), join(' ', $before + 1 . 'i' . ($id + 3), $before + 2 . 'i' . ($id + 1)) . ($id > 2000 ? ' ' . ($before + 2) . "d$id" : ''),
		"$how between PREPARE and COMMIT PREPARED");
	# and once more, now that it is committed
	crash_with_worker($node) if $how eq 'restart';
	$id += 3;
}
versions_are_dense($node, $_) for qw(t u);
folds_to_table($node, $_) for qw(t u);
changes_fold_to_table($node, 'shaped');

#
# stream_track and stream_untrack beside prepared transactions, and in one
#
sql($node, 'CREATE TABLE late (id int PRIMARY KEY, v text); CREATE TABLE other (id int PRIMARY KEY); INSERT INTO late VALUES (1, \'old\')');
# one that has written another table writes no more, but its end comes after S
sql($node, q{BEGIN; INSERT INTO untracked VALUES (1); INSERT INTO t VALUES (5000); PREPARE TRANSACTION 'beside'});
# one that has written the table keeps stream_track waiting; that can be interrupted, and leaves nothing
sql($node, q{BEGIN; INSERT INTO late VALUES (2, 'prepared'); PREPARE TRANSACTION 'before'});
fails_with($node, q{SET lock_timeout = '300ms'; SELECT stream_track('late')}, '55P03', qr/lock timeout/, 'stream_track waits for a prepared transaction that has written the table, interruptibly');
is(sql($node, q{SELECT count(*) FROM stream_tables WHERE table_name = 'late'}), 0, 'and has done nothing then');
my $waiting = background_sql($node, q{SELECT stream_track('late')});
$node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'late'::regclass AND NOT granted)}) or die 'nobody waits';
sql($node, q{COMMIT PREPARED 'before'});
my ($ok, undef, $errors) = finish_sql($waiting);
ok($ok, 'when it ends, the table is tracked') or diag($errors);
sync($node);
sql($node, q{INSERT INTO late VALUES (3, 'new')});
sync($node);
is(events('late', 0), '0i1 0i2 1i3', 'its rows are in the baseline');
sql($node, q{COMMIT PREPARED 'beside'});
folds_to_table($node, $_) for qw(late t);

# stream_track itself is prepared: committed, rolled back, with a crash before
sql($node, q{BEGIN; INSERT INTO other VALUES (1); SELECT stream_track('other'); INSERT INTO other VALUES (2); PREPARE TRANSACTION 'tracks'});
fails_with($node, q{SET lock_timeout = '300ms'; INSERT INTO other VALUES (3)}, '55P03', qr/lock timeout/, 'stream_track in a prepared transaction: the table is locked until it ends');
sql($node, q{INSERT INTO t VALUES (5001)});
sync($node);
crash_with_worker($node);
wait_for_capture($node);
sql($node, q{COMMIT PREPARED 'tracks'; INSERT INTO other VALUES (4)});
sync($node);
is(status($node, 'other'), 'streaming', 'it takes effect with COMMIT PREPARED');
folds_to_table($node, 'other');
sql($node, q{BEGIN; SELECT stream_untrack('other'); PREPARE TRANSACTION 'untracks'});
sql($node, q{ROLLBACK PREPARED 'untracks'; INSERT INTO other VALUES (5)});
folds_to_table($node, 'other');
sql($node, q{BEGIN; DELETE FROM other WHERE id = 5; DROP TABLE other; PREPARE TRANSACTION 'drops'});
sql($node, q{INSERT INTO t VALUES (5002)});
sync($node);
sql($node, q{COMMIT PREPARED 'drops'});
is(sql($node, q{SELECT string_agg(left(event, 1) || coalesce(new_row ->> 'id', old_row ->> 'id'), ' ' ORDER BY event_number) FROM stream_events('other', (SELECT last_version FROM stream_tables WHERE table_name LIKE 'other (dropped%'))}),
	'd5', 'a prepared DROP TABLE: what it did before is in the log');

# the first table of all, by a prepared transaction
sql($node, 'SELECT stream_untrack(relid) FROM streamcdc.streams WHERE state IN (\'l\', \'g\')');
wait_for_no_capture($node, 'nothing is tracked');
sql($node, q{CREATE TABLE first (id int PRIMARY KEY); BEGIN; INSERT INTO first VALUES (1); SELECT stream_track('first'); PREPARE TRANSACTION 'first'});
$node->restart;
sql($node, q{ROLLBACK PREPARED 'first'});
wait_for_no_capture($node, 'a prepared stream_track, the first of all, is rolled back after a restart');
sql($node, q{BEGIN; INSERT INTO first VALUES (1); SELECT stream_track('first'); INSERT INTO first VALUES (2); PREPARE TRANSACTION 'first'});
kill_server($node);
$node->start;
sql($node, q{COMMIT PREPARED 'first'; INSERT INTO first VALUES (3)});
sync($node);
is(status($node, 'first'), 'streaming', 'or committed after a crash');
folds_to_table($node, 'first');

# an open prepared transaction, and the first table: visible why it takes time, and over when it ends
sql($node, 'SELECT stream_untrack(\'first\')');
wait_for_no_capture($node, 'nothing is tracked');
sql($node, q{BEGIN; INSERT INTO untracked VALUES (2); PREPARE TRANSACTION 'holds'});
sql($node, q{SELECT stream_track('first'); INSERT INTO first VALUES (4)});
is(sql($node, q{SELECT query FROM pg_stat_activity WHERE backend_type = 'streamcdc capture'}), 'creating the replication slot, waiting for older transactions',
	'an open prepared transaction holds up the first table, and pg_stat_activity says so');
# the worker is ended in that very moment, by an administrator and by a crash
signal_worker($node, 'TERM');
worker_pid($node);
sql($node, q{INSERT INTO first VALUES (5)});
crash_with_worker($node);
worker_pid($node);
sql($node, q{INSERT INTO first VALUES (6); COMMIT PREPARED 'holds'; INSERT INTO first VALUES (7)});
sync($node);
folds_to_table($node, 'first');
is(slots($node), 1, 'and there is one slot');

$node->stop;
done_testing();
