/*-------------------------------------------------------------------------
 *
 * job.c
 *	  The worker of one query: batch after batch until it is told to stop,
 *	  its trigger or its source has ended, or it has failed too often.
 *
 * It is connected as the query's owner, and runs everything as that role.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <malloc.h>

#include "access/xact.h"
#include "commands/async.h"
#include "commands/prepare.h"
#include "commands/sequence.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "capture/wait.h"
#include "clock.h"
#include "debug.h"
#include "guc.h"
#include "jobs/batch.h"
#include "jobs/failure.h"
#include "jobs/launch.h"
#include "jobs/progress.h"
#include "jobs/slots.h"
#include "jobs/job.h"
#include "shmem.h"
#include "worker.h"

PGDLLEXPORT void scdc_job_main(Datum arg);

#define BACKOFF_MIN		100		/* ms */
#define BACKOFF_MAX		60000
#define POLL_INTERVAL	1000	/* ms, where nobody tells that there is more */
#define POLL_MAX		10000	/* ms, where any commit tells that there may be more */
#define LOOK_MIN		5		/* ms between two looks after commits that brought nothing, doubled each time */
#define LOOK_MAX		80
#define IDLE_INTERVAL	10000	/* ms between two events that say so */
#define CAPTURE_WAIT	30000	/* ms */
#define END_MARGIN		USECS_PER_SEC	/* by which the clock has to have passed the end of a query's range */
#define END_WAIT		1000	/* ms for which capture is waited for there, at a time */
#define CLOCK_INTERVAL	3600000 /* ms after which the clock is looked at again: it may have been set */
#define KEPT_PIECE		(32 * 1024 * 1024) /* bytes; larger pieces of memory are handed back at once */

static ScdcJobSlot *slot = NULL;
static ScdcJob job;
static bool leaving = false;	/* the end was meant */
static int	attempts = 0;		/* workers of this run that were begun in vain, and this one */
static int	failures = 0;		/* in a row; no local variable, which an error could set back to what it was */
static bool by_commit = false;	/* counted among those to be woken at any commit */
static bool local = false;		/* is the source a table that only commits here can change? */

/* ---------------------------------------------------------------------
 * what others see
 * ---------------------------------------------------------------------
 */

static void
set_activity(ScdcJobActivity activity, const char *what)
{
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	slot->activity = activity;
	LWLockRelease(scdc_shared->lock);
	scdc_worker_activity(activity != SCDC_JOB_WAITING && activity != SCDC_JOB_BACKING_OFF, what);
}

static void
set_restoring(void)
{
	set_activity(SCDC_JOB_RESTORING, "restoring state");
}

/* An event for listeners, in a transaction of its own. */
static void
notify(const char *event, int64 batch_id)
{
	StartTransactionCommand();
	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	scdc_progress_notify(event, job.query, &job.run_id, batch_id);
	CommitTransactionCommand();
}

static void
at_exit(int code, Datum arg)
{
	if (job.state.store)
		scdc_state_close(&job.state);
	if (slot == NULL)
		return;
	if (by_commit)
		pg_atomic_fetch_sub_u32(&scdc_job_slots->by_commit, 1);
	scdc_slot_free(slot);
	if (!leaving)
		scdc_starter_look(MyDatabaseId, 1000);
	slot = NULL;
}

/* Changes the row of our run, unless it is not ours any more.  e: the error that it ended with, or NULL. */
static void
change_run(char status, int attempts, const ErrorData *e)
{
	Snapshot	snapshot;
	ScdcRun    *run;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	run = scdc_run_read(&job.query->query_id, snapshot);
	if (run && run->status == SCDC_RUN_RUNNING && scdc_uuid_equal(&run->run_id, &job.run_id))
	{
		run->status = status;
		run->attempts = attempts;
		run->ended_at = status == SCDC_RUN_RUNNING ? 0 : GetCurrentTimestamp();
		scdc_run_take_error(run, e);
		scdc_run_replace(run);
	}
	UnregisterSnapshot(snapshot);
	PopActiveSnapshot();
	CommitTransactionCommand();
}

/* Records how the run ended. */
static void
end_run(char status, const ErrorData *e)
{
	change_run(status, 0, e);
	notify("QueryTerminated", -1);
}

/*
 * A worker that dies is begun again, by the launcher or after the server's
 * crash that it has caused.  It notes that it begins, and that it has come to
 * something, so that this does not go on for ever.
 */
