//! A part of a processor for a process: a control group of Linux, in either of its versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};

/// A control group whose processes together get a part of one processor. It is removed when this is dropped, after its processes have ended.
#[derive(Debug)]
pub struct ProcessorShare {
    directory: PathBuf,
}

/// Where control groups are: of version 1 those for processor time, of version 2 all.
const FIRST_VERSION: &str = "/sys/fs/cgroup/cpu";
const SECOND_VERSION: &str = "/sys/fs/cgroup";
/// Time after which a group may run again, microseconds: the least with which a twentieth of it is the millisecond that the kernel gives
/// at least.
const PERIOD_US: u32 = 20_000;
const PERCENT_MIN: u32 = 5;

/// Groups that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

// === impl ProcessorShare ===

impl ProcessorShare {
    /// A group that gets `percent` of the time of one processor, at least 5.
    ///
    /// # Errors
    /// When no group can be made: that takes root, in most containers it is not possible, and with version 2 the file
    /// `cgroup.subtree_control` must name `cpu`.
    pub fn of(percent: u32) -> Result<Self> {
        ensure!(percent >= PERCENT_MIN, "{percent} % of a processor: at least {PERCENT_MIN}");
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("belfry-bench-{}-{made}", std::process::id());
        let is_first = Path::new(FIRST_VERSION).is_dir();
        let parent = if is_first { FIRST_VERSION } else { SECOND_VERSION };
        let directory = Path::new(parent).join(name);
        // One that a killed process with this number has left is empty.
        let _none = fs::remove_dir(&directory);
        fs::create_dir(&directory).with_context(|| format!("no control group in {parent}"))?;
        let share = Self { directory };
        let quota_us = PERIOD_US / 100 * percent;
        if is_first {
            share.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
            share.write("cpu.cfs_quota_us", &quota_us.to_string())?;
        } else {
            share.write("cpu.max", &format!("{quota_us} {PERIOD_US}"))?;
        }
        Ok(share)
    }

    /// Fails where a process cannot be limited, which a group that is made does not say yet.
    ///
    /// # Errors
    /// As [`of`](Self::of), and when a process cannot be put into the group.
    pub fn probe() -> Result<()> {
        let share = Self::of(PERCENT_MIN)?;
        let mut process = Command::new("sleep").arg("1").spawn().context("cannot start sleep")?;
        let added = share.add(process.id());
        process.kill()?;
        process.wait()?;
        added
    }

    /// Puts a process with all its threads into the group.
    ///
    /// # Errors
    /// When it has ended.
    pub fn add(&self, process: u32) -> Result<()> {
        self.write("cgroup.procs", &process.to_string())
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.directory.join(file);
        fs::write(&path, value).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for ProcessorShare {
    fn drop(&mut self) {
        // It fails while a process is in it, which is then seen in the list of groups.
        let _removed = fs::remove_dir(&self.directory);
    }
}
