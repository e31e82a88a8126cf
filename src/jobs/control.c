/*-------------------------------------------------------------------------
 *
 * control.c
 *	  What a session does with queries (see control.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/condition_variable.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "capture/wait.h"
#include "clock.h"
#include "guc.h"
#include "jobs/control.h"
#include "jobs/launch.h"
#include "jobs/progress.h"
#include "jobs/sink.h"
#include "jobs/slots.h"
#include "jobs/source.h"
#include "jobs/state.h"
#include "label.h"
#include "log/rows.h"
#include "owner.h"
#include "shmem.h"

#define POLL_INTERVAL	100		/* ms */
#define LEAVING_TIMEOUT	10000	/* ms, for a worker that has nothing to do any more */
#define DEFAULT_STOP_TIMEOUT	30000	/* ms, where the caller sets no limit */

/* ---------------------------------------------------------------------
 * one at a time
 * ---------------------------------------------------------------------
 */

/* Has the transaction changed what queries there are, or should be running? */
static bool changed = false;

static void
at_transaction_end(XactEvent event, void *arg)
{
	/* nobody could change a query, nor would any be begun again, until somebody finishes it */
	if (event == XACT_EVENT_PRE_PREPARE && changed)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has started, stopped or dropped a streaming query")));
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
		changed = false;
}

static void
note_change(void)
{
	static bool registered = false;

	if (!registered)
		RegisterXactCallback(at_transaction_end, NULL);
	registered = changed = true;
}

/* Until the end of the transaction nobody else changes them. */
static void
lock_queries(void)
{
	note_change();
	relation_close(scdc_table_open(SCDC_QUERIES, ShareRowExclusiveLock), NoLock);
}

/* ---------------------------------------------------------------------
 * finding
 * ---------------------------------------------------------------------
 */

bool
scdc_control_may(const ScdcQuery *q)
{
	return has_privs_of_role(GetUserId(), q->owner);
}

ScdcQuery *
scdc_control_find(const char *name, bool check_owner, Snapshot snapshot)
{
	ScdcQuery  *q = scdc_query_by_name(name, snapshot);

	if (q == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("query \"%s\" does not exist", name)));
	if (check_owner && !scdc_control_may(q))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of query \"%s\"", name)));
	return q;
}

static ScdcQuery *
find_now(const char *name, bool check_owner)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScdcQuery  *q = scdc_control_find(name, check_owner, snapshot);

	UnregisterSnapshot(snapshot);
	return q;
}

static ScdcRun *
run_now(const ScdcQuery *q)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScdcRun    *run = scdc_run_read(&q->query_id, snapshot);

	UnregisterSnapshot(snapshot);
	return run;
}

/* Does the query do nothing before this transaction has ended? */
static bool
waits_for_us(const ScdcJobSlot *slot)
{
	return slot && (slot->pid == MyProcPid ||
					(TransactionIdIsValid(slot->starter) && TransactionIdIsCurrentTransactionId(slot->starter)));
}

/* What is waited for would only happen after this transaction. */
static void
check_not_own_start(const ScdcQuery *q)
{
	ScdcJobSlot *slot = scdc_slot_find(MyDatabaseId, &q->query_id);

	if (!waits_for_us(slot))
		return;
	if (slot->pid == MyProcPid)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("query \"%s\" cannot wait for itself", q->name)));
	ereport(ERROR,
			(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
			 errmsg("query \"%s\" was started by the current transaction", q->name),
			 errdetail("It runs only when the transaction has committed."),
			 errhint("COMMIT first.")));
}

/* ---------------------------------------------------------------------
 * waiting
 * ---------------------------------------------------------------------
 */

/* No deadline. */
#define NEVER	PG_INT64_MAX

/* A moment for the query to get on; false when the deadline has come. */
static bool
wait_a_moment(ScdcJobSlot *slot, int64 deadline)
{
	long		left = POLL_INTERVAL;

	if (deadline != NEVER)
	{
		left = deadline - scdc_clock_ms();
		if (left <= 0)
			return false;
		left = Min(left, POLL_INTERVAL);
	}
	CHECK_FOR_INTERRUPTS();
	if (slot)
		(void) ConditionVariableTimedSleep(&slot->cv, left, PG_WAIT_EXTENSION);
	else
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, left, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
	return true;
}

