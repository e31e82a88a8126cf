/*-------------------------------------------------------------------------
 *
 * source_kinds.h
 *	  The two kinds of source, for source.c: a tracked table
 *	  (source_tracked.c) and a registered change log (source_registered.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_SOURCE_KINDS_H
#define SCDC_SOURCE_KINDS_H

#include "jobs/source.h"
#include "sql/registration.h"
#include "sql/resolve.h"

struct ScdcSource
{
	const ScdcQuery *query;
	Snapshot	snapshot;
	bool		tracked;
	bool		row_level_done; /* its rows come with the row-level passes done */
	ScdcSourceFlags flags;
	ScdcWork   *work;

	ScdcTarget *target;			/* tracked */

	ScdcRegistration *registration; /* registered ... */
	ScdcRegisteredSchema schema;
	char	   *relation;		/* qualified name */
	char	   *select;			/* what to select from it, for a work row up to its hidden columns */
};

/* The query's columns as a row; in the current context. */
extern TupleDesc scdc_source_visible_columns(const ScdcQuery *query);

/* What startingTimestamp, endingTimestamp and whether they are included come to. */
extern void scdc_source_take_timestamps(ScdcQuery *query, const ScdcStartOptions *start);

extern void scdc_tracked_resolve(ScdcQuery *query, const ScdcStartOptions *start, Snapshot snapshot);
extern void scdc_tracked_open(ScdcSource *source);
extern char *scdc_tracked_latest(ScdcSource *source);
extern char *scdc_tracked_next(ScdcSource *source, const char *after, const char *upto, bool limited, bool complete,
							   bool *ended);
extern void scdc_tracked_read(ScdcSource *source, const ScdcBatch *batch, ScdcFlow *flow);

extern void scdc_registered_resolve(ScdcQuery *query, ScdcRegistration *registration, const ScdcStartOptions *start,
									Snapshot snapshot);
extern void scdc_registered_open(ScdcSource *source);
extern char *scdc_registered_latest(ScdcSource *source);
extern char *scdc_registered_next(ScdcSource *source, const char *after, const char *upto, bool limited, bool *ended);
extern void scdc_registered_batch(ScdcSource *source, const ScdcBatch *batch, ScdcFlow *flow);

#endif							/* SCDC_SOURCE_KINDS_H */
