/*-------------------------------------------------------------------------
 *
 * api_track.c
 *	  stream_track, stream_untrack, stream_alter, stream_sync.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/pg_lsn.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "capture/baseline.h"
#include "capture/capture.h"
#include "capture/decode.h"
#include "capture/wait.h"
#include "clock.h"
#include "ddl/members.h"
#include "guc.h"
#include "hooks.h"
#include "log/catalog.h"
#include "log/changelog.h"
#include "log/definition.h"
#include "log/rows.h"
#include "log/schema.h"
#include "retention/maintenance.h"
#include "retention/vacuum.h"
#include "shmem.h"
#include "sql/resolve.h"

PG_FUNCTION_INFO_V1(streamcdc_track);
PG_FUNCTION_INFO_V1(streamcdc_untrack);
PG_FUNCTION_INFO_V1(streamcdc_alter);
PG_FUNCTION_INFO_V1(streamcdc_sync);

static void not_tracked(Oid relid, const char *name) pg_attribute_noreturn();

static void
not_tracked(Oid relid, const char *name)
{
	ScdcRegistered r;

	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("table \"%s\" is not tracked", name),
			 errdetail("Error condition: %s.", "UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION"),
			 scdc_member_find(relid, &r) ?
			 errhint("It is captured through \"%s\", which is tracked.", scdc_relation_name(r.root)) : 0));
}

/* Refuses what cannot be tracked, before any lock is taken. */
static void
check_kind(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Form_pg_class form;
	char	   *name;
	char		relkind,
				persistence;
	Oid			nsp;

	if (!HeapTupleIsValid(tuple))
		scdc_undefined_relation(relid);
	form = (Form_pg_class) GETSTRUCT(tuple);
	name = pstrdup(NameStr(form->relname));
	relkind = form->relkind;
	persistence = form->relpersistence;
	nsp = form->relnamespace;
	ReleaseSysCache(tuple);

	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot track \"%s\"", name),
				 errdetail_relkind_not_supported(relkind)));
	if (IsCatalogRelationOid(relid) || IsCatalogNamespace(nsp) || relid < FirstNormalObjectId)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot track \"%s\"", name),
				 errdetail("System catalogs cannot be tracked.")));
	if (nsp == get_namespace_oid("streamcdc", true))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot track \"%s\"", name),
				 errdetail("Tables of extension \"streamcdc\" cannot be tracked.")));
	if (persistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot track table \"%s\"", name),
				 persistence == RELPERSISTENCE_TEMP ?
				 errdetail("Temporary tables are not written to WAL.") :
				 errdetail("Unlogged tables are not written to WAL."),
				 persistence == RELPERSISTENCE_TEMP ? 0 :
				 errhint("ALTER TABLE %s SET LOGGED;", quote_identifier(name))));
}

static void
check_columns(Relation rel)
{
	static const char *const reserved[] = {"_change_type", "_commit_version", "_commit_timestamp"};

	for (int i = 0; i < (int) lengthof(reserved); i++)
		if (get_attnum(RelationGetRelid(rel), reserved[i]) != InvalidAttrNumber)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot track table \"%s\"", RelationGetRelationName(rel)),
					 errdetail("It has a column named \"%s\", which is the name of a change-feed column.", reserved[i]),
					 errhint("Rename the column.")));
}

/* Attribute numbers of the identity columns that the caller named. */
static int
named_columns(Relation rel, ArrayType *columns, AttrNumber *result)
{
	Datum	   *elems;
	bool	   *nulls;
	int			n;

	if (ARR_NDIM(columns) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("identity columns must be a one-dimensional array")));
	deconstruct_array(columns, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR, &elems, &nulls, &n);
	if (n == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("identity columns must not be empty"),
				 errhint("Leave the argument out to use the primary key.")));
	if (n > INDEX_MAX_KEYS)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("more than %d identity columns", INDEX_MAX_KEYS)));
	for (int i = 0; i < n; i++)
	{
		char	   *name;

		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("identity columns must not be null")));
		name = NameStr(*DatumGetName(elems[i]));
		result[i] = get_attnum(RelationGetRelid(rel), name);
		if (result[i] <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
					 errmsg("column \"%s\" of table \"%s\" does not exist", name, RelationGetRelationName(rel))));
		for (int j = 0; j < i; j++)
			if (result[j] == result[i])
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("column \"%s\" is named twice as an identity column", name)));
	}
	return n;
}

