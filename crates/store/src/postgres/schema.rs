//! The schema: made by the first process that starts, and refused when a newer program made it.

use refinery::Migration;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::errors::{causes, in_words};
use super::restored;
use crate::StoreError;

mod migrations {
    refinery::embed_migrations!("migrations/postgres");
}

/// The role and the database that messages name.
struct Login {
    role: String,
    database: String,
}

/// The first version with everything that is used here: multi-row `LATERAL` locking, `xid8`, fast snapshots.
const SERVER_VERSION_MIN: i32 = 140_000;
/// Number of the advisory lock that keeps two processes from migrating at once: "belfry" in ASCII.
const LOCK: i64 = 0x6265_6c66_7279;

/// Brings the database to the schema of this program. Other processes may try at the same time. `client` is used for nothing
/// else: closing it ends whatever is left.
pub(super) async fn prepare(client: &mut Client) -> Result<(), StoreError> {
    let login = check_server(client).await?;
    check_takes_writes(client).await?;
    // Of the session, not of a transaction: each migration is a transaction of its own.
    client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await?;
    // A failure may have left a transaction open, in which no further statement can run. The end of the session unlocks, too.
    prepare_alone(client, &login).await?;
    client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await?;
    Ok(())
}

/// Checks that the database has a store whose schema this program supports. Changes nothing.
pub(super) async fn check(client: &Client) -> Result<(), StoreError> {
    let login = check_server(client).await?;
    let (stored, known) = (stored_version(client, &login).await?, known_version());
    match stored {
        Some(stored) if stored > known => Err(too_new(stored, known, &login)),
        Some(stored) if stored == known => restored::check(client).await,
        Some(stored) => Err(StoreError::Schema(format!(
            "the store in the database {} has schema {stored}, and this belfry reads {known}: start `belfry serve` once, \
             which brings it up to date",
            login.database
        ))),
        None => Err(StoreError::Schema(format!(
            "there is no store in the database {}: start `belfry serve` first",
            login.database
        ))),
    }
}

async fn prepare_alone(client: &mut Client, login: &Login) -> Result<(), StoreError> {
    create_schema(client, login).await?;
    // Migrations and their history name no schema.
    client.batch_execute("SET search_path = belfry, pg_catalog").await?;
    let known = known_version();
    match stored_version(client, login).await? {
        Some(stored) if stored > known => return Err(too_new(stored, known, login)),
        Some(stored) if stored == known => {}
        stored => migrate(client, login, stored.is_some()).await?,
    }
    check_rights(client, login).await?;
    restored::renumber(client).await
}

async fn check_server(client: &Client) -> Result<Login, StoreError> {
    let select = "SELECT current_setting('server_version_num')::int, current_setting('server_version'), \
                  current_setting('server_encoding'), current_user::text, current_database()::text";
    let row = client.query_one(select, &[]).await?;
    let version: i32 = row.try_get(0)?;
    let (told, encoding): (String, String) = (row.try_get(1)?, row.try_get(2)?);
    let login = Login { role: row.try_get(3)?, database: row.try_get(4)? };
    if version < SERVER_VERSION_MIN {
        return Err(StoreError::Schema(format!(
            "this is PostgreSQL {told}: belfry needs version 14 or later"
        )));
    }
    // Recipients and templates may have any character, which no other encoding holds.
    if encoding != "UTF8" {
        let database = &login.database;
        return Err(StoreError::Schema(format!(
            "the database {database} has the encoding {encoding}: create it with ENCODING 'UTF8' TEMPLATE template0"
        )));
    }
    Ok(login)
}

/// Refuses a standby, which answers questions only.
async fn check_takes_writes(client: &Client) -> Result<(), StoreError> {
    if client.query_one("SELECT pg_is_in_recovery()", &[]).await?.try_get(0)? {
        return Err(StoreError::Refused(
            "this PostgreSQL is a standby and takes no writes: name the primary".to_owned(),
        ));
    }
    Ok(())
}

