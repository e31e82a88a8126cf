/*-------------------------------------------------------------------------
 *
 * definition.c
 *	  What a query is told to do (see definition.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "jobs/definition.h"

/* Positions of stream_start's arguments. */
enum
{
	ARG_NAME, ARG_SOURCE, ARG_SINK, ARG_OPTIONS, ARG_QUERY, ARG_OUTPUT_MODE, ARG_TRIGGER, ARG_SINK_MODE,
	ARG_SINK_OPTIONS, ARG_FOREACH_BATCH, ARG_FOREACH, ARG_PARTITION_BY, ARG_CLUSTER_BY, ARG_FORMAT
};

#define MAX_TRIGGER		(10000.0 * DAYS_PER_YEAR * USECS_PER_DAY)

/* What a query's SQL may print depends on these; they stay as they were at stream_start. */
static const char *const output_settings[] = {
	"TimeZone", "DateStyle", "IntervalStyle", "extra_float_digits", "bytea_output", "lc_monetary", "lc_numeric",
	"lc_time", "default_text_search_config", "xmlbinary", "xmloption"
};

/* ---------------------------------------------------------------------
 * words
 * ---------------------------------------------------------------------
 */

/* Lower case, without underscores: how words are compared. */
static char *
plain_word(const char *s)
{
	char	   *result = palloc(strlen(s) + 1);
	char	   *p = result;

	for (; *s; s++)
		if (*s != '_')
			*p++ = pg_tolower((unsigned char) *s);
	*p = '\0';
	return result;
}

static bool
word_is(const char *given, const char *word)
{
	return strcmp(plain_word(given), plain_word(word)) == 0;
}

static char *
text_arg(FunctionCallInfo fcinfo, int arg, const char *otherwise)
{
	if (PG_ARGISNULL(arg))
		return otherwise ? pstrdup(otherwise) : NULL;
	return text_to_cstring(PG_GETARG_TEXT_PP(arg));
}

static List *
names_arg(FunctionCallInfo fcinfo, int arg, const char *argname)
{
	ArrayType  *array;
	Datum	   *elements;
	bool	   *nulls;
	int			n;
	List	   *result = NIL;

	if (PG_ARGISNULL(arg))
		return NIL;
	array = PG_GETARG_ARRAYTYPE_P(arg);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("\"%s\" must be a one-dimensional array", argname)));
	deconstruct_array(array, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR, &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		char	   *name;
		ListCell   *lc;

		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("\"%s\" must not contain nulls", argname)));
		name = pstrdup(NameStr(*DatumGetName(elements[i])));
		foreach(lc, result)
			if (strcmp(lfirst(lc), name) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("column \"%s\" appears twice in \"%s\"", name, argname)));
		result = lappend(result, name);
	}
	return result;
}

/* ---------------------------------------------------------------------
 * options
 * ---------------------------------------------------------------------
 */

/* Text of a scalar. */
static char *
option_text(const char *key, const JsonbValue *v)
{
	switch (v->type)
	{
		case jbvString:
			return pnstrdup(v->val.string.val, v->val.string.len);
		case jbvNumeric:
			return DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(v->val.numeric)));
		case jbvBool:
			return pstrdup(v->val.boolean ? "true" : "false");
		default:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("value of option \"%s\" must be a string, a number or a boolean", key)));
	}
	return NULL;
}

static bool
option_bool(const char *key, const char *value)
{
	if (pg_strcasecmp(value, "true") == 0)
		return true;
	if (pg_strcasecmp(value, "false") == 0)
		return false;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"%s\": \"%s\"", key, value),
			 errhint("Valid values are \"true\" and \"false\".")));
	return false;
}

static int64
option_number(const char *key, const char *value, int64 least)
{
	char	   *end;
	long long	n;

	errno = 0;
	n = strtoll(value, &end, 10);
	if (end == value || *end != '\0' || errno != 0 || n < least)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", key, value),
				 errhint("It must be an integer of at least " INT64_FORMAT ".", least)));
	return n;
}

