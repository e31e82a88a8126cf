# Sinks that are ordinary tables: appended many rows at a time or inserted, what
# is in them, and what is refused, is what INSERT makes of the rows.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $node = new_node('jobs_append', conf => "streamcdc.max_restarts = 0\n");
start_extension($node);

# each: the sink's columns in an order of its own, and what else there is to it
my %sinks = (
	plain => '',
	indexed => 'CREATE UNIQUE INDEX ON indexed (n, id); CREATE INDEX ON indexed (upper(note))',
	constrained => 'ALTER TABLE constrained ADD CHECK (n >= 0), ALTER n SET NOT NULL, ADD EXCLUDE USING btree (n WITH =, id WITH =)',
	# what INSERT does beyond that
	defaults => 'ALTER TABLE defaults ADD d int DEFAULT 7, ADD g int GENERATED ALWAYS AS (n + 1) STORED, ADD i int GENERATED ALWAYS AS IDENTITY',
	gone => 'ALTER TABLE gone ADD d int, DROP COLUMN filler',
	casts => 'ALTER TABLE casts ALTER n TYPE bigint, ALTER note TYPE varchar(2000)',
	fired => q{CREATE FUNCTION twice() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.n := 2 * NEW.n; RETURN NEW; END';
		CREATE TRIGGER t BEFORE INSERT ON fired FOR EACH ROW EXECUTE FUNCTION twice()},
	ruled => 'CREATE RULE r AS ON INSERT TO ruled WHERE NEW.n % 2 = 1 DO INSTEAD NOTHING',
	deferred => 'ALTER TABLE deferred ADD UNIQUE (n, id) DEFERRABLE INITIALLY DEFERRED',
	referring => 'CREATE TABLE target (n int PRIMARY KEY); INSERT INTO target SELECT generate_series(0, 9);
		ALTER TABLE referring ADD FOREIGN KEY (n) REFERENCES target');

sql($node, 'CREATE TABLE src (id bigint PRIMARY KEY, n int, note text)');
track($node, ['src']);
for my $name (sort keys %sinks)
{
	sql($node, "CREATE TABLE $name (note text, filler int, id bigint, n int); $sinks{$name}");
	sql($node, "SELECT stream_start('$name', 'src', sink => '$name', query => 'SELECT id, n, note FROM batch',
		options => '{\"deduplicationMode\": \"none\"}')");
}
# what it writes is not seen by the query that writes it
sql($node, 'CREATE TABLE itself (id bigint, n int, note text)');
sql($node, "SELECT stream_start('itself', 'src', sink => 'itself', options => '{\"deduplicationMode\": \"none\"}',
	query => 'SELECT id, n, note FROM batch WHERE NOT EXISTS (SELECT FROM itself AS i WHERE i.n = batch.n)')");
# laid out as the rows of batch are, which are copied as they stand; and as those of a query
sql($node, 'CREATE TABLE alike (id bigint PRIMARY KEY, n int NOT NULL, note text, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
	ALTER TABLE alike ADD CHECK (n < 10), ALTER note SET STORAGE PLAIN; CREATE INDEX ON alike (upper(left(note, 9)))');
sql($node, "SELECT stream_start('alike', 'src', sink => 'alike')");
sql($node, 'CREATE TABLE wide (id bigint, n int, note text, _change_type text, _commit_version bigint, _commit_timestamp timestamptz)');
sql($node, "SELECT stream_start('wide', 'src', sink => 'wide', query => 'SELECT id, n, note || repeat(md5(id::text), CASE WHEN id % 1000 = 0 THEN 2000 ELSE 0 END) AS note,
	_change_type, _commit_version, _commit_timestamp FROM batch')");
sql($node, "INSERT INTO src SELECT i, i % 10, CASE i % 3 WHEN 0 THEN NULL WHEN 1 THEN repeat('x', i % 500) ELSE 'row ' || i END
	FROM generate_series(1, 5000) AS i");
sql($node, "SELECT stream_process_all_available(query_name) FROM stream_queries WHERE query_name <> 'fired'");

my %expected = (fired => 'SELECT id, 2 * n, note FROM src', ruled => 'SELECT * FROM src WHERE n % 2 = 0');
sql($node, "SELECT stream_process_all_available('fired')");
for my $name (sort(keys %sinks), 'itself')
{
	my $rows = $expected{$name} // 'SELECT * FROM src';
	is(sql($node, "SELECT count(*) FROM ((SELECT id, n, note FROM $name EXCEPT ALL ($rows)) UNION ALL (($rows) EXCEPT ALL SELECT id, n, note FROM $name)) AS d"),
		'0', "rows of $name");
}
is(sql($node, "SELECT string_agg(DISTINCT d || ' ' || g - n, ',') || ' ' || count(DISTINCT i) FROM defaults"), '7 1 5000',
	'defaults, generated and identity columns');
is(sql($node, 'SET enable_seqscan = off; SELECT count(*) FROM indexed WHERE n = 3 AND id BETWEEN 1 AND 5000'), '500', 'an index has all rows');
is(sql($node, 'SELECT count(*) FROM ((SELECT id, n, note FROM alike EXCEPT ALL TABLE src) UNION ALL (TABLE src EXCEPT ALL SELECT id, n, note FROM alike)) AS d'), '0', 'rows of a table with the columns of batch');
is(sql($node, "SET enable_seqscan = off; SELECT count(*) FROM alike WHERE upper(left(note, 9)) = 'ROW 5'"), '1', 'its index');
is(sql($node, 'SELECT count(*), sum(length(w.note) - length(src.note)) FROM wide AS w JOIN src USING (id, n) WHERE starts_with(w.note, src.note) AND id % 1000 = 0'), '4|256000', 'rows that are to be toasted');
is(sql($node, "SELECT output_rows FROM stream_queries WHERE query_name = 'plain'"), '5000', 'rows are counted');

# ---- what is refused ----

sql($node, 'INSERT INTO src VALUES (6001, -1, NULL)');
for my $case ([ constrained => '23514' ], [ referring => '23503' ])
{
	my ($name, $state) = @$case;
	wait_for($node, "status = 'failed' FROM stream_queries WHERE query_name = '$name'", "$name fails");
	is(sql($node, "SELECT count(*) FROM $name"), '5000', "nothing of the batch is in $name");
}
sql($node, 'INSERT INTO indexed (id, n) VALUES (6002, 1)');
sql($node, 'INSERT INTO src VALUES (6002, 1, NULL)');
wait_for($node, "status = 'failed' AND last_error ~ 'duplicate key' FROM stream_queries WHERE query_name = 'indexed'",
	'a duplicate key fails');
sql($node, 'DELETE FROM indexed WHERE id = 6002');
sql($node, "SELECT stream_resume('indexed')");
sql($node, "SELECT stream_process_all_available('indexed')");
is(sql($node, "SELECT count(*), max(id) FROM indexed"), '5002|6002', 'and goes on when it is gone');

$node->stop;
done_testing();
