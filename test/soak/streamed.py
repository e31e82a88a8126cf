#!/usr/bin/env python3
"""Random big and small transactions against capture with little memory, compared with test_decoding and with the tables.

streamed.py [SECONDS [SEED]]: needs a server (PGHOST, PGUSER, ...) with streamcdc preloaded, streamcdc.capture_memory = '4MB'
and wal_level = logical; makes and drops the database "soak".  Savepoints are kept and rolled back at random, columns are
added and dropped, rows are wide or toasted, two sessions are open at once, and the capture worker is ended now and then.
"""
import collections, os, random, re, subprocess, sys, time

seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
seed = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
rnd = random.Random(seed)
print('seed', seed, flush=True)
os.environ['PGOPTIONS'] = '-c client_min_messages=warning'
tables = ['s1', 's2', 's3']


def sql(text, db='soak'):
    r = subprocess.run(['psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', db], input=text, capture_output=True, text=True)
    if r.returncode:
        sys.exit(f'seed {seed}: {r.stderr}\n{text[:3000]}')
    return r.stdout.strip()


next_id = 0
extra = {t: 0 for t in tables}


def ids(n):
    global next_id
    next_id += n
    return next_id - n + 1, next_id


def statement(mine, ddl, big):
    t = rnd.choice(mine)
    n = rnd.choice([1, 10, 200, 3000, 9000] if big else [1, 5])
    k = rnd.random()
    if ddl and k < 0.05:
        extra[t] += 1
        return f'ALTER TABLE {t} ADD COLUMN x{extra[t]} int;'
    if ddl and k < 0.08:
        return f"""DO $$ DECLARE c name; BEGIN SELECT attname INTO c FROM pg_attribute WHERE attrelid = '{t}'::regclass
AND attnum > 3 AND NOT attisdropped LIMIT 1; IF c IS NOT NULL THEN EXECUTE format('ALTER TABLE {t} DROP COLUMN %I', c); END IF; END $$;"""
    if k < 0.5:
        a, b = ids(n)
        return f"INSERT INTO {t} (id, n, v) SELECT i, 0, repeat(md5(i::text), {rnd.choice([1, 3, 8])}) FROM generate_series({a}, {b}) AS i;"
    if k < 0.55:
        a, b = ids(1)
        return f"INSERT INTO {t} (id, n, v) SELECT {a}, 0, string_agg(md5(i::text), '') FROM generate_series(1, {rnd.choice([200, 6000, 300000] if big else [200])}) AS i;"
    where = f'id IN (SELECT id FROM {t} ORDER BY id DESC OFFSET {rnd.choice([0, 0, 100, 4000])} LIMIT {n})'
    if k < 0.75:
        return f'UPDATE {t} SET n = n + 1 WHERE {where};'
    if k < 0.8:
        return f'UPDATE {t} SET id = -id WHERE id > 0 AND {where};'
    if k < 0.85 and big:
        a, b = ids(1500)
        return f"""DO $$ BEGIN FOR i IN {a} .. {b} LOOP BEGIN INSERT INTO {t} (id, n, v) VALUES (i, 0, repeat(md5(i::text), 20));
IF i % 4 = 0 THEN RAISE EXCEPTION 'x'; END IF; EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP; END $$;"""
    return f'DELETE FROM {t} WHERE {where};'


def transaction(mine, big):
    out, open_savepoints, number = ['BEGIN;'], [], 0
    ddl = big and rnd.random() < 0.3
    for _ in range(rnd.randint(3, 14) if big else 2):
        k = rnd.random()
        if k < 0.25:
            number += 1
            open_savepoints.append(f'sp{number}')
            out.append(f'SAVEPOINT sp{number};')
        elif k < 0.45 and open_savepoints:
            at = rnd.randrange(len(open_savepoints))
            out.append(f'{rnd.choice(["RELEASE", "ROLLBACK TO"])} {open_savepoints[at]};')
            del open_savepoints[at + (1 if out[-1].startswith('ROLLBACK') else 0):]
        out.append(statement(mine, ddl, big))
        if big and rnd.random() < 0.3:
            out.append("SELECT stream_sync('60s');")
    out.append('ROLLBACK;' if rnd.random() < 0.1 else 'COMMIT;')
    return '\n'.join(out)


