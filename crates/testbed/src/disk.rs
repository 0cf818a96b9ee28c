//! A small file system that a test fills up, as other programs do on a real machine.
//!
//! It lies in memory, in a mount namespace that the test makes for itself, so no other process sees it and nothing is left
//! of it. What is to happen on it are tests that are marked as ignored: [`SmallDisk::run`] runs the binary that it is called
//! from once more for each of them, within the namespace, and there [`DiskNamespace::of_this_part`] finds the file system.

use std::fs::{File, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::statvfs;
use rustix::process::{getegid, geteuid};

/// A file system to be made.
#[derive(Debug, Clone, Copy)]
pub struct SmallDisk {
    mib: u64,
    is_for_own_user: bool,
}

/// How a part ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartEnd {
    /// As a test that passes.
    Passed,
    /// By SIGABRT: the process was killed at work.
    Aborted,
}

/// The file system, within the namespace.
#[derive(Debug)]
pub struct DiskNamespace {
    directory: PathBuf,
}

/// Where a part finds its directory.
const PLACE: &str = "BELFRY_TEST_SMALL_DISK";
/// The file system within that directory.
const DISK: &str = "data";
/// The namespace was not made, or has no file system.
const NOT_MOUNTED: i32 = 99;

// === impl SmallDisk ===

impl SmallDisk {
    /// A file system of `mib` MiB.
    pub const fn new(mib: u64) -> Self {
        Self { mib, is_for_own_user: false }
    }

    /// The parts run as the user that runs the test, and not as the root of a namespace: PostgreSQL refuses to run as root.
    #[must_use]
    pub const fn for_own_user(self) -> Self {
        Self { is_for_own_user: true, ..self }
    }

    /// Makes the file system and runs `parts`, names of ignored tests of the running binary, one after the other; gives
    /// what they printed.
    ///
    /// # Errors
    /// When this user may not mount a file system in a namespace of its own, or a part does not end as said.
    pub fn run(self, parts: &[(&str, PartEnd)]) -> Result<String> {
        let place = tempfile::tempdir()?;
        std::fs::create_dir(place.path().join(DISK))?;
        // A server that runs as another user passes through.
        std::fs::set_permissions(place.path(), Permissions::from_mode(0o711))?;
        let mut unshare = self.unshare();
        unshare.args(["--mount", "sh", "-c", &self.script(parts)]);
        unshare.arg(std::env::current_exe()?);
        unshare.args([geteuid().as_raw().to_string(), getegid().as_raw().to_string()]);
        let output = unshare.env(PLACE, place.path()).output().context("cannot start unshare")?;
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        ensure!(
            output.status.code() != Some(NOT_MOUNTED),
            "this user may not mount a file system in a namespace of its own: run the test as root, or allow \
             unprivileged user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0): {printed}"
        );
        ensure!(output.status.success(), "{}: {printed}", output.status);
        // A name that no test has is no failure of the binary.
        let passing = parts.iter().filter(|(_, end)| *end == PartEnd::Passed).count();
        let passed = printed.matches("1 passed").count();
        ensure!(passed == passing, "{passed} of {passing} parts ran: {printed}");
        Ok(printed)
    }

    /// Maps the user to root in the namespace, which mounting needs, unless root runs a part of its own.
    fn unshare(self) -> Command {
        let mut unshare = Command::new("unshare");
        if !(self.is_for_own_user && geteuid().is_root()) {
            unshare.arg("--map-root-user");
        }
        unshare
    }

    /// `$0` is the binary of the tests, `$1` and `$2` are the user and the group that run it.
    fn script(self, parts: &[(&str, PartEnd)]) -> String {
        let mib = self.mib;
        let mut script = format!(
            "mount -t tmpfs -o size={mib}m,mode=1777 tmpfs \"${PLACE}/{DISK}\" || exit {NOT_MOUNTED}\nas=\n"
        );
        if self.is_for_own_user {
            script += "[ \"$1\" = 0 ] || as=\"unshare --user --map-user=$1 --map-group=$2\"\n";
        }
        for (name, end) in parts {
            let status = match end {
                PartEnd::Passed => "0",
                // 128 and the number of the signal.
                PartEnd::Aborted => "134",
            };
            let run = format!("$as \"$0\" --ignored --exact {name} --nocapture");
            script.extend([&*run, "\n[ $? -eq ", status, " ] || exit 1\n"]);
        }
        script
    }
}

// === impl DiskNamespace ===

impl DiskNamespace {
    /// The file system that the running part was given.
    ///
    /// # Errors
    /// When [`SmallDisk::run`] has not started this process.
    pub fn of_this_part() -> Result<Self> {
        let directory = std::env::var_os(PLACE).context("not started on a small disk")?;
        Ok(Self { directory: directory.into() })
    }

    /// A directory with plenty of room, in which [`disk`](Self::disk) is called `data`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The root of the file system.
    pub fn disk(&self) -> PathBuf {
        self.directory.join(DISK)
    }

    /// Takes all that is left, as another process would.
    ///
    /// # Errors
    /// When writing fails for another reason than that the disk is full.
    pub fn fill(&self) -> Result<()> {
        let mut filler = File::options().create(true).append(true).open(self.filler())?;
        let block = vec![b'f'; 64 * 1024];
        loop {
            match filler.write_all(&block) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives back what [`fill`](Self::fill) took.
    ///
    /// # Errors
    /// When nothing was taken.
    pub fn make_room(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.filler())?)
    }

    /// Makes it as large as leaves `mib` MiB free: as if other programs had taken, or given back, the rest, and no memory is written to.
    ///
    /// # Errors
    /// When the part runs as its own user, who may not.
    pub fn leave(&self, mib: u64) -> Result<()> {
        let disk = statvfs(self.disk())?;
        let used = disk.f_blocks.saturating_sub(disk.f_bfree).saturating_mul(disk.f_frsize);
        let options = format!("remount,size={}", used.saturating_add(mib << 20));
        let output = Command::new("mount").args(["-o", &options]).arg(self.disk()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "mount: {said}");
        Ok(())
    }

    fn filler(&self) -> PathBuf {
        self.disk().join("filler")
    }
}
