/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  stream_changes in FROM as a scan of the change log.
 *
 * The executor puts all that a function in FROM returns into a tuplestore
 * before the first row is seen.  A custom scan takes the place of the function
 * scan and hands on the rows as they are read: without copies, without a
 * file beyond work_mem, without row_data where nobody looks at it, and without
 * what lies behind a LIMIT.
 *
 * What a function scan does otherwise stays as it was.  The call's arguments
 * are evaluated, its rights checked, and the wait for capture done when the
 * first row is asked for; and the function is called once, unless its
 * arguments change: when it is scanned again with the same ones, the same
 * moment is read again, and this time rows are kept.
 *
 * The planner keeps the function scan for what needs more: WITH ORDINALITY,
 * several functions in ROWS FROM, and references to the whole row (which the
 * planner makes, too, for the sake of rechecks after concurrent updates).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/tupmacs.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "commands/explain.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/extensible.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/restrictinfo.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "pgstat.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"
#include "utils/typcache.h"

#include "sql/feed.h"
#include "sql/scan.h"

#define SCAN_NAME "streamcdc changes"

/* the functions, by their symbols */
static const struct
{
	const char *symbol;
	ScdcFeedForm form;
}			forms[] =
{
	{"streamcdc_changes", SCDC_FEED_NAME},
	{"streamcdc_changes_regclass", SCDC_FEED_RELATION},
	{"streamcdc_changes_typed", SCDC_FEED_TYPED},
};

/* A column of the scan's rows. */
typedef struct ScanColumn
{
	bool		used;
	int			source;			/* which of the function's columns it is, from 0 */
	FieldSelect *field;			/* the field of row_data that it is; or NULL */
	Form_pg_attribute att;		/* of the field, once row_data has been taken apart */
	int			offset;			/* of the field, in rows without NULLs; -1: differs */
} ScanColumn;

typedef struct ChangesScan
{
	CustomScanState css;
	ScdcFeedForm form;
	SetExprState *call;			/* the function with its arguments */
	Bitmapset  *params;			/* that the arguments depend on */
	bool		has_subplans;	/* or they depend on what is not in there */
	int			ncolumns;		/* of the scan's rows */
	ScanColumn *columns;
	bool		with_rows;		/* is row_data needed, or a field of it? */
	int			last_field;		/* the last field of row_data that is needed; 0: none */

	/* once the function has been called */
	bool		called;
	MemoryContext call_cxt;		/* what the call needs */
	TupleTableSlot *fields;		/* row_data taken apart; NULL: none has been */
	HeapTupleData row_data;		/* what it is taken from */
	bool		at_offsets;		/* have all fields that are used an offset? */
	ScdcFeed   *feed;			/* NULL: all there is is in the store */
	bool		ended;			/* there is no more in the feed */
	Tuplestorestate *store;		/* rows kept; NULL: none are */
	TupleTableSlot *stored;		/* for rows out of it */
	bool		stored_all;		/* they are the function's rows, not the scan's */
	int64		blocks;			/* opened by feeds that have been closed */
} ChangesScan;

static set_rel_pathlist_hook_type prev_set_rel_pathlist = NULL;
static create_upper_paths_hook_type prev_create_upper_paths = NULL;

static Plan *plan_scan(PlannerInfo *root, RelOptInfo *rel, CustomPath *best_path, List *tlist, List *clauses,
					   List *custom_plans);
static Node *create_state(CustomScan *cscan);
static void begin_scan(CustomScanState *node, EState *estate, int eflags);
static TupleTableSlot *exec_scan(CustomScanState *node);
static void end_scan(CustomScanState *node);
static void rescan(CustomScanState *node);
static void explain_scan(CustomScanState *node, List *ancestors, ExplainState *es);

static const CustomPathMethods path_methods = {
	.CustomName = SCAN_NAME,
	.PlanCustomPath = plan_scan,
};

static const CustomScanMethods scan_methods = {
	.CustomName = SCAN_NAME,
	.CreateCustomScanState = create_state,
};

static const CustomExecMethods exec_methods = {
	.CustomName = SCAN_NAME,
	.BeginCustomScan = begin_scan,
	.ExecCustomScan = exec_scan,
	.EndCustomScan = end_scan,
	.ReScanCustomScan = rescan,
	.ExplainCustomScan = explain_scan,
};

