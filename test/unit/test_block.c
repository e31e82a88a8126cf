/*-------------------------------------------------------------------------
 *
 * test_block.c
 *	  Unit test of src/log/block.c: round trips, and damage of every sort.
 *
 * Damaged bytes are always handed over in allocations of their exact size, so
 * that a sanitizer sees the first byte read beyond them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <time.h>

#include "port/pg_crc32c.h"

#include "log/block.h"
#include "tap.h"

#define RANDOM_BLOCKS	400
#define DAMAGED_BLOCKS	30000

#define MAX_VERSIONS	40
#define MAX_EVENTS		400

static const char *const method_names[] = {"none", "lz4", "zstd"};

/* What a block is expected to give back. */
typedef struct Model
{
	int			nversions;
	ScdcVersion versions[MAX_VERSIONS];
	int			nevents;
	ScdcEvent	events[MAX_EVENTS];
	int			event_version[MAX_EVENTS];	/* index into versions */
} Model;

static Model model;

/* One for each method, for all tests: a builder has to come back empty. */
static ScdcBlockBuilder *builders[3];

static char *
copy_exact(const char *data, uint32 len)
{
	char	   *copy = malloc(len > 0 ? len : 1);

	if (len > 0)
		memcpy(copy, data, len);
	return copy;
}

/* ---- the model ---- */

static void
model_clear(void)
{
	int			i;

	for (i = 0; i < model.nevents; i++)
	{
		free(unconstify(char *, model.events[i].old_image.data));
		free(unconstify(char *, model.events[i].new_image.data));
	}
	memset(&model, 0, sizeof(model));
}

static ScdcVersion *
model_version(int64 version)
{
	ScdcVersion *v = &model.versions[model.nversions++];

	memset(v, 0, sizeof(*v));
	v->version = version;
	v->timestamp = 700000000000000 + version * 1000;
	v->commit_time = v->timestamp;
	v->commit_lsn = UINT64CONST(0x100000000) + version * 120;
	v->xid = 5000 + version;
	return v;
}

static ScdcBytes
bytes(const char *data, uint32 len)
{
	ScdcBytes	result;

	result.data = copy_exact(data, len);
	result.len = len;
	return result;
}

/* The images are given away; NULL stands for an absent one. */
static void
model_event(ScdcEventKind kind, uint8 flags, const ScdcBytes *old_image, const ScdcBytes *new_image)
{
	ScdcEvent  *e = &model.events[model.nevents];
	ScdcVersion *v = &model.versions[model.nversions - 1];

	e->kind = kind;
	e->flags = flags;
	if (old_image != NULL)
		e->old_image = *old_image;
	if (new_image != NULL)
		e->new_image = *new_image;
	model.event_version[model.nevents++] = model.nversions - 1;
	switch (kind)
	{
		case SCDC_EVENT_INSERT:
			v->inserts++;
			break;
		case SCDC_EVENT_UPDATE:
			v->updates++;
			break;
		case SCDC_EVENT_DELETE:
			v->deletes++;
			break;
		default:
			v->markers++;
	}
}

static void
model_event_text(ScdcEventKind kind, const char *old_text, const char *new_text)
{
	ScdcBytes	old_image;
	ScdcBytes	new_image;

	if (old_text != NULL)
		old_image = bytes(old_text, strlen(old_text));
	if (new_text != NULL)
		new_image = bytes(new_text, strlen(new_text));
	model_event(kind, 0, old_text ? &old_image : NULL, new_text ? &new_image : NULL);
}

static ScdcBytes
random_image(void)
{
	ScdcBytes	result;
	uint32		len;
	char	   *data;
	uint32		i;
	bool		noise = random_below(4) == 0;

	switch (random_below(8))
	{
		case 0:
			len = 0;
			break;
		case 1:
			len = random_below(3000);
			break;
		default:
			len = random_below(100);
	}
	data = malloc(len > 0 ? len : 1);
	for (i = 0; i < len; i++)
		data[i] = noise ? (char) random64() : "abc "[random_below(4)];
	result.data = data;
	result.len = len;
	return result;
}

/* Another image: unrelated, or the old one with a piece replaced, added or cut out. */
static ScdcBytes
random_successor(const ScdcBytes *old_image)
{
	ScdcBytes	result;
	ScdcBytes	piece;
	uint32		prefix;
	uint32		suffix;
	char	   *data;

	if (random_below(6) == 0)
		return random_image();
	prefix = random_below(old_image->len + 1);
	suffix = random_below(old_image->len - prefix + 1);
	piece = random_image();
	if (random_below(3) == 0)
		piece.len = 0;
	result.len = prefix + piece.len + suffix;
	data = malloc(result.len > 0 ? result.len : 1);
	memcpy(data, old_image->data, prefix);
	memcpy(data + prefix, piece.data, piece.len);
	memcpy(data + prefix + piece.len, old_image->data + old_image->len - suffix, suffix);
	result.data = data;
	free(unconstify(char *, piece.data));
	return result;
}

