/*-------------------------------------------------------------------------
 *
 * inbox_reader.h
 *	  The capture worker's side of the inbox (ddl/inbox.h): rows in, events
 *	  out, and what they say about the commands in WAL.
 *
 * A TRUNCATE in WAL counts as recorded if the inbox said so before it; the
 * rows of a rewritten table are a gap unless the inbox says, behind them and
 * before the next change of the table, what the rewrite changed.  So whatever
 * writes no inbox entry (a hook that failed, a subscription's TRUNCATE, a
 * library that is not loaded) is a gap.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_INBOX_READER_H
#define SCDC_INBOX_READER_H

#include "capture/collect.h"

/* Where decoding is in a transaction's commands; all zero at its beginning. */
typedef struct ScdcCommands
{
	int64		entry;			/* last row of the inbox that was taken */
	List	   *truncated;		/* OIDs of tables whose next TRUNCATE is recorded */
	List	   *rewrites;		/* that wait for their entry */
	MemoryContext cxt;			/* of the lists; the owner's */
} ScdcCommands;

/* Takes an event of the (sub)transaction subxid. */
typedef void (*ScdcTakeEvent) (TransactionId subxid, ScdcTracked *t, ScdcSchema *schema, const ScdcEvent *event);

/*
 * Under a historic snapshot: takes what the inbox holds here for the
 * transaction xid.  Leaves garbage in the current context.
 */
extern void scdc_inbox_read(ScdcCommands *commands, uint64 xid, ScdcTakeEvent take);

/* A TRUNCATE of the table: is it recorded? */
extern bool scdc_commands_truncated(ScdcCommands *commands, Oid relid);

/* A row of the new heap of a table that is being rewritten. */
extern void scdc_commands_rewriting(ScdcCommands *commands, Oid new_heap, Oid rewritten, TransactionId subxid,
									ScdcTracked *t, ScdcSchema *schema);

/* The table (InvalidOid: any) goes on: a rewrite without an entry is a gap. */
extern void scdc_commands_settle(ScdcCommands *commands, Oid relid, ScdcTakeEvent take);

/* ---- removing rows, outside decoding ---- */

/* At start: rows that are there now have been taken when capture has passed the end of their transaction. */
extern void scdc_inbox_note_left_over(void);

/* Rows of this transaction will be stored with the next scdc_collect_write. */
extern void scdc_inbox_note_taken(uint64 xid);

/* In the transaction that stores position: removes what was taken. */
extern void scdc_inbox_clean(XLogRecPtr position);

#endif							/* SCDC_INBOX_READER_H */
