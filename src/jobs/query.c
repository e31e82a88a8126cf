/*-------------------------------------------------------------------------
 *
 * query.c
 *	  Streaming queries as rows of our tables (see query.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "jobs/definition.h"
#include "jobs/query.h"
#include "label.h"
#include "log/rows.h"

char *
scdc_uuid_text(const pg_uuid_t *id)
{
	return DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id)));
}

void
scdc_uuid_new(pg_uuid_t *id)
{
	*id = *DatumGetUUIDP(DirectFunctionCall1(gen_random_uuid, (Datum) 0));
}

bool
scdc_uuid_equal(const pg_uuid_t *a, const pg_uuid_t *b)
{
	return memcmp(a, b, sizeof(pg_uuid_t)) == 0;
}

static void
uuid_key(ScanKey key, AttrNumber attno, const pg_uuid_t *id)
{
	ScanKeyInit(key, attno, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(id));
}

static Datum
text_or_null(const char *s, bool *isnull)
{
	*isnull = s == NULL;
	return s ? CStringGetTextDatum(s) : (Datum) 0;
}

static char *
cstring_or_null(Datum value, bool isnull)
{
	return isnull ? NULL : TextDatumGetCString(value);
}

static pg_uuid_t
uuid_of(Datum value)
{
	return *DatumGetUUIDP(value);
}

/* Scans read-only; deletions need the table under a stronger lock, which the scan's does not lower. */
static void
delete_rows(ScdcTable t, const char *index, int nkeys, ScanKey keys, Snapshot snapshot)
{
	Relation	rel = scdc_table_open(t, RowExclusiveLock);

	(void) scdc_rows_delete(t, index, nkeys, keys, snapshot);
	relation_close(rel, NoLock);
}

static void
insert_row(ScdcTable t, Datum *values, bool *isnull)
{
	Relation	rel = scdc_table_open(t, RowExclusiveLock);

	scdc_row_insert(rel, values, isnull);
	relation_close(rel, NoLock);
}

static void
replace_row(ScdcTable t, const ItemPointerData *tid, Datum *values, bool *isnull)
{
	Relation	rel = scdc_table_open(t, RowExclusiveLock);
	ItemPointerData at = *tid;

	scdc_row_delete(rel, &at);
	scdc_row_insert(rel, values, isnull);
	relation_close(rel, NoLock);
}

/* ---- queries ---- */

/* What the source is called now; what it was called, if it is no more. */
static void
take_current_name(ScdcQuery *q)
{
	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(q->source_relid)))
		q->source = DatumGetCString(DirectFunctionCall1(regclassout, ObjectIdGetDatum(q->source_relid)));
}

enum
{
	Q_ID, Q_NAME, Q_OWNER, Q_RELID, Q_STREAM, Q_DEFINITION, Q_CREATED, Q_COLUMNS
};

static void *
query_of_row(HeapTuple tuple, Datum *values, bool *isnull)
{
	ScdcQuery  *q = palloc0(sizeof(ScdcQuery));

	q->query_id = uuid_of(values[Q_ID]);
	q->name = TextDatumGetCString(values[Q_NAME]);
	q->owner = DatumGetObjectId(values[Q_OWNER]);
	q->source_relid = DatumGetObjectId(values[Q_RELID]);
	q->stream_id = DatumGetInt64(values[Q_STREAM]);
	q->created_at = DatumGetTimestampTz(values[Q_CREATED]);
	q->tid = tuple->t_self;
	scdc_definition_from_jsonb(q, DatumGetJsonbPCopy(values[Q_DEFINITION]));
	take_current_name(q);
	return q;
}

List *
scdc_query_list(Snapshot snapshot)
{
	return scdc_rows_list(SCDC_QUERIES, "queries_name", 0, NULL, snapshot, query_of_row);
}

ScdcQuery *
scdc_query_by_name(const char *name, Snapshot snapshot)
{
	ScanKeyData key;

	ScanKeyEntryInitialize(&key, 0, Q_NAME + 1, BTEqualStrategyNumber, InvalidOid, C_COLLATION_OID, F_TEXTEQ,
						   CStringGetTextDatum(name));
	return scdc_rows_first(SCDC_QUERIES, "queries_name", 1, &key, false, snapshot, query_of_row);
}

