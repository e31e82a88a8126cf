/*-------------------------------------------------------------------------
 *
 * schema.c
 *	  Schema history: made from a relation, written to and read from
 *	  streamcdc.schemas.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/indexing.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "log/rows.h"
#include "log/schema.h"
#include "log/type_parts.h"

/* columns of streamcdc.schemas */
enum
{
	Anum_stream_id = 1,
	Anum_schema_number,
	Anum_attnum,
	Anum_column_id,
	Anum_column_name,
	Anum_dropped,
	Anum_identity,
	Anum_storage,
	Anum_type_oid,
	Anum_type_mod,
	Anum_type_name,
	Anum_collation,
	Anum_raw_type,
	Anum_attlen,
	Anum_attbyval,
	Anum_attalign,
	Anum_type_parts,
	Natts_schemas = Anum_type_parts
};

/*
 * Is a datum of this type good for ever?  Types of initdb are, unless their
 * value is the OID of something that may be dropped.
 */
static bool
type_is_raw(Oid type)
{
	Oid			elem = get_element_type(type);

	if (OidIsValid(elem))
		return type < FirstNormalObjectId && type_is_raw(getBaseType(elem));
	if (type >= FirstNormalObjectId)
		return false;
	switch (type)
	{
		case REGPROCOID:
		case REGPROCEDUREOID:
		case REGOPEROID:
		case REGOPERATOROID:
		case REGCLASSOID:
		case REGCOLLATIONOID:
		case REGTYPEOID:
		case REGCONFIGOID:
		case REGDICTIONARYOID:
		case REGROLEOID:
		case REGNAMESPACEOID:
		case ACLITEMOID:
			return false;
	}
	switch (get_typtype(type))
	{
		case TYPTYPE_BASE:
		case TYPTYPE_RANGE:
		case TYPTYPE_MULTIRANGE:
			return true;
	}
	return false;				/* composite */
}

/* Identities of these types are equal if the numbers are. */
static bool
type_is_integer(Oid type)
{
	return type == INT2OID || type == INT4OID || type == INT8OID;
}

static bool
is_deterministic(Oid collation)
{
	return !OidIsValid(collation) || get_collation_isdeterministic(collation);
}

bool
scdc_compares_alike(Oid type, Oid collation, Oid other_type, Oid other_collation)
{
	if (type_is_integer(type) && type_is_integer(other_type))
		return true;
	if (type != other_type)
	{
		Oid			equal,
					left,
					right;

		equal = lookup_type_cache(type, TYPECACHE_EQ_OPR)->eq_opr;
		if (!OidIsValid(equal) || equal != lookup_type_cache(other_type, TYPECACHE_EQ_OPR)->eq_opr)
			return false;
		/* the operator of all arrays, records, enums or ranges goes by what these are made of */
		op_input_types(equal, &left, &right);
		if (IsPolymorphicType(left) || left == RECORDOID)
			return false;
	}
	return collation == other_collation || (is_deterministic(collation) && is_deterministic(other_collation));
}

/*
 * Is to_jsonb() of this (base) type more than its text as a string?  The
 * same questions as in the server's json_categorize_type.
 */
static bool
type_is_json_structured(Oid type)
{
	Oid			castfunc;
	CoercionPathType path;

	if (OidIsValid(get_element_type(type)) || type_is_rowtype(type))
		return true;
	if (type < FirstNormalObjectId)
		return false;
	path = find_coercion_pathway(JSONOID, type, COERCION_EXPLICIT, &castfunc);
	return path == COERCION_PATH_FUNC && OidIsValid(castfunc);
}

