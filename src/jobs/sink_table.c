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

#include "access/nbtree.h"
#include "access/relation.h"
#include "catalog/catalog.h"
#include "catalog/partition.h"
#include "catalog/pg_am.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_trigger.h"
#include "commands/defrem.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "parser/parse_func.h"
#include "parser/parser.h"
#include "parser/parsetree.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "rewrite/rewriteHandler.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/rls.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"
#include "utils/varlena.h"

#include "attempt.h"
#include "jobs/append.h"
#include "jobs/failure.h"
#include "jobs/sink.h"
#include "jobs/sink_kinds.h"
#include "jobs/uses.h"
#include "log/catalog.h"
#include "log/schema.h"
#include "sql/json_row.h"

/* ---------------------------------------------------------------------
 * relations
 * ---------------------------------------------------------------------
 */

static bool
is_metadata(const char *column)
{
	return strcmp(column, "_change_type") == 0 || strcmp(column, "_commit_version") == 0 ||
		strcmp(column, "_commit_timestamp") == 0;
}

int
scdc_sink_find_column(TupleDesc desc, const char *name)
{
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped && strcmp(NameStr(TupleDescAttr(desc, i)->attname), name) == 0)
			return i;
	return -1;
}

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

static void
add_list(StringInfo s, const char *prefix, List *names)
{
	ListCell   *lc;

	foreach(lc, names)
		appendStringInfo(s, "%s%s%s", foreach_current_index(lc) > 0 ? ", " : "", prefix, quote_identifier(lfirst(lc)));
}

static bool
has_name(List *names, const char *name)
{
	ListCell   *lc;

	foreach(lc, names)
		if (strcmp(lfirst(lc), name) == 0)
			return true;
	return false;
}

static bool
is_key(const ScdcQuery *q, const char *column)
{
	for (int i = 0; i < q->nkeys; i++)
		if (strcmp(column, q->keys[i]) == 0)
			return true;
	return false;
}

static List *
key_list(const ScdcQuery *q)
{
	List	   *keys = NIL;

	for (int i = 0; i < q->nkeys; i++)
		keys = lappend(keys, q->keys[i]);
	return keys;
}

static char *
qualified_name(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid));
}

static void
run(const char *sql)
{
	int			result = SPI_execute(sql, false, 0);

	if (result < 0)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(result));
}

/* Is the column part of the row identity, and never NULL in the source? */
static bool
is_not_null_key(const ScdcQuery *q, const char *column)
{
	HeapTuple	tuple;
	bool		result;

	if (!is_key(q, column))
		return false;
	tuple = SearchSysCacheAttName(q->source_relid, column);
	result = HeapTupleIsValid(tuple) && ((Form_pg_attribute) GETSTRUCT(tuple))->attnotnull;
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return result;
}

/* A column as CREATE TABLE and ADD COLUMN take it. */
static char *
column_sql(Form_pg_attribute att)
{
	char	   *sql = psprintf("%s %s", quote_identifier(NameStr(att->attname)),
							   format_type_with_typemod(att->atttypid, att->atttypmod));

	if (OidIsValid(att->attcollation) && att->attcollation != get_typcollation(att->atttypid))
		sql = psprintf("%s COLLATE %s", sql, generate_collation_name(att->attcollation));
	return sql;
}

/* Makes the sink, with the query's columns; mirrors leave the metadata columns out. */
static void
create_sink(ScdcQuery *q, RangeVar *rv, TupleDesc columns)
{
	Oid			nsp = RangeVarGetCreationNamespace(rv);
	char	   *name = quote_qualified_identifier(get_namespace_name(nsp), rv->relname);
	StringInfoData s;
	bool		first = true;
	ListCell   *lc;

	/* of the levels below the first the server would say so only when the first row comes */
	foreach(lc, q->partition_by)
		if (q->apply && !is_key(q, lfirst(lc)))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("a mirror cannot be partitioned by column \"%s\"", (char *) lfirst(lc)),
					 errdetail("It is not part of the source's row identity, which has to be unique in all partitions together."),
					 errhint("Partition it by columns of the identity.")));

	initStringInfo(&s);
	appendStringInfo(&s, "CREATE TABLE %s (", name);
	for (int i = 0; i < columns->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(columns, i);

		if (q->apply && is_metadata(NameStr(att->attname)))
			continue;
		if (att->atttypid == UNKNOWNOID || get_typtype(att->atttypid) == TYPTYPE_PSEUDO)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
					 errmsg("column \"%s\" has pseudo-type %s", NameStr(att->attname), format_type_be(att->atttypid))));
		appendStringInfo(&s, "%s%s", first ? "" : ", ", column_sql(att));
		if (q->apply && is_not_null_key(q, NameStr(att->attname)))
			appendStringInfoString(&s, " NOT NULL");
		first = false;
	}
	appendStringInfoChar(&s, ')');
	if (q->partition_by)
		appendStringInfo(&s, " PARTITION BY LIST (%s)", quote_identifier(linitial(q->partition_by)));
	run(s.data);

	if (q->apply)
	{
		bool		not_null = true;

		for (int i = 0; i < q->nkeys; i++)
			not_null &= is_not_null_key(q, q->keys[i]);
		resetStringInfo(&s);
		/* a primary key is also what publications, and a mirror's own log, know its rows by */
		appendStringInfo(&s, not_null ? "ALTER TABLE %s ADD PRIMARY KEY (" : "CREATE UNIQUE INDEX ON %s (", name);
		add_list(&s, "", key_list(q));
		appendStringInfoString(&s, not_null ? ")" : ") NULLS NOT DISTINCT");
		run(s.data);
	}
	if (q->cluster_by)
	{
		resetStringInfo(&s);
		appendStringInfo(&s, "CREATE INDEX ON %s USING brin (", name);
		add_list(&s, "", q->cluster_by);
		appendStringInfoChar(&s, ')');
		run(s.data);
	}
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

