/*-------------------------------------------------------------------------
 *
 * collect.h
 *	  What the capture worker knows of its streams, and the changes it has
 *	  decoded but not yet written: changes in, blocks out.
 *
 * The decoding callbacks feed it (begin, event, commit); capture.c empties it
 * into the change log.  Finished blocks beyond the memory allowed are spooled
 * to a temporary file, so a transaction of any size passes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_COLLECT_H
#define SCDC_COLLECT_H

#include "access/attmap.h"
#include "access/htup.h"
#include "access/transam.h"
#include "access/xlogdefs.h"
#include "datatype/timestamp.h"
#include "log/changelog.h"
#include "log/catalog.h"
#include "log/schema.h"
#include "utils/relcache.h"

/* A snapshot as a set of transactions: the baseline's, see baseline.h. */
typedef struct ScdcVisibility
{
	uint64		xmin;			/* all before are visible */
	uint64		xmax;			/* none from here on is */
	int			nxip;
	uint64		xip[FLEXIBLE_ARRAY_MEMBER]; /* sorted; in between, these are not */
} ScdcVisibility;

extern ScdcVisibility *scdc_visibility_parse(const char *text);
extern bool scdc_visibility_includes(const ScdcVisibility *v, uint64 xid);

/* One stream that is being captured.  Lives as long as the worker. */
typedef struct ScdcTracked
{
	int64		stream_id;
	Oid			relid;			/* the tracked table; its rows may be in partitions */
	int			nidentity;		/* columns that identify a row */
	AttrNumber	identity[INDEX_MAX_KEYS];
	bool		dead;			/* untracked or given up: its changes are thrown away */
	char	   *stalled;		/* why a change of it could not be stored, or else why it ends */
	char		ended_state;	/* once a GAP event says that it ends: SCDC_STATE_STALLED or SCDC_STATE_GAP */
	XLogRecPtr	dropped_by;		/* its table was dropped before this position; 0: not known to be */
	int64		last_version;
	int64		reach;			/* as scdc_definition_reach said: versions below it need no look */
	TimestampTz last_timestamp;
	int32		last_schema;	/* number of the newest schema */
	ScdcSchema *schema;			/* in force; NULL until the first change is seen */
	bool		schema_valid;	/* nothing of the table, or of its partitions, was invalidated since */
	ScdcSchema *previous_schema;	/* the one before it, or before a rewrite; or NULL */
	uint64		types_altered;	/* state of the types its columns have; 0: of no interest */
	ScdcVisibility *baseline;	/* transactions that the baseline already contains; NULL: none taken */

	/* the transaction being decoded */
	uint64		txn_number;		/* last one that touched this stream */
	bool		skip;			/* it is in the baseline */
	bool		gap_seen;		/* it has a gap, and that is told already */
	ScdcVersion version;

	/* the block being built */
	bool		open;
	ScdcBlockBuilder *builder;	/* while open */
	ScdcBlockInfo info;
	int64		split_version;	/* the version that the last finished block ended with ... */
	int32		next_chunk;		/* ... and the chunk number with which it goes on */
} ScdcTracked;

extern void scdc_collect_init(void);

/* Loads streams from our tables; normal transaction. */
extern void scdc_collect_load(ScdcStream *stream, Snapshot snapshot);
extern ScdcTracked *scdc_collect_find(int64 stream_id);

/* ---- from the decoding callbacks, under a historic snapshot ---- */

extern void scdc_collect_begin(uint64 xid, TimestampTz commit_time, XLogRecPtr end_lsn, uint32 origin);

/*
 * The stream of a relation at this point of history, the schema under which
 * its rows are stored, and for a partition what its columns are in that (see
 * scdc_image_make); NULL if it is not tracked.  The second is for the new heap
 * of a table that is being rewritten.
 */
extern ScdcTracked *scdc_collect_lookup(Relation rel, ScdcSchema **schema, const AttrMap **map);
extern ScdcTracked *scdc_collect_lookup_rewritten(Oid relid, ScdcSchema **schema);

/*
 * The stream that rows of a table in the inbox belong to; NULL if it is not
 * tracked (any more).
 */
extern ScdcTracked *scdc_collect_stream(int64 stream_id, Oid relid);

/*
 * A schema that the inbox brings along (scdc_schema_pack), with its number;
 * old: of the images before a rewrite, so that it is not the one in force
 * from here on.
 */
extern ScdcSchema *scdc_collect_adopt_schema(ScdcTracked *t, ScdcBytes packed, bool old);

/*
 * The transaction makes a version of this stream, once.  False: its changes
 * are not captured.  ends: the next event says that the table is UNLOGGED from
 * now on (scdc_event_ends_log), which counts also if the baseline has seen it.
 */
extern bool scdc_collect_begin_version(ScdcTracked *t, bool ends);

/* One event of that version. */
extern void scdc_collect_event(ScdcTracked *t, ScdcSchema *schema, const ScdcEvent *event);
extern void scdc_collect_commit(void);

/*
 * A change of this stream cannot be stored, and this is why: the stream is
 * given up with this version, for which the caller collects a GAP event with
 * SCDC_EVENT_ENDS and SCDC_EVENT_STALL next, if the transaction commits.
 */
extern void scdc_collect_stall(ScdcTracked *t, const char *reason);

/* Builders keep their memory, so those who build blocks take turns with them. */
extern ScdcBlockBuilder *scdc_builder_get(void);
extern void scdc_builder_put(ScdcBlockBuilder *builder);	/* empty */

/* ---- from capture.c, outside decoding ---- */

extern bool scdc_collect_is_empty(void);
extern Size scdc_collect_size(void);	/* bytes that wait to be written, in memory */
extern int64 scdc_collect_transactions(void);	/* decoded since the last call, of tracked tables or not */

/* A replication origin of what scdc_collect_write will write, and the end of its first transaction. */
typedef struct ScdcOriginSeen
{
	uint32		origin;
	XLogRecPtr	lsn;
} ScdcOriginSeen;

extern List *scdc_collect_origins(void);	/* the list is the caller's */

/* Streams to be given up with what scdc_collect_write will write; the list is the caller's. */
extern List *scdc_collect_stalled(void);

/*
 * Writes everything collected to the open blocks table and empties the
 * collector.  Calls written for each stream that got blocks, perhaps more than
 * once.
 */
extern void scdc_collect_write(Relation blocks, void (*written) (int64 stream_id));

#endif							/* SCDC_COLLECT_H */
