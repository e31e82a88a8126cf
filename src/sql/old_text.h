/*-------------------------------------------------------------------------
 *
 * old_text.h
 *	  The text of a value of a type that has been altered since, as the type
 *	  of today would write it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_OLD_TEXT_H
#define SCDC_OLD_TEXT_H

#include "fmgr.h"
#include "nodes/pg_list.h"

typedef struct ScdcOldText
{
	List	   *parts;			/* what the type was made of (type_parts.h) */
	Oid			then;
	Oid			now;
	bool		follow_labels;	/* enum labels that were renamed become those of today; else they stay as they were */
} ScdcOldText;

/*
 * Lives in the current context.  parts: of the type as it was, NULL if there
 * was nothing to say of it.  NULL if the text can stay as it is.
 */
extern ScdcOldText *scdc_old_text_create(const char *parts, Oid then, Oid now, bool follow_labels);

/*
 * Composites are mapped by attribute: a renamed one follows, an added one is
 * NULL, a dropped one is left out; also inside of arrays, domains and other
 * composites.  In the current context.  NULL if a composite type has become
 * another one, to which nothing leads.
 */
extern char *scdc_old_text_convert(const ScdcOldText *old, char *value);

/*
 * The value of a text out of the log.  Names in it (of a regclass, say) were
 * written with nothing but pg_catalog in the search path, and are read so.
 * Domains inside of composites call functions of users: owner is the table's,
 * who runs them, whoever reads.
 */
extern Datum scdc_stored_text_input(FmgrInfo *input, char *value, Oid param, int32 typmod, Oid owner);

#endif							/* SCDC_OLD_TEXT_H */
