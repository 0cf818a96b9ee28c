//! The parts that the connections of a listener share: the site that they serve, and when to stop.

use axum::body::{Body, HttpBody};
use axum::http::header::HOST;
use axum::http::{HeaderValue, Request};
use axum::response::Response;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tower::ServiceExt;

use crate::Site;
use crate::limits::FIRST_HEAD_TIMEOUT;
use crate::unauthenticated::ConnectionNote;

/// A site, whichever it is when a request comes.
#[derive(Debug, Clone)]
pub(super) struct ServedSite {
    pub(super) site: watch::Receiver<Site>,
    /// True once no further request is taken.
    pub(super) stopping: watch::Receiver<bool>,
}

/// Until when the head of a connection's first request has to be there.
#[derive(Debug, Clone, Copy)]
pub(super) struct FirstHead(Instant);

// === impl ServedSite ===

impl ServedSite {
    /// Answers `request`, which came by the connection of `note`.
    pub(super) async fn answer<B>(
        &self,
        note: &ConnectionNote,
        mut request: Request<B>,
    ) -> Result<Response, std::convert::Infallible>
    where
        B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        note.note_request();
        request.extensions_mut().insert(note.clone());
        // HTTP/2 has the host in a field of its own, which goes before the header (RFC 9113, section 8.3.1); so has a request to a
        // proxy (RFC 9112, section 3.2.2).
        let authority = request.uri().authority();
        if let Some(Ok(host)) = authority.map(|authority| HeaderValue::try_from(authority.as_str()))
        {
            request.headers_mut().insert(HOST, host);
        }
        // Looked up for each request: a connection that was made during the start is served the whole API later.
        let router = self.site.borrow().router.clone();
        router.oneshot(request.map(Body::new)).await
    }

    /// Removes what uploads that broke off have left.
    pub(super) async fn sweep(&self) {
        let intake = self.site.borrow().intake.clone();
        if let Some(intake) = intake {
            intake.sweep().await;
        }
    }
}

// === impl FirstHead ===

impl FirstHead {
    /// The one of a connection that begins now.
    pub(super) fn of_new_connection() -> Self {
        Self(sleep(FIRST_HEAD_TIMEOUT).deadline())
    }

    /// [`FIRST_HEAD_TIMEOUT`] after the beginning.
    pub(super) fn deadline(self) -> Instant {
        self.0
    }

    /// Ends when it is too late for the head, and not at all if it came.
    pub(super) async fn missed(self, note: &ConnectionNote) {
        if timeout_at(self.0, note.asked()).await.is_ok() {
            std::future::pending::<()>().await;
        }
    }
}
