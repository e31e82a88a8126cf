-- The second half of "make demo": what pgbench did.

\echo
\echo '=== 8. The first changes of pgbench_accounts, as images before and after'
\echo
SELECT _commit_version AS version, _change_type, row_data->>'aid' AS aid, row_data->>'abalance' AS abalance
FROM stream_changes('pgbench_accounts', starting_version => 1, ending_version => 5, compute_updates => true)
LIMIT 6;

\echo
\echo '=== 9. Net effect: pgbench updated the one branch in every transaction, each teller in many, most accounts once'
\echo
SELECT 'pgbench_branches' AS table_name, _change_type, count(*)
FROM stream_changes('pgbench_branches', starting_version => 1, deduplication_mode => 'netChanges', compute_updates => true)
GROUP BY _change_type
UNION ALL
SELECT 'pgbench_tellers', _change_type, count(*)
FROM stream_changes('pgbench_tellers', starting_version => 1, deduplication_mode => 'netChanges', compute_updates => true)
GROUP BY _change_type
UNION ALL
SELECT 'pgbench_accounts', _change_type, count(*)
FROM stream_changes('pgbench_accounts', starting_version => 1, deduplication_mode => 'netChanges', compute_updates => true)
GROUP BY _change_type
ORDER BY table_name, _change_type;

\echo
\echo '=== 10. Versions: one for each transaction that pgbench committed, besides version 0, the rows that were there'
\echo
SELECT count(*) AS versions, sum(inserts) AS inserts, sum(updates) AS updates, sum(deletes) AS deletes
FROM stream_versions('pgbench_accounts', starting_version => 1);

\echo
\echo '=== 11. What is tracked now'
\echo
SELECT table_name, status, last_version, changes, pg_size_pretty(log_bytes) AS log,
       pg_size_pretty(pg_total_relation_size(table_name::regclass)) AS "table", lag_bytes
FROM stream_tables ORDER BY table_name;

\echo
\echo '=== 12. The proof: adding up the log from version 0 (+1 for each row that came, -1 for each that went) gives the table'
\echo
CREATE TEMP TABLE proof AS
WITH log AS (
    SELECT row_data, sum(CASE WHEN _change_type = 'insert' THEN 1 ELSE -1 END) AS copies
    FROM stream_changes('pgbench_accounts', starting_version => 0)
    GROUP BY row_data
), now AS (
    SELECT to_jsonb(a) AS row_data, count(*) AS copies
    FROM pgbench_accounts a
    GROUP BY row_data
)
SELECT count(now) AS rows_in_table, count(log) AS rows_in_log,
       count(*) FILTER (WHERE log.copies IS DISTINCT FROM now.copies) AS differences
FROM (SELECT * FROM log WHERE copies <> 0) log FULL JOIN now USING (row_data);
SELECT * FROM proof;

-- the demo must not end well if it is not so
\set ECHO none
SELECT differences <> 0 OR rows_in_table = 0 AS differs FROM proof \gset
\if :differs
DO $$ BEGIN RAISE EXCEPTION 'the log and the table differ'; END $$;
\endif
