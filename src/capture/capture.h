/*-------------------------------------------------------------------------
 *
 * capture.h
 *	  The capture worker, end to end; and what a backend asks of it.
 *
 * The one order in which capture becomes durable:
 *
 *	1. decode whole transactions up to a flushed WAL position;
 *	2. one PostgreSQL transaction inserts blocks, versions, schemas and the
 *	   position (the end of the last record read); it may commit asynchronously;
 *	3. once that commit is known to be flushed, the slot is confirmed up to the
 *	   position, and not before.
 *
 * A crash between 1 and 2 or between 2 and 3 makes the slot deliver again
 * what is stored already; a transaction is skipped iff its commit record
 * starts before the stored position.  A slot that is ahead of the stored
 * position has lost something: a gap.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_CAPTURE_H
#define SCDC_CAPTURE_H

/*
 * Makes sure that a capture worker runs for this database and has its slot
 * reserved.  Called by stream_track under RowExclusiveLock on
 * streamcdc.registry, which keeps a worker with nothing to do from ending.
 * Raises the worker's error, with the setting to change.
 */
extern void scdc_capture_ensure(void);

#endif							/* SCDC_CAPTURE_H */
