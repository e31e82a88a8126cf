/*-------------------------------------------------------------------------
 *
 * retained.c
 *	  What a log still has (see retained.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "log/retained.h"

ScdcRetained
scdc_retained(const ScdcStream *stream, Snapshot snapshot)
{
	ScdcRetained r = {.base = stream->base_version, .kept_from = DT_NOBEGIN};
	ScdcBlockInfo first;

	if (scdc_changelog_first(stream->stream_id, snapshot, &first) && (first.flags & SCDC_BLOCK_IS_BASE))
	{
		r.moved = true;
		r.has_gap = (first.flags & SCDC_BLOCK_HAS_GAP) != 0;
		r.base = first.first_version;
		r.kept_from = first.last_timestamp + 1;
	}
	else if (stream->base_version > 0)
	{
		/* the last version of an earlier tracking was committed before this one began */
		r.kept_from = stream->tracked_at;
	}
	r.first = stream->baseline ? r.base : r.base + 1;
	r.oldest = r.moved ? r.base + 1 : r.first;
	return r;
}
