# Rows that a subscription applies are captured like any others, with the
# origin they come from; and a tracked table can be published at the same time.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $conf = "max_prepared_transactions = 10\nlogical_decoding_work_mem = 64kB\n";
my $publisher = new_node('publisher', streaming => 1, conf => "shared_preload_libraries = ''\n$conf");
my $node = new_node('subscriber', streaming => 1, conf => $conf);
$publisher->start;
start_extension($node);

my $tables = <<'SQL';
CREATE TABLE early (id int PRIMARY KEY, v text);
CREATE TABLE late (id int PRIMARY KEY, v text, big text);
CREATE TABLE by_index (a int NOT NULL, b text);
CREATE UNIQUE INDEX by_index_a ON by_index (a);
ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_a;
CREATE TABLE by_row (a int, b numeric(10, 2), c timestamptz);
ALTER TABLE by_row REPLICA IDENTITY FULL;
CREATE TABLE parents (id int PRIMARY KEY);
CREATE TABLE children (id int PRIMARY KEY, parent int REFERENCES parents ON DELETE CASCADE);
CREATE TABLE large (id int PRIMARY KEY, v text);
CREATE TABLE filtered (id int PRIMARY KEY, v text);
SQL
sql($publisher, $tables . 'ALTER TABLE late ALTER big SET STORAGE EXTERNAL; INSERT INTO early VALUES (1, \'copied\'); INSERT INTO late VALUES (1, \'copied\', repeat(\'x\', 5000)); INSERT INTO filtered VALUES (1, \'copied\'), (-1, \'not\');');
sql($publisher, 'CREATE TABLE split (a int PRIMARY KEY, b text); INSERT INTO split VALUES (1, \'copied\')');
sql($node, <<'SQL');
CREATE TABLE split (a int NOT NULL, b text) PARTITION BY RANGE (a);
CREATE TABLE split_1 (b text, a int NOT NULL);
ALTER TABLE split ATTACH PARTITION split_1 FOR VALUES FROM (1) TO (100);
CREATE UNIQUE INDEX split_1_a ON split_1 (a);
ALTER TABLE split_1 REPLICA IDENTITY USING INDEX split_1_a;
SQL
# the subscriber's table has columns of its own
sql($node, $tables . 'ALTER TABLE late ADD COLUMN here timestamptz DEFAULT \'2020-01-01\', ADD COLUMN twice int GENERATED ALWAYS AS (id * 2) STORED; ALTER TABLE late ALTER big SET STORAGE EXTERNAL');
my @tables = qw(early late by_index by_row parents children large filtered);

# one is tracked before the subscription copies its rows, the others afterwards
track($node, ['early']);
sql($publisher, 'CREATE PUBLICATION all_of_it FOR TABLE early, late, split, by_index, by_row, parents, children, large, filtered WHERE (id > 0)');
sql($node, "CREATE SUBSCRIPTION sub CONNECTION '" . $publisher->connstr . " dbname=postgres' PUBLICATION all_of_it WITH (streaming = on)");
$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_subscription_rel WHERE srsubstate <> 'r'") or die 'the subscription is not ready';
fails_with($node, q{SELECT stream_track('by_index')}, '55000', qr/subscription writes into it.*HINT:.*primary key/s,
	'REPLICA IDENTITY FULL would stop a subscription that knows rows by the replica identity index');
fails_with($node, q{SELECT stream_track('split')}, '55000', qr/subscription writes into partition "split_1".*HINT:.*primary key/s, 'and of a partition');
sql($node, 'ALTER TABLE by_index ADD PRIMARY KEY USING INDEX by_index_a; ALTER TABLE split_1 ADD PRIMARY KEY USING INDEX split_1_a');
track($node, [ 'split', grep { $_ ne 'early' } @tables ]);

sub caught_up
{
	$publisher->wait_for_catchup('sub');
	sync($node);
}

my $origin = 'pg_' . sql($node, 'SELECT oid FROM pg_subscription');
is(sql($node, q{SELECT string_agg(event || (new_row ->> 'v'), ' ') FROM stream_events('early', 1)}), 'insertcopied', 'rows of the initial copy are captured');
is(sql($node, q{SELECT count(*) FROM stream_changes('late', 0, 0)}), 1, 'or in the baseline');
sql($publisher, q{INSERT INTO split VALUES (2, 'two'); UPDATE split SET b = 'one' WHERE a = 1; DELETE FROM split WHERE a = 2});
caught_up();
is(sql($node, q{SELECT string_agg(concat_ws(' ', _change_type, row_data->>'a', row_data->>'b'), ', ') FROM stream_changes('split', 1)}),
	'insert 2 two, delete 1 copied, insert 1 one, delete 2 two', 'rows that are applied to a partitioned table');
sql($publisher, 'ALTER PUBLICATION all_of_it DROP TABLE split; DROP TABLE split');
sql($node, 'DROP TABLE split');

