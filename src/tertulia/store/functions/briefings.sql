-- Briefings: written by agents and admins for somebody else, read by that user.

-- A briefing for a user of one's own tenant, once per key. Who may post is said by the role in the settings, and an
-- agent speaks for itself only.
CREATE FUNCTION api.post_briefing(
    p_id uuid, p_agent text, p_default_agent text, p_to_user text, p_title text, p_summary text, p_priority text,
    p_type text, p_impact text, p_actions jsonb, p_context jsonb, p_importance double precision, p_dedupe text,
    OUT outcome text, OUT id uuid, OUT created_at timestamptz
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    own_tenant text := nullif(current_setting('tertulia.tenant', true), '');
    own_user text := nullif(current_setting('tertulia.user', true), '');
    own_role text := current_setting('tertulia.role', true);
BEGIN
    IF own_tenant IS NULL OR own_user IS NULL OR own_role IS NULL OR own_role NOT IN ('agent', 'admin')
       OR (own_role = 'agent' AND p_agent <> own_user) THEN
        outcome := 'forbidden';
        RETURN;
    END IF;
    IF p_agent <> p_default_agent
       AND NOT EXISTS (SELECT FROM agents a WHERE a.id = p_agent AND a.tenant IN (own_tenant, '')) THEN
        outcome := 'no_agent';
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM users u WHERE u.tenant = own_tenant AND u.id = p_to_user) THEN
        outcome := 'no_user';
        RETURN;
    END IF;
    INSERT INTO briefings (tenant, id, user_id, agent_id, posted_by, title, summary, priority, briefing_type, impact,
                           actions, context_data, importance_score, dedupe_key)
    VALUES (own_tenant, p_id, p_to_user, p_agent, own_user, p_title, p_summary, p_priority, p_type, p_impact,
            p_actions, p_context, p_importance, p_dedupe)
    ON CONFLICT (dedupe_key, user_id, agent_id, tenant) DO NOTHING
    RETURNING briefings.id, briefings.created_at INTO id, created_at;
    IF FOUND THEN
        outcome := 'posted';
        RETURN;
    END IF;
    outcome := 'repeated';
    SELECT b.id, b.created_at INTO id, created_at FROM briefings b
     WHERE b.tenant = own_tenant AND b.user_id = p_to_user AND b.agent_id = p_agent AND b.dedupe_key = p_dedupe;
END
$$;

-- The agents of every tenant, exactly as the server's file has them.
CREATE FUNCTION api.declare_agents(p_agents jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    DELETE FROM agents a WHERE a.tenant = '' AND NOT EXISTS (
        SELECT FROM jsonb_array_elements(p_agents) AS each WHERE each ->> 'id' = a.id);
    INSERT INTO agents (tenant, id, display_name, kind, prompt, model, context_window, context_tokens, strategy)
    SELECT '', r.id, r.display_name, r.kind, r.prompt, r.model, r.context_window, r.context_tokens, r.strategy
      FROM jsonb_populate_recordset(NULL::agents, p_agents) AS r ORDER BY r.id
    ON CONFLICT (tenant, id) DO UPDATE
       SET display_name = excluded.display_name, kind = excluded.kind, prompt = excluded.prompt,
           model = excluded.model, context_window = excluded.context_window,
           context_tokens = excluded.context_tokens, strategy = excluded.strategy, updated_at = now();
END
$$;
