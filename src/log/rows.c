/*-------------------------------------------------------------------------
 *
 * rows.c
 *	  Writing the extension's own tables, at heap level (see rows.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/extension.h"
#include "executor/executor.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "log/rows.h"

#define SCDC_SCHEMA_NAME "streamcdc"

static const char *const table_names[] = {
	[SCDC_REGISTRY] = "registry",
	[SCDC_STREAMS] = "streams",
	[SCDC_DEFINITIONS] = "definitions",
	[SCDC_MEMBERS] = "members",
	[SCDC_BASELINES] = "baselines",
	[SCDC_SCHEMAS] = "schemas",
	[SCDC_MISSING_VALUES] = "missing_values",
	[SCDC_BLOCKS] = "blocks",
	[SCDC_SLOTS] = "slots",
	[SCDC_POSITIONS] = "positions",
	[SCDC_INBOX] = "inbox",
	[SCDC_CHANGELOGS] = "changelogs",
	[SCDC_QUERIES] = "queries",
	[SCDC_RUNS] = "runs",
	[SCDC_BATCHES] = "batches",
	[SCDC_PROGRESS] = "progress",
	[SCDC_ORIGINS] = "origins",
};

bool
scdc_extension_exists(void)
{
	return OidIsValid(get_extension_oid("streamcdc", true));
}

Oid
scdc_index_oid(const char *index_name)
{
	Oid			nsp = get_namespace_oid(SCDC_SCHEMA_NAME, true);

	return OidIsValid(nsp) ? get_relname_relid(index_name, nsp) : InvalidOid;
}

Oid
scdc_table_oid(ScdcTable t)
{
	return scdc_index_oid(table_names[t]);
}

Relation
scdc_table_open(ScdcTable t, LOCKMODE lockmode)
{
	Oid			gate = t == SCDC_REGISTRY ? InvalidOid : scdc_table_oid(SCDC_REGISTRY);
	Oid			oid;
	Relation	rel;

	/*
	 * The registry is the gate to all our tables: DROP EXTENSION locks it
	 * before anything else (hooks.c), so whoever is inside holds it up, and
	 * whoever waits outside holds nothing that it could wait for.
	 */
	if (OidIsValid(gate))
		LockRelationOid(gate, AccessShareLock);
	oid = scdc_table_oid(t);
	rel = OidIsValid(oid) ? try_relation_open(oid, lockmode) : NULL;
	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"streamcdc\" is not installed in this database"),
				 errhint("CREATE EXTENSION streamcdc;")));
	return rel;
}

void
scdc_row_insert(Relation rel, Datum *values, bool *isnull)
{
	HeapTuple	tuple = heap_form_tuple(RelationGetDescr(rel), values, isnull);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *lc;

	ExecStoreHeapTuple(tuple, slot, false);
	table_tuple_insert(rel, slot, GetCurrentCommandId(true), TABLE_INSERT_NO_LOGICAL, NULL);

	/*
	 * Our indexes are plain: columns only, no predicate.  That keeps this
	 * free of executor state, which would cost more than the insert itself.
	 */
	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), RowExclusiveLock);
		Form_pg_index form = index->rd_index;
		Datum		ivalues[INDEX_MAX_KEYS];
		bool		inull[INDEX_MAX_KEYS];

		for (int i = 0; i < form->indnatts; i++)
		{
			AttrNumber	att = form->indkey.values[i];

			Assert(att > 0);
			ivalues[i] = values[att - 1];
			inull[i] = isnull[att - 1];
		}
		index_insert(index, ivalues, inull, &slot->tts_tid, rel,
					 form->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false, NULL);
		index_close(index, RowExclusiveLock);
	}
	list_free(indexes);
	ExecDropSingleTupleTableSlot(slot);
	heap_freetuple(tuple);
}

void
scdc_row_delete(Relation rel, ItemPointer tid)
{
	TM_FailureData tmfd;
	TM_Result	result;

	result = heap_delete(rel, tid, GetCurrentCommandId(true), InvalidSnapshot, true, &tmfd, false);
	if (result != TM_Ok)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not change \"%s.%s\" because of a concurrent change",
						SCDC_SCHEMA_NAME, RelationGetRelationName(rel)),
				 errhint("Try the command again.")));
}

void
scdc_rows_scan(ScdcTable t, const char *index_name, int nkeys, ScanKey keys, bool backward,
			   Snapshot snapshot, ScdcRowFn fn, void *arg)
{
	Relation	rel = scdc_table_open(t, AccessShareLock);
	TupleDesc	desc = RelationGetDescr(rel);
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *isnull = palloc(desc->natts * sizeof(bool));
	HeapTuple	tuple;

	if (index_name)
	{
		Relation	index = index_open(scdc_index_oid(index_name), AccessShareLock);
		SysScanDesc scan = systable_beginscan_ordered(rel, index, snapshot, nkeys, keys);

		while ((tuple = systable_getnext_ordered(scan, backward ? BackwardScanDirection : ForwardScanDirection)) != NULL)
		{
			heap_deform_tuple(tuple, desc, values, isnull);
			if (!fn(rel, tuple, values, isnull, arg))
				break;
		}
		systable_endscan_ordered(scan);
		index_close(index, AccessShareLock);
	}
	else
	{
		SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, snapshot, nkeys, keys);

		while ((tuple = systable_getnext(scan)) != NULL)
		{
			heap_deform_tuple(tuple, desc, values, isnull);
			if (!fn(rel, tuple, values, isnull, arg))
				break;
		}
		systable_endscan(scan);
	}
	pfree(values);
	pfree(isnull);
	table_close(rel, NoLock);
}

static bool
delete_row(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	ItemPointerData tid = tuple->t_self;

	scdc_row_delete(rel, &tid);
	(*(int64 *) arg)++;
	return true;
}

int64
scdc_rows_delete(ScdcTable t, const char *index_name, int nkeys, ScanKey keys, Snapshot snapshot)
{
	int64		count = 0;

	scdc_rows_scan(t, index_name, nkeys, keys, false, snapshot, delete_row, &count);
	return count;
}

typedef struct Collector
{
	ScdcRowMake make;
	bool		first;
	List	   *made;
} Collector;

static bool
collect_row(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	Collector  *c = arg;

	c->made = lappend(c->made, c->make(tuple, values, isnull));
	return !c->first;
}

List *
scdc_rows_list(ScdcTable t, const char *index_name, int nkeys, ScanKey keys, Snapshot snapshot, ScdcRowMake make)
{
	Collector	c = {.make = make};

	scdc_rows_scan(t, index_name, nkeys, keys, false, snapshot, collect_row, &c);
	return c.made;
}

void *
scdc_rows_first(ScdcTable t, const char *index_name, int nkeys, ScanKey keys, bool backward,
				Snapshot snapshot, ScdcRowMake make)
{
	Collector	c = {.make = make, .first = true};

	scdc_rows_scan(t, index_name, nkeys, keys, backward, snapshot, collect_row, &c);
	return c.made ? linitial(c.made) : NULL;
}
