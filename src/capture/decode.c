/*-------------------------------------------------------------------------
 *
 * decode.c
 *	  The output plugin's callbacks.
 *
 * They run inside a transaction that the reorder buffer aborts, under a
 * historic snapshot: nothing is written here, and what is kept is copied by
 * collect.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "replication/logical.h"
#include "replication/message.h"
#include "replication/origin.h"
#include "replication/output_plugin.h"
#include "replication/reorderbuffer.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "capture/collect.h"
#include "capture/decode.h"
#include "capture/inbox_reader.h"
#include "capture/streamed.h"
#include "compat.h"
#include "ddl/inbox.h"
#include "log/image.h"
#include "worker.h"

static bool is_capture_worker = false;
static List *messages = NIL;		/* xids (as OIDs) of the transactions that had one */
static MemoryContext change_cxt;	/* reset after each change */
static ScdcCommands commands;	/* of the transaction being decoded, unless it still runs */

/* What is being decoded; running: a transaction that has not ended yet (streamed.h). */
static ReorderBufferTXN *txn_now;
static bool running;
static bool had_large_row = false;

#define LARGE_ROW	(16 * 1024 * 1024)

/* For the error context: what is being decoded. */
static struct
{
	TransactionId xid;
	XLogRecPtr	lsn;
	Oid			relid;
	char		relname[NAMEDATALEN];
}			at;

void
scdc_decode_init(void)
{
	is_capture_worker = true;
	change_cxt = AllocSetContextCreate(TopMemoryContext, "streamcdc change", ALLOCSET_DEFAULT_SIZES);
	commands.cxt = AllocSetContextCreate(TopMemoryContext, "streamcdc commands", ALLOCSET_SMALL_SIZES);
}

void
scdc_emit_message(void)
{
	LogLogicalMessage(SCDC_MESSAGE_PREFIX, "look", 4, true);
}

bool
scdc_decode_has_message(void)
{
	return messages != NIL;
}

bool
scdc_decode_take_message(void)
{
	ListCell   *lc;
	bool		result = false;

	foreach(lc, messages)
	{
		if (TransactionIdIsInProgress(lfirst_oid(lc)))
			continue;
		messages = foreach_delete_current(messages, lc);
		result = true;
	}
	return result;
}

bool
scdc_decode_take_large(void)
{
	bool		result = had_large_row;

	had_large_row = false;
	return result;
}

static void
note_message(TransactionId xid)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	messages = list_append_unique_oid(messages, xid);
	MemoryContextSwitchTo(old);
}

static void
error_context(void *arg)
{
	if (OidIsValid(at.relid))
		errcontext("while capturing a change of table \"%s\" (%u) in transaction %u, WAL position %X/%X",
				   at.relname, at.relid, at.xid, LSN_FORMAT_ARGS(at.lsn));
	else
		errcontext("while reading the inbox of transaction %u, WAL position %X/%X",
				   at.xid, LSN_FORMAT_ARGS(at.lsn));
}

static void
startup_cb(LogicalDecodingContext *ctx, OutputPluginOptions *options, bool is_init)
{
	/*
	 * The log is written by the capture worker and by nobody else.  A slot of
	 * this plugin in other hands would decode for nothing, or move on where
	 * it must not.
	 */
	if (!is_capture_worker)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("output plugin \"streamcdc\" cannot be used outside of its capture worker"),
				 errhint("SELECT stream_track('table_name'); reads changes of a table with stream_changes().")));
	options->output_type = OUTPUT_PLUGIN_BINARY_OUTPUT;

	/* the new rows of a rewritten table tell that there was a rewrite */
	options->receive_rewrites = true;

	/* large transactions come while they run (streamed.h), prepared ones when they commit */
	ctx->twophase = false;
}

/* 64-bit xid of a transaction in WAL: it is within two billion of the next one. */
static uint64
full_xid(TransactionId xid)
{
	static FullTransactionId recent = {0};

	if (!FullTransactionIdIsValid(recent) ||
		abs((int32) (xid - XidFromFullTransactionId(recent))) > 1000000000)
		recent = ReadNextFullTransactionId();
	return U64FromFullTransactionId(recent) + (int32) (xid - XidFromFullTransactionId(recent));
}

