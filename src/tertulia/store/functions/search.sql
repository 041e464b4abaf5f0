-- Full text for every script without an extension: words are stemmed as English, and what is written without spaces
-- between words is cut into pairs of characters, whose places tell which pairs stand side by side.

-- Chinese, Japanese and Korean characters, as a class for regular expressions.
CREATE FUNCTION api.unspaced() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT '[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f]'
$$;

-- A text without what makes PostgreSQL's parser look for addresses and paths, a character for a character: on a line of
-- "a1@a1@…" it would take time that grows with the square of the length.
CREATE FUNCTION api.plain(p_text text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT translate(p_text, '@_/~.-+:', '        ')
$$;

-- The words of a text, and the pairs of such characters in it, each pair with its place. The last character of a run
-- stands alone too, so that a search for one character, by what begins with it, finds it wherever it is. A place is
-- where the pair is in the text: what stands between two runs keeps their pairs from being neighbours. Only what is
-- cut to a length first can be kept in time and in a tsvector, and normalizing may make a text longer.
CREATE FUNCTION api.terms(p_text text) RETURNS tsvector LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    plain text := left(normalize(left(p_text, 50000), NFKC), 50000);
    words tsvector := to_tsvector('pg_catalog.english', api.plain(regexp_replace(plain, api.unspaced(), ' ', 'g')));
    runs text := regexp_replace(plain, '[^' || substr(api.unspaced(), 2), ' ', 'g');
    pairs tsvector;
BEGIN
    SELECT string_agg(c.one || c.two || ':' || least(c.place, 16383), ' ')::tsvector INTO pairs
      FROM (SELECT one, trim(lead(one, 1, ' ') OVER (ORDER BY place)) AS two, place
              FROM unnest(string_to_array(runs, NULL)) WITH ORDINALITY AS character (one, place)) AS c
     WHERE c.one <> ' ';
    RETURN coalesce(pairs, '') || words;  -- in this order: the places of the second are moved behind the first
END
$$;

CREATE FUNCTION api.words_query(p_text text) RETURNS tsquery LANGUAGE sql IMMUTABLE AS $$
    SELECT plainto_tsquery('pg_catalog.english',
                           api.plain(regexp_replace(normalize(p_text, NFKC), api.unspaced(), ' ', 'g')))
$$;

-- What is looked for: all words, and every run of unspaced characters as it stands; null when nothing is left.
CREATE FUNCTION api.search_query(p_text text) RETURNS tsquery LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    plain text := normalize(p_text, NFKC);
    wanted tsquery := api.words_query(p_text);
    run text;
    piece tsquery;
BEGIN
    FOR run IN SELECT m[1] FROM regexp_matches(plain, api.unspaced() || '+', 'g') AS m LOOP
        IF char_length(run) = 1 THEN
            piece := (run || ':*')::tsquery;
        ELSE
            SELECT string_agg(substr(run, n, 2), ' <-> ' ORDER BY n)::tsquery INTO piece
              FROM generate_series(1, char_length(run) - 1) AS n;
        END IF;
        wanted := CASE WHEN numnode(wanted) = 0 THEN piece ELSE wanted && piece END;
    END LOOP;
    RETURN CASE WHEN numnode(wanted) > 0 THEN wanted END;
END
$$;

-- A term that every message of this owner has and no other: so the index itself keeps to what is theirs.
CREATE FUNCTION api.owner_term(p_tenant text, p_user text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT '=' || md5(char_length(p_tenant) || '/' || p_tenant || '/' || p_user)
$$;

CREATE FUNCTION api.said(p_type text, p_content jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_type = 'text' THEN p_content #>> '{}'
                ELSE concat_ws(E'\n', p_content ->> 'title', p_content ->> 'summary', p_content ->> 'impact') END
$$;

-- The same text with the words found between \x02 and \x03; null when no words are looked for. Runs of unspaced
-- characters are parted from words by \x04, and full-width letters and digits are made plain, one for one.
CREATE FUNCTION api.marked(p_text text, p_words tsquery) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    wide CONSTANT text := 'ＡＢＣＤＥＦＧＨＩＪＫＬＭＮＯＰＱＲＳＴＵＶＷＸＹＺａｂｃｄｅｆｇｈｉｊｋｌｍｎｏｐｑｒｓｔｕｖｗｘｙｚ０１２３４５６７８９';
BEGIN
    IF numnode(p_words) = 0 THEN
        RETURN NULL;
    END IF;
    RETURN ts_headline('pg_catalog.english',
                       regexp_replace(api.plain(translate(p_text, wide, normalize(wide, NFKC))),
                                      api.unspaced() || '+', E'\u0004\\&\u0004', 'g'),
                       p_words, E'HighlightAll=true, StartSel=\u0002, StopSel=\u0003');
END
$$;

-- Write the terms of what was said lately; yields how many messages that were.
CREATE FUNCTION api.index_messages(p_limit integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET synchronous_commit = off AS $$
    WITH taken AS (
        -- Messages are locked too: one that is just being erased is passed over, and none can be meanwhile.
        DELETE FROM unindexed u
         USING (SELECT n.tenant, n.message_id FROM unindexed n
                 CROSS JOIN LATERAL (SELECT FROM messages m WHERE m.tenant = n.tenant AND m.id = n.message_id
                                        FOR KEY SHARE SKIP LOCKED) AS kept
                 LIMIT p_limit FOR UPDATE OF n SKIP LOCKED) AS next
         WHERE u.tenant = next.tenant AND u.message_id = next.message_id RETURNING u.tenant, u.message_id
    ), written AS (
        INSERT INTO search (tenant, user_id, message_id, conversation_id, terms)
        SELECT m.tenant, m.user_id, m.id, m.conversation_id,
               api.terms(api.said(m.content_type, m.content))
               || array_to_tsvector(ARRAY[api.owner_term(m.tenant, m.user_id)])
          FROM taken t JOIN messages m ON m.tenant = t.tenant AND m.id = t.message_id
        ON CONFLICT (tenant, message_id) DO UPDATE SET terms = excluded.terms
    )
    SELECT count(*) FROM taken
$$;

-- One's own messages that say this, best first. Takes tenant and user from the settings alone: row level security
-- would keep the index from being used, since text search may not run before it.
CREATE FUNCTION api.search_messages(p_text text, p_limit integer, p_offset integer)
RETURNS TABLE (message_id uuid, conversation_id uuid, seq bigint, role message_role, content_type message_kind,
               agent_id text, created_at timestamptz, said text, marked text, rank real)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    own_tenant text := nullif(current_setting('tertulia.tenant', true), '');
    own_user text := nullif(current_setting('tertulia.user', true), '');
    wanted tsquery := api.search_query(p_text);
    words tsquery := api.words_query(p_text);
    -- How near each other words stand is weighed in the square of their number: only where they are few.
    ranked tsquery := CASE WHEN numnode(wanted) < 8 THEN wanted ELSE wanted || wanted END;
    owned tsquery := quote_literal(api.owner_term(own_tenant, own_user))::tsquery;
BEGIN
    RETURN QUERY
    SELECT m.id, m.conversation_id, m.seq, m.role, m.content_type, m.agent_id, m.created_at,
           said.text, api.marked(said.text, words),
           best.rank
      FROM (SELECT s.tenant, s.message_id, ts_rank(s.terms, ranked, 1) AS rank
              FROM search s JOIN conversations c ON c.tenant = s.tenant AND c.id = s.conversation_id
             WHERE s.terms @@ (owned && wanted) AND s.tenant = own_tenant AND s.user_id = own_user
               AND c.deleted_at IS NULL
             ORDER BY 3 DESC, s.message_id DESC LIMIT p_limit OFFSET p_offset) AS best
      JOIN messages m ON m.tenant = best.tenant AND m.id = best.message_id,
           translate(api.said(m.content_type, m.content), E'\u0002\u0003\u0004', '') AS said (text)
     ORDER BY best.rank DESC, m.id DESC;
END
$$;
