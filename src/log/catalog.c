/*-------------------------------------------------------------------------
 *
 * catalog.c
 *	  Streams, baselines and the registry as rows of our tables.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/pg_lsn.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

#include "log/catalog.h"
#include "log/changelog.h"
#include "log/definition.h"
#include "log/rows.h"
#include "log/schema.h"

/* columns of streamcdc.streams */
enum
{
	Anum_streams_stream_id = 1,
	Anum_streams_relid,
	Anum_streams_schema_name,
	Anum_streams_table_name,
	Anum_streams_owner,
	Anum_streams_state,
	Anum_streams_base_version,
	Anum_streams_baseline,
	Anum_streams_identity_attnums,
	Anum_streams_identity_index,
	Anum_streams_retention,
	Anum_streams_on_truncate,
	Anum_streams_tracked_xid,
	Anum_streams_tracked_at,
	Anum_streams_last_version,
	Anum_streams_reason,
	Anum_streams_home,
	Natts_streams = Anum_streams_home
};

/* columns of streamcdc.baselines */
enum
{
	Anum_baselines_stream_id = 1,
	Anum_baselines_attempt,
	Anum_baselines_snapshot,
	Anum_baselines_snapshot_time,
	Anum_baselines_complete,
	Anum_baselines_row_count,
	Natts_baselines = Anum_baselines_row_count
};

/* columns of streamcdc.missing_values */
enum
{
	Anum_missing_stream_id = 1,
	Anum_missing_attnum,
	Anum_missing_value,
	Natts_missing = Anum_missing_value
};

/* columns of streamcdc.slots */
enum
{
	Anum_slots_slot_name = 1,
	Anum_slots_system_identifier,
	Anum_slots_database_oid,
	Anum_slots_consistent_lsn,
	Anum_slots_created_at,
	Natts_slots = Anum_slots_created_at
};

/* columns of streamcdc.origins */
enum
{
	Anum_origins_id = 1,
	Anum_origins_since,
	Anum_origins_name,
	Natts_origins = Anum_origins_name
};

/* columns of streamcdc.positions */
enum
{
	Anum_positions_lsn = 1,
	Anum_positions_stored_at,
	Natts_positions = Anum_positions_stored_at
};

/* columns of streamcdc.registry */
enum
{
	Anum_registry_relid = 1,
	Anum_registry_root,
	Anum_registry_stream_id,
	Anum_registry_base_version,
	Anum_registry_identity_attnums,
	Natts_registry = Anum_registry_identity_attnums
};

/* columns of streamcdc.members */
enum
{
	Anum_members_stream_id = 1,
	Anum_members_relid,
	Anum_members_old_identity,
	Anum_members_old_index,
	Natts_members = Anum_members_old_index
};

static Datum
attnums_datum(const AttrNumber *attnums, int n)
{
	Datum		elems[INDEX_MAX_KEYS];

	for (int i = 0; i < n; i++)
		elems[i] = Int16GetDatum(attnums[i]);
	return PointerGetDatum(construct_array(elems, n, INT2OID, 2, true, TYPALIGN_SHORT));
}

/* attnums has room for INDEX_MAX_KEYS. */
static int
attnums_of_datum(Datum array, AttrNumber *attnums)
{
	Datum	   *elems;
	int			n;

	deconstruct_array(DatumGetArrayTypeP(array), INT2OID, 2, true, TYPALIGN_SHORT, &elems, NULL, &n);
	Assert(n <= INDEX_MAX_KEYS);
	for (int i = 0; i < n; i++)
		attnums[i] = DatumGetInt16(elems[i]);
	return n;
}

