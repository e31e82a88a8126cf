/*-------------------------------------------------------------------------
 *
 * row_error.h
 *	  Which row and column an error in turning rows into results is about.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_ROW_ERROR_H
#define SCDC_ROW_ERROR_H

/*
 * For an error context callback, while a row is turned into jsonb or into the
 * row type: adds to DETAIL which version and column (NULL: not known) it is
 * about, and a hint at the form that may do better.
 */
extern void scdc_row_error(const char *column, int64 version, bool as_jsonb);

#endif							/* SCDC_ROW_ERROR_H */
