/*-------------------------------------------------------------------------
 *
 * capture.c
 *	  The capture worker: one per database that has tracked tables.
 *
 * It starts when the first table is tracked (then it has a slot to build) or
 * when the launcher finds the database's mark, and ends when nothing is
 * tracked any more.  It touches no relation but the extension's own outside
 * decoding: a user's table opened in normal mode would leave a cache entry
 * with which older rows would then be decoded.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "replication/origin.h"
#include "replication/slot.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "capture/baseline.h"
#include "capture/capture.h"
#include "capture/collect.h"
#include "capture/decode.h"
#include "capture/inbox_reader.h"
#include "capture/slot.h"
#include "capture/spool.h"
#include "capture/streamed.h"
#include "capture/wait.h"
#include "clock.h"
#include "guc.h"
#include "jobs/slots.h"
#include "label.h"
#include "log/catalog.h"
#include "log/definition.h"
#include "log/rows.h"
#include "worker.h"

PGDLLEXPORT void scdc_capture_main(Datum arg);

#define PASS_TIME_MAX	100		/* ms of decoding before what is there is written */
#define IDLE_NAP		1000	/* ms; commits wake us, this is for WAL that no commit of this database announces */
#define GATHER_RATE		1.0		/* commits per ms from which on they are gathered */
#define LOOK_INTERVAL	60000	/* ms after which we look at our tables without being told */
#define CONFIRM_DELAY	100		/* ms after which an unflushed commit of ours is flushed when idle */
#define POSITION_INTERVAL 10000 /* ms between positions stored for idle progress ... */
#define POSITION_WAL	(16 * 1024 * 1024)	/* ... unless this much WAL went by */

static ScdcCaptureEntry *entry;
static char slot_name[NAMEDATALEN];

static XLogRecPtr stored_position;	/* newest committed */
static int64 stored_at;			/* scdc_clock_ms() */

/* Positions that wait until the commit which stored them is flushed. */
typedef struct Unconfirmed
{
	XLogRecPtr	commit_end;		/* 0: none */
	XLogRecPtr	position;
} Unconfirmed;
static Unconfirmed oldest_unconfirmed,
			newest_unconfirmed;

static Oid	registry_oid = InvalidOid;
static bool look_at_tables = false; /* a table was tracked or untracked */
static XLogRecPtr finish_at = InvalidXLogRecPtr;	/* nothing is tracked any more: what was committed until then is still read */
static bool extension_gone = false; /* dropped while we run */
static bool registry_changed = false;	/* relcache callback: is the extension still there? */

/* ---- state in shared memory ---- */

static void
set_state(ScdcCaptureState state)
{
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	entry->state = state;
	LWLockRelease(scdc_shared->lock);
	ConditionVariableBroadcast(&entry->cv);
}

static void
capture_exit(int code, Datum arg)
{
	/* whoever waits for us to be gone (DROP DATABASE) wants the slot to be free */
	if (MyReplicationSlot)
		ReplicationSlotRelease();
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	entry->pid = 0;
	entry->latch = NULL;
	if (entry->state != SCDC_CAPTURE_FAILED)
		entry->state = SCDC_CAPTURE_NONE;
	LWLockRelease(scdc_shared->lock);
	ConditionVariableBroadcast(&entry->cv);
	scdc_wake_launcher();
}

/* Leaves the error where readers and stream_track find it; the launcher tries again later. */
static void
publish_failure(ErrorData *e)
{
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	entry->state = SCDC_CAPTURE_FAILED;
	entry->sqlstate = e->sqlerrcode;
	strlcpy(entry->error, e->message ? e->message : "", sizeof(entry->error));
	strlcpy(entry->hint, e->hint ? e->hint : "", sizeof(entry->hint));
	entry->retry_at = scdc_clock_ms() + Min(60000, 500 << Min(entry->failures, 10));
	entry->failures++;
	LWLockRelease(scdc_shared->lock);
}

