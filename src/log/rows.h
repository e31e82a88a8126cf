/*-------------------------------------------------------------------------
 *
 * rows.h
 *	  Writing the extension's own tables, at heap level.
 *
 * Rows are inserted without logical information and deleted by
 * simple heap deletes on tables with REPLICA IDENTITY NOTHING, so that
 * nothing of ours reaches another decoder's output, in particular not a
 * subscriber of a FOR ALL TABLES publication.  Rows are never updated in
 * place: an update is a delete and an insert.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_ROWS_H
#define SCDC_ROWS_H

#include "storage/lockdefs.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"
#include "access/htup.h"
#include "access/skey.h"

typedef enum ScdcTable
{
	SCDC_REGISTRY,
	SCDC_STREAMS,
	SCDC_DEFINITIONS,
	SCDC_MEMBERS,
	SCDC_BASELINES,
	SCDC_SCHEMAS,
	SCDC_MISSING_VALUES,
	SCDC_BLOCKS,
	SCDC_SLOTS,
	SCDC_POSITIONS,
	SCDC_INBOX,
	SCDC_CHANGELOGS,
	SCDC_QUERIES,
	SCDC_RUNS,
	SCDC_BATCHES,
	SCDC_PROGRESS,
	SCDC_ORIGINS
} ScdcTable;

/* Is the extension installed in this database? */
extern bool scdc_extension_exists(void);

/* OID of one of our tables or indexes, InvalidOid if it is not there. */
extern Oid	scdc_table_oid(ScdcTable t);
extern Oid	scdc_index_oid(const char *index_name);

/*
 * Opens one of our tables.  Raises 55000 if the extension is not (any more)
 * installed in this database.
 */
extern Relation scdc_table_open(ScdcTable t, LOCKMODE lockmode);

/* Inserts one row and its index entries (no logical information). */
extern void scdc_row_insert(Relation rel, Datum *values, bool *isnull);

/*
 * Deletes one row; waits for a concurrent transaction on it.  Raises 40001 if
 * that one deleted it first.
 */
extern void scdc_row_delete(Relation rel, ItemPointer tid);

/*
 * Calls fn for each row that matches, in index order (index_name NULL: heap
 * order).  fn returns false to stop.  snapshot: registered or active by the caller.
 */
typedef bool (*ScdcRowFn) (Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg);
extern void scdc_rows_scan(ScdcTable t, const char *index_name, int nkeys, ScanKey keys, bool backward,
						   Snapshot snapshot, ScdcRowFn fn, void *arg);

/* The same, deleting each; returns how many.  Under the scan's lock: who wants another one has taken it. */
extern int64 scdc_rows_delete(ScdcTable t, const char *index_name, int nkeys, ScanKey keys, Snapshot snapshot);

/* The same, for what make makes of each row, or of the first one (NULL: there is none), in the current context. */
typedef void *(*ScdcRowMake) (HeapTuple tuple, Datum *values, bool *isnull);
extern List *scdc_rows_list(ScdcTable t, const char *index_name, int nkeys, ScanKey keys, Snapshot snapshot, ScdcRowMake make);
extern void *scdc_rows_first(ScdcTable t, const char *index_name, int nkeys, ScanKey keys, bool backward,
							 Snapshot snapshot, ScdcRowMake make);

#endif							/* SCDC_ROWS_H */
