//! Why an engine cannot go on, and how its process ends by that.

use flow::tasks::Ended;
use store::Ending;

/// The failure that ends an engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct Failed {
    reason: String,
    ending: Ending,
}

/// The stages that handle claimed deliveries, beside the senders: a delivery may be what they panic at. Dispatch and collect
/// count its bytes and pass it on, and settle reads what its provider said. Without blame, a delivery that one of them panics
/// at would end the process after each start, and everything else would wait for ever. One that is blamed although the
/// fault has another cause is dead only if it was in flight alone at several such ends and at none was absent, and
/// `belfry requeue` sends it again.
const HANDLE_DELIVERIES: [&str; 3] = ["dispatch", "collect", "settle"];

// === impl Failed ===

impl Failed {
    /// A panic of what handles deliveries: one of those in flight may be the cause.
    pub(super) fn while_delivering(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ending: Ending::Faulted }
    }

    /// Anything else, such as a store or a broker that is gone: no delivery is the cause.
    pub(super) fn otherwise(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ending: Ending::Left }
    }

    /// The ending that the store notes.
    pub(super) fn ending(&self) -> Ending {
        self.ending
    }
}

impl From<Ended> for Failed {
    fn from(ended: Ended) -> Self {
        let reason = ended.to_string();
        if ended.panicked && HANDLE_DELIVERIES.contains(&ended.name) {
            Self::while_delivering(reason)
        } else {
            Self::otherwise(reason)
        }
    }
}
