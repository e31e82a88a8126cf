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
#define SAME_BEGIN	0x80

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
	ScdcBytes	image = scdc_work_image(row);
	bool		same_commit = row->version == before->version && row->timestamp == before->timestamp;
	bool		same_begin = memcmp(image.data, before->image, SCDC_PACKED_BEGIN) == 0;
	uint8	   *p = head;

	Assert(image.len >= SCDC_PACKED_BEGIN);
	*p++ = (uint8) (type | row->label << LABEL_SHIFT | (same_commit ? SAME_COMMIT : 0) | (same_begin ? SAME_BEGIN : 0));
	p = scdc_put_varint(p, image.len - SCDC_PACKED_BEGIN);
	p = scdc_put_zigzag(p, (uint64) row->seq - (uint64) before->seq);
	if (!same_commit)
	{
		p = scdc_put_zigzag(p, (uint64) row->version - (uint64) before->version);
		p = scdc_put_zigzag(p, (uint64) row->timestamp - (uint64) before->timestamp);
	}
	if (!same_begin)
	{
		memcpy(p, image.data, SCDC_PACKED_BEGIN);
		memcpy(before->image, image.data, SCDC_PACKED_BEGIN);
		p += SCDC_PACKED_BEGIN;
	}
	memcpy(p, &row->hash, sizeof(row->hash));
	remember(before, row);
	return p + sizeof(row->hash) - head;
}

static bool
take(const uint8 **at, const uint8 *end, void *to, Size len)
{
	if ((Size) (end - *at) < len)
		return false;
	memcpy(to, *at, len);
	*at += len;
	return true;
}

bool
scdc_packed_row_read(const uint8 **at, const uint8 *end, ScdcWorkRow *header, ScdcPackedBefore *before)
{
	uint8		first;
	uint32		rest;
	uint64		seq;
	uint64		version = 0;
	uint64		timestamp = 0;

	if (!take(at, end, &first, 1))
		return false;
	header->type = first & TYPE_MASK;
	header->label = first >> LABEL_SHIFT & TYPE_MASK;
	if (header->type > SCDC_CHANGE_OTHER || header->label > SCDC_CHANGE_OTHER)
		return false;
	if (!scdc_get_varint32(at, end, &rest) || rest > PG_UINT32_MAX - SCDC_WORK_IMAGE - SCDC_PACKED_BEGIN)
		return false;
	header->size = (uint32) (SCDC_WORK_IMAGE + SCDC_PACKED_BEGIN + rest);
	if (!scdc_get_zigzag(at, end, &seq))
		return false;
	if (!(first & SAME_COMMIT) && (!scdc_get_zigzag(at, end, &version) || !scdc_get_zigzag(at, end, &timestamp)))
		return false;
	header->seq = (int64) (seq + (uint64) before->seq);
	header->version = (int64) (version + (uint64) before->version);
	header->timestamp = (int64) (timestamp + (uint64) before->timestamp);
	if (!(first & SAME_BEGIN) && !take(at, end, before->image, SCDC_PACKED_BEGIN))
		return false;
	if (!take(at, end, &header->hash, sizeof(header->hash)))
		return false;
	remember(before, header);
	return true;
}
