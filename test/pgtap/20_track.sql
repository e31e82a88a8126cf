-- Which tables can be tracked, by whom, and with which arguments; what is told when not.
-- stream_track is tried for real where it works, so nothing here runs in one big transaction.

SET client_min_messages = warning;

SELECT plan(90);

CREATE ROLE p20_owner;
CREATE ROLE p20_stranger;
CREATE SCHEMA p20 AUTHORIZATION p20_owner;
SET search_path = p20, public;

/*
 * Kinds of relations
 */
CREATE TABLE plain (id int PRIMARY KEY, v text);
CREATE VIEW a_view AS SELECT * FROM plain;
CREATE MATERIALIZED VIEW a_matview AS SELECT * FROM plain;
CREATE SEQUENCE a_sequence;
CREATE TYPE a_type AS (id int);
CREATE FOREIGN DATA WRAPPER p20_wrapper;
CREATE SERVER p20_server FOREIGN DATA WRAPPER p20_wrapper;
CREATE FOREIGN TABLE a_foreign_table (id int) SERVER p20_server;
CREATE TABLE a_partitioned_table (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE a_partition PARTITION OF a_partitioned_table FOR VALUES FROM (1) TO (10);
CREATE UNLOGGED TABLE an_unlogged_table (id int PRIMARY KEY);
CREATE TEMP TABLE a_temporary_table (id int PRIMARY KEY);

SELECT throws_ok($$SELECT stream_track('a_view')$$, '42809', 'cannot track "a_view"', 'a view');
SELECT throws_ok($$SELECT stream_track('a_matview')$$, '42809', 'cannot track "a_matview"', 'a materialized view');
SELECT throws_ok($$SELECT stream_track('a_foreign_table')$$, '42809', 'cannot track "a_foreign_table"', 'a foreign table');
SELECT throws_ok($$SELECT stream_track('a_sequence')$$, '42809', 'cannot track "a_sequence"', 'a sequence');
SELECT throws_ok($$SELECT stream_track('plain_pkey')$$, '42809', 'cannot track "plain_pkey"', 'an index');
SELECT throws_ok($$SELECT stream_track('a_partitioned_table_pkey')$$, '42809', NULL, 'a partitioned index');
SELECT throws_ok($$SELECT stream_track('a_type')$$, '42809', 'cannot track "a_type"', 'a composite type');
SELECT throws_ok($$SELECT stream_track((SELECT reltoastrelid FROM pg_class WHERE oid = 'plain'::regclass))$$, '42809', NULL, 'a toast table');
SELECT throws_ok($$SELECT stream_track('a_temporary_table')$$, '0A000', 'cannot track table "a_temporary_table"', 'a temporary table');
SELECT throws_ok($$SELECT stream_track('an_unlogged_table')$$, '0A000', 'cannot track table "an_unlogged_table"', 'an unlogged table');
SELECT throws_ok($$SELECT stream_track('pg_class')$$, '0A000', NULL, 'a system catalog');
SELECT throws_ok($$SELECT stream_track('pg_database')$$, '0A000', NULL, 'a shared catalog');
SELECT throws_ok($$SELECT stream_track('information_schema.sql_features')$$, '0A000', NULL, 'a table of the information schema');
SELECT throws_ok($$SELECT stream_track('streamcdc.blocks')$$, '0A000', NULL, 'a table of the extension');
SELECT throws_ok($$SELECT stream_track('streamcdc.registry')$$, '0A000', NULL, 'another one');
SELECT throws_ok($$SELECT stream_track('not_there')$$, '42P01', NULL, 'an unknown name');
SELECT throws_ok($$SELECT stream_track(0)$$, '42P01', NULL, 'OID 0');
SELECT throws_ok($$SELECT stream_track(4000000000)$$, '42P01', NULL, 'an unknown OID');
SELECT throws_ok($$SELECT stream_track(NULL)$$, '22004', 'table_name must not be null', 'NULL');

/*
 * Columns and publications
 */
CREATE TABLE reserved_1 (id int PRIMARY KEY, _change_type text);
CREATE TABLE reserved_2 (id int PRIMARY KEY, _commit_version text);
CREATE TABLE reserved_3 (_commit_timestamp text);
CREATE TABLE reserved_4 (id int PRIMARY KEY, _change_type text);
ALTER TABLE reserved_4 DROP COLUMN _change_type;
SELECT throws_ok($$SELECT stream_track('reserved_1')$$, '55000', 'cannot track table "reserved_1"', 'a column _change_type');
SELECT throws_ok($$SELECT stream_track('reserved_2')$$, '55000', 'cannot track table "reserved_2"', 'a column _commit_version');
SELECT throws_ok($$SELECT stream_track('reserved_3')$$, '55000', 'cannot track table "reserved_3"', 'a column _commit_timestamp');
SELECT lives_ok($$SELECT stream_track('reserved_4')$$, 'one that was dropped does not matter');

CREATE TABLE published (id int PRIMARY KEY, v text);
CREATE PUBLICATION p20_columns FOR TABLE published (id);
SELECT throws_ok($$SELECT stream_track('published')$$, '55000', 'cannot track table "published"', 'in a publication with a column list');
ALTER PUBLICATION p20_columns SET TABLE published;
SELECT lives_ok($$SELECT stream_track('published')$$, 'in one without');

/*
 * Identity
 */
CREATE TABLE identities (
	a int NOT NULL, b int NOT NULL, c int, d int NOT NULL, e int NOT NULL, f int NOT NULL,
	PRIMARY KEY (b, a),
	UNIQUE (c),
	UNIQUE (d) DEFERRABLE INITIALLY DEFERRED
);
CREATE UNIQUE INDEX identities_partial ON identities (e) WHERE e > 0;
CREATE UNIQUE INDEX identities_expression ON identities ((f + 1));
CREATE UNIQUE INDEX identities_including ON identities (a) INCLUDE (f);
CREATE INDEX identities_plain ON identities (f);
SELECT throws_ok($$SELECT stream_track('identities', ARRAY['e'])$$, '42P10', NULL, 'identity: a partial index does not do');
SELECT throws_ok($$SELECT stream_track('identities', ARRAY['f'])$$, '42P10', NULL, 'identity: nor an index that is not unique, or on an expression');
SELECT throws_ok($$SELECT stream_track('identities', ARRAY['b'])$$, '42P10', NULL, 'identity: nor some columns of one');
SELECT throws_ok($$SELECT stream_track('identities', ARRAY['a', 'b', 'c'])$$, '42P10', NULL, 'identity: nor more than those');
SELECT throws_ok($$SELECT stream_track('identities', ARRAY['a', 'f'])$$, '42P10', NULL, 'identity: nor with included columns');
SELECT throws_ok($$SELECT stream_track('identities', ARRAY['x'])$$, '42P10', NULL, 'identity: an unknown column');
SELECT throws_ok($$SELECT stream_track('identities', ARRAY['ctid'])$$, '42P10', NULL, 'identity: a system column');
SELECT throws_ok($$SELECT stream_track('identities', ARRAY['a', 'a'])$$, '42701', NULL, 'identity: a column twice');
SELECT throws_ok($$SELECT stream_track('identities', ARRAY['a', NULL])$$, '22004', NULL, 'identity: NULL as a column');
SELECT throws_ok($$SELECT stream_track('identities', ARRAY[]::name[])$$, '22023', NULL, 'identity: no column');
SELECT throws_ok($$SELECT stream_track('identities', ARRAY[ARRAY['a', 'b'], ARRAY['c', 'd']])$$, '2202E', NULL, 'identity: two dimensions');
SELECT is((SELECT count(*) FROM stream_tables WHERE table_name = 'identities'), 0::bigint, 'after all of these nothing is tracked');

-- identity_columns of a table tracked so; it is untracked again
CREATE FUNCTION identity_of(name text, columns name[] DEFAULT NULL) RETURNS name[] LANGUAGE plpgsql AS $$
DECLARE
	result name[];
BEGIN
	PERFORM stream_track(name::regclass, columns);
	SELECT identity_columns INTO result FROM stream_tables WHERE table_name = name;
	PERFORM stream_untrack(name::regclass);
	RETURN result;
END $$;
CREATE TABLE with_replica_index (a int NOT NULL, b int NOT NULL, UNIQUE (a));
CREATE UNIQUE INDEX with_replica_index_b ON with_replica_index (b);
ALTER TABLE with_replica_index REPLICA IDENTITY USING INDEX with_replica_index_b;
CREATE TABLE key_and_replica_index (a int PRIMARY KEY, b int NOT NULL);
CREATE UNIQUE INDEX key_and_replica_index_b ON key_and_replica_index (b);
ALTER TABLE key_and_replica_index REPLICA IDENTITY USING INDEX key_and_replica_index_b;
CREATE TABLE without_identity (a int, UNIQUE (a));
SELECT is(identity_of('identities'), ARRAY['b', 'a']::name[], 'identity: the primary key, in its order');
SELECT is(identity_of('identities', ARRAY['c']), ARRAY['c']::name[], 'identity: unique columns, also if they can be NULL');
SELECT is(identity_of('identities', ARRAY['d']), ARRAY['d']::name[], 'identity: a deferrable constraint counts');
SELECT is(identity_of('identities', ARRAY['a']), ARRAY['a']::name[], 'identity: an index with included columns, by its key');
SELECT bag_eq($$SELECT unnest(p20.identity_of('identities', ARRAY['a', 'b']))$$, $$VALUES ('a'::name), ('b')$$, 'identity: columns in any order');
SELECT is(identity_of('with_replica_index'), ARRAY['b']::name[], 'identity: the index of REPLICA IDENTITY');
SELECT is(identity_of('key_and_replica_index'), ARRAY['a']::name[], 'identity: the primary key comes before it');
SELECT is(coalesce(identity_of('without_identity'), '{}'), '{}'::name[], 'identity: none; a unique constraint is not chosen by itself');

/*
 * Other arguments
 */
SELECT throws_ok($$SELECT stream_track('plain', retention => '-1 day')$$, '22023', 'retention must not be negative', 'a negative retention');
SELECT throws_ok($$SELECT stream_track('plain', retention => '1 day -1 month')$$, '22023', NULL, 'also if it is mixed');
SELECT throws_ok($$SELECT stream_track('plain', on_truncate => 'keep')$$, '22023', 'unrecognized value for on_truncate: "keep"', 'an unknown on_truncate');
SELECT throws_ok($$SELECT stream_track('plain', on_truncate => '')$$, '22023', NULL, 'an empty on_truncate');
SELECT lives_ok($$SELECT stream_track('plain', NULL, NULL, NULL, NULL)$$, 'NULL means not given');
SELECT results_eq($$SELECT on_truncate, retention FROM stream_tables WHERE table_name = 'plain'$$,
	$$VALUES ('delete'::text, NULL::interval)$$, 'the default is delete');
SELECT throws_ok($$SELECT stream_track('plain')$$, '42710', 'table "plain" is already tracked', 'tracked twice');
SELECT throws_ok($$SELECT stream_track('without_identity'); SELECT stream_track('without_identity')$$, '42710', NULL, 'twice in one transaction');
SELECT lives_ok($$SELECT stream_untrack('plain')$$, 'stream_untrack');
SELECT lives_ok($$SELECT stream_track('plain', retention => '1 day', on_truncate => 'GAP')$$, 'words ignore letter case');
SELECT results_eq($$SELECT on_truncate, retention FROM stream_tables WHERE table_name = 'plain'$$,
	$$VALUES ('gap'::text, '1 day'::interval)$$, 'stream_tables shows the arguments');
SELECT lives_ok($$SELECT stream_alter('plain', on_truncate => 'Forbid')$$, 'stream_alter');
SELECT results_eq($$SELECT on_truncate, retention FROM stream_tables WHERE table_name = 'plain'$$,
	$$VALUES ('forbid'::text, '1 day'::interval)$$, 'changes what it is told, and nothing else');
SELECT lives_ok($$SELECT stream_alter('plain', '2 days')$$, 'the other one');
SELECT lives_ok($$SELECT stream_alter('plain')$$, 'nothing');
SELECT results_eq($$SELECT on_truncate, retention FROM stream_tables WHERE table_name = 'plain'$$,
	$$VALUES ('forbid'::text, '2 days'::interval)$$, 'NULL leaves things as they are');
SELECT throws_ok($$SELECT stream_alter('plain', on_truncate => 'keep')$$, '22023', 'unrecognized value for on_truncate: "keep"', 'stream_alter: an unknown on_truncate');
SELECT throws_ok($$SELECT stream_alter('plain', '-1 s')$$, '22023', 'retention must not be negative', 'stream_alter: a negative retention');
SELECT throws_ok($$SELECT stream_alter(NULL)$$, '22004', NULL, 'stream_alter: no table');
SELECT throws_ok($$SELECT stream_alter('without_identity', '1 day')$$, '0A000', 'table "without_identity" is not tracked', 'stream_alter: a table that is not tracked');
SELECT throws_ok($$SET LOCAL transaction_read_only = on; SELECT stream_alter('plain', '1 day')$$, '25006', NULL, 'stream_alter: not in a read-only transaction');
SELECT throws_ok($$SET LOCAL transaction_read_only = on; SELECT stream_track('without_identity')$$, '25006', NULL, 'not in a read-only transaction');
SELECT throws_ok($$SET LOCAL transaction_read_only = on; SELECT stream_untrack('plain')$$, '25006', NULL, 'nor is stream_untrack');

/*
 * Rights
 */
CREATE TABLE owned (id int PRIMARY KEY);
ALTER TABLE owned OWNER TO p20_owner;
GRANT ALL ON owned TO p20_stranger;
GRANT USAGE ON SCHEMA p20 TO p20_stranger;
SELECT throws_ok($$SET LOCAL ROLE p20_stranger; SELECT stream_track('p20.owned')$$, '42501', 'must be owner of table owned', 'only the owner may track');
SELECT throws_ok($$SET LOCAL ROLE p20_stranger; SELECT stream_alter('p20.owned', '1 day')$$, '42501', 'must be owner of table owned', 'or alter');
SET ROLE p20_owner;
SELECT stream_track('owned') \g /dev/null
RESET ROLE;
SELECT is((SELECT count(*) FROM stream_tables WHERE table_name = 'owned'), 1::bigint, 'who need not be a superuser');
SELECT throws_ok($$SET LOCAL ROLE p20_stranger; SELECT stream_untrack('p20.owned')$$, '42501', 'must be owner of table owned', 'only the owner may untrack');
SELECT throws_ok($$SET LOCAL ROLE p20_owner; SELECT count(*) FROM streamcdc.blocks$$, '42501', NULL, 'nobody reads the log but through functions');
SELECT throws_ok($$SET LOCAL ROLE p20_owner; INSERT INTO streamcdc.registry VALUES (1, 1, 1)$$, '42501', NULL, 'nor writes it');
SELECT lives_ok($$SET LOCAL ROLE p20_stranger; SELECT stream_sync('1 min')$$, 'everybody may stream_sync');
SET ROLE p20_owner;
SELECT stream_untrack('owned') \g /dev/null
RESET ROLE;
SELECT is((SELECT count(*) FROM stream_tables WHERE table_name = 'owned'), 0::bigint, 'and the owner may untrack');

/*
 * stream_untrack and stream_sync
 */
SELECT throws_ok($$SELECT stream_untrack('owned')$$, '0A000', 'table "owned" is not tracked', 'untracked already');
SELECT throws_ok($$SELECT stream_untrack('without_identity')$$, '0A000', NULL, 'never tracked');
SELECT throws_ok($$SELECT stream_untrack('a_view')$$, '0A000', NULL, 'not a table');
SELECT throws_ok($$SELECT stream_untrack('not_there')$$, '42P01', NULL, 'stream_untrack of an unknown name');
SELECT throws_ok($$SELECT stream_untrack(4000000000)$$, '42P01', NULL, 'of an unknown OID');
SELECT throws_ok($$SELECT stream_untrack(NULL)$$, '22004', NULL, 'of NULL');
SELECT throws_ok($$SELECT stream_sync('-1 second')$$, '22023', 'timeout must not be negative', 'a negative timeout');
SELECT ok(stream_sync('180 s') <= pg_current_wal_insert_lsn(), 'stream_sync returns a position');
SELECT ok(stream_sync(NULL) IS NOT NULL, 'NULL is the default timeout');

/*
 * REPLICA IDENTITY: full while tracked, and as before afterwards
 */
CREATE TABLE replica_d (a int PRIMARY KEY);
CREATE TABLE replica_i (a int PRIMARY KEY, b int NOT NULL);
CREATE UNIQUE INDEX replica_i_b ON replica_i (b);
ALTER TABLE replica_i REPLICA IDENTITY USING INDEX replica_i_b;
CREATE TABLE replica_n (a int PRIMARY KEY);
ALTER TABLE replica_n REPLICA IDENTITY NOTHING;
CREATE TABLE replica_f (a int PRIMARY KEY);
ALTER TABLE replica_f REPLICA IDENTITY FULL;
CREATE TABLE replica_x (a int NOT NULL);
CREATE UNIQUE INDEX replica_x_a ON replica_x (a);
ALTER TABLE replica_x REPLICA IDENTITY USING INDEX replica_x_a;
CREATE VIEW replica AS SELECT string_agg(relreplident::text, '' ORDER BY relname) AS letters FROM pg_class WHERE relname ~ '^replica_.$';

SELECT is((SELECT letters FROM replica), 'dfini', 'before');
SELECT stream_track('replica_' || x) FROM unnest(ARRAY['d', 'f', 'i', 'n', 'x']) AS x \g /dev/null
SELECT is((SELECT letters FROM replica), 'fffff', 'while they are tracked');
DROP INDEX replica_x_a;
SELECT stream_untrack('replica_' || x) FROM unnest(ARRAY['d', 'f', 'i', 'n', 'x']) AS x \g /dev/null
SELECT is((SELECT letters FROM replica), 'dfind', 'afterwards; default where the index is gone');
SELECT ok((SELECT indisreplident FROM pg_index WHERE indexrelid = 'replica_i_b'::regclass), 'with the same index');
BEGIN;
SELECT stream_track('replica_d') \g /dev/null
ROLLBACK;
SELECT is((SELECT letters FROM replica), 'dfind', 'and when stream_track is rolled back');

/*
 * Tidy up, for the files that come after this one
 */
SELECT stream_untrack(table_name) FROM stream_tables WHERE table_name IN ('plain', 'reserved_4', 'published') \g /dev/null
DROP PUBLICATION p20_columns;
DROP SCHEMA p20 CASCADE;
DROP FOREIGN DATA WRAPPER p20_wrapper CASCADE;
DROP ROLE p20_owner, p20_stranger;

SELECT * FROM finish();
