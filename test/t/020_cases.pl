# The cases of test/cases: change logs, options, and what Spark makes of them,
# through stream_register_changelog and stream_changes.  Each case is one test.
#
# A case's table gets the case's columns, its commits as rows, and its flags; it
# is read twice, as jsonb and typed, and both results have to be the expected
# rows, as multisets.  STREAMCDC_CASES may name other files of cases.
use strict;
use warnings;
use FindBin;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib "$FindBin::RealBin/../lib";
use Cases;
use StreamCdc;

#
# What is not run here, and why: the one table of reasons.
#
my %left_out = (
	# other dialects
	'dialect delta_v2' => 'rules of the Delta connector, where they differ from the engine\'s',
	'dialect delta_cdf' => 'rules of the older Delta change data feed',
	'dialect iceberg_v2' => 'rules of the Iceberg connector, where they differ from the engine\'s',
	'dialect iceberg_changelog' => 'rules of the Iceberg changelog view, which compares whole rows',

	# kinds without a meaning in SQL
	'kind sql_clause' => 'syntax of Spark SQL',
	'kind reader_api' => 'calls of Spark\'s reader that have no counterpart in a function with arguments',
	'kind refresh' => 'plans that are kept while the source changes; a function call is read as of its statement',
	'kind range_bounded' => 'a property of Spark\'s scan objects',
	'kind engine_watermark' => 'the engine\'s general watermark, not change feeds',

	# kinds of streams
	(map { ("kind $_" => 'streams, see 021_stream_cases.pl') }
		  qw(stream_raw stream_row_level stream_net stream_timing stream_late stream_error stream_output_mode stream_plan
		  stream_start stream_rate_limit stream_lifecycle)),

	# single cases of the kinds that are run
	'text versions' => 'versions of type text are served by jobs',
);

# the kinds that have to pass, in all modes: what is asked of a stream here is the same for a batch
my $run = qr/^(options|read_range|bounds|output_schema|connector_contract|option_matrix|key_semantics|batch_\w+)$/;

#
# Errors: Spark's condition or exception -> SQLSTATE, and whether the detail has to name the condition
#
my @errors = (
	# arguments have types, so text that is no timestamp never gets to us
	[ qr/^INVALID_CDC_OPTION\.INVALID_TIMESTAMP$/, qr/^2200[78]$/, 0 ],
	[ qr/^INVALID_CDC_OPTION\./, qr/^22023$/, 1 ],
	[ qr/^INVALID_CHANGELOG_SCHEMA\./, qr/^42P17$/, 1 ],
	[ qr/^CHANGELOG_CONTRACT_VIOLATION\./, qr/^XX001$/, 1 ],
	[ qr/^UNSUPPORTED_FEATURE\./, qr/^0A000$/, 1 ],
	[ qr/^TABLE_OR_VIEW_NOT_FOUND$/, qr/^42P01$/, 1 ],
	# what a connector does not implement and we were not told: row_id, row_version
	[ qr/^UnsupportedOperationException$/, qr/^(0A000|42P17)$/, 0 ],
	[ qr/^IllegalArgumentException$/, qr/^22/, 0 ],
);

# parameters of errors that have to be in the message, and Spark's types as PostgreSQL calls them
my @parameters = qw(mode columnName expectedType actualType);
my %type_names = (
	'BIGINT or STRING' => 'bigint or text',
	STRING => 'text',
	INT => 'integer',
	BIGINT => 'bigint',
	SMALLINT => 'smallint',
	TINYINT => 'smallint',
	FLOAT => 'real',
	DOUBLE => 'double precision',
	BINARY => 'bytea',
	TIMESTAMP => 'timestamp with time zone',
	TIMESTAMP_NTZ => 'timestamp without time zone',
);

# options -> arguments of stream_changes
my %arguments = (
	startingversion => [ 'starting_version', 'bigint' ],
	endingversion => [ 'ending_version', 'bigint' ],
	startingtimestamp => [ 'starting_timestamp', 'timestamptz' ],
	endingtimestamp => [ 'ending_timestamp', 'timestamptz' ],
	startingboundinclusive => [ 'starting_bound_inclusive', 'boolean' ],
	endingboundinclusive => [ 'ending_bound_inclusive', 'boolean' ],
	deduplicationmode => [ 'deduplication_mode', 'text' ],
	computeupdates => [ 'compute_updates', 'boolean' ],
);

