/*-------------------------------------------------------------------------
 *
 * state.h
 *	  The state of a query, in its store: whether it belongs to the batch that
 *	  the progress row says was done, and making it so.
 *
 * THE ORDER OF A BATCH, and what a crash between its steps leaves behind:
 *
 *	  1. plan		the batch's row in streamcdc.batches; commit
 *	  2. run		the rows are read, the new generation of state is written
 *					to the store beside the old one; sink and progress row,
 *					with a random token; commit
 *	  3. mark		the store's mark names batch and token; the old generation
 *					is deleted
 *
 *	  after 1: the batch is repeated as planned.
 *	  in 2: nothing of it counts.  The store's mark is that of the batch
 *	  before; what was written beside it is written again.
 *	  between 2 and 3: the mark is one batch behind the progress row.  The
 *	  batch is done again for its state only, from the old generation.
 *
 * The store is not synced: after the machine has crashed it may be any number
 * of batches behind, which is made good in the same way, as long as the
 * progress rows still know the token of the batch it is at.
 *
 * Anything else (no store, another query's, another timeline's, a mark that no
 * progress row knows, a damaged generation): the store is emptied, and batches
 * are done again from the first one that the state goes back to
 * (ScdcProgress.oldest_batch), as their rows in streamcdc.batches bound them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_STATE_H
#define SCDC_STATE_H

#include "jobs/query.h"

typedef struct ScdcState
{
	ScdcStore  *store;			/* NULL: the query keeps no state */
	int64		batch_id;		/* of the generation in it; -1: none */
	int64		rows;			/* in that generation, and their checksum */
	uint32		crc;
} ScdcState;

/*
 * Opens the store of a query and reads its mark.  A store that cannot be
 * opened is thrown away and made anew.  Raises 58030 if that fails, too.
 */
extern void scdc_state_open(ScdcState *state, const ScdcQuery *query);
extern void scdc_state_close(ScdcState *state);

/* Throws everything away. */
extern void scdc_state_reset(ScdcState *state, const ScdcQuery *query);

/*
 * First batch that has to be done again so that the state is that of the last
 * progress row; that row's number + 1 if none.  Empties the store if it cannot
 * be gone on with.  progress: all that are kept, oldest first.
 */
extern int64 scdc_state_first_to_redo(ScdcState *state, const ScdcQuery *query, List *progress);

/* Step 3. */
extern void scdc_state_mark(ScdcState *state, const ScdcQuery *query, int64 batch_id, int64 token, int64 rows, uint32 crc);

/* Deletes the state of a query that is not running; a WARNING if it cannot. */
extern void scdc_state_remove(const pg_uuid_t *query_id);

/* Deletes the state of all queries of a database; says so in the log if it cannot. */
extern void scdc_state_remove_all(Oid dboid);

#endif							/* SCDC_STATE_H */
