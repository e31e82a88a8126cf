/*-------------------------------------------------------------------------
 *
 * flow.c
 *	  One micro-batch: rows in, rows of "batch" out (see flow.h).
 *
 * Records of the state:
 *
 *		a row								one that is buffered
 *		batch, row, [row]					an identity: the batch its chain began
 *											with (a varint), first event, last event
 *											(if it is another)
 *
 * The former are in the order in which they came, the latter in that of their
 * rows' hashes.  Rows are packed (packed_row.h), after one another in each
 * pack of the generation.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "jobs/flow.h"
#include "jobs/generation.h"
#include "jobs/order.h"
#include "jobs/packed_row.h"
#include "sql/tapes.h"

#define MEMORY_MAX	(64 * 1024) /* kB */
#define GARBAGE_MAX ((Size) 16 * 1024)

/* What SetEpochTimestamp() returns, which takes its time for that. */
#define UNIX_EPOCH	((UNIX_EPOCH_JDATE - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY)

/* What is known of one identity: first and last event, and since when. */
typedef struct Chain
{
	int64		begun;			/* batch */
	int64		rows;			/* of this batch */
	const ScdcWorkRow *first;
	const ScdcWorkRow *last;
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
	MemoryContext row_cxt;		/* reset after each row, or some images */
	Size		garbage;		/* images since then */
	ScdcWorkBuffer row;			/* the one that has come in */
	TupleTableSlot *out_slot;	/* for rows that go out as they are; NULL: none do */
	int64		seq;
	ScdcGenerationReader before;	/* what the batch before has left */
	ScdcPackedBefore read;		/* the row that was read of it last */
	ScdcWorkBuffer first;		/* rows of the record that was read last */
	ScdcWorkBuffer last;
	Chain		known;			/* NET: that record */
	ScdcGenerationWriter after; /* what this one leaves */
	ScdcPackedBefore written;	/* the row that was written to it last */

	ScdcOrder  *waiting;		/* BUFFER: rows that are due; NET: rows by identity */
	ScdcOrder  *leaving;		/* NET: result, to be put into order */

	ScdcCollapse *collapse;		/* NULL: no pass runs here */
	ScdcTapes  *tapes;
	bool		in_commit;
	Datum		version;		/* of the commit under way */
	int64		ordinal;		/* its number, for the collapse */
	int64		commit_seq;

	Datum	   *values;			/* of work->desc */
	bool	   *isnull;
};

int
scdc_flow_memory(void)
{
	return Max(work_mem, Min(maintenance_work_mem, MEMORY_MAX));
}

/* ---------------------------------------------------------------------
 * state
 * ---------------------------------------------------------------------
 */

static void
note_state_row(ScdcFlow *f, int64 begun, const ScdcWorkRow *oldest, Size size)
{
	f->result.state_rows++;
	f->result.state_bytes += size;
	if (f->result.state_rows == 1 || begun < f->result.oldest_batch)
	{
		MemoryContext old = MemoryContextSwitchTo(f->context);

		f->result.oldest_batch = begun;
		f->result.oldest_pending = scdc_work_version_text(f->work, oldest);
		MemoryContextSwitchTo(old);
	}
}

static void
write_row(ScdcFlow *f, const ScdcWorkRow *row)
{
	ScdcBytes	rest = scdc_packed_row_rest(row);
	uint8	   *room = scdc_generation_room(&f->after, SCDC_PACKED_HEAD_MAX + rest.len);
	Size		head_len = scdc_packed_row_head(room, row, row->type, &f->written);

	memcpy(room + head_len, rest.data, rest.len);
	scdc_generation_add(&f->after, head_len + rest.len);
}

static void
begin_record(ScdcFlow *f)
{
	if (f->after.first)
		memset(&f->written, 0, sizeof(f->written));
}

static void
put_buffered(ScdcFlow *f, const ScdcWorkRow *row)
{
	begin_record(f);
	write_row(f, row);
	note_state_row(f, f->batch->batch_id, row, scdc_generation_end_record(&f->after));
}

