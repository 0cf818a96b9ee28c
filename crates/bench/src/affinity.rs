//! The processors that a row and its processes may use.

use anyhow::{Context as _, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps this thread, and what it starts from now on, on one processor; until it is dropped.
#[derive(Debug)]
pub struct OneProcessor {
    before: CpuSet,
}

// === impl OneProcessor ===

impl OneProcessor {
    /// The first of those that this thread may use.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn pin() -> Result<Self> {
        let before = sched_getaffinity(None)?;
        let first = (0..CpuSet::MAX_CPU).find(|processor| before.is_set(*processor));
        let mut one = CpuSet::new();
        one.set(first.context("a thread has a processor")?);
        sched_setaffinity(None, &one)?;
        Ok(Self { before })
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        // It was so before.
        let _restored = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use std::thread::available_parallelism;

    use super::*;
    use crate::report::Machine;

    #[test]
    fn one_is_used_and_then_all_again() {
        let before = available_parallelism().unwrap();
        let pinned = OneProcessor::pin().unwrap();
        assert_eq!(Machine::here().cores, 1, "a report says so");
        let child = std::process::Command::new("nproc").env_remove("OMP_NUM_THREADS").output();
        assert_eq!(child.unwrap().stdout, b"1\n", "children have it from their parent");
        drop(pinned);
        assert_eq!(available_parallelism().unwrap(), before);
    }
}
