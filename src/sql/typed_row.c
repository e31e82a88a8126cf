/*-------------------------------------------------------------------------
 *
 * typed_row.c
 *	  A row out of the change log as a value of the table's row type of today.
 *
 * Columns are matched by their number, which a table never uses twice: a
 * renamed column follows, a dropped one is left out, one that was added later
 * has its fast default or NULL.  A column whose type has changed is cast as an
 * assignment would; a value that was stored as text goes through the input
 * function of today's type, after what has become of the type it had.
 *
 * If nothing of that is needed, the image is the row as it stands.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tupdesc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "log/catalog.h"
#include "owner.h"
#include "sql/json_row.h"
#include "sql/old_text.h"
#include "sql/typed_row.h"

typedef enum TypedKind
{
	TYPED_CONSTANT,				/* NULL or the default of an added column */
	TYPED_DIRECT,
	TYPED_CAST,
	TYPED_INPUT
} TypedKind;

typedef struct TypedColumn
{
	TypedKind	kind;
	const char *name;
	Form_pg_attribute att;		/* what is wanted */
	int			image_attno;
	bool		isnull;			/* TYPED_CONSTANT */
	Datum		value;
	ExprState  *cast;			/* TYPED_CAST; TYPED_INPUT: what to do with the value then, or NULL */
	FmgrInfo	input;			/* TYPED_INPUT */
	Oid			input_param;
	ScdcOldText *old_text;		/* NULL: the text is as today's type writes it */
	int			attno;
	int64		version;		/* the first that was met with this schema */
	int32		typmod;
} TypedColumn;

/* One for each schema, in ScdcRowSchema.plan. */
typedef struct TypedPlan
{
	bool		as_is;			/* the image is the row */
	bool		needs_settings; /* some column is cast or read from text */
	TypedColumn *columns;		/* one for each attribute of the row type */
} TypedPlan;

struct ScdcTypedRows
{
	ScdcRowSchemas *schemas;
	TupleDesc	desc;
	const AttrNumber *source;	/* which of the table's columns these are; NULL: the same */
	TupleDesc	table;			/* the table's, NULL if it is gone */
	MemoryContext context;
	ExprContext *econtext;
	Datum	   *values;
	bool	   *isnull;
	const char *column;			/* at work */

	/* what marks a composite datum of the type: a header without the length, and bits beside those of the image */
	bool		has_header;
	HeapTupleHeaderData header;
};

#define IMAGE_OFFSET	offsetof(HeapTupleHeaderData, t_infomask2)

/*
 * Text that was stored under fixed settings must be read under them where it
 * would mean something else.  The rest stays as the caller has it: casts may
 * depend on it.  (The search path is set around input functions only.)
 */
int
scdc_pin_input_settings(void)
{
	static const struct ScdcSetting settings[] = {
		{"DateStyle", "ISO"},
		{"IntervalStyle", "postgres"},
		{"xmloption", "content"},
	};

	return scdc_pin_settings(settings, lengthof(settings));
}

ScdcTypedRows *
scdc_typed_rows_create(Oid row_type, ScdcRowSchemas *schemas)
{
	TupleDesc	desc = lookup_rowtype_tupdesc_copy(row_type, -1);

	return scdc_typed_rows_create_columns(desc, NULL, desc, schemas);
}

ScdcTypedRows *
scdc_typed_rows_create_columns(TupleDesc desc, const AttrNumber *source, TupleDesc table, ScdcRowSchemas *schemas)
{
	ScdcTypedRows *typed = palloc0(sizeof(ScdcTypedRows));

	typed->schemas = schemas;
	typed->desc = desc;
	typed->source = source;
	typed->table = table;
	typed->context = CurrentMemoryContext;
	typed->econtext = CreateStandaloneExprContext();
	typed->values = palloc(Max(typed->desc->natts, 1) * sizeof(Datum));
	typed->isnull = palloc(Max(typed->desc->natts, 1) * sizeof(bool));
	return typed;
}

void
scdc_typed_rows_end(ScdcTypedRows *typed)
{
	FreeExprContext(typed->econtext, true);
}

