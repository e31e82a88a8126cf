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

/*
 * This transaction tracks a table: when it has committed, wait a moment until
 * capture has taken note (hooks.c says why).
 */
extern void scdc_hooks_tracking(bool baseline);

/* It changes for how long versions are kept: look for old ones when it has committed. */
extern void scdc_hooks_retention(void);

#endif							/* SCDC_HOOKS_H */
