# Random histories: table shapes, transactions of several sessions, DDL and
# faults, all from a seed.
#
# It makes one step after another and looks, in the session whose turn it is,
# what tables there are: so most steps have an effect, whatever failed before.
# What it wrote is in the history afterwards, and can be run again without it.
package StreamCdc::Generator;

use strict;
use warnings;

use Digest::MD5 qw(md5_hex);
use JSON::PP;

# What streamcdc records of commands that say nothing in WAL; asked for by the table that each takes.
our %can;
my %takes = (truncate => 'inbox', rewrite => 'inbox', partition => 'members');

# ---- values ----

# Expressions of a bigint, written X.
my %values = (
	'integer' => [ '(X * 7919 % 2147483647)::int', '(ARRAY[2147483647, -2147483648, 0])[1 + X % 3]', '(X % 10)::int' ],
	'smallint' => ['(X * 31 % 32767)::int2'],
	'bigint' => [ 'X * 1000003', '9223372036854775807 - X', '-9223372036854775808 + X' ],
	'boolean' => ['X % 2 = 0'],
	'text' => [
		'md5((X)::text)', q{repeat('x', (X % 4)::int)}, 'repeat(md5((X)::text), 100)', 'noise(X, 75 + (X % 30)::int)', 'noise(X, 3 + (X % 30)::int)',
		q{E'it''s "quoted" \\\\ \\t \\n {,} Grüße 漢字 \\U0001F600 null ' || X}, q{''},
	],
	'character varying(20)' => [ q{'v' || X % 1000000}, q{''} ],
	'character varying(40)' => [q{'w' || X % 1000000}],
	'character(5)' => [ q{left('c' || X % 1000, 5)}, q{''} ],
	'numeric' => [ 'X / 7.0', q{'NaN'::numeric}, '1e100 + X', '-X * 1e-20', q{'Infinity'::numeric}, '0.000', '(X % 100)::numeric(20,5)' ],
	'numeric(12,4)' => ['(X % 1000000) / 3.0'],
	'double precision' => [ 'X / 3.0::float8', q{'NaN'::float8}, q{'-0'::float8}, q{'-Infinity'::float8}, '1e300 * X', '1e-300 * X' ],
	'real' => [ '(X / 3.0)::float4', q{'-0'::float4}, '(1e30 * (X % 1000))::float4' ],
	'date' => [ q{'2000-01-01'::date + (X % 10000)::int}, q{'infinity'::date}, q{'0044-03-15 BC'::date} ],
	'time without time zone' => [q{'00:00'::time + (X % 86400) * interval '1.000001 s'}],
	'time with time zone' => [q{('00:00:00+05:30'::timetz + (X % 86400) * interval '1 s')}],
	'timestamp without time zone' => [ q{'2000-01-01'::timestamp + (X % 1000000) * interval '1.000001 s'}, q{'-infinity'::timestamp} ],
	'timestamp with time zone' => [ q{'2000-01-01 00:00+00'::timestamptz + (X % 1000000) * interval '1.000001 s'}, q{'infinity'::timestamptz}, q{'4000-01-01 BC'::timestamptz} ],
	'interval' => [q{((X % 100) || ' mon -' || (X % 31) || ' days 00:00:01.5')::interval}],
	'uuid' => ['md5((X)::text)::uuid'],
	'bytea' => [ q{decode(md5((X)::text), 'hex')}, q{''::bytea}, q{decode(noise(X, 70), 'hex')}, q{'\x00ff'::bytea} ],
	'json' => [ q{('{"b": ' || X || ',  "a": [1, null, "x"], "b": 2}')::json}, q{'null'::json}, q{to_json(noise(X, 75))}, '(X)::text::json' ],
	'jsonb' => [ q{jsonb_build_object('a', X, 'n', NULL, 'list', jsonb_build_array(X, 'x'))}, q{'null'::jsonb}, q{to_jsonb(noise(X, 75))} ],
	'inet' => [q{'10.0.0.1/8'::inet + X % 65536}],
	'macaddr' => [q{'08:00:2b:01:02:03'::macaddr}],
	'bit(9)' => ['(X % 512)::int::bit(9)'],
	'bit varying' => [ '(X % 16)::int::bit(4)', q{''::varbit} ],
	'integer[]' => [ 'ARRAY[X, NULL, 3]::int[]', q{'{}'::int[]}, q{'[2:3]={1,2}'::int[]}, q{'{{1,2},{3,4}}'::int[]}, 'array_fill((X % 1000)::int, ARRAY[800])' ],
	'text[]' => [ q{ARRAY['a"b', NULL, '', 'NULL', md5((X)::text)]}, q{'{}'::text[]}, 'ARRAY[noise(X, 75)]' ],
	'int4range' => [ 'int4range((X % 1000)::int, (X % 1000 + 5)::int)', q{'empty'::int4range}, q{'(,)'::int4range} ],
	'tstzrange' => [q{tstzrange('2020-01-01 00:00+00', '2020-01-01 00:00+00'::timestamptz + X % 1000 * interval '1 h', '[]')}],
	'nummultirange' => [ 'nummultirange(numrange((X % 100), (X % 100 + 1)), numrange(1000, NULL))', q{'{}'::nummultirange} ],
	'mood' => [q{(ARRAY['sad', 'ok', 'happy']::mood[])[1 + X % 3]}],
	'mood[]' => [q{ARRAY['ok', NULL, 'sad']::mood[]}],
	'posint' => ['(X % 1000000)::int'],
	'label' => [ q{'label ' || X}, 'noise(X, 75)' ],
	'pair' => [ q{ROW(X % 1000, 'b"' || X)::pair}, q{ROW(NULL, NULL)::pair}, q{ROW(1, noise(X, 75))::pair} ],
	'pair[]' => [q{ARRAY[ROW(X % 1000, 'x'), NULL, ROW(NULL, '')]::pair[]}],
	'checked' => [q{ROW(1 + X % 1000, 'ok')::pair}],
	'point' => ['point(X % 1000, 0.1)'],
	'box' => ['box(point(0, 0), point(X % 1000, 1))'],
	'tsvector' => [q{to_tsvector('simple', 'some words ' || X)}],
	'xml' => [q{('<a b="' || X || '">&amp;</a>')::xml}],
	'money' => ['(X % 100000)::int::money'],
	'oid' => ['(X % 4000000)::oid'],
	'regtype' => [q{(ARRAY['int4', 'text', 'bool']::regtype[])[1 + X % 3]}],
	'regclass' => [q{(ARRAY['pg_class', 'pg_type']::regclass[])[1 + X % 2]}],
	'pg_lsn' => [q{'16/B374D848'::pg_lsn + X % 1000}],
	'"char"' => [q{chr(65 + (X % 26)::int)::"char"}],
	'name' => [q{('n' || X)::name}],
	'hstore' => [ q{hstore(ARRAY['k', (X)::text, 'n', NULL])}, q{''::hstore} ],
	'citext' => [q{('Mixed ' || X % 1000)::citext}],
	'ltree' => [q{('top.n' || X % 1000)::ltree}],
);

