/*-------------------------------------------------------------------------
 *
 * api_jobs.c
 *	  SQL functions that control streaming queries: stream_start, stream_stop,
 *	  stream_resume, stream_drop, and those that wait.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <math.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "jobs/control.h"
#include "shmem.h"

PG_FUNCTION_INFO_V1(streamcdc_start);
PG_FUNCTION_INFO_V1(streamcdc_stop);
PG_FUNCTION_INFO_V1(streamcdc_resume);
PG_FUNCTION_INFO_V1(streamcdc_drop);
PG_FUNCTION_INFO_V1(streamcdc_process_all_available);
PG_FUNCTION_INFO_V1(streamcdc_await_termination);
PG_FUNCTION_INFO_V1(streamcdc_await_any_termination);
PG_FUNCTION_INFO_V1(streamcdc_reset_terminated);

/* What changes a query writes, though not the way that the server would notice. */
static void
prevent_if_read_only(const char *command)
{
	PreventCommandDuringRecovery(command);
	PreventCommandIfReadOnly(command);
}

static char *
name_arg(FunctionCallInfo fcinfo)
{
	scdc_require_preload();
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"query_name\" must not be null")));
	return text_to_cstring(PG_GETARG_TEXT_PP(0));
}

/* An interval in ms, of which a part is a whole one; if_null where it is not given.  Raises 22023 below zero. */
static long
timeout_arg(FunctionCallInfo fcinfo, int arg, long if_null)
{
	Interval   *i;
	double		ms;

	if (PG_ARGISNULL(arg))
		return if_null;
	i = PG_GETARG_INTERVAL_P(arg);
	ms = i->time / 1000.0 + ((double) i->month * DAYS_PER_MONTH + i->day) * (USECS_PER_DAY / 1000);
	if (ms < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"timeout\" must not be negative")));
	return ms > INT_MAX ? INT_MAX : (long) ceil(ms);
}

static Datum
uuid_result(pg_uuid_t id)
{
	pg_uuid_t  *result = palloc(sizeof(pg_uuid_t));

	*result = id;
	return UUIDPGetDatum(result);
}

Datum
streamcdc_start(PG_FUNCTION_ARGS)
{
	ScdcStartOptions start;
	ScdcQuery  *q;

	prevent_if_read_only("stream_start()");
	q = scdc_definition_from_arguments(fcinfo, &start);
	return uuid_result(scdc_control_start(q, &start));
}

Datum
streamcdc_stop(PG_FUNCTION_ARGS)
{
	prevent_if_read_only("stream_stop()");
	scdc_control_stop(name_arg(fcinfo), timeout_arg(fcinfo, 1, 30000));
	PG_RETURN_VOID();
}

Datum
streamcdc_resume(PG_FUNCTION_ARGS)
{
	prevent_if_read_only("stream_resume()");
	return uuid_result(scdc_control_resume(name_arg(fcinfo)));
}

Datum
streamcdc_drop(PG_FUNCTION_ARGS)
{
	prevent_if_read_only("stream_drop()");
	scdc_control_drop(name_arg(fcinfo));
	PG_RETURN_VOID();
}

Datum
streamcdc_process_all_available(PG_FUNCTION_ARGS)
{
	scdc_control_process_all(name_arg(fcinfo), timeout_arg(fcinfo, 1, 0));
	PG_RETURN_VOID();
}

Datum
streamcdc_await_termination(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(scdc_control_await(name_arg(fcinfo), timeout_arg(fcinfo, 1, -1)));
}

Datum
streamcdc_await_any_termination(PG_FUNCTION_ARGS)
{
	scdc_require_preload();
	PG_RETURN_BOOL(scdc_control_await_any(timeout_arg(fcinfo, 0, -1)));
}

Datum
streamcdc_reset_terminated(PG_FUNCTION_ARGS)
{
	scdc_require_preload();
	scdc_control_reset_terminated();
	PG_RETURN_VOID();
}
