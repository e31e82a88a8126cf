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

/* What stands in the file, followed by the bytes. */
typedef struct RecordHeader
{
	int64		version;
	int64		timestamp;
	int64		seq[2];
	uint32		hash;
	uint32		size[2];
	uint32		head;			/* bytes that the second has in common with the first, at both ends */
	uint32		tail;
	uint8		present;		/* bit 0 and 1 */
	uint8		type[2];
	uint8		order[2];
} RecordHeader;

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
	RecordHeader header;
	int			n;

	if (parts->count == 0)
	{
		parts->count = partition_count(c->memory_limit);
		memset(parts->files, 0, sizeof(parts->files));
		memset(parts->nrecords, 0, sizeof(parts->nrecords));
	}
	n = (record->hash >> (HASH_BITS - (parts->depth + 1) * SPLIT_BITS)) & (parts->count - 1);
	if (parts->files[n] == NULL)
		parts->files[n] = c->ops.file_create(c->ops.arg);

	memset(&header, 0, sizeof(header));
	header.version = any->change.version;
	header.timestamp = any->change.timestamp;
	header.hash = record->hash;
	for (int i = 0; i < 2; i++)
	{
		const ScdcPlacedRow *row = &record->rows[i];

		if (row->change.row == NULL)
			continue;
		header.present |= 1 << i;
		header.seq[i] = row->change.seq;
		header.size[i] = row->size;
		header.type[i] = row->change.type;
		header.order[i] = row->order;
	}
	if (header.present == 3)
	{
		uint32		limit = Min(a->size, b->size);
		const char *x = a->change.row;
		const char *y = b->change.row;

		header.head = common_head(x, y, limit);
		header.tail = common_tail(x + a->size, y + b->size, limit - header.head);
	}

	c->ops.file_write(parts->files[n], &header, sizeof(header), c->ops.arg);
	if (header.present & 1)
		c->ops.file_write(parts->files[n], a->change.row, a->size, c->ops.arg);
	if (header.present & 2)
		c->ops.file_write(parts->files[n], (const char *) b->change.row + header.head,
						  b->size - header.head - header.tail, c->ops.arg);
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
}

bool
scdc_partition_read(ScdcPartition *partition, ScdcRecord *record)
{
	ScdcCollapse *c = partition->c;
	RecordHeader header;
	Size		second;
	Size		needed;

	if (partition->left == 0)
		return false;
	partition->left--;
	c->ops.file_read(partition->file, &header, sizeof(header), c->ops.arg);

	second = MAXALIGN(header.size[0]);
	needed = second + header.size[1];
	if (partition->size < needed)
	{
		if (partition->buffer)
			pfree(partition->buffer);
		partition->size = Max(needed * 2, 1024);
		partition->buffer = scdc_context_alloc(c->context, partition->size);
	}

	memset(record, 0, sizeof(*record));
	record->hash = header.hash;
	for (int i = 0; i < 2; i++)
	{
		ScdcPlacedRow *row = &record->rows[i];
		char	   *bytes = partition->buffer + (i == 0 ? 0 : second);

		if ((header.present & (1 << i)) == 0)
			continue;
		row->change.type = (ScdcChangeType) header.type[i];
		row->change.version = header.version;
		row->change.timestamp = header.timestamp;
		row->change.seq = header.seq[i];
		row->change.row = bytes;
		row->size = header.size[i];
		row->hash = header.hash;
		row->order = header.order[i];

		if (i == 1)
		{
			memcpy(bytes, partition->buffer, header.head);
			memcpy(bytes + row->size - header.tail, partition->buffer + header.size[0] - header.tail, header.tail);
		}
		c->ops.file_read(partition->file, bytes + (i == 1 ? header.head : 0),
						 i == 0 ? row->size : row->size - header.head - header.tail, c->ops.arg);
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