/* A value of a type from its text; false if that is none. */
static bool
value_of_text(PGFunction input, const char *text, Datum *result)
{
	MemoryContext cxt = CurrentMemoryContext;
	volatile bool ok = true;

	PG_TRY();
	{
		*result = DirectFunctionCall3(input, CStringGetDatum(text), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	}
	PG_CATCH();
	{
		if (ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		MemoryContextSwitchTo(cxt);
		FlushErrorState();
		ok = false;
	}
	PG_END_TRY();
	return ok;
}

static TimestampTz
option_timestamp(const char *key, const char *value)
{
	Datum		result;

	if (!value_of_text(timestamptz_in, value, &result))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", key, value),
				 errdetail("Error condition: INVALID_CDC_OPTION.INVALID_TIMESTAMP."),
				 errhint("It must be a timestamp.")));
	return DatumGetTimestampTz(result);
}

/* All options of stream_start, as they are written in messages. */
static const char *const option_names[] = {
	"startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp", "startingBoundInclusive",
	"endingBoundInclusive", "deduplicationMode", "computeUpdates", "maxVersionsPerTrigger", "maxBytesPerTrigger",
	"noDataMicroBatchesEnabled", "stateStoreProvider", "emission", "mergeSchema", "skipChangeCommits"
};

enum
{
	O_START_VERSION, O_START_TIMESTAMP, O_END_VERSION, O_END_TIMESTAMP, O_START_INCLUSIVE,
	O_END_INCLUSIVE, O_MODE, O_UPDATES, O_MAX_VERSIONS, O_MAX_BYTES,
	O_NO_DATA, O_PROVIDER, O_EMISSION, O_MERGE_SCHEMA, O_SKIP_CHANGES, O_COUNT
};

StaticAssertDecl(O_COUNT == lengthof(option_names), "option_names and their numbers must agree");

/* Values by number of the option, NULL where not given. */
static void
collect_options(Jsonb *options, const char *const *names, int nnames, const char *what, char **values)
{
	JsonbIterator *it;
	JsonbValue	v;

	memset(values, 0, nnames * sizeof(char *));
	if (options == NULL)
		return;
	if (!JB_ROOT_IS_OBJECT(options))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" must be a JSON object", what)));
	it = JsonbIteratorInit(&options->root);
	(void) JsonbIteratorNext(&it, &v, false);
	while (JsonbIteratorNext(&it, &v, true) == WJB_KEY)
	{
		char	   *key = pnstrdup(v.val.string.val, v.val.string.len);
		int			found = -1;

		for (int i = 0; i < nnames; i++)
			if (word_is(key, names[i]))
				found = i;
		(void) JsonbIteratorNext(&it, &v, true);
		if (found < 0)
		{
			StringInfoData list;

			initStringInfo(&list);
			for (int i = 0; i < nnames; i++)
				appendStringInfo(&list, "%s\"%s\"", i > 0 ? ", " : "", names[i]);
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("unrecognized key \"%s\" in \"%s\"", key, what),
					 errhint("Valid keys are %s.", list.data)));
		}
		if (v.type == jbvNull)
			continue;			/* not given */
		if (values[found])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("option \"%s\" is given twice", names[found])));
		values[found] = option_text(key, &v);
	}
}

static ScdcDeduplication
deduplication_option(const char *value)
{
	if (value == NULL || word_is(value, "dropCarryovers"))
		return SCDC_DEDUP_DROP_CARRYOVERS;
	if (word_is(value, "none"))
		return SCDC_DEDUP_NONE;
	if (word_is(value, "netChanges"))
		return SCDC_DEDUP_NET_CHANGES;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid deduplication mode: \"%s\"", value),
			 errdetail("Error condition: INVALID_CDC_OPTION.INVALID_DEDUPLICATION_MODE."),
			 errhint("Valid modes are \"none\", \"dropCarryovers\" and \"netChanges\".")));
	return SCDC_DEDUP_NONE;
}

