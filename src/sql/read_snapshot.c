/*-------------------------------------------------------------------------
 *
 * read_snapshot.c
 *	  The moment as of which a statement reads the change log.
 *
 * In READ COMMITTED a read waits for capture and then takes a snapshot that
 * is newer than its statement's.  Two reads of one statement must see the
 * same log, so that snapshot is remembered for the statement, which is
 * recognised by its own snapshot: statements with equal snapshots have no
 * commit between them, and may as well share ours.
 *
 * What is remembered is a copy that holds nothing back.  It stays usable as
 * long as the statement runs, because the statement's snapshot is older and
 * keeps every row that the copy can see; each read registers it for itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "capture/baseline.h"
#include "capture/wait.h"
#include "clock.h"
#include "guc.h"
#include "log/catalog.h"
#include "log/definition.h"
#include "shmem.h"
#include "sql/read_snapshot.h"

/* A baseline is looked at this often (ms), if nobody tells that it is complete. */
#define BASELINE_POLL_INTERVAL	100

static struct
{
	/* which statement; lxid says whether anything here is valid */
	LocalTransactionId lxid;
	TimestampTz statement_time;
	SnapshotData statement;		/* its active snapshot, in TopTransactionContext like the one below */

	SnapshotData snapshot;		/* what to read under */
	bool		waited;			/* had capture been waited for? */
} remembered;

static TransactionId *
copy_xids(const TransactionId *xids, int n)
{
	TransactionId *copy;

	/* a copied snapshot whose subtransactions overflowed has their number only */
	if (n <= 0 || xids == NULL)
		return NULL;
	copy = MemoryContextAlloc(TopTransactionContext, n * sizeof(TransactionId));
	memcpy(copy, xids, n * sizeof(TransactionId));
	return copy;
}

/* A snapshot's content, marked so that registering it makes a copy. */
static void
copy_snapshot(SnapshotData *to, Snapshot from)
{
	*to = *from;
	to->xip = copy_xids(from->xip, from->xcnt);
	to->subxip = copy_xids(from->subxip, from->subxcnt);
	to->copied = false;
	to->active_count = 0;
	to->regd_count = 0;
}

static bool
same_xids(const TransactionId *a, const TransactionId *b, int n)
{
	if (n <= 0 || (a == NULL && b == NULL))
		return true;
	return a != NULL && b != NULL && memcmp(a, b, n * sizeof(TransactionId)) == 0;
}

static bool
same_snapshot(const SnapshotData *a, const SnapshotData *b)
{
	return a->xmin == b->xmin && a->xmax == b->xmax && a->curcid == b->curcid &&
		a->xcnt == b->xcnt && a->subxcnt == b->subxcnt && a->suboverflowed == b->suboverflowed &&
		same_xids(a->xip, b->xip, a->xcnt) && same_xids(a->subxip, b->subxip, a->subxcnt);
}

static bool
statement_is_remembered(void)
{
	return LocalTransactionIdIsValid(remembered.lxid) && remembered.lxid == MyProc->lxid &&
		remembered.statement_time == GetCurrentStatementStartTimestamp() &&
		same_snapshot(&remembered.statement, GetActiveSnapshot());
}

static void
remember(Snapshot snapshot, bool waited)
{
	remembered.lxid = InvalidLocalTransactionId;	/* until all is copied */
	copy_snapshot(&remembered.statement, GetActiveSnapshot());
	copy_snapshot(&remembered.snapshot, snapshot);
	remembered.statement_time = GetCurrentStatementStartTimestamp();
	remembered.waited = waited;
	remembered.lxid = MyProc->lxid;
}

static void
stalled(const ScdcTarget *target, const char *reason)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("capture of table \"%s\" is stalled", target->name),
			 reason ? errdetail("%s", reason) : 0));
}

