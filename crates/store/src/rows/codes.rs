//! Numbers and texts of rows, and their meanings.

use std::str::FromStr;

use notification::{Guarantee, Name, Priority, State};

use crate::StoreError;

/// Number of a lane in the store.
pub(crate) type LaneId = i64;

pub(crate) fn name(text: &str) -> Result<Name, StoreError> {
    Name::from_str(text).map_err(|error| StoreError::Damaged(error.to_string()))
}

pub(crate) fn guarantee(code: u8) -> Result<Guarantee, StoreError> {
    Guarantee::from_code(code).ok_or_else(|| StoreError::Damaged(format!("{code} is no guarantee")))
}

pub(crate) fn priority(code: u8) -> Result<Priority, StoreError> {
    Priority::from_code(code).ok_or_else(|| StoreError::Damaged(format!("{code} is no priority")))
}

pub(crate) fn state(code: u8) -> Result<State, StoreError> {
    State::from_code(code).ok_or_else(|| StoreError::Damaged(format!("{code} is no state")))
}
