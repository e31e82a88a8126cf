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

static void
note_columns_of(const ScdcStream *stream, Snapshot snapshot)
{
	HeapTuple	class = SearchSysCache1(RELOID, ObjectIdGetDatum(stream->relid));
	int			natts;

	if (!HeapTupleIsValid(class))
		return;
	natts = ((Form_pg_class) GETSTRUCT(class))->relnatts;
	ReleaseSysCache(class);

	for (AttrNumber attnum = 1; attnum <= natts; attnum++)
	{
		HeapTuple	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(stream->relid), Int16GetDatum(attnum));
		Form_pg_attribute att;
		char	   *value;

		if (!HeapTupleIsValid(tuple))
			continue;
		att = (Form_pg_attribute) GETSTRUCT(tuple);
		if (att->atthasmissing && !att->attisdropped &&
			scdc_missing_read(stream->stream_id, attnum, snapshot) == NULL &&
			(value = missing_value(tuple)) != NULL)
			scdc_missing_insert(stream->stream_id, attnum, value);
		ReleaseSysCache(tuple);
	}
}

void
scdc_added_columns_note(void)
{
	Snapshot	snapshot;
	ListCell   *lc;

	CommandCounterIncrement();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	foreach(lc, scdc_stream_list(snapshot))
	{
		ScdcStream *stream = lfirst(lc);

		if (stream->state == SCDC_STATE_LIVE || scdc_stream_given_up(stream))
			note_columns_of(stream, snapshot);
	}
	UnregisterSnapshot(snapshot);
}
