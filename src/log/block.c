/*-------------------------------------------------------------------------
 *
 * block.c
 *	  The packed, compressed form of many changes of one stream.
 *
 * Layout of each of the two byte strings:
 *
 *		byte	format version (SCDC_BLOCK_FORMAT_VERSION)
 *		byte	compression method (ScdcCompression)
 *		varint	length of the raw payload
 *		4 bytes	CRC-32C of all of the above and of the rest, little-endian
 *		rest	the payload, compressed by the method
 *
 * The raw payload of "versions" is the directory:
 *
 *		varint	number of versions
 *		per version, each the difference from the version before (from zero
 *		for the first one):
 *			zigzag	version			zigzag	timestamp
 *			zigzag	commit_time, from this version's timestamp
 *			zigzag	commit_lsn		zigzag	xid
 *		and, not as differences:
 *			varint	origin, inserts, updates, deletes, markers
 *
 * The raw payload of "changes" is the events, one after the other.  Which of
 * them belong to which version follows from the counts in the directory:
 *
 *		byte	bits 0-2 kind, bit 3 "no old image", bits 4-7 flags: 1 incomplete,
 *				2 the old image is under another schema, 4 the stream ends
 *		with flag 2: zigzag, number of that schema
 *		old image (UPDATE, DELETE, unless absent): varint length, bytes
 *		new image of an INSERT, or of an UPDATE without old image:
 *				varint length, bytes
 *		new image of another UPDATE:
 *				varint length of the prefix shared with the old image,
 *				varint length of the suffix shared with the old image,
 *				varint length of what is between them, bytes
 *
 * (varints and zigzags: log/varint.h)
 *
 * The checksum covers what is stored, so that damage is found before anything
 * is made of it, and few bytes have to be gone through.  The reader
 * nevertheless trusts no length and no count, because a checksum does not tell
 * damage from a writer's mistake.
 *
 *-------------------------------------------------------------------------
 */
#ifdef FRONTEND
#include "postgres_fe.h"
#else
#include "postgres.h"
#include "utils/memutils.h"
#endif

#include <lz4.h>
#include <zstd.h>

#include "port/pg_bitutils.h"
#include "port/pg_crc32c.h"

#include "log/block.h"
#include "log/varint.h"

#ifdef FRONTEND
#define repalloc_huge(ptr, size)	repalloc(ptr, size)
#define block_error(msg) \
	do { \
		fprintf(stderr, "%s\n", msg); \
		exit(1); \
	} while (0)
#else
#define block_error(msg)			elog(ERROR, "%s", msg)
#endif

/* Just below the largest palloc, so that no reader meets a raw length it cannot hold. */
#define CHANGES_RAW_LIMIT	((Size) 0x3fff0000)

/*
 * A directory is never this large in practice.  The limit keeps the array of
 * ScdcVersion, about eight times the payload, below the largest palloc.
 */
#define DIRECTORY_RAW_LIMIT ((Size) 64 * 1024 * 1024)

#define PART_HEADER_MAX		(2 + SCDC_VARINT32_MAX + 4)
#define PART_HEADER_MIN		(2 + 1 + 4)

/* five 64-bit and five 32-bit fields, each at least one byte */
#define DIRECTORY_ENTRY_MAX (5 * SCDC_VARINT64_MAX + 5 * SCDC_VARINT32_MAX)
#define DIRECTORY_ENTRY_MIN 10

/* room in front of the directory for the count, which is known last */
#define DIRECTORY_RESERVE	SCDC_VARINT32_MAX

/* one head byte and at most five varints: old schema, old length, prefix, suffix, middle */
#define EVENT_OVERHEAD_MAX	(1 + SCDC_VARINT64_MAX + 4 * SCDC_VARINT32_MAX)

#define EVENT_KIND_MASK		0x07
#define EVENT_NO_OLD_IMAGE	0x08
#define EVENT_FLAGS_SHIFT	4
#define EVENT_OLD_SCHEMA	0x02	/* not for callers, who have ScdcEvent.old_schema */
#define EVENT_FLAGS_KNOWN	(SCDC_EVENT_INCOMPLETE | SCDC_EVENT_ENDS | SCDC_EVENT_STALL)

