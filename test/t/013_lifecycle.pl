# From the first stream_track to the last stream_untrack: what is missing is
# the caller's error and leaves nothing behind, capture comes back by itself
# after restarts and crashes, and never stands in the way of the server.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('lifecycle', conf => "max_prepared_transactions = 5\n");
start_extension($node);
sql($node, 'CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, \'base\' FROM generate_series(1, 100) AS i;'
	. 'CREATE TABLE u (id int PRIMARY KEY); CREATE TABLE untracked (id int, filler text)');

#
# What the server lacks is the caller's error, names the setting, and leaves nothing half-done
#
my $track = 'SELECT stream_track(\'t\')';

reconfigure($node, "shared_preload_libraries = ''");
fails_with($node, $track, '55000', qr/HINT:.*shared_preload_libraries/s, 'not preloaded');
is_clean($node, 't', 'not preloaded');
reconfigure($node, "shared_preload_libraries = 'streamcdc'\nwal_level = replica");
fails_with($node, $track, '55000', qr/HINT:.*"?wal_level"?.*logical/s, 'wal_level = replica');
is_clean($node, 't', 'wal_level = replica');

reconfigure($node, "wal_level = logical\nmax_replication_slots = 2");
sql($node, 'SELECT pg_create_physical_replication_slot(\'full_\' || i) FROM generate_series(1, 2) AS i');
fails_with($node, $track, '53400', qr/HINT:.*max_replication_slots/s, 'no replication slot is free');
is_clean($node, 't', 'no replication slot is free');
sql($node, 'SELECT pg_drop_replication_slot(\'full_1\')');
track($node, ['t']);
is(status($node, 't'), 'streaming', 'when there is one, the same call works');
sql($node, 'SELECT stream_untrack(\'t\'); SELECT pg_drop_replication_slot(\'full_2\')');
wait_for_no_capture($node, 'untracked: worker, slot and label are gone');
is(sql($node, 'SELECT relreplident FROM pg_class WHERE relname = \'t\''), 'd', 'and the old replica identity is back');
sql($node, 'DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, \'base\' FROM generate_series(1, 100) AS i;');
sql($node, 'DROP EXTENSION streamcdc; CREATE EXTENSION streamcdc');

# our launcher and the server's own leave none
reconfigure($node, "max_replication_slots = 10\nmax_worker_processes = 2");
fails_with($node, $track, '53400', qr/HINT:.*max_worker_processes/s, 'no background worker is free');
is_clean($node, 't', 'no background worker is free');
# one for capture, none for the baseline
reconfigure($node, 'max_worker_processes = 3');
sql($node, $track);
fails_with($node, 'SELECT stream_sync(\'2 s\')', '57014', qr/baseline of table "t"/, 'no worker is free for the baseline: stream_sync times out');
is(status($node, 't'), 'baseline', 'the status says what is awaited');
reconfigure($node, 'max_worker_processes = 24');
wait_for_capture($node);
is(sql($node, 'SELECT count(*) FROM stream_changes(\'t\')'), 100, 'and it is copied when there is one');

#
# Restarts, crashes, and the end
#
$node->restart;
wait_for_capture($node);
sql($node, 'INSERT INTO t VALUES (101, \'after restart\')');
folds_to_table($node, 't');
kill_server($node);
$node->start;
wait_for_capture($node);
sql($node, 'INSERT INTO t VALUES (102, \'after crash\')');
folds_to_table($node, 't');
my $old = signal_worker($node, 'TERM');
wait_for($node, "EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'streamcdc capture' AND pid <> $old)",
	'a worker that was ended comes back');
sql($node, 'INSERT INTO t VALUES (103, \'after SIGTERM\')');
folds_to_table($node, 't');
$old = worker_pid($node);
sql($node, "SELECT pg_cancel_backend($old)");
sql($node, 'INSERT INTO t VALUES (104, \'after cancel\')');
wait_for_capture($node);
folds_to_table($node, 't');

# tables come and go while it runs
track($node, ['u']);
sql($node, 'SELECT stream_untrack(\'t\')');
sql($node, 'INSERT INTO u VALUES (1)');
sync($node);
is(slots($node), 1, 'capture goes on while a table is left');
sql($node, 'SELECT stream_untrack(\'u\')');
wait_for_no_capture($node, 'the last stream_untrack ends it');
# while the server is down the worker cannot see that the last one goes
track($node, ['u']);
$node->restart;
sql($node, 'SELECT stream_untrack(\'u\')');
wait_for_no_capture($node, 'also right after a restart');
sql($node, 'DROP EXTENSION streamcdc; CREATE EXTENSION streamcdc');

