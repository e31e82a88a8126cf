-- stream_start: every argument and option, right and wrong.  What is right is rolled back, so that nothing runs.

SET client_min_messages = warning;

SELECT no_plan();

\ir include/errors.sql

-- SQLSTATE, message, detail and hint of stream_start('p61', 'p61_src', ...); "none" if it succeeds, which is rolled back.
-- The sink is made, unless the arguments say where rows go.
CREATE FUNCTION pg_temp.start_error(arguments text DEFAULT '', role_name text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
	detail text;
	hint text;
BEGIN
	-- those of calls before this one have nothing to do, and end
	FOR i IN 1 .. 12000 LOOP
		EXIT WHEN (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'streamcdc job')
			<= 12 + (SELECT count(*) FROM stream_queries WHERE status = 'running');
		PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
	END LOOP;
	IF role_name IS NOT NULL THEN
		PERFORM set_config('role', role_name, true);
	END IF;
	EXECUTE format('SELECT stream_start(%s)',
				   CASE WHEN arguments ~ 'query_name' THEN arguments
						ELSE concat_ws(', ', '''p61''', CASE WHEN arguments !~ '\msource =>' THEN '''p61_src''' END,
									   CASE WHEN arguments !~ '\m(sink|foreach|foreach_batch) =>' THEN 'sink => ''p61_new''' END,
									   nullif(arguments, '')) END);
	PERFORM set_config('role', 'none', true);
	RAISE EXCEPTION USING ERRCODE = 'P0099';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN CASE state WHEN 'P0099' THEN 'none' ELSE concat_ws(' / ', state, message, nullif(detail, ''), nullif(hint, '')) END;
END $$;

CREATE FUNCTION pg_temp.option_error(options text) RETURNS text
LANGUAGE sql AS $$ SELECT pg_temp.start_error(format('options => %L', options)) $$;

CREATE ROLE p61_owner LOGIN;
CREATE ROLE p61_nologin;
CREATE ROLE "p61 Odd";
CREATE ROLE p61_nobody LOGIN;
GRANT CREATE ON SCHEMA public TO p61_owner, p61_nologin;

CREATE TABLE p61_src (id int PRIMARY KEY, v text, n int);
INSERT INTO p61_src VALUES (1, 'a', 1);
SELECT stream_track('p61_src');
CREATE TABLE p61_bare (a int);
SELECT stream_track('p61_bare');
CREATE TABLE p61_untracked (id int);
CREATE TABLE p61_sink (id int PRIMARY KEY, v text, n int, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
SELECT stream_sync('180 s') \g /dev/null
UPDATE p61_src SET n = 2;
SELECT stream_sync('180 s') \g /dev/null

/*
 * Names
 */
SELECT is(pg_temp.start_error(), 'none', 'the least that can be said');
SELECT is(pg_temp.start_error('query_name => NULL, source => ''p61_src'', sink => ''p61_new'''), '22004 / "query_name" must not be null', 'no name');
SELECT is(pg_temp.start_error('query_name => ''q'', source => NULL, sink => ''p61_new'''), '22004 / "source" must not be null', 'no source');
SELECT is(pg_temp.start_error('query_name => '''', source => ''p61_src'', sink => ''p61_new'''),
		  '42602 / invalid query name: "" / A name has between 1 and 63 bytes.', 'an empty name');
SELECT matches(pg_temp.start_error(format('query_name => %L, source => ''p61_src'', sink => ''p61_new''', repeat('x', 64))), '^42602 ', 'a name of 64 bytes');
SELECT is(pg_temp.start_error(format('query_name => %L, source => ''p61_src'', sink => ''p61_new''', repeat('x', 63))), 'none', 'a name of 63 bytes');
SELECT is(pg_temp.start_error('query_name => ''a "b" ''''c'''' ä'', source => ''p61_src'', sink => ''p61_new'''), 'none', 'a name with quotes');

/*
 * Source
 */
SELECT is(pg_temp.start_error('source => ''public.p61_src'''), 'none', 'a qualified source');
SELECT is(pg_temp.start_error('source => ''"p61_src"'''), 'none', 'a quoted source');
SELECT is(pg_temp.start_error('source => ''p61_src''::regclass::text'), 'none', 'a regclass');
SELECT matches(pg_temp.start_error('source => ''p61_nothing'''), '^42P01 .*Error condition: TABLE_OR_VIEW_NOT_FOUND', 'no such source');
SELECT is(pg_temp.start_error('source => ''p61_untracked'''),
		  '0A000 / table "p61_untracked" is not tracked / Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION. / SELECT stream_track(''p61_untracked'');',
		  'an untracked source');
SELECT matches(pg_temp.start_error('source => ''a.b.c.d'''), '^42601 ', 'a source that cannot be a name');
SELECT matches(pg_temp.start_error('', 'p61_owner'), '^42501 / permission denied for table p61_src', 'a source that the caller may not read');

/*
 * Words of the arguments
 */
SELECT is(pg_temp.start_error(format('output_mode => %L', w)), 'none', 'output_mode ' || coalesce(w, 'NULL'))
FROM unnest(ARRAY['append', 'APPEND', NULL]) AS w;
SELECT is(pg_temp.start_error(format('output_mode => %L', 'appendix')),
		  '22023 / invalid output mode: "appendix" / Valid modes are "append", "update" and "complete".', 'an unknown output mode');
SELECT is(pg_temp.start_error(format('sink_mode => %L', w)), 'none', 'sink_mode ' || coalesce(w, 'NULL'))
FROM unnest(ARRAY['append', 'Append', 'apply', 'APPLY', NULL]) AS w;
SELECT is(pg_temp.start_error('sink_mode => ''merge'''), '22023 / invalid sink mode: "merge" / Valid modes are "append" and "apply".', 'an unknown sink mode');
SELECT is(pg_temp.start_error(format('format => %L', w)), 'none', 'format ' || coalesce(w, 'NULL'))
FROM unnest(ARRAY['changes', 'Table', NULL]) AS w;
SELECT is(pg_temp.start_error('format => ''delta'''), '22023 / invalid format: "delta" / Valid formats are "changes" and "table".', 'an unknown format');
SELECT is(pg_temp.start_error(format('trigger => %L', w)), 'none', 'trigger ' || coalesce(w, 'NULL'))
FROM unnest(ARRAY['0 seconds', '5 minutes', '1 month', 'availableNow', 'AVAILABLE_NOW', 'available_now', 'once', 'Once', '0', NULL]) AS w;
SELECT matches(pg_temp.start_error(format('trigger => %L', w)), '^22023 / invalid trigger: .*"availableNow" and "once"', 'trigger ' || w)
FROM unnest(ARRAY['sometimes', '', '-1 second', '178000000 years', 'now']) AS w;
SELECT is(pg_temp.start_error(format('trigger => %L', w)),
		  '0A000 / continuous triggers are not supported / Use an interval, "availableNow" or "once".', 'trigger ' || w)
FROM unnest(ARRAY['continuous 1 second', 'Continuous']) AS w;

/*
 * Options
 */
SELECT is(pg_temp.start_error('options => NULL'), 'none', 'options NULL');
-- one statement each, since a worker waits for the end of the one that asked for it
SELECT format('SELECT is(pg_temp.option_error(%L), ''none'', %L)', o, o) FROM unnest(ARRAY[
	'{}', '{"startingVersion": 0}', '{"startingVersion": "0"}', '{"starting_version": "1"}', '{"STARTINGVERSION": "Earliest"}',
	'{"startingVersion": "latest"}', '{"startingVersion": null}', '{"startingVersion": 100}', '{"starting_version": 0, "ending_version": 0}',
	'{"startingVersion": 0, "endingVersion": 5, "startingBoundInclusive": false, "endingBoundInclusive": "FALSE"}',
	'{"startingTimestamp": "2001-01-01"}', '{"startingTimestamp": "-infinity", "endingTimestamp": "infinity"}',
	'{"startingTimestamp": "2001-01-01 00:00:00+02", "endingTimestamp": "2001-01-02"}',
	'{"deduplicationMode": "NONE"}', '{"deduplication_mode": "drop_carryovers"}', '{"deduplicationMode": "netchanges"}',
	'{"computeUpdates": true}', '{"compute_updates": "True"}', '{"computeUpdates": "false"}',
	'{"maxVersionsPerTrigger": 1}', '{"maxVersionsPerTrigger": "9223372036854775807"}', '{"max_bytes_per_trigger": 1000}',
	'{"noDataMicroBatchesEnabled": false}', '{"noDataMicroBatchesEnabled": "true"}',
	'{"stateStoreProvider": "rocksdb"}', '{"stateStoreProvider": "RocksDB"}', '{"state_store_provider": "memory"}',
	'{"stateStoreProvider": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"}',
	'{"deduplicationMode": "netChanges", "stateStoreProvider": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"}',
	'{"emission": "commit"}', '{"emission": "Watermark"}', '{"mergeSchema": true}', '{"merge_schema": "false"}', '{"skipChangeCommits": true}'
]) AS o \gexec

SELECT is(pg_temp.option_error('[1]'), '22023 / "options" must be a JSON object', 'options that are no object');
SELECT matches(pg_temp.option_error('{"startVersion": 1}'),
			   '^22023 / unrecognized key "startVersion" in "options" / Valid keys are "startingVersion", "startingTimestamp", .*"emission", "mergeSchema", "skipChangeCommits"\.$',
			   'an unknown option');
SELECT is(pg_temp.option_error('{"startingVersion": [1]}'), '22023 / value of option "startingVersion" must be a string, a number or a boolean', 'an option that is an array');
SELECT is(pg_temp.option_error('{"startingVersion": 1, "starting_version": 1}'), '22023 / option "startingVersion" is given twice', 'an option given twice');
SELECT is(pg_temp.option_error(format('{"startingVersion": %s}', v)),
		  format('22023 / invalid value for option "startingVersion": "%s" / It must be a version, "earliest" or "latest".', trim(both '"' from v)),
		  'startingVersion ' || v)
FROM unnest(ARRAY['"newest"', '1.5', '""', 'true', '"1 "', '99999999999999999999']) AS v;
SELECT is(pg_temp.option_error('{"startingVersion": 0, "endingVersion": "x"}'),
		  '22023 / invalid value for option "endingVersion": "x" / It must be a version.', 'an endingVersion that is no version');
SELECT matches(pg_temp.option_error('{"startingVersion": 5, "endingVersion": 4}'), '^22023 ', 'an end below the start');
SELECT matches(pg_temp.option_error('{"startingTimestamp": "2002-01-01", "endingTimestamp": "2001-01-01"}'), '^22023 ', 'an end before the start');
SELECT matches(pg_temp.option_error('{"endingVersion": 1}'), '^22023 .*INVALID_CDC_OPTION.MISSING_STARTING_VERSION', 'an end without a start');
SELECT matches(pg_temp.option_error('{"endingTimestamp": "2001-01-01"}'), '^22023 .*INVALID_CDC_OPTION.MISSING_STARTING_TIMESTAMP', 'the same with timestamps');
SELECT matches(pg_temp.option_error(o), '^22023 .*INVALID_CDC_OPTION.CONFLICTING_RANGE_TYPES', 'version and timestamp: ' || o)
FROM unnest(ARRAY['{"startingVersion": 1, "startingTimestamp": "2001-01-01"}', '{"startingVersion": 1, "endingTimestamp": "2001-01-01"}',
				  '{"endingVersion": 1, "endingTimestamp": "2001-01-01"}']) AS o;
SELECT matches(pg_temp.option_error('{"startingTimestamp": "yesterday evening"}'), '^22023 .*INVALID_CDC_OPTION.INVALID_TIMESTAMP', 'no timestamp');
SELECT matches(pg_temp.option_error('{"startingTimestamp": "2001-02-30"}'), '^22023 .*INVALID_CDC_OPTION.INVALID_TIMESTAMP', 'no such day');
SELECT matches(pg_temp.option_error('{"deduplicationMode": "all", "computeUpdates": "perhaps", "endingVersion": 1}'),
			   '^22023 / invalid deduplication mode: "all" / Error condition: INVALID_CDC_OPTION.INVALID_DEDUPLICATION_MODE. / Valid modes are', 'the mode comes first');
SELECT is(pg_temp.option_error('{"computeUpdates": "yes"}'),
		  '22023 / invalid value for option "computeUpdates": "yes" / Valid values are "true" and "false".', 'a boolean has two words');
SELECT matches(pg_temp.option_error(format('{"%s": 1}', o)), '^22023 / invalid value for option "' || o, o || ' 1')
FROM unnest(ARRAY['startingBoundInclusive', 'endingBoundInclusive', 'noDataMicroBatchesEnabled', 'mergeSchema', 'skipChangeCommits']) AS o;
SELECT is(pg_temp.option_error(format('{"%s": %s}', o, v)),
		  format('22023 / invalid value for option "%s": "%s" / It must be an integer of at least 1.', o, trim(both '"' from v)), o || ' ' || v)
FROM unnest(ARRAY['maxVersionsPerTrigger', 'maxBytesPerTrigger']) AS o, unnest(ARRAY['0', '-1', '"1 MB"', '1.5', '9223372036854775808']) AS v;
SELECT matches(pg_temp.option_error('{"stateStoreProvider": "leveldb"}'), '^22023 .*Valid providers are "rocksdb" and "memory"', 'an unknown provider');
SELECT matches(pg_temp.option_error('{"emission": "late"}'), '^22023 .*Valid values are "commit" and "watermark"', 'an unknown emission');
SELECT matches(pg_temp.option_error('{"deduplicationMode": "none", "computeUpdates": true}'),
			   '^22023 .*INVALID_CDC_OPTION.UPDATE_DETECTION_REQUIRES_CARRY_OVER_REMOVAL', 'updates need carry-over removal');
SELECT matches(pg_temp.option_error('{"deduplicationMode": "netChanges", "stateStoreProvider": "memory"}'),
			   '^0A000 .*UNSUPPORTED_FEATURE.STATE_STORE_MULTIPLE_COLUMN_FAMILIES.*rocksdb', 'net changes need rocksdb');
SELECT matches(pg_temp.start_error(format('source => ''p61_bare'', options => %L', o)), '^42P17 .*INVALID_CHANGELOG_SCHEMA.MISSING_ROW_ID', 'without identity: ' || o)
FROM unnest(ARRAY['{"deduplicationMode": "netChanges"}', '{"computeUpdates": true}']) AS o;
SELECT matches(pg_temp.start_error('source => ''p61_bare'', sink_mode => ''apply'''), '^42P17 .*INVALID_CHANGELOG_SCHEMA.MISSING_ROW_ID', 'a mirror needs an identity');

/*
 * Output modes
 */
SELECT is(pg_temp.start_error('output_mode => ''update'', options => ''{"deduplicationMode": "none"}'''), 'none', 'update of a raw stream');
SELECT matches(pg_temp.start_error(format('output_mode => ''update'', options => %L', o)),
			   '^0A000 .*Change Data Capture.*STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION.*deduplicationMode "none"', 'update with ' || o)
FROM unnest(ARRAY['{}', '{"computeUpdates": true}', '{"deduplicationMode": "netChanges"}']) AS o;
SELECT matches(pg_temp.start_error(format('output_mode => ''Complete'', options => %L', o)),
			   '^0A000 .*Change Data Capture.*STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION', 'complete with ' || o)
FROM unnest(ARRAY['{}', '{"deduplicationMode": "none"}', '{"deduplicationMode": "netChanges"}']) AS o;

/*
 * The query
 */
SELECT is(pg_temp.start_error(format('query => %L', q)), 'none', q) FROM unnest(ARRAY[
	'SELECT * FROM batch', 'select id, v from batch where n > 0;', 'SELECT b.id, c.v FROM batch b JOIN p61_src c USING (id) -- end',
	'SELECT id FROM batch WHERE id IN (SELECT max(id) FROM p61_src)', 'TABLE batch',
	'SELECT id FROM batch UNION ALL SELECT n FROM batch', 'WITH b AS (SELECT id FROM batch) SELECT * FROM b', 'SELECT id FROM batch ORDER BY id',
	'SELECT 1 AS one FROM (SELECT count(*) FROM p61_src) AS x, batch', 'WITH c AS (SELECT count(*) AS n FROM p61_src), b AS (SELECT id FROM batch) SELECT b.id, c.n FROM b, c',
	'SELECT id FROM batch UNION ALL (SELECT n FROM batch UNION ALL SELECT n FROM p61_src)',
	-- one name for two, at different places; rows that are followed one by one
	'WITH c AS (SELECT id FROM batch) SELECT id, (WITH c AS (SELECT id FROM p61_src) SELECT count(*) FROM c) AS n FROM c',
	'SELECT id, c.n FROM batch, (WITH batch AS (SELECT count(*) AS n FROM p61_src) SELECT n FROM batch) AS c',
	'WITH RECURSIVE c AS (SELECT id FROM batch UNION ALL SELECT id - 1 FROM c WHERE id > 1) SELECT id FROM c',
	'WITH RECURSIVE c AS (SELECT id FROM p61_src UNION SELECT id - 1 FROM c WHERE id > 1) SELECT b.id FROM batch AS b, c'
]) AS q;
SELECT matches(pg_temp.start_error(format('query => %L', q)), '^0A000 .*over "batch" (is|are) not supported.*foreach_batch', q) FROM unnest(ARRAY[
	'SELECT count(*) FROM batch', 'SELECT id FROM batch GROUP BY id', 'SELECT DISTINCT id FROM batch', 'SELECT DISTINCT ON (id) id FROM batch',
	'SELECT id, row_number() OVER () FROM batch', 'SELECT id FROM batch LIMIT 1', 'SELECT id FROM batch OFFSET 1',
	'SELECT id FROM batch UNION SELECT n FROM batch', 'SELECT id FROM batch EXCEPT SELECT 1', 'SELECT x.c FROM (SELECT count(*) AS c FROM batch) AS x',
	'SELECT id FROM batch WHERE id = (SELECT max(id) FROM batch)', 'WITH c AS (SELECT sum(id) AS s FROM batch) SELECT s FROM c',
	'WITH c AS (SELECT id FROM batch), d AS (SELECT count(*) AS n FROM c) SELECT n FROM d', 'WITH c AS (SELECT id FROM batch) SELECT (SELECT max(id) FROM c) AS m FROM p61_src',
	'SELECT id FROM batch UNION ALL (SELECT id FROM batch UNION SELECT n FROM batch)', 'SELECT id FROM batch INTERSECT ALL SELECT n FROM batch',
	'SELECT (SELECT count(*) FROM batch) AS c FROM p61_src', 'SELECT id FROM batch HAVING true',
	'WITH c AS (SELECT id FROM p61_src) SELECT id, (WITH c AS (SELECT id FROM batch) SELECT count(*) FROM c) AS n FROM c',
	'WITH b AS (SELECT id FROM batch), batch AS (SELECT id FROM b) SELECT count(*) AS n FROM batch',
	'WITH RECURSIVE c AS (SELECT id, 1::bigint AS n FROM batch UNION ALL SELECT id, rank() OVER () FROM c WHERE n < 3) SELECT id FROM c',
	'WITH RECURSIVE c AS (SELECT id FROM batch UNION SELECT id - 1 FROM c WHERE id > 1) SELECT id FROM c'
]) AS q WHERE q !~ 'HAVING';
SELECT matches(pg_temp.start_error(format('query => %L', q)), '^22023 / "query" must be one SELECT over "batch"', q) FROM unnest(ARRAY[
	'SELECT 1 INTO p61_x FROM batch', 'DELETE FROM p61_sink', 'SELECT * FROM batch; SELECT 1', 'CREATE TABLE p61_x ()', '', ';']) AS q;
SELECT matches(pg_temp.start_error(format('query => %L', q)), '^0A000 .* not supported in "query"', q) FROM unnest(ARRAY[
	'WITH d AS (DELETE FROM p61_sink RETURNING id) SELECT id FROM batch', 'SELECT b.id FROM batch b, p61_sink s FOR UPDATE OF s']) AS q;
SELECT matches(pg_temp.start_error('query => ''SELEC 1'''), '^42601 ', 'no SQL at all');
SELECT matches(pg_temp.start_error(format('query => %L', q)), '^22023 / "query" does not read "batch" / ', q) FROM unnest(ARRAY[
	'SELECT * FROM p61_src', 'SELECT 1 AS id', 'WITH batch AS (SELECT id FROM p61_src) SELECT * FROM batch', 'SELECT id FROM (VALUES (1)) AS batch(id)']) AS q;
SELECT is(pg_temp.start_error(format('query => %L', q)), 'none', q) FROM unnest(ARRAY[
	'WITH w AS (SELECT id FROM batch) SELECT * FROM w', 'SELECT id FROM p61_src WHERE EXISTS (SELECT FROM batch AS b WHERE b.id = p61_src.id)',
	'WITH batch AS (SELECT id FROM batch) SELECT * FROM batch', 'SELECT 1 AS id UNION ALL SELECT id FROM batch']) AS q;
SELECT matches(pg_temp.start_error('query => ''SELECT nothing FROM batch'''), '^42703 ', 'a column that batch does not have');
SELECT matches(pg_temp.start_error('query => ''SELECT * FROM p61_nothing, batch'''), '^42P01 ', 'a table that is not there');
SELECT matches(pg_temp.start_error('query => ''SELECT id FROM batch WHERE id = $1'''), '^42P02 ', 'a parameter');
SELECT is(pg_temp.start_error('query => ''SELECT FROM batch'''), '22023 / the query has no column that can be written into sink "p61_new"', 'no column');
SELECT is(pg_temp.start_error('query => ''SELECT id, n AS id FROM batch'''), '42701 / column "id" appears twice in "query"', 'a column twice');
SELECT matches(pg_temp.start_error('query => ''SELECT id, id FROM batch)) AS q; DROP TABLE p61_sink; --'''), '^42601 ', 'a query that leaves its parentheses');

/*
 * The sink
 */
SELECT is(pg_temp.start_error('sink => NULL, foreach => NULL'), '22023 / exactly one of "sink", "foreach_batch" and "foreach" must be given', 'nowhere to go');
SELECT matches(pg_temp.start_error('sink => ''p61_sink'', foreach_batch => ''SELECT 1'''), '^22023 / exactly one of', 'two ways to go');
SELECT is(pg_temp.start_error('sink => ''p61_sink'''), 'none', 'a sink that is there');
SELECT is(pg_temp.start_error('sink => ''"public"."p61 New"'''), 'none', 'a sink that is not');
SELECT matches(pg_temp.start_error('sink => ''p61_nowhere.x'''), '^3F000 ', 'a schema that is not');
SELECT matches(pg_temp.start_error('sink => '''''), '^42602 ', 'an empty name');
SELECT is(pg_temp.start_error('sink => ''p61_src'''), '22023 / sink "p61_src" is the source of the query', 'the source as its sink');
CREATE VIEW p61_src_view AS SELECT id, v, n FROM p61_src;
SELECT is(pg_temp.start_error('sink => ''p61_src_view'', query => ''SELECT id, v, n FROM batch'''), '22023 / sink "p61_src" is the source of the query', 'the source behind a view');
CREATE SEQUENCE p61_seq;
CREATE MATERIALIZED VIEW p61_mat AS SELECT 1 AS id;
CREATE VIEW p61_fixed AS SELECT count(*) AS id FROM p61_src;
CREATE TEMP TABLE p61_temp (id int);
SELECT matches(pg_temp.start_error('sink => ''p61_seq'''), '^42809 / "p61_seq" cannot be a sink', 'a sequence');
SELECT matches(pg_temp.start_error('sink => ''p61_mat'''), '^42809 / "p61_mat" cannot be a sink', 'a materialized view');
SELECT matches(pg_temp.start_error('sink => ''p61_fixed'', query => ''SELECT id FROM batch'''), '^55000 / cannot insert into view', 'a view that cannot be written');
SELECT matches(pg_temp.start_error('sink => ''p61_temp'''), '^0A000 / temporary table', 'a temporary table');
SELECT matches(pg_temp.start_error('sink => ''pg_temp.p61_temp2'''), '^0A000 / temporary table', 'a temporary table that would be made');
SELECT matches(pg_temp.start_error('sink => ''pg_catalog.pg_class'''), '^0A000 .*belongs to the system', 'a catalog');
SELECT matches(pg_temp.start_error('sink => ''streamcdc.queries'''), '^0A000 .*belongs to the system', 'our own table');
SELECT is(pg_temp.start_error('sink => ''p61_sink'', query => ''SELECT id, v AS w FROM batch'''),
		  '42703 / column "w" of relation "p61_sink" does not exist', 'a column that the sink does not have');
SELECT matches(pg_temp.start_error('sink => ''p61_sink'', query => ''SELECT id, n::point AS n FROM (SELECT id, null::text AS n FROM batch) AS b'''), '^42804 |^42846 ', 'a type that does not fit');
SELECT matches(pg_temp.start_error('sink => ''p61_sink'', query => ''SELECT v AS id FROM batch'''), '^42804 / column "id" is of type integer but expression is of type text', 'text for an integer');
SELECT matches(pg_temp.start_error('query => ''SELECT ''''x'''' AS c, NULL AS d FROM batch'''), '^none', 'columns of unknown type become text');
SELECT matches(pg_temp.start_error('query => ''SELECT row(1, 2) AS c FROM batch'''), '^42P16 / column "c" has pseudo-type record', 'a column that no table can have');
CREATE TABLE p61_no_index (id int, v text, n int);
SELECT is(pg_temp.start_error('sink => ''p61_no_index'', sink_mode => ''apply'''),
		  '42P10 / sink "p61_no_index" has no unique index on the row identity of the source / sink_mode "apply" needs one.', 'a mirror without a unique index');
CREATE UNIQUE INDEX ON p61_no_index (id) WHERE id > 0;
SELECT matches(pg_temp.start_error('sink => ''p61_no_index'', sink_mode => ''apply'''), '^42P10 ', 'a partial index does not count');
SELECT matches(pg_temp.start_error('sink_mode => ''apply'', query => ''SELECT v, _change_type, _commit_version FROM batch'''), '^42703 .*"id" of the row identity is missing in the ', 'a mirror without its key');
SELECT matches(pg_temp.start_error('sink => ''p61_sink'', sink_mode => ''apply'', query => ''SELECT id, v FROM batch'''), '^42703 .*"_change_type" is missing in the query', 'a mirror without the change type');

SELECT is(pg_temp.start_error('partition_by => ''{n}'''), 'none', 'partition_by');
SELECT is(pg_temp.start_error('partition_by => ''{}'''), 'none', 'partition_by nothing');
SELECT is(pg_temp.start_error('partition_by => ''{w}'''), '42703 / column "w" of "partition_by" is not a column of the query', 'partition_by what is not there');
SELECT is(pg_temp.start_error('partition_by => ''{n,n}'''), '42701 / column "n" appears twice in "partition_by"', 'partition_by the same twice');
SELECT is(pg_temp.start_error('partition_by => ''{n,NULL}'''), '22004 / "partition_by" must not contain nulls', 'partition_by NULL');
SELECT matches(pg_temp.start_error('partition_by => ''{{n},{v}}'''), '^2202E ', 'partition_by in two dimensions');
SELECT is(pg_temp.start_error('cluster_by => ''{n,v}'''), 'none', 'cluster_by');
SELECT is(pg_temp.start_error('cluster_by => ''{w}'''), '42703 / column "w" of "cluster_by" is not a column of the query', 'cluster_by what is not there');
SELECT matches(pg_temp.start_error('partition_by => ''{id,n}'', sink_mode => ''apply'''), '^0A000 / a mirror cannot be partitioned by column "n" / .* / Partition it by ', 'a mirror is partitioned by its key, at each level');
SELECT is(pg_temp.start_error('partition_by => ''{id}'', sink_mode => ''apply'''), 'none', 'and may be so');

SELECT is(pg_temp.start_error('sink_options => NULL'), 'none', 'sink_options NULL');
SELECT is(pg_temp.start_error('sink_options => ''{"progress": "x"}'''), '22023 / unrecognized key "progress" in "sink_options" / Valid keys are "progressTable".', 'an unknown sink option');
SELECT matches(pg_temp.start_error('sink => ''p61_sink'', sink_options => ''{"progress_table": "p61_no_index"}'''), '^22023 .*"progressTable" is for foreign tables', 'progressTable of a local sink');
SELECT is(pg_temp.start_error(format('foreach_batch => ''SELECT 1'', %s', a)), format('22023 / "%s" needs a sink', split_part(a, ' ', 1)), a)
FROM unnest(ARRAY['sink_mode => ''apply''', 'partition_by => ''{n}''', 'cluster_by => ''{n}''', 'sink_options => ''{"progressTable": "x"}''']) AS a;

/*
 * foreach_batch and foreach
 */
CREATE FUNCTION p61_batch(batch_id bigint, batch refcursor) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION p61_row(row_data jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION p61_typed(row_data p61_src) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION p61_two(a jsonb, b jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION p61_private(row_data jsonb) RETURNS void LANGUAGE sql AS '';
REVOKE EXECUTE ON FUNCTION p61_private(jsonb) FROM PUBLIC;
SELECT is(pg_temp.start_error(format('foreach_batch => %L', f)), 'none', f) FROM unnest(ARRAY[
	'INSERT INTO p61_untracked SELECT id FROM batch', 'CREATE TEMP TABLE x AS TABLE batch; SELECT count(*) FROM x, p61_later',
	'SELECT $1', 'INSERT INTO p61_untracked SELECT $1; DELETE FROM p61_untracked USING batch WHERE p61_untracked.id = batch.id;',
	'p61_batch', 'public.p61_batch', '"p61_batch"']) AS f;
SELECT matches(pg_temp.start_error('foreach_batch => ''p61_nothing'''), '^42883 .*or names a function \(batch_id bigint, batch refcursor\)', 'no such function');
SELECT matches(pg_temp.start_error('foreach_batch => ''p61_row'''), '^42883 ', 'a function of other arguments');
SELECT is(pg_temp.start_error(format('foreach_batch => %L', f)), '22023 / "foreach_batch" holds no command', 'foreach_batch: ' || f)
FROM unnest(ARRAY['', '-- nothing', ' ; ']) AS f;
SELECT matches(pg_temp.start_error('foreach_batch => ''INSERT INTO p61_nothing SELECT id FROM batch'''), '^42P01 ', 'a table that is not there');
SELECT matches(pg_temp.start_error('foreach_batch => ''INSERT INTO p61_untracked SELECT $2'''), '^42P02 ', 'a parameter that is not there');
SELECT matches(pg_temp.start_error('foreach_batch => ''INSERT INTO'''), '^42601 ', 'no command');
SELECT matches(pg_temp.start_error(format('foreach_batch => %L', f)), '^0A000 .*(transaction commands are|COPY is) not allowed in "foreach_batch"', f)
FROM unnest(ARRAY['SELECT 1; COMMIT', 'BEGIN;', 'COPY p61_sink FROM stdin']) AS f;
SELECT is(pg_temp.start_error(format('foreach => %L', f)), 'none', f) FROM unnest(ARRAY['p61_row', 'public.p61_row', 'p61_typed']) AS f;
SELECT matches(pg_temp.start_error(format('foreach => %L', f)), '^42883 .*jsonb or of a composite type', f) FROM unnest(ARRAY['p61_nothing', 'p61_two', 'p61_batch']) AS f;
GRANT SELECT ON p61_src TO p61_nobody;
SELECT matches(pg_temp.start_error('foreach => ''p61_private''', 'p61_nobody'), '^42501 / permission denied for function p61_private', 'a function that the caller may not run');

/*
 * Roles and rights
 */
GRANT SELECT ON p61_src TO p61_owner, p61_nologin, "p61 Odd";
SELECT is(pg_temp.start_error('', 'p61_owner'), 'none', 'an ordinary role');
SELECT is(pg_temp.start_error('', 'p61_nologin'),
		  '28000 / role "p61_nologin" is not permitted to log in / A query runs in a session of its owner. / ALTER ROLE p61_nologin LOGIN;', 'a role that may not log in');
SELECT matches(pg_temp.start_error('', 'p61 Odd'), '^28000 .*ALTER ROLE "p61 Odd" LOGIN;', 'its name is quoted in the hint');
SELECT matches(pg_temp.start_error('', 'p61_nobody'), '^42501 / permission denied for schema public', 'a sink that the caller may not make');
SELECT matches(pg_temp.start_error('sink => ''p61_sink''', 'p61_nobody'), '^42501 / permission denied for table p61_sink', 'a sink that the caller may not write');
GRANT INSERT ON p61_sink TO p61_owner;
SELECT is(pg_temp.start_error('sink => ''p61_sink''', 'p61_owner'), 'none', 'INSERT is enough to append');
SELECT matches(pg_temp.start_error('sink => ''p61_sink'', sink_mode => ''apply''', 'p61_owner'), '^42501 ', 'but not for a mirror');
CREATE TABLE p61_theirs (LIKE p61_sink INCLUDING ALL);
ALTER TABLE p61_theirs OWNER TO p61_owner;
SELECT is(pg_temp.start_error('sink => ''p61_theirs'''),
		  format('42501 / sink "p61_theirs" does not belong to a superuser / Its owner''s triggers and defaults would run with the rights of superuser "%s". / Start the query as role "p61_owner".', current_user),
		  'a superuser''s query does not write into somebody else''s table');
CREATE FUNCTION p61_their_row(row_data jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION p61_their_batch(batch_id bigint, batch refcursor) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION p61_row_close(error text) RETURNS void LANGUAGE sql AS '';
ALTER FUNCTION p61_their_row OWNER TO p61_owner;
ALTER FUNCTION p61_their_batch OWNER TO p61_owner;
ALTER FUNCTION p61_row_close OWNER TO p61_owner;
SELECT is(pg_temp.start_error(a), format('42501 / function public.%s does not belong to a superuser / It would run with the rights of superuser "%s". / Start the query as role "p61_owner".', f, current_user),
		  'nor calls somebody else''s function: ' || f)
FROM (VALUES ('foreach => ''p61_their_row''', 'p61_their_row'), ('foreach_batch => ''p61_their_batch''', 'p61_their_batch'), ('foreach => ''p61_row''', 'p61_row_close')) AS w(a, f);
SELECT is(pg_temp.start_error('foreach => ''p61_their_row''', 'p61_owner'), 'none', 'who owns it may');
DROP FUNCTION p61_row_close;
CREATE TABLE p61_secret (id int PRIMARY KEY, v text);
ALTER TABLE p61_secret OWNER TO p61_nobody;
GRANT SELECT ON p61_secret TO p61_owner;
ALTER TABLE p61_secret ENABLE ROW LEVEL SECURITY;
SELECT stream_track('p61_secret');
SELECT stream_sync('180 s') \g /dev/null
SELECT matches(pg_temp.start_error('source => ''p61_secret''', 'p61_owner'), '^42501 .*Row-level security applies', 'a source with row-level security');
CREATE TABLE p61_policed (LIKE p61_src INCLUDING ALL);
ALTER TABLE p61_policed OWNER TO p61_nobody;
GRANT ALL ON p61_policed TO p61_owner;
ALTER TABLE p61_policed ENABLE ROW LEVEL SECURITY;
SELECT matches(pg_temp.start_error('sink => ''p61_policed'', sink_mode => ''apply''', 'p61_owner'), '^42501 .*Row-level security', 'a mirror does not see all rows under row-level security');

/*
 * The other functions: unknown names, NULL, other people's queries
 */
CREATE TEMP TABLE p61_functions AS SELECT * FROM unnest(ARRAY['stop', 'resume', 'drop', 'process_all_available', 'await_termination',
	'status', 'last_progress', 'recent_progress', 'exception', 'explain']) AS f;
SELECT is(pg_temp.message_of(format('SELECT stream_%s(''p61_nothing'')', f)), '42704 / query "p61_nothing" does not exist', f || ' of a query that is not there') FROM p61_functions;
SELECT is(pg_temp.message_of(format('SELECT stream_%s(NULL)', f)), '22004 / "query_name" must not be null', f || ' of NULL') FROM p61_functions;
SELECT is(pg_temp.message_of('SELECT stream_stop(''p61_nothing'', ''-1 s'')'), '22023 / "timeout" must not be negative', 'a negative timeout');
SELECT stream_start('p61 theirs', 'p61_src', sink => 'p61_new') \g /dev/null
SELECT is(pg_temp.message_of(format('SELECT stream_%s(''p61 theirs'')', f), 'p61_nobody'), '42501 / must be owner of query "p61 theirs"', f || ' of somebody else''s query') FROM p61_functions;
SELECT is(pg_temp.message_of('SELECT stream_start(''p61 theirs'', ''p61_src'', sink => ''p61_new2'')', 'p61_nobody'),
		  '42501 / must be owner of query "p61 theirs"', 'start of somebody else''s query');
SELECT stream_drop('p61 theirs');

/*
 * What only happens after the caller's transaction
 */
BEGIN;
SELECT stream_start('p61 own', 'p61_src', sink => 'p61_own') \g /dev/null
SELECT is(pg_temp.message_of(format('SELECT stream_%s(''p61 own'')', f)), '25001 / query "p61 own" was started by the current transaction', f || ' in the starting transaction')
FROM unnest(ARRAY['stop', 'process_all_available', 'await_termination', 'drop']) AS f;
SELECT is(status, 'running', 'it counts as running') FROM stream_queries WHERE query_name = 'p61 own';
ROLLBACK;
SELECT is(count(*), 0::bigint, 'what was rolled back has left no query') FROM stream_queries WHERE query_name LIKE 'p61%';

/*
 * Settings
 */
SELECT is(concat_ws(' ', setting, unit, min_val, context), s, n) FROM (VALUES
	('streamcdc.max_restarts', '10 0 sighup'), ('streamcdc.stop_active_run_on_restart', 'off user'), ('streamcdc.stop_timeout', '30000 ms 0 user'),
	('streamcdc.progress_retention', '100 1 sighup'), ('streamcdc.state_directory', 'streamcdc sighup'),
	('streamcdc.state_cache_size', '65536 kB 1024 sighup'), ('streamcdc.state_write_buffer', '32768 kB 1024 sighup')
) AS w(n, s) JOIN pg_settings ON name = n;
SELECT is(count(*), 7::bigint, 'the settings of jobs are there, and described') FROM pg_settings
WHERE name IN ('streamcdc.max_restarts', 'streamcdc.stop_active_run_on_restart', 'streamcdc.stop_timeout', 'streamcdc.progress_retention',
			   'streamcdc.state_directory', 'streamcdc.state_cache_size', 'streamcdc.state_write_buffer') AND short_desc <> '';
SELECT is(pg_temp.message_of('SET streamcdc.max_restart = 1'), '42602 / invalid configuration parameter name "streamcdc.max_restart"', 'an unknown setting');

SELECT * FROM finish();
