-- The life of a turn: taken under a lease, recorded step by step, ended once. Every write asks for the lease.

CREATE FUNCTION api.holds_lease(p_tenant text, p_conversation uuid, p_owner uuid, p_epoch bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM conversations
      WHERE tenant = p_tenant AND id = p_conversation AND lease_owner = p_owner AND lease_epoch = p_epoch
        FOR UPDATE;
    RETURN FOUND;
END
$$;

CREATE FUNCTION api.take_turn(
    p_tenant text, p_user text, p_conversation uuid, p_owner uuid, p_lease interval,
    OUT outcome text, OUT epoch bigint, OUT turn uuid, OUT message uuid, OUT trigger_seq bigint, OUT agent_id text,
    OUT attempt integer, OUT tries integer, OUT context_until bigint, OUT context_tail bigint, OUT handle text,
    OUT content text, OUT said_at timestamptz, OUT queued_at timestamptz, OUT aborting boolean, OUT partial text,
    OUT card_seq bigint, OUT timezone text, OUT profile text
) LANGUAGE plpgsql AS $$
BEGIN
    -- Waits for the disk: of an attempt that a crash of the database forgot, people would have heard, and the next
    -- one would go by the same number and the same epoch.
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true);
    UPDATE conversations c
       SET lease_owner = p_owner, lease_until = clock_timestamp() + p_lease, lease_epoch = c.lease_epoch + 1
     WHERE c.tenant = p_tenant AND c.id = p_conversation
       AND (c.lease_until IS NULL OR c.lease_until < clock_timestamp() OR c.lease_owner = p_owner)
    RETURNING c.lease_epoch, c.context_tail, c.last_seq, coalesce(c.external_key, c.id::text), c.card_seq
      INTO epoch, context_tail, context_until, handle, card_seq;
    IF NOT FOUND THEN
        outcome := CASE WHEN EXISTS (SELECT FROM conversations c WHERE c.tenant = p_tenant AND c.id = p_conversation)
                        THEN 'held' ELSE 'gone' END;
        RETURN;
    END IF;

    UPDATE turns t
       SET status = 'running', attempt = t.attempt + 1, tries = t.tries + 1,
           started_at = coalesce(t.started_at, clock_timestamp()),
           context_until = coalesce(t.context_until, take_turn.context_until)
      FROM (SELECT o.id, o.created_at FROM turns o
             WHERE o.tenant = p_tenant AND o.user_id = p_user AND o.conversation_id = p_conversation
               AND o.status IN ('queued', 'running', 'waiting')
             ORDER BY o.trigger_seq, o.id LIMIT 1) AS first,
           messages m
     WHERE t.tenant = p_tenant AND t.id = first.id AND t.status IN ('queued', 'running')
       AND m.tenant = p_tenant AND m.id = t.message_id
    RETURNING t.id, t.message_id, t.trigger_seq, t.agent_id, t.attempt, t.tries, t.context_until,
              m.content::text, m.created_at, CASE WHEN t.attempt = 1 THEN t.created_at ELSE t.woken_at END,
              t.abort_requested, t.partial
      INTO turn, message, trigger_seq, agent_id, attempt, tries, context_until,
           content, said_at, queued_at, aborting, partial;
    IF FOUND THEN
        outcome := 'taken';
        SELECT u.timezone INTO timezone FROM users u WHERE u.tenant = p_tenant AND u.id = p_user;
        -- A tenant's own agent goes before one of the whole server that has the same name.
        SELECT to_jsonb(a)::text INTO profile FROM agents a
         WHERE a.id = agent_id AND a.tenant IN (p_tenant, '') ORDER BY a.tenant DESC LIMIT 1;
    ELSE
        outcome := 'nothing';
        PERFORM set_config('synchronous_commit', 'off', true);  -- nothing began, so nothing can be forgotten
        UPDATE conversations c SET lease_owner = NULL, lease_until = NULL
         WHERE c.tenant = p_tenant AND c.id = p_conversation;
    END IF;