static uint64
random_wide(void)
{
	return random64() >> random_below(64);
}

static void
model_random(void)
{
	int			nversions = random_below(MAX_VERSIONS);
	int64		version = random_below(2) ? (int64) random_wide() >> 8 : 0;
	int			i;

	model_clear();
	for (i = 0; i < nversions; i++)
	{
		ScdcVersion *v;
		int			nevents = random_below(3) ? (int) random_below(5) : (int) random_below(20);

		version += 1 + (random_below(4) ? 0 : random_below(100000));
		v = model_version(version);
		if (random_below(4) == 0)
		{
			v->timestamp = (int64) random_wide();
			v->commit_time = -(int64) random_below(1000000);
			v->commit_lsn = random_wide();
			v->xid = random_wide();
			v->origin = (uint32) random_wide();
		}
		while (nevents-- > 0 && model.nevents < MAX_EVENTS)
		{
			ScdcBytes	old_image = random_image();
			ScdcBytes	new_image = random_successor(&old_image);
			uint8		flags = random_below(10) == 0 ? SCDC_EVENT_INCOMPLETE : 0;
			ScdcEventKind kind = 1 + random_below(5);
			bool		has_old = (kind == SCDC_EVENT_UPDATE || kind == SCDC_EVENT_DELETE) &&
				random_below(10) != 0;
			bool		has_new = kind == SCDC_EVENT_INSERT || kind == SCDC_EVENT_UPDATE;

			if (kind == SCDC_EVENT_GAP && random_below(4) == 0)
				flags |= SCDC_EVENT_ENDS | (random_below(2) ? SCDC_EVENT_STALL : 0);
			model_event(kind, flags, has_old ? &old_image : NULL, has_new ? &new_image : NULL);
			if (kind == SCDC_EVENT_UPDATE && has_old && random_below(4) == 0)
				model.events[model.nevents - 1].old_schema = random_below(2) ? 1 : (int32) (random64() | 1);
			if (!has_old)
				free(unconstify(char *, old_image.data));
			if (!has_new)
				free(unconstify(char *, new_image.data));
		}
	}
}

/* ---- building and comparing ---- */

/* What a part's header says that its payload is long, uncompressed. */
static uint64
raw_len(const char *part)
{
	uint64		len = 0;
	int			i = 2;

	do
		len |= (uint64) (part[i] & 0x7f) << (7 * (i - 2));
	while (part[i++] & 0x80);
	return len;
}

/* Where the payload begins in a part. */
static uint32
payload_start(const char *part)
{
	uint32		pos = 2;

	while (part[pos++] & 0x80)
		;
	return pos + 4;
}

static void
build_with(ScdcBlockBuilder *b, ScdcBlock *block)
{
	int			next = 0;
	int			i;

	for (i = 0; i < model.nversions; i++)
	{
		scdc_block_begin_version(b, &model.versions[i]);
		for (; next < model.nevents && model.event_version[next] == i; next++)
		{
			scdc_block_begin_version(b, &model.versions[i]);
			scdc_block_add(b, &model.events[next]);
		}
	}
	scdc_block_finish(b, block);
}

static void
block_free(ScdcBlock *block)
{
	pfree(block->versions);
	pfree(block->changes);
}

static bool
same_bytes(const ScdcBytes *a, const ScdcBytes *b)
{
	if ((a->data == NULL) != (b->data == NULL) || a->len != b->len)
		return false;
	return a->len == 0 || memcmp(a->data, b->data, a->len) == 0;
}

static bool
same_version(const ScdcVersion *a, const ScdcVersion *b)
{
	return a->version == b->version &&
		a->timestamp == b->timestamp &&
		a->commit_time == b->commit_time &&
		a->commit_lsn == b->commit_lsn &&
		a->xid == b->xid &&
		a->origin == b->origin &&
		a->inserts == b->inserts &&
		a->updates == b->updates &&
		a->deletes == b->deletes &&
		a->markers == b->markers;
}

typedef enum Verdict
{
	SAME,						/* the model came back */
	DIFFERENT,					/* something else came back: what no test may see */
	DAMAGED						/* the reader said so */
} Verdict;

static const char *last_error;

/*
 * The next event, read in both ways from the same place: without the new
 * image of an update, which is then put together, and at once.
 */
