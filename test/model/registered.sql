-- Random change logs from elsewhere against sections 6 to 8 of the semantics, written as window functions: model.check_registered(seed, log).
--
-- All logs lie in one table; a view for each kind of row_id and each combination of the three flags shows the one that is chosen
-- by a setting.  Rows of a result are told apart by their place in the log ("pos").  Needs common.sql.

CREATE TYPE model.pair AS (x int, y text);

CREATE TABLE model.log (
	log int, pos int,
	id int, n numeric, t text COLLATE model.nocase, f float8, p model.pair, d jsonb,
	rv numeric, filler text,
	_change_type text, _commit_version bigint, _commit_timestamp timestamptz);
CREATE INDEX ON model.log (log);

-- kinds of row_id: what it is to us, and to SQL
CREATE TABLE model.shapes (shape int, row_id text[], keys text[]);
INSERT INTO model.shapes VALUES
	(1, '{id}', '{id}'),
	(2, '{n,t}', '{n,t}'),
	(3, '{f,t,id}', '{f,t,id}'),
	(4, '{p.x,d.k}', ARRAY['(p).x', 'nullif(d -> ''k'', ''null'')']);

CREATE VIEW model.flags AS
	SELECT c, i, u FROM unnest('{f,t}'::bool[]) AS c, unnest('{f,t}'::bool[]) AS i, unnest('{f,t}'::bool[]) AS u;

CREATE FUNCTION model.view_name(shape int, c bool, i bool, u bool) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT format('log_%s_%s%s%s', shape, c::int, i::int, u::int) $$;

SELECT format('CREATE VIEW model.%I AS SELECT * FROM model.log WHERE log = current_setting(''model.log'')::int ORDER BY pos', model.view_name(shape, c, i, u))
FROM model.shapes, model.flags \gexec
SELECT stream_register_changelog(format('model.%I', model.view_name(shape, c, i, u))::regclass, c, i, u, row_id, 'rv')
FROM model.shapes, model.flags \g /dev/null

/*
 * The model
 */
CREATE TYPE model.range AS (kind text, first text, last text, first_inclusive bool, last_inclusive bool);

CREATE FUNCTION model.contains(r model.range, version bigint, ts timestamptz) RETURNS bool LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE r.kind
		WHEN 'all' THEN true
		WHEN 'version' THEN
			version > r.first::bigint - r.first_inclusive::int AND (r.last IS NULL OR version < r.last::bigint + r.last_inclusive::int)
		ELSE
			ts > r.first::timestamptz - r.first_inclusive::int * interval '1 microsecond'
			AND (r.last IS NULL OR ts < r.last::timestamptz + r.last_inclusive::int * interval '1 microsecond')
		END $$;

