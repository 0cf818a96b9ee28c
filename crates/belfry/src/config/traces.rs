//! `[traces]`: where traces of requests and attempts go.

use std::collections::BTreeMap;
use std::path::PathBuf;

use channel::Secret;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use net::endpoint::Endpoint;
use serde::Deserialize;

use super::problem::Mistake;

/// `[traces]`: where traces of requests and attempts go.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TracesConfig {
    /// The receiver of OTLP over HTTP. None by default: nothing is traced.
    pub(crate) url: Option<String>,
    /// Part of the requests without a `traceparent` that is traced, 0 to 1. Default 0.01.
    pub(crate) ratio: f64,
    /// True if a caller's `traceparent` decides. Default true.
    pub(crate) follow_callers: bool,
    /// Header fields for the receiver. None by default.
    pub(crate) headers: BTreeMap<String, Secret>,
    /// More root certificates to trust, PEM, for the receiver only. None by default.
    pub(crate) ca_file: Option<PathBuf>,
}

/// Header fields that requests have anyway.
const RESERVED: [HeaderName; 5] =
    [CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING];

// === impl TracesConfig ===

impl Default for TracesConfig {
    fn default() -> Self {
        Self {
            url: None,
            ratio: 0.01,
            follow_callers: true,
            headers: BTreeMap::new(),
            ca_file: None,
        }
    }
}

impl TracesConfig {
    pub(super) fn check(&self) -> Vec<Mistake> {
        let mut problems = Vec::new();
        let mut problem = |key: &str, message: String| {
            problems.push(Mistake::new(format!("traces.{key}"), message));
        };
        if let Some(url) = &self.url {
            if cfg!(not(feature = "otlp")) {
                problem("url", "this program was built without the feature `otlp`".to_owned());
            }
            if let Err(malformed) = Endpoint::parse(url) {
                // Without the text, which may hold a key.
                problem("url", format!("the URL {malformed}"));
            }
        }
        if !(0.0..=1.0).contains(&self.ratio) {
            problem("ratio", "must be from 0 (none) to 1 (all)".to_owned());
        }
        for (name, value) in &self.headers {
            match HeaderName::try_from(name) {
                Err(_) => problem(&format!("headers.{name}"), "is not a header name".to_owned()),
                Ok(name) if RESERVED.contains(&name) => {
                    problem(&format!("headers.{name}"), "is set by Belfry itself".to_owned());
                }
                Ok(_) => {}
            }
            if HeaderValue::try_from(value.expose()).is_err() {
                problem(
                    &format!("headers.{name}"),
                    "has characters that a header must not have".to_owned(),
                );
            }
        }
        if let Some(file) = &self.ca_file
            && let Err(error) = std::fs::read(file)
        {
            problem("ca_file", format!("{}: cannot be read: {error}", file.display()));
        }
        problems
    }
}
