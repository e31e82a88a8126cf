/*-------------------------------------------------------------------------
 *
 * slot.c
 *	  The replication slot and the decoding context (see slot.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "access/rmgr.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogreader.h"
#include "access/xlogrecord.h"
#include "access/xlogutils.h"
#include "miscadmin.h"
#include "replication/decode.h"
#include "replication/logical.h"
#include "replication/origin.h"
#include "replication/slot.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"

#include "capture/decode.h"
#include "capture/slot.h"

#define RECORD_BUFFER_MAX	(16 * 1024 * 1024)

static LogicalDecodingContext *ctx = NULL;
static bool saw_foreign_wal = false;

/*
 * From 15.19 on only listed plugins are accepted.  Ours refuses everybody but
 * the capture worker, so it is listed in this process alone, and nobody has
 * to widen the server's list.
 */
static void
allow_plugin(void)
{
	const char *current = GetConfigOption("output_plugin_libraries", true, false);

	if (current && strstr(current, "streamcdc") == NULL)
		SetConfigOption("output_plugin_libraries", psprintf("%s%sstreamcdc", current, current[0] ? ", " : ""),
						PGC_SUSET, PGC_S_OVERRIDE);
	scdc_decode_init();
}

/*
 * Reads WAL as far as it is flushed and never waits: at its end the worker
 * sleeps on its latch instead.  (The server's read_local_xlog_page would spin
 * when the flush position stands in the middle of a record.)
 */
static int
page_read(XLogReaderState *state, XLogRecPtr page, int req_len, XLogRecPtr target, char *buffer)
{
	TimeLineID	tli;
	XLogRecPtr	upto = GetFlushRecPtr(&tli);
	int			count;
	WALReadError error;

	if (page + XLOG_BLCKSZ <= upto)
		count = XLOG_BLCKSZ;
	else if (page + req_len > upto)
		return -1;
	else
		count = upto - page;
	XLogReadDetermineTimeline(state, page, req_len, tli);
	if (!WALRead(state, buffer, page, count, state->currTLI, &error))
		WALReadRaiseError(&error);
	return count;
}

void
scdc_slot_reserve(const char *name)
{
	allow_plugin();
	CheckLogicalDecodingRequirements();
	ReplicationSlotCreate(name, true, RS_EPHEMERAL, false);
}

XLogRecPtr
scdc_slot_build(void)
{
	LogicalDecodingContext *init;
	XLogRecPtr	result;

	/* inside a transaction, see scdc_slot_open */
	StartTransactionCommand();
	init = CreateInitDecodingContext("streamcdc", NIL, false, InvalidXLogRecPtr,
									 XL_ROUTINE(.page_read = read_local_xlog_page,
												.segment_open = wal_segment_open,
												.segment_close = wal_segment_close),
									 NULL, NULL, NULL);
	DecodingContextFindStartpoint(init);
	FreeDecodingContext(init);
	ReplicationSlotPersist();
	result = MyReplicationSlot->data.confirmed_flush;
	ReplicationSlotRelease();
	CommitTransactionCommand();
	InvalidateSystemCaches();
	return result;
}

char *
scdc_slot_problem(const char *name, XLogRecPtr position)
{
	ReplicationSlot *slot = SearchNamedReplicationSlot(name, true);
	ReplicationSlotPersistentData data;

	if (slot == NULL)
		return psprintf("Replication slot \"%s\" is missing.", name);
	SpinLockAcquire(&slot->mutex);
	data = slot->data;
	SpinLockRelease(&slot->mutex);

	if (data.database != MyDatabaseId || strcmp(NameStr(data.plugin), "streamcdc") != 0)
		return psprintf("Replication slot \"%s\" is not the one that streamcdc created.", name);
	if (XLogRecPtrIsInvalid(data.restart_lsn))
		return psprintf("Replication slot \"%s\" was invalidated because it held back more WAL than \"max_slot_wal_keep_size\" allows.", name);
	if (data.confirmed_flush > position)
		return psprintf("Replication slot \"%s\" is at %X/%X, ahead of the change log at %X/%X.",
						name, LSN_FORMAT_ARGS(data.confirmed_flush), LSN_FORMAT_ARGS(position));
	return NULL;
}

