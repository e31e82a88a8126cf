/*-------------------------------------------------------------------------
 *
 * registered_log.h
 *	  Reading a range of a registered change log: from the relation's rows to
 *	  change rows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_REGISTERED_LOG_H
#define SCDC_REGISTERED_LOG_H

#include "sql/range.h"
#include "sql/registration.h"

/*
 * Receives a row of the result: the columns of stream_changes.  They are good
 * during the call only.
 */
typedef void (*ScdcPutColumns) (Datum *values, bool *isnull, void *arg);

/*
 * Puts out the change rows of a range with the caller's rights, in order of
 * version and then as the relation gives them.  The row is jsonb without the
 * metadata columns, or, with typed, a row of the relation, whose metadata
 * columns are those of the change.
 *
 * Sees what the statement sees.  Raises 42501 unless the caller may select all
 * columns; what scdc_registration_check raises, since the relation may have
 * been altered; 0A000 for versions of type text; 22023 for options that do not
 * go together; XX001 if the rows violate what was declared.
 */
extern void scdc_registered_read(const ScdcRegistration *registration, const ScdcReadOptions *options, bool typed,
								 ScdcPutColumns put, void *arg);

#endif							/* SCDC_REGISTERED_LOG_H */
