# shellcheck shell=bash disable=SC2154
# What continuous jobs cost: memory of a worker with millions of keys in its state, against what it has when idle; the
# time in which a state that was lost is made again, against reading the same versions; and CPU time of fifty idle
# queries, over tracked tables and over registered change logs.

bench_jobs() {
	local keys round
	keys=$(scaled 20000000)
	begin_bench "JOBS a net changes job with $keys keys in its state; fifty idle jobs" "max_worker_processes = 120"
	jobs_state "$keys"
	sql 'DROP TABLE items' >/dev/null
	for round in tracked registered; do jobs_idle $round; done
}

# jobs_state KEYS: all keys in one transaction, so that they are in the state together and stay there
jobs_state() {
	local pid idle peak seconds read restored=() ratios=() i
	sql 'CREATE TABLE items (id bigint PRIMARY KEY, v text NOT NULL)' "SELECT stream_track('items')" \
		"INSERT INTO items SELECT i, md5(i::text) FROM generate_series(1, $1) AS i" >/dev/null
	settle
	sql "SELECT stream_start('job', 'items', foreach_batch => 'SELECT 1', options => '{\"deduplicationMode\": \"netChanges\",
		\"noDataMicroBatchesEnabled\": false, \"startingVersion\": \"latest\"}')" >/dev/null
	pid=$(worker_pid job)
	sleep 1
	idle=$(jobs_memory "$pid")
	sql "SELECT stream_drop('job')" "SELECT stream_start('job', 'items', foreach_batch => 'SELECT 1', options => '{\"deduplicationMode\": \"netChanges\",
		\"noDataMicroBatchesEnabled\": false, \"startingVersion\": 1}')" >/dev/null
	pid=$(worker_pid job)
	jobs_sample "$pid" "$work/job.memory" &
	seconds=$(timed "SET jit = off" "SELECT stream_process_all_available('job')")
	kill $! 2>/dev/null || true
	wait $! 2>/dev/null || true
	peak=$(<"$work/job.memory")
	check 'keys in the state' "$(sql "SELECT state_rows FROM stream_queries")" "$1"
	line 'worker, own memory' "$(((peak - idle) / 1024)) MB above the idle $((idle / 1024)) MB, $(target $(((peak - idle) / 1024)) '<=' 512)"
	line 'rows of the log to state' "$(divide "$1" "${seconds##*$'\n'}") a second"
	line 'state on disk' "$(sql "SELECT state_bytes / 1048576 FROM stream_queries") MB of rows, $(du -sm "$work/data/streamcdc" | cut -f1) MB in files"

	for ((i = 1; i <= rounds; i++)); do
		read=$(timed "SET jit = off" "SELECT count(*), count((row_data).id), count((row_data).v) FROM stream_changes(NULL::items, 1)")
		check 'changes read' "${read%%$'\n'*}" "$1 $1 $1"
		read=${read##*$'\n'}
		sql "SELECT stream_stop('job', '10 min')" >/dev/null
		rm -rf "$work/data/streamcdc"
		seconds=$(timed "SELECT stream_resume('job')" "SELECT stream_process_all_available('job')")
		check 'keys in the restored state' "$(sql "SELECT state_rows FROM stream_queries")" "$1"
		[ -d "$work/data/streamcdc" ] || check 'state directory' 'not there' 'there'
		restored+=("${seconds##*$'\n'}")
		ratios+=("$(divide "$read" "${seconds##*$'\n'}")")
	done
	line 'state restored in' "$(spread %.1f "${restored[@]}") s"
	line 'to reading the versions' "$(spread %.2f "${ratios[@]}"), $(target "$(median "${ratios[@]}")" '>=' 0.3)"
	sql "SELECT stream_drop('job')" >/dev/null
}

# kB of memory that is the process's alone
jobs_memory() {
	awk '/^RssAnon:/ { print $2 }' "/proc/$1/status"
}

# jobs_sample PID FILE: keeps the greatest there, until it is killed
jobs_sample() {
	local now most=0
	while now=$(jobs_memory "$1" 2>/dev/null) && [ -n "$now" ]; do
		if [ "$now" -gt "$most" ]; then
			most=$now
			echo "$most" >"$2"
		fi
		sleep 0.05
	done
}

# jobs_idle KIND: fifty queries over five tables of that kind
jobs_idle() {
	local i seconds before after pids pid
	seconds=$(scaled 30)
	[ "$seconds" -ge 5 ] || seconds=5
	for i in 1 2 3 4 5; do
		if [ "$1" = tracked ]; then
			sql "CREATE TABLE t$i (id int PRIMARY KEY, v text)" "SELECT stream_track('t$i')" "INSERT INTO t$i VALUES (1, 'a')" >/dev/null
		else
			sql "CREATE TABLE r$i (id int, v text, _change_type text, _commit_version bigint, _commit_timestamp timestamptz)" \
				"SELECT stream_register_changelog('r$i', false, true, false, '{id}')" "INSERT INTO r$i VALUES (1, 'a', 'insert', 1, now())" >/dev/null
		fi
	done
	sql "SELECT stream_start('q' || i, '${1:0:1}' || (1 + i % 5), sink => 'sink' || i) FROM generate_series(1, 50) AS i" >/dev/null
	sql "SELECT stream_process_all_available(query_name) FROM stream_queries" >/dev/null
	check "rows of $1 sinks" "$(sql "SELECT sum(output_rows) FROM stream_queries")" 50
	# past the event that says that a query is idle
	sleep 12
	pids=$(sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'streamcdc job'")
	check 'jobs that run' "$(wc -w <<<"$pids")" 50
	before=0
	after=0
	# nanoseconds, since each has far less than one tick
	for pid in $pids; do before=$((before + $(cut -d' ' -f1 "/proc/$pid/schedstat"))); done
	sleep "$seconds"
	for pid in $pids; do after=$((after + $(cut -d' ' -f1 "/proc/$pid/schedstat"))); done
	pid=$(divide "$(divide $((after - before)) 10000000)" "$seconds")
	line "CPU of fifty idle jobs, $1" "$pid % of a core in $seconds s, $(target "$pid" '<=' 1)"
	sql "SELECT stream_drop(query_name) FROM stream_queries" >/dev/null
	for i in {1..50}; do echo "DROP TABLE sink$i;"; done | sql "$(cat)"
}
