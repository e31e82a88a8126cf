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

typedef struct ScdcChangeReader ScdcChangeReader;

/* A row of the result.  The view is good until the next one is asked for. */
typedef struct ScdcChange
{
	ScdcChangeType type;
	int64		version;
	TimestampTz timestamp;
	ScdcRowView *view;
} ScdcChange;

/*
 * Reads the change rows of a range one by one, in order of version and then
 * of the change inside it.  The reader lives in a context of its own below
 * the current one; what it opens belongs to the current resource owner.
 *
 * A range that holds a gap, an incomplete image, or versions without the
 * identity that the options need is refused at the beginning, with 55000 or
 * 42P17, however much of it will be read.
 */
extern ScdcChangeReader *scdc_changes_begin(const ScdcRead *read, ScdcRowSchemas *schemas, ScdcVersionRange range,
											ScdcDeduplication mode, bool compute_updates);
extern bool scdc_changes_next(ScdcChangeReader *reader, ScdcChange *change);	/* false at the end */
extern int64 scdc_changes_blocks(const ScdcChangeReader *reader);	/* blocks opened so far */
extern void scdc_changes_end(ScdcChangeReader *reader);

/* Raises 55000: an event whose old image was not in WAL. */
extern void scdc_incomplete_version(const ScdcTarget *target, int64 version) pg_attribute_noreturn();

#endif							/* SCDC_CHANGES_H */
