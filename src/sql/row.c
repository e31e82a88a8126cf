/*-------------------------------------------------------------------------
 *
 * row.c
 *	  Rows out of the change log: their schemas, their identity, and whether
 *	  two of them are equal.
 *
 * Identities are compared by the default equality of each column's type,
 * under the column's collation, NULL being equal to NULL.  Values that are
 * stored as text are turned back into values of their type for that, except
 * enums, whose labels are as good and may have been renamed since.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "log/changelog.h"
#include "sql/row.h"

struct ScdcRowSchemas
{
	const ScdcStream *stream;
	Snapshot	snapshot;
	MemoryContext context;
	List	   *list;			/* of ScdcRowSchema */
	ScdcRowSchema *recent;
};

/* An image starts here in a heap tuple (image.h). */
#define IMAGE_OFFSET	offsetof(HeapTupleHeaderData, t_infomask2)

/* ---------------------------------------------------------------------
 * schemas
 * ---------------------------------------------------------------------
 */

/* Fills *key for a column; false if its values cannot be compared (any more). */
static bool
key_column_init(ScdcKeyColumn *key, const ScdcColumn *column, MemoryContext context)
{
	Oid			type = column->raw_type;
	TypeCacheEntry *cache;

	memset(key, 0, sizeof(*key));
	key->image_attno = column->image_attno;
	key->collation = column->collation;
	if (column->storage != SCDC_STORE_RAW)
	{
		key->is_text = true;
		type = TEXTOID;
		if (SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(column->type)))
		{
			Oid			base = getBaseType(column->type);

			if (!type_is_enum(base))
			{
				Oid			input;

				getTypeInputInfo(base, &input, &key->input_param);
				fmgr_info_cxt(input, &key->input, context);
				key->input_type = type = base;
			}
		}
		if (type == TEXTOID)
			key->collation = C_COLLATION_OID;
	}
	if (OidIsValid(key->collation) && !SearchSysCacheExists1(COLLOID, ObjectIdGetDatum(key->collation)))
		key->collation = C_COLLATION_OID;

	cache = lookup_type_cache(type, TYPECACHE_EQ_OPR_FINFO | TYPECACHE_HASH_PROC_FINFO);
	if (!OidIsValid(cache->eq_opr_finfo.fn_oid))
		return false;
	fmgr_info_copy(&key->equal, &cache->eq_opr_finfo, context);
	key->has_hash = OidIsValid(cache->hash_proc_finfo.fn_oid);
	if (key->has_hash)
		fmgr_info_copy(&key->hash, &cache->hash_proc_finfo, context);
	key->typlen = cache->typlen;
	key->typbyval = cache->typbyval;
	return true;
}

ScdcRowSchemas *
scdc_row_schemas_create(const ScdcStream *stream, Snapshot snapshot)
{
	ScdcRowSchemas *schemas = palloc0(sizeof(ScdcRowSchemas));

	schemas->stream = stream;
	schemas->snapshot = snapshot;
	schemas->context = CurrentMemoryContext;
	return schemas;
}

static ScdcRowSchema *
read_row_schema(ScdcRowSchemas *schemas, int32 number)
{
	const ScdcStream *stream = schemas->stream;
	ScdcRowSchema *result = palloc0(sizeof(ScdcRowSchema));

	/* 0 is the number of no schema, and would read the newest */
	if (number != 0)
		result->schema = scdc_schema_read(stream->stream_id, number, schemas->snapshot);
	if (result->schema == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("schema %d of stream " INT64_FORMAT " is missing", number, stream->stream_id)));

	result->keys = palloc(Max(stream->nidentity, 1) * sizeof(ScdcKeyColumn));
	for (int i = 0; i < stream->nidentity; i++)
	{
		AttrNumber	attnum = stream->identity[i];
		const ScdcColumn *column;

		/* with one of its columns the identity is gone */
		if (attnum > result->schema->ncolumns)
			return result;
		column = &result->schema->columns[attnum - 1];
		if (column->dropped || !key_column_init(&result->keys[i], column, schemas->context))
			return result;
	}
	result->nkeys = stream->nidentity;
	return result;
}

ScdcRowSchema *
scdc_row_schema(ScdcRowSchemas *schemas, int32 number)
{
	ListCell   *lc;
	MemoryContext old;

	if (schemas->recent && schemas->recent->schema->number == number)
		return schemas->recent;
	foreach(lc, schemas->list)
	{
		ScdcRowSchema *candidate = lfirst(lc);

		if (candidate->schema->number == number)
			return schemas->recent = candidate;
	}
	old = MemoryContextSwitchTo(schemas->context);
	schemas->recent = read_row_schema(schemas, number);
	schemas->list = lappend(schemas->list, schemas->recent);
	MemoryContextSwitchTo(old);
	return schemas->recent;
}

