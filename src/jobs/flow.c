/*-------------------------------------------------------------------------
 *
 * flow.c
 *	  One micro-batch: rows in, rows of "batch" out (see flow.h).
 *
 * Keys of the state store:
 *
 *		'g' batch 'b' seq				a buffered row
 *		'g' batch 'n' hash ordinal		an identity: the batch its chain began
 *										with, first event, last event
 *
 * with numbers in eight bytes, most significant first, so that the store
 * keeps them in their order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "port/pg_crc32c.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplesort.h"

#include "jobs/failure.h"
#include "jobs/flow.h"
#include "sql/tapes.h"

#define KEY_SIZE	32

/* Up to so many rows of a generation are deleted one by one. */
#define FEW_ROWS	10000

#define MEMORY_MAX	(64 * 1024) /* kB */

/* What SetEpochTimestamp() returns, which takes its time for that. */
#define UNIX_EPOCH	((UNIX_EPOCH_JDATE - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY)

/* A row in the collapse: bytes without pointers. */
typedef struct CollapseRow
{
	uint32		size;
	uint32		hash;
	/* at ROW_TUPLE: the minimal tuple */
} CollapseRow;

#define ROW_TUPLE	MAXALIGN(sizeof(CollapseRow))

/* What is known of one identity: first and last event, and since when. */
typedef struct Chain
{
	int64		begun;			/* batch */
	int64		rows;			/* of this batch */
	MinimalTuple first;
	MinimalTuple last;
} Chain;

struct ScdcFlow
{
	ScdcWork   *work;
	ScdcFlowOptions options;
	const ScdcBatch *batch;
	ScdcStore  *store;
	Tuplestorestate *output;
	ScdcFlowResult result;

	MemoryContext context;		/* the flow's own */
	MemoryContext row_cxt;		/* reset after each row */
	TupleTableSlot *put_slot;
	TupleTableSlot *get_slot;
	TupleTableSlot *as_is_slot;
	StringInfoData chain;		/* room for one, as it is stored */
	int64		seq;
	int64		state_seq;
	int64		rows_read;		/* of the generation before */
	pg_crc32c	crc_read;
	pg_crc32c	crc_written;

	Tuplesortstate *waiting;	/* BUFFER: rows that are due; NET: rows by identity */
	Tuplesortstate *leaving;	/* NET: result, to be put into order */

	ScdcCollapse *collapse;		/* NULL: no pass runs here */
	ScdcTapes  *tapes;
	bool		in_commit;
	Datum		version;		/* of the commit under way */
	int64		ordinal;		/* its number, for the collapse */
	int64		commit_seq;

	Datum	   *values;			/* of work->desc */
	bool	   *isnull;
};

/* ---------------------------------------------------------------------
 * tuples
 * ---------------------------------------------------------------------
 */

/* The minimal tuple as a heap tuple, which it stays in. */
static HeapTupleData
heap_tuple(MinimalTuple m)
{
	HeapTupleData tuple;

	tuple.t_len = m->t_len + MINIMAL_TUPLE_OFFSET;
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = (HeapTupleHeader) ((char *) m - MINIMAL_TUPLE_OFFSET);
	return tuple;
}

static void
deform(ScdcFlow *f, MinimalTuple m)
{
	HeapTupleData tuple = heap_tuple(m);

	heap_deform_tuple(&tuple, f->work->desc, f->values, f->isnull);
}

static int64
number_of(ScdcFlow *f, MinimalTuple m, AttrNumber attno)
{
	HeapTupleData tuple = heap_tuple(m);
	bool		isnull;

	return DatumGetInt64(heap_getattr(&tuple, attno, f->work->desc, &isnull));
}

static ScdcChangeType
type_of(ScdcFlow *f, MinimalTuple m)
{
	HeapTupleData tuple = heap_tuple(m);
	AttrNumber	attno = f->work->change_type;
	Datum		value;
	bool		isnull;

	value = heap_getattr(&tuple, attno, f->work->desc, &isnull);
	f->values[attno - 1] = value;
	f->isnull[attno - 1] = isnull;
	return scdc_work_type(f->work, f->values, f->isnull);
}

