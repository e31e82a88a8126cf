/*-------------------------------------------------------------------------
 *
 * progress.h
 *	  The progress record of a batch: Spark's StreamingQueryProgress
 *	  (cdc-semantics 18.13) as jsonb.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_PROGRESS_H
#define SCDC_PROGRESS_H

#include "portability/instr_time.h"

#include "jobs/flow.h"
#include "jobs/query.h"
#include "jobs/state.h"

/* Where the time of a batch went, in milliseconds. */
typedef struct ScdcDurations
{
	double		latest_offset;	/* looking for data */
	double		wal_commit;		/* writing the plan */
	double		get_batch;		/* reading, with the state */
	double		query_planning; /* checking query and sink */
	double		add_batch;		/* writing the sink */
	double		commit_offsets; /* writing progress and state mark */
} ScdcDurations;

typedef struct ScdcProgressInput
{
	const ScdcQuery *query;
	pg_uuid_t	run_id;
	const ScdcBatch *batch;
	ScdcFlowOptions options;
	const ScdcFlowResult *flow;
	ScdcDurations durations;
	TimestampTz trigger_start;
	TimestampTz previous_start; /* of the batch before, 0 if there was none in this run */
	const char *latest_offset;
	bool		text_versions;	/* what offsets are */
	int64		output_rows;	/* -1: unknown */
	ScdcState  *state;
} ScdcProgressInput;

extern Jsonb *scdc_progress_record(const ScdcProgressInput *in);

/* ISO 8601 in UTC with milliseconds, as Spark prints times; in the current context. */
extern char *scdc_progress_time(TimestampTz t);

/* Sends an event to listeners when the transaction commits: ids and numbers only; batch_id -1: none. */
extern void scdc_progress_notify(const char *event, const ScdcQuery *query, const pg_uuid_t *run_id, int64 batch_id);

#endif							/* SCDC_PROGRESS_H */
