//! The project's own checks and generators: `cargo xtask docs` and `cargo xtask tidy`.

mod docs;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;

fn main() -> anyhow::Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match std::env::args().nth(1).as_deref() {
        Some("docs") => docs::write(&root),
        Some("tidy") => tidy::run(&root),
        _ => bail!("usage: cargo xtask docs | tidy"),
    }
}
