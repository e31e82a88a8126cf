/*-------------------------------------------------------------------------
 *
 * sink.c
 *	  Where the rows of a batch go (see sink.h).
 *
 * "batch" is an ephemeral named relation, so any SQL works on it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "executor/tstoreReceiver.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "storage/lmgr.h"
#include "storage/sinval.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "jobs/sink.h"
#include "jobs/sink_kinds.h"
#include "jobs/uses.h"

/* ---------------------------------------------------------------------
 * the query
 * ---------------------------------------------------------------------
 */

/* Settings under which the owner's SQL runs; undone with AtEOXact_GUC. */
static int
begin_settings(const ScdcQuery *q)
{
	int			nestlevel = NewGUCNestLevel();

	(void) set_config_option("search_path", q->search_path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	for (int i = 0; i + 1 < list_length(q->settings); i += 2)
		(void) set_config_option(list_nth(q->settings, i), list_nth(q->settings, i + 1), PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, WARNING, false);
	return nestlevel;
}

/* Makes the rows known as "batch" to what SPI runs. */
static void
register_batch(TupleDesc desc, Tuplestorestate *rows, double nrows)
{
	EphemeralNamedRelation enr = palloc0(sizeof(EphemeralNamedRelationData));

	enr->md.name = pstrdup(SCDC_BATCH);
	enr->md.reliddesc = InvalidOid;
	enr->md.tupdesc = desc;
	enr->md.enrtype = ENR_NAMED_TUPLESTORE;
	enr->md.enrtuples = nrows;
	enr->reldata = rows;
	if (SPI_register_relation(enr) != SPI_OK_REL_REGISTER)
		elog(ERROR, "could not register the batch");
}

static void
connect(TupleDesc desc, Tuplestorestate *rows, double nrows)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	register_batch(desc, rows, nrows);
}

/* The query's text without what follows the statement; raises unless it is one SELECT. */
static char *
query_text(const ScdcQuery *q)
{
	List	   *statements;
	RawStmt    *raw;
	const char *start;

	if (q->query == NULL)
		return pstrdup("SELECT * FROM " SCDC_BATCH);
	statements = raw_parser(q->query, RAW_PARSE_DEFAULT);
	if (list_length(statements) != 1 || !IsA(linitial_node(RawStmt, statements)->stmt, SelectStmt) ||
		castNode(SelectStmt, linitial_node(RawStmt, statements)->stmt)->intoClause)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"query\" must be one SELECT over \"%s\"", SCDC_BATCH)));
	raw = linitial_node(RawStmt, statements);
	start = q->query + raw->stmt_location;
	return raw->stmt_len > 0 ? pnstrdup(start, raw->stmt_len) : pstrdup(start);
}

/* A query and those that it stands in, where names of WITH queries are looked for. */
typedef struct Scope
{
	Query	   *query;
	const CommonTableExpr *followed;	/* it is this one's, and was got to by its name */
	const struct Scope *outer;
} Scope;

static bool mentions_batch(Node *node, void *context);

/* Does the WITH query that an entry names read the batch?  One that refers to itself adds nothing by that. */
static bool
cte_mentions_batch(const RangeTblEntry *rte, const Scope *scope)
{
	Scope		inner = {.outer = scope};
	ListCell   *lc;

	for (Index up = 0; up < rte->ctelevelsup; up++)
		inner.outer = inner.outer->outer;
	foreach(lc, inner.outer->query->cteList)
		if (strcmp(lfirst_node(CommonTableExpr, lc)->ctename, rte->ctename) == 0)
			inner.followed = lfirst_node(CommonTableExpr, lc);
	for (const Scope *s = scope; s; s = s->outer)
		if (s->followed == inner.followed)
			return false;
	inner.query = castNode(Query, inner.followed->ctequery);
	return query_tree_walker(inner.query, mentions_batch, &inner, QTW_EXAMINE_RTES_BEFORE | QTW_IGNORE_CTE_SUBQUERIES);
}

static bool
mentions_batch(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		return (rte->rtekind == RTE_NAMEDTUPLESTORE && strcmp(rte->enrname, SCDC_BATCH) == 0) ||
			(rte->rtekind == RTE_CTE && cte_mentions_batch(rte, context));
	}
	if (IsA(node, Query))
	{
		Scope		inner = {.query = (Query *) node,.outer = context};

		return query_tree_walker(inner.query, mentions_batch, &inner, QTW_EXAMINE_RTES_BEFORE | QTW_IGNORE_CTE_SUBQUERIES);
	}
	return expression_tree_walker(node, mentions_batch, context);
}

