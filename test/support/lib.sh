# shellcheck shell=bash
# What the scripts of the build, the demo and the tests have in common.  To be sourced; sets:
#   top        the root of the checkout
#   PG_CONFIG  exported, the pg_config of PostgreSQL 15
# Servers live below /tmp whatever TMPDIR says: another user has to get there, and a socket's path must be short.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
support=$top/test/support

# prints a message to standard error, and gives up
die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# find_postgres: finds the server's programs; to be called once they are installed
find_postgres() {
	if [ -z "${PG_CONFIG:-}" ] || ! command -v "$PG_CONFIG" >/dev/null; then
		PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config
		command -v "$PG_CONFIG" >/dev/null || PG_CONFIG=pg_config
	fi
	command -v "$PG_CONFIG" >/dev/null || die "pg_config was not found; put that of PostgreSQL 15 into PG_CONFIG"
	export PG_CONFIG
	bindir=$("$PG_CONFIG" --bindir)
	[ -x "$bindir/initdb" ] || die "there is no server in $bindir; put the pg_config of a PostgreSQL 15 server into PG_CONFIG"
	# the server's own psql and pgbench before any wrapper that chooses among versions
	export PATH="$bindir:$PATH"
}

# build_and_install: as root, or through sudo where the server's folders are not ours to write to
build_and_install() {
	local jobs as_root=()
	jobs=$(nproc 2>/dev/null || echo 2)
	make -C "$top" --no-print-directory -s -j "$jobs" all
	if [ ! -w "$("$PG_CONFIG" --pkglibdir)" ] || [ ! -w "$("$PG_CONFIG" --sharedir)/extension" ]; then
		command -v sudo >/dev/null || die "cannot write to $("$PG_CONFIG" --pkglibdir); run this as root, or install sudo"
		as_root=(sudo)
	fi
	# PG_CONFIG is repeated since sudo drops the environment
	"${as_root[@]}" make -C "$top" --no-print-directory -s install PG_CONFIG="$PG_CONFIG" >/dev/null
}

# new_server_directory NAME: makes a private folder for the user that servers run as, prints its path
new_server_directory() {
	local dir
	dir=$(mktemp -d "/tmp/streamcdc-$1.XXXXXX")
	if [ "$(id -u)" -eq 0 ]; then
		chown "$("$support/asuser" id -un):" "$dir"
	fi
	echo "$dir"
}

# start_server DIR [SETTING...]: makes a cluster DIR/data and starts it with its socket in DIR, without TCP.
# Its superuser is called like the caller, so that psql connects without more ado.
start_server() {
	local dir=$1 setting
	shift
	# locale and encoding are given, since a bare machine may have none; nothing is lost if it crashes before it is up
	(cd "$dir" && "$support/asuser" initdb -D "$dir/data" -U "$(id -un)" --auth=trust --encoding=UTF8 --locale=C.UTF-8 \
		--no-sync --no-instructions >"$dir/initdb.log" 2>&1) || { cat "$dir/initdb.log" >&2; die "initdb failed"; }
	{
		cat "$support/postgresql.conf"
		printf "listen_addresses = ''\nunix_socket_directories = '%s'\nport = 5432\n" "$dir"
		for setting in "$@"; do printf '%s\n' "$setting"; done
	} >>"$dir/data/postgresql.conf"
	(cd "$dir" && "$support/asuser" pg_ctl -D "$dir/data" -l "$dir/server.log" -w -t 60 start >"$dir/pg_ctl.log" 2>&1) || {
		cat "$dir/pg_ctl.log" >&2
		[ ! -f "$dir/server.log" ] || tail -n 20 "$dir/server.log" >&2
		die "the server did not start"
	}
}

# use_server DIR: from here on psql and its like talk to the server of that folder
use_server() {
	export PGHOST=$1 PGPORT=5432
	unset PGDATABASE PGUSER PGSERVICE PGOPTIONS PGHOSTADDR
}

# stop_server DATADIR [MODE]: stops the server of this data directory, if it runs, and no other
stop_server() {
	[ -f "$1/postmaster.pid" ] || return 0
	(cd / && "$support/asuser" pg_ctl -D "$1" -m "${2:-fast}" -w -t 60 stop >/dev/null 2>&1) || true
}

# stop_servers DIR: stops what a killed test left below this folder; servers are found by their data directories
stop_servers() {
	local pidfile
	while IFS= read -r pidfile; do
		stop_server "${pidfile%/*}" immediate
	done < <(find "$1" -name postmaster.pid)
}
