//! The resources that processes use, from `/proc`.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::fs::{Advice, fadvise};
use rustix::time::{ClockId, clock_gettime};

/// The resources that a process has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in user and kernel mode.
    pub cpu: Duration,
    /// Resident memory when it was looked at, bytes.
    pub memory_bytes: u64,
    /// Peak resident memory, bytes.
    pub memory_bytes_max: u64,
}

/// The fields of a line of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    parent: u32,
    own_ticks: u64,
    /// Of children that ended and were waited for.
    ended_ticks: u64,
}

/// The kernel reports in ticks of 10 ms on every architecture we build for.
const TICK_MS: u64 = 10;
/// Bytes of a block, as the kernel counts them.
const BLOCK: u64 = 512;

// === impl Usage ===

impl Usage {
    /// The resources that `process` has used so far.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn of_process(process: u32) -> Result<Self> {
        let ticks = Times::of(process)?.own_ticks;
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        let bytes = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = value.and_then(|text| text.split_whitespace().next()?.parse().ok());
            1024 * kib.unwrap_or(0_u64)
        };
        Ok(Self {
            cpu: Duration::from_millis(TICK_MS * ticks),
            memory_bytes: bytes("VmRSS:"),
            memory_bytes_max: bytes("VmHWM:"),
        })
    }

    /// Both together, one after the other: the sum of the times, the memory of the other, the higher of the peaks.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            memory_bytes: other.memory_bytes,
            memory_bytes_max: self.memory_bytes_max.max(other.memory_bytes_max),
        }
    }
}

/// Processor time of `root` and all that descends from it, children that ended included.
///
/// # Errors
/// When the kernel does not say.
pub fn cpu_of_tree(root: u32) -> Result<Duration> {
    let mut processes = HashMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(process) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // One that ended meanwhile is counted with its parent.
        if let Ok(times) = Times::of(process) {
            processes.insert(process, times);
        }
    }
    anyhow::ensure!(processes.contains_key(&root), "process {root} is gone");
    Ok(Duration::from_millis(TICK_MS * ticks_of_tree(&processes, root)))
}

/// Processor time of this process, and of its children that ended and were waited for: the commands by which it calls an engine.
///
/// # Errors
/// When the kernel does not say.
pub fn caller_cpu() -> Result<Duration> {
    let times = Times::of(std::process::id())?;
    Ok(Duration::from_millis(TICK_MS * (times.own_ticks + times.ended_ticks)))
}

/// Processor time of this process, all its threads, to the nanosecond.
pub fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(time.tv_sec.cast_unsigned(), nanos)
}

/// Bytes that the files in `directory` take on the disk; those in directories below it do not count.
///
/// # Errors
/// When it cannot be read.
pub fn bytes_on_disk(directory: &Path) -> Result<u64> {
    let mut blocks = 0;
    for entry in std::fs::read_dir(directory)? {
        blocks += entry?.metadata()?.blocks();
    }
    Ok(BLOCK * blocks)
}

/// Has the kernel drop what it holds in memory of the files below `directory`. What runs below the kernel may still hold some.
///
/// # Errors
/// When they cannot be read.
pub fn forget_files(directory: &Path) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            forget_files(&entry.path())?;
        } else if kind.is_file() {
            let file = File::open(entry.path())?;
            // Pages that are not on the disk yet are not dropped.
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

// === impl Times ===

impl Times {
    fn of(process: u32) -> Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        Self::parse(&stat).context("unexpected /proc/PID/stat")
    }

    /// The name, in parentheses, may hold anything; fields are counted behind it.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1);
        let parent = fields.next()?.parse().ok()?;
        // Fields 14 to 17 of proc_pid_stat(5): `utime`, `stime`, `cutime`, `cstime`.
        let ticks: Vec<u64> =
            fields.skip(9).take(4).filter_map(|field| field.parse().ok()).collect();
        let [user, kernel, ended_user, ended_kernel] = ticks.try_into().ok()?;
        Some(Self { parent, own_ticks: user + kernel, ended_ticks: ended_user + ended_kernel })
    }
}

fn ticks_of_tree(processes: &HashMap<u32, Times>, root: u32) -> u64 {
    let is_within = |mut process: u32| {
        while process != root {
            match processes.get(&process) {
                Some(times) => process = times.parent,
                None => return false,
            }
        }
        true
    };
    let within = processes.iter().filter(|(process, _)| is_within(**process));
    within.map(|(_, times)| times.own_ticks + times.ended_ticks).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_behind_a_name_with_parentheses() {
        let line = "77 (a (b) c) S 5 77 77 0 -1 4194560 1 2 3 4 100 20 3 1 20 0 1 0 99";
        let expect = Times { parent: 5, own_ticks: 120, ended_ticks: 4 };
        assert_eq!(Times::parse(line), Some(expect));
    }

    #[test]
    fn a_tree_is_its_root_and_what_descends_from_it() {
        let times = |parent, own_ticks| Times { parent, own_ticks, ended_ticks: 1 };
        let processes = HashMap::from([
            (1, times(0, 1000)),
            (5, times(1, 10)),
            (6, times(5, 20)),
            (7, times(1, 500)),
        ]);
        assert_eq!(ticks_of_tree(&processes, 5), 32);
    }

    #[test]
    fn we_have_used_something_ourselves() {
        let usage = Usage::of_process(std::process::id()).unwrap();
        assert!(usage.memory_bytes > 0 && usage.memory_bytes <= usage.memory_bytes_max);
        assert!(cpu_of_tree(std::process::id()).unwrap() >= usage.cpu);
        // What the one rounds down to ticks, the other has whole.
        assert!(own_cpu() >= usage.cpu && own_cpu() > Duration::ZERO);
        assert!(caller_cpu().unwrap() >= usage.cpu);
    }
}
