/*-------------------------------------------------------------------------
 *
 * old_text.c
 *	  The text of a value of a type that has been altered since, as the type
 *	  of today would write it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tupdesc.h"
#include "catalog/namespace.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "log/type_parts.h"
#include "owner.h"
#include "sql/old_text.h"

static char *convert(const ScdcOldText *old, char *value, Oid then, Oid now);

ScdcOldText *
scdc_old_text_create(const char *parts, Oid then, Oid now, bool follow_labels)
{
	ScdcOldText *old;
	char	   *today;

	if (parts == NULL)
		return NULL;
	today = scdc_type_parts(now);
	if (today && strcmp(today, parts) == 0)
		return NULL;
	old = palloc0(sizeof(ScdcOldText));
	old->parts = scdc_type_parts_parse(parts);
	old->then = then;
	old->now = now;
	old->follow_labels = follow_labels;
	return old;
}

char *
scdc_old_text_convert(const ScdcOldText *old, char *value)
{
	return convert(old, value, old->then, old->now);
}

Datum
scdc_stored_text_input(FmgrInfo *input, char *value, Oid param, int32 typmod, Oid owner)
{
	OverrideSearchPath path = {.addCatalog = true};
	ScdcOwnerScope scope;
	Datum		result;

	scdc_owner_begin(&scope, owner);
	PushOverrideSearchPath(&path);
	result = InputFunctionCall(input, value, param, typmod);
	PopOverrideSearchPath();
	scdc_owner_end(&scope);
	return result;
}

/* ---------------------------------------------------------------------
 * composites
 * ---------------------------------------------------------------------
 */

static void malformed(void) pg_attribute_noreturn();

static void
malformed(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("composite value in the change log does not fit the type it had")));
}

/* One field of record_out's text, up to the comma or parenthesis after it; NULL for NULL. */
static char *
next_field(const char **p)
{
	StringInfoData field;
	bool		quoted = false;

	if (**p == ',' || **p == ')')
		return NULL;
	initStringInfo(&field);
	while (quoted || (**p != ',' && **p != ')'))
	{
		char		c = *(*p)++;

		if (c == '\0')
			malformed();
		if (c == '\\' && **p != '\0')
			appendStringInfoChar(&field, *(*p)++);
		else if (c != '"')
			appendStringInfoChar(&field, c);
		else if (quoted && **p == '"')
			appendStringInfoChar(&field, *(*p)++);
		else
			quoted = !quoted;
	}
	return field.data;
}

static void
split_record(const char *value, char **fields, int n)
{
	const char *p = value;

	if (*p++ != '(')
		malformed();
	for (int i = 0; i < n; i++)
	{
		fields[i] = next_field(&p);
		if (*p++ != (i < n - 1 ? ',' : ')'))
			malformed();
	}
	if ((n == 0 && *p++ != ')') || *p != '\0')
		malformed();
}

static void
append_field(StringInfo record, const char *field)
{
	appendStringInfoChar(record, '"');
	for (const char *p = field; *p; p++)
	{
		if (*p == '"' || *p == '\\')
			appendStringInfoChar(record, *p);
		appendStringInfoChar(record, *p);
	}
	appendStringInfoChar(record, '"');
}

static char *
convert_record(const ScdcOldText *old, const ScdcTypePart *part, char *value, Oid now)
{
	char	  **fields = palloc0(Max(part->n, 1) * sizeof(char *));
	TupleDesc	desc;
	StringInfoData record;
	char		before = '(';

	if (now != part->type)
		return type_is_rowtype(now) ? NULL : value;
	split_record(value, fields, part->n);
	initStringInfo(&record);
	desc = lookup_rowtype_tupdesc_copy(now, -1);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		char	   *field = NULL;

		if (att->attisdropped)
			continue;
		appendStringInfoChar(&record, before);
		before = ',';
		for (int j = 0; j < part->n; j++)
		{
			if (part->attnums[j] != att->attnum || fields[j] == NULL)
				continue;
			field = convert(old, fields[j], part->oids[j], att->atttypid);
			if (field == NULL)
				return NULL;
		}
		if (field)
			append_field(&record, field);
	}
	if (before == '(')
		appendStringInfoChar(&record, '(');
	appendStringInfoChar(&record, ')');
	return record.data;
}

/* ---------------------------------------------------------------------
 * arrays, enums
 * ---------------------------------------------------------------------
 */

static const ScdcTypePart *
part_without_domain(const ScdcOldText *old, Oid type)
{
	const ScdcTypePart *part = scdc_type_part(old->parts, type);

	while (part && part->kind == SCDC_TYPE_DOMAIN)
		part = scdc_type_part(old->parts, part->base);
	return part;
}

/* Elements are taken apart and put together again as those of a text array. */
static char *
convert_array(const ScdcOldText *old, const ScdcTypePart *part, char *value, Oid now)
{
	Oid			elem = get_element_type(now);
	ArrayType  *array;
	Datum	   *elems;
	bool	   *nulls;
	int			n;

	/* (elements of other types may be separated by something else than commas) */
	if (!OidIsValid(elem) || part_without_domain(old, part->base) == NULL)
		return value;
	array = DatumGetArrayTypeP(OidInputFunctionCall(F_ARRAY_IN, value, TEXTOID, -1));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elems, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		char	   *element;

		if (nulls[i])
			continue;
		element = convert(old, TextDatumGetCString(elems[i]), part->base, elem);
		if (element == NULL)
			return NULL;
		elems[i] = CStringGetTextDatum(element);
	}
	array = construct_md_array(elems, nulls, ARR_NDIM(array), ARR_DIMS(array), ARR_LBOUND(array),
							   TEXTOID, -1, false, TYPALIGN_INT);
	return OidOutputFunctionCall(F_ARRAY_OUT, PointerGetDatum(array));
}

/* What the label that was called so is called today. */
static char *
convert_label(const ScdcTypePart *part, char *value)
{
	for (int i = 0; i < part->n; i++)
	{
		HeapTuple	tuple;

		if (strcmp(part->labels[i], value) != 0)
			continue;
		tuple = SearchSysCache1(ENUMOID, ObjectIdGetDatum(part->oids[i]));
		if (HeapTupleIsValid(tuple))
		{
			Form_pg_enum label = (Form_pg_enum) GETSTRUCT(tuple);

			if (label->enumtypid == part->type)
				value = pstrdup(NameStr(label->enumlabel));
			ReleaseSysCache(tuple);
		}
		break;
	}
	return value;
}

static char *
convert(const ScdcOldText *old, char *value, Oid then, Oid now)
{
	const ScdcTypePart *part = part_without_domain(old, then);

	if (part == NULL)
		return value;
	now = getBaseType(now);
	switch (part->kind)
	{
		case SCDC_TYPE_COMPOSITE:
			return convert_record(old, part, value, now);
		case SCDC_TYPE_ARRAY:
			return convert_array(old, part, value, now);
		case SCDC_TYPE_ENUM:
			return old->follow_labels ? convert_label(part, value) : value;
		case SCDC_TYPE_DOMAIN:
			break;
	}
	return value;
}
