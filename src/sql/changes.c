/*-------------------------------------------------------------------------
 *
 * changes.c
 *	  Reading a range of a stream: from blocks to change rows.
 *
 * Rows that nothing can net, pair or drop go straight from the block to the
 * caller, one at a time.  That is so for whole commits, if no two of their
 * events are about one row: those of one event, those of inserts only or
 * deletes only (the baseline above all), and others that lie in one block
 * and turn out to be so when their identities are looked at; and for all of
 * a table without identity.  The other commits go through the collapse, which
 * keeps their rows until the commit ends.  Net changes all go through it, whole
 * commits as above without being netted first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "log/changelog.h"
#include "log/retained.h"
#include "sql/changes.h"
#include "sql/tapes.h"

#define GARBAGE_MAX		(16 * 1024)
#define ROW_GARBAGE		256		/* beside its images */

/* An open-addressing set of hashes, none of which is 0. */
typedef struct HashSet
{
	uint32	   *slots;
	uint32		nslots;			/* a power of two */
} HashSet;

struct ScdcChangeReader
{
	const ScdcRead *read;
	ScdcRowSchemas *schemas;
	ScdcVersionRange range;
	ScdcDeduplication mode;
	bool		compute_updates;
	MemoryContext context;
	MemoryContext row_cxt;		/* garbage of the rows at work */
	Size		garbage;		/* about as much may be in there */

	/* the event at hand */
	ScdcLogScan *scan;			/* NULL: the range is empty */
	ScdcBlockReader *block;		/* NULL: the next one is to be opened */
	ScdcRowSchema *schema;		/* of its rows */
	bool		is_baseline;	/* is the block one of the baseline? */
	int64		nblocks;		/* opened so far */
	ScdcBlockPlace start;		/* where the version begins that the event belongs to */
	ScdcEvent	event;
	const ScdcVersion *v;
	bool		held;			/* it waits until the commit before is out */

	/* the commit under way */
	bool		in_commit;
	bool		lone;			/* no two of its events are about one row */
	bool		direct;			/* its events need no collapse */
	int64		version;
	TimestampTz timestamp;
	int64		seq;

	/* what goes out */
	ScdcRowView old_view;
	ScdcRowView new_view;
	bool		second;			/* new_view is the other half of an update */
	ScdcChangeType second_type;
	bool		draining;		/* rows of the collapse */
	bool		ended;			/* there are no more events */
	bool		finished;		/* nor rows */

	ScdcCollapse *collapse;		/* NULL: nothing will need it */
	ScdcRowBuffer old_row;		/* on their way into the collapse */
	ScdcRowBuffer new_row;
	ScdcTapes  *tapes;			/* its temporary files */
	HashSet		identities;		/* of a commit */
};

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
	ScdcChangeReader *r = arg;
	const ScdcRow *x = a;
	const ScdcRow *y = b;

	scdc_row_view_set(&r->old_view, x->schema, scdc_row_image(x));
	scdc_row_view_set(&r->new_view, y->schema, scdc_row_image(y));
	return scdc_row_view_same_image(&r->old_view, &r->new_view);
}

static bool
collapse_same_row(const void *a, const void *b, void *arg)
{
	ScdcChangeReader *r = arg;
	const ScdcRow *x = a;
	const ScdcRow *y = b;

	scdc_row_view_set(&r->old_view, x->schema, scdc_row_image(x));
	scdc_row_view_set(&r->new_view, y->schema, scdc_row_image(y));
	return scdc_row_view_same_row(&r->old_view, &r->new_view);
}

/* Comparing rows leaves garbage, which nobody looks at any more here. */
static void
collapse_check_interrupts(void *arg)
{
	ScdcChangeReader *r = arg;

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
	return scdc_tape_create(((ScdcChangeReader *) arg)->tapes);
}