static int64
deadline_after(long timeout, long no_limit)
{
	return timeout == no_limit ? NEVER : scdc_clock_ms() + timeout;
}

/* Marks the run as stopped where no worker did; with streamcdc.queries locked, so that none is started now. */
static void
mark_stopped(const ScdcQuery *q)
{
	ScdcRun    *run = run_now(q);

	if (run == NULL || run->status != SCDC_RUN_RUNNING)
		return;
	run->status = SCDC_RUN_STOPPED;
	run->ended_at = GetCurrentTimestamp();
	scdc_run_replace(run);
	CommandCounterIncrement();
	scdc_progress_notify("QueryTerminated", q, &run->run_id, -1);
}

/*
 * cancel_after: ms after which the batch under way is rolled back.  It may be
 * waiting for a lock of the very transaction that stops it.
 */
static void
stop_query(const ScdcQuery *q, long timeout, long cancel_after)
{
	int64		start = scdc_clock_ms();
	int64		deadline = deadline_after(timeout, 0);
	int64		abandoned_at = 0;
	ScdcRun    *run;
	bool		locked = false;

	check_not_own_start(q);
	for (;;)
	{
		int64		now = scdc_clock_ms();
		bool		abandon = now - start >= cancel_after && (abandoned_at == 0 || now - abandoned_at >= 1000);

		if (scdc_slot_ask_to_stop(MyDatabaseId, &q->query_id, abandon))
		{
			if (abandon)
				abandoned_at = now;
			/* what was rolled back is done again when the query is resumed */
			if (wait_a_moment(scdc_slot_find(MyDatabaseId, &q->query_id), deadline))
				continue;
			ConditionVariableCancelSleep();
			ereport(ERROR,
					(errcode(ERRCODE_QUERY_CANCELED),
					 errmsg("query \"%s\" did not stop in time", q->name),
					 errdetail("It has been asked to, and will."),
					 errhint("Give a longer timeout, or wait with stream_await_termination.")));
		}
		ConditionVariableCancelSleep();
		run = run_now(q);
		if (locked || run == NULL || run->status != SCDC_RUN_RUNNING)
			break;
		/* it has left no word; look again when nobody can start it any more */
		lock_queries();
		locked = true;
	}
	mark_stopped(q);
}

void
scdc_control_stop(const char *name, long timeout)
{
	note_change();
	stop_query(find_now(name, true), timeout, timeout > 0 ? timeout / 2 : DEFAULT_STOP_TIMEOUT);
}

/* ---------------------------------------------------------------------
 * starting
 * ---------------------------------------------------------------------
 */

static void
check_output_mode(const ScdcQuery *q, bool post_processed)
{
	if (strcmp(q->output_mode, "append") == 0 || (strcmp(q->output_mode, "update") == 0 && !post_processed))
		return;
	if (post_processed)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("output mode \"%s\" is not supported for Change Data Capture (CDC) streams with post-processing",
						q->output_mode),
				 errdetail("Error condition: STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION."),
				 errhint("Use output mode \"append\", or option deduplicationMode \"none\" without computeUpdates, which makes it a raw stream.")));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("output mode \"complete\" is not supported for Change Data Capture (CDC) streams: it needs an aggregation"),
			 errdetail("Error condition: STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION."),
			 errhint("Use output mode \"append\".")));
}

/* All that depends on source and options together. */
static void
check_query(ScdcQuery *q, bool create)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScdcSource *source = scdc_source_open(q, snapshot);
	ScdcFlowOptions flow = scdc_source_flow(source);

	check_output_mode(q, flow.guard);
	if (flow.way == SCDC_FLOW_NET && q->provider != SCDC_STORE_ROCKSDB)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("net changes need a state store with several column families"),
				 errdetail("Error condition: UNSUPPORTED_FEATURE.STATE_STORE_MULTIPLE_COLUMN_FAMILIES."),
				 errhint("Use option stateStoreProvider \"rocksdb\".")));
	scdc_sink_check(q, scdc_source_work(source)->batch, create);
	scdc_source_close(source);
	UnregisterSnapshot(snapshot);
}

