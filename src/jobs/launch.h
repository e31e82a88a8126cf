/*-------------------------------------------------------------------------
 *
 * launch.h
 *	  Starting the workers of queries, and starting them again.
 *
 * stream_start launches a worker itself, so that the caller is told if there
 * is none to be had.  After a server start, and when a worker ended that
 * should not have, the launcher starts a short-lived maintenance worker in
 * each database that is marked, the starter, which reads what should run and
 * launches it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_LAUNCH_H
#define SCDC_LAUNCH_H

#include "jobs/query.h"

/* Raises 28000 or 42501 unless a worker can run as the role. */
extern void scdc_job_check_role(Oid role);

typedef enum ScdcLaunch
{
	SCDC_LAUNCH_OK,
	SCDC_LAUNCH_RUNNING,		/* the query has a worker */
	SCDC_LAUNCH_NO_WORKER		/* no slot, or no background worker, is free */
} ScdcLaunch;

/*
 * Launches a worker for a run of a query; it waits for the end of transaction
 * starter, which is the current one, if that is valid.  When that, or the
 * subtransaction, is rolled back, it leaves.
 */
extern ScdcLaunch scdc_job_launch(const ScdcQuery *query, const pg_uuid_t *run_id, TransactionId starter);

/* Launcher: starts starters where queries may be without workers; returns how long it may sleep (ms). */
extern long scdc_starter_launch_missing(long sleep);

/* Have the queries of a database looked at again after a while (ms).  From any process that may take LWLocks. */
extern void scdc_starter_look(Oid dboid, long delay);

#endif							/* SCDC_LAUNCH_H */