static void
note_beginning(void)
{
	attempts++;
	change_run(SCDC_RUN_RUNNING, attempts, NULL);
}

static void
note_success(void)
{
	if (attempts > 0)
		change_run(SCDC_RUN_RUNNING, 0, NULL);
	attempts = 0;
}

static void
leave(char status, const ErrorData *e)
{
	end_run(status, e);
	leaving = true;
	proc_exit(0);
}

/* ---------------------------------------------------------------------
 * sleeping
 * ---------------------------------------------------------------------
 */

static bool
asked_to_stop(void)
{
	return pg_atomic_read_u32(&slot->stop) != SCDC_STOP_NONE;
}

/* Serves interrupts; the server's own way to end a worker is an end that was not meant. */
static void
check(void)
{
	(void) scdc_worker_check();
	if (asked_to_stop())
		leave(SCDC_RUN_STOPPED, NULL);
}

/* Sleeps until woken, or so long (ms; -1: no limit).  Was it woken? */
static bool
nap(long timeout)
{
	int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (timeout >= 0 ? WL_TIMEOUT : 0);
	bool		woken = (WaitLatch(MyLatch, events, timeout, PG_WAIT_EXTENSION) & WL_LATCH_SET) != 0;

	ResetLatch(MyLatch);
	check();
	return woken;
}

/* when: by scdc_clock_ms */
static void
nap_until(int64 when)
{
	for (;;)
	{
		long		left = when - scdc_clock_ms();

		if (left <= 0)
			return;
		(void) nap(left);
	}
}

/* ---------------------------------------------------------------------
 * batches
 * ---------------------------------------------------------------------
 */

/* What the owner's SQL has left in the session must not reach the next batch: what DISCARD ALL does. */
static void
reset_session(void)
{
	StartTransactionCommand();
	PortalHashTableDeleteAll();
	SetPGVariable("session_authorization", NIL, false);
	ResetAllOptions();
	DropAllPreparedStatements();
	Async_UnlistenAll();
	LockReleaseAll(USER_LOCKMETHOD, true);
	ResetTempTableNamespace();
	ResetSequenceCaches();
	CommitTransactionCommand();
}

static void
run_batch(void)
{
	char		what[64];
	int64		number;

	scdc_batch_restore(&job, set_restoring);	/* if the plan has given the query more columns */
	StartTransactionCommand();
	number = scdc_batch_last(&job.query->query_id, GetLatestSnapshot())->batch_id;
	CommitTransactionCommand();
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	slot->batch_id = number;
	slot->has_data = true;
	LWLockRelease(scdc_shared->lock);
	snprintf(what, sizeof(what), "batch " INT64_FORMAT, number);
	set_activity(SCDC_JOB_BATCH, what);

	scdc_batch_run(&job);
	note_success();
	reset_session();
	notify("QueryProgress", number);
	ConditionVariableBroadcast(&slot->cv);
	pgstat_report_stat(false);
}

/* Everything committed before now is to be in the log, as far as that is possible. */
static void
wait_for_capture(void)
{
	char	   *reason;

	if (job.query->stream_id == 0)
		return;
	StartTransactionCommand();
	(void) scdc_wait_captured(scdc_wal_target(), CAPTURE_WAIT, &reason);
	CommitTransactionCommand();
}

static void
wait_for_baseline(void)
{
	set_activity(SCDC_JOB_WAITING, "waiting for the baseline");
	(void) nap(100);
}

/*
 * ms until a range that ends with a time is over for sure; -1: it does not, or
 * nothing has to be waited for.
 */
static long
until_end(void)
{
	if (job.complete || job.query->stream_id == 0 || job.query->end_timestamp == DT_NOEND)
		return -1;
	return TimestampDifferenceMilliseconds(GetCurrentTimestamp(), job.query->end_timestamp + END_MARGIN);
}

/* Where WAL ends when all have written their commits who have taken the time of them by now. */
static XLogRecPtr
wal_of_past_commits(void)
{
	VirtualTransactionId *committing;
	int			n;

	/* between the two a session is as checkpoints must not meet it */
	committing = GetVirtualXIDsDelayingChkpt(&n, DELAY_CHKPT_START);
	while (n > 0 && HaveVirtualXIDsDelayingChkpt(committing, n, DELAY_CHKPT_START))
		(void) nap(LOOK_MIN);
	pfree(committing);
	return scdc_wal_target();
}

