# Commands that follow each other faster than the workers do, and a value that
# cannot be stored: one table's trouble is not another's.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('hurry', conf => "streamcdc.debug_tracking_wait = '180s'\n");
start_extension($node);

#
# A row that is inserted after stream_track has returned is a version of its own, unless that has waited for a second in vain
#
my @version;
for my $i (1 .. 50)
{
	my ($versions, $in_vain) = split /\|/, sql($node, <<"SQL");
CREATE TABLE hurry_$i (id int PRIMARY KEY);
INSERT INTO hurry_$i VALUES (0);
SELECT clock_timestamp() AS began \\gset
SELECT stream_track('hurry_$i') \\g /dev/null
SELECT clock_timestamp() - :'began' >= '1 s' AS in_vain \\gset
INSERT INTO hurry_$i VALUES (1);
SET streamcdc.read_timeout = '60 s';
SELECT string_agg(_commit_version || ':' || (row_data ->> 'id'), ' ' ORDER BY row_data), :'in_vain' FROM stream_changes('hurry_$i');
SQL
	push @version, $versions eq '0:0 0:1' && $in_vain eq 't' ? '0:0 1:1' : $versions;
}
is(join(',', @version), join(',', ('0:0 1:1') x 50), 'what is there is version 0, what comes next version 1, each time');

#
# The extension dropped and created anew while the worker is on its way out
#
sql($node, 'CREATE TABLE again (id int PRIMARY KEY)');
my @count;
for my $i (1 .. 20)
{
	push @count, sql($node, <<"SQL");
SET client_min_messages = warning;
DROP EXTENSION streamcdc;
CREATE EXTENSION streamcdc;
SELECT stream_track('again') \\g /dev/null
INSERT INTO again VALUES ($i);
SET streamcdc.read_timeout = '60 s';
SELECT count(*) FROM stream_changes('again') WHERE row_data ->> 'id' = '$i';
SQL
}
is(join(',', @count), join(',', (1) x 20), 'DROP EXTENSION, CREATE EXTENSION, stream_track: captured, each time');

#
# Tracked and untracked while the baseline is about to be copied
#
sql($node, 'CREATE TABLE flicker (id int PRIMARY KEY); INSERT INTO flicker SELECT generate_series(1, 1000)');
sql($node, <<'SQL');
SET synchronous_commit = off;
DO $$
BEGIN
	FOR i IN 1 .. 100 LOOP
		PERFORM stream_track('flicker');
		COMMIT;
		PERFORM stream_untrack('flicker');
		COMMIT;
	END LOOP;
END
$$
SQL
track($node, ['flicker']);
is(sql($node, "SELECT count(*) FROM stream_changes('flicker')"), 1000, 'after that, a baseline is copied as ever');
wait_for($node, q{NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'streamcdc baseline')}, 'no baseline worker is left');
wait_for($node, <<'SQL', 'nothing of the untracked ones is left in the log');
NOT EXISTS (SELECT FROM streamcdc.blocks AS b JOIN streamcdc.streams AS s USING (stream_id) WHERE s.state = 'u')
SQL

#
# A row too large to be stored
#
sql($node, <<'SQL');
CREATE TABLE huge (id int PRIMARY KEY, a bytea, b bytea);
ALTER TABLE huge ALTER a SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL;
SQL
track($node, ['huge']);
sql($node, q{INSERT INTO huge VALUES (1, 'a', 'b')});
sql($node, q{INSERT INTO huge VALUES (2, decode(repeat('61', 150000000), 'hex'), decode(repeat('62', 150000000), 'hex'))});
sql($node, 'INSERT INTO again VALUES (100)');
is(sql($node, q{SET streamcdc.read_timeout = '60 s'; SELECT count(*) FROM stream_changes('again', 1) WHERE row_data ->> 'id' = '100'}), 1, 'other tables go on');
wait_for_status($node, 'huge', 'stalled');
fails_with($node, q{SELECT count(*) FROM stream_changes('huge')}, '55000', qr/too large to be captured \(table "huge", transaction \d+, WAL position/,
	'readers are told table, transaction and place');
is(sql($node, q{SELECT count(*) FROM stream_changes('huge', 1, 1)}), 1, 'what came before is readable');
sql($node, q{DELETE FROM huge WHERE id = 2; SELECT stream_untrack('huge')});
track($node, ['huge']);
sql($node, q{INSERT INTO huge VALUES (3, 'c', 'd')});
is(sql($node, q{SELECT string_agg(row_data ->> 'id', ' ' ORDER BY _commit_version) FROM stream_changes('huge')}), '1 3',
	'untracked and tracked again, it goes on');

$node->stop;
done_testing();
