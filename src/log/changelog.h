/*-------------------------------------------------------------------------
 *
 * changelog.h
 *	  The durable, ordered change log: appending blocks, scanning a range of
 *	  versions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_CHANGELOG_H
#define SCDC_CHANGELOG_H

#include "datatype/timestamp.h"
#include "log/block.h"
#include "log/schema.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/*
 * Compression of new blocks.  On pgbench-like rows zstd (level 1) makes them
 * half the size of lz4's, and its cost of 0.07 microseconds a row is lost
 * against decoding's 1 to 2 (src/README.md has the figures).
 */
#define SCDC_COMPRESSION	SCDC_COMPRESS_ZSTD

/* flags of a block row; on disk */
#define SCDC_BLOCK_HAS_GAP			0x01	/* holds a TRUNCATE or GAP event */
#define SCDC_BLOCK_HAS_INCOMPLETE	0x02	/* holds an event without its old image */
#define SCDC_BLOCK_IS_BASE			0x04	/* of a baseline that has been moved, see retained.h */

/* The plain columns of a block row. */
typedef struct ScdcBlockInfo
{
	int64		stream_id;
	int64		first_version;
	int32		chunk;			/* 0 if first_version begins here, else its n-th block */
	int64		last_version;
	int32		schema_number;	/* 0 for a block that holds markers only */
	int32		flags;			/* SCDC_BLOCK_* */
	TimestampTz first_timestamp;
	TimestampTz last_timestamp;
	int64		inserts;
	int64		updates;
	int64		deletes;
} ScdcBlockInfo;

/* Counts an event of a block in its plain columns. */
extern void scdc_changelog_count(ScdcBlockInfo *info, const ScdcEvent *event);

/* Appends one block; blocks is the open table, under RowExclusiveLock. */
extern void scdc_changelog_append(Relation blocks, const ScdcBlockInfo *info, const ScdcBlock *block);

/* Newest block of a stream (its plain columns).  False if it has none. */
extern bool scdc_changelog_last(int64 stream_id, Snapshot snapshot, ScdcBlockInfo *info);
/* Oldest block of a stream. */
extern bool scdc_changelog_first(int64 stream_id, Snapshot snapshot, ScdcBlockInfo *info);

/* The last block that begins before a version: the only one that may hold it without beginning with it. */
extern bool scdc_changelog_last_before(int64 stream_id, int64 version, Snapshot snapshot, ScdcBlockInfo *info);

/* Newest version of a stream with a timestamp at or before "at".  False if it has none. */
extern bool scdc_changelog_version_at(int64 stream_id, TimestampTz at, Snapshot snapshot, int64 *version);

/* One version with the counts of all its blocks.  False if it is not in the log. */
extern bool scdc_changelog_version_counts(int64 stream_id, int64 version, Snapshot snapshot, ScdcVersion *total);

/* Calls fn for each block of all streams, in no order.  stored_bytes: of its two byte strings, as they are on disk. */
typedef void (*ScdcBlockFn) (const ScdcBlockInfo *info, int64 stored_bytes, void *arg);
extern void scdc_changelog_each(Snapshot snapshot, ScdcBlockFn fn, void *arg);

/* Deletes all blocks of a stream; returns how many. */
extern int64 scdc_changelog_delete(int64 stream_id);

/*
 * Deletes what the snapshot shows of the versions before one.  A block that
 * holds that one, too, is written anew without them.
 */
extern void scdc_changelog_delete_before(int64 stream_id, int64 version, Snapshot snapshot);

/*
 * Scans the blocks that hold versions >= first_version (PG_INT64_MIN: all), in
 * order.  A block's bytes are detoasted only when asked for.
 */
typedef struct ScdcLogScan ScdcLogScan;

extern ScdcLogScan *scdc_changelog_scan_begin(int64 stream_id, int64 first_version, Snapshot snapshot);
extern bool scdc_changelog_scan_next(ScdcLogScan *scan, ScdcBlockInfo *info);	/* false at the end */

/* Does the current block's last version go on in the next block? */
extern bool scdc_changelog_scan_continues(ScdcLogScan *scan);

/* Bytes of the current block's events, before compression. */
extern int64 scdc_changelog_scan_raw_size(ScdcLogScan *scan);

/*
 * Opens the current block: the directory, and with_changes the events too.
 * Raises XX001 naming stream and version if the block is damaged.  Valid until the next call.
 */
extern ScdcBlockReader *scdc_changelog_scan_open(ScdcLogScan *scan, bool with_changes);

/*
 * Next event of a block that was opened with its changes; false at its end.
 * Raises XX001 if it is damaged.  The images are valid until the next call.
 */
extern bool scdc_changelog_scan_event(ScdcLogScan *scan, ScdcEvent *event, const ScdcVersion **version);

/* The same for those who may not need the new image of an update, as scdc_block_next_incomplete says. */
extern bool scdc_changelog_scan_incomplete(ScdcLogScan *scan, ScdcEvent *event, uint32 *shared, const ScdcVersion **version);
extern void scdc_changelog_scan_complete(ScdcLogScan *scan, ScdcEvent *event);

extern void scdc_changelog_scan_end(ScdcLogScan *scan);

#endif							/* SCDC_CHANGELOG_H */
