-- What random logs of both kinds need.

SET client_min_messages = warning;
CREATE SCHEMA model;
CREATE COLLATION model.nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);

-- what was done: a row for each piece of it
CREATE TABLE model.figures (what text, n bigint);

CREATE FUNCTION model.count(what text, n bigint) RETURNS void LANGUAGE sql AS $$
	INSERT INTO model.figures VALUES (what, n) $$;

CREATE TABLE model.modes (mode text, updates bool);
INSERT INTO model.modes SELECT * FROM unnest('{none,dropCarryovers,netChanges}'::text[]) AS mode, unnest('{f,t}'::bool[]) AS updates;

-- random numbers that depend on nothing but these two
CREATE FUNCTION model.seed(seed bigint, which bigint) RETURNS void LANGUAGE sql AS $$
	SELECT setseed((hashint8extended(which, seed) % 1000000007) / 1000000007.0) $$;