/* ---------------------------------------------------------------------
 * planning
 * ---------------------------------------------------------------------
 */

/* Is it one of our functions, as it was installed: without settings of its own, say, or the rights of its owner? */
static bool
is_changes_function(Oid funcid, ScdcFeedForm *form)
{
	HeapTuple	tuple;
	Form_pg_proc proc;
	Datum		value;
	bool		isnull;
	bool		found = false;

	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(funcid));
	if (!HeapTupleIsValid(tuple))
		return false;
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	if (proc->prolang == ClanguageId && proc->proretset && !proc->prosecdef &&
		heap_attisnull(tuple, Anum_pg_proc_proconfig, NULL))
	{
		value = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &isnull);
		if (!isnull)
		{
			char	   *symbol = TextDatumGetCString(value);

			for (int i = 0; i < (int) lengthof(forms) && !found; i++)
			{
				found = strcmp(symbol, forms[i].symbol) == 0;
				*form = forms[i].form;
			}
			pfree(symbol);
		}
	}
	ReleaseSysCache(tuple);
	return found;
}

/* The call, if the relation is nothing but a call of stream_changes; else NULL. */
static FuncExpr *
changes_call(RangeTblEntry *rte, ScdcFeedForm *form)
{
	RangeTblFunction *function;
	FuncExpr   *call;

	if (rte->rtekind != RTE_FUNCTION || rte->funcordinality || list_length(rte->functions) != 1)
		return NULL;
	function = linitial_node(RangeTblFunction, rte->functions);
	if (!IsA(function->funcexpr, FuncExpr) || function->funccolnames != NIL ||
		function->funccolcount != SCDC_FEED_NCOLUMNS)
		return NULL;
	call = (FuncExpr *) function->funcexpr;
	return call->funcretset && is_changes_function(call->funcid, form) ? call : NULL;
}

/*
 * Adds the columns of the relation that the expressions look at to the list,
 * each once, in order of their appearance.  False if they look at the row as a whole.
 */
static bool
add_columns(List **columns, Node *exprs, Index relid)
{
	List	   *vars = pull_var_clause(exprs, PVC_RECURSE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS | PVC_RECURSE_PLACEHOLDERS);
	ListCell   *lc;

	foreach(lc, vars)
	{
		Var		   *var = lfirst_node(Var, lc);

		if (var->varno != (int) relid || var->varlevelsup != 0)
			continue;
		if (var->varattno <= 0)
			return false;
		*columns = list_append_unique_int(*columns, var->varattno);
	}
	return true;
}

/* The columns that are needed above the scan, and by it; false if that is the whole row. */
static bool
needed_columns(RelOptInfo *rel, ParamPathInfo *param_info, List **columns)
{
	List	   *clauses = extract_actual_clauses(rel->baserestrictinfo, false);

	*columns = NIL;
	if (param_info)
		clauses = list_concat(clauses, extract_actual_clauses(param_info->ppi_clauses, false));
	return add_columns(columns, (Node *) rel->reltarget->exprs, rel->relid) &&
		add_columns(columns, (Node *) clauses, rel->relid);
}

static void
set_rel_pathlist(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	ScdcFeedForm form;
	Path	   *replaced;
	CustomPath *path;
	List	   *columns;

	if (prev_set_rel_pathlist)
		prev_set_rel_pathlist(root, rel, rti, rte);

	/* one that is known to be empty has no function scan */
	if (rte->rtekind != RTE_FUNCTION || list_length(rel->pathlist) != 1)
		return;
	replaced = linitial(rel->pathlist);
	if (replaced->pathtype != T_FunctionScan || changes_call(rte, &form) == NULL ||
		!needed_columns(rel, replaced->param_info, &columns))
		return;

	/* The costs stay, but a scan that is repeated is a scan again: rather materialise it. */
	path = makeNode(CustomPath);
	path->path = *replaced;
	path->path.type = T_CustomPath;
	path->path.pathtype = T_CustomScan;
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	path->custom_private = list_make2(makeInteger(form), columns);
	path->methods = &path_methods;
	rel->pathlist = list_make1(path);
}

typedef struct FieldsContext
{
	int			relid;
	List	   *fields;			/* of row_data, each once */
	bool		whole;			/* is row_data looked at in another way, too? */
} FieldsContext;