/* The next record of what the batch before has left; false at the end. */
static bool
next_record(ScdcFlow *f, const uint8 **at, const uint8 **end)
{
	const char *data;
	Size		len;

	if (!scdc_generation_next(&f->before, &data, &len))
		return false;
	if (f->before.first)
		memset(&f->read, 0, sizeof(f->read));
	*at = (const uint8 *) data;
	*end = *at + len;
	f->result.removed_rows++;
	return true;
}

/* The row of a record that begins at *at, in the buffer. */
static const ScdcWorkRow *
read_row(ScdcFlow *f, const uint8 **at, const uint8 *end, ScdcWorkBuffer *buffer)
{
	ScdcWorkRow header;
	ScdcWorkRow *row;
	Size		rest;

	if (!scdc_packed_row_read(at, end, &header, &f->read) ||
		(rest = scdc_packed_row_rest(&header).len) > (Size) (end - *at))
		scdc_store_damaged(f->store, "a row is cut short");
	row = scdc_work_room(buffer, header.size);
	memcpy(scdc_packed_row_begin(row, &header, &f->read), *at, rest);
	*at += rest;
	return row;
}

/* Is what was read what the batch before has written? */
static void
end_reading(ScdcFlow *f)
{
	scdc_generation_check(&f->before, f->options.expected_rows, f->options.expected_crc);
}

/* ---------------------------------------------------------------------
 * going out
 * ---------------------------------------------------------------------
 */

static void
put_values(ScdcFlow *f, Datum *values, bool *isnull)
{
	f->result.output_rows++;
	if (f->output)
		tuplestore_putvalues(f->output, f->work->batch, values, isnull);
}

static void
put_out(ScdcFlow *f, const ScdcWorkRow *row, ScdcChangeType type)
{
	HeapTupleData tuple = scdc_work_tuple(row);

	if (f->output && f->out_slot && type == (ScdcChangeType) row->label)
	{
		f->result.output_rows++;
		ExecStoreMinimalTuple((MinimalTuple) ((char *) tuple.t_data + MINIMAL_TUPLE_OFFSET), f->out_slot, false);
		tuplestore_puttupleslot(f->output, f->out_slot);
		return;
	}
	scdc_work_deform(f->work, row, type, f->values, f->isnull);
	put_values(f, f->values, f->isnull);
}

/* ---------------------------------------------------------------------
 * the collapse
 * ---------------------------------------------------------------------
 */

static uint32
collapse_size(const void *row, void *arg)
{
	return ((const ScdcWorkRow *) row)->size;
}

static uint32
collapse_hash(const void *row, void *arg)
{
	return (uint32) ((const ScdcWorkRow *) row)->hash;
}

static bool
collapse_same_identity(const void *a, const void *b, void *arg)
{
	return scdc_work_same_identity(((ScdcFlow *) arg)->work, a, b);
}

static bool
collapse_has_row_version(const void *row, void *arg)
{
	ScdcFlow   *f = arg;
	HeapTupleData tuple = scdc_work_tuple(row);

	return f->work->has_row_version && !heap_attisnull(&tuple, f->work->row_version.attno, f->work->kept);
}

static bool
collapse_same_row_version(const void *a, const void *b, void *arg)
{
	ScdcFlow   *f = arg;

	return scdc_work_same_value(f->work, &f->work->row_version, a, b);
}

static void
collapse_emit(const ScdcChangeRow *change, void *arg)
{
	ScdcFlow   *f = arg;

	CHECK_FOR_INTERRUPTS();
	if (f->options.way == SCDC_FLOW_NET)
		scdc_order_put(f->waiting, change->row, change->type);
	else
		put_out(f, change->row, change->type);
}