static void
put_row(ScdcFlow *f, Tuplesortstate *sort, Datum *values, bool *isnull)
{
	ExecClearTuple(f->put_slot);
	memcpy(f->put_slot->tts_values, values, f->work->desc->natts * sizeof(Datum));
	memcpy(f->put_slot->tts_isnull, isnull, f->work->desc->natts * sizeof(bool));
	ExecStoreVirtualTuple(f->put_slot);
	tuplesort_puttupleslot(sort, f->put_slot);
}

/* Next row of a sort, good until the one after; NULL at the end. */
static MinimalTuple
next_row(ScdcFlow *f, Tuplesortstate *sort)
{
	bool		should_free;

	CHECK_FOR_INTERRUPTS();
	if (!tuplesort_gettupleslot(sort, true, false, f->get_slot, NULL))
		return NULL;
	return ExecFetchSlotMinimalTuple(f->get_slot, &should_free);
}

int
scdc_flow_memory(void)
{
	return Max(work_mem, Min(maintenance_work_mem, MEMORY_MAX));
}

static Tuplesortstate *
begin_sort(ScdcFlow *f, int nkeys, AttrNumber *attnos)
{
	Oid			operators[4];
	Oid			collations[4];
	bool		nulls_first[4] = {0};

	for (int i = 0; i < nkeys; i++)
	{
		Oid			type = TupleDescAttr(f->work->desc, attnos[i] - 1)->atttypid;

		operators[i] = type == TEXTOID ? TextLessOperator : type == INT4OID ? Int4LessOperator : Int8LessOperator;
		collations[i] = type == TEXTOID ? C_COLLATION_OID : InvalidOid;
	}
	return tuplesort_begin_heap(f->work->desc, nkeys, attnos, operators, collations, nulls_first, scdc_flow_memory(),
								NULL, TUPLESORT_NONE);
}

static void
end_sort(ScdcFlow *f, Tuplesortstate **sort)
{
	if (*sort == NULL)
		return;
	ExecClearTuple(f->get_slot);	/* its tuple is the sort's */
	tuplesort_end(*sort);
	*sort = NULL;
}

/* ---------------------------------------------------------------------
 * state
 * ---------------------------------------------------------------------
 */

static ScdcStoreKey
generation_key(char *room, int64 batch, char kind)
{
	uint64		n = pg_hton64((uint64) batch);
	ScdcStoreKey key;

	room[0] = 'g';
	memcpy(room + 1, &n, 8);
	room[9] = kind;
	key.data = room;
	key.len = kind ? 10 : 9;
	return key;
}

static void
add_number(char *room, ScdcStoreKey *key, uint64 number)
{
	uint64		n = pg_hton64(number);

	memcpy(room + key->len, &n, 8);
	key->len += 8;
}

/* All that a batch has left. */
static ScdcStoreScan *
scan_generation(ScdcFlow *f, int64 batch, char kind)
{
	char		from[KEY_SIZE];
	char		to[KEY_SIZE];

	return scdc_store_scan_begin(f->store, generation_key(from, batch, kind), generation_key(to, batch, kind + 1));
}

void
scdc_flow_forget(ScdcStore *store, int64 batch_id, int64 rows)
{
	char		from[KEY_SIZE];
	char		to[KEY_SIZE];

	if (rows > 0)
		scdc_store_delete_range(store, generation_key(from, batch_id, '\0'), generation_key(to, batch_id + 1, '\0'),
								rows <= FEW_ROWS);
}

/* What an unfinished try of this batch may have left would be taken for this one's. */
static void
forget_this_and_later(ScdcFlow *f)
{
	char		from[KEY_SIZE];
	char		to[KEY_SIZE];

	ScdcStoreKey first = generation_key(from, f->batch->batch_id, '\0');
	ScdcStoreKey last = generation_key(to, PG_INT64_MAX, '\0');

	if (scdc_store_any(f->store, first, last))
		scdc_store_delete_range(f->store, first, last, false);
}

