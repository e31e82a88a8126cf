-- Random changes of tracked tables against a model that knows only what the tables held at each commit: model.check_TABLE(seed, log).
--
-- A trigger notes which rows a transaction touches, and before each commit the table itself is asked what became of them; so an
-- identity's image before a commit is the one after the commit that touched it last.  What one transaction nets to, and sections 6
-- to 8 of the semantics, follow from these by window functions.  Needs common.sql.

-- Kinds of tables: the columns of the identity, and a random value of each column.
CREATE TYPE model.mood AS ENUM ('ok', 'bad', 'so so');
CREATE DOMAIN model.small AS int CHECK (VALUE < 100);
CREATE TYPE model.point AS (x int, y numeric);

CREATE TABLE model.tables (name text PRIMARY KEY, keys text[], is_deferred bool, identity text[]);
CREATE TABLE model.plain (id int PRIMARY KEY, v int, f float8);
CREATE TABLE model.equal (n numeric, t text COLLATE model.nocase, v text, PRIMARY KEY (n, t));
CREATE TABLE model.nulls (a int, v jsonb, b text, c date);
CREATE UNIQUE INDEX ON model.nulls (a, b, c) NULLS NOT DISTINCT;
CREATE TABLE model.deferred (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v int);
CREATE TABLE model.parsed (m model.mood, s model.small, p model.point, v text, PRIMARY KEY (p, m, s));
-- keys without a hash
CREATE TABLE model.sorted (k tsvector, b varbit[], v numeric, PRIMARY KEY (k, b));
-- commits that are larger than the least work_mem
CREATE TABLE model.large (id int PRIMARY KEY, v int, filler text);
INSERT INTO model.tables VALUES ('plain', '{id}', false, NULL), ('equal', '{n,t}', false, NULL), ('nulls', '{a,b,c}', false, '{a,b,c}'),
	('deferred', '{id}', true, NULL), ('parsed', '{p,m,s}', false, NULL), ('sorted', '{k,b}', false, NULL),
	('large', '{id}', false, NULL);

CREATE FUNCTION model.random_plain() RETURNS model.plain LANGUAGE sql VOLATILE AS $$
	SELECT (random() * 4)::int, (random() * 2)::int, ('{0,-0,NaN,1,NULL}'::float8[])[floor(random() * 5) + 1] $$;
CREATE FUNCTION model.random_equal() RETURNS model.equal LANGUAGE sql VOLATILE AS $$
	SELECT ('{1,1.0,1.00,2}'::numeric[])[floor(random() * 4) + 1], ('{a,A,b}'::text[])[floor(random() * 3) + 1], ('{x,y,NULL}'::text[])[floor(random() * 3) + 1] $$;
CREATE FUNCTION model.random_nulls() RETURNS model.nulls LANGUAGE sql VOLATILE AS $$
	SELECT ('{1,NULL}'::int[])[floor(random() * 2) + 1], ('{"1","1.0",NULL}'::jsonb[])[floor(random() * 3) + 1], ('{x,NULL}'::text[])[floor(random() * 2) + 1],
		('{2024-01-01,NULL,infinity}'::date[])[floor(random() * 3) + 1] $$;
CREATE FUNCTION model.random_deferred() RETURNS model.deferred LANGUAGE sql VOLATILE AS $$
	SELECT (random() * 4)::int, (random() * 1000000000)::int $$;
CREATE FUNCTION model.random_parsed() RETURNS model.parsed LANGUAGE sql VOLATILE AS $$
	SELECT ('{ok,bad}'::model.mood[])[floor(random() * 2) + 1], (random() * 1)::int, ROW(1, ('{1,1.0,2}'::numeric[])[floor(random() * 3) + 1])::model.point,
		('{x,y,NULL}'::text[])[floor(random() * 3) + 1] $$;
CREATE FUNCTION model.random_sorted() RETURNS model.sorted LANGUAGE sql VOLATILE AS $$
	SELECT ('{"a b","c"}'::tsvector[])[floor(random() * 2) + 1], ('{"{101}","{101,NULL}","{}"}'::text[])[floor(random() * 3) + 1]::varbit[], (random() * 2)::int $$;

CREATE FUNCTION model.random_large() RETURNS model.large LANGUAGE sql VOLATILE AS $$
	SELECT (random() * 1000)::int, 0, repeat('x', 50) $$;

CREATE SEQUENCE model.place;
CREATE FUNCTION model.xid() RETURNS bigint LANGUAGE sql AS $$ SELECT pg_current_xact_id()::text::bigint $$;