static int
next_event(ScdcBlockReader *r, ScdcEvent *e, const ScdcVersion **v, bool *differ)
{
	ScdcBlockPlace place = r->at;
	ScdcEvent	parts;
	const ScdcVersion *parts_v = NULL;
	uint32		shared;
	int			parts_rc = scdc_block_next_incomplete(r, &parts, &shared, &parts_v, &last_error);
	char	   *completed = NULL;
	uint32		completed_len = 0;
	int			rc;

	if (parts_rc == 1)
	{
		bool		incomplete = parts.kind == SCDC_EVENT_UPDATE && parts.old_image.data != NULL;

		if (incomplete ? parts.new_image.data != NULL : shared != 0)
			*differ = true;
		scdc_block_complete(r, &parts);
		completed_len = parts.new_image.len;
		completed = copy_exact(parts.new_image.data, completed_len);
		if (shared > parts.old_image.len || shared > completed_len ||
			(shared > 0 && memcmp(parts.old_image.data, completed, shared) != 0))
			*differ = true;
	}
	r->at = place;
	rc = scdc_block_next(r, e, v, &last_error);
	if (rc != parts_rc)
		*differ = true;
	else if (rc == 1)
	{
		ScdcBytes	new_image = {parts.new_image.data ? completed : NULL, completed_len};

		if (parts.kind != e->kind || parts.flags != e->flags || parts_v != *v ||
			!same_bytes(&parts.old_image, &e->old_image) || !same_bytes(&new_image, &e->new_image))
			*differ = true;
	}
	free(completed);
	return rc;
}

/* Reads a block to its end and compares it with the model. */
static Verdict
read_block(const char *versions, uint32 versions_len, const char *changes, uint32 changes_len)
{
	ScdcBlockReader r;
	ScdcEvent	e;
	const ScdcVersion *v;
	Verdict		verdict = SAME;
	int			n = 0;
	int			i;
	int			rc;
	bool		differ = false;

	last_error = NULL;
	if (!scdc_block_open_versions(&r, versions, versions_len, &last_error))
	{
		scdc_block_close(&r);
		return last_error != NULL ? DAMAGED : DIFFERENT;
	}
	if (r.nversions != model.nversions)
		verdict = DIFFERENT;
	for (i = 0; i < r.nversions && verdict == SAME; i++)
		if (!same_version(&r.versions[i], &model.versions[i]))
			verdict = DIFFERENT;

	if (!scdc_block_open_changes(&r, changes, changes_len, &last_error))
	{
		scdc_block_close(&r);
		return last_error != NULL ? DAMAGED : DIFFERENT;
	}
	while ((rc = next_event(&r, &e, &v, &differ)) == 1)
	{
		if (n >= model.nevents ||
			e.kind != model.events[n].kind ||
			e.flags != model.events[n].flags ||
			e.old_schema != model.events[n].old_schema ||
			!same_bytes(&e.old_image, &model.events[n].old_image) ||
			!same_bytes(&e.new_image, &model.events[n].new_image) ||
			v != &r.versions[model.event_version[n]])
			verdict = DIFFERENT;
		n++;
	}
	if (rc != scdc_block_next(&r, &e, &v, &last_error))
		verdict = DIFFERENT;	/* the end and damage are lasting */
	if (differ)
	{
		scdc_block_close(&r);
		return DIFFERENT;
	}
	scdc_block_close(&r);
	if (rc < 0)
		return last_error != NULL ? DAMAGED : DIFFERENT;
	return n == model.nevents ? verdict : DIFFERENT;
}

static Verdict
read_exact(const char *versions, uint32 versions_len, const char *changes, uint32 changes_len)
{
	char	   *v = copy_exact(versions, versions_len);
	char	   *c = copy_exact(changes, changes_len);
	Verdict		verdict = read_block(v, versions_len, c, changes_len);

	free(v);
	free(c);
	return verdict;
}

/* Builds the model and reads it back, with all methods. */
static void
round_trip(const char *name)
{
	int			method;

	for (method = SCDC_COMPRESS_NONE; method <= SCDC_COMPRESS_ZSTD; method++)
	{
		ScdcBlockBuilder *b = builders[method];
		ScdcBlock	block;
		char		title[200];

		snprintf(title, sizeof(title), "round trip, %s: %s", method_names[method], name);
		build_with(b, &block);
		if (!ok(read_exact(block.versions, block.versions_len,
						   block.changes, block.changes_len) == SAME, title) && last_error)
			diag("%s", last_error);
		block_free(&block);
	}
}

/* ---- round trips ---- */

