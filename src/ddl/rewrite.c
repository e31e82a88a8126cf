/*-------------------------------------------------------------------------
 *
 * rewrite.c
 *	  ALTER TABLE: rows whose values a rewrite changes are recorded as updates.
 *
 * A rewrite writes a new heap and puts it in the place of the old one.  When
 * the new heap has just been made, the old one is still full, but the
 * catalogs say already what its columns will be: so the descriptor of before
 * the command is kept, and with it the old rows are read and set aside.
 * After the command the new heap is read.  The rewrite keeps the physical
 * order (provided that no synchronized scan begins in the middle), so the
 * rows of both pair up by position, and no identity is needed.
 *
 * What has not changed in its jsonb form is not recorded; a rewrite that
 * changes nothing only leaves word that it is accounted for.
 *
 * A command that rewrites nothing may change how identities are compared (text
 * that becomes citext, or gets a collation that is not deterministic).  Then
 * no row is the one it was, and each is recorded as an update.
 *
 * A table that becomes UNLOGGED leaves WAL altogether, which ends its stream.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/tablecmds.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "ddl/ddl.h"
#include "ddl/inbox.h"
#include "ddl/members.h"
#include "log/image.h"
#include "sql/tapes.h"

/* A tracked table that the command may rewrite. */
typedef struct AlteredTable
{
	ScdcCommandTable t;
	TupleDesc	desc;			/* before the command */
	ScdcSchema *schema;
	AttrMap    *map;

	/* once it is being rewritten */
	Oid			new_heap;
	ResourceOwner owner;		/* of the file with the old rows */
	void	   *old_rows;		/* a tape: images, length and bytes */
	int64		nrows;
	bool		failed;			/* to set them aside */
} AlteredTable;

static void alter_done(ScdcCommand *command);

/* ---- before the command ---- */

static void
check_before_lock(const RangeVar *rv, Oid relid, Oid old_relid, void *arg)
{
	if (OidIsValid(relid) && !pg_class_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(relid)), rv->relname);
}

/* ATTACH or DETACH, which rewrite nothing and must not lock the other partitions. */
static bool
moves_partition(const AlterTableStmt *stmt)
{
	const AlterTableCmd *cmd = linitial(stmt->cmds);

	return cmd->def != NULL && IsA(cmd->def, PartitionCmd);
}

/*
 * ALTER TYPE ... CASCADE alters the tables that were made OF the type: those,
 * locked; NIL if the command will fail for one of them.
 */
static List *
lock_typed_tables(Oid type)
{
	Relation	pg_class = table_open(RelationRelationId, AccessShareLock);
	List	   *candidates = NIL;
	List	   *tables = NIL;
	ScanKeyData key;
	TableScanDesc scan;
	HeapTuple	tuple;
	ListCell   *lc;

	ScanKeyInit(&key, Anum_pg_class_reloftype, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(type));
	scan = table_beginscan_catalog(pg_class, 1, &key);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
		candidates = lappend_oid(candidates, ((Form_pg_class) GETSTRUCT(tuple))->oid);
	table_endscan(scan);
	table_close(pg_class, AccessShareLock);

	foreach(lc, candidates)
	{
		if (!pg_class_ownercheck(lfirst_oid(lc), GetUserId()))
			return NIL;
		LockRelationOid(lfirst_oid(lc), AccessExclusiveLock);
		tables = list_concat_unique_oid(tables, find_all_inheritors(lfirst_oid(lc), AccessExclusiveLock, NULL));
	}
	return tables;
}