/* Fills image_desc, image_attno and as_table from the columns. */
static void
layout(ScdcSchema *schema)
{
	int			n = 0;

	schema->as_table = true;
	for (int i = 0; i < schema->ncolumns; i++)
	{
		n += schema->columns[i].storage == SCDC_STORE_JSON ? 2 : 1;
		if (schema->columns[i].storage != SCDC_STORE_RAW)
			schema->as_table = false;
	}

	schema->image_desc = CreateTemplateTupleDesc(n);
	n = 0;
	for (int i = 0; i < schema->ncolumns; i++)
	{
		ScdcColumn *c = &schema->columns[i];
		int			attrs = c->storage == SCDC_STORE_JSON ? 2 : 1;

		c->image_attno = n;
		while (attrs-- > 0)
		{
			Form_pg_attribute att = TupleDescAttr(schema->image_desc, n++);
			bool		raw = c->storage == SCDC_STORE_RAW;

			memset(att, 0, ATTRIBUTE_FIXED_PART_SIZE);
			namestrcpy(&att->attname, c->name);
			att->attnum = n;
			att->atttypid = raw ? c->raw_type : TEXTOID;
			att->attlen = raw ? c->attlen : -1;
			att->attbyval = raw ? c->attbyval : false;
			att->attalign = raw ? c->attalign : TYPALIGN_INT;
			att->attstorage = TYPSTORAGE_PLAIN;
			att->atttypmod = -1;
			att->attcacheoff = -1;
			att->attcollation = c->collation;
			att->attislocal = true;
		}
	}
}

static Oid
equality_of(Oid opclass)
{
	Oid			type = get_opclass_input_type(opclass);

	return get_opfamily_member(get_opclass_family(opclass), type, type, BTEqualStrategyNumber);
}

/*
 * The default operator class of a type, which values of it have in an index
 * of the given class: its own, or that of the type that the class is for.
 * (GetDefaultOpClass looks up other things in the middle of its scan, which
 * cannot be done when a transaction is decoded that still runs.)
 */
static Oid
default_opclass(Oid type, Oid opclass)
{
	Relation	rel = table_open(OperatorClassRelationId, AccessShareLock);
	Oid			input = get_opclass_input_type(opclass);
	Oid			own = InvalidOid;
	Oid			general = InvalidOid;
	ScanKeyData key[1];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key[0], Anum_pg_opclass_opcmethod, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(BTREE_AM_OID));
	scan = systable_beginscan(rel, OpclassAmNameNspIndexId, true, NULL, 1, key);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Form_pg_opclass class = (Form_pg_opclass) GETSTRUCT(tuple);

		if (class->opcdefault && class->opcintype == type)
			own = class->oid;
		else if (class->opcdefault && class->opcintype == input)
			general = class->oid;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return OidIsValid(own) ? own : general;
}

/*
 * Readers compare by the column's own operator and collation.  Are rows that
 * are distinct to the index distinct to them too?
 */
static bool
tells_rows_apart(HeapTuple tuple, int i)
{
	Form_pg_index index = (Form_pg_index) GETSTRUCT(tuple);
	bool		isnull;
	Oid			opclass = ((oidvector *) DatumGetPointer(SysCacheGetAttr(INDEXRELID, tuple, Anum_pg_index_indclass, &isnull)))->values[i];
	Oid			index_collation = ((oidvector *) DatumGetPointer(SysCacheGetAttr(INDEXRELID, tuple, Anum_pg_index_indcollation, &isnull)))->values[i];
	Oid			type,
				collation,
				own_class;
	int32		typmod;

	get_atttypetypmodcoll(index->indrelid, index->indkey.values[i], &type, &typmod, &collation);
	own_class = default_opclass(getBaseType(type), opclass);
	if (!OidIsValid(own_class) || (opclass != own_class && equality_of(opclass) != equality_of(own_class)))
		return false;
	/* what a deterministic collation calls equal, every one does */
	return index_collation == collation || is_deterministic(collation);
}

