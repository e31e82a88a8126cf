/*-------------------------------------------------------------------------
 *
 * collapse.h
 *	  From a change log to change rows: netting inside a commit, carry-over
 *	  removal, update detection and net changes (cdc-semantics sections 6 to 8).
 *
 * One library for both kinds of source.  A tracked table feeds events
 * (scdc_collapse_event), which are netted inside their commit first; a
 * change log that comes from elsewhere feeds rows that are labelled already
 * (scdc_collapse_row).  Either way:
 *
 *		ScdcCollapse *c = scdc_collapse_create(&ops, &options);
 *
 *		for each commit, in order of version
 *		{
 *			scdc_collapse_event(c, ...) or scdc_collapse_row(c, ...), in log order;
 *			scdc_collapse_end_commit(c);	-- without net changes, this emits the commit
 *		}
 *		scdc_collapse_finish(c);			-- with net changes, this emits the range
 *
 * Pure: a row is a piece of bytes that belongs to the caller, compared by the
 * caller's functions; nothing here knows catalogs, types or storage, so that
 * batch reads and streaming jobs run the same code, and a unit test drives it
 * directly.  The library copies the rows it keeps, and may write them to a
 * file and read them back somewhere else: so a row must not point into
 * itself, and need not live longer than the call that hands it over.  Rows
 * that the library hands to a callback are MAXALIGNed.
 *
 * Memory: everything is allocated by palloc in the context that is current at
 * scdc_collapse_create, and freed by scdc_collapse_finish.  Beyond
 * options.memory_limit rows go to files of the caller's.  The limit does not
 * count the buffers of those files (64 of them while a commit or range is
 * split; 64 more for each time that a part of it has to be split again), the
 * largest row, nor the rows that share one identity inside one commit of
 * events at one moment (one, unless a deferred constraint lets them).  Which
 * result or error comes out never depends on it.
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
	SCDC_CHANGE_UPDATE_POSTIMAGE = 3,
	SCDC_CHANGE_OTHER = 4		/* labelled rows only: any other label, NULL included; the row itself tells which */
} ScdcChangeType;

typedef enum ScdcDeduplication
{
	SCDC_DEDUP_NONE,
	SCDC_DEDUP_DROP_CARRYOVERS,
	SCDC_DEDUP_NET_CHANGES
} ScdcDeduplication;

/* ---------------------------------------------------------------------
 * What runs when (section 6)
 * ---------------------------------------------------------------------
 */

/* What a source declares; a tracked table declares all three. */
typedef struct ScdcSourceFlags
{
	bool		carryovers;		/* C: containsCarryoverRows */
	bool		intermediate;	/* I: containsIntermediateChanges */
	bool		split_updates;	/* U: representsUpdateAsDeleteAndInsert */
} ScdcSourceFlags;

/* The passes that a read of it runs.  None of them: rows pass through as they are, unchecked. */
typedef struct ScdcPasses
{
	bool		drop_carryovers;
	bool		detect_updates;
	bool		net_changes;
} ScdcPasses;

extern ScdcPasses scdc_passes(ScdcSourceFlags flags, ScdcDeduplication mode, bool compute_updates);

/*
 * Must the options be refused, with
 * INVALID_CDC_OPTION.UPDATE_DETECTION_REQUIRES_CARRY_OVER_REMOVAL?
 */
extern bool scdc_passes_conflict(ScdcSourceFlags flags, ScdcDeduplication mode, bool compute_updates);

/* ---------------------------------------------------------------------
 * The decisions one by one, for those who keep the state elsewhere
 * ---------------------------------------------------------------------
 */

/* Is the label delete or update_preimage?  The others that are known are insert-like. */
static inline bool
scdc_change_is_delete_like(ScdcChangeType type)
{
	return type == SCDC_CHANGE_DELETE || type == SCDC_CHANGE_UPDATE_PREIMAGE;
}