/* Spark's class names are understood, too. */
static ScdcStoreProvider
provider_option(const char *value)
{
	if (value == NULL || word_is(value, "rocksdb") ||
		strcmp(value, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider") == 0)
		return SCDC_STORE_ROCKSDB;
	if (word_is(value, "memory") ||
		strcmp(value, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider") == 0)
		return SCDC_STORE_MEMORY;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid state store provider: \"%s\"", value),
			 errhint("Valid providers are \"rocksdb\" and \"memory\".")));
	return SCDC_STORE_ROCKSDB;
}

static void
range_options(char **o, ScdcStartOptions *start)
{
	bool		versions = o[O_START_VERSION] || o[O_END_VERSION];
	bool		timestamps = o[O_START_TIMESTAMP] || o[O_END_TIMESTAMP];

	if (versions && timestamps)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("version and timestamp bounds cannot be combined"),
				 errdetail("Error condition: INVALID_CDC_OPTION.CONFLICTING_RANGE_TYPES.")));
	if (o[O_END_VERSION] && o[O_START_VERSION] == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"endingVersion\" needs \"startingVersion\""),
				 errdetail("Error condition: INVALID_CDC_OPTION.MISSING_STARTING_VERSION.")));
	if (o[O_END_TIMESTAMP] && o[O_START_TIMESTAMP] == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"endingTimestamp\" needs \"startingTimestamp\""),
				 errdetail("Error condition: INVALID_CDC_OPTION.MISSING_STARTING_TIMESTAMP.")));

	start->start_inclusive = o[O_START_INCLUSIVE] == NULL || option_bool("startingBoundInclusive", o[O_START_INCLUSIVE]);
	start->end_inclusive = o[O_END_INCLUSIVE] == NULL || option_bool("endingBoundInclusive", o[O_END_INCLUSIVE]);
	start->end_timestamp = DT_NOEND;
	if (o[O_START_VERSION])
	{
		if (word_is(o[O_START_VERSION], "earliest"))
			start->kind = SCDC_START_EARLIEST;
		else if (word_is(o[O_START_VERSION], "latest"))
			start->kind = SCDC_START_LATEST;
		else
			start->kind = SCDC_START_VERSION;
		start->version = o[O_START_VERSION];
		start->end_version = o[O_END_VERSION];
	}
	else if (o[O_START_TIMESTAMP])
	{
		start->kind = SCDC_START_TIMESTAMP;
		start->timestamp = option_timestamp("startingTimestamp", o[O_START_TIMESTAMP]);
		if (o[O_END_TIMESTAMP])
			start->end_timestamp = option_timestamp("endingTimestamp", o[O_END_TIMESTAMP]);
	}
	else
		start->kind = SCDC_START_DEFAULT;
}

static void
read_options(ScdcQuery *q, Jsonb *options, ScdcStartOptions *start)
{
	char	   *o[O_COUNT];

	collect_options(options, option_names, O_COUNT, "options", o);
	q->mode = deduplication_option(o[O_MODE]);
	q->compute_updates = o[O_UPDATES] && option_bool("computeUpdates", o[O_UPDATES]);
	range_options(o, start);
	q->max_versions = o[O_MAX_VERSIONS] ? option_number("maxVersionsPerTrigger", o[O_MAX_VERSIONS], 1) : 0;
	q->max_bytes = o[O_MAX_BYTES] ? option_number("maxBytesPerTrigger", o[O_MAX_BYTES], 1) : 0;
	q->no_data_batches = o[O_NO_DATA] == NULL || option_bool("noDataMicroBatchesEnabled", o[O_NO_DATA]);
	q->provider = provider_option(o[O_PROVIDER]);
	q->merge_schema = o[O_MERGE_SCHEMA] && option_bool("mergeSchema", o[O_MERGE_SCHEMA]);
	q->skip_change_commits = o[O_SKIP_CHANGES] && option_bool("skipChangeCommits", o[O_SKIP_CHANGES]);
	start->emission_given = o[O_EMISSION] != NULL;
	if (o[O_EMISSION])
	{
		if (word_is(o[O_EMISSION], "commit"))
			q->emission = SCDC_EMIT_BY_COMMIT;
		else if (word_is(o[O_EMISSION], "watermark"))
			q->emission = SCDC_EMIT_BY_WATERMARK;
		else
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid value for option \"emission\": \"%s\"", o[O_EMISSION]),
					 errhint("Valid values are \"commit\" and \"watermark\".")));
	}
}

