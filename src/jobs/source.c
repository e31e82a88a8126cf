/*-------------------------------------------------------------------------
 *
 * source.c
 *	  What a query reads (see source.h): choosing between the two kinds, and
 *	  what they have in common.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "jobs/failure.h"
#include "jobs/source.h"
#include "jobs/source_kinds.h"
#include "log/schema.h"
#include "sql/registration.h"
#include "worker.h"

/* ---------------------------------------------------------------------
 * at stream_start
 * ---------------------------------------------------------------------
 */

void
scdc_source_resolve(ScdcQuery *q, const ScdcStartOptions *start)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	Oid			relid = scdc_name_relid(q->source);
	ScdcRegistration *registration = OidIsValid(relid) ? scdc_registration_find(relid, snapshot) : NULL;

	if (registration)
	{
		q->source_relid = relid;
		if (!start->emission_given)
			q->emission = SCDC_EMIT_BY_WATERMARK;
		scdc_registered_resolve(q, registration, start, snapshot);
	}
	else
	{
		if (!start->emission_given)
			q->emission = SCDC_EMIT_BY_COMMIT;
		scdc_tracked_resolve(q, start, snapshot);
	}
	UnregisterSnapshot(snapshot);
}

/*
 * Bounds are kept as the first and the last timestamp that count.  Nothing is
 * after infinity or before -infinity.
 */
void
scdc_source_take_timestamps(ScdcQuery *q, const ScdcStartOptions *start)
{
	bool		starts = start->kind == SCDC_START_TIMESTAMP;
	bool		ends = start->end_timestamp != DT_NOEND;

	if (starts)
		q->start_timestamp = start->timestamp;
	q->end_timestamp = start->end_timestamp;
	if ((starts && !start->start_inclusive && start->timestamp == DT_NOEND) ||
		(!start->end_inclusive && start->end_timestamp == DT_NOBEGIN))
	{
		q->start_timestamp = DT_NOEND;
		q->end_timestamp = DT_NOBEGIN;
		return;
	}
	if (starts && !start->start_inclusive)
		q->start_timestamp++;
	if (!start->end_inclusive && ends)
		q->end_timestamp--;
}

void
scdc_source_take_columns(ScdcQuery *q)
{
	Relation	rel = try_relation_open(q->source_relid, AccessShareLock);
	TupleDesc	desc;

	if (rel == NULL)
		scdc_stop(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, psprintf("source \"%s\" does not exist any more", q->source),
				  NULL, NULL);
	desc = RelationGetDescr(rel);
	q->ncolumns = 0;
	q->columns = palloc0(Max(desc->natts, 1) * sizeof(ScdcQueryColumn));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		ScdcQueryColumn *c = &q->columns[q->ncolumns];

		if (att->attisdropped || strcmp(NameStr(att->attname), "_change_type") == 0 ||
			strcmp(NameStr(att->attname), "_commit_version") == 0 ||
			strcmp(NameStr(att->attname), "_commit_timestamp") == 0)
			continue;
		c->attnum = att->attnum;
		c->name = pstrdup(NameStr(att->attname));
		c->type = att->atttypid;
		c->typmod = att->atttypmod;
		c->collation = att->attcollation;
		q->ncolumns++;
	}
	relation_close(rel, AccessShareLock);

	if (q->stream_id != 0)
	{
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
		ScdcSchema *newest = scdc_schema_read(q->stream_id, 0, snapshot);

		q->known_schema = newest ? newest->number : 0;
		UnregisterSnapshot(snapshot);
	}
}

/* ---------------------------------------------------------------------
 * in a job
 * ---------------------------------------------------------------------
 */

TupleDesc
scdc_source_visible_columns(const ScdcQuery *q)
{
	TupleDesc	desc = CreateTemplateTupleDesc(q->ncolumns);

	for (int i = 0; i < q->ncolumns; i++)
	{
		const ScdcQueryColumn *c = &q->columns[i];

		TupleDescInitEntry(desc, i + 1, c->name, c->type, c->typmod, 0);
		TupleDescInitEntryCollation(desc, i + 1, c->collation);
	}
	return desc;
}

ScdcSource *
scdc_source_open(const ScdcQuery *query, Snapshot snapshot)
{
	ScdcSource *source = palloc0(sizeof(ScdcSource));

	source->query = query;
	source->snapshot = snapshot;
	if (query->stream_id != 0)
		scdc_tracked_open(source);
	else
		scdc_registered_open(source);
	return source;
}

void
scdc_source_close(ScdcSource *source)
{
	pfree(source);
}

ScdcWork *
scdc_source_work(ScdcSource *source)
{
	return source->work;
}

ScdcPasses
scdc_source_passes(ScdcSource *source)
{
	return scdc_passes(source->flags, source->query->mode, source->query->compute_updates);
}

ScdcFlowOptions
scdc_source_flow(ScdcSource *source)
{
	const ScdcQuery *q = source->query;
	ScdcFlowOptions options = {.compute_updates = q->compute_updates};
	ScdcPasses	passes = scdc_source_passes(source);
	bool		row_level = passes.drop_carryovers || passes.detect_updates;

	options.guard = (row_level || passes.net_changes) && !q->as_table;
	options.passes = passes;
	if (source->row_level_done)
		options.passes.drop_carryovers = options.passes.detect_updates = false;

	if (!options.guard)
		options.way = SCDC_FLOW_STRAIGHT;
	else if (q->emission == SCDC_EMIT_BY_WATERMARK && row_level)
		options.way = SCDC_FLOW_BUFFER;
	else if (passes.net_changes)
		options.way = SCDC_FLOW_NET;
	else
		options.way = source->row_level_done ? SCDC_FLOW_STRAIGHT : SCDC_FLOW_COMMIT;
	return options;
}

bool
scdc_source_is_ready(ScdcSource *source)
{
	return !source->tracked || scdc_baseline_is_complete(source->target->stream, source->snapshot);
}

char *
scdc_source_latest(ScdcSource *source)
{
	return source->tracked ? scdc_tracked_latest(source) : scdc_registered_latest(source);
}

char *
scdc_source_next(ScdcSource *source, const char *after, const char *upto, bool limited, bool complete, bool *ended)
{
	*ended = false;
	return source->tracked ? scdc_tracked_next(source, after, upto, limited, complete, ended) :
		scdc_registered_next(source, after, upto, limited, ended);
}

void
scdc_source_read(ScdcSource *source, const ScdcBatch *batch, ScdcFlow *flow)
{
	/* a batch without data */
	if (batch->end_offset == NULL ||
		(batch->start_offset && strcmp(batch->start_offset, batch->end_offset) == 0))
		return;
	if (!source->tracked)
	{
		scdc_registered_batch(source, batch, flow);
		return;
	}
	PG_TRY();
	{
		scdc_tracked_read(source, batch, flow);
	}
	PG_CATCH();
	{
		/* what is in the log stays there: a gap, a value that cannot be cast, the end of the row identity */
		if (scdc_error_is_about_value(geterrcode()) && ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_INTERNAL_ERROR)
			scdc_stop_is_next();
		PG_RE_THROW();
	}
	PG_END_TRY();
}

bool
scdc_source_before(ScdcSource *source, const char *a, const char *b)
{
	if (a == NULL || b == NULL)
		return a == NULL && b != NULL;
	if (source->work->text_versions)
		return strcmp(a, b) < 0;
	return strtoll(a, NULL, 10) < strtoll(b, NULL, 10);
}

char *
scdc_source_description(const ScdcQuery *q)
{
	return psprintf("%s[%s]", q->stream_id != 0 ? "StreamCdc" : "RegisteredChangelog", q->source);
}
