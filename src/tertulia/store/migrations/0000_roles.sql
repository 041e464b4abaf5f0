-- Two roles that nobody logs in as: `tertulia_server` is what a server may do, `tertulia_system` is who runs the few
-- functions that must see across users. They belong to the whole cluster, so they may be there already.

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['tertulia_server', 'tertulia_system'] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', name);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END LOOP;
END
$$;
