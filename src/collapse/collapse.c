/*-------------------------------------------------------------------------
 *
 * collapse.c
 *	  From a change log to change rows: what runs when, the decisions of the
 *	  passes, and the way of a row through the stages (internal.h).
 *
 *-------------------------------------------------------------------------
 */
#ifdef FRONTEND
#include "postgres_fe.h"
#else
#include "postgres.h"
#endif

#include "common/hashfn.h"

#include "collapse/internal.h"

/* ---------------------------------------------------------------------
 * decisions
 * ---------------------------------------------------------------------
 */

ScdcPasses
scdc_passes(ScdcSourceFlags flags, ScdcDeduplication mode, bool compute_updates)
{
	ScdcPasses	passes;

	passes.drop_carryovers = mode != SCDC_DEDUP_NONE && flags.carryovers;
	passes.detect_updates = compute_updates && flags.split_updates;
	passes.net_changes = mode == SCDC_DEDUP_NET_CHANGES && flags.intermediate;
	return passes;
}

bool
scdc_passes_conflict(ScdcSourceFlags flags, ScdcDeduplication mode, bool compute_updates)
{
	return scdc_passes(flags, mode, compute_updates).detect_updates &&
		flags.carryovers && mode == SCDC_DEDUP_NONE;
}

ScdcGroupFate
scdc_group_fate(const ScdcGroup *group, ScdcPasses passes)
{
	bool		pair = group->ndeletes == 1 && group->ninserts == 1;

	if (passes.drop_carryovers && pair && group->nversions == 2 && group->one_version)
		return SCDC_GROUP_DROP;
	if (!passes.detect_updates)
		return SCDC_GROUP_KEEP;
	if (group->ndeletes > 1 || group->ninserts > 1)
		return SCDC_GROUP_ERROR;
	return pair ? SCDC_GROUP_UPDATE : SCDC_GROUP_KEEP;
}

/* "Every other row" is meant to the letter (7.3, step 2). */
ScdcChangeType
scdc_update_label(ScdcChangeType type)
{
	return type == SCDC_CHANGE_INSERT ? SCDC_CHANGE_UPDATE_POSTIMAGE : SCDC_CHANGE_UPDATE_PREIMAGE;
}

ScdcNetResult
scdc_net_result(ScdcChangeType first, ScdcChangeType last, bool compute_updates)
{
	ScdcNetResult result;
	bool		as_update;

	result.before = scdc_change_is_delete_like(first);
	result.after = !scdc_change_is_delete_like(last);
	as_update = result.before && result.after && compute_updates;
	result.before_type = as_update ? SCDC_CHANGE_UPDATE_PREIMAGE : SCDC_CHANGE_DELETE;
	result.after_type = as_update ? SCDC_CHANGE_UPDATE_POSTIMAGE : SCDC_CHANGE_INSERT;
	return result;
}

/* ---------------------------------------------------------------------
 * the way of a row
 * ---------------------------------------------------------------------
 */

ScdcCollapse *
scdc_collapse_create(const ScdcCollapseOps *ops, const ScdcCollapseOptions *options)
{
	ScdcCollapse *c = palloc0(sizeof(ScdcCollapse));
	Size		most = options->memory_limit / 4 * 3;
	Size		rest = options->memory_limit - most;
	bool		net = options->passes.net_changes;

	Assert((ops->hash == NULL) == (ops->same_identity == NULL));
	Assert(ops->hash != NULL || !(options->passes.detect_updates || net));
	Assert(options->memory_limit == 0 || ops->file_create != NULL);

	c->ops = *ops;
	c->passes = options->passes;
	c->compute_updates = options->compute_updates;
	c->context = scdc_current_context();
	c->memory_limit = options->memory_limit;

	/*
	 * The range's stage fills while commits come and go, and the sorter while
	 * the range's stage is emptied.  Without it, the same goes for the
	 * commit's stages, of which one source uses one.
	 */
	scdc_netting_init(c, net ? rest : most);
	scdc_grouping_init(c, net ? rest : most);
	scdc_range_init(c, most);
	scdc_sorter_init(c, rest);
	return c;
}

void
scdc_put_row(ScdcCollapse *c, const ScdcPlacedRow *row, bool lasts)
{
	if (c->passes.net_changes)
		scdc_range_add(c, row, NULL);
	else
		scdc_sorter_add(c, row, !lasts);
}

/* A group of section 7.1 that is known to have at most one delete and one insert. */
void
scdc_put_change(ScdcCollapse *c, ScdcPlacedRow *before, ScdcPlacedRow *after, bool lasts)
{
	if (before)
		before->change.type = SCDC_CHANGE_DELETE;
	if (after)
		after->change.type = SCDC_CHANGE_INSERT;
	if (before && after)
	{
		ScdcGroup	group = {.ndeletes = 1, .ninserts = 1};

		if (c->passes.drop_carryovers &&
			c->ops.same_image(before->change.row, after->change.row, c->ops.arg))
		{
			group.nversions = 2;
			group.one_version = true;
		}
		switch (scdc_group_fate(&group, c->passes))
		{
			case SCDC_GROUP_DROP:
				return;
			case SCDC_GROUP_UPDATE:
				before->change.type = scdc_update_label(before->change.type);
				after->change.type = scdc_update_label(after->change.type);
				break;
			default:
				break;
		}
	}

	if (c->passes.net_changes)
	{
		if (before)
			scdc_range_add(c, before, after);
		else
			scdc_range_add(c, after, NULL);
		return;
	}
	if (before)
		scdc_put_row(c, before, lasts);
	if (after)
		scdc_put_row(c, after, lasts);
}

