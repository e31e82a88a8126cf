/*-------------------------------------------------------------------------
 *
 * compare.c
 *	  What differs between a table and its log (see compare.h).
 *
 * Rows of both are sorted by digests of their columns' text.  Of those that
 * share one, as many as there are on both sides are equal, and the rest differs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type.h"
#include "common/sha2.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/tuplesort.h"

#include "log/image.h"
#include "owner.h"
#include "sql/compare.h"
#include "sql/fold.h"
#include "sql/json_row.h"

/* columns of what is sorted */
enum
{
	S_DIGEST = 1,
	S_SCHEMA,					/* IN_TABLE: the table's own */
	S_IMAGE,
	S_COLUMNS = S_IMAGE
};

#define IN_TABLE	0

/* Rows with one digest. */
typedef struct Group
{
	char		digest[PG_SHA256_DIGEST_LENGTH];
	int64		in_table;
	int64		in_log;
	MemoryContext context;
	int32		schema;			/* of the one that is kept, of the side of which there are more so far */
	ScdcBytes	image;
} Group;

typedef struct Comparison
{
	const ScdcTarget *target;
	ScdcRowSchemas *schemas;
	ScdcRowSchema table_schema;
	Snapshot	log;
	Tuplesortstate *sort;
	TupleTableSlot *in;
	ScdcRowView view;
	MemoryContext row_cxt;
	ScdcDifferenceFn fn;
	void	   *arg;
} Comparison;

static void
begin_sorting(Comparison *c)
{
	TupleDesc	desc = CreateTemplateTupleDesc(S_COLUMNS);
	AttrNumber	attnum = S_DIGEST;
	Oid			operator = ByteaLessOperator;
	Oid			collation = InvalidOid;
	bool		nulls_first = false;

	TupleDescInitEntry(desc, S_DIGEST, "digest", BYTEAOID, -1, 0);
	TupleDescInitEntry(desc, S_SCHEMA, "schema", INT4OID, -1, 0);
	TupleDescInitEntry(desc, S_IMAGE, "image", BYTEAOID, -1, 0);
	c->in = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	c->sort = tuplesort_begin_heap(desc, 1, &attnum, &operator, &collation, &nulls_first, work_mem, NULL, TUPLESORT_NONE);
}

/* In row_cxt. */
static void
put_row(Comparison *c, ScdcRowView *row, int32 schema)
{
	bytea	   *image = palloc(VARHDRSZ + (Size) row->image.len);

	SET_VARSIZE(image, VARHDRSZ + row->image.len);
	memcpy(VARDATA(image), row->image.data, row->image.len);
	ExecClearTuple(c->in);
	memset(c->in->tts_isnull, 0, S_COLUMNS * sizeof(bool));
	c->in->tts_values[S_DIGEST - 1] = PointerGetDatum(scdc_row_digest(row, c->table_schema.schema, c->log));
	c->in->tts_values[S_SCHEMA - 1] = Int32GetDatum(schema);
	c->in->tts_values[S_IMAGE - 1] = PointerGetDatum(image);
	ExecStoreVirtualTuple(c->in);
	tuplesort_puttupleslot(c->sort, c->in);
}

static void
read_table(Comparison *c, Relation root, Oid relid, Snapshot snapshot)
{
	Relation	rel = table_open(relid, NoLock);
	AttrMap    *map = relid == RelationGetRelid(root) ? NULL : scdc_image_map(rel, root);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		MemoryContext old = MemoryContextSwitchTo(c->row_cxt);

		CHECK_FOR_INTERRUPTS();
		scdc_row_view_set(&c->view, &c->table_schema,
						  scdc_image_make(c->table_schema.schema, rel, map, ExecCopySlotHeapTuple(slot), NULL, SCDC_IMAGE_FROM_TABLE));
		put_row(c, &c->view, IN_TABLE);
		MemoryContextSwitchTo(old);
		MemoryContextReset(c->row_cxt);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
}

static void
read_log(Comparison *c, Snapshot snapshot)
{
	ScdcFold   *fold = scdc_fold_begin(c->target, PG_INT64_MAX, c->log, snapshot);
	ScdcRowView *row;

	while ((row = scdc_fold_next(fold)) != NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(c->row_cxt);

		put_row(c, row, row->schema->schema->number);
		MemoryContextSwitchTo(old);
		MemoryContextReset(c->row_cxt);
	}
	scdc_fold_end(fold);
}

