//! Pages of the problems: one for each code, served by the engine without a key, and all of them as `docs/reference/problems.md`.

use std::fmt::Write as _;

use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;
use crate::problem_code::ProblemCode;

const HEAD: &str = "\
# Problems

Each error of the [HTTP API](http-api.md#problems) has a `code`, and its `type` is the address of the page of that code, `/problems/CODE`, which the engine serves without a key. Codes are never renamed and never mean \
something else; new ones may come. This page is generated (`make docs`).

| status | code | |
|---|---|---|
";

/// `GET /problems/{code}`
pub(crate) async fn page(Path(code): Path<String>) -> Result<Response, Problem> {
    let found = ProblemCode::ALL.iter().find(|known| known.as_str() == code);
    let found = found.ok_or_else(|| {
        let codes: Vec<_> = ProblemCode::ALL.iter().map(|code| code.as_str()).collect();
        Problem::not_found(format!("there is no such problem: the codes are {}", codes.join(", ")))
    })?;
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        // It changes with the version of the engine alone.
        (CACHE_CONTROL, "max-age=3600"),
    ];
    Ok((headers, text(*found)).into_response())
}

/// The reference of all codes, in Markdown.
pub fn problems_markdown() -> String {
    let mut page = HEAD.to_owned();
    for code in ProblemCode::ALL {
        let (status, title) = (code.status().as_u16(), code.title());
        // A write to a text cannot fail.
        let _written = writeln!(page, "| {status} | [`{code}`](#{code}) | {title} |");
    }
    for code in ProblemCode::ALL {
        let (status, title) = (code.status().as_u16(), code.title());
        let (meaning, remedy) = (code.meaning(), code.remedy());
        let _written =
            write!(page, "\n## {code}\n\n{status}: {title}. {meaning}\n\n**To do.** {remedy}\n");
    }
    page
}

fn text(code: ProblemCode) -> String {
    let (title, status, meaning, remedy) =
        (code.title(), code.status(), code.meaning(), code.remedy());
    format!("{title}\n\ncode: {code}\nstatus: {status}\n\n{meaning}\n\nTo do: {remedy}\n")
}
