//! A database that cannot be used is refused with what to do about it.
#![cfg(feature = "postgres")]
#![expect(clippy::panic, reason = "the helpers of a test fail by panicking")]

mod support;

use flow::Clock;
use notification::Account;
use store::conformance::{Shape, claim_by_tenant};
use store::postgres::Options;
use store::{ErrorKind, LogPosition, Postgres, PostgresReader, ReadStore, StoreError};
use support::{fresh, open};

/// Opens a store at `url`, and says how it was refused.
async fn refusal(url: &str) -> String {
    match Postgres::open(Options::new(url), Clock::system()).await {
        Ok(_) => panic!("{url} was taken"),
        Err(error) => {
            let is_refused = matches!(error, StoreError::Refused(_) | StoreError::Schema(_));
            // Only what another try may find better is worth one.
            assert!(is_refused || error.kind() == ErrorKind::Unavailable, "{error:?}");
            let told = error.to_string();
            assert!(!told.contains("a-password") && !told.contains("secret"), "{told}");
            told
        }
    }
}

#[tokio::test]
async fn a_wrong_address_is_told_with_a_way_out() {
    let database = fresh();
    let url = database.url();
    let (user_and_password, place) =
        url.strip_prefix("postgres://").unwrap().split_once('@').unwrap();
    let (host, name) = place.split_once('/').unwrap();
    let role = user_and_password.split_once(':').unwrap().0;
    for (url, words) in [
        ("nonsense".to_owned(), vec!["postgres://role:password@host:port/database"]),
        (format!("postgres://{role}:secret@{place}"), vec![role, "password", "pg_hba.conf"]),
        (format!("postgres://nobody:secret@{place}"), vec!["nobody", "password"]),
        (
            format!("postgres://{user_and_password}@{host}/missing"),
            vec!["there is no database missing", "CREATE DATABASE missing"],
        ),
        (
            format!("postgres://{user_and_password}@127.0.0.1:1/{name}"),
            vec!["127.0.0.1:1", "start PostgreSQL"],
        ),
        (
            format!("postgres://{user_and_password}@no-such-host.invalid:5432/{name}"),
            vec!["no-such-host.invalid:5432", "check the address"],
        ),
    ] {
        let told = refusal(&url).await;
        for word in words {
            assert!(told.contains(word), "{told:?} lacks {word:?}");
        }
    }
}

#[tokio::test]
async fn missing_rights_are_told_with_the_grants_that_give_them() {
    let database = fresh();
    let role = testbed::unique_prefix();
    let create = format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'");
    database.query(&create).unwrap();
    let (_, place) = database.url().split_once('@').unwrap();
    let url = format!("postgres://{role}:secret@{place}");
    let told = refusal(&url).await;
    assert!(
        told.contains(&format!("GRANT CREATE ON DATABASE {}", place.split_once('/').unwrap().1))
    );
    open(database.url()).await.close().await;
    let told = refusal(&url).await;
    for grant in ["GRANT USAGE ON SCHEMA belfry TO", "GRANT ALL ON ALL TABLES IN SCHEMA belfry TO"]
    {
        assert!(told.contains(&format!("{grant} {role}")), "{told}");
    }
    for grant in told.split("run ").last().unwrap().split("; ") {
        database.query(grant).unwrap();
    }
    let told = refusal(&url).await;
    assert!(told.contains("GRANT ALL ON ALL SEQUENCES"), "{told}");
    for grant in told.split("run ").last().unwrap().split("; ") {
        database.query(grant).unwrap();
    }
    open(&url).await.close().await;
    database.query("DELETE FROM belfry.refinery_schema_history WHERE version > 1").unwrap();
    let told = refusal(&url).await;
    assert!(told.contains(&format!("the role {role} does not own the tables")), "{told}");
    database.query(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).unwrap();
}

#[tokio::test]
async fn a_schema_of_another_version_is_refused_with_a_way_out() {
    let database = fresh();
    open(database.url()).await.close().await;
    let newer = "INSERT INTO belfry.refinery_schema_history VALUES (99, 'later', '', '0')";
    database.query(newer).unwrap();
    let told = refusal(database.url()).await;
    assert!(told.contains("schema 99") && told.contains("newer belfry"), "{told}");
    database.query("DELETE FROM belfry.refinery_schema_history WHERE version > 1").unwrap();
    database.query("UPDATE belfry.refinery_schema_history SET version = 0").unwrap();
    let told = refusal(database.url()).await;
    assert!(told.contains("belfry"), "{told}");
}

