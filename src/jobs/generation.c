/*-------------------------------------------------------------------------
 *
 * generation.c
 *	  What a batch leaves in the state store (see generation.h).
 *
 * Keys of the state store are 'g', batch, place, the numbers in eight bytes,
 * most significant first, so that the store keeps them in their order.  A value
 * is a pack of records, each behind its length in four bytes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_bswap.h"
#include "utils/memutils.h"

#include "jobs/generation.h"

#define KEY_SIZE	17

/* A pack ends when it has so many bytes. */
#define PACK_SIZE	(16 * 1024)

/* Room for a pack that is kept: a large record must not hold its memory for ever. */
#define PACK_ROOM	(1024 * 1024)

/* Packs of so many records are deleted one by one. */
#define FEW_RECORDS	10000

static ScdcStoreKey
pack_key(char *room, int64 batch_id, int64 place)
{
	uint64		batch = pg_hton64((uint64) batch_id);
	uint64		number = pg_hton64((uint64) place);
	ScdcStoreKey key = {room, KEY_SIZE};

	room[0] = 'g';
	memcpy(room + 1, &batch, 8);
	memcpy(room + 9, &number, 8);
	return key;
}

void
scdc_generation_forget(ScdcStore *store, int64 batch_id, int64 records)
{
	char		from[KEY_SIZE];
	char		to[KEY_SIZE];

	if (records > 0)
		scdc_store_delete_range(store, pack_key(from, batch_id, 0), pack_key(to, batch_id + 1, 0), records <= FEW_RECORDS);
}

/* ---------------------------------------------------------------------
 * writing
 * ---------------------------------------------------------------------
 */

/* What an unfinished try of this batch may have left would be taken for this one's. */
static void
forget_this_and_later(ScdcStore *store, int64 batch_id)
{
	char		from[KEY_SIZE];
	char		to[KEY_SIZE];
	ScdcStoreKey first = pack_key(from, batch_id, 0);
	ScdcStoreKey last = pack_key(to, PG_INT64_MAX, 0);

	if (scdc_store_any(store, first, last))
		scdc_store_delete_range(store, first, last, false);
}

uint8 *
scdc_generation_room(ScdcGenerationWriter *w, Size len)
{
	if (w->pack_room - w->pack_len < len)
	{
		w->pack_room = Max(w->pack_room + w->pack_room / 2, w->pack_len + len);
		w->pack = repalloc_huge(w->pack, w->pack_room);
	}
	return (uint8 *) w->pack + w->pack_len;
}

void
scdc_generation_add(ScdcGenerationWriter *w, Size len)
{
	w->pack_len += len;
}

/* Its length is known at its end. */
static void
begin_record(ScdcGenerationWriter *w)
{
	w->record = w->pack_len;
	w->first = w->record == 0;
	(void) scdc_generation_room(w, sizeof(uint32));
	scdc_generation_add(w, sizeof(uint32));
}

static void
begin_pack(ScdcGenerationWriter *w)
{
	if (w->pack_room > PACK_ROOM)
	{
		pfree(w->pack);
		w->pack = NULL;
	}
	if (w->pack == NULL)
	{
		w->pack_room = PACK_SIZE * 2;
		w->pack = MemoryContextAlloc(w->context, w->pack_room);
	}
	w->pack_len = 0;
}

static void
write_pack(ScdcGenerationWriter *w)
{
	char		room[KEY_SIZE];
	ScdcStoreKey key = pack_key(room, w->batch_id, w->npacks++);

	COMP_CRC32C(w->crc, key.data, key.len);
	COMP_CRC32C(w->crc, w->pack, w->pack_len);
	scdc_store_put_sorted(w->store, key, w->pack, w->pack_len);
	begin_pack(w);
}

void
scdc_generation_write(ScdcGenerationWriter *w, ScdcStore *store, int64 batch_id)
{
	memset(w, 0, sizeof(*w));
	w->store = store;
	w->batch_id = batch_id;
	w->context = CurrentMemoryContext;
	INIT_CRC32C(w->crc);
	begin_pack(w);
	begin_record(w);
	forget_this_and_later(store, batch_id);
}

Size
scdc_generation_end_record(ScdcGenerationWriter *w)
{
	Size		len = w->pack_len - w->record - sizeof(uint32);
	uint32		stored = (uint32) len;

	if (len > PG_UINT32_MAX)
		elog(ERROR, "record of %zu bytes is too large for the state", len);
	memcpy(w->pack + w->record, &stored, sizeof(uint32));
	w->records++;
	if (w->pack_len >= PACK_SIZE)
		write_pack(w);
	begin_record(w);
	return len;
}

void
scdc_generation_finish(ScdcGenerationWriter *w)
{
	/* without the record that has been begun */
	w->pack_len = w->record;
	if (w->pack_len > 0)
		write_pack(w);
	scdc_store_end_sorted(w->store);
	FIN_CRC32C(w->crc);
}

/* ---------------------------------------------------------------------
 * reading
 * ---------------------------------------------------------------------
 */

void
scdc_generation_read(ScdcGenerationReader *r, ScdcStore *store, int64 batch_id)
{
	char		from[KEY_SIZE];
	char		to[KEY_SIZE];

	memset(r, 0, sizeof(*r));
	r->store = store;
	INIT_CRC32C(r->crc);
	r->scan = scdc_store_scan_begin(store, pack_key(from, batch_id, 0), pack_key(to, batch_id + 1, 0));
}

bool
scdc_generation_next(ScdcGenerationReader *r, const char **data, Size *len)
{
	uint32		record_len = PG_UINT32_MAX;

	r->first = r->left == 0;
	if (r->left == 0)
	{
		ScdcStoreKey key,
					value;

		if (!scdc_store_scan_next(r->scan, &key, &value))
			return false;
		COMP_CRC32C(r->crc, key.data, key.len);
		COMP_CRC32C(r->crc, value.data, value.len);
		r->at = value.data;
		r->left = value.len;
	}
	if (r->left >= sizeof(uint32))
		memcpy(&record_len, r->at, sizeof(uint32));
	if (record_len > r->left - Min(r->left, sizeof(uint32)))
		scdc_store_damaged(r->store, "a record is cut short");
	*data = r->at + sizeof(uint32);
	*len = record_len;
	r->at += sizeof(uint32) + record_len;
	r->left -= sizeof(uint32) + record_len;
	r->records++;
	return true;
}

void
scdc_generation_check(ScdcGenerationReader *r, int64 records, uint32 crc)
{
	scdc_store_scan_end(r->scan);
	r->scan = NULL;
	FIN_CRC32C(r->crc);
	if (r->records != records || (records > 0 && r->crc != crc))
		scdc_store_damaged(r->store, psprintf(INT64_FORMAT " records were read where " INT64_FORMAT " were written, or others",
											  r->records, records));
}
