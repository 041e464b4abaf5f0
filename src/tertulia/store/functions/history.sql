-- Reading a conversation: each call enters as its user and reads in one round trip.

CREATE FUNCTION api.read_conversation(p_tenant text, p_user text, p_conversation uuid)
RETURNS SETOF conversations LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true);
    RETURN QUERY SELECT * FROM conversations c
                  WHERE c.tenant = p_tenant AND c.id = p_conversation AND c.deleted_at IS NULL;
END
$$;

-- The newest messages before a place in the log, newest first; or the first ones after it, oldest first.
CREATE FUNCTION api.read_page(p_tenant text, p_user text, p_conversation uuid, p_before bigint, p_after bigint,
                              p_limit integer, p_kinds text[])
RETURNS TABLE (id uuid, seq bigint, role message_role, content_type message_kind, content text,
               created_at timestamptz, turn_id uuid, agent_id text, structured text, actions text, briefing_id uuid) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true);
    IF p_after IS NULL THEN
        RETURN QUERY SELECT m.id, m.seq, m.role, m.content_type, m.content::text, m.created_at, m.turn_id, m.agent_id,
                            m.structured_data::text, m.actions::text, m.briefing_id
                       FROM messages m WHERE m.tenant = p_tenant AND m.conversation_id = p_conversation
                                         AND m.seq < p_before AND m.content_type = ANY(p_kinds)
                      ORDER BY m.seq DESC LIMIT p_limit;
    ELSE
        RETURN QUERY SELECT m.id, m.seq, m.role, m.content_type, m.content::text, m.created_at, m.turn_id, m.agent_id,
                            m.structured_data::text, m.actions::text, m.briefing_id
                       FROM messages m WHERE m.tenant = p_tenant AND m.conversation_id = p_conversation
                                         AND m.seq > p_after AND m.content_type = ANY(p_kinds)
                      ORDER BY m.seq LIMIT p_limit;
    END IF;
END
$$;

CREATE FUNCTION api.read_turns(p_tenant text, p_user text, p_messages uuid[])
RETURNS TABLE (id uuid, message_id uuid, agent_id text, status turn_status, attempt integer,
               created_at timestamptz, code text, error text, partial text, ended_at timestamptz) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true);
    RETURN QUERY SELECT t.id, t.message_id, t.agent_id, t.status, t.attempt, t.created_at, t.code, t.error, t.partial,
                        t.ended_at
                   FROM turns t WHERE t.tenant = p_tenant AND t.message_id = ANY(p_messages)
                  ORDER BY t.trigger_seq, t.id;
END
$$;