END
$$;

CREATE FUNCTION api.record_step(
    p_tenant text, p_user text, p_conversation uuid, p_owner uuid, p_epoch bigint, p_turn uuid,
    p_message uuid, p_role text, p_content_type text, p_content jsonb, p_structured jsonb
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    step_seq bigint;
BEGIN
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true);
    IF NOT api.holds_lease(p_tenant, p_conversation, p_owner, p_epoch) THEN
        RETURN NULL;
    END IF;
    UPDATE conversations SET last_seq = last_seq + 1
     WHERE tenant = p_tenant AND id = p_conversation RETURNING last_seq INTO step_seq;
    INSERT INTO messages (tenant, id, conversation_id, seq, trigger_seq, user_id, session_id, turn_id, agent_id, role,
                          content_type, content, structured_data)
    SELECT p_tenant, p_message, p_conversation, step_seq, t.trigger_seq, p_user, m.session_id, t.id, t.agent_id,
           p_role, p_content_type, p_content, p_structured
      FROM turns t JOIN messages m ON m.tenant = t.tenant AND m.id = t.message_id
     WHERE t.tenant = p_tenant AND t.id = p_turn;
    RETURN step_seq;
END
$$;

CREATE FUNCTION api.keep_partial(
    p_tenant text, p_user text, p_conversation uuid, p_owner uuid, p_epoch bigint, p_turn uuid, p_text text
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true),
            set_config('synchronous_commit', 'off', true);
    IF NOT api.holds_lease(p_tenant, p_conversation, p_owner, p_epoch) THEN
        RETURN false;
    END IF;
    UPDATE turns SET partial = p_text WHERE tenant = p_tenant AND id = p_turn AND status = 'running';
    RETURN FOUND;
END
$$;

CREATE FUNCTION api.finish_turn(
    p_tenant text, p_user text, p_conversation uuid, p_owner uuid, p_epoch bigint, p_turn uuid,
    p_status text, p_code text, p_error text,
    p_reply uuid, p_content jsonb, p_structured jsonb, p_actions jsonb,
    p_model text, p_usage jsonb, p_trace jsonb, p_terminal jsonb, p_partial text,
    OUT outcome text, OUT seq bigint, OUT more boolean, OUT hidden boolean
) LANGUAGE plpgsql AS $$
DECLARE
    ended record;
BEGIN
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true);
    IF NOT api.holds_lease(p_tenant, p_conversation, p_owner, p_epoch) THEN
        -- Unless this very end is already written: then its acknowledgement got lost.
        outcome := CASE WHEN EXISTS (SELECT FROM turns t WHERE t.tenant = p_tenant AND t.id = p_turn
                                        AND t.status = p_status AND t.terminal = p_terminal)
                        THEN 'ended' ELSE 'stale' END;
        more := false;
        RETURN;
    END IF;
    UPDATE turns t
       SET status = p_status, code = p_code, error = p_error, reply_id = p_reply, model = p_model, usage = p_usage,
           trace = p_trace, terminal = p_terminal, ended_at = clock_timestamp(), partial = p_partial
     WHERE t.tenant = p_tenant AND t.id = p_turn AND t.status = 'running'
       AND (p_status = 'aborted' OR NOT t.abort_requested)
    RETURNING t.trigger_seq, t.agent_id, t.message_id INTO ended;
    IF NOT FOUND THEN
        -- An abort came first, and wins; or this very end is already written.
        outcome := CASE WHEN EXISTS (SELECT FROM turns t WHERE t.tenant = p_tenant AND t.id = p_turn
                                        AND t.status = p_status AND t.terminal = p_terminal)
                        THEN 'ended' ELSE 'aborting' END;
        more := true;
        RETURN;
    END IF;
    more := EXISTS (SELECT FROM turns o WHERE o.tenant = p_tenant AND o.user_id = p_user
                       AND o.conversation_id = p_conversation AND o.status IN ('queued', 'running') AND o.id <> p_turn);
    UPDATE conversations c
       SET last_seq = c.last_seq + (p_reply IS NOT NULL)::integer,
           context_tail = CASE WHEN p_reply IS NOT NULL THEN c.last_seq + 1
                               ELSE greatest(c.context_tail, ended.trigger_seq) END,
           open_turns = greatest(c.open_turns - 1, 0),
           last_message_at = CASE WHEN p_reply IS NULL THEN c.last_message_at ELSE clock_timestamp() END,
           updated_at = clock_timestamp(),
           lease_owner = CASE WHEN more THEN c.lease_owner END,
           lease_until = CASE WHEN more THEN c.lease_until END
     WHERE c.tenant = p_tenant AND c.id = p_conversation
    RETURNING c.last_seq, c.deleted_at IS NOT NULL INTO seq, hidden;
    IF p_reply IS NOT NULL THEN
        INSERT INTO messages (tenant, id, conversation_id, seq, trigger_seq, user_id, session_id, turn_id, agent_id,
                              role, content_type, content, structured_data, actions)
        SELECT p_tenant, p_reply, p_conversation, finish_turn.seq, ended.trigger_seq, p_user, m.session_id, p_turn,
               ended.agent_id, 'assistant', 'text', p_content, p_structured, p_actions
          FROM messages m WHERE m.tenant = p_tenant AND m.id = ended.message_id;
    END IF;
    INSERT INTO unindexed (tenant, user_id, message_id)
    SELECT p_tenant, p_user, said FROM unnest(ARRAY[ended.message_id, p_reply]) AS said WHERE said IS NOT NULL
    ON CONFLICT DO NOTHING;
    outcome := 'ended';
