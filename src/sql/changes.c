/*-------------------------------------------------------------------------
 *
 * changes.c
 *	  Reading a range of a stream: from blocks to change rows.
 *
 * Rows that nothing can net, pair or drop go straight from the block to the
 * caller, one at a time.  That is so for whole commits: those of one event,
 * those of inserts only or deletes only (the baseline above all), since each
 * of them touches a row once, and all of a table without identity.  The other
 * commits go through the collapse, which keeps their rows until the commit
 * ends.  Net changes all go through it, whole commits as above without being
 * netted first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "log/changelog.h"
#include "sql/changes.h"
#include "sql/tapes.h"

#define GARBAGE_MAX		(16 * 1024)
#define ROW_GARBAGE		256		/* beside the image */

typedef struct ChangeReader
{
	const ScdcRead *read;
	ScdcRowSchemas *schemas;
	ScdcDeduplication mode;
	bool		compute_updates;
	ScdcPutChange put;
	void	   *arg;
	ScdcLogScan *scan;

	/* the commit under way */
	bool		in_commit;
	bool		lone;			/* no two of its events are about one row */
	bool		direct;			/* its events need no collapse */
	int64		version;
	TimestampTz timestamp;
	int64		seq;

	ScdcRowView old_view;
	ScdcRowView new_view;
	MemoryContext row_cxt;		/* reset after each row read, and before much garbage of rows put out is in it */
	Size		garbage;

	ScdcCollapse *collapse;		/* NULL: nothing will need it */
	ScdcRowBuffer old_row;		/* on their way into the collapse */
	ScdcRowBuffer new_row;
	ScdcTapes  *tapes;			/* its temporary files */
} ChangeReader;

void
scdc_incomplete_version(const ScdcTarget *target, int64 version)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("version " INT64_FORMAT " of table \"%s\" is incomplete", version, target->name),
			 errdetail("It holds updates or deletes whose old rows were not written to WAL, because the table's replica identity was not FULL."),
			 errhint("Read a range without it.")));
}

static void
gap_version(const ScdcTarget *target, int64 version, ScdcEventKind kind)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("there is a gap in the changes of table \"%s\" at version " INT64_FORMAT, target->name, version),
			 kind == SCDC_EVENT_TRUNCATE ?
			 errdetail("The table was truncated; which rows that took away was not recorded.") :
			 errdetail("Changes of this version were not recorded."),
			 errhint("Read up to the version before, or from the one after.")));
}

/* ---------------------------------------------------------------------
 * putting rows out
 * ---------------------------------------------------------------------
 */

static void
put_view(ChangeReader *r, ScdcChangeType type, int64 version, TimestampTz timestamp, ScdcRowView *view)
{
	MemoryContext old = MemoryContextSwitchTo(r->row_cxt);

	r->put(type, version, timestamp, view, r->arg);
	MemoryContextSwitchTo(old);

	/* small rows leave little behind, and a reset costs as much as they do */
	r->garbage += view->image.len + ROW_GARBAGE;
	if (r->garbage > GARBAGE_MAX)
	{
		MemoryContextReset(r->row_cxt);
		r->garbage = 0;
	}
}

static void
put_direct(ChangeReader *r, ScdcChangeType type, ScdcRowView *view)
{
	put_view(r, type, r->version, r->timestamp, view);
}

static void
direct_update(ChangeReader *r)
{
	ScdcRowView *before = &r->old_view;
	ScdcRowView *after = &r->new_view;
	MemoryContext old = MemoryContextSwitchTo(r->row_cxt);
	bool		drop;
	bool		as_update;

	drop = r->mode != SCDC_DEDUP_NONE && scdc_row_view_same_image(before, after);
	as_update = !drop && r->compute_updates && scdc_row_view_same_identity(before, after);
	MemoryContextSwitchTo(old);
	MemoryContextReset(r->row_cxt);

	if (drop)
		return;
	put_direct(r, as_update ? SCDC_CHANGE_UPDATE_PREIMAGE : SCDC_CHANGE_DELETE, before);
	put_direct(r, as_update ? SCDC_CHANGE_UPDATE_POSTIMAGE : SCDC_CHANGE_INSERT, after);
}

static void
direct_event(ChangeReader *r, ScdcRowSchema *old_schema, ScdcRowSchema *schema, const ScdcEvent *event)
{
	if (event->old_image.data)
		scdc_row_view_set(&r->old_view, old_schema, event->old_image);
	if (event->new_image.data)
		scdc_row_view_set(&r->new_view, schema, event->new_image);

	if (event->old_image.data && event->new_image.data)
		direct_update(r);
	else if (event->old_image.data)
		put_direct(r, SCDC_CHANGE_DELETE, &r->old_view);
	else
		put_direct(r, SCDC_CHANGE_INSERT, &r->new_view);
}

/* ---------------------------------------------------------------------
 * the collapse's callbacks; its rows are ScdcRow
 * ---------------------------------------------------------------------
 */

