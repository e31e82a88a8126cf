/*-------------------------------------------------------------------------
 *
 * parts.c
 *	  A temporary file in many parts (see parts.h).
 *
 * The file consists of extents, each of one part.  A buffer has room for one,
 * and for a piece: behind it where it is written, in front where it is read,
 * so that a piece is never cut where an extent ends.  What has not filled an
 * extent stays in its buffer.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/tablespace.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "jobs/parts.h"

#define EXTENT_MAX	((Size) 16 * 1024)

typedef struct Part
{
	char	   *buffer;
	Size		used;			/* of it, less than an extent */
	uint32	   *extents;		/* numbers of those in the file */
	int			nextents;
	int			room;			/* for their numbers */
} Part;

struct ScdcParts
{
	MemoryContext context;
	File		file;
	Size		extent;			/* bytes */
	uint32		nextents;		/* in the file */
	int			nparts;
	Part	   *parts;

	/* the one that is read */
	Part	   *open;
	int			next;			/* extent to be read; behind them comes the part's buffer */
	char	   *buffer;			/* behind the room for a piece */
	char	   *at;
	Size		left;
};

ScdcParts *
scdc_parts_create(int nparts, Size memory)
{
	ScdcParts  *p = palloc0(sizeof(ScdcParts));

	p->context = CurrentMemoryContext;
	p->extent = TYPEALIGN_DOWN(BLCKSZ, memory / (nparts + 1));
	p->extent = Max(Min(p->extent, EXTENT_MAX), BLCKSZ);
	p->nparts = nparts;
	p->parts = palloc0(nparts * sizeof(Part));
	PrepareTempTablespaces();
	p->file = OpenTemporaryFile(false);
	return p;
}

void
scdc_parts_end(ScdcParts *p)
{
	FileClose(p->file);
	for (int i = 0; i < p->nparts; i++)
	{
		if (p->parts[i].buffer)
			pfree(p->parts[i].buffer);
		if (p->parts[i].extents)
			pfree(p->parts[i].extents);
	}
	if (p->buffer)
		pfree(p->buffer - SCDC_PARTS_PIECE);
	pfree(p->parts);
	pfree(p);
}

/* Puts what fills an extent into the file; what is behind it in the buffer stays. */
static void
write_extent(ScdcParts *p, Part *part)
{
	int			written;

	if (part->nextents == part->room)
	{
		part->room = Max(part->room * 2, 16);
		part->extents = part->extents ? repalloc(part->extents, part->room * sizeof(uint32)) :
			MemoryContextAlloc(p->context, part->room * sizeof(uint32));
	}
	errno = 0;
	written = FileWrite(p->file, part->buffer, p->extent, (off_t) p->nextents * p->extent, WAIT_EVENT_BUFFILE_WRITE);
	if (written != (int) p->extent)
	{
		/* as the server has it where a write was short */
		if (errno == 0)
			errno = ENOSPC;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write to file \"%s\": %m", FilePathName(p->file))));
	}
	part->extents[part->nextents++] = p->nextents++;
	part->used -= p->extent;
	memcpy(part->buffer, part->buffer + p->extent, part->used);
}

uint8 *
scdc_parts_piece(ScdcParts *p, int number)
{
	Part	   *part = &p->parts[number];

	if (part->buffer == NULL)
		part->buffer = MemoryContextAlloc(p->context, p->extent + SCDC_PARTS_PIECE);
	return (uint8 *) part->buffer + part->used;
}

void
scdc_parts_add_piece(ScdcParts *p, int number, Size len)
{
	Part	   *part = &p->parts[number];

	Assert(len <= SCDC_PARTS_PIECE);
	part->used += len;
	if (part->used >= p->extent)
		write_extent(p, part);
}

void
scdc_parts_write(ScdcParts *p, int number, const void *data, Size len)
{
	Part	   *part = &p->parts[number];
	const char *from = data;

	(void) scdc_parts_piece(p, number);
	while (p->extent - part->used <= len)
	{
		Size		n = p->extent - part->used;

		memcpy(part->buffer + part->used, from, n);
		from += n;
		len -= n;
		part->used = p->extent;
		write_extent(p, part);
	}
	memcpy(part->buffer + part->used, from, len);
	part->used += len;
}

void
scdc_parts_fetch(const ScdcParts *p, int number)
{
	__builtin_prefetch(&p->parts[number], 1);
}

void
scdc_parts_fetch_end(const ScdcParts *p, int number)
{
	const Part *part = &p->parts[number];
	const char *end = part->buffer + part->used;

	__builtin_prefetch(end, 1);
	__builtin_prefetch(end + 64, 1);
}

void
scdc_parts_open(ScdcParts *p, int number)
{
	if (p->buffer == NULL)
		p->buffer = (char *) MemoryContextAlloc(p->context, SCDC_PARTS_PIECE + p->extent) + SCDC_PARTS_PIECE;
	p->open = &p->parts[number];
	p->next = 0;
	p->at = p->buffer;
	p->left = 0;
}

/* Less than a piece is left; more comes behind that, if there is more. */
static bool
read_extent(ScdcParts *p)
{
	Part	   *part = p->open;
	int			nread;

	if (p->next > part->nextents)
		return false;
	memcpy(p->buffer - p->left, p->at, p->left);
	p->at = p->buffer - p->left;
	if (p->next == part->nextents)
	{
		p->next++;
		memcpy(p->buffer, part->buffer, part->used);
		p->left += part->used;
		return part->used > 0;
	}
	nread = FileRead(p->file, p->buffer, p->extent, (off_t) part->extents[p->next++] * p->extent, WAIT_EVENT_BUFFILE_READ);
	if (nread < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", FilePathName(p->file))));
	if (nread != (int) p->extent)
		ereport(ERROR,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("could not read file \"%s\": read %d of %zu", FilePathName(p->file), nread, p->extent)));
	p->left += p->extent;
	return true;
}

const uint8 *
scdc_parts_look(ScdcParts *p, Size *len)
{
	if (p->left < SCDC_PARTS_PIECE)
		(void) read_extent(p);
	*len = p->left;
	return p->left > 0 ? (const uint8 *) p->at : NULL;
}

void
scdc_parts_skip(ScdcParts *p, Size len)
{
	Assert(len <= p->left);
	p->at += len;
	p->left -= len;
}

bool
scdc_parts_read(ScdcParts *p, void *data, Size len)
{
	char	   *to = data;

	while (p->left < len)
	{
		Size		n = p->left;

		memcpy(to, p->at, n);
		to += n;
		len -= n;
		p->left = 0;
		if (!read_extent(p))
			return false;
	}
	memcpy(to, p->at, len);
	p->at += len;
	p->left -= len;
	return true;
}
