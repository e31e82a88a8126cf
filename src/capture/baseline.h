/*-------------------------------------------------------------------------
 *
 * baseline.h
 *	  The first copy of a table, joined to the stream of its changes.
 *
 * A worker of its own copies the rows, under a snapshot S.  Changes are
 * captured from the registering commit on; a transaction is in the baseline
 * iff its top-level xid is visible in S, and is then not captured.  S is
 * taken by the capture worker between two transactions, for all streams that
 * wait for one:
 *
 *	  capture				baseline worker
 *	  ------------------	--------------------------------------------
 *	  takes and exports S,
 *	  launches it: EXPORTED
 *							imports S: IMPORTED
 *	  deletes what it captured of the
 *	  streams so far, stores S, commits
 *							for each stream: locks the table (ACCESS SHARE), sees that
 *							nobody has rewritten it since S, writes blocks, marks
 *							the baseline complete; commits: ENDED
 *
 * What was captured before S must be visible in S (else S is taken again):
 * then it is in the baseline, and throwing it away loses nothing.  A copy
 * that fails leaves nothing behind, and is begun again with a new S.
 *
 * The session that tracked the table waits a moment, after its commit and
 * with its lock on the table still held, until S is taken (hooks.c).  So, as
 * a rule, version 0 is the table as of that commit, and what is committed
 * later is a version of its own.
 *
 * Nothing of a stream can be read until its baseline is complete.
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
	int64		attempt;
} ScdcBaselineTask;

/*
 * To be called by the capture worker between transactions, when everything
 * decoded is written: begins an attempt if there is something to copy, and
 * looks after the one under way.  True if a snapshot was stored or an attempt
 * has ended, so that the streams have to be loaded anew.
 */
extern bool scdc_baseline_advance(ScdcCaptureEntry *entry);

/* Something may be left to do: a stream was tracked, or capture has just started. */
extern void scdc_baseline_look(void);

/* When advance wants to be called again at the latest (ms); -1: no need. */
extern long scdc_baseline_delay(void);

/* Is this attempt under way? */
extern bool scdc_baseline_is_active(ScdcCaptureEntry *entry, int64 attempt);

/*
 * Why the stream's baseline cannot be copied at present (palloc'd), NULL if
 * nothing is known.  Stream 0: only what holds for all; that tells nothing
 * about any row.
 */
extern char *scdc_baseline_error(ScdcCaptureEntry *entry, int64 stream_id);

/* Ends the copying, if the stream (0: any) is being copied. */
extern void scdc_baseline_cancel(ScdcCaptureEntry *entry, int64 stream_id);

#endif							/* SCDC_BASELINE_H */
