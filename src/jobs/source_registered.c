/*-------------------------------------------------------------------------
 *
 * source_registered.c
 *	  A registered change log as the source of a query: read by queries, as
 *	  the query's owner.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "jobs/failure.h"
#include "jobs/source_kinds.h"
#include "jobs/uses.h"
#include "sql/range.h"
#include "sql/resolve.h"

static const char *const metadata_columns[] = {"_change_type", "_commit_version", "_commit_timestamp"};

static char *
relation_name(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid));
}

/* Rights and shape of the relation, as they are now; it stays locked. */
static TupleDesc
check_relation(const ScdcRegistration *registration, ScdcRegisteredSchema *schema)
{
	Oid			relid = registration->relid;
	Relation	rel;
	TupleDesc	desc;

	if (!scdc_may_select(relid))
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(get_rel_relkind(relid)), get_rel_name(relid));
	rel = relation_open(relid, AccessShareLock);
	desc = CreateTupleDescCopy(RelationGetDescr(rel));
	relation_close(rel, NoLock);
	PG_TRY();
	{
		scdc_registration_check(registration, desc, get_rel_name(relid), schema);
	}
	PG_CATCH();
	{
		scdc_stop_is_next();
		PG_RE_THROW();
	}
	PG_END_TRY();
	return desc;
}

/* Reading a view runs what it is made of, as the query's owner. */
static void
check_view(const ScdcQuery *q)
{
	SPIPlanPtr	plan;

	if (get_rel_relkind(q->source_relid) != RELKIND_VIEW)
		return;
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	plan = SPI_prepare(psprintf("SELECT FROM %s", relation_name(q->source_relid)), 0, NULL);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	scdc_uses_check_plan(q, plan);
	SPI_finish();
}

/* ---------------------------------------------------------------------
 * at stream_start
 * ---------------------------------------------------------------------
 */

/* A version as it was given, in the form that max(_commit_version) has. */
static char *
check_version(const char *option, const char *value, bool text_versions)
{
	int64		number;
	char	   *end;

	if (value == NULL || text_versions)
		return pstrdup(value ? value : "");
	errno = 0;
	number = strtoll(value, &end, 10);
	if (end == value || *end != '\0' || errno != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", option, value)));
	return psprintf(INT64_FORMAT, number);
}

/* One value of a query's result as text; NULL if there is none. */
static char *
select_text(const char *query, int nargs, Oid *types, Datum *values)
{
	MemoryContext cxt = CurrentMemoryContext;
	char	   *result = NULL;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute_with_args(query, nargs, types, values, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "unexpected result of a query");
	if (SPI_processed > 0)
	{
		char	   *value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);

		if (value)
			result = MemoryContextStrdup(cxt, value);
	}
	SPI_finish();
	return result;
}

/* "_commit_version" as it is compared. */
static const char *
version_column(bool text_versions)
{
	return text_versions ? "l._commit_version COLLATE pg_catalog.\"C\"" : "l._commit_version";
}

static Datum
version_datum(const char *offset, bool text_versions)
{
	return text_versions ? CStringGetTextDatum(offset) : Int64GetDatum(strtoll(offset, NULL, 10));
}

static Oid
version_type(bool text_versions)
{
	return text_versions ? TEXTOID : INT8OID;
}

/* Where to begin: after an offset, or, as no text is the one before another, with a version. */
static void
resolve_start(ScdcQuery *q, const ScdcRegistration *registration, const ScdcStartOptions *start, bool text_versions)
{
	char	   *version;
	int64		number;

	switch (start->kind)
	{
		case SCDC_START_LATEST:
			q->initial_offset = select_text(psprintf("SELECT pg_catalog.max(%s) FROM %s AS l", version_column(text_versions),
													 relation_name(registration->relid)), 0, NULL, NULL);
			break;
		case SCDC_START_VERSION:
			version = check_version("startingVersion", start->version, text_versions);
			number = text_versions ? 0 : strtoll(version, NULL, 10);
			if (!start->start_inclusive)
				q->initial_offset = version;
			else if (text_versions)
				q->start_version = version;
			else if (number != PG_INT64_MIN)
				q->initial_offset = psprintf(INT64_FORMAT, number - 1);
			break;
		default:
			break;
	}
}