ScdcQuery *
scdc_query_by_id(const pg_uuid_t *id, Snapshot snapshot)
{
	ScanKeyData key;

	uuid_key(&key, Q_ID + 1, id);
	return scdc_rows_first(SCDC_QUERIES, "queries_id", 1, &key, false, snapshot, query_of_row);
}

static void
query_values(const ScdcQuery *q, Datum *values)
{
	values[Q_ID] = UUIDPGetDatum(&q->query_id);
	values[Q_NAME] = CStringGetTextDatum(q->name);
	values[Q_OWNER] = ObjectIdGetDatum(q->owner);
	values[Q_RELID] = ObjectIdGetDatum(q->source_relid);
	values[Q_STREAM] = Int64GetDatum(q->stream_id);
	values[Q_DEFINITION] = JsonbPGetDatum(scdc_definition_to_jsonb(q));
	values[Q_CREATED] = TimestampTzGetDatum(q->created_at);
}

void
scdc_query_insert(const ScdcQuery *q)
{
	Datum		values[Q_COLUMNS];
	bool		isnull[Q_COLUMNS] = {0};

	query_values(q, values);
	insert_row(SCDC_QUERIES, values, isnull);
}

void
scdc_query_replace(const ScdcQuery *q)
{
	Datum		values[Q_COLUMNS];
	bool		isnull[Q_COLUMNS] = {0};

	query_values(q, values);
	replace_row(SCDC_QUERIES, &q->tid, values, isnull);
}

void
scdc_query_delete(const ScdcQuery *q, Snapshot snapshot)
{
	ScanKeyData key;

	uuid_key(&key, 1, &q->query_id);
	delete_rows(SCDC_QUERIES, "queries_id", 1, &key, snapshot);
	delete_rows(SCDC_RUNS, "runs_id", 1, &key, snapshot);
	delete_rows(SCDC_BATCHES, "batches_id", 1, &key, snapshot);
	delete_rows(SCDC_PROGRESS, "progress_id", 1, &key, snapshot);
}

/* ---- runs ---- */

enum
{
	R_QUERY, R_RUN, R_PLACE, R_STATUS, R_ATTEMPTS, R_STARTED, R_ENDED, R_SQLSTATE, R_ERROR, R_DETAIL, R_HINT,
	R_COLUMNS
};

static void *
run_of_row(HeapTuple tuple, Datum *values, bool *isnull)
{
	ScdcRun    *run = palloc0(sizeof(ScdcRun));

	run->query_id = uuid_of(values[R_QUERY]);
	run->run_id = uuid_of(values[R_RUN]);
	run->status = DatumGetChar(values[R_STATUS]);
	if (run->status == SCDC_RUN_RUNNING && strcmp(TextDatumGetCString(values[R_PLACE]), scdc_label_here()) != 0)
		run->status = SCDC_RUN_STOPPED;
	run->attempts = DatumGetInt32(values[R_ATTEMPTS]);
	run->started_at = DatumGetTimestampTz(values[R_STARTED]);
	run->ended_at = isnull[R_ENDED] ? 0 : DatumGetTimestampTz(values[R_ENDED]);
	run->sqlstate = cstring_or_null(values[R_SQLSTATE], isnull[R_SQLSTATE]);
	run->error = cstring_or_null(values[R_ERROR], isnull[R_ERROR]);
	run->detail = cstring_or_null(values[R_DETAIL], isnull[R_DETAIL]);
	run->hint = cstring_or_null(values[R_HINT], isnull[R_HINT]);
	run->tid = tuple->t_self;
	return run;
}

ScdcRun *
scdc_run_read(const pg_uuid_t *query_id, Snapshot snapshot)
{
	ScanKeyData key;

	uuid_key(&key, R_QUERY + 1, query_id);
	return scdc_rows_first(SCDC_RUNS, "runs_id", 1, &key, false, snapshot, run_of_row);
}

