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

#include "access/heapam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
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
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "capture/baseline.h"
#include "capture/collect.h"
#include "log/changelog.h"
#include "log/image.h"
#include "log/rows.h"
#include "log/schema.h"
#include "worker.h"

PGDLLEXPORT void scdc_baseline_main(Datum arg);

StaticAssertDecl(sizeof(ScdcBaselineTask) <= BGW_EXTRALEN, "baseline task fits into bgw_extra");

#define IMPORT_TIMEOUT	30000	/* ms that capture waits for the worker to take over the snapshot */

/* ---- the capture worker's part ---- */

static bool look = true;		/* is there a stream without baseline? */
static ScdcBaselineTask task;	/* under way */
static int	failures = 0;
static TimestampTz retry_at = 0;

void
scdc_baseline_look(void)
{
	look = true;
}

long
scdc_baseline_delay(void)
{
	if (!look)
		return -1;
	if (retry_at == 0)
		return 1000;			/* waiting for the worker, which sets our latch */
	return Max(10, TimestampDifferenceMilliseconds(GetCurrentTimestamp(), retry_at));
}

static void
back_off(void)
{
	retry_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), Min(60000, 100 << Min(failures, 10)));
	failures++;
}

/* Picks the next stream that needs a baseline and launches a worker for it. */
static void
launch_next(ScdcCaptureEntry *entry)
{
	ListCell   *lc;
	Snapshot	snapshot;
	ScdcStream *next = NULL;
	ScdcBaseline *old = NULL;
	BackgroundWorker worker;

	StartTransactionCommand();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	foreach(lc, scdc_stream_list(snapshot))
	{
		ScdcStream *s = lfirst(lc);

		if (s->state != SCDC_STATE_LIVE || !s->baseline)
			continue;
		old = scdc_baseline_read(s->stream_id, snapshot);
		if (old && old->complete)
			continue;
		next = s;
		break;
	}
	UnregisterSnapshot(snapshot);

	if (next == NULL)
	{
		look = false;
		CommitTransactionCommand();
		return;
	}

	task.dboid = MyDatabaseId;
	task.relid = next->relid;
	task.stream_id = next->stream_id;
	task.base_version = next->base_version;
	task.attempt = old ? old->attempt + 1 : 1;
	CommitTransactionCommand();

	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	entry->baseline_stream = task.stream_id;
	entry->baseline_pid = 0;
	entry->baseline_phase = SCDC_BASELINE_LAUNCHED;
	pg_atomic_write_u64(&entry->baseline_done, 0);
	pg_atomic_write_u64(&entry->baseline_total, 0);
	LWLockRelease(scdc_shared->lock);

	scdc_worker_init(&worker, "baseline", "scdc_baseline_main");
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &task, sizeof(task));
	if (RegisterDynamicBackgroundWorker(&worker, NULL))
	{
		retry_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), IMPORT_TIMEOUT);
		return;
	}
	if (failures == 0)
		ereport(LOG,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("no background worker slot is free to copy the baseline of table %u", task.relid),
				 errhint("Increase \"max_worker_processes\" and restart the server.")));
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	entry->baseline_stream = 0;
	entry->baseline_phase = SCDC_BASELINE_NONE;
	LWLockRelease(scdc_shared->lock);
	back_off();
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

/*
 * The worker holds its lock on the table: take S, hand it over, store it.
 * False if S would not do, or the worker did not take it.
 */
static bool
take_snapshot(ScdcCaptureEntry *entry)
{
	ScdcStream *stream;
	ScdcBaseline baseline = {0},
			   *old;
	ScdcVisibility *v;
	Snapshot	now;
	char	   *name;
	TimestampTz give_up = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), IMPORT_TIMEOUT);

	StartTransactionCommand();
	XactIsoLevel = XACT_REPEATABLE_READ;
	PushActiveSnapshot(GetTransactionSnapshot());
	now = GetActiveSnapshot();

	stream = scdc_stream_by_id(task.stream_id, now);
	baseline.snapshot = OidOutputFunctionCall(F_PG_SNAPSHOT_OUT, OidFunctionCall0(F_PG_CURRENT_SNAPSHOT));
	v = scdc_visibility_parse(baseline.snapshot);
	if (stream == NULL || stream->state != SCDC_STATE_LIVE || !captured_is_visible(stream, v, now))
	{
		PopActiveSnapshot();
		AbortCurrentTransaction();
		return false;
	}

	name = ExportSnapshot(now);
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	strlcpy(entry->baseline_snapshot, name, sizeof(entry->baseline_snapshot));
	if (entry->baseline_phase == SCDC_BASELINE_READY)
		entry->baseline_phase = SCDC_BASELINE_EXPORTED;
	LWLockRelease(scdc_shared->lock);
	ConditionVariableBroadcast(&entry->cv);

	ConditionVariablePrepareToSleep(&entry->cv);
	while (phase_of(entry) == SCDC_BASELINE_EXPORTED && GetCurrentTimestamp() < give_up)
		(void) ConditionVariableTimedSleep(&entry->cv, 100, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
	if (phase_of(entry) != SCDC_BASELINE_IMPORTED)
	{
		PopActiveSnapshot();
		AbortCurrentTransaction();
		return false;
	}

	replorigin_session_origin = DoNotReplicateId;
	scdc_changelog_delete(stream->stream_id);
	old = scdc_baseline_read(stream->stream_id, now);
	if (old)
		scdc_baseline_delete(old);
	baseline.stream_id = stream->stream_id;
	baseline.attempt = task.attempt;
	baseline.snapshot_time = GetCurrentTransactionStartTimestamp();
	scdc_baseline_insert(&baseline);
	PopActiveSnapshot();
	CommitTransactionCommand();
	replorigin_session_origin = InvalidRepOriginId;
	return true;
}

