/*-------------------------------------------------------------------------
 *
 * label.h
 *	  The marks on a database that needs workers: shared security labels of our
 *	  own providers, which a launcher without a database can read.
 *
 * The label names system and database, so a copy of either is inert.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_LABEL_H
#define SCDC_LABEL_H

#include "nodes/pg_list.h"

typedef enum ScdcMark
{
	SCDC_MARK_CAPTURE,			/* needs a capture worker */
	SCDC_MARK_JOBS,				/* has queries that should run */
	SCDC_MARK_LOGS				/* has logs of dropped tables, though nothing may be captured any more */
} ScdcMark;

extern void scdc_label_init(void);	/* from _PG_init */

/*
 * Sets or removes a mark of this database, in the current transaction.  Two at
 * once would be an error of one of them; callers hold a lock of ours.
 */
extern void scdc_label_set(ScdcMark mark);
extern void scdc_label_remove(ScdcMark mark);
extern bool scdc_label_exists(ScdcMark mark);

/* What names this very database: a label that says something else came with a copy.  In the current context. */
extern char *scdc_label_here(void);

/* OIDs of the databases that are marked, in the current transaction; needs no database. */
extern List *scdc_label_databases(ScdcMark mark);

#endif							/* SCDC_LABEL_H */
