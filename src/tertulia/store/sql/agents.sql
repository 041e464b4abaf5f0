-- name: agents_known
SELECT DISTINCT ON (id) to_jsonb(a)::text AS profile FROM agents a ORDER BY id, tenant DESC;

-- name: agent_by_id
SELECT to_jsonb(a)::text AS profile FROM agents a WHERE id = :id ORDER BY tenant DESC LIMIT 1;

-- name: add_agent
INSERT INTO agents (tenant, id, display_name, kind, prompt, model, context_window, context_tokens, strategy)
VALUES (:tenant, :id, :display_name, :kind, :prompt, :model, :window, :context_tokens, :strategy)
ON CONFLICT (tenant, id) DO NOTHING RETURNING id;

-- name: change_agent
UPDATE agents SET display_name = :display_name, kind = :kind, prompt = :prompt, model = :model,
                  context_window = :window, context_tokens = :context_tokens, strategy = :strategy, updated_at = now()
 WHERE tenant = :tenant AND id = :id RETURNING id;

-- name: remove_agent
DELETE FROM agents WHERE tenant = :tenant AND id = :id RETURNING id;

-- name: declare_agents
SELECT api.declare_agents(:agents);
