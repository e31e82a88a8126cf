/*-------------------------------------------------------------------------
 *
 * api_status.c
 *	  What is behind the view stream_tables: one row for each stream that has
 *	  a log.
 *
 * It never waits: it shows what the statement's snapshot and shared memory
 * say now.  Rows are shown to those who may select the table, the reason of a
 * failure only to its owner and to members of pg_monitor, since it may hold
 * values.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "replication/slot.h"
#include "storage/lwlock.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/pg_lsn.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "capture/baseline.h"
#include "capture/wait.h"
#include "log/catalog.h"
#include "log/changelog.h"
#include "log/definition.h"
#include "log/rows.h"
#include "log/schema.h"
#include "retention/maintenance.h"
#include "shmem.h"
#include "sql/resolve.h"

PG_FUNCTION_INFO_V1(streamcdc_list_tables);

/* columns of the result */
enum
{
	COL_TABLE_NAME,
	COL_STATUS,
	COL_IDENTITY_COLUMNS,
	COL_FIRST_VERSION,
	COL_LAST_VERSION,
	COL_LAST_COMMIT_TIMESTAMP,
	COL_CHANGES,
	COL_LOG_BYTES,
	COL_RETENTION,
	COL_ON_TRUNCATE,
	COL_BASELINE_ROWS,
	COL_BASELINE_FRACTION,
	COL_CONFIRMED_LSN,
	COL_LAG_BYTES,
	COL_LAG,
	COL_LAST_ERROR,
	NCOLUMNS
};

/* What the capture of this database is doing, the same for all its streams. */
typedef struct CaptureStatus
{
	ScdcCaptureEntry *entry;	/* NULL: none */
	bool		failed;
	char		error[400];
	char	   *no_worker;		/* why none runs; NULL if one does */
	int64		baseline_stream;	/* being copied */
	uint64		baseline_done;
	uint64		baseline_total;
	XLogRecPtr	confirmed;
	bool		lag_known;
	uint64		lag_bytes;
	bool		all_captured;	/* no commit is known that has not been captured */
	TimestampTz newest;			/* last sign of progress */
} CaptureStatus;

static bool
take_stored_at(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	/* columns: lsn, stored_at */
	*(TimestampTz *) arg = DatumGetTimestampTz(values[1]);
	return false;
}

static XLogRecPtr
slot_confirmed(const char *name)
{
	ReplicationSlot *slot = SearchNamedReplicationSlot(name, true);
	XLogRecPtr	result = InvalidXLogRecPtr;

	if (slot)
	{
		SpinLockAcquire(&slot->mutex);
		if (slot->in_use)
			result = slot->data.confirmed_flush;
		SpinLockRelease(&slot->mutex);
	}
	return result;
}

static void
read_capture_status(CaptureStatus *status, Snapshot snapshot)
{
	ScdcCaptureEntry *entry = scdc_entry_find(MyDatabaseId);
	ScdcSlot   *slot = scdc_slot_read(snapshot);
	XLogRecPtr	captured = scdc_captured_lsn();

	memset(status, 0, sizeof(*status));
	status->entry = entry;
	status->newest = DT_NOBEGIN;
	scdc_rows_scan(SCDC_POSITIONS, "positions_lsn", 0, NULL, true, snapshot, take_stored_at, &status->newest);
	if (slot && !scdc_slot_is_foreign(slot))
		status->confirmed = slot_confirmed(slot->slot_name);
	if (entry == NULL)
		return;

	status->no_worker = scdc_launch_error();
	LWLockAcquire(scdc_shared->lock, LW_SHARED);
	status->failed = entry->state == SCDC_CAPTURE_FAILED;
	strlcpy(status->error, entry->error, sizeof(status->error));
	status->baseline_stream = entry->baseline_stream;
	status->baseline_done = pg_atomic_read_u64(&entry->baseline_done);
	status->baseline_total = pg_atomic_read_u64(&entry->baseline_total);
	LWLockRelease(scdc_shared->lock);

	if (XLogRecPtrIsInvalid(status->confirmed))
		status->confirmed = pg_atomic_read_u64(&entry->confirmed);
	if (!XLogRecPtrIsInvalid(captured) && !RecoveryInProgress())
	{
		XLogRecPtr	end = scdc_wal_target();

		status->lag_known = true;
		status->lag_bytes = end > captured ? end - captured : 0;
		status->all_captured = captured >= pg_atomic_read_u64(&entry->want);
	}
}

/* ---------------------------------------------------------------------
 * the logs' sizes
 * ---------------------------------------------------------------------
 */

typedef struct LogSummary
{
	int64		stream_id;		/* hash key */
	int64		first_version;
	int64		last_version;
	TimestampTz last_timestamp;
	int64		changes;
	int64		bytes;
	int64		baseline_rows;	/* of one that was moved; -1: it was not */
	int64		gap_version;	/* first version of the first block with a gap; PG_INT64_MAX if none */
} LogSummary;