static const ScdcQueryColumn *
column_called(const ScdcQueryColumn *columns, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (strcmp(columns[i].name, name) == 0)
			return &columns[i];
	return NULL;
}

/* Do the sink's columns hold those of a tracked table?  What another query makes of them nobody knows, and appended rows stay as they are. */
static bool
mirrors_columns(const ScdcQuery *q)
{
	return q->apply && q->query == NULL && q->stream_id != 0;
}

/*
 * The value that rows of the source have in a column added after they were
 * written, and that no event tells of; NULL: none.
 */
static char *
added_value(const ScdcQuery *q, const char *column)
{
	const ScdcQueryColumn *c = column_called(q->columns, q->ncolumns, column);
	Snapshot	snapshot;
	char	   *value;

	if (!mirrors_columns(q) || c == NULL)
		return NULL;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	value = scdc_missing_read(q->stream_id, c->attnum, snapshot);
	UnregisterSnapshot(snapshot);
	return value;
}

/* What a column of the source was called when the mirror's rows were written, if they have it under that name; NULL: they do not. */
static const char *
former_name(const ScdcQuery *q, const ScdcQueryColumn *c, TupleDesc sink)
{
	for (int i = 0; i < q->nformer; i++)
		if (q->former[i].attnum == c->attnum)
			return scdc_sink_find_column(sink, q->former[i].name) >= 0 ? q->former[i].name : NULL;
	return NULL;
}

/* The same for one that the sink does not have yet, if the old name is free now. */
static const char *
renamed_from(const ScdcQuery *q, const char *column, TupleDesc sink)
{
	const ScdcQueryColumn *c = column_called(q->columns, q->ncolumns, column);
	const char *former = mirrors_columns(q) && c ? former_name(q, c, sink) : NULL;

	return former && column_called(q->columns, q->ncolumns, former) == NULL ? former : NULL;
}

/*
 * What columns hold in the rows that are there, and no event tells of: columns
 * that were added to the sink now, and those whose name belonged to another
 * one until now.  That was dropped and added again, or renamed.
 */
static void
renew_columns(const ScdcQuery *q, Relation sink, List *added)
{
	TupleDesc	desc = RelationGetDescr(sink);
	StringInfoData s;

	if (q->nformer == 0 || !mirrors_columns(q))
		return;
	initStringInfo(&s);
	for (int i = 0; i < q->ncolumns; i++)
	{
		const ScdcQueryColumn *c = &q->columns[i];
		const ScdcQueryColumn *before = column_called(q->former, q->nformer, c->name);
		int			at = scdc_sink_find_column(desc, c->name);
		const char *former = former_name(q, c, desc);
		const char *value;

		if (at < 0 || TupleDescAttr(desc, at)->attgenerated || (before && before->attnum == c->attnum) ||
			(before == NULL && (former == NULL || !has_name(added, c->name))))
			continue;
		value = former ? NULL : added_value(q, c->name);
		appendStringInfo(&s, "%s%s = %s", s.len > 0 ? ", " : "", quote_identifier(c->name),
						 former ? quote_identifier(former) : value ? quote_literal_cstr(value) : "NULL");
	}
	if (s.len > 0)
		run(psprintf("UPDATE %s SET %s", q->sink, s.data));
}

/* Nobody but its owner knows what a column of a view comes from. */
static void
cannot_add_to_view(const ScdcQuery *q, const char *view, const char *column, bool create)
{
	scdc_stop(ERRCODE_UNDEFINED_COLUMN,
			  psprintf("column \"%s\" is missing in view \"%s\"", column, view),
			  "Option \"mergeSchema\" adds columns to tables only.",
			  create ? "Add it to the view with CREATE OR REPLACE VIEW." :
			  psprintf("Add it to the view with CREATE OR REPLACE VIEW, then SELECT stream_resume(%s);",
					   quote_literal_cstr(q->name)));
}

