//! `[traces]`: where traces of requests and attempts go.

use std::collections::BTreeMap;
use std::path::PathBuf;

use channel::Secret;
use hyper::header::{HeaderName, HeaderValue};
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
                problem("url", format!("{url:?} {malformed}"));
            }
        }
        if !(0.0..=1.0).contains(&self.ratio) {
            problem("ratio", "must be from 0 (none) to 1 (all)".to_owned());
        }
        for (name, value) in &self.headers {
            if HeaderName::try_from(name).is_err() {
                problem(&format!("headers.{name}"), "is not a header name".to_owned());
            }
            if HeaderValue::try_from(value.expose()).is_err() {
                problem(&format!("headers.{name}"), "must be visible ASCII".to_owned());
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
