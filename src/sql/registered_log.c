/*-------------------------------------------------------------------------
 *
 * registered_log.c
 *	  Reading a range of a registered change log: from the relation's rows to
 *	  change rows.
 *
 * The relation is read by a query, as the caller, through a cursor: the
 * executor sorts it by version, on disk if need be, and checks rights and
 * row-level security.  The query selects
 *
 *		the relation's columns, what row_id and row_version lead to inside of
 *		columns, and a number that keeps rows of one version in the order in
 *		which the relation gives them
 *
 * A row of its result goes straight to the caller if no pass runs.  Else it
 * goes through the collapse, as the bytes of its tuple.
 *
 * The caller's settings are in force while the query runs, and fixed ones
 * while rows are turned into jsonb.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/tupdesc.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "owner.h"
#include "sql/json_row.h"
#include "sql/key_sample.h"
#include "sql/registered_log.h"
#include "sql/resolve.h"
#include "sql/row_error.h"
#include "sql/tapes.h"
#include "sql/tuple_key.h"

/* Rows are fetched as many at a time as take about this much memory. */
#define FETCH_BYTES		(256 * 1024)
#define FETCH_MAX_ROWS	1000

/* A value that rows are compared by. */
typedef struct Key
{
	ScdcTupleKey key;
	ScdcKeySample *sample;		/* in the place of a hash function */
	const char *expression;		/* in the query */
} Key;

/* A row in the collapse: bytes without pointers. */
typedef struct LogRow
{
	uint32		tuple_len;
	uint32		hash;			/* of the row id; 0 if no pass asks for it */
	/* at LOG_ROW_TUPLE: the tuple, header included */
} LogRow;

#define LOG_ROW_TUPLE	MAXALIGN(sizeof(LogRow))

typedef struct LogReader
{
	const ScdcRegistration *registration;
	const char *name;
	ScdcRegisteredSchema schema;
	TupleDesc	relation;
	ScdcPasses	passes;

	/* the query's result */
	TupleDesc	desc;
	AttrNumber *attno_of;		/* of the relation's columns; 0: dropped */
	int			nkeys;
	Key		   *keys;			/* the row id */
	Key			row_version;

	/* the result */
	bool		typed;
	TupleDesc	row_desc;		/* of the row, or of what becomes jsonb */
	AttrNumber *row_attno;		/* of row_desc's columns in desc; 0: NULL */
	FmgrInfo	to_jsonb;		/* may call casts of users, ... */
	Oid			owner;			/* ... as the relation's owner */
	Datum		labels[4];		/* of ScdcChangeType, as text */
	ScdcPutColumns put;
	void	   *arg;

	/* at work */
	ScdcCollapse *collapse;
	ScdcTapes  *tapes;			/* its temporary files */
	bool		in_commit;
	int64		version;
	int64		seq;
	MemoryContext context;		/* lives as long as the reader */
	MemoryContext row_cxt;		/* reset after each row */
	Datum	   *values;			/* of desc */
	bool	   *isnull;
	Datum	   *row_values;		/* of row_desc */
	bool	   *row_isnull;
} LogReader;

/* ---------------------------------------------------------------------
 * putting rows out
 * ---------------------------------------------------------------------
 */

static void
jsonb_error(void *arg)
{
	LogReader  *r = arg;
	AttrNumber	version = r->attno_of[r->schema.commit_version - 1];

	if (!r->isnull[version - 1] && !r->schema.text_versions)
		scdc_row_error(NULL, DatumGetInt64(r->values[version - 1]), true);
}

static Datum
row_to_jsonb(LogReader *r, Datum row)
{
	ErrorContextCallback context = {.previous = error_context_stack, .callback = jsonb_error, .arg = r};
	OverrideSearchPath path = {.addCatalog = true};
	ScdcOwnerScope scope;
	Datum		result;

	error_context_stack = &context;
	scdc_owner_begin(&scope, r->owner);
	PushOverrideSearchPath(&path);
	result = FunctionCall1(&r->to_jsonb, row);
	PopOverrideSearchPath();
	scdc_owner_end(&scope);
	error_context_stack = context.previous;
	return result;
}

