/*-------------------------------------------------------------------------
 *
 * batch.c
 *	  Planning a micro-batch and carrying it out (see batch.h and state.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "debug.h"
#include "guc.h"
#include "jobs/batch.h"
#include "jobs/failure.h"
#include "jobs/progress.h"
#include "jobs/sink.h"
#include "jobs/source.h"
#include "log/rows.h"

/* Of the batch that was planned last, for its progress record. */
static ScdcDurations durations;
static TimestampTz trigger_start;
static TimestampTz previous_start;
static bool in_commit = false;	/* of a batch; for tests */

static double
elapsed_ms(instr_time *since)
{
	instr_time	now;
	double		ms;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, *since);
	ms = INSTR_TIME_GET_MILLISEC(now);
	INSTR_TIME_SET_CURRENT(*since);
	return ms;
}

/* ---------------------------------------------------------------------
 * transactions
 * ---------------------------------------------------------------------
 */

static Snapshot
begin(void)
{
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	return RegisterSnapshot(GetLatestSnapshot());
}

static void
commit(Snapshot snapshot)
{
	UnregisterSnapshot(snapshot);
	PopActiveSnapshot();
	CommitTransactionCommand();
}

void
scdc_batch_load(ScdcJob *job, Snapshot snapshot)
{
	MemoryContext cxt = AllocSetContextCreate(job->context, "streamcdc query", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	ScdcQuery  *query = scdc_extension_exists() ? scdc_query_by_id(&job->query->query_id, snapshot) : NULL;
	ScdcRun    *run;

	MemoryContextSwitchTo(old);
	if (query && !SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(query->owner)))
		scdc_stop(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION, "the owner of the query was dropped", NULL,
				  "Drop the query with stream_drop.");
	run = query ? scdc_run_read(&query->query_id, snapshot) : NULL;
	if (run == NULL || run->status != SCDC_RUN_RUNNING || !scdc_uuid_equal(&run->run_id, &job->run_id))
		scdc_leave("the query was dropped, stopped or started again");
	job->query = query;
	if (job->query_cxt)
		MemoryContextDelete(job->query_cxt);
	job->query_cxt = cxt;
}

/* ---------------------------------------------------------------------
 * planning
 * ---------------------------------------------------------------------
 */

/*
 * Columns that were added to the source become the query's, if it is to
 * follow them.  The state's rows have the old columns, and so it is made anew.
 */
static void
merge_columns(ScdcJob *job, Snapshot snapshot)
{
	ScdcQuery  *q = job->query;
	ScdcQuery	now = *q;
	bool		more;

	if (!q->merge_schema)
		return;
	scdc_source_take_columns(&now);
	more = now.ncolumns > q->ncolumns;
	for (int i = 0; i < q->ncolumns && more; i++)
		more = now.columns[i].attnum == q->columns[i].attnum && strcmp(now.columns[i].name, q->columns[i].name) == 0 &&
			now.columns[i].type == q->columns[i].type && now.columns[i].typmod == q->columns[i].typmod &&
			now.columns[i].collation == q->columns[i].collation;
	if (!more)
		return;
	scdc_query_replace(&now);
	CommandCounterIncrement();
	UpdateActiveSnapshotCommandId();
	scdc_batch_load(job, GetLatestSnapshot());
	job->state_ready = false;
}

static void
insert_plan(const ScdcQuery *q, const ScdcBatch *last, const ScdcProgress *done, const char *after, const char *end)
{
	ScdcBatch	batch = {0};

	batch.batch_id = last ? last->batch_id + 1 : 0;
	batch.start_offset = unconstify(char *, after);
	batch.end_offset = unconstify(char *, end);
	batch.watermark = done ? done->watermark : SetEpochTimestamp();
	batch.late = last ? last->watermark : SetEpochTimestamp();
	scdc_batch_insert(&q->query_id, &batch);
}

/*
 * The plan need not be durable before the batch is: if the plan is lost, so is
 * what was done by it.  That does not hold for what is done elsewhere.
 */