/*
 * Chooses the columns that identify a row: those asked for, else the primary
 * key, else the replica identity index, else none.
 */
static void
choose_identity(Relation rel, ArrayType *columns, ScdcStream *stream)
{
	if (columns)
	{
		stream->nidentity = named_columns(rel, columns, stream->identity);
		stream->identity_index = scdc_identity_index(rel, stream->identity, stream->nidentity);
		if (!OidIsValid(stream->identity_index))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
					 errmsg("there is no unique index on the identity columns of table \"%s\"",
							RelationGetRelationName(rel)),
					 errhint("Name exactly the columns of a valid unique index without WHERE clause and expressions, which compares them as the columns themselves do.")));
		return;
	}
	stream->identity_index = scdc_primary_key(rel);
	if (!OidIsValid(stream->identity_index) && rel->rd_rel->relreplident == REPLICA_IDENTITY_INDEX)
		stream->identity_index = RelationGetReplicaIndex(rel);
	if (!OidIsValid(stream->identity_index) ||
		!scdc_index_identity(stream->identity_index, stream->identity, &stream->nidentity))
	{
		stream->identity_index = InvalidOid;
		stream->nidentity = 0;
	}
}

/*
 * Can the table and what is below it be captured, and is nothing of it
 * captured already?  Gives how much of existing rows there is.
 */
static uint64
check_members(Relation root, List *members)
{
	ListCell   *lc;
	uint64		bytes = 0;

	foreach(lc, members)
	{
		Relation	rel = relation_open(lfirst_oid(lc), NoLock);
		bool		is_root = RelationGetRelid(rel) == RelationGetRelid(root);
		ScdcObstacle obstacle;
		ScdcRegistered r;

		if (!is_root)
			scdc_must_be_owner(RelationGetRelid(rel));
		if (scdc_member_obstacle(rel, !is_root, &obstacle))
			ereport(ERROR,
					(errcode(obstacle.sqlerrcode),
					 errmsg("cannot track table \"%s\"", RelationGetRelationName(root)),
					 errdetail_internal("%s", obstacle.detail),
					 obstacle.hint ? errhint("%s", obstacle.hint) : 0));
		if (scdc_member_find(RelationGetRelid(rel), &r) && !(is_root && r.root == r.relid))
		{
			/* below a tracked table, or above one */
			char	   *tracked = scdc_relation_name(r.root);

			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_OBJECT),
					 is_root ? errmsg("table \"%s\" is already tracked through \"%s\"", RelationGetRelationName(root), tracked) :
					 errmsg("partition \"%s\" of table \"%s\" is already tracked", tracked, RelationGetRelationName(root)),
					 errdetail("A table cannot be tracked both by itself and through a partitioned table."),
					 is_root ? errhint("Its changes are among those of \"%s\".", tracked) :
					 errhint("SELECT stream_untrack(%s);", quote_literal_cstr(tracked))));
		}
		if (RELKIND_HAS_STORAGE(rel->rd_rel->relkind))
			bytes += (uint64) RelationGetNumberOfBlocks(rel) * BLCKSZ;
		relation_close(rel, NoLock);
	}
	return bytes;
}

/* The word as it is stored; NULL for a NULL argument. */
static char *
on_truncate_arg(FunctionCallInfo fcinfo, int arg)
{
	static const char *const words[] = {"delete", "forbid", "gap"};
	char	   *word;

	if (PG_ARGISNULL(arg))
		return NULL;
	word = text_to_cstring(PG_GETARG_TEXT_PP(arg));
	for (int i = 0; i < (int) lengthof(words); i++)
		if (pg_strcasecmp(word, words[i]) == 0)
			return pstrdup(words[i]);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized value for on_truncate: \"%s\"", word),
			 errhint("Accepted values are \"delete\", \"forbid\" and \"gap\".")));
}