static void
note_state_row(ScdcFlow *f, int64 begun, MinimalTuple oldest, Size size)
{
	f->result.state_rows++;
	f->result.state_bytes += size;
	if (f->result.state_rows == 1 || begun < f->result.oldest_batch)
	{
		HeapTupleData tuple = heap_tuple(oldest);
		MemoryContext old = MemoryContextSwitchTo(f->context);

		f->result.oldest_batch = begun;
		f->result.oldest_pending = scdc_work_version_text(f->work, &tuple);
		MemoryContextSwitchTo(old);
	}
}

/* Is the generation that was read the one that was written? */
static void
check_generation(ScdcFlow *f)
{
	FIN_CRC32C(f->crc_read);
	if (f->rows_read != f->options.expected_rows || (f->rows_read > 0 && f->crc_read != f->options.expected_crc))
		scdc_store_damaged(f->store, psprintf(INT64_FORMAT " rows were read where " INT64_FORMAT " were written, or others",
											  f->rows_read, f->options.expected_rows));
}

static void
state_put(ScdcFlow *f, ScdcStoreKey key, const void *value, Size len)
{
	COMP_CRC32C(f->crc_written, key.data, key.len);
	COMP_CRC32C(f->crc_written, value, len);
	scdc_store_put_sorted(f->store, key, value, len);
}

static bool
state_next(ScdcFlow *f, ScdcStoreScan *scan, ScdcStoreKey *key, ScdcStoreKey *value)
{
	if (!scdc_store_scan_next(scan, key, value))
		return false;
	COMP_CRC32C(f->crc_read, key->data, key->len);
	COMP_CRC32C(f->crc_read, value->data, value->len);
	f->rows_read++;
	return true;
}

static void
put_buffered(ScdcFlow *f, Datum *values, bool *isnull)
{
	char		room[KEY_SIZE];
	ScdcStoreKey key = generation_key(room, f->batch->batch_id, 'b');
	MinimalTuple tuple = heap_form_minimal_tuple(f->work->desc, values, isnull);

	add_number(room, &key, f->state_seq++);
	state_put(f, key, tuple, tuple->t_len);
	note_state_row(f, f->batch->batch_id, tuple, tuple->t_len);
}

/* A copy at an aligned address. */
static MinimalTuple
tuple_at(const char *data, Size len)
{
	MinimalTuple copy = palloc(len);

	memcpy(copy, data, len);
	if (len < SizeofMinimalTupleHeader || copy->t_len != len)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("a row in the state store is damaged")));
	return copy;
}

/* ---------------------------------------------------------------------
 * going out
 * ---------------------------------------------------------------------
 */

static void
put_out(ScdcFlow *f, Datum *values, bool *isnull)
{
	f->result.output_rows++;
	if (f->output)
		tuplestore_putvalues(f->output, f->work->batch, values + SCDC_WORK_FIRST, isnull + SCDC_WORK_FIRST);
}

/* As a row of the result of this type, which it may be already. */
static void
leave(ScdcFlow *f, MinimalTuple tuple, ScdcChangeType now, ScdcChangeType type)
{
	if (now == type)
	{
		ExecStoreMinimalTuple(tuple, f->as_is_slot, false);
		tuplesort_puttupleslot(f->leaving, f->as_is_slot);
		ExecClearTuple(f->as_is_slot);
		return;
	}
	deform(f, tuple);
	f->values[f->work->change_type - 1] = f->work->labels[type];
	f->isnull[f->work->change_type - 1] = false;
	f->values[f->work->rank - 1] = Int32GetDatum(scdc_change_is_delete_like(type) ? 0 : 1);
	put_row(f, f->leaving, f->values, f->isnull);
}

