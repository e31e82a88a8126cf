# Databases that are copies: made with TEMPLATE, or restored from a dump.  Their streams are listed as inert, nothing runs, reads say
# so at once, and stream_track adopts a table: with a new baseline, and versions that have not been there before.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('copies');
start_extension($node);
sql($node, <<'SQL');
CREATE ROLE owner LOGIN;
CREATE ROLE reader LOGIN;
CREATE SCHEMA "Größe ""q""";
CREATE TABLE orders (gone int, id int PRIMARY KEY, v text);
ALTER TABLE orders DROP gone;
ALTER TABLE orders OWNER TO owner;
GRANT SELECT ON orders TO reader;
INSERT INTO orders SELECT i, 'base' FROM generate_series(1, 100) AS i;
CREATE TABLE "Größe ""q""".old_name (a int NOT NULL, b int NOT NULL, c int);
CREATE UNIQUE INDEX by_b_a ON "Größe ""q""".old_name (b, a);
ALTER TABLE "Größe ""q""".old_name REPLICA IDENTITY USING INDEX by_b_a;
CREATE TABLE given_up (id int PRIMARY KEY);
CREATE TABLE untracked (id int PRIMARY KEY);
CREATE TABLE dropped (id int PRIMARY KEY);
CREATE TABLE never (id int PRIMARY KEY);
SQL
track($node, [ 'orders', '"Größe ""q""".old_name', 'given_up', 'untracked', 'dropped' ]);
sql($node, <<'SQL');
INSERT INTO orders VALUES (101, 'one');
INSERT INTO orders VALUES (102, 'two');
INSERT INTO dropped VALUES (1);
INSERT INTO "Größe ""q""".old_name VALUES (1, 2, 3);
SELECT stream_sync('600 s');
-- names change after they were noted first
ALTER TABLE "Größe ""q""".old_name RENAME TO new_name;
DO $$ BEGIN ALTER SCHEMA "Größe ""q""" RENAME TO elsewhere; END $$;
SELECT stream_untrack('untracked');
DROP TABLE dropped;
SQL
my $listed = 'SELECT table_name, status, identity_columns, on_truncate, last_version FROM stream_tables ORDER BY 1';
is(sql($node, $listed), <<'OUT' =~ s/\n\z//r, 'the original');
dropped (dropped 5)|dropped|{id}|delete|1
elsewhere.new_name|streaming|{b,a}|delete|1
given_up|streaming|{id}|delete|0
orders|streaming|{id}|delete|2
OUT

# inert DATABASE, HOW, VERSION: what holds for every copy
sub inert
{
	my ($db, $how) = @_;
	my $start = time;
	is(sql($node, "SELECT table_name, status, identity_columns, lag_bytes, confirmed_lsn FROM stream_tables WHERE status <> 'dropped' ORDER BY 1", $db), <<'OUT' =~ s/\n\z//r, "$how: streams are inert");
elsewhere.new_name|inert|{b,a}||
given_up|inert|{id}||
orders|inert|{id}||
OUT
	sql($node, 'INSERT INTO orders VALUES (1000, \'uncaptured\')', $db);
	for my $read ('stream_changes(\'orders\')', 'stream_changes(NULL::orders)', 'stream_events(\'orders\')', 'stream_versions(\'orders\')', 'stream_latest_version(\'orders\')')
	{
		fails_with($node, "SELECT * FROM $read", '55000', qr/"orders" are not captured in this database.*DETAIL:.*(copied|restored).*HINT:.*stream_track\('orders'\)/s, "$how: $read says so", db => $db);
	}
	cmp_ok(time - $start, '<', 120, "$how: nobody waits");
	fails_with($node, 'SELECT * FROM stream_changes(\'never\')', '0A000', qr/not tracked/, "$how: other tables are not tracked, and not inert", db => $db);
	is(sql($node, "SELECT count(*) FROM pg_stat_activity WHERE datname = '$db' AND backend_type LIKE 'streamcdc%'"), 0, "$how: nothing runs");
	is(sql($node, "SELECT count(*) FROM pg_replication_slots WHERE database = '$db'"), 0, "$how: there is no slot");
	is(sql($node, 'SET ROLE reader; SELECT string_agg(table_name || coalesce(last_error, \'\'), \' \') FROM stream_tables', $db), 'orders', "$how: rows are shown to those who may read the table");
	is(sql($node, 'SELECT stream_sync(\'1 s\') IS NOT NULL', $db), 't', "$how: nothing is missing for stream_sync");
}

# adopt DATABASE, HOW, LAST: the version that must not be reached again
sub adopt
{
	my ($db, $how, $last) = @_;
	fails_with($node, 'SET ROLE reader; SELECT stream_track(\'orders\')', '42501', qr/must be owner/, "$how: adopting is for the owner", db => $db);
	$node->safe_psql($db, 'SET client_min_messages = warning; SET ROLE owner; SELECT stream_track(\'orders\')');
	wait_for_capture($node, $db);
	is(status($node, 'orders', $db), 'streaming', "$how: adopted");
	my $first = sql($node, 'SELECT first_version FROM stream_tables WHERE table_name = \'orders\'', $db);
	cmp_ok($first, '>', $last, "$how: versions continue");
	is(sql($node, "SELECT count(*), max(_commit_version) FROM stream_changes('orders')", $db), "103|$first", "$how: with a new baseline");
	sql($node, 'UPDATE orders SET v = \'adopted\' WHERE id = 1', $db);
	is(sql($node, "SELECT string_agg(_change_type || ' ' || _commit_version, ', ') FROM stream_changes('orders', $first + 1, compute_updates => true)", $db),
		sprintf('update_preimage %d, update_postimage %d', $first + 1, $first + 1), "$how: and changes");
	folds_to_table($node, 'orders', $db);
	is(sql($node, 'SELECT string_agg(table_name || \' \' || status, \', \' ORDER BY table_name) FROM stream_tables WHERE status <> \'dropped\'', $db),
		'elsewhere.new_name inert, given_up inert, orders streaming', "$how: one by one");
	sql($node, 'INSERT INTO given_up VALUES (1); INSERT INTO elsewhere.new_name VALUES (7, 7, 7); SELECT stream_sync(\'600 s\')', $db);
	fails_with($node, 'SELECT * FROM stream_changes(\'given_up\')', '55000', qr/not captured in this database/, "$how: the others stay inert", db => $db);
	# one that is not wanted any more
	sql($node, 'SELECT stream_untrack(\'elsewhere.new_name\')', $db);
	is(sql($node, 'SELECT relreplident::text || \' \' || (SELECT indexrelid::regclass FROM pg_index WHERE indrelid = c.oid AND indisreplident) FROM pg_class AS c WHERE oid = \'elsewhere.new_name\'::regclass', $db),
		'i elsewhere.by_b_a', "$how: an inert one is untracked, and its replica identity is what it was before it was tracked");
	sql($node, 'DROP TABLE given_up; CREATE TABLE given_up (id int)', $db);
	is(sql($node, 'SELECT string_agg(table_name || \' \' || status, \', \') FROM stream_tables WHERE status <> \'dropped\'', $db), 'orders streaming', "$how: gone");
	fails_with($node, 'SELECT * FROM stream_changes(\'given_up\')', '0A000', qr/not tracked/, "$how: a new table of the name is another", db => $db);
	sql($node, 'SELECT stream_untrack(\'orders\'); SELECT stream_track(\'orders\')', $db);
	wait_for_capture($node, $db);
	cmp_ok(sql($node, 'SELECT first_version FROM stream_tables WHERE table_name = \'orders\'', $db), '>', $first + 1, "$how: versions go on when it is tracked again");
	sql($node, 'SELECT stream_untrack(\'orders\')', $db);
	is(sql($node, 'SELECT relreplident FROM pg_class WHERE relname = \'orders\'', $db), 'd', "$how: the replica identity is what it was before all");
	wait_for_no_capture($node, "$how: nothing is left", $db);
}

#
# TEMPLATE
#
sql($node, 'CREATE DATABASE copy TEMPLATE postgres');
wait_for_capture($node);
inert('copy', 'TEMPLATE');
is(sql($node, 'SELECT count(*) FROM stream_changes(\'dropped\')', 'copy'), 1, 'TEMPLATE: the log of a dropped table is complete, and can be read');
sql($node, 'CREATE DATABASE copy_of_copy TEMPLATE copy');
inert('copy_of_copy', 'TEMPLATE of a copy') if sql($node, 'DELETE FROM orders WHERE id = 1000', 'copy_of_copy') eq '';
adopt('copy', 'TEMPLATE', 2);

#
# Dumps: by a superuser, and by the owner of a database who is none
#
my $dir = PostgreSQL::Test::Utils::tempdir();
my $connstr = $node->connstr('postgres');
command_ok([ 'pg_dump', '-d', $connstr, '-f', "$dir/plain.sql" ], 'pg_dump');
command_ok([ 'pg_dump', '-d', $connstr, '-Fc', '-f', "$dir/custom" ], 'pg_dump -Fc');
my $dump = slurp_file("$dir/plain.sql");
like($dump, qr/COPY streamcdc\.definitions/, 'the dump has the definitions');
unlike($dump, qr/(COPY|INSERT INTO) streamcdc\.(?!definitions)/, 'and no other table of ours');
sql($node, 'CREATE DATABASE restored');
command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', "$dir/plain.sql" ], 'it is restored');
inert('restored', 'dump');
adopt('restored', 'dump', 2);
sql($node, 'CREATE DATABASE restored_again');
command_ok([ 'pg_restore', '--exit-on-error', '-j2', '-d', $node->connstr('restored_again'), "$dir/custom" ], 'pg_restore in parallel');
inert('restored_again', 'pg_restore');
# a dump of what was restored, into the very database that it was made of
command_ok([ 'pg_dump', '-d', $node->connstr('restored_again'), '-Fc', '-f', "$dir/again" ], 'a dump of an inert database');
sql($node, 'CREATE DATABASE third');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('third'), "$dir/again" ], 'is restored');
sql($node, 'DELETE FROM orders WHERE id = 1000', 'third');
inert('third', 'dump of an inert database');
sql($node, 'DELETE FROM orders WHERE id = 1000', 'third');
sql($node, 'INSERT INTO orders VALUES (103, \'uncaptured\')', 'third');
adopt('third', 'dump of an inert database', 2);

