# An ALTER TABLE that rewrites a table is in the log as updates of the rows whose values it changes (design 3.15), with the old
# row under the old columns and the new one under the new ones; a table that becomes UNLOGGED has a gap.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('rewrite', conf => "shared_buffers = 16MB\n");
start_extension($node);

# "inserts|updates|deletes" of each version from one on
sub counts
{
	my ($table, $from) = @_;
	sync($node);
	return sql($node, "SELECT string_agg(inserts || '|' || updates || '|' || deletes, ' ' ORDER BY _commit_version) FROM stream_versions('$table', $from)") // '';
}

sub latest
{
	my ($table) = @_;
	return sql($node, "SELECT stream_latest_version('$table')");
}

# folds_as_jsonb TABLE: two tests.  What is NULL is left out, since an added column that is NULL changes no row.
sub folds_as_jsonb
{
	my ($table) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($early, $differ) = split /\|/, sql($node, <<"SQL");
SET TimeZone = 'UTC';
CREATE TEMP TABLE moves AS
	SELECT _commit_version AS v, event_number AS n, -1 AS s, jsonb_strip_nulls(old_row) AS r FROM stream_events('$table') WHERE old_row IS NOT NULL
	UNION ALL
	SELECT _commit_version, event_number, 1, jsonb_strip_nulls(new_row) FROM stream_events('$table') WHERE new_row IS NOT NULL;
SELECT (SELECT count(*) FROM (SELECT sum(s) OVER (PARTITION BY r ORDER BY v, n, s ROWS UNBOUNDED PRECEDING) AS there FROM moves) AS steps WHERE there < 0),
	   (SELECT count(*) FROM (SELECT r FROM (SELECT r, s FROM moves UNION ALL SELECT jsonb_strip_nulls(to_jsonb(t)), -1 FROM ONLY $table AS t) AS x
							  GROUP BY r HAVING sum(s) <> 0) AS y);
SQL
	is($early, 0, "$table as jsonb: no row is taken away that is not there");
	is($differ, 0, "$table as jsonb: folds to the table");
}

#
# What a rewrite changes, and what it does not
#
sql($node, <<'SQL');
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE pair AS (a int, b text);
CREATE ACCESS METHOD heap_again TYPE TABLE HANDLER heap_tableam_handler;
CREATE TABLE t (id int PRIMARY KEY, gone text, n int, s varchar(20), d numeric(10, 2), m mood DEFAULT 'ok', p pair DEFAULT (1, 'x'), big text);
ALTER TABLE t ALTER COLUMN big SET STORAGE EXTERNAL;
INSERT INTO t SELECT i, 'gone', i * 10, 's' || i, i / 4.0, 'sad', ROW(i, 'p')::pair, repeat(chr(64 + i), 3000) FROM generate_series(1, 5) AS i;
ALTER TABLE t DROP COLUMN gone, ADD COLUMN fast text DEFAULT 'fast';
INSERT INTO t (id, n) VALUES (6, NULL);
SQL
track($node, ['t']);
sql($node, <<'SQL');
VACUUM FULL t;
CLUSTER t USING t_pkey;
ALTER TABLE t SET TABLESPACE pg_default;
ALTER TABLE t SET ACCESS METHOD heap_again;
ALTER TABLE t SET LOGGED;
ALTER TABLE t ALTER COLUMN s TYPE text;
ALTER TABLE t ALTER COLUMN n TYPE bigint;
ALTER TABLE t ALTER COLUMN d TYPE numeric(12, 2);
ALTER TABLE t ALTER COLUMN id TYPE bigint;
ALTER TABLE t ADD COLUMN null_too text DEFAULT NULL;
ALTER TABLE t ALTER COLUMN m TYPE text;
SQL
is(latest('t'), 0, 'what changes no value is no version');
folds_as_jsonb('t');
sql($node, q{UPDATE t SET s = 'updated' WHERE id = 1});
is(sql($node, q{SELECT string_agg(event, ',') FROM stream_events('t', 1)}), 'schema change,update', 'nor a gap: the next change is seen');
is(sql($node, q{SELECT _change_type, row_data ->> 's' FROM stream_changes('t', 0, deduplication_mode => 'netChanges') WHERE row_data ->> 'id' = '1'}),
	'insert|updated', 'a key that became wider is the same key');

