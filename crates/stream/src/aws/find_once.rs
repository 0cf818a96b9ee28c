//! Looking up what a target writes to, once.

use std::future::Future;
use std::time::Duration;

use flow::Clock;
use tokio::sync::OnceCell;
use tokio::time::timeout_at;

use crate::StreamError;

/// Time for credentials, a connection and the look-up: with the calls of a put, less than an attempt may last.
const FIND_TIMEOUT: Duration = Duration::from_secs(8);

/// The value of `cell`, by `find` where there is none yet. Callers that come meanwhile wait for the same; after a failure the next one
/// finds again.
///
/// # Errors
/// As `find`, and when there is nothing within 8 s.
pub async fn find_once<T, F>(
    cell: &OnceCell<T>,
    clock: Clock,
    find: impl FnOnce() -> F,
) -> Result<&T, StreamError>
where
    F: Future<Output = Result<T, StreamError>>,
{
    let deadline = clock.monotonic() + FIND_TIMEOUT;
    let found = timeout_at(deadline, Box::pin(cell.get_or_try_init(find))).await;
    found.unwrap_or_else(|_late| {
        let seconds = FIND_TIMEOUT.as_secs();
        Err(StreamError::Unavailable(format!(
            "AWS, or the place that credentials come from, did not answer within {seconds} s"
        )))
    })
}
