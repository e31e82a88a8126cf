/*-------------------------------------------------------------------------
 *
 * schema.h
 *	  Schema history: which columns a table had, and how its row images are
 *	  laid out in blocks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_SCHEMA_H
#define SCDC_SCHEMA_H

#include "access/attnum.h"
#include "access/tupdesc.h"
#include "log/block.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* How a column's values are stored in a row image; on disk. */
#define SCDC_STORE_RAW		'r' /* the datum itself: built-in types without catalog OIDs inside */
#define SCDC_STORE_TEXT		't' /* its text output, taken when it was captured */
#define SCDC_STORE_JSON		'j' /* two attributes: text output, and its to_jsonb() as text, where that is not just the
								 * text as a JSON string (composites, arrays, types with a cast to json) */

typedef struct ScdcColumn
{
	AttrNumber	attnum;			/* in the table, from 1 */
	int32		column_id;		/* stays with the column through renames */
	char	   *name;
	bool		dropped;
	bool		identity;		/* one of the columns that identify a row, and a unique index sees to that */
	char		storage;		/* SCDC_STORE_* */
	Oid			type;			/* as declared; may be gone by now */
	int32		typmod;
	char	   *type_name;		/* as format_type showed it */
	char	   *type_parts;		/* not SCDC_STORE_RAW: what the type was made of (type_parts.h); NULL: nothing to say */
	Oid			collation;
	Oid			raw_type;		/* SCDC_STORE_RAW: type of the datum (a domain's base type) */
	int16		attlen;			/* layout in the table, also of dropped columns */
	bool		attbyval;
	char		attalign;
	int			image_attno;	/* index (from 0) in image_desc; a JSON column also has the next one */
} ScdcColumn;

typedef struct ScdcSchema
{
	int64		stream_id;
	int32		number;			/* from 1, per stream; or SCDC_BASELINE_SCHEMA */
	int			ncolumns;		/* dropped ones included, in attnum order */
	ScdcColumn *columns;
	TupleDesc	image_desc;		/* layout of the row images; dropped columns are attributes of type "any length" */
	bool		as_table;		/* images are laid out exactly like the table's own tuples */
} ScdcSchema;

/* Number of the schema under which a baseline was copied; those of captured changes count from 1. */
#define SCDC_BASELINE_SCHEMA	(-1)

/*
 * Builds the schema of an open relation, as its descriptor and indexes
 * (historic or current) say; number is 0.  identity: the stream's identity
 * columns.  Allocates in the current context.
 */
extern ScdcSchema *scdc_schema_of_relation(Relation rel, int64 stream_id, const AttrNumber *identity, int nidentity);

/* Are identities of the one type (no domain) and collation equal, or not, as those of the other would be? */
extern bool scdc_compares_alike(Oid type, Oid collation, Oid other_type, Oid other_collation);

/*
 * The key columns of an index that can identify rows: valid, unique (deferred
 * or not), without WHERE and expressions, and with no other operator class
 * or collation by which more rows are distinct than by the column's own.  False if it cannot.  columns has
 * room for INDEX_MAX_KEYS.
 */
extern bool scdc_index_identity(Oid indexoid, AttrNumber *columns, int *ncolumns);

/* The relation's primary key index, deferrable or not; InvalidOid if it has none. */
extern Oid	scdc_primary_key(Relation rel);

/* An index of the relation that can, with exactly these key columns in any order; InvalidOid if there is none. */
extern Oid	scdc_identity_index(Relation rel, const AttrNumber *columns, int ncolumns);

/* Is the column's type made of the same parts? */
extern bool scdc_column_same_parts(const ScdcColumn *a, const ScdcColumn *b);

/*
 * Is there such an index today?  Takes no lock on the table, and so sees what
 * is committed.
 */
extern bool scdc_identity_holds(Oid relid, const AttrNumber *columns, int ncolumns);

/* Do the two describe the same columns and layout (numbers aside)? */
extern bool scdc_schema_same_columns(const ScdcSchema *a, const ScdcSchema *b);

/* The same, with types made of the same parts? */
extern bool scdc_schema_equal(const ScdcSchema *a, const ScdcSchema *b);

/* Writes / reads the schema history.  read: NULL if there is none; number 0 = the newest captured one. */
extern void scdc_schema_write(const ScdcSchema *schema);
extern ScdcSchema *scdc_schema_read(int64 stream_id, int32 number, Snapshot snapshot);

/* A schema as bytes, for the inbox; the number does not go with it.  Both allocate in the current context. */
extern ScdcBytes scdc_schema_pack(const ScdcSchema *schema);
extern ScdcSchema *scdc_schema_unpack(ScdcBytes bytes);

/* Deletes what scdc_schema_write wrote; number 0 = all of the stream. */
extern void scdc_schema_delete(int64 stream_id, int32 number);

#endif							/* SCDC_SCHEMA_H */
