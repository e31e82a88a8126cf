/*-------------------------------------------------------------------------
 *
 * ddl.h
 *	  What hooks.c calls for commands on tables, to record what WAL does not
 *	  carry (see inbox.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_DDL_H
#define SCDC_DDL_H

#include "nodes/parsenodes.h"

/*
 * Before a TRUNCATE: takes its locks, if something in it is tracked and the
 * user may truncate, and records the rows.  Raises 55000 for a table with
 * on_truncate => 'forbid'.
 */
extern void scdc_before_truncate(TruncateStmt *stmt);

/*
 * An ALTER TABLE: what it may rewrite is noted before it, its lock taken
 * (NULL: there is nothing to do); old rows are set aside when a new heap is made for them; what they have become is
 * recorded after it.  end is to be called also when the command has failed.
 */
typedef struct ScdcAlter ScdcAlter;

extern ScdcAlter *scdc_before_alter(AlterTableStmt *stmt);
extern void scdc_alter_new_relation(Oid relid);
extern void scdc_after_alter(ScdcAlter *alter);
extern void scdc_alter_end(ScdcAlter *alter);

#endif							/* SCDC_DDL_H */
