# The examples of the README do what the README says.
#
# Between marks "example begin" and "example end" each block fenced as sql is
# run, in order and in one database; where a block fenced as text follows, it is
# what psql prints.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/../..";
my $readme = slurp_file("$top/README.md");
my $example = join '', $readme =~ /^<!-- example begin -->\n(.*?)^<!-- example end -->$/msg;
BAIL_OUT('README.md has no marked example') if $example eq '';

my @blocks;
while ($example =~ /^```(\w+)\n(.*?)^```$/msg)
{
	push @blocks, { language => $1, text => $2 };
}
ok((grep { $_->{language} eq 'sql' } @blocks) > 0, 'the example has commands');
ok((grep { $_->{language} eq 'text' } @blocks) > 0, 'the example has results');

my $node = PostgreSQL::Test::Cluster->new('readme');
$node->init;
$node->append_conf('postgresql.conf', slurp_file("$top/test/support/postgresql.conf"));
$node->append_conf('postgresql.conf', "streamcdc.debug_tracking_wait = '180s'");
$node->start;

# psql pads headings, editors cut blanks at the ends of lines: neither matters
sub trimmed
{
	my ($text) = @_;
	$text =~ s/[ \t]+$//mg;
	$text =~ s/\A\n+|\n+\z//g;
	return $text;
}

my $output = '';
for my $block (@blocks)
{
	if ($block->{language} eq 'sql')
	{
		my $errors;
		($output, $errors) = ('', '');
		my $run = IPC::Run::run(
			[ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') ],
			'<', \$block->{text}, '>', \$output, '2>', \$errors);
		ok($run, 'commands run') or diag("$block->{text}\n$errors");
	}
	elsif ($block->{language} eq 'text')
	{
		is(trimmed($output), trimmed($block->{text}), 'and print what the README says');
	}
}

$node->stop;
done_testing();
