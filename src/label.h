/*-------------------------------------------------------------------------
 *
 * label.h
 *	  The mark on a database that needs a capture worker: a shared security
 *	  label of our own provider, which a launcher without a database can read.
 *
 * The label names system and database, so a copy of either is inert.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_LABEL_H
#define SCDC_LABEL_H

#include "nodes/pg_list.h"

extern void scdc_label_init(void);	/* from _PG_init */

/* Sets or removes the mark of this database, in the current transaction. */
extern void scdc_label_set(void);
extern void scdc_label_remove(void);
extern bool scdc_label_exists(void);

/* OIDs of the databases that are marked, in the current transaction; needs no database. */
extern List *scdc_label_databases(void);

#endif							/* SCDC_LABEL_H */
