/*-------------------------------------------------------------------------
 *
 * api_job_status.c
 *	  SQL functions that show streaming queries: stream_queries,
 *	  stream_status, stream_last_progress, stream_recent_progress,
 *	  stream_exception, stream_explain.
 *
 * Everybody sees name, owner and status; the rest is for the owner.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/int.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "jobs/control.h"
#include "jobs/failure.h"
#include "jobs/flow.h"
#include "jobs/progress.h"
#include "jobs/sink.h"
#include "jobs/slots.h"
#include "jobs/source.h"
#include "log/catalog.h"
#include "log/changelog.h"
#include "owner.h"
#include "shmem.h"
#include "sql/resolve.h"

PG_FUNCTION_INFO_V1(streamcdc_list_queries);
PG_FUNCTION_INFO_V1(streamcdc_status);
PG_FUNCTION_INFO_V1(streamcdc_last_progress);
PG_FUNCTION_INFO_V1(streamcdc_recent_progress);
PG_FUNCTION_INFO_V1(streamcdc_exception);
PG_FUNCTION_INFO_V1(streamcdc_explain);

/* What a query's slot says, copied out of shared memory. */
typedef struct SlotView
{
	bool		present;
	ScdcSlotPhase phase;
	ScdcJobActivity activity;
	bool		stop;
	bool		has_data;
	int64		batch_id;
	ScdcSlotError error;
} SlotView;

static SlotView
look_at_slot(const ScdcQuery *q)
{
	ScdcJobSlot *slot = scdc_slot_find(MyDatabaseId, &q->query_id);
	SlotView	v = {0};

	v.batch_id = -1;
	if (slot == NULL)
		return v;
	LWLockAcquire(scdc_shared->lock, LW_SHARED);
	v.present = slot->phase != SCDC_SLOT_FREE && scdc_uuid_equal(&slot->query_id, &q->query_id);
	v.phase = slot->phase;
	v.activity = slot->activity;
	v.stop = pg_atomic_read_u32(&slot->stop) != SCDC_STOP_NONE;
	v.has_data = slot->has_data;
	v.batch_id = slot->batch_id;
	v.error = slot->error;
	LWLockRelease(scdc_shared->lock);
	return v;
}

/* What ended a run, message and all; NULL: nothing. */
static char *
run_error(const ScdcRun *run)
{
	return run && run->error ? scdc_error_text(run->error, run->detail, run->hint) : NULL;
}

static const char *
status_word(const ScdcRun *run, const SlotView *slot)
{
	if (run == NULL)
		return "stopped";
	switch (run->status)
	{
		case SCDC_RUN_STOPPED:
			return "stopped";
		case SCDC_RUN_FINISHED:
			return "finished";
		case SCDC_RUN_FAILED:
			return "failed";
	}
	if (!slot->present)
		return "restarting";
	if (slot->stop)
		return "stopping";
	if (slot->activity == SCDC_JOB_RESTORING)
		return "restoring";
	if (slot->activity == SCDC_JOB_BACKING_OFF)
		return "restarting";
	return "running";
}

/* ---------------------------------------------------------------------
 * the view
 * ---------------------------------------------------------------------
 */

enum
{
	V_NAME, V_ID, V_RUN_ID, V_OWNER, V_SOURCE, V_SINK, V_STATUS, V_OUTPUT_MODE, V_SINK_MODE, V_TRIGGER, V_BATCH_ID,
	V_START, V_PROCESSED, V_LAG, V_WATERMARK, V_PENDING, V_INPUT, V_OUTPUT, V_STATE_ROWS, V_STATE_BYTES, V_LAST_BATCH,
	V_ERROR, V_COLUMNS
};

static Datum
text_value(const char *s, bool *isnull)
{
	*isnull = s == NULL;
	return s ? CStringGetTextDatum(s) : (Datum) 0;
}

