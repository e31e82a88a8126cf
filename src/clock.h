/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  Time for waits and back-off: milliseconds of a clock that nobody sets.
 *
 * The time of day (GetCurrentTimestamp) is for timestamps that users see.
 * Were it used for a deadline, a clock put back by an hour would make us wait
 * for an hour.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_CLOCK_H
#define SCDC_CLOCK_H

#include "portability/instr_time.h"

/* The same in all processes of the server; may be kept in shared memory. */
static inline int64
scdc_clock_ms(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MILLISEC(now);
}

#endif							/* SCDC_CLOCK_H */
