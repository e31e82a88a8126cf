/*-------------------------------------------------------------------------
 *
 * fuzz_collapse.c
 *	  libFuzzer target for src/collapse/collapse.c.
 *
 * The first two bytes of the input choose what is fed and with which
 * options, the rest are events or labelled rows on eight identities with four
 * images each.  There are three sorts of inputs:
 *
 *		events as a table with a unique key has them (others are left out): the
 *		result is compared with a model that knows nothing but the table's
 *		contents at the ends of commits;
 *
 *		events that break every rule: without net changes, what comes out taken
 *		from what went in leaves nothing;
 *
 *		labelled rows: what comes out went in.
 *
 * Every input runs twice, without a limit of memory and with a small one, and
 * the results have to be equal.  Rows are allocated one by one and freed
 * when the call that handed them over returns, and all memory and all files
 * have to be given back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <setjmp.h>

#include "collapse/collapse.h"

#define IDS			8
#define IMAGES		4
#define MAX_STEPS	1024
#define MAX_RESULT	(4 * MAX_STEPS)

extern int	LLVMFuzzerTestOneInput(const uint8 *data, size_t size);

#define MUST(condition) \
	do { \
		if (!(condition)) \
		{ \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

/* ---------------------------------------------------------------------
 * The server's side: memory and files that can be counted, and taken back
 * after an error, as a memory context would.
 * ---------------------------------------------------------------------
 */

static void **chunks;
static size_t nchunks;
static size_t chunks_size;

static size_t
find_chunk(void *pointer)
{
	size_t		i = nchunks;

	while (i > 0 && chunks[i - 1] != pointer)
		i--;
	MUST(i > 0);
	return i - 1;
}

/* These stand in for those of libpgcommon. */
void *
palloc(Size size)
{
	if (nchunks == chunks_size)
	{
		chunks_size = chunks_size * 2 + 64;
		chunks = realloc(chunks, chunks_size * sizeof(void *));
	}
	return chunks[nchunks++] = malloc(size > 0 ? size : 1);
}

void *
palloc0(Size size)
{
	return memset(palloc(size), 0, size);
}

void *
repalloc(void *pointer, Size size)
{
	size_t		i = find_chunk(pointer);

	return chunks[i] = realloc(pointer, size > 0 ? size : 1);
}

void
pfree(void *pointer)
{
	size_t		i = find_chunk(pointer);

	chunks[i] = chunks[--nchunks];
	free(pointer);
}

typedef struct File
{
	char	   *data;
	size_t		len;
	size_t		pos;
	bool		reading;
	struct File *next;			/* of those that are open */
} File;

static File *open_files;

static void *
file_create(void *arg)
{
	File	   *file = calloc(1, sizeof(File));

	file->next = open_files;
	open_files = file;
	return file;
}

static void
file_write(void *handle, const void *data, Size size, void *arg)
{
	File	   *file = handle;

	MUST(!file->reading);
	if (size == 0)
		return;
	file->data = realloc(file->data, file->len + size);
	memcpy(file->data + file->len, data, size);
	file->len += size;
}

static void
file_rewind(void *handle, void *arg)
{
	File	   *file = handle;

	file->reading = true;
	file->pos = 0;
}

static void
file_read(void *handle, void *data, Size size, void *arg)
{
	File	   *file = handle;

	MUST(file->reading && size <= file->len - file->pos);
	if (size > 0)
		memcpy(data, file->data + file->pos, size);
	file->pos += size;
}

static void
file_close(void *handle, void *arg)
{
	File	  **link = &open_files;

	while (*link != NULL && *link != handle)
		link = &(*link)->next;
	MUST(*link != NULL);
	*link = (*link)->next;
	free(((File *) handle)->data);
	free(handle);
}

/* What an aborted transaction does. */
static void
take_back(void)
{
	while (nchunks > 0)
		pfree(chunks[nchunks - 1]);
	while (open_files != NULL)
		file_close(open_files, NULL);
}

/* ---------------------------------------------------------------------
 * The caller's side
 * ---------------------------------------------------------------------
 */