static bool
is_row_data(FieldsContext *context, Node *node)
{
	Var		   *var = (Var *) node;

	return node != NULL && IsA(var, Var) && var->varno == context->relid && var->varlevelsup == 0 &&
		var->varattno == SCDC_FEED_ROW_DATA + 1;
}

/* Gathers what an expression does with row_data. */
static bool
fields_walker(Node *node, FieldsContext *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, FieldSelect) && is_row_data(context, (Node *) ((FieldSelect *) node)->arg))
	{
		context->fields = list_append_unique(context->fields, node);
		return false;
	}
	if (is_row_data(context, node))
		context->whole = true;
	return expression_tree_walker(node, fields_walker, context);
}

/* Are the rows grouped by row_data itself? */
static bool
grouped_by_row_data(PathTarget *target, FieldsContext *fields)
{
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		if (is_row_data(fields, lfirst(lc)) && get_pathtarget_sortgroupref(target, foreach_current_index(lc)) != 0)
			return true;
	}
	return false;
}

/*
 * What an aggregate is given: the columns it has an interest in, so that it would take its fields of row_data
 * out of each row itself.  Instead the path gives it the fields, which it then
 * finds by their expressions, and row_data only if something else is to be
 * done with it.
 */
static void
give_fields(PlannerInfo *root, Path *path, FieldsContext *fields)
{
	PathTarget *result = create_empty_pathtarget();
	ListCell   *lc;

	foreach(lc, path->pathtarget->exprs)
	{
		if (fields->whole || !is_row_data(fields, lfirst(lc)))
			add_column_to_pathtarget(result, lfirst(lc), get_pathtarget_sortgroupref(path->pathtarget, foreach_current_index(lc)));
	}
	add_new_columns_to_pathtarget(result, fields->fields);
	path->pathtarget = set_pathtarget_cost_width(root, result);
}

/* Nobody above the scan needs it. */
static void
forget_row_data(CustomPath *scan)
{
	List	   *columns = list_copy(lsecond(scan->custom_private));

	lsecond(scan->custom_private) = list_delete_int(columns, SCDC_FEED_ROW_DATA + 1);
}

/*
 * Does so where one scan is all that is aggregated, whatever stands between
 * the two.  (In a join others have a say in what is needed.)
 *
 * What counts is what the aggregate itself puts out.  It is not always what
 * the query selects: for window functions, set-returning functions and what is
 * computed after sorting only, it hands on row_data.  And where rows are grouped
 * by row_data, a field of it outside of aggregates is one of the group's, which
 * is NULL in grouping sets without row_data, and not one of the row's.
 */
static void
create_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel, RelOptInfo *output_rel, void *extra)
{
	FieldsContext fields = {0};
	ListCell   *lc;

	if (prev_create_upper_paths)
		prev_create_upper_paths(root, stage, input_rel, output_rel, extra);
	if (stage != UPPERREL_GROUP_AGG || input_rel->reloptkind != RELOPT_BASEREL || input_rel->rtekind != RTE_FUNCTION)
		return;

	fields.relid = (int) input_rel->relid;
	(void) fields_walker((Node *) output_rel->reltarget->exprs, &fields);
	(void) fields_walker(root->parse->havingQual, &fields);
	foreach(lc, input_rel->pathlist)
	{
		Path	   *path = lfirst(lc);
		Path	   *scan = IsA(path, ProjectionPath) ? ((ProjectionPath *) path)->subpath : path;

		if (!IsA(scan, CustomPath) || ((CustomPath *) scan)->methods != &path_methods ||
			grouped_by_row_data(path->pathtarget, &fields))
			continue;
		give_fields(root, path, &fields);
		/* the planner may yet put something between the two, for a condition that looks at no row */
		if (scan != path)
			give_fields(root, scan, &fields);
		if (!fields.whole)
			forget_row_data((CustomPath *) scan);
	}
}

/*
 * A scan tuple has the columns that are needed, those for above first, so that
 * it need not be projected if they are all; and behind them the fields of
 * row_data that the query looks at, in case that is done right here: then a
 * row is taken apart once, and not for each field anew.  What is used of all
 * that shows only when the plan is complete (init_columns).
 */