/* The tables that the command is about, locked; NIL if none of them can be a tracked one, or the command will fail. */
static List *
lock_tables(AlterTableStmt *stmt)
{
	RangeVar   *rv = stmt->relation;
	Oid			relid;
	char		relkind;

	if (stmt->objtype == OBJECT_TYPE)
	{
		relid = RangeVarGetRelid(rv, NoLock, true);
		if (!OidIsValid(relid) || !pg_class_ownercheck(relid, GetUserId()) || !scdc_command_is_of_interest())
			return NIL;
		return lock_typed_tables(get_rel_type_id(relid));
	}
	if (stmt->objtype != OBJECT_TABLE || AlterTableGetLockLevel(stmt->cmds) != AccessExclusiveLock || moves_partition(stmt))
		return NIL;
	relid = RangeVarGetRelid(rv, NoLock, true);
	if (!OidIsValid(relid) || !pg_class_ownercheck(relid, GetUserId()))
		return NIL;
	relkind = get_rel_relkind(relid);
	if ((relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE) ||
		get_rel_persistence(relid) == RELPERSISTENCE_TEMP || !scdc_command_is_of_interest())
		return NIL;
	relid = RangeVarGetRelidExtended(rv, AccessExclusiveLock, 0, check_before_lock, NULL);
	return rv->inh ? find_all_inheritors(relid, AccessExclusiveLock, NULL) : list_make1_oid(relid);
}

static void
describe(void *arg)
{
	AlteredTable *table = arg;
	ScdcStream *stream = table->t.stream;
	Relation	rel = table_open(table->t.relid, NoLock);

	table->desc = CreateTupleDescCopyConstr(RelationGetDescr(rel));
	table->schema = scdc_member_schema(rel, stream, &table->map);
	table_close(rel, NoLock);
}

