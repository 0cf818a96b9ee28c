//! The project's own checks and generators: `cargo xtask docs`, `tidy`, `test` and `sbom`.

mod docs;
mod sbom;
mod suite;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;

fn main() -> anyhow::Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("docs") => docs::write(&root),
        Some("tidy") => tidy::run(&root),
        Some("sbom") => sbom::print(&root, &arguments.collect::<Vec<_>>()),
        Some("test") => suite::run(&root, &arguments.collect::<Vec<_>>()),
        _ => bail!("usage: cargo xtask docs | tidy | test [PACKAGE]... | sbom TARGET TIME"),
    }
}
