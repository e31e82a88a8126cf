/* sql/streamcdc--0.1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION streamcdc" to load this file. \quit

/*
 * The extension's own tables.  They hold the truth: change log, versions,
 * schemas, positions.  They are written by the extension's C code only, at
 * heap level and without logical information, so that they never appear in
 * anybody's FOR ALL TABLES publication (src/README.md says how); hence
 * REPLICA IDENTITY NOTHING, and no privileges for anybody.
 */
CREATE SCHEMA streamcdc;
COMMENT ON SCHEMA streamcdc IS 'tables of the extension streamcdc; read them through the functions stream_*';

CREATE SEQUENCE streamcdc.stream_id_seq AS bigint;
COMMENT ON SEQUENCE streamcdc.stream_id_seq IS 'numbers of streams; a stream is one table tracked once';

-- what is tracked, as decoding sees it: read under historic snapshots, so a user catalog table, and nothing out of line
CREATE TABLE streamcdc.registry (
	relid oid NOT NULL,
	root oid NOT NULL,
	stream_id bigint NOT NULL,
	base_version bigint NOT NULL,
	identity_attnums int2[] NOT NULL
) WITH (user_catalog_table = true);
CREATE UNIQUE INDEX registry_relid ON streamcdc.registry (relid);
CREATE INDEX registry_stream ON streamcdc.registry (stream_id, relid);
COMMENT ON TABLE streamcdc.registry IS 'tables being captured, and all below a partitioned one (its root); read by the capture worker as of each change';

CREATE TABLE streamcdc.streams (
	stream_id bigint NOT NULL,
	relid oid NOT NULL,
	schema_name name NOT NULL,
	table_name name NOT NULL,
	owner oid NOT NULL,
	state "char" NOT NULL,
	base_version bigint NOT NULL,
	baseline boolean NOT NULL,
	identity_attnums int2[] NOT NULL,
	identity_index oid NOT NULL,
	retention interval,
	on_truncate text NOT NULL,
	tracked_xid xid8 NOT NULL,
	tracked_at timestamptz NOT NULL,
	last_version bigint,
	reason text,
	home text NOT NULL
);
CREATE UNIQUE INDEX streams_id ON streamcdc.streams (stream_id);
CREATE INDEX streams_relid ON streamcdc.streams (relid, stream_id);
COMMENT ON TABLE streamcdc.streams IS 'one row a stream: l live, g given up with a gap, s given up because a change could not be stored, d table dropped, u untracked (kept so that versions never repeat)';

-- the only one that a dump takes along, and what a dump's owner may read: hence nothing in it that pg_class does not show to everybody
CREATE TABLE streamcdc.definitions (
	home text NOT NULL,
	stream_id bigint NOT NULL,
	schema_name name NOT NULL,
	table_name name NOT NULL,
	identity_columns name[] NOT NULL,
	baseline boolean NOT NULL,
	retention interval,
	on_truncate text NOT NULL,
	old_replica_identity "char" NOT NULL,
	old_replica_index name,
	last_version bigint NOT NULL
);
CREATE INDEX definitions_stream ON streamcdc.definitions (stream_id);
CREATE INDEX definitions_table ON streamcdc.definitions (table_name);
COMMENT ON TABLE streamcdc.definitions IS 'what is tracked, for dumps; home is the installation that tracks it, last_version one that has not been reached yet (the greatest counts)';
SELECT pg_catalog.pg_extension_config_dump('streamcdc.definitions', '');

CREATE TABLE streamcdc.members (
	stream_id bigint NOT NULL,
	relid oid NOT NULL,
	old_replica_identity "char" NOT NULL,
	old_replica_index oid NOT NULL
);
CREATE UNIQUE INDEX members_id ON streamcdc.members (stream_id, relid);
COMMENT ON TABLE streamcdc.members IS 'tables whose rows make up a stream, of a partitioned table its partitions; and the REPLICA IDENTITY that they get back';

CREATE TABLE streamcdc.baselines (
	stream_id bigint NOT NULL,
	attempt bigint NOT NULL,
	snapshot text NOT NULL,
	snapshot_time timestamptz NOT NULL,
	complete boolean NOT NULL,
	row_count bigint NOT NULL
);
CREATE UNIQUE INDEX baselines_id ON streamcdc.baselines (stream_id);
COMMENT ON TABLE streamcdc.baselines IS 'the snapshot under which a stream''s baseline is (being) copied';

