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
 * Transactional messages of ours: a hint that stream_track or stream_untrack
 * has been at work in the transaction.  Anybody can write such a message, so
 * it only makes capture look at its tables.
 */
#define SCDC_MESSAGE_PREFIX "streamcdc"

/* Must be called before a decoding context is made: the plugin refuses any other caller. */
extern void scdc_decode_init(void);

/* Has a message of ours been decoded since the last call? */
extern bool scdc_decode_saw_message(void);

/* The same without forgetting it. */
extern bool scdc_decode_has_message(void);

#endif							/* SCDC_DECODE_H */
