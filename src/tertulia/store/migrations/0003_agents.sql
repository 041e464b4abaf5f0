-- Who answers. Everybody of a tenant may know its agents; only its admins make and change them.
--
-- A row whose tenant is '' is an agent of every tenant, from the server's own file: no token can name that tenant.

CREATE TABLE agents (
    tenant         text NOT NULL,
    id             text NOT NULL CHECK (id <> ''),
    display_name   text NOT NULL CHECK (char_length(display_name) BETWEEN 1 AND 100),
    kind           text NOT NULL CHECK (kind IN ('hub', 'companion', 'worker')),
    prompt         text NOT NULL,
    model          text,                        -- provider:model; the server's own when null
    context_window integer CHECK (context_window BETWEEN 1 AND 1000),
    context_tokens integer CHECK (context_tokens >= 1),
    strategy       text NOT NULL CHECK (strategy IN ('mentioned', 'relevant', 'always')),
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);

CREATE INDEX agents_by_id ON agents (id, tenant);

ALTER TABLE agents ENABLE ROW LEVEL SECURITY;
ALTER TABLE agents FORCE ROW LEVEL SECURITY;
GRANT SELECT, INSERT, UPDATE, DELETE ON agents TO tertulia_server, tertulia_system;
CREATE POLICY everything ON agents TO tertulia_system USING (true) WITH CHECK (true);
CREATE POLICY known ON agents FOR SELECT TO tertulia_server USING (
    tenant IN ((SELECT nullif(current_setting('tertulia.tenant', true), '')), '')
    AND (SELECT nullif(current_setting('tertulia.tenant', true), '')) IS NOT NULL
    AND (SELECT nullif(current_setting('tertulia.user', true), '')) IS NOT NULL);
CREATE POLICY kept ON agents TO tertulia_server USING (
    tenant = (SELECT nullif(current_setting('tertulia.tenant', true), ''))
    AND (SELECT nullif(current_setting('tertulia.user', true), '')) IS NOT NULL
    AND (SELECT current_setting('tertulia.role', true)) = 'admin');
