//! The routes to push services, for one sender thread: HTTP/2 with a pool per origin, and one pool of HTTP/1.1 connections
//! for all that speak nothing else.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::{Authority, PathAndQuery};
use http::{Request, Uri};
use http_body_util::Full;
use net::endpoint::Origin;
use net::exchange::{Failure, Reply, Unsent};
use net::http1::{self, HttpTarget};
use net::http2::{self, Priming};
use net::request_head::{RequestHead, SharedHead};
use net::tcp::Reach;
use net::tries;
use notification::Report;
use rustls::ClientConfig;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::response::READ_FIELDS;
use crate::{Start, Tools};

/// Push services with connections of their own, per sender thread. There are a handful, but an endpoint can name any.
const ORIGINS_MAX: usize = 128;
/// Connections to a push service that speaks only HTTP/1.1, one message at a time each, per sender thread.
const HTTP1_CONNECTIONS_MAX: usize = 16;
/// How long a message waits for one of them. Leaves half of an attempt's time for the answer.
const HTTP1_WAIT: Duration = Duration::from_secs(15);
/// How long a push service counts as one that speaks no HTTP/2.
const ASK_AGAIN_AFTER: Duration = Duration::from_hours(1);

/// How connections are made.
#[derive(Debug, Clone)]
pub(super) struct PushDial {
    pub(super) reach: Arc<dyn Reach>,
    /// Offers HTTP/2 and HTTP/1.1.
    pub(super) tls: Arc<ClientConfig>,
    /// Offers HTTP/1.1.
    pub(super) tls_http1: Arc<ClientConfig>,
    pub(super) connections_max: usize,
}

/// The routes of one thread.
#[derive(Debug)]
pub(super) struct Routes {
    dial: PushDial,
    tools: Tools,
    by_origin: RefCell<HashMap<Origin, Rc<PushRoute>>>,
    http1: http1::Http1Pool,
}

/// The route to one push service.
#[derive(Debug)]
pub(super) struct PushRoute {
    origin: Origin,
    /// The origin as a token names it.
    pub(super) audience: String,
    /// Fields that all requests to it share.
    pub(super) address: Rc<SharedHead>,
    http2: http2::Http2Pool,
    http1_permits: Semaphore,
    /// Not to be asked for HTTP/2 before; `None` while it speaks it, as far as is known.
    ask_at: Cell<Option<Instant>>,
    used_at: Cell<Instant>,
}

// === impl Routes ===

impl Routes {
    /// No connections yet.
    pub(super) fn new(dial: PushDial, tools: Tools) -> Self {
        let tls = vec![Arc::clone(&dial.tls_http1)];
        let http1 = http1::Http1Pool::new(Arc::clone(&dial.reach), tls, tools.clock)
            .counted(Arc::clone(&tools.connections));
        Self { dial, tools, by_origin: RefCell::default(), http1 }
    }

    /// Sends a request with `head` and `body` over `route`, and waits for the answer.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) async fn exchange(
        &self,
        start: Start<'_>,
        route: &PushRoute,
        body: &Bytes,
        head: &impl RequestHead,
    ) -> Result<Reply, Failure<Report>> {
        let now = self.tools.clock.monotonic();
        if route.ask_at.get().is_none_or(|at| at <= now) {
            match tries::exchange(&route.http2, start, body, head, None).await {
                Ok((reply, _stream)) => {
                    route.ask_at.set(None);
                    return Ok(reply);
                }
                Err(Failure::Unsent(Unsent::NotSpoken(_))) => {
                    route.ask_at.set(Some(now + ASK_AGAIN_AFTER));
                }
                // Only that failure leads on: after another one the request may have left over HTTP/2 already.
                Err(failure) => return Err(failure),
            }
        }
        // Boxed: every attempt would carry the room for it.
        Box::pin(self.exchange_http1(start, route, body, head)).await
    }

    async fn exchange_http1(
        &self,
        start: Start<'_>,
        route: &PushRoute,
        body: &Bytes,
        head: &impl RequestHead,
    ) -> Result<Reply, Failure<Report>> {
        let waiting_since = self.tools.clock.monotonic();
        let permit = tokio::time::timeout(HTTP1_WAIT, route.http1_permits.acquire());
        let Ok(Ok(_permit)) = permit.await else { return Err(Unsent::Full.into()) };
        // Asked here too, so that no connection is made for what is not sent.
        start.may_send().map_err(Unsent::Withheld)?;
        let request = over_http1(head, body).ok_or(Unsent::Unwritable)?;
        let target = HttpTarget { origin: route.origin.clone(), tls: 0 };
        let waited = self.tools.clock.monotonic() - waiting_since;
        let mut reply = self.http1.exchange(start, &target, request).await?;
        reply.timing.waited += waited;
        Ok(reply)
    }

    /// The route to `origin`.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn route(&self, origin: &Origin) -> Result<Rc<PushRoute>, Unsent<Report>> {
        let now = self.tools.clock.monotonic();
        let mut routes = self.by_origin.borrow_mut();
        if let Some(route) = routes.get(origin) {
            route.used_at.set(now);
            return Ok(Rc::clone(route));
        }
        if routes.len() >= ORIGINS_MAX {
            // A route that an attempt holds stays: a second one to the same origin would have connections of its own.
            let idle = routes.iter().filter(|(_, route)| Rc::strong_count(route) == 1);
            let longest_idle = idle.min_by_key(|(_, route)| route.used_at.get());
            let longest_idle = longest_idle.map(|(origin, _)| origin.clone());
            let longest_idle = longest_idle.ok_or(Unsent::Full)?;
            routes.remove(&longest_idle);
        }
        let authority = Authority::try_from(origin.authority()).map_err(|_| Unsent::Unwritable)?;
        let dial = http2::Dial {
            provider: "a push service",
            origin: origin.clone(),
            tls: Arc::clone(&self.dial.tls),
            reach: Arc::clone(&self.dial.reach),
            priming: Priming::Unprimed,
            read_fields: &READ_FIELDS,
        };
        let Tools { clock, seed, ref connections } = self.tools;
        let http2 = http2::Http2Pool::new(dial, self.dial.connections_max, clock, seed)
            .counted(Arc::clone(connections));
        let route = Rc::new(PushRoute {
            origin: origin.clone(),
            // An origin is spelled without the port that its scheme has anyway (RFC 8292, section 2; RFC 6454, section
            // 6.1).
            audience: format!("https://{authority}"),
            address: Rc::new(SharedHead::address(&authority, None)),
            http2,
            http1_permits: Semaphore::new(HTTP1_CONNECTIONS_MAX),
            ask_at: Cell::new(None),
            used_at: Cell::new(now),
        });
        routes.insert(origin.clone(), Rc::clone(&route));
        Ok(route)
    }

    /// Closes all connections gracefully.
    pub(super) async fn close(&self) {
        // Taken out, since a borrow must not last over the wait.
        let routes = self.by_origin.take();
        let closing = routes.values().map(|route| route.http2.close());
        futures_util::future::join_all(closing).await;
        self.http1.close().await;
    }
}

/// The request with `head` and `body` in the form of HTTP/1.1, which wants the path alone as its target, and the host in a field (RFC 9112,
/// section 3.2).
fn over_http1(head: &impl RequestHead, body: &Bytes) -> Option<Request<Full<Bytes>>> {
    let path = PathAndQuery::try_from(head.path().concat()).ok()?;
    let mut request = Request::post(Uri::from(path)).body(Full::new(body.clone())).ok()?;
    let mut headers = head.headers()?;
    headers.insert(HOST, head.address().get(":authority")?.clone());
    *request.headers_mut() = headers;
    Some(request)
}