static void
collapse_create(ScdcChangeReader *r)
{
	ScdcSourceFlags flags = {.carryovers = true, .intermediate = true, .split_updates = true};
	ScdcCollapseOps ops = {
		.size = collapse_size,
		.hash = collapse_hash,
		.same_identity = collapse_same_identity,
		.same_image = collapse_same_image,
		.same_row = collapse_same_row,
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

/* The schema of an event's old image, which is its own in an update that a rewrite of the table made. */
static inline ScdcRowSchema *
old_schema_of(const ScdcChangeReader *r, ScdcRowSchema *schema, const ScdcEvent *event)
{
	return event->old_schema != 0 ? scdc_row_schema(r->schemas, event->old_schema) : schema;
}

static void
collapse_event(ScdcChangeReader *r)
{
	const ScdcEvent *event = &r->event;
	ScdcRow    *before = NULL;
	ScdcRow    *after = NULL;

	if (event->old_image.data)
		before = scdc_row_make(&r->old_row, old_schema_of(r, r->schema, event), event->old_image);
	if (event->new_image.data)
		after = scdc_row_make(&r->new_row, r->schema, event->new_image);
	if (r->lone)
		scdc_collapse_lone_event(r->collapse, r->version, r->timestamp, r->seq, before, after);
	else
		scdc_collapse_event(r->collapse, r->version, r->timestamp, r->seq, before, after);
}

/* ---------------------------------------------------------------------
 * events
 * ---------------------------------------------------------------------
 */

/* The identity that was recorded has lost a column, or its index, by the time of this version. */
static void
check_identity(const ScdcChangeReader *r, const ScdcRowSchema *schema, int64 version)
{
	if (schema->nkeys == 0 && (r->compute_updates || r->mode == SCDC_DEDUP_NET_CHANGES || r->read->by_identity))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("table \"%s\" has no row identity in version " INT64_FORMAT,
						r->read->target->name, version),
				 errdetail("Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_ROW_ID."),
				 errhint("A column of the identity, or the unique index on it, was dropped. Read up to the version before, or without updates and net changes.")));
}

/* What makes the range unreadable is an event of it. */
static inline void
check_event(const ScdcChangeReader *r, const ScdcRowSchema *schema, const ScdcEvent *event, int64 version)
{
	if (event->kind == SCDC_EVENT_TRUNCATE || event->kind == SCDC_EVENT_GAP)
		gap_version(r->read->target, version, event->kind);
	if ((event->flags & SCDC_EVENT_INCOMPLETE) && !r->read->as_recorded)
		scdc_incomplete_version(r->read->target, version);
	if (schema == NULL || (event->old_image.data == NULL && event->new_image.data == NULL))
		elog(ERROR, "event of version " INT64_FORMAT " has no rows", version);
	check_identity(r, schema, version);
	if (event->old_schema != 0)
		check_identity(r, scdc_row_schema(r->schemas, event->old_schema), version);
}

/* Looks through the blocks of the range that may hold such an event; their plain columns tell which may. */
static void
check_range(ScdcChangeReader *r)
{
	ScdcLogScan *scan = scdc_changelog_scan_begin(r->read->target->stream->stream_id, r->range.first, r->read->snapshot);
	ScdcBlockInfo info;

	while (scdc_changelog_scan_next(scan, &info) && info.first_version <= r->range.last)
	{
		ScdcRowSchema *schema = info.schema_number != 0 ? scdc_row_schema(r->schemas, info.schema_number) : NULL;
		ScdcEvent	event;
		const ScdcVersion *v;

		CHECK_FOR_INTERRUPTS();
		if ((info.flags & (SCDC_BLOCK_HAS_GAP | SCDC_BLOCK_HAS_INCOMPLETE)) == 0 && schema != NULL &&
			(schema->nkeys > 0 || !(r->compute_updates || r->mode == SCDC_DEDUP_NET_CHANGES)))
			continue;
		(void) scdc_changelog_scan_open(scan, true);
		while (scdc_changelog_scan_event(scan, &event, &v))
		{
			if (v->version >= r->range.first && v->version <= r->range.last)
				check_event(r, schema, &event, v->version);
		}
	}
	scdc_changelog_scan_end(scan);
}

/* Is a transaction over as the snapshot sees it?  xid: with its epoch; 0 is none. */
static bool
is_seen(uint64 xid, Snapshot snapshot)
{
	/* the snapshot compares numbers without epoch, which tell nothing of long ago */
	if (xid == 0 || U64FromFullTransactionId(ReadNextFullTransactionId()) - xid > PG_INT32_MAX / 2)
		return true;
	return !XidInMVCCSnapshot((TransactionId) xid, snapshot);
}