#
# Rolled back: nothing has happened
#
sql($node, "BEGIN; $track; INSERT INTO t VALUES (200, 'never'); ROLLBACK");
is_clean($node, 't', 'rollback of the first stream_track');
$node->psql('postgres', "BEGIN; $track; SELECT 1 / 0; COMMIT");
is_clean($node, 't', 'error after the first stream_track');
sql($node, "BEGIN; SAVEPOINT s; $track; ROLLBACK TO s; INSERT INTO u VALUES (2); COMMIT");
is_clean($node, 't', 'rollback to a savepoint before the first stream_track');
# a session that is killed between the two
my $killed = $node->background_psql('postgres', on_error_stop => 0);
my $killed_pid = $killed->query_safe('SELECT pg_backend_pid()');
$killed->query("BEGIN; $track;");
sql($node, "SELECT pg_terminate_backend($killed_pid)");
is_clean($node, 't', 'end of the session after the first stream_track');
$killed->{run}->finish;
# and one that commits right after another has rolled back
my $first = $node->background_psql('postgres', on_error_stop => 0);
$first->query("BEGIN; $track;");
my $second = background_sql($node, 'SELECT stream_track(\'u\')');
$first->query('ROLLBACK;');
$first->quit;
my ($ok, undef, $errors) = finish_sql($second);
ok($ok, 'a table can be tracked while another stream_track is rolled back') or diag($errors);
sync($node);
is(status($node, 'u'), 'streaming', 'and is captured');
is(sql($node, 'SELECT count(*) FROM stream_tables'), 1, 'and alone');
folds_to_table($node, 'u');
sql($node, 'SELECT stream_untrack(\'u\')');
wait_for_no_capture($node, 'untracked');

#
# Older transactions: stream_track does not wait for them, and nobody waits for it (3.13)
#
my $long = $node->background_psql('postgres');
$long->query_safe('BEGIN; INSERT INTO untracked VALUES (1); INSERT INTO u VALUES (3);');
sql($node, 'BEGIN; INSERT INTO untracked VALUES (2); PREPARE TRANSACTION \'open\'');
sql($node, "SET statement_timeout = '20s'; SET lock_timeout = '20s'; $track");
pass('stream_track returns while older transactions are open');
sql($node, 'SET statement_timeout = \'20s\'; INSERT INTO t VALUES (300, \'not blocked\')');
pass('and others commit');
is(status($node, 't'), 'baseline', 'the table waits for them');
fails_with($node, 'SELECT stream_sync(\'500 ms\')', '57014', qr/timed out/, 'so stream_sync does');
# it writes the table that was tracked meanwhile
$long->query_safe('INSERT INTO t VALUES (301, \'long\'); COMMIT;');
$long->quit;
fails_with($node, 'SELECT stream_sync(\'500 ms\')', '57014', qr/timed out/, 'a prepared transaction counts as open');
sql($node, 'COMMIT PREPARED \'open\'');
sync($node);
pass('when they have ended, capture begins');
versions_are_dense($node, 't');
folds_to_table($node, 't');
# prepared transactions that write what is tracked
sql($node, 'BEGIN; INSERT INTO t VALUES (302, \'prepared\'); PREPARE TRANSACTION \'kept\'');
sql($node, 'BEGIN; INSERT INTO t VALUES (303, \'never\'); PREPARE TRANSACTION \'given up\'');
my $before = sql($node, 'SELECT stream_latest_version(\'t\')');
$node->restart;
wait_for_capture($node);
is(sql($node, 'SELECT stream_latest_version(\'t\')'), $before, 'a prepared transaction is no version');
sql($node, 'ROLLBACK PREPARED \'given up\'');
sql($node, 'COMMIT PREPARED \'kept\'');
is(sql($node, 'SELECT row_data ->> \'v\' FROM stream_changes(\'t\', ' . ($before + 1) . ')'), 'prepared',
	'it is one when it is committed, after a restart as well, and not when it is rolled back');
folds_to_table($node, 't');

