/*-------------------------------------------------------------------------
 *
 * range.c
 *	  The arguments of the reading functions: which versions, and how.
 *
 * Bounds are compared literally with each commit's version or timestamp.
 * Timestamps rise strictly with versions, so a range of timestamps is one of
 * versions too, and becomes that before anything is read.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/formatting.h"
#include "utils/timestamp.h"

#include "log/changelog.h"
#include "log/retained.h"
#include "sql/range.h"

/* Numbers of the arguments, the same in all reading functions as far as they have them. */
enum
{
	ARG_STARTING_VERSION = 1,
	ARG_ENDING_VERSION,
	ARG_STARTING_TIMESTAMP,
	ARG_ENDING_TIMESTAMP,
	ARG_STARTING_INCLUSIVE,
	ARG_ENDING_INCLUSIVE,
	ARG_MODE,
	ARG_COMPUTE_UPDATES
};

static bool
given(FunctionCallInfo fcinfo, int arg)
{
	return arg < PG_NARGS() && !PG_ARGISNULL(arg);
}

static bool
bool_arg(FunctionCallInfo fcinfo, int arg, bool missing)
{
	return given(fcinfo, arg) ? PG_GETARG_BOOL(arg) : missing;
}

static ScdcDeduplication
deduplication_mode(char *word)
{
	if (pg_strcasecmp(word, "none") == 0)
		return SCDC_DEDUP_NONE;
	if (pg_strcasecmp(word, "dropCarryovers") == 0)
		return SCDC_DEDUP_DROP_CARRYOVERS;
	if (pg_strcasecmp(word, "netChanges") == 0)
		return SCDC_DEDUP_NET_CHANGES;
	word[pg_mbcliplen(word, strlen(word), NAMEDATALEN)] = '\0';
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for \"deduplication_mode\": \"%s\"", asc_tolower(word, strlen(word))),
			 errdetail("Error condition: INVALID_CDC_OPTION.INVALID_DEDUPLICATION_MODE."),
			 errhint("Accepted values are \"none\", \"dropCarryovers\" and \"netChanges\".")));
}

/* Both bounds of one kind; pass the missing end as none. */
static void
set_bounds(ScdcRange *range, FunctionCallInfo fcinfo, ScdcRangeKind kind, int start_arg, int end_arg)
{
	range->kind = kind;
	range->first = range->start = PG_GETARG_INT64(start_arg);
	range->last = PG_INT64_MAX;
	range->has_end = given(fcinfo, end_arg);
	if (range->has_end)
	{
		range->last = range->end = PG_GETARG_INT64(end_arg);
		range->backwards = range->end < range->start;
	}

	/* nothing comes after the greatest value, nor before the least */
	if (!bool_arg(fcinfo, ARG_STARTING_INCLUSIVE, true))
	{
		range->empty |= range->first == PG_INT64_MAX;
		if (!range->empty)
			range->first++;
	}
	if (range->has_end && !bool_arg(fcinfo, ARG_ENDING_INCLUSIVE, true))
	{
		range->empty |= range->last == PG_INT64_MIN;
		if (!range->empty)
			range->last--;
	}
	range->empty |= range->first > range->last;
}

static void
check_table_given(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("table_name must not be null")));
}

char *
scdc_table_name_arg(FunctionCallInfo fcinfo)
{
	check_table_given(fcinfo);
	return text_to_cstring(PG_GETARG_TEXT_PP(0));
}

Oid
scdc_table_arg(FunctionCallInfo fcinfo)
{
	check_table_given(fcinfo);
	return PG_GETARG_OID(0);
}

void
scdc_read_options(FunctionCallInfo fcinfo, ScdcReadOptions *options)
{
	bool		start_version = given(fcinfo, ARG_STARTING_VERSION);
	bool		end_version = given(fcinfo, ARG_ENDING_VERSION);
	bool		start_timestamp = given(fcinfo, ARG_STARTING_TIMESTAMP);
	bool		end_timestamp = given(fcinfo, ARG_ENDING_TIMESTAMP);

	memset(options, 0, sizeof(*options));
	options->mode = SCDC_DEDUP_DROP_CARRYOVERS;
	if (given(fcinfo, ARG_MODE))
		options->mode = deduplication_mode(text_to_cstring(PG_GETARG_TEXT_PP(ARG_MODE)));
	options->compute_updates = bool_arg(fcinfo, ARG_COMPUTE_UPDATES, false);

	if ((start_version || end_version) && (start_timestamp || end_timestamp))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("version bounds and timestamp bounds cannot be combined"),
				 errdetail("Error condition: INVALID_CDC_OPTION.CONFLICTING_RANGE_TYPES.")));
	if (end_version && !start_version)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ending_version requires starting_version"),
				 errdetail("Error condition: INVALID_CDC_OPTION.MISSING_STARTING_VERSION.")));
	if (end_timestamp && !start_timestamp)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ending_timestamp requires starting_timestamp"),
				 errdetail("Error condition: INVALID_CDC_OPTION.MISSING_STARTING_TIMESTAMP.")));

	options->range.first = PG_INT64_MIN;
	options->range.last = PG_INT64_MAX;
	if (start_version)
		set_bounds(&options->range, fcinfo, SCDC_RANGE_VERSIONS, ARG_STARTING_VERSION, ARG_ENDING_VERSION);
	else if (start_timestamp)
		set_bounds(&options->range, fcinfo, SCDC_RANGE_TIMESTAMPS, ARG_STARTING_TIMESTAMP, ARG_ENDING_TIMESTAMP);
}