static Datum
make_row(LogReader *r, Datum change_type, bool change_type_isnull)
{
	HeapTuple	tuple;
	Datum		row;

	for (int i = 0; i < r->row_desc->natts; i++)
	{
		AttrNumber	attno = r->row_attno[i];

		r->row_isnull[i] = attno == 0 || r->isnull[attno - 1];
		r->row_values[i] = r->row_isnull[i] ? (Datum) 0 : r->values[attno - 1];
	}
	if (r->typed)
	{
		r->row_values[r->schema.change_type - 1] = change_type;
		r->row_isnull[r->schema.change_type - 1] = change_type_isnull;
	}
	tuple = heap_form_tuple(r->row_desc, r->row_values, r->row_isnull);
	row = HeapTupleGetDatum(tuple);
	return r->typed ? row : row_to_jsonb(r, row);
}

/* In row_cxt.  type: what to call it; SCDC_CHANGE_OTHER: as it calls itself. */
static void
put_tuple(LogReader *r, HeapTuple tuple, ScdcChangeType type)
{
	AttrNumber	change_type = r->attno_of[r->schema.change_type - 1];
	AttrNumber	version = r->attno_of[r->schema.commit_version - 1];
	AttrNumber	timestamp = r->attno_of[r->schema.commit_timestamp - 1];
	Datum		values[4];
	bool		isnull[4];

	heap_deform_tuple(tuple, r->desc, r->values, r->isnull);
	values[0] = type == SCDC_CHANGE_OTHER ? r->values[change_type - 1] : r->labels[type];
	isnull[0] = type == SCDC_CHANGE_OTHER && r->isnull[change_type - 1];
	values[1] = r->values[version - 1];
	isnull[1] = r->isnull[version - 1];
	values[2] = r->values[timestamp - 1];
	isnull[2] = r->isnull[timestamp - 1];
	values[3] = make_row(r, values[0], isnull[0]);
	isnull[3] = false;
	r->put(values, isnull, r->arg);
}

/* ---------------------------------------------------------------------
 * the collapse's callbacks; rows are LogRow
 * ---------------------------------------------------------------------
 */

static HeapTupleData
tuple_of(const LogRow *row)
{
	HeapTupleData tuple;

	tuple.t_len = row->tuple_len;
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = (HeapTupleHeader) (unconstify(char *, (const char *) row) + LOG_ROW_TUPLE);
	return tuple;
}

static bool
same_value(LogReader *r, Key *key, const void *a, const void *b)
{
	HeapTupleData x = tuple_of(a);
	HeapTupleData y = tuple_of(b);

	return scdc_tuple_key_same(&key->key, r->desc, &x, &y);
}

static uint32
collapse_size(const void *row, void *arg)
{
	return LOG_ROW_TUPLE + ((const LogRow *) row)->tuple_len;
}

static uint32
collapse_hash(const void *row, void *arg)
{
	return ((const LogRow *) row)->hash;
}

static bool
collapse_same_identity(const void *a, const void *b, void *arg)
{
	LogReader  *r = arg;
	MemoryContext old = MemoryContextSwitchTo(r->row_cxt);
	bool		same = true;

	for (int i = 0; same && i < r->nkeys; i++)
		same = same_value(r, &r->keys[i], a, b);
	MemoryContextSwitchTo(old);
	return same;
}

static bool
collapse_has_row_version(const void *row, void *arg)
{
	LogReader  *r = arg;
	HeapTupleData tuple = tuple_of(row);

	return !heap_attisnull(&tuple, r->row_version.key.attno, r->desc);
}

static bool
collapse_same_row_version(const void *a, const void *b, void *arg)
{
	LogReader  *r = arg;
	MemoryContext old = MemoryContextSwitchTo(r->row_cxt);
	bool		same = same_value(r, &r->row_version, a, b);

	MemoryContextSwitchTo(old);
	return same;
}

static void
collapse_emit(const ScdcChangeRow *change, void *arg)
{
	LogReader  *r = arg;
	HeapTupleData tuple = tuple_of(change->row);
	MemoryContext old = MemoryContextSwitchTo(r->row_cxt);

	CHECK_FOR_INTERRUPTS();
	put_tuple(r, &tuple, change->type);
	MemoryContextSwitchTo(old);
	MemoryContextReset(r->row_cxt);
}

