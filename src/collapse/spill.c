/*-------------------------------------------------------------------------
 *
 * spill.c
 *	  Records of rows in files, partitioned by the hash of their identity.
 *
 * All records of an identity are in one partition, in the order in which
 * they were written.  The second row of a record, mostly the next image of
 * the first, is written as the difference to it.
 *
 *-------------------------------------------------------------------------
 */
#ifdef FRONTEND
#include "postgres_fe.h"
#else
#include "postgres.h"
#endif

#include "collapse/internal.h"

#define HASH_BITS		32
#define SPLIT_BITS		6		/* bits of the hash a split uses up, from the top; tables use it from the bottom */

/*
 * A record in the file:
 *
 *		hash			4 bytes
 *		what there is	1 byte, see below
 *		labels, places	1 byte for each row
 *		length			1 byte, of the numbers
 *		numbers			of 7 bits a byte, the low ones first, 0x80 if more follow:
 *						version and timestamp (zigzag) as differences to the record before,
 *						seq of each row (one, if it is the same for both),
 *						size of each row;
 *						of two rows, the bytes that the second has in common with the first at either end
 *		bytes			of the first row, and of the second what is not in common
 */
#define HAS_FIRST		0x01
#define HAS_SECOND		0x02
#define SAME_SEQ		0x04
#define FIXED_SIZE		8		/* of what comes before the numbers */
#define NUMBERS_MAX		(FIXED_SIZE + 8 * 10)

typedef struct Numbers
{
	uint8		bytes[NUMBERS_MAX];
	int			n;
} Numbers;

static inline void
put_number(Numbers *numbers, uint64 value)
{
	while (value >= 0x80)
	{
		numbers->bytes[numbers->n++] = (uint8) (value | 0x80);
		value >>= 7;
	}
	numbers->bytes[numbers->n++] = (uint8) value;
}