/* Is all of a tree of set operations UNION ALL? */
static bool
only_adds_up(const Node *tree)
{
	const SetOperationStmt *op;

	if (tree == NULL || !IsA(tree, SetOperationStmt))
		return true;
	op = (const SetOperationStmt *) tree;
	return op->op == SETOP_UNION && op->all && only_adds_up(op->larg) && only_adds_up(op->rarg);
}

/* What a query over a stream may not do: its meaning would be over the whole stream, not over one batch. */
static const char *
stateful_part(Query *query)
{
	if (query->hasAggs || query->groupClause || query->groupingSets || query->havingQual)
		return "aggregates";
	if (query->distinctClause)
		return "DISTINCT";
	if (query->hasWindowFuncs)
		return "window functions";
	if (query->limitCount || query->limitOffset)
		return "LIMIT";
	if (!only_adds_up(query->setOperations))
		return "UNION, INTERSECT and EXCEPT";
	return NULL;
}

static bool
refuse_stateful(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Scope		inner = {.query = (Query *) node,.outer = context};
		const char *part = stateful_part(inner.query);

		if (part && mentions_batch(node, context))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("%s over \"%s\" %s not supported", part, SCDC_BATCH,
							strcmp(part, "DISTINCT") == 0 || strcmp(part, "LIMIT") == 0 ? "is" : "are"),
					 errdetail("Their meaning in a stream is over the whole stream, not over one batch."),
					 errhint("Commands in foreach_batch may do so for each batch.")));
		return query_tree_walker(inner.query, refuse_stateful, &inner, 0);
	}
	return expression_tree_walker(node, refuse_stateful, context);
}

/* Its result is used by the names of its columns. */
static void
check_names(TupleDesc desc)
{
	for (int i = 0; i < desc->natts; i++)
		for (int j = 0; j < i; j++)
			if (strcmp(NameStr(TupleDescAttr(desc, i)->attname), NameStr(TupleDescAttr(desc, j)->attname)) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("column \"%s\" appears twice in \"query\"", NameStr(TupleDescAttr(desc, i)->attname))));
}

/* Checks the query; returns its columns, in the caller's context.  Inside SPI, with "batch" registered. */
TupleDesc
scdc_sink_query_columns(const char *text)
{
	SPIPlanPtr	plan = SPI_prepare(text, 0, NULL);
	CachedPlanSource *source;
	Query	   *query;

	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	source = linitial(SPI_plan_get_plan_sources(plan));
	query = linitial_node(Query, source->query_list);
	if (query->hasModifyingCTE || query->rowMarks)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s not supported in \"query\"", query->rowMarks ? "row locks are" : "commands that change data are"),
				 errhint("Commands in foreach_batch may do so for each batch.")));
	refuse_stateful((Node *) query, NULL);
	/* mostly it names the source, and would bring all of that with each batch */
	if (!mentions_batch((Node *) query, NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"query\" does not read \"%s\"", SCDC_BATCH),
				 errhint("Relation \"%s\" has the changes of a batch; the source's own name stands for all of the table.", SCDC_BATCH)));
	check_names(source->resultDesc);
	return CreateTupleDescCopy(source->resultDesc);
}

/* ---------------------------------------------------------------------
 * checking
 * ---------------------------------------------------------------------
 */

/*
 * Commands of foreach_batch.  What comes after one that is not a query may
 * depend on it (CREATE TEMP TABLE), and is analysed when its time has come.
 */
