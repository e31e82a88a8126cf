/*-------------------------------------------------------------------------
 *
 * api_retention.c
 *	  stream_vacuum and stream_verify.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "capture/wait.h"
#include "guc.h"
#include "log/catalog.h"
#include "retention/vacuum.h"
#include "shmem.h"
#include "sql/compare.h"
#include "sql/json_row.h"
#include "sql/read_snapshot.h"
#include "sql/resolve.h"

PG_FUNCTION_INFO_V1(streamcdc_vacuum);
PG_FUNCTION_INFO_V1(streamcdc_verify);

/* What was committed before the call is in the log, if capture gets there in time. */
static void
catch_up(void)
{
	char	   *reason;

	(void) scdc_wait_captured(scdc_wal_target(), scdc_read_timeout, &reason);
}

/* The stream of a table that the caller owns.  Raises 42P01, 42501, 0A000, or 55000 if it is inert. */
static ScdcStream *
owned_stream(Oid relid, Snapshot snapshot)
{
	ScdcStream *stream;

	if (get_rel_name(relid) == NULL)
		scdc_undefined_relation(relid);
	scdc_must_be_owner(relid);
	stream = scdc_stream_by_relid(relid, snapshot);
	if (stream == NULL || stream->state == SCDC_STATE_UNTRACKED || stream->state == SCDC_STATE_DROPPED)
		scdc_not_tracked(relid, scdc_relation_name(relid), snapshot);
	if (stream->state == SCDC_STATE_INERT)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is not captured in this database", scdc_relation_name(relid)),
				 errdetail("%s", SCDC_INERT_REASON),
				 errhint("Call stream_track first.")));
	return stream;
}

/* All streams with a log that the caller owns, also those of dropped tables. */
static List *
owned_streams(Snapshot snapshot)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, scdc_stream_list(snapshot))
	{
		ScdcStream *s = lfirst(lc);

		if (s->state == SCDC_STATE_DROPPED ? has_privs_of_role(GetUserId(), s->owner) :
			s->state != SCDC_STATE_UNTRACKED && s->state != SCDC_STATE_INERT &&
			get_rel_name(s->relid) != NULL && pg_class_ownercheck(s->relid, GetUserId()))
			result = lappend(result, s);
	}
	return result;
}

static TimestampTz
older_than_arg(FunctionCallInfo fcinfo, int arg)
{
	Interval   *older_than = PG_GETARG_INTERVAL_P(arg);
	Interval	zero = {0};

	if (DatumGetBool(DirectFunctionCall2(interval_lt, IntervalPGetDatum(older_than), IntervalPGetDatum(&zero))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("older_than must not be negative")));
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_mi_interval, TimestampTzGetDatum(GetCurrentTimestamp()),
												   IntervalPGetDatum(older_than)));
}

/*
 * stream_vacuum(table_name, before_version, older_than) returns bigint
 *
 * Removes versions for which all that is given holds; if nothing is, those
 * that the table's retention has passed.  Returns how many they were.
 */
Datum
streamcdc_vacuum(PG_FUNCTION_ARGS)
{
	ScdcVacuumTarget given = {.before = PG_INT64_MAX, .older_than = DT_NOEND, .overdue = DT_NOEND};
	bool		by_retention = PG_ARGISNULL(1) && PG_ARGISNULL(2);
	Snapshot	snapshot;
	List	   *streams;
	ListCell   *lc;
	int64		removed = 0;

	PreventCommandDuringRecovery("stream_vacuum()");
	PreventCommandIfReadOnly("stream_vacuum()");
	scdc_require_preload();
	if (!PG_ARGISNULL(1))
		given.before = Max(PG_GETARG_INT64(1), 0);
	if (!PG_ARGISNULL(2))
		given.older_than = older_than_arg(fcinfo, 2);

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	streams = PG_ARGISNULL(0) ? owned_streams(snapshot) : list_make1(owned_stream(PG_GETARG_OID(0), snapshot));
	UnregisterSnapshot(snapshot);
	if (streams != NIL)
		catch_up();
	foreach(lc, streams)
	{
		ScdcStream *s = lfirst(lc);
		ScdcVacuumTarget target = by_retention ? scdc_vacuum_by_retention(s) : given;

		(void) scdc_vacuum_lock(s->stream_id, ExclusiveLock, true);
		removed += scdc_vacuum_stream(s->stream_id, &target);
	}
	PG_RETURN_INT64(removed);
}

