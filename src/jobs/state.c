/*-------------------------------------------------------------------------
 *
 * state.c
 *	  The state of a query, in its store (see state.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#include "guc.h"
#include "jobs/definition.h"
#include "jobs/generation.h"
#include "jobs/state.h"

#define MARK_VERSION	3
#define UUID_TEXT_LEN	36

/* What the store says of itself, under a key of its own. */
typedef struct Mark
{
	uint32		version;
	TimeLineID	timeline;
	uint64		system_identifier;
	pg_uuid_t	query_id;
	uint32		definition;		/* hash of what decides how rows are laid out */
	uint32		crc;
	int64		batch_id;
	int64		token;
	int64		rows;
} Mark;

/* Before all generations, so that each of them is beyond all that is there. */
static const ScdcStoreKey mark_key = {"!mark", 5};

/* A folder that is there is closed to others and open to us, whoever made it. */
static void
make_directory(const char *path)
{
	struct stat st;

	if (lstat(path, &st) == 0)
	{
		if (!S_ISDIR(st.st_mode))
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("\"%s\" is not a directory", path),
					 errhint("Check \"streamcdc.state_directory\"; it is never followed through a symbolic link.")));
		if ((st.st_mode & (S_IRWXU | S_IRWXG | S_IRWXO)) != S_IRWXU && chmod(path, S_IRWXU) < 0)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not set permissions of directory \"%s\": %m", path)));
		return;
	}
	if (mkdir(path, S_IRWXU) < 0 && errno != EEXIST)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create directory \"%s\": %m", path)));
}

static char *
state_path(const pg_uuid_t *query_id)
{
	return psprintf("%s/%u/%s", scdc_state_directory, MyDatabaseId, scdc_uuid_text(query_id));
}

static uint32
definition_hash(const ScdcQuery *q)
{
	ScdcQuery	layout = {0};
	Jsonb	   *json;

	layout.source = "";
	layout.ncolumns = q->ncolumns;
	layout.columns = q->columns;
	layout.nkeys = q->nkeys;
	layout.keys = q->keys;
	layout.mode = q->mode;
	layout.emission = q->emission;
	json = scdc_definition_to_jsonb(&layout);
	return DatumGetUInt32(hash_any((const unsigned char *) json, VARSIZE(json)));
}

static void
make_parents(void)
{
	make_directory(scdc_state_directory);
	make_directory(psprintf("%s/%u", scdc_state_directory, MyDatabaseId));
}

static void
open_store(ScdcState *state, const ScdcQuery *q)
{
	char	   *path = state_path(&q->query_id);

	if (q->provider == SCDC_STORE_ROCKSDB)
	{
		make_parents();
		make_directory(path);
	}
	state->store = scdc_store_open(q->provider, path);
}

/* Deletes the store of a query, which is not open. */
static void
remove_store(const ScdcQuery *q)
{
	if (q->provider != SCDC_STORE_ROCKSDB)
		return;
	make_parents();
	scdc_store_remove(state_path(&q->query_id));
}

/* Empties the state without opening it. */
static void
forget(ScdcState *state)
{
	state->batch_id = -1;
	state->rows = 0;
	state->crc = 0;
}

