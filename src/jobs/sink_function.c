/*-------------------------------------------------------------------------
 *
 * sink_function.c
 *	  Functions as the sink of a query: one for batches, or one for rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"
#include "utils/varlena.h"

#include "attempt.h"
#include "jobs/sink.h"
#include "jobs/sink_kinds.h"
#include "jobs/uses.h"

/* ---------------------------------------------------------------------
 * functions
 * ---------------------------------------------------------------------
 */

/* Can the text be a function's name? */
static bool
looks_like_name(const char *text)
{
	bool		quoted = false;

	for (const char *p = text; *p; p++)
	{
		if (*p == '"')
			quoted = !quoted;
		else if (!quoted && !(isalnum((unsigned char) *p) || *p == '_' || *p == '.' || *p == '$' || IS_HIGHBIT_SET(*p)))
			return false;
	}
	return !quoted && text[0] != '\0';
}

static char *
function_name(Oid function)
{
	return quote_qualified_identifier(get_namespace_name(get_func_namespace(function)), get_func_name(function));
}

/* Those around a batch are found by their names, so whoever can make functions there is asked for each time. */
static void
check_function(const ScdcQuery *q, Oid function)
{
	if (get_func_prokind(function) != PROKIND_FUNCTION)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is an aggregate or a window function", get_func_name(function)),
				 errdetail("An ordinary function is needed.")));
	if (pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, get_func_name(function));
	scdc_uses_check_function(q, function);
}

/* The function for single rows: of jsonb or of a composite type. */
static Oid
row_function(const char *name, Oid *argtype)
{
	List	   *names = textToQualifiedNameList(cstring_to_text(name));
	Oid			jsonb = JSONBOID;
	Oid			found = LookupFuncName(names, 1, &jsonb, true);
	FuncCandidateList best = NULL;
	bool		unique = true;

	if (OidIsValid(found))
	{
		*argtype = JSONBOID;
		return found;
	}
	for (FuncCandidateList c = FuncnameGetCandidates(names, 1, NIL, false, false, false, true); c; c = c->next)
	{
		if (get_typtype(c->args[0]) != TYPTYPE_COMPOSITE || (best && best->pathpos < c->pathpos))
			continue;
		unique = best == NULL || c->pathpos < best->pathpos;
		best = c;
	}
	if (!unique)
		ereport(ERROR,
				(errcode(ERRCODE_AMBIGUOUS_FUNCTION),
				 errmsg("function %s is not unique", name),
				 errdetail("More than one function of that name takes a composite type.")));
	if (best)
	{
		*argtype = best->args[0];
		return best->oid;
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_FUNCTION),
			 errmsg("function %s(jsonb) does not exist", name),
			 errhint("\"foreach\" names a function of one argument, jsonb or of a composite type.")));
	return InvalidOid;
}

/* The function for batches. */
static Oid
batch_function(const char *name)
{
	static const Oid argtypes[] = {INT8OID, REFCURSOROID};
	Oid			function = LookupFuncName(textToQualifiedNameList(cstring_to_text(name)), lengthof(argtypes), argtypes, true);

	if (!OidIsValid(function))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function %s(bigint, refcursor) does not exist", name),
				 errhint("\"foreach_batch\" is one or more SQL commands, or names a function (batch_id bigint, batch refcursor).")));
	return function;
}

/* A companion of the function in its schema; InvalidOid if there is none. */
static Oid
companion(const ScdcQuery *q, Oid function, const char *suffix, int nargs, const Oid *argtypes)
{
	List	   *names = list_make2(makeString(get_namespace_name(get_func_namespace(function))),
								   makeString(psprintf("%s%s", get_func_name(function), suffix)));
	Oid			result = LookupFuncName(names, nargs, argtypes, true);

	if (OidIsValid(result))
		check_function(q, result);
	return result;
}

static Oid
open_of(const ScdcQuery *q, Oid function)
{
	static const Oid argtypes[] = {INT8OID, INT8OID};
	Oid			result = companion(q, function, "_open", lengthof(argtypes), argtypes);

	if (OidIsValid(result) && (get_func_rettype(result) != BOOLOID || get_func_retset(result)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("function %s must return type %s", function_name(result), "boolean"),
				 errhint("It tells whether the rows of a batch are to be processed.")));
	return result;
}

static Oid
close_of(const ScdcQuery *q, Oid function)
{
	static const Oid argtypes[] = {TEXTOID};

	return companion(q, function, "_close", lengthof(argtypes), argtypes);
}

void
scdc_sink_resolve(ScdcQuery *q)
{
	Oid			function;

	if (q->sink_kind == SCDC_SINK_FOREACH)
	{
		Oid			argtype;

		function = row_function(q->sink, &argtype);
		check_function(q, function);
		(void) open_of(q, function);
		(void) close_of(q, function);
		q->sink = function_name(function);
		return;
	}
	if (q->sink_kind != SCDC_SINK_BATCH_SQL || !looks_like_name(q->sink))
		return;
	function = batch_function(q->sink);
	check_function(q, function);
	q->sink_kind = SCDC_SINK_BATCH_FUNCTION;
	q->sink = function_name(function);
}

/* ---------------------------------------------------------------------
 * writing
 * ---------------------------------------------------------------------
 */

