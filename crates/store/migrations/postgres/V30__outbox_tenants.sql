-- The tenants that a role may write to the outbox (decision 0074). Without a row for a role, one that it is a member of, or `public`, it
-- may write all, as before there was this table.
CREATE TABLE IF NOT EXISTS outbox_tenant (
    role   text NOT NULL,       -- name of a role; `public` for those that have no row
    tenant text NOT NULL,       -- `*` for all
    PRIMARY KEY (role, tenant),
    CONSTRAINT "tenant is * or 1 to 64 of a-z, 0-9, - and _" CHECK (tenant ~ '^([*]|[a-z0-9][a-z0-9_-]{0,63})$')
);

-- The tenants of the rows for the roles that `login` is (USAGE) or can become (MEMBER); NULL where it is the owner of the tables, who
-- could change the rows. Roles are known by their names, so that a dump can be restored before there are roles.
CREATE OR REPLACE FUNCTION outbox_tenants_of(login name, privilege text) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_has_role(login, current_user, privilege) THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(SELECT tenant FROM belfry.outbox_tenant JOIN pg_roles ON rolname = role
                 WHERE pg_has_role(login, pg_roles.oid, privilege) ORDER BY tenant);
END
$$;
REVOKE EXECUTE ON FUNCTION outbox_tenants_of FROM PUBLIC;

-- Fails if `acting` may not write one of the tenants `written`. It reads the table as the owner: applications cannot.
CREATE OR REPLACE FUNCTION outbox_check_tenants(acting name, written text[]) RETURNS void
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    login   name := acting;
    granted text[] := belfry.outbox_tenants_of(acting, 'USAGE');
    refused text;
BEGIN
    IF granted = '{}' THEN
        granted := ARRAY(SELECT tenant FROM belfry.outbox_tenant WHERE role = 'public' ORDER BY tenant);
    END IF;
    FOR turn IN 1..2 LOOP
        -- The login as well: a statement that inserts can become another role (SET ROLE) before it ends.
        IF turn = 2 THEN
            login := session_user;
            granted := belfry.outbox_tenants_of(session_user, 'MEMBER');
        END IF;
        CONTINUE WHEN granted IS NULL OR granted = '{}' OR '*' = ANY (granted);
        SELECT min(one) INTO refused FROM unnest(written) AS one WHERE one <> ALL (granted);
        IF refused IS NOT NULL THEN
            RAISE EXCEPTION 'role "%" may not write notifications of the tenant "%"', login, refused
                USING ERRCODE = 'insufficient_privilege',
                      DETAIL = format('It may write those of: %s.', array_to_string(granted, ', ')),
                      HINT = 'Name one of these in the column "tenant", or have the owner of the outbox add a row to belfry.outbox_tenant.';
        END IF;
    END LOOP;
END
$$;
GRANT EXECUTE ON FUNCTION outbox_check_tenants TO PUBLIC;

-- Once for each statement: for each row it would take three times as long as the insert itself.
CREATE OR REPLACE FUNCTION outbox_tenants() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM belfry.outbox_check_tenants(current_user, ARRAY(SELECT DISTINCT tenant FROM written));
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER outbox_tenants AFTER INSERT ON outbox REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION outbox_tenants();
