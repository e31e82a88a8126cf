/*-------------------------------------------------------------------------
 *
 * feed.c
 *	  One call of stream_changes: from its arguments to the rows of its
 *	  result, one by one.
 *
 * Rows are converted some at a time.  Settings that shape values have to be
 * pinned for that, and may not stay so while somebody else's code runs; for
 * one row alone that would cost more than the row.  The first lot is small, for
 * those who want no more than a few.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "sql/changes.h"
#include "sql/feed.h"
#include "sql/json_row.h"
#include "sql/read_snapshot.h"
#include "sql/row.h"
#include "sql/row_error.h"
#include "sql/typed_row.h"

/* rows that are converted at a time, and the bytes of images after which it is enough */
#define LOT_MIN			8
#define LOT_MAX			112
#define LOT_BYTES		(64 * 1024)
#define LOT_MEMORY		(16 * 1024) /* is kept for them: small ones fit, and stay in the processor's cache */

typedef Datum FeedRow[SCDC_FEED_NCOLUMNS];

struct ScdcFeed
{
	MemoryContext context;
	bool		with_rows;
	ScdcReadOptions options;
	ScdcRead	read;
	ScdcVersionRange range;
	ScdcRowSchemas *schemas;
	ScdcJsonRows *json;			/* one of the two */
	ScdcTypedRows *typed;
	Datum		labels[4];		/* of ScdcChangeType, as text */
	ScdcChangeReader *reader;
	const ScdcRowSchema *schema;	/* of the row before, if that is typed */
	bool		needs_settings; /* do rows of it need them pinned? */

	/* the rows at hand */
	MemoryContext lot_cxt;
	FeedRow    *lot;			/* LOT_MAX */
	int			nrows;
	int			next;
	int			size;			/* of the next lot */
	bool		ended;			/* there is no next one */

	/* for errors while a row is converted */
	bool		converting;
	int64		version;
};

/* ---------------------------------------------------------------------
 * arguments
 * ---------------------------------------------------------------------
 */

/* The registration of a relation that is a change log itself, and is not tracked; NULL if it is not so. */
static ScdcRegistration *
registration_of(Oid relid)
{
	ScdcRegistration *registration;
	Snapshot	snapshot;

	if (!OidIsValid(relid))
		return NULL;
	snapshot = RegisterSnapshot(GetActiveSnapshot());
	registration = scdc_registration_find(relid, snapshot);
	if (registration && scdc_is_tracked(relid, snapshot))
		registration = NULL;
	UnregisterSnapshot(snapshot);
	return registration;
}

static void
check_row_type(const ScdcFeedCall *call)
{
	char		relkind = OidIsValid(call->relid) ? get_rel_relkind(call->relid) : '\0';

	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE && call->registration == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("type %s is not the row type of a table",
						OidIsValid(call->row_type) ? format_type_be(call->row_type) : "of the first argument"),
				 errhint("Name the table as text, or write NULL::table_name.")));
}

void
scdc_feed_call(FunctionCallInfo fcinfo, ScdcFeedForm form, ScdcFeedCall *call)
{
	memset(call, 0, sizeof(*call));
	switch (form)
	{
		case SCDC_FEED_NAME:
			call->name = scdc_table_name_arg(fcinfo);
			scdc_read_options(fcinfo, &call->options);
			call->registration = registration_of(scdc_name_relid(call->name));
			break;
		case SCDC_FEED_RELATION:
			call->relid = scdc_table_arg(fcinfo);
			scdc_read_options(fcinfo, &call->options);
			call->registration = registration_of(call->relid);
			break;
		case SCDC_FEED_TYPED:
			call->row_type = get_fn_expr_argtype(fcinfo->flinfo, 0);
			if (OidIsValid(call->row_type) && get_typtype(call->row_type) == TYPTYPE_COMPOSITE)
				call->relid = get_typ_typrelid(call->row_type);
			call->registration = registration_of(call->relid);
			check_row_type(call);
			scdc_read_options(fcinfo, &call->options);
			break;
	}
}

/* ---------------------------------------------------------------------
 * rows
 * ---------------------------------------------------------------------
 */

static void
conversion_context(void *arg)
{
	ScdcFeed   *feed = arg;
	const char *column;

	if (!feed->converting)
		return;
	column = feed->json ? scdc_json_rows_column(feed->json) : scdc_typed_rows_column(feed->typed);
	scdc_row_error(column, feed->version, feed->json != NULL);
}

/* Rows of another schema than before, in the typed form: can they be converted, and what does it take? */
static void
next_schema(ScdcFeed *feed, ScdcRowSchema *schema, int64 version)
{
	scdc_typed_rows_prepare(feed->typed, schema, version);
	feed->needs_settings = scdc_typed_rows_need_settings(schema);
	feed->schema = schema;
}

