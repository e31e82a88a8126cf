/*-------------------------------------------------------------------------
 *
 * vacuum.c
 *	  Removing old versions of a log (see vacuum.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "debug.h"
#include "guc.h"
#include "jobs/query.h"
#include "log/changelog.h"
#include "log/retained.h"
#include "log/rows.h"
#include "owner.h"
#include "retention/vacuum.h"
#include "sql/fold.h"

/* A baseline of so many rows is moved as soon as there is anything to remove. */
#define SMALL_BASELINE	10000

bool
scdc_vacuum_lock(int64 stream_id, LOCKMODE mode, bool wait)
{
	LOCKTAG		tag;

	/* two streams whose numbers are 2^32 apart share one, which does no harm */
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, scdc_table_oid(SCDC_STREAMS), (uint32) stream_id, 0);
	return LockAcquire(&tag, mode, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

/* ---------------------------------------------------------------------
 * which versions
 * ---------------------------------------------------------------------
 */

int64
scdc_retention_of(const ScdcStream *stream)
{
	const Interval *i = stream->retention;

	if (i == NULL)
		return scdc_retention * USECS_PER_SEC;
	return i->time + ((int64) i->day + INT64CONST(30) * i->month) * USECS_PER_DAY;
}

ScdcVacuumTarget
scdc_vacuum_by_retention(const ScdcStream *stream)
{
	ScdcVacuumTarget target = {.before = PG_INT64_MAX, .older_than = DT_NOEND, .overdue = DT_NOEND};
	TimestampTz now = GetCurrentTimestamp();

	if (scdc_retention_of(stream) == 0)
		target.before = 0;
	else if (stream->retention)
		target.older_than = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_mi_interval, TimestampTzGetDatum(now),
																	IntervalPGetDatum(stream->retention)));
	else
		target.older_than = now - scdc_retention_of(stream);
	return target;
}

/* The first version that was committed at a time or later, or will be. */
static int64
first_version_from(int64 stream_id, TimestampTz at, Snapshot snapshot)
{
	int64		version;

	if (at == DT_NOEND)
		return PG_INT64_MAX;
	return at > DT_NOBEGIN && scdc_changelog_version_at(stream_id, at - 1, snapshot, &version) ? version + 1 : 0;
}

/* So far a stream's versions may be removed as its queries are concerned. */
static int64
limit_by_queries(const ScdcStream *stream, int64 before, Snapshot snapshot)
{
	int64		abandoned = 0;	/* versions before are not kept for any query */
	ListCell   *lc;

	if (scdc_max_job_retention >= 0)
		abandoned = first_version_from(stream->stream_id, GetCurrentTimestamp() - scdc_max_job_retention * USECS_PER_SEC, snapshot);
	foreach(lc, scdc_query_list(snapshot))
	{
		ScdcQuery  *q = lfirst(lc);

		if (q->stream_id == stream->stream_id)
			before = Min(before, Max(scdc_query_needs(q, snapshot), abandoned));
	}
	return before;
}

/*
 * Moving a baseline costs what writing all of its rows costs.  Is there about
 * an eighth as much to remove?
 */
static bool
is_worth_it(const ScdcStream *stream, int64 before, TimestampTz overdue, Snapshot snapshot)
{
	ScdcLogScan *scan;
	ScdcBlockInfo info;
	int64		kept = 0;
	int64		old = 0;
	bool		worth_it = overdue == DT_NOEND;

	scan = scdc_changelog_scan_begin(stream->stream_id, PG_INT64_MIN, snapshot);
	while (!worth_it && scdc_changelog_scan_next(scan, &info) && info.first_version < before)
	{
		CHECK_FOR_INTERRUPTS();
		if (scdc_is_baseline_block(stream, &info))
		{
			kept += info.inserts;
			continue;
		}
		old += info.inserts + info.updates + info.deletes;
		worth_it = kept <= SMALL_BASELINE || old >= kept / 8 || info.first_timestamp < overdue;
	}
	scdc_changelog_scan_end(scan);
	return worth_it;
}

/* ---------------------------------------------------------------------
 * moving the baseline
 * ---------------------------------------------------------------------
 */