ScdcCommand *
scdc_alter_begin(AlterTableStmt *stmt)
{
	ScdcCommand *command = scdc_command_create(lock_tables(stmt), sizeof(AlteredTable), alter_done);
	MemoryContext old;
	ListCell   *lc;

	if (command == NULL)
		return NULL;
	old = MemoryContextSwitchTo(command->cxt);
	foreach(lc, command->tables)
	{
		AlteredTable *table = lfirst(lc);

		table->failed = !scdc_ddl_try(describe, table, psprintf("what table \"%s\" was like before ALTER TABLE",
																get_rel_name(table->t.relid)));
	}
	MemoryContextSwitchTo(old);
	command->nestlevel = NewGUCNestLevel();
	(void) set_config_option("synchronize_seqscans", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return command;
}

/* ---- the old rows ---- */

static void
set_old_rows_aside(void *arg)
{
	AlteredTable *table = arg;
	Relation	rel = table_open(table->t.relid, NoLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = MakeSingleTupleTableSlot(table->desc, table_slot_callbacks(rel));
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	MemoryContext row_cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc old row", ALLOCSET_DEFAULT_SIZES);
	ScdcOwnerScope mode;

	scdc_output_begin(&mode, rel);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		MemoryContext old = MemoryContextSwitchTo(row_cxt);
		ScdcBytes	image = scdc_image_make_of(table->schema, rel->rd_rel->relowner, table->desc, table->map,
											   ExecCopySlotHeapTuple(slot), NULL, SCDC_IMAGE_FROM_TABLE);

		CHECK_FOR_INTERRUPTS();
		scdc_tape_write(table->old_rows, &image.len, sizeof(image.len), NULL);
		scdc_tape_write(table->old_rows, image.data, image.len, NULL);
		table->nrows++;
		MemoryContextSwitchTo(old);
		MemoryContextReset(row_cxt);
	}
	scdc_owner_end(&mode);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	table_close(rel, NoLock);
	MemoryContextDelete(row_cxt);
}

void
scdc_command_new_relation(Oid relid)
{
	Relation	rel = RelationIdGetRelation(relid);
	Oid			rewritten;
	char		persistence;
	ScdcCommand *command;
	AlteredTable *table;
	MemoryContext old;
	ResourceOwner owner = CurrentResourceOwner;

	if (rel == NULL)
		return;
	rewritten = rel->rd_rel->relrewrite;
	persistence = rel->rd_rel->relpersistence;
	RelationClose(rel);
	if (!OidIsValid(rewritten) || persistence != RELPERSISTENCE_PERMANENT)
		return;
	table = (AlteredTable *) scdc_command_find(rewritten, &command);
	if (table == NULL || command->done != alter_done || table->failed || OidIsValid(table->new_heap))
		return;

	/* the file belongs to the command, not to the subtransaction in which it is written */
	table->new_heap = relid;
	table->owner = ResourceOwnerCreate(owner, "streamcdc old rows");
	old = MemoryContextSwitchTo(command->cxt);
	CurrentResourceOwner = table->owner;
	table->old_rows = scdc_tape_create(scdc_tapes_create(false));
	CurrentResourceOwner = owner;
	MemoryContextSwitchTo(old);
	table->failed = !scdc_ddl_try(set_old_rows_aside, table,
								  psprintf("the old rows of table \"%s\", which is being rewritten", get_rel_name(rewritten)));
}

/* ---- comparing rows ---- */

typedef enum CompareKind
{
	COMPARE_NOTHING,			/* dropped */
	COMPARE_ADDED,				/* changed unless NULL */
	COMPARE_STORED,				/* as it is stored */
	COMPARE_FORMS,				/* by their output and jsonb forms */
	COMPARE_CHANGED				/* always changed */
} CompareKind;

typedef struct Comparison
{
	const ScdcSchema *old_schema;
	const ScdcSchema *new_schema;
	CompareKind *kinds;
	bool		other_identity; /* no row is the one it was */
	Datum	   *old_values;
	bool	   *old_isnull;
	Datum	   *new_values;
	bool	   *new_isnull;
	ScdcImageBuffer old_buffer;
	ScdcImageBuffer new_buffer;
} Comparison;

/*
 * Would a row with the same identity before and after be taken for another
 * one by readers, who compare identities by the operator of their type?
 */
static bool
identity_changes(const ScdcColumn *before, const ScdcColumn *after)
{
	Oid			old_type = before->storage == SCDC_STORE_RAW ? before->raw_type : getBaseType(before->type);
	Oid			new_type = after->storage == SCDC_STORE_RAW ? after->raw_type : getBaseType(after->type);

	return !scdc_compares_alike(old_type, before->collation, new_type, after->collation);
}

static CompareKind
compare_kind(Comparison *c, const ScdcStream *stream, int i)
{
	const ScdcColumn *after = &c->new_schema->columns[i];
	const ScdcColumn *before;

	if (after->dropped)
		return COMPARE_NOTHING;
	if (i >= c->old_schema->ncolumns || c->old_schema->columns[i].dropped)
		return COMPARE_ADDED;
	before = &c->old_schema->columns[i];
	for (int k = 0; k < stream->nidentity; k++)
		if (stream->identity[k] == after->attnum && identity_changes(before, after))
		{
			c->other_identity = true;
			return COMPARE_CHANGED;
		}
	if (before->storage == after->storage && before->type == after->type)
		return COMPARE_STORED;

	/* a reader's cast would take the blanks off */
	if (before->storage == SCDC_STORE_RAW && before->raw_type == BPCHAROID)
		return COMPARE_CHANGED;
	return COMPARE_FORMS;
}

static Comparison *
comparison_create(const ScdcStream *stream, const ScdcSchema *old_schema, const ScdcSchema *new_schema)
{
	Comparison *c = palloc0(sizeof(Comparison));
	int			old_natts = Max(old_schema->image_desc->natts, 1);
	int			new_natts = Max(new_schema->image_desc->natts, 1);

	c->old_schema = old_schema;
	c->new_schema = new_schema;
	c->kinds = palloc(sizeof(CompareKind) * Max(new_schema->ncolumns, 1));
	for (int i = 0; i < new_schema->ncolumns; i++)
		c->kinds[i] = compare_kind(c, stream, i);
	c->old_values = palloc(sizeof(Datum) * old_natts);
	c->old_isnull = palloc(sizeof(bool) * old_natts);
	c->new_values = palloc(sizeof(Datum) * new_natts);
	c->new_isnull = palloc(sizeof(bool) * new_natts);
	return c;
}

/* The output form, or the jsonb form, of a stored value; NULL if it has none. */
static char *
value_form(const ScdcColumn *column, const Datum *values, const bool *isnull, bool json)
{
	Datum		value = values[column->image_attno];

	if (json && column->storage == SCDC_STORE_JSON)
		return isnull[column->image_attno + 1] ? NULL : TextDatumGetCString(values[column->image_attno + 1]);
	if (json)
		return scdc_jsonb_form(value, column->storage == SCDC_STORE_RAW ? column->raw_type : TEXTOID);
	if (column->storage == SCDC_STORE_RAW)
		return scdc_output_form(value, column->raw_type);
	return TextDatumGetCString(value);
}

static bool
same_form(const Comparison *c, int i, bool json)
{
	char	   *before = value_form(&c->old_schema->columns[i], c->old_values, c->old_isnull, json);
	char	   *after = value_form(&c->new_schema->columns[i], c->new_values, c->new_isnull, json);

	return before != NULL && after != NULL && strcmp(before, after) == 0;
}

static bool
same_value(const Comparison *c, int i)
{
	const ScdcColumn *after = &c->new_schema->columns[i];
	int			a = after->image_attno;
	int			b;
	Form_pg_attribute att = TupleDescAttr(c->new_schema->image_desc, a);

	if (c->kinds[i] == COMPARE_NOTHING)
		return true;
	if (c->kinds[i] == COMPARE_ADDED)
		return c->new_isnull[a];
	if (c->kinds[i] == COMPARE_CHANGED)
		return false;
	b = c->old_schema->columns[i].image_attno;
	if (c->old_isnull[b] || c->new_isnull[a])
		return c->old_isnull[b] && c->new_isnull[a];
	if (c->kinds[i] == COMPARE_STORED)
		return datum_image_eq(c->old_values[b], c->new_values[a], att->attbyval, att->attlen);
	return same_form(c, i, false) && same_form(c, i, true);
}

/* Leaves garbage in the current context; the buffers grow in cxt. */
static bool
same_row(Comparison *c, ScdcBytes before, ScdcBytes after, MemoryContext cxt)
{
	MemoryContext old = MemoryContextSwitchTo(cxt);

	scdc_image_deform(c->old_schema, before, &c->old_buffer, c->old_values, c->old_isnull);
	scdc_image_deform(c->new_schema, after, &c->new_buffer, c->new_values, c->new_isnull);
	MemoryContextSwitchTo(old);
	for (int i = 0; i < c->new_schema->ncolumns; i++)
		if (!same_value(c, i))
			return false;
	return true;
}

/* ---- the new rows ---- */

static ScdcBytes
next_old_row(AlteredTable *table)
{
	ScdcBytes	image;
	char	   *data;

	if (table->nrows-- <= 0)
		elog(ERROR, "rewritten table has more rows than before");
	scdc_tape_read(table->old_rows, &image.len, sizeof(image.len), NULL);
	data = palloc(Max(image.len, 1));
	scdc_tape_read(table->old_rows, data, image.len, NULL);
	image.data = data;
	return image;
}

/* Without a rewrite the rows are where they were, and the old images are made of them too. */
static void
record_updates(void *arg)
{
	AlteredTable *table = arg;
	bool		rewritten = OidIsValid(table->new_heap);
	ScdcStream *stream = table->t.stream;
	Relation	rel;
	ScdcSchema *schema;
	AttrMap    *map;
	Comparison *comparison;
	ScdcInboxWriter *writer;
	Snapshot	snapshot;
	TupleTableSlot *slot;
	TableScanDesc scan;
	MemoryContext cxt = CurrentMemoryContext;
	MemoryContext row_cxt = AllocSetContextCreate(cxt, "streamcdc rewritten row", ALLOCSET_DEFAULT_SIZES);
	ScdcOwnerScope mode;

	rel = table_open(table->t.relid, NoLock);
	schema = scdc_member_schema(rel, stream, &map);
	comparison = comparison_create(stream, table->schema, schema);
	if (!rewritten && !comparison->other_identity)
	{
		table_close(rel, NoLock);
		MemoryContextDelete(row_cxt);
		return;
	}
	if (table->t.touched)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("a trigger or function has written the table in the middle of the command")));
	writer = scdc_inbox_writer_begin(stream, table->t.relid, schema, table->schema, table->new_heap);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	slot = table_slot_create(rel, NULL);
	scan = table_beginscan(rel, snapshot, 0, NULL);
	if (rewritten)
		scdc_tape_rewind(table->old_rows, NULL);

	scdc_output_begin(&mode, rel);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		ScdcEvent	event = {.kind = SCDC_EVENT_UPDATE};
		HeapTuple	tuple;
		bool		same;

		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(row_cxt);
		tuple = ExecCopySlotHeapTuple(slot);
		event.old_image = rewritten ? next_old_row(table) :
			scdc_image_make_of(table->schema, rel->rd_rel->relowner, table->desc, table->map, tuple, NULL, SCDC_IMAGE_FROM_TABLE);
		event.new_image = scdc_image_make(schema, rel, map, tuple, NULL, SCDC_IMAGE_FROM_TABLE);
		same = same_row(comparison, event.old_image, event.new_image, cxt);
		MemoryContextSwitchTo(cxt);
		if (!same)
			scdc_inbox_writer_add(writer, &event);
		MemoryContextReset(row_cxt);
	}
	if (rewritten && table->nrows != 0)
		elog(ERROR, "rewritten table has fewer rows than before");
	scdc_owner_end(&mode);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	scdc_inbox_writer_end(writer);
	table_close(rel, NoLock);
	MemoryContextDelete(row_cxt);
}