static void
add_block(const ScdcBlockInfo *info, int64 bytes, void *arg)
{
	HTAB	   *summaries = arg;
	bool		found;
	LogSummary *s = hash_search(summaries, &info->stream_id, HASH_ENTER, &found);

	if (!found)
	{
		s->first_version = info->first_version;
		s->last_version = info->last_version;
		s->last_timestamp = info->last_timestamp;
		s->changes = 0;
		s->bytes = 0;
		s->baseline_rows = -1;
		s->gap_version = PG_INT64_MAX;
	}
	s->first_version = Min(s->first_version, info->first_version);
	s->last_version = Max(s->last_version, info->last_version);
	s->last_timestamp = Max(s->last_timestamp, info->last_timestamp);
	if (info->flags & SCDC_BLOCK_IS_BASE)
		s->baseline_rows = Max(s->baseline_rows, 0) + info->inserts;
	s->changes += info->inserts + info->updates + info->deletes;
	s->bytes += bytes;
	if (info->flags & (SCDC_BLOCK_HAS_GAP | SCDC_BLOCK_HAS_INCOMPLETE))
		s->gap_version = Min(s->gap_version, info->first_version);
}

static HTAB *
summarise_logs(Snapshot snapshot)
{
	HASHCTL		ctl = {0};
	HTAB	   *summaries;

	ctl.keysize = sizeof(int64);
	ctl.entrysize = sizeof(LogSummary);
	ctl.hcxt = CurrentMemoryContext;
	summaries = hash_create("streamcdc logs", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	scdc_changelog_each(snapshot, add_block, summaries);
	return summaries;
}

/* ---------------------------------------------------------------------
 * one stream
 * ---------------------------------------------------------------------
 */

static bool
may_see(const ScdcStream *stream)
{
	if (stream->state == SCDC_STATE_DROPPED)
		return has_privs_of_role(GetUserId(), stream->owner);
	/* dropped after the snapshot, or in the middle of that */
	if (get_rel_name(stream->relid) == NULL)
		return false;
	return scdc_may_select(stream->relid);
}

static bool
may_see_errors(const ScdcStream *stream)
{
	Oid			user = GetUserId();

	if (has_privs_of_role(user, ROLE_PG_MONITOR))
		return true;
	if (stream->state == SCDC_STATE_DROPPED)
		return has_privs_of_role(user, stream->owner);
	return pg_class_ownercheck(stream->relid, user);
}

/*
 * The columns that identify rows: none (an empty array) if there have never
 * been any, false if those that there were do so no more.
 */
static bool
identity_columns(const ScdcStream *stream, Snapshot snapshot, Datum *result)
{
	Datum	   *names = palloc0(Max(stream->nidentity, 1) * sizeof(Datum));
	bool		dropped = stream->state == SCDC_STATE_DROPPED;
	ScdcSchema *schema = NULL;

	if (dropped)
	{
		schema = scdc_schema_read(stream->stream_id, 0, snapshot);
		if (schema == NULL)
			schema = scdc_schema_read(stream->stream_id, SCDC_BASELINE_SCHEMA, snapshot);
	}
	else if (stream->nidentity > 0 && !scdc_identity_holds(stream->relid, stream->identity, stream->nidentity))
		return false;
	for (int i = 0; i < stream->nidentity; i++)
	{
		AttrNumber	attnum = stream->identity[i];
		char	   *name;

		if (!dropped)
			name = get_attname(stream->relid, attnum, true);
		else
			name = schema && attnum <= schema->ncolumns && schema->columns[attnum - 1].identity ?
				schema->columns[attnum - 1].name : NULL;
		if (name == NULL)
			return false;
		names[i] = DirectFunctionCall1(namein, CStringGetDatum(name));
	}
	*result = PointerGetDatum(construct_array(names, stream->nidentity, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR));
	return true;
}

/*
 * How long capture may have been behind.  When no commit is known that it has
 * not seen this is nothing; else the time since its last sign of progress,
 * because the time of the oldest commit that it has not seen is in WAL only.
 */
static Interval *
lag_interval(const CaptureStatus *capture)
{
	Interval   *lag = palloc0(sizeof(Interval));

	if (!capture->all_captured && capture->newest > DT_NOBEGIN)
		lag->time = Max(GetCurrentTimestamp() - capture->newest, 0);
	return lag;
}

static void
list_stream(ReturnSetInfo *result, const ScdcStream *stream, const CaptureStatus *capture,
			const LogSummary *log, Snapshot snapshot)
{
	Datum		values[NCOLUMNS] = {0};
	bool		isnull[NCOLUMNS];
	ScdcBaseline *baseline = stream->baseline && !stream->is_definition ? scdc_baseline_read(stream->stream_id, snapshot) : NULL;
	bool		live = stream->state == SCDC_STATE_LIVE;
	bool		readable = !stream->baseline || (baseline && baseline->complete);
	bool		copying = live && capture->baseline_stream == stream->stream_id;
	bool		has_gap = log && log->gap_version < PG_INT64_MAX;
	const char *status;
	const char *error = NULL;

	memset(isnull, true, sizeof(isnull));
#define SET(column, datum)	(values[column] = (datum), isnull[column] = false)

	if (stream->state == SCDC_STATE_DROPPED)
	{
		status = "dropped";
		error = stream->reason;
	}
	else if (stream->state == SCDC_STATE_INERT)
	{
		status = "inert";
		error = SCDC_INERT_REASON;
	}
	else if (stream->state == SCDC_STATE_STALLED)
	{
		status = "stalled";
		error = stream->reason;
	}
	else if (stream->state == SCDC_STATE_GAP || has_gap)
	{
		status = "gap";
		error = stream->reason;
		if (error == NULL && has_gap)
			error = psprintf("There is a gap in the changes at version " INT64_FORMAT " or soon after it.",
							 log->gap_version);
	}
	else if (capture->failed)
		status = "stalled";
	else
		status = readable ? "streaming" : "baseline";
	/* a live stream with a gap may be stalled as well, and that is the more urgent message */
	if (live && capture->failed)
		error = pstrdup(capture->error);
	else if (live && capture->no_worker)
		error = capture->no_worker;
	else if (live && !readable && capture->entry)
		error = scdc_baseline_error(capture->entry, stream->stream_id);
	if (error == NULL)
		error = scdc_maintenance_error(stream->stream_id);

	SET(COL_TABLE_NAME, CStringGetTextDatum(stream->state == SCDC_STATE_DROPPED ? scdc_dropped_name(stream) :
											scdc_relation_name(stream->relid)));
	SET(COL_STATUS, CStringGetTextDatum(status));
	if (identity_columns(stream, snapshot, &values[COL_IDENTITY_COLUMNS]))
		isnull[COL_IDENTITY_COLUMNS] = false;
	if (readable && log)
	{
		/* what a moved baseline stands for is gone */
		SET(COL_FIRST_VERSION, Int64GetDatum(log->first_version + (log->baseline_rows >= 0 ? 1 : 0)));
		SET(COL_LAST_VERSION, Int64GetDatum(log->last_version));
		SET(COL_LAST_COMMIT_TIMESTAMP, TimestampTzGetDatum(log->last_timestamp));
	}
	SET(COL_CHANGES, Int64GetDatum(log ? log->changes : 0));
	SET(COL_LOG_BYTES, Int64GetDatum(log ? log->bytes : 0));
	if (stream->retention)
		SET(COL_RETENTION, IntervalPGetDatum(stream->retention));
	SET(COL_ON_TRUNCATE, CStringGetTextDatum(stream->on_truncate));

	if (stream->baseline)
	{
		double		fraction = 0;

		if (readable)
		{
			SET(COL_BASELINE_ROWS, Int64GetDatum(log && log->baseline_rows >= 0 ? log->baseline_rows : baseline->row_count));
			fraction = 1;
		}
		else if (copying)
		{
			SET(COL_BASELINE_ROWS, Int64GetDatum((int64) capture->baseline_done));
			/* the total is an estimate, and what is not complete is less than all */
			if (capture->baseline_total > 0)
				fraction = Min((double) capture->baseline_done / capture->baseline_total, 0.99);
		}
		SET(COL_BASELINE_FRACTION, Float8GetDatum(fraction));
	}
	if (live)
	{
		if (!XLogRecPtrIsInvalid(capture->confirmed))
			SET(COL_CONFIRMED_LSN, LSNGetDatum(capture->confirmed));
		if (capture->lag_known)
		{
			SET(COL_LAG_BYTES, Int64GetDatum((int64) capture->lag_bytes));
			SET(COL_LAG, IntervalPGetDatum(lag_interval(capture)));
		}
	}
	if (error && may_see_errors(stream))
		SET(COL_LAST_ERROR, CStringGetTextDatum(error));
#undef SET

	tuplestore_putvalues(result->setResult, result->setDesc, values, isnull);
}

Datum
streamcdc_list_tables(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Snapshot	snapshot;
	CaptureStatus capture;
	HTAB	   *summaries;
	List	   *streams;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	scdc_require_preload();

	snapshot = RegisterSnapshot(GetActiveSnapshot());
	streams = scdc_stream_list(snapshot);
	summaries = summarise_logs(snapshot);
	read_capture_status(&capture, snapshot);

	/* capture takes all tables of a database together, so the newest commit of any is a sign of progress */
	foreach(lc, streams)
	{
		ScdcStream *stream = lfirst(lc);
		LogSummary *log = hash_search(summaries, &stream->stream_id, HASH_FIND, NULL);

		if (log && stream->state == SCDC_STATE_LIVE)
			capture.newest = Max(capture.newest, log->last_timestamp);
	}
	streams = list_concat(streams, scdc_definition_list_inert(snapshot));
	foreach(lc, streams)
	{
		ScdcStream *stream = lfirst(lc);

		if (stream->state != SCDC_STATE_UNTRACKED && may_see(stream))
			list_stream(result, stream, &capture,
						stream->is_definition ? NULL : hash_search(summaries, &stream->stream_id, HASH_FIND, NULL), snapshot);
	}
	UnregisterSnapshot(snapshot);
	return (Datum) 0;
}
