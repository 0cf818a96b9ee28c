//! The accounts and the metrics of tenants.

use std::time::Duration;

use api::Site;
use axum::body::Body;
use axum::http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::keys::{call, key};
use crate::support::{Fixture, fixture, notification};

/// Two of `acme`, one of them cancelled; one of `globex`.
async fn two_tenants() -> Fixture {
    let fixture = fixture(vec![key("acme", false), key("globex", false), key("ops", true)]);
    for (tenant, to) in [("acme", "a1"), ("acme", "a2"), ("globex", "b1")] {
        let body = notification(to, "");
        let made = call(&fixture, tenant, Method::POST, "/v1/notifications", &body).await;
        if to == "a2" {
            let cancel = format!("{}/cancel", made.header("location"));
            call(&fixture, tenant, Method::POST, &cancel, "").await.json();
        }
    }
    fixture
}

/// The account that is asked for with `query`, without counts of nothing.
async fn account(fixture: &Fixture, name: &str, query: &str) -> Value {
    let path = format!("/v1/account{query}");
    let mut account = call(fixture, name, Method::GET, &path, "").await.json();
    account.as_object_mut().unwrap().retain(|_, count| *count != json!(0));
    account
}

/// The metrics that `site` shows to the key `name`.
async fn metrics(site: &Site, name: &str) -> String {
    let request = Request::get("/metrics").header("authorization", format!("Bearer bfy_{name}"));
    let answer = site.router().clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_tenant_reads_its_own_account_and_an_operator_any() {
    let fixture = two_tenants().await;
    let acme = json!({"tenant": "acme", "accepted": 2, "cancelled": 1, "pending": 1});
    let globex = json!({"tenant": "globex", "accepted": 1, "pending": 1});
    assert_eq!(account(&fixture, "acme", "").await, acme);
    assert_eq!(account(&fixture, "acme", "?tenant=acme").await, acme);
    assert_eq!(account(&fixture, "globex", "").await, globex);
    assert_eq!(account(&fixture, "ops", "").await, json!({"tenant": "ops"}), "it never had any");
    assert_eq!(account(&fixture, "ops", "?tenant=globex").await, globex);
    let others = call(&fixture, "globex", Method::GET, "/v1/account?tenant=acme", "").await;
    others.problem(403);
    call(&fixture, "acme", Method::GET, "/v1/account?tennant=acme", "").await.problem(400);
    let audit = call(&fixture, "ops", Method::GET, "/v1/audit", "").await.json();
    let tenants = audit["tenants"].as_array().unwrap();
    let counts = |account: &Value| (account["tenant"].clone(), account["accepted"].clone());
    let counts: Vec<_> = tenants.iter().map(counts).collect();
    assert_eq!(counts, [(json!("acme"), json!(2)), (json!("globex"), json!(1))]);
    assert_eq!((&audit["accepted"], &audit["balanced"]), (&json!(3), &json!(true)));
}

#[tokio::test(start_paused = true)]
async fn an_operator_lists_the_tenants_that_have_anything() {
    let fixture = two_tenants().await;
    let list = async |name: &str, query: &str| {
        call(&fixture, name, Method::GET, &format!("/v1/tenants{query}"), "").await
    };
    let all = list("ops", "").await.json();
    let mut items = all["items"].as_array().unwrap().clone();
    assert_eq!(all["next"], Value::Null);
    for item in &mut items {
        item.as_object_mut().unwrap().retain(|_, count| *count != json!(0));
    }
    let acme = json!({"tenant": "acme", "accepted": 2, "cancelled": 1, "pending": 1});
    let globex = json!({"tenant": "globex", "accepted": 1, "pending": 1});
    assert_eq!(items, [acme, globex]);
    let first = list("ops", "?limit=1").await.json();
    assert_eq!((&first["items"][0]["tenant"], &first["next"]), (&json!("acme"), &json!("acme")));
    let second = list("ops", "?limit=1&after=acme").await.json();
    assert_eq!((&second["items"][0]["tenant"], &second["next"]), (&json!("globex"), &Value::Null));
    assert_eq!(list("ops", "?after=globex").await.json()["items"], json!([]));
    list("ops", "?after=A%20b").await.problem(400);
    list("acme", "").await.problem(403);
}

#[tokio::test(start_paused = true)]
async fn metrics_are_those_of_the_tenant_but_for_operators() {
    let fixture = two_tenants().await;
    tokio::time::advance(Duration::from_secs(3)).await;
    let own = [
        "belfry_notifications_accepted_total 1\n",
        "belfry_notifications{state=\"pending\"} 1\n",
        "belfry_notifications{state=\"cancelled\"} 0\n",
        "belfry_pauses 0\n",
        "belfry_oldest_due_seconds 3.",
    ];
    let of_all =
        ["belfry_notifications_accepted_total 3\n", "belfry_available{part=\"start\"} 0\n"];
    // With an address of their own for operators, it says who asks: any key is answered there as theirs, and none elsewhere.
    for (site, name, is_operator) in [
        (&fixture.site, "globex", false),
        (&fixture.site, "ops", true),
        (&fixture.public, "globex", false),
        (&fixture.operators, "globex", true),
        (&fixture.operators, "ops", true),
    ] {
        let metrics = metrics(site, name).await;
        let expected = if is_operator { &of_all[..] } else { &own };
        for line in expected {
            assert!(metrics.contains(line), "{name}: {line}{metrics}");
        }
        assert_eq!(metrics.contains("belfry_available"), is_operator, "{name}: {metrics}");
        assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    }
    let ops = metrics(&fixture.public, "ops").await;
    assert!(ops.contains("belfry_notifications_accepted_total 0\n"), "{ops}");
}

/// A store that an older version wrote has counted for all tenants together.
#[tokio::test(start_paused = true)]
async fn an_account_that_is_not_known_yet_is_not_shown() {
    let fixture = two_tenants().await;
    fixture.store.unassign_totals();
    let answer = call(&fixture, "acme", Method::GET, "/v1/account", "").await;
    assert_eq!(answer.problem(503)["code"], "account_unknown");
    assert_eq!(answer.header("retry-after"), "60");
    let tenants = call(&fixture, "ops", Method::GET, "/v1/tenants", "").await;
    assert_eq!(tenants.problem(503)["code"], "account_unknown");
    let of_tenant = metrics(&fixture.site, "acme").await;
    assert!(!of_tenant.contains("belfry_notifications"), "{of_tenant}");
    assert!(of_tenant.contains("belfry_pauses 0\n"), "{of_tenant}");
    let of_all = metrics(&fixture.site, "ops").await;
    assert!(of_all.contains("belfry_notifications_accepted_total 3\n"), "{of_all}");
    let (store, acme) = (&*fixture.store, "acme".parse().unwrap());
    assert!(store::assign_totals(store, store, &acme).await.unwrap());
    assert_eq!(account(&fixture, "acme", "").await["accepted"], 2);
}