static void *
stream_of_row(HeapTuple tuple, Datum *values, bool *isnull)
{
	ScdcStream *s = palloc0(sizeof(ScdcStream));

	s->stream_id = DatumGetInt64(values[Anum_streams_stream_id - 1]);
	s->relid = DatumGetObjectId(values[Anum_streams_relid - 1]);
	s->schema_name = pstrdup(NameStr(*DatumGetName(values[Anum_streams_schema_name - 1])));
	s->table_name = pstrdup(NameStr(*DatumGetName(values[Anum_streams_table_name - 1])));
	s->owner = DatumGetObjectId(values[Anum_streams_owner - 1]);
	s->state = DatumGetChar(values[Anum_streams_state - 1]);
	s->base_version = DatumGetInt64(values[Anum_streams_base_version - 1]);
	s->baseline = DatumGetBool(values[Anum_streams_baseline - 1]);
	s->nidentity = attnums_of_datum(values[Anum_streams_identity_attnums - 1], s->identity);
	s->identity_index = DatumGetObjectId(values[Anum_streams_identity_index - 1]);
	if (!isnull[Anum_streams_retention - 1])
	{
		s->retention = palloc(sizeof(Interval));
		*s->retention = *DatumGetIntervalP(values[Anum_streams_retention - 1]);
	}
	s->on_truncate = TextDatumGetCString(values[Anum_streams_on_truncate - 1]);
	s->tracked_xid = DatumGetFullTransactionId(values[Anum_streams_tracked_xid - 1]);
	s->tracked_at = DatumGetTimestampTz(values[Anum_streams_tracked_at - 1]);
	s->last_version = isnull[Anum_streams_last_version - 1] ? -1 :
		DatumGetInt64(values[Anum_streams_last_version - 1]);
	if (!isnull[Anum_streams_reason - 1])
		s->reason = TextDatumGetCString(values[Anum_streams_reason - 1]);
	s->home = TextDatumGetCString(values[Anum_streams_home - 1]);
	if ((s->state == SCDC_STATE_LIVE || scdc_stream_given_up(s)) && strcmp(s->home, scdc_home()) != 0)
		s->state = SCDC_STATE_INERT;
	s->tid = tuple->t_self;
	return s;
}

ScdcStream *
scdc_stream_by_id(int64 stream_id, Snapshot snapshot)
{
	ScanKeyData key[1];

	ScanKeyInit(&key[0], Anum_streams_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	return scdc_rows_first(SCDC_STREAMS, "streams_id", 1, key, false, snapshot, stream_of_row);
}

Oid
scdc_stream_table_owner(const ScdcStream *stream)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(stream->relid));
	Oid			owner = stream->owner;

	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
		ReleaseSysCache(tuple);
	}
	return owner;
}

