/*-------------------------------------------------------------------------
 *
 * store.c
 *	  Ordered keys and values, in RocksDB or in memory (see store.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/ilist.h"
#include "lib/rbtree.h"
#include "nodes/pg_list.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "guc.h"
#include "state/rocks.h"
#include "state/store.h"

/* Gathered writes are handed over when they take more than this. */
#define GATHER_MAX		(4 * 1024 * 1024)

/* Sorted keys beyond this go into files of their own. */
#define SORTED_FEW		(2 * 1024 * 1024)

typedef struct MemoryNode
{
	RBTNode		node;
	Size		key_len;
	Size		value_len;
	char	   *key;			/* the value follows it */
} MemoryNode;

struct ScdcStore
{
	ScdcStoreProvider provider;
	MemoryContext context;
	dlist_head	scans;
	bool		broken;
	int64		gets;
	int64		puts;
	int64		bytes_written;
	Rocks	   *rocks;
	char	   *path;
	RocksLoad  *load;			/* of sorted keys */
	Size		sorted_bytes;	/* of all sorted keys and their values */
	RBTree	   *tree;			/* SCDC_STORE_MEMORY */
};

struct ScdcStoreScan
{
	dlist_node	link;
	ScdcStore  *store;
	RocksScan  *rocks;
	RBTreeIterator *iterator;
	char	   *from;
	Size		from_len;
	char	   *to;
	Size		to_len;
};

/* Nothing of RocksDB is cleaned up: what an exception has left of it would abort, and an abort restarts the server. */
static void
exit_at_once(int code, Datum arg)
{
	_exit(code);
}

/*
 * Raises what RocksDB has reported.  The message is pointed to, since it
 * comes out of a call that may stand in the same argument list, and is
 * evaluated first or last.
 */
static void
store_error(ScdcStore *store, int result, char **message)
{
	int			code = ERRCODE_INTERNAL_ERROR;
	int			level = ERROR;
	char	   *copy;

	if (result == ROCKS_OK)
		return;
	if (store)
		store->broken = true;
	switch (result)
	{
		case ROCKS_DAMAGED:
			code = ERRCODE_DATA_CORRUPTED;
			break;
		case ROCKS_IO:
			code = ERRCODE_IO_ERROR;
			break;
		case ROCKS_FULL:
			code = ERRCODE_DISK_FULL;
			break;
		case ROCKS_MEMORY:
			code = ERRCODE_OUT_OF_MEMORY;
			break;
		case ROCKS_LOST:
			code = ERRCODE_INSUFFICIENT_RESOURCES;
			level = FATAL;		/* another process can */
			on_proc_exit(exit_at_once, (Datum) 0);
			break;
	}
	copy = pstrdup(*message ? *message : "unknown error");
	free(*message);
	ereport(level,
			(errcode(code),
			 errmsg("state store failed: %s", copy)));
}

/* ---- memory ---- */

static int
compare_bytes(const char *a, Size a_len, const char *b, Size b_len)
{
	int			c = memcmp(a, b, Min(a_len, b_len));

	return c != 0 ? c : a_len < b_len ? -1 : a_len > b_len ? 1 : 0;
}

static int
node_compare(const RBTNode *a, const RBTNode *b, void *arg)
{
	const MemoryNode *x = (const MemoryNode *) a;
	const MemoryNode *y = (const MemoryNode *) b;

	return compare_bytes(x->key, x->key_len, y->key, y->key_len);
}

/* The newer value takes the place of the older. */
static void
node_combine(RBTNode *existing, const RBTNode *newdata, void *arg)
{
	MemoryNode *old = (MemoryNode *) existing;
	const MemoryNode *new = (const MemoryNode *) newdata;

	pfree(old->key);
	old->key = new->key;
	old->key_len = new->key_len;
	old->value_len = new->value_len;
}

static RBTNode *
node_alloc(void *arg)
{
	return MemoryContextAlloc(((ScdcStore *) arg)->context, sizeof(MemoryNode));
}

