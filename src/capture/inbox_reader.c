/*-------------------------------------------------------------------------
 *
 * inbox_reader.c
 *	  The capture worker's side of the inbox (see inbox_reader.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "capture/inbox_reader.h"
#include "log/inbox_rows.h"
#include "log/rows.h"

/* A rewrite whose rows were seen in WAL. */
typedef struct Rewrite
{
	Oid			new_heap;
	Oid			rewritten;
	TransactionId subxid;
	ScdcTracked *tracked;
	ScdcSchema *schema;
} Rewrite;

/* A transaction with rows in the inbox that are not needed any more. */
typedef struct Taken
{
	uint64		xid;
	XLogRecPtr	passed;			/* once the stored position is beyond this */
} Taken;

#define NOT_PASSED	PG_UINT64_MAX	/* not known yet */

static List *taken = NIL;		/* of Taken, in TopMemoryContext */

/* ---- events ---- */

static void
take_gap(TransactionId subxid, ScdcTracked *t, ScdcSchema *schema, uint8 flags, ScdcTakeEvent take)
{
	ScdcEvent	event = {.kind = SCDC_EVENT_GAP, .flags = flags};

	take(subxid, t, schema, &event);
}

/* The events of one row of the inbox. */
static void
take_block(const ScdcInboxRow *row, ScdcTracked *t, ScdcTakeEvent take)
{
	ScdcSchema *old_schema = row->old_schema.data ? scdc_collect_adopt_schema(t, row->old_schema, true) : NULL;
	ScdcSchema *schema = scdc_collect_adopt_schema(t, row->schema, false);
	ScdcBlockReader reader;
	ScdcEvent	event;
	const ScdcVersion *v;
	const char *error;
	int			rc;

	if (!scdc_block_open_versions(&reader, row->block.versions, row->block.versions_len, &error) ||
		!scdc_block_open_changes(&reader, row->block.changes, row->block.changes_len, &error))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("block in the inbox is damaged: %s", error)));
	while ((rc = scdc_block_next(&reader, &event, &v, &error)) > 0)
	{
		CHECK_FOR_INTERRUPTS();
		if (event.kind == SCDC_EVENT_UPDATE && old_schema && old_schema != schema)
			event.old_schema = old_schema->number;
		take(row->subxid, t, schema, &event);
	}
	if (rc < 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("block in the inbox is damaged: %s", error)));
	scdc_block_close(&reader);
}

static void
forget_rewrite(ScdcCommands *commands, Oid new_heap)
{
	ListCell   *lc;

	foreach(lc, commands->rewrites)
	{
		Rewrite    *r = lfirst(lc);

		if (r->new_heap != new_heap)
			continue;
		commands->rewrites = foreach_delete_current(commands->rewrites, lc);
		pfree(r);
	}
}

static void
take_row(ScdcCommands *commands, const ScdcInboxRow *row, ScdcTakeEvent take)
{
	ScdcTracked *t = scdc_collect_stream(row->stream_id, row->relid);
	MemoryContext old;

	if (t == NULL)
		return;					/* not tracked any more */
	switch (row->kind)
	{
		case SCDC_INBOX_EVENTS:
			scdc_commands_settle(commands, row->relid, take);
			take_block(row, t, take);
			break;
		case SCDC_INBOX_TRUNCATED:
			old = MemoryContextSwitchTo(commands->cxt);
			commands->truncated = lappend_oid(commands->truncated, row->relid);
			MemoryContextSwitchTo(old);
			break;
		case SCDC_INBOX_REWRITTEN:
			forget_rewrite(commands, row->new_heap);
			break;
		case SCDC_INBOX_GAP:
			take_gap(row->subxid, t, t->schema, 0, take);
			break;
		case SCDC_INBOX_ENDS:
			take_gap(row->subxid, t, t->schema, SCDC_EVENT_ENDS, take);
			break;
		default:
			elog(ERROR, "unexpected kind of row in the inbox: '%c'", row->kind);
	}
}