/* Below this neither method gains anything. */
#define COMPRESS_MIN		32

/* One very large change must not hold its memory for ever. */
#define BUFFER_INITIAL		(64 * 1024)
#define BUFFER_KEEP_MAX		(8 * SCDC_BLOCK_RAW_MAX)

typedef struct Buffer
{
	uint8	   *data;
	Size		len;
	Size		size;
} Buffer;

struct ScdcBlockBuilder
{
	ScdcCompression method;
	Buffer		changes;		/* events so far */
	Buffer		directory;		/* finished entries, behind DIRECTORY_RESERVE */
	Buffer		packed;			/* scratch of the compressor */
	uint32		nversions;		/* begun so far, with the current one */
	ScdcVersion cur;			/* the current version, if nversions > 0 */
	ScdcVersion prev;			/* the one before it, base of the differences */
	uint32		counts[SCDC_EVENT_GAP + 1]; /* events of the current version, by kind */
};

/*
 * The contexts of zstd are large and slow to set up.  One each serves the
 * whole process, which is never inside two of these calls at a time.
 */
static ZSTD_CCtx *zstd_compressor = NULL;
static ZSTD_DCtx *zstd_decompressor = NULL;

/* ---------------------------------------------------------------------
 * building
 * ---------------------------------------------------------------------
 */

static void
buffer_init(Buffer *buf, Size size)
{
	buf->data = palloc(size);
	buf->len = 0;
	buf->size = size;
}

/* Makes room for "need" more bytes; "limit" is for the whole buffer. */
static pg_noinline void
buffer_grow(Buffer *buf, Size need, Size limit)
{
	Size		size = buf->size;

	if (need > limit || buf->len > limit - need)
		block_error("block is too large");
	while (size - buf->len < need)
		size *= 2;
	buf->data = repalloc_huge(buf->data, size);
	buf->size = size;
}

static inline void
buffer_reserve(Buffer *buf, Size need, Size limit)
{
	if (unlikely(buf->size - buf->len < need))
		buffer_grow(buf, need, limit);
}

/* Forgets the contents, and the memory too if there is very much of it. */
static void
buffer_reset(Buffer *buf, Size len)
{
	if (buf->size > BUFFER_KEEP_MAX)
	{
		buf->data = repalloc_huge(buf->data, BUFFER_INITIAL);
		buf->size = BUFFER_INITIAL;
	}
	buf->len = len;
}

ScdcBlockBuilder *
scdc_block_builder_create(ScdcCompression method)
{
	ScdcBlockBuilder *b = palloc0(sizeof(ScdcBlockBuilder));

	b->method = method;
	buffer_init(&b->changes, BUFFER_INITIAL);
	buffer_init(&b->directory, 1024);
	buffer_init(&b->packed, 1024);
	b->directory.len = DIRECTORY_RESERVE;
	return b;
}

/* Writes the directory entry of the current version, whose counts are now final. */
static void
close_version(ScdcBlockBuilder *b)
{
	const ScdcVersion *cur = &b->cur;
	const ScdcVersion *prev = &b->prev;
	uint8	   *p;

	buffer_reserve(&b->directory, DIRECTORY_ENTRY_MAX, DIRECTORY_RAW_LIMIT);
	p = b->directory.data + b->directory.len;
	p = scdc_put_zigzag(p, (uint64) cur->version - (uint64) prev->version);
	p = scdc_put_zigzag(p, (uint64) cur->timestamp - (uint64) prev->timestamp);
	p = scdc_put_zigzag(p, (uint64) cur->commit_time - (uint64) cur->timestamp);
	p = scdc_put_zigzag(p, cur->commit_lsn - prev->commit_lsn);
	p = scdc_put_zigzag(p, cur->xid - prev->xid);
	p = scdc_put_varint(p, cur->origin);
	p = scdc_put_varint(p, b->counts[SCDC_EVENT_INSERT]);
	p = scdc_put_varint(p, b->counts[SCDC_EVENT_UPDATE]);
	p = scdc_put_varint(p, b->counts[SCDC_EVENT_DELETE]);
	p = scdc_put_varint(p, b->counts[SCDC_EVENT_TRUNCATE] + b->counts[SCDC_EVENT_GAP]);
	b->directory.len = p - b->directory.data;

	b->prev = b->cur;
	memset(b->counts, 0, sizeof(b->counts));
}

