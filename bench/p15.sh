# shellcheck shell=bash disable=SC2154
# Bytes: what the change log takes, and what WAL it writes, against the WAL of the changes themselves, which is
# measured while the capture worker is stopped.  Bytes do not depend on the machine's mood: one round.

bench_p15() {
	local rows
	rows=$(scaled 1000000)
	begin_bench "P15 bytes of the change log, against the WAL of the changes"
	sql 'CREATE TABLE items (id bigint PRIMARY KEY, customer int NOT NULL, status text NOT NULL, amount numeric(10,2) NOT NULL,
			note text NOT NULL, placed timestamptz NOT NULL)' \
		'CREATE EXTENSION pg_walinspect' \
		"SELECT stream_track('items')" >/dev/null
	settle

	printf '%-28s %10s %10s %10s %10s %10s %12s\n' "$rows rows, MB:" 'WAL' 'heap WAL' 'blocks' 'log' 'log WAL' 'log / WAL'
	p15_load 'bulk insert' "$rows 0 0" 0.5 \
		"INSERT INTO items SELECT i, random() * 100000, (ARRAY['new', 'paid', 'sent'])[1 + random() * 2], (random() * 1000)::numeric(10,2),
			md5(i::text), now() + i * interval '1 ms' FROM generate_series(1, $rows) AS i"
	p15_load 'update of one column' "0 $rows 0" '' "UPDATE items SET status = 'done'"
	p15_load 'delete' "0 0 $rows" '' 'DELETE FROM items'
	echo 'WAL: all that the statement wrote, the index included; heap WAL: its heap records alone, without page images;'
	echo 'blocks: stored blocks; log: with the table, its TOAST table and its index; log WAL: what capture wrote, position and all'
}

p15_sizes() {
	sql "SELECT coalesce(sum(octet_length(versions) + octet_length(changes)), 0), pg_total_relation_size('streamcdc.blocks'),
		pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') FROM streamcdc.blocks"
}

# p15_load NAME EXPECTED TARGET STATEMENT
p15_load() {
	local first end events heap before after delta ratio
	# the checkpoint keeps page images of older pages out of none: they belong to the source's WAL as anybody has it
	sql CHECKPOINT
	settle
	pause_capture
	events=$(logged items)
	first=$(sql 'SELECT pg_current_wal_insert_lsn()')
	sql "$4"
	end=$(sql 'SELECT pg_current_wal_insert_lsn()')
	heap=$(sql "SELECT sum(record_size)::bigint FROM pg_get_wal_stats('$first', '$end', false) WHERE \"resource_manager/record_type\" IN ('Heap', 'Heap2')")
	before=$(p15_sizes)
	resume_capture
	settle
	after=$(p15_sizes)
	check "events of the log" "$(awk -v a="$(logged items)" -v b="$events" 'BEGIN { split(a, x); split(b, y); print x[2] - y[2], x[3] - y[3], x[4] - y[4] }')" "$2"
	delta=$(awk -v a="$after" -v b="$before" -v w="$(sql "SELECT pg_wal_lsn_diff('$end', '$first')")" -v h="$heap" 'BEGIN {
		split(a, x); split(b, y); m = 1000000
		printf "%10.1f %10.1f %10.1f %10.1f %10.1f %12.3f", w / m, h / m, (x[1] - y[1]) / m, (x[2] - y[2]) / m, (x[3] - y[3]) / m, (x[2] - y[2]) / w }')
	ratio=${delta##* }
	printf '  %-26s %s%s\n' "$1" "$delta" "${3:+  $(target "$ratio" '<=' "$3")}"
}
