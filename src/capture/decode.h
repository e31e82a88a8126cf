/*-------------------------------------------------------------------------
 *
 * decode.h
 *	  The output plugin: reorder-buffer changes in, events to collect.c out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_DECODE_H
#define SCDC_DECODE_H

/*
 * Transactional messages of ours: a hint that a table was tracked, untracked
 * or dropped in the transaction, or that a command has left something in the
 * inbox (ddl/inbox.h).  Anybody can write such a message, so it only
 * makes capture look at its tables.
 */
#define SCDC_MESSAGE_PREFIX "streamcdc"

/* Writes one, at the current transaction's place in WAL; gives it an xid. */
extern void scdc_emit_message(void);

/* Must be called before a decoding context is made: the plugin refuses any other caller. */
extern void scdc_decode_init(void);

/* Has a message of ours been decoded, and not been dealt with? */
extern bool scdc_decode_has_message(void);

/*
 * Deals with messages: true if there was one whose transaction is visible by
 * now, so that our tables are worth a look.  A commit is decoded as soon as it
 * is flushed, and may be visible only later.
 */
extern bool scdc_decode_take_message(void);

/* Was there a row, since the last call, so large that memory should be given back to the system? */
extern bool scdc_decode_take_large(void);

#endif							/* SCDC_DECODE_H */
