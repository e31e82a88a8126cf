# DDL on a tracked table before, between and inside transactions that write
# it: each version has the columns and the name of its time, and the whole
# folds to the table of today.
#
# Rewrites that change values, TRUNCATE and partitions have tests of their own.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $ddls = $ENV{STREAMCDC_TEST_DDLS} // 200;

my $node = new_node('ddl', conf => "max_prepared_transactions = 5\n");
start_extension($node);

sub latest
{
	my ($table) = @_;
	return sql($node, "SELECT stream_latest_version('$table')");
}

# the columns of the rows of these versions, each set once, in order
sub columns_since
{
	my ($table, $version) = @_;
	return sql($node, <<"SQL");
SELECT string_agg(columns, ' / ' ORDER BY first) FROM (
	SELECT columns, min(n) AS first FROM (
		SELECT row_number() OVER () AS n, (SELECT string_agg(k, ',' ORDER BY k) FROM jsonb_object_keys(coalesce(new_row, old_row)) AS k) AS columns
		FROM stream_events('$table', $version) WHERE event <> 'schema change') AS e
	GROUP BY columns) AS c
SQL
}

sub no_gap
{
	my ($table) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql($node, "SELECT count(*) FROM stream_events('$table') WHERE event IN ('gap', 'truncate')"), 0, "there is no gap in $table");
}

#
# Columns: each command between two transactions, inside one, and inside a subtransaction that is rolled back
#
sql($node, <<'SQL');
CREATE TABLE shaped (id int PRIMARY KEY, a int, b text, c text);
INSERT INTO shaped SELECT i, i, 'b' || i, repeat('c', 3000) FROM generate_series(1, 10) AS i;
CREATE TABLE named (id int PRIMARY KEY, v text);
INSERT INTO named VALUES (1, 'one');
CREATE SCHEMA elsewhere;
SQL
track($node, [ 'shaped', 'named' ]);