void
scdc_block_begin_version(ScdcBlockBuilder *b, const ScdcVersion *v)
{
	if (b->nversions > 0)
	{
		if (v->version == b->cur.version)
			return;
		if (v->version < b->cur.version)
			block_error("versions of a block do not rise");
		close_version(b);
	}
	b->cur = *v;
	b->nversions++;
}

/* Length of the common beginning of a and b, at most max. */
static inline uint32
common_prefix(const char *a, const char *b, uint32 max)
{
	uint32		n = 0;

	while (max - n >= sizeof(uint64))
	{
		uint64		x;
		uint64		y;

		memcpy(&x, a + n, sizeof(x));
		memcpy(&y, b + n, sizeof(y));
		if (x != y)
#ifdef WORDS_BIGENDIAN
			return n + (7 - pg_leftmost_one_pos64(x ^ y) / 8);
#else
			return n + pg_rightmost_one_pos64(x ^ y) / 8;
#endif
		n += sizeof(uint64);
	}
	while (n < max && a[n] == b[n])
		n++;
	return n;
}

/* Length of the common end of what lies before a_end and b_end, at most max. */
static inline uint32
common_suffix(const char *a_end, const char *b_end, uint32 max)
{
	uint32		n = 0;

	while (max - n >= sizeof(uint64))
	{
		uint64		x;
		uint64		y;

		memcpy(&x, a_end - n - sizeof(x), sizeof(x));
		memcpy(&y, b_end - n - sizeof(y), sizeof(y));
		if (x != y)
#ifdef WORDS_BIGENDIAN
			return n + pg_rightmost_one_pos64(x ^ y) / 8;
#else
			return n + (7 - pg_leftmost_one_pos64(x ^ y) / 8);
#endif
		n += sizeof(uint64);
	}
	while (n < max && a_end[-1 - (ptrdiff_t) n] == b_end[-1 - (ptrdiff_t) n])
		n++;
	return n;
}

static inline uint8 *
put_bytes(uint8 *p, const char *data, uint32 len)
{
	p = scdc_put_varint(p, len);
	if (len > 0)				/* data may be NULL then */
		memcpy(p, data, len);
	return p + len;
}

static inline uint8 *
put_difference(uint8 *p, const ScdcBytes *old, const ScdcBytes *new)
{
	uint32		max = Min(old->len, new->len);
	uint32		prefix = common_prefix(old->data, new->data, max);
	uint32		suffix = common_suffix(old->data + old->len, new->data + new->len, max - prefix);

	p = scdc_put_varint(p, prefix);
	p = scdc_put_varint(p, suffix);
	return put_bytes(p, new->data + prefix, new->len - prefix - suffix);
}

/*
 * Called once for each decoded row.  The buffer is checked once, for the most
 * that the event may take.
 */
