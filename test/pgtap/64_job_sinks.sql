-- Streaming queries: mirrors that have more, or other, than the source has, and columns that come to mean something else.

SET client_min_messages = warning;

SELECT no_plan();

\ir include/jobs.sql

ALTER SYSTEM SET streamcdc.max_restarts = 0;
SELECT pg_reload_conf() \g /dev/null

\ir include/errors.sql

/*
 * A mirror with columns of its own, whose rows exchange values of another unique index
 */
CREATE TABLE p64_seats (id int PRIMARY KEY, seat int UNIQUE DEFERRABLE INITIALLY DEFERRED, name text);
SELECT stream_track('p64_seats');
CREATE TABLE p64_seats_mirror (id int PRIMARY KEY, note text DEFAULT 'new', seat int UNIQUE, twice int GENERATED ALWAYS AS (seat * 2) STORED,
							   number int GENERATED ALWAYS AS IDENTITY, name text);
CREATE TABLE p64_guests (seat int REFERENCES p64_seats_mirror (seat) DEFERRABLE);
SELECT stream_start('p64 seats', 'p64_seats', sink => 'p64_seats_mirror', sink_mode => 'apply') \g /dev/null
INSERT INTO p64_seats VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c');
SELECT pg_temp.done('p64 seats') \g /dev/null
UPDATE p64_seats_mirror SET note = 'of ' || name;
INSERT INTO p64_guests VALUES (1), (2);
BEGIN;
DELETE FROM p64_seats WHERE id = 3;
UPDATE p64_seats SET seat = 3 - seat, name = upper(name);
INSERT INTO p64_seats VALUES (4, 3, 'd');
COMMIT;
SELECT pg_temp.done('p64 seats') \g /dev/null
SELECT results_eq('SELECT id, seat, name, twice FROM p64_seats_mirror ORDER BY id', $$VALUES (1, 2, 'A', 4), (2, 1, 'B', 2), (4, 3, 'd', 6)$$, 'rows that exchange values');
SELECT results_eq('SELECT id, note, number <= 3 FROM p64_seats_mirror ORDER BY id', $$VALUES (1, 'of a', true), (2, 'of b', true), (4, 'new', false)$$, 'keep what the source does not have');
CREATE TABLE p64_ruled (id int PRIMARY KEY, seat int UNIQUE, name text);
CREATE TABLE p64_seen (id int);
CREATE RULE seen AS ON DELETE TO p64_ruled DO ALSO INSERT INTO p64_seen VALUES (old.id);
SELECT stream_start('p64 ruled', 'p64_seats', sink => 'p64_ruled', sink_mode => 'apply') \g /dev/null
SELECT pg_temp.done('p64 ruled') \g /dev/null
UPDATE p64_seats SET seat = 3 - seat WHERE seat < 3;
SELECT throws_ok($$SELECT stream_await_termination('p64 ruled', '180 s')$$, '23505', NULL, 'where rules would see rows go and come, they are not replaced');
SELECT ok(stream_exception('p64 ruled') ~ 'HINT:  If rows exchange values, the constraint has to be DEFERRABLE INITIALLY DEFERRED', 'and what can be done is said');
SELECT is_empty('TABLE p64_seen', 'rules see nothing of it');
SELECT stream_drop('p64 ruled');

-- rows that refer to each other are deleted and inserted by commands of their own
CREATE TABLE p64_tree (id int PRIMARY KEY, parent int, name text);
SELECT stream_track('p64_tree');
CREATE TABLE p64_tree_mirror (id int PRIMARY KEY, parent int CONSTRAINT p64_parent REFERENCES p64_tree_mirror, name text);
SELECT stream_start('p64 tree', 'p64_tree', sink => 'p64_tree_mirror', sink_mode => 'apply') \g /dev/null
INSERT INTO p64_tree VALUES (1, NULL, 'a'), (2, 1, 'b');
SELECT pg_temp.done('p64 tree') \g /dev/null
BEGIN;
INSERT INTO p64_tree VALUES (3, NULL, 'c');
UPDATE p64_tree SET parent = 3 WHERE id = 2;
DELETE FROM p64_tree WHERE id = 1;
COMMIT;
SELECT throws_ok($$SELECT stream_await_termination('p64 tree', '180 s')$$, '23503', NULL, 'a row goes to which another one refers still');
SELECT ok(stream_exception('p64 tree') ~ 'HINT:  If rows of the sink refer to each other, the constraint has to be DEFERRABLE INITIALLY DEFERRED', 'what to do');
ALTER TABLE p64_tree_mirror ALTER CONSTRAINT p64_parent DEFERRABLE INITIALLY DEFERRED;
SELECT stream_resume('p64 tree') \g /dev/null
SELECT pg_temp.done('p64 tree') \g /dev/null
SELECT results_eq('TABLE p64_tree_mirror ORDER BY id', 'TABLE p64_tree ORDER BY id', 'and then it goes on');

