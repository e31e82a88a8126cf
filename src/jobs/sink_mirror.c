/*-------------------------------------------------------------------------
 *
 * sink_mirror.c
 *	  sink_mode "apply": what a mirror needs, and the commands that make it equal
 *	  its source.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "access/relation.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_trigger.h"
#include "commands/defrem.h"
#include "commands/trigger.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "jobs/sink_kinds.h"
#include "jobs/sink_relation.h"
#include "sql/json_row.h"

/* What the query must have for a mirror. */
void
scdc_mirror_check_query(const ScdcQuery *q, TupleDesc columns)
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
void
scdc_mirror_check(const ScdcQuery *q, TupleDesc columns, Relation sink)
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
	scdc_sink_add_names(&s, "q.", scdc_sink_keys(q));
	appendStringInfoString(&s, ") q.*, " GONE " AS \"-gone\" FROM "
						   "(SELECT q.*, pg_catalog.row_number() OVER () AS \"-n\" FROM (");
	appendStringInfo(&s, "%s\n) AS q) AS q ORDER BY ", text);
	scdc_sink_add_names(&s, "q.", scdc_sink_keys(q));
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
		if (att == NULL || !scdc_sink_is_key(q, lfirst(lc)) || !equal_is_identical(att->atttypid, att->attcollation))
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

typedef enum ApplyWay
{
	APPLY_UPSERT,			/* INSERT ... ON CONFLICT */
	APPLY_UPDATE,			/* UPDATE, then INSERT what is not there */
	APPLY_REPLACE			/* DELETE and INSERT in one command, then INSERT what is not there */
} ApplyWay;

/* Columns of the sink that the query does not write, and that are not made of others. */
static List *
other_columns(List *columns, TupleDesc sink)
{
	List	   *result = NIL;

	for (int i = 0; i < sink->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(sink, i);

		if (!att->attisdropped && !att->attgenerated && !scdc_sink_has_name(columns, NameStr(att->attname)))
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
	scdc_sink_add_names(&s, "f.", columns);
	if (kept)
		appendStringInfoString(&s, ", ");
	scdc_sink_add_names(&s, "s.", kept);
	appendStringInfo(&s, ") INSERT INTO %s (", q->sink);
	scdc_sink_add_names(&s, "", all);
	appendStringInfoString(&s, ") OVERRIDING SYSTEM VALUE SELECT ");
	scdc_sink_add_names(&s, "o.", all);
	appendStringInfoString(&s, " FROM \"-old\" AS o WHERE (SELECT pg_catalog.count(*) FROM \"-old\") OPERATOR(pg_catalog.>) 0");
	return s.data;
}

/*
 * Commands that make the sink equal the source: rows that are gone first, so
 * that what takes their place in another unique index of the sink finds room.
 */
static List *
apply_sql(const ScdcQuery *q, const char *text, List *columns, TupleDesc sink, ApplyWay way)
{
	char	   *rows = last_rows_sql(q, text);
	char	   *same = same_key_sql(q, sink);
	List	   *others = updated_columns(q, columns, sink);
	StringInfoData s;
	List	   *result;

	result = list_make1(psprintf("DELETE FROM %s AS s USING %s AS f WHERE f.\"-gone\" AND %s", q->sink, rows, same));
	if (way == APPLY_UPDATE && others)
		result = lappend(result, psprintf("UPDATE %s AS s SET %s FROM %s AS f WHERE NOT f.\"-gone\" AND %s",
										  q->sink, set_sql(others, "f"), rows, same));
	if (way == APPLY_REPLACE)
		result = lappend(result, replace_sql(q, rows, same, columns, sink));
	initStringInfo(&s);
	appendStringInfo(&s, "INSERT INTO %s (", q->sink);
	scdc_sink_add_names(&s, "", columns);
	appendStringInfoString(&s, ") OVERRIDING SYSTEM VALUE SELECT ");
	scdc_sink_add_names(&s, "f.", columns);
	appendStringInfo(&s, " FROM %s AS f WHERE NOT f.\"-gone\"", rows);
	if (way != APPLY_UPSERT)
		appendStringInfo(&s, " AND NOT EXISTS (SELECT FROM %s AS s WHERE %s)", q->sink, same);
	if (q->cluster_by)
	{
		appendStringInfoString(&s, " ORDER BY ");
		scdc_sink_add_names(&s, "f.", q->cluster_by);
	}
	if (way == APPLY_UPSERT)
	{
		appendStringInfoString(&s, " ON CONFLICT (");
		scdc_sink_add_names(&s, "", scdc_sink_keys(q));
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
bool
scdc_mirror_is_replaceable(Relation sink)
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

List *
scdc_mirror_sql(const ScdcQuery *q, const char *text, List *columns, Relation sink, bool replace)
{
	replace |= is_insert_only(q, columns, RelationGetDescr(sink)) && scdc_mirror_is_replaceable(sink);
	return apply_sql(q, text, columns, RelationGetDescr(sink), replace ? APPLY_REPLACE :
					 can_be_arbiter(q, sink) ? APPLY_UPSERT : APPLY_UPDATE);
}
