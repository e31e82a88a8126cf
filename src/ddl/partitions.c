/*-------------------------------------------------------------------------
 *
 * partitions.c
 *	  Partitions that come to and go from a tracked partitioned table (see
 *	  partitions.h).
 *
 * What a rule of ours forbids is an error; anything else that fails here is a
 * warning and a gap, and the command goes on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "executor/tuptable.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "ddl/inbox.h"
#include "ddl/members.h"
#include "ddl/partitions.h"
#include "log/catalog.h"
#include "sql/resolve.h"

static ScdcPartitionCommand *running = NULL;

/* Partitions on their way in or out. */
typedef struct Moving
{
	ScdcStream *stream;
	ScdcRegistered parent;		/* in: what they come below */
	List	   *relids;			/* with all below them, ACCESS EXCLUSIVE locked */
	bool		keep_identity;	/* out: they are being dropped */
} Moving;

/* The relation and all partitions below it, also those half detached; locked. */
static void
append_tree(Oid relid, List **result)
{
	ListCell   *lc;

	*result = lappend_oid(*result, relid);
	if (get_rel_relkind(relid) != RELKIND_PARTITIONED_TABLE)
		return;
	foreach(lc, find_inheritance_children_extended(relid, false, AccessExclusiveLock, NULL, NULL))
		append_tree(lfirst_oid(lc), result);
}

/* ---- what comes ---- */

/* Two streams for one table would tell each of its changes twice. */
static void
check_not_tracked(List *relids, const ScdcRegistered *parent)
{
	ListCell   *lc;

	foreach(lc, relids)
	{
		ScdcRegistered r;

		if (!scdc_member_find(lfirst_oid(lc), &r) || r.stream_id == parent->stream_id)
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot attach tracked table \"%s\" to tracked table \"%s\"",
						scdc_relation_name(r.root), scdc_relation_name(parent->root)),
				 errdetail("A table cannot be tracked both by itself and through a partitioned table."),
				 errhint("SELECT stream_untrack(%s);", quote_literal_cstr(scdc_relation_name(r.root)))));
	}
}

static void
add_partition(const Moving *m, Relation rel, bool record)
{
	ScdcRegistered r = m->parent;
	ScdcObstacle obstacle;
	bool		hindered = scdc_member_obstacle(rel, true, &obstacle);
	bool		is_table = rel->rd_rel->relkind == RELKIND_RELATION;

	r.relid = RelationGetRelid(rel);
	if (hindered)
		ereport(WARNING,
				(errcode(obstacle.sqlerrcode),
				 errmsg("changes of partition \"%s\" of tracked table \"%s\" cannot be captured",
						RelationGetRelationName(rel), scdc_relation_name(r.root)),
				 errdetail_internal("%s", obstacle.detail),
				 obstacle.hint ? errhint("%s", obstacle.hint) : 0));
	if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE && !(is_table && RelationNeedsWAL(rel)))
	{
		/* never registered, so its rows do not count; from here on the log is not all that the root shows */
		scdc_inbox_write_gap(m->stream, r.root);
		return;
	}
	scdc_member_add(&r, !hindered);
	if (is_table && record)
		scdc_inbox_write_rows(rel, m->stream, SCDC_EVENT_INSERT);
}

static void
add_partitions(const Moving *m, bool record)
{
	ListCell   *lc;

	foreach(lc, m->relids)
	{
		Relation	rel = relation_open(lfirst_oid(lc), NoLock);

		add_partition(m, rel, record);
		relation_close(rel, NoLock);
	}
}

static void
record_arrival(void *arg)
{
	add_partitions(arg, true);
}

/* When that failed: what comes is captured from here on, but what was in it is not known. */
static void
record_arrival_gap(void *arg)
{
	Moving	   *m = arg;

	add_partitions(m, false);
	scdc_inbox_write_gap(m->stream, m->parent.root);
}

/* The relation may be a new partition, somewhere below a tracked table. */
static void
partition_came(Oid relid)
{
	Moving		m = {0};
	ScdcRegistered r;

	if (!OidIsValid(relid) || !get_rel_relispartition(relid) ||
		!scdc_member_find(get_partition_parent(relid, true), &m.parent))
		return;
	if (scdc_member_find(relid, &r) && r.stream_id == m.parent.stream_id)
		return;					/* it was there before: CREATE TABLE IF NOT EXISTS */
	append_tree(relid, &m.relids);
	check_not_tracked(m.relids, &m.parent);
	m.stream = scdc_ddl_stream(m.parent.relid);
	if (m.stream && !scdc_ddl_try(record_arrival, &m, "the rows of a new partition"))
		(void) scdc_ddl_try(record_arrival_gap, &m, "a new partition");
}

