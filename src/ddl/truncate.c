/*-------------------------------------------------------------------------
 *
 * truncate.c
 *	  TRUNCATE: the rows that it takes away are recorded as deletes.
 *
 * WAL only says which tables were truncated.  So before the command runs, its
 * locks are taken in the order in which it will take them itself, and the
 * rows are written to the inbox.  If a BEFORE trigger then changes the rows,
 * that is a gap.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/heap.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "ddl/ddl.h"
#include "ddl/inbox.h"

static bool
is_truncatable(Oid relid)
{
	char		relkind = get_rel_relkind(relid);

	return relkind == RELKIND_RELATION || relkind == RELKIND_PARTITIONED_TABLE || relkind == RELKIND_FOREIGN_TABLE;
}

/* May the user truncate it?  If not, the command will say so. */
static bool
may_truncate(Oid relid)
{
	return is_truncatable(relid) && pg_class_aclcheck(relid, GetUserId(), ACL_TRUNCATE) == ACLCHECK_OK;
}

/* Before a lock is taken by name; the command would raise the same. */
static void
check_before_lock(const RangeVar *rv, Oid relid, Oid old_relid, void *arg)
{
	AclResult	result;

	if (!OidIsValid(relid))
		return;
	if (!is_truncatable(relid))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", rv->relname)));
	result = pg_class_aclcheck(relid, GetUserId(), ACL_TRUNCATE);
	if (result != ACLCHECK_OK)
		aclcheck_error(result, get_relkind_objtype(get_rel_relkind(relid)), rv->relname);
}

/* Could the command be about a tracked table?  Takes no lock. */
static bool
is_of_interest(TruncateStmt *stmt)
{
	bool		permanent = false;
	ListCell   *lc;

	foreach(lc, stmt->relations)
	{
		Oid			relid = RangeVarGetRelid((RangeVar *) lfirst(lc), NoLock, true);

		if (!OidIsValid(relid) || !may_truncate(relid))
			return false;
		if (get_rel_persistence(relid) == RELPERSISTENCE_PERMANENT)
			permanent = true;
	}
	return permanent && scdc_command_is_of_interest();
}

/* Everything that the command will truncate, locked; NIL if it will fail. */
static List *
lock_relations(TruncateStmt *stmt)
{
	List	   *relids = NIL;
	ListCell   *lc,
			   *child;

	foreach(lc, stmt->relations)
	{
		RangeVar   *rv = lfirst(lc);
		Oid			relid = RangeVarGetRelidExtended(rv, AccessExclusiveLock, 0, check_before_lock, NULL);

		if (list_member_oid(relids, relid))
			continue;
		relids = lappend_oid(relids, relid);
		if (rv->inh)
			foreach(child, find_all_inheritors(relid, AccessExclusiveLock, NULL))
				relids = list_append_unique_oid(relids, lfirst_oid(child));
	}
	if (stmt->behavior == DROP_CASCADE)
	{
		List	   *more;

		while ((more = heap_truncate_find_FKs(relids)) != NIL)
		{
			foreach(lc, more)
			{
				if (!may_truncate(lfirst_oid(lc)))
					return NIL;
				LockRelationOid(lfirst_oid(lc), AccessExclusiveLock);
				relids = lappend_oid(relids, lfirst_oid(lc));
			}
		}
	}
	return relids;
}

/* Without CASCADE nothing may refer to the tables; find that out before rows are written. */
static void
check_references(List *relids)
{
	List	   *rels = NIL;
	ListCell   *lc;

	foreach(lc, relids)
		rels = lappend(rels, table_open(lfirst_oid(lc), NoLock));
	heap_truncate_check_FKs(rels, false);
	foreach(lc, rels)
		table_close(lfirst(lc), NoLock);
}

static void
forbid(Oid relid)
{
	char	   *name = quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid));

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot truncate table \"%s\"", get_rel_name(relid)),
			 errdetail("Its changes are captured with on_truncate => 'forbid'."),
			 errhint("DELETE FROM %s; or let TRUNCATE be recorded: SELECT stream_alter(%s, on_truncate => 'delete');",
					 name, quote_literal_cstr(name))));
}

/*
 * Tables of one stream, next to each other in the list: partitions.  They are
 * recorded together, or a thousand of them would need as many
 * subtransactions.
 */
typedef struct Run
{
	List	   *tables;
	int			first;
	int			end;			/* behind the last */
} Run;

static ScdcCommandTable *
run_table(const Run *run, int i)
{
	return list_nth(run->tables, i);
}

static void
record(void *arg)
{
	Run		   *run = arg;

	for (int i = run->first; i < run->end; i++)
	{
		ScdcCommandTable *table = run_table(run, i);
		Relation	rel = table_open(table->relid, NoLock);

		scdc_inbox_write_rows(rel, table->stream, SCDC_EVENT_DELETE);
		scdc_inbox_write_truncated(rel, table->stream);
		table_close(rel, NoLock);
	}
}

static void
record_all(List *tables)
{
	Run			run = {.tables = tables};

	for (; run.first < list_length(tables); run.first = run.end)
	{
		const ScdcStream *stream = run_table(&run, run.first)->stream;

		run.end = run.first + 1;
		while (run.end < list_length(tables) && run_table(&run, run.end)->stream->stream_id == stream->stream_id)
			run.end++;
		(void) scdc_ddl_try(record, &run, psprintf("the rows that TRUNCATE takes away from table \"%s\"",
												   get_rel_name(stream->relid)));
	}
}

static void
record_gap(void *arg)
{
	ScdcCommandTable *table = arg;

	scdc_inbox_write_gap(table->stream, table->relid);
}

static void
truncate_done(ScdcCommand *command)
{
	ListCell   *lc;

	foreach(lc, command->tables)
	{
		ScdcCommandTable *table = lfirst(lc);

		if (table->touched_before)
			(void) scdc_ddl_try(record_gap, table, "the gap that a trigger has made in the middle of TRUNCATE");
	}
}

ScdcCommand *
scdc_truncate_begin(TruncateStmt *stmt)
{
	ScdcCommand *command;
	List	   *relids;
	ListCell   *lc;

	if (!is_of_interest(stmt))
		return NULL;
	relids = lock_relations(stmt);
	command = scdc_command_create(relids, sizeof(ScdcCommandTable), truncate_done);
	if (command == NULL)
		return NULL;
	foreach(lc, command->tables)
	{
		ScdcCommandTable *table = lfirst(lc);

		if (strcmp(table->stream->on_truncate, "forbid") == 0)
			forbid(table->relid);
		if (strcmp(table->stream->on_truncate, "delete") != 0)
			command->tables = foreach_delete_current(command->tables, lc);
	}
	if (command->tables == NIL)
		return NULL;
	if (stmt->behavior != DROP_CASCADE)
		check_references(relids);
	record_all(command->tables);
	return command;
}