/* A row; the library may place it at any address, so it is read by copying. */
typedef struct Row
{
	uint8		id;
	uint8		image;
	uint8		row_version;	/* 0: NULL */
	uint8		label;			/* of a labelled row */
	uint8		padding;		/* bytes that follow */
} Row;

typedef struct Change
{
	int			type;
	int64		version;
	int64		seq;
	int			id;
	int			image;
} Change;

typedef struct Run
{
	bool		weak_hash;
	bool		net;
	bool		may_fail;
	bool		labelled;
	int64		balance[IDS][IMAGES];	/* what went in less what came out */
	Change	   *result;
	int			nresult;
	int			error;			/* or -1 */
	jmp_buf		failed;
} Run;

static Row
row_at(const void *address)
{
	Row			row;

	memcpy(&row, address, sizeof(row));
	return row;
}

/* The padding tells whether all of a row comes back.  After an error it is left to take_back(). */
static void *
new_row(Row row)
{
	char	   *bytes = palloc(sizeof(Row) + row.padding);

	memcpy(bytes, &row, sizeof(Row));
	memset(bytes + sizeof(Row), row.id * 16 + row.image, row.padding);
	return bytes;
}

static uint32
row_size(const void *row, void *arg)
{
	return sizeof(Row) + row_at(row).padding;
}

static uint32
hash(const void *row, void *arg)
{
	uint32		id = row_at(row).id;

	return ((Run *) arg)->weak_hash ? id % 2 : id;
}

static bool
same_identity(const void *a, const void *b, void *arg)
{
	return row_at(a).id == row_at(b).id;
}

static bool
same_image(const void *a, const void *b, void *arg)
{
	return same_identity(a, b, arg) && row_at(a).image == row_at(b).image;
}

static bool
has_row_version(const void *row, void *arg)
{
	return row_at(row).row_version != 0;
}

static bool
same_row_version(const void *a, const void *b, void *arg)
{
	MUST(has_row_version(a, arg) && has_row_version(b, arg));
	return row_at(a).row_version == row_at(b).row_version;
}

static void
emit(const ScdcChangeRow *change, void *arg)
{
	Run		   *run = arg;
	Row			row = row_at(change->row);
	Change	   *c = &run->result[run->nresult];
	int			i;

	MUST(run->nresult < MAX_RESULT);
	MUST(change->timestamp == change->version * 1000);
	MUST(row.id < IDS && row.image < IMAGES);
	for (i = 0; i < row.padding; i++)
		MUST(((const uint8 *) change->row)[sizeof(Row) + i] == row.id * 16 + row.image);

	c->type = change->type;
	c->version = change->version;
	c->seq = change->seq;
	c->id = row.id;
	c->image = row.image;
	if (run->nresult > 0)
		MUST(c[-1].version < c->version || (c[-1].version == c->version && c[-1].seq <= c->seq));

	/*
	 * net changes are apart, each at its own place, and labelled rows where
	 * they were
	 */
	if (change->type == SCDC_CHANGE_UPDATE_POSTIMAGE && !run->net && !run->labelled)
		MUST(run->nresult > 0 && c[-1].type == SCDC_CHANGE_UPDATE_PREIMAGE && c[-1].id == c->id);
	run->balance[row.id][row.image] += scdc_change_is_delete_like(change->type) ? 1 : -1;
	run->nresult++;
}

static void
error(ScdcCollapseError code, const ScdcChangeRow *row, void *arg)
{
	Run		   *run = arg;

	MUST(run->may_fail);
	MUST(row_at(row->row).id < IDS);
	run->error = code;
	longjmp(run->failed, 1);
}

/* ---------------------------------------------------------------------
 * The model: a table with a unique key
 * ---------------------------------------------------------------------
 */

#define ABSENT	(-1)

typedef struct Model
{
	ScdcDeduplication mode;
	bool		compute_updates;
	int			now[IDS];		/* image of the row, or ABSENT */
	int			at_start[IDS];	/* the same when the commit began */
	int64		touched[IDS];	/* event that touched it last in this commit,
								 * or 0 */
	/* of the range, for net changes */
	bool		changed[IDS];
	Change		first[IDS];
	Change		last[IDS];
	int			image_before[IDS];
	Change	   *expected;
	int			nexpected;
} Model;

