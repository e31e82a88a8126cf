# The cases of test/cases that are streams: micro-batch by micro-batch, through
# stream_register_changelog and jobs.
#
# The commits of a micro-batch are written to the log, then the query runs with
# trigger "once", which is exactly one batch; a micro-batch without data is what
# "availableNow" ends with.  Every batch tells its rows together with its number.
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

my %left_out = (
	'kind stream_plan' => 'operators of Spark\'s plans',
	'eng-available-now-limit' => 'a file source',
);

my $node = new_node('stream_cases');
start_extension($node);
my $json = JSON::PP->new->canonical->allow_nonref;
my $number = 0;

# ---- one case ----

# SQL that has the case as $1
sub with_case
{
	my ($case, $sql) = @_;
	my $line = $case->{line};
	chomp $line;
	my $tag = '$case$';
	$sql =~ s/\$1/$tag$line$tag\::json/g;
	return $sql;
}

sub log_table { return "log_$number" }
sub sink_table { return "sink_$number" }

sub make_log
{
	my ($case) = @_;
	my @columns = columns_of($case);

	@columns = map { [ $_->[0], $_->[0] eq '_commit_version' && has_text_versions($case) ? 'text' : $_->[1] ] } @columns;
	sql($node, create_table(log_table(), @columns) . ';' . register(log_table(), $case)
		  . "; CREATE TABLE " . sink_table() . ' (batch bigint, row_data jsonb)');
}

sub write_commits
{
	my ($case, @versions) = @_;
	my $list = join ', ', map { literal($_) } @versions;

	sql($node, with_case($case, insert_commits(log_table(), "c.body ->> 'version' IN ($list)"))) if @versions;
}