/*
 * Never backwards: a worker that starts again reads WAL whose changes are
 * visible already.  Getting further than any worker before ends the back-off;
 * starting alone does not, or a change that cannot be captured would be tried
 * twice a second for ever.
 */
static void
publish_captured(XLogRecPtr upto)
{
	if (upto <= pg_atomic_read_u64(&entry->captured))
		return;
	pg_atomic_write_u64(&entry->captured, upto);
	entry->failures = 0;
	ConditionVariableBroadcast(&entry->cv);
}

static void
registry_invalidated(Datum arg, Oid relid)
{
	if (relid == registry_oid || relid == InvalidOid)
		registry_changed = true;
}

/* ---- transactions on our own tables ---- */

static void
begin_write(void)
{
	/*
	 * With this flag set, every other backend's snapshot would take our
	 * transactions for finished ones, and our rows would be lost.
	 */
	if (MyProc->statusFlags & PROC_IN_LOGICAL_DECODING)
		elog(FATAL, "capture worker is marked as in logical decoding");
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	replorigin_session_origin = DoNotReplicateId;
}

/* Leaves a transaction of ours without having done anything. */
static void
abort_write(void)
{
	AbortCurrentTransaction();
	replorigin_session_origin = InvalidRepOriginId;
}

static void
end_write(void)
{
	CommitTransactionCommand();
	replorigin_session_origin = InvalidRepOriginId;
}

/* Streams with a change that could not be stored, or made UNLOGGED, end with the version before it; the others go on. */
static void
give_up_stalled(List *stalled)
{
	ListCell   *lc;
	Snapshot	snapshot;

	if (stalled == NIL)
		return;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	foreach(lc, stalled)
	{
		ScdcTracked *t = lfirst(lc);
		ScdcStream *s = scdc_stream_by_id(t->stream_id, snapshot);

		ereport(LOG,
				(errmsg("capture of table %u is given up", t->relid),
				 errdetail_internal("%s", t->stalled)));
		if (s == NULL || s->state != SCDC_STATE_LIVE)
			continue;
		s->state = t->ended_state;
		s->reason = t->stalled;
		s->last_version = t->last_version - 1;
		scdc_stream_replace(s);
		scdc_registry_delete_stream(s->stream_id);
	}
	UnregisterSnapshot(snapshot);
	list_free(stalled);
	registry_changed = true;
}

/* Streams that the transaction under way has written to; too many to remember: all. */
#define WRITTEN_MAX	256

static int64 written[WRITTEN_MAX];
static int	nwritten = 0;

static void
note_written(int64 stream_id)
{
	for (int i = 0; i < Min(nwritten, WRITTEN_MAX); i++)
		if (written[i] == stream_id)
			return;
	if (nwritten < WRITTEN_MAX)
		written[nwritten] = stream_id;
	nwritten++;
}

/* The queries that read these streams have something to do. */
static void
wake_jobs(void)
{
	if (!scdc_slots_any(MyDatabaseId))
		return;
	for (int i = 0; i < Min(nwritten, WRITTEN_MAX); i++)
		scdc_slots_wake_stream(MyDatabaseId, written[i]);
	if (nwritten > WRITTEN_MAX)
		scdc_slots_wake_all(MyDatabaseId);
}

/* What origins are called is known now; later their numbers may mean others. */
static void
note_origins(void)
{
	List	   *seen = scdc_collect_origins();
	Snapshot	snapshot;
	ListCell   *lc;

	if (seen == NIL)
		return;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	foreach(lc, seen)
	{
		ScdcOriginSeen *s = lfirst(lc);
		char	   *name;

		if (replorigin_by_oid((RepOriginId) s->origin, true, &name))
			scdc_origin_note(s->origin, s->lsn, name, snapshot);
	}
	UnregisterSnapshot(snapshot);
	list_free_deep(seen);
}

