/*-------------------------------------------------------------------------
 *
 * block.h
 *	  The packed, compressed form of many changes of one stream.
 *
 * A block holds consecutive events of one stream, all written under one
 * schema number (but for the old image of an update that a rewrite of the
 * table made), and the directory of the versions they belong to.  The two
 * parts are compressed apart, so that a list of versions can be had without
 * touching the changes.  This module is pure: bytes in, bytes out, no
 * catalog, no server state; it is built with the server and, as frontend
 * code, into its own unit tests.  The bytes are described in src/README.md
 * and begin with a format version.
 *
 * Damaged input never crashes and never reads out of bounds: the reader
 * reports it by returning false with a message.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_BLOCK_H
#define SCDC_BLOCK_H

#define SCDC_BLOCK_FORMAT_VERSION	2

/* A block is closed before its raw size would pass this (one larger change alone may). */
#define SCDC_BLOCK_RAW_MAX			(1024 * 1024)

typedef enum ScdcCompression
{
	SCDC_COMPRESS_NONE = 0,
	SCDC_COMPRESS_LZ4 = 1,
	SCDC_COMPRESS_ZSTD = 2
} ScdcCompression;

/* What PostgreSQL did; the numbers are on disk. */
typedef enum ScdcEventKind
{
	SCDC_EVENT_INSERT = 1,
	SCDC_EVENT_UPDATE = 2,
	SCDC_EVENT_DELETE = 3,
	SCDC_EVENT_TRUNCATE = 4,	/* marker, no images */
	SCDC_EVENT_GAP = 5			/* marker, no images */
} ScdcEventKind;

/*
 * Per-event flag: the old image was not (fully) in WAL because somebody took
 * REPLICA IDENTITY FULL away.  Readers must refuse the version.
 */
#define SCDC_EVENT_INCOMPLETE	0x01

/* Of a GAP: the stream ends here, no later change of the table can be captured ... */
#define SCDC_EVENT_ENDS			0x04

/* ... because this was a change that cannot be stored. */
#define SCDC_EVENT_STALL		0x08

/*
 * One version in a block's directory.  A version that spans several blocks
 * has an entry in each, with the same commit data and that block's counts.
 */
typedef struct ScdcVersion
{
	int64		version;
	int64		timestamp;		/* _commit_timestamp, microseconds, PostgreSQL epoch */
	int64		commit_time;	/* as in the commit record, same unit */
	uint64		commit_lsn;		/* end of the commit record; 0 for a baseline or gap */
	uint64		xid;			/* 64-bit top-level xid; 0 for a baseline or gap */
	uint32		origin;			/* replication origin id, 0 if local */
	uint32		inserts;
	uint32		updates;
	uint32		deletes;
	uint32		markers;		/* TRUNCATE and GAP events */
} ScdcVersion;

/* A row image: opaque bytes (see image.h).  data is NULL when absent. */
typedef struct ScdcBytes
{
	const char *data;
	uint32		len;
} ScdcBytes;

typedef struct ScdcEvent
{
	ScdcEventKind kind;
	uint8		flags;			/* SCDC_EVENT_* */
	ScdcBytes	old_image;		/* UPDATE, DELETE */
	ScdcBytes	new_image;		/* INSERT, UPDATE */
	int32		old_schema;		/* schema of an UPDATE's old image, where it is not the block's; else 0 */
} ScdcEvent;

/* Is it the marker that says that the table is UNLOGGED from now on? */
static inline bool
scdc_event_ends_log(const ScdcEvent *e)
{
	return e->kind == SCDC_EVENT_GAP && (e->flags & SCDC_EVENT_ENDS) != 0 && (e->flags & SCDC_EVENT_STALL) == 0;
}

/* ---- building ---- */

typedef struct ScdcBlockBuilder ScdcBlockBuilder;

/* The finished block: two byte strings, palloc'd in the caller's context. */
typedef struct ScdcBlock
{
	char	   *versions;
	uint32		versions_len;
	char	   *changes;
	uint32		changes_len;
	uint32		raw_size;		/* size of both parts before compression */
} ScdcBlock;

/* Allocates in the current context; the builder keeps growing there. */
extern ScdcBlockBuilder *scdc_block_builder_create(ScdcCompression method);

/*
 * All following events belong to v->version (counts in *v are ignored, the
 * builder counts).  Versions must rise; beginning the version that is
 * already current is a no-op.  A version without events is recorded too.
 */
extern void scdc_block_begin_version(ScdcBlockBuilder *b, const ScdcVersion *v);
extern void scdc_block_add(ScdcBlockBuilder *b, const ScdcEvent *e);

extern bool scdc_block_is_empty(const ScdcBlockBuilder *b); /* no version begun */
extern uint32 scdc_block_raw_size(const ScdcBlockBuilder *b);

/* Compresses into *out and empties the builder (its memory is kept for reuse). */
extern void scdc_block_finish(ScdcBlockBuilder *b, ScdcBlock *out);

/* ---- reading ---- */

/* Where a reader is in the changes; to go back there, set the reader's to what it was. */
typedef struct ScdcBlockPlace
{
	uint32		pos;
	int			cur;			/* index of the current version */
	uint64		left;			/* events left in it, and the same by kind */
	uint32		left_inserts;
	uint32		left_updates;
	uint32		left_deletes;
	uint32		left_markers;
} ScdcBlockPlace;

typedef struct ScdcBlockReader
{
	int			nversions;
	ScdcVersion *versions;		/* the directory, palloc'd */
	ScdcBlockPlace at;
	/* private */
	char	   *raw;			/* decompressed changes, palloc'd; NULL until opened */
	uint32		raw_len;
	char	   *scratch;		/* rebuilt new image of a difference */
	uint32		scratch_size;
	uint32		prefix;			/* of the difference: what it shares with the old image at both ends, */
	uint32		suffix;
	ScdcBytes	middle;			/* and what stands between */
} ScdcBlockReader;

/* Reads the directory alone.  False: damaged, *err says how (static or palloc'd text). */
extern bool scdc_block_open_versions(ScdcBlockReader *r, const char *versions, uint32 versions_len,
									 const char **err);

/* Makes the changes readable too; call after scdc_block_open_versions. */
extern bool scdc_block_open_changes(ScdcBlockReader *r, const char *changes, uint32 changes_len,
									const char **err);

/*
 * Next event.  Returns 1 with *e and *v set, 0 at the end, -1 if the block is
 * damaged.  The images point into the reader and stay valid until the next
 * call.  Versions without events are passed over.
 */
extern int	scdc_block_next(ScdcBlockReader *r, ScdcEvent *e, const ScdcVersion **v, const char **err);

/*
 * The same, but the new image of an update that has an old one is left out:
 * its data is NULL.  *shared is the number of bytes with which both images begin.
 * scdc_block_complete puts it together.
 */
extern int	scdc_block_next_incomplete(ScdcBlockReader *r, ScdcEvent *e, uint32 *shared, const ScdcVersion **v,
									   const char **err);
extern void scdc_block_complete(ScdcBlockReader *r, ScdcEvent *e);

extern void scdc_block_close(ScdcBlockReader *r);	/* frees what open allocated */

#endif							/* SCDC_BLOCK_H */
