/*-------------------------------------------------------------------------
 *
 * collapse.c
 *	  From events to change rows: netting inside a commit, carry-over removal,
 *	  update detection and net changes.
 *
 * Two tables keyed by row identity do the work.  The commit's table nets the
 * events of one commit: it holds, for each identity, the image that was there
 * before the commit and has been taken away, and the images that the commit
 * has brought and not taken away again.  A log that keeps its contract leaves
 * at most one of each.  The range's table, used for net changes only, holds
 * the first and the last row of each identity over all commits.
 *
 * Who holds a row handle: an Image, the range's table, a row that waits to be
 * emitted, or the commit's table as an identity's key.  Whatever lets go of a
 * handle last releases it, so each is released once.
 *
 * A commit of a single event, the usual case of short transactions, needs no
 * table and no hash; it is held back until it is known to be alone.
 *
 *-------------------------------------------------------------------------
 */
#define SCDC_COLLAPSE_OLD
#ifdef FRONTEND
#include "postgres_fe.h"
#else
#include "postgres.h"
#endif

#include "common/hashfn.h"

#include "collapse/collapse.h"

#ifdef FRONTEND
#define palloc_huge(size)			palloc(size)
#define repalloc_huge(ptr, size)	repalloc(ptr, size)
#define collapse_error(msg) \
	do { \
		fprintf(stderr, "%s\n", msg); \
		exit(1); \
	} while (0)
#else
#define palloc_huge(size)			MemoryContextAllocHuge(CurrentMemoryContext, size)
#define collapse_error(msg)			elog(ERROR, "%s", msg)
#endif

#define INITIAL_SIZE	16			/* of every array; a power of two */
#define MAX_SIZE		((uint32) 1 << 30)

#define NOWHERE			PG_UINT32_MAX	/* end of a chain or list */

/*
 * A chained hash table whose entries are numbered in the order of arrival;
 * the payload is in an array of the table's owner, under the same numbers.
 */
typedef struct KeySlot
{
	uint32		hash;
	uint32		next;			/* in the bucket's chain */
	const void *key;			/* a row of this identity; must be a live handle */
} KeySlot;

typedef struct KeyTable
{
	uint32	   *buckets;		/* as many as slots have room */
	KeySlot    *slots;
	uint32		nslots;
	uint32		size;
} KeyTable;

/* A row image of the commit under way, in a list of its identity. */
typedef struct Image
{
	const void *row;
	int64		seq;			/* of its event */
	uint32		prev;
	uint32		next;
} Image;

typedef struct ImageList
{
	uint32		head;
	uint32		tail;
	uint32		count;
} ImageList;

/* Payload of the commit's table. */
typedef struct Identity
{
	ImageList	before;			/* taken away, there before the commit */
	ImageList	brought;		/* brought by the commit, still there */
	int64		last_seq;		/* of the last event that touched the identity */
	bool		last_brought;	/* did that event bring a row, or only take one away? */
	bool		key_spent;		/* is the key's handle held as the key only? */
} Identity;

/*
 * A row on its way out.  "order" settles the place among rows of one event:
 * the identity that a key change leaves comes before the one it reaches, and
 * a pre-image before its post-image.
 */
typedef struct PlacedRow
{
	ScdcChangeRow change;
	uint8		order;
} PlacedRow;

#define ORDER_INSERT_LIKE	1
#define ORDER_BROUGHT		2

/* Payload of the range's table.  The slot's key is always last's handle. */
typedef struct NetChange
{
	bool		before;			/* is the first row delete-like? */
	PlacedRow	first;			/* kept only if so */
	PlacedRow	last;			/* may be the first one */
} NetChange;

struct ScdcCollapse
{
	ScdcCollapseOps ops;
	ScdcDeduplication mode;
	bool		compute_updates;

	/* the commit under way */
	int64		version;
	int64		timestamp;
	bool		held;			/* its only event so far is held back: */
	const void *held_old;
	const void *held_new;
	int64		held_seq;
	KeyTable	keys;
	Identity   *identities;
	Image	   *images;
	uint32		nimages;		/* used so far, free ones included */
	uint32		free_images;	/* list of those given back */
	uint32		images_size;
	uint32		identities_size;

