# The cases of test/cases: reading them, and what of them becomes SQL the same
# way whether they are read at once (020_cases.pl) or as a stream
# (021_stream_cases.pl).
package Cases;

use strict;
use warnings;

use Exporter 'import';
use FindBin;
use JSON::PP;

our @EXPORT = qw(
  read_cases option scalar_text has_text_versions
  ident literal text_array columns_of create_table insert_commits register
  canonical multiset
);

my $json = JSON::PP->new->canonical->allow_nonref;

# ---- reading the files ----

# STREAMCDC_CASES may name other files.  The line is kept: PostgreSQL reads the values from there, so that Perl does not
# change them (-0.0, large numbers)
sub read_cases
{
	my @files = $ENV{STREAMCDC_CASES} ? split(' ', $ENV{STREAMCDC_CASES}) : sort glob("$FindBin::RealBin/../cases/*.jsonl");
	my @cases;
	for my $file (@files)
	{
		open(my $in, '<:raw', $file) or die "could not open $file: $!";
		while (my $line = <$in>)
		{
			my $case = eval { JSON::PP->new->utf8->decode($line) } or die "$file, line $.: $@";
			$case->{line} = $line;
			push @cases, $case;
		}
	}
	return @cases;
}

# versions that are no numbers, in the log or in the options
sub has_text_versions
{
	my ($case) = @_;
	my @texts = grep { defined } map { option($case, $_) } qw(startingVersion endingVersion);

	return 1 if grep { !/^-?\d+$/ } @texts;
	return scalar grep { $json->encode($_->{version}) !~ /^-?\d+$/ } grep { defined $_->{version} } @{ $case->{commits} // [] };
}

# a JSON value as text
sub scalar_text
{
	my ($value) = @_;
	return JSON::PP::is_bool($value) ? ($value ? 'true' : 'false') : $value;
}

# value of an option, whatever the case of its name
sub option
{
	my ($case, $name) = @_;
	my $options = $case->{read}{options} // {};
	my ($key) = grep { lc $_ eq lc $name } keys %$options;
	return defined $key ? scalar_text($options->{$key}) : undef;
}

# ---- SQL ----

sub ident
{
	my ($name) = @_;
	$name =~ s/"/""/g;
	return "\"$name\"";
}

sub literal
{
	my ($text) = @_;
	return 'NULL' unless defined $text;
	$text =~ s/'/''/g;
	$text =~ s/\\/\\\\/g;
	return "E'$text'";
}

sub text_array
{
	my ($list) = @_;
	return 'NULL' unless defined $list;
	return 'ARRAY[' . join(', ', map { literal($_) } @$list) . ']::text[]';
}

# names and types of the relation's columns
sub columns_of
{
	my ($case) = @_;
	my @columns = map { [ $_->{name}, $_->{type} =~ /^(map|struct|record|row)\b/i ? 'jsonb' : $_->{type} ] } @{ $case->{table}{columns} };

	# some cases are about these columns
	return @columns if $case->{kind} eq 'connector_contract' || grep { $_->[0] =~ /^(_change_type|_commit_version|_commit_timestamp)$/ } @columns;
	return (@columns, [ '_change_type', 'text' ], [ '_commit_version', 'bigint' ], [ '_commit_timestamp', 'timestamptz' ]);
}

sub create_table
{
	my ($table, @columns) = @_;
	return "CREATE TABLE $table (" . join(', ', map { ident($_->[0]) . " $_->[1]" } @columns) . ')';
}

# The case's commits, in their order; the case is parameter $1.  A condition on c.body leaves some out.
sub insert_commits
{
	my ($table, $condition) = @_;
	$condition //= 'true';
	return <<"SQL";
INSERT INTO $table
SELECT r.*
FROM json_array_elements(\$1 -> 'commits') WITH ORDINALITY AS c(body, n),
	 json_array_elements(c.body -> 'changes') WITH ORDINALITY AS h(body, n),
	 json_populate_record(json_populate_record(NULL::$table, h.body -> 'row'),
						  json_build_object('_change_type', h.body -> 'type', '_commit_version', c.body -> 'version',
											'_commit_timestamp', c.body -> 'timestamp')) AS r
WHERE $condition
ORDER BY c.n, h.n
SQL
}

sub register
{
	my ($table, $case) = @_;
	my $flags = $case->{table}{properties};
	my @flags = map { $flags->{$_} ? 'true' : 'false' }
	  qw(contains_carryover_rows contains_intermediate_changes represents_update_as_delete_and_insert);

	return "SELECT stream_register_changelog('$table', " . join(', ', @flags, text_array($case->{table}{row_id}), literal($case->{table}{row_version})) . ')';
}

# ---- comparing ----

sub canonical
{
	my ($value) = @_;
	return $json->encode($value);
}

sub multiset
{
	my ($rows) = @_;
	return join "\n", sort map { canonical($_) } @$rows;
}

1;
