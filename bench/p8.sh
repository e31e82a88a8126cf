# shellcheck shell=bash disable=SC2154
# From a commit to its row being in the sink of a job, against the row being visible in the change log (what P6
# measures), at 200 and 1000 commits a second, synchronous: both are observed in the same run, alike, by a session of
# its own each, which looks again and again (latency.c).  The job is a raw one, that appends.

bench_p8() {
	local round rate
	declare -gA p8_values=()
	begin_bench "P8  from commit to the row in an exactly-once sink, against visible in the change log"
	cc -O2 -Wall -Wextra -I"$("$PG_CONFIG" --includedir)" -o "$work/latency" "$top/bench/latency.c" -L"$("$PG_CONFIG" --libdir)" -lpq
	sql 'CREATE TABLE ticks (id bigint PRIMARY KEY, at timestamptz NOT NULL)' \
		'CREATE TABLE copy (id bigint, at timestamptz, _change_type text, _commit_version bigint, _commit_timestamp timestamptz)' \
		'CREATE INDEX ON copy (_commit_version)' \
		'CREATE TABLE seen (version bigint, at timestamptz)' 'CREATE TABLE written (version bigint, at timestamptz)' \
		"SELECT stream_track('ticks')" "SELECT stream_start('job', 'ticks', sink => 'copy', options => '{\"deduplicationMode\": \"none\"}')" >/dev/null
	settle
	sql "SELECT stream_process_all_available('job')" >/dev/null
	for ((round = 1; round <= rounds; round++)); do
		for rate in 200 1000; do p8_round $rate; done
	done
	p8_print
}

# p8_round RATE
p8_round() {
	local count version stream log sink key values
	count=$(($1 * $(scaled 20)))
	sql 'TRUNCATE seen, written' CHECKPOINT
	settle
	stream=$(sql "SELECT stream_id FROM streamcdc.streams WHERE relid = 'ticks'::regclass")
	version=$(logged ticks)
	version=${version%% *}
	timeout $((count / $1 + 120)) "$work/latency" poll "$stream" $((version + count)) >"$work/seen" 2>/dev/null &
	log=$!
	timeout $((count / $1 + 120)) "$work/latency" poll-sink copy $((version + count)) >"$work/written" 2>/dev/null &
	sink=$!
	sleep 1
	"$work/latency" write "$1" "$count" $((version + 1))
	wait "$log"
	wait "$sink"
	sql "\\copy seen FROM '$work/seen' (DELIMITER ' ')" "\\copy written FROM '$work/written' (DELIMITER ' ')" \
		'CREATE INDEX IF NOT EXISTS seen_version ON seen (version)' 'CREATE INDEX IF NOT EXISTS written_version ON written (version)' 'ANALYZE seen, written'

	# a row's version is its id, since one client wrote them one after the other
	check 'rows of the sink' "$(sql "SELECT count(*), count(DISTINCT c.id), min(c.id) FROM copy AS c JOIN ticks AS t USING (id, at)
		WHERE c.id = _commit_version AND c.id > $version")" "$count $count $((version + 1))"
	for key in seen written; do
		values=$(sql "SELECT round(1000 * extract(epoch FROM p[1]), 3), round(1000 * extract(epoch FROM p[2]), 3)
			FROM (SELECT percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY d)
				FROM (SELECT (SELECT s.at FROM $key AS s WHERE s.version >= t.id ORDER BY s.version LIMIT 1) - t.at FROM ticks AS t WHERE t.id > $version) AS v (d)) AS s (p)")
		read -ra values <<<"$values"
		p8_values[$key-$1-50]+=" ${values[0]}"
		p8_values[$key-$1-99]+=" ${values[1]}"
	done
}

p8_print() {
	local rate key base values ratios i part
	for rate in 200 1000; do
		printf '%s commits/s, ms\n' $rate
		for key in seen written; do
			# shellcheck disable=SC2086
			line "$([ $key = seen ] && echo 'visible in the change log' || echo 'in the sink')" \
				"p50 $(spread %.2f ${p8_values[$key-$rate-50]}), p99 $(spread %.2f ${p8_values[$key-$rate-99]})"
		done
		for part in 50 99; do
			read -ra base <<<"${p8_values[seen-$rate-$part]}"
			read -ra values <<<"${p8_values[written-$rate-$part]}"
			ratios=()
			for i in "${!values[@]}"; do ratios+=("$(divide "${values[i]}" "${base[i]}")"); done
			line "p$part, sink to change log" "$(spread %.2f "${ratios[@]}")$([ $part = 50 ] || echo ", $(target "$(median "${ratios[@]}")" '<=' 3)")"
		done
	done
}
