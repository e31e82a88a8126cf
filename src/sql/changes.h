/*-------------------------------------------------------------------------
 *
 * changes.h
 *	  Reading a range of a stream: from blocks to change rows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_CHANGES_H
#define SCDC_CHANGES_H

#include "collapse/collapse.h"
#include "sql/range.h"
#include "sql/read_snapshot.h"
#include "sql/row.h"

/*
 * Receives a change row.  The view is good during the call only; the current
 * memory context is reset now and then.
 */
typedef void (*ScdcPutChange) (ScdcChangeType type, int64 version, TimestampTz timestamp,
							   ScdcRowView *view, void *arg);

/*
 * Puts out the change rows of a range, in order of version and then of the
 * change inside it.  Raises 55000 at a gap or an incomplete image inside the
 * range.
 */
extern void scdc_read_changes(const ScdcRead *read, ScdcRowSchemas *schemas, ScdcVersionRange range,
							  ScdcDeduplication mode, bool compute_updates, ScdcPutChange put, void *arg);

/* Raises 55000: an event whose old image was not in WAL. */
extern void scdc_incomplete_version(const ScdcTarget *target, int64 version) pg_attribute_noreturn();

#endif							/* SCDC_CHANGES_H */
