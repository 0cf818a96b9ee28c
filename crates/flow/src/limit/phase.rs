//! The phases of a learned limit.

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Phase {
    /// The first answers are the first measure of the unloaded latency.
    First,
    /// Up to `goal`, or until latency rises; `from` is the limit of the window before.
    SlowStart {
        goal: f64,
        from: f64,
    },
    Steady,
    Draining(Drain),
}

/// A measurement of the unloaded latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Drain {
    /// The limit to return to.
    pub(super) before: f64,
    /// The limit of the step before, and its latency.
    pub(super) from: f64,
    pub(super) from_level: f64,
    /// True if that latency still grew when the limit was lowered, by its last answers.
    pub(super) is_growing: bool,
}