	/* rows to be emitted */
	PlacedRow  *rows;
	Size		nrows;
	Size		rows_size;
	bool		rows_sorted;	/* did they arrive in order? */

	/* the range */
	KeyTable	net_keys;
	NetChange  *net_changes;
	uint32		net_changes_size;
};

static inline bool
is_delete_like(ScdcChangeType type)
{
	return type == SCDC_CHANGE_DELETE || type == SCDC_CHANGE_UPDATE_PREIMAGE;
}

static inline void
release(ScdcCollapse *c, const void *row)
{
	if (c->ops.release != NULL)
		c->ops.release(row, c->ops.arg);
}

/* ---------------------------------------------------------------------
 * tables and arrays
 *
 * All arrays are allocated when the collapse is created and only enlarged
 * later: repalloc keeps them in their memory context, whichever is current.
 * ---------------------------------------------------------------------
 */

static void
key_table_init(KeyTable *t)
{
	t->size = INITIAL_SIZE;
	t->nslots = 0;
	t->slots = palloc(t->size * sizeof(KeySlot));
	t->buckets = palloc(t->size * sizeof(uint32));
	memset(t->buckets, 0xff, t->size * sizeof(uint32));
}

static inline uint32 *
key_table_bucket(KeyTable *t, uint32 hash)
{
	return &t->buckets[hash & (t->size - 1)];
}

static inline void
key_table_link(KeyTable *t, uint32 i)
{
	uint32	   *bucket = key_table_bucket(t, t->slots[i].hash);

	t->slots[i].next = *bucket;
	*bucket = i;
}

static uint32
doubled_size(uint32 size)
{
	if (size >= MAX_SIZE)
		collapse_error("too many rows in one commit or range");
	return size * 2;
}

static void
key_table_grow(KeyTable *t)
{
	uint32		i;

	t->size = doubled_size(t->size);
	t->slots = repalloc_huge(t->slots, t->size * sizeof(KeySlot));
	t->buckets = repalloc_huge(t->buckets, t->size * sizeof(uint32));
	memset(t->buckets, 0xff, t->size * sizeof(uint32));
	for (i = 0; i < t->nslots; i++)
		key_table_link(t, i);
}

/* Costs what was in use, not what is allocated: small commits may follow a large one. */
static void
key_table_reset(KeyTable *t)
{
	uint32		i;

	if (t->nslots > t->size / 8)
		memset(t->buckets, 0xff, t->size * sizeof(uint32));
	else
		for (i = 0; i < t->nslots; i++)
			*key_table_bucket(t, t->slots[i].hash) = NOWHERE;
	t->nslots = 0;
}

static void
key_table_free(KeyTable *t)
{
	pfree(t->slots);
	pfree(t->buckets);
}

/* Spreads the caller's hash, which may be as plain as the key itself. */
static inline uint32
hash_row(ScdcCollapse *c, const void *row)
{
	return murmurhash32(c->ops.hash(row, c->ops.arg));
}

/* Number of the row's identity; *found tells whether it was there already. */
static uint32
key_table_enter(ScdcCollapse *c, KeyTable *t, const void *row, uint32 hash, bool *found)
{
	uint32		i;

	for (i = *key_table_bucket(t, hash); i != NOWHERE; i = t->slots[i].next)
	{
		if (t->slots[i].hash == hash &&
			c->ops.same_identity(t->slots[i].key, row, c->ops.arg))
		{
			*found = true;
			return i;
		}
	}

	if (t->nslots == t->size)
		key_table_grow(t);
	i = t->nslots++;
	t->slots[i].hash = hash;
	t->slots[i].key = row;
	key_table_link(t, i);
	*found = false;
	return i;
}

