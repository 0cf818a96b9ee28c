//! The rules that neither the compiler nor clippy checks. A test runs them over the whole tree.

mod edges;
mod files;
mod imports;
mod modules;
mod types;
mod words;

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;

/// Fails when a rule is broken, and names every place.
pub(crate) fn run(root: &Path) -> anyhow::Result<ExitCode> {
    let offences = check(root)?;
    if !offences.is_empty() {
        bail!("not tidy:\n{}", offences.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut offences = edges::check(&edges::read(root)?);
    for file in files::read(root)? {
        offences.extend(files::check(&file));
    }
    let crates = modules::read(root)?;
    offences.extend(types::check(&crates, types::SHARED_NAMES));
    let workspace = imports::Workspace { crates };
    offences.extend(workspace.check());
    Ok(offences)
}

#[cfg(test)]
mod tests;
