# The traps of logical decoding that design.md section 3 marks with [T], and
# what else breaks the continuity of a log: each is laid here.
use strict;
use warnings;
use File::Path qw(rmtree);
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('traps', streaming => 1);
$node->start;

#
# A subscription to a FOR ALL TABLES publication runs undisturbed (3.3).  It is there before the extension is.
#
my $subscriber = new_node('subscriber', conf => "shared_preload_libraries = ''");
$subscriber->start;
for my $n ($node, $subscriber)
{
	sql($n, 'CREATE TABLE published (id int PRIMARY KEY, v text)');
}
sql($node, "INSERT INTO published VALUES (1, 'before'); CREATE PUBLICATION everything FOR ALL TABLES");
sql($subscriber,
	"CREATE SUBSCRIPTION everything CONNECTION '" . $node->connstr . " dbname=postgres' PUBLICATION everything");
$subscriber->poll_query_until('postgres', "SELECT count(*) = 1 FROM published") or die 'no initial copy';
$subscriber->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_subscription_rel WHERE srsubstate <> 'r'")
  or die 'the subscription is not ready';
my $apply = 'SELECT pid FROM pg_stat_subscription WHERE subname = \'everything\' AND relid IS NULL';
my $apply_pid = sql($subscriber, $apply);

start_extension($node);
# version 0 is in it, then updates, a TRUNCATE and a rewrite, a stream that ends: all that writes our tables
track($node, ['published']);
sql($node, <<'SQL');
INSERT INTO published SELECT i, repeat(md5(i::text), 100) FROM generate_series(2, 500) AS i;
UPDATE published SET v = 'after' WHERE id % 2 = 0;
SQL
sync($node);
sql($node, 'CREATE TABLE ended (id int PRIMARY KEY); SELECT stream_track(\'ended\')');
sql($subscriber, 'CREATE TABLE ended (id int PRIMARY KEY)');
sync($node);
sql($node, 'INSERT INTO ended VALUES (0); TRUNCATE ended; INSERT INTO ended VALUES (1); ALTER TABLE ended ALTER COLUMN id TYPE bigint USING id + 1');
sync($node);
sql($node, 'SELECT stream_untrack(\'ended\')');
sql($node, 'DELETE FROM published WHERE id % 3 = 0');
sync($node);
$node->wait_for_catchup('everything');
is(sql($subscriber, 'SELECT count(*), count(*) FILTER (WHERE v = \'after\') FROM published'),
	sql($node, 'SELECT count(*), count(*) FILTER (WHERE v = \'after\') FROM published'),
	'rows arrive at the subscriber of a FOR ALL TABLES publication');
is(sql($subscriber, $apply), $apply_pid, 'its worker has been up all the time');
unlike(slurp_file($subscriber->logfile), qr{streamcdc\.}, 'and has never heard of our tables');
folds_to_table($node, 'published');
sql($subscriber, 'DROP SUBSCRIPTION everything');
$subscriber->stop;

