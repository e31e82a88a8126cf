/*-------------------------------------------------------------------------
 *
 * type_parts.c
 *	  What a type was made of when values of it were captured as text.
 *
 * The words of streamcdc.schemas.type_parts, a space after each:
 *
 *		d TYPE BASE							a domain
 *		a TYPE ELEMENT						an array
 *		e TYPE COUNT OID LENGTH:LABEL ...	an enum, labels by OID
 *		c TYPE COUNT ATTNUM TYPE ...		a composite
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "log/type_parts.h"

typedef struct Description
{
	StringInfoData text;
	List	   *seen;			/* OIDs of types */
	bool		changeable;		/* is there a composite or enum? */
} Description;

static void describe(Description *d, Oid type);

static int
compare_labels(const void *a, const void *b)
{
	Oid			x = ((Form_pg_enum) GETSTRUCT(*(HeapTuple const *) a))->oid;
	Oid			y = ((Form_pg_enum) GETSTRUCT(*(HeapTuple const *) b))->oid;

	return x < y ? -1 : x > y ? 1 : 0;
}

static void
describe_enum(Description *d, Oid type)
{
	CatCList   *list = SearchSysCacheList1(ENUMTYPOIDNAME, ObjectIdGetDatum(type));
	HeapTuple  *labels = palloc(Max(list->n_members, 1) * sizeof(HeapTuple));

	for (int i = 0; i < list->n_members; i++)
		labels[i] = &list->members[i]->tuple;
	qsort(labels, list->n_members, sizeof(HeapTuple), compare_labels);
	appendStringInfo(&d->text, "e %u %d ", type, list->n_members);
	for (int i = 0; i < list->n_members; i++)
	{
		Form_pg_enum label = (Form_pg_enum) GETSTRUCT(labels[i]);

		appendStringInfo(&d->text, "%u %d:%s ", label->oid, (int) strlen(NameStr(label->enumlabel)),
						 NameStr(label->enumlabel));
	}
	ReleaseSysCacheList(list);
	pfree(labels);
}

static void
describe_composite(Description *d, Oid type)
{
	TupleDesc	desc = lookup_rowtype_tupdesc_copy(type, -1);
	int			n = 0;

	for (int i = 0; i < desc->natts; i++)
		n += !TupleDescAttr(desc, i)->attisdropped;
	appendStringInfo(&d->text, "c %u %d ", type, n);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped)
			appendStringInfo(&d->text, "%d %u ", att->attnum, att->atttypid);
	}
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped)
			describe(d, att->atttypid);
	}
	FreeTupleDesc(desc);
}

static void
describe(Description *d, Oid type)
{
	HeapTuple	tuple;
	Form_pg_type form;
	char		typtype;
	Oid			base;
	Oid			elem = get_element_type(type);

	if (list_member_oid(d->seen, type))
		return;
	d->seen = lappend_oid(d->seen, type);
	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_type) GETSTRUCT(tuple);
	typtype = form->typtype;
	base = form->typbasetype;
	ReleaseSysCache(tuple);

	if (OidIsValid(elem))
	{
		appendStringInfo(&d->text, "a %u %u ", type, elem);
		describe(d, elem);
		return;
	}
	switch (typtype)
	{
		case TYPTYPE_DOMAIN:
			appendStringInfo(&d->text, "d %u %u ", type, base);
			describe(d, base);
			break;
		case TYPTYPE_ENUM:
			d->changeable = true;
			describe_enum(d, type);
			break;
		case TYPTYPE_COMPOSITE:
			d->changeable = true;
			describe_composite(d, type);
			break;
	}
}

char *
scdc_type_parts(Oid type)
{
	Description d = {0};

	initStringInfo(&d.text);
	describe(&d, type);
	list_free(d.seen);
	if (d.changeable)
		return d.text.data;
	pfree(d.text.data);
	return NULL;
}

/* ---------------------------------------------------------------------
 * reading them
 * ---------------------------------------------------------------------
 */

static void damaged(void) pg_attribute_noreturn();

static void
damaged(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("description of a type in the schema history is damaged")));
}

/* A number, and the character after it. */
static unsigned long
number(const char **p, char after)
{
	char	   *end;
	unsigned long n = strtoul(*p, &end, 10);

	if (end == *p || *end != after)
		damaged();
	*p = end + 1;
	return n;
}

static void
parse_members(ScdcTypePart *part, const char **p)
{
	unsigned long count = number(p, ' ');

	/* each takes some of the text */
	if (count > strlen(*p))
		damaged();
	part->n = (int) count;
	part->oids = palloc0(Max(part->n, 1) * sizeof(Oid));
	part->labels = palloc0(Max(part->n, 1) * sizeof(char *));
	part->attnums = palloc0(Max(part->n, 1) * sizeof(AttrNumber));
	for (int i = 0; i < part->n; i++)
	{
		unsigned long len;

		if (part->kind == SCDC_TYPE_COMPOSITE)
		{
			part->attnums[i] = (AttrNumber) number(p, ' ');
			part->oids[i] = (Oid) number(p, ' ');
			continue;
		}
		part->oids[i] = (Oid) number(p, ' ');
		len = number(p, ':');
		if (len >= strlen(*p) || (*p)[len] != ' ')
			damaged();
		part->labels[i] = pnstrdup(*p, len);
		*p += len + 1;
	}
}

List *
scdc_type_parts_parse(const char *text)
{
	List	   *parts = NIL;
	const char *p = text;

	while (*p)
	{
		ScdcTypePart *part = palloc0(sizeof(ScdcTypePart));

		part->kind = (ScdcTypeKind) *p++;
		if (*p++ != ' ')
			damaged();
		part->type = (Oid) number(&p, ' ');
		switch (part->kind)
		{
			case SCDC_TYPE_DOMAIN:
			case SCDC_TYPE_ARRAY:
				part->base = (Oid) number(&p, ' ');
				break;
			case SCDC_TYPE_ENUM:
			case SCDC_TYPE_COMPOSITE:
				parse_members(part, &p);
				break;
			default:
				damaged();
		}
		parts = lappend(parts, part);
	}
	return parts;
}

const ScdcTypePart *
scdc_type_part(List *parts, Oid type)
{
	ListCell   *lc;

	foreach(lc, parts)
	{
		const ScdcTypePart *part = lfirst(lc);

		if (part->type == type)
			return part;
	}
	return NULL;
}