/* ---------------------------------------------------------------------
 * stream_verify
 * ---------------------------------------------------------------------
 */

/* The table, or the partitions whose rows make it up, locked; without those that WAL says nothing of, which are not captured. */
static List *
lock_relations(Oid relid)
{
	List	   *all = list_make1_oid(relid);
	List	   *result = NIL;
	ListCell   *lc;

	LockRelationOid(relid, AccessShareLock);
	if (get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE)
		all = find_all_inheritors(relid, AccessShareLock, NULL);
	foreach(lc, all)
		if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_RELATION &&
			(lfirst_oid(lc) == relid || get_rel_persistence(lfirst_oid(lc)) == RELPERSISTENCE_PERMANENT))
			result = lappend_oid(result, lfirst_oid(lc));
	return result;
}

/* What was committed up to now has to be in the log, or nothing can be said. */
static void
wait_for_all(const ScdcTarget *target)
{
	XLogRecPtr	position = scdc_wal_target();
	char	   *reason = NULL;

	if (target->stream->state != SCDC_STATE_LIVE)
		return;
	switch (scdc_wait_captured(position, scdc_read_timeout, &reason))
	{
		case SCDC_WAIT_DONE:
			break;
		case SCDC_WAIT_STALLED:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("capture of table \"%s\" is stalled", target->name),
					 reason ? errdetail("%s", reason) : 0));
			break;
		case SCDC_WAIT_TIMEOUT:
			ereport(ERROR,
					(errcode(ERRCODE_QUERY_CANCELED),
					 errmsg("timed out while waiting for capture"),
					 errhint("Increase \"streamcdc.read_timeout\".")));
			break;
	}
}

typedef struct Differences
{
	ReturnSetInfo *result;
	ScdcJsonRows *json;
} Differences;

static void
put_difference(bool in_table, ScdcRowView *row, void *arg)
{
	Differences *d = arg;
	Datum		values[2];
	bool		isnull[2] = {0};

	values[0] = CStringGetTextDatum(in_table ? "missing in log" : "missing in table");
	values[1] = scdc_json_row(d->json, row);
	tuplestore_putvalues(d->result->setResult, d->result->setDesc, values, isnull);
}

/*
 * stream_verify(table_name) returns setof (difference, row_data)
 *
 * The rows that only one of table and log has.  Both are looked at as of one
 * moment, and nobody who writes the table is held up.
 */
Datum
streamcdc_verify(PG_FUNCTION_ARGS)
{
	Differences d = {.result = (ReturnSetInfo *) fcinfo->resultinfo};
	Snapshot	snapshot,
				log;
	ScdcRead	read;
	List	   *relids;
	Oid			relid;

	PreventCommandDuringRecovery("stream_verify()");
	scdc_require_preload();
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("table_name must not be null")));
	relid = PG_GETARG_OID(0);
	InitMaterializedSRF(fcinfo, 0);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	(void) owned_stream(relid, snapshot);
	UnregisterSnapshot(snapshot);
	scdc_read_begin(&read, NULL, relid);
	if (!read.target->stream->baseline)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" was tracked without a baseline", read.target->name),
				 errdetail("What it held then is not in its log.")));

	relids = lock_relations(relid);
	(void) scdc_vacuum_lock(read.target->stream->stream_id, ShareLock, true);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	/* what this transaction has done itself cannot be in the log */
	snapshot->curcid = FirstCommandId;
	wait_for_all(read.target);
	log = RegisterSnapshot(GetLatestSnapshot());
	d.json = scdc_json_rows_create(read.target);
	scdc_compare(read.target, relids, snapshot, log, put_difference, &d);
	UnregisterSnapshot(log);
	UnregisterSnapshot(snapshot);
	scdc_read_end(&read);
	return (Datum) 0;
}
