/*-------------------------------------------------------------------------
 *
 * members.c
 *	  The relations of a stream (see members.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_publication_rel.h"
#include "catalog/pg_subscription_rel.h"
#include "commands/tablecmds.h"
#include "nodes/makefuncs.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "ddl/members.h"
#include "log/image.h"
#include "log/rows.h"

List *
scdc_members_lock(Oid relid)
{
	LockRelationOid(relid, AccessExclusiveLock);
	if (get_rel_relkind(relid) != RELKIND_PARTITIONED_TABLE)
		return list_make1_oid(relid);
	return find_all_inheritors(relid, AccessExclusiveLock, NULL);
}

/* Is it in a publication with a column list?  REPLICA IDENTITY FULL would make its updates fail. */
static bool
has_published_columns(Oid relid)
{
	Relation	pubrel = table_open(PublicationRelRelationId, AccessShareLock);
	ScanKeyData key[1];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		result = false;

	ScanKeyInit(&key[0], Anum_pg_publication_rel_prrelid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(pubrel, PublicationRelPrrelidPrpubidIndexId, true, NULL, 1, key);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;

		heap_getattr(tuple, Anum_pg_publication_rel_prattrs, RelationGetDescr(pubrel), &isnull);
		if (!isnull)
			result = true;
	}
	systable_endscan(scan);
	table_close(pubrel, AccessShareLock);
	return result;
}

/*
 * Does a subscription write into the table, and find its rows by the REPLICA
 * IDENTITY index only?  With REPLICA IDENTITY FULL it would find no index at
 * all, and stop.  A subscribed table may be one of those above it.
 */
static bool
needs_identity_index(Relation rel, List *subscribed)
{
	Relation	subrel;
	ListCell   *lc;
	bool		result = false;

	if (rel->rd_rel->relkind != RELKIND_RELATION || rel->rd_rel->relreplident != REPLICA_IDENTITY_INDEX ||
		OidIsValid(RelationGetPrimaryKeyIndex(rel)))
		return false;
	subrel = table_open(SubscriptionRelRelationId, AccessShareLock);
	foreach(lc, subscribed)
	{
		ScanKeyData key[1];
		SysScanDesc scan;

		ScanKeyInit(&key[0], Anum_pg_subscription_rel_srrelid, BTEqualStrategyNumber, F_OIDEQ,
					ObjectIdGetDatum(lfirst_oid(lc)));
		scan = systable_beginscan(subrel, SubscriptionRelSrrelidSrsubidIndexId, true, NULL, 1, key);
		result = result || HeapTupleIsValid(systable_getnext(scan));
		systable_endscan(scan);
	}
	table_close(subrel, AccessShareLock);
	return result;
}