/* Is the event at hand none for a fold? */
static inline bool
is_left_out(const ScdcChangeReader *r)
{
	if (!r->read->as_recorded)
		return false;
	return (r->event.old_image.data == NULL && r->event.new_image.data == NULL) ||
		(r->read->seen_by && !is_seen(r->v->xid, r->read->seen_by));
}

/* The next event of the range; false when it has ended. */
static bool
fetch_event(ScdcChangeReader *r)
{
	for (;;)
	{
		if (r->block == NULL)
		{
			ScdcBlockInfo info;

			if (!scdc_changelog_scan_next(r->scan, &info) || info.first_version > r->range.last)
				return false;
			r->block = scdc_changelog_scan_open(r->scan, true);
			r->schema = info.schema_number != 0 ? scdc_row_schema(r->schemas, info.schema_number) : NULL;
			r->is_baseline = scdc_is_baseline_block(r->read->target->stream, &info);
			r->nblocks++;
		}
		CHECK_FOR_INTERRUPTS();
		if (r->block->at.left == 0)
			r->start = r->block->at;
		if (!scdc_changelog_scan_event(r->scan, &r->event, &r->v))
			r->block = NULL;
		else if (r->v->version > r->range.last)
			return false;
		else if (r->v->version >= r->range.first && !is_left_out(r))
			return true;
	}
}

/* ---------------------------------------------------------------------
 * commits
 * ---------------------------------------------------------------------
 */

/* Can no two events of the commit be about one row, going by their numbers? */
static bool
touches_rows_once(const ScdcVersion *counts)
{
	if ((uint64) counts->inserts + counts->updates + counts->deletes <= 1)
		return true;
	return counts->updates == 0 && (counts->inserts == 0 || counts->deletes == 0);
}

static void
set_clear(HashSet *set, uint32 nhashes, MemoryContext context)
{
	uint32		nslots = pg_nextpower2_32(Max(nhashes, 32) * 2);

	if (set->nslots < nslots)
	{
		if (set->slots)
			pfree(set->slots);
		set->slots = NULL;
		set->slots = MemoryContextAlloc(context, nslots * sizeof(uint32));
	}
	set->nslots = nslots;
	memset(set->slots, 0, nslots * sizeof(uint32));
}

/* False if it is in there already. */
static inline bool
set_add(HashSet *set, uint32 hash)
{
	uint32		value = hash != 0 ? hash : 1;
	uint32		i = murmurhash32(hash) & (set->nslots - 1);

	while (set->slots[i] != 0)
	{
		if (set->slots[i] == value)
			return false;
		i = (i + 1) & (set->nslots - 1);
	}
	set->slots[i] = value;
	return true;
}

/*
 * Do all events of the commit at hand, which lies in this block, have
 * identities of their own?  Two that share a hash are taken for one.
 */
static bool
has_distinct_identities(ScdcChangeReader *r)
{
	const ScdcVersion *commit = r->v;
	uint64		nevents = (uint64) commit->inserts + commit->updates + commit->deletes;
	bool		distinct = true;

	if (commit->markers > 0 || nevents > SCDC_BLOCK_RAW_MAX)
		return false;
	set_clear(&r->identities, (uint32) (nevents + commit->updates), r->context);
	r->block->at = r->start;
	for (uint64 i = 0; distinct && i < nevents; i++)
	{
		uint32		old_hash = 0;
		uint32		shared;
		bool		has_old;

		(void) scdc_changelog_scan_incomplete(r->scan, &r->event, &shared, &r->v);
		has_old = r->event.old_image.data != NULL;
		if (has_old)
		{
			old_hash = scdc_row_identity_hash(&r->old_row, old_schema_of(r, r->schema, &r->event), r->event.old_image);
			distinct = set_add(&r->identities, old_hash);
		}
		if (!distinct ||
			(has_old && r->event.old_schema == 0 && scdc_row_identity_shared(r->schema, r->event.old_image, shared)))
			continue;
		scdc_changelog_scan_complete(r->scan, &r->event);
		if (r->event.new_image.data)
		{
			uint32		hash = scdc_row_identity_hash(&r->new_row, r->schema, r->event.new_image);

			if (!has_old || hash != old_hash)
				distinct = set_add(&r->identities, hash);
		}
	}

	/* back to the event at hand */
	r->block->at = r->start;
	(void) scdc_changelog_scan_event(r->scan, &r->event, &r->v);
	return distinct;
}