/* Gives the sink the columns of the query that it does not have; returns the names of those that are new. */
static List *
merge_schema(const ScdcQuery *q, Oid relid, TupleDesc columns, bool create)
{
	Relation	rel = relation_open(relid, AccessShareLock);
	char	   *name = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
												  RelationGetRelationName(rel));
	StringInfoData s;
	List	   *added = NIL;

	initStringInfo(&s);
	for (int i = 0; i < columns->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(columns, i);
		const char *former;
		char	   *value;

		if (scdc_sink_find_column(RelationGetDescr(rel), NameStr(att->attname)) >= 0 || is_metadata(NameStr(att->attname)))
			continue;
		if (rel->rd_rel->relkind == RELKIND_VIEW)
			cannot_add_to_view(q, RelationGetRelationName(rel), NameStr(att->attname), create);
		former = renamed_from(q, NameStr(att->attname), RelationGetDescr(rel));
		if (former)
		{
			appendStringInfo(&s, "ALTER TABLE %s RENAME COLUMN %s TO %s;", name, quote_identifier(former),
							 quote_identifier(NameStr(att->attname)));
			continue;
		}
		value = added_value(q, NameStr(att->attname));
		appendStringInfo(&s, "ALTER TABLE %s ADD COLUMN %s", name, column_sql(att));
		if (value)
			appendStringInfo(&s, " DEFAULT %s; ALTER TABLE %s ALTER COLUMN %s DROP DEFAULT", quote_literal_cstr(value),
							 name, quote_identifier(NameStr(att->attname)));
		appendStringInfoChar(&s, ';');
		added = lappend(added, pstrdup(NameStr(att->attname)));
	}
	relation_close(rel, NoLock);
	if (s.len > 0)
		run(s.data);
	return added;
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

		if (q->apply && is_metadata(name) && at < 0)
			continue;
		if (at >= 0 && TupleDescAttr(sink, at)->attgenerated)
			continue;			/* the sink makes it itself */
		result = lappend(result, pstrdup(name));
	}
	return result;
}

/* What the query must have for a mirror. */
static void
check_mirror_query(const ScdcQuery *q, TupleDesc columns)
{
	for (int i = 0; i < q->nkeys; i++)
		if (scdc_sink_find_column(columns, q->keys[i]) < 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of the row identity is missing in the query", q->keys[i]),
					 errhint("sink_mode \"apply\" finds the sink's rows by it.")));
	if (scdc_sink_find_column(columns, "_change_type") < 0 || scdc_sink_find_column(columns, "_commit_version") < 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" is missing in the query",
						scdc_sink_find_column(columns, "_change_type") < 0 ? "_change_type" : "_commit_version"),
				 errhint("sink_mode \"apply\" needs it to tell what to do with a row.")));
}

/* Are equal values of the type the same to the last byte?  1.0 and 1.00, or 'a' and 'A' of citext, are not. */
static bool
equal_is_identical(Oid type, Oid collation)
{
	Oid			opclass = GetDefaultOpClass(getBaseType(type), BTREE_AM_OID);
	Oid			intype;
	Oid			proc;

	if (!OidIsValid(opclass))
		return false;
	intype = get_opclass_input_type(opclass);
	proc = get_opfamily_proc(get_opclass_family(opclass), intype, intype, BTEQUALIMAGE_PROC);
	return OidIsValid(proc) && DatumGetBool(OidFunctionCall1Coll(proc, collation, ObjectIdGetDatum(intype)));
}

/* Are different values of one type different as those of the other?  Numbers and times may be rounded to fit, strings are not. */
static bool
is_lossless(Oid from, int32 from_typmod, Oid to, int32 to_typmod)
{
	TYPCATEGORY category = TypeCategory(to);

	if (category == TYPCATEGORY_STRING)
		return true;
	if (from == to)
		return to_typmod == -1 || to_typmod == from_typmod;
	if (category == TYPCATEGORY_NUMERIC)
		return to != FLOAT4OID && to != FLOAT8OID;	/* what has no fraction in the source */
	return to_typmod == -1 && can_coerce_type(1, &from, &to, COERCION_IMPLICIT);
}

/*
 * Two rows of the source must be two in the sink, and one must be one: an
 * identity that differs from another, or not, by upper and lower case only, or
 * by a fraction of a second, would be lost or stay for ever.
 */
