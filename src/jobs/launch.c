/*-------------------------------------------------------------------------
 *
 * launch.c
 *	  Starting the workers of queries (see launch.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "attempt.h"
#include "clock.h"
#include "debug.h"
#include "jobs/launch.h"
#include "jobs/slots.h"
#include "jobs/job.h"
#include "jobs/progress.h"
#include "label.h"
#include "log/rows.h"
#include "shmem.h"
#include "worker.h"

PGDLLEXPORT void scdc_starter_main(Datum arg);

/* What could not be started is tried again after this long (ms). */
#define RETRY_INTERVAL	5000

void
scdc_job_check_role(Oid role)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(role));
	bool		can_login = HeapTupleIsValid(tuple) && ((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
				 errmsg("the owner of the query was dropped"),
				 errhint("Drop the query with stream_drop.")));
	ReleaseSysCache(tuple);
	if (!can_login)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
				 errmsg("role \"%s\" is not permitted to log in", GetUserNameFromId(role, true)),
				 errdetail("A query runs in a session of its owner."),
				 errhint("ALTER ROLE %s LOGIN;", quote_identifier(GetUserNameFromId(role, true)))));
	if (pg_database_aclcheck(MyDatabaseId, role, ACL_CONNECT) != ACLCHECK_OK)
	{
		char	   *database = get_database_name(MyDatabaseId);

		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("role \"%s\" is not permitted to connect to database \"%s\"", GetUserNameFromId(role, true), database),
				 errdetail("A query runs in a session of its owner."),
				 errhint("GRANT CONNECT ON DATABASE %s TO %s;", quote_identifier(database),
						 quote_identifier(GetUserNameFromId(role, true)))));
	}
}

/* ---- what a transaction has started ---- */

typedef struct Started
{
	ScdcJobSlot *slot;
	pg_uuid_t	run_id;
	SubTransactionId by;
} Started;

static List *started = NIL;		/* of Started *, in TopMemoryContext */

static void
at_transaction_end(XactEvent event, void *arg)
{
	ListCell   *lc;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT)
		return;
	foreach(lc, started)
	{
		Started    *s = lfirst(lc);

		if (event == XACT_EVENT_ABORT)
			scdc_slot_take_back(s->slot, &s->run_id);
		else
		{
			scdc_slot_wake(s->slot);
			scdc_starter_look(MyDatabaseId, SCDC_LAUNCH_TIMEOUT);
		}
	}
	list_free_deep(started);
	started = NIL;
}

static void
at_subtransaction_end(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	ListCell   *lc;

	foreach(lc, started)
	{
		Started    *s = lfirst(lc);

		if (s->by != mine)
			continue;
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			s->by = parent;
		else if (event == SUBXACT_EVENT_ABORT_SUB)
		{
			scdc_slot_take_back(s->slot, &s->run_id);
			started = foreach_delete_current(started, lc);
			pfree(s);
		}
	}
}

static void
note_started(ScdcJobSlot *slot, const pg_uuid_t *run_id)
{
	static bool registered = false;
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	Started    *s = palloc(sizeof(Started));

	if (!registered)
	{
		RegisterXactCallback(at_transaction_end, NULL);
		RegisterSubXactCallback(at_subtransaction_end, NULL);
	}
	registered = true;
	s->slot = slot;
	s->run_id = *run_id;
	s->by = GetCurrentSubTransactionId();
	started = lappend(started, s);
	MemoryContextSwitchTo(old);
}

ScdcLaunch
scdc_job_launch(const ScdcQuery *q, const pg_uuid_t *run_id, TransactionId starter)
{
	BackgroundWorker worker;
	ScdcJobTask task;
	bool		running;
	ScdcJobSlot *slot = scdc_slot_take(MyDatabaseId, &q->query_id, run_id, starter, &running);

	if (running)
		return SCDC_LAUNCH_RUNNING;
	if (slot == NULL)
		return SCDC_LAUNCH_NO_WORKER;

	memset(&task, 0, sizeof(task));
	task.slot = slot - scdc_job_slots->slots;
	task.dboid = MyDatabaseId;
	task.owner = q->owner;
	task.query_id = q->query_id;
	task.run_id = *run_id;
	scdc_worker_init(&worker, "job", "scdc_job_main");
	StaticAssertStmt(sizeof(task) <= BGW_EXTRALEN, "the task must fit into bgw_extra");
	memcpy(worker.bgw_extra, &task, sizeof(task));
	if (!RegisterDynamicBackgroundWorker(&worker, NULL))
	{
		scdc_slot_free(slot);
		return SCDC_LAUNCH_NO_WORKER;
	}
	if (TransactionIdIsValid(starter))
		note_started(slot, run_id);
	return SCDC_LAUNCH_OK;
}

/* ---- from the launcher ---- */

