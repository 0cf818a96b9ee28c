//! The dashboard: pages for operators, which ask the same routes as every caller.
//!
//! The files are built from `dashboard/` and committed (`crates/api/dashboard`), so that building Belfry needs no Node.js. They are in the
//! binary, as they are and compressed. No page asks anything of another origin, and none has a script or a style within its text
//! (`Content-Security-Policy`).

use std::sync::LazyLock;

use aws_lc_rs::digest;
use axum::Router;
use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, REFERRER_POLICY,
    VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;

use crate::compressed::accepts_gzip;
use crate::polled::is_known;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;

/// A file of the dashboard.
#[derive(Debug, Clone, Copy)]
struct BuiltFile {
    name: &'static str,
    content_type: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
}

/// The page, which finds out from its own address what it is to show.
const PAGE: BuiltFile = BuiltFile {
    name: "index.html",
    content_type: "text/html; charset=utf-8",
    plain: include_bytes!("../dashboard/index.html"),
    gzip: include_bytes!("../dashboard/index.html.gz"),
};

/// The tag of all files together: each changes with the version of the engine alone.
static TAG: LazyLock<String> = LazyLock::new(|| {
    let mut context = digest::Context::new(&digest::SHA256);
    for file in PARTS.iter().chain([&PAGE]) {
        context.update(file.plain);
    }
    let hash = context.finish();
    format!("\"{}\"", URL_SAFE_NO_PAD.encode(hash.as_ref().get(..12).unwrap_or_default()))
});

/// The parts of the page.
const PARTS: [BuiltFile; 4] = [
    BuiltFile {
        name: "app.js",
        content_type: "text/javascript; charset=utf-8",
        plain: include_bytes!("../dashboard/app.js"),
        gzip: include_bytes!("../dashboard/app.js.gz"),
    },
    BuiltFile {
        name: "app.css",
        content_type: "text/css; charset=utf-8",
        plain: include_bytes!("../dashboard/app.css"),
        gzip: include_bytes!("../dashboard/app.css.gz"),
    },
    BuiltFile {
        name: "icon.svg",
        content_type: "image/svg+xml",
        plain: include_bytes!("../dashboard/icon.svg"),
        gzip: include_bytes!("../dashboard/icon.svg.gz"),
    },
    BuiltFile {
        name: "licenses.txt",
        content_type: "text/plain; charset=utf-8",
        plain: include_bytes!("../dashboard/licenses.txt"),
        gzip: include_bytes!("../dashboard/licenses.txt.gz"),
    },
];

/// Extensions of files that no address of a page ends with.
const ASSETS: [&str; 6] = ["css", "ico", "js", "map", "svg", "txt"];

/// Everything comes from the engine itself, and no other page may show this one within itself.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";

/// The pages, and the way to them from the address of the engine alone.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(async || Redirect::to("/dashboard")))
        .route("/dashboard", get(async |headers: HeaderMap| PAGE.answer(&headers)))
        .route("/dashboard/", get(async || Redirect::to("/dashboard")))
        .route("/dashboard/{*rest}", get(file))
}

/// A part, or the page itself for an address within it.
async fn file(Path(rest): Path<String>, headers: HeaderMap) -> Response {
    if let Some(part) = PARTS.iter().find(|part| part.name == rest) {
        return part.answer(&headers);
    }
    let extension = rest.rsplit_once('.').map_or("", |(_, extension)| extension);
    if ASSETS.contains(&extension) {
        let detail = "the dashboard has no such file: load the page anew";
        return Problem::new(ProblemCode::UnknownPath, detail).into_response();
    }
    PAGE.answer(&headers)
}

// === impl BuiltFile ===

impl BuiltFile {
    /// The file, unless the caller has it; compressed where that is accepted.
    fn answer(self, headers: &HeaderMap) -> Response {
        // A weak one: it stands for both codings.
        let tagged = [(ETAG, format!("W/{}", *TAG))];
        let common = [
            (CACHE_CONTROL, "no-cache"),
            (CONTENT_SECURITY_POLICY, POLICY),
            (REFERRER_POLICY, "no-referrer"),
            (VARY, "accept-encoding"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
        ];
        if is_known(headers, &TAG) {
            return (StatusCode::NOT_MODIFIED, common, tagged).into_response();
        }
        let content_type = [(CONTENT_TYPE, self.content_type)];
        // Neither is copied: a caller that takes no answer holds nothing.
        if accepts_gzip(headers) {
            let coding = [(CONTENT_ENCODING, "gzip")];
            let body = Bytes::from_static(self.gzip);
            return (common, tagged, content_type, coding, body).into_response();
        }
        (common, tagged, content_type, Bytes::from_static(self.plain)).into_response()
    }
}