#
# Every kind of change, under every kind of identity
#
sql($publisher, <<'SQL');
INSERT INTO early VALUES (2, 'b'), (3, 'c');
UPDATE early SET v = 'bb' WHERE id = 2;
UPDATE early SET id = 30 WHERE id = 3;
DELETE FROM early WHERE id = 1;
INSERT INTO late VALUES (2, 'b', repeat('y', 5000));
UPDATE late SET v = 'unchanged toast';
INSERT INTO by_index VALUES (1, 'x'), (2, 'y');
UPDATE by_index SET a = 10 WHERE a = 1;
DELETE FROM by_index WHERE a = 2;
INSERT INTO by_row VALUES (1, 1.5, '2020-01-01'), (1, 1.5, '2020-01-01'), (NULL, NULL, NULL);
UPDATE by_row SET b = 2 WHERE a IS NULL;
DELETE FROM by_row WHERE a = 1;
BEGIN;
INSERT INTO parents VALUES (1), (2);
INSERT INTO children VALUES (11, 1), (12, 1), (21, 2);
COMMIT;
DELETE FROM parents WHERE id = 1;
INSERT INTO filtered VALUES (2, 'in'), (-3, 'out');
UPDATE filtered SET id = -id WHERE id = 2;
UPDATE filtered SET id = 7 WHERE v = 'not';
SQL
caught_up();
is(sql($node, q{SELECT string_agg(event || coalesce(old_row ->> 'id', '') || '>' || coalesce(new_row ->> 'id', ''), ' ' ORDER BY _commit_version, event_number) FROM stream_events('early', 2)}),
	'insert>2 insert>3 update2>2 update3>30 delete1>', 'applied rows are events like others');
is(sql($node, q{SELECT count(*), bool_and(length(new_row ->> 'big') = 5000), bool_and((new_row ->> 'twice')::int = 2 * (new_row ->> 'id')::int), min(new_row ->> 'here') FROM stream_events('late', 2)}),
	'2|t|t|2020-01-01T00:00:00+00:00', 'with the columns of the subscriber, and toasted values that were not sent again');
is(sql($node, q{SELECT count(*), count(DISTINCT xid) FROM (SELECT xid FROM stream_versions('parents', 1, 1) UNION ALL SELECT xid FROM stream_versions('children', 1, 1)) AS x}), '2|1',
	'one transaction there is one here');
for my $table (@tables)
{
	my $first = $table eq 'early' ? 2 : 1;
	is(sql($node, "SELECT count(*) FILTER (WHERE origin IS DISTINCT FROM '$origin') FROM stream_versions('$table', $first)"), 0, "$table: versions say which origin they have");
	versions_are_dense($node, $table);
	timestamps_increase($node, $table);
	folds_to_table($node, $table);
}
sql($node, 'INSERT INTO early VALUES (100, \'local\')');
is(sql($node, q{SELECT origin IS NULL FROM stream_versions('early', stream_latest_version('early'))}), 't', 'what is written here has none');

# a session that says where its rows come from
sql($node, <<'SQL');
SELECT pg_replication_origin_create('another place') \g /dev/null
SELECT pg_replication_origin_session_setup('another place') \g /dev/null
INSERT INTO early VALUES (101, 'of an origin');
BEGIN;
SELECT pg_replication_origin_xact_setup('0/AABBCCDD', '2013-01-01 00:00+00') \g /dev/null
INSERT INTO early VALUES (102, 'of an origin, with its time');
COMMIT;
SELECT pg_replication_origin_session_reset() \g /dev/null
INSERT INTO early VALUES (103, 'local');
SQL
is(sql($node, q{SELECT string_agg(coalesce(origin, 'none'), ', ' ORDER BY _commit_version) FROM stream_versions('early', stream_latest_version('early') - 2)}),
	'another place, another place, none', 'an origin set by a session');
timestamps_increase($node, 'early');

#
# Streamed and two-phase transactions; aborts
#
sql($publisher, <<'SQL');
BEGIN;
INSERT INTO large SELECT i, md5(i::text) FROM generate_series(1, 5000) AS i;
SAVEPOINT a;
INSERT INTO large SELECT i, md5(i::text) FROM generate_series(5001, 10000) AS i;
ROLLBACK TO a;
UPDATE large SET v = 'u' WHERE id % 2 = 0;
SAVEPOINT a;
DELETE FROM large WHERE id > 4000;
COMMIT;
BEGIN;
INSERT INTO large SELECT i, md5(i::text) FROM generate_series(20001, 30000) AS i;
ROLLBACK;
SQL
caught_up();
is(sql($node, q{SELECT inserts, updates, deletes, origin = 'pg_' || (SELECT oid FROM pg_subscription) FROM stream_versions('large', 1)}), '5000|2500|1000|t',
	'a large transaction with subtransactions is one version');