sql($node, q{ALTER TABLE t ALTER COLUMN n TYPE int USING n * 100});
is(counts('t', 2), '0|5|0', 'only rows that have changed are in the log');
is(sql($node, q{SELECT string_agg(event || ' ' || (old_row ->> 'n') || ' ' || (new_row ->> 'n'), ', ') FROM stream_events('t', 2) WHERE event = 'update'}),
	join(', ', map { 'update ' . $_ * 10 . ' ' . $_ * 1000 } 2 .. 5, 1), 'with both images');
is(sql($node, q{SELECT string_agg(event, ',') FROM stream_events('t', 2) WHERE event <> 'update'}), 'schema change', 'under a marker');
is(sql($node, q{SELECT string_agg(_change_type || ' ' || (row_data).n, ', ') FROM stream_changes(NULL::t, 2, compute_updates => true) WHERE (row_data).id = 3}),
	'update_preimage 30, update_postimage 3000', 'which are an update');
sql($node, q{ALTER TABLE t ADD COLUMN r float8 DEFAULT random(), ADD COLUMN serial serial, ADD COLUMN computed int GENERATED ALWAYS AS (n + 1) STORED, ALTER COLUMN s TYPE text USING s || '!', DROP COLUMN d});
is(counts('t', 3), '0|6|0', 'several things in one statement are one update of each row');
sql($node, q{ALTER TABLE t DROP COLUMN computed, ADD COLUMN computed int GENERATED ALWAYS AS (n + 2) STORED, ALTER COLUMN p TYPE text USING (p).b});
is(counts('t', 4), '0|6|0', 'with a composite type that goes, and a row without the generated value');
sql($node, q{ALTER TABLE t ALTER COLUMN id TYPE int USING -id});
is(counts('t', 5), '0|6|0', 'the key itself');
is(sql($node, q{SELECT count(*), min((row_data ->> 'id')::int) FROM stream_changes('t', deduplication_mode => 'netChanges')}), '6|-6', 'net changes know the rows by their new keys');
sql($node, q{ALTER TABLE t ALTER COLUMN id TYPE text});
is(counts('t', 6), '0|6|0', 'a key that is compared in another way is another one');
is(sql($node, q{SELECT string_agg(DISTINCT _change_type, ',') FROM stream_changes('t', 6, compute_updates => true)}), 'delete,insert', 'as readers see it');
is(sql($node, q{SELECT count(*) FROM stream_changes('t', deduplication_mode => 'netChanges') WHERE _change_type = 'insert'}), 6, 'in net changes too');
folds_as_jsonb('t');
versions_are_dense($node, 't');

# typed, where casts lead from the old columns to those of today
sql($node, <<'SQL');
CREATE TABLE typed (id int PRIMARY KEY, n int, v text);
INSERT INTO typed SELECT i, i, i FROM generate_series(1, 5) AS i;
SQL
track($node, ['typed']);
sql($node, <<'SQL');
UPDATE typed SET n = n + 1;
ALTER TABLE typed ALTER COLUMN n TYPE text USING 'n' || n, ADD COLUMN at timestamptz DEFAULT clock_timestamp();
DELETE FROM typed WHERE id = 1;
ALTER TABLE typed ALTER COLUMN id TYPE bigint, ALTER COLUMN v TYPE varchar(9) USING v || v;
INSERT INTO typed VALUES (100, 'x', 'y', now());
SQL
sync($node);
folds_to_table($node, 'typed');
sql($node, q{ALTER TABLE typed ALTER COLUMN v TYPE int USING length(v)});
fails_with($node, 'SELECT * FROM stream_changes(NULL::typed, 6)', '42846', qr/of type character varying\(9\) before version 6,.*up to 6/s,
	'what cannot be cast is an error naming the version');
