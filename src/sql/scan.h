/*-------------------------------------------------------------------------
 *
 * scan.h
 *	  stream_changes in FROM as a scan of the change log.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_SCAN_H
#define SCDC_SCAN_H

extern void scdc_scan_init(void);	/* from _PG_init; sets the planner hook */

#endif							/* SCDC_SCAN_H */
