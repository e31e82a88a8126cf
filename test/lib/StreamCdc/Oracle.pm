# What must be true of a log, whatever was done to the table: used by the TAP
# tests, and by the soak with its random histories.
#
# ASK is a function that runs SQL in the database of the log and gives what psql
# prints, unaligned and without headers; it dies if the SQL fails.  TABLE is a
# table as SQL writes it.  Functions called *_differences return texts, one for
# each thing that is not as it must be.
package StreamCdc::Oracle;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT_OK = qw(
  quoted dense_differences timestamp_differences count_differences
  fold_difference event_moves change_moves range_differences
  twin_history stream_segments twin_differences
);

# quoted TEXT: as a literal of SQL
sub quoted
{
	my ($text) = @_;
	$text =~ s/'/''/g;
	return "'$text'";
}

# ---- versions ----

# (number of versions, differences): from FIRST to the latest, each once
sub dense_differences
{
	my ($ask, $table, $first) = @_;
	my $name = quoted($table);
	my ($count, $dense) = split /\|/, $ask->(<<"SQL");
SELECT count(*), coalesce(bool_and(_commit_version = $first + n - 1), false)
FROM (SELECT _commit_version, row_number() OVER () AS n FROM stream_versions($name)) AS v
SQL
	return ($count, $dense eq 't' ? () : "versions of $table are not dense from $first");
}

sub timestamp_differences
{
	my ($ask, $table) = @_;
	my $name = quoted($table);
	my $wrong = $ask->(<<"SQL");
SELECT count(*) FROM (
	SELECT _commit_timestamp > lag(_commit_timestamp) OVER (ORDER BY _commit_version) AS later FROM stream_versions($name)
) AS v WHERE NOT later
SQL
	return $wrong eq '0' ? () : "timestamps of $wrong versions of $table do not increase";
}

# the counts of stream_versions are those of stream_events, whose numbers are dense in each version; a baseline may have none, and a schema
# change has the number of the event that it stands before
sub count_differences
{
	my ($ask, $table) = @_;
	my $name = quoted($table);
	my $wrong = $ask->(<<"SQL");
SELECT string_agg(_commit_version::text, ', ')
FROM (SELECT _commit_version, _commit_timestamp, count(*) FILTER (WHERE event = 'insert') AS i, count(*) FILTER (WHERE event = 'update') AS u,
			 count(*) FILTER (WHERE event = 'delete') AS d, 
			 min(event_number) = 1 AND max(event_number) = count(*) FILTER (WHERE event <> 'schema change') AS dense
	  FROM stream_events($name) GROUP BY 1, 2) AS e
	 FULL JOIN stream_versions($name) AS v USING (_commit_version, _commit_timestamp)
WHERE (coalesce(i, 0), coalesce(u, 0), coalesce(d, 0), coalesce(dense, true)) IS DISTINCT FROM (inserts, updates, deletes, true)
SQL
	return $wrong eq '' ? () : "versions and events of $table do not agree about versions $wrong";
}

# ---- folds ----

# Moves are rows (v, n, s, r): at place (v, n) the row whose text is r was added (s = 1) or taken away (s = -1).

# the moves that stream_events(ARGUMENTS) says, for a table whose columns have not changed since
sub event_moves
{
	my ($table, $arguments) = @_;
	return <<"SQL";
SELECT _commit_version AS v, event_number AS n, -1 AS s, jsonb_populate_record(NULL::$table, old_row)::text AS r
FROM stream_events($arguments) WHERE old_row IS NOT NULL
UNION ALL
SELECT _commit_version, event_number, 1, jsonb_populate_record(NULL::$table, new_row)::text
FROM stream_events($arguments) WHERE new_row IS NOT NULL
SQL
}

# the moves that stream_changes(ARGUMENTS) says; no two rows of a result have the same position
sub change_moves
{
	my ($arguments) = @_;
	return <<"SQL";
SELECT _commit_version AS v, row_number() OVER () AS n,
	   CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS s, row_data::text AS r
FROM stream_changes($arguments)
SQL
}