my $v = 1;
for my $case (
	# command, columns before, columns after
	[ 'ADD COLUMN d int DEFAULT 7', 'a,b,c,id', 'a,b,c,d,id' ],
	[ 'ADD COLUMN e text NOT NULL DEFAULT \'e\', ADD COLUMN f text', 'a,b,c,d,id', 'a,b,c,d,e,f,id' ],
	[ 'RENAME COLUMN a TO aa', 'a,b,c,d,e,f,id', 'aa,b,c,d,e,f,id' ],
	[ 'DROP COLUMN b', 'aa,b,c,d,e,f,id', 'aa,c,d,e,f,id' ],
	[ 'DROP COLUMN d, ADD COLUMN d text DEFAULT \'again\'', 'aa,c,d,e,f,id', 'aa,c,d,e,f,id' ],
	[ 'RENAME COLUMN id TO key', 'aa,c,d,e,f,id', 'aa,c,d,e,f,key' ],
	[ 'RENAME COLUMN key TO id', 'aa,c,d,e,f,key', 'aa,c,d,e,f,id' ],
	# nothing of these shows
	[ 'ALTER COLUMN c SET STORAGE EXTERNAL', 'aa,c,d,e,f,id', 'aa,c,d,e,f,id' ],
	[ 'ALTER COLUMN c SET STORAGE MAIN', 'aa,c,d,e,f,id', 'aa,c,d,e,f,id' ],
	[ 'ALTER COLUMN c SET COMPRESSION pglz', 'aa,c,d,e,f,id', 'aa,c,d,e,f,id' ],
	[ 'ALTER COLUMN f SET DEFAULT \'f\', ALTER COLUMN e DROP NOT NULL, ALTER COLUMN aa SET STATISTICS 10', 'aa,c,d,e,f,id', 'aa,c,d,e,f,id' ],
	[ 'ADD CONSTRAINT positive CHECK (id > 0), SET (fillfactor = 50)', 'aa,c,d,e,f,id', 'aa,c,d,e,f,id' ])
{
	my ($command, $before, $after) = @$case;
	my $key = $before =~ /key/ ? 'key' : 'id';
	my $key_after = $after =~ /key/ ? 'key' : 'id';
	my $n = 1000 + 10 * $v;
	# rolled back first: what was written under it is not there, what follows has the old columns
	sql($node, <<"SQL");
BEGIN;
INSERT INTO shaped ($key) VALUES ($n);
SAVEPOINT a;
ALTER TABLE shaped $command;
INSERT INTO shaped ($key_after) VALUES ($n + 1);
UPDATE shaped SET c = 'never';
ROLLBACK TO a;
UPDATE shaped SET c = c || 'x' WHERE $key = 3;
SAVEPOINT a;
SAVEPOINT b;
ALTER TABLE shaped $command;
RELEASE b;
UPDATE shaped SET c = 'never';
ROLLBACK TO a;
DELETE FROM shaped WHERE $key = $n;
COMMIT;
BEGIN;
INSERT INTO shaped ($key) VALUES ($n + 2);
UPDATE shaped SET c = c || 'y' WHERE $key IN (1, 2);
ALTER TABLE shaped $command;
INSERT INTO shaped ($key_after) VALUES ($n + 3);
UPDATE shaped SET c = c || 'z' WHERE $key_after IN (2, $n + 2);
DELETE FROM shaped WHERE $key_after = $n + 3;
COMMIT;
UPDATE shaped SET c = 'after' WHERE $key_after = $n + 2;
SQL
	is(columns_since('shaped', $v), $before eq $after ? $before : "$before / $after", "$command: columns before and after it");
	is(sql($node, "SELECT string_agg(inserts || '+' || updates || '~' || deletes || '-', ' ' ORDER BY _commit_version) FROM stream_versions('shaped', $v)"),
		'1+1~1- 2+4~1- 0+1~0-', 'and all events, with nothing of what was rolled back');
	is(sql($node, "SELECT count(*) FROM stream_events('shaped', $v) WHERE event = 'schema change'"),
		$before eq $after && $command !~ /ADD COLUMN/ ? 0 : 1, 'marked where columns change, and only there');
	$v += 3;
}
is(sql($node, q{SELECT old_row ->> 'd', new_row ->> 'd' FROM stream_events('shaped', 5) WHERE event = 'update' AND old_row ->> 'id' = '2' LIMIT 1}), '7|7',
	'old rows have the default of a column added later');
# DDL alone is no version
is(latest('shaped'), $v - 1, 'DDL alone makes no version');
no_gap('shaped');
versions_are_dense($node, 'shaped');
changes_fold_to_table($node, 'shaped');

#
# Names: the log follows the table
#
sql($node, <<'SQL');
INSERT INTO named VALUES (2, 'two');
ALTER TABLE named RENAME TO renamed;
INSERT INTO renamed VALUES (3, 'three');
BEGIN;
UPDATE renamed SET v = 'before' WHERE id = 1;
ALTER TABLE renamed SET SCHEMA elsewhere;
UPDATE elsewhere.renamed SET v = 'between' WHERE id = 1;
ALTER TABLE elsewhere.renamed RENAME TO named;
UPDATE elsewhere.named SET v = 'after' WHERE id = 1;
COMMIT;
CREATE TABLE named (other int);
INSERT INTO named VALUES (1);
SQL
is(sql($node, q{SELECT string_agg(coalesce(new_row ->> 'v', '') || coalesce(new_row ->> 'other', ''), ',' ORDER BY _commit_version, event_number) FROM stream_events('elsewhere.named', 1)}),
	'two,three,before,between,after', 'renamed and moved to another schema: one log');
is(sql($node, q{SELECT string_agg(table_name, ',') FROM stream_tables WHERE table_name LIKE '%named'}), 'elsewhere.named', 'listed under its name of today');
fails_with($node, q{SELECT * FROM stream_changes('named')}, '0A000', qr/not tracked|CHANGE_DATA_CAPTURE_ON_RELATION/, 'the old name means another table now');
folds_to_table($node, 'elsewhere.named');
# two tables swap their names, the usual way to replace one
sql($node, <<'SQL');
CREATE TABLE swapped (id int PRIMARY KEY, v text);
CREATE TABLE fresh (id int PRIMARY KEY, v text);
SQL
track($node, [ 'swapped', 'fresh' ]);
sql($node, <<'SQL');
INSERT INTO swapped VALUES (1, 'old');
INSERT INTO fresh VALUES (1, 'new'), (2, 'new');
BEGIN;
ALTER TABLE swapped RENAME TO swapped_old;
ALTER TABLE fresh RENAME TO swapped;
INSERT INTO swapped VALUES (3, 'newer');
COMMIT;
SQL
is(sql($node, q{SELECT count(*) FROM stream_changes('swapped')}) . '/' . sql($node, q{SELECT count(*) FROM stream_changes('swapped_old')}), '3/1',
	'names that are swapped: each log goes with its table');