folds_as_jsonb('typed');

# without identity, and with equal rows
sql($node, <<'SQL');
CREATE TABLE unkeyed (a int, b text);
INSERT INTO unkeyed VALUES (1, 'x'), (1, 'x'), (2, 'y'), (NULL, NULL);
SQL
track($node, ['unkeyed']);
sql($node, <<'SQL');
DELETE FROM unkeyed WHERE ctid = '(0,1)';
ALTER TABLE unkeyed ALTER COLUMN a TYPE bigint USING a + 1;
SQL
is(counts('unkeyed', 1), '0|0|1 0|2|0', 'a table without identity');
folds_to_table($node, 'unkeyed');

# inheritance: each table is a stream of its own
sql($node, <<'SQL');
CREATE TABLE parent (id int, v text);
CREATE TABLE child (w int) INHERITS (parent);
CREATE TABLE grandchild (x int) INHERITS (child);
INSERT INTO parent VALUES (1, 'parent');
INSERT INTO child VALUES (2, 'child', 2);
INSERT INTO grandchild VALUES (3, 'grandchild', 3, 3);
SQL
track($node, [qw(parent grandchild)]);
sql($node, q{ALTER TABLE parent ALTER COLUMN v TYPE text USING upper(v)});
is(counts('parent', 1) . ' ' . counts('grandchild', 1), '0|1|0 0|1|0', 'children are rewritten with their parent');
folds_as_jsonb($_) for qw(parent grandchild);

#
# In the middle of a transaction
#
sql($node, <<'SQL');
CREATE TABLE busy (id int PRIMARY KEY, v text);
INSERT INTO busy SELECT i, i FROM generate_series(1, 20) AS i;
SQL
track($node, ['busy']);
sql($node, <<'SQL');
BEGIN;
INSERT INTO busy VALUES (21, 'a');
UPDATE busy SET v = 'b' WHERE id <= 3;
DELETE FROM busy WHERE id = 20;
ALTER TABLE busy ALTER COLUMN v TYPE text USING v || '1';
UPDATE busy SET v = v || 'c' WHERE id > 15;
SAVEPOINT gone;
ALTER TABLE busy ALTER COLUMN v TYPE text USING v || 'gone', ADD COLUMN gone int DEFAULT random();
INSERT INTO busy VALUES (99, 'gone');
ROLLBACK TO gone;
INSERT INTO busy VALUES (22, 'd');
SAVEPOINT kept;
ALTER TABLE busy ADD COLUMN kept int GENERATED ALWAYS AS (length(v)) STORED;
RELEASE kept;
TRUNCATE busy;
INSERT INTO busy VALUES (1, 'e'), (2, 'f');
ALTER TABLE busy ALTER COLUMN id TYPE bigint USING id + 1000;
COMMIT;
UPDATE busy SET v = 'g' WHERE id = 1001;
SQL
is(counts('busy', 1), '4|51|22 0|1|0', 'rewrites between changes, in one transaction');
is(sql($node, q{SELECT count(*) FROM stream_events('busy') WHERE old_row::text ~ 'gone' OR new_row::text ~ 'gone'}), 0, 'what was rolled back is not there');
folds_to_table($node, 'busy');
folds_as_jsonb('busy');

# a synchronized scan would begin in the middle of the table
sql($node, <<'SQL');
CREATE TABLE scanned (id int PRIMARY KEY, v int, filler text);
INSERT INTO scanned SELECT i, i, repeat('x', 200) FROM generate_series(1, 40000) AS i;
SELECT stream_track('scanned', baseline => false);
SQL
sync($node);
sql($node, 'BEGIN; DECLARE c CURSOR FOR SELECT * FROM scanned; MOVE 20000 IN c; COMMIT');
isnt(sql($node, 'SELECT id FROM scanned LIMIT 1'), 1, 'a scan begins where the last one was');
sql($node, 'BEGIN; DECLARE c CURSOR FOR SELECT * FROM scanned; MOVE 20000 IN c; COMMIT; ALTER TABLE scanned ALTER COLUMN v TYPE int USING v * 2');
sync($node);
is(sql($node, q{SELECT count(*) FILTER (WHERE (new_row ->> 'v')::int = 2 * (old_row ->> 'v')::int AND new_row ->> 'id' = old_row ->> 'id'), count(*) FROM stream_events('scanned', 1)}),
	'40000|40000', 'rows are paired all the same');