static void
set_plan_commit(const ScdcQuery *q)
{
	const char *how = NULL;

	if (q->sink_kind == SCDC_SINK_TABLE && q->progress_table == NULL && !scdc_sink_is_foreign(q))
		how = "off";
	else if (synchronous_commit == SYNCHRONOUS_COMMIT_OFF)
		how = "local";			/* another plan under the same number would be taken for done there */
	if (how)
		(void) set_config_option("synchronous_commit", how, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

ScdcPlan
scdc_batch_plan(ScdcJob *job, bool limited, bool no_data)
{
	Snapshot	snapshot;
	ScdcQuery  *q;
	ScdcSource *source;
	ScdcBatch  *last;
	ScdcProgress *done;
	const char *after;
	char	   *next;
	bool		stateful;
	bool		ended = false;
	ScdcPlan	plan = SCDC_PLAN_NOTHING;
	instr_time	time;

	memset(&durations, 0, sizeof(durations));
	INSTR_TIME_SET_CURRENT(time);
	snapshot = begin();
	trigger_start = GetCurrentTimestamp();
	scdc_batch_load(job, snapshot);
	q = job->query;
	last = scdc_batch_last(&q->query_id, snapshot);
	done = scdc_progress_last(&q->query_id, snapshot);
	if (last && (done == NULL || done->batch_id < last->batch_id))
	{
		commit(snapshot);
		return SCDC_PLAN_BATCH;
	}

	merge_columns(job, snapshot);
	q = job->query;
	source = scdc_source_open(q, snapshot);
	stateful = scdc_source_flow(source).guard && scdc_source_flow(source).way != SCDC_FLOW_STRAIGHT &&
		scdc_source_flow(source).way != SCDC_FLOW_COMMIT;
	after = last ? last->end_offset : q->initial_offset;
	if (job->upto_fixed && (job->upto == NULL || !scdc_source_before(source, after, job->upto)))
	{
		next = NULL;
		ended = true;
	}
	else
		next = scdc_source_next(source, after, job->upto_fixed ? job->upto : NULL, limited, job->complete, &ended);
	durations.latest_offset = elapsed_ms(&time);

	if (next)
		plan = SCDC_PLAN_BATCH;
	else if (stateful && done && last &&
			 ((no_data && q->no_data_batches && done->watermark > last->watermark) || (ended && done->state_rows > 0)))
	{
		plan = SCDC_PLAN_BATCH;
		next = unconstify(char *, after);
	}
	else if (ended)
		plan = SCDC_PLAN_ENDED;
	else if (!scdc_source_is_ready(source))
		plan = SCDC_PLAN_NOT_YET;
	if (plan == SCDC_PLAN_BATCH)
	{
		insert_plan(q, last, done, after, next);
		set_plan_commit(q);
	}
	scdc_source_close(source);
	commit(snapshot);
	durations.wal_commit = elapsed_ms(&time);
	return plan;
}

bool
scdc_batch_fix_end(ScdcJob *job)
{
	Snapshot	snapshot = begin();
	ScdcSource *source = scdc_source_open(job->query, snapshot);
	char	   *latest = scdc_source_latest(source);

	if (!scdc_source_is_ready(source))
	{
		scdc_source_close(source);
		commit(snapshot);
		return false;
	}
	job->upto = latest ? MemoryContextStrdup(job->context, latest) : NULL;
	job->upto_fixed = true;
	scdc_source_close(source);
	commit(snapshot);
	return true;
}

/* ---------------------------------------------------------------------
 * carrying it out
 * ---------------------------------------------------------------------
 */

/* Reads a batch through its flow. */
static ScdcFlowOptions
read_batch(ScdcJob *job, ScdcSource *source, const ScdcBatch *batch, Tuplestorestate *output, ScdcFlowResult *result)
{
	ScdcFlowOptions options = scdc_source_flow(source);
	ScdcFlow   *flow;

	options.expected_rows = job->state.rows;
	options.expected_crc = job->state.crc;
	flow = scdc_flow_begin(scdc_source_work(source), &options, batch, job->state.store, output);
	scdc_source_read(source, batch, flow);
	scdc_flow_end(flow, result);
	return options;
}

/*
 * Registered before any connection to another server is made, and so called
 * after those have committed.
 */
static void
at_transaction_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT && in_commit)
		scdc_debug_point("job-in-commit");
	if (event == XACT_EVENT_ABORT)
		in_commit = false;
}