static void
image_append(ScdcCollapse *c, ImageList *list, const void *row, int64 seq)
{
	uint32		i = c->free_images;

	if (i != NOWHERE)
		c->free_images = c->images[i].next;
	else
	{
		if (c->nimages == c->images_size)
		{
			c->images_size = doubled_size(c->images_size);
			c->images = repalloc_huge(c->images, c->images_size * sizeof(Image));
		}
		i = c->nimages++;
	}

	c->images[i].row = row;
	c->images[i].seq = seq;
	c->images[i].next = NOWHERE;
	c->images[i].prev = list->tail;
	if (list->tail != NOWHERE)
		c->images[list->tail].next = i;
	else
		list->head = i;
	list->tail = i;
	list->count++;
}

static void
image_remove(ScdcCollapse *c, ImageList *list, uint32 i)
{
	Image	   *image = &c->images[i];

	if (image->prev != NOWHERE)
		c->images[image->prev].next = image->next;
	else
		list->head = image->next;
	if (image->next != NOWHERE)
		c->images[image->next].prev = image->prev;
	else
		list->tail = image->prev;
	list->count--;

	image->next = c->free_images;
	c->free_images = i;
}

static void
image_list_init(ImageList *list)
{
	list->head = NOWHERE;
	list->tail = NOWHERE;
	list->count = 0;
}

ScdcCollapse *
scdc_collapse_create(const ScdcCollapseOps *ops, ScdcDeduplication mode, bool compute_updates)
{
	ScdcCollapse *c = palloc0(sizeof(ScdcCollapse));

	Assert((ops->hash == NULL) == (ops->same_identity == NULL));
	Assert(ops->hash != NULL || (mode != SCDC_DEDUP_NET_CHANGES && !compute_updates));
	Assert(mode != SCDC_DEDUP_NONE || !compute_updates);

	c->ops = *ops;
	c->mode = mode;
	c->compute_updates = compute_updates;

	key_table_init(&c->keys);
	c->identities_size = INITIAL_SIZE;
	c->identities = palloc(c->identities_size * sizeof(Identity));
	c->images_size = INITIAL_SIZE;
	c->images = palloc(c->images_size * sizeof(Image));
	c->free_images = NOWHERE;
	c->rows_size = INITIAL_SIZE;
	c->rows = palloc(c->rows_size * sizeof(PlacedRow));
	c->rows_sorted = true;
	key_table_init(&c->net_keys);
	c->net_changes_size = INITIAL_SIZE;
	c->net_changes = palloc(c->net_changes_size * sizeof(NetChange));
	return c;
}

/* ---------------------------------------------------------------------
 * rows to be emitted
 * ---------------------------------------------------------------------
 */

/* Places are unique, except for events that share a number against the contract. */
static inline bool
stands_before(const PlacedRow *a, const PlacedRow *b)
{
	if (a->change.version != b->change.version)
		return a->change.version < b->change.version;
	if (a->change.seq != b->change.seq)
		return a->change.seq < b->change.seq;
	return a->order < b->order;
}

static void
append_row(ScdcCollapse *c, const PlacedRow *row)
{
	if (c->nrows == c->rows_size)
	{
		c->rows_size *= 2;
		c->rows = repalloc_huge(c->rows, c->rows_size * sizeof(PlacedRow));
	}
	if (c->nrows > 0 && stands_before(row, &c->rows[c->nrows - 1]))
		c->rows_sorted = false;
	c->rows[c->nrows++] = *row;
}

/* Merges the sorted runs from[0..mid) and from[mid..n) into "to". */
static void
merge_runs(const PlacedRow *from, Size mid, Size n, PlacedRow *to)
{
	Size		left = 0;
	Size		right = mid;

	if (mid >= n || !stands_before(&from[mid], &from[mid - 1]))
	{
		memcpy(to, from, n * sizeof(PlacedRow));
		return;
	}
	while (left < mid && right < n)
	{
		if (stands_before(&from[right], &from[left]))
			*to++ = from[right++];
		else
			*to++ = from[left++];
	}
	memcpy(to, &from[left], (mid - left) * sizeof(PlacedRow));
	to += mid - left;
	memcpy(to, &from[right], (n - right) * sizeof(PlacedRow));
}

