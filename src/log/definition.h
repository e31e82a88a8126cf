/*-------------------------------------------------------------------------
 *
 * definition.h
 *	  What is tracked, as a dump takes it along: streamcdc.definitions.
 *
 * Everything else that we know of a stream is about this very database: WAL
 * positions, transactions, OIDs.  So a dump has the definitions only, and in a
 * database that was restored from one, or copied with TEMPLATE, a stream is
 * inert until stream_track adopts it.  A stream's home says which it is.
 *
 * Versions must not be given out twice, and the row of a definition is not
 * written with each version.  It holds a version that has not been reached
 * yet; before it is, another row is added, with one that is further away.  The
 * greatest counts.  Rows are added by capture and never changed, so that it
 * waits for nobody's transaction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_DEFINITION_H
#define SCDC_DEFINITION_H

#include "log/catalog.h"

/* This database's home: cluster, database and installation of the extension; palloc'd. */
extern char *scdc_home(void);

/* Adds the definition of a stream that begins, after its members. */
extern void scdc_definition_insert(const ScdcStream *stream);

/*
 * No version beyond the result will be given out by this stream before this
 * is called again.  To be called in the transaction that stores the version.
 */
extern int64 scdc_definition_reach(int64 stream_id, int64 version);

/* Deletes the rows of a stream. */
extern void scdc_definition_delete(const char *home, int64 stream_id);

/* The names of the stream's table, or what stream_alter changes, are others now. */
extern void scdc_definition_update(const ScdcStream *stream);

/*
 * Streams of another home that there is nothing but a definition of: those of
 * the relation with this name (the newest; NULL if there is none), and all
 * whose table exists.  They have state SCDC_STATE_INERT and is_definition set,
 * last_version is one that was never reached, and of the replica identity's
 * index only the OID that it has here.
 */
extern ScdcStream *scdc_definition_inert(Oid relid, Snapshot snapshot);
extern List *scdc_definition_list_inert(Snapshot snapshot);

#endif							/* SCDC_DEFINITION_H */