/// The schema before lanes were of tenants: one lane for both.
const LANES_OF_BEFORE: &str = "SET search_path = belfry; ALTER TABLE tenant_lane RENAME TO lane; \
     UPDATE batch SET lane = (SELECT min(id) FROM lane); UPDATE chunk SET lane = (SELECT min(id) FROM lane); \
     DELETE FROM lane WHERE id > (SELECT min(id) FROM lane); ALTER TABLE lane DROP COLUMN tenant; \
     ALTER TABLE lane ADD UNIQUE (channel, destination, priority); \
     DROP TABLE pause, resuming; ALTER TABLE worker DROP COLUMN pauses; \
     ALTER TABLE outbox DROP COLUMN external_id, DROP COLUMN tags, DROP COLUMN metadata; \
     ALTER TABLE outbox_rejected DROP COLUMN external_id, DROP COLUMN tags, DROP COLUMN metadata; \
     DELETE FROM refinery_schema_history WHERE version >= 10";

#[tokio::test]
async fn what_waits_from_before_lanes_were_of_tenants_is_sent_for_its_tenant() {
    let database = fresh();
    let store = open(database.url()).await;
    for tenant in ["news", "shop"] {
        Shape { tenant, ..Shape::default() }.ingest(&store, 2).await;
    }
    store.close().await;
    database.query(LANES_OF_BEFORE).unwrap();
    let store = open(database.url()).await;
    Shape { tenant: "shop", ..Shape::default() }.ingest(&store, 1).await;
    let expect = [("news", 2), ("shop", 1), ("shop", 2)];
    assert_eq!(
        claim_by_tenant(&store, 0).await,
        expect.map(|(name, count)| (name.to_owned(), count))
    );
    store.close().await;
}

#[tokio::test]
async fn an_encoding_that_holds_not_every_text_is_refused() {
    let database = fresh();
    let name = testbed::unique_prefix();
    let create = format!("CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    database.query(&create).unwrap();
    let (server, _) = database.url().rsplit_once('/').unwrap();
    let told = refusal(&format!("{server}/{name}")).await;
    assert!(told.contains("LATIN1") && told.contains("UTF8"), "{told}");
    database.query(&format!("DROP DATABASE {name} WITH (FORCE)")).unwrap();
}

#[tokio::test]
async fn processes_that_start_at_once_make_one_schema() {
    let database = fresh();
    let url = database.url();
    let (one, two, three) = tokio::join!(open(url), open(url), open(url));
    let workers = one.reader().cluster().await.unwrap().unwrap().workers;
    assert_eq!(workers.len(), 3);
    for store in [one, two, three] {
        store.close().await;
    }
    let left = database.query("SELECT count(*) FROM belfry.worker").unwrap();
    assert_eq!(left, "0");
}

#[tokio::test]
async fn a_standby_answers_questions_and_does_no_work() {
    let mut server = testbed::PostgresServer::start().unwrap();
    let database = server.create_database().unwrap();
    open(database.url()).await.close().await;
    server.stop_immediate().unwrap();
    server.start_as_standby().unwrap();
    let told = refusal(database.url()).await;
    assert!(told.contains("standby") && told.contains("name the primary"), "{told}");
    let reader = PostgresReader::open(database.url(), None).await.unwrap();
    assert_eq!(reader.totals().await, Ok(Account::default()));
    assert_eq!(reader.log(LogPosition::default(), 1).await.unwrap().entries, []);
}

#[tokio::test]
async fn a_start_that_fails_within_a_transaction_tells_its_cause() {
    let database = fresh();
    open(database.url()).await.close().await;
    // As a dump brings it, so that the outbox is numbered anew, which fails here.
    database
        .query(
            "UPDATE belfry.outbox_position SET snapshot = '900000000:900000000:'; \
             CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN RAISE EXCEPTION ''as planned''; END'; \
             CREATE TRIGGER fail BEFORE UPDATE ON belfry.outbox_position EXECUTE FUNCTION fail()",
        )
        .unwrap();
    let error = Postgres::open(Options::new(database.url()), Clock::system()).await.err();
    let told = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(told.contains("as planned"), "{told}");
    database.query("DROP TRIGGER fail ON belfry.outbox_position").unwrap();
    open(database.url()).await.close().await;
}
