/*-------------------------------------------------------------------------
 *
 * sink.h
 *	  Where the rows of a batch go: a relation, SQL commands, or functions.
 *
 * Everything runs through the executor, in the batch's transaction, as the
 * query's owner with the search_path of the one who started it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_SINK_H
#define SCDC_SINK_H

#include "access/tupdesc.h"
#include "utils/tuplestore.h"

#include "jobs/query.h"

/*
 * Checks query and sink against what "batch" looks like, at stream_start and
 * before each batch; with create, a sink that is missing is made, and the
 * query's sink is replaced by its qualified name.  Raises 42P01, 42703, 42804,
 * 42501, 42P10, 0A000 as stream_start does.  Returns the OIDs of what is
 * written into; they are locked.
 */
extern List *scdc_sink_check(ScdcQuery *query, TupleDesc batch, bool create);

/* A check that was passed; zeroed: none. */
typedef struct ScdcSinkCheck
{
	MemoryContext context;		/* of what follows; NULL: no check */
	TupleDesc	batch;
	List	   *targets;
	uint64		messages;		/* that had come when it began */
} ScdcSinkCheck;

/* For one query's batches: checks it unless that was done, and nothing in the catalogs has changed since. */
extern void scdc_sink_check_again(ScdcQuery *query, TupleDesc batch, ScdcSinkCheck *last);
extern void scdc_sink_forget_check(ScdcSinkCheck *last);

/* Tells foreach_batch's SQL from a function's name; sets the query's sink_kind and sink. */
extern void scdc_sink_resolve(ScdcQuery *query);

/* Replaces the name of a sink by its qualified name, whether there is one or it has to be made. */
extern void scdc_sink_qualify(ScdcQuery *query);

/* Writes one batch; returns how many rows went out, -1 if nobody knows. */
extern int64 scdc_sink_write(const ScdcQuery *query, TupleDesc batch, Tuplestorestate *rows, int64 nrows, int64 batch_id);

/* Puts the plan of the query, line by line, with "batch" empty. */
extern void scdc_sink_explain(const ScdcQuery *query, TupleDesc batch, Tuplestorestate *lines, TupleDesc line);

/* A name for the progress record, and what it guarantees. */
extern char *scdc_sink_description(const ScdcQuery *query);
extern const char *scdc_sink_guarantee(const ScdcQuery *query);

/* Is what is written, or any part of it, on another server? */
extern bool scdc_sink_is_foreign(const ScdcQuery *query);

#endif							/* SCDC_SINK_H */
