/*-------------------------------------------------------------------------
 *
 * row.c
 *	  Rows out of the change log: their schemas, their identity, and whether
 *	  two of them are equal.
 *
 * Identities are compared by the default equality of each column's type,
 * under the column's collation, NULL being equal to NULL.  Values that are
 * stored as text are turned back into values of their type for that, except
 * enums, whose labels are as good; those that were renamed since are compared
 * by the name they have today.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "log/changelog.h"
#include "sql/key_sample.h"
#include "sql/old_text.h"
#include "sql/row.h"

struct ScdcRowSchemas
{
	const ScdcStream *stream;
	Oid			owner;			/* of its table */
	Snapshot	snapshot;
	MemoryContext context;
	List	   *list;			/* of ScdcRowSchema */
	ScdcRowSchema *recent;

	/* of identity columns without hash function; NULL: others */
	ScdcKeySample *samples[INDEX_MAX_KEYS];
	bool		sampled;
	int64		first;			/* where they come from */
	int64		last;
};

/* An image starts here in a heap tuple (image.h). */
#define IMAGE_OFFSET	offsetof(HeapTupleHeaderData, t_infomask2)

/* ---------------------------------------------------------------------
 * schemas
 * ---------------------------------------------------------------------
 */

/*
 * Where the operator of the type does no more than compare bytes, we do that
 * ourselves: calling it costs more than all else that is done for a row.
 */
