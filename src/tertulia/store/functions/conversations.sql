-- The standing conversation of a user with an agent, and what becomes a card in it.

-- Looked up first, and made only if it is not there; of many who come at once, one makes it and all get it.
CREATE FUNCTION api.open_standing(
    p_tenant text, p_user text, p_agent text, p_conversation uuid, p_session text,
    OUT conversation uuid, OUT created boolean
) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true);
    created := false;
    LOOP
        SELECT c.id INTO conversation FROM conversations c
         WHERE c.tenant = p_tenant AND c.user_id = p_user AND c.agent_id = p_agent AND c.deleted_at IS NULL;
        EXIT WHEN FOUND;
        INSERT INTO conversations (tenant, id, user_id, agent_id, session_id)
        VALUES (p_tenant, p_conversation, p_user, p_agent, p_session)
        ON CONFLICT (user_id, tenant, agent_id) WHERE deleted_at IS NULL DO NOTHING
        RETURNING id, true INTO conversation, created;
        EXIT WHEN FOUND;
    END LOOP;
END
$$;

-- A new conversation, or the one that has this handle already.
CREATE FUNCTION api.open_handle(
    p_tenant text, p_user text, p_handle text, p_title text, p_conversation uuid, p_session text,
    OUT conversation uuid, OUT created boolean
) LANGUAGE plpgsql AS $$
BEGIN
    created := false;
    LOOP
        INSERT INTO conversations (tenant, id, user_id, external_key, title, session_id)
        VALUES (p_tenant, p_conversation, p_user, p_handle, p_title, p_session)
        ON CONFLICT (external_key, user_id, tenant) WHERE deleted_at IS NULL DO NOTHING
        RETURNING id, true INTO conversation, created;
        EXIT WHEN FOUND;
        SELECT c.id INTO conversation FROM conversations c
         WHERE c.tenant = p_tenant AND c.user_id = p_user AND c.external_key = p_handle AND c.deleted_at IS NULL;
        EXIT WHEN FOUND;
    END LOOP;
END
$$;

-- Go from a briefing into the standing conversation with its agent. The briefing's row is locked, so that it becomes
-- a card once, however often and from wherever it is clicked.
CREATE FUNCTION api.start_conversation(
    p_tenant text, p_user text, p_briefing uuid, p_conversation uuid, p_session text, p_message uuid,
    OUT outcome text, OUT conversation uuid, OUT message uuid, OUT seq bigint, OUT added boolean
) LANGUAGE plpgsql AS $$
DECLARE
    told briefings;
BEGIN
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true);
    added := false;
    SELECT * INTO told FROM briefings b WHERE b.tenant = p_tenant AND b.id = p_briefing FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'not_found';
        RETURN;
    END IF;
    LOOP  -- it may be deleted between being found and being locked
        SELECT s.conversation INTO conversation
          FROM api.open_standing(p_tenant, p_user, told.agent_id, p_conversation, p_session) s;
        PERFORM FROM conversations c
          WHERE c.tenant = p_tenant AND c.id = conversation AND c.deleted_at IS NULL FOR UPDATE;
        EXIT WHEN FOUND;
    END LOOP;
    SELECT m.id, m.seq INTO message, seq FROM messages m
     WHERE m.tenant = p_tenant AND m.briefing_id = p_briefing AND m.conversation_id = conversation;
    IF NOT FOUND THEN
        UPDATE conversations c
           SET last_seq = c.last_seq + 1, context_tail = c.last_seq + 1, card_seq = c.last_seq + 1,
               last_message_at = clock_timestamp(), updated_at = clock_timestamp()
         WHERE c.tenant = p_tenant AND c.id = conversation RETURNING c.last_seq INTO seq;
        INSERT INTO messages (tenant, id, conversation_id, seq, trigger_seq, user_id, session_id, agent_id, role,
                              content_type, content, briefing_id)
        VALUES (p_tenant, p_message, conversation, seq, seq, p_user, conversation::text, told.agent_id, 'system',
                'briefing_card', jsonb_build_object(
                    'title', told.title, 'summary', told.summary, 'priority', told.priority,
                    'created_at', told.created_at, 'briefing_type', told.briefing_type, 'impact', told.impact),
                p_briefing);
        INSERT INTO unindexed (tenant, user_id, message_id) VALUES (p_tenant, p_user, p_message);
        message := p_message;
        added := true;
    END IF;
    UPDATE briefings b
       SET status = 'actioned', conversation_id = conversation, read_at = coalesce(b.read_at, clock_timestamp()),
           updated_at = clock_timestamp()
     WHERE b.tenant = p_tenant AND b.id = p_briefing;
    outcome := 'started';
END
$$;
