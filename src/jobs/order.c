/*-------------------------------------------------------------------------
 *
 * order.c
 *	  Puts work rows into order (see order.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "lib/binaryheap.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "jobs/order.h"
#include "jobs/packed_row.h"
#include "jobs/parts.h"
#include "sql/tapes.h"

#define CHUNK_MIN	((Size) 8 * 1024)
#define CHUNK_MAX	((Size) 8 * 1024 * 1024)
#define HUGE_PAGE	((Size) 2 * 1024 * 1024)
#define ENTRIES_MIN 64

/* There are never more runs; each takes a block and a row of memory while it is read. */
#define MAX_RUNS	64
#define MIN_RUNS	16			/* that are merged at once, however large the rows are */

/* There are never more parts than two to the power of this. */
#define PART_BITS	9

/* The memory for all rows against that for the parts' buffers. */
#define PARTS_SHARE 4

/* When there are parts, rows are gathered in so much memory, which stays in a cache, and go to them together. */
#define GATHER_MAX	((Size) 256 * 1024)

/* Bits of a hash that tell its bucket, and from how many rows on that is worth its while. */
#define BUCKET_BITS 8
#define BUCKETS_MIN 16

/* Rows that are fetched ahead while one is worked on. */
#define AHEAD		8

/* A row with what it is ordered by. */
typedef struct Entry
{
	uint64		first;
	int64		second;
	int64		third;
	const ScdcWorkRow *row;
} Entry;

typedef struct Run
{
	void	   *tape;
	int64		left;			/* rows to be read */
	Size		largest;		/* of its rows */
	Entry		next;
	int			at;				/* which room the row of next is in */
	ScdcWorkRow *room[2];		/* in turns: the row that was returned stays good when one looks at the next */
	Size		size[2];		/* of the rooms */
} Run;

struct ScdcOrder
{
	const ScdcWork *work;
	ScdcOrderBy by;
	int			bits_done;		/* leading ones of all hashes that are known to be the same */
	Size		limit;
	MemoryContext context;

	/* in memory */
	MemoryContext rows_cxt;
	char	   *chunk;			/* the newest one's free part */
	Size		left;
	Size		chunk_size;
	Size		used;			/* by rows */
	Size		largest;		/* of them */
	Entry	   *entries;
	Size		nentries;
	Size		room;			/* for entries */
	Size		next;			/* to be returned */

	/* in files */
	ScdcTapes  *tapes;
	ScdcParts  *parts;			/* packed rows; NULL: there are none */
	int			part_bits;		/* of a hash, which tell its part */
	ScdcPackedBefore *before;	/* the row that was written last, of each part */
	int			next_part;		/* to be returned */
	ScdcOrder  *part;			/* being returned */
	Run		   *runs;
	int			nruns;
	binaryheap *heap;			/* runs with rows left, the one with the next row on top */
	bool		taken;			/* has that row been returned? */
	uint64		last_first;		/* of the row that was returned last */
};

/* ---------------------------------------------------------------------
 * comparing
 * ---------------------------------------------------------------------
 */

static pg_noinline int
compare_texts(const ScdcOrder *order, const ScdcWorkRow *a, const ScdcWorkRow *b)
{
	char	   *x = scdc_work_version_text(order->work, a);
	char	   *y = scdc_work_version_text(order->work, b);
	int			result = x == NULL || y == NULL ? (x == NULL) - (y == NULL) : strcmp(x, y);

	if (x)
		pfree(x);
	if (y)
		pfree(y);
	return result;
}

static inline int
compare(const Entry *a, const Entry *b, const ScdcOrder *order)
{
	if (a->first != b->first)
		return a->first < b->first ? -1 : 1;
	if (order->work->text_versions)
	{
		int			result = compare_texts(order, a->row, b->row);

		if (result != 0)
			return result;
	}
	if (a->second != b->second)
		return a->second < b->second ? -1 : 1;
	if (a->third != b->third)
		return a->third < b->third ? -1 : 1;
	return 0;
}

#define ST_SORT sort_entries
#define ST_ELEMENT_TYPE Entry
#define ST_COMPARE(a, b, order) compare(a, b, order)
#define ST_COMPARE_ARG_TYPE const ScdcOrder
#define ST_CHECK_FOR_INTERRUPTS
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

static void
make_entry(const ScdcOrder *order, Entry *entry, const ScdcWorkRow *row)
{
	int64		rank = scdc_work_rank(row);

	entry->row = row;
	if (order->by == SCDC_BY_IDENTITY)
	{
		entry->first = row->hash;
		entry->second = row->version;
		entry->third = (rank << 62) + row->seq;
	}
	else
	{
		/* as unsigned, in the same order */
		entry->first = (uint64) row->version ^ (UINT64CONST(1) << 63);
		entry->second = row->seq;
		entry->third = rank;
	}
}