# Values for keys: another X is another key.
my %keys = (
	'integer' => '(X)::int', 'bigint' => 'X', 'text' => q{'key ' || X}, 'uuid' => 'md5((X)::text)::uuid', 'numeric' => '(X)::numeric / 10',
	'character varying(20)' => q{'k' || X}, 'citext' => q{('Key' || X)::citext}, 'double precision' => '(X)::float8',
	'timestamp with time zone' => q{('2000-01-01 00:00+00'::timestamptz + X * interval '1 s')}, 'bytea' => q{decode(md5((X)::text), 'hex')},
	'pair' => q{ROW(X % 1000, 'k' || X)::pair}, 'label' => q{'l' || X}, 'ltree' => q{('k.n' || X)::ltree},
);

# Keys that are equal, and not the same bytes.
my %equal_keys = (numeric => 'round(K, 4)', citext => 'upper(K::text)::citext');

# Changes of a type that rewrite nothing, and those that do.
my %wider = ('character varying(20)' => 'character varying(40)', 'character varying(40)' => 'text', 'numeric(12,4)' => 'numeric', 'label' => 'text');
my %other_type = ('integer' => 'bigint', 'smallint' => 'integer', 'real' => 'double precision', 'date' => 'timestamp without time zone',
	'boolean' => 'text', 'mood' => 'text', 'character(5)' => 'text', 'json' => 'jsonb', 'bigint' => 'numeric', 'posint' => 'integer');

# ---- chance ----

# a whole number below N; Perl's own rand() is others' too
sub _random
{
	my ($self, $n) = @_;
	{
		# which wraps around
		use integer;
		$self->{state} = $self->{state} * 6364136223846793005 + 1442695040888963407;
	}
	return ($self->{state} >> 33) % $n;
}

sub _chance { my ($self, $percent) = @_; return $self->_random(1000) < 10 * $percent }

sub _one { my ($self, @of) = @_; return $of[ $self->_random(scalar @of) ] }

# one of [ weight, what ], ...
sub _weighted
{
	my ($self, @of) = @_;
	my $sum = 0;
	$sum += $_->[0] for @of;
	my $n = $self->_random($sum);
	for my $choice (@of)
	{
		return $choice->[1] if ($n -= $choice->[0]) < 0;
	}
}

sub _few { my ($self) = @_; return $self->_weighted([ 50, 1 ], [ 30, 2 + $self->_random(4) ], [ 12, 20 ], [ 6, 300 ]) }

# ---- statements ----

sub _value
{
	my ($self, $column, $x) = @_;
	my $known = $values{ $column->{type} };
	return 'NULL' unless $known;
	my $value = $self->_one(@$known);
	# a value of the type's usual size most times
	$value = $known->[0] if $self->_chance(40);
	$value =~ s/\bX\b/($x)/g;
	return $value if $column->{notnull} || $self->_chance(75);
	return "CASE WHEN ($x) % 3 = 0 THEN NULL ELSE $value END";
}

sub _key_value
{
	my ($column, $x) = @_;
	my $value = $keys{ $column->{type} } // return undef;
	$value =~ s/\bX\b/($x)/g;
	return $value;
}

sub _is_key { my ($t, $column) = @_; return grep { $_ eq $column->{name} } @{ $t->{key} ? $t->{key}{columns} : [] } }

