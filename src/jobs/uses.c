/*-------------------------------------------------------------------------
 *
 * uses.c
 *	  What the SQL of a query may use (see uses.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/syscache.h"

#include "jobs/uses.h"

/* what: the object, as messages call it; runs: what of it would run */
static void
check_owner(const ScdcQuery *q, const char *what, Oid owner, const char *runs)
{
	if (superuser_arg(q->owner) && !superuser_arg(owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("%s does not belong to a superuser", what),
				 errdetail("%s would run with the rights of superuser \"%s\".", runs, GetUserNameFromId(q->owner, true)),
				 errhint("Start the query as role \"%s\".", GetUserNameFromId(owner, true))));
}

static void
check_not_temporary(const char *what, Oid namespace)
{
	if (isAnyTempNamespace(namespace))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s is temporary", what),
				 errdetail("A query runs in a session of its own.")));
}

void
scdc_uses_check_function(const ScdcQuery *q, Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	char	   *what;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	form = (Form_pg_proc) GETSTRUCT(tuple);
	what = psprintf("function %s", quote_qualified_identifier(get_namespace_name(form->pronamespace), NameStr(form->proname)));
	check_not_temporary(what, form->pronamespace);
	check_owner(q, what, form->proowner, "It");
	ReleaseSysCache(tuple);
}

void
scdc_uses_check_sink(const ScdcQuery *q, Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relid);
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	check_owner(q, psprintf("sink \"%s\"", get_rel_name(relid)), owner, "Its owner's triggers and defaults");
}

/* A table's rows are values; what a view makes of its tables' is for its owner to say. */
static void
check_relation(const ScdcQuery *q, Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Form_pg_class form;
	char	   *what;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relid);
	form = (Form_pg_class) GETSTRUCT(tuple);
	what = psprintf("%s \"%s\"", form->relkind == RELKIND_VIEW ? "view" : "relation", NameStr(form->relname));
	check_not_temporary(what, form->relnamespace);
	if (form->relkind == RELKIND_VIEW)
		check_owner(q, what, form->relowner, "It");
	ReleaseSysCache(tuple);
}

static void
check_type(const ScdcQuery *q, Oid type)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	Form_pg_type form;
	char	   *what;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for type %u", type);
	form = (Form_pg_type) GETSTRUCT(tuple);
	what = psprintf("type %s", format_type_be(type));
	check_not_temporary(what, form->typnamespace);
	if (form->typtype == TYPTYPE_DOMAIN)
		check_owner(q, what, form->typowner, "It");
	ReleaseSysCache(tuple);
}

static bool
check_function_of_node(Oid function, void *q)
{
	if (pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, get_func_name(function));
	scdc_uses_check_function(q, function);
	return false;
}

static bool
check_node(Node *node, void *q)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		if (((RangeTblEntry *) node)->rtekind == RTE_RELATION)
			check_relation(q, ((RangeTblEntry *) node)->relid);
		return false;
	}
	if (IsA(node, Query))
	{
		(void) ExecCheckRTPerms(((Query *) node)->rtable, true);
		return query_tree_walker((Query *) node, check_node, q, QTW_EXAMINE_RTES_BEFORE);
	}
	(void) check_functions_in_node(node, check_function_of_node, q);
	switch (nodeTag(node))
	{
		case T_Const:
		case T_FuncExpr:
		case T_RelabelType:
		case T_CoerceViaIO:
		case T_ArrayCoerceExpr:
		case T_CoerceToDomain:
		case T_RowExpr:
			check_type(q, exprType(node));
			break;
		default:
			break;
	}
	return expression_tree_walker(node, check_node, q);
}

void
scdc_uses_check_plan(const ScdcQuery *q, SPIPlanPtr plan)
{
	ListCell   *lc;

	foreach(lc, SPI_plan_get_plan_sources(plan))
		(void) check_node((Node *) ((CachedPlanSource *) lfirst(lc))->query_list, unconstify(ScdcQuery *, q));
}