static void
check_mirror_key(Form_pg_attribute source, Form_pg_attribute sink)
{
	int32		source_typmod = source->atttypmod;
	int32		sink_typmod = sink->atttypmod;
	Oid			source_type = getBaseTypeAndTypmod(source->atttypid, &source_typmod);
	Oid			sink_type = getBaseTypeAndTypmod(sink->atttypid, &sink_typmod);
	bool		same = source_type == sink_type && source->attcollation == sink->attcollation;
	bool		source_identical = equal_is_identical(source->atttypid, source->attcollation);
	bool		sink_identical = equal_is_identical(sink->atttypid, sink->attcollation);
	bool		lossless = is_lossless(source_type, source_typmod, sink_type, sink_typmod);

	if (lossless &&
		(same || (source_identical && (sink_identical || TypeCategory(sink->atttypid) != TYPCATEGORY_STRING))))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 lossless ?
			 errmsg("column \"%s\" of the sink compares in another way than the row identity of the source",
					NameStr(sink->attname)) :
			 errmsg("column \"%s\" of the sink cannot tell all row identities of the source apart", NameStr(sink->attname)),
			 errdetail("It has type %s, the source %s.", format_type_with_typemod(sink->atttypid, sink->atttypmod),
					   format_type_with_typemod(source->atttypid, source->atttypmod)),
			 errhint("sink_mode \"apply\" needs a column of the same type and collation.")));
}

/* A mirror's rows are found by the source's row identity. */
static void
check_mirror(const ScdcQuery *q, TupleDesc columns, Relation sink)
{
	AttrNumber	attnums[INDEX_MAX_KEYS];

	for (int i = 0; i < q->nkeys; i++)
	{
		int			at = scdc_sink_find_column(RelationGetDescr(sink), q->keys[i]);

		if (at < 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of the row identity is missing in the sink", q->keys[i]),
					 errhint("sink_mode \"apply\" finds the sink's rows by it.")));
		check_mirror_key(TupleDescAttr(columns, scdc_sink_find_column(columns, q->keys[i])),
						 TupleDescAttr(RelationGetDescr(sink), at));
		attnums[i] = at + 1;
	}
	if (sink->rd_rel->relkind != RELKIND_FOREIGN_TABLE && sink->rd_rel->relkind != RELKIND_VIEW &&
		!OidIsValid(scdc_identity_index(sink, attnums, q->nkeys)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 errmsg("sink \"%s\" has no unique index on the row identity of the source", RelationGetRelationName(sink)),
				 errhint("sink_mode \"apply\" needs one.")));
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
	add_list(&s, "q.", columns);
	appendStringInfo(&s, " FROM (%s\n) AS q", text);
	if (q->cluster_by)
	{
		appendStringInfoString(&s, " ORDER BY ");
		add_list(&s, "q.", q->cluster_by);
	}
	return s.data;
}

static char *
append_sql(const ScdcQuery *q, const char *text, List *columns)
{
	StringInfoData s;

	initStringInfo(&s);
	appendStringInfo(&s, "INSERT INTO %s (", q->sink);
	add_list(&s, "", columns);
	appendStringInfo(&s, ") OVERRIDING SYSTEM VALUE %s", appended_rows_sql(q, text, columns));
	return s.data;
}

/* Nothing that we write may depend on operators that the search_path finds. */
#define GONE \
	"(q._change_type OPERATOR(pg_catalog.=) 'delete' OR q._change_type OPERATOR(pg_catalog.=) 'update_preimage')"

/* The equality of a type, by name. */
static char *
equality_sql(Oid type)
{
	TypeCacheEntry *cache = lookup_type_cache(type, TYPECACHE_EQ_OPR);
	HeapTuple	tuple;
	Form_pg_operator form;
	char	   *result;

	if (!OidIsValid(cache->eq_opr))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("could not identify an equality operator for type %s", format_type_be(type))));
	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(cache->eq_opr));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator %u", cache->eq_opr);
	form = (Form_pg_operator) GETSTRUCT(tuple);
	result = psprintf("OPERATOR(%s.%s)", quote_identifier(get_namespace_name(form->oprnamespace)), NameStr(form->oprname));
	ReleaseSysCache(tuple);
	return result;
}

/* The last row of each identity, and whether that is gone. */
static char *
last_rows_sql(const ScdcQuery *q, const char *text)
{
	StringInfoData s;

	initStringInfo(&s);
	appendStringInfoString(&s, "(SELECT DISTINCT ON (");
	add_list(&s, "q.", key_list(q));
	appendStringInfoString(&s, ") q.*, " GONE " AS \"-gone\" FROM "
						   "(SELECT q.*, pg_catalog.row_number() OVER () AS \"-n\" FROM (");
	appendStringInfo(&s, "%s\n) AS q) AS q ORDER BY ", text);
	add_list(&s, "q.", key_list(q));
	appendStringInfoString(&s, ", q._commit_version DESC, " GONE ", \"-n\" DESC)");
	return s.data;
}

/* A condition that two rows are of one identity. */
static char *
same_key_sql(const ScdcQuery *q, TupleDesc sink)
{
	StringInfoData s;

	initStringInfo(&s);
	for (int i = 0; i < q->nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(sink, scdc_sink_find_column(sink, q->keys[i]));
		const char *key = quote_identifier(q->keys[i]);
		const char *equal = equality_sql(att->atttypid);

		/* the source may have another collation; which rows are equal is for the sink to say */
		if (OidIsValid(att->attcollation))
			equal = psprintf("COLLATE %s %s", generate_collation_name(att->attcollation), equal);
		/* an index can serve the first form only */
		appendStringInfoString(&s, i > 0 ? " AND " : "");
		if (att->attnotnull)
			appendStringInfo(&s, "s.%s %s f.%s", key, equal, key);
		else
			appendStringInfo(&s, "(s.%s %s f.%s OR (s.%s IS NULL AND f.%s IS NULL))", key, equal, key, key, key);
	}
	return s.data;
}

