-- The last part of "make demo": jobs that keep net changes, and a copy, flowing into other tables.

\echo
\echo '=== 13. A continuous job: net changes of pgbench_tellers, each exactly once, into a table of their own'
\echo
SELECT stream_start('tellers_net', 'pgbench_tellers', sink => 'tellers_net',
                    options => '{"deduplicationMode": "netChanges", "computeUpdates": true, "startingVersion": "latest"}') IS NOT NULL AS started;
\echo '    (and another one that keeps a copy of pgbench_accounts, from version 0 on)'
SELECT stream_start('accounts_copy', 'pgbench_accounts', sink => 'accounts_copy', sink_mode => 'apply') IS NOT NULL AS started;
\! pgbench -n -c 2 -t 50 demo 2>&1 | grep 'number of transactions actually'
SELECT stream_process_all_available('tellers_net', '60 s'), stream_process_all_available('accounts_copy', '60 s')
\g (format=unaligned tuples_only=on fieldsep=' ')

\echo '=== 14. What is in the sinks now'
\echo '    (batches are small where the job keeps up: nearly every transaction is one, and what it came to is two images of a teller)'
\echo
SELECT _commit_version AS version, _change_type, tid, tbalance FROM tellers_net ORDER BY _commit_version, _change_type DESC LIMIT 6;
SELECT _change_type, count(*) FROM tellers_net GROUP BY _change_type ORDER BY _change_type;
CREATE TEMP TABLE proof_of_copy AS
SELECT (SELECT count(*) FROM accounts_copy) AS rows_in_copy,
       (SELECT count(*) FROM (TABLE pgbench_accounts EXCEPT ALL TABLE accounts_copy) AS x) AS differences;
SELECT * FROM proof_of_copy;

\echo
\echo '=== 15. What the jobs are doing'
\echo
SELECT query_name, source, sink, sink_mode, status, batch_id, processed_version AS version, lag_versions AS lag, input_rows, output_rows, last_error
FROM stream_queries ORDER BY query_name;
SELECT stream_status('tellers_net');
SELECT * FROM stream_explain('tellers_net');

\echo
\echo '=== 16. What the last batches did, in the shape of Spark''s StreamingQueryProgress'
\echo '    (one that has read nothing lets out what the one before it had held back)'
\echo
SELECT p->'batchId' AS batch, p->'sources'->0->'startOffset' AS after_version, p->'sources'->0->'endOffset' AS to_version,
       p->'numInputRows' AS rows_in, p->'sink'->'numOutputRows' AS rows_out, p->'stateOperators'->0->'numRowsTotal' AS rows_in_state
FROM stream_recent_progress('tellers_net') AS p ORDER BY (p->'batchId')::int DESC LIMIT 4;

-- the demo must not end well if it is not so
\set ECHO none
SELECT differences <> 0 OR rows_in_copy = 0 AS differs FROM proof_of_copy \gset
\if :differs
DO $$ BEGIN RAISE EXCEPTION 'the table and its copy differ'; END $$;
\endif