bool
scdc_index_identity(Oid indexoid, AttrNumber *columns, int *ncolumns)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(indexoid));
	Form_pg_index index;
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	index = (Form_pg_index) GETSTRUCT(tuple);
	result = index->indisunique && index->indisvalid && index->indislive &&
		heap_attisnull(tuple, Anum_pg_index_indpred, NULL) &&
		heap_attisnull(tuple, Anum_pg_index_indexprs, NULL);
	*ncolumns = index->indnkeyatts;
	for (int i = 0; i < index->indnkeyatts; i++)
	{
		columns[i] = index->indkey.values[i];
		if (columns[i] <= 0)
			result = false;
		result = result && tells_rows_apart(tuple, i);
	}
	ReleaseSysCache(tuple);
	return result;
}

/* (rd_pkindex leaves out a deferrable one.) */
Oid
scdc_primary_key(Relation rel)
{
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *lc;
	Oid			result = InvalidOid;

	foreach(lc, indexes)
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(lc)));

		if (!HeapTupleIsValid(tuple))
			continue;
		if (((Form_pg_index) GETSTRUCT(tuple))->indisprimary)
			result = lfirst_oid(lc);
		ReleaseSysCache(tuple);
	}
	list_free(indexes);
	return result;
}

/* The first of the indexes with exactly these key columns. */
static Oid
find_identity_index(List *indexes, const AttrNumber *columns, int ncolumns)
{
	ListCell   *lc;

	foreach(lc, indexes)
	{
		AttrNumber	key[INDEX_MAX_KEYS];
		int			nkey;
		int			found = 0;

		if (!scdc_index_identity(lfirst_oid(lc), key, &nkey) || nkey != ncolumns)
			continue;
		for (int i = 0; i < nkey; i++)
			for (int j = 0; j < ncolumns; j++)
				if (key[i] == columns[j])
					found++;
		if (found == ncolumns)
			return lfirst_oid(lc);
	}
	return InvalidOid;
}

Oid
scdc_identity_index(Relation rel, const AttrNumber *columns, int ncolumns)
{
	List	   *indexes = RelationGetIndexList(rel);
	Oid			result = find_identity_index(indexes, columns, ncolumns);

	list_free(indexes);
	return result;
}

bool
scdc_identity_holds(Oid relid, const AttrNumber *columns, int ncolumns)
{
	Relation	pg_index = table_open(IndexRelationId, AccessShareLock);
	ScanKeyData key[1];
	SysScanDesc scan;
	HeapTuple	tuple;
	List	   *indexes = NIL;
	bool		result;

	ScanKeyInit(&key[0], Anum_pg_index_indrelid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(pg_index, IndexIndrelidIndexId, true, NULL, 1, key);
	while ((tuple = systable_getnext(scan)) != NULL)
		indexes = lappend_oid(indexes, ((Form_pg_index) GETSTRUCT(tuple))->indexrelid);
	systable_endscan(scan);
	table_close(pg_index, AccessShareLock);
	result = OidIsValid(find_identity_index(indexes, columns, ncolumns));
	list_free(indexes);
	return result;
}

/* Marks the columns that identify a row, if there is an index that makes them do so. */
static void
mark_identity(ScdcSchema *schema, Relation rel, const AttrNumber *identity, int nidentity)
{
	if (nidentity == 0 || !OidIsValid(scdc_identity_index(rel, identity, nidentity)))
		return;
	for (int i = 0; i < nidentity; i++)
		if (identity[i] <= schema->ncolumns)
			schema->columns[identity[i] - 1].identity = true;
}

ScdcSchema *
scdc_schema_of_relation(Relation rel, int64 stream_id, const AttrNumber *identity, int nidentity)
{
	TupleDesc	desc = RelationGetDescr(rel);
	ScdcSchema *schema = palloc0(sizeof(ScdcSchema));

	schema->stream_id = stream_id;
	schema->ncolumns = desc->natts;
	schema->columns = palloc0(sizeof(ScdcColumn) * desc->natts);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		ScdcColumn *c = &schema->columns[i];

		c->attnum = att->attnum;
		c->name = pstrdup(NameStr(att->attname));
		c->dropped = att->attisdropped;
		c->attlen = att->attlen;
		c->attbyval = att->attbyval;
		c->attalign = att->attalign;
		c->typmod = att->atttypmod;
		c->collation = att->attcollation;
		c->storage = SCDC_STORE_RAW;
		if (c->dropped)
			c->type_name = pstrdup("");
		else
		{
			Oid			base = getBaseType(att->atttypid);

			c->type = att->atttypid;
			c->type_name = format_type_with_typemod(att->atttypid, att->atttypmod);
			if (type_is_raw(base))
				c->raw_type = base;
			else
			{
				c->storage = type_is_json_structured(base) ? SCDC_STORE_JSON : SCDC_STORE_TEXT;
				c->type_parts = scdc_type_parts(att->atttypid);
			}
		}

		/* a table never uses an attribute number twice, so it says which column this is */
		c->column_id = att->attnum;
	}
	mark_identity(schema, rel, identity, nidentity);
	layout(schema);
	return schema;
}

