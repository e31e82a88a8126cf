/*-------------------------------------------------------------------------
 *
 * registration.c
 *	  Change logs from elsewhere: what stream_register_changelog was told
 *	  about a relation, and whether the relation is like that.
 *
 * Nothing happens to a registration when its relation is dropped.  It is not
 * found any more, since a relation that later gets the same OID does not have
 * the same row type too, and it is deleted when the next one is registered.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "log/rows.h"
#include "sql/registration.h"

/* columns of streamcdc.changelogs */
enum
{
	Anum_changelogs_relid = 1,
	Anum_changelogs_row_type,
	Anum_changelogs_carryovers,
	Anum_changelogs_intermediate,
	Anum_changelogs_updates_as_pairs,
	Anum_changelogs_row_id,
	Anum_changelogs_row_version,
	Natts_changelogs = Anum_changelogs_row_version
};

/* ---------------------------------------------------------------------
 * rows
 * ---------------------------------------------------------------------
 */

static void
key_of_relid(ScanKey key, Oid relid)
{
	ScanKeyInit(key, Anum_changelogs_relid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
}

/* Is the row about the relation that has the OID now, if there is one? */
static bool
is_of_living(Datum *values)
{
	Oid			row_type = get_rel_type_id(DatumGetObjectId(values[Anum_changelogs_relid - 1]));

	return OidIsValid(row_type) && row_type == DatumGetObjectId(values[Anum_changelogs_row_type - 1]);
}

static bool
find_row(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	ScdcRegistration **result = arg;
	ScdcRegistration *r;
	Datum	   *elems;

	if (!is_of_living(values))
		return true;
	r = palloc0(sizeof(ScdcRegistration));
	r->relid = DatumGetObjectId(values[Anum_changelogs_relid - 1]);
	r->has_carryovers = DatumGetBool(values[Anum_changelogs_carryovers - 1]);
	r->has_intermediate = DatumGetBool(values[Anum_changelogs_intermediate - 1]);
	r->updates_as_pairs = DatumGetBool(values[Anum_changelogs_updates_as_pairs - 1]);
	deconstruct_array(DatumGetArrayTypeP(values[Anum_changelogs_row_id - 1]), TEXTOID, -1, false, TYPALIGN_INT,
					  &elems, NULL, &r->nrow_id);
	r->row_id = palloc(Max(r->nrow_id, 1) * sizeof(char *));
	for (int i = 0; i < r->nrow_id; i++)
		r->row_id[i] = TextDatumGetCString(elems[i]);
	if (!isnull[Anum_changelogs_row_version - 1])
		r->row_version = TextDatumGetCString(values[Anum_changelogs_row_version - 1]);
	*result = r;
	return false;
}

ScdcRegistration *
scdc_registration_find(Oid relid, Snapshot snapshot)
{
	ScdcRegistration *result = NULL;
	ScanKeyData key[1];

	/* an extension that was created by an older script does not have it */
	if (!OidIsValid(scdc_index_oid("changelogs_relid")))
		return NULL;
	key_of_relid(&key[0], relid);
	scdc_rows_scan(SCDC_CHANGELOGS, "changelogs_relid", 1, key, false, snapshot, find_row, &result);
	return result;
}

static bool
delete_row(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	scdc_row_delete(rel, &tuple->t_self);
	*(bool *) arg |= is_of_living(values);
	return true;
}

bool
scdc_registration_delete(Oid relid)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	Relation	rel = scdc_table_open(SCDC_CHANGELOGS, RowExclusiveLock);
	bool		found = false;
	ScanKeyData key[1];

	key_of_relid(&key[0], relid);
	scdc_rows_scan(SCDC_CHANGELOGS, "changelogs_relid", 1, key, false, snapshot, delete_row, &found);
	table_close(rel, NoLock);
	UnregisterSnapshot(snapshot);
	return found;
}

