# Recipes: short stories about what went wrong with other change-capture tools, told to ours.
#
# test/recipes/*.pl hold them; each file is a list of hashes:
#
#   number    of the report; the test is named after it.  "17b" is another story of the same kind
#   title     what is at stake
#   setup     commands before tracking begins
#   track     tables to be tracked and waited for, default ['t']; an entry may be a whole call of stream_track
#   steps     what happens then, see below
#   expect    list of [query, rows as psql prints them, what it says]
#   fails     list of [query, SQLSTATE, pattern, what it says]
#   fold      tables whose log must fold to the table, default: those of "track" that are names.  A value may be
#             { table =>, events => 0, net => 0, status => } to leave out the fold of events (DDL makes their rows
#             differ from today's), that of net changes, or to expect another status
#   identity  0: the recipe says itself what the replica identity is; else it is run with DEFAULT and with FULL
#   roles     roles that it needs, made for the cluster
#
# Steps are executed in order, each recipe in a schema of its own, which is first in search_path:
#
#   'commands'                         in the main session
#   [ A => 'commands' ]                in session A of this recipe
#   { query =>, is =>, name => }       looked at while things go on, unless capture is held just then
#   { query =>, fails =>, like =>, name => }   a command that is refused, in any mode
#   'cut'                              here the worker is killed; default: after half of the steps
#   'crash'                            here it is killed with SIGKILL, if that is another place: since then all
#                                      sessions end, nothing may be open
#   sub { my ($run) = @_; ... }        anything else; $run->{node}, {db}, {schema}, {mode}
#
# All recipes run beside each other in one database, once in each mode:
#
#   plain       capture follows
#   terminated  SIGTERM at the cut, when it has decoded what was done so far and is about to store it
#   crashed     SIGKILL at the cut, whatever it is doing: the server restarts
#   paused      SIGSTOP before the first step, SIGCONT after the last one: everything is decoded with the catalogs of
#               the end already there
#
# What is expected is the same in all of them.  Before tracking, tables have REPLICA IDENTITY FULL in terminated and
# crashed, DEFAULT in the others.
package Recipes;

use strict;
use warnings;

use Exporter 'import';
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use StreamCdc;
use Test::More;

our @EXPORT = qw(load_recipes run_recipes in_modes once hold go_on kill_in_the_middle);

my $timeout = $PostgreSQL::Test::Utils::timeout_default;

# load_recipes FILES...: in the order of the reports
sub load_recipes
{
	my @recipes;
	for my $file (@_)
	{
		my $list = do $file;
		die "$file: " . ($@ || $! || 'no list') unless ref $list eq 'ARRAY';
		push @recipes, @$list;
	}
	my %seen;
	for my $r (@recipes)
	{
		die "recipe $r->{number} is there twice" if $seen{ $r->{number} }++;
		$r->{track} //= ['t'];
		$r->{fold} //= [ grep { !/[(]/ } @{ $r->{track} } ];
		_place_cuts($r);
	}
	my $number = sub { $_[0]{number} =~ /^(\d+)/ ? $1 : die 'a recipe without number' };
	return sort { $number->($a) <=> $number->($b) || $a->{number} cmp $b->{number} } @recipes;
}

# says after how many steps the worker is killed; takes the marks out
sub _place_cuts
{
	my ($r) = @_;
	my @steps;
	for my $step (@{ $r->{steps} })
	{
		if ($step eq 'cut') { $r->{cut} = @steps }
		elsif ($step eq 'crash') { $r->{crash} = @steps }
		else { push @steps, $step }
	}
	$r->{steps} = \@steps;
	$r->{cut} //= int((@steps + 1) / 2);
	$r->{crash} //= $r->{cut};
}

# ---- sessions ----

sub _open
{
	my ($node, $db) = @_;
	my $session = $node->background_psql($db, on_error_stop => 0, timeout => 4 * $timeout);
	$session->query_safe(q{SET client_min_messages = warning; \set VERBOSITY verbose});
	return $session;
}

sub _close
{
	my ($session) = @_;
	# it may have ended with its server
	eval { $session->quit };
	return;
}

# the session to be used for this step; main sessions are shared, and forget what the one before had set
sub _session
{
	my ($run, $name) = @_;
	if (defined $name)
	{
		my $key = "$run->{schema} $name";
		return $run->{sessions}{$key} //= do
		{
			my $session = _open($run->{node}, $run->{db});
			$session->query_safe(_path($run));
			$session;
		};
	}
	return $run->{sessions}{main} //= _open($run->{node}, $run->{db});
}

