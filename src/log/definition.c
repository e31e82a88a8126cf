/*-------------------------------------------------------------------------
 *
 * definition.c
 *	  What is tracked, as a dump takes it along (see definition.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "log/definition.h"
#include "log/rows.h"

/* columns of streamcdc.definitions */
enum
{
	Anum_definitions_home = 1,
	Anum_definitions_stream_id,
	Anum_definitions_schema_name,
	Anum_definitions_table_name,
	Anum_definitions_identity_columns,
	Anum_definitions_baseline,
	Anum_definitions_retention,
	Anum_definitions_on_truncate,
	Anum_definitions_old_identity,
	Anum_definitions_old_index,
	Anum_definitions_last_version,
	Natts_definitions = Anum_definitions_last_version
};

/* How far ahead of a version the next row is. */
#define REACH_MIN	1000

char *
scdc_home(void)
{
	return psprintf("%s/%u/%u", scdc_system_identifier(), MyDatabaseId, scdc_table_oid(SCDC_REGISTRY));
}

static Datum
column_names(const ScdcStream *stream)
{
	Datum		names[INDEX_MAX_KEYS];

	for (int i = 0; i < stream->nidentity; i++)
		names[i] = DirectFunctionCall1(namein, CStringGetDatum(get_attname(stream->relid, stream->identity[i], false)));
	return PointerGetDatum(construct_array(names, stream->nidentity, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR));
}

static void
insert_row(Datum *values, bool *isnull)
{
	Relation	rel = scdc_table_open(SCDC_DEFINITIONS, RowExclusiveLock);

	scdc_row_insert(rel, values, isnull);
	table_close(rel, NoLock);
}

/* Versions of a stream that has reached this one are below the result for a while. */
static int64
next_reach(int64 version)
{
	return version + Max(version, REACH_MIN);
}

void
scdc_definition_insert(const ScdcStream *s)
{
	Datum		values[Natts_definitions];
	bool		isnull[Natts_definitions] = {0};
	NameData	schema_name,
				table_name,
				index_name;
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScdcMember *member = scdc_member_read(s->stream_id, s->relid, snapshot);	/* NULL: partitioned */
	char	   *index = member ? get_rel_name(member->old_replica_index) : NULL;

	UnregisterSnapshot(snapshot);

	namestrcpy(&schema_name, s->schema_name);
	namestrcpy(&table_name, s->table_name);
	values[Anum_definitions_home - 1] = CStringGetTextDatum(scdc_home());
	values[Anum_definitions_stream_id - 1] = Int64GetDatum(s->stream_id);
	values[Anum_definitions_schema_name - 1] = NameGetDatum(&schema_name);
	values[Anum_definitions_table_name - 1] = NameGetDatum(&table_name);
	values[Anum_definitions_identity_columns - 1] = column_names(s);
	values[Anum_definitions_baseline - 1] = BoolGetDatum(s->baseline);
	if (s->retention)
		values[Anum_definitions_retention - 1] = IntervalPGetDatum(s->retention);
	else
		isnull[Anum_definitions_retention - 1] = true;
	values[Anum_definitions_on_truncate - 1] = CStringGetTextDatum(s->on_truncate);
	values[Anum_definitions_old_identity - 1] = CharGetDatum(member ? member->old_replica_identity : REPLICA_IDENTITY_DEFAULT);
	if (index)
	{
		namestrcpy(&index_name, index);
		values[Anum_definitions_old_index - 1] = NameGetDatum(&index_name);
	}
	else
		isnull[Anum_definitions_old_index - 1] = true;
	values[Anum_definitions_last_version - 1] = Int64GetDatum(next_reach(s->base_version));
	insert_row(values, isnull);
}