void
scdc_state_open(ScdcState *state, const ScdcQuery *q)
{
	MemoryContext cxt = CurrentMemoryContext;

	forget(state);
	PG_TRY();
	{
		open_store(state, q);
	}
	PG_CATCH();
	{
		ErrorData  *e;

		MemoryContextSwitchTo(cxt);
		e = CopyErrorData();
		if (ERRCODE_TO_CATEGORY(e->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION ||
			e->sqlerrcode == ERRCODE_WRONG_OBJECT_TYPE)
			PG_RE_THROW();
		FlushErrorState();
		ereport(LOG,
				(errmsg("state of query \"%s\" cannot be read and is made anew", q->name),
				 errdetail_internal("%s", e->message)));
		state->store = NULL;
	}
	PG_END_TRY();
	if (state->store == NULL)
	{
		remove_store(q);
		open_store(state, q);
	}
}

void
scdc_state_close(ScdcState *state)
{
	if (state->store)
		scdc_store_close(state->store);
	state->store = NULL;
	forget(state);
}

void
scdc_state_reset(ScdcState *state, const ScdcQuery *q)
{
	scdc_state_close(state);
	remove_store(q);
	scdc_state_open(state, q);
}

static bool
read_mark(ScdcState *state, const ScdcQuery *q, Mark *mark)
{
	StringInfoData value;

	initStringInfo(&value);
	if (!scdc_store_get(state->store, mark_key, &value) || value.len != sizeof(Mark))
		return false;
	memcpy(mark, value.data, sizeof(Mark));
	return mark->version == MARK_VERSION && mark->timeline == GetWALInsertionTimeLine() &&
		mark->system_identifier == GetSystemIdentifier() && scdc_uuid_equal(&mark->query_id, &q->query_id) &&
		mark->definition == definition_hash(q);
}

int64
scdc_state_first_to_redo(ScdcState *state, const ScdcQuery *q, List *progress)
{
	ScdcProgress *last = progress ? llast(progress) : NULL;
	Mark		mark;
	ListCell   *lc;
	bool		has_mark;

	has_mark = read_mark(state, q, &mark);
	forget(state);
	if (has_mark)
	{
		foreach(lc, progress)
		{
			ScdcProgress *p = lfirst(lc);

			if (p->batch_id != mark.batch_id || p->token != mark.token)
				continue;
			if (mark.batch_id + 1 < last->oldest_batch)
				break;			/* batches before that one are not known any more, and not needed */
			state->batch_id = mark.batch_id;
			state->rows = mark.rows;
			state->crc = mark.crc;
			return mark.batch_id + 1;
		}
	}

	/* not ours to go on with: only what the last batches left matters */
	if (has_mark || last)
		scdc_state_reset(state, q);
	return last ? Min(last->oldest_batch, last->batch_id + 1) : 0;
}

void
scdc_state_mark(ScdcState *state, const ScdcQuery *q, int64 batch_id, int64 token, int64 rows, uint32 crc)
{
	/* no transaction is left whose end would clean up */
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "streamcdc state mark", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	Mark		mark;

	memset(&mark, 0, sizeof(mark));
	mark.version = MARK_VERSION;
	mark.timeline = GetWALInsertionTimeLine();
	mark.system_identifier = GetSystemIdentifier();
	mark.query_id = q->query_id;
	mark.definition = definition_hash(q);
	mark.batch_id = batch_id;
	mark.token = token;
	mark.rows = rows;
	mark.crc = crc;

	/* one write: the old generation is there as long as the old mark is */
	scdc_generation_forget(state->store, state->batch_id, state->rows);
	scdc_store_put(state->store, mark_key, &mark, sizeof(mark));
	scdc_store_flush(state->store);
	state->batch_id = batch_id;
	state->rows = rows;
	state->crc = crc;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
}

/* ---------------------------------------------------------------------
 * state that nobody needs any more
 * ---------------------------------------------------------------------
 */

static bool
is_directory(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool
is_query_id(const char *name)
{
	return strlen(name) == UUID_TEXT_LEN && strspn(name, "0123456789abcdef-") == UUID_TEXT_LEN;
}

/* The directory with the state of a database's queries; NULL if there is none that could be ours. */
static char *
directory_of(Oid dboid)
{
	char	   *path = psprintf("%s/%u", scdc_state_directory, dboid);

	return is_directory(scdc_state_directory) && is_directory(path) ? path : NULL;
}

/* State is a cache: a rest of it does no harm, and is no reason to fail a command. */
static void
remove_directory(int elevel, const char *path)
{
	struct stat st;

	if ((lstat(path, &st) < 0 && errno == ENOENT) || (is_directory(path) && rmtree(path, true)))
		return;
	ereport(elevel,
			(errmsg("could not remove state directory \"%s\"", path)));
}

void
scdc_state_remove(const pg_uuid_t *query_id)
{
	if (directory_of(MyDatabaseId))
		remove_directory(WARNING, state_path(query_id));
}

/* The state directory may be a place in which there are other things, too: only what has a query's name goes. */
void
scdc_state_remove_all(Oid dboid)
{
	char	   *path = directory_of(dboid);
	DIR		   *dir;
	struct dirent *entry;

	if (path == NULL)
		return;
	dir = AllocateDir(path);
	while (dir && (entry = ReadDirExtended(dir, path, LOG)) != NULL)
		if (is_query_id(entry->d_name))
			remove_directory(LOG, psprintf("%s/%s", path, entry->d_name));
	if (dir)
		FreeDir(dir);
	if (rmdir(path) < 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not remove directory \"%s\": %m", path)));
}
