/*-------------------------------------------------------------------------
 *
 * order.h
 *	  Puts work rows into order: in memory, and beyond that in a temporary
 *	  file: by identity in parts of it, each with the rows of a range of
 *	  hashes, and by version in sorted runs, which are merged.
 *
 * The server's tuplesort would do.  It took half of the time of a batch of
 * net changes, though: it takes rows apart and forms them anew, looks into
 * the tuples of rows with equal hashes, and fetches each sorted row from
 * memory that is not in any cache.  Here the keys stand beside a pointer to
 * the row, and rows are fetched ahead.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_ORDER_H
#define SCDC_ORDER_H

#include "jobs/work.h"

typedef enum ScdcOrderBy
{
	SCDC_BY_IDENTITY,			/* hash; then version, delete-like before others, place */
	SCDC_BY_VERSION				/* version; then place, delete-like before others */
} ScdcOrderBy;

typedef struct ScdcOrder ScdcOrder;

/*
 * Lives in the current context, with its file in the current resource owner.
 * memory: in kB, exceeded by some rows (one while they are put, twice MIN_RUNS
 * while they are merged) and a constant at most.
 */
extern ScdcOrder *scdc_order_create(const ScdcWork *work, ScdcOrderBy by, int memory);

/* Adds a copy of the row, as one of that type. */
extern void scdc_order_put(ScdcOrder *order, const ScdcWorkRow *row, ScdcChangeType type);

/* All rows are there. */
extern void scdc_order_finish(ScdcOrder *order);

/* The next row, good until the next call; NULL at the end. */
extern const ScdcWorkRow *scdc_order_next(ScdcOrder *order);

/* By identity: has the next row the hash of the one that was returned last, which stays good? */
extern bool scdc_order_continues(ScdcOrder *order);

extern void scdc_order_end(ScdcOrder *order);

#endif							/* SCDC_ORDER_H */
