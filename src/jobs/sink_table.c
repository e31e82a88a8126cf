/*-------------------------------------------------------------------------
 *
 * sink_table.c
 *	  A relation as the sink of a query.
 *
 * What is written is an ordinary INSERT over the query's text, which stands in
 * parentheses with a line end behind it, since it may end in a comment.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/catalog.h"
#include "catalog/partition.h"
#include "catalog/pg_inherits.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteHandler.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/syscache.h"

#include "attempt.h"
#include "jobs/append.h"
#include "jobs/sink.h"
#include "jobs/sink_kinds.h"
#include "jobs/sink_relation.h"
#include "jobs/uses.h"

/* ---------------------------------------------------------------------
 * relations
 * ---------------------------------------------------------------------
 */

static void
check_columns_exist(List *names, TupleDesc desc, const char *what)
{
	ListCell   *lc;

	foreach(lc, names)
		if (scdc_sink_find_column(desc, lfirst(lc)) < 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of \"%s\" is not a column of the query", (char *) lfirst(lc), what)));
}

/* Does a foreign table take rows, and let them be changed if it is to be a mirror? */
static bool
can_be_written(Oid relid, bool apply)
{
	int			needed = (1 << CMD_INSERT) | (apply ? (1 << CMD_UPDATE) | (1 << CMD_DELETE) : 0);

	return (relation_is_updatable(relid, NIL, false, NULL) & needed) == needed;
}

static void
check_sink_kind(const ScdcQuery *q, Oid relid)
{
	char		relkind = get_rel_relkind(relid);
	const char *name = get_rel_name(relid);

	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE && relkind != RELKIND_VIEW &&
		relkind != RELKIND_FOREIGN_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" cannot be a sink", name),
				 errdetail_relkind_not_supported(relkind)));
	if (get_rel_namespace(relid) == get_namespace_oid("streamcdc", true) ||
		IsCatalogNamespace(get_rel_namespace(relid)))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" cannot be a sink", name),
				 errdetail("It belongs to the system or to streamcdc.")));
	if (get_rel_persistence(relid) == RELPERSISTENCE_TEMP)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("temporary table \"%s\" cannot be a sink", name)));
	if (relkind == RELKIND_FOREIGN_TABLE && !can_be_written(relid, q->apply))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("foreign table \"%s\" cannot be a sink", name),
				 errdetail(q->apply ? "It does not allow inserts, updates and deletes." : "It does not allow inserts.")));
}

static void
check_right(Oid relid, AclMode right)
{
	if (pg_class_aclcheck(relid, GetUserId(), right) != ACLCHECK_OK &&
		((right & ACL_DELETE) || pg_attribute_aclcheck_all(relid, GetUserId(), right, ACLMASK_ANY) != ACLCHECK_OK))
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(get_rel_relkind(relid)), get_rel_name(relid));
}

static void
check_rights(const ScdcQuery *q, Oid relid)
{
	check_right(relid, ACL_INSERT);
	if (q->apply)
	{
		check_right(relid, ACL_SELECT);
		check_right(relid, ACL_UPDATE);
		check_right(relid, ACL_DELETE);
		/* true: report as enabled even if row_security is off */
		if (check_enable_rls(relid, InvalidOid, true) == RLS_ENABLED)
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("table \"%s\" cannot be made a mirror", get_rel_name(relid)),
					 errdetail("Row-level security applies to you on it, and may hide rows that have to change.")));
	}
}

/* What is written: names of the query's columns that go into the sink. */
static List *
written_columns(const ScdcQuery *q, TupleDesc columns, TupleDesc sink)
{
	List	   *result = NIL;

	for (int i = 0; i < columns->natts; i++)
	{
		char	   *name = NameStr(TupleDescAttr(columns, i)->attname);

		int			at = scdc_sink_find_column(sink, name);

		if (q->apply && scdc_sink_is_metadata(name) && at < 0)
			continue;
		if (at >= 0 && TupleDescAttr(sink, at)->attgenerated)
			continue;			/* the sink makes it itself */
		result = lappend(result, pstrdup(name));
	}
	return result;
}

/* ---------------------------------------------------------------------
 * SQL
 * ---------------------------------------------------------------------
 */

