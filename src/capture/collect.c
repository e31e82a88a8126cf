/*-------------------------------------------------------------------------
 *
 * collect.c
 *	  The changes that were decoded but not yet written (see collect.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "replication/origin.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "capture/collect.h"
#include "capture/spool.h"
#include "guc.h"
#include "log/definition.h"
#include "log/image.h"
#include "log/rows.h"


typedef struct StreamEntry
{
	int64		stream_id;		/* hash key */
	ScdcTracked *tracked;
} StreamEntry;

/* What the registry says of a relation, valid until its relcache entry is invalidated. */
typedef struct RelationEntry
{
	Oid			relid;			/* hash key */
	bool		valid;
	bool		looking;		/* being looked up; still set afterwards if that failed */
	ScdcTracked *tracked;		/* NULL: not tracked */
	ScdcSchema *map_schema;		/* of a partition: the schema that map leads to; NULL: map is not valid */
	AttrMap    *map;			/* NULL: the columns are the same */
} RelationEntry;

#define RELATIONS_MAX	20000	/* remembered, before the untracked ones are forgotten */

static MemoryContext collect_cxt;	/* streams, builders, schemas: the worker's life */
static HTAB *streams;
static HTAB *relations;
static List *open_streams = NIL;	/* with an open builder */
static List *free_builders = NIL;
static ScdcSpool *ready = NULL;	/* finished blocks, with their ScdcBlockInfo */
static List *new_schemas = NIL;
static List *stalled_streams = NIL;
static List *far_streams = NIL; /* with versions beyond their reach */
static List *origins = NIL;		/* of ScdcOriginSeen */

/* counts what may have altered a composite type or an enum */
static uint64 types_altered = 1;

/* the transaction being decoded */
static uint64 txn_number = 0;
static int64 txn_decoded = 0;	/* transactions since scdc_collect_transactions */
static uint64 txn_xid;
static TimestampTz txn_commit_time;
static XLogRecPtr txn_end_lsn;
static uint32 txn_origin;

/* Labels of an enum; pg_enum's rows come and go with no relation. */
static void
enum_invalidated(Datum arg, int cacheid, uint32 hashvalue)
{
	types_altered++;
}

/* Which schema rows have depends on the tracked table, which may be this one or above it. */
static void
invalidate_entry(RelationEntry *e)
{
	e->valid = false;
	if (e->tracked)
		e->tracked->schema_valid = false;
}

static void
relation_invalidated(Datum arg, Oid relid)
{
	types_altered++;			/* it may be a composite type's */
	if (OidIsValid(relid))
	{
		RelationEntry *e = hash_search(relations, &relid, HASH_FIND, NULL);

		if (e)
			invalidate_entry(e);
	}
	else
	{
		HASH_SEQ_STATUS seq;
		RelationEntry *e;

		hash_seq_init(&seq, relations);
		while ((e = hash_seq_search(&seq)) != NULL)
			invalidate_entry(e);
	}
}