/* NULL for a NULL argument. */
static Interval *
retention_arg(FunctionCallInfo fcinfo, int arg)
{
	Interval   *retention = PG_ARGISNULL(arg) ? NULL : PG_GETARG_INTERVAL_P(arg);
	Interval	zero = {0};

	if (retention &&
		DatumGetBool(DirectFunctionCall2(interval_lt, IntervalPGetDatum(retention), IntervalPGetDatum(&zero))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("retention must not be negative")));
	return retention;
}

/*
 * In a copy of a database in which tables were tracked, what it says of its
 * slot and of what is captured is about the other one.
 */
static void
forget_origin(Snapshot snapshot)
{
	ScdcSlot   *slot = scdc_slot_read(snapshot);
	ListCell   *lc;

	foreach(lc, scdc_stream_list(snapshot))
	{
		ScdcStream *s = lfirst(lc);

		if (s->state == SCDC_STATE_INERT)
			scdc_registry_delete_stream(s->stream_id);
	}
	if (slot && scdc_slot_is_foreign(slot))
		scdc_slot_forget();
	CommandCounterIncrement();
}

/* An inert stream ends here; the last version it has given out is known then. */
static void
end_inert(ScdcStream *s, Snapshot snapshot)
{
	ScdcBlockInfo last;

	scdc_definition_delete(s->home, s->stream_id);
	if (s->is_definition)
		return;
	s->last_version = scdc_changelog_last(s->stream_id, snapshot, &last) ? last.last_version : s->base_version;
	s->state = SCDC_STATE_UNTRACKED;
	scdc_stream_delete_log(s->stream_id, snapshot);
	scdc_stream_replace(s);
}

/* What tables of an ended inert stream had before its home tracked them, as far as that is known here. */
static void
give_back_identity(const ScdcStream *s)
{
	if (s->is_definition)
		scdc_member_give_back(s->relid, s->old_replica_identity, s->old_replica_index);
	else
		scdc_members_remove(s->stream_id);
}

static void
check_server(void)
{
	scdc_require_preload();
	if (!XLogLogicalInfoActive())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("logical decoding is not enabled"),
				 errhint("Set \"wal_level\" to \"logical\" and restart the server.")));
	if (atoi(GetConfigOption("server_version_num", false, false)) < 150013)
		ereport(WARNING,
				(errmsg("this server version can lose changes in logical decoding"),
				 errhint("Update to PostgreSQL 15.13 or later.")));
}

/*
 * stream_track(table_name, identity_columns, baseline, retention, on_truncate)
 *
 * Begins to capture a table, from this transaction's commit on (api.md
 * section 1).  Takes ACCESS EXCLUSIVE on the table until then.
 */
