/*-------------------------------------------------------------------------
 *
 * source_tracked.c
 *	  A tracked table as the source of a query: read from the change log, with
 *	  the row-level passes done commit by commit, since a commit is never torn.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "capture/wait.h"
#include "jobs/failure.h"
#include "jobs/source_kinds.h"
#include "log/changelog.h"
#include "log/definition.h"
#include "log/retained.h"
#include "retention/vacuum.h"
#include "sql/changes.h"
#include "sql/read_snapshot.h"
#include "sql/typed_row.h"

static char *
version_text(int64 version)
{
	return psprintf(INT64_FORMAT, version);
}

static int64
version_of(const char *offset)
{
	return strtoll(offset, NULL, 10);
}

static int64
version_option(const char *name, const char *value)
{
	char	   *end;
	long long	version;

	errno = 0;
	version = strtoll(value, &end, 10);
	if (end == value || *end != '\0' || errno != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", name, value),
				 strcmp(name, "startingVersion") == 0 ?
				 errhint("It must be a version, \"earliest\" or \"latest\".") : errhint("It must be a version.")));
	return version;
}

/* ---------------------------------------------------------------------
 * at stream_start
 * ---------------------------------------------------------------------
 */

static void
not_retained(const ScdcTarget *target, int64 version, int64 oldest)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("version " INT64_FORMAT " of table \"%s\" is not retained", version, target->name),
			 errdetail("The oldest version is " INT64_FORMAT ".", oldest),
			 errhint("Start with startingVersion \"earliest\" or \"latest\".")));
}

/* The last version before a timestamp, as far as the log goes now. */
static int64
version_before(int64 stream_id, TimestampTz timestamp, Snapshot snapshot)
{
	int64		version;

	if (timestamp == DT_NOBEGIN || !scdc_changelog_version_at(stream_id, timestamp - 1, snapshot, &version))
		return PG_INT64_MIN;
	return version;
}

/* The offset before the first version to read. */
static int64
start_offset(const ScdcQuery *q, const ScdcTarget *target, const ScdcStartOptions *start, const ScdcRetained *retained,
			 Snapshot snapshot)
{
	ScdcStream *stream = target->stream;
	bool		complete = stream->base_version == 0 && !retained->moved;	/* is there all that ever was? */
	int64		version;
	int64		offset;
	ScdcBlockInfo newest;

	switch (start->kind)
	{
		case SCDC_START_DEFAULT:
			if (!complete)
				not_retained(target, 0, retained->oldest);
			return retained->first - 1;
		case SCDC_START_EARLIEST:
			return retained->first - 1;
		case SCDC_START_LATEST:
			/* what is being committed now is not part of it, or is: nobody can tell */
			return scdc_changelog_last(stream->stream_id, snapshot, &newest) ? newest.last_version : stream->base_version;
		case SCDC_START_VERSION:
			version = version_option("startingVersion", start->version);
			offset = !start->start_inclusive || version == PG_INT64_MIN ? version : version - 1;
			if (offset >= retained->oldest - 1)
				return offset;
			if (!complete)
				not_retained(target, Max(offset + 1, 0), retained->oldest);
			return retained->first - 1;
		case SCDC_START_TIMESTAMP:
			if (q->start_timestamp < retained->kept_from)
				ereport(ERROR,
						(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						 errmsg("changes of table \"%s\" at the startingTimestamp are not retained", target->name),
						 errdetail("The oldest version is " INT64_FORMAT ".", retained->oldest),
						 errhint("Start with startingVersion \"earliest\" or \"latest\".")));
			/* what is yet to be captured may be before it, too, and is left out when it is read */
			return Max(version_before(stream->stream_id, q->start_timestamp, snapshot), retained->first - 1);
	}
	return retained->first - 1;
}

