//! Writes the generated pages. Tests beside each source compare them.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};

/// Writes all of them.
pub(crate) fn write(root: &Path) -> anyhow::Result<ExitCode> {
    let docs = root.join("docs");
    fs::create_dir_all(docs.join("reference"))?;
    fs::write(docs.join("lifecycle.md"), notification::lifecycle::to_markdown())?;
    fs::write(docs.join("reference/cli.md"), belfry(root, &["reference"])?)?;
    fs::write(docs.join("reference/problems.md"), of_api(root, "problems")?)?;
    fs::write(docs.join("reference/openapi.json"), of_api(root, "openapi")?)?;
    let configuration = belfry(root, &["check-config", "--reference"])?;
    fs::write(docs.join("reference/configuration.md"), configuration)?;
    Ok(ExitCode::SUCCESS)
}

/// The output of the binary.
fn belfry(root: &Path, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    output(root, &["--package", "belfry"], arguments)
}

/// A page of the HTTP API.
fn of_api(root: &Path, page: &str) -> anyhow::Result<Vec<u8>> {
    output(root, &["--package", "api", "--example", "reference"], &[page])
}

/// The output of a program of the workspace.
fn output(root: &Path, program: &[&str], arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root).args(["run", "--quiet"]).args(program).arg("--").args(arguments);
    let output = command.output().context("cannot run cargo")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    let program = program.last().copied().unwrap_or_default();
    ensure!(output.status.success(), "{program} {} failed: {complaint}", arguments.join(" "));
    Ok(output.stdout)
}