/* A version; NULL for the beginning, for versions that are text, and where there is none after the last one that there can be. */
static Datum
version_value(const char *offset, int64 add, bool *isnull)
{
	char	   *end = NULL;
	int64		version = offset ? strtoll(offset, &end, 10) : 0;

	*isnull = offset == NULL || end == offset || *end != '\0' || pg_add_s64_overflow(version, add, &version);
	return Int64GetDatum(version);
}

/* Versions that the query has not read yet; -1: unknown. */
static int64
version_lag(const ScdcQuery *q, const char *processed, Snapshot snapshot)
{
	ScdcBlockInfo newest;

	if (q->stream_id == 0 || !scdc_changelog_last(q->stream_id, snapshot, &newest))
		return -1;
	return Max(newest.last_version - (processed ? strtoll(processed, NULL, 10) : -1), 0);
}

static void
details(const ScdcQuery *q, const ScdcRun *run, const SlotView *slot, Snapshot snapshot, Datum *values, bool *isnull)
{
	ScdcProgress *p = scdc_progress_last(&q->query_id, snapshot);
	ScdcBatch  *batch = p ? scdc_batch_read(&q->query_id, p->batch_id, snapshot) : NULL;
	const char *processed = batch ? batch->end_offset : q->initial_offset;
	int64		lag = version_lag(q, processed, snapshot);
	const char *error = run_error(run);

	if (error == NULL && slot->present && slot->activity == SCDC_JOB_BACKING_OFF)
		error = scdc_error_text(slot->error.message, slot->error.detail, slot->error.hint);
	if (error == NULL && run && run->status == SCDC_RUN_RUNNING && !slot->present)
	{
		ScdcCaptureEntry *entry = scdc_entry_find(MyDatabaseId);

		if (entry && entry->jobs_problem[0])
			error = pstrdup(entry->jobs_problem);
	}

	values[V_RUN_ID] = run ? UUIDPGetDatum(&run->run_id) : (Datum) 0;
	isnull[V_RUN_ID] = run == NULL;
	values[V_SOURCE] = text_value(q->source, &isnull[V_SOURCE]);
	values[V_SINK] = text_value(q->sink, &isnull[V_SINK]);
	values[V_OUTPUT_MODE] = text_value(q->output_mode, &isnull[V_OUTPUT_MODE]);
	values[V_SINK_MODE] = text_value(q->sink_kind != SCDC_SINK_TABLE ? NULL : q->apply ? "apply" : "append",
									 &isnull[V_SINK_MODE]);
	values[V_TRIGGER] = text_value(q->trigger_text, &isnull[V_TRIGGER]);
	values[V_BATCH_ID] = Int64GetDatum(p ? p->batch_id : -1);
	isnull[V_BATCH_ID] = p == NULL;
	values[V_START] = version_value(q->initial_offset, 1, &isnull[V_START]);
	values[V_PROCESSED] = version_value(processed, 0, &isnull[V_PROCESSED]);
	values[V_LAG] = Int64GetDatum(lag);
	isnull[V_LAG] = lag < 0;
	values[V_WATERMARK] = TimestampTzGetDatum(p ? p->watermark : 0);
	isnull[V_WATERMARK] = p == NULL || p->watermark == SetEpochTimestamp();
	values[V_PENDING] = version_value(p ? p->oldest_pending : NULL, 0, &isnull[V_PENDING]);
	values[V_INPUT] = Int64GetDatum(p ? p->input_rows : 0);
	values[V_OUTPUT] = Int64GetDatum(p ? p->output_rows : 0);
	values[V_STATE_ROWS] = Int64GetDatum(p ? p->state_rows : 0);
	values[V_STATE_BYTES] = Int64GetDatum(p ? p->state_bytes : 0);
	values[V_LAST_BATCH] = TimestampTzGetDatum(p ? p->finished_at : 0);
	isnull[V_LAST_BATCH] = p == NULL;
	values[V_ERROR] = text_value(error, &isnull[V_ERROR]);
}

