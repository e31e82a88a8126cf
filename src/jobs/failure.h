/*-------------------------------------------------------------------------
 *
 * failure.h
 *	  Errors of a job: those that trying again may cure, and those that it
 *	  cannot.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_FAILURE_H
#define SCDC_FAILURE_H

/*
 * Raises an error that ends the query at once instead of having it tried
 * again.  detail and hint may be NULL.
 */
extern void scdc_stop(int sqlerrcode, const char *message, const char *detail, const char *hint) pg_attribute_noreturn();

/* The error that is raised next, or again, is of that kind. */
extern void scdc_stop_is_next(void);

/* Raises an error that ends the worker, and says nothing about the query: it is not this worker's any more. */
extern void scdc_leave(const char *message) pg_attribute_noreturn();

/* An error as psql shows it: message, detail and hint, a line each; detail and hint may be NULL or empty. */
extern char *scdc_error_text(const char *message, const char *detail, const char *hint);

/* Was the error that is being handled raised by scdc_leave?  Asks once. */
extern bool scdc_was_leave(void);

/* Was the error that is being handled raised by scdc_stop?  Asks once. */
extern bool scdc_was_stop(void);

#endif							/* SCDC_FAILURE_H */
