/*-------------------------------------------------------------------------
 *
 * sink_names.c
 *	  Names in the SQL that writes into a relation.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/varlena.h"

#include "jobs/sink_kinds.h"
#include "jobs/sink_relation.h"

bool
scdc_sink_is_metadata(const char *column)
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

void
scdc_sink_add_names(StringInfo s, const char *prefix, List *names)
{
	ListCell   *lc;

	foreach(lc, names)
		appendStringInfo(s, "%s%s%s", foreach_current_index(lc) > 0 ? ", " : "", prefix, quote_identifier(lfirst(lc)));
}

bool
scdc_sink_has_name(List *names, const char *name)
{
	ListCell   *lc;

	foreach(lc, names)
		if (strcmp(lfirst(lc), name) == 0)
			return true;
	return false;
}

bool
scdc_sink_is_key(const ScdcQuery *q, const char *column)
{
	for (int i = 0; i < q->nkeys; i++)
		if (strcmp(column, q->keys[i]) == 0)
			return true;
	return false;
}

List *
scdc_sink_keys(const ScdcQuery *q)
{
	List	   *keys = NIL;

	for (int i = 0; i < q->nkeys; i++)
		keys = lappend(keys, q->keys[i]);
	return keys;
}

RangeVar *
scdc_sink_range_var(const char *name)
{
	return makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(name)));
}

char *
scdc_sink_relation_name(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid));
}

void
scdc_sink_run(const char *sql)
{
	int			result = SPI_execute(sql, false, 0);

	if (result < 0)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(result));
}
