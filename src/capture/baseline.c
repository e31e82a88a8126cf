/*-------------------------------------------------------------------------
 *
 * baseline.c
 *	  The first copy of a table (see baseline.h): the capture worker's part,
 *	  then the baseline worker's.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "optimizer/plancat.h"
#include "pgstat.h"
#include "replication/origin.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "attempt.h"
#include "capture/baseline.h"
#include "capture/collect.h"
#include "clock.h"
#include "debug.h"
#include "jobs/slots.h"
#include "log/changelog.h"
#include "log/image.h"
#include "log/rows.h"
#include "log/schema.h"
#include "worker.h"

PGDLLEXPORT void scdc_baseline_main(Datum arg);

StaticAssertDecl(sizeof(ScdcBaselineTask) <= BGW_EXTRALEN, "baseline task fits into bgw_extra");

#define IMPORT_TIMEOUT	30000	/* ms that capture waits for the worker to take over the snapshot */
#define BACKOFF_MAX		5000	/* ms */
#define LOCK_WAIT		"1s"	/* for a table that somebody holds; then others get their turn */

/* ---- the capture worker's part ---- */

static bool look = true;		/* is there a stream without baseline? */
static int	failures = 0;
static int64 retry_at = 0;		/* scdc_clock_ms() before which no attempt is made; 0: none has failed */

void
scdc_baseline_look(void)
{
	/* a table that has come does not wait for what has failed with others */
	look = true;
	failures = 0;
	retry_at = 0;
}

long
scdc_baseline_delay(void)
{
	if (!look)
		return -1;
	if (retry_at == 0)
		return 1000;			/* the worker sets our latch when it ends */
	return Max(10, retry_at - scdc_clock_ms());
}

static void
back_off(void)
{
	retry_at = scdc_clock_ms() + Min(BACKOFF_MAX, 10 << Min(failures, 13));
	failures++;
}

/* Leaves the reason where stream_tables and readers find it; error NULL: there is none (any more). */
static void
publish_error(ScdcCaptureEntry *entry, int64 stream_id, const char *error)
{
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	entry->baseline_error_stream = stream_id;
	strlcpy(entry->baseline_error, error ? error : "", sizeof(entry->baseline_error));
	LWLockRelease(scdc_shared->lock);
}

static ScdcBaselinePhase
phase_of(ScdcCaptureEntry *entry)
{
	ScdcBaselinePhase phase;

	LWLockAcquire(scdc_shared->lock, LW_SHARED);
	phase = entry->baseline_phase;
	LWLockRelease(scdc_shared->lock);
	return phase;
}

static void
reset_phase(ScdcCaptureEntry *entry)
{
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	entry->baseline_phase = SCDC_BASELINE_NONE;
	entry->baseline_attempt = 0;
	entry->baseline_stream = 0;
	LWLockRelease(scdc_shared->lock);
}

/* Is everything that was captured of the stream, and its registration, visible in v? */
static bool
captured_is_visible(ScdcStream *stream, const ScdcVisibility *v, Snapshot snapshot)
{
	ScdcLogScan *scan;
	ScdcBlockInfo info;
	bool		result = scdc_visibility_includes(v, U64FromFullTransactionId(stream->tracked_xid));

	scan = scdc_changelog_scan_begin(stream->stream_id, PG_INT64_MIN, snapshot);
	while (result && scdc_changelog_scan_next(scan, &info))
	{
		ScdcBlockReader *r = scdc_changelog_scan_open(scan, false);

		for (int i = 0; i < r->nversions && result; i++)
			if (r->versions[i].xid != 0 && !scdc_visibility_includes(v, r->versions[i].xid))
				result = false;
	}
	scdc_changelog_scan_end(scan);
	return result;
}