void
scdc_block_add(ScdcBlockBuilder *b, const ScdcEvent *e)
{
	uint8		head = (uint8) (e->kind | (e->flags << EVENT_FLAGS_SHIFT));
	uint8	   *start;
	uint8	   *p;

	Assert(b->nversions > 0);
	Assert((e->flags & ~EVENT_FLAGS_KNOWN) == 0);
	Assert((e->flags & (SCDC_EVENT_ENDS | SCDC_EVENT_STALL)) == 0 || e->kind == SCDC_EVENT_GAP);
	Assert(e->old_schema == 0 || (e->kind == SCDC_EVENT_UPDATE && e->old_image.data != NULL));

	buffer_reserve(&b->changes,
				   EVENT_OVERHEAD_MAX + (Size) e->old_image.len + (Size) e->new_image.len,
				   CHANGES_RAW_LIMIT);
	start = b->changes.data + b->changes.len;
	p = start + 1;
	if (e->old_schema != 0)
	{
		head |= EVENT_OLD_SCHEMA << EVENT_FLAGS_SHIFT;
		p = scdc_put_zigzag(p, (uint64) (int64) e->old_schema);
	}

	switch (e->kind)
	{
		case SCDC_EVENT_INSERT:
			p = put_bytes(p, e->new_image.data, e->new_image.len);
			break;
		case SCDC_EVENT_UPDATE:
			if (e->old_image.data != NULL)
			{
				p = put_bytes(p, e->old_image.data, e->old_image.len);
				p = put_difference(p, &e->old_image, &e->new_image);
			}
			else
			{
				head |= EVENT_NO_OLD_IMAGE;
				p = put_bytes(p, e->new_image.data, e->new_image.len);
			}
			break;
		case SCDC_EVENT_DELETE:
			if (e->old_image.data != NULL)
				p = put_bytes(p, e->old_image.data, e->old_image.len);
			else
				head |= EVENT_NO_OLD_IMAGE;
			break;
		case SCDC_EVENT_TRUNCATE:
		case SCDC_EVENT_GAP:
			break;
		default:
			block_error("event kind is not one of a block's");
	}

	*start = head;
	b->changes.len = p - b->changes.data;
	b->counts[e->kind]++;
}

bool
scdc_block_is_empty(const ScdcBlockBuilder *b)
{
	return b->nversions == 0;
}

/* The entry of the current version is not written yet and counts with its largest size. */
uint32
scdc_block_raw_size(const ScdcBlockBuilder *b)
{
	Size		size = b->changes.len + b->directory.len;

	if (b->nversions > 0)
		size += DIRECTORY_ENTRY_MAX;
	return (uint32) size;
}

/* Returns the compressed length in b->packed, or 0 if compression gains nothing. */
static Size
compress_payload(ScdcBlockBuilder *b, const uint8 *raw, Size raw_len)
{
	Size		bound;
	Size		packed_len = 0;

	if (raw_len < COMPRESS_MIN)
		return 0;

	switch (b->method)
	{
		case SCDC_COMPRESS_NONE:
			break;
		case SCDC_COMPRESS_LZ4:
			bound = LZ4_compressBound((int) raw_len);
			buffer_reserve(&b->packed, bound, MaxAllocSize * 2);
			packed_len = LZ4_compress_fast((const char *) raw, (char *) b->packed.data,
										   (int) raw_len, (int) bound, 1);
			break;
		case SCDC_COMPRESS_ZSTD:
			if (zstd_compressor == NULL)
				zstd_compressor = ZSTD_createCCtx();
			if (zstd_compressor == NULL)
				break;			/* no memory: store it plain */
			bound = ZSTD_compressBound(raw_len);
			buffer_reserve(&b->packed, bound, MaxAllocSize * 2);
			packed_len = ZSTD_compressCCtx(zstd_compressor, b->packed.data, bound,
										   raw, raw_len, 1);
			if (ZSTD_isError(packed_len))
				packed_len = 0;
			break;
	}
	return packed_len < raw_len ? packed_len : 0;
}

/* The checksum of a part: its header up to the checksum, and its payload as it is stored. */
static pg_crc32c
part_crc(const uint8 *part, Size header_len, const uint8 *payload, Size payload_len)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, part, header_len);
	COMP_CRC32C(crc, payload, payload_len);
	FIN_CRC32C(crc);
	return crc;
}

/* Returns a palloc'd part of a block: header and payload. */
static char *
seal_part(ScdcBlockBuilder *b, const uint8 *raw, Size raw_len, uint32 *part_len)
{
	Size		packed_len = compress_payload(b, raw, raw_len);
	bool		packed = packed_len > 0;
	Size		payload_len = packed ? packed_len : raw_len;
	uint8	   *part = palloc(PART_HEADER_MAX + payload_len);
	const uint8 *payload = packed ? b->packed.data : raw;
	uint8	   *p = part;
	pg_crc32c	crc;
	int			i;

	*p++ = SCDC_BLOCK_FORMAT_VERSION;
	*p++ = (uint8) (packed ? b->method : SCDC_COMPRESS_NONE);
	p = scdc_put_varint(p, raw_len);
	crc = part_crc(part, p - part, payload, payload_len);
	for (i = 0; i < 4; i++)
		*p++ = (uint8) (crc >> (8 * i));
	memcpy(p, payload, payload_len);
	p += payload_len;

	*part_len = (uint32) (p - part);
	return (char *) part;
}