/* ---------------------------------------------------------------------
 * in memory
 * ---------------------------------------------------------------------
 */

/* A macro, since gcc takes a function that does nothing but this for one without effects, and leaves it out. */
#define fetch_ahead(order, i) \
	do { \
		if ((i) + AHEAD < (order)->nentries) \
		{ \
			const char *ahead = (const char *) (order)->entries[(i) + AHEAD].row; \
			\
			__builtin_prefetch(ahead); \
			__builtin_prefetch(ahead + 64); \
			__builtin_prefetch(ahead + 127); \
		} \
	} while (0)

/* What a chunk takes from the context: a large one is aligned inside. */
static Size
chunk_room(Size size)
{
	return size < CHUNK_MAX ? size : size + HUGE_PAGE;
}

/* Sorted rows lie all over the memory; large pages spare a look-up of the page for each. */
static char *
alloc_chunk(ScdcOrder *order, Size size)
{
	char	   *chunk = MemoryContextAllocHuge(order->rows_cxt, chunk_room(size));

	if (size < CHUNK_MAX)
		return chunk;
	chunk = (char *) TYPEALIGN(HUGE_PAGE, chunk);
#ifdef MADV_HUGEPAGE
	(void) madvise(chunk, TYPEALIGN_DOWN(HUGE_PAGE, size), MADV_HUGEPAGE);
#endif
	return chunk;
}

static ScdcWorkRow *
alloc_row(ScdcOrder *order, Size size)
{
	char	   *row;

	size = MAXALIGN(size);
	if (order->left < size)
	{
		order->chunk_size = Min(order->chunk_size * 2, CHUNK_MAX);
		order->left = Max(order->chunk_size, size);
		order->chunk = alloc_chunk(order, order->left);
		order->used += chunk_room(order->left);
	}
	row = order->chunk;
	order->chunk += size;
	order->left -= size;
	return (ScdcWorkRow *) row;
}

static void
forget_rows(ScdcOrder *order)
{
	MemoryContextReset(order->rows_cxt);
	order->left = 0;
	order->used = 0;
	order->largest = 0;
	order->chunk_size = CHUNK_MIN / 2;
	order->nentries = 0;
}

/* Would a row of this size need more memory than there may be? */
static bool
is_full(const ScdcOrder *order, Size size)
{
	Size		used = order->used;

	if (order->left >= MAXALIGN(size) && order->nentries < order->room)
		return false;
	if (order->left < MAXALIGN(size))
		used += chunk_room(Max(Min(order->chunk_size * 2, CHUNK_MAX), size));
	used += order->room * sizeof(Entry) * (order->nentries == order->room ? 2 : 1);
	return used > (order->parts ? Min(order->limit, GATHER_MAX) : order->limit);
}

/*
 * Hashes are spread evenly: entries go into buckets by their next bits, about
 * as many as there are entries if those are few, then those of a bucket by the
 * bits after that, and what little is in one is sorted.
 */
static void
sort_by_hash(ScdcOrder *order, Entry *entries, Size n, int bits_done)
{
	int			bits = Min(BUCKET_BITS, pg_leftmost_one_pos64(n));
	int			nbuckets = 1 << bits;
	int			shift = 64 - bits_done - bits;
	Size		begin[(1 << BUCKET_BITS) + 1];
	Size		next[1 << BUCKET_BITS];

#define BUCKET(entry) ((int) ((entry)->first >> shift & (nbuckets - 1)))

	if (shift < 0)
	{
		sort_entries(entries, n, order);
		return;
	}
	memset(begin, 0, (nbuckets + 1) * sizeof(Size));
	for (Size i = 0; i < n; i++)
		begin[BUCKET(&entries[i]) + 1]++;
	for (int b = 0; b < nbuckets; b++)
	{
		next[b] = begin[b];
		begin[b + 1] += begin[b];
	}
	for (int b = 0; b < nbuckets; b++)
	{
		/* an entry goes to its place, and the one that was there is next, until one belongs here */
		while (next[b] < begin[b + 1])
		{
			Entry		entry = entries[next[b]];
			int			to;

			while ((to = BUCKET(&entry)) != b)
			{
				Entry		other = entries[next[to]];

				entries[next[to]++] = entry;
				entry = other;
			}
			entries[next[b]++] = entry;
		}
	}
	CHECK_FOR_INTERRUPTS();
	for (int b = 0; b < nbuckets; b++)
	{
		Size		in_bucket = begin[b + 1] - begin[b];

		if (in_bucket >= BUCKETS_MIN)
			sort_by_hash(order, entries + begin[b], in_bucket, bits_done + bits);
		else if (in_bucket > 1)
			sort_entries(entries + begin[b], in_bucket, order);
	}
#undef BUCKET
}

