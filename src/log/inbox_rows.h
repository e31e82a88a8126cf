/*-------------------------------------------------------------------------
 *
 * inbox_rows.h
 *	  The inbox as rows of streamcdc.inbox: what WAL does not carry, on its
 *	  way from the command that does it to the capture worker.
 *
 * The rows of a transaction are numbered in the order in which they were
 * written; numbers of rolled-back subtransactions are missing.  Row images
 * are packed into blocks (block.h) whose directory has one meaningless
 * version.  Each such row brings the schemas of its images along, as bytes,
 * because capture reads it at another point of history than the images were
 * made at.
 *
 * The table is a user catalog table, so that capture can read it under the
 * historic snapshot of a place inside the transaction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_INBOX_ROWS_H
#define SCDC_INBOX_ROWS_H

#include "log/block.h"
#include "utils/snapshot.h"

/* kinds of a row; on disk */
#define SCDC_INBOX_EVENTS		'e' /* a block of inserts, updates or deletes */
#define SCDC_INBOX_TRUNCATED	't' /* the next TRUNCATE of relid in WAL is accounted for */
#define SCDC_INBOX_REWRITTEN	'r' /* the rewrite of relid through the transient table new_heap is */
#define SCDC_INBOX_GAP			'g' /* changes are not recorded here */
#define SCDC_INBOX_ENDS			'x' /* nor will any be from here on: the table is not logged any more */

typedef struct ScdcInboxRow
{
	uint64		xid;			/* of the top-level transaction */
	int64		entry;			/* number of the row in it, from 1 */
	int64		stream_id;
	Oid			relid;			/* the table whose rows these are */
	char		kind;			/* SCDC_INBOX_* */
	Oid			new_heap;		/* SCDC_INBOX_REWRITTEN; else InvalidOid */
	ScdcBytes	schema;			/* SCDC_INBOX_EVENTS: scdc_schema_pack of the images' schema ... */
	ScdcBytes	old_schema;		/* ... and of the old images' one, if that is another */
	ScdcBlock	block;			/* SCDC_INBOX_EVENTS */
	TransactionId subxid;		/* read only: the (sub)transaction that wrote it */
} ScdcInboxRow;

extern void scdc_inbox_insert(const ScdcInboxRow *row);

/*
 * First row of a transaction after an entry (0: the very first).  False if
 * there is none.  snapshot: registered by the caller; NULL: the catalog
 * snapshot, historic while decoding.  The bytes are palloc'd.  A scan of its
 * own for each row, which is what decoding running transactions allows.
 */
extern bool scdc_inbox_next(uint64 xid, int64 after, Snapshot snapshot, ScdcInboxRow *row);

/* Deletes the rows of a transaction that the (registered) snapshot sees. */
extern void scdc_inbox_delete(uint64 xid, Snapshot snapshot);

/*
 * Calls fn for each transaction of which the snapshot (registered, or
 * SnapshotAny) sees rows.
 */
extern void scdc_inbox_each(Snapshot snapshot, void (*fn) (uint64 xid));

#endif							/* SCDC_INBOX_ROWS_H */