Datum
streamcdc_track(PG_FUNCTION_ARGS)
{
	Oid			relid;
	ArrayType  *columns = PG_ARGISNULL(1) ? NULL : PG_GETARG_ARRAYTYPE_P(1);
	Relation	rel,
				registry;
	Snapshot	snapshot;
	List	   *members;
	ListCell   *lc;
	ScdcStream	stream = {0},
			   *before;
	uint64		bytes;
	bool		adopted,
				is_partitioned;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("table_name must not be null")));
	relid = PG_GETARG_OID(0);
	PreventCommandDuringRecovery("stream_track()");
	PreventCommandIfReadOnly("stream_track()");
	check_server();
	check_kind(relid);
	scdc_must_be_owner(relid);

	stream.baseline = PG_ARGISNULL(2) ? true : PG_GETARG_BOOL(2);
	stream.retention = retention_arg(fcinfo, 3);
	stream.on_truncate = on_truncate_arg(fcinfo, 4);
	if (stream.on_truncate == NULL)
		stream.on_truncate = pstrdup("delete");

	members = scdc_members_lock(relid);
	rel = try_relation_open(relid, NoLock);
	if (rel == NULL)
		scdc_undefined_relation(relid);
	/* things may have changed while we waited */
	check_kind(relid);
	scdc_must_be_owner(relid);
	check_columns(rel);
	choose_identity(rel, columns, &stream);

	/* until our transaction ends, this keeps a worker with nothing to do from ending */
	registry = scdc_table_open(SCDC_REGISTRY, RowExclusiveLock);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	forget_origin(snapshot);
	UnregisterSnapshot(snapshot);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	before = scdc_stream_by_relid(relid, snapshot);
	adopted = before && before->state == SCDC_STATE_INERT;
	if (adopted)
		end_inert(before, snapshot);
	else if (before && before->state != SCDC_STATE_UNTRACKED)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("table \"%s\" is already tracked", RelationGetRelationName(rel)),
				 scdc_stream_given_up(before) ?
				 errhint("Its change log has ended with a gap; call stream_untrack() first to begin anew.") : 0));
	UnregisterSnapshot(snapshot);
	bytes = check_members(rel, members);

	scdc_capture_ensure();

	stream.stream_id = nextval_internal(scdc_index_oid("stream_id_seq"), false);
	stream.relid = relid;
	stream.schema_name = get_namespace_name(RelationGetNamespace(rel));
	stream.table_name = pstrdup(RelationGetRelationName(rel));
	stream.owner = rel->rd_rel->relowner;
	stream.state = SCDC_STATE_LIVE;
	/* a version once seen never comes again: without a baseline the first commit is base_version + 1 */
	stream.base_version = before ? before->last_version + (stream.baseline ? 1 : 0) : 0;
	stream.tracked_xid = GetTopFullTransactionId();
	stream.tracked_at = GetCurrentTimestamp();
	stream.last_version = -1;
	is_partitioned = rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
	table_close(rel, NoLock);

	stream.home = scdc_home();
	scdc_stream_insert(&stream);
	foreach(lc, members)
	{
		ScdcRegistered r = {
			.relid = lfirst_oid(lc),
			.root = relid,
			.stream_id = stream.stream_id,
			.base_version = stream.base_version,
			.nidentity = stream.nidentity,
		};

		CHECK_FOR_INTERRUPTS();
		memcpy(r.identity, stream.identity, sizeof(r.identity));
		scdc_member_add(&r, true);
	}
	CommandCounterIncrement();

	/* the original's tracking has set REPLICA IDENTITY FULL, and the copy has it from there */
	if (adopted)
		give_back_identity(before);
	scdc_definition_insert(&stream);
	CommandCounterIncrement();
	scdc_emit_message();
	table_close(registry, NoLock);
	scdc_hooks_tracking(stream.baseline);
	if (stream.retention)
		scdc_hooks_retention();

	ereport(NOTICE,
			(is_partitioned ?
			 errmsg("the partitions of table \"%s\" have REPLICA IDENTITY FULL now, and are locked until this transaction ends",
					stream.table_name) :
			 errmsg("table \"%s\" has REPLICA IDENTITY FULL now, and is locked until this transaction ends",
					stream.table_name),
			 stream.baseline ?
			 errdetail("About %s of existing rows will be copied in the background.",
					   TextDatumGetCString(DirectFunctionCall1(pg_size_pretty, Int64GetDatum((int64) bytes)))) : 0));
	PG_RETURN_VOID();
}

/*
 * stream_untrack(table_name)
 *
 * Stops capturing a table at commit; its log is gone then, and the old
 * REPLICA IDENTITY is back (api.md section 1).
 */
