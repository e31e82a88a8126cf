/*-------------------------------------------------------------------------
 *
 * maintenance.c
 *	  Retention, applied in the background (see maintenance.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "replication/origin.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "label.h"
#include "log/catalog.h"
#include "log/rows.h"
#include "retention/maintenance.h"
#include "retention/vacuum.h"
#include "shmem.h"
#include "worker.h"

PGDLLEXPORT void scdc_maintenance_main(Datum arg);

#define FIRST_LOOK		10000	/* ms after the server's start */
#define LOOK_MIN		1000	/* ms */
#define LOOK_MAX		3600000
#define LOOKS			8		/* in the time that versions are kept */

/* ---- from the launcher and from sessions ---- */

static void
look_at(ScdcCaptureEntry *entry, int64 when)
{
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	entry->retention_look_at = when;
	LWLockRelease(scdc_shared->lock);
}

long
scdc_maintenance_launch_missing(long sleep)
{
	List	   *databases = list_union_oid(scdc_label_databases(SCDC_MARK_CAPTURE), scdc_label_databases(SCDC_MARK_LOGS));
	int64		now = scdc_clock_ms();
	ListCell   *lc;

	foreach(lc, databases)
	{
		ScdcCaptureEntry *entry = scdc_entry_get(lfirst_oid(lc));
		BackgroundWorker worker;

		if (entry == NULL || entry->suspended)
			continue;
		if (entry->retention_look_at == 0)
			look_at(entry, now + FIRST_LOOK);
		if (entry->retention_look_at > now)
		{
			sleep = Min(sleep, entry->retention_look_at - now);
			continue;
		}
		/* the worker says when the next one is; without one, for lack of slots, again in a while */
		look_at(entry, now + FIRST_LOOK);
		scdc_worker_init(&worker, "maintenance", "scdc_maintenance_main");
		worker.bgw_main_arg = ObjectIdGetDatum(lfirst_oid(lc));
		(void) RegisterDynamicBackgroundWorker(&worker, NULL);
	}
	return sleep;
}

void
scdc_maintenance_look_everywhere(void)
{
	for (int i = 0; i < scdc_shared->nentries; i++)
		if (OidIsValid(scdc_shared->entries[i].dboid))
			look_at(&scdc_shared->entries[i], scdc_clock_ms());
}

void
scdc_maintenance_look(void)
{
	ScdcCaptureEntry *entry = scdc_entry_get(MyDatabaseId);

	if (entry == NULL)
		return;
	look_at(entry, scdc_clock_ms());
	scdc_wake_launcher();
}

void
scdc_maintenance_cancel(void)
{
	ScdcCaptureEntry *entry = scdc_entry_find(MyDatabaseId);
	int			pid = 0;

	if (entry)
	{
		LWLockAcquire(scdc_shared->lock, LW_SHARED);
		pid = entry->maintenance_pid;
		LWLockRelease(scdc_shared->lock);
	}
	if (pid != 0)
		kill(pid, SIGTERM);
}

char *
scdc_maintenance_error(int64 stream_id)
{
	ScdcCaptureEntry *entry = scdc_entry_find(MyDatabaseId);
	char		error[sizeof(entry->retention_error)] = "";

	if (entry)
	{
		LWLockAcquire(scdc_shared->lock, LW_SHARED);
		if (entry->retention_error_stream == stream_id)
			strlcpy(error, entry->retention_error, sizeof(error));
		LWLockRelease(scdc_shared->lock);
	}
	return error[0] ? psprintf("Old versions could not be removed: %s", error) : NULL;
}

/* ---- the worker ---- */

static ScdcCaptureEntry *my_entry;
static int64 next_look = LOOK_MAX;	/* in so many ms */

static void
maintenance_exit(int code, Datum arg)
{
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	if (my_entry->maintenance_pid == MyProcPid)
	{
		my_entry->maintenance_pid = 0;
		if (code == 0)
			my_entry->retention_look_at = scdc_clock_ms() + next_look;
	}
	LWLockRelease(scdc_shared->lock);
	ConditionVariableBroadcast(&my_entry->cv);
	scdc_wake_launcher();
}

static void
publish_error(int64 stream_id, const char *error)
{
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	if (error || my_entry->retention_error_stream == stream_id)
	{
		my_entry->retention_error_stream = error ? stream_id : 0;
		strlcpy(my_entry->retention_error, error ? error : "", sizeof(my_entry->retention_error));
	}
	LWLockRelease(scdc_shared->lock);
}