/* ---- after the command ---- */

static void
record_end(void *arg)
{
	AlteredTable *table = arg;

	scdc_inbox_write_end(table->t.stream, table->t.relid);
}

static void
record_gap(void *arg)
{
	AlteredTable *table = arg;

	scdc_inbox_write_gap(table->t.stream, table->t.relid);
}

/* Closing a file writes what is still in memory, which may fail again; its owner just lets it go. */
static void
release_file(AlteredTable *table)
{
	ResourceOwnerRelease(table->owner, RESOURCE_RELEASE_BEFORE_LOCKS, false, false);
	ResourceOwnerRelease(table->owner, RESOURCE_RELEASE_AFTER_LOCKS, false, false);
	ResourceOwnerDelete(table->owner);
	table->owner = NULL;
}

static void
alter_done(ScdcCommand *command)
{
	ListCell   *lc;

	CommandCounterIncrement();
	foreach(lc, command->tables)
	{
		AlteredTable *table = lfirst(lc);
		char	   *name = get_rel_name(table->t.relid);

		/* an event trigger may do anything, also drop it */
		if (name != NULL && get_rel_persistence(table->t.relid) == RELPERSISTENCE_UNLOGGED)
			(void) scdc_ddl_try(record_end, table, psprintf("that table \"%s\" is UNLOGGED from now on", name));
		else if (name != NULL && OidIsValid(table->new_heap) && !table->failed)
			(void) scdc_ddl_try(record_updates, table, psprintf("the rows of table \"%s\", which was rewritten", name));
		else if (name != NULL && !table->failed &&
				 !scdc_ddl_try(record_updates, table, psprintf("the rows of table \"%s\", whose identity has changed", name)))
		{
			/* nothing in WAL tells that there was something to record */
			(void) scdc_ddl_try(record_gap, table, psprintf("that rows of table \"%s\" were not recorded", name));
		}
		if (table->owner)
			release_file(table);
	}
}