void
scdc_starter_look(Oid dboid, long delay)
{
	ScdcCaptureEntry *entry = scdc_entry_get(dboid);

	if (entry == NULL)
		return;
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	if (entry->jobs_look_at != 0)
		entry->jobs_look_at = Min(entry->jobs_look_at, scdc_clock_ms() + delay);
	entry->jobs_asked++;
	LWLockRelease(scdc_shared->lock);
	scdc_wake_launcher();
}

long
scdc_starter_launch_missing(long sleep)
{
	List	   *databases = scdc_label_databases(SCDC_MARK_JOBS);
	int64		now = scdc_clock_ms();
	ListCell   *lc;

	foreach(lc, databases)
	{
		ScdcCaptureEntry *entry = scdc_entry_get(lfirst_oid(lc));
		BackgroundWorker worker;

		if (entry == NULL || entry->suspended)
			continue;
		if (entry->jobs_look_at > now)
		{
			if (entry->jobs_look_at != SCDC_LOOK_NEVER)
				sleep = Min(sleep, Max((long) (entry->jobs_look_at - now), 10));
			continue;
		}
		LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
		entry->jobs_look_at = now + RETRY_INTERVAL;
		LWLockRelease(scdc_shared->lock);
		sleep = Min(sleep, RETRY_INTERVAL);

		scdc_worker_init(&worker, "maintenance", "scdc_starter_main");
		worker.bgw_main_arg = ObjectIdGetDatum(lfirst_oid(lc));
		(void) RegisterDynamicBackgroundWorker(&worker, NULL);	/* tried again if there is none */
	}
	return sleep;
}

/* ---- the starter ---- */

static void
check_role(void *arg)
{
	scdc_job_check_role(*(Oid *) arg);
}

static void
fail_run(const ScdcQuery *q, ScdcRun *run, const ErrorData *e)
{
	run->status = SCDC_RUN_FAILED;
	run->ended_at = GetCurrentTimestamp();
	scdc_run_take_error(run, e);
	scdc_run_replace(run);
	scdc_progress_notify("QueryTerminated", q, &run->run_id, -1);
}

/*
 * Launches what should run and does not.  True if something should run at all.
 * *problem: why not all of it does; *begins: there are workers of which nobody
 * knows yet whether they begin.
 */
static bool
launch_all(Snapshot snapshot, const char **problem, bool *begins)
{
	bool		any = false;
	ListCell   *lc;

	foreach(lc, scdc_query_list(snapshot))
	{
		ScdcQuery  *q = lfirst(lc);
		ScdcRun    *run = scdc_run_read(&q->query_id, snapshot);
		ScdcJobSlot *slot;
		ErrorData  *e;

		if (run == NULL || run->status != SCDC_RUN_RUNNING)
			continue;
		e = scdc_attempt(check_role, &q->owner);
		if (e)
		{
			fail_run(q, run, e);
			continue;
		}
		any = true;
		if (scdc_job_launch(q, &run->run_id, InvalidTransactionId) == SCDC_LAUNCH_NO_WORKER)
			*problem = "No background worker is free; increase \"max_worker_processes\".";
		slot = scdc_slot_find(MyDatabaseId, &q->query_id);
		if (slot && slot->phase == SCDC_SLOT_LAUNCHED)
			*begins = true;
	}
	return any;
}

void
scdc_starter_main(Datum arg)
{
	Oid			dboid = DatumGetObjectId(arg);
	ScdcCaptureEntry *entry = scdc_entry_get(dboid);
	uint32		asked = 0;
	const char *problem = NULL;
	bool		begins = false;
	bool		any = false;

	scdc_worker_start(dboid);
	if (entry)
	{
		LWLockAcquire(scdc_shared->lock, LW_SHARED);
		asked = entry->jobs_asked;
		LWLockRelease(scdc_shared->lock);
	}
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (scdc_extension_exists() && OidIsValid(scdc_table_oid(SCDC_QUERIES)))
	{
		/* not waited for: somebody may keep it for long, and we would take up a worker, and soon all of them */
		if (ConditionalLockRelationOid(scdc_table_oid(SCDC_QUERIES), ShareRowExclusiveLock))
		{
			Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

			any = launch_all(snapshot, &problem, &begins);
			UnregisterSnapshot(snapshot);
		}
		else
		{
			any = true;
			problem = "A transaction that has started, stopped or dropped a query is still open.";
		}
	}
	if (!any && scdc_label_exists(SCDC_MARK_JOBS))
		scdc_label_remove(SCDC_MARK_JOBS);
	PopActiveSnapshot();
	CommitTransactionCommand();
	scdc_debug_point("starter-looked");

	if (entry)
	{
		LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
		/* a worker that has ended since then was running when we looked */
		if (entry->jobs_asked == asked)
			entry->jobs_look_at = problem || begins ? scdc_clock_ms() + RETRY_INTERVAL : SCDC_LOOK_NEVER;
		strlcpy(entry->jobs_problem, problem ? problem : "", sizeof(entry->jobs_problem));
		LWLockRelease(scdc_shared->lock);
	}
	proc_exit(0);
}
