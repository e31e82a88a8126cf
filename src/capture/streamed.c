/*-------------------------------------------------------------------------
 *
 * streamed.c
 *	  Transactions that are decoded while they are still running (see
 *	  streamed.h).
 *
 * For each transaction and stream there is a block being built and a queue of
 * finished ones.  They use the change log's codec; the directory, which in
 * the log says to which version events belong, here says which
 * subtransaction wrote them: a "version" is a run of events of one xid.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "capture/spool.h"
#include "capture/streamed.h"
#include "guc.h"

/* Smaller than the log's blocks: there may be many at once, and they are not kept. */
#define STREAMED_RAW_MAX	(256 * 1024)
#define STREAMED_RAW_MIN	(8 * 1024)	/* below which compression does not pay */

/* What one transaction did to one stream. */
typedef struct Part
{
	struct Part *next;
	ScdcTracked *tracked;
	ScdcSchema *schema;			/* of the block being built */
	ScdcBlockBuilder *builder;	/* NULL: none is */
	int64		run;			/* number of the current run of events ... */
	TransactionId run_xid;		/* ... and who wrote them */
	bool		gap_seen;		/* a gap need not be told for each row that makes it, */
	uint8		gap_flags;		/* with these */
	ScdcSpool  *spool;			/* finished blocks; their schema goes with them */
} Part;

typedef struct Streamed
{
	TransactionId xid;			/* hash key */
	MemoryContext cxt;
	Part	   *parts;
	ScdcCommands commands;
	bool		message;
} Streamed;

static HTAB *transactions;
static Size total_memory = 0;	/* of all spools */
static int	open_builders = 0;	/* of all transactions */

void
scdc_streamed_init(void)
{
	HASHCTL		ctl = {0};

	ctl.keysize = sizeof(TransactionId);
	ctl.entrysize = sizeof(Streamed);
	transactions = hash_create("streamcdc streamed transactions", 16, &ctl, HASH_ELEM | HASH_BLOBS);
}

static Streamed *
streamed_entry(TransactionId xid)
{
	bool		found;
	Streamed   *s = hash_search(transactions, &xid, HASH_ENTER, &found);

	if (!found)
	{
		memset((char *) s + sizeof(TransactionId), 0, sizeof(Streamed) - sizeof(TransactionId));
		s->cxt = AllocSetContextCreate(TopMemoryContext, "streamcdc streamed transaction", ALLOCSET_SMALL_SIZES);
		s->commands.cxt = s->cxt;
	}
	return s;
}

static Part *
part_of(Streamed *s, ScdcTracked *t)
{
	Part	   *p;

	for (p = s->parts; p; p = p->next)
		if (p->tracked == t)
			return p;
	p = MemoryContextAllocZero(s->cxt, sizeof(Part));
	p->tracked = t;
	p->spool = scdc_spool_create(sizeof(ScdcSchema *));
	p->next = s->parts;
	s->parts = p;
	return p;
}

static void
finish_block(Part *p)
{
	ScdcBlock	block;
	Size		before = scdc_spool_memory(p->spool);
	Size		max = (Size) scdc_capture_memory * 1024 / 8;

	if (p->builder == NULL)
		return;
	scdc_block_finish(p->builder, &block);
	scdc_builder_put(p->builder);
	open_builders--;
	p->builder = NULL;

	/* what all transactions together have in memory counts */
	scdc_spool_append(p->spool, &p->schema, &block, before + (max > total_memory ? max - total_memory : 0));
	total_memory += scdc_spool_memory(p->spool) - before;
	pfree(block.versions);
	pfree(block.changes);
}

/* Many blocks being built share what memory there is. */
static Size
block_limit(void)
{
	Size		share = (Size) scdc_capture_memory * 1024 / 4 / Max(open_builders, 1);

	return Max(STREAMED_RAW_MIN, Min(share, STREAMED_RAW_MAX));
}

