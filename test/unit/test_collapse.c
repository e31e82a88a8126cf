/*-------------------------------------------------------------------------
 *
 * test_collapse.c
 *	  Unit test of src/collapse.
 *
 * Logs and results are written in a small notation.  A row is a number, its
 * identity, and a letter, its image.  In a log, words are events, numbered
 * from 1 in their commit, and "|" ends a commit:
 *
 *		+1a		insert		-1a		delete		1a>1b	update
 *
 * In a result each word is version.seq:, then one of - (delete), + (insert),
 * < (update pre-image), > (update post-image), then the row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <time.h>

#include <setjmp.h>

#include "collapse/collapse.h"
#include "tap.h"

#define RANDOM_LOGS		10000

/* ---- memory that can be counted, in the place of libpgcommon's ---- */

static Size memory_used;
static Size memory_peak;

/* In front of each piece; in a list, since after an error nobody else knows what there is (a memory context would). */
typedef struct Allocation
{
	struct Allocation *previous;
	struct Allocation *next;
	Size		size;
	Size		padding;
} Allocation;

static Allocation *allocations;

void *
palloc(Size size)
{
	Allocation *a = malloc(sizeof(Allocation) + size);

	a->size = size;
	a->previous = NULL;
	a->next = allocations;
	if (allocations)
		allocations->previous = a;
	allocations = a;
	memory_used += size;
	if (memory_used > memory_peak)
		memory_peak = memory_used;
	return a + 1;
}

void *
palloc0(Size size)
{
	return memset(palloc(size), 0, size);
}

void
pfree(void *pointer)
{
	Allocation *a = (Allocation *) pointer - 1;

	if (a->next)
		a->next->previous = a->previous;
	if (a->previous)
		a->previous->next = a->next;
	else
		allocations = a->next;
	memory_used -= a->size;
	free(a);
}

static void
pfree_all(void)
{
	while (allocations)
		pfree(allocations + 1);
}

/* ---- the caller's side ---- */

/* A labelled row has a row version too, or none (0); label: what its type was when it was fed. */
typedef struct Row
{
	int			id;
	int			image;
	int			row_version;
	int			label;
	uint32		size;			/* with padding behind the struct */
} Row;

/* A file in memory, with what must hold for one. */
typedef struct File
{
	char	   *data;
	Size		size;
	Size		room;
	Size		pos;
	bool		reading;
	struct File *next;			/* in open_files */
} File;

static File *open_files;

typedef struct Run
{
	bool		weak_hash;
	uint32		padding;		/* of each row, up to so much */
	Size		memory_limit;
	bool		complaint;		/* something was used against the rules, or out of order */
	int			files;			/* open now */
	int			files_used;
	int			emitted;
	ScdcChangeRow last;
	bool		take;			/* rows are taken, not emitted */
	bool		quiet;			/* do not keep the result */
	char	   *result;
	size_t		result_len;
	size_t		result_size;
	bool		failed;
	ScdcCollapseError error;
	jmp_buf		jump;
} Run;

/* Its padding is checked when it comes back. */
static Row *
new_labelled_row(Run *run, int id, int image, int row_version, int label)
{
	uint32		padding = run->padding > 0 ? (uint32) (id * 7 + image) % run->padding : 0;
	Row		   *row = malloc(sizeof(Row) + padding);

	row->id = id;
	row->image = image;
	row->row_version = row_version;
	row->label = label;
	row->size = sizeof(Row) + padding;
	memset(row + 1, id + image, padding);
	return row;
}

static Row *
new_row(Run *run, int id, int image)
{
	return new_labelled_row(run, id, image, 0, 0);
}

/* Whoever looks at it again will complain. */
static void
spoil_row(Row *row)
{
	if (row == NULL)
		return;
	memset(row, 0x7f, row->size);
	free(row);
}

static ScdcCollapse *second_collapse;	/* gets all events too, if set */

static void
event(ScdcCollapse *c, int64 version, int64 seq, Row *old_row, Row *brought)
{
	scdc_collapse_event(c, version, version * 1000, seq, old_row, brought);
	if (second_collapse != NULL)
		scdc_collapse_event(second_collapse, version, version * 1000, seq, old_row, brought);
	spoil_row(old_row);
	spoil_row(brought);
}

static const Row *
live(Run *run, const void *handle)
{
	const Row  *row = handle;
	uint32		i;

	if ((uintptr_t) row % MAXIMUM_ALIGNOF != 0 || row->size < sizeof(Row) || row->size > sizeof(Row) + run->padding)
	{
		run->complaint = true;
		return row;
	}
	for (i = sizeof(Row); i < row->size; i++)
		if (((const char *) row)[i] != (char) (row->id + row->image))
			run->complaint = true;
	return row;
}

static uint32
row_size(const void *row, void *arg)
{
	return live(arg, row)->size;
}

static uint32
hash(const void *row, void *arg)
{
	Run		   *run = arg;
	int			id = live(run, row)->id;

	return run->weak_hash ? (uint32) id % 2 : (uint32) id;
}

static bool
same_identity(const void *a, const void *b, void *arg)
{
	return live(arg, a)->id == live(arg, b)->id;
}

static bool
same_image(const void *a, const void *b, void *arg)
{
	return live(arg, a)->id == live(arg, b)->id && live(arg, a)->image == live(arg, b)->image;
}

static bool
has_row_version(const void *row, void *arg)
{
	return live(arg, row)->row_version != 0;
}

static bool
same_row_version(const void *a, const void *b, void *arg)
{
	return live(arg, a)->row_version == live(arg, b)->row_version;
}

static void *
file_create(void *arg)
{
	Run		   *run = arg;
	File	   *file = calloc(1, sizeof(File));

	run->files++;
	run->files_used++;
	file->next = open_files;
	open_files = file;
	return file;
}

static void
file_write(void *handle, const void *data, Size size, void *arg)
{
	File	   *file = handle;

	if (file->reading)
		((Run *) arg)->complaint = true;
	if (file->size + size > file->room)
	{
		file->room = (file->size + size) * 2;
		file->data = realloc(file->data, file->room);
	}
	if (size > 0)
		memcpy(file->data + file->size, data, size);
	file->size += size;
}

static void
file_rewind(void *handle, void *arg)
{
	File	   *file = handle;

	if (((Run *) arg)->files <= 0)
		((Run *) arg)->complaint = true;
	file->reading = true;
	file->pos = 0;
}

static void
file_read(void *handle, void *data, Size size, void *arg)
{
	File	   *file = handle;

	if (!file->reading || file->pos + size > file->size || ((Run *) arg)->files <= 0)
	{
		fprintf(stderr, "read beyond the end of a file\n");
		abort();
	}
	if (size > 0)
		memcpy(data, file->data + file->pos, size);
	file->pos += size;
}

static void
file_close(void *handle, void *arg)
{
	File	   *file = handle;
	File	  **link;

	((Run *) arg)->files--;
	for (link = &open_files; *link != file; link = &(*link)->next)
		;
	*link = file->next;
	free(file->data);
	free(file);
}

/* After an error: what a resource owner would do. */
static void
close_all_files(Run *run)
{
	while (open_files)
		file_close(open_files, run);
}

static void
error(ScdcCollapseError code, const ScdcChangeRow *row, void *arg)
{
	Run		   *run = arg;

	live(run, row->row);
	run->failed = true;
	run->error = code;
	longjmp(run->jump, 1);
}

static void
append_result(Run *run, const char *word)
{
	size_t		len = strlen(word);

	if (run->result_size < run->result_len + len + 2)
	{
		run->result_size = (run->result_size + len + 2) * 2;
		run->result = realloc(run->result, run->result_size);
	}
	if (run->result_len > 0)
		run->result[run->result_len++] = ' ';
	memcpy(run->result + run->result_len, word, len + 1);
	run->result_len += len;
}

static void
print_change(char *word, size_t size, ScdcChangeType type, int64 version, int64 seq, int id, int image)
{
	snprintf(word, size, INT64_FORMAT "." INT64_FORMAT ":%c%d%c",
			 version, seq, "-+<>?"[type], id, image);
}

static void
emit(const ScdcChangeRow *change, void *arg)
{
	Run		   *run = arg;
	const Row  *row = live(run, change->row);
	char		word[100];

	if (change->timestamp != change->version * 1000)
		run->complaint = true;
	if (run->emitted > 0 &&
		(change->version < run->last.version ||
		 (change->version == run->last.version && change->seq < run->last.seq)))
		run->complaint = true;
	run->last = *change;
	run->emitted++;
	if (run->quiet)
		return;
	print_change(word, sizeof(word), change->type, change->version, change->seq, row->id, row->image);
	append_result(run, word);
}