/* ---------------------------------------------------------------------
 * the collapse
 * ---------------------------------------------------------------------
 */

static MinimalTuple
tuple_of(const void *row)
{
	return (MinimalTuple) (unconstify(char *, (const char *) row) + ROW_TUPLE);
}

static uint32
collapse_size(const void *row, void *arg)
{
	return ((const CollapseRow *) row)->size;
}

static uint32
collapse_hash(const void *row, void *arg)
{
	return ((const CollapseRow *) row)->hash;
}

static bool
collapse_same_identity(const void *a, const void *b, void *arg)
{
	HeapTupleData x = heap_tuple(tuple_of(a));
	HeapTupleData y = heap_tuple(tuple_of(b));

	return scdc_work_same_identity(((ScdcFlow *) arg)->work, &x, &y);
}

static bool
collapse_has_row_version(const void *row, void *arg)
{
	ScdcFlow   *f = arg;
	HeapTupleData tuple = heap_tuple(tuple_of(row));

	return f->work->has_row_version && !heap_attisnull(&tuple, f->work->row_version.attno, f->work->desc);
}

static bool
collapse_same_row_version(const void *a, const void *b, void *arg)
{
	ScdcFlow   *f = arg;
	HeapTupleData x = heap_tuple(tuple_of(a));
	HeapTupleData y = heap_tuple(tuple_of(b));

	return scdc_work_same_value(f->work, &f->work->row_version, &x, &y);
}

static void
collapse_emit(const ScdcChangeRow *change, void *arg)
{
	ScdcFlow   *f = arg;

	CHECK_FOR_INTERRUPTS();
	deform(f, tuple_of(change->row));
	if (change->type != SCDC_CHANGE_OTHER)
	{
		f->values[f->work->change_type - 1] = f->work->labels[change->type];
		f->isnull[f->work->change_type - 1] = false;
		f->values[f->work->rank - 1] = Int32GetDatum(scdc_change_is_delete_like(change->type) ? 0 : 1);
	}
	if (f->options.way == SCDC_FLOW_NET)
		put_row(f, f->waiting, f->values, f->isnull);
	else
		put_out(f, f->values, f->isnull);
}

static void
collapse_error(ScdcCollapseError error, const ScdcChangeRow *row, void *arg)
{
	HeapTupleData tuple = heap_tuple(tuple_of(row->row));

	scdc_work_contract_error(((ScdcFlow *) arg)->work, error, &tuple);
}

static void *
collapse_file_create(void *arg)
{
	return scdc_tape_create(((ScdcFlow *) arg)->tapes);
}

static void
collapse_check_interrupts(void *arg)
{
	CHECK_FOR_INTERRUPTS();
}

static void
begin_collapse(ScdcFlow *f)
{
	ScdcCollapseOps ops = {
		.size = collapse_size,
		.hash = collapse_hash,
		.same_identity = collapse_same_identity,
		.has_row_version = collapse_has_row_version,
		.same_row_version = collapse_same_row_version,
		.emit = collapse_emit,
		.error = collapse_error,
		.file_create = collapse_file_create,
		.file_write = scdc_tape_write,
		.file_rewind = scdc_tape_rewind,
		.file_read = scdc_tape_read,
		.file_close = scdc_tape_close,
		.check_interrupts = collapse_check_interrupts,
		.arg = f,
	};
	ScdcCollapseOptions options = {
		.passes = f->options.passes,
		.compute_updates = f->options.compute_updates,
		.memory_limit = (Size) work_mem * 1024,
	};

	if (f->options.way == SCDC_FLOW_NET)
		options.passes.net_changes = false; /* that is what happens here, with state */
	if (!options.passes.drop_carryovers && !options.passes.detect_updates && !options.passes.net_changes)
		return;
	f->tapes = scdc_tapes_create(true);
	f->collapse = scdc_collapse_create(&ops, &options);
}

