-- The last part of "make demo": a job that keeps net changes flowing into another table.

\echo
\echo '=== 10. A continuous job: net changes of pgbench_tellers, each exactly once, into a table of their own'
\echo
SELECT stream_start('tellers_net', 'pgbench_tellers', sink => 'tellers_net',
					options => '{"deduplicationMode": "netChanges", "computeUpdates": true, "startingVersion": "latest"}') IS NOT NULL AS started;
\! pgbench -n -c 2 -t 50 demo 2>&1 | grep 'number of transactions actually'
SELECT stream_process_all_available('tellers_net', '60 s') \g (format=unaligned tuples_only=on)
SELECT _change_type, count(*) FROM tellers_net GROUP BY _change_type ORDER BY _change_type;

\echo
\echo '=== 11. What it is doing, and what its batches did'
\echo
SELECT query_name, source, sink, status, batch_id, processed_version, lag_versions, input_rows, output_rows FROM stream_queries;
SELECT p->'batchId' AS batch, p->'numInputRows' AS "in", p->'sink'->'numOutputRows' AS out,
	   p->'sources'->0->'startOffset' AS after, p->'sources'->0->'endOffset' AS up_to, p->'durationMs'->'triggerExecution' AS ms
FROM stream_recent_progress('tellers_net') AS p ORDER BY (p->'batchId')::int DESC LIMIT 3;