sub _path
{
	my ($run) = @_;
	# nobody waits for capture while we hold it
	my $wait = $run->{held} ? 0 : "$timeout s";
	return "SET search_path = $run->{schema}, public; SET streamcdc.read_timeout = '$wait';";
}

sub _enter
{
	my ($run, $recipe) = @_;
	$run->{schema} = "n$recipe->{number}";
	_session($run)->query_safe("DISCARD ALL; SET client_min_messages = warning; " . _path($run));
}

# ---- steps ----

sub _step
{
	my ($run, $state, $step) = @_;
	if (ref $step eq 'CODE')
	{
		$step->($run);
	}
	elsif (ref $step eq 'ARRAY')
	{
		_session($run, $step->[0])->query_safe($step->[1]);
	}
	elsif (ref $step eq 'HASH' && exists $step->{fails})
	{
		my $session = _session($run);
		$session->query($step->{query});
		my $err = $session->{stderr};
		$session->{stderr} = '';
		push @{ $state->{seen} },
		  [ $err =~ /ERROR:  \Q$step->{fails}\E: / && $err =~ $step->{like} ? 'refused' : "not as expected: $err", 'refused', $step->{name} ];
	}
	elsif (ref $step eq 'HASH')
	{
		push @{ $state->{seen} }, [ scalar _session($run)->query_safe($step->{query}), $step->{is}, $step->{name} ]
		  unless $run->{held};
	}
	else
	{
		_session($run)->query_safe($step);
	}
}

# steps FROM (included) to TO (excluded) of each recipe; one that fails is left alone from then on
sub _steps
{
	my ($run, $states, $part) = @_;
	for my $state (@$states)
	{
		my $recipe = $state->{recipe};
		my $cut = $run->{mode} eq 'crashed' ? $recipe->{crash} : $recipe->{cut};
		my ($from, $to) = $part == 1 ? (0, $cut) : ($cut, scalar @{ $recipe->{steps} });

		next if defined $state->{error} || $from >= $to;
		eval {
			_enter($run, $recipe);
			_step($run, $state, $_) for @{ $recipe->{steps} }[ $from .. $to - 1 ];
			1;
		} or _gave_up($run, $state, $@);
	}
}

sub _gave_up
{
	my ($run, $state, $error) = @_;
	$state->{error} = $error;
	# there may be a transaction left open
	_close(delete $run->{sessions}{main}) if $run->{sessions}{main};
}

# ---- what must hold ----

