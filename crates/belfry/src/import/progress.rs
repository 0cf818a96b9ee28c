//! How far an import is: a bar on a terminal, plain lines elsewhere, both on standard error.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::complain;

/// Rows between two lines where there is no terminal.
const ROWS_PER_LINE: u64 = 100_000;

/// Shows bytes of the file, for the number of its rows is not known.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    told: u64,
}

// === impl Progress ===

impl Progress {
    /// Of a file of `bytes`, if that is known.
    pub(super) fn new(bytes: Option<u64>) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let (bar, template) = match bytes {
                Some(bytes) => {
                    (ProgressBar::new(bytes), "{bar:30} {bytes}/{total_bytes} {msg} ({eta} left)")
                }
                None => (ProgressBar::new_spinner(), "{spinner} {bytes} {msg}"),
            };
            let style = ProgressStyle::with_template(template);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { bar, told: 0 }
    }

    /// `rows` are accepted so far, and the file is done up to `offset`.
    pub(super) fn accepted(&mut self, rows: u64, offset: u64) {
        match &self.bar {
            Some(bar) => {
                // Batches may be accepted out of order.
                bar.set_position(bar.position().max(offset));
                bar.set_message(format!("{rows} rows accepted"));
            }
            None if rows / ROWS_PER_LINE > self.told / ROWS_PER_LINE => {
                self.told = rows;
                complain(&format!("{rows} rows accepted"));
            }
            None => {}
        }
    }

    /// Leaves a clean line for what comes next.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