static ScdcKeyKind
key_kind(const ScdcKeyColumn *key)
{
	switch (key->equal.fn_oid)
	{
		case F_BOOLEQ:
		case F_CHAREQ:
		case F_INT2EQ:
		case F_INT4EQ:
		case F_INT8EQ:
		case F_OIDEQ:
		case F_XIDEQ:
		case F_XID8EQ:
		case F_CASH_EQ:
		case F_DATE_EQ:
		case F_TIME_EQ:
		case F_TIMESTAMP_EQ:
		case F_TIMESTAMPTZ_EQ:
		case F_PG_LSN_EQ:
			return key->typbyval ? SCDC_KEY_DATUM : SCDC_KEY_OPERATOR;
		case F_UUID_EQ:
		case F_MACADDR_EQ:
		case F_MACADDR8_EQ:
			return SCDC_KEY_FIXED;
		case F_TEXTEQ:
			return get_collation_isdeterministic(key->collation) ? SCDC_KEY_VARLENA : SCDC_KEY_OPERATOR;
		case F_BYTEAEQ:
		case F_BITEQ:
		case F_VARBITEQ:
			return SCDC_KEY_VARLENA;
	}
	return SCDC_KEY_OPERATOR;
}

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
		type = TEXTOID;
		if (SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(column->type)))
		{
			Oid			base = getBaseType(column->type);

			key->old_text = scdc_old_text_create(column->type_parts, column->type, column->type, true);
			if (!type_is_enum(base))
				type = base;
			if (!type_is_enum(base) || key->old_text)
			{
				Oid			input;

				getTypeInputInfo(type, &input, &key->input_param);
				fmgr_info_cxt(input, &key->input, context);
				key->input_type = type;
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
	key->kind = key_kind(key);
	key->type = type;
	return true;
}

ScdcRowSchemas *
scdc_row_schemas_create(const ScdcStream *stream, Snapshot snapshot)
{
	ScdcRowSchemas *schemas = palloc0(sizeof(ScdcRowSchemas));

	schemas->stream = stream;
	schemas->owner = scdc_stream_table_owner(stream);
	schemas->snapshot = snapshot;
	schemas->context = CurrentMemoryContext;
	schemas->first = PG_INT64_MIN;
	schemas->last = PG_INT64_MAX;
	return schemas;
}

Oid
scdc_row_schemas_owner(const ScdcRowSchemas *schemas)
{
	return schemas->owner;
}

void
scdc_row_schemas_range(ScdcRowSchemas *schemas, int64 first, int64 last)
{
	schemas->first = first;
	schemas->last = last;
}

/* For a key that can be sorted only. */
static void
find_sample(ScdcRowSchemas *schemas, ScdcKeyColumn *key, int number, Oid type)
{
	ScdcKeySample **sample = &schemas->samples[number];

	if (*sample == NULL)
		*sample = scdc_key_sample_create(type, key->collation);
	if (*sample && scdc_key_sample_fits(*sample, type, key->collation))
	{
		key->schemas = schemas;
		key->number = number;
	}
}

static void
find_fixed_columns(ScdcRowSchema *row_schema)
{
	TupleDesc	desc = row_schema->schema->image_desc;
	int			offset = 0;

	for (int i = 0; i < row_schema->schema->ncolumns; i++)
		row_schema->has_dropped = row_schema->has_dropped || row_schema->schema->columns[i].dropped;
	row_schema->fixed_offset = palloc(Max(desc->natts, 1) * sizeof(int));
	for (int i = 0; i < desc->natts && TupleDescAttr(desc, i)->attlen > 0; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		offset = att_align_nominal(offset, att->attalign);
		row_schema->fixed_offset[i] = offset;
		row_schema->nfixed++;
		offset += att->attlen;
	}
}

static void
find_fixed_keys(ScdcRowSchema *row_schema)
{
	row_schema->has_fixed_keys = row_schema->nkeys > 0;
	for (int i = 0; i < row_schema->nkeys; i++)
	{
		const ScdcKeyColumn *key = &row_schema->keys[i];

		if (key->image_attno >= row_schema->nfixed || OidIsValid(key->input_type) ||
			(key->kind != SCDC_KEY_DATUM && key->kind != SCDC_KEY_FIXED))
		{
			row_schema->has_fixed_keys = false;
			return;
		}
		row_schema->fixed_keys_end = Max(row_schema->fixed_keys_end, row_schema->fixed_offset[key->image_attno] + key->typlen);
	}
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

	find_fixed_columns(result);
	result->keys = palloc(Max(stream->nidentity, 1) * sizeof(ScdcKeyColumn));
	for (int i = 0; i < stream->nidentity; i++)
	{
		AttrNumber	attnum = stream->identity[i];
		const ScdcColumn *column;

		/* with one of its columns, or the unique index, the identity is gone */
		if (attnum > result->schema->ncolumns)
			return result;
		column = &result->schema->columns[attnum - 1];
		if (column->dropped || !column->identity || !key_column_init(&result->keys[i], column, schemas->context))
			return result;
		result->keys[i].owner = schemas->owner;
		if (OidIsValid(result->keys[i].input_type))
			result->has_parsed_keys = true;
		if (result->keys[i].kind == SCDC_KEY_OPERATOR && !result->keys[i].has_hash)
			find_sample(schemas, &result->keys[i], i,
						OidIsValid(result->keys[i].input_type) ? result->keys[i].input_type : column->raw_type);
	}
	result->nkeys = stream->nidentity;
	find_fixed_keys(result);
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

/*
 * Where the columns of a fixed length begin in an image, if they stand at
 * their offsets there and all of them are inside; 0 otherwise.  The bytes are not aligned.
 */
static inline Size
fixed_columns_start(const ScdcRowSchema *row_schema, ScdcBytes image)
{
	uint16		infomask;
	uint8		hoff;
	int			last = row_schema->nfixed - 1;

	if (image.len < SizeofHeapTupleHeader - IMAGE_OFFSET || last < 0)
		return 0;
	memcpy(&infomask, image.data + offsetof(HeapTupleHeaderData, t_infomask) - IMAGE_OFFSET, sizeof(infomask));
	memcpy(&hoff, image.data + offsetof(HeapTupleHeaderData, t_hoff) - IMAGE_OFFSET, sizeof(hoff));
	if ((infomask & HEAP_HASNULL) != 0 || hoff < SizeofHeapTupleHeader)
		return 0;
	if (hoff - IMAGE_OFFSET + (Size) row_schema->fixed_offset[last] +
		TupleDescAttr(row_schema->schema->image_desc, last)->attlen > image.len)
		return 0;
	return hoff - IMAGE_OFFSET;
}

/* What is compared of a key column: the stored datum, or what its text means. */
static Datum
key_datum(ScdcKeyColumn *key, Datum stored)
{
	char	   *string;

	if (!OidIsValid(key->input_type))
		return stored;
	string = TextDatumGetCString(stored);
	if (key->old_text)
		string = scdc_old_text_convert(key->old_text, string);
	return scdc_stored_text_input(&key->input, string, key->input_param, -1, key->owner);
}

/* The value's bytes; *copied is what to free, or NULL. */
static const char *
varlena_bytes(Datum value, Size *len, struct varlena **copied)
{
	struct varlena *v = (struct varlena *) DatumGetPointer(value);

	*copied = NULL;
	if (VARATT_IS_EXTENDED(v) && !VARATT_IS_SHORT(v))
		v = *copied = detoast_attr(v);
	*len = VARSIZE_ANY_EXHDR(v);
	return VARDATA_ANY(v);
}

static bool
same_varlena(Datum a, Datum b)
{
	Size		alen;
	Size		blen;
	struct varlena *acopy;
	struct varlena *bcopy;
	const char *abytes = varlena_bytes(a, &alen, &acopy);
	const char *bbytes = varlena_bytes(b, &blen, &bcopy);
	bool		same = alen == blen && memcmp(abytes, bbytes, alen) == 0;

	if (acopy)
		pfree(acopy);
	if (bcopy)
		pfree(bcopy);
	return same;
}

static inline bool
same_key_datum(ScdcKeyColumn *key, Datum a, bool a_isnull, Datum b, bool b_isnull)
{
	if (a_isnull || b_isnull)
		return a_isnull && b_isnull;
	switch (key->kind)
	{
		case SCDC_KEY_DATUM:
			return a == b;
		case SCDC_KEY_FIXED:
			Assert(DatumGetPointer(a) != NULL && DatumGetPointer(b) != NULL);
			return memcmp(DatumGetPointer(a), DatumGetPointer(b), key->typlen) == 0;
		case SCDC_KEY_VARLENA:
			return same_varlena(a, b);
		case SCDC_KEY_OPERATOR:
			break;
	}
	return DatumGetBool(FunctionCall2Coll(&key->equal, key->collation, a, b));
}

static uint32
hash_varlena(Datum value)
{
	Size		len;
	struct varlena *copy;
	const char *bytes = varlena_bytes(value, &len, &copy);
	uint32		hash = hash_bytes((const unsigned char *) bytes, len);

	if (copy)
		pfree(copy);
	return hash;
}

static void
sample_row(ScdcRowSchemas *schemas, ScdcRowView *view)
{
	ScdcRowSchema *schema = view->schema;

	scdc_row_view_split(view);
	for (int i = 0; i < schema->nkeys; i++)
	{
		ScdcKeyColumn *key = &schema->keys[i];

		if (key->schemas && !view->isnull[key->image_attno])
			scdc_key_sample_add(schemas->samples[i], key_datum(key, view->values[key->image_attno]));
	}
}

/* One more scan of the log, for the keys that need it. */
static void
take_samples(ScdcRowSchemas *schemas)
{
	MemoryContext cxt = AllocSetContextCreate(schemas->context, "streamcdc key sampling", ALLOCSET_DEFAULT_SIZES);
	MemoryContext row_cxt = AllocSetContextCreate(cxt, "streamcdc row", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	ScdcLogScan *scan = scdc_changelog_scan_begin(schemas->stream->stream_id, schemas->first, schemas->snapshot);
	ScdcRowView view;
	ScdcBlockInfo info;
	ScdcEvent	event;
	const ScdcVersion *v;

	scdc_row_view_init(&view);
	while (scdc_changelog_scan_next(scan, &info) && info.first_version <= schemas->last)
	{
		ScdcRowSchema *schema = info.schema_number != 0 ? scdc_row_schema(schemas, info.schema_number) : NULL;

		if (schema == NULL || schema->nkeys == 0)
			continue;
		scdc_changelog_scan_open(scan, true);
		while (scdc_changelog_scan_event(scan, &event, &v))
		{
			ScdcBytes	image = event.new_image.data ? event.new_image : event.old_image;

			CHECK_FOR_INTERRUPTS();
			if (image.data == NULL || v->version < schemas->first || v->version > schemas->last)
				continue;
			scdc_row_view_set(&view, schema, image);
			MemoryContextSwitchTo(row_cxt);
			sample_row(schemas, &view);
			MemoryContextSwitchTo(cxt);
			MemoryContextReset(row_cxt);
		}
	}
	scdc_changelog_scan_end(scan);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);

	for (int i = 0; i < schemas->stream->nidentity; i++)
		if (schemas->samples[i])
			scdc_key_sample_finish(schemas->samples[i]);
	schemas->sampled = true;
}

static uint32
hash_by_sample(ScdcKeyColumn *key, Datum value)
{
	if (!key->schemas->sampled)
		take_samples(key->schemas);
	return scdc_key_sample_hash(key->schemas->samples[key->number], value);
}

static inline uint32
hash_key_datum(ScdcKeyColumn *key, Datum value)
{
	switch (key->kind)
	{
		case SCDC_KEY_DATUM:
			return murmurhash32((uint32) value ^ murmurhash32((uint32) ((uint64) value >> 32)));
		case SCDC_KEY_FIXED:
			return hash_bytes((const unsigned char *) DatumGetPointer(value), key->typlen);
		case SCDC_KEY_VARLENA:
			return hash_varlena(value);
		case SCDC_KEY_OPERATOR:
			break;
	}
	if (key->has_hash)
		return DatumGetUInt32(FunctionCall1Coll(&key->hash, key->collation, value));
	/* (0: a record with a column that can be hashed and one that can be sorted, and the like: slow, but right) */
	return key->schemas ? hash_by_sample(key, value) : 0;
}

static bool
same_fixed_keys(const ScdcRowSchema *schema, const char *a, const char *b)
{
	for (int i = 0; i < schema->nkeys; i++)
	{
		const ScdcKeyColumn *key = &schema->keys[i];
		int			offset = schema->fixed_offset[key->image_attno];

		if (memcmp(a + offset, b + offset, key->typlen) != 0)
			return false;
	}
	return true;
}

/*
 * Can a key column be compared across two schemas?  If not, every row was
 * recorded when the table was altered, as one that takes another identity.
 */
static inline bool
same_operator(const ScdcKeyColumn *a, const ScdcKeyColumn *b)
{
	return (a->type == b->type && a->collation == b->collation) ||
		scdc_compares_alike(a->type, a->collation, b->type, b->collation);
}

bool
scdc_row_view_same_identity(ScdcRowView *a, ScdcRowView *b)
{
	ScdcRowSchema *schema = a->schema;

	if (schema->nkeys != b->schema->nkeys)
		return false;
	if (schema->has_fixed_keys && schema == b->schema)
	{
		Size		astart = fixed_columns_start(schema, a->image);
		Size		bstart = fixed_columns_start(schema, b->image);

		if (astart != 0 && bstart != 0)
			return same_fixed_keys(schema, a->image.data + astart, b->image.data + bstart);
	}
	scdc_row_view_split(a);
	scdc_row_view_split(b);
	for (int i = 0; i < schema->nkeys; i++)
	{
		ScdcKeyColumn *key = &schema->keys[i];
		ScdcKeyColumn *other = &b->schema->keys[i];
		int			n = key->image_attno;
		int			m = other->image_attno;
		Datum		x = a->isnull[n] ? (Datum) 0 : key_datum(key, a->values[n]);
		Datum		y = b->isnull[m] ? (Datum) 0 : key_datum(other, b->values[m]);

		if (key != other && !same_operator(key, other))
			return false;
		if (!same_key_datum(key, x, a->isnull[n], y, b->isnull[m]))
			return false;
	}
	return true;
}

/* Are values of a column, which neither schema has dropped, stored alike? */
static bool
same_storage(const ScdcColumn *x, const ScdcColumn *y)
{
	return x->storage == y->storage && x->raw_type == y->raw_type &&
		x->attlen == y->attlen && x->attbyval == y->attbyval;
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
		if (!x->dropped && (!same_storage(x, y) || x->image_attno != y->image_attno))
			return false;
	}
	return true;
}

/*
 * Do two images of one schema differ in a column that can be compared where
 * it stands?  Most updates that change something are told so, without the
 * rows being split.
 */
static bool
differ_in_fixed_column(const ScdcRowSchema *row_schema, ScdcBytes a, ScdcBytes b)
{
	TupleDesc	desc = row_schema->schema->image_desc;
	Size		astart;
	Size		bstart;

	if (row_schema->has_dropped)
		return false;
	astart = fixed_columns_start(row_schema, a);
	bstart = fixed_columns_start(row_schema, b);
	if (astart == 0 || bstart == 0)
		return false;
	for (int i = 0; i < row_schema->nfixed; i++)
	{
		int			offset = row_schema->fixed_offset[i];

		if (memcmp(a.data + astart + offset, b.data + bstart + offset, TupleDescAttr(desc, i)->attlen) != 0)
			return true;
	}
	return false;
}

/* Both split.  The column is stored alike in both. */
static bool
same_value(const ScdcRowView *a, const ScdcColumn *x, const ScdcRowView *b, const ScdcColumn *y)
{
	int			m = x->image_attno;
	int			n = y->image_attno;
	Form_pg_attribute att = TupleDescAttr(a->schema->schema->image_desc, m);

	if (a->isnull[m] || b->isnull[n])
		return a->isnull[m] == b->isnull[n];
	return datum_image_eq(a->values[m], b->values[n], att->attbyval, att->attlen);
}

bool
scdc_row_view_same_image(ScdcRowView *a, ScdcRowView *b)
{
	const ScdcSchema *schema = a->schema->schema;

	if (a->schema == b->schema)
	{
		if (a->image.len == b->image.len && memcmp(a->image.data, b->image.data, a->image.len) == 0)
			return true;
		if (differ_in_fixed_column(a->schema, a->image, b->image))
			return false;
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

		if (!column->dropped && !same_value(a, column, b, &b->schema->schema->columns[i]))
			return false;
	}
	return true;
}

bool
scdc_row_view_same_row(ScdcRowView *a, ScdcRowView *b)
{
	const ScdcSchema *s = a->schema->schema;
	const ScdcSchema *t = b->schema->schema;

	if (s == t)
		return scdc_row_view_same_image(a, b);
	scdc_row_view_split(a);
	scdc_row_view_split(b);
	for (int i = 0; i < Min(s->ncolumns, t->ncolumns); i++)
	{
		const ScdcColumn *x = &s->columns[i];
		const ScdcColumn *y = &t->columns[i];

		/* the text of a value whose type was altered is another one */
		if (!x->dropped && !y->dropped && same_storage(x, y) && scdc_column_same_parts(x, y) &&
			!same_value(a, x, b, y))
			return false;
	}
	return true;
}

/* ---------------------------------------------------------------------
 * rows kept
 *
 * The image is kept where it would be in a tuple, so that identity columns
 * can be looked up without splitting the row; in the place of the beginning
 * of the tuple's header, which nobody looks at for that, is our own.
 * ---------------------------------------------------------------------
 */

#define ROW_TUPLE_OFFSET	(MAXALIGN(sizeof(ScdcRow)) - MAXALIGN_DOWN(IMAGE_OFFSET))
#define ROW_IMAGE_START		(ROW_TUPLE_OFFSET + IMAGE_OFFSET)

StaticAssertDecl(ROW_IMAGE_START >= sizeof(ScdcRow), "the image in a row lies upon its header");

void
scdc_row_buffer_init(ScdcRowBuffer *buffer)
{
	memset(buffer, 0, sizeof(*buffer));
	buffer->context = CurrentMemoryContext;
}

static void
buffer_enlarge(ScdcRowBuffer *buffer, Size size)
{
	Size		room = Max(size * 2, 1024);
	char	   *memory;

	if (buffer->room >= size)
		return;
	memory = MemoryContextAllocHuge(buffer->context, room);
	if (buffer->row)
	{
		memcpy(memory, buffer->row, buffer->room);
		pfree(buffer->row);
	}
	buffer->row = (ScdcRow *) memory;
	buffer->room = room;
}

ScdcBytes
scdc_row_image(const ScdcRow *row)
{
	ScdcBytes	image = {(const char *) row + ROW_IMAGE_START, row->image_len};

	return image;
}

static inline Datum
stored_key(const ScdcRow *row, const ScdcKeyColumn *key, bool *isnull)
{
	HeapTupleData tuple;

	tuple.t_data = (HeapTupleHeader) ((char *) unconstify(ScdcRow *, row) + ROW_TUPLE_OFFSET);
	tuple.t_len = IMAGE_OFFSET + row->image_len;
	return heap_getattr(&tuple, key->image_attno + 1, row->schema->schema->image_desc, isnull);
}

static inline Datum
row_key(const ScdcRow *row, int i, bool *isnull)
{
	const ScdcKeyColumn *key = &row->schema->keys[i];
	const char *keys;
	uint32		offset;

	if (!OidIsValid(key->input_type))
		return stored_key(row, key, isnull);
	keys = (const char *) row + row->keys_offset;
	offset = ((const uint32 *) keys)[i];
	*isnull = offset == 0;
	if (*isnull)
		return (Datum) 0;
	return key->typbyval ? *(const Datum *) (keys + offset) : PointerGetDatum(keys + offset);
}

/* Appends the parsed values: for each identity column an offset from there, 0 for NULL or one not parsed, then they. */
static void
append_parsed_keys(ScdcRowBuffer *buffer, ScdcRowSchema *schema)
{
	Size		start = MAXALIGN(buffer->row->size);
	Size		end = start + MAXALIGN(schema->nkeys * sizeof(uint32));

	buffer_enlarge(buffer, end);
	memset((char *) buffer->row + start, 0, end - start);
	for (int i = 0; i < schema->nkeys; i++)
	{
		ScdcKeyColumn *key = &schema->keys[i];
		bool		isnull;
		Datum		value;
		Size		len;

		if (!OidIsValid(key->input_type))
			continue;
		value = stored_key(buffer->row, key, &isnull);
		if (isnull)
			continue;
		value = key_datum(key, value);
		if (!key->typbyval && key->typlen == -1)
			value = PointerGetDatum(PG_DETOAST_DATUM(value));
		len = key->typbyval ? sizeof(Datum) : datumGetSize(value, false, key->typlen);
		buffer_enlarge(buffer, end + MAXALIGN(len));
		if (key->typbyval)
			*(Datum *) ((char *) buffer->row + end) = value;
		else
			memcpy((char *) buffer->row + end, DatumGetPointer(value), len);
		((uint32 *) ((char *) buffer->row + start))[i] = (uint32) (end - start);
		end += MAXALIGN(len);
	}
	buffer->row->keys_offset = (uint32) start;
	buffer->row->size = (uint32) end;
}

ScdcRow *
scdc_row_make(ScdcRowBuffer *buffer, ScdcRowSchema *schema, ScdcBytes image)
{
	ScdcRow    *row;
	uint32		hash = 0;

	scdc_image_check(schema->schema, image);
	buffer_enlarge(buffer, ROW_IMAGE_START + image.len);
	row = buffer->row;
	row->schema = schema;
	row->size = ROW_IMAGE_START + image.len;
	row->image_len = image.len;
	row->keys_offset = 0;
	memcpy((char *) row + ROW_IMAGE_START, image.data, image.len);

	if (schema->has_parsed_keys && schema->nkeys > 0)
	{
		append_parsed_keys(buffer, schema);
		row = buffer->row;
	}
	for (int i = 0; i < schema->nkeys; i++)
	{
		bool		isnull;
		Datum		value = row_key(row, i, &isnull);

		hash = hash_combine(hash, isnull ? 0 : hash_key_datum(&schema->keys[i], value));
	}
	row->hash = hash;
	return row;
}

bool
scdc_row_identity_shared(const ScdcRowSchema *schema, ScdcBytes image, uint32 shared)
{
	Size		start = schema->has_fixed_keys ? fixed_columns_start(schema, image) : 0;

	/* the columns stand where they do in the other image, too, since the headers are equal */
	return start != 0 && shared >= start + schema->fixed_keys_end;
}

uint32
scdc_row_identity_hash(ScdcRowBuffer *buffer, ScdcRowSchema *schema, ScdcBytes image)
{
	Size		start = schema->has_fixed_keys ? fixed_columns_start(schema, image) : 0;
	uint32		hash = 0;

	if (start == 0)
		return scdc_row_make(buffer, schema, image)->hash;
	for (int i = 0; i < schema->nkeys; i++)
	{
		ScdcKeyColumn *key = &schema->keys[i];
		const char *bytes = image.data + start + schema->fixed_offset[key->image_attno];
		Datum		value = PointerGetDatum(bytes);

		if (key->typbyval)
		{
			char		aligned[sizeof(Datum)] pg_attribute_aligned(MAXIMUM_ALIGNOF);

			memcpy(aligned, bytes, key->typlen);
			value = fetch_att(aligned, true, key->typlen);
		}
		hash = hash_combine(hash, hash_key_datum(key, value));
	}
	return hash;
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
		bool		a_isnull;
		bool		b_isnull;
		Datum		x;
		Datum		y;

		if (schema != b->schema && !same_operator(key, &b->schema->keys[i]))
			return false;
		x = row_key(a, i, &a_isnull);
		y = row_key(b, i, &b_isnull);
		if (!same_key_datum(key, x, a_isnull, y, b_isnull))
			return false;
	}
	return true;
}