static void
run_values(const ScdcRun *run, Datum *values, bool *isnull)
{
	values[R_QUERY] = UUIDPGetDatum(&run->query_id);
	values[R_RUN] = UUIDPGetDatum(&run->run_id);
	values[R_PLACE] = CStringGetTextDatum(scdc_label_here());
	values[R_STATUS] = CharGetDatum(run->status);
	values[R_ATTEMPTS] = Int32GetDatum(run->attempts);
	values[R_STARTED] = TimestampTzGetDatum(run->started_at);
	values[R_ENDED] = TimestampTzGetDatum(run->ended_at);
	isnull[R_ENDED] = run->ended_at == 0;
	values[R_SQLSTATE] = text_or_null(run->sqlstate, &isnull[R_SQLSTATE]);
	values[R_ERROR] = text_or_null(run->error, &isnull[R_ERROR]);
	values[R_DETAIL] = text_or_null(run->detail, &isnull[R_DETAIL]);
	values[R_HINT] = text_or_null(run->hint, &isnull[R_HINT]);
}

void
scdc_run_insert(const ScdcRun *run)
{
	Datum		values[R_COLUMNS];
	bool		isnull[R_COLUMNS] = {0};

	run_values(run, values, isnull);
	insert_row(SCDC_RUNS, values, isnull);
}

void
scdc_run_replace(const ScdcRun *run)
{
	Datum		values[R_COLUMNS];
	bool		isnull[R_COLUMNS] = {0};

	run_values(run, values, isnull);
	replace_row(SCDC_RUNS, &run->tid, values, isnull);
}

static char *
copy_or_null(const char *text)
{
	return text ? pstrdup(text) : NULL;
}

void
scdc_run_take_error(ScdcRun *run, const ErrorData *e)
{
	run->sqlstate = e ? pstrdup(unpack_sql_state(e->sqlerrcode)) : NULL;
	run->error = e ? copy_or_null(e->message) : NULL;
	run->detail = e ? copy_or_null(e->detail) : NULL;
	run->hint = e ? copy_or_null(e->hint) : NULL;
}

/* ---- batches ---- */

enum
{
	B_QUERY, B_BATCH, B_START, B_END, B_WATERMARK, B_LATE, B_COLUMNS
};

static void *
batch_of_row(HeapTuple tuple, Datum *values, bool *isnull)
{
	ScdcBatch  *b = palloc0(sizeof(ScdcBatch));

	b->batch_id = DatumGetInt64(values[B_BATCH]);
	b->start_offset = cstring_or_null(values[B_START], isnull[B_START]);
	b->end_offset = cstring_or_null(values[B_END], isnull[B_END]);
	b->watermark = DatumGetTimestampTz(values[B_WATERMARK]);
	b->late = DatumGetTimestampTz(values[B_LATE]);
	return b;
}

ScdcBatch *
scdc_batch_last(const pg_uuid_t *query_id, Snapshot snapshot)
{
	ScanKeyData key;

	uuid_key(&key, B_QUERY + 1, query_id);
	return scdc_rows_first(SCDC_BATCHES, "batches_id", 1, &key, true, snapshot, batch_of_row);
}

ScdcBatch *
scdc_batch_read(const pg_uuid_t *query_id, int64 batch_id, Snapshot snapshot)
{
	ScanKeyData keys[2];

	uuid_key(&keys[0], B_QUERY + 1, query_id);
	ScanKeyInit(&keys[1], B_BATCH + 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(batch_id));
	return scdc_rows_first(SCDC_BATCHES, "batches_id", 2, keys, false, snapshot, batch_of_row);
}

void
scdc_batch_insert(const pg_uuid_t *query_id, const ScdcBatch *b)
{
	Datum		values[B_COLUMNS];
	bool		isnull[B_COLUMNS] = {0};

	values[B_QUERY] = UUIDPGetDatum(query_id);
	values[B_BATCH] = Int64GetDatum(b->batch_id);
	values[B_START] = text_or_null(b->start_offset, &isnull[B_START]);
	values[B_END] = text_or_null(b->end_offset, &isnull[B_END]);
	values[B_WATERMARK] = TimestampTzGetDatum(b->watermark);
	values[B_LATE] = TimestampTzGetDatum(b->late);
	insert_row(SCDC_BATCHES, values, isnull);
}

/* ---- progress ---- */

enum
{
	P_QUERY, P_BATCH, P_RUN, P_TOKEN, P_OLDEST, P_PENDING, P_WATERMARK, P_INPUT, P_OUTPUT, P_STATE_ROWS, P_STATE_BYTES,
	P_FINISHED, P_RECORD, P_COLUMNS
};

