//! Operations for operators: the state of the engine.

use axum::http::Method;
use notification::Name;
use notification::limits::LIST_ITEMS;
use serde_json::json;
use store::LogEntry;

use super::operation::{JSON, LINES, Operation, component, lines_of};
use super::parameters::limit;
use super::types::Types;
use crate::account::TenantAccount;
use crate::events::STREAM;
use crate::exposition::{OPENMETRICS, TEXT};
use crate::limits::{LIST_SLICE, LOG_ENTRIES};
use crate::operate::{self, AuditAnswer};
use crate::problem_code::ProblemCode::{
    AccountUnknown, ConfigurationRefused, InternalError, NotReady, TooManyStreams, UnknownPath,
};
use crate::prospect::{self, ProspectAnswer};
use crate::prune::PruneAnswer;
use crate::reload::ReloadAnswer;
use crate::session_routes::SessionAnswer;
use crate::status::StatusAnswer;
use crate::tenants;
use crate::view::ListAnswer;

pub(super) fn operations(types: &mut Types) -> Vec<Operation> {
    let log = lines_of(&[types.of::<LogEntry>(), component("NextLogPosition")]);
    let text = |form: &str| json!({ "type": "string", "description": form });
    let expositions = [
        (OPENMETRICS, text("OpenMetrics 1.0.")),
        (TEXT, text("The text format of Prometheus, 0.0.4.")),
    ];
    let live = json!({
        "type": "string",
        "description": "Server-sent events: of `status` the data is the answer to `GET /v1/status`, of `unavailable` the problem in its place while the store is away.",
    });
    let mut all = sessions(types);
    all.extend([
        operation(Method::GET, "/v1/status", "read_status", "Read where work stands")
            .about("With `Accept: text/event-stream` it is a stream that does not end: the status at once, and again when it has changed, a second apart at least. All who follow share one look at the store.")
            .answers(200, "The status.", &[(JSON, types.of::<StatusAnswer>()), (STREAM, live)])
            .may(&[TooManyStreams])
            .reads(),
        operation(Method::GET, "/v1/tenants", "list_tenants", "List tenants")
            .about("Those that have anything, by name, each with its account: that costs no more however many notifications there are.")
            .takes(&tenants::PARAMETERS)
            .with("after", types.of::<Name>(), "`next` of the answer before: go on from there.")
            .with("limit", limit(LIST_SLICE, LIST_ITEMS), "Items of the answer at most.")
            .json("Some of them.", types.of::<ListAnswer<TenantAccount>>())
            .may(&[AccountUnknown])
            .reads(),
        operation(Method::GET, "/v1/audit", "audit", "Count everything from the ground up")
            .about("Takes a while on a large store.")
            .json("The account, and whether it balances.", types.of::<AuditAnswer>())
            .reads(),
        operation(Method::GET, "/v1/log", "read_log", "Read the log")
            .about("In the order of settling. Entries that were settled together are not split over answers, so an answer may exceed `limit`.")
            .takes(&operate::LOG_PARAMETERS)
            .with("position", json!({ "type": "integer", "minimum": 0, "default": 0 }), "Go on after here: `next` of the answer before.")
            .with("limit", limit(LIST_ITEMS, LOG_ENTRIES), "Entries of the answer, about.")
            .example("position", &json!(0))
            .answers(200, "Entries.", &[(LINES, log)])
            .reads(),
        operation(Method::GET, "/v1/estimate", "estimate", "Estimate how long a broadcast would take that is not created yet")
            .takes(&prospect::PARAMETERS)
            .requires("channel")
            .requires("recipients")
            .example("channel", &json!("ios"))
            .example("recipients", &json!(1_000_000))
            .json("The estimate.", types.of::<ProspectAnswer>())
            .reads(),
        operation(Method::POST, "/v1/prune", "prune", "Remove what has outlived its lifetime now")
            .about("It answers within about a second: ask again until `done` is true.")
            .json("Counts of what this call removed.", types.of::<PruneAnswer>())
            .writes(),
        operation(Method::POST, "/v1/reload", "reload", "Read the configuration again")
            .about("Of the process that answers alone: in a cluster each has a configuration of its own. A configuration that is wrong changes nothing.")
            .json("What was changed, and what takes a restart.", types.of::<ReloadAnswer>())
            .may(&[ConfigurationRefused, NotReady, UnknownPath])
            .writes(),
        operation(Method::GET, "/metrics", "read_metrics", "Read the metrics")
            .about("Those of the process with an operator's key, and at the operator's address with any; else those of the caller's tenant. In the text format of Prometheus if `Accept` prefers `text/plain`.")
            .answers(200, "The metrics.", &expositions)
            .may(&[InternalError])
            .reads(),
    ]);
    all
}

fn sessions(types: &mut Types) -> Vec<Operation> {
    let session = types.of::<SessionAnswer>();
    vec![
        operation(Method::GET, "/v1/session", "read_session", "Read the session of the dashboard that the caller came by")
            .about("A caller that has neither a key nor a session is answered as well: `tenant` is null then.")
            .json("The session.", session.clone()),
        operation(Method::POST, "/v1/session", "begin_session", "Begin a session of the dashboard")
            .about("The key of the request becomes a cookie, `belfry_PORT`, which stands for it for 12 hours, in this process alone, and where operators have an address of their own there alone. Requests of the session that are no GET have its `csrf` in the header `x-belfry-csrf`.")
            .json("The session. `Set-Cookie` has its token.", session)
            .may(&[InternalError]),
        operation(Method::DELETE, "/v1/session", "end_session", "End the session of the dashboard that the caller came by")
            .answers(204, "It has ended.", &[]),
    ]
}

fn operation(
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Operation {
    Operation::new((method, path), "operating", id, summary)
}
