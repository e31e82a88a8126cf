/*-------------------------------------------------------------------------
 *
 * inbox.c
 *	  Recording what a command does to rows and WAL does not carry (see
 *	  inbox.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "replication/message.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "attempt.h"
#include "capture/decode.h"
#include "ddl/inbox.h"
#include "ddl/members.h"
#include "log/changelog.h"
#include "log/image.h"
#include "log/inbox_rows.h"
#include "log/rows.h"
#include "sql/json_row.h"

struct ScdcInboxWriter
{
	ScdcInboxRow row;
	ScdcBlockBuilder *builder;
	uint32		events;			/* in it */
	MemoryContext block_cxt;
};

ScdcStream *
scdc_ddl_stream(Oid relid)
{
	ScdcRegistered registered;
	Snapshot	snapshot;
	ScdcStream *stream;

	if (!OidIsValid(scdc_table_oid(SCDC_REGISTRY)) || !OidIsValid(scdc_table_oid(SCDC_INBOX)) ||
		!scdc_registry_lookup(relid, NULL, &registered))
		return NULL;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	stream = scdc_stream_by_id(registered.stream_id, snapshot);
	UnregisterSnapshot(snapshot);
	return stream && stream->state == SCDC_STATE_LIVE ? stream : NULL;
}

/* Numbers rise within a transaction, also across rolled-back subtransactions: capture reads on from the last one. */
static void
insert_row(ScdcInboxRow *row)
{
	static FullTransactionId numbered = {0};
	static int64 last_entry;
	FullTransactionId xid = GetTopFullTransactionId();

	if (!FullTransactionIdEquals(numbered, xid))
		last_entry = 0;
	numbered = xid;
	row->xid = U64FromFullTransactionId(xid);
	row->entry = ++last_entry;
	scdc_inbox_insert(row);
}

static void
emit_message(void)
{
	LogLogicalMessage(SCDC_MESSAGE_PREFIX, SCDC_INBOX_MESSAGE, strlen(SCDC_INBOX_MESSAGE), true);
}

static void
write_marker(const ScdcStream *stream, Oid relid, char kind)
{
	ScdcInboxRow row = {
		.stream_id = stream->stream_id,
		.relid = relid,
		.kind = kind,
	};

	insert_row(&row);
	emit_message();
}

void
scdc_inbox_write_truncated(Relation rel, const ScdcStream *stream)
{
	write_marker(stream, RelationGetRelid(rel), SCDC_INBOX_TRUNCATED);
}

void
scdc_inbox_write_gap(const ScdcStream *stream, Oid relid)
{
	write_marker(stream, relid, SCDC_INBOX_GAP);
}

void
scdc_inbox_write_end(const ScdcStream *stream, Oid relid)
{
	write_marker(stream, relid, SCDC_INBOX_ENDS);
}

/* ---- rows ---- */

ScdcInboxWriter *
scdc_inbox_writer_begin(const ScdcStream *stream, Oid relid, const ScdcSchema *schema, const ScdcSchema *old_schema,
						Oid new_heap)
{
	ScdcInboxWriter *w = palloc0(sizeof(ScdcInboxWriter));

	w->block_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc inbox block", ALLOCSET_DEFAULT_SIZES);
	w->builder = scdc_block_builder_create(SCDC_COMPRESSION);
	w->row.stream_id = stream->stream_id;
	w->row.relid = relid;
	if (OidIsValid(new_heap))
	{
		w->row.kind = SCDC_INBOX_REWRITTEN;
		w->row.new_heap = new_heap;
		insert_row(&w->row);
		w->row.new_heap = InvalidOid;
	}
	w->row.kind = SCDC_INBOX_EVENTS;
	w->row.schema = scdc_schema_pack(schema);
	if (old_schema)
		w->row.old_schema = scdc_schema_pack(old_schema);
	return w;
}

static void
flush_block(ScdcInboxWriter *w)
{
	MemoryContext old;

	if (w->events == 0)
		return;
	old = MemoryContextSwitchTo(w->block_cxt);
	scdc_block_finish(w->builder, &w->row.block);
	insert_row(&w->row);
	MemoryContextSwitchTo(old);
	MemoryContextReset(w->block_cxt);
	w->events = 0;
}

void
scdc_inbox_writer_add(ScdcInboxWriter *w, const ScdcEvent *event)
{
	static const ScdcVersion none = {.version = 1};
	uint64		size = (uint64) event->old_image.len + event->new_image.len;

	if (w->events > 0 && scdc_block_raw_size(w->builder) + size > SCDC_BLOCK_RAW_MAX)
		flush_block(w);
	scdc_block_begin_version(w->builder, &none);
	scdc_block_add(w->builder, event);
	w->events++;
}

void
scdc_inbox_writer_end(ScdcInboxWriter *w)
{
	flush_block(w);
	emit_message();
	MemoryContextDelete(w->block_cxt);
	pfree(w);
}

void
scdc_output_begin(ScdcOwnerScope *mode, Relation rel)
{
	scdc_owner_begin(mode, rel->rd_rel->relowner);
	(void) scdc_pin_output_settings();
}

void
scdc_inbox_write_rows(Relation rel, const ScdcStream *stream, ScdcEventKind kind)
{
	AttrMap    *map;
	ScdcSchema *schema = scdc_member_schema(rel, stream, &map);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	MemoryContext row_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc inbox row", ALLOCSET_DEFAULT_SIZES);
	ScdcInboxWriter *writer = NULL;
	ScdcOwnerScope mode;

	Assert(kind == SCDC_EVENT_INSERT || kind == SCDC_EVENT_DELETE);
	scdc_output_begin(&mode, rel);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		MemoryContext old = MemoryContextSwitchTo(row_cxt);
		ScdcBytes	image = scdc_image_make(schema, rel, map, ExecCopySlotHeapTuple(slot), NULL, SCDC_IMAGE_FROM_TABLE);
		ScdcEvent	event = {.kind = kind};

		CHECK_FOR_INTERRUPTS();
		if (kind == SCDC_EVENT_INSERT)
			event.new_image = image;
		else
			event.old_image = image;
		MemoryContextSwitchTo(old);
		if (writer == NULL)
			writer = scdc_inbox_writer_begin(stream, RelationGetRelid(rel), schema, NULL, InvalidOid);
		scdc_inbox_writer_add(writer, &event);
		MemoryContextReset(row_cxt);
	}
	scdc_owner_end(&mode);
	if (writer)
		scdc_inbox_writer_end(writer);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	MemoryContextDelete(row_cxt);
}

/* ---- failing safely ---- */

bool
scdc_ddl_try(ScdcDdlFn fn, void *arg, const char *what)
{
	ErrorData  *e = scdc_attempt(fn, arg);

	if (e == NULL)
		return true;
	if (ERRCODE_TO_CATEGORY(e->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION || e->sqlerrcode == ERRCODE_OUT_OF_MEMORY)
		ReThrowError(e);
	ereport(WARNING,
			(errcode(e->sqlerrcode),
			 errmsg("could not record %s in the change log", what),
			 errdetail_internal("%s", e->message)));
	return false;
}