/* ---------------------------------------------------------------------
 * arguments
 * ---------------------------------------------------------------------
 */

static void
read_trigger(ScdcQuery *q, const char *given)
{
	Datum		value;
	double		us = -1;

	q->trigger_text = pstrdup(given);
	if (word_is(given, "once"))
	{
		ereport(WARNING,
				(errcode(ERRCODE_WARNING_DEPRECATED_FEATURE),
				 errmsg("trigger \"once\" is deprecated"),
				 errhint("Use trigger \"availableNow\", which respects limits and emits everything that it has read.")));
		q->trigger = SCDC_TRIGGER_ONCE;
		return;
	}
	if (word_is(given, "availableNow"))
	{
		q->trigger = SCDC_TRIGGER_AVAILABLE_NOW;
		return;
	}
	if (pg_strncasecmp(given, "continuous", strlen("continuous")) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("continuous triggers are not supported"),
				 errhint("Use an interval, \"availableNow\" or \"once\".")));

	if (value_of_text(interval_in, given, &value))
	{
		Interval   *interval = DatumGetIntervalP(value);

		us = interval->time + ((double) interval->month * DAYS_PER_MONTH + interval->day) * USECS_PER_DAY;
	}
	q->trigger_interval = us >= 0 && us <= MAX_TRIGGER ? (int64) us : -1;
	if (q->trigger_interval < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid trigger: \"%s\"", given),
				 errhint("Valid triggers are an interval like \"10 seconds\", \"availableNow\" and \"once\".")));
	q->trigger = SCDC_TRIGGER_INTERVAL;
}

static void
read_sink(ScdcQuery *q, FunctionCallInfo fcinfo)
{
	static const char *const sink_option_names[] = {"progressTable"};
	char	   *sink_options[lengthof(sink_option_names)];
	char	   *sink = text_arg(fcinfo, ARG_SINK, NULL);
	char	   *foreach_batch = text_arg(fcinfo, ARG_FOREACH_BATCH, NULL);
	char	   *foreach_function = text_arg(fcinfo, ARG_FOREACH, NULL);
	char	   *mode = text_arg(fcinfo, ARG_SINK_MODE, "append");
	int			n = (sink != NULL) + (foreach_batch != NULL) + (foreach_function != NULL);

	if (n != 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("exactly one of \"sink\", \"foreach_batch\" and \"foreach\" must be given")));
	if (word_is(mode, "apply"))
		q->apply = true;
	else if (!word_is(mode, "append"))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid sink mode: \"%s\"", mode),
				 errhint("Valid modes are \"append\" and \"apply\".")));
	q->partition_by = names_arg(fcinfo, ARG_PARTITION_BY, "partition_by");
	q->cluster_by = names_arg(fcinfo, ARG_CLUSTER_BY, "cluster_by");
	collect_options(PG_ARGISNULL(ARG_SINK_OPTIONS) ? NULL : PG_GETARG_JSONB_P(ARG_SINK_OPTIONS),
					sink_option_names, lengthof(sink_option_names), "sink_options", sink_options);
	q->progress_table = sink_options[0];
	if (sink == NULL && (q->apply || q->partition_by || q->cluster_by || q->progress_table))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" needs a sink",
						q->apply ? "sink_mode" : q->partition_by ? "partition_by" : q->cluster_by ? "cluster_by" : "sink_options")));
	if (sink)
	{
		q->sink_kind = SCDC_SINK_TABLE;
		q->sink = sink;
	}
	else if (foreach_batch)
	{
		q->sink_kind = SCDC_SINK_BATCH_SQL; /* or a function's name, as start.c finds out */
		q->sink = foreach_batch;
	}
	else
	{
		q->sink_kind = SCDC_SINK_FOREACH;
		q->sink = foreach_function;
	}
}