/*
 * A merge sort from the bottom up: the server's qsort is quadratic at worst
 * and recursive, and the order of arrival has long runs to gain from.
 */
static void
sort_rows(ScdcCollapse *c)
{
	PlacedRow  *spare = palloc_huge(c->nrows * sizeof(PlacedRow));
	PlacedRow  *from = c->rows;
	PlacedRow  *to = spare;
	Size		width;

	for (width = 1; width < c->nrows; width *= 2)
	{
		PlacedRow  *swap = from;
		Size		start;

		for (start = 0; start < c->nrows; start += 2 * width)
		{
			Size		n = Min(2 * width, c->nrows - start);

			merge_runs(from + start, Min(width, n), n, to + start);
		}
		from = to;
		to = swap;
	}
	if (from != c->rows)
		memcpy(c->rows, from, c->nrows * sizeof(PlacedRow));
	pfree(spare);
}

static void
emit_rows(ScdcCollapse *c)
{
	Size		i;

	if (!c->rows_sorted)
		sort_rows(c);
	for (i = 0; i < c->nrows; i++)
	{
		c->ops.emit(&c->rows[i].change, c->ops.arg);
		release(c, c->rows[i].change.row);
	}
	c->nrows = 0;
	c->rows_sorted = true;
}

/* ---------------------------------------------------------------------
 * net changes
 * ---------------------------------------------------------------------
 */

/* Rows of one identity arrive by version, delete-like ones first within a version. */
static void
net_add(ScdcCollapse *c, const PlacedRow *row, uint32 hash)
{
	bool		found;
	uint32		i = key_table_enter(c, &c->net_keys, row->change.row, hash, &found);
	NetChange  *net;

	if (i >= c->net_changes_size)
	{
		c->net_changes_size = doubled_size(c->net_changes_size);
		c->net_changes = repalloc_huge(c->net_changes, c->net_changes_size * sizeof(NetChange));
	}
	net = &c->net_changes[i];

	if (!found)
	{
		net->before = is_delete_like(row->change.type);
		net->first = *row;
	}
	else
	{
		bool		last_is_kept = net->before && net->last.change.row == net->first.change.row;

		if (!last_is_kept)
			release(c, net->last.change.row);
		c->net_keys.slots[i].key = row->change.row;
	}
	net->last = *row;
}

static void
net_settle(ScdcCollapse *c, NetChange *net)
{
	bool		before = net->before;
	bool		after = !is_delete_like(net->last.change.type);
	bool		as_update = before && after && c->compute_updates;

	if (before)
	{
		net->first.change.type = as_update ? SCDC_CHANGE_UPDATE_PREIMAGE : SCDC_CHANGE_DELETE;
		append_row(c, &net->first);
	}
	if (after)
	{
		net->last.change.type = as_update ? SCDC_CHANGE_UPDATE_POSTIMAGE : SCDC_CHANGE_INSERT;
		append_row(c, &net->last);
	}
	else if (!before || net->last.change.row != net->first.change.row)
		release(c, net->last.change.row);
}

/* ---------------------------------------------------------------------
 * row-level passes
 * ---------------------------------------------------------------------
 */

/* "hash" is that of the row's identity, needed for net changes only. */
static void
put_row(ScdcCollapse *c, ScdcChangeType type, const void *row, int64 seq, bool brought, uint32 hash)
{
	PlacedRow	placed;

	placed.change.type = type;
	placed.change.version = c->version;
	placed.change.timestamp = c->timestamp;
	placed.change.seq = seq;
	placed.change.row = row;
	placed.order = (brought ? ORDER_BROUGHT : 0) | (is_delete_like(type) ? 0 : ORDER_INSERT_LIKE);

	if (c->mode == SCDC_DEDUP_NET_CHANGES)
		net_add(c, &placed, hash);
	else
		append_row(c, &placed);
}

