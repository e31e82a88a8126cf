/*-------------------------------------------------------------------------
 *
 * api_read.c
 *	  SQL functions that read the change log: stream_changes in its three
 *	  forms, stream_events, stream_versions, stream_latest_version and
 *	  stream_version_at.
 *
 * The set-returning ones put everything into a tuplestore, which goes to disk
 * beyond work_mem; none of them keeps rows anywhere else, but for what the
 * collapse has to keep.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "replication/origin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/pg_lsn.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

#include "log/changelog.h"
#include "sql/changes.h"
#include "sql/feed.h"
#include "sql/json_row.h"
#include "sql/range.h"
#include "sql/read_snapshot.h"
#include "sql/registered_log.h"
#include "sql/row.h"
#include "sql/row_error.h"

PG_FUNCTION_INFO_V1(streamcdc_changes);
PG_FUNCTION_INFO_V1(streamcdc_changes_regclass);
PG_FUNCTION_INFO_V1(streamcdc_changes_typed);
PG_FUNCTION_INFO_V1(streamcdc_events);
PG_FUNCTION_INFO_V1(streamcdc_versions);
PG_FUNCTION_INFO_V1(streamcdc_latest_version);
PG_FUNCTION_INFO_V1(streamcdc_version_at);

/* Where rows go, and as what. */
typedef struct Output
{
	ReturnSetInfo *result;
	ScdcJsonRows *json;
	Snapshot	snapshot;		/* of versions: for the names of their origins */

	/* for errors while a row is converted */
	bool		converting;
	int64		version;
	ErrorContextCallback context;
} Output;

static void
output_context(void *arg)
{
	Output	   *out = arg;
	const char *column;

	if (!out->converting)
		return;
	column = scdc_json_rows_column(out->json);
	scdc_row_error(column, out->version, true);
}

static void
output_begin(Output *out, FunctionCallInfo fcinfo)
{
	out->result = (ReturnSetInfo *) fcinfo->resultinfo;
	out->context.callback = output_context;
	out->context.arg = out;
	out->context.previous = error_context_stack;
	error_context_stack = &out->context;
}

static void
output_end(Output *out)
{
	error_context_stack = out->context.previous;
}

static void
put_row(Output *out, Datum *values, bool *isnull)
{
	tuplestore_putvalues(out->result->setResult, out->result->setDesc, values, isnull);
}

/* ---------------------------------------------------------------------
 * stream_changes, where it is called as a function; in FROM, a scan of its
 * own takes the place of the call (scan.c)
 * ---------------------------------------------------------------------
 */

static void
put_columns(Datum *values, bool *isnull, void *arg)
{
	put_row(arg, values, isnull);
}

static Datum
changes(FunctionCallInfo fcinfo, ScdcFeedForm form)
{
	Output		out = {.result = (ReturnSetInfo *) fcinfo->resultinfo};
	ScdcFeedCall call;
	ScdcFeed   *feed;
	const Datum *row;
	bool		isnull[SCDC_FEED_NCOLUMNS] = {0};

	scdc_feed_call(fcinfo, form, &call);
	InitMaterializedSRF(fcinfo, 0);
	if (call.registration)
	{
		scdc_registered_read(call.registration, &call.options, form == SCDC_FEED_TYPED, put_columns, &out);
		return (Datum) 0;
	}
	feed = scdc_feed_open(&call, true);
	while ((row = scdc_feed_next(feed)) != NULL)
		put_row(&out, unconstify(Datum *, row), isnull);
	scdc_feed_close(feed);
	return (Datum) 0;
}

Datum
streamcdc_changes(PG_FUNCTION_ARGS)
{
	return changes(fcinfo, SCDC_FEED_NAME);
}

Datum
streamcdc_changes_regclass(PG_FUNCTION_ARGS)
{
	return changes(fcinfo, SCDC_FEED_RELATION);
}

Datum
streamcdc_changes_typed(PG_FUNCTION_ARGS)
{
	return changes(fcinfo, SCDC_FEED_TYPED);
}

/* ---------------------------------------------------------------------
 * stream_events
 * ---------------------------------------------------------------------
 */

typedef struct EventReader
{
	const ScdcRead *read;
	ScdcRowSchemas *schemas;
	ScdcVersionRange range;
	ScdcLogScan *scan;
	Output	   *out;
	ScdcRowView view;
	MemoryContext row_cxt;

	const ScdcSchema *schema;	/* of the events before; NULL: there were none */
	int64		version;
	int64		number;			/* of the last event in it */
} EventReader;

static void
put_event(EventReader *r, const char *event, const ScdcVersion *v, int64 number, Datum old_row, Datum new_row)
{
	Datum		values[6];
	bool		isnull[6] = {0};

	values[0] = CStringGetTextDatum(event);
	values[1] = Int64GetDatum(v->version);
	values[2] = TimestampTzGetDatum(v->timestamp);
	values[3] = Int64GetDatum(number);
	values[4] = old_row;
	isnull[4] = old_row == (Datum) 0;
	values[5] = new_row;
	isnull[5] = new_row == (Datum) 0;
	put_row(r->out, values, isnull);
}

