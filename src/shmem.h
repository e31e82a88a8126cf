/*-------------------------------------------------------------------------
 *
 * shmem.h
 *	  Shared memory: one entry for each database with a capture worker.
 *
 * Lock order, for everything here: table lock, row of our tables, replication
 * slot, the LWLock below.  Nothing waits, allocates or touches a table while
 * the LWLock is held.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_SHMEM_H
#define SCDC_SHMEM_H

#include "access/xlogdefs.h"
#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"

/* Life of a capture worker; the states that may follow are in brackets. */
typedef enum ScdcCaptureState
{
	SCDC_CAPTURE_NONE,			/* nobody runs [LAUNCHED] */
	SCDC_CAPTURE_LAUNCHED,		/* registered with the postmaster [STARTING, NONE, FAILED] */
	SCDC_CAPTURE_STARTING,		/* runs, has no slot yet [RESERVED, RUNNING, FAILED, NONE] */
	SCDC_CAPTURE_RESERVED,		/* the slot is reserved; callers may commit [RUNNING, FAILED, NONE] */
	SCDC_CAPTURE_RUNNING,		/* decodes [FAILED, NONE] */
	SCDC_CAPTURE_FAILED			/* ended with an error, will be tried again [LAUNCHED, NONE] */
} ScdcCaptureState;

/* One baseline worker at a time copies tables; see capture/baseline.h. */
typedef enum ScdcBaselinePhase
{
	SCDC_BASELINE_NONE,			/* [EXPORTED] */
	SCDC_BASELINE_EXPORTED,		/* capture has published a snapshot and launched the worker [IMPORTED, ENDED, NONE] */
	SCDC_BASELINE_IMPORTED,		/* the worker has taken it over, and copies [ENDED] */
	SCDC_BASELINE_ENDED			/* done or failed; streamcdc.baselines tells which [NONE] */
} ScdcBaselinePhase;

/* What users read where there is no worker for them. */
#define SCDC_NO_WORKER "No background worker slot is free; \"max_worker_processes\" has to be increased."

/* Nobody has to look (jobs_look_at). */
#define SCDC_LOOK_NEVER		PG_INT64_MAX

typedef struct ScdcCaptureEntry
{
	/* written under the LWLock */
	Oid			dboid;			/* InvalidOid: entry is free */
	ScdcCaptureState state;
	int			pid;			/* of the worker, 0 if none */
	Latch	   *latch;			/* its latch; a PGPROC's, so setting a stale one is harmless */
	Oid			registry;		/* streamcdc.registry that the worker serves: after DROP and CREATE EXTENSION it is another */
	Oid			wanted_registry;	/* the one of whoever waits for a worker; an extension just being created is seen by nobody else */
	bool		suspended;		/* do not start: DROP DATABASE and its like are at work */
	int			failures;		/* in a row */
	int64		retry_at;		/* scdc_clock_ms() from which on FAILED may be launched again */
	int			sqlstate;		/* of the last failure */
	char		error[400];		/* its message */
	char		hint[200];
	char		launch_error[200];	/* why there is no worker although one is wanted; empty if nothing is known */

	/* baselines under way; written under the LWLock by capture and baseline worker */
	ScdcBaselinePhase baseline_phase;
	int64		baseline_attempt;	/* its number, as in streamcdc.baselines */
	int64		baseline_stored;	/* newest attempt whose snapshot capture has stored */
	char		baseline_snapshot[64];	/* name of the exported snapshot */
	int			baseline_pid;	/* 0 before the worker runs and after its end */
	int64		baseline_stream;	/* being copied; 0: none */
	int64		baseline_error_stream;	/* about which stream the next is; 0: about all that wait */
	char		baseline_error[400];	/* why the last attempt failed; empty if it did not */
	pg_atomic_uint64 baseline_asked;	/* transactions that tracked a table and have committed, counted */
	pg_atomic_uint64 baseline_served;	/* so many of them, the first ones, have their snapshot */
	pg_atomic_uint64 baseline_done; /* rows copied */
	pg_atomic_uint64 baseline_total;	/* estimate */

	/* jobs; written under the LWLock */
	int64		jobs_look_at;	/* when to look for queries without a worker, by scdc_clock_ms; SCDC_LOOK_NEVER: no need; 0: at once */
	uint32		jobs_asked;		/* how often somebody asked for that look, so that who looks knows of what came later */
	TimestampTz terminated_reset;	/* stream_reset_terminated */
	char		jobs_problem[200];	/* why a query that should run does not */

	/* retention; written under the LWLock */
	int64		retention_look_at;	/* when to look for old versions, by scdc_clock_ms; 0: not known yet */
	int			maintenance_pid;	/* of the worker that does; 0 if none */
	int64		retention_error_stream; /* of which stream versions could not be removed; 0: none */
	char		retention_error[400];	/* and why */

	/* no lock */
	pg_atomic_uint32 sleeping;	/* worker waits on its latch and wants to be woken by commits */
	pg_atomic_uint32 urgent;	/* somebody waits: do not gather commits */
	pg_atomic_uint64 want;		/* end of the newest commit, or what a reader waits for */
	pg_atomic_uint64 captured;	/* everything before is decoded and visible in the log */
	pg_atomic_uint64 confirmed; /* last confirmed position */
	ConditionVariable cv;		/* captured or state changed */
} ScdcCaptureEntry;

typedef struct ScdcShared
{
	LWLock	   *lock;
	Latch	   *launcher;		/* under the lock */
	char		lc_monetary[128];	/* under the lock: the server's; empty if not known yet */
	int			nentries;
	ScdcCaptureEntry entries[FLEXIBLE_ARRAY_MEMBER];
} ScdcShared;

extern ScdcShared *scdc_shared; /* NULL unless preloaded */

extern void scdc_shmem_init(void);	/* from _PG_init */

/* Raises 55000 with the setting to change unless the library was preloaded. */
extern void scdc_require_preload(void);

/* The entry of a database, NULL if it has none (no lock needed: entries are never moved). */
extern ScdcCaptureEntry *scdc_entry_find(Oid dboid);
/* The same, made if missing; NULL when the array is full. */
extern ScdcCaptureEntry *scdc_entry_get(Oid dboid);

extern void scdc_wake_launcher(void);
extern void scdc_wake_capture(ScdcCaptureEntry *entry, XLogRecPtr want, bool urgent);

#endif							/* SCDC_SHMEM_H */
