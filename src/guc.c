/*-------------------------------------------------------------------------
 *
 * guc.c
 *	  The settings of streamcdc: names, units, ranges, defaults.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/rel.h"

#include "debug.h"
#include "guc.h"
#include "shmem.h"

int			scdc_read_timeout = 5000;
int			scdc_retention = 7 * 24 * 3600;
int			scdc_max_job_retention = 14 * 24 * 3600;
int			scdc_max_slot_wal = 16 * 1024;
int			scdc_capture_memory = 64 * 1024;
int			scdc_capture_delay = 5;
char	   *scdc_state_directory = NULL;
int			scdc_state_cache_size = 64 * 1024;
int			scdc_state_write_buffer = 32 * 1024;
int			scdc_max_restarts = 10;
bool		scdc_stop_active_run_on_restart = false;
int			scdc_stop_timeout = 30000;
int			scdc_progress_retention = 100;

/* Room for what is below the state directory, in a path. */
#define STATE_FILE_MAX	128

static bool
check_state_directory(char **value, void **extra, GucSource source)
{
	/* behind a slash at its end a symbolic link would be followed */
	canonicalize_path(*value);
	if (**value == '\0')
		GUC_check_errdetail("The name of a directory is needed.");
	else if (strlen(*value) > MAXPGPATH - STATE_FILE_MAX)
		GUC_check_errdetail("The name is too long.");
	else
		return true;
	return false;
}

/* Defines all settings and reserves the prefix.  Called once, from _PG_init. */
void
scdc_guc_init(void)
{
	DefineCustomIntVariable("streamcdc.read_timeout",
							"How long a read waits for capture to reach the statement's start.",
							"Zero means not to wait.",
							&scdc_read_timeout, 5000, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("streamcdc.retention",
							"How long versions are kept, where a table has no retention of its own.",
							"Zero means for ever.",
							&scdc_retention, 7 * 24 * 3600, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("streamcdc.max_job_retention",
							"How long versions are kept at most because a query still needs them.",
							"Then the query ends with an error. -1 means no limit.",
							&scdc_max_job_retention, 14 * 24 * 3600, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
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

	DefineCustomStringVariable("streamcdc.state_directory",
							   "Where jobs keep their state.",
							   "A path that is not absolute starts in the data directory.",
							   &scdc_state_directory, "streamcdc",
							   PGC_SIGHUP, 0, check_state_directory, NULL, NULL);
	DefineCustomIntVariable("streamcdc.state_cache_size",
							"How much memory the state store of a job uses to cache what it reads.",
							NULL,
							&scdc_state_cache_size, 64 * 1024, 1024, MAX_KILOBYTES,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("streamcdc.state_write_buffer",
							"How much memory the state store of a job uses to gather what it writes.",
							NULL,
							&scdc_state_write_buffer, 32 * 1024, 1024, MAX_KILOBYTES,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("streamcdc.max_restarts",
							"How often in a row a job is tried again without finishing a batch.",
							"Then the query's status is \"failed\".",
							&scdc_max_restarts, 10, 0, INT_MAX,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("streamcdc.stop_active_run_on_restart",
							 "Starting a query that is running stops the run first.",
							 "Otherwise it is an error.",
							 &scdc_stop_active_run_on_restart, false,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("streamcdc.stop_timeout",
							"How long starting a query waits for the run that it stops.",
							"Zero means no limit.",
							&scdc_stop_timeout, 30000, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("streamcdc.progress_retention",
							"How many progress records are kept for a query.",
							NULL,
							&scdc_progress_retention, 100, 1, INT_MAX,
							PGC_SIGHUP, 0, NULL, NULL, NULL);

	/* debug.h; not for users */
	DefineCustomStringVariable("streamcdc.debug_point",
							   "Where a test strikes.",
							   NULL,
							   &scdc_debug_setting, "",
							   PGC_SIGHUP, GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	DefineCustomIntVariable("streamcdc.debug_tracking_wait",
							"How long stream_track waits for the snapshot of its baseline.",
							NULL,
							&scdc_debug_tracking_wait, 1000, 0, 600000,
							PGC_SIGHUP, GUC_UNIT_MS | GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_SUPERUSER_ONLY, NULL, NULL, NULL);

	MarkGUCPrefixReserved("streamcdc");
}

void
scdc_publish_lc_monetary(void)
{
	LWLockAcquire(scdc_shared->lock, LW_EXCLUSIVE);
	strlcpy(scdc_shared->lc_monetary, GetConfigOption("lc_monetary", false, false), sizeof(scdc_shared->lc_monetary));
	LWLockRelease(scdc_shared->lock);
}

/* What ALTER DATABASE, or ALTER ROLE ALL, has set for a parameter; NULL if nothing. */
static char *
setting_of_database(Oid dboid, const char *name)
{
	Relation	rel = table_open(DbRoleSettingRelationId, AccessShareLock);
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	char	   *result = NULL;

	ScanKeyInit(&key[0], Anum_pg_db_role_setting_setdatabase, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(dboid));
	ScanKeyInit(&key[1], Anum_pg_db_role_setting_setrole, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(InvalidOid));
	scan = systable_beginscan(rel, DbRoleSettingDatidRolidIndexId, true, NULL, 2, key);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;
		Datum		array = heap_getattr(tuple, Anum_pg_db_role_setting_setconfig, RelationGetDescr(rel), &isnull);
		Datum	   *settings;
		int			n;

		if (isnull)
			continue;
		deconstruct_array(DatumGetArrayTypeP(array), TEXTOID, -1, false, TYPALIGN_INT, &settings, NULL, &n);
		for (int i = 0; i < n; i++)
		{
			char	   *setting = TextDatumGetCString(settings[i]);
			char	   *equals = strchr(setting, '=');

			if (equals && (size_t) (equals - setting) == strlen(name) && strncmp(setting, name, strlen(name)) == 0)
				result = equals + 1;
		}
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return result;
}

char *
scdc_database_lc_monetary(void)
{
	char	   *value = setting_of_database(MyDatabaseId, "lc_monetary");
	char		server[sizeof(scdc_shared->lc_monetary)] = "";

	if (value == NULL)
		value = setting_of_database(InvalidOid, "lc_monetary");
	if (value)
		return value;
	if (scdc_shared)
	{
		LWLockAcquire(scdc_shared->lock, LW_SHARED);
		strlcpy(server, scdc_shared->lc_monetary, sizeof(server));
		LWLockRelease(scdc_shared->lock);
	}
	return pstrdup(server[0] ? server : GetConfigOptionResetString("lc_monetary"));
}