static void
test_round_trips(void)
{
	ScdcVersion *v;
	ScdcBytes	big;
	ScdcBytes	bigger;
	char	   *data;
	uint32		len = 5 * 1024 * 1024;
	uint32		i;

	model_clear();
	round_trip("no version");

	model_clear();
	model_version(1);
	round_trip("one version without events");

	model_clear();
	model_version(0);
	model_event_text(SCDC_EVENT_INSERT, NULL, "a row");
	model_version(1);
	model_version(5);
	model_event_text(SCDC_EVENT_UPDATE, "a row of the table", "a cow of the table");
	model_event_text(SCDC_EVENT_TRUNCATE, NULL, NULL);
	model_event_text(SCDC_EVENT_GAP, NULL, NULL);
	model_event_text(SCDC_EVENT_DELETE, "a row", NULL);
	model_version(6);
	round_trip("every kind, and versions without events between and behind");

	model_clear();
	model_version(1);
	model_event_text(SCDC_EVENT_INSERT, NULL, "");
	model_event_text(SCDC_EVENT_UPDATE, "", "");
	model_event_text(SCDC_EVENT_UPDATE, "", "x");
	model_event_text(SCDC_EVENT_UPDATE, "x", "");
	model_event_text(SCDC_EVENT_DELETE, "", NULL);
	round_trip("empty images");

	model_clear();
	model_version(1);
	model_event_text(SCDC_EVENT_UPDATE, NULL, "new");
	model_event_text(SCDC_EVENT_UPDATE, NULL, "");
	model_event_text(SCDC_EVENT_DELETE, NULL, NULL);
	model.events[0].flags = SCDC_EVENT_INCOMPLETE;
	model.events[2].flags = SCDC_EVENT_INCOMPLETE;
	round_trip("absent old images, incomplete events");

	model_clear();
	model_version(1);
	model_event_text(SCDC_EVENT_UPDATE, "old", "new");
	model_event_text(SCDC_EVENT_UPDATE, "the same", "the same");
	model_event_text(SCDC_EVENT_UPDATE, "", "");
	model_event_text(SCDC_EVENT_UPDATE, "old", "new");
	model_event_text(SCDC_EVENT_GAP, NULL, NULL);
	model.events[0].old_schema = 1;
	model.events[1].old_schema = -1;
	model.events[2].old_schema = PG_INT32_MIN;
	model.events[3].flags = SCDC_EVENT_INCOMPLETE;
	model.events[3].old_schema = PG_INT32_MAX;
	model.events[4].flags = SCDC_EVENT_ENDS;
	round_trip("old images of another schema, the end of a stream");

	model_clear();
	model_version(1);
	model_event_text(SCDC_EVENT_UPDATE, "aaaa", "aaaaaa");
	model_event_text(SCDC_EVENT_UPDATE, "aaaaaa", "aaaa");
	model_event_text(SCDC_EVENT_UPDATE, "same image", "same image");
	model_event_text(SCDC_EVENT_UPDATE, "0123456789abcdef", "0123456X89abcdef");
	model_event_text(SCDC_EVENT_UPDATE, "0123456789abcdef", "0123456789abcdeX");
	model_event_text(SCDC_EVENT_UPDATE, "0123456789abcdef", "X123456789abcdef");
	model_event_text(SCDC_EVENT_UPDATE, "0123456789abcdef", "0123456789abcdef0123456789abcdef");
	round_trip("differences: overlap of prefix and suffix, word edges");

	/* the largest values, and then differences back to the smallest ones */
	model_clear();
	v = model_version(PG_INT64_MIN);
	v->timestamp = PG_INT64_MAX;
	v->commit_time = PG_INT64_MIN;
	v->commit_lsn = PG_UINT64_MAX;
	v->xid = PG_UINT64_MAX;
	v->origin = PG_UINT32_MAX;
	v = model_version(PG_INT64_MAX);
	v->timestamp = PG_INT64_MIN;
	v->commit_time = PG_INT64_MAX;
	v->commit_lsn = 0;
	v->xid = 0;
	model_event_text(SCDC_EVENT_INSERT, NULL, "x");
	round_trip("largest and smallest numbers, negative differences");

	model_clear();
	model_version(1);
	data = malloc(len);
	for (i = 0; i < len; i++)
		data[i] = (char) (i % 1000 == 0 ? random64() : i);
	big = bytes(data, len);
	data[len / 2] ^= 1;
	bigger = bytes(data, len);
	model_event(SCDC_EVENT_UPDATE, 0, &big, &bigger);
	model_event_text(SCDC_EVENT_INSERT, NULL, "small");
	for (i = 0; i < len; i++)
		data[i] = (char) random64();
	big = bytes(data, len);
	model_event(SCDC_EVENT_INSERT, 0, NULL, &big);
	free(data);
	round_trip("images of 5 MB");
	model_clear();
}

static void
test_random_round_trips(void)
{
	int			failures = 0;
	int			sizes = 0;
	int			i;
	int			method;

	for (i = 0; i < RANDOM_BLOCKS; i++)
	{
		model_random();
		for (method = 0; method < 3; method++)
		{
			ScdcBlock	block;

			if (!scdc_block_is_empty(builders[method]))
				failures++;
			build_with(builders[method], &block);
			if (read_exact(block.versions, block.versions_len,
						   block.changes, block.changes_len) != SAME)
				failures++;
			if (method == SCDC_COMPRESS_NONE &&
				block.raw_size != block.versions_len - payload_start(block.versions) +
				block.changes_len - payload_start(block.changes))
				sizes++;
			block_free(&block);
		}
	}
	is_int(failures, 0, "random blocks make the round trip with all methods");
	is_int(sizes, 0, "raw size is the size before compression");
	model_clear();
}