/* A reference with the type that it leads to, unless it is a column, which is known with its type. */
static char *
reference_text(const char *name, const ScdcReference *ref)
{
	StringInfoData s;

	initStringInfo(&s);
	appendStringInfoString(&s, name);
	if (ref->attnum == InvalidAttrNumber)
	{
		appendStringInfo(&s, " as %s", format_type_extended(ref->type, -1, FORMAT_TYPE_FORCE_QUALIFY));
		if (OidIsValid(ref->collation))
			appendStringInfo(&s, " collate %s", quote_identifier(get_collation_name(ref->collation)));
	}
	return s.data;
}

/* What was declared of the change log, and what it comes to, as text that can be compared. */
static void
take_contract(const ScdcRegistration *registration, const ScdcRegisteredSchema *schema, char **contract, List **row_id)
{
	*contract = psprintf("carry-overs %d, intermediate changes %d, updates as pairs %d, versions %s",
						 registration->has_carryovers, registration->has_intermediate, registration->updates_as_pairs,
						 schema->text_versions ? "text" : "bigint");
	*row_id = NIL;
	for (int i = 0; i < registration->nrow_id; i++)
		*row_id = lappend(*row_id, reference_text(registration->row_id[i], &schema->row_id[i]));
	*row_id = lappend(*row_id, registration->row_version ?
					  reference_text(registration->row_version, &schema->row_version) : pstrdup(""));
}

/*
 * What waits in state is laid out and grouped by what was declared when the
 * query was started, and by what that came to.
 */
static void
check_contract(const ScdcQuery *q, const ScdcRegistration *registration, const ScdcRegisteredSchema *schema)
{
	ScdcQuery	now = *q;
	const char *difference;

	take_contract(registration, schema, &now.contract, &now.row_id);
	difference = scdc_definition_difference(q, &now);
	if (difference)
		scdc_stop(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				  psprintf("change log \"%s\" has another %s than when the query was started", q->source, difference),
				  strcmp(difference, "row_id") == 0 ? "Error condition: STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE." :
				  "Error condition: STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA.",
				  "Make it and its registration as they were, or drop the query with stream_drop and start it anew.");
}

void
scdc_registered_resolve(ScdcQuery *q, ScdcRegistration *registration, const ScdcStartOptions *start, Snapshot snapshot)
{
	ScdcSourceFlags flags = {
		.carryovers = registration->has_carryovers,
		.intermediate = registration->has_intermediate,
		.split_updates = registration->updates_as_pairs,
	};
	ScdcRegisteredSchema schema;

	(void) check_relation(registration, &schema);
	if (scdc_passes_conflict(flags, q->mode, q->compute_updates))
		scdc_updates_need_removal();
	if (q->as_table)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("format \"table\" is for tracked tables"),
				 errdetail("\"%s\" is a registered change log.", q->source)));

	q->source_relid = registration->relid;
	q->stream_id = 0;
	check_view(q);
	take_contract(registration, &schema, &q->contract, &q->row_id);
	resolve_start(q, registration, start, schema.text_versions);
	if (start->end_version)
	{
		char	   *end = check_version("endingVersion", start->end_version, schema.text_versions);

		if (start->end_inclusive)
			q->end_version = end;
		else if (!schema.text_versions && strtoll(end, NULL, 10) == PG_INT64_MIN)
			q->initial_offset = q->end_version = psprintf(INT64_FORMAT, PG_INT64_MAX);	/* nothing is before it */
		else if (!schema.text_versions)
			q->end_version = psprintf(INT64_FORMAT, (int64) strtoll(end, NULL, 10) - 1);
		else
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("endingBoundInclusive must be true for versions of type text")));
	}
	scdc_source_take_timestamps(q, start);
	scdc_source_take_columns(q);
	q->keys = palloc0(Max(registration->nrow_id, 1) * sizeof(char *));
	for (int i = 0; i < registration->nrow_id; i++)
	{
		/* only plain columns identify rows of a sink */
		if (schema.row_id[i].attnum == InvalidAttrNumber)
		{
			q->nkeys = 0;
			break;
		}
		q->keys[q->nkeys++] = get_attname(q->source_relid, schema.row_id[i].attnum, false);
	}
	if (q->apply && q->nkeys == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("change log \"%s\" has no row identity of plain columns", q->source),
				 errdetail("Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_ROW_ID."),
				 errhint("Give row_id to stream_register_changelog, or use sink_mode \"append\".")));
}

/* ---------------------------------------------------------------------
 * in a job
 * ---------------------------------------------------------------------
 */

