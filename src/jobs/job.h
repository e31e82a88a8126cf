/*-------------------------------------------------------------------------
 *
 * job.h
 *	  The worker of one query.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_JOB_WORKER_H
#define SCDC_JOB_WORKER_H

#include "utils/uuid.h"

/* What it is told; travels in bgw_extra. */
typedef struct ScdcJobTask
{
	int			slot;
	Oid			dboid;
	Oid			owner;
	pg_uuid_t	query_id;
	pg_uuid_t	run_id;
} ScdcJobTask;

#endif							/* SCDC_JOB_WORKER_H */
