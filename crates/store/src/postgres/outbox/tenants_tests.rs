//! The tenants that a role may write to the outbox (decision 0074), as applications meet it.

use futures_util::SinkExt as _;
use notification::Bytes;
use tokio_postgres::Client;
use tokio_postgres::error::{DbError, SqlState};

use super::tests::{Bench, drained, statements, validator};
use super::*;
use crate::conformance::{at, the_books_balance};
use crate::postgres::setup_tests::open;

const INSERT: &str = "INSERT INTO belfry.outbox (tenant, channel, recipient, content)";

/// A session of a role that may write to the outbox, and is gone with the test.
struct Application {
    client: Client,
    role: String,
}

impl Application {
    /// A role with the grants of the contract, and the tenants of its statement if `is_bound`; the role `shop` stands for it there.
    async fn new(bench: &Bench, is_bound: bool) -> Self {
        let (client, role) = (bench.application().await, testbed::unique_prefix());
        let contract = statements("## Let an application in");
        client.batch_execute(&format!("CREATE ROLE {role}")).await.unwrap();
        for statement in contract.iter().take(1 + usize::from(is_bound)) {
            let statement = statement.replace("TO shop", &format!("TO {role}"));
            let statement = statement.replace("('shop', ", &format!("('{role}', "));
            client.batch_execute(&statement).await.unwrap();
        }
        client.batch_execute(&format!("SET SESSION AUTHORIZATION {role}")).await.unwrap();
        Self { client, role }
    }

    /// Writes a notification of `tenant`.
    async fn write(&self, tenant: &str) -> Result<(), DbError> {
        self.run(&format!("{INSERT} VALUES ('{tenant}', 'c', 'r', '1')")).await
    }

    async fn run(&self, statement: &str) -> Result<(), DbError> {
        let done = self.client.batch_execute(statement).await;
        done.map_err(|error| error.as_db_error().unwrap().clone())
    }

    /// Copies rows of these tenants in by one statement.
    async fn copy(&self, tenants: &[&str]) -> Result<u64, DbError> {
        let copy = "COPY belfry.outbox (tenant, channel, recipient, content) FROM STDIN";
        let mut sink = Box::pin(self.client.copy_in::<_, Bytes>(copy).await.unwrap());
        for tenant in tenants {
            sink.send(Bytes::from(format!("{tenant}\tc\tr\t1\n"))).await.unwrap();
        }
        sink.as_mut().finish().await.map_err(|error| error.as_db_error().unwrap().clone())
    }

    /// Takes the role away with all that it was granted.
    async fn end(self) {
        let role = &self.role;
        let drop = format!("RESET SESSION AUTHORIZATION; DROP OWNED BY {role}; DROP ROLE {role}");
        self.run(&drop).await.unwrap();
    }
}

