/*-------------------------------------------------------------------------
 *
 * temp_file.h
 *	  Temporary files as collapse.h wants them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_TEMP_FILE_H
#define SCDC_TEMP_FILE_H

/*
 * A file, in the context and for the resource owner that are current; it is
 * gone when that owner is, unless it was closed before.
 */
extern void *scdc_temp_file_create(void);

/* These four have the signatures of ScdcCollapseOps and do not look at arg. */
extern void scdc_temp_file_write(void *file, const void *data, Size size, void *arg);
extern void scdc_temp_file_rewind(void *file, void *arg);
extern void scdc_temp_file_read(void *file, void *data, Size size, void *arg);
extern void scdc_temp_file_close(void *file, void *arg);

#endif							/* SCDC_TEMP_FILE_H */
