# Large values: what is stored comes back bit by bit up to the limit of 256 MB a row; what is larger stalls its own table, says
# where, and nothing else is held up; memory is given back.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $MB = 1024 * 1024;
my $node = new_node('values', conf => <<'CONF');
fsync = off
max_wal_size = 8GB
streamcdc.read_timeout = 600s
CONF
start_extension($node);
sql($node, <<'SQL');
CREATE TABLE big (id int PRIMARY KEY, v bytea, n int);
ALTER TABLE big ALTER v SET STORAGE EXTERNAL;
CREATE TABLE other (id int PRIMARY KEY);
-- by id, the last image, typed
CREATE FUNCTION wrong_rows(tab text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	result bigint;
BEGIN
	EXECUTE format($q$
		WITH c AS MATERIALIZED (SELECT row_number() OVER () AS n, _change_type AS type, (row_data).id AS id, md5((row_data).v) AS v, (row_data).n AS x FROM stream_changes(NULL::%1$I)),
			last AS (SELECT DISTINCT ON (id) * FROM c ORDER BY id, n DESC)
		SELECT count(*) FROM (SELECT id, md5(v) AS v, n AS x FROM %1$I) AS t FULL JOIN (SELECT * FROM last WHERE type = 'insert') AS l USING (id)
		WHERE (t.v, t.x) IS DISTINCT FROM (l.v, l.x) OR t IS NULL OR l IS NULL $q$, tab) INTO result;
	RETURN result;
END $$;
SQL
# bytes that cannot be compressed
my $noise = PostgreSQL::Test::Utils::tempdir() . '/noise';
open(my $in, '<:raw', '/dev/urandom') or die $!;
open(my $out, '>:raw', $noise) or die $!;
for (1 .. 101) { read($in, my $bytes, $MB) == $MB or die; print $out $bytes }
close $out;
chmod 0644, $noise;

#
# 1 MB, 100 MB, and as much as there can be
#
sql($node, "INSERT INTO big VALUES (1, pg_read_binary_file('$noise', 0, $MB), 0), (2, pg_read_binary_file('$noise', 5, 100 * $MB), 0)");
track($node, [ 'big', 'other' ]);
is(sql($node, 'SELECT wrong_rows(\'big\')'), 0, 'a baseline with values of 1 and 100 MB');
sql($node, 'UPDATE big SET n = 1');												# 1
sql($node, "BEGIN; UPDATE big SET v = pg_read_binary_file('$noise', 7, 100 * $MB), id = 12 WHERE id = 2; DELETE FROM big WHERE id = 1; COMMIT");	# 2
sql($node, "INSERT INTO big VALUES (3, pg_read_binary_file('$noise', 9, $MB), 1)");	# 3
sql($node, "INSERT INTO big VALUES (4, convert_to(repeat('a', 100 * $MB), 'UTF8'), 0)");	# 4
is(sql($node, 'SELECT wrong_rows(\'big\')'), 0, 'values of 1 and 100 MB: not written again, replaced, with another key, deleted');
is(sql($node, 'SET work_mem = \'1MB\'; SELECT string_agg(_change_type || \' \' || (row_data).id || \' \' || length((row_data).v) / 1048576, \', \') FROM stream_changes(NULL::big, 1, 1, compute_updates => true)'),
	'update_preimage 1 1, update_postimage 1 1, update_preimage 2 100, update_postimage 2 100', 'with little memory');
is(sql($node, 'SELECT string_agg(length(row_data ->> \'v\') || md5(row_data ->> \'v\'), \' \') = (SELECT length(v::text) || md5(v::text) FROM big WHERE id = 4) FROM stream_changes(\'big\', 4, 4)'), 't',
	'a value of 100 MB as jsonb');
# the limit itself: 20 bytes, with alignment, are not the value
my $most = 256 * $MB - 20;
sql($node, 'CREATE TABLE limits (LIKE big INCLUDING ALL)');
track($node, ['limits']);
sql($node, "INSERT INTO limits VALUES (2, convert_to(repeat('c', $most), 'UTF8'), 0)");
is(sql($node, 'SELECT wrong_rows(\'limits\')'), 0, 'a row of 256 MB');
is(sql($node, 'SELECT status FROM stream_tables WHERE table_name = \'limits\''), 'streaming', 'is captured');
fails_with($node, 'SELECT * FROM stream_changes(\'limits\', (SELECT max(_commit_version) FROM stream_versions(\'limits\')))', '54000', qr/jsonb.*column "v" in version/s,
	'jsonb cannot hold it, and the error names the column and the version');
sql($node, 'SELECT stream_untrack(\'limits\')');

# compressed, a value of nearly a gigabyte is small
sql($node, 'CREATE TABLE compressed (id int PRIMARY KEY, v text, n int)');
track($node, ['compressed']);
sql($node, "INSERT INTO compressed VALUES (1, repeat('x', 1000 * $MB), 0)");
sql($node, 'UPDATE compressed SET n = 1');
# to unfold it once is enough: how long it is stands in front of it as well
is(sql($node, 'SELECT string_agg(_change_type || CASE _commit_version WHEN 1 THEN length((row_data).v) ELSE octet_length((row_data).v) END, \' \') FROM stream_changes(NULL::compressed, 1)'), 'insert1048576000 delete1048576000 insert1048576000',
	'a value of 1000 MB that is stored compressed');
sql($node, 'DELETE FROM compressed');
is(sql($node, 'SELECT count(*) FROM stream_changes(NULL::compressed, 3)'), 1, 'is deleted');

sql($node, 'DELETE FROM big WHERE id > 3');

#
# What is larger: that table stalls with the reason, nothing else does
#
sql($node, 'INSERT INTO other VALUES (1)');
# rolled back it does no harm, even if it was decoded before
sql($node, "BEGIN; INSERT INTO big VALUES (7, convert_to(repeat('c', $most + 1), 'UTF8'), 0); ROLLBACK");
sql($node, "BEGIN; INSERT INTO big VALUES (8, 'x', 0); SAVEPOINT s; INSERT INTO big VALUES (7, convert_to(repeat('c', $most + 1), 'UTF8'), 0); ROLLBACK TO s; INSERT INTO big VALUES (9, 'x', 0); COMMIT");
is(sql($node, 'SELECT status FROM stream_tables, stream_sync(\'600 s\') WHERE table_name = \'big\''), 'streaming', 'a larger row that is rolled back');
my $good = sql($node, 'SELECT stream_latest_version(\'big\')');
my $before = sql($node, 'SELECT pg_current_wal_insert_lsn()');
my ($xid, undef) = split /\n/, sql($node, "BEGIN; SELECT pg_current_xact_id(); INSERT INTO other VALUES (2); INSERT INTO big VALUES (7, convert_to(repeat('c', $most + 1), 'UTF8'), 0); INSERT INTO other VALUES (3); COMMIT");
my $after = sql($node, 'SELECT pg_current_wal_insert_lsn()');
sql($node, 'INSERT INTO big VALUES (10, \'later\', 0); INSERT INTO other VALUES (4)');
is(sql($node, 'SELECT string_agg(row_data ->> \'id\', \' \') FROM stream_changes(\'other\', 1)'), '1 2 3 4', 'a larger row: other tables go on');
my ($status, $last, $error) = split /\|/, sql($node, 'SELECT status, last_version, last_error FROM stream_tables WHERE table_name = \'big\'');
is("$status $last", "stalled " . ($good + 1), 'its own is stalled');
like($error, qr/^row of 268435458 bytes is too large to be captured \(table "big", transaction $xid, WAL position [0-9A-F]+\/[0-9A-F]+\)$/, 'with size, table, transaction and position');
my ($lsn) = $error =~ /WAL position (\S+)\)/;
is(sql($node, "SELECT '$lsn'::pg_lsn BETWEEN '$before' AND '$after'"), 't', 'the position is that of the row');
fails_with($node, 'SELECT * FROM stream_changes(NULL::big)', '55000', qr/after version $good were not captured.*DETAIL:  row of 268435458 bytes/s, 'a read of all is refused with the reason');
is(sql($node, "SELECT string_agg((row_data).id::text, ' ') FROM stream_changes(NULL::big, $good, $good)"), '8 9', 'what was before can be read');
# begun anew, now as a baseline
sql($node, 'SELECT stream_untrack(\'big\'), stream_track(\'big\')');
wait_for_status($node, 'big', 'stalled');
like(sql($node, 'SELECT last_error FROM stream_tables WHERE table_name = \'big\''), qr/^row of 268435458 bytes is too large to be captured \(table "big", while its baseline was copied\)$/, 'a baseline that cannot be copied says so');
fails_with($node, 'SELECT * FROM stream_changes(\'big\')', '55000', qr/capture of table "big" is stalled.*DETAIL:  row of 268435458 bytes/s, 'and so do readers, at once');
is(sql($node, 'SELECT count(*) FROM stream_changes(\'other\')'), 4, 'other tables are not concerned');
sql($node, 'SELECT stream_untrack(\'big\')');
my ($replica) = sql($node, 'SELECT relreplident FROM pg_class WHERE relname = \'big\'');
is($replica, 'd', 'it can be untracked');
# without it, all is well
sql($node, 'DELETE FROM big WHERE id = 7');
track($node, ['big']);
is(sql($node, 'SELECT wrong_rows(\'big\')'), 0, 'without the row it is copied');
# a row that was there before, and is met in an update only
sql($node, "SELECT stream_untrack('big'); INSERT INTO big VALUES (7, convert_to(repeat('c', $most + 1), 'UTF8'), 0); SELECT stream_track('big', baseline => false)");
sql($node, 'INSERT INTO big VALUES (20, \'x\', 1)');
$good = sql($node, 'SELECT stream_latest_version(\'big\')');
sql($node, 'DELETE FROM big WHERE id = 7; SELECT stream_sync(\'600 s\')');
wait_for_status($node, 'big', 'stalled');
is(sql($node, "SELECT string_agg((row_data).id::text, ' ') FROM stream_changes(NULL::big, $good, $good)"), '20', 'a row that is too large and was there before stalls when it is deleted');
sql($node, 'SELECT stream_untrack(\'big\'); TRUNCATE big');