/// A statement of the owner of the outbox.
async fn by_owner(bench: &Bench, statement: &str) {
    bench.application().await.batch_execute(statement).await.unwrap();
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(written: Result<T, DbError>, role: &str, tenant: &str) {
    let error = written.unwrap_err();
    assert_eq!(error.code(), &SqlState::INSUFFICIENT_PRIVILEGE, "{error}");
    let expect = format!("role \"{role}\" may not write notifications of the tenant \"{tenant}\"");
    assert_eq!(error.message(), expect);
    assert!(error.hint().unwrap().contains("belfry.outbox_tenant"), "{error:?}");
}

#[tokio::test]
async fn a_role_writes_its_own_tenants_by_every_statement_and_no_others() {
    let bench = Bench::new().await;
    let shop = Application::new(&bench, true).await;
    let role = shop.role.clone();
    shop.write("shop").await.unwrap();
    assert_refused(shop.write("other").await, &role, "other");
    let several = format!("{INSERT} VALUES ('shop', 'c', 'r', '1'), ('other', 'c', 'r', '1')");
    assert_refused(shop.run(&several).await, &role, "other");
    let select = |tenants: &str| {
        format!("{INSERT} SELECT tenant, 'c', 'r', '1' FROM unnest(ARRAY[{tenants}]) AS tenant")
    };
    shop.run(&select("'shop', 'shop'")).await.unwrap();
    assert_refused(shop.run(&select("'shop', 'other'")).await, &role, "other");
    assert_eq!(shop.copy(&["shop", "shop", "shop"]).await.unwrap(), 3);
    assert_refused(shop.copy(&["shop", "other"]).await, &role, "other");
    // Without a tenant it is `default`, which is another one.
    let unnamed = "INSERT INTO belfry.outbox (channel, recipient, content) VALUES ('c', 'r', '1')";
    let error = shop.run(unnamed).await.unwrap_err();
    assert_eq!(error.detail(), Some("It may write those of: shop."));
    assert_refused(Err::<(), _>(error), &role, "default");
    // It neither reads nor changes what it may.
    for statement in [
        "SELECT FROM belfry.outbox_tenant",
        "INSERT INTO belfry.outbox_tenant VALUES ('public', '*')",
        "SELECT belfry.outbox_tenants_of('public', 'USAGE')",
        "ALTER TABLE belfry.outbox DISABLE TRIGGER outbox_tenants",
    ] {
        let error = shop.run(statement).await.unwrap_err();
        assert_eq!(error.code(), &SqlState::INSUFFICIENT_PRIVILEGE, "{statement}: {error}");
    }
    let second = format!("INSERT INTO belfry.outbox_tenant VALUES ('{role}', 'default')");
    by_owner(&bench, &second).await;
    shop.run(unnamed).await.unwrap();
    shop.write("shop").await.unwrap();
    shop.end().await;
    assert_eq!(bench.drain().await, drained(8, 0));
    the_books_balance(&bench.store).await;
}

#[tokio::test]
async fn a_member_of_a_role_goes_by_its_tenants_and_cannot_become_another_on_the_way() {
    let bench = Bench::new().await;
    let shop = Application::new(&bench, true).await;
    let (role, readers) = (&shop.role, format!("{}_readers", shop.role));
    let roles = [format!("{role}_member"), format!("{role}_proxy")];
    let [member, proxy] = &roles;
    by_owner(
        &bench,
        &format!(
            "CREATE ROLE {readers}; CREATE ROLE {member} IN ROLE {role}, {readers}; \
             CREATE ROLE {proxy} NOINHERIT IN ROLE {role}, {readers}"
        ),
    )
    .await;
    let session = async |login: &str| {
        let become_it = format!("RESET SESSION AUTHORIZATION; SET SESSION AUTHORIZATION {login}");
        shop.run(&become_it).await.unwrap();
    };
    let changing = |other: &str| {
        format!("{INSERT} SELECT 'other', 'c', set_config('role', '{other}', false), '1'")
    };
    session(member).await;
    shop.write("shop").await.unwrap();
    assert_refused(shop.write("other").await, member, "other");
    assert_refused(shop.run(&changing(&readers)).await, member, "other");
    session(proxy).await;
    let closed = shop.write("shop").await.unwrap_err();
    assert_eq!(closed.message(), "permission denied for schema belfry");
    shop.run(&format!("SET ROLE {role}")).await.unwrap();
    shop.write("shop").await.unwrap();
    assert_refused(shop.write("other").await, role, "other");
    for other in ["none", &readers] {
        assert_refused(shop.run(&changing(other)).await, proxy, "other");
        shop.run(&format!("SET ROLE {role}")).await.unwrap();
    }
    shop.run(&format!("RESET SESSION AUTHORIZATION; DROP ROLE {member}, {proxy}, {readers}"))
        .await
        .unwrap();
    shop.end().await;
    assert_eq!(bench.drain().await, drained(2, 0));
}

#[tokio::test]
async fn a_function_of_a_role_writes_what_that_role_may_whoever_calls_it() {
    let bench = Bench::new().await;
    let (shop, caller) =
        (Application::new(&bench, true).await, Application::new(&bench, false).await);
    let role = &shop.role;
    let make = format!(
        "CREATE SCHEMA app; GRANT USAGE ON SCHEMA app TO PUBLIC; \
         CREATE FUNCTION app.write(tenant text) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = '' \
         AS $$ {INSERT} VALUES (tenant, 'c', 'r', '1') $$; ALTER FUNCTION app.write OWNER TO {role}"
    );
    by_owner(&bench, &make).await;
    caller.run("SELECT app.write('shop')").await.unwrap();
    assert_refused(caller.run("SELECT app.write('other')").await, role, "other");
    by_owner(&bench, "DROP SCHEMA app CASCADE").await;
    caller.end().await;
    shop.end().await;
}

#[tokio::test]
async fn roles_without_a_row_write_all_until_there_is_one_for_public() {
    let bench = Bench::new().await;
    let (shop, free) =
        (Application::new(&bench, true).await, Application::new(&bench, false).await);
    free.write("other").await.unwrap();
    by_owner(&bench, &statements("## Let an application in")[2]).await;
    free.write("default").await.unwrap();
    assert_refused(free.write("other").await, &free.role, "other");
    // One that has a row of its own goes by that alone.
    shop.write("shop").await.unwrap();
    assert_refused(shop.write("default").await, &shop.role, "default");
    let all = format!("INSERT INTO belfry.outbox_tenant VALUES ('{}', '*')", free.role);
    by_owner(&bench, &all).await;
    free.write("other").await.unwrap();
    // The owner may change the rows, and is not bound by them.
    by_owner(&bench, &format!("{INSERT} VALUES ('third', 'c', 'r', '1')")).await;
    free.end().await;
    shop.end().await;
    assert_eq!(bench.drain().await, drained(5, 0));
}

#[tokio::test]
async fn an_application_from_before_an_upgrade_goes_on_writing_all_its_tenants() {
    let bench = Bench::new().await;
    let before = "DROP TRIGGER outbox_tenants ON belfry.outbox; DROP FUNCTION belfry.outbox_tenants; \
         DROP FUNCTION belfry.outbox_check_tenants; DROP FUNCTION belfry.outbox_tenants_of; \
         DROP TABLE belfry.outbox_tenant; DELETE FROM belfry.refinery_schema_history WHERE version >= 30";
    by_owner(&bench, before).await;
    let shop = Application::new(&bench, false).await;
    for tenant in ["default", "shop"] {
        shop.write(tenant).await.unwrap();
    }
    let upgraded = open(&bench.database).await;
    for tenant in ["default", "shop"] {
        shop.write(tenant).await.unwrap();
    }
    assert_eq!(upgraded.drain(validator(), at(0)).await.unwrap(), drained(4, 0));
    shop.end().await;
}