static void
end_group(Comparison *c, Group *g)
{
	int64		n = Max(g->in_table, g->in_log) - Min(g->in_table, g->in_log);

	if (n > 0)
		scdc_row_view_set(&c->view, g->schema == IN_TABLE ? &c->table_schema : scdc_row_schema(c->schemas, g->schema), g->image);
	while (n-- > 0)
		c->fn(g->in_table > g->in_log, &c->view, c->arg);
	MemoryContextReset(g->context);
	g->in_table = g->in_log = 0;
}

static void
add_to_group(Group *g, int32 schema, bytea *image)
{
	bool		in_table = schema == IN_TABLE;
	bool		leads;
	MemoryContext old;

	if (in_table)
		leads = ++g->in_table == g->in_log + 1;
	else
		leads = ++g->in_log == g->in_table + 1;
	if (!leads)
		return;
	MemoryContextReset(g->context);
	old = MemoryContextSwitchTo(g->context);
	g->schema = schema;
	g->image.len = VARSIZE_ANY_EXHDR(image);
	g->image.data = memcpy(palloc(Max(g->image.len, 1)), VARDATA_ANY(image), g->image.len);
	MemoryContextSwitchTo(old);
}

static void
report_differences(Comparison *c)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(c->in->tts_tupleDescriptor, &TTSOpsMinimalTuple);
	Group		group = {.context = AllocSetContextCreate(CurrentMemoryContext, "streamcdc equal rows", ALLOCSET_DEFAULT_SIZES)};

	tuplesort_performsort(c->sort);
	while (tuplesort_gettupleslot(c->sort, true, false, slot, NULL))
	{
		MemoryContext old = MemoryContextSwitchTo(c->row_cxt);
		bool		isnull;
		bytea	   *digest = DatumGetByteaPP(slot_getattr(slot, S_DIGEST, &isnull));
		int32		schema = DatumGetInt32(slot_getattr(slot, S_SCHEMA, &isnull));
		bytea	   *image = DatumGetByteaPP(slot_getattr(slot, S_IMAGE, &isnull));

		CHECK_FOR_INTERRUPTS();
		if (memcmp(VARDATA_ANY(digest), group.digest, PG_SHA256_DIGEST_LENGTH) != 0)
		{
			end_group(c, &group);
			memcpy(group.digest, VARDATA_ANY(digest), PG_SHA256_DIGEST_LENGTH);
		}
		add_to_group(&group, schema, image);
		MemoryContextSwitchTo(old);
		MemoryContextReset(c->row_cxt);
	}
	end_group(c, &group);
	ExecDropSingleTupleTableSlot(slot);
}

void
scdc_compare(const ScdcTarget *target, List *relids, Snapshot snapshot, Snapshot log, ScdcDifferenceFn fn, void *arg)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "streamcdc comparison", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	const ScdcStream *stream = target->stream;
	Relation	root = table_open(target->relid, NoLock);
	Comparison	c = {.target = target, .log = log, .fn = fn, .arg = arg};
	ScdcOwnerScope scope;
	ListCell   *lc;
	int			nestlevel;

	c.schemas = scdc_row_schemas_create(stream, log);
	c.table_schema.schema = scdc_schema_of_relation(root, stream->stream_id, stream->identity, stream->nidentity);
	c.row_cxt = AllocSetContextCreate(context, "streamcdc compared row", ALLOCSET_DEFAULT_SIZES);
	scdc_row_view_init(&c.view);
	begin_sorting(&c);

	scdc_owner_begin(&scope, root->rd_rel->relowner);
	nestlevel = scdc_pin_output_settings();
	foreach(lc, relids)
		read_table(&c, root, lfirst_oid(lc), snapshot);
	read_log(&c, snapshot);
	report_differences(&c);
	AtEOXact_GUC(true, nestlevel);
	scdc_owner_end(&scope);

	tuplesort_end(c.sort);
	ExecDropSingleTupleTableSlot(c.in);
	table_close(root, NoLock);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}