/* How the passes of two definitions differ, as a condition of Spark's; NULL: that is not the point. */
static const char *
state_condition(const ScdcQuery *before, const char *difference)
{
	if (strcmp(difference, "row_id") == 0)
		return "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE";
	if (strcmp(difference, "deduplicationMode") != 0 && strcmp(difference, "contract") != 0 && strcmp(difference, "computeUpdates") != 0 &&
		strcmp(difference, "emission") != 0)
		return NULL;
	return before->mode == SCDC_DEDUP_NONE ? "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY" :
		"STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA";
}

static void
check_same(const ScdcQuery *before, const ScdcQuery *now)
{
	const char *difference = scdc_definition_difference(before, now);
	const char *condition;

	if (difference == NULL)
		return;
	condition = state_condition(before, difference);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("query \"%s\" exists with another \"%s\"", now->name, difference),
			 condition ? errdetail("Error condition: %s.", condition) : 0,
			 errhint("SELECT stream_drop(%s); forgets the query and its progress.", quote_literal_cstr(now->name))));
}

static void
running_already(const ScdcQuery *q)
{
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("query \"%s\" is running already", q->name),
			 errdetail("Error condition: CONCURRENT_QUERY."),
			 errhint("Stop it with stream_stop, or set \"streamcdc.stop_active_run_on_restart\".")));
}

static void
no_worker(const ScdcQuery *q)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("no background worker is free for query \"%s\"", q->name),
			 errhint("Increase \"max_worker_processes\" and restart the server.")));
}

/* A new run of a query: its row, the mark, the worker. */
static pg_uuid_t
begin_run(const ScdcQuery *q, ScdcRun *before)
{
	ScdcRun		run;

	memset(&run, 0, sizeof(run));
	run.query_id = q->query_id;
	scdc_uuid_new(&run.run_id);
	run.status = SCDC_RUN_RUNNING;
	run.started_at = GetCurrentTimestamp();
	if (before)
	{
		run.tid = before->tid;
		scdc_run_replace(&run);
	}
	else
		scdc_run_insert(&run);
	if (!scdc_label_exists(SCDC_MARK_JOBS))
		scdc_label_set(SCDC_MARK_JOBS);

	switch (scdc_job_launch(q, &run.run_id, GetTopTransactionId()))
	{
		case SCDC_LAUNCH_OK:
			break;
		case SCDC_LAUNCH_RUNNING:
			running_already(q);
			break;
		case SCDC_LAUNCH_NO_WORKER:
			no_worker(q);
			break;
	}
	return run.run_id;
}

/*
 * With streamcdc.queries locked, so that nobody else is starting it: a worker
 * beside a run that is none has ended, and is about to leave.
 */
static bool
is_running(const ScdcQuery *q, const ScdcRun *run)
{
	int64		deadline = deadline_after(LEAVING_TIMEOUT, -1);
	ScdcJobSlot *slot;

	if (run && run->status == SCDC_RUN_RUNNING)
		return true;
	while ((slot = scdc_slot_find(MyDatabaseId, &q->query_id)) != NULL && wait_a_moment(slot, deadline))
		;
	ConditionVariableCancelSleep();
	return slot != NULL;
}

/* What sink and columns have been until now, for a check by which the query is to go on. */
static void
take_former(ScdcQuery *now, const ScdcQuery *before)
{
	now->goes_on = true;
	now->nformer = before->ncolumns;
	now->former = before->columns;
	now->partition_by = before->partition_by;
}

/* The query of that name goes on from where it was; what may change does. */
static void
resume_as(ScdcQuery *before, ScdcQuery *now)
{
	before->search_path = now->search_path;
	before->settings = now->settings;
	before->end_version = now->end_version;
	before->end_timestamp = now->end_timestamp;
	before->trigger = now->trigger;
	before->trigger_interval = now->trigger_interval;
	before->trigger_text = now->trigger_text;
	before->max_versions = now->max_versions;
	before->max_bytes = now->max_bytes;
	before->no_data_batches = now->no_data_batches;
	before->merge_schema = now->merge_schema;
	before->skip_change_commits = now->skip_change_commits;
	before->provider = now->provider;
	before->cluster_by = now->cluster_by;
	before->ncolumns = now->ncolumns;
	before->columns = now->columns;
	before->known_schema = now->known_schema;
	before->nkeys = now->nkeys;
	before->keys = now->keys;
	scdc_query_replace(before);
	CommandCounterIncrement();
	(void) begin_run(before, run_now(before));
}