const char *
scdc_typed_rows_column(const ScdcTypedRows *typed)
{
	return typed->column;
}

/*
 * Value of an attribute that rows of the schema do not have.  It was noted when
 * the column was added, unless that has not been committed when we read.
 */
static void
constant_init(ScdcTypedRows *typed, TypedColumn *tc, int64 stream_id, int attno)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	char	   *text = scdc_missing_read(stream_id, attno + 1, snapshot);

	UnregisterSnapshot(snapshot);
	tc->kind = TYPED_CONSTANT;
	tc->isnull = true;
	if (text)
	{
		int32		typmod = tc->att->atttypmod;
		Oid			base = getBaseTypeAndTypmod(tc->att->atttypid, &typmod);
		Oid			input,
					param;
		FmgrInfo	function;

		getTypeInputInfo(base, &input, &param);
		fmgr_info(input, &function);
		tc->value = scdc_stored_text_input(&function, text, param, typmod, scdc_row_schemas_owner(typed->schemas));
		tc->isnull = false;
	}
	else if (typed->table && attno < typed->table->natts)
		tc->value = getmissingattr(typed->table, attno + 1, &tc->isnull);
}

static void
no_cast(ScdcTypedRows *typed, Form_pg_attribute att, const ScdcSchema *schema, int attno, int64 version)
{
	char	   *name = pstrdup(NameStr(att->attname));
	char	   *type_now = format_type_with_typemod(att->atttypid, att->atttypmod);
	const char *type_then = schema->columns[attno].type_name;
	int64		changed;

	if (scdc_row_schemas_type_change(typed->schemas, schema, attno, version, &changed))
		ereport(ERROR,
				(errcode(ERRCODE_CANNOT_COERCE),
				 errmsg("column \"%s\" was of type %s before version " INT64_FORMAT ", which cannot be cast to %s",
						name, type_then, changed, type_now),
				 changed > version ?
			 errhint("Read versions before " INT64_FORMAT " as jsonb, with the table's name as the first argument.",
					 changed) :
			 errhint("Read versions up to " INT64_FORMAT ", which has rows from before the change, as jsonb, with the table's name as the first argument.",
					 changed)));
	ereport(ERROR,
			(errcode(ERRCODE_CANNOT_COERCE),
			 errmsg("column \"%s\" is of type %s in version " INT64_FORMAT ", which cannot be cast to %s",
					name, type_then, version, type_now),
			 errdetail("Its type has changed after the newest version."),
			 errhint("Read these versions as jsonb, with the table's name as the first argument.")));
}

/* from: type that the values have, with the column's typmod or none */
static void
cast_init(ScdcTypedRows *typed, TypedColumn *tc, Form_pg_attribute att, const ScdcSchema *schema, int attno, Oid from,
		  int64 version)
{
	const ScdcColumn *column = &schema->columns[attno];
	CaseTestExpr *source = makeNode(CaseTestExpr);
	Node	   *expr;
	ScdcOwnerScope scope;

	source->typeId = from;
	source->typeMod = column->type == from ? column->typmod : -1;
	source->collation = column->collation;
	expr = coerce_to_target_type(NULL, (Node *) source, source->typeId, att->atttypid, att->atttypmod,
								 COERCION_ASSIGNMENT, COERCE_IMPLICIT_CAST, -1);
	if (expr == NULL)
		no_cast(typed, att, schema, attno, version);
	scdc_owner_begin(&scope, scdc_row_schemas_owner(typed->schemas));
	tc->cast = ExecInitExpr(expression_planner((Expr *) expr), NULL);
	scdc_owner_end(&scope);
}

/* For values that were stored as text. */
static void
input_init(ScdcTypedRows *typed, TypedColumn *tc, Form_pg_attribute att, const ScdcSchema *schema, int attno, int64 version)
{
	const ScdcColumn *column = &schema->columns[attno];
	int32		typmod = att->atttypmod;
	Oid			type = att->atttypid;
	Oid			base = getBaseTypeAndTypmod(type, &typmod);
	Oid			input;

	/* a value of another type, as long as that is there, is cast as others are */
	if (SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(column->type)) && getBaseType(column->type) != base)
	{
		type = column->type;
		base = getBaseType(type);
		typmod = -1;
		cast_init(typed, tc, att, schema, attno, base, version);
	}

	/* the values were good once: a domain's constraints of today are not asked */
	tc->kind = TYPED_INPUT;
	getTypeInputInfo(base, &input, &tc->input_param);
	fmgr_info_cxt(input, &tc->input, typed->context);
	tc->typmod = typmod;
	tc->old_text = scdc_old_text_create(column->type_parts, column->type, type, false);
	tc->attno = attno;
	tc->version = version;
}