/*
 * A version's timestamp is the time of its commit, or later.  So when the
 * clock has passed the last one of the query's range, and all that was
 * committed by then is captured, nothing can come into the range any more.
 * (COMMIT PREPARED takes the time a moment before it is seen to commit; hence
 * the margin.)  What a subscription applies later on, under the time that it
 * had elsewhere, is not waited for.
 *
 * Called when there is nothing to do; should it be looked once more, at once?
 */
static bool
look_at_end(void)
{
	static XLogRecPtr target = InvalidXLogRecPtr;
	ScdcWaitResult result;
	char	   *reason;

	if (until_end() != 0)
		return false;
	if (XLogRecPtrIsInvalid(target))
		target = wal_of_past_commits();
	StartTransactionCommand();
	result = scdc_wait_captured(target, END_WAIT, &reason);
	CommitTransactionCommand();
	job.complete = result == SCDC_WAIT_DONE;
	return result != SCDC_WAIT_STALLED; /* if it is, all are woken when it goes on */
}

/* Trigger "once": one batch, whatever its size, or the one that was not finished. */
static void
run_once(void)
{
	ScdcPlan	plan;

	wait_for_capture();
	scdc_batch_restore(&job, set_restoring);
	while ((plan = scdc_batch_plan(&job, false, false)) == SCDC_PLAN_NOT_YET)
		wait_for_baseline();
	if (plan == SCDC_PLAN_BATCH)
		run_batch();
	leave(SCDC_RUN_FINISHED, NULL);
}

static void
run_available(void)
{
	scdc_batch_restore(&job, set_restoring);
	if (!job.upto_fixed)
	{
		wait_for_capture();
		while (!scdc_batch_fix_end(&job))
			wait_for_baseline();
	}
	while (scdc_batch_plan(&job, true, true) == SCDC_PLAN_BATCH)
	{
		run_batch();
		failures = 0;
		check();
		scdc_batch_restore(&job, set_restoring);
	}
	leave(SCDC_RUN_FINISHED, NULL);
}

/* The next time at which an interval trigger (ms) fires: a multiple of the interval after the start. */
static int64
next_trigger(int64 start, int64 interval)
{
	return start + ((scdc_clock_ms() - start) / interval + 1) * interval;
}

/*
 * Sleeps when there was nothing to do.  Over a tracked table the capture
 * worker wakes us.  Over a registered change log any commit does, mostly for
 * nothing, so looks keep a distance that grows; and as a commit may tell
 * before its rows can be seen, and other servers tell nothing, there is a look
 * from time to time all the same.
 */
static void
nap_idle(bool expect_event, bool had_batch, uint64 asked)
{
	static long poll = POLL_INTERVAL;
	static long distance = LOOK_MIN;
	long		end = until_end();
	long		timeout = expect_event ? IDLE_INTERVAL : -1;
	int64		until;

	if (end > 0)
		timeout = Min(end, expect_event ? IDLE_INTERVAL : CLOCK_INTERVAL);
	if (job.query->stream_id != 0)
	{
		(void) nap(timeout);
		return;
	}
	if (had_batch)
		distance = LOOK_MIN;
	until = scdc_clock_ms() + distance;
	if (!nap(timeout < 0 ? poll : Min(timeout, poll)))
	{
		poll = local ? Min(2 * poll, POLL_MAX) : POLL_INTERVAL;
		distance = LOOK_MIN;
		return;
	}
	poll = POLL_INTERVAL;
	distance = Min(2 * distance, LOOK_MAX);
	while (pg_atomic_read_u64(&slot->asked) == asked)
	{
		long		left = until - scdc_clock_ms();

		if (left <= 0)
			break;
		(void) nap(left);
	}
}

/*
 * Memory that one batch has given back is not handed to the system and fetched
 * anew by the next one, but when there is nothing to do.
 */
static void
keep_freed_memory(void)
{
#ifdef __GLIBC__
	(void) mallopt(M_TRIM_THRESHOLD, INT_MAX);
	(void) mallopt(M_MMAP_THRESHOLD, KEPT_PIECE);
#endif
}

static void
return_freed_memory(void)
{
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}

