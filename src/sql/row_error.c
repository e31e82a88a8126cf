/*-------------------------------------------------------------------------
 *
 * row_error.c
 *	  Errors about rows (see row_error.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "sql/row_error.h"

/* Is it about the value, rather than about the session or the server? */
static bool
is_about_value(int sqlerrcode)
{
	switch (ERRCODE_TO_CATEGORY(sqlerrcode))
	{
		case ERRCODE_DATA_EXCEPTION:
		case ERRCODE_PROGRAM_LIMIT_EXCEEDED:
		case ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION:
			return true;
	}
	return sqlerrcode == ERRCODE_DATA_CORRUPTED;
}

/* The message is the server's or a type's own; CONTEXT is not shown by every client, DETAIL is. */
void
scdc_row_error(const char *column, int64 version, bool as_jsonb)
{
	MemoryContext cxt;
	MemoryContext old;
	ErrorData  *error;
	const char *before;
	const char *space;

	/* (first of all: when memory is short, nothing is to be allocated here) */
	if (!is_about_value(geterrcode()))
		return;
	cxt = AllocSetContextCreate(TopMemoryContext, "streamcdc error", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(cxt);
	error = CopyErrorData();
	before = error->detail ? error->detail : "";
	space = error->detail ? " " : "";
	if (error->elevel >= ERROR)
	{
		if (column)
			errdetail("%s%sThe value is that of column \"%s\" in version " INT64_FORMAT ".", before, space, column, version);
		else
			errdetail("%s%sThe row is one of version " INT64_FORMAT ".", before, space, version);
		if (error->hint == NULL && error->sqlerrcode != ERRCODE_DATA_CORRUPTED)
		{
			if (as_jsonb)
				errhint("The typed form, stream_changes(NULL::table_name, ...), makes no jsonb of it.");
			else
				errhint("With the table's name as the first argument, stream_changes shows the value as it was then, in jsonb.");
		}
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
}

void
scdc_contract_error(ScdcCollapseError error, const char *log, const char *version, const char *change_type)
{
	switch (error)
	{
		case SCDC_ERROR_MULTIPLE_CHANGES:
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("a row has more than one change in version %s of change log \"%s\"", version, log),
					 errdetail("Error condition: CHANGELOG_CONTRACT_VIOLATION.UNEXPECTED_MULTIPLE_CHANGES_PER_ROW_VERSION."),
					 errhint("Updates can be computed if each version has at most one delete and one insert for each row_id.")));
		case SCDC_ERROR_CHANGE_TYPE:
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 change_type ? errmsg("unexpected change type \"%s\" in version %s of change log \"%s\"",
										  change_type, version, log) :
					 errmsg("change type is null in version %s of change log \"%s\"", version, log),
					 errdetail("Error condition: CHANGELOG_CONTRACT_VIOLATION.UNEXPECTED_CHANGE_TYPE."),
					 errhint("Expected change types are \"insert\", \"delete\", \"update_preimage\" and \"update_postimage\".")));
	}
	elog(ERROR, "unexpected error of the collapse: %d", (int) error);
}
