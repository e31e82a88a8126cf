# shellcheck shell=bash disable=SC2154
# Net changes over a range with ten changes a key, typed, against SQL over an ordinary table of the same changes: five
# formulations, of which the fastest counts, at equal work_mem.
#
# A change is a row that stream_changes shows in mode "none": an update is two of them.  The ordinary table holds those
# rows in that order, with all columns; it has no index, is frozen, analyzed (the number of keys is told to the planner)
# and fits into shared buffers, so that both sides read from memory.  Both sides are asked for counts alone, so that no
# client is part of it, but for one of each column, lest the planner leave some out.
# Nothing asks SQL for the order by version in which streamcdc delivers.  Netting without "compute_updates" leaves the
# labels as they are, so the first deletion and the last insertion of a key are all that a formulation has to find.
# One process on both sides, JIT off.

bench_p9() {
	local keys first before net memory round form result values ours ratios fastest i p9_rows
	local -A form_sql=() left=() all=()
	keys=$(scaled 500000)
	begin_bench "P9  net changes of $((keys * 10)) changes over $keys keys, against the fastest of five SQL formulations" \
		"shared_buffers = '4GB'" 'jit = off' 'max_parallel_workers_per_gather = 0'
	p9_generate "$keys"
	p9_formulations
	net="SELECT count(*), count(_change_type), count(_commit_version), count(_commit_timestamp), count((row_data).id), count((row_data).n),
		count((row_data).payload) FROM stream_changes(NULL::items, $first, deduplication_mode => 'netChanges')"
	p9_check "$keys"

	for memory in 64MB 4MB; do
		all=()
		ratios=()
		left=()
		for form in "${!form_sql[@]}"; do left[$form]=1; done
		for ((round = 1; round <= rounds; round++)); do
			values=()
			# alternating order
			for form in $(printf '%s\n' ours "${p9_forms[@]}" | if [ $((round % 2)) = 1 ]; then cat; else tac; fi); do
				if [ "$form" = ours ]; then
					result=$(timed "SET work_mem = '$memory'" "$net")
				else
					[ -n "${left[$form]:-}" ] || continue
					result=$(timed "SET work_mem = '$memory'" "SELECT count(*), count(_change_type), count(_commit_version), count(_commit_timestamp),
						count(id), count(n), count(payload) FROM (${form_sql[$form]}) AS t")
				fi
				check "rows of $form" "$(head -n 1 <<<"$result" | cut -d' ' -f1)" "$p9_rows"
				result=${result##*$'\n'}
				all[$form]+=" $result"
				[ "$form" = ours ] || values+=("$result $form")
				[ "$form" != ours ] || ours=$result
			done
			fastest=$(printf '%s\n' "${values[@]}" | sort -g | head -n 1)
			ratios+=("$(divide "${fastest%% *}" "$ours")")
			# those that take twice as long as the fastest are not asked again
			for i in "${values[@]}"; do
				awk -v a="${i%% *}" -v b="${fastest%% *}" 'BEGIN { exit !(a > 2 * b) }' && unset "left[${i#* }]"
			done
		done
		printf 'work_mem = %s, %s rows of net changes, s\n' $memory "$p9_rows"
		for form in "${p9_forms[@]}" ours; do
			# shellcheck disable=SC2086
			line "${p9_titles[$form]}" "$(spread %.2f ${all[$form]})"
		done
		line 'times as fast as the fastest SQL' "$(spread %.2f "${ratios[@]}"), $(target "$(median "${ratios[@]}")" '>=' 1.5)"
	done
}

# p9_generate KEYS: half of the keys are there before the range begins; in it, ten changes a key on average: the other
# half is inserted, every key is updated four times, a fifth of them deleted, half of those inserted again, and the
# rest but a fifth updated once more.  Sets $first, the range's first version, and $before, a digest of the rows before.
p9_generate() {
	local payload="left(md5(random()::text) || md5(random()::text), 60)" multiplier
	sql 'CREATE TABLE items (id bigint PRIMARY KEY, n int NOT NULL, payload text NOT NULL)' "SELECT stream_track('items')" >/dev/null
	in_thousands "$1" 7919 "INSERT INTO items SELECT id, 0, $payload FROM k WHERE id <= $1 / 2"
	settle
	first=$(($(sql "SELECT stream_latest_version('items')") + 1))
	before=$(sql "SELECT coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM items AS t")
	in_thousands "$1" 7919 "INSERT INTO items SELECT id, 0, $payload FROM k WHERE id > $1 / 2"
	for multiplier in 7927 7933 7937 7949; do
		in_thousands "$1" $multiplier "UPDATE items AS i SET n = n + 1, payload = $payload FROM k WHERE i.id = k.id"
	done
	in_thousands "$1" 7951 'DELETE FROM items AS i USING k WHERE i.id = k.id AND k.id % 10 < 2'
	in_thousands "$1" 7963 "INSERT INTO items SELECT id, 100, $payload FROM k WHERE id % 10 = 0"
	in_thousands "$1" 7993 "UPDATE items AS i SET n = n + 1, payload = $payload FROM k WHERE i.id = k.id AND k.id % 10 >= 4"
	settle
	sql "CREATE TABLE changes AS SELECT _change_type, _commit_version, _commit_timestamp, (row_data).*
			FROM stream_changes(NULL::items, $first, deduplication_mode => 'none')" \
		"ALTER TABLE changes ALTER id SET (n_distinct = $1)" 'VACUUM (FREEZE, ANALYZE) changes' CHECKPOINT
	settle
}

p9_forms=(single two distinct join joins)
declare -A p9_titles=([single]='SQL, one window' [two]='SQL, two windows' [distinct]='SQL, two DISTINCT ON' [join]='SQL, min and max, one join'
	[joins]='SQL, min and max, two joins' [ours]='streamcdc')

# sets form_sql
p9_formulations() {
	local columns='_change_type, _commit_version, _commit_timestamp, id, n, payload' ends
	local place="2 * _commit_version + (_change_type = 'insert')::int"
	form_sql[single]="SELECT $columns FROM (SELECT *, row_number() OVER w AS number, lead(id) OVER w AS next FROM changes
			WINDOW w AS (PARTITION BY id ORDER BY _commit_version, _change_type = 'insert')) AS c
		WHERE number = 1 AND _change_type = 'delete' OR next IS NULL AND _change_type = 'insert'"
	form_sql[two]="SELECT $columns FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY _commit_version, _change_type = 'insert') AS number,
				row_number() OVER (PARTITION BY id ORDER BY _commit_version DESC, _change_type = 'insert' DESC) AS back FROM changes) AS c
		WHERE number = 1 AND _change_type = 'delete' OR back = 1 AND _change_type = 'insert'"
	# a join of the two would give no more, and take longer
	form_sql[distinct]="SELECT $columns FROM (SELECT DISTINCT ON (id) * FROM changes ORDER BY id, _commit_version, _change_type = 'insert') AS c
			WHERE _change_type = 'delete'
		UNION ALL SELECT $columns FROM (SELECT DISTINCT ON (id) * FROM changes ORDER BY id, _commit_version DESC, _change_type = 'insert' DESC) AS c
			WHERE _change_type = 'insert'"
	ends="SELECT id, min($place) AS first, max($place) AS last FROM changes GROUP BY id"
	form_sql[join]="SELECT $columns FROM changes JOIN ($ends) AS e USING (id)
		WHERE _change_type = 'delete' AND $place = first OR _change_type = 'insert' AND $place = last"
	form_sql[joins]="WITH e AS ($ends)
		SELECT $columns FROM changes JOIN e USING (id) WHERE _change_type = 'delete' AND $place = first
		UNION ALL SELECT $columns FROM changes JOIN e USING (id) WHERE _change_type = 'insert' AND $place = last"
}