bool
scdc_schema_same_columns(const ScdcSchema *a, const ScdcSchema *b)
{
	if (a->ncolumns != b->ncolumns)
		return false;
	for (int i = 0; i < a->ncolumns; i++)
	{
		const ScdcColumn *x = &a->columns[i];
		const ScdcColumn *y = &b->columns[i];

		if (x->column_id != y->column_id || x->dropped != y->dropped)
			return false;
		if (x->dropped)
			continue;
		if (x->identity != y->identity || x->storage != y->storage || x->type != y->type || x->raw_type != y->raw_type ||
			x->typmod != y->typmod || x->collation != y->collation || strcmp(x->name, y->name) != 0)
			return false;
	}
	return true;
}

bool
scdc_column_same_parts(const ScdcColumn *a, const ScdcColumn *b)
{
	const char *x = a->type_parts;
	const char *y = b->type_parts;

	return x == NULL || y == NULL ? x == y : strcmp(x, y) == 0;
}

bool
scdc_schema_equal(const ScdcSchema *a, const ScdcSchema *b)
{
	if (!scdc_schema_same_columns(a, b))
		return false;
	for (int i = 0; i < a->ncolumns; i++)
		if (!scdc_column_same_parts(&a->columns[i], &b->columns[i]))
			return false;
	return true;
}

void
scdc_schema_write(const ScdcSchema *schema)
{
	Relation	rel = scdc_table_open(SCDC_SCHEMAS, RowExclusiveLock);

	/* a table without columns still needs a row, or its schema would not exist */
	for (int i = 0; i < Max(schema->ncolumns, 1); i++)
	{
		static const ScdcColumn none = {.name = "", .type_name = "", .storage = SCDC_STORE_RAW, .dropped = true, .attalign = TYPALIGN_CHAR};
		const ScdcColumn *c = schema->ncolumns > 0 ? &schema->columns[i] : &none;
		Datum		values[Natts_schemas];
		bool		isnull[Natts_schemas] = {0};
		NameData	name;

		namestrcpy(&name, c->name);
		values[Anum_stream_id - 1] = Int64GetDatum(schema->stream_id);
		values[Anum_schema_number - 1] = Int32GetDatum(schema->number);
		values[Anum_attnum - 1] = Int16GetDatum(c->attnum);
		values[Anum_column_id - 1] = Int32GetDatum(c->column_id);
		values[Anum_column_name - 1] = NameGetDatum(&name);
		values[Anum_dropped - 1] = BoolGetDatum(c->dropped);
		values[Anum_identity - 1] = BoolGetDatum(c->identity);
		values[Anum_storage - 1] = CharGetDatum(c->storage);
		values[Anum_type_oid - 1] = ObjectIdGetDatum(c->type);
		values[Anum_type_mod - 1] = Int32GetDatum(c->typmod);
		values[Anum_type_name - 1] = CStringGetTextDatum(c->type_name);
		values[Anum_collation - 1] = ObjectIdGetDatum(c->collation);
		values[Anum_raw_type - 1] = ObjectIdGetDatum(c->raw_type);
		values[Anum_attlen - 1] = Int16GetDatum(c->attlen);
		values[Anum_attbyval - 1] = BoolGetDatum(c->attbyval);
		values[Anum_attalign - 1] = CharGetDatum(c->attalign);
		isnull[Anum_type_parts - 1] = c->type_parts == NULL;
		values[Anum_type_parts - 1] = c->type_parts ? CStringGetTextDatum(c->type_parts) : (Datum) 0;
		scdc_row_insert(rel, values, isnull);
	}
	table_close(rel, NoLock);
}