/* ---- what goes ---- */

static bool
has_rows(Relation rel)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	bool		result = table_scan_getnextslot(scan, ForwardScanDirection, slot);

	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	return result;
}

static void
remove_partitions(const Moving *m, bool record)
{
	ListCell   *lc;

	foreach(lc, m->relids)
	{
		ScdcRegistered r;
		Relation	rel;

		if (!scdc_member_find(lfirst_oid(lc), &r) || r.stream_id != m->stream->stream_id)
			continue;
		rel = relation_open(lfirst_oid(lc), NoLock);
		if (record && rel->rd_rel->relkind == RELKIND_RELATION)
		{
			/* before the registry forgets it, since that is where capture looks */
			if (strcmp(m->stream->on_truncate, "gap") != 0)
				scdc_inbox_write_rows(rel, m->stream, SCDC_EVENT_DELETE);
			else if (has_rows(rel))
				scdc_inbox_write_gap(m->stream, RelationGetRelid(rel));
		}
		relation_close(rel, NoLock);
		scdc_member_remove(m->stream->stream_id, lfirst_oid(lc), m->keep_identity);
	}
}

static void
record_departure(void *arg)
{
	remove_partitions(arg, true);
}

static void
record_departure_gap(void *arg)
{
	Moving	   *m = arg;

	scdc_inbox_write_gap(m->stream, m->stream->relid);
	remove_partitions(m, false);
}

static void
partition_went(Moving *m)
{
	if (!scdc_ddl_try(record_departure, m, "the rows of a partition that was taken away"))
		(void) scdc_ddl_try(record_departure_gap, m, "that a partition was taken away");
}

static void
check_allowed(const ScdcStream *stream, Oid relid, const char *what)
{
	if (strcmp(stream->on_truncate, "forbid") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot %s partition \"%s\" of table \"%s\"", what, get_rel_name(relid),
						scdc_relation_name(stream->relid)),
				 errdetail("The table is tracked with on_truncate => 'forbid'."),
				 errhint("SELECT stream_alter(%s, on_truncate => 'delete'); lets its rows be recorded as deletes.",
						 quote_literal_cstr(scdc_relation_name(stream->relid)))));
}

/* A tracked table, or one above it, goes with this command: then nobody wants its last rows as changes. */
static bool
is_going_itself(Oid root)
{
	List	   *relids = list_make1_oid(root);
	ListCell   *lc;

	if (get_rel_relispartition(root))
		relids = list_concat(relids, get_partition_ancestors(root));
	for (ScdcPartitionCommand *c = running; c; c = c->outer)
		foreach(lc, relids)
		{
			Oid			relid = lfirst_oid(lc);
			HeapTuple	tuple;
			bool		goes;

			if (list_member_oid(c->relids, relid) || list_member_oid(c->namespaces, get_rel_namespace(relid)))
				return true;
			tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
			if (!HeapTupleIsValid(tuple))
				continue;
			goes = list_member_oid(c->owners, ((Form_pg_class) GETSTRUCT(tuple))->relowner);
			ReleaseSysCache(tuple);
			if (goes)
				return true;
		}
	return false;
}

bool
scdc_partition_dropped(Oid relid)
{
	Moving		m = {.relids = list_make1_oid(relid), .keep_identity = true};
	ScdcRegistered r;

	if (!scdc_member_find(relid, &r) || r.root == relid)
		return false;
	if (is_going_itself(r.root))
		return true;
	m.stream = scdc_ddl_stream(relid);
	if (m.stream == NULL)
		return true;
	check_allowed(m.stream, relid, "drop");
	partition_went(&m);
	return true;
}

/* The table that a TOAST table belongs to; InvalidOid if there is none. */
static Oid
toasted_table(Oid toast)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			result = InvalidOid;

	ScanKeyInit(&keys[0], Anum_pg_depend_classid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(RelationRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_objid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(toast));
	scan = systable_beginscan(depend, DependDependerIndexId, true, NULL, lengthof(keys), keys);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Form_pg_depend d = (Form_pg_depend) GETSTRUCT(tuple);

		if (d->refclassid == RelationRelationId && d->deptype == DEPENDENCY_INTERNAL)
			result = d->refobjid;
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return result;
}

