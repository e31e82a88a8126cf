/*-------------------------------------------------------------------------
 *
 * tapes.c
 *	  Temporary files for the collapse library, all of them in one file of
 *	  the server's.
 *
 * A range far larger than work_mem is split into some hundred or thousand
 * files.  Making and unlinking that many costs some file systems more than
 * writing and reading them, hence the server's logical tapes, whose blocks
 * share one file.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/logtape.h"
#include "utils/memutils.h"

#include "sql/tapes.h"

struct ScdcTapes
{
	MemoryContext context;
	LogicalTapeSet *set;		/* NULL: there was no tape yet */
	bool		read_twice;
};

typedef struct Tape
{
	ScdcTapes  *tapes;
	LogicalTape *tape;
	bool		frozen;
} Tape;

ScdcTapes *
scdc_tapes_create(bool read_twice)
{
	ScdcTapes  *tapes = palloc0(sizeof(ScdcTapes));

	tapes->context = CurrentMemoryContext;
	tapes->read_twice = read_twice;
	return tapes;
}

void
scdc_tapes_end(ScdcTapes *tapes)
{
	if (tapes->set)
		LogicalTapeSetClose(tapes->set);
	pfree(tapes);
}

void *
scdc_tape_create(ScdcTapes *tapes)
{
	MemoryContext old = MemoryContextSwitchTo(tapes->context);
	Tape	   *tape = palloc0(sizeof(Tape));

	if (tapes->set == NULL)
		tapes->set = LogicalTapeSetCreate(false, NULL, -1);
	tape->tapes = tapes;
	tape->tape = LogicalTapeCreate(tapes->set);
	MemoryContextSwitchTo(old);
	return tape;
}

/* Tapes allocate their buffers when they are first used. */
void
scdc_tape_write(void *handle, const void *data, Size size, void *arg)
{
	Tape	   *tape = handle;
	MemoryContext old = MemoryContextSwitchTo(tape->tapes->context);

	LogicalTapeWrite(tape->tape, unconstify(void *, data), size);
	MemoryContextSwitchTo(old);
}

void
scdc_tape_rewind(void *handle, void *arg)
{
	Tape	   *tape = handle;
	MemoryContext old = MemoryContextSwitchTo(tape->tapes->context);

	/* only frozen tapes can be rewound again */
	if (tape->tapes->read_twice && !tape->frozen)
	{
		LogicalTapeFreeze(tape->tape, NULL);
		tape->frozen = true;
	}
	else
		LogicalTapeRewindForRead(tape->tape, BLCKSZ);
	MemoryContextSwitchTo(old);
}

void
scdc_tape_read(void *handle, void *data, Size size, void *arg)
{
	Tape	   *tape = handle;
	MemoryContext old = MemoryContextSwitchTo(tape->tapes->context);
	size_t		nread = LogicalTapeRead(tape->tape, data, size);

	MemoryContextSwitchTo(old);
	if (nread != size)
		elog(ERROR, "unexpected end of tape: read %zu of %zu bytes", nread, (size_t) size);
}

void
scdc_tape_close(void *handle, void *arg)
{
	Tape	   *tape = handle;

	LogicalTapeClose(tape->tape);
	pfree(tape);
}