/* A row for the collapse; rows come in order of version, which may be text. */
static void
feed_collapse(ScdcFlow *f, Datum *values, bool *isnull)
{
	MinimalTuple tuple = heap_form_minimal_tuple(f->work->desc, values, isnull);
	CollapseRow *row = palloc(ROW_TUPLE + tuple->t_len);
	Datum		version = values[f->work->version - 1];
	ScdcChangeType type = scdc_work_type(f->work, values, isnull);	/* values may be ours, and used when the commit ends */
	bool		same;

	if (isnull[f->work->version - 1])
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("_commit_version is null in the change log"),
				 errhint("Such rows can be read with deduplicationMode \"none\".")));
	row->size = ROW_TUPLE + tuple->t_len;
	row->hash = (uint32) DatumGetInt64(values[f->work->hash - 1]);
	memcpy((char *) row + ROW_TUPLE, tuple, tuple->t_len);

	same = f->in_commit && (f->work->text_versions ?
							DatumGetBool(DirectFunctionCall2Coll(texteq, C_COLLATION_OID, version, f->version)) :
							DatumGetInt64(version) == DatumGetInt64(f->version));
	if (!same)
	{
		MemoryContext old;

		if (f->in_commit)
			scdc_collapse_end_commit(f->collapse);
		old = MemoryContextSwitchTo(f->context);
		f->version = f->work->text_versions ? PointerGetDatum(DatumGetTextPCopy(version)) : version;
		MemoryContextSwitchTo(old);
		f->in_commit = true;
		f->ordinal++;
		f->commit_seq = 0;
	}
	scdc_collapse_row(f->collapse, type, f->work->text_versions ? f->ordinal : DatumGetInt64(version), 0,
					  ++f->commit_seq, row);
}

static void
end_collapse(ScdcFlow *f)
{
	if (f->collapse == NULL)
		return;
	if (f->in_commit)
		scdc_collapse_end_commit(f->collapse);
	scdc_collapse_finish(f->collapse);
	scdc_tapes_end(f->tapes);
	f->collapse = NULL;
}

/* ---------------------------------------------------------------------
 * buffered rows
 * ---------------------------------------------------------------------
 */

static void
end_buffer(ScdcFlow *f)
{
	ScdcStoreScan *scan = scan_generation(f, f->batch->batch_id - 1, 'b');
	ScdcStoreKey key,
				value;
	MinimalTuple tuple;

	/* all that the batch before has left is due: the watermark has come to its newest row */
	while (state_next(f, scan, &key, &value))
	{
		MemoryContext old = MemoryContextSwitchTo(f->row_cxt);

		deform(f, tuple_at(value.data, value.len));
		put_row(f, f->waiting, f->values, f->isnull);
		f->result.removed_rows++;
		MemoryContextSwitchTo(old);
		MemoryContextReset(f->row_cxt);
	}
	scdc_store_scan_end(scan);
	check_generation(f);

	tuplesort_performsort(f->waiting);
	while ((tuple = next_row(f, f->waiting)) != NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(f->row_cxt);

		deform(f, tuple);
		/* a source that has done the row-level passes leaves nothing to be done */
		if (f->collapse)
			feed_collapse(f, f->values, f->isnull);
		else
			put_out(f, f->values, f->isnull);
		MemoryContextSwitchTo(old);
		MemoryContextReset(f->row_cxt);
	}
	end_collapse(f);
}

/* ---------------------------------------------------------------------
 * net changes
 * ---------------------------------------------------------------------
 */

static void
write_chain(ScdcFlow *f, const Chain *chain, uint64 hash, int ordinal)
{
	char		room[KEY_SIZE];
	ScdcStoreKey key = generation_key(room, f->batch->batch_id, 'n');
	StringInfo	value = &f->chain;

	add_number(room, &key, hash);
	add_number(room, &key, ordinal);
	resetStringInfo(value);
	appendBinaryStringInfo(value, (const char *) &chain->begun, sizeof(int64));
	appendBinaryStringInfo(value, (const char *) chain->first, chain->first->t_len);
	if (chain->last != chain->first)
		appendBinaryStringInfo(value, (const char *) chain->last, chain->last->t_len);
	state_put(f, key, value->data, value->len);
	note_state_row(f, chain->begun, chain->first, value->len);
}

