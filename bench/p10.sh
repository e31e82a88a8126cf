# shellcheck shell=bash disable=SC2154
# Reading changes, typed: raw, without carry-overs, and with updates recognised, against a sequential scan of the same
# rows in a heap table, all their columns deformed.
#
# The rows are those that stream_changes shows in mode "none": an update is two of them, a quarter of the updates rewrites
# rows without changing them.  The heap table is frozen and fits into shared buffers, so that both sides read from
# memory.  Both are asked for a count, so that no client is part of it, of the last column of the tracked table, for
# which all those before have to be deformed: metadata and the row's own in the heap, the row's own in ours.  Where rows are
# only counted, neither side looks at a column.  One process on both sides, JIT off, work_mem 64MB.

bench_p10() {
	local rows keys round mode result ratios values i
	local -A p10_query=() p10_rows=() all=()
	local versions
	keys=$(scaled 400000)
	rows=$((keys * 5))
	begin_bench "P10 reading $rows changes, against a sequential scan of them in a heap table" \
		"shared_buffers = '2GB'" 'jit = off' 'max_parallel_workers_per_gather = 0' "work_mem = '64MB'"
	p10_generate "$keys"
	p10_query=(
		[heap]='SELECT count(payload) FROM changes'
		[heap_rows]='SELECT count(*) FROM changes'
		[raw]="SELECT count((row_data).payload) FROM stream_changes(NULL::items, deduplication_mode => 'none')"
		[rows]="SELECT count(*) FROM stream_changes(NULL::items, deduplication_mode => 'none')"
		[drop]="SELECT count((row_data).payload) FROM stream_changes(NULL::items)"
		[updates]="SELECT count((row_data).payload) FROM stream_changes(NULL::items, compute_updates => true)"
	)
	p10_rows=([heap]=$rows [heap_rows]=$rows [raw]=$rows [rows]=$rows [drop]=$((keys * 4)) [updates]=$((keys * 4)))
	p10_check "$keys"

	for ((round = 1; round <= rounds; round++)); do
		# there and back, so that each is measured twice; the better time counts
		for mode in heap heap_rows raw rows drop updates updates drop rows raw heap_rows heap; do
			result=$(timed '' "${p10_query[$mode]}")
			check "rows, $mode" "$(head -n 1 <<<"$result")" "${p10_rows[$mode]}"
			all[$mode]+=" ${result##*$'\n'}"
		done
	done
	for mode in "${!p10_query[@]}"; do
		read -ra values <<<"${all[$mode]}"
		all[$mode]=
		for ((i = 0; i < ${#values[@]}; i += 2)); do
			all[$mode]+=" $(printf '%s\n' "${values[i]}" "${values[i + 1]}" | sort -g | head -n 1)"
		done
	done
	# shellcheck disable=SC2086
	line 'heap, sequential scan' "$(spread %.3f ${all[heap]}) s, $(sql "SELECT pg_relation_size('changes') / 1000000") MB; the log has $(sql "SELECT pg_total_relation_size('streamcdc.blocks') / 1000000") MB"
	p10_print raw heap 'raw' 0.6
	p10_print drop heap 'carry-overs dropped' 0.5
	p10_print updates heap 'and updates recognised' 0.5
	p10_print rows heap_rows 'raw, rows only counted on both sides' ''
}

# p10_print MODE BASELINE TITLE TARGET
p10_print() {
	local values heap ratios=() i
	read -ra values <<<"${all[$1]}"
	read -ra heap <<<"${all[$2]}"
	for i in "${!values[@]}"; do ratios+=("$(divide "${heap[i]}" "${values[i]}")"); done
	line "$3" "$(spread %.3f "${values[@]}") s; heap / this $(spread %.2f "${ratios[@]}")${4:+, $(target "$(median "${ratios[@]}")" '>=' "$4")}"
}

# p10_generate KEYS: all keys inserted, every key updated, half of them rewritten as they are, the other half updated.
# Sets $versions, the last version of each of the four.
p10_generate() {
	local payload="left(md5(random()::text) || md5(random()::text), 60)"
	sql 'CREATE TABLE items (id bigint PRIMARY KEY, n int NOT NULL, payload text NOT NULL)' "SELECT stream_track('items')" >/dev/null
	settle
	versions=()
	p10_pass "$1" 7919 "INSERT INTO items SELECT id, 0, $payload FROM k"
	p10_pass "$1" 7927 "UPDATE items AS i SET n = n + 1, payload = $payload FROM k WHERE i.id = k.id"
	p10_pass "$1" 7933 'UPDATE items AS i SET n = n FROM k WHERE i.id = k.id AND k.id % 2 = 0'
	p10_pass "$1" 7937 "UPDATE items AS i SET n = n + 1, payload = $payload FROM k WHERE i.id = k.id AND k.id % 2 = 1"
	sql "CREATE TABLE changes AS SELECT _change_type, _commit_version, _commit_timestamp, (row_data).*
			FROM stream_changes(NULL::items, deduplication_mode => 'none')" \
		'VACUUM (FREEZE, ANALYZE) changes' CHECKPOINT
	settle
}

p10_pass() {
	in_thousands "$@"
	settle
	versions+=("$(sql "SELECT stream_latest_version('items')")")
}

# p10_check KEYS: everything equal?
p10_check() {
	local digest='count(*), sum(hashtextextended(t::text, 0)::numeric)' columns='_commit_version, _commit_timestamp, id, n, payload'
	local read="SELECT _change_type, _commit_version, _commit_timestamp, (row_data).* FROM stream_changes(NULL::items" carried
	carried="_commit_version > ${versions[1]} AND _commit_version <= ${versions[2]}"
	check 'changes of the heap table' "$(sql "SELECT count(*), count(*) FILTER (WHERE _change_type = 'insert'), count(*) FILTER (WHERE $carried) FROM changes")" \
		"$(($1 * 5)) $(($1 * 3)) $1"
	check 'rows that the changes make' \
		"$(sql "SELECT sum(CASE _change_type WHEN 'insert' THEN 1 ELSE -1 END * hashtextextended((id, n, payload)::text, 0)::numeric) FROM changes")" \
		"$(sql 'SELECT sum(hashtextextended(t::text, 0)::numeric) FROM items AS t')"
	check 'raw' "$(sql "SELECT $digest FROM ($read, deduplication_mode => 'none')) AS t")" "$(sql "SELECT $digest FROM changes AS t")"
	check 'carry-overs dropped' "$(sql "SELECT $digest FROM ($read)) AS t")" "$(sql "SELECT $digest FROM changes AS t WHERE NOT ($carried)")"
	check 'updates recognised' "$(sql "SELECT $digest FROM ($read, compute_updates => true)) AS t")" \
		"$(sql "SELECT $digest FROM (SELECT CASE WHEN _commit_version <= ${versions[0]} THEN _change_type
				WHEN _change_type = 'insert' THEN 'update_postimage' ELSE 'update_preimage' END, $columns FROM changes WHERE NOT ($carried)) AS t")"
}