static void
test_builder(void)
{
	ScdcBlockBuilder *b = builders[SCDC_COMPRESS_ZSTD];
	ScdcVersion v = {0};
	ScdcEvent	e = {0};
	ScdcBlock	block;
	ScdcBlockReader r;
	const char *err;
	uint32		before;
	int			i;

	ok(scdc_block_is_empty(b), "a finished builder is empty");
	v.version = 7;
	v.inserts = 99;
	scdc_block_begin_version(b, &v);
	ok(!scdc_block_is_empty(b), "a builder with a version is not");
	before = scdc_block_raw_size(b);
	e.kind = SCDC_EVENT_INSERT;
	e.new_image.data = "0123456789";
	e.new_image.len = 10;
	for (i = 0; i < 1000; i++)
		scdc_block_add(b, &e);
	is_int(scdc_block_raw_size(b) - before, 12000, "raw size grows by head, length and image");
	scdc_block_finish(b, &block);
	ok(scdc_block_is_empty(b), "finish empties the builder");
	ok(block.changes_len < 1200, "events are compressed");
	ok(scdc_block_open_versions(&r, block.versions, block.versions_len, &err) &&
	   r.nversions == 1 && r.versions[0].inserts == 1000,
	   "the directory alone can be read; counts are the builder's");
	scdc_block_close(&r);
	block_free(&block);

	/* a version that goes on in the next block */
	scdc_block_begin_version(b, &v);
	scdc_block_add(b, &e);
	scdc_block_finish(b, &block);
	ok(scdc_block_open_versions(&r, block.versions, block.versions_len, &err) &&
	   r.nversions == 1 && r.versions[0].version == 7 && r.versions[0].inserts == 1,
	   "a version can go on in the next block with counts of its own");
	scdc_block_close(&r);
	block_free(&block);
}

/* ---- damage ---- */

/* A part that is sealed like the builder's, around any payload. */
typedef struct Part
{
	char		data[512];
	uint32		len;
} Part;

static void
part_begin(Part *part)
{
	part->len = 0;
}

static void
part_byte(Part *part, uint8 byte)
{
	part->data[part->len++] = (char) byte;
}

static void
part_varint(Part *part, uint64 value)
{
	while (value >= 0x80)
	{
		part_byte(part, (uint8) (value | 0x80));
		value >>= 7;
	}
	part_byte(part, (uint8) value);
}

static char *
seal(uint8 format, uint8 method, uint64 claimed_len, const char *raw, uint32 raw_len, uint32 *len)
{
	Part		head;
	pg_crc32c	crc;
	char	   *sealed;
	int			i;

	part_begin(&head);
	part_byte(&head, format);
	part_byte(&head, method);
	part_varint(&head, claimed_len);
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, head.data, head.len);
	COMP_CRC32C(crc, raw, raw_len);
	FIN_CRC32C(crc);
	for (i = 0; i < 4; i++)
		part_byte(&head, (uint8) (crc >> (8 * i)));
	sealed = malloc(head.len + raw_len + 1);
	memcpy(sealed, head.data, head.len);
	memcpy(sealed + head.len, raw, raw_len);
	*len = head.len + raw_len;
	return sealed;
}

/* Reads what was sealed by hand; true if that is reported as damage. */
static bool
is_damage(const Part *directory, const Part *changes)
{
	uint32		versions_len;
	uint32		changes_len;
	char	   *v = seal(SCDC_BLOCK_FORMAT_VERSION, 0, directory->len, directory->data, directory->len, &versions_len);
	char	   *c = seal(SCDC_BLOCK_FORMAT_VERSION, 0, changes->len, changes->data, changes->len, &changes_len);
	Verdict		verdict = read_exact(v, versions_len, c, changes_len);

	free(v);
	free(c);
	return verdict == DAMAGED;
}

/* What follows the version in an entry of the directory. */
static void
rest_of_entry(Part *directory, uint64 inserts, uint64 updates)
{
	part_varint(directory, 0);
	part_varint(directory, 0);
	part_varint(directory, 0);
	part_varint(directory, 0);
	part_varint(directory, 0);
	part_varint(directory, inserts);
	part_varint(directory, updates);
	part_varint(directory, 0);
	part_varint(directory, 0);
}

static void
directory_entry(Part *directory, uint64 version, uint64 inserts, uint64 updates)
{
	part_varint(directory, version << 1);	/* zigzag of a positive number */
	rest_of_entry(directory, inserts, updates);
}

static void
simple_directory(Part *directory, uint64 inserts, uint64 updates)
{
	part_begin(directory);
	part_varint(directory, 1);
	directory_entry(directory, 1, inserts, updates);
}

static void
part_text(Part *part, const char *text)
{
	while (*text)
		part_byte(part, (uint8) *text++);
}

static void
insert_x(Part *changes)
{
	part_byte(changes, SCDC_EVENT_INSERT);
	part_varint(changes, 1);
	part_text(changes, "x");
}

