-- Finding messages again. The terms of a message are written a moment after its turn has ended, by the sweeper, so
-- that accepting and answering do not wait for it; `unindexed` says which are still to be written.

CREATE TABLE unindexed (
    tenant     text NOT NULL,
    user_id    text NOT NULL,
    message_id uuid NOT NULL,
    PRIMARY KEY (tenant, message_id),
    FOREIGN KEY (tenant, message_id) REFERENCES messages (tenant, id) ON DELETE CASCADE
);

CREATE TABLE search (
    tenant          text NOT NULL,
    user_id         text NOT NULL,
    message_id      uuid NOT NULL,
    conversation_id uuid NOT NULL,
    terms           tsvector NOT NULL,          -- with one that stands for the owner: the index finds only theirs
    PRIMARY KEY (tenant, message_id),
    FOREIGN KEY (tenant, message_id) REFERENCES messages (tenant, id) ON DELETE CASCADE
);

CREATE INDEX search_terms ON search USING gin (terms);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['unindexed', 'search'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO tertulia_server, tertulia_system', name);
        EXECUTE format('CREATE POLICY everything ON %I TO tertulia_system USING (true) WITH CHECK (true)', name);
        EXECUTE format('CREATE POLICY own ON %I TO tertulia_server USING ('
                       '    tenant = (SELECT nullif(current_setting(''tertulia.tenant'', true), ''''))'
                       '    AND user_id = (SELECT nullif(current_setting(''tertulia.user'', true), '''')))', name);
    END LOOP;
END
$$;

-- What was said before there was a search. (Row level security is forced: the owner of the tables sees nothing.)
GRANT tertulia_system TO CURRENT_USER;
SET LOCAL ROLE tertulia_system;
INSERT INTO unindexed (tenant, user_id, message_id)
SELECT tenant, user_id, id FROM messages WHERE content_type = 'text';
RESET ROLE;
REVOKE tertulia_system FROM CURRENT_USER;
