-- name: post_briefing
SELECT * FROM api.post_briefing(:id, :agent, :default_agent, :to_user, :title, :summary, :priority, :type, :impact,
                                :actions, :context, :importance, :dedupe);

-- name: briefings_page
SELECT * FROM briefings
 WHERE tenant = :tenant AND user_id = :user AND (CAST(:status AS text) IS NULL OR status = :status)
   AND (created_at, id) < (CAST(:moment AS timestamptz), CAST(:before AS uuid))
 ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: briefing_by_id
SELECT * FROM briefings WHERE tenant = :tenant AND user_id = :user AND id = :id;

-- name: read_briefing
UPDATE briefings SET status = CASE WHEN status = 'new' THEN 'read' ELSE status END,
                     read_at = coalesce(read_at, clock_timestamp()), updated_at = clock_timestamp()
 WHERE tenant = :tenant AND user_id = :user AND id = :id RETURNING *;

-- name: settle_briefing
UPDATE briefings SET status = :status, read_at = coalesce(read_at, clock_timestamp()), updated_at = clock_timestamp()
 WHERE tenant = :tenant AND user_id = :user AND id = :id RETURNING *;

-- name: delete_briefing
DELETE FROM briefings WHERE tenant = :tenant AND user_id = :user AND id = :id RETURNING *;

-- name: start_conversation
SELECT * FROM api.start_conversation(:tenant, :user, :briefing, :conversation, :session, :message);
