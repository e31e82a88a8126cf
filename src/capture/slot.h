/*-------------------------------------------------------------------------
 *
 * slot.h
 *	  The replication slot and the decoding context: life cycle and reading.
 *
 * At most one of each per process.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_SLOT_H
#define SCDC_SLOT_H

#include "access/xlogdefs.h"

/* Reserves a new slot for this database; gone again if the process ends before it is built. */
extern void scdc_slot_reserve(const char *name);

/*
 * Builds the reserved slot: waits for every older transaction, then makes it
 * permanent.  Returns the consistent point.  Not within a transaction that
 * has written.
 */
extern XLogRecPtr scdc_slot_build(void);

/*
 * Why the slot cannot be continued from position: NULL if it can, else a
 * palloc'd sentence.
 */
extern char *scdc_slot_problem(const char *name, XLogRecPtr position);

/* Drops the slot if it is there, held by this process or by nobody. */
extern void scdc_slot_drop(const char *name);

/* Acquires the slot and opens decoding at position.  Outside a transaction. */
extern void scdc_slot_open(const char *name, XLogRecPtr position);

/* Decodes the next WAL record that is flushed.  False if there is none yet. */
extern bool scdc_slot_read_record(void);

/* End of the last record read. */
extern XLogRecPtr scdc_slot_read_upto(void);

/* Has anything worth a new position been read since the last call (not just our own writes and the server's idle noise)? */
extern bool scdc_slot_saw_foreign_wal(void);

extern void scdc_slot_confirm(XLogRecPtr position);
extern XLogRecPtr scdc_slot_restart_lsn(void);

/*
 * Gives back what a large row took: the WAL reader keeps a buffer as large as
 * the largest record, and the C library what was in many pieces.
 */
extern void scdc_slot_trim(void);

#endif							/* SCDC_SLOT_H */
