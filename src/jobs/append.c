/*-------------------------------------------------------------------------
 *
 * append.c
 *	  Rows of a query, appended to an ordinary table many at a time (see
 *	  append.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "tcop/dest.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rls.h"

#include "jobs/append.h"

/* As COPY has them: so many rows are put down at once, or rows of so many bytes. */
#define ROWS_MAX	1000
#define BYTES_MAX	65535

typedef struct Appender
{
	DestReceiver pub;			/* must be first */
	Relation	sink;
	List	   *columns;
	AttrNumber *attnums;		/* where the query's columns go */
	EState	   *estate;
	ResultRelInfo *target;
	CommandId	cid;
	MemoryContext context;		/* the appender's own */
	MemoryContext rows_cxt;		/* reset after each time */
	bool		as_is;			/* are the query's rows laid out like the sink's? */
	TupleTableSlot *slots[ROWS_MAX];
	int			nslots;
	Size		bytes;
	int64		rows;
} Appender;

static AttrNumber
attnum_of(Relation sink, const char *column)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(sink), column);

	return attnum > 0 ? attnum : InvalidAttrNumber;
}

/* Does the column take NULL if it is not named, and nothing else? */
static bool
may_be_left_out(Form_pg_attribute att)
{
	return att->attisdropped ||
		(!att->atthasdef && att->attidentity == '\0' && att->attgenerated == '\0' &&
		 get_typtype(att->atttypid) != TYPTYPE_DOMAIN);
}

bool
scdc_append_possible(Relation sink, TupleDesc desc, List *columns)
{
	TupleDesc	to = RelationGetDescr(sink);
	bool	   *named = palloc0(to->natts * sizeof(bool));
	ListCell   *lc;

	/* somebody who watches what is written must see an INSERT */
	if (ExecutorCheckPerms_hook || XactReadOnly)
		return false;
	if (sink->rd_rel->relkind != RELKIND_RELATION || sink->trigdesc || sink->rd_rules || sink->rd_rel->relispartition ||
		check_enable_rls(RelationGetRelid(sink), InvalidOid, true) != RLS_NONE ||
		pg_class_aclcheck(RelationGetRelid(sink), GetUserId(), ACL_INSERT) != ACLCHECK_OK)
		return false;

	foreach(lc, columns)
	{
		AttrNumber	attnum = attnum_of(sink, lfirst(lc));
		Form_pg_attribute att,
					from = NULL;

		for (int i = 0; i < desc->natts; i++)
			if (strcmp(NameStr(TupleDescAttr(desc, i)->attname), lfirst(lc)) == 0)
				from = TupleDescAttr(desc, i);
		if (attnum == InvalidAttrNumber || from == NULL)
			return false;
		att = TupleDescAttr(to, attnum - 1);
		if (att->atttypid != from->atttypid || (att->atttypmod != -1 && att->atttypmod != from->atttypmod) ||
			att->attgenerated != '\0')
			return false;
		named[attnum - 1] = true;
	}
	for (int i = 0; i < to->natts; i++)
		if (!named[i] && !may_be_left_out(TupleDescAttr(to, i)))
			return false;
	return true;
}

static void
put_down(Appender *a)
{
	MemoryContext old;

	if (a->nslots == 0)
		return;
	CHECK_FOR_INTERRUPTS();
	old = MemoryContextSwitchTo(a->rows_cxt);
	table_multi_insert(a->sink, a->slots, a->nslots, a->cid, 0, NULL);
	MemoryContextSwitchTo(old);

	for (int i = 0; i < a->nslots; i++)
	{
		if (a->target->ri_NumIndices > 0)
		{
			list_free(ExecInsertIndexTuples(a->target, a->slots[i], a->estate, false, false, NULL, NIL));
			ResetPerTupleExprContext(a->estate);
		}
		ExecClearTuple(a->slots[i]);
	}
	MemoryContextReset(a->rows_cxt);
	a->rows += a->nslots;
	a->nslots = 0;
	a->bytes = 0;
}

/* Are the columns of the rows those of the sink, all of them and in their order? */
static bool
is_laid_out_alike(const Appender *a, TupleDesc desc)
{
	TupleDesc	to = RelationGetDescr(a->sink);

	/* another table access method has slots of its own */
	if (table_slot_callbacks(a->sink) != &TTSOpsBufferHeapTuple || desc->natts != to->natts ||
		list_length(a->columns) != to->natts)
		return false;
	for (int i = 0; i < to->natts; i++)
		if (a->attnums[i] != i + 1 || TupleDescAttr(desc, i)->atttypid != TupleDescAttr(to, i)->atttypid)
			return false;
	return true;
}