static void
begin_transaction(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	replorigin_session_origin = DoNotReplicateId;
}

static void
end_transaction(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
	replorigin_session_origin = InvalidRepOriginId;
}

static void
look_at_stream(int64 stream_id)
{
	Snapshot	snapshot;
	ScdcStream *stream;
	ScdcVacuumTarget target;

	begin_transaction();
	if (scdc_vacuum_lock(stream_id, ExclusiveLock, false))
	{
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		stream = scdc_stream_by_id(stream_id, snapshot);
		UnregisterSnapshot(snapshot);
		if (stream)
		{
			scdc_worker_activity(true, psprintf("looking for old versions of %s",
												quote_qualified_identifier(stream->schema_name, stream->table_name)));
			target = scdc_vacuum_by_retention(stream);
			target.overdue = target.older_than - scdc_retention_of(stream) / LOOKS;
			(void) scdc_vacuum_stream(stream_id, &target);
		}
	}
	end_transaction();
	publish_error(stream_id, NULL);
}

/* An error is told, and tried again next time; other streams go on. */
static void
try_stream(int64 stream_id)
{
	MemoryContext cxt = CurrentMemoryContext;

	PG_TRY();
	{
		look_at_stream(stream_id);
	}
	PG_CATCH();
	{
		ErrorData  *e;

		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(cxt);
		e = CopyErrorData();
		EmitErrorReport();
		AbortOutOfAnyTransaction();
		replorigin_session_origin = InvalidRepOriginId;
		FlushErrorState();
		publish_error(stream_id, e->message);
		FreeErrorData(e);
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
}

/* The streams with logs, as int64 *, in cxt; sets next_look. */
static List *
streams_to_look_at(MemoryContext cxt)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, scdc_stream_list(snapshot))
	{
		ScdcStream *s = lfirst(lc);
		int64		retention = scdc_retention_of(s);
		MemoryContext old = MemoryContextSwitchTo(cxt);

		if (s->state != SCDC_STATE_UNTRACKED && s->state != SCDC_STATE_INERT && retention > 0)
		{
			int64	   *id = palloc(sizeof(int64));

			*id = s->stream_id;
			result = lappend(result, id);
			next_look = Min(next_look, Max(retention / 1000 / LOOKS, LOOK_MIN));
		}
		MemoryContextSwitchTo(old);
	}
	UnregisterSnapshot(snapshot);
	return result;
}

/* The mark of a database in which nothing is captured any more goes with its last log. */
static void
remove_mark(void)
{
	bool		extension = scdc_extension_exists() && OidIsValid(scdc_table_oid(SCDC_REGISTRY));
	bool		wanted = false;

	if (!scdc_label_exists(SCDC_MARK_LOGS))
		return;
	if (extension)
	{
		Snapshot	snapshot;

		if (!ConditionalLockRelationOid(scdc_table_oid(SCDC_REGISTRY), ExclusiveLock))
			return;
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		wanted = scdc_stream_any_dropped(snapshot);
		UnregisterSnapshot(snapshot);
	}
	if (!wanted)
		scdc_label_remove(SCDC_MARK_LOGS);
}

void
scdc_maintenance_main(Datum arg)
{
	Oid			dboid = DatumGetObjectId(arg);
	MemoryContext cxt = AllocSetContextCreate(TopMemoryContext, "streamcdc maintenance", ALLOCSET_DEFAULT_SIZES);
	List	   *streams = NIL;
	ListCell   *lc;
	bool		mine;

	my_entry = scdc_entry_find(dboid);
	if (my_entry == NULL)
		proc_exit(0);
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	mine = my_entry->maintenance_pid == 0 && !my_entry->suspended;
	if (mine)
		my_entry->maintenance_pid = MyProcPid;
	LWLockRelease(scdc_shared->lock);
	if (!mine)
		proc_exit(0);
	before_shmem_exit(maintenance_exit, (Datum) 0);
	scdc_worker_start(dboid);

	begin_transaction();
	if (scdc_extension_exists() && OidIsValid(scdc_table_oid(SCDC_STREAMS)))
		streams = streams_to_look_at(cxt);
	end_transaction();
	MemoryContextSwitchTo(cxt);
	foreach(lc, streams)
	{
		(void) scdc_worker_check();
		try_stream(*(int64 *) lfirst(lc));
	}
	begin_transaction();
	remove_mark();
	end_transaction();
	proc_exit(0);
}
