/*-------------------------------------------------------------------------
 *
 * definition.h
 *	  What a query is told to do: from the arguments of stream_start, and to
 *	  and from the jsonb it is kept as.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_JOB_DEFINITION_H
#define SCDC_JOB_DEFINITION_H

#include "fmgr.h"

#include "jobs/query.h"

/* How the options say where to begin; resolved against the source by source.c. */
typedef enum ScdcStartKind
{
	SCDC_START_DEFAULT,			/* nothing said: from version 0 */
	SCDC_START_EARLIEST,
	SCDC_START_LATEST,
	SCDC_START_VERSION,
	SCDC_START_TIMESTAMP
} ScdcStartKind;

typedef struct ScdcStartOptions
{
	ScdcStartKind kind;
	char	   *version;		/* SCDC_START_VERSION, as given */
	TimestampTz timestamp;
	bool		start_inclusive;
	bool		end_inclusive;
	char	   *end_version;	/* as given, or NULL */
	TimestampTz end_timestamp;	/* DT_NOEND: none */
	bool		emission_given;
} ScdcStartOptions;

/*
 * Reads the arguments of stream_start; fills what does not depend on the
 * source.  Raises 22023 (0A000 for what is refused for now) in the order of
 * cdc-semantics 3.1 where that says one.
 */
extern ScdcQuery *scdc_definition_from_arguments(FunctionCallInfo fcinfo, ScdcStartOptions *start);

/* The same as kept in streamcdc.queries; columns and offsets included. */
extern Jsonb *scdc_definition_to_jsonb(const ScdcQuery *query);
extern void scdc_definition_from_jsonb(ScdcQuery *query, Jsonb *definition);

/*
 * A query of this name is there: do the two do the same?  Name of the first
 * thing that differs, or NULL.  Trigger, limits and starting options may.
 */
extern const char *scdc_definition_difference(const ScdcQuery *before, const ScdcQuery *now);

#endif							/* SCDC_JOB_DEFINITION_H */
