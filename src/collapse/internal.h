/*-------------------------------------------------------------------------
 *
 * internal.h
 *	  What the files of the collapse library share.
 *
 * The way of a row through it:
 *
 *		event --> netting.c --.                         .--> sorter.c --> emit
 *		                       >-- passes, collapse.c --<       ^
 *		row ---> grouping.c --'                         '--> range.c
 *
 * netting.c and grouping.c hold one commit, range.c the whole range; each has
 * its own share of the memory, and each splits what does not fit into
 * partitions by the hash of the identity, which go to files (spill.c) and are
 * worked through one after another.  What comes out of partitions is in no
 * order, hence sorter.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_COLLAPSE_INTERNAL_H
#define SCDC_COLLAPSE_INTERNAL_H

#include "collapse/collapse.h"

/* ---------------------------------------------------------------------
 * memory (pool.c)
 * ---------------------------------------------------------------------
 */

#ifdef FRONTEND
typedef void *ScdcContext;
#define scdc_current_context()			NULL
#define scdc_context_alloc(cxt, size)	palloc(size)
#else
typedef MemoryContext ScdcContext;
#define scdc_current_context()			CurrentMemoryContext
#define scdc_context_alloc(cxt, size)	MemoryContextAllocHuge(cxt, size)
#endif

#define SCDC_POOL_STEP		16
#define SCDC_POOL_CLASSES	64		/* pieces up to 1 kB are cut from chunks */

/*
 * Pieces of any size, given back one by one or all at once.  It never
 * refuses; its owner asks whether it is full.
 */
typedef struct ScdcPool
{
	ScdcContext context;
	Size		limit;			/* 0: none */
	Size		used;			/* all that was taken from the context, and what the owner adds */
	Size		chunk_size;
	struct ScdcPoolChunk *chunks;	/* newest first */
	struct ScdcPoolLarge *large;
	char	   *next;			/* free part of the newest chunk */
	Size		left;
	void	   *given_back[SCDC_POOL_CLASSES];
} ScdcPool;

extern void scdc_pool_init(ScdcPool *pool, ScdcContext context, Size limit);
extern void *scdc_pool_alloc(ScdcPool *pool, Size size);
extern void scdc_pool_reset(ScdcPool *pool);	/* keeps one chunk */
extern void scdc_pool_end(ScdcPool *pool);

/* ---------------------------------------------------------------------
 * rows kept, and tables of identities
 * ---------------------------------------------------------------------
 */

/*
 * A row with its place.  "order" settles the place among rows of one event:
 * the identity that a key change leaves comes before the one it reaches, and
 * a pre-image before its post-image.
 */
typedef struct ScdcPlacedRow
{
	ScdcChangeRow change;
	uint32		size;
	uint32		hash;			/* of its identity */
	uint8		order;
} ScdcPlacedRow;

#define SCDC_ORDER_INSERT_LIKE	1
#define SCDC_ORDER_BROUGHT		2

/*
 * A row kept in a pool, with as much of its place as its owner does not know
 * by itself.  The bytes follow.
 */
typedef struct ScdcKeptRow
{
	union
	{
		struct
		{
			struct ScdcKeptRow *next;
			union
			{
				struct ScdcKeptRow *prev;
				struct ScdcIdentity *identity;
			};
		};						/* of a commit */
		struct
		{
			int64		version;
			int64		timestamp;
		};						/* of the range */
	};
	int64		seq;
	uint32		size;
	uint8		type;
	uint8		order;
	uint16		room;			/* for this and the bytes, in steps of the pool; 0: just what is needed */
} ScdcKeptRow;

static inline void *
scdc_kept_bytes(const ScdcKeptRow *row)
{
	return (char *) unconstify(ScdcKeptRow *, row) + MAXALIGN(sizeof(ScdcKeptRow));
}

/* The beginning of every table entry; what else is in it is its owner's. */
typedef struct ScdcIdentity
{
	struct ScdcIdentity *next;	/* in the order of arrival */
	const void *key;			/* a row of this identity that is kept */
	uint32		hash;
} ScdcIdentity;

/* Where in the table an entry is; most searches end here, without a look at the entry. */
typedef struct ScdcSlot
{
	ScdcIdentity *entry;		/* NULL: empty */
	uint32		hash;
} ScdcSlot;

typedef struct ScdcTable
{
	ScdcPool   *pool;
	Size		entry_size;
	ScdcSlot   *slots;
	uint32		nslots;			/* a power of two */
	uint32		nentries;
	ScdcIdentity *first;
	ScdcIdentity *last;
} ScdcTable;

