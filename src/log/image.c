/*-------------------------------------------------------------------------
 *
 * image.c
 *	  Row images: made from captured tuples, split for readers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "attempt.h"
#include "log/image.h"
#include "owner.h"

/* An image starts at t_infomask2: everything before it differs from read to read. */
#define IMAGE_OFFSET	offsetof(HeapTupleHeaderData, t_infomask2)

static void
check_size(Size size)
{
	if (size > SCDC_IMAGE_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("row of %zu bytes is too large to be captured", size),
				 errdetail("Row images up to %d bytes are stored.", SCDC_IMAGE_MAX)));
}

static ScdcBytes
image_of_tuple(HeapTuple tuple)
{
	HeapTupleHeader h = tuple->t_data;
	ScdcBytes	image;

	/* hint bits and update chains are no part of the row */
	h->t_infomask &= HEAP_HASNULL | HEAP_HASVARWIDTH;
	h->t_infomask2 &= HEAP_NATTS_MASK;
	image.data = (char *) h + IMAGE_OFFSET;
	image.len = tuple->t_len - IMAGE_OFFSET;
	check_size(image.len);
	return image;
}

/* to_jsonb(value) as text; calls the SQL function so that it is exactly that. */
char *
scdc_jsonb_form(Datum value, Oid type)
{
	FmgrInfo	flinfo;
	Node	   *arg = (Node *) makeNullConst(type, -1, InvalidOid);
	Jsonb	   *jb;

	fmgr_info(F_TO_JSONB, &flinfo);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_TO_JSONB, JSONBOID, list_make1(arg), InvalidOid, InvalidOid,
											 COERCE_EXPLICIT_CALL), &flinfo);
	jb = DatumGetJsonbP(FunctionCall1(&flinfo, value));
	return JsonbToCString(NULL, &jb->root, VARSIZE(jb));
}

typedef struct JsonText
{
	Datum		value;
	Oid			type;
	Oid			owner;
	Datum		result;
} JsonText;

static void
make_json_text(void *arg)
{
	JsonText   *j = arg;
	ScdcOwnerScope scope;
	bool		push = !ActiveSnapshotSet();	/* decoding has none, and SQL asks for one */

	scdc_owner_begin(&scope, j->owner);
	if (push)
		PushActiveSnapshot(GetTransactionSnapshot());
	j->result = CStringGetTextDatum(scdc_jsonb_form(j->value, j->type));
	if (push)
		PopActiveSnapshot();
	scdc_owner_end(&scope);
}

/*
 * The same for the log, by the rights of the table's owner, as a cast to json
 * is a function of some user.  False if this value has no jsonb form (json's
 * \u0000 inside a composite, a cast that raises): a user's value must not stop
 * the capture of the whole database, so readers of the jsonb form get the
 * error instead.
 */
static bool
json_text(Datum value, Oid type, Oid owner, Datum *result)
{
	JsonText	j = {.value = value,.type = type,.owner = owner};
	ErrorData  *e = scdc_attempt(make_json_text, &j);

	*result = e ? (Datum) 0 : j.result;
	if (e == NULL)
		return true;
	if (ERRCODE_TO_CATEGORY(e->sqlerrcode) != ERRCODE_DATA_EXCEPTION)
		ReThrowError(e);
	FreeErrorData(e);
	return false;
}

char *
scdc_output_form(Datum value, Oid type)
{
	Oid			outfunc;
	bool		isvarlena;

	getTypeOutputInfo(type, &outfunc, &isvarlena);
	if (isvarlena)
		value = PointerGetDatum(PG_DETOAST_DATUM(value));
	return OidOutputFunctionCall(outfunc, value);
}

/* An unchanged out-of-line value of an update: only the old tuple has it. */
static bool
is_unchanged_toast(Form_pg_attribute att, Datum value)
{
	return att->attlen == -1 && VARATT_IS_EXTERNAL_ONDISK(DatumGetPointer(value));
}

/* How much of an image a value will take, known before it is fetched. */
static Size
stored_size(Datum value)
{
	struct varlena *v = (struct varlena *) DatumGetPointer(value);

	if (VARATT_IS_EXTERNAL_ONDISK(v))
	{
		struct varatt_external pointer;

		VARATT_EXTERNAL_GET_POINTER(pointer, v);
		return VARATT_EXTERNAL_GET_EXTSIZE(pointer);
	}
	if (VARATT_IS_EXTERNAL_INDIRECT(v))
	{
		struct varatt_indirect redirect;

		VARATT_EXTERNAL_GET_POINTER(redirect, v);
		return stored_size(PointerGetDatum(redirect.pointer));
	}
	return VARSIZE_ANY(v);
}

AttrMap *
scdc_image_map(Relation partition, Relation root)
{
	TupleDesc	from = RelationGetDescr(partition),
				to = RelationGetDescr(root);
	AttrMap    *map;
	bool		same = from->natts == to->natts;

	if (RelationGetRelid(partition) == RelationGetRelid(root))
		return NULL;
	map = build_attrmap_by_name(from, to);

	/* (the server's build_attrmap_by_name_if_req also asks for no added columns, which make no difference here) */
	for (int i = 0; i < to->natts && same; i++)
	{
		Form_pg_attribute a = TupleDescAttr(from, i),
					b = TupleDescAttr(to, i);

		if (map->attnums[i] == 0 && a->attisdropped)
			same = a->attlen == b->attlen && a->attalign == b->attalign;
		else
			same = map->attnums[i] == i + 1;
	}
	if (!same)
		return map;
	free_attrmap(map);
	return NULL;
}

ScdcBytes
scdc_image_make(const ScdcSchema *schema, Relation rel, const AttrMap *map, HeapTuple tuple, HeapTuple fallback,
				ScdcImageSource source)
{
	return scdc_image_make_of(schema, rel->rd_rel->relowner, RelationGetDescr(rel), map, tuple, fallback, source);
}

