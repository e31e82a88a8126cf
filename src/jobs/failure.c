/*-------------------------------------------------------------------------
 *
 * failure.c
 *	  Errors of a job (see failure.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "jobs/failure.h"

static bool stop = false;
static bool leave = false;

void
scdc_stop_is_next(void)
{
	stop = true;
}

void
scdc_stop(int sqlerrcode, const char *message, const char *detail, const char *hint)
{
	stop = true;
	ereport(ERROR,
			(errcode(sqlerrcode),
			 errmsg("%s", message),
			 detail ? errdetail("%s", detail) : 0,
			 hint ? errhint("%s", hint) : 0));
}

void
scdc_leave(const char *message)
{
	leave = true;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg_internal("%s", message)));
}

bool
scdc_was_leave(void)
{
	bool		result = leave;

	leave = false;
	return result;
}

bool
scdc_was_stop(void)
{
	bool		result = stop;

	stop = false;
	return result;
}
