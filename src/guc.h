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
extern int	scdc_retention;		/* s; 0 = for ever */
extern int	scdc_max_job_retention; /* s; -1 = no limit */
extern int	scdc_max_slot_wal;	/* MB; -1 = no limit */
extern int	scdc_capture_memory;	/* kB */
extern int	scdc_capture_delay; /* ms */
extern char *scdc_state_directory;
extern int	scdc_state_cache_size;	/* kB */
extern int	scdc_state_write_buffer;	/* kB */
extern int	scdc_max_restarts;
extern bool scdc_stop_active_run_on_restart;
extern int	scdc_stop_timeout;	/* ms */
extern int	scdc_progress_retention;	/* records per query */

extern void scdc_guc_init(void);

/* The launcher, which has neither database nor role, tells what the server's configuration has for lc_monetary. */
extern void scdc_publish_lc_monetary(void);

/*
 * lc_monetary as this database has it, whatever the role, the client or the
 * session has set: palloc'd.  To be called in a transaction.
 */
extern char *scdc_database_lc_monetary(void);

#endif							/* SCDC_GUC_H */