static void
collapse_error(ScdcCollapseError error, const ScdcChangeRow *row, void *arg)
{
	scdc_work_contract_error(((ScdcFlow *) arg)->work, error, row->row);
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
feed_collapse(ScdcFlow *f, const ScdcWorkRow *row)
{
	bool		isnull;
	Datum		version = scdc_work_version(f->work, row, &isnull);
	bool		same;

	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("_commit_version is null in the change log"),
				 errhint("Such rows can be read with deduplicationMode \"none\".")));
	same = f->in_commit && (f->work->text_versions ?
							DatumGetBool(DirectFunctionCall2Coll(texteq, C_COLLATION_OID, version, f->version)) :
							DatumGetInt64(version) == DatumGetInt64(f->version));
	if (!same)
	{
		MemoryContext old;

		if (f->in_commit)
			scdc_collapse_end_commit(f->collapse);
		if (f->in_commit && f->work->text_versions)
			pfree(DatumGetPointer(f->version));
		old = MemoryContextSwitchTo(f->context);
		f->version = f->work->text_versions ? PointerGetDatum(DatumGetTextPCopy(version)) : version;
		MemoryContextSwitchTo(old);
		f->in_commit = true;
		f->ordinal++;
		f->commit_seq = 0;
	}
	scdc_collapse_row(f->collapse, row->type, f->work->text_versions ? f->ordinal : row->version, 0, ++f->commit_seq, row);
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
	const ScdcWorkRow *row;
	const uint8 *at;
	const uint8 *end;

	scdc_generation_read(&f->before, f->store, f->batch->batch_id - 1);
	/* all that the batch before has left is due: the watermark has come to its newest row */
	while (next_record(f, &at, &end))
	{
		row = read_row(f, &at, end, &f->first);
		scdc_order_put(f->waiting, row, row->type);
	}
	end_reading(f);

	scdc_order_finish(f->waiting);
	while ((row = scdc_order_next(f->waiting)) != NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(f->row_cxt);

		/* a source that has done the row-level passes leaves nothing to be done */
		if (f->collapse)
			feed_collapse(f, row);
		else
			put_out(f, row, row->type);
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
end_order(ScdcOrder **order)
{
	if (*order)
		scdc_order_end(*order);
	*order = NULL;
}

static void
write_chain(ScdcFlow *f, const Chain *chain)
{
	uint8	   *begun;

	begin_record(f);
	begun = scdc_generation_room(&f->after, SCDC_VARINT64_MAX);
	scdc_generation_add(&f->after, scdc_put_varint(begun, (uint64) chain->begun) - begun);
	write_row(f, chain->first);
	if (chain->last != chain->first)
		write_row(f, chain->last);
	note_state_row(f, chain->begun, chain->first, scdc_generation_end_record(&f->after));
}

/* The next chain of the state, in f->known; false at the end. */
static bool
next_known(ScdcFlow *f)
{
	const uint8 *at;
	const uint8 *end;
	uint64		begun;

	if (!next_record(f, &at, &end))
		return false;
	if (!scdc_get_varint(&at, end, &begun))
		scdc_store_damaged(f->store, "a record is cut short");
	f->known.begun = (int64) begun;
	f->known.rows = 0;
	f->known.first = read_row(f, &at, end, &f->first);
	f->known.last = at == end ? f->known.first : read_row(f, &at, end, &f->last);
	return true;
}

/* Section 8's table. */
static void
emit_chain(ScdcFlow *f, const Chain *chain)
{
	ScdcChangeType first = chain->first->type;
	ScdcChangeType last = chain->last->type;
	ScdcNetResult net;

	if (first == SCDC_CHANGE_OTHER || last == SCDC_CHANGE_OTHER)
		scdc_work_contract_error(f->work, SCDC_ERROR_CHANGE_TYPE, first == SCDC_CHANGE_OTHER ? chain->first : chain->last);
	net = scdc_net_result(first, last, f->options.compute_updates);
	if (net.before)
		scdc_order_put(f->leaving, chain->first, net.before_type);
	if (net.after)
		scdc_order_put(f->leaving, chain->last, net.after_type);
}

static bool
is_due(ScdcFlow *f, const Chain *chain)
{
	return chain->last->timestamp <= f->batch->watermark;
}

static const ScdcWorkRow *
copy_row(const ScdcWorkRow *row)
{
	ScdcWorkRow *copy = MemoryContextAllocHuge(CurrentMemoryContext, row->size);

	memcpy(copy, row, row->size);
	return copy;
}

static Chain *
copy_chain(const Chain *chain)
{
	Chain	   *copy = palloc(sizeof(Chain));

	*copy = *chain;
	copy->first = copy_row(chain->first);
	copy->last = chain->last == chain->first ? copy->first : copy_row(chain->last);
	return copy;
}

/* Adds a row of this batch to the chain of its identity, among those of one hash. */
static List *
add_row(ScdcFlow *f, List *chains, const ScdcWorkRow *row)
{
	const ScdcWorkRow *copy = copy_row(row);
	Chain	   *chain = NULL;
	ListCell   *lc;

	foreach(lc, chains)
	{
		Chain	   *c = lfirst(lc);

		if (scdc_work_same_identity(f->work, c->first, copy))
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
		if (chain->rows > 0 && (chain->last->type == SCDC_CHANGE_OTHER || copy->type == SCDC_CHANGE_OTHER))
			scdc_work_contract_error(f->work, SCDC_ERROR_CHANGE_TYPE, copy);
		/* an identity that changes all the time must not gather its rows here */
		if (chain->last != chain->first)
			pfree(unconstify(ScdcWorkRow *, chain->last));
	}
	chain->last = copy;
	chain->rows++;
	return chains;
}

/* What this batch knows of an identity goes on, or out. */
static void
end_chain(ScdcFlow *f, const Chain *chain)
{
	if (is_due(f, chain))
		emit_chain(f, chain);
	else
		write_chain(f, chain);
}

/* All that is known of a hash is one row of this batch. */
static void
end_single_row(ScdcFlow *f, const ScdcWorkRow *row)
{
	Chain		chain = {.begun = f->batch->batch_id,.rows = 1,.first = row,.last = row};

	end_chain(f, &chain);
}

/*
 * Merges the state, in order of hash, with the batch's rows in the same
 * order.  A chain that this batch has no row of is due, since the watermark
 * has come to the newest row of the batch before.
 */
static void
end_net(ScdcFlow *f)
{
	MemoryContext hash_cxt = AllocSetContextCreate(f->context, "streamcdc identities", ALLOCSET_DEFAULT_SIZES);
	bool		known;
	const ScdcWorkRow *row;

	scdc_generation_read(&f->before, f->store, f->batch->batch_id - 1);
	known = next_known(f);
	scdc_order_finish(f->waiting);
	row = scdc_order_next(f->waiting);
	while (known || row)
	{
		bool		known_first = known && (row == NULL || f->known.first->hash < row->hash);
		bool		row_first = row && (!known || row->hash < f->known.first->hash);

		/* mostly a hash is in one of the two only, and once */
		if (known_first)
		{
			end_chain(f, &f->known);
			known = next_known(f);
		}
		else if (row_first && !scdc_order_continues(f->waiting))
		{
			end_single_row(f, row);
			row = scdc_order_next(f->waiting);
		}
		else
		{
			MemoryContext old = MemoryContextSwitchTo(hash_cxt);
			uint64		hash = row->hash;
			List	   *chains = NIL;
			ListCell   *lc;

			for (; known && f->known.first->hash == hash; known = next_known(f))
				chains = lappend(chains, copy_chain(&f->known));
			for (; row && row->hash == hash; row = scdc_order_next(f->waiting))
				chains = add_row(f, chains, row);
			foreach(lc, chains)
				end_chain(f, lfirst(lc));
			MemoryContextSwitchTo(old);
			MemoryContextReset(hash_cxt);
		}
	}
	end_reading(f);
	end_order(&f->waiting);

	scdc_order_finish(f->leaving);
	while ((row = scdc_order_next(f->leaving)) != NULL)
		put_out(f, row, row->type);
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
	f->row.context = f->first.context = f->last.context = context;
	if (work->batch->natts == work->kept->natts)
		f->out_slot = MakeSingleTupleTableSlot(work->desc, &TTSOpsMinimalTuple);
	f->result.watermark = batch->watermark;
	f->result.min_timestamp = DT_NOEND;
	f->result.max_timestamp = DT_NOBEGIN;
	f->result.oldest_batch = batch->batch_id + 1;
	begin_collapse(f);
	if (options->way == SCDC_FLOW_BUFFER || options->way == SCDC_FLOW_NET)
	{
		bool		by_identity = options->way == SCDC_FLOW_NET;

		f->waiting = scdc_order_create(work, by_identity ? SCDC_BY_IDENTITY : SCDC_BY_VERSION, scdc_flow_memory());
		if (by_identity)
			f->leaving = scdc_order_create(work, SCDC_BY_VERSION, scdc_flow_memory());
		scdc_generation_write(&f->after, store, batch->batch_id);
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

static bool
is_late(ScdcFlow *f, TimestampTz timestamp)
{
	if (f->options.way == SCDC_FLOW_COMMIT || timestamp > f->batch->late)
		return false;
	f->result.late_rows++;
	return true;
}

static void
take_row(ScdcFlow *f, const ScdcWorkRow *row)
{
	if (f->options.way == SCDC_FLOW_BUFFER)
	{
		if (row->timestamp <= f->batch->watermark)
			scdc_order_put(f->waiting, row, row->type);
		else
			put_buffered(f, row);
	}
	else if (f->collapse)
		feed_collapse(f, row);
	else
		scdc_order_put(f->waiting, row, row->type);
}

/* A watermark that a row has carried to infinity would make all later rows late; one at -infinity would be lost itself. */
static void
no_time_error(bool isnull)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 isnull ? errmsg("_commit_timestamp is null in the change log") :
			 errmsg("_commit_timestamp is infinite in the change log"),
			 isnull ? errdetail("Error condition: CHANGELOG_CONTRACT_VIOLATION.NULL_COMMIT_TIMESTAMP.") : 0,
			 errhint("Streams with post-processing need a time for their watermark; deduplicationMode \"none\" does not.")));
}

