/*-------------------------------------------------------------------------
 *
 * image.h
 *	  Row images: the bytes of one row in a block.
 *
 * An image is a heap tuple from its t_infomask2 on, with only the number of
 * attributes and the "has nulls", "has variable width" bits left in the two
 * mask words: so a captured tuple is an image as it stands, and a reader gets
 * a tuple by putting an empty header in front.  Nothing in it is out of
 * line; values may be compressed in line.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_IMAGE_H
#define SCDC_IMAGE_H

#include "access/attmap.h"
#include "access/htup.h"
#include "log/block.h"
#include "log/schema.h"

/* An image larger than this is refused (api.md section 6). */
#define SCDC_IMAGE_MAX		(256 * 1024 * 1024)

/* Where a tuple comes from, which decides what its out-of-line values mean. */
typedef enum ScdcImageSource
{
	SCDC_IMAGE_FROM_WAL,		/* decoded; an on-disk pointer means "unchanged", the old tuple has the value */
	SCDC_IMAGE_FROM_WAL_INCOMPLETE, /* decoded without REPLICA IDENTITY FULL: such values become NULL */
	SCDC_IMAGE_FROM_TABLE		/* read from the table; out-of-line values are fetched */
} ScdcImageSource;

/*
 * Which column of a partition is which of the tracked table's, by name;
 * raises 42804 if one is missing or of another type, which the server sees to.
 * NULL if their tuples are laid out the same.  Current context.
 */
extern AttrMap *scdc_image_map(Relation partition, Relation root);

/*
 * The image of a tuple of a relation.  map: from scdc_image_map, NULL if
 * schema was made of rel itself.  fallback:
 * the old tuple of an update, which holds the values that the new one left
 * out as unchanged; else NULL.  The tuple's header is changed in place, so it
 * must be the caller's own; the result points into it, or into the current
 * context.  Raises 54000 for a row larger than SCDC_IMAGE_MAX.  Functions of
 * users (casts to json) are run as the relation's owner.
 */
extern ScdcBytes scdc_image_make(const ScdcSchema *schema, Relation rel, const AttrMap *map, HeapTuple tuple,
								 HeapTuple fallback, ScdcImageSource source);

/* The same with the relation's owner and descriptor, which may be the one of an earlier time. */
extern ScdcBytes scdc_image_make_of(const ScdcSchema *schema, Oid owner, TupleDesc desc, const AttrMap *map, HeapTuple tuple,
									HeapTuple fallback, ScdcImageSource source);

/* What a value is stored as where it is not stored raw: its text, and to_jsonb() of it.  In the current context. */
extern char *scdc_output_form(Datum value, Oid type);
extern char *scdc_jsonb_form(Datum value, Oid type);

/* Raises XX001 if that is not the image of a row of the schema, as far as can be seen from its header. */
extern void scdc_image_check(const ScdcSchema *schema, ScdcBytes image);

/*
 * Splits an image into image_desc's attributes.  *buffer (enlarged as needed,
 * palloc'd in the current context, starts NULL/0) holds the tuple the datums point into.
 */
typedef struct ScdcImageBuffer
{
	char	   *data;
	Size		size;
} ScdcImageBuffer;

extern void scdc_image_deform(const ScdcSchema *schema, ScdcBytes image, ScdcImageBuffer *buffer,
							  Datum *values, bool *isnull);

#endif							/* SCDC_IMAGE_H */
