//! The tree is tidy, and every rule can fail.

use std::path::Path;

use super::edges::Edge;
use super::files::SourceFile;
use super::{edges, files};

#[test]
fn the_tree_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let offences = super::check(&root).unwrap();
    assert!(offences.is_empty(), "{}", offences.join("\n"));
}

#[test]
fn the_tree_is_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = files::read(&root).unwrap();
    for path in
        ["Cargo.toml", "xtask/src/tidy/tests.rs", "crates/belfry/src/main.rs", "docs/lifecycle.md"]
    {
        assert!(files.iter().any(|file| file.path == path), "{path}");
    }
    let edges = edges::read(&root).unwrap();
    assert!(edges.iter().any(|edge| edge.from == "store" && edge.to == "notification"));
}

#[test]
fn a_file_is_refused_for_what_it_holds() {
    let check = |path: &str, text: &str, expect: &[&str]| {
        let file = SourceFile { path: path.to_owned(), text: text.to_owned() };
        let expect: Vec<String> =
            expect.iter().map(|offence| format!("{path}: {offence}")).collect();
        assert_eq!(files::check(&file), expect);
    };
    let good = "//! Doc.\n";
    check("crates/flow/src/lib.rs", good, &[]);
    check("crates/flow/src/lib.rs", "use x;\n", &["must begin with a module doc (`//!`)"]);
    check("a.rs", &good.repeat(500), &[]);
    check("a.rs", &good.repeat(501), &["501 lines, at most 500 are allowed: split it"]);
    let leftover = concat!("FIX", "ME");
    check(
        "docs/a.md",
        &format!("fine\n{leftover} later\n"),
        &[&format!("line 2 holds {leftover}: do it, or write it down as an issue")],
    );
    let path = concat!("/ho", "me/");
    check("Makefile", path, &[&format!("line 1 holds {path}, which exists on one machine only")]);
}

#[test]
fn a_stage_that_imports_a_stage_is_refused() {
    let check = |path: &str, line: &str, expect: &[&str]| {
        let file = SourceFile { path: path.to_owned(), text: format!("//! Doc.\n{line}\n") };
        let expect: Vec<String> = expect
            .iter()
            .map(|name| format!("{path}: the stage deliver must not know the stage {name}"))
            .collect();
        assert_eq!(files::check(&file), expect, "{line}");
    };
    let deliver = "crates/pipeline/src/deliver/run.rs";
    check(deliver, "use crate::settle::Settler;", &["settle"]);
    check(
        deliver,
        "use crate::{channels::Channels, ingest, dispatch::run};",
        &["ingest", "dispatch"],
    );
    check("crates/pipeline/src/deliver.rs", "fn f() { crate::ingest::f() }", &["ingest"]);
    check(deliver, "use crate::deliver::plan; use crate::channels::Channels;", &[]);
    check("crates/pipeline/src/lib.rs", "use crate::settle;", &[]);
    check(deliver, "/// Hands over to settle.", &[]);
}

#[test]
fn a_backend_named_outside_the_binary_is_refused() {
    let check = |path: &str, line: &str, is_refused: bool| {
        let file = SourceFile { path: path.to_owned(), text: format!("//! Doc.\n{line}\n") };
        assert_eq!(!files::check(&file).is_empty(), is_refused, "{path}: {line}");
    };
    check("crates/pipeline/src/lib.rs", "use store::sqlite::Sqlite;", true);
    check("crates/api/src/lib.rs", "use channel::apns::Settings;", true);
    check("crates/api/src/lib.rs", "#[cfg(test)]\nmod tests { use store::memory::Memory; }", false);
    check("crates/api/tests/http.rs", "use store::memory::Memory;", false);
    check("crates/store/src/lib.rs", "pub use sqlite::Sqlite;", false);
    check("crates/belfry/src/serve.rs", "use store::sqlite::Sqlite;", false);
    check("crates/pipeline/src/lib.rs", "use rusqlite::Connection;", false);
}

#[test]
fn an_edge_that_is_not_in_the_table_is_refused() {
    let check = |from: &str, to: &str, is_for_tests: bool, is_ours: bool, is_refused: bool| {
        let edge = Edge { from: from.to_owned(), to: to.to_owned(), is_for_tests, is_ours };
        assert_eq!(!edges::check(&[edge]).is_empty(), is_refused, "{from} -> {to}");
    };
    check("store", "notification", false, true, false);
    check("store", "queue", false, true, true);
    check("channel", "store", false, true, true);
    check("queue", "pipeline", true, true, true);
    check("pipeline", "api", false, true, true);
    check("provider-sim", "notification", false, true, true);
    check("channel", "provider-sim", true, true, false);
    check("channel", "provider-sim", false, true, true);
    check("store", "store", true, true, false);
    check("store", "store", false, true, true);
    check("newcomer", "notification", false, true, true);
    check("notification", "tokio", false, false, true);
    check("notification", "serde", false, false, false);
}
