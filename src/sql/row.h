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

/* How two values of an identity column are compared. */
typedef enum ScdcKeyKind
{
	SCDC_KEY_DATUM,				/* passed by value, equal if the datums are */
	SCDC_KEY_FIXED,				/* of a fixed length, equal if the bytes are */
	SCDC_KEY_VARLENA,			/* equal if the bytes are, once decompressed */
	SCDC_KEY_OPERATOR			/* by the type's own operator */
} ScdcKeyKind;

/* A column of the row identity, as one schema has it. */
typedef struct ScdcKeyColumn
{
	int			image_attno;	/* index in the schema's image_desc */
	ScdcKeyKind kind;
	Oid			input_type;		/* if valid: stored as text, but compared as a value of this type */
	FmgrInfo	input;
	Oid			input_param;
	struct ScdcOldText *old_text;	/* what the text is to be made into before; or NULL */
	int16		typlen;
	bool		typbyval;
	Oid			type;			/* of what is compared */
	Oid			collation;
	FmgrInfo	equal;
	bool		has_hash;
	FmgrInfo	hash;
	Oid			owner;			/* of the table */
	struct ScdcRowSchemas *schemas; /* if it has none: where there is a sample instead ... */
	int			number;			/* ... of the identity's column with this number */
} ScdcKeyColumn;

/* A schema with what is needed to read rows of it. */
typedef struct ScdcRowSchema
{
	const ScdcSchema *schema;
	int			nkeys;			/* 0: rows of it have no identity */
	ScdcKeyColumn *keys;
	bool		has_parsed_keys;	/* has any of them an input_type? */
	bool		has_fixed_keys; /* are all of them among the first nfixed columns, and compared by their bytes? */
	int			fixed_keys_end; /* if so, where the last of them ends, from the first column on */
	int			nfixed;			/* leading columns of a fixed length: these stand at their offsets in rows without NULLs */
	int		   *fixed_offset;
	bool		has_dropped;	/* any column */
	void	   *plan;			/* how they are turned into results; made by json_row.c or typed_row.c */
} ScdcRowSchema;

/* The schemas of a stream that a read has met. */
typedef struct ScdcRowSchemas ScdcRowSchemas;

/* Everything in it, and what is hung onto it, lives in the current context. */
extern ScdcRowSchemas *scdc_row_schemas_create(const ScdcStream *stream, Snapshot snapshot);

/* Owner of the stream's table, who runs what its values need of functions that users have made. */
extern Oid	scdc_row_schemas_owner(const ScdcRowSchemas *schemas);

/* Which versions will be read: keys without a hash function are sampled there.  All of them if not said. */
extern void scdc_row_schemas_range(ScdcRowSchemas *schemas, int64 first, int64 last);

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

/* Both of one schema.  Leaves garbage in the current context. */
extern bool scdc_row_view_same_identity(ScdcRowView *a, ScdcRowView *b);

/* Equal byte for byte in all columns that the table has. */
extern bool scdc_row_view_same_image(ScdcRowView *a, ScdcRowView *b);

/* Equal in all columns that have been the same in both schemas. */
extern bool scdc_row_view_same_row(ScdcRowView *a, ScdcRowView *b);

/*
 * A row for the collapse library: one piece of bytes, good at any MAXALIGNed
 * address while its schema is.  Behind the image come the values of identity
 * columns that had to be parsed from text.
 */
typedef struct ScdcRow
{
	ScdcRowSchema *schema;
	uint32		size;			/* of all of it */
	uint32		hash;			/* of its identity */
	uint32		image_len;
	uint32		keys_offset;	/* of the parsed values, or 0 */
} ScdcRow;

/* Room for one row, used again for the next; lives in the context that is current at scdc_row_buffer_init. */
typedef struct ScdcRowBuffer
{
	ScdcRow    *row;
	Size		room;
	MemoryContext context;
} ScdcRowBuffer;

extern void scdc_row_buffer_init(ScdcRowBuffer *buffer);

/*
 * Makes the row in the buffer.  Leaves garbage in the current context, as
 * does the comparison of rows.
 */
extern ScdcRow *scdc_row_make(ScdcRowBuffer *buffer, ScdcRowSchema *schema, ScdcBytes image);

/* Do two rows have one identity, since their images begin with so many equal bytes?  False: that does not tell. */
extern bool scdc_row_identity_shared(const ScdcRowSchema *schema, ScdcBytes image, uint32 shared);

/* Just the hash of such a row; makes it in the buffer if need be. */
extern uint32 scdc_row_identity_hash(ScdcRowBuffer *buffer, ScdcRowSchema *schema, ScdcBytes image);
extern ScdcBytes scdc_row_image(const ScdcRow *row);
extern bool scdc_row_same_identity(const ScdcRow *a, const ScdcRow *b);

#endif							/* SCDC_ROW_H */