/// Asks first: `IF NOT EXISTS` needs the right to create even when there is nothing to do.
async fn create_schema(client: &Client, login: &Login) -> Result<(), StoreError> {
    let select = "SELECT to_regnamespace('belfry') IS NOT NULL";
    if client.query_one(select, &[]).await?.try_get(0)? {
        return Ok(());
    }
    let Login { role, database } = login;
    client.batch_execute("CREATE SCHEMA belfry").await.map_err(|error| {
        if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
            return error.into();
        }
        StoreError::Refused(format!(
            "the role {role} may not create the schema belfry in the database {database}: let an administrator run \
             CREATE SCHEMA belfry AUTHORIZATION {role}, or GRANT CREATE ON DATABASE {database} TO {role}"
        ))
    })
}

async fn migrate(client: &mut Client, login: &Login, is_upgrade: bool) -> Result<(), StoreError> {
    let outcome = migrations::migrations::runner().run_async(client).await;
    outcome.map(drop).map_err(|error| match database_error(&error) {
        Some(cause) if is_upgrade && cause.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            StoreError::Refused(format!(
                "the role {} does not own the tables of the schema belfry in the database {}, and cannot bring them up to \
                 date: start `belfry serve` once as the role that does",
                login.role, login.database
            ))
        }
        Some(cause) if cause.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => lacks_rights(
            login,
            &["ALTER SCHEMA belfry OWNER TO", "GRANT USAGE, CREATE ON SCHEMA belfry TO"],
        ),
        Some(cause) => StoreError::Schema(format!(
            "the schema belfry of the database {} cannot be brought up to date: {}",
            login.database,
            in_words(cause)
        )),
        None => StoreError::Schema(format!(
            "the schema belfry of the database {} was not made by this belfry: {error}",
            login.database
        )),
    })
}

/// Checks the rights for all statements that run later: a missing one is reported now, not in the middle of a night.
async fn check_rights(client: &Client, login: &Login) -> Result<(), StoreError> {
    let select = "SELECT count(*) FROM pg_class \
                  WHERE relnamespace = to_regnamespace('belfry') AND CASE relkind \
                    WHEN 'r' THEN NOT (has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT') \
                      AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')) \
                      OR relispartition AND NOT has_table_privilege(oid, 'TRUNCATE') \
                    WHEN 'p' THEN NOT has_table_privilege(oid, 'SELECT') \
                    WHEN 'S' THEN NOT has_sequence_privilege(oid, 'USAGE') ELSE false END";
    let closed: i64 = client.query_one(select, &[]).await?.try_get(0)?;
    if closed == 0 {
        return Ok(());
    }
    let grants = [
        "GRANT USAGE ON SCHEMA belfry TO",
        "GRANT ALL ON ALL TABLES IN SCHEMA belfry TO",
        "GRANT ALL ON ALL SEQUENCES IN SCHEMA belfry TO",
    ];
    Err(lacks_rights(login, &grants))
}

async fn stored_version(client: &Client, login: &Login) -> Result<Option<i32>, StoreError> {
    let exists = "SELECT count(*) > 0 FROM pg_class WHERE relname = 'refinery_schema_history' \
                  AND relnamespace = to_regnamespace('belfry')";
    if !client.query_one(exists, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let select = "SELECT max(version) FROM belfry.refinery_schema_history";
    let row = client.query_one(select, &[]).await.map_err(|error| {
        if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
            let grants =
                ["GRANT USAGE ON SCHEMA belfry TO", "GRANT ALL ON ALL TABLES IN SCHEMA belfry TO"];
            return lacks_rights(login, &grants);
        }
        error.into()
    })?;
    Ok(row.try_get(0)?)
}

fn known_version() -> i32 {
    let runner = migrations::migrations::runner();
    runner.get_migrations().iter().map(Migration::version).max().unwrap_or(0)
}

fn too_new(stored: i32, known: i32, login: &Login) -> StoreError {
    StoreError::Schema(format!(
        "the store in the database {} has schema {stored}, and this belfry knows {known} at most: run the newer belfry \
         that wrote it, or name another database",
        login.database
    ))
}

/// The first of `grants`, each followed by the role, would do; or all of them.
fn lacks_rights(login: &Login, grants: &[&str]) -> StoreError {
    let Login { role, database } = login;
    let grants: Vec<String> = grants.iter().map(|grant| format!("{grant} {role}")).collect();
    StoreError::Refused(format!(
        "the role {role} may not use the schema belfry of the database {database}: let its owner run {}",
        grants.join("; ")
    ))
}

/// The server's error within that of the migrations.
fn database_error(error: &refinery::Error) -> Option<&tokio_postgres::Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}
