/*-------------------------------------------------------------------------
 *
 * packed_row.h
 *	  Work rows as they are in files and in the state store: without what they
 *	  share with the row before.
 *
 * A packed row is a head, and the rest of the row's image after it:
 *
 *		byte				type, label << 3; bit 6: version and timestamp are
 *							those of the row before; bit 7: so is the begin of
 *							the image
 *		varint				length of the rest
 *		zigzag				seq, from that of the row before
 *		zigzag, zigzag		version and timestamp from those of the row before,
 *							unless bit 6
 *		6 bytes				begin of the image, unless bit 7: the header of
 *							its tuple
 *		8 bytes				hash
 *
 * The first of a sequence of rows comes after one of zeroes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_PACKED_ROW_H
#define SCDC_PACKED_ROW_H

#include "jobs/work.h"
#include "log/varint.h"

/* No image is shorter. */
#define SCDC_PACKED_BEGIN		(MAXALIGN(SizeofMinimalTupleHeader) - offsetof(MinimalTupleData, t_infomask2))

#define SCDC_PACKED_HEAD_MAX	(1 + SCDC_VARINT32_MAX + 3 * SCDC_VARINT64_MAX + SCDC_PACKED_BEGIN + 8)

/* What is kept of the row before. */
typedef struct ScdcPackedBefore
{
	int64		version;
	int64		seq;
	TimestampTz timestamp;
	char		image[SCDC_PACKED_BEGIN];
} ScdcPackedBefore;

/* Writes the head of a row, as one of that type; returns its length. */
extern Size scdc_packed_row_head(uint8 *head, const ScdcWorkRow *row, ScdcChangeType type, ScdcPackedBefore *before);

/* What has to follow it. */
static inline ScdcBytes
scdc_packed_row_rest(const ScdcWorkRow *row)
{
	ScdcBytes	image = scdc_work_image(row);

	return (ScdcBytes) {image.data + SCDC_PACKED_BEGIN, image.len - SCDC_PACKED_BEGIN};
}

/*
 * Reads a head from *at on, and moves that behind it.  The header has
 * everything of the row but its tuple then.  False if it is damaged.
 */
extern bool scdc_packed_row_read(const uint8 **at, const uint8 *end, ScdcWorkRow *header, ScdcPackedBefore *before);

/* Begins a row in a room of header->size; returns where the rest of it goes. */
static inline char *
scdc_packed_row_begin(ScdcWorkRow *row, const ScdcWorkRow *header, const ScdcPackedBefore *before)
{
	char	   *image;

	*row = *header;
	image = scdc_work_begin_tuple(row);
	memcpy(image, before->image, SCDC_PACKED_BEGIN);
	return image + SCDC_PACKED_BEGIN;
}

#endif							/* SCDC_PACKED_ROW_H */