Datum
streamcdc_list_queries(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Snapshot	snapshot;
	ListCell   *lc;

	scdc_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	foreach(lc, scdc_query_list(snapshot))
	{
		ScdcQuery  *q = lfirst(lc);
		ScdcRun    *run = scdc_run_read(&q->query_id, snapshot);
		SlotView	slot = look_at_slot(q);
		Datum		values[V_COLUMNS];
		bool		isnull[V_COLUMNS];
		char	   *owner = GetUserNameFromId(q->owner, true);

		memset(isnull, true, sizeof(isnull));
		values[V_NAME] = CStringGetTextDatum(q->name);
		values[V_ID] = UUIDPGetDatum(&q->query_id);
		values[V_OWNER] = CStringGetTextDatum(owner ? owner : psprintf("%u", q->owner));
		values[V_STATUS] = CStringGetTextDatum(status_word(run, &slot));
		isnull[V_NAME] = isnull[V_OWNER] = isnull[V_STATUS] = false;
		if (scdc_control_may(q))
		{
			memset(isnull, false, sizeof(isnull));
			details(q, run, &slot, snapshot, values, isnull);
		}
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, isnull);
	}
	UnregisterSnapshot(snapshot);
	return (Datum) 0;
}

/* ---------------------------------------------------------------------
 * one query
 * ---------------------------------------------------------------------
 */

static ScdcQuery *
query_arg(FunctionCallInfo fcinfo, Snapshot snapshot)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"query_name\" must not be null")));
	return scdc_control_find(text_to_cstring(PG_GETARG_TEXT_PP(0)), true, snapshot);
}

static const char *
status_message(const ScdcQuery *q, const ScdcRun *run, const SlotView *slot)
{
	if (run == NULL || run->status == SCDC_RUN_STOPPED || run->status == SCDC_RUN_FINISHED)
		return "Stopped";
	if (run->status == SCDC_RUN_FAILED)
		return psprintf("Terminated with exception: %s", run->error);
	if (!slot->present)
		return "Waiting for a background worker";
	switch (slot->activity)
	{
		case SCDC_JOB_STARTING:
			return "Initializing sources";
		case SCDC_JOB_WAITING:
			return q->trigger_interval > 0 ? "Waiting for next trigger" : "Waiting for data to arrive";
		case SCDC_JOB_BATCH:
			return psprintf("Processing batch " INT64_FORMAT, slot->batch_id);
		case SCDC_JOB_RESTORING:
			return "Restoring state";
		case SCDC_JOB_BACKING_OFF:
			return psprintf("Waiting to try again after an error: %s", slot->error.message);
	}
	return "";
}

Datum
streamcdc_status(PG_FUNCTION_ARGS)
{
	Snapshot	snapshot;
	ScdcQuery  *q;
	ScdcRun    *run;
	SlotView	slot;
	StringInfoData s;

	scdc_require_preload();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	q = query_arg(fcinfo, snapshot);
	run = scdc_run_read(&q->query_id, snapshot);
	UnregisterSnapshot(snapshot);
	slot = look_at_slot(q);
	initStringInfo(&s);
	appendStringInfoString(&s, "{\"message\": ");
	escape_json(&s, status_message(q, run, &slot));
	appendStringInfo(&s, ", \"isDataAvailable\": %s, \"isTriggerActive\": %s}", slot.present && slot.has_data ? "true" : "false",
					 slot.present && (slot.activity == SCDC_JOB_BATCH || slot.activity == SCDC_JOB_RESTORING) ? "true" : "false");
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(s.data));
}

Datum
streamcdc_last_progress(PG_FUNCTION_ARGS)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScdcQuery  *q = query_arg(fcinfo, snapshot);
	ScdcProgress *p = scdc_progress_last(&q->query_id, snapshot);

	UnregisterSnapshot(snapshot);
	if (p == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(p->record);
}

Datum
streamcdc_recent_progress(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Snapshot	snapshot;
	ScdcQuery  *q;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, SRF_SINGLE_USE_EXPECTED);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	q = query_arg(fcinfo, snapshot);
	foreach(lc, scdc_progress_list(&q->query_id, snapshot))
	{
		Datum		value = JsonbPGetDatum(((ScdcProgress *) lfirst(lc))->record);
		bool		isnull = false;

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &value, &isnull);
	}
	UnregisterSnapshot(snapshot);
	return (Datum) 0;
}

