# Histories: steps that sessions take one after another, run in a database of
# their own and judged by the oracle.
#
# A history is text, one step a line; "#" begins a comment.  A step says who
# does it:
#
#   1 SQL           session 1 (1 to 9), which waits for it to end; an error is as good as a result
#   1& SQL          session 1, and the next step does not wait for it
#   * copy          the tables are copied, to be compared with the log of that version later
#   * check         the log is judged
#   * sync          capture reads all there is
#   * terminate capture|baseline     SIGTERM for a worker
#   * kill capture|baseline          SIGKILL, after which the server restarts itself
#   * crash         the server is stopped at once and started again
#   * set NAME = VALUE               a setting of the server, by reload
#
# A check comes after the last step too, when every session has ended and what
# was prepared is rolled back.  Tables are called t1, t2, ..., and t1_anything if
# they are the same table under another name, or a partition of it.  stream_track
# is written @track(TABLE, ARGUMENTS), stream_untrack @untrack(TABLE), and DROP
# TABLE @drop(TABLE), since the twin has to see them; behind a command whose
# changes WAL does not tell comes @special(TABLE), in the same transaction.  @DIR@ is a folder that the server can write to.
package StreamCdc::History;

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use StreamCdc::Oracle qw(quoted dense_differences timestamp_differences count_differences
  fold_difference event_moves change_moves range_differences twin_history stream_segments twin_differences);

my $timeout = $PostgreSQL::Test::Utils::timeout_default;

# what every history finds in its database
my $prelude = <<'SQL';
CREATE EXTENSION streamcdc;
CREATE EXTENSION hstore;
CREATE EXTENSION citext;
CREATE EXTENSION ltree;
CREATE SCHEMA other;
CREATE SCHEMA soak;
CREATE TABLE soak.copies (stream bigint, version bigint, shape text, whole text, json text);
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE DOMAIN posint AS int CHECK (VALUE >= 0);
CREATE DOMAIN label AS text;
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN checked AS pair CHECK ((VALUE).a > 0);
-- text that does not compress: about N times 32 bytes
CREATE FUNCTION noise(i bigint, n int) RETURNS text IMMUTABLE LANGUAGE sql AS
	$$ SELECT string_agg(md5((i * 1000 + g)::text), '') FROM generate_series(1, n) AS g $$;
SQL

# ---- sessions: psql, one command after another ----

sub _open_session
{
	my ($self, $name) = @_;
	my %session = (in => '', out => '', err => '', number => 0);
	$session{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $self->{node}->connstr($self->{db}) . " application_name=soak_$name", '-v', 'VERBOSITY=verbose', '-f', '-' ],
		'<', \$session{in}, '>', \$session{out}, '2>', \$session{err}, $session{timer} = IPC::Run::timer($timeout));
	_send(\%session, "SET client_min_messages = warning; SET lock_timeout = '400ms'; SET statement_timeout = '120s'; SET streamcdc.read_timeout = '120s';");
	_receive(\%session);
	return \%session;
}

sub _send
{
	my ($session, $sql) = @_;
	$session->{number}++;
	$session->{in} .= "$sql\n\\echo 'end of $session->{number}'\n\\warn 'end of $session->{number}'\n";
	$session->{busy} = 1;
	eval { $session->{run}->pump_nb };
}

