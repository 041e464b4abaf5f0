-- name: enter
SELECT api.enter(:tenant, :user, :role);

-- name: accept_message
SELECT * FROM api.accept_message(:tenant, :user, :named, :handle, :create, :conversation, :session, :message, :turn,
                                 :agent, :default, :content, :route, :key, :hash, :conversation_limit, :user_limit, :lock_wait);

-- name: claim_key
SELECT * FROM api.claim_key(:tenant, :user, :route, :key, :hash);

-- name: known_key
SELECT EXISTS (SELECT FROM idempotency
                WHERE tenant = :tenant AND user_id = :user AND route = :route AND key = :key) AS known;

-- name: keep_answer
SELECT api.keep_answer(:tenant, :user, :route, :key, :answer);

-- name: meet_user!
INSERT INTO users (tenant, id, name, email, timezone) VALUES (:tenant, :user, :name, :email, :timezone)
ON CONFLICT (tenant, id) DO UPDATE SET name = coalesce(excluded.name, users.name),
                                       email = coalesce(excluded.email, users.email),
                                       timezone = coalesce(excluded.timezone, users.timezone)
WHERE (users.name, users.email, users.timezone) IS DISTINCT FROM (
    coalesce(excluded.name, users.name), coalesce(excluded.email, users.email),
    coalesce(excluded.timezone, users.timezone));