/* A group of section 7.1: the rows of one identity in one commit. */
typedef struct ScdcGroup
{
	int64		ndeletes;		/* nd: labelled exactly delete */
	int64		ninserts;		/* ni: labelled exactly insert */
	int64		nversions;		/* nv: rows with a row version */
	bool		one_version;	/* vmin = vmax; of no interest unless nv = 2 */
} ScdcGroup;

typedef enum ScdcGroupFate
{
	SCDC_GROUP_KEEP,			/* as it is */
	SCDC_GROUP_DROP,			/* a carry-over */
	SCDC_GROUP_UPDATE,			/* relabel by scdc_update_label */
	SCDC_GROUP_ERROR			/* SCDC_ERROR_MULTIPLE_CHANGES */
} ScdcGroupFate;

/* Sections 7.2 and 7.3, in this order; looks at drop_carryovers and detect_updates. */
extern ScdcGroupFate scdc_group_fate(const ScdcGroup *group, ScdcPasses passes);

/* Label of a row of a group that is an update. */
extern ScdcChangeType scdc_update_label(ScdcChangeType type);

/*
 * Section 8, step 3: what the first and the last event of an identity come
 * to, sorted by version, then delete-like before insert-like.  Neither may be
 * SCDC_CHANGE_OTHER.
 */
typedef struct ScdcNetResult
{
	bool		before;			/* show the first event ... */
	ScdcChangeType before_type; /* ... labelled so */
	bool		after;			/* show the last event ... */
	ScdcChangeType after_type;	/* ... labelled so */
} ScdcNetResult;

extern ScdcNetResult scdc_net_result(ScdcChangeType first, ScdcChangeType last, bool compute_updates);

/* ---------------------------------------------------------------------
 * The machine
 * ---------------------------------------------------------------------
 */

/* Run-time contract errors; the names are Spark's, below CHANGELOG_CONTRACT_VIOLATION. */
typedef enum ScdcCollapseError
{
	SCDC_ERROR_MULTIPLE_CHANGES,	/* UNEXPECTED_MULTIPLE_CHANGES_PER_ROW_VERSION */
	SCDC_ERROR_CHANGE_TYPE		/* UNEXPECTED_CHANGE_TYPE, net changes only */
} ScdcCollapseError;

/* One row of the result. */
typedef struct ScdcChangeRow
{
	ScdcChangeType type;		/* label to show; SCDC_CHANGE_OTHER: the row's own */
	int64		version;		/* of its own event, as are the following */
	int64		timestamp;
	int64		seq;			/* place inside the version, as it was fed; see scdc_collapse_event */
	const void *row;			/* good during the call of emit */
} ScdcChangeRow;

typedef struct ScdcCollapseOps
{
	/* bytes of a row */
	uint32		(*size) (const void *row, void *arg);

	/*
	 * Identity of a row (all of its columns; NULL equals NULL); the hash may
	 * be a weak one.  Both NULL if the source has none: then no pass may run
	 * but, for events, the removal of those whose two images are equal.
	 */
	uint32		(*hash) (const void *row, void *arg);
	bool		(*same_identity) (const void *a, const void *b, void *arg);

	/* events only: are the two rows, of one identity if there is one, equal byte for byte? */
	bool		(*same_image) (const void *a, const void *b, void *arg);

	/*
	 * Events only: may the two, of one identity, be the same row at two
	 * moments between which nothing but the table's definition changed?  May
	 * be NULL: then only if same_image says so.
	 */
	bool		(*same_row) (const void *a, const void *b, void *arg);

	/*
	 * Labelled rows only, and only if carry-overs are dropped: is the row
	 * version not NULL; are two that are not NULL equal?  Both may be NULL
	 * otherwise.
	 */
	bool		(*has_row_version) (const void *row, void *arg);
	bool		(*same_row_version) (const void *a, const void *b, void *arg);

	/* receives the result, ordered by version, then seq, pre-image before post-image */
	void		(*emit) (const ScdcChangeRow *row, void *arg);

	/*
	 * A contract error, found at the end of a commit; must not return.  For
	 * MULTIPLE_CHANGES the row is one of the group, and only its version and
	 * row are of use; for CHANGE_TYPE it is the one with the label.
	 */
	void		(*error) (ScdcCollapseError error, const ScdcChangeRow *row, void *arg);

	/*
	 * Temporary files, written from the beginning to the end, then read so,
	 * once or more often.  They raise their own errors, and see to it that
	 * files are gone if the collapse is not carried to its end.  They may all
	 * be NULL, if memory_limit is 0.
	 */
	void	   *(*file_create) (void *arg);
	void		(*file_write) (void *file, const void *data, Size size, void *arg);
	void		(*file_rewind) (void *file, void *arg); /* before each time of reading */
	void		(*file_read) (void *file, void *data, Size size, void *arg); /* all of size */
	void		(*file_close) (void *file, void *arg);

	/* called now and then while rows are read and written without a call of emit; may be NULL, may raise an error */
	void		(*check_interrupts) (void *arg);

	void	   *arg;			/* handed to all of these */
} ScdcCollapseOps;