static Plan *
plan_scan(PlannerInfo *root, RelOptInfo *rel, CustomPath *best_path, List *tlist, List *clauses, List *custom_plans)
{
	RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);
	RangeTblFunction *function = linitial_node(RangeTblFunction, rte->functions);
	CustomScan *scan = makeNode(CustomScan);
	FieldsContext fields = {.relid = (int) rel->relid};
	List	   *columns = list_copy(lsecond(best_path->custom_private));
	List	   *exprs = NIL;
	TupleDesc	desc;
	ListCell   *lc;

	(void) fields_walker((Node *) root->processed_tlist, &fields);
	(void) fields_walker(root->parse->havingQual, &fields);
	scan->scan.plan.targetlist = tlist;
	scan->scan.plan.qual = extract_actual_clauses(clauses, false);
	fields.whole = false;
	(void) fields_walker((Node *) tlist, &fields);
	(void) fields_walker((Node *) scan->scan.plan.qual, &fields);
	if (fields.whole)
		columns = list_append_unique_int(columns, SCDC_FEED_ROW_DATA + 1);

	foreach(lc, tlist)
	{
		Expr	   *expr = lfirst_node(TargetEntry, lc)->expr;

		if (IsA(expr, Var) || list_member(fields.fields, expr))
			exprs = list_append_unique(exprs, expr);
	}
	(void) get_expr_result_type(function->funcexpr, NULL, &desc);
	foreach(lc, columns)
	{
		AttrNumber	attno = lfirst_int(lc);
		Form_pg_attribute att = TupleDescAttr(desc, attno - 1);

		exprs = list_append_unique(exprs, makeVar(rel->relid, attno, att->atttypid, att->atttypmod, att->attcollation, 0));
	}
	exprs = list_concat_unique(exprs, fields.fields);
	foreach(lc, exprs)
		scan->custom_scan_tlist = lappend(scan->custom_scan_tlist,
										  makeTargetEntry(copyObject(lfirst(lc)), foreach_current_index(lc) + 1, NULL, false));

	scan->scan.scanrelid = 0;	/* the executor would take it for a table */
	scan->flags = best_path->flags;
	scan->custom_exprs = list_make1(copyObject(function->funcexpr));
	scan->custom_private = list_make1(linitial(best_path->custom_private));
	scan->methods = &scan_methods;
	return &scan->scan.plan;
}

/* ---------------------------------------------------------------------
 * execution
 * ---------------------------------------------------------------------
 */

static Node *
create_state(CustomScan *cscan)
{
	ChangesScan *state = (ChangesScan *) newNode(sizeof(ChangesScan), T_CustomScanState);

	state->css.methods = &exec_methods;
	state->form = (ScdcFeedForm) intVal(linitial(cscan->custom_private));
	return (Node *) state;
}

static FuncExpr *
call_of(ChangesScan *state)
{
	return linitial_node(FuncExpr, ((CustomScan *) state->css.ss.ps.plan)->custom_exprs);
}

/* Which columns there are, and which of them the plan's expressions use. */
static void
init_columns(ChangesScan *state)
{
	CustomScan *plan = (CustomScan *) state->css.ss.ps.plan;
	Bitmapset  *used = NULL;
	ListCell   *lc;

	pull_varattnos((Node *) plan->scan.plan.targetlist, INDEX_VAR, &used);
	pull_varattnos((Node *) plan->scan.plan.qual, INDEX_VAR, &used);
	state->ncolumns = list_length(plan->custom_scan_tlist);
	state->columns = palloc0(Max(state->ncolumns, 1) * sizeof(ScanColumn));
	foreach(lc, plan->custom_scan_tlist)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);
		ScanColumn *column = &state->columns[tle->resno - 1];

		column->used = bms_is_member(tle->resno - FirstLowInvalidHeapAttributeNumber, used);
		if (IsA(tle->expr, FieldSelect))
		{
			column->field = (FieldSelect *) tle->expr;
			column->source = SCDC_FEED_ROW_DATA;
			if (column->used)
				state->last_field = Max(state->last_field, column->field->fieldnum);
		}
		else
			column->source = castNode(Var, tle->expr)->varattno - 1;
		if (column->used && column->source == SCDC_FEED_ROW_DATA)
			state->with_rows = true;
	}
}