static void
read_chain(ScdcStoreKey value, Chain *chain)
{
	const char *data = value.data;
	uint32		len;

	memset(chain, 0, sizeof(*chain));
	if (value.len < sizeof(int64) + SizeofMinimalTupleHeader)
		(void) tuple_at(data, 0);
	memcpy(&chain->begun, data, sizeof(int64));
	memcpy(&len, data + sizeof(int64), sizeof(uint32));
	if (len > value.len - sizeof(int64))
		(void) tuple_at(data, 0);
	chain->first = tuple_at(data + sizeof(int64), len);
	chain->last = value.len == sizeof(int64) + len ? chain->first :
		tuple_at(data + sizeof(int64) + len, value.len - sizeof(int64) - len);
}

/* Section 8's table. */
static void
emit_chain(ScdcFlow *f, const Chain *chain)
{
	ScdcChangeType first = type_of(f, chain->first);
	ScdcChangeType last = type_of(f, chain->last);
	ScdcNetResult net;

	if (first == SCDC_CHANGE_OTHER || last == SCDC_CHANGE_OTHER)
	{
		HeapTupleData tuple = heap_tuple(first == SCDC_CHANGE_OTHER ? chain->first : chain->last);

		scdc_work_contract_error(f->work, SCDC_ERROR_CHANGE_TYPE, &tuple);
	}
	net = scdc_net_result(first, last, f->options.compute_updates);
	if (net.before)
		leave(f, chain->first, first, net.before_type);
	if (net.after)
		leave(f, chain->last, last, net.after_type);
}

static bool
is_due(ScdcFlow *f, const Chain *chain)
{
	return number_of(f, chain->last, f->work->timestamp) <= f->batch->watermark;
}

/* Adds a row of this batch to the chain of its identity, among those of one hash. */
static List *
add_row(ScdcFlow *f, List *chains, MinimalTuple row)
{
	MinimalTuple copy = tuple_at((const char *) row, row->t_len);
	HeapTupleData tuple = heap_tuple(copy);
	Chain	   *chain = NULL;
	ListCell   *lc;

	foreach(lc, chains)
	{
		Chain	   *c = lfirst(lc);
		HeapTupleData first = heap_tuple(c->first);

		if (scdc_work_same_identity(f->work, &first, &tuple))
		{
			chain = c;
			break;
		}
	}
	if (chain == NULL)
	{
		chain = palloc0(sizeof(Chain));
		chain->begun = f->batch->batch_id;
		chain->first = copy;
		chains = lappend(chains, chain);
	}
	else
	{
		/* a label that is none of the four matters when there is more than one row of this batch */
		if (chain->rows > 0 && (type_of(f, chain->last) == SCDC_CHANGE_OTHER || type_of(f, copy) == SCDC_CHANGE_OTHER))
			scdc_work_contract_error(f->work, SCDC_ERROR_CHANGE_TYPE, &tuple);
		if (chain->last != chain->first)
			pfree(chain->last); /* an identity that changes all the time must not gather its rows here */
	}
	chain->last = copy;
	chain->rows++;
	return chains;
}

/* What this batch knows of one hash goes on, or out. */
static void
end_hash(ScdcFlow *f, List *chains, uint64 hash)
{
	int			ordinal = 0;
	ListCell   *lc;

	foreach(lc, chains)
	{
		Chain	   *chain = lfirst(lc);

		if (is_due(f, chain))
			emit_chain(f, chain);
		else
			write_chain(f, chain, hash, ordinal++);
	}
}

