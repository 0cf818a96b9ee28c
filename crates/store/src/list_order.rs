//! The order of a list.

use std::str::FromStr;

/// The order of a list: of notifications by batch, then by index; of broadcasts by number. That is about the order of acceptance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListOrder {
    /// Ascending.
    #[default]
    OldestFirst,
    /// Descending.
    NewestFirst,
}

// === impl ListOrder ===

impl ListOrder {
    /// The order's name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OldestFirst => "oldest",
            Self::NewestFirst => "newest",
        }
    }
}

impl FromStr for ListOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let orders = [Self::OldestFirst, Self::NewestFirst];
        let known = orders.into_iter().find(|order| order.as_str() == text);
        known.ok_or_else(|| format!("{text:?} is no order: newest or oldest"))
    }
}