/* The event at hand is the first of its commit, which may go on in the next blocks. */
static bool
is_lone(ScdcChangeReader *r)
{
	const ScdcStream *stream = r->read->target->stream;
	ScdcVersion total = *r->v;

	if (r->is_baseline)
		return true;
	if (r->version == r->block->versions[r->block->nversions - 1].version && scdc_changelog_scan_continues(r->scan))
	{
		if (!touches_rows_once(&total))
			return false;
		(void) scdc_changelog_version_counts(stream->stream_id, r->version, r->read->snapshot, &total);
		return touches_rows_once(&total);
	}
	if (touches_rows_once(&total))
		return true;

	/* net changes look rows up in a table for the whole range, which goes better for a commit of them at a time */
	return r->mode != SCDC_DEDUP_NET_CHANGES && has_distinct_identities(r);
}

static void
begin_commit(ScdcChangeReader *r)
{
	bool		has_identity = r->schema != NULL && r->schema->nkeys > 0 &&
	old_schema_of(r, r->schema, &r->event)->nkeys > 0;

	r->in_commit = true;
	r->version = r->v->version;
	r->timestamp = r->v->timestamp;
	r->seq = 0;
	r->lone = !has_identity || is_lone(r);
	r->direct = !has_identity || (r->lone && r->mode != SCDC_DEDUP_NET_CHANGES);
}

static void
close_commit(ScdcChangeReader *r)
{
	if (r->in_commit && !r->direct)
	{
		scdc_collapse_close_commit(r->collapse);
		r->draining = true;
	}
	r->in_commit = false;
}

/* ---------------------------------------------------------------------
 * rows
 * ---------------------------------------------------------------------
 */

static inline void
put_out(ScdcChangeReader *r, ScdcChange *change, ScdcChangeType type, ScdcRowView *view)
{
	change->type = type;
	change->version = r->version;
	change->timestamp = r->timestamp;
	change->view = view;
}

/* False if nothing is to be seen of the update. */
static bool
direct_update(ScdcChangeReader *r, ScdcChange *change)
{
	ScdcRowView *before = &r->old_view;
	ScdcRowView *after = &r->new_view;
	bool		as_update;

	/* the same bytes may be another row, under another schema */
	if (r->mode != SCDC_DEDUP_NONE && scdc_row_view_same_image(before, after) &&
		(r->event.old_schema == 0 || scdc_row_view_same_identity(before, after)))
		return false;
	as_update = r->compute_updates && scdc_row_view_same_identity(before, after);
	r->second = true;
	r->second_type = as_update ? SCDC_CHANGE_UPDATE_POSTIMAGE : SCDC_CHANGE_INSERT;
	put_out(r, change, as_update ? SCDC_CHANGE_UPDATE_PREIMAGE : SCDC_CHANGE_DELETE, before);
	return true;
}

static bool
direct_event(ScdcChangeReader *r, ScdcChange *change)
{
	const ScdcEvent *event = &r->event;

	if (event->old_image.data)
		scdc_row_view_set(&r->old_view, old_schema_of(r, r->schema, event), event->old_image);
	if (event->new_image.data)
		scdc_row_view_set(&r->new_view, r->schema, event->new_image);

	if (event->old_image.data && event->new_image.data)
		return direct_update(r, change);
	if (event->old_image.data)
		put_out(r, change, SCDC_CHANGE_DELETE, &r->old_view);
	else
		put_out(r, change, SCDC_CHANGE_INSERT, &r->new_view);
	return true;
}

