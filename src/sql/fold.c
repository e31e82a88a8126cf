/*-------------------------------------------------------------------------
 *
 * fold.c
 *	  What a log comes to (see fold.h).
 *
 * With an identity the rows are the net changes since before the baseline,
 * which can only be inserts.  Without one each row is written as text, column
 * by column, and sorted: of rows with the same text those that came cancel
 * those that went, whatever columns the table had at the time.  Columns count
 * as the newest schema has them; one that was added later has the value then
 * that its rows got.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupdesc.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type.h"
#include "common/cryptohash.h"
#include "common/sha2.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"

#include "log/changelog.h"
#include "log/retained.h"
#include "sql/changes.h"
#include "sql/fold.h"
#include "sql/json_row.h"

struct ScdcFold
{
	MemoryContext context;
	ScdcRead	read;
	ScdcRowSchemas *schemas;

	/* with an identity */
	ScdcChangeReader *reader;

	/* without */
	Tuplesortstate *sort;
	TupleTableSlot *slot;
	char		digest[PG_SHA256_DIGEST_LENGTH];	/* of the row before */
	int64		went;			/* so many rows with this digest are left to be cancelled */
	ScdcRowView view;
};

/* columns of what is sorted */
enum
{
	S_DIGEST = 1,
	S_SIGN,						/* -1: went, 1: came */
	S_SCHEMA,
	S_IMAGE,					/* of a row that came */
	S_COLUMNS = S_IMAGE
};

/* Do all rows in the range have an identity?  newest: the greatest schema number met, that of the baseline if no other. */
static bool
all_identified(ScdcFold *fold, ScdcVersionRange range, int32 *newest)
{
	const ScdcStream *stream = fold->read.target->stream;
	ScdcLogScan *scan;
	ScdcBlockInfo info;
	bool		result = stream->nidentity > 0;

	*newest = SCDC_BASELINE_SCHEMA;
	scan = scdc_changelog_scan_begin(stream->stream_id, range.first, fold->read.snapshot);
	while (scdc_changelog_scan_next(scan, &info) && info.first_version <= range.last)
	{
		CHECK_FOR_INTERRUPTS();
		if (info.schema_number == 0)
			continue;
		*newest = Max(*newest, info.schema_number);
		result = result && scdc_row_schema(fold->schemas, info.schema_number)->nkeys > 0;
	}
	scdc_changelog_scan_end(scan);
	return result;
}

/* ---------------------------------------------------------------------
 * rows without identity
 * ---------------------------------------------------------------------
 */

static const char *
column_text(ScdcRowView *view, const ScdcColumn *column)
{
	Datum		value = view->values[column->image_attno];
	Oid			output;
	bool		varlena;

	if (view->isnull[column->image_attno])
		return NULL;
	if (column->storage != SCDC_STORE_RAW)
		return TextDatumGetCString(value);
	getTypeOutputInfo(column->raw_type, &output, &varlena);
	return OidOutputFunctionCall(output, value);
}

/* Of each column its length (-1: NULL), and that. */
bytea *
scdc_row_digest(ScdcRowView *view, const ScdcSchema *columns, Snapshot snapshot)
{
	const ScdcSchema *schema = view->schema->schema;
	bytea	   *result = palloc(VARHDRSZ + PG_SHA256_DIGEST_LENGTH);
	pg_cryptohash_ctx *hash = pg_cryptohash_create(PG_SHA256);
	bool		failed = hash == NULL || pg_cryptohash_init(hash) < 0;

	scdc_row_view_split(view);
	for (int i = 0; i < columns->ncolumns && !failed; i++)
	{
		const char *text;
		int32		len;

		if (columns->columns[i].dropped)
			continue;
		if (i < schema->ncolumns)
			text = schema->columns[i].dropped ? NULL : column_text(view, &schema->columns[i]);
		else
			text = scdc_missing_read(columns->stream_id, i + 1, snapshot);
		len = text ? (int32) strlen(text) : -1;
		failed = pg_cryptohash_update(hash, (uint8 *) &len, sizeof(len)) < 0 ||
			(text && pg_cryptohash_update(hash, (const uint8 *) text, len) < 0);
	}
	if (failed || pg_cryptohash_final(hash, (uint8 *) VARDATA(result), PG_SHA256_DIGEST_LENGTH) < 0)
		elog(ERROR, "could not compute the digest of a row");
	pg_cryptohash_free(hash);
	SET_VARSIZE(result, VARHDRSZ + PG_SHA256_DIGEST_LENGTH);
	return result;
}

static bytea *
image_bytea(ScdcBytes image)
{
	bytea	   *result = palloc(VARHDRSZ + (Size) image.len);

	SET_VARSIZE(result, VARHDRSZ + image.len);
	memcpy(VARDATA(result), image.data, image.len);
	return result;
}

