/*-------------------------------------------------------------------------
 *
 * typed_row.h
 *	  A row out of the change log as a value of the table's row type of today.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_TYPED_ROW_H
#define SCDC_TYPED_ROW_H

#include "sql/row.h"

typedef struct ScdcTypedRows ScdcTypedRows;

/* Lives in the current context, as do the plans made for each of the schemas. */
extern ScdcTypedRows *scdc_typed_rows_create(Oid row_type, ScdcRowSchemas *schemas);

/*
 * The same for chosen columns: attribute i of desc is the table's column
 * source[i].  table is the table's own descriptor, for the defaults of
 * columns that older rows lack; NULL if it is gone.
 */
extern ScdcTypedRows *scdc_typed_rows_create_columns(TupleDesc desc, const AttrNumber *source, TupleDesc table,
													 ScdcRowSchemas *schemas);
extern void scdc_typed_rows_end(ScdcTypedRows *typed);

/* Like scdc_pin_output_settings, for values that were stored as text. */
extern int	scdc_pin_input_settings(void);

/*
 * The row, of a schema that was prepared, as a composite datum in the current
 * context.
 */
extern Datum scdc_typed_row(ScdcTypedRows *typed, ScdcRowView *view);

/*
 * Sees to it that rows of a schema can be converted, before the first of them
 * is; version is where that is from.  Raises 42846 if a column cannot be cast.
 */
extern void scdc_typed_rows_prepare(ScdcTypedRows *typed, ScdcRowSchema *schema, int64 version);

/* Do rows of a schema that was prepared go through input functions or casts, which want scdc_pin_input_settings? */
extern bool scdc_typed_rows_need_settings(const ScdcRowSchema *schema);

/* Is the image of a row of a schema that was prepared laid out as what is wanted? */
extern bool scdc_typed_rows_as_is(const ScdcRowSchema *schema);

/* The same as values, good until the next call. */
extern void scdc_typed_values(ScdcTypedRows *typed, ScdcRowView *view, Datum **values, bool **isnull);

/* Name of the column that an error under way belongs to; NULL if none. */
extern const char *scdc_typed_rows_column(const ScdcTypedRows *typed);

#endif							/* SCDC_TYPED_ROW_H */
