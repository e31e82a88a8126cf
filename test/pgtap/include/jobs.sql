-- Waiting for streaming queries, for the files that are about them: \ir include/jobs.sql

-- until they have done what there is
CREATE FUNCTION pg_temp.done(VARIADIC names text[]) RETURNS void
LANGUAGE sql AS $$ SELECT stream_process_all_available(n, '180 s') FROM unnest(names) AS n $$;
