/*-------------------------------------------------------------------------
 *
 * tuple_key.c
 *	  A column that rows of a query's result are compared by (see tuple_key.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "sql/tuple_key.h"

void
scdc_tuple_key_init(ScdcTupleKey *key, AttrNumber attno, Oid type, Oid collation)
{
	TypeCacheEntry *cache = lookup_type_cache(type, TYPECACHE_EQ_OPR_FINFO | TYPECACHE_HASH_EXTENDED_PROC_FINFO);

	if (!OidIsValid(cache->eq_opr_finfo.fn_oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("could not identify an equality operator for type %s", format_type_be(type))));
	key->attno = attno;
	key->collation = OidIsValid(collation) ? collation : get_typcollation(type);
	fmgr_info_copy(&key->equal, &cache->eq_opr_finfo, CurrentMemoryContext);
	key->has_hash = OidIsValid(cache->hash_extended_proc_finfo.fn_oid);
	if (key->has_hash)
		fmgr_info_copy(&key->hash, &cache->hash_extended_proc_finfo, CurrentMemoryContext);
}

bool
scdc_tuple_key_same(ScdcTupleKey *key, TupleDesc desc, HeapTuple a, HeapTuple b)
{
	bool		a_isnull,
				b_isnull;
	Datum		a_value = heap_getattr(a, key->attno, desc, &a_isnull);
	Datum		b_value = heap_getattr(b, key->attno, desc, &b_isnull);

	if (a_isnull || b_isnull)
		return a_isnull && b_isnull;
	return DatumGetBool(FunctionCall2Coll(&key->equal, key->collation, a_value, b_value));
}

uint64
scdc_tuple_key_hash(ScdcTupleKey *key, Datum value, bool isnull)
{
	if (isnull || !key->has_hash)
		return 0;
	return DatumGetUInt64(FunctionCall2Coll(&key->hash, key->collation, value, Int64GetDatum(0)));
}