/* Raises if the capture worker has failed since we began to wait. */
static void
check_worker(const ScdcTarget *target, ScdcCaptureEntry *entry)
{
	char		error[sizeof(entry->error)];
	bool		failed;

	LWLockAcquire(scdc_shared->lock, LW_SHARED);
	failed = entry->state == SCDC_CAPTURE_FAILED;
	strlcpy(error, entry->error, sizeof(error));
	LWLockRelease(scdc_shared->lock);
	if (failed)
		stalled(target, error);
}

static void
baseline_incomplete(const ScdcTarget *target)
{
	ScdcCaptureEntry *entry = scdc_entry_find(MyDatabaseId);
	int64		stream_id = target->stream->stream_id;
	bool		copying = false;
	char	   *error = NULL;
	uint64		done = 0;
	uint64		total = 0;

	if (scdc_stream_given_up(target->stream))
		stalled(target, target->stream->reason);
	if (entry)
	{
		error = scdc_baseline_error(entry, target->is_owner ? stream_id : 0);
		LWLockAcquire(scdc_shared->lock, LW_SHARED);
		copying = entry->baseline_stream == stream_id;
		done = pg_atomic_read_u64(&entry->baseline_done);
		total = pg_atomic_read_u64(&entry->baseline_total);
		LWLockRelease(scdc_shared->lock);
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("baseline of table \"%s\" is not complete", target->name),
			 copying ? errdetail("About " UINT64_FORMAT " of " UINT64_FORMAT " rows have been copied.", done, Max(total, done)) :
			 error ? errdetail("%s", error) :
			 errdetail("Copying has not begun."),
			 target->stream->state == SCDC_STATE_LIVE ? errhint("Try again later, or wait for it with stream_sync.") : 0));
}

/*
 * Waits until capture has all that was committed before now.  If it is late,
 * the caller is told and gets what is there.
 */
static void
wait_for_capture(const ScdcTarget *target)
{
	XLogRecPtr	position = scdc_wal_target();
	char	   *reason = NULL;

	switch (scdc_wait_captured(position, scdc_read_timeout, &reason))
	{
		case SCDC_WAIT_DONE:
			break;
		case SCDC_WAIT_STALLED:
			if (target->stream->state == SCDC_STATE_LIVE)
				stalled(target, reason);
			/* a dropped table's log may well be complete */
			ereport(WARNING,
					(errmsg("changes of table \"%s\" may be missing", target->name),
					 errdetail("%s", reason)));
			break;
		case SCDC_WAIT_TIMEOUT:
			if (scdc_read_timeout > 0)
			{
				XLogRecPtr	captured = scdc_captured_lsn();
				char	   *no_worker = scdc_launch_error();

				if (no_worker)
					ereport(WARNING,
							(errmsg("changes of table \"%s\" may be missing", target->name),
							 errdetail("%s", no_worker)));
				else if (XLogRecPtrIsInvalid(captured))
					ereport(WARNING,
							(errmsg("changes of table \"%s\" may be missing", target->name),
							 errdetail("Capture has not begun since the server was started.")));
				else
					ereport(WARNING,
							(errmsg("changes of table \"%s\" may be missing", target->name),
							 errdetail("Capture is behind the start of the statement by " UINT64_FORMAT " bytes of WAL.",
									   position > captured ? position - captured : 0)));
			}
			break;
	}
}

/* Waits until the baseline is complete, the deadline has come, or the stream has ended. */
static void
wait_for_baseline(const ScdcTarget *target, int64 deadline)
{
	ScdcCaptureEntry *entry = scdc_entry_find(MyDatabaseId);

	if (entry)
		ConditionVariablePrepareToSleep(&entry->cv);
	for (;;)
	{
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
		ScdcStream *now = scdc_stream_by_id(target->stream->stream_id, snapshot);
		bool		ready = now == NULL || now->state != SCDC_STATE_LIVE || scdc_baseline_is_complete(now, snapshot);
		long		left;

		UnregisterSnapshot(snapshot);
		if (ready)
			break;
		if (entry)
			check_worker(target, entry);
		left = deadline - scdc_clock_ms();
		if (left <= 0)
			break;
		left = Min(left, BASELINE_POLL_INTERVAL);
		if (entry)
			ConditionVariableTimedSleep(&entry->cv, left, PG_WAIT_EXTENSION);
		else
		{
			CHECK_FOR_INTERRUPTS();
			pg_usleep(left * 1000L);
		}
	}
	if (entry)
		ConditionVariableCancelSleep();
}