Datum
streamcdc_untrack(PG_FUNCTION_ARGS)
{
	Oid			relid;
	Snapshot	snapshot;
	ScdcStream *stream;
	ScdcBlockInfo last;
	ScdcCaptureEntry *entry;
	Relation	registry;
	char	   *name;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("table_name must not be null")));
	relid = PG_GETARG_OID(0);
	PreventCommandDuringRecovery("stream_untrack()");
	PreventCommandIfReadOnly("stream_untrack()");
	scdc_require_preload();
	name = get_rel_name(relid);
	if (name == NULL)
		scdc_undefined_relation(relid);
	scdc_must_be_owner(relid);

	registry = scdc_table_open(SCDC_REGISTRY, RowExclusiveLock);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	stream = scdc_stream_by_relid(relid, snapshot);
	UnregisterSnapshot(snapshot);
	if (stream == NULL || stream->state == SCDC_STATE_UNTRACKED)
		not_tracked(relid, name);

	if (stream->state == SCDC_STATE_INERT)
	{
		/* nobody captures it */
		(void) scdc_members_lock(relid);
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		forget_origin(snapshot);
		end_inert(stream, snapshot);
		UnregisterSnapshot(snapshot);
		CommandCounterIncrement();
		give_back_identity(stream);
		table_close(registry, NoLock);
		PG_RETURN_VOID();
	}

	/* nobody removes versions from here on; that, and a copy under way, need not come to an end */
	scdc_maintenance_cancel();
	(void) scdc_vacuum_lock(stream->stream_id, ExclusiveLock, true);
	entry = scdc_entry_find(MyDatabaseId);
	if (entry)
		scdc_baseline_cancel(entry, stream->stream_id);
	(void) scdc_members_lock(relid);

	/*
	 * From here on nobody else can write the table.  Let capture take in what
	 * was written before, so that the last version is known and can never be
	 * given out again.  (Nobody has seen a version of a stream that this very
	 * transaction began.)
	 */
	if (stream->state == SCDC_STATE_LIVE)
	{
		char	   *reason;
		bool		complete = FullTransactionIdEquals(stream->tracked_xid, GetTopFullTransactionIdIfAny()) ||
		scdc_wait_captured(scdc_wal_target(), Max(scdc_read_timeout, 1000), &reason) == SCDC_WAIT_DONE;

		snapshot = RegisterSnapshot(GetLatestSnapshot());
		stream = scdc_stream_by_relid(relid, snapshot);
		if (stream == NULL || stream->state != SCDC_STATE_LIVE)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("table \"%s\" was untracked concurrently", name)));
		stream->last_version = scdc_changelog_last(stream->stream_id, snapshot, &last) ? last.last_version :
			stream->base_version;
		UnregisterSnapshot(snapshot);
		if (!complete)
			stream->last_version += 1000000;	/* beyond what capture may still write */
	}
	else
	{
		/* given up: its gap is its last version, and capture does not know it any more, so its log goes here */
		stream->last_version++;
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		scdc_stream_delete_log(stream->stream_id, snapshot);
		UnregisterSnapshot(snapshot);
	}

	stream->state = SCDC_STATE_UNTRACKED;
	scdc_stream_replace(stream);
	scdc_definition_delete(stream->home, stream->stream_id);
	scdc_members_remove(stream->stream_id);
	scdc_emit_message();
	table_close(registry, NoLock);
	PG_RETURN_VOID();
}

/*
 * stream_alter(table_name, retention, on_truncate)
 *
 * Changes what stream_track was told; NULL leaves a setting as it is.
 */
Datum
streamcdc_alter(PG_FUNCTION_ARGS)
{
	Oid			relid;
	Snapshot	snapshot;
	ScdcStream *stream;
	Interval   *retention = retention_arg(fcinfo, 1);
	char	   *on_truncate = on_truncate_arg(fcinfo, 2);
	char	   *name;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("table name must not be null")));
	relid = PG_GETARG_OID(0);
	PreventCommandDuringRecovery("stream_alter()");
	PreventCommandIfReadOnly("stream_alter()");
	name = get_rel_name(relid);
	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	scdc_must_be_owner(relid);

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	stream = scdc_stream_by_relid(relid, snapshot);
	UnregisterSnapshot(snapshot);
	if (stream == NULL || stream->state == SCDC_STATE_UNTRACKED)
		not_tracked(relid, name);
	if (retention)
		stream->retention = retention;
	if (on_truncate)
		stream->on_truncate = on_truncate;
	if (stream->state == SCDC_STATE_INERT)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is not captured in this database", name),
				 errdetail("What is tracked came with a copy of another database."),
				 errhint("Call stream_track first.")));
	if (retention || on_truncate)
	{
		scdc_stream_replace(stream);
		scdc_definition_update(stream);
		CommandCounterIncrement();
		if (retention)
			scdc_hooks_retention();
	}
	PG_RETURN_VOID();
}