/* The rows that are appended. */
static char *
appended_rows_sql(const ScdcQuery *q, const char *text, List *columns)
{
	StringInfoData s;

	initStringInfo(&s);
	appendStringInfoString(&s, "SELECT ");
	scdc_sink_add_names(&s, "q.", columns);
	appendStringInfo(&s, " FROM (%s\n) AS q", text);
	if (q->cluster_by)
	{
		appendStringInfoString(&s, " ORDER BY ");
		scdc_sink_add_names(&s, "q.", q->cluster_by);
	}
	return s.data;
}

static char *
append_sql(const ScdcQuery *q, const char *text, List *columns)
{
	StringInfoData s;

	initStringInfo(&s);
	appendStringInfo(&s, "INSERT INTO %s (", q->sink);
	scdc_sink_add_names(&s, "", columns);
	appendStringInfo(&s, ") OVERRIDING SYSTEM VALUE %s", appended_rows_sql(q, text, columns));
	return s.data;
}

/* What writes a batch into the sink; the sink is open. */
static List *
sink_sql(const ScdcQuery *q, const char *text, TupleDesc columns, Relation sink, bool replace)
{
	List	   *written = written_columns(q, columns, RelationGetDescr(sink));

	if (written == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the query has no column that can be written into sink \"%s\"", RelationGetRelationName(sink))));
	if (!q->apply)
		return list_make1(append_sql(q, text, written));
	return scdc_mirror_sql(q, text, written, sink, replace);
}

/* ---------------------------------------------------------------------
 * where rows come to lie
 * ---------------------------------------------------------------------
 */

/* What a command writes into by itself, and as its rules and those of views would have it. */
static List *
rewritten_targets(const char *command)
{
	RawStmt    *raw = linitial_node(RawStmt, raw_parser(command, RAW_PARSE_DEFAULT));
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, pg_analyze_and_rewrite_fixedparams(raw, command, NULL, 0, NULL))
	{
		Query	   *query = lfirst_node(Query, lc);

		if (query->resultRelation > 0)
			result = list_append_unique_oid(result, rt_fetch(query->resultRelation, query->rtable)->relid);
	}
	return result;
}

static bool
has_rules(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	bool		result = HeapTupleIsValid(tuple) && ((Form_pg_class) GETSTRUCT(tuple))->relhasrules;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return result;
}

/*
 * The relations that hold the rows which are written into one: it or its
 * partitions, or those of what is behind a view.  What triggers do is their
 * own affair.
 */
static List *
destinations(const ScdcQuery *q, Oid relid)
{
	List	   *targets = list_make1_oid(relid);
	List	   *result = NIL;
	ListCell   *lc;

	if (has_rules(relid))		/* views have, too */
	{
		targets = rewritten_targets(psprintf("INSERT INTO %s DEFAULT VALUES", scdc_sink_relation_name(relid)));
		if (q->apply)
			targets = list_concat_unique_oid(targets, rewritten_targets(psprintf("DELETE FROM %s", scdc_sink_relation_name(relid))));
	}
	foreach(lc, targets)
	{
		ListCell   *part;

		foreach(part, find_all_inheritors(lfirst_oid(lc), NoLock, NULL))
			if (get_rel_relkind(lfirst_oid(part)) != RELKIND_PARTITIONED_TABLE)
				result = list_append_unique_oid(result, lfirst_oid(part));
	}
	return result;
}

/* ---------------------------------------------------------------------
 * checking
 * ---------------------------------------------------------------------
 */

void
scdc_sink_qualify(ScdcQuery *q)
{
	RangeVar   *rv;
	Oid			relid;

	if (q->sink_kind != SCDC_SINK_TABLE)
		return;
	rv = scdc_sink_range_var(q->sink);
	relid = RangeVarGetRelid(rv, NoLock, true);
	q->sink = quote_qualified_identifier(get_namespace_name(OidIsValid(relid) ? get_rel_namespace(relid) :
															RangeVarGetCreationNamespace(rv)), rv->relname);
}

