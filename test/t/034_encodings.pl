# Databases with other encodings than UTF-8: names and values that are not ASCII, read by clients with still other encodings, and
# SQL_ASCII, where bytes are just bytes.  The oracle is, as everywhere, what to_jsonb said in the writing transaction.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

# a locale whose money looks different, for this server only; C.UTF-8 is built in
my $locales = PostgreSQL::Test::Utils::tempdir();
command_ok([ 'localedef', '-i', 'de_DE', '-f', 'UTF-8', '--no-archive', "$locales/de_DE.UTF-8" ], 'a locale is made');
$ENV{LOCPATH} = $locales;

my $node = new_node('encodings');
start_extension($node);

my $functions = <<'SQL';
CREATE TABLE oracle (xid xid8 DEFAULT pg_current_xact_id(), row_data jsonb);
CREATE FUNCTION note(tab regclass) RETURNS void LANGUAGE plpgsql
SET TimeZone = 'UTC' SET DateStyle = 'ISO' SET IntervalStyle = 'postgres' SET bytea_output = 'hex' SET extra_float_digits = 1 AS $$
BEGIN
	EXECUTE format('INSERT INTO oracle (row_data) SELECT to_jsonb(t) FROM %s AS t', tab);
END $$;
-- rows of the last version and of the table at that time which are not in both
CREATE FUNCTION wrong(tab text, typed text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	result bigint;
	result_typed bigint;
BEGIN
	WITH c AS MATERIALIZED (SELECT CASE _change_type WHEN 'insert' THEN 1 ELSE -1 END AS s, row_data::text AS r FROM stream_changes(tab)),
		folded AS (SELECT r FROM (SELECT r, sum(s) AS n FROM c GROUP BY r) AS m, generate_series(1, n)),
		noted AS (SELECT row_data::text AS r FROM oracle JOIN (SELECT xid FROM stream_versions(tab) ORDER BY _commit_version DESC LIMIT 1) AS v USING (xid))
	SELECT count(*) INTO result FROM ((TABLE folded EXCEPT ALL TABLE noted) UNION ALL (TABLE noted EXCEPT ALL TABLE folded)) AS x;
	EXECUTE format($q$
		WITH c AS MATERIALIZED (SELECT CASE _change_type WHEN 'insert' THEN 1 ELSE -1 END AS s, row_data::text AS r FROM stream_changes(NULL::%s)),
			folded AS (SELECT r FROM (SELECT r, sum(s) AS n FROM c GROUP BY r) AS m, generate_series(1, n)),
			live AS (SELECT t::text AS r FROM %1$s AS t)
		SELECT count(*) FROM ((TABLE folded EXCEPT ALL TABLE live) UNION ALL (TABLE live EXCEPT ALL TABLE folded)) AS x $q$, typed) INTO result_typed;
	RETURN result + result_typed + CASE WHEN EXISTS (SELECT FROM oracle) THEN 0 ELSE 1000 END;
END $$;
SQL

# psql speaks this client encoding; commands and results are bytes
sub bytes_sql
{
	my ($db, $client_encoding, $text) = @_;
	my ($out, $err) = ('', '');
	my $ok = IPC::Run::run([ 'env', "PGCLIENTENCODING=$client_encoding", 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($db), '-f', '-' ],
		'<', \"SET client_min_messages = warning;\n$text", '>', \$out, '2>', \$err);
	chomp $out;
	return $ok ? $out : "FAILED: $err";
}

# encoding, a name, values; both as the client with that very encoding writes them
my @cases = (
	[ 'LATIN1', "gr\xf6\xdfe \xe9", [ "\xe4\xf6\xfc\xdf", "\xa9 \xbd \xff" ], 'UTF8', "gr\xc3\xb6\xc3\x9fe \xc3\xa9", "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f" ],
	[ 'EUC_JP', "\xc6\xfc\xcb\xdc", [ "\xc6\xfc\xcb\xdc\xb8\xec", "\xa5\xab\xa5\xbf" ], 'SJIS', "\x93\xfa\x96\x7b", "\x93\xfa\x96\x7b\x8c\xea" ],
	[ 'UTF8', "\xf0\x9f\x98\x80 \xc3\xa9", [ "\xc3\xa4\xf0\x9f\x98\x80", "\xe6\x97\xa5" ], 'UTF8', "\xf0\x9f\x98\x80 \xc3\xa9", "\xc3\xa4\xf0\x9f\x98\x80" ],
	# bytes that are no text in any encoding
	[ 'SQL_ASCII', "n\xe4me \xff", [ "\xff\xfe\x80 \xc3", "\xc3\x28" ], 'SQL_ASCII', "n\xe4me \xff", "\xff\xfe\x80 \xc3" ],
);

for my $case (@cases)
{
	my ($encoding, $name, $values, $other, $other_name, $other_value) = @$case;
	my $db = lc $encoding;

	$node->safe_psql('postgres', "CREATE DATABASE $db ENCODING '$encoding' LOCALE 'C' TEMPLATE template0");
	$node->safe_psql($db, 'CREATE EXTENSION streamcdc; CREATE EXTENSION hstore; CREATE EXTENSION citext');
	is($node->safe_psql($db, 'SHOW server_encoding'), $encoding, "a database with $encoding");
	is(bytes_sql($db, $encoding, $functions), '', "$encoding: its functions");
	my ($a, $b) = @$values;
	is(bytes_sql($db, $encoding, <<"SQL"), '', "$encoding: a table, tracked");
CREATE SCHEMA "s $name";
CREATE TYPE "s $name"."e $name" AS ENUM ('$a', '$b');
CREATE TYPE "s $name"."c $name" AS ("f $name" text, n int);
CREATE DOMAIN "s $name"."d $name" AS text CHECK (VALUE <> '$name');
CREATE TABLE "s $name"."t $name" (id int PRIMARY KEY, "c $name" text, vc varchar(20), ch char(10), n name, e "s $name"."e $name", es "s $name"."e $name"[],
	c "s $name"."c $name", cs "s $name"."c $name"[], d "s $name"."d $name", j json, jb jsonb, ts text[], h hstore, ci citext, x xml, r regclass, tv tsvector, by bytea);
INSERT INTO "s $name"."t $name" VALUES (1, '$a', '$b', '$a', '$b', '$a', '{"$a","$b"}', ROW('$a', 1), ARRAY[ROW('$b', 2), NULL]::"s $name"."c $name"[], '$b',
	'{"$a": "$b"}', '{"k $a": "$b"}', '{"$a",NULL,"$b"}', '"$a"=>"$b"', '$a', xmlparse(content 'plain'), '"s $name"."t $name"', '''$a'':1', decode('ff00', 'hex'));
SELECT stream_track('"s $name"."t $name"') \\g /dev/null
SELECT stream_sync('120 s') \\g /dev/null
SQL
	is(bytes_sql($db, $encoding, <<"SQL"), '', "$encoding: changes");
INSERT INTO "s $name"."t $name" (id, "c $name") VALUES (2, '$a$b');
BEGIN;
UPDATE "s $name"."t $name" SET "c $name" = '$b' || "c $name" || repeat('$a', 3000), e = '$b', c."f $name" = '$b', h = h || '"$b"=>NULL', ci = '$b' WHERE id = 1;
INSERT INTO "s $name"."t $name" SELECT 3, '$b', vc, ch, n, e, es, c, cs, d, j, jb, ts, h, ci, x, r, tv, by FROM "s $name"."t $name" WHERE id = 1;
SELECT note('"s $name"."t $name"') \\g /dev/null
COMMIT;
SQL
	is(bytes_sql($db, $encoding, "SELECT wrong('\"s $name\".\"t $name\"', '\"s $name\".\"t $name\"')"), 0, "$encoding: jsonb is what to_jsonb said, and the typed form is the table");
	is(bytes_sql($db, $other, "SELECT wrong('\"s $other_name\".\"t $other_name\"', '\"s $other_name\".\"t $other_name\"')"), 0, "$encoding: the same for a client that speaks $other");
	is(bytes_sql($db, $other, "SELECT row_data ->> 'c $other_name' FROM stream_changes('\"s $other_name\".\"t $other_name\"', 0, 0)"), $other_value, "$encoding: and which gets the value in $other");
	is(bytes_sql($db, $encoding, "SELECT table_name, identity_columns, status FROM stream_tables"), "\"s $name\".\"t $name\"|{id}|streaming", "$encoding: names in stream_tables");
	is(bytes_sql($db, $encoding, "SELECT (row_data).\"c $name\" FROM stream_changes(NULL::\"s $name\".\"t $name\", 1, 1)"), "$a$b", "$encoding: a value of the typed form");
	# a key of that column, by text and by enum
	is(bytes_sql($db, $encoding, <<"SQL"), "update_preimage $a 1\nupdate_postimage $a 2", "$encoding: an identity");
CREATE TABLE "k $name" ("c $name" text, e "s $name"."e $name", v int, PRIMARY KEY ("c $name", e));
SELECT stream_track('"k $name"') \\g /dev/null
SELECT stream_sync('120 s') \\g /dev/null
INSERT INTO "k $name" VALUES ('$a', '$b', 1);
UPDATE "k $name" SET v = 2;
SELECT _change_type || ' ' || (row_data ->> 'c $name') || ' ' || (row_data ->> 'v') FROM stream_changes('"k $name"', 2, compute_updates => true);
SQL
	# renamed and dropped: what is remembered of the name
	is(bytes_sql($db, $encoding, <<"SQL"), "\"r $name\" (dropped 2)|dropped\n2", "$encoding: the name of a dropped table");
ALTER TABLE "k $name" RENAME TO "r $name";
DROP TABLE "r $name";
SELECT table_name, status FROM stream_tables WHERE status = 'dropped';
SELECT count(*) FROM stream_events('"r $name"') WHERE _commit_version > 0;
SQL
	like(bytes_sql($db, $encoding, "SELECT * FROM stream_changes('\"r $name\"', 1, deduplication_mode => '$a')"), qr/FAILED: .*ERROR:  invalid value for "deduplication_mode": "\Q$a\E"/s,
		"$encoding: a message with such a word") if $encoding ne 'SQL_ASCII';
}

#
# A client whose encoding lacks the character gets the server's own error, and nothing else is harmed
#
like(bytes_sql('utf8', 'LATIN1', "SELECT row_data FROM stream_changes('\"s \"') "), qr/does not exist/, 'a client with LATIN1 in a database with UTF8');
my $tables = 'SELECT count(*) FROM stream_tables';
like(bytes_sql('utf8', 'LATIN1', "SELECT string_agg(table_name, ' ') FROM stream_tables"), qr/FAILED: .*character with byte sequence .* in encoding "UTF8" has no equivalent in encoding "LATIN1"/s,
	'cannot be sent what it has no character for');
is(bytes_sql('utf8', 'LATIN1', $tables), 2, 'but all else');

#
# A dump of an odd encoding is restored
#
my $file = PostgreSQL::Test::Utils::tempdir() . '/latin1.sql';
command_ok([ 'pg_dump', '-d', $node->connstr('latin1'), '-f', $file ], 'pg_dump of a database with LATIN1');
$node->safe_psql('postgres', 'CREATE DATABASE from_latin1 ENCODING \'UTF8\' TEMPLATE template0');
command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('from_latin1'), '-f', $file ], 'is restored into one with UTF8');
is(bytes_sql('from_latin1', 'LATIN1', 'SELECT table_name, status FROM stream_tables'), "\"s gr\xf6\xdfe \xe9\".\"t gr\xf6\xdfe \xe9\"|inert", 'with its streams');

#
# Money is printed as the database has it, whatever the server's default, the reader's role, client and session have
#
$node->safe_psql('postgres', 'CREATE DATABASE money TEMPLATE template0');
$node->safe_psql('money', 'CREATE EXTENSION streamcdc; CREATE TYPE pair AS (m money, n int); CREATE TABLE t (id int PRIMARY KEY, m money, p pair)');
$node->safe_psql('money', 'SET lc_monetary = \'C\'; INSERT INTO t VALUES (1, \'1234.50\', ROW(\'1234.50\', 1))');
sql($node, 'ALTER DATABASE money SET lc_monetary = \'de_DE.UTF-8\'; CREATE ROLE reader SUPERUSER LOGIN; ALTER ROLE reader SET lc_monetary = \'C\'; ALTER ROLE CURRENT_USER SET lc_monetary = \'POSIX\'');
track($node, ['t'], 'money');
$node->safe_psql('money', 'SET lc_monetary = \'C\'; UPDATE t SET m = m * 2');
my $euro = "2.469,00 \xe2\x82\xac";
for my $reader ([ 'the database', '' ], [ 'a role', '', '-U', 'reader' ], [ 'a client', '', 'PGOPTIONS=-c lc_monetary=C' ], [ 'a session', 'SET lc_monetary = \'C\';' ])
{
	my ($who, $set, @how) = @$reader;
	my @env = grep { /=/ } @how;
	my @options = grep { !/=/ } @how;
	my $out = '';
	IPC::Run::run([ 'env', @env, 'psql', '-XAtq', @options, '-d', $node->connstr('money'), '-f', '-' ], '<',
		\"$set SELECT row_data ->> 'm', row_data -> 'p' ->> 'm' FROM stream_changes('t', 1) WHERE _change_type = 'insert'", '>', \$out);
	is($out, "$euro|1.234,50 \xe2\x82\xac\n", "money as set by $who");
	# the typed form prints it as the reader wants it
	$out = '';
	IPC::Run::run([ 'env', @env, 'psql', '-XAtq', @options, '-d', $node->connstr('money'), '-f', '-' ], '<',
		\"$set SELECT bool_and(row_data *= t) FROM stream_changes(NULL::t, 1), t WHERE _change_type = 'insert'", '>', \$out);
	is($out, "t\n", "and the typed form is the same money for $who");
}

$node->stop;
done_testing();
