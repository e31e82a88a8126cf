/*-------------------------------------------------------------------------
 *
 * tuple_key.h
 *	  A column that rows of a query's result are compared by.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_TUPLE_KEY_H
#define SCDC_TUPLE_KEY_H

#include "access/htup.h"
#include "access/tupdesc.h"
#include "fmgr.h"

typedef struct ScdcTupleKey
{
	AttrNumber	attno;
	Oid			collation;
	FmgrInfo	equal;
	bool		has_hash;
	FmgrInfo	hash;			/* the extended one */
} ScdcTupleKey;

/*
 * Fills in a key of that type; collation InvalidOid: the type's own (a view's
 * column may have none, where those it comes from do not agree).  Lives in the
 * current context.  Raises 42883 if the type has no equality.
 */
extern void scdc_tuple_key_init(ScdcTupleKey *key, AttrNumber attno, Oid type, Oid collation);

/* Are the values of two rows equal?  NULL equals NULL.  Leaves garbage in the current context. */
extern bool scdc_tuple_key_same(ScdcTupleKey *key, TupleDesc desc, HeapTuple a, HeapTuple b);

/* 0 for NULL, and where the type has no hash function.  Leaves garbage in the current context. */
extern uint64 scdc_tuple_key_hash(ScdcTupleKey *key, Datum value, bool isnull);

#endif							/* SCDC_TUPLE_KEY_H */
