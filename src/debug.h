/*-------------------------------------------------------------------------
 *
 * debug.h
 *	  Places in the code at which a test may strike.
 *
 * The setting streamcdc.debug_point (superusers; not shown) is
 * 'place:action:tag'.  The first process that comes by the place does the
 * action: "kill" (SIGKILL to itself), "error", or "wait" (until the setting
 * names no such place any more).  A tag strikes once, also over restarts: a
 * file in the data directory remembers it.  Compiled in always, so that what
 * is tested is what users run; it costs a look at an empty string.
 *
 * The setting streamcdc.debug_tracking_wait (superusers; not shown) is how long
 * stream_track waits, once committed, for the snapshot of its baseline (ms).
 * A test that is about what comes after it sets it so long that no machine is
 * too slow.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_DEBUG_H
#define SCDC_DEBUG_H

extern char *scdc_debug_setting;
extern int	scdc_debug_tracking_wait;

extern void scdc_debug_strike(const char *place);

static inline void
scdc_debug_point(const char *place)
{
	if (scdc_debug_setting && scdc_debug_setting[0] != '\0')
		scdc_debug_strike(place);
}

#endif							/* SCDC_DEBUG_H */
