/*-------------------------------------------------------------------------
 *
 * json_row.c
 *	  A row out of the change log as jsonb.
 *
 * The result is what to_jsonb(row) gave when the row was written, under fixed
 * settings.  The common types are turned into jsonb values right here; that
 * each comes out exactly as to_jsonb has it is a matter of tests.  The rest
 * goes through the type's output function, or through to_jsonb itself.
 *
 * The object's pairs are kept in jsonb's own key order from row to row, with
 * only the values filled in, so that nothing is sorted or searched.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/syscache.h"

#include "guc.h"
#include "sql/json_row.h"

typedef enum JsonKind
{
	JSON_BOOL,
	JSON_INT2,
	JSON_INT4,
	JSON_INT8,
	JSON_NUMERIC,
	JSON_FLOAT,					/* a number, by its text */
	JSON_TEXT,					/* a string: the datum's own bytes */
	JSON_TIME,					/* a string in ISO 8601: date, timestamp, timestamptz */
	JSON_JSONB,
	JSON_OUTPUT,				/* a string: what the output function says */
	JSON_TO_JSONB,				/* what to_jsonb says */
	JSON_STORED					/* what was stored as JSON text, in the attribute after this one */
} JsonKind;

typedef struct JsonColumn
{
	const char *name;
	int			image_attno;
	JsonKind	kind;
	Oid			type;
	FmgrInfo	function;		/* JSON_FLOAT, JSON_OUTPUT, JSON_TO_JSONB */
} JsonColumn;

/* One for each schema, in ScdcRowSchema.plan. */
typedef struct JsonPlan
{
	int			ncolumns;
	JsonColumn *columns;		/* in key order */
	JsonbPair  *pairs;			/* of the object being made */
} JsonPlan;

struct ScdcJsonRows
{
	const ScdcTarget *target;
	MemoryContext context;
	const char *column;			/* at work */
	const ScdcRowView *whole;	/* its columns are being put together */
};

