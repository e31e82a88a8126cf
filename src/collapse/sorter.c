/*-------------------------------------------------------------------------
 *
 * sorter.c
 *	  Puts rows in the order in which they are emitted: version, seq, place
 *	  in the event.
 *
 * What does not fit into memory is sorted piecewise into runs, which are
 * files, and merged at the end; should there be many, they are merged to
 * fewer and larger ones before.
 *
 *-------------------------------------------------------------------------
 */
#ifdef FRONTEND
#include "postgres_fe.h"
#else
#include "postgres.h"
#endif

#include "collapse/internal.h"

#define MIN_ROOM	64
#define FAN_IN		32				/* runs of a level that are merged to one of the next */
#define MAX_LEVELS	8
#define MAX_RUNS	(FAN_IN * MAX_LEVELS)

typedef struct ScdcRun
{
	void	   *file;
	int64		left;			/* rows to be read */
	int			level;			/* how often its rows have been merged */
	ScdcPlacedRow next;			/* its bytes are still in the file */
} ScdcRun;

/* Runs being merged to one. */
typedef struct ScdcMerge
{
	int			from;			/* the first of them */
	ScdcRun    *heap[MAX_RUNS]; /* those with rows left, the one with the next row first */
	int			n;
	bool		taken;			/* has the first one's row been taken? */
} ScdcMerge;

/* Places are unique, except for events that share a number against the contract. */
static inline bool
stands_before(const ScdcPlacedRow *a, const ScdcPlacedRow *b)
{
	Assert(a != NULL && b != NULL);
	if (a->change.version != b->change.version)
		return a->change.version < b->change.version;
	if (a->change.seq != b->change.seq)
		return a->change.seq < b->change.seq;
	return a->order < b->order;
}

void
scdc_sorter_init(ScdcCollapse *c, Size limit)
{
	ScdcSorter *s = &c->sorter;

	memset(s, 0, sizeof(*s));
	scdc_pool_init(&s->pool, c->context, limit);
	s->sorted = true;
}

/* ---------------------------------------------------------------------
 * sorting in memory
 * ---------------------------------------------------------------------
 */

/* Merges the sorted pieces from[0..mid) and from[mid..n) into "to". */
static void
merge_pieces(const ScdcPlacedRow *from, Size mid, Size n, ScdcPlacedRow *to)
{
	Size		left = 0;
	Size		right = mid;

	if (mid >= n || !stands_before(&from[mid], &from[mid - 1]))
	{
		memcpy(to, from, n * sizeof(ScdcPlacedRow));
		return;
	}
	while (left < mid && right < n)
	{
		if (stands_before(&from[right], &from[left]))
			*to++ = from[right++];
		else
			*to++ = from[left++];
	}
	memcpy(to, &from[left], (mid - left) * sizeof(ScdcPlacedRow));
	to += mid - left;
	memcpy(to, &from[right], (n - right) * sizeof(ScdcPlacedRow));
}

/*
 * A merge sort from the bottom up: the server's qsort is quadratic at worst
 * and recursive, and the order of arrival has long pieces to gain from.
 */
static void
sort_rows(ScdcCollapse *c)
{
	ScdcSorter *s = &c->sorter;
	ScdcPlacedRow *spare;
	ScdcPlacedRow *from = s->rows;
	ScdcPlacedRow *to;
	Size		width;

	if (s->sorted)
		return;
	to = spare = scdc_context_alloc(c->context, s->nrows * sizeof(ScdcPlacedRow));
	for (width = 1; width < s->nrows; width *= 2)
	{
		ScdcPlacedRow *swap = from;
		Size		start;

		for (start = 0; start < s->nrows; start += 2 * width)
		{
			Size		n = Min(2 * width, s->nrows - start);

			merge_pieces(from + start, Min(width, n), n, to + start);
		}
		from = to;
		to = swap;
	}
	if (from != s->rows)
		memcpy(s->rows, from, s->nrows * sizeof(ScdcPlacedRow));
	pfree(spare);
	s->sorted = true;
}