typedef struct ReadState
{
	ScdcSchema *schema;
	int			allocated;
} ReadState;

static bool
read_column(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	ReadState  *st = arg;
	ScdcSchema *s = st->schema;
	int32		number = DatumGetInt32(values[Anum_schema_number - 1]);
	ScdcColumn *c;

	if (s == NULL)
	{
		s = st->schema = palloc0(sizeof(ScdcSchema));
		s->stream_id = DatumGetInt64(values[Anum_stream_id - 1]);
		s->number = number;
		st->allocated = 16;
		s->columns = palloc0(sizeof(ScdcColumn) * st->allocated);
	}
	else if (s->number != number)
		return false;			/* reading backwards: the newest is complete */

	if (DatumGetInt16(values[Anum_attnum - 1]) == 0)
		return true;			/* the row of a table without columns */

	if (s->ncolumns == st->allocated)
	{
		st->allocated *= 2;
		s->columns = repalloc(s->columns, sizeof(ScdcColumn) * st->allocated);
	}
	c = &s->columns[s->ncolumns++];
	memset(c, 0, sizeof(ScdcColumn));
	c->attnum = DatumGetInt16(values[Anum_attnum - 1]);
	c->column_id = DatumGetInt32(values[Anum_column_id - 1]);
	c->name = pstrdup(NameStr(*DatumGetName(values[Anum_column_name - 1])));
	c->dropped = DatumGetBool(values[Anum_dropped - 1]);
	c->identity = DatumGetBool(values[Anum_identity - 1]);
	c->storage = DatumGetChar(values[Anum_storage - 1]);
	c->type = DatumGetObjectId(values[Anum_type_oid - 1]);
	c->typmod = DatumGetInt32(values[Anum_type_mod - 1]);
	c->type_name = TextDatumGetCString(values[Anum_type_name - 1]);
	c->collation = DatumGetObjectId(values[Anum_collation - 1]);
	c->raw_type = DatumGetObjectId(values[Anum_raw_type - 1]);
	c->attlen = DatumGetInt16(values[Anum_attlen - 1]);
	c->attbyval = DatumGetBool(values[Anum_attbyval - 1]);
	c->attalign = DatumGetChar(values[Anum_attalign - 1]);
	if (!isnull[Anum_type_parts - 1])
		c->type_parts = TextDatumGetCString(values[Anum_type_parts - 1]);
	return true;
}

