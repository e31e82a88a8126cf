/*-------------------------------------------------------------------------
 *
 * attempt.h
 *	  Doing something that may fail without the transaction failing.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_ATTEMPT_H
#define SCDC_ATTEMPT_H

#include "utils/elog.h"

/*
 * Calls a function in a subtransaction and returns NULL; or, if it raises an
 * error, rolls that back and returns the error, in the current memory context.
 * One that is not to be dealt with is the caller's to raise again, with
 * ReThrowError.
 */
extern ErrorData *scdc_attempt(void (*fn) (void *arg), void *arg);

#endif							/* SCDC_ATTEMPT_H */
