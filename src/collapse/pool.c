/*-------------------------------------------------------------------------
 *
 * pool.c
 *	  Memory of the collapse library: pieces that are counted, and tables of
 *	  identities made of them.
 *
 * The server's contexts could count too, but round a row of 70 bytes up to
 * 128 and cannot be built into a unit test.
 *
 *-------------------------------------------------------------------------
 */
#ifdef FRONTEND
#include "postgres_fe.h"
#else
#include "postgres.h"
#endif

#include "collapse/internal.h"

typedef struct ScdcPoolChunk
{
	struct ScdcPoolChunk *next;
	Size		size;			/* with this header */
} ScdcPoolChunk;

typedef struct ScdcPoolLarge
{
	struct ScdcPoolLarge *next;
	struct ScdcPoolLarge *prev;
} ScdcPoolLarge;

#define MIN_CHUNK		((Size) 4 * 1024)
#define MAX_CHUNK		((Size) 1024 * 1024)
#define HEADER(type)	MAXALIGN(sizeof(type))
#define MIN_BUCKETS		64

void
scdc_pool_init(ScdcPool *pool, ScdcContext context, Size limit)
{
	memset(pool, 0, sizeof(*pool));
	pool->context = context;
	pool->limit = limit;
	/* small against the limit, so that the last one does not carry far beyond it */
	pool->chunk_size = limit == 0 ? MAX_CHUNK / 16 : Min(Max(limit / 32, MIN_CHUNK), MAX_CHUNK);
}

static void *
cut(ScdcPool *pool, Size size)
{
	void	   *piece;

	if (pool->left < size)
	{
		ScdcPoolChunk *chunk = scdc_context_alloc(pool->context, pool->chunk_size);

		chunk->size = pool->chunk_size;
		chunk->next = pool->chunks;
		pool->chunks = chunk;
		pool->used += chunk->size;
		pool->next = (char *) chunk + HEADER(ScdcPoolChunk);
		pool->left = chunk->size - HEADER(ScdcPoolChunk);
	}
	piece = pool->next;
	pool->next += size;
	pool->left -= size;
	return piece;
}

static inline Size
size_class(Size size)
{
	return (size + SCDC_POOL_STEP - 1) / SCDC_POOL_STEP;
}

void *
scdc_pool_alloc(ScdcPool *pool, Size size)
{
	Size		class = size_class(size);

	if (class < SCDC_POOL_CLASSES)
	{
		void	   *piece = pool->given_back[class];

		if (piece == NULL)
			return cut(pool, class * SCDC_POOL_STEP);
		pool->given_back[class] = *(void **) piece;
		return piece;
	}
	else
	{
		ScdcPoolLarge *large = scdc_context_alloc(pool->context, HEADER(ScdcPoolLarge) + size);

		large->prev = NULL;
		large->next = pool->large;
		if (pool->large)
			pool->large->prev = large;
		pool->large = large;
		pool->used += HEADER(ScdcPoolLarge) + size;
		return (char *) large + HEADER(ScdcPoolLarge);
	}
}

void
scdc_pool_free(ScdcPool *pool, void *piece, Size size)
{
	Size		class = size_class(size);

	if (class < SCDC_POOL_CLASSES)
	{
		*(void **) piece = pool->given_back[class];
		pool->given_back[class] = piece;
	}
	else
	{
		ScdcPoolLarge *large = (ScdcPoolLarge *) ((char *) piece - HEADER(ScdcPoolLarge));

		if (large->prev)
			large->prev->next = large->next;
		else
			pool->large = large->next;
		if (large->next)
			large->next->prev = large->prev;
		pool->used -= HEADER(ScdcPoolLarge) + size;
		pfree(large);
	}
}

static void
free_all_but(ScdcPool *pool, ScdcPoolChunk *kept)
{
	while (pool->large)
	{
		ScdcPoolLarge *large = pool->large;

		pool->large = large->next;
		pfree(large);
	}
	while (pool->chunks != kept)
	{
		ScdcPoolChunk *chunk = pool->chunks;

		pool->chunks = chunk->next;
		pfree(chunk);
	}
	memset(pool->given_back, 0, sizeof(pool->given_back));
}

void
scdc_pool_reset(ScdcPool *pool)
{
	ScdcPoolChunk *kept = pool->chunks;

	while (kept && kept->next)
		kept = kept->next;
	free_all_but(pool, kept);
	pool->used = 0;
	pool->left = 0;
	if (kept)
	{
		pool->used = kept->size;
		pool->next = (char *) kept + HEADER(ScdcPoolChunk);
		pool->left = kept->size - HEADER(ScdcPoolChunk);
	}
}

