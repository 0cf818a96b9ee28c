//! The tree is tidy, and every rule can fail.

use std::collections::BTreeMap;
use std::path::Path;

use super::edges::Edge;
use super::files::SourceFile;
use super::modules::Krate;
use super::types::{self, SharedName};
use super::{edges, files, imports, modules};

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
    let begins = |line: u8, word: &str| {
        format!(
            "line {line}: a documentation comment begins with \"{word}\": begin with what the item is"
        )
    };
    check("a.rs", "//! What it is.\n", &[&begins(1, "What")]);
    check("a.rs", "//! Doc.\n\n/// The same again.\nfn f() {}\n", &[&begins(3, "The same")]);
    check("a.rs", "//! Doc:\n//! What follows.\n// What for?\n", &[]);
    let says = "line 2: a comment says \"nobody\": name the part";
    check("a.rs", "//! Doc.\n    // Nobody reads it.\n", &[says]);
    check("a.rs", "//! Doc.\n// To `nobody`.\nlet a = \"nobody\";\n", &[]);
    let path = concat!("/ho", "me/");
    check("Makefile", path, &[&format!("line 1 holds {path}, which exists on one machine only")]);
}

/// Crates that are given as texts.
fn crates_of(crates: &[(&str, &[(&str, &str)])]) -> BTreeMap<String, Krate> {
    let read = |(name, texts): &(&str, &[(&str, &str)])| {
        ((*name).to_owned(), modules::from_texts(name, texts))
    };
    crates.iter().map(read).collect()
}

/// The violations of the rules of imports in crates that are given as texts.
fn offences_of(crates: &[(&str, &[(&str, &str)])]) -> Vec<String> {
    imports::Workspace { crates: crates_of(crates) }.check()
}

#[test]
fn a_type_name_with_twomeanings_is_refused() {
    let check = |sqlite: &str, postgres: &str, flow: &str, refused: &[&str]| {
        let store: &[(&str, &str)] = &[
            ("lib.rs", "pub mod sqlite; pub mod postgres; pub trait Store {}"),
            ("sqlite.rs", sqlite),
            ("postgres.rs", postgres),
        ];
        let writer = SharedName { krate: "store", name: "Writer", meaning: "the write side" };
        let crates = crates_of(&[("store", store), ("flow", &[("lib.rs", flow)])]);
        assert_eq!(types::check(&crates, &[writer]), refused, "{sqlite} {postgres} {flow}");
    };
    let (one, other) = ("struct Writer;", "enum Writer {}");
    check(one, other, "", &[]);
    check(one, other, "struct Gate; #[cfg(test)] mod tests { struct Gate; trait Store {} }", &[]);
    check(one, other, "trait Gate { type Store; } impl Gate for u8 { type Store = u8; }", &[]);
    let several = |files: &str, name: &str| {
        format!("{files}: the type name {name} has several meanings: rename all but one")
    };
    let in_both = "store/postgres.rs, store/sqlite.rs";
    let planted = [several(in_both, "Pool")];
    check(
        "struct Writer; type Pool = u8;",
        "struct Writer; trait Pool {}",
        "",
        &planted.each_ref().map(String::as_str),
    );
    let planted = [several(&format!("flow/lib.rs, {in_both}"), "Writer")];
    check(one, other, one, &planted.each_ref().map(String::as_str));
    let planted = [several("store/sqlite.rs, store/sqlite.rs", "Writer")];
    check(
        "struct Writer; mod inner { struct Writer; }",
        "",
        "",
        &planted.each_ref().map(String::as_str),
    );
    let idle = "xtask/src/tidy/types.rs: store has no backends with a Writer, the write side";
    check(one, "", "", &[idle]);
}

