//! HPACK by others: python3-hpack, a codec of its own.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::find;

const PROGRAM: &str = include_str!("hpack.py");

/// Has the commands of `lines` done in their order, and gives a line for each of them that has an answer. The program's own
/// comment, in `hpack.py`, says which there are.
///
/// # Errors
/// When python3-hpack is missing, or refuses what it is given: in its own words.
pub fn run(lines: &str) -> Result<Vec<String>> {
    let packages = "servers/python3-hpack/usr/lib/python3/dist-packages";
    let packages = find::build_folder()?.join(packages);
    ensure!(
        packages.join("hpack").is_dir(),
        "there is no hpack in {}: run scripts/setup-servers.sh",
        packages.display()
    );
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", PROGRAM]).env("PYTHONPATH", packages);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().context("cannot start python3")?;
    let mut input = running.stdin.take().context("python3 has no input")?;
    let output = std::thread::scope(|scope| {
        // It answers while it reads.
        scope.spawn(move || input.write_all(lines.as_bytes()));
        running.wait_with_output()
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "hpack refuses: {said}");
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}
