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
#define MIN_SLOTS		64

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

static void
free_piece(ScdcPool *pool, void *piece, Size size)
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
make_slots(ScdcTable *table, uint32 nslots)
{
	Size		size = nslots * sizeof(ScdcSlot);

	table->slots = scdc_context_alloc(table->pool->context, size);
	memset(table->slots, 0, size);
	table->nslots = nslots;
}

void
scdc_table_init(ScdcTable *table, ScdcPool *pool, Size entry_size)
{
	memset(table, 0, sizeof(*table));
	table->pool = pool;
	table->entry_size = entry_size;
	make_slots(table, MIN_SLOTS);
}

ScdcIdentity *
scdc_table_find(ScdcCollapse *c, ScdcTable *table, const void *row, uint32 hash)
{
	uint32		mask = table->nslots - 1;

	for (uint32 i = hash & mask; table->slots[i].entry; i = (i + 1) & mask)
	{
		const ScdcSlot *slot = &table->slots[i];

		if (slot->hash == hash && c->ops.same_identity(slot->entry->key, row, c->ops.arg))
			return slot->entry;
	}
	return NULL;
}

static inline void
enter(ScdcTable *table, ScdcIdentity *entry)
{
	uint32		mask = table->nslots - 1;
	uint32		i = entry->hash & mask;

	while (table->slots[i].entry)
		i = (i + 1) & mask;
	table->slots[i].entry = entry;
	table->slots[i].hash = entry->hash;
}

/* At two thirds, searches are short still. */
static inline bool
must_grow(const ScdcTable *table)
{
	return table->nentries >= table->nslots / 3 * 2 && table->nslots < ((uint32) 1 << 31);
}

static void
grow(ScdcTable *table)
{
	uint32		nslots = table->nslots * 2;

	pfree(table->slots);
	make_slots(table, nslots);
	for (ScdcIdentity *entry = table->first; entry; entry = entry->next)
		enter(table, entry);
}

/* The pool does not know of the slots. */
bool
scdc_table_is_full(const ScdcTable *table)
{
	const ScdcPool *pool = table->pool;
	Size		slots = table->nslots * sizeof(ScdcSlot);

	if (pool->limit == 0 || table->nentries == 0)
		return false;
	if (table->nslots == MIN_SLOTS)
		slots = 0;				/* there from the beginning */
	else if (must_grow(table))
		slots *= 2;
	return pool->used + slots > pool->limit;
}

ScdcIdentity *
scdc_table_add(ScdcTable *table, uint32 hash)
{
	ScdcIdentity *entry;

	if (must_grow(table))
		grow(table);
	entry = scdc_pool_alloc(table->pool, table->entry_size);
	memset(entry, 0, table->entry_size);
	entry->hash = hash;
	enter(table, entry);
	if (table->last)
		table->last->next = entry;
	else
		table->first = entry;
	table->last = entry;
	table->nentries++;
	return entry;
}

/* Costs what was in use, not what is allocated: small commits may follow a large one. */
void
scdc_table_reset(ScdcTable *table)
{
	if (table->nentries < table->nslots / 8 && table->nslots > MIN_SLOTS)
	{
		uint32		nslots = Max(table->nslots / 4, MIN_SLOTS);

		pfree(table->slots);
		make_slots(table, nslots);
	}
	else if (table->nentries > 0)
		memset(table->slots, 0, table->nslots * sizeof(ScdcSlot));
	table->nentries = 0;
	table->first = table->last = NULL;
}

void
scdc_table_end(ScdcTable *table)
{
	pfree(table->slots);
}

/* ---------------------------------------------------------------------
 * rows kept
 * ---------------------------------------------------------------------
 */

ScdcKeptRow *
scdc_keep_row(ScdcPool *pool, const ScdcPlacedRow *placed)
{
	Size		size = MAXALIGN(sizeof(ScdcKeptRow)) + placed->size;
	ScdcKeptRow *row = scdc_pool_alloc(pool, size);

	memset(row, 0, sizeof(*row));
	row->room = size_class(size) < SCDC_POOL_CLASSES ? size_class(size) : 0;
	scdc_set_row(row, placed);
	return row;
}

void
scdc_set_row(ScdcKeptRow *kept, const ScdcPlacedRow *placed)
{
	kept->seq = placed->change.seq;
	kept->size = placed->size;
	kept->type = (uint8) placed->change.type;
	kept->order = placed->order;
	memcpy(scdc_kept_bytes(kept), placed->change.row, placed->size);
}

bool
scdc_row_fits(const ScdcKeptRow *kept, uint32 size)
{
	Size		needed = size_class(MAXALIGN(sizeof(ScdcKeptRow)) + size);

	return kept->room == 0 ? size == kept->size : needed <= kept->room && needed >= kept->room / 2;
}

void
scdc_drop_row(ScdcPool *pool, ScdcKeptRow *row)
{
	Size		size = row->room > 0 ? row->room * SCDC_POOL_STEP : MAXALIGN(sizeof(ScdcKeptRow)) + row->size;

	free_piece(pool, row, size);
}
