# What a soak does with random histories: runs them, and cuts one that shows a
# difference down to the steps that it takes.
package StreamCdc::Soak;

use strict;
use warnings;

use Exporter 'import';
use StreamCdc;
use StreamCdc::Generator;
use StreamCdc::History;

our @EXPORT = qw(soak_node soak_round soak_shrink history_file read_history);

# soak_node NAME: a server for histories
sub soak_node
{
	my ($name) = @_;
	my $node = new_node($name, conf => "max_prepared_transactions = 30\ncheckpoint_timeout = 30s\n");
	$node->start;
	return $node;
}

# soak_round NODE, SEED, STEPS, SESSIONS: (history, generator), the former with its differences
sub soak_round
{
	my ($node, $seed, $steps, $sessions) = @_;
	my $generator;
	my $history = StreamCdc::History::run($node, sub {
		$generator = StreamCdc::Generator->new($_[0], $seed, sessions => $sessions);
		$generator->run($steps);
	});
	return ($history, $generator);
}

# soak_shrink NODE, STEPS (reference), KIND, UNTIL (time), SAY (function): the steps that are left of a history when none can be taken away
# without losing its differences of this kind
sub soak_shrink
{
	my ($node, $steps, $kind, $until, $say) = @_;
	my $runs = 0;
	my $differs = sub {
		my ($some) = @_;
		return 0 if time > $until;
		$runs++;
		return scalar grep { $_->{kind} eq $kind } @{ StreamCdc::History::run($node, $some)->{differences} };
	};
	my @left = @$steps;
	my $try = sub {
		my ($some) = @_;
		return 0 if @$some == @left && join("\n", @$some) eq join("\n", @left) || !$differs->($some);
		@left = @$some;
		return 1;
	};

	if (!$differs->(\@left))
	{
		$say->('the history does not show it again');
		return @left;
	}
	# copies and checks in between, then whole tables and sessions
	$try->([ grep { !/^\* (check|copy)/ } @left ]);
	my %tables = map { $_ => 1 } map { /\b(t\d+)/g } @left;
	for my $table (sort keys %tables)
	{
		# a step that names another table too stays
		$try->([ grep { my %named = map { $_ => 1 } /\b(t\d+)/g; !$named{$table} || keys %named > 1 } @left ]);
	}
	for my $session (1 .. 9)
	{
		$try->([ grep { !/^$session/ } @left ]);
	}
	$try->([ grep { !/^\* (kill|crash|terminate)/ } @left ]);
	$say->(@left . " steps are left after $runs runs");

	# pieces of half the length, a quarter, ... down to single steps, as long as that helps
	for (my $size = int((@left + 1) / 2); $size >= 1;)
	{
		my $helped = 0;
		for (my $at = @left - $size; $at > -$size; $at -= $size)
		{
			my $from = $at < 0 ? 0 : $at;
			my $to = $at + $size - 1;
			next if $to >= @left;
			$helped = 1 if $try->([ @left[ 0 .. $from - 1, $to + 1 .. $#left ] ]);
		}
		$say->(@left . " steps are left after $runs runs, without pieces of $size");
		last if $size == 1 && !$helped;
		$size = $size == 1 ? 1 : int(($size + 1) / 2);
		last if time > $until;
	}

	# fewer rows
	for my $n (0 .. $#left)
	{
		while ($left[$n] =~ /generate_series\((\d+)::bigint, (\d+)\) AS i/ && $2 > $1)
		{
			my ($a, $b) = ($1, $2);
			my $fewer = $a + int(($b - $a) / 2);
			my @some = @left;
			$some[$n] =~ s/generate_series\($a\:\:bigint, $b\) AS i/generate_series($a\:\:bigint, $fewer) AS i/;
			last unless $try->(\@some);
		}
	}
	$say->('there was no time to shorten it further') if time > $until;
	return @left;
}

# history_file PATH, STEPS (reference), COMMENT: as a file for test/regressions
sub history_file
{
	my ($path, $steps, $comment) = @_;
	open(my $out, '>:utf8', $path) or die "cannot write $path: $!";
	print $out map { "# $_\n" } split /\n/, $comment;
	print $out map { "$_\n" } @$steps;
	close $out or die "cannot write $path: $!";
}

# read_history PATH: its steps
sub read_history
{
	my ($path) = @_;
	open(my $in, '<', $path) or die "cannot read $path: $!";
	local $/;
	return StreamCdc::History::parse(scalar <$in>);
}

1;