pg_uuid_t
scdc_control_start(ScdcQuery *q, ScdcStartOptions *start)
{
	Snapshot	snapshot;
	ScdcQuery  *before;

	scdc_require_preload();
	lock_queries();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	before = scdc_query_by_name(q->name, snapshot);
	UnregisterSnapshot(snapshot);

	if (before)
	{
		bool		start_given = start->kind != SCDC_START_DEFAULT;
		bool		running;
		ScdcOwnerScope scope;

		(void) find_now(q->name, true);
		scdc_job_check_role(before->owner);
		running = is_running(before, run_now(before));
		if (running && !scdc_stop_active_run_on_restart)
			running_already(before);
		start->kind = SCDC_START_EARLIEST;	/* it goes on from where it was */
		q->owner = before->owner;
		scdc_owner_begin(&scope, before->owner);
		scdc_source_resolve(q, start);
		scdc_sink_resolve(q);
		scdc_sink_qualify(q);
		check_same(before, q);	/* or the run would be stopped for nothing */
		scdc_owner_end(&scope);
		if (running)
		{
			stop_query(before, scdc_stop_timeout, scdc_stop_timeout > 0 ? scdc_stop_timeout / 2 : DEFAULT_STOP_TIMEOUT);
			before = find_now(q->name, true);	/* its last batch may have added columns */
		}
		scdc_owner_begin(&scope, before->owner);
		take_former(q, before);
		check_query(q, true);
		scdc_owner_end(&scope);
		if (start_given)
			ereport(NOTICE,
					(errmsg("query \"%s\" goes on from where it was, starting options are ignored", q->name)));
		resume_as(before, q);
		return before->query_id;
	}

	scdc_job_check_role(q->owner);
	scdc_uuid_new(&q->query_id);
	q->created_at = GetCurrentTimestamp();
	scdc_source_resolve(q, start);
	scdc_sink_resolve(q);
	check_query(q, true);
	scdc_query_insert(q);
	if (scdc_sink_is_foreign(q) && q->progress_table == NULL)
		ereport(NOTICE,
				(errmsg("rows may be written to \"%s\" more than once after a failure", q->sink),
				 errdetail("The other server commits first."),
				 errhint("Sink option \"progressTable\" makes it exactly once.")));
	CommandCounterIncrement();
	(void) begin_run(q, NULL);
	return q->query_id;
}

pg_uuid_t
scdc_control_resume(const char *name)
{
	ScdcQuery  *q;
	ScdcRun    *run;
	pg_uuid_t	run_id;
	ScdcOwnerScope scope;

	lock_queries();
	q = find_now(name, true);
	run = run_now(q);
	if (is_running(q, run))
		running_already(q);
	scdc_job_check_role(q->owner);
	scdc_owner_begin(&scope, q->owner);
	take_former(q, q);
	scdc_source_take_columns(q);
	check_query(q, false);
	scdc_owner_end(&scope);
	scdc_query_replace(q);
	CommandCounterIncrement();
	run_id = begin_run(q, run);
	return run_id;
}

void
scdc_control_drop(const char *name)
{
	ScdcQuery  *q = find_now(name, true);
	Snapshot	snapshot;

	/* the state is a cache: if this transaction fails, it is made again */
	stop_query(q, 0, 0);
	lock_queries();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scdc_query_delete(scdc_control_find(name, true, snapshot), snapshot);
	UnregisterSnapshot(snapshot);
	scdc_state_remove(&q->query_id);
}

/* ---------------------------------------------------------------------
 * awaiting
 * ---------------------------------------------------------------------
 */

static void
raise_failure(const ScdcQuery *q, const ScdcRun *run)
{
	const char *s = run->sqlstate ? run->sqlstate : "XX000";
	const char *detail = run->detail ? psprintf("%s\n", run->detail) : "";

	ereport(ERROR,
			(errcode(MAKE_SQLSTATE(s[0], s[1], s[2], s[3], s[4])),
			 errmsg("query \"%s\" has failed: %s", q->name, run->error ? run->error : ""),
			 errdetail("%sError condition: STREAM_FAILED.", detail),
			 run->hint ? errhint("%s", run->hint) :
			 errhint("SELECT stream_resume(%s); tries again.", quote_literal_cstr(q->name))));
}