SELECT format($f$
CREATE TABLE model.touched_%1$s (xid bigint, n bigint, side int, r model.%1$s);
CREATE INDEX ON model.touched_%1$s (xid);
CREATE TABLE model.states_%1$s (xid bigint, n bigint, last_side int, k model.%1$s, r model.%1$s);

CREATE FUNCTION model.touch_%1$s() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	n bigint := nextval('model.place');
BEGIN
	IF TG_OP <> 'INSERT' THEN
		INSERT INTO model.touched_%1$s VALUES (model.xid(), n, 0, OLD);
	END IF;
	IF TG_OP <> 'DELETE' THEN
		INSERT INTO model.touched_%1$s VALUES (model.xid(), n, 1, NEW);
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER touch AFTER INSERT OR UPDATE OR DELETE ON model.%1$s FOR EACH ROW EXECUTE FUNCTION model.touch_%1$s();

-- to be called before each commit; version 0 is that of number 0
CREATE FUNCTION model.note_%1$s(number bigint) RETURNS void LANGUAGE sql AS $$
	INSERT INTO model.states_%1$s
	SELECT number, t.n, t.last_side, t.k, (SELECT x FROM model.%1$s AS x WHERE (%2$s) IS NOT DISTINCT FROM (%3$s))
	FROM (SELECT max(n) AS n, (array_agg(side ORDER BY n DESC, side DESC))[1] AS last_side, (array_agg(r))[1] AS k
		FROM model.touched_%1$s WHERE xid = model.xid() GROUP BY %4$s) AS t
$$;

-- One operation on some row or other.  What would break uniqueness does not happen.
CREATE FUNCTION model.operate_%1$s(choice int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	r model.%1$s := model.random_%1$s();
	old model.%1$s;
	spot tid;
	at int;
BEGIN
	IF choice = 1 THEN
		IF NOT EXISTS (SELECT FROM model.%1$s AS x WHERE (%2$s) IS NOT DISTINCT FROM (%6$s)) THEN
			INSERT INTO model.%1$s VALUES (r.*);
		END IF;
		RETURN;
	END IF;
	at := floor(random() * (SELECT count(*) FROM model.%1$s));
	SELECT ctid INTO spot FROM model.%1$s ORDER BY ctid OFFSET at LIMIT 1;
	CASE choice
		WHEN 2 THEN
			DELETE FROM model.%1$s WHERE ctid = spot;
		WHEN 3 THEN
			UPDATE model.%1$s SET v = r.v WHERE ctid = spot;
		WHEN 4 THEN
			UPDATE model.%1$s SET v = v WHERE ctid = spot;
		WHEN 5 THEN
			UPDATE model.%1$s AS x SET (%5$s) = ROW(%6$s) WHERE ctid = spot AND NOT EXISTS (
				SELECT FROM model.%1$s AS x WHERE ctid <> spot AND (%2$s) IS NOT DISTINCT FROM (%6$s));
		WHEN 6 THEN
			-- away and back
			SELECT * INTO old FROM model.%1$s WHERE ctid = spot;
			UPDATE model.%1$s SET v = r.v WHERE ctid = spot RETURNING ctid INTO spot;
			UPDATE model.%1$s SET v = old.v WHERE ctid = spot;
		WHEN 7 THEN
			-- gone and there again
			DELETE FROM model.%1$s AS x WHERE ctid = spot RETURNING x.* INTO old;
			IF FOUND THEN
				INSERT INTO model.%1$s VALUES (old.*);
			END IF;
		WHEN 8 THEN
			-- never was
			BEGIN
				DELETE FROM model.%1$s;
				RAISE division_by_zero;
			EXCEPTION WHEN division_by_zero THEN
				NULL;
			END;
	END CASE;
END $$;
$f$, name, (SELECT string_agg('x.' || k, ', ') FROM unnest(keys) AS k), (SELECT string_agg('(t.k).' || k, ', ') FROM unnest(keys) AS k),
	(SELECT string_agg('(r).' || k, ', ') FROM unnest(keys) AS k), array_to_string(keys, ', '), (SELECT string_agg('r.' || k, ', ') FROM unnest(keys) AS k))
FROM model.tables \gexec

-- With a deferred constraint rows may share a key for a while.  Each row gets a value of its own: which of two equal ones went is
-- not to be known.
CREATE FUNCTION model.permute_deferred() RETURNS void LANGUAGE sql AS $$
	UPDATE model.deferred SET id = (id + 1) % 5, v = (random() * 1000000000)::int WHERE (SELECT count(*) = 5 AND max(id) < 5 FROM model.deferred);
	UPDATE model.deferred SET id = 9 - id, v = (random() * 1000000000)::int WHERE id IN (4, 5) $$;

CREATE FUNCTION model.operate_on_many() RETURNS void LANGUAGE sql AS $$
	INSERT INTO model.large SELECT i, 0, repeat('x', 50) FROM (SELECT (random() * 5000)::int AS start) AS s, generate_series(start, start + 2999) AS i
		ON CONFLICT DO NOTHING;
	UPDATE model.large SET v = v + (random() * 2)::int WHERE random() < 0.5;
	DELETE FROM model.large WHERE random() < 0.1;
	UPDATE model.large SET id = id + 100000 WHERE random() < 0.1 AND id < 100000
		AND NOT EXISTS (SELECT FROM model.large AS l WHERE l.id = large.id + 100000);
	UPDATE model.large SET v = v + (random() * 2)::int - 1 WHERE random() < 0.3 $$;

-- Commits of each log: which of them are its own is kept by their transactions' numbers.
CREATE TABLE model.commits (name text, log int, xid bigint);

CREATE PROCEDURE model.write(name text, seed bigint, logs int) LANGUAGE plpgsql AS $$
DECLARE
	is_deferred bool := (SELECT t.is_deferred FROM model.tables AS t WHERE t.name = write.name);
BEGIN
	FOR l IN 1 .. logs LOOP
		PERFORM model.seed(seed, hashtext(name) + l);
		FOR c IN 1 .. floor(random() * 6) + 1 LOOP
			FOR o IN 1 .. floor(random() * 4) + 1 LOOP
				EXECUTE format('SELECT model.operate_%s($1)', name) USING (floor(random() * CASE WHEN random() < 0.9 THEN 7 ELSE 8 END) + 1)::int;
				IF name = 'large' AND o = 1 THEN
					PERFORM model.operate_on_many();
				END IF;
				IF is_deferred AND random() < 0.3 THEN
					PERFORM model.permute_deferred();
				END IF;
			END LOOP;
			EXECUTE format('SELECT model.note_%s(model.xid())', name);
			INSERT INTO model.commits VALUES (name, l, model.xid());
			COMMIT;
		END LOOP;
	END LOOP;
END $$;

SELECT format($f$ INSERT INTO model.%1$s SELECT r.* FROM model.random_%1$s() AS r; SELECT model.note_%1$s(0); TRUNCATE model.touched_%1$s $f$, name)
FROM model.tables \gexec
-- the baseline has no events: its rows stand in the order of the table
SELECT stream_track(format('model.%I', name)::regclass, identity) FROM model.tables \g /dev/null

/*
 * The model, once all is written: a row for each identity and version that touched it
 */
SELECT format($f$
CREATE FUNCTION model.prepare_%1$s() RETURNS void LANGUAGE sql AS $$
	CREATE TABLE model.steps_%1$s AS
		SELECT v._commit_version AS version, v._commit_timestamp AS ts, s.n, s.last_side, s.k,
			lag(s.r) OVER (PARTITION BY %2$s ORDER BY v._commit_version) AS before, s.r AS after
		FROM model.states_%1$s AS s
			JOIN stream_versions('model.%1$s') AS v ON CASE s.xid WHEN 0 THEN v._commit_version = 0 ELSE v._commit_version > 0 AND v.xid::text::bigint = s.xid END;
	CREATE INDEX ON model.steps_%1$s (version);
	ANALYZE model.steps_%1$s;
	CREATE TABLE model.logs_%1$s AS
		SELECT c.log, min(v._commit_version) AS first, max(v._commit_version) AS last
		FROM model.commits AS c JOIN stream_versions('model.%1$s') AS v ON v._commit_version > 0 AND v.xid::text::bigint = c.xid
		WHERE c.name = '%1$s' GROUP BY c.log;
	CREATE INDEX ON model.logs_%1$s (log);
$$;
$f$, name, (SELECT string_agg('(s.k).' || k, ', ') FROM unnest(keys) AS k))
FROM model.tables \gexec

-- bodies refer to tables that are made by the functions above
SET check_function_bodies = off;

SELECT format($f$
CREATE FUNCTION model.expected_%1$s(first bigint, last bigint, mode text, updates bool) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF mode = 'none' AND updates THEN
		RETURN 'error INVALID_CDC_OPTION.UPDATE_DETECTION_REQUIRES_CARRY_OVER_REMOVAL';
	END IF;
	RETURN (
	WITH changes AS (
		SELECT s.*, side, CASE side WHEN 0 THEN before ELSE after END AS image, before IS DISTINCT FROM NULL AND after IS DISTINCT FROM NULL AS is_pair
		FROM model.steps_%1$s AS s, (VALUES (0), (1)) AS sides (side)
		WHERE s.version >= first AND s.version <= last AND CASE side WHEN 0 THEN before ELSE after END IS DISTINCT FROM NULL
			AND (mode = 'none' OR before IS NOT DISTINCT FROM NULL OR after IS NOT DISTINCT FROM NULL OR NOT before *= after)
	), ranked AS (
		SELECT *, row_number() OVER w AS number, count(*) OVER (PARTITION BY %2$s) AS total,
			first_value(side) OVER w = 0 AS existed, last_value(side) OVER w = 1 AS remains
		FROM changes
		WINDOW w AS (PARTITION BY %2$s ORDER BY version, side ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
	)
	SELECT coalesce(string_agg(format('%%s %%s %%s %%s',
		CASE WHEN updates AND (CASE mode WHEN 'netChanges' THEN existed AND remains ELSE is_pair END)
			THEN CASE side WHEN 0 THEN 'update_preimage' ELSE 'update_postimage' END
			ELSE CASE side WHEN 0 THEN 'delete' ELSE 'insert' END END, version, ts, image), E'\n' ORDER BY version, n, last_side, side), '')
	FROM ranked
	WHERE mode <> 'netChanges' OR (existed AND number = 1 AND side = 0) OR (remains AND number = total AND side = 1));
END $$;

CREATE FUNCTION model.got_%1$s(as_versions bool, first text, last text, first_inclusive bool, last_inclusive bool, mode text, updates bool) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	result text;
	detail text;
BEGIN
	IF as_versions THEN
		SELECT string_agg(format('%%s %%s %%s %%s', _change_type, _commit_version, _commit_timestamp, row_data), E'\n') INTO result
		FROM stream_changes(NULL::model.%1$s, first::bigint, last::bigint, NULL, NULL, first_inclusive, last_inclusive, mode, updates);
	ELSE
		SELECT string_agg(format('%%s %%s %%s %%s', _change_type, _commit_version, _commit_timestamp, row_data), E'\n') INTO result
		FROM stream_changes(NULL::model.%1$s, NULL, NULL, first::timestamptz, last::timestamptz, first_inclusive, last_inclusive, mode, updates);
	END IF;
	RETURN coalesce(result, '');
EXCEPTION WHEN invalid_parameter_value THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN 'error ' || coalesce(substring(detail FROM 'Error condition: (.*)\.$'), detail);
END $$;

-- net changes of two parts of a range, netted again
CREATE FUNCTION model.composed_%1$s(first bigint, middle bigint, last bigint, updates bool) RETURNS text LANGUAGE sql AS $$
	WITH parts AS MATERIALIZED (
		SELECT row_number() OVER () AS n, * FROM (
			SELECT * FROM stream_changes(NULL::model.%1$s, first, middle, deduplication_mode => 'netChanges', compute_updates => updates)
			UNION ALL
			SELECT * FROM stream_changes(NULL::model.%1$s, middle, last, starting_bound_inclusive => false, deduplication_mode => 'netChanges',
				compute_updates => updates)) AS p
	), sided AS (
		SELECT n, _commit_version AS version, _commit_timestamp AS ts, row_data AS image, (_change_type IN ('insert', 'update_postimage'))::int AS side FROM parts
	), ranked AS (
		SELECT *, row_number() OVER w AS number, count(*) OVER (PARTITION BY %3$s) AS total,
			first_value(side) OVER w = 0 AS existed, last_value(side) OVER w = 1 AS remains
		FROM sided
		WINDOW w AS (PARTITION BY %3$s ORDER BY version, side ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
	)
	SELECT coalesce(string_agg(format('%%s %%s %%s %%s', CASE WHEN updates AND existed AND remains
			THEN CASE side WHEN 0 THEN 'update_preimage' ELSE 'update_postimage' END
			ELSE CASE side WHEN 0 THEN 'delete' ELSE 'insert' END END, version, ts, image), E'\n' ORDER BY n), '')
	FROM ranked
	WHERE (existed AND number = 1 AND side = 0) OR (remains AND number = total AND side = 1)
$$;

-- Random ranges of a log; what differs from the model, or nothing.
CREATE FUNCTION model.check_%1$s(seed bigint, which int) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	of record;
	range record;
	m record;
	got text;
	again text;
	expected text;
	nreads int := 0;
	nrows bigint := 0;
BEGIN
	SELECT * INTO of FROM model.logs_%1$s AS l WHERE l.log = which;
	IF NOT FOUND THEN
		RETURN;		-- nothing was there to change
	END IF;
	PERFORM model.seed(seed + 1, hashtext('%1$s') + which);
	FOR k IN 1 .. 3 LOOP
		-- inclusive bounds, and the same range as one of versions or timestamps that include their bounds or not
		SELECT first, greatest(first, of.last - floor(random() * 3)::bigint) AS last, random() < 0.6 AS as_versions,
			random() < 0.6 AS first_inclusive, random() < 0.6 AS last_inclusive, floor(random() * 2) AS off
		INTO range FROM (SELECT of.first + floor(random() * (of.last - of.first + 1))::bigint AS first) AS f;
		FOR m IN SELECT * FROM model.modes LOOP
			PERFORM set_config('work_mem', CASE WHEN k = 1 THEN '64kB' ELSE '64MB' END, true);
			IF range.as_versions THEN
				got := model.got_%1$s(true, (range.first - (NOT range.first_inclusive)::int)::text, (range.last + (NOT range.last_inclusive)::int)::text,
					range.first_inclusive, range.last_inclusive, m.mode, m.updates);
			ELSE
				SELECT model.got_%1$s(false, (min(ts) FILTER (WHERE version = range.first) - (NOT range.first_inclusive)::int * interval '1 microsecond')::text,
					(max(ts) FILTER (WHERE version = range.last) + (NOT range.last_inclusive)::int * interval '1 microsecond')::text,
					range.first_inclusive, range.last_inclusive, m.mode, m.updates)
				INTO got FROM model.steps_%1$s WHERE version IN (range.first, range.last);
			END IF;
			expected := model.expected_%1$s(range.first, range.last, m.mode, m.updates);
			nreads := nreads + 1;
			nrows := nrows + CASE WHEN got IN ('') OR left(got, 5) = 'error' THEN 0 ELSE length(got) - length(replace(got, E'\n', '')) + 1 END;
			IF got <> expected THEN
				RETURN NEXT format(E'table %1$s, log %%s, versions %%s to %%s, mode %%s, compute_updates %%s, %%s: expected\n%%s\ngot\n%%s\nof the events\n%%s', which,
					range.first, range.last, m.mode, m.updates, range, left(expected, 3000), left(got, 3000),
					(SELECT left(string_agg(e::text, E'\n'), 5000) FROM stream_events('model.%1$s', range.first, range.last) AS e));
			END IF;
			IF k = 1 THEN
				PERFORM set_config('work_mem', '64MB', true);
				again := model.got_%1$s(true, range.first::text, range.last::text, true, true, m.mode, m.updates);
				IF got <> again THEN
					RETURN NEXT format(E'table %1$s, versions %%s to %%s, mode %%s, compute_updates %%s: with work_mem 64kB\n%%s\nwith 64MB\n%%s',
						range.first, range.last, m.mode, m.updates, left(got, 2000), left(again, 2000));
				END IF;
				PERFORM model.count('reads with little and much work_mem', 1);
			END IF;
			IF m.mode = 'netChanges' AND k = 2 THEN
				again := model.composed_%1$s(range.first, range.first + floor(random() * (range.last - range.first + 1))::bigint, range.last, m.updates);
				IF got <> again THEN
					RETURN NEXT format(E'table %1$s, versions %%s to %%s, compute_updates %%s: the whole is\n%%s\nits parts come to\n%%s',
						range.first, range.last, m.updates, left(got, 3000), left(again, 3000));
				END IF;
				PERFORM model.count('ranges composed of two parts', 1);
			END IF;
		END LOOP;
	END LOOP;
	PERFORM model.count('logs of tracked tables', 1), model.count('reads compared', nreads), model.count('rows read', nrows);
END $$;
$f$, name, (SELECT string_agg('(k).' || k, ', ') FROM unnest(keys) AS k), (SELECT string_agg('(image).' || k, ', ') FROM unnest(keys) AS k))
FROM model.tables \gexec
