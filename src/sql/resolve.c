/*-------------------------------------------------------------------------
 *
 * resolve.c
 *	  From what a reader names to a stream that it may read.
 *
 * The order is existence, rights, tracking: who may not read a table learns
 * nothing about it beyond what the server's own message says.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "sql/registration.h"
#include "sql/resolve.h"

char *
scdc_relation_name(Oid relid)
{
	char	   *relname = get_rel_name(relid);
	char	   *nspname = NULL;

	if (relname == NULL)
		return psprintf("%u", relid);
	if (!RelationIsVisible(relid))
		nspname = get_namespace_name(get_rel_namespace(relid));
	return quote_qualified_identifier(nspname, relname);
}

/* Names of the schemas searched for unqualified names, in order. */
static List *
searched_schemas(void)
{
	List	   *names = NIL;
	List	   *path = fetch_search_path(true);
	ListCell   *lc;

	foreach(lc, path)
	{
		char	   *nspname = get_namespace_name(lfirst_oid(lc));

		if (nspname)
			names = lappend(names, nspname);
	}
	list_free(path);
	return names;
}

/* Position of a schema in the list, -1 if it is not there. */
static int
schema_position(List *schemas, const char *name)
{
	ListCell   *lc;

	foreach(lc, schemas)
	{
		if (strcmp(lfirst(lc), name) == 0)
			return foreach_current_index(lc);
	}
	return -1;
}

char *
scdc_dropped_name(const ScdcStream *stream)
{
	bool		searched = schema_position(searched_schemas(), stream->schema_name) >= 0;

	return psprintf("%s (dropped " INT64_FORMAT ")",
					quote_qualified_identifier(searched ? NULL : stream->schema_name, stream->table_name),
					stream->stream_id);
}

/*
 * The stream of a dropped table: of the given number, or (0) the newest of
 * that name.  Without a schema the first in the search path counts.
 */
static ScdcStream *
find_dropped(const RangeVar *rv, int64 stream_id, Snapshot snapshot)
{
	List	   *schemas = rv->schemaname ? list_make1(rv->schemaname) : searched_schemas();
	ScdcStream *best = NULL;
	int			best_position = -1;
	ListCell   *lc;

	foreach(lc, scdc_stream_list(snapshot))
	{
		ScdcStream *stream = lfirst(lc);
		int			position;

		if (stream->state != SCDC_STATE_DROPPED || strcmp(stream->table_name, rv->relname) != 0)
			continue;
		if (stream_id != 0 && stream->stream_id != stream_id)
			continue;
		position = schema_position(schemas, stream->schema_name);
		if (position < 0)
			continue;
		/* the list is in order of stream_id, so of one schema the last is the newest */
		if (best == NULL || position <= best_position)
		{
			best = stream;
			best_position = position;
		}
	}
	return best;
}

static ScdcTarget *
dropped_target(ScdcStream *stream)
{
	ScdcTarget *target = palloc0(sizeof(ScdcTarget));

	target->stream = stream;
	target->relid = InvalidOid;
	target->name = scdc_dropped_name(stream);
	target->is_owner = has_privs_of_role(GetUserId(), stream->owner);
	if (!target->is_owner)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for dropped table \"%s\"", target->name),
				 errdetail("The change log of a dropped table is readable by its last owner.")));
	return target;
}

void
scdc_undefined_relation(Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("relation with OID %u does not exist", relid),
			 errdetail("Error condition: TABLE_OR_VIEW_NOT_FOUND.")));
}

static void undefined_table(const char *name) pg_attribute_noreturn();

static void
undefined_table(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("relation \"%s\" does not exist", name),
			 errdetail("Error condition: TABLE_OR_VIEW_NOT_FOUND.")));
}

/* Is it of a kind that stream_track takes? */
static bool
may_be_tracked(Oid relid)
{
	char		relkind = get_rel_relkind(relid);

	return (relkind == RELKIND_RELATION || relkind == RELKIND_PARTITIONED_TABLE) &&
		get_rel_persistence(relid) == RELPERSISTENCE_PERMANENT &&
		relid >= FirstNormalObjectId &&
		get_rel_namespace(relid) != get_namespace_oid("streamcdc", true);
}

void
scdc_not_tracked(Oid relid, const char *name, Snapshot snapshot)
{
	char	   *hint = NULL;
	ScdcRegistered registered;

	if (scdc_registration_find(relid, snapshot))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" is a registered change log, not a tracked table", name),
				 errdetail("Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION."),
				 errhint("It can be read with stream_changes.")));
	if (scdc_registry_lookup(relid, snapshot, &registered))
		hint = psprintf("It is captured through \"%s\", which is tracked: its changes are among the changes of that.",
						scdc_relation_name(registered.root));
	else if (may_be_tracked(relid))
	{
		RangeVar   *rv = makeRangeVar(get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid), -1);
		ScdcStream *dropped = find_dropped(rv, 0, snapshot);

		hint = psprintf("SELECT stream_track(%s);", quote_literal_cstr(name));
		if (dropped && has_privs_of_role(GetUserId(), dropped->owner))
			hint = psprintf("%s The change log of a dropped table of that name is called %s.",
							hint, quote_literal_cstr(scdc_dropped_name(dropped)));
	}
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("table \"%s\" is not tracked", name),
			 errdetail("Error condition: UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE_ON_RELATION."),
			 hint ? errhint("%s", hint) : 0));
}

