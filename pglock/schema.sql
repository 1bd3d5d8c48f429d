-- railtoken's locks in PostgreSQL 13 or later, version 2. It may be run again, also over an earlier version.
--
-- Other users of the database may own objects in a schema of the search_path, for example an operator that PostgreSQL
-- prefers to its own. So each function sets its search_path, and all other statements name the schema of everything.
CREATE SCHEMA IF NOT EXISTS railtoken;

-- One row names the database, so that a lease of one is not looked for in another.
CREATE TABLE IF NOT EXISTS railtoken.installation (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  id pg_catalog.uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid(),
  version int NOT NULL
);
INSERT INTO railtoken.installation (version) VALUES (2) ON CONFLICT (one) DO UPDATE SET version = EXCLUDED.version;

-- The script of an earlier version fails instead of taking this one back.
ALTER TABLE railtoken.installation DROP CONSTRAINT IF EXISTS newest,
  ADD CONSTRAINT newest CHECK (version OPERATOR(pg_catalog.>=) 2) NOT VALID;

-- A row is a key that is held, or that a crashed holder has left. A key of more than 1024 bytes is stored as its first
-- 1024 bytes and its SHA-256.
CREATE TABLE IF NOT EXISTS railtoken.locks (
  key pg_catalog.bytea PRIMARY KEY,
  owner pg_catalog.bytea NOT NULL,       -- random, new for each lease
  label pg_catalog.text NOT NULL,        -- who that is
  since pg_catalog.timestamptz NOT NULL,
  ends pg_catalog.timestamptz NOT NULL,  -- unless it is renewed
  fence bigint NOT NULL,                 -- the first token of the lease
  notify pg_catalog.timestamptz NOT NULL -- until when a caller has subscribed to the release
) WITH (
  -- Room for new versions of a row on its own page, so that a renewal does not touch the index.
  fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000
);

-- Each lease gets 256 tokens below 2^53, which are enough for 35 trillion leases.
CREATE SEQUENCE IF NOT EXISTS railtoken.fence INCREMENT BY 256 MINVALUE 256 MAXVALUE 9007199254740736 NO CYCLE;