static char *
change_type_of(LogReader *r, const LogRow *row)
{
	HeapTupleData tuple = tuple_of(row);
	bool		isnull;
	Datum		value = heap_getattr(&tuple, r->attno_of[r->schema.change_type - 1], r->desc, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

static void
collapse_error(ScdcCollapseError error, const ScdcChangeRow *change, void *arg)
{
	LogReader  *r = arg;

	scdc_contract_error(error, r->name, psprintf(INT64_FORMAT, change->version), change_type_of(r, change->row));
}

static void *
collapse_file_create(void *arg)
{
	return scdc_tape_create(((LogReader *) arg)->tapes);
}

static void
collapse_check_interrupts(void *arg)
{
	CHECK_FOR_INTERRUPTS();
}

static void
collapse_create(LogReader *r, const ScdcReadOptions *options)
{
	ScdcCollapseOps ops = {
		.size = collapse_size,
		.hash = collapse_hash,
		.same_identity = collapse_same_identity,
		.has_row_version = collapse_has_row_version,
		.same_row_version = collapse_same_row_version,
		.emit = collapse_emit,
		.error = collapse_error,
		.file_create = collapse_file_create,
		.file_write = scdc_tape_write,
		.file_rewind = scdc_tape_rewind,
		.file_read = scdc_tape_read,
		.file_close = scdc_tape_close,
		.check_interrupts = collapse_check_interrupts,
		.arg = r,
	};
	ScdcCollapseOptions how = {
		.passes = r->passes,
		.compute_updates = options->compute_updates,
		.memory_limit = (Size) work_mem * 1024,
	};

	/* update detection looks at the rows of a commit twice */
	r->tapes = scdc_tapes_create(true);
	r->collapse = scdc_collapse_create(&ops, &how);
}

/* ---------------------------------------------------------------------
 * rows of the query
 * ---------------------------------------------------------------------
 */

static ScdcChangeType
label_type(Datum label, bool isnull)
{
	static const struct
	{
		const char *label;
		ScdcChangeType type;
	}			known[] = {
		{"insert", SCDC_CHANGE_INSERT},
		{"delete", SCDC_CHANGE_DELETE},
		{"update_preimage", SCDC_CHANGE_UPDATE_PREIMAGE},
		{"update_postimage", SCDC_CHANGE_UPDATE_POSTIMAGE},
	};
	text	   *t;

	if (isnull)
		return SCDC_CHANGE_OTHER;
	t = DatumGetTextPP(label);
	for (int i = 0; i < (int) lengthof(known); i++)
	{
		Size		len = strlen(known[i].label);

		if (VARSIZE_ANY_EXHDR(t) == len && memcmp(VARDATA_ANY(t), known[i].label, len) == 0)
			return known[i].type;
	}
	return SCDC_CHANGE_OTHER;
}

static uint32
hash_row_id(LogReader *r, HeapTuple tuple)
{
	uint32		hash = 0;

	for (int i = 0; i < r->nkeys; i++)
	{
		Key		   *key = &r->keys[i];
		bool		isnull;
		Datum		value = heap_getattr(tuple, key->key.attno, r->desc, &isnull);

		hash = hash_combine(hash, !isnull && key->sample ? scdc_key_sample_hash(key->sample, value) :
							(uint32) scdc_tuple_key_hash(&key->key, value, isnull));
	}
	return hash;
}

/* In row_cxt. */
static LogRow *
make_log_row(LogReader *r, HeapTuple tuple)
{
	LogRow	   *row = palloc(LOG_ROW_TUPLE + tuple->t_len);

	row->tuple_len = tuple->t_len;
	row->hash = hash_row_id(r, tuple);
	memcpy((char *) row + LOG_ROW_TUPLE, tuple->t_data, tuple->t_len);
	return row;
}

/* In row_cxt. */
static void
feed_tuple(LogReader *r, HeapTuple tuple)
{
	bool		isnull;
	Datum		version = heap_getattr(tuple, r->attno_of[r->schema.commit_version - 1], r->desc, &isnull);
	ScdcChangeType type;
	Datum		value;

	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("_commit_version is null in change log \"%s\"", r->name),
				 errhint("Such rows can be read with deduplication_mode \"none\".")));
	if (r->in_commit && DatumGetInt64(version) != r->version)
		scdc_collapse_end_commit(r->collapse);
	if (!r->in_commit || DatumGetInt64(version) != r->version)
	{
		r->in_commit = true;
		r->version = DatumGetInt64(version);
		r->seq = 0;
	}
	value = heap_getattr(tuple, r->attno_of[r->schema.change_type - 1], r->desc, &isnull);
	type = label_type(value, isnull);

	/* the row has its timestamp in itself, which may be NULL */
	scdc_collapse_row(r->collapse, type, r->version, 0, ++r->seq, make_log_row(r, tuple));
}