#
# UNLOGGED
#
sql($node, <<'SQL');
CREATE TABLE logged (id int PRIMARY KEY);
INSERT INTO logged VALUES (1);
SQL
track($node, ['logged']);
sql($node, 'BEGIN; INSERT INTO logged VALUES (2); SAVEPOINT s; ALTER TABLE logged SET UNLOGGED; INSERT INTO logged VALUES (3); ROLLBACK TO s; COMMIT');
sync($node);
is(status($node, 'logged'), 'streaming', 'SET UNLOGGED that is rolled back leaves nothing');
folds_to_table($node, 'logged');
sql($node, 'INSERT INTO logged VALUES (4); ALTER TABLE logged SET UNLOGGED; INSERT INTO logged VALUES (5)');
sync($node);
is(status($node, 'logged'), 'gap', 'SET UNLOGGED is a gap');
fails_with($node, q{SELECT * FROM stream_changes('logged')}, '55000', qr/UNLOGGED/, 'readers are told');
is(sql($node, q{SELECT count(*) FROM stream_changes('logged', 0, 2)}), 3, 'what was before it can be read');
sql($node, 'ALTER TABLE logged SET LOGGED; INSERT INTO logged VALUES (6)');
sync($node);
is(status($node, 'logged'), 'gap', 'SET LOGGED does not heal it');
fails_with($node, q{SELECT * FROM stream_changes('logged')}, '55000', qr/UNLOGGED/, 'silently');
sql($node, q{SELECT stream_untrack('logged')});
track($node, ['logged']);
folds_to_table($node, 'logged');