static void
scan_stream(int64 stream_id, Snapshot snapshot, ScdcRowFn fn, void *arg)
{
	ScanKeyData key[1];

	ScanKeyInit(&key[0], Anum_definitions_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	scdc_rows_scan(SCDC_DEFINITIONS, "definitions_stream", 1, key, false, snapshot, fn, arg);
}

/* The rows of a stream of this home. */
typedef struct Own
{
	char	   *home;
	TupleDesc	desc;
	HeapTuple	newest;			/* the one with the greatest version; NULL: none */
	int64		last_version;
} Own;

static bool
find_newest(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	Own		   *own = arg;
	int64		version = DatumGetInt64(values[Anum_definitions_last_version - 1]);

	if (strcmp(TextDatumGetCString(values[Anum_definitions_home - 1]), own->home) != 0 ||
		(own->newest && own->last_version >= version))
		return true;
	own->desc = CreateTupleDescCopy(RelationGetDescr(rel));
	own->newest = heap_copytuple(tuple);
	own->last_version = version;
	return true;
}

int64
scdc_definition_reach(int64 stream_id, int64 version)
{
	Own			own = {.home = scdc_home()};
	Datum		values[Natts_definitions];
	bool		isnull[Natts_definitions];
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

	scan_stream(stream_id, snapshot, find_newest, &own);
	UnregisterSnapshot(snapshot);

	/* without a row it has been untracked by now, and nobody will ask */
	if (own.newest == NULL)
		return PG_INT64_MAX;
	if (own.last_version > version)
		return own.last_version;
	heap_deform_tuple(own.newest, own.desc, values, isnull);
	own.last_version = next_reach(version);
	values[Anum_definitions_last_version - 1] = Int64GetDatum(own.last_version);
	insert_row(values, isnull);
	return own.last_version;
}

static bool
delete_own(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	ItemPointerData tid = tuple->t_self;

	if (strcmp(TextDatumGetCString(values[Anum_definitions_home - 1]), arg) == 0)
		scdc_row_delete(rel, &tid);
	return true;
}

void
scdc_definition_delete(const char *home, int64 stream_id)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

	scan_stream(stream_id, snapshot, delete_own, unconstify(char *, home));
	UnregisterSnapshot(snapshot);
}

void
scdc_definition_update(const ScdcStream *stream)
{
	Own			own = {.home = scdc_home()};
	Datum		values[Natts_definitions];
	bool		isnull[Natts_definitions];
	NameData	schema_name,
				table_name;
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

	scan_stream(stream->stream_id, snapshot, find_newest, &own);
	UnregisterSnapshot(snapshot);
	if (own.newest == NULL)
		return;
	heap_deform_tuple(own.newest, own.desc, values, isnull);
	namestrcpy(&schema_name, stream->schema_name);
	namestrcpy(&table_name, stream->table_name);
	values[Anum_definitions_schema_name - 1] = NameGetDatum(&schema_name);
	values[Anum_definitions_table_name - 1] = NameGetDatum(&table_name);
	isnull[Anum_definitions_retention - 1] = stream->retention == NULL;
	if (stream->retention)
		values[Anum_definitions_retention - 1] = IntervalPGetDatum(stream->retention);
	values[Anum_definitions_on_truncate - 1] = CStringGetTextDatum(stream->on_truncate);
	scdc_definition_delete(own.home, stream->stream_id);
	insert_row(values, isnull);
}

/* ---- streams of another home ---- */

typedef struct Inert
{
	char	   *home;			/* ours */
	char	   *schema_name;	/* of the table looked for; NULL: all that exist */
	Snapshot	snapshot;
	List	   *streams;
} Inert;