/* The state's next chain; false at the end. */
static bool
next_chain(ScdcFlow *f, ScdcStoreScan *scan, uint64 *hash, ScdcStoreKey *value)
{
	ScdcStoreKey key;

	if (!state_next(f, scan, &key, value))
		return false;
	if (key.len != 26)
		(void) tuple_at(key.data, 0);
	memcpy(hash, (const char *) key.data + 10, 8);
	*hash = pg_ntoh64(*hash);
	return true;
}

/*
 * Merges the state, in order of hash, with the batch's rows in the same
 * order.  A chain that this batch has no row of is due, since the watermark
 * has come to the newest row of the batch before.
 */
static void
end_net(ScdcFlow *f)
{
	ScdcStoreScan *scan = scan_generation(f, f->batch->batch_id - 1, 'n');
	MemoryContext hash_cxt = AllocSetContextCreate(f->context, "streamcdc identities", ALLOCSET_DEFAULT_SIZES);
	ScdcStoreKey value = {0};
	uint64		state_hash = 0;
	bool		has_state = next_chain(f, scan, &state_hash, &value);
	MinimalTuple row;
	MinimalTuple tuple;

	tuplesort_performsort(f->waiting);
	row = next_row(f, f->waiting);
	while (has_state || row)
	{
		MemoryContext old = MemoryContextSwitchTo(hash_cxt);
		uint64		row_hash = row ? (uint64) number_of(f, row, f->work->hash) ^ UINT64CONST(0x8000000000000000) : 0;
		uint64		hash = !has_state ? row_hash : !row ? state_hash : Min(row_hash, state_hash);
		List	   *chains = NIL;

		while (has_state && state_hash == hash)
		{
			Chain	   *chain = palloc(sizeof(Chain));

			read_chain(value, chain);
			chains = lappend(chains, chain);
			f->result.removed_rows++;
			has_state = next_chain(f, scan, &state_hash, &value);
		}
		while (row && row_hash == hash)
		{
			chains = add_row(f, chains, row);
			row = next_row(f, f->waiting);
			if (row)
				row_hash = (uint64) number_of(f, row, f->work->hash) ^ UINT64CONST(0x8000000000000000);
		}
		end_hash(f, chains, hash);
		MemoryContextSwitchTo(old);
		MemoryContextReset(hash_cxt);
	}
	scdc_store_scan_end(scan);
	check_generation(f);
	end_sort(f, &f->waiting);

	tuplesort_performsort(f->leaving);
	while ((tuple = next_row(f, f->leaving)) != NULL)
	{
		deform(f, tuple);
		put_out(f, f->values, f->isnull);
	}
}

/* ---------------------------------------------------------------------
 * the batch
 * ---------------------------------------------------------------------
 */

ScdcFlow *
scdc_flow_begin(ScdcWork *work, const ScdcFlowOptions *options, const ScdcBatch *batch, ScdcStore *store,
				Tuplestorestate *output)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "streamcdc flow", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	ScdcFlow   *f = palloc0(sizeof(ScdcFlow));

	f->work = work;
	f->options = *options;
	f->batch = batch;
	f->store = store;
	f->output = output;
	f->context = context;
	f->row_cxt = AllocSetContextCreate(context, "streamcdc row", ALLOCSET_DEFAULT_SIZES);
	f->values = palloc(work->desc->natts * sizeof(Datum));
	f->isnull = palloc(work->desc->natts * sizeof(bool));
	f->put_slot = MakeSingleTupleTableSlot(work->desc, &TTSOpsVirtual);
	f->get_slot = MakeSingleTupleTableSlot(work->desc, &TTSOpsMinimalTuple);
	f->as_is_slot = MakeSingleTupleTableSlot(work->desc, &TTSOpsMinimalTuple);
	initStringInfo(&f->chain);
	f->result.watermark = batch->watermark;
	f->result.min_timestamp = DT_NOEND;
	f->result.max_timestamp = DT_NOBEGIN;
	f->result.oldest_batch = batch->batch_id + 1;
	INIT_CRC32C(f->crc_read);
	INIT_CRC32C(f->crc_written);
	begin_collapse(f);
	if (options->way == SCDC_FLOW_BUFFER)
	{
		AttrNumber	by_version[] = {work->version, work->seq};

		f->waiting = begin_sort(f, 2, by_version);
		forget_this_and_later(f);
	}
	if (options->way == SCDC_FLOW_NET)
	{
		AttrNumber	by_identity[] = {work->hash, work->version, work->rank, work->seq};
		AttrNumber	by_version[] = {work->version, work->seq, work->rank};

		f->waiting = begin_sort(f, 4, by_identity);
		f->leaving = begin_sort(f, 3, by_version);
		forget_this_and_later(f);
	}
	MemoryContextSwitchTo(old);
	return f;
}

