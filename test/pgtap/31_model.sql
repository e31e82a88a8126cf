-- stream_changes against cdc-semantics sections 7 and 8 written as window functions over stream_events: one random log,
-- random ranges of it, all modes.  What comes out must not depend on work_mem either.

SET client_min_messages = warning;
SET streamcdc.read_timeout = '60 s';

SELECT plan(5);

CREATE SCHEMA p31;
SET search_path = p31, public;

CREATE TABLE p31.small (id int PRIMARY KEY, v int);
CREATE TABLE p31.large (id int PRIMARY KEY, v int, filler text);
INSERT INTO p31.small SELECT i, 0 FROM generate_series(1, 3) AS i;
SELECT stream_track('p31.small') \g /dev/null
SELECT stream_track('p31.large') \g /dev/null
SELECT stream_sync('60 s') \g /dev/null

-- Random events on a few rows: the same rows are met again and again, in a commit and over commits.
CREATE PROCEDURE p31.write_small(commits int) LANGUAGE plpgsql AS $$
DECLARE
	i int;
	j int;
BEGIN
	FOR c IN 1 .. commits LOOP
		FOR n IN 1 .. 1 + (random() * 7)::int LOOP
			i := (random() * 6)::int;
			j := (random() * 6)::int;
			CASE (random() * 4)::int
				WHEN 0 THEN
					INSERT INTO p31.small VALUES (i, (random() * 2)::int) ON CONFLICT DO NOTHING;
				WHEN 1 THEN
					DELETE FROM p31.small WHERE id = i;
				WHEN 2 THEN
					UPDATE p31.small SET id = j WHERE id = i AND NOT EXISTS (SELECT FROM p31.small WHERE id = j);
				ELSE
					UPDATE p31.small SET v = (random() * 2)::int WHERE id = i;
			END CASE;
		END LOOP;
		COMMIT;
	END LOOP;
END $$;

-- Commits with more rows than fit into the least work_mem.
CREATE PROCEDURE p31.write_large(commits int) LANGUAGE plpgsql AS $$
BEGIN
	FOR c IN 1 .. commits LOOP
		INSERT INTO p31.large SELECT i, 0, repeat('x', 50) FROM generate_series(c * 1000, c * 1000 + 2999) AS i ON CONFLICT DO NOTHING;
		UPDATE p31.large SET v = v + (random() * 2)::int WHERE random() < 0.5;
		DELETE FROM p31.large WHERE random() < 0.1;
		UPDATE p31.large SET id = id + 100000 WHERE random() < 0.1 AND id < 100000
			AND NOT EXISTS (SELECT FROM p31.large AS l WHERE l.id = large.id + 100000);
		UPDATE p31.large SET v = v + (random() * 2)::int - 1 WHERE random() < 0.3;
		COMMIT;
	END LOOP;
END $$;

SELECT setseed(0.31);
CALL p31.write_small(400);
CALL p31.write_large(6);
SELECT stream_sync('60 s') \g /dev/null

-- What an event does to each identity: it takes away an image (side 0), brings one (side 1), or both.
CREATE TABLE p31.steps AS
	SELECT t.name, e._commit_version AS version, e._commit_timestamp AS ts, e.event_number AS n, s.side, s.image, (s.image->>'id')::int AS id
	FROM (VALUES ('small'), ('large')) AS t (name),
		LATERAL stream_events('p31.' || t.name) AS e,
		LATERAL (VALUES (0, e.old_row), (1, e.new_row)) AS s (side, image)
	WHERE s.image IS NOT NULL;
ANALYZE p31.steps;

-- Each commit by itself: its first step tells what was there before, its last one what is there after.
CREATE TABLE p31.netted AS
	SELECT DISTINCT name, version, ts, id, max(n) OVER w AS n,
		CASE first_value(side) OVER w WHEN 0 THEN first_value(image) OVER w END AS before,
		CASE last_value(side) OVER w WHEN 1 THEN last_value(image) OVER w END AS after
	FROM p31.steps
	WINDOW w AS (PARTITION BY name, version, id ORDER BY n, side ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING);

CREATE FUNCTION p31.model(name text, first bigint, last bigint, mode text, updates boolean)
RETURNS TABLE (type text, version bigint, ts timestamptz, image jsonb) LANGUAGE sql AS $$
	WITH changes AS (
		SELECT n.*, s.side, CASE s.side WHEN 0 THEN before ELSE after END AS image, before IS NOT NULL AND after IS NOT NULL AS is_pair
		FROM p31.netted AS n, (VALUES (0), (1)) AS s (side)
		WHERE n.name = $1 AND n.version BETWEEN $2 AND $3 AND CASE s.side WHEN 0 THEN before ELSE after END IS NOT NULL
			AND (mode = 'none' OR before IS DISTINCT FROM after)
	), ranked AS (
		SELECT *, row_number() OVER w AS number, count(*) OVER (PARTITION BY id) AS total,
			first_value(side) OVER w = 0 AS existed, last_value(side) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) = 1 AS remains
		FROM changes
		WINDOW w AS (PARTITION BY id ORDER BY version, side)
	)
	SELECT CASE WHEN updates AND (CASE mode WHEN 'netChanges' THEN existed AND remains ELSE is_pair END)
			THEN CASE side WHEN 0 THEN 'update_preimage' ELSE 'update_postimage' END
			ELSE CASE side WHEN 0 THEN 'delete' ELSE 'insert' END END,
		version, ts, image
	FROM ranked
	WHERE mode <> 'netChanges' OR (existed AND number = 1 AND side = 0) OR (remains AND number = total AND side = 1)
