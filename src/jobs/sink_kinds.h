/*-------------------------------------------------------------------------
 *
 * sink_kinds.h
 *	  The kinds of sink, for sink.c: relations (sink_table.c) and functions
 *	  (sink_function.c).
 *
 * All of it runs inside SPI with "batch" registered, under the settings of the
 * one who started the query.  text is the query's text, columns what it
 * returns.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_SINK_KINDS_H
#define SCDC_SINK_KINDS_H

#include "access/tupdesc.h"

#include "jobs/query.h"

#define SCDC_BATCH	"batch"

/* Checks the query; returns its columns, in the current context. */
extern TupleDesc scdc_sink_query_columns(const char *text);

/* Index of a column, -1 if there is none. */
extern int	scdc_sink_find_column(TupleDesc desc, const char *name);

/* As scdc_sink_check and scdc_sink_write; check returns the OIDs of what is written into, write the number of rows. */
extern List *scdc_sink_table_check(ScdcQuery *query, const char *text, TupleDesc columns, bool create);
extern int64 scdc_sink_table_write(const ScdcQuery *query, const char *text);

/* Was this batch written to the other server before, and only our side of it lost?  To be noted after it is written. */
extern bool scdc_sink_is_written(const ScdcQuery *query, int64 batch_id);
extern void scdc_sink_note_written(const ScdcQuery *query, int64 batch_id);

/* What the functions are themselves is checked by scdc_sink_resolve, and again when they are called. */
extern void scdc_sink_function_check_rows(const ScdcQuery *query, const char *text, TupleDesc columns);
extern void scdc_sink_function_write_batch(const ScdcQuery *query, const char *text, int64 batch_id);
extern void scdc_sink_function_write_rows(const ScdcQuery *query, const char *text, int64 batch_id);

#endif							/* SCDC_SINK_KINDS_H */
