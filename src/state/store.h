/*-------------------------------------------------------------------------
 *
 * store.h
 *	  Where a job keeps its state: ordered keys and values, on disk (RocksDB)
 *	  or in memory.
 *
 * The state is a cache: everything in it can be made again from the change
 * log (jobs/state.h), so a store that is damaged, or simply deleted, costs
 * time and nothing else.  Writes are gathered, and reach the store in the
 * order in which they were made: after a crash what is there is a prefix of
 * them.
 *
 * Errors of the store are raised as errors of the server: 58030 for I/O,
 * XX001 for damage, 53200 for lack of memory.  No exception of RocksDB, and no
 * signal of ours, crosses the border between the two.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_STORE_H
#define SCDC_STORE_H

#include "lib/stringinfo.h"

typedef enum ScdcStoreProvider
{
	SCDC_STORE_ROCKSDB,
	SCDC_STORE_MEMORY
} ScdcStoreProvider;

typedef struct ScdcStore ScdcStore;
typedef struct ScdcStoreScan ScdcStoreScan;

typedef struct ScdcStoreKey
{
	const void *data;
	Size		len;
} ScdcStoreKey;

/* Figures for the progress record. */
typedef struct ScdcStoreMetrics
{
	int64		memory_bytes;	/* memtables, block cache, table readers */
	int64		disk_bytes;
	int64		gets;			/* since it was opened, as the next two */
	int64		puts;
	int64		bytes_written;
	int64		files;
} ScdcStoreMetrics;

/*
 * Opens the store; with rocksdb its directory must be there.  Memory is bounded
 * by streamcdc.state_cache_size and streamcdc.state_write_buffer.  Lives until
 * it is closed, whatever becomes of transactions; allocates in
 * TopMemoryContext.
 */
extern ScdcStore *scdc_store_open(ScdcStoreProvider provider, const char *path);

/* Writes that were not flushed may be lost.  Raises nothing. */
extern void scdc_store_close(ScdcStore *store);

/* False if the key is not there.  Sees what was put, flushed or not. */
extern bool scdc_store_get(ScdcStore *store, ScdcStoreKey key, StringInfo value);
extern void scdc_store_put(ScdcStore *store, ScdcStoreKey key, const void *value, Size len);

/*
 * The same for keys in strictly ascending order, of which there may be many:
 * when they are, they go into files of their own.  Neither they nor what lies
 * between them may be there already.  They count, and are seen, once the end
 * was told; after a crash, any part of them may be there.
 */
extern void scdc_store_put_sorted(ScdcStore *store, ScdcStoreKey key, const void *value, Size len);
extern void scdc_store_end_sorted(ScdcStore *store);

/*
 * All keys from "from" on, below "to".  Marks of deleted ranges slow down
 * RocksDB's scans until it compacts them away, so few is said to be true where
 * they are so few that deleting one by one is better.
 */
extern void scdc_store_delete_range(ScdcStore *store, ScdcStoreKey from, ScdcStoreKey to, bool few);

/* Is there any key in the range? */
extern bool scdc_store_any(ScdcStore *store, ScdcStoreKey from, ScdcStoreKey to);

/* Hands what was gathered to the store; survives the end of this process, but not that of the machine. */
extern void scdc_store_flush(ScdcStore *store);

/* Forgets what was gathered and has not reached the store; after an error. */
extern void scdc_store_discard(ScdcStore *store);

/*
 * Reads keys from "from" on, below "to", in order, as of the begin of the
 * scan.  Flushes first.  Key and value are good until the next call.
 */
extern ScdcStoreScan *scdc_store_scan_begin(ScdcStore *store, ScdcStoreKey from, ScdcStoreKey to);
extern bool scdc_store_scan_next(ScdcStoreScan *scan, ScdcStoreKey *key, ScdcStoreKey *value);
extern void scdc_store_scan_end(ScdcStoreScan *scan);

/* Ends scans that an error has left open. */
extern void scdc_store_end_scans(ScdcStore *store);

/* Has it failed?  Then it must be thrown away. */
extern bool scdc_store_is_broken(const ScdcStore *store);

/* Raises XX001 for a content that cannot be right. */
extern void scdc_store_damaged(ScdcStore *store, const char *what) pg_attribute_noreturn();

extern void scdc_store_metrics(ScdcStore *store, ScdcStoreMetrics *metrics);

/* Deletes the directory of a store that is not open.  Never follows a symbolic link. */
extern void scdc_store_remove(const char *path);

#endif							/* SCDC_STORE_H */