/*
 * What became of one identity, or without identities, of one row: "before"
 * and "after" are NULL if it was not there.
 */
static void
put_change(ScdcCollapse *c, const void *before, const void *after, int64 seq, bool brought, uint32 hash)
{
	bool		as_update = false;

	if (before != NULL && after != NULL)
	{
		if (c->mode != SCDC_DEDUP_NONE && c->ops.same_image(before, after, c->ops.arg))
		{
			release(c, before);
			release(c, after);
			return;
		}
		as_update = c->compute_updates;
	}
	if (before != NULL)
		put_row(c, as_update ? SCDC_CHANGE_UPDATE_PREIMAGE : SCDC_CHANGE_DELETE,
				before, seq, brought, hash);
	if (after != NULL)
		put_row(c, as_update ? SCDC_CHANGE_UPDATE_POSTIMAGE : SCDC_CHANGE_INSERT,
				after, seq, brought, hash);
}

/* A commit that consists of one event. */
static void
put_held_event(ScdcCollapse *c)
{
	const void *old_row = c->held_old;
	const void *new_row = c->held_new;
	bool		need_hash = c->mode == SCDC_DEDUP_NET_CHANGES;
	bool		key_change;

	c->held = false;
	key_change = old_row != NULL && new_row != NULL &&
		!c->ops.same_identity(old_row, new_row, c->ops.arg);

	if (key_change)
	{
		put_change(c, old_row, NULL, c->held_seq, false, need_hash ? hash_row(c, old_row) : 0);
		put_change(c, NULL, new_row, c->held_seq, true, need_hash ? hash_row(c, new_row) : 0);
	}
	else
	{
		const void *row = old_row != NULL ? old_row : new_row;

		put_change(c, old_row, new_row, c->held_seq, new_row != NULL,
				   need_hash ? hash_row(c, row) : 0);
	}
}

static uint32
find_identity(ScdcCollapse *c, const void *row)
{
	bool		found;
	uint32		i = key_table_enter(c, &c->keys, row, hash_row(c, row), &found);

	if (!found)
	{
		Identity   *identity;

		if (i >= c->identities_size)
		{
			c->identities_size = doubled_size(c->identities_size);
			c->identities = repalloc_huge(c->identities, c->identities_size * sizeof(Identity));
		}
		identity = &c->identities[i];
		image_list_init(&identity->before);
		image_list_init(&identity->brought);
		identity->key_spent = false;
	}
	return i;
}

/* Lets go of a netted row, unless the table still needs it as a key. */
static void
drop_row(ScdcCollapse *c, uint32 i, const void *row)
{
	if (row == c->keys.slots[i].key)
		c->identities[i].key_spent = true;
	else
		release(c, row);
}

/*
 * The image that the commit brought and that equals the row.  There is one
 * image to look at, normally.  When a deferred constraint lets many rows
 * share a key for a while they leave in the order they came or in the
 * opposite one, so looking from both ends finds either soon.
 */
static uint32
find_brought(ScdcCollapse *c, const ImageList *list, const void *row)
{
	uint32		newest = list->tail;
	uint32		oldest = list->head;
	uint32		n;

	for (n = 0; n < list->count; n++)
	{
		uint32		i = (n % 2 == 0) ? newest : oldest;

		if (c->ops.same_image(c->images[i].row, row, c->ops.arg))
			return i;
		if (i == newest)
			newest = c->images[i].prev;
		else
			oldest = c->images[i].next;
	}
	return NOWHERE;
}

static void
take_away(ScdcCollapse *c, uint32 i, const void *row, int64 seq)
{
	Identity   *identity = &c->identities[i];
	uint32		undone = find_brought(c, &identity->brought, row);

	if (undone != NOWHERE)
	{
		drop_row(c, i, c->images[undone].row);
		image_remove(c, &identity->brought, undone);
		drop_row(c, i, row);
	}
	else
		image_append(c, &identity->before, row, seq);
	identity->last_seq = seq;
	identity->last_brought = false;
}

