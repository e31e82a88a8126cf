# The package's papers agree with each other.  Needs no server.
use strict;
use warnings;
use FindBin;
use JSON::PP qw(decode_json);
use Test::More;

my $top = "$FindBin::RealBin/../..";

sub slurp
{
	my ($file) = @_;
	open(my $in, '<:raw', "$top/$file") or BAIL_OUT("could not open $file: $!");
	local $/;
	return scalar <$in>;
}

# streamcdc.control, as the server reads it: name = value, quotes optional, doubled inside
my %control;
for my $line (split /\n/, slurp('streamcdc.control'))
{
	next if $line =~ /^\s*(#|$)/;
	if ($line =~ /^\s*(\w+)\s*=\s*(?:'((?:[^']|'')*)'|(\S+))\s*$/)
	{
		$control{$1} = $2 // $3;
	}
	else
	{
		fail("line of streamcdc.control is name = value: $line");
	}
}

my $version = $control{default_version};
like($version, qr/^\d+\.\d+\.\d+$/, 'streamcdc.control has a default_version');
is($control{relocatable}, 'false', 'not relocatable');
is($control{trusted}, 'false', 'not trusted');
is($control{superuser}, 'true', 'created by superusers only');
is($control{module_pathname}, '$libdir/streamcdc', 'module_pathname');
ok(-s "$top/sql/streamcdc--$version.sql", "there is an install script for $version");

my $meta = decode_json(slurp('META.json'));
for my $key (qw(name version abstract maintainer license provides meta-spec))
{
	ok(defined $meta->{$key}, "META.json has the required key \"$key\"");
}
is($meta->{name}, 'streamcdc', 'META.json has the name of the extension');
is($meta->{version}, $version, 'META.json has the version of streamcdc.control');
is($meta->{license}, 'postgresql', 'META.json has the licence');
is($meta->{'meta-spec'}{version}, '1.0.0', 'META.json has the version of its specification');

my $provided = $meta->{provides}{streamcdc};
is($provided->{version}, $version, 'META.json provides the version of streamcdc.control');
ok(-e "$top/$provided->{$_}", "META.json: $_ exists") for qw(file docfile);
is($provided->{file}, "sql/streamcdc--$version.sql", 'META.json: file is the install script');

like(slurp('LICENSE'), qr/Permission to use, copy, modify, and distribute this software/, 'LICENSE is the PostgreSQL licence');
like(slurp('CHANGELOG.md'), qr/^## \Q$version\E\b/m, "CHANGELOG.md has a section for $version");
like(slurp('README.md'), qr/^ *$_$/m, "README.md names \"$_\"") for 'make demo', 'make test';

done_testing();
