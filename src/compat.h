/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Differences between server versions; the only place that tests them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_COMPAT_H
#define SCDC_COMPAT_H

#include "replication/reorderbuffer.h"

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 160000
#error "streamcdc supports PostgreSQL 15"
#endif

/* ReorderBufferTupleBuf is gone in 17 (commit 08e6344fd642). */
static inline HeapTuple
scdc_change_tuple_compat(ReorderBufferTupleBuf *buf)
{
	return buf ? &buf->tuple : NULL;
}

#endif							/* SCDC_COMPAT_H */