/* The tree may have moved the node's content into another one, so the key is not freed here. */
static void
node_free(RBTNode *node, void *arg)
{
	pfree(node);
}

static void
memory_put(ScdcStore *store, ScdcStoreKey key, const void *value, Size len)
{
	MemoryNode	node = {0};
	bool		is_new;

	node.key_len = key.len;
	node.value_len = len;
	node.key = MemoryContextAllocHuge(store->context, key.len + len + 1);
	memcpy(node.key, key.data, key.len);
	memcpy(node.key + key.len, value, len);
	rbt_insert(store->tree, &node.node, &is_new);
}

static void
memory_delete(ScdcStore *store, MemoryNode *n)
{
	char	   *key = n->key;

	rbt_delete(store->tree, &n->node);
	pfree(key);
}

/* A deletion may move other nodes, so each is looked for anew. */
static void
memory_delete_range(ScdcStore *store, ScdcStoreKey from, ScdcStoreKey to)
{
	RBTreeIterator it;
	List	   *doomed = NIL;
	MemoryNode *n;
	ListCell   *lc;

	rbt_begin_iterate(store->tree, LeftRightWalk, &it);
	while ((n = (MemoryNode *) rbt_iterate(&it)) != NULL)
	{
		if (compare_bytes(n->key, n->key_len, from.data, from.len) >= 0 &&
			compare_bytes(n->key, n->key_len, to.data, to.len) < 0)
		{
			ScdcStoreKey *key = palloc(sizeof(ScdcStoreKey));

			key->data = n->key;
			key->len = n->key_len;
			doomed = lappend(doomed, key);
		}
	}
	foreach(lc, doomed)
	{
		ScdcStoreKey *key = lfirst(lc);
		MemoryNode	probe = {.key = unconstify(char *, (const char *) key->data), .key_len = key->len};

		memory_delete(store, (MemoryNode *) rbt_find(store->tree, &probe.node));
	}
	list_free_deep(doomed);
}

/* ---- opening and closing ---- */

ScdcStore *
scdc_store_open(ScdcStoreProvider provider, const char *path)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "streamcdc state store", ALLOCSET_DEFAULT_SIZES);
	ScdcStore  *store = MemoryContextAllocZero(context, sizeof(ScdcStore));

	store->provider = provider;
	store->context = context;
	dlist_init(&store->scans);
	if (provider == SCDC_STORE_MEMORY)
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		store->tree = rbt_create(sizeof(MemoryNode), node_compare, node_combine, node_alloc, node_free, store);
		MemoryContextSwitchTo(old);
		return store;
	}

	store->path = MemoryContextStrdup(context, path);
	PG_TRY();
	{
		char	   *error = NULL;

		store_error(NULL, rocks_open(path, (size_t) scdc_state_cache_size * 1024, (size_t) scdc_state_write_buffer * 1024,
							   &store->rocks, &error), &error);
	}
	PG_CATCH();
	{
		MemoryContextDelete(context);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return store;
}

void
scdc_store_close(ScdcStore *store)
{
	scdc_store_end_scans(store);
	scdc_store_discard(store);
	if (store->rocks)
		rocks_close(store->rocks);
	MemoryContextDelete(store->context);
}

/* ---- keys and values ---- */

bool
scdc_store_get(ScdcStore *store, ScdcStoreKey key, StringInfo value)
{
	char	   *found = NULL;
	size_t		len = 0;
	char	   *error = NULL;
	int			result;

	store->gets++;
	resetStringInfo(value);
	if (store->provider == SCDC_STORE_MEMORY)
	{
		MemoryNode	probe = {.key = unconstify(char *, (const char *) key.data), .key_len = key.len};
		MemoryNode *n = (MemoryNode *) rbt_find(store->tree, &probe.node);

		if (n == NULL)
			return false;
		appendBinaryStringInfo(value, n->key + n->key_len, n->value_len);
		return true;
	}
	scdc_store_flush(store);
	result = rocks_get(store->rocks, key.data, key.len, &found, &len, &error);
	if (result == ROCKS_NOT_FOUND)
		return false;
	store_error(store, result, &error);
	PG_TRY();
	{
		appendBinaryStringInfo(value, found, len);
	}
	PG_FINALLY();
	{
		free(found);
	}
	PG_END_TRY();
	return true;
}