/* Where decoding is in the transaction's commands; without create NULL if there is nothing to know. */
static ScdcCommands *
commands_now(bool create)
{
	return running ? scdc_streamed_commands(txn_now->xid, create) : &commands;
}

static void
forget_commands(void)
{
	if (commands.entry == 0 && commands.truncated == NIL && commands.rewrites == NIL)
		return;
	MemoryContextReset(commands.cxt);
	commands.entry = 0;
	commands.truncated = commands.rewrites = NIL;
}

static void
take_event(TransactionId subxid, ScdcTracked *t, ScdcSchema *schema, const ScdcEvent *event)
{
	if (running)
		scdc_streamed_event(txn_now->xid, subxid, t, schema, event);
	else if (scdc_collect_begin_version(t, scdc_event_ends_log(event)))
		scdc_collect_event(t, schema, event);
}

static void
begin_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn)
{
	forget_commands();
	scdc_collect_begin(full_xid(txn->xid), txn->xact_time.commit_time, txn->end_lsn, txn->origin_id);
}

/* Makes the event of a change to one row; its images live in change_cxt. */
static ScdcEvent
row_event(const ScdcSchema *schema, const AttrMap *map, Relation rel, ReorderBufferChange *change)
{
	HeapTuple	old_tuple = scdc_change_tuple_compat(change->data.tp.oldtuple);
	HeapTuple	new_tuple = scdc_change_tuple_compat(change->data.tp.newtuple);
	bool		full = rel->rd_rel->relreplident == REPLICA_IDENTITY_FULL;
	ScdcEvent	event = {0};

	switch (change->action)
	{
		case REORDER_BUFFER_CHANGE_INSERT:
			event.kind = SCDC_EVENT_INSERT;
			break;
		case REORDER_BUFFER_CHANGE_UPDATE:
			event.kind = SCDC_EVENT_UPDATE;
			break;
		case REORDER_BUFFER_CHANGE_DELETE:
			event.kind = SCDC_EVENT_DELETE;
			break;
		default:
			elog(ERROR, "unexpected change action %d", (int) change->action);
	}
	if (event.kind != SCDC_EVENT_INSERT && (!full || old_tuple == NULL))
	{
		/* somebody changed the replica identity: say so rather than store half a row */
		event.flags |= SCDC_EVENT_INCOMPLETE;
		old_tuple = NULL;
	}
	if (old_tuple && event.kind != SCDC_EVENT_INSERT)
		event.old_image = scdc_image_make(schema, rel, map, old_tuple, NULL, SCDC_IMAGE_FROM_WAL);
	if (new_tuple && event.kind != SCDC_EVENT_DELETE)
		event.new_image = scdc_image_make(schema, rel, map, new_tuple, old_tuple,
										  event.flags & SCDC_EVENT_INCOMPLETE ? SCDC_IMAGE_FROM_WAL_INCOMPLETE :
										  SCDC_IMAGE_FROM_WAL);
	return event;
}

/*
 * The same, but a value that cannot be stored (too large, or its type's output
 * function fails) must cost only its own table: false then, with the reason.
 * Caught without a subtransaction, which is safe because decoding's
 * transactions are aborted anyway; what is not about the value goes on up:
 * lack of resources, I/O errors, shutdown, and the abort of a transaction
 * that is decoded while it runs.
 */
static bool
row_event_or_reason(const ScdcSchema *schema, const AttrMap *map, Relation rel, ReorderBufferChange *change,
					ScdcEvent *event, char **reason)
{
	MemoryContext cxt = CurrentMemoryContext;
	volatile bool ok = true;

	PG_TRY();
	{
		*event = row_event(schema, map, rel, change);
	}
	PG_CATCH();
	{
		ErrorData  *e;

		if (!scdc_error_is_about_value(geterrcode()))
			PG_RE_THROW();
		MemoryContextSwitchTo(cxt);
		e = CopyErrorData();
		FlushErrorState();
		*reason = psprintf("%s (table \"%s\", transaction %u, WAL position %X/%X)",
						   e->message, at.relname, at.xid, LSN_FORMAT_ARGS(at.lsn));
		ok = false;
	}
	PG_END_TRY();
	return ok;
}

