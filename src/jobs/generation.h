/*-------------------------------------------------------------------------
 *
 * generation.h
 *	  What a batch leaves in the state store for the next one: records in
 *	  order, written and read from end to end (see flow.h).
 *
 * Nobody looks for one of them, so they are stored many to a key.  Batch and
 * place make the key, so that generations lie behind one another.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_GENERATION_H
#define SCDC_GENERATION_H

#include "port/pg_crc32c.h"

#include "state/store.h"

/* One that is written. */
typedef struct ScdcGenerationWriter
{
	ScdcStore  *store;
	int64		batch_id;
	int64		records;
	pg_crc32c	crc;			/* of all keys and values; complete after scdc_generation_finish */
	bool		first;			/* is the record at hand the first of its pack? */
	/* private */
	MemoryContext context;
	char	   *pack;
	Size		pack_len;
	Size		pack_room;		/* may be more than 1 GB: two large rows in one record */
	int64		npacks;
	Size		record;			/* where the one that is being added begins */
} ScdcGenerationWriter;

/* One that is read. */
typedef struct ScdcGenerationReader
{
	ScdcStore  *store;
	int64		records;
	pg_crc32c	crc;
	bool		first;			/* is the record that was returned last the first of its pack? */
	/* private */
	ScdcStoreScan *scan;
	const char *at;				/* in the pack at hand */
	Size		left;
} ScdcGenerationReader;

/* Begins the generation of a batch.  What an unfinished try of it may have left goes.  Lives in the current context. */
extern void scdc_generation_write(ScdcGenerationWriter *w, ScdcStore *store, int64 batch_id);

/* Room for so many bytes behind those of the record at hand; adds some that were put there. */
extern uint8 *scdc_generation_room(ScdcGenerationWriter *w, Size len);
extern void scdc_generation_add(ScdcGenerationWriter *w, Size len);

/* Ends the record, and returns its length. */
extern Size scdc_generation_end_record(ScdcGenerationWriter *w);
extern void scdc_generation_finish(ScdcGenerationWriter *w);

/* Begins to read the generation of a batch, which may be empty. */
extern void scdc_generation_read(ScdcGenerationReader *r, ScdcStore *store, int64 batch_id);

/* The next record, at no particular address, good until the next call; false at the end. */
extern bool scdc_generation_next(ScdcGenerationReader *r, const char **data, Size *len);

/* At the end: raises XX001 if what was read is not what was written. */
extern void scdc_generation_check(ScdcGenerationReader *r, int64 records, uint32 crc);

/* Deletes the generation of a batch, of that many records. */
extern void scdc_generation_forget(ScdcStore *store, int64 batch_id, int64 records);

#endif							/* SCDC_GENERATION_H */