static void
place(ScdcCollapse *c, ScdcPlacedRow *placed, ScdcChangeType type, int64 version, int64 timestamp, int64 seq,
	  const void *row, uint8 order)
{
	placed->change.type = type;
	placed->change.version = version;
	placed->change.timestamp = timestamp;
	placed->change.seq = seq;
	placed->change.row = row;
	placed->size = c->ops.size(row, c->ops.arg);
	/* spreads the caller's hash, which may be as plain as the key itself */
	placed->hash = c->ops.hash ? murmurhash32(c->ops.hash(row, c->ops.arg)) : 0;
	placed->order = order;
}

/* Without identity a row is a change of its own, and goes out at once. */
static void
emit_at_once(ScdcCollapse *c, ScdcPlacedRow *before, ScdcPlacedRow *after)
{
	scdc_put_change(c, before, after, true);
	scdc_sorter_emit(c);
}

void
scdc_collapse_row(ScdcCollapse *c, ScdcChangeType type, int64 version, int64 timestamp, int64 seq, const void *row)
{
	ScdcPlacedRow placed;

	if (!c->passes.drop_carryovers && !c->passes.detect_updates && !c->passes.net_changes)
	{
		ScdcChangeRow change = {.type = type, .version = version, .timestamp = timestamp, .seq = seq, .row = row};

		c->ops.emit(&change, c->ops.arg);
		return;
	}
	place(c, &placed, type, version, timestamp, seq, row, 0);
	if (c->passes.drop_carryovers || c->passes.detect_updates)
		scdc_grouping_row(c, &placed);
	else
		scdc_range_add(c, &placed, NULL);
}

void
scdc_collapse_event(ScdcCollapse *c, int64 version, int64 timestamp, int64 seq,
					const void *old_row, const void *new_row)
{
	ScdcPlacedRow placed[2];
	ScdcPlacedRow *before = NULL;
	ScdcPlacedRow *after = NULL;

	Assert(old_row != NULL || new_row != NULL);

	if (old_row)
	{
		before = &placed[0];
		place(c, before, SCDC_CHANGE_DELETE, version, timestamp, seq, old_row, 0);
	}
	if (new_row)
	{
		after = &placed[1];
		place(c, after, SCDC_CHANGE_INSERT, version, timestamp, seq, new_row,
			  SCDC_ORDER_BROUGHT | SCDC_ORDER_INSERT_LIKE);
	}
	if (c->ops.hash == NULL)
		emit_at_once(c, before, after);
	else
		scdc_netting_event(c, before, after);
}

void
scdc_collapse_lone_event(ScdcCollapse *c, int64 version, int64 timestamp, int64 seq,
						 const void *old_row, const void *new_row)
{
	ScdcPlacedRow before;
	ScdcPlacedRow after;

	if (old_row)
		place(c, &before, SCDC_CHANGE_DELETE, version, timestamp, seq, old_row, 0);
	if (new_row)
		place(c, &after, SCDC_CHANGE_INSERT, version, timestamp, seq, new_row,
			  SCDC_ORDER_BROUGHT | SCDC_ORDER_INSERT_LIKE);

	if (old_row == NULL || new_row == NULL)
		scdc_put_change(c, old_row ? &before : NULL, new_row ? &after : NULL, false);
	else if (c->ops.hash == NULL ||
			 (before.hash == after.hash && c->ops.same_identity(old_row, new_row, c->ops.arg)))
	{
		before.order = SCDC_ORDER_BROUGHT;
		scdc_put_change(c, &before, &after, false);
	}
	else
	{
		scdc_put_change(c, &before, NULL, false);
		scdc_put_change(c, NULL, &after, false);
	}
	if (!c->passes.net_changes)
		scdc_sorter_emit(c);
}

static void
forget_commit(ScdcCollapse *c)
{
	scdc_netting_reset(c);
	scdc_grouping_reset(c);
}

void
scdc_collapse_close_commit(ScdcCollapse *c)
{
	scdc_netting_end_commit(c);
	scdc_grouping_end_commit(c);
	if (c->unexpected)
	{
		ScdcPlacedRow row = scdc_place_of(c->unexpected, c->unexpected->version, c->unexpected->timestamp, 0);

		c->ops.error(SCDC_ERROR_CHANGE_TYPE, &row.change, c->ops.arg);
	}
	if (c->passes.net_changes)
		forget_commit(c);
	else
		scdc_sorter_begin(c);
}

void
scdc_collapse_close_range(ScdcCollapse *c)
{
	if (!c->passes.net_changes)
		return;
	scdc_range_finish(c);
	scdc_sorter_begin(c);
}

const ScdcChangeRow *
scdc_collapse_next(ScdcCollapse *c)
{
	const ScdcChangeRow *row = scdc_sorter_next(c);

	/* rows of a commit may still have lain in its stages' memory */
	if (row == NULL && !c->passes.net_changes)
		forget_commit(c);
	return row;
}

void
scdc_collapse_end(ScdcCollapse *c)
{
	scdc_netting_end(c);
	scdc_grouping_end(c);
	scdc_range_end(c);
	scdc_sorter_end(c);
	pfree(c);
}

static void
emit_all(ScdcCollapse *c)
{
	const ScdcChangeRow *row;

	while ((row = scdc_collapse_next(c)) != NULL)
		c->ops.emit(row, c->ops.arg);
}

void
scdc_collapse_end_commit(ScdcCollapse *c)
{
	scdc_collapse_close_commit(c);
	emit_all(c);
}

void
scdc_collapse_finish(ScdcCollapse *c)
{
	/* a range that ends without an end of its last commit loses nothing either */
	scdc_collapse_end_commit(c);
	scdc_collapse_close_range(c);
	emit_all(c);
	scdc_collapse_end(c);
}
