/*-------------------------------------------------------------------------
 *
 * owner.h
 *	  Doing something as the one to whom it belongs.
 *
 * What users have made (functions behind casts and types, the text of a
 * query) is run by workers and by whoever looks at it, superusers mostly.
 * Between these two the current user is its owner, in a restricted operation,
 * and settings that are changed are set back.  An error undoes it with the
 * transaction or subtransaction, as it does for the server's own uses.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_OWNER_H
#define SCDC_OWNER_H

#include "miscadmin.h"
#include "utils/guc.h"

typedef struct ScdcOwnerScope
{
	Oid			userid;
	int			sec_context;
	int			nestlevel;
} ScdcOwnerScope;

static inline void
scdc_owner_begin(ScdcOwnerScope *scope, Oid owner)
{
	GetUserIdAndSecContext(&scope->userid, &scope->sec_context);
	SetUserIdAndSecContext(owner, scope->sec_context | SECURITY_RESTRICTED_OPERATION);
	scope->nestlevel = NewGUCNestLevel();
}

static inline void
scdc_owner_end(const ScdcOwnerScope *scope)
{
	AtEOXact_GUC(false, scope->nestlevel);
	SetUserIdAndSecContext(scope->userid, scope->sec_context);
}

#endif							/* SCDC_OWNER_H */
