-- name: read_conversation
SELECT id, agent_id, external_key, session_id, title, status, created_at, updated_at, started_at, last_message_at,
       last_seq
  FROM api.read_conversation(:tenant, :user, :conversation);

-- name: read_page
SELECT * FROM api.read_page(:tenant, :user, :conversation, :before, :after, :limit, :kinds);

-- name: open_standing
SELECT * FROM api.open_standing(:tenant, :user, :agent, :conversation, :session);

-- name: open_handle
SELECT * FROM api.open_handle(:tenant, :user, :handle, :title, :conversation, :session);

-- name: conversations_page
SELECT id, agent_id, external_key, session_id, title, status, created_at, updated_at, started_at, last_message_at,
       last_seq
  FROM conversations c
 WHERE c.tenant = :tenant AND c.user_id = :user AND c.deleted_at IS NULL
   AND (CAST(:before AS uuid) IS NULL
        OR (coalesce(c.last_message_at, c.created_at), c.id) < (CAST(:active AS timestamptz), CAST(:before AS uuid)))
 ORDER BY coalesce(c.last_message_at, c.created_at) DESC, c.id DESC LIMIT :limit;

-- name: read_turns
SELECT * FROM api.read_turns(:tenant, :user, :messages);

-- name: conversation_by_session
SELECT id FROM conversations WHERE tenant = :tenant AND session_id = :session AND deleted_at IS NULL;

-- name: whose_conversation
SELECT api.whose_conversation(:conversation) AS whose;

-- name: hide_conversation
SELECT * FROM api.hide_conversation(:tenant, :user, :conversation);

-- name: bring_back_conversation
UPDATE conversations SET deleted_at = NULL
 WHERE tenant = :tenant AND id = :conversation AND deleted_at > '-infinity' RETURNING id;
