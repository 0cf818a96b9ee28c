//! Which crate may depend on which. A new edge is a decision: it is made here.

use std::path::Path;

use anyhow::Context as _;
use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// One dependency of one of our crates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edge {
    /// The crate that depends.
    pub(crate) from: String,
    /// On what.
    pub(crate) to: String,
    /// Whether only its tests do.
    pub(crate) is_for_tests: bool,
    /// Whether `to` is ours.
    pub(crate) is_ours: bool,
}

/// Our crates, and which of ours each may use. Seams do not know each other, backends know their seam only
/// (they live in it) and `net` where they speak TLS, and the simulator shares nothing with what it judges.
const MAY_USE: &[(&str, &[&str])] = &[
    ("notification", &[]),
    ("flow", &[]),
    ("net", &["notification", "flow"]),
    ("store", &["notification", "flow", "net"]),
    ("stream", &["notification", "flow", "net"]),
    ("queue", &["notification", "flow", "stream"]),
    ("channel", &["notification", "flow", "net", "stream"]),
    ("pipeline", &["notification", "flow", "store", "queue", "channel"]),
    ("feed", &["notification", "flow", "store", "stream", "pipeline"]),
    ("api", &["notification", "flow", "store", "channel", "pipeline", "feed"]),
    ("provider-sim", &[]),
    ("testbed", &["flow"]),
    ("bench", &["notification", "flow", "store", "queue", "stream", "provider-sim", "testbed"]),
    (
        "belfry",
        &[
            "notification",
            "flow",
            "store",
            "stream",
            "queue",
            "net",
            "channel",
            "pipeline",
            "feed",
            "api",
            "provider-sim",
            "bench",
        ],
    ),
    ("xtask", &["notification"]),
];

/// Crates that tests of these crates may use besides: the simulator stands for providers, and the testbed starts servers.
const TESTS_MAY_USE: &[(&str, &[&str])] = &[
    ("net", &["testbed"]),
    ("store", &["testbed"]),
    ("stream", &["testbed"]),
    ("queue", &["testbed"]),
    ("channel", &["provider-sim", "testbed"]),
    ("pipeline", &["provider-sim", "testbed"]),
    ("feed", &["flow", "queue", "channel", "testbed"]),
    ("belfry", &["testbed"]),
];

/// The vocabulary does no I/O and knows no runtime.
const NEVER: &[(&str, &[&str])] =
    &[("notification", &["tokio", "futures-util", "hyper", "rusqlite"])];

/// The edges of the workspace, without what third parties depend on.
pub(crate) fn read(root: &Path) -> anyhow::Result<Vec<Edge>> {
    let mut command = MetadataCommand::new();
    let metadata =
        command.current_dir(root).no_deps().exec().context("cannot run cargo metadata")?;
    Ok(metadata.workspace_packages().into_iter().flat_map(edges_of).collect())
}

/// One line for each edge that must not be.
pub(crate) fn check(edges: &[Edge]) -> Vec<String> {
    edges.iter().filter(|edge| !is_allowed(edge)).map(describe).collect()
}

fn edges_of(package: &Package) -> Vec<Edge> {
    let edge = |dependency: &cargo_metadata::Dependency| Edge {
        from: package.name.to_string(),
        to: dependency.name.clone(),
        is_for_tests: dependency.kind == DependencyKind::Development,
        is_ours: dependency.path.is_some(),
    };
    package.dependencies.iter().map(edge).collect()
}

fn is_allowed(edge: &Edge) -> bool {
    let lists = |table: &[(&str, &[&str])]| {
        table.iter().any(|(from, to)| *from == edge.from && to.contains(&edge.to.as_str()))
    };
    if !edge.is_ours {
        return edge.is_for_tests || !lists(NEVER);
    }
    // A crate names itself to switch on a feature for its own tests.
    let is_itself = edge.from == edge.to;
    lists(MAY_USE) || (edge.is_for_tests && (is_itself || lists(TESTS_MAY_USE)))
}

fn describe(edge: &Edge) -> String {
    format!(
        "{} must not depend on {} (the table is in xtask/src/tidy/edges.rs)",
        edge.from, edge.to
    )
}
