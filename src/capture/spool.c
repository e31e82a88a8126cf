/*-------------------------------------------------------------------------
 *
 * spool.c
 *	  A queue of finished blocks (see spool.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/buffile.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "capture/spool.h"

typedef struct Item
{
	struct Item *next;
	ScdcBlock	block;
	char		meta[FLEXIBLE_ARRAY_MEMBER];
} Item;

struct ScdcSpool
{
	MemoryContext cxt;			/* this struct and the items */
	Size		meta_size;
	Item	   *first;
	Item	   *last;
	Size		memory;			/* of the items */
	BufFile    *file;			/* NULL: all is in memory */
	int64		in_file;

	/* reading */
	Item	   *at;
	int64		left_in_file;
	MemoryContext read_cxt;
};

/* Spools are filled inside decoding's transactions and outlive them. */
static ResourceOwner spool_owner;

void
scdc_spool_init(void)
{
	spool_owner = ResourceOwnerCreate(NULL, "streamcdc spool");
}

ScdcSpool *
scdc_spool_create(Size meta_size)
{
	MemoryContext cxt = AllocSetContextCreate(TopMemoryContext, "streamcdc spool", ALLOCSET_DEFAULT_SIZES);
	ScdcSpool  *spool = MemoryContextAllocZero(cxt, sizeof(ScdcSpool));

	spool->cxt = cxt;
	spool->meta_size = meta_size;
	return spool;
}

static void
append_to_file(ScdcSpool *spool, const void *meta, const ScdcBlock *block)
{
	if (spool->file == NULL)
	{
		ResourceOwner owner = CurrentResourceOwner;
		MemoryContext old = MemoryContextSwitchTo(spool->cxt);

		CurrentResourceOwner = spool_owner;
		spool->file = BufFileCreateTemp(true);
		CurrentResourceOwner = owner;
		MemoryContextSwitchTo(old);
	}
	BufFileWrite(spool->file, (void *) meta, spool->meta_size);
	BufFileWrite(spool->file, (void *) block, sizeof(ScdcBlock));
	BufFileWrite(spool->file, block->versions, block->versions_len);
	BufFileWrite(spool->file, block->changes, block->changes_len);
	spool->in_file++;
}

void
scdc_spool_append(ScdcSpool *spool, const void *meta, const ScdcBlock *block, Size memory_max)
{
	Size		size = offsetof(Item, meta) + spool->meta_size + block->versions_len + block->changes_len;
	Item	   *item;
	char	   *bytes;

	if (spool->in_file > 0 || spool->memory + size > memory_max)
	{
		append_to_file(spool, meta, block);
		return;
	}
	item = MemoryContextAllocHuge(spool->cxt, size);
	item->next = NULL;
	item->block = *block;
	memcpy(item->meta, meta, spool->meta_size);
	bytes = item->meta + spool->meta_size;
	item->block.versions = memcpy(bytes, block->versions, block->versions_len);
	item->block.changes = memcpy(bytes + block->versions_len, block->changes, block->changes_len);
	if (spool->last)
		spool->last->next = item;
	else
		spool->first = item;
	spool->last = item;
	spool->memory += size;
}

Size
scdc_spool_memory(const ScdcSpool *spool)
{
	return spool->memory;
}

void
scdc_spool_rewind(ScdcSpool *spool)
{
	spool->at = spool->first;
	spool->left_in_file = spool->in_file;
	if (spool->file)
	{
		if (BufFileSeek(spool->file, 0, 0, SEEK_SET) != 0)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not rewind spool file of the capture worker")));
		if (spool->read_cxt == NULL)
			spool->read_cxt = AllocSetContextCreate(spool->cxt, "streamcdc spooled block", ALLOCSET_DEFAULT_SIZES);
	}
}

static void
read_exact(BufFile *file, void *ptr, Size size)
{
	if (BufFileRead(file, ptr, size) != size)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read from spool file of the capture worker")));
}

bool
scdc_spool_next(ScdcSpool *spool, void *meta, ScdcBlock *block)
{
	if (spool->at)
	{
		memcpy(meta, spool->at->meta, spool->meta_size);
		*block = spool->at->block;
		spool->at = spool->at->next;
		return true;
	}
	if (spool->left_in_file == 0)
		return false;
	spool->left_in_file--;
	MemoryContextReset(spool->read_cxt);
	read_exact(spool->file, meta, spool->meta_size);
	read_exact(spool->file, block, sizeof(ScdcBlock));
	block->versions = MemoryContextAllocHuge(spool->read_cxt, block->versions_len);
	read_exact(spool->file, block->versions, block->versions_len);
	block->changes = MemoryContextAllocHuge(spool->read_cxt, block->changes_len);
	read_exact(spool->file, block->changes, block->changes_len);
	return true;
}

void
scdc_spool_free(ScdcSpool *spool)
{
	if (spool->file)
		BufFileClose(spool->file);
	MemoryContextDelete(spool->cxt);
}