static void
stop_worker(ScdcCaptureEntry *entry)
{
	int			pid;

	LWLockAcquire(scdc_shared->lock, LW_SHARED);
	pid = entry->baseline_pid;
	LWLockRelease(scdc_shared->lock);
	if (pid != 0)
		kill(pid, SIGTERM);
}

bool
scdc_baseline_advance(ScdcCaptureEntry *entry)
{
	ScdcBaselinePhase phase;

	if (!look)
		return false;
	phase = phase_of(entry);
	switch (phase)
	{
		case SCDC_BASELINE_NONE:
			if (retry_at == 0 || GetCurrentTimestamp() >= retry_at)
			{
				retry_at = 0;
				launch_next(entry);
			}
			return false;

		case SCDC_BASELINE_READY:
			if (take_snapshot(entry))
			{
				retry_at = 0;
				return true;
			}
			stop_worker(entry);
			back_off();
			return false;

		case SCDC_BASELINE_ENDED:
			LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
			entry->baseline_stream = 0;
			entry->baseline_pid = 0;
			entry->baseline_phase = SCDC_BASELINE_NONE;
			LWLockRelease(scdc_shared->lock);
			{
				ScdcBaseline *b;

				/* the same stream will be found again if it failed */
				StartTransactionCommand();
				PushActiveSnapshot(GetLatestSnapshot());
				b = scdc_baseline_read(task.stream_id, GetActiveSnapshot());
				if (b && b->complete)
				{
					failures = 0;
					retry_at = 0;
				}
				else if (retry_at == 0)
					back_off();
				PopActiveSnapshot();
				CommitTransactionCommand();
			}
			return false;

		case SCDC_BASELINE_LAUNCHED:
			/* it waits for its lock as long as it takes; only one that never ran is given up */
			if (entry->baseline_pid == 0 && retry_at != 0 && GetCurrentTimestamp() >= retry_at)
			{
				LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
				entry->baseline_phase = SCDC_BASELINE_ENDED;
				LWLockRelease(scdc_shared->lock);
			}
			return false;

		case SCDC_BASELINE_EXPORTED:
		case SCDC_BASELINE_IMPORTED:
			return false;
	}
	return false;
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

static void
set_phase(ScdcBaselinePhase phase)
{
	Latch	   *capture;

	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	my_entry->baseline_phase = phase;
	my_entry->baseline_pid = phase == SCDC_BASELINE_ENDED ? 0 : MyProcPid;
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

/* Waits for capture to take S, then makes it this transaction's snapshot. */
static void
import_snapshot(void)
{
	char		name[64];

	ConditionVariablePrepareToSleep(&my_entry->cv);
	for (;;)
	{
		bool		exported;

		LWLockAcquire(scdc_shared->lock, LW_SHARED);
		exported = my_entry->baseline_phase == SCDC_BASELINE_EXPORTED;
		memcpy(name, my_entry->baseline_snapshot, sizeof(name));
		LWLockRelease(scdc_shared->lock);
		if (exported)
			break;
		(void) ConditionVariableTimedSleep(&my_entry->cv, 1000, PG_WAIT_EXTENSION);
		/* capture may be gone: without it there is nothing to join */
		if (my_entry->pid == 0)
			ereport(FATAL,
					(errcode(ERRCODE_ADMIN_SHUTDOWN),
					 errmsg("capture worker has ended while a baseline was about to be copied")));
	}
	ConditionVariableCancelSleep();
	ImportSnapshot(name);
}

typedef struct Writer
{
	Relation	blocks;
	ScdcBlockBuilder *builder;
	ScdcBlockInfo info;
	ScdcVersion version;
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

static int64
copy_rows(Relation rel, const ScdcSchema *schema, Snapshot snapshot, TimestampTz at)
{
	ScdcBaselineTask *t = (ScdcBaselineTask *) MyBgworkerEntry->bgw_extra;
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	MemoryContext row_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc baseline row", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = CurrentMemoryContext;
	Writer		w = {0};
	int64		rows = 0;

	w.block_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc baseline block", ALLOCSET_DEFAULT_SIZES);
	w.blocks = scdc_table_open(SCDC_BLOCKS, RowExclusiveLock);
	w.builder = scdc_block_builder_create(SCDC_COMPRESSION);
	w.version.version = t->base_version;
	w.version.timestamp = w.version.commit_time = at;
	w.info.stream_id = t->stream_id;
	w.info.first_version = w.info.last_version = t->base_version;
	w.info.first_timestamp = w.info.last_timestamp = at;
	w.info.schema_number = schema->number;
	scdc_block_begin_version(w.builder, &w.version);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		ScdcEvent	event = {.kind = SCDC_EVENT_INSERT};

		if (scdc_worker_check())
		{
			/* settings were reloaded; none matters here */
		}
		MemoryContextSwitchTo(row_cxt);
		event.new_image = scdc_image_make(schema, rel, ExecCopySlotHeapTuple(slot), NULL, SCDC_IMAGE_FROM_TABLE);
		MemoryContextSwitchTo(old);
		if (w.info.inserts > 0 && scdc_block_raw_size(w.builder) + event.new_image.len > SCDC_BLOCK_RAW_MAX)
		{
			write_block(&w);
			pg_atomic_write_u64(&my_entry->baseline_done, rows);
		}
		scdc_block_begin_version(w.builder, &w.version);
		scdc_block_add(w.builder, &event);
		w.info.inserts++;
		rows++;
		MemoryContextReset(row_cxt);
	}

	/* also of an empty table: version 0 exists */
	if (w.info.inserts > 0 || rows == 0)
	{
		scdc_block_begin_version(w.builder, &w.version);
		write_block(&w);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(w.blocks, NoLock);
	return rows;
}

void
scdc_baseline_main(Datum arg)
{
	ScdcBaselineTask *t = (ScdcBaselineTask *) MyBgworkerEntry->bgw_extra;
	Relation	rel;
	Snapshot	now;
	ScdcStream *stream;
	ScdcBaseline *b;
	ScdcSchema *schema;
	BlockNumber pages;
	double		tuples,
				allvisfrac;

	my_entry = scdc_entry_find(t->dboid);
	if (my_entry == NULL || my_entry->baseline_stream != t->stream_id)
		proc_exit(0);
	scdc_worker_start(t->dboid);
	before_shmem_exit(baseline_exit, (Datum) 0);
	set_phase(SCDC_BASELINE_LAUNCHED);

	/* one transaction for all: its lock, its snapshot, its blocks */
	StartTransactionCommand();
	XactIsoLevel = XACT_REPEATABLE_READ;
	scdc_worker_activity(true, "waiting to copy a baseline");
	rel = try_relation_open(t->relid, AccessShareLock);
	if (rel == NULL)
		proc_exit(0);			/* dropped meanwhile */
	scdc_worker_activity(true, psprintf("copying baseline of %s.%s",
										quote_identifier(get_namespace_name(RelationGetNamespace(rel))),
										quote_identifier(RelationGetRelationName(rel))));
	estimate_rel_size(rel, NULL, &pages, &tuples, &allvisfrac);
	pg_atomic_write_u64(&my_entry->baseline_total, (uint64) tuples);

	set_phase(SCDC_BASELINE_READY);
	import_snapshot();
	PushActiveSnapshot(GetTransactionSnapshot());
	set_phase(SCDC_BASELINE_IMPORTED);

	now = RegisterSnapshot(GetLatestSnapshot());
	stream = scdc_stream_by_id(t->stream_id, now);
	UnregisterSnapshot(now);
	if (stream == NULL)
		proc_exit(0);

	/* capture is storing S at this moment; without that the copy would be of no use */
	for (;;)
	{
		now = RegisterSnapshot(GetLatestSnapshot());
		b = scdc_baseline_read(t->stream_id, now);
		UnregisterSnapshot(now);
		if (b && b->attempt == t->attempt)
			break;
		if (my_entry->pid == 0)
			ereport(FATAL,
					(errcode(ERRCODE_ADMIN_SHUTDOWN),
					 errmsg("capture worker has ended while a baseline was about to be copied")));
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 2, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}

	replorigin_session_origin = DoNotReplicateId;
	schema = scdc_schema_of_relation(rel, t->stream_id, stream->identity, stream->nidentity);
	schema->number = SCDC_BASELINE_SCHEMA;
	scdc_schema_write(schema);
	b->row_count = copy_rows(rel, schema, GetActiveSnapshot(), b->snapshot_time);
	b->complete = true;

	/* untracked or given up meanwhile: throw the copy away */
	now = RegisterSnapshot(GetLatestSnapshot());
	stream = scdc_stream_by_id(t->stream_id, now);
	UnregisterSnapshot(now);
	if (stream == NULL || stream->state == SCDC_STATE_UNTRACKED)
		proc_exit(0);

	scdc_baseline_delete(b);
	scdc_baseline_insert(b);
	PopActiveSnapshot();
	relation_close(rel, NoLock);
	CommitTransactionCommand();
	replorigin_session_origin = InvalidRepOriginId;

	pg_atomic_write_u64(&my_entry->baseline_done, b->row_count);
	ConditionVariableBroadcast(&my_entry->cv);
	proc_exit(0);
}