static void
check_column(const ScdcQuery *q, const ScdcQueryColumn *c, TupleDesc desc)
{
	Form_pg_attribute att = c->attnum <= desc->natts ? TupleDescAttr(desc, c->attnum - 1) : NULL;

	if (att == NULL || att->attisdropped || strcmp(NameStr(att->attname), c->name) != 0 ||
		att->atttypid != c->type || att->atttypmod != c->typmod || att->attcollation != c->collation)
		scdc_stop(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				  psprintf("column \"%s\" of source \"%s\" has changed", c->name, q->source), NULL,
				  psprintf("SELECT stream_resume(%s); goes on with the columns that it has now.",
						   quote_literal_cstr(q->name)));
}

/* Adds what a reference leads to; as a hidden column, unless it is one of the query's own. */
static AttrNumber
select_reference(StringInfo list, TupleDesc hidden, int *nhidden, const ScdcQuery *q, const ScdcReference *ref)
{
	int			n;

	for (int i = 0; ref->attnum != InvalidAttrNumber && i < q->ncolumns; i++)
		if (q->columns[i].attnum == ref->attnum)
			return i + 1;
	n = ++(*nhidden);
	appendStringInfo(list, ", %s", ref->attnum != InvalidAttrNumber ?
					 psprintf("l.%s", quote_identifier(get_attname(q->source_relid, ref->attnum, false))) : ref->expression);
	TupleDescInitEntry(hidden, n, "key", ref->type, -1, 0);
	TupleDescInitEntryCollation(hidden, n, ref->collation);
	return q->ncolumns + 3 + n;
}

void
scdc_registered_open(ScdcSource *s)
{
	const ScdcQuery *q = s->query;
	ScdcRegistration *reg = scdc_registration_find(q->source_relid, s->snapshot);
	StringInfoData list;
	TupleDesc	desc;
	TupleDesc	hidden;
	int			nhidden = 0;
	AttrNumber *attnos;
	AttrNumber	row_version = InvalidAttrNumber;

	if (reg == NULL)
		scdc_stop(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				  psprintf("source \"%s\" is not registered as a change log any more", q->source), NULL,
				  "Register it again with stream_register_changelog, or drop the query with stream_drop.");
	s->registration = reg;
	s->flags.carryovers = reg->has_carryovers;
	s->flags.intermediate = reg->has_intermediate;
	s->flags.split_updates = reg->updates_as_pairs;
	desc = check_relation(reg, &s->schema);
	check_view(q);
	check_contract(q, reg, &s->schema);
	s->relation = relation_name(reg->relid);

	initStringInfo(&list);
	for (int i = 0; i < q->ncolumns; i++)
	{
		check_column(q, &q->columns[i], desc);
		appendStringInfo(&list, "l.%s, ", quote_identifier(q->columns[i].name));
	}
	for (int i = 0; i < (int) lengthof(metadata_columns); i++)
		appendStringInfo(&list, "%sl.%s", i > 0 ? ", " : "", metadata_columns[i]);

	hidden = CreateTemplateTupleDesc(reg->nrow_id + 1);
	attnos = palloc0((reg->nrow_id + 1) * sizeof(AttrNumber));
	for (int i = 0; i < reg->nrow_id; i++)
		attnos[i] = select_reference(&list, hidden, &nhidden, q, &s->schema.row_id[i]);
	if (reg->row_version)
		row_version = select_reference(&list, hidden, &nhidden, q, &s->schema.row_version);
	hidden->natts = nhidden;
	s->select = list.data;

	s->work = scdc_work_create(q->source, scdc_source_visible_columns(q), hidden, s->schema.text_versions, false);
	s->work->nkeys = reg->nrow_id;
	s->work->keys = palloc0(Max(reg->nrow_id, 1) * sizeof(ScdcTupleKey));
	for (int i = 0; i < reg->nrow_id; i++)
		scdc_tuple_key_init(&s->work->keys[i], attnos[i], s->schema.row_id[i].type, s->schema.row_id[i].collation);
	if (row_version != InvalidAttrNumber)
	{
		s->work->has_row_version = true;
		scdc_tuple_key_init(&s->work->row_version, row_version, s->schema.row_version.type, s->schema.row_version.collation);
	}
}

/* Bounds that do not move: WHERE conditions and their parameters. */
typedef struct Bounds
{
	StringInfoData where;
	int			nargs;
	Oid			types[6];
	Datum		values[6];
} Bounds;

static void
add_bound(Bounds *b, const char *column, const char *operator, Oid type, Datum value)
{
	b->types[b->nargs] = type;
	b->values[b->nargs] = value;
	b->nargs++;
	appendStringInfo(&b->where, "%s%s OPERATOR(pg_catalog.%s) $%d", b->nargs > 1 ? " AND " : " WHERE ", column, operator,
					 b->nargs);
}