# one test a condition, besides what the recipe says itself
sub _check
{
	my ($run, $state) = @_;
	my $recipe = $state->{recipe};

	if (defined $state->{error})
	{
		fail('its commands');
		diag($state->{error});
		return;
	}
	eval {
		is($_->[0], $_->[1], $_->[2] // 'what is seen on the way') for @{ $state->{seen} };
		_enter($run, $recipe);
		_check_log($run, ref $_ ? $_ : { table => $_ }) for @{ $recipe->{fold} };
		for my $e (@{ $recipe->{expect} // [] })
		{
			my ($query, $rows, $name) = @$e;
			# as another role, perhaps, or with other settings
			_enter($run, $recipe) if $query =~ /\bSET\b/;
			is(scalar _session($run)->query_safe($query), $rows, $name // $query);
			_enter($run, $recipe) if $query =~ /\bSET\b/;
		}
		for my $f (@{ $recipe->{fails} // [] })
		{
			my ($query, $sqlstate, $pattern, $name) = @$f;
			_enter($run, $recipe) if $query =~ /\bSET\b/;
			my $session = _session($run);
			$session->query($query);
			my $err = $session->{stderr};
			$session->{stderr} = '';
			ok($err =~ /ERROR:  \Q$sqlstate\E: / && $err =~ $pattern, $name // $query)
			  or diag("expected ERROR $sqlstate matching $pattern of:\n$query\ngot\n$err");
			_enter($run, $recipe) if $query =~ /\bSET\b/;
		}
		1;
	} or do
	{
		fail('its checks');
		diag($@);
		_gave_up($run, $state, $@);
	};
}

sub _check_log
{
	my ($run, $what) = @_;
	my $table = $what->{table};
	my $session = _session($run);
	my $quoted = $table =~ s/'/''/gr;

	my ($status, $identity) = split /\|/,
	  $session->query_safe("SELECT status, coalesce(cardinality(identity_columns), 0) FROM stream_tables WHERE table_name = '$quoted'");
	is($status, $what->{status} // 'streaming', "status of $table");
	# what is summed up is each row's text, so that no two values that look different are taken for equal
	my @how = grep { $what->{$_} // 1 } $identity ? qw(events changes updates net) : qw(events changes);
	my $folds = join('', map { ", (SELECT concat_ws('/', early, extra, missing) FROM (" . _fold_query($table, $_) . ") AS fold)" } @how);
	is($session->query_safe(<<"SQL"), join('|', 't', ('0/0/0') x @how), "versions of $table are dense, their timestamps increase, and @how fold to it");
SELECT (SELECT bool_and(coalesce(_commit_version = before + 1 AND _commit_timestamp > at, before IS NULL)) FROM (
			SELECT *, lag(_commit_version) OVER w AS before, lag(_commit_timestamp) OVER w AS at FROM stream_versions('$quoted')
			WINDOW w AS (ORDER BY _commit_version)) AS v)$folds
SQL
}

# A fold, as arithmetic on multisets of rows: each image adds or takes away one.  _fold_query TABLE, HOW gives a query with one row
# of three numbers, all 0 if the log is right:
#   steps that take a row away that is not there at that moment; rows too many in the end; rows that are missing
# Rows are compared as text, which every type has, and which tells apart what "=" does not (1.0 and 1.00).
# HOW is one of
#   events   stream_events()
#   changes  stream_changes(), updates as delete and insert
#   updates  stream_changes(), updates as such
#   net      stream_changes(), net changes of the whole history
my %fold_moves = (
	events => sub { return <<"SQL" },
SELECT _commit_version AS v, event_number AS n, -1 AS s, jsonb_populate_record(NULL::$_[0], old_row)::text AS r
FROM stream_events($_[1]) WHERE old_row IS NOT NULL
UNION ALL
SELECT _commit_version, event_number, 1, jsonb_populate_record(NULL::$_[0], new_row)::text
FROM stream_events($_[1]) WHERE new_row IS NOT NULL
SQL
	changes => sub { return _fold_changes($_[0], '') },
	updates => sub { return _fold_changes($_[0], ', compute_updates => true') },
	net => sub { return _fold_changes($_[0], q{, deduplication_mode => 'netChanges'}) });

# no two rows of a result have the same position
sub _fold_changes
{
	my ($table, $options) = @_;
	return <<"SQL";
SELECT _commit_version AS v, row_number() OVER () AS n,
	   CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS s, row_data::text AS r
FROM stream_changes(NULL::$table$options)
SQL
}

sub _fold_query
{
	my ($table, $how) = @_;
	my $literal = q{'} . ($table =~ s/'/''/gr) . q{'};
	my $moves = $fold_moves{$how}->($table, $literal);
	# a tracked parent is its own rows only, a partitioned one those of its partitions
	return <<"SQL";
WITH moves AS MATERIALIZED ($moves),
steps AS (SELECT sum(s) OVER (PARTITION BY r ORDER BY v, n, s ROWS UNBOUNDED PRECEDING) AS there FROM moves),
folded AS (SELECT r, sum(s) AS n FROM moves GROUP BY r),
actual AS (SELECT the_row::text AS r, count(*) AS n FROM $table AS the_row
		   WHERE tableoid = ${literal}::regclass OR 'p' = (SELECT relkind FROM pg_class WHERE oid = ${literal}::regclass) GROUP BY 1),
compared AS (SELECT coalesce(f.n, 0) - coalesce(a.n, 0) AS excess FROM folded AS f FULL JOIN actual AS a USING (r))
SELECT (SELECT count(*) FROM steps WHERE there < 0) AS early, coalesce(sum(greatest(excess, 0)), 0) AS extra,
	   coalesce(sum(greatest(-excess, 0)), 0) AS missing
FROM compared
SQL
}

# ---- the modes ----

sub _roles
{
	my ($node, @recipes) = @_;
	my %roles = map { $_ => 1 } map { @{ $_->{roles} // [] } } @recipes;
	sql($node, join("\n", map {
		"DO \$\$ BEGIN IF to_regrole('$_') IS NULL THEN CREATE ROLE $_; END IF; END \$\$;"
	} sort keys %roles));
}

sub _prepare
{
	my ($run, $state) = @_;
	my $recipe = $state->{recipe};
	my $full = $run->{mode} =~ /terminated|crashed/ && ($recipe->{identity} // 1);

	eval {
		sql($run->{node}, "CREATE SCHEMA n$recipe->{number}; GRANT USAGE ON SCHEMA n$recipe->{number} TO PUBLIC", $run->{db});
		_enter($run, $recipe);
		my $session = _session($run);
		$session->query_safe($recipe->{setup}) if $recipe->{setup};
		for my $call (@{ $recipe->{track} })
		{
			my $text = $call =~ /[(]/ ? $call : "stream_track('" . ($call =~ s/'/''/gr) . "')";
			$session->query_safe("ALTER TABLE $call REPLICA IDENTITY FULL") if $full && $call !~ /[(]/;
			$session->query_safe("SELECT $text");
		}
		1;
	} or _gave_up($run, $state, $@);
}

# run_recipes NODE, MODE, RECIPES...: one subtest each
sub run_recipes
{
	my ($node, $mode, @recipes) = @_;
	my $db = "recipes_$mode";
	my %run = (node => $node, mode => $mode, db => $db, sessions => {}, held => 0);
	my @states = map { { recipe => $_, seen => [] } } @recipes;

	start_extension($node, $db);
	_roles($node, @recipes);
	_prepare(\%run, $_) for @states;
	sync($node, $db);
	if ($mode eq 'plain')
	{
		_steps(\%run, \@states, $_) for 1, 2;
	}
	elsif ($mode eq 'paused')
	{
		# the session that waits for everything before the steps has made sure that the worker is idle
		my $pid = signal_worker($node, 'STOP', 'capture', $db);
		$run{held} = 1;
		_steps(\%run, \@states, $_) for 1, 2;
		kill 'CONT', $pid;
	}
	elsif ($mode eq 'terminated')
	{
		# those that write the log themselves (stream_untrack) would wait for us
		my $holder = _open($node, $db);
		my @free = grep { $_->{recipe}{unheld} } @states;
		_steps(\%run, \@free, 1);
		$holder->query_safe('BEGIN; LOCK TABLE streamcdc.blocks IN SHARE MODE;');
		$run{held} = 1;
		_steps(\%run, [ grep { !$_->{recipe}{unheld} } @states ], 1);
		wait_for_lock_of_worker($node, 'streamcdc.blocks', 'capture', $db);
		my $pid = worker_pid($node, 'capture', $db);
		sql($node, "SELECT pg_terminate_backend($pid)");
		$node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)")
		  or die 'the worker does not end';
		$holder->query_safe('ROLLBACK;');
		_close($holder);
		$run{held} = 0;
		_steps(\%run, \@states, 2);
	}
	elsif ($mode eq 'crashed')
	{
		_steps(\%run, \@states, 1);
		crash_with_worker($node, 'capture', $db);
		_close($_) for values %{ $run{sessions} };
		$run{sessions} = {};
		_steps(\%run, \@states, 2);
	}
	else
	{
		die "there is no mode \"$mode\"";
	}
	$run{held} = 0;

	sync($node, $db);
	for my $state (@states)
	{
		my $recipe = $state->{recipe};
		subtest("$recipe->{number}, $mode: $recipe->{title}", sub { _check(\%run, $state) });
	}
	_close($_) for values %{ $run{sessions} };
	sql($node, "DROP DATABASE $db");
}

# ---- recipes that are written out ----

# STREAMCDC_RECIPES=93,94 runs these only
my %only = map { $_ => 1 } split /,/, $ENV{STREAMCDC_RECIPES} // '';

# in_modes NUMBER, TITLE, CODE: a subtest for each mode, which CODE gets: plain, killed or paused
sub in_modes
{
	my ($number, $title, $code) = @_;
	for my $mode (qw(plain killed paused))
	{
		once($number, "$mode: $title", sub { $code->($mode) }, ', ');
	}
}

# once NUMBER, TITLE, CODE: where the recipe says itself what is killed or held
sub once
{
	my ($number, $title, $code, $between) = @_;
	return if %only && !$only{$number};
	subtest($number . ($between // ': ') . $title, $code);
}

# hold NODE, MODE [, DATABASE]: if the mode is paused, stops the capture worker; returns its pid for go_on
sub hold
{
	my ($node, $mode, $db) = @_;
	return $mode eq 'paused' ? signal_worker($node, 'STOP', 'capture', $db) : ();
}

sub go_on
{
	kill 'CONT', @_ if @_;
	return;
}

# kill_in_the_middle NODE, MODE [, DATABASE]: if the mode is killed, ends the capture worker, and returns when it has ended
sub kill_in_the_middle
{
	my ($node, $mode, $db) = @_;
	return unless $mode eq 'killed';
	my $pid = signal_worker($node, 'TERM', 'capture', $db);
	$node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)") or die 'the worker does not end';
}

1;
