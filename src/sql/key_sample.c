/*-------------------------------------------------------------------------
 *
 * key_sample.c
 *	  A hash for values of a type that can be sorted, but has no hash function.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "common/pg_prng.h"
#include "utils/datum.h"
#include "utils/memutils.h"

#include "sql/key_sample.h"

/* At most so many values and bytes: with a million different ones, sixty share a hash. */
#define SAMPLE_VALUES	16384
#define SAMPLE_BYTES	(4 * 1024 * 1024)

struct ScdcKeySample
{
	Oid			type;
	Oid			collation;
	FmgrInfo	compare;
	int16		typlen;
	bool		typbyval;
	Datum	   *values;
	int			nvalues;
	int			room;			/* how many are kept */
	Size		bytes;			/* of values not passed by value */
	uint64		seen;
	pg_prng_state random;		/* the same each time */
	MemoryContext context;
};

ScdcKeySample *
scdc_key_sample_create(Oid type, Oid collation)
{
	TypeCacheEntry *cache = lookup_type_cache(type, TYPECACHE_CMP_PROC_FINFO);
	MemoryContext context;
	ScdcKeySample *sample;

	if (!OidIsValid(cache->cmp_proc_finfo.fn_oid))
		return NULL;
	context = AllocSetContextCreate(CurrentMemoryContext, "streamcdc keys", ALLOCSET_DEFAULT_SIZES);
	sample = MemoryContextAllocZero(context, sizeof(ScdcKeySample));
	sample->type = type;
	sample->collation = collation;
	fmgr_info_copy(&sample->compare, &cache->cmp_proc_finfo, context);
	sample->typlen = cache->typlen;
	sample->typbyval = cache->typbyval;
	sample->room = SAMPLE_VALUES;
	sample->values = MemoryContextAlloc(context, SAMPLE_VALUES * sizeof(Datum));
	pg_prng_seed(&sample->random, 0);
	sample->context = context;
	return sample;
}

bool
scdc_key_sample_fits(const ScdcKeySample *sample, Oid type, Oid collation)
{
	return sample->type == type && sample->collation == collation;
}

static Size
bytes_of(const ScdcKeySample *sample, Datum value)
{
	return sample->typbyval ? 0 : datumGetSize(value, false, sample->typlen);
}

static void
set_value(ScdcKeySample *sample, int n, Datum value)
{
	MemoryContext old = MemoryContextSwitchTo(sample->context);

	if (sample->typlen == -1 && !sample->typbyval)
		value = PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
	else
		value = datumCopy(value, sample->typbyval, sample->typlen);
	MemoryContextSwitchTo(old);
	sample->bytes += bytes_of(sample, value);
	sample->values[n] = value;
}

static void
forget_value(ScdcKeySample *sample, int n)
{
	sample->bytes -= bytes_of(sample, sample->values[n]);
	if (!sample->typbyval)
		pfree(DatumGetPointer(sample->values[n]));
}

/* Any half will do: they are in no order that the values depend on. */
static void
halve(ScdcKeySample *sample)
{
	sample->room = Max(sample->nvalues / 2, 1);
	while (sample->nvalues > sample->room)
		forget_value(sample, --sample->nvalues);
}

/* Each of n values seen is in the sample with the same probability. */
void
scdc_key_sample_add(ScdcKeySample *sample, Datum value)
{
	sample->seen++;
	if (sample->nvalues < sample->room)
		set_value(sample, sample->nvalues++, value);
	else
	{
		uint64		place = pg_prng_uint64_range(&sample->random, 0, sample->seen - 1);

		if (place >= (uint64) sample->room)
			return;
		forget_value(sample, (int) place);
		set_value(sample, (int) place, value);
	}
	if (sample->bytes > SAMPLE_BYTES && sample->nvalues > 1)
		halve(sample);
}

static int
compare(ScdcKeySample *sample, Datum a, Datum b)
{
	return DatumGetInt32(FunctionCall2Coll(&sample->compare, sample->collation, a, b));
}

static int
compare_for_sort(const void *a, const void *b, void *arg)
{
	return compare(arg, *(const Datum *) a, *(const Datum *) b);
}

void
scdc_key_sample_finish(ScdcKeySample *sample)
{
	qsort_arg(sample->values, sample->nvalues, sizeof(Datum), compare_for_sort, sample);
}

uint32
scdc_key_sample_hash(ScdcKeySample *sample, Datum value)
{
	int			low = 0;
	int			high = sample->nvalues;

	/* how many are less */
	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (compare(sample, sample->values[middle], value) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return murmurhash32((uint32) low);
}
