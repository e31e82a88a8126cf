#!/usr/bin/env bash
# demo.sh start: builds and installs streamcdc, and shows it on a throw-away server, which keeps running to play with.
# demo.sh stop:  stops that server and deletes it.
#
# The server listens on a socket in a private folder below /tmp and nowhere
# else.  Which folder that is stands in the file .demo at the root of the
# checkout.
set -euo pipefail
# shellcheck source=test/support/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../test/support/lib.sh"

state=$top/.demo

stop() {
	local dir
	[ -f "$state" ] || return 0
	dir=$(<"$state")
	# deleted is only what was made here
	if [[ $dir == /tmp/streamcdc-demo.* ]] && [ -d "$dir" ]; then
		find_postgres
		stop_server "$dir/data"
		rm -rf "$dir"
	fi
	rm -f "$state"
}

section() {
	printf '\n\033[1m=== %s\033[0m\n' "$*"
}

start() {
	local dir
	# a look at the terminal only: no colours in files
	[ -t 1 ] || section() { printf '\n=== %s\n' "$*"; }

	section "Building and installing streamcdc"
	"$support/setup"
	find_postgres
	stop
	build_and_install
	echo "installed streamcdc into PostgreSQL's folder $("$PG_CONFIG" --pkglibdir)"

	section "Starting a throw-away server with wal_level = logical and shared_preload_libraries = 'streamcdc'"
	dir=$(new_server_directory demo)
	echo "$dir" >"$state"
	failed_in=$dir
	trap report_failure EXIT
	start_server "$dir"
	use_server "$dir"
	createdb demo
	echo "its socket, data and log are in $dir"

	run_sql orders.sql

	section "Eight seconds of pgbench on tracked tables"
	pgbench -i -q -s 1 demo 2>&1 | tail -n 1
	run_sql pgbench-track.sql
	pgbench -n -c 2 -T 8 demo 2>&1 | grep -E '^(number of transactions actually|number of failed|latency average|tps)'
	run_sql pgbench.sql
	run_sql jobs.sql

	trap - EXIT
	section "Yours to play with"
	cat <<-TEXT
		psql -h $dir -p 5432 -d demo
		    connects to the server, which keeps running. Try:

		    INSERT INTO orders VALUES (5, 'Eve', 'new', 12.00);
		    SELECT * FROM stream_changes('orders', starting_version => stream_latest_version('orders'));
		    SELECT stream_start('orders_copy', 'orders', sink => 'orders_copy', sink_mode => 'apply');
		    SELECT stream_process_all_available('orders_copy'); TABLE orders_copy;
		    SELECT * FROM stream_queries;

		make demo-stop
		    stops the server and deletes it.
	TEXT
}

# a server on which something failed is kept, since its log is worth a look
report_failure() {
	echo "the demo failed; the server's log is $failed_in/server.log, and \"make demo-stop\" deletes it all" >&2
}

# run_sql FILE: the commands are shown with their results; the first that fails ends the demo
run_sql() {
	# messages are shown among the results, without the place in the script
	psql -X -e -q -v ON_ERROR_STOP=1 -P footer=off -P null='(null)' -d demo -f "$top/doc/demo/$1" 2>&1 |
		sed -E 's/^psql:.*\.sql:[0-9]+: //'
}

case "${1:-}" in
	start) start ;;
	stop) stop ;;
	*) die "usage: demo.sh start|stop" ;;
esac
