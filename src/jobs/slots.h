/*-------------------------------------------------------------------------
 *
 * slots.h
 *	  Shared memory of the jobs: one slot for each worker that runs a query,
 *	  or will in a moment.
 *
 * The slot is what makes a query run once: whoever takes one for a query that
 * has one already is refused.  The tables say what should run; the slots say
 * what does.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_SLOTS_H
#define SCDC_SLOTS_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "utils/uuid.h"

/* A worker that the postmaster could not start keeps its slot for so long (ms). */
#define SCDC_LAUNCH_TIMEOUT	30000

typedef enum ScdcSlotPhase
{
	SCDC_SLOT_FREE,				/* [LAUNCHED] */
	SCDC_SLOT_LAUNCHED,			/* the worker is registered [RUNNING, FREE] */
	SCDC_SLOT_RUNNING			/* [FREE] */
} ScdcSlotPhase;

/* What a running job is at. */
typedef enum ScdcJobActivity
{
	SCDC_JOB_STARTING,
	SCDC_JOB_WAITING,			/* for data, or for its trigger */
	SCDC_JOB_BATCH,
	SCDC_JOB_RESTORING,
	SCDC_JOB_BACKING_OFF		/* after an error */
} ScdcJobActivity;

/* Whether a worker is to end. */
typedef enum ScdcStopRequest
{
	SCDC_STOP_NONE,				/* [ASKED, TAKEN_BACK] */
	SCDC_STOP_ASKED,			/* by stream_stop and its like [TAKEN_BACK] */
	SCDC_STOP_TAKEN_BACK		/* the start that it waits for was rolled back */
} ScdcStopRequest;

/* An error, as far as there is room for it. */
typedef struct ScdcSlotError
{
	char		message[400];
	char		detail[400];	/* may be empty, as the next */
	char		hint[400];
} ScdcSlotError;

typedef struct ScdcJobSlot
{
	/* written under the LWLock of shmem.h */
	ScdcSlotPhase phase;
	Oid			dboid;
	pg_uuid_t	query_id;		/* zero: nobody's any more */
	pg_uuid_t	run_id;
	int			pid;			/* 0 before the worker runs */
	Latch	   *latch;
	TransactionId starter;		/* the worker waits for its end; 0: none */
	int64		launched_at;	/* by scdc_clock_ms */
	int64		stream_id;		/* wake it when this stream has more; 0: at any commit */
	ScdcJobActivity activity;
	int64		batch_id;		/* under way, or the last one */
	bool		has_data;
	ScdcSlotError error;		/* of the last try, while it backs off */

	/* no lock */
	pg_atomic_uint32 stop;		/* ScdcStopRequest */
	pg_atomic_uint64 asked;		/* number of requests to look whether all is done ... */
	pg_atomic_uint64 answered;	/* ... up to here all was done when it looked */
	ConditionVariable cv;		/* answered, or gone */
} ScdcJobSlot;

typedef struct ScdcJobSlots
{
	int			nslots;
	pg_atomic_uint32 by_commit; /* jobs that want to be woken at any commit */
	ScdcJobSlot slots[FLEXIBLE_ARRAY_MEMBER];
} ScdcJobSlots;

extern ScdcJobSlots *scdc_job_slots;	/* NULL unless preloaded */

extern Size scdc_slots_size(void);
extern void scdc_slots_init(bool found);	/* at start-up, under AddinShmemInitLock */

/* Takes a free slot for a query; NULL if it has one already (*running true) or none is free. */
extern ScdcJobSlot *scdc_slot_take(Oid dboid, const pg_uuid_t *query_id, const pg_uuid_t *run_id, TransactionId starter,
								   bool *running);
extern void scdc_slot_free(ScdcJobSlot *slot);

/* Takes the slot away from its query; a worker that has begun to wait for the starter leaves. */
extern void scdc_slot_take_back(ScdcJobSlot *slot, const pg_uuid_t *run_id);

/* The slot of a query; NULL if it has none. */
extern ScdcJobSlot *scdc_slot_find(Oid dboid, const pg_uuid_t *query_id);

extern void scdc_slot_wake(ScdcJobSlot *slot);

/* Asks the worker of a query to end, with abandon in the middle of its batch; false if there is none. */
extern bool scdc_slot_ask_to_stop(Oid dboid, const pg_uuid_t *query_id, bool abandon);

/* A stream has more versions; a transaction of this database has committed. */
extern void scdc_slots_wake_stream(Oid dboid, int64 stream_id);
extern void scdc_slots_wake_all(Oid dboid);
extern void scdc_slots_wake_by_commit(Oid dboid);

/* Asks all jobs of a database to end now, and waits for that (ms); are there any left? */
extern void scdc_slots_stop_all(Oid dboid, long timeout);
extern bool scdc_slots_any(Oid dboid);

#endif							/* SCDC_SLOTS_H */