/* Writes what was collected, and how far WAL has been read. */
static void
store(void)
{
	static int	since_trim = 0;
	XLogRecPtr	position = scdc_slot_read_upto();
	Relation	blocks,
				positions;
	List	   *stalled;

	begin_write();
	LockRelationOid(registry_oid, AccessShareLock); /* the gate, see scdc_table_open */
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(registry_oid)))
	{
		extension_gone = true;
		abort_write();
		return;
	}
	blocks = scdc_table_open(SCDC_BLOCKS, RowExclusiveLock);
	stalled = scdc_collect_stalled();
	nwritten = 0;
	scdc_collect_write(blocks, note_written);
	table_close(blocks, NoLock);
	give_up_stalled(stalled);
	scdc_inbox_clean(position);
	note_origins();
	positions = scdc_table_open(SCDC_POSITIONS, RowExclusiveLock);
	scdc_position_insert(positions, position);
	table_close(positions, NoLock);
	if (++since_trim >= 100)
	{
		scdc_position_trim(position);
		since_trim = 0;
	}
	end_write();

	wake_jobs();
	stored_position = position;
	stored_at = scdc_clock_ms();
	newest_unconfirmed.commit_end = XactLastCommitEnd;
	newest_unconfirmed.position = position;
	if (oldest_unconfirmed.commit_end == 0)
		oldest_unconfirmed = newest_unconfirmed;
}

/* Confirms what is stored and known to be flushed.  True if something is left to confirm. */
static bool
confirm(void)
{
	XLogRecPtr	flushed = GetFlushRecPtr(NULL);

	if (newest_unconfirmed.commit_end != 0 && newest_unconfirmed.commit_end <= flushed)
	{
		scdc_slot_confirm(newest_unconfirmed.position);
		pg_atomic_write_u64(&entry->confirmed, newest_unconfirmed.position);
		newest_unconfirmed.commit_end = oldest_unconfirmed.commit_end = 0;
	}
	else if (oldest_unconfirmed.commit_end != 0 && oldest_unconfirmed.commit_end <= flushed)
	{
		scdc_slot_confirm(oldest_unconfirmed.position);
		pg_atomic_write_u64(&entry->confirmed, oldest_unconfirmed.position);
		oldest_unconfirmed = newest_unconfirmed;
	}
	return newest_unconfirmed.commit_end != 0;
}

/* ---- streams ---- */

/*
 * The log of an untracked stream goes.  So does a stream whose table was
 * dropped before its baseline was complete: nobody will ever be able to read
 * it.
 */
static void
clear_ended(ScdcStream *s, Snapshot snapshot)
{
	bool		unreadable = s->state == SCDC_STATE_DROPPED && !scdc_baseline_is_complete(s, snapshot);
	ScdcBaseline *baseline;

	/* capture may have added a row after the others were deleted */
	if (s->state == SCDC_STATE_UNTRACKED || s->state == SCDC_STATE_DROPPED)
		scdc_definition_delete(s->home, s->stream_id);
	if (s->state != SCDC_STATE_UNTRACKED && !unreadable)
		return;

	/* a copy under way has its hands on these rows, and we never wait for it; its end makes us look again */
	baseline = scdc_baseline_read(s->stream_id, snapshot);
	if (baseline && scdc_baseline_is_active(entry, baseline->attempt))
		return;
	scdc_stream_delete_log(s->stream_id, snapshot);
	if (unreadable)
	{
		s->state = SCDC_STATE_UNTRACKED;
		scdc_stream_replace(s);
	}
}

/*
 * The log of a dropped table is complete when capture has passed the drop.
 * From then on readers wait for nothing: the row has the last version.  False
 * if that takes another look.
 */
static bool
finish_dropped(ScdcStream *s, Snapshot snapshot)
{
	ScdcTracked *t = scdc_collect_find(s->stream_id);
	ScdcBlockInfo last;

	if (s->state != SCDC_STATE_DROPPED || s->last_version >= 0 || t == NULL)
		return true;
	if (XLogRecPtrIsInvalid(t->dropped_by))
	{
		t->dropped_by = scdc_wal_target();
		XLogFlush(t->dropped_by);
	}
	if (scdc_slot_read_upto() < t->dropped_by)
		return false;
	s->last_version = scdc_changelog_last(s->stream_id, snapshot, &last) ? last.last_version : s->base_version;
	scdc_stream_replace(s);
	return true;
}