/* The next row that the collapse has ready. */
static bool
collapsed_row(ScdcChangeReader *r, ScdcChange *change)
{
	const ScdcChangeRow *next = scdc_collapse_next(r->collapse);
	const ScdcRow *row;

	if (next == NULL)
		return false;
	row = next->row;
	r->garbage += row->image_len + ROW_GARBAGE;
	scdc_row_view_set(&r->new_view, row->schema, scdc_row_image(row));
	change->type = next->type;
	change->version = next->version;
	change->timestamp = next->timestamp;
	change->view = &r->new_view;
	return true;
}

/*
 * Takes one step with the event at hand; true if it led to a row, or at the
 * end.
 */
static bool
step(ScdcChangeReader *r, ScdcChange *change)
{
	if (!r->held && !fetch_event(r))
	{
		r->ended = true;
		close_commit(r);
		return false;
	}
	r->held = false;
	r->garbage += (Size) r->event.old_image.len + r->event.new_image.len + ROW_GARBAGE;
	check_event(r, r->schema, &r->event, r->v->version);

	if (r->in_commit &&
		(r->version != r->v->version ||
		 (!r->direct && (r->schema->nkeys == 0 || old_schema_of(r, r->schema, &r->event)->nkeys == 0))))
	{
		/* the next commit; or the identity was dropped in the middle of this one */
		close_commit(r);
		if (r->draining)
		{
			r->held = true;
			return false;
		}
	}
	if (!r->in_commit)
		begin_commit(r);
	r->seq++;
	if (r->direct)
		return direct_event(r, change);
	collapse_event(r);
	return false;
}

static bool
next_change(ScdcChangeReader *r, ScdcChange *change)
{
	if (r->second)
	{
		r->second = false;
		put_out(r, change, r->second_type, &r->new_view);
		return true;
	}
	for (;;)
	{
		/* small rows leave little behind, if anything, and a reset costs as much as they do */
		if (r->garbage > GARBAGE_MAX)
		{
			MemoryContextReset(r->row_cxt);
			r->garbage = 0;
		}
		if (r->draining)
		{
			CHECK_FOR_INTERRUPTS();
			if (collapsed_row(r, change))
				return true;
			r->draining = false;
		}
		if (r->finished)
			return false;
		if (!r->ended)
		{
			if (step(r, change))
				return true;
			continue;
		}
		r->finished = true;
		if (r->collapse)
		{
			scdc_collapse_close_range(r->collapse);
			r->draining = true;
		}
	}
}

bool
scdc_changes_next(ScdcChangeReader *r, ScdcChange *change)
{
	MemoryContext old = MemoryContextSwitchTo(r->row_cxt);
	bool		found = next_change(r, change);

	MemoryContextSwitchTo(old);
	return found;
}

int64
scdc_changes_blocks(const ScdcChangeReader *r)
{
	return r->nblocks;
}

ScdcChangeReader *
scdc_changes_begin(const ScdcRead *read, ScdcRowSchemas *schemas, ScdcVersionRange range,
				   ScdcDeduplication mode, bool compute_updates)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "streamcdc changes", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	ScdcChangeReader *r = palloc0(sizeof(ScdcChangeReader));

	r->read = read;
	r->schemas = schemas;
	r->range = range;
	r->mode = mode;
	r->compute_updates = compute_updates;
	r->context = context;
	if (range.first > range.last)
		r->ended = r->finished = true;
	else
	{
		scdc_row_schemas_range(schemas, range.first, range.last);
		if (!read->as_recorded)
			check_range(r);
		r->row_cxt = AllocSetContextCreate(context, "streamcdc row", ALLOCSET_DEFAULT_SIZES);
		scdc_row_view_init(&r->old_view);
		scdc_row_view_init(&r->new_view);
		if (read->target->stream->nidentity > 0)
			collapse_create(r);
		r->scan = scdc_changelog_scan_begin(read->target->stream->stream_id, range.first, read->snapshot);
	}
	MemoryContextSwitchTo(old);
	return r;
}

void
scdc_changes_end(ScdcChangeReader *r)
{
	if (r->scan)
		scdc_changelog_scan_end(r->scan);
	if (r->tapes)
		scdc_tapes_end(r->tapes);
	MemoryContextDelete(r->context);
}
