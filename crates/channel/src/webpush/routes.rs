//! The ways to push services, for one sender thread: HTTP/2 with a pool per origin, and one pool of HTTP/1.1 connections
//! for all that speak nothing else.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, Uri};
use http_body_util::Full;
use rustls::ClientConfig;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::endpoint::Origin;
use crate::http1::{self, Target};
use crate::http2::{self, NoAnswer, Priming};
use crate::tcp::Reach;
use crate::{Attempt, Start, Tools};

/// Push services with connections of their own, per sender thread. There are a handful, but an endpoint can name any.
const ORIGINS_MAX: usize = 128;
/// Connections to a push service that speaks only HTTP/1.1, one message at a time each, per sender thread.
const HTTP1_CONNECTIONS_MAX: usize = 16;
/// How long a message waits for one of them. Leaves half of an attempt's time for the answer.
const HTTP1_WAIT: Duration = Duration::from_secs(15);
/// How long a push service counts as one that speaks no HTTP/2.
const ASK_AGAIN_AFTER: Duration = Duration::from_hours(1);
/// How soon a message is worth another try that found everything in use.
const NO_ROOM_DELAY: Duration = Duration::from_secs(1);

/// How connections are made.
#[derive(Debug, Clone)]
pub(super) struct Dial {
    pub(super) reach: Arc<dyn Reach>,
    /// Offers HTTP/2 and HTTP/1.1.
    pub(super) tls: Arc<ClientConfig>,
    /// Offers HTTP/1.1.
    pub(super) tls_http1: Arc<ClientConfig>,
    pub(super) connections_max: usize,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    /// At most [`notification::limits::ANSWER_BYTES`]; empty for an acceptance.
    pub(super) body: Vec<u8>,
}

/// The ways of one thread.
#[derive(Debug)]
pub(super) struct Routes {
    dial: Dial,
    tools: Tools,
    by_origin: RefCell<HashMap<Origin, Rc<Route>>>,
    http1: http1::Pool,
}

/// The way to one push service.
#[derive(Debug)]
pub(super) struct Route {
    origin: Origin,
    /// The origin as a token names it.
    pub(super) audience: String,
    /// What requests have as `:authority`.
    pub(super) authority: Authority,
    http2: http2::Pool,
    http1_places: Semaphore,
    /// Not to be asked for HTTP/2 before; `None` while it speaks it, as far as is known.
    ask_at: Cell<Option<Instant>>,
    used_at: Cell<Instant>,
}

// === impl Routes ===

impl Routes {
    /// No connections yet.
    pub(super) fn new(dial: Dial, tools: Tools) -> Self {
        let tls = vec![Arc::clone(&dial.tls_http1)];
        let http1 = http1::Pool::new(Arc::clone(&dial.reach), tls, tools.clock);
        Self { dial, tools, by_origin: RefCell::default(), http1 }
    }

    /// Sends what `make` makes over `route`, with `body`, and waits for the answer.
    ///
    /// # Errors
    /// What the attempt came to when there is no answer.
    pub(super) async fn exchange(
        &self,
        start: Start<'_>,
        route: &Route,
        body: &Bytes,
        make: &impl Fn() -> Option<Request<()>>,
    ) -> Result<Reply, Attempt> {
        let now = self.tools.clock.monotonic();
        if route.ask_at.get().is_none_or(|at| at <= now) {
            match route.http2.exchange_if_spoken(start, body, make).await {
                Ok((http2::Reply { status, headers, body }, _stream)) => {
                    route.ask_at.set(None);
                    return Ok(Reply { status, headers, body });
                }
                Err(NoAnswer::Concluded(attempt)) => return Err(attempt),
                Err(NoAnswer::NotSpoken) => route.ask_at.set(Some(now + ASK_AGAIN_AFTER)),
            }
        }
        // Boxed: every attempt would carry the room for it.
        Box::pin(self.exchange_http1(start, route, body, make)).await
    }

    async fn exchange_http1(
        &self,
        start: Start<'_>,
        route: &Route,
        body: &Bytes,
        make: &impl Fn() -> Option<Request<()>>,
    ) -> Result<Reply, Attempt> {
        let place = tokio::time::timeout(HTTP1_WAIT, route.http1_places.acquire());
        let Ok(Ok(_place)) = place.await else {
            return Err(Attempt::handed_back(NO_ROOM_DELAY));
        };
        if let Some(report) = start.may_start().report_otherwise() {
            return Err(Attempt::not_started(report));
        }
        let request = make().and_then(|request| over_http1(request, route, body));
        let Some(request) = request else {
            return Err(Attempt::impossible("it cannot be written as a request"));
        };
        let target = Target { origin: route.origin.clone(), tls: 0 };
        match self.http1.exchange(start, &target, request).await {
            Ok(http1::Reply { status, headers, body }) => {
                Ok(Reply { status: status.as_u16(), headers, body })
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// The way to `origin`.
    ///
    /// # Errors
    /// What an attempt comes to when there is none.
    pub(super) fn route(&self, origin: &Origin) -> Result<Rc<Route>, Attempt> {
        let now = self.tools.clock.monotonic();
        let mut routes = self.by_origin.borrow_mut();
        if let Some(route) = routes.get(origin) {
            route.used_at.set(now);
            return Ok(Rc::clone(route));
        }
        if routes.len() >= ORIGINS_MAX {
            let idle = routes.iter().filter(|(_, route)| Rc::strong_count(route) == 1);
            let longest_idle = idle.min_by_key(|(_, route)| route.used_at.get());
            let longest_idle = longest_idle.map(|(origin, _)| origin.clone());
            let longest_idle = longest_idle.ok_or_else(|| Attempt::handed_back(NO_ROOM_DELAY))?;
            routes.remove(&longest_idle);
        }
        let authority = Authority::try_from(origin.authority())
            .map_err(|_| Attempt::impossible("its push service cannot be written as a request"))?;
        let dial = http2::Dial {
            provider: "a push service",
            origin: origin.clone(),
            tls: Arc::clone(&self.dial.tls),
            reach: Arc::clone(&self.dial.reach),
            priming: Priming::Unprimed,
        };
        let http2 = http2::Pool::new(dial, self.dial.connections_max, self.tools);
        let route = Rc::new(Route {
            origin: origin.clone(),
            audience: format!("https://{authority}"),
            authority,
            http2,
            http1_places: Semaphore::new(HTTP1_CONNECTIONS_MAX),
            ask_at: Cell::new(None),
            used_at: Cell::new(now),
        });
        routes.insert(origin.clone(), Rc::clone(&route));
        Ok(route)
    }

    /// Ends all connections in good order.
    pub(super) async fn close(&self) {
        let routes = self.by_origin.take();
        let closing = routes.values().map(|route| route.http2.close());
        futures_util::future::join_all(closing).await;
        self.http1.close().await;
    }
}

/// The same request as HTTP/1.1 has it.
fn over_http1(request: Request<()>, route: &Route, body: &Bytes) -> Option<Request<Full<Bytes>>> {
    let mut request = request.map(|()| Full::new(body.clone()));
    let path = request.uri().path_and_query()?.clone();
    *request.uri_mut() = Uri::from(path);
    request.headers_mut().insert(HOST, HeaderValue::from_str(route.authority.as_str()).ok()?);
    Some(request)
}
