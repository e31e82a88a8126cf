/*-------------------------------------------------------------------------
 *
 * failure.c
 *	  Errors of a job (see failure.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"

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

char *
scdc_error_text(const char *message, const char *detail, const char *hint)
{
	StringInfoData s;

	initStringInfo(&s);
	appendStringInfoString(&s, message);
	if (detail && detail[0])
		appendStringInfo(&s, "\nDETAIL:  %s", detail);
	if (hint && hint[0])
		appendStringInfo(&s, "\nHINT:  %s", hint);
	return s.data;
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
