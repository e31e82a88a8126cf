/*-------------------------------------------------------------------------
 *
 * baseline.h
 *	  The first copy of a table, joined to the stream of its changes.
 *
 * A worker of its own copies the rows, under a snapshot S.  Changes are
 * captured from the registering commit on; a transaction is in the baseline
 * iff its top-level xid is visible in S, and is then not captured.  S is
 * taken by the capture worker between two transactions:
 *
 *	  capture				baseline worker
 *	  ------------------	--------------------------------------------
 *	  launches it			locks the table (ACCESS SHARE): READY
 *	  takes and exports S:
 *	  EXPORTED				imports S: IMPORTED, copies, all in the same transaction
 *	  deletes what it captured of the
 *	  stream so far, stores S, commits
 *							writes blocks, marks the baseline complete, commits: ENDED
 *
 * The lock comes before S, so the table cannot be rewritten in between.  What
 * was captured before S must be visible in S (else S is taken again): then
 * it is in the baseline, and throwing it away loses nothing.  A copy that
 * fails leaves nothing behind, and is begun again with a new S.
 *
 * Nothing of the stream can be read until the baseline is complete.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_BASELINE_H
#define SCDC_BASELINE_H

#include "log/catalog.h"
#include "shmem.h"

/* What a baseline worker is told; travels in bgw_extra. */
typedef struct ScdcBaselineTask
{
	Oid			dboid;
	Oid			relid;
	int64		stream_id;
	int64		base_version;
	int64		attempt;
} ScdcBaselineTask;

/*
 * To be called by the capture worker between transactions, when everything
 * decoded is written: drives the protocol above one step, as far as that
 * goes without waiting for long.  True if a snapshot was stored, so that the
 * streams have to be loaded anew.
 */
extern bool scdc_baseline_advance(ScdcCaptureEntry *entry);

/* Something may be left to do: a stream was tracked, or capture has just started. */
extern void scdc_baseline_look(void);

/* When advance wants to be called again at the latest (ms); -1: no need. */
extern long scdc_baseline_delay(void);

/* Ends the copy of a stream (0: of any), if one is under way. */
extern void scdc_baseline_cancel(ScdcCaptureEntry *entry, int64 stream_id);

#endif							/* SCDC_BASELINE_H */