static void
run_by_interval(int64 start)
{
	static int64 idle_since = -1;	/* 0: that was said */
	bool		had_batch = false;

	if (idle_since < 0)
		idle_since = start;
	for (;;)
	{
		int64		interval = job.query->trigger_interval / 1000;
		/* from before the batch: one that takes longer is followed at once */
		int64		next = next_trigger(start, Max(interval, 1));
		uint64		asked = pg_atomic_read_u64(&slot->asked);
		ScdcPlan	plan;

		check();
		scdc_batch_restore(&job, set_restoring);
		plan = scdc_batch_plan(&job, true, true);
		if (plan == SCDC_PLAN_ENDED)
			leave(SCDC_RUN_FINISHED, NULL);
		if (plan == SCDC_PLAN_BATCH)
		{
			run_batch();
			failures = 0;
			idle_since = scdc_clock_ms();
		}
		else
		{
			if (had_batch)
				return_freed_memory();
			LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
			slot->has_data = false;
			LWLockRelease(scdc_shared->lock);
			set_activity(SCDC_JOB_WAITING, plan == SCDC_PLAN_NOT_YET ? "waiting for the baseline" : "waiting for changes");
			note_success();
			failures = 0;		/* a batch that has failed would be planned again */
			if (plan != SCDC_PLAN_NOT_YET)
				pg_atomic_write_u64(&slot->answered, asked);
			ConditionVariableBroadcast(&slot->cv);
			if (idle_since != 0 && scdc_clock_ms() - idle_since >= IDLE_INTERVAL)
			{
				notify("QueryIdle", -1);
				idle_since = 0;
			}
			if (look_at_end())
				continue;
		}
		if (job.query->trigger_interval > 0)
		{
			if (plan == SCDC_PLAN_BATCH && scdc_clock_ms() < next)
				set_activity(SCDC_JOB_WAITING, "waiting for the next trigger");
			if (plan == SCDC_PLAN_BATCH && interval >= 1000)
				return_freed_memory();
			nap_until(next);
		}
		else if (plan != SCDC_PLAN_BATCH && pg_atomic_read_u64(&slot->asked) == asked)
			nap_idle(idle_since != 0, had_batch, asked);
		had_batch = plan == SCDC_PLAN_BATCH;
	}
}

/* ---------------------------------------------------------------------
 * errors
 * ---------------------------------------------------------------------
 */

/* ms */
static long
backoff(int times)
{
	return Min((long) BACKOFF_MIN << Min(times - 1, 20), BACKOFF_MAX);
}

/* Copies what there is room for, up to a whole character. */
static void
cut(char *to, const char *from, Size size)
{
	strlcpy(to, from ? from : "", size);
	if (from)
		to[pg_mbcliplen(from, strlen(from), size - 1)] = '\0';
}

/* Would it be the same each time?  Only a damaged state is made anew; a log stays damaged, or as it must not be. */
static bool
is_lasting(const ErrorData *e)
{
	return scdc_was_stop() || (e->sqlerrcode == ERRCODE_DATA_CORRUPTED && !job.state_broken);
}

/*
 * After an error: gives up, or waits for a while.  A batch that failed leaves
 * nothing behind but what the next try writes again; the state is looked at
 * anew.
 */
static void
recover(ErrorData *e)
{
	if (scdc_was_leave())
	{
		leaving = true;
		proc_exit(0);
	}
	job.state_ready = false;
	scdc_sink_forget_check(&job.check); /* what it did to the sink may be undone */
	if (job.state.store)
	{
		job.state_broken |= scdc_store_is_broken(job.state.store);
		scdc_store_end_scans(job.state.store);
		scdc_store_discard(job.state.store);
	}
	reset_session();

	if (asked_to_stop())
		leave(SCDC_RUN_STOPPED, NULL);
	failures++;
	if (is_lasting(e) || failures > scdc_max_restarts)
		leave(SCDC_RUN_FAILED, e);

	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	cut(slot->error.message, e->message, sizeof(slot->error.message));
	cut(slot->error.detail, e->detail, sizeof(slot->error.detail));
	cut(slot->error.hint, e->hint, sizeof(slot->error.hint));
	LWLockRelease(scdc_shared->lock);
	set_activity(SCDC_JOB_BACKING_OFF, "waiting to try again after an error");
	nap_until(scdc_clock_ms() + backoff(failures));
}

