/*-------------------------------------------------------------------------
 *
 * guc.c
 *	  The settings of streamcdc: names, units, ranges, defaults.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"

#include "guc.h"

int			scdc_read_timeout = 5000;
int			scdc_max_slot_wal = 16 * 1024;
int			scdc_capture_memory = 64 * 1024;
int			scdc_capture_delay = 5;

/* Defines all settings and reserves the prefix.  Called once, from _PG_init. */
void
scdc_guc_init(void)
{
	DefineCustomIntVariable("streamcdc.read_timeout",
							"How long a read waits for capture to reach the statement's start.",
							"Zero means not to wait.",
							&scdc_read_timeout, 5000, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("streamcdc.max_slot_wal",
							"How much WAL capture's replication slot may hold back before it is given up with a gap.",
							"-1 means no limit.",
							&scdc_max_slot_wal, 16 * 1024, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("streamcdc.capture_memory",
							"How much memory a capture worker uses before it spools to temporary files.",
							NULL,
							&scdc_capture_memory, 64 * 1024, 4 * 1024, MAX_KILOBYTES,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("streamcdc.capture_delay",
							"How long a capture worker gathers commits under load.",
							"An idle worker reacts at once.",
							&scdc_capture_delay, 5, 0, 10000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);

	MarkGUCPrefixReserved("streamcdc");
}
