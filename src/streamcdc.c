/*-------------------------------------------------------------------------
 *
 * streamcdc.c
 *	  Module magic and load hook.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "guc.h"
#include "hooks.h"
#include "label.h"
#include "launcher.h"
#include "shmem.h"
#include "sql/scan.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	scdc_guc_init();
	scdc_label_init();

	/*
	 * Loaded later, by LOAD or by a function call, there is no shared memory
	 * and no launcher; the functions then say what to do.
	 */
	if (!process_shared_preload_libraries_in_progress)
		return;
	scdc_shmem_init();
	scdc_hooks_init();
	scdc_scan_init();

	/* pg_upgrade must find databases without sessions, and WAL that nobody continues */
	if (!IsBinaryUpgrade)
		scdc_launcher_register();
}
