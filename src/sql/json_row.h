/*-------------------------------------------------------------------------
 *
 * json_row.h
 *	  A row out of the change log as jsonb.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_JSON_ROW_H
#define SCDC_JSON_ROW_H

#include "sql/resolve.h"
#include "sql/row.h"

typedef struct ScdcJsonRows ScdcJsonRows;

/* Lives in the current context, as do the plans made for each schema. */
extern ScdcJsonRows *scdc_json_rows_create(const ScdcTarget *target);

/*
 * The row as jsonb, with the names and types of its time; allocated in the
 * current context.  The settings that shape output must have been pinned.
 */
extern Datum scdc_json_row(ScdcJsonRows *json, ScdcRowView *view);

/* Name of the column that an error under way belongs to, of a row that is too large the largest; NULL if none. */
extern const char *scdc_json_rows_column(const ScdcJsonRows *json);

/*
 * Sets the settings that shape output to fixed values until AtEOXact_GUC is
 * called with the result.
 */
extern int	scdc_pin_output_settings(void);

/*
 * All of them but search_path, for reading: rows are compared in between, by operators that may be the user's own and
 * look names up in the caller's path.
 */
extern int	scdc_pin_reading_settings(void);

/* The same for settings of the caller's choice, and lc_monetary. */
struct ScdcSetting
{
	const char *name;
	const char *value;
};
extern int	scdc_pin_settings(const struct ScdcSetting *settings, int n);

#endif							/* SCDC_JSON_ROW_H */