static void
begin_scan(CustomScanState *node, EState *estate, int eflags)
{
	ChangesScan *state = (ChangesScan *) node;
	FuncExpr   *call = call_of(state);

	Assert((eflags & (EXEC_FLAG_BACKWARD | EXEC_FLAG_MARK)) == 0);
	init_columns(state);

	/* checks the right to execute the function */
	state->call = ExecInitTableFunctionResult((Expr *) call, node->ss.ps.ps_ExprContext, &node->ss.ps);
	state->params = pull_paramids((Expr *) call);
	state->has_subplans = contain_subplans((Node *) call->args);
	state->call_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc scan", ALLOCSET_SMALL_SIZES);
}

/* False if the function is not to be called, for it is strict (by ALTER FUNCTION) and has an argument that is null. */
static bool
evaluate_arguments(ChangesScan *state)
{
	FunctionCallInfo fcinfo = state->call->fcinfo;
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	bool		callable = true;
	ListCell   *lc;
	int			i = 0;

	foreach(lc, state->call->args)
	{
		fcinfo->args[i].value = ExecEvalExpr((ExprState *) lfirst(lc), econtext, &fcinfo->args[i].isnull);
		if (fcinfo->args[i].isnull && state->call->func.fn_strict)
			callable = false;
		i++;
	}
	return callable;
}

/* The function's rows as a function scan gets them. */
static void
materialise(ChangesScan *state)
{
	MemoryContext args_cxt = AllocSetContextCreate(state->call_cxt, "streamcdc scan arguments", ALLOCSET_SMALL_SIZES);
	TupleDesc	desc;

	(void) get_expr_result_type((Node *) call_of(state), NULL, &desc);
	state->store = ExecMakeTableFunctionResult(state->call, state->css.ss.ps.ps_ExprContext, args_cxt, desc, false);
	state->stored = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	state->stored_all = true;
}

/* Where an attribute stands in rows without NULLs; -1 if that depends on those before it. */
static int
fixed_offset(TupleDesc desc, int attnum)
{
	int			offset = 0;

	for (int i = 0; i < attnum; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		int			aligned = att_align_nominal(offset, att->attalign);

		/* a short one is not aligned */
		if (att->attlen < 0 && aligned != offset)
			return -1;
		if (i == attnum - 1)
			return aligned;
		if (att->attlen < 0)
			return -1;
		offset = aligned + att->attlen;
	}
	return -1;
}

/*
 * Prepares to take rows apart by the row type of now, which the feed uses,
 * too.  It may be another one than the plan was made for, if a cursor has been
 * opened before ALTER TABLE; then the server's own field selection says the same.
 */
static void
init_fields(ChangesScan *state)
{
	MemoryContext old = MemoryContextSwitchTo(state->call_cxt);
	TupleDesc	desc = NULL;

	state->at_offsets = true;
	for (int i = 0; i < state->ncolumns; i++)
	{
		FieldSelect *field = state->columns[i].field;
		Form_pg_attribute att;

		if (field == NULL || !state->columns[i].used)
			continue;
		if (desc == NULL)
			desc = lookup_rowtype_tupdesc_copy(exprType((Node *) field->arg), -1);
		if (field->fieldnum > desc->natts)
			elog(ERROR, "field %d of row_data is missing", field->fieldnum);
		att = TupleDescAttr(desc, field->fieldnum - 1);
		if (!att->attisdropped && att->atttypid != field->resulttype)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("attribute %d has wrong type", field->fieldnum),
					 errdetail("Table has type %s, but query expects %s.",
							   format_type_be(att->atttypid), format_type_be(field->resulttype))));
		state->columns[i].att = att;
		state->columns[i].offset = fixed_offset(desc, field->fieldnum);
		state->at_offsets = state->at_offsets && state->columns[i].offset >= 0;
	}
	state->fields = MakeSingleTupleTableSlot(desc, &TTSOpsHeapTuple);
	MemoryContextSwitchTo(old);
}

static void
call_function(ChangesScan *state)
{
	MemoryContext old = MemoryContextSwitchTo(state->call_cxt);
	ScdcFeedCall call;

	if (evaluate_arguments(state))
	{
		scdc_feed_call(state->call->fcinfo, state->form, &call);
		if (call.registration != NULL)
			materialise(state);
		else
		{
			PgStat_FunctionCallUsage usage;

			pgstat_init_function_usage(state->call->fcinfo, &usage);
			state->feed = scdc_feed_open(&call, state->with_rows);
			pgstat_end_function_usage(&usage, true);
		}
	}
	state->ended = state->feed == NULL;
	state->called = true;
	MemoryContextSwitchTo(old);
}