/* What holds for all that a command writes into: the sink, its parts, and the table behind it if it is a view.  Returns them. */
static List *
check_target(const ScdcQuery *q, Oid relid)
{
	List	   *parts = find_all_inheritors(relid, AccessShareLock, NULL);
	ListCell   *lc;

	foreach(lc, parts)
	{
		Oid			part = lfirst_oid(lc);

		if (part == q->source_relid)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("sink \"%s\" is the source of the query", get_rel_name(part))));
		scdc_uses_check_sink(q, part);
	}
	if (get_rel_relispartition(relid))
		foreach(lc, get_partition_ancestors(relid))
			if (lfirst_oid(lc) == q->source_relid)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("sink \"%s\" is a part of the source of the query", get_rel_name(relid))));
	return parts;
}

/* Analyses a command that writes; checks what it comes to write into, and returns that.  Inside SPI, with "batch" registered. */
static List *
check_command(const ScdcQuery *q, const char *command)
{
	SPIPlanPtr	plan = SPI_prepare(command, 0, NULL);
	CachedPlanSource *source;
	List	   *targets = NIL;
	ListCell   *lc;

	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	source = linitial(SPI_plan_get_plan_sources(plan));
	foreach(lc, source->query_list)
	{
		Query	   *query = lfirst_node(Query, lc);

		if (query->resultRelation > 0)
			targets = list_concat_unique_oid(targets, check_target(q, rt_fetch(query->resultRelation, query->rtable)->relid));
	}
	scdc_uses_check_plan(q, plan);
	return targets;
}

/* The columns by which a batch that was written elsewhere is known there. */
static void
check_progress_table(const ScdcQuery *q, Oid sink)
{
	Oid			relid;
	ListCell   *lc;

	if (q->progress_table == NULL)
		return;
	relid = RangeVarGetRelid(scdc_sink_range_var(q->progress_table), AccessShareLock, false);
	foreach(lc, destinations(q, sink))
	{
		Oid			destination = lfirst_oid(lc);

		if (get_rel_relkind(destination) != RELKIND_FOREIGN_TABLE)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("sink option \"progressTable\" is for foreign tables"),
					 errdetail("\"%s\" is none; what is in this database is exactly once without it.", get_rel_name(destination))));
		if (get_rel_relkind(relid) != RELKIND_FOREIGN_TABLE ||
			GetForeignTable(relid)->serverid != GetForeignTable(destination)->serverid)
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("progress table \"%s\" is not a foreign table on the server of the sink", get_rel_name(relid)),
					 errdetail("Rows and progress must be one transaction of that server.")));
	}
	if (get_attnum(relid, "query_id") == InvalidAttrNumber || get_attnum(relid, "batch_id") == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("progress table \"%s\" needs the columns \"query_id\" and \"batch_id\"", get_rel_name(relid)),
				 errhint("Make it like (query_id uuid, batch_id bigint) on both servers.")));
	check_right(relid, ACL_INSERT);
	check_right(relid, ACL_SELECT);
	check_right(relid, ACL_DELETE);
	scdc_sink_check_progress(q);
}

List *
scdc_sink_table_check(ScdcQuery *q, const char *text, TupleDesc columns, bool create)
{
	RangeVar   *rv = scdc_sink_range_var(q->sink);
	Oid			relid = RangeVarGetRelid(rv, AccessShareLock, true);
	Relation	sink;
	List	   *targets;
	List	   *added = NIL;
	ListCell   *lc;

	check_columns_exist(q->partition_by, columns, "partition_by");
	check_columns_exist(q->cluster_by, columns, "cluster_by");
	if (q->apply)
		scdc_mirror_check_query(q, columns);
	if (!OidIsValid(relid))
	{
		/* a mirror that is made again would not have the rows of batches that were done */
		if (!create || (q->apply && q->goes_on))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("sink \"%s\" does not exist", q->sink),
					 q->apply ? errhint("A mirror begins with all rows: drop the query with stream_drop, and start it anew.") :
					 errhint("Make it again, or drop the query with stream_drop.")));
		scdc_sink_create(q, rv, columns);
		relid = RangeVarGetRelid(rv, AccessShareLock, false);
	}
	else if (create && q->partition_by && !q->goes_on)
	{
		ereport(NOTICE,
				(errmsg("sink \"%s\" exists, \"partition_by\" is ignored", get_rel_name(relid))));
		q->partition_by = NIL;
	}
	check_sink_kind(q, relid);
	targets = check_target(q, relid);
	check_rights(q, relid);
	check_progress_table(q, relid);
	if (q->progress_table)
		q->progress_table = scdc_sink_relation_name(RangeVarGetRelid(scdc_sink_range_var(q->progress_table), AccessShareLock, false));
	q->sink = quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid));
	if (create && get_rel_persistence(relid) == RELPERSISTENCE_UNLOGGED)
		ereport(NOTICE,
				(errmsg("sink \"%s\" is unlogged", get_rel_name(relid)),
				 errdetail("Rows that it loses in a crash are not written again.")));
	if (q->merge_schema)
		added = scdc_sink_merge_schema(q, relid, columns, create);

	sink = relation_open(relid, AccessShareLock);
	if (q->apply)
		scdc_mirror_check(q, columns, sink);
	scdc_sink_renew_columns(q, sink, added);
	foreach(lc, sink_sql(q, text, columns, sink, false))
		targets = list_concat_unique_oid(targets, check_command(q, lfirst(lc)));
	relation_close(sink, NoLock);
	return targets;
}