void
scdc_sink_function_write_batch(const ScdcQuery *q, const char *text, int64 batch_id)
{
	Portal		portal = SPI_cursor_open_with_args("batch", text, 0, NULL, NULL, NULL, false, 0);
	Oid			types[2] = {INT8OID, REFCURSOROID};
	Datum		values[2] = {Int64GetDatum(batch_id), CStringGetTextDatum("batch")};

	if (portal == NULL)
		elog(ERROR, "could not open a cursor: %s", SPI_result_code_string(SPI_result));
	check_function(q, batch_function(q->sink));
	if (SPI_execute_with_args(psprintf("SELECT %s($1, $2)", q->sink), 2, types, values, NULL, false, 0) < 0)
		elog(ERROR, "SPI_execute_with_args failed");
	portal = SPI_cursor_find("batch");
	if (portal)
		SPI_cursor_close(portal);
}

/* The call of a row function, over rows called q. */
static char *
row_call_sql(const char *function, Oid argtype, TupleDesc columns)
{
	TupleDesc	row;
	StringInfoData s;
	bool		first = true;

	if (argtype == JSONBOID)
		return psprintf("%s(pg_catalog.to_jsonb(q))", function);
	row = lookup_rowtype_tupdesc(argtype, -1);
	initStringInfo(&s);
	appendStringInfo(&s, "%s(ROW(", function);
	for (int i = 0; i < row->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(row, i);

		if (att->attisdropped)
			continue;
		if (scdc_sink_find_column(columns, NameStr(att->attname)) >= 0)
			appendStringInfo(&s, "%sq.%s", first ? "" : ", ", quote_identifier(NameStr(att->attname)));
		else
			appendStringInfo(&s, "%sNULL", first ? "" : ", ");
		first = false;
	}
	ReleaseTupleDesc(row);
	appendStringInfo(&s, ")::%s)", format_type_extended(argtype, -1, FORMAT_TYPE_FORCE_QUALIFY));
	return s.data;
}

/* Calls a row function for each row of the query. */
static char *
rows_sql(const ScdcQuery *q, const char *text, Oid argtype, TupleDesc columns)
{
	return psprintf("SELECT %s FROM (%s\n) AS q", row_call_sql(q->sink, argtype, columns), text);
}

/* Do the columns fit the function's argument? */
void
scdc_sink_function_check_rows(const ScdcQuery *q, const char *text, TupleDesc columns)
{
	Oid			argtype;

	(void) row_function(q->sink, &argtype);
	if (SPI_prepare(rows_sql(q, text, argtype, columns), 0, NULL) == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
}

static void
call_close(Oid close_function, const char *error)
{
	Oid			type = TEXTOID;
	Datum		value = error ? CStringGetTextDatum(error) : (Datum) 0;
	char		null = error ? ' ' : 'n';

	if (OidIsValid(close_function) &&
		SPI_execute_with_args(psprintf("SELECT %s($1)", function_name(close_function)), 1, &type, &value, &null,
							  false, 0) < 0)
		elog(ERROR, "SPI_execute_with_args failed");
}

typedef struct CloseCall
{
	Oid			function;
	const char *error;
} CloseCall;

static void
attempt_close(void *arg)
{
	CloseCall  *call = arg;

	call_close(call->function, call->error);
}

/* Tells close of an error, which goes on afterwards: what close raises itself is a warning beside that. */
static void
call_close_after(Oid close_function, const ErrorData *error)
{
	CloseCall	call = {close_function, error->message};
	ErrorData  *another = scdc_attempt(attempt_close, &call);

	if (another == NULL)
		return;
	if (another->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(another);
	ereport(WARNING,
			(errmsg("function %s has failed after an error in the rows: %s", function_name(close_function),
					another->message)));
}

static void
call_for_rows(void *arg)
{
	SPIExecuteOptions options = {.dest = CreateDestReceiver(DestNone)};
	int			result = SPI_execute_extended(arg, &options);

	if (result < 0)
		elog(ERROR, "SPI_execute_extended failed: %s", SPI_result_code_string(result));
}

/* ForeachWriter: open, process each row unless open said false, close. */
void
scdc_sink_function_write_rows(const ScdcQuery *q, const char *text, int64 batch_id)
{
	Oid			argtype;
	Oid			function = row_function(q->sink, &argtype);
	Oid			open_types[2] = {INT8OID, INT8OID};
	Oid			open_function = open_of(q, function);
	Oid			close_function = close_of(q, function);
	char	   *sql = rows_sql(q, text, argtype, scdc_sink_query_columns(text));
	bool		process = true;

	check_function(q, function);
	if (OidIsValid(open_function))
	{
		Datum		values[2] = {Int64GetDatum(0), Int64GetDatum(batch_id)};
		bool		isnull;

		if (SPI_execute_with_args(psprintf("SELECT %s($1, $2)", function_name(open_function)), 2, open_types, values,
								  NULL, false, 0) != SPI_OK_SELECT)
			elog(ERROR, "unexpected result of a query");
		process = SPI_processed == 0 ||
			DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	}
	if (process)
	{
		ErrorData  *e = scdc_attempt(call_for_rows, sql);

		/* close is told of an error before that goes on */
		if (e)
		{
			call_close_after(close_function, e);
			ReThrowError(e);
		}
	}
	call_close(close_function, NULL);
}
