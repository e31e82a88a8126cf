/*-------------------------------------------------------------------------
 *
 * row.h
 *	  Rows out of the change log: their schemas, their identity, and whether
 *	  two of them are equal.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_ROW_H
#define SCDC_ROW_H

#include "fmgr.h"

#include "log/catalog.h"
#include "log/image.h"
#include "log/schema.h"

/* A column of the row identity, as one schema has it. */
typedef struct ScdcKeyColumn
{
	int			image_attno;	/* index in the schema's image_desc */
	bool		is_text;		/* stored as text, compared as such */
	Oid			input_type;		/* or, if valid, as a value of this type */
	FmgrInfo	input;
	Oid			input_param;
	int16		typlen;			/* of what is compared */
	bool		typbyval;
	Oid			collation;
	FmgrInfo	equal;
	bool		has_hash;
	FmgrInfo	hash;
} ScdcKeyColumn;

/* A schema with what is needed to read rows of it. */
typedef struct ScdcRowSchema
{
	const ScdcSchema *schema;
	int			nkeys;			/* 0: rows of it have no identity */
	ScdcKeyColumn *keys;
	void	   *plan;			/* how they are turned into results; made by json_row.c or typed_row.c */
} ScdcRowSchema;

/* The schemas of a stream that a read has met. */
typedef struct ScdcRowSchemas ScdcRowSchemas;

/* Everything in it, and what is hung onto it, lives in the current context. */
extern ScdcRowSchemas *scdc_row_schemas_create(const ScdcStream *stream, Snapshot snapshot);
/* Raises XX001 if the schema is not there. */
extern ScdcRowSchema *scdc_row_schema(ScdcRowSchemas *schemas, int32 number);

/*
 * First version from the given one on in which a column had another type than
 * in the given schema.  False if it still had it in the newest version.
 */
extern bool scdc_row_schemas_type_change(ScdcRowSchemas *schemas, const ScdcSchema *schema, int column,
										 int64 from_version, int64 *version);

/*
 * A row being looked at.  Its image belongs to somebody else; the attributes
 * are split off when asked for, into memory of the view's own that is used
 * again for the next row.
 */
typedef struct ScdcRowView
{
	ScdcRowSchema *schema;
	ScdcBytes	image;
	Datum	   *values;			/* of schema->image_desc, once is_split */
	bool	   *isnull;
	/* private */
	bool		is_split;
	int			room;
	ScdcImageBuffer buffer;
	MemoryContext context;
} ScdcRowView;

extern void scdc_row_view_init(ScdcRowView *view);	/* remembers the current context */
extern void scdc_row_view_set(ScdcRowView *view, ScdcRowSchema *schema, ScdcBytes image);
extern void scdc_row_view_split(ScdcRowView *view);

/* Both of one schema. */
extern bool scdc_row_view_same_identity(ScdcRowView *a, ScdcRowView *b);

/* Equal byte for byte in all columns that the table has. */
extern bool scdc_row_view_same_image(ScdcRowView *a, ScdcRowView *b);

/* A row kept for later, one palloc'd piece: a handle of collapse.h. */
typedef struct ScdcRow
{
	ScdcRowSchema *schema;
	ScdcBytes	image;
	Datum	   *key;			/* schema->nkeys of them */
	bool	   *key_isnull;
	bool		has_hash;
	uint32		hash;
} ScdcRow;

extern ScdcRow *scdc_row_make(ScdcRowSchema *schema, ScdcBytes image);
extern uint32 scdc_row_hash(ScdcRow *row);
extern bool scdc_row_same_identity(const ScdcRow *a, const ScdcRow *b);

#endif							/* SCDC_ROW_H */
