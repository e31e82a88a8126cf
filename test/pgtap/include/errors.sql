-- What a command raises, for the files that are about errors: \ir include/errors.sql

CREATE TYPE pg_temp.raised AS (state text, message text, detail text, hint text);

-- all NULL if it raises nothing; run as a role if one is given
CREATE FUNCTION pg_temp.raised(command text, role_name text DEFAULT NULL) RETURNS pg_temp.raised
LANGUAGE plpgsql AS $$
DECLARE
	r pg_temp.raised;
BEGIN
	IF role_name IS NOT NULL THEN
		PERFORM set_config('role', role_name, true);
	END IF;
	EXECUTE command;
	PERFORM set_config('role', 'none', true);
	RETURN r;
EXCEPTION WHEN QUERY_CANCELED OR OTHERS THEN
	GET STACKED DIAGNOSTICS r.state = RETURNED_SQLSTATE, r.message = MESSAGE_TEXT, r.detail = PG_EXCEPTION_DETAIL, r.hint = PG_EXCEPTION_HINT;
	RETURN r;
END $$;

-- "none", or SQLSTATE and DETAIL
CREATE FUNCTION pg_temp.state_of(command text, role_name text DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$ SELECT coalesce(trim(state || ' ' || detail), 'none') FROM pg_temp.raised(command, role_name) $$;

-- "none", or SQLSTATE, message, and DETAIL if there is one
CREATE FUNCTION pg_temp.error_of(command text, role_name text DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$ SELECT coalesce(nullif(concat_ws(' / ', state, message, nullif(detail, '')), ''), 'none') FROM pg_temp.raised(command, role_name) $$;

-- "none", or SQLSTATE and message
CREATE FUNCTION pg_temp.message_of(command text, role_name text DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$ SELECT coalesce(state || ' / ' || message, 'none') FROM pg_temp.raised(command, role_name) $$;

-- "none", or SQLSTATE, message, and hint if there is one
CREATE FUNCTION pg_temp.told_of(command text, role_name text DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$ SELECT coalesce(nullif(concat_ws(' / ', state, message, nullif(hint, '')), ''), 'none') FROM pg_temp.raised(command, role_name) $$;

-- "none", or all four
CREATE FUNCTION pg_temp.all_of(command text, role_name text DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$ SELECT coalesce(nullif(concat_ws(' / ', state, message, nullif(detail, ''), nullif(hint, '')), ''), 'none') FROM pg_temp.raised(command, role_name) $$;

-- "none", or the hint
CREATE FUNCTION pg_temp.hint_of(command text, role_name text DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$ SELECT coalesce(hint, 'none') FROM pg_temp.raised(command, role_name) $$;
