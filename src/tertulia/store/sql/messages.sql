-- name: message_by_id
SELECT m.id, m.conversation_id, m.session_id, m.content::text AS content, m.created_at FROM messages m
  JOIN conversations c ON c.tenant = m.tenant AND c.id = m.conversation_id AND c.deleted_at IS NULL
 WHERE m.tenant = :tenant AND m.id = :message AND m.role = 'user';

-- name: context_window
SELECT seq, role, content_type, content::text AS content, structured_data::text AS structured, created_at,
       CASE WHEN role = 'assistant' THEN (
            SELECT jsonb_agg(jsonb_build_object('call', made.content, 'result', got.content ->> 'result')
                             ORDER BY made.seq)::text
              FROM messages made JOIN messages got ON got.tenant = made.tenant AND got.turn_id = made.turn_id
                                   AND got.content_type = 'tool_result'
                                   AND got.content -> 'id' = made.content -> 'id'
             WHERE made.tenant = :tenant AND made.turn_id = newest.turn_id AND made.content_type = 'tool_call')
       END AS tools
  FROM (
    -- The newest by question, then by place. Whoever is among them stands behind the oldest question of the newest.
    SELECT seq, trigger_seq, role, content_type, content, structured_data, created_at, turn_id FROM messages
     WHERE tenant = :tenant AND conversation_id = :conversation AND seq <= :until AND trigger_seq < :trigger
       AND content_type IN ('text', 'briefing_card')
       AND seq >= (SELECT min(trigger_seq) FROM (
            SELECT trigger_seq FROM messages
             WHERE tenant = :tenant AND conversation_id = :conversation AND seq <= :until AND trigger_seq < :trigger
               AND content_type IN ('text', 'briefing_card')
             ORDER BY seq DESC LIMIT :limit) AS last)
     ORDER BY trigger_seq DESC, seq DESC LIMIT :limit) AS newest
 ORDER BY trigger_seq, seq;

-- name: steps_of_turn
SELECT seq, role, content_type, content::text AS content, structured_data::text AS structured, created_at,
       NULL AS tools
  FROM messages
 WHERE tenant = :tenant AND turn_id = :turn AND content_type IN ('tool_call', 'tool_result') ORDER BY seq;