static void
expect(Model *m, int type, const Change *at, int image)
{
	MUST(m->nexpected < MAX_RESULT);
	m->expected[m->nexpected++] = (Change)
	{
		type, at->version, at->seq, at->id, image
	};
}

static void
expect_pair(Model *m, int before, int after, const Change *at_before, const Change *at_after)
{
	bool		as_update = m->compute_updates && before != ABSENT && after != ABSENT;

	if (before != ABSENT)
		expect(m, as_update ? SCDC_CHANGE_UPDATE_PREIMAGE : SCDC_CHANGE_DELETE, at_before, before);
	if (after != ABSENT)
		expect(m, as_update ? SCDC_CHANGE_UPDATE_POSTIMAGE : SCDC_CHANGE_INSERT, at_after, after);
}

static void
model_end_commit(Model *m, int64 version)
{
	int			id;

	for (id = 0; id < IDS; id++)
	{
		int			before = m->at_start[id];
		int			after = m->now[id];
		Change		at = {0, version, m->touched[id], id, 0};

		m->at_start[id] = after;
		m->touched[id] = 0;
		if (at.seq == 0 || (before == ABSENT && after == ABSENT))
			continue;
		if (before == after && m->mode != SCDC_DEDUP_NONE)
			continue;			/* a carry-over */
		if (m->mode != SCDC_DEDUP_NET_CHANGES)
		{
			expect_pair(m, before, after, &at, &at);
			continue;
		}
		if (!m->changed[id])
		{
			m->changed[id] = true;
			m->first[id] = at;
			m->image_before[id] = before;
		}
		m->last[id] = at;
	}
}

static void
model_finish(Model *m)
{
	int			id;

	for (id = 0; id < IDS; id++)
		if (m->changed[id])
			expect_pair(m, m->image_before[id], m->now[id], &m->first[id], &m->last[id]);
}

static int
compare_changes(const void *a, const void *b)
{
	const Change *x = a;
	const Change *y = b;

	if (x->version != y->version)
		return x->version < y->version ? -1 : 1;
	if (x->seq != y->seq)
		return x->seq < y->seq ? -1 : 1;
	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	if (x->type != y->type)
		return x->type < y->type ? -1 : 1;
	return x->image - y->image;
}

/* ---------------------------------------------------------------------
 * One input
 * ---------------------------------------------------------------------
 */

typedef enum StepKind
{
	STEP_EVENT,
	STEP_ROW,
	STEP_END_COMMIT
} StepKind;

typedef struct Step
{
	StepKind	kind;
	int64		version;
	int64		seq;
	bool		has_old;
	bool		has_new;
	Row			old;			/* or the labelled row */
	Row			new;
} Step;

typedef struct Plan
{
	bool		lawful;
	bool		labelled;
	bool		identity;
	bool		weak_hash;
	ScdcDeduplication mode;
	bool		compute_updates;
	ScdcPasses	passes;
	Size		memory_limit;
	int			nsteps;
	Step		steps[MAX_STEPS];
	int64		balance[IDS][IMAGES];	/* of what goes in */
} Plan;

/* Can it happen to a table with a unique key? */
static bool
is_possible(const Model *m, const Step *step)
{
	if (step->has_old && m->now[step->old.id] != step->old.image)
		return false;
	return !step->has_new || m->now[step->new.id] == ABSENT || (step->has_old && step->new.id == step->old.id);
}

static void
note_event(Plan *plan, Model *m, const Step *step)
{
	if (step->has_old)
	{
		plan->balance[step->old.id][step->old.image]--;
		m->now[step->old.id] = ABSENT;
		m->touched[step->old.id] = step->seq;
	}
	if (step->has_new)
	{
		plan->balance[step->new.id][step->new.image]++;
		m->now[step->new.id] = step->new.image;
		m->touched[step->new.id] = step->seq;
	}
}