static void
check_commands(const ScdcQuery *q)
{
	List	   *statements = raw_parser(q->sink, RAW_PARSE_DEFAULT);
	Oid			type = INT8OID;
	ListCell   *lc;

	if (statements == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"foreach_batch\" holds no command")));
	foreach(lc, statements)
	{
		RawStmt    *raw = lfirst_node(RawStmt, lc);

		if (IsA(raw->stmt, TransactionStmt) || IsA(raw->stmt, CopyStmt))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 IsA(raw->stmt, CopyStmt) ? errmsg("COPY is not allowed in \"foreach_batch\"") :
					 errmsg("transaction commands are not allowed in \"foreach_batch\"")));
	}
	foreach(lc, statements)
	{
		RawStmt    *raw = lfirst_node(RawStmt, lc);
		const char *start = q->sink + raw->stmt_location;
		SPIPlanPtr	plan;

		if (!IsA(raw->stmt, SelectStmt) && !IsA(raw->stmt, InsertStmt) && !IsA(raw->stmt, UpdateStmt) &&
			!IsA(raw->stmt, DeleteStmt) && !IsA(raw->stmt, MergeStmt))
			break;
		plan = SPI_prepare(raw->stmt_len > 0 ? pnstrdup(start, raw->stmt_len) : pstrdup(start), 1, &type);
		if (plan == NULL)
			elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
		scdc_uses_check_plan(q, plan);
	}
}

List *
scdc_sink_check(ScdcQuery *q, TupleDesc batch, bool create)
{
	MemoryContext cxt = CurrentMemoryContext;
	Tuplestorestate *nothing = tuplestore_begin_heap(false, false, work_mem);
	int			nestlevel = begin_settings(q);
	char	   *text = query_text(q);
	TupleDesc	columns;
	char	   *sink;
	char	   *progress_table;
	List	   *partition_by;
	List	   *targets = NIL;

	connect(batch, nothing, 0);
	columns = scdc_sink_query_columns(text);
	if (q->query && q->sink_kind != SCDC_SINK_TABLE)	/* there it is a part of the commands that write */
		scdc_uses_check_plan(q, SPI_prepare(text, 0, NULL));
	switch (q->sink_kind)
	{
		case SCDC_SINK_TABLE:
			targets = scdc_sink_table_check(q, text, columns, create);
			break;
		case SCDC_SINK_BATCH_SQL:
			check_commands(q);
			break;
		case SCDC_SINK_BATCH_FUNCTION:
			break;
		case SCDC_SINK_FOREACH:
			scdc_sink_function_check_rows(q, text, columns);
			break;
	}
	sink = MemoryContextStrdup(cxt, q->sink);
	progress_table = q->progress_table ? MemoryContextStrdup(cxt, q->progress_table) : NULL;
	partition_by = q->partition_by;
	MemoryContextSwitchTo(cxt);
	targets = list_copy(targets);
	SPI_finish();
	q->sink = sink;
	q->progress_table = progress_table;
	q->partition_by = partition_by;
	AtEOXact_GUC(true, nestlevel);
	tuplestore_end(nothing);
	return targets;
}

/*
 * What a check depends on is in the catalogs, and whoever changes them sends
 * messages.  With the locks on what is written into they have all arrived; to
 * ask what they are about would be more work than it saves.
 */
void
scdc_sink_check_again(ScdcQuery *q, TupleDesc batch, ScdcSinkCheck *last)
{
	uint64		messages;
	List	   *targets;
	MemoryContext old;
	ListCell   *lc;

	foreach(lc, last->targets)
		LockRelationOid(lfirst_oid(lc), AccessShareLock);
	AcceptInvalidationMessages();
	messages = SharedInvalidMessageCounter;
	if (last->context && last->messages == messages && equalTupleDescs(last->batch, batch))
		return;

	scdc_sink_forget_check(last);
	targets = scdc_sink_check(q, batch, false);
	last->context = AllocSetContextCreate(TopMemoryContext, "streamcdc checked sink", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(last->context);
	last->batch = CreateTupleDescCopy(batch);
	last->targets = list_copy(targets);
	last->messages = messages;
	MemoryContextSwitchTo(old);
}

void
scdc_sink_forget_check(ScdcSinkCheck *last)
{
	if (last->context)
		MemoryContextDelete(last->context);
	memset(last, 0, sizeof(*last));
}

/* ---------------------------------------------------------------------
 * writing
 * ---------------------------------------------------------------------
 */

/* The query's result in place of the batch, for commands that name it themselves. */
static Tuplestorestate *
replace_batch(const char *text)
{
	Tuplestorestate *rows = tuplestore_begin_heap(false, false, work_mem);
	SPIPlanPtr	plan = SPI_prepare(text, 0, NULL);
	SPIExecuteOptions options = {.dest = CreateDestReceiver(DestTuplestore)};
	TupleDesc	desc;
	int			result;

	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	desc = CreateTupleDescCopy(((CachedPlanSource *) linitial(SPI_plan_get_plan_sources(plan)))->resultDesc);
	SetTuplestoreDestReceiverParams(options.dest, rows, CurrentMemoryContext, false, NULL, NULL);
	result = SPI_execute_plan_extended(plan, &options);
	if (result < 0)
		elog(ERROR, "could not run the query: %s", SPI_result_code_string(result));
	SPI_unregister_relation(SCDC_BATCH);
	register_batch(desc, rows, SPI_processed);
	return rows;
}

static void
write_batch_sql(const ScdcQuery *q, const char *text, int64 batch_id)
{
	Tuplestorestate *rows = q->query ? replace_batch(text) : NULL;
	Oid			type = INT8OID;
	Datum		value = Int64GetDatum(batch_id);
	int			result = SPI_execute_with_args(q->sink, 1, &type, &value, NULL, false, 0);

	if (result == SPI_ERROR_TRANSACTION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("transaction commands are not allowed in \"foreach_batch\"")));
	if (result == SPI_ERROR_COPY)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("COPY is not allowed in \"foreach_batch\"")));
	if (result < 0)
		elog(ERROR, "SPI_execute_with_args failed: %s", SPI_result_code_string(result));
	if (rows)
		tuplestore_end(rows);
}

