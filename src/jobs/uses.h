/*-------------------------------------------------------------------------
 *
 * uses.h
 *	  What the SQL of a query may use.
 *
 * What its owner has the rights for, which the executor would only look at when
 * the first rows come.  Nothing temporary, since the query runs in a session
 * of its own.  And a superuser's query runs nothing that an ordinary role can
 * make another thing at any time: no function of such a role, and none that a
 * view or a domain of his may call.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_USES_H
#define SCDC_USES_H

#include "executor/spi.h"

#include "jobs/query.h"

/* For the current user; raise 0A000 and 42501.  The commands of a plan are as rules and views have made them. */
extern void scdc_uses_check_plan(const ScdcQuery *query, SPIPlanPtr plan);
extern void scdc_uses_check_function(const ScdcQuery *query, Oid function);

/*
 * A relation that is written into runs its triggers and defaults as whoever
 * does so.  For an ordinary owner that is the rule with any INSERT; a
 * superuser's query would give the server away (reliability 8.1).
 */
extern void scdc_uses_check_sink(const ScdcQuery *query, Oid relid);

#endif							/* SCDC_USES_H */
