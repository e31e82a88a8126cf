/*-------------------------------------------------------------------------
 *
 * debug.c
 *	  Places in the code at which a test may strike (see debug.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "utils/guc.h"

#include "debug.h"

char	   *scdc_debug_setting = NULL;
int			scdc_debug_tracking_wait = 1000;

static bool
is_set(const char *place)
{
	Size		len = strlen(place);

	return strncmp(scdc_debug_setting, place, len) == 0 && scdc_debug_setting[len] == ':';
}

/* Is this the first time that somebody comes by with this tag? */
static bool
first_time(const char *tag)
{
	char	   *path = psprintf("streamcdc_debug_%s", tag);
	int			fd = open(path, O_CREAT | O_EXCL | O_WRONLY, S_IRUSR | S_IWUSR);

	pfree(path);
	if (fd < 0)
		return false;
	(void) fsync(fd);
	close(fd);
	return true;
}

void
scdc_debug_strike(const char *place)
{
	const char *action;
	const char *tag;

	if (!is_set(place))
		return;
	action = scdc_debug_setting + strlen(place) + 1;
	tag = strchr(action, ':');
	if (tag == NULL || strspn(tag + 1, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(tag + 1) || !first_time(tag + 1))
		return;
	if (strncmp(action, "kill:", 5) == 0)
		kill(MyProcPid, SIGKILL);
	else if (strncmp(action, "error:", 6) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("debug point \"%s\"", place)));
	else if (strncmp(action, "wait:", 5) == 0)
	{
		while (is_set(place))
		{
			CHECK_FOR_INTERRUPTS();
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 20, PG_WAIT_EXTENSION);
			ResetLatch(MyLatch);
			if (ConfigReloadPending)
			{
				ConfigReloadPending = false;
				ProcessConfigFile(PGC_SIGHUP);
			}
		}
	}
}