/* False if such options are refused by callers. */
static bool
read_options(Plan *plan, const uint8 *data)
{
	static const ScdcDeduplication modes[] = {SCDC_DEDUP_NONE, SCDC_DEDUP_DROP_CARRYOVERS, SCDC_DEDUP_NET_CHANGES};
	ScdcSourceFlags flags = {true, true, true};

	plan->lawful = (data[0] & 3) == 0 || (data[0] & 3) == 1;
	plan->labelled = (data[0] & 3) == 3;
	plan->weak_hash = (data[0] & 4) != 0;
	plan->mode = modes[(data[0] >> 3 & 3) % 3];
	plan->compute_updates = (data[0] & 0x20) != 0;
	plan->identity = plan->lawful || (data[0] & 0x40) == 0;
	plan->memory_limit = (Size) 64 << (data[1] & 7);
	if (plan->labelled)
		flags = (ScdcSourceFlags)
	{
		(data[1] & 8) != 0, (data[1] & 16) != 0, (data[1] & 32) != 0
	};
	if (scdc_passes_conflict(flags, plan->mode, plan->compute_updates))
		return false;
	plan->passes = scdc_passes(flags, plan->mode, plan->compute_updates);
	if (!plan->identity &&
		(plan->passes.detect_updates || plan->passes.net_changes ||
		 (plan->labelled && plan->passes.drop_carryovers)))
		return false;
	return true;
}

static void
read_steps(Plan *plan, Model *m, const uint8 *data, size_t size)
{
	int64		version = 1;
	int64		seq = 0;

	/* three bytes each; the last step ends the last commit */
	for (; size >= 3 && plan->nsteps < MAX_STEPS - 1; size -= 3, data += 3)
	{
		Step	   *step = &plan->steps[plan->nsteps];
		int			kind = data[0] & 7;

		memset(step, 0, sizeof(*step));
		step->version = version;
		step->seq = seq + 1;
		step->old.id = data[0] >> 3 & 7;
		step->old.image = data[0] >> 6;
		step->new.id = kind == 7 ? step->old.id : data[1] & 7;	/* key changes are rarer
																 * than others */
		step->new.image = data[1] >> 3 & 3;
		step->old.row_version = data[1] >> 5 & 3;
		step->old.padding = step->new.padding = data[2];
		if (kind == 0)
		{
			step->kind = STEP_END_COMMIT;
			if (plan->lawful)
				model_end_commit(m, version);
			version += 1 + (data[1] & 1);
			seq = 0;
		}
		else if (plan->labelled)
		{
			step->kind = STEP_ROW;
			step->old.label = (uint8) ((kind - 1) % 5);
			seq++;
		}
		else
		{
			step->kind = STEP_EVENT;
			step->has_old = kind != 1 && kind != 2;
			step->has_new = kind != 3 && kind != 4;
			if (plan->lawful && step->has_old && m->now[step->old.id] != ABSENT)
				step->old.image = (uint8) m->now[step->old.id];
			if (plan->lawful && !is_possible(m, step))
				continue;
			note_event(plan, m, step);
			seq++;
		}
		plan->nsteps++;
	}
	plan->steps[plan->nsteps++] = (Step)
	{
		.kind = STEP_END_COMMIT, .version = version
	};
	if (plan->lawful)
		model_end_commit(m, version);
}

static void
feed(ScdcCollapse *c, const Step *step)
{
	void	   *old_row = NULL;
	void	   *new = NULL;

	switch (step->kind)
	{
		case STEP_END_COMMIT:
			scdc_collapse_end_commit(c);
			return;
		case STEP_ROW:
			old_row = new_row(step->old);
			scdc_collapse_row(c, (ScdcChangeType) step->old.label, step->version, step->version * 1000, step->seq, old_row);
			break;
		case STEP_EVENT:
			if (step->has_old)
				old_row = new_row(step->old);
			if (step->has_new)
				new = new_row(step->new);
			scdc_collapse_event(c, step->version, step->version * 1000, step->seq, old_row, new);
			break;
	}
	if (old_row != NULL)
		pfree(old_row);
	if (new != NULL)
		pfree(new);
}

