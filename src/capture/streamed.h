/*-------------------------------------------------------------------------
 *
 * streamed.h
 *	  Transactions that are decoded while they are still running.
 *
 * When the transactions being put together outgrow
 * logical_decoding_work_mem, the reorder buffer hands out what it has of the
 * largest one, rather than writing it to disk change by change.  Here those
 * changes are packed and compressed at once, which makes them ten times
 * smaller, and kept until the transaction's end: a commit feeds them to
 * collect.c as if they had just been decoded, an abort throws them away.
 *
 * The events of a rolled-back subtransaction are left out at commit; to that
 * end every event is kept with the xid that wrote it.  The commit says which
 * subtransactions count: the reorder buffer does not tell of the abort of one
 * whose changes it had on disk before it streamed them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_STREAMED_H
#define SCDC_STREAMED_H

#include "capture/collect.h"
#include "capture/inbox_reader.h"

extern void scdc_streamed_init(void);

/* One event of a running transaction; subxid is its own or a subtransaction's. */
extern void scdc_streamed_event(TransactionId xid, TransactionId subxid, ScdcTracked *t, ScdcSchema *schema,
								const ScdcEvent *event);

/* Where decoding is in its commands; made when there is none, with create. */
extern ScdcCommands *scdc_streamed_commands(TransactionId xid, bool create);

/* It carries a message of ours, which counts when it commits. */
extern void scdc_streamed_message(TransactionId xid);

/* A transaction is rolled back. */
extern void scdc_streamed_abort(TransactionId xid);

/*
 * It has committed: hands its events to collect.c, between the caller's
 * scdc_collect_begin and scdc_collect_commit.  True if it carried a message.
 * committed: its own xid and those of its subtransactions that were not rolled
 * back; gets sorted.
 */
extern bool scdc_streamed_commit(TransactionId xid, TransactionId *committed, int ncommitted);

#endif							/* SCDC_STREAMED_H */