/* False if the table is not there. */
static bool
stream_of_row(Datum *values, bool *isnull, ScdcStream *s)
{
	Oid			nsp;
	Datum	   *names;

	s->home = TextDatumGetCString(values[Anum_definitions_home - 1]);
	s->stream_id = DatumGetInt64(values[Anum_definitions_stream_id - 1]);
	s->schema_name = pstrdup(NameStr(*DatumGetName(values[Anum_definitions_schema_name - 1])));
	s->table_name = pstrdup(NameStr(*DatumGetName(values[Anum_definitions_table_name - 1])));
	nsp = get_namespace_oid(s->schema_name, true);
	s->relid = OidIsValid(nsp) ? get_relname_relid(s->table_name, nsp) : InvalidOid;
	if (!OidIsValid(s->relid))
		return false;
	s->state = SCDC_STATE_INERT;
	s->is_definition = true;
	s->baseline = DatumGetBool(values[Anum_definitions_baseline - 1]);
	deconstruct_array(DatumGetArrayTypeP(values[Anum_definitions_identity_columns - 1]), NAMEOID, NAMEDATALEN, false,
					  TYPALIGN_CHAR, &names, NULL, &s->nidentity);
	s->nidentity = Min(s->nidentity, INDEX_MAX_KEYS);
	for (int i = 0; i < s->nidentity; i++)
		s->identity[i] = get_attnum(s->relid, NameStr(*DatumGetName(names[i])));
	if (!isnull[Anum_definitions_retention - 1])
	{
		s->retention = palloc(sizeof(Interval));
		*s->retention = *DatumGetIntervalP(values[Anum_definitions_retention - 1]);
	}
	s->on_truncate = TextDatumGetCString(values[Anum_definitions_on_truncate - 1]);
	s->old_replica_identity = DatumGetChar(values[Anum_definitions_old_identity - 1]);
	if (!isnull[Anum_definitions_old_index - 1])
		s->old_replica_index = get_relname_relid(NameStr(*DatumGetName(values[Anum_definitions_old_index - 1])), nsp);
	s->last_version = DatumGetInt64(values[Anum_definitions_last_version - 1]);
	return true;
}

static bool
add_inert(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	Inert	   *inert = arg;
	ScdcStream *s;
	ScdcStream *known;
	ListCell   *lc;

	if (strcmp(TextDatumGetCString(values[Anum_definitions_home - 1]), inert->home) == 0 ||
		(inert->schema_name &&
		 strcmp(NameStr(*DatumGetName(values[Anum_definitions_schema_name - 1])), inert->schema_name) != 0))
		return true;
	s = palloc0(sizeof(ScdcStream));
	if (!stream_of_row(values, isnull, s))
		return true;

	/* in a copy made with TEMPLATE there is the stream itself, adopted by now or not */
	known = scdc_stream_by_id(s->stream_id, inert->snapshot);
	if (known && strcmp(known->home, s->home) == 0)
		return true;

	/* one for each table: whatever has been reached in any of its lives */
	foreach(lc, inert->streams)
	{
		ScdcStream *other = lfirst(lc);

		if (other->relid != s->relid)
			continue;
		if (s->last_version > other->last_version)
			lfirst(lc) = s;
		return true;
	}
	inert->streams = lappend(inert->streams, s);
	return true;
}

ScdcStream *
scdc_definition_inert(Oid relid, Snapshot snapshot)
{
	Inert		inert = {.home = scdc_home(), .snapshot = snapshot};
	char	   *relname = get_rel_name(relid);
	NameData	name;
	ScanKeyData key[1];

	if (relname == NULL)
		return NULL;
	inert.schema_name = get_namespace_name(get_rel_namespace(relid));
	if (inert.schema_name == NULL)
		return NULL;
	namestrcpy(&name, relname);
	ScanKeyInit(&key[0], Anum_definitions_table_name, BTEqualStrategyNumber, F_NAMEEQ, NameGetDatum(&name));
	scdc_rows_scan(SCDC_DEFINITIONS, "definitions_table", 1, key, false, snapshot, add_inert, &inert);
	return inert.streams ? linitial(inert.streams) : NULL;
}

List *
scdc_definition_list_inert(Snapshot snapshot)
{
	Inert		inert = {.home = scdc_home(), .snapshot = snapshot};

	scdc_rows_scan(SCDC_DEFINITIONS, NULL, 0, NULL, false, snapshot, add_inert, &inert);
	return inert.streams;
}
