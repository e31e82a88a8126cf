/*-------------------------------------------------------------------------
 *
 * netting.c
 *	  Netting inside a commit: from the events of a tracked table to at most
 *	  one delete and one insert of each identity.
 *
 * An event is taken apart into what it does to each identity: it takes away
 * an image, brings one, or does both.  For each identity we hold the image
 * that was there before the commit and has been taken away, and the images
 * that the commit has brought and not taken away again.  A log that keeps its
 * contract leaves at most one of each.
 *
 * Once memory is full, identities that are not in it yet go to partitions.
 *
 *-------------------------------------------------------------------------
 */
#ifdef FRONTEND
#include "postgres_fe.h"
#else
#include "postgres.h"
#endif

#include "collapse/internal.h"

typedef struct ImageList
{
	ScdcKeptRow *head;
	ScdcKeptRow *tail;
	uint32		count;
} ImageList;

typedef struct NetIdentity
{
	ScdcIdentity base;
	ImageList	before;			/* taken away, there before the commit */
	ImageList	brought;		/* brought by the commit, still there */
	ScdcKeptRow *spent_key;		/* a row that is held as the key only */
	int64		last_seq;		/* of the last event that touched the identity */
	bool		last_brought;	/* did that event bring a row, or only take one away? */
} NetIdentity;

void
scdc_netting_init(ScdcCollapse *c, Size limit)
{
	ScdcNetting *n = &c->netting;

	memset(n, 0, sizeof(*n));
	scdc_pool_init(&n->pool, c->context, limit);
	scdc_table_init(&n->table, &n->pool, sizeof(NetIdentity));
}

static void
list_append(ImageList *list, ScdcKeptRow *image)
{
	image->next = NULL;
	image->prev = list->tail;
	if (list->tail)
		list->tail->next = image;
	else
		list->head = image;
	list->tail = image;
	list->count++;
}

static void
list_remove(ImageList *list, ScdcKeptRow *image)
{
	if (image->prev)
		image->prev->next = image->next;
	else
		list->head = image->next;
	if (image->next)
		image->next->prev = image->prev;
	else
		list->tail = image->prev;
	list->count--;
}

static bool
same_row(ScdcCollapse *c, const void *a, const void *b)
{
	return c->ops.same_row ? c->ops.same_row(a, b, c->ops.arg) : c->ops.same_image(a, b, c->ops.arg);
}

/*
 * The image that the commit brought and that equals the row.  There is one
 * image to look at, normally.  When a deferred constraint lets many rows
 * share a key for a while they leave in the order they came or in the
 * opposite one, so looking from both ends finds either soon.
 */
static ScdcKeptRow *
find_brought(ScdcCollapse *c, const ImageList *list, const void *row)
{
	ScdcKeptRow *newest = list->tail;
	ScdcKeptRow *oldest = list->head;

	for (uint32 n = 0; n < list->count; n++)
	{
		ScdcKeptRow *image = (n % 2 == 0) ? newest : oldest;

		if (same_row(c, scdc_kept_bytes(image), row))
			return image;
		if (image == newest)
			newest = image->prev;
		else
			oldest = image->next;
	}
	return NULL;
}

static ScdcKeptRow *
keep(ScdcCollapse *c, NetIdentity *identity, const ScdcPlacedRow *row)
{
	ScdcKeptRow *image = scdc_keep_row(&c->netting.pool, row);

	if (identity->base.key == NULL)
		identity->base.key = scdc_kept_bytes(image);
	return image;
}

/* Lets go of a netted image, unless the table still needs it as a key. */
static void
drop_image(ScdcCollapse *c, NetIdentity *identity, ScdcKeptRow *image)
{
	if (scdc_kept_bytes(image) == identity->base.key)
		identity->spent_key = image;
	else
		scdc_drop_row(&c->netting.pool, image);
}

/* With the identity's next image at hand, the key can move there. */
static void
replace_spent_key(ScdcCollapse *c, NetIdentity *identity, const ScdcKeptRow *image)
{
	if (identity->spent_key == NULL)
		return;
	identity->base.key = scdc_kept_bytes(image);
	scdc_drop_row(&c->netting.pool, identity->spent_key);
	identity->spent_key = NULL;
}

static void
take_away(ScdcCollapse *c, NetIdentity *identity, const ScdcPlacedRow *row)
{
	ScdcKeptRow *undone = find_brought(c, &identity->brought, row->change.row);

	if (undone)
	{
		list_remove(&identity->brought, undone);
		drop_image(c, identity, undone);
	}
	else
	{
		ScdcKeptRow *image = keep(c, identity, row);

		list_append(&identity->before, image);
		replace_spent_key(c, identity, image);
	}
	identity->last_seq = row->change.seq;
	identity->last_brought = false;
}

static void
bring(ScdcCollapse *c, NetIdentity *identity, const ScdcPlacedRow *row)
{
	ScdcKeptRow *image = keep(c, identity, row);

	list_append(&identity->brought, image);
	replace_spent_key(c, identity, image);
	identity->last_seq = row->change.seq;
	identity->last_brought = true;
}