folds_to_table($node, $_) for qw(swapped swapped_old);
# a schema is renamed
sql($node, q{ALTER SCHEMA elsewhere RENAME TO "El's  Where"; INSERT INTO "El's  Where".named VALUES (9, 'nine')});
is(sql($node, q{SELECT row_data ->> 'v' FROM stream_changes('"El''s  Where".named', stream_latest_version('"El''s  Where".named'))}), 'nine', 'a schema that is renamed');
sql($node, q{ALTER SCHEMA "El's  Where" RENAME TO elsewhere});

#
# Owner, rights, row-level security: who may read is decided now, not when it was written
#
sql($node, <<'SQL');
CREATE ROLE first_owner LOGIN;
CREATE ROLE second_owner LOGIN;
CREATE ROLE reader LOGIN;
GRANT USAGE, CREATE ON SCHEMA public TO first_owner, second_owner;
CREATE TABLE owned (id int PRIMARY KEY, secret text);
ALTER TABLE owned OWNER TO first_owner;
INSERT INTO owned VALUES (1, 'a');
SQL
track($node, ['owned']);
sub reads
{
	my ($user, $what) = @_;
	my ($status, $out, $err) = $node->psql('postgres', "SET client_min_messages = warning;\n" . ($what // q{SELECT count(*) FROM stream_changes('owned')}),
		extra_params => [ '-v', 'VERBOSITY=verbose', '-U', $user ]);
	return $status == 0 ? $out : $err =~ /ERROR:  (\w+):/ ? $1 : $err;
}
is(join(' ', map { reads($_) } qw(first_owner second_owner reader)), '1 42501 42501', 'the owner reads');
sql($node, 'ALTER TABLE owned OWNER TO second_owner; INSERT INTO owned VALUES (2, \'b\')');
is(join(' ', map { reads($_) } qw(first_owner second_owner reader)), '42501 2 42501', 'another owner: it reads what was written before, too');
is(reads('first_owner', q{SELECT stream_untrack('owned')}) . reads('first_owner', q{SELECT count(*) FROM stream_tables WHERE table_name = 'owned'}), '425010',
	'the first one may do nothing with it any more');
sql($node, 'GRANT SELECT ON owned TO reader');
is(reads('reader'), '2', 'SELECT is enough to read');
sql($node, 'REVOKE SELECT ON owned FROM reader; GRANT SELECT (id) ON owned TO reader');
is(reads('reader'), '42501', 'of all columns');
sql($node, 'GRANT SELECT ON owned TO reader; ALTER TABLE owned ENABLE ROW LEVEL SECURITY');
is(join(' ', map { reads($_) } qw(second_owner reader)), '2 42501', 'row-level security, switched on: only those it does not apply to read');
fails_with($node, q{SELECT * FROM stream_events('owned')}, '42501', qr/DETAIL:.*row-level security/si, 'and the reason is told', user => 'reader');
is(reads('reader', q{SELECT count(*) FROM stream_versions('owned')}), '42501', 'nor are versions shown');
sql($node, 'ALTER TABLE owned FORCE ROW LEVEL SECURITY');
is(join(' ', map { reads($_) } qw(second_owner reader)), '42501 42501', 'forced: not the owner either');
sql($node, 'CREATE POLICY all_rows ON owned USING (true); INSERT INTO owned VALUES (3, \'c\')');
is(join(' ', map { reads($_) } qw(second_owner reader)), '42501 42501', 'a policy that lets everything through is no exception');
sql($node, 'ALTER TABLE owned DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY');
is(join(' ', map { reads($_) } qw(second_owner reader)), '3 3', 'switched off again');
folds_to_table($node, 'owned');

#
# What moves rows without changing them
#
sql($node, 'CREATE TABLE moved (id int PRIMARY KEY, v text, big text); ALTER TABLE moved ALTER big SET STORAGE EXTERNAL;'
	  . 'INSERT INTO moved SELECT i, i, repeat(md5(i::text), 100) FROM generate_series(1, 100) AS i');
track($node, ['moved']);
for my $command ('VACUUM FULL moved', 'VACUUM (FREEZE) moved', 'REINDEX TABLE moved', 'REINDEX TABLE CONCURRENTLY moved', 'ANALYZE moved',
	'CLUSTER moved USING moved_pkey', 'CREATE INDEX CONCURRENTLY ON moved (v)', 'DROP INDEX moved_v_idx', 'REINDEX DATABASE postgres', 'VACUUM FULL')
{
	my $before = latest('moved');
	# a transaction that has written other rows, and goes on afterwards
	my $open = $node->background_psql('postgres');
	# the database-wide ones, CLUSTER and the like wait for whoever has the table
	my $waits = $command =~ /CONCURRENTLY|DROP|FULL|CLUSTER|REINDEX/;
	$open->query_safe('BEGIN; UPDATE named SET other = other + 1;' . ($waits ? '' : 'UPDATE moved SET v = v || \'o\' WHERE id = 1'));
	$open->query_safe('COMMIT;') if $waits;
	sql($node, "INSERT INTO moved VALUES (1000 + $before, 'before')");
	sql($node, $command);
	sql($node, "UPDATE moved SET v = v || 'x' WHERE id IN (2, 3); DELETE FROM moved WHERE id = 1000 + $before");
	$open->query_safe('COMMIT;') unless $waits;
	$open->quit;
	is(latest('moved'), $before + ($waits ? 3 : 4), "$command is no version");
	is(sql($node, "SELECT count(*) FROM stream_events('moved', $before + 1) WHERE event = 'schema change'"), 0, 'and changes no columns');
}
for my $command ('CLUSTER moved USING moved_pkey', 'REINDEX TABLE moved', 'ALTER TABLE moved SET TABLESPACE pg_default', 'ALTER INDEX moved_pkey RENAME TO moved_pk')
{
	my $before = latest('moved');
	sql($node, "BEGIN; UPDATE moved SET v = v || 'a' WHERE id = 4; $command; UPDATE moved SET v = v || 'b' WHERE id = 4; SAVEPOINT a; UPDATE moved SET v = 'never'; ROLLBACK TO a; COMMIT");
	is(sql($node, "SELECT _commit_version, updates FROM stream_versions('moved', $before + 1)"), $before + 1 . '|2', "$command between two changes in one transaction");
}
no_gap('moved');
versions_are_dense($node, 'moved');
folds_to_table($node, 'moved');
# tracked tables beside: nothing was disturbed by VACUUM FULL of the catalogs and of our own tables
folds_to_table($node, 'swapped');

#
# DDL with weak locks, and others that have the table open (lost in servers before 15.13)
#
my @open = map { $node->background_psql('postgres') } 1 .. 3;
$open[$_]->query_safe("BEGIN; INSERT INTO shaped (id) VALUES (5000 + $_);") for 0 .. 2;
sql($node, <<'SQL');
CREATE PUBLICATION weak FOR TABLE moved;
ALTER PUBLICATION weak ADD TABLE shaped;
ALTER TABLE shaped ALTER COLUMN f SET STATISTICS 100;
ALTER TABLE shaped VALIDATE CONSTRAINT positive;
CREATE STATISTICS of_shaped ON id, aa FROM shaped;
COMMENT ON COLUMN shaped.aa IS 'commented';
GRANT SELECT (aa) ON shaped TO reader;
SELECT stream_track('named');
SQL
$open[0]->query_safe('UPDATE shaped SET c = \'open\' WHERE id = 5000; COMMIT;');
sql($node, 'ALTER PUBLICATION weak DROP TABLE shaped; INSERT INTO named VALUES (77); SELECT stream_untrack(\'named\')');
$open[$_]->query_safe("INSERT INTO moved VALUES (7000 + $_); UPDATE shaped SET c = 'open' WHERE id = 5000 + $_; COMMIT;") for 1, 2;
$_->quit for @open;
changes_fold_to_table($node, $_) for qw(shaped moved);
is(sql($node, q{SELECT count(*) FROM stream_events('shaped') WHERE new_row ->> 'c' = 'open'}), 3, 'DDL with weak locks beside open transactions that write the table');
sql($node, 'DROP PUBLICATION weak');

# many commands beside many open transactions: each command is told to all of them
my $most = 20;
@open = map { $node->background_psql('postgres') } 1 .. $most;
$open[ $_ - 1 ]->query_safe("BEGIN; INSERT INTO moved VALUES (20000 + $_);") for 1 .. $most;
sql($node, join("\n", map { 'CREATE TABLE x (i int); ALTER TABLE x ADD j int; INSERT INTO x VALUES (1); DROP TABLE x;' } 1 .. $ddls));
$open[ $_ - 1 ]->query_safe("UPDATE moved SET v = 'many' WHERE id = 20000 + $_; COMMIT;") for 1 .. $most;
$_->quit for @open;
is(sql($node, q{SELECT count(*) FROM stream_events('moved') WHERE new_row ->> 'v' = 'many'}), $most, 4 * $ddls . " commands beside $most open transactions");
folds_to_table($node, 'moved');

#
# The catalog's past is kept as long as it is needed: a type changes, and VACUUM runs, before a transaction is decoded
#
sql($node, 'CREATE TYPE pair AS (a int, b int); CREATE TABLE typed (id int PRIMARY KEY, p pair); ALTER TABLE typed REPLICA IDENTITY FULL');
track($node, ['typed']);
my $open = $node->background_psql('postgres');
$open->query_safe('BEGIN; INSERT INTO typed VALUES (1, (1, 2));');
my $stopped = signal_worker($node, 'STOP');
sql($node, 'ALTER TYPE pair ADD ATTRIBUTE c int; INSERT INTO typed VALUES (2, (1, 2, 3)); ALTER TYPE pair DROP ATTRIBUTE b; VACUUM FREEZE pg_attribute; VACUUM FREEZE pg_class; CHECKPOINT');
$open->query_safe('INSERT INTO typed VALUES (3, row(4, 5)); COMMIT;');
$open->quit;
sql($node, 'ALTER TABLE typed DROP COLUMN p; DROP TYPE pair; VACUUM pg_attribute; VACUUM pg_type; INSERT INTO typed VALUES (4)');
kill 'CONT', $stopped;
is(sql($node, q{SELECT count(*), count(new_row ->> 'p') FROM stream_events('typed') WHERE event = 'insert'}), '4|3', 'rows with a type that changed, and is gone by now');
changes_fold_to_table($node, 'typed');

#
# Dropped, and made again under the same name
#
sql($node, 'CREATE TABLE again (id int PRIMARY KEY, v text); INSERT INTO again VALUES (1, \'first\')');
track($node, ['again']);
sql($node, <<'SQL');
INSERT INTO again VALUES (2, 'first');
BEGIN;
INSERT INTO again VALUES (3, 'first');
SAVEPOINT a;
DROP TABLE again;
CREATE TABLE again (other int);
INSERT INTO again VALUES (1);
ROLLBACK TO a;
INSERT INTO again VALUES (4, 'first');
COMMIT;
SQL
is(latest('again'), 2, 'a DROP that is rolled back is none');
folds_to_table($node, 'again');
sql($node, <<'SQL');
BEGIN;
UPDATE again SET v = 'last' WHERE id = 1;
DROP TABLE again;
CREATE TABLE again (id int PRIMARY KEY, v text, w text);
INSERT INTO again VALUES (1, 'in between', NULL);
SELECT stream_track('again');
INSERT INTO again VALUES (2, 'second', NULL);
COMMIT;
SELECT stream_sync();
INSERT INTO again VALUES (3, 'second', NULL);
SQL
sync($node);
is(sql($node, q{SELECT count(*), min(_commit_version), max(_commit_version) FROM stream_events('again')}), '3|0|1', 'made again and tracked in one transaction: a new log');
folds_to_table($node, 'again');
my $dropped = sql($node, q{SELECT table_name FROM stream_tables WHERE table_name LIKE 'again (dropped %'});
is(sql($node, "SELECT status, first_version, last_version FROM stream_tables WHERE table_name = '$dropped'"), 'dropped|0|3', 'and the old one is still listed');
is(sql($node, "SELECT new_row ->> 'v' FROM stream_events('$dropped', 3)"), 'last', 'with what the transaction of the DROP did before it');

# many at once, and what depends on them
sql($node, <<'SQL');
CREATE SCHEMA doomed;
CREATE TABLE doomed.parent (id int PRIMARY KEY);
CREATE TABLE doomed.child (id int PRIMARY KEY, parent int REFERENCES doomed.parent);
CREATE VIEW doomed.view AS SELECT * FROM doomed.child;
CREATE TABLE survivor (id int PRIMARY KEY, parent int REFERENCES doomed.parent);
CREATE TABLE belonging (id int PRIMARY KEY);
ALTER TABLE belonging OWNER TO first_owner;
CREATE TABLE of_type_owner (id int PRIMARY KEY);
SQL
track($node, [qw(doomed.parent doomed.child survivor belonging)]);
sql($node, <<'SQL');
INSERT INTO doomed.parent VALUES (1);
INSERT INTO doomed.child VALUES (1, 1);
INSERT INTO survivor VALUES (1, 1);
INSERT INTO belonging VALUES (1);
BEGIN;
UPDATE doomed.child SET parent = NULL;
DROP SCHEMA doomed CASCADE;
INSERT INTO survivor VALUES (2, 2);
COMMIT;
SET ROLE first_owner;
DROP OWNED BY CURRENT_USER;
RESET ROLE;
SQL
# capture says so in its own time
$node->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM streamcdc.streams WHERE state = 'd' AND last_version IS NULL)}) or die 'a log does not end';
is(sql($node, q{SELECT string_agg(regexp_replace(table_name, '\d+', 'N') || ' ' || last_version, ', ' ORDER BY table_name) FROM stream_tables WHERE table_name ~ 'doomed|belonging'}),
	'belonging (dropped N) 1, doomed.child (dropped N) 2, doomed.parent (dropped N) 1', 'DROP SCHEMA CASCADE and DROP OWNED keep the logs');