/* Has the current transaction begun to track a table (and not rolled that back to a savepoint)? */
static bool
tracked_by_this_transaction(void)
{
	FullTransactionId xid = GetTopFullTransactionIdIfAny();
	Snapshot	snapshot;
	ListCell   *lc;
	bool		result = false;

	if (!FullTransactionIdIsValid(xid))
		return false;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	foreach(lc, scdc_stream_list(snapshot))
	{
		ScdcStream *s = lfirst(lc);

		if (s->state == SCDC_STATE_LIVE && FullTransactionIdEquals(s->tracked_xid, xid))
			result = true;
	}
	UnregisterSnapshot(snapshot);
	return result;
}

static bool
baselines_complete(char **table_name)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ListCell   *lc;
	bool		result = true;

	foreach(lc, scdc_stream_list(snapshot))
	{
		ScdcStream *s = lfirst(lc);

		if (s->state == SCDC_STATE_LIVE && !scdc_baseline_is_complete(s, snapshot))
		{
			*table_name = s->table_name;
			result = false;
			break;
		}
	}
	UnregisterSnapshot(snapshot);
	return result;
}

/* (The registry would not do: in a copied database it is the original's.) */
static bool
is_anything_captured(void)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ListCell   *lc;
	bool		result = false;

	foreach(lc, scdc_stream_list(snapshot))
		if (((ScdcStream *) lfirst(lc))->state == SCDC_STATE_LIVE)
			result = true;
	UnregisterSnapshot(snapshot);
	return result;
}

/*
 * stream_sync(timeout) returns pg_lsn
 *
 * Waits until everything committed before the call is in the log, and
 * baselines of tables tracked before it are complete (api.md section 1).
 */
Datum
streamcdc_sync(PG_FUNCTION_ARGS)
{
	XLogRecPtr	target;
	long		timeout = 10000;
	int64		give_up;
	char	   *reason;
	char	   *table_name = NULL;
	ScdcCaptureEntry *entry;

	scdc_require_preload();
	PreventCommandDuringRecovery("stream_sync()");
	if (!PG_ARGISNULL(0))
	{
		Interval   *i = PG_GETARG_INTERVAL_P(0);
		double		ms = (i->time + ((double) i->day + 30.0 * i->month) * USECS_PER_DAY) / 1000.0;

		if (ms < 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("timeout must not be negative")));
		timeout = ms > INT_MAX ? INT_MAX : (long) ms;
	}
	if (tracked_by_this_transaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("cannot wait for capture in the transaction that began to track a table"),
				 errhint("Commit first.")));

	target = scdc_wal_target();
	give_up = scdc_clock_ms() + timeout;
	if (!is_anything_captured())
		PG_RETURN_LSN(target);	/* nothing is missing */

	switch (scdc_wait_captured(target, timeout, &reason))
	{
		case SCDC_WAIT_DONE:
			break;
		case SCDC_WAIT_STALLED:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("capture is stalled"),
					 errdetail_internal("%s", reason)));
			break;
		case SCDC_WAIT_TIMEOUT:
			reason = scdc_launch_error();
			ereport(ERROR,
					(errcode(ERRCODE_QUERY_CANCELED),
					 errmsg("timed out while waiting for capture"),
					 reason ? errdetail("%s", reason) :
					 errdetail("Capture is " UINT64_FORMAT " bytes of WAL behind.",
							   target > scdc_captured_lsn() ? target - scdc_captured_lsn() : 0)));
			break;
	}

	entry = scdc_entry_get(MyDatabaseId);
	while (!baselines_complete(&table_name))
	{
		long		left = give_up - scdc_clock_ms();

		if (left <= 0)
		{
			reason = scdc_baseline_error(entry, 0);
			ereport(ERROR,
					(errcode(ERRCODE_QUERY_CANCELED),
					 errmsg("timed out while waiting for the baseline of table \"%s\"", table_name),
					 reason ? errdetail("%s", reason) :
					 errdetail("About " UINT64_FORMAT " of " UINT64_FORMAT " rows are copied.",
							   pg_atomic_read_u64(&entry->baseline_done), pg_atomic_read_u64(&entry->baseline_total))));
		}
		ConditionVariablePrepareToSleep(&entry->cv);
		if (!baselines_complete(&table_name))
			(void) ConditionVariableTimedSleep(&entry->cv, Min(left, 500), PG_WAIT_EXTENSION);
		ConditionVariableCancelSleep();
	}
	PG_RETURN_LSN(target);
}
