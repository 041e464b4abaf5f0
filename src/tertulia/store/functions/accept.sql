-- Accepting a message: conversation, message, turn and idempotency key in one transaction and one round trip.

CREATE FUNCTION api.enter(p_tenant text, p_user text, p_role text) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true),
           set_config('tertulia.role', p_role, true)
$$;

-- The first to come with a key goes on (`new`) and keeps its answer; whoever repeats it gets that answer. A repeat
-- that comes meanwhile waits for the first one's transaction.
CREATE FUNCTION api.claim_key(
    p_tenant text, p_user text, p_route text, p_key text, p_hash bytea, OUT state text, OUT answer jsonb
) LANGUAGE plpgsql AS $$
DECLARE
    stored record;
BEGIN
    INSERT INTO idempotency (tenant, user_id, route, key, body_hash, answer)
    VALUES (p_tenant, p_user, p_route, p_key, p_hash, '{}') ON CONFLICT DO NOTHING;
    IF FOUND THEN
        state := 'new';
        RETURN;
    END IF;
    SELECT i.body_hash, i.answer INTO stored FROM idempotency i
     WHERE i.tenant = p_tenant AND i.user_id = p_user AND i.route = p_route AND i.key = p_key;
    state := CASE WHEN stored.body_hash = p_hash THEN 'repeated' ELSE 'conflict' END;
    answer := stored.answer;
END
$$;

CREATE FUNCTION api.keep_answer(p_tenant text, p_user text, p_route text, p_key text, p_answer jsonb) RETURNS void
LANGUAGE sql AS $$
    UPDATE idempotency SET answer = p_answer
     WHERE tenant = p_tenant AND user_id = p_user AND route = p_route AND key = p_key
$$;

-- Whether this user has so many turns that have not ended; never where there is no limit (0).
CREATE FUNCTION api.has_open_turns(p_tenant text, p_user text, p_limit integer) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN p_limit > 0 AND EXISTS (
        SELECT FROM turns WHERE tenant = p_tenant AND user_id = p_user AND status IN ('queued', 'running', 'waiting')
        OFFSET p_limit - 1 LIMIT 1);
END
$$;

CREATE FUNCTION api.is_agent(p_tenant text, p_agent text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM agents a WHERE a.id = p_agent AND a.tenant IN (p_tenant, ''));
END
$$;

-- The conversation by its id or by its handle, made when it is new, with room for one more message in it; many may
-- come at once. What is refused has written nothing.
CREATE FUNCTION api.enter_conversation(
    p_tenant text, p_user text, p_named uuid, p_handle text, p_create boolean, p_conversation uuid, p_session text,
    p_limit integer,
    OUT outcome text, OUT conversation uuid, OUT handle text, OUT seq bigint, OUT agent text
) LANGUAGE plpgsql AS $$
BEGIN
    IF p_named IS NOT NULL THEN
        UPDATE conversations c
           SET last_seq = c.last_seq + 1, open_turns = c.open_turns + 1,
               last_message_at = clock_timestamp(), updated_at = clock_timestamp()
         WHERE c.tenant = p_tenant AND c.id = p_named AND c.deleted_at IS NULL AND c.open_turns < p_limit
        RETURNING c.id, coalesce(c.external_key, c.id::text), c.last_seq, c.agent_id
          INTO conversation, handle, seq, agent;
        IF FOUND THEN
            RETURN;
        END IF;
        PERFORM FROM conversations c WHERE c.tenant = p_tenant AND c.id = p_named AND c.deleted_at IS NULL;
        IF FOUND THEN
            outcome := 'conversation_busy';
            RETURN;
        END IF;
    END IF;
    IF NOT p_create THEN
        outcome := 'not_found';
        RETURN;
    END IF;
    LOOP
        UPDATE conversations c
           SET last_seq = c.last_seq + 1, open_turns = c.open_turns + 1,
               last_message_at = clock_timestamp(), updated_at = clock_timestamp()
         WHERE c.tenant = p_tenant AND c.user_id = p_user AND c.external_key = p_handle AND c.deleted_at IS NULL
           AND c.open_turns < p_limit
        RETURNING c.id, c.external_key, c.last_seq, c.agent_id INTO conversation, handle, seq, agent;
        EXIT WHEN FOUND;
        PERFORM FROM conversations c
          WHERE c.tenant = p_tenant AND c.user_id = p_user AND c.external_key = p_handle AND c.deleted_at IS NULL
            AND c.open_turns >= p_limit;
        IF FOUND THEN
            outcome := 'conversation_busy';
            RETURN;
        END IF;
        INSERT INTO conversations (tenant, id, user_id, external_key, session_id, last_seq, open_turns, last_message_at)
        VALUES (p_tenant, p_conversation, p_user, p_handle, p_session, 1, 1, clock_timestamp())
        ON CONFLICT (external_key, user_id, tenant) WHERE deleted_at IS NULL DO NOTHING
        RETURNING id, coalesce(external_key, id::text), last_seq, NULL INTO conversation, handle, seq, agent;
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
    p_message uuid, p_turn uuid,
    p_agent text,                -- who is asked; else the conversation's own agent, else the default one
    p_default text, p_content jsonb,
    p_route text, p_key text, p_hash bytea,
    p_conversation_limit integer, p_user_limit integer,
    p_lock_wait text,            -- how long a lock may be waited for; null: as long as a statement may take
    OUT outcome text, OUT conversation uuid, OUT handle text, OUT message uuid, OUT turn uuid, OUT seq bigint
) LANGUAGE plpgsql AS $$
DECLARE
    claimed record;
    agent text;
