/*-------------------------------------------------------------------------
 *
 * work.h
 *	  Rows on their way through a job.
 *
 * A work row is a tuple: three columns to sort it by,
 *
 *	  hash	of the row's identity, 64 bits; 0 without one
 *	  seq	place in which the source gave the row, inside its batch
 *	  rank	0 for delete-like rows, 1 for the others
 *
 * which stand first because a sort gets at them fastest there; the columns of
 * "batch" (data columns, _change_type, _commit_version, _commit_timestamp);
 * and what row_id and row_version of a registered change log lead to inside of
 * columns.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_WORK_H
#define SCDC_WORK_H

#include "access/htup.h"
#include "access/tupdesc.h"
#include "fmgr.h"

#include "collapse/collapse.h"

/* A value that rows are compared by. */
typedef struct ScdcWorkKey
{
	AttrNumber	attno;			/* in desc */
	Oid			collation;
	FmgrInfo	equal;
	bool		has_hash;
	FmgrInfo	hash;			/* the extended one */
} ScdcWorkKey;

/* Index (from 0) of the first data column. */
#define SCDC_WORK_FIRST		3

typedef struct ScdcWork
{
	TupleDesc	batch;			/* what "batch" looks like: the columns of desc from SCDC_WORK_FIRST on */
	TupleDesc	desc;
	AttrNumber	change_type;
	AttrNumber	version;
	AttrNumber	timestamp;
	AttrNumber	seq;
	AttrNumber	hash;
	AttrNumber	rank;
	bool		text_versions;
	int			nkeys;			/* 0: rows have no identity */
	ScdcWorkKey *keys;
	bool		has_row_version;
	ScdcWorkKey row_version;
	Datum		labels[4];		/* of ScdcChangeType, as text */
} ScdcWork;

/*
 * Lays out work rows: visible are the columns of "batch" without the metadata
 * ones, nhidden of hidden's follow after them.  In the current context.
 */
extern ScdcWork *scdc_work_create(TupleDesc visible, TupleDesc hidden, bool text_versions);

/* Fills in a key of the attribute; raises 42883 if the type has no equality. */
extern void scdc_work_key_init(ScdcWork *work, ScdcWorkKey *key, AttrNumber attno, Oid collation);

/* Type that a label stands for; SCDC_CHANGE_OTHER if it is none of the four. */
extern ScdcChangeType scdc_work_type(const ScdcWork *work, const Datum *values, const bool *isnull);

/* Sets seq, hash and rank of a row. */
extern void scdc_work_complete(ScdcWork *work, Datum *values, bool *isnull, int64 seq);

/* Are two rows of one identity, of one row version?  NULL equals NULL.  Leave garbage in the current context. */
extern bool scdc_work_same_identity(ScdcWork *work, HeapTuple a, HeapTuple b);
extern bool scdc_work_same_value(ScdcWork *work, ScdcWorkKey *key, HeapTuple a, HeapTuple b);

/* The version as text, in the current context; NULL if it is NULL. */
extern char *scdc_work_version_text(const ScdcWork *work, HeapTuple tuple);

/* Raises XX001 for a contract error of the collapse. */
extern void scdc_work_contract_error(const ScdcWork *work, ScdcCollapseError error, HeapTuple tuple) pg_attribute_noreturn();

#endif							/* SCDC_WORK_H */
