/*-------------------------------------------------------------------------
 *
 * vacuum.h
 *	  Removing old versions of a log.
 *
 * They are folded into the baseline, which moves forward (log/retained.h).
 * All of it happens in the caller's transaction; readers under older snapshots
 * go on to see what they saw.  Who removes versions holds the stream's vacuum
 * lock to the end of his transaction, and so does, in a weaker mode, who relies
 * on them to stay: stream_start, until its query is seen to need them.  Capture
 * takes no part in that: it only ever adds blocks, and deletes a log after
 * stream_untrack, which has taken the lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_VACUUM_H
#define SCDC_VACUUM_H

#include "log/catalog.h"
#include "storage/lockdefs.h"

/* Takes the vacuum lock of a stream; false if somebody has it and wait is not set. */
extern bool scdc_vacuum_lock(int64 stream_id, LOCKMODE mode, bool wait);

/* Which versions: all conditions have to hold. */
typedef struct ScdcVacuumTarget
{
	int64		before;			/* versions before this one */
	TimestampTz older_than;		/* committed before that; DT_NOEND: at any time */
	TimestampTz overdue;		/* what is hardly worth it is left for now, but not what was committed before that */
} ScdcVacuumTarget;

/* What the retention of a stream asks for now; before is 0 if that is nothing. */
extern ScdcVacuumTarget scdc_vacuum_by_retention(const ScdcStream *stream);

/*
 * Removes versions of a stream, but none that a query still needs unless that
 * has been the case for longer than streamcdc.max_job_retention.  The log of a
 * dropped table of which nothing would be left goes as a whole.  Returns how
 * many versions were removed; the baseline is none.  With the vacuum lock held
 * (ExclusiveLock).
 */
extern int64 scdc_vacuum_stream(int64 stream_id, const ScdcVacuumTarget *target);

/* For how long versions of a stream are kept, in microseconds; 0: for ever. */
extern int64 scdc_retention_of(const ScdcStream *stream);

#endif							/* SCDC_VACUUM_H */
