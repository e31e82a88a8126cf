/*-------------------------------------------------------------------------
 *
 * sink_schema.c
 *	  Making a sink, and giving it the columns that its source has now.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/namespace.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "jobs/failure.h"
#include "jobs/sink_kinds.h"
#include "jobs/sink_relation.h"
#include "log/catalog.h"

/* Is the column part of the row identity, and never NULL in the source? */
static bool
is_not_null_key(const ScdcQuery *q, const char *column)
{
	HeapTuple	tuple;
	bool		result;

	if (!scdc_sink_is_key(q, column))
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
void
scdc_sink_create(ScdcQuery *q, RangeVar *rv, TupleDesc columns)
{
	Oid			nsp = RangeVarGetCreationNamespace(rv);
	char	   *name = quote_qualified_identifier(get_namespace_name(nsp), rv->relname);
	StringInfoData s;
	bool		first = true;
	ListCell   *lc;

	/* of the levels below the first the server would say so only when the first row comes */
	foreach(lc, q->partition_by)
		if (q->apply && !scdc_sink_is_key(q, lfirst(lc)))
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

		if (q->apply && scdc_sink_is_metadata(NameStr(att->attname)))
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
	scdc_sink_run(s.data);

	if (q->apply)
	{
		bool		not_null = true;

		for (int i = 0; i < q->nkeys; i++)
			not_null &= is_not_null_key(q, q->keys[i]);
		resetStringInfo(&s);
		/* a primary key is also what publications, and a mirror's own log, know its rows by */
		appendStringInfo(&s, not_null ? "ALTER TABLE %s ADD PRIMARY KEY (" : "CREATE UNIQUE INDEX ON %s (", name);
		scdc_sink_add_names(&s, "", scdc_sink_keys(q));
		appendStringInfoString(&s, not_null ? ")" : ") NULLS NOT DISTINCT");
		scdc_sink_run(s.data);
	}
	if (q->cluster_by)
	{
		resetStringInfo(&s);
		appendStringInfo(&s, "CREATE INDEX ON %s USING brin (", name);
		scdc_sink_add_names(&s, "", q->cluster_by);
		appendStringInfoChar(&s, ')');
		scdc_sink_run(s.data);
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
void
scdc_sink_renew_columns(const ScdcQuery *q, Relation sink, List *added)
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
			(before == NULL && (former == NULL || !scdc_sink_has_name(added, c->name))))
			continue;
		value = former ? NULL : added_value(q, c->name);
		appendStringInfo(&s, "%s%s = %s", s.len > 0 ? ", " : "", quote_identifier(c->name),
						 former ? quote_identifier(former) : value ? quote_literal_cstr(value) : "NULL");
	}
	if (s.len > 0)
		scdc_sink_run(psprintf("UPDATE %s SET %s", q->sink, s.data));
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
List *
scdc_sink_merge_schema(const ScdcQuery *q, Oid relid, TupleDesc columns, bool create)
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

		if (scdc_sink_find_column(RelationGetDescr(rel), NameStr(att->attname)) >= 0 || scdc_sink_is_metadata(NameStr(att->attname)))
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
		scdc_sink_run(s.data);
	return added;
}
