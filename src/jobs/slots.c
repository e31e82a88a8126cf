/*-------------------------------------------------------------------------
 *
 * slots.c
 *	  Shared memory of the jobs (see slots.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "postmaster/bgworker_internals.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "jobs/slots.h"
#include "shmem.h"

ScdcJobSlots *scdc_job_slots = NULL;

Size
scdc_slots_size(void)
{
	return add_size(offsetof(ScdcJobSlots, slots), mul_size(max_worker_processes, sizeof(ScdcJobSlot)));
}

void
scdc_slots_init(bool found)
{
	if (found)
		return;
	memset(scdc_job_slots, 0, scdc_slots_size());
	scdc_job_slots->nslots = max_worker_processes;
	pg_atomic_init_u32(&scdc_job_slots->by_commit, 0);
	for (int i = 0; i < scdc_job_slots->nslots; i++)
	{
		ScdcJobSlot *s = &scdc_job_slots->slots[i];

		pg_atomic_init_u32(&s->stop, SCDC_STOP_NONE);
		pg_atomic_init_u64(&s->asked, 0);
		pg_atomic_init_u64(&s->answered, 0);
		ConditionVariableInit(&s->cv);
	}
}

static bool
is_of(const ScdcJobSlot *s, Oid dboid, const pg_uuid_t *query_id)
{
	return s->phase != SCDC_SLOT_FREE && s->dboid == dboid && memcmp(&s->query_id, query_id, sizeof(pg_uuid_t)) == 0;
}

ScdcJobSlot *
scdc_slot_take(Oid dboid, const pg_uuid_t *query_id, const pg_uuid_t *run_id, TransactionId starter, bool *running)
{
	ScdcJobSlot *slot = NULL;
	int64		now = scdc_clock_ms();

	*running = false;
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < scdc_job_slots->nslots; i++)
	{
		ScdcJobSlot *s = &scdc_job_slots->slots[i];

		if (s->phase == SCDC_SLOT_LAUNCHED && s->pid == 0 &&
			now - s->launched_at >= SCDC_LAUNCH_TIMEOUT)
			s->phase = SCDC_SLOT_FREE;
		if (is_of(s, dboid, query_id))
		{
			*running = true;
			slot = NULL;
			break;
		}
		if (s->phase == SCDC_SLOT_FREE && slot == NULL)
			slot = s;
	}
	if (slot)
	{
		slot->phase = SCDC_SLOT_LAUNCHED;
		slot->dboid = dboid;
		slot->query_id = *query_id;
		slot->run_id = *run_id;
		slot->pid = 0;
		slot->latch = NULL;
		slot->starter = starter;
		slot->launched_at = now;
		slot->stream_id = 0;
		slot->activity = SCDC_JOB_STARTING;
		slot->batch_id = -1;
		slot->has_data = false;
		memset(&slot->error, 0, sizeof(slot->error));
		pg_atomic_write_u32(&slot->stop, SCDC_STOP_NONE);
		pg_atomic_write_u64(&slot->asked, 0);
		pg_atomic_write_u64(&slot->answered, 0);
	}
	LWLockRelease(scdc_shared->lock);
	return slot;
}

void
scdc_slot_free(ScdcJobSlot *slot)
{
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	slot->phase = SCDC_SLOT_FREE;
	slot->pid = 0;
	slot->latch = NULL;
	LWLockRelease(scdc_shared->lock);
	ConditionVariableBroadcast(&slot->cv);
}

void
scdc_slot_take_back(ScdcJobSlot *slot, const pg_uuid_t *run_id)
{
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	if (slot->phase == SCDC_SLOT_LAUNCHED && memcmp(&slot->run_id, run_id, sizeof(pg_uuid_t)) == 0)
	{
		memset(&slot->query_id, 0, sizeof(pg_uuid_t));
		pg_atomic_write_u32(&slot->stop, SCDC_STOP_TAKEN_BACK);
		if (slot->pid == 0)
			slot->phase = SCDC_SLOT_FREE;	/* a worker that comes finds that it is not meant */
		else if (slot->latch)
			SetLatch(slot->latch);
	}
	LWLockRelease(scdc_shared->lock);
}