static Datum
event_row(EventReader *r, ScdcRowSchema *schema, ScdcBytes image, int64 version)
{
	Datum		row;

	if (image.data == NULL)
		return (Datum) 0;
	scdc_row_view_set(&r->view, schema, image);
	r->out->version = version;
	r->out->converting = true;
	row = scdc_json_row(r->out->json, &r->view);
	r->out->converting = false;
	return row;
}

static const char *
event_name(ScdcEventKind kind)
{
	switch (kind)
	{
		case SCDC_EVENT_INSERT:
			return "insert";
		case SCDC_EVENT_UPDATE:
			return "update";
		case SCDC_EVENT_DELETE:
			return "delete";
		case SCDC_EVENT_TRUNCATE:
			return "truncate";
		case SCDC_EVENT_GAP:
			return "gap";
	}
	elog(ERROR, "unexpected kind of event: %d", (int) kind);
}

static void
read_event(EventReader *r, ScdcRowSchema *schema, const ScdcEvent *event, const ScdcVersion *v)
{
	MemoryContext old = MemoryContextSwitchTo(r->row_cxt);
	Datum		old_row = (Datum) 0;
	Datum		new_row = (Datum) 0;

	if (r->number == 0 || r->version != v->version)
	{
		r->version = v->version;
		r->number = 0;
	}
	r->number++;
	if (event->flags & SCDC_EVENT_INCOMPLETE)
		scdc_incomplete_version(r->read->target, v->version);

	/* the marker has the number of the event that it stands before, which is so wherever the range begins */
	if (schema && r->schema && schema->schema != r->schema && !scdc_schema_same_columns(schema->schema, r->schema))
		put_event(r, "schema change", v, r->number, (Datum) 0, (Datum) 0);
	if (schema)
	{
		r->schema = schema->schema;
		old_row = event_row(r, event->old_schema != 0 ? scdc_row_schema(r->schemas, event->old_schema) : schema,
							event->old_image, v->version);
		new_row = event_row(r, schema, event->new_image, v->version);
	}
	put_event(r, event_name(event->kind), v, r->number, old_row, new_row);
	MemoryContextSwitchTo(old);
	MemoryContextReset(r->row_cxt);
}

/* The schema of what lies before a block, NULL if nothing does. */
static const ScdcSchema *
schema_before(EventReader *r, const ScdcBlockInfo *block)
{
	ScdcBlockInfo info = *block;

	while (scdc_changelog_last_before(block->stream_id, info.first_version, r->read->snapshot, &info))
	{
		if (info.schema_number != 0)
			return scdc_row_schema(r->schemas, info.schema_number)->schema;
	}
	return NULL;
}

/* False when the range has ended. */
static bool
read_event_block(EventReader *r, const ScdcBlockInfo *info)
{
	ScdcRowSchema *schema = info->schema_number != 0 ? scdc_row_schema(r->schemas, info->schema_number) : NULL;
	ScdcEvent	event;
	const ScdcVersion *v;

	scdc_changelog_scan_open(r->scan, true);
	while (scdc_changelog_scan_event(r->scan, &event, &v))
	{
		CHECK_FOR_INTERRUPTS();
		if (v->version > r->range.last)
			return false;
		if (v->version >= r->range.first)
			read_event(r, schema, &event, v);
		else if (schema)
			r->schema = schema->schema;
	}
	return true;
}

Datum
streamcdc_events(PG_FUNCTION_ARGS)
{
	char	   *name = scdc_table_name_arg(fcinfo);
	ScdcReadOptions options;
	ScdcRead	read;
	Output		out = {0};
	EventReader r = {.read = &read, .out = &out};
	ScdcBlockInfo info;
	int			nestlevel;

	scdc_read_options(fcinfo, &options);
	InitMaterializedSRF(fcinfo, 0);
	scdc_read_begin(&read, name, InvalidOid);
	r.range = scdc_range_versions(&options.range, read.target, true, read.snapshot);
	if (r.range.first > r.range.last)
	{
		scdc_read_end(&read);
		return (Datum) 0;
	}

	r.schemas = scdc_row_schemas_create(read.target->stream, read.snapshot);
	scdc_row_view_init(&r.view);
	r.row_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc row", ALLOCSET_DEFAULT_SIZES);
	out.json = scdc_json_rows_create(read.target);
	nestlevel = scdc_pin_output_settings();
	output_begin(&out, fcinfo);

	r.scan = scdc_changelog_scan_begin(read.target->stream->stream_id, r.range.first, read.snapshot);
	for (bool first = true; scdc_changelog_scan_next(r.scan, &info) && info.first_version <= r.range.last; first = false)
	{
		if (first)
			r.schema = schema_before(&r, &info);
		if (!read_event_block(&r, &info))
			break;
	}
	scdc_changelog_scan_end(r.scan);

	output_end(&out);
	AtEOXact_GUC(true, nestlevel);
	scdc_read_end(&read);
	return (Datum) 0;
}

