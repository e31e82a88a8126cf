/*-------------------------------------------------------------------------
 *
 * maintenance.h
 *	  Retention, applied in the background.
 *
 * A short-lived worker, which the launcher starts in each database that has
 * logs, looks at all of them: often enough for the shortest retention there,
 * and once an hour at least.  It never waits for anybody, and whoever it could
 * hold up ends it; the launcher starts it again.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_MAINTENANCE_H
#define SCDC_MAINTENANCE_H

/* Launcher: starts workers where it is time; returns how long it may sleep (ms).  In a transaction. */
extern long scdc_maintenance_launch_missing(long sleep);

/* Launcher: a setting has changed that says how long versions are kept. */
extern void scdc_maintenance_look_everywhere(void);

/* Have the logs of this database looked at now. */
extern void scdc_maintenance_look(void);

/* Ends the worker of this database, if there is one. */
extern void scdc_maintenance_cancel(void);

/*
 * Why versions of the stream could not be removed (palloc'd); NULL if nothing
 * is known.
 */
extern char *scdc_maintenance_error(int64 stream_id);

#endif							/* SCDC_MAINTENANCE_H */