# fold_difference ASK, MOVES, ROWS: a fold, as arithmetic on multisets of rows.  ROWS is a SELECT of the rows' texts (r) that must be
# there in the end.  (moves that take away what is not there, rows too much, rows too few, one of these rows)  Any order of the texts
# will do, and "C" is the one that is fast.
sub fold_difference
{
	my ($ask, $moves, $rows) = @_;
	return split /\x1f/, $ask->(<<"SQL");
WITH moves AS MATERIALIZED (SELECT v, n, s, r COLLATE "C" AS r FROM ($moves) AS m),
	 steps AS (SELECT sum(s) OVER (PARTITION BY r ORDER BY v, n, s ROWS UNBOUNDED PRECEDING) AS there FROM moves),
	 sums AS (SELECT r, sum(s) AS n FROM (SELECT r, s FROM moves UNION ALL SELECT r COLLATE "C", -1 FROM ($rows) AS w) AS m
			  GROUP BY r HAVING sum(s) <> 0)
SELECT concat_ws(chr(31), (SELECT count(*) FROM steps WHERE there < 0),
				 (SELECT coalesce(sum(n), 0) FROM sums WHERE n > 0), (SELECT coalesce(-sum(n), 0) FROM sums WHERE n < 0),
				 (SELECT left(n || ' of ' || r, 300) FROM sums ORDER BY r LIMIT 1))
SQL
}

# range_differences ASK, TABLE, OPTIONS, FROM, MIDDLE, TO: the range is what its two halves come to, row by row where nothing is netted
# across versions, and the same by versions as by timestamps.  OPTIONS are named arguments, "" or ", ..." in SQL.
sub range_differences
{
	my ($ask, $table, $options, $from, $middle, $to) = @_;
	my $range = sub {
		my ($a, $b) = @_;
		return "stream_changes(NULL::$table, starting_version => $a, ending_version => $b$options)";
	};
	my $later = $middle + 1;
	my $name = quoted($table);
	my $at = sub { "(SELECT _commit_timestamp FROM stream_versions($name, $_[0], $_[0]))" };
	my $times = "stream_changes(NULL::$table, starting_timestamp => " . $at->($from) . ', ending_timestamp => ' . $at->($to) . "$options)";
	my ($as_rows, $as_sums) = (
		"SELECT row_number() OVER (), _change_type, _commit_version, _commit_timestamp, row_data::text FROM ",
		"SELECT row_data::text AS r, sum(CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END) AS n FROM ");
	my @differences;
	my $compare = sub {
		my ($what, $one, $other) = @_;
		my $wrong = $ask->("WITH one AS MATERIALIZED ($one), other AS MATERIALIZED ($other)\n"
			  . 'SELECT (SELECT count(*) FROM (TABLE one EXCEPT ALL TABLE other) AS x) + '
			  . '(SELECT count(*) FROM (TABLE other EXCEPT ALL TABLE one) AS x)');
		push @differences, "$what of $table from $from to $to$options: $wrong rows differ" if $wrong ne '0';
	};

	$compare->('bounds by time and by version', $as_rows . $range->($from, $to), $as_rows . $times);
	my $halves = '(SELECT * FROM ' . $range->($from, $middle) . ' UNION ALL SELECT * FROM ' . $range->($later, $to) . ') AS h';
	if ($options =~ /netChanges/i)
	{
		my $sums = 'GROUP BY 1 HAVING sum(CASE WHEN _change_type IN (\'insert\', \'update_postimage\') THEN 1 ELSE -1 END) <> 0';
		$compare->("the whole and its halves (split at $middle)", "$as_sums " . $range->($from, $to) . " AS w $sums", "$as_sums $halves $sums");
		my $raw = "stream_changes(NULL::$table, starting_version => $from, ending_version => $to, deduplication_mode => 'none') AS w";
		$compare->('net and raw changes', "$as_sums " . $range->($from, $to) . " AS w $sums", "$as_sums $raw $sums");
	}
	else
	{
		$compare->("the whole and its halves (split at $middle)", $as_rows . $range->($from, $to), $as_rows . $halves);
	}
	return @differences;
}

# ---- the twin: what the server's own test_decoding says ----

