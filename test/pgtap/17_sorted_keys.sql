-- Keys of types that can be sorted but not hashed: how often values are compared must not grow with the square of their number.

SET client_min_messages = warning;

SELECT plan(7);

CREATE SCHEMA p17;
SET search_path = p17, public;

-- a type of our own, whose operators count
CREATE TYPE num AS (n int);
CREATE SEQUENCE calls;
CREATE FUNCTION num_cmp(num, num) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN btint4cmp($1.n, $2.n); END $$;
CREATE FUNCTION num_eq(num, num) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM nextval('p17.calls'); RETURN $1.n = $2.n; END $$;
CREATE FUNCTION num_lt(num, num) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN $1.n < $2.n; END $$;
CREATE FUNCTION num_le(num, num) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN $1.n <= $2.n; END $$;
CREATE FUNCTION num_ge(num, num) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN $1.n >= $2.n; END $$;
CREATE FUNCTION num_gt(num, num) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN $1.n > $2.n; END $$;
CREATE OPERATOR = (LEFTARG = num, RIGHTARG = num, FUNCTION = num_eq, COMMUTATOR = =);
CREATE OPERATOR < (LEFTARG = num, RIGHTARG = num, FUNCTION = num_lt, COMMUTATOR = >);
CREATE OPERATOR <= (LEFTARG = num, RIGHTARG = num, FUNCTION = num_le, COMMUTATOR = >=);
CREATE OPERATOR >= (LEFTARG = num, RIGHTARG = num, FUNCTION = num_ge, COMMUTATOR = <=);
CREATE OPERATOR > (LEFTARG = num, RIGHTARG = num, FUNCTION = num_gt, COMMUTATOR = <);
CREATE OPERATOR CLASS num_ops DEFAULT FOR TYPE num USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 num_cmp(num, num);

-- calls that a count of rows takes, as a multiple of the rows' number
CREATE FUNCTION pg_temp.calls_for_each(rows bigint, query text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
	before bigint := nextval('calls');
	n bigint;
BEGIN
	EXECUTE 'SELECT count(*) FROM ' || query INTO n;
	IF n <> rows THEN
		RAISE '% rows of %', n, query;
	END IF;
	RETURN (nextval('calls') - before)::numeric / 2000;
END $$;

CREATE TABLE t (k num PRIMARY KEY, v int);
SELECT stream_track('t') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO t SELECT ROW(g)::num, 1 FROM generate_series(1, 2000) AS g;	-- 1
UPDATE t SET v = 2;													-- 2
UPDATE t SET k.n = (k).n + 10000;								-- 3
SELECT cmp_ok(pg_temp.calls_for_each(4000, $$stream_changes('t', 2, 2)$$), '<', 10::numeric, 'a commit');
SELECT cmp_ok(pg_temp.calls_for_each(4000, $$stream_changes('t', 2, deduplication_mode => 'netChanges')$$), '<', 10::numeric, 'net changes');
SET work_mem = '64kB';
SELECT cmp_ok(pg_temp.calls_for_each(2000, $$stream_changes('t', deduplication_mode => 'netChanges')$$), '<', 20::numeric, 'in little memory');
RESET work_mem;
SELECT is((SELECT count(*) FROM stream_changes('t', deduplication_mode => 'netChanges') WHERE (row_data #>> '{k,n}')::int <= 10000), 0::bigint, 'with the right result');

-- a registered change log
CREATE TABLE log (k num, rv int, _change_type text, _commit_version bigint, _commit_timestamp timestamptz);
INSERT INTO log SELECT ROW(g)::num, v, CASE v WHEN 1 THEN 'insert' ELSE 'update_postimage' END, v, now() FROM generate_series(1, 2000) AS g, generate_series(1, 2) AS v;
INSERT INTO log VALUES (NULL, 1, 'insert', 1, now()), (NULL, 2, 'update_postimage', 2, now());
SELECT stream_register_changelog('log', true, true, false, '{k}', 'rv') \g /dev/null
SELECT cmp_ok(pg_temp.calls_for_each(2001, $$stream_changes('log', deduplication_mode => 'netChanges')$$), '<', 10::numeric, 'net changes of a registered change log');
SELECT is((SELECT count(*) FROM stream_changes('log', deduplication_mode => 'netChanges') WHERE _commit_version = 2), 2001::bigint, 'with the right result');

-- long keys, of which not many fit into a sample
CREATE TABLE long (k varbit[] PRIMARY KEY, v int);
ALTER TABLE long ALTER k SET STORAGE PLAIN;
SELECT stream_track('long') \g /dev/null
SELECT stream_sync('180 s') \g /dev/null
INSERT INTO long SELECT ARRAY[g::bit(32)::varbit, repeat('10', 4000)::varbit], 1 FROM generate_series(1, 9000) AS g;
UPDATE long SET v = 2;
SELECT is((SELECT count(*) FROM stream_changes('long', deduplication_mode => 'netChanges') WHERE row_data ->> 'v' = '2'), 9000::bigint, 'more than the sample holds');

SELECT stream_untrack('t'), stream_untrack('long') \g /dev/null
DROP SCHEMA p17 CASCADE;
SELECT * FROM finish();