/* A change to a relation. */
static void
decode_change(Relation rel, ReorderBufferChange *change)
{
	bool		truncate = change->action == REORDER_BUFFER_CHANGE_TRUNCATE;
	Oid			rewritten = rel->rd_rel->relrewrite;
	ScdcCommands *c;
	ScdcTracked *t;
	ScdcSchema *schema;
	const AttrMap *map = NULL;
	ScdcEvent	event;
	char	   *reason;

	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		return;					/* truncated; it has no rows, and its partitions are told of too */

	/* the new heap of a rewritten table: its rows are no changes, but the table may have other values now */
	t = OidIsValid(rewritten) ? scdc_collect_lookup_rewritten(rewritten, &schema) :
		scdc_collect_lookup(rel, &schema, &map);
	if (t == NULL)
		return;
	if (OidIsValid(rewritten))
	{
		scdc_commands_rewriting(commands_now(true), RelationGetRelid(rel), rewritten, change->txn->xid, t, schema);
		return;
	}
	c = commands_now(false);
	if (truncate && c && scdc_commands_truncated(c, RelationGetRelid(rel)))
		return;
	if (c && c->rewrites != NIL)
		scdc_commands_settle(c, RelationGetRelid(rel), take_event);
	if (!running && !scdc_collect_begin_version(t, false))
		return;

	if (truncate)
	{
		memset(&event, 0, sizeof(event));
		event.kind = SCDC_EVENT_TRUNCATE;
	}
	else if (!row_event_or_reason(schema, map, rel, change, &event, &reason))
	{
		memset(&event, 0, sizeof(event));
		event.kind = SCDC_EVENT_GAP;
		event.flags = SCDC_EVENT_ENDS | SCDC_EVENT_STALL;
		scdc_collect_stall(t, reason);
		had_large_row = true;	/* most likely */
	}
	if (event.old_image.len > LARGE_ROW || event.new_image.len > LARGE_ROW)
		had_large_row = true;

	take_event(change->txn->xid, t, schema, &event);
}

/*
 * Decodes a change (or, with rel NULL, a message that says to look into the
 * inbox) with its error context and memory, of a committed transaction or of one that is still running.
 */
static void
decode_safely(ReorderBufferTXN *txn, bool still_running, XLogRecPtr lsn, Relation rel, ReorderBufferChange *change)
{
	MemoryContext old;
	ErrorContextCallback callback;

	CHECK_FOR_INTERRUPTS();

	txn_now = txn;
	running = still_running;
	at.xid = txn->xid;
	at.lsn = lsn;
	at.relid = rel ? RelationGetRelid(rel) : InvalidOid;
	if (rel)
		strlcpy(at.relname, RelationGetRelationName(rel), NAMEDATALEN);
	callback.callback = error_context;
	callback.arg = NULL;
	callback.previous = error_context_stack;
	error_context_stack = &callback;

	old = MemoryContextSwitchTo(change_cxt);
	if (rel)
		decode_change(rel, change);
	else
		scdc_inbox_read(commands_now(true), full_xid(txn->xid), take_event);
	MemoryContextSwitchTo(old);
	MemoryContextReset(change_cxt);

	error_context_stack = callback.previous;
}

static void
change_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, Relation rel, ReorderBufferChange *change)
{
	decode_safely(txn, false, change->lsn, rel, change);
}

static void
truncate_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, int nrelations, Relation relations[],
			ReorderBufferChange *change)
{
	for (int i = 0; i < nrelations; i++)
		decode_safely(txn, false, change->lsn, relations[i], change);
}

static void
commit_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr commit_lsn)
{
	MemoryContext old = MemoryContextSwitchTo(change_cxt);

	txn_now = txn;
	running = false;
	scdc_commands_settle(&commands, InvalidOid, take_event);
	if (commands.entry > 0)
		scdc_inbox_note_taken(full_xid(txn->xid));
	scdc_collect_commit();
	MemoryContextSwitchTo(old);
	MemoryContextReset(change_cxt);
}

