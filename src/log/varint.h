/*-------------------------------------------------------------------------
 *
 * varint.h
 *	  Numbers in as many bytes as they need.
 *
 * A varint has seven bits a byte, the lowest first; the high bit says that
 * another byte follows.  A zigzag is a varint in which the sign is the lowest
 * bit, for differences; they wrap around, so that any two numbers have one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_VARINT_H
#define SCDC_VARINT_H

#define SCDC_VARINT64_MAX	10	/* bytes */
#define SCDC_VARINT32_MAX	5

/* Writes the number, and returns the place behind it. */
static inline uint8 *
scdc_put_varint(uint8 *p, uint64 value)
{
	while (value >= 0x80)
	{
		*p++ = (uint8) (value | 0x80);
		value >>= 7;
	}
	*p++ = (uint8) value;
	return p;
}

static inline uint8 *
scdc_put_zigzag(uint8 *p, uint64 difference)
{
	uint64		sign = (difference >> 63) ? ~UINT64CONST(0) : 0;

	return scdc_put_varint(p, (difference << 1) ^ sign);
}

/* Reads one from *pos on, and moves that behind it.  False if the bytes end or the value does not fit. */
static inline bool
scdc_get_varint(const uint8 **pos, const uint8 *end, uint64 *value)
{
	const uint8 *p = *pos;
	uint64		result = 0;
	int			shift;

	for (shift = 0; shift < 64; shift += 7)
	{
		uint8		byte;

		if (p >= end)
			return false;
		byte = *p++;
		if (shift == 63 && byte > 1)
			return false;
		result |= (uint64) (byte & 0x7f) << shift;
		if (byte < 0x80)
		{
			*pos = p;
			*value = result;
			return true;
		}
	}
	return false;
}

static inline bool
scdc_get_varint32(const uint8 **pos, const uint8 *end, uint32 *value)
{
	uint64		wide;

	if (!scdc_get_varint(pos, end, &wide) || wide > PG_UINT32_MAX)
		return false;
	*value = (uint32) wide;
	return true;
}

static inline bool
scdc_get_zigzag(const uint8 **pos, const uint8 *end, uint64 *difference)
{
	uint64		wide;

	if (!scdc_get_varint(pos, end, &wide))
		return false;
	*difference = (wide >> 1) ^ ((wide & 1) ? ~UINT64CONST(0) : 0);
	return true;
}

#endif							/* SCDC_VARINT_H */
