/*-------------------------------------------------------------------------
 *
 * sink_progress.c
 *	  What a query has written to another server, noted there (progressTable).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "jobs/sink_kinds.h"
#include "jobs/sink_relation.h"

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
	Oid			relid = RangeVarGetRelid(scdc_sink_range_var(q->progress_table), AccessShareLock, false);

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
void
scdc_sink_check_progress(const ScdcQuery *q)
{
	ListCell   *lc;

	foreach(lc, lcons(is_written_sql(q), note_written_sql(q)))
		if (SPI_prepare(lfirst(lc), lengthof(progress_types), progress_types) == NULL)
			elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
}