/*
 * The stream again, under the snapshot that will be read.  It may have been
 * dropped, untracked or given up while we waited.
 */
static bool
refresh_stream(ScdcTarget *target, Snapshot snapshot)
{
	ScdcStream *stream = scdc_stream_by_id(target->stream->stream_id, snapshot);

	if (stream == NULL || stream->state == SCDC_STATE_UNTRACKED)
		return false;
	target->stream = stream;
	return true;
}

static ScdcTarget *
resolve(const char *name, Oid relid, Snapshot snapshot)
{
	return name ? scdc_resolve_name(name, snapshot) : scdc_resolve_relid(relid, snapshot);
}

static void
check_not_own_tracking(const ScdcTarget *target)
{
	TransactionId xid = XidFromFullTransactionId(target->stream->tracked_xid);

	if (target->stream->state == SCDC_STATE_LIVE && TransactionIdIsCurrentTransactionId(xid))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("table \"%s\" was tracked by the current transaction", target->name),
				 errdetail("Its changes can be captured only when the transaction has committed."),
				 errhint("COMMIT first.")));
}

/* Waits and sets up a new snapshot for the statement. */
static Snapshot
wait_and_take_snapshot(ScdcTarget *target)
{
	int64		deadline = scdc_clock_ms() + scdc_read_timeout;
	bool		live = target->stream->state == SCDC_STATE_LIVE;
	bool		wait = live;
	Snapshot	snapshot;

	/* what was committed before the drop may not be captured yet; in a copy of the database it never will be */
	if (target->stream->state == SCDC_STATE_DROPPED && target->stream->last_version < 0)
		wait = strcmp(target->stream->home, scdc_home()) == 0;
	if (wait)
		wait_for_capture(target);
	if (live && target->stream->baseline)
		wait_for_baseline(target, deadline);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	remember(snapshot, wait);
	return snapshot;
}

void
scdc_read_begin(ScdcRead *read, const char *name, Oid relid)
{
	ScdcTarget *target;
	Snapshot	snapshot;

	scdc_require_preload();
	read->by_identity = read->as_recorded = false;
	read->seen_by = NULL;

	if (IsolationUsesXactSnapshot() || RecoveryInProgress())
	{
		snapshot = RegisterSnapshot(GetActiveSnapshot());
		target = resolve(name, relid, snapshot);
		check_not_own_tracking(target);
	}
	else
	{
		bool		reuse = false;

		snapshot = RegisterSnapshot(statement_is_remembered() ? &remembered.snapshot : GetLatestSnapshot());
		target = resolve(name, relid, snapshot);
		check_not_own_tracking(target);

		if (statement_is_remembered())
			reuse = scdc_stream_given_up(target->stream) ||
				(remembered.waited && scdc_baseline_is_complete(target->stream, snapshot));
		if (!reuse)
		{
			UnregisterSnapshot(snapshot);
			snapshot = wait_and_take_snapshot(target);
			if (!refresh_stream(target, snapshot))
				scdc_not_tracked(target->relid, target->name, snapshot);
		}
	}

	if (!scdc_baseline_is_complete(target->stream, snapshot))
		baseline_incomplete(target);
	read->target = target;
	read->snapshot = snapshot;
}

void
scdc_read_end(ScdcRead *read)
{
	UnregisterSnapshot(read->snapshot);
	read->snapshot = NULL;
}
