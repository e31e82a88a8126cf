--
-- What a user types first: track a table, change it, read the changes.
-- The extension is loaded by the test runner.
--
CREATE TABLE orders (id int PRIMARY KEY, customer text NOT NULL, amount numeric(10,2));
INSERT INTO orders VALUES (1, 'ann', 10.00), (2, 'bob', 20.00);

SELECT stream_track('orders', on_truncate => 'gap');
-- the two rows become version 0; without this, what follows might be copied too
SELECT stream_sync('60 s') IS NOT NULL AS synced;

INSERT INTO orders VALUES (3, 'cid', 30.00);
UPDATE orders SET amount = 21.00 WHERE id = 2;
UPDATE orders SET amount = amount WHERE id = 1;   -- rewrites the row, changes nothing
DELETE FROM orders WHERE id = 1;
BEGIN;
INSERT INTO orders VALUES (4, 'dee', 40.00);
UPDATE orders SET customer = 'dora' WHERE id = 4;
INSERT INTO orders VALUES (5, 'eve', 50.00);
DELETE FROM orders WHERE id = 5;
COMMIT;

-- everything, as delete and insert
SELECT _change_type, _commit_version, row_data FROM stream_changes('orders');
-- since version 1, updates recognised
SELECT _change_type, _commit_version, row_data
FROM stream_changes('orders', starting_version => 1, compute_updates => true);
-- carry-overs kept
SELECT _change_type, _commit_version, row_data
FROM stream_changes('orders', starting_version => 3, ending_version => 3, deduplication_mode => 'none');
-- the net effect since version 1
SELECT _change_type, _commit_version, row_data
FROM stream_changes('orders', starting_version => 1, deduplication_mode => 'netChanges', compute_updates => true);
-- typed, and by regclass
SELECT (row_data).*, _change_type FROM stream_changes(NULL::orders, starting_version => 5);
SELECT count(*) FROM stream_changes('orders'::regclass);
-- as PostgreSQL wrote it
SELECT event, _commit_version, event_number, old_row, new_row FROM stream_events('orders', starting_version => 4);
SELECT _commit_version, commit_lsn IS NULL AS no_lsn, xid IS NULL AS no_xid, origin, inserts, updates, deletes
FROM stream_versions('orders');
SELECT stream_latest_version('orders'), stream_version_at('orders', 'infinity'), stream_version_at('orders', '-infinity');

SELECT table_name, status, identity_columns, first_version, last_version, changes, on_truncate, baseline_rows,
       baseline_fraction, last_error
FROM stream_tables;

-- errors say what to do
\set VERBOSITY default
SELECT * FROM stream_changes('orders', starting_version => 5, ending_version => 4);
SELECT * FROM stream_changes('orders', ending_version => 4);
SELECT * FROM stream_changes('orders', starting_version => 1, starting_timestamp => now());
SELECT * FROM stream_changes('orders', deduplication_mode => 'some');
SELECT * FROM stream_changes('orders', deduplication_mode => 'none', compute_updates => true);
-- nothing is missing below the first version
SELECT count(*) FROM stream_changes('orders', starting_version => -1);
SELECT * FROM stream_changes('no_such_table');
SELECT stream_track('orders');
SELECT stream_track('orders', on_truncate => 'some');
SELECT stream_alter('orders', on_truncate => 'forbid');
TRUNCATE orders;
SELECT stream_alter('orders', on_truncate => 'gap');

-- columns come and go
ALTER TABLE orders ADD COLUMN note text DEFAULT 'none', DROP COLUMN customer;
UPDATE orders SET amount = 31.00 WHERE id = 3;
ALTER TABLE orders RENAME COLUMN amount TO price;
UPDATE orders SET price = 32.00 WHERE id = 3;
SELECT _change_type, _commit_version, row_data FROM stream_changes('orders', starting_version => 6);
SELECT _change_type, _commit_version, (row_data).* FROM stream_changes(NULL::orders, starting_version => 5);
SELECT event, _commit_version, event_number FROM stream_events('orders', starting_version => 6);

-- TRUNCATE leaves a gap, if asked to: ranges that include it are refused, others are not
TRUNCATE orders;
INSERT INTO orders (id, price) VALUES (9, 9.00);
SELECT _change_type FROM stream_changes('orders', starting_version => 7);
SELECT _change_type, _commit_version, row_data FROM stream_changes('orders', starting_version => 9);
SELECT event, _commit_version FROM stream_events('orders', starting_version => 8);
SELECT status FROM stream_tables;

-- a new beginning: versions go on
SELECT stream_untrack('orders');
SELECT stream_changes('orders');
SELECT stream_track('orders', on_truncate => 'gap');
SELECT stream_sync('60 s') IS NOT NULL AS synced;
SELECT _change_type, _commit_version, row_data FROM stream_changes('orders');

-- a dropped table's log stays
DROP TABLE orders;
SELECT table_name ~ '^orders \(dropped \d+\)$' AS named, status FROM stream_tables;
SELECT _change_type, _commit_version, row_data FROM stream_changes('orders');
