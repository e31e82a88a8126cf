/*-------------------------------------------------------------------------
 *
 * catalog.h
 *	  Streams, baselines, slot and positions as rows of our tables.
 *
 * Each function takes the snapshot to read under and returns structs in the
 * current memory context.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_CATALOG_H
#define SCDC_CATALOG_H

#include "access/xlogdefs.h"
#include "access/attnum.h"
#include "access/transam.h"
#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "storage/itemptr.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* states of a stream; on disk */
#define SCDC_STATE_LIVE			'l' /* being captured */
#define SCDC_STATE_GAP			'g' /* given up: continuity was lost; -> u */
#define SCDC_STATE_STALLED		's' /* given up: a change could not be stored; -> u */
#define SCDC_STATE_DROPPED		'd' /* table dropped, log kept */
#define SCDC_STATE_UNTRACKED	'u' /* log deleted; the row keeps the last version */

/* And one that is not on disk: l, g or s of another home than ours (log/definition.h). */
#define SCDC_STATE_INERT		'i'

typedef struct ScdcStream
{
	int64		stream_id;
	Oid			relid;
	char	   *schema_name;	/* as of the last time we looked: tracking, drop */
	char	   *table_name;
	Oid			owner;
	char		state;			/* SCDC_STATE_* */
	int64		base_version;	/* version of the baseline; without one, the first commit is base_version + 1 */
	bool		baseline;
	int			nidentity;		/* 0: no identity */
	AttrNumber	identity[INDEX_MAX_KEYS];	/* attnums, in index order */
	Oid			identity_index;
	Interval   *retention;	/* NULL: the setting */
	char	   *on_truncate;
	FullTransactionId tracked_xid;
	TimestampTz tracked_at;
	int64		last_version;	/* of a stream that ended (g, s, u; d once capture has passed the drop); -1 when NULL */
	char	   *reason;			/* why it ended, or NULL */
	char	   *home;			/* the installation that it belongs to, see log/definition.h */
	bool		is_definition;	/* inert, and there is nothing but its definition: no row here, no log */
	char		old_replica_identity;	/* if so: what a table that is not partitioned had; otherwise see ScdcMember */
	Oid			old_replica_index;
	ItemPointerData tid;		/* where the row is */
} ScdcStream;

/* Is the table still there, but captured no more?  The log ends with last_version, and a gap. */
static inline bool
scdc_stream_given_up(const ScdcStream *stream)
{
	return stream->state == SCDC_STATE_GAP || stream->state == SCDC_STATE_STALLED;
}

extern ScdcStream *scdc_stream_by_id(int64 stream_id, Snapshot snapshot);

/* Owner of a stream's table; the last one if it was dropped. */
extern Oid	scdc_stream_table_owner(const ScdcStream *stream);

/* Newest of that table, any state; one that there is only a definition of if there is none that lives. */
extern ScdcStream *scdc_stream_by_relid(Oid relid, Snapshot snapshot);
extern List *scdc_stream_list(Snapshot snapshot);	/* all, in order of stream_id */
extern bool scdc_stream_any_dropped(Snapshot snapshot); /* is there a log of a dropped table? */
extern void scdc_stream_insert(const ScdcStream *stream);
extern void scdc_stream_replace(const ScdcStream *stream);	/* the row at stream->tid */

typedef struct ScdcBaseline
{
	int64		stream_id;
	int64		attempt;
	char	   *snapshot;		/* pg_snapshot's text form: xmin:xmax:xip,... */
	TimestampTz snapshot_time;
	bool		complete;
	int64		row_count;
	ItemPointerData tid;
} ScdcBaseline;

extern ScdcBaseline *scdc_baseline_read(int64 stream_id, Snapshot snapshot);	/* NULL if none */

/* Does the stream have its baseline, or need none? */
extern bool scdc_baseline_is_complete(const ScdcStream *stream, Snapshot snapshot);

/* The baselines of one attempt, in order of stream_id. */
extern List *scdc_baseline_list(int64 attempt, Snapshot snapshot);
extern void scdc_baseline_insert(const ScdcBaseline *baseline);
extern void scdc_baseline_delete(const ScdcBaseline *baseline);