static void
test_crafted_damage(void)
{
	Part		d;
	Part		c;
	int			i;

	/* the crafted parts are right as such: this one is no damage */
	model_clear();
	model_version(1);
	model.versions[0].timestamp = model.versions[0].commit_time = 0;
	model.versions[0].commit_lsn = model.versions[0].xid = 0;
	model_event_text(SCDC_EVENT_INSERT, NULL, "x");
	simple_directory(&d, 1, 0);
	part_begin(&c);
	insert_x(&c);
	{
		uint32		versions_len;
		uint32		changes_len;
		char	   *v = seal(SCDC_BLOCK_FORMAT_VERSION, 0, d.len, d.data, d.len, &versions_len);
		char	   *s = seal(SCDC_BLOCK_FORMAT_VERSION, 0, c.len, c.data, c.len, &changes_len);

		ok(read_exact(v, versions_len, s, changes_len) == SAME, "a block made by hand can be read");
		free(v);
		free(s);
	}

	part_byte(&c, 0);
	ok(is_damage(&d, &c), "damage: bytes behind the last event");

	part_begin(&c);
	insert_x(&c);
	simple_directory(&d, 2, 0);
	ok(is_damage(&d, &c), "damage: fewer events than counted");
	simple_directory(&d, 0, 1);
	ok(is_damage(&d, &c), "damage: an event of a kind that is not counted");
	simple_directory(&d, PG_UINT32_MAX, PG_UINT32_MAX);
	ok(is_damage(&d, &c), "damage: counts beyond the length");
	simple_directory(&d, UINT64CONST(0x100000001), 0);
	ok(is_damage(&d, &c), "damage: a count that does not fit");

	simple_directory(&d, 1, 0);
	part_byte(&d, 0);
	ok(is_damage(&d, &c), "damage: bytes behind the directory");
	simple_directory(&d, 1, 0);
	d.data[0] = 2;
	ok(is_damage(&d, &c), "damage: more versions counted than there are");
	part_begin(&d);
	part_varint(&d, PG_UINT64_MAX);
	directory_entry(&d, 1, 1, 0);
	ok(is_damage(&d, &c), "damage: an absurd count of versions");
	part_begin(&d);
	ok(is_damage(&d, &c), "damage: an empty directory");
	part_begin(&d);
	part_varint(&d, 2);
	directory_entry(&d, 1, 1, 0);
	directory_entry(&d, 0, 0, 0);
	ok(is_damage(&d, &c), "damage: a version twice");
	part_begin(&d);
	part_varint(&d, 1);
	for (i = 0; i < 10; i++)
		part_byte(&d, 0xff);
	part_byte(&d, 1);
	rest_of_entry(&d, 1, 0);
	ok(is_damage(&d, &c), "damage: a varint of more than 64 bits");
	part_begin(&d);
	part_varint(&d, 1);
	for (i = 0; i < 9; i++)
		part_byte(&d, 0xff);
	part_byte(&d, 2);
	rest_of_entry(&d, 1, 0);
	ok(is_damage(&d, &c), "damage: a tenth byte of a varint above 1");

	simple_directory(&d, 1, 0);
	for (i = 0; i < 256; i++)
	{
		part_begin(&c);
		part_byte(&c, (uint8) i);
		part_varint(&c, 1);
		part_text(&c, "x");
		/* its kind and whatever flags there are */
		if ((i & ~((SCDC_EVENT_INCOMPLETE | SCDC_EVENT_STALL) << 4)) != SCDC_EVENT_INSERT &&
			!is_damage(&d, &c))
			break;
	}
	is_int(i, 256, "damage: each other head byte in place of an insert");
	part_begin(&c);
	part_byte(&c, SCDC_EVENT_INSERT);
	part_varint(&c, 2);
	part_text(&c, "x");
	ok(is_damage(&d, &c), "damage: an image longer than the block");
	part_begin(&c);
	part_byte(&c, SCDC_EVENT_INSERT);
	part_varint(&c, PG_UINT64_MAX);
	part_text(&c, "x");
	ok(is_damage(&d, &c), "damage: an image of an absurd length");

	/* flag 2: a schema of the old image, which must be there and have a number */
	simple_directory(&d, 0, 1);
	for (i = 0; i < 3; i++)
	{
		part_begin(&c);
		part_byte(&c, SCDC_EVENT_UPDATE | 0x02 << 4 | (i == 0 ? 0x08 : 0));
		part_varint(&c, i == 0 ? 2 : i == 1 ? 0 : UINT64CONST(1) << 33);
		for (int j = 0; j < 4; j++)
			part_varint(&c, 0);
		if (!is_damage(&d, &c))
			break;
	}
	is_int(i, 3, "damage: another schema without an old image, without a number, with too large a number");

	simple_directory(&d, 0, 1);
	part_begin(&c);
	part_byte(&c, SCDC_EVENT_UPDATE);
	part_varint(&c, 3);
	part_text(&c, "old");
	part_varint(&c, 4);
	part_varint(&c, 0);
	part_varint(&c, 0);
	ok(is_damage(&d, &c), "damage: a prefix longer than the old image");
	c.data[5] = 2;
	c.data[6] = 2;
	ok(is_damage(&d, &c), "damage: a suffix that overlaps the prefix");
	c.data[6] = 1;
	c.data[7] = 1;
	ok(is_damage(&d, &c), "damage: a difference longer than the block");
	part_begin(&c);
	part_byte(&c, SCDC_EVENT_UPDATE);
	part_varint(&c, 3);
	part_text(&c, "old");
	part_varint(&c, PG_UINT64_MAX);
	part_varint(&c, 1);
	part_varint(&c, 0);
	ok(is_damage(&d, &c), "damage: prefix and suffix that overflow");
}

