-- name: may_notify
SELECT api.may_notify(:user, :id, :hourly) AS may;

-- name: send_notification!
-- A conflict target would ask for the right to read the row, which only its receiver has.
INSERT INTO notifications (tenant, id, from_user_id, to_user_id, message)
VALUES (:tenant, :id, :from_user, :to_user, :message) ON CONFLICT DO NOTHING;

-- name: notifications_page
SELECT id, from_user_id, to_user_id, message, created_at, read, read_at FROM notifications
 WHERE tenant = :tenant AND to_user_id = :user AND (NOT :unread OR NOT read)
   AND (created_at, id) < (CAST(:moment AS timestamptz), CAST(:before AS uuid))
 ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: mark_notification_read
UPDATE notifications SET read = true, read_at = coalesce(read_at, clock_timestamp())
 WHERE tenant = :tenant AND to_user_id = :user AND id = :id
RETURNING id, from_user_id, to_user_id, message, created_at, read, read_at;