static void
read_batch(LogReader *r, SPITupleTable *batch, uint64 n)
{
	for (uint64 i = 0; i < n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(r->row_cxt);

		CHECK_FOR_INTERRUPTS();
		if (r->collapse)
			feed_tuple(r, batch->vals[i]);
		else
			put_tuple(r, batch->vals[i], SCDC_CHANGE_OTHER);
		MemoryContextSwitchTo(old);
		MemoryContextReset(r->row_cxt);
	}
}

/* How many rows to fetch next, going by the last ones. */
static uint64
next_fetch(SPITupleTable *batch, uint64 n)
{
	Size		bytes = 0;

	for (uint64 i = 0; i < n; i++)
		bytes += batch->vals[i]->t_len;
	return Min(Max(FETCH_BYTES / Max(bytes / n, 1), 1), FETCH_MAX_ROWS);
}

/* Settings for turning rows into results. */
static int
pin_settings(const LogReader *r)
{
	return r->typed ? NewGUCNestLevel() : scdc_pin_reading_settings();
}

static void
read_rows(LogReader *r, Portal portal)
{
	uint64		fetch = 16;
	int			nestlevel;

	for (;;)
	{
		SPITupleTable *batch;
		uint64		n;

		SPI_cursor_fetch(portal, true, fetch);
		batch = SPI_tuptable;
		n = SPI_processed;
		if (n == 0)
			break;
		nestlevel = pin_settings(r);
		read_batch(r, batch, n);
		AtEOXact_GUC(true, nestlevel);
		fetch = next_fetch(batch, n);
		SPI_freetuptable(batch);
	}
	if (r->collapse)
	{
		nestlevel = pin_settings(r);
		if (r->in_commit)
			scdc_collapse_end_commit(r->collapse);
		scdc_collapse_finish(r->collapse);
		scdc_tapes_end(r->tapes);
		AtEOXact_GUC(true, nestlevel);
	}
}

/* ---------------------------------------------------------------------
 * the query
 * ---------------------------------------------------------------------
 */

/* Adds a column to the query's result; returns its number there. */
static AttrNumber
select_expression(StringInfo list, AttrNumber *n, const char *expression)
{
	appendStringInfo(list, "%s%s", *n > 0 ? ", " : "", expression);
	return ++(*n);
}

static void
select_key(LogReader *r, StringInfo list, AttrNumber *n, const ScdcReference *ref, Key *key)
{
	MemoryContext old = MemoryContextSwitchTo(r->context);
	AttrNumber	attno = ref->attnum != InvalidAttrNumber ? r->attno_of[ref->attnum - 1] :
	select_expression(list, n, ref->expression);

	scdc_tuple_key_init(&key->key, attno, ref->type, ref->collation);
	if (!key->key.has_hash)
		key->sample = scdc_key_sample_create(ref->type, key->key.collation);
	MemoryContextSwitchTo(old);
	key->expression = ref->expression;
}

/* What to select; fills the parts of the reader that depend on it. */
static char *
select_list(LogReader *r)
{
	const ScdcRegistration *registration = r->registration;
	TupleDesc	relation = r->relation;
	StringInfoData list;
	AttrNumber	n = 0;

	initStringInfo(&list);
	r->attno_of = palloc0(relation->natts * sizeof(AttrNumber));
	for (int i = 0; i < relation->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(relation, i);

		if (!att->attisdropped)
			r->attno_of[i] = select_expression(&list, &n, psprintf("l.%s", quote_identifier(NameStr(att->attname))));
	}

	r->nkeys = registration->nrow_id;
	r->keys = palloc0(Max(r->nkeys, 1) * sizeof(Key));
	for (int i = 0; i < r->nkeys; i++)
		select_key(r, &list, &n, &r->schema.row_id[i], &r->keys[i]);
	if (registration->row_version)
		select_key(r, &list, &n, &r->schema.row_version, &r->row_version);

	(void) select_expression(&list, &n, "pg_catalog.row_number() OVER ()");
	return list.data;
}

