/*-------------------------------------------------------------------------
 *
 * progress.c
 *	  The progress record of a batch (see progress.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "commands/async.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "jobs/progress.h"
#include "jobs/sink.h"
#include "jobs/source.h"

char *
scdc_progress_time(TimestampTz t)
{
	struct pg_tm tm;
	fsec_t		fsec;

	if (TIMESTAMP_NOT_FINITE(t) || timestamp2tm(t, NULL, &tm, &fsec, NULL, NULL) != 0)
		return pstrdup(t == DT_NOEND ? "infinity" : "-infinity");
	/* as ISO 8601 writes years of more than four digits and those before year 0, which is 1 BC */
	return psprintf("%s%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year < 0 ? "-" : tm.tm_year > 9999 ? "+" : "",
					abs(tm.tm_year), tm.tm_mon, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, fsec / 1000);
}

void
scdc_progress_notify(const char *event, const ScdcQuery *q, const pg_uuid_t *run_id, int64 batch_id)
{
	StringInfoData s;

	initStringInfo(&s);
	appendStringInfo(&s, "{\"event\": \"%s\", \"id\": \"%s\", \"runId\": \"%s\", \"name\": ", event,
					 scdc_uuid_text(&q->query_id), scdc_uuid_text(run_id));
	escape_json(&s, q->name);
	if (batch_id >= 0)
		appendStringInfo(&s, ", \"batchId\": " INT64_FORMAT, batch_id);
	appendStringInfo(&s, ", \"timestamp\": \"%s\"}", scdc_progress_time(GetCurrentTimestamp()));
	Async_Notify("streamcdc", s.data);
	pfree(s.data);
}

static void
put_key(StringInfo s, const char *key)
{
	char		last = s->data[s->len - 1];

	if (last != '{' && last != '[')
		appendStringInfoString(s, ", ");
	appendStringInfo(s, "\"%s\": ", key);
}

static void
put_text(StringInfo s, const char *key, const char *value)
{
	put_key(s, key);
	if (value)
		escape_json(s, value);
	else
		appendStringInfoString(s, "null");
}

static void
put_int(StringInfo s, const char *key, int64 value)
{
	put_key(s, key);
	appendStringInfo(s, INT64_FORMAT, value);
}

/* NaN and infinite values are left out. */
static void
put_rate(StringInfo s, const char *key, double rows, double seconds)
{
	double		rate = rows / seconds;

	if (seconds <= 0 || !isfinite(rate))
		return;
	put_key(s, key);
	appendStringInfo(s, "%.1f", rate);
}

static void
put_offset(StringInfo s, const char *key, const char *offset, bool text_versions)
{
	put_key(s, key);
	if (offset == NULL)
		appendStringInfoString(s, "null");
	else if (text_versions)
		escape_json(s, offset);
	else
		appendStringInfoString(s, offset);
}

static void
put_durations(StringInfo s, const ScdcDurations *d, double total)
{
	put_key(s, "durationMs");
	appendStringInfoChar(s, '{');
	put_int(s, "addBatch", (int64) d->add_batch);
	put_int(s, "commitOffsets", (int64) d->commit_offsets);
	put_int(s, "getBatch", (int64) d->get_batch);
	put_int(s, "latestOffset", (int64) d->latest_offset);
	put_int(s, "queryPlanning", (int64) d->query_planning);
	put_int(s, "triggerExecution", (int64) total);
	put_int(s, "walCommit", (int64) d->wal_commit);
	appendStringInfoChar(s, '}');
}

static void
put_event_time(StringInfo s, const ScdcProgressInput *in)
{
	const ScdcFlowResult *f = in->flow;

	if (!in->options.guard)
		return;					/* no watermark */
	put_key(s, "eventTime");
	appendStringInfoChar(s, '{');
	if (f->max_timestamp != DT_NOBEGIN)
	{
		double		average = f->sum_timestamp / Max(f->input_rows, 1);

		put_text(s, "avg", scdc_progress_time(SetEpochTimestamp() + (TimestampTz) (average * 1e6)));
		put_text(s, "max", scdc_progress_time(f->max_timestamp));
		put_text(s, "min", scdc_progress_time(f->min_timestamp));
	}
	/* the one that the batch used, not the one that it made */
	put_text(s, "watermark", scdc_progress_time(in->batch->watermark));
	appendStringInfoChar(s, '}');
}

