/*-------------------------------------------------------------------------
 *
 * latency.c
 *	  The clients of benchmark p6 (p6.sh), which must be quick and even:
 *
 *	latency write RATE COUNT FIRST	inserts COUNT rows into "ticks", RATE a second
 *	latency poll STREAM LAST		prints "version time" whenever the stream's newest version grows; at its end the looks a second, on stderr
 *	latency stamp COUNT				prints "id time" for each of COUNT lines of test_decoding on stdin
 *
 * They connect as the environment says.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "libpq-fe.h"

#define POLL_PAUSE_NS	10000

static void
print_now(int64_t number)
{
	struct timespec now;
	struct tm	tm;
	char		seconds[32];

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &tm);
	printf("%" PRId64 " %s.%06ldZ\n", number, seconds, now.tv_nsec / 1000);
}

static PGresult *
expect(PGconn *conn, PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
	{
		fprintf(stderr, "latency: %s", PQerrorMessage(conn));
		exit(1);
	}
	return result;
}

/* A connection with one prepared statement. */
static PGconn *
prepare(const char *statement)
{
	PGconn	   *conn = PQconnectdb("");

	if (PQstatus(conn) != CONNECTION_OK)
	{
		fprintf(stderr, "latency: %s", PQerrorMessage(conn));
		exit(1);
	}
	PQclear(expect(conn, PQprepare(conn, "s", statement, 0, NULL)));
	return conn;
}

static void
write_rows(int rate, int64_t count, int64_t first)
{
	PGconn	   *conn = prepare("INSERT INTO ticks VALUES ($1, clock_timestamp())");
	struct timespec next;

	clock_gettime(CLOCK_MONOTONIC, &next);
	for (int64_t id = first; id < first + count; id++)
	{
		char		number[24];
		const char *values[1] = {number};

		snprintf(number, sizeof(number), "%" PRId64, id);
		PQclear(expect(conn, PQexecPrepared(conn, "s", 1, values, NULL, NULL, 0)));
		next.tv_nsec += 1000000000 / rate;
		if (next.tv_nsec >= 1000000000)
		{
			next.tv_nsec -= 1000000000;
			next.tv_sec++;
		}
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL) == EINTR);
	}
	PQfinish(conn);
}

static void
poll_versions(const char *stream, int64_t last)
{
	PGconn	   *conn = prepare("SELECT last_version, to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') FROM streamcdc.blocks WHERE stream_id = $1::bigint "
							   "ORDER BY first_version DESC, chunk DESC LIMIT 1");
	const char *values[1] = {stream};
	const struct timespec pause = {.tv_nsec = POLL_PAUSE_NS};
	int64_t		seen = 0,
				looks = 0;
	struct timespec start,
				end;

	/* the index, whatever the planner makes of a table without statistics */
	PQclear(expect(conn, PQexec(conn, "SET enable_seqscan = off")));
	PQclear(expect(conn, PQexec(conn, "SET plan_cache_mode = force_generic_plan")));
	prctl(PR_SET_TIMERSLACK, 1UL);	/* pauses as short as asked for */
	clock_gettime(CLOCK_MONOTONIC, &start);
	while (seen < last)
	{
		PGresult   *result = expect(conn, PQexecPrepared(conn, "s", 1, values, NULL, NULL, 0));
		int64_t		version = PQntuples(result) > 0 ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : 0;

		looks++;
		if (version > seen)
		{
			printf("%s %s\n", PQgetvalue(result, 0, 0), PQgetvalue(result, 0, 1));
			seen = version;
		}
		PQclear(result);
		nanosleep(&pause, NULL);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	fprintf(stderr, "%.0f\n", looks / (end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) / 1e9));
	PQfinish(conn);
}

static void
stamp_lines(int64_t count)
{
	static const char prefix[] = "ticks: INSERT: id[bigint]:";
	char		line[1024];

	/* a pipe's read returns what is there, so a line is seen when it arrives */
	while (count > 0 && fgets(line, sizeof(line), stdin))
	{
		const char *row = strstr(line, prefix);

		if (row)
		{
			print_now(strtoll(row + strlen(prefix), NULL, 10));
			count--;
		}
	}
}

int
main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "write") == 0)
		write_rows(atoi(argv[2]), strtoll(argv[3], NULL, 10), strtoll(argv[4], NULL, 10));
	else if (argc == 4 && strcmp(argv[1], "poll") == 0)
		poll_versions(argv[2], strtoll(argv[3], NULL, 10));
	else if (argc == 3 && strcmp(argv[1], "stamp") == 0)
		stamp_lines(strtoll(argv[2], NULL, 10));
	else
	{
		fprintf(stderr, "usage: latency write RATE COUNT FIRST | poll STREAM LAST | stamp COUNT\n");
		return 2;
	}
	return 0;
}