/*
 * Looks at our tables again, after a message of ours was decoded, and at
 * start.  Everything collected must have been written.
 */
static void
load_streams(void)
{
	Snapshot	snapshot;
	ListCell   *lc;
	bool		baselines = false;

	begin_write();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	foreach(lc, scdc_stream_list(snapshot))
	{
		ScdcStream *s = lfirst(lc);

		clear_ended(s, snapshot);
		if (!finish_dropped(s, snapshot))
			look_at_tables = true;
		if (s->state == SCDC_STATE_LIVE && s->baseline)
			baselines = true;
		scdc_collect_load(s, snapshot);
	}
	UnregisterSnapshot(snapshot);
	end_write();
	if (baselines)
		scdc_baseline_look();
	/* a stream may have ended, which its readers should say */
	scdc_slots_wake_all(MyDatabaseId);
}

/*
 * Continuity is lost: says so in each stream, as a version with a gap, and
 * gives up the slot.  History up to the gap stays readable.
 */
static void
give_up(const char *reason)
{
	Snapshot	snapshot;
	Relation	blocks;
	ListCell   *lc;
	TimestampTz now = GetCurrentTimestamp();

	ereport(LOG,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("capture of database %u cannot be continued, tracked tables have a gap", MyDatabaseId),
			 errdetail_internal("%s", reason)));

	begin_write();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	blocks = scdc_table_open(SCDC_BLOCKS, RowExclusiveLock);
	foreach(lc, scdc_stream_list(snapshot))
	{
		ScdcStream *s = lfirst(lc);
		ScdcBlockInfo last,
					info = {0};
		ScdcBlockBuilder *builder;
		ScdcBlock	block;
		ScdcVersion version = {0};
		ScdcEvent	gap = {.kind = SCDC_EVENT_GAP};

		if (s->state != SCDC_STATE_LIVE)
			continue;
		s->last_version = s->base_version;
		version.timestamp = now;
		if (scdc_changelog_last(s->stream_id, snapshot, &last))
		{
			s->last_version = last.last_version;
			version.timestamp = Max(now, last.last_timestamp + 1);
		}
		version.version = s->last_version + 1;
		version.commit_time = now;

		builder = scdc_block_builder_create(SCDC_COMPRESS_NONE);
		scdc_block_begin_version(builder, &version);
		scdc_block_add(builder, &gap);
		scdc_block_finish(builder, &block);
		info.stream_id = s->stream_id;
		info.first_version = info.last_version = version.version;
		info.first_timestamp = info.last_timestamp = version.timestamp;
		info.flags = SCDC_BLOCK_HAS_GAP;
		scdc_changelog_append(blocks, &info, &block);
		(void) scdc_definition_reach(s->stream_id, version.version);

		s->state = SCDC_STATE_GAP;
		s->reason = pstrdup(reason);
		scdc_stream_replace(s);
		scdc_registry_delete_stream(s->stream_id);
	}
	table_close(blocks, NoLock);
	UnregisterSnapshot(snapshot);
	scdc_slot_forget();
	end_write();

	/* after the commit: a crash in between leaves a slot that the next start drops */
	scdc_slot_drop(slot_name);
}

/* Has this database tables to capture?  What a copy says is about the database it was copied from. */
static bool
has_streams(bool *foreign)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScdcSlot   *slot = scdc_slot_read(snapshot);
	bool		result;

	*foreign = slot && scdc_slot_is_foreign(slot);
	result = !*foreign && !scdc_registry_is_empty(snapshot);
	UnregisterSnapshot(snapshot);
	return result;
}

