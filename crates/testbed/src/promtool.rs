//! promtool, which judges rules of Prometheus.

use std::path::PathBuf;

use anyhow::Result;

use crate::find;

/// The program, of `PATH` or unpacked by `scripts/unpack-servers.sh`.
///
/// # Errors
/// When it is in neither place.
pub fn program() -> Result<PathBuf> {
    let folder = find::build_folder()?.join("servers/prometheus/usr/bin");
    find::program("promtool", &[], &[&*folder.to_string_lossy()])
}