static void
forget_call(ChangesScan *state)
{
	if (state->fields)
		ExecDropSingleTupleTableSlot(state->fields);
	if (state->stored)
		ExecDropSingleTupleTableSlot(state->stored);
	if (state->store)
		tuplestore_end(state->store);
	if (state->feed)
	{
		state->blocks += scdc_feed_blocks(state->feed);
		scdc_feed_close(state->feed);
	}
	MemoryContextReset(state->call_cxt);
	state->fields = NULL;
	state->stored = NULL;
	state->store = NULL;
	state->stored_all = false;
	state->feed = NULL;
	state->called = false;
}

/* Takes row_data apart, as far as the last field that is needed; the feed's own are never compressed or short. */
static void
take_apart(ChangesScan *state, HeapTupleHeader row)
{
	state->row_data.t_data = row;
	state->row_data.t_len = HeapTupleHeaderGetDatumLength(row);
	if (state->fields == NULL)
	{
		init_fields(state);
		ItemPointerSetInvalid(&state->row_data.t_self);
		ExecStoreHeapTuple(&state->row_data, state->fields, false);
	}
	else
	{
		/* the same tuple as before, with other contents: what storing it would do once more */
		((HeapTupleTableSlot *) state->fields)->off = 0;
		state->fields->tts_nvalid = 0;
	}
	if (!state->at_offsets || (row->t_infomask & HEAP_HASNULL) != 0 || HeapTupleHeaderGetNatts(row) < state->last_field)
	{
		slot_getsomeattrs(state->fields, state->last_field);
		return;
	}
	for (int i = 0; i < state->ncolumns; i++)
	{
		const ScanColumn *column = &state->columns[i];
		int			field;

		if (column->field == NULL || !column->used)
			continue;
		field = column->field->fieldnum - 1;
		state->fields->tts_values[field] = fetchatt(column->att, (char *) row + row->t_hoff + column->offset);
		state->fields->tts_isnull[field] = false;
	}
}

/*
 * The row_data of a stored row of the function.  It may have been stored with a
 * short header, and is copied then; the copy lasts as long as the row does.
 */
static HeapTupleHeader
stored_row_data(ChangesScan *state, Datum row_data)
{
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	HeapTupleHeader result;
	MemoryContext old;

	ResetExprContext(econtext); /* that of the row before */
	old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	result = DatumGetHeapTupleHeader(row_data);
	MemoryContextSwitchTo(old);
	return result;
}

/* A row of the function as one of the scan; isnull is NULL if it is the feed's, of which nothing is. */
static void
set_columns(ChangesScan *state, TupleTableSlot *slot, const Datum *row, const bool *isnull)
{
	bool		have_fields = false;

	if (state->last_field > 0 && !(isnull && isnull[SCDC_FEED_ROW_DATA]))
	{
		take_apart(state, isnull ? stored_row_data(state, row[SCDC_FEED_ROW_DATA]) :
				   (HeapTupleHeader) DatumGetPointer(row[SCDC_FEED_ROW_DATA]));
		have_fields = true;
	}
	for (int i = 0; i < state->ncolumns; i++)
	{
		const ScanColumn *column = &state->columns[i];

		if (!column->used || (column->field && !have_fields))
		{
			slot->tts_values[i] = (Datum) 0;
			slot->tts_isnull[i] = true;
		}
		else if (column->field)
		{
			slot->tts_values[i] = state->fields->tts_values[column->field->fieldnum - 1];
			slot->tts_isnull[i] = state->fields->tts_isnull[column->field->fieldnum - 1];
		}
		else
		{
			slot->tts_values[i] = row[column->source];
			slot->tts_isnull[i] = isnull && isnull[column->source];
		}
	}
	ExecStoreVirtualTuple(slot);
}