/* The row in the context of the lot; pins the settings that it needs, unless that has been done (*nestlevel is not 0). */
static Datum
convert_row(ScdcFeed *feed, const ScdcChange *change, int *nestlevel)
{
	if (feed->typed && feed->schema != change->view->schema)
		next_schema(feed, change->view->schema, change->version);
	if (!feed->with_rows)
		return (Datum) 0;
	if (feed->json)
	{
		if (*nestlevel == 0)
			*nestlevel = scdc_pin_reading_settings();
		return scdc_json_row(feed->json, change->view);
	}
	if (*nestlevel == 0 && feed->needs_settings)
		*nestlevel = scdc_pin_input_settings();
	return scdc_typed_row(feed->typed, change->view);
}

static void
read_lot(ScdcFeed *feed)
{
	ErrorContextCallback context = {
		.callback = conversion_context,
		.arg = feed,
		.previous = error_context_stack
	};
	MemoryContext old = MemoryContextSwitchTo(feed->lot_cxt);
	ScdcChange	change;
	Size		bytes = 0;
	int			nestlevel = 0;

	MemoryContextReset(feed->lot_cxt);
	feed->next = feed->nrows = 0;
	error_context_stack = &context;
	while (feed->nrows < feed->size && bytes < LOT_BYTES)
	{
		Datum	   *row = feed->lot[feed->nrows];

		if (!scdc_changes_next(feed->reader, &change))
		{
			feed->ended = true;
			break;
		}
		feed->version = change.version;
		feed->converting = true;
		row[SCDC_FEED_CHANGE_TYPE] = feed->labels[change.type];
		row[SCDC_FEED_COMMIT_VERSION] = Int64GetDatum(change.version);
		row[SCDC_FEED_COMMIT_TIMESTAMP] = TimestampTzGetDatum(change.timestamp);
		row[SCDC_FEED_ROW_DATA] = convert_row(feed, &change, &nestlevel);
		feed->converting = false;
		feed->nrows++;
		bytes += change.view->image.len;
	}
	error_context_stack = context.previous;
	if (nestlevel != 0)
		AtEOXact_GUC(true, nestlevel);
	MemoryContextSwitchTo(old);
	feed->size = Min(feed->size * 2, LOT_MAX);
}

const Datum *
scdc_feed_next(ScdcFeed *feed)
{
	if (feed->next == feed->nrows)
	{
		if (!feed->ended)
			read_lot(feed);
		if (feed->next == feed->nrows)
			return NULL;
	}
	return feed->lot[feed->next++];
}

/* ---------------------------------------------------------------------
 * beginning and end
 * ---------------------------------------------------------------------
 */

static void
begin_reading(ScdcFeed *feed)
{
	MemoryContext old = MemoryContextSwitchTo(feed->context);

	feed->reader = scdc_changes_begin(&feed->read, feed->schemas, feed->range, feed->options.mode,
									  feed->options.compute_updates);
	MemoryContextSwitchTo(old);
	feed->next = feed->nrows = 0;
	feed->size = LOT_MIN;
	feed->ended = false;
}

ScdcFeed *
scdc_feed_open(const ScdcFeedCall *call, bool with_rows)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "streamcdc feed", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	ScdcFeed   *feed = palloc0(sizeof(ScdcFeed));

	Assert(call->registration == NULL);
	feed->context = context;
	feed->with_rows = with_rows;
	feed->options = call->options;
	scdc_read_begin(&feed->read, call->name, call->relid);
	scdc_read_options_check(&feed->options, feed->read.target);
	feed->range = scdc_range_versions(&feed->options.range, feed->read.target, true, feed->read.snapshot);

	feed->schemas = scdc_row_schemas_create(feed->read.target->stream, feed->read.snapshot);
	if (OidIsValid(call->row_type))
		feed->typed = scdc_typed_rows_create(call->row_type, feed->schemas);
	else
		feed->json = scdc_json_rows_create(feed->read.target);
	feed->labels[SCDC_CHANGE_DELETE] = CStringGetTextDatum("delete");
	feed->labels[SCDC_CHANGE_INSERT] = CStringGetTextDatum("insert");
	feed->labels[SCDC_CHANGE_UPDATE_PREIMAGE] = CStringGetTextDatum("update_preimage");
	feed->labels[SCDC_CHANGE_UPDATE_POSTIMAGE] = CStringGetTextDatum("update_postimage");
	feed->lot_cxt = AllocSetContextCreate(context, "streamcdc feed rows", 0, LOT_MEMORY, ALLOCSET_DEFAULT_MAXSIZE);
	feed->lot = palloc(LOT_MAX * sizeof(FeedRow));
	begin_reading(feed);
	MemoryContextSwitchTo(old);
	return feed;
}

void
scdc_feed_restart(ScdcFeed *feed)
{
	scdc_changes_end(feed->reader);
	begin_reading(feed);
}

int64
scdc_feed_blocks(const ScdcFeed *feed)
{
	return scdc_changes_blocks(feed->reader);
}

void
scdc_feed_close(ScdcFeed *feed)
{
	scdc_changes_end(feed->reader);
	if (feed->typed)
		scdc_typed_rows_end(feed->typed);
	scdc_read_end(&feed->read);
	MemoryContextDelete(feed->context);
}
