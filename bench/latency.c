/*-------------------------------------------------------------------------
 *
 * latency.c
 *	  The clients of benchmarks p6 and p8, which must be quick and even:
 *
 *	latency write RATE COUNT FIRST	inserts COUNT rows into "ticks", RATE a second
 *	latency poll STREAM LAST		prints "version time" whenever the stream's newest version grows; at its end the looks a second, on stderr
 *	latency poll-sink TABLE LAST	the same for the newest _commit_version in that table, which has an index on it
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
#include <time.h>
#include <unistd.h>

#include "libpq-fe.h"

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

/*
 * Looks from within a function, where a look costs a tenth of what it costs
 * from a client, so that a version is seen that much closer to when it came.
 */
static void
poll_versions(const char *query, int64_t last)
{
	PGconn	   *conn = prepare("SELECT 1");
	const char *values[1];
	char		text[24];
	char		function[2048];
	PGresult   *result;
	struct timespec start,
				end;
	double		looks = 0;

	/* the index, whatever the planner makes of a table without statistics */
	PQclear(expect(conn, PQexec(conn, "SET enable_seqscan = off")));
	PQclear(expect(conn, PQexec(conn, "SET plan_cache_mode = force_generic_plan")));
	snprintf(function, sizeof(function),
			 "CREATE FUNCTION pg_temp.look(last bigint) RETURNS TABLE (version bigint, at timestamptz) LANGUAGE plpgsql AS $$\n"
			 "DECLARE\n"
			 "	seen bigint := 0;\n"
			 "	looks bigint := 0;\n"
			 "BEGIN\n"
			 "	WHILE seen < last LOOP\n"
			 "		version := (%s);\n"
			 "		looks := looks + 1;\n"
			 "		IF version > seen THEN\n"
			 "			at := clock_timestamp();\n"
			 "			seen := version;\n"
			 "			RETURN NEXT;\n"
			 "		END IF;\n"
			 "	END LOOP;\n"
			 "	version := -looks;\n"
			 "	RETURN NEXT;\n"
			 "END\n"
			 "$$", query);
	PQclear(expect(conn, PQexec(conn, function)));
	snprintf(text, sizeof(text), "%" PRId64, last);
	values[0] = text;
	clock_gettime(CLOCK_MONOTONIC, &start);
	result = expect(conn, PQexecParams(conn,
									   "SELECT version, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') FROM pg_temp.look($1::bigint)",
									   1, NULL, values, NULL, NULL, 0));
	clock_gettime(CLOCK_MONOTONIC, &end);
	for (int i = 0; i < PQntuples(result); i++)
	{
		const char *version = PQgetvalue(result, i, 0);

		if (version[0] == '-')
			looks = strtod(version + 1, NULL);
		else
			printf("%s %s\n", version, PQgetvalue(result, i, 1));
	}
	fprintf(stderr, "%.0f\n", looks / (end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) / 1e9));
	PQclear(result);
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
	char		query[512];

	if (argc == 5 && strcmp(argv[1], "write") == 0)
		write_rows(atoi(argv[2]), strtoll(argv[3], NULL, 10), strtoll(argv[4], NULL, 10));
	else if (argc == 4 && strcmp(argv[1], "poll") == 0)
	{
		snprintf(query, sizeof(query), "SELECT b.last_version FROM streamcdc.blocks AS b WHERE b.stream_id = %s"
				 " ORDER BY b.first_version DESC, b.chunk DESC LIMIT 1", argv[2]);
		poll_versions(query, strtoll(argv[3], NULL, 10));
	}
	else if (argc == 4 && strcmp(argv[1], "poll-sink") == 0)
	{
		snprintf(query, sizeof(query), "SELECT c._commit_version FROM %s AS c ORDER BY c._commit_version DESC LIMIT 1", argv[2]);
		poll_versions(query, strtoll(argv[3], NULL, 10));
	}
	else if (argc == 3 && strcmp(argv[1], "stamp") == 0)
		stamp_lines(strtoll(argv[2], NULL, 10));
	else
	{
		fprintf(stderr, "usage: latency write RATE COUNT FIRST | poll STREAM LAST | poll-sink TABLE LAST | stamp COUNT\n");
		return 2;
	}
	return 0;
}