static void
init_bounds(ScdcSource *s, Bounds *b, const char *after, const char *upto)
{
	const ScdcQuery *q = s->query;
	bool		text_versions = s->work->text_versions;
	const char *column = version_column(text_versions);
	Oid			type = version_type(text_versions);

	memset(b, 0, sizeof(*b));
	initStringInfo(&b->where);
	if (after)
		add_bound(b, column, ">", type, version_datum(after, text_versions));
	if (upto)
		add_bound(b, column, "<=", type, version_datum(upto, text_versions));
	if (q->start_version)
		add_bound(b, column, ">=", type, version_datum(q->start_version, text_versions));
	if (q->end_version)
		add_bound(b, column, "<=", type, version_datum(q->end_version, text_versions));
	if (q->start_timestamp != DT_NOBEGIN)
		add_bound(b, "l._commit_timestamp", ">=", TIMESTAMPTZOID, TimestampTzGetDatum(q->start_timestamp));
	if (q->end_timestamp != DT_NOEND)
		add_bound(b, "l._commit_timestamp", "<=", TIMESTAMPTZOID, TimestampTzGetDatum(q->end_timestamp));
	if (b->nargs == 0)
		appendStringInfoString(&b->where, " WHERE l._commit_version IS NOT NULL");
}

char *
scdc_registered_latest(ScdcSource *s)
{
	return select_text(psprintf("SELECT pg_catalog.max(%s) FROM %s AS l", version_column(s->work->text_versions),
								s->relation), 0, NULL, NULL);
}

static bool
has_ended(ScdcSource *s, const char *after)
{
	const ScdcQuery *q = s->query;
	bool		text_versions = s->work->text_versions;
	Oid			type;
	Datum		value;

	if (q->end_version)
	{
		if (after && !scdc_source_before(s, after, q->end_version))
			return true;
		type = version_type(text_versions);
		value = version_datum(q->end_version, text_versions);
		return select_text(psprintf("SELECT true FROM %s AS l WHERE %s OPERATOR(pg_catalog.>) $1 LIMIT 1", s->relation,
									version_column(text_versions)), 1, &type, &value) != NULL;
	}
	if (q->end_timestamp != DT_NOEND)
	{
		type = TIMESTAMPTZOID;
		value = TimestampTzGetDatum(q->end_timestamp);
		return select_text(psprintf("SELECT true FROM %s AS l WHERE l._commit_timestamp OPERATOR(pg_catalog.>) $1 LIMIT 1",
									s->relation), 1, &type, &value) != NULL;
	}
	return false;
}

/*
 * A row without version is in no range, so a query without bounds would leave
 * it out for ever without a word.
 */
static void
check_versions(ScdcSource *s)
{
	const ScdcQuery *q = s->query;
	HeapTuple	tuple;
	bool		not_null;

	if (q->initial_offset || q->start_version || q->end_version || q->start_timestamp != DT_NOBEGIN)
		return;
	tuple = SearchSysCacheAttName(q->source_relid, "_commit_version");
	not_null = HeapTupleIsValid(tuple) && ((Form_pg_attribute) GETSTRUCT(tuple))->attnotnull;
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	if (!not_null && select_text(psprintf("SELECT true FROM %s AS l WHERE l._commit_version IS NULL LIMIT 1", s->relation),
								 0, NULL, NULL))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("_commit_version is null in change log \"%s\"", q->source),
				 errhint("Give the row a version, or start the query with a startingVersion, which leaves such rows out.")));
}

char *
scdc_registered_next(ScdcSource *s, const char *after, const char *upto, bool limited, bool *ended)
{
	const ScdcQuery *q = s->query;
	const char *column = version_column(s->work->text_versions);
	Bounds		b;
	char	   *query;
	char	   *next;

	init_bounds(s, &b, after, upto);
	if (limited && (q->max_versions > 0 || q->max_bytes > 0))
	{
		/* a commit is never split; the first one is read whatever its size */
		query = psprintf("SELECT pg_catalog.max(v) FROM (SELECT v, pg_catalog.row_number() OVER w AS n,"
						 " pg_catalog.sum(size) OVER w AS bytes FROM (SELECT %s AS v,"
						 " pg_catalog.sum(pg_catalog.pg_column_size(l.*)) AS size FROM %s AS l%s GROUP BY 1) AS c"
						 " WINDOW w AS (ORDER BY v)) AS c WHERE n OPERATOR(pg_catalog.=) 1 OR"
						 " (n OPERATOR(pg_catalog.<=) " INT64_FORMAT " AND bytes OPERATOR(pg_catalog.<=) " INT64_FORMAT ")",
						 column, s->relation, b.where.data, q->max_versions > 0 ? q->max_versions : PG_INT64_MAX,
						 q->max_bytes > 0 ? q->max_bytes : PG_INT64_MAX);
	}
	else
		query = psprintf("SELECT pg_catalog.max(%s) FROM %s AS l%s", column, s->relation, b.where.data);
	next = select_text(query, b.nargs, b.types, b.values);
	if (next)
		check_versions(s);
	else
		*ended = has_ended(s, after);
	return next;
}

