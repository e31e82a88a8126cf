/*-------------------------------------------------------------------------
 *
 * hooks.c
 *	  Where the server calls us in ordinary backends: at commit (wake the
 *	  capture worker), before commands that need a database without sessions
 *	  (stop its workers), and when a table is dropped (keep its name).
 *
 * All of it runs inside other people's transactions: it is cheap when nothing
 * is tracked, and a failure of ours never fails theirs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "capture/baseline.h"
#include "capture/decode.h"
#include "capture/wait.h"
#include "clock.h"
#include "ddl/ddl.h"
#include "ddl/inbox.h"
#include "ddl/members.h"
#include "ddl/partitions.h"
#include "debug.h"
#include "hooks.h"
#include "jobs/slots.h"
#include "jobs/state.h"
#include "log/catalog.h"
#include "log/definition.h"
#include "log/rows.h"
#include "retention/maintenance.h"
#include "shmem.h"
#include "sql/added_column.h"
#include "worker.h"

static ProcessUtility_hook_type prev_process_utility = NULL;
static object_access_hook_type prev_object_access = NULL;

/* Databases that this transaction's commands keep free of our workers. */
static List *suspended = NIL;

/*
 * Not before the transaction has ended: the launcher would still see the mark
 * of a database that is being dropped.  It starts capture again if the
 * database is still there.
 */
static void
resume_suspended(void)
{
	ListCell   *lc;

	foreach(lc, suspended)
		scdc_capture_resume(lfirst_oid(lc));
	list_free(suspended);
	suspended = NIL;
}

/* ---- the end of a transaction ---- */

/* What this transaction has begun to track. */
static struct
{
	bool		any;
	bool		baseline;		/* with a baseline */
}			tracking;

/* Has it changed for how long versions are kept, or dropped the extension? */
static bool retention_changed = false;

void
scdc_hooks_retention(void)
{
	retention_changed = true;
}

void
scdc_hooks_tracking(bool baseline)
{
	tracking.any = true;
	tracking.baseline |= baseline;
}

/*
 * After the commit of stream_track, while the lock on the table is still held:
 * gives capture the time to take the baseline's snapshot, so that nothing that
 * is committed after stream_track has returned is swallowed by the baseline.
 * Without it nothing would be lost either, but a user who tracks a table and
 * inserts a row would find the row in version 0 or in version 1, as it
 * happens.  Only for a moment, since nothing can interrupt us here, and
 * capture may have to wait for somebody's long transaction.
 */
