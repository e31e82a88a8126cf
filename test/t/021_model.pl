# Random change logs, random ranges of them, all modes, against a plain SQL model
# of what the semantics say: registered change logs, all flags and kinds of
# row_id, and tracked tables, all kinds of identities (test/model/*.sql).
#
# MODEL_LOGS is how many of each kind, MODEL_SEED makes the same ones again; what
# differs is printed with the log and the range.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc;

my $logs = $ENV{MODEL_LOGS} || 200;
my $seed = $ENV{MODEL_SEED} // int(rand(1000000));
my $batch = 200;
my $model = "$FindBin::RealBin/../model";

note("seed $seed");

# differences of a check, at most three of them
sub differences
{
	my ($node, $check, $n) = @_;
	my @found;
	for (my $first = 1; $first <= $n && @found < 3; $first += $batch)
	{
		my $last = $first + $batch - 1 < $n ? $first + $batch - 1 : $n;
		# REPEATABLE READ: nothing is written any more, so no read has to wait for capture
		my $out = sql($node, "SET jit = off; BEGIN ISOLATION LEVEL REPEATABLE READ;\n"
			  . "SELECT d FROM generate_series($first, $last) AS log, LATERAL model.$check($seed, log) AS d LIMIT 3; COMMIT;");
		push @found, $out if $out ne '';
	}
	return join "\n", @found;
}

my $node = new_node('model', conf => "synchronous_commit = off\nTimeZone = 'UTC'\n");
start_extension($node);
sql($node, slurp_file("$model/$_.sql")) for qw(common registered tracked);

is(differences($node, 'check_registered', $logs), '', "registered change logs, seed $seed");

my @tables = split /\n/, sql($node, 'SELECT name FROM model.tables ORDER BY name');
# some will have nothing to change
my %count = map { $_ => 1 + int(1.25 * $logs / (@tables - 1)) } @tables;
$count{large} = 2 + int($logs / 1000);
for my $table (@tables)
{
	sql($node, "CALL model.write('$table', $seed, $count{$table})");
}
sync($node);
for my $table (@tables)
{
	sql($node, "SELECT model.prepare_$table()");
	is(differences($node, "check_$table", $count{$table}), '', "tracked table $table, seed $seed");
}

note(sql($node, q{SELECT format('%10s %s', sum(n), what) FROM model.figures GROUP BY what ORDER BY what}));
done_testing();