ScdcQuery *
scdc_definition_from_arguments(FunctionCallInfo fcinfo, ScdcStartOptions *start)
{
	ScdcQuery  *q = palloc0(sizeof(ScdcQuery));
	char	   *word;

	memset(start, 0, sizeof(*start));
	q->name = text_arg(fcinfo, ARG_NAME, NULL);
	q->source = text_arg(fcinfo, ARG_SOURCE, NULL);
	if (q->name == NULL || q->source == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", q->name == NULL ? "query_name" : "source")));
	if (q->name[0] == '\0' || strlen(q->name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("invalid query name: \"%s\"", q->name),
				 errhint("A name has between 1 and %d bytes.", NAMEDATALEN - 1)));
	q->owner = GetUserId();
	q->search_path = pstrdup(GetConfigOption("search_path", false, false));
	for (int i = 0; i < (int) lengthof(output_settings); i++)
	{
		q->settings = lappend(q->settings, pstrdup(output_settings[i]));
		q->settings = lappend(q->settings, pstrdup(GetConfigOption(output_settings[i], false, false)));
	}
	q->start_timestamp = DT_NOBEGIN;
	q->end_timestamp = DT_NOEND;

	read_options(q, PG_ARGISNULL(ARG_OPTIONS) ? NULL : PG_GETARG_JSONB_P(ARG_OPTIONS), start);
	q->query = text_arg(fcinfo, ARG_QUERY, NULL);

	word = text_arg(fcinfo, ARG_OUTPUT_MODE, "append");
	if (!word_is(word, "append") && !word_is(word, "update") && !word_is(word, "complete"))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid output mode: \"%s\"", word),
				 errhint("Valid modes are \"append\", \"update\" and \"complete\".")));
	q->output_mode = plain_word(word);
	read_trigger(q, text_arg(fcinfo, ARG_TRIGGER, "0 seconds"));
	read_sink(q, fcinfo);

	word = text_arg(fcinfo, ARG_FORMAT, "changes");
	if (word_is(word, "table"))
		q->as_table = true;
	else if (!word_is(word, "changes"))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid format: \"%s\"", word),
				 errhint("Valid formats are \"changes\" and \"table\".")));
	return q;
}

/* ---------------------------------------------------------------------
 * as jsonb
 * ---------------------------------------------------------------------
 */

static void
put_key(StringInfo s, const char *key)
{
	appendStringInfoString(s, s->len > 1 ? ", " : "");
	escape_json(s, key);
	appendStringInfoString(s, ": ");
}

static void
put_text(StringInfo s, const char *key, const char *value)
{
	if (value == NULL)
		return;
	put_key(s, key);
	escape_json(s, value);
}

static void
put_int(StringInfo s, const char *key, int64 value)
{
	put_key(s, key);
	appendStringInfo(s, INT64_FORMAT, value);
}

static void
put_bool(StringInfo s, const char *key, bool value)
{
	put_key(s, key);
	appendStringInfoString(s, value ? "true" : "false");
}

static void
put_names(StringInfo s, const char *key, List *names)
{
	ListCell   *lc;

	if (names == NIL)
		return;
	put_key(s, key);
	appendStringInfoChar(s, '[');
	foreach(lc, names)
	{
		if (foreach_current_index(lc) > 0)
			appendStringInfoString(s, ", ");
		escape_json(s, lfirst(lc));
	}
	appendStringInfoChar(s, ']');
}

static void
put_columns(StringInfo s, const ScdcQuery *q)
{
	put_key(s, "columns");
	appendStringInfoChar(s, '[');
	for (int i = 0; i < q->ncolumns; i++)
	{
		const ScdcQueryColumn *c = &q->columns[i];

		appendStringInfo(s, "%s{\"attnum\": %d, \"type\": %u, \"typmod\": %d, \"collation\": %u, \"name\": ",
						 i > 0 ? ", " : "", c->attnum, c->type, c->typmod, c->collation);
		escape_json(s, c->name);
		appendStringInfoChar(s, '}');
	}
	appendStringInfoChar(s, ']');
}

