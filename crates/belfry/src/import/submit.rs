//! Sends one batch until every row of it is accepted or known to be bad.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::Deserialize;

use crate::client::{CallError, EngineAnswer, EngineApi, EngineConnection};
use crate::exit::{CliError, FailureKind};

use super::args::OnError;
use super::batch::ImportBatch;
use super::row::{BadRow, ImportRow};

/// How often a batch is sent to an engine that says it has too much to do: a minute or more in all.
const TRIES: u32 = 60;
/// The wait when the engine does not say how long, and the longest one.
const WAIT: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The result of a batch.
#[derive(Debug)]
pub(super) struct Submitted {
    /// To be used again.
    pub(super) connection: Option<EngineConnection>,
    /// Rows that are new to the engine.
    pub(super) accepted: u64,
    /// Rows that it had before.
    pub(super) replayed: u64,
    /// Rows that it will not take; when these stop the import, the first one.
    pub(super) bad: Vec<BadRow>,
    /// The failure after which rows are left without an answer.
    pub(super) broken: Option<BrokenRequest>,
    /// Bytes of the file up to the end of the batch.
    pub(super) end_offset: u64,
}

/// Rows without an answer.
#[derive(Debug)]
pub(super) struct BrokenRequest {
    /// The line of the first.
    pub(super) first_line: u64,
    /// The line of the last.
    pub(super) last_line: u64,
    /// True if they may have been accepted.
    pub(super) is_unknown: bool,
    /// The failure.
    pub(super) failure: CliError,
}

#[derive(Debug, Deserialize)]
struct Accepted {
    accepted: u64,
    replayed: u64,
}

/// The engine's answer to a request.
enum SubmitReply {
    Accepted(Accepted),
    Busy { wait: Duration, failure: CliError },
    Bad(BTreeMap<usize, (String, String)>),
    Failed { is_unknown: bool, failure: CliError },
}

/// Sends `batch`. Rows that the engine names as bad are taken out and the rest is sent again; when these
/// stop the import, only those before the first bad one.
pub(super) async fn submit(
    engine: &EngineApi,
    connection: Option<EngineConnection>,
    batch: ImportBatch,
    on_error: OnError,
) -> Submitted {
    let ImportBatch { mut rows, end_offset, .. } = batch;
    let (accepted, replayed, bad) = (0, 0, Vec::new());
    let mut result = Submitted { connection, accepted, replayed, bad, broken: None, end_offset };
    let mut tries = 0;
    while !rows.is_empty() {
        match send(engine, &mut result.connection, &rows).await {
            SubmitReply::Accepted(answer) => {
                result.accepted += answer.accepted;
                result.replayed += answer.replayed;
                break;
            }
            SubmitReply::Busy { wait, failure } => {
                tries += 1;
                if tries == TRIES {
                    // Known to have none of it: an engine that is busy refuses the whole.
                    result.broken = broken(&rows, false, failure);
                    break;
                }
                tokio::time::sleep(wait).await;
            }
            // Each such answer names one of the rows at least, so there is a last one.
            SubmitReply::Bad(errors) => rows = take_out(rows, &errors, on_error, &mut result.bad),
            SubmitReply::Failed { is_unknown, failure } => {
                result.broken = broken(&rows, is_unknown, failure);
                break;
            }
        }
    }
    result
}

async fn send(
    engine: &EngineApi,
    connection: &mut Option<EngineConnection>,
    rows: &[ImportRow],
) -> SubmitReply {
    match engine.call(connection, Method::POST, "/v1/notifications", body(rows)).await {
        Ok(answer) => SubmitReply::from_answer(&answer, rows.len()),
        Err(error) => {
            let is_unknown = matches!(error, CallError::Lost(_));
            SubmitReply::Failed { is_unknown, failure: error.into() }
        }
    }
}

fn body(rows: &[ImportRow]) -> Bytes {
    let bytes = rows.iter().map(|row| row.json.len() + 1).sum::<usize>() + 1;
    let mut body = Vec::with_capacity(bytes);
    let mut separator = b'[';
    for row in rows {
        body.push(separator);
        body.extend_from_slice(row.json.as_bytes());
        separator = b',';
    }
    body.push(b']');
    body.into()
}

fn take_out(
    rows: Vec<ImportRow>,
    errors: &BTreeMap<usize, (String, String)>,
    on_error: OnError,
    bad: &mut Vec<BadRow>,
) -> Vec<ImportRow> {
    let mut good = Vec::new();
    for (i, row) in rows.into_iter().enumerate() {
        match errors.get(&i) {
            None => good.push(row),
            Some((field, message)) => {
                bad.push(row.into_bad(field, message));
                if on_error == OnError::Stop {
                    break;
                }
            }
        }
    }
    good
}

fn broken(rows: &[ImportRow], is_unknown: bool, failure: CliError) -> Option<BrokenRequest> {
    let (first_line, last_line) = (rows.first()?.line, rows.last()?.line);
    Some(BrokenRequest { first_line, last_line, is_unknown, failure })
}

// === impl SubmitReply ===

impl SubmitReply {
    fn from_answer(answer: &EngineAnswer, rows: usize) -> Self {
        if answer.status.is_success() {
            return match answer.json() {
                Ok(accepted) => Self::Accepted(accepted),
                Err(error) => Self::Failed {
                    // It was taken; how much of it was new cannot be read.
                    is_unknown: true,
                    failure: CliError::new(FailureKind::Failed, error.to_string()),
                },
            };
        }
        let failure = answer.failure();
        if matches!(answer.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS)
        {
            let wait = answer.retry_after.unwrap_or(WAIT).min(WAIT_MAX);
            return Self::Busy { wait, failure };
        }
        let mut errors = BTreeMap::new();
        for error in answer.field_errors() {
            // One that is no row's would take none out, and the same request would be sent for ever.
            if let Some((index, field)) = error.item().filter(|(index, _)| *index < rows) {
                // The first mistake of a row: a reject has one reason.
                errors.entry(index).or_insert((field, error.message));
            }
        }
        if answer.status.is_client_error() && !errors.is_empty() {
            return Self::Bad(errors);
        }
        // A disk that is full took nothing, and a minute will not empty it.
        let is_unknown =
            answer.status.is_server_error() && answer.status != StatusCode::INSUFFICIENT_STORAGE;
        Self::Failed { is_unknown, failure }
    }
}
