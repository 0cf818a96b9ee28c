//! The account as `audit` and `status` print it.

use std::fmt::{Result, Write as _};

use notification::Account;

use crate::paint;

/// Appends a line for each count.
pub(crate) fn push_text(account: &Account, text: &mut String) -> Result {
    let accepted = [("accepted", account.accepted)];
    for (name, count) in accepted.into_iter().chain(account.standing()) {
        let line = format!("{:<10} {count:>12}", name.replace('_', " "));
        // A count of nothing asks for no look.
        let state = if count == 0 { "" } else { name };
        writeln!(text, "{}", paint::state(state, &line))?;
    }
    Ok(())
}
