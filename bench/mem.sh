# shellcheck shell=bash disable=SC2154
# A huge transaction: the capture worker's memory against its allowance and against a walsender's on the same WAL; and
# SIGTERM in the middle of it: how long until the worker is gone, and whether the log is complete afterwards.

bench_mem() {
	local rows allowed capture_kb peak idle seconds i
	rows=$(scaled 5000000)
	begin_bench "MEM the capture worker in a transaction of $rows rows"
	sql 'CREATE TABLE items (id bigint NOT NULL, customer int NOT NULL, status text NOT NULL, amount numeric(10,2) NOT NULL,
			placed timestamptz NOT NULL)' \
		'CREATE TABLE marker (n int)' \
		'CREATE PUBLICATION bench FOR TABLE items, marker' \
		"SELECT stream_track('items')" >/dev/null
	settle
	capture_kb=$(sql "SELECT setting FROM pg_settings WHERE name = 'streamcdc.capture_memory'")
	allowed=$((capture_kb / 1024 + 64))

	mem_backlog "$rows"
	idle=$(mem_of "$capture")
	sample_memory "$capture" "$work/capture.memory" &
	seconds=$(seconds_to_confirm "$end")
	kill $! 2>/dev/null || true
	wait $! 2>/dev/null || true
	check 'events of the log' "$(logged items)" "1 $rows 0 0"
	mem_walsender "$end"
	read -ra peak <"$work/capture.memory"
	line 'capture worker, own memory' "$((peak[0] / 1024)) MB at most ($((${idle%% *} / 1024)) MB before), streamcdc.capture_memory + 64 MB = $allowed MB, $(target $((peak[0] / 1024)) '<=' $allowed)"
	line '  with shared pages' "$((peak[3] / 1024)) MB at most (VmHWM), of it files $((peak[1] / 1024)) MB, shared memory $((peak[2] / 1024)) MB"
	read -ra peak <"$work/walsender.memory"
	line 'walsender on the same WAL' "$((peak[0] / 1024)) MB at most, with logical_decoding_work_mem = $(sql 'SHOW logical_decoding_work_mem')"
	line 'decoded and durable after' "$seconds s"

	for i in 0.15 0.6; do
		mem_backlog "$rows"
		mem_terminate "$i" "$seconds"
		check "log, after SIGTERM at $i of the time" "$(logged items)" "$(awk -v n="$rows" -v i="$i" 'BEGIN { v = i < 0.5 ? 2 : 3; print v, v * n, 0, 0 }')"
	done
}

# mem_backlog ROWS: one transaction that the paused worker has not seen; sets $end
mem_backlog() {
	settle
	pause_capture
	sql "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'baseline'" \
		"SELECT pg_create_logical_replication_slot('baseline', 'pgoutput')" >/dev/null
	sql "INSERT INTO items SELECT i, i % 100000, 'new', (i % 99991) / 100.0, now() + i * interval '1 ms' FROM generate_series(1, $1) AS i"
	end=$(sql 'SELECT pg_current_wal_insert_lsn()')
	sql 'INSERT INTO marker VALUES (1)'
}

mem_of() {
	awk '/^(RssAnon|RssFile|RssShmem|VmHWM):/ { v[$1] = $2 } END { print v["RssAnon:"] + 0, v["RssFile:"] + 0, v["RssShmem:"] + 0, v["VmHWM:"] + 0 }' \
		"/proc/$1/status"
}

# sample_memory PID FILE: keeps the greatest of RssAnon, RssFile, RssShmem and VmHWM (kB) there, until it is killed
sample_memory() {
	local key value anon=0 file=0 shared=0 high=0
	while [ -r "/proc/$1/status" ]; do
		while read -r key value _; do
			case $key in
				RssAnon:) anon=$((value > anon ? value : anon)) ;;
				RssFile:) file=$((value > file ? value : file)) ;;
				RssShmem:) shared=$((value > shared ? value : shared)) ;;
				VmHWM:) high=$((value > high ? value : high)) ;;
			esac
		done <"/proc/$1/status" 2>/dev/null
		echo "$anon $file $shared $high" >"$2"
		sleep 0.02
	done
}

# mem_walsender LSN: the memory of a walsender with pgoutput that reads the same transaction
mem_walsender() {
	local client pid=
	pg_recvlogical -d bench -S baseline --start --no-loop -E "$1" -f /dev/null \
		-o proto_version=1 -o publication_names=bench -o binary=true 2>/dev/null &
	client=$!
	while [ -z "$pid" ]; do
		pid=$(sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walsender'")
	done
	sample_memory "$pid" "$work/walsender.memory"
	wait "$client"
}

# mem_terminate FRACTION SECONDS: lets the worker go, ends it after that part of the time, and waits until the log is complete
mem_terminate() {
	local pid=$capture start
	resume_capture
	sleep "$(awk -v f="$1" -v s="$2" 'BEGIN { print f * s }')"
	start=$EPOCHREALTIME
	kill -TERM "$pid"
	while kill -0 "$pid" 2>/dev/null; do sleep 0.002; done
	start=$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f", b - a }')
	if [ "$(sql "SELECT confirmed_flush_lsn < '$end' FROM pg_replication_slots WHERE plugin = 'streamcdc'")" = t ]; then
		line "SIGTERM at $1 of the time" "gone after $start s, $(target "$start" '<=' 2)"
	else
		line "SIGTERM at $1 of the time" "came too late, the transaction was stored already"
	fi
	settle
}