static void
run_plan(const Plan *plan, Size memory_limit, Run *run)
{
	ScdcCollapseOps ops = {
		.size = row_size,
		.hash = plan->identity ? hash : NULL,
		.same_identity = plan->identity ? same_identity : NULL,
		.same_image = same_image,
		.has_row_version = has_row_version,
		.same_row_version = same_row_version,
		.emit = emit,
		.error = error,
		.file_create = file_create,
		.file_write = file_write,
		.file_rewind = file_rewind,
		.file_read = file_read,
		.file_close = file_close,
		.arg = run,
	};
	ScdcCollapseOptions options = {
		.passes = plan->passes,
		.compute_updates = plan->compute_updates,
		.memory_limit = memory_limit,
	};

	run->weak_hash = plan->weak_hash;
	run->net = plan->passes.net_changes;
	run->labelled = plan->labelled;
	run->may_fail = !plan->lawful;
	run->nresult = 0;
	run->error = -1;
	memset(run->balance, 0, sizeof(run->balance));
	if (setjmp(run->failed) == 0)
	{
		ScdcCollapse *c = scdc_collapse_create(&ops, &options);
		int			i;

		for (i = 0; i < plan->nsteps; i++)
			feed(c, &plan->steps[i]);
		scdc_collapse_finish(c);
		MUST(nchunks == 0);
		MUST(open_files == NULL);
	}
	take_back();
}

static void
check_lawful(const Run *run, Model *m)
{
	static Change sorted[MAX_RESULT];
	int			i;

	model_finish(m);
	MUST(run->nresult == m->nexpected);
	memcpy(sorted, run->result, run->nresult * sizeof(Change));
	qsort(sorted, run->nresult, sizeof(Change), compare_changes);
	qsort(m->expected, m->nexpected, sizeof(Change), compare_changes);
	for (i = 0; i < run->nresult; i++)
		MUST(compare_changes(&sorted[i], &m->expected[i]) == 0);
}

/* Every row that comes out went in, at that place, and not twice. */
static void
check_labelled(const Plan *plan, const Run *run)
{
	int			step = 0;
	int			i;

	for (i = 0; i < run->nresult; i++, step++)
	{
		const Change *c = &run->result[i];

		while (step < plan->nsteps &&
			   (plan->steps[step].kind != STEP_ROW || plan->steps[step].version != c->version ||
				plan->steps[step].seq != c->seq))
			step++;
		MUST(step < plan->nsteps);
		MUST(plan->steps[step].old.id == c->id && plan->steps[step].old.image == c->image);
		if (!plan->passes.detect_updates && !plan->passes.net_changes)
			MUST(c->type == plan->steps[step].old.label);
	}
	if (!plan->passes.drop_carryovers && !plan->passes.detect_updates && !plan->passes.net_changes)
	{
		for (i = step = 0; step < plan->nsteps; step++)
			i += plan->steps[step].kind == STEP_ROW;
		MUST(run->error == -1 && run->nresult == i);
	}
}

int
LLVMFuzzerTestOneInput(const uint8 *data, size_t size)
{
	static Change result[MAX_RESULT];
	static Change limited_result[MAX_RESULT];
	static Change expected[MAX_RESULT];
	static Plan plan;
	Model		m = {.expected = expected};
	Run			run = {.result = result};
	Run			limited = {.result = limited_result};
	int			id;
	int			image;

	memset(&plan, 0, sizeof(plan));
	if (size < 2 || !read_options(&plan, data))
		return 0;
	m.mode = plan.mode;
	m.compute_updates = plan.compute_updates;
	for (id = 0; id < IDS; id++)
	{
		/* every other row is there from the beginning */
		m.now[id] = id % 2 == 0 ? id % IMAGES : ABSENT;
		m.at_start[id] = m.now[id];
	}
	read_steps(&plan, &m, data + 2, size - 2);

	run_plan(&plan, 0, &run);
	if (plan.lawful)
		check_lawful(&run, &m);
	if (plan.labelled)
		check_labelled(&plan, &run);
	else if (!plan.passes.net_changes && run.error == -1)
		for (id = 0; id < IDS; id++)
			for (image = 0; image < IMAGES; image++)
				MUST(run.balance[id][image] + plan.balance[id][image] == 0);

	run_plan(&plan, plan.memory_limit, &limited);
	MUST(limited.error == run.error);
	if (run.error == -1)
	{
		MUST(limited.nresult == run.nresult);
		MUST(memcmp(limited.result, run.result, run.nresult * sizeof(Change)) == 0);
	}
	return 0;
}
