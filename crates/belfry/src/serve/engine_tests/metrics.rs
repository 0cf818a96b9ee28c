//! The page about metrics and the metrics of an engine, held against each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;
use flow::Clock;
use hyper::Method;

use super::{Deployment, EngineWorld, settled};
use crate::args::TlsFiles;
use crate::client::EngineApi;
use crate::serve::Role;
use crate::serve::engine::Engine;

/// A row of the page.
#[derive(Debug)]
struct MetricRow {
    kind: String,
    labels: BTreeSet<String>,
}

/// How one number for all processes is made.
const COMBINED: [&str; 3] = ["sum", "max", "each"];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The rows of the page, by name.
fn page() -> BTreeMap<String, MetricRow> {
    let page = std::fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let mut rows = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| `belfry_")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, kind, labels, combined, tells, _todo, _] = cells.as_slice() else {
            unreachable!("a row has six cells: {line}");
        };
        assert!(COMBINED.contains(combined) && !tells.is_empty(), "{line}");
        let name = name.trim_matches('`').to_owned();
        assert_eq!(name.ends_with("_total"), *kind == "counter", "{line}");
        let labels = labels.split_whitespace().map(|label| label.trim_matches('`').to_owned());
        let row = MetricRow { kind: (*kind).to_owned(), labels: labels.collect() };
        assert!(rows.insert(name, row).is_none(), "twice: {line}");
    }
    rows
}

/// Names of metrics that the sources under `folder` register: string literals. Tests name some for themselves.
fn registered(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_stem().unwrap().to_str().unwrap().ends_with("tests") {
            continue;
        }
        if path.is_dir() {
            registered(&path, names);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
        for literal in text.split('"').filter(|literal| literal.starts_with("belfry_")) {
            let is_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            if literal.len() > "belfry_".len() && literal.bytes().all(is_name) {
                names.insert(literal.to_owned());
            }
        }
    }
}

#[test]
fn every_metric_that_is_registered_has_a_row_and_every_row_a_metric() {
    let mut names = BTreeSet::new();
    for folder in ["api/src", "pipeline/src", "belfry/src/serve"] {
        registered(&root().join("crates").join(folder), &mut names);
    }
    // The library adds the suffix of a counter.
    let rows: BTreeSet<String> =
        page().into_keys().map(|name| name.trim_end_matches("_total").to_owned()).collect();
    let not_on_page: Vec<_> = names.difference(&rows).collect();
    assert!(not_on_page.is_empty(), "docs/metrics.md lacks {not_on_page:?}");
    let not_registered: Vec<_> = rows.difference(&names).collect();
    assert!(not_registered.is_empty(), "nothing registers {not_registered:?}");
}

async fn scrape(engine: &Engine) -> String {
    let url = format!("http://{}", engine.places().shown().unwrap());
    let api = EngineApi::new(&url, None, TlsFiles::default()).unwrap();
    let call = api.call(&mut None, Method::GET, "/metrics", Bytes::new()).await;
    let answer = call.unwrap().into_result().unwrap();
    answer.text()
}

