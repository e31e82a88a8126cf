/*-------------------------------------------------------------------------
 *
 * fold.h
 *	  What a log comes to: the rows that a table had after one of its versions.
 *
 * Where rows have an identity, its last image counts; elsewhere rows are equal
 * if all their columns print the same, and are counted.  Gaps are passed over:
 * the result is what was recorded.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_FOLD_H
#define SCDC_FOLD_H

#include "sql/resolve.h"
#include "sql/row.h"

typedef struct ScdcFold ScdcFold;

/*
 * Everything from the stream's baseline on up to a version, as the snapshot
 * shows it; without what was committed later than seen_by sees, if that is given.
 * (Versions that change one row are seen one after the other, so what is left
 * out changes nothing else.)  Lives in a context of its own below the current one; files
 * belong to the current resource owner.  Raises XX001 for damaged blocks.
 */
extern ScdcFold *scdc_fold_begin(const ScdcTarget *target, int64 upto, Snapshot snapshot, Snapshot seen_by);

/* The next row, in no order; NULL at the end.  Good until the next call. */
extern ScdcRowView *scdc_fold_next(ScdcFold *fold);
extern void scdc_fold_end(ScdcFold *fold);

/*
 * A digest of a row as text, by the columns of a schema, which may be a later one than
 * the row's; equal for rows that print the same.  A bytea in the current context.
 * With settings pinned by scdc_pin_output_settings.
 */
extern bytea *scdc_row_digest(ScdcRowView *row, const ScdcSchema *columns, Snapshot snapshot);

#endif							/* SCDC_FOLD_H */