#
# Idle: the slot moves on although nobody writes what is tracked
#
my $slot = slot_name($node);
sql($node, 'CREATE DATABASE elsewhere');
$node->safe_psql('elsewhere', 'CREATE TABLE busy (id int, filler text)');
for my $db ('postgres', 'elsewhere')
{
	my $table = $db eq 'postgres' ? 'untracked' : 'busy';
	my $aim = sql($node, 'SELECT pg_current_wal_lsn()');
	# each look writes some WAL; a checkpoint logs which transactions run, which is what lets a slot go on
	my $write = "INSERT INTO $table SELECT i, repeat('n', 1000) FROM generate_series(1, 20000) AS i; SELECT pg_switch_wal(); CHECKPOINT";
	my $moved = 0;
	for (1 .. 30)
	{
		$node->safe_psql($db, $write);
		$moved = $node->poll_query_until('postgres',
			"SELECT confirmed_flush_lsn > pg_current_wal_lsn() - 10000000 FROM pg_replication_slots WHERE slot_name = '$slot'")
		  && sql($node, "SELECT restart_lsn > '$aim' FROM pg_replication_slots WHERE slot_name = '$slot'") eq 't';
		last if $moved;
	}
	ok($moved, "the slot moves on with traffic in database $db only");
}
sql($node, 'DROP DATABASE elsewhere; TRUNCATE untracked');

#
# The copy of the baseline is ended in its middle, and begun again
#
sql($node, 'CREATE TABLE big (id int PRIMARY KEY, v text); INSERT INTO big SELECT i, md5(i::text) FROM generate_series(1, 200000) AS i');
# held where it begins to write
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE streamcdc.schemas IN SHARE MODE;');
sql($node, 'SELECT stream_track(\'big\')');
wait_for_lock_of_worker($node, 'streamcdc.schemas', 'baseline');
sql($node, 'UPDATE big SET v = \'changed\' WHERE id % 1000 = 0; DELETE FROM big WHERE id % 1000 = 1');
signal_worker($node, 'TERM', 'baseline');
$holder->query_safe('ROLLBACK;');
$holder->quit;
sync($node);
folds_to_table($node, 'big');
versions_are_dense($node, 'big');
sql($node, 'SELECT stream_untrack(\'big\')');
# in the middle of the rows
debug_point($node, 'baseline-in-copy', 'wait', 'middle');
sql($node, 'SELECT stream_track(\'big\')');
wait_for($node, q{baseline_fraction > 0 AND baseline_fraction < 1 FROM stream_tables WHERE table_name = 'big'}, 'the copy is in its middle');
signal_worker($node, 'TERM', 'baseline');
debug_point($node);
sync($node);
is(sql($node, 'SELECT count(*) FROM stream_changes(\'big\')'), sql($node, 'SELECT count(*) FROM big'), 'it was begun again, and is complete');
is(sql($node, 'SELECT baseline_rows FROM stream_tables WHERE table_name = \'big\''), sql($node, 'SELECT count(*) FROM big'),
	'and stream_tables knows how many rows it has');
versions_are_dense($node, 'big', sql($node, 'SELECT first_version FROM stream_tables WHERE table_name = \'big\''));
# the capture worker dies while it is copied
sql($node, 'SELECT stream_untrack(\'big\'); SELECT stream_track(\'big\')');
signal_worker($node, 'TERM');
wait_for_capture($node);
folds_to_table($node, 'big');
# the table is untracked, and dropped, while it is copied
sql($node, 'SELECT stream_untrack(\'big\'); SELECT stream_track(\'big\')');
sql($node, 'SET lock_timeout = \'20s\'; SELECT stream_untrack(\'big\')');
pass('a table can be untracked while its baseline is copied');
sql($node, 'SELECT stream_track(\'big\')');
sql($node, 'SET statement_timeout = \'20s\'; DROP TABLE big');
pass('and dropped');
sql($node, 'INSERT INTO t VALUES (400, \'goes on\')');
folds_to_table($node, 't');

#
# Shutdown while much is decoded
#
sql($node, 'CREATE TABLE large (id int PRIMARY KEY, v text)');
track($node, ['large']);
$old = signal_worker($node, 'STOP');
sql($node, 'INSERT INTO large SELECT i, md5(i::text) FROM generate_series(1, 500000) AS i');
kill 'CONT', $old;
$node->stop('fast');
# looked at without capture, which goes on at once
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->start;
is(sql($node, q{SELECT max(b.last_version) FROM streamcdc.blocks AS b JOIN streamcdc.streams USING (stream_id) WHERE relid = 'large'::regclass}), 0,
	'a fast shutdown does not wait for decoding');
reconfigure($node, "shared_preload_libraries = 'streamcdc'");
wait_for_capture($node);
is(sql($node, 'SELECT count(*), max(_commit_version) FROM stream_events(\'large\')'), '500000|1', 'which goes on after the start');
sql($node, 'SELECT stream_untrack(\'large\'); DROP TABLE large');

