/*-------------------------------------------------------------------------
 *
 * inbox_rows.c
 *	  The inbox as rows of streamcdc.inbox (see inbox_rows.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/xid8.h"

#include "log/inbox_rows.h"
#include "log/rows.h"

#define INBOX_INDEX "inbox_entry"

/* columns of streamcdc.inbox */
enum
{
	Anum_xid = 1,
	Anum_entry,
	Anum_stream_id,
	Anum_relid,
	Anum_kind,
	Anum_new_heap,
	Anum_schema,
	Anum_old_schema,
	Anum_versions,
	Anum_changes,
	Natts_inbox = Anum_changes
};

static void
set_bytes(Datum *values, bool *isnull, int attnum, const char *data, uint32 len)
{
	bytea	   *bytes;

	isnull[attnum - 1] = data == NULL;
	values[attnum - 1] = (Datum) 0;
	if (data == NULL)
		return;
	bytes = palloc(VARHDRSZ + (Size) len);
	SET_VARSIZE(bytes, VARHDRSZ + len);
	memcpy(VARDATA(bytes), data, len);
	values[attnum - 1] = PointerGetDatum(bytes);
}

static void
get_bytes(Datum *values, bool *isnull, int attnum, const char **data, uint32 *len)
{
	bytea	   *bytes;

	*data = NULL;
	*len = 0;
	if (isnull[attnum - 1])
		return;
	bytes = DatumGetByteaPP(values[attnum - 1]);
	*data = VARDATA_ANY(bytes);
	*len = VARSIZE_ANY_EXHDR(bytes);
}

void
scdc_inbox_insert(const ScdcInboxRow *row)
{
	Relation	rel = scdc_table_open(SCDC_INBOX, RowExclusiveLock);
	Datum		values[Natts_inbox];
	bool		isnull[Natts_inbox] = {0};

	values[Anum_xid - 1] = FullTransactionIdGetDatum(FullTransactionIdFromU64(row->xid));
	values[Anum_entry - 1] = Int64GetDatum(row->entry);
	values[Anum_stream_id - 1] = Int64GetDatum(row->stream_id);
	values[Anum_relid - 1] = ObjectIdGetDatum(row->relid);
	values[Anum_kind - 1] = CharGetDatum(row->kind);
	values[Anum_new_heap - 1] = ObjectIdGetDatum(row->new_heap);
	set_bytes(values, isnull, Anum_schema, row->schema.data, row->schema.len);
	set_bytes(values, isnull, Anum_old_schema, row->old_schema.data, row->old_schema.len);
	set_bytes(values, isnull, Anum_versions, row->block.versions, row->block.versions_len);
	set_bytes(values, isnull, Anum_changes, row->block.changes, row->block.changes_len);
	scdc_row_insert(rel, values, isnull);
	table_close(rel, NoLock);
}

static void
init_keys(ScanKey keys, uint64 xid, int64 after)
{
	ScanKeyInit(&keys[0], Anum_xid, BTEqualStrategyNumber, F_XID8EQ,
				FullTransactionIdGetDatum(FullTransactionIdFromU64(xid)));
	ScanKeyInit(&keys[1], Anum_entry, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(after));
}

/*
 * Was the row rolled back, or has it been deleted since, which is to say, has
 * the transaction been captured?  A historic snapshot may still see such a
 * row, but what it has out of line may be gone already.  That happens after a
 * restart: the reorder buffer keeps subtransactions that were rolled back
 * while it had them on disk, and may hand out parts of a transaction that it
 * will find, at its commit, to be skipped.
 */
static bool
is_gone(HeapTuple tuple)
{
	HeapTupleHeader header = tuple->t_data;
	TransactionId writer = HeapTupleHeaderGetRawXmin(header);

	if (!TransactionIdIsInProgress(writer) && !TransactionIdDidCommit(writer))
		return true;
	return (header->t_infomask & HEAP_XMAX_INVALID) == 0 && !HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask) &&
		TransactionIdDidCommit(HeapTupleHeaderGetUpdateXid(header));
}

static bool
copy_tuple(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	if (is_gone(tuple))
		return true;
	*(HeapTuple *) arg = heap_copytuple(tuple);
	return false;
}

bool
scdc_inbox_next(uint64 xid, int64 after, Snapshot snapshot, ScdcInboxRow *row)
{
	Oid			oid = scdc_table_oid(SCDC_INBOX);
	ScanKeyData keys[2];
	HeapTuple	tuple = NULL;
	Snapshot	registered;
	Relation	rel;
	Datum		values[Natts_inbox];
	bool		isnull[Natts_inbox];
	const char *bytes;

	memset(row, 0, sizeof(*row));
	if (!OidIsValid(oid))
		return false;

	/*
	 * Fetching what is out of line is a scan too.  It needs a registered
	 * snapshot, and must not happen inside the scan of the row: the end of a
	 * scan forbids further steps of any other while a running transaction is
	 * being decoded.
	 */
	registered = RegisterSnapshot(snapshot ? snapshot : GetCatalogSnapshot(oid));
	init_keys(keys, xid, after);
	scdc_rows_scan(SCDC_INBOX, INBOX_INDEX, 2, keys, false, registered, copy_tuple, &tuple);
	if (tuple == NULL)
	{
		UnregisterSnapshot(registered);
		return false;
	}

	rel = scdc_table_open(SCDC_INBOX, AccessShareLock);
	heap_deform_tuple(tuple, RelationGetDescr(rel), values, isnull);
	table_close(rel, NoLock);
	row->xid = xid;
	row->entry = DatumGetInt64(values[Anum_entry - 1]);
	row->stream_id = DatumGetInt64(values[Anum_stream_id - 1]);
	row->relid = DatumGetObjectId(values[Anum_relid - 1]);
	row->kind = DatumGetChar(values[Anum_kind - 1]);
	row->new_heap = DatumGetObjectId(values[Anum_new_heap - 1]);
	row->subxid = HeapTupleHeaderGetRawXmin(tuple->t_data);
	get_bytes(values, isnull, Anum_schema, &row->schema.data, &row->schema.len);
	get_bytes(values, isnull, Anum_old_schema, &row->old_schema.data, &row->old_schema.len);
	get_bytes(values, isnull, Anum_versions, &bytes, &row->block.versions_len);
	row->block.versions = unconstify(char *, bytes);
	get_bytes(values, isnull, Anum_changes, &bytes, &row->block.changes_len);
	row->block.changes = unconstify(char *, bytes);
	UnregisterSnapshot(registered);
	return true;
}

void
scdc_inbox_delete(uint64 xid, Snapshot snapshot)
{
	Relation	rel = scdc_table_open(SCDC_INBOX, RowExclusiveLock);
	ScanKeyData keys[2];

	init_keys(keys, xid, 0);
	(void) scdc_rows_delete(SCDC_INBOX, INBOX_INDEX, 2, keys, snapshot);
	table_close(rel, NoLock);
}

typedef struct EachState
{
	uint64		last;
	void		(*fn) (uint64 xid);
} EachState;

static bool
each_row(Relation rel, HeapTuple tuple, Datum *values, bool *isnull, void *arg)
{
	EachState  *st = arg;
	uint64		xid = U64FromFullTransactionId(DatumGetFullTransactionId(values[Anum_xid - 1]));

	if (xid != st->last)
		st->fn(xid);
	st->last = xid;
	return true;
}

void
scdc_inbox_each(Snapshot snapshot, void (*fn) (uint64 xid))
{
	EachState	st = {.fn = fn};

	scdc_rows_scan(SCDC_INBOX, INBOX_INDEX, 0, NULL, false, snapshot, each_row, &st);
}
