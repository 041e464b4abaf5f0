-- name: message_by_id
SELECT m.id, m.conversation_id, m.session_id, m.content::text AS content, m.created_at FROM messages m
  JOIN conversations c ON c.tenant = m.tenant AND c.id = m.conversation_id AND c.deleted_at IS NULL
 WHERE m.tenant = :tenant AND m.id = :message AND m.role = 'user';

-- name: context_window
SELECT seq, role, content_type, content::text AS content, structured_data::text AS structured, created_at FROM (
    SELECT seq, trigger_seq, role, content_type, content, structured_data, created_at FROM messages
     WHERE tenant = :tenant AND conversation_id = :conversation AND seq <= :until AND trigger_seq < :trigger
       AND content_type IN ('text', 'briefing_card')
     ORDER BY seq DESC LIMIT :limit) AS newest
 ORDER BY trigger_seq, seq;

-- name: steps_of_turn
SELECT seq, role, content_type, content::text AS content, structured_data::text AS structured, created_at
  FROM messages
 WHERE tenant = :tenant AND turn_id = :turn AND content_type IN ('tool_call', 'tool_result') ORDER BY seq;