END
$$;

CREATE FUNCTION api.release_lease(p_tenant text, p_user text, p_conversation uuid, p_owner uuid, p_epoch bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true);
    -- A turn given back untouched does not count as a failed attempt.
    UPDATE turns SET status = 'queued', tries = greatest(tries - 1, 0)
     WHERE tenant = p_tenant AND user_id = p_user AND conversation_id = p_conversation AND status = 'running'
       AND api.holds_lease(p_tenant, p_conversation, p_owner, p_epoch);
    UPDATE conversations SET lease_owner = NULL, lease_until = NULL
     WHERE tenant = p_tenant AND id = p_conversation AND lease_owner = p_owner AND lease_epoch = p_epoch;
END
$$;

CREATE FUNCTION api.request_abort(p_tenant text, p_user text, p_conversation uuid, p_turn uuid) RETURNS SETOF uuid
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true);
    IF p_turn IS NOT NULL THEN
        RETURN QUERY UPDATE turns t SET abort_requested = true
         WHERE t.tenant = p_tenant AND t.id = p_turn AND t.conversation_id = p_conversation
           AND t.status IN ('queued', 'running', 'waiting')
        RETURNING t.id;
        RETURN;
    END IF;
    -- What is being answered now is stopped, else what would be next; messages that wait behind it are answered then.
    RETURN QUERY UPDATE turns t SET abort_requested = true
     WHERE t.tenant = p_tenant AND t.user_id = p_user AND t.conversation_id = p_conversation
       AND t.status IN ('queued', 'running', 'waiting')
       AND t.trigger_seq = (SELECT o.trigger_seq FROM turns o
                             WHERE o.tenant = p_tenant AND o.user_id = p_user AND o.conversation_id = p_conversation
                               AND o.status IN ('queued', 'running', 'waiting')
                             ORDER BY o.status <> 'running', o.trigger_seq LIMIT 1)
    RETURNING t.id;
END
$$;

