//! Lists that are read page by page, of a store or of an engine, and printed item by item.

use serde::Deserialize;

use crate::exit;

/// A page of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct ReadPage<T> {
    pub(crate) items: Vec<T>,
    /// The place to go on behind; `None` at the end.
    pub(crate) next: Option<String>,
}

/// The part of a list that is printed.
#[derive(Debug)]
pub(crate) struct PrintedPart {
    /// Begin behind this place.
    pub(crate) after: Option<String>,
    /// As many at most.
    pub(crate) limit: usize,
}

/// Prints the items of the pages that `read` gives for a place and a number of items. Ends with where to go on: on standard error, for
/// standard output is for scripts.
pub(crate) fn print<T>(
    part: PrintedPart,
    mut read: impl FnMut(Option<&str>, usize) -> anyhow::Result<ReadPage<T>>,
    mut print: impl FnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let PrintedPart { mut after, limit: mut left } = part;
    loop {
        let page = read(after.as_deref(), left)?;
        left = left.saturating_sub(page.items.len());
        page.items.into_iter().try_for_each(&mut print)?;
        after = page.next;
        match &after {
            None => return Ok(()),
            Some(place) if left == 0 => {
                exit::complain(&format!("go on with --after {place}"));
                return Ok(());
            }
            Some(_) => {}
        }
    }
}
