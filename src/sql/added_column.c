/*-------------------------------------------------------------------------
 *
 * added_column.c
 *	  Defaults of added columns, kept (see added_column.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "log/catalog.h"
#include "sql/added_column.h"
#include "sql/json_row.h"

/* The value as text; it stands in pg_attribute as an array of one. */
static char *
missing_value(HeapTuple tuple)
{
	Form_pg_attribute att = (Form_pg_attribute) GETSTRUCT(tuple);
	bool		isnull;
	Datum		array = SysCacheGetAttr(ATTNUM, tuple, Anum_pg_attribute_attmissingval, &isnull);
	int			one = 1;
	Datum		value;
	Oid			output;
	bool		isvarlena;
	int			nestlevel;
	char	   *text;

	if (isnull)
		return NULL;
	value = array_get_element(array, 1, &one, -1, att->attlen, att->attbyval, att->attalign, &isnull);
	if (isnull)
		return NULL;
	getTypeOutputInfo(att->atttypid, &output, &isvarlena);
	nestlevel = scdc_pin_output_settings();
	text = OidOutputFunctionCall(output, value);
	AtEOXact_GUC(true, nestlevel);
	return text;
}

/* Was the column, as it stands in the catalog, made by the command, in this transaction? */
static bool
is_new(HeapTuple tuple, const AlterTableStmt *command)
{
	Form_pg_attribute att = (Form_pg_attribute) GETSTRUCT(tuple);
	ListCell   *lc;

	if (!TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)))
		return false;
	foreach(lc, command->cmds)
	{
		AlterTableCmd *cmd = lfirst(lc);

		if (cmd->subtype == AT_AddColumn && strcmp(((ColumnDef *) cmd->def)->colname, NameStr(att->attname)) == 0)
			return true;
	}
	return false;
}

/*
 * A partitioned table has no rows, so the server notes nothing beside its own
 * columns.  When a column is added its partitions all have the same.  (Later
 * they need not: what is attached brings what was noted when it was a table of
 * its own, and its rows came with the value.)
 */
static char *
missing_value_below(const ScdcStream *stream, HeapTuple tuple, const AlterTableStmt *command, Snapshot snapshot)
{
	Form_pg_attribute att = (Form_pg_attribute) GETSTRUCT(tuple);
	char	   *value = NULL;
	ListCell   *lc;

	if (!is_new(tuple, command))
		return NULL;
	foreach(lc, scdc_registry_members(stream->stream_id, snapshot))
	{
		HeapTuple	below = SearchSysCacheAttName(lfirst_oid(lc), NameStr(att->attname));

		if (!HeapTupleIsValid(below))
			continue;
		if (((Form_pg_attribute) GETSTRUCT(below))->atthasmissing)
			value = missing_value(below);
		ReleaseSysCache(below);
		if (value)
			break;
	}
	return value;
}

static void
note_columns_of(const ScdcStream *stream, const AlterTableStmt *command, Snapshot snapshot)
{
	bool		is_partitioned;
	HeapTuple	class = SearchSysCache1(RELOID, ObjectIdGetDatum(stream->relid));
	int			natts;

	if (!HeapTupleIsValid(class))
		return;
	natts = ((Form_pg_class) GETSTRUCT(class))->relnatts;
	is_partitioned = ((Form_pg_class) GETSTRUCT(class))->relkind == RELKIND_PARTITIONED_TABLE;
	ReleaseSysCache(class);

	for (AttrNumber attnum = 1; attnum <= natts; attnum++)
	{
		HeapTuple	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(stream->relid), Int16GetDatum(attnum));
		Form_pg_attribute att;
		char	   *value = NULL;

		if (!HeapTupleIsValid(tuple))
			continue;
		att = (Form_pg_attribute) GETSTRUCT(tuple);
		if ((is_partitioned || att->atthasmissing) && !att->attisdropped &&
			scdc_missing_read(stream->stream_id, attnum, snapshot) == NULL)
			value = is_partitioned ? missing_value_below(stream, tuple, command, snapshot) : missing_value(tuple);
		if (value)
			scdc_missing_insert(stream->stream_id, attnum, value);
		ReleaseSysCache(tuple);
	}
}

void
scdc_added_columns_note(const AlterTableStmt *command)
{
	Snapshot	snapshot;
	ListCell   *lc;

	CommandCounterIncrement();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	foreach(lc, scdc_stream_list(snapshot))
	{
		ScdcStream *stream = lfirst(lc);

		if (stream->state == SCDC_STATE_LIVE || scdc_stream_given_up(stream))
			note_columns_of(stream, command, snapshot);
	}
	UnregisterSnapshot(snapshot);
}