/* Streams that need a baseline; *waiting: there are some, though not all may be in the list yet. */
static List *
streams_to_copy(const ScdcVisibility *v, Snapshot snapshot, bool *waiting)
{
	List	   *result = NIL;
	ListCell   *lc;

	*waiting = false;
	foreach(lc, scdc_stream_list(snapshot))
	{
		ScdcStream *s = lfirst(lc);

		if (s->state != SCDC_STATE_LIVE || scdc_baseline_is_complete(s, snapshot))
			continue;
		*waiting = true;
		if (captured_is_visible(s, v, snapshot))
			result = lappend(result, s);
	}
	return result;
}

/* Publishes S and waits until a worker has it.  False if none takes it. */
static bool
hand_over(ScdcCaptureEntry *entry, Snapshot snapshot, int64 attempt)
{
	int64		give_up = scdc_clock_ms() + IMPORT_TIMEOUT;
	char	   *name = ExportSnapshot(snapshot);
	BackgroundWorker worker;
	ScdcBaselineTask task = {.dboid = MyDatabaseId, .attempt = attempt};

	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	entry->baseline_phase = SCDC_BASELINE_EXPORTED;
	entry->baseline_attempt = attempt;
	entry->baseline_stream = 0;
	entry->baseline_pid = 0;
	strlcpy(entry->baseline_snapshot, name, sizeof(entry->baseline_snapshot));
	LWLockRelease(scdc_shared->lock);
	pg_atomic_write_u64(&entry->baseline_done, 0);
	pg_atomic_write_u64(&entry->baseline_total, 0);

	scdc_worker_init(&worker, "baseline", "scdc_baseline_main");
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &task, sizeof(task));
	if (!RegisterDynamicBackgroundWorker(&worker, NULL))
	{
		publish_error(entry, 0, SCDC_NO_WORKER);
		if (failures == 0)
			ereport(LOG,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("no background worker slot is free to copy baselines in database %u", MyDatabaseId),
					 errhint("Increase \"max_worker_processes\" and restart the server.")));
		return false;
	}

	ConditionVariablePrepareToSleep(&entry->cv);
	while (phase_of(entry) == SCDC_BASELINE_EXPORTED && scdc_clock_ms() < give_up)
		(void) ConditionVariableTimedSleep(&entry->cv, 100, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
	if (phase_of(entry) == SCDC_BASELINE_IMPORTED)
		return true;
	publish_error(entry, 0, "The worker that copies baselines did not start.");
	return false;
}

/* S replaces whatever was known of these baselines. */
static void
store_snapshot(List *streams, const char *text, int64 attempt, Snapshot snapshot)
{
	ListCell   *lc;

	foreach(lc, streams)
	{
		ScdcStream *s = lfirst(lc);
		ScdcBaseline *old = scdc_baseline_read(s->stream_id, snapshot);
		ScdcBaseline b = {
			.stream_id = s->stream_id,
			.attempt = attempt,
			.snapshot = unconstify(char *, text),
			.snapshot_time = GetCurrentTransactionStartTimestamp(),
		};

		scdc_changelog_delete(s->stream_id);
		if (old)
			scdc_baseline_delete(old);
		scdc_baseline_insert(&b);
	}
}

static bool
begin_attempt(ScdcCaptureEntry *entry)
{
	int64		attempt = GetCurrentTimestamp();
	Snapshot	snapshot;
	List	   *streams;
	char	   *text;
	bool		waiting;
	bool		stored = false;

	scdc_debug_point("baseline-before-snapshot");
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	XactIsoLevel = XACT_REPEATABLE_READ;
	PushActiveSnapshot(GetTransactionSnapshot());
	snapshot = GetActiveSnapshot();
	text = OidOutputFunctionCall(F_PG_SNAPSHOT_OUT, OidFunctionCall0(F_PG_CURRENT_SNAPSHOT));
	streams = streams_to_copy(scdc_visibility_parse(text), snapshot, &waiting);
	if (!waiting)
	{
		look = false;
		failures = 0;
	}
	else if (streams != NIL && hand_over(entry, snapshot, attempt))
	{
		replorigin_session_origin = DoNotReplicateId;
		store_snapshot(streams, text, attempt, snapshot);
		stored = true;
	}
	PopActiveSnapshot();
	if (stored || !waiting)
		CommitTransactionCommand();
	else
		AbortCurrentTransaction();
	replorigin_session_origin = InvalidRepOriginId;

	if (stored)
	{
		LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
		entry->baseline_stored = attempt;
		LWLockRelease(scdc_shared->lock);
		ConditionVariableBroadcast(&entry->cv);
	}
	else if (waiting)
	{
		scdc_baseline_cancel(entry, 0);
		if (phase_of(entry) != SCDC_BASELINE_IMPORTED)
			reset_phase(entry); /* a worker that comes too late sees that its attempt is over */
		back_off();
	}
	return stored;
}

