# A short soak with seeds that stay: random histories whose log folds to the tables, and says what test_decoding says.  "make soak" goes on
# with other seeds.  And the oracle sees it if the log is not right.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc::Soak;

my $node = soak_node('soak');
my ($checked, $events) = (0, 0);
for my $seed (1 .. 3)
{
	my ($history) = soak_round($node, $seed, 100, 3);
	my @wrong = map { "after step $_->{step}, $_->{kind}: $_->{text}" } @{ $history->{differences} };
	is(join("\n", @wrong), '', "seed $seed: no difference") or diag(map { "$_\n" } @{ $history->{steps} });
	$checked += $history->{checked};
	$events += $history->{events};
}
cmp_ok($checked, '>', 4, 'tables were compared with their logs');
cmp_ok($events, '>', 100, 'events were compared with those of test_decoding');

# What the log does not hold is missed, and the history is cut down to the steps that it takes.
my @steps = (
	'1 CREATE TABLE t1 (id int PRIMARY KEY, v text)', '1 @track(t1)', '* sync', q{1 INSERT INTO t1 SELECT i, 'x' FROM generate_series(1, 5) AS i},
	'2 BEGIN', q{2 UPDATE t1 SET v = 'y' WHERE id = 1}, '2 SAVEPOINT s1', '1 CREATE TABLE t2 ()', '2 DELETE FROM t1 WHERE id = 2', '2 COMMIT',
	'* sync', '1 DELETE FROM streamcdc.blocks WHERE first_version = 1',
);
my $differences = StreamCdc::History::run($node, \@steps)->{differences};
my %kinds = map { $_->{kind} => 1 } @$differences;
ok($kinds{fold}, 'the fold misses events that are not in the log');
ok($kinds{twin}, 'and so does the comparison with test_decoding');
my @short = soak_shrink($node, \@steps, 'fold', time + 600, \&note);
cmp_ok(scalar @short, '<=', 6, 'a history is cut down to what it takes') or diag(map { "$_\n" } @short);

$node->stop;
done_testing();