static void
forget_rows(ScdcSorter *s)
{
	s->nrows = 0;
	s->sorted = true;
	scdc_pool_reset(&s->pool);
	if (s->room > MIN_ROOM * 64)
	{
		pfree(s->rows);
		s->rows = NULL;
		s->room = 0;
	}
}

/* ---------------------------------------------------------------------
 * runs
 * ---------------------------------------------------------------------
 */

static void
write_row(ScdcCollapse *c, void *file, const ScdcPlacedRow *row, const void *bytes)
{
	c->ops.file_write(file, row, sizeof(*row), c->ops.arg);
	c->ops.file_write(file, bytes, row->size, c->ops.arg);
}

static bool
read_place(ScdcCollapse *c, ScdcRun *run)
{
	if (run->left == 0)
		return false;
	run->left--;
	c->ops.file_read(run->file, &run->next, sizeof(run->next), c->ops.arg);
	return true;
}

static void *
read_bytes(ScdcCollapse *c, ScdcRun *run)
{
	ScdcSorter *s = &c->sorter;

	if (s->buffer_size < run->next.size)
	{
		if (s->buffer)
			pfree(s->buffer);
		s->buffer_size = Max((Size) run->next.size * 2, 1024);
		s->buffer = scdc_context_alloc(c->context, s->buffer_size);
	}
	c->ops.file_read(run->file, s->buffer, run->next.size, c->ops.arg);
	return s->buffer;
}