static void
column_init(ScdcTypedRows *typed, TypedColumn *tc, int i, const ScdcSchema *schema, int64 version)
{
	Form_pg_attribute att = TupleDescAttr(typed->desc, i);
	int			attno = typed->source ? typed->source[i] - 1 : i;	/* in the table */
	const ScdcColumn *column;

	tc->name = NameStr(att->attname);
	tc->att = att;
	if (att->attisdropped)
	{
		tc->kind = TYPED_CONSTANT;
		tc->isnull = true;
		return;
	}
	if (attno >= schema->ncolumns)
	{
		constant_init(typed, tc, schema->stream_id, attno);
		return;
	}
	column = &schema->columns[attno];
	Assert(!column->dropped);	/* a column does not come back */
	tc->image_attno = column->image_attno;

	if (column->storage != SCDC_STORE_RAW)
		input_init(typed, tc, att, schema, attno, version);
	else if (column->type == att->atttypid && (column->typmod == att->atttypmod || att->atttypmod == -1))
		tc->kind = TYPED_DIRECT;
	else
	{
		tc->kind = TYPED_CAST;
		cast_init(typed, tc, att, schema, attno, column->raw_type, version);
	}
}

/* Is a row of the schema laid out as what is wanted, in every attribute? */
static bool
is_as_is(const ScdcTypedRows *typed, const TypedPlan *plan, const ScdcSchema *schema)
{
	TupleDesc	desc = typed->desc;

	if (!schema->as_table || schema->ncolumns != desc->natts)
		return false;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		const ScdcColumn *column = &schema->columns[i];

		if ((typed->source && typed->source[i] != i + 1) ||
			column->dropped != att->attisdropped ||
			(!att->attisdropped && plan->columns[i].kind != TYPED_DIRECT) ||
			column->attlen != att->attlen || column->attbyval != att->attbyval || column->attalign != att->attalign)
			return false;
	}
	return true;
}

static TypedPlan *
plan_create(ScdcTypedRows *typed, const ScdcSchema *schema, int64 version)
{
	MemoryContext old = MemoryContextSwitchTo(typed->context);
	TypedPlan  *plan = palloc0(sizeof(TypedPlan));

	plan->columns = palloc0(Max(typed->desc->natts, 1) * sizeof(TypedColumn));
	for (int i = 0; i < typed->desc->natts; i++)
	{
		TypedColumn *tc = &plan->columns[i];

		column_init(typed, tc, i, schema, version);
		plan->needs_settings = plan->needs_settings || tc->kind == TYPED_CAST || tc->kind == TYPED_INPUT;
	}
	plan->as_is = is_as_is(typed, plan, schema);
	MemoryContextSwitchTo(old);
	return plan;
}

/*
 * What an image lacks to be a composite datum.  The server's own function
 * tells, once: what marks a datum differs between minor versions.
 */
static void
make_header(ScdcTypedRows *typed)
{
	HeapTuple	tuple;

	memset(typed->isnull, true, typed->desc->natts * sizeof(bool));
	tuple = heap_form_tuple(typed->desc, typed->values, typed->isnull);
	memcpy(&typed->header, DatumGetPointer(heap_copy_tuple_as_datum(tuple, typed->desc)), SizeofHeapTupleHeader);
	typed->header.t_infomask &= ~(HEAP_HASNULL | HEAP_HASVARWIDTH);
	typed->header.t_infomask2 &= ~HEAP_NATTS_MASK;
	typed->has_header = true;
}

