/*-------------------------------------------------------------------------
 *
 * resolve.h
 *	  From what a reader names to a stream that it may read.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_RESOLVE_H
#define SCDC_RESOLVE_H

#include "utils/snapshot.h"

#include "log/catalog.h"

typedef struct ScdcTarget
{
	ScdcStream *stream;
	Oid			relid;			/* InvalidOid if the table was dropped */
	char	   *name;			/* as messages call it: like regclass, dropped ones "name (dropped N)" */
	bool		is_owner;		/* the caller has the owner's privileges */
} ScdcTarget;

/*
 * The table a caller named (as text for regclass, or "name (dropped N)"), and
 * its stream under the snapshot.  Raises 42P01, then 42501, then 0A000, or
 * 55000 if the stream is inert.
 * Allocates in the current context.
 */
extern ScdcTarget *scdc_resolve_name(const char *name, Snapshot snapshot);
extern ScdcTarget *scdc_resolve_relid(Oid relid, Snapshot snapshot);

/*
 * The relation that a name means to the caller now; InvalidOid if there is
 * none, though a dropped one may have had the name.
 */
extern Oid	scdc_name_relid(const char *name);

/* Raises 42P01. */
extern void scdc_undefined_relation(Oid relid) pg_attribute_noreturn();

/* Raises 42501 unless the caller owns the relation, which exists. */
extern void scdc_must_be_owner(Oid relid);

/* Has the relation a stream, be it one that was given up? */
extern bool scdc_is_tracked(Oid relid, Snapshot snapshot);

/* Why an inert stream is. */
#define SCDC_INERT_REASON "The database was copied, or restored from a dump, from one in which the table was tracked."

/* Raises 0A000 for a live table. */
extern void scdc_not_tracked(Oid relid, const char *name, Snapshot snapshot) pg_attribute_noreturn();

/* May the caller select all columns?  Row-level security is not looked at. */
extern bool scdc_may_select(Oid relid);

/* A relation's name as regclass shows it to the caller, quoted and qualified as needed. */
extern char *scdc_relation_name(Oid relid);

/* The name of a stream whose table was dropped. */
extern char *scdc_dropped_name(const ScdcStream *stream);

#endif							/* SCDC_RESOLVE_H */
