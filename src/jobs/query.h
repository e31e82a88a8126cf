/*-------------------------------------------------------------------------
 *
 * query.h
 *	  Streaming queries: their definitions, runs, batches and progress, as
 *	  rows of our tables.
 *
 * A query's definition says what it reads, how, and where to; it stays as it
 * is until the query is dropped.  Its run says whether it should be running.
 * A batch is planned (streamcdc.batches), then carried out; the row of
 * streamcdc.progress is the fact that it was.
 *
 * Offsets are versions in text form, because those of a registered change log
 * may be text.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_QUERY_H
#define SCDC_QUERY_H

#include "access/attnum.h"
#include "collapse/collapse.h"
#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "state/store.h"
#include "storage/itemptr.h"
#include "utils/jsonb.h"
#include "utils/snapshot.h"
#include "utils/uuid.h"

/* Where a batch goes. */
typedef enum ScdcSinkKind
{
	SCDC_SINK_TABLE,
	SCDC_SINK_BATCH_SQL,		/* foreach_batch: SQL commands */
	SCDC_SINK_BATCH_FUNCTION,	/* foreach_batch: a function (bigint, refcursor) */
	SCDC_SINK_FOREACH
} ScdcSinkKind;

typedef enum ScdcTriggerKind
{
	SCDC_TRIGGER_INTERVAL,
	SCDC_TRIGGER_ONCE,
	SCDC_TRIGGER_AVAILABLE_NOW
} ScdcTriggerKind;

typedef enum ScdcEmission
{
	SCDC_EMIT_BY_COMMIT,
	SCDC_EMIT_BY_WATERMARK
} ScdcEmission;

/* A column of the source that the query knows; others are ignored. */
typedef struct ScdcQueryColumn
{
	AttrNumber	attnum;
	char	   *name;
	Oid			type;
	int32		typmod;
	Oid			collation;
} ScdcQueryColumn;

typedef struct ScdcQuery
{
	pg_uuid_t	query_id;
	char	   *name;
	Oid			owner;
	Oid			source_relid;
	int64		stream_id;		/* of the tracked table; 0: a registered change log */
	TimestampTz created_at;

	/* definition */
	char	   *source;			/* as the starter named it */
	char	   *search_path;	/* of the starter, as are the next */
	List	   *settings;		/* that shape output: name, value, name, value, ... */
	bool		as_table;		/* format "table" */
	ScdcDeduplication mode;
	bool		compute_updates;
	ScdcEmission emission;
	ScdcStoreProvider provider;
	bool		no_data_batches;
	bool		merge_schema;
	bool		skip_change_commits;
	int64		max_versions;	/* per batch; 0: no limit */
	int64		max_bytes;
	char	   *initial_offset; /* NULL: from the very beginning */
	bool		from_baseline;	/* is the baseline of a tracked table the first that is read? */
	char	   *start_version;	/* first one where that does not follow from the offset, as versions are text; NULL: none */
	TimestampTz start_timestamp;	/* DT_NOBEGIN: none */
	char	   *end_version;	/* last one; NULL: none */
	TimestampTz end_timestamp;	/* last one; DT_NOEND: none */
	char	   *query;			/* over "batch"; NULL: all of it */
	char	   *output_mode;
	ScdcTriggerKind trigger;
	int64		trigger_interval;	/* microseconds */
	char	   *trigger_text;
	ScdcSinkKind sink_kind;
	char	   *sink;			/* qualified name, SQL commands or function */
	bool		apply;			/* sink_mode "apply" */
	List	   *partition_by;	/* of char *, as the next */
	List	   *cluster_by;
	char	   *progress_table; /* sink_options; NULL: none */
	int			ncolumns;
	ScdcQueryColumn *columns;
	int32		known_schema;	/* newest one of a tracked table when its columns were taken; older ones are mapped to them */
	char	   *contract;		/* of a registered change log: its flags and version type; NULL: a tracked table */
	List	   *row_id;			/* and its row_id, row_version */
	int			nkeys;
	char	  **keys;			/* names of the identity's columns */

	ItemPointerData tid;

	/* of a query that is started again or resumed; not stored */
	bool		goes_on;
	int			nformer;
	ScdcQueryColumn *former;	/* the columns that it has known until now */
} ScdcQuery;

