//! How far a command is that works through many rows: a bar on a terminal, plain lines elsewhere, both on standard error.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::complain;

/// Rows between two lines where there is no terminal.
const ROWS_PER_LINE: u64 = 100_000;

/// Shows bytes of the file, for the number of its rows is not known.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Hidden where there is no terminal.
    bar: ProgressBar,
    done: &'static str,
    told: u64,
}

/// One line on a terminal that says how things stand, in place of what it said before; nothing elsewhere.
#[derive(Debug)]
pub(crate) struct StatusLine {
    line: ProgressBar,
}

// === impl Progress ===

impl Progress {
    /// Of a file of `bytes`, if that is known; `done` is what becomes of its rows, such as "accepted".
    pub(crate) fn new(bytes: Option<u64>, done: &'static str) -> Self {
        let bar = match bytes {
            Some(bytes) => {
                styled(ProgressBar::new(bytes), "{bar:30} {bytes}/{total_bytes} {msg} ({eta} left)")
            }
            None => styled(ProgressBar::new_spinner(), "{spinner} {bytes} {msg}"),
        };
        Self { bar, done, told: 0 }
    }

    /// `rows` are done so far, and the file up to `offset`.
    pub(crate) fn tell(&mut self, rows: u64, offset: u64) {
        if !self.bar.is_hidden() {
            // Batches may be accepted out of order.
            self.bar.set_position(self.bar.position().max(offset));
            self.bar.set_message(format!("{rows} rows {}", self.done));
        } else if rows / ROWS_PER_LINE > self.told / ROWS_PER_LINE {
            // By hundred thousands passed, not by a remainder: a batch steps over the round number.
            self.told = rows;
            complain(&format!("{rows} rows {}", self.done));
        }
    }

    /// Leaves a clean line for what comes next.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

// === impl StatusLine ===

impl StatusLine {
    /// On standard error, beside output that goes elsewhere: lines on a terminal are progress enough.
    pub(crate) fn new() -> Self {
        let is_hidden = io::stdout().is_terminal();
        let line = if is_hidden { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        Self { line: styled(line, "{spinner} {msg}") }
    }

    /// True without a terminal to show it.
    pub(crate) fn is_hidden(&self) -> bool {
        self.line.is_hidden()
    }

    /// Says `text` from now on.
    pub(crate) fn say(&self, text: impl FnOnce() -> String) {
        if !self.line.is_hidden() {
            self.line.set_message(text());
            self.line.tick();
        }
    }

    /// Leaves a clean line for what comes next.
    pub(crate) fn finish(&self) {
        self.line.finish_and_clear();
    }
}

/// `bar`, drawn by `template`.
pub(crate) fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A span between two others in seconds, in words.
pub(crate) fn lasting(least: f64, most: f64) -> String {
    let (unit, seconds) = match most {
        ..120.0 => ("s", 1.0),
        ..7_200.0 => ("min", 60.0),
        _ => ("h", 3_600.0),
    };
    let (least, most) = (least / seconds, most / seconds);
    // To a tenth where that says something.
    if most < 10.0 {
        format!("{least:.1} to {most:.1} {unit}")
    } else {
        format!("{least:.0} to {most:.0} {unit}")
    }
}