# more than a tuple can be: 2 x 500 MB
sql($node, 'CREATE TABLE huge (id int PRIMARY KEY, a bytea, b bytea); ALTER TABLE huge ALTER a SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL');
track($node, ['huge']);
sql($node, "INSERT INTO huge SELECT 1, x, x FROM convert_to(repeat('a', 500 * $MB), 'UTF8') AS x");
sql($node, 'INSERT INTO other VALUES (5)');
is(sql($node, 'SELECT string_agg(row_data ->> \'id\', \' \') FROM stream_changes(\'other\', 1)'), '1 2 3 4 5', 'a row of a gigabyte: other tables go on');
like(sql($node, 'SELECT status || \' \' || last_error FROM stream_tables WHERE table_name = \'huge\''), qr/^stalled row of \d+ bytes is too large to be captured \(table "huge", transaction/, 'its own is stalled');

# what it took is given back when there is nothing to do
my $pid = worker_pid($node);
my $kb;
for (1 .. 600)
{
	slurp_file("/proc/$pid/status") =~ /RssAnon:\s+(\d+) kB/ and $kb = $1;
	last if $kb < 128 * 1024;
	select(undef, undef, undef, 0.1);
}
cmp_ok($kb, '<', 128 * 1024, 'the worker does not keep the memory');

$node->stop;
done_testing();