static void
resolve_start(ScdcQuery *q, const ScdcTarget *target, const ScdcStartOptions *start, Snapshot snapshot)
{
	ScdcRetained retained = scdc_retained(target->stream, snapshot);
	int64		offset = start_offset(q, target, start, &retained, snapshot);

	q->initial_offset = version_text(offset);
	q->from_baseline = target->stream->baseline && offset == retained.first - 1;
}

static void
resolve_end(ScdcQuery *q, const ScdcStartOptions *start)
{
	int64		end;

	if (start->kind == SCDC_START_TIMESTAMP && start->end_timestamp < start->timestamp)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("endingTimestamp is before startingTimestamp")));
	scdc_source_take_timestamps(q, start);
	if (start->end_version == NULL)
		return;
	end = version_option("endingVersion", start->end_version);
	if (start->kind == SCDC_START_VERSION && end < version_option("startingVersion", start->version))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("endingVersion %s is below startingVersion %s", start->end_version, start->version)));
	q->end_version = version_text(start->end_inclusive || end == PG_INT64_MIN ? end : end - 1);
}

/* Waits for the log to be as new as the call, so that "latest" means what the caller takes it for. */
static void
catch_up(void)
{
	char	   *reason;

	(void) scdc_wait_captured(scdc_wal_target(), 10000, &reason);
}

void
scdc_tracked_resolve(ScdcQuery *q, const ScdcStartOptions *start, Snapshot snapshot)
{
	ScdcTarget *target = scdc_resolve_name(q->source, snapshot);
	ScdcStream *stream = target->stream;
	ScdcSourceFlags flags = {.carryovers = true, .intermediate = true, .split_updates = true};
	Snapshot	fresh;

	if (!OidIsValid(target->relid))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" was dropped", target->name),
				 errhint("Its change log can be read with stream_changes.")));
	if (scdc_passes_conflict(flags, q->mode, q->compute_updates))
		scdc_updates_need_removal();
	if (q->as_table && (q->mode != SCDC_DEDUP_DROP_CARRYOVERS || q->compute_updates))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("format \"table\" takes no options of changes")));
	if (stream->nidentity == 0 && (q->compute_updates || q->mode == SCDC_DEDUP_NET_CHANGES || q->apply))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("table \"%s\" has no row identity", target->name),
				 errdetail("Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_ROW_ID."),
				 errhint("Updates, net changes and sink_mode \"apply\" need a table that had a primary key, or identity_columns, when stream_track was called.")));

	q->source_relid = target->relid;
	q->stream_id = stream->stream_id;
	resolve_end(q, start);
	if (start->kind == SCDC_START_LATEST)
		catch_up();
	/* until the query is there to be seen, nobody may remove what it begins with */
	(void) scdc_vacuum_lock(stream->stream_id, ShareLock, true);
	fresh = RegisterSnapshot(GetLatestSnapshot());
	resolve_start(q, target, start, fresh);
	UnregisterSnapshot(fresh);
	scdc_source_take_columns(q);
	q->nkeys = stream->nidentity;
	q->keys = palloc0(Max(q->nkeys, 1) * sizeof(char *));
	for (int i = 0; i < q->nkeys; i++)
		q->keys[i] = get_attname(target->relid, stream->identity[i], true);
}

/* ---------------------------------------------------------------------
 * in a job
 * ---------------------------------------------------------------------
 */

/*
 * Here the query's stream is that of another database, of which this one is a
 * copy.  Nothing is captured of it, or the table has been adopted, and then
 * its log is another.
 */
static void
check_copy(const ScdcQuery *q, const ScdcStream *stream, Snapshot snapshot)
{
	if (stream->state == SCDC_STATE_INERT)
		scdc_stop(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				  psprintf("nothing is captured of source table \"%s\"", q->source),
				  SCDC_INERT_REASON,
				  psprintf("SELECT stream_track(%s); then drop the query with stream_drop, and start it anew.",
						   quote_literal_cstr(q->source)));
	if (scdc_stream_by_relid(stream->relid, snapshot)->stream_id != stream->stream_id)
		scdc_stop(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				  psprintf("source table \"%s\" has another change log than the query was reading", q->source),
				  SCDC_INERT_REASON " stream_track has begun a new change log for it.",
				  "Drop the query with stream_drop, and start it anew with startingVersion \"earliest\".");
}

