-- railtoken's locks in PostgreSQL 13 or later, version 3. It may be run again, also over an earlier version.
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
INSERT INTO railtoken.installation (version) VALUES (3) ON CONFLICT (one) DO UPDATE SET version = EXCLUDED.version;

-- The script of an earlier version fails instead of taking this one back.
ALTER TABLE railtoken.installation DROP CONSTRAINT IF EXISTS newest,
  ADD CONSTRAINT newest CHECK (version OPERATOR(pg_catalog.>=) 3) NOT VALID;

-- A key has two rows while it is in use. The one without a token, fence 0, stays as it is: who inserts it has the key. The
-- other one is the last lease. It is updated when the lease is released and when the next one begins, and gets a larger
-- token then: so the row that counts is the first in the index from above. No statement meets the earlier versions,
-- which PostgreSQL keeps for as long as some transaction is older than they are. A key of more than 1024 bytes is stored
-- as its first 1024 bytes and its SHA-256.
CREATE TABLE IF NOT EXISTS railtoken.locks (
  key pg_catalog.bytea NOT NULL,
  owner pg_catalog.bytea NOT NULL,        -- random, new for each lease; empty once it is released
  label pg_catalog.text NOT NULL,         -- who that is
  since pg_catalog.timestamptz NOT NULL,
  ends pg_catalog.timestamptz NOT NULL,   -- unless it is renewed
  fence bigint NOT NULL,                  -- the first token of the lease
  notify pg_catalog.timestamptz NOT NULL, -- until when a caller has subscribed to the releases
  ttl bigint NOT NULL,                    -- in milliseconds
  PRIMARY KEY (key, fence)
) WITH (
  -- Room for new versions of a row on its own page, so that a renewal does not touch the index.
  fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000
);

-- Each lease gets 256 tokens below 2^53, which are enough for 35 trillion leases.
CREATE SEQUENCE IF NOT EXISTS railtoken.fence INCREMENT BY 256 MINVALUE 256 MAXVALUE 9007199254740736 NO CYCLE;

-- Before version 3, a row was a key that was held.
CREATE OR REPLACE FUNCTION railtoken.migrate() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'railtoken.locks'::regclass AND attname = 'ttl') THEN
    RETURN;
  END IF;
  ALTER TABLE railtoken.locks ADD ttl bigint NOT NULL DEFAULT 0, DROP CONSTRAINT locks_pkey, ADD PRIMARY KEY (key, fence);
  ALTER TABLE railtoken.locks ALTER ttl DROP DEFAULT;
  UPDATE railtoken.locks SET ttl = greatest(1000, extract(epoch FROM ends - clock_timestamp()) * 1000);
  INSERT INTO railtoken.locks (key, owner, label, since, ends, fence, notify, ttl)
    SELECT key, '', '', '-infinity', '-infinity', 0, '-infinity', 0 FROM railtoken.locks;
  DROP FUNCTION IF EXISTS railtoken.clean(), railtoken.in_tx(bytea[], bytea[], bigint);
END
$$;
SELECT railtoken.migrate();
DROP FUNCTION railtoken.migrate();

-- held lists the keys that are held, and those that a crashed holder has left. To free a key, delete its row here.
CREATE OR REPLACE VIEW railtoken.held AS
  SELECT key, label, since, ends, fence FROM railtoken.locks WHERE owner OPERATOR(pg_catalog.<>) ''::pg_catalog.bytea;

