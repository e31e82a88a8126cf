/*-------------------------------------------------------------------------
 *
 * api_register.c
 *	  stream_register_changelog, stream_unregister_changelog.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "log/catalog.h"
#include "sql/registration.h"
#include "sql/resolve.h"

PG_FUNCTION_INFO_V1(streamcdc_register_changelog);
PG_FUNCTION_INFO_V1(streamcdc_unregister_changelog);

static void
must_not_be_null(FunctionCallInfo fcinfo, int arg, const char *name)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", name)));
}

/* Is it there, of a kind that can be selected from, and the caller's?  Returns its name. */
static char *
check_relation(Oid relid)
{
	char	   *name = get_rel_name(relid);
	char		relkind = get_rel_relkind(relid);

	if (name == NULL)
		scdc_undefined_relation(relid);
	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE && relkind != RELKIND_VIEW &&
		relkind != RELKIND_MATVIEW && relkind != RELKIND_FOREIGN_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot register \"%s\" as a change log", name),
				 errdetail_relkind_not_supported(relkind)));
	if (!pg_class_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(relkind), name);
	return name;
}

/*
 * Keeps others from registering, unregistering or altering the relation until
 * our transaction ends; readers and writers go on.
 */
static void
lock_relation(Oid relid)
{
	(void) check_relation(relid);
	LockRelationOid(relid, ShareUpdateExclusiveLock);
	(void) check_relation(relid);	/* things may have changed while we waited */
}

static void
set_row_id(ScdcRegistration *r, ArrayType *array)
{
	Datum	   *elems;
	bool	   *nulls;

	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("row_id must be a one-dimensional array")));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elems, &nulls, &r->nrow_id);
	r->row_id = palloc(Max(r->nrow_id, 1) * sizeof(char *));
	for (int i = 0; i < r->nrow_id; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("row_id must not contain nulls")));
		r->row_id[i] = TextDatumGetCString(elems[i]);
		for (int j = 0; j < i; j++)
			if (strcmp(r->row_id[j], r->row_id[i]) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("column \"%s\" is named twice in row_id", r->row_id[i])));
	}
}

static void
check_not_known(Oid relid, const char *name)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

	if (scdc_registration_find(relid, snapshot))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("\"%s\" is already registered as a change log", name),
				 errhint("Call stream_unregister_changelog() first to change what is declared.")));
	if (scdc_is_tracked(relid, snapshot))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot register table \"%s\" as a change log", name),
				 errdetail("The table is tracked: its changes are in its own change log.")));
	UnregisterSnapshot(snapshot);
}

/*
 * stream_register_changelog(relation, contains_carryover_rows, contains_intermediate_changes,
 *							 represents_update_as_delete_and_insert, row_id, row_version)
 *
 * Declares that a relation is a change log (api.md section 2.1).
 */
Datum
streamcdc_register_changelog(PG_FUNCTION_ARGS)
{
	ScdcRegistration r = {0};
	ScdcRegisteredSchema schema;
	Relation	rel;

	must_not_be_null(fcinfo, 0, "relation");
	must_not_be_null(fcinfo, 1, "contains_carryover_rows");
	must_not_be_null(fcinfo, 2, "contains_intermediate_changes");
	must_not_be_null(fcinfo, 3, "represents_update_as_delete_and_insert");
	r.relid = PG_GETARG_OID(0);
	r.has_carryovers = PG_GETARG_BOOL(1);
	r.has_intermediate = PG_GETARG_BOOL(2);
	r.updates_as_pairs = PG_GETARG_BOOL(3);
	if (!PG_ARGISNULL(4))
		set_row_id(&r, PG_GETARG_ARRAYTYPE_P(4));
	if (!PG_ARGISNULL(5))
		r.row_version = text_to_cstring(PG_GETARG_TEXT_PP(5));
	PreventCommandDuringRecovery("stream_register_changelog()");
	PreventCommandIfReadOnly("stream_register_changelog()");

	lock_relation(r.relid);
	rel = relation_open(r.relid, NoLock);
	if (RELATION_IS_OTHER_TEMP(rel))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot register \"%s\" as a change log", RelationGetRelationName(rel)),
				 errdetail("Temporary tables of other sessions cannot be read.")));
	check_not_known(r.relid, RelationGetRelationName(rel));
	scdc_registration_check(&r, RelationGetDescr(rel), RelationGetRelationName(rel), &schema);
	relation_close(rel, NoLock);

	scdc_registration_purge();
	scdc_registration_insert(&r);
	CommandCounterIncrement();
	PG_RETURN_VOID();
}

/* stream_unregister_changelog(relation) */
Datum
streamcdc_unregister_changelog(PG_FUNCTION_ARGS)
{
	Oid			relid;

	must_not_be_null(fcinfo, 0, "relation");
	relid = PG_GETARG_OID(0);
	PreventCommandDuringRecovery("stream_unregister_changelog()");
	PreventCommandIfReadOnly("stream_unregister_changelog()");

	lock_relation(relid);
	if (!scdc_registration_delete(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not registered as a change log", get_rel_name(relid))));
	CommandCounterIncrement();
	PG_RETURN_VOID();
}