static void
sort_rows(ScdcOrder *order)
{
	if (order->by == SCDC_BY_IDENTITY && order->nentries >= BUCKETS_MIN)
		sort_by_hash(order, order->entries, order->nentries, order->bits_done);
	else
		sort_entries(order->entries, order->nentries, order);
}

/* ---------------------------------------------------------------------
 * runs
 * ---------------------------------------------------------------------
 */

static int
compare_runs(Datum a, Datum b, void *arg)
{
	/* the greatest is on top */
	return -compare(&((Run *) DatumGetPointer(a))->next, &((Run *) DatumGetPointer(b))->next, arg);
}

static bool
read_row(ScdcOrder *order, Run *run)
{
	ScdcWorkRow header;
	ScdcWorkRow *room;

	if (run->left == 0)
		return false;
	run->left--;
	scdc_tape_read(run->tape, &header, sizeof(header), NULL);
	run->at = 1 - run->at;
	if (run->size[run->at] < header.size)
	{
		if (run->room[run->at])
			pfree(run->room[run->at]);
		run->size[run->at] = Max(header.size, 1024);
		run->room[run->at] = MemoryContextAllocHuge(order->context, run->size[run->at]);
	}
	room = run->room[run->at];
	memcpy(room, &header, sizeof(header));
	scdc_tape_read(run->tape, (char *) room + sizeof(header), header.size - sizeof(header), NULL);
	make_entry(order, &run->next, room);
	return true;
}

/* Merges the runs from that one on. */
static void
begin_merge(ScdcOrder *order, int from)
{
	order->heap = binaryheap_allocate(order->nruns - from, compare_runs, order);
	order->taken = false;
	for (int i = from; i < order->nruns; i++)
	{
		scdc_tape_rewind(order->runs[i].tape, NULL);
		if (read_row(order, &order->runs[i]))
			binaryheap_add_unordered(order->heap, PointerGetDatum(&order->runs[i]));
	}
	binaryheap_build(order->heap);
}

static Entry *
top_of(ScdcOrder *order)
{
	return &((Run *) DatumGetPointer(binaryheap_first(order->heap)))->next;
}

/* Sees to it that the row on top has not been returned; false at the end. */
static bool
advance(ScdcOrder *order)
{
	if (order->taken)
	{
		Run		   *run = (Run *) DatumGetPointer(binaryheap_first(order->heap));

		if (read_row(order, run))
			binaryheap_replace_first(order->heap, PointerGetDatum(run));
		else
			(void) binaryheap_remove_first(order->heap);
	}
	order->taken = false;
	return !binaryheap_empty(order->heap);
}

static const ScdcWorkRow *
next_merged(ScdcOrder *order)
{
	if (!advance(order))
		return NULL;
	order->taken = true;
	order->last_first = top_of(order)->first;
	return top_of(order)->row;
}

static void
end_merge(ScdcOrder *order, int from)
{
	for (int i = from; i < order->nruns; i++)
	{
		scdc_tape_close(order->runs[i].tape, NULL);
		for (int room = 0; room < 2; room++)
			if (order->runs[i].room[room])
				pfree(order->runs[i].room[room]);
	}
	order->nruns = from;
	binaryheap_free(order->heap);
	order->heap = NULL;
}

static void
add_run(ScdcOrder *order, void *tape, int64 nrows, Size largest)
{
	Run		   *run = &order->runs[order->nruns++];

	memset(run, 0, sizeof(*run));
	run->tape = tape;
	run->left = nrows;
	run->largest = largest;
}

/* Is there no room to merge one run more, with rows up to that size? */
static bool
runs_are_full(const ScdcOrder *order, Size largest)
{
	for (int i = 0; i < order->nruns; i++)
		largest += order->runs[i].largest;
	return order->nruns == MAX_RUNS || (order->nruns >= MIN_RUNS && 2 * largest > order->limit);
}

/*
 * The first run that is not longer than those after it together: merged, it
 * becomes twice as long, which does not happen to a row often.
 */
static int
first_to_merge(const ScdcOrder *order)
{
	int			first = order->nruns - 2;
	int64		after = 0;

	for (int i = order->nruns - 1; i >= 0; i--)
	{
		if (order->runs[i].left <= after)
			first = Min(first, i);
		after += order->runs[i].left;
	}
	return first;
}