/* The worker has ended: is something left to copy? */
static void
end_attempt(ScdcCaptureEntry *entry)
{
	Snapshot	snapshot;
	ListCell   *lc;
	bool		failed = false;
	int64		attempt = entry->baseline_attempt;

	StartTransactionCommand();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	foreach(lc, scdc_baseline_list(attempt, snapshot))
	{
		ScdcBaseline *b = lfirst(lc);
		ScdcStream *s = b->complete ? NULL : scdc_stream_by_id(b->stream_id, snapshot);

		/* one that was untracked in the meantime is nothing that went wrong */
		if (s && s->state == SCDC_STATE_LIVE)
			failed = true;
	}
	UnregisterSnapshot(snapshot);
	CommitTransactionCommand();
	reset_phase(entry);

	retry_at = 0;
	if (failed)
		back_off();
	else
	{
		failures = 0;
		publish_error(entry, 0, NULL);
	}
}

/*
 * Sessions that have tracked a table wait until its snapshot is taken
 * (hooks.c): those that had committed when we look can go on if no stream
 * waits for one.  They wait for a moment only, so we look for one only.
 */
static void
tell_sessions(ScdcCaptureEntry *entry)
{
	static uint64 seen = 0;
	static int64 seen_at = 0;
	uint64		asked = pg_atomic_read_u64(&entry->baseline_asked); /* before the snapshot is taken */
	Snapshot	snapshot;
	ListCell   *lc;
	bool		waiting = false;

	if (asked == pg_atomic_read_u64(&entry->baseline_served))
		return;
	if (asked != seen)
	{
		seen = asked;
		seen_at = scdc_clock_ms();
	}
	else if (scdc_clock_ms() - seen_at >= scdc_debug_tracking_wait + 1000)
		return;

	StartTransactionCommand();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	foreach(lc, scdc_stream_list(snapshot))
	{
		ScdcStream *s = lfirst(lc);
		ScdcBaseline *b;

		if (s->state != SCDC_STATE_LIVE || !s->baseline)
			continue;
		b = scdc_baseline_read(s->stream_id, snapshot);
		if (b == NULL || (!b->complete && !scdc_baseline_is_active(entry, b->attempt)))
			waiting = true;
	}
	UnregisterSnapshot(snapshot);
	CommitTransactionCommand();
	if (waiting)
		return;
	pg_atomic_write_u64(&entry->baseline_served, asked);
	ConditionVariableBroadcast(&entry->cv);
}

static bool
advance(ScdcCaptureEntry *entry)
{
	bool		ended = false;

	if (!look)
		return false;
	switch (phase_of(entry))
	{
		case SCDC_BASELINE_EXPORTED:
			/* left by a capture worker before this one; its snapshot is gone */
			reset_phase(entry);
			return false;
		case SCDC_BASELINE_IMPORTED:
			return false;
		case SCDC_BASELINE_ENDED:
			end_attempt(entry);
			ended = true;
			break;
		case SCDC_BASELINE_NONE:
			break;
	}
	if (retry_at != 0 && scdc_clock_ms() < retry_at)
		return ended;
	retry_at = 0;
	return begin_attempt(entry) || ended;
}

bool
scdc_baseline_advance(ScdcCaptureEntry *entry)
{
	bool		result = advance(entry);

	tell_sessions(entry);
	return result;
}

