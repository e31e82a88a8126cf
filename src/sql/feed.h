/*-------------------------------------------------------------------------
 *
 * feed.h
 *	  One call of stream_changes: from its arguments to the rows of its
 *	  result, one by one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_FEED_H
#define SCDC_FEED_H

#include "fmgr.h"

#include "sql/range.h"
#include "sql/registration.h"

/* The forms of the function, by its first argument. */
typedef enum ScdcFeedForm
{
	SCDC_FEED_NAME,				/* text */
	SCDC_FEED_RELATION,			/* regclass */
	SCDC_FEED_TYPED				/* NULL::table */
} ScdcFeedForm;

/* Columns of the result. */
enum
{
	SCDC_FEED_CHANGE_TYPE,
	SCDC_FEED_COMMIT_VERSION,
	SCDC_FEED_COMMIT_TIMESTAMP,
	SCDC_FEED_ROW_DATA,
	SCDC_FEED_NCOLUMNS
};

/* What a call asks for. */
typedef struct ScdcFeedCall
{
	ScdcReadOptions options;
	const char *name;			/* of the table; or, with NULL, relid */
	Oid			relid;
	Oid			row_type;		/* of the typed form */
	ScdcRegistration *registration; /* of a relation that is a change log itself: that is read by scdc_registered_read; or NULL */
} ScdcFeedCall;

/*
 * Reads the arguments.  Allocates in the current context.  Raises 22004,
 * 42809 and what scdc_read_options raises.
 */
extern void scdc_feed_call(FunctionCallInfo fcinfo, ScdcFeedForm form, ScdcFeedCall *call);

typedef struct ScdcFeed ScdcFeed;

/*
 * Begins to read a tracked table (call->registration is NULL): resolves it,
 * checks rights and options, and waits as scdc_read_begin does.  Without
 * with_rows the last column stays NULL, and values that nobody asked for are
 * not converted.
 *
 * The feed lives in a context of its own below the current one; what it opens
 * (a snapshot, tables, temporary files) belongs to the current resource
 * owner, in which it must be ended, too, or be left to an error's clean-up.
 */
extern ScdcFeed *scdc_feed_open(const ScdcFeedCall *call, bool with_rows);

/* The next row, good until the next call; NULL at the end.  row_data is never null with with_rows. */
extern const Datum *scdc_feed_next(ScdcFeed *feed);

/* Back to the first row, as of the same moment. */
extern void scdc_feed_restart(ScdcFeed *feed);

extern int64 scdc_feed_blocks(const ScdcFeed *feed);	/* blocks of the log opened since the beginning, or restart */
extern void scdc_feed_close(ScdcFeed *feed);

#endif							/* SCDC_FEED_H */