# stream_start for the case; what it raises is the caller's
sub start_sql
{
	my ($case, %params) = @_;
	my %options = %{ $case->{read}{options} // {} };
	my $conf = $case->{read}{conf} // {};
	my @columns = @{ $case->{expect}{columns} // [] };
	my $query = 'NULL';

	$options{stateStoreProvider} = $conf->{'spark.sql.streaming.stateStore.providerClass'} =~ /HDFS/ ? 'memory' : 'rocksdb'
	  if $conf->{'spark.sql.streaming.stateStore.providerClass'};
	$options{noDataMicroBatchesEnabled} = $conf->{'spark.sql.streaming.noDataMicroBatches.enabled'}
	  if exists $conf->{'spark.sql.streaming.noDataMicroBatches.enabled'};
	$options{maxVersionsPerTrigger} = 1 if $params{limited};
	if (my $where = $case->{read}{where})
	{
		my @conditions = map { my ($column, $not) = /^(\w+?)(_not)?$/; ident($column) . ($not ? ' <> ' : ' = ') . literal($where->{$_}) } sort keys %$where;
		$query = literal('SELECT * FROM batch WHERE ' . join(' AND ', @conditions));
	}
	my $wanted = join ', ', map { ident($_) } @columns ? @columns : 'id';
	return "SELECT stream_start('case $number', '" . log_table() . "', options => " . literal($json->encode(\%options))
	  . ", query => $query, output_mode => " . literal($case->{read}{output_mode} // 'append') . ", trigger => '$params{trigger}', foreach_batch => "
	  . literal('INSERT INTO ' . sink_table() . " SELECT \$1, to_jsonb(w) FROM (SELECT $wanted FROM batch) AS w") . ')';
}

my $await = sub { return "SELECT stream_await_termination('case $number', '60 s')" };

# runs one batch (or, without data, whatever is left to do)
sub run_batch
{
	my ($case, @versions) = @_;

	write_commits($case, @versions);
	sql($node, "SET client_min_messages = error; " . start_sql($case, trigger => @versions ? 'once' : 'availableNow') . '; ' . $await->());
}

# what batch wrote, as a multiset in text
sub rows_of_batch
{
	my ($batch) = @_;
	my $rows = sql($node, 'SELECT coalesce(jsonb_agg(row_data), \'[]\') FROM ' . sink_table() . " WHERE batch = $batch");
	return $rows;
}

# rows expected, as PostgreSQL prints them: through the log's row type
sub expected_rows
{
	my ($case, $path) = @_;
	my $wanted = join ', ', map { ident($_) } @{ $case->{expect}{columns} };
	return sql($node, "SET TimeZone = 'UTC'; " . with_case($case, "SELECT coalesce(jsonb_agg(to_jsonb(w)), '[]') FROM (SELECT $wanted FROM json_populate_recordset(NULL::"
			  . log_table() . ", \$1 #> '$path')) AS w"));
}

sub batches_differ
{
	my ($case, $first, $path, $count) = @_;
	my @differences;

	for my $i (0 .. $count - 1)
	{
		my $got = multiset(JSON::PP->new->decode(rows_of_batch($first + $i)));
		my $expected = multiset(JSON::PP->new->decode(expected_rows($case, "{$path,$i}")));
		push @differences, "batch " . ($first + $i) . " expected:\n$expected\ngot:\n$got" if $got ne $expected;
	}
	return join "\n", @differences;
}

sub number_of_batches
{
	return sql($node, "SELECT count(*) FROM stream_recent_progress('case $number')");
}

# a list of micro-batches, one after the other; returns what is wrong
sub run_micro_batches
{
	my ($case) = @_;
	my @batches = @{ $case->{micro_batches} };

	run_batch($case, @$_) for @batches;
	my $n = number_of_batches();
	return "expected " . scalar(@batches) . " batches, got $n" if $n != @batches;
	return batches_differ($case, 0, 'expect,per_batch', scalar @batches);
}

# runs of one query, each with a trigger of its own
sub run_runs
{
	my ($case) = @_;
	my $done = 0;
	my $i = 0;
	my @differences;

	for my $run (@{ $case->{runs} })
	{
		my @batches = @{ $run->{micro_batches} };

		if ($run->{trigger} eq 'availableNow')
		{
			write_commits($case, map { @$_ } @batches);
			my $limited = @batches > 2;
			sql($node, "SET client_min_messages = error; " . start_sql($case, trigger => 'availableNow', limited => $limited) . '; ' . $await->());
		}
		else
		{
			run_batch($case, @$_) for @batches;
		}
		my $n = number_of_batches() - $done;
		push @differences, "run $i: expected " . scalar(@batches) . " batches, got $n" if $n != @batches;
		push @differences, batches_differ($case, $done, "runs,$i,per_batch", scalar @batches);
		$done += @batches;
		$i++;
	}
	return join "\n", grep { $_ ne '' } @differences;
}

# ---- errors ----

my %sqlstates = (
	'STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION' => '0A000',
	'UNSUPPORTED_FEATURE.STATE_STORE_MULTIPLE_COLUMN_FAMILIES' => '0A000',
	'STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY' => '55000',
	'STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA' => '55000',
);

sub start_error_differs
{
	my ($case, $sql) = @_;
	my $error = $case->{expect}{error};
	my ($status, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql");
	my $sqlstate = $sqlstates{ $error->{condition} } // '22023';

	return "no error, expected $error->{condition}" if $status == 0;
	return "expected SQLSTATE $sqlstate, got $err" if $err !~ /ERROR:  $sqlstate:/;
	return "expected condition $error->{condition}, got $err" if index($err, "Error condition: $error->{condition}.") < 0;
	return "expected \"$error->{message_contains}\", got $err" if $error->{message_contains} && index($err, $error->{message_contains}) < 0;
	return '';
}

# the query fails while it runs: status, and the error that is kept
sub run_time_error_differs
{
	my ($case) = @_;
	my $error = $case->{expect}{error};
	my @batches = @{ $case->{micro_batches} // [ [ map { $_->{version} } @{ $case->{commits} } ], [] ] };

	for my $batch (@batches)
	{
		write_commits($case, @$batch);
		my ($status, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET client_min_messages = error; "
			  . start_sql($case, trigger => @$batch ? 'once' : 'availableNow') . '; ' . $await->());
		next if $status == 0;
		return $err =~ /ERROR:  XX001:/ && index($err, "Error condition: STREAM_FAILED.") >= 0 && index($err, "Error condition: $error->{condition}.") >= 0 ? '' :
		  "expected $error->{condition}, got $err";
	}
	return "no error, expected $error->{condition}";
}

# ---- all ----

sub run_case
{
	my ($case) = @_;
	my $expect = $case->{expect};

	if ($case->{id} eq 'd-restart-mode-to-stateful' || $case->{read}{restart_change})
	{
		$case->{table} = { columns => [ { name => 'id', type => 'bigint' }, { name => 'v', type => 'bigint' } ], row_id => ['id'], row_version => 'v',
			properties => { contains_carryover_rows => 1, contains_intermediate_changes => 1, represents_update_as_delete_and_insert => 1 } };
		make_log($case);
		my ($before, $after) = $case->{read}{restart_change} =~ /deduplicationMode (\w+) -> (\w+)/ or return "unknown change";
		$case->{read}{options} = { deduplicationMode => $before };
		sql($node, "SET client_min_messages = error; " . start_sql($case, trigger => 'once') . '; ' . $await->());
		$case->{read}{options} = { deduplicationMode => $after };
		return start_error_differs($case, start_sql($case, trigger => 'availableNow'));
	}
	make_log($case);
	if (my $error = $expect->{error})
	{
		return start_error_differs($case, start_sql($case, trigger => 'availableNow'))
		  if $error->{when} eq 'start' || $sqlstates{ $error->{condition} };
		return run_time_error_differs($case);
	}
	if (defined $expect->{rejected_by_cdc_rule})
	{
		# "complete" is refused all the same: it needs an aggregation
		return start_error_differs({ %$case, expect => { error => { condition => 'STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION' } } },
			start_sql($case, trigger => 'availableNow'))
		  if $case->{read}{output_mode} eq 'complete';
		sql($node, start_sql($case, trigger => 'availableNow') . '; ' . $await->());
		return '';
	}
	return run_runs($case) if $case->{runs};
	return run_micro_batches($case) if $case->{micro_batches};
	return 'expects what this cannot check: ' . join(', ', sort keys %$expect);
}

my %skipped;
for my $case (grep { $_->{kind} =~ /^stream_/ && $_->{dialect} eq 'spark' } read_cases())
{
	my ($entry) = grep { $left_out{$_} } ("kind $case->{kind}", $case->{id});

  SKIP:
	{
		if ($entry)
		{
			$skipped{$entry}++;
			skip("$case->{id}: $left_out{$entry}", 1);
		}
		$number++;
		my $difference = eval { run_case($case) };
		$difference = $@ if $@;
		is($difference, '', "$case->{id} $case->{name}");
	}
}
note(sprintf '%4d  %-28s %s', $skipped{$_}, $_, $left_out{$_}) for sort keys %skipped;
done_testing();