sql('DROP DATABASE IF EXISTS soak;', 'postgres')
sql('CREATE DATABASE soak;', 'postgres')
sql('CREATE EXTENSION streamcdc;' + ''.join(f'CREATE TABLE {t} (id int PRIMARY KEY, n int, v text);' for t in tables))
end, rounds, bad = time.time() + seconds, 0, 0
while time.time() < end and not bad:
    # the twin is compared round by round, or it would hold all WAL
    sql("SELECT pg_create_logical_replication_slot('soak_twin', 'test_decoding');")
    sql(''.join(f"SELECT stream_track('{t}');" for t in tables) + "SELECT stream_sync('60s');")
    for _ in range(6):
        # disjoint tables, or they would wait for one another
        two = [transaction(tables[:2], True), transaction(tables[2:], True)]
        procs = []
        for t in two:
            p = subprocess.Popen(['psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', 'soak'], stdin=subprocess.PIPE,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            p.stdin.write(t)
            p.stdin.close()
            procs.append((p, t))
        if rnd.random() < 0.4:
            time.sleep(rnd.random() * 0.6)
            sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'streamcdc capture' AND datname = 'soak';")
        for p, t in procs:
            if p.wait():
                print('a transaction failed:', p.stderr.read()[:300].strip(), flush=True)
        sql(transaction(tables, False))
    # a slot in use by test_decoding reads what is flushed: everything by now
    sql("SELECT stream_sync('60s');")
    twin = {t: collections.OrderedDict() for t in tables}
    lines = sql("""SELECT CASE WHEN data LIKE 'BEGIN%' THEN data ELSE left(data, 40) END
FROM pg_logical_slot_get_changes('soak_twin', NULL, NULL, 'skip-empty-xacts', '1') WHERE data !~ '^(COMMIT|message)';""")
    xid = None
    for line in lines.split('\n'):
        m = re.match(r'BEGIN (\d+)', line)
        if m:
            xid = m[1]
            continue
        m = re.match(r'table public\.(\w+): (INSERT|UPDATE|DELETE)', line)
        if m and m[1] in twin:
            twin[m[1]].setdefault(xid, collections.Counter())[m[2]] += 1
    for t in tables:
        ours = [(x, int(i), int(u), int(d)) for x, i, u, d in (l.split('|') for l in sql(
            f"SELECT xid, inserts, updates, deletes FROM stream_versions('{t}') WHERE xid IS NOT NULL AND commit_lsn IS NOT NULL "
            f"AND _commit_version > (SELECT base_version FROM streamcdc.streams WHERE relid = '{t}'::regclass AND state = 'l') "
            "ORDER BY _commit_version;").split('\n') if l)]
        theirs = [(x, c['INSERT'], c['UPDATE'], c['DELETE']) for x, c in twin[t].items()]
        if ours != theirs:
            bad += 1
            print(f'DIFFERENT {t}: ours {[o for o in ours if o not in theirs]}, theirs {[o for o in theirs if o not in ours]}')
        wrong = sql(f"""SELECT count(*) FROM (SELECT r FROM (
SELECT row_data AS r, CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS s FROM stream_changes(NULL::{t})
UNION ALL SELECT t, -1 FROM {t} AS t) AS m GROUP BY r HAVING sum(s) <> 0) AS w;""")
        if wrong != '0':
            bad += 1
            print(f'FOLD of {t}: {wrong} rows differ')
    rounds += 1
    streamed = sql("SELECT stream_txns || ' streamed, ' || spill_txns || ' spilled' FROM pg_stat_replication_slots WHERE slot_name LIKE 'streamcdc%' AND stream_txns > 0 LIMIT 1;")
    print('round', rounds, streamed, 'temp files', sql('SELECT count(*) FROM pg_ls_tmpdir();'), flush=True)
    if not bad:
        sql("SELECT pg_drop_replication_slot('soak_twin');" + ''.join(f"SELECT stream_untrack('{t}');" for t in tables)
            + ''.join(f'TRUNCATE {t};' for t in tables))
print(f'seed {seed}: {rounds} rounds,', 'DIFFERENCES' if bad else 'no difference')
sys.exit(1 if bad else 0)