static uint32
collapse_size(const void *row, void *arg)
{
	return ((const ScdcRow *) row)->size;
}

static uint32
collapse_hash(const void *row, void *arg)
{
	return ((const ScdcRow *) row)->hash;
}

static bool
collapse_same_identity(const void *a, const void *b, void *arg)
{
	return scdc_row_same_identity(a, b);
}

static bool
collapse_same_image(const void *a, const void *b, void *arg)
{
	ChangeReader *r = arg;
	const ScdcRow *x = a;
	const ScdcRow *y = b;

	scdc_row_view_set(&r->old_view, x->schema, scdc_row_image(x));
	scdc_row_view_set(&r->new_view, y->schema, scdc_row_image(y));
	return scdc_row_view_same_image(&r->old_view, &r->new_view);
}

static void
collapse_emit(const ScdcChangeRow *change, void *arg)
{
	ChangeReader *r = arg;
	const ScdcRow *row = change->row;

	CHECK_FOR_INTERRUPTS();
	scdc_row_view_set(&r->new_view, row->schema, scdc_row_image(row));
	put_view(r, change->type, change->version, change->timestamp, &r->new_view);
}

/* Comparing rows leaves garbage, which nobody looks at any more here. */
static void
collapse_check_interrupts(void *arg)
{
	ChangeReader *r = arg;

	CHECK_FOR_INTERRUPTS();
	MemoryContextReset(r->row_cxt);
}

/* The capture keeps the contract; only labelled rows can break it. */
static void
collapse_error(ScdcCollapseError error, const ScdcChangeRow *row, void *arg)
{
	elog(ERROR, "contract error %d in version " INT64_FORMAT " of a tracked table", (int) error, row->version);
}

static void *
collapse_file_create(void *arg)
{
	return scdc_tape_create(((ChangeReader *) arg)->tapes);
}

static void
collapse_create(ChangeReader *r)
{
	ScdcSourceFlags flags = {.carryovers = true, .intermediate = true, .split_updates = true};
	ScdcCollapseOps ops = {
		.size = collapse_size,
		.hash = collapse_hash,
		.same_identity = collapse_same_identity,
		.same_image = collapse_same_image,
		.emit = collapse_emit,
		.error = collapse_error,
		.file_create = collapse_file_create,
		.file_write = scdc_tape_write,
		.file_rewind = scdc_tape_rewind,
		.file_read = scdc_tape_read,
		.file_close = scdc_tape_close,
		.check_interrupts = collapse_check_interrupts,
		.arg = r,
	};
	ScdcCollapseOptions options = {
		.passes = scdc_passes(flags, r->mode, r->compute_updates),
		.compute_updates = r->compute_updates,
		.memory_limit = (Size) work_mem * 1024,
	};

	r->tapes = scdc_tapes_create(false);
	scdc_row_buffer_init(&r->old_row);
	scdc_row_buffer_init(&r->new_row);
	r->collapse = scdc_collapse_create(&ops, &options);
}

static void
collapse_event(ChangeReader *r, ScdcRowSchema *old_schema, ScdcRowSchema *schema, const ScdcEvent *event)
{
	MemoryContext old = MemoryContextSwitchTo(r->row_cxt);
	ScdcRow    *before = NULL;
	ScdcRow    *after = NULL;

	if (event->old_image.data)
		before = scdc_row_make(&r->old_row, old_schema, event->old_image);
	if (event->new_image.data)
		after = scdc_row_make(&r->new_row, schema, event->new_image);
	if (r->lone)
		scdc_collapse_lone_event(r->collapse, r->version, r->timestamp, r->seq, before, after);
	else
		scdc_collapse_event(r->collapse, r->version, r->timestamp, r->seq, before, after);
	MemoryContextSwitchTo(old);
	MemoryContextReset(r->row_cxt);
}

/* ---------------------------------------------------------------------
 * commits
 * ---------------------------------------------------------------------
 */

static void
run_collapse(ChangeReader *r, void (*step) (ScdcCollapse *))
{
	MemoryContext old = MemoryContextSwitchTo(r->row_cxt);

	step(r->collapse);
	MemoryContextSwitchTo(old);
	MemoryContextReset(r->row_cxt);
}

static void
end_commit(ChangeReader *r)
{
	if (!r->in_commit)
		return;
	r->in_commit = false;
	if (!r->direct)
		run_collapse(r, scdc_collapse_end_commit);
}

/* Can no two events of the commit be about one row? */
static bool
touches_rows_once(const ScdcVersion *counts)
{
	if ((uint64) counts->inserts + counts->updates + counts->deletes <= 1)
		return true;
	return counts->updates == 0 && (counts->inserts == 0 || counts->deletes == 0);
}