void
scdc_flow_row(ScdcFlow *f, Datum *values, bool *isnull)
{
	MemoryContext old;
	AttrNumber	ts = f->work->timestamp;

	f->result.input_rows++;
	if (!isnull[ts - 1] && !TIMESTAMP_NOT_FINITE(DatumGetTimestampTz(values[ts - 1])))
		note_timestamp(f, DatumGetTimestampTz(values[ts - 1]));
	else if (f->options.guard)
		no_time_error(isnull[ts - 1]);

	if (f->options.way == SCDC_FLOW_STRAIGHT)
	{
		put_values(f, values, isnull);
		return;
	}
	if (is_late(f, DatumGetTimestampTz(values[ts - 1])))
		return;
	old = MemoryContextSwitchTo(f->row_cxt);
	take_row(f, scdc_work_form(f->work, &f->row, values, isnull, ++f->seq));
	MemoryContextSwitchTo(old);
	MemoryContextReset(f->row_cxt);
}

void
scdc_flow_image(ScdcFlow *f, const ScdcWorkImage *image)
{
	MemoryContext old;

	f->result.input_rows++;
	note_timestamp(f, image->timestamp);
	if (is_late(f, image->timestamp))
		return;
	old = MemoryContextSwitchTo(f->row_cxt);
	take_row(f, scdc_work_wrap(f->work, &f->row, image, ++f->seq));
	MemoryContextSwitchTo(old);

	/* a small row leaves little behind, if anything */
	f->garbage += image->image.len;
	if (f->garbage > GARBAGE_MAX)
	{
		MemoryContextReset(f->row_cxt);
		f->garbage = 0;
	}
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
	end_order(&f->waiting);
	end_order(&f->leaving);
	if (f->out_slot)
		ExecDropSingleTupleTableSlot(f->out_slot);
	MemoryContextSwitchTo(old);

	if (f->after.store)
	{
		scdc_generation_finish(&f->after);
		f->result.state_crc = f->after.crc;
	}
	*result = f->result;
	if (result->oldest_pending)
		result->oldest_pending = pstrdup(result->oldest_pending);
	MemoryContextDelete(f->context);
}