/* The next row that has been kept, if there is one, in the scan's slot. */
static bool
stored_row(ChangesScan *state, TupleTableSlot *slot)
{
	TupleTableSlot *stored = state->stored;

	if (state->store == NULL || !tuplestore_gettupleslot(state->store, true, false, stored))
		return false;
	slot_getallattrs(stored);
	if (state->stored_all)
		set_columns(state, slot, stored->tts_values, stored->tts_isnull);
	else
	{
		memcpy(slot->tts_values, stored->tts_values, state->ncolumns * sizeof(Datum));
		memcpy(slot->tts_isnull, stored->tts_isnull, state->ncolumns * sizeof(bool));
		ExecStoreVirtualTuple(slot);
	}
	return true;
}

static TupleTableSlot *
next_row(ChangesScan *state)
{
	TupleTableSlot *slot = state->css.ss.ss_ScanTupleSlot;
	const Datum *row;

	if (!state->called)
		call_function(state);
	ExecClearTuple(slot);
	if (stored_row(state, slot) || state->ended)
		return slot;

	row = scdc_feed_next(state->feed);
	if (row == NULL)
	{
		state->ended = true;
		return slot;
	}
	set_columns(state, slot, row, NULL);

	/* its end has been reached, so it stays there */
	if (state->store)
		tuplestore_puttupleslot(state->store, slot);
	return slot;
}

static TupleTableSlot *
access_row(ChangesScan *state)
{
	return next_row(state);
}

/*
 * Called in a recheck after a concurrent update, for rows of relations that
 * the recheck does not hold fixed: to them it is an ordinary scan.  (Where it
 * holds ours, there is a reference to the whole row, and no custom scan.)
 */
static bool
recheck_row(ChangesScan *state, TupleTableSlot *slot)
{
	return !TupIsNull(next_row(state));
}

static TupleTableSlot *
exec_scan(CustomScanState *node)
{
	/* nothing to be done with the row: spare it the way through there */
	if (node->ss.ps.qual == NULL && node->ss.ps.ps_ProjInfo == NULL)
		return next_row((ChangesScan *) node);
	return ExecScan(&node->ss, (ExecScanAccessMtd) access_row, (ExecScanRecheckMtd) recheck_row);
}

/* Rows are kept from now on; the ones read before are read again. */
static void
keep_rows(ChangesScan *state)
{
	TupleTableSlot *slot = state->css.ss.ss_ScanTupleSlot;
	MemoryContext old = MemoryContextSwitchTo(state->call_cxt);

	state->blocks += scdc_feed_blocks(state->feed);
	scdc_feed_restart(state->feed);
	state->ended = false;
	state->store = tuplestore_begin_heap(false, false, work_mem);
	tuplestore_set_eflags(state->store, EXEC_FLAG_REWIND);
	state->stored = MakeSingleTupleTableSlot(slot->tts_tupleDescriptor, &TTSOpsMinimalTuple);
	MemoryContextSwitchTo(old);
}

static void
rescan(CustomScanState *node)
{
	ChangesScan *state = (ChangesScan *) node;
	Bitmapset  *changed = node->ss.ps.chgParam;

	ExecScanReScan(&node->ss);
	if (!state->called)
		return;
	if (bms_overlap(changed, state->params) || (changed != NULL && state->has_subplans))
		forget_call(state);
	else if (state->store)
		tuplestore_rescan(state->store);
	else if (state->feed)
		keep_rows(state);
}

static void
end_scan(CustomScanState *node)
{
	ChangesScan *state = (ChangesScan *) node;

	ExecClearTuple(node->ss.ss_ScanTupleSlot);
	if (state->called)
		forget_call(state);
	MemoryContextDelete(state->call_cxt);
}

static void
explain_scan(CustomScanState *node, List *ancestors, ExplainState *es)
{
	ChangesScan *state = (ChangesScan *) node;
	List	   *context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, ancestors);

	ExplainPropertyText("Function Call",
						deparse_expression((Node *) call_of(state), context, es->verbose || list_length(es->rtable) > 1, false), es);
	if (es->analyze)
		ExplainPropertyInteger("Blocks Read", NULL,
							   state->blocks + (state->feed ? scdc_feed_blocks(state->feed) : 0), es);
}

void
scdc_scan_init(void)
{
	RegisterCustomScanMethods(&scan_methods);
	prev_set_rel_pathlist = set_rel_pathlist_hook;
	set_rel_pathlist_hook = set_rel_pathlist;
	prev_create_upper_paths = create_upper_paths_hook;
	create_upper_paths_hook = create_upper_paths;
}