void
scdc_block_finish(ScdcBlockBuilder *b, ScdcBlock *out)
{
	uint8		count[DIRECTORY_RESERVE];
	Size		count_len;
	Size		start;

	if (b->nversions > 0)
		close_version(b);

	/* the count goes right in front of the entries */
	count_len = scdc_put_varint(count, b->nversions) - count;
	start = DIRECTORY_RESERVE - count_len;
	memcpy(b->directory.data + start, count, count_len);

	out->raw_size = (uint32) (b->directory.len - start + b->changes.len);
	out->versions = seal_part(b, b->directory.data + start, b->directory.len - start,
							  &out->versions_len);
	out->changes = seal_part(b, b->changes.data, b->changes.len, &out->changes_len);

	buffer_reset(&b->changes, 0);
	buffer_reset(&b->directory, DIRECTORY_RESERVE);
	buffer_reset(&b->packed, 0);
	b->nversions = 0;
	memset(&b->prev, 0, sizeof(b->prev));
}

/* ---------------------------------------------------------------------
 * reading
 * ---------------------------------------------------------------------
 */

static bool
damaged(const char **err, const char *message)
{
	*err = message;
	return false;
}

/*
 * Could len compressed bytes become raw_len?  Asked before memory is
 * allocated, so that a few damaged bytes cannot demand a gigabyte.  An lz4
 * byte yields 255 bytes at most; a zstd block, of four bytes at least, 128 kB.
 */
static bool
expansion_is_possible(uint8 method, uint32 len, uint64 raw_len)
{
	if (method == SCDC_COMPRESS_LZ4)
		return raw_len <= (uint64) len * 255;
	return raw_len <= ((uint64) len / 4 + 1) * (128 * 1024);
}

static bool
decompress_payload(uint8 method, const uint8 *payload, uint32 len, char *raw, uint32 raw_len)
{
	if (method == SCDC_COMPRESS_LZ4)
		return LZ4_decompress_safe((const char *) payload, raw, (int) len, (int) raw_len) == (int) raw_len;

	if (zstd_decompressor == NULL)
		zstd_decompressor = ZSTD_createDCtx();
	if (zstd_decompressor == NULL)
		block_error("out of memory");
	return ZSTD_decompressDCtx(zstd_decompressor, raw, raw_len, payload, len) == raw_len;
}

/*
 * Checks one part of a block and returns its raw payload, palloc'd, in *raw.
 */
static bool
open_part(const char *part, uint32 part_len, Size raw_limit,
		  char **raw, uint32 *raw_len, const char **err)
{
	const uint8 *p = (const uint8 *) part;
	const uint8 *end = p + part_len;
	uint8		method;
	uint64		claimed_len;
	Size		header_len;
	uint32		payload_len;
	pg_crc32c	stored_crc;

	if (part_len < PART_HEADER_MIN)
		return damaged(err, "block is truncated");
	if (*p++ != SCDC_BLOCK_FORMAT_VERSION)
		return damaged(err, "block format version is not supported");
	method = *p++;
	if (method > SCDC_COMPRESS_ZSTD)
		return damaged(err, "compression method is not supported");
	if (!scdc_get_varint(&p, end, &claimed_len) || end - p < 4)
		return damaged(err, "block header is damaged");
	if (claimed_len > raw_limit)
		return damaged(err, "block is too large");
	header_len = p - (const uint8 *) part;
	stored_crc = (uint32) p[0] | (uint32) p[1] << 8 | (uint32) p[2] << 16 | (uint32) p[3] << 24;
	p += 4;
	payload_len = (uint32) (end - p);
	if (!EQ_CRC32C(part_crc((const uint8 *) part, header_len, p, payload_len), stored_crc))
		return damaged(err, "block checksum does not match");

	if (method == SCDC_COMPRESS_NONE)
	{
		if (payload_len != claimed_len)
			return damaged(err, "block length does not match its header");
	}
	else if (payload_len == 0 || claimed_len == 0 ||
			 payload_len > PG_INT32_MAX ||
			 !expansion_is_possible(method, payload_len, claimed_len))
		return damaged(err, "block length does not match its header");

	*raw_len = (uint32) claimed_len;
	*raw = palloc(Max(*raw_len, 1));
	if (method == SCDC_COMPRESS_NONE)
		memcpy(*raw, p, payload_len);
	else if (!decompress_payload(method, p, payload_len, *raw, *raw_len))
	{
		pfree(*raw);
		*raw = NULL;
		return damaged(err, "compressed block is damaged");
	}
	return true;
}

