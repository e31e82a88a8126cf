/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  The launcher: a static worker without a database that keeps a capture
 *	  worker running for each database that is marked (label.h), and starts the
 *	  short-lived ones.
 *
 * It sleeps on its latch: workers wake it when they end, sessions when a
 * suspended database may go on.  The time-out is for back-off after failures
 * and for marks that nobody told it of.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "clock.h"
#include "guc.h"
#include "jobs/launch.h"
#include "label.h"
#include "launcher.h"
#include "retention/maintenance.h"
#include "worker.h"

PGDLLEXPORT void scdc_launcher_main(Datum arg);

#define LOOK_INTERVAL	10000	/* ms */

void
scdc_launcher_register(void)
{
	BackgroundWorker worker;

	scdc_worker_init(&worker, "launcher", "scdc_launcher_main");
	worker.bgw_restart_time = 5;
	RegisterBackgroundWorker(&worker);
}

static void
forget_latch(int code, Datum arg)
{
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	scdc_shared->launcher = NULL;
	LWLockRelease(scdc_shared->lock);
}

/* Launches what should run and does not; returns how long to sleep (ms). */
static long
launch_missing(void)
{
	static bool said_no_slot = false;
	List	   *databases;
	ListCell   *lc;
	long		sleep = LOOK_INTERVAL;

	StartTransactionCommand();
	databases = scdc_label_databases(SCDC_MARK_CAPTURE);
	foreach(lc, databases)
	{
		Oid			dboid = lfirst_oid(lc);
		ScdcCaptureEntry *entry;
		bool		no_slot;

		if (scdc_capture_launch(dboid, false, &no_slot))
			said_no_slot = false;
		if (no_slot && !said_no_slot)
		{
			/* once, not every time: this can last */
			ereport(LOG,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("no background worker slot is free for capture of database %u", dboid),
					 errhint("Increase \"max_worker_processes\" and restart the server.")));
			said_no_slot = true;
		}

		entry = scdc_entry_find(dboid);
		if (entry && entry->state == SCDC_CAPTURE_FAILED)
		{
			long		ms = entry->retry_at - scdc_clock_ms();

			sleep = Min(sleep, Max(ms, 10));
		}
	}
	sleep = scdc_starter_launch_missing(sleep);
	sleep = scdc_maintenance_launch_missing(sleep);
	CommitTransactionCommand();
	return sleep;
}

/* Settings were reloaded. */
static void
note_settings(void)
{
	static int	retention = -1;
	static int	max_job_retention = -1;

	scdc_publish_lc_monetary();
	if (retention >= 0 && (retention != scdc_retention || max_job_retention != scdc_max_job_retention))
		scdc_maintenance_look_everywhere();
	retention = scdc_retention;
	max_job_retention = scdc_max_job_retention;
}

void
scdc_launcher_main(Datum arg)
{
	scdc_worker_start(InvalidOid);
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	scdc_shared->launcher = MyLatch;
	LWLockRelease(scdc_shared->lock);
	before_shmem_exit(forget_latch, 0);
	note_settings();

	for (;;)
	{
		long		sleep;

		if (scdc_worker_check())
			note_settings();
		sleep = launch_missing();
		scdc_worker_activity(false, "keeping capture workers running");
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, sleep, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}
