/*-------------------------------------------------------------------------
 *
 * temp_file.c
 *	  Temporary files as collapse.h wants them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/tablespace.h"
#include "storage/buffile.h"

#include "sql/temp_file.h"

void *
scdc_temp_file_create(void)
{
	PrepareTempTablespaces();
	return BufFileCreateTemp(false);
}

void
scdc_temp_file_write(void *file, const void *data, Size size, void *arg)
{
	BufFileWrite(file, unconstify(void *, data), size);
}

void
scdc_temp_file_rewind(void *file, void *arg)
{
	if (BufFileSeek(file, 0, 0, SEEK_SET) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not rewind temporary file: %m")));
}

void
scdc_temp_file_read(void *file, void *data, Size size, void *arg)
{
	Size		got = BufFileRead(file, data, size);

	if (got != size)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read from temporary file: read only %zu of %zu bytes", got, size)));
}

void
scdc_temp_file_close(void *file, void *arg)
{
	BufFileClose(file);
}