Datum
streamcdc_exception(PG_FUNCTION_ARGS)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScdcQuery  *q = query_arg(fcinfo, snapshot);
	ScdcRun    *run = scdc_run_read(&q->query_id, snapshot);

	UnregisterSnapshot(snapshot);
	if (run == NULL || run->status != SCDC_RUN_FAILED || run->error == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(run_error(run)));
}

/* ---------------------------------------------------------------------
 * stream_explain
 * ---------------------------------------------------------------------
 */

static void
put_line(ReturnSetInfo *rsinfo, char *line)
{
	Datum		value = CStringGetTextDatum(line);
	bool		isnull = false;

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &value, &isnull);
}

static const char *
mode_word(ScdcDeduplication mode)
{
	return mode == SCDC_DEDUP_NONE ? "none" : mode == SCDC_DEDUP_NET_CHANGES ? "netChanges" : "dropCarryovers";
}

static char *
passes_line(const ScdcFlowOptions *flow, const ScdcQuery *q, ScdcPasses passes)
{
	StringInfoData s;

	initStringInfo(&s);
	appendStringInfo(&s, "Passes: %s", !passes.drop_carryovers && !passes.detect_updates && !passes.net_changes ? "none" : "");
	if (passes.drop_carryovers)
		appendStringInfoString(&s, "carry-over removal");
	if (passes.detect_updates)
		appendStringInfo(&s, "%supdate detection", passes.drop_carryovers ? ", " : "");
	if (passes.net_changes)
		appendStringInfo(&s, "%snet changes", passes.drop_carryovers || passes.detect_updates ? ", " : "");
	appendStringInfo(&s, " (deduplicationMode %s, computeUpdates %s, emission by %s)", mode_word(q->mode),
					 q->compute_updates ? "true" : "false", q->emission == SCDC_EMIT_BY_COMMIT ? "commit" : "watermark");
	return s.data;
}

Datum
streamcdc_explain(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Snapshot	snapshot;
	ScdcQuery  *q;
	ScdcSource *source;
	ScdcFlowOptions flow;
	ScdcOwnerScope scope;

	scdc_require_preload();
	InitMaterializedSRF(fcinfo, SRF_SINGLE_USE_EXPECTED);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	q = query_arg(fcinfo, snapshot);
	scdc_owner_begin(&scope, q->owner);
	source = scdc_source_open(q, snapshot);
	flow = scdc_source_flow(source);

	put_line(rsinfo, psprintf("Source: %s \"%s\"%s", q->stream_id != 0 ? "tracked table" : "registered change log", q->source,
							  q->as_table ? ", format \"table\"" : ""));
	put_line(rsinfo, passes_line(&flow, q, scdc_source_passes(source)));
	put_line(rsinfo, flow.way == SCDC_FLOW_NET ? "State: first and last event of each row identity, in rocksdb" :
			 flow.way == SCDC_FLOW_BUFFER ?
			 psprintf("State: rows that wait for the watermark, in %s", q->provider == SCDC_STORE_ROCKSDB ? "rocksdb" : "memory") :
			 pstrdup("State: none"));
	put_line(rsinfo, psprintf("Trigger: %s", q->trigger_text));
	put_line(rsinfo, psprintf("Sink: %s, %s, %s", scdc_sink_description(q), q->apply ? "apply" : "append",
							  scdc_sink_guarantee(q)));
	put_line(rsinfo, psprintf("Query: %s", q->query ? q->query : "SELECT * FROM batch"));
	scdc_sink_explain(q, scdc_source_work(source)->batch, rsinfo->setResult, rsinfo->setDesc);
	scdc_source_close(source);
	scdc_owner_end(&scope);
	UnregisterSnapshot(snapshot);
	return (Datum) 0;
}