void
scdc_inbox_read(ScdcCommands *commands, uint64 xid, ScdcTakeEvent take)
{
	MemoryContext row_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc inbox row", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(row_cxt);
	ScdcInboxRow row;

	while (scdc_inbox_next(xid, commands->entry, NULL, &row))
	{
		take_row(commands, &row, take);
		commands->entry = row.entry;
		MemoryContextReset(row_cxt);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(row_cxt);
}

bool
scdc_commands_truncated(ScdcCommands *commands, Oid relid)
{
	ListCell   *lc;

	foreach(lc, commands->truncated)
	{
		if (lfirst_oid(lc) != relid)
			continue;
		commands->truncated = foreach_delete_current(commands->truncated, lc);
		return true;
	}
	return false;
}

void
scdc_commands_rewriting(ScdcCommands *commands, Oid new_heap, Oid rewritten, TransactionId subxid, ScdcTracked *t,
						ScdcSchema *schema)
{
	MemoryContext old;
	Rewrite    *r;

	/* its rows come one after the other */
	if (commands->rewrites != NIL && ((Rewrite *) llast(commands->rewrites))->new_heap == new_heap)
		return;
	old = MemoryContextSwitchTo(commands->cxt);
	r = palloc(sizeof(Rewrite));
	r->new_heap = new_heap;
	r->rewritten = rewritten;
	r->subxid = subxid;
	r->tracked = t;
	r->schema = schema;
	commands->rewrites = lappend(commands->rewrites, r);
	MemoryContextSwitchTo(old);
}

void
scdc_commands_settle(ScdcCommands *commands, Oid relid, ScdcTakeEvent take)
{
	ListCell   *lc;

	foreach(lc, commands->rewrites)
	{
		Rewrite    *r = lfirst(lc);

		if (OidIsValid(relid) && r->rewritten != relid)
			continue;
		take_gap(r->subxid, r->tracked, r->schema, 0, take);
		commands->rewrites = foreach_delete_current(commands->rewrites, lc);
		pfree(r);
	}
}

/* ---- removing rows ---- */

static void
note(uint64 xid, XLogRecPtr passed)
{
	MemoryContext old;
	Taken	   *item;
	ListCell   *lc;

	/* rows that were left over may turn out not to have been taken yet */
	foreach(lc, taken)
	{
		item = lfirst(lc);
		if (item->xid != xid)
			continue;
		item->passed = passed;
		return;
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	item = palloc(sizeof(Taken));
	item->xid = xid;
	item->passed = passed;
	taken = lappend(taken, item);
	MemoryContextSwitchTo(old);
}

static void
note_left_over(uint64 xid)
{
	note(xid, NOT_PASSED);
}

void
scdc_inbox_note_left_over(void)
{
	/* also of transactions that still run: they may be captured already, and not visible yet */
	scdc_inbox_each(SnapshotAny, note_left_over);
}

void
scdc_inbox_note_taken(uint64 xid)
{
	note(xid, InvalidXLogRecPtr);
}

void
scdc_inbox_clean(XLogRecPtr position)
{
	Snapshot	snapshot;
	ListCell   *lc;

	if (taken == NIL)
		return;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	foreach(lc, taken)
	{
		Taken	   *item = lfirst(lc);
		TransactionId xid = XidFromFullTransactionId(FullTransactionIdFromU64(item->xid));

		/*
		 * A commit is decoded once it is flushed, and may be visible only
		 * later, when it no longer waits for a standby; then its rows wait.
		 */
		if (XidInMVCCSnapshot(xid, snapshot) || TransactionIdIsInProgress(xid))
			continue;
		if (item->passed == NOT_PASSED)
			item->passed = GetXLogInsertRecPtr();	/* its end is before this */
		if (item->passed > position)
			continue;
		scdc_inbox_delete(item->xid, snapshot);
		taken = foreach_delete_current(taken, lc);
		pfree(item);
	}
	UnregisterSnapshot(snapshot);
}
