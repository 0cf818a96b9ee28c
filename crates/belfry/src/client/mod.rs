//! Calls the engine over HTTP. A command is over when its answer is there, so [`Client`] blocks; `import`,
//! which has several requests under way, drives [`EngineApi`] itself.

mod answer;
mod engine;
mod query;

use std::cell::Cell;

use bytes::Bytes;
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::Global;
use crate::config::Config;
use crate::exit::CliError;

pub(crate) use answer::EngineAnswer;
pub(crate) use engine::{CallError, EngineApi, EngineConnection, RequestBody};
pub(crate) use query::{percent_encoded, with_query};

/// The engine, one call at a time.
pub(crate) struct Client {
    runtime: tokio::runtime::Runtime,
    engine: EngineApi,
    /// The connection of the call before: a command that goes on page by page makes many.
    idle: Cell<Option<EngineConnection>>,
}

// === impl Client ===

impl Client {
    /// A client of the engine at `--url`, or where the configuration, which is read for nothing else, has it listen. Connects to nothing
    /// yet.
    pub(crate) fn new(
        global: &Global,
        config: impl FnOnce() -> Result<Config, CliError>,
    ) -> anyhow::Result<Self> {
        let url = match &global.url {
            Some(url) => url.clone(),
            None => config()?.server.local_url().unwrap_or_default(),
        };
        let engine = EngineApi::new(&url, global.key()?, global.tls_files()?)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, engine, idle: Cell::default() })
    }

    /// Gets `path`.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.call(Method::GET, path, Bytes::new())?.into_result()?.json()
    }

    /// Gets `path`, whose answer is a text.
    pub(crate) fn get_text(&self, path: &str) -> anyhow::Result<String> {
        Ok(self.call(Method::GET, path, Bytes::new())?.into_result()?.text())
    }

    /// Gets `path`, whose answer is lines of JSON and a last one of another kind.
    pub(crate) fn get_lines<T, L>(&self, path: &str) -> anyhow::Result<(Vec<T>, L)>
    where
        T: DeserializeOwned,
        L: DeserializeOwned,
    {
        self.call(Method::GET, path, Bytes::new())?.into_result()?.json_lines()
    }

    /// Deletes what `path` names, and gives the answer to that.
    pub(crate) fn delete<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.call(Method::DELETE, path, Bytes::new())?.into_result()?.json()
    }

    /// Posts `body` to `path`.
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        self.post_lines(path, body, &[])
    }

    /// Posts `body`, whose list `to` was read from these lines of a file, to `path`.
    pub(crate) fn post_lines<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        lines: &[u64],
    ) -> anyhow::Result<T> {
        let answer = self.call(Method::POST, path, serde_json::to_vec(body)?.into())?;
        if !answer.status.is_success() {
            return Err(answer.failure_in(lines).into());
        }
        answer.json()
    }

    /// Posts lines of JSON that are made while they are sent.
    pub(crate) fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        body: RequestBody,
    ) -> anyhow::Result<T> {
        let call = self.engine.upload(path, body);
        self.runtime.block_on(call).map_err(CliError::from)?.into_result()?.json()
    }

    /// Runs `work` with the engine until it is done.
    pub(crate) fn drive<T>(&self, work: impl AsyncFnOnce(&EngineApi) -> T) -> T {
        self.runtime.block_on(work(&self.engine))
    }

    fn call(&self, method: Method, path: &str, body: Bytes) -> Result<EngineAnswer, CliError> {
        let mut idle = self.idle.take();
        let answer = self.runtime.block_on(self.engine.call(&mut idle, method, path, body));
        self.idle.set(idle);
        Ok(answer?)
    }
}
