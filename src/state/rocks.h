/*-------------------------------------------------------------------------
 *
 * rocks.h
 *	  The border to RocksDB: plain C, no exceptions, no signals.
 *
 * Functions that can fail return 0, or an errno-like class with *error set to
 * a message that the caller frees with free().
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_ROCKS_H
#define SCDC_ROCKS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C"
{
#endif

enum
{
	ROCKS_OK = 0,
	ROCKS_NOT_FOUND,
	ROCKS_DAMAGED,
	ROCKS_IO,
	ROCKS_FULL,
	ROCKS_MEMORY,
	ROCKS_LOST,					/* nor can this process try again */
	ROCKS_OTHER
};

typedef struct Rocks Rocks;
typedef struct RocksScan RocksScan;

extern int	rocks_open(const char *path, size_t cache, size_t write_buffer, Rocks **db, char **error);
extern void rocks_close(Rocks *db);
extern int	rocks_get(Rocks *db, const void *key, size_t len, char **value, size_t *value_len, char **error);

/* Writes are gathered in the handle; rocks_write hands them over as one. */
extern int	rocks_put(Rocks *db, const void *key, size_t len, const void *value, size_t value_len, char **error);
extern int	rocks_delete(Rocks *db, const void *key, size_t len, char **error);
extern int	rocks_delete_range(Rocks *db, const void *from, size_t from_len, const void *to, size_t to_len, char **error);
extern size_t rocks_gathered(const Rocks *db);	/* bytes */
extern int	rocks_write(Rocks *db, char **error);
extern void rocks_discard(Rocks *db);

/*
 * Keys in strictly ascending order, put into table files of their own, which
 * become part of the database at once, by rocks_load_end: neither memtable
 * nor WAL nor compaction has to do with them.  What was gathered must have
 * been written before.  path: the database's.  End and abort free the handle.
 */
typedef struct RocksLoad RocksLoad;

extern int	rocks_load_begin(Rocks *db, const char *path, RocksLoad **load, char **error);
extern int	rocks_load_put(RocksLoad *load, const void *key, size_t len, const void *value, size_t value_len, char **error);
extern int	rocks_load_end(RocksLoad *load, char **error);
extern void rocks_load_abort(RocksLoad *load);

extern int	rocks_scan_begin(Rocks *db, const void *from, size_t from_len, const void *to, size_t to_len,
							 RocksScan **scan, char **error);
/* ROCKS_NOT_FOUND at the end */
extern int	rocks_scan_next(RocksScan *scan, const char **key, size_t *key_len, const char **value, size_t *value_len,
							char **error);
extern void rocks_scan_end(RocksScan *scan);

/* What a property of that name says; 0 if it is not known. */
extern uint64_t rocks_property(Rocks *db, const char *name);
extern uint64_t rocks_files(Rocks *db);

#ifdef __cplusplus
}
#endif
#endif							/* SCDC_ROCKS_H */