/* Columns that a row of the sink gets anew if its identity stays: not the identity itself, as far as that is the same. */
static List *
updated_columns(const ScdcQuery *q, List *columns, TupleDesc sink)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, columns)
	{
		int			at = scdc_sink_find_column(sink, lfirst(lc));
		Form_pg_attribute att = at >= 0 ? TupleDescAttr(sink, at) : NULL;

		/* one that the sink does not have is for the parser to complain about */
		if (att == NULL || !is_key(q, lfirst(lc)) || !equal_is_identical(att->atttypid, att->attcollation))
			result = lappend(result, lfirst(lc));
	}
	return result;
}

static char *
set_sql(List *columns, const char *from)
{
	StringInfoData s;
	ListCell   *lc;

	initStringInfo(&s);
	foreach(lc, columns)
		appendStringInfo(&s, "%s%s = %s.%s", foreach_current_index(lc) > 0 ? ", " : "", quote_identifier(lfirst(lc)),
						 from, quote_identifier(lfirst(lc)));
	return s.data;
}

typedef enum ScdcApplyWay
{
	SCDC_APPLY_UPSERT,			/* INSERT ... ON CONFLICT */
	SCDC_APPLY_UPDATE,			/* UPDATE, then INSERT what is not there */
	SCDC_APPLY_REPLACE			/* DELETE and INSERT in one command, then INSERT what is not there */
} ScdcApplyWay;

/* Columns of the sink that the query does not write, and that are not made of others. */
static List *
other_columns(List *columns, TupleDesc sink)
{
	List	   *result = NIL;

	for (int i = 0; i < sink->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(sink, i);

		if (!att->attisdropped && !att->attgenerated && !has_name(columns, NameStr(att->attname)))
			result = lappend(result, pstrdup(NameStr(att->attname)));
	}
	return result;
}

/*
 * Replaces rows of the sink.  What is deleted is counted, and so is all gone
 * before the first row is inserted.  Foreign keys are checked at the command's
 * end, when the rows that are referred to are there again.
 */
static char *
replace_sql(const ScdcQuery *q, const char *rows, const char *same, List *columns, TupleDesc sink)
{
	List	   *kept = other_columns(columns, sink);
	List	   *all = list_concat_copy(columns, kept);
	StringInfoData s;

	initStringInfo(&s);
	appendStringInfo(&s, "WITH \"-old\" AS (DELETE FROM %s AS s USING %s AS f WHERE NOT f.\"-gone\" AND %s RETURNING ",
					 q->sink, rows, same);
	add_list(&s, "f.", columns);
	if (kept)
		appendStringInfoString(&s, ", ");
	add_list(&s, "s.", kept);
	appendStringInfo(&s, ") INSERT INTO %s (", q->sink);
	add_list(&s, "", all);
	appendStringInfoString(&s, ") OVERRIDING SYSTEM VALUE SELECT ");
	add_list(&s, "o.", all);
	appendStringInfoString(&s, " FROM \"-old\" AS o WHERE (SELECT pg_catalog.count(*) FROM \"-old\") OPERATOR(pg_catalog.>) 0");
	return s.data;
}

/*
 * Commands that make the sink equal the source: rows that are gone first, so
 * that what takes their place in another unique index of the sink finds room.
 */
static List *
apply_sql(const ScdcQuery *q, const char *text, List *columns, TupleDesc sink, ScdcApplyWay way)
{
	char	   *rows = last_rows_sql(q, text);
	char	   *same = same_key_sql(q, sink);
	List	   *others = updated_columns(q, columns, sink);
	StringInfoData s;
	List	   *result;

	result = list_make1(psprintf("DELETE FROM %s AS s USING %s AS f WHERE f.\"-gone\" AND %s", q->sink, rows, same));
	if (way == SCDC_APPLY_UPDATE && others)
		result = lappend(result, psprintf("UPDATE %s AS s SET %s FROM %s AS f WHERE NOT f.\"-gone\" AND %s",
										  q->sink, set_sql(others, "f"), rows, same));
	if (way == SCDC_APPLY_REPLACE)
		result = lappend(result, replace_sql(q, rows, same, columns, sink));
	initStringInfo(&s);
	appendStringInfo(&s, "INSERT INTO %s (", q->sink);
	add_list(&s, "", columns);
	appendStringInfoString(&s, ") OVERRIDING SYSTEM VALUE SELECT ");
	add_list(&s, "f.", columns);
	appendStringInfo(&s, " FROM %s AS f WHERE NOT f.\"-gone\"", rows);
	if (way != SCDC_APPLY_UPSERT)
		appendStringInfo(&s, " AND NOT EXISTS (SELECT FROM %s AS s WHERE %s)", q->sink, same);
	if (q->cluster_by)
	{
		appendStringInfoString(&s, " ORDER BY ");
		add_list(&s, "f.", q->cluster_by);
	}
	if (way == SCDC_APPLY_UPSERT)
	{
		appendStringInfoString(&s, " ON CONFLICT (");
		add_list(&s, "", key_list(q));
		appendStringInfoChar(&s, ')');
		if (others)
			appendStringInfo(&s, " DO UPDATE SET %s", set_sql(others, "excluded"));
		else
			appendStringInfoString(&s, " DO NOTHING");
	}
	return lappend(result, s.data);
}