/* What an event does to one identity.  One of the two may have no row. */
static void
net(ScdcCollapse *c, const ScdcPlacedRow *old_row, const ScdcPlacedRow *new_row)
{
	ScdcNetting *n = &c->netting;
	const ScdcPlacedRow *any = old_row ? old_row : new_row;
	NetIdentity *identity;

	if (any == NULL)
		return;					/* no row, no effect */
	identity = (NetIdentity *) scdc_table_find(c, &n->table, any->change.row, any->hash);

	if (identity == NULL)
	{
		if (scdc_table_is_full(&n->table) && scdc_can_split(n->spilled.depth))
		{
			ScdcRecord	record;

			memset(&record, 0, sizeof(record));
			record.hash = any->hash;
			if (old_row)
				record.rows[0] = *old_row;
			if (new_row)
				record.rows[1] = *new_row;
			scdc_spill(c, &n->spilled, &record);
			return;
		}
		identity = (NetIdentity *) scdc_table_add(&n->table, any->hash);
	}
	if (old_row)
		take_away(c, identity, old_row);
	if (new_row)
		bring(c, identity, new_row);
}

void
scdc_netting_event(ScdcCollapse *c, const ScdcPlacedRow *old_row, const ScdcPlacedRow *new_row)
{
	const ScdcPlacedRow *any = old_row ? old_row : new_row;

	if (any == NULL)
		return;
	c->netting.version = any->change.version;
	c->netting.timestamp = any->change.timestamp;
	if (old_row && new_row &&
		(old_row->hash != new_row->hash ||
		 !c->ops.same_identity(old_row->change.row, new_row->change.row, c->ops.arg)))
	{
		net(c, old_row, NULL);
		net(c, NULL, new_row);
	}
	else
		net(c, old_row, new_row);
}

/* Puts out what the commit's events left of one identity. */
static void
settle_identity(ScdcCollapse *c, NetIdentity *identity)
{
	ScdcNetting *n = &c->netting;
	uint32		hash = identity->base.hash;
	bool		lasts = n->spilled.depth == 0 && n->spilled.count == 0;
	uint8		order = identity->last_brought ? SCDC_ORDER_BROUGHT : 0;
	ScdcKeptRow *image = identity->before.head;
	ScdcPlacedRow before;
	ScdcPlacedRow after;

	if (identity->before.count <= 1 && identity->brought.count <= 1)
	{
		if (image)
		{
			before = scdc_place_of(image, n->version, n->timestamp, hash);
			before.change.seq = identity->last_seq;
			before.order = order;
		}
		if (identity->brought.head)
		{
			after = scdc_place_of(identity->brought.head, n->version, n->timestamp, hash);
			after.change.seq = identity->last_seq;
			after.order = order | SCDC_ORDER_INSERT_LIKE;
		}
		if (image || identity->brought.head)
			scdc_put_change(c, image ? &before : NULL, identity->brought.head ? &after : NULL, lasts);
		return;
	}

	/* The identity was not unique.  Nothing can be paired, nothing may be lost. */
	for (; image; image = image->next)
	{
		before = scdc_place_of(image, n->version, n->timestamp, hash);
		before.change.type = SCDC_CHANGE_DELETE;
		before.order = 0;
		scdc_put_row(c, &before, lasts);
	}
	for (image = identity->brought.head; image; image = image->next)
	{
		after = scdc_place_of(image, n->version, n->timestamp, hash);
		after.change.type = SCDC_CHANGE_INSERT;
		after.order = SCDC_ORDER_BROUGHT | SCDC_ORDER_INSERT_LIKE;
		scdc_put_row(c, &after, lasts);
	}
}

#define PREFETCH_SLOTS		24		/* so many identities ahead */
#define PREFETCH_ENTRIES	12

/*
 * Puts out the identities in memory.  The range's table is much larger than
 * the processor's caches, and here we know what will be looked up there next.
 */
static void
settle_all(ScdcCollapse *c)
{
	const ScdcTable *next = c->passes.net_changes ? &c->range.table : NULL;
	ScdcIdentity *slots = c->netting.table.first;
	ScdcIdentity *entries = slots;
	int			ahead = 0;

	for (ScdcIdentity *identity = slots; identity; identity = identity->next)
	{
		if (next)
		{
			for (; slots && ahead < PREFETCH_SLOTS; slots = slots->next, ahead++)
			{
				scdc_table_prefetch_slot(next, slots->hash);
				if (ahead >= PREFETCH_SLOTS - PREFETCH_ENTRIES)
				{
					scdc_table_prefetch_entry(next, entries->hash);
					entries = entries->next;
				}
			}
			if (slots == NULL && entries)
			{
				scdc_table_prefetch_entry(next, entries->hash);
				entries = entries->next;
			}
			ahead--;
		}
		settle_identity(c, (NetIdentity *) identity);
		scdc_check_interrupts(c);
	}
}

static void
net_record(ScdcCollapse *c, const ScdcRecord *record)
{
	net(c, record->rows[0].change.row ? &record->rows[0] : NULL,
		record->rows[1].change.row ? &record->rows[1] : NULL);
}

/* The rows put out may still lie in our memory: their emission is the caller's, and scdc_netting_reset after it. */
void
scdc_netting_end_commit(ScdcCollapse *c)
{
	scdc_settle(c, &c->netting.table, &c->netting.spilled, settle_all, net_record);
}

void
scdc_netting_reset(ScdcCollapse *c)
{
	ScdcNetting *n = &c->netting;

	scdc_table_reset(&n->table);
	scdc_pool_reset(&n->pool);
	n->spilled.count = 0;
	n->spilled.depth = 0;
}

void
scdc_netting_end(ScdcCollapse *c)
{
	scdc_table_end(&c->netting.table);
	scdc_pool_end(&c->netting.pool);
}
