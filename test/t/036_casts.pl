# A cast to json is a function of a user, and capture, the copy of a baseline and the inbox call it for what they store.  It runs as
# the table's owner in a restricted operation then, whoever calls it, and leaves nothing behind.  So do the casts and domains that
# readers and jobs need to make rows of the log.
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

# ---- reading ----

# a domain inside of a composite says who looks at its values, and a cast to what the column became later does
sql($node, <<'SQL');
SET ROLE mallory;
CREATE FUNCTION mallory.by_owner(text) RETURNS boolean LANGUAGE sql AS $$ SELECT current_user = 'owner' $$;
CREATE DOMAIN mallory.owned AS text CHECK (mallory.by_owner(VALUE));
CREATE TYPE mallory.pair AS (d mallory.owned);
CREATE TYPE mallory.told AS (who text);
CREATE FUNCTION mallory.tell(mallory.pair) RETURNS mallory.told LANGUAGE plpgsql AS $$ BEGIN RETURN ROW(current_user)::mallory.told; END $$;
CREATE CAST (mallory.pair AS mallory.told) WITH FUNCTION mallory.tell(mallory.pair) AS ASSIGNMENT;
RESET ROLE;
CREATE TABLE pairs (id int PRIMARY KEY, p mallory.pair);
CREATE TABLE keys (p mallory.pair PRIMARY KEY, n int);
CREATE TABLE logged (_change_type text, _commit_version bigint, _commit_timestamp timestamptz, a mallory.act);
INSERT INTO logged VALUES ('insert', 1, now(), 'nothing');
ALTER TABLE pairs OWNER TO owner;
ALTER TABLE keys OWNER TO owner;
ALTER TABLE logged OWNER TO owner;
SELECT stream_register_changelog('logged', false, false, false);
SQL
track($node, [ 'pairs', 'keys' ]);
sql($node, q{SET ROLE owner; INSERT INTO pairs VALUES (1, ROW('x')); INSERT INTO keys VALUES (ROW('x'), 1); UPDATE keys SET n = 2});

# what a job brings into its sink
sub brought
{
	my ($query) = @_;
	sql($node, "SELECT stream_start('$query', 'pairs', sink => '${query}_sink', trigger => 'availableNow')");
	sql($node, "SELECT stream_await_termination('$query', '120 s')");
	return sql($node, "SELECT p FROM ${query}_sink WHERE _commit_version = 1 AND _change_type = 'insert'");
}
is(sql($node, 'SELECT (row_data).p FROM stream_changes(NULL::pairs)'), '(x)', 'a reader has domains checked by the owner');
is(brought('before'), '(x)', 'so has a job');
is(sql($node, q{SELECT row_data FROM stream_changes('keys', deduplication_mode => 'netChanges')}), '{"n": 2, "p": {"d": "x"}}', 'also where rows are compared');
sql($node, q{ALTER TABLE pairs ALTER p TYPE mallory.told USING ROW('told')});
is(sql($node, 'SELECT (row_data).p FROM stream_changes(NULL::pairs, 1, 1)'), '(owner)', 'a reader has values of an old type cast by the owner');
is(brought('after'), '(owner)', 'so has a job');
is(sql($node, q{SELECT row_data -> 'a' FROM stream_changes('logged')}), $as_owner, 'casts to json of a registered change log are its owner\'s');

$node->stop;
done_testing();