/* With the bounds as they were given: what is next to an infinite timestamp has no text, as a foreign server wants it. */
static const char *
where_clause(const ScdcRange *range)
{
	const char *column;
	const char *start;

	switch (range->kind)
	{
		case SCDC_RANGE_ALL:
			return "";
		case SCDC_RANGE_VERSIONS:
			column = "_commit_version";
			break;
		case SCDC_RANGE_TIMESTAMPS:
			column = "_commit_timestamp";
			break;
		default:
			elog(ERROR, "unexpected kind of range: %d", (int) range->kind);
	}
	start = psprintf(" WHERE l.%s OPERATOR(pg_catalog.%s) $1", column, range->first == range->start ? ">=" : ">");
	if (!range->has_end)
		return start;
	return psprintf("%s AND l.%s OPERATOR(pg_catalog.%s) $2", start, column, range->last == range->end ? "<=" : "<");
}

/* order: ORDER BY clause or "" */
static Portal
open_cursor(LogReader *r, const char *select, const ScdcRange *range, const char *order)
{
	Oid			relid = r->registration->relid;
	Oid			type = range->kind == SCDC_RANGE_TIMESTAMPS ? TIMESTAMPTZOID : INT8OID;
	Oid			types[2] = {type, type};
	Datum		values[2] = {Int64GetDatum(range->start), Int64GetDatum(range->end)};	/* both types are int64 */
	int			nargs = range->kind == SCDC_RANGE_ALL ? 0 : range->has_end ? 2 : 1;
	StringInfoData query;
	Portal		portal;

	initStringInfo(&query);
	appendStringInfo(&query, "SELECT %s FROM %s AS l%s%s",
					 select,
					 quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid)),
					 where_clause(range), order);
	portal = SPI_cursor_open_with_args(NULL, query.data, nargs, types, values, NULL, true, CURSOR_OPT_NO_SCROLL);
	if (portal == NULL)
		elog(ERROR, "could not open a cursor: %s", SPI_result_code_string(SPI_result));
	return portal;
}

/* One more query, for row ids that can be sorted but not hashed. */
static void
sample_key(LogReader *r, Key *key, const ScdcRange *range)
{
	Portal		portal = open_cursor(r, key->expression, range, "");

	for (;;)
	{
		SPI_cursor_fetch(portal, true, FETCH_MAX_ROWS);
		if (SPI_processed == 0)
			break;
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			bool		isnull;
			Datum		value = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull);

			CHECK_FOR_INTERRUPTS();
			if (!isnull)
				scdc_key_sample_add(key->sample, value);
		}
		SPI_freetuptable(SPI_tuptable);
	}
	SPI_cursor_close(portal);
	scdc_key_sample_finish(key->sample);
}

/* ---------------------------------------------------------------------
 * the read
 * ---------------------------------------------------------------------
 */

/* What rows of the result are made of. */
static void
prepare_output(LogReader *r)
{
	int			natts = r->relation->natts;
	int			n = 0;

	r->labels[SCDC_CHANGE_DELETE] = CStringGetTextDatum("delete");
	r->labels[SCDC_CHANGE_INSERT] = CStringGetTextDatum("insert");
	r->labels[SCDC_CHANGE_UPDATE_PREIMAGE] = CStringGetTextDatum("update_preimage");
	r->labels[SCDC_CHANGE_UPDATE_POSTIMAGE] = CStringGetTextDatum("update_postimage");

	r->row_attno = palloc0(natts * sizeof(AttrNumber));
	r->row_values = palloc0(natts * sizeof(Datum));
	r->row_isnull = palloc0(natts * sizeof(bool));
	if (r->typed)
	{
		r->row_desc = r->relation;
		memcpy(r->row_attno, r->attno_of, natts * sizeof(AttrNumber));
		return;
	}

	/* the data columns as an anonymous record, for to_jsonb */
	r->row_desc = CreateTemplateTupleDesc(natts);
	for (int i = 0; i < natts; i++)
	{
		AttrNumber	attnum = i + 1;

		if (r->attno_of[i] == 0 || attnum == r->schema.change_type || attnum == r->schema.commit_version ||
			attnum == r->schema.commit_timestamp)
			continue;
		r->row_attno[n] = r->attno_of[i];
		TupleDescCopyEntry(r->row_desc, ++n, r->relation, attnum);
	}
	r->row_desc->natts = n;
	r->row_desc = BlessTupleDesc(r->row_desc);

	/*
	 * a polymorphic function learns its argument's type from the call's
	 * expression
	 */
	fmgr_info_cxt(F_TO_JSONB, &r->to_jsonb, r->context);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_TO_JSONB, JSONBOID,
											 list_make1(makeNullConst(RECORDOID, -1, InvalidOid)),
											 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL),
					   &r->to_jsonb);
}