/* ---------------------------------------------------------------------
 * writing
 * ---------------------------------------------------------------------
 */

static int64
run_all(List *commands)
{
	int64		rows = 0;
	ListCell   *lc;

	foreach(lc, commands)
	{
		scdc_sink_run(lfirst(lc));
		rows += SPI_processed;
	}
	return rows;
}

typedef struct MirrorWrite
{
	const ScdcQuery *query;
	const char *text;
	TupleDesc	columns;
	Relation	sink;
	int64		rows;
} MirrorWrite;

static void
update_mirror(void *arg)
{
	MirrorWrite *w = arg;

	w->rows = run_all(sink_sql(w->query, w->text, w->columns, w->sink, false));
}

/*
 * Rows that exchange values of another unique index of the sink (or of an
 * exclusion constraint) cannot be updated one by one.  If that is what
 * happens, the rows of the batch are replaced.
 */
static int64
write_mirror(const ScdcQuery *q, const char *text, TupleDesc columns, Relation sink)
{
	MirrorWrite w = {.query = q,.text = text,.columns = columns,.sink = sink};
	ErrorData  *e = scdc_attempt(update_mirror, &w);

	if (e == NULL)
		return w.rows;
	if (e->sqlerrcode == ERRCODE_FOREIGN_KEY_VIOLATION && e->hint == NULL)
		e->hint = pstrdup("If rows of the sink refer to each other, the constraint has to be DEFERRABLE INITIALLY DEFERRED.");
	if (e->sqlerrcode != ERRCODE_UNIQUE_VIOLATION && e->sqlerrcode != ERRCODE_EXCLUSION_VIOLATION)
		ReThrowError(e);
	if (!scdc_mirror_is_replaceable(sink))
	{
		e->hint = pstrdup("If rows exchange values, the constraint has to be DEFERRABLE INITIALLY DEFERRED.");
		ReThrowError(e);
	}
	return run_all(sink_sql(q, text, columns, sink, true));
}

static int64
append(const ScdcQuery *q, const char *text, TupleDesc columns, Relation sink)
{
	List	   *written = written_columns(q, columns, RelationGetDescr(sink));

	if (scdc_append_possible(sink, columns, written))
		return scdc_append(sink, appended_rows_sql(q, text, written), written);
	return run_all(sink_sql(q, text, columns, sink, false));
}

int64
scdc_sink_table_write(const ScdcQuery *q, const char *text)
{
	Oid			relid = RangeVarGetRelid(scdc_sink_range_var(q->sink), AccessShareLock, false);
	TupleDesc	columns = scdc_sink_query_columns(text);
	Relation	sink;
	int64		rows;

	if (q->partition_by)
		scdc_sink_make_partitions(q, text, relid);
	sink = relation_open(relid, RowExclusiveLock);
	rows = q->apply ? write_mirror(q, text, columns, sink) : append(q, text, columns, sink);
	relation_close(sink, NoLock);
	return rows;
}

bool
scdc_sink_is_foreign(const ScdcQuery *q)
{
	Oid			relid;
	ListCell   *lc;

	if (q->sink_kind != SCDC_SINK_TABLE)
		return false;
	relid = RangeVarGetRelid(scdc_sink_range_var(q->sink), NoLock, true);
	if (!OidIsValid(relid))
		return false;
	foreach(lc, destinations(q, relid))
		if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_FOREIGN_TABLE)
			return true;
	return false;
}
