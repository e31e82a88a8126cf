/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  What every background worker of ours does, and starting and stopping
 *	  the workers of a database.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

#include "clock.h"
#include "guc.h"
#include "jobs/slots.h"
#include "worker.h"

void
scdc_worker_init(BackgroundWorker *worker, const char *kind, const char *function)
{
	memset(worker, 0, sizeof(BackgroundWorker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = BGW_NEVER_RESTART;	/* the launcher restarts, with back-off */
	snprintf(worker->bgw_type, BGW_MAXLEN, "streamcdc %s", kind);
	snprintf(worker->bgw_name, BGW_MAXLEN, "streamcdc %s", kind);
	strlcpy(worker->bgw_library_name, "streamcdc", BGW_MAXLEN);
	strlcpy(worker->bgw_function_name, function, BGW_MAXLEN);
}

void
scdc_worker_start(Oid dboid)
{
	/* in place before signals are unblocked */
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	if (OidIsValid(dboid))
		BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	else
		BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	/*
	 * Nothing a user can set may change what we look up or how values are
	 * printed into the log; these win over ALTER DATABASE and ALTER ROLE.
	 */
	SetConfigOption("search_path", "pg_catalog, pg_temp", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("TimeZone", "UTC", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("DateStyle", "ISO", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("IntervalStyle", "postgres", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("bytea_output", "hex", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("extra_float_digits", "1", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("statement_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("idle_in_transaction_session_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("idle_session_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	/* a limit for queries; capture that stops at it would stay stopped */
	SetConfigOption("temp_file_limit", "-1", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("quote_all_identifiers", "off", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_isolation", "read committed", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_read_only", "off", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("row_security", "off", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("role", "none", PGC_SUSET, PGC_S_OVERRIDE);
	if (OidIsValid(dboid))
	{
		StartTransactionCommand();
		SetConfigOption("lc_monetary", scdc_database_lc_monetary(), PGC_SUSET, PGC_S_OVERRIDE);
		CommitTransactionCommand();
	}
}

void
scdc_worker_start_as(Oid dboid, Oid role)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	pqsignal(SIGINT, StatementCancelHandler);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(dboid, role, 0);

	SetConfigOption("statement_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("idle_in_transaction_session_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("idle_session_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_isolation", "read committed", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_read_only", "off", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_deferrable", "off", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("role", "none", PGC_SUSET, PGC_S_OVERRIDE);
}

void
scdc_worker_activity(bool running, const char *what)
{
	pgstat_report_activity(running ? STATE_RUNNING : STATE_IDLE, what);
}

bool
scdc_worker_check(void)
{
	bool		reloaded = false;

	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		reloaded = true;
	}
	CHECK_FOR_INTERRUPTS();
	return reloaded;
}

bool
scdc_error_is_about_value(int sqlerrcode)
{
	int			category = ERRCODE_TO_CATEGORY(sqlerrcode);

	return category != ERRCODE_TRANSACTION_ROLLBACK && category != ERRCODE_INSUFFICIENT_RESOURCES &&
		category != ERRCODE_OPERATOR_INTERVENTION && category != ERRCODE_SYSTEM_ERROR;
}

bool
scdc_capture_launch(Oid dboid, bool ignore_backoff, bool *no_slot)
{
	ScdcCaptureEntry *entry = scdc_entry_get(dboid);
	BackgroundWorker worker;
	ScdcCaptureState before = SCDC_CAPTURE_NONE;
	int64		now = scdc_clock_ms();
	bool		launch = false;

	*no_slot = false;
	if (entry == NULL)
	{
		*no_slot = true;		/* as many entries as workers are possible */
		return false;
	}

	/* whoever sets LAUNCHED launches */
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	if (!entry->suspended && entry->pid == 0 &&
		(entry->state == SCDC_CAPTURE_NONE ||
		 (entry->state == SCDC_CAPTURE_FAILED && (ignore_backoff || now >= entry->retry_at)) ||
		 (entry->state == SCDC_CAPTURE_LAUNCHED && now >= entry->retry_at)))
	{
		before = entry->state;
		entry->state = SCDC_CAPTURE_LAUNCHED;

		/* one that the postmaster could not start would stay LAUNCHED for ever */
		entry->retry_at = now + 30000;
		launch = true;
	}
	LWLockRelease(scdc_shared->lock);
	if (!launch)
		return false;

	scdc_worker_init(&worker, "capture", "scdc_capture_main");
	worker.bgw_main_arg = ObjectIdGetDatum(dboid);
	*no_slot = !RegisterDynamicBackgroundWorker(&worker, NULL);
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	if (*no_slot)
		entry->state = before;
	strlcpy(entry->launch_error, *no_slot ? SCDC_NO_WORKER : "", sizeof(entry->launch_error));
	LWLockRelease(scdc_shared->lock);
	return !*no_slot;
}

/*
 * Other sessions' commands (DROP DATABASE and its like) fail while we are
 * connected.  Waits, interruptibly, until our workers are gone; after ten
 * seconds the command is left to its own error message.
 */
void
scdc_capture_suspend(Oid dboid)
{
	ScdcCaptureEntry *entry = scdc_entry_get(dboid);
	int64		give_up = scdc_clock_ms() + 10000;

	if (entry == NULL)
		return;
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	entry->suspended = true;
	LWLockRelease(scdc_shared->lock);
	scdc_slots_stop_all(dboid, 10000);

	ConditionVariablePrepareToSleep(&entry->cv);
	for (;;)
	{
		int			pid,
					baseline_pid,
					maintenance_pid;
		ScdcCaptureState state;

		LWLockAcquire(scdc_shared->lock, LW_SHARED);
		pid = entry->pid;
		baseline_pid = entry->baseline_pid;
		maintenance_pid = entry->maintenance_pid;
		state = entry->state;
		LWLockRelease(scdc_shared->lock);
		if (pid == 0 && baseline_pid == 0 && maintenance_pid == 0 && state != SCDC_CAPTURE_LAUNCHED)
			break;
		if (pid != 0)
			kill(pid, SIGTERM);
		if (baseline_pid != 0)
			kill(baseline_pid, SIGTERM);
		if (maintenance_pid != 0)
			kill(maintenance_pid, SIGTERM);
		if (scdc_clock_ms() >= give_up)
			break;
		(void) ConditionVariableTimedSleep(&entry->cv, 100, PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
}

void
scdc_capture_resume(Oid dboid)
{
	ScdcCaptureEntry *entry = scdc_entry_find(dboid);

	if (entry == NULL)
		return;
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	entry->suspended = false;
	LWLockRelease(scdc_shared->lock);
	scdc_wake_launcher();
}