CREATE TABLE streamcdc.schemas (
	stream_id bigint NOT NULL,
	schema_number int4 NOT NULL,
	attnum int2 NOT NULL,
	column_id int4 NOT NULL,
	column_name name NOT NULL,
	dropped boolean NOT NULL,
	identity boolean NOT NULL,
	storage "char" NOT NULL,
	type_oid oid NOT NULL,
	type_mod int4 NOT NULL,
	type_name text NOT NULL,
	collation_oid oid NOT NULL,
	raw_type oid NOT NULL,
	attlen int2 NOT NULL,
	attbyval boolean NOT NULL,
	attalign "char" NOT NULL,
	type_parts text
);
CREATE UNIQUE INDEX schemas_id ON streamcdc.schemas (stream_id, schema_number, attnum);
COMMENT ON TABLE streamcdc.schemas IS 'which columns a table had, and how its row images are laid out';

-- the server forgets it when the table is rewritten; NULL is not noted
CREATE TABLE streamcdc.missing_values (
	stream_id bigint NOT NULL,
	attnum int2 NOT NULL,
	value text NOT NULL
);
CREATE UNIQUE INDEX missing_values_id ON streamcdc.missing_values (stream_id, attnum);
COMMENT ON TABLE streamcdc.missing_values IS 'what rows have in a column that was added after they were written';

CREATE TABLE streamcdc.blocks (
	stream_id bigint NOT NULL,
	first_version bigint NOT NULL,
	chunk int4 NOT NULL,
	last_version bigint NOT NULL,
	schema_number int4 NOT NULL,
	flags int4 NOT NULL,
	first_timestamp timestamptz NOT NULL,
	last_timestamp timestamptz NOT NULL,
	inserts bigint NOT NULL,
	updates bigint NOT NULL,
	deletes bigint NOT NULL,
	raw_size int4 NOT NULL,
	versions bytea NOT NULL,
	changes bytea NOT NULL
);
ALTER TABLE streamcdc.blocks ALTER COLUMN versions SET STORAGE EXTERNAL, ALTER COLUMN changes SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX blocks_key ON streamcdc.blocks (stream_id, first_version, chunk);
COMMENT ON TABLE streamcdc.blocks IS 'the change log: packed, compressed changes';

CREATE TABLE streamcdc.slots (
	slot_name name NOT NULL,
	system_identifier text NOT NULL,
	database_oid oid NOT NULL,
	consistent_lsn pg_lsn NOT NULL,
	created_at timestamptz NOT NULL
);
COMMENT ON TABLE streamcdc.slots IS 'the replication slot that capture relies on; at most one row';

-- append-only, trimmed by the capture worker: no hot row that a long snapshot keeps from being pruned
CREATE TABLE streamcdc.positions (
	lsn pg_lsn NOT NULL,
	stored_at timestamptz NOT NULL
);
CREATE INDEX positions_lsn ON streamcdc.positions (lsn);
COMMENT ON TABLE streamcdc.positions IS 'up to where WAL has been turned into the change log; the greatest counts';

-- what WAL does not carry, written by the commands that do it, and read under historic snapshots like the registry
CREATE TABLE streamcdc.inbox (
	xid xid8 NOT NULL,
	entry bigint NOT NULL,
	stream_id bigint NOT NULL,
	relid oid NOT NULL,
	kind "char" NOT NULL,
	new_heap oid NOT NULL,
	schema bytea,
	old_schema bytea,
	versions bytea,
	changes bytea
) WITH (user_catalog_table = true);
ALTER TABLE streamcdc.inbox ALTER COLUMN versions SET STORAGE EXTERNAL, ALTER COLUMN changes SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX inbox_entry ON streamcdc.inbox (xid, entry);
COMMENT ON TABLE streamcdc.inbox IS 'rows that TRUNCATE takes away and rewrites change, on their way to the capture worker';