static void
test_header_damage(void)
{
	Part		d;
	ScdcBlockReader r;
	const char *err;
	char	   *v;
	uint32		len;
	char		zeros[64] = {0};

	simple_directory(&d, 0, 0);

	v = seal(SCDC_BLOCK_FORMAT_VERSION + 1, 0, d.len, d.data, d.len, &len);
	ok(!scdc_block_open_versions(&r, v, len, &err) && strstr(err, "format version"),
	   "another format version is refused");
	free(v);
	v = seal(SCDC_BLOCK_FORMAT_VERSION, 3, d.len, d.data, d.len, &len);
	ok(!scdc_block_open_versions(&r, v, len, &err) && strstr(err, "method"),
	   "another compression method is refused");
	free(v);
	v = seal(SCDC_BLOCK_FORMAT_VERSION, 0, d.len + 1, d.data, d.len, &len);
	ok(!scdc_block_open_versions(&r, v, len, &err), "a raw length that is too long is refused");
	free(v);
	v = seal(SCDC_BLOCK_FORMAT_VERSION, 0, d.len - 1, d.data, d.len, &len);
	ok(!scdc_block_open_versions(&r, v, len, &err), "a raw length that is too short is refused");
	free(v);
	v = seal(SCDC_BLOCK_FORMAT_VERSION, 0, d.len, d.data, d.len, &len);
	v[len - 1] ^= 1;
	ok(!scdc_block_open_versions(&r, v, len, &err) && strstr(err, "checksum"),
	   "a wrong checksum is noticed");
	v[len - 1] ^= 1;
	if (ok(scdc_block_open_versions(&r, v, len, &err), "the same without the error is read"))
	{
		char	   *big = seal(SCDC_BLOCK_FORMAT_VERSION, SCDC_COMPRESS_LZ4, 1000000000, zeros, 64, &len);

		ok(!scdc_block_open_changes(&r, big, len, &err), "lz4: an absurd raw length is refused");
		free(big);
		big = seal(SCDC_BLOCK_FORMAT_VERSION, SCDC_COMPRESS_ZSTD, 1000000000, zeros, 64, &len);
		ok(!scdc_block_open_changes(&r, big, len, &err), "zstd: an absurd raw length is refused");
		free(big);
		big = seal(SCDC_BLOCK_FORMAT_VERSION, SCDC_COMPRESS_ZSTD, UINT64CONST(0x100000000), zeros, 64, &len);
		ok(!scdc_block_open_changes(&r, big, len, &err) && strstr(err, "large"),
		   "a raw length above the limit is refused");
		free(big);
		big = seal(SCDC_BLOCK_FORMAT_VERSION, SCDC_COMPRESS_LZ4, 0, zeros, 1, &len);
		ok(!scdc_block_open_changes(&r, big, len, &err), "a compressed nothing is refused");
		free(big);
	}
	scdc_block_close(&r);
	free(v);
}

/* A block that compresses, so that cuts and flips hit compressed bytes. */
static void
model_compressible(void)
{
	char		row[80];
	int			i;

	model_clear();
	for (i = 0; i < 20; i++)
	{
		model_version(1 + i);
		snprintf(row, sizeof(row), "account %d of the branch, balance %d", i, i * 100);
		model_event_text(SCDC_EVENT_INSERT, NULL, row);
		model_event_text(SCDC_EVENT_UPDATE, row, "account closed, balance 0");
		model_event_text(SCDC_EVENT_DELETE, row, NULL);
	}
}

static void
test_truncation(void)
{
	int			method;

	for (method = 0; method < 3; method++)
	{
		ScdcBlockBuilder *b = builders[method];
		ScdcBlock	block;
		char		title[100];
		int			missed = 0;
		uint32		len;

		model_compressible();
		build_with(b, &block);
		for (len = 0; len < block.versions_len; len++)
			if (read_exact(block.versions, len, block.changes, block.changes_len) != DAMAGED)
				missed++;
		for (len = 0; len < block.changes_len; len++)
			if (read_exact(block.versions, block.versions_len, block.changes, len) != DAMAGED)
				missed++;
		snprintf(title, sizeof(title), "truncation at each length is noticed, %s", method_names[method]);
		is_int(missed, 0, title);
		block_free(&block);
	}
}

