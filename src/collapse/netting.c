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

		if (c->ops.same_image(image->placed.change.row, row, c->ops.arg))
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
		identity->base.key = image->placed.change.row;
	return image;
}

/* Lets go of a netted image, unless the table still needs it as a key. */
static void
drop_image(ScdcCollapse *c, NetIdentity *identity, ScdcKeptRow *image)
{
	if (image->placed.change.row == identity->base.key)
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
	identity->base.key = image->placed.change.row;
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
	NetIdentity *identity = (NetIdentity *) scdc_table_find(c, &n->table, any->change.row, any->hash);

	if (identity == NULL)
	{
		if (scdc_pool_is_full(&n->pool) && scdc_can_split(n->spilled.depth))
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
	ScdcKeptRow *image;
	bool		lasts = c->netting.spilled.depth == 0 && c->netting.spilled.count == 0;

	if (identity->before.count <= 1 && identity->brought.count <= 1)
	{
		ScdcPlacedRow *before = identity->before.head ? &identity->before.head->placed : NULL;
		ScdcPlacedRow *after = identity->brought.head ? &identity->brought.head->placed : NULL;
		uint8		order = identity->last_brought ? SCDC_ORDER_BROUGHT : 0;

		if (before)
		{
			before->change.seq = identity->last_seq;
			before->order = order;
		}
		if (after)
		{
			after->change.seq = identity->last_seq;
			after->order = order | SCDC_ORDER_INSERT_LIKE;
		}
		if (before || after)
			scdc_put_change(c, before, after, lasts);
		return;
	}

	/* The identity was not unique.  Nothing can be paired, nothing may be lost. */
	for (image = identity->before.head; image; image = image->next)
	{
		image->placed.change.type = SCDC_CHANGE_DELETE;
		image->placed.order = 0;
		scdc_put_row(c, &image->placed, lasts);
	}
	for (image = identity->brought.head; image; image = image->next)
	{
		image->placed.change.type = SCDC_CHANGE_INSERT;
		image->placed.order = SCDC_ORDER_BROUGHT | SCDC_ORDER_INSERT_LIKE;
		scdc_put_row(c, &image->placed, lasts);
	}
}

/* Puts out what is in memory, then what is in the partitions of what is in memory. */
static void
end_part(ScdcCollapse *c)
{
	ScdcNetting *n = &c->netting;
	ScdcPartitions spilled = n->spilled;

	for (ScdcIdentity *identity = n->table.first; identity; identity = identity->next)
	{
		settle_identity(c, (NetIdentity *) identity);
		scdc_check_interrupts(c);
	}
	if (spilled.count == 0)
		return;

	for (int i = 0; i < spilled.count; i++)
	{
		ScdcPartition partition;
		ScdcRecord	record;

		if (!scdc_partition_open(c, &spilled, i, &partition))
			continue;
		scdc_table_reset(&n->table);
		scdc_pool_reset(&n->pool);
		n->spilled.count = 0;
		n->spilled.depth = partition.depth;
		while (scdc_partition_read(&partition, &record))
			net(c, record.rows[0].change.row ? &record.rows[0] : NULL,
				record.rows[1].change.row ? &record.rows[1] : NULL);
		scdc_partition_close(&partition);
		end_part(c);
	}
}

/* The rows put out may still lie in our memory: their emission is the caller's, and scdc_netting_reset after it. */
void
scdc_netting_end_commit(ScdcCollapse *c)
{
	end_part(c);
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