/* v is the commit's entry in the block where it begins; it may go on in the next ones. */
static bool
is_lone(ChangeReader *r, const ScdcVersion *v, const ScdcBlockReader *block)
{
	const ScdcStream *stream = r->read->target->stream;
	ScdcVersion total = *v;

	if (stream->baseline && v->version == stream->base_version)
		return true;
	if (!touches_rows_once(v))
		return false;
	if (v->version == block->versions[block->nversions - 1].version && scdc_changelog_scan_continues(r->scan))
		(void) scdc_changelog_version_counts(stream->stream_id, v->version, r->read->snapshot, &total);
	return touches_rows_once(&total);
}

static void
begin_commit(ChangeReader *r, const ScdcVersion *v, const ScdcBlockReader *block, ScdcRowSchema *schema)
{
	bool		has_identity = schema != NULL && schema->nkeys > 0;

	r->in_commit = true;
	r->version = v->version;
	r->timestamp = v->timestamp;
	r->seq = 0;
	r->lone = !has_identity || is_lone(r, v, block);
	r->direct = !has_identity || (r->lone && r->mode != SCDC_DEDUP_NET_CHANGES);
}

/* The identity that was recorded has lost a column, or its index, by the time of this version. */
static void
check_identity(const ChangeReader *r, const ScdcRowSchema *schema, int64 version)
{
	if (schema->nkeys == 0 && (r->compute_updates || r->mode == SCDC_DEDUP_NET_CHANGES))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("table \"%s\" has no row identity in version " INT64_FORMAT,
						r->read->target->name, version),
				 errdetail("Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_ROW_ID."),
				 errhint("A column of the identity, or the unique index on it, was dropped. Read up to the version before, or without updates and net changes.")));
}

static void
read_event(ChangeReader *r, const ScdcVersion *v, const ScdcBlockReader *block, ScdcRowSchema *schema,
		   const ScdcEvent *event)
{
	ScdcRowSchema *old_schema = schema;

	if (!r->in_commit || r->version != v->version)
	{
		end_commit(r);
		begin_commit(r, v, block, schema);
	}
	r->seq++;

	if (event->kind == SCDC_EVENT_TRUNCATE || event->kind == SCDC_EVENT_GAP)
		gap_version(r->read->target, v->version, event->kind);
	if (event->flags & SCDC_EVENT_INCOMPLETE)
		scdc_incomplete_version(r->read->target, v->version);
	if (schema == NULL || (event->old_image.data == NULL && event->new_image.data == NULL))
		elog(ERROR, "event of version " INT64_FORMAT " has no rows", v->version);

	check_identity(r, schema, v->version);
	if (event->old_schema != 0)
	{
		/* an update by a rewrite of the table */
		old_schema = scdc_row_schema(r->schemas, event->old_schema);
		check_identity(r, old_schema, v->version);
	}
	if ((schema->nkeys == 0 || old_schema->nkeys == 0) && !r->direct)
	{
		/* the identity was dropped in the middle of the commit */
		run_collapse(r, scdc_collapse_end_commit);
		r->direct = true;
	}
	if (r->direct)
		direct_event(r, old_schema, schema, event);
	else
		collapse_event(r, old_schema, schema, event);
}

/* False when the range has ended. */
static bool
read_block(ChangeReader *r, const ScdcBlockInfo *info, ScdcVersionRange range)
{
	ScdcBlockReader *block = scdc_changelog_scan_open(r->scan, true);
	ScdcRowSchema *schema = info->schema_number != 0 ? scdc_row_schema(r->schemas, info->schema_number) : NULL;
	ScdcEvent	event;
	const ScdcVersion *v;

	while (scdc_changelog_scan_event(r->scan, &event, &v))
	{
		CHECK_FOR_INTERRUPTS();
		if (v->version < range.first)
			continue;
		if (v->version > range.last)
			return false;
		read_event(r, v, block, schema, &event);
	}
	return true;
}

void
scdc_read_changes(const ScdcRead *read, ScdcRowSchemas *schemas, ScdcVersionRange range,
				  ScdcDeduplication mode, bool compute_updates, ScdcPutChange put, void *arg)
{
	ChangeReader r = {
		.read = read,
		.schemas = schemas,
		.mode = mode,
		.compute_updates = compute_updates,
		.put = put,
		.arg = arg,
	};
	ScdcBlockInfo info;

	if (range.first > range.last)
		return;
	scdc_row_view_init(&r.old_view);
	scdc_row_view_init(&r.new_view);
	r.row_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc row", ALLOCSET_DEFAULT_SIZES);
	if (read->target->stream->nidentity > 0)
		collapse_create(&r);

	r.scan = scdc_changelog_scan_begin(read->target->stream->stream_id, range.first, read->snapshot);
	while (scdc_changelog_scan_next(r.scan, &info) && info.first_version <= range.last)
	{
		if (!read_block(&r, &info, range))
			break;
	}
	scdc_changelog_scan_end(r.scan);

	end_commit(&r);
	if (r.collapse)
	{
		run_collapse(&r, scdc_collapse_finish);
		scdc_tapes_end(r.tapes);
	}
}
