/*-------------------------------------------------------------------------
 *
 * read_snapshot.h
 *	  The moment as of which a statement reads the change log.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_READ_SNAPSHOT_H
#define SCDC_READ_SNAPSHOT_H

#include "nodes/pg_list.h"
#include "utils/snapshot.h"

#include "sql/resolve.h"

/* One read of one stream. */
typedef struct ScdcRead
{
	ScdcTarget *target;			/* the stream as the snapshot shows it */
	Snapshot	snapshot;		/* registered until scdc_read_end */
	bool		by_identity;	/* versions without row identity are refused in any mode */
	/* for fold.c */
	bool		as_recorded;	/* gaps are passed over, and what is incomplete is taken as it is */
	Snapshot	seen_by;		/* versions whose transactions this one does not see are left out; NULL: none are */
} ScdcRead;

/*
 * Resolves the table (name, or with NULL relid), checks the caller's rights,
 * and waits as api.md section 2 says: until capture has reached the position
 * of now and the stream's baseline is complete.  All reads of one statement
 * get the same snapshot.
 *
 * Raises what resolving raises; 25001 if the caller's own transaction tracked
 * the table; 55000 if capture is stalled or the baseline is not complete.
 */
extern void scdc_read_begin(ScdcRead *read, const char *name, Oid relid);
extern void scdc_read_end(ScdcRead *read);

#endif							/* SCDC_READ_SNAPSHOT_H */
