# shellcheck shell=bash disable=SC2034,SC2154
# What the benchmarks have in common: the server, pausing capture, reading clocks, checking results, printing.
# To be sourced after test/support/lib.sh.

rounds=${BENCH_ROUNDS:-5}
scale=${BENCH_SCALE:-100}
wrong=0			# results that were not what they should be
work=			# folder of the running benchmark
paused=			# capture worker that is stopped

# ---- server ----

# begin_bench TITLE [SETTING...]: a server for one benchmark, its database with the extension in it
begin_bench() {
	local title=$1
	shift
	printf '\n%s\n' "$title"
	work=$(new_server_directory bench)
	# no checkpoint and no autovacuum by itself while something is timed; the first are made where they disturb both sides alike
	start_server_with_checksums "$work" "max_wal_size = '16GB'" "checkpoint_timeout = '1h'" 'autovacuum = off' "shared_buffers = '512MB'" "$@" "${BENCH_SETTING:-}"
	use_server "$work"
	createdb bench
	export PGDATABASE=bench
	sql 'CREATE EXTENSION streamcdc'
	postmaster=$(head -n 1 "$work/data/postmaster.pid")
}

# initdb takes options from nowhere else, so checksums are switched on afterwards
start_server_with_checksums() {
	start_server "$@"
	stop_server "$1/data"
	"$support/asuser" pg_checksums --enable --no-sync -D "$1/data" >/dev/null 2>&1
	(cd "$1" && "$support/asuser" pg_ctl -D "$1/data" -l "$1/server.log" -w -t 60 start >/dev/null) || die "the server did not start"
}

end_bench() {
	local job
	[ -z "$paused" ] || kill -CONT "$paused" 2>/dev/null || true
	paused=
	for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done
	[ -n "$work" ] || return 0
	stop_server "$work/data" immediate
	rm -rf "$work"
	work=
}

# sql COMMAND...: each in a transaction of its own; prints bare values
sql() {
	local command args=()
	for command in "$@"; do args+=(-c "$command"); done
	PGOPTIONS="-c client_min_messages=warning" psql -X -A -t -q -F ' ' -v ON_ERROR_STOP=1 "${args[@]}"
}

# timed SETTINGS QUERY: in a session of its own; prints the result, and then, on a line of its own, the seconds it took
timed() {
	PGOPTIONS="-c client_min_messages=warning" psql -X -A -t -q -F ' ' -v ON_ERROR_STOP=1 <<-SQL
		$1;
		SELECT clock_timestamp() AS start \gset
		$2;
		SELECT extract(epoch FROM clock_timestamp() - :'start');
	SQL
}

# in_thousands KEYS MULTIPLIER STATEMENT: runs it for the keys 1 to KEYS, a thousand a transaction: they are in the
# relation k (id).  Which ones a transaction has looks random, and depends on the multiplier, a prime number.
in_thousands() {
	sql 'SET synchronous_commit = off' 'SET enable_hashjoin = off' 'SET enable_mergejoin = off' "DO \$\$ BEGIN
		FOR t IN 0 .. ($1 - 1) / 1000 LOOP
			WITH k (id) AS (SELECT 1 + (t * 1000 + g) * $2::bigint % $1 FROM generate_series(0, 999) AS g WHERE t * 1000 + g < $1) $3;
			COMMIT;
		END LOOP;
	END \$\$" 'VACUUM ANALYZE items'
}

scaled() { echo $(($1 * scale / 100)); }

# ---- the capture worker ----

