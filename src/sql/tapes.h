/*-------------------------------------------------------------------------
 *
 * tapes.h
 *	  Temporary files for the collapse library (collapse.h), all of them in
 *	  one file of the server's.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_TAPES_H
#define SCDC_TAPES_H

typedef struct ScdcTapes ScdcTapes;

/*
 * Lives in the current context; its file, which comes into being with the
 * first tape, belongs to the current resource owner, and so is gone after an
 * error.  read_twice: tapes will be read more than once (labelled rows),
 * and the space of what was read is not used again.
 */
extern ScdcTapes *scdc_tapes_create(bool read_twice);
extern void scdc_tapes_end(ScdcTapes *tapes);

extern void *scdc_tape_create(ScdcTapes *tapes);

/* Members of ScdcCollapseOps as they stand; arg is not looked at. */
extern void scdc_tape_write(void *tape, const void *data, Size size, void *arg);
extern void scdc_tape_rewind(void *tape, void *arg);
extern void scdc_tape_read(void *tape, void *data, Size size, void *arg);
extern void scdc_tape_close(void *tape, void *arg);

#endif							/* SCDC_TAPES_H */