bool
scdc_member_obstacle(Relation rel, bool is_partition, ScdcObstacle *obstacle)
{
	char	   *it = is_partition ? psprintf("Partition \"%s\"", RelationGetRelationName(rel)) : pstrdup("It");
	List	   *published = list_make1_oid(RelationGetRelid(rel));
	ListCell   *lc;

	if (rel->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
	{
		obstacle->sqlerrcode = ERRCODE_FEATURE_NOT_SUPPORTED;
		obstacle->detail = psprintf("%s is a foreign table, whose changes are not written to WAL.", it);
		obstacle->hint = "Detach it, or track the other partitions by themselves.";
		return true;
	}
	if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
	{
		obstacle->sqlerrcode = ERRCODE_FEATURE_NOT_SUPPORTED;
		obstacle->detail = psprintf("%s is a temporary table, which is not written to WAL.", it);
		obstacle->hint = NULL;
		return true;
	}
	if (rel->rd_rel->relpersistence == RELPERSISTENCE_UNLOGGED && rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
	{
		obstacle->sqlerrcode = ERRCODE_FEATURE_NOT_SUPPORTED;
		obstacle->detail = psprintf("%s is an unlogged table, which is not written to WAL.", it);
		obstacle->hint = psprintf("ALTER TABLE %s SET LOGGED;", quote_identifier(RelationGetRelationName(rel)));
		return true;
	}

	/* what is published through a root has the root's column list */
	if (rel->rd_rel->relispartition)
		published = list_concat(published, get_partition_ancestors(RelationGetRelid(rel)));
	foreach(lc, published)
	{
		if (!has_published_columns(lfirst_oid(lc)))
			continue;
		obstacle->sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		obstacle->detail = psprintf("%s is in a publication with a column list, so updates and deletes would fail with the REPLICA IDENTITY FULL that tracking needs.",
									it);
		obstacle->hint = "Publish all columns, or take the table out of the publication.";
		return true;
	}
	if (needs_identity_index(rel, published))
	{
		obstacle->sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		it[0] = pg_tolower((unsigned char) it[0]);
		obstacle->detail = psprintf("A subscription writes into %s and finds rows by the REPLICA IDENTITY index, which the REPLICA IDENTITY FULL that tracking needs would take from it.",
									it);
		obstacle->hint = "Add a primary key: ALTER TABLE ... ADD PRIMARY KEY USING INDEX ...";
		return true;
	}
	return false;
}

static void
set_replica_identity(Oid relid, char type, Oid index)
{
	AlterTableCmd *cmd = makeNode(AlterTableCmd);
	ReplicaIdentityStmt *stmt = makeNode(ReplicaIdentityStmt);

	stmt->identity_type = type;
	if (type == REPLICA_IDENTITY_INDEX)
		stmt->name = get_rel_name(index);
	cmd->subtype = AT_ReplicaIdentity;
	cmd->def = (Node *) stmt;
	AlterTableInternal(relid, list_make1(cmd), false);
	CommandCounterIncrement();
}

void
scdc_member_add(const ScdcRegistered *r, bool identity)
{
	Relation	rel = relation_open(r->relid, NoLock);
	ScdcMember	member = {
		.stream_id = r->stream_id,
		.relid = r->relid,
		.old_replica_identity = rel->rd_rel->relreplident,
	};
	bool		is_table = rel->rd_rel->relkind == RELKIND_RELATION;

	if (member.old_replica_identity == REPLICA_IDENTITY_INDEX)
		member.old_replica_index = RelationGetReplicaIndex(rel);
	relation_close(rel, NoLock);

	scdc_registry_insert(r);
	if (!is_table || !identity)
		return;
	scdc_member_insert(&member);
	if (member.old_replica_identity != REPLICA_IDENTITY_FULL)
		set_replica_identity(r->relid, REPLICA_IDENTITY_FULL, InvalidOid);
}

/*
 * A table whose own stream was given up may have become a partition of another
 * tracked table, or a copy of it be tracked anew.  That stream found it with
 * our REPLICA IDENTITY and gives the old one back, when its time comes.  False
 * if it is not so.
 */
static bool
bequeath(Oid relid, char type, Oid index)
{
	ScdcRegistered r;
	Snapshot	snapshot;
	ScdcMember *heir;

	if (!scdc_member_find(relid, &r))
		return false;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	heir = scdc_member_read(r.stream_id, relid, snapshot);
	UnregisterSnapshot(snapshot);
	if (heir == NULL)
		return false;
	if (heir->old_replica_identity == REPLICA_IDENTITY_FULL)
	{
		scdc_member_delete(heir);
		heir->old_replica_identity = type;
		heir->old_replica_index = index;
		scdc_member_insert(heir);
		CommandCounterIncrement();
	}
	return true;
}

void
scdc_member_give_back(Oid relid, char type, Oid index)
{
	LockRelationOid(relid, AccessExclusiveLock);
	if (get_rel_relkind(relid) != RELKIND_RELATION || bequeath(relid, type, index))
		return;					/* dropped, or captured still; or partitioned, and has none of ours */
	if (type == REPLICA_IDENTITY_INDEX && get_rel_name(index) == NULL)
		type = REPLICA_IDENTITY_DEFAULT;	/* the index was dropped meanwhile */
	if (type != REPLICA_IDENTITY_FULL)
		set_replica_identity(relid, type, index);
}

static void
release(const ScdcMember *member)
{
	scdc_member_delete(member);
	scdc_member_give_back(member->relid, member->old_replica_identity, member->old_replica_index);
}

void
scdc_member_remove(int64 stream_id, Oid relid, bool keep_identity)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScdcMember *member = scdc_member_read(stream_id, relid, snapshot);

	UnregisterSnapshot(snapshot);
	scdc_registry_delete(relid);
	CommandCounterIncrement();
	if (member && keep_identity)
		scdc_member_delete(member);
	else if (member)
		release(member);
}

/* Takes the registry rows away, and gives those of streamcdc.members. */
static List *
unregister(int64 stream_id)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	List	   *members = scdc_member_list(stream_id, snapshot);

	UnregisterSnapshot(snapshot);
	scdc_registry_delete_stream(stream_id);
	CommandCounterIncrement();
	return members;
}

void
scdc_members_remove(int64 stream_id)
{
	ListCell   *lc;
	List	   *members = unregister(stream_id);

	foreach(lc, members)
		release(lfirst(lc));
}

void
scdc_members_forget(int64 stream_id)
{
	ListCell   *lc;
	List	   *members = unregister(stream_id);

	foreach(lc, members)
		scdc_member_delete(lfirst(lc));
}

ScdcSchema *
scdc_member_schema(Relation rel, const ScdcStream *stream, AttrMap **map)
{
	Relation	root = RelationIdGetRelation(stream->relid);
	ScdcSchema *schema;

	if (!RelationIsValid(root))
		elog(ERROR, "tracked table %u does not exist", stream->relid);
	schema = scdc_schema_of_relation(root, stream->stream_id, stream->identity, stream->nidentity);
	*map = scdc_image_map(rel, root);
	RelationClose(root);
	return schema;
}

bool
scdc_registry_exists(void)
{
	return OidIsValid(scdc_table_oid(SCDC_REGISTRY)) && OidIsValid(scdc_index_oid("registry_relid")) &&
		OidIsValid(scdc_index_oid("registry_stream")) &&
		OidIsValid(scdc_table_oid(SCDC_MEMBERS)) && OidIsValid(scdc_index_oid("members_id")) &&
		OidIsValid(scdc_table_oid(SCDC_STREAMS)) && OidIsValid(scdc_index_oid("streams_relid"));
}

bool
scdc_member_find(Oid relid, ScdcRegistered *r)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	bool		found = scdc_registry_lookup(relid, snapshot, r);

	UnregisterSnapshot(snapshot);
	return found;
}