-- What a read must give: a line for each row, in the order of versions and then of the log; or "error", and which ones may be raised.
SELECT format($f$
CREATE FUNCTION model.expected_%1$s(which int, c bool, i bool, u bool, range model.range, mode text, updates bool) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
	removal bool := c AND mode <> 'none';
	detection bool := u AND updates;
	netting bool := i AND mode = 'netChanges';
	errors text;
	result text;
BEGIN
	IF detection AND c AND mode = 'none' THEN
		RETURN 'error INVALID_CDC_OPTION.UPDATE_DETECTION_REQUIRES_CARRY_OVER_REMOVAL';
	END IF;
	WITH raw AS (
		SELECT pos, _change_type AS type, _commit_version AS version, _commit_timestamp AS ts, rv, %2$s
		FROM model.log WHERE log = which AND coalesce(model.contains(range, _commit_version, _commit_timestamp), false)
	), groups AS (
		SELECT *, count(*) FILTER (WHERE type = 'delete') OVER g AS nd, count(*) FILTER (WHERE type = 'insert') OVER g AS ni,
			count(rv) OVER g AS nv, min(rv) OVER g AS vmin, max(rv) OVER g AS vmax
		FROM raw WINDOW g AS (PARTITION BY %3$s, version)
	), survivors AS (
		SELECT * FROM groups WHERE NOT (removal AND nd = 1 AND ni = 1 AND nv = 2 AND vmin = vmax)
	), labelled AS (
		SELECT *, CASE WHEN NOT (detection AND nd = 1 AND ni = 1) THEN type
			WHEN type = 'insert' THEN 'update_postimage' ELSE 'update_preimage' END AS label
		FROM survivors
	), events AS (
		SELECT *, row_number() OVER e AS number, count(*) OVER (PARTITION BY %3$s) AS total,
			first_value(delete_like) OVER e AS before, NOT last_value(delete_like) OVER e AS after
		FROM (SELECT *, label IN ('delete', 'update_preimage') AS delete_like FROM labelled) AS l
		WINDOW e AS (PARTITION BY %3$s ORDER BY version, CASE WHEN delete_like THEN 0 ELSE 1 END, pos
			ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
	), net AS (
		SELECT CASE WHEN NOT netting THEN label
				WHEN before AND after AND updates THEN CASE WHEN delete_like THEN 'update_preimage' ELSE 'update_postimage' END
				WHEN delete_like THEN 'delete' ELSE 'insert' END AS label, version, ts, pos
		FROM events
		WHERE NOT netting OR (before AND number = 1) OR (after AND number = total)
	)
	SELECT (SELECT concat_ws(' or ',
			CASE WHEN bool_or(version IS NULL) AND (removal OR detection OR netting) THEN 'NULL version' END,
			CASE WHEN bool_or(nd > 1 OR ni > 1) AND detection THEN 'CHANGELOG_CONTRACT_VIOLATION.UNEXPECTED_MULTIPLE_CHANGES_PER_ROW_VERSION' END,
			CASE WHEN bool_or(coalesce(label NOT IN ('insert', 'delete', 'update_preimage', 'update_postimage'), true)) AND netting
				THEN 'CHANGELOG_CONTRACT_VIOLATION.UNEXPECTED_CHANGE_TYPE' END) FROM labelled),
		(SELECT string_agg(format('%%s %%s %%s #%%s', label, version, ts, pos), E'\n' ORDER BY version, pos) FROM net)
	INTO errors, result;
	RETURN CASE WHEN errors <> '' THEN 'error ' || errors ELSE coalesce(result, '') END;
END $$;

-- net changes of two parts of a range, netted again
CREATE FUNCTION model.composed_%1$s(which int, name text, first bigint, middle bigint, last bigint, updates bool) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
	RETURN (
	WITH parts AS MATERIALIZED (
		SELECT _change_type, _commit_version AS version, _commit_timestamp AS ts, (row_data ->> 'pos')::int AS pos
		FROM stream_changes(name, first, middle, deduplication_mode => 'netChanges', compute_updates => updates)
		UNION ALL
		SELECT _change_type, _commit_version, _commit_timestamp, (row_data ->> 'pos')::int
		FROM stream_changes(name, middle, last, starting_bound_inclusive => false, deduplication_mode => 'netChanges', compute_updates => updates)
	), events AS (
		SELECT p.*, delete_like, row_number() OVER e AS number, count(*) OVER (PARTITION BY %4$s) AS total,
			first_value(delete_like) OVER e AS before, NOT last_value(delete_like) OVER e AS after
		FROM parts AS p JOIN model.log AS l ON l.log = which AND l.pos = p.pos,
			LATERAL (SELECT p._change_type IN ('delete', 'update_preimage') AS delete_like) AS d
		WINDOW e AS (PARTITION BY %4$s ORDER BY version, CASE WHEN delete_like THEN 0 ELSE 1 END, p.pos
			ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
	)
	SELECT coalesce(string_agg(format('%%s %%s %%s #%%s',
			CASE WHEN before AND after AND updates THEN CASE WHEN delete_like THEN 'update_preimage' ELSE 'update_postimage' END
				WHEN delete_like THEN 'delete' ELSE 'insert' END, version, ts, pos), E'\n' ORDER BY version, pos), '')
	FROM events WHERE (before AND number = 1) OR (after AND number = total));
END $$
$f$, shape, (SELECT string_agg(format('%s AS k%s', k, o), ', ') FROM unnest(keys) WITH ORDINALITY AS u (k, o)),
	(SELECT string_agg('k' || o, ', ') FROM unnest(keys) WITH ORDINALITY AS u (k, o)), array_to_string(keys, ', '))
FROM model.shapes \gexec

-- what it gives
CREATE FUNCTION model.got(name text, range model.range, mode text, updates bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
	message text;
	detail text;
BEGIN
	SELECT string_agg(format('%s %s %s #%s', _change_type, _commit_version, _commit_timestamp, row_data ->> 'pos'), E'\n')
	INTO result
	FROM stream_changes(name,
		CASE range.kind WHEN 'version' THEN range.first::bigint END, CASE range.kind WHEN 'version' THEN range.last::bigint END,
		CASE range.kind WHEN 'timestamp' THEN range.first::timestamptz END, CASE range.kind WHEN 'timestamp' THEN range.last::timestamptz END,
		range.first_inclusive, range.last_inclusive, mode, updates);
	RETURN coalesce(result, '');
EXCEPTION WHEN data_corrupted OR invalid_parameter_value THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
	RETURN 'error ' || coalesce(substring(detail FROM 'Error condition: (.*)\.$'),
		CASE WHEN message LIKE '\_commit\_version is null%' THEN 'NULL version' ELSE message END);
END $$;

CREATE FUNCTION model.agree(got text, expected text) RETURNS bool LANGUAGE sql IMMUTABLE AS $$
	SELECT got = expected OR (left(expected, 6) = 'error ' AND left(got, 6) = 'error ' AND strpos(expected, substr(got, 7)) > 0) $$;

/*
 * Logs
 */

-- one of equal values of a key, as they can be written; identities 1 to 4 differ in every column
CREATE FUNCTION model.values_of(j int) RETURNS model.log LANGUAGE plpgsql AS $$
DECLARE
	r model.log;
	w int := floor(random() * 3) + 1;
BEGIN
	r.id := ('{1,2,NULL,4}'::int[])[j];
	CASE j
		WHEN 1 THEN
			r.n := ('{1,1.0,1.00}'::numeric[])[w];
			r.t := ('{a,A,a}'::text[])[w];
			r.f := ('{0,-0,0}'::float8[])[w];
			r.p := ROW(1, w)::model.pair;
			r.d := ('{"{\"k\": 1}","{\"k\": 1.0}","{\"k\": 1.00, \"l\": 2}"}'::jsonb[])[w];
		WHEN 2 THEN
			r.n := NULL;
			r.t := ('{b,B,b}'::text[])[w];
			r.f := 'NaN';
			r.p := ROW(2, w)::model.pair;
			r.d := ('{"{\"k\": \"x\"}","{\"k\": \"x\", \"l\": 1}","{\"k\": \"x\"}"}'::jsonb[])[w];
		WHEN 3 THEN
			r.n := 'NaN';
			r.t := NULL;
			r.f := 1;
			r.p := CASE w WHEN 1 THEN NULL ELSE ROW(NULL, w)::model.pair END;
			r.d := ('{"{}","{\"k\": null}","null"}'::jsonb[])[w];
		ELSE
			r.n := ('{2,2.0,2.000}'::numeric[])[w];
			r.t := '';
			r.f := NULL;
			r.p := ROW(4, NULL)::model.pair;
			r.d := ('{"{\"k\": [1, 2]}","{\"k\": [1.0, 2]}","{\"k\": [1, 2]}"}'::jsonb[])[w];
	END CASE;
	RETURN r;
END $$;

-- Anything at all: any label of any row in any version, as if the contract did not exist.
CREATE FUNCTION model.make_wild(which int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	r model.log;
	other model.log;
	versions int := floor(random() * 6) + 1;
	labels text[] := CASE WHEN random() < 0.15 THEN '{insert,delete,update_preimage,update_postimage,INSERT,NULL}'::text[]
		WHEN random() < 0.5 THEN '{insert,delete}' ELSE '{insert,delete,insert,delete,update_preimage,update_postimage}' END;
	null_versions bool := random() < 0.05;
BEGIN
	FOR i IN 1 .. floor(random() * 20) LOOP
		r := model.values_of((floor(random() * 4) + 1)::int);
		other := model.values_of((floor(random() * 4) + 1)::int);
		r.t := other.t;
		r.d := other.d;
		r.log := which;
		r.pos := i;
		r.rv := CASE WHEN random() < 0.1 THEN NULL ELSE ('{1,1.0,2}'::numeric[])[floor(random() * 3) + 1] END;
		r._change_type := labels[floor(random() * cardinality(labels)) + 1];
		r._commit_version := CASE WHEN null_versions AND random() < 0.1 THEN NULL ELSE floor(random() * versions) - 1 END;
		r._commit_timestamp := CASE WHEN random() < 0.05 THEN NULL
			ELSE '2024-01-01 00:00:00+00'::timestamptz + (r._commit_version / 2) * interval '1 microsecond' END;
		INSERT INTO model.log VALUES (r.*);
	END LOOP;
END $$;

-- One change of a row in a version at most, and only changes that can be.
CREATE FUNCTION model.make_proper(which int, as_pairs bool, rewrites bool) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	exists bool[] := ARRAY[random() < 0.5, random() < 0.5, random() < 0.5, random() < 0.5];
	written numeric[] := '{0,0,0,0}';
	place int := 0;
	choice float8;
	r model.log;
BEGIN
	FOR v IN 1 .. floor(random() * 8) + 1 LOOP
		FOR j IN 1 .. 4 LOOP
			CONTINUE WHEN random() < 0.4;
			choice := random();
			IF exists[j] THEN
				IF choice < 0.25 AND NOT rewrites THEN
					choice := 0.5;
				END IF;
				FOR side IN 0 .. CASE WHEN choice > 0.75 THEN 0 ELSE 1 END LOOP
					r := model.values_of(j);
					r._change_type := CASE WHEN choice > 0.75 OR choice < 0.25 OR as_pairs THEN ('{delete,insert}'::text[])[side + 1]
						ELSE ('{update_preimage,update_postimage}'::text[])[side + 1] END;
					r.rv := CASE WHEN side = 0 OR choice < 0.25 THEN written[j] ELSE v END;
					r.log := which;
					r.pos := v * 100 + floor(random() * 100);
					r._commit_version := v;
					r._commit_timestamp := '2024-01-01 00:00:00+00'::timestamptz + v * interval '1 second';
					INSERT INTO model.log VALUES (r.*);
				END LOOP;
				IF choice >= 0.25 THEN
					written[j] := v;
				END IF;
				exists[j] := choice <= 0.75;
			ELSE
				r := model.values_of(j);
				r._change_type := 'insert';
				r.rv := v;
				written[j] := v;
				exists[j] := true;
				r.log := which;
				r.pos := v * 100 + floor(random() * 100);
				r._commit_version := v;
				r._commit_timestamp := '2024-01-01 00:00:00+00'::timestamptz + v * interval '1 second';
				INSERT INTO model.log VALUES (r.*);
			END IF;
		END LOOP;
	END LOOP;
	-- places are unique
	UPDATE model.log AS l SET pos = n.n FROM (SELECT ctid, row_number() OVER (ORDER BY pos) AS n FROM model.log WHERE log = which) AS n
	WHERE l.log = which AND l.ctid = n.ctid;
END $$;

-- More than fits into the least work_mem, in single versions too.
CREATE FUNCTION model.make_large(which int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO model.log (log, pos, id, n, t, f, p, d, rv, filler, _change_type, _commit_version, _commit_timestamp)
	SELECT which, row_number() OVER (ORDER BY random()), id, id, 'T' || id, id, ROW(id, id)::model.pair, jsonb_build_object('k', id),
		CASE WHEN what < 0.7 AND type = 'insert' THEN v ELSE 0 END, repeat(md5(random()::text), 5), type, v, now() + v * interval '1 second'
	FROM (SELECT id, v, random() AS what FROM generate_series(1, 400) AS id, generate_series(1, 5) AS v) AS changes,
		LATERAL unnest(CASE WHEN what < 0.3 THEN '{}' WHEN what < 0.5 THEN '{insert}' WHEN what < 0.6 THEN '{delete}'
			ELSE '{delete,insert}'::text[] END) AS type
$$;

CREATE FUNCTION model.random_range(which int) RETURNS model.range LANGUAGE plpgsql AS $$
DECLARE
	choice float8 := random();
	first bigint := floor(random() * 8) - 1;
	last bigint := first + floor(random() * random() * 8);
	base timestamptz := (SELECT min(_commit_timestamp) FROM model.log WHERE log = which AND _commit_version = first);
	until timestamptz := (SELECT max(_commit_timestamp) FROM model.log WHERE log = which AND _commit_version = last);
BEGIN
	IF choice < 0.2 THEN
		RETURN ROW('all', NULL, NULL, true, true)::model.range;
	END IF;
	IF choice < 0.7 OR base IS NULL THEN
		RETURN ROW('version', first, CASE WHEN random() < 0.8 THEN last END, random() < 0.7, random() < 0.7)::model.range;
	END IF;
	RETURN ROW('timestamp', base + floor(random() * 3 - 1) * interval '1 microsecond',
		CASE WHEN random() < 0.8 THEN until + floor(random() * 3 - 1) * interval '1 microsecond' END, random() < 0.7, random() < 0.7)::model.range;
END $$;

-- Makes a log and reads it; what differs from the model, or nothing.
CREATE FUNCTION model.check_registered(seed bigint, which int) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	shape int;
	c bool;
	i bool;
	u bool;
	name text;
	proper bool;
	large bool := which % 100 = 50;
	range model.range;
	m record;
	got text;
	expected text;
	again text;
	composed text;
	nreads int := 0;
	nerrors int := 0;
	nrows bigint := 0;
	nmemory int := 0;
	ncomposed int := 0;
	middle bigint;
BEGIN
	PERFORM model.seed(seed, which);
	shape := floor(random() * 4) + 1;
	c := random() < 0.5;
	i := random() < 0.5;
	u := random() < 0.5;
	name := 'model.' || model.view_name(shape, c, i, u);
	proper := random() < 0.5;
	PERFORM set_config('model.log', which::text, false);
	IF large THEN
		PERFORM model.make_large(which);
	ELSIF proper THEN
		PERFORM model.make_proper(which, u, c OR random() < 0.5);
	ELSE
		PERFORM model.make_wild(which);
	END IF;

	FOR k IN 1 .. CASE WHEN large THEN 2 ELSE 3 END LOOP
		range := CASE WHEN large AND k = 1 THEN ROW('all', NULL, NULL, true, true)::model.range ELSE model.random_range(which) END;
		FOR m IN SELECT * FROM model.modes LOOP
			PERFORM set_config('work_mem', CASE WHEN k = 1 THEN '64kB' ELSE '64MB' END, true);
			got := model.got(name, range, m.mode, m.updates);
			EXECUTE format('SELECT model.expected_%s($1, $2, $3, $4, $5, $6, $7)', shape) INTO expected
				USING which, c, i, u, range, m.mode, m.updates;
			nreads := nreads + 1;
			nerrors := nerrors + (left(got, 5) = 'error')::int;
			nrows := nrows + CASE WHEN got IN ('') OR left(got, 5) = 'error' THEN 0 ELSE length(got) - length(replace(got, E'\n', '')) + 1 END;
			IF NOT model.agree(got, expected) THEN
				RETURN NEXT format(E'log %s, view %s, range %s, mode %s, compute_updates %s: expected\n%s\ngot\n%s\nof the log\n%s', which, name, range,
					m.mode, m.updates, left(expected, 2000), left(got, 2000), (SELECT left(string_agg(l::text, E'\n' ORDER BY pos), 4000) FROM model.log AS l WHERE log = which));
			END IF;
			IF k = 1 THEN
				PERFORM set_config('work_mem', '64MB', true);
				again := model.got(name, range, m.mode, m.updates);
				nmemory := nmemory + 1;
				IF got <> again THEN
					RETURN NEXT format(E'log %s, view %s, range %s, mode %s, compute_updates %s: with work_mem 64kB\n%s\nwith 64MB\n%s', which, name, range,
						m.mode, m.updates, left(got, 2000), left(again, 2000));
				END IF;
			END IF;
		END LOOP;
	END LOOP;

	IF proper AND i AND NOT large THEN
		middle := floor(random() * 9);
		FOR m IN SELECT * FROM model.modes WHERE mode = 'netChanges' LOOP
			got := model.got(name, ROW('version', 0, 9, true, true)::model.range, m.mode, m.updates);
			EXECUTE format('SELECT model.composed_%s($1, $2, 0, $3, 9, $4)', shape) INTO composed USING which, name, middle, m.updates;
			ncomposed := ncomposed + 1;
			IF got <> composed THEN
				RETURN NEXT format(E'log %s, view %s, compute_updates %s: the whole is\n%s\nthe parts up to %s and after it come to\n%s', which, name,
					m.updates, got, middle, composed);
			END IF;
		END LOOP;
	END IF;

	PERFORM model.count('registered change logs', 1), model.count('reads compared', nreads), model.count('reads that fail, as they must', nerrors),
		model.count('rows read', nrows), model.count('reads with little and much work_mem', nmemory), model.count('ranges composed of two parts', ncomposed);
	DELETE FROM model.log WHERE log = which;
END $$;
