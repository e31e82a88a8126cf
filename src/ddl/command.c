/*-------------------------------------------------------------------------
 *
 * command.c
 *	  Commands on tracked tables, one inside the other (see ddl.h).
 *
 * Triggers and functions that a command calls may write the very table it is
 * about.  What was recorded before, or is read after it, would then be wrong,
 * so every statement that the executor starts meanwhile is looked at.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "executor/executor.h"
#include "parser/parsetree.h"
#include "storage/lockdefs.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "ddl/ddl.h"
#include "ddl/inbox.h"
#include "log/rows.h"

static ExecutorStart_hook_type prev_executor_start = NULL;
static ScdcCommand *current = NULL;

/* ---- who else writes the tables ---- */

static void
note_write(Oid relid)
{
	bool		routed = get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE;

	for (ScdcCommand *command = current; command; command = command->outer)
	{
		ListCell   *lc;

		foreach(lc, command->tables)
		{
			ScdcCommandTable *table = lfirst(lc);
			Relation	rel;

			/* which partition rows will go to is not known here */
			if (table->relid != relid && !routed)
				continue;
			table->touched = true;
			rel = RelationIdGetRelation(table->relid);
			if (rel == NULL)
				continue;
			if (rel->rd_rel->relfilenode == table->storage)
				table->touched_before = true;
			RelationClose(rel);
		}
	}
}

static void
executor_start(QueryDesc *query, int eflags)
{
	if (current)
	{
		ListCell   *lc;

		foreach(lc, query->plannedstmt->resultRelations)
			note_write(rt_fetch(lfirst_int(lc), query->plannedstmt->rtable)->relid);
	}
	if (prev_executor_start)
		prev_executor_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
}

/* ---- commands ---- */

ScdcCommand *
scdc_command_begin(Node *stmt)
{
	ScdcCommand *command = NULL;

	/* the server will refuse it with words of its own */
	if (XactReadOnly || RecoveryInProgress() || IsInParallelMode())
		return NULL;
	switch (nodeTag(stmt))
	{
		case T_TruncateStmt:
			command = scdc_truncate_begin((TruncateStmt *) stmt);
			break;
		case T_AlterTableStmt:
			command = scdc_alter_begin((AlterTableStmt *) stmt);
			break;
		case T_CopyStmt:
			if (current && ((CopyStmt *) stmt)->is_from && ((CopyStmt *) stmt)->relation)
			{
				Oid			relid = RangeVarGetRelid(((CopyStmt *) stmt)->relation, NoLock, true);

				if (OidIsValid(relid))
					note_write(relid);
			}
			break;
		default:
			break;
	}
	if (command)
	{
		command->outer = current;
		current = command;
	}
	return command;
}

void
scdc_command_done(ScdcCommand *command)
{
	if (command->done)
		command->done(command);
	if (command->nestlevel > 0)
		AtEOXact_GUC(true, command->nestlevel);
}

void
scdc_command_end(ScdcCommand *command)
{
	current = command->outer;
}

ScdcCommandTable *
scdc_command_find(Oid relid, ScdcCommand **command)
{
	for (*command = current; *command; *command = (*command)->outer)
	{
		ListCell   *lc;

		foreach(lc, (*command)->tables)
			if (((ScdcCommandTable *) lfirst(lc))->relid == relid)
				return lfirst(lc);
	}
	return NULL;
}

/* ---- what is tracked ---- */

static void
look_at_registry(void *arg)
{
	*(bool *) arg = !scdc_registry_is_empty(NULL);
}

bool
scdc_command_is_of_interest(void)
{
	bool		result = false;

	if (!OidIsValid(scdc_table_oid(SCDC_REGISTRY)) || !OidIsValid(scdc_table_oid(SCDC_INBOX)))
		return false;
	return scdc_ddl_try(look_at_registry, &result, "a command") && result;
}

typedef struct Search
{
	List	   *relids;
	Size		table_size;
	List	   *tables;
} Search;

static void
find_tracked(void *arg)
{
	Search	   *search = arg;
	ListCell   *lc;

	foreach(lc, search->relids)
	{
		ScdcStream *stream = scdc_ddl_stream(lfirst_oid(lc));
		ScdcCommandTable *table;
		Relation	rel;

		if (stream == NULL || get_rel_relkind(lfirst_oid(lc)) != RELKIND_RELATION)
			continue;
		table = palloc0(search->table_size);
		rel = table_open(lfirst_oid(lc), NoLock);
		table->relid = lfirst_oid(lc);
		table->stream = stream;
		table->storage = rel->rd_rel->relfilenode;
		table_close(rel, NoLock);
		search->tables = lappend(search->tables, table);
	}
}

ScdcCommand *
scdc_command_create(List *relids, Size table_size, void (*done) (ScdcCommand *command))
{
	MemoryContext cxt;
	MemoryContext old;
	Search		search = {.relids = relids, .table_size = table_size};
	ScdcCommand *command = NULL;

	if (relids == NIL)
		return NULL;
	cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc command", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(cxt);
	if (scdc_ddl_try(find_tracked, &search, "a command") && search.tables != NIL)
	{
		command = palloc0(sizeof(ScdcCommand));
		command->cxt = cxt;
		command->tables = search.tables;
		command->done = done;
	}
	MemoryContextSwitchTo(old);
	if (command == NULL)
		MemoryContextDelete(cxt);
	return command;
}

void
scdc_ddl_init(void)
{
	prev_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = executor_start;
}
