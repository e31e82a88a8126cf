/*-------------------------------------------------------------------------
 *
 * members.h
 *	  The relations of a stream: a tracked table or, if that is partitioned,
 *	  everything below it.  They are in the registry, so that decoding finds
 *	  them, and those that hold rows have REPLICA IDENTITY FULL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_MEMBERS_H
#define SCDC_MEMBERS_H

#include "access/attmap.h"
#include "log/catalog.h"
#include "log/schema.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

/*
 * OIDs of the table and, if it is partitioned, of all partitions at all
 * levels, ACCESS EXCLUSIVE locked until the transaction ends.
 */
extern List *scdc_members_lock(Oid relid);

/* Why a relation's changes cannot be captured, whoever wants it. */
typedef struct ScdcObstacle
{
	int			sqlerrcode;
	const char *detail;			/* a sentence; has a name for the relation: "it" or "partition ..." */
	const char *hint;
} ScdcObstacle;

/* False if nothing stands in the way of capturing it.  Strings in the current context. */
extern bool scdc_member_obstacle(Relation rel, bool is_partition, ScdcObstacle *obstacle);

/*
 * Makes the locked relation one of the stream's.  r->relid is its OID.  A
 * partition that WAL says nothing of (foreign, unlogged) is registered like
 * the others.  identity: set REPLICA IDENTITY FULL.
 */
extern void scdc_member_add(const ScdcRegistered *r, bool identity);

/*
 * It is none any more: REPLICA IDENTITY is what it was, if the table is still
 * there, and is not being dropped.  Takes ACCESS EXCLUSIVE on it.
 */
extern void scdc_member_remove(int64 stream_id, Oid relid, bool keep_identity);

/* The same for all of a stream, which may have been given up. */
extern void scdc_members_remove(int64 stream_id);

/*
 * Gives a table that is not captured any more its REPLICA IDENTITY back; one
 * that another stream captures gets it when that ends.  Nothing if it is gone,
 * or partitioned.  Takes ACCESS EXCLUSIVE on it.
 */
extern void scdc_member_give_back(Oid relid, char type, Oid index);

/* The table is being dropped: REPLICA IDENTITY does not matter. */
extern void scdc_members_forget(int64 stream_id);

/*
 * The schema under which rows of the relation are stored in the stream, which
 * is the tracked table's, and the map for scdc_image_make.  The caller's lock
 * on the relation keeps its columns from changing, and with them those of what
 * it is a partition of.  In the current context.
 */
extern ScdcSchema *scdc_member_schema(Relation rel, const ScdcStream *stream, AttrMap **map);

/* Is the extension there to ask, in this database? */
extern bool scdc_registry_exists(void);

/* What the relation is captured for, if it is; under the latest snapshot. */
extern bool scdc_member_find(Oid relid, ScdcRegistered *r);

#endif							/* SCDC_MEMBERS_H */