static void
flip(char *data, uint32 len)
{
	int			flips = 1 + random_below(4);

	while (flips-- > 0 && len > 0)
	{
		if (random_below(2))
			data[random_below(len)] ^= (char) (1 << random_below(8));
		else
			data[random_below(len)] = (char) random64();
	}
}

static void
test_random_damage(void)
{
	int			different = 0;
	int			noticed = 0;
	int			same = 0;
	int			i;

	for (i = 0; i < DAMAGED_BLOCKS; i++)
	{
		static ScdcBlock block = {0};
		char	   *versions;
		char	   *changes;
		Verdict		verdict;

		/* some blocks, each damaged many times */
		if (i % 100 == 0)
		{
			if (i > 0)
				block_free(&block);
			if (i % 200 == 0)
				model_random();
			else
				model_compressible();
			build_with(builders[i / 100 % 3], &block);
		}

		versions = copy_exact(block.versions, block.versions_len);
		changes = copy_exact(block.changes, block.changes_len);
		if (random_below(2))
			flip(versions, block.versions_len);
		if (random_below(2))
			flip(changes, block.changes_len);
		verdict = read_block(versions, block.versions_len, changes, block.changes_len);
		if (verdict == DIFFERENT)
			different++;
		else if (verdict == DAMAGED)
			noticed++;
		else
			same++;
		free(versions);
		free(changes);
		if (i == DAMAGED_BLOCKS - 1)
			block_free(&block);
	}
	diag("%d damaged blocks: %d noticed, %d read as they were", DAMAGED_BLOCKS, noticed, same);
	is_int(different, 0, "no flipped bytes give other data");
	ok(noticed > DAMAGED_BLOCKS / 2, "flipped bytes are noticed");
}

/*
 * The checksum keeps most damage from the parser.  Here it is computed anew
 * after the bytes were changed, so other data may come out, but nothing worse.
 */
static void
test_resealed_damage(void)
{
	int			noticed = 0;
	int			i;

	for (i = 0; i < DAMAGED_BLOCKS; i++)
	{
		static ScdcBlock block = {0};
		uint32		v_start;
		uint32		c_start;
		uint32		versions_len;
		uint32		changes_len;
		char	   *versions;
		char	   *changes;

		if (i % 100 == 0)
		{
			if (i > 0)
				block_free(&block);
			if (i % 200 == 0)
				model_random();
			else
				model_compressible();
			build_with(builders[i / 100 % 3], &block);
		}
		v_start = payload_start(block.versions);
		c_start = payload_start(block.changes);
		versions = copy_exact(block.versions, block.versions_len);
		changes = copy_exact(block.changes, block.changes_len);
		if (random_below(2))
			flip(versions + v_start, block.versions_len - v_start);
		else
			flip(changes + c_start, block.changes_len - c_start);
		{
			char	   *v = seal(SCDC_BLOCK_FORMAT_VERSION, versions[1], raw_len(versions),
								 versions + v_start, block.versions_len - v_start, &versions_len);
			char	   *c = seal(SCDC_BLOCK_FORMAT_VERSION, changes[1], raw_len(changes),
								 changes + c_start, block.changes_len - c_start, &changes_len);

			if (read_exact(v, versions_len, c, changes_len) == DAMAGED)
				noticed++;
			free(v);
			free(c);
		}
		free(versions);
		free(changes);
		if (i == DAMAGED_BLOCKS - 1)
			block_free(&block);
	}
	diag("%d blocks with a right checksum over wrong bytes: %d noticed", DAMAGED_BLOCKS, noticed);
	ok(noticed > 0, "the parser survives wrong bytes with a right checksum");
}

/* Garbage behind a good header reaches the decompressors. */
static void
test_garbage(void)
{
	int			accepted = 0;
	int			i;

	model_compressible();
	for (i = 0; i < DAMAGED_BLOCKS; i++)
	{
		uint32		len = random_below(200);
		char	   *garbage = malloc(len + 2);
		uint32		j;

		for (j = 0; j < len; j++)
			garbage[j] = (char) random64();
		if (len > 2 && random_below(4))
		{
			garbage[0] = SCDC_BLOCK_FORMAT_VERSION;
			garbage[1] = (char) random_below(3);
		}
		if (len > 12 && random_below(2))
			memcpy(garbage + 8, "\x28\xb5\x2f\xfd", 4); /* the magic of zstd */
		if (read_exact(garbage, len, garbage, len) != DAMAGED)
			accepted++;
		free(garbage);
	}
	is_int(accepted, 0, "garbage is refused");
}

int
main(void)
{
	int			method;

	setvbuf(stdout, NULL, _IOLBF, 0);
	seed_random((uint64_t) time(NULL));
	for (method = 0; method < 3; method++)
		builders[method] = scdc_block_builder_create(method);
	test_round_trips();
	test_random_round_trips();
	test_builder();
	test_header_damage();
	test_crafted_damage();
	test_truncation();
	test_random_damage();
	test_resealed_damage();
	test_garbage();
	model_clear();
	return done_testing();
}
