/*-------------------------------------------------------------------------
 *
 * hooks.h
 *	  Where the server calls us in ordinary backends.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_HOOKS_H
#define SCDC_HOOKS_H

extern void scdc_hooks_init(void);	/* from _PG_init */

#endif							/* SCDC_HOOKS_H */