void
scdc_registration_insert(const ScdcRegistration *r)
{
	Relation	rel = scdc_table_open(SCDC_CHANGELOGS, RowExclusiveLock);
	Datum		values[Natts_changelogs];
	bool		isnull[Natts_changelogs] = {0};
	Datum	   *row_id = palloc(Max(r->nrow_id, 1) * sizeof(Datum));

	/* one that is left from an earlier relation */
	(void) scdc_registration_delete(r->relid);

	for (int i = 0; i < r->nrow_id; i++)
		row_id[i] = CStringGetTextDatum(r->row_id[i]);
	values[Anum_changelogs_relid - 1] = ObjectIdGetDatum(r->relid);
	values[Anum_changelogs_row_type - 1] = ObjectIdGetDatum(get_rel_type_id(r->relid));
	values[Anum_changelogs_carryovers - 1] = BoolGetDatum(r->has_carryovers);
	values[Anum_changelogs_intermediate - 1] = BoolGetDatum(r->has_intermediate);
	values[Anum_changelogs_updates_as_pairs - 1] = BoolGetDatum(r->updates_as_pairs);
	values[Anum_changelogs_row_id - 1] = PointerGetDatum(construct_array(row_id, r->nrow_id, TEXTOID, -1, false,
																		 TYPALIGN_INT));
	isnull[Anum_changelogs_row_version - 1] = r->row_version == NULL;
	values[Anum_changelogs_row_version - 1] = r->row_version ? CStringGetTextDatum(r->row_version) : (Datum) 0;
	scdc_row_insert(rel, values, isnull);
	table_close(rel, NoLock);
}

static bool
delete_dead_row(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	if (!is_of_living(values))
		scdc_row_delete(rel, &tuple->t_self);
	return true;
}

void
scdc_registration_purge(void)
{
	Relation	rel = scdc_table_open(SCDC_CHANGELOGS, RowExclusiveLock);

	/* two at a time would delete the same rows, and one of them would fail */
	if (ConditionalLockRelation(rel, ShareUpdateExclusiveLock))
	{
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

		scdc_rows_scan(SCDC_CHANGELOGS, NULL, 0, NULL, false, snapshot, delete_dead_row, NULL);
		UnregisterSnapshot(snapshot);
		CommandCounterIncrement();
	}
	table_close(rel, NoLock);
}

/* ---------------------------------------------------------------------
 * the metadata columns
 * ---------------------------------------------------------------------
 */

static AttrNumber
find_column(TupleDesc desc, const char *column)
{
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && strcmp(NameStr(att->attname), column) == 0)
			return att->attnum;
	}
	return InvalidAttrNumber;
}

/* A domain is as good as the type below it, and varchar as good as text. */
static Oid
plain_type(Oid type)
{
	type = getBaseType(type);
	return type == VARCHAROID ? TEXTOID : type;
}

/* The number of a metadata column, after checking that it is there and of one of two types. */
static AttrNumber
metadata_column(TupleDesc desc, const char *name, const char *column, Oid type, Oid other_type, const char *expected)
{
	AttrNumber	attnum = find_column(desc, column);
	Form_pg_attribute att;
	Oid			plain;

	if (attnum == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("change log \"%s\" has no column \"%s\"", name, column),
				 errdetail("Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_COLUMN.")));
	att = TupleDescAttr(desc, attnum - 1);
	plain = plain_type(att->atttypid);
	if (plain != type && plain != other_type)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("column \"%s\" of change log \"%s\" is of type %s, expected %s",
						column, name, format_type_be(att->atttypid), expected),
				 errdetail("Error condition: INVALID_CHANGELOG_SCHEMA.INVALID_COLUMN_TYPE."),
				 errhint("A view in which the column has the expected type can be registered instead.")));
	return attnum;
}

/* ---------------------------------------------------------------------
 * references
 * ---------------------------------------------------------------------
 */

static void no_such_column(const char *argument, const char *reference, const char *name) pg_attribute_noreturn();

static void
no_such_column(const char *argument, const char *reference, const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("column \"%s\" of change log \"%s\" does not exist", reference, name),
			 errdetail("It is named in %s.", argument)));
}

static void
set_column(ScdcReference *ref, TupleDesc desc, AttrNumber attnum)
{
	Form_pg_attribute att = TupleDescAttr(desc, attnum - 1);

	ref->attnum = attnum;
	ref->expression = psprintf("l.%s", quote_identifier(NameStr(att->attname)));
	ref->type = att->atttypid;
	ref->collation = att->attcollation;
}

/* One step into a composite value; false if it has no such field. */
static bool
step_into_record(ScdcReference *ref, const char *field)
{
	TupleDesc	desc = lookup_rowtype_tupdesc_domain(ref->type, -1, true);
	AttrNumber	attnum = desc ? find_column(desc, field) : InvalidAttrNumber;

	if (attnum != InvalidAttrNumber)
	{
		Form_pg_attribute att = TupleDescAttr(desc, attnum - 1);

		ref->expression = psprintf("(%s).%s", ref->expression, quote_identifier(field));
		ref->type = att->atttypid;
		ref->collation = att->attcollation;
	}
	if (desc)
		ReleaseTupleDesc(desc);
	return attnum != InvalidAttrNumber;
}

