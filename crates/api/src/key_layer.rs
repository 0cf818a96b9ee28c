//! The layer of every route that needs a key: a request passes whose key is known, good, within its shares, and has every scope that the
//! route asks for.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::extract::Request;
use axum::http::Version;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::response::{IntoResponse, Response};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::ApiState;
use crate::act_trail::{self, answer_of};
use crate::caller::{Caller, RouteRule, check_time};
use crate::key_rates::RateLeft;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::request_mark::RequestMark;
use crate::tenant_connections::TenantStream;
use crate::unauthenticated::ConnectionNote;

/// Asks requests of one route for their keys. A layer of its own and no function with `Next`, which copies the route and allocates its
/// future for each request.
#[derive(Clone)]
pub(crate) struct KeyLayer {
    pub(crate) shared: Arc<ApiState>,
    pub(crate) rule: RouteRule,
    /// True if the session of a browser stands for a key.
    pub(crate) takes_sessions: bool,
}

/// A route whose requests need a key.
#[derive(Clone)]
pub(crate) struct KeyedService<S> {
    inner: S,
    layer: KeyLayer,
}

/// A request that may be answered, as far as its key says.
struct Admitted {
    caller: Caller,
    mark: RequestMark,
    /// The rest of the key's rate, if it has one.
    left: Option<RateLeft>,
    /// Its place among those over HTTP/2, which it has until its answer is sent.
    stream: Option<TenantStream>,
}

pin_project! {
    /// An answer on its way.
    pub(crate) struct KeyedAnswer<F> {
        #[pin]
        answer: AnswerPart<F>,
        left: Option<RateLeft>,
        stream: Option<TenantStream>,
    }
}

pin_project! {
    #[project = PinnedPart]
    enum AnswerPart<F> {
        /// The request was refused here.
        Refused { response: Option<Response> },
        /// The route answers.
        Passed { #[pin] answer: F },
        /// The route answers, between lines of the trail or when it is its turn.
        Guarded { answer: Pin<Box<dyn Future<Output = Response> + Send>> },
    }
}

// === impl KeyLayer ===

impl<S> Layer<S> for KeyLayer {
    type Service = KeyedService<S>;

    fn layer(&self, inner: S) -> KeyedService<S> {
        KeyedService { inner, layer: self.clone() }
    }
}

// === impl KeyedService ===

impl<S> Service<Request> for KeyedService<S>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = KeyedAnswer<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> KeyedAnswer<S::Future> {
        let Admitted { caller, mark, left, stream } = match self.admit(&request) {
            Ok(admitted) => admitted,
            Err(response) => return KeyedAnswer::refused(*response),
        };
        let rule = self.layer.rule;
        let mut needs = rule.needs.iter();
        let answer = match needs.try_for_each(|scope| caller.check_scope(*scope)) {
            Err(problem) => AnswerPart::Refused { response: Some(problem.into_response()) },
            Ok(()) if rule.is_act || rule.watches => {
                AnswerPart::Guarded { answer: Box::pin(self.guarded(caller, mark, request)) }
            }
            Ok(()) => {
                request.extensions_mut().insert(caller);
                AnswerPart::Passed { answer: self.inner.call(request) }
            }
        };
        KeyedAnswer { answer, left, stream }
    }
}

