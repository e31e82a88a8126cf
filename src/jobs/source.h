/*-------------------------------------------------------------------------
 *
 * source.h
 *	  What a query reads: a tracked table or a registered change log.
 *
 * Offsets are the text form of a version; a batch reads what is after its
 * start offset, up to its end offset.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_SOURCE_H
#define SCDC_SOURCE_H

#include "utils/snapshot.h"

#include "jobs/definition.h"
#include "jobs/flow.h"

typedef struct ScdcSource ScdcSource;

/*
 * Looks up what the query's source argument names, with the caller's rights,
 * and fills in the parts of the query that follow from it: relation, stream,
 * columns, identity, emission, where to begin and to end.  Raises what
 * stream_start raises for a source: 42P01, 42501, 0A000, 42P17, 22023; 55000
 * for a beginning that is not retained.
 */
extern void scdc_source_resolve(ScdcQuery *query, const ScdcStartOptions *start);

/* Fills in the columns as the source has them now: for a query that is resumed. */
extern void scdc_source_take_columns(ScdcQuery *query);

/*
 * Opens the source of a query in a transaction, under the snapshot, with the
 * rights of the current user.  Raises 55000 if it is not what the query was
 * started with (untracked, tracked anew, dropped).  In the current context.
 */
extern ScdcSource *scdc_source_open(const ScdcQuery *query, Snapshot snapshot);
extern void scdc_source_close(ScdcSource *source);

extern ScdcWork *scdc_source_work(ScdcSource *source);

/* The passes of the query over this source. */
extern ScdcPasses scdc_source_passes(ScdcSource *source);

/* How rows of it have to be treated; see flow.h. */
extern ScdcFlowOptions scdc_source_flow(ScdcSource *source);

/* Can it be read: is the baseline complete? */
extern bool scdc_source_is_ready(ScdcSource *source);

/* Newest offset there is; NULL if there is none, or nothing can be read yet. */
extern char *scdc_source_latest(ScdcSource *source);

/*
 * End of the next batch after an offset (NULL: the beginning), within the
 * query's limits and up to the given offset (NULL: no limit of that kind).
 * complete: all that can be in the query's range was in the log when the
 * snapshot was taken.  NULL if there is nothing to read.  *ended: nothing will
 * come any more.
 */
extern char *scdc_source_next(ScdcSource *source, const char *after, const char *upto, bool limited, bool complete,
							  bool *ended);

/* Reads a batch into a flow.  first: it is the query's first (for format "table"). */
extern void scdc_source_read(ScdcSource *source, const ScdcBatch *batch, ScdcFlow *flow);

/* Is an offset (NULL: the beginning) before another? */
extern bool scdc_source_before(ScdcSource *source, const char *a, const char *b);

/* A name for the progress record. */
extern char *scdc_source_description(const ScdcQuery *query);

#endif							/* SCDC_SOURCE_H */
