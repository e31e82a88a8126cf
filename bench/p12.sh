# shellcheck shell=bash disable=SC2154
# A net changes job over random keys, against RocksDB alone by db_bench: as many keys of 16 bytes with 100 bytes each,
# lz4, no WAL, on the same machine in the same run.
#
# The job reads updates of keys drawn at random, a thousand a transaction, a hundred transactions a batch, from the
# change log, nets them with what the batch before has left in state, and writes the net changes, two rows for most
# updates, into a table, durably.  An update counts as one change, although it is two rows.  The rate is that of all
# changes from the query's start to its end; a second job does the same without a sink.  db_bench overwrites keys
# in batches of 1000 ("overwrite"), and reads and writes keys one by one ("updaterandom"), in a database that has them all.

bench_p12() {
	local keys changes round side first before p12_changes p12_after p12_rows
	declare -gA p12_values=()
	keys=$(scaled 1000000)
	changes=$(scaled 2000000)
	"$support/setup" rocksdb-tools
	begin_bench "P12 a net changes job over $changes updates of $keys random keys, against db_bench"
	p12_generate "$keys" "$changes"
	for ((round = 1; round <= rounds; round++)); do
		# alternating order
		for side in $(printf '%s\n' sink none rocksdb | if [ $((round % 2)) = 1 ]; then cat; else tac; fi); do
			case $side in
				rocksdb) p12_rocksdb "$keys" "$changes" ;;
				*) p12_job "$side" "$changes" ;;
			esac
		done
	done
	p12_print
}

# p12_generate KEYS CHANGES: sets $first, the first version of the updates, and $before, a digest of the rows before
p12_generate() {
	sql 'CREATE TABLE items (k uuid PRIMARY KEY, v text NOT NULL) WITH (fillfactor = 40)' "SELECT stream_track('items')" \
		"INSERT INTO items SELECT md5(g::text)::uuid, left(md5(g::text) || md5(random()::text) || md5(random()::text) || md5(random()::text), 100)
			FROM generate_series(1, $1) AS g" 'VACUUM ANALYZE items' >/dev/null
	settle
	first=$(($(sql "SELECT stream_latest_version('items')") + 1))
	before=$(sql "SELECT sum(hashtextextended(t::text, 0)::numeric) FROM items AS t")
	sql 'SET synchronous_commit = off' 'SET enable_hashjoin = off' 'SET enable_mergejoin = off' "DO \$\$ BEGIN
		FOR t IN 1 .. $2 / 1000 LOOP
			WITH k AS (SELECT DISTINCT md5(ceil(random() * $1)::int::text)::uuid AS k FROM generate_series(1, 1000))
			UPDATE items AS i SET v = left(md5(random()::text) || i.v, 100) FROM k WHERE i.k = k.k;
			COMMIT;
		END LOOP;
	END \$\$"
	settle
	p12_changes=$(sql "SELECT sum(b.updates) FROM streamcdc.blocks AS b JOIN streamcdc.streams AS s USING (stream_id) WHERE b.first_version >= $first")
	p12_after=$(sql "SELECT sum(hashtextextended(t::text, 0)::numeric) FROM items AS t")
}

# p12_job SINK: "sink" or "none"
p12_job() {
	local target="foreach_batch => 'SELECT count(*) FROM batch'" seconds
	[ "$1" = none ] || target="sink => 'net'"
	sql CHECKPOINT
	seconds=$(timed "SET jit = off" "SELECT stream_start('job', 'items', $target, trigger => 'availableNow',
		options => '{\"deduplicationMode\": \"netChanges\", \"startingVersion\": $first, \"maxVersionsPerTrigger\": 100}');
		SELECT stream_await_termination('job')")
	check "how the job ended" "$(sql "SELECT status || ' ' || input_rows FROM stream_queries")" "finished $((2 * p12_changes))"
	p12_values[$1]+=" $(divide "$p12_changes" "${seconds##*$'\n'}")"
	if [ "$1" = sink ]; then
		# with the rows before, they make the rows now
		check 'rows before and net changes' "$(sql "SELECT $before + sum(CASE _change_type WHEN 'insert' THEN 1 ELSE -1 END * hashtextextended((k, v)::text, 0)::numeric)
			FROM net")" "$p12_after"
		p12_rows=$(sql 'SELECT count(*) FROM net')
	fi
	sql "SELECT stream_drop('job')" 'DROP TABLE IF EXISTS net' >/dev/null
}

# p12_rocksdb KEYS CHANGES
p12_rocksdb() {
	local name result
	p12_bench fillseq "$1" "$1" >/dev/null
	# updaterandom is slow: a fifth of the operations is enough for it
	for name in overwrite updaterandom; do
		result=$(p12_bench $name "$1" $(($2 / ($([ $name = overwrite ] && echo 1 || echo 5)))) |
			awk -v name=$name '$1 == name { for (i = 2; i < NF; i++) if ($(i + 1) ~ /^ops\/sec/) print $i }')
		[ -n "$result" ] || die "db_bench did not run $name"
		p12_values[$name]+=" $result"
	done
	rm -rf "$work/rocksdb"
}

# p12_bench NAME KEYS OPERATIONS
p12_bench() {
	db_bench --db="$work/rocksdb" --benchmarks="$1" --use_existing_db="$([ "$1" = fillseq ] && echo 0 || echo 1)" --num="$2" --writes="$3" \
		--key_size=16 --value_size=100 --compression_type=lz4 --disable_wal=1 --batch_size="$([ "$1" = overwrite ] && echo 1000 || echo 1)" 2>/dev/null
}

p12_print() {
	local key base bound i values ratios
	local -A titles=([sink]='job, into the sink' [none]='job, without a sink' [overwrite]='db_bench overwrite' [updaterandom]='db_bench updaterandom')
	printf '%s changes, %s rows written, changes/s\n' "$p12_changes" "$p12_rows"
	for key in sink none overwrite updaterandom; do
		# shellcheck disable=SC2086
		line "${titles[$key]}" "$(spread %.0f ${p12_values[$key]})"
	done
	for key in sink none; do
		read -ra values <<<"${p12_values[$key]}"
		for base in 'overwrite 0.5' 'updaterandom 3'; do
			bound=${base#* }
			read -ra ratios <<<"${p12_values[${base% *}]}"
			for i in "${!ratios[@]}"; do ratios[i]=$(divide "${values[i]}" "${ratios[i]}"); done
			line "${titles[$key]}, to ${base% *}" "$(spread %.2f "${ratios[@]}"), $(target "$(median "${ratios[@]}")" '>=' "$bound")"
		done
	done
}