/* Is it about the inbox?  If so, it is not about what is tracked. */
static bool
is_about_inbox(Size size, const char *text)
{
	return size == strlen(SCDC_INBOX_MESSAGE) && memcmp(text, SCDC_INBOX_MESSAGE, size) == 0;
}

static void
message_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr message_lsn, bool transactional,
		   const char *prefix, Size size, const char *text)
{
	if (!transactional || strcmp(prefix, SCDC_MESSAGE_PREFIX) != 0)
		return;
	if (is_about_inbox(size, text))
		decode_safely(txn, false, message_lsn, NULL, NULL);
	else
		note_message(txn->xid);
}

/* ---- transactions that are still running, see streamed.h ---- */

static void
stream_start_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn)
{
}

static void
stream_stop_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn)
{
}

static void
stream_change_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, Relation rel, ReorderBufferChange *change)
{
	decode_safely(txn, true, change->lsn, rel, change);
}

static void
stream_truncate_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, int nrelations, Relation relations[],
				   ReorderBufferChange *change)
{
	for (int i = 0; i < nrelations; i++)
		decode_safely(txn, true, change->lsn, relations[i], change);
}

static void
stream_message_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr message_lsn, bool transactional,
				  const char *prefix, Size size, const char *text)
{
	if (!transactional || strcmp(prefix, SCDC_MESSAGE_PREFIX) != 0)
		return;
	if (is_about_inbox(size, text))
		decode_safely(txn, true, message_lsn, NULL, NULL);
	else
		scdc_streamed_message(txn->xid);
}

static void
stream_abort_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr abort_lsn)
{
	/* of a subtransaction: at commit it is missing from the list */
	if (!rbtxn_is_known_subxact(txn))
		scdc_streamed_abort(txn->xid);
}

static void
stream_commit_cb(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr commit_lsn)
{
	MemoryContext old = MemoryContextSwitchTo(change_cxt);
	TransactionId *committed = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(TransactionId) * ((Size) txn->nsubtxns + 1));
	int			ncommitted = 0;
	dlist_iter	iter;
	ScdcCommands *c;

	/* a subtransaction that was rolled back has left the list */
	committed[ncommitted++] = txn->xid;
	dlist_foreach(iter, &txn->subtxns)
		committed[ncommitted++] = dlist_container(ReorderBufferTXN, node, iter.cur)->xid;

	txn_now = txn;
	running = true;
	c = commands_now(false);
	if (c)
	{
		scdc_commands_settle(c, InvalidOid, take_event);
		if (c->entry > 0)
			scdc_inbox_note_taken(full_xid(txn->xid));
	}
	begin_cb(ctx, txn);
	if (scdc_streamed_commit(txn->xid, committed, ncommitted))
		note_message(txn->xid);
	scdc_collect_commit();
	MemoryContextSwitchTo(old);
	MemoryContextReset(change_cxt);
}

/* Our own writes, and only they, are marked so; rows applied by a subscription have an origin and are captured. */
static bool
filter_by_origin(LogicalDecodingContext *ctx, RepOriginId origin)
{
	return origin == DoNotReplicateId;
}

extern PGDLLEXPORT void _PG_output_plugin_init(OutputPluginCallbacks *cb);

void
_PG_output_plugin_init(OutputPluginCallbacks *cb)
{
	cb->startup_cb = startup_cb;
	cb->begin_cb = begin_cb;
	cb->change_cb = change_cb;
	cb->truncate_cb = truncate_cb;
	cb->commit_cb = commit_cb;
	cb->message_cb = message_cb;
	cb->filter_by_origin_cb = filter_by_origin;
	cb->stream_start_cb = stream_start_cb;
	cb->stream_stop_cb = stream_stop_cb;
	cb->stream_change_cb = stream_change_cb;
	cb->stream_truncate_cb = stream_truncate_cb;
	cb->stream_message_cb = stream_message_cb;
	cb->stream_abort_cb = stream_abort_cb;
	cb->stream_commit_cb = stream_commit_cb;
}