static void
sort_changes(ScdcFold *fold, ScdcVersionRange range, const ScdcSchema *columns)
{
	TupleDesc	desc = CreateTemplateTupleDesc(S_COLUMNS);
	AttrNumber	attnums[] = {S_DIGEST, S_SIGN};
	Oid			operators[] = {ByteaLessOperator, Int4LessOperator};
	Oid			collations[] = {InvalidOid, InvalidOid};
	bool		nulls_first[] = {false, false};
	ScdcChangeReader *reader;
	ScdcChange	change;
	TupleTableSlot *slot;
	MemoryContext row_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc fold row", ALLOCSET_DEFAULT_SIZES);
	int			nestlevel;

	TupleDescInitEntry(desc, S_DIGEST, "digest", BYTEAOID, -1, 0);
	TupleDescInitEntry(desc, S_SIGN, "sign", INT4OID, -1, 0);
	TupleDescInitEntry(desc, S_SCHEMA, "schema", INT4OID, -1, 0);
	TupleDescInitEntry(desc, S_IMAGE, "image", BYTEAOID, -1, 0);
	fold->sort = tuplesort_begin_heap(desc, 2, attnums, operators, collations, nulls_first, work_mem, NULL, TUPLESORT_NONE);
	fold->slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);

	/* output functions only; of users' types there is text already */
	nestlevel = scdc_pin_output_settings();
	reader = scdc_changes_begin(&fold->read, fold->schemas, range, SCDC_DEDUP_NONE, false);
	while (scdc_changes_next(reader, &change))
	{
		MemoryContext old = MemoryContextSwitchTo(row_cxt);
		bool		came = change.type == SCDC_CHANGE_INSERT;

		ExecClearTuple(slot);
		memset(slot->tts_isnull, 0, S_COLUMNS * sizeof(bool));
		slot->tts_values[S_DIGEST - 1] = PointerGetDatum(scdc_row_digest(change.view, columns, fold->read.snapshot));
		slot->tts_values[S_SIGN - 1] = Int32GetDatum(came ? 1 : -1);
		slot->tts_values[S_SCHEMA - 1] = Int32GetDatum(change.view->schema->schema->number);
		slot->tts_isnull[S_IMAGE - 1] = !came;
		if (came)
			slot->tts_values[S_IMAGE - 1] = PointerGetDatum(image_bytea(change.view->image));
		ExecStoreVirtualTuple(slot);
		MemoryContextSwitchTo(old);
		tuplesort_puttupleslot(fold->sort, slot);
		MemoryContextReset(row_cxt);
	}
	scdc_changes_end(reader);
	AtEOXact_GUC(true, nestlevel);
	ExecDropSingleTupleTableSlot(slot);
	MemoryContextDelete(row_cxt);
	tuplesort_performsort(fold->sort);
}

static bool
next_sorted(ScdcFold *fold)
{
	while (tuplesort_gettupleslot(fold->sort, true, false, fold->slot, NULL))
	{
		bool		isnull;
		bytea	   *digest = DatumGetByteaPP(slot_getattr(fold->slot, S_DIGEST, &isnull));
		int32		sign = DatumGetInt32(slot_getattr(fold->slot, S_SIGN, &isnull));
		int32		schema = DatumGetInt32(slot_getattr(fold->slot, S_SCHEMA, &isnull));
		bytea	   *stored;
		ScdcBytes	image;

		CHECK_FOR_INTERRUPTS();
		if (memcmp(VARDATA_ANY(digest), fold->digest, PG_SHA256_DIGEST_LENGTH) != 0)
		{
			memcpy(fold->digest, VARDATA_ANY(digest), PG_SHA256_DIGEST_LENGTH);
			fold->went = 0;
		}
		if (sign < 0)
			fold->went++;
		else if (fold->went > 0)
			fold->went--;
		else
		{
			stored = DatumGetByteaPP(slot_getattr(fold->slot, S_IMAGE, &isnull));
			image.data = VARDATA_ANY(stored);
			image.len = VARSIZE_ANY_EXHDR(stored);
			scdc_row_view_set(&fold->view, scdc_row_schema(fold->schemas, schema), image);
			return true;
		}
	}
	return false;
}

/* ---------------------------------------------------------------------
 * the fold
 * ---------------------------------------------------------------------
 */

ScdcFold *
scdc_fold_begin(const ScdcTarget *target, int64 upto, Snapshot snapshot, Snapshot seen_by)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "streamcdc fold", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	ScdcFold   *fold = palloc0(sizeof(ScdcFold));
	ScdcVersionRange range = {.first = scdc_retained(target->stream, snapshot).first, .last = upto};
	int32		newest;

	fold->context = context;
	fold->read.target = unconstify(ScdcTarget *, target);
	fold->read.snapshot = snapshot;
	fold->read.as_recorded = true;
	fold->read.seen_by = seen_by;
	fold->schemas = scdc_row_schemas_create(target->stream, snapshot);
	scdc_row_schemas_range(fold->schemas, range.first, range.last);
	if (all_identified(fold, range, &newest))
		fold->reader = scdc_changes_begin(&fold->read, fold->schemas, range, SCDC_DEDUP_NET_CHANGES, false);
	else
	{
		scdc_row_view_init(&fold->view);
		sort_changes(fold, range, scdc_row_schema(fold->schemas, newest)->schema);
	}
	MemoryContextSwitchTo(old);
	return fold;
}

ScdcRowView *
scdc_fold_next(ScdcFold *fold)
{
	ScdcChange	change;

	if (fold->sort)
		return next_sorted(fold) ? &fold->view : NULL;
	while (scdc_changes_next(fold->reader, &change))
	{
		/* what went without having come went in, or before, a gap */
		if (change.type == SCDC_CHANGE_INSERT)
			return change.view;
	}
	return NULL;
}

void
scdc_fold_end(ScdcFold *fold)
{
	if (fold->reader)
		scdc_changes_end(fold->reader);
	if (fold->sort)
	{
		tuplesort_end(fold->sort);
		ExecDropSingleTupleTableSlot(fold->slot);
	}
	MemoryContextDelete(fold->context);
}
