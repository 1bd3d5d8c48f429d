-- Creates the schema hostile, whose functions, operators and types have the names of pg_catalog's and raise an error when
-- they are used. A session with the search_path "hostile, pg_catalog" finds them first, so it fails at each name that a
-- statement leaves to the search_path.
SET search_path = pg_catalog;
SET check_function_bodies = off;
CREATE SCHEMA hostile;
DO $do$
DECLARE
  body CONSTANT text := ' LANGUAGE plpgsql AS ''BEGIN RAISE EXCEPTION USING MESSAGE = $m$a hostile object was used$m$; END''';
  types CONSTANT text[] := '{bool,int4,int8,numeric,float8,text,varchar,bpchar,name,bytea,uuid,timestamp,timestamptz,interval}';
  f record;
  op text;
BEGIN
  -- Each function of pg_catalog that PL/pgSQL can have. The others have arguments that no statement can pass.
  FOR f IN
    SELECT format('hostile.%I(%s)', proname, (SELECT string_agg(format_type(t, NULL), ', ' ORDER BY i)
      FROM unnest(proargtypes) WITH ORDINALITY AS u (t, i))) AS signature,
      CASE WHEN proretset THEN 'SETOF ' ELSE '' END || format_type(prorettype, NULL) AS result
    FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind <> 'p' AND provariadic = 0
  LOOP
    BEGIN
      EXECUTE 'CREATE FUNCTION ' || f.signature || ' RETURNS ' || f.result || body;
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;
  -- Each operator of pg_catalog, and the usual ones for all pairs of common types, which pg_catalog only has by casts.
  FOR f IN
    SELECT l, r, array_agg(DISTINCT name) AS names FROM (
      SELECT oprname AS name, format_type(oprleft, NULL) AS l, format_type(oprright, NULL) AS r
      FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprleft <> 0
      UNION ALL SELECT name, format_type(l::regtype, NULL), format_type(r::regtype, NULL)
      FROM unnest('{=,<>,<,<=,>,>=,+,-,*,/,||}'::text[]) AS name, unnest(types) AS l, unnest(types) AS r
    ) AS o GROUP BY l, r
  LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION hostile.operate(%s, %s) RETURNS bool', f.l, f.r) || body;
      FOREACH op IN ARRAY f.names LOOP
        EXECUTE format('CREATE OPERATOR hostile.%s (FUNCTION = hostile.operate, LEFTARG = %s, RIGHTARG = %s)', op, f.l, f.r);
      END LOOP;
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;
  EXECUTE 'CREATE FUNCTION hostile.refuse() RETURNS bool' || body;
  FOR f IN SELECT unnest(types) AS name LOOP
    EXECUTE format('CREATE DOMAIN hostile.%I AS pg_catalog.%I CHECK (hostile.refuse())', f.name, f.name);
  END LOOP;
  CREATE COLLATION hostile."C" FROM pg_catalog."POSIX";
END
$do$;