# the settings that the values of a log are written under
my $begin = <<'SQL';
BEGIN;
SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO'; SET LOCAL IntervalStyle = 'postgres'; SET LOCAL bytea_output = 'hex';
SET LOCAL search_path = pg_catalog;
SQL
my $end = 'COMMIT;';

# one tuple of test_decoding's text, as [ column, type, value, ... ]; undef as a value is NULL
sub _parse_tuple
{
	my ($text) = @_;
	my @row;
	$text =~ s/^ //;
	# a table without identity, before it was tracked, or a row without columns
	return \@row if $text eq '(no-tuple-data)' || $text eq '';
	pos($text) = 0;
	while ($text =~ /\G ?("(?:[^"]|"")*"|[^\s\[]+)\[((?:[^\[\]]|\[\])*)\]:(null|unchanged-toast-datum|B?'(?:[^']|'')*'|[^\s']+)/gc)
	{
		my ($column, $type, $value) = ($1, $2, $3);
		if ($value eq 'null') { $value = undef }
		elsif ($value eq 'unchanged-toast-datum') { $value = \'unchanged' }
		elsif ($value =~ s/^B?'(.*)'$/$1/s) { $value =~ s/''/'/g }
		push @row, $column, $type, $value;
	}
	die "cannot read what test_decoding says: " . substr($text, pos($text) // 0, 200)
	  if (pos($text) // 0) < length($text);
	return \@row;
}

# Rows become the jsonb that the server makes of their values: the very form of stream_events.  In place; long ones are shortened.  Of an old row
# test_decoding does not say what is NULL, so there is none in it on either side.
sub _rows_as_jsonb
{
	my ($ask, $rows) = @_;
	my (%alike, @asked);
	my $queries = '';
	# each call is a fork of ours, who may be large, so there are few
	my $answer = sub {
		my @texts = split /\n/, $ask->("$begin$queries$end");
		for my $place (@asked)
		{
			my ($event, $side) = @$place;
			$event->[$side] = shift @texts;
		}
		@asked = ();
		$queries = '';
	};
	for my $place (@$rows)
	{
		my ($event, $side) = @$place;
		my $row = $event->[$side];
		my $shape = join("\0", $side, map { $row->[ 3 * $_ ] . "\0" . $row->[ 3 * $_ + 1 ] } 0 .. @$row / 3 - 1);
		push @{ $alike{$shape} }, $place;
	}
	for my $places (values %alike)
	{
		my ($event, $side) = @{ $places->[0] };
		my @shape = @{ $event->[$side] };
		my $n = @shape / 3;
		# without a modifier these mean a length of one
		my %whole = (character => 'bpchar', bit => 'bit varying');
		my $cast = join(', ', map {
			my $type = $shape[ 3 * $_ + 1 ];
			$type =~ s/^(character|bit)\b(?! varying)/$whole{$1}/;
			"CAST(c$_ AS $type) AS $shape[3 * $_]"
		} 0 .. $n - 1);
		my $names = join(', ', 'nr', map { "c$_" } 0 .. $n - 1);
		while (my @some = splice(@$places, 0, 1000))
		{
			my $number = 0;
			my $values = join(",\n", map {
				my $row = $_->[0][$side];
				'(' . join(', ', ++$number, map { my $v = $row->[ 3 * $_ + 2 ]; defined $v ? quoted($v) : 'NULL::text' } 0 .. $n - 1) . ')'
			} @some);
			$queries .= <<"SQL";
SELECT @{[ _row_text($side, 'j') ]} FROM (
	SELECT nr, (SELECT to_jsonb(x) FROM (SELECT $cast) AS x) AS j FROM (VALUES $values) AS v ($names)) AS r
ORDER BY nr;
SQL
			push @asked, @some;
			$answer->() if length $queries > 10_000_000;
		}
	}
	$answer->();
}

# the text that rows are compared by; side 1 is old, 2 is new
sub _row_text
{
	my ($side, $row) = @_;
	my $text = $side == 1 ? "jsonb_strip_nulls($row)::text" : "$row\::text";
	return "CASE WHEN length($text) > 300 THEN left($text, 150) || md5($text) ELSE $text END";
}

# twin_history ASK, SLOT, NAMES: what test_decoding says of the tables for whose names the function NAMES gives something true, which is how
# they are called from then on: { name => [ segment, ... ], "streamcdc.*" => [ line, ... ] }.  A segment is
# [ { xid =>, special =>, events => [ [ kind, old, new ], ... ] }, ... ], rows as text of jsonb.  Without more ado there is one segment;
# messages "track NAME" and "untrack NAME" of prefix "soak" begin and end them.  A transaction is special if it does to the table what WAL does
# not tell: it truncates it, or has a message "special NAME".
sub twin_history
{
	my ($ask, $slot, $names) = @_;
	# a line can hold a newline inside a value, so a control character ends each; a transaction of nothing but a message has a BEGIN only if
	# empty ones are not skipped
	my $text = $ask->(<<"SQL");
$begin
SELECT data || chr(30) FROM pg_logical_slot_peek_changes('$slot', NULL, NULL, 'include-xids', '1', 'include-timestamp', '0', 'skip-empty-xacts', '0');
$end
SQL
	my @lines = split /\x1e\n?/, $text;
	# of a table with marks nothing counts before the first
	my %marked = map { /^message: .* prefix: soak, .* content:track (\S+)$/s ? ($1 => 1) : () } @lines;
	my ($xid, %history, %open, @rows);
	for my $line (@lines)
	{
		if ($line =~ /^BEGIN (\d+)$/) { $xid = $1; next }
		if ($line =~ /^message: .* prefix: soak, .* content:special (\S+)$/s)
		{
			my $segment = $marked{$1} ? $open{$1} : ($history{$1} //= [ [] ])->[0];
			next unless $segment;
			push @$segment, { xid => $xid, events => [] } unless @$segment && $segment->[-1]{xid} == $xid;
			$segment->[-1]{special} = 1;
			next;
		}
		if ($line =~ /^message: .* prefix: soak, .* content:(track|untrack) (\S+)$/s)
		{
			$open{$2} = $1 eq 'track' ? [] : undef;
			push @{ $history{$2} }, $open{$2} if $1 eq 'track';
			next;
		}
		# the mark that stream_track leaves in WAL is a message, and no row
		next if $line =~ /^(COMMIT|message:) /;
		$line =~ /^table (.*?): (INSERT|UPDATE|DELETE|TRUNCATE): ?(.*)$/s or die "unexpected line of test_decoding: $line";
		my ($tables, $kind, $tuples) = ($1, lc $2, $3);
		# rows of our own tables would be in anybody's publication too; a delete without a row is sent to nobody
		push @{ $history{'streamcdc.*'} }, $line if $tables =~ /^streamcdc\./ && $tuples ne '(no-tuple-data)';
		for my $table (split /, /, $tables)
		{
			my $name = $names->($table =~ s/^.*\.//r) or next;
			my $segment = $marked{$name} ? $open{$name} : ($history{$name} //= [ [] ])->[0];
			next unless $segment;
			push @$segment, { xid => $xid, events => [] } unless @$segment && $segment->[-1]{xid} == $xid;
			if ($kind eq 'truncate') { $segment->[-1]{special} = 1; next }
			my ($old, $new) = (undef, $tuples);
			if ($tuples =~ /^old-key:(.*) new-tuple:(.*)$/s) { ($old, $new) = ($1, $2) }
			elsif ($kind eq 'delete') { ($old, $new) = ($tuples, undef) }
			$old = _parse_tuple($old) if defined $old;
			$new = _parse_tuple($new) if defined $new;
			# full identity: the old row has the value of a column that was not written again; but not one that is NULL
			for my $c (grep { ref $new->[$_] } 0 .. ($new ? $#$new : -1))
			{
				my ($at) = grep { $old->[ 3 * $_ ] eq $new->[ $c - 2 ] } 0 .. ($old ? @$old / 3 - 1 : -1);
				$new->[$c] = defined $at ? $old->[ 3 * $at + 2 ] : undef;
			}
			my $event = [ $kind, $old, $new ];
			push @{ $segment->[-1]{events} }, $event;
			push @rows, map { [ $event, $_ ] } grep { $event->[$_] } 1, 2;
		}
	}
	_rows_as_jsonb($ask, \@rows);
	return \%history;
}

# stream_segments ASK: { stream_id => function (xid), true if the stream's baseline includes that transaction }
sub stream_segments
{
	my ($ask) = @_;
	my %seen;
	for my $line (split /\n/, $ask->("SELECT s.stream_id || '|' || coalesce(b.snapshot, '') FROM streamcdc.streams AS s LEFT JOIN streamcdc.baselines AS b USING (stream_id)"))
	{
		my ($stream, $snapshot) = split /\|/, $line;
		my ($xmin, $xmax, $running) = split /:/, $snapshot // '';
		my %running = map { $_ => 1 } split /,/, $running // '';
		$seen{$stream} = sub { defined $xmin && length $xmin && ($_[0] < $xmin || ($_[0] < $xmax && !$running{ $_[0] })) };
	}
	return \%seen;
}

# twin_differences ASK, TABLE, BASE, SEGMENT, SEEN: the log after version BASE says what the segment of the twin says, transaction by
# transaction.  (events of ours, events of the segment, differences)
sub twin_differences
{
	my ($ask, $table, $base, $segment, $seen) = @_;
	my $name = quoted($table);
	my (@ours, $nours);
	my ($old, $new) = (_row_text(1, 'old_row'), _row_text(2, 'new_row'));
	for my $line (split /\n/, $ask->(<<"SQL"))
SELECT concat_ws(chr(31), v._commit_version, v.xid, e.event, coalesce($old, ''), coalesce($new, ''))
FROM stream_versions($name) AS v LEFT JOIN stream_events($name) AS e USING (_commit_version)
WHERE v._commit_version > $base ORDER BY v._commit_version, e.event_number
SQL
	{
		my ($version, $xid, $kind, @rows) = split /\x1f/, $line, -1;
		push @ours, { version => $version, xid => $xid, events => [] } unless @ours && $ours[-1]{version} == $version;
		$ours[-1]{special} = 1 if ($kind // '') eq 'truncate' || ($kind // '') eq 'gap';
		push @{ $ours[-1]{events} }, join(' | ', $kind, @rows) if ($kind // '') =~ /^(insert|update|delete)$/;
	}
	my @theirs = grep { !$seen->($_->{xid}) } @$segment;
	my @differences;
	my ($i, $j) = (0, 0);
	while ($i < @ours || $j < @theirs)
	{
		my ($a, $b) = ($ours[$i], $theirs[$j]);
		# nothing was there to be taken away
		if ($b && $b->{special} && !@{ $b->{events} } && (!$a || $a->{xid} ne $b->{xid}))
		{
			$j++;
			next;
		}
		if (!$a || !$b || $a->{xid} ne $b->{xid})
		{
			push @differences, "transactions of $table differ: the log has "
			  . ($a ? "version $a->{version}, xid $a->{xid} with " . @{ $a->{events} } . ' events' : 'no more') . ', test_decoding '
			  . ($b ? "xid $b->{xid} with " . @{ $b->{events} } . ' events' : 'no more');
			last;
		}
		$i++, $j++;
		# what TRUNCATE and its like took away is in the log, but not in WAL
		next if $a->{special} || $b->{special};
		my @b = map { join(' | ', map { $_ // '' } @$_) } @{ $b->{events} };
		my $n = 0;
		$n++ while $n < @b && $n < @{ $a->{events} } && $b[$n] eq $a->{events}[$n];
		next if $n == @b && $n == @{ $a->{events} };
		push @differences, "event " . ($n + 1) . " of version $a->{version} (xid $a->{xid}) of $table differs\nlog:           "
		  . ($a->{events}[$n] // 'none') . "\ntest_decoding: " . ($b[$n] // 'none');
		last;
	}
	my $count = sub { my $sum = 0; $sum += @{ $_->{events} } for @{ $_[0] }; return $sum };
	return ($count->(\@ours), $count->($segment), @differences);
}

1;