static void
bring(ScdcCollapse *c, uint32 i, const void *row, int64 seq)
{
	Identity   *identity = &c->identities[i];

	image_append(c, &identity->brought, row, seq);
	identity->last_seq = seq;
	identity->last_brought = true;
}

static void
net_event(ScdcCollapse *c, const void *old_row, const void *new_row, int64 seq)
{
	uint32		i;
	bool		same_key = false;

	if (old_row != NULL)
	{
		i = find_identity(c, old_row);
		/* asked first, since the old row may be gone afterwards */
		same_key = new_row != NULL && c->ops.same_identity(old_row, new_row, c->ops.arg);
		take_away(c, i, old_row, seq);
		if (same_key)
			bring(c, i, new_row, seq);
	}
	if (new_row != NULL && !same_key)
	{
		i = find_identity(c, new_row);
		bring(c, i, new_row, seq);
	}
}

void
scdc_collapse_event(ScdcCollapse *c, int64 version, int64 timestamp, int64 seq,
					const void *old_row, const void *new_row)
{
	Assert(old_row != NULL || new_row != NULL);

	c->version = version;
	c->timestamp = timestamp;

	if (c->ops.hash == NULL)
	{
		put_change(c, old_row, new_row, seq, new_row != NULL, 0);
		emit_rows(c);
		return;
	}

	if (!c->held && c->keys.nslots == 0)
	{
		c->held = true;
		c->held_old = old_row;
		c->held_new = new_row;
		c->held_seq = seq;
		return;
	}
	if (c->held)
	{
		c->held = false;
		net_event(c, c->held_old, c->held_new, c->held_seq);
	}
	net_event(c, old_row, new_row, seq);
}

static const void *
only_row(ScdcCollapse *c, const ImageList *list)
{
	return list->count > 0 ? c->images[list->head].row : NULL;
}

/* Puts out what the commit's events left of one identity. */
static void
settle_identity(ScdcCollapse *c, uint32 n)
{
	Identity   *identity = &c->identities[n];
	uint32		hash = c->keys.slots[n].hash;
	uint32		i;

	/* before the rows, for in a range of net changes they may go at once */
	if (identity->key_spent)
		release(c, c->keys.slots[n].key);

	if (identity->before.count <= 1 && identity->brought.count <= 1)
	{
		put_change(c, only_row(c, &identity->before), only_row(c, &identity->brought),
				   identity->last_seq, identity->last_brought, hash);
		return;
	}

	/* The identity was not unique.  Nothing can be paired, nothing may be lost. */
	for (i = identity->before.head; i != NOWHERE; i = c->images[i].next)
		put_row(c, SCDC_CHANGE_DELETE, c->images[i].row, c->images[i].seq, false, hash);
	for (i = identity->brought.head; i != NOWHERE; i = c->images[i].next)
		put_row(c, SCDC_CHANGE_INSERT, c->images[i].row, c->images[i].seq, true, hash);
}

void
scdc_collapse_end_commit(ScdcCollapse *c)
{
	uint32		i;

	if (c->held)
		put_held_event(c);
	for (i = 0; i < c->keys.nslots; i++)
		settle_identity(c, i);

	key_table_reset(&c->keys);
	c->nimages = 0;
	c->free_images = NOWHERE;
	if (c->mode != SCDC_DEDUP_NET_CHANGES)
		emit_rows(c);
}

/*
 * Frees all but the ScdcCollapse itself, which can only be pfree'd after this
 * or go with its memory context.
 */
void
scdc_collapse_finish(ScdcCollapse *c)
{
	uint32		i;

	/* a range that ends without an end of its last commit loses nothing either */
	scdc_collapse_end_commit(c);
	for (i = 0; i < c->net_keys.nslots; i++)
		net_settle(c, &c->net_changes[i]);
	emit_rows(c);

	key_table_free(&c->keys);
	key_table_free(&c->net_keys);
	pfree(c->identities);
	pfree(c->images);
	pfree(c->rows);
	pfree(c->net_changes);
}