/* Logs of dropped tables are left to retention, which finds the database by a mark of its own. */
static void
mark_logs(bool ours)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	bool		wanted = ours && scdc_stream_any_dropped(snapshot);

	UnregisterSnapshot(snapshot);
	if (wanted && !scdc_label_exists(SCDC_MARK_LOGS))
		scdc_label_set(SCDC_MARK_LOGS);
}

/*
 * Ends the worker when nothing is tracked.  stream_track holds
 * RowExclusiveLock on the registry until its transaction ends, so with the
 * ShareLock there is nobody who counts on us.  False: somebody does.
 */
static bool
try_finish(void)
{
	bool		extension = OidIsValid(registry_oid);
	bool		foreign = false;

	begin_write();
	if (extension)
	{
		if (!ConditionalLockRelationOid(registry_oid, ShareLock))
		{
			abort_write();
			return false;
		}
		InvalidateSystemCaches();
		extension = OidIsValid(scdc_table_oid(SCDC_REGISTRY));
		if (extension && has_streams(&foreign))
		{
			abort_write();
			return false;
		}
	}

	/* the slot first: without it the mark is harmless, without the mark the slot would be forgotten */
	scdc_slot_drop(slot_name);
	if (extension && !foreign)
		scdc_slot_forget();
	mark_logs(extension && !foreign);
	if (scdc_label_exists(SCDC_MARK_CAPTURE))
		scdc_label_remove(SCDC_MARK_CAPTURE);
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	entry->state = SCDC_CAPTURE_NONE;	/* from now on callers launch another */
	LWLockRelease(scdc_shared->lock);
	SetConfigOption("synchronous_commit", "on", PGC_SUSET, PGC_S_OVERRIDE);
	end_write();
	ereport(LOG, (errmsg("capture of database %u has ended, nothing is tracked", MyDatabaseId)));
	return true;
}

/* Is there nothing to capture (also because the extension was dropped)? */
static bool
nothing_tracked(void)
{
	bool		result = true;
	bool		foreign;

	begin_write();
	InvalidateSystemCaches();
	if (scdc_extension_exists() && scdc_table_oid(SCDC_REGISTRY) == registry_oid)
		result = !has_streams(&foreign);
	end_write();
	return result;
}

/* ---- start ---- */

/*
 * Nothing of ours is there yet: reserve a slot, let the callers go on, wait
 * for them, then build it.  False: nobody committed, and we are done.
 */
static bool
start_anew(void)
{
	ScdcSlot	slot;
	long		nap = 10;

	scdc_slot_drop(slot_name);	/* left over from a start that did not come to its end */
	scdc_slot_reserve(slot_name);

	/* the mark must be durable before any caller can commit */
	StartTransactionCommand();
	if (!scdc_label_exists(SCDC_MARK_CAPTURE))
		scdc_label_set(SCDC_MARK_CAPTURE);
	CommitTransactionCommand();
	set_state(SCDC_CAPTURE_RESERVED);

	/*
	 * Building the slot waits for every older transaction, the callers'
	 * included, so first see whether they commit.  The first commit wakes us,
	 * and its session waits for us, still holding its locks: so look at what
	 * is visible rather than wait for locks.
	 */
	scdc_worker_activity(false, "waiting for stream_track to commit");
	while (nothing_tracked())
	{
		if (try_finish())
			return false;
		pg_atomic_write_u32(&entry->sleeping, 1);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, nap, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		pg_atomic_write_u32(&entry->sleeping, 0);
		CHECK_FOR_INTERRUPTS();
		nap = Min(nap * 2, IDLE_NAP);	/* nobody tells us of a rollback */
	}

	scdc_worker_activity(true, "creating the replication slot, waiting for older transactions");
	slot.consistent_lsn = scdc_slot_build();
	slot.slot_name = slot_name;
	slot.database_oid = MyDatabaseId;
	slot.created_at = GetCurrentTimestamp();
	begin_write();
	slot.system_identifier = scdc_system_identifier();
	scdc_slot_insert(&slot);
	{
		Relation	positions = scdc_table_open(SCDC_POSITIONS, RowExclusiveLock);

		scdc_position_insert(positions, slot.consistent_lsn);
		table_close(positions, NoLock);
	}
	end_write();
	stored_position = slot.consistent_lsn;
	return true;
}