int64
scdc_sink_write(const ScdcQuery *q, TupleDesc batch, Tuplestorestate *rows, int64 nrows, int64 batch_id)
{
	int			nestlevel = begin_settings(q);
	char	   *text = query_text(q);
	int64		written = -1;

	connect(batch, rows, nrows);
	if (q->progress_table == NULL || !scdc_sink_is_written(q, batch_id))
	{
		switch (q->sink_kind)
		{
			case SCDC_SINK_TABLE:
				written = nrows > 0 ? scdc_sink_table_write(q, text) : 0;
				break;
			case SCDC_SINK_BATCH_SQL:
				write_batch_sql(q, text, batch_id);
				break;
			case SCDC_SINK_BATCH_FUNCTION:
				scdc_sink_function_write_batch(q, text, batch_id);
				break;
			case SCDC_SINK_FOREACH:
				scdc_sink_function_write_rows(q, text, batch_id);
				break;
		}
		if (q->progress_table)
			scdc_sink_note_written(q, batch_id);
	}
	SPI_finish();
	AtEOXact_GUC(true, nestlevel);
	return written;
}

void
scdc_sink_explain(const ScdcQuery *q, TupleDesc batch, Tuplestorestate *lines, TupleDesc line)
{
	Tuplestorestate *nothing = tuplestore_begin_heap(false, false, work_mem);
	int			nestlevel = begin_settings(q);

	connect(batch, nothing, 0);
	if (SPI_execute(psprintf("EXPLAIN (COSTS OFF) %s", query_text(q)), false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "unexpected result of EXPLAIN");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		Datum		value = CStringGetTextDatum(psprintf("  %s", SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1)));
		bool		isnull = false;

		tuplestore_putvalues(lines, line, &value, &isnull);
	}
	SPI_finish();
	AtEOXact_GUC(true, nestlevel);
	tuplestore_end(nothing);
}

/* ---------------------------------------------------------------------
 * descriptions
 * ---------------------------------------------------------------------
 */

char *
scdc_sink_description(const ScdcQuery *q)
{
	switch (q->sink_kind)
	{
		case SCDC_SINK_TABLE:
			return psprintf("Table[%s]", q->sink);
		case SCDC_SINK_BATCH_SQL:
			return pstrdup("ForeachBatchSink");
		case SCDC_SINK_BATCH_FUNCTION:
			return psprintf("ForeachBatchSink[%s]", q->sink);
		case SCDC_SINK_FOREACH:
			return psprintf("ForeachWriterSink[%s]", q->sink);
	}
	return NULL;
}

const char *
scdc_sink_guarantee(const ScdcQuery *q)
{
	if (scdc_sink_is_foreign(q) && q->progress_table == NULL)
		return "at least once";
	/* nobody can tell where functions write */
	return q->sink_kind == SCDC_SINK_TABLE ? "exactly once" : "exactly once in this database, at least once elsewhere";
}