/* The baseline being written: a block under way for each schema that rows have. */
typedef struct BaseWriter
{
	Relation	blocks;
	ScdcVersion version;
	ScdcBlockInfo info;			/* of the next block */
	List	   *open;			/* of OpenBlock */
	MemoryContext block_cxt;
} BaseWriter;

typedef struct OpenBlock
{
	int32		schema_number;
	int64		rows;
	ScdcBlockBuilder *builder;
} OpenBlock;

static void
write_block(BaseWriter *w, ScdcBlockBuilder *builder, int32 schema_number, int64 rows)
{
	MemoryContext old = MemoryContextSwitchTo(w->block_cxt);
	ScdcBlock	block;

	w->info.schema_number = schema_number;
	w->info.inserts = rows;
	scdc_block_finish(builder, &block);
	scdc_changelog_append(w->blocks, &w->info, &block);
	w->info.chunk++;
	MemoryContextSwitchTo(old);
	MemoryContextReset(w->block_cxt);
}

/* The first block: it says that there is a baseline, and whether it is as complete as it looks. */
static void
write_head(BaseWriter *w, bool has_gap)
{
	ScdcBlockBuilder *builder = scdc_block_builder_create(SCDC_COMPRESS_NONE);
	ScdcEvent	gap = {.kind = SCDC_EVENT_GAP};

	scdc_block_begin_version(builder, &w->version);
	if (has_gap)
		scdc_block_add(builder, &gap);
	w->info.flags = SCDC_BLOCK_IS_BASE | (has_gap ? SCDC_BLOCK_HAS_GAP : 0);
	write_block(w, builder, 0, 0);
	w->info.flags = SCDC_BLOCK_IS_BASE;
}

static OpenBlock *
open_block(BaseWriter *w, int32 schema_number)
{
	ListCell   *lc;
	OpenBlock  *b;

	foreach(lc, w->open)
	{
		b = lfirst(lc);
		if (b->schema_number == schema_number)
			return b;
	}
	b = palloc0(sizeof(OpenBlock));
	b->schema_number = schema_number;
	b->builder = scdc_block_builder_create(SCDC_COMPRESSION);
	w->open = lappend(w->open, b);
	return b;
}

static void
write_row(BaseWriter *w, const ScdcRowView *row)
{
	OpenBlock  *b = open_block(w, row->schema->schema->number);
	ScdcEvent	event = {.kind = SCDC_EVENT_INSERT, .new_image = row->image};

	if (b->rows > 0 && scdc_block_raw_size(b->builder) + row->image.len > SCDC_BLOCK_RAW_MAX)
	{
		write_block(w, b->builder, b->schema_number, b->rows);
		b->rows = 0;
	}
	scdc_block_begin_version(b->builder, &w->version);
	scdc_block_add(b->builder, &event);
	b->rows++;
}

static void
write_rest(BaseWriter *w)
{
	ListCell   *lc;

	foreach(lc, w->open)
	{
		OpenBlock  *b = lfirst(lc);

		if (b->rows > 0)
			write_block(w, b->builder, b->schema_number, b->rows);
	}
}

/* Is there something before a version that was not recorded? */
static bool
has_gap_before(int64 stream_id, int64 version, Snapshot snapshot)
{
	ScdcLogScan *scan = scdc_changelog_scan_begin(stream_id, PG_INT64_MIN, snapshot);
	ScdcBlockInfo info;
	bool		result = false;

	while (!result && scdc_changelog_scan_next(scan, &info) && info.first_version < version)
	{
		ScdcEvent	event;
		const ScdcVersion *v;

		CHECK_FOR_INTERRUPTS();
		if ((info.flags & (SCDC_BLOCK_HAS_GAP | SCDC_BLOCK_HAS_INCOMPLETE)) == 0)
			continue;
		(void) scdc_changelog_scan_open(scan, true);
		while (!result && scdc_changelog_scan_event(scan, &event, &v) && v->version < version)
			result = event.kind == SCDC_EVENT_GAP || event.kind == SCDC_EVENT_TRUNCATE ||
				(event.flags & SCDC_EVENT_INCOMPLETE) != 0;
	}
	scdc_changelog_scan_end(scan);
	return result;
}

