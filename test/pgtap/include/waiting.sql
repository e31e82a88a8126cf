-- Waiting for what somebody else does: \ir include/waiting.sql

-- until a condition holds, each look in a transaction of its own; an error if it does not within two minutes
CREATE PROCEDURE pg_temp.wait_until(condition text)
LANGUAGE plpgsql AS $$
DECLARE
	holds boolean;
	give_up timestamptz := clock_timestamp() + '2 min';
BEGIN
	LOOP
		EXECUTE 'SELECT ' || condition INTO holds;
		EXIT WHEN holds;
		COMMIT;
		IF clock_timestamp() > give_up THEN
			RAISE EXCEPTION 'waited in vain until %', condition;
		END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
