-- What agents tell a user unasked, and the cards that briefings become in a conversation.

ALTER TABLE users ADD COLUMN timezone text;     -- as the user's token says

CREATE TABLE briefings (
    tenant           text NOT NULL,
    id               uuid NOT NULL,
    user_id          text NOT NULL,             -- who is told
    agent_id         text NOT NULL,             -- who tells
    posted_by        text NOT NULL,             -- whose token brought it
    title            text NOT NULL CHECK (char_length(title) BETWEEN 1 AND 100),
    summary          text NOT NULL,
    priority         text NOT NULL CHECK (priority IN ('P0', 'P1', 'P2')),
    briefing_type    text NOT NULL CHECK (briefing_type IN ('alert', 'insight', 'summary', 'action')),
    impact           text,
    actions          jsonb NOT NULL DEFAULT '[]',
    context_data     jsonb,
    importance_score double precision,
    dedupe_key       text,
    status           text NOT NULL DEFAULT 'new' CHECK (status IN ('new', 'read', 'actioned', 'dismissed')),
    conversation_id  uuid,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    read_at          timestamptz,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, user_id) REFERENCES users (tenant, id),
    FOREIGN KEY (tenant, conversation_id) REFERENCES conversations (tenant, id) ON DELETE SET NULL (conversation_id)
);

CREATE INDEX briefings_of_user ON briefings (user_id, tenant, created_at DESC, id DESC);
CREATE UNIQUE INDEX briefings_once ON briefings (dedupe_key, user_id, agent_id, tenant);
CREATE INDEX briefings_in_conversation ON briefings (conversation_id, tenant) WHERE conversation_id IS NOT NULL;

ALTER TABLE messages ADD COLUMN briefing_id uuid;
ALTER TABLE messages ADD FOREIGN KEY (tenant, briefing_id) REFERENCES briefings (tenant, id)
    ON DELETE SET NULL (briefing_id);
-- A briefing is in a conversation once, however often it is clicked.
CREATE UNIQUE INDEX messages_card ON messages (briefing_id, conversation_id, tenant) WHERE briefing_id IS NOT NULL;

-- The newest card's place in the log: a context that was kept without it is out of date.
ALTER TABLE conversations ADD COLUMN card_seq bigint NOT NULL DEFAULT 0;

ALTER TABLE briefings ENABLE ROW LEVEL SECURITY;
ALTER TABLE briefings FORCE ROW LEVEL SECURITY;
GRANT SELECT, INSERT, UPDATE, DELETE ON briefings TO tertulia_server, tertulia_system;
CREATE POLICY everything ON briefings TO tertulia_system USING (true) WITH CHECK (true);
CREATE POLICY own ON briefings TO tertulia_server USING (
    tenant = (SELECT nullif(current_setting('tertulia.tenant', true), ''))
    AND user_id = (SELECT nullif(current_setting('tertulia.user', true), '')));
