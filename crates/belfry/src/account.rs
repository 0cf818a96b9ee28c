//! The account as `audit` and `status` print it.

use std::fmt::{Result, Write as _};

use api::Totals;

/// Appends a line for each count.
pub(crate) fn push_text(totals: &Totals, text: &mut String) -> Result {
    let accepted = [("accepted", totals.accepted)];
    for (name, count) in accepted.into_iter().chain(totals.standing()) {
        writeln!(text, "{:<10} {count:>12}", name.replace('_', " "))?;
    }
    Ok(())
}
