-- Row level security, forced, on every table that has a tenant. The server's role owns nothing; what must cross
-- users is done by functions of `tertulia_system`. Without a tenant and a user in the settings there are no rows.

DO $$
DECLARE
    name text;
    own text := '%I = (SELECT nullif(current_setting(''tertulia.tenant'', true), ''''))'
                ' AND %I = (SELECT nullif(current_setting(''tertulia.user'', true), ''''))';
    owning jsonb := '{"users": "id", "conversations": "user_id", "messages": "user_id", "turns": "user_id",
                      "idempotency": "user_id", "audit": "user_id"}';
BEGIN
    FOREACH name IN ARRAY ARRAY['users', 'conversations', 'messages', 'turns', 'notifications', 'idempotency', 'audit']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO tertulia_server, tertulia_system', name);
        EXECUTE format('CREATE POLICY everything ON %I TO tertulia_system USING (true) WITH CHECK (true)', name);
        IF owning ? name THEN
            EXECUTE format('CREATE POLICY own ON %I TO tertulia_server USING (' || own || ')',
                           name, 'tenant', owning ->> name);
        END IF;
    END LOOP;
    -- One reads what one received, and writes what one sends.
    EXECUTE format('CREATE POLICY received ON notifications FOR SELECT TO tertulia_server USING (' || own || ')',
                   'tenant', 'to_user_id');
    EXECUTE format('CREATE POLICY marked ON notifications FOR UPDATE TO tertulia_server USING (' || own || ')',
                   'tenant', 'to_user_id');
    EXECUTE format('CREATE POLICY sent ON notifications FOR INSERT TO tertulia_server WITH CHECK (' || own || ')',
                   'tenant', 'from_user_id');
END
$$;
