/*-------------------------------------------------------------------------
 *
 * parts.h
 *	  A temporary file in many parts, each of which is added to at its end, and
 *	  later read once from end to end.
 *
 * The server's logical tapes would do, but they write and read a block at a
 * time, and copy it twice on its way: a fifth of the time of a restored state.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_PARTS_H
#define SCDC_PARTS_H

typedef struct ScdcParts ScdcParts;

/*
 * Lives in the current context; its file belongs to the current resource
 * owner, and so is gone after an error.  memory: in bytes, for all buffers, as
 * long as that is at least a block for each part and one more; each has room
 * for a piece besides.  Writing raises 53100 if the disk is full, and 53400
 * beyond temp_file_limit.
 */
extern ScdcParts *scdc_parts_create(int nparts, Size memory);
extern void scdc_parts_end(ScdcParts *parts);

/* So many bytes can be made, or looked at, in place. */
#define SCDC_PARTS_PIECE	128

/* Room for a piece at the end of a part; what was put there, up to that many bytes, is added. */
extern uint8 *scdc_parts_piece(ScdcParts *parts, int part);
extern void scdc_parts_add_piece(ScdcParts *parts, int part, Size len);

/* Adds bytes at the end of a part. */
extern void scdc_parts_write(ScdcParts *parts, int part, const void *data, Size len);

/* Have the processor fetch a part that is written to soon, and then its end. */
extern void scdc_parts_fetch(const ScdcParts *parts, int part);
extern void scdc_parts_fetch_end(const ScdcParts *parts, int part);

/* Begins to read a part.  What was read of another before is forgotten. */
extern void scdc_parts_open(ScdcParts *parts, int part);

/* What comes next of it: a piece at least, or all that is left, until bytes are read; NULL at the end. */
extern const uint8 *scdc_parts_look(ScdcParts *parts, Size *len);

/* Passes over bytes that were looked at. */
extern void scdc_parts_skip(ScdcParts *parts, Size len);

/* Reads so many bytes of it; false if there are no more. */
extern bool scdc_parts_read(ScdcParts *parts, void *data, Size len);

#endif							/* SCDC_PARTS_H */