#
# Commands that want a database for themselves (3.16)
#
start_extension($node, 'second');
sql($node, 'CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)', 'second');
track($node, ['t'], 'second');
is(slots($node), 2, 'two databases have a slot each');
sql($node, 'INSERT INTO t VALUES (2)', 'second');
sql($node, 'INSERT INTO t VALUES (500, \'first database\')');
folds_to_table($node, 't', 'second');
folds_to_table($node, 't');

sql($node, 'CREATE DATABASE copy TEMPLATE second');
pass('CREATE DATABASE from a database being captured');
sql($node, 'ALTER DATABASE second RENAME TO renamed');
pass('ALTER DATABASE RENAME of a database being captured');
wait_for_capture($node, 'renamed');
sql($node, 'INSERT INTO t VALUES (3)', 'renamed');
folds_to_table($node, 't', 'renamed');
is(status($node, 't', 'copy'), 'inert', 'a copy is inert');
is(slots($node), 2, 'and has no slot');
sql($node, 'INSERT INTO t VALUES (4)', 'copy');
$node->restart;
wait_for_capture($node, 'renamed');
wait_for_capture($node);
is(sql($node, 'SELECT count(*) FROM pg_stat_activity WHERE backend_type = \'streamcdc capture\' AND datname = \'copy\''),
	0, 'nor a worker');
my $copied = sql($node, 'SELECT last_version FROM stream_tables', 'copy');
sql($node, 'SELECT stream_track(\'t\')', 'copy');
sync($node, 'copy');
is(status($node, 't', 'copy'), 'streaming', 'until it is tracked there');
cmp_ok(sql($node, 'SELECT first_version FROM stream_tables WHERE table_name = \'t\'', 'copy'), '>', $copied // 0, 'its versions go on');
folds_to_table($node, 't', 'copy');
is(slots($node), 3, 'and then it has its own slot');

sql($node, 'DROP DATABASE copy');
pass('DROP DATABASE while capture runs');
sql($node, 'DROP DATABASE renamed WITH (FORCE)');
pass('DROP DATABASE WITH (FORCE) too');
is(slots($node), 1, 'their slots are gone');
is(sql($node, 'SELECT count(*) FROM pg_shseclabel WHERE provider = \'streamcdc\''), 1, 'and their labels');

# a command that fails does no harm
start_extension($node, 'third');
sql($node, 'CREATE TABLE t (id int)', 'third');
track($node, ['t'], 'third');
my $session = $node->background_psql('third');
my ($status) = $node->psql('postgres', 'DROP DATABASE third');
isnt($status, 0, 'DROP DATABASE fails while there are sessions');
$session->quit;
wait_for_capture($node, 'third');
sql($node, 'INSERT INTO t VALUES (1)', 'third');
folds_to_table($node, 't', 'third');
sql($node, 'CREATE ROLE nobody LOGIN');
$old = worker_pid($node, 'capture', 'third');
fails_with($node, 'DROP DATABASE third', '42501', qr/owner/, 'who may not drop a database', user => 'nobody');
is(worker_pid($node, 'capture', 'third'), $old, 'does not stop its worker with it');
sql($node, 'DROP DATABASE third');

#
# DROP EXTENSION while capture runs
#
sql($node, 'SET client_min_messages = warning; DROP EXTENSION streamcdc');
wait_for_no_capture($node, 'DROP EXTENSION');
is(sql($node, 'SELECT count(*) FROM pg_namespace WHERE nspname = \'streamcdc\''), 0, 'nothing of it is left');
sql($node, 'INSERT INTO t VALUES (600, \'without\')');
sql($node, 'CREATE EXTENSION streamcdc');
track($node, ['t']);
sql($node, 'INSERT INTO t VALUES (601, \'with\')');
folds_to_table($node, 't');
# rolled back
sql($node, 'BEGIN; DROP EXTENSION streamcdc; ROLLBACK');
wait_for_capture($node);
sql($node, 'INSERT INTO t VALUES (602, \'still\')');
folds_to_table($node, 't');
# and while it is down
reconfigure($node, "shared_preload_libraries = ''");
sql($node, 'DROP EXTENSION streamcdc');
reconfigure($node, "shared_preload_libraries = 'streamcdc'");
wait_for_no_capture($node, 'DROP EXTENSION without the library');

$node->stop;
done_testing();
