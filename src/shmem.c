/*-------------------------------------------------------------------------
 *
 * shmem.c
 *	  Shared memory: size, start-up, look-up and wake-ups.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker_internals.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "jobs/slots.h"
#include "shmem.h"

ScdcShared *scdc_shared = NULL;

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/* Each entry needs a background worker, so there cannot be more in use than these. */
static int
entry_count(void)
{
	return max_worker_processes + 1;
}

static Size
shared_size(void)
{
	return add_size(offsetof(ScdcShared, entries), mul_size(entry_count(), sizeof(ScdcCaptureEntry)));
}

static void
shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(add_size(shared_size(), scdc_slots_size()));
	RequestNamedLWLockTranche("streamcdc", 1);
}

static void
shmem_startup(void)
{
	bool		found;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	scdc_shared = ShmemInitStruct("streamcdc", shared_size(), &found);
	if (!found)
	{
		memset(scdc_shared, 0, shared_size());
		scdc_shared->lock = &(GetNamedLWLockTranche("streamcdc"))->lock;
		scdc_shared->nentries = entry_count();
		for (int i = 0; i < scdc_shared->nentries; i++)
		{
			ScdcCaptureEntry *e = &scdc_shared->entries[i];

			pg_atomic_init_u64(&e->baseline_asked, 0);
			pg_atomic_init_u64(&e->baseline_served, 0);
			pg_atomic_init_u64(&e->baseline_done, 0);
			pg_atomic_init_u64(&e->baseline_total, 0);
			pg_atomic_init_u32(&e->sleeping, 0);
			pg_atomic_init_u32(&e->urgent, 0);
			pg_atomic_init_u64(&e->want, 0);
			pg_atomic_init_u64(&e->captured, 0);
			pg_atomic_init_u64(&e->confirmed, 0);
			ConditionVariableInit(&e->cv);
		}
	}
	scdc_job_slots = ShmemInitStruct("streamcdc jobs", scdc_slots_size(), &found);
	scdc_slots_init(found);
	LWLockRelease(AddinShmemInitLock);
}

void
scdc_shmem_init(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;
}

void
scdc_require_preload(void)
{
	if (scdc_shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("streamcdc must be loaded at server start"),
				 errhint("Add \"streamcdc\" to \"shared_preload_libraries\" and restart the server.")));
}

ScdcCaptureEntry *
scdc_entry_find(Oid dboid)
{
	/* looked up at every commit: remember the place, entries stay where they are */
	static int	last = 0;

	if (scdc_shared == NULL)
		return NULL;
	if (scdc_shared->entries[last].dboid == dboid)
		return &scdc_shared->entries[last];
	for (int i = 0; i < scdc_shared->nentries; i++)
	{
		Oid			db = scdc_shared->entries[i].dboid;

		if (db == dboid)
		{
			last = i;
			return &scdc_shared->entries[i];
		}
		if (db == InvalidOid)
			break;				/* entries fill up from the front, and are reused only by the same scan below */
	}
	return NULL;
}

/*
 * An entry stays with its database while anything is known of it.  When all
 * are taken, one with nobody running is reused.  Takes the LWLock.
 */
ScdcCaptureEntry *
scdc_entry_get(Oid dboid)
{
	ScdcCaptureEntry *e = NULL;

	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < scdc_shared->nentries; i++)
	{
		ScdcCaptureEntry *c = &scdc_shared->entries[i];

		if (c->dboid == dboid || c->dboid == InvalidOid)
		{
			e = c;
			break;
		}
		if (e == NULL && c->state == SCDC_CAPTURE_NONE && c->pid == 0 && !c->suspended)
			e = c;				/* a candidate; go on looking for our own */
	}
	if (e && e->dboid != dboid)
	{
		e->state = SCDC_CAPTURE_NONE;
		e->pid = 0;
		e->latch = NULL;
		e->failures = 0;
		e->retry_at = 0;
		e->error[0] = e->hint[0] = e->launch_error[0] = e->baseline_error[0] = e->jobs_problem[0] = '\0';
		e->baseline_stream = 0;
		e->baseline_pid = 0;
		e->baseline_phase = SCDC_BASELINE_NONE;
		pg_atomic_write_u64(&e->want, 0);
		pg_atomic_write_u64(&e->captured, 0);
		pg_atomic_write_u64(&e->confirmed, 0);
		e->jobs_look_at = 0;
		e->retention_look_at = 0;
		e->maintenance_pid = 0;
		e->retention_error_stream = 0;
		e->terminated_reset = GetCurrentTimestamp();
		e->dboid = dboid;
	}
	LWLockRelease(scdc_shared->lock);
	return e;
}

void
scdc_wake_launcher(void)
{
	LWLockAcquire(scdc_shared->lock, LW_SHARED);
	if (scdc_shared->launcher)
		SetLatch(scdc_shared->launcher);
	LWLockRelease(scdc_shared->lock);
}

/*
 * Tells a capture worker that WAL up to want is worth reading.  Called at
 * every commit, so no lock: a worker that is about to sleep sets "sleeping"
 * before it looks at "want" for the last time, and we set "want" before we
 * look at "sleeping".
 */
void
scdc_wake_capture(ScdcCaptureEntry *entry, XLogRecPtr want, bool urgent)
{
	uint64		seen = pg_atomic_read_u64(&entry->want);

	while (seen < want && !pg_atomic_compare_exchange_u64(&entry->want, &seen, want))
		;
	if (urgent)
		pg_atomic_write_u32(&entry->urgent, 1);
	pg_memory_barrier();
	if (pg_atomic_read_u32(&entry->sleeping) || urgent)
	{
		Latch	   *latch = entry->latch;

		if (latch)
			SetLatch(latch);
	}
}