folds_to_table($node, 'survivor');
is(reads('first_owner', q{SELECT count(*) FROM stream_events('belonging')}), 1, 'whose last owner reads them');
sql($node, q{REVOKE ALL ON SCHEMA public FROM first_owner; DROP ROLE first_owner});
is(sql($node, q{SELECT count(*) FROM stream_events('belonging')}), 1, 'superusers also when the owner is gone');
is(reads('reader', q{SELECT count(*) FROM stream_events('belonging')}), '42501', 'nobody else');

# the only one that is tracked, and capture has not seen yet what was written
sql($node, 'SELECT stream_untrack(relid) FROM streamcdc.streams WHERE state IN (\'l\', \'g\')');
sql($node, 'CREATE TABLE last_one (id int PRIMARY KEY, v text)');
track($node, ['last_one']);
$stopped = signal_worker($node, 'STOP');
sql($node, "INSERT INTO last_one SELECT i, md5(i::text) FROM generate_series($_ * 10000 + 1, $_ * 10000 + 10000) AS i") for 0 .. 19;
sql($node, 'DROP TABLE last_one');
kill 'CONT', $stopped;
is(sql($node, q{SELECT count(*), max(_commit_version) FROM stream_events('last_one')}), '200000|20', 'what was committed before the last table was dropped is in its log');
wait_for_no_capture($node, 'and then capture ends');
is(sql($node, q{SELECT count(*), max(_commit_version) FROM stream_events('last_one')}), '200000|20', 'the log stays');
# the same after a restart
sql($node, 'CREATE TABLE last_one (id int PRIMARY KEY, v text)');
track($node, ['last_one']);
$stopped = signal_worker($node, 'STOP');
sql($node, "INSERT INTO last_one SELECT i, md5(i::text) FROM generate_series($_ * 10000 + 1, $_ * 10000 + 10000) AS i") for 0 .. 19;
sql($node, 'DROP TABLE last_one');
$node->stop('immediate');
$node->start;
is(sql($node, q{SET streamcdc.read_timeout = '60s'; SELECT count(*), max(_commit_version) FROM stream_events('last_one')}), '200000|20', 'after a crash as well');
wait_for_no_capture($node, 'capture ends after that, too');