bool
scdc_baseline_is_active(ScdcCaptureEntry *entry, int64 attempt)
{
	bool		result;

	LWLockAcquire(scdc_shared->lock, LW_SHARED);
	result = entry->baseline_phase != SCDC_BASELINE_NONE && entry->baseline_attempt == attempt;
	LWLockRelease(scdc_shared->lock);
	return result;
}

char *
scdc_baseline_error(ScdcCaptureEntry *entry, int64 stream_id)
{
	char		error[sizeof(entry->baseline_error)] = "";

	LWLockAcquire(scdc_shared->lock, LW_SHARED);
	if (entry->baseline_error_stream == 0 || entry->baseline_error_stream == stream_id)
		strlcpy(error, entry->baseline_error, sizeof(error));
	LWLockRelease(scdc_shared->lock);
	return error[0] ? pstrdup(error) : NULL;
}

void
scdc_baseline_cancel(ScdcCaptureEntry *entry, int64 stream_id)
{
	int			pid = 0;

	LWLockAcquire(scdc_shared->lock, LW_SHARED);
	if (stream_id == 0 || entry->baseline_stream == stream_id)
		pid = entry->baseline_pid;
	LWLockRelease(scdc_shared->lock);
	if (pid != 0)
		kill(pid, SIGTERM);
}

/* ---- the baseline worker's part ---- */

static ScdcCaptureEntry *my_entry;
static ScdcBaselineTask *my_task;

static void
set_phase(ScdcBaselinePhase phase)
{
	Latch	   *capture;

	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	if (my_entry->baseline_attempt == my_task->attempt)
	{
		my_entry->baseline_phase = phase;
		my_entry->baseline_pid = phase == SCDC_BASELINE_ENDED ? 0 : MyProcPid;
	}
	capture = my_entry->latch;
	LWLockRelease(scdc_shared->lock);
	if (capture)
		SetLatch(capture);
	ConditionVariableBroadcast(&my_entry->cv);
}

static void
baseline_exit(int code, Datum arg)
{
	set_phase(SCDC_BASELINE_ENDED);
}

/* Makes S this transaction's snapshot; false if the attempt is over already. */
static bool
import_snapshot(void)
{
	char		name[sizeof(my_entry->baseline_snapshot)];
	bool		wanted;

	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	wanted = my_entry->baseline_phase == SCDC_BASELINE_EXPORTED && my_entry->baseline_attempt == my_task->attempt;
	if (wanted)
		my_entry->baseline_pid = MyProcPid;
	memcpy(name, my_entry->baseline_snapshot, sizeof(name));
	LWLockRelease(scdc_shared->lock);
	if (wanted)
		ImportSnapshot(name);
	return wanted;
}

