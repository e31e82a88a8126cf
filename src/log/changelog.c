/*-------------------------------------------------------------------------
 *
 * changelog.c
 *	  The durable, ordered change log: block rows of streamcdc.blocks.
 *
 * Blocks of a stream are ordered by (first_version, chunk), and so are their
 * version and timestamp ranges: the last block that begins before version V
 * is the only one that may hold V without beginning with it.  All searches
 * below rest on that.
 *
 * The plain columns are read without touching the two byte strings, which are
 * out of line as a rule and fetched only when a block is opened.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "log/changelog.h"
#include "log/rows.h"

#define BLOCKS_KEY "blocks_key"

/* columns of streamcdc.blocks; the first three are those of blocks_key, in that order */
enum
{
	Anum_stream_id = 1,
	Anum_first_version,
	Anum_chunk,
	Anum_last_version,
	Anum_schema_number,
	Anum_flags,
	Anum_first_timestamp,
	Anum_last_timestamp,
	Anum_inserts,
	Anum_updates,
	Anum_deletes,
	Anum_raw_size,
	Anum_versions,
	Anum_changes,
	Natts_blocks = Anum_changes
};

/* A block row taken out of the scan. */
typedef struct BlockRow
{
	HeapTuple	tuple;			/* NULL: there is none */
	ScdcBlockInfo info;
	Datum		versions;		/* in the tuple, maybe pointing out of line */
	Datum		changes;
} BlockRow;

struct ScdcLogScan
{
	int64		first_version;
	Relation	blocks;
	Relation	index;
	SysScanDesc scan;
	BlockRow	row;			/* the current block */
	BlockRow	ahead;			/* and the one after it */
	ScdcBlockReader reader;
	MemoryContext rows_context; /* the tuples */
	MemoryContext block_context;	/* the current block's bytes */
};

/* ---------------------------------------------------------------------
 * writing
 * ---------------------------------------------------------------------
 */

static Datum
make_bytea(const char *data, uint32 len)
{
	bytea	   *result = palloc(VARHDRSZ + (Size) len);

	SET_VARSIZE(result, VARHDRSZ + len);
	memcpy(VARDATA(result), data, len);
	return PointerGetDatum(result);
}

void
scdc_changelog_count(ScdcBlockInfo *info, const ScdcEvent *event)
{
	switch (event->kind)
	{
		case SCDC_EVENT_INSERT:
			info->inserts++;
			break;
		case SCDC_EVENT_UPDATE:
			info->updates++;
			break;
		case SCDC_EVENT_DELETE:
			info->deletes++;
			break;
		case SCDC_EVENT_TRUNCATE:
		case SCDC_EVENT_GAP:
			info->flags |= SCDC_BLOCK_HAS_GAP;
			break;
	}
	if (event->flags & SCDC_EVENT_INCOMPLETE)
		info->flags |= SCDC_BLOCK_HAS_INCOMPLETE;
}

void
scdc_changelog_append(Relation blocks, const ScdcBlockInfo *info, const ScdcBlock *block)
{
	Datum		values[Natts_blocks];
	bool		isnull[Natts_blocks] = {0};

	values[Anum_stream_id - 1] = Int64GetDatum(info->stream_id);
	values[Anum_first_version - 1] = Int64GetDatum(info->first_version);
	values[Anum_chunk - 1] = Int32GetDatum(info->chunk);
	values[Anum_last_version - 1] = Int64GetDatum(info->last_version);
	values[Anum_schema_number - 1] = Int32GetDatum(info->schema_number);
	values[Anum_flags - 1] = Int32GetDatum(info->flags);
	values[Anum_first_timestamp - 1] = TimestampTzGetDatum(info->first_timestamp);
	values[Anum_last_timestamp - 1] = TimestampTzGetDatum(info->last_timestamp);
	values[Anum_inserts - 1] = Int64GetDatum(info->inserts);
	values[Anum_updates - 1] = Int64GetDatum(info->updates);
	values[Anum_deletes - 1] = Int64GetDatum(info->deletes);
	values[Anum_raw_size - 1] = Int32GetDatum((int32) Min(block->raw_size, (uint32) PG_INT32_MAX));
	values[Anum_versions - 1] = make_bytea(block->versions, block->versions_len);
	values[Anum_changes - 1] = make_bytea(block->changes, block->changes_len);
	scdc_row_insert(blocks, values, isnull);
	pfree(DatumGetPointer(values[Anum_versions - 1]));
	pfree(DatumGetPointer(values[Anum_changes - 1]));
}