# (output, errors) of what was sent; undef if the session has ended
sub _receive
{
	my ($session) = @_;
	my $mark = qr/(?:^|\n)end of $session->{number}\n/;
	$session->{timer}->start($timeout);
	eval {
		until ($session->{out} =~ /end of $session->{number}\n\z/ && $session->{err} =~ /end of $session->{number}\n\z/)
		{
			$session->{run}->pump;
			die "a session has been waiting for $timeout s\n" if $session->{timer}->is_expired;
		}
	};
	die $@ if $@ && $@ =~ /has been waiting/;
	return undef if $@;
	my ($out, $err) = map { s/(?:^|(?<=\n))end of $session->{number}\n\z//r } $session->{out}, $session->{err};
	chomp $out;
	@$session{qw(out err busy)} = ('', '', 0);
	return ($out, $err);
}

sub _close_session
{
	my ($session) = @_;
	eval { $session->{run}->kill_kill(grace => 5) };
}

# ---- running ----

my $databases = 0;

# new NODE: a database for one history
sub new
{
	my ($class, $node, %params) = @_;
	my $self = bless {
		node => $node, db => 'soak' . ++$databases, sessions => {}, differences => [], dir => PostgreSQL::Test::Utils::tempdir(),
		steps => [], crashes => 0, log => -s $node->logfile, %params
	}, $class;
	$node->safe_psql('postgres', "CREATE DATABASE $self->{db}");
	chmod 0777, $self->{dir};
	$self->ask($prelude);
	$self->ask("SELECT pg_create_logical_replication_slot('$self->{db}', 'test_decoding')");
	return $self;
}

sub _wait_for_server
{
	my ($self) = @_;
	$self->{node}->poll_query_until('postgres', 'SELECT true') or die 'the server did not come back';
}

# what SQL gives in the control session, which dies if it fails; the oracle asks by it
sub ask
{
	my ($self, $sql) = @_;
	for my $attempt (1, 2)
	{
		$self->{control} //= $self->_open_session('control');
		# much text does not go well through a pipe
		if (length $sql > 30_000)
		{
			open my $file, '>', "$self->{dir}/asked" or die "could not write a file: $!";
			print $file "$sql\n;";
			close $file;
			_send($self->{control}, "\\i $self->{dir}/asked");
		}
		else { _send($self->{control}, "$sql\n;") }
		my ($out, $err) = _receive($self->{control});
		if (!defined $out)
		{
			_close_session(delete $self->{control});
			$self->_wait_for_server;
			next;
		}
		die "$err\nof: " . substr($sql, 0, 2000) . "\n" if $err =~ /ERROR:/;
		return $out;
	}
	die "the control session ends twice at: " . substr($sql, 0, 2000) . "\n";
}

# a step fails as it may, unless something must never happen
sub _look_at_error
{
	my ($self, $err, $what) = @_;
	$self->_differ('internal', "\"$what\" gave\n$err") if $err =~ /(?:ERROR|FATAL|PANIC):  XX/;
}

sub _differ
{
	my ($self, $kind, $text) = @_;
	push @{ $self->{differences} }, { kind => $kind, text => $text, step => scalar @{ $self->{steps} } };
}

sub _finish
{
	my ($self, $number) = @_;
	my $session = $self->{sessions}{$number} or return;
	return unless $session->{busy};
	my ($out, $err) = _receive($session);
	return ($out, $err) if defined $out;
	_close_session(delete $self->{sessions}{$number});
	return ('', 'FATAL:  57P01: the session has ended');
}

sub _finish_all
{
	my ($self) = @_;
	for my $number (sort keys %{ $self->{sessions} })
	{
		my ($out, $err) = $self->_finish($number);
		$self->_look_at_error($err, "session $number") if defined $err;
	}
}

# all sessions are gone with the server's processes
sub _forget_sessions
{
	my ($self) = @_;
	_close_session($_) for values %{ $self->{sessions} };
	$self->{sessions} = {};
	_close_session(delete $self->{control}) if $self->{control};
	$self->_wait_for_server;
}

sub _expand
{
	my ($self, $sql) = @_;
	$sql =~ s/\@DIR\@/$self->{dir}/g;
	# the mark comes last: it must not be there without the command
	$sql =~ s/\@track\(((?:\w+\.)?(t\d+)\w*)((?:,[^;]*)?)\)/DO \$track\$BEGIN PERFORM stream_track('$1'$3); PERFORM pg_logical_emit_message(true, 'soak', 'track $2'); END\$track\$/g;
	$sql =~ s/\@untrack\(((?:\w+\.)?(t\d+)\w*)\)/DO \$track\$BEGIN PERFORM stream_untrack('$1'); PERFORM pg_logical_emit_message(true, 'soak', 'untrack $2'); END\$track\$/g;
	$sql =~ s/\@special\((?:\w+\.)?(t\d+)\w*\)/DO \$track\$BEGIN PERFORM pg_logical_emit_message(true, 'soak', 'special $1'); END\$track\$/g;
	$sql =~ s/\@drop\(((?:\w+\.)?(t\d+)\w*)\)/DO \$track\$BEGIN DROP TABLE $1; PERFORM pg_logical_emit_message(true, 'soak', 'untrack $2'); END\$track\$/g;
	return $sql;
}

# step TEXT: takes it, and says what came of it as (output, errors)
sub step
{
	my ($self, $step) = @_;
	my $begin = time;
	push @{ $self->{steps} }, $step;
	my ($out, $err) = $self->_take($step);
	push @{ $self->{slow} }, (time - $begin) . " s: $step" if time - $begin > 4;
	$self->{kinds}{ _kind($step) }++ unless $err =~ /ERROR|FATAL/;
	return ($out, $err);
}

# what is done in a step, in a few words
sub _kind
{
	my ($step) = @_;
	my ($who, $what) = $step =~ /^(\S+) (.*)$/s;
	return $what =~ s/ (?:streamcdc.*|PREPARED '.*)$//r if $who eq '*';
	return 'DO: swap' if $what =~ /^DO \$swap/;
	return 'DO: exceptions' if $what =~ /^DO \$loop/;
	return "\L$1" if $what =~ /^(\@\w+)/;
	return 'ON CONFLICT' if $what =~ /^INSERT.* ON CONFLICT/;
	return "ALTER TABLE $1" =~ s/COLUMN \S+/COLUMN/r =~ s/(TYPE|RENAME COLUMN|RENAME TO).*/$1/r if $what =~ /^ALTER TABLE \S+ (ALTER COLUMN \S+ \S+ ?\w*|\w+ \w+)/;
	return $1 if $what =~ /^(WITH gone|WITH p|COMMIT PREPARED|ROLLBACK PREPARED|ROLLBACK TO|VACUUM FULL|(?:CREATE|DROP|ALTER|COMMENT ON) (?:UNIQUE )?\w+|\w+)/;
	return $what;
}

sub _take
{
	my ($self, $step) = @_;
	my ($who, $async, $what) = $step =~ /^(\d|\*)(&?) (.*)$/s or die "not a step: $step\n";
	if ($who eq '*')
	{
		$self->_finish_all if $what =~ /^(copy|check|sync|set|crash)/;
		if ($what eq 'copy') { $self->_copy }
		elsif ($what eq 'check') { $self->check(0) }
		elsif ($what eq 'sync') { $self->_sync }
		elsif ($what =~ /^set (.*)$/)
		{
			$self->ask("ALTER SYSTEM SET $1");
			$self->ask('SELECT pg_reload_conf()');
		}
		elsif ($what =~ /^terminate (capture|baseline)$/)
		{
			$self->ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'streamcdc $1' AND datname = current_database()");
		}
		elsif ($what =~ /^kill (capture|baseline)$/)
		{
			my $start = "SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
			my ($pid, $before) = split /\|/, $self->ask("SELECT pid, ($start) FROM pg_stat_activity WHERE backend_type = 'streamcdc $1' AND datname = current_database() LIMIT 1");
			# it may have ended by itself by now
			if ($pid && kill 'KILL', $pid)
			{
				$self->{node}->poll_query_until('postgres', "SELECT ($start) NOT IN (0, $before)") or die 'the server did not restart';
				$self->_forget_sessions;
			}
		}
		elsif ($what eq 'crash')
		{
			$self->{node}->stop('immediate');
			$self->{node}->start;
			$self->_forget_sessions;
		}
		else { die "not a step: $step\n" }
		return ('', '');
	}
	my ($out, $err) = $self->_finish($who);
	$self->_look_at_error($err, "session $who") if defined $err;
	# a session that was let go on may hold locks that this one meets, or not: the rest does not depend on it
	$self->{sessions}{$who} //= $self->_open_session($who);
	_send($self->{sessions}{$who}, $self->_expand($what) . ($what =~ /;\s*$/ ? '' : ';'));
	return ('', '') if $async;
	($out, $err) = $self->_finish($who);
	$self->_look_at_error($err, $step);
	return ($out, $err);
}

# look WHO, SQL: what a session that waits sees, which is no step; undef if its transaction has failed
sub look
{
	my ($self, $who, $sql) = @_;
	my ($out, $err) = $self->_finish($who);
	$self->_look_at_error($err, "session $who") if defined $err;
	$self->{sessions}{$who} //= $self->_open_session($who);
	_send($self->{sessions}{$who}, "$sql;");
	($out, $err) = $self->_finish($who);
	return $err =~ /ERROR|FATAL/ ? undef : $out;
}

# Does capture get to where we are?  In the middle of a history it may wait for a transaction that is open: a slot is built only once those
# before it have ended.
sub _sync
{
	my ($self, $last) = @_;
	my $limit = $last ? $timeout : 5;
	return 1 if eval { $self->ask("SET statement_timeout = 0; SELECT stream_sync('$limit s')"); 1 };
	my $why = $@;
	$self->{waits}++;
	return 0 if !$last && $why =~ /57014/ && $self->ask(<<'SQL') ne '0';
SELECT (SELECT count(*) FROM pg_stat_activity WHERE application_name SIMILAR TO 'soak\_\d' AND state LIKE '%in transaction%') + (SELECT count(*) FROM pg_prepared_xacts)
SQL
	$self->_differ('sync', "capture does not get there: $why");
	return 0;
}

# the columns that a table has, for those of its images that need not be mapped
my $shape_of = <<'SQL';
(SELECT md5(string_agg(concat_ws(' ', attnum, attname, atttypid, atttypmod, attisdropped), ',' ORDER BY attnum)) FROM pg_attribute
 WHERE attrelid = s.relid AND attnum > 0)
SQL

# live streams whose tables can be looked at: [ stream_id, table, base version, has baseline, shape, last version ]
sub _live
{
	my ($self) = @_;
	return map { [ split /\|/, $_, -1 ] } split /\n/, $self->ask(<<"SQL");
SELECT stream_id, relid::regclass, base_version, baseline, $shape_of, stream_latest_version(relid), c.relkind
FROM streamcdc.streams AS s JOIN pg_class AS c ON c.oid = relid
WHERE state = 'l' AND NOT EXISTS (SELECT FROM pg_locks WHERE relation = s.relid AND mode = 'AccessExclusiveLock')
ORDER BY stream_id
SQL
}

sub _copy
{
	my ($self) = @_;
	$self->_sync or return;
	for my $live ($self->_live)
	{
		my ($stream, $table, $base, $baseline, $shape, $last, $kind) = @$live;
		my $only = $kind eq 'p' ? '' : 'ONLY';
		# without a baseline there is no version before the first commit
		next if $last eq '';
		next if $self->{copied}{"$stream $last $shape"}++;
		$self->ask("INSERT INTO soak.copies SELECT $stream, $last, '$shape', whole::text, to_jsonb(whole)::text FROM $only $table AS whole"
			  . " UNION ALL SELECT $stream, $last, '$shape', NULL, NULL");
	}
}

# ---- judging ----

# finish: what every history ends with; the differences: [ { kind =>, text =>, step => }, ... ]
sub finish
{
	my ($self) = @_;
	$self->_finish_all;
	_close_session($_) for values %{ $self->{sessions} };
	$self->{sessions} = {};
	$self->ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'soak\\_%' AND pid <> pg_backend_pid() AND datname = current_database()");
	$self->{node}->poll_query_until($self->{db},
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name SIMILAR TO 'soak\\_\\d' AND datname = current_database()");
	$self->ask("ROLLBACK PREPARED '$_'") for split /\n/, $self->ask('SELECT gid FROM pg_prepared_xacts WHERE database = current_database()');
	$self->check(1);
	$self->{streamed} = $self->ask("SELECT coalesce(sum(stream_txns), 0) FROM pg_stat_replication_slots WHERE slot_name = (SELECT 'streamcdc_' || oid FROM pg_database WHERE datname = current_database())");
	$self->_read_log;
	return $self->{differences};
}

# gone: the database is dropped, with its slots
sub gone
{
	my ($self) = @_;
	my $node = $self->{node};
	_close_session($_) for values %{ $self->{sessions} }, grep { $_ } delete $self->{control};
	$self->{sessions} = {};
	$node->psql('postgres', "SELECT pg_drop_replication_slot('$self->{db}')");
	$node->psql('postgres', 'ALTER SYSTEM RESET ALL; SELECT pg_reload_conf();');
	$node->safe_psql($self->{db}, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'soak\\_%' AND datname = current_database()");
	$node->safe_psql($self->{db}, "ROLLBACK PREPARED '$_'") for split /\n/,
	  $node->safe_psql($self->{db}, 'SELECT gid FROM pg_prepared_xacts WHERE database = current_database()');
	$node->safe_psql($self->{db}, 'DROP EXTENSION streamcdc CASCADE');
	$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_replication_slots WHERE database = '$self->{db}'")
	  or die "the slot of $self->{db} stays";
	$node->safe_psql('postgres', "DROP DATABASE $self->{db} WITH (FORCE)");
}

# what the server said meanwhile
sub _read_log
{
	my ($self) = @_;
	open(my $log, '<', $self->{node}->logfile) or die "cannot read the server's log: $!";
	seek($log, $self->{log}, 0);
	while (my $line = <$log>)
	{
		$self->_differ('server', $line)
		  if $line =~ /PANIC:|TRAP:|terminated by signal (?!9\b)|streamcdc (?:capture|baseline|launcher).*(?:ERROR|FATAL):  (?!terminating)/;
	}
	$self->{log} = tell $log;
}

# check LAST: judges every stream; in the middle of a history without what takes long
sub check
{
	my ($self, $last) = @_;
	$self->_sync($last) or return;
	my $ask = sub { $self->ask(@_) };
	my $try = sub {
		my ($kind, $what) = @_;
		my @wrong = eval { $what->() };
		push @wrong, "it failed: $@" if $@;
		$self->_differ($kind, $_) for @wrong;
	};
	for my $line (split /\n/, $self->ask("SELECT table_name, status, last_error FROM stream_tables WHERE status NOT IN ('streaming', 'dropped')"))
	{
		$self->_differ('status', "stream is not well: $line");
	}
	for my $live ($self->_live)
	{
		my ($stream, $table, $base, $baseline, $shape, $latest, $kind) = @$live;
		$self->{checked}++;
		my $first = $baseline eq 't' ? $base : $base + 1;
		$try->('versions', sub { my ($n, @wrong) = dense_differences($ask, $table, $first); $n ? @wrong : () });
		$try->('versions', sub { timestamp_differences($ask, $table) });
		$try->('versions', sub { count_differences($ask, $table) });
		$try->('fold', sub { $self->_folds($live) });
		$try->('copies', sub { $self->_copies($live) }) if $last;
		$try->('ranges', sub { $self->_ranges($live) }) if $last;
	}
	$try->('twin', sub { $self->_twin }) if $last;
}

# true if the whole log has one row identity
sub _has_identity
{
	my ($self, $stream) = @_;
	return $self->ask("SELECT coalesce(bool_and(i), false) FROM (SELECT bool_or(identity) AS i FROM streamcdc.schemas WHERE stream_id = $stream GROUP BY schema_number) AS s") eq 't';
}

my @modes = (", deduplication_mode => 'none'", '', ", deduplication_mode => 'netChanges'", ', compute_updates => true',
	", deduplication_mode => 'netChanges', compute_updates => true");

sub _needs_identity { return $_[0] =~ /net|compute/ }

sub _folds
{
	my ($self, $live) = @_;
	my ($stream, $table, $base, $baseline, $shape, $latest, $kind) = @$live;
	return () if $baseline eq 'f';
	my $ask = sub { $self->ask(@_) };
	my $identity = $self->_has_identity($stream);
	my $only = $kind eq 'p' ? '' : 'ONLY';
	my @wrong;
	for my $mode (@modes)
	{
		next if _needs_identity($mode) && !$identity;
		my ($early, $extra, $missing, $row) =
		  fold_difference($ask, change_moves("NULL::$table$mode"), "SELECT whole::text AS r FROM $only $table AS whole");
		push @wrong, "changes of $table$mode do not fold to the table: $early taken away too early, $extra too much, $missing missing"
		  . (defined $row ? ", among them $row" : '')
		  if $early || $extra || $missing;
	}
	return @wrong;
}

# the log between two copies of a table, and since the beginning, is what became of it; as jsonb, as long as the columns are the same
sub _copies
{
	my ($self, $live) = @_;
	my ($stream, $table, $base, $baseline, $shape, $latest, $kind) = @$live;
	my $ask = sub { $self->ask(@_) };
	my $identity = $self->_has_identity($stream);
	my $name = quoted($table);
	my @wrong;
	my @copies = map { [ split /\|/ ] } split /\n/, $self->ask("SELECT DISTINCT version, shape FROM soak.copies WHERE stream = $stream ORDER BY version");
	for my $n (0 .. $#copies)
	{
		my ($version, $then) = @{ $copies[$n] };
		my $is = "SELECT json AS r FROM soak.copies WHERE stream = $stream AND version = $version AND shape = '$then' AND json IS NOT NULL";
		if ($n > 0 && $copies[ $n - 1 ][1] eq $then && $copies[ $n - 1 ][0] < $version)
		{
			my $was = $copies[ $n - 1 ][0];
			my $range = "$name, starting_version => $was, ending_version => $version, starting_bound_inclusive => false";
			next if $self->ask("SELECT count(*) FROM stream_events($range) WHERE event NOT IN ('insert', 'update', 'delete')") ne '0';
			for my $mode (@modes)
			{
				next if _needs_identity($mode) && !$identity;
				my ($early, $extra, $missing, $row) = fold_difference($ask,
					"SELECT -1 AS v, 0 AS n, 1 AS s, json AS r FROM soak.copies WHERE stream = $stream AND version = $was AND shape = '$then' AND json IS NOT NULL UNION ALL "
					  . change_moves("$range$mode"), $is);
				push @wrong, "changes($range$mode) do not lead from copy to copy: $early too early, $extra too much, $missing missing"
				  . (defined $row ? ", among them $row" : '')
				  if $early || $extra || $missing;
			}
		}
		# from the beginning, typed: as long as the columns are those of today
		if ($baseline eq 't' && $then eq $shape)
		{
			my $range = "NULL::$table, starting_version => $base, ending_version => $version";
			my $whole = "SELECT whole AS r FROM soak.copies WHERE stream = $stream AND version = $version AND shape = '$then' AND whole IS NOT NULL";
			my ($early, $extra, $missing, $row) = fold_difference($ask, change_moves($range), $whole);
			push @wrong, "changes($range) do not lead to the copy: $early too early, $extra too much, $missing missing"
			  . (defined $row ? ", among them $row" : '')
			  if $early || $extra || $missing;
		}
	}
	return @wrong;
}

# where a range is split depends on how long the log is, and on nothing else
sub _ranges
{
	my ($self, $live) = @_;
	my ($stream, $table, $base, $baseline, $shape, $latest, $kind) = @$live;
	my $ask = sub { $self->ask(@_) };
	my $first = $base + ($baseline eq 't' ? 0 : 1);
	return () if $latest eq '' || $latest <= $first;
	my $identity = $self->_has_identity($stream);
	my @wrong;
	for my $cut ([ 0, 0.5, 1 ], [ 0.2, 0.3, 0.9 ], [ 0.6, 0.8, 0.95 ])
	{
		my ($from, $middle, $to) = map { $first + int($_ * ($latest - $first)) } @$cut;
		$middle-- if $middle >= $to;
		next if $middle < $from;
		for my $mode (@modes)
		{
			next if _needs_identity($mode) && !$identity;
			push @wrong, range_differences($ask, $table, $mode, $from, $middle, $to);
		}
	}
	return @wrong;
}

sub _twin
{
	my ($self) = @_;
	my $ask = sub { $self->ask(@_) };
	my $history = twin_history($ask, $self->{db}, sub { $_[0] =~ /^(t\d+)(?:_|$)/ ? $1 : undef });
	my $seen = stream_segments($ask);
	my (%nth, @wrong);
	push @wrong, 'a row of our own tables reached another consumer of WAL: ' . substr($_, 0, 300) for @{ $history->{'streamcdc.*'} // [] };
	for my $line (split /\n/, $self->ask(<<'SQL'))
SELECT stream_id, table_name, state, base_version,
	   CASE state WHEN 'l' THEN relid::regclass::text WHEN 'd' THEN (SELECT t.table_name FROM stream_tables AS t WHERE t.table_name LIKE '%(dropped ' || s.stream_id || ')'
			AND (NOT s.baseline OR EXISTS (SELECT FROM streamcdc.baselines AS b WHERE b.stream_id = s.stream_id AND b.complete))) END
FROM streamcdc.streams AS s ORDER BY stream_id
SQL
	{
		my ($stream, $name, $state, $base, $readable) = split /\|/, $line, -1;
		my ($logical) = $name =~ /^(t\d+)/ or next;
		my $segment = ($history->{$logical} // [])->[ $nth{$logical}++ ];
		if (!$segment)
		{
			push @wrong, "stream $stream of $logical was not seen to begin by test_decoding";
			next;
		}
		# untracked, or dropped before its baseline was complete
		next unless length $readable;
		my ($ours, $theirs, @differences) = twin_differences($ask, $readable, $base, $segment, $seen->{$stream});
		$self->{events} += $ours;
		push @wrong, @differences;
	}
	return @wrong;
}

# ---- files ----

# parse TEXT: its steps
sub parse
{
	my ($text) = @_;
	return grep { /\S/ && !/^#/ } split /\n/, $text;
}

# run NODE, WHAT (function of a history, or steps as a reference): in a database of its own; the history with its differences
sub run
{
	my ($node, $what) = @_;
	my $history = __PACKAGE__->new($node);
	my $done = eval {
		if (ref $what eq 'CODE') { $what->($history) }
		else { $history->step($_) for @$what }
		$history->finish;
		1;
	};
	$history->_differ('driver', $@) unless $done;
	$history->gone;
	return $history;
}

1;