$$;

CREATE FUNCTION p31.compare(name text, first bigint, last bigint, mode text, updates boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	differences bigint;
	unordered bigint;
	little text;
	much text;
BEGIN
	PERFORM set_config('work_mem', '64kB', true);
	CREATE TEMP TABLE got AS
		SELECT row_number() OVER () AS n, * FROM stream_changes('p31.' || name, first, last, deduplication_mode => mode, compute_updates => updates);
	SELECT md5(string_agg(g::text, '' ORDER BY n)) INTO little FROM got AS g;
	SELECT count(*) INTO unordered FROM (SELECT _commit_version < lag(_commit_version) OVER (ORDER BY n) AS falls FROM got) AS o WHERE falls;

	PERFORM set_config('work_mem', '64MB', true);
	SELECT md5(string_agg(g::text, '' ORDER BY n)) INTO much
	FROM (SELECT row_number() OVER () AS n, * FROM stream_changes('p31.' || name, first, last, deduplication_mode => mode, compute_updates => updates)) AS g;
	SELECT count(*) INTO differences FROM (
		(SELECT _change_type, _commit_version, _commit_timestamp, row_data FROM got EXCEPT ALL SELECT * FROM p31.model(name, first, last, mode, updates))
		UNION ALL
		(SELECT * FROM p31.model(name, first, last, mode, updates) EXCEPT ALL SELECT _change_type, _commit_version, _commit_timestamp, row_data FROM got)) AS d;
	DROP TABLE got;
	IF differences > 0 OR unordered > 0 OR little IS DISTINCT FROM much THEN
		RETURN format('%s %s..%s %s %s: %s differences, %s out of order, %s', name, first, last, mode, updates, differences, unordered,
			CASE WHEN little IS DISTINCT FROM much THEN 'work_mem matters' ELSE 'work_mem does not matter' END);
	END IF;
	RETURN NULL;
END $$;

CREATE TABLE p31.modes (mode text, updates boolean);
INSERT INTO p31.modes VALUES ('none', false), ('dropCarryovers', false), ('dropCarryovers', true), ('netChanges', false), ('netChanges', true);

SELECT cmp_ok((SELECT count(*) FROM p31.netted WHERE name = 'small'), '>', 500::bigint, 'the log is not empty');

SELECT is((SELECT string_agg(p31.compare('small', first, first + length, mode, updates), E'\n')
		FROM (SELECT (random() * 400)::bigint AS first, (random() * random() * 100)::bigint AS length FROM generate_series(1, 60)) AS ranges, p31.modes),
	NULL, 'random ranges, all modes');

SELECT is((SELECT string_agg(p31.compare('small', 0, 1000, mode, updates), E'\n') FROM p31.modes), NULL, 'the whole log, all modes');

SELECT is((SELECT string_agg(p31.compare('large', first, last, mode, updates), E'\n')
		FROM (VALUES (0, 100), (2, 4), (3, 3)) AS ranges (first, last), p31.modes),
	NULL, 'large commits, all modes, more than fits into memory');

-- net changes of the two parts of a range, netted again, are those of the range
SELECT is_empty($$
	WITH ranges AS MATERIALIZED (SELECT i, (random() * 200)::bigint AS first, (random() * 50)::bigint AS a, (random() * 50)::bigint AS b FROM generate_series(1, 30) AS i),
	parts AS MATERIALIZED (
		SELECT r.i, c._change_type = 'insert' AS is_insert, c._commit_version AS version, c.row_data, (c.row_data->>'id')::int AS id
		FROM ranges AS r, LATERAL (VALUES (r.first, r.first + r.a), (r.first + r.a + 1, r.first + r.a + 1 + r.b)) AS p (first, last),
			LATERAL stream_changes('p31.small', p.first, p.last, deduplication_mode => 'netChanges') AS c),
	ranked AS (
		SELECT *, row_number() OVER w AS number, count(*) OVER (PARTITION BY i, id) AS total
		FROM parts WINDOW w AS (PARTITION BY i, id ORDER BY version, is_insert)),
	composed AS (
		SELECT i, is_insert, version, row_data FROM ranked WHERE (number = 1 AND NOT is_insert) OR (number = total AND is_insert)),
	whole AS (
		SELECT r.i, c._change_type = 'insert', c._commit_version, c.row_data
		FROM ranges AS r, LATERAL stream_changes('p31.small', r.first, r.first + r.a + 1 + r.b, deduplication_mode => 'netChanges') AS c)
	(SELECT * FROM composed EXCEPT ALL SELECT * FROM whole) UNION ALL (SELECT * FROM whole EXCEPT ALL SELECT * FROM composed)
$$, 'net changes of the parts of a range compose');

SELECT * FROM finish();
