/*-------------------------------------------------------------------------
 *
 * partitions.h
 *	  Partitions that come to and go from a tracked partitioned table.
 *
 * CREATE TABLE ... PARTITION OF, ATTACH, DETACH (CONCURRENTLY and FINALIZE
 * too) and DROP leave nothing in WAL that decoding could use.  So in the
 * user's transaction, under the lock that the command has taken, what comes
 * becomes a member of the stream (members.h) and its rows are recorded as
 * inserts; what goes is a member no more, and its rows are recorded as
 * deletes, or as what on_truncate says.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_PARTITIONS_H
#define SCDC_PARTITIONS_H

#include "nodes/parsenodes.h"

/* A command that takes partitions away, while it runs. */
typedef struct ScdcPartitionCommand
{
	struct ScdcPartitionCommand *outer;
	Oid			detaching;		/* DETACH: the partition */
	List	   *relids;			/* DROP: tables, ... */
	List	   *namespaces;		/* ... schemas, ... */
	List	   *owners;			/* ... or DROP OWNED: whose */
} ScdcPartitionCommand;

/*
 * Before a command: fills *c.  True if end must be called when the command is
 * over, also when it failed; else it may be.  Raises 55000 for a DETACH that
 * on_truncate => 'forbid' forbids.
 */
extern bool scdc_partitions_begin(Node *command, ScdcPartitionCommand *c);
extern void scdc_partitions_end(ScdcPartitionCommand *c);

/*
 * After a command that succeeded: deals with partitions that came or were
 * detached.  Raises 55000 for one that has a stream of its own.
 */
extern void scdc_partitions_changed(Node *command, const ScdcPartitionCommand *c);

/*
 * A relation is being dropped (OAT_DROP).  True if it is below a tracked
 * table, and has been dealt with.  Raises 55000 if on_truncate => 'forbid'
 * forbids it.
 */
extern bool scdc_partition_dropped(Oid relid);

/*
 * The same for what is dropped before a relation: its TOAST table and the
 * index on that, without which its rows cannot be read any more.  False if
 * relid is none of them.
 */
extern bool scdc_partition_toast_dropped(Oid relid);

#endif							/* SCDC_PARTITIONS_H */
