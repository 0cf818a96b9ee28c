//! Netty, in a program on its HTTP/2 codec, as Pushy's APNs server for tests is. It is built once for each process of tests.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::{Http2Limits, ServerPlace};
use crate::find;
use crate::keeper::Keeper;

const PROGRAM: &str = include_str!("Server.java");

/// The command `javac`; `java` is beside it.
pub(super) fn toolchain() -> Result<PathBuf> {
    find::program("javac", &["java"], &["/usr/lib/jvm/*/bin"])
}

pub(super) fn command_line(place: &ServerPlace, limits: Http2Limits) -> Result<Vec<OsString>> {
    Http2Limits::refuse(limits.requests, "the requests of a connection")?;
    let mut line: Vec<OsString> = vec![toolchain()?.with_file_name("java").into()];
    // It is to start quickly, and lives for seconds.
    line.extend(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"].map(OsString::from));
    line.push(std::env::join_paths([built()?.as_os_str(), libraries()?.as_os_str()])?);
    line.extend([OsString::from("Server"), place.directory.clone().into()]);
    line.push(place.port.to_string().into());
    let limits = [limits.streams, limits.window_bytes, limits.table_bytes];
    line.extend(
        limits.map(|limit| limit.map_or_else(String::new, |limit| limit.to_string()).into()),
    );
    Ok(line)
}

/// Netty, as a class path: all of a folder that `scripts/unpack-servers.sh` has made.
fn libraries() -> Result<PathBuf> {
    let folder = find::build_folder()?.join("servers/libnetty-java/usr/share/java");
    ensure!(
        folder.join("netty-codec-http2.jar").is_file(),
        "there is no Netty in {}: run scripts/setup-servers.sh",
        folder.display()
    );
    Ok(folder.join("*"))
}

/// The folder of the program.
fn built() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<Keeper, String>> = OnceLock::new();
    let keeper = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    Ok(keeper.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?.directory().to_owned())
}

fn build() -> Result<Keeper> {
    let keeper = Keeper::new("belfry-netty-", Signal::KILL)?;
    let source = keeper.directory().join("Server.java");
    std::fs::write(&source, PROGRAM)?;
    let libraries = libraries()?;
    let mut command = Command::new(toolchain()?);
    command.args([OsStr::new("-cp"), libraries.as_os_str(), OsStr::new("-d")]);
    let output = command.arg(keeper.directory()).arg(source).output();
    let output = output.context("cannot start javac")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "javac (of JDK 11 or later) fails: {said}");
    Ok(keeper)
}
