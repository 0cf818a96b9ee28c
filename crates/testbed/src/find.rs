//! Where the servers' programs lie, and which ports are free.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Result;

/// Ports that the kernel does not hand to outgoing connections by itself (those start at 32768), so that a server
/// that was killed finds its own port free when it starts again.
const PORTS: std::ops::Range<u16> = 10_240..32_000;

/// A port of the loopback interface without a listener, another one at each call.
///
/// # Errors
/// When all ports outside the kernel's range for outgoing connections are taken.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run side by side begin at different places.
    let first = std::process::id().wrapping_mul(61);
    for _ in PORTS {
        let offset = first.wrapping_add(u32::from(NEXT.fetch_add(1, Ordering::Relaxed)));
        let port = PORTS.start + u16::try_from(offset % u32::from(PORTS.end - PORTS.start))?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no port of {PORTS:?} is free")
}

/// The newest `program` in `PATH` or in `directories`, with the programs `beside` in the same directory. A `*` at the
/// end of a directory's parent stands for every version.
///
/// # Errors
/// [`NotInstalled`].
pub fn program(program: &str, beside: &[&str], directories: &[&str]) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.extend(directories.iter().flat_map(|pattern| expand(pattern)));
    // A link in PATH leads to the directory where the rest is, or to a wrapper of another name.
    let mut found = places.iter().filter_map(|place| place.join(program).canonicalize().ok());
    let is_it = |path: &PathBuf| {
        path.ends_with(program) && beside.iter().all(|name| path.with_file_name(name).is_file())
    };
    let found = found.find(is_it);
    Ok(found.ok_or_else(|| {
        let places = [&["PATH"], directories].concat().join(", ");
        NotInstalled::new(program, &places, "scripts/setup-servers.sh")
    })?)
}

/// A server's program is not on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotInstalled {
    program: String,
    looked_in: String,
    script: &'static str,
}

// === impl NotInstalled ===

impl NotInstalled {
    /// `program` is in none of the places of `looked_in`; `script` installs it.
    pub(crate) fn new(program: &str, looked_in: &str, script: &'static str) -> Self {
        Self { program: program.to_owned(), looked_in: looked_in.to_owned(), script }
    }
}

impl fmt::Display for NotInstalled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, looked_in, script } = self;
        write!(formatter, "{program} is not installed (looked in {looked_in}): run {script}")
    }
}

impl Error for NotInstalled {}

/// Where cargo builds to: the program that runs lies in it. One that was installed elsewhere finds what was unpacked there if it is
/// started in the checkout.
pub(crate) fn build_folder() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let here = std::env::current_dir()?.join("target");
    // Cargo puts these files there, and nowhere below; the tag only into a folder that it has made itself, which it has not
    // when the mail servers were unpacked there before the first build.
    let marks = ["CACHEDIR.TAG", ".rustc_info.json"];
    let is_marked = |folder: &&Path| marks.iter().any(|mark| folder.join(mark).is_file());
    let found = program.ancestors().chain([here.as_path()]).find(is_marked);
    let found = found.ok_or_else(|| {
        let looked_in = format!("the folders above {}, {}", program.display(), here.display());
        let what = "the build folder of a checkout, with servers unpacked into it,";
        NotInstalled::new(what, &looked_in, "scripts/setup-servers.sh")
    })?;
    Ok(found.to_owned())
}

/// A program of a package that `scripts/unpack-servers.sh` unpacks, unless it is installed.
pub(crate) fn unpacked(name: &str) -> Result<PathBuf> {
    let folder = build_folder()?.join("servers").join(name).join("usr/sbin");
    program(name, &[], &[&*folder.to_string_lossy()])
}

/// Where the libraries are that were unpacked with `program`; `None` if it is not one of those.
fn libraries_beside(program: &Path) -> Option<OsString> {
    let servers = build_folder().ok()?.join("servers").canonicalize().ok()?;
    let usr = program.ancestors().nth(2).filter(|usr| usr.starts_with(servers))?;
    // `x86_64-linux-gnu` and its like.
    let is_of_libraries = |folder: &PathBuf| folder.to_string_lossy().ends_with("-linux-gnu");
    let entries = std::fs::read_dir(usr.join("lib")).ok()?;
    let folders = entries.filter_map(Result::ok).map(|entry| entry.path());
    std::env::join_paths(folders.filter(is_of_libraries)).ok()
}

/// Runs `program`, with the libraries that were unpacked with it, if it is one of those.
pub(crate) fn command_of(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some(libraries) = libraries_beside(program) {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
}

/// `/usr/lib/postgresql/*/bin` as the directories that are there, the highest version first.
fn expand(pattern: &str) -> Vec<PathBuf> {
    let Some((parent, rest)) = pattern.split_once("/*/") else {
        return vec![PathBuf::from(pattern)];
    };
    let entries = std::fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok);
    let mut versions: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    versions.sort_by_key(|version| std::cmp::Reverse(version_of(version)));
    versions.into_iter().map(|version| version.join(rest)).collect()
}

fn version_of(path: &Path) -> Vec<u32> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_compared_by_its_numbers() {
        let of = |text: &str| version_of(Path::new(text));
        assert!(of("/usr/lib/postgresql/15") > of("/usr/lib/postgresql/9.6"));
        assert!(of("rabbitmq_server-3.12.1") > of("rabbitmq_server-3.10.8"));
    }

    #[test]
    fn a_missing_program_says_how_to_install_it() {
        let error = program("no-such-server", &[], &["/nowhere/*/bin"]).unwrap_err();
        assert!(error.is::<NotInstalled>());
        assert!(error.to_string().contains("scripts/setup-servers.sh"), "{error}");
    }

    #[test]
    fn a_free_port_is_another_one_each_time() {
        assert_ne!(free_port().unwrap(), free_port().unwrap());
    }
}
