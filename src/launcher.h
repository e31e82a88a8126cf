/*-------------------------------------------------------------------------
 *
 * launcher.h
 *	  The launcher: keeps a capture worker running for each marked database.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_LAUNCHER_H
#define SCDC_LAUNCHER_H

extern void scdc_launcher_register(void);	/* from _PG_init */

#endif							/* SCDC_LAUNCHER_H */
