/*-------------------------------------------------------------------------
 *
 * registration.h
 *	  Change logs from elsewhere: what stream_register_changelog was told
 *	  about a relation, and whether the relation is like that.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_REGISTRATION_H
#define SCDC_REGISTRATION_H

#include "access/tupdesc.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* A row of streamcdc.changelogs. */
typedef struct ScdcRegistration
{
	Oid			relid;
	bool		has_carryovers; /* the three flags of cdc-semantics 2.2 */
	bool		has_intermediate;
	bool		updates_as_pairs;
	int			nrow_id;
	char	  **row_id;			/* references, see ScdcReference */
	char	   *row_version;	/* a reference, or NULL */
} ScdcRegistration;

/*
 * What a reference of row_id or row_version comes to: a column, or a part of
 * one ("payload.id": a field of a composite column, or a member of a json
 * one).
 */
typedef struct ScdcReference
{
	AttrNumber	attnum;			/* of the column, if it is one */
	char	   *expression;		/* as SQL over the relation called "l" */
	Oid			type;
	Oid			collation;
} ScdcReference;

/* A relation that has passed the checks. */
typedef struct ScdcRegisteredSchema
{
	AttrNumber	change_type;
	AttrNumber	commit_version;
	AttrNumber	commit_timestamp;
	bool		text_versions;
	ScdcReference *row_id;		/* registration->nrow_id of them */
	ScdcReference row_version;	/* if there is one */
} ScdcRegisteredSchema;

/* The registration of a relation, in the current context; NULL if there is none. */
extern ScdcRegistration *scdc_registration_find(Oid relid, Snapshot snapshot);

/* For a relation that has none, and is locked against others who would do the same. */
extern void scdc_registration_insert(const ScdcRegistration *registration);

/* False if there is none. */
extern bool scdc_registration_delete(Oid relid);

/* Deletes the registrations of relations that are no more. */
extern void scdc_registration_purge(void);

/*
 * Checks the relation against its registration, in the order of cdc-semantics
 * 2.1 and 2.3: the metadata columns, one after the other, then row_id, then
 * row_version.  Fills *schema, in the current context.  name is what messages
 * call the relation.
 *
 * Raises 42P17 with a condition INVALID_CHANGELOG_SCHEMA; 0A000 if row_version
 * is needed and not given; 42703 for a reference to what is not there; 42883
 * if the values it leads to cannot be compared.
 */
extern void scdc_registration_check(const ScdcRegistration *registration, TupleDesc desc, const char *name,
									ScdcRegisteredSchema *schema);

#endif							/* SCDC_REGISTRATION_H */