static void
note_timestamp(ScdcFlow *f, TimestampTz timestamp)
{
	ScdcFlowResult *r = &f->result;

	r->watermark = Max(r->watermark, timestamp);
	r->min_timestamp = Min(r->min_timestamp, timestamp);
	r->max_timestamp = Max(r->max_timestamp, timestamp);
	r->sum_timestamp += (timestamp - UNIX_EPOCH) / 1e6;
}

void
scdc_flow_row(ScdcFlow *f, Datum *values, bool *isnull)
{
	MemoryContext old;
	AttrNumber	ts = f->work->timestamp;

	f->result.input_rows++;
	if (!isnull[ts - 1])
		note_timestamp(f, DatumGetTimestampTz(values[ts - 1]));
	else if (f->options.guard)
	{
		scdc_stop_is_next();
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("_commit_timestamp is null in the change log"),
				 errdetail("Error condition: CHANGELOG_CONTRACT_VIOLATION.NULL_COMMIT_TIMESTAMP."),
				 errhint("Streams with post-processing need it for their watermark; deduplicationMode \"none\" does not.")));
	}

	if (f->options.way == SCDC_FLOW_STRAIGHT)
	{
		put_out(f, values, isnull);
		return;
	}
	if (f->options.way != SCDC_FLOW_COMMIT && DatumGetTimestampTz(values[ts - 1]) <= f->batch->late)
	{
		f->result.late_rows++;
		return;
	}

	old = MemoryContextSwitchTo(f->row_cxt);
	scdc_work_complete(f->work, values, isnull, ++f->seq);
	if (f->options.way == SCDC_FLOW_BUFFER)
	{
		if (DatumGetTimestampTz(values[ts - 1]) <= f->batch->watermark)
			put_row(f, f->waiting, values, isnull);
		else
			put_buffered(f, values, isnull);
	}
	else if (f->collapse)
		feed_collapse(f, values, isnull);
	else
		put_row(f, f->waiting, values, isnull);
	MemoryContextSwitchTo(old);
	MemoryContextReset(f->row_cxt);
}

void
scdc_flow_end(ScdcFlow *f, ScdcFlowResult *result)
{
	MemoryContext old = MemoryContextSwitchTo(f->context);

	switch (f->options.way)
	{
		case SCDC_FLOW_STRAIGHT:
			break;
		case SCDC_FLOW_COMMIT:
			end_collapse(f);
			break;
		case SCDC_FLOW_BUFFER:
			end_buffer(f);
			break;
		case SCDC_FLOW_NET:
			end_collapse(f);
			end_net(f);
			break;
	}
	end_sort(f, &f->waiting);
	end_sort(f, &f->leaving);
	ExecDropSingleTupleTableSlot(f->put_slot);
	ExecDropSingleTupleTableSlot(f->get_slot);
	ExecDropSingleTupleTableSlot(f->as_is_slot);
	MemoryContextSwitchTo(old);

	if (f->store)
		scdc_store_end_sorted(f->store);
	FIN_CRC32C(f->crc_written);
	f->result.state_crc = f->crc_written;
	*result = f->result;
	if (result->oldest_pending)
		result->oldest_pending = pstrdup(result->oldest_pending);
	MemoryContextDelete(f->context);
}