void
scdc_tracked_open(ScdcSource *s)
{
	const ScdcQuery *q = s->query;
	ScdcStream *stream;
	ScdcWork   *w;

	s->tracked = true;
	s->row_level_done = true;
	s->flags.carryovers = s->flags.intermediate = s->flags.split_updates = true;

	stream = scdc_stream_by_id(q->stream_id, s->snapshot);
	if (stream && strcmp(stream->home, scdc_home()) != 0)
		check_copy(q, stream, s->snapshot);
	if (stream == NULL || stream->state == SCDC_STATE_UNTRACKED || stream->state == SCDC_STATE_DROPPED)
		scdc_stop(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				  psprintf("source table \"%s\" is not tracked any more", q->source),
				  stream && stream->state == SCDC_STATE_DROPPED ? "The table was dropped." :
				  "The change log that the query was reading was deleted by stream_untrack.",
				  "Drop the query with stream_drop, and start it anew.");
	s->target = scdc_resolve_relid(stream->relid, s->snapshot);
	if (s->target->stream->stream_id != q->stream_id)
		scdc_stop(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				  psprintf("source table \"%s\" was tracked anew", q->source),
				  "The change log that the query was reading is gone.",
				  "Drop the query with stream_drop, and start it anew.");

	w = s->work = scdc_work_create(q->source, scdc_source_visible_columns(q), NULL, false, true);
	if (q->as_table)
		w->batch = scdc_source_visible_columns(q);
	w->nkeys = q->nkeys;
	w->keys = palloc0(Max(w->nkeys, 1) * sizeof(ScdcTupleKey));
	for (int i = 0; i < w->nkeys; i++)
		for (int j = 0; j < q->ncolumns; j++)
			if (strcmp(q->keys[i], q->columns[j].name) == 0)
				scdc_tuple_key_init(&w->keys[i], j + 1, q->columns[j].type, q->columns[j].collation);
}

char *
scdc_tracked_latest(ScdcSource *s)
{
	ScdcBlockInfo newest;

	if (!scdc_baseline_is_complete(s->target->stream, s->snapshot) ||
		!scdc_changelog_last(s->query->stream_id, s->snapshot, &newest))
		return NULL;
	return version_text(newest.last_version);
}

/* What has become of one of the query's columns in a schema; NULL: nothing. */
static char *
column_change(const ScdcQueryColumn *c, const ScdcSchema *schema)
{
	const ScdcColumn *now;

	if (c->attnum > schema->ncolumns)
		return NULL;			/* added later */
	now = &schema->columns[c->attnum - 1];
	if (now->dropped)
		return psprintf("Column \"%s\" was dropped.", c->name);
	if (strcmp(now->name, c->name) != 0)
		return psprintf("Column \"%s\" was renamed to \"%s\".", c->name, now->name);
	if (now->type != c->type || now->typmod != c->typmod)
		return psprintf("The type of column \"%s\" was changed to %s.", c->name, now->type_name);
	if (now->collation != c->collation)
		return psprintf("The collation of column \"%s\" was changed.", c->name);
	return NULL;
}

/* Do rows of the schema have the columns that the query knows?  If not, why. */
static char *
schema_change(const ScdcQuery *q, int64 stream_id, int32 number, Snapshot snapshot)
{
	ScdcSchema *schema;

	if (number <= q->known_schema)
		return NULL;			/* the table has changed since, and its columns are known by what they are now */
	schema = scdc_schema_read(stream_id, number, snapshot);
	if (schema == NULL)
		return NULL;
	for (int i = 0; i < q->ncolumns; i++)
	{
		char	   *change = column_change(&q->columns[i], schema);

		if (change)
			return change;
	}
	return NULL;
}