Jsonb *
scdc_definition_to_jsonb(const ScdcQuery *q)
{
	StringInfoData s;
	List	   *keys = NIL;

	for (int i = 0; i < q->nkeys; i++)
		keys = lappend(keys, q->keys[i]);
	initStringInfo(&s);
	appendStringInfoChar(&s, '{');
	put_text(&s, "source", q->source);
	put_text(&s, "searchPath", q->search_path);
	put_names(&s, "settings", q->settings);
	put_bool(&s, "asTable", q->as_table);
	put_int(&s, "mode", q->mode);
	put_bool(&s, "computeUpdates", q->compute_updates);
	put_int(&s, "emission", q->emission);
	put_int(&s, "provider", q->provider);
	put_bool(&s, "noDataBatches", q->no_data_batches);
	put_bool(&s, "mergeSchema", q->merge_schema);
	put_bool(&s, "skipChangeCommits", q->skip_change_commits);
	put_int(&s, "maxVersions", q->max_versions);
	put_int(&s, "maxBytes", q->max_bytes);
	put_text(&s, "initialOffset", q->initial_offset);
	put_bool(&s, "fromBaseline", q->from_baseline);
	put_text(&s, "startVersion", q->start_version);
	put_int(&s, "startTimestamp", q->start_timestamp);
	put_text(&s, "endVersion", q->end_version);
	put_int(&s, "endTimestamp", q->end_timestamp);
	put_text(&s, "query", q->query);
	put_text(&s, "outputMode", q->output_mode);
	put_int(&s, "trigger", q->trigger);
	put_int(&s, "triggerInterval", q->trigger_interval);
	put_text(&s, "triggerText", q->trigger_text);
	put_int(&s, "sinkKind", q->sink_kind);
	put_text(&s, "sink", q->sink);
	put_bool(&s, "apply", q->apply);
	put_names(&s, "partitionBy", q->partition_by);
	put_names(&s, "clusterBy", q->cluster_by);
	put_text(&s, "progressTable", q->progress_table);
	put_columns(&s, q);
	put_int(&s, "knownSchema", q->known_schema);
	put_text(&s, "contract", q->contract);
	put_names(&s, "rowId", q->row_id);
	put_names(&s, "keys", keys);
	appendStringInfoChar(&s, '}');
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(s.data)));
}

static JsonbValue *
get(JsonbContainer *object, const char *key)
{
	return getKeyJsonValueFromContainer(object, key, strlen(key), NULL);
}

static char *
get_text(JsonbContainer *object, const char *key)
{
	JsonbValue *v = get(object, key);

	return v ? option_text(key, v) : NULL;
}

static int64
get_int(JsonbContainer *object, const char *key)
{
	JsonbValue *v = get(object, key);

	return v ? DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(v->val.numeric))) : 0;
}

static bool
get_bool(JsonbContainer *object, const char *key)
{
	JsonbValue *v = get(object, key);

	return v && v->val.boolean;
}

static List *
get_names(JsonbContainer *object, const char *key)
{
	JsonbValue *v = get(object, key);
	List	   *names = NIL;

	if (v == NULL)
		return NIL;
	for (uint32 i = 0; i < JsonContainerSize(v->val.binary.data); i++)
		names = lappend(names, option_text(key, getIthJsonbValueFromContainer(v->val.binary.data, i)));
	return names;
}

