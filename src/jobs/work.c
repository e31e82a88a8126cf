/*-------------------------------------------------------------------------
 *
 * work.c
 *	  Rows on their way through a job (see work.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "jobs/work.h"
#include "sql/row_error.h"

/* Rows below this get more room than they need, for the next ones. */
#define ROOM_SPARE	((Size) 1024 * 1024)

ScdcWork *
scdc_work_create(const char *log, TupleDesc visible, TupleDesc hidden, bool text_versions, bool tracked)
{
	ScdcWork   *w = palloc0(sizeof(ScdcWork));
	int			nhidden = hidden ? hidden->natts : 0;
	int			n = visible->natts;
	Oid			version_type = text_versions ? TEXTOID : INT8OID;

	w->log = pstrdup(log);
	w->text_versions = text_versions;
	w->change_type = n + 1;
	w->version = n + 2;
	w->timestamp = n + 3;

	w->batch = CreateTemplateTupleDesc(n + 3);
	for (int i = 1; i <= n; i++)
		TupleDescCopyEntry(w->batch, i, visible, i);
	TupleDescInitEntry(w->batch, n + 1, "_change_type", TEXTOID, -1, 0);
	TupleDescInitEntry(w->batch, n + 2, "_commit_version", version_type, -1, 0);
	if (text_versions)
		TupleDescInitEntryCollation(w->batch, n + 2, C_COLLATION_OID);
	TupleDescInitEntry(w->batch, n + 3, "_commit_timestamp", TIMESTAMPTZOID, -1, 0);

	w->desc = CreateTemplateTupleDesc(n + 3 + nhidden);
	for (int i = 1; i <= n + 3; i++)
		TupleDescCopyEntry(w->desc, i, w->batch, i);
	for (int i = 1; i <= nhidden; i++)
		TupleDescCopyEntry(w->desc, n + 3 + i, hidden, i);
	w->kept = tracked ? CreateTupleDescCopy(visible) : w->desc;

	w->labels[SCDC_CHANGE_DELETE] = CStringGetTextDatum("delete");
	w->labels[SCDC_CHANGE_INSERT] = CStringGetTextDatum("insert");
	w->labels[SCDC_CHANGE_UPDATE_PREIMAGE] = CStringGetTextDatum("update_preimage");
	w->labels[SCDC_CHANGE_UPDATE_POSTIMAGE] = CStringGetTextDatum("update_postimage");
	return w;
}

/* Type that a label stands for; SCDC_CHANGE_OTHER if it is none of the four. */
static ScdcChangeType
type_of(const ScdcWork *work, const Datum *values, const bool *isnull)
{
	text	   *label;

	if (isnull[work->change_type - 1])
		return SCDC_CHANGE_OTHER;
	for (int i = 0; i < (int) lengthof(work->labels); i++)
		if (values[work->change_type - 1] == work->labels[i])
			return i;			/* our own */
	label = DatumGetTextPP(values[work->change_type - 1]);
	for (int i = 0; i < (int) lengthof(work->labels); i++)
	{
		text	   *known = DatumGetTextPP(work->labels[i]);

		if (VARSIZE_ANY_EXHDR(label) == VARSIZE_ANY_EXHDR(known) &&
			memcmp(VARDATA_ANY(label), VARDATA_ANY(known), VARSIZE_ANY_EXHDR(known)) == 0)
			return i;
	}
	return SCDC_CHANGE_OTHER;
}

ScdcWorkRow *
scdc_work_room(ScdcWorkBuffer *buffer, Size size)
{
	if (buffer->room < size)
	{
		if (buffer->row)
			pfree(buffer->row);
		buffer->row = NULL;
		buffer->room = size < ROOM_SPARE ? size * 2 : size;
		buffer->row = MemoryContextAllocHuge(buffer->context, buffer->room);
	}
	buffer->row->size = (uint32) size;
	return buffer->row;
}

