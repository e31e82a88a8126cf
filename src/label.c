/*-------------------------------------------------------------------------
 *
 * label.c
 *	  The mark on a database that needs a capture worker (see label.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xlog.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_database.h"
#include "catalog/pg_shseclabel.h"
#include "commands/seclabel.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "label.h"

static const char *const providers[] = {
	[SCDC_MARK_CAPTURE] = "streamcdc",
	[SCDC_MARK_JOBS] = "streamcdc_jobs",
	[SCDC_MARK_LOGS] = "streamcdc_logs",
};

/*
 * SECURITY LABEL FOR streamcdc comes here too.  A restored dump brings such
 * commands for databases that were tracked; they are harmless, since the
 * label names another system or database.  One that does fit only makes the
 * launcher look, and remove it if nothing is tracked.
 */
static void
check_label(const ObjectAddress *object, const char *label)
{
	if (label && object->classId != DatabaseRelationId)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("security labels of streamcdc are for databases only")));
}

void
scdc_label_init(void)
{
	for (int i = 0; i < (int) lengthof(providers); i++)
		register_label_provider(providers[i], check_label);
}

static char *
label_text(Oid dboid)
{
	return psprintf(UINT64_FORMAT "/%u", GetSystemIdentifier(), dboid);
}

char *
scdc_label_here(void)
{
	return label_text(MyDatabaseId);
}

static ObjectAddress
this_database(void)
{
	ObjectAddress a;

	ObjectAddressSet(a, DatabaseRelationId, MyDatabaseId);
	return a;
}

void
scdc_label_set(ScdcMark mark)
{
	ObjectAddress a = this_database();

	SetSecurityLabel(&a, providers[mark], label_text(MyDatabaseId));
}

void
scdc_label_remove(ScdcMark mark)
{
	ObjectAddress a = this_database();

	SetSecurityLabel(&a, providers[mark], NULL);
}

bool
scdc_label_exists(ScdcMark mark)
{
	ObjectAddress a = this_database();
	char	   *label = GetSecurityLabel(&a, providers[mark]);

	return label && strcmp(label, label_text(MyDatabaseId)) == 0;
}

List *
scdc_label_databases(ScdcMark mark)
{
	Relation	rel = table_open(SharedSecLabelRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(rel, 0, NULL);
	HeapTuple	tuple;
	List	   *result = NIL;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		TupleDesc	desc = RelationGetDescr(rel);
		bool		isnull;
		Oid			classoid = DatumGetObjectId(heap_getattr(tuple, Anum_pg_shseclabel_classoid, desc, &isnull));
		Oid			objoid = DatumGetObjectId(heap_getattr(tuple, Anum_pg_shseclabel_objoid, desc, &isnull));
		char	   *provider = TextDatumGetCString(heap_getattr(tuple, Anum_pg_shseclabel_provider, desc, &isnull));
		char	   *label = TextDatumGetCString(heap_getattr(tuple, Anum_pg_shseclabel_label, desc, &isnull));

		if (classoid == DatabaseRelationId && strcmp(provider, providers[mark]) == 0 &&
			strcmp(label, label_text(objoid)) == 0)
			result = lappend_oid(result, objoid);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	return result;
}