int
scdc_pin_settings(const struct ScdcSetting *settings, int n)
{
	int			nestlevel = NewGUCNestLevel();
	char	   *money = scdc_database_lc_monetary();

	for (int i = 0; i < n; i++)
		(void) set_config_option(settings[i].name, settings[i].value, PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);

	/* as the database has it, not the session or its role */
	if (strcmp(money, GetConfigOption("lc_monetary", false, false)) != 0)
		(void) set_config_option("lc_monetary", money, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return nestlevel;
}

static const struct ScdcSetting output_settings[] = {
	{"TimeZone", "UTC"},
	{"DateStyle", "ISO"},
	{"IntervalStyle", "postgres"},
	{"bytea_output", "hex"},
	{"extra_float_digits", "1"},
	{"search_path", "pg_catalog"},	/* the last */
};

int
scdc_pin_output_settings(void)
{
	return scdc_pin_settings(output_settings, lengthof(output_settings));
}

int
scdc_pin_reading_settings(void)
{
	return scdc_pin_settings(output_settings, lengthof(output_settings) - 1);
}

ScdcJsonRows *
scdc_json_rows_create(const ScdcTarget *target)
{
	ScdcJsonRows *json = palloc0(sizeof(ScdcJsonRows));

	json->target = target;
	json->context = CurrentMemoryContext;
	return json;
}

/* The column whose value takes the most room. */
static const char *
largest_column(const ScdcRowView *view)
{
	const JsonPlan *plan = view->schema->plan;
	TupleDesc	desc = view->schema->schema->image_desc;
	const char *largest = NULL;
	Size		most = 0;

	for (int i = 0; i < plan->ncolumns; i++)
	{
		int			attno = plan->columns[i].image_attno;
		Size		size;

		if (view->isnull[attno] || TupleDescAttr(desc, attno)->attlen != -1)
			continue;
		size = toast_raw_datum_size(view->values[attno]);
		if (size > most)
		{
			most = size;
			largest = plan->columns[i].name;
		}
	}
	return largest;
}

const char *
scdc_json_rows_column(const ScdcJsonRows *json)
{
	return json->whole ? largest_column(json->whole) : json->column;
}

/* The cases of to_jsonb (jsonb_categorize_type in the server), with strings told apart by how to get them. */
static JsonKind
kind_of_type(Oid type)
{
	switch (type)
	{
		case BOOLOID:
			return JSON_BOOL;
		case INT2OID:
			return JSON_INT2;
		case INT4OID:
			return JSON_INT4;
		case INT8OID:
			return JSON_INT8;
		case NUMERICOID:
			return JSON_NUMERIC;
		case FLOAT4OID:
		case FLOAT8OID:
			return JSON_FLOAT;
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			return JSON_TEXT;
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return JSON_TIME;
		case JSONBOID:
			return JSON_JSONB;
		case JSONOID:
			return JSON_TO_JSONB;
	}
	if (OidIsValid(get_element_type(type)))
		return JSON_TO_JSONB;
	return JSON_OUTPUT;
}

static void
column_init(JsonColumn *jc, const ScdcColumn *column, MemoryContext context)
{
	jc->name = column->name;
	jc->image_attno = column->image_attno;
	switch (column->storage)
	{
		case SCDC_STORE_TEXT:
			jc->kind = JSON_TEXT;
			jc->type = TEXTOID;
			return;
		case SCDC_STORE_JSON:
			jc->kind = JSON_STORED;
			jc->type = TEXTOID;
			return;
	}
	jc->type = column->raw_type;
	jc->kind = kind_of_type(jc->type);
	if (jc->kind == JSON_FLOAT || jc->kind == JSON_OUTPUT)
	{
		Oid			output;
		bool		isvarlena;

		getTypeOutputInfo(jc->type, &output, &isvarlena);
		fmgr_info_cxt(output, &jc->function, context);
	}
	else if (jc->kind == JSON_TO_JSONB)
	{
		/* a polymorphic function learns its argument's type from the call's expression */
		Node	   *arg = (Node *) makeNullConst(jc->type, -1, InvalidOid);
		Expr	   *call = (Expr *) makeFuncExpr(F_TO_JSONB, JSONBOID, list_make1(arg), InvalidOid, InvalidOid,
												 COERCE_EXPLICIT_CALL);

		fmgr_info_cxt(F_TO_JSONB, &jc->function, context);
		fmgr_info_set_expr((Node *) call, &jc->function);
	}
}

/* jsonb's order of keys: shorter ones first. */
static int
compare_columns(const void *a, const void *b)
{
	const char *x = ((const JsonColumn *) a)->name;
	const char *y = ((const JsonColumn *) b)->name;
	size_t		xlen = strlen(x);
	size_t		ylen = strlen(y);

	if (xlen != ylen)
		return xlen < ylen ? -1 : 1;
	return memcmp(x, y, xlen);
}

/* Is the column still there in today's table? */
static bool
column_exists(Oid relid, AttrNumber attnum)
{
	HeapTuple	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relid), Int16GetDatum(attnum));
	bool		exists;

	if (!HeapTupleIsValid(tuple))
		return false;
	exists = !((Form_pg_attribute) GETSTRUCT(tuple))->attisdropped;
	ReleaseSysCache(tuple);
	return exists;
}

static JsonPlan *
plan_create(ScdcJsonRows *json, const ScdcSchema *schema)
{
	MemoryContext old = MemoryContextSwitchTo(json->context);
	JsonPlan   *plan = palloc0(sizeof(JsonPlan));

	plan->columns = palloc0(Max(schema->ncolumns, 1) * sizeof(JsonColumn));
	for (int i = 0; i < schema->ncolumns; i++)
	{
		const ScdcColumn *column = &schema->columns[i];

		if (column->dropped)
			continue;
		/* values of a column that was dropped are the owner's affair */
		if (!json->target->is_owner && !column_exists(json->target->relid, column->attnum))
			continue;
		column_init(&plan->columns[plan->ncolumns++], column, json->context);
	}
	qsort(plan->columns, plan->ncolumns, sizeof(JsonColumn), compare_columns);

	plan->pairs = palloc0(Max(plan->ncolumns, 1) * sizeof(JsonbPair));
	for (int i = 0; i < plan->ncolumns; i++)
	{
		JsonbValue *key = &plan->pairs[i].key;

		key->type = jbvString;
		key->val.string.val = unconstify(char *, plan->columns[i].name);
		key->val.string.len = strlen(plan->columns[i].name);
		plan->pairs[i].order = i;
	}
	MemoryContextSwitchTo(old);
	return plan;
}

static void
set_string(JsonbValue *result, char *string, Size len)
{
	if (len > JENTRY_OFFLENMASK)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("string too long to represent as jsonb string"),
				 errdetail("Due to an implementation restriction, jsonb strings cannot exceed %d bytes.",
						   JENTRY_OFFLENMASK)));
	result->type = jbvString;
	result->val.string.val = string;
	result->val.string.len = (int) len;
}

static void
set_numeric(JsonbValue *result, Numeric value)
{
	result->type = jbvNumeric;
	result->val.numeric = value;
}