bool
scdc_partition_toast_dropped(Oid relid)
{
	char		relkind = get_rel_relkind(relid);
	Oid			table;

	if ((relkind != RELKIND_INDEX && relkind != RELKIND_TOASTVALUE) || get_rel_namespace(relid) != PG_TOAST_NAMESPACE)
		return false;
	/* a command that does not drop tables may replace these, too */
	if (running == NULL || OidIsValid(running->detaching))
		return true;
	table = toasted_table(relkind == RELKIND_INDEX ? IndexGetRelation(relid, true) : relid);
	if (OidIsValid(table))
		(void) scdc_partition_dropped(table);
	return true;
}

/* ---- commands ---- */

/* The ATTACH or DETACH of a partition that a command consists of, or NULL. */
static AlterTableCmd *
partition_command(Node *command, AlterTableType subtype)
{
	ListCell   *lc;

	if (!IsA(command, AlterTableStmt) || ((AlterTableStmt *) command)->objtype != OBJECT_TABLE)
		return NULL;
	foreach(lc, ((AlterTableStmt *) command)->cmds)
		if (((AlterTableCmd *) lfirst(lc))->subtype == subtype)
			return lfirst(lc);
	return NULL;
}

static Oid
named_partition(const AlterTableCmd *cmd)
{
	return RangeVarGetRelid(((PartitionCmd *) cmd->def)->name, NoLock, true);
}

static void
begin_drop(DropStmt *stmt, ScdcPartitionCommand *c)
{
	ListCell   *lc;

	foreach(lc, stmt->objects)
	{
		if (stmt->removeType == OBJECT_TABLE)
			c->relids = lappend_oid(c->relids, RangeVarGetRelid(makeRangeVarFromNameList(lfirst(lc)), NoLock, true));
		else if (stmt->removeType == OBJECT_SCHEMA)
			c->namespaces = lappend_oid(c->namespaces, get_namespace_oid(strVal(lfirst(lc)), true));
	}
}

bool
scdc_partitions_begin(Node *command, ScdcPartitionCommand *c)
{
	AlterTableCmd *cmd;
	ListCell   *lc;

	memset(c, 0, sizeof(*c));
	if (!IsA(command, AlterTableStmt) && !IsA(command, DropStmt) && !IsA(command, DropOwnedStmt))
		return false;
	if (!scdc_registry_exists())
		return false;

	if (IsA(command, DropStmt))
		begin_drop((DropStmt *) command, c);
	else if (IsA(command, DropOwnedStmt))
	{
		foreach(lc, ((DropOwnedStmt *) command)->roles)
			c->owners = lappend_oid(c->owners, get_rolespec_oid(lfirst(lc), true));
	}
	else if ((cmd = partition_command(command, AT_DetachPartition)) != NULL ||
			 (cmd = partition_command(command, AT_DetachPartitionFinalize)) != NULL)
	{
		ScdcRegistered r;

		c->detaching = named_partition(cmd);
		if (OidIsValid(c->detaching) && cmd->subtype == AT_DetachPartition &&
			scdc_member_find(c->detaching, &r) && r.root != r.relid)
		{
			/* before, since CONCURRENTLY commits on the way; what is half done may be finished */
			ScdcStream *stream = scdc_ddl_stream(c->detaching);

			if (stream)
				check_allowed(stream, c->detaching, "detach");
		}
	}
	if (c->relids == NIL && c->namespaces == NIL && c->owners == NIL)
		return false;
	c->outer = running;
	running = c;
	return true;
}

void
scdc_partitions_end(ScdcPartitionCommand *c)
{
	if (running == c)
		running = c->outer;
}

void
scdc_partitions_changed(Node *command, const ScdcPartitionCommand *c)
{
	AlterTableCmd *cmd;
	CreateStmt *create = NULL;

	if (IsA(command, CreateStmt))
		create = (CreateStmt *) command;
	else if (IsA(command, CreateForeignTableStmt))
		create = &((CreateForeignTableStmt *) command)->base;

	if (create && create->partbound && scdc_registry_exists())
		partition_came(get_relname_relid(create->relation->relname, RangeVarGetCreationNamespace(create->relation)));
	else if ((cmd = partition_command(command, AT_AttachPartition)) != NULL && scdc_registry_exists())
		partition_came(named_partition(cmd));
	else if (OidIsValid(c->detaching))
	{
		Moving		m = {0};
		ScdcRegistered r;

		if (!scdc_member_find(c->detaching, &r) || r.root == c->detaching || get_rel_relispartition(c->detaching))
			return;
		m.stream = scdc_ddl_stream(c->detaching);
		append_tree(c->detaching, &m.relids);
		if (m.stream)
			partition_went(&m);
	}
}