void
scdc_collect_init(void)
{
	HASHCTL		ctl = {0};

	collect_cxt = AllocSetContextCreate(TopMemoryContext, "streamcdc streams", ALLOCSET_DEFAULT_SIZES);
	ctl.keysize = sizeof(int64);
	ctl.entrysize = sizeof(StreamEntry);
	ctl.hcxt = collect_cxt;
	streams = hash_create("streamcdc streams", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(RelationEntry);
	relations = hash_create("streamcdc relations", 256, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	CacheRegisterRelcacheCallback(relation_invalidated, (Datum) 0);
	CacheRegisterSyscacheCallback(ENUMOID, enum_invalidated, (Datum) 0);
}

/* ---- visibility ---- */

static int
compare_uint64(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return x < y ? -1 : x > y ? 1 : 0;
}

/* From pg_snapshot's text form, xmin:xmax:xip,xip,... in the current context. */
ScdcVisibility *
scdc_visibility_parse(const char *text)
{
	int			n = 0;
	ScdcVisibility *v;
	char	   *p;

	for (const char *c = text; *c; c++)
		if (*c == ',')
			n++;
	v = palloc0(offsetof(ScdcVisibility, xip) + sizeof(uint64) * (n + 1));
	v->xmin = strtoull(text, &p, 10);
	v->xmax = strtoull(p + 1, &p, 10);
	if (*p == ':')
		p++;
	while (*p)
	{
		v->xip[v->nxip++] = strtoull(p, &p, 10);
		if (*p == ',')
			p++;
	}
	qsort(v->xip, v->nxip, sizeof(uint64), compare_uint64);
	return v;
}

bool
scdc_visibility_includes(const ScdcVisibility *v, uint64 xid)
{
	if (xid < v->xmin)
		return true;
	if (xid >= v->xmax)
		return false;
	return bsearch(&xid, v->xip, v->nxip, sizeof(uint64), compare_uint64) == NULL;
}

/* ---- streams ---- */

ScdcTracked *
scdc_collect_find(int64 stream_id)
{
	StreamEntry *e = hash_search(streams, &stream_id, HASH_FIND, NULL);

	return e ? e->tracked : NULL;
}

static ScdcTracked *
make_tracked(const ScdcRegistered *registered)
{
	MemoryContext old = MemoryContextSwitchTo(collect_cxt);
	ScdcTracked *t = palloc0(sizeof(ScdcTracked));
	StreamEntry *e;

	t->stream_id = registered->stream_id;
	t->relid = registered->root;
	t->last_version = registered->base_version;
	t->nidentity = registered->nidentity;
	memcpy(t->identity, registered->identity, sizeof(t->identity));
	t->last_timestamp = DT_NOBEGIN;
	t->split_version = PG_INT64_MIN;
	e = hash_search(streams, &t->stream_id, HASH_ENTER, NULL);
	e->tracked = t;
	MemoryContextSwitchTo(old);
	return t;
}

/*
 * Takes over what our tables say of a stream: at start, after a baseline was
 * begun or a stream was untracked.
 */
void
scdc_collect_load(ScdcStream *stream, Snapshot snapshot)
{
	ScdcTracked *t = scdc_collect_find(stream->stream_id);
	ScdcBaseline *baseline;
	ScdcBlockInfo last;
	MemoryContext old;

	if (t == NULL)
	{
		ScdcSchema *schema;
		ScdcRegistered registered = {
			.root = stream->relid,
			.stream_id = stream->stream_id,
			.base_version = stream->base_version,
			.nidentity = stream->nidentity,
		};

		memcpy(registered.identity, stream->identity, sizeof(registered.identity));
		t = make_tracked(&registered);
		schema = scdc_schema_read(stream->stream_id, 0, snapshot);
		if (schema && schema->number > 0)
			t->last_schema = schema->number;
	}
	t->dead = stream->state == SCDC_STATE_UNTRACKED || stream->state == SCDC_STATE_INERT || scdc_stream_given_up(stream);
	if (t->dead)
		return;

	t->last_version = stream->base_version;
	t->last_timestamp = DT_NOBEGIN;
	if (scdc_changelog_last(stream->stream_id, snapshot, &last))
	{
		t->last_version = last.last_version;
		t->last_timestamp = last.last_timestamp;
	}
	baseline = scdc_baseline_read(stream->stream_id, snapshot);
	if (baseline)
	{
		old = MemoryContextSwitchTo(collect_cxt);
		if (t->baseline)
			pfree(t->baseline);
		t->baseline = scdc_visibility_parse(baseline->snapshot);
		MemoryContextSwitchTo(old);
		/* versions come after the baseline in time, also while it is still being copied */
		t->last_timestamp = Max(t->last_timestamp, baseline->snapshot_time);
	}
}

/* ---- decoding ---- */

void
scdc_collect_begin(uint64 xid, TimestampTz commit_time, XLogRecPtr end_lsn, uint32 origin)
{
	txn_number++;
	txn_xid = xid;
	txn_commit_time = commit_time;
	txn_end_lsn = end_lsn;
	txn_origin = origin;
}

static void
forget_map(RelationEntry *e)
{
	if (e->map)
		free_attrmap(e->map);
	e->map = NULL;
	e->map_schema = NULL;
}

/* Applications that make and drop tables all day must not make us grow. */
static void
forget_untracked(void)
{
	HASH_SEQ_STATUS seq;
	RelationEntry *e;

	hash_seq_init(&seq, relations);
	while ((e = hash_seq_search(&seq)) != NULL)
		if (e->tracked == NULL)
		{
			forget_map(e);
			hash_search(relations, &e->relid, HASH_REMOVE, NULL);
		}
}

/*
 * The registry as of this change.  Cached per relation until its relcache
 * entry is invalidated, which every write to the registry sees to: reading it
 * once a transaction would miss a table that is tracked while a transaction
 * that will change it is already running.
 */
static RelationEntry *
relation_entry(Oid relid)
{
	bool		found;
	RelationEntry *e;

	if (hash_get_num_entries(relations) >= RELATIONS_MAX)
		forget_untracked();
	e = hash_search(relations, &relid, HASH_ENTER, &found);
	if (!found)
	{
		e->valid = false;
		e->map = NULL;
		e->map_schema = NULL;
	}

	if (!e->valid || e->looking)
	{
		ScdcRegistered registered;

		/* valid first: if the look-up below lets in an invalidation, we look again next time */
		e->valid = true;
		e->looking = true;
		e->tracked = NULL;
		forget_map(e);
		if (OidIsValid(scdc_table_oid(SCDC_REGISTRY)) && scdc_registry_lookup(relid, NULL, &registered))
		{
			e->tracked = scdc_collect_find(registered.stream_id);
			if (e->tracked == NULL)
				e->tracked = make_tracked(&registered);
		}
		e->looking = false;
	}
	return e;
}

/* Gives a schema (in collect_cxt) its number; it is written with what is collected. */
static void
number_schema(ScdcTracked *t, ScdcSchema *schema)
{
	schema->number = ++t->last_schema;
	new_schemas = lappend(new_schemas, schema);
}

/* A new one in force; the old one may still wait in new_schemas. */
static void
set_schema(ScdcTracked *t, ScdcSchema *schema)
{
	number_schema(t, schema);
	if (t->schema)
		t->previous_schema = t->schema;
	t->schema = schema;
}

/* The tracked table's columns may have changed since we looked: a new schema number then. */
static void
check_schema(ScdcTracked *t, Relation rel)
{
	MemoryContext cxt = AllocSetContextCreate(collect_cxt, "streamcdc schema", ALLOCSET_START_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	ScdcSchema *schema;
	uint64		types = types_altered;

	schema = scdc_schema_of_relation(rel, t->stream_id, t->identity, t->nidentity);
	t->types_altered = 0;
	for (int i = 0; i < schema->ncolumns; i++)
		if (schema->columns[i].type_parts)
			t->types_altered = types;
	MemoryContextSwitchTo(old);
	if (t->schema && scdc_schema_equal(schema, t->schema))
	{
		MemoryContextDelete(cxt);
		return;
	}

	/* kept for good: the one before may still wait in new_schemas */
	old = MemoryContextSwitchTo(collect_cxt);
	set_schema(t, schema);
	MemoryContextSwitchTo(old);
}

/* May a type of one of its columns have been altered since its schema was looked at? */
static inline bool
types_may_differ(const ScdcTracked *t)
{
	return t->types_altered != 0 && t->types_altered != types_altered;
}

ScdcTracked *
scdc_collect_stream(int64 stream_id, Oid relid)
{
	ScdcTracked *t = scdc_collect_find(stream_id);

	if (t == NULL)
		t = relation_entry(relid)->tracked;
	return t && t->stream_id == stream_id ? t : NULL;
}

ScdcSchema *
scdc_collect_adopt_schema(ScdcTracked *t, ScdcBytes packed, bool old)
{
	ScdcSchema *schema = scdc_schema_unpack(packed);
	MemoryContext before;

	if (t->schema && scdc_schema_equal(schema, t->schema))
		return t->schema;
	if (old && t->previous_schema && scdc_schema_equal(schema, t->previous_schema))
		return t->previous_schema;
	before = MemoryContextSwitchTo(collect_cxt);
	schema = scdc_schema_unpack(packed);
	if (old)
	{
		number_schema(t, schema);
		t->previous_schema = schema;
	}
	else
		set_schema(t, schema);
	MemoryContextSwitchTo(before);
	return schema;
}

static void
note_origin(void)
{
	MemoryContext old;
	ScdcOriginSeen *seen;
	ListCell   *lc;

	foreach(lc, origins)
		if (((ScdcOriginSeen *) lfirst(lc))->origin == txn_origin)
			return;
	old = MemoryContextSwitchTo(collect_cxt);
	seen = palloc(sizeof(ScdcOriginSeen));
	seen->origin = txn_origin;
	seen->lsn = txn_end_lsn;
	origins = lappend(origins, seen);
	MemoryContextSwitchTo(old);
}

/* What this transaction does to this stream counts, as the next version. */
static void
begin_version(ScdcTracked *t)
{
	t->skip = false;
	memset(&t->version, 0, sizeof(ScdcVersion));
	t->version.version = ++t->last_version;
	/* strictly increasing, although commit times are not */
	t->last_timestamp = Max(txn_commit_time, t->last_timestamp + 1);
	t->version.timestamp = t->last_timestamp;
	t->version.commit_time = txn_commit_time;
	t->version.commit_lsn = txn_end_lsn;
	t->version.xid = txn_xid;
	t->version.origin = txn_origin;
	if (txn_origin != InvalidRepOriginId)
		note_origin();
}

bool
scdc_collect_begin_version(ScdcTracked *t, bool ends)
{
	if (t->txn_number != txn_number)
	{
		t->txn_number = txn_number;
		t->gap_seen = false;
		t->skip = t->dead || (t->baseline && scdc_visibility_includes(t->baseline, txn_xid));
		if (!t->skip)
			begin_version(t);
	}
	/* the baseline has the rows that the table had when it became UNLOGGED, but nothing of what happens to them now */
	if (t->skip && ends && !t->dead)
		begin_version(t);
	return !t->skip;
}

/* The same through a partition, whose columns may have other places. */
static void
check_partition(RelationEntry *e, Relation rel)
{
	ScdcTracked *t = e->tracked;
	Relation	root = RelationIdGetRelation(t->relid);

	if (!RelationIsValid(root))
		elog(ERROR, "root %u of partition %u does not exist", t->relid, e->relid);
	if (!t->schema_valid || types_may_differ(t))
	{
		/* from now on we hear of it when the root changes */
		(void) relation_entry(t->relid);
		t->schema_valid = true;
		check_schema(t, root);
	}
	if (e->map_schema != t->schema)
	{
		MemoryContext old = MemoryContextSwitchTo(collect_cxt);

		forget_map(e);
		e->map = scdc_image_map(rel, root);
		e->map_schema = t->schema;
		MemoryContextSwitchTo(old);
	}
	RelationClose(root);
}

ScdcTracked *
scdc_collect_lookup(Relation rel, ScdcSchema **schema, const AttrMap **map)
{
	RelationEntry *e = relation_entry(RelationGetRelid(rel));
	ScdcTracked *t = e->tracked;

	if (t == NULL)
		return NULL;
	if (RelationGetRelid(rel) != t->relid)
	{
		if (!t->schema_valid || e->map_schema != t->schema || types_may_differ(t))
			check_partition(e, rel);
	}
	else if (!t->schema_valid || types_may_differ(t))
	{
		t->schema_valid = true;
		check_schema(t, rel);
	}
	*schema = t->schema;
	*map = e->map;
	return t;
}

ScdcTracked *
scdc_collect_lookup_rewritten(Oid relid, ScdcSchema **schema)
{
	ScdcTracked *t = relation_entry(relid)->tracked;

	if (t)
		*schema = t->schema;
	return t;
}

ScdcBlockBuilder *
scdc_builder_get(void)
{
	MemoryContext old;
	ScdcBlockBuilder *b;

	if (free_builders != NIL)
	{
		b = llast(free_builders);
		free_builders = list_delete_last(free_builders);
		return b;
	}
	old = MemoryContextSwitchTo(collect_cxt);
	b = scdc_block_builder_create(SCDC_COMPRESSION);
	MemoryContextSwitchTo(old);
	return b;
}

void
scdc_builder_put(ScdcBlockBuilder *builder)
{
	MemoryContext old = MemoryContextSwitchTo(collect_cxt);

	free_builders = lappend(free_builders, builder);
	MemoryContextSwitchTo(old);
}

/* Closes the stream's block: compressed, and ready to be written. */
static void
finish_block(ScdcTracked *t)
{
	ScdcBlock	block;

	scdc_block_finish(t->builder, &block);
	scdc_builder_put(t->builder);
	t->builder = NULL;
	t->open = false;
	open_streams = list_delete_ptr(open_streams, t);
	t->next_chunk = t->info.first_version == t->info.last_version ? t->info.chunk + 1 : 1;
	t->split_version = t->info.last_version;
	if (t->info.last_version >= t->reach)
	{
		MemoryContext old = MemoryContextSwitchTo(collect_cxt);

		far_streams = list_append_unique_ptr(far_streams, t);
		MemoryContextSwitchTo(old);
	}

	if (ready == NULL)
		ready = scdc_spool_create(sizeof(ScdcBlockInfo));
	scdc_spool_append(ready, &t->info, &block, (Size) scdc_capture_memory * 1024 / 8);
	pfree(block.versions);
	pfree(block.changes);
}

static void
open_block(ScdcTracked *t, const ScdcSchema *schema)
{
	MemoryContext old = MemoryContextSwitchTo(collect_cxt);

	open_streams = lappend(open_streams, t);
	MemoryContextSwitchTo(old);
	t->builder = scdc_builder_get();
	memset(&t->info, 0, sizeof(ScdcBlockInfo));
	t->info.stream_id = t->stream_id;
	t->info.first_version = t->version.version;
	t->info.chunk = t->version.version == t->split_version ? t->next_chunk : 0;
	t->info.schema_number = schema ? schema->number : 0;
	t->info.first_timestamp = t->version.timestamp;
	t->open = true;
}

/* Many open blocks share what memory there is. */
static inline Size
block_limit(void)
{
	Size		share;

	Assert(open_streams != NIL);
	share = (Size) scdc_capture_memory * 1024 / 4 / list_length(open_streams);
	return Min(share, SCDC_BLOCK_RAW_MAX);
}

void
scdc_collect_event(ScdcTracked *t, ScdcSchema *schema, const ScdcEvent *event)
{
	uint64		size = (uint64) event->old_image.len + event->new_image.len;

	if (event->kind == SCDC_EVENT_GAP)
	{
		bool		ends = (event->flags & SCDC_EVENT_ENDS) != 0 && !t->dead;

		if (t->gap_seen && !ends)
			return;				/* one is enough */
		t->gap_seen = true;
		if (ends)
		{
			MemoryContext old = MemoryContextSwitchTo(collect_cxt);

			t->ended_state = (event->flags & SCDC_EVENT_STALL) ? SCDC_STATE_STALLED : SCDC_STATE_GAP;
			if (t->ended_state == SCDC_STATE_GAP)
				t->stalled = pstrdup("The table was made UNLOGGED, and changes of unlogged tables are not in WAL.");
			t->dead = true;		/* from the next transaction on */
			stalled_streams = lappend(stalled_streams, t);
			MemoryContextSwitchTo(old);
		}
	}
	if (t->open && (scdc_block_raw_size(t->builder) + size > block_limit() ||
					t->info.schema_number != (schema ? schema->number : 0)))
		finish_block(t);
	if (!t->open)
		open_block(t, schema);
	if (t->info.last_version != t->version.version || scdc_block_is_empty(t->builder))
	{
		scdc_block_begin_version(t->builder, &t->version);
		t->info.last_version = t->version.version;
		t->info.last_timestamp = t->version.timestamp;
	}
	scdc_changelog_count(&t->info, event);
	scdc_block_add(t->builder, event);
}

void
scdc_collect_commit(void)
{
	txn_decoded++;
}

void
scdc_collect_stall(ScdcTracked *t, const char *reason)
{
	/* one from before was of a transaction that was rolled back while it was decoded, or it would be over with the stream */
	if (t->stalled)
		pfree(t->stalled);
	t->stalled = MemoryContextStrdup(collect_cxt, reason);
}

/* ---- writing ---- */

List *
scdc_collect_stalled(void)
{
	List	   *result = stalled_streams;

	stalled_streams = NIL;
	return result;
}

List *
scdc_collect_origins(void)
{
	List	   *result = origins;

	origins = NIL;
	return result;
}

bool
scdc_collect_is_empty(void)
{
	return open_streams == NIL && ready == NULL;
}

Size
scdc_collect_size(void)
{
	Size		size = ready ? scdc_spool_memory(ready) : 0;
	ListCell   *lc;

	foreach(lc, open_streams)
		size += scdc_block_raw_size(((ScdcTracked *) lfirst(lc))->builder);
	return size;
}

int64
scdc_collect_transactions(void)
{
	int64		result = txn_decoded;

	txn_decoded = 0;
	return result;
}

void
scdc_collect_write(Relation blocks, void (*written) (int64 stream_id))
{
	ListCell   *lc;
	ScdcBlockInfo info;
	ScdcBlock	block;

	while (open_streams != NIL)
		finish_block(linitial(open_streams));

	foreach(lc, new_schemas)
		scdc_schema_write(lfirst(lc));
	list_free(new_schemas);
	new_schemas = NIL;

	foreach(lc, far_streams)
	{
		ScdcTracked *t = lfirst(lc);

		t->reach = scdc_definition_reach(t->stream_id, t->last_version);
	}
	list_free(far_streams);
	far_streams = NIL;

	if (ready == NULL)
		return;
	scdc_spool_rewind(ready);
	while (scdc_spool_next(ready, &info, &block))
	{
		CHECK_FOR_INTERRUPTS();
		scdc_changelog_append(blocks, &info, &block);
		written(info.stream_id);
	}

	/* a failure from here to the commit ends the worker, so nothing is lost by emptying now */
	scdc_spool_free(ready);
	ready = NULL;
}
