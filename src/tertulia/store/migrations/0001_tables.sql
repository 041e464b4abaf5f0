-- The durable log of conversations and the mailbox of turns.
--
-- Only primary keys begin with the tenant. Other indexes begin with what is selective: while a table has no
-- statistics yet, the planner would take any index that begins with the tenant for a look-up by key, and keep that
-- plan (also in foreign key checks) while the table grows.
--
-- What a column may hold is said by domains where rows are written on every message: PostgreSQL reads the CHECK
-- constraints of a table anew for each statement, those of a domain once.

CREATE DOMAIN message_role AS text CHECK (VALUE IN ('user', 'assistant', 'system', 'tool'));
CREATE DOMAIN message_kind AS text CHECK (VALUE IN ('text', 'briefing_card', 'tool_call', 'tool_result'));
CREATE DOMAIN turn_status AS text
    CHECK (VALUE IN ('queued', 'running', 'waiting', 'done', 'silent', 'failed', 'aborted'));
CREATE DOMAIN conversation_status AS text CHECK (VALUE IN ('active', 'archived'));
CREATE DOMAIN conversation_title AS text CHECK (char_length(VALUE) <= 50);
CREATE DOMAIN tally AS integer CHECK (VALUE >= 0);

CREATE TABLE users (
    tenant     text NOT NULL CHECK (tenant <> ''),
    id         text NOT NULL CHECK (id <> ''),
    name       text,
    email      text,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);

CREATE TABLE conversations (
    tenant          text NOT NULL,
    id              uuid NOT NULL,
    user_id         text NOT NULL,
    agent_id        text,                       -- set only on the standing conversation with that agent
    external_key    text,                       -- the client's own handle
    session_id      text NOT NULL UNIQUE,       -- the credential for listening: secret
    title           conversation_title,
    status          conversation_status NOT NULL DEFAULT 'active',
    started_at      timestamptz NOT NULL DEFAULT now(),
    last_message_at timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    deleted_at      timestamptz,
    last_seq        bigint NOT NULL DEFAULT 0,  -- the newest message's place in the log
    context_tail    bigint NOT NULL DEFAULT 0,  -- the newest message that a model would be shown
    open_turns      tally NOT NULL DEFAULT 0,
    lease_owner     uuid,
    lease_until     timestamptz,
    lease_epoch     bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, user_id) REFERENCES users (tenant, id)
) WITH (fillfactor = 70);                       -- room for in-place updates of seq and lease

CREATE UNIQUE INDEX conversations_standing ON conversations (user_id, tenant, agent_id) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX conversations_handle ON conversations (external_key, user_id, tenant) WHERE deleted_at IS NULL;
CREATE INDEX conversations_deleted ON conversations (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE messages (
    tenant          text NOT NULL,
    id              uuid NOT NULL,
    conversation_id uuid NOT NULL,
    seq             bigint NOT NULL,
    trigger_seq     bigint NOT NULL,            -- the seq of the message that this one answers, or its own
    user_id         text NOT NULL,
    session_id      text NOT NULL,              -- the client's handle, kept for audit
    turn_id         uuid,
    agent_id        text,
    role            message_role NOT NULL,
    content_type    message_kind NOT NULL,
    content         jsonb NOT NULL,
    structured_data jsonb,
    actions         jsonb,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, conversation_id) REFERENCES conversations (tenant, id) ON DELETE CASCADE
);

CREATE UNIQUE INDEX idx_messages_conversation ON messages (conversation_id, seq, tenant);
-- At most one final reply per turn; turns are unique per (message, agent).
CREATE UNIQUE INDEX messages_reply ON messages (turn_id, tenant) WHERE role = 'assistant' AND content_type = 'text';
CREATE INDEX messages_steps ON messages (turn_id, seq, tenant) WHERE content_type IN ('tool_call', 'tool_result');

CREATE TABLE turns (
    tenant          text NOT NULL,
    id              uuid NOT NULL,
    conversation_id uuid NOT NULL,
    message_id      uuid NOT NULL,
    trigger_seq     bigint NOT NULL,
    user_id         text NOT NULL,
    agent_id        text NOT NULL,
    mandatory       boolean NOT NULL DEFAULT true,
    status          turn_status NOT NULL DEFAULT 'queued',
    attempt         integer NOT NULL DEFAULT 0, -- only grows; every event carries it
    tries           integer NOT NULL DEFAULT 0, -- since it was last queued; a retry by a person starts anew
    abort_requested boolean NOT NULL DEFAULT false,
    context_until   bigint,                     -- how much of the log the first attempt saw
    partial         text,                       -- what was said so far, kept about once a second
    code            text,
    error           text,
    reply_id        uuid,
    model           text,
    usage           jsonb,
    trace           jsonb,                      -- the model, what it was shown and used, the times: why this answer
    terminal        jsonb,                      -- events of the end that are not yet known to be in the event log
    created_at      timestamptz NOT NULL DEFAULT now(),
    started_at      timestamptz,
    ended_at        timestamptz,
    woken_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id),
    UNIQUE (message_id, agent_id, tenant),
    FOREIGN KEY (tenant, message_id) REFERENCES messages (tenant, id) ON DELETE CASCADE
);

CREATE INDEX turns_open ON turns (user_id, tenant, conversation_id, trigger_seq)
    WHERE status IN ('queued', 'running', 'waiting');
CREATE INDEX turns_outbox ON turns (ended_at) WHERE terminal IS NOT NULL;

CREATE TABLE notifications (
    tenant       text NOT NULL,
    id           uuid NOT NULL,
    from_user_id text NOT NULL,
    to_user_id   text NOT NULL,
    message      text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    read         boolean NOT NULL DEFAULT false,
    read_at      timestamptz,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, from_user_id) REFERENCES users (tenant, id),
    FOREIGN KEY (tenant, to_user_id) REFERENCES users (tenant, id)
);

CREATE INDEX notifications_of_user ON notifications (to_user_id, tenant, created_at DESC, id DESC);

CREATE TABLE idempotency (
    tenant     text NOT NULL,
    user_id    text NOT NULL,
    route      text NOT NULL,
    key        text NOT NULL,
    body_hash  bytea NOT NULL,
    answer     jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, user_id, route, key)
);

CREATE INDEX idempotency_age ON idempotency (created_at);

CREATE TABLE audit (
    tenant  text NOT NULL,
    user_id text NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    action  text NOT NULL,
    subject uuid NOT NULL                       -- ids only: what was erased stays erased
);

CREATE INDEX audit_of_user ON audit (user_id, tenant, at);