BEGIN
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true);
    IF p_lock_wait IS NOT NULL THEN
        PERFORM set_config('lock_timeout', p_lock_wait, true);
    END IF;
    message := p_message;
    turn := p_turn;

    IF p_key IS NOT NULL THEN
        SELECT * INTO claimed FROM api.claim_key(p_tenant, p_user, p_route, p_key, p_hash);
        IF claimed.state <> 'new' THEN
            outcome := claimed.state;
            conversation := claimed.answer ->> 'conversation';
            handle := claimed.answer ->> 'handle';
            message := claimed.answer ->> 'message';
            turn := claimed.answer ->> 'turn';
            seq := claimed.answer ->> 'seq';
            RETURN;
        END IF;
    END IF;

    IF api.has_open_turns(p_tenant, p_user, p_user_limit) THEN
        outcome := 'user_busy';
    ELSIF p_agent <> p_default AND NOT api.is_agent(p_tenant, p_agent) THEN
        outcome := 'no_agent';
    ELSE
        SELECT o.outcome, o.conversation, o.handle, o.seq, o.agent INTO outcome, conversation, handle, seq, agent
          FROM api.enter_conversation(
                   p_tenant, p_user, p_named, p_handle, p_create, p_conversation, p_session, p_conversation_limit) o;
        agent := coalesce(p_agent, agent, p_default);
        IF outcome IS NULL AND p_agent IS NULL AND agent <> p_default AND NOT api.is_agent(p_tenant, agent) THEN
            RAISE EXCEPTION USING ERRCODE = 'TT001', MESSAGE = 'no_agent';  -- undo what has been written
        END IF;
    END IF;
    IF outcome IS NOT NULL THEN
        IF p_key IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'TT001', MESSAGE = outcome;  -- give the key back
        END IF;
        RETURN;
    END IF;

    INSERT INTO messages (tenant, id, conversation_id, seq, trigger_seq, user_id, session_id, role, content_type,
                          content)
    VALUES (p_tenant, p_message, conversation, seq, seq, p_user, handle, 'user', 'text', p_content);
    INSERT INTO turns (tenant, id, conversation_id, message_id, trigger_seq, user_id, agent_id)
    VALUES (p_tenant, p_turn, conversation, p_message, seq, p_user, agent);

    IF p_key IS NOT NULL THEN
        PERFORM api.keep_answer(p_tenant, p_user, p_route, p_key, jsonb_build_object(
            'conversation', conversation, 'handle', handle, 'message', message, 'turn', turn, 'seq', seq));
    END IF;
    outcome := 'accepted';
END
$$;
