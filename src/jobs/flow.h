/*-------------------------------------------------------------------------
 *
 * flow.h
 *	  One micro-batch: rows of the source in, rows of "batch" out, with what
 *	  has to wait kept in the state store (cdc-semantics section 9).
 *
 * With a watermark of zero delay, all that a batch leaves behind is due in
 * the next one: a buffered row is emitted then, and a net change is emitted
 * or, if its row changed again, merged.  So the state after batch n is one
 * generation, written by batch n in order of its keys and read by batch n+1
 * from end to end.  No key is looked up, nothing is changed in place: a batch
 * that fails, or is killed, leaves the generation that it read untouched, and
 * one that is repeated writes the same again.
 *
 * Which of the three ways a stream goes:
 *
 *	  no state		rows go straight through, or (emission by commit) through
 *					the row-level passes of their commit
 *	  buffer		emission by watermark, with row-level passes: rows wait for
 *					the watermark, then go through all passes at once
 *	  net			net changes only: first and last event of each identity
 *
 * Sorts, of which two are in memory at a time, stay within
 * scdc_flow_memory() each, beyond which they go to temporary files.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_FLOW_H
#define SCDC_FLOW_H

#include "utils/tuplestore.h"

#include "jobs/query.h"
#include "jobs/work.h"

typedef enum ScdcFlowWay
{
	SCDC_FLOW_STRAIGHT,
	SCDC_FLOW_COMMIT,			/* no state: row-level passes commit by commit */
	SCDC_FLOW_BUFFER,
	SCDC_FLOW_NET
} ScdcFlowWay;

typedef struct ScdcFlowOptions
{
	ScdcFlowWay way;
	ScdcPasses	passes;			/* that run here, not in the source */
	bool		compute_updates;
	bool		guard;			/* a NULL timestamp is an error */
	int64		expected_rows;	/* what the batch before has left in state, and its checksum */
	uint32		expected_crc;
} ScdcFlowOptions;

typedef struct ScdcFlowResult
{
	int64		input_rows;
	int64		late_rows;		/* dropped */
	int64		output_rows;
	int64		state_rows;		/* left in state */
	int64		state_bytes;
	uint32		state_crc;
	int64		removed_rows;	/* that left the state */
	int64		oldest_batch;	/* the state goes back to this batch; the next one's number if there is none */
	char	   *oldest_pending; /* and to this version, or NULL */
	TimestampTz watermark;		/* for the next batch */
	TimestampTz min_timestamp;	/* of the rows read; DT_NOEND and DT_NOBEGIN if there were none */
	TimestampTz max_timestamp;
	double		sum_timestamp;	/* seconds since the epoch, for the average */
} ScdcFlowResult;

typedef struct ScdcFlow ScdcFlow;

/*
 * Memory in kB that a sort of a batch, or its result, may take: work_mem, or
 * more where that is small, up to 64 MB, as maintenance_work_mem allows.
 * There are few jobs beside the sessions for which work_mem is made.
 */
extern int	scdc_flow_memory(void);

/*
 * Begins a batch.  store may be NULL for the ways without state.  Rows go to
 * output, or nowhere if that is NULL (a batch that is only repeated for its
 * state).  Lives in the current context.
 */
extern ScdcFlow *scdc_flow_begin(ScdcWork *work, const ScdcFlowOptions *options, const ScdcBatch *batch,
								 ScdcStore *store, Tuplestorestate *output);

/* A row of the source, in order of version; as values of work->desc. */
extern void scdc_flow_row(ScdcFlow *flow, Datum *values, bool *isnull);

/* The same with a row of a tracked table, in a flow that keeps rows (all but SCDC_FLOW_STRAIGHT). */
extern void scdc_flow_image(ScdcFlow *flow, const ScdcWorkImage *image);

/* Ends the batch: what is due goes out. */
extern void scdc_flow_end(ScdcFlow *flow, ScdcFlowResult *result);

#endif							/* SCDC_FLOW_H */
