/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  What ordinary backends ask of the capture worker: to run, and to have
 *	  come as far as they need.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/snapmgr.h"

#include "capture/capture.h"
#include "capture/wait.h"
#include "clock.h"
#include "log/catalog.h"
#include "log/rows.h"
#include "shmem.h"
#include "worker.h"

/*
 * GetXLogInsertRecPtr() just after a page switch points behind the page's
 * header, where no record ends and nothing can be flushed to: then the end of
 * the page before is meant.
 */
XLogRecPtr
scdc_wal_target(void)
{
	XLogRecPtr	lsn = GetXLogInsertRecPtr();

	if (XLogSegmentOffset(lsn, wal_segment_size) == SizeOfXLogLongPHD)
		lsn -= SizeOfXLogLongPHD;
	else if (lsn % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		lsn -= SizeOfXLogShortPHD;
	return lsn;
}

XLogRecPtr
scdc_captured_lsn(void)
{
	ScdcCaptureEntry *entry = scdc_entry_find(MyDatabaseId);

	return entry ? pg_atomic_read_u64(&entry->captured) : InvalidXLogRecPtr;
}

char *
scdc_launch_error(void)
{
	ScdcCaptureEntry *entry = scdc_entry_find(MyDatabaseId);
	char		error[sizeof(entry->launch_error)] = "";

	if (entry)
	{
		LWLockAcquire(scdc_shared->lock, LW_SHARED);
		if (entry->pid == 0)
			strlcpy(error, entry->launch_error, sizeof(error));
		LWLockRelease(scdc_shared->lock);
	}
	return error[0] ? pstrdup(error) : NULL;
}

/* Copies the failure out of shared memory; false if there is none. */
static bool
failure_of(ScdcCaptureEntry *entry, int *sqlstate, char **error, char **hint)
{
	char		e[sizeof(entry->error)],
				h[sizeof(entry->hint)];
	bool		failed;

	LWLockAcquire(scdc_shared->lock, LW_SHARED);
	failed = entry->state == SCDC_CAPTURE_FAILED;
	*sqlstate = entry->sqlstate;
	memcpy(e, entry->error, sizeof(e));
	memcpy(h, entry->hint, sizeof(h));
	LWLockRelease(scdc_shared->lock);
	if (failed)
	{
		*error = pstrdup(e);
		*hint = pstrdup(h);
	}
	return failed;
}

/* Has capture ended because nothing is tracked any more?  Then all there was is in the log. */
static bool
capture_is_over(ScdcCaptureEntry *entry)
{
	Snapshot	snapshot;
	bool		result;

	if (entry->pid != 0)
		return false;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	result = scdc_registry_is_empty(snapshot) && scdc_slot_read(snapshot) == NULL;
	UnregisterSnapshot(snapshot);
	return result;
}

ScdcWaitResult
scdc_wait_captured(XLogRecPtr target, long timeout, char **reason)
{
	ScdcCaptureEntry *entry = scdc_entry_find(MyDatabaseId);
	int64		give_up = scdc_clock_ms() + timeout;
	ScdcWaitResult result = SCDC_WAIT_TIMEOUT;
	int			sqlstate;
	char	   *hint;

	*reason = NULL;
	if (entry == NULL)
		entry = scdc_entry_get(MyDatabaseId);
	if (entry == NULL)
		return SCDC_WAIT_TIMEOUT;
	if (pg_atomic_read_u64(&entry->captured) >= target)
		return SCDC_WAIT_DONE;
	if (failure_of(entry, &sqlstate, reason, &hint))
		return SCDC_WAIT_STALLED;
	if (capture_is_over(entry))
		return SCDC_WAIT_DONE;
	if (timeout == 0)
		return SCDC_WAIT_TIMEOUT;

	/* capture reads flushed WAL only; our own asynchronous commits may not be */
	XLogFlush(target);

	ConditionVariablePrepareToSleep(&entry->cv);
	for (;;)
	{
		long		left = 1000;

		scdc_wake_capture(entry, target, true);
		if (pg_atomic_read_u64(&entry->captured) >= target)
		{
			result = SCDC_WAIT_DONE;
			break;
		}
		if (failure_of(entry, &sqlstate, reason, &hint))
		{
			result = SCDC_WAIT_STALLED;
			break;
		}
		if (capture_is_over(entry))
		{
			result = SCDC_WAIT_DONE;
			break;
		}
		if (timeout > 0)
		{
			left = give_up - scdc_clock_ms();
			if (left <= 0)
				break;
			left = Min(left, 1000);
		}
		(void) ConditionVariableTimedSleep(&entry->cv, left, PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
	return result;
}

void
scdc_capture_ensure(void)
{
	ScdcCaptureEntry *entry = scdc_entry_get(MyDatabaseId);
	Oid			registry = scdc_table_oid(SCDC_REGISTRY);
	bool		launched = false;
	bool		no_slot = entry == NULL;

	if (!no_slot)
	{
		ConditionVariablePrepareToSleep(&entry->cv);
		for (;;)
		{
			ScdcCaptureState state;
			int			pid;
			int			sqlstate;
			char	   *error,
					   *hint;

			LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
			state = entry->state;
			pid = entry->pid;
			entry->wanted_registry = registry;
			LWLockRelease(scdc_shared->lock);

			if (pid != 0 && (state == SCDC_CAPTURE_RESERVED || state == SCDC_CAPTURE_RUNNING))
			{
				if (entry->registry == registry)
					break;
				/* it serves an extension that was dropped, and is about to notice */
				scdc_wake_capture(entry, scdc_wal_target(), true);
			}
			if (launched && pid == 0 && failure_of(entry, &sqlstate, &error, &hint))
			{
				ConditionVariableCancelSleep();
				ereport(ERROR,
						(errcode(sqlstate),
						 errmsg("could not start capture: %s", error),
						 hint[0] ? errhint("%s", hint) : 0));
			}
			if (pid == 0 && (state == SCDC_CAPTURE_NONE || state == SCDC_CAPTURE_FAILED))
			{
				/* not while one is on its way out: launch looks at the pid */
				if (scdc_capture_launch(MyDatabaseId, true, &no_slot))
					launched = true;
				if (no_slot)
					break;
			}
			(void) ConditionVariableTimedSleep(&entry->cv, 100, PG_WAIT_EXTENSION);
		}
		ConditionVariableCancelSleep();
	}
	if (no_slot)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not start capture: no background worker slot is free"),
				 errhint("Increase \"max_worker_processes\" and restart the server.")));
}
