/*-------------------------------------------------------------------------
 *
 * work.h
 *	  Rows on their way through a job.
 *
 * While rows are read they are values: the columns of "batch" (data columns,
 * _change_type, _commit_version, _commit_timestamp), and what row_id and
 * row_version of a registered change log lead to inside of columns.  While
 * they are sorted, collapsed or kept they are work rows: a tuple of those,
 * behind what is asked of it all the time.  Of a tracked table that tells the
 * three metadata columns as well, so that the tuple is without them, and in
 * most cases the row's image in the log as it stands.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_WORK_H
#define SCDC_WORK_H

#include "access/htup_details.h"
#include "access/tupdesc.h"
#include "datatype/timestamp.h"

#include "collapse/collapse.h"
#include "log/block.h"
#include "sql/tuple_key.h"

typedef struct ScdcWork
{
	TupleDesc	batch;			/* what "batch" looks like: the first columns of desc */
	TupleDesc	desc;
	TupleDesc	kept;			/* of the tuple in a work row: desc, or its data columns */
	AttrNumber	change_type;
	AttrNumber	version;
	AttrNumber	timestamp;
	char	   *log;			/* the source's name, for errors */
	bool		text_versions;
	int			nkeys;			/* 0: rows have no identity */
	ScdcTupleKey *keys;
	bool		has_row_version;
	ScdcTupleKey row_version;
	Datum		labels[4];		/* of ScdcChangeType, as text */
} ScdcWork;

/*
 * One piece of bytes, good at any MAXALIGNed address; the tuple, a minimal
 * one, is at SCDC_WORK_TUPLE.
 */
typedef struct ScdcWorkRow
{
	uint32		size;			/* of all of it */
	uint16		type;			/* ScdcChangeType; that of the tuple may be another */
	uint16		label;			/* ScdcChangeType that the source has given it */
	uint64		hash;			/* of the identity; 0 without one */
	int64		version;		/* 0 if versions are text or it is NULL */
	int64		seq;			/* place in which the source gave the row, inside its batch */
	TimestampTz timestamp;		/* DT_NOBEGIN if it is NULL */
} ScdcWorkRow;

#define SCDC_WORK_TUPLE		MAXALIGN(sizeof(ScdcWorkRow))

/* What is in front of that in the tuple says nothing but its length. */
#define SCDC_WORK_IMAGE		(SCDC_WORK_TUPLE + offsetof(MinimalTupleData, t_infomask2))

/* A row of a tracked table, as the log has it. */
typedef struct ScdcWorkImage
{
	ScdcChangeType type;
	int64		version;
	TimestampTz timestamp;
	ScdcBytes	image;
} ScdcWorkImage;

/* Room for one row, used again for the next. */
typedef struct ScdcWorkBuffer
{
	ScdcWorkRow *row;
	Size		room;
	MemoryContext context;
} ScdcWorkBuffer;

/*
 * Lays out work rows: visible are the columns of "batch" without the metadata
 * ones, hidden's follow after them; tracked: that of each row is one of the
 * four types, a number and a time.  In the current context.
 */
extern ScdcWork *scdc_work_create(const char *log, TupleDesc visible, TupleDesc hidden, bool text_versions, bool tracked);

/* Room for a row of that size, which is filled in. */
extern ScdcWorkRow *scdc_work_room(ScdcWorkBuffer *buffer, Size size);

/* Makes a row of values of work->desc, in the buffer. */
extern const ScdcWorkRow *scdc_work_form(ScdcWork *work, ScdcWorkBuffer *buffer, const Datum *values, const bool *isnull,
										 int64 seq);

/* The same of a tracked table's row, whose image, which was checked, is laid out as work->kept. */
extern const ScdcWorkRow *scdc_work_wrap(ScdcWork *work, ScdcWorkBuffer *buffer, const ScdcWorkImage *image, int64 seq);

/* The values of a row as one of that type; they point into it. */
extern void scdc_work_deform(const ScdcWork *work, const ScdcWorkRow *row, ScdcChangeType type, Datum *values, bool *isnull);

/* The row's tuple, of work->kept, which stays in it. */
static inline HeapTupleData
scdc_work_tuple(const ScdcWorkRow *row)
{
	MinimalTuple minimal = (MinimalTuple) (unconstify(char *, (const char *) row) + SCDC_WORK_TUPLE);
	HeapTupleData tuple;

	tuple.t_len = minimal->t_len + MINIMAL_TUPLE_OFFSET;
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = (HeapTupleHeader) ((char *) minimal - MINIMAL_TUPLE_OFFSET);
	return tuple;
}

/* Begins the tuple of a row whose size is known; returns where its image goes. */
static inline char *
scdc_work_begin_tuple(ScdcWorkRow *row)
{
	MinimalTuple minimal = (MinimalTuple) ((char *) row + SCDC_WORK_TUPLE);

	memset(minimal, 0, SCDC_WORK_IMAGE - SCDC_WORK_TUPLE);
	minimal->t_len = row->size - SCDC_WORK_TUPLE;
	return (char *) row + SCDC_WORK_IMAGE;
}

static inline ScdcBytes
scdc_work_image(const ScdcWorkRow *row)
{
	return (ScdcBytes) {(const char *) row + SCDC_WORK_IMAGE, row->size - SCDC_WORK_IMAGE};
}

/* 0 for delete-like rows, 1 for the others. */
static inline int
scdc_work_rank(const ScdcWorkRow *row)
{
	return row->type != SCDC_CHANGE_OTHER && scdc_change_is_delete_like((ScdcChangeType) row->type) ? 0 : 1;
}

/* Are two rows of one identity, of one row version?  NULL equals NULL.  Leave garbage in the current context. */
extern bool scdc_work_same_identity(ScdcWork *work, const ScdcWorkRow *a, const ScdcWorkRow *b);
extern bool scdc_work_same_value(ScdcWork *work, ScdcTupleKey *key, const ScdcWorkRow *a, const ScdcWorkRow *b);

extern Datum scdc_work_version(const ScdcWork *work, const ScdcWorkRow *row, bool *isnull);

/* The version as text, in the current context; NULL if it is NULL. */
extern char *scdc_work_version_text(const ScdcWork *work, const ScdcWorkRow *row);

/* Raises XX001 for a contract error of the collapse; the query stops at it. */
extern void scdc_work_contract_error(const ScdcWork *work, ScdcCollapseError error, const ScdcWorkRow *row) pg_attribute_noreturn();

#endif							/* SCDC_WORK_H */