static void
wait_for_capture_to_note(ScdcCaptureEntry *entry, uint64 number)
{
	int64		give_up = scdc_clock_ms() + scdc_debug_tracking_wait;

	ConditionVariablePrepareToSleep(&entry->cv);
	for (;;)
	{
		long		left;

		if (number > 0 ? pg_atomic_read_u64(&entry->baseline_served) >= number : entry->state == SCDC_CAPTURE_RUNNING)
			break;
		left = give_up - scdc_clock_ms();
		if (left <= 0 || entry->state == SCDC_CAPTURE_FAILED)
			break;
		(void) ConditionVariableTimedSleep(&entry->cv, Min(left, 100), PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
}

/*
 * A commit is decodable once it is flushed; for an asynchronous one the
 * capture worker sees to that.  XactLastCommitEnd is left alone by
 * transactions that wrote nothing.
 */
static void
at_transaction_end(XactEvent event, void *arg)
{
	static XLogRecPtr seen = InvalidXLogRecPtr;
	ScdcCaptureEntry *entry;

	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		resume_suspended();
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		tracking.any = tracking.baseline = retention_changed = false;
	if (event != XACT_EVENT_COMMIT || XactLastCommitEnd == seen)
		return;
	seen = XactLastCommitEnd;
	scdc_slots_wake_by_commit(MyDatabaseId);
	if (retention_changed)
		scdc_maintenance_look();
	retention_changed = false;
	entry = scdc_entry_find(MyDatabaseId);
	if (entry && entry->pid != MyProcPid)
	{
		/* visible by now to every snapshot that is taken later, so whoever reads the counter before taking one serves us */
		uint64		number = tracking.baseline ? pg_atomic_add_fetch_u64(&entry->baseline_asked, 1) : 0;

		scdc_wake_capture(entry, XactLastCommitEnd, tracking.any);
		if (tracking.any)
			wait_for_capture_to_note(entry, number);
	}
	tracking.any = tracking.baseline = false;
}

/* Are all the tables there that we look at here?  Not so if the extension is being dropped itself. */
static bool
is_installed(void)
{
	return scdc_registry_exists() &&
		OidIsValid(scdc_table_oid(SCDC_DEFINITIONS)) && OidIsValid(scdc_index_oid("definitions_stream")) &&
		OidIsValid(scdc_index_oid("definitions_table")) &&
		OidIsValid(scdc_table_oid(SCDC_MISSING_VALUES)) && OidIsValid(scdc_index_oid("missing_values_id"));
}

/* ---- new names ---- */

/* The definitions that a dump takes along say what the tables are called. */
static void
note_names(void *arg)
{
	Snapshot	snapshot;
	ListCell   *lc;

	CommandCounterIncrement();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	foreach(lc, scdc_stream_list(snapshot))
	{
		ScdcStream *s = lfirst(lc);
		char	   *table_name;
		char	   *schema_name;

		if (s->state != SCDC_STATE_LIVE && !scdc_stream_given_up(s))
			continue;
		table_name = get_rel_name(s->relid);
		schema_name = table_name ? get_namespace_name(get_rel_namespace(s->relid)) : NULL;
		if (schema_name == NULL ||
			(strcmp(table_name, s->table_name) == 0 && strcmp(schema_name, s->schema_name) == 0))
			continue;
		s->table_name = table_name;
		s->schema_name = schema_name;
		scdc_stream_replace(s);
		scdc_definition_update(s);
	}
	UnregisterSnapshot(snapshot);
}

/* Does the command give a table another name or schema? */
static bool
renames_tables(Node *command)
{
	if (IsA(command, RenameStmt))
		return ((RenameStmt *) command)->renameType == OBJECT_TABLE || ((RenameStmt *) command)->renameType == OBJECT_SCHEMA;
	return IsA(command, AlterObjectSchemaStmt) && ((AlterObjectSchemaStmt *) command)->objectType == OBJECT_TABLE;
}

/* ---- commands ---- */

/* The database that must be free of sessions for this command, InvalidOid if none that we may disturb. */
static Oid
database_to_be_free(Node *command)
{
	char	   *name = NULL;
	Oid			dboid;

	switch (nodeTag(command))
	{
		case T_DropdbStmt:
			name = ((DropdbStmt *) command)->dbname;
			break;
		case T_RenameStmt:
			if (((RenameStmt *) command)->renameType == OBJECT_DATABASE)
				name = ((RenameStmt *) command)->subname;
			break;
		case T_AlterDatabaseStmt:
			{
				ListCell   *lc;

				/* moving it to another tablespace */
				foreach(lc, ((AlterDatabaseStmt *) command)->options)
					if (strcmp(((DefElem *) lfirst(lc))->defname, "tablespace") == 0)
						name = ((AlterDatabaseStmt *) command)->dbname;
				break;
			}
		case T_CreatedbStmt:
			{
				ListCell   *lc;

				foreach(lc, ((CreatedbStmt *) command)->options)
					if (strcmp(((DefElem *) lfirst(lc))->defname, "template") == 0 && ((DefElem *) lfirst(lc))->arg)
						name = defGetString((DefElem *) lfirst(lc));
				break;
			}
		default:
			break;
	}
	if (name == NULL || scdc_shared == NULL)
		return InvalidOid;
	dboid = get_database_oid(name, true);
	if (!OidIsValid(dboid) || scdc_entry_find(dboid) == NULL)
		return InvalidOid;

	/* those who may not give the command may not stop capture with it */
	if (!pg_database_ownercheck(dboid, GetUserId()) &&
		!(IsA(command, CreatedbStmt) && have_createdb_privilege()))
		return InvalidOid;
	return dboid;
}

static void
run_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree, ProcessUtilityContext context,
			ParamListInfo params, QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	if (prev_process_utility)
		prev_process_utility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
}

/* A command that we have to know the end of, also when it fails: see ddl/ddl.h and ddl/partitions.h.  command may be NULL. */
static void
run_command(ScdcCommand *command, ScdcPartitionCommand *partitions,
			PlannedStmt *pstmt, const char *queryString, bool readOnlyTree, ProcessUtilityContext context,
			ParamListInfo params, QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	PG_TRY();
	{
		run_utility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
		if (command)
			scdc_command_done(command);
	}
	PG_CATCH();
	{
		if (command)
			scdc_command_end(command);
		scdc_partitions_end(partitions);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (command)
		scdc_command_end(command);
	scdc_partitions_end(partitions);
}

/*
 * The jobs of an extension that is dropped, by whatever command, and their
 * state.  If that is rolled back, jobs are started again, and make their state
 * anew.
 */
static void
end_jobs(void)
{
	scdc_slots_stop_all(MyDatabaseId, 10000);
	scdc_state_remove_all(MyDatabaseId);
}

/*
 * DROP EXTENSION takes our tables' locks in an order of its own, which could
 * cross with the order of those who use them.  With the registry locked first
 * it cannot (see scdc_table_open).  A baseline being copied, or a batch, would
 * hold it up.
 */
static void
before_drop_extension(DropStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->objects)
	{
		Oid			extension;
		Oid			gate = scdc_table_oid(SCDC_REGISTRY);
		ScdcCaptureEntry *entry = scdc_entry_find(MyDatabaseId);

		if (strcmp(strVal(lfirst(lc)), "streamcdc") != 0 || !OidIsValid(gate))
			continue;
		extension = get_extension_oid("streamcdc", true);
		if (!OidIsValid(extension) || !pg_extension_ownercheck(extension, GetUserId()))
			continue;
		if (entry)
			scdc_baseline_cancel(entry, 0);
		scdc_maintenance_cancel();
		end_jobs();
		LockRelationOid(gate, AccessExclusiveLock);
	}
}

/* A baseline being copied would hold up DROP TABLE, for nothing. */
static void
before_drop_table(DropStmt *stmt)
{
	ScdcCaptureEntry *entry = scdc_entry_find(MyDatabaseId);
	ListCell   *lc;

	if (entry == NULL || entry->baseline_stream == 0 || !scdc_registry_exists())
		return;
	foreach(lc, stmt->objects)
	{
		Oid			relid = RangeVarGetRelid(makeRangeVarFromNameList(lfirst(lc)), NoLock, true);
		ScdcRegistered r;

		if (OidIsValid(relid) && pg_class_ownercheck(relid, GetUserId()) && scdc_member_find(relid, &r))
			scdc_baseline_cancel(entry, r.stream_id);
	}
}

static bool
adds_column(Node *command)
{
	ListCell   *lc;

	if (!IsA(command, AlterTableStmt))
		return false;
	foreach(lc, ((AlterTableStmt *) command)->cmds)
		if (((AlterTableCmd *) lfirst(lc))->subtype == AT_AddColumn)
			return true;
	return false;
}

static void
note_added_columns(void *arg)
{
	scdc_added_columns_note(arg);
}

static void
process_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree, ProcessUtilityContext context,
				ParamListInfo params, QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	Oid			dboid = database_to_be_free(pstmt->utilityStmt);
	bool		commits_prepared = IsA(pstmt->utilityStmt, TransactionStmt) &&
	((TransactionStmt *) pstmt->utilityStmt)->kind == TRANS_STMT_COMMIT_PREPARED;
	ScdcCommand *command;
	ScdcPartitionCommand partitions;
	bool		dropping;
	bool		renames = renames_tables(pstmt->utilityStmt);
	bool		adds = adds_column(pstmt->utilityStmt);

	if (OidIsValid(dboid))
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

		suspended = lappend_oid(suspended, dboid);
		MemoryContextSwitchTo(old);
		scdc_capture_suspend(dboid);
	}

	if (IsA(pstmt->utilityStmt, DropStmt) && ((DropStmt *) pstmt->utilityStmt)->removeType == OBJECT_EXTENSION)
		before_drop_extension((DropStmt *) pstmt->utilityStmt);
	if (IsA(pstmt->utilityStmt, DropStmt) && ((DropStmt *) pstmt->utilityStmt)->removeType == OBJECT_TABLE)
		before_drop_table((DropStmt *) pstmt->utilityStmt);

	/* of these at most one does something for a given command */
	dropping = scdc_partitions_begin(pstmt->utilityStmt, &partitions);
	command = scdc_command_begin(pstmt->utilityStmt);
	if (command || dropping)
		run_command(command, &partitions, pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	else
		run_utility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	scdc_partitions_changed(pstmt->utilityStmt, &partitions);

	if (OidIsValid(dboid) && IsA(pstmt->utilityStmt, DropdbStmt))
		scdc_state_remove_all(dboid);
	if (renames && is_installed())
		(void) scdc_ddl_try(note_names, NULL, "that a table has another name");
	if (adds && is_installed())
		(void) scdc_ddl_try(note_added_columns, pstmt->utilityStmt, "that columns were added");
	if (commits_prepared)
	{
		/* no transaction of this session commits with it, so at_commit does not see it */
		ScdcCaptureEntry *entry = scdc_entry_find(MyDatabaseId);

		if (entry)
			scdc_wake_capture(entry, scdc_wal_target(), false);
	}
}