/* Moves the baseline up to a version, which is in the log: what comes after it stays. */
static void
move_baseline(ScdcStream *stream, int64 to, Snapshot snapshot)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "streamcdc vacuum", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	ScdcTarget	target = {.stream = stream, .relid = stream->relid, .name = stream->table_name, .is_owner = true};
	BaseWriter	w = {.blocks = scdc_table_open(SCDC_BLOCKS, RowExclusiveLock)};
	ScdcVersion last;
	ScdcFold   *fold;
	ScdcRowView *row;
	ScdcOwnerScope scope;

	if (!scdc_changelog_version_counts(stream->stream_id, to, snapshot, &last))
		elog(ERROR, "version " INT64_FORMAT " of stream " INT64_FORMAT " is missing", to, stream->stream_id);
	w.version.version = to;
	w.version.timestamp = last.timestamp;
	w.version.commit_time = last.commit_time;
	w.info.stream_id = stream->stream_id;
	w.info.first_version = w.info.last_version = to;
	w.info.first_timestamp = w.info.last_timestamp = last.timestamp;
	w.block_cxt = AllocSetContextCreate(context, "streamcdc vacuum block", ALLOCSET_DEFAULT_SIZES);

	/* first, since the new blocks take the place of some; what the snapshot shows can be read all the same */
	scdc_changelog_delete_before(stream->stream_id, to + 1, snapshot);
	scdc_debug_point("vacuum-deleted");
	write_head(&w, stream->baseline && has_gap_before(stream->stream_id, to + 1, snapshot));
	if (stream->baseline)
	{
		/* identities may be compared by functions of users */
		scdc_owner_begin(&scope, scdc_stream_table_owner(stream));
		fold = scdc_fold_begin(&target, to, snapshot, NULL);
		while ((row = scdc_fold_next(fold)) != NULL)
		{
			CHECK_FOR_INTERRUPTS();
			write_row(&w, row);
		}
		write_rest(&w);
		scdc_fold_end(fold);
		scdc_owner_end(&scope);
	}
	table_close(w.blocks, NoLock);
	scdc_debug_point("vacuum-written");
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* The log of a dropped table goes as a whole. */
static void
remove_dropped(ScdcStream *stream, Snapshot snapshot)
{
	scdc_stream_delete_log(stream->stream_id, snapshot);
	stream->state = SCDC_STATE_UNTRACKED;
	scdc_stream_replace(stream);
}

/* Is there a dropped table's log of which nothing would be left?  Capture has to be through with it. */
static bool
all_goes(const ScdcStream *stream, const ScdcVacuumTarget *target, bool has_versions, int64 before, int64 last)
{
	if (stream->state != SCDC_STATE_DROPPED || stream->last_version < 0)
		return false;
	return has_versions ? before > last : target->before > stream->base_version && stream->tracked_at < target->older_than;
}

int64
scdc_vacuum_stream(int64 stream_id, const ScdcVacuumTarget *target)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScdcStream *stream = scdc_stream_by_id(stream_id, snapshot);
	ScdcBlockInfo last = {0};
	bool		has_versions;
	int64		before;
	int64		base;

	if (stream == NULL || stream->state == SCDC_STATE_UNTRACKED || stream->state == SCDC_STATE_INERT ||
		!scdc_baseline_is_complete(stream, snapshot))
	{
		UnregisterSnapshot(snapshot);
		return 0;
	}
	has_versions = scdc_changelog_last(stream_id, snapshot, &last);
	base = has_versions ? scdc_retained(stream, snapshot).base : stream->base_version;
	before = Min(target->before, first_version_from(stream_id, target->older_than, snapshot));
	before = has_versions ? Min(before, last.last_version + 1) : 0;
	if (all_goes(stream, target, has_versions, before, last.last_version))
		remove_dropped(stream, snapshot);
	else
	{
		/* the queries of a dropped table cannot go on */
		if (stream->state != SCDC_STATE_DROPPED)
			before = limit_by_queries(stream, before, snapshot);
		if (before - 1 > base && is_worth_it(stream, before, target->overdue, snapshot))
			move_baseline(stream, before - 1, snapshot);
		else
			before = 0;
	}
	UnregisterSnapshot(snapshot);

	/* the same command may call again */
	CommandCounterIncrement();
	return Max(before - 1 - base, 0);
}