static bool
read_directory_entry(const uint8 **p, const uint8 *end, const ScdcVersion *prev, ScdcVersion *v)
{
	uint64		version;
	uint64		timestamp;
	uint64		commit_time;
	uint64		commit_lsn;
	uint64		xid;

	if (!scdc_get_zigzag(p, end, &version) ||
		!scdc_get_zigzag(p, end, &timestamp) ||
		!scdc_get_zigzag(p, end, &commit_time) ||
		!scdc_get_zigzag(p, end, &commit_lsn) ||
		!scdc_get_zigzag(p, end, &xid) ||
		!scdc_get_varint32(p, end, &v->origin) ||
		!scdc_get_varint32(p, end, &v->inserts) ||
		!scdc_get_varint32(p, end, &v->updates) ||
		!scdc_get_varint32(p, end, &v->deletes) ||
		!scdc_get_varint32(p, end, &v->markers))
		return false;

	v->version = (int64) ((uint64) prev->version + version);
	v->timestamp = (int64) ((uint64) prev->timestamp + timestamp);
	v->commit_time = (int64) ((uint64) v->timestamp + commit_time);
	v->commit_lsn = prev->commit_lsn + commit_lsn;
	v->xid = prev->xid + xid;
	return true;
}

static bool
read_directory(ScdcBlockReader *r, const char *raw, uint32 raw_len, const char **err)
{
	const ScdcVersion origin = {0};
	const uint8 *p = (const uint8 *) raw;
	const uint8 *end = p + raw_len;
	uint64		count;
	uint64		i;

	if (!scdc_get_varint(&p, end, &count) || count > (uint64) (end - p) / DIRECTORY_ENTRY_MIN)
		return damaged(err, "count of versions does not match the block's length");

	r->versions = palloc(Max(count, 1) * sizeof(ScdcVersion));
	for (i = 0; i < count; i++)
	{
		const ScdcVersion *prev = i > 0 ? &r->versions[i - 1] : &origin;

		if (!read_directory_entry(&p, end, prev, &r->versions[i]))
			return damaged(err, "list of versions is damaged");
		if (i > 0 && r->versions[i].version <= prev->version)
			return damaged(err, "versions of the block do not rise");
	}
	if (p != end)
		return damaged(err, "bytes are left after the list of versions");

	r->nversions = (int) count;
	return true;
}

bool
scdc_block_open_versions(ScdcBlockReader *r, const char *versions, uint32 versions_len,
						 const char **err)
{
	char	   *raw;
	uint32		raw_len;
	bool		intact;

	memset(r, 0, sizeof(*r));
	r->at.cur = -1;

	if (!open_part(versions, versions_len, DIRECTORY_RAW_LIMIT, &raw, &raw_len, err))
		return false;
	intact = read_directory(r, raw, raw_len, err);
	pfree(raw);
	if (!intact)
		scdc_block_close(r);
	return intact;
}

