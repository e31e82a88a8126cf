/*-------------------------------------------------------------------------
 *
 * tap.h
 *	  Just enough of the Test Anything Protocol for unit tests in C.
 *
 * Each test program is one file that includes this once; main() ends with
 * "return done_testing()".
 *
 *-------------------------------------------------------------------------
 */
#ifndef SCDC_TAP_H
#define SCDC_TAP_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int	tap_planned = -1;
static int	tap_run = 0;
static int	tap_failed = 0;

static inline void
plan(int tests)
{
	tap_planned = tests;
	printf("1..%d\n", tests);
}

static inline void
diag(const char *format, ...)
{
	va_list		args;

	printf("# ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

static inline bool
ok(bool passed, const char *name)
{
	printf("%sok %d - %s\n", passed ? "" : "not ", ++tap_run, name);
	if (!passed)
		tap_failed++;
	fflush(stdout);
	return passed;
}

static inline bool
is_int(int64_t got, int64_t expected, const char *name)
{
	if (!ok(got == expected, name))
		diag("got %" PRId64 ", expected %" PRId64, got, expected);
	return got == expected;
}

static inline bool
is_str(const char *got, const char *expected, const char *name)
{
	bool		same = strcmp(got, expected) == 0;

	if (!ok(same, name))
		diag("got \"%s\", expected \"%s\"", got, expected);
	return same;
}

/* The exit code of the program. */
static inline int
done_testing(void)
{
	if (tap_planned < 0)
		plan(tap_run);
	if (tap_planned != tap_run)
		diag("planned %d tests, ran %d", tap_planned, tap_run);
	if (tap_failed > 0)
		diag("%d of %d tests failed", tap_failed, tap_run);
	return tap_failed > 0 || tap_planned != tap_run;
}

/*
 * A small random generator, so that a printed seed repeats a run on any
 * machine.  The seed comes from the environment variable SEED, else the time.
 */
static uint64_t tap_random_state;

static inline void
seed_random(uint64_t fallback)
{
	const char *given = getenv("SEED");
	uint64_t	seed = given != NULL ? strtoull(given, NULL, 10) : fallback;

	diag("SEED=%" PRIu64, seed);
	tap_random_state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
}

static inline uint64_t
random64(void)
{
	uint64_t	z = (tap_random_state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

/* From 0 to below limit. */
static inline uint32_t
random_below(uint32_t limit)
{
	return (uint32_t) (random64() % limit);
}

#endif							/* SCDC_TAP_H */