/*
 * All the steps that are left, into a json value.  What is not there is NULL,
 * and so is null, as for a field of a record.
 */
static void
step_into_json(ScdcReference *ref, List *fields, int from)
{
	StringInfoData path;
	char	   *member;

	initStringInfo(&path);
	for (int i = from; i < list_length(fields); i++)
		appendStringInfo(&path, ", %s", quote_literal_cstr(list_nth(fields, i)));
	member = psprintf("pg_catalog.jsonb_extract_path(%s::pg_catalog.jsonb%s)", ref->expression, path.data);
	ref->expression = psprintf("CASE WHEN pg_catalog.jsonb_typeof(%s) OPERATOR(pg_catalog.<>) 'null' THEN %s END",
							   member, member);
	ref->type = JSONBOID;
	ref->collation = InvalidOid;
}

static List *
split_at_dots(const char *reference)
{
	List	   *fields = NIL;
	const char *dot;

	for (; (dot = strchr(reference, '.')) != NULL; reference = dot + 1)
		fields = lappend(fields, pnstrdup(reference, dot - reference));
	return lappend(fields, pstrdup(reference));
}

/* A column of that very name comes first; else dots lead from a column into its value. */
static void
resolve_reference(ScdcReference *ref, TupleDesc desc, const char *reference, const char *argument, const char *name)
{
	AttrNumber	attnum = find_column(desc, reference);
	List	   *fields;

	memset(ref, 0, sizeof(*ref));
	if (attnum != InvalidAttrNumber)
	{
		set_column(ref, desc, attnum);
		return;
	}
	fields = split_at_dots(reference);
	attnum = find_column(desc, linitial(fields));
	if (attnum == InvalidAttrNumber || list_length(fields) < 2)
		no_such_column(argument, reference, name);
	set_column(ref, desc, attnum);
	ref->attnum = InvalidAttrNumber;
	for (int i = 1; i < list_length(fields); i++)
	{
		Oid			type = getBaseType(ref->type);

		if (type == JSONBOID || type == JSONOID)
		{
			step_into_json(ref, fields, i);
			break;
		}
		if (!step_into_record(ref, list_nth(fields, i)))
			no_such_column(argument, reference, name);
	}
}

static void
check_comparable(const ScdcReference *ref, const char *reference, const char *name)
{
	TypeCacheEntry *cache = lookup_type_cache(ref->type, TYPECACHE_EQ_OPR);

	if (!OidIsValid(cache->eq_opr))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("column \"%s\" of change log \"%s\" is of type %s, which has no equality operator",
						reference, name, format_type_be(ref->type))));
}

static void
resolve(ScdcReference *ref, TupleDesc desc, const char *reference, const char *argument, const char *name)
{
	resolve_reference(ref, desc, reference, argument, name);
	check_comparable(ref, reference, name);
}

void
scdc_registration_check(const ScdcRegistration *r, TupleDesc desc, const char *name, ScdcRegisteredSchema *schema)
{
	bool		row_level = r->has_carryovers || r->updates_as_pairs;

	memset(schema, 0, sizeof(*schema));
	schema->change_type = metadata_column(desc, name, "_change_type", TEXTOID, TEXTOID, "text");
	schema->commit_version = metadata_column(desc, name, "_commit_version", INT8OID, TEXTOID, "bigint or text");
	schema->commit_timestamp = metadata_column(desc, name, "_commit_timestamp", TIMESTAMPTZOID, TIMESTAMPTZOID,
											   "timestamp with time zone");
	schema->text_versions = plain_type(TupleDescAttr(desc, schema->commit_version - 1)->atttypid) == TEXTOID;

	if ((row_level || r->has_intermediate) && r->nrow_id == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("change log \"%s\" needs a row_id", name),
				 errdetail("Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_ROW_ID."),
				 errhint("If any of the flags is true, row_id must name the columns that identify a row.")));
	if (row_level && r->row_version == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("change log \"%s\" needs a row_version", name),
				 errhint("If contains_carryover_rows or represents_update_as_delete_and_insert is true, row_version must name the column that holds the version in which the row was last changed.")));

	schema->row_id = palloc(Max(r->nrow_id, 1) * sizeof(ScdcReference));
	for (int i = 0; i < r->nrow_id; i++)
		resolve(&schema->row_id[i], desc, r->row_id[i], "row_id", name);
	if (r->row_version)
		resolve(&schema->row_version, desc, r->row_version, "row_version", name);
}
