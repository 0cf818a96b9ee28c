//! Operations that need no key. Each process has them, also one that starts.

use axum::http::Method;
use serde_json::json;

use super::operation::Operation;
use crate::problem_code::ProblemCode::NotReady;

const TEXT: &str = "text/plain";

pub(super) fn operations() -> Vec<Operation> {
    let text = || json!({ "type": "string" });
    vec![
        operation("/healthz", "check_health", "Tell that the process lives").answers(
            200,
            "It lives.",
            &[(TEXT, text())],
        ),
        operation("/readyz", "check_readiness", "Tell whether the process takes work")
            .answers(200, "It takes work.", &[(TEXT, text())])
            .may(&[NotReady]),
        operation("/openapi.json", "read_description", "Read this description")
            .polled("OpenAPI 3.1.", json!({ "type": "object" })),
        operation("/problems/{code}", "read_problem", "Read what a problem means, and what to do")
            .example("code", &json!("disk_full"))
            .answers(200, "The page.", &[(TEXT, text())]),
    ]
}

fn operation(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new((Method::GET, path), "keyless", id, summary)
}