-- a column that can be inserted, and not updated
CREATE TABLE p64_numbered (id int PRIMARY KEY, seat int GENERATED ALWAYS AS IDENTITY, name text);
SELECT stream_start('p64 numbered', 'p64_seats', sink => 'p64_numbered', sink_mode => 'apply') \g /dev/null
SELECT pg_temp.done('p64 numbered') \g /dev/null
UPDATE p64_seats SET seat = seat + 10;
DELETE FROM p64_seats WHERE id = 1;
INSERT INTO p64_seats VALUES (5, 5, 'e');
SELECT pg_temp.done('p64 numbered') \g /dev/null
SELECT results_eq('TABLE p64_numbered ORDER BY id', 'TABLE p64_seats ORDER BY id', 'identity columns of a mirror get the source''s values');

/*
 * Identities
 */
CREATE COLLATION p64_de (provider = icu, locale = 'de');
CREATE COLLATION p64_sv (provider = icu, locale = 'sv');
CREATE TABLE p64_words (k text COLLATE p64_de PRIMARY KEY, v int);
SELECT stream_track('p64_words');
CREATE TABLE p64_words_mirror (k text COLLATE p64_sv PRIMARY KEY, v int);
CREATE TABLE p64_words_deferred (k text COLLATE p64_sv PRIMARY KEY DEFERRABLE, v int);
SELECT stream_start('p64 words', 'p64_words', sink => 'p64_words_mirror', sink_mode => 'apply') \g /dev/null
SELECT stream_start('p64 words deferred', 'p64_words', sink => 'p64_words_deferred', sink_mode => 'apply') \g /dev/null
INSERT INTO p64_words VALUES ('a', 1), ('ä', 2), ('z', 3);
SELECT pg_temp.done('p64 words', 'p64 words deferred') \g /dev/null
UPDATE p64_words SET v = v + 10 WHERE k <> 'z';
DELETE FROM p64_words WHERE k = 'z';
SELECT pg_temp.done('p64 words', 'p64 words deferred') \g /dev/null
SELECT results_eq(format('SELECT k COLLATE "C", v FROM %I ORDER BY 1', t), $$VALUES ('a' COLLATE "C", 11), ('ä', 12)$$, 'another collation, in which the same rows are equal: ' || t)
FROM unnest('{p64_words_mirror,p64_words_deferred}'::text[]) AS t;

-- types in which two rows may become one
CREATE TABLE p64_times (k timestamp PRIMARY KEY, n numeric UNIQUE NOT NULL, i bigint UNIQUE NOT NULL);
CREATE DOMAIN p64_second AS timestamp(0);
CREATE TABLE p64_keys (column_type text, source_column name, sink_type text, fits boolean);
INSERT INTO p64_keys VALUES ('timestamp', 'k', 'timestamp', true), ('timestamp', 'k', 'timestamp(0)', false), ('timestamp', 'k', 'p64_second', false), ('timestamp', 'k', 'date', false),
	('numeric', 'n', 'numeric', true), ('numeric', 'n', 'numeric(10,2)', false), ('bigint', 'i', 'numeric(20,0)', true), ('bigint', 'i', 'int', true), ('bigint', 'i', 'float8', false);