static TupleTableSlot *
make_slot(Appender *a)
{
	MemoryContext old = MemoryContextSwitchTo(a->context);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(a->sink),
													a->as_is ? &TTSOpsHeapTuple : table_slot_callbacks(a->sink));

	MemoryContextSwitchTo(old);
	return slot;
}

/* A copy of the row, as it stands. */
static void
copy_row(Appender *a, TupleTableSlot *slot, TupleTableSlot *row)
{
	MemoryContext old = MemoryContextSwitchTo(a->rows_cxt);

	ExecStoreHeapTuple(ExecCopySlotHeapTuple(row), slot, false);
	MemoryContextSwitchTo(old);
}

/* Each column to its place. */
static void
form_row(Appender *a, TupleTableSlot *slot, TupleTableSlot *row)
{
	int			n = list_length(a->columns);

	slot_getsomeattrs(row, n);
	ExecClearTuple(slot);
	memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts * sizeof(bool));
	for (int i = 0; i < n; i++)
	{
		slot->tts_values[a->attnums[i] - 1] = row->tts_values[i];
		slot->tts_isnull[a->attnums[i] - 1] = row->tts_isnull[i];
	}
	ExecStoreVirtualTuple(slot);
	ExecMaterializeSlot(slot);
}

static bool
receive_row(TupleTableSlot *row, DestReceiver *self)
{
	Appender   *a = (Appender *) self;
	TupleTableSlot *slot;
	HeapTuple	tuple;
	bool		should_free;

	if (a->slots[a->nslots] == NULL)
		a->slots[a->nslots] = make_slot(a);
	slot = a->slots[a->nslots];
	if (a->as_is)
		copy_row(a, slot, row);
	else
		form_row(a, slot, row);
	slot->tts_tableOid = RelationGetRelid(a->sink);
	if (a->sink->rd_att->constr)
	{
		ExecConstraints(a->target, slot, a->estate);
		ResetPerTupleExprContext(a->estate);
	}
	a->nslots++;
	tuple = ExecFetchSlotHeapTuple(slot, false, &should_free);
	a->bytes += tuple->t_len;
	if (a->nslots == ROWS_MAX || a->bytes > BYTES_MAX)
		put_down(a);
	return true;
}

static void
receive_start(DestReceiver *self, int operation, TupleDesc desc)
{
	Appender   *a = (Appender *) self;

	/* that of the snapshot under which the query runs, which so does not see what it writes */
	a->cid = GetCurrentCommandId(true);
	a->as_is = is_laid_out_alike(a, desc);
}

static void
receive_end(DestReceiver *self)
{
	put_down((Appender *) self);
}

static void
receive_destroy(DestReceiver *self)
{
}

int64
scdc_append(Relation sink, const char *select, List *columns)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "streamcdc append", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Appender   *a = palloc0(sizeof(Appender));
	SPIPlanPtr	plan = SPI_prepare(select, 0, NULL);	/* not a parallel one, as for INSERT */
	SPIExecuteOptions options = {0};
	ListCell   *lc;
	int64		rows;
	int			result;

	a->pub.receiveSlot = receive_row;
	a->pub.rStartup = receive_start;
	a->pub.rShutdown = receive_end;
	a->pub.rDestroy = receive_destroy;
	a->pub.mydest = DestNone;
	a->sink = sink;
	a->columns = columns;
	a->context = context;
	a->rows_cxt = AllocSetContextCreate(context, "streamcdc appended rows", ALLOCSET_DEFAULT_SIZES);
	a->attnums = palloc(Max(list_length(columns), 1) * sizeof(AttrNumber));
	foreach(lc, columns)
		a->attnums[foreach_current_index(lc)] = attnum_of(sink, lfirst(lc));
	a->estate = CreateExecutorState();
	a->target = makeNode(ResultRelInfo);
	InitResultRelInfo(a->target, sink, 0, NULL, 0);
	CheckValidResultRel(a->target, CMD_INSERT);
	ExecOpenIndices(a->target, false);
	MemoryContextSwitchTo(old);

	options.dest = &a->pub;
	result = plan ? SPI_execute_plan_extended(plan, &options) : SPI_result;
	if (result < 0)
		elog(ERROR, "could not run the query: %s", SPI_result_code_string(result));
	SPI_freeplan(plan);

	ExecCloseIndices(a->target);
	for (int i = 0; i < ROWS_MAX && a->slots[i]; i++)
		ExecDropSingleTupleTableSlot(a->slots[i]);
	FreeExecutorState(a->estate);
	rows = a->rows;
	MemoryContextDelete(context);
	return rows;
}