void
scdc_pool_end(ScdcPool *pool)
{
	free_all_but(pool, NULL);
	pool->used = 0;
	pool->left = 0;
}

/* ---------------------------------------------------------------------
 * tables
 * ---------------------------------------------------------------------
 */

static void
make_buckets(ScdcTable *table, uint32 nbuckets)
{
	Size		size = nbuckets * sizeof(ScdcIdentity *);

	table->buckets = scdc_context_alloc(table->pool->context, size);
	memset(table->buckets, 0, size);
	table->nbuckets = nbuckets;
}

void
scdc_table_init(ScdcTable *table, ScdcPool *pool, Size entry_size)
{
	memset(table, 0, sizeof(*table));
	table->pool = pool;
	table->entry_size = entry_size;
	make_buckets(table, MIN_BUCKETS);
}

ScdcIdentity *
scdc_table_find(ScdcCollapse *c, ScdcTable *table, const void *row, uint32 hash)
{
	ScdcIdentity *entry;

	for (entry = table->buckets[hash & (table->nbuckets - 1)]; entry; entry = entry->next_in_bucket)
	{
		if (entry->hash == hash && c->ops.same_identity(entry->key, row, c->ops.arg))
			return entry;
	}
	return NULL;
}

static inline void
link_entry(ScdcTable *table, ScdcIdentity *entry)
{
	ScdcIdentity **bucket = &table->buckets[entry->hash & (table->nbuckets - 1)];

	entry->next_in_bucket = *bucket;
	*bucket = entry;
}

static void
grow(ScdcTable *table)
{
	ScdcIdentity *entry;
	uint32		nbuckets = table->nbuckets * 2;

	pfree(table->buckets);
	make_buckets(table, nbuckets);
	for (entry = table->first; entry; entry = entry->next)
		link_entry(table, entry);
}

ScdcIdentity *
scdc_table_add(ScdcTable *table, uint32 hash)
{
	ScdcIdentity *entry;

	if (table->nentries >= table->nbuckets && table->nbuckets < ((uint32) 1 << 31))
		grow(table);
	entry = scdc_pool_alloc(table->pool, table->entry_size);
	memset(entry, 0, table->entry_size);
	entry->hash = hash;
	link_entry(table, entry);
	if (table->last)
		table->last->next = entry;
	else
		table->first = entry;
	table->last = entry;
	table->nentries++;
	/* its share of the buckets, those of the next doubling included */
	table->pool->used += 2 * sizeof(ScdcIdentity *);
	return entry;
}

/* Costs what was in use, not what is allocated: small commits may follow a large one. */
void
scdc_table_reset(ScdcTable *table)
{
	if (table->nbuckets > MIN_BUCKETS * 1024 && table->nentries < table->nbuckets / 8)
	{
		pfree(table->buckets);
		make_buckets(table, MIN_BUCKETS);
	}
	else if (table->nentries > table->nbuckets / 8)
		memset(table->buckets, 0, table->nbuckets * sizeof(ScdcIdentity *));
	else
	{
		ScdcIdentity *entry;

		for (entry = table->first; entry; entry = entry->next)
			table->buckets[entry->hash & (table->nbuckets - 1)] = NULL;
	}
	table->nentries = 0;
	table->first = table->last = NULL;
}

void
scdc_table_end(ScdcTable *table)
{
	if (table->buckets)
		pfree(table->buckets);
	table->buckets = NULL;
}

/* ---------------------------------------------------------------------
 * rows kept
 * ---------------------------------------------------------------------
 */

ScdcKeptRow *
scdc_keep_row(ScdcPool *pool, const ScdcPlacedRow *placed)
{
	ScdcKeptRow *row = scdc_pool_alloc(pool, MAXALIGN(sizeof(ScdcKeptRow)) + placed->size);
	char	   *bytes = (char *) row + MAXALIGN(sizeof(ScdcKeptRow));

	row->next = row->prev = NULL;
	row->identity = NULL;
	row->room = placed->size;
	row->placed = *placed;
	row->placed.change.row = memcpy(bytes, placed->change.row, placed->size);
	return row;
}

void
scdc_drop_row(ScdcPool *pool, ScdcKeptRow *row)
{
	scdc_pool_free(pool, row, MAXALIGN(sizeof(ScdcKeptRow)) + row->room);
}