ScdcBytes
scdc_image_make_of(const ScdcSchema *schema, Oid owner, TupleDesc desc, const AttrMap *map, HeapTuple tuple,
				   HeapTuple fallback, ScdcImageSource source)
{
	Datum	   *values,
			   *ivalues,
			   *fvalues = NULL;
	bool	   *isnull,
			   *inull,
			   *fnull = NULL;
	ScdcBytes	image;
	Size		size = 0;		/* of the variable part; a row of a gigabyte must not be put together to find that it is too large */

	/* the common case: the tuple is its own image */
	if (map == NULL && schema->as_table && !HeapTupleHasExternal(tuple) &&
		HeapTupleHeaderGetNatts(tuple->t_data) == schema->ncolumns)
		return image_of_tuple(tuple);

	Assert(map ? map->maplen == schema->ncolumns : desc->natts == schema->ncolumns);
	values = palloc(sizeof(Datum) * desc->natts);
	isnull = palloc(sizeof(bool) * desc->natts);
	ivalues = palloc(sizeof(Datum) * schema->image_desc->natts);
	inull = palloc(sizeof(bool) * schema->image_desc->natts);

	/* fills in the defaults of columns added since the tuple was written */
	heap_deform_tuple(tuple, desc, values, isnull);

	for (int i = 0; i < schema->ncolumns; i++)
	{
		const ScdcColumn *c = &schema->columns[i];
		int			n = map ? map->attnums[i] - 1 : i;	/* -1: a column that is dropped, or was before rel was made */
		int			a = c->image_attno;
		Form_pg_attribute att;
		Datum		value;

		inull[a] = c->dropped || n < 0 || isnull[n];
		ivalues[a] = (Datum) 0;
		if (c->storage == SCDC_STORE_JSON)
		{
			inull[a + 1] = inull[a];
			ivalues[a + 1] = (Datum) 0;
		}
		if (inull[a])
			continue;
		att = TupleDescAttr(desc, n);
		value = values[n];

		if (source != SCDC_IMAGE_FROM_TABLE && is_unchanged_toast(att, value))
		{
			if (fallback && fvalues == NULL)
			{
				fvalues = palloc(sizeof(Datum) * desc->natts);
				fnull = palloc(sizeof(bool) * desc->natts);
				heap_deform_tuple(fallback, desc, fvalues, fnull);
			}
			if (fvalues == NULL || fnull[n] || is_unchanged_toast(att, fvalues[n]))
			{
				if (source == SCDC_IMAGE_FROM_WAL_INCOMPLETE)
				{
					inull[a] = true;
					if (c->storage == SCDC_STORE_JSON)
						inull[a + 1] = true;
					continue;
				}
				elog(ERROR, "value of column \"%s\" is not in WAL", c->name);
			}
			value = fvalues[n];
		}
		if (c->storage == SCDC_STORE_RAW)
		{
			if (att->attlen == -1)
				check_size(size += stored_size(value));
			/* what is stored must not point anywhere */
			if (att->attlen == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(value)))
				value = PointerGetDatum(detoast_external_attr((struct varlena *) DatumGetPointer(value)));
			ivalues[a] = value;
		}
		else
		{
			ivalues[a] = CStringGetTextDatum(scdc_output_form(value, c->type));
			if (c->storage == SCDC_STORE_JSON)
				inull[a + 1] = !json_text(value, c->type, owner, &ivalues[a + 1]);
			check_size(size += VARSIZE_ANY(DatumGetPointer(ivalues[a])));
			if (c->storage == SCDC_STORE_JSON && !inull[a + 1])
				check_size(size += VARSIZE_ANY(DatumGetPointer(ivalues[a + 1])));
		}
	}
	image = image_of_tuple(heap_form_tuple(schema->image_desc, ivalues, inull));
	pfree(values);
	pfree(isnull);
	pfree(ivalues);
	pfree(inull);
	return image;
}

void
scdc_image_check(const ScdcSchema *schema, ScdcBytes image)
{
	uint16		infomask2;
	uint8		hoff;

	if (image.len < SizeofHeapTupleHeader - IMAGE_OFFSET)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("row image in the change log is damaged")));
	memcpy(&infomask2, image.data, sizeof(infomask2));
	memcpy(&hoff, image.data + offsetof(HeapTupleHeaderData, t_hoff) - IMAGE_OFFSET, sizeof(hoff));
	if ((infomask2 & HEAP_NATTS_MASK) != schema->image_desc->natts || hoff > IMAGE_OFFSET + image.len)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("row image in the change log does not fit schema %d of stream " INT64_FORMAT,
						schema->number, schema->stream_id)));
}

void
scdc_image_deform(const ScdcSchema *schema, ScdcBytes image, ScdcImageBuffer *buffer,
				  Datum *values, bool *isnull)
{
	HeapTupleData tuple;
	Size		size = IMAGE_OFFSET + image.len;

	scdc_image_check(schema, image);
	if (buffer->size < size)
	{
		Size		newsize = Max(size, (Size) 1024);

		if (buffer->data)
			pfree(buffer->data);
		buffer->data = NULL;
		buffer->size = 0;
		buffer->data = palloc(newsize);
		buffer->size = newsize;
	}
	memset(buffer->data, 0, IMAGE_OFFSET);
	memcpy(buffer->data + IMAGE_OFFSET, image.data, image.len);

	tuple.t_data = (HeapTupleHeader) buffer->data;
	tuple.t_len = size;
	tuple.t_tableOid = InvalidOid;
	ItemPointerSetInvalid(&tuple.t_self);
	heap_deform_tuple(&tuple, schema->image_desc, values, isnull);
}