void
scdc_updates_need_removal(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("compute_updates requires carry-over removal"),
			 errdetail("Error condition: INVALID_CDC_OPTION.UPDATE_DETECTION_REQUIRES_CARRY_OVER_REMOVAL."),
			 errhint("Set deduplication_mode to \"dropCarryovers\" or \"netChanges\".")));
}

void
scdc_read_options_check(const ScdcReadOptions *options, const ScdcTarget *target)
{
	if (options->compute_updates && options->mode == SCDC_DEDUP_NONE)
		scdc_updates_need_removal();
	if (target->stream->nidentity == 0 &&
		(options->compute_updates || options->mode == SCDC_DEDUP_NET_CHANGES))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("table \"%s\" has no row identity", target->name),
				 errdetail("Error condition: INVALID_CHANGELOG_SCHEMA.MISSING_ROW_ID."),
				 errhint("Updates and net changes need a table that had a primary key, or identity_columns, when stream_track was called.")));
}

/* A mistake, nearly always. */
static void
check_direction(const ScdcRange *range)
{
	if (!range->backwards)
		return;
	if (range->kind == SCDC_RANGE_VERSIONS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ending_version " INT64_FORMAT " is below starting_version " INT64_FORMAT,
						range->end, range->start)));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("ending_timestamp is before starting_timestamp"),
			 errdetail("The range would begin at %s and end at %s.",
					   pstrdup(timestamptz_to_str(range->start)), pstrdup(timestamptz_to_str(range->end)))));
}

/*
 * Versions below the oldest have existed and are gone, down to 0.  Asking for
 * negative ones, which never were, asks for nothing that is missing.
 */
static void
check_retained(const ScdcRange *range, const ScdcTarget *target, const ScdcRetained *retained)
{
	if (range->kind == SCDC_RANGE_VERSIONS)
	{
		if (range->first < retained->oldest && range->last >= 0 && retained->oldest > 0)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("version " INT64_FORMAT " of table \"%s\" is not retained",
							Max(range->first, 0), target->name),
					 errdetail("The oldest version is " INT64_FORMAT ".", retained->oldest)));
	}
	else if (range->kind == SCDC_RANGE_TIMESTAMPS && range->first < retained->kept_from)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("changes of table \"%s\" at the starting_timestamp are not retained", target->name),
				 errdetail("The oldest version is " INT64_FORMAT ", and what was committed before %s is gone.",
						   retained->oldest, timestamptz_to_str(retained->kept_from))));
}

/* The stream was given up: what came after its last version is not known. */
static void
check_continuous(const ScdcRange *range, const ScdcTarget *target, Snapshot snapshot)
{
	ScdcStream *stream = target->stream;

	if (range->has_end && range->kind == SCDC_RANGE_VERSIONS && range->last <= stream->last_version)
		return;
	if (range->has_end && range->kind == SCDC_RANGE_TIMESTAMPS)
	{
		ScdcBlockInfo newest;

		if (scdc_changelog_last(stream->stream_id, snapshot, &newest) && range->last <= newest.last_timestamp)
			return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("changes of table \"%s\" after version " INT64_FORMAT " were not captured",
					target->name, stream->last_version),
			 stream->reason ? errdetail("%s", stream->reason) : 0,
			 errhint("Read up to that version with ending_version, or begin again with stream_untrack and stream_track.")));
}

ScdcVersionRange
scdc_range_versions(const ScdcRange *range, const ScdcTarget *target, bool check_end, Snapshot snapshot)
{
	const ScdcVersionRange nothing = {.first = 1, .last = 0};
	int64		stream_id = target->stream->stream_id;
	ScdcVersionRange result = {.first = range->first, .last = range->last};
	ScdcRetained retained;

	check_direction(range);
	if (range->empty)
		return nothing;
	retained = scdc_retained(target->stream, snapshot);
	check_retained(range, target, &retained);
	if (check_end && scdc_stream_given_up(target->stream))
		check_continuous(range, target, snapshot);

	if (range->kind == SCDC_RANGE_ALL)
		result.first = retained.first;
	if (range->kind == SCDC_RANGE_TIMESTAMPS)
	{
		int64		version;

		if (range->first > PG_INT64_MIN)
		{
			bool		found = scdc_changelog_version_at(stream_id, range->first - 1, snapshot, &version);

			result.first = found ? version + 1 : PG_INT64_MIN;
		}
		if (range->has_end)
		{
			if (!scdc_changelog_version_at(stream_id, range->last, snapshot, &version))
				return nothing;
			result.last = version;
		}
	}
	return result;
}
