# shellcheck shell=bash disable=SC2154
# What a raw job writes into its sink, ten transactions of a thousand rows a batch, against INSERT ... SELECT of the
# very same rows out of an ordinary table, 10,000 a transaction.  The ordinary table is clustered, vacuumed and has an
# index by which each ten thousand are found; both sides commit synchronously.  The job's time is that from the
# query's start to its end.

bench_p13() {
	local rows round side values i base ratios
	local -A all=() titles=([job]='job' [insert]='INSERT ... SELECT')
	rows=$(scaled 1000000)
	begin_bench "P13 a sink written by a raw job, $rows rows in batches of 10,000, against INSERT ... SELECT"
	sql 'CREATE TABLE items (id bigint PRIMARY KEY, customer int NOT NULL, status text NOT NULL, amount numeric(10,2) NOT NULL,
			placed timestamptz NOT NULL)' "SELECT stream_track('items')" >/dev/null
	settle
	sql 'SET synchronous_commit = off' "DO \$\$ BEGIN
		FOR t IN 0 .. $rows / 1000 - 1 LOOP
			INSERT INTO items SELECT i, i % 100000, 'new', (i % 99991) / 100.0, now() + i * interval '1 ms' FROM generate_series(t * 1000 + 1, (t + 1) * 1000) AS i;
			COMMIT;
		END LOOP;
	END \$\$"
	settle
	sql "CREATE TABLE plain AS SELECT (row_data).*, _change_type, _commit_version, _commit_timestamp
			FROM stream_changes(NULL::items, 1, deduplication_mode => 'none')" \
		'CREATE INDEX ON plain (_commit_version)' 'VACUUM (FREEZE, ANALYZE) plain' CHECKPOINT
	for ((round = 1; round <= rounds; round++)); do
		# alternating order
		for side in $([ $((round % 2)) = 1 ] && echo job insert || echo insert job); do
			"p13_$side" "$rows"
			all[$side]+=" $(divide "$rows" "$seconds")"
			check "rows of $side" "$(sql "SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM $side AS t")" \
				"$(sql 'SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM plain AS t')"
			sql "DROP TABLE $side"
		done
	done
	for side in job insert; do
		# shellcheck disable=SC2086
		line "${titles[$side]}, rows/s" "$(spread %.0f ${all[$side]})"
	done
	read -ra values <<<"${all[job]}"
	read -ra base <<<"${all[insert]}"
	for i in "${!values[@]}"; do ratios[i]=$(divide "${values[i]}" "${base[i]}"); done
	line 'job to INSERT ... SELECT' "$(spread %.2f "${ratios[@]}"), $(target "$(median "${ratios[@]}")" '>=' 0.8)"
}

p13_job() {
	sql 'CREATE TABLE job (LIKE plain)' CHECKPOINT
	seconds=$(timed "SET jit = off" "SELECT stream_start('raw', 'items', sink => 'job', trigger => 'availableNow',
		options => '{\"deduplicationMode\": \"none\", \"startingVersion\": 1, \"maxVersionsPerTrigger\": 10}'); SELECT stream_await_termination('raw')")
	seconds=${seconds##*$'\n'}
	check 'batches' "$(sql "SELECT status, batch_id + 1 FROM stream_queries")" "finished $(($1 / 10000))"
	sql "SELECT stream_drop('raw')" >/dev/null
}

p13_insert() {
	sql 'CREATE TABLE "insert" (LIKE plain)' CHECKPOINT
	seconds=$(timed "SET jit = off" "DO \$\$ BEGIN
			FOR t IN 0 .. $1 / 10000 - 1 LOOP
				INSERT INTO insert SELECT * FROM plain WHERE _commit_version BETWEEN t * 10 + 1 AND (t + 1) * 10;
				COMMIT;
			END LOOP;
		END \$\$")
	seconds=${seconds##*$'\n'}
}
