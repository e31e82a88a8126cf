/*-------------------------------------------------------------------------
 *
 * append.h
 *	  Rows of a query, appended to an ordinary table many at a time, as COPY
 *	  does, which writes less WAL and takes less time than INSERT.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_APPEND_H
#define SCDC_APPEND_H

#include "nodes/pg_list.h"
#include "utils/rel.h"

/*
 * Can rows with these columns (names, in order of the query's, whose types
 * are in desc) be appended in this way, with the same outcome as by INSERT?
 * Not if there is more to an INSERT than putting down values of the right
 * types: triggers, rules, row security, partitions, defaults, casts, rights to
 * single columns.  Constraints and indexes are served.
 */
extern bool scdc_append_possible(Relation sink, TupleDesc desc, List *columns);

/*
 * Runs the SELECT, whose columns are those, in SPI, and appends what it
 * returns to the sink, on which the caller has a RowExclusiveLock.  Returns
 * how many rows that was.
 */
extern int64 scdc_append(Relation sink, const char *select, List *columns);

#endif							/* SCDC_APPEND_H */
