//! One caller of the API over a connection that it keeps: one notification a request.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::workload::token;

/// An open connection to an engine.
#[derive(Debug)]
pub struct LoadCaller {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

/// The fields of an answer that are read.
#[derive(Debug, Deserialize)]
struct CallerAnswer {
    id: String,
    state: Option<String>,
}

/// How long an answer may take, so that a run ends: what is measured takes milliseconds.
const PATIENCE: Duration = Duration::from_mins(1);

// === impl LoadCaller ===

impl LoadCaller {
    /// Connects to the engine at `address`.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        // Head and body are written one after the other, and the body must not wait for an acknowledgement.
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Self { stream, reader })
    }

    /// Sends the token of `number` a notification of this priority, and waits until it is accepted. Returns its identifier.
    ///
    /// # Errors
    /// With the engine's words when it is not.
    pub fn notify(&mut self, number: u64, priority: &str) -> Result<String> {
        let to = token(number);
        let body = format!(
            r#"{{"channel":"ios","to":"{to}","priority":"{priority}","content":{{"aps":{{"alert":"code"}}}}}}"#
        );
        let length = body.len();
        let request = format!(
            "POST /v1/notifications HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes())?;
        let (status, answer) = self.read_answer()?;
        ensure!(status.contains(" 201 "), "{status}{answer}");
        let accepted: CallerAnswer = serde_json::from_str(&answer)?;
        Ok(accepted.id)
    }

    /// True if the notification `id` is delivered.
    ///
    /// # Errors
    /// With the engine's words when it does not say.
    pub fn is_delivered(&mut self, id: &str) -> Result<bool> {
        let request = format!("GET /v1/notifications/{id} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        self.stream.write_all(request.as_bytes())?;
        let (status, answer) = self.read_answer()?;
        ensure!(status.contains(" 200 "), "{status}{answer}");
        let seen: CallerAnswer = serde_json::from_str(&answer)?;
        Ok(seen.state.as_deref() == Some("delivered"))
    }

    /// Sends a request with the API key `key`, and waits for the answer: its status and body.
    ///
    /// # Errors
    /// When the connection ends before the answer does; it is of no more use then.
    pub fn request(&mut self, key: &str, line: &str, body: &str) -> Result<(u16, String)> {
        let length = body.len();
        let head = format!(
            "{line} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        self.stream.write_all(head.as_bytes())?;
        self.stream.write_all(body.as_bytes())?;
        let (status, answer) = self.read_answer()?;
        let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        Ok((code.with_context(|| format!("no status line: {status:?}"))?, answer))
    }

    fn read_answer(&mut self) -> Result<(String, String)> {
        let (mut status, mut length) = (String::new(), 0);
        self.reader.read_line(&mut status)?;
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut answer = vec![0; length];
        self.reader.read_exact(&mut answer)?;
        Ok((status, String::from_utf8_lossy(&answer).into_owned()))
    }
}