# names and expressions for an INSERT of a row made from X; some columns are left to their defaults
sub _insert
{
	my ($self, $t, $x) = @_;
	my (@names, @values);
	for my $column (@{ $t->{columns} // [] })
	{
		next if $column->{generated};
		my $key = _is_key($t, $column);
		next if !$key && !$column->{notnull} && $self->_chance(8);
		push @names, $column->{name};
		push @values, $key ? (_key_value($column, $x) // $self->_value($column, $x)) : $self->_value($column, $x);
	}
	return (\@names, \@values);
}

# N new keys, or some that may be there
sub _numbers
{
	my ($self, $n) = @_;
	if ($self->_chance(15))
	{
		my $a = $self->{number} - $self->_random(30);
		return ($a < 1 ? 1 : $a, ($a < 1 ? 1 : $a) + $n - 1);
	}
	my $a = $self->{number} + 1;
	$self->{number} += $n;
	return ($a, $a + $n - 1);
}

# a number for each row
my $of_row = '(ctid::text::point)[0]::bigint * 1000 + (ctid::text::point)[1]::bigint';

sub _some_rows
{
	my ($self, $t, $n) = @_;
	my $offset = $self->_weighted([ 50, 0 ], [ 30, $self->_random(5) ], [ 20, $self->_random(100) ]);
	my $order = $self->_chance(30) ? ' DESC' : '';
	return "(tableoid, ctid) IN (SELECT tableoid, ctid FROM $t->{name} ORDER BY tableoid$order, ctid$order OFFSET $offset LIMIT $n FOR UPDATE SKIP LOCKED)";
}

sub _plain_columns
{
	my ($t) = @_;
	return grep { !$_->{generated} && !_is_key($t, $_) } @{ $t->{columns} // [] };
}

sub _dml
{
	my ($self, $t) = @_;
	my $n = $self->_few;
	my @columns = _plain_columns($t);
	my $key = $t->{key} && $t->{key}{columns}[0];
	my ($key_column) = $key ? grep { $_->{name} eq $key } @{ $t->{columns} } : ();
	my $full = ($self->{rows}{ $t->{oid} } // 0) > ($self->{big} ? 10000 : 3000);
	my $what = $self->_weighted([ $full ? 5 : 30, 'insert' ], [ 25, 'update' ], [ $full ? 30 : 12, 'delete' ], [ 6, 'upsert' ], [ 4, 'merge' ], [ 3, 'copy' ],
		[ 4, 'noop' ], [ 4, 'key' ], [ 3, 'equal' ], [ 3, 'swap' ], [ 4, 'again' ], [ 2, 'exceptions' ], [ $full ? 0 : $self->{big} ? 12 : 2, 'big' ], [ 2, 'several' ]);
	my ($a, $b) = $self->_numbers($n);
	my $from = "FROM generate_series(${a}::bigint, $b) AS i";

	if ($what eq 'big')
	{
		($a, $b) = $self->_numbers($n = $self->{big} ? $self->_one(3000, 8000) : $self->_one(300, 1000, 3000));
		$from = "FROM generate_series(${a}::bigint, $b) AS i";
		$what = 'insert';
	}
	# nothing to set, or nothing to find a row by
	$what = 'insert' if $what =~ /^(update|noop|several)$/ && !@columns || $what =~ /^(upsert|merge|key|equal|swap)$/ && !($key_column && $keys{ $key_column->{type} });
	if ($what eq 'delete')
	{
		$self->{rows}{ $t->{oid} } = 0 if $full;
		return "DELETE FROM $t->{name} WHERE " . $self->_some_rows($t, $full ? 100000 : $n);
	}
	my $set = sub { my ($x) = @_; join(', ', map { "$_->{name} = " . ($self->_chance(6) ? 'DEFAULT' : $self->_value($_, $x)) } grep { $self->_chance(100 / @columns + 10) } @columns) || 'x' };
	if ($what eq 'update')
	{
		my $column = $self->_one(@columns);
		my $some = $set->("$of_row + $a");
		$some = "$column->{name} = " . $self->_value($column, "$of_row + $a") if $some eq 'x';
		return "UPDATE $t->{name} SET $some WHERE " . $self->_some_rows($t, $n);
	}
	if ($what eq 'noop')
	{
		my $column = $self->_one(@columns);
		return "UPDATE $t->{name} SET $column->{name} = $column->{name} WHERE " . $self->_some_rows($t, $n);
	}
	if ($what eq 'several')
	{
		my $column = $self->_one(@columns);
		my $where = $self->_some_rows($t, $n);
		return join('; ', map { "UPDATE $t->{name} SET $column->{name} = " . $self->_value($column, $_) . " WHERE $where" } $a, $a + 1, $a);
	}
	if ($what eq 'key')
	{
		my $base = $self->{number} += 100000;
		return "UPDATE $t->{name} SET $key = " . _key_value($key_column, "$of_row + $base") . ' WHERE ' . $self->_some_rows($t, $n);
	}
	if ($what eq 'equal')
	{
		my $same = $equal_keys{ $key_column->{type} } // 'K';
		$same =~ s/\bK\b/$key/g;
		return "UPDATE $t->{name} SET $key = $same WHERE " . $self->_some_rows($t, $n);
	}
	if ($what eq 'swap')
	{
		my $offset = $self->_random(4);
		my $rows = "FROM (SELECT $key AS k FROM $t->{name} ORDER BY tableoid, ctid OFFSET $offset LIMIT 2 FOR UPDATE SKIP LOCKED) AS s";
		return "WITH p AS (SELECT array_agg(k) AS k $rows) UPDATE $t->{name} AS w SET $key = CASE WHEN w.$key = p.k[1] THEN p.k[2] ELSE p.k[1] END FROM p WHERE w.$key = ANY (p.k)"
		  if $t->{key}{deferrable};
		my $fresh = _key_value($key_column, ++$self->{number});
		my $set = "UPDATE $t->{name} SET $key =";
		return "DO \$swap\$DECLARE p $key_column->{type}\[]; BEGIN SELECT array_agg(k) INTO p $rows; IF cardinality(p) = 2 THEN "
		  . "$set $fresh WHERE $key = p[1]; $set p[1] WHERE $key = p[2]; $set p[2] WHERE $key = $fresh; END IF; END\$swap\$";
	}
	my ($names, $values) = $self->_insert($t, 'i');
	my $list = join(', ', @$names);
	if ($what eq 'again')
	{
		return "WITH gone AS (DELETE FROM $t->{name} WHERE " . $self->_some_rows($t, $n) . " RETURNING $list) INSERT INTO $t->{name} ($list) SELECT * FROM gone"
		  if @$names;
	}
	$self->{rows}{ $t->{oid} } += $b - $a + 1;
	return join('; ', ("INSERT INTO $t->{name} DEFAULT VALUES") x ($n > 5 ? 5 : $n)) unless @$names;
	my $exprs = join(', ', @$values);
	if ($what eq 'merge')
	{
		my $update = @columns ? 'WHEN MATCHED THEN UPDATE SET ' . (map { "$_->{name} = " . $self->_value($_, 's.i') } $self->_one(@columns))[0] : '';
		my $match = _key_value($key_column, 's.i');
		$exprs =~ s/\(i\)/(s.i)/g;
		return "MERGE INTO $t->{name} AS w USING (SELECT i FROM generate_series(@{[ $a - 5 ]}::bigint, $b) AS i) AS s ON w.$key = $match "
		  . "WHEN MATCHED AND s.i % 3 = 0 THEN DELETE $update WHEN NOT MATCHED THEN INSERT ($list) VALUES ($exprs)";
	}
	if ($what eq 'copy')
	{
		my $file = "\@DIR\@/copy" . ++$self->{files};
		return "COPY (SELECT $exprs $from) TO '$file'; COPY $t->{name} ($list) FROM '$file'";
	}
	if ($what eq 'exceptions')
	{
		$b = $a + ($self->_chance(20) ? 300 : 10);
		$self->{number} = $b if $b > $self->{number};
		return "DO \$loop\$BEGIN FOR k IN $a .. $b LOOP BEGIN INSERT INTO $t->{name} ($list) SELECT $exprs FROM (SELECT k::bigint AS i) AS one; IF k % 4 = 0 THEN RAISE EXCEPTION 'x'; END IF; "
		  . "EXCEPTION WHEN raise_exception OR unique_violation THEN NULL; END; END LOOP; END\$loop\$";
	}
	my $conflict = '';
	if ($t->{key} && ($what eq 'upsert' || $self->_chance(10)) && !$t->{key}{deferrable})
	{
		$conflict = ' ON CONFLICT DO NOTHING';
		my @to_set = grep { $_->{name} ne $key } @columns;
		$conflict = ' ON CONFLICT (' . join(', ', @{ $t->{key}{columns} }) . ") DO UPDATE SET $to_set[0]{name} = "
		  . ($self->_chance(50) ? "EXCLUDED.$to_set[0]{name}" : $self->_value($to_set[0], $a))
		  if @to_set && ($what eq 'upsert' || $self->_chance(50));
	}
	return "INSERT INTO $t->{name} ($list) SELECT $exprs $from$conflict";
}

# ---- tables ----

sub _name { my ($t) = @_; return $t->{name} =~ s/^.*\.//r }

# a table as new: SQL, one command after another
sub _create
{
	my ($self, $name) = @_;
	my @types = grep { !($_ eq 'checked' || $_ eq 'posint') || $self->_chance(50) } sort keys %values;
	my $n = $self->_weighted([ 4, 0 ], [ 10, 1 ], [ 60, 2 + $self->_random(7) ], [ 20, 8 + $self->_random(15) ], [ 6, 30 + $self->_random(31) ]);
	my @columns = map { { name => "c$_", type => $self->_one(@types) } } 1 .. $n;
	my $kind = $n == 0 ? 'none' : $self->_weighted([ 20, 'none' ], [ 38, 'primary' ], [ 14, 'composite' ], [ 10, 'deferrable' ], [ 12, 'unique' ], [ 6, 'identity' ]);
	$kind = 'primary' if $kind eq 'composite' && $n < 2;
	my @key = map { $columns[ $self->_chance(70) ? $_ : $n - 1 - $_ ] } $kind eq 'composite' ? (0, 1) : $kind eq 'none' ? () : (0);
	@key = @columns[ 0, 1 ] if $kind eq 'composite' && $key[0] == $key[1];
	my %in_key;
	for my $column (@key)
	{
		$column->{type} = $kind eq 'identity' ? 'integer' : $self->_one(sort keys %keys);
		$in_key{ $column->{name} } = 1;
	}
	for my $column (@columns)
	{
		$column->{text} = "$column->{name} $column->{type}";
		if ($kind eq 'identity' && $in_key{ $column->{name} }) { $column->{text} .= ' GENERATED BY DEFAULT AS IDENTITY' }
		elsif ($in_key{ $column->{name} }) { $column->{text} .= ' NOT NULL' }
		elsif ($self->_chance(10)) { $column->{text} .= ' DEFAULT ' . $self->_value({ %$column, notnull => 1 }, $self->_random(100)) }
		elsif ($self->_chance(6)) { $column->{text} .= ' NOT NULL' }
	}
	my $keys = join(', ', map { $_->{name} } @key);
	my @parts = map { $_->{text} } @columns;
	my ($number) = grep { $_->{type} eq 'integer' && !$in_key{ $_->{name} } } @columns;
	push @parts, "g int GENERATED ALWAYS AS ($number->{name} / 2) STORED" if $number && $self->_chance(40);
	push @parts, "PRIMARY KEY ($keys)" . ($kind eq 'deferrable' ? ' DEFERRABLE' . ($self->_chance(50) ? ' INITIALLY DEFERRED' : '') : '') if @key && $kind ne 'unique';
	my $partition = '';
	if ($can{partition} && $n > 0 && $self->_chance(25))
	{
		# by hash, which takes any row: ranges come with keys of numbers
		my $by = @key ? $key[-1] : undef;
		$partition = " PARTITION BY HASH ($by->{name})" if $by && $kind ne 'deferrable' && $by->{type} !~ /^(pair|label|ltree)$/;
	}
	my @sql = ("CREATE TABLE $name (" . join(', ', @parts) . ")$partition");
	push @sql, map { "CREATE TABLE ${name}_p" . ++$self->{names} . " PARTITION OF $name FOR VALUES WITH (MODULUS 3, REMAINDER $_)" } 0 .. 2 if $partition;
	push @sql, "CREATE UNIQUE INDEX ${name}_u" . ++$self->{names} . " ON $name ($keys)" if $kind eq 'unique';
	for my $column (grep { $_->{type} =~ /^(text|bytea|jsonb?|label)/ } @columns)
	{
		push @sql, "ALTER TABLE $name ALTER COLUMN $column->{name} SET STORAGE " . $self->_one('EXTERNAL', 'MAIN') if $self->_chance(40);
	}
	return join('; ', @sql);
}

sub _track
{
	my ($self, $t) = @_;
	my $more = '';
	if ($t->{key} && !$t->{key}{primary}) { $more = ", identity_columns => '{" . join(',', @{ $t->{key}{columns} }) . "}'" }
	# without a baseline nothing is folded; versions begin where the slot does, so there has to be one
	$more .= ', baseline => false' if $self->_chance(4) && grep { $_->{tracked} } @{ $self->{tables} };
	return "\@track($t->{name}$more)";
}

# SQL whose changes WAL does not tell
sub _special
{
	my ($self, $t, $in_transaction, $sql) = @_;
	$sql .= "; \@special($t->{name})";
	return $in_transaction ? $sql : "BEGIN; $sql; COMMIT";
}

# DDL on a table; what cannot be in a transaction is asked for by [ SQL ]
sub _ddl
{
	my ($self, $t, $in_transaction) = @_;
	my @columns = @{ $t->{columns} // [] };
	my @plain = _plain_columns($t);
	my $name = $t->{name};
	my $what = $self->_weighted([ 16, 'add' ], [ 8, 'drop' ], [ 6, 'rename' ], [ 4, 'rename table' ], [ 2, 'schema' ], [ 3, 'storage' ], [ 3, 'comment' ],
		[ 3, 'index' ], [ 2, 'key' ], [ 2, 'drop key' ], [ 3, 'vacuum' ], [ 3, 'again' ], [ 5, 'track' ], [ 3, 'default' ], [ 2, 'null' ], [ 4, 'wider' ], [ 1, 'enum' ],
		[ $can{truncate} ? 6 : 0, 'truncate' ], [ $can{rewrite} ? 8 : 0, 'rewrite' ], [ $can{partition} && $t->{kind} eq 'p' ? 12 : 0, 'partition' ]);
	my $fresh = 'n' . ++$self->{names};

	if ($what eq 'track')
	{
		return $self->_track($t) unless $t->{tracked};
		return $self->_weighted([ 1, "\@untrack($name)" ], [ 3, "\@untrack($name); " . $self->_track({ %$t, tracked => 0 }) ]);
	}
	if ($what eq 'add')
	{
		my $type = $self->_one(grep { $can{rewrite} || !/^(checked|posint)$/ } sort keys %values);
		# a domain's constraint makes it a rewrite
		return $self->_special($t, $in_transaction, "ALTER TABLE $name ADD COLUMN $fresh $type") if $type =~ /^(checked|posint)$/;
		my $default = $self->_chance(60) ? ' DEFAULT ' . $self->_value({ type => $type, notnull => 1 }, $self->_random(100)) . ($self->_chance(30) ? ' NOT NULL' : '') : '';
		return "ALTER TABLE $name ADD COLUMN $fresh $type$default";
	}
	if ($what eq 'truncate') { return $self->_special($t, $in_transaction, "TRUNCATE $name" . $self->_one('', ' RESTART IDENTITY', ' CASCADE')) }
	if ($what eq 'again') { return "\@drop($name); " . $self->_create($name =~ /(t\d+)/ ? $1 : die $name) }
	if ($what eq 'rename table') { return "ALTER TABLE $name RENAME TO " . (_name($t) =~ /^(t\d+)/)[0] . "_$fresh" }
	if ($what eq 'schema') { return "ALTER TABLE $name SET SCHEMA " . ($name =~ /^other\./ ? 'public' : 'other') }
	if ($what eq 'comment') { return "COMMENT ON TABLE $name IS '$fresh'" }
	if ($what eq 'enum') { return "ALTER TYPE mood ADD VALUE '$fresh'" }
	if ($what eq 'vacuum')
	{
		return "ANALYZE $name" if $in_transaction;
		return $self->_one("VACUUM FULL $name", "VACUUM $name", $t->{key} ? "CLUSTER $name USING $t->{key}{index}" : "VACUUM FULL $name");
	}
	if ($what eq 'drop key')
	{
		return "SELECT 1" unless $t->{key};
		return $t->{key}{constraint} ? "ALTER TABLE $name DROP CONSTRAINT $t->{key}{constraint}" : "DROP INDEX $t->{key}{index}";
	}
	if ($what eq 'partition')
	{
		my $part = $self->_one(@{ $t->{partitions} // [] });
		return 'SELECT 1' unless $part;
		my ($remainder) = $part->{bound} =~ /remainder (\d+)/i;
		return 'SELECT 1' unless defined $remainder;
		my $values = "FOR VALUES WITH (MODULUS 3, REMAINDER $remainder)";
		my ($logical) = _name($t) =~ /^(t\d+)/;
		my $new = "${logical}_p$fresh";
		my $detach = "ALTER TABLE $name DETACH PARTITION $part->{name}";
		# one that is gone is another table, also for the twin
		my $away = 't' . ++$self->{tables_made};
		return $self->_special($t, $in_transaction, $self->_weighted(
			[ 3, "$detach; ALTER TABLE $part->{name} RENAME TO $away; CREATE TABLE $new PARTITION OF $name $values" ],
			[ 3, "$detach; ALTER TABLE $name ATTACH PARTITION $part->{name} $values" ],
			[ 2, "DROP TABLE $part->{name}; CREATE TABLE $new PARTITION OF $name $values" ],
			[ 3, "CREATE TABLE $new (LIKE $name INCLUDING ALL); INSERT INTO $new SELECT * FROM $part->{name}; DROP TABLE $part->{name}; ALTER TABLE $name ATTACH PARTITION $new $values" ],
			[ 2, "TRUNCATE $part->{name}" ]));
	}
	my $column = @plain ? $self->_one(@plain) : $columns[0] // return "COMMENT ON TABLE $name IS NULL";
	if ($what eq 'rewrite')
	{
		my $to = $other_type{ $column->{type} };
		my $using = $column->{type} eq 'json' ? " USING $column->{name}::text::jsonb" : '';
		return $self->_special($t, $in_transaction, "ALTER TABLE $name ALTER COLUMN $column->{name} TYPE $to$using") if $to;
		return $self->_special($t, $in_transaction, "ALTER TABLE $name ADD COLUMN $fresh " . $self->_one('int DEFAULT (random() * 100)::int', 'uuid DEFAULT gen_random_uuid()',
			'serial', 'posint DEFAULT 5', 'int GENERATED BY DEFAULT AS IDENTITY'));
	}
	if ($what eq 'drop') { return "ALTER TABLE $name DROP COLUMN " . ($self->_chance(8) ? $self->_one(@columns) : $column)->{name} . ' CASCADE' }
	if ($what eq 'rename') { my $of = $self->_one(grep { 1 } @columns); return "ALTER TABLE $name RENAME COLUMN $of->{name} TO $fresh" }
	if ($what eq 'storage') { return "ALTER TABLE $name ALTER COLUMN $column->{name} SET STORAGE " . $self->_one(qw(PLAIN EXTERNAL EXTENDED MAIN)) }
	if ($what eq 'index') { return $self->_chance(30) && $t->{indexes} ? "DROP INDEX " . $self->_one(@{ $t->{indexes} }) : "CREATE INDEX ON $name (($column->{name} IS NULL))" }
	if ($what eq 'default') { return "ALTER TABLE $name ALTER COLUMN $column->{name} " . $self->_one('DROP DEFAULT', 'SET DEFAULT ' . $self->_value({ %$column, notnull => 1 }, 7)) }
	if ($what eq 'null') { return "ALTER TABLE $name ALTER COLUMN $column->{name} " . $self->_one('SET', 'DROP') . ' NOT NULL' }
	if ($what eq 'wider')
	{
		my ($narrow) = grep { $wider{ $_->{type} } } @columns;
		return $narrow ? "ALTER TABLE $name ALTER COLUMN $narrow->{name} TYPE $wider{ $narrow->{type} }" : "ALTER TABLE $name ALTER COLUMN $column->{name} SET STATISTICS 10";
	}
	# a key that is new; the rows may not allow it
	return "ALTER TABLE $name ADD COLUMN $fresh int; UPDATE $name SET $fresh = $of_row; ALTER TABLE $name ADD PRIMARY KEY ($fresh)" if !$t->{key} && $t->{kind} eq 'r';
	return "ALTER TABLE $name SET (fillfactor = 70)";
}

my $look = <<'SQL';
SELECT coalesce(json_agg(json_build_object('oid', c.oid::bigint, 'name', CASE relnamespace WHEN 'other'::regnamespace THEN 'other.' ELSE '' END || relname, 'kind', relkind,
	'tracked', EXISTS (SELECT FROM streamcdc.registry AS r WHERE r.relid = c.oid),
	'columns', (SELECT json_agg(json_build_object('name', attname, 'type', format_type(atttypid, atttypmod), 'generated', attgenerated <> '', 'notnull', attnotnull) ORDER BY attnum)
				FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
	'key', (SELECT json_build_object('index', ic.relname, 'primary', indisprimary, 'deferrable', NOT indimmediate, 'constraint', (SELECT conname FROM pg_constraint WHERE conindid = indexrelid LIMIT 1),
									 'columns', (SELECT json_agg(attname ORDER BY n) FROM unnest(indkey) WITH ORDINALITY AS k (num, n) JOIN pg_attribute ON attrelid = indrelid AND attnum = num))
			FROM pg_index JOIN pg_class AS ic ON ic.oid = indexrelid WHERE indrelid = c.oid AND indisunique ORDER BY indisprimary DESC, indexrelid LIMIT 1),
	'indexes', (SELECT json_agg(CASE ic.relnamespace WHEN 'other'::regnamespace THEN 'other.' ELSE '' END || ic.relname ORDER BY indexrelid)
				FROM pg_index JOIN pg_class AS ic ON ic.oid = indexrelid WHERE indrelid = c.oid AND NOT indisunique),
	'partitions', (SELECT json_agg(json_build_object('name', CASE p.relnamespace WHEN 'other'::regnamespace THEN 'other.' ELSE '' END || p.relname, 'bound', pg_get_expr(p.relpartbound, p.oid)) ORDER BY p.oid)
				   FROM pg_inherits JOIN pg_class AS p ON p.oid = inhrelid WHERE inhparent = c.oid)) ORDER BY c.oid), '[]')
FROM pg_class AS c WHERE relkind IN ('r', 'p') AND relname ~ '^t\d' AND NOT relispartition
SQL
$look =~ s/\s+/ /g;

# ---- sessions ----

# new HISTORY, SEED, sessions => N
sub new
{
	my ($class, $history, $seed, %params) = @_;
	return bless {
		history => $history, state => hex(substr(md5_hex($seed), 0, 15)), sessions => $params{sessions} // 4, number => 0, names => 0, files => 0, rows => {}, tables => [], prepared => [],
		in => {}, json => JSON::PP->new->utf8(0)
	}, $class;
}

# takes a step; (output, errors)
sub _step
{
	my ($self, $step) = @_;
	return $self->{history}->step($step);
}

# every session's transaction is gone
sub _forget { my ($self) = @_; $self->{in} = {} }

# tables as this session sees them
sub _look
{
	my ($self, $who) = @_;
	my ($out, $err) = $self->{history}->look($who, $look);
	return () unless defined $out && $out =~ /^\[/;
	return @{ $self->{tables} = $self->{json}->decode($out) };
}

# a table for DDL or DML that nobody else's open transaction keeps, most times
sub _choose
{
	my ($self, $who, $for_ddl, @tables) = @_;
	my @free = grep {
		my $t = $_;
		!grep { my $used = $self->{in}{$_}{used}{ $t->{oid} } // 0; $_ ne $who && $used && ($for_ddl || $used == 2) } keys %{ $self->{in} }
	} @tables;
	@free = @tables if $self->_chance(3);
	return undef unless @free;
	my $t = $self->_one(@free);
	# those without a stream are less interesting
	$t = $self->_one(@free) unless $t->{tracked};
	$self->{in}{$who}{used}{ $t->{oid} } = $for_ddl ? 2 : $self->{in}{$who}{used}{ $t->{oid} } || 1 if $self->{in}{$who};
	return $t;
}

sub _faults
{
	my ($self) = @_;
	my $what = $self->_weighted([ 5, 'terminate capture' ], [ 2, 'terminate baseline' ], [ 2, 'kill capture' ], [ 1, 'kill baseline' ], [ 2, 'crash' ]);
	$self->_step("* $what");
	# what was prepared is still there
	$self->_forget if $what =~ /^(kill|crash)/;
}

# a transaction that outgrows capture's memory, so that its first part is decoded while it runs; what comes after that may be rolled back
sub _outgrow
{
	my ($self, $who, @tables) = @_;
	my $in = $self->{in}{$who};
	my ($t) = grep { !$_->{key} && $_->{tracked} && grep { $_->{name} eq 'w' } @{ $_->{columns} // [] } } @tables or return 0;
	my $run = sub {
		my (undef, $err) = $self->_step("$who $_[0]");
		$in->{aborted} = 1 if $err =~ /ERROR|FATAL/;
		return !$in->{aborted};
	};
	return 0 if grep { ($self->{in}{$_}{used}{ $t->{oid} } // 0) == 2 && $_ ne $who } keys %{ $self->{in} };
	$in->{used}{ $t->{oid} } ||= 1;
	for my $part (1 .. 3 + $self->_random(3))
	{
		if ($part > 1 && $self->_chance(70))
		{
			push @{ $in->{savepoints} }, 's' . (@{ $in->{savepoints} } + 1);
			$run->("SAVEPOINT $in->{savepoints}[-1]");
		}
		my ($a, $b) = $self->_numbers($self->_one(50, 1200, 2500, 2500));
		$run->($self->_chance(75) ? "INSERT INTO $t->{name} (w) SELECT noise(i, 60) FROM generate_series(${a}::bigint, $b) AS i"
			: "UPDATE $t->{name} SET w = noise($of_row + $a, 55) WHERE " . $self->_some_rows($t, 1500)) or return 1;
		$self->_step('* sync');
		if (@{ $in->{savepoints} } && $self->_chance(40))
		{
			$run->("ROLLBACK TO $in->{savepoints}[-1]");
		}
	}
	return 1;
}

sub _turn
{
	my ($self) = @_;
	return $self->_step('* copy') if $self->_chance(3);
	return $self->_step('* check') if $self->_chance(0.8);
	return $self->_faults if $self->_chance(1.5);

	my $who = 1 + $self->_random($self->{sessions});
	my $in = $self->{in}{$who};
	if (!$in && @{ $self->{prepared} } && $self->_chance(25))
	{
		my $gid = splice(@{ $self->{prepared} }, $self->_random(scalar @{ $self->{prepared} }), 1);
		$self->_step("$who " . $self->_one('COMMIT', 'COMMIT', 'ROLLBACK') . " PREPARED '$gid'");
		delete $self->{in}{"prepared $gid"};
		return;
	}
	if (!$in && $self->_chance(55))
	{
		$self->{in}{$who} = { savepoints => [], aborted => 0, used => {} };
		my $level = $self->_one('', '', '', ' ISOLATION LEVEL REPEATABLE READ', ' ISOLATION LEVEL SERIALIZABLE');
		$self->_step("$who BEGIN$level" . ($self->_chance(15) ? '; SET LOCAL synchronous_commit = off' : ''));
		return;
	}
	if ($in)
	{
		my $savepoints = $in->{savepoints};
		if ($in->{aborted} || $self->_chance(8))
		{
			if (@$savepoints && $self->_chance(75))
			{
				my $n = $self->_random(scalar @$savepoints);
				$self->_step("$who ROLLBACK TO $savepoints->[$n]");
				$#$savepoints = $n;
				$in->{aborted} = 0;
				return;
			}
			if ($in->{aborted} || $self->_chance(20))
			{
				$self->_step("$who ROLLBACK");
				delete $self->{in}{$who};
				return;
			}
		}
		if ($self->_chance(12))
		{
			# the same name again is allowed, and hides the one before
			push @$savepoints, $self->_chance(10) && @$savepoints ? $savepoints->[-1] : 's' . (@$savepoints + 1);
			$self->_step("$who SAVEPOINT $savepoints->[-1]");
			return;
		}
		if (@$savepoints && $self->_chance(8))
		{
			my $n = $self->_random(scalar @$savepoints);
			$self->_step("$who RELEASE $savepoints->[$n]");
			# by name, the last one of it
			$n = (grep { $savepoints->[$_] eq $savepoints->[$n] } 0 .. $#$savepoints)[-1];
			$#$savepoints = $n - 1;
			return;
		}
		if ($self->_chance($self->{big} ? 7 : 14))
		{
			if ($self->_chance(20))
			{
				my $gid = 'g' . ++$self->{names};
				my (undef, $err) = $self->_step("$who PREPARE TRANSACTION '$gid'");
				$self->{in}{"prepared $gid"} = $in if $err !~ /ERROR/;
				push @{ $self->{prepared} }, $gid if $err !~ /ERROR/;
			}
			else { $self->_step("$who COMMIT") }
			delete $self->{in}{$who};
			return;
		}
		# what there is of big transactions is decoded then
		return $self->_step('* sync') if $self->_chance($self->{big} ? 8 : 2);
	}

	my @tables = $self->_look($who);
	return if $in && $self->{big} && $self->_chance(12) && $self->_outgrow($who, @tables);
	my $for_ddl = $self->_chance(20);
	my $new = @tables < 2 || @tables < 7 && $self->_chance(1);
	my $t = $new ? undef : $self->_choose($who, $for_ddl, @tables);
	my $sql;
	if ($t) { $sql = $for_ddl ? $self->_ddl($t, $in) : $self->_dml($t) }
	elsif ($new) { $sql = $self->_create('t' . ++$self->{tables_made}) }
	else { return }
	my $async = !$in && $self->_chance(4) ? '&' : '';
	my (undef, $err) = $self->_step("$who$async $sql");
	push @{ $self->{failed} }, "$sql\n$err" if $err =~ /ERROR/;
	$in->{aborted} = 1 if $in && $err =~ /ERROR|FATAL/;
	$self->{taken}++;
	$self->{errors}++ if $err =~ /ERROR/;
}

# run STEPS: takes about so many steps
sub run
{
	my ($self, $steps) = @_;
	my $history = $self->{history};
	$can{$_} //= $history->ask("SELECT to_regclass('streamcdc.$takes{$_}') IS NOT NULL") eq 't' ? 1 : 0 for sort keys %takes;
	# some are about transactions that are decoded while they run
	$self->{big} = $self->_chance(15);
	$self->_step("* set streamcdc.capture_memory = '4MB'") if $self->{big} || $self->_chance(50);
	for my $n (1 .. ($self->{big} ? 2 : 2 + $self->_random(4)))
	{
		my $name = 't' . ++$self->{tables_made};
		$self->_step("1 " . $self->_create($name));
		my ($t) = grep { $_->{name} eq $name } $self->_look(1) or next;
		$self->_step('1 ' . $self->_dml($t)) for 1 .. $self->_random(4);
		$self->_step('1 ' . $self->_track($t)) if $n == 1 || $self->_chance(85);
	}
	if ($self->{big})
	{
		$self->_step("1 $_") for 'CREATE TABLE t' . ++$self->{tables_made} . ' (w text)', "\@track(t$self->{tables_made})";
	}
	# else the slot may have to wait for whoever comes first
	$self->_step('* sync') if $self->_chance(80);
	$self->_turn while @{ $history->{steps} } < $steps && !@{ $history->{differences} };
}

1;