#
# If it cannot be recorded, there is a warning and a gap, and the table is altered all the same
#
sub is_a_gap
{
	my ($table, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	sync($node);
	my $version = latest($table);
	is(sql($node, "SELECT event FROM stream_events('$table', $version)"), 'gap', "$test: a gap");
	fails_with($node, "SELECT * FROM stream_changes('$table'::regclass, $version)", '55000', qr/version $version\b/, "$test: readers are told");
	sql($node, "SELECT stream_untrack('$table')");
	track($node, [$table]);
}

sql($node, <<'SQL');
ALTER TABLE busy DROP COLUMN kept;
CREATE TABLE roomy (n int, filler text);
INSERT INTO roomy SELECT i, repeat('x', 200) FROM generate_series(1, 5000) AS i;
SELECT stream_track('roomy', baseline => false);
SQL
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE streamcdc.inbox IN ACCESS EXCLUSIVE MODE;');
fails_with($node, q{SET statement_timeout = '1s'; ALTER TABLE busy ALTER COLUMN v TYPE text USING 'cancelled'}, '57014', qr/statement timeout/,
	'a cancelled ALTER TABLE is cancelled');
is(sql($node, q{SELECT count(*) FROM busy WHERE v = 'cancelled'}), 0, 'and has done nothing');
warns_with($node, q{SET lock_timeout = '200ms'; ALTER TABLE busy ALTER COLUMN v TYPE text USING 'altered'}, qr/could not record the rows of table "busy"/,
	'one that cannot be recorded warns');
$holder->query_safe('COMMIT;');
$holder->quit;
is(sql($node, q{SELECT count(*) FROM busy WHERE v = 'altered'}), 2, 'and is done');
is_a_gap('busy', 'the inbox is locked');
warns_with($node, q{SET temp_file_limit = '8kB'; ALTER TABLE roomy ALTER COLUMN n TYPE int USING n * 2}, qr/could not record the old rows of table "roomy"/,
	'no room for old rows');
is_a_gap('roomy', 'no room for old rows');
sql($node, <<'SQL');
CREATE FUNCTION writes(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	UPDATE busy SET v = 'function' WHERE id = 1002;
	RETURN i;
END $$;
SQL
warns_with($node, q{ALTER TABLE busy ADD COLUMN f int DEFAULT writes(1)}, qr/could not record the rows of table "busy"/, 'a function that writes the table');
sync($node);
fails_with($node, q{SELECT * FROM stream_changes('busy'::regclass)}, '55000', qr/there is a gap/, 'makes a gap');
sql($node, q{SELECT stream_untrack('busy')});
track($node, ['busy']);
fails_with($node, q{ALTER TABLE busy ALTER COLUMN v TYPE int USING v::int}, '22P02', qr/invalid input syntax/, 'an ALTER TABLE that fails');
sync($node);
folds_to_table($node, 'busy');
is(sql($node, 'SELECT count(*) FROM streamcdc.inbox'), 0, 'nothing is left in the inbox');

#
# Killed between the commit and its capture; with memory for a small part of it
#
sql($node, q{ALTER SYSTEM SET streamcdc.capture_memory = '4MB'; SELECT pg_reload_conf()});
sql($node, <<'SQL');
CREATE TABLE large (id int PRIMARY KEY, n int, v text);
INSERT INTO large SELECT i, i, md5(i::text) || md5((-i)::text) FROM generate_series(1, 100000) AS i;
SQL
track($node, ['large']);
for my $round (1, 2)
{
	signal_worker($node, 'STOP');
	sql($node, <<'SQL');
BEGIN;
UPDATE large SET v = v || 'x' WHERE id % 2 = 0;
SAVEPOINT gone;
ALTER TABLE large ALTER COLUMN n TYPE int USING n + 7;
UPDATE large SET v = 'gone' WHERE id % 3 = 0;
ROLLBACK TO gone;
ALTER TABLE large ALTER COLUMN n TYPE int USING n + 1;
UPDATE large SET v = v || 'y' WHERE id % 5 = 0;
COMMIT;
SQL
	if ($round == 1)
	{
		crash_with_worker($node);
	}
	else
	{
		# which also ends a worker that is stopped
		$node->stop('immediate');
		$node->start;
	}
	wait_for_capture($node);
	is(counts('large', $round), '0|170000|0', "round $round: nothing is lost, nothing is there twice");
}
# the next worker is handed parts of a captured transaction once more, if it has to begin before that, and of what was rolled
# back in it; the rows are gone from the inbox, and what they had out of line first
my $older = $node->background_psql('postgres');
$older->query_safe('BEGIN; SELECT pg_current_xact_id();');
sql($node, <<'SQL');
BEGIN;
UPDATE large SET n = n + 1;
SAVEPOINT gone;
TRUNCATE large;
INSERT INTO large SELECT i, i, repeat('n' || i, 20) FROM generate_series(1, 100000) AS i;
ROLLBACK TO gone;
DELETE FROM large WHERE id % 2 = 0;
ALTER TABLE large ALTER COLUMN n TYPE bigint USING n * 10;
UPDATE large SET v = v || 'y';
SAVEPOINT kept;
TRUNCATE large;
INSERT INTO large SELECT i, i, repeat('m' || i, 20) FROM generate_series(1, 100000) AS i;
ALTER TABLE large ADD COLUMN u float8 DEFAULT random();
RELEASE kept;
UPDATE large SET n = n + 1 WHERE id <= 1000;
COMMIT;
SQL
is(counts('large', 3), '100000|301000|100000', 'a large transaction');
my $toast = sql($node, q{SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'streamcdc.inbox'::regclass});
sql($node, "VACUUM $toast");
$node->restart;
wait_for_capture($node);
sql($node, q{UPDATE large SET v = 'z' WHERE id = 1});
is(counts('large', 3), '100000|301000|100000 0|1|0', 'is not looked for in the inbox again once it is captured');
folds_to_table($node, 'large');
is(sql($node, 'SELECT count(*) FROM streamcdc.inbox'), 0, 'nothing is left in the inbox');

$node->stop;
done_testing();
