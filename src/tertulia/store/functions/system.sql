-- What must cross users. Each runs as `tertulia_system`, sees every row, and returns no content.

CREATE FUNCTION api.renew_leases(p_owner uuid, p_conversations uuid[], p_tenants text[], p_lease interval)
RETURNS SETOF uuid LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET synchronous_commit = off AS $$
    UPDATE conversations c SET lease_until = clock_timestamp() + p_lease
      FROM unnest(p_tenants, p_conversations) AS held (tenant, id)
     WHERE c.tenant = held.tenant AND c.id = held.id AND c.lease_owner = p_owner
       AND c.lease_until > clock_timestamp()
    RETURNING c.id
$$;

CREATE FUNCTION api.aborting_turns(p_turns uuid[], p_tenants text[]) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT t.id FROM unnest(p_tenants, p_turns) AS running (tenant, id)
      JOIN turns t ON t.tenant = running.tenant AND t.id = running.id
     WHERE t.abort_requested
$$;

-- Messages with turns that nobody works on and nobody was woken for lately: their wake-up was lost.
CREATE FUNCTION api.lost_wakeups(p_quiet interval, p_limit integer)
RETURNS TABLE (tenant text, user_id text, conversation_id uuid, message_id uuid)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    UPDATE turns t SET woken_at = clock_timestamp()
      FROM (SELECT o.tenant, o.id FROM turns o
              JOIN conversations c ON c.tenant = o.tenant AND c.id = o.conversation_id
             WHERE o.status IN ('queued', 'running') AND o.woken_at < clock_timestamp() - p_quiet
               AND (c.lease_until IS NULL OR c.lease_until < clock_timestamp())
             ORDER BY o.woken_at LIMIT p_limit FOR UPDATE OF o SKIP LOCKED) AS lost
     WHERE t.tenant = lost.tenant AND t.id = lost.id
    RETURNING t.tenant, t.user_id, t.conversation_id, t.message_id
$$;

CREATE FUNCTION api.unsent_terminals(p_age interval, p_limit integer)
RETURNS TABLE (tenant text, user_id text, conversation_id uuid, turn_id uuid, attempt integer, epoch bigint,
               terminal text)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT t.tenant, t.user_id, t.conversation_id, t.id, t.attempt, c.lease_epoch, t.terminal::text
      FROM turns t JOIN conversations c ON c.tenant = t.tenant AND c.id = t.conversation_id
     WHERE t.terminal IS NOT NULL AND t.ended_at < clock_timestamp() - p_age ORDER BY t.ended_at LIMIT p_limit
$$;

CREATE FUNCTION api.terminals_sent(p_tenants text[], p_turns uuid[], p_attempts integer[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET synchronous_commit = off AS $$
    UPDATE turns t SET terminal = NULL
      FROM (SELECT o.tenant, o.id  -- in one order, whoever else does the same
              FROM unnest(p_tenants, p_turns, p_attempts) AS sent (tenant, id, attempt)
              JOIN turns o ON o.tenant = sent.tenant AND o.id = sent.id AND o.attempt = sent.attempt
             ORDER BY o.tenant, o.id FOR UPDATE OF o) AS told
     WHERE t.tenant = told.tenant AND t.id = told.id
$$;

CREATE FUNCTION api.ended_messages(p_tenants text[], p_messages uuid[]) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT asked.id FROM unnest(p_tenants, p_messages) AS asked (tenant, id)
     WHERE NOT EXISTS (SELECT FROM turns t WHERE t.tenant = asked.tenant AND t.message_id = asked.id
                          AND t.status IN ('queued', 'running'))
$$;

CREATE FUNCTION api.deleted_conversations(p_age interval, p_limit integer)
RETURNS TABLE (tenant text, user_id text, id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT c.tenant, c.user_id, c.id FROM conversations c WHERE c.deleted_at < clock_timestamp() - p_age
     ORDER BY c.deleted_at LIMIT p_limit
$$;

-- A part of what was said in a deleted conversation; once begun, it cannot be brought back any more. Whether there
-- may be more.
CREATE FUNCTION api.erase_messages(p_tenant text, p_conversation uuid, p_age interval, p_limit integer)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    erased integer;
BEGIN
    UPDATE conversations c SET deleted_at = '-infinity'
     WHERE c.tenant = p_tenant AND c.id = p_conversation AND c.deleted_at < clock_timestamp() - p_age;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM messages m
     WHERE m.tenant = p_tenant AND m.conversation_id = p_conversation AND m.seq <= (
        SELECT max(first.seq) FROM (
            SELECT o.seq FROM messages o WHERE o.tenant = p_tenant AND o.conversation_id = p_conversation
             ORDER BY o.seq LIMIT p_limit) AS first);
    GET DIAGNOSTICS erased = ROW_COUNT;
    RETURN erased >= p_limit;
END
$$;

CREATE FUNCTION api.erase_conversation(p_tenant text, p_conversation uuid) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    WITH erased AS (
        DELETE FROM conversations c
         WHERE c.tenant = p_tenant AND c.id = p_conversation AND c.deleted_at = '-infinity' RETURNING 1
    )
    SELECT EXISTS (SELECT FROM erased)
$$;

CREATE FUNCTION api.forget_keys(p_age interval) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    WITH old AS (DELETE FROM idempotency WHERE created_at < clock_timestamp() - p_age RETURNING 1)
    SELECT count(*) FROM old
$$;

-- Tenants with so many turns that have not ended.
CREATE FUNCTION api.crowded_tenants(p_limit bigint) RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT t.tenant FROM turns t WHERE t.status IN ('queued', 'running', 'waiting')
     GROUP BY t.tenant HAVING count(*) >= p_limit
$$;

CREATE FUNCTION api.backlog(OUT queued bigint, OUT running bigint, OUT waiting bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT count(*) FILTER (WHERE status = 'queued'), count(*) FILTER (WHERE status = 'running'),
           count(*) FILTER (WHERE status = 'waiting')
      FROM turns WHERE status IN ('queued', 'running', 'waiting')
$$;

-- Whether a user of one's own tenant may be notified: unknown | flooded (by us, within the last hour) | welcome, as is
-- one who has been told this very thing. Takes tenant and sender from the settings alone.
CREATE FUNCTION api.may_notify(p_user text, p_id uuid, p_hourly integer) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT CASE
        WHEN NOT EXISTS (SELECT FROM users
                          WHERE tenant = nullif(current_setting('tertulia.tenant', true), '') AND id = p_user)
            THEN 'unknown'
        WHEN (SELECT count(*) FROM notifications n
               WHERE n.to_user_id = p_user AND n.tenant = nullif(current_setting('tertulia.tenant', true), '')
                 AND n.created_at > clock_timestamp() - interval '1 hour'
                 AND n.from_user_id = nullif(current_setting('tertulia.user', true), '') AND n.id <> p_id) >= p_hourly
             AND NOT EXISTS (SELECT FROM notifications n
                              WHERE n.tenant = nullif(current_setting('tertulia.tenant', true), '') AND n.id = p_id)
            THEN 'flooded'
        ELSE 'welcome' END
$$;

-- mine | foreign | none, within one's own tenant.
CREATE FUNCTION api.whose_conversation(p_conversation uuid) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT coalesce((SELECT CASE WHEN user_id = nullif(current_setting('tertulia.user', true), '')
                                 THEN 'mine' ELSE 'foreign' END
                       FROM conversations
                      WHERE tenant = nullif(current_setting('tertulia.tenant', true), '') AND id = p_conversation
                        AND deleted_at IS NULL), 'none')
$$;
