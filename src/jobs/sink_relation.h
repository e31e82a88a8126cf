/*-------------------------------------------------------------------------
 *
 * sink_relation.h
 *	  The parts of sink_table.c: what it takes to write into a relation.
 *
 * As in sink_kinds.h, all of it runs inside SPI with "batch" registered; text
 * is the query's text, columns what it returns.  Results are in the current
 * context.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_SINK_RELATION_H
#define SCDC_SINK_RELATION_H

#include "lib/stringinfo.h"
#include "utils/relcache.h"

#include "jobs/query.h"

/* ---- sink_names.c ---- */

/* Is it one of the columns that the batch has beside those of the source? */
extern bool scdc_sink_is_metadata(const char *column);

/* Adds quoted names, with commas between them, and a prefix before each. */
extern void scdc_sink_add_names(StringInfo s, const char *prefix, List *names);
extern bool scdc_sink_has_name(List *names, const char *name);

/* The row identity of the source. */
extern bool scdc_sink_is_key(const ScdcQuery *query, const char *column);
extern List *scdc_sink_keys(const ScdcQuery *query);

/* The name of a relation as users write it, taken apart; and one with its schema, quoted. */
extern RangeVar *scdc_sink_range_var(const char *name);
extern char *scdc_sink_relation_name(Oid relid);

/* Runs a command that we have made; SPI_processed tells of its rows. */
extern void scdc_sink_run(const char *sql);

/* ---- sink_schema.c ---- */

/* Makes the sink, with the query's columns; mirrors leave the metadata columns out. */
extern void scdc_sink_create(ScdcQuery *query, RangeVar *name, TupleDesc columns);

/* Gives the sink the columns of the query that it does not have; returns the names of those that are new. */
extern List *scdc_sink_merge_schema(const ScdcQuery *query, Oid relid, TupleDesc columns, bool create);

/* Brings the rows of a mirror up to date with what its columns mean now; added: those that merge_schema has made. */
extern void scdc_sink_renew_columns(const ScdcQuery *query, Relation sink, List *added);

/* ---- sink_mirror.c ---- */

/* Raise 42703, 42804, 42P10 and their like if query or sink cannot make a mirror. */
extern void scdc_mirror_check_query(const ScdcQuery *query, TupleDesc columns);
extern void scdc_mirror_check(const ScdcQuery *query, TupleDesc columns, Relation sink);

/* Commands that make the sink equal the source; replace: rows of the batch are deleted and inserted again. */
extern List *scdc_mirror_sql(const ScdcQuery *query, const char *text, List *columns, Relation sink, bool replace);
extern bool scdc_mirror_is_replaceable(Relation sink);

/* ---- sink_progress.c (what sink.c calls is in sink_kinds.h) ---- */

/* Can the progress table be written into as that will be done? */
extern void scdc_sink_check_progress(const ScdcQuery *query);

/* ---- sink_partitions.c ---- */

/* Makes the partitions that a batch needs, at all levels. */
extern void scdc_sink_make_partitions(const ScdcQuery *query, const char *text, Oid sink);

#endif							/* SCDC_SINK_RELATION_H */