/// Holds types and labels of `metrics` (`OpenMetrics`) against the page.
fn check(metrics: &str) {
    let rows = page();
    let mut kinds = BTreeMap::new();
    for line in metrics.lines() {
        if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let row = rows.get(&format!("{name}{suffix}"));
            assert_eq!(row.map(|row| row.kind.as_str()), Some(kind), "{name}");
            kinds.insert(name.to_owned(), kind.to_owned());
            continue;
        }
        let Some((name, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let suffixes = ["_bucket", "_sum", "_count"];
        let base = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        let row = rows.get(name).or_else(|| rows.get(base)).unwrap();
        let labels = labels.rsplit_once('}').unwrap().0;
        let keys = labels.split("\",").map(|label| label.split_once('=').unwrap().0);
        let keys: BTreeSet<String> = keys.filter(|key| *key != "le").map(str::to_owned).collect();
        assert_eq!(keys, row.labels, "{line}");
    }
    assert!(kinds.len() > 10, "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_of_an_engine_are_as_the_page_says() {
    let world = EngineWorld::of(Deployment::OneMachine).await;
    let clock = Clock::system();
    let before = clock.wall().as_secs_f64();
    let engine = world.start(Role::Both, clock).await;
    world.send(&engine, 3, "at_least_once", None).await;
    settled(&engine, 3).await;
    let metrics = scrape(&engine).await;
    check(&metrics);
    let version = env!("CARGO_PKG_VERSION");
    for line in [
        &*format!("belfry_build_info{{version=\"{version}\",role=\"serve\"}} 1\n"),
        "belfry_config_last_reload_successful 1\n",
        "belfry_notifications_accepted_total 3\n",
        "belfry_attempts_total{channel=\"hooks\",code=\"200\"} 3\n",
        "belfry_deliveries_total{channel=\"hooks\",outcome=\"delivered\"} 3\n",
        // Before its first count.
        "belfry_deliveries_total{channel=\"hooks\",outcome=\"refused\"} 0\n",
        "belfry_attempt_wire_seconds_count{channel=\"hooks\"} 3\n",
        "belfry_pushes_back_total{channel=\"hooks\",kind=\"busy\"} 0\n",
        "belfry_attempts_lost_total{channel=\"hooks\"} 0\n",
        "belfry_attempts_in_flight{channel=\"hooks\"} 0",
        "belfry_destinations{channel=\"hooks\"} 1",
        "belfry_lanes_waiting{channel=\"hooks\",priority=\"normal\"} 0\n",
        "belfry_store_commit_seconds_bucket{le=\"+Inf\",synced=\"yes\"} ",
        "belfry_store_transaction_requests_bucket{le=\"1.0\"} ",
        "belfry_api_request_seconds_count{route=\"/v1/notifications\",method=\"POST\",status=\"2xx\"} 1\n",
        "belfry_render_seconds_count 0\n",
        "belfry_renders_waiting 0\n",
        "belfry_store_wal_bytes ",
        "belfry_clock_offset_seconds ",
        "belfry_connections_open{channel=\"hooks\"} ",
        "belfry_connections_failed_total{channel=\"hooks\",cause=\"tls\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    for name in ["process_start_time", "config_last_reload_success_timestamp"] {
        let name = format!("belfry_{name}_seconds ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        let seconds: f64 = line.unwrap().parse().unwrap();
        assert!((before..=clock.wall().as_secs_f64()).contains(&seconds), "{name}{seconds}");
    }
    engine.note_reload(false);
    engine.note_reload(true);
    engine.note_reload(false);
    let metrics = scrape(&engine).await;
    for line in [
        "belfry_config_last_reload_successful 0\n",
        "belfry_config_reloads_total{result=\"done\"} 1\n",
        "belfry_config_reloads_total{result=\"refused\"} 2\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_started_when_it_did_and_not_when_its_database_came_back() {
    let mut world = EngineWorld::of(Deployment::Shared).await;
    let direct = world.database.as_ref().unwrap().url().to_owned();
    let url = direct.clone();
    let proxy = tokio::task::spawn_blocking(move || testbed::Proxy::before(&url).unwrap());
    let proxy = proxy.await.unwrap();
    world.places = world.places.replace(&direct, proxy.url());
    proxy.freeze();
    let clock = Clock::system();
    let before = clock.wall().as_secs_f64();
    let unblock = async {
        let now = clock.wall().as_secs_f64();
        proxy.pass();
        now
    };
    let (engine, came_back) = tokio::join!(Box::pin(world.start(Role::Both, clock)), unblock);
    let metrics = scrape(&engine).await;
    for name in ["process_start_time", "config_last_reload_success_timestamp"] {
        let name = format!("belfry_{name}_seconds ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        let seconds: f64 = line.unwrap().parse().unwrap();
        assert!((before..=came_back).contains(&seconds), "{name}{seconds}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_of_a_process_of_a_cluster_are_as_the_page_says() {
    let world = EngineWorld::of(Deployment::Shared).await;
    let engine = world.start(Role::Both, Clock::system()).await;
    world.send(&engine, 3, "at_least_once", None).await;
    settled(&engine, 3).await;
    let metrics = scrape(&engine).await;
    check(&metrics);
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_default().parse::<f64>().unwrap_or_default()
    };
    assert!(value("belfry_store_commit_seconds_count{synced=\"yes\"}") > 1.0, "{metrics}");
    assert!(value("belfry_store_transaction_requests_sum") > 1.0, "{metrics}");
    assert!(value("belfry_store_transaction_requests_count") > 1.0, "{metrics}");
    assert!(!metrics.contains("belfry_store_wal_bytes"), "{metrics}");
    for line in ["belfry_workers 1\n", "belfry_clock_offset_seconds "] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
}
