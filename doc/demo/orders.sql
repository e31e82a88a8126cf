-- The first half of "make demo": a small table, change by change.

\echo
\echo '=== 1. An ordinary table with two rows in it, which is then tracked'
\echo
CREATE EXTENSION streamcdc;
CREATE TABLE orders (id int PRIMARY KEY, customer text NOT NULL, status text NOT NULL, amount numeric(10,2) NOT NULL);
INSERT INTO orders VALUES (1, 'Ada', 'new', 20.00), (2, 'Ben', 'new', 35.50);
SELECT stream_track('orders') \g (format=unaligned tuples_only=on)
\echo '    (the rows that are there become version 0, what is committed after this is version 1, 2, ...)'
SELECT stream_sync() \g (format=unaligned tuples_only=on)

\echo
\echo '=== 2. Ordinary clients change it; each transaction will be one version'
\echo
INSERT INTO orders VALUES (3, 'Cleo', 'new', 7.25);
UPDATE orders SET status = 'paid' WHERE id = 1;
UPDATE orders SET status = status WHERE id = 2;
DELETE FROM orders WHERE id = 3;
INSERT INTO orders VALUES (3, 'Cleo', 'new', 8.00);
BEGIN;
UPDATE orders SET status = 'sent' WHERE id = 1;
INSERT INTO orders VALUES (4, 'Dan', 'new', 99.90);
COMMIT;

\echo
\echo '=== 3. What changed since version 1, updates as images before and after'
\echo '    (version 0 is what was there when tracking began; the update that changed nothing is left out)'
\echo
SELECT _commit_version AS version, _change_type, row_data
FROM stream_changes('orders', starting_version => 1, compute_updates => true);

\echo
\echo '=== 4. The net effect of it all: one change a row, whatever happened in between'
\echo '    (order 1 went from new to paid to sent, order 3 was inserted, deleted and inserted again)'
\echo
SELECT _commit_version AS version, _change_type, row_data
FROM stream_changes('orders', starting_version => 1, deduplication_mode => 'netChanges', compute_updates => true);

\echo
\echo '=== 5. The same with real columns instead of jsonb, and every event as it was, the one without effect included'
\echo
SELECT _commit_version AS version, _change_type, (row_data).*
FROM stream_changes(NULL::orders, starting_version => 5);
SELECT _commit_version AS version, event_number AS "#", event, old_row->>'status' AS old_status, new_row->>'status' AS new_status
FROM stream_events('orders', starting_version => 3, ending_version => 3);

\echo
\echo '=== 6. The versions: when, by which transaction, and how many events'
\echo
SELECT _commit_version AS version, commit_time, commit_lsn, xid, inserts, updates, deletes
FROM stream_versions('orders');

\echo
\echo '=== 7. What is tracked'
\echo
SELECT table_name, status, identity_columns, first_version, last_version, changes, pg_size_pretty(log_bytes) AS log
FROM stream_tables;