static void
get_columns(ScdcQuery *q, JsonbContainer *object)
{
	JsonbValue *v = get(object, "columns");

	q->ncolumns = v && v->type == jbvBinary ? JsonContainerSize(v->val.binary.data) : 0;
	q->columns = palloc0(Max(q->ncolumns, 1) * sizeof(ScdcQueryColumn));
	for (int i = 0; i < q->ncolumns; i++)
	{
		JsonbContainer *c = getIthJsonbValueFromContainer(v->val.binary.data, i)->val.binary.data;

		q->columns[i].attnum = get_int(c, "attnum");
		q->columns[i].type = (Oid) get_int(c, "type");
		q->columns[i].typmod = get_int(c, "typmod");
		q->columns[i].collation = (Oid) get_int(c, "collation");
		q->columns[i].name = get_text(c, "name");
	}
}

void
scdc_definition_from_jsonb(ScdcQuery *q, Jsonb *definition)
{
	JsonbContainer *d = &definition->root;
	List	   *keys;

	q->source = get_text(d, "source");
	q->search_path = get_text(d, "searchPath");
	q->settings = get_names(d, "settings");
	q->as_table = get_bool(d, "asTable");
	q->mode = get_int(d, "mode");
	q->compute_updates = get_bool(d, "computeUpdates");
	q->emission = get_int(d, "emission");
	q->provider = get_int(d, "provider");
	q->no_data_batches = get_bool(d, "noDataBatches");
	q->merge_schema = get_bool(d, "mergeSchema");
	q->skip_change_commits = get_bool(d, "skipChangeCommits");
	q->max_versions = get_int(d, "maxVersions");
	q->max_bytes = get_int(d, "maxBytes");
	q->initial_offset = get_text(d, "initialOffset");
	q->from_baseline = get_bool(d, "fromBaseline");
	q->start_version = get_text(d, "startVersion");
	q->start_timestamp = get_int(d, "startTimestamp");
	q->end_version = get_text(d, "endVersion");
	q->end_timestamp = get_int(d, "endTimestamp");
	q->query = get_text(d, "query");
	q->output_mode = get_text(d, "outputMode");
	q->trigger = get_int(d, "trigger");
	q->trigger_interval = get_int(d, "triggerInterval");
	q->trigger_text = get_text(d, "triggerText");
	q->sink_kind = get_int(d, "sinkKind");
	q->sink = get_text(d, "sink");
	q->apply = get_bool(d, "apply");
	q->partition_by = get_names(d, "partitionBy");
	q->cluster_by = get_names(d, "clusterBy");
	q->progress_table = get_text(d, "progressTable");
	get_columns(q, d);
	q->known_schema = get_int(d, "knownSchema");
	q->contract = get_text(d, "contract");
	q->row_id = get_names(d, "rowId");
	keys = get_names(d, "keys");
	q->nkeys = list_length(keys);
	q->keys = palloc0(Max(q->nkeys, 1) * sizeof(char *));
	for (int i = 0; i < q->nkeys; i++)
		q->keys[i] = list_nth(keys, i);
}

static bool
same_text(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool
equal_names(List *a, List *b)
{
	ListCell   *x,
			   *y;

	if (list_length(a) != list_length(b))
		return false;
	forboth(x, a, y, b)
		if (strcmp(lfirst(x), lfirst(y)) != 0)
			return false;
	return true;
}

const char *
scdc_definition_difference(const ScdcQuery *a, const ScdcQuery *b)
{
	if (a->source_relid != b->source_relid || a->stream_id != b->stream_id)
		return "source";
	if (!same_text(a->contract, b->contract))
		return "contract";
	if (!equal_names(a->row_id, b->row_id))
		return "row_id";
	if (a->as_table != b->as_table)
		return "format";
	if (a->mode != b->mode)
		return "deduplicationMode";
	if (a->compute_updates != b->compute_updates)
		return "computeUpdates";
	if (a->emission != b->emission)
		return "emission";
	if (!same_text(a->query, b->query))
		return "query";
	if (!same_text(a->output_mode, b->output_mode))
		return "output_mode";
	if (a->sink_kind != b->sink_kind || !same_text(a->sink, b->sink))
		return "sink";
	if (a->apply != b->apply)
		return "sink_mode";
	if (!same_text(a->progress_table, b->progress_table))
		return "sink_options";
	return NULL;
}