static void
sift_down(ScdcRun **heap, int n, int i)
{
	ScdcRun    *run = heap[i];

	for (;;)
	{
		int			child = 2 * i + 1;

		if (child >= n)
			break;
		if (child + 1 < n && stands_before(&heap[child + 1]->next, &heap[child]->next))
			child++;
		if (!stands_before(&heap[child]->next, &run->next))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = run;
}

/* Begins to merge the runs from the given one on. */
static void
merge_begin(ScdcCollapse *c, int from)
{
	ScdcSorter *s = &c->sorter;
	ScdcMerge  *m = s->merge;

	m->from = from;
	m->n = 0;
	m->taken = false;
	for (int i = from; i < s->nruns; i++)
	{
		c->ops.file_rewind(s->runs[i].file, c->ops.arg);
		if (read_place(c, &s->runs[i]))
			m->heap[m->n++] = &s->runs[i];
	}
	for (int i = m->n / 2 - 1; i >= 0; i--)
		sift_down(m->heap, m->n, i);
}

/* The next of their rows, good until the next call; NULL at the end, when they are closed. */
static const ScdcPlacedRow *
merge_next(ScdcCollapse *c)
{
	ScdcSorter *s = &c->sorter;
	ScdcMerge  *m = s->merge;

	if (m->taken)
	{
		if (!read_place(c, m->heap[0]))
			m->heap[0] = m->heap[--m->n];
		if (m->n > 0)
			sift_down(m->heap, m->n, 0);
	}
	m->taken = m->n > 0;
	if (m->taken)
	{
		m->heap[0]->next.change.row = read_bytes(c, m->heap[0]);
		return &m->heap[0]->next;
	}

	for (int i = m->from; i < s->nruns; i++)
		c->ops.file_close(s->runs[i].file, c->ops.arg);
	s->nruns = m->from;
	return NULL;
}

static void
add_run(ScdcSorter *s, void *file, int64 nrows, int level)
{
	ScdcRun    *run = &s->runs[s->nruns++];

	run->file = file;
	run->left = nrows;
	run->level = level;
}

/* Runs are in order of falling level; FAN_IN of one level become one of the next. */
static void
limit_runs(ScdcCollapse *c)
{
	ScdcSorter *s = &c->sorter;

	for (;;)
	{
		int			level;
		void	   *file;
		int64		nrows = 0;
		const ScdcPlacedRow *row;

		if (s->nruns < FAN_IN)
			return;
		level = s->runs[s->nruns - 1].level;
		if (s->runs[s->nruns - FAN_IN].level != level)
			return;
		file = c->ops.file_create(c->ops.arg);
		merge_begin(c, s->nruns - FAN_IN);
		while ((row = merge_next(c)) != NULL)
		{
			write_row(c, file, row, row->change.row);
			scdc_check_interrupts(c);
			nrows++;
		}
		/* levels beyond the last stay there: runs of some terabytes */
		add_run(s, file, nrows, Min(level + 1, MAX_LEVELS - 1));
	}
}

static void
write_run(ScdcCollapse *c)
{
	ScdcSorter *s = &c->sorter;
	void	   *file = c->ops.file_create(c->ops.arg);

	sort_rows(c);
	for (Size i = 0; i < s->nrows; i++)
	{
		write_row(c, file, &s->rows[i], s->rows[i].change.row);
		scdc_check_interrupts(c);
	}
	if (s->runs == NULL)
	{
		s->runs = scdc_context_alloc(c->context, MAX_RUNS * sizeof(ScdcRun));
		s->merge = scdc_context_alloc(c->context, sizeof(ScdcMerge));
	}
	add_run(s, file, s->nrows, 0);
	forget_rows(s);
	limit_runs(c);
}

/* ---------------------------------------------------------------------
 * interface
 * ---------------------------------------------------------------------
 */

void
scdc_sorter_add(ScdcCollapse *c, const ScdcPlacedRow *row, bool copy)
{
	ScdcSorter *s = &c->sorter;
	ScdcPlacedRow *place;

	/* each place counts twice, for sorting needs as much again */
	if (s->nrows > 0 && s->pool.limit != 0 &&
		s->pool.used + s->nrows * 2 * sizeof(ScdcPlacedRow) > s->pool.limit)
		write_run(c);

	if (s->nrows == s->room)
	{
		ScdcPlacedRow *rows;

		s->room = Max(s->room * 2, MIN_ROOM);
		rows = scdc_context_alloc(c->context, s->room * sizeof(ScdcPlacedRow));
		if (s->rows)
		{
			memcpy(rows, s->rows, s->nrows * sizeof(ScdcPlacedRow));
			pfree(s->rows);
		}
		s->rows = rows;
	}
	if (s->nrows > 0 && stands_before(row, &s->rows[s->nrows - 1]))
		s->sorted = false;
	place = &s->rows[s->nrows++];
	*place = *row;
	if (copy)
	{
		void	   *bytes = scdc_pool_alloc(&s->pool, row->size);

		place->change.row = memcpy(bytes, row->change.row, row->size);
	}
}

void
scdc_sorter_begin(ScdcCollapse *c)
{
	ScdcSorter *s = &c->sorter;

	s->taking = true;
	s->next = 0;
	if (s->nruns == 0)
	{
		sort_rows(c);
		return;
	}
	if (s->nrows > 0)
		write_run(c);
	merge_begin(c, 0);
}

const ScdcChangeRow *
scdc_sorter_next(ScdcCollapse *c)
{
	ScdcSorter *s = &c->sorter;

	if (!s->taking)
		return NULL;
	if (s->nruns > 0)
	{
		const ScdcPlacedRow *row = merge_next(c);

		if (row)
			return &row->change;
	}
	else if (s->next < s->nrows)
		return &s->rows[s->next++].change;
	forget_rows(s);
	s->taking = false;
	return NULL;
}

void
scdc_sorter_emit(ScdcCollapse *c)
{
	const ScdcChangeRow *row;

	scdc_sorter_begin(c);
	while ((row = scdc_sorter_next(c)) != NULL)
		c->ops.emit(row, c->ops.arg);
}

void
scdc_sorter_end(ScdcCollapse *c)
{
	ScdcSorter *s = &c->sorter;

	scdc_pool_end(&s->pool);
	if (s->rows)
		pfree(s->rows);
	if (s->runs)
	{
		pfree(s->runs);
		pfree(s->merge);
	}
	if (s->buffer)
		pfree(s->buffer);
}