bool
scdc_row_schemas_type_change(ScdcRowSchemas *schemas, const ScdcSchema *schema, int column,
							 int64 from_version, int64 *version)
{
	const ScdcColumn *was = &schema->columns[column];
	ScdcLogScan *scan = scdc_changelog_scan_begin(schema->stream_id, from_version, schemas->snapshot);
	ScdcBlockInfo info;
	bool		found = false;

	while (!found && scdc_changelog_scan_next(scan, &info))
	{
		const ScdcSchema *s;

		if (info.schema_number == 0)
			continue;			/* markers only */
		s = scdc_row_schema(schemas, info.schema_number)->schema;
		found = column >= s->ncolumns || s->columns[column].dropped ||
			s->columns[column].type != was->type || s->columns[column].typmod != was->typmod;
	}
	scdc_changelog_scan_end(scan);
	if (found)
		*version = info.first_version;
	return found;
}

/* ---------------------------------------------------------------------
 * views
 * ---------------------------------------------------------------------
 */

void
scdc_row_view_init(ScdcRowView *view)
{
	memset(view, 0, sizeof(*view));
	view->context = CurrentMemoryContext;
}

void
scdc_row_view_set(ScdcRowView *view, ScdcRowSchema *schema, ScdcBytes image)
{
	view->schema = schema;
	view->image = image;
	view->is_split = false;
}

void
scdc_row_view_split(ScdcRowView *view)
{
	int			natts = view->schema->schema->image_desc->natts;
	MemoryContext old;

	if (view->is_split)
		return;
	old = MemoryContextSwitchTo(view->context);
	if (view->room < natts)
	{
		view->room = natts;
		view->values = palloc(natts * sizeof(Datum));
		view->isnull = palloc(natts * sizeof(bool));
	}
	scdc_image_deform(view->schema->schema, view->image, &view->buffer, view->values, view->isnull);
	MemoryContextSwitchTo(old);
	view->is_split = true;
}

/* What is compared of a key column: the stored datum, or what its text means. */
static Datum
key_datum(ScdcKeyColumn *key, Datum stored)
{
	if (OidIsValid(key->input_type))
		return InputFunctionCall(&key->input, TextDatumGetCString(stored), key->input_param, -1);
	return stored;
}

static bool
same_key_datum(ScdcKeyColumn *key, Datum a, bool a_isnull, Datum b, bool b_isnull)
{
	if (a_isnull || b_isnull)
		return a_isnull && b_isnull;
	return DatumGetBool(FunctionCall2Coll(&key->equal, key->collation, a, b));
}

bool
scdc_row_view_same_identity(ScdcRowView *a, ScdcRowView *b)
{
	ScdcRowSchema *schema = a->schema;

	Assert(a->schema == b->schema);
	scdc_row_view_split(a);
	scdc_row_view_split(b);
	for (int i = 0; i < schema->nkeys; i++)
	{
		ScdcKeyColumn *key = &schema->keys[i];
		int			n = key->image_attno;
		Datum		x = a->isnull[n] ? (Datum) 0 : key_datum(key, a->values[n]);
		Datum		y = b->isnull[n] ? (Datum) 0 : key_datum(key, b->values[n]);

		if (!same_key_datum(key, x, a->isnull[n], y, b->isnull[n]))
			return false;
	}
	return true;
}

/* Do two schemas have the same columns, laid out alike? */
static bool
same_columns(const ScdcSchema *a, const ScdcSchema *b)
{
	if (a->ncolumns != b->ncolumns)
		return false;
	for (int i = 0; i < a->ncolumns; i++)
	{
		const ScdcColumn *x = &a->columns[i];
		const ScdcColumn *y = &b->columns[i];

		if (x->dropped != y->dropped)
			return false;
		if (!x->dropped &&
			(x->storage != y->storage || x->raw_type != y->raw_type ||
			 x->image_attno != y->image_attno || x->attlen != y->attlen || x->attbyval != y->attbyval))
			return false;
	}
	return true;
}

