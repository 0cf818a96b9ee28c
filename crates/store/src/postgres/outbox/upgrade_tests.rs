//! The outbox before and after an upgrade: rows, grants, and processes of the version before.

use super::tests::{Bench, INSERT, drained, statements, validator};
use super::*;
use crate::conformance::{at, the_books_balance};
use crate::postgres::setup_tests::open;

/// The schema before rows could have templates, and labels.
const WITHOUT_TEMPLATES: &str = "ALTER TABLE belfry.outbox DROP COLUMN template, DROP COLUMN variables, DROP COLUMN fallback, \
         DROP COLUMN external_id, DROP COLUMN tags, DROP COLUMN metadata, \
         ALTER COLUMN content SET NOT NULL; \
     ALTER TABLE belfry.outbox_rejected DROP COLUMN template, DROP COLUMN variables, DROP COLUMN fallback, \
         DROP COLUMN external_id, DROP COLUMN tags, DROP COLUMN metadata, \
         ALTER COLUMN content SET NOT NULL; \
     DELETE FROM belfry.refinery_schema_history WHERE version >= 2";

/// The schema before rows could have labels.
const WITHOUT_LABELS: &str = "ALTER TABLE belfry.outbox DROP COLUMN external_id, DROP COLUMN tags, DROP COLUMN metadata; \
     ALTER TABLE belfry.outbox_rejected DROP COLUMN external_id, DROP COLUMN tags, DROP COLUMN metadata; \
     DELETE FROM belfry.refinery_schema_history WHERE version >= 24";
/// How a process of the version before labels reads a page.
const PAGE_BEFORE: &str = "SELECT txid, id, tenant, channel, recipient, content::text, options::text, priority, guarantee, \
     send_at, expires_at, idempotency_key, template, variables::text, fallback::text \
     FROM outbox_page('3', '9223372036854775807', '3', 0, pg_current_snapshot(), 256)";
/// The columns of the grants that were added after the first version, and those that were added last.
const LATER_COLUMNS: &str =
    ",\n              template, variables, fallback, external_id, tags, metadata";
const LAST_COLUMNS: &str = ", external_id, tags, metadata";

/// The statement of the contract that lets `role` in, without `columns`.
fn grants_without(columns: &str, role: &str) -> String {
    let grants = statements("## Let an application in")[0].replace("shop", role);
    let fewer: Vec<&str> = grants.split(columns).collect();
    assert_eq!(fewer.len(), 2, "{grants}");
    fewer.concat()
}

#[tokio::test]
async fn rows_and_grants_from_before_an_upgrade_go_on_as_before() {
    let bench = Bench::new().await;
    let role = testbed::unique_prefix();
    let client = bench.application().await;
    client.batch_execute(WITHOUT_TEMPLATES).await.unwrap();
    let grants = grants_without(LATER_COLUMNS, &role);
    let make = format!("CREATE ROLE {role}; {grants}; SET ROLE {role}");
    client.batch_execute(&make).await.unwrap();
    client.batch_execute(&format!("{INSERT} VALUES ('c', 'before', '1')")).await.unwrap();
    let upgraded = open(&bench.database).await;
    client.batch_execute(&format!("{INSERT} VALUES ('c', 'after', '1')")).await.unwrap();
    let template =
        "INSERT INTO belfry.outbox (channel, recipient, template) VALUES ('c', 'r', 't')";
    let error = client.batch_execute(template).await.unwrap_err();
    assert_eq!(error.code(), Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE));
    assert_eq!(upgraded.drain(validator(), at(0)).await.unwrap(), drained(2, 0));
    the_books_balance(&upgraded).await;
    let drop = format!("RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}");
    client.batch_execute(&drop).await.unwrap();
}

#[tokio::test]
async fn labels_come_with_an_upgrade_under_processes_and_applications_of_the_version_before() {
    let bench = Bench::new().await;
    let role = testbed::unique_prefix();
    let (client, process) = (bench.application().await, bench.application().await);
    client.batch_execute(WITHOUT_LABELS).await.unwrap();
    let grants = grants_without(LAST_COLUMNS, &role);
    let make = format!("CREATE ROLE {role}; {grants}; SET ROLE {role}");
    client.batch_execute(&make).await.unwrap();
    client.batch_execute(&format!("{INSERT} VALUES ('c', 'before', '1')")).await.unwrap();
    // As its writers plan: once, before the upgrade.
    let settings = "SET search_path = belfry, pg_catalog; SET plan_cache_mode = force_generic_plan";
    process.batch_execute(settings).await.unwrap();
    let page = process.prepare(PAGE_BEFORE).await.unwrap();
    let recipients = async || {
        let rows = process.query(&page, &[]).await.unwrap();
        rows.iter().map(|row| row.get(4)).collect::<Vec<String>>()
    };
    assert_eq!(recipients().await, ["before"]);

    let upgraded = open(&bench.database).await;
    client.batch_execute(&format!("{INSERT} VALUES ('c', 'after', '1')")).await.unwrap();
    let labelled = "INSERT INTO belfry.outbox (channel, recipient, content, tags) VALUES ('c', 'labelled', '1', '[\"a\"]')";
    let error = client.batch_execute(labelled).await.unwrap_err();
    assert_eq!(error.code(), Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE));
    let grants = statements("## Let an application in")[0].replace("shop", &role);
    client.batch_execute(&format!("RESET ROLE; {grants}; SET ROLE {role}")).await.unwrap();
    client.batch_execute(labelled).await.unwrap();
    assert_eq!(recipients().await, ["before", "after", "labelled"]);
    assert_eq!(upgraded.drain(validator(), at(0)).await.unwrap(), drained(3, 0));
    the_books_balance(&upgraded).await;
    let drop = format!("RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}");
    client.batch_execute(&drop).await.unwrap();
}