void
scdc_batch_run(ScdcJob *job)
{
	static bool registered = false;
	ScdcQuery  *q;
	Snapshot	snapshot;
	ScdcSource *source;
	ScdcBatch  *batch;
	ScdcFlowResult flow;
	ScdcProgress progress = {0};
	ScdcProgress *previous;
	ScdcProgressInput in = {0};
	Tuplestorestate *rows;
	TupleDesc	desc;
	instr_time	time;

	if (!registered)
		RegisterXactCallback(at_transaction_end, NULL);
	registered = true;
	INSTR_TIME_SET_CURRENT(time);
	snapshot = begin();
	scdc_batch_load(job, snapshot);
	q = job->query;
	batch = scdc_batch_last(&q->query_id, snapshot);
	source = scdc_source_open(q, snapshot);
	desc = scdc_source_work(source)->batch;
	scdc_debug_point("job-before-read");

	rows = tuplestore_begin_heap(false, false, scdc_flow_memory());
	in.options = read_batch(job, source, batch, rows, &flow);
	durations.get_batch = elapsed_ms(&time);
	scdc_debug_point("job-before-sink");

	if (flow.output_rows > 0 || q->sink_kind == SCDC_SINK_TABLE)
		scdc_sink_check_again(q, desc, &job->check);
	durations.query_planning = elapsed_ms(&time);
	in.output_rows = scdc_sink_write(q, desc, rows, flow.output_rows, batch->batch_id);
	tuplestore_end(rows);
	durations.add_batch = elapsed_ms(&time);
	scdc_debug_point("job-after-sink");

	progress.batch_id = batch->batch_id;
	progress.run_id = job->run_id;
	progress.token = (int64) pg_prng_uint64(&pg_global_prng_state);
	progress.oldest_batch = flow.oldest_batch;
	progress.oldest_pending = flow.oldest_pending;
	progress.watermark = in.options.guard ? flow.watermark : SetEpochTimestamp();	/* a raw stream has none */
	previous = scdc_progress_last(&q->query_id, snapshot);
	progress.input_rows = (previous ? previous->input_rows : 0) + flow.input_rows;
	progress.output_rows = (previous ? previous->output_rows : 0) + (in.output_rows >= 0 ? in.output_rows : flow.output_rows);
	progress.state_rows = flow.state_rows;
	progress.state_bytes = flow.state_bytes;
	progress.finished_at = GetCurrentTimestamp();
	in.query = q;
	in.run_id = job->run_id;
	in.batch = batch;
	in.flow = &flow;
	in.durations = durations;
	in.trigger_start = trigger_start;
	in.previous_start = previous_start;
	in.latest_offset = scdc_source_latest(source);
	in.text_versions = scdc_source_work(source)->text_versions;
	in.state = &job->state;
	progress.record = scdc_progress_record(&in);
	scdc_progress_insert(&q->query_id, &progress);
	scdc_query_trim(&q->query_id, Min(flow.oldest_batch, batch->batch_id),
					batch->batch_id + 1 - scdc_progress_retention, snapshot);
	scdc_source_close(source);
	scdc_debug_point("job-before-commit");
	in_commit = true;
	commit(snapshot);
	in_commit = false;
	scdc_debug_point("job-after-commit");

	if (job->state.store)
		scdc_state_mark(&job->state, q, progress.batch_id, progress.token, flow.state_rows, flow.state_crc);
	scdc_debug_point("job-after-mark");
	previous_start = trigger_start;
}

/* ---------------------------------------------------------------------
 * restoring
 * ---------------------------------------------------------------------
 */

/* Does a batch again, for its state only. */
static void
redo_batch(ScdcJob *job, int64 batch_id, int64 token)
{
	Snapshot	snapshot = begin();
	ScdcBatch  *batch = scdc_batch_read(&job->query->query_id, batch_id, snapshot);
	ScdcSource *source = scdc_source_open(job->query, snapshot);
	ScdcFlowResult flow;

	if (batch == NULL)
		scdc_stop(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				  psprintf("batch " INT64_FORMAT " of query \"%s\" is not known any more", batch_id, job->query->name),
				  "The state of the query cannot be made again without it.", NULL);
	(void) read_batch(job, source, batch, NULL, &flow);
	scdc_source_close(source);
	commit(snapshot);
	scdc_state_mark(&job->state, job->query, batch_id, token, flow.state_rows, flow.state_crc);
	scdc_debug_point("job-restoring");
}

static int64
token_of(List *progress, int64 batch_id)
{
	ListCell   *lc;

	foreach(lc, progress)
		if (((ScdcProgress *) lfirst(lc))->batch_id == batch_id)
			return ((ScdcProgress *) lfirst(lc))->token;
	return 0;					/* trimmed: nothing can be gone on with from there */
}

void
scdc_batch_restore(ScdcJob *job, void (*restoring) (void))
{
	MemoryContext old;
	Snapshot	snapshot;
	ScdcSource *source;
	ScdcFlowWay way;
	List	   *progress;			/* as long as the query that is loaded */
	int64		first;
	int64		last;

	if (job->state_ready)
		return;
	scdc_state_close(&job->state);
	snapshot = begin();
	scdc_batch_load(job, snapshot);
	source = scdc_source_open(job->query, snapshot);
	way = scdc_source_flow(source).way;
	scdc_source_close(source);
	old = MemoryContextSwitchTo(job->query_cxt);
	progress = scdc_progress_list(&job->query->query_id, snapshot);
	MemoryContextSwitchTo(old);
	last = progress ? ((ScdcProgress *) llast(progress))->batch_id : -1;
	if (way == SCDC_FLOW_BUFFER || way == SCDC_FLOW_NET)
	{
		if (job->state_broken)
			scdc_state_reset(&job->state, job->query);
		else
			scdc_state_open(&job->state, job->query);
		job->state_broken = false;
		first = scdc_state_first_to_redo(&job->state, job->query, progress);
	}
	else
		first = last + 1;
	commit(snapshot);

	if (first <= last)
	{
		restoring();
		ereport(LOG,
				(errmsg("state of query \"%s\" is being restored from batch " INT64_FORMAT " on", job->query->name, first)));
	}
	for (int64 b = first; b <= last; b++)
	{
		CHECK_FOR_INTERRUPTS();
		redo_batch(job, b, token_of(progress, b));
	}
	job->state_ready = true;
}