#
# No session's snapshot takes the worker's transactions for finished ones (3.8, feasibility.md 0.2): the worker is held between
# writing the log and its commit, while a later transaction ends and a session looks at the log.
#
sql($node, 'CREATE TABLE delayed (id int PRIMARY KEY); CREATE TABLE noise (id int, filler text)');
track($node, ['delayed']);
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE streamcdc.positions IN EXCLUSIVE MODE;');
sql($node, 'INSERT INTO delayed SELECT generate_series(1, 5)');
wait_for_lock_of_worker($node, 'streamcdc.positions');
sql($node, 'INSERT INTO noise SELECT i FROM generate_series(1, 10) AS i');
# reads every row of the log, and would stamp those of a transaction that it thinks has failed
sql($node, 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM streamcdc.blocks');
sql($node, 'VACUUM streamcdc.blocks');
$holder->query_safe('ROLLBACK;');
$holder->quit;
sync($node);
is(sql($node, 'SELECT count(*) FROM stream_events(\'delayed\') WHERE event = \'insert\''), 5,
	'rows that the log held before a later transaction ended are still there');

#
# The output plugin is the capture worker's alone (3.8)
#
my $slot = slot_name($node);
{
	my ($status, $out, $err) = $node->psql('postgres', q{SELECT pg_create_logical_replication_slot('x', 'streamcdc')});
	isnt($status, 0, 'the output plugin is refused by the server as it is');
	like($err, qr/streamcdc/, 'with an error that names it');
}
SKIP:
{
	skip 'this server has no output_plugin_libraries', 2
	  unless sql($node, q{SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'});
	fails_with($node,
		q{SET output_plugin_libraries = pgoutput, test_decoding, streamcdc; SELECT pg_create_logical_replication_slot('x', 'streamcdc')},
		'0A000', qr/cannot be used outside of its capture worker.*HINT:/s,
		'and by itself where the server lets it in');
	my ($status, $out, $err) = $node->psql('postgres',
		q{CREATE_REPLICATION_SLOT x LOGICAL streamcdc}, replication => 'database',
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	isnt($status, 0, 'and over the replication protocol');
}
is(sql($node, q{SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'x'}), 0, 'no slot is left of that');
is(sql($node, q{SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries' AND setting LIKE '%streamcdc%'}),
	0, 'the server-wide list is as it was');

#
# What is tracked is known at each change, not at each transaction (3.10)
#
sql($node, <<'SQL');
CREATE TABLE other (id int PRIMARY KEY);
CREATE TABLE midway (id int PRIMARY KEY, v text);
CREATE TABLE midway_full (id int PRIMARY KEY, v text);
CREATE TABLE within (id int PRIMARY KEY, v text);
CREATE TABLE several_1 (id int PRIMARY KEY);
CREATE TABLE several_2 (id int);
CREATE TABLE twice (id int PRIMARY KEY);
INSERT INTO midway VALUES (0, 'old');
SQL
track($node, ['other']);
# one of them is known to capture as untracked, and stream_track changes nothing else about it
sql($node, 'ALTER TABLE midway_full REPLICA IDENTITY FULL; INSERT INTO midway_full VALUES (0, \'old\')');
sync($node);
for my $table ('midway', 'midway_full')
{
	my $before = sql($node, 'SELECT count(*) FROM other');
	my $open = $node->background_psql('postgres');
	# it has written a tracked table and an untracked one, so decoding has begun with it
	$open->query_safe("BEGIN; INSERT INTO other VALUES ($before + 1); INSERT INTO noise VALUES (1);");
	sql($node, "INSERT INTO other VALUES ($before + 2)");
	sync($node);
	sql($node, "SELECT stream_track('$table')");
	$open->query_safe("INSERT INTO $table VALUES (1, 'new'); COMMIT;");
	$open->quit;
	sync($node);
	is(sql($node, "SELECT string_agg(row_data ->> 'v', ',' ORDER BY row_data ->> 'id') FROM stream_changes('$table')"),
		'old,new', "$table: tracked while the transaction that writes it was already running");
	is(sql($node, "SELECT count(*) FROM stream_changes('other')"), $before + 2, "$table: and the table that this transaction wrote before");
	folds_to_table($node, $table);
	# what was cached as tracked is not any more
	sql($node, "SELECT stream_untrack('$table'); INSERT INTO $table VALUES (2, 'untracked'); SELECT stream_track('$table', baseline => false); INSERT INTO $table VALUES (3, 'again')");
	sync($node);
	is(sql($node, "SELECT string_agg(row_data ->> 'v', ',') FROM stream_changes('$table')"), 'again', "$table: nothing of the time when it was untracked");
}

# the same decoded in one go, with nothing between the two transactions that would make capture look again by itself
sql($node, 'CREATE TABLE at_once (id int PRIMARY KEY, v text); ALTER TABLE at_once REPLICA IDENTITY FULL; INSERT INTO at_once VALUES (0, \'old\')');
sync($node);
my $open = $node->background_psql('postgres');
$open->query_safe("BEGIN; INSERT INTO noise VALUES (1);");
my $stopped = signal_worker($node, 'STOP');
# a transaction is decoded before it that fills the cache anew
sql($node, 'INSERT INTO at_once VALUES (1, \'unseen\'); SELECT stream_track(\'at_once\', baseline => false)');
$open->query_safe("INSERT INTO at_once VALUES (2, 'new'); COMMIT;");
$open->quit;
kill 'CONT', $stopped;
sync($node);
is(sql($node, "SELECT string_agg(row_data ->> 'v', ',') FROM stream_changes('at_once')"), 'new',
	'tracked and written by a transaction already running, decoded in one go');

sql($node, <<'SQL');
BEGIN;
INSERT INTO within VALUES (1, 'before');
SELECT stream_track('within');
INSERT INTO within VALUES (2, 'after');
UPDATE within SET v = 'updated' WHERE id = 1;
COMMIT;
SELECT stream_sync();
INSERT INTO within VALUES (3, 'later');
SQL
sync($node);
folds_to_table($node, 'within');
versions_are_dense($node, 'within');
is(sql($node, 'SELECT count(*) FROM stream_events(\'within\') WHERE _commit_version > 0'), 1,
	'rows written with stream_track in one transaction belong to the baseline');

sql($node, <<'SQL');
BEGIN;
SELECT stream_track('several_1'), stream_track('several_2', baseline => false);
INSERT INTO several_1 VALUES (1);
COMMIT;
SELECT stream_sync();
BEGIN;
INSERT INTO several_1 VALUES (2);
INSERT INTO several_2 VALUES (2);
COMMIT;
SQL
sync($node);
folds_to_table($node, $_) for qw(several_1 several_2);
is(sql($node, <<'SQL'), 't', 'of several tables tracked in one transaction each has its version of the next');
SELECT a.xid = b.xid AND a._commit_version = 1 AND b._commit_version = 1
FROM stream_versions('several_1') AS a, stream_versions('several_2') AS b WHERE a._commit_version = 1
SQL

# untracked and tracked again at once: other versions, and no mixing of the two streams
track($node, ['twice']);
sql($node, 'INSERT INTO twice VALUES (1)');
sync($node);
my $last = sql($node, 'SELECT stream_latest_version(\'twice\')');
sql($node, 'BEGIN; SELECT stream_untrack(\'twice\'); INSERT INTO twice VALUES (2); SELECT stream_track(\'twice\'); COMMIT; INSERT INTO twice VALUES (3)');
sync($node);
my $first = sql($node, 'SELECT first_version FROM stream_tables WHERE table_name = \'twice\'');
cmp_ok($first, '>', $last, 'versions of a table tracked again come after the old ones');
versions_are_dense($node, 'twice', $first);
folds_to_table($node, 'twice');

#
# Rows are read with the columns that they had (3.9): all of it is decoded after the last of the changes
#
sql($node, 'CREATE TABLE altered (id int PRIMARY KEY, a text, b int); INSERT INTO altered VALUES (1, \'base\', 1)');
track($node, ['altered']);
$stopped = signal_worker($node, 'STOP');
sql($node, <<'SQL');
INSERT INTO altered VALUES (2, 'two', 2);
ALTER TABLE altered ADD COLUMN c int DEFAULT 7;
INSERT INTO altered VALUES (3, 'three', 3, 3);
UPDATE altered SET b = 20 WHERE id = 2;
ALTER TABLE altered DROP COLUMN a;
UPDATE altered SET b = 10 WHERE id = 1;
ALTER TABLE altered RENAME COLUMN b TO bb;
INSERT INTO altered VALUES (4, 4, 4);
BEGIN;
INSERT INTO altered VALUES (5, 5, 5);
ALTER TABLE altered ADD COLUMN d text DEFAULT 'new';
UPDATE altered SET d = 'changed' WHERE id = 5;
SAVEPOINT s;
ALTER TABLE altered ADD COLUMN e int;
INSERT INTO altered VALUES (6, 6, 6, 'gone', 6);
ROLLBACK TO s;
ALTER TABLE altered DROP COLUMN c;
DELETE FROM altered WHERE id = 5;
INSERT INTO altered VALUES (7, 7, 'seven');
COMMIT;
SQL
kill 'CONT', $stopped;
sync($node);
my $keys = sub {
	my ($condition, $row) = @_;
	return sql($node, <<"SQL");
SELECT string_agg(k, ',' ORDER BY n)
FROM (SELECT * FROM stream_events('altered') WHERE $condition AND $row IS NOT NULL ORDER BY _commit_version, event_number LIMIT 1) AS e,
	 jsonb_object_keys(e.$row) WITH ORDINALITY AS k(k, n)
SQL
};
is($keys->('_commit_version = 0', 'new_row'), 'a,b,id', 'the baseline has the columns of its time');
is($keys->('_commit_version = 1', 'new_row'), 'a,b,id', 'rows written before ADD COLUMN have not got it');
is($keys->('_commit_version = 2', 'new_row'), 'a,b,c,id', 'rows written after it have');
is(sql($node, 'SELECT old_row ->> \'c\' FROM stream_events(\'altered\', 3, 3) WHERE event = \'update\''), '7',
	'an old row has the default that the column was added with');
is($keys->('_commit_version = 4', 'new_row'), 'b,c,id', 'not those after DROP COLUMN');
is($keys->('_commit_version = 5', 'new_row'), 'c,bb,id', 'the new name after RENAME');
is($keys->('_commit_version = 6 AND event = \'insert\'', 'new_row'), 'c,bb,id', 'inside of one transaction: before');
is($keys->('_commit_version = 6 AND event = \'update\'', 'new_row'), 'c,d,bb,id', 'between');
is($keys->('_commit_version = 6 AND event = \'delete\'', 'old_row'), 'd,bb,id', 'and after');
is(sql($node, 'SELECT string_agg(_commit_version::text, \',\' ORDER BY _commit_version) FROM stream_events(\'altered\') WHERE event = \'schema change\''),
	'2,4,5,6,6', 'markers say where the columns changed');
versions_are_dense($node, 'altered');
# the typed form has today's columns in every version
is(sql($node, <<'SQL'), '0', 'changes mapped to the columns of today fold to the table');
WITH moves AS (
	SELECT CASE _change_type WHEN 'insert' THEN 1 ELSE -1 END AS s, row_data AS r FROM stream_changes(NULL::altered)
), folded AS (SELECT (m.r).* FROM (SELECT r, sum(s) AS n FROM moves GROUP BY r) AS m, generate_series(1, m.n))
SELECT count(*) FROM ((TABLE folded EXCEPT ALL TABLE altered) UNION ALL (TABLE altered EXCEPT ALL TABLE folded)) AS x
SQL

#
# A commit record that starts exactly at the stored position is not skipped (3.11).  The worker is held while it writes one
# position, and again while it writes the next; then it has to start again from the first.
#
sql($node, 'CREATE TABLE at_position (id int PRIMARY KEY)');
track($node, ['at_position']);
my $exact = 0;
my $tries = 0;
while (!$exact && $tries++ < 20)
{
	my $a = $node->background_psql('postgres');
	my ($first_lock, $second_lock) = ($node->background_psql('postgres'), $node->background_psql('postgres'));
	my $id = 10 * $tries;
	# quiet: a record of running transactions in between would spoil it
	sql($node, 'CHECKPOINT');
	sync($node);
	$first_lock->query_safe('BEGIN; LOCK TABLE streamcdc.blocks IN SHARE MODE;');
	$a->query_safe("BEGIN; INSERT INTO at_position VALUES ($id + 1);");
	my $xid = $a->query_safe('SELECT pg_current_xact_id()');
	sql($node, "INSERT INTO at_position VALUES ($id)");
	wait_for_lock_of_worker($node, 'streamcdc.blocks');
	$a->query_safe('COMMIT;');
	# comes after the worker, which is waiting already
	$second_lock->query_until(qr/asked/, "\\echo asked\nBEGIN; LOCK TABLE streamcdc.blocks IN SHARE MODE;\n");
	$node->poll_query_until('postgres',
		q{SELECT count(*) = 1 FROM pg_locks WHERE mode = 'ShareLock' AND NOT granted AND relation = 'streamcdc.blocks'::regclass})
	  or die 'nobody waits';
	$first_lock->query_safe('ROLLBACK;');
	$node->poll_query_until('postgres',
		q{SELECT count(*) = 1 FROM pg_locks WHERE mode = 'ShareLock' AND granted AND relation = 'streamcdc.blocks'::regclass})
	  or die 'the worker has not written the first position';
	wait_for_lock_of_worker($node, 'streamcdc.blocks');
	my $position = sql($node, 'SELECT max(lsn) FROM streamcdc.positions');
	my ($waldump) = run_command([ 'pg_waldump', '-p', $node->data_dir . '/pg_wal', '-s', $position, '-n', '1' ]);
	$exact = 1 if $waldump =~ /rmgr: Transaction .* tx: +$xid, .*desc: COMMIT/;

	my $pid = worker_pid($node);
	sql($node, "SELECT pg_terminate_backend($pid)");
	$node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)")
	  or die 'the worker does not end';
	$second_lock->query_safe('ROLLBACK;');
	$_->quit for $a, $first_lock, $second_lock;
	wait_for_capture($node);
}
ok($exact, 'a commit record started exactly at the stored position');
is(sql($node, 'SELECT count(*), count(DISTINCT new_row) FROM stream_events(\'at_position\')'),
	join('|', 2 * $tries, 2 * $tries), 'and is in the log, once, after the worker has started again from there');
versions_are_dense($node, 'at_position');
folds_to_table($node, 'at_position');

# the same without arrangement: a worker that is ended again and again
my $load = start_pgbench($node,
	["\\set r random(1000, 1000000)\nINSERT INTO at_position VALUES (:r) ON CONFLICT DO NOTHING;\nINSERT INTO other VALUES (:r) ON CONFLICT DO NOTHING;\n"],
	4);
my $ended = 0;
while ($load->{run}->pumpable)
{
	$load->{run}->pump_nb;
	$ended++ if sql($node, q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'streamcdc capture'});
}
my ($ok, $output) = finish_pgbench($load);
ok($ok, 'transactions do not mind that the worker is ended') or diag($output);
cmp_ok($ended, '>', 5, 'which it was');
wait_for_capture($node);
for my $table (qw(at_position other))
{
	versions_are_dense($node, $table);
	folds_to_table($node, $table);
}

#
# Images are never incomplete without saying so (3.14)
#
sql($node, 'CREATE TABLE identity (id int PRIMARY KEY, v text); INSERT INTO identity VALUES (1, \'a\')');
track($node, ['identity']);
sql($node, <<'SQL');
INSERT INTO identity VALUES (2, 'b');
ALTER TABLE identity REPLICA IDENTITY DEFAULT;
UPDATE identity SET v = 'c' WHERE id = 2;
SQL
sync($node);
fails_with($node, q{SELECT * FROM stream_changes('identity')}, '55000', qr/version 2\b/,
	'events with missing columns are an error that names the version');
fails_with($node, q{SELECT * FROM stream_events('identity')}, '55000', qr/version 2\b/, 'for events as well');
is(sql($node, q{SELECT count(*) FROM stream_changes('identity', 0, 1)}), 2, 'versions before it can be read');

#
# TRUNCATE that is not recorded is a gap (3.15); what is recorded is in 030_truncate.pl and 031_rewrite.pl
#
sql($node, <<'SQL');
CREATE TABLE emptied (id int PRIMARY KEY);
INSERT INTO emptied VALUES (1);
SELECT stream_track('emptied', on_truncate => 'gap');
SQL
sync($node);
sql($node, <<'SQL');
INSERT INTO emptied VALUES (2);
TRUNCATE emptied;
INSERT INTO emptied VALUES (3);
SQL
sync($node);
fails_with($node, 'SELECT * FROM stream_changes(\'emptied\')', '55000', qr/version 2\b/, 'a range with the gap is refused');
fails_with($node, 'SELECT * FROM stream_changes(\'emptied\', 2, 2)', '55000', qr/version 2\b/, 'the gap itself too');
fails_with($node, 'SELECT * FROM stream_changes(\'emptied\', 1, 3, deduplication_mode => \'netChanges\')', '55000',
	qr/version 2\b/, 'in every mode');
is(sql($node, 'SELECT count(*) FROM stream_changes(\'emptied\', 0, 1)'), 2, 'what is before it can be read');
is(sql($node, 'SELECT row_data ->> \'id\' FROM stream_changes(\'emptied\', 3)'), 3, 'what comes after it as well');
is(sql($node, q{SELECT event FROM stream_events('emptied', 2, 2)}), 'truncate', 'the marker of a TRUNCATE');
is(sql($node, q{SELECT count(*) FROM stream_versions('emptied')}), 4, 'versions are listed across a gap');
# repair for now
sql($node, q{SELECT stream_untrack('emptied'); SELECT stream_track('emptied')});
sync($node);
folds_to_table($node, 'emptied');

#
# DROP TABLE keeps the log for its last owner
#
sql($node, <<'SQL');
CREATE ROLE owner_1 LOGIN;
CREATE ROLE stranger LOGIN;
GRANT CREATE ON SCHEMA public TO owner_1;
CREATE TABLE dropped (id int PRIMARY KEY, v text);
ALTER TABLE dropped OWNER TO owner_1;
GRANT SELECT ON dropped TO stranger;
SQL
track($node, ['dropped']);
sql($node, q{INSERT INTO dropped VALUES (1, 'a'); UPDATE dropped SET v = 'b'; DROP TABLE dropped});
wait_for($node, q{1 = (SELECT count(*) FROM stream_tables WHERE table_name LIKE 'dropped (dropped %)' AND status = 'dropped')},
	'a dropped table is listed as dropped');
sync($node);
is($node->safe_psql('postgres', q{SET client_min_messages = warning; SELECT count(*) FROM stream_events('dropped')},
	extra_params => [ '-U', 'owner_1' ]), 2, 'its last owner reads its log under its name');
fails_with($node, q{SELECT count(*) FROM stream_events('dropped')}, '42501', qr/last owner/, 'nobody else does', user => 'stranger');
sql($node, q{CREATE TABLE dropped (id int PRIMARY KEY)});
fails_with($node, q{SELECT * FROM stream_changes('dropped')}, '0A000', qr/CHANGE_DATA_CAPTURE_ON_RELATION.*HINT:.*dropped \(dropped \d+\)/s,
	'the name means the new table, and the hint names the old one');
track($node, ['dropped']);
sql($node, q{INSERT INTO dropped VALUES (7)});
sync($node);
folds_to_table($node, 'dropped');
is(sql($node, q{SELECT count(*) FROM stream_tables, stream_events(table_name) WHERE status = 'dropped'}), 2,
	'the old log goes by its number');

#
# The slot is a hint, and its loss is loud (I8).  Each time the streams get a gap, readers an error, and nothing is created anew.
#
sql($node, 'CREATE TABLE lost (id int PRIMARY KEY, v text); INSERT INTO lost VALUES (1, \'base\')');

# before each case: tracked, one version after the baseline
sub prepare_loss
{
	sql($node, q{SELECT stream_untrack('lost') FROM streamcdc.streams WHERE relid = 'lost'::regclass AND state IN ('l', 'g')});
	track($node, ['lost']);
	sql($node, q{UPDATE lost SET v = v || '+'});
	sync($node);
	return sql($node, q{SELECT stream_latest_version('lost')});
}

# after it; REASON is what last_error says
sub check_loss
{
	my ($what, $newest, $reason) = @_;
	wait_for_status($node, 'lost', 'gap');
	like(sql($node, q{SELECT last_error FROM stream_tables WHERE table_name = 'lost'}), $reason, "$what: last_error says why");
	fails_with($node, q{SELECT * FROM stream_changes('lost')}, '55000', $reason, "$what: readers get an error with the reason");
	fails_with($node, q{SELECT * FROM stream_events('lost')}, '55000', $reason, "$what: of events as well");
	my $first = sql($node, q{SELECT first_version FROM stream_tables WHERE table_name = 'lost'});
	is(sql($node, qq{SELECT count(*) FROM stream_events('lost', $first, $newest) WHERE event IN ('insert', 'update')}), 2,
		"$what: history before it can be read");
	wait_for($node, q{NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name LIKE 'streamcdc%')
					  AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'streamcdc capture')},
		"$what: the slot is given up, and not created anew");
	fails_with($node, q{SELECT stream_track('lost')}, '42710', qr/stream_untrack/, "$what: tracking it again needs stream_untrack first");

	# repair
	sql($node, q{SELECT stream_untrack('lost')});
	track($node, ['lost']);
	my $again = sql($node, q{SELECT first_version FROM stream_tables WHERE table_name = 'lost'});
	cmp_ok($again, '>', $newest, "$what: after untrack and track, versions go on after the old ones");
	sql($node, q{UPDATE lost SET v = v || '-'});
	sync($node);
	is(status($node, 'lost'), 'streaming', "$what: and capture works again");
	versions_are_dense($node, 'lost', $again);
	folds_to_table($node, 'lost');
}

# all others are untracked, so that the slot goes when this one is given up
sql($node, q{SELECT stream_untrack(relid) FROM streamcdc.streams WHERE state IN ('l', 'g')});

# advanced by somebody else, while we could not
my $newest = prepare_loss();
$slot = slot_name($node);
reconfigure($node, "shared_preload_libraries = ''");
sql($node, q{UPDATE lost SET v = 'unseen'});
sql($node, "SELECT pg_replication_slot_advance('$slot', pg_current_wal_lsn())");
fails_with($node, "SET output_plugin_libraries = pgoutput, streamcdc; SELECT * FROM pg_logical_slot_get_changes('$slot', NULL, NULL)",
	'0A000', qr/cannot be used outside of its capture worker/, 'our slot cannot be read by others either');
reconfigure($node, "shared_preload_libraries = 'streamcdc'");
check_loss('slot ahead', $newest, qr/ahead of the change log/);

# lost while the server was down
$newest = prepare_loss();
$node->stop;
rmtree($node->data_dir . "/pg_replslot/$slot");
$node->start;
check_loss('slot missing', $newest, qr/is missing/);

# another one in its place
$newest = prepare_loss();
reconfigure($node, "shared_preload_libraries = ''");
sql($node, "SELECT pg_drop_replication_slot('$slot'); SELECT pg_create_logical_replication_slot('$slot', 'test_decoding')");
reconfigure($node, "shared_preload_libraries = 'streamcdc'");
check_loss('foreign slot', $newest, qr/not the one that streamcdc created/);

# invalidated by the server, because the worker did not get on
$newest = prepare_loss();
sql($node, q{ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'; ALTER SYSTEM SET max_wal_size = '32MB'; ALTER SYSTEM SET wal_keep_size = 0; SELECT pg_reload_conf()});
$stopped = signal_worker($node, 'STOP');
for (1 .. 4)
{
	sql($node, q{INSERT INTO noise SELECT i, repeat('n', 1000) FROM generate_series(1, 2000) AS i; SELECT pg_switch_wal()});
}
my $checkpoint = background_sql($node, 'CHECKPOINT');
# the checkpoint asks the worker to let go of the slot, and waits for it
$node->wait_for_log(qr/terminating process $stopped to release replication slot/);
kill 'CONT', $stopped;
my ($done) = finish_sql($checkpoint);
ok($done, 'the checkpoint ends when the worker does');
sql($node, q{ALTER SYSTEM RESET max_slot_wal_keep_size; SELECT pg_reload_conf()});
check_loss('slot invalidated', $newest, qr/max_slot_wal_keep_size/);

# given up by ourselves, before the disk is full: an open transaction holds back WAL
$newest = prepare_loss();
sql($node, q{ALTER SYSTEM SET streamcdc.max_slot_wal = '40MB'; SELECT pg_reload_conf()});
my $long = $node->background_psql('postgres');
my $long_pid = $long->query_safe('SELECT pg_backend_pid()');
$long->query_safe('BEGIN; INSERT INTO noise VALUES (0);');
for (1 .. 5)
{
	sql($node, q{INSERT INTO noise SELECT i, repeat('n', 1000) FROM generate_series(1, 2000) AS i; SELECT pg_switch_wal(); CHECKPOINT});
}
wait_for_status($node, 'lost', 'gap');
like(sql($node, q{SELECT last_error FROM stream_tables WHERE table_name = 'lost'}), qr/process $long_pid\b/,
	'max_slot_wal: the reason names the process that holds WAL back');
$long->query_safe('COMMIT;');
$long->quit;
sql($node, q{ALTER SYSTEM RESET streamcdc.max_slot_wal; SELECT pg_reload_conf()});
check_loss('max_slot_wal', $newest, qr/streamcdc\.max_slot_wal/);

$node->stop;
done_testing();