extern void scdc_table_init(ScdcTable *table, ScdcPool *pool, Size entry_size);
extern ScdcIdentity *scdc_table_find(ScdcCollapse *c, ScdcTable *table, const void *row, uint32 hash);
/* A new entry, zeroed but for the header; the caller sets its key. */
extern ScdcIdentity *scdc_table_add(ScdcTable *table, uint32 hash);
/* Would a new entry go beyond the limit? */
extern bool scdc_table_is_full(const ScdcTable *table);
/* Forgets all entries; the caller resets the pool. */
extern void scdc_table_reset(ScdcTable *table);
extern void scdc_table_end(ScdcTable *table);

/*
 * Fetches into the processor's cache what a search for the hash will look at:
 * first the slot, and when that is there, the entry.
 */
static inline void
scdc_table_prefetch_slot(const ScdcTable *table, uint32 hash)
{
#ifdef __GNUC__
	__builtin_prefetch(&table->slots[hash & (table->nslots - 1)]);
#endif
}

static inline void
scdc_table_prefetch_entry(const ScdcTable *table, uint32 hash)
{
#ifdef __GNUC__
	uint32		mask = table->nslots - 1;

	for (uint32 i = hash & mask, n = 0; table->slots[i].entry && n < 8; i = (i + 1) & mask, n++)
	{
		const char *entry = (const char *) table->slots[i].entry;

		if (table->slots[i].hash != hash)
			continue;
		/* the first row of an identity is allocated next to its entry */
		__builtin_prefetch(entry);
		__builtin_prefetch(entry + 64);
		__builtin_prefetch(entry + 128);
		break;
	}
#endif
}

extern ScdcKeptRow *scdc_keep_row(ScdcPool *pool, const ScdcPlacedRow *placed);
extern void scdc_drop_row(ScdcPool *pool, ScdcKeptRow *row);

/* Is there room for the row in the place of this one, without much being wasted? */
extern bool scdc_row_fits(const ScdcKeptRow *kept, uint32 size);

/* Writes the row to where there is room for it. */
extern void scdc_set_row(ScdcKeptRow *kept, const ScdcPlacedRow *placed);

/* The place of a kept row; version and timestamp are the owner's to know, or the row's. */
static inline ScdcPlacedRow
scdc_place_of(const ScdcKeptRow *kept, int64 version, int64 timestamp, uint32 hash)
{
	ScdcPlacedRow placed;

	placed.change.type = (ScdcChangeType) kept->type;
	placed.change.version = version;
	placed.change.timestamp = timestamp;
	placed.change.seq = kept->seq;
	placed.change.row = scdc_kept_bytes(kept);
	placed.size = kept->size;
	placed.hash = hash;
	placed.order = kept->order;
	return placed;
}

/* ---------------------------------------------------------------------
 * partitions (spill.c)
 * ---------------------------------------------------------------------
 */

#define SCDC_MAX_PARTITIONS 64

/* What is written: one or two rows of one identity, of one event or commit. */
typedef struct ScdcRecord
{
	uint32		hash;
	ScdcPlacedRow rows[2];		/* change.row NULL: there is none */
} ScdcRecord;

typedef struct ScdcPartitions
{
	int			depth;			/* how often what is in them has been split */
	int			count;			/* 0: none, nothing was spilled */
	void	   *files[SCDC_MAX_PARTITIONS];
	int64		nrecords[SCDC_MAX_PARTITIONS];
	int64		version[SCDC_MAX_PARTITIONS];	/* of the last record */
	int64		timestamp[SCDC_MAX_PARTITIONS];
} ScdcPartitions;

/* Reads back one of them. */
typedef struct ScdcPartition
{
	ScdcCollapse *c;
	void	   *file;
	int64		nrecords;
	int64		left;
	int			depth;
	int64		version;		/* of the record before */
	int64		timestamp;
	char	   *buffer;			/* of the row bytes, enlarged as needed */
	Size		size;
} ScdcPartition;

extern bool scdc_can_split(int depth);	/* does the hash suffice to split once more? */
extern void scdc_spill(ScdcCollapse *c, ScdcPartitions *parts, const ScdcRecord *record);

/* Opens a partition for reading, false if it is empty; takes it away from parts. */
extern bool scdc_partition_open(ScdcCollapse *c, ScdcPartitions *parts, int n, ScdcPartition *partition);
extern void scdc_partition_rewind(ScdcPartition *partition);
extern bool scdc_partition_read(ScdcPartition *partition, ScdcRecord *record);	/* rows are good until the next call */
extern void scdc_partition_close(ScdcPartition *partition);

/*
 * Settles what is in a stage's table, then, in its place, what is in each of
 * its partitions, which are fed again and may be split again.
 */
extern void scdc_settle(ScdcCollapse *c, ScdcTable *table, ScdcPartitions *spilled,
						void (*settle_table) (ScdcCollapse *c),
						void (*feed) (ScdcCollapse *c, const ScdcRecord *record));

