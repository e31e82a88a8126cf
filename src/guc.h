/*-------------------------------------------------------------------------
 *
 * guc.h
 *	  The settings of streamcdc.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_GUC_H
#define SCDC_GUC_H

extern int	scdc_read_timeout;	/* ms; 0 = do not wait */
extern int	scdc_max_slot_wal;	/* MB; -1 = no limit */
extern int	scdc_capture_memory;	/* kB */
extern int	scdc_capture_delay; /* ms */

extern void scdc_guc_init(void);

#endif							/* SCDC_GUC_H */