# versions beyond what the definition had at first
sql($node, 'DO $$ BEGIN FOR i IN 1 .. 3000 LOOP UPDATE given_up SET id = id; INSERT INTO given_up VALUES (i); COMMIT; END LOOP; END $$');
my $reached = sql($node, 'SELECT stream_latest_version(\'given_up\')');
cmp_ok($reached, '>=', 3000, "$reached versions");
command_ok([ 'pg_dump', '-d', $connstr, '-Fc', '-f', "$dir/later" ], 'a later dump');
sql($node, 'CREATE DATABASE later');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('later'), "$dir/later" ], 'is restored');
sql($node, 'SELECT stream_track(\'given_up\')', 'later');
wait_for_capture($node, 'later');
cmp_ok(sql($node, 'SELECT first_version FROM stream_tables WHERE table_name = \'given_up\'', 'later'), '>', $reached, 'versions continue behind those');
sql($node, 'DROP DATABASE later');

# over itself: the extension is dropped and made anew, in the same database
sql($node, 'CREATE DATABASE self TEMPLATE restored_again');
sql($node, 'DELETE FROM orders WHERE id = 1000', 'self');
sql($node, 'SELECT stream_track(\'orders\')', 'self');
wait_for_capture($node, 'self');
command_ok([ 'pg_dump', '-d', $node->connstr('self'), '-Fc', '-f', "$dir/self" ], 'a dump of an adopted database');
command_ok([ 'pg_restore', '--clean', '-d', $node->connstr('self'), "$dir/self" ], 'is restored over it');
wait_for_no_capture($node, 'pg_restore --clean: the old stream has ended', 'self');
inert('self', 'pg_restore --clean');

