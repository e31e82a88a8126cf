/*-------------------------------------------------------------------------
 *
 * control.h
 *	  What a session does with queries: start, stop, resume, drop, wait.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_CONTROL_H
#define SCDC_CONTROL_H

#include "jobs/definition.h"
#include "jobs/query.h"

/*
 * Starts a query, or resumes the one of that name.  Returns the id.  Takes
 * SHARE ROW EXCLUSIVE on streamcdc.queries until the transaction ends.  Raises
 * what the checks of source, query and sink raise; 42710 if it is running;
 * 55000 if it does something else than the one of that name; 53400 if there is
 * no free worker.
 */
extern pg_uuid_t scdc_control_start(ScdcQuery *query, ScdcStartOptions *start);
extern pg_uuid_t scdc_control_resume(const char *name); /* returns the id of the run */

/*
 * Stops a query, and waits (ms; 0: no limit) until its worker is gone; a batch
 * that takes longer than half of that is rolled back.  Raises 57014 on
 * time-out, 25001 if the query was started by this very transaction.
 */
extern void scdc_control_stop(const char *name, long timeout);

/*
 * Forgets a query, its progress and its state; the batch under way is rolled
 * back.  Locks streamcdc.queries as scdc_control_start does.
 */
extern void scdc_control_drop(const char *name);

/*
 * Waits until all that was committed before the call is processed (ms; 0: no
 * limit).  Raises 57014 on time-out, 55000 if the query does not run, 25001 if
 * it was started by this very transaction, and the query's error if it fails.
 */
extern void scdc_control_process_all(const char *name, long timeout);

/*
 * Waits until the query has ended (ms; -1: no limit); false on time-out.
 * Raises the query's error if it failed.
 */
extern bool scdc_control_await(const char *name, long timeout);
extern bool scdc_control_await_any(long timeout);
extern void scdc_control_reset_terminated(void);

/* The query, in the current context, with the right to stop and see it checked if so asked; raises 42704 and 42501. */
extern ScdcQuery *scdc_control_find(const char *name, bool check_owner, Snapshot snapshot);

/* May the current user stop the query and see its details? */
extern bool scdc_control_may(const ScdcQuery *query);

#endif							/* SCDC_CONTROL_H */
