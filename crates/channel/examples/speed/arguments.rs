//! The command line of the examples that send over HTTP/2.

use std::error::Error;

use serde_json::Value;

use crate::speed::put;

/// How much is sent.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) requests: usize,
    pub(crate) body_bytes: usize,
    pub(crate) threads: usize,
    /// Chunks of 1,000 under way at a time, on each thread.
    pub(crate) chunks: usize,
}

// === impl Arguments ===

impl Arguments {
    /// Replaces these by those of the command line. Its other flags are settings: `--ca-file` is `ca_file`.
    pub(crate) fn read(mut self, settings: &mut Value) -> Result<Self, Box<dyn Error>> {
        let mut words = std::env::args().skip(1);
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--requests" => self.requests = value.parse()?,
                "--body-bytes" => self.body_bytes = value.parse()?,
                "--threads" => self.threads = value.parse()?,
                "--chunks" => self.chunks = value.parse()?,
                "--concurrency" => put(settings, "concurrency", value.parse::<usize>()?),
                _ => put(settings, &flag.trim_start_matches('-').replace('-', "_"), value),
            }
        }
        Ok(self)
    }
}