void
scdc_store_put(ScdcStore *store, ScdcStoreKey key, const void *value, Size len)
{
	char	   *error = NULL;

	store->puts++;
	store->bytes_written += key.len + len;
	if (store->provider == SCDC_STORE_MEMORY)
	{
		memory_put(store, key, value, len);
		return;
	}
	store_error(store, rocks_put(store->rocks, key.data, key.len, value, len, &error), &error);
	if (rocks_gathered(store->rocks) >= GATHER_MAX)
		scdc_store_flush(store);
}

void
scdc_store_put_sorted(ScdcStore *store, ScdcStoreKey key, const void *value, Size len)
{
	char	   *error = NULL;

	store->sorted_bytes += key.len + len;
	if (store->provider == SCDC_STORE_MEMORY || store->sorted_bytes <= SORTED_FEW)
	{
		scdc_store_put(store, key, value, len);
		return;
	}
	if (store->load == NULL)
	{
		scdc_store_flush(store);
		store_error(store, rocks_load_begin(store->rocks, store->path, &store->load, &error), &error);
	}
	store->puts++;
	store->bytes_written += key.len + len;
	store_error(store, rocks_load_put(store->load, key.data, key.len, value, len, &error), &error);
}

void
scdc_store_end_sorted(ScdcStore *store)
{
	RocksLoad  *load = store->load;
	char	   *error = NULL;

	store->load = NULL;
	store->sorted_bytes = 0;
	if (load)
		store_error(store, rocks_load_end(load, &error), &error);
}

static void
delete_one_by_one(ScdcStore *store, ScdcStoreKey from, ScdcStoreKey to)
{
	ScdcStoreScan *scan = scdc_store_scan_begin(store, from, to);
	ScdcStoreKey key,
				value;
	char	   *error = NULL;

	while (scdc_store_scan_next(scan, &key, &value))
		store_error(store, rocks_delete(store->rocks, key.data, key.len, &error), &error);
	scdc_store_scan_end(scan);
}

void
scdc_store_delete_range(ScdcStore *store, ScdcStoreKey from, ScdcStoreKey to, bool few)
{
	char	   *error = NULL;

	if (store->provider == SCDC_STORE_MEMORY)
	{
		memory_delete_range(store, from, to);
		return;
	}
	if (few)
	{
		delete_one_by_one(store, from, to);
		return;
	}
	store_error(store, rocks_delete_range(store->rocks, from.data, from.len, to.data, to.len, &error), &error);
}

void
scdc_store_flush(ScdcStore *store)
{
	char	   *error = NULL;

	if (store->rocks)
		store_error(store, rocks_write(store->rocks, &error), &error);
}

void
scdc_store_discard(ScdcStore *store)
{
	if (store->load)
		rocks_load_abort(store->load);
	store->load = NULL;
	store->sorted_bytes = 0;
	if (store->rocks)
		rocks_discard(store->rocks);
}

/* ---- scans ---- */

ScdcStoreScan *
scdc_store_scan_begin(ScdcStore *store, ScdcStoreKey from, ScdcStoreKey to)
{
	MemoryContext old;
	ScdcStoreScan *scan;
	char	   *error = NULL;

	scdc_store_flush(store);
	old = MemoryContextSwitchTo(store->context);
	scan = palloc0(sizeof(ScdcStoreScan));
	scan->store = store;
	if (store->provider == SCDC_STORE_MEMORY)
	{
		scan->iterator = palloc(sizeof(RBTreeIterator));
		scan->from = palloc(from.len + 1);
		memcpy(scan->from, from.data, from.len);
		scan->from_len = from.len;
		scan->to = palloc(to.len + 1);
		memcpy(scan->to, to.data, to.len);
		scan->to_len = to.len;
		rbt_begin_iterate(store->tree, LeftRightWalk, scan->iterator);
	}
	else
		store_error(store, rocks_scan_begin(store->rocks, from.data, from.len, to.data, to.len, &scan->rocks, &error), &error);
	dlist_push_head(&store->scans, &scan->link);
	MemoryContextSwitchTo(old);
	return scan;
}