ScdcStream *
scdc_stream_by_relid(Oid relid, Snapshot snapshot)
{
	ScanKeyData key[1];
	ScdcStream *result = NULL;

	ScanKeyInit(&key[0], Anum_streams_relid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	result = scdc_rows_first(SCDC_STREAMS, "streams_relid", 1, key, true, snapshot, stream_of_row);
	if (result == NULL || result->state == SCDC_STATE_UNTRACKED || result->state == SCDC_STATE_DROPPED)
	{
		ScdcStream *inert = scdc_definition_inert(relid, snapshot);

		if (inert)
			return inert;
	}
	return result;
}

List *
scdc_stream_list(Snapshot snapshot)
{
	return scdc_rows_list(SCDC_STREAMS, "streams_id", 0, NULL, snapshot, stream_of_row);
}

bool
scdc_stream_any_dropped(Snapshot snapshot)
{
	ListCell   *lc;

	foreach(lc, scdc_stream_list(snapshot))
		if (((ScdcStream *) lfirst(lc))->state == SCDC_STATE_DROPPED)
			return true;
	return false;
}

void
scdc_stream_insert(const ScdcStream *s)
{
	Relation	rel = scdc_table_open(SCDC_STREAMS, RowExclusiveLock);
	Datum		values[Natts_streams];
	bool		isnull[Natts_streams] = {0};
	NameData	schema_name,
				table_name;

	namestrcpy(&schema_name, s->schema_name);
	namestrcpy(&table_name, s->table_name);
	values[Anum_streams_stream_id - 1] = Int64GetDatum(s->stream_id);
	values[Anum_streams_relid - 1] = ObjectIdGetDatum(s->relid);
	values[Anum_streams_schema_name - 1] = NameGetDatum(&schema_name);
	values[Anum_streams_table_name - 1] = NameGetDatum(&table_name);
	values[Anum_streams_owner - 1] = ObjectIdGetDatum(s->owner);
	values[Anum_streams_state - 1] = CharGetDatum(s->state);
	values[Anum_streams_base_version - 1] = Int64GetDatum(s->base_version);
	values[Anum_streams_baseline - 1] = BoolGetDatum(s->baseline);
	values[Anum_streams_identity_attnums - 1] = attnums_datum(s->identity, s->nidentity);
	values[Anum_streams_identity_index - 1] = ObjectIdGetDatum(s->identity_index);
	if (s->retention)
		values[Anum_streams_retention - 1] = IntervalPGetDatum(s->retention);
	else
		isnull[Anum_streams_retention - 1] = true;
	values[Anum_streams_on_truncate - 1] = CStringGetTextDatum(s->on_truncate);
	values[Anum_streams_tracked_xid - 1] = FullTransactionIdGetDatum(s->tracked_xid);
	values[Anum_streams_tracked_at - 1] = TimestampTzGetDatum(s->tracked_at);
	if (s->last_version < 0)
		isnull[Anum_streams_last_version - 1] = true;
	else
		values[Anum_streams_last_version - 1] = Int64GetDatum(s->last_version);
	if (s->reason)
		values[Anum_streams_reason - 1] = CStringGetTextDatum(s->reason);
	else
		isnull[Anum_streams_reason - 1] = true;
	values[Anum_streams_home - 1] = CStringGetTextDatum(s->home);
	Assert(s->state != SCDC_STATE_INERT && !s->is_definition);
	scdc_row_insert(rel, values, isnull);
	table_close(rel, NoLock);
}

void
scdc_stream_replace(const ScdcStream *s)
{
	Relation	rel = scdc_table_open(SCDC_STREAMS, RowExclusiveLock);
	ItemPointerData tid = s->tid;

	scdc_row_delete(rel, &tid);
	table_close(rel, NoLock);
	scdc_stream_insert(s);
}

static void *
baseline_of_row(HeapTuple tuple, Datum *values, bool *isnull)
{
	ScdcBaseline *b = palloc0(sizeof(ScdcBaseline));

	b->stream_id = DatumGetInt64(values[Anum_baselines_stream_id - 1]);
	b->attempt = DatumGetInt64(values[Anum_baselines_attempt - 1]);
	b->snapshot = TextDatumGetCString(values[Anum_baselines_snapshot - 1]);
	b->snapshot_time = DatumGetTimestampTz(values[Anum_baselines_snapshot_time - 1]);
	b->complete = DatumGetBool(values[Anum_baselines_complete - 1]);
	b->row_count = DatumGetInt64(values[Anum_baselines_row_count - 1]);
	b->tid = tuple->t_self;
	return b;
}

List *
scdc_baseline_list(int64 attempt, Snapshot snapshot)
{
	List	   *result = scdc_rows_list(SCDC_BASELINES, "baselines_id", 0, NULL, snapshot, baseline_of_row);
	ListCell   *lc;

	foreach(lc, result)
	{
		if (((ScdcBaseline *) lfirst(lc))->attempt != attempt)
			result = foreach_delete_current(result, lc);
	}
	return result;
}

ScdcBaseline *
scdc_baseline_read(int64 stream_id, Snapshot snapshot)
{
	ScanKeyData key[1];

	ScanKeyInit(&key[0], Anum_baselines_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	return scdc_rows_first(SCDC_BASELINES, "baselines_id", 1, key, false, snapshot, baseline_of_row);
}

bool
scdc_baseline_is_complete(const ScdcStream *stream, Snapshot snapshot)
{
	ScdcBaseline *baseline;

	if (!stream->baseline)
		return true;
	baseline = scdc_baseline_read(stream->stream_id, snapshot);
	return baseline != NULL && baseline->complete;
}

void
scdc_baseline_insert(const ScdcBaseline *b)
{
	Relation	rel = scdc_table_open(SCDC_BASELINES, RowExclusiveLock);
	Datum		values[Natts_baselines];
	bool		isnull[Natts_baselines] = {0};

	values[Anum_baselines_stream_id - 1] = Int64GetDatum(b->stream_id);
	values[Anum_baselines_attempt - 1] = Int64GetDatum(b->attempt);
	values[Anum_baselines_snapshot - 1] = CStringGetTextDatum(b->snapshot);
	values[Anum_baselines_snapshot_time - 1] = TimestampTzGetDatum(b->snapshot_time);
	values[Anum_baselines_complete - 1] = BoolGetDatum(b->complete);
	values[Anum_baselines_row_count - 1] = Int64GetDatum(b->row_count);
	scdc_row_insert(rel, values, isnull);
	table_close(rel, NoLock);
}

void
scdc_baseline_delete(const ScdcBaseline *b)
{
	Relation	rel = scdc_table_open(SCDC_BASELINES, RowExclusiveLock);
	ItemPointerData tid = b->tid;

	scdc_row_delete(rel, &tid);
	table_close(rel, NoLock);
}

static bool
take_name(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	*(char **) arg = TextDatumGetCString(values[Anum_origins_name - 1]);
	return false;
}

char *
scdc_origin_name(uint32 origin, XLogRecPtr lsn, Snapshot snapshot)
{
	ScanKeyData key[2];
	char	   *name = NULL;

	ScanKeyInit(&key[0], Anum_origins_id, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum((int32) origin));
	ScanKeyInit(&key[1], Anum_origins_since, BTLessEqualStrategyNumber, F_PG_LSN_LE, LSNGetDatum(lsn));
	scdc_rows_scan(SCDC_ORIGINS, "origins_id", 2, key, true, snapshot, take_name, &name);
	return name;
}

void
scdc_origin_note(uint32 origin, XLogRecPtr lsn, const char *name, Snapshot snapshot)
{
	char	   *known = scdc_origin_name(origin, lsn, snapshot);
	Relation	rel;
	Datum		values[Natts_origins];
	bool		isnull[Natts_origins] = {0};

	if (known && strcmp(known, name) == 0)
		return;
	rel = scdc_table_open(SCDC_ORIGINS, RowExclusiveLock);
	values[Anum_origins_id - 1] = Int32GetDatum((int32) origin);
	values[Anum_origins_since - 1] = LSNGetDatum(lsn);
	values[Anum_origins_name - 1] = CStringGetTextDatum(name);
	scdc_row_insert(rel, values, isnull);
	table_close(rel, NoLock);
}

static bool
take_value(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	*(char **) arg = TextDatumGetCString(values[Anum_missing_value - 1]);
	return false;
}

char *
scdc_missing_read(int64 stream_id, AttrNumber attnum, Snapshot snapshot)
{
	ScanKeyData key[2];
	char	   *value = NULL;

	ScanKeyInit(&key[0], Anum_missing_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	ScanKeyInit(&key[1], Anum_missing_attnum, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(attnum));
	scdc_rows_scan(SCDC_MISSING_VALUES, "missing_values_id", 2, key, false, snapshot, take_value, &value);
	return value;
}

void
scdc_missing_insert(int64 stream_id, AttrNumber attnum, const char *value)
{
	Relation	rel = scdc_table_open(SCDC_MISSING_VALUES, RowExclusiveLock);
	Datum		values[Natts_missing];
	bool		isnull[Natts_missing] = {0};

	values[Anum_missing_stream_id - 1] = Int64GetDatum(stream_id);
	values[Anum_missing_attnum - 1] = Int16GetDatum(attnum);
	values[Anum_missing_value - 1] = CStringGetTextDatum(value);
	scdc_row_insert(rel, values, isnull);
	table_close(rel, NoLock);
}

static void
delete_missing_values(int64 stream_id, Snapshot snapshot)
{
	ScanKeyData key[1];

	ScanKeyInit(&key[0], Anum_missing_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	(void) scdc_rows_delete(SCDC_MISSING_VALUES, "missing_values_id", 1, key, snapshot);
}

void
scdc_stream_delete_log(int64 stream_id, Snapshot snapshot)
{
	ScdcBaseline *baseline = scdc_baseline_read(stream_id, snapshot);
	ScdcBlockInfo last;

	if (scdc_changelog_last(stream_id, snapshot, &last))
		scdc_changelog_delete(stream_id);
	scdc_schema_delete(stream_id, 0);
	delete_missing_values(stream_id, snapshot);
	if (baseline)
		scdc_baseline_delete(baseline);
}

void
scdc_registry_insert(const ScdcRegistered *r)
{
	Relation	rel = scdc_table_open(SCDC_REGISTRY, RowExclusiveLock);
	Datum		values[Natts_registry];
	bool		isnull[Natts_registry] = {0};

	values[Anum_registry_relid - 1] = ObjectIdGetDatum(r->relid);
	values[Anum_registry_root - 1] = ObjectIdGetDatum(r->root);
	values[Anum_registry_stream_id - 1] = Int64GetDatum(r->stream_id);
	values[Anum_registry_base_version - 1] = Int64GetDatum(r->base_version);
	values[Anum_registry_identity_attnums - 1] = attnums_datum(r->identity, r->nidentity);
	scdc_row_insert(rel, values, isnull);
	table_close(rel, NoLock);
	CacheInvalidateRelcacheByRelid(r->relid);
}

/* Of a table that is being dropped there may be nothing left; then nobody has it in a cache either. */
static void
invalidate(Oid relid)
{
	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid)))
		CacheInvalidateRelcacheByRelid(relid);
}

static bool
delete_registered(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	ItemPointerData tid = tuple->t_self;

	scdc_row_delete(rel, &tid);
	invalidate(DatumGetObjectId(values[Anum_registry_relid - 1]));
	*(bool *) arg = true;
	return true;
}

bool
scdc_registry_delete(Oid relid)
{
	ScanKeyData key[1];
	bool		found = false;
	Relation	rel = scdc_table_open(SCDC_REGISTRY, RowExclusiveLock);

	ScanKeyInit(&key[0], Anum_registry_relid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scdc_rows_scan(SCDC_REGISTRY, "registry_relid", 1, key, false, NULL, delete_registered, &found);
	table_close(rel, NoLock);
	return found;
}

void
scdc_registry_delete_stream(int64 stream_id)
{
	ScanKeyData key[1];
	bool		found = false;
	Relation	rel = scdc_table_open(SCDC_REGISTRY, RowExclusiveLock);

	ScanKeyInit(&key[0], Anum_registry_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	scdc_rows_scan(SCDC_REGISTRY, "registry_stream", 1, key, false, NULL, delete_registered, &found);
	table_close(rel, NoLock);
}

static bool
read_registered(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	ScdcRegistered *r = arg;

	r->relid = DatumGetObjectId(values[Anum_registry_relid - 1]);
	r->root = DatumGetObjectId(values[Anum_registry_root - 1]);
	r->stream_id = DatumGetInt64(values[Anum_registry_stream_id - 1]);
	r->base_version = DatumGetInt64(values[Anum_registry_base_version - 1]);
	r->nidentity = attnums_of_datum(values[Anum_registry_identity_attnums - 1], r->identity);
	return false;
}

bool
scdc_registry_lookup(Oid relid, Snapshot snapshot, ScdcRegistered *registered)
{
	ScanKeyData key[1];

	memset(registered, 0, sizeof(*registered));
	ScanKeyInit(&key[0], Anum_registry_relid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scdc_rows_scan(SCDC_REGISTRY, "registry_relid", 1, key, false, snapshot, read_registered, registered);
	return OidIsValid(registered->relid);
}

static bool
append_registered(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	List	  **list = arg;

	*list = lappend_oid(*list, DatumGetObjectId(values[Anum_registry_relid - 1]));
	return true;
}

List *
scdc_registry_members(int64 stream_id, Snapshot snapshot)
{
	ScanKeyData key[1];
	List	   *result = NIL;

	ScanKeyInit(&key[0], Anum_registry_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	scdc_rows_scan(SCDC_REGISTRY, "registry_stream", 1, key, false, snapshot, append_registered, &result);
	return result;
}

bool
scdc_registry_is_empty(Snapshot snapshot)
{
	ScdcRegistered r = {0};

	scdc_rows_scan(SCDC_REGISTRY, NULL, 0, NULL, false, snapshot, read_registered, &r);
	return !OidIsValid(r.relid);
}

void
scdc_member_insert(const ScdcMember *p)
{
	Relation	rel = scdc_table_open(SCDC_MEMBERS, RowExclusiveLock);
	Datum		values[Natts_members];
	bool		isnull[Natts_members] = {0};

	values[Anum_members_stream_id - 1] = Int64GetDatum(p->stream_id);
	values[Anum_members_relid - 1] = ObjectIdGetDatum(p->relid);
	values[Anum_members_old_identity - 1] = CharGetDatum(p->old_replica_identity);
	values[Anum_members_old_index - 1] = ObjectIdGetDatum(p->old_replica_index);
	scdc_row_insert(rel, values, isnull);
	table_close(rel, NoLock);
}

void
scdc_member_delete(const ScdcMember *p)
{
	Relation	rel = scdc_table_open(SCDC_MEMBERS, RowExclusiveLock);
	ItemPointerData tid = p->tid;

	scdc_row_delete(rel, &tid);
	table_close(rel, NoLock);
}

static void *
member_of_row(HeapTuple tuple, Datum *values, bool *isnull)
{
	ScdcMember *p = palloc0(sizeof(ScdcMember));

	p->stream_id = DatumGetInt64(values[Anum_members_stream_id - 1]);
	p->relid = DatumGetObjectId(values[Anum_members_relid - 1]);
	p->old_replica_identity = DatumGetChar(values[Anum_members_old_identity - 1]);
	p->old_replica_index = DatumGetObjectId(values[Anum_members_old_index - 1]);
	p->tid = tuple->t_self;
	return p;
}

List *
scdc_member_list(int64 stream_id, Snapshot snapshot)
{
	ScanKeyData key[1];

	ScanKeyInit(&key[0], Anum_members_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	return scdc_rows_list(SCDC_MEMBERS, "members_id", 1, key, snapshot, member_of_row);
}

ScdcMember *
scdc_member_read(int64 stream_id, Oid relid, Snapshot snapshot)
{
	ScanKeyData key[2];

	ScanKeyInit(&key[0], Anum_members_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	ScanKeyInit(&key[1], Anum_members_relid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	return scdc_rows_first(SCDC_MEMBERS, "members_id", 2, key, false, snapshot, member_of_row);
}

static void *
slot_of_row(HeapTuple tuple, Datum *values, bool *isnull)
{
	ScdcSlot   *s = palloc0(sizeof(ScdcSlot));

	s->slot_name = pstrdup(NameStr(*DatumGetName(values[Anum_slots_slot_name - 1])));
	s->system_identifier = TextDatumGetCString(values[Anum_slots_system_identifier - 1]);
	s->database_oid = DatumGetObjectId(values[Anum_slots_database_oid - 1]);
	s->consistent_lsn = DatumGetLSN(values[Anum_slots_consistent_lsn - 1]);
	s->created_at = DatumGetTimestampTz(values[Anum_slots_created_at - 1]);
	return s;
}

ScdcSlot *
scdc_slot_read(Snapshot snapshot)
{
	return scdc_rows_first(SCDC_SLOTS, NULL, 0, NULL, false, snapshot, slot_of_row);
}

void
scdc_slot_insert(const ScdcSlot *s)
{
	Relation	rel = scdc_table_open(SCDC_SLOTS, RowExclusiveLock);
	Datum		values[Natts_slots];
	bool		isnull[Natts_slots] = {0};
	NameData	name;

	namestrcpy(&name, s->slot_name);
	values[Anum_slots_slot_name - 1] = NameGetDatum(&name);
	values[Anum_slots_system_identifier - 1] = CStringGetTextDatum(s->system_identifier);
	values[Anum_slots_database_oid - 1] = ObjectIdGetDatum(s->database_oid);
	values[Anum_slots_consistent_lsn - 1] = LSNGetDatum(s->consistent_lsn);
	values[Anum_slots_created_at - 1] = TimestampTzGetDatum(s->created_at);
	scdc_row_insert(rel, values, isnull);
	table_close(rel, NoLock);
}

char *
scdc_system_identifier(void)
{
	return psprintf(UINT64_FORMAT, GetSystemIdentifier());
}

bool
scdc_slot_is_foreign(const ScdcSlot *slot)
{
	return slot->database_oid != MyDatabaseId || strcmp(slot->system_identifier, scdc_system_identifier()) != 0;
}

static bool
read_position(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	*(XLogRecPtr *) arg = DatumGetLSN(values[Anum_positions_lsn - 1]);
	return false;
}

XLogRecPtr
scdc_position_read(Snapshot snapshot)
{
	XLogRecPtr	result = InvalidXLogRecPtr;

	scdc_rows_scan(SCDC_POSITIONS, "positions_lsn", 0, NULL, true, snapshot, read_position, &result);
	return result;
}

void
scdc_position_insert(Relation positions, XLogRecPtr lsn)
{
	Datum		values[Natts_positions];
	bool		isnull[Natts_positions] = {0};

	values[Anum_positions_lsn - 1] = LSNGetDatum(lsn);
	values[Anum_positions_stored_at - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	scdc_row_insert(positions, values, isnull);
}

void
scdc_position_trim(XLogRecPtr lsn)
{
	ScanKeyData key[1];

	ScanKeyInit(&key[0], Anum_positions_lsn, BTLessStrategyNumber, F_PG_LSN_LT, LSNGetDatum(lsn));
	(void) scdc_rows_delete(SCDC_POSITIONS, "positions_lsn", 1, key, NULL);
}

void
scdc_slot_forget(void)
{
	(void) scdc_rows_delete(SCDC_SLOTS, NULL, 0, NULL, NULL);
	(void) scdc_rows_delete(SCDC_POSITIONS, NULL, 0, NULL, NULL);
}