static void
put_state(StringInfo s, const ScdcProgressInput *in)
{
	ScdcStoreMetrics m;

	put_key(s, "stateOperators");
	appendStringInfoChar(s, '[');
	if (in->state->store)
	{
		scdc_store_metrics(in->state->store, &m);
		appendStringInfoChar(s, '{');
		put_text(s, "operatorName", in->options.way == SCDC_FLOW_NET ? "netChanges" : "rowLevel");
		put_int(s, "numRowsTotal", in->flow->state_rows);
		put_int(s, "numRowsUpdated", in->flow->state_rows);
		put_int(s, "allUpdatesTimeMs", (int64) in->durations.get_batch);
		put_int(s, "numRowsRemoved", in->flow->removed_rows);
		put_int(s, "allRemovalsTimeMs", 0);
		put_int(s, "commitTimeMs", (int64) in->durations.commit_offsets);
		put_int(s, "memoryUsedBytes", m.memory_bytes);
		put_int(s, "numRowsDroppedByWatermark", in->flow->late_rows);
		put_int(s, "numShufflePartitions", 1);
		put_int(s, "numStateStoreInstances", 1);
		put_key(s, "customMetrics");
		appendStringInfoChar(s, '{');
		put_int(s, "rocksdbBytesWritten", m.bytes_written);
		put_int(s, "rocksdbGetCount", m.gets);
		put_int(s, "rocksdbPutCount", m.puts);
		put_int(s, "rocksdbSstFileCount", m.files);
		put_int(s, "rocksdbTotalBytes", m.disk_bytes);
		appendStringInfoString(s, "}}");
	}
	appendStringInfoChar(s, ']');
}

Jsonb *
scdc_progress_record(const ScdcProgressInput *in)
{
	const ScdcQuery *q = in->query;
	const ScdcDurations *d = &in->durations;
	double		total = d->latest_offset + d->wal_commit + d->get_batch + d->query_planning + d->add_batch + d->commit_offsets;
	double		since = in->previous_start ? (in->trigger_start - in->previous_start) / 1e6 : 0;
	StringInfoData s;

	initStringInfo(&s);
	appendStringInfoChar(&s, '{');
	put_text(&s, "id", scdc_uuid_text(&q->query_id));
	put_text(&s, "runId", scdc_uuid_text(&in->run_id));
	put_text(&s, "name", q->name);
	put_text(&s, "timestamp", scdc_progress_time(in->trigger_start));
	put_int(&s, "batchId", in->batch->batch_id);
	put_int(&s, "batchDuration", (int64) total);
	put_int(&s, "numInputRows", in->flow->input_rows);
	put_rate(&s, "inputRowsPerSecond", in->flow->input_rows, since);
	put_rate(&s, "processedRowsPerSecond", in->flow->input_rows, total / 1000);
	put_durations(&s, d, total);
	put_event_time(&s, in);
	put_state(&s, in);

	put_key(&s, "sources");
	appendStringInfoString(&s, "[{");
	put_text(&s, "description", scdc_source_description(q));
	put_offset(&s, "startOffset", in->batch->start_offset, in->text_versions);
	put_offset(&s, "endOffset", in->batch->end_offset, in->text_versions);
	put_offset(&s, "latestOffset", in->latest_offset, in->text_versions);
	put_int(&s, "numInputRows", in->flow->input_rows);
	put_rate(&s, "inputRowsPerSecond", in->flow->input_rows, since);
	put_rate(&s, "processedRowsPerSecond", in->flow->input_rows, total / 1000);
	appendStringInfoString(&s, "}]");

	put_key(&s, "sink");
	appendStringInfoChar(&s, '{');
	put_text(&s, "description", scdc_sink_description(q));
	put_int(&s, "numOutputRows", in->output_rows);
	appendStringInfoString(&s, "}}");
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(s.data)));
}