void
scdc_must_be_owner(Oid relid)
{
	if (!pg_class_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(relid)), get_rel_name(relid));
}

bool
scdc_may_select(Oid relid)
{
	return pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK ||
		pg_attribute_aclcheck_all(relid, GetUserId(), ACL_SELECT, ACLMASK_ALL) == ACLCHECK_OK;
}

static void
check_rights(Oid relid, const char *name)
{
	if (!scdc_may_select(relid))
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(get_rel_relkind(relid)), get_rel_name(relid));

	/* true: report as enabled even if row_security is off */
	if (check_enable_rls(relid, InvalidOid, true) == RLS_ENABLED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for changes of table \"%s\"", name),
				 errdetail("Row-level security applies to you on this table, and cannot be applied to its change log.")));
}

/* State d with the table still there: the OID came into use again. */
static bool
is_of_living(const ScdcStream *stream)
{
	return stream != NULL && (stream->state == SCDC_STATE_LIVE || stream->state == SCDC_STATE_INERT ||
							  scdc_stream_given_up(stream));
}

bool
scdc_is_tracked(Oid relid, Snapshot snapshot)
{
	return is_of_living(scdc_stream_by_relid(relid, snapshot));
}

ScdcTarget *
scdc_resolve_relid(Oid relid, Snapshot snapshot)
{
	ScdcTarget *target;
	ScdcStream *stream;
	char	   *name;

	if (!OidIsValid(relid) || get_rel_name(relid) == NULL)
		scdc_undefined_relation(relid);
	name = scdc_relation_name(relid);
	check_rights(relid, name);

	stream = scdc_stream_by_relid(relid, snapshot);
	if (!is_of_living(stream))
		scdc_not_tracked(relid, name, snapshot);
	if (stream->state == SCDC_STATE_INERT)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("changes of table \"%s\" are not captured in this database", name),
				 errdetail("%s", SCDC_INERT_REASON),
				 errhint("SELECT stream_track(%s); begins to capture them again.", quote_literal_cstr(name))));

	target = palloc0(sizeof(ScdcTarget));
	target->stream = stream;
	target->relid = relid;
	target->name = name;
	target->is_owner = pg_class_ownercheck(relid, GetUserId());
	return target;
}

/* Splits off " (dropped N)"; returns N, or 0 if the name does not end like that. */
static int64
dropped_suffix(const char *name, char **stem)
{
	static const char prefix[] = " (dropped ";
	const char *start = NULL;
	const char *p = name;
	int64		id = 0;

	/* the last one */
	while ((p = strstr(p, prefix)) != NULL)
		start = p++;
	if (start == NULL)
		return 0;
	p = start + strlen(prefix);
	while (isdigit((unsigned char) *p) && id < PG_INT64_MAX / 10 - 1)
		id = id * 10 + (*p++ - '0');
	if (id == 0 || strcmp(p, ")") != 0)
		return 0;
	*stem = pnstrdup(name, start - name);
	return id;
}

Oid
scdc_name_relid(const char *name)
{
	char	   *stem;

	if (dropped_suffix(name, &stem) != 0)
		return InvalidOid;
	/* a number is an OID, as for regclass */
	if (name[0] != '\0' && strspn(name, "0123456789") == strlen(name))
		return DatumGetObjectId(DirectFunctionCall1(oidin, CStringGetDatum(name)));
	return RangeVarGetRelid(makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(name))), NoLock, true);
}

ScdcTarget *
scdc_resolve_name(const char *name, Snapshot snapshot)
{
	ScdcStream *dropped;
	RangeVar   *rv;
	Oid			relid;
	char	   *stem;
	int64		dropped_id = dropped_suffix(name, &stem);

	if (dropped_id != 0)
	{
		rv = makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(stem)));
		dropped = find_dropped(rv, dropped_id, snapshot);
		if (dropped == NULL)
			undefined_table(name);
		return dropped_target(dropped);
	}

	relid = scdc_name_relid(name);
	if (OidIsValid(relid))
		return scdc_resolve_relid(relid, snapshot);
	rv = makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(name)));
	dropped = find_dropped(rv, 0, snapshot);
	if (dropped == NULL)
		undefined_table(rv->schemaname ? psprintf("%s.%s", rv->schemaname, rv->relname) : rv->relname);
	return dropped_target(dropped);
}