ScdcJobSlot *
scdc_slot_find(Oid dboid, const pg_uuid_t *query_id)
{
	ScdcJobSlot *found = NULL;

	if (scdc_job_slots == NULL)
		return NULL;
	LWLockAcquire(scdc_shared->lock, LW_SHARED);
	for (int i = 0; i < scdc_job_slots->nslots && found == NULL; i++)
		if (is_of(&scdc_job_slots->slots[i], dboid, query_id))
			found = &scdc_job_slots->slots[i];
	LWLockRelease(scdc_shared->lock);
	return found;
}

bool
scdc_slot_ask_to_stop(Oid dboid, const pg_uuid_t *query_id, bool abandon)
{
	bool		found = false;

	/* by query, since the slot may be another's by now */
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < scdc_job_slots->nslots && !found; i++)
	{
		ScdcJobSlot *s = &scdc_job_slots->slots[i];

		if (!is_of(s, dboid, query_id))
			continue;
		found = true;
		pg_atomic_write_u32(&s->stop, SCDC_STOP_ASKED);
		if (s->latch)
			SetLatch(s->latch);
		if (abandon && s->phase == SCDC_SLOT_RUNNING)
			kill(s->pid, SIGINT);
	}
	LWLockRelease(scdc_shared->lock);
	return found;
}

void
scdc_slot_wake(ScdcJobSlot *slot)
{
	LWLockAcquire(scdc_shared->lock, LW_SHARED);
	if (slot->latch)
		SetLatch(slot->latch);
	LWLockRelease(scdc_shared->lock);
}

/* all: whatever their stream */
static void
wake(Oid dboid, int64 stream_id, bool all)
{
	LWLockAcquire(scdc_shared->lock, LW_SHARED);
	for (int i = 0; i < scdc_job_slots->nslots; i++)
	{
		ScdcJobSlot *s = &scdc_job_slots->slots[i];

		if (s->phase == SCDC_SLOT_RUNNING && s->dboid == dboid && (all || s->stream_id == stream_id) && s->latch &&
			s->pid != MyProcPid)
			SetLatch(s->latch);
	}
	LWLockRelease(scdc_shared->lock);
}

void
scdc_slots_wake_stream(Oid dboid, int64 stream_id)
{
	wake(dboid, stream_id, false);
}

void
scdc_slots_wake_all(Oid dboid)
{
	wake(dboid, 0, true);
}

/* Called at every commit, so it looks at one number first. */
void
scdc_slots_wake_by_commit(Oid dboid)
{
	if (scdc_job_slots != NULL && pg_atomic_read_u32(&scdc_job_slots->by_commit) != 0)
		wake(dboid, 0, false);
}

bool
scdc_slots_any(Oid dboid)
{
	bool		any = false;

	if (scdc_job_slots == NULL)
		return false;
	LWLockAcquire(scdc_shared->lock, LW_SHARED);
	for (int i = 0; i < scdc_job_slots->nslots && !any; i++)
		any = scdc_job_slots->slots[i].phase != SCDC_SLOT_FREE && scdc_job_slots->slots[i].dboid == dboid &&
			scdc_job_slots->slots[i].pid != MyProcPid;
	LWLockRelease(scdc_shared->lock);
	return any;
}

void
scdc_slots_stop_all(Oid dboid, long timeout)
{
	int64		give_up = scdc_clock_ms() + timeout;

	while (scdc_slots_any(dboid) && scdc_clock_ms() < give_up)
	{
		LWLockAcquire(scdc_shared->lock, LW_SHARED);
		for (int i = 0; i < scdc_job_slots->nslots; i++)
		{
			ScdcJobSlot *s = &scdc_job_slots->slots[i];

			if (s->phase != SCDC_SLOT_FREE && s->dboid == dboid && s->pid != 0 && s->pid != MyProcPid)
				kill(s->pid, SIGTERM);
		}
		LWLockRelease(scdc_shared->lock);
		CHECK_FOR_INTERRUPTS();
		pg_usleep(10000L);
	}
}