bool
scdc_block_open_changes(ScdcBlockReader *r, const char *changes, uint32 changes_len,
						const char **err)
{
	uint64		nevents = 0;
	int			i;

	Assert(r->raw == NULL);

	if (!open_part(changes, changes_len, CHANGES_RAW_LIMIT, &r->raw, &r->raw_len, err))
		return false;

	/* an event takes a byte at least */
	for (i = 0; i < r->nversions && nevents <= r->raw_len; i++)
	{
		const ScdcVersion *v = &r->versions[i];

		nevents += (uint64) v->inserts + v->updates + v->deletes + v->markers;
	}
	if (nevents > r->raw_len)
	{
		pfree(r->raw);
		r->raw = NULL;
		return damaged(err, "count of events does not match the block's length");
	}

	/* allocated here, and only enlarged later, so that it stays in this context */
	r->scratch_size = 512;
	r->scratch = palloc(r->scratch_size);
	r->at.pos = 0;
	r->at.cur = -1;
	r->at.left = 0;
	return true;
}

/* Steps to the next version that has events.  False if there is none. */
static bool
next_version(ScdcBlockReader *r)
{
	while (r->at.left == 0)
	{
		const ScdcVersion *v;

		if (r->at.cur + 1 >= r->nversions)
			return false;
		v = &r->versions[++r->at.cur];
		r->at.left_inserts = v->inserts;
		r->at.left_updates = v->updates;
		r->at.left_deletes = v->deletes;
		r->at.left_markers = v->markers;
		r->at.left = (uint64) v->inserts + v->updates + v->deletes + v->markers;
	}
	return true;
}

static inline bool
get_bytes(const uint8 **p, const uint8 *end, ScdcBytes *bytes)
{
	uint64		len;

	if (!scdc_get_varint(p, end, &len) || len > (uint64) (end - *p))
		return false;
	bytes->data = (const char *) *p;
	bytes->len = (uint32) len;
	*p += len;
	return true;
}

/* Reads what the new image of an UPDATE differs in. */
static inline bool
get_difference(ScdcBlockReader *r, const uint8 **p, const uint8 *end, const ScdcBytes *old)
{
	uint64		prefix;
	uint64		suffix;

	if (!scdc_get_varint(p, end, &prefix) || prefix > old->len ||
		!scdc_get_varint(p, end, &suffix) || suffix > old->len - prefix ||
		!get_bytes(p, end, &r->middle))
		return false;
	r->prefix = (uint32) prefix;
	r->suffix = (uint32) suffix;
	return true;
}

/* Rebuilds the new image in the reader's scratch buffer. */
static inline void
rebuild_image(ScdcBlockReader *r, const ScdcBytes *old, ScdcBytes *new)
{
	/* old image and middle both lie in the raw bytes, so this cannot overflow */
	uint32		len = r->prefix + r->middle.len + r->suffix;

	if (len > r->scratch_size)
	{
		uint32		size = Max(len, Min(r->scratch_size * 2, r->raw_len));

		r->scratch = repalloc(r->scratch, size);
		r->scratch_size = size;
	}
	memcpy(r->scratch, old->data, r->prefix);
	memcpy(r->scratch + r->prefix, r->middle.data, r->middle.len);
	memcpy(r->scratch + r->prefix + r->middle.len, old->data + old->len - r->suffix, r->suffix);
	new->data = r->scratch;
	new->len = len;
}

/* Reads the number of the old image's schema, if there is one of its own. */
static inline bool
get_old_schema(const uint8 **p, const uint8 *end, bool has_old, ScdcEvent *e)
{
	uint64		number;

	e->old_schema = 0;
	if ((e->flags & EVENT_OLD_SCHEMA) == 0)
		return true;
	e->flags &= ~EVENT_OLD_SCHEMA;
	if (e->kind != SCDC_EVENT_UPDATE || !has_old || !scdc_get_zigzag(p, end, &number) ||
		number == 0 || (int64) number != (int32) number)
		return false;
	e->old_schema = (int32) number;
	return true;
}

