/*-------------------------------------------------------------------------
 *
 * spool.h
 *	  A queue of finished blocks that goes to a temporary file when it grows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_SPOOL_H
#define SCDC_SPOOL_H

#include "log/block.h"

typedef struct ScdcSpool ScdcSpool;

/* To be called once per process, before any spool is made. */
extern void scdc_spool_init(void);

/* An empty queue; it lives until freed, across transactions.  meta_size: bytes that go with each block. */
extern ScdcSpool *scdc_spool_create(Size meta_size);

/*
 * Appends a copy of the block.  It stays in memory as long as the queue's
 * memory stays below memory_max, and nothing has gone to the file before it.
 */
extern void scdc_spool_append(ScdcSpool *spool, const void *meta, const ScdcBlock *block, Size memory_max);

extern Size scdc_spool_memory(const ScdcSpool *spool);

/* Reads from the beginning; the block's bytes are valid until the next call.  False at the end. */
extern void scdc_spool_rewind(ScdcSpool *spool);
extern bool scdc_spool_next(ScdcSpool *spool, void *meta, ScdcBlock *block);

extern void scdc_spool_free(ScdcSpool *spool);

#endif							/* SCDC_SPOOL_H */
