# Random histories for SOAK_SECONDS (600), from SOAK_SEED on (the time, unless given), by SOAK_SESSIONS (4) sessions.
#
# soak.pl FOLDER: "make soak" runs it.  At a difference it says the seed of the
# history and the step, writes the history to FOLDER/SEED.steps, cuts it down
# for at most SOAK_SHRINK_SECONDS (600), and writes that to
# FOLDER/SEED-short.steps, which is ready for test/regressions.  SOAK_STEPS (200)
# is about how many steps a history has; SOAK_FILE runs and shortens a file instead.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use StreamCdc::Soak;

my ($folder) = @ARGV;
my $seconds = $ENV{SOAK_SECONDS} // 600;
my $seed = $ENV{SOAK_SEED} // time % 1000000 * 1000;
my $sessions = $ENV{SOAK_SESSIONS} // 4;
my $steps = $ENV{SOAK_STEPS} // 200;
my $shrink = $ENV{SOAK_SHRINK_SECONDS} // 600;
die "usage: soak.pl FOLDER\n" unless defined $folder && -d $folder;

my $node = soak_node('soak');
my $end = time + $seconds;
my (%total, %kinds, $history, $generator, @known);
if (defined $ENV{SOAK_FILE})
{
	@known = read_history($ENV{SOAK_FILE});
	$seed = ($ENV{SOAK_FILE} =~ s/^.*\///r) =~ s/\..*$//r;
}
else { note("SOAK_SEED=$seed SOAK_SECONDS=$seconds SOAK_SESSIONS=$sessions") }
while (time < $end)
{
	my $begin = time;
	if (@known) { $history = StreamCdc::History::run($node, \@known) }
	else { ($history, $generator) = soak_round($node, $seed, $steps, $sessions) }
	my @differences = @{ $history->{differences} };
	$total{$_} += $history->{$_} // 0 for qw(checked events streamed);
	$total{histories}++;
	$kinds{$_} += $history->{kinds}{$_} for keys %{ $history->{kinds} };
	note("slow: $_") for map { substr($_, 0, 200) } @{ $history->{slow} // [] };
	$total{steps} += @{ $history->{steps} };
	note(sprintf('seed %s: %d steps (%d statements, %d failed), %d events compared with test_decoding, %d s%s', $seed, scalar @{ $history->{steps} },
		$generator ? ($generator->{taken} // 0, $generator->{errors} // 0) : (0, 0), $history->{events} // 0, time - $begin, @differences ? ': DIFFERENT' : ''));
	if ($ENV{SOAK_VERBOSE} && $generator) { note($_) for @{ $generator->{failed} // [] } }
	if (@differences)
	{
		my $first = $differences[0];
		my $what = "seed $seed, after step $first->{step}, $first->{kind}: $first->{text}";
		fail('no difference');
		diag("seed $seed, after step $_->{step}, $_->{kind}: " . substr($_->{text}, 0, 2000)) for @differences;
		history_file("$folder/$seed.steps", $history->{steps}, $what);
		diag("the history is $folder/$seed.steps; shortening it");
		my @short = soak_shrink($node, $history->{steps}, $first->{kind}, time + $shrink, \&note);
		my ($same) = grep { $_->{kind} eq $first->{kind} } @{ StreamCdc::History::run($node, \@short)->{differences} };
		history_file("$folder/$seed-short.steps", \@short, "seed $seed, $first->{kind}: " . ($same ? $same->{text} : $first->{text}));
		diag("$folder/$seed-short.steps has " . @short . " steps:\n" . join("\n", @short));
		last;
	}
	last if @known;
	$seed++;
}
pass('no difference') if !$history || !@{ $history->{differences} };
note("$total{histories} histories, $total{steps} steps, $total{checked} checks of a table, $total{events} events compared with test_decoding, "
	  . "$total{streamed} transactions decoded while they ran");
note('recorded, and so part of it: ' . (join(', ', grep { $StreamCdc::Generator::can{$_} } sort keys %StreamCdc::Generator::can) || 'no commands that WAL does not tell'));
note('what succeeded: ' . join(', ', map { "$_ $kinds{$_}" } sort keys %kinds));
$node->stop('immediate');
done_testing();