/* Goes on where the change log ends.  False if that is not possible, and we are done. */
static bool
start_again(void)
{
	char	   *problem;
	Snapshot	snapshot;

	begin_write();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	stored_position = scdc_position_read(snapshot);
	UnregisterSnapshot(snapshot);
	end_write();

	problem = scdc_slot_problem(slot_name, stored_position);
	if (problem)
	{
		give_up(problem);
		return false;
	}
	return true;
}

/* ---- the loop ---- */

/*
 * Decodes until WAL ends, or until it is time to write what has been
 * collected.  True if WAL ended.
 */
static bool
decode_pass(void)
{
	instr_time	start,
				now;
	int			records = 0;
	Size		size_max = (Size) scdc_capture_memory * 1024 / 4;

	INSTR_TIME_SET_CURRENT(start);
	while (scdc_slot_read_record())
	{
		CHECK_FOR_INTERRUPTS();
		if (scdc_decode_has_message() && scdc_decode_take_message())
		{
			look_at_tables = true;	/* what follows may be about a stream that we have to look up first */
			return false;
		}
		if (++records % 64 != 0 || scdc_collect_is_empty())
			continue;
		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_SUBTRACT(now, start);
		if (INSTR_TIME_GET_MILLISEC(now) >= PASS_TIME_MAX || scdc_collect_size() >= size_max)
			return false;
	}
	return true;
}

/* The slot must not fill the disk. */
static bool
holds_too_much_wal(void)
{
	XLogRecPtr	restart = scdc_slot_restart_lsn();
	XLogRecPtr	now = GetXLogInsertRecPtr();
	TransactionId oldest;
	int			pid = 0;

	if (scdc_max_slot_wal < 0 || now - restart <= (uint64) scdc_max_slot_wal * 1024 * 1024)
		return false;
	oldest = GetOldestActiveTransactionId();
	if (TransactionIdIsNormal(oldest))
		pid = BackendXidGetPid(oldest);
	give_up(psprintf("The replication slot held back " UINT64_FORMAT " MB of WAL, more than \"streamcdc.max_slot_wal\" allows; the oldest open transaction was %u, %s.",
					 (now - restart) / (1024 * 1024), oldest,
					 pid ? psprintf("of process %d", pid) : "a prepared one or none"));
	return true;
}

/* Sleeps until a commit, a reader, or the time for something of our own. */
static void
sleep_until_woken(bool unconfirmed, bool no_progress)
{
	long		timeout = IDLE_NAP;
	long		baseline = scdc_baseline_delay();
	XLogRecPtr	want;

	if (unconfirmed)
		timeout = Min(timeout, CONFIRM_DELAY);
	if (scdc_decode_has_message())
		timeout = Min(timeout, 10);	/* its transaction will be visible any moment */
	if (baseline >= 0)
		timeout = Min(timeout, baseline);

	pg_atomic_write_u32(&entry->sleeping, 1);
	pg_memory_barrier();
	want = pg_atomic_read_u64(&entry->want);
	if (no_progress && want > scdc_slot_read_upto())
		timeout = 10;			/* asked for more than there is to read: do not spin */
	if (want <= scdc_slot_read_upto() || no_progress)
	{
		int			rc = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout, PG_WAIT_EXTENSION);

		ResetLatch(MyLatch);
		if ((rc & WL_TIMEOUT) && unconfirmed)
			XLogFlush(newest_unconfirmed.commit_end);
		want = pg_atomic_read_u64(&entry->want);
	}
	pg_atomic_write_u32(&entry->sleeping, 0);

	/* commits that did not wait for the disk become visible here all the same, and promptly */
	if (want > scdc_slot_read_upto() && want > GetFlushRecPtr(NULL))
		XLogFlush(want);
}

