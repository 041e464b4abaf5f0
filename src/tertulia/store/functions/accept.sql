-- Accepting a message: conversation, message, turn and idempotency key in one transaction and one round trip.

CREATE FUNCTION api.enter(p_tenant text, p_user text) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true)
$$;

-- The conversation of this handle, made when it is new, with one more message in it. Many may come at once.
CREATE FUNCTION api.enter_conversation(
    p_tenant text, p_user text, p_handle text, p_conversation uuid, p_session text, p_limit integer,
    OUT conversation uuid, OUT handle text, OUT seq bigint, OUT busy boolean
) LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        UPDATE conversations c
           SET last_seq = c.last_seq + 1, open_turns = c.open_turns + 1,
               last_message_at = clock_timestamp(), updated_at = clock_timestamp()
         WHERE c.tenant = p_tenant AND c.user_id = p_user AND c.external_key = p_handle AND c.deleted_at IS NULL
        RETURNING c.id, c.external_key, c.last_seq, c.open_turns > p_limit INTO conversation, handle, seq, busy;
        EXIT WHEN FOUND;
        INSERT INTO conversations (tenant, id, user_id, external_key, session_id, last_seq, open_turns, last_message_at)
        VALUES (p_tenant, p_conversation, p_user, p_handle, p_session, 1, 1, clock_timestamp())
        ON CONFLICT (external_key, user_id, tenant) WHERE deleted_at IS NULL DO NOTHING
        RETURNING id, coalesce(external_key, id::text), last_seq, false INTO conversation, handle, seq, busy;
        EXIT WHEN FOUND;
    END LOOP;
END
$$;

CREATE FUNCTION api.accept_message(
    p_tenant text, p_user text,
    p_named uuid,                -- the conversation, when the client named one by id
    p_handle text,               -- the client's own handle, or null
    p_create boolean,            -- whether an unknown conversation is made
    p_conversation uuid, p_session text,  -- for a conversation that has to be made
    p_message uuid, p_turn uuid, p_agent text, p_content jsonb,
    p_route text, p_key text, p_hash bytea,
    p_conversation_limit integer, p_user_limit integer,
    OUT outcome text, OUT conversation uuid, OUT handle text, OUT message uuid, OUT turn uuid, OUT seq bigint
) LANGUAGE plpgsql AS $$
DECLARE
    stored record;
    busy boolean := false;
BEGIN
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true);
    message := p_message;
    turn := p_turn;

    IF p_key IS NOT NULL THEN
        INSERT INTO idempotency (tenant, user_id, route, key, body_hash, answer)
        VALUES (p_tenant, p_user, p_route, p_key, p_hash, '{}') ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            SELECT body_hash, answer INTO stored FROM idempotency
             WHERE tenant = p_tenant AND user_id = p_user AND route = p_route AND key = p_key;
            IF stored.body_hash <> p_hash THEN
                outcome := 'key_conflict';
                RETURN;
            END IF;
            outcome := 'repeated';
            conversation := stored.answer ->> 'conversation';
            handle := stored.answer ->> 'handle';
            message := stored.answer ->> 'message';
            turn := stored.answer ->> 'turn';
            seq := stored.answer ->> 'seq';
            RETURN;
        END IF;
    END IF;

    IF p_user_limit > 0 AND EXISTS (
        SELECT FROM turns WHERE tenant = p_tenant AND user_id = p_user AND status IN ('queued', 'running', 'waiting')
        OFFSET p_user_limit - 1 LIMIT 1
    ) THEN
        outcome := 'user_busy';
    END IF;

    IF outcome IS NULL AND p_named IS NOT NULL THEN
        UPDATE conversations c
           SET last_seq = c.last_seq + 1, open_turns = c.open_turns + 1,
               last_message_at = clock_timestamp(), updated_at = clock_timestamp()
         WHERE c.tenant = p_tenant AND c.id = p_named AND c.deleted_at IS NULL
        RETURNING c.id, coalesce(c.external_key, c.id::text), c.last_seq, c.open_turns > p_conversation_limit
          INTO conversation, handle, seq, busy;
    END IF;
    IF outcome IS NULL AND conversation IS NULL AND p_create AND p_handle IS NOT NULL THEN
        UPDATE conversations c
           SET last_seq = c.last_seq + 1, open_turns = c.open_turns + 1,
               last_message_at = clock_timestamp(), updated_at = clock_timestamp()
         WHERE c.tenant = p_tenant AND c.user_id = p_user AND c.external_key = p_handle AND c.deleted_at IS NULL
        RETURNING c.id, c.external_key, c.last_seq, c.open_turns > p_conversation_limit
          INTO conversation, handle, seq, busy;
    END IF;
    IF outcome IS NULL AND conversation IS NULL AND p_create THEN
        SELECT o.conversation, o.handle, o.seq, o.busy INTO conversation, handle, seq, busy
          FROM api.enter_conversation(p_tenant, p_user, p_handle, p_conversation, p_session, p_conversation_limit) o;
    END IF;
    outcome := coalesce(outcome, CASE WHEN conversation IS NULL THEN 'not_found' WHEN busy THEN 'conversation_busy' END);
    IF outcome IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'TT001', MESSAGE = outcome;  -- undo everything
    END IF;

    INSERT INTO messages (tenant, id, conversation_id, seq, trigger_seq, user_id, session_id, role, content_type,
                          content)
    VALUES (p_tenant, p_message, conversation, seq, seq, p_user, handle, 'user', 'text', p_content);
    INSERT INTO turns (tenant, id, conversation_id, message_id, trigger_seq, user_id, agent_id)
    VALUES (p_tenant, p_turn, conversation, p_message, seq, p_user, p_agent);

    IF p_key IS NOT NULL THEN
        UPDATE idempotency SET answer = jsonb_build_object(
            'conversation', conversation, 'handle', handle, 'message', message, 'turn', turn, 'seq', seq)
         WHERE tenant = p_tenant AND user_id = p_user AND route = p_route AND key = p_key;
    END IF;
    outcome := 'accepted';
END
$$;