my @metadata = qw(_change_type _commit_version _commit_timestamp);
my $json = JSON::PP->new->canonical->allow_nonref;

# ---- what is left out ----

# entry of %left_out that applies, if there is one
sub entry_of
{
	my ($case) = @_;
	my @entries = ("dialect $case->{dialect}", "kind $case->{kind}");

	push @entries, 'text versions' if has_text_versions($case);
	return (grep { $left_out{$_} } @entries)[0];
}

# ---- SQL ----

# the arguments after the first; dies for an option without an argument
sub arguments_of
{
	my ($case) = @_;
	my @list;
	for my $name (sort keys %{ $case->{read}{options} // {} })
	{
		my ($argument, $type) = @{ $arguments{ lc $name } // die "there is no argument for option $name\n" };
		push @list, ", $argument => " . literal(scalar_text($case->{read}{options}{$name})) . "::$type";
	}
	return join '', @list;
}

sub where
{
	my ($case) = @_;
	my $where = $case->{read}{where} // return '';
	my @conditions;
	for my $key (sort keys %$where)
	{
		my ($column, $not) = $key =~ /^(\w+?)(_not)?$/;
		push @conditions, ident($column) . ($not ? ' <> ' : ' = ') . literal($where->{$key});
	}
	return ' WHERE ' . join(' AND ', @conditions);
}

# Four queries: the rows, jsonb and typed, and what is expected of each.  A column "count" that the table does not have is a
# number of rows.
sub row_queries
{
	my ($case) = @_;
	my %known = map { $_->[0] => 1 } columns_of($case);
	my @columns = @{ $case->{expect}{columns} };
	my $count = grep { $_ eq 'count' && !$known{$_} } @columns;
	my @plain = grep { $_ ne 'count' || $known{$_} } @columns;
	my $arguments = arguments_of($case);
	my $where = where($case);
	my $group = $count ? (@plain ? ' GROUP BY ' . join(', ', map { ident($_) } @plain) : '') : '';

	for my $column (@plain)
	{
		die "there is no column $column\n" unless $known{$column};
	}
	my $sql = sub {
		my ($from, $value, $counted) = @_;
		my @values = map { $value->($_) } @plain;
		push @values, $counted if $count;
		return "SELECT jsonb_build_array(" . join(', ', @values) . ") FROM $from";
	};
	my $is_metadata = sub { my $name = shift; return scalar grep { $_ eq $name } @metadata };
	my $text = sub { ident($_[0]) . '::text' };
	my $jsonb = sub { 'to_jsonb(' . ident($_[0]) . ')' };
	my $data = join ', ', map { $is_metadata->($_) ? ident($_) : '(row_data).' . ident($_) . ' AS ' . ident($_) } keys %known;
	my $members = join ', ', map { $is_metadata->($_) ? ident($_) : 'row_data -> ' . literal($_) . ' AS ' . ident($_) } keys %known;

	# the count of an expected row stands beside the columns
	my $expected = "(SELECT r.*, (e -> 'count')::text::bigint AS " . ident('count') . " FROM json_array_elements(\$1 -> 'expect' -> 'rows') AS e, json_populate_record(NULL::t, e) AS r) AS x";
	$expected = "json_populate_recordset(NULL::t, \$1 -> 'expect' -> 'rows') AS x" unless $count;
	return (
		$sql->("(SELECT $members FROM stream_changes('t'$arguments)) AS x", $jsonb, 'count(*)') . $where . $group,
		$sql->($expected, $jsonb, ident('count')),
		$sql->("(SELECT $data FROM stream_changes(NULL::t$arguments)) AS x", $text, 'count(*)') . $where . $group,
		$sql->($expected, $text, ident('count')));
}

# ---- options: a log that tells how they were understood ----

# versions around the bounds, each with: a carry-over (id 1), an update (id 2), and a row (id 3) that net changes show once
sub probe
{
	my ($case) = @_;
	my $resolved = $case->{expect}{resolved};
	my $range = $resolved->{range} // {};
	my $none = lc(option($case, 'deduplicationMode') // '') eq 'none';
	my $pairs = lc(option($case, 'computeUpdates') // '') eq 'true';
	my @points;

	if (grep { defined option($case, $_) } qw(startingTimestamp endingTimestamp))
	{
		my @bounds = map { "$_\::timestamptz" } grep { $_ ne 'NULL' } literal(option($case, 'startingTimestamp')), literal(option($case, 'endingTimestamp')),
		  literal($range->{start}), literal($range->{end});
		@points = map { ("$_ - interval '1 microsecond'", $_, "$_ + interval '1 microsecond'") } @bounds;
		push @points, micros($range->{start_micros}) if defined $range->{start_micros};
	}
	else
	{
		my @bounds = grep { defined } option($case, 'startingVersion') // 2, option($case, 'endingVersion'), $range->{start}, $range->{end};
		@points = map { my $v = $_; map { "'epoch'::timestamptz + interval '1 second' * (" . ($v + $_) . ')' } -1 .. 2 } @bounds;
	}
	my $points = join ', ', map { "($_)" } @points;
	# the version is the number of seconds for a range of versions; anything that rises with time for one of timestamps
	return (
		'CREATE TABLE t (id int, v bigint, _change_type text, _commit_version bigint, _commit_timestamp timestamptz)',
		"INSERT INTO t SELECT o.id, CASE WHEN o.same THEN 0 ELSE 10 * extract(epoch FROM p.at)::bigint + o.n END, o.type, "
		  . (grep({ defined option($case, $_) } qw(startingTimestamp endingTimestamp)) ? 'p.n' : 'extract(epoch FROM p.at)::bigint')
		  . ", p.at FROM (SELECT at, row_number() OVER (ORDER BY at) AS n FROM (SELECT DISTINCT at FROM (VALUES $points) AS v(at)) AS d) AS p, "
		  . "(VALUES (1, 1, 'delete', true), (2, 1, 'insert', true), (3, 2, 'delete', false), (4, 2, 'insert', false), (5, 3, 'insert', false)) AS o(n, id, type, same) "
		  . 'ORDER BY p.n, o.n',
		"SELECT stream_register_changelog('t', " . ($none && $pairs ? 'false' : 'true') . ", true, true, '{id}', 'v')");
}

sub micros
{
	my ($micros) = @_;
	return "'epoch'::timestamptz + interval '1 microsecond' * $micros";
}

# a condition on _commit_version or _commit_timestamp
sub resolved_range
{
	my ($range) = @_;
	my ($start, $end) = ($range->{start}, $range->{end});
	my $column = $range->{type} eq 'version' ? '_commit_version' : '_commit_timestamp';
	my $type = $range->{type} eq 'version' ? 'bigint' : 'timestamptz';
	my @conditions = ('true');
	my $inclusive = sub { my $flag = shift; return !defined $flag || $flag ? '=' : '' };

	return 'true' if $range->{type} eq 'unbounded';
	$start = defined $range->{start_micros} ? micros($range->{start_micros}) : literal($start) . "::$type";
	push @conditions, "$column >" . $inclusive->($range->{start_inclusive}) . " $start";
	push @conditions, "$column <" . $inclusive->($range->{end_inclusive}) . ' ' . literal($end) . "::$type" if defined $end;
	return join ' AND ', @conditions;
}

# One query: what was not understood as it should; no row if all was.
sub probe_query
{
	my ($case) = @_;
	my $resolved = $case->{expect}{resolved};
	my @checks;

	# the carry-overs and the row that net changes show once are there or not in each version, the update always
	if (my $range = $resolved->{range})
	{
		my $condition = resolved_range($range);
		push @checks, "SELECT 'range: too much' FROM r WHERE NOT ($condition)";
		push @checks, "SELECT 'range: too little' FROM t WHERE ($condition) AND id = 2 AND NOT EXISTS (SELECT FROM r WHERE r.v = t.v) AND (SELECT count(*) FROM r WHERE id = 3) <> 1";
		push @checks, "SELECT 'range: its end' FROM t HAVING max(_commit_version) FILTER (WHERE $condition) IS DISTINCT FROM (SELECT max(_commit_version) FROM r)";
		push @checks, "SELECT 'range: its start' FROM t HAVING min(v) FILTER (WHERE ($condition) AND id = 2) IS DISTINCT FROM (SELECT min(v) FROM r WHERE id = 2)";
	}
	if (defined $resolved->{deduplication_mode})
	{
		my $mode = lc $resolved->{deduplication_mode};
		push @checks, "SELECT 'mode: carry-overs' WHERE " . ($mode eq 'none' ? '' : 'NOT ') . '(SELECT count(*) = 0 FROM r WHERE id = 1)';
		push @checks, "SELECT 'mode: net changes' WHERE (SELECT count(*) FROM r WHERE id = 3) " . ($mode eq 'netchanges' ? '<> 1' : '< 2');
	}
	if (defined $resolved->{compute_updates})
	{
		my $label = $resolved->{compute_updates} ? 'update_preimage' : 'delete';
		push @checks, "SELECT 'updates' WHERE NOT EXISTS (SELECT FROM r WHERE id = 2 AND _change_type = '$label')";
	}
	for my $field (keys %$resolved)
	{
		die "what is resolved.$field?\n" unless $field =~ /^(range|deduplication_mode|compute_updates)$/;
	}
	return "WITH r AS (SELECT (row_data ->> 'id')::int AS id, (row_data ->> 'v')::bigint AS v, _change_type, _commit_version, _commit_timestamp "
	  . "FROM stream_changes('t'" . arguments_of($case) . ')) SELECT to_jsonb(x) FROM (' . join(' UNION ALL ', @checks) . ') AS x(what)';
}

# ---- a case as commands and queries, and what its results must be ----

# (commands, queries, function that gets the results and returns what is wrong, or nothing)
sub plan_case
{
	my ($case) = @_;
	my $expect = $case->{expect};
	my @commands;
	my $read = "SELECT to_jsonb(count(*)) FROM stream_changes('t'" . arguments_of($case) . ')';

	if ($case->{table})
	{
		my @columns = columns_of($case);
		@commands = (create_table('t', @columns), $case->{commits} ? insert_commits('t') : (), register('t', $case));
	}
	else
	{
		@commands = probe($case);
	}

	return (\@commands, [$read], sub { return error_differs($expect->{error}, $_[0]) }) if $expect->{error};
	if ($expect->{accepted})
	{
		my $text = grep { $_->[0] eq '_commit_version' && $_->[1] eq 'text' } columns_of($case);
		return (\@commands, $text ? [] : [$read], sub { return });
	}
	return (\@commands, [ probe_query($case) ], sub { return join(', ', @{ $_[1][0] }) }) if $expect->{resolved};
	if ($expect->{output_columns})
	{
		my @visible = map { $_->{name} } grep { !$_->{hidden} } @{ $case->{table}{columns} };
		push @commands, 'CREATE TEMP TABLE o AS SELECT (row_data).* FROM stream_changes(NULL::t' . arguments_of($case) . ')';
		return (\@commands,
			[ "SELECT to_jsonb(attname::text) FROM pg_attribute WHERE attrelid = 'o'::regclass AND attnum > 0 AND attname = ANY ("
				  . text_array([ @visible, @metadata ]) . ') ORDER BY attnum' ],
			sub { return lists_differ($expect->{output_columns}, $_[1][0]) });
	}
	if ($expect->{rows})
	{
		return (\@commands, [ row_queries($case) ], sub { return rows_differ(@{ $_[1] }) });
	}
	die 'expects what this cannot check: ' . join(', ', sort keys %$expect) . "\n";
}

sub lists_differ
{
	my ($expected, $got) = map { $json->encode($_) } @_;
	return $expected eq $got ? () : "expected $expected\ngot $got";
}

sub rows_differ
{
	my ($jsonb, $expected_jsonb, $typed, $expected_typed) = map { multiset($_) } @_;
	return "as jsonb expected:\n$expected_jsonb\ngot:\n$jsonb" if $jsonb ne $expected_jsonb;
	return "typed, expected:\n$expected_typed\ngot:\n$typed" if $typed ne $expected_typed;
	return;
}

sub error_differs
{
	my ($expected, $got) = @_;
	my $name = $expected->{condition} // $expected->{exception} // '';
	my ($rule) = grep { $name =~ $_->[0] } @errors;

	return "no error, expected $name" unless $got;
	return "there is no rule for error $name" unless $rule;
	my ($pattern, $sqlstate, $named) = @$rule;
	my $shown = "$got->{sqlstate}: $got->{message}\n$got->{detail}";
	return "expected SQLSTATE $sqlstate, got $shown" if $got->{sqlstate} !~ $sqlstate;
	return "expected condition $name in the detail, got $shown" if $named && index($got->{detail}, "Error condition: $name.") < 0;
	for my $parameter (@parameters)
	{
		my $value = $expected->{parameters}{$parameter} // next;
		$value = postgres_type($value) if $parameter =~ /Type$/;
		return "expected $parameter $value in the message, got $shown" if index($got->{message}, $value) < 0;
	}
	return;
}

sub postgres_type
{
	my ($type) = @_;
	return postgres_type($1) . '[]' if $type =~ /^ARRAY<(.*)>$/;
	return 'jsonb' if $type =~ /^(MAP|STRUCT)</;
	return 'numeric' if $type =~ /^DECIMAL/;
	return $type_names{$type} // lc $type;
}

# ---- the run: one session, one line of output for each case ----

# run(line, commands, queries): {"error": {...}}, or {"results": [[...], ...]}
my $runner = <<'SQL';
CREATE FUNCTION pg_temp.run(line json, commands text[], queries text[]) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
	command text;
	result jsonb;
	results jsonb := '[]';
	state text;
	message text;
	detail text;
BEGIN
	FOREACH command IN ARRAY commands LOOP
		EXECUTE command USING line;
	END LOOP;
	FOREACH command IN ARRAY queries LOOP
		EXECUTE format('SELECT coalesce(jsonb_agg(x), ''[]'') FROM (%s) AS q(x)', command) INTO result USING line;
		results := results || jsonb_build_array(result);
	END LOOP;
	RETURN jsonb_build_object('results', results);
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
	RETURN jsonb_build_object('error', jsonb_build_object('sqlstate', state, 'message', message, 'detail', detail));
END $$;
SQL

my @cases = read_cases();
my @planned;
my %skipped;
my $script = "SET client_min_messages = warning;\nSET search_path = public, pg_temp;\n$runner";
for my $case (@cases)
{
	$case->{entry} = entry_of($case);
	next if $case->{entry};
	if ($case->{kind} !~ $run)
	{
		$case->{trouble} = "kind $case->{kind} is neither run nor left out";
		next;
	}
	my ($commands, $queries, $check) = eval { plan_case($case) };
	if ($@)
	{
		$case->{trouble} = $@;
		next;
	}
	$case->{check} = $check;
	my $line = $case->{line};
	chomp $line;
	utf8::decode($line);
	$script .= "BEGIN;\nSET LOCAL TimeZone = " . literal($case->{read}{conf}{timezone} // 'UTC') . ";\n"
	  . "SELECT pg_temp.run(" . join(', ', literal($line), text_array($commands), text_array($queries)) . ");\nROLLBACK;\n";
	push @planned, $case;
}

my $node = new_node('cases');
start_extension($node);
utf8::encode($script);
my @output = split /\n/, sql($node, $script);
is(scalar @output, scalar @planned, 'all cases that are run have a result');

for my $case (@planned)
{
	my $result = JSON::PP->new->utf8->decode(shift(@output) // '{}');
	if ($result->{error} && !$case->{expect}{error})
	{
		$case->{trouble} = join "\n", map { $result->{error}{$_} } qw(sqlstate message detail);
		next;
	}
	my $difference = $case->{check}->($result->{error}, $result->{results});
	$case->{trouble} = $difference if defined $difference && $difference ne '';
}

for my $case (@cases)
{
	SKIP:
	{
		if ($case->{entry})
		{
			$skipped{ $case->{entry} }++;
			skip("$case->{id}: $left_out{$case->{entry}}", 1);
		}
		ok(!defined $case->{trouble}, "$case->{id} $case->{name}") or diag($case->{trouble});
	}
}

note(scalar(@cases) . ' cases, ' . scalar(grep { !$_->{entry} } @cases) . ' run; left out:');
note(sprintf '%4d  %-28s %s', $skipped{$_}, $_, $left_out{$_}) for sort keys %skipped;
done_testing();
