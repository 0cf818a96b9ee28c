//! The mark that is written before the first byte of a delivery that must be sent at most once.

use async_trait::async_trait;
use notification::Report;

/// Begins deliveries: marks them durably as about to be sent, in the order of their index.
///
/// Other deliveries may be marked along with the one that is asked for, so it is asked when that one has what it is sent over: a
/// stream, a connection. What waits for one is then not marked, or hardly any of it, and a crash leaves it due and not in doubt.
#[async_trait(?Send)]
pub trait Fence: std::fmt::Debug {
    /// True if the delivery at `index` is begun and may be sent.
    fn is_begun(&self, index: u16) -> bool;

    /// Waits until the delivery at `index` is begun. The wait may be given up.
    ///
    /// # Errors
    /// The report instead, when it cannot be begun: it must not be sent.
    async fn begin(&self, index: u16) -> Result<(), Report>;
}