static Datum
row_of_image(ScdcTypedRows *typed, const ScdcSchema *schema, ScdcBytes image)
{
	Size		len = IMAGE_OFFSET + image.len;
	HeapTupleHeader row;

	scdc_image_check(schema, image);
	if (!typed->has_header)
		make_header(typed);
	row = palloc(len);
	memcpy(row, &typed->header, IMAGE_OFFSET);
	memcpy((char *) row + IMAGE_OFFSET, image.data, image.len);
	row->t_infomask |= typed->header.t_infomask;
	row->t_infomask2 |= typed->header.t_infomask2;
	HeapTupleHeaderSetDatumLength(row, len);
	return PointerGetDatum(row);
}

static Datum
cast_value(ScdcTypedRows *typed, TypedColumn *tc, Datum value, bool *isnull)
{
	ScdcOwnerScope scope;
	Datum		result;

	typed->econtext->caseValue_datum = value;
	typed->econtext->caseValue_isNull = false;
	scdc_owner_begin(&scope, scdc_row_schemas_owner(typed->schemas));
	result = ExecEvalExprSwitchContext(tc->cast, typed->econtext, isnull);
	scdc_owner_end(&scope);
	return result;
}

static char *
column_text(ScdcTypedRows *typed, TypedColumn *tc, const ScdcSchema *schema, Datum stored)
{
	char	   *string = TextDatumGetCString(stored);

	if (tc->old_text == NULL)
		return string;
	string = scdc_old_text_convert(tc->old_text, string);
	if (string == NULL)
		no_cast(typed, tc->att, schema, tc->attno, tc->version);
	return string;
}

static Datum
column_value(ScdcTypedRows *typed, TypedColumn *tc, const ScdcSchema *schema, Datum stored, bool *isnull)
{
	Datum		value;

	switch (tc->kind)
	{
		case TYPED_CONSTANT:
			break;
		case TYPED_DIRECT:
			return stored;
		case TYPED_CAST:
			return cast_value(typed, tc, stored, isnull);
		case TYPED_INPUT:
			value = scdc_stored_text_input(&tc->input, column_text(typed, tc, schema, stored), tc->input_param,
										   tc->typmod, scdc_row_schemas_owner(typed->schemas));
			return tc->cast ? cast_value(typed, tc, value, isnull) : value;
	}
	elog(ERROR, "unexpected kind of column: %d", (int) tc->kind);
}

void
scdc_typed_rows_prepare(ScdcTypedRows *typed, ScdcRowSchema *schema, int64 version)
{
	if (schema->plan == NULL)
		schema->plan = plan_create(typed, schema->schema, version);
}

bool
scdc_typed_rows_need_settings(const ScdcRowSchema *schema)
{
	return ((const TypedPlan *) schema->plan)->needs_settings;
}

bool
scdc_typed_rows_as_is(const ScdcRowSchema *schema)
{
	return ((const TypedPlan *) schema->plan)->as_is;
}

void
scdc_typed_values(ScdcTypedRows *typed, ScdcRowView *view, Datum **values, bool **isnull)
{
	TypedPlan  *plan = view->schema->plan;

	ResetExprContext(typed->econtext);
	scdc_row_view_split(view);
	for (int i = 0; i < typed->desc->natts; i++)
	{
		TypedColumn *tc = &plan->columns[i];

		if (tc->kind == TYPED_CONSTANT)
		{
			typed->values[i] = tc->value;
			typed->isnull[i] = tc->isnull;
			continue;
		}
		typed->isnull[i] = view->isnull[tc->image_attno];
		if (typed->isnull[i])
			continue;
		typed->column = tc->name;
		typed->values[i] = column_value(typed, tc, view->schema->schema, view->values[tc->image_attno],
										&typed->isnull[i]);
	}
	typed->column = NULL;
	*values = typed->values;
	*isnull = typed->isnull;
}

Datum
scdc_typed_row(ScdcTypedRows *typed, ScdcRowView *view)
{
	Datum	   *values;
	bool	   *isnull;

	if (((const TypedPlan *) view->schema->plan)->as_is)
		return row_of_image(typed, view->schema->schema, view->image);
	scdc_typed_values(typed, view, &values, &isnull);
	return HeapTupleGetDatum(heap_form_tuple(typed->desc, values, isnull));
}