impl<S> KeyedService<S> {
    /// Looks at the key of `request`, and counts it for the shares of its tenant.
    ///
    /// # Errors
    /// The answer, if it is refused.
    fn admit(&self, request: &Request) -> Result<Admitted, Box<Response>> {
        let refused = |problem: Problem| Box::new(problem.into_response());
        let KeyLayer { shared, rule, takes_sessions } = &self.layer;
        let Some(mark) = request.extensions().get::<RequestMark>().cloned() else {
            let unmarked = "the request came by no log";
            return Err(refused(Problem::new(ProblemCode::InternalError, unmarked)));
        };
        let sessions_at = takes_sessions.then(|| shared.intake.clock().boot());
        let caller = Caller::of(request, &shared.keys, &shared.default_tenant, sessions_at);
        let caller = caller.map_err(|problem| match rule.without_key {
            Some(answer) if problem.code == ProblemCode::MissingKey => Box::new(answer()),
            _ => refused(problem),
        })?;
        let caller = caller.traced(mark.trace());
        mark.set_caller(caller.names());
        // Not before: requests without a known key have no line in the log.
        if rule.is_act {
            mark.set_act();
        }
        if let Some(key) = caller.key() {
            let ended = |late| refused(Problem::new(ProblemCode::ExpiredKey, late));
            check_time(key, shared.intake.now()).map_err(ended)?;
        }
        let stream = count_request(&caller, request)
            .map_err(|problem| Box::new(beyond_share(problem, request.version())))?;
        let left =
            caller.take_of_rate(shared).map_err(|exceeded| Box::new(exceeded.into_response()))?;
        Ok(Admitted { caller, mark, left, stream })
    }

    /// The answer of the route, between two lines of the trail if the request is an act; after those before it, if it watches.
    fn guarded(
        &mut self,
        caller: Caller,
        mark: RequestMark,
        mut request: Request,
    ) -> impl Future<Output = Response> + Send + use<S>
    where
        S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send + 'static,
    {
        let (shared, rule) = (Arc::clone(&self.layer.shared), self.layer.rule);
        // The one that is ready, and not its copy.
        let next = self.inner.clone();
        let next = std::mem::replace(&mut self.inner, next);
        async move {
            let is_operator = caller.is_operator;
            let watching = caller.sharing().filter(|_| !is_operator);
            let _turn = if rule.watches {
                match shared.shares.watch(watching).await {
                    Ok(turn) => Some(turn),
                    Err(problem) => return problem.into_response(),
                }
            } else {
                None
            };
            request.extensions_mut().insert(caller);
            if rule.is_act {
                let recorded = act_trail::recorded(&shared, (&mark, is_operator), request, next);
                return recorded.await.into_response();
            }
            answer_of(next, request).await
        }
    }
}

/// Counts the connection of `request` for its tenant, and over HTTP/2 the request, which is counted until what is given is dropped.
fn count_request(caller: &Caller, request: &Request) -> Result<Option<TenantStream>, Problem> {
    // There is none where no socket is.
    let Some(note) = request.extensions().get::<ConnectionNote>() else { return Ok(None) };
    let tenant = caller.sharing();
    note.note_key(tenant)?;
    match tenant {
        Some(tenant) if request.version() == Version::HTTP_2 => note.begin_stream(tenant).map(Some),
        _ => Ok(None),
    }
}

/// The answer to a request beyond a share of its tenant's connections. Over HTTP/2 its connection is told by a frame of its own.
fn beyond_share(problem: Problem, version: Version) -> Response {
    let closes = problem.code == ProblemCode::TenantConnections && version < Version::HTTP_2;
    let mut response = problem.into_response();
    if closes {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

// === impl KeyedAnswer ===

impl<F> KeyedAnswer<F> {
    fn refused(response: Response) -> Self {
        let answer = AnswerPart::Refused { response: Some(response) };
        Self { answer, left: None, stream: None }
    }
}

impl<F: Future<Output = Result<Response, Infallible>>> Future for KeyedAnswer<F> {
    type Output = Result<Response, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = match this.answer.project() {
            PinnedPart::Refused { response } => response.take().unwrap_or_default(),
            PinnedPart::Passed { answer } => match ready!(answer.poll(context)) {
                Ok(response) => response,
                Err(never) => match never {},
            },
            PinnedPart::Guarded { answer } => ready!(answer.as_mut().poll(context)),
        };
        if let Some(left) = this.left.take() {
            left.write(response.headers_mut());
        }
        if let Some(stream) = this.stream.take() {
            response.extensions_mut().insert(stream);
        }
        Poll::Ready(Ok(response))
    }
}
