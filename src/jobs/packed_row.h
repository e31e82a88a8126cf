/*-------------------------------------------------------------------------
 *
 * packed_row.h
 *	  Work rows as they are in files and in the state store: without what they
 *	  share with the row before.
 *
 * A packed row is a head, and the row's image after it:
 *
 *		byte				type, label << 3; bit 6: version and timestamp are
 *							those of the row before
 *		varint				length of the image
 *		zigzag				seq, from that of the row before
 *		zigzag, zigzag		version and timestamp from those of the row before,
 *							unless bit 6
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

#define SCDC_PACKED_HEAD_MAX	(1 + SCDC_VARINT32_MAX + 3 * SCDC_VARINT64_MAX + 8)

/* What is kept of the row before. */
typedef struct ScdcPackedBefore
{
	int64		version;
	int64		seq;
	TimestampTz timestamp;
} ScdcPackedBefore;

/* Writes the head of a row, as one of that type; returns its length. */
extern Size scdc_packed_row_head(uint8 *head, const ScdcWorkRow *row, ScdcChangeType type, ScdcPackedBefore *before);

/*
 * Reads a head from *at on, and moves that behind it: all of a row but its
 * image, which scdc_work_begin_tuple has place for.  False if it is damaged.
 */
extern bool scdc_packed_row_read(const uint8 **at, const uint8 *end, ScdcWorkRow *header, ScdcPackedBefore *before);

#endif							/* SCDC_PACKED_ROW_H */
