/*-------------------------------------------------------------------------
 *
 * compare.h
 *	  What differs between a table and its log.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_COMPARE_H
#define SCDC_COMPARE_H

#include "sql/resolve.h"
#include "sql/row.h"

/* A row that only one of the two has; good during the call. */
typedef void (*ScdcDifferenceFn) (bool in_table, ScdcRowView *row, void *arg);

/*
 * Compares the table, as a snapshot shows it, with what the log comes to,
 * folded as the later snapshot "log" shows it without versions that the first does
 * not see.  Rows are equal if all their columns print the same, and are
 * counted.  The caller has locked the table and what is below it (relids), and
 * holds the stream's vacuum lock.  Functions of users run as the table's owner.
 */
extern void scdc_compare(const ScdcTarget *target, List *relids, Snapshot snapshot, Snapshot log, ScdcDifferenceFn fn, void *arg);

#endif							/* SCDC_COMPARE_H */
