/*-------------------------------------------------------------------------
 *
 * range.c
 *	  Net changes (cdc-semantics section 8): the first and the last row of
 *	  each identity over all commits of the range.
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

/*
 * The key is always last's row.  The bytes of a first row that is
 * insert-like are never shown, so they are not kept.
 */
typedef struct NetChange
{
	ScdcIdentity base;
	ScdcKeptRow *first;			/* delete-like; may be the last one too; NULL: the first is insert-like */
	ScdcKeptRow *last;
	int64		first_version;
} NetChange;

void
scdc_range_init(ScdcCollapse *c, Size limit)
{
	ScdcRangeStage *r = &c->range;

	memset(r, 0, sizeof(*r));
	scdc_pool_init(&r->pool, c->context, limit);
	scdc_table_init(&r->table, &r->pool, sizeof(NetChange));
}

/* Sorts after all rows of the identity so far, by version and rank? */
static inline bool
is_last(const NetChange *net, const ScdcPlacedRow *row)
{
	return row->change.version > net->last->version ||
		!scdc_change_is_delete_like(row->change.type) ||
		scdc_change_is_delete_like((ScdcChangeType) net->last->type);
}

static ScdcKeptRow *
keep_in_range(ScdcCollapse *c, const ScdcPlacedRow *row)
{
	ScdcKeptRow *kept = scdc_keep_row(&c->range.pool, row);

	kept->version = row->change.version;
	kept->timestamp = row->change.timestamp;
	return kept;
}

static void
set_last(ScdcCollapse *c, NetChange *net, const ScdcPlacedRow *row)
{
	ScdcKeptRow *last = net->last;

	if (last != NULL && last != net->first && scdc_row_fits(last, row->size))
	{
		scdc_set_row(last, row);
		last->version = row->change.version;
		last->timestamp = row->change.timestamp;
		return;
	}
	net->last = keep_in_range(c, row);
	net->base.key = scdc_kept_bytes(net->last);
	if (last != NULL && last != net->first)
		scdc_drop_row(&c->range.pool, last);
}

static void
add_row(ScdcCollapse *c, NetChange *net, const ScdcPlacedRow *row)
{
	bool		delete_like = scdc_change_is_delete_like(row->change.type);

	if (net->last == NULL)
	{
		net->first_version = row->change.version;
		set_last(c, net, row);
		if (delete_like)
			net->first = net->last;
		return;
	}

	/* a delete-like row comes before the insert-like ones of its version, wherever it stood */
	if (delete_like && net->first == NULL && net->first_version == row->change.version)
	{
		if (is_last(net, row))
		{
			set_last(c, net, row);
			net->first = net->last;
		}
		else
			net->first = keep_in_range(c, row);
	}
	else if (is_last(net, row))
		set_last(c, net, row);
}

/* NULL if it went to a file. */
static NetChange *
find_or_spill(ScdcCollapse *c, const ScdcPlacedRow *row, const ScdcPlacedRow *second)
{
	ScdcRangeStage *r = &c->range;
	NetChange  *net = (NetChange *) scdc_table_find(c, &r->table, row->change.row, row->hash);

	if (net)
		return net;
	if (scdc_table_is_full(&r->table) && scdc_can_split(r->spilled.depth))
	{
		ScdcRecord	record;

		memset(&record, 0, sizeof(record));
		record.hash = row->hash;
		record.rows[0] = *row;
		if (second)
			record.rows[1] = *second;
		scdc_spill(c, &r->spilled, &record);
		return NULL;
	}
	return (NetChange *) scdc_table_add(&r->table, row->hash);
}

/*
 * The error is raised at the end of the commit, so that which one it is does
 * not depend on the order in which groups come out of partitions.
 */
static bool
is_expected(ScdcCollapse *c, const ScdcPlacedRow *row)
{
	if (row->change.type != SCDC_CHANGE_OTHER)
		return true;
	if (c->unexpected == NULL || row->change.seq < c->unexpected->seq)
		c->unexpected = keep_in_range(c, row);
	return false;
}

void
scdc_range_add(ScdcCollapse *c, const ScdcPlacedRow *row, const ScdcPlacedRow *second)
{
	NetChange  *net;

	if (!is_expected(c, row))
		return;
	scdc_check_interrupts(c);
	net = find_or_spill(c, row, second);
	if (net == NULL)
		return;

	/* of a delete and an insert, only a first commit's delete is ever shown */
	if (second == NULL || net->last == NULL ||
		!scdc_change_is_delete_like(row->change.type) || scdc_change_is_delete_like(second->change.type) ||
		row->change.version == net->first_version)
		add_row(c, net, row);
	if (second)
		add_row(c, net, second);
}

static void
settle_row(ScdcCollapse *c, const NetChange *net, const ScdcKeptRow *kept, ScdcChangeType type, bool lasts)
{
	ScdcPlacedRow row;

	Assert(kept != NULL);
	row = scdc_place_of(kept, kept->version, kept->timestamp, net->base.hash);
	row.change.type = type;
	scdc_sorter_add(c, &row, !lasts);
}

static void
settle_change(ScdcCollapse *c, const NetChange *net, bool lasts)
{
	ScdcChangeType first = net->first ? (ScdcChangeType) net->first->type : SCDC_CHANGE_INSERT;
	ScdcNetResult result = scdc_net_result(first, (ScdcChangeType) net->last->type, c->compute_updates);

	if (result.before)
		settle_row(c, net, net->first, result.before_type, lasts);
	if (result.after)
		settle_row(c, net, net->last, result.after_type, lasts);
}

static void
settle_all(ScdcCollapse *c)
{
	ScdcRangeStage *r = &c->range;
	bool		lasts = r->spilled.depth == 0 && r->spilled.count == 0;

	for (ScdcIdentity *i = r->table.first; i; i = i->next)
	{
		settle_change(c, (NetChange *) i, lasts);
		scdc_check_interrupts(c);
	}
}

static void
add_record(ScdcCollapse *c, const ScdcRecord *record)
{
	scdc_range_add(c, &record->rows[0], record->rows[1].change.row ? &record->rows[1] : NULL);
}

void
scdc_range_finish(ScdcCollapse *c)
{
	scdc_settle(c, &c->range.table, &c->range.spilled, settle_all, add_record);
}

void
scdc_range_end(ScdcCollapse *c)
{
	scdc_table_end(&c->range.table);
	scdc_pool_end(&c->range.pool);
}