/* Capture is storing S at this moment; without that the copy would be of no use. */
static List *
wait_for_attempt(void)
{
	for (;;)
	{
		bool		stored = my_entry->baseline_stored == my_task->attempt; /* looked at before the tables are */
		Snapshot	now = RegisterSnapshot(GetLatestSnapshot());
		List	   *baselines = scdc_baseline_list(my_task->attempt, now);

		UnregisterSnapshot(now);
		if (baselines != NIL || stored)
			return baselines;	/* none: all were untracked in the meantime */
		if (my_entry->pid == 0 || my_entry->baseline_attempt != my_task->attempt)
			ereport(FATAL,
					(errcode(ERRCODE_ADMIN_SHUTDOWN),
					 errmsg("capture worker has ended while baselines were about to be copied")));
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 2, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Is the table's storage still the one of S's time?  A table that was
 * rewritten or truncated since has lost the rows that S should see.
 */
static bool
storage_is_unchanged(Relation rel, Snapshot s)
{
	Relation	pg_class = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key[1];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		result = false;

	ScanKeyInit(&key[0], Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(RelationGetRelid(rel)));
	scan = systable_beginscan(pg_class, ClassOidIndexId, true, s, 1, key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		result = ((Form_pg_class) GETSTRUCT(tuple))->relfilenode == rel->rd_rel->relfilenode;
	systable_endscan(scan);
	table_close(pg_class, AccessShareLock);
	return result;
}

typedef struct Writer
{
	Relation	blocks;
	ScdcBlockBuilder *builder;
	ScdcBlockInfo info;
	ScdcVersion version;
	int64		rows;
	MemoryContext block_cxt;
} Writer;

static void
write_block(Writer *w)
{
	ScdcBlock	block;
	MemoryContext old = MemoryContextSwitchTo(w->block_cxt);

	scdc_block_finish(w->builder, &block);
	scdc_changelog_append(w->blocks, &w->info, &block);
	w->info.chunk++;
	w->info.inserts = 0;
	MemoryContextSwitchTo(old);
	MemoryContextReset(w->block_cxt);
}

/* In pg_stat_activity: which table, and how much of it (an estimate). */
static void
show_progress(const ScdcStream *stream)
{
	uint64		done = pg_atomic_read_u64(&my_entry->baseline_done);
	uint64		total = pg_atomic_read_u64(&my_entry->baseline_total);
	char	   *text = psprintf("copying baseline of %s (%d %%)",
								quote_qualified_identifier(stream->schema_name, stream->table_name),
								done >= total ? 99 : (int) (done * 100 / total));

	scdc_worker_activity(true, text);
	pfree(text);
}

static void
begin_writing(Writer *w, const ScdcStream *stream, const ScdcSchema *schema, TimestampTz at)
{
	memset(w, 0, sizeof(Writer));
	w->block_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc baseline block", ALLOCSET_DEFAULT_SIZES);
	w->blocks = scdc_table_open(SCDC_BLOCKS, RowExclusiveLock);
	w->builder = scdc_block_builder_create(SCDC_COMPRESSION);
	w->version.version = stream->base_version;
	w->version.timestamp = w->version.commit_time = at;
	w->info.stream_id = stream->stream_id;
	w->info.first_version = w->info.last_version = stream->base_version;
	w->info.first_timestamp = w->info.last_timestamp = at;
	w->info.schema_number = schema->number;
	scdc_block_begin_version(w->builder, &w->version);
}

static int64
end_writing(Writer *w)
{
	/* also of an empty table: version 0 exists */
	if (w->info.inserts > 0 || w->rows == 0)
	{
		scdc_block_begin_version(w->builder, &w->version);
		write_block(w);
	}
	table_close(w->blocks, NoLock);
	return w->rows;
}

/* map: as for scdc_image_make */
static void
copy_rows(Writer *w, Relation rel, const AttrMap *map, const ScdcStream *stream, const ScdcSchema *schema,
		  Snapshot snapshot)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	MemoryContext row_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc baseline row", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = CurrentMemoryContext;

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		ScdcEvent	event = {.kind = SCDC_EVENT_INSERT};

		if (scdc_worker_check())
		{
			/* settings were reloaded; none matters here */
		}
		MemoryContextSwitchTo(row_cxt);
		event.new_image = scdc_image_make(schema, rel, map, ExecCopySlotHeapTuple(slot), NULL, SCDC_IMAGE_FROM_TABLE);
		MemoryContextSwitchTo(old);
		if (w->info.inserts > 0 && scdc_block_raw_size(w->builder) + event.new_image.len > SCDC_BLOCK_RAW_MAX)
		{
			write_block(w);
			pg_atomic_write_u64(&my_entry->baseline_done, w->rows);
			show_progress(stream);
			scdc_debug_point("baseline-in-copy");
		}
		scdc_block_begin_version(w->builder, &w->version);
		scdc_block_add(w->builder, &event);
		w->info.inserts++;
		w->rows++;
		MemoryContextReset(row_cxt);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	MemoryContextDelete(row_cxt);
}

/* Is each of the OIDs a, which are in order like the OIDs b, one of those? */
static bool
is_subset(const List *a, const List *b)
{
	ListCell   *lc;
	int			i = 0;

	foreach(lc, a)
	{
		while (i < list_length(b) && list_nth_oid(b, i) < lfirst_oid(lc))
			i++;
		if (i == list_length(b) || list_nth_oid(b, i) != lfirst_oid(lc))
			return false;
	}
	return true;
}

/*
 * Opens the relations whose rows S sees in the tracked table, after locking
 * everything below that (members).  False if it is too late for S, because one
 * has lost those rows since, or has left the table and may have other columns
 * by now.  Those that have come since do not matter: their rows are inserts of
 * a later version.
 */
static bool
relations_to_copy(Relation root, const ScdcStream *stream, Snapshot s, List **members, List **relations)
{
	ListCell   *lc;
	Snapshot	now;

	*relations = NIL;
	*members = scdc_registry_members(stream->stream_id, s);
	foreach(lc, *members)
		LockRelationOid(lfirst_oid(lc), AccessShareLock);
	now = RegisterSnapshot(GetLatestSnapshot());
	if (!is_subset(*members, scdc_registry_members(stream->stream_id, now)))
	{
		UnregisterSnapshot(now);
		return false;
	}
	UnregisterSnapshot(now);
	foreach(lc, *members)
	{
		Relation	rel = try_relation_open(lfirst_oid(lc), NoLock);

		if (rel == NULL)
			return false;
		if (!RELKIND_HAS_TABLE_AM(rel->rd_rel->relkind))
		{
			relation_close(rel, NoLock);	/* partitioned, or a foreign partition */
			continue;
		}
		*relations = lappend(*relations, rel);
		if (!storage_is_unchanged(rel, s))
			return false;
	}
	return true;
}

/* What becomes of the tables from here on does not matter. */
static void
close_relations(Relation root, List *members, List *relations)
{
	ListCell   *lc;

	foreach(lc, relations)
		relation_close(lfirst(lc), NoLock);
	foreach(lc, members)
		UnlockRelationOid(lfirst_oid(lc), AccessShareLock);
	relation_close(root, AccessShareLock);
}

/*
 * Opens a table and what is to be copied of it; false if there is nothing, or
 * not by S.  It waits for locks for a moment only, and then raises 55P03.
 */
static bool
open_to_copy(const ScdcStream *stream, Snapshot s, Relation *root, List **members, List **relations)
{
	int			nestlevel = NewGUCNestLevel();
	bool		ok;

	(void) set_config_option("lock_timeout", LOCK_WAIT, PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	*root = try_relation_open(stream->relid, AccessShareLock);
	ok = *root && relations_to_copy(*root, stream, s, members, relations);
	AtEOXact_GUC(true, nestlevel);
	return ok;
}

/* Copies one table, unless there is nothing (any more) to copy; then a later attempt will see. */
static void
copy_table(ScdcBaseline *b, Snapshot s)
{
	Snapshot	now = RegisterSnapshot(GetLatestSnapshot());
	ScdcStream *stream = scdc_stream_by_id(b->stream_id, now);
	Relation	root;
	List	   *members,
			   *relations;
	ListCell   *lc;
	ScdcSchema *schema;
	Writer		w;
	double		total = 0;

	UnregisterSnapshot(now);
	if (stream == NULL || stream->state != SCDC_STATE_LIVE)
		return;
	scdc_worker_activity(true, psprintf("waiting for a lock to copy the baseline of %s",
										quote_qualified_identifier(stream->schema_name, stream->table_name)));
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	my_entry->baseline_stream = stream->stream_id;
	LWLockRelease(scdc_shared->lock);
	if (!open_to_copy(stream, s, &root, &members, &relations))
	{
		if (root)
			close_relations(root, members, relations);
		return;
	}

	foreach(lc, relations)
	{
		BlockNumber pages;
		double		tuples,
					allvisfrac;

		estimate_rel_size(lfirst(lc), NULL, &pages, &tuples, &allvisfrac);
		total += tuples;
	}
	pg_atomic_write_u64(&my_entry->baseline_total, (uint64) total);
	pg_atomic_write_u64(&my_entry->baseline_done, 0);
	show_progress(stream);

	schema = scdc_schema_of_relation(root, stream->stream_id, stream->identity, stream->nidentity);
	schema->number = SCDC_BASELINE_SCHEMA;
	scdc_schema_write(schema);
	begin_writing(&w, stream, schema, b->snapshot_time);
	foreach(lc, relations)
	{
		Relation	rel = lfirst(lc);
		AttrMap    *map = scdc_image_map(rel, root);

		copy_rows(&w, rel, map, stream, schema, s);
		if (map)
			free_attrmap(map);
	}
	b->row_count = end_writing(&w);
	b->complete = true;
	close_relations(root, members, relations);
}

typedef struct Copy
{
	ScdcBaseline *baseline;
	Snapshot	snapshot;
} Copy;

static void
copy_one(void *arg)
{
	Copy	   *c = arg;

	copy_table(c->baseline, c->snapshot);
}

/* Copies one table, unless it is locked; NULL, or why it cannot be copied, ever. */
static char *
copy_or_reason(ScdcBaseline *b, Snapshot s)
{
	Copy		c = {.baseline = b,.snapshot = s};
	ErrorData  *e = scdc_attempt(copy_one, &c);

	if (e == NULL)
		return NULL;
	if (e->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
	{
		/* a later attempt will see */
		publish_error(my_entry, b->stream_id, "The table is locked by another session.");
		return NULL;
	}
	publish_error(my_entry, b->stream_id, e->message);
	if (!scdc_error_is_about_value(e->sqlerrcode))
		ReThrowError(e);
	b->complete = false;
	return e->message;
}

/* A row of the table cannot be stored, so there is no baseline, and nothing to be read. */
static void
give_up_stream(int64 stream_id, const char *reason)
{
	Snapshot	now = RegisterSnapshot(GetLatestSnapshot());
	ScdcStream *stream = scdc_stream_by_id(stream_id, now);
	ScdcBlockInfo last;

	if (stream && stream->state == SCDC_STATE_LIVE)
	{
		ereport(LOG,
				(errmsg("capture of table %u is given up", stream->relid),
				 errdetail_internal("%s", reason)));
		stream->state = SCDC_STATE_STALLED;
		stream->reason = psprintf("%s (table \"%s\", while its baseline was copied)", reason, stream->table_name);
		stream->last_version = scdc_changelog_last(stream_id, now, &last) ? last.last_version : stream->base_version;
		scdc_stream_replace(stream);
		scdc_registry_delete_stream(stream->stream_id);
	}
	UnregisterSnapshot(now);
}

void
scdc_baseline_main(Datum arg)
{
	List	   *baselines;
	List	   *reasons = NIL;
	ListCell   *lc,
			   *lc2;

	my_task = (ScdcBaselineTask *) MyBgworkerEntry->bgw_extra;
	my_entry = scdc_entry_find(my_task->dboid);
	if (my_entry == NULL)
		proc_exit(0);
	scdc_worker_start(my_task->dboid);
	before_shmem_exit(baseline_exit, (Datum) 0);

	/* one transaction for all: its snapshot, its locks, its blocks */
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	XactIsoLevel = XACT_REPEATABLE_READ;
	if (!import_snapshot())
		proc_exit(0);
	PushActiveSnapshot(GetTransactionSnapshot());
	set_phase(SCDC_BASELINE_IMPORTED);

	replorigin_session_origin = DoNotReplicateId;
	baselines = wait_for_attempt();
	foreach(lc, baselines)
		reasons = lappend(reasons, copy_or_reason(lfirst(lc), GetActiveSnapshot()));

	/* last, since others wait for rows that we have changed */
	forboth(lc, baselines, lc2, reasons)
	{
		ScdcBaseline *b = lfirst(lc);

		if (lfirst(lc2))
			give_up_stream(b->stream_id, lfirst(lc2));
		if (!b->complete)
			continue;
		scdc_baseline_delete(b);
		scdc_baseline_insert(b);
	}
	PopActiveSnapshot();
	CommitTransactionCommand();
	replorigin_session_origin = InvalidRepOriginId;

	ConditionVariableBroadcast(&my_entry->cv);
	scdc_slots_wake_all(MyDatabaseId);
	proc_exit(0);
}
