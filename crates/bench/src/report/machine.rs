//! The machine and the build that a report is of.

use std::fs;

use serde::{Deserialize, Serialize};

/// A machine, as far as it matters for a figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor, as the kernel names it.
    pub processor: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Version of the kernel.
    pub kernel: String,
    /// Processes that wanted a processor in the minute before it began (the first of `/proc/loadavg`): above 0.5 others disturbed it.
    pub load_before: f64,
}

// === impl Machine ===

impl Machine {
    /// This one. What the kernel does not say is empty.
    pub fn here() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let value = line.unwrap_or_default().trim_start_matches([' ', '\t', ':']);
            value.to_owned()
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kib: u64 = memory.split_whitespace().next().and_then(|it| it.parse().ok()).unwrap_or(0);
        let load = read("/proc/loadavg");
        Self {
            processor: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_bytes: 1024 * kib,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_before: load
                .split_whitespace()
                .next()
                .and_then(|it| it.parse().ok())
                .unwrap_or(0.0),
        }
    }

    /// One line: `2 cores of AMD EPYC, 23 GiB, Linux 6.1`.
    pub fn to_line(&self) -> String {
        let Self { processor, cores, memory_bytes, kernel, .. } = self;
        format!("{cores} cores of {processor}, {} GiB, Linux {kernel}", memory_bytes >> 30)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_what_this_is() {
        let machine = Machine::here();
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20 && !machine.kernel.is_empty());
        assert!(machine.to_line().contains("Linux"));
    }
}
