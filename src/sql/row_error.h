/*-------------------------------------------------------------------------
 *
 * row_error.h
 *	  Errors about rows: which row and column one is about that comes up while
 *	  rows are turned into results; a change log that breaks its contract.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_ROW_ERROR_H
#define SCDC_ROW_ERROR_H

#include "collapse/collapse.h"

/*
 * For an error context callback, while a row is turned into jsonb or into the
 * row type: adds to DETAIL which version and column (NULL: not known) it is
 * about, and a hint at the form that may do better.
 */
extern void scdc_row_error(const char *column, int64 version, bool as_jsonb);

/*
 * Raises XX001 for what the collapse has found wrong in a version of a change
 * log.  change_type: that of the row; NULL: it has none.
 */
extern void scdc_contract_error(ScdcCollapseError error, const char *log, const char *version,
								const char *change_type) pg_attribute_noreturn();

#endif							/* SCDC_ROW_ERROR_H */