/*
 * The value, as text, of a column that was added after rows of the stream were
 * written, in those rows; NULL if nothing is known, or it is NULL.
 */
extern char *scdc_missing_read(int64 stream_id, AttrNumber attnum, Snapshot snapshot);
extern void scdc_missing_insert(int64 stream_id, AttrNumber attnum, const char *value);

/* Deletes what there is of an ended stream but its row: blocks, schemas, missing values, baseline. */
extern void scdc_stream_delete_log(int64 stream_id, Snapshot snapshot);

/*
 * The registry: what is captured.  Of a tracked partitioned table there is a
 * row for itself, for each partition at any level, and for the partitioned
 * ones in between; root is then the tracked table, elsewhere the table itself.
 * It says what decoding has to know of the stream.
 */
typedef struct ScdcRegistered
{
	Oid			relid;
	Oid			root;
	int64		stream_id;
	int64		base_version;
	int			nidentity;
	AttrNumber	identity[INDEX_MAX_KEYS];	/* of the root */
} ScdcRegistered;

/* These call CacheInvalidateRelcacheByRelid, without which decoding would not notice. */
extern void scdc_registry_insert(const ScdcRegistered *registered);
extern bool scdc_registry_delete(Oid relid);	/* false if there was nothing */
extern void scdc_registry_delete_stream(int64 stream_id);

/* What is registered for a table; false if nothing.  snapshot NULL: the catalog snapshot, historic while decoding. */
extern bool scdc_registry_lookup(Oid relid, Snapshot snapshot, ScdcRegistered *registered);

/* The OIDs of all that is registered for a stream, in their order. */
extern List *scdc_registry_members(int64 stream_id, Snapshot snapshot);
extern bool scdc_registry_is_empty(Snapshot snapshot);

/*
 * A table whose rows are in a stream: the tracked table or, if that is
 * partitioned, a partition.  Stays when the stream is given up, for as long as
 * the table may get its REPLICA IDENTITY back.
 */
typedef struct ScdcMember
{
	int64		stream_id;
	Oid			relid;
	char		old_replica_identity;
	Oid			old_replica_index;
	ItemPointerData tid;
} ScdcMember;

extern void scdc_member_insert(const ScdcMember *member);
extern void scdc_member_delete(const ScdcMember *member);

/* Those of a stream, in order of their OIDs; or the one, NULL if it is none. */
extern List *scdc_member_list(int64 stream_id, Snapshot snapshot);
extern ScdcMember *scdc_member_read(int64 stream_id, Oid relid, Snapshot snapshot);

/* The slot that capture relies on. */
typedef struct ScdcSlot
{
	char	   *slot_name;
	char	   *system_identifier;
	Oid			database_oid;
	XLogRecPtr	consistent_lsn;
	TimestampTz created_at;
} ScdcSlot;

extern ScdcSlot *scdc_slot_read(Snapshot snapshot); /* NULL if none */
extern void scdc_slot_insert(const ScdcSlot *slot);

/* Is the slot of another cluster or database: is this database a copy? */
extern bool scdc_slot_is_foreign(const ScdcSlot *slot);
extern char *scdc_system_identifier(void);	/* palloc'd */

/*
 * What the replication origin with this number was called when a transaction
 * that ended at lsn was captured; NULL if it was gone by then.
 */
extern char *scdc_origin_name(uint32 origin, XLogRecPtr lsn, Snapshot snapshot);

/* This is its name for transactions from lsn on, unless that is known. */
extern void scdc_origin_note(uint32 origin, XLogRecPtr lsn, const char *name, Snapshot snapshot);

/* Positions: the greatest counts. */
extern XLogRecPtr scdc_position_read(Snapshot snapshot);	/* InvalidXLogRecPtr if none */
extern void scdc_position_insert(Relation positions, XLogRecPtr lsn);

/* Deletes position rows before lsn; slot row and all positions. */
extern void scdc_position_trim(XLogRecPtr lsn);
extern void scdc_slot_forget(void);

#endif							/* SCDC_CATALOG_H */