static void
check_rights(Oid relid)
{
	if (!scdc_may_select(relid))
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(get_rel_relkind(relid)), get_rel_name(relid));
}

static void
check_options(const LogReader *r, const ScdcReadOptions *options, ScdcSourceFlags flags)
{
	if (scdc_passes_conflict(flags, options->mode, options->compute_updates))
		scdc_updates_need_removal();
	if (r->schema.text_versions)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("versions of change log \"%s\" are of type text", r->name),
				 errhint("stream_changes returns versions as bigint. Change logs with versions of type text are served by jobs.")));
}

/*
 * Looks at the relation; it stays locked until the transaction ends, so that
 * it is what the query finds.
 */
static void
open_relation(LogReader *r)
{
	Relation	rel = relation_open(r->registration->relid, AccessShareLock);

	r->name = pstrdup(RelationGetRelationName(rel));
	r->owner = rel->rd_rel->relowner;
	r->relation = CreateTupleDescCopy(RelationGetDescr(rel));
	relation_close(rel, NoLock);
	scdc_registration_check(r->registration, r->relation, r->name, &r->schema);
}

static void
run_query(LogReader *r, const ScdcReadOptions *options)
{
	MemoryContext old = CurrentMemoryContext;
	char	   *select = select_list(r);
	int			nestlevel = NewGUCNestLevel();
	bool		passes = r->passes.drop_carryovers || r->passes.detect_updates || r->passes.net_changes;
	Portal		portal;

	prepare_output(r);

	/* or a table's rows would come in another order each time */
	(void) set_config_option("synchronize_seqscans", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	for (int i = 0; passes && i < r->nkeys; i++)
		if (r->keys[i].sample)
			sample_key(r, &r->keys[i], &options->range);
	portal = open_cursor(r, select, &options->range,
						 " ORDER BY l._commit_version, pg_catalog.row_number() OVER ()");

	MemoryContextSwitchTo(old);
	r->desc = CreateTupleDescCopy(portal->tupDesc);
	r->values = palloc(r->desc->natts * sizeof(Datum));
	r->isnull = palloc(r->desc->natts * sizeof(bool));
	if (passes)
		collapse_create(r, options);
	read_rows(r, portal);

	SPI_cursor_close(portal);
	SPI_finish();
	AtEOXact_GUC(true, nestlevel);
}

void
scdc_registered_read(const ScdcRegistration *registration, const ScdcReadOptions *options, bool typed,
					 ScdcPutColumns put, void *arg)
{
	ScdcSourceFlags flags = {
		.carryovers = registration->has_carryovers,
		.intermediate = registration->has_intermediate,
		.split_updates = registration->updates_as_pairs,
	};
	LogReader	r = {
		.registration = registration,
		.typed = typed,
		.put = put,
		.arg = arg,
	};
	MemoryContext old;

	check_rights(registration->relid);
	r.context = AllocSetContextCreate(CurrentMemoryContext, "streamcdc registered log", ALLOCSET_DEFAULT_SIZES);
	r.row_cxt = AllocSetContextCreate(r.context, "streamcdc row", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(r.context);

	open_relation(&r);
	check_options(&r, options, flags);
	r.passes = scdc_passes(flags, options->mode, options->compute_updates);
	if (!options->range.empty)
		run_query(&r, options);

	MemoryContextSwitchTo(old);
	MemoryContextDelete(r.context);
}
