/*-------------------------------------------------------------------------
 *
 * ddl.h
 *	  Commands on tracked tables that change rows in ways that WAL does not
 *	  carry (see inbox.h): what hooks.c calls, and what the kinds of commands
 *	  have in common.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_DDL_H
#define SCDC_DDL_H

#include "log/catalog.h"
#include "nodes/parsenodes.h"

/* A tracked table that a command under way is about. */
typedef struct ScdcCommandTable
{
	Oid			relid;
	ScdcStream *stream;
	Oid			storage;		/* its relfilenode before the command */
	bool		touched;		/* a trigger or function has written it meanwhile */
	bool		touched_before; /* the same, while it still had that storage */
} ScdcCommandTable;

typedef struct ScdcCommand
{
	struct ScdcCommand *outer;	/* in the middle of which this one is */
	MemoryContext cxt;
	int			nestlevel;		/* of settings; 0: none was changed */
	List	   *tables;			/* of ScdcCommandTable, or what begins with one */
	void		(*done) (struct ScdcCommand *command);
} ScdcCommand;

/* ---- for hooks.c ---- */

extern void scdc_ddl_init(void);

/*
 * Before a command: takes the command's locks on tables, if it is about
 * tracked ones and the user may give it, and does what has to be done before
 * it.  NULL: it does not concern us.  Raises 55000 for TRUNCATE of a table
 * with on_truncate => 'forbid'.
 */
extern ScdcCommand *scdc_command_begin(Node *stmt);

/* After it, if it has succeeded; and at last, whether it has or not. */
extern void scdc_command_done(ScdcCommand *command);
extern void scdc_command_end(ScdcCommand *command);

/* A relation was created: perhaps the new heap of a table that a command rewrites. */
extern void scdc_command_new_relation(Oid relid);

/* ---- kinds of commands: NULL if there is nothing to do ---- */

extern ScdcCommand *scdc_truncate_begin(TruncateStmt *stmt);	/* truncate.c */
extern ScdcCommand *scdc_alter_begin(AlterTableStmt *stmt); /* rewrite.c */

/* ---- for them ---- */

/* Is anything tracked in this database?  False also if that cannot be found out, with a WARNING. */
extern bool scdc_command_is_of_interest(void);

/*
 * The command, with those of the tables (locked) that are tracked and have
 * rows of their own; NULL if none is.  table_size: of the structs to make of them.
 */
extern ScdcCommand *scdc_command_create(List *relids, Size table_size, void (*done) (ScdcCommand *command));

/* The innermost command under way that is about the table, and its entry there; NULL if none is. */
extern ScdcCommandTable *scdc_command_find(Oid relid, ScdcCommand **command);

#endif							/* SCDC_DDL_H */
