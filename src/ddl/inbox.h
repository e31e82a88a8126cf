/*-------------------------------------------------------------------------
 *
 * inbox.h
 *	  Recording what a command does to the rows of a tracked table and WAL
 *	  does not carry: TRUNCATE, rewrites, partitions that come and go.
 *
 * The command's transaction writes the rows concerned to streamcdc.inbox and
 * marks the place with a small message in WAL; capture reads them when it
 * decodes the message (capture/inbox_reader.h), and they become events of
 * that transaction's version, at that place.  What is rolled back leaves
 * nothing.
 *
 * The message is only a hint to look: capture takes, in order, those rows of
 * the message's own transaction that were written before it and that it has
 * not taken yet.  So a message from anybody else is harmless.
 *
 * All functions write, so they need a transaction that may.  They are meant
 * to run inside scdc_ddl_try: their failure must not be the command's.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_INBOX_H
#define SCDC_INBOX_H

#include "log/block.h"
#include "log/catalog.h"
#include "log/schema.h"
#include "owner.h"
#include "utils/relcache.h"

/* Transactional message that says: look into the inbox (with SCDC_MESSAGE_PREFIX). */
#define SCDC_INBOX_MESSAGE	"inbox"

/*
 * The stream that rows of a table, or of the partitioned table that it is a
 * part of, go to at present; NULL if there is none.  In the current context.
 * No locks on the table.
 */
extern ScdcStream *scdc_ddl_stream(Oid relid);

/*
 * Every row of the relation that GetLatestSnapshot sees becomes an event of
 * this transaction, at this place: kind is SCDC_EVENT_INSERT or
 * SCDC_EVENT_DELETE.  The images are laid out by what scdc_member_schema makes
 * of the relation for the stream.  The caller
 * holds a lock that keeps the rows from changing until the command is done.
 * Memory is bounded by a block and a row.  Type output functions are called, as the table's owner
 * and with the settings of the log.
 */
extern void scdc_inbox_write_rows(Relation rel, const ScdcStream *stream, ScdcEventKind kind);

/*
 * The next TRUNCATE of the relation is accounted for by the rows written
 * before, so that capture makes no marker of it.
 */
extern void scdc_inbox_write_truncated(Relation rel, const ScdcStream *stream);

/* Changes at this place are not recorded: a marker. */
extern void scdc_inbox_write_gap(const ScdcStream *stream, Oid relid);

/* Nor will any be from here on: the marker, and the stream's state becomes 'gap'. */
extern void scdc_inbox_write_end(const ScdcStream *stream, Oid relid);

/* ---- for those who have rows of their own to write ---- */

typedef struct ScdcInboxWriter ScdcInboxWriter;

/*
 * schema, old_schema (NULL: the same): of new and old images.  new_heap: the
 * rows are what a rewrite through this transient table changed, even if there
 * are none; else InvalidOid.
 */
extern ScdcInboxWriter *scdc_inbox_writer_begin(const ScdcStream *stream, Oid relid, const ScdcSchema *schema,
												const ScdcSchema *old_schema, Oid new_heap);
extern void scdc_inbox_writer_add(ScdcInboxWriter *writer, const ScdcEvent *event);
extern void scdc_inbox_writer_end(ScdcInboxWriter *writer);

/*
 * scdc_owner_begin for the table's owner, with the settings that shape output
 * being those of the log.
 */
extern void scdc_output_begin(ScdcOwnerScope *mode, Relation rel);

/* ---- failing safely ---- */

/*
 * Calls fn in a subtransaction of its own.  If it fails, that is a WARNING
 * ("could not record ...", with what) and false is returned: capture then
 * sees the command in WAL without its rows, which is a gap.  What is not
 * about us goes on up: a cancelled query, shutdown, lack of memory.
 */
typedef void (*ScdcDdlFn) (void *arg);
extern bool scdc_ddl_try(ScdcDdlFn fn, void *arg, const char *what);

#endif							/* SCDC_INBOX_H */
