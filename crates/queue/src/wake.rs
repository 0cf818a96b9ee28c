//! A wait for something that a notice may announce.

use tokio::sync::Notify;

/// Looks at once, and again at each notice, until `look` sees something.
pub(crate) async fn seen<R>(notices: &Notify, mut look: impl FnMut() -> Option<R>) -> R {
    loop {
        let notice = notices.notified();
        tokio::pin!(notice);
        // Registers before looking, so that nothing that comes in between is missed.
        notice.as_mut().enable();
        if let Some(seen) = look() {
            return seen;
        }
        notice.await;
    }
}