ScdcSchema *
scdc_schema_read(int64 stream_id, int32 number, Snapshot snapshot)
{
	ScanKeyData key[2];
	ReadState	st = {0};

	ScanKeyInit(&key[0], Anum_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	ScanKeyInit(&key[1], Anum_schema_number, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(number));
	scdc_rows_scan(SCDC_SCHEMAS, "schemas_id", number != 0 ? 2 : 1, key, true, snapshot, read_column, &st);
	if (st.schema == NULL)
		return NULL;

	/* they came in descending attnum order */
	for (int i = 0, j = st.schema->ncolumns - 1; i < j; i++, j--)
	{
		ScdcColumn	tmp = st.schema->columns[i];

		st.schema->columns[i] = st.schema->columns[j];
		st.schema->columns[j] = tmp;
	}
	layout(st.schema);
	return st.schema;
}

ScdcBytes
scdc_schema_pack(const ScdcSchema *schema)
{
	StringInfoData buf;
	ScdcBytes	result;

	initStringInfo(&buf);
	pq_sendint64(&buf, schema->stream_id);
	pq_sendint32(&buf, schema->ncolumns);
	for (int i = 0; i < schema->ncolumns; i++)
	{
		const ScdcColumn *c = &schema->columns[i];

		pq_sendint16(&buf, c->attnum);
		pq_sendint32(&buf, c->column_id);
		pq_sendbytes(&buf, c->name, (int) strlen(c->name) + 1);
		pq_sendbyte(&buf, c->dropped);
		pq_sendbyte(&buf, c->identity);
		pq_sendbyte(&buf, c->storage);
		pq_sendint32(&buf, c->type);
		pq_sendint32(&buf, c->typmod);
		pq_sendbytes(&buf, c->type_name, (int) strlen(c->type_name) + 1);
		pq_sendbyte(&buf, c->type_parts != NULL);
		if (c->type_parts)
			pq_sendbytes(&buf, c->type_parts, (int) strlen(c->type_parts) + 1);
		pq_sendint32(&buf, c->collation);
		pq_sendint32(&buf, c->raw_type);
		pq_sendint16(&buf, c->attlen);
		pq_sendbyte(&buf, c->attbyval);
		pq_sendbyte(&buf, c->attalign);
	}
	result.data = buf.data;
	result.len = buf.len;
	return result;
}

ScdcSchema *
scdc_schema_unpack(ScdcBytes bytes)
{
	StringInfoData buf;
	ScdcSchema *schema = palloc0(sizeof(ScdcSchema));

	buf.data = unconstify(char *, bytes.data);
	buf.len = buf.maxlen = bytes.len;
	buf.cursor = 0;
	schema->stream_id = pq_getmsgint64(&buf);
	schema->ncolumns = pq_getmsgint(&buf, 4);
	if (schema->ncolumns < 0 || schema->ncolumns > MaxHeapAttributeNumber)
		elog(ERROR, "schema in the inbox has %d columns", schema->ncolumns);
	schema->columns = palloc0(sizeof(ScdcColumn) * Max(schema->ncolumns, 1));
	for (int i = 0; i < schema->ncolumns; i++)
	{
		ScdcColumn *c = &schema->columns[i];

		c->attnum = (AttrNumber) pq_getmsgint(&buf, 2);
		c->column_id = (int32) pq_getmsgint(&buf, 4);
		c->name = pstrdup(pq_getmsgrawstring(&buf));
		c->dropped = pq_getmsgbyte(&buf) != 0;
		c->identity = pq_getmsgbyte(&buf) != 0;
		c->storage = (char) pq_getmsgbyte(&buf);
		c->type = pq_getmsgint(&buf, 4);
		c->typmod = (int32) pq_getmsgint(&buf, 4);
		c->type_name = pstrdup(pq_getmsgrawstring(&buf));
		if (pq_getmsgbyte(&buf) != 0)
			c->type_parts = pstrdup(pq_getmsgrawstring(&buf));
		c->collation = pq_getmsgint(&buf, 4);
		c->raw_type = pq_getmsgint(&buf, 4);
		c->attlen = (int16) pq_getmsgint(&buf, 2);
		c->attbyval = pq_getmsgbyte(&buf) != 0;
		c->attalign = (char) pq_getmsgbyte(&buf);
	}
	pq_getmsgend(&buf);
	layout(schema);
	return schema;
}

void
scdc_schema_delete(int64 stream_id, int32 number)
{
	ScanKeyData key[2];

	ScanKeyInit(&key[0], Anum_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	ScanKeyInit(&key[1], Anum_schema_number, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(number));
	(void) scdc_rows_delete(SCDC_SCHEMAS, "schemas_id", number != 0 ? 2 : 1, key, NULL);
}