static void *
progress_of_row(HeapTuple tuple, Datum *values, bool *isnull)
{
	ScdcProgress *p = palloc0(sizeof(ScdcProgress));

	p->batch_id = DatumGetInt64(values[P_BATCH]);
	p->run_id = uuid_of(values[P_RUN]);
	p->token = DatumGetInt64(values[P_TOKEN]);
	p->oldest_batch = DatumGetInt64(values[P_OLDEST]);
	p->oldest_pending = cstring_or_null(values[P_PENDING], isnull[P_PENDING]);
	p->watermark = DatumGetTimestampTz(values[P_WATERMARK]);
	p->input_rows = DatumGetInt64(values[P_INPUT]);
	p->output_rows = DatumGetInt64(values[P_OUTPUT]);
	p->state_rows = DatumGetInt64(values[P_STATE_ROWS]);
	p->state_bytes = DatumGetInt64(values[P_STATE_BYTES]);
	p->finished_at = DatumGetTimestampTz(values[P_FINISHED]);
	p->record = DatumGetJsonbPCopy(values[P_RECORD]);
	return p;
}

ScdcProgress *
scdc_progress_last(const pg_uuid_t *query_id, Snapshot snapshot)
{
	ScanKeyData key;

	uuid_key(&key, P_QUERY + 1, query_id);
	return scdc_rows_first(SCDC_PROGRESS, "progress_id", 1, &key, true, snapshot, progress_of_row);
}

List *
scdc_progress_list(const pg_uuid_t *query_id, Snapshot snapshot)
{
	ScanKeyData key;

	uuid_key(&key, P_QUERY + 1, query_id);
	return scdc_rows_list(SCDC_PROGRESS, "progress_id", 1, &key, snapshot, progress_of_row);
}

void
scdc_progress_insert(const pg_uuid_t *query_id, const ScdcProgress *p)
{
	Datum		values[P_COLUMNS];
	bool		isnull[P_COLUMNS] = {0};

	values[P_QUERY] = UUIDPGetDatum(query_id);
	values[P_BATCH] = Int64GetDatum(p->batch_id);
	values[P_RUN] = UUIDPGetDatum(&p->run_id);
	values[P_TOKEN] = Int64GetDatum(p->token);
	values[P_OLDEST] = Int64GetDatum(p->oldest_batch);
	values[P_PENDING] = text_or_null(p->oldest_pending, &isnull[P_PENDING]);
	values[P_WATERMARK] = TimestampTzGetDatum(p->watermark);
	values[P_INPUT] = Int64GetDatum(p->input_rows);
	values[P_OUTPUT] = Int64GetDatum(p->output_rows);
	values[P_STATE_ROWS] = Int64GetDatum(p->state_rows);
	values[P_STATE_BYTES] = Int64GetDatum(p->state_bytes);
	values[P_FINISHED] = TimestampTzGetDatum(p->finished_at);
	values[P_RECORD] = JsonbPGetDatum(p->record);
	insert_row(SCDC_PROGRESS, values, isnull);
}

int64
scdc_query_needs(const ScdcQuery *q, Snapshot snapshot)
{
	ScdcProgress *done = scdc_progress_last(&q->query_id, snapshot);
	ScdcBatch  *last = scdc_batch_last(&q->query_id, snapshot);
	int64		first = done ? Min(done->oldest_batch, done->batch_id + 1) : 0;
	ScdcBatch  *batch = scdc_batch_read(&q->query_id, first, snapshot);
	const char *offset;
	int64		version;

	/* the next one, while it is not planned, begins where the last one ends */
	if (batch)
		offset = batch->start_offset;
	else
		offset = last ? last->end_offset : q->initial_offset;
	version = offset ? strtoll(offset, NULL, 10) + 1 : 0;
	return q->end_version && version > strtoll(q->end_version, NULL, 10) ? PG_INT64_MAX : version;
}

void
scdc_query_trim(const pg_uuid_t *query_id, int64 before_batch, int64 before_progress, Snapshot snapshot)
{
	ScanKeyData keys[2];

	uuid_key(&keys[0], 1, query_id);
	ScanKeyInit(&keys[1], B_BATCH + 1, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(before_batch));
	delete_rows(SCDC_BATCHES, "batches_id", 2, keys, snapshot);
	ScanKeyInit(&keys[1], P_BATCH + 1, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(before_progress));
	delete_rows(SCDC_PROGRESS, "progress_id", 2, keys, snapshot);
}
