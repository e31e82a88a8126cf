/*-------------------------------------------------------------------------
 *
 * grouping.c
 *	  Labelled rows of a commit in the groups of cdc-semantics section 7.1,
 *	  and what the row-level passes make of them.
 *
 * While a commit fits into memory its rows are kept in their order, beside a
 * table of groups that only count.  If it does not, all of them go to
 * partitions, and each partition is read twice: once to count, once to put
 * its rows out.  So a single group may be larger than memory.
 *
 *-------------------------------------------------------------------------
 */
#ifdef FRONTEND
#include "postgres_fe.h"
#else
#include "postgres.h"
#endif

#include "collapse/internal.h"

typedef struct GroupEntry
{
	ScdcIdentity base;
	ScdcGroup	group;
	ScdcGroupFate fate;			/* once it is known */
	const void *version_row;	/* the first with a row version */
} GroupEntry;

void
scdc_grouping_init(ScdcCollapse *c, Size limit)
{
	ScdcGrouping *g = &c->grouping;

	memset(g, 0, sizeof(*g));
	scdc_pool_init(&g->pool, c->context, limit);
	scdc_table_init(&g->table, &g->pool, sizeof(GroupEntry));
}

static void
reset(ScdcCollapse *c)
{
	ScdcGrouping *g = &c->grouping;

	scdc_table_reset(&g->table);
	scdc_pool_reset(&g->pool);
	g->first = g->last = NULL;
}

static GroupEntry *
find_group(ScdcCollapse *c, const ScdcPlacedRow *row)
{
	return (GroupEntry *) scdc_table_find(c, &c->grouping.table, row->change.row, row->hash);
}

static void *
copy_bytes(ScdcCollapse *c, const ScdcPlacedRow *row)
{
	void	   *bytes = scdc_pool_alloc(&c->grouping.pool, row->size);

	return memcpy(bytes, row->change.row, row->size);
}

/* Counts a row into its group; lasts: are its bytes in the pool? */
static GroupEntry *
count_row(ScdcCollapse *c, const ScdcPlacedRow *row, bool lasts)
{
	GroupEntry *entry = find_group(c, row);
	ScdcGroup  *group;

	if (entry == NULL)
	{
		entry = (GroupEntry *) scdc_table_add(&c->grouping.table, row->hash);
		entry->base.key = lasts ? row->change.row : copy_bytes(c, row);
	}
	group = &entry->group;

	if (row->change.type == SCDC_CHANGE_DELETE)
		group->ndeletes++;
	else if (row->change.type == SCDC_CHANGE_INSERT)
		group->ninserts++;

	/* row versions matter up to the third, which makes more than two */
	if (c->passes.drop_carryovers && group->nversions <= 2 &&
		c->ops.has_row_version(row->change.row, c->ops.arg))
	{
		group->nversions++;
		if (group->nversions == 1)
		{
			group->one_version = true;
			entry->version_row = lasts ? row->change.row : copy_bytes(c, row);
		}
		else
			group->one_version = group->one_version &&
				c->ops.same_row_version(entry->version_row, row->change.row, c->ops.arg);
	}
	return entry;
}

static void
multiple_changes(ScdcCollapse *c, const GroupEntry *entry)
{
	ScdcChangeRow change;

	memset(&change, 0, sizeof(change));
	change.type = SCDC_CHANGE_DELETE;
	change.version = c->grouping.version;
	change.row = entry->base.key;
	c->ops.error(SCDC_ERROR_MULTIPLE_CHANGES, &change, c->ops.arg);
}

static void
settle_groups(ScdcCollapse *c)
{
	for (ScdcIdentity *i = c->grouping.table.first; i; i = i->next)
	{
		GroupEntry *entry = (GroupEntry *) i;

		entry->fate = scdc_group_fate(&entry->group, c->passes);
		if (entry->fate == SCDC_GROUP_ERROR)
			multiple_changes(c, entry);
	}
}

static void
put_row(ScdcCollapse *c, const GroupEntry *entry, ScdcPlacedRow *row, bool lasts)
{
	switch (entry->fate)
	{
		case SCDC_GROUP_DROP:
			return;
		case SCDC_GROUP_ERROR:	/* raised already */
			return;
		case SCDC_GROUP_UPDATE:
			row->change.type = scdc_update_label(row->change.type);
			break;
		case SCDC_GROUP_KEEP:
			break;
	}
	scdc_put_row(c, row, lasts);
}