/*
 * Under load, many commits are better written together: each pass costs a
 * transaction and a block for each table.  Waits until capture_delay has gone
 * by since the pass began, unless somebody waits for us, or commits are so
 * few (below GATHER_RATE, smoothed) that there is nothing to gain.
 */
static void
gather_commits(instr_time pass_start, int64 commits)
{
	static double rate = 0;		/* commits per ms */
	static instr_time last_start;
	instr_time	now = pass_start;
	long		left;

	if (!INSTR_TIME_IS_ZERO(last_start))
	{
		INSTR_TIME_SUBTRACT(now, last_start);
		rate += (commits / Max(INSTR_TIME_GET_MILLISEC(now), 0.01) - rate) * 0.1;
	}
	last_start = pass_start;
	if (rate < GATHER_RATE)
		return;

	for (;;)
	{
		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_SUBTRACT(now, pass_start);
		left = scdc_capture_delay - (long) INSTR_TIME_GET_MILLISEC(now);
		if (left <= 0 || pg_atomic_read_u32(&entry->urgent) != 0)
			return;
		/* commits do not set the latch now ("sleeping" is not set), only somebody who waits does */
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, left, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

static void
apply_settings(void)
{
	/* three quarters for transactions being put together, one for finished blocks */
	SetConfigOption("logical_decoding_work_mem", psprintf("%dkB", Max(64, scdc_capture_memory / 4 * 3)),
					PGC_SUSET, PGC_S_OVERRIDE);

	/* losing an unflushed commit of ours only means to decode again; confirm() waits for the flush */
	SetConfigOption("synchronous_commit", "off", PGC_SUSET, PGC_S_OVERRIDE);
}

static void
capture_loop(void)
{
	MemoryContext pass_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc capture pass", ALLOCSET_DEFAULT_SIZES);
	int64		checked = 0;
	int64		looked = scdc_clock_ms();
	XLogRecPtr	last_upto = InvalidXLogRecPtr;

	for (;;)
	{
		bool		ended,
					unconfirmed;
		int64		commits;
		instr_time	start;

		MemoryContextSwitchTo(pass_cxt);
		MemoryContextReset(pass_cxt);
		if (scdc_worker_check())
			apply_settings();

		INSTR_TIME_SET_CURRENT(start);
		pg_atomic_write_u32(&entry->urgent, 0);
		ended = decode_pass();
		commits = scdc_collect_transactions();

		if (!scdc_collect_is_empty())
			store();
		else if (scdc_slot_read_upto() > stored_position)
		{
			uint64		moved = scdc_slot_read_upto() - stored_position;

			if (moved >= POSITION_WAL ||
				(scdc_clock_ms() - stored_at >= POSITION_INTERVAL &&
				 scdc_slot_saw_foreign_wal()))
				store();
		}
		if (extension_gone)
		{
			while (!try_finish())
				CHECK_FOR_INTERRUPTS();
			return;
		}
		publish_captured(scdc_slot_read_upto());
		unconfirmed = confirm();
		pgstat_report_stat(false);

		if (look_at_tables || scdc_decode_take_message() ||
			scdc_clock_ms() - looked >= LOOK_INTERVAL)
		{
			look_at_tables = false;
			looked = scdc_clock_ms();
			load_streams();
			registry_changed = true;
		}
		if (registry_changed)
		{
			bool		nothing = nothing_tracked();

			registry_changed = false;	/* after it: it invalidates all caches itself */
			if (!nothing)
				finish_at = InvalidXLogRecPtr;
			else
			{
				registry_changed = true;
				if (XLogRecPtrIsInvalid(finish_at))
					finish_at = scdc_wal_target();
				if (scdc_slot_read_upto() < finish_at)
				{
					/* a dropped table's log stays, and is complete */
					XLogFlush(finish_at);
					continue;
				}
				if (try_finish())
					return;
			}
		}
		if (scdc_baseline_advance(entry))
			load_streams();
		if (scdc_clock_ms() - checked >= 1000)
		{
			checked = scdc_clock_ms();
			if (holds_too_much_wal())
				return;
		}

		if (ended)
		{
			if (scdc_decode_take_large())
				scdc_slot_trim();
			gather_commits(start, commits);
			sleep_until_woken(unconfirmed, scdc_slot_read_upto() == last_upto);
			last_upto = scdc_slot_read_upto();
		}
	}
}

static void
capture(void)
{
	ScdcSlot   *slot = NULL;
	Snapshot	snapshot;
	MemoryContext keep = AllocSetContextCreate(TopMemoryContext, "streamcdc capture", ALLOCSET_SMALL_SIZES);
	bool		extension;

	MemoryContextSwitchTo(keep);
	apply_settings();
	snprintf(slot_name, NAMEDATALEN, "streamcdc_%u", MyDatabaseId);

	StartTransactionCommand();
	extension = scdc_extension_exists();
	if (extension)
	{
		registry_oid = scdc_table_oid(SCDC_REGISTRY);
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		MemoryContextSwitchTo(keep);
		slot = scdc_slot_read(snapshot);
		UnregisterSnapshot(snapshot);
		if (slot && scdc_slot_is_foreign(slot))
			slot = NULL;		/* a copy: whoever launched us is about to adopt it */
	}
	CommitTransactionCommand();
	MemoryContextSwitchTo(keep);
	CacheRegisterRelcacheCallback(registry_invalidated, (Datum) 0);

	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	if (!extension)
		registry_oid = entry->wanted_registry;
	entry->registry = registry_oid;
	LWLockRelease(scdc_shared->lock);

	/*
	 * Without the extension there may be a caller that has not committed it
	 * yet; his lock on the registry tells.  Else it was dropped while the
	 * server was down, say.
	 */
	if (!extension && try_finish())
		return;
	if (slot)
	{
		if (!start_again())
		{
			while (nothing_tracked() && !try_finish())
				(void) WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10, PG_WAIT_EXTENSION);
			return;
		}
	}
	else if (!start_anew())
		return;

	scdc_spool_init();
	scdc_streamed_init();
	scdc_collect_init();
	scdc_slot_open(slot_name, stored_position);
	stored_at = scdc_clock_ms();
	pg_atomic_write_u64(&entry->confirmed, MyReplicationSlot->data.confirmed_flush);
	begin_write();
	scdc_inbox_note_left_over();
	end_write();
	load_streams();
	registry_changed = true;	/* perhaps everything was untracked while we were away */
	set_state(SCDC_CAPTURE_RUNNING);
	ereport(LOG, (errmsg("capture of database %u has started at %X/%X", MyDatabaseId, LSN_FORMAT_ARGS(stored_position))));

	scdc_worker_activity(false, "waiting for changes");
	capture_loop();
}

void
scdc_capture_main(Datum arg)
{
	Oid			dboid = DatumGetObjectId(arg);
	bool		run;

	entry = scdc_entry_get(dboid);
	if (entry == NULL)
		proc_exit(0);

	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	run = entry->pid == 0 && !entry->suspended;
	if (run)
	{
		entry->pid = MyProcPid;
		entry->latch = MyLatch;
		entry->registry = InvalidOid;
		entry->state = SCDC_CAPTURE_STARTING;
	}
	else if (entry->pid == 0)
		entry->state = SCDC_CAPTURE_NONE;
	LWLockRelease(scdc_shared->lock);
	if (!run)
		proc_exit(0);
	before_shmem_exit(capture_exit, (Datum) 0);

	scdc_worker_start(dboid);
	PG_TRY();
	{
		capture();
	}
	PG_CATCH();
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

		publish_failure(CopyErrorData());
		MemoryContextSwitchTo(old);
		PG_RE_THROW();
	}
	PG_END_TRY();
	proc_exit(0);
}
