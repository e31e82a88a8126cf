/*-------------------------------------------------------------------------
 *
 * retained.h
 *	  What a log still has: which versions can be asked for.
 *
 * Versions that are removed are folded into the baseline, which thereby moves
 * forward: it is then what the table held after the last of them, and takes
 * its number and time.  Those who read from the beginning begin with it.  Who
 * asks for that version by its number or time wants what it did, though, and
 * that is gone like all before.
 *
 * The log itself says how far the baseline has moved: it begins with blocks
 * that are marked so (SCDC_BLOCK_IS_BASE), the first of which holds no row.
 * Nothing else is written for that, so capture and commands never wait for
 * whoever removes versions.  Of a stream without baseline that first block is
 * all there is.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_RETAINED_H
#define SCDC_RETAINED_H

#include "datatype/timestamp.h"
#include "log/catalog.h"
#include "log/changelog.h"

typedef struct ScdcRetained
{
	bool		moved;			/* have versions been removed? */
	bool		has_gap;		/* if so, was one of them a gap, so that the baseline is what was recorded, not what there was? */
	int64		base;			/* version of the baseline; without one, the version before the first */
	int64		first;			/* where reading begins if nothing else is said; may be yet to come */
	int64		oldest;			/* that can be asked for; likewise */
	TimestampTz kept_from;		/* what was committed before that time may be gone; DT_NOBEGIN: nothing is */
} ScdcRetained;

extern ScdcRetained scdc_retained(const ScdcStream *stream, Snapshot snapshot);

/* Is the block one of a baseline, moved or not? */
static inline bool
scdc_is_baseline_block(const ScdcStream *stream, const ScdcBlockInfo *block)
{
	return (block->flags & SCDC_BLOCK_IS_BASE) != 0 || (stream->baseline && block->first_version == stream->base_version);
}

#endif							/* SCDC_RETAINED_H */
