/*-------------------------------------------------------------------------
 *
 * fuzz_collapse.c
 *	  libFuzzer target for src/collapse/collapse.c.
 *
 * The first byte of the input chooses mode and options, the rest are events
 * on eight identities with four images each.  Rows are allocated one by one
 * and freed when they are released, so that a sanitizer sees one used later,
 * released twice or forgotten.
 *
 * Half of the inputs are logs of a table with a unique key: events that
 * cannot happen there are left out, and the result is compared with a model
 * that knows nothing but the table's contents at the ends of commits.  The
 * other half may break every rule; of them it is asked that rows are treated
 * right, come in order, and that without net changes what comes out, taken
 * from what went in, leaves nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "collapse/collapse.h"

#define IDS			8
#define IMAGES		4
#define MAX_RESULT	8192

extern int	LLVMFuzzerTestOneInput(const uint8 *data, size_t size);

#define MUST(condition) \
	do { \
		if (!(condition)) \
		{ \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

typedef struct Row
{
	int			id;
	int			image;
	bool		emitted;
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
	int64		live;			/* rows that are not released yet */
	int64		balance[IDS][IMAGES];	/* what went in less what came out */
	Change	   *result;
	int			nresult;
} Run;

/* ---- the caller's side ---- */

static Row *
new_row(Run *run, int id, int image)
{
	Row		   *row = malloc(sizeof(Row));

	row->id = id;
	row->image = image;
	row->emitted = false;
	run->live++;
	return row;
}

static uint32
hash(const void *row, void *arg)
{
	uint32		id = (uint32) ((const Row *) row)->id;

	return ((Run *) arg)->weak_hash ? id % 2 : id;
}

static bool
same_identity(const void *a, const void *b, void *arg)
{
	return ((const Row *) a)->id == ((const Row *) b)->id;
}

static bool
same_image(const void *a, const void *b, void *arg)
{
	return same_identity(a, b, arg) && ((const Row *) a)->image == ((const Row *) b)->image;
}

static bool
takes_away(int type)
{
	return type == SCDC_CHANGE_DELETE || type == SCDC_CHANGE_UPDATE_PREIMAGE;
}

static void
emit(const ScdcChangeRow *change, void *arg)
{
	Run		   *run = arg;
	Row		   *row = (Row *) unconstify(void *, change->row);
	Change	   *c = &run->result[run->nresult];

	MUST(run->nresult < MAX_RESULT);
	MUST(!row->emitted && change->timestamp == change->version * 1000);
	row->emitted = true;
	c->type = change->type;
	c->version = change->version;
	c->seq = change->seq;
	c->id = row->id;
	c->image = row->image;
	if (run->nresult > 0)
		MUST(c[-1].version < c->version || (c[-1].version == c->version && c[-1].seq <= c->seq));
	/* net changes are apart, each at its own place */
	if (change->type == SCDC_CHANGE_UPDATE_POSTIMAGE && !run->net)
		MUST(run->nresult > 0 && c[-1].type == SCDC_CHANGE_UPDATE_PREIMAGE && c[-1].id == c->id);
	run->balance[row->id][row->image] += takes_away(change->type) ? 1 : -1;
	run->nresult++;
}

static void
release_row(const void *row, void *arg)
{
	((Run *) arg)->live--;
	free(unconstify(void *, row));
}

/* ---- the model: a table with a unique key ---- */

#define ABSENT	(-1)

typedef struct Model
{
	ScdcDeduplication mode;
	bool		compute_updates;
	int			now[IDS];		/* image of the row, or ABSENT */
	int			at_start[IDS];	/* the same when the commit began */
	int64		touched[IDS];	/* event that touched it last in this commit, or 0 */
	/* of the range, for net changes */
	bool		changed[IDS];
	Change		first[IDS];
	Change		last[IDS];
	int			image_before[IDS];
	Change	   *expected;
	int			nexpected;
} Model;

static void
expect(Model *m, int type, int64 version, int64 seq, int id, int image)
{
	MUST(m->nexpected < MAX_RESULT);
	m->expected[m->nexpected++] = (Change) {type, version, seq, id, image};
}