#
# SAVEPOINT; ALTER TABLE; ROLLBACK TO; DML; and the worker or the server is killed in the middle (mended in 15.20)
#
sql($node, 'CREATE TABLE killed (id int PRIMARY KEY, v text); CREATE TABLE beside (id int PRIMARY KEY)');
track($node, [ 'killed', 'beside' ]);
for my $how (qw(TERM KILL immediate))
{
	my $before = latest('killed');
	my $session = $node->background_psql('postgres');
	$session->query_safe("BEGIN; INSERT INTO killed VALUES (10 * $before + 1, 'before'); SAVEPOINT a; ALTER TABLE killed ADD COLUMN never int DEFAULT 1;"
		  . "INSERT INTO killed VALUES (10 * $before + 2, 'never', 2); ROLLBACK TO a; INSERT INTO killed VALUES (10 * $before + 3, 'after');");
	sql($node, "INSERT INTO beside VALUES ($before); CHECKPOINT");
	sync($node);
	if ($how eq 'TERM')
	{
		my $pid = signal_worker($node, 'TERM');
		$node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)") or die 'the worker does not end';
	}
	else
	{
		# a prepared transaction outlives it
		$session->query_safe("PREPARE TRANSACTION 'middle'");
		$session->quit;
		$how eq 'KILL' ? crash_with_worker($node) : ($node->stop('immediate'), $node->start);
	}
	wait_for_capture($node);
	if ($how eq 'TERM')
	{
		$session->query_safe("SAVEPOINT b; ALTER TABLE killed RENAME v TO never; UPDATE killed SET never = 'x'; ROLLBACK TO b; INSERT INTO killed VALUES (10 * $before + 4, 'last'); COMMIT;");
		$session->quit;
	}
	else
	{
		sql($node, q{COMMIT PREPARED 'middle'});
	}
	is(columns_since('killed', $before + 1), 'id,v', "$how: nothing of an ALTER TABLE that was rolled back");
	is(sql($node, "SELECT inserts, updates, deletes FROM stream_versions('killed', $before + 1)"), $how eq 'TERM' ? '3|0|0' : '2|0|0', 'and all that was not');
	folds_to_table($node, 'killed');
}

#
# Two databases at once
#
start_extension($node, 'second');
sql($node, 'CREATE TABLE killed (id int PRIMARY KEY, w text); CREATE TABLE beside (id int, other text)', 'second');
track($node, [ 'killed', 'beside' ], 'second');
for my $n (1 .. 3)
{
	sql($node, "INSERT INTO killed VALUES (5000 + $n, 'first database'); ALTER TABLE beside ADD COLUMN c$n int DEFAULT $n; INSERT INTO beside VALUES (5000 + $n)");
	sql($node, "INSERT INTO killed VALUES ($n, 'second'); ALTER TABLE killed RENAME w TO w$n; UPDATE killed SET w$n = 'x'; ALTER TABLE killed RENAME w$n TO w; INSERT INTO beside VALUES ($n)", 'second');
}
sql($node, 'DROP TABLE beside', 'second');
is(sql($node, q{SELECT count(new_row) FROM stream_events('beside')}) . '/' . sql($node, q{SELECT count(new_row) FROM stream_events('beside')}, 'second'), '6/3',
	'two databases with tables of the same names have logs of their own');
folds_to_table($node, 'killed');
changes_fold_to_table($node, 'beside');
changes_fold_to_table($node, 'killed', 'second');

$node->stop;
done_testing();