static void
job_loop(void)
{
	MemoryContext error_cxt = AllocSetContextCreate(TopMemoryContext, "streamcdc job error", ALLOCSET_SMALL_SIZES);
	int64		start = scdc_clock_ms();

	for (;;)
	{
		ErrorData  *e = NULL;

		PG_TRY();
		{
			MemoryContextSwitchTo(job.context);
			check();
			switch (job.query->trigger)
			{
				case SCDC_TRIGGER_ONCE:
					run_once();
					break;
				case SCDC_TRIGGER_AVAILABLE_NOW:
					run_available();
					break;
				case SCDC_TRIGGER_INTERVAL:
					run_by_interval(start);
					break;
			}
		}
		PG_CATCH();
		{
			HOLD_INTERRUPTS();
			MemoryContextSwitchTo(error_cxt);
			e = CopyErrorData();
			EmitErrorReport();
			AbortOutOfAnyTransaction();
			FlushErrorState();
			RESUME_INTERRUPTS();
		}
		PG_END_TRY();
		if (e)
			recover(e);
		MemoryContextReset(error_cxt);
	}
}

/* ---------------------------------------------------------------------
 * start
 * ---------------------------------------------------------------------
 */

/*
 * Waits for the end of stream_start's transaction; then the query is there, or
 * it never will be, of which its session tells us.  False if it is known to
 * have been rolled back.  Who asks us to stop before that waits, too: the run
 * that they want to end is about to begin.
 */
static bool
wait_for_starter(void)
{
	while (TransactionIdIsValid(slot->starter) && TransactionIdIsInProgress(slot->starter))
	{
		if (pg_atomic_read_u32(&slot->stop) == SCDC_STOP_TAKEN_BACK)
			return false;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH, -1, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		(void) scdc_worker_check();
	}
	return true;
}

/* The query as it was started; false if it is not there, or not to be run by us. */
static bool
load_query(const ScdcJobTask *task)
{
	MemoryContext old;
	Snapshot	snapshot;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	old = MemoryContextSwitchTo(job.context);
	job.query = scdc_query_by_id(&task->query_id, snapshot);
	MemoryContextSwitchTo(old);
	if (job.query)
	{
		ScdcRun    *run = scdc_run_read(&task->query_id, snapshot);

		if (run == NULL || run->status != SCDC_RUN_RUNNING || !scdc_uuid_equal(&run->run_id, &task->run_id))
			job.query = NULL;
		else
			attempts = run->attempts;
	}
	local = job.query && get_rel_relkind(job.query->source_relid) == RELKIND_RELATION &&
		!has_subclass(job.query->source_relid);
	UnregisterSnapshot(snapshot);
	PopActiveSnapshot();
	CommitTransactionCommand();
	return job.query != NULL;
}

void
scdc_job_main(Datum arg)
{
	ScdcJobTask task;
	ScdcJobSlot *mine;
	bool		ok;

	scdc_debug_point("job-begins");
	memcpy(&task, MyBgworkerEntry->bgw_extra, sizeof(task));
	mine = &scdc_job_slots->slots[task.slot];
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	/* a worker that comes late may find that another was started in its place */
	ok = mine->phase == SCDC_SLOT_LAUNCHED && mine->pid == 0 && mine->dboid == task.dboid &&
		memcmp(&mine->run_id, &task.run_id, sizeof(pg_uuid_t)) == 0;
	if (ok)
	{
		mine->pid = MyProcPid;
		mine->latch = MyLatch;
	}
	LWLockRelease(scdc_shared->lock);
	if (!ok)
		proc_exit(0);
	slot = mine;
	before_shmem_exit(at_exit, (Datum) 0);

	scdc_worker_start_as(task.dboid, task.owner);
	keep_freed_memory();
	job.context = AllocSetContextCreate(TopMemoryContext, "streamcdc job", ALLOCSET_DEFAULT_SIZES);
	job.run_id = task.run_id;
	if (!wait_for_starter() || !load_query(&task))
	{
		leaving = true;
		proc_exit(0);
	}
	SetConfigOption("application_name", job.query->name, PGC_USERSET, PGC_S_OVERRIDE);
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	slot->stream_id = job.query->stream_id;
	slot->phase = SCDC_SLOT_RUNNING;
	LWLockRelease(scdc_shared->lock);
	by_commit = slot->stream_id == 0;
	if (by_commit)
		pg_atomic_fetch_add_u32(&scdc_job_slots->by_commit, 1);
	if (attempts > scdc_max_restarts)
	{
		ErrorData	e = {
			.sqlerrcode = ERRCODE_SYSTEM_ERROR,
			.message = "the worker of the query has died too often without finishing a batch",
			.hint = "The server's log says what it has died of.",
		};

		leave(SCDC_RUN_FAILED, &e);
	}
	note_beginning();
	if (attempts > 1)
		nap_until(scdc_clock_ms() + backoff(attempts - 1));
	notify("QueryStarted", -1);
	job_loop();
}