# worker_pid KIND: waits for it if need be
worker_pid() {
	local pid
	for _ in {1..100}; do
		pid=$(sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'streamcdc $1'")
		[ -z "$pid" ] || break
		sleep 0.1
	done
	[ -n "$pid" ] || die "there is no $1 worker"
	echo "$pid"
}

# lag-free, and confirmed as far as there is something to confirm
settle() {
	sql "SELECT stream_sync('1 h')" >/dev/null
	sleep 0.3
}

# pause_capture: stops the worker while it sleeps on its latch, that is, without any lock; sets $capture
pause_capture() {
	capture=$(worker_pid capture)
	for _ in {1..50}; do
		kill -STOP "$capture"
		paused=$capture
		if [ "$(sql "SELECT wait_event FROM pg_stat_activity WHERE pid = $capture")" = Extension ]; then
			return
		fi
		kill -CONT "$capture"
		paused=
		sleep 0.05
	done
	die "the capture worker does not sleep"
}

resume_capture() {
	kill -CONT "$paused"
	paused=
}

# seconds_to_confirm LSN: lets the paused worker go, and prints after how many seconds its slot was confirmed up to there
seconds_to_confirm() {
	local pid=$paused
	paused=
	psql -X -A -t -q -v ON_ERROR_STOP=1 <<-SQL
		SELECT clock_timestamp() AS start \gset
		\! kill -CONT $pid
		DO \$\$ BEGIN
			WHILE (SELECT confirmed_flush_lsn < '$1' FROM pg_replication_slots WHERE plugin = 'streamcdc') LOOP
				PERFORM pg_sleep(0.005);
			END LOOP;
		END \$\$;
		SELECT extract(epoch FROM clock_timestamp() - :'start');
	SQL
}

# logged TABLE: what the log holds of it: versions, inserts, updates, deletes
logged() {
	sql "SELECT coalesce(max(b.last_version), 0), coalesce(sum(inserts), 0), coalesce(sum(updates), 0), coalesce(sum(deletes), 0)
		FROM streamcdc.blocks AS b JOIN streamcdc.streams AS s USING (stream_id) WHERE s.relid = '$1'::regclass AND b.last_version > s.base_version"
}

# ---- clocks ----

# cpu_ticks PID: user and system time in hundredths of a second
cpu_ticks() {
	local stat fields
	stat=$(<"/proc/$1/stat")
	read -ra fields <<<"${stat##*) }"
	echo $((fields[11] + fields[12]))
}

# the same for all children of the postmaster that have ended
ended_ticks() {
	local stat fields
	stat=$(<"/proc/$postmaster/stat")
	read -ra fields <<<"${stat##*) }"
	echo $((fields[13] + fields[14]))
}

# waits until no walsender is left, not even one that gives back its memory (it has no command line then): its CPU time
# counts only when it has ended
wait_for_walsenders() {
	local child children title
	read -ra children <"/proc/$postmaster/task/$postmaster/children" || true
	for child in "${children[@]}"; do
		while [ -d "/proc/$child" ]; do
			title=$(tr -d '\0' 2>/dev/null <"/proc/$child/cmdline") || break
			[[ -z $title || $title == *walsender* ]] || break
			sleep 0.02
		done
	done
}

seconds() { awk -v t="$1" 'BEGIN { print t / 100 }'; }
divide() { awk -v a="$1" -v b="$2" 'BEGIN { print (b == 0 ? "nan" : a / b) }'; }

# ---- results ----

# check WHAT FOUND EXPECTED
check() {
	[ "$2" != "$3" ] || return 0
	wrong=$((wrong + 1))
	printf 'WRONG   %s: found %s, expected %s\n' "$1" "$2" "$3"
}

median() {
	printf '%s\n' "$@" | sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# spread FORMAT VALUE...: "median (least .. greatest)"
spread() {
	local format=$1
	shift
	# shellcheck disable=SC2059
	printf "$format ($format .. $format)" "$(median "$@")" "$(printf '%s\n' "$@" | sort -g | head -n 1)" "$(printf '%s\n' "$@" | sort -g | tail -n 1)"
}

# line NAME TEXT
line() { printf '  %-34s %s\n' "$1" "$2"; }

# target VALUE OPERATOR BOUND: says whether it is met
target() {
	awk -v a="$1" -v b="$3" -v op="$2" 'BEGIN { met = op == ">=" ? a >= b : a <= b; print "target " op " " b ": " (met ? "met" : "MISSED") }'
}