static void
run_begin(Run *run)
{
	memory_used = memory_peak = 0;
	memset(run, 0, sizeof(*run));
	run->result = calloc(1, 16);
	run->result_size = 16;
}

/* True if nothing was wrong. */
static bool
run_end(Run *run)
{
	free(run->result);
	return !run->complaint && (run->failed || (run->files == 0 && memory_used == 0));
}

static ScdcCollapse *
create_emitting(Run *run, void (*to) (const ScdcChangeRow *, void *), bool identity, ScdcPasses passes, bool compute_updates)
{
	ScdcCollapseOps ops;
	ScdcCollapseOptions options;

	memset(&ops, 0, sizeof(ops));
	ops.size = row_size;
	ops.hash = identity ? hash : NULL;
	ops.same_identity = identity ? same_identity : NULL;
	ops.same_image = same_image;
	ops.has_row_version = has_row_version;
	ops.same_row_version = same_row_version;
	ops.emit = to;
	ops.error = error;
	ops.file_create = file_create;
	ops.file_write = file_write;
	ops.file_rewind = file_rewind;
	ops.file_read = file_read;
	ops.file_close = file_close;
	ops.arg = run;
	options.passes = passes;
	options.compute_updates = compute_updates;
	options.memory_limit = run->memory_limit;
	return scdc_collapse_create(&ops, &options);
}

static ScdcCollapse *
create_with(Run *run, bool identity, ScdcPasses passes, bool compute_updates)
{
	return create_emitting(run, emit, identity, passes, compute_updates);
}

static void
take_rows(Run *run, ScdcCollapse *c)
{
	const ScdcChangeRow *row;

	while ((row = scdc_collapse_next(c)) != NULL)
		emit(row, run);
}

static void
end_commit(Run *run, ScdcCollapse *c)
{
	if (!run->take)
	{
		scdc_collapse_end_commit(c);
		return;
	}
	scdc_collapse_close_commit(c);
	take_rows(run, c);
}

static void
finish(Run *run, ScdcCollapse *c)
{
	if (!run->take)
	{
		scdc_collapse_finish(c);
		return;
	}
	scdc_collapse_close_range(c);
	take_rows(run, c);
	scdc_collapse_end(c);
}

/* For a tracked table. */
static ScdcCollapse *
create(Run *run, bool identity, ScdcDeduplication mode, bool compute_updates)
{
	ScdcSourceFlags flags = {true, true, true};

	return create_with(run, identity, scdc_passes(flags, mode, compute_updates), compute_updates);
}

/* Feeds one event in the notation of the logs. */
static void
feed_word(Run *run, ScdcCollapse *c, const char *word, int64 version, int64 seq)
{
	Row		   *old_row = NULL;
	Row		   *brought = NULL;
	int			id;
	int			id2;
	char		image;
	char		image2;

	if (sscanf(word, "%d%c>%d%c", &id, &image, &id2, &image2) == 4 && *word != '+' && *word != '-')
	{
		old_row = new_row(run, id, image);
		brought = new_row(run, id2, image2);
	}
	else
	{
		sscanf(word + 1, "%d%c", &id, &image);
		if (*word == '+')
			brought = new_row(run, id, image);
		else
			old_row = new_row(run, id, image);
	}
	event(c, version, seq, old_row, brought);
}