# p9_check KEYS: everything equal?  Sets $p9_rows
p9_check() {
	local digest='count(*), sum(hashtextextended(t::text, 0)::numeric)' found expected form memory
	local ours="SELECT _change_type, _commit_version, _commit_timestamp, (row_data).* FROM stream_changes(NULL::items, $first, deduplication_mode => "
	check 'changes' "$(sql "SELECT count(*), count(DISTINCT id) FROM changes")" "$(($1 * 10)) $1"
	# with the rows before, they make the rows now; so do the net ones
	for memory in "SELECT * FROM changes" "$ours 'netChanges')"; do
		check 'rows before and changes' "$(sql "SELECT $before + sum(CASE _change_type WHEN 'insert' THEN 1 ELSE -1 END * hashtextextended((id, n, payload)::text, 0)::numeric)
			FROM ($memory) AS t")" "$(sql 'SELECT sum(hashtextextended(t::text, 0)::numeric) FROM items AS t')"
	done
	expected=
	for memory in 64MB 4MB; do
		found=$(sql "SET work_mem = '$memory'" "SELECT $digest FROM ($ours 'netChanges')) AS t")
		check "net changes with $memory" "$found" "${expected:-$found}"
		expected=$found
	done
	p9_rows=${expected%% *}
	check 'rows of net changes' "$p9_rows" "$(($1 * 7 / 5))"
	for form in "${p9_forms[@]}"; do
		check "${p9_titles[$form]}" "$(sql "SET work_mem = '64MB'" "SELECT $digest FROM (${form_sql[$form]}) AS t")" "$expected"
	done
}