void
scdc_streamed_event(TransactionId xid, TransactionId subxid, ScdcTracked *t, ScdcSchema *schema,
					const ScdcEvent *event)
{
	Part	   *p = part_of(streamed_entry(xid), t);
	uint64		size = (uint64) event->old_image.len + event->new_image.len;

	if (event->kind == SCDC_EVENT_GAP)
	{
		if (p->gap_seen && p->run_xid == subxid && (event->flags & ~p->gap_flags) == 0)
			return;
		p->gap_seen = true;
		p->gap_flags = event->flags;
	}
	else
		p->gap_seen = false;

	if (p->builder && (p->schema != schema || scdc_block_raw_size(p->builder) + size > block_limit()))
		finish_block(p);
	if (p->builder == NULL || p->run_xid != subxid)
	{
		ScdcVersion run = {0};

		if (p->builder == NULL)
		{
			p->builder = scdc_builder_get();
			open_builders++;
		}
		run.version = ++p->run;
		run.xid = subxid;
		scdc_block_begin_version(p->builder, &run);
		p->run_xid = subxid;
		p->schema = schema;
	}
	scdc_block_add(p->builder, event);
}

ScdcCommands *
scdc_streamed_commands(TransactionId xid, bool create)
{
	Streamed   *s = create ? streamed_entry(xid) : hash_search(transactions, &xid, HASH_FIND, NULL);

	return s ? &s->commands : NULL;
}

void
scdc_streamed_message(TransactionId xid)
{
	streamed_entry(xid)->message = true;
}

static void
forget(Streamed *s)
{
	for (Part *p = s->parts; p; p = p->next)
	{
		if (p->builder)
		{
			ScdcBlock	block;

			/* a builder is emptied by finishing its block */
			scdc_block_finish(p->builder, &block);
			pfree(block.versions);
			pfree(block.changes);
			scdc_builder_put(p->builder);
			open_builders--;
		}
		total_memory -= scdc_spool_memory(p->spool);
		scdc_spool_free(p->spool);
	}
	MemoryContextDelete(s->cxt);
	hash_search(transactions, &s->xid, HASH_REMOVE, NULL);
}

void
scdc_streamed_abort(TransactionId xid)
{
	Streamed   *s = hash_search(transactions, &xid, HASH_FIND, NULL);

	if (s == NULL)
		return;					/* it did nothing to a tracked table */
	forget(s);
}

static int
compare_xids(const void *a, const void *b)
{
	TransactionId x = *(const TransactionId *) a;
	TransactionId y = *(const TransactionId *) b;

	return x < y ? -1 : x > y ? 1 : 0;	/* any order will do to search by */
}

/* Hands on the events of one block that were not rolled back. */
static void
feed_block(const TransactionId *committed, int ncommitted, ScdcTracked *t, ScdcSchema *schema, const ScdcBlock *block)
{
	ScdcBlockReader reader = {0};
	ScdcEvent	event;
	const ScdcVersion *run,
			   *last_run = NULL;
	bool		counts = false;
	const char *error;
	int			rc;

	if (!scdc_block_open_versions(&reader, block->versions, block->versions_len, &error) ||
		!scdc_block_open_changes(&reader, block->changes, block->changes_len, &error))
		elog(ERROR, "could not read back a spooled block: %s", error);
	while ((rc = scdc_block_next(&reader, &event, &run, &error)) > 0)
	{
		CHECK_FOR_INTERRUPTS();
		if (run != last_run)
		{
			TransactionId xid = (TransactionId) run->xid;

			last_run = run;
			counts = bsearch(&xid, committed, ncommitted, sizeof(TransactionId), compare_xids) != NULL;
		}
		if (counts && scdc_collect_begin_version(t, scdc_event_ends_log(&event)))
			scdc_collect_event(t, schema, &event);
	}
	if (rc < 0)
		elog(ERROR, "could not read back a spooled block: %s", error);
	scdc_block_close(&reader);
}

bool
scdc_streamed_commit(TransactionId xid, TransactionId *committed, int ncommitted)
{
	Streamed   *s = hash_search(transactions, &xid, HASH_FIND, NULL);
	bool		message;

	if (s == NULL)
		return false;
	message = s->message;
	qsort(committed, ncommitted, sizeof(TransactionId), compare_xids);
	for (Part *p = s->parts; p; p = p->next)
	{
		ScdcSchema *schema;
		ScdcBlock	block;

		finish_block(p);
		scdc_spool_rewind(p->spool);
		while (scdc_spool_next(p->spool, &schema, &block))
			feed_block(committed, ncommitted, p->tracked, schema, &block);
	}
	forget(s);
	return message;
}
