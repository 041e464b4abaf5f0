-- name: read_conversation
SELECT id, agent_id, external_key, session_id, title, status, created_at, updated_at, started_at, last_message_at,
       last_seq
  FROM api.read_conversation(:tenant, :user, :conversation);

-- name: read_page
SELECT * FROM api.read_page(:tenant, :user, :conversation, :before, :after, :limit);

-- name: read_turns
SELECT * FROM api.read_turns(:tenant, :user, :messages);

-- name: conversation_by_session
SELECT id FROM conversations WHERE tenant = :tenant AND session_id = :session AND deleted_at IS NULL;

-- name: whose_conversation
SELECT api.whose_conversation(:conversation) AS whose;

-- name: hide_conversation
WITH hidden AS (
    UPDATE conversations SET deleted_at = clock_timestamp()
     WHERE tenant = :tenant AND id = :conversation AND deleted_at IS NULL RETURNING id
), stopped AS (
    UPDATE turns t SET abort_requested = true FROM hidden
     WHERE t.tenant = :tenant AND t.user_id = :user AND t.conversation_id = hidden.id AND t.status IN ('queued', 'running', 'waiting')
    RETURNING t.id
), noted AS (
    INSERT INTO audit (tenant, user_id, action, subject)
    SELECT :tenant, :user, 'conversation.deleted', id FROM hidden
)
SELECT hidden.id, (SELECT array_agg(id) FROM stopped) AS turns FROM hidden;

-- name: bring_back_conversation
UPDATE conversations SET deleted_at = NULL WHERE tenant = :tenant AND id = :conversation AND deleted_at IS NOT NULL
RETURNING id;
