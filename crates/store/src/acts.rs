//! The trail of acts: a row for each call that changes what was handed in before, or how it is sent, or a key.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use notification::{Name, Timestamp};

use crate::StoreError;

/// The beginning of an act, written before anything of it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActBegun {
    /// When.
    pub at: Timestamp,
    /// The identifier of its request, at most 128 bytes.
    pub request: String,
    /// The name of the caller's key; `None` where no keys are configured.
    pub key: Option<Name>,
    /// The caller's tenant.
    pub caller: Name,
    /// The tenant that it concerns.
    pub tenant: Name,
    /// Its method and route: `POST /v1/notifications/{id}/cancel`.
    pub call: String,
    /// Its path and query, without what would tell of a person.
    pub asked: String,
}

/// The end of an act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActEnded {
    /// When.
    pub at: Timestamp,
    /// The status of its answer.
    pub status: u16,
    /// The tenant that it concerns, where the beginning did not know.
    pub tenant: Option<Name>,
    /// Its outcome as JSON, in the words of the API. The store understands nothing of it.
    pub answer: Option<String>,
}

/// An act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// Its number. Acts are numbered as they begin.
    pub id: u64,
    /// Its beginning.
    pub begun: ActBegun,
    /// Its end. `None` while it is under way, and when its end was not written, since the caller or the process was gone by then: it is
    /// not known what came of it.
    pub ended: Option<ActEnded>,
}

/// A filter of acts. A field that is not set matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActFilter {
    /// The tenant that they concern. An index finds them.
    pub tenant: Option<Name>,
    /// The name of the caller's key.
    pub key: Option<Name>,
    /// Begun at this instant or later.
    pub since: Option<Timestamp>,
    /// Begun before this instant.
    pub until: Option<Timestamp>,
}

/// Some acts, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActPage {
    /// The acts. May be none although more follow: a call looks at a bounded number of rows.
    pub items: Vec<Act>,
    /// The act behind which the next call goes on; `None` at the end.
    pub next: Option<u64>,
}

/// Acts are numbered as they begin, by the clocks of several processes: none is out of order by more.
const CLOCKS_APART: Duration = Duration::from_hours(1);
/// Rows that one call looks at.
pub(crate) const ACTS_LOOKED_AT: usize = 1_000;

/// Writes the trail.
#[async_trait]
pub trait ActTrail: Send + Sync + fmt::Debug {
    /// Writes the beginning of an act down, durably, and gives its number.
    async fn begin_act(&self, act: ActBegun) -> Result<u64, StoreError>;

    /// Writes down what came of it. A power cut may undo this, and then the act has no end.
    async fn end_act(&self, id: u64, end: ActEnded) -> Result<(), StoreError>;
}

// === impl ActFilter ===

impl ActFilter {
    /// True if the act, and so all before it, began before what is looked for.
    fn is_past(&self, act: &ActBegun) -> bool {
        self.since.is_some_and(|since| act.at.plus(CLOCKS_APART) < since)
    }

    fn matches(&self, act: &ActBegun) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| act.tenant == *tenant)
            && self.key.as_ref().is_none_or(|key| act.key.as_ref() == Some(key))
            && self.since.is_none_or(|since| act.at >= since)
            && self.until.is_none_or(|until| act.at < until)
    }
}

// === impl ActPage ===

impl ActPage {
    /// The page of at most `items_max` that match `filter`, of the next rows behind a place, newest first, [`ACTS_LOOKED_AT`] at most.
    pub(crate) fn of(rows: Vec<Act>, filter: &ActFilter, items_max: usize) -> Self {
        let is_last = rows.len() < ACTS_LOOKED_AT;
        let mut page = Self::default();
        let mut passed = None;
        for act in rows {
            if page.items.len() == items_max {
                return Self { next: passed, ..page };
            }
            passed = Some(act.id);
            if filter.is_past(&act.begun) {
                return Self { next: None, ..page };
            }
            if filter.matches(&act.begun) {
                page.items.push(act);
            }
        }
        Self { next: passed.filter(|_| !is_last), ..page }
    }
}