static inline uint64
get_number(Numbers *numbers)
{
	uint64		value = 0;
	int			shift = 0;
	uint8		byte;

	do
	{
		byte = numbers->bytes[numbers->n++];
		value |= (uint64) (byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	return value;
}

static inline uint64
zigzag(int64 value)
{
	return ((uint64) value << 1) ^ (uint64) (value >> 63);
}

static inline int64
unzigzag(uint64 value)
{
	return (int64) (value >> 1) ^ -(int64) (value & 1);
}

static inline uint8
pack_label(const ScdcPlacedRow *row)
{
	return (uint8) (row->change.type << 4 | row->order);
}

/* Above this, a partition's buffer is too much for the memory it serves. */
#define MEMORY_PER_PARTITION	((Size) 16 * 1024)

bool
scdc_can_split(int depth)
{
	return (depth + 1) * SPLIT_BITS <= HASH_BITS;
}

static int
partition_count(Size limit)
{
	int			count = 4;

	while (count < SCDC_MAX_PARTITIONS && count * 2 * MEMORY_PER_PARTITION <= limit)
		count *= 2;
	return count;
}

static uint32
common_head(const char *a, const char *b, uint32 limit)
{
	uint32		n = 0;

	while (n + sizeof(uint64) <= limit)
	{
		uint64		x;
		uint64		y;

		memcpy(&x, a + n, sizeof(x));
		memcpy(&y, b + n, sizeof(y));
		if (x != y)
			break;
		n += sizeof(uint64);
	}
	while (n < limit && a[n] == b[n])
		n++;
	return n;
}

static uint32
common_tail(const char *a_end, const char *b_end, uint32 limit)
{
	uint32		n = 0;

	while (n < limit && a_end[-1 - (int64) n] == b_end[-1 - (int64) n])
		n++;
	return n;
}

void
scdc_spill(ScdcCollapse *c, ScdcPartitions *parts, const ScdcRecord *record)
{
	const ScdcPlacedRow *a = &record->rows[0];
	const ScdcPlacedRow *b = &record->rows[1];
	const ScdcPlacedRow *any = a->change.row ? a : b;
	Numbers		numbers = {.n = FIXED_SIZE};
	uint8	   *fixed = numbers.bytes;
	uint8		what = 0;
	uint32		head = 0;
	uint32		tail = 0;
	int			n;

	if (parts->count == 0)
	{
		memset(parts->version, 0, sizeof(parts->version));
		memset(parts->timestamp, 0, sizeof(parts->timestamp));
		parts->count = partition_count(c->memory_limit);
		memset(parts->files, 0, sizeof(parts->files));
		memset(parts->nrecords, 0, sizeof(parts->nrecords));
	}
	n = (record->hash >> (HASH_BITS - (parts->depth + 1) * SPLIT_BITS)) & (parts->count - 1);
	if (parts->files[n] == NULL)
		parts->files[n] = c->ops.file_create(c->ops.arg);

	put_number(&numbers, zigzag(any->change.version - parts->version[n]));
	put_number(&numbers, zigzag(any->change.timestamp - parts->timestamp[n]));
	parts->version[n] = any->change.version;
	parts->timestamp[n] = any->change.timestamp;
	put_number(&numbers, zigzag(any->change.seq));
	if (a->change.row)
	{
		what |= HAS_FIRST;
		put_number(&numbers, a->size);
	}
	if (b->change.row)
	{
		what |= HAS_SECOND;
		put_number(&numbers, b->size);
	}
	if (what == (HAS_FIRST | HAS_SECOND))
	{
		uint32		limit = Min(a->size, b->size);

		head = common_head(a->change.row, b->change.row, limit);
		tail = common_tail((const char *) a->change.row + a->size, (const char *) b->change.row + b->size,
						   limit - head);
		put_number(&numbers, head);
		put_number(&numbers, tail);
		if (a->change.seq == b->change.seq)
			what |= SAME_SEQ;
		else
			put_number(&numbers, zigzag(b->change.seq));
	}

	memcpy(fixed, &record->hash, sizeof(uint32));
	fixed[4] = what;
	fixed[5] = pack_label(a);
	fixed[6] = pack_label(b);
	fixed[7] = (uint8) (numbers.n - FIXED_SIZE);
	c->ops.file_write(parts->files[n], fixed, numbers.n, c->ops.arg);
	if (a->change.row)
		c->ops.file_write(parts->files[n], a->change.row, a->size, c->ops.arg);
	if (b->change.row)
		c->ops.file_write(parts->files[n], (const char *) b->change.row + head, b->size - head - tail, c->ops.arg);
	parts->nrecords[n]++;
	scdc_check_interrupts(c);
}

bool
scdc_partition_open(ScdcCollapse *c, ScdcPartitions *parts, int n, ScdcPartition *partition)
{
	if (parts->files[n] == NULL)
		return false;
	memset(partition, 0, sizeof(*partition));
	partition->c = c;
	partition->file = parts->files[n];
	partition->nrecords = parts->nrecords[n];
	partition->depth = parts->depth + 1;
	parts->files[n] = NULL;
	scdc_partition_rewind(partition);
	return true;
}

void
scdc_partition_rewind(ScdcPartition *partition)
{
	partition->c->ops.file_rewind(partition->file, partition->c->ops.arg);
	partition->left = partition->nrecords;
	partition->version = 0;
	partition->timestamp = 0;
}

static char *
partition_buffer(ScdcPartition *partition, Size size)
{
	if (partition->size < size)
	{
		if (partition->buffer)
			pfree(partition->buffer);
		partition->size = Max(size * 2, 1024);
		partition->buffer = scdc_context_alloc(partition->c->context, partition->size);
	}
	return partition->buffer;
}

bool
scdc_partition_read(ScdcPartition *partition, ScdcRecord *record)
{
	ScdcCollapse *c = partition->c;
	ScdcPlacedRow *a = &record->rows[0];
	ScdcPlacedRow *b = &record->rows[1];
	Numbers		numbers = {.n = 0};
	uint8		fixed[FIXED_SIZE];
	uint8		what;
	uint32		head = 0;
	uint32		tail = 0;
	char	   *first;
	char	   *second;

	if (partition->left == 0)
		return false;
	partition->left--;
	c->ops.file_read(partition->file, fixed, FIXED_SIZE, c->ops.arg);
	what = fixed[4];
	c->ops.file_read(partition->file, numbers.bytes, fixed[7], c->ops.arg);

	memset(record, 0, sizeof(*record));
	memcpy(&record->hash, fixed, sizeof(uint32));
	partition->version += unzigzag(get_number(&numbers));
	partition->timestamp += unzigzag(get_number(&numbers));
	for (int i = 0; i < 2; i++)
	{
		ScdcPlacedRow *row = &record->rows[i];

		row->change.type = (ScdcChangeType) (fixed[5 + i] >> 4);
		row->order = fixed[5 + i] & 0x0f;
		row->change.version = partition->version;
		row->change.timestamp = partition->timestamp;
		row->hash = record->hash;
	}
	a->change.seq = b->change.seq = unzigzag(get_number(&numbers));
	if (what & HAS_FIRST)
		a->size = (uint32) get_number(&numbers);
	if (what & HAS_SECOND)
		b->size = (uint32) get_number(&numbers);
	if ((what & HAS_FIRST) && (what & HAS_SECOND))
	{
		head = (uint32) get_number(&numbers);
		tail = (uint32) get_number(&numbers);
		if ((what & SAME_SEQ) == 0)
			b->change.seq = unzigzag(get_number(&numbers));
	}

	first = partition_buffer(partition, MAXALIGN(a->size) + b->size);
	second = first + MAXALIGN(a->size);
	if (what & HAS_FIRST)
	{
		c->ops.file_read(partition->file, first, a->size, c->ops.arg);
		a->change.row = first;
	}
	if (what & HAS_SECOND)
	{
		memcpy(second, first, head);
		memcpy(second + b->size - tail, first + a->size - tail, tail);
		c->ops.file_read(partition->file, second + head, b->size - head - tail, c->ops.arg);
		b->change.row = second;
	}
	scdc_check_interrupts(c);
	return true;
}

void
scdc_partition_close(ScdcPartition *partition)
{
	partition->c->ops.file_close(partition->file, partition->c->ops.arg);
	if (partition->buffer)
		pfree(partition->buffer);
}

void
scdc_settle(ScdcCollapse *c, ScdcTable *table, ScdcPartitions *spilled,
			void (*settle_table) (ScdcCollapse *c),
			void (*feed) (ScdcCollapse *c, const ScdcRecord *record))
{
	ScdcPartitions parts = *spilled;

	settle_table(c);
	for (int i = 0; i < parts.count; i++)
	{
		ScdcPartition partition;
		ScdcRecord	record;

		if (!scdc_partition_open(c, &parts, i, &partition))
			continue;
		scdc_table_reset(table);
		scdc_pool_reset(table->pool);
		spilled->count = 0;
		spilled->depth = partition.depth;
		while (scdc_partition_read(&partition, &record))
			feed(c, &record);
		scdc_partition_close(&partition);
		scdc_settle(c, table, spilled, settle_table, feed);
	}
}
