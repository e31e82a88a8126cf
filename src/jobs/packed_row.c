/*-------------------------------------------------------------------------
 *
 * packed_row.c
 *	  Work rows as they are in files and in the state store (see packed_row.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "jobs/packed_row.h"

#define TYPE_MASK	0x07
#define LABEL_SHIFT 3
#define SAME_COMMIT 0x40

static void
remember(ScdcPackedBefore *before, const ScdcWorkRow *row)
{
	before->version = row->version;
	before->seq = row->seq;
	before->timestamp = row->timestamp;
}

Size
scdc_packed_row_head(uint8 *head, const ScdcWorkRow *row, ScdcChangeType type, ScdcPackedBefore *before)
{
	bool		same = row->version == before->version && row->timestamp == before->timestamp;
	uint8	   *p = head;

	*p++ = (uint8) (type | row->label << LABEL_SHIFT | (same ? SAME_COMMIT : 0));
	p = scdc_put_varint(p, scdc_work_image(row).len);
	p = scdc_put_zigzag(p, (uint64) row->seq - (uint64) before->seq);
	if (!same)
	{
		p = scdc_put_zigzag(p, (uint64) row->version - (uint64) before->version);
		p = scdc_put_zigzag(p, (uint64) row->timestamp - (uint64) before->timestamp);
	}
	memcpy(p, &row->hash, sizeof(row->hash));
	remember(before, row);
	return p + sizeof(row->hash) - head;
}

bool
scdc_packed_row_read(const uint8 **at, const uint8 *end, ScdcWorkRow *header, ScdcPackedBefore *before)
{
	uint8		first;
	uint32		len;
	uint64		seq;
	uint64		version = 0;
	uint64		timestamp = 0;

	if (*at == end)
		return false;
	first = *(*at)++;
	header->type = first & TYPE_MASK;
	header->label = first >> LABEL_SHIFT & TYPE_MASK;
	if (header->type > SCDC_CHANGE_OTHER || header->label > SCDC_CHANGE_OTHER)
		return false;
	if (!scdc_get_varint32(at, end, &len) || len < SizeofMinimalTupleHeader - (SCDC_WORK_IMAGE - SCDC_WORK_TUPLE) ||
		len > PG_UINT32_MAX - SCDC_WORK_IMAGE)
		return false;
	header->size = (uint32) SCDC_WORK_IMAGE + len;
	if (!scdc_get_zigzag(at, end, &seq))
		return false;
	if (!(first & SAME_COMMIT) && (!scdc_get_zigzag(at, end, &version) || !scdc_get_zigzag(at, end, &timestamp)))
		return false;
	header->seq = (int64) (seq + (uint64) before->seq);
	header->version = (int64) (version + (uint64) before->version);
	header->timestamp = (int64) (timestamp + (uint64) before->timestamp);
	if ((Size) (end - *at) < sizeof(header->hash))
		return false;
	memcpy(&header->hash, *at, sizeof(header->hash));
	*at += sizeof(header->hash);
	remember(before, header);
	return true;
}