/*
 * Takes what the query returns, row by row: what one of them needs is all that
 * is in memory, however wide they are.
 */
typedef struct Feeder
{
	DestReceiver pub;
	ScdcFlow   *flow;
	Datum	   *values;			/* of a work row */
	bool	   *isnull;
	MemoryContext row_cxt;		/* reset after each row */
} Feeder;

static bool
feed_row(TupleTableSlot *row, DestReceiver *self)
{
	Feeder	   *f = (Feeder *) self;
	TupleDesc	desc = row->tts_tupleDescriptor;
	MemoryContext old = MemoryContextSwitchTo(f->row_cxt);

	slot_getallattrs(row);
	memcpy(f->isnull, row->tts_isnull, desc->natts * sizeof(bool));
	for (int i = 0; i < desc->natts; i++)
	{
		f->values[i] = row->tts_values[i];
		/* what waits in state must not depend on the relation's toast table */
		if (!f->isnull[i] && TupleDescAttr(desc, i)->attlen == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(f->values[i])))
			f->values[i] = PointerGetDatum(detoast_external_attr((struct varlena *) DatumGetPointer(f->values[i])));
	}
	scdc_flow_row(f->flow, f->values, f->isnull);
	MemoryContextSwitchTo(old);
	MemoryContextReset(f->row_cxt);
	return true;
}

static void
feed_start(DestReceiver *self, int operation, TupleDesc desc)
{
}

static void
feed_end(DestReceiver *self)
{
}

static ParamListInfo
bound_params(const Bounds *b)
{
	ParamListInfo params = makeParamList(b->nargs);

	for (int i = 0; i < b->nargs; i++)
	{
		params->params[i].value = b->values[i];
		params->params[i].isnull = false;
		params->params[i].pflags = PARAM_FLAG_CONST;
		params->params[i].ptype = b->types[i];
	}
	return params;
}

void
scdc_registered_batch(ScdcSource *s, const ScdcBatch *batch, ScdcFlow *flow)
{
	MemoryContext old = CurrentMemoryContext;
	Feeder		f = {
		.pub = {
			.receiveSlot = feed_row,
			.rStartup = feed_start,
			.rShutdown = feed_end,
			.rDestroy = feed_end,
			.mydest = DestNone,
		},
		.flow = flow,
		.values = palloc0(s->work->desc->natts * sizeof(Datum)),
		.isnull = palloc0(s->work->desc->natts * sizeof(bool)),
		.row_cxt = AllocSetContextCreate(old, "streamcdc source row", ALLOCSET_DEFAULT_SIZES),
	};
	SPIExecuteOptions options = {.read_only = true,.dest = &f.pub};
	int			nestlevel = NewGUCNestLevel();
	Bounds		b;
	char	   *query;
	SPIPlanPtr	plan;
	int			result;

	init_bounds(s, &b, batch->start_offset, batch->end_offset);
	query = psprintf("SELECT %s FROM %s AS l%s ORDER BY %s, pg_catalog.row_number() OVER ()", s->select, s->relation,
					 b.where.data, version_column(s->work->text_versions));
	options.params = bound_params(&b);
	/* or a table's rows would come in another order each time */
	(void) set_config_option("synchronize_seqscans", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	plan = SPI_prepare(query, b.nargs, b.types);	/* not a parallel one, for the same reason */
	result = plan ? SPI_execute_plan_extended(plan, &options) : SPI_result;
	if (result < 0)
		elog(ERROR, "could not read the change log: %s", SPI_result_code_string(result));
	SPI_finish();
	MemoryContextSwitchTo(old);
	AtEOXact_GUC(true, nestlevel);
	MemoryContextDelete(f.row_cxt);
}