-- row_type tells the relation from a later one that got its OID
CREATE TABLE streamcdc.changelogs (
	relid oid NOT NULL,
	row_type oid NOT NULL,
	contains_carryover_rows boolean NOT NULL,
	contains_intermediate_changes boolean NOT NULL,
	represents_update_as_delete_and_insert boolean NOT NULL,
	row_id text[] NOT NULL,
	row_version text
);
CREATE UNIQUE INDEX changelogs_relid ON streamcdc.changelogs (relid);
COMMENT ON TABLE streamcdc.changelogs IS 'relations registered as change logs, and what their rows are like';

-- offsets are versions as text: those of a registered change log may be text
CREATE TABLE streamcdc.queries (
	query_id uuid NOT NULL,
	query_name text COLLATE "C" NOT NULL,
	owner oid NOT NULL,
	source_relid oid NOT NULL,
	stream_id bigint NOT NULL,
	definition jsonb NOT NULL,
	created_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX queries_id ON streamcdc.queries (query_id);
CREATE UNIQUE INDEX queries_name ON streamcdc.queries (query_name);
COMMENT ON TABLE streamcdc.queries IS 'streaming queries and what they do';

-- place: system and database, since nothing runs in a copy of them
CREATE TABLE streamcdc.runs (
	query_id uuid NOT NULL,
	run_id uuid NOT NULL,
	place text NOT NULL,
	status "char" NOT NULL,
	attempts integer NOT NULL,
	started_at timestamptz NOT NULL,
	ended_at timestamptz,
	sqlstate text,
	error text,
	detail text,
	hint text
);
CREATE UNIQUE INDEX runs_id ON streamcdc.runs (query_id);
COMMENT ON TABLE streamcdc.runs IS 'the last run of each streaming query: whether it should be running, and how it ended';

CREATE TABLE streamcdc.batches (
	query_id uuid NOT NULL,
	batch_id bigint NOT NULL,
	start_offset text,
	end_offset text,
	watermark timestamptz NOT NULL,
	late timestamptz NOT NULL
);
CREATE UNIQUE INDEX batches_id ON streamcdc.batches (query_id, batch_id);
COMMENT ON TABLE streamcdc.batches IS 'micro-batches as they were planned; kept as long as a query''s state goes back to them';

CREATE TABLE streamcdc.progress (
	query_id uuid NOT NULL,
	batch_id bigint NOT NULL,
	run_id uuid NOT NULL,
	token bigint NOT NULL,
	oldest_batch bigint NOT NULL,
	oldest_pending text,
	watermark timestamptz NOT NULL,
	input_rows bigint NOT NULL,
	output_rows bigint NOT NULL,
	state_rows bigint NOT NULL,
	state_bytes bigint NOT NULL,
	finished_at timestamptz NOT NULL,
	record jsonb NOT NULL
);
CREATE UNIQUE INDEX progress_id ON streamcdc.progress (query_id, batch_id);
COMMENT ON TABLE streamcdc.progress IS 'micro-batches that were carried out';

-- numbers of origins are used again, so each row says from where in WAL on it holds
CREATE TABLE streamcdc.origins (
	origin_id int4 NOT NULL,
	since pg_lsn NOT NULL,
	name text NOT NULL
);
CREATE UNIQUE INDEX origins_id ON streamcdc.origins (origin_id, since);
COMMENT ON TABLE streamcdc.origins IS 'names of the replication origins of captured transactions';

ALTER TABLE streamcdc.registry REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.streams REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.definitions REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.members REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.baselines REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.schemas REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.missing_values REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.blocks REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.slots REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.origins REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.positions REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.inbox REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.changelogs REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.queries REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.runs REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.batches REPLICA IDENTITY NOTHING;
ALTER TABLE streamcdc.progress REPLICA IDENTITY NOTHING;

-- the log holds deleted rows and old values: nobody reads it but through the functions, which check rights
REVOKE ALL ON SCHEMA streamcdc FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA streamcdc FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA streamcdc FROM PUBLIC;

-- else nobody but a superuser could dump a database with streamcdc in it
GRANT USAGE ON SCHEMA streamcdc TO PUBLIC;
GRANT SELECT ON streamcdc.definitions TO PUBLIC;

/*
 * Tracking
 */
CREATE FUNCTION stream_track(table_name regclass, identity_columns name[] DEFAULT NULL, baseline boolean DEFAULT true,
							 retention interval DEFAULT NULL, on_truncate text DEFAULT 'delete')
RETURNS void
AS 'MODULE_PATHNAME', 'streamcdc_track'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_track(regclass, name[], boolean, interval, text) IS 'begin to capture the changes of a table';

CREATE FUNCTION stream_untrack(table_name regclass)
RETURNS void
AS 'MODULE_PATHNAME', 'streamcdc_untrack'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_untrack(regclass) IS 'stop capturing a table and delete its change log';

CREATE FUNCTION stream_alter(table_name regclass, retention interval DEFAULT NULL, on_truncate text DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'streamcdc_alter'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_alter(regclass, interval, text) IS 'change how a tracked table is tracked';

CREATE FUNCTION stream_sync(timeout interval DEFAULT '10 s')
RETURNS pg_lsn
AS 'MODULE_PATHNAME', 'streamcdc_sync'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_sync(interval) IS 'wait until everything committed before the call is in the change log';

CREATE FUNCTION stream_vacuum(table_name regclass DEFAULT NULL, before_version bigint DEFAULT NULL, older_than interval DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'streamcdc_vacuum'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_vacuum(regclass, bigint, interval) IS 'remove old versions of a change log, or of all that the caller owns';

CREATE FUNCTION stream_verify(table_name regclass)
RETURNS TABLE (difference text, row_data jsonb)
AS 'MODULE_PATHNAME', 'streamcdc_verify'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_verify(regclass) IS 'rows that a table and its change log do not have in common';

/*
 * Change logs from elsewhere
 */
CREATE FUNCTION stream_register_changelog(relation regclass, contains_carryover_rows boolean, contains_intermediate_changes boolean,
										  represents_update_as_delete_and_insert boolean,
										  row_id text[] DEFAULT NULL, row_version text DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'streamcdc_register_changelog'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_register_changelog(regclass, boolean, boolean, boolean, text[], text)
	IS 'declare that a relation is a change log, to be read with stream_changes';

CREATE FUNCTION stream_unregister_changelog(relation regclass)
RETURNS void
AS 'MODULE_PATHNAME', 'streamcdc_unregister_changelog'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_unregister_changelog(regclass) IS 'declare that a relation is no change log any more';

/*
 * Reading
 */
CREATE FUNCTION stream_latest_version(table_name regclass)
RETURNS bigint
AS 'MODULE_PATHNAME', 'streamcdc_latest_version'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_latest_version(regclass) IS 'newest version of a tracked table';

CREATE FUNCTION stream_version_at(table_name regclass, at timestamptz)
RETURNS bigint
AS 'MODULE_PATHNAME', 'streamcdc_version_at'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_version_at(regclass, timestamptz) IS 'newest version of a tracked table at or before a time';

CREATE FUNCTION stream_changes(table_name text,
							   starting_version bigint DEFAULT NULL, ending_version bigint DEFAULT NULL,
							   starting_timestamp timestamptz DEFAULT NULL, ending_timestamp timestamptz DEFAULT NULL,
							   starting_bound_inclusive boolean DEFAULT true, ending_bound_inclusive boolean DEFAULT true,
							   deduplication_mode text DEFAULT 'dropCarryovers', compute_updates boolean DEFAULT false)
RETURNS TABLE (_change_type text, _commit_version bigint, _commit_timestamp timestamptz, row_data jsonb)
AS 'MODULE_PATHNAME', 'streamcdc_changes'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_changes(text, bigint, bigint, timestamptz, timestamptz, boolean, boolean, text, boolean)
	IS 'row-level changes of a table in a range of versions';

CREATE FUNCTION stream_changes(table_name regclass,
							   starting_version bigint DEFAULT NULL, ending_version bigint DEFAULT NULL,
							   starting_timestamp timestamptz DEFAULT NULL, ending_timestamp timestamptz DEFAULT NULL,
							   starting_bound_inclusive boolean DEFAULT true, ending_bound_inclusive boolean DEFAULT true,
							   deduplication_mode text DEFAULT 'dropCarryovers', compute_updates boolean DEFAULT false)
RETURNS TABLE (_change_type text, _commit_version bigint, _commit_timestamp timestamptz, row_data jsonb)
AS 'MODULE_PATHNAME', 'streamcdc_changes_regclass'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_changes(regclass, bigint, bigint, timestamptz, timestamptz, boolean, boolean, text, boolean)
	IS 'row-level changes of a table in a range of versions';

CREATE FUNCTION stream_changes(table_name anyelement,
							   starting_version bigint DEFAULT NULL, ending_version bigint DEFAULT NULL,
							   starting_timestamp timestamptz DEFAULT NULL, ending_timestamp timestamptz DEFAULT NULL,
							   starting_bound_inclusive boolean DEFAULT true, ending_bound_inclusive boolean DEFAULT true,
							   deduplication_mode text DEFAULT 'dropCarryovers', compute_updates boolean DEFAULT false)
RETURNS TABLE (_change_type text, _commit_version bigint, _commit_timestamp timestamptz, row_data anyelement)
AS 'MODULE_PATHNAME', 'streamcdc_changes_typed'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_changes(anyelement, bigint, bigint, timestamptz, timestamptz, boolean, boolean, text, boolean)
	IS 'row-level changes of a table in a range of versions, typed as the table''s rows; call with NULL::table';

CREATE FUNCTION stream_events(table_name text,
							  starting_version bigint DEFAULT NULL, ending_version bigint DEFAULT NULL,
							  starting_timestamp timestamptz DEFAULT NULL, ending_timestamp timestamptz DEFAULT NULL,
							  starting_bound_inclusive boolean DEFAULT true, ending_bound_inclusive boolean DEFAULT true)
RETURNS TABLE (event text, _commit_version bigint, _commit_timestamp timestamptz, event_number bigint,
			   old_row jsonb, new_row jsonb)
AS 'MODULE_PATHNAME', 'streamcdc_events'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_events(text, bigint, bigint, timestamptz, timestamptz, boolean, boolean)
	IS 'every event of a table as PostgreSQL wrote it';

CREATE FUNCTION stream_versions(table_name text, starting_version bigint DEFAULT NULL, ending_version bigint DEFAULT NULL)
RETURNS TABLE (_commit_version bigint, _commit_timestamp timestamptz, commit_time timestamptz, commit_lsn pg_lsn, xid xid8,
			   origin text, inserts bigint, updates bigint, deletes bigint)
AS 'MODULE_PATHNAME', 'streamcdc_versions'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_versions(text, bigint, bigint) IS 'versions of a table and the transactions that made them';

CREATE FUNCTION streamcdc.list_tables(
	OUT table_name text, OUT status text, OUT identity_columns name[], OUT first_version bigint, OUT last_version bigint,
	OUT last_commit_timestamp timestamptz, OUT changes bigint, OUT log_bytes bigint, OUT retention interval,
	OUT on_truncate text, OUT baseline_rows bigint, OUT baseline_fraction double precision, OUT confirmed_lsn pg_lsn,
	OUT lag_bytes bigint, OUT lag interval, OUT last_error text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'streamcdc_list_tables'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION streamcdc.list_tables() IS 'behind the view stream_tables; shows what the caller may see';

-- the function filters by the caller's rights, so everybody may use the view; the schema stays closed otherwise
CREATE VIEW stream_tables AS
SELECT t.table_name, t.status, t.identity_columns, t.first_version, t.last_version, t.last_commit_timestamp, t.changes,
	   t.log_bytes, t.retention, t.on_truncate, t.baseline_rows, t.baseline_fraction, t.confirmed_lsn, t.lag_bytes, t.lag,
	   t.last_error
FROM streamcdc.list_tables() AS t;
COMMENT ON VIEW stream_tables IS 'tracked tables, their status and their change logs';
GRANT SELECT ON stream_tables TO PUBLIC;

/*
 * Continuous jobs
 */
CREATE FUNCTION stream_start(query_name text, source text, sink text DEFAULT NULL,
							 options jsonb DEFAULT '{}', query text DEFAULT NULL,
							 output_mode text DEFAULT 'append', trigger text DEFAULT '0 seconds',
							 sink_mode text DEFAULT 'append', sink_options jsonb DEFAULT '{}',
							 foreach_batch text DEFAULT NULL, foreach text DEFAULT NULL,
							 partition_by name[] DEFAULT NULL, cluster_by name[] DEFAULT NULL,
							 format text DEFAULT 'changes')
RETURNS uuid
AS 'MODULE_PATHNAME', 'streamcdc_start'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_start(text, text, text, jsonb, text, text, text, text, jsonb, text, text, name[], name[], text)
	IS 'start a streaming query: changes of a table, batch by batch, into a sink';

CREATE FUNCTION stream_stop(query_name text, timeout interval DEFAULT '30 s')
RETURNS void
AS 'MODULE_PATHNAME', 'streamcdc_stop'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_stop(text, interval) IS 'stop a streaming query';

CREATE FUNCTION stream_resume(query_name text)
RETURNS uuid
AS 'MODULE_PATHNAME', 'streamcdc_resume'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_resume(text) IS 'go on with a streaming query from where it was';

CREATE FUNCTION stream_drop(query_name text)
RETURNS void
AS 'MODULE_PATHNAME', 'streamcdc_drop'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_drop(text) IS 'forget a streaming query, its progress and its state';

CREATE FUNCTION stream_process_all_available(query_name text, timeout interval DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'streamcdc_process_all_available'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_process_all_available(text, interval)
	IS 'wait until a streaming query has processed all that was committed before the call';

CREATE FUNCTION stream_await_termination(query_name text, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'streamcdc_await_termination'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_await_termination(text, interval) IS 'wait until a streaming query has ended; raises its error';

CREATE FUNCTION stream_await_any_termination(timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'streamcdc_await_any_termination'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_await_any_termination(interval)
	IS 'wait until any streaming query of this database has ended since the last stream_reset_terminated';

CREATE FUNCTION stream_reset_terminated()
RETURNS void
AS 'MODULE_PATHNAME', 'streamcdc_reset_terminated'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_reset_terminated() IS 'forget the streaming queries that have ended, for stream_await_any_termination';

CREATE FUNCTION stream_status(query_name text)
RETURNS jsonb
AS 'MODULE_PATHNAME', 'streamcdc_status'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_status(text) IS 'what a streaming query is doing';

CREATE FUNCTION stream_last_progress(query_name text)
RETURNS jsonb
AS 'MODULE_PATHNAME', 'streamcdc_last_progress'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_last_progress(text) IS 'progress record of the last batch of a streaming query';

CREATE FUNCTION stream_recent_progress(query_name text)
RETURNS SETOF jsonb
AS 'MODULE_PATHNAME', 'streamcdc_recent_progress'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_recent_progress(text) IS 'progress records of a streaming query, oldest first';

CREATE FUNCTION stream_exception(query_name text)
RETURNS text
AS 'MODULE_PATHNAME', 'streamcdc_exception'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_exception(text) IS 'the error with which a streaming query has failed';

CREATE FUNCTION stream_explain(query_name text)
RETURNS SETOF text
AS 'MODULE_PATHNAME', 'streamcdc_explain'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION stream_explain(text) IS 'how a streaming query works: passes, state, plan, sink and its guarantee';

CREATE FUNCTION streamcdc.list_queries(
	OUT query_name text, OUT id uuid, OUT run_id uuid, OUT owner text, OUT source text, OUT sink text, OUT status text,
	OUT output_mode text, OUT sink_mode text, OUT trigger text, OUT batch_id bigint, OUT start_version bigint,
	OUT processed_version bigint, OUT lag_versions bigint, OUT watermark timestamptz, OUT oldest_pending_version bigint,
	OUT input_rows bigint, OUT output_rows bigint, OUT state_rows bigint, OUT state_bytes bigint,
	OUT last_batch_at timestamptz, OUT last_error text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'streamcdc_list_queries'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION streamcdc.list_queries() IS 'behind the view stream_queries; shows what the caller may see';

-- the function filters by the caller's rights, as for stream_tables
CREATE VIEW stream_queries AS
SELECT q.query_name, q.id, q.run_id, q.owner, q.source, q.sink, q.status, q.output_mode, q.sink_mode, q.trigger, q.batch_id,
	   q.start_version, q.processed_version, q.lag_versions, q.watermark, q.oldest_pending_version, q.input_rows,
	   q.output_rows, q.state_rows, q.state_bytes, q.last_batch_at, q.last_error
FROM streamcdc.list_queries() AS q;
COMMENT ON VIEW stream_queries IS 'streaming queries, their status and progress';
GRANT SELECT ON stream_queries TO PUBLIC;