static void
columns_changed(const ScdcQuery *q, int64 version, const char *why)
{
	scdc_stop(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
			  psprintf("columns of source table \"%s\" have changed at version " INT64_FORMAT, q->source, version),
			  why, psprintf("SELECT stream_resume(%s); goes on with the columns that the table has now.",
							quote_literal_cstr(q->name)));
}

/*
 * Ends the query if versions that it still needs were removed.  The first
 * batch of one that begins with the baseline needs that.
 */
static void
check_lost(const ScdcQuery *q, const ScdcRetained *retained, int64 after, bool is_first)
{
	if (after + 1 >= (is_first && q->from_baseline ? retained->first : retained->oldest))
		return;
	scdc_stop(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
			  psprintf("versions " INT64_FORMAT " to " INT64_FORMAT " of source table \"%s\" are not retained any more",
					   after + 1, retained->oldest - 1, q->source), NULL,
			  "Drop the query with stream_drop, and start it anew.");
}

char *
scdc_tracked_next(ScdcSource *s, const char *after, const char *upto, bool limited, bool complete, bool *ended)
{
	const ScdcQuery *q = s->query;
	ScdcStream *stream = s->target->stream;
	ScdcRetained retained = scdc_retained(stream, s->snapshot);
	int64		from = after ? version_of(after) : retained.first - 1;
	int64		to = PG_INT64_MAX;
	int64		last = -1;
	int64		version;
	int64		bytes = 0;
	int32		good = PG_INT32_MAX;
	ScdcLogScan *scan;
	ScdcBlockInfo info;
	ScdcBlockInfo newest;
	bool		has_newest;

	if (!scdc_baseline_is_complete(stream, s->snapshot))
		return NULL;
	if (from < retained.oldest - 1)
		check_lost(q, &retained, from, scdc_batch_last(&q->query_id, s->snapshot) == NULL);

	has_newest = scdc_changelog_last(q->stream_id, s->snapshot, &newest);
	from = Max(from, version_before(q->stream_id, q->start_timestamp, s->snapshot));
	if (upto)
		to = version_of(upto);
	if (q->end_version)
	{
		to = Min(to, version_of(q->end_version));
		*ended = from >= version_of(q->end_version);
	}
	if (q->end_timestamp != DT_NOEND)
	{
		bool		found = scdc_changelog_version_at(q->stream_id, q->end_timestamp, s->snapshot, &version);

		to = Min(to, found ? version : from);
		/* nothing newer can get a timestamp in the range once the last one is there; what was given up may have lost some */
		*ended = from >= to && ((has_newest && newest.last_timestamp >= q->end_timestamp) ||
								(complete && !scdc_stream_given_up(stream)));
	}
	if (*ended || from >= to || !has_newest || from >= newest.last_version)
	{
		/* a stream that was given up brings nothing more */
		if (!*ended && scdc_stream_given_up(stream) && has_newest && from >= newest.last_version)
			scdc_stop(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
					  psprintf("changes of source table \"%s\" after version " INT64_FORMAT " were not captured",
							   q->source, newest.last_version),
					  stream->reason, NULL);
		return NULL;
	}
	to = Min(to, newest.last_version);
	/* rows without identity cannot be folded: what is read as a table is the baseline */
	if (q->as_table && q->nkeys == 0 && q->from_baseline && from < retained.base)
		to = Min(to, retained.base);
	/* the table as it is comes in one piece: version by version it could not be folded */
	if (q->as_table && q->from_baseline && from < retained.first)
		limited = false;
	if (limited && q->max_versions > 0 && q->max_versions < to - from)
		to = from + q->max_versions;

	/* limits in bytes, and columns that change in the middle */
	scan = scdc_changelog_scan_begin(q->stream_id, from + 1, s->snapshot);
	while (scdc_changelog_scan_next(scan, &info) && info.first_version <= to)
	{
		if (info.schema_number != 0 && info.schema_number != good)
		{
			char	   *change = schema_change(q, q->stream_id, info.schema_number, s->snapshot);

			if (change && (last < 0 || info.first_version <= from + 1))
			{
				int64		at = Max(info.first_version, from + 1);

				scdc_changelog_scan_end(scan);
				columns_changed(q, at, change);
			}
			if (change)
				break;
			good = info.schema_number;
		}
		if (limited && q->max_bytes > 0)
		{
			int64		nversions = info.last_version - Max(info.first_version, from + 1) + 1;
			int64		raw = scdc_changelog_scan_raw_size(scan);
			int64		fit = nversions;

			if (bytes + raw > q->max_bytes)
				fit = (int64) ((q->max_bytes - bytes) / (double) Max(raw, 1) * nversions);
			if (fit < nversions)
			{
				if (fit <= 0 && last >= 0)
					break;
				/* at least one version; one that goes on in more blocks is read whole */
				last = Max(info.first_version, from + 1) + Max(fit, 1) - 1;
				break;
			}
			bytes += raw;
		}
		last = info.last_version;
	}
	scdc_changelog_scan_end(scan);
	if (last < 0)
		return NULL;
	return version_text(Min(last, to));
}