-- acquire takes all keys, which are in order, or none. Times are in milliseconds.
--
-- It returns a row for each key with its place and token, or one row with held, the place of the key that another holder
-- has, and that holder. Keys that this owner has already are granted again, because a client may repeat a call.
--
-- It does not wait for transactions that hold a lease by InTx: their rows are skipped, and count as held. Tokens come from
-- a sequence, and are drawn while the row is locked or inserted: so they grow for each key, also after its row was
-- deleted.
CREATE OR REPLACE FUNCTION railtoken.acquire(
  p_keys pg_catalog.bytea[], p_owner pg_catalog.bytea, p_label pg_catalog.text, p_ttl bigint, p_notify bigint
) RETURNS TABLE (held boolean, place int, token bigint, holder pg_catalog.text, age bigint, remaining bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  l railtoken.locks;
  refused int := 0;
BEGIN
  -- A lease that a crash of the server forgets would have two holders.
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  <<attempt>>
  FOR attempts IN 1..10 LOOP
    refused := 0;
    IF cardinality(p_keys) > 1 THEN -- a refusal writes nothing
      FOR i IN 1..cardinality(p_keys) LOOP
        SELECT * INTO l FROM railtoken.locks WHERE key = p_keys[i];
        IF FOUND AND l.ends > clock_timestamp() AND l.owner <> p_owner THEN
          refused := i;
          EXIT;
        END IF;
      END LOOP;
    END IF;
    IF refused = 0 THEN
      FOR i IN 1..cardinality(p_keys) LOOP
        INSERT INTO railtoken.locks (key, owner, label, since, ends, fence, notify)
          VALUES (p_keys[i], p_owner, p_label, clock_timestamp(), clock_timestamp(), 0, '-infinity') ON CONFLICT (key) DO NOTHING;
        CONTINUE WHEN FOUND;
        SELECT * INTO l FROM railtoken.locks WHERE key = p_keys[i];
        CONTINUE attempt WHEN NOT FOUND;
        CONTINUE WHEN l.owner = p_owner;
        IF l.ends <= clock_timestamp() THEN
          PERFORM 1 FROM railtoken.locks WHERE key = p_keys[i] AND ends <= clock_timestamp() FOR UPDATE SKIP LOCKED;
          CONTINUE WHEN FOUND;
        END IF;
        refused := i;
        EXIT;
      END LOOP;
    END IF;
    IF refused = 0 THEN
      RETURN QUERY UPDATE railtoken.locks
        SET owner = p_owner, label = p_label, since = clock_timestamp(),
          ends = clock_timestamp() + p_ttl * interval '1 millisecond', fence = nextval('railtoken.fence'), notify = '-infinity'
        WHERE key = ANY (p_keys)
        RETURNING false, array_position(p_keys, key), fence, ''::text, 0::bigint, 0::bigint;
      RETURN;
    END IF;
    IF p_notify > 0 AND l.notify < clock_timestamp() + p_notify * interval '0.5 milliseconds' THEN
      UPDATE railtoken.locks SET notify = clock_timestamp() + p_notify * interval '1 millisecond'
        WHERE key = l.key AND owner = l.owner;
      CONTINUE attempt WHEN NOT FOUND; -- it has just been released
    END IF;
    EXIT;
  END LOOP;
  DELETE FROM railtoken.locks WHERE key = ANY (p_keys) AND owner = p_owner AND fence = 0; -- inserted above
  RETURN QUERY SELECT true, greatest(refused, 1), coalesce(l.fence, 0), coalesce(l.label, ''),
    coalesce((extract(epoch FROM clock_timestamp() - l.since) * 1000)::bigint, 0),
    coalesce((extract(epoch FROM l.ends - clock_timestamp()) * 1000)::bigint, 0);
END
$$;

-- renew makes the keys of an owner last for p_ttl milliseconds from now, unless they have expired. It returns the place of
-- a key that is not this owner's any more, or 0. It does not wait for a transaction that holds the lease by InTx.
CREATE OR REPLACE FUNCTION railtoken.renew(p_keys pg_catalog.bytea[], p_owner pg_catalog.bytea, p_ttl bigint) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  renewed bytea[];
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  IF cardinality(p_keys) > 1 THEN -- in the order in which everyone locks them
    PERFORM 1 FROM railtoken.locks WHERE key = ANY (p_keys) AND owner = p_owner ORDER BY key FOR NO KEY UPDATE;
  END IF;
  WITH u AS (
    UPDATE railtoken.locks SET ends = clock_timestamp() + p_ttl * interval '1 millisecond'
    WHERE key = ANY (p_keys) AND owner = p_owner AND ends > clock_timestamp() RETURNING key
  ) SELECT array_agg(key) INTO renewed FROM u;
  FOR i IN 1..cardinality(p_keys) LOOP
    IF renewed IS NULL OR p_keys[i] <> ALL (renewed) THEN
      RETURN i;
    END IF;
  END LOOP;
  RETURN 0;
END
$$;

-- release deletes the keys that still are their owners', and returns their places and whether a caller has subscribed to
-- the release. It waits for transactions that hold the lease by InTx. A release that a crash of the server forgets ends
-- with its TTL, so its commit need not wait for the disk.
CREATE OR REPLACE FUNCTION railtoken.release(p_keys pg_catalog.bytea[], p_owners pg_catalog.bytea[])
RETURNS TABLE (place int, subscribed boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  setting text;
BEGIN
  setting := set_config('synchronous_commit', 'off', true); -- an assignment needs no query of its own
  IF cardinality(p_keys) > 1 THEN
    PERFORM 1 FROM railtoken.locks l JOIN unnest(p_keys, p_owners) AS u (key, owner) ON l.key = u.key AND l.owner = u.owner
      ORDER BY l.key FOR UPDATE OF l;
  END IF;
  FOR i IN 1..cardinality(p_keys) LOOP
    DELETE FROM railtoken.locks WHERE key = p_keys[i] AND owner = p_owners[i]
      RETURNING i, notify > clock_timestamp() INTO place, subscribed;
    IF FOUND THEN
      IF subscribed THEN
        PERFORM pg_notify('railtoken', encode(sha256(p_keys[i]), 'hex'));
      END IF;
      RETURN NEXT;
    END IF;
  END LOOP;
END
$$;

-- in_tx locks the rows of the keys that still are their owners', and returns how many those are. FOR KEY SHARE lets
-- renewals pass, and nothing that gives the key to another holder. The server ends a transaction that does nothing for
-- longer than p_ttl milliseconds, at most 24 days.
CREATE OR REPLACE FUNCTION railtoken.in_tx(p_keys pg_catalog.bytea[], p_owners pg_catalog.bytea[], p_ttl bigint)
RETURNS TABLE (id pg_catalog.text, database pg_catalog.text, isolation pg_catalog.text, found int)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  idle CONSTANT text := 'idle_in_transaction_session_timeout';
  longest CONSTANT bigint := least(p_ttl, 2147483647);
  mine int;
BEGIN
  PERFORM 1 FROM railtoken.locks l JOIN unnest(p_keys, p_owners) AS u (key, owner) ON l.key = u.key AND l.owner = u.owner
    WHERE l.ends > clock_timestamp() ORDER BY l.key FOR KEY SHARE OF l;
  GET DIAGNOSTICS mine = ROW_COUNT;
  IF extract(epoch FROM current_setting(idle)::interval) * 1000 NOT BETWEEN 1 AND longest THEN
    PERFORM set_config(idle, longest::text, true);
  END IF;
  RETURN QUERY SELECT i.id::text, current_database()::text, current_setting('transaction_isolation'), mine
    FROM railtoken.installation i;
END
$$;

-- clean deletes rows that crashed holders have left. Their tokens are not needed: new ones come from the sequence.
CREATE OR REPLACE FUNCTION railtoken.clean() RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  DELETE FROM railtoken.locks WHERE key IN (
    SELECT key FROM railtoken.locks WHERE ends < clock_timestamp() - interval '1 minute' ORDER BY key LIMIT 1000
    FOR UPDATE SKIP LOCKED)
$$;
