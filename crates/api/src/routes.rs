//! Every route that needs a key, with the scopes that it needs.

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::response::Response;
use axum::routing::{self, MethodFilter, MethodRouter};

use crate::caller::RouteRule;
use crate::grants::KeyScope::{self, Cancel, Metrics, Operate, Read, Send, Suppress};
use crate::key_layer::KeyLayer;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::{
    ApiState, account, acts, broadcast_list, broadcasts, cancel, channels, compressed, create,
    events, key_routes, live, metrics, notifications, operate, pauses, prospect, prune, recipients,
    reload, requeue, reschedule, resolve, session_routes, suppressions, templates, tenants,
};

/// A route that needs a key.
#[derive(Debug, Clone)]
struct KeyedRoute {
    method: Method,
    path: &'static str,
    rule: RouteRule,
    handler: MethodRouter<Arc<ApiState>>,
}

/// The callers that a site is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// All of them: operators have no address of their own.
    All,
    /// Those that are no operators, who have an address of their own.
    Public,
    /// Operators, at their own address.
    Operators,
}

/// Every route that needs a key: its method, its path, and its rule.
pub fn routes() -> Vec<(Method, &'static str, RouteRule)> {
    let all = of_every_process(Audience::All).into_iter().chain(of_intake());
    all.map(|route| (route.method, route.path, route.rule)).collect()
}

/// The routes of a process for `audience` as a router: a request whose key is not known, or lacks a scope, ends here.
pub(crate) fn router(shared: &Arc<ApiState>, audience: Audience) -> Router<Arc<ApiState>> {
    let mut routes = of_every_process(audience);
    if shared.takes_in {
        routes.extend(of_intake());
    }
    routes.into_iter().fold(Router::new(), |router, KeyedRoute { method, path, rule, handler }| {
        if audience == Audience::Public && rule.is_for_operators() {
            return router.route(path, handler_elsewhere(method));
        }
        // A layer on routes alone: an unknown path is a 404, with and without a key.
        let takes_sessions = audience != Audience::Public;
        let layer = KeyLayer { shared: Arc::clone(shared), rule, takes_sessions };
        router.route(path, handler.route_layer(layer))
    })
}

/// Answers in place of a route that is for operators alone, where they have an address of their own.
fn handler_elsewhere(method: Method) -> MethodRouter<Arc<ApiState>> {
    let answer = async || {
        Problem::new(
            ProblemCode::UnknownPath,
            "this is answered at the operator's address alone: `[server.operator]` in the configuration names it",
        )
    };
    // Those that a route may have are those that a filter knows.
    MethodFilter::try_from(method)
        .map_or_else(|_| MethodRouter::new(), |on| routing::on(on, answer))
}

fn of_every_process(audience: Audience) -> Vec<KeyedRoute> {
    let metrics = match audience {
        Audience::All => get("/metrics", &[Metrics], metrics::by_key),
        Audience::Public => get("/metrics", &[Metrics], metrics::of_tenant),
        Audience::Operators => get("/metrics", &[Metrics], metrics::of_process),
    };
    vec![
        metrics.watch(),
        get("/v1/keys/self", &[], key_routes::own),
        get("/v1/session", &[Operate], session_routes::read).without_key(session_routes::none),
        post("/v1/session", &[Operate], session_routes::begin),
        delete("/v1/session", &[], session_routes::end),
        get("/v1/status", &[Read, Operate], live::status).watch(),
        post("/v1/reload", &[Operate], reload::reload).act(),
    ]
}