/* How a query is now; the error of one that failed is raised. */
static bool
has_ended(const ScdcQuery *q)
{
	ScdcRun    *run = run_now(q);

	if (run == NULL)
		return true;
	if (run->status == SCDC_RUN_FAILED)
	{
		ConditionVariableCancelSleep();
		raise_failure(q, run);
	}
	return run->status != SCDC_RUN_RUNNING;
}

bool
scdc_control_await(const char *name, long timeout)
{
	ScdcQuery  *q = find_now(name, true);
	int64		deadline = deadline_after(timeout, -1);

	check_not_own_start(q);
	while (!has_ended(q))
	{
		if (!wait_a_moment(scdc_slot_find(MyDatabaseId, &q->query_id), deadline))
		{
			ConditionVariableCancelSleep();
			return false;
		}
	}
	ConditionVariableCancelSleep();
	return true;
}

bool
scdc_control_await_any(long timeout)
{
	int64		deadline = deadline_after(timeout, -1);
	ScdcCaptureEntry *entry = scdc_entry_get(MyDatabaseId);
	TimestampTz since = entry ? entry->terminated_reset : DT_NOBEGIN;

	for (;;)
	{
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
		ListCell   *lc;
		ScdcQuery  *waiting = NULL; /* for the end of this transaction */
		bool		may_end = false;
		bool		ended = false;

		foreach(lc, scdc_query_list(snapshot))
		{
			ScdcQuery  *q = lfirst(lc);
			ScdcRun    *run = scdc_run_read(&q->query_id, snapshot);

			if (!scdc_control_may(q) || run == NULL)
				continue;
			if (run->status == SCDC_RUN_RUNNING)
			{
				if (waits_for_us(scdc_slot_find(MyDatabaseId, &q->query_id)))
					waiting = q;
				else
					may_end = true;
				continue;
			}
			if (run->ended_at <= since)
				continue;
			if (run->status == SCDC_RUN_FAILED)
				raise_failure(q, run);
			ended = true;
		}
		UnregisterSnapshot(snapshot);
		if (ended)
			return true;
		if (waiting && !may_end)
			check_not_own_start(waiting);
		if (!wait_a_moment(NULL, deadline))
			return false;
	}
}

void
scdc_control_reset_terminated(void)
{
	ScdcCaptureEntry *entry = scdc_entry_get(MyDatabaseId);

	if (entry == NULL)
		return;
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	entry->terminated_reset = GetCurrentTimestamp();
	LWLockRelease(scdc_shared->lock);
}

void
scdc_control_process_all(const char *name, long timeout)
{
	ScdcQuery  *q = find_now(name, true);
	int64		deadline = deadline_after(timeout, 0);
	ScdcJobSlot *asked_of = NULL;
	uint64		number = 0;
	XLogRecPtr	target = scdc_wal_target();
	char	   *reason;

	check_not_own_start(q);
	/* not longer than the query runs: where that has ended, nobody may be capturing either */
	while (q->stream_id != 0 && !has_ended(q))
	{
		int64		left = deadline == NEVER ? POLL_INTERVAL : deadline - scdc_clock_ms();

		if (scdc_wait_captured(target, Max(Min(left, POLL_INTERVAL), 0), &reason) != SCDC_WAIT_TIMEOUT || left <= 0)
			break;
	}
	for (;;)
	{
		ScdcJobSlot *slot = scdc_slot_find(MyDatabaseId, &q->query_id);

		/* a worker that took the place of another has not been asked yet */
		if (slot && (asked_of != slot || pg_atomic_read_u64(&slot->asked) < number))
		{
			number = pg_atomic_add_fetch_u64(&slot->asked, 1);
			asked_of = slot;
			scdc_slot_wake(slot);
		}
		if (slot && pg_atomic_read_u64(&slot->answered) >= number)
			break;
		if (has_ended(q))
		{
			ScdcRun    *run = run_now(q);

			ConditionVariableCancelSleep();
			if (run && run->status == SCDC_RUN_FINISHED)
				return;
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("query \"%s\" is not running", q->name)));
		}
		if (!wait_a_moment(slot, deadline))
		{
			ConditionVariableCancelSleep();
			ereport(ERROR,
					(errcode(ERRCODE_QUERY_CANCELED),
					 errmsg("query \"%s\" has not processed all in time", q->name)));
		}
	}
	ConditionVariableCancelSleep();
}