int64
scdc_changelog_delete(int64 stream_id)
{
	Relation	blocks = scdc_table_open(SCDC_BLOCKS, RowExclusiveLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScanKeyData key[1];
	int64		count;

	ScanKeyInit(&key[0], Anum_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	count = scdc_rows_delete(SCDC_BLOCKS, BLOCKS_KEY, 1, key, snapshot);
	UnregisterSnapshot(snapshot);
	table_close(blocks, NoLock);
	return count;
}

/* Appends what the current block of a scan has from a version on, which begins in it. */
static void
append_rest(Relation blocks, ScdcLogScan *scan, int64 version)
{
	ScdcBlockBuilder *builder = scdc_block_builder_create(SCDC_COMPRESSION);
	ScdcBlockReader *reader = scdc_changelog_scan_open(scan, true);
	ScdcBlockInfo info = scan->row.info;
	ScdcBlock	block;
	ScdcEvent	event;
	const ScdcVersion *v;

	info.first_version = version;
	info.chunk = 0;
	info.flags = 0;
	info.inserts = info.updates = info.deletes = 0;
	for (int i = 0; i < reader->nversions; i++)
		if (reader->versions[i].version == version)
			info.first_timestamp = reader->versions[i].timestamp;
	while (scdc_changelog_scan_event(scan, &event, &v))
	{
		if (v->version < version)
			continue;
		scdc_block_begin_version(builder, v);
		scdc_block_add(builder, &event);
		scdc_changelog_count(&info, &event);
	}
	scdc_block_finish(builder, &block);
	scdc_changelog_append(blocks, &info, &block);
}

void
scdc_changelog_delete_before(int64 stream_id, int64 version, Snapshot snapshot)
{
	Relation	blocks = scdc_table_open(SCDC_BLOCKS, RowExclusiveLock);
	ScdcLogScan *scan = scdc_changelog_scan_begin(stream_id, PG_INT64_MIN, snapshot);
	ScdcBlockInfo info;

	while (scdc_changelog_scan_next(scan, &info) && info.first_version < version)
	{
		CHECK_FOR_INTERRUPTS();
		if (info.last_version >= version)
			append_rest(blocks, scan, version);
		scdc_row_delete(blocks, &scan->row.tuple->t_self);
	}
	scdc_changelog_scan_end(scan);
	table_close(blocks, NoLock);
}

/* ---------------------------------------------------------------------
 * single blocks, by their plain columns
 * ---------------------------------------------------------------------
 */

static void
info_of_row(const Datum *values, ScdcBlockInfo *info)
{
	info->stream_id = DatumGetInt64(values[Anum_stream_id - 1]);
	info->first_version = DatumGetInt64(values[Anum_first_version - 1]);
	info->chunk = DatumGetInt32(values[Anum_chunk - 1]);
	info->last_version = DatumGetInt64(values[Anum_last_version - 1]);
	info->schema_number = DatumGetInt32(values[Anum_schema_number - 1]);
	info->flags = DatumGetInt32(values[Anum_flags - 1]);
	info->first_timestamp = DatumGetTimestampTz(values[Anum_first_timestamp - 1]);
	info->last_timestamp = DatumGetTimestampTz(values[Anum_last_timestamp - 1]);
	info->inserts = DatumGetInt64(values[Anum_inserts - 1]);
	info->updates = DatumGetInt64(values[Anum_updates - 1]);
	info->deletes = DatumGetInt64(values[Anum_deletes - 1]);
}

typedef struct OneBlock
{
	bool		found;
	ScdcBlockInfo *info;
} OneBlock;

static bool
take_block(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	OneBlock   *one = arg;

	info_of_row(values, one->info);
	one->found = true;
	return false;
}

bool
scdc_changelog_last(int64 stream_id, Snapshot snapshot, ScdcBlockInfo *info)
{
	return scdc_changelog_last_before(stream_id, PG_INT64_MAX, snapshot, info);
}

bool
scdc_changelog_first(int64 stream_id, Snapshot snapshot, ScdcBlockInfo *info)
{
	OneBlock	one = {.info = info};
	ScanKeyData key[1];

	ScanKeyInit(&key[0], Anum_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	scdc_rows_scan(SCDC_BLOCKS, BLOCKS_KEY, 1, key, false, snapshot, take_block, &one);
	return one.found;
}

bool
scdc_changelog_last_before(int64 stream_id, int64 version, Snapshot snapshot, ScdcBlockInfo *info)
{
	OneBlock	one = {.info = info};
	ScanKeyData key[2];

	ScanKeyInit(&key[0], Anum_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	ScanKeyInit(&key[1], Anum_first_version, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(version));
	scdc_rows_scan(SCDC_BLOCKS, BLOCKS_KEY, 2, key, true, snapshot, take_block, &one);
	return one.found;
}

typedef struct EachBlock
{
	ScdcBlockFn fn;
	void	   *arg;
} EachBlock;

static bool
pass_block(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	EachBlock  *each = arg;
	ScdcBlockInfo info;

	CHECK_FOR_INTERRUPTS();
	info_of_row(values, &info);
	each->fn(&info, (int64) toast_datum_size(values[Anum_versions - 1]) +
			 (int64) toast_datum_size(values[Anum_changes - 1]), each->arg);
	return true;
}

void
scdc_changelog_each(Snapshot snapshot, ScdcBlockFn fn, void *arg)
{
	EachBlock	each = {.fn = fn, .arg = arg};

	scdc_rows_scan(SCDC_BLOCKS, NULL, 0, NULL, false, snapshot, pass_block, &each);
}

/* ---------------------------------------------------------------------
 * scanning
 * ---------------------------------------------------------------------
 */

/* Takes the next row that may hold a version we want out of the index scan. */
static void
fetch_row(ScdcLogScan *scan, BlockRow *row)
{
	MemoryContext old = MemoryContextSwitchTo(scan->rows_context);
	TupleDesc	desc = RelationGetDescr(scan->blocks);
	Datum		values[Natts_blocks];
	bool		isnull[Natts_blocks];
	HeapTuple	tuple;

	row->tuple = NULL;
	while ((tuple = systable_getnext_ordered(scan->scan, ForwardScanDirection)) != NULL)
	{
		heap_deform_tuple(tuple, desc, values, isnull);
		info_of_row(values, &row->info);

		/* earlier blocks of a version that spans many, the last of which goes on to ours */
		if (row->info.last_version < scan->first_version)
			continue;

		/* the scan's own tuple goes away with its next step */
		row->tuple = heap_copytuple(tuple);
		heap_deform_tuple(row->tuple, desc, values, isnull);
		row->versions = values[Anum_versions - 1];
		row->changes = values[Anum_changes - 1];
		break;
	}
	MemoryContextSwitchTo(old);
}

ScdcLogScan *
scdc_changelog_scan_begin(int64 stream_id, int64 first_version, Snapshot snapshot)
{
	ScdcLogScan *scan = palloc0(sizeof(ScdcLogScan));
	ScdcBlockInfo before;
	int64		from = first_version;
	ScanKeyData key[2];

	if (scdc_changelog_last_before(stream_id, first_version, snapshot, &before) &&
		before.last_version >= first_version)
		from = before.first_version;

	scan->first_version = first_version;
	scan->rows_context = CurrentMemoryContext;
	scan->block_context = AllocSetContextCreate(CurrentMemoryContext, "streamcdc block", ALLOCSET_DEFAULT_SIZES);
	scan->blocks = scdc_table_open(SCDC_BLOCKS, AccessShareLock);
	scan->index = index_open(scdc_index_oid(BLOCKS_KEY), AccessShareLock);
	ScanKeyInit(&key[0], Anum_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	ScanKeyInit(&key[1], Anum_first_version, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(from));
	scan->scan = systable_beginscan_ordered(scan->blocks, scan->index, snapshot, 2, key);
	fetch_row(scan, &scan->ahead);
	return scan;
}

bool
scdc_changelog_scan_next(ScdcLogScan *scan, ScdcBlockInfo *info)
{
	if (scan->row.tuple)
		heap_freetuple(scan->row.tuple);
	scan->row = scan->ahead;
	if (scan->row.tuple == NULL)
		return false;
	fetch_row(scan, &scan->ahead);
	*info = scan->row.info;
	return true;
}

bool
scdc_changelog_scan_continues(ScdcLogScan *scan)
{
	return scan->ahead.tuple != NULL && scan->ahead.info.first_version == scan->row.info.last_version;
}

int64
scdc_changelog_scan_raw_size(ScdcLogScan *scan)
{
	bool		isnull;

	return DatumGetInt32(heap_getattr(scan->row.tuple, Anum_raw_size, RelationGetDescr(scan->blocks), &isnull));
}

/* Raises XX001 for a block that turned out to be damaged. */
static void pg_attribute_noreturn()
damaged(const ScdcBlockInfo *info, const char *err)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("block of the change log is damaged: %s", err),
			 errdetail("It holds versions " INT64_FORMAT " to " INT64_FORMAT " (chunk %d) of stream " INT64_FORMAT ".",
					   info->first_version, info->last_version, info->chunk, info->stream_id)));
}

ScdcBlockReader *
scdc_changelog_scan_open(ScdcLogScan *scan, bool with_changes)
{
	BlockRow   *row = &scan->row;
	MemoryContext old;
	const char *err;
	bytea	   *versions;

	Assert(row->tuple != NULL);
	MemoryContextReset(scan->block_context);
	old = MemoryContextSwitchTo(scan->block_context);

	versions = DatumGetByteaPP(row->versions);
	if (!scdc_block_open_versions(&scan->reader, VARDATA_ANY(versions), VARSIZE_ANY_EXHDR(versions), &err))
		damaged(&row->info, err);
	if (with_changes)
	{
		bytea	   *changes = DatumGetByteaPP(row->changes);

		if (!scdc_block_open_changes(&scan->reader, VARDATA_ANY(changes), VARSIZE_ANY_EXHDR(changes), &err))
			damaged(&row->info, err);

		/* decompressed by now; a copy fetched from out of line is not needed any more */
		if ((Pointer) changes != DatumGetPointer(row->changes))
			pfree(changes);
	}
	MemoryContextSwitchTo(old);
	return &scan->reader;
}

bool
scdc_changelog_scan_event(ScdcLogScan *scan, ScdcEvent *event, const ScdcVersion **version)
{
	const char *err;
	int			result = scdc_block_next(&scan->reader, event, version, &err);

	if (result < 0)
		damaged(&scan->row.info, err);
	return result > 0;
}

bool
scdc_changelog_scan_incomplete(ScdcLogScan *scan, ScdcEvent *event, uint32 *shared, const ScdcVersion **version)
{
	const char *err;
	int			result = scdc_block_next_incomplete(&scan->reader, event, shared, version, &err);

	if (result < 0)
		damaged(&scan->row.info, err);
	return result > 0;
}

void
scdc_changelog_scan_complete(ScdcLogScan *scan, ScdcEvent *event)
{
	scdc_block_complete(&scan->reader, event);
}

void
scdc_changelog_scan_end(ScdcLogScan *scan)
{
	systable_endscan_ordered(scan->scan);
	index_close(scan->index, AccessShareLock);
	table_close(scan->blocks, AccessShareLock);
	MemoryContextDelete(scan->block_context);
	if (scan->row.tuple)
		heap_freetuple(scan->row.tuple);
	if (scan->ahead.tuple)
		heap_freetuple(scan->ahead.tuple);
	pfree(scan);
}

/* ---------------------------------------------------------------------
 * looking up versions
 * ---------------------------------------------------------------------
 */

/* The last block that begins with version or before, by its plain columns. */
static bool
block_at(int64 stream_id, int64 version, Snapshot snapshot, ScdcBlockInfo *info)
{
	Assert(version < PG_INT64_MAX);
	return scdc_changelog_last_before(stream_id, version + 1, snapshot, info);
}

bool
scdc_changelog_version_at(int64 stream_id, TimestampTz at, Snapshot snapshot, int64 *version)
{
	ScdcBlockInfo info;
	ScdcLogScan *scan;
	int64		low,
				high;

	if (!scdc_changelog_first(stream_id, snapshot, &info) || info.first_timestamp > at)
		return false;
	low = info.first_version;
	if (!scdc_changelog_last(stream_id, snapshot, &info))
		return false;
	high = info.first_version;

	/*
	 * Halve the versions, not the blocks, which are not numbered.  block_at(low)
	 * always begins at or before the time, no block beyond high does.
	 */
	while (low < high)
	{
		int64		middle = low + (high - low) / 2 + 1;

		if (!block_at(stream_id, middle, snapshot, &info) || info.first_timestamp > at)
			high = Max(Min(info.first_version, middle) - 1, low);
		else
			low = middle;
	}
	if (!block_at(stream_id, low, snapshot, &info))
		return false;
	if (info.last_timestamp <= at)
	{
		*version = info.last_version;
		return true;
	}

	/*
	 * The answer is inside.  All chunks of a version carry its timestamp, so a
	 * later chunk of the block's first version would have been found instead.
	 */
	scan = scdc_changelog_scan_begin(stream_id, info.first_version, snapshot);
	while (scdc_changelog_scan_next(scan, &info) && info.first_version <= low && info.first_timestamp <= at)
	{
		ScdcBlockReader *reader = scdc_changelog_scan_open(scan, false);

		for (int i = 0; i < reader->nversions && reader->versions[i].timestamp <= at; i++)
			*version = reader->versions[i].version;
	}
	scdc_changelog_scan_end(scan);
	return true;
}

/* Counts stop at their limit rather than going round. */
static uint32
add_count(uint32 a, uint32 b)
{
	return (uint32) Min((uint64) a + b, PG_UINT32_MAX);
}

bool
scdc_changelog_version_counts(int64 stream_id, int64 version, Snapshot snapshot, ScdcVersion *total)
{
	ScdcLogScan *scan = scdc_changelog_scan_begin(stream_id, version, snapshot);
	ScdcBlockInfo info;
	bool		found = false;

	while (scdc_changelog_scan_next(scan, &info) && info.first_version <= version)
	{
		ScdcBlockReader *reader = scdc_changelog_scan_open(scan, false);

		/* it begins in the last entry of its first block, and in the first of all others */
		for (int i = 0; i < reader->nversions; i++)
		{
			const ScdcVersion *v = &reader->versions[i];

			if (v->version != version)
				continue;
			if (!found)
				*total = *v;
			else
			{
				total->inserts = add_count(total->inserts, v->inserts);
				total->updates = add_count(total->updates, v->updates);
				total->deletes = add_count(total->deletes, v->deletes);
				total->markers = add_count(total->markers, v->markers);
			}
			found = true;
		}
	}
	scdc_changelog_scan_end(scan);
	return found;
}