fn of_intake() -> Vec<KeyedRoute> {
    vec![
        get("/v1/notifications", &[Read], notifications::list),
        get("/v1/notifications/{id}", &[Read], notifications::read),
        get("/v1/broadcasts", &[Read], broadcast_list::list),
        get("/v1/broadcasts/{id}", &[Read], broadcasts::read),
        get("/v1/events", &[Read], events::read),
        get("/v1/account", &[Read], account::read),
        get("/v1/channels", &[Read], channels::list),
        get("/v1/templates", &[Read], templates::list),
        get("/v1/pauses", &[Read], pauses::list),
        get("/v1/acts", &[Read], acts::list),
        get("/v1/keys", &[Read, Operate], key_routes::list),
        post("/v1/notifications", &[Send], create::create),
        post("/v1/preview", &[Send], create::preview),
        post("/v1/broadcasts", &[Send], broadcasts::create),
        post("/v1/notifications/{id}/requeue", &[Send], requeue::one).act(),
        post("/v1/requeue", &[Send], requeue::many).act(),
        post("/v1/notifications/{id}/cancel", &[Cancel], notifications::cancel).act(),
        post("/v1/notifications/{id}/reschedule", &[Cancel], reschedule::notification).act(),
        post("/v1/notifications/{id}/resolve", &[Cancel], resolve::one).act(),
        post("/v1/broadcasts/{id}/cancel", &[Cancel], broadcasts::cancel).act(),
        post("/v1/broadcasts/{id}/reschedule", &[Cancel], reschedule::broadcast).act(),
        post("/v1/cancel", &[Cancel], cancel::cancel).act(),
        post("/v1/pause", &[Cancel], pauses::pause).act(),
        post("/v1/resume", &[Cancel], pauses::resume).act(),
        post("/v1/resolve", &[Cancel], resolve::many).act(),
        delete("/v1/recipients", &[Suppress], recipients::erase).act(),
        // The list is that of all tenants.
        get("/v1/suppressions", &[Suppress, Operate], suppressions::read),
        post("/v1/suppressions", &[Suppress, Operate], suppressions::suppress).act(),
        delete("/v1/suppressions", &[Suppress, Operate], suppressions::lift_one).act(),
        post("/v1/suppressions/lift", &[Suppress, Operate], suppressions::lift).act(),
        get("/v1/suppressions/events", &[Suppress, Operate], suppressions::events),
        get("/v1/tenants", &[Read, Operate], tenants::list),
        get("/v1/log", &[Read, Operate], operate::log),
        get("/v1/audit", &[Read, Operate], operate::audit),
        get("/v1/estimate", &[Read, Operate], prospect::read),
        post("/v1/prune", &[Operate], prune::prune).act(),
        post("/v1/keys", &[Operate], key_routes::add).act(),
        post("/v1/keys/{name}/rotate", &[Operate], key_routes::rotate).act(),
        delete("/v1/keys/{name}", &[Operate], key_routes::revoke).act(),
    ]
}

// === impl KeyedRoute ===

impl KeyedRoute {
    const fn new(
        method: Method,
        path: &'static str,
        needs: &'static [KeyScope],
        handler: MethodRouter<Arc<ApiState>>,
    ) -> Self {
        let rule = RouteRule { needs, is_act: false, watches: false, without_key: None };
        Self { method, path, rule, handler }
    }

    /// This route, whose requests change what was handed in before, or how it is sent.
    fn act(mut self) -> Self {
        self.rule.is_act = true;
        self
    }

    /// This route, which answers so to callers that have neither a key nor a session.
    fn without_key(mut self, answer: fn() -> Response) -> Self {
        self.rule.without_key = Some(answer);
        self
    }

    /// This route, which tells how the engine does.
    fn watch(mut self) -> Self {
        self.rule.watches = true;
        self
    }
}

fn get<H, T>(path: &'static str, needs: &'static [KeyScope], handler: H) -> KeyedRoute
where
    H: Handler<T, Arc<ApiState>>,
    T: 'static,
{
    KeyedRoute::new(Method::GET, path, needs, compressed::when_accepted(routing::get(handler)))
}

fn post<H, T>(path: &'static str, needs: &'static [KeyScope], handler: H) -> KeyedRoute
where
    H: Handler<T, Arc<ApiState>>,
    T: 'static,
{
    KeyedRoute::new(Method::POST, path, needs, routing::post(handler))
}

fn delete<H, T>(path: &'static str, needs: &'static [KeyScope], handler: H) -> KeyedRoute
where
    H: Handler<T, Arc<ApiState>>,
    T: 'static,
{
    KeyedRoute::new(Method::DELETE, path, needs, routing::delete(handler))
}
