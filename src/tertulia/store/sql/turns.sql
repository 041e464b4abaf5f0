-- name: take_turn
SELECT * FROM api.take_turn(:tenant, :user, :conversation, :owner, :lease);

-- name: record_step
SELECT api.record_step(:tenant, :user, :conversation, :owner, :epoch, :turn, :message, :role, :content_type,
                       :content, :structured) AS seq;

-- name: keep_partial
SELECT api.keep_partial(:tenant, :user, :conversation, :owner, :epoch, :turn, :text) AS kept;

-- name: finish_turn
SELECT * FROM api.finish_turn(:tenant, :user, :conversation, :owner, :epoch, :turn, :status, :code, :error, :reply,
                              :content, :structured, :actions, :model, :usage, :trace, :terminal, :partial);

-- name: release_lease
SELECT api.release_lease(:tenant, :user, :conversation, :owner, :epoch);

-- name: request_abort
SELECT api.request_abort(:tenant, :user, :conversation, :turn) AS turn;

-- name: untold_end
SELECT * FROM api.untold_end(:tenant, :user, :turn);

-- name: retry_turn
SELECT * FROM api.retry_turn(:tenant, :user, :turn, :conversation_limit, :user_limit);

-- name: turns_of_message
SELECT t.id, t.agent_id, t.status, t.code, t.error, t.attempt, t.partial, t.model, t.usage::text, t.created_at,
       t.started_at, t.ended_at, r.id AS reply_id, r.content::text AS reply, r.structured_data::text AS structured,
       r.actions::text AS actions, r.created_at AS replied_at, t.message_id
  FROM turns t
  LEFT JOIN messages r ON r.tenant = t.tenant AND r.turn_id = t.id AND r.role = 'assistant' AND r.content_type = 'text'
 WHERE t.tenant = :tenant AND t.message_id = :message ORDER BY t.id;

-- name: turns_by_id
SELECT id, message_id, status, code, error, attempt, agent_id, partial, created_at, ended_at FROM turns
 WHERE tenant = :tenant AND id = ANY(:turns);

-- name: newest_turns
SELECT id, status, code, error, attempt, agent_id, message_id, partial, created_at, ended_at FROM turns
 WHERE tenant = :tenant AND message_id IN (
        SELECT m.id FROM messages m WHERE m.tenant = :tenant AND m.conversation_id = :conversation AND m.role = 'user'
         ORDER BY m.seq DESC LIMIT :limit)
 ORDER BY trigger_seq DESC, id DESC LIMIT :limit;
