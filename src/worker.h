/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  What every background worker of ours does: start-up, signals, end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_WORKER_H
#define SCDC_WORKER_H

#include "postmaster/bgworker.h"

#include "shmem.h"

/*
 * Fills in a worker; the caller adds argument and extra data, then registers
 * it.  kind: "launcher", "capture" or "baseline", as pg_stat_activity shows
 * it; function: its exported main function.
 */
extern void scdc_worker_init(BackgroundWorker *worker, const char *kind, const char *function);

/* First act of a worker: signals, connection to a database (InvalidOid: none), pinned settings. */
extern void scdc_worker_start(Oid dboid);

/* The same for a job: as a role, with that role's settings. */
extern void scdc_worker_start_as(Oid dboid, Oid role);

/* Shows what the worker does, in pg_stat_activity. */
extern void scdc_worker_activity(bool running, const char *what);

/* Reloads settings when asked, then serves interrupts.  True if settings were reloaded. */
extern bool scdc_worker_check(void);

/*
 * Launches the capture worker of a database unless one runs.  False with
 * *no_slot set when there is no free background worker slot; false too when
 * the database is suspended or in back-off.
 */
extern bool scdc_capture_launch(Oid dboid, bool ignore_backoff, bool *no_slot);

/*
 * Is an error of this kind about the value at hand, so that trying again would
 * not help, and its table has to be given up?  All else (lack of resources,
 * I/O, shutdown, a transaction that was rolled back) is not.
 */
extern bool scdc_error_is_about_value(int sqlerrcode);

/* Stops our workers of a database and keeps them stopped until resumed. */
extern void scdc_capture_suspend(Oid dboid);
extern void scdc_capture_resume(Oid dboid);

#endif							/* SCDC_WORKER_H */
