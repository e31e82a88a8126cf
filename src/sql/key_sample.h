/*-------------------------------------------------------------------------
 *
 * key_sample.h
 *	  A hash for values of a type that can be sorted, but has no hash function.
 *
 * A random sample of the values is sorted; the hash of a value is its place
 * among them.  Equal values have the same one whatever the sample, which only
 * decides how evenly they are spread.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_KEY_SAMPLE_H
#define SCDC_KEY_SAMPLE_H

#include "utils/typcache.h"

typedef struct ScdcKeySample ScdcKeySample;

/* Empty, in a context below the current one.  NULL if the type cannot be sorted. */
extern ScdcKeySample *scdc_key_sample_create(Oid type, Oid collation);

/* Does it serve values that are compared so? */
extern bool scdc_key_sample_fits(const ScdcKeySample *sample, Oid type, Oid collation);

/* Each value may be taken into it, or not; memory is bounded. */
extern void scdc_key_sample_add(ScdcKeySample *sample, Datum value);

/* No more values come. */
extern void scdc_key_sample_finish(ScdcKeySample *sample);
extern uint32 scdc_key_sample_hash(ScdcKeySample *sample, Datum value);

#endif							/* SCDC_KEY_SAMPLE_H */