-- acquire takes all keys, which are in order, or none. Times are in milliseconds.
--
-- It returns a row for each key with its place and token, or one row with held, the place of the key that another holder
-- has, and that holder. Keys that this owner has already are granted again, because a client may repeat a call.
--
-- It does not wait for transactions that hold a lease by InTx: their rows are skipped, and count as held. Tokens come from
-- a sequence, and are drawn while the key's row is locked or its row without a token was inserted, or by an update that
-- takes only a row without a lease since: so they grow for each key, also after its rows were deleted.
--
-- A caller whose snapshot is old, because the database's default is REPEATABLE READ, cannot take a key that it does not
-- see: the row without a token is unique, and a changed row cannot be locked or updated.
CREATE OR REPLACE FUNCTION railtoken.acquire(
  p_keys pg_catalog.bytea[], p_owner pg_catalog.bytea, p_label pg_catalog.text, p_ttl bigint, p_notify bigint
) RETURNS TABLE (held boolean, place int, token bigint, holder pg_catalog.text, age bigint, remaining bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  l railtoken.locks;
  refused int := 0;
  last bigint[];    -- the tokens of the last leases of the keys; 0 for none
  inserted bytea[]; -- keys that had no row
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
        SELECT * INTO l FROM railtoken.locks WHERE key = p_keys[i] ORDER BY key DESC, fence DESC LIMIT 1;
        IF FOUND AND l.owner <> '' AND l.owner <> p_owner AND l.ends > clock_timestamp() THEN
          refused := i;
          EXIT;
        END IF;
      END LOOP;
    END IF;
    IF refused = 0 THEN
      FOR i IN 1..cardinality(p_keys) LOOP
        SELECT * INTO l FROM railtoken.locks WHERE key = p_keys[i] ORDER BY key DESC, fence DESC LIMIT 1;
        IF NOT FOUND THEN
          INSERT INTO railtoken.locks (key, owner, label, since, ends, fence, notify, ttl)
            VALUES (p_keys[i], '', '', '-infinity', '-infinity', 0, '-infinity', 0) ON CONFLICT (key, fence) DO NOTHING;
          CONTINUE attempt WHEN NOT FOUND;
          inserted := inserted || p_keys[i];
          last[i] := 0;
          CONTINUE;
        END IF;
        last[i] := l.fence;
        CONTINUE WHEN l.owner = p_owner;
        IF l.fence = 0 THEN -- somebody has deleted the row of the last lease
          UPDATE railtoken.locks SET since = clock_timestamp() WHERE key = p_keys[i] AND fence = 0;
          CONTINUE attempt WHEN NOT FOUND;
          PERFORM 1 FROM railtoken.locks WHERE key = p_keys[i] AND fence > 0;
          CONTINUE attempt WHEN FOUND;
          CONTINUE;
        END IF;
        IF l.owner = '' THEN
          CONTINUE WHEN cardinality(p_keys) = 1; -- the update below finds out whether it still is
          PERFORM 1 FROM railtoken.locks WHERE key = p_keys[i] AND fence = l.fence AND owner = '' FOR UPDATE;
          CONTINUE attempt WHEN NOT FOUND;
          CONTINUE;
        END IF;
        IF l.ends <= clock_timestamp() THEN
          PERFORM 1 FROM railtoken.locks WHERE key = p_keys[i] AND fence = l.fence AND ends <= clock_timestamp()
            FOR UPDATE SKIP LOCKED;
          CONTINUE WHEN FOUND;
        END IF;
        refused := i;
        EXIT;
      END LOOP;
    END IF;
    IF refused = 0 THEN
      FOR i IN 1..cardinality(p_keys) LOOP
        IF last[i] = 0 THEN
          INSERT INTO railtoken.locks (key, owner, label, since, ends, fence, notify, ttl)
            VALUES (p_keys[i], p_owner, p_label, clock_timestamp(), clock_timestamp() + p_ttl * interval '1 millisecond',
              nextval('railtoken.fence'), '-infinity', p_ttl)
            RETURNING fence INTO token;
        ELSE
          UPDATE railtoken.locks
            SET owner = p_owner, label = p_label, since = clock_timestamp(),
              ends = clock_timestamp() + p_ttl * interval '1 millisecond', fence = nextval('railtoken.fence'), ttl = p_ttl
            WHERE key = p_keys[i] AND fence = last[i]
            RETURNING fence INTO token;
          CONTINUE attempt WHEN NOT FOUND AND i = 1; -- another attempt was faster, and nothing is taken yet
        END IF;
        held := false;
        place := i;
        holder := '';
        age := 0;
        remaining := 0;
        RETURN NEXT;
      END LOOP;
      RETURN;
    END IF;
    -- A lease ends at most its TTL from now, unless the clock was set back.
    IF l.ends > clock_timestamp() + l.ttl * interval '1 millisecond' THEN
      UPDATE railtoken.locks SET ends = clock_timestamp() + ttl * interval '1 millisecond'
        WHERE key = l.key AND fence = l.fence AND owner = l.owner AND ends = l.ends;
      CONTINUE attempt;
    END IF;
    IF p_notify > 0 AND l.notify < clock_timestamp() + p_notify * interval '0.5 milliseconds' THEN
      UPDATE railtoken.locks SET notify = clock_timestamp() + p_notify * interval '1 millisecond'
        WHERE key = l.key AND fence = l.fence AND owner = l.owner;
      CONTINUE attempt WHEN NOT FOUND; -- it has just been released
    END IF;
    EXIT;
  END LOOP;
  DELETE FROM railtoken.locks WHERE key = ANY (inserted) AND fence = 0;
  RETURN QUERY SELECT true, greatest(refused, 1), coalesce(l.fence, 0), coalesce(l.label, ''),
    coalesce((extract(epoch FROM clock_timestamp() - l.since) * 1000)::bigint, 0),
    coalesce((extract(epoch FROM l.ends - clock_timestamp()) * 1000)::bigint, 0);
END
$$;

-- renew makes the keys of an owner last for p_ttl milliseconds from now, unless they have expired. It returns the place of
-- a key that is not this owner's any more, or 0. It does not wait for a transaction that holds the lease by InTx. The keys
-- are in the order in which everyone locks them.
CREATE OR REPLACE FUNCTION railtoken.renew(p_keys pg_catalog.bytea[], p_owner pg_catalog.bytea, p_ttl bigint) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  FOR i IN 1..cardinality(p_keys) LOOP
    UPDATE railtoken.locks SET ends = clock_timestamp() + p_ttl * interval '1 millisecond', ttl = p_ttl
      WHERE key = p_keys[i] AND fence = (SELECT fence FROM railtoken.locks WHERE key = p_keys[i] ORDER BY key DESC, fence DESC LIMIT 1)
        AND owner = p_owner AND ends > clock_timestamp();
    IF NOT FOUND THEN
      RETURN i;
    END IF;
  END LOOP;
  RETURN 0;
END
$$;

-- release frees the keys that still are their owners', and returns their places and whether a caller has subscribed to
-- the release. It waits for transactions that hold the lease by InTx. A release that a crash of the server forgets ends
-- with its TTL, so its commit need not wait for the disk.
CREATE OR REPLACE FUNCTION railtoken.release(p_keys pg_catalog.bytea[], p_owners pg_catalog.bytea[])
RETURNS TABLE (place int, subscribed boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  setting text;
BEGIN
  setting := set_config('synchronous_commit', 'off', true); -- an assignment needs no query of its own
  FOR i IN 1..cardinality(p_keys) LOOP
    UPDATE railtoken.locks SET owner = '', ends = clock_timestamp()
      WHERE key = p_keys[i] AND fence = (
        SELECT fence FROM railtoken.locks WHERE key = p_keys[i] AND owner = p_owners[i] ORDER BY key DESC, fence DESC LIMIT 1
          FOR UPDATE) -- an update alone does not wait for InTx
      RETURNING i, notify > clock_timestamp() INTO place, subscribed;
    CONTINUE WHEN NOT FOUND;
    IF subscribed THEN
      PERFORM pg_notify('railtoken', encode(sha256(p_keys[i]), 'hex'));
    END IF;
    RETURN NEXT;
  END LOOP;
END
$$;

-- undo frees the keys that still are their owners', and returns their places. It waits for nothing: busy says that some
-- transaction has locked the key, for example by InTx.
CREATE OR REPLACE FUNCTION railtoken.undo(p_keys pg_catalog.bytea[], p_owners pg_catalog.bytea[])
RETURNS TABLE (place int, busy boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  setting text;
  last bigint;
  subscribed boolean;
BEGIN
  setting := set_config('synchronous_commit', 'off', true);
  FOR i IN 1..cardinality(p_keys) LOOP
    SELECT fence INTO last FROM railtoken.locks
      WHERE key = p_keys[i] AND fence = (SELECT fence FROM railtoken.locks WHERE key = p_keys[i] ORDER BY key DESC, fence DESC LIMIT 1)
        AND owner = p_owners[i];
    CONTINUE WHEN NOT FOUND;
    place := i;
    PERFORM 1 FROM railtoken.locks WHERE key = p_keys[i] AND fence = last AND owner = p_owners[i] FOR UPDATE SKIP LOCKED;
    busy := NOT FOUND;
    IF NOT busy THEN
      UPDATE railtoken.locks SET owner = '', ends = clock_timestamp() WHERE key = p_keys[i] AND fence = last
        RETURNING notify > clock_timestamp() INTO subscribed;
      IF subscribed THEN
        PERFORM pg_notify('railtoken', encode(sha256(p_keys[i]), 'hex'));
      END IF;
    END IF;
    RETURN NEXT;
  END LOOP;
END
$$;

-- in_tx locks the rows of the keys that still are their owners', and returns how many those are. FOR KEY SHARE lets
-- renewals pass, and nothing that gives the key to another holder. The server ends a transaction that does nothing for
-- longer than p_ttl milliseconds, at most 24 days.
CREATE OR REPLACE FUNCTION railtoken.in_tx(
  p_keys pg_catalog.bytea[], p_owners pg_catalog.bytea[], p_fences bigint[], p_ttl bigint
) RETURNS TABLE (id pg_catalog.text, database pg_catalog.text, isolation pg_catalog.text, found int)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  idle CONSTANT text := 'idle_in_transaction_session_timeout';
  longest CONSTANT bigint := least(p_ttl, 2147483647);
  mine int := 0;
BEGIN
  FOR i IN 1..cardinality(p_keys) LOOP
    PERFORM 1 FROM railtoken.locks WHERE key = p_keys[i] AND fence = p_fences[i] AND owner = p_owners[i]
      AND ends > clock_timestamp() FOR KEY SHARE;
    IF FOUND THEN
      mine := mine + 1;
    END IF;
  END LOOP;
  IF extract(epoch FROM current_setting(idle)::interval) * 1000 NOT BETWEEN 1 AND longest THEN
    PERFORM set_config(idle, longest::text, true);
  END IF;
  RETURN QUERY SELECT i.id::text, current_database()::text, current_setting('transaction_isolation'), mine
    FROM railtoken.installation i;
END
$$;

-- clean looks at p_count keys after p_after, and returns the last one, or '' at the end. It deletes those that nobody has
-- had for 10 s, and those that crashed holders have left for a minute, but none to whose releases a caller has subscribed.
-- Their tokens are not needed: new ones come from the sequence. A key's first row in the index is never updated, so the
-- way from one key to the next is short.
CREATE OR REPLACE FUNCTION railtoken.clean(p_after pg_catalog.bytea, p_count int) RETURNS pg_catalog.bytea
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  setting text;
  k bytea := p_after;
  l railtoken.locks;
BEGIN
  setting := set_config('synchronous_commit', 'off', true);
  FOR i IN 1..p_count LOOP
    SELECT key INTO k FROM railtoken.locks WHERE key > k ORDER BY key, fence LIMIT 1;
    IF NOT FOUND THEN
      RETURN ''::bytea;
    END IF;
    SELECT * INTO l FROM railtoken.locks WHERE key = k ORDER BY key DESC, fence DESC LIMIT 1;
    CONTINUE WHEN NOT FOUND OR l.notify > clock_timestamp();
    CONTINUE WHEN l.owner <> '' AND l.ends > clock_timestamp() - interval '1 minute';
    CONTINUE WHEN l.ends BETWEEN clock_timestamp() - interval '10 seconds' AND clock_timestamp() + interval '10 seconds';
    PERFORM 1 FROM railtoken.locks WHERE key = k AND fence = l.fence AND owner = l.owner AND ends = l.ends
      FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    PERFORM 1 FROM railtoken.locks WHERE key = k AND fence > l.fence;
    CONTINUE WHEN FOUND;
    DELETE FROM railtoken.locks WHERE key = k AND (fence = 0 OR fence = l.fence);
  END LOOP;
  RETURN k;
END
$$;