-- Delete for all to see; what is being answered or waits is stopped. The conversation's row is locked first, so that a
-- message that is just being accepted is seen.
CREATE FUNCTION api.hide_conversation(
    p_tenant text, p_user text, p_conversation uuid, OUT hidden boolean, OUT stopped uuid[]
) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true);
    UPDATE conversations SET deleted_at = clock_timestamp()
     WHERE tenant = p_tenant AND id = p_conversation AND deleted_at IS NULL;
    hidden := FOUND;
    IF NOT hidden THEN
        RETURN;
    END IF;
    WITH asked AS (
        UPDATE turns t SET abort_requested = true
         WHERE t.tenant = p_tenant AND t.user_id = p_user AND t.conversation_id = p_conversation
           AND t.status IN ('queued', 'running', 'waiting') RETURNING t.id
    )
    SELECT coalesce(array_agg(id), '{}') INTO stopped FROM asked;
    INSERT INTO audit (tenant, user_id, action, subject)
    VALUES (p_tenant, p_user, 'conversation.deleted', p_conversation);
END
$$;

-- What a turn that has ended has not told yet, as far as is known.
CREATE FUNCTION api.untold_end(
    p_tenant text, p_user text, p_turn uuid,
    OUT conversation_id uuid, OUT attempt integer, OUT epoch bigint, OUT terminal text
) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true);
    SELECT t.conversation_id, t.attempt, c.lease_epoch, t.terminal::text
      INTO conversation_id, attempt, epoch, terminal
      FROM turns t JOIN conversations c ON c.tenant = t.tenant AND c.id = t.conversation_id
     WHERE t.tenant = p_tenant AND t.id = p_turn AND t.terminal IS NOT NULL;
END
$$;

CREATE FUNCTION api.retry_turn(
    p_tenant text, p_user text, p_turn uuid, p_conversation_limit integer, p_user_limit integer,
    OUT outcome text, OUT conversation uuid, OUT message uuid, OUT handle text
) LANGUAGE plpgsql AS $$
DECLARE
    state text;
    open_turns integer;
    taken_back integer;
BEGIN
    PERFORM set_config('tertulia.tenant', p_tenant, true), set_config('tertulia.user', p_user, true);
    SELECT c.id, coalesce(c.external_key, c.id::text), t.message_id, c.open_turns
      INTO conversation, handle, message, open_turns
      FROM turns t JOIN conversations c ON c.tenant = t.tenant AND c.id = t.conversation_id
     WHERE t.tenant = p_tenant AND t.id = p_turn AND c.deleted_at IS NULL FOR UPDATE OF c;
    IF NOT FOUND THEN
        outcome := 'not_found';
        RETURN;
    END IF;
    SELECT t.status INTO state FROM turns t WHERE t.tenant = p_tenant AND t.id = p_turn FOR UPDATE;
    IF state IN ('queued', 'running', 'waiting') THEN
        outcome := 'accepted';  -- it is already being tried again
        RETURN;
    ELSIF state NOT IN ('failed', 'aborted') THEN
        outcome := 'not_retryable';
        RETURN;
    END IF;
    outcome := CASE WHEN open_turns >= p_conversation_limit THEN 'conversation_busy'
                    WHEN api.has_open_turns(p_tenant, p_user, p_user_limit) THEN 'user_busy' END;
    IF outcome IS NOT NULL THEN
        RETURN;
    END IF;
    -- The words that an aborted answer left behind make room for the new answer.
    DELETE FROM messages m WHERE m.tenant = p_tenant AND m.turn_id = p_turn
       AND m.role = 'assistant' AND m.content_type = 'text';
    GET DIAGNOSTICS taken_back = ROW_COUNT;
    UPDATE turns SET status = 'queued', tries = 0, abort_requested = false, code = NULL, error = NULL, reply_id = NULL,
                     partial = NULL, ended_at = NULL, terminal = NULL, woken_at = clock_timestamp()
     WHERE tenant = p_tenant AND id = p_turn;
    -- A context that was kept with those words ends where the log ended then: now it ends elsewhere.
    UPDATE conversations c
       SET open_turns = c.open_turns + 1, updated_at = clock_timestamp(), last_seq = c.last_seq + taken_back,
           context_tail = CASE WHEN taken_back > 0 THEN c.last_seq + taken_back ELSE c.context_tail END
     WHERE c.tenant = p_tenant AND c.id = conversation;
    outcome := 'accepted';
END
$$;