/* Can ON CONFLICT find the sink's rows: is its index immediate, and does NULL equal NULL there? */
static bool
can_be_arbiter(const ScdcQuery *q, Relation sink)
{
	AttrNumber	attnums[INDEX_MAX_KEYS];
	HeapTuple	tuple;
	bool		not_null = true;
	bool		result;

	if (sink->rd_rel->relkind != RELKIND_RELATION && sink->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		return false;
	for (int i = 0; i < q->nkeys; i++)
	{
		attnums[i] = scdc_sink_find_column(RelationGetDescr(sink), q->keys[i]) + 1;
		not_null &= TupleDescAttr(RelationGetDescr(sink), attnums[i] - 1)->attnotnull;
	}
	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(scdc_identity_index(sink, attnums, q->nkeys)));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_index) GETSTRUCT(tuple))->indimmediate &&
		(not_null || ((Form_pg_index) GETSTRUCT(tuple))->indnullsnotdistinct);
	ReleaseSysCache(tuple);
	return result;
}

/*
 * Can rows of the sink be deleted and inserted again, with nobody to notice?
 * Not where a foreign key does something when a row is deleted, RESTRICT
 * included; and what rules do, and what is behind views and on other servers,
 * cannot be seen.
 */
static bool
is_replaceable(Relation sink)
{
	ListCell   *lc;

	foreach(lc, find_all_inheritors(RelationGetRelid(sink), AccessShareLock, NULL))
	{
		Relation	rel = relation_open(lfirst_oid(lc), AccessShareLock);
		bool		ok = (rel->rd_rel->relkind == RELKIND_RELATION || rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE) &&
			rel->rd_rules == NULL;

		for (int i = 0; rel->trigdesc && i < rel->trigdesc->numtriggers && ok; i++)
		{
			Trigger    *trigger = &rel->trigdesc->triggers[i];

			ok = RI_FKey_trigger_type(trigger->tgfoid) != RI_TRIGGER_PK || !(trigger->tgtype & TRIGGER_TYPE_DELETE) ||
				trigger->tgfoid == F_RI_FKEY_NOACTION_DEL;
		}
		relation_close(rel, NoLock);
		if (!ok)
			return false;
	}
	return true;
}

/* Has the sink a column that can be inserted, but not be updated (GENERATED ALWAYS AS IDENTITY)? */
static bool
is_insert_only(const ScdcQuery *q, List *columns, TupleDesc sink)
{
	ListCell   *lc;

	foreach(lc, updated_columns(q, columns, sink))
	{
		int			at = scdc_sink_find_column(sink, lfirst(lc));

		if (at >= 0 && TupleDescAttr(sink, at)->attidentity == ATTRIBUTE_IDENTITY_ALWAYS)
			return true;
	}
	return false;
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
	replace |= is_insert_only(q, written, RelationGetDescr(sink)) && is_replaceable(sink);
	return apply_sql(q, text, written, RelationGetDescr(sink), replace ? SCDC_APPLY_REPLACE :
					 can_be_arbiter(q, sink) ? SCDC_APPLY_UPSERT : SCDC_APPLY_UPDATE);
}

static RangeVar *
sink_name(const ScdcQuery *q)
{
	return makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(q->sink)));
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
		targets = rewritten_targets(psprintf("INSERT INTO %s DEFAULT VALUES", qualified_name(relid)));
		if (q->apply)
			targets = list_concat_unique_oid(targets, rewritten_targets(psprintf("DELETE FROM %s", qualified_name(relid))));
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
 * progress on another server
 * ---------------------------------------------------------------------
 */

/* Types of $1 and $2 in what follows: the query's id as text, and the number of a batch. */
static Oid progress_types[] = {TEXTOID, INT8OID};

static char *
is_written_sql(const ScdcQuery *q)
{
	return psprintf("SELECT FROM %s WHERE query_id::pg_catalog.text OPERATOR(pg_catalog.=) $1 AND batch_id OPERATOR(pg_catalog.>=) $2",
					q->progress_table);
}