SELECT format('CREATE TABLE p64_times_%1$s (k timestamp, n numeric, i bigint); CREATE UNIQUE INDEX ON p64_times_%1$s (%1$s); SELECT stream_track(''p64_times_%1$s'', identity_columns => ''{%1$s}'')', c)
FROM unnest('{k,n,i}'::text[]) AS c \gexec
SELECT format('CREATE TABLE "p64 %1$s %2$s" (LIKE p64_times); ALTER TABLE "p64 %1$s %2$s" ALTER %1$s TYPE %2$s, ADD UNIQUE (%1$s)', source_column, sink_type) FROM p64_keys \gexec
SELECT is(pg_temp.error_of(format('SELECT stream_start(''p64 %1$s %2$s'', ''p64_times_%1$s'', sink => ''"p64 %1$s %2$s"'', sink_mode => ''apply'', trigger => ''availableNow'')', source_column, sink_type)),
		  CASE WHEN fits THEN 'none' ELSE format('42804 / column "%s" of the sink cannot tell all row identities of the source apart / It has type %s, the source %s.', source_column,
			  CASE sink_type WHEN 'timestamp(0)' THEN 'timestamp(0) without time zone' WHEN 'float8' THEN 'double precision' ELSE sink_type END,
			  CASE column_type WHEN 'timestamp' THEN 'timestamp without time zone' ELSE column_type END) END,
		  format('identity of type %s in a sink of type %s', column_type, sink_type)) FROM p64_keys;

-- workers are few
SELECT stream_stop(query_name) FROM stream_queries WHERE status = 'running' \g /dev/null

/*
 * Columns of the source that come to mean something else, in rows that no event tells of
 */
CREATE TABLE p64_moved (id int PRIMARY KEY, a text, b text, c int, d int, e int);
INSERT INTO p64_moved VALUES (1, 'a1', 'b1', 1, 1, 1), (2, 'a2', 'b2', 2, 2, 2);
SELECT stream_track('p64_moved');
SELECT stream_start('p64 moved', 'p64_moved', sink => 'p64_moved_mirror', sink_mode => 'apply', options => '{"mergeSchema": true}') \g /dev/null
SELECT stream_start('p64 moved append', 'p64_moved', sink => 'p64_moved_append', options => '{"mergeSchema": true}') \g /dev/null
SELECT pg_temp.done('p64 moved', 'p64 moved append') \g /dev/null
ALTER TABLE p64_moved RENAME a TO "new a";
ALTER TABLE p64_moved RENAME b TO a;
ALTER TABLE p64_moved RENAME "new a" TO b;				-- a and b have exchanged their names
ALTER TABLE p64_moved DROP COLUMN c;
ALTER TABLE p64_moved ADD COLUMN c int DEFAULT 42;		-- another column of that name
ALTER TABLE p64_moved RENAME d TO g;
ALTER TABLE p64_moved ADD COLUMN d int DEFAULT 7;		-- the name of one that has another now
ALTER TABLE p64_moved RENAME e TO f;
INSERT INTO p64_moved (id, a) VALUES (3, 'a3');
SELECT throws_like(format('SELECT stream_await_termination(%L, ''180 s'')', q), '%columns of source table "p64_moved" have changed%', q) FROM unnest('{p64 moved,p64 moved append}'::text[]) AS q;
SELECT stream_resume(q) FROM unnest('{p64 moved,p64 moved append}'::text[]) AS q \g /dev/null
SELECT pg_temp.done('p64 moved', 'p64 moved append') \g /dev/null
SELECT results_eq('SELECT id, a, b, c, d, f, g FROM p64_moved_mirror ORDER BY id', 'SELECT id, a, b, c, d, f, g FROM p64_moved ORDER BY id', 'a mirror follows what has become of columns');
SELECT hasnt_column('p64_moved_mirror', 'e', 'what was renamed is not there twice');
SELECT results_eq('SELECT id, a, b, c, d, e, f, g FROM p64_moved_append ORDER BY id', $$VALUES (1, 'a1', 'b1', 1, 1, 1, NULL::int, NULL::int), (2, 'a2', 'b2', 2, 2, 2, NULL, NULL), (3, 'a3', NULL, 42, 7, NULL, NULL, NULL)$$, 'appended rows stay what they were');
-- without mergeSchema it is for the sink's owner to rename it; what has no default is NULL
SELECT stream_stop('p64 moved');
SELECT stream_start('p64 moved', 'p64_moved', sink => 'p64_moved_mirror', sink_mode => 'apply') \g /dev/null
ALTER TABLE p64_moved RENAME f TO h;
ALTER TABLE p64_moved DROP COLUMN c;
ALTER TABLE p64_moved ADD COLUMN c int;
INSERT INTO p64_moved (id, c) VALUES (4, 4);
SELECT throws_like('SELECT stream_await_termination(''p64 moved'', ''180 s'')', '%columns of source table "p64_moved" have changed%', 'it stops again');
SELECT is(pg_temp.error_of($$SELECT stream_resume('p64 moved')$$), '42703 / column "h" of relation "p64_moved_mirror" does not exist', 'a sink that does not have the column');
ALTER TABLE p64_moved_mirror RENAME f TO h;
SELECT stream_resume('p64 moved') \g /dev/null
SELECT pg_temp.done('p64 moved') \g /dev/null
SELECT results_eq('SELECT id, a, b, c, d, g, h FROM p64_moved_mirror ORDER BY id', 'SELECT id, a, b, c, d, g, h FROM p64_moved ORDER BY id', 'goes on when it has it');

