//! Whether a process takes work, and if not, what it waits for.

use notification::limits::OVERLOAD_RETRY_AFTER;
use tokio::sync::watch;

use crate::problem::Problem;
use crate::problem_code::ProblemCode;

/// The conditions under which a process takes work. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    /// The conditions, by the names that metrics know it by.
    needs: Vec<(&'static str, watch::Receiver<bool>)>,
}

// === impl Readiness ===

impl Readiness {
    /// Adds something that must be fine, by the name that metrics know it by.
    #[must_use]
    pub fn and(mut self, name: &'static str, is_met: watch::Receiver<bool>) -> Self {
        self.needs.push((name, is_met));
        self
    }

    /// Names, and whether each is fine.
    pub(crate) fn needs(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.needs.iter().map(|(name, is_met)| (*name, *is_met.borrow()))
    }
}

/// The answer to whether the process is ready.
pub(crate) fn answer(readiness: &Readiness) -> Result<&'static str, Problem> {
    let missing: Vec<&str> =
        readiness.needs().filter_map(|(name, is_met)| (!is_met).then_some(name)).collect();
    if missing.is_empty() {
        return Ok("ready\n");
    }
    let detail = format!("not ready, waiting for: {}", missing.join(", "));
    Err(Problem::new(ProblemCode::NotReady, detail).retry_after(OVERLOAD_RETRY_AFTER))
}