bool
scdc_row_view_same_image(ScdcRowView *a, ScdcRowView *b)
{
	const ScdcSchema *schema = a->schema->schema;

	if (a->schema == b->schema)
	{
		if (a->image.len == b->image.len && memcmp(a->image.data, b->image.data, a->image.len) == 0)
			return true;
	}
	else if (!same_columns(schema, b->schema->schema))
		return false;

	/*
	 * Images that differ may still hold the same row: one with a value
	 * compressed and one not, or with the remains of a dropped column.
	 */
	scdc_row_view_split(a);
	scdc_row_view_split(b);
	for (int i = 0; i < schema->ncolumns; i++)
	{
		const ScdcColumn *column = &schema->columns[i];
		int			n = column->image_attno;
		Form_pg_attribute att = TupleDescAttr(schema->image_desc, n);

		if (column->dropped)
			continue;
		if (a->isnull[n] || b->isnull[n])
		{
			if (a->isnull[n] != b->isnull[n])
				return false;
		}
		else if (!datum_image_eq(a->values[n], b->values[n], att->attbyval, att->attlen))
			return false;
	}
	return true;
}

/* ---------------------------------------------------------------------
 * rows kept
 * ---------------------------------------------------------------------
 */

/*
 * The image is kept with the beginning of a tuple header in front of it, so
 * that key columns can be looked up where they are, without splitting the row.
 */
ScdcRow *
scdc_row_make(ScdcRowSchema *schema, ScdcBytes image)
{
	TupleDesc	desc = schema->schema->image_desc;
	int			nkeys = schema->nkeys;
	Size		tuple_offset = MAXALIGN(sizeof(ScdcRow)) + MAXALIGN(nkeys * sizeof(Datum));
	Size		tuple_len = IMAGE_OFFSET + image.len;
	char	   *memory;
	ScdcRow    *row;
	HeapTupleData tuple;

	if (image.len < SizeofHeapTupleHeader - IMAGE_OFFSET)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("row image in the change log is damaged")));

	memory = palloc(tuple_offset + tuple_len + nkeys * sizeof(bool));
	row = (ScdcRow *) memory;
	row->schema = schema;
	row->key = (Datum *) (memory + MAXALIGN(sizeof(ScdcRow)));
	row->key_isnull = (bool *) (memory + tuple_offset + tuple_len);
	row->has_hash = false;

	memset(memory + tuple_offset, 0, IMAGE_OFFSET);
	row->image.data = memcpy(memory + tuple_offset + IMAGE_OFFSET, image.data, image.len);
	row->image.len = image.len;

	tuple.t_data = (HeapTupleHeader) (memory + tuple_offset);
	tuple.t_len = tuple_len;
	tuple.t_tableOid = InvalidOid;
	ItemPointerSetInvalid(&tuple.t_self);
	if (HeapTupleHeaderGetNatts(tuple.t_data) != desc->natts || tuple.t_data->t_hoff > tuple_len)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("row image in the change log does not fit schema %d of stream " INT64_FORMAT,
						schema->schema->number, schema->schema->stream_id)));

	for (int i = 0; i < nkeys; i++)
	{
		ScdcKeyColumn *key = &schema->keys[i];
		Datum		stored = heap_getattr(&tuple, key->image_attno + 1, desc, &row->key_isnull[i]);

		row->key[i] = row->key_isnull[i] ? (Datum) 0 : key_datum(key, stored);
	}
	return row;
}

uint32
scdc_row_hash(ScdcRow *row)
{
	if (!row->has_hash)
	{
		uint32		hash = 0;

		for (int i = 0; i < row->schema->nkeys; i++)
		{
			ScdcKeyColumn *key = &row->schema->keys[i];
			uint32		one = 0;

			/* a type without hash function contributes nothing: slow, but right */
			if (!row->key_isnull[i] && key->has_hash)
				one = DatumGetUInt32(FunctionCall1Coll(&key->hash, key->collation, row->key[i]));
			hash = hash_combine(hash, one);
		}
		row->hash = hash;
		row->has_hash = true;
	}
	return row->hash;
}

bool
scdc_row_same_identity(const ScdcRow *a, const ScdcRow *b)
{
	ScdcRowSchema *schema = a->schema;

	if (schema->nkeys != b->schema->nkeys)
		return false;
	for (int i = 0; i < schema->nkeys; i++)
	{
		ScdcKeyColumn *key = &schema->keys[i];

		/* a change of type that changes how keys compare rewrites the table, and that is a gap */
		if (schema != b->schema && key->equal.fn_oid != b->schema->keys[i].equal.fn_oid)
			return false;
		if (!same_key_datum(key, a->key[i], a->key_isnull[i], b->key[i], b->key_isnull[i]))
			return false;
	}
	return true;
}
