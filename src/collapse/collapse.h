/*-------------------------------------------------------------------------
 *
 * collapse.h
 *	  From events to change rows: netting inside a commit, carry-over removal,
 *	  update detection and net changes (cdc-semantics sections 6 to 8).
 *
 * Pure: keys and rows are opaque handles of the caller, compared by the
 * caller's functions; nothing here knows catalogs, types or storage, so that
 * batch reads and streaming jobs run the same code, and a unit test drives it
 * directly.  Everything lives in the memory context that is current at
 * scdc_collapse_create; handles must stay valid until their row was emitted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_COLLAPSE_H
#define SCDC_COLLAPSE_H

typedef enum ScdcChangeType
{
	SCDC_CHANGE_DELETE = 0,
	SCDC_CHANGE_INSERT = 1,
	SCDC_CHANGE_UPDATE_PREIMAGE = 2,
	SCDC_CHANGE_UPDATE_POSTIMAGE = 3
} ScdcChangeType;

typedef enum ScdcDeduplication
{
	SCDC_DEDUP_NONE,
	SCDC_DEDUP_DROP_CARRYOVERS,
	SCDC_DEDUP_NET_CHANGES
} ScdcDeduplication;

/* One row of the result. */
typedef struct ScdcChangeRow
{
	ScdcChangeType type;
	int64		version;
	int64		timestamp;
	int64		seq;			/* place inside the version: the number of the event it comes from, see below */
	const void *row;			/* the caller's handle */
} ScdcChangeRow;

typedef struct ScdcCollapseOps
{
	/* identity of a row; both NULL when the table has none: then nothing is netted */
	uint32		(*hash) (const void *row, void *arg);
	bool		(*same_identity) (const void *a, const void *b, void *arg);
	/* are the two row images equal byte for byte? */
	bool		(*same_image) (const void *a, const void *b, void *arg);
	/* receives the result, ordered by version, then seq, pre-image before post-image */
	void		(*emit) (const ScdcChangeRow *row, void *arg);
	/* a row handle is no longer needed (may be NULL) */
	void		(*release) (const void *row, void *arg);
	void	   *arg;
} ScdcCollapseOps;

typedef struct ScdcCollapse ScdcCollapse;

/*
 * A collapse for a tracked table, whose capture declares all three flags
 * (carry-overs, intermediate changes, update as delete and insert).
 *
 * Refused by the caller beforehand: compute_updates with SCDC_DEDUP_NONE, and
 * compute_updates or SCDC_DEDUP_NET_CHANGES without identity.
 */
extern ScdcCollapse *scdc_collapse_create(const ScdcCollapseOps *ops, ScdcDeduplication mode, bool compute_updates);

/*
 * Feed one event, in log order.  old_row is NULL for an insert, new_row for a
 * delete.  seq counts events inside the commit.
 *
 * Events of one commit are netted by identity: an update that changes the
 * identity takes the row away from the old one and brings it to the new one;
 * a delete of a row that this commit itself brought (equal image) undoes
 * that, any other delete takes away what was there before the commit.  So
 * insert..delete is nothing, insert..update an insert of the last image,
 * delete..insert an update, A->B->A a carry-over, and a swap of two keys two
 * updates, also under a deferred unique constraint, where the new row of an
 * identity arrives before the old one left.  A netted change stands at the
 * place of its last event.
 */
extern void scdc_collapse_event(ScdcCollapse *c, int64 version, int64 timestamp, int64 seq,
								const void *old_row, const void *new_row);

/* End of the commit; emits it unless net changes are asked for. */
extern void scdc_collapse_end_commit(ScdcCollapse *c);

/* End of the range; emits net changes. */
extern void scdc_collapse_finish(ScdcCollapse *c);

#endif							/* SCDC_COLLAPSE_H */
