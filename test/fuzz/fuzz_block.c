/*-------------------------------------------------------------------------
 *
 * fuzz_block.c
 *	  libFuzzer target for src/log/block.c.
 *
 * The first byte of the input says what the rest is:
 *
 *		0	two parts as they would come from the log: two bytes with the length
 *			of the first, and both
 *		1	the same, but the payloads only, which get a right header and
 *			checksum here: so damage gets as far as the readers of versions
 *			and events, which trust no checksum
 *		2-4	events, which are built into blocks by one of the three methods;
 *			what is read back must be what went in
 *
 * With the name of a folder in FUZZ_SEEDS, inputs to begin with are written
 * there first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "port/pg_crc32c.h"

#include "log/block.h"

#define MAX_EVENTS	400

extern int	LLVMFuzzerInitialize(int *argc, char ***argv);
extern int	LLVMFuzzerTestOneInput(const uint8 *data, size_t size);

#define MUST(condition) \
	do { \
		if (!(condition)) \
		{ \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

/* The bytes in an allocation of their exact size, so that reading beyond them is seen. */
static char *
copy_exact(const void *data, size_t len)
{
	char	   *copy = malloc(len > 0 ? len : 1);

	if (len > 0)
		memcpy(copy, data, len);
	return copy;
}

/* so that the compiler does not leave out reading */
static volatile uint32 touched;

/* Reads each byte of an image. */
static uint32
touch(const ScdcBytes *bytes)
{
	uint32		sum = 0;
	uint32		i;

	for (i = 0; i < bytes->len; i++)
		sum = sum * 31 + (uint8) bytes->data[i];
	return sum;
}

/* ---- damaged blocks ---- */

static void
read_parts(const char *versions, uint32 versions_len, const char *changes, uint32 changes_len)
{
	ScdcBlockReader r;
	const char *err = NULL;
	uint64		events = 0;
	int			result;

	if (!scdc_block_open_versions(&r, versions, versions_len, &err))
	{
		MUST(err != NULL);
		return;
	}
	if (scdc_block_open_changes(&r, changes, changes_len, &err))
	{
		ScdcEvent	e;
		const ScdcVersion *v;

		while ((result = scdc_block_next(&r, &e, &v, &err)) > 0)
		{
			touched += touch(&e.old_image) + touch(&e.new_image) + v->inserts;
			MUST(v >= r.versions && v < r.versions + r.nversions);
			/* an event takes a byte at least */
			MUST(++events <= r.raw_len);
		}
		/* the end and damage stay what they are */
		MUST(scdc_block_next(&r, &e, &v, &err) == result);
		MUST(result == 0 || err != NULL);
	}
	else
		MUST(err != NULL);
	scdc_block_close(&r);
}

/* A part of a block with a right header, uncompressed. */
static char *
sealed(const uint8 *payload, uint32 len, uint32 *part_len)
{
	char	   *part = malloc(2 + 5 + 4 + len);
	char	   *p = part;
	uint32		rest = len;
	pg_crc32c	crc;
	int			i;

	*p++ = SCDC_BLOCK_FORMAT_VERSION;
	*p++ = SCDC_COMPRESS_NONE;
	for (; rest >= 0x80; rest >>= 7)
		*p++ = (char) (rest | 0x80);
	*p++ = (char) rest;
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, part, p - part);
	COMP_CRC32C(crc, payload, len);
	FIN_CRC32C(crc);
	for (i = 0; i < 4; i++)
		*p++ = (char) (crc >> (8 * i));
	if (len > 0)
		memcpy(p, payload, len);
	*part_len = (uint32) (p - part) + len;
	return realloc(part, *part_len);
}

static void
fuzz_parts(const uint8 *data, size_t size, bool seal)
{
	uint32		versions_len;
	uint32		changes_len;
	char	   *versions;
	char	   *changes;

	if (size < 2)
		return;
	versions_len = Min((uint32) data[0] << 8 | data[1], (uint32) size - 2);
	changes_len = (uint32) size - 2 - versions_len;
	data += 2;
	if (seal)
	{
		const uint8 *rest = data + versions_len;

		versions = sealed(data, versions_len, &versions_len);
		changes = sealed(rest, changes_len, &changes_len);
	}
	else
	{
		versions = copy_exact(data, versions_len);
		changes = copy_exact(data + versions_len, changes_len);
	}
	read_parts(versions, versions_len, changes, changes_len);
	free(versions);
	free(changes);
}

/* ---- round trips ---- */

/* One each, used again and again, since a builder has to come back empty. */
static ScdcBlockBuilder *
builder_of(int method)
{
	static ScdcBlockBuilder *builders[3];

	if (builders[method] == NULL)
		builders[method] = scdc_block_builder_create((ScdcCompression) method);
	return builders[method];
}

