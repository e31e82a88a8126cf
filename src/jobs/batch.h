/*-------------------------------------------------------------------------
 *
 * batch.h
 *	  Planning a micro-batch and carrying it out.  state.h has the order in
 *	  which things become durable.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_BATCH_H
#define SCDC_BATCH_H

#include "jobs/query.h"
#include "jobs/sink.h"
#include "jobs/state.h"

/* What a job worker knows of its query between batches; lives as long as the worker. */
typedef struct ScdcJob
{
	ScdcQuery  *query;			/* as of the last batch */
	pg_uuid_t	run_id;
	ScdcState	state;
	bool		state_ready;	/* it is that of the last progress row */
	bool		state_broken;	/* it has to be thrown away first */
	char	   *upto;			/* trigger availableNow: the end that was fixed at start; NULL: none there was */
	bool		upto_fixed;
	bool		complete;		/* all that can be in the query's range is in the log */
	ScdcSinkCheck check;		/* of a batch that was done */
	MemoryContext context;
	MemoryContext query_cxt;	/* the query's, below it; NULL: none yet */
} ScdcJob;

typedef enum ScdcPlan
{
	SCDC_PLAN_BATCH,			/* there is a batch to carry out */
	SCDC_PLAN_NOTHING,			/* not now */
	SCDC_PLAN_NOT_YET,			/* nor can anything be read: the baseline is being copied */
	SCDC_PLAN_ENDED				/* and never again */
} ScdcPlan;

/*
 * Decides what the next batch is and commits that; one that was planned and
 * not finished comes first.  no_data: a batch without data may be one.
 * Each in transactions of its own, as the next.
 */
extern ScdcPlan scdc_batch_plan(ScdcJob *job, bool limited, bool no_data);

/* Carries out the batch that was planned last. */
extern void scdc_batch_run(ScdcJob *job);

/*
 * Makes the state that of the last progress row.  restoring is called if
 * batches have to be done again.
 */
extern void scdc_batch_restore(ScdcJob *job, void (*restoring) (void));

/* Fixes the end for availableNow; false if nothing can be read yet (the baseline is being copied). */
extern bool scdc_batch_fix_end(ScdcJob *job);

/* The query as it is now, into job->query; leaves (failure.h) if it is gone, or run by somebody else. */
extern void scdc_batch_load(ScdcJob *job, Snapshot snapshot);

#endif							/* SCDC_BATCH_H */
