//! An engine that a test runs, as `belfry serve`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A running engine, ended with the test.
pub(crate) struct Served {
    child: Child,
    /// Where it listens.
    pub(crate) url: String,
}

impl Served {
    /// Runs `serve`, the command of an engine, at a port that is free, until it is ready.
    pub(crate) fn start(mut serve: Command) -> Self {
        serve.env("BELFRY__SERVER__LISTEN", "127.0.0.1:0").stdin(Stdio::null());
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let ready: Value = serde_json::from_str(&ready).unwrap();
        let url = format!("http://{}", ready["listen"].as_str().unwrap());
        Self { child, url }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
