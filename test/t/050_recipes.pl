# The recipes of test/recipes, once in each mode; doc/recipes.md says which there are.  STREAMCDC_RECIPES=17,17b runs some,
# STREAMCDC_MODES=paused in some modes.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use Recipes;
use StreamCdc;

my $test = "$FindBin::RealBin/..";
my @recipes = load_recipes(glob("$test/recipes/*.pl"));

#
# Every report is a recipe, or has a reason why not
#
my (%listed, @missing);
for my $line (split /\n/, slurp_file("$test/../doc/recipes.md"))
{
	next unless $line =~ /^\| (\d+) \|.*\| (.+) \|$/;
	my ($number, $where) = ($1, $2);
	$listed{$number} = 1;
	push @missing, $number if $where =~ /^`(\S+)`/ && slurp_file("$test/$1") !~ /'$number'|'$number:/;
}
is(scalar keys %listed, 94, 'all reports are listed in doc/recipes.md');
is(join(' ', @missing), '', 'each is where it is said to be');
is(join(' ', grep { /^(\d+)/ && !$listed{$1} } map { $_->{number} } @recipes), '', 'each recipe is listed');

my %only = map { $_ => 1 } split /,/, $ENV{STREAMCDC_RECIPES} // '';
@recipes = grep { $only{ $_->{number} } } @recipes if %only;

my $node = new_node('recipes', conf => "max_connections = 100\nmax_prepared_transactions = 10\n");
run_recipes($node, $_, @recipes) for split /,/, $ENV{STREAMCDC_MODES} // 'plain,terminated,crashed,paused';
$node->stop;
done_testing();