/* A number's text: not-a-number and the infinities are strings in JSON. */
static void
set_number_text(JsonbValue *result, char *text)
{
	if (strchr(text, 'N') != NULL || strchr(text, 'n') != NULL)
		set_string(result, text, strlen(text));
	else
		set_numeric(result, DatumGetNumeric(DirectFunctionCall3(numeric_in, CStringGetDatum(text),
																ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1))));
}

/* A jsonb value as part of the object; arrays and objects are unpacked. */
static void
set_jsonb(JsonbValue *result, Jsonb *jb)
{
	JsonbIterator *it = JsonbIteratorInit(&jb->root);
	JsonbParseState *state = NULL;
	JsonbValue *made = NULL;
	JsonbValue	v;
	JsonbIteratorToken token;

	if (JB_ROOT_IS_SCALAR(jb))
	{
		/* an array of one */
		(void) JsonbIteratorNext(&it, &v, true);
		(void) JsonbIteratorNext(&it, result, true);
		return;
	}
	while ((token = JsonbIteratorNext(&it, &v, false)) != WJB_DONE)
		made = pushJsonbValue(&state, token, token < WJB_BEGIN_ARRAY ? &v : NULL);
	Assert(made != NULL);
	*result = *made;
}

/* What to_jsonb said when the row was captured. */
static void
set_stored(JsonbValue *result, const ScdcRowView *view, int attno)
{
	char	   *stored;

	if (view->isnull[attno])
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("value could not be converted to jsonb when it was captured")));
	stored = TextDatumGetCString(view->values[attno]);
	set_jsonb(result, DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(stored))));
}

static void
set_value(JsonbValue *result, JsonColumn *column, Datum value)
{
	switch (column->kind)
	{
		case JSON_BOOL:
			result->type = jbvBool;
			result->val.boolean = DatumGetBool(value);
			break;
		case JSON_INT2:
			set_numeric(result, int64_to_numeric(DatumGetInt16(value)));
			break;
		case JSON_INT4:
			set_numeric(result, int64_to_numeric(DatumGetInt32(value)));
			break;
		case JSON_INT8:
			set_numeric(result, int64_to_numeric(DatumGetInt64(value)));
			break;
		case JSON_NUMERIC:
			{
				Numeric		number = DatumGetNumeric(value);

				if (numeric_is_nan(number) || numeric_is_inf(number))
					set_number_text(result, DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(number))));
				else
					set_numeric(result, number);
				break;
			}
		case JSON_FLOAT:
			set_number_text(result, OutputFunctionCall(&column->function, value));
			break;
		case JSON_TEXT:
			{
				struct varlena *text = PG_DETOAST_DATUM_PACKED(value);

				set_string(result, VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text));
				break;
			}
		case JSON_TIME:
			{
				char	   *text = JsonEncodeDateTime(NULL, value, column->type, NULL);

				set_string(result, text, strlen(text));
				break;
			}
		case JSON_JSONB:
			set_jsonb(result, DatumGetJsonbP(value));
			break;
		case JSON_OUTPUT:
			{
				char	   *text = OutputFunctionCall(&column->function, value);

				set_string(result, text, strlen(text));
				break;
			}
		case JSON_TO_JSONB:
			set_jsonb(result, DatumGetJsonbP(FunctionCall1(&column->function, value)));
			break;
		case JSON_STORED:
			Assert(false);		/* needs more than the value */
			break;
	}
}

Datum
scdc_json_row(ScdcJsonRows *json, ScdcRowView *view)
{
	JsonPlan   *plan = view->schema->plan;
	JsonbValue	object;
	Jsonb	   *result;

	if (plan == NULL)
		plan = view->schema->plan = plan_create(json, view->schema->schema);
	scdc_row_view_split(view);

	for (int i = 0; i < plan->ncolumns; i++)
	{
		JsonColumn *column = &plan->columns[i];
		JsonbValue *value = &plan->pairs[i].value;

		json->column = column->name;
		if (view->isnull[column->image_attno])
			value->type = jbvNull;
		else if (column->kind == JSON_STORED)
			set_stored(value, view, column->image_attno + 1);
		else
			set_value(value, column, view->values[column->image_attno]);
	}
	json->column = NULL;

	object.type = jbvObject;
	object.val.object.nPairs = plan->ncolumns;
	object.val.object.pairs = plan->pairs;
	json->whole = view;
	result = JsonbValueToJsonb(&object);
	json->whole = NULL;
	return PointerGetDatum(result);
}