/* What heap_form_minimal_tuple does, right where the tuple is wanted. */
const ScdcWorkRow *
scdc_work_form(ScdcWork *work, ScdcWorkBuffer *buffer, const Datum *values, const bool *isnull, int64 seq)
{
	TupleDesc	desc = work->kept;
	bool		has_nulls = memchr(isnull, 1, desc->natts) != NULL;
	Size		data_len = heap_compute_data_size(desc, unconstify(Datum *, values), unconstify(bool *, isnull));
	Size		offset = MAXALIGN(SizeofMinimalTupleHeader + (has_nulls ? BITMAPLEN(desc->natts) : 0));
	ScdcWorkRow *row = scdc_work_room(buffer, SCDC_WORK_TUPLE + offset + data_len);
	MinimalTuple tuple = (MinimalTuple) ((char *) row + SCDC_WORK_TUPLE);

	row->type = row->label = type_of(work, values, isnull);
	row->version = work->text_versions || isnull[work->version - 1] ? 0 : DatumGetInt64(values[work->version - 1]);
	row->seq = seq;
	row->timestamp = isnull[work->timestamp - 1] ? DT_NOBEGIN : DatumGetTimestampTz(values[work->timestamp - 1]);
	row->hash = 0;
	for (int i = 0; i < work->nkeys; i++)
	{
		ScdcTupleKey *key = &work->keys[i];

		row->hash = hash_combine64(row->hash, scdc_tuple_key_hash(key, values[key->attno - 1], isnull[key->attno - 1]));
	}

	memset(tuple, 0, offset + data_len);
	tuple->t_len = (uint32) (offset + data_len);
	HeapTupleHeaderSetNatts(tuple, desc->natts);
	tuple->t_hoff = (uint8) (offset + MINIMAL_TUPLE_OFFSET);
	heap_fill_tuple(desc, unconstify(Datum *, values), unconstify(bool *, isnull), (char *) tuple + offset, data_len,
					&tuple->t_infomask, has_nulls ? tuple->t_bits : NULL);
	return row;
}

const ScdcWorkRow *
scdc_work_wrap(ScdcWork *work, ScdcWorkBuffer *buffer, const ScdcWorkImage *image, int64 seq)
{
	ScdcWorkRow *row = scdc_work_room(buffer, SCDC_WORK_IMAGE + image->image.len);
	HeapTupleData tuple;

	row->type = row->label = image->type;
	row->hash = 0;
	row->version = image->version;
	row->seq = seq;
	row->timestamp = image->timestamp;
	memcpy(scdc_work_begin_tuple(row), image->image.data, image->image.len);
	tuple = scdc_work_tuple(row);
	for (int i = 0; i < work->nkeys; i++)
	{
		bool		isnull;
		Datum		value = heap_getattr(&tuple, work->keys[i].attno, work->kept, &isnull);

		row->hash = hash_combine64(row->hash, scdc_tuple_key_hash(&work->keys[i], value, isnull));
	}
	return row;
}

void
scdc_work_deform(const ScdcWork *work, const ScdcWorkRow *row, ScdcChangeType type, Datum *values, bool *isnull)
{
	HeapTupleData tuple = scdc_work_tuple(row);

	heap_deform_tuple(&tuple, work->kept, values, isnull);
	if (work->kept != work->desc)
	{
		values[work->version - 1] = Int64GetDatum(row->version);
		values[work->timestamp - 1] = TimestampTzGetDatum(row->timestamp);
		isnull[work->version - 1] = isnull[work->timestamp - 1] = false;
	}
	if (work->kept != work->desc || type != (ScdcChangeType) row->label)
	{
		values[work->change_type - 1] = work->labels[type];
		isnull[work->change_type - 1] = false;
	}
}

bool
scdc_work_same_value(ScdcWork *work, ScdcTupleKey *key, const ScdcWorkRow *a, const ScdcWorkRow *b)
{
	HeapTupleData x = scdc_work_tuple(a);
	HeapTupleData y = scdc_work_tuple(b);

	return scdc_tuple_key_same(key, work->kept, &x, &y);
}

bool
scdc_work_same_identity(ScdcWork *work, const ScdcWorkRow *a, const ScdcWorkRow *b)
{
	for (int i = 0; i < work->nkeys; i++)
		if (!scdc_work_same_value(work, &work->keys[i], a, b))
			return false;
	return true;
}

Datum
scdc_work_version(const ScdcWork *work, const ScdcWorkRow *row, bool *isnull)
{
	HeapTupleData tuple = scdc_work_tuple(row);

	*isnull = false;
	return work->kept == work->desc ? heap_getattr(&tuple, work->version, work->desc, isnull) : Int64GetDatum(row->version);
}

char *
scdc_work_version_text(const ScdcWork *work, const ScdcWorkRow *row)
{
	bool		isnull;
	Datum		version = scdc_work_version(work, row, &isnull);

	if (isnull)
		return NULL;
	return work->text_versions ? TextDatumGetCString(version) : psprintf(INT64_FORMAT, DatumGetInt64(version));
}

void
scdc_work_contract_error(const ScdcWork *work, ScdcCollapseError error, const ScdcWorkRow *row)
{
	Datum	   *values = palloc(work->desc->natts * sizeof(Datum));
	bool	   *isnull = palloc(work->desc->natts * sizeof(bool));
	int			label = work->change_type - 1;

	scdc_work_deform(work, row, row->label, values, isnull);
	scdc_contract_error(error, work->log, scdc_work_version_text(work, row),
						isnull[label] ? NULL : TextDatumGetCString(values[label]));
}