#[test]
fn a_stage_that_imports_a_stage_is_refused() {
    let check = |root: &str, deliver: &str, refused: &[&str]| {
        let pipeline: &[(&str, &str)] = &[
            ("lib.rs", root),
            ("deliver/mod.rs", "mod run; mod plan;"),
            ("deliver/run.rs", deliver),
            ("deliver/plan.rs", "pub fn plan() {}"),
            ("settle.rs", "pub struct Settler;"),
            ("collect.rs", "pub fn collect() {}"),
            ("report.rs", "pub struct Report;"),
        ];
        let expect: Vec<String> = refused
            .iter()
            .map(|stage| {
                format!(
                    "pipeline/deliver/run.rs: the stage deliver must not know the stage {stage} \
                     (pipeline/{stage}.rs)"
                )
            })
            .collect();
        assert_eq!(offences_of(&[("pipeline", pipeline)]), expect, "{deliver}");
    };
    let root = "pub mod deliver; pub mod settle; pub mod collect; pub mod report;\n\
                pub use settle::Settler as Last;";
    check(root, "use crate::settle::Settler;", &["settle"]);
    check(root, "use crate::Last;", &["settle"]);
    check(
        root,
        "use super::super::{collect, report::Report}; fn f() { collect::collect() }",
        &["collect"],
    );
    check(root, "fn f() { crate::collect::collect(); crate::settle::g() }", &["collect", "settle"]);
    check(
        root,
        "use crate::deliver::plan; use crate::report::Report; fn f() { plan::plan() }",
        &[],
    );
    check(root, "#[cfg(test)] mod tests { use crate::settle::Settler; }", &[]);
    check(root, "/// Hands over to crate::settle::Settler.\nfn f() {}", &[]);
}

#[test]
fn a_backend_named_outside_the_binary_is_refused() {
    let check = |who: &str, text: &str, is_refused: bool| {
        let store: &[(&str, &str)] = &[
            (
                "lib.rs",
                "mod rows; pub mod sqlite; pub mod postgres; pub mod conformance;\n\
                 pub use sqlite::Sqlite; pub use rows::Row;",
            ),
            ("rows.rs", "pub struct Row;"),
            ("sqlite.rs", "use crate::rows::Row; pub struct Sqlite;"),
            ("postgres.rs", if who == "postgres" { text } else { "" }),
            ("conformance.rs", "pub fn exercise() {}"),
        ];
        let other: &[(&str, &str)] = &[("lib.rs", if who == "postgres" { "" } else { text })];
        let other_name = if who == "postgres" { "api" } else { who };
        let offences = offences_of(&[("store", store), (other_name, other)]);
        assert_eq!(!offences.is_empty(), is_refused, "{who}: {text}: {offences:?}");
    };
    check("api", "use store::sqlite::Sqlite;", true);
    check("bench", "use store::sqlite::Sqlite;", false);
    check("api", "use store::Sqlite;", true);
    check("api", "use store::{self as s, Row}; fn f() -> s::Sqlite {}", true);
    check("api", "use store::Row; use store::conformance::exercise;", false);
    check("api", "#[cfg(test)] mod tests { use store::Sqlite; }", false);
    check("belfry", "use store::sqlite::Sqlite;", false);
    check("postgres", "use crate::sqlite::Sqlite;", true);
    check("postgres", "use crate::Sqlite;", true);
    check("postgres", "use crate::rows::Row;", false);
}

#[test]
fn files_that_import_each_other_are_refused() {
    let check = |texts: &[(&str, &str)], is_refused: bool| {
        let root = [("lib.rs", "mod a; mod b; mod c;")];
        let texts: Vec<(&str, &str)> = root.iter().chain(texts).copied().collect();
        let offences = offences_of(&[("x", &texts)]);
        assert_eq!(!offences.is_empty(), is_refused, "{texts:?}: {offences:?}");
    };
    let a = |text| ("a.rs", text);
    let b = |text| ("b.rs", text);
    check(
        &[a("use crate::b::B; pub struct A;"), b("use super::a::A; pub struct B;"), ("c.rs", "")],
        true,
    );
    let through_c = "pub use crate::a::A;";
    check(
        &[
            a("use crate::b::B; pub struct A;"),
            b("use crate::c::A; pub struct B;"),
            ("c.rs", through_c),
        ],
        true,
    );
    check(
        &[
            a("use crate::b::*; pub struct A;"),
            b("use crate::c::C; pub struct B;"),
            ("c.rs", "use crate::a::A; pub struct C;"),
        ],
        true,
    );
    check(
        &[
            a("use crate::b::B; pub struct A;"),
            b("pub struct B;"),
            ("c.rs", "use crate::{a::A, b::B};"),
        ],
        false,
    );
    // A module and its own children are one: the parent calls them, and they use what it defines.
    check(
        &[
            a(""),
            b(""),
            ("c/mod.rs", "mod d; pub struct C; fn f() { d::d() }"),
            ("c/d.rs", "use super::C; pub fn d() {}"),
        ],
        false,
    );
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
