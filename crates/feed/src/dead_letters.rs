//! Dead letters of a source: messages that are no notifications, each with the reason.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notification::Name;
use stream::dead_letter::{letter, letter_record};
use stream::{BatchLimits, PutError, Record, StreamMessage, Target};

/// Where dead letters go.
#[derive(Debug, Clone)]
pub enum DeadLetters {
    /// To a stream, one record each. A body that the stream cannot carry whole is cut, and its letter says so.
    Stream(Arc<dyn Target>),
    /// To the end of a file, one line each, on disk before the message is acknowledged. Bodies are whole.
    File(PathBuf),
    /// Nowhere: they are counted, and the first of a batch is logged.
    Dropped,
}

// === impl DeadLetters ===

impl DeadLetters {
    /// Puts messages there; answers for each, in order, durably.
    pub(crate) async fn bury(
        &self,
        source: &Name,
        dead: &[(StreamMessage, String)],
    ) -> Vec<Result<(), String>> {
        match self {
            Self::Stream(target) => put_letters(&**target, source, dead).await,
            Self::File(file) => {
                let lines = dead.iter().flat_map(|(message, reason)| {
                    let mut line = letter(Some(source.as_str()), message, reason, usize::MAX);
                    line.push(b'\n');
                    line
                });
                let (file, lines) = (file.clone(), lines.collect::<Vec<u8>>());
                let written = tokio::task::spawn_blocking(move || append(&file, &lines)).await;
                let written = written.unwrap_or_else(|ended| Err(io::Error::other(ended)));
                vec![written.map_err(|error| error.to_string()); dead.len()]
            }
            Self::Dropped => vec![Ok(()); dead.len()],
        }
    }

    /// Ends the connection, if there is one.
    pub(crate) async fn close(&self) {
        if let Self::Stream(target) = self {
            target.close().await;
        }
    }
}

/// Puts letters to `target`, as many in a call as fit.
async fn put_letters(
    target: &dyn Target,
    source: &Name,
    dead: &[(StreamMessage, String)],
) -> Vec<Result<(), String>> {
    let limits = target.limits();
    let record_of = |(message, reason): &(StreamMessage, String), limits: BatchLimits| {
        letter_record(Some(source.as_str()), message, reason, limits)
    };
    let records: Vec<Record> = dead.iter().map(|dead| record_of(dead, limits)).collect();
    let mut buried = Vec::with_capacity(records.len());
    while let Some(open) = records.get(buried.len()..)
        && !open.is_empty()
    {
        let count = limits.fitting(open).max(1).min(open.len());
        let answers = target.put(open.get(..count).unwrap_or(open)).await;
        for (answer, dead) in answers.into_iter().zip(dead.iter().skip(buried.len())) {
            buried.push(match answer {
                // Smaller than what it says that it takes: once more with the reason alone.
                Err(PutError::Refused(_too_large)) => {
                    let record = record_of(dead, BatchLimits { record_bytes: 0, ..limits });
                    let record = Record { key: None, ..record };
                    let again = target.put(&[record]).await.into_iter().next();
                    again.unwrap_or(Ok(())).map_err(|error| error.to_string())
                }
                answer => answer.map_err(|error| error.to_string()),
            });
        }
    }
    buried
}

/// Writes `lines` to the end of `file`, which is made if it is missing, and has them on disk.
fn append(file: &Path, lines: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(lines)?;
    file.sync_data()
}
