/*-------------------------------------------------------------------------
 *
 * type_parts.h
 *	  What a type was made of when values of it were captured as text.
 *
 * The text of a composite value says which of its fields is which by their
 * order only, and an enum's by their labels; both can be altered while tables
 * use them.  So the schema history keeps, for such types and for what leads
 * to them through domains, arrays and other composites, the attribute numbers
 * and label OIDs, which are never used twice.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_TYPE_PARTS_H
#define SCDC_TYPE_PARTS_H

#include "access/attnum.h"
#include "nodes/pg_list.h"

typedef enum ScdcTypeKind
{
	SCDC_TYPE_DOMAIN = 'd',
	SCDC_TYPE_ARRAY = 'a',
	SCDC_TYPE_ENUM = 'e',
	SCDC_TYPE_COMPOSITE = 'c'
} ScdcTypeKind;

typedef struct ScdcTypePart
{
	Oid			type;
	ScdcTypeKind kind;
	Oid			base;			/* domain, array: what it is of */
	int			n;				/* enum: labels; composite: attributes, without dropped ones */
	Oid		   *oids;			/* enum: of the labels; composite: types of the attributes */
	char	  **labels;			/* enum */
	AttrNumber *attnums;		/* composite, rising */
} ScdcTypePart;

/* In words of our own, as the catalogs (historic or current) say; NULL if there is no composite or enum in it. */
extern char *scdc_type_parts(Oid type);

/* The words as a list of ScdcTypePart; XX001 if they are damaged. */
extern List *scdc_type_parts_parse(const char *text);

/* NULL if it is not in the list: then there is nothing to say of it. */
extern const ScdcTypePart *scdc_type_part(List *parts, Oid type);

#endif							/* SCDC_TYPE_PARTS_H */