static void
write_row(void *tape, const ScdcWorkRow *row)
{
	scdc_tape_write(tape, row, row->size, NULL);
}

static void
merge_runs(ScdcOrder *order)
{
	void	   *tape = scdc_tape_create(order->tapes);
	const ScdcWorkRow *row;
	int64		nrows = 0;
	Size		largest = 0;
	int			from = first_to_merge(order);

	begin_merge(order, from);
	while ((row = next_merged(order)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		write_row(tape, row);
		nrows++;
		largest = Max(largest, row->size);
	}
	end_merge(order, from);
	add_run(order, tape, nrows, largest);
}

static void
write_run(ScdcOrder *order)
{
	MemoryContext old = MemoryContextSwitchTo(order->context);
	void	   *tape;

	if (order->tapes == NULL)
	{
		order->tapes = scdc_tapes_create(false);
		order->runs = palloc(MAX_RUNS * sizeof(Run));
	}
	while (runs_are_full(order, order->largest))
		merge_runs(order);
	tape = scdc_tape_create(order->tapes);
	sort_rows(order);
	for (Size i = 0; i < order->nentries; i++)
	{
		CHECK_FOR_INTERRUPTS();
		fetch_ahead(order, i);
		write_row(tape, order->entries[i].row);
	}
	add_run(order, tape, order->nentries, order->largest);
	forget_rows(order);
	MemoryContextSwitchTo(old);
}

/* Room for a row; add_entry is next. */
static ScdcWorkRow *
new_row(ScdcOrder *order, Size size)
{
	if (order->nentries > 0 && is_full(order, size))
		write_run(order);
	return alloc_row(order, size);
}

static void
add_entry(ScdcOrder *order, const ScdcWorkRow *row)
{
	if (order->nentries == order->room)
	{
		order->room *= 2;
		order->entries = repalloc_huge(order->entries, order->room * sizeof(Entry));
	}
	order->largest = Max(order->largest, row->size);
	make_entry(order, &order->entries[order->nentries++], row);
}

/* ---------------------------------------------------------------------
 * parts
 * ---------------------------------------------------------------------
 */

static inline int
part_of(const ScdcOrder *order, const Entry *entry)
{
	return (int) (entry->first >> (64 - order->part_bits));
}

static void
put_to_part(ScdcOrder *order, int part, const ScdcWorkRow *row)
{
	uint8	   *head = scdc_parts_piece(order->parts, part);
	ScdcBytes	rest = scdc_packed_row_rest(row);

	StaticAssertStmt(SCDC_PACKED_HEAD_MAX <= SCDC_PARTS_PIECE, "the head of a row is more than a piece");
	scdc_parts_add_piece(order->parts, part, scdc_packed_row_head(head, row, row->type, &order->before[part]));
	scdc_parts_write(order->parts, part, rest.data, rest.len);
}

static void
begin_parts(ScdcOrder *order)
{
	Size		memory = order->limit / PARTS_SHARE;

	order->part_bits = PART_BITS;
	while (order->part_bits > 1 && (Size) ((1 << order->part_bits) + 1) * BLCKSZ > memory)
		order->part_bits--;
	order->parts = scdc_parts_create(1 << order->part_bits, memory);
	order->before = palloc0(sizeof(ScdcPackedBefore) << order->part_bits);
}

/*
 * The rows in memory go to their parts.  Each would wait for the place where
 * its part ends, which is in no cache; as the next rows are known, theirs are
 * fetched ahead.
 */
static void
write_parts(ScdcOrder *order)
{
	MemoryContext old = MemoryContextSwitchTo(order->context);

	if (order->parts == NULL)
		begin_parts(order);
	for (Size i = 0; i < order->nentries; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (i + 2 * AHEAD < order->nentries)
		{
			int			ahead = part_of(order, &order->entries[i + 2 * AHEAD]);

			__builtin_prefetch(&order->before[ahead], 1);
			scdc_parts_fetch(order->parts, ahead);
			scdc_parts_fetch_end(order->parts, part_of(order, &order->entries[i + AHEAD]));
		}
		put_to_part(order, part_of(order, &order->entries[i]), order->entries[i].row);
	}
	forget_rows(order);
	/* after the first time there are few */
	if (order->room * sizeof(Entry) > GATHER_MAX / 2)
	{
		pfree(order->entries);
		order->room = ENTRIES_MIN;
		order->entries = palloc(order->room * sizeof(Entry));
	}
	MemoryContextSwitchTo(old);
}

/* Takes the rows of a part; one that is too large for the memory is put into order by runs. */
static void
read_part(ScdcOrder *order, int number)
{
	MemoryContext old = MemoryContextSwitchTo(order->context);
	Size		memory = order->limit - order->limit / PARTS_SHARE;
	ScdcOrder  *part = scdc_order_create(order->work, order->by, (int) (memory / 1024));
	ScdcPackedBefore before = {0};
	const uint8 *head;
	Size		len;

	order->part = part;
	part->bits_done = order->part_bits;
	scdc_parts_open(order->parts, number);
	while ((head = scdc_parts_look(order->parts, &len)) != NULL)
	{
		const uint8 *at = head;
		ScdcWorkRow header;
		ScdcWorkRow *row;
		char	   *rest;

		CHECK_FOR_INTERRUPTS();
		if (!scdc_packed_row_read(&at, head + len, &header, &before))
			elog(ERROR, "a row in a temporary file is damaged");
		scdc_parts_skip(order->parts, at - head);
		row = new_row(part, header.size);
		rest = scdc_packed_row_begin(row, &header, &before);
		if (!scdc_parts_read(order->parts, rest, scdc_packed_row_rest(row).len))
			elog(ERROR, "a row in a temporary file is cut short");
		add_entry(part, row);
	}
	scdc_order_finish(part);
	MemoryContextSwitchTo(old);
}

static void
end_part(ScdcOrder *order)
{
	scdc_order_end(order->part);
	order->part = NULL;
}

static const ScdcWorkRow *
next_of_parts(ScdcOrder *order)
{
	for (;;)
	{
		const ScdcWorkRow *row = order->part ? scdc_order_next(order->part) : NULL;

		if (row)
			return row;
		if (order->part)
			end_part(order);
		if (order->next_part == 1 << order->part_bits)
			return NULL;
		read_part(order, order->next_part++);
	}
}

/* ---------------------------------------------------------------------
 * interface
 * ---------------------------------------------------------------------
 */

ScdcOrder *
scdc_order_create(const ScdcWork *work, ScdcOrderBy by, int memory)
{
	ScdcOrder  *order = palloc0(sizeof(ScdcOrder));

	order->work = work;
	order->by = by;
	order->limit = (Size) memory * 1024;
	order->context = CurrentMemoryContext;
	order->rows_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc rows to be sorted", ALLOCSET_SMALL_SIZES);
	forget_rows(order);
	order->room = ENTRIES_MIN;
	order->entries = palloc(order->room * sizeof(Entry));
	return order;
}

void
scdc_order_put(ScdcOrder *order, const ScdcWorkRow *row, ScdcChangeType type)
{
	ScdcWorkRow *copy;

	if (order->by == SCDC_BY_IDENTITY && order->nentries > 0 && is_full(order, row->size))
		write_parts(order);
	copy = new_row(order, row->size);
	memcpy(copy, row, row->size);
	copy->type = type;
	add_entry(order, copy);
}

void
scdc_order_finish(ScdcOrder *order)
{
	order->next = 0;
	if (order->parts)
	{
		write_parts(order);
		return;
	}
	if (order->nruns == 0)
	{
		sort_rows(order);
		return;
	}
	if (order->nentries > 0)
		write_run(order);
	/* runs are read in the memory that the rows have left */
	pfree(order->entries);
	order->entries = NULL;
	order->room = 0;
	begin_merge(order, 0);
}

const ScdcWorkRow *
scdc_order_next(ScdcOrder *order)
{
	CHECK_FOR_INTERRUPTS();
	if (order->parts)
		return next_of_parts(order);
	if (order->heap)
		return next_merged(order);
	if (order->next == order->nentries)
		return NULL;
	fetch_ahead(order, order->next);
	return order->entries[order->next++].row;
}

bool
scdc_order_continues(ScdcOrder *order)
{
	Assert(order->by == SCDC_BY_IDENTITY);
	if (order->parts)
		return scdc_order_continues(order->part);	/* rows of one hash are in one part */
	if (order->heap)
		return advance(order) && top_of(order)->first == order->last_first;
	return order->next < order->nentries && order->entries[order->next].first == order->entries[order->next - 1].first;
}

void
scdc_order_end(ScdcOrder *order)
{
	if (order->part)
		end_part(order);
	if (order->heap)
		end_merge(order, 0);
	if (order->tapes)
		scdc_tapes_end(order->tapes);
	if (order->parts)
	{
		scdc_parts_end(order->parts);
		pfree(order->before);
	}
	if (order->runs)
		pfree(order->runs);
	if (order->entries)
		pfree(order->entries);
	MemoryContextDelete(order->rows_cxt);
	pfree(order);
}
