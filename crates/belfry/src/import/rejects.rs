//! The rejects: bad rows as they are, and beside them the reasons.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use crate::exit::{CliError, FailureKind};

use super::row::BadRow;

/// Two files that are removed again when nothing was rejected.
#[derive(Debug)]
pub(super) struct Rejects {
    rows: Output,
    reasons: Output,
    is_empty: bool,
}

#[derive(Debug)]
struct Output {
    path: PathBuf,
    file: BufWriter<File>,
}

#[derive(Debug, Serialize)]
struct RejectReason<'a> {
    line: u64,
    field: &'a str,
    message: &'a str,
    kept: bool,
}

// === impl Rejects ===

impl Rejects {
    /// Creates `path` and `path.reasons`. Neither may exist: they may hold rows that are not corrected yet.
    pub(super) fn create(path: &Path, header: Option<&[u8]>) -> anyhow::Result<Self> {
        let mut reasons = path.as_os_str().to_owned();
        reasons.push(".reasons");
        let mut rows = Output::create(path.to_owned())?;
        let reasons = Output::create(reasons.into())?;
        // The header is no rejected row: files with nothing else are removed at the end.
        if let Some(header) = header {
            rows.line(header)?;
        }
        Ok(Self { rows, reasons, is_empty: true })
    }

    /// Adds a row.
    pub(super) fn write(&mut self, row: &BadRow) -> anyhow::Result<()> {
        self.is_empty = false;
        if let Some(raw) = &row.raw {
            self.rows.line(raw)?;
        }
        let BadRow { line, field, message, raw, .. } = row;
        let reason = RejectReason { line: *line, field, message, kept: raw.is_some() };
        self.reasons.line(&serde_json::to_vec(&reason)?)
    }

    /// Completes both files, or removes them when they are empty.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        for Output { path, mut file } in [self.rows, self.reasons] {
            let done = if self.is_empty { fs::remove_file(&path) } else { file.flush() };
            done.with_context(|| format!("cannot complete the rejects {}", path.display()))?;
        }
        Ok(())
    }
}

// === impl Output ===

impl Output {
    fn create(path: PathBuf) -> Result<Self, CliError> {
        let file = File::create_new(&path).map_err(|error| {
            let message = format!(
                "cannot create the rejects {}: {error}; move it away or name another with --rejects",
                path.display()
            );
            CliError::new(FailureKind::CannotCreate, message)
        })?;
        Ok(Self { path, file: BufWriter::new(file) })
    }

    fn line(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let written = self.file.write_all(line).and_then(|()| self.file.write_all(b"\n"));
        written.with_context(|| format!("cannot write the rejects {}", self.path.display()))
    }
}