typedef struct ScdcCollapseOptions
{
	ScdcPasses	passes;			/* from scdc_passes, which see for scdc_passes_conflict */
	bool		compute_updates;	/* as asked for: net changes of a row that persists are an update */
	Size		memory_limit;	/* bytes; 0: none */
} ScdcCollapseOptions;

typedef struct ScdcCollapse ScdcCollapse;

extern ScdcCollapse *scdc_collapse_create(const ScdcCollapseOps *ops, const ScdcCollapseOptions *options);

/*
 * Feed one row of a change log that comes from elsewhere.  Versions must not
 * fall, and all rows of a version are fed between two calls of
 * scdc_collapse_end_commit.  (Of versions that are no numbers, feed the
 * position in their order.)  seq rises inside the version.
 *
 * With no pass at all, the row is emitted at once.
 */
extern void scdc_collapse_row(ScdcCollapse *c, ScdcChangeType type, int64 version, int64 timestamp, int64 seq,
							  const void *row);

/*
 * Feed one event of a tracked table, in log order.  old_row is NULL for an
 * insert, new_row for a delete.  seq counts events inside the commit.
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
 *
 * What is left is a delete, an insert, or both, of an identity; it goes
 * through the passes like labelled rows, with the image in the place of the
 * row version.
 */
extern void scdc_collapse_event(ScdcCollapse *c, int64 version, int64 timestamp, int64 seq,
								const void *old_row, const void *new_row);

/*
 * The same, for an event whose identities no other event of its commit
 * touches, as the caller knows: it is spared the netting, and emitted at once
 * unless net changes are asked for.
 */
extern void scdc_collapse_lone_event(ScdcCollapse *c, int64 version, int64 timestamp, int64 seq,
									 const void *old_row, const void *new_row);

/* End of the commit; emits it unless net changes are asked for. */
extern void scdc_collapse_end_commit(ScdcCollapse *c);

/* End of the range, and of the last commit if that was not said; emits net changes and frees the collapse. */
extern void scdc_collapse_finish(ScdcCollapse *c);

/*
 * The same for a caller that takes the rows one by one, instead of being
 * called back: after each scdc_collapse_close_commit, and after
 * scdc_collapse_close_range, it calls scdc_collapse_next until that returns
 * NULL, and nothing else meanwhile.  A row is good until the next call.  ops.emit
 * may be NULL then, unless something is fed that is emitted at once.
 */
extern void scdc_collapse_close_commit(ScdcCollapse *c);
extern void scdc_collapse_close_range(ScdcCollapse *c);
extern const ScdcChangeRow *scdc_collapse_next(ScdcCollapse *c);
extern void scdc_collapse_end(ScdcCollapse *c); /* frees it, at any time */

#endif							/* SCDC_COLLAPSE_H */