folds_to_table($node, 'large');
sql($node, 'ALTER SUBSCRIPTION sub DISABLE');
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'logical replication worker'}) or die 'it does not stop';
sql($node, 'ALTER SUBSCRIPTION sub SET (slot_name = NONE); DROP SUBSCRIPTION sub');
sql($publisher, q{SELECT pg_drop_replication_slot('sub')});
sql($node, "CREATE SUBSCRIPTION sub CONNECTION '" . $publisher->connstr . " dbname=postgres' PUBLICATION all_of_it WITH (two_phase = on, copy_data = false, binary = on)");
$node->poll_query_until('postgres', "SELECT subtwophasestate = 'e' FROM pg_subscription") or die 'two-phase commit is not enabled';
my $before = sql($node, q{SELECT stream_latest_version('early')});
sql($publisher, q{BEGIN; INSERT INTO early VALUES (200, 'prepared'); SAVEPOINT a; INSERT INTO early VALUES (201, 'never'); ROLLBACK TO a; PREPARE TRANSACTION 'on'; BEGIN; INSERT INTO early VALUES (202, 'never'); PREPARE TRANSACTION 'back'});
caught_up();
is(sql($node, 'SELECT count(*) FROM pg_prepared_xacts'), 2, 'two transactions are prepared here as well');
is(sql($node, q{SELECT stream_latest_version('early')}), $before, 'and no versions');
crash_with_worker($node);
sql($publisher, q{COMMIT PREPARED 'on'; ROLLBACK PREPARED 'back'});
$node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_prepared_xacts') or die 'they do not end';
wait_for_capture($node);
is(sql($node, "SELECT string_agg(new_row ->> 'v', ',') FROM stream_events('early', $before + 1)"), 'prepared', 'the one that is committed is one, after a crash here');
$origin = 'pg_' . sql($node, 'SELECT oid FROM pg_subscription');
is(sql($node, "SELECT string_agg(origin, ',') FROM stream_versions('early', $before + 1)"), $origin, 'with its origin');

#
# A conflict: applied again and again, and captured once
#
sql($node, q{INSERT INTO early VALUES (300, 'in the way')});
$before = sql($node, q{SELECT stream_latest_version('early')});
sql($publisher, q{BEGIN; INSERT INTO early VALUES (299, 'with it'), (300, 'conflict'); COMMIT; INSERT INTO early VALUES (301, 'after it')});
$node->wait_for_log(qr/duplicate key value violates unique constraint "early_pkey"/);
is(sql($node, q{SELECT stream_latest_version('early')}), $before, 'a transaction that cannot be applied is no version');
sql($node, 'DELETE FROM early WHERE id = 300');
caught_up();
is(sql($node, "SELECT string_agg(_commit_version - $before || left(event, 1) || coalesce(new_row ->> 'id', old_row ->> 'id'), ' ' ORDER BY _commit_version, event_number) FROM stream_events('early', $before + 1)"),
	'1d300 2i299 2i300 3i301', 'when nothing is in the way any more, it is one');
folds_to_table($node, 'early');

#
# A tracked table is published itself: REPLICA IDENTITY FULL, and nothing of ours, goes on to the next
#
sql($publisher, 'CREATE TABLE back (id int PRIMARY KEY, v text)');
sql($node, 'CREATE TABLE back (id int PRIMARY KEY, v text); CREATE PUBLICATION everything FOR TABLES IN SCHEMA public');
track($node, ['back']);
sql($publisher, "CREATE SUBSCRIPTION onward CONNECTION '" . $node->connstr . " dbname=postgres' PUBLICATION everything WITH (copy_data = false)");
# no way back for what came from there
sql($node, 'ALTER SUBSCRIPTION sub DISABLE');
sql($node, q{INSERT INTO back VALUES (1, 'a'), (2, 'b'); UPDATE back SET v = 'c' WHERE id = 1; DELETE FROM back WHERE id = 2;});
$node->wait_for_catchup('onward');
is(sql($publisher, 'SELECT * FROM back'), '1|c', 'a tracked table can be published');
folds_to_table($node, 'back');
unlike(slurp_file($publisher->logfile), qr/streamcdc\./, 'and nobody hears of our tables');
sql($publisher, 'DROP SUBSCRIPTION onward');
sql($node, 'DROP SUBSCRIPTION sub');
folds_to_table($node, 'early');
# numbers of origins are used again; versions keep the name that theirs had
my $number = sql($node, q{SELECT roident FROM pg_replication_origin WHERE roname = 'another place'});
sql($node, q{SELECT pg_replication_origin_drop('another place'); SELECT pg_replication_origin_create('a newcomer ' || i) FROM generate_series(1, 4) AS i});
like(sql($node, "SELECT roname FROM pg_replication_origin WHERE roident = $number"), qr/newcomer/, 'a dropped origin\'s number is given to another');
is(sql($node, q{SELECT count(*) FROM stream_versions('early') WHERE origin = 'another place'}) . '/' . sql($node, q{SELECT count(*) FROM stream_versions('early') WHERE origin LIKE '%newcomer%'}),
	'2/0', 'what came from the first is not said to come from the second');
sql($node, <<'SQL');
SELECT pg_replication_origin_session_setup(roname) FROM pg_replication_origin WHERE roname LIKE 'a newcomer %' ORDER BY roident LIMIT 1 \g /dev/null
INSERT INTO early VALUES (400, 'newcomer');
SQL
like(sql($node, q{SELECT string_agg(DISTINCT origin, ', ') FROM stream_versions('early') WHERE origin NOT LIKE 'pg%'}), qr/^a newcomer \d, another place$/, 'and that has its name as well');

$publisher->stop;
$node->stop;
done_testing();