static void
feed_log(Run *run, ScdcCollapse *c, const char *log)
{
	char	   *copy = strdup(log);
	char	   *word;
	int64		version = 1;
	int64		seq = 0;

	for (word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
	{
		if (strcmp(word, "|") == 0)
		{
			end_commit(run, c);
			version++;
			seq = 0;
		}
		else
			feed_word(run, c, word, version, ++seq);
	}
	if (seq > 0)
		end_commit(run, c);
	free(copy);
}

/* No limit, one that nothing fits into, and some between. */
static const Size limits[] = {0, 1, 16 * 1024, 64 * 1024};

static void
check_with(const char *name, bool identity, ScdcDeduplication mode, bool compute_updates,
		   const char *log, const char *expected)
{
	static const char *const modes[] = {"none", "dropCarryovers", "netChanges"};
	size_t		i;

	for (i = 0; i < 2 * 2 * 2; i++)
	{
		Run			run;
		ScdcCollapse *c;
		char		title[300];
		char	   *result;
		bool		weak = i % 2;
		Size		limit = limits[i / 2 % 2];
		bool		take = i / 4;

		if (!identity && i > 0)
			break;
		snprintf(title, sizeof(title), "%s (%s%s%s%s%s%s)", name, modes[mode],
				 compute_updates ? ", updates" : "", identity ? "" : ", no identity",
				 weak ? ", colliding hash" : "", limit ? ", spilled" : "", take ? ", taken" : "");
		run_begin(&run);
		run.take = take;
		run.weak_hash = weak;
		run.memory_limit = limit;
		c = create(&run, identity, mode, compute_updates);
		feed_log(&run, c, log);
		finish(&run, c);
		result = strdup(run.result);
		if (!run_end(&run))
		{
			ok(false, title);
			diag("a row was damaged, or came out of order, or a file was left open");
		}
		else
			is_str(result, expected, title);
		free(result);
	}
}

#define NONE	SCDC_DEDUP_NONE
#define DROP	SCDC_DEDUP_DROP_CARRYOVERS
#define NET		SCDC_DEDUP_NET_CHANGES

/* ---- row-level passes ---- */

static void
test_plain(void)
{
	check_with("no events", true, DROP, false, "", "");
	check_with("no events", true, NET, true, "", "");
	check_with("insert", true, DROP, false, "+1a", "1.1:+1a");
	check_with("delete", true, DROP, false, "-1a", "1.1:-1a");
	check_with("update", true, NONE, false, "1a>1b", "1.1:-1a 1.1:+1b");
	check_with("update", true, DROP, false, "1a>1b", "1.1:-1a 1.1:+1b");
	check_with("update", true, DROP, true, "1a>1b", "1.1:<1a 1.1:>1b");
	check_with("several rows", true, DROP, true, "+1a -2a 3a>3b | 1a>1b",
			   "1.1:+1a 1.2:-2a 1.3:<3a 1.3:>3b 2.1:<1a 2.1:>1b");
	check_with("one row in several commits", true, DROP, false, "+1a | 1a>1b | -1b",
			   "1.1:+1a 2.1:-1a 2.1:+1b 3.1:-1b");
}

static void
test_netting(void)
{
	check_with("insert..delete", true, NONE, false, "+1a -1a", "");
	check_with("insert..delete", true, DROP, true, "+1a -1a", "");
	check_with("insert..update..delete", true, NONE, false, "+1a 1a>1b -1b", "");
	check_with("insert..update", true, DROP, true, "+1a 1a>1b", "1.2:+1b");
	check_with("insert..update..update", true, DROP, false, "+1a 1a>1b +2a 1b>1c", "1.3:+2a 1.4:+1c");
	check_with("delete..insert", true, DROP, false, "-1a +1b", "1.2:-1a 1.2:+1b");
	check_with("delete..insert", true, DROP, true, "-1a +1b", "1.2:<1a 1.2:>1b");
	check_with("delete..insert of the same", true, DROP, true, "-1a +1a", "");
	check_with("delete..insert..delete", true, DROP, true, "-1a +1b -1b", "1.3:-1a");
	check_with("delete..insert of the same..delete", true, DROP, true, "-1a +1a -1a", "1.3:-1a");
	check_with("update..update", true, DROP, true, "1a>1b 1b>1c", "1.2:<1a 1.2:>1c");
	check_with("update..delete", true, DROP, true, "1a>1b 1b>1c -1c", "1.3:-1a");
	check_with("insert..delete..insert", true, DROP, true, "+1a -1a +1b", "1.3:+1b");
	check_with("place of the last event", true, DROP, true, "1a>1b 2a>2b 1b>1c",
			   "1.2:<2a 1.2:>2b 1.3:<1a 1.3:>1c");

	/* carry-overs */
	check_with("A->B->A", true, DROP, false, "1a>1b 1b>1a", "");
	check_with("A->B->A", true, DROP, true, "1a>1b 1b>1a", "");
	check_with("A->B->A", true, NONE, false, "1a>1b 1b>1a", "1.2:-1a 1.2:+1a");
	check_with("A->B->A", true, NET, true, "1a>1b 1b>1a", "");
	check_with("no-op update", true, NONE, false, "1a>1a", "1.1:-1a 1.1:+1a");
	check_with("no-op update", true, DROP, false, "1a>1a", "");
	check_with("no-op update", true, DROP, true, "1a>1a", "");
	check_with("no-op update", true, NET, false, "1a>1a", "");
	check_with("no-op updates among others", true, DROP, true, "1a>1a 2a>2b 3a>3a", "1.2:<2a 1.2:>2b");
	check_with("update..no-op update", true, DROP, true, "1a>1b 1b>1b", "1.2:<1a 1.2:>1b");
	check_with("insert..no-op update", true, NONE, false, "+1a 1a>1a", "1.2:+1a");

	/* changes of the key */
	check_with("key change", true, DROP, false, "1a>2a", "1.1:-1a 1.1:+2a");
	check_with("key change is no update", true, DROP, true, "2a>1a", "1.1:-2a 1.1:+1a");
	check_with("key change, not alone", true, DROP, true, "+9a 2a>1a", "1.1:+9a 1.2:-2a 1.2:+1a");
	check_with("key change, not alone, downwards", true, DROP, true, "+9a 1a>2a", "1.1:+9a 1.2:-1a 1.2:+2a");
	check_with("key change, identities met before", true, DROP, true, "-1a +1b 2a>3a 1b>2b",
			   "1.3:+3a 1.4:-1a 1.4:<2a 1.4:>2b");
	check_with("key change and back", true, DROP, true, "1a>2a 2a>1a", "");
	check_with("key change and back", true, NONE, false, "1a>2a 2a>1a", "1.2:-1a 1.2:+1a");
	check_with("key change and back, changed", true, DROP, true, "1a>2a 2a>1b", "1.2:<1a 1.2:>1b");
	check_with("chain 1->2->3", true, DROP, true, "1a>2a 2a>3a", "1.1:-1a 1.2:+3a");
	check_with("insert and chain", true, DROP, true, "+1a 1a>2a 2a>3b", "1.3:+3b");
	check_with("insert, chain and delete", true, NONE, false, "+1a 1a>2a 2a>3b -3b", "");
	check_with("shift up from the end", true, DROP, true, "2b>3b 1a>2a", "1.1:+3b 1.2:-1a 1.2:<2b 1.2:>2a");
	check_with("swap by a third key", true, DROP, true, "1a>9a 2b>1b 9a>2a",
			   "1.2:<1a 1.2:>1b 1.3:<2b 1.3:>2a");
	check_with("swap by a third key", true, NONE, false, "1a>9a 2b>1b 9a>2a",
			   "1.2:-1a 1.2:+1b 1.3:-2b 1.3:+2a");
	check_with("swap, constraint deferred", true, DROP, true, "1a>2a 2b>1b",
			   "1.2:<2b 1.2:>2a 1.2:<1a 1.2:>1b");
	check_with("swap of equal rows, constraint deferred", true, DROP, true, "1a>2a 2a>1a", "");
	check_with("shift up, constraint deferred", true, DROP, true, "1a>2a 2b>3b 3c>4c",
			   "1.1:-1a 1.2:<2b 1.2:>2a 1.3:<3c 1.3:>3b 1.3:+4c");
	check_with("insert before the old row leaves", true, DROP, true, "+1b -1a", "1.2:<1a 1.2:>1b");
	check_with("all to one key and apart again", true, DROP, true, "1a>0a 2b>0b 3c>0c 0a>1d 0b>2e 0c>3f",
			   "1.4:<1a 1.4:>1d 1.5:<2b 1.5:>2e 1.6:<3c 1.6:>3f");
}

static void
test_broken_contract(void)
{
	check_with("two inserts", true, DROP, true, "+1a +1b", "1.1:+1a 1.2:+1b");
	check_with("two equal inserts", true, DROP, true, "+1a +1a", "1.1:+1a 1.2:+1a");
	check_with("two deletes", true, DROP, true, "-1a -1b", "1.1:-1a 1.2:-1b");
	check_with("two updates of the same", true, DROP, true, "1a>1b 1a>1c", "1.1:-1a 1.1:+1b 1.2:-1a 1.2:+1c");
	check_with("two no-op updates of two rows", true, DROP, true, "1a>1a -2x 1b>1b",
			   "1.1:-1a 1.1:+1a 1.2:-2x 1.3:-1b 1.3:+1b");
	check_with("two deletes, one insert", true, DROP, true, "-1a +2a -1b +1c",
			   "1.1:-1a 1.2:+2a 1.3:-1b 1.4:+1c");
	check_with("two inserts, one deleted", true, DROP, true, "+1a +1b -1a", "1.3:+1b");
	check_with("net changes: deletes come first", true, NET, true, "+1a -1b +1c", "1.2:<1b 1.3:>1c");
	check_with("net changes: two inserts", true, NET, true, "+1a +1b", "1.2:+1b");
	check_with("net changes: two deletes", true, NET, true, "-1a -1b", "1.1:-1a");
}

static void
test_without_identity(void)
{
	check_with("events by themselves", false, DROP, false, "+1a 1a>1b -1b 2a>3a",
			   "1.1:+1a 1.2:-1a 1.2:+1b 1.3:-1b 1.4:-2a 1.4:+3a");
	check_with("A->B->A", false, DROP, false, "1a>1b 1b>1a", "1.1:-1a 1.1:+1b 1.2:-1b 1.2:+1a");
	check_with("carry-over", false, DROP, false, "+2a 1a>1a -2a", "1.1:+2a 1.3:-2a");
	check_with("carry-over", false, NONE, false, "1a>1a | +1a", "1.1:-1a 1.1:+1a 2.1:+1a");
	check_with("duplicates", false, DROP, false, "+1a +1a -1a", "1.1:+1a 1.2:+1a 1.3:-1a");
}

/* ---- net changes ---- */

typedef struct Cell
{
	const char *name;
	const char *log;
	const char *plain;			/* result with compute_updates off */
	const char *updates;		/* and on */
} Cell;

static const Cell cells[] = {
	{"insert..delete", "+1a | 1a>1b | -1b", "", ""},
	{"insert..insert", "+1a | -1a | +1c", "3.1:+1c", "3.1:+1c"},
	{"insert..update", "+1a | 1a>1b | 1b>1c", "3.1:+1c", "3.1:+1c"},
	{"update..update", "1a>1b | 1b>1c | 1c>1d", "1.1:-1a 3.1:+1d", "1.1:<1a 3.1:>1d"},
	{"update..insert", "1a>1b | -1b | +1c", "1.1:-1a 3.1:+1c", "1.1:<1a 3.1:>1c"},
	{"delete..update", "-1a | +1b | 1b>1c", "1.1:-1a 3.1:+1c", "1.1:<1a 3.1:>1c"},
	{"delete..insert", "-1a | +1b", "1.1:-1a 2.1:+1b", "1.1:<1a 2.1:>1b"},
	{"update..delete", "1a>1b | 1b>1c | -1c", "1.1:-1a", "1.1:-1a"},
	{"delete..delete", "-1a | +1b | -1b", "1.1:-1a", "1.1:-1a"},
	{"single insert", "+1a", "1.1:+1a", "1.1:+1a"},
	{"single delete", "-1a", "1.1:-1a", "1.1:-1a"},
	{"single update", "1a>1b", "1.1:-1a 1.1:+1b", "1.1:<1a 1.1:>1b"},
	{"A->B->A over commits is a change", "1a>1b | 1b>1a", "1.1:-1a 2.1:+1a", "1.1:<1a 2.1:>1a"},
	{"delete and the same again", "-1a | +1a", "1.1:-1a 2.1:+1a", "1.1:<1a 2.1:>1a"},
	{"carry-over is no event", "1a>1b | 1b>1b | +2a", "1.1:-1a 1.1:+1b 3.1:+2a", "1.1:<1a 1.1:>1b 3.1:+2a"},
	{"insert then delete in one commit", "+1a -1a | +1b", "2.1:+1b", "2.1:+1b"},
	{"netting in a commit first", "-1a +1b 1b>1c | 1c>1d", "1.3:-1a 2.1:+1d", "1.3:<1a 2.1:>1d"},
	{"rows go to their own commits", "1a>1b 2a>2b | +3a 2b>2c | 1b>1c",
		"1.1:-1a 1.2:-2a 2.1:+3a 2.2:+2c 3.1:+1c", "1.1:<1a 1.2:<2a 2.1:+3a 2.2:>2c 3.1:>1c"},
	{"key change", "+1a | 1a>2a", "2.1:+2a", "2.1:+2a"},
	{"key change of what was there", "1a>1b | 1b>2b", "1.1:-1a 2.1:+2b", "1.1:-1a 2.1:+2b"},
	{"key change, alone", "2a>1a", "1.1:-2a 1.1:+1a", "1.1:-2a 1.1:+1a"},
	{"key change, later in its commit", "+9a 2a>1a", "1.1:+9a 1.2:-2a 1.2:+1a", "1.1:+9a 1.2:-2a 1.2:+1a"},
	{"swap", "1a>9a 2b>1b 9a>2a", "1.2:-1a 1.2:+1b 1.3:-2b 1.3:+2a", "1.2:<1a 1.2:>1b 1.3:<2b 1.3:>2a"},
};

static void
test_net_changes(void)
{
	size_t		i;

	for (i = 0; i < lengthof(cells); i++)
	{
		check_with(cells[i].name, true, NET, false, cells[i].log, cells[i].plain);
		check_with(cells[i].name, true, NET, true, cells[i].log, cells[i].updates);
	}
}

static void
test_use(void)
{
	Run			run;
	ScdcCollapse *c;
	char	   *result;

	/* without an end of the last commit, and with one too many */
	run_begin(&run);
	c = create(&run, true, DROP, false);
	feed_word(&run, c, "+1a", 1, 1);
	scdc_collapse_end_commit(c);
	scdc_collapse_end_commit(c);
	feed_word(&run, c, "+2a", 2, 1);
	feed_word(&run, c, "+3a", 2, 2);
	scdc_collapse_finish(c);
	result = strdup(run.result);
	ok(run_end(&run), "finish ends the last commit: nothing is left");
	is_str(result, "1.1:+1a 2.1:+2a 2.2:+3a", "finish ends the last commit: rows are emitted");
	free(result);
}

/* ---- large commits ---- */

#define LARGE	100000

static void
test_large(void)
{
	ScdcDeduplication mode;
	Run			run;
	ScdcCollapse *c;
	int			i;

	for (mode = DROP; mode <= NET; mode++)
	{
		/* many keys, touched again in the opposite order, so that the result must be sorted */
		run_begin(&run);
		run.quiet = true;
		c = create(&run, true, mode, true);
		for (i = 0; i < LARGE; i++)
			event(c, 1, i, new_row(&run, i, 'a'), new_row(&run, i, 'b'));
		for (i = LARGE - 1; i >= 0; i--)
			event(c, 1, 2 * LARGE - i, new_row(&run, i, 'b'), new_row(&run, i, 'c'));
		scdc_collapse_finish(c);
		is_int(run.emitted, 2 * LARGE, "many keys in one commit");
		ok(run_end(&run), "many keys in one commit: order");

		/* one key */
		run_begin(&run);
		run.quiet = true;
		c = create(&run, true, mode, true);
		for (i = 0; i < LARGE; i++)
			event(c, 1, i, new_row(&run, 1, i), new_row(&run, 1, i + 1));
		scdc_collapse_finish(c);
		is_int(run.emitted, 2, "many events of one key in one commit");
		ok(run_end(&run), "many events of one key in one commit: order");

		/* all rows share a key for a while; they leave in the order they came */
		run_begin(&run);
		run.quiet = true;
		c = create(&run, true, mode, true);
		for (i = 0; i < LARGE; i++)
			event(c, 1, i, new_row(&run, i + 1, i), new_row(&run, 0, i));
		for (i = 0; i < LARGE; i++)
			event(c, 1, LARGE + i, new_row(&run, 0, i), new_row(&run, i + 1, i + 1));
		scdc_collapse_finish(c);
		is_int(run.emitted, 2 * LARGE, "a key shared by many for a while");
		ok(run_end(&run), "a key shared by many for a while: order");

		/* small commits behind a large one */
		run_begin(&run);
		run.quiet = true;
		c = create(&run, true, mode, true);
		for (i = 0; i < LARGE; i++)
			event(c, 1, i, NULL, new_row(&run, i, 'a'));
		for (i = 0; i < LARGE; i++)
		{
			scdc_collapse_end_commit(c);
			event(c, i + 2, 1, new_row(&run, i, 'a'), new_row(&run, i, 'b'));
			event(c, i + 2, 2, new_row(&run, i, 'b'), new_row(&run, i, 'c'));
		}
		scdc_collapse_finish(c);
		is_int(run.emitted, mode == NET ? LARGE : 3 * LARGE, "small commits behind a large one");
		ok(run_end(&run), "small commits behind a large one: order");
	}
}

/* ---- random logs against a model ----
 *
 * The model nets nothing.  It keeps the table itself, and compares it before
 * and after each commit; net changes are section 8 read aloud over the rows
 * that result.  It and the generator are one, since a log must be possible.
 */

#define IDS			6
#define MAX_ROWS	40
#define MAX_COMMITS 8
#define MAX_OUT		2000

/* A row of the model's table. */
typedef struct TableRow
{
	int			id;
	int			image;
	bool		written;		/* by the commit under way */
} TableRow;

typedef struct ModelChange
{
	ScdcChangeType type;
	int			version;
	int			seq;
	int			rank;			/* among the rows of one event */
	int			id;
	int			image;
} ModelChange;

typedef struct Table
{
	TableRow	rows[MAX_ROWS];
	int			nrows;

	/* at the start of the commit */
	TableRow	old[IDS];
	bool		existed[IDS];
	bool		left[IDS];		/* that row was deleted or updated since */

	/* place of the last event */
	int			last_seq[IDS];
	bool		last_reached[IDS];

	ModelChange out[MAX_OUT];
	int			nout;
} Table;

static Table table;

static void
model_begin_commit(void)
{
	int			i;

	memset(table.existed, 0, sizeof(table.existed));
	memset(table.left, 0, sizeof(table.left));
	memset(table.last_seq, 0, sizeof(table.last_seq));
	for (i = 0; i < table.nrows; i++)
	{
		table.rows[i].written = false;
		table.old[table.rows[i].id] = table.rows[i];
		table.existed[table.rows[i].id] = true;
	}
}

static void
model_delete(int i, int seq)
{
	int			id = table.rows[i].id;

	if (!table.rows[i].written)
		table.left[id] = true;
	table.last_seq[id] = seq;
	table.last_reached[id] = false;
	table.rows[i] = table.rows[--table.nrows];
}

static void
model_insert(int id, int image, int seq)
{
	TableRow   *row = &table.rows[table.nrows++];

	row->id = id;
	row->image = image;
	row->written = true;
	table.last_seq[id] = seq;
	table.last_reached[id] = true;
}

static int
model_count(int id)
{
	int			n = 0;
	int			i;

	for (i = 0; i < table.nrows; i++)
		n += table.rows[i].id == id;
	return n;
}

/* Would two equal rows stand beside each other?  Then it is open which of them leaves. */
static bool
model_has(int id, int image)
{
	int			i;

	for (i = 0; i < table.nrows; i++)
		if (table.rows[i].id == id && table.rows[i].image == image)
			return true;
	return false;
}

static void
model_out(ScdcChangeType type, int version, int id, int image, bool post)
{
	ModelChange *out = &table.out[table.nout++];

	out->type = type;
	out->version = version;
	out->seq = table.last_seq[id];
	out->rank = 2 * table.last_reached[id] + post;
	out->id = id;
	out->image = image;
}

static void
model_end_commit(int version, ScdcDeduplication mode, bool compute_updates)
{
	int			i;
	int			id;

	for (id = 0; id < IDS; id++)
	{
		TableRow   *now = NULL;
		bool		before = table.existed[id] && table.left[id];

		for (i = 0; i < table.nrows; i++)
			if (table.rows[i].id == id && table.rows[i].written)
				now = &table.rows[i];
		if (before && now != NULL)
		{
			if (mode != NONE && now->image == table.old[id].image)
				continue;
			model_out(compute_updates ? SCDC_CHANGE_UPDATE_PREIMAGE : SCDC_CHANGE_DELETE,
					  version, id, table.old[id].image, false);
			model_out(compute_updates ? SCDC_CHANGE_UPDATE_POSTIMAGE : SCDC_CHANGE_INSERT,
					  version, id, now->image, true);
		}
		else if (before)
			model_out(SCDC_CHANGE_DELETE, version, id, table.old[id].image, false);
		else if (now != NULL)
			model_out(SCDC_CHANGE_INSERT, version, id, now->image, true);
	}
}

static int
compare_changes(const void *a, const void *b)
{
	const ModelChange *x = a;
	const ModelChange *y = b;

	if (x->version != y->version)
		return x->version < y->version ? -1 : 1;
	if (x->seq != y->seq)
		return x->seq < y->seq ? -1 : 1;
	return x->rank - y->rank;
}

/* Section 8. */
static void
model_net_changes(bool compute_updates)
{
	ModelChange kept[MAX_OUT];
	int			nkept = 0;
	int			id;
	int			i;

	for (id = 0; id < IDS; id++)
	{
		ModelChange *first = NULL;
		ModelChange *last = NULL;
		bool		before;
		bool		after;

		for (i = 0; i < table.nout; i++)
		{
			ModelChange *out = &table.out[i];
			bool		delete_like = out->type == SCDC_CHANGE_DELETE || out->type == SCDC_CHANGE_UPDATE_PREIMAGE;

			if (out->id != id)
				continue;
			if (first == NULL || out->version < first->version ||
				(out->version == first->version && delete_like))
				first = out;
			if (last == NULL || out->version > last->version ||
				(out->version == last->version && !delete_like))
				last = out;
		}
		if (first == NULL)
			continue;
		before = first->type == SCDC_CHANGE_DELETE || first->type == SCDC_CHANGE_UPDATE_PREIMAGE;
		after = last->type == SCDC_CHANGE_INSERT || last->type == SCDC_CHANGE_UPDATE_POSTIMAGE;
		if (before)
		{
			kept[nkept] = *first;
			kept[nkept++].type = after && compute_updates ? SCDC_CHANGE_UPDATE_PREIMAGE : SCDC_CHANGE_DELETE;
		}
		if (after)
		{
			kept[nkept] = *last;
			kept[nkept++].type = before && compute_updates ? SCDC_CHANGE_UPDATE_POSTIMAGE : SCDC_CHANGE_INSERT;
		}
	}
	memcpy(table.out, kept, nkept * sizeof(ModelChange));
	table.nout = nkept;
}

/* The log fed so far, for a failure's report. */
static char log_text[10000];

static void
log_word(const char *format, ...)
{
	size_t		len = strlen(log_text);
	va_list		args;

	va_start(args, format);
	vsnprintf(log_text + len, sizeof(log_text) - len, format, args);
	va_end(args);
}

/* One possible event, to the collapse and to the model. */
static bool
random_event(Run *run, ScdcCollapse *c, int version, int seq, bool deferred)
{
	int			id = random_below(IDS);
	int			image = 'a' + random_below(3);
	int			i = table.nrows > 0 ? (int) random_below(table.nrows) : -1;
	Row		   *old_row = NULL;
	Row		   *brought = NULL;
	int			action = random_below(4);

	if (action != 0 && i < 0)
		return false;
	if (action >= 2 && random_below(3))
		id = table.rows[i].id;	/* most updates keep the key */
	if (action != 1)
	{
		bool		moves = action == 0 || table.rows[i].id != id;

		if (moves && (deferred ? model_has(id, image) : model_count(id) > 0))
			return false;
		if (!moves && model_count(id) > 1)
			return false;
	}

	if (action != 0)
	{
		old_row = new_row(run, table.rows[i].id, table.rows[i].image);
		log_word(action == 1 ? "-%d%c " : "%d%c", old_row->id, old_row->image);
	}
	if (action != 1)
	{
		brought = new_row(run, id, image);
		log_word(action == 0 ? "+%d%c " : ">%d%c ", id, image);
	}
	if (old_row != NULL)
		model_delete(i, seq);
	if (brought != NULL)
		model_insert(id, image, seq);
	event(c, version, seq, old_row, brought);
	return true;
}

/* A commit must leave each key with one row. */
static void
resolve_duplicates(Run *run, ScdcCollapse *c, int version, int *seq)
{
	int			i = 0;

	while (i < table.nrows)
	{
		if (model_count(table.rows[i].id) > 1)
		{
			Row		   *row = new_row(run, table.rows[i].id, table.rows[i].image);

			log_word("-%d%c ", row->id, row->image);
			model_delete(i, ++*seq);
			event(c, version, *seq, row, NULL);
			i = 0;
		}
		else
			i++;
	}
}

static bool
random_log(void)
{
	static const struct
	{
		ScdcDeduplication mode;
		bool		compute_updates;
	}			combinations[] = {{NONE, false}, {DROP, false}, {DROP, true}, {NET, false}, {NET, true}};
	int			n = random_below(lengthof(combinations));
	ScdcDeduplication mode = combinations[n].mode;
	bool		compute_updates = combinations[n].compute_updates;
	bool		deferred = random_below(2);
	int			commits = 1 + random_below(MAX_COMMITS);
	int			version;
	Run			run;
	Run			expected;
	ScdcCollapse *c;
	bool		good;
	int			i;

	memset(&table, 0, sizeof(table));
	log_text[0] = '\0';
	run_begin(&run);
	run_begin(&expected);
	run.weak_hash = random_below(2);
	run.padding = random_below(2) ? 1 + random_below(200) : 0;
	run.memory_limit = limits[random_below(3)];
	c = create(&run, true, mode, compute_updates);

	/* some rows are there before the log begins */
	for (i = 0; i < IDS; i++)
		if (random_below(2))
			model_insert(i, 'a' + random_below(3), 0);

	for (version = 1; version <= commits; version++)
	{
		int			events = random_below(12);
		int			seq = 0;

		model_begin_commit();
		while (events-- > 0)
			if (table.nrows < MAX_ROWS && random_event(&run, c, version, seq + 1, deferred))
				seq++;
		resolve_duplicates(&run, c, version, &seq);
		scdc_collapse_end_commit(c);
		model_end_commit(version, mode, compute_updates);
		log_word("| ");
	}
	scdc_collapse_finish(c);

	if (mode == NET)
		model_net_changes(compute_updates);
	qsort(table.out, table.nout, sizeof(ModelChange), compare_changes);
	for (i = 0; i < table.nout; i++)
	{
		ModelChange *out = &table.out[i];
		char		word[100];

		print_change(word, sizeof(word), out->type, out->version, out->seq, out->id, out->image);
		append_result(&expected, word);
	}

	good = strcmp(run.result, expected.result) == 0;
	if (!good)
	{
		diag("mode %d, updates %d, log: %s", mode, compute_updates, log_text);
		diag("got      %s", run.result);
		diag("expected %s", expected.result);
	}
	run_end(&expected);
	if (!run_end(&run))
	{
		diag("a row was damaged, or came out of order, or a file was left open: %s", log_text);
		good = false;
	}
	return good;
}

static void
test_random_logs(void)
{
	int			failures = 0;
	int			i;

	for (i = 0; i < RANDOM_LOGS && failures < 5; i++)
		if (!random_log())
			failures++;
	is_int(failures, 0, "random logs agree with the model");
}

/*
 * Logs that no table can have written.  What must still hold: nothing is
 * lost (inserts minus deletes of each image stay the same), the order is
 * right.
 */
static bool
random_broken_log(void)
{
	Run			run;
	ScdcCollapse *c;
	ScdcDeduplication mode = random_below(3);
	bool		compute_updates = mode != NONE && random_below(2);
	int			balance[3][3] = {{0}};
	int			commits = 1 + random_below(4);
	int			version;
	char	   *word;
	bool		good = true;
	int			i;

	run_begin(&run);
	run.weak_hash = random_below(2);
	run.padding = random_below(2) ? 1 + random_below(200) : 0;
	run.memory_limit = limits[random_below(3)];
	c = create(&run, true, mode, compute_updates);
	for (version = 1; version <= commits; version++)
	{
		int			events = random_below(30);
		int			seq;

		for (seq = 1; seq <= events; seq++)
		{
			int			action = random_below(3);
			Row		   *old_row = action != 0 ? new_row(&run, random_below(3), 'a' + random_below(3)) : NULL;
			Row		   *brought = action != 1 ? new_row(&run, random_below(3), 'a' + random_below(3)) : NULL;

			if (old_row != NULL)
				balance[old_row->id][old_row->image - 'a']--;
			if (brought != NULL)
				balance[brought->id][brought->image - 'a']++;
			event(c, version, seq, old_row, brought);
		}
		scdc_collapse_end_commit(c);
	}
	scdc_collapse_finish(c);

	if (mode != NET)
	{
		for (word = strtok(run.result, " "); word != NULL; word = strtok(NULL, " "))
		{
			char		sign;
			int			id;
			char		image;

			if (sscanf(word, "%*d.%*d:%c%d%c", &sign, &id, &image) != 3)
				good = false;
			else
				balance[id][image - 'a'] += sign == '-' || sign == '<' ? 1 : -1;
		}
		for (i = 0; i < 9; i++)
			if (balance[i / 3][i % 3] != 0)
				good = false;
	}
	return run_end(&run) && good;
}

static void
test_random_broken_logs(void)
{
	int			failures = 0;
	int			i;

	for (i = 0; i < RANDOM_LOGS; i++)
		if (!random_broken_log())
			failures++;
	is_int(failures, 0, "random logs that break the contract lose nothing");
}

/* ---- labelled rows ---- */

/* A row of a log: version.seq:label, id, image, and the row version if there is one. */
typedef struct Labelled
{
	ScdcChangeType type;
	int			version;
	int			seq;
	int			id;
	int			image;
	int			row_version;
	bool		dropped;
} Labelled;

#define MAX_LABELLED	400

typedef struct LabelledLog
{
	Labelled	rows[MAX_LABELLED];
	int			nrows;
} LabelledLog;

static void
run_labelled(Run *run, const LabelledLog *log, ScdcPasses passes, bool compute_updates)
{
	ScdcCollapse *volatile c = create_with(run, true, passes, compute_updates);
	Row		   *volatile row = NULL;
	int			i;

	if (setjmp(run->jump) != 0)
	{
		free(row);
		close_all_files(run);
		pfree_all();
		return;
	}
	for (i = 0; i < log->nrows; i++)
	{
		const Labelled *l = &log->rows[i];

		row = new_labelled_row(run, l->id, l->image, l->row_version, l->type);

		if (i > 0 && l->version != log->rows[i - 1].version)
			scdc_collapse_end_commit(c);
		scdc_collapse_row(c, l->type, l->version, l->version * 1000, l->seq, row);
		spoil_row(row);
		row = NULL;
	}
	if (log->nrows > 0)
		scdc_collapse_end_commit(c);
	scdc_collapse_finish(c);
}

static void
check_labelled(const char *name, const char *flags, ScdcDeduplication mode, bool compute_updates,
			   const char *text, const char *expected)
{
	static const char *const modes[] = {"none", "dropCarryovers", "netChanges"};
	ScdcSourceFlags f = {strchr(flags, 'C') != NULL, strchr(flags, 'I') != NULL, strchr(flags, 'U') != NULL};
	ScdcPasses	passes = scdc_passes(f, mode, compute_updates);
	LabelledLog log;
	char	   *copy = strdup(text);
	char	   *word;
	int			version = 1;
	int			seq = 0;
	size_t		i;

	log.nrows = 0;
	for (word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
	{
		Labelled   *l = &log.rows[log.nrows];
		char		label;
		char		image;

		if (strcmp(word, "|") == 0)
		{
			version++;
			seq = 0;
			continue;
		}
		memset(l, 0, sizeof(*l));
		sscanf(word, "%c%d%c%d", &label, &l->id, &image, &l->row_version);
		l->image = image;
		l->type = (ScdcChangeType) (strchr("-+<>?", label) - "-+<>?");
		l->version = version;
		l->seq = ++seq;
		log.nrows++;
	}
	free(copy);

	for (i = 0; i < lengthof(limits); i++)
	{
		Run			run;
		char		title[300];
		char	   *result;

		snprintf(title, sizeof(title), "labelled, flags %s: %s (%s%s, limit %zu)", flags, name, modes[mode],
				 compute_updates ? ", updates" : "", (size_t) limits[i]);
		run_begin(&run);
		run.memory_limit = limits[i];
		run_labelled(&run, &log, passes, compute_updates);
		result = strdup(!run.failed ? run.result :
						run.error == SCDC_ERROR_MULTIPLE_CHANGES ? "MULTIPLE_CHANGES" : "CHANGE_TYPE");
		if (!run_end(&run))
			ok(false, title);
		else
			is_str(result, expected, title);
		free(result);
	}
}

static void
test_labelled(void)
{
	/* 7.2 */
	check_labelled("carry-over", "C", DROP, false, "-1a1 +1b1", "");
	check_labelled("carry-over, shown", "C", NONE, false, "-1a1 +1b1", "1.1:-1a 1.2:+1b");
	check_labelled("not declared", "IU", DROP, false, "-1a1 +1b1", "1.1:-1a 1.2:+1b");
	check_labelled("the row version moves", "C", DROP, false, "-1a1 +1a2", "1.1:-1a 1.2:+1a");
	check_labelled("no row version on one side", "C", DROP, false, "-1a1 +1a", "1.1:-1a 1.2:+1a");
	check_labelled("no row version at all", "C", DROP, false, "-1a +1a", "1.1:-1a 1.2:+1a");
	check_labelled("one row more", "C", DROP, false, "-1a1 -1a1 +1a1", "1.1:-1a 1.2:-1a 1.3:+1a");
	check_labelled("different commits", "C", DROP, false, "-1a1 | +1a1", "1.1:-1a 2.1:+1a");
	check_labelled("update rows only", "C", DROP, false, "<1a1 >1b1", "1.1:<1a 1.2:>1b");
	check_labelled("an update row with a row version", "C", DROP, false, "-1a1 +1a1 <1a1", "1.1:-1a 1.2:+1a 1.3:<1a");
	check_labelled("an update row without one", "C", DROP, false, "-1a1 +1a1 <1a", "");
	check_labelled("an update row with the second one", "C", DROP, false, "-1a1 +1a <1a1", "");
	check_labelled("an unknown label in the group", "C", DROP, false, "-1a1 ?1a +1a1", "");
	check_labelled("other identities", "C", DROP, false, "-1a1 -2a1 +2b1 +1b2", "1.1:-1a 1.4:+1b");

	/* 7.3 */
	check_labelled("update", "U", DROP, true, "-1a +1b", "1.1:<1a 1.2:>1b");
	check_labelled("update, the other way round", "U", DROP, true, "+1b -1a", "1.1:>1b 1.2:<1a");
	check_labelled("update, mode none", "U", NONE, true, "-1a1 +1b1", "1.1:<1a 1.2:>1b");
	check_labelled("not declared", "CI", DROP, true, "-1a1 +1b2", "1.1:-1a 1.2:+1b");
	check_labelled("carry-over before update", "CU", DROP, true, "-1a1 +1b1 -2a1 +2b2", "1.3:<2a 1.4:>2b");
	check_labelled("every other row", "U", DROP, true, "-1a +1b >1c ?1d <1e", "1.1:<1a 1.2:>1b 1.3:<1c 1.4:<1d 1.5:<1e");
	check_labelled("alone", "U", DROP, true, "-1a +2b | +1c", "1.1:-1a 1.2:+2b 2.1:+1c");
	check_labelled("two inserts", "U", DROP, true, "+1a +1b", "MULTIPLE_CHANGES");
	check_labelled("two deletes", "IU", NET, true, "-1a +1b -1b", "MULTIPLE_CHANGES");
	check_labelled("two of each", "IU", NET, false, "-1a +1b -1b +1c", "1.1:-1a 1.4:+1c");
	check_labelled("two inserts, nobody asks", "U", DROP, false, "+1a +1b", "1.1:+1a 1.2:+1b");
	check_labelled("first error first", "CIU", NET, true, "?3a +1a +1b", "MULTIPLE_CHANGES");

	/* 8 */
	check_labelled("native update", "I", NET, false, "<1a >1b", "1.1:-1a 1.2:+1b");
	check_labelled("native update", "I", NET, true, "<1a >1b", "1.1:<1a 1.2:>1b");
	check_labelled("no collapse without the flag", "CU", NET, false, "+1a1 | -1a1", "1.1:+1a 2.1:-1a");
	check_labelled("insert..delete", "I", NET, true, "+1a | -1a", "");
	check_labelled("deletes first", "I", NET, false, "+1a -1b", "1.1:+1a 1.2:-1b");
	check_labelled("deletes first, alone", "I", NET, false, "+1a | +1b -1a | -1b", "");
	check_labelled("insert and delete in the first commit", "I", NET, true, "+1a -1a | -1b", "1.2:-1a");
	check_labelled("unknown label", "I", NET, false, "+1a | ?1b | +2a", "CHANGE_TYPE");
	check_labelled("unknown label, nobody asks", "U", NET, false, "+1a ?1b", "1.1:+1a 1.2:?1b");
	check_labelled("unknown label, dropped", "CI", NET, false, "-1a1 ?1a +1a1 +2a", "1.4:+2a");
	check_labelled("nothing declared", "", NET, true, "+1a -1a ?1b >1c", "1.1:+1a 1.2:-1a 1.3:?1b 1.4:>1c");
}

/* The passes read aloud, over rows in arrays. */
static const char *
model_labelled(LabelledLog *log, ScdcPasses passes, bool compute_updates)
{
	int			i;
	int			j;
	bool		multiple[MAX_COMMITS + 2] = {false};

	for (i = 0; i < log->nrows; i++)
	{
		Labelled   *row = &log->rows[i];
		int			nd = 0,
					ni = 0,
					nv = 0,
					vmin = 1000,
					vmax = -1;

		for (j = 0; j < i; j++)
			if (log->rows[j].version == row->version && log->rows[j].id == row->id)
				break;
		if (j < i)
			continue;			/* the group was seen */
		for (j = i; j < log->nrows; j++)
		{
			Labelled   *other = &log->rows[j];

			if (other->version != row->version || other->id != row->id)
				continue;
			nd += other->type == SCDC_CHANGE_DELETE;
			ni += other->type == SCDC_CHANGE_INSERT;
			if (other->row_version != 0)
			{
				nv++;
				vmin = Min(vmin, other->row_version);
				vmax = Max(vmax, other->row_version);
			}
		}
		for (j = log->nrows - 1; j >= i; j--)
		{
			Labelled   *other = &log->rows[j];

			if (other->version != row->version || other->id != row->id)
				continue;
			if (passes.drop_carryovers && nd == 1 && ni == 1 && nv == 2 && vmin == vmax)
				other->dropped = true;
			else if (passes.detect_updates && (nd > 1 || ni > 1))
				multiple[row->version] = true;
			else if (passes.detect_updates && nd == 1 && ni == 1)
				other->type = other->type == SCDC_CHANGE_INSERT ? SCDC_CHANGE_UPDATE_POSTIMAGE : SCDC_CHANGE_UPDATE_PREIMAGE;
		}
	}

	/* the first commit with an error has it; the errors of groups come before those of labels */
	for (j = 0; j < MAX_COMMITS + 2; j++)
	{
		if (multiple[j])
			return "MULTIPLE_CHANGES";
		for (i = 0; passes.net_changes && i < log->nrows; i++)
			if (log->rows[i].version == j && !log->rows[i].dropped && log->rows[i].type == SCDC_CHANGE_OTHER)
				return "CHANGE_TYPE";
	}

	for (i = 0; passes.net_changes && i < log->nrows; i++)
	{
		Labelled   *first = NULL;
		Labelled   *last = NULL;
		bool		before;
		bool		after;

		for (j = 0; j < i; j++)
			if (log->rows[j].id == log->rows[i].id)
				break;
		if (j < i)
			continue;
		for (j = 0; j < log->nrows; j++)
		{
			Labelled   *row = &log->rows[j];
			bool		delete_like = row->type == SCDC_CHANGE_DELETE || row->type == SCDC_CHANGE_UPDATE_PREIMAGE;

			if (row->id != log->rows[i].id || row->dropped)
				continue;
			if (first == NULL || (first->version == row->version && delete_like &&
								  (first->type == SCDC_CHANGE_INSERT || first->type == SCDC_CHANGE_UPDATE_POSTIMAGE)))
				first = row;
			if (last == NULL || last->version < row->version || !delete_like ||
				last->type == SCDC_CHANGE_DELETE || last->type == SCDC_CHANGE_UPDATE_PREIMAGE)
				last = row;
		}
		if (first == NULL)
			continue;
		before = first->type == SCDC_CHANGE_DELETE || first->type == SCDC_CHANGE_UPDATE_PREIMAGE;
		after = last->type == SCDC_CHANGE_INSERT || last->type == SCDC_CHANGE_UPDATE_POSTIMAGE;
		for (j = 0; j < log->nrows; j++)
			if (log->rows[j].id == log->rows[i].id)
				log->rows[j].dropped = true;
		if (before)
		{
			first->dropped = false;
			first->type = after && compute_updates ? SCDC_CHANGE_UPDATE_PREIMAGE : SCDC_CHANGE_DELETE;
		}
		if (after)
		{
			last->dropped = false;
			last->type = before && compute_updates ? SCDC_CHANGE_UPDATE_POSTIMAGE : SCDC_CHANGE_INSERT;
		}
	}
	return NULL;
}

static bool
random_labelled_log(void)
{
	ScdcSourceFlags flags = {random_below(2), random_below(2), random_below(2)};
	ScdcDeduplication mode = random_below(3);
	bool		compute_updates = random_below(2);
	ScdcPasses	passes = scdc_passes(flags, mode, compute_updates);
	bool		lawful = random_below(2);	/* at most one change of a row in a commit, known labels only */
	int			ids = 1 + random_below(12);
	int			commits = 1 + random_below(MAX_COMMITS);
	LabelledLog log;
	LabelledLog model;
	const char *failure;
	Run			run;
	Run			expected;
	bool		good;
	int			version;
	int			i;

	log.nrows = 0;
	for (version = 1; version <= commits; version++)
	{
		int			n = random_below(20);
		int			used[12][2] = {{0}};
		int			seq = 0;

		for (i = 0; i < n; i++)
		{
			Labelled   *l = &log.rows[log.nrows];

			memset(l, 0, sizeof(*l));
			l->type = random_below(lawful ? 2 : random_below(4) ? 4 : 5);
			l->version = version;
			l->id = random_below(ids);
			l->image = 'a' + random_below(5);
			l->row_version = random_below(3);
			if (lawful && used[l->id][l->type]++ > 0)
				continue;
			l->seq = ++seq;
			log.nrows++;
		}
	}

	model = log;
	failure = model_labelled(&model, passes, compute_updates);
	run_begin(&run);
	run_begin(&expected);
	run.weak_hash = random_below(2);
	run.padding = random_below(2) ? 1 + random_below(200) : 0;
	run.memory_limit = limits[random_below(lengthof(limits))];
	run_labelled(&run, &log, passes, compute_updates);
	for (i = 0; i < model.nrows && failure == NULL; i++)
	{
		Labelled   *l = &model.rows[i];
		char		word[100];

		if (l->dropped)
			continue;
		print_change(word, sizeof(word), l->type, l->version, l->seq, l->id, l->image);
		append_result(&expected, word);
	}
	if (failure != NULL)
		good = run.failed && strcmp(failure, run.error == SCDC_ERROR_MULTIPLE_CHANGES ? "MULTIPLE_CHANGES" : "CHANGE_TYPE") == 0;
	else
		good = !run.failed && strcmp(run.result, expected.result) == 0;
	if (!good)
	{
		diag("flags %d%d%d, mode %d, updates %d", flags.carryovers, flags.intermediate, flags.split_updates, mode, compute_updates);
		for (i = 0; i < log.nrows; i++)
			diag("%d.%d:%c%d%c%d", log.rows[i].version, log.rows[i].seq, "-+<>?"[log.rows[i].type],
				 log.rows[i].id, log.rows[i].image, log.rows[i].row_version);
		diag("got      %s", run.failed ? "error" : run.result);
		diag("expected %s", failure != NULL ? failure : expected.result);
	}
	run_end(&expected);
	return run_end(&run) && good;
}

static void
test_random_labelled_logs(void)
{
	int			failures = 0;
	int			i;

	for (i = 0; i < RANDOM_LOGS && failures < 5; i++)
		if (!random_labelled_log())
			failures++;
	is_int(failures, 0, "random labelled logs agree with the model, all flags and options");
}

/* ---- the decisions by themselves ---- */

static void
test_decisions(void)
{
	int			i;
	bool		good = true;

	for (i = 0; i < 8 * 3 * 2; i++)
	{
		ScdcSourceFlags f = {i & 1, i & 2, i & 4};
		ScdcDeduplication mode = i / 8 % 3;
		bool		updates = i / 24;
		ScdcPasses	p = scdc_passes(f, mode, updates);

		good = good && p.drop_carryovers == (mode != NONE && f.carryovers);
		good = good && p.detect_updates == (updates && f.split_updates);
		good = good && p.net_changes == (mode == NET && f.intermediate);
		good = good && scdc_passes_conflict(f, mode, updates) ==
			(mode == NONE && updates && f.carryovers && f.split_updates);
	}
	ok(good, "which pass runs, and which options conflict");

	good = true;
	for (i = 0; i < 4 * 4 * 2; i++)
	{
		ScdcChangeType first = i % 4;
		ScdcChangeType last = i / 4 % 4;
		ScdcNetResult r = scdc_net_result(first, last, i / 16);
		bool		before = first == SCDC_CHANGE_DELETE || first == SCDC_CHANGE_UPDATE_PREIMAGE;
		bool		after = last == SCDC_CHANGE_INSERT || last == SCDC_CHANGE_UPDATE_POSTIMAGE;

		good = good && r.before == before && r.after == after;
		good = good && (r.before_type == SCDC_CHANGE_UPDATE_PREIMAGE) == (before && after && i / 16);
		good = good && (r.after_type == SCDC_CHANGE_UPDATE_POSTIMAGE) == (before && after && i / 16);
	}
	ok(good, "what the first and the last event come to");
}

/* ---- a range in parts ---- */

typedef struct Parts
{
	Run		   *run;
	ScdcCollapse *whole;		/* what the parts' net changes are fed into */
	int64		version;
	int			n;
} Parts;

static Parts parts;

static void
emit_to_whole(const ScdcChangeRow *change, void *arg)
{
	const Row  *row = live(arg, change->row);
	Row		   *copy = new_labelled_row(parts.run, row->id, row->image, 0, 0);

	if (change->version != parts.version && parts.n > 0)
		scdc_collapse_end_commit(parts.whole);
	parts.version = change->version;
	parts.n++;
	scdc_collapse_row(parts.whole, change->type, change->version, change->timestamp, change->seq, copy);
	spoil_row(copy);
}

static int
compare_words(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

/* Words in alphabetical order: rows of one place may come in any order from the parts. */
static char *
sorted_words(const char *text)
{
	char	   *copy = strdup(text);
	char	   *result = calloc(1, strlen(text) + 2);
	char	   *words[1000];
	int			n = 0;
	int			i;

	for (char *word = strtok(copy, " "); word != NULL && n < 1000; word = strtok(NULL, " "))
		words[n++] = word;
	qsort(words, n, sizeof(char *), compare_words);
	for (i = 0; i < n; i++)
	{
		strcat(result, words[i]);
		strcat(result, " ");
	}
	free(copy);
	return result;
}

static bool
random_split_log(void)
{
	ScdcPasses	net_only = {.net_changes = true};
	ScdcSourceFlags all_flags = {true, true, true};
	bool		compute_updates = random_below(2);
	int			commits = 1 + random_below(MAX_COMMITS);
	int			split = random_below(commits + 1);
	Run			run;
	Run			composed;
	ScdcCollapse *c;
	ScdcCollapse *part;
	bool		good;
	int			version;
	int			i;
	char	   *one;
	char	   *other;

	memset(&table, 0, sizeof(table));
	log_text[0] = '\0';
	run_begin(&run);
	run_begin(&composed);
	run.memory_limit = limits[random_below(3)];
	composed.memory_limit = limits[random_below(3)];
	c = create(&run, true, NET, compute_updates);
	parts.run = &composed;
	parts.n = 0;
	parts.whole = create_with(&composed, true, net_only, compute_updates);

	for (i = 0; i < IDS; i++)
		if (random_below(2))
			model_insert(i, 'a' + random_below(3), 0);

	/* the log of events goes to the whole, and in a copy to its part */
	part = NULL;
	for (version = 1; version <= commits; version++)
	{
		int			events = random_below(12);
		int			seq = 0;

		if (part == NULL || version == split + 1)
		{
			if (part != NULL)
				scdc_collapse_finish(part);
			part = create_emitting(&composed, emit_to_whole, true, scdc_passes(all_flags, NET, false), false);
		}
		second_collapse = part;
		model_begin_commit();
		while (events-- > 0)
			if (table.nrows < MAX_ROWS && random_event(&run, c, version, seq + 1, false))
				seq++;
		second_collapse = NULL;
		scdc_collapse_end_commit(c);
		scdc_collapse_end_commit(part);
		log_word("| ");
	}
	scdc_collapse_finish(c);
	scdc_collapse_finish(part);
	scdc_collapse_finish(parts.whole);

	one = sorted_words(run.result);
	other = sorted_words(composed.result);
	good = strcmp(one, other) == 0;
	if (!good)
	{
		diag("split after %d: %s", split, log_text);
		diag("whole    %s", one);
		diag("composed %s", other);
	}
	free(one);
	free(other);
	good = good && !run.complaint && !composed.complaint;
	run_end(&run);
	run_end(&composed);
	return good;
}

static void
test_random_split_logs(void)
{
	int			failures = 0;
	int			i;

	for (i = 0; i < RANDOM_LOGS && failures < 5; i++)
		if (!random_split_log())
			failures++;
	is_int(failures, 0, "net changes of the parts of a range compose to those of the whole");
}

/* ---- memory ---- */

#define LIMIT			((Size) 256 * 1024)
#define MANY			200000

/* The limit, and what one collapse may have beyond it: chunks and slots that are being replaced, arrays that double. */
#define MEMORY_BOUND	(LIMIT * 5 / 4 + 128 * 1024)

static void
check_memory(Run *run, int expected, const char *name)
{
	Size		peak = memory_peak;
	int			files = run->files_used;
	char		title[200];

	snprintf(title, sizeof(title), "%s: rows", name);
	is_int(run->emitted, expected, title);
	snprintf(title, sizeof(title), "%s: the limit holds", name);
	if (!ok(peak <= MEMORY_BOUND && files > 0, title))
		diag("peak %zu, limit %zu, %d files", (size_t) peak, (size_t) LIMIT, files);
	snprintf(title, sizeof(title), "%s: order, files closed, memory given back", name);
	ok(run_end(run), title);
}

static void
test_memory(void)
{
	ScdcSourceFlags flags = {true, true, true};
	ScdcDeduplication mode;
	Run			run;
	ScdcCollapse *c;
	int			i;

	for (mode = DROP; mode <= NET; mode++)
	{
		run_begin(&run);
		run.quiet = true;
		run.padding = 100;
		run.memory_limit = LIMIT;
		c = create(&run, true, mode, true);
		for (i = 0; i < MANY; i++)
			event(c, 1, i, new_row(&run, i, 'a'), new_row(&run, i, 'b'));
		for (i = 0; i < MANY; i++)
			event(c, 1, MANY + i, new_row(&run, i, 'b'), new_row(&run, i, 'c'));
		scdc_collapse_finish(c);
		check_memory(&run, 2 * MANY, "one commit of events, many identities");

		run_begin(&run);
		run.quiet = true;
		run.padding = 100;
		run.memory_limit = LIMIT;
		c = create(&run, true, mode, true);
		for (i = 0; i < 2 * MANY; i++)
		{
			event(c, i / 10 + 1, i % 10, new_row(&run, i % MANY, i / MANY), new_row(&run, i % MANY, i / MANY + 1));
			if (i % 10 == 9)
				scdc_collapse_end_commit(c);
		}
		scdc_collapse_finish(c);
		if (mode == NET)
			check_memory(&run, 2 * MANY, "a range of events, many identities");
		else
			run_end(&run);

		/* labelled rows: many groups, and one large one */
		run_begin(&run);
		run.quiet = true;
		run.memory_limit = LIMIT;
		c = create_with(&run, true, scdc_passes(flags, mode, true), true);
		for (i = 0; i < MANY; i++)
		{
			Row		   *row = new_labelled_row(&run, i / 2, i % 2, i, 0);

			scdc_collapse_row(c, i % 2, 1, 1000, i, row);
			spoil_row(row);
		}
		scdc_collapse_finish(c);
		check_memory(&run, MANY, "one commit of labelled rows, many identities");

		run_begin(&run);
		run.quiet = true;
		run.memory_limit = LIMIT;
		c = create_with(&run, true, scdc_passes(flags, mode, true), true);
		for (i = 0; i < MANY; i++)
		{
			Row		   *row = new_labelled_row(&run, 1, i, i, 0);

			scdc_collapse_row(c, 2 + i % 2, 1, 1000, i, row);
			spoil_row(row);
		}
		scdc_collapse_finish(c);
		check_memory(&run, mode == NET ? 2 : MANY, "one commit of labelled rows, one identity");
	}
}

int
main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	seed_random((uint64_t) time(NULL));
	test_plain();
	test_netting();
	test_broken_contract();
	test_without_identity();
	test_net_changes();
	test_use();
	test_large();
	test_random_logs();
	test_random_broken_logs();
	test_decisions();
	test_labelled();
	test_random_labelled_logs();
	test_random_split_logs();
	test_memory();
	return done_testing();
}