/* $1 as a value of the progress table's column. */
static const char *
query_id_sql(const ScdcQuery *q)
{
	Oid			relid = RangeVarGetRelid(makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(q->progress_table))),
										 AccessShareLock, false);

	return get_atttype(relid, get_attnum(relid, "query_id")) == UUIDOID ? "$1::pg_catalog.uuid" : "$1";
}

/* Forgets the batches before, so that there is one row for each query, and notes this one. */
static List *
note_written_sql(const ScdcQuery *q)
{
	const char *id = query_id_sql(q);

	return list_make2(psprintf("DELETE FROM %s WHERE query_id OPERATOR(pg_catalog.=) %s AND batch_id OPERATOR(pg_catalog.<) $2",
							   q->progress_table, id),
					  psprintf("INSERT INTO %s (query_id, batch_id) VALUES (%s, $2)", q->progress_table, id));
}

static void
run_progress(const ScdcQuery *q, const char *sql, int64 batch_id)
{
	Datum		values[] = {CStringGetTextDatum(scdc_uuid_text(&q->query_id)), Int64GetDatum(batch_id)};
	int			result = SPI_execute_with_args(sql, lengthof(values), progress_types, values, NULL, false, 0);

	if (result < 0)
		elog(ERROR, "SPI_execute_with_args failed: %s", SPI_result_code_string(result));
}

bool
scdc_sink_is_written(const ScdcQuery *q, int64 batch_id)
{
	run_progress(q, is_written_sql(q), batch_id);
	return SPI_processed > 0;
}

void
scdc_sink_note_written(const ScdcQuery *q, int64 batch_id)
{
	ListCell   *lc;

	foreach(lc, note_written_sql(q))
		run_progress(q, lfirst(lc), batch_id);
}

/* Can it be written into as that will be done? */
static void
check_progress_sql(const ScdcQuery *q)
{
	ListCell   *lc;

	foreach(lc, lcons(is_written_sql(q), note_written_sql(q)))
		if (SPI_prepare(lfirst(lc), lengthof(progress_types), progress_types) == NULL)
			elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
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
	rv = sink_name(q);
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
	relid = RangeVarGetRelid(makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(q->progress_table))),
							 AccessShareLock, false);
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
	check_progress_sql(q);
}

List *
scdc_sink_table_check(ScdcQuery *q, const char *text, TupleDesc columns, bool create)
{
	RangeVar   *rv = sink_name(q);
	Oid			relid = RangeVarGetRelid(rv, AccessShareLock, true);
	Relation	sink;
	List	   *targets;
	List	   *added = NIL;
	ListCell   *lc;

	check_columns_exist(q->partition_by, columns, "partition_by");
	check_columns_exist(q->cluster_by, columns, "cluster_by");
	if (q->apply)
		check_mirror_query(q, columns);
	if (!OidIsValid(relid))
	{
		/* a mirror that is made again would not have the rows of batches that were done */
		if (!create || (q->apply && q->goes_on))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("sink \"%s\" does not exist", q->sink),
					 q->apply ? errhint("A mirror begins with all rows: drop the query with stream_drop, and start it anew.") :
					 errhint("Make it again, or drop the query with stream_drop.")));
		create_sink(q, rv, columns);
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
		q->progress_table = qualified_name(RangeVarGetRelid(makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(q->progress_table))),
															AccessShareLock, false));
	q->sink = quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid));
	if (create && get_rel_persistence(relid) == RELPERSISTENCE_UNLOGGED)
		ereport(NOTICE,
				(errmsg("sink \"%s\" is unlogged", get_rel_name(relid)),
				 errdetail("Rows that it loses in a crash are not written again.")));
	if (q->merge_schema)
		added = merge_schema(q, relid, columns, create);

	sink = relation_open(relid, AccessShareLock);
	if (q->apply)
		check_mirror(q, columns, sink);
	renew_columns(q, sink, added);
	foreach(lc, sink_sql(q, text, columns, sink, false))
		targets = list_concat_unique_oid(targets, check_command(q, lfirst(lc)));
	relation_close(sink, NoLock);
	return targets;
}

/* ---------------------------------------------------------------------
 * writing
 * ---------------------------------------------------------------------
 */

/*
 * Name of a new partition: the parent's and the value, as far as that can be
 * read.  There is room for the underscore that its array type has in front:
 * what would be cut off behind is what tells long names apart.
 */
static char *
partition_name(Oid parent, const char *value)
{
	char	   *prefix = psprintf("_%s", get_rel_name(parent));
	Oid			nsp = get_rel_namespace(parent);
	char	   *readable = value ? pstrdup(value) : pstrdup("null");

	for (char *p = readable; *p; p++)
		if (!isalnum((unsigned char) *p) && !IS_HIGHBIT_SET(*p))
			*p = '_';
	for (int n = 0;; n++)
	{
		char	   *name = makeObjectName(prefix, readable, n > 0 ? psprintf("%d", n) : NULL) + 1;

		if (!OidIsValid(get_relname_relid(name, nsp)) &&
			!SearchSysCacheExists2(TYPENAMENSP, CStringGetDatum(name), ObjectIdGetDatum(nsp)))
			return name;
	}
}