/* Reads the images that events of this kind have; of an update with an old one, that and the difference. */
static inline bool
get_images(ScdcBlockReader *r, const uint8 **p, const uint8 *end, bool has_old, ScdcEvent *e)
{
	e->old_image.data = NULL;
	e->old_image.len = 0;
	e->new_image.data = NULL;
	e->new_image.len = 0;

	switch (e->kind)
	{
		case SCDC_EVENT_INSERT:
			return has_old && get_bytes(p, end, &e->new_image);
		case SCDC_EVENT_UPDATE:
			if (!has_old)
				return get_bytes(p, end, &e->new_image);
			return get_bytes(p, end, &e->old_image) &&
				get_difference(r, p, end, &e->old_image);
		case SCDC_EVENT_DELETE:
			return !has_old || get_bytes(p, end, &e->old_image);
		case SCDC_EVENT_TRUNCATE:
		case SCDC_EVENT_GAP:
			return has_old;
	}
	return false;
}

/* The counter of the current version that an event of this kind uses up. */
static inline uint32 *
left_counter(ScdcBlockReader *r, ScdcEventKind kind)
{
	switch (kind)
	{
		case SCDC_EVENT_INSERT:
			return &r->at.left_inserts;
		case SCDC_EVENT_UPDATE:
			return &r->at.left_updates;
		case SCDC_EVENT_DELETE:
			return &r->at.left_deletes;
		case SCDC_EVENT_TRUNCATE:
		case SCDC_EVENT_GAP:
			return &r->at.left_markers;
	}
	return NULL;
}

/* After damage the position stays, so that further calls report it again. */
static inline int
next_event(ScdcBlockReader *r, ScdcEvent *e, const ScdcVersion **v, const char **err)
{
	const uint8 *start = (const uint8 *) r->raw;
	const uint8 *p = start + r->at.pos;
	const uint8 *end = start + r->raw_len;
	uint32	   *left;
	uint8		head;

	Assert(r->raw != NULL);

	if (!next_version(r))
	{
		if (p == end)
			return 0;
		*err = "bytes are left after the last event";
		return -1;
	}
	if (p == end)
	{
		*err = "events are missing from the block";
		return -1;
	}

	head = *p++;
	e->kind = (ScdcEventKind) (head & EVENT_KIND_MASK);
	e->flags = head >> EVENT_FLAGS_SHIFT;
	left = left_counter(r, e->kind);
	if (left == NULL || (e->flags & ~(EVENT_FLAGS_KNOWN | EVENT_OLD_SCHEMA)) != 0 ||
		((e->flags & (SCDC_EVENT_ENDS | SCDC_EVENT_STALL)) != 0 && e->kind != SCDC_EVENT_GAP))
	{
		*err = "event kind is not supported";
		return -1;
	}
	if (*left == 0)
	{
		*err = "events do not match the version's counts";
		return -1;
	}
	if (!get_old_schema(&p, end, (head & EVENT_NO_OLD_IMAGE) == 0, e) ||
		!get_images(r, &p, end, (head & EVENT_NO_OLD_IMAGE) == 0, e))
	{
		*err = "event is damaged";
		return -1;
	}

	(*left)--;
	r->at.left--;
	r->at.pos = (uint32) (p - start);
	*v = &r->versions[r->at.cur];
	return 1;
}

static inline bool
has_difference(const ScdcEvent *e)
{
	return e->kind == SCDC_EVENT_UPDATE && e->old_image.data != NULL;
}

int
scdc_block_next(ScdcBlockReader *r, ScdcEvent *e, const ScdcVersion **v, const char **err)
{
	int			result = next_event(r, e, v, err);

	if (result > 0 && has_difference(e))
		rebuild_image(r, &e->old_image, &e->new_image);
	return result;
}

int
scdc_block_next_incomplete(ScdcBlockReader *r, ScdcEvent *e, uint32 *shared, const ScdcVersion **v, const char **err)
{
	int			result = next_event(r, e, v, err);

	*shared = result > 0 && has_difference(e) ? r->prefix : 0;
	return result;
}

void
scdc_block_complete(ScdcBlockReader *r, ScdcEvent *e)
{
	if (has_difference(e))
		rebuild_image(r, &e->old_image, &e->new_image);
}

void
scdc_block_close(ScdcBlockReader *r)
{
	if (r->versions != NULL)
		pfree(r->versions);
	if (r->raw != NULL)
		pfree(r->raw);
	if (r->scratch != NULL)
		pfree(r->scratch);
	memset(r, 0, sizeof(*r));
	r->at.cur = -1;
}
