-- name: enter
SELECT api.enter(:tenant, :user);

-- name: accept_message
SELECT * FROM api.accept_message(:tenant, :user, :named, :handle, :create, :conversation, :session, :message, :turn,
                                 :agent, :content, :route, :key, :hash, :conversation_limit, :user_limit);

-- name: meet_user!
INSERT INTO users (tenant, id, name, email) VALUES (:tenant, :user, :name, :email)
ON CONFLICT (tenant, id) DO UPDATE SET name = coalesce(excluded.name, users.name),
                                       email = coalesce(excluded.email, users.email)
WHERE (users.name, users.email) IS DISTINCT FROM (coalesce(excluded.name, users.name),
                                                  coalesce(excluded.email, users.email));