bool
scdc_store_scan_next(ScdcStoreScan *scan, ScdcStoreKey *key, ScdcStoreKey *value)
{
	const char *k,
			   *v;
	size_t		k_len,
				v_len;
	char	   *error = NULL;
	int			result;

	if (scan->store->provider == SCDC_STORE_MEMORY)
	{
		MemoryNode *n;

		while ((n = (MemoryNode *) rbt_iterate(scan->iterator)) != NULL)
		{
			if (compare_bytes(n->key, n->key_len, scan->from, scan->from_len) < 0)
				continue;
			if (compare_bytes(n->key, n->key_len, scan->to, scan->to_len) >= 0)
				return false;
			key->data = n->key;
			key->len = n->key_len;
			value->data = n->key + n->key_len;
			value->len = n->value_len;
			return true;
		}
		return false;
	}
	result = rocks_scan_next(scan->rocks, &k, &k_len, &v, &v_len, &error);
	if (result == ROCKS_NOT_FOUND)
		return false;
	store_error(scan->store, result, &error);
	key->data = k;
	key->len = k_len;
	value->data = v;
	value->len = v_len;
	return true;
}

void
scdc_store_scan_end(ScdcStoreScan *scan)
{
	dlist_delete(&scan->link);
	if (scan->rocks)
		rocks_scan_end(scan->rocks);
	if (scan->iterator)
	{
		pfree(scan->iterator);
		pfree(scan->from);
		pfree(scan->to);
	}
	pfree(scan);
}

bool
scdc_store_any(ScdcStore *store, ScdcStoreKey from, ScdcStoreKey to)
{
	ScdcStoreScan *scan = scdc_store_scan_begin(store, from, to);
	ScdcStoreKey key,
				value;
	bool		any = scdc_store_scan_next(scan, &key, &value);

	scdc_store_scan_end(scan);
	return any;
}

void
scdc_store_end_scans(ScdcStore *store)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &store->scans)
		scdc_store_scan_end(dlist_container(ScdcStoreScan, link, iter.cur));
}

bool
scdc_store_is_broken(const ScdcStore *store)
{
	return store->broken;
}

void
scdc_store_damaged(ScdcStore *store, const char *what)
{
	store->broken = true;
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("state store is damaged: %s", what)));
}

void
scdc_store_metrics(ScdcStore *store, ScdcStoreMetrics *metrics)
{
	memset(metrics, 0, sizeof(*metrics));
	metrics->gets = store->gets;
	metrics->puts = store->puts;
	metrics->bytes_written = store->bytes_written;
	if (store->rocks == NULL)
	{
		metrics->memory_bytes = MemoryContextMemAllocated(store->context, true);
		return;
	}
	metrics->memory_bytes = rocks_property(store->rocks, "rocksdb.cur-size-all-mem-tables") +
		rocks_property(store->rocks, "rocksdb.block-cache-usage") +
		rocks_property(store->rocks, "rocksdb.estimate-table-readers-mem");
	metrics->disk_bytes = rocks_property(store->rocks, "rocksdb.total-sst-files-size");
	metrics->files = rocks_files(store->rocks);
}

void
scdc_store_remove(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
	{
		if (errno == ENOENT)
			return;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not stat file \"%s\": %m", path)));
	}
	if (!S_ISDIR(st.st_mode))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a directory", path)));
	if (!rmtree(path, true))
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not remove directory \"%s\"", path)));
}