/*
 * A mirror that is gone: what was written into it is not written again
 */
DROP TABLE p64_moved_mirror;
INSERT INTO p64_moved (id) VALUES (5);
SELECT throws_ok($$SELECT stream_await_termination('p64 moved', '180 s')$$, '42P01', 'query "p64 moved" has failed: sink "public.p64_moved_mirror" does not exist', 'the query stops');
SELECT is(pg_temp.error_of($$SELECT stream_start('p64 moved', 'p64_moved', sink => 'p64_moved_mirror', sink_mode => 'apply')$$), '42P01 / sink "public.p64_moved_mirror" does not exist', 'and does not go on with part of the rows');
SELECT stream_drop('p64 moved');
SELECT stream_start('p64 moved', 'p64_moved', sink => 'p64_moved_mirror', sink_mode => 'apply') \g /dev/null
SELECT pg_temp.done('p64 moved') \g /dev/null
SELECT results_eq('SELECT id, a, b, c, d, g, h FROM p64_moved_mirror ORDER BY id', 'SELECT id, a, b, c, d, g, h FROM p64_moved ORDER BY id', 'a new one has them all');

/*
 * A mirror that is made has a primary key, if the source's rows have one: others know its rows by it, too
 */
CREATE PUBLICATION p64_pub FOR ALL TABLES;
CREATE TABLE p64_keyed (a int, b text, v int, PRIMARY KEY (b, a));
SELECT stream_track('p64_keyed');
SELECT stream_start('p64 keyed', 'p64_keyed', sink => 'p64_keyed_mirror', sink_mode => 'apply') \g /dev/null
INSERT INTO p64_keyed VALUES (1, 'x', 1), (2, 'y', 2);
SELECT pg_temp.done('p64 keyed') \g /dev/null
UPDATE p64_keyed SET v = 3 WHERE a = 1;
DELETE FROM p64_keyed WHERE a = 2;
SELECT pg_temp.done('p64 keyed') \g /dev/null
SELECT results_eq('TABLE p64_keyed_mirror', 'TABLE p64_keyed', 'a mirror in a publication');
SELECT stream_track('p64_keyed_mirror');
SELECT stream_sync('180 s') \g /dev/null
SELECT is(identity_columns, '{b,a}'::name[], 'a mirror can be tracked with the identity of its source') FROM stream_tables WHERE table_name = 'p64_keyed_mirror';
DROP PUBLICATION p64_pub;

/*
 * foreach: the row type has to fit when the query is started
 */
CREATE TYPE p64_point AS (id point);
CREATE FUNCTION p64_point(r p64_point) RETURNS void LANGUAGE sql AS '';
SELECT is(pg_temp.error_of($$SELECT stream_start('p64 point', 'p64_seats', foreach => 'p64_point')$$), '42846 / cannot cast type record to p64_point / Cannot cast type integer to point in column 1.', 'a column of another type');

SELECT * FROM finish();
