//! Go's `net/http`, in a program that is built once for each process of tests.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::{Http2Limits, ServerPlace};
use crate::find;
use crate::keeper::Keeper;

const PROGRAM: &str = include_str!("server.go");

/// The command `go`.
pub(super) fn toolchain() -> Result<PathBuf> {
    find::program("go", &[], &["/usr/local/go/bin", "/usr/lib/go/bin"])
}

pub(super) fn command_line(place: &ServerPlace, limits: Http2Limits) -> Result<Vec<OsString>> {
    Http2Limits::refuse(limits.requests, "the requests of a connection")?;
    let mut line: Vec<OsString> = vec![built()?.into(), place.directory.clone().into()];
    line.push(place.port.to_string().into());
    // 0 is its own default.
    let limits = [limits.streams, limits.window_bytes, limits.table_bytes];
    line.extend(limits.map(|limit| limit.unwrap_or(0).to_string().into()));
    Ok(line)
}

/// The program. What it is made of is kept in the build folder, so that the next process is quick.
fn built() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<Keeper, String>> = OnceLock::new();
    let keeper = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    let folder = keeper.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?.directory();
    Ok(folder.join("server"))
}

fn build() -> Result<Keeper> {
    let keeper = Keeper::new("belfry-go-", Signal::KILL)?;
    let source = keeper.directory().join("server.go");
    std::fs::write(&source, PROGRAM)?;
    let mut command = Command::new(toolchain()?);
    command.args(["build", "-o"]).arg(keeper.directory().join("server")).arg(source);
    command.env("GOCACHE", find::build_folder()?.join("servers").join("go-cache"));
    // Nothing is fetched.
    command.envs([
        ("GOTOOLCHAIN", "local"),
        ("GOPROXY", "off"),
        ("GOFLAGS", ""),
        ("CGO_ENABLED", "0"),
    ]);
    let output = command.current_dir(keeper.directory()).output().context("cannot start go")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "go build (1.24 or later is needed): {said}");
    Ok(keeper)
}
