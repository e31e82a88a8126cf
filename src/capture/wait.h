/*-------------------------------------------------------------------------
 *
 * wait.h
 *	  Waiting for the capture worker, in ordinary backends.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_WAIT_H
#define SCDC_WAIT_H

#include "access/xlogdefs.h"

typedef enum ScdcWaitResult
{
	SCDC_WAIT_DONE,				/* everything before target is in the log, and committed */
	SCDC_WAIT_TIMEOUT,
	SCDC_WAIT_STALLED			/* the worker failed; *reason says why (palloc'd) */
} ScdcWaitResult;

/* Where WAL ends now, as a position that can be flushed and that a decoder will reach. */
extern XLogRecPtr scdc_wal_target(void);

/* How far capture has come in this database; 0 if no worker has run since the server start. */
extern XLogRecPtr scdc_captured_lsn(void);

/* Why no capture worker could be started for this database (palloc'd); NULL if one runs, or nothing is known. */
extern char *scdc_launch_error(void);

/*
 * Waits until capture of this database has passed target (flushing WAL up to
 * it first), or has ended because nothing is tracked.  timeout in ms, 0 = just look, -1 = no limit.  Interruptible.
 */
extern ScdcWaitResult scdc_wait_captured(XLogRecPtr target, long timeout, char **reason);

#endif							/* SCDC_WAIT_H */
