# Histories that showed a mistake once, each in a database of its own: test/regressions/*.steps, written by "make soak" when it finds a
# difference, or by hand (test/lib/StreamCdc/History.pm tells how).
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc::Soak;

my $node = soak_node('regressions');
my @files = sort glob("$FindBin::RealBin/../regressions/*.steps");
cmp_ok(scalar @files, '>', 0, 'there are histories');
for my $file (@files)
{
	my ($name) = $file =~ /([^\/]+)\.steps$/;
	my @steps = read_history($file);
	my $history = StreamCdc::History::run($node, \@steps);
	my @wrong = map { "after step $_->{step}, $_->{kind}: $_->{text}" } @{ $history->{differences} };
	is(join("\n", @wrong), '', "$name: no difference");
	# one that does nothing proves nothing
	cmp_ok($history->{checked}, '>', 0, "$name: the log was judged");
}

$node->stop;
done_testing();