# an owner who is no superuser
sql($node, 'CREATE ROLE db_owner LOGIN; CREATE DATABASE owned OWNER db_owner');
sql($node, 'CREATE EXTENSION streamcdc; CREATE TABLE other (id int PRIMARY KEY); SELECT stream_track(\'other\')', 'owned');
sql($node, 'SET ROLE db_owner; CREATE SCHEMA s; CREATE TABLE s.t (id int PRIMARY KEY)', 'owned');
sql($node, 'SET ROLE db_owner; SELECT stream_track(\'s.t\')', 'owned');
command_ok([ 'pg_dump', '-U', 'db_owner', '-n', 's', '-d', $node->connstr('owned'), '-f', "$dir/schema.sql" ], 'the owner of a database dumps a schema');
sql($node, 'ALTER TABLE other OWNER TO db_owner', 'owned');
command_ok([ 'pg_dump', '-U', 'db_owner', '-d', $node->connstr('owned'), '-f', "$dir/owned.sql" ], 'and all of it');
sql($node, 'DROP DATABASE owned; DROP DATABASE copy; DROP DATABASE copy_of_copy');

# the original has not noticed
is(sql($node, $listed), <<"OUT" =~ s/\n\z//r, 'the original is as it was');
dropped (dropped 5)|dropped|{id}|delete|1
elsewhere.new_name|streaming|{b,a}|delete|1
given_up|streaming|{id}|delete|$reached
orders|streaming|{id}|delete|2
OUT
folds_to_table($node, 'orders');

$node->stop;
done_testing();
