/*-------------------------------------------------------------------------
 *
 * range.h
 *	  The arguments of the reading functions: which versions, and how.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_RANGE_H
#define SCDC_RANGE_H

#include "fmgr.h"

#include "collapse/collapse.h"
#include "sql/resolve.h"

typedef enum ScdcRangeKind
{
	SCDC_RANGE_ALL,				/* no bound given */
	SCDC_RANGE_VERSIONS,
	SCDC_RANGE_TIMESTAMPS
} ScdcRangeKind;

/* What the caller asked for, with exclusive bounds moved one unit inwards. */
typedef struct ScdcRange
{
	ScdcRangeKind kind;
	bool		backwards;		/* the end is below the start; empty, too */
	bool		empty;			/* the bounds exclude everything */
	bool		has_end;
	int64		first;			/* versions or microseconds, both inclusive */
	int64		last;			/* PG_INT64_MAX without has_end */
	int64		start;			/* as they were given */
	int64		end;
} ScdcRange;

typedef struct ScdcReadOptions
{
	ScdcRange	range;
	ScdcDeduplication mode;
	bool		compute_updates;
} ScdcReadOptions;

/* The same as versions of one stream: first > last if there are none. */
typedef struct ScdcVersionRange
{
	int64		first;			/* PG_INT64_MIN: from the first retained */
	int64		last;			/* PG_INT64_MAX: to the newest */
} ScdcVersionRange;

/* The first argument, text or regclass, of a function that names its table so.  Raises 22004 if it is null. */
extern char *scdc_table_name_arg(FunctionCallInfo fcinfo);
extern Oid	scdc_table_arg(FunctionCallInfo fcinfo);

/*
 * Reads the arguments from starting_version (number 1) on; a function may
 * have the version bounds only, all bounds, or bounds and modes.  Raises 22023
 * in the order of cdc-semantics 3.1.
 */
extern void scdc_read_options(FunctionCallInfo fcinfo, ScdcReadOptions *options);

/* Raises 22023: update detection would take carry-overs for updates. */
extern void scdc_updates_need_removal(void) pg_attribute_noreturn();

/* Raises 22023 or 42P17 if the stream cannot be read this way. */
extern void scdc_read_options_check(const ScdcReadOptions *options, const ScdcTarget *target);

/*
 * Turns the range into versions.  Raises 22023 if the end is below the start;
 * 55000 if it needs versions that are no longer retained; and, with check_end, if it goes on behind the place
 * where the stream was given up.
 */
extern ScdcVersionRange scdc_range_versions(const ScdcRange *range, const ScdcTarget *target, bool check_end,
											Snapshot snapshot);

#endif							/* SCDC_RANGE_H */