static void
close_slot(void)
{
	FreeDecodingContext(ctx);
	ctx = NULL;
	ReplicationSlotRelease();
}

void
scdc_slot_drop(const char *name)
{
	if (MyReplicationSlot && strcmp(NameStr(MyReplicationSlot->data.name), name) == 0)
	{
		if (ctx)
			close_slot();
		else
			ReplicationSlotRelease();
	}
	if (SearchNamedReplicationSlot(name, true) != NULL)
		ReplicationSlotDrop(name, true);
}

void
scdc_slot_open(const char *name, XLogRecPtr position)
{
	MemoryContext old;

	allow_plugin();

	/*
	 * The context must be made inside a transaction.  Outside one, the server
	 * takes this process for a walsender and sets PROC_IN_LOGICAL_DECODING for
	 * as long as the context lives: every other backend's snapshot would then
	 * ignore our transactions, and the rows we write would be lost.
	 */
	StartTransactionCommand();
	ReplicationSlotAcquire(name, true);
	old = MemoryContextSwitchTo(TopMemoryContext);
	ctx = CreateDecodingContext(position, NIL, false,
								XL_ROUTINE(.page_read = page_read,
										   .segment_open = wal_segment_open,
										   .segment_close = wal_segment_close),
								NULL, NULL, NULL);
	MemoryContextSwitchTo(old);
	CommitTransactionCommand();
	Assert((MyProc->statusFlags & PROC_IN_LOGICAL_DECODING) == 0);

	XLogBeginRead(ctx->reader, MyReplicationSlot->data.restart_lsn);
	InvalidateSystemCaches();
}

/*
 * The end of a transaction that is not ours.  Anything else (checkpoints,
 * running-xacts records, our own position being stored) also happens when
 * nobody uses the database, and must not by itself cause another write.
 */
static bool
is_foreign(XLogReaderState *reader)
{
	return XLogRecGetRmid(reader) == RM_XACT_ID && XLogRecGetOrigin(reader) != DoNotReplicateId;
}

bool
scdc_slot_read_record(void)
{
	char	   *error = NULL;
	XLogRecord *record;
	MemoryContext old;

	/* at the end of WAL: a reader that finds no record closes its file, to open it again the next time */
	if (GetFlushRecPtr(NULL) <= ctx->reader->EndRecPtr)
		return false;

	/* the reader allocates what it keeps (its buffer, for one) in the current context, so that must live as long as it */
	old = MemoryContextSwitchTo(ctx->context);
	record = XLogReadRecord(ctx->reader, &error);
	if (error)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read WAL for capture: %s", error)));
	if (record == NULL)
	{
		MemoryContextSwitchTo(old);
		return false;
	}
	if (!saw_foreign_wal && is_foreign(ctx->reader))
		saw_foreign_wal = true;
	LogicalDecodingProcessRecord(ctx, ctx->reader);
	MemoryContextSwitchTo(old);
	return true;
}

void
scdc_slot_trim(void)
{
	XLogReaderState *reader = ctx->reader;
	uint32		size = 5 * XLOG_BLCKSZ;

	/* nothing in it is needed between two records */
	if (reader->readRecordBufSize > RECORD_BUFFER_MAX)
	{
		MemoryContext old = MemoryContextSwitchTo(ctx->context);

		pfree(reader->readRecordBuf);
		reader->readRecordBuf = palloc(size);
		reader->readRecordBufSize = size;
		MemoryContextSwitchTo(old);
	}
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}

XLogRecPtr
scdc_slot_read_upto(void)
{
	return ctx->reader->EndRecPtr;
}

bool
scdc_slot_saw_foreign_wal(void)
{
	bool		result = saw_foreign_wal;

	saw_foreign_wal = false;
	return result;
}

void
scdc_slot_confirm(XLogRecPtr position)
{
	if (position > MyReplicationSlot->data.confirmed_flush)
		LogicalConfirmReceivedLocation(position);
}

XLogRecPtr
scdc_slot_restart_lsn(void)
{
	return MyReplicationSlot->data.restart_lsn;
}