/* ---- reading ---- */

typedef struct TrackedRead
{
	ScdcSource *source;
	ScdcFlow   *flow;
	ScdcRead	read;
	ScdcRowSchemas *schemas;
	ScdcVersionRange range;
	ScdcTypedRows *typed;
	Datum	   *values;			/* of the work row */
	bool	   *isnull;
	MemoryContext row_cxt;		/* reset after each row */
	bool		keeps_rows;		/* does the flow make work rows of them? */
} TrackedRead;

static void
put_change(TrackedRead *r, const ScdcChange *change)
{
	ScdcWork   *w = r->source->work;
	ScdcRowSchema *schema = change->view->schema;
	int			n = r->source->query->ncolumns;
	MemoryContext old;
	Datum	   *values;
	bool	   *isnull;

	if (schema->plan == NULL)
		scdc_typed_rows_prepare(r->typed, schema, change->version);
	if (r->keeps_rows && scdc_typed_rows_as_is(schema))
	{
		ScdcWorkImage image = {
			.type = change->type,
			.version = change->version,
			.timestamp = change->timestamp,
			.image = change->view->image,
		};

		scdc_image_check(schema->schema, image.image);
		scdc_flow_image(r->flow, &image);
		return;
	}

	old = MemoryContextSwitchTo(r->row_cxt);
	scdc_typed_values(r->typed, change->view, &values, &isnull);
	memcpy(r->values, values, n * sizeof(Datum));
	memcpy(r->isnull, isnull, n * sizeof(bool));
	r->values[w->change_type - 1] = w->labels[change->type];
	r->values[w->version - 1] = Int64GetDatum(change->version);
	r->values[w->timestamp - 1] = TimestampTzGetDatum(change->timestamp);
	scdc_flow_row(r->flow, r->values, r->isnull);
	MemoryContextSwitchTo(old);
	MemoryContextReset(r->row_cxt);
}

static void
read_changes(TrackedRead *r, ScdcDeduplication mode, bool compute_updates)
{
	ScdcChangeReader *reader = scdc_changes_begin(&r->read, r->schemas, r->range, mode, compute_updates);
	ScdcChange	change;

	while (scdc_changes_next(reader, &change))
		put_change(r, &change);
	scdc_changes_end(reader);
}

/* Versions that do more than insert, as int64 *, in order. */
static List *
versions_with_changes(TrackedRead *r)
{
	ScdcChangeReader *reader = scdc_changes_begin(&r->read, r->schemas, r->range, SCDC_DEDUP_DROP_CARRYOVERS, false);
	ScdcChange	change;
	List	   *versions = NIL;

	while (scdc_changes_next(reader, &change))
	{
		int64	   *v;

		if (change.type == SCDC_CHANGE_INSERT || (versions && *(int64 *) llast(versions) == change.version))
			continue;
		v = palloc(sizeof(int64));
		*v = change.version;
		versions = lappend(versions, v);
	}
	scdc_changes_end(reader);
	return versions;
}