/* The partition for a value; InvalidOid if there is none. */
static Oid
find_partition(Oid parent, Oid type, Datum value, bool isnull)
{
	Relation	rel = relation_open(parent, AccessShareLock);
	PartitionKey key = RelationGetPartitionKey(rel);
	PartitionDesc parts = RelationGetPartitionDesc(rel, false);
	PartitionBoundInfo bounds = parts->boundinfo;
	Oid			result = InvalidOid;
	int			n = -1;

	if (key == NULL || key->strategy != PARTITION_STRATEGY_LIST || key->parttypid[0] != type)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" is not partitioned by a list of values of this type any more", RelationGetRelationName(rel)),
				 errdetail("The query makes its partitions.")));
	if (parts->nparts > 0)
	{
		if (isnull)
			n = bounds->null_index;
		else
		{
			bool		equal;
			int			at = partition_list_bsearch(key->partsupfunc, key->partcollation, bounds, value, &equal);

			if (at >= 0 && equal)
				n = bounds->indexes[at];
		}
		if (n < 0)
			n = bounds->default_index;
		if (n >= 0)
			result = parts->oids[n];
	}
	relation_close(rel, NoLock);
	return result;
}

/* Makes the partitions that the rows need, level by level. */
static void
make_partitions(const ScdcQuery *q, const char *text, Oid sink)
{
	int			levels = list_length(q->partition_by);
	int			nestlevel;
	StringInfoData s;
	uint64		n;
	SPITupleTable *table;
	ListCell   *lc;

	/* as values of the sink's columns; the query's may have got another type since the sink was made */
	initStringInfo(&s);
	appendStringInfoString(&s, "SELECT DISTINCT ");
	foreach(lc, q->partition_by)
	{
		AttrNumber	attnum = get_attnum(sink, lfirst(lc));
		Oid			type;
		int32		typmod;
		Oid			collation;

		if (attnum <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of relation \"%s\" does not exist", (char *) lfirst(lc), get_rel_name(sink))));
		get_atttypetypmodcoll(sink, attnum, &type, &typmod, &collation);
		appendStringInfo(&s, "%sCAST(q.%s AS %s)", foreach_current_index(lc) > 0 ? ", " : "", quote_identifier(lfirst(lc)),
						 format_type_with_typemod(type, typmod));
	}
	appendStringInfo(&s, " FROM (%s\n) AS q", text);
	if (SPI_execute(s.data, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "unexpected result of a query");
	n = SPI_processed;
	table = SPI_tuptable;

	/* a value must be the same when it is read again */
	nestlevel = scdc_pin_output_settings();
	for (uint64 i = 0; i < n; i++)
	{
		Oid			parent = sink;

		for (int level = 0; level < levels; level++)
		{
			bool		isnull;
			Datum		value = SPI_getbinval(table->vals[i], table->tupdesc, level + 1, &isnull);
			Oid			part = find_partition(parent, SPI_gettypeid(table->tupdesc, level + 1), value, isnull);

			if (!OidIsValid(part))
			{
				char	   *shown = SPI_getvalue(table->vals[i], table->tupdesc, level + 1);
				char	   *name = partition_name(parent, shown);
				Oid			nsp = get_rel_namespace(parent);

				resetStringInfo(&s);
				appendStringInfo(&s, "CREATE TABLE %s PARTITION OF %s FOR VALUES IN (%s)",
								 quote_qualified_identifier(get_namespace_name(nsp), name), qualified_name(parent),
								 shown ? quote_literal_cstr(shown) : "NULL");
				if (level + 1 < levels)
					appendStringInfo(&s, " PARTITION BY LIST (%s)",
									 quote_identifier(list_nth(q->partition_by, level + 1)));
				run(s.data);
				CommandCounterIncrement();
				part = get_relname_relid(name, nsp);
			}
			if (get_rel_relkind(part) != RELKIND_PARTITIONED_TABLE)
				break;
			parent = part;
		}
	}
	AtEOXact_GUC(true, nestlevel);
	SPI_freetuptable(table);
}

static int64
run_all(List *commands)
{
	int64		rows = 0;
	ListCell   *lc;

	foreach(lc, commands)
	{
		run(lfirst(lc));
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
	if (!is_replaceable(sink))
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
	Oid			relid = RangeVarGetRelid(sink_name(q), AccessShareLock, false);
	TupleDesc	columns = scdc_sink_query_columns(text);
	Relation	sink;
	int64		rows;

	if (q->partition_by)
		make_partitions(q, text, relid);
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
	relid = RangeVarGetRelid(sink_name(q), NoLock, true);
	if (!OidIsValid(relid))
		return false;
	foreach(lc, destinations(q, relid))
		if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_FOREIGN_TABLE)
			return true;
	return false;
}