static void
expect_pair(Model *m, int before, int after, const Change *at_before, const Change *at_after)
{
	bool		as_update = m->compute_updates && before != ABSENT && after != ABSENT;

	if (before != ABSENT)
		expect(m, as_update ? SCDC_CHANGE_UPDATE_PREIMAGE : SCDC_CHANGE_DELETE,
			   at_before->version, at_before->seq, at_before->id, before);
	if (after != ABSENT)
		expect(m, as_update ? SCDC_CHANGE_UPDATE_POSTIMAGE : SCDC_CHANGE_INSERT,
			   at_after->version, at_after->seq, at_after->id, after);
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

/* Can it happen to a table with a unique key? */
static bool
is_possible(const Model *m, bool has_old, int id, int image, bool has_new, int new_id)
{
	if (has_old && m->now[id] != image)
		return false;
	return !has_new || m->now[new_id] == ABSENT || (has_old && new_id == id);
}

/* ---- one input ---- */

static void
run_log(const uint8 *data, size_t size)
{
	static Change result[MAX_RESULT];
	static Change expected[MAX_RESULT];
	static const ScdcDeduplication modes[] = {SCDC_DEDUP_NONE, SCDC_DEDUP_DROP_CARRYOVERS, SCDC_DEDUP_NET_CHANGES};
	uint8		options = *data++;
	bool		lawful = options & 1;
	bool		identity = lawful || (options & 2) == 0;
	bool		ended = false;
	Run			run = {.weak_hash = (options & 4) != 0, .result = result};
	Model		m = {.expected = expected};
	ScdcCollapseOps ops = {
		.hash = identity ? hash : NULL,
		.same_identity = identity ? same_identity : NULL,
		.same_image = same_image,
		.emit = emit,
		.release = release_row,
		.arg = &run,
	};
	ScdcCollapse *c;
	int64		version = 1;
	int64		seq = 0;
	int			id;
	int			image;

	m.mode = modes[(options >> 3) % (identity ? 3 : 2)];
	run.net = m.mode == SCDC_DEDUP_NET_CHANGES;
	m.compute_updates = identity && m.mode != SCDC_DEDUP_NONE && (options & 0x80) != 0;
	for (id = 0; id < IDS; id++)
	{
		/* every other row is there from the beginning, with its number as its image */
		m.now[id] = id % 2 == 0 ? id % IMAGES : ABSENT;
		m.at_start[id] = m.now[id];
	}

	c = scdc_collapse_create(&ops, m.mode, m.compute_updates);
	/* two bytes an event, and at most four rows in or out of it */
	for (size = Min(size - 1, MAX_RESULT / 4); size >= 2; size -= 2, data += 2)
	{
		int			kind = data[0] & 7;
		int			new_id = data[1] & 7;
		int			new_image = data[1] >> 3 & 3;
		bool		has_old = kind != 1 && kind != 2;
		bool		has_new = kind != 3 && kind != 4;

		id = data[0] >> 3 & 7;
		image = data[0] >> 6;
		ended = kind == 0;
		if (ended)
		{
			scdc_collapse_end_commit(c);
			if (lawful)
				model_end_commit(&m, version);
			version += 1 + (data[1] & 1);
			seq = 0;
			continue;
		}
		if (kind == 7)
			new_id = id;		/* key changes are rarer than others */
		if (lawful && has_old && m.now[id] != ABSENT)
			image = m.now[id];
		if (lawful && !is_possible(&m, has_old, id, image, has_new, new_id))
			continue;

		seq++;
		if (has_old)
		{
			run.balance[id][image]--;
			m.now[id] = ABSENT;
			m.touched[id] = seq;
		}
		if (has_new)
		{
			run.balance[new_id][new_image]++;
			m.now[new_id] = new_image;
			m.touched[new_id] = seq;
		}
		scdc_collapse_event(c, version, version * 1000, seq,
							has_old ? new_row(&run, id, image) : NULL,
							has_new ? new_row(&run, new_id, new_image) : NULL);
	}
	if (!ended && lawful)
		model_end_commit(&m, version);
	scdc_collapse_finish(c);
	pfree(c);

	MUST(run.live == 0);
	if (m.mode != SCDC_DEDUP_NET_CHANGES)
		for (id = 0; id < IDS; id++)
			for (image = 0; image < IMAGES; image++)
				MUST(run.balance[id][image] == 0);
	if (lawful)
	{
		int			i;

		model_finish(&m);
		MUST(run.nresult == m.nexpected);
		qsort(result, run.nresult, sizeof(Change), compare_changes);
		qsort(expected, m.nexpected, sizeof(Change), compare_changes);
		for (i = 0; i < run.nresult; i++)
			MUST(compare_changes(&result[i], &expected[i]) == 0);
	}
}

int
LLVMFuzzerTestOneInput(const uint8 *data, size_t size)
{
	if (size > 0)
		run_log(data, size);
	return 0;
}