/* ---------------------------------------------------------------------
 * stream_versions
 * ---------------------------------------------------------------------
 */

/* A version with the counts of all its blocks. */
typedef struct VersionRow
{
	bool		valid;
	ScdcVersion v;
	int64		inserts;
	int64		updates;
	int64		deletes;
} VersionRow;

static void
put_version(Output *out, const VersionRow *row)
{
	const ScdcVersion *v = &row->v;
	Datum		values[9];
	bool		isnull[9] = {0};
	char	   *origin = v->origin != InvalidRepOriginId ? scdc_origin_name(v->origin, v->commit_lsn, out->snapshot) : NULL;

	values[0] = Int64GetDatum(v->version);
	values[1] = TimestampTzGetDatum(v->timestamp);
	values[2] = TimestampTzGetDatum(v->commit_time);
	values[3] = LSNGetDatum(v->commit_lsn);
	isnull[3] = v->commit_lsn == 0;
	values[4] = FullTransactionIdGetDatum(FullTransactionIdFromU64(v->xid));
	isnull[4] = v->xid == 0;
	values[5] = origin ? CStringGetTextDatum(origin) : (Datum) 0;
	isnull[5] = origin == NULL;
	values[6] = Int64GetDatum(row->inserts);
	values[7] = Int64GetDatum(row->updates);
	values[8] = Int64GetDatum(row->deletes);
	put_row(out, values, isnull);
}

static void
add_version(Output *out, VersionRow *row, const ScdcVersion *v)
{
	if (!row->valid || row->v.version != v->version)
	{
		if (row->valid)
			put_version(out, row);
		memset(row, 0, sizeof(*row));
		row->valid = true;
		row->v = *v;
	}
	row->inserts += v->inserts;
	row->updates += v->updates;
	row->deletes += v->deletes;
}

Datum
streamcdc_versions(PG_FUNCTION_ARGS)
{
	char	   *name = scdc_table_name_arg(fcinfo);
	ScdcReadOptions options;
	ScdcRead	read;
	ScdcVersionRange range;
	ScdcLogScan *scan;
	ScdcBlockInfo info;
	Output		out = {.result = (ReturnSetInfo *) fcinfo->resultinfo};
	VersionRow	row = {0};
	MemoryContext row_cxt;

	scdc_read_options(fcinfo, &options);
	InitMaterializedSRF(fcinfo, 0);
	scdc_read_begin(&read, name, InvalidOid);
	out.snapshot = read.snapshot;
	range = scdc_range_versions(&options.range, read.target, false, read.snapshot);
	row_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc row", ALLOCSET_DEFAULT_SIZES);

	scan = scdc_changelog_scan_begin(read.target->stream->stream_id, range.first, read.snapshot);
	while (scdc_changelog_scan_next(scan, &info) && info.first_version <= range.last)
	{
		ScdcBlockReader *block = scdc_changelog_scan_open(scan, false);
		MemoryContext old = MemoryContextSwitchTo(row_cxt);

		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < block->nversions; i++)
		{
			const ScdcVersion *v = &block->versions[i];

			if (v->version >= range.first && v->version <= range.last)
				add_version(&out, &row, v);
		}
		MemoryContextSwitchTo(old);
		MemoryContextReset(row_cxt);
	}
	scdc_changelog_scan_end(scan);
	if (row.valid)
		put_version(&out, &row);
	scdc_read_end(&read);
	return (Datum) 0;
}

/* ---------------------------------------------------------------------
 * stream_latest_version, stream_version_at
 * ---------------------------------------------------------------------
 */

Datum
streamcdc_latest_version(PG_FUNCTION_ARGS)
{
	ScdcRead	read;
	ScdcBlockInfo newest;
	bool		found;

	scdc_read_begin(&read, NULL, scdc_table_arg(fcinfo));
	found = scdc_changelog_last(read.target->stream->stream_id, read.snapshot, &newest);
	scdc_read_end(&read);
	if (!found)
		PG_RETURN_NULL();		/* tracked without a baseline, and nothing has been committed since */
	PG_RETURN_INT64(newest.last_version);
}

Datum
streamcdc_version_at(PG_FUNCTION_ARGS)
{
	Oid			relid = scdc_table_arg(fcinfo);
	ScdcRead	read;
	int64		version;
	bool		found;

	if (PG_ARGISNULL(1))
		PG_RETURN_NULL();
	scdc_read_begin(&read, NULL, relid);
	found = scdc_changelog_version_at(read.target->stream->stream_id, PG_GETARG_TIMESTAMPTZ(1), read.snapshot, &version);
	scdc_read_end(&read);
	if (!found)
		PG_RETURN_NULL();
	PG_RETURN_INT64(version);
}