/* What was inserted, without the versions to skip. */
static void
read_inserts(TrackedRead *r, List *skip)
{
	ScdcChangeReader *reader = scdc_changes_begin(&r->read, r->schemas, r->range, SCDC_DEDUP_DROP_CARRYOVERS, false);
	ListCell   *next = list_head(skip);
	ScdcChange	change;

	while (scdc_changes_next(reader, &change))
	{
		while (next && *(int64 *) lfirst(next) < change.version)
			next = lnext(skip, next);
		if (next == NULL || *(int64 *) lfirst(next) != change.version)
			put_change(r, &change);
	}
	scdc_changes_end(reader);
}

/*
 * Format "table": the first batch of a query that begins with the baseline is
 * the table as of its end offset, later ones are what was inserted.
 */
static void
read_as_table(TrackedRead *r, bool first)
{
	const ScdcQuery *q = r->source->query;
	List	   *skip;

	if (first)
	{
		read_changes(r, q->nkeys > 0 ? SCDC_DEDUP_NET_CHANGES : SCDC_DEDUP_DROP_CARRYOVERS, false);
		return;
	}
	skip = versions_with_changes(r);
	if (skip && !q->skip_change_commits)
		scdc_stop(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				  psprintf("version " INT64_FORMAT " of source table \"%s\" holds updates or deletes",
						   *(int64 *) linitial(skip), q->source),
				  "With format \"table\" a query reads inserted rows only.",
				  "Option \"skipChangeCommits\" leaves such versions out; format \"changes\" reads all changes.");
	read_inserts(r, skip);
}

void
scdc_tracked_read(ScdcSource *s, const ScdcBatch *batch, ScdcFlow *flow)
{
	const ScdcQuery *q = s->query;
	TrackedRead r = {.source = s,.flow = flow};
	ScdcRetained retained = scdc_retained(s->target->stream, s->snapshot);
	AttrNumber *columns = palloc0(Max(q->ncolumns, 1) * sizeof(AttrNumber));
	Relation	rel = try_relation_open(q->source_relid, AccessShareLock);
	int			nestlevel;

	for (int i = 0; i < q->ncolumns; i++)
		columns[i] = q->columns[i].attnum;
	r.read.target = s->target;
	r.read.by_identity = q->mode == SCDC_DEDUP_NET_CHANGES || q->apply;
	r.read.snapshot = s->snapshot;
	r.schemas = scdc_row_schemas_create(s->target->stream, s->snapshot);
	r.typed = scdc_typed_rows_create_columns(scdc_source_visible_columns(q), columns,
											 rel ? RelationGetDescr(rel) : NULL, r.schemas);
	r.values = palloc0(s->work->desc->natts * sizeof(Datum));
	r.isnull = palloc0(s->work->desc->natts * sizeof(bool));
	r.row_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc source row", ALLOCSET_DEFAULT_SIZES);
	r.keeps_rows = scdc_source_flow(s).way != SCDC_FLOW_STRAIGHT;
	r.range.first = Max(batch->start_offset ? version_of(batch->start_offset) : PG_INT64_MIN,
						version_before(q->stream_id, q->start_timestamp, s->snapshot)) + 1;
	r.range.last = version_of(batch->end_offset);
	if (r.range.first <= r.range.last)
		check_lost(q, &retained, r.range.first - 1, batch->batch_id == 0);

	nestlevel = scdc_pin_input_settings();
	if (q->as_table)
		read_as_table(&r, batch->batch_id == 0 && q->from_baseline && r.range.first <= retained.first);
	else
		read_changes(&r, q->mode == SCDC_DEDUP_NET_CHANGES ? SCDC_DEDUP_DROP_CARRYOVERS : q->mode, q->compute_updates);
	AtEOXact_GUC(true, nestlevel);
	scdc_typed_rows_end(r.typed);
	if (rel)
		relation_close(rel, NoLock);
}