typedef struct Input
{
	const uint8 *p;
	const uint8 *end;
} Input;

static uint64
take(Input *in, int bytes)
{
	uint64		value = 0;

	while (bytes-- > 0)
		value = value << 8 | (in->p < in->end ? *in->p++ : 0);
	return value;
}

/* An image: bytes of the input, or many times one byte. */
static ScdcBytes
take_image(Input *in)
{
	ScdcBytes	image;
	uint32		len = (uint32) take(in, 1);
	char	   *data;

	if (len >= 200)
	{
		len = (len - 199) * 300;
		data = malloc(len);
		memset(data, (int) take(in, 1), len);
	}
	else
	{
		uint32		there = Min(len, (uint32) (in->end - in->p));

		data = copy_exact(in->p, there);
		in->p += there;
		len = there;
	}
	image.data = data;
	image.len = len;
	return image;
}

static void
free_image(ScdcBytes *image)
{
	free(unconstify(char *, image->data));
}

static bool
same_bytes(const ScdcBytes *a, const ScdcBytes *b)
{
	return (a->data == NULL) == (b->data == NULL) && a->len == b->len &&
		(a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static void
count(ScdcVersion *v, ScdcEventKind kind)
{
	if (kind == SCDC_EVENT_INSERT)
		v->inserts++;
	else if (kind == SCDC_EVENT_UPDATE)
		v->updates++;
	else if (kind == SCDC_EVENT_DELETE)
		v->deletes++;
	else
		v->markers++;
}

/* One block of events, until the input or its turn ends. */
static void
round_trip(ScdcBlockBuilder *b, Input *in)
{
	static ScdcVersion versions[MAX_EVENTS];
	static ScdcEvent events[MAX_EVENTS];
	static int	owner[MAX_EVENTS];
	int			nversions = 0;
	int			nevents = 0;
	ScdcBlock	block;
	ScdcBlockReader r;
	ScdcEvent	e;
	const ScdcVersion *v;
	const char *err = NULL;
	char	   *versions_part;
	char	   *changes_part;
	int			i;

	while (in->p < in->end && nevents < MAX_EVENTS && nversions < MAX_EVENTS)
	{
		uint8		op = (uint8) take(in, 1);
		ScdcEvent  *event = &events[nevents];

		if (op == 0xff)
			break;				/* the next block */
		if (nversions == 0 || op >= 0xe0)
		{
			ScdcVersion *version = &versions[nversions];

			/* versions rise, by little or by much */
			memset(version, 0, sizeof(*version));
			version->version = nversions == 0 ? (int64) take(in, 8) :
				(int64) ((uint64) versions[nversions - 1].version + 1 + take(in, (op & 1) ? 8 : 1));
			if (nversions > 0 && version->version <= versions[nversions - 1].version)
				break;			/* the numbers end */
			version->timestamp = (int64) take(in, (op & 2) ? 8 : 1);
			version->commit_time = (int64) take(in, (op & 4) ? 8 : 1);
			version->commit_lsn = take(in, (op & 8) ? 8 : 1);
			version->xid = take(in, 2);
			version->origin = (uint32) take(in, (op & 16) ? 4 : 1);
			scdc_block_begin_version(b, version);
			nversions++;
			continue;
		}
		memset(event, 0, sizeof(*event));
		event->kind = (ScdcEventKind) (op % 5 + 1);
		event->flags = (op & 0x40) ? SCDC_EVENT_INCOMPLETE : 0;
		if ((event->kind == SCDC_EVENT_UPDATE || event->kind == SCDC_EVENT_DELETE) && (op & 0x80) == 0)
			event->old_image = take_image(in);
		if (event->kind == SCDC_EVENT_INSERT || event->kind == SCDC_EVENT_UPDATE)
			event->new_image = take_image(in);
		if (event->kind == SCDC_EVENT_UPDATE && event->old_image.data != NULL && (op & 0x20))
			event->old_schema = (int32) take(in, 4);
		if (event->kind == SCDC_EVENT_GAP && (op & 0x20))
			event->flags |= SCDC_EVENT_ENDS;
		scdc_block_add(b, event);
		count(&versions[nversions - 1], event->kind);
		owner[nevents++] = nversions - 1;
	}

	scdc_block_finish(b, &block);
	MUST(scdc_block_is_empty(b));
	versions_part = copy_exact(block.versions, block.versions_len);
	changes_part = copy_exact(block.changes, block.changes_len);
	pfree(block.versions);
	pfree(block.changes);

	MUST(scdc_block_open_versions(&r, versions_part, block.versions_len, &err));
	MUST(r.nversions == nversions);
	for (i = 0; i < nversions; i++)
	{
		const ScdcVersion *got = &r.versions[i];
		const ScdcVersion *expected = &versions[i];

		MUST(got->version == expected->version && got->timestamp == expected->timestamp &&
			 got->commit_time == expected->commit_time && got->commit_lsn == expected->commit_lsn &&
			 got->xid == expected->xid && got->origin == expected->origin &&
			 got->inserts == expected->inserts && got->updates == expected->updates &&
			 got->deletes == expected->deletes && got->markers == expected->markers);
	}
	MUST(scdc_block_open_changes(&r, changes_part, block.changes_len, &err));
	for (i = 0; i < nevents; i++)
	{
		MUST(scdc_block_next(&r, &e, &v, &err) == 1);
		MUST(e.kind == events[i].kind && e.flags == events[i].flags && v == &r.versions[owner[i]]);
		MUST(e.old_schema == events[i].old_schema);
		MUST(same_bytes(&e.old_image, &events[i].old_image));
		MUST(same_bytes(&e.new_image, &events[i].new_image));
		free_image(&events[i].old_image);
		free_image(&events[i].new_image);
	}
	MUST(scdc_block_next(&r, &e, &v, &err) == 0);
	scdc_block_close(&r);
	free(versions_part);
	free(changes_part);
}

int
LLVMFuzzerTestOneInput(const uint8 *data, size_t size)
{
	Input		in = {data + 1, data + size};

	if (size == 0)
		return 0;
	if (data[0] % 5 < 2)
	{
		fuzz_parts(data + 1, size - 1, data[0] % 5 == 1);
		return 0;
	}
	while (in.p < in.end)
		round_trip(builder_of(data[0] % 5 - 2), &in);
	return 0;
}

/* ---- inputs to begin with ---- */

/* Length of a part's header: format, method, a length of one byte or more, checksum. */
static uint32
header_len(const char *part)
{
	uint32		len = 2;

	while (part[len++] & 0x80)
		;
	return len + 4;
}

static void
write_seed(const char *folder, const char *name, uint8 kind, const ScdcBlock *block, bool payloads)
{
	char		path[MAXPGPATH];
	FILE	   *file;
	uint32		skip_versions = payloads ? header_len(block->versions) : 0;
	uint32		skip_changes = payloads ? header_len(block->changes) : 0;
	uint32		versions_len = block->versions_len - skip_versions;
	uint8		head[3] = {kind, (uint8) (versions_len >> 8), (uint8) versions_len};

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "wb");
	MUST(file != NULL);
	fwrite(head, 1, sizeof(head), file);
	fwrite(block->versions + skip_versions, 1, versions_len, file);
	fwrite(block->changes + skip_changes, 1, block->changes_len - skip_changes, file);
	fclose(file);
}

/* Blocks of every method, and the payloads of one. */
static void
write_seeds(const char *folder)
{
	int			method;

	for (method = 0; method < 3; method++)
	{
		static const char *const names[] = {"block-none", "block-lz4", "block-zstd"};
		ScdcBlockBuilder *b = builder_of(method);
		ScdcBlock	block;
		int			i;

		for (i = 1; i <= 4; i++)
		{
			ScdcVersion version = {.version = i, .timestamp = i, .commit_lsn = 8 * i};
			char		before[120];
			char		after[120];
			int			kind;

			memset(before, 'a', sizeof(before));
			memset(after, 'a', sizeof(after));
			after[60] = 'b';
			scdc_block_begin_version(b, &version);
			for (kind = SCDC_EVENT_INSERT; kind <= SCDC_EVENT_GAP; kind++)
			{
				ScdcEvent	event = {.kind = (ScdcEventKind) kind};

				if (kind == SCDC_EVENT_UPDATE || kind == SCDC_EVENT_DELETE)
					event.old_image = (ScdcBytes)
				{
					before, sizeof(before)
				};
				if (kind == SCDC_EVENT_INSERT || kind == SCDC_EVENT_UPDATE)
					event.new_image = (ScdcBytes)
				{
					after, sizeof(after)
				};
				scdc_block_add(b, &event);
			}
		}
		scdc_block_finish(b, &block);
		write_seed(folder, names[method], 0, &block, false);
		if (method == SCDC_COMPRESS_NONE)
			write_seed(folder, "payloads", 1, &block, true);
		pfree(block.versions);
		pfree(block.changes);
	}
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *folder = getenv("FUZZ_SEEDS");

	if (folder != NULL)
		write_seeds(folder);
	return 0;
}