/* status of a run; on disk */
#define SCDC_RUN_RUNNING	'r'		/* should be running; reads as stopped in a copy of the database */
#define SCDC_RUN_STOPPED	's'
#define SCDC_RUN_FINISHED	'f'
#define SCDC_RUN_FAILED		'e'

typedef struct ScdcRun
{
	pg_uuid_t	query_id;
	pg_uuid_t	run_id;
	char		status;
	int32		attempts;		/* workers that were begun in vain */
	TimestampTz started_at;
	TimestampTz ended_at;		/* 0: not yet */
	char	   *sqlstate;		/* of the error that ended it, or NULL */
	char	   *error;			/* its message ... */
	char	   *detail;			/* and the rest of it, or NULL */
	char	   *hint;
	ItemPointerData tid;
} ScdcRun;

typedef struct ScdcBatch
{
	int64		batch_id;
	char	   *start_offset;	/* exclusive; NULL: the very beginning */
	char	   *end_offset;		/* inclusive; the same as start_offset if it reads nothing */
	TimestampTz watermark;		/* by which it emits */
	TimestampTz late;			/* at or before: rows are late */
} ScdcBatch;

typedef struct ScdcProgress
{
	int64		batch_id;
	pg_uuid_t	run_id;
	int64		token;			/* the state store's must be the same */
	int64		oldest_batch;	/* first one that the state goes back to */
	char	   *oldest_pending; /* version that the state goes back to, or NULL */
	TimestampTz watermark;		/* for the next batch */
	int64		input_rows;		/* of this batch and all before, as is the next */
	int64		output_rows;
	int64		state_rows;
	int64		state_bytes;
	TimestampTz finished_at;
	Jsonb	   *record;			/* Spark's StreamingQueryProgress */
} ScdcProgress;

/* Everything is read under the snapshot, into the current context; NULL if it is not there. */
extern ScdcQuery *scdc_query_by_name(const char *name, Snapshot snapshot);
extern ScdcQuery *scdc_query_by_id(const pg_uuid_t *id, Snapshot snapshot);
extern List *scdc_query_list(Snapshot snapshot);
extern ScdcRun *scdc_run_read(const pg_uuid_t *query_id, Snapshot snapshot);
extern ScdcBatch *scdc_batch_last(const pg_uuid_t *query_id, Snapshot snapshot);
extern ScdcBatch *scdc_batch_read(const pg_uuid_t *query_id, int64 batch_id, Snapshot snapshot);
extern ScdcProgress *scdc_progress_last(const pg_uuid_t *query_id, Snapshot snapshot);
extern List *scdc_progress_list(const pg_uuid_t *query_id, Snapshot snapshot);	/* oldest first */

extern void scdc_query_insert(const ScdcQuery *query);
extern void scdc_query_replace(const ScdcQuery *query); /* the row at tid */
extern void scdc_run_insert(const ScdcRun *run);
extern void scdc_run_replace(const ScdcRun *run);
extern void scdc_run_take_error(ScdcRun *run, const ErrorData *error); /* NULL: none */
extern void scdc_batch_insert(const pg_uuid_t *query_id, const ScdcBatch *batch);
extern void scdc_progress_insert(const pg_uuid_t *query_id, const ScdcProgress *progress);

/*
 * The first version that a query over a tracked table still needs: that it has
 * not read yet, or that its state would have to be restored from; PG_INT64_MAX
 * if it has come to its end.
 */
extern int64 scdc_query_needs(const ScdcQuery *query, Snapshot snapshot);

/* Deletes batches and progress records before a number. */
extern void scdc_query_trim(const pg_uuid_t *query_id, int64 before_batch, int64 before_progress, Snapshot snapshot);

/* Deletes all that is known of a query. */
extern void scdc_query_delete(const ScdcQuery *query, Snapshot snapshot);

extern char *scdc_uuid_text(const pg_uuid_t *id);
extern void scdc_uuid_new(pg_uuid_t *id);
extern bool scdc_uuid_equal(const pg_uuid_t *a, const pg_uuid_t *b);

#endif							/* SCDC_QUERY_H */
