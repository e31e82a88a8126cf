# A cast to json is a function of a user, and capture, the copy of a baseline and the inbox call it for what they store.  It runs as
# the table's owner in a restricted operation then, whoever calls it, and leaves nothing behind.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('casts', conf => "streamcdc.capture_memory = '4MB'\n");
start_extension($node);
my $superuser = sql($node, 'SELECT current_user');

# what the cast does is said by the value
sql($node, <<"SQL");
CREATE ROLE mallory LOGIN;
CREATE ROLE owner;
CREATE SCHEMA mallory AUTHORIZATION mallory;
GRANT ALL ON SCHEMA mallory TO owner;
SET ROLE mallory;
CREATE TYPE mallory.act AS ENUM ('nothing', 'set', 'raise', 'file', 'become', 'reset');
CREATE FUNCTION mallory.act(a mallory.act) RETURNS json LANGUAGE plpgsql AS \$\$
BEGIN
	IF a = 'set' THEN
		PERFORM set_config('TimeZone', 'Asia/Tokyo', false), set_config('search_path', 'mallory', false);
	ELSIF a = 'raise' THEN
		RAISE data_exception USING MESSAGE = 'not to be had';
	ELSIF a = 'file' THEN
		RETURN to_json(pg_catalog.pg_read_file('PG_VERSION'));
	ELSIF a = 'become' THEN
		PERFORM set_config('role', '$superuser', false);
	ELSIF a = 'reset' THEN
		PERFORM set_config('session_authorization', 'default', false);
	END IF;
	RETURN json_build_object('user', current_user, 'zone', current_setting('TimeZone'));
END \$\$;
CREATE CAST (mallory.act AS json) WITH FUNCTION mallory.act(mallory.act);
-- the same with the rights and a setting of the one who has made it
CREATE TYPE mallory.act_as_mallory AS ENUM ('nothing', 'raise');
CREATE FUNCTION mallory.act(a mallory.act_as_mallory) RETURNS json SECURITY DEFINER SET "TimeZone" = 'Asia/Tokyo'
LANGUAGE plpgsql AS 'BEGIN RETURN mallory.act(a::text::mallory.act); END';
CREATE CAST (mallory.act_as_mallory AS json) WITH FUNCTION mallory.act(mallory.act_as_mallory);
RESET ROLE;
CREATE TABLE honest (id int PRIMARY KEY, at timestamptz);
CREATE TABLE acts (id int PRIMARY KEY, a mallory.act, m mallory.act_as_mallory);
CREATE TABLE parts (id int PRIMARY KEY, m mallory.act_as_mallory, a mallory.act) PARTITION BY RANGE (id);
CREATE TABLE part PARTITION OF parts DEFAULT;
ALTER TABLE acts OWNER TO owner;
ALTER TABLE parts OWNER TO owner;
ALTER TABLE part OWNER TO owner;
INSERT INTO acts VALUES (0, 'nothing', 'nothing');
INSERT INTO parts VALUES (0, 'nothing', 'nothing');
SQL
track($node, [ 'acts', 'parts', 'honest' ]);

# what is stored of column a, and what was done for m, in one version
sub stored
{
	my ($table, $version) = @_;
	sync($node);
	return sql($node, "SELECT string_agg(_change_type || ' ' || (row_data -> 'a')::text || (row_data -> 'm')::text, '; ' ORDER BY row_data -> 'id') FROM stream_changes('$table', $version, $version)");
}
my $as_owner = '{"user": "owner", "zone": "UTC"}';
my $as_mallory = '{"user": "mallory", "zone": "Asia/Tokyo"}';

for my $table ('acts', 'parts')
{
	is(stored($table, 0), "insert $as_owner$as_mallory", "$table: the copy of a baseline runs a cast as the owner of the table");
	sql($node, "INSERT INTO $table VALUES (1, 'nothing', 'nothing')");
	is(stored($table, 1), "insert $as_owner$as_mallory", "$table: so does capture");
	sql($node, "DELETE FROM $table WHERE id = 0; TRUNCATE $table");
	is(stored($table, 3), "delete $as_owner$as_mallory", "$table: so does TRUNCATE");
}

# settings, and errors inside of a function that has settings and rights of its own, end with the value
sql($node, <<'SQL');
INSERT INTO acts VALUES (2, 'set', 'nothing');
INSERT INTO acts VALUES (3, 'raise', 'raise');
INSERT INTO acts VALUES (4, 'nothing', 'nothing');
INSERT INTO honest VALUES (1, '2020-01-01 00:00:00 UTC');
SQL
is(stored('acts', 4), qq(insert {"user": "owner", "zone": "Asia/Tokyo"}$as_mallory), 'a function may set what it likes');
fails_with($node, "SELECT * FROM stream_changes('acts', 5, 5)", '22000', qr/could not be converted to jsonb.*"a" in version 5/s, 'or have no result');
is(stored('acts', 6), "insert $as_owner$as_mallory", 'the next one is not concerned');

# what it must not do costs its own table only
for my $case ([ 'file', qr/permission denied for function pg_read_file/ ], [ 'become', qr/cannot set parameter "role" within security-restricted operation/ ],
	[ 'reset', qr/cannot set parameter "session_authorization" within security-restricted operation/ ])
{
	my ($act, $error) = @$case;

	sql($node, "CREATE TABLE $act (id int PRIMARY KEY, a mallory.act); ALTER TABLE $act OWNER TO owner");
	track($node, [$act]);
	sql($node, "INSERT INTO $act VALUES (1, '$act')");
	wait_for_status($node, $act, 'stalled');
	like(sql($node, "SELECT last_error FROM stream_tables WHERE table_name = '$act'"), $error, "$act: not allowed");
	sql($node, "SELECT stream_untrack('$act'); DROP TABLE $act");
}
sql($node, "INSERT INTO honest VALUES (2, '2020-01-01 00:00:00 UTC'); INSERT INTO acts VALUES (7, 'nothing', 'nothing')");
is(stored('acts', 7), "insert $as_owner$as_mallory", 'capture has gone on');
changes_fold_to_table($node, 'honest');

# a transaction that is decoded while it runs, with values that have no form among the others
sql($node, "INSERT INTO acts SELECT i, CASE WHEN i % 100 = 0 THEN 'raise' ELSE 'nothing' END::mallory.act, 'nothing' FROM generate_series(1001, 50000) AS i");
sync($node);
cmp_ok(sql($node, "SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name LIKE 'streamcdc%'"), '>', 0, 'a transaction was decoded while it ran');
changes_fold_to_table($node, 'acts');

$node->stop;
done_testing();
