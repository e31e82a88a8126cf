# streamcdc is built with PGXS:
#
#   make && make install      needs postgresql-server-dev-15, liblz4-dev, libzstd-dev, librocksdb-dev, g++
#   make installcheck         against a running server that preloads streamcdc, with wal_level = logical
#   make demo                 installs what is missing, builds, and shows it on a throw-away server
#   make demo-stop            stops that server and deletes it
#   make test                 installs what is missing, builds, and runs every suite; STREAMCDC_TEST_JOBS=n at a time
#   make test-regress         one suite: also test-unit, test-isolation, test-pgtap, test-tap
#   make test-tap T=test/t/001_readme.pl
#   make test-model           10,000 random change logs of each kind against a model in SQL; MODEL_LOGS=n, MODEL_SEED=n for the same again
#   make soak                 random histories for SOAK_SECONDS=600, compared with the tables and with test_decoding
#   make bench                prints speed and sizes as ratios to baselines run beside them; make bench B=p1 for one
#   make check-warnings       has gcc and clang compile in a scratch folder, with -Werror
#   make lint                 cppcheck, clang's analyzer, and the SQL scripts; make lint L=sql for one (also c, scan)
#   make format               rewrites the C sources by pg_bsd_indent; make format-check only tells, and fails
#   make test-asan            unit tests under the address and undefined-behaviour sanitizers
#   make fuzz                 libFuzzer on the pure modules, FUZZ_SECONDS=60 for each
#   make test-fresh           as root: HEAD cloned into a fresh Debian 12, "make demo" and "make test" there
#
# Warnings are errors only when asked for, so that a newer compiler never breaks
# anybody's build: make COPT=-Werror

EXTENSION = streamcdc
MODULE_big = streamcdc
DATA = $(sort $(wildcard sql/streamcdc--*.sql))
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c))) src/state/rocks.o
# Calls from one of our files into another go straight there, and not through a table that others might change.
SHLIB_LINK = -llz4 -lzstd -lrocksdb -lstdc++ -Wl,-Bsymbolic-functions

# Tests against a running server; inputs of pg_regress are the scripts without "--" in their names.
# The configuration counts with EXTRA_REGRESS_OPTS=--temp-instance=tmp_check only.
REGRESS = $(patsubst sql/%.sql,%,$(foreach f,$(sort $(wildcard sql/*.sql)),$(if $(findstring --,$(f)),,$(f))))
REGRESS_OPTS = --load-extension=streamcdc --temp-config=test/support/postgresql.conf
ISOLATION = $(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test/isolation --load-extension=streamcdc --temp-config=test/support/postgresql.conf

# Server headers count as system headers: their warnings are not ours to mend.
# -MMD -MP writes beside each object which of our headers it was made from.
PG_CPPFLAGS = -Isrc -isystem $(shell $(PG_CONFIG) --includedir-server) -MMD -MP
EXTRA_CLEAN = $(OBJS:.o=.d)

# -Wno-declaration-after-statement: Debian's server flags ask for that warning; we declare where a value is known.
# -Wno-unused-parameter: callbacks have the signature that the server wants, and so has PG_FUNCTION_ARGS.
# -Wno-missing-field-initializers: the server's own idiom {0} and tables with optional last members.
# The clang ones: the server was configured with gcc, whose attributes and options clang need not know.
PG_CFLAGS = -Wall -Wextra \
	-Wno-declaration-after-statement -Wno-unused-parameter -Wno-missing-field-initializers \
	$(if $(findstring clang,$(CC)),-Wno-ignored-attributes -Wno-unknown-warning-option -Wno-ignored-optimization-argument)

# Bitcode for the JIT would need the very clang that the server was built with, and inlines nothing of ours.
override with_llvm = no

# Debian keeps one pg_config for each server version; the one in the PATH may belong to another.
PG_CONFIG ?= $(firstword $(wildcard /usr/lib/postgresql/15/bin/pg_config) pg_config)
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)

# The first goal, whether PGXS is there or not.
all:

# On a fresh machine there is no PGXS yet, and still "make demo" and "make test" have to work: they install it, and call
# make again.  (pg_config alone does not tell: libpq-dev brings one too.)
ifneq ($(wildcard $(PGXS)),)
include $(PGXS)

$(OBJS): Makefile

# the border to RocksDB (src/state/rocks.h) is C++, and knows nothing of the server
src/state/rocks.o: src/state/rocks.cc
	$(CXX) -std=c++17 -O2 -g -Wall -Wextra -fPIC -fvisibility=hidden -Isrc -MMD -MP $(COPT) -c -o $@ $<

-include $(OBJS:.o=.d)

# all that the compiler says, without linking
.PHONY: objects
objects: $(OBJS)
else
.PHONY: all install installcheck objects
all install installcheck objects:
	@echo "The files to build extensions for PostgreSQL 15 are missing (pg_config: $(PG_CONFIG))." >&2
	@echo "Install postgresql-server-dev-15, liblz4-dev and libzstd-dev, or let test/support/setup do so." >&2
	@exit 1

.PHONY: clean
clean:
	rm -f streamcdc.so $(OBJS) $(OBJS:.o=.d)
endif

.PHONY: demo demo-stop test test-unit test-regress test-isolation test-pgtap test-tap test-model soak check-warnings bench \
	lint format format-check test-asan fuzz test-fresh

export PG_CONFIG

demo:
	@doc/demo/demo.sh start

demo-stop:
	@doc/demo/demo.sh stop

test:
	@test/support/run-tests

test-unit test-regress test-isolation test-pgtap test-tap: test-%:
	@test/support/run-tests $* $(T)

MODEL_LOGS ?= 10000
test-model:
	@MODEL_LOGS=$(MODEL_LOGS) STREAMCDC_TEST_TIMEOUT=86400 test/support/run-tests tap test/t/021_model.pl
	@grep '^# ' test/results/tap-021_model.log

soak:
	@test/support/run-tests soak

check-warnings:
	@test/support/check-warnings

lint:
	@test/support/lint $(L)

format:
	@test/support/format

format-check:
	@test/support/format check

test-asan:
	@test/support/test-asan

fuzz:
	@test/support/fuzz

test-fresh:
	@test/support/test-fresh

bench:
	@bench/run $(B)