/* ---- DROP TABLE ---- */

/* Marks the stream of a table that is being dropped; its log stays, under the table's last name. */
static void
mark_dropped(void *arg)
{
	Oid			relid = *(Oid *) arg;
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScdcStream *s = scdc_stream_by_relid(relid, snapshot);
	HeapTuple	tuple;

	UnregisterSnapshot(snapshot);
	if (s == NULL || s->state == SCDC_STATE_DROPPED || s->state == SCDC_STATE_UNTRACKED)
		return;
	scdc_definition_delete(s->home, s->stream_id);
	if (s->is_definition)
		return;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		s->table_name = pstrdup(NameStr(form->relname));
		s->schema_name = get_namespace_name(form->relnamespace);
		s->owner = form->relowner;
		ReleaseSysCache(tuple);
	}
	s->state = SCDC_STATE_DROPPED;
	scdc_stream_replace(s);
	scdc_members_forget(s->stream_id);
	scdc_emit_message();
}

static void
object_access(ObjectAccessType access, Oid classId, Oid objectId, int subId, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, classId, objectId, subId, arg);

	if (access == OAT_POST_CREATE && classId == RelationRelationId && subId == 0)
		scdc_command_new_relation(objectId);
	if (access == OAT_DROP && classId == ExtensionRelationId && IsTransactionState() &&
		objectId == get_extension_oid("streamcdc", true))
	{
		/* also by DROP SCHEMA CASCADE, DROP OWNED; nobody starts jobs any more, as the locks on our tables are taken */
		end_jobs();
		scdc_hooks_retention(); /* its mark goes */
	}
	if (access != OAT_DROP || classId != RelationRelationId || subId != 0 || !IsTransactionState() ||
		objectId < FirstNormalObjectId || (is_installed() && scdc_partition_toast_dropped(objectId)) ||
		(get_rel_relkind(objectId) != RELKIND_RELATION && get_rel_relkind(objectId) != RELKIND_PARTITIONED_TABLE) ||
		get_rel_persistence(objectId) == RELPERSISTENCE_TEMP)
		return;
	if (!is_installed() || get_rel_namespace(objectId) == get_namespace_oid("streamcdc", true))
		return;

	/* if this fails, the drop must not */
	if (!scdc_partition_dropped(objectId))
		(void) scdc_ddl_try(mark_dropped, &objectId, psprintf("that table %u was dropped", objectId));
}

void
scdc_hooks_init(void)
{
	RegisterXactCallback(at_transaction_end, NULL);
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
	prev_object_access = object_access_hook;
	object_access_hook = object_access;
	scdc_ddl_init();
}
