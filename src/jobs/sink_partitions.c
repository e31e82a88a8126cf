/*-------------------------------------------------------------------------
 *
 * sink_partitions.c
 *	  Partitions of a sink that "partition_by" has made, as values appear.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/syscache.h"

#include "jobs/sink_kinds.h"
#include "jobs/sink_relation.h"
#include "sql/json_row.h"

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
void
scdc_sink_make_partitions(const ScdcQuery *q, const char *text, Oid sink)
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
								 quote_qualified_identifier(get_namespace_name(nsp), name), scdc_sink_relation_name(parent),
								 shown ? quote_literal_cstr(shown) : "NULL");
				if (level + 1 < levels)
					appendStringInfo(&s, " PARTITION BY LIST (%s)",
									 quote_identifier(list_nth(q->partition_by, level + 1)));
				scdc_sink_run(s.data);
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
