# shellcheck shell=bash disable=SC2154
# From a commit to its row being visible in the change log, at 200 commits a second, against its arrival at
# pg_recvlogical with test_decoding: the same rows in the same run.  A row carries the clock of its insert, so that
# the commit itself is part of the time on both sides.  The change log is observed without the reading functions,
# which would hurry the worker: by another session's look at its newest block, again and again, with the server's clock
# after each look.
#
# The two sides are not observed alike: the baseline's arrival is an event, noted when it happens, while a row in the
# log is noted at the next look, on average half of the time between two looks late.  The figures, and what is held
# against the target, are as observed; a line of its own says what they are less half of that time (the mean over the
# run, which says nothing about p99).  The looks also take CPU time from both sides.

bench_p6() {
	local round mode
	declare -gA p6_values=()
	begin_bench "P6  from commit to visible, against the arrival at pg_recvlogical (test_decoding), 200 commits/s"
	cc -O2 -Wall -Wextra -I"$("$PG_CONFIG" --includedir)" -o "$work/latency" "$top/bench/latency.c" -L"$("$PG_CONFIG" --libdir)" -lpq
	sql 'CREATE TABLE ticks (id bigint PRIMARY KEY, at timestamptz NOT NULL)' \
		"CREATE TABLE seen (version bigint, at timestamptz)" \
		"CREATE TABLE arrived (id bigint, at timestamptz)" \
		"SELECT stream_track('ticks')" >/dev/null
	settle
	for ((round = 1; round <= rounds; round++)); do
		# alternating order
		for mode in $([ $((round % 2)) = 1 ] && echo on off || echo off on); do
			p6_round "$mode"
		done
	done
	p6_print
	line 'looks at the newest block' "$(sort -g "$work/looks" | head -n 1) a second at least"
	p6_idle
}

# p6_round MODE: with this setting of synchronous_commit
p6_round() {
	local count version stream reader stamper poller key values
	count=$((200 * $(scaled 20)))
	sql 'TRUNCATE seen, arrived' CHECKPOINT "SELECT pg_create_logical_replication_slot('baseline', 'test_decoding')" >/dev/null
	settle
	stream=$(sql "SELECT stream_id FROM streamcdc.streams WHERE relid = 'ticks'::regclass")
	version=$(logged ticks)
	version=${version%% *}

	mkfifo "$work/pipe"
	"$work/latency" stamp "$count" <"$work/pipe" >"$work/arrived" &
	stamper=$!
	pg_recvlogical -d bench -S baseline --start --no-loop -f - -o include-xids=0 -o skip-empty-xacts=1 >"$work/pipe" 2>/dev/null &
	reader=$!
	timeout $((count / 200 + 60)) "$work/latency" poll "$stream" $((version + count)) >"$work/seen" 2>>"$work/looks" &
	poller=$!
	sleep 1
	PGOPTIONS="-c synchronous_commit=$1" "$work/latency" write 200 "$count" $((version + 1))
	wait "$poller"
	wait "$stamper"
	# it may have ended with the pipe
	kill -INT "$reader" 2>/dev/null || true
	wait "$reader" 2>/dev/null || true
	rm "$work/pipe"
	wait_for_walsenders
	sql "\\copy seen FROM '$work/seen' (DELIMITER ' ')" "\\copy arrived FROM '$work/arrived' (DELIMITER ' ')" \
		"SELECT pg_drop_replication_slot('baseline')" >/dev/null

	# a row's version is its id, since one client wrote them one after the other; it was visible with the first look that showed its version or a later one
	check "rows that arrived" "$(sql "SELECT count(*) FROM arrived JOIN ticks USING (id) WHERE id > $version")" "$count"
	check "versions of the log" "$(logged ticks)" "$((version + count)) $((version + count)) 0 0"
	for key in streamcdc recvlogical; do
		if [ $key = streamcdc ]; then
			values="SELECT (SELECT s.at FROM seen AS s WHERE s.version >= t.id ORDER BY s.version LIMIT 1) - t.at FROM ticks AS t WHERE t.id > $version"
			sql 'CREATE INDEX IF NOT EXISTS seen_version ON seen (version)' 'ANALYZE seen'
		else
			values="SELECT a.at - t.at FROM arrived AS a JOIN ticks AS t USING (id) WHERE t.id > $version"
		fi
		values=$(sql "SELECT round(1000 * extract(epoch FROM p[1]), 3), round(1000 * extract(epoch FROM p[2]), 3), round(1000 * extract(epoch FROM p[3]), 3)
			FROM (SELECT percentile_cont(ARRAY[0.5, 0.9, 0.99]) WITHIN GROUP (ORDER BY d) FROM ($values) AS v (d)) AS s (p)")
		read -ra values <<<"$values"
		p6_values[$key-$1-50]+=" ${values[0]}"
		p6_values[$key-$1-90]+=" ${values[1]}"
		p6_values[$key-$1-99]+=" ${values[2]}"
	done
	p6_values[looks-$1]+=" $(tail -n 1 "$work/looks")"
}

p6_print() {
	local mode key base values looks ratios less i
	read -ra base <<<"${p6_values[recvlogical-on-50]}"
	for mode in on off; do
		printf 'synchronous_commit = %s, ms\n' $mode
		for key in recvlogical streamcdc; do
			# shellcheck disable=SC2086
			line "$key" "p50 $(spread %.2f ${p6_values[$key-$mode-50]}), p90 $(spread %.2f ${p6_values[$key-$mode-90]}), p99 $(spread %.2f ${p6_values[$key-$mode-99]})"
		done
		read -ra values <<<"${p6_values[streamcdc-$mode-50]}"
		ratios=()
		for i in "${!values[@]}"; do ratios+=("$(divide "${values[i]}" "${base[i]}")"); done
		line 'p50 to pg_recvlogical, synchronous' "$(spread %.2f "${ratios[@]}"), $(target "$(median "${ratios[@]}")" '<=' 1)"
		read -ra looks <<<"${p6_values[looks-$mode]}"
		less=()
		ratios=()
		for i in "${!values[@]}"; do
			less+=("$(awk -v p="${values[i]}" -v n="${looks[i]}" 'BEGIN { print p - 500 / n }')")
			ratios+=("$(divide "${less[i]}" "${base[i]}")")
		done
		line "less half an observer's interval" "p50 $(spread %.2f "${less[@]}"), to pg_recvlogical, synchronous $(spread %.2f "${ratios[@]}")"
	done
}

p6_idle() {
	local kind pid before seconds all=0
	seconds=$(scaled 30)
	[ "$seconds" -ge 3 ] || seconds=3
	settle
	declare -A before=() pid=()
	for kind in capture launcher; do
		pid[$kind]=$(worker_pid $kind)
		before[$kind]=$(cpu_ticks "${pid[$kind]}")
	done
	sleep "$seconds"
	for kind in capture launcher; do
		all=$((all + $(cpu_ticks "${pid[$kind]}") - before[$kind]))
	done
	line "CPU when idle for $seconds s" "$(divide $all "$seconds") % of a core, $(target "$(divide $all "$seconds")" '<=' 1)"
}