/* ---------------------------------------------------------------------
 * rows on their way out (sorter.c)
 * ---------------------------------------------------------------------
 */

typedef struct ScdcSorter
{
	ScdcPool	pool;			/* of copied rows */
	ScdcPlacedRow *rows;
	Size		nrows;
	Size		room;
	bool		sorted;			/* have they come in order? */
	struct ScdcRun *runs;		/* sorted, in files */
	int			nruns;
	struct ScdcMerge *merge;	/* of runs, allocated with them */
	char	   *buffer;
	Size		buffer_size;
	bool		taking;			/* between scdc_sorter_begin and the end of the rows */
	Size		next;			/* to be taken, of those in memory */
} ScdcSorter;

extern void scdc_sorter_init(ScdcCollapse *c, Size limit);

/* copy: the row's bytes will not last until the rows are emitted. */
extern void scdc_sorter_add(ScdcCollapse *c, const ScdcPlacedRow *row, bool copy);

/* Takes the rows out again, in order; after the last one (NULL) all are forgotten.  Nothing may be added meanwhile. */
extern void scdc_sorter_begin(ScdcCollapse *c);
extern const ScdcChangeRow *scdc_sorter_next(ScdcCollapse *c);
extern void scdc_sorter_emit(ScdcCollapse *c);	/* the same, by the caller's function */
extern void scdc_sorter_end(ScdcCollapse *c);

/* ---------------------------------------------------------------------
 * the stages
 * ---------------------------------------------------------------------
 */

/* netting.c: events of a commit to its net deletes and inserts */
typedef struct ScdcNetting
{
	ScdcPool	pool;
	ScdcTable	table;
	int64		version;		/* of the commit */
	int64		timestamp;
	ScdcPartitions spilled;
} ScdcNetting;

extern void scdc_netting_init(ScdcCollapse *c, Size limit);
extern void scdc_netting_event(ScdcCollapse *c, const ScdcPlacedRow *old_row, const ScdcPlacedRow *new_row);
extern void scdc_netting_end_commit(ScdcCollapse *c);
extern void scdc_netting_reset(ScdcCollapse *c);
extern void scdc_netting_end(ScdcCollapse *c);

/* grouping.c: labelled rows of a commit to groups */
typedef struct ScdcGrouping
{
	ScdcPool	pool;
	ScdcTable	table;
	ScdcKeptRow *first;
	ScdcKeptRow *last;
	int64		version;		/* of the commit */
	int64		timestamp;
	ScdcPartitions spilled;
} ScdcGrouping;

extern void scdc_grouping_init(ScdcCollapse *c, Size limit);
extern void scdc_grouping_row(ScdcCollapse *c, const ScdcPlacedRow *row);
extern void scdc_grouping_end_commit(ScdcCollapse *c);
extern void scdc_grouping_reset(ScdcCollapse *c);
extern void scdc_grouping_end(ScdcCollapse *c);

/* range.c: first and last of each identity */
typedef struct ScdcRangeStage
{
	ScdcPool	pool;
	ScdcTable	table;
	ScdcPartitions spilled;
} ScdcRangeStage;

extern void scdc_range_init(ScdcCollapse *c, Size limit);
/* A labelled row, or a delete and an insert of one identity in one commit of events. */
extern void scdc_range_add(ScdcCollapse *c, const ScdcPlacedRow *row, const ScdcPlacedRow *second);
extern void scdc_range_finish(ScdcCollapse *c);
extern void scdc_range_end(ScdcCollapse *c);

struct ScdcCollapse
{
	ScdcCollapseOps ops;
	ScdcPasses	passes;
	bool		compute_updates;
	ScdcContext context;
	Size		memory_limit;	/* of all together; 0: none */
	ScdcKeptRow *unexpected;	/* the first row with a label that net changes cannot take, or NULL */
	uint32		work;			/* since the last check for interrupts */

	ScdcNetting netting;
	ScdcGrouping grouping;
	ScdcRangeStage range;
	ScdcSorter	sorter;
};

/*
 * collapse.c: puts out a row that has been through the row-level passes.
 * lasts: its bytes stay where they are until the commit or range is emitted.
 */
extern void scdc_put_row(ScdcCollapse *c, const ScdcPlacedRow *row, bool lasts);

/* collapse.c: what became of an identity in a commit of events; either may be NULL */
extern void scdc_put_change(ScdcCollapse *c, ScdcPlacedRow *before, ScdcPlacedRow *after, bool lasts);

static inline void
scdc_check_interrupts(ScdcCollapse *c)
{
	if ((++c->work & 1023) == 0 && c->ops.check_interrupts)
		c->ops.check_interrupts(c->ops.arg);
}

#endif							/* SCDC_COLLAPSE_INTERNAL_H */
