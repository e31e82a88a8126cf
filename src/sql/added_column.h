/*-------------------------------------------------------------------------
 *
 * added_column.h
 *	  The value that rows have in a column which was added after they were
 *	  written.
 *
 * ALTER TABLE ... ADD COLUMN ... DEFAULT leaves the rows alone and notes the
 * default beside the column.  The server forgets it when the table is
 * rewritten next, by VACUUM FULL for example; the log still has the old rows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_ADDED_COLUMN_H
#define SCDC_ADDED_COLUMN_H

#include "nodes/parsenodes.h"

/*
 * After columns were added by the command, in its transaction: keeps what the
 * server has noted, for each tracked table that has something new of the kind.
 */
extern void scdc_added_columns_note(const AlterTableStmt *command);

#endif							/* SCDC_ADDED_COLUMN_H */
