//! Ends by which batches are listed: those that an operator looks for, which are few (decision 0059).

use std::collections::BTreeSet;

use notification::State;

use crate::{Filter, ListOrder};

/// True if batches are listed by members that ended in this state. Not by those that were cancelled: members of a broadcast are so
/// before there is a line of the log about them, and a call that cancels millions would be slower for it.
pub(crate) const fn is_listed(state: State) -> bool {
    match state {
        State::Refused | State::Expired | State::Suppressed | State::InDoubt | State::Dead => true,
        State::Pending | State::Claimed | State::Begun | State::Delivered | State::Cancelled => {
            false
        }
    }
}

/// The states that `filter` is for, if batches are listed by each of them.
pub(crate) fn listed_states(filter: &Filter) -> Option<&BTreeSet<State>> {
    let states = &filter.states;
    (!states.is_empty() && states.iter().copied().all(is_listed)).then_some(states)
}

/// The first `batches_max` of the batches that were found by several states, in `order`, each once.
pub(crate) fn first_of(order: ListOrder, mut found: Vec<u64>, batches_max: usize) -> Vec<u64> {
    found.sort_unstable();
    found.dedup();
    if order == ListOrder::NewestFirst {
        found.reverse();
    }
    found.truncate(batches_max);
    found
}