static void
spill_row(ScdcCollapse *c, const ScdcPlacedRow *row)
{
	ScdcRecord	record;

	memset(&record, 0, sizeof(record));
	record.hash = row->hash;
	record.rows[0] = *row;
	scdc_spill(c, &c->grouping.spilled, &record);
}

static void
spill_all(ScdcCollapse *c)
{
	ScdcGrouping *g = &c->grouping;

	for (ScdcKeptRow *row = g->first; row; row = row->next)
	{
		ScdcPlacedRow placed = scdc_place_of(row, g->version, g->timestamp, row->identity->hash);

		spill_row(c, &placed);
	}
	reset(c);
}

void
scdc_grouping_row(ScdcCollapse *c, const ScdcPlacedRow *row)
{
	ScdcGrouping *g = &c->grouping;
	ScdcKeptRow *kept;
	ScdcPlacedRow placed = *row;

	g->version = row->change.version;
	g->timestamp = row->change.timestamp;
	if (g->spilled.count > 0)
	{
		spill_row(c, row);
		return;
	}
	kept = scdc_keep_row(&g->pool, row);
	if (g->last)
		g->last->next = kept;
	else
		g->first = kept;
	g->last = kept;
	placed.change.row = scdc_kept_bytes(kept);
	kept->identity = (ScdcIdentity *) count_row(c, &placed, true);

	/* a commit of one row cannot be made smaller */
	if (g->first != g->last && scdc_table_is_full(&g->table))
		spill_all(c);
}

/* Counts a partition; false if its groups do not fit. */
static bool
count_partition(ScdcCollapse *c, ScdcPartition *partition)
{
	ScdcRecord	record;

	while (scdc_partition_read(partition, &record))
	{
		count_row(c, &record.rows[0], false);
		if (c->grouping.table.nentries > 1 && scdc_table_is_full(&c->grouping.table) &&
			scdc_can_split(partition->depth))
			return false;
	}
	return true;
}

static void end_partitions(ScdcCollapse *c, ScdcPartitions *spilled);

static void
end_partition(ScdcCollapse *c, ScdcPartition *partition)
{
	ScdcRecord	record;

	reset(c);
	if (count_partition(c, partition))
	{
		settle_groups(c);
		scdc_partition_rewind(partition);
		while (scdc_partition_read(partition, &record))
			put_row(c, find_group(c, &record.rows[0]), &record.rows[0], false);
		scdc_partition_close(partition);
	}
	else
	{
		ScdcPartitions smaller;

		reset(c);
		smaller.count = 0;
		smaller.depth = partition->depth;
		scdc_partition_rewind(partition);
		while (scdc_partition_read(partition, &record))
			scdc_spill(c, &smaller, &record);
		scdc_partition_close(partition);
		end_partitions(c, &smaller);
	}
}

static void
end_partitions(ScdcCollapse *c, ScdcPartitions *spilled)
{
	for (int i = 0; i < spilled->count; i++)
	{
		ScdcPartition partition;

		if (scdc_partition_open(c, spilled, i, &partition))
			end_partition(c, &partition);
	}
}

/* The rows put out may still lie in our memory: scdc_grouping_reset comes after they were emitted. */
void
scdc_grouping_end_commit(ScdcCollapse *c)
{
	ScdcGrouping *g = &c->grouping;

	if (g->spilled.count > 0)
	{
		end_partitions(c, &g->spilled);
		return;
	}
	settle_groups(c);
	for (ScdcKeptRow *row = g->first; row; row = row->next)
	{
		ScdcPlacedRow placed = scdc_place_of(row, g->version, g->timestamp, row->identity->hash);

		put_row(c, (GroupEntry *) row->identity, &placed, true);
	}
}

void
scdc_grouping_reset(ScdcCollapse *c)
{
	reset(c);
	c->grouping.spilled.count = 0;
}

void
scdc_grouping_end(ScdcCollapse *c)
{
	scdc_table_end(&c->grouping.table);
	scdc_pool_end(&c->grouping.pool);
}
