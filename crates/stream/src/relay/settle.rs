//! The consequences of a call that has ended.

use std::panic::resume_unwind;
use std::sync::atomic::Ordering;

use tokio::task::JoinError;
use tokio::time::Instant;

use super::options::{RelayCounts, RelayError};
use super::run::{EndedCall, RelayRun, RelayTrouble};
use super::waiting::{HeldMessage, RelayItem};
use super::window::{PutPass, PutSummary, pause};
use crate::{PutError, Record, StreamError, StreamMessage};

impl RelayRun {
    /// Settles a call.
    pub(super) fn settle(&mut self, ended: Result<EndedCall, JoinError>) {
        let now = self.relay.clock.monotonic();
        match ended {
            Ok(EndedCall::Fetched(Ok(messages))) => self.fetched(messages),
            Ok(EndedCall::Fetched(Err(error))) => self.not_fetched(error, now),
            Ok(EndedCall::Put(held, records, answers, pass)) => {
                self.was_put(held, records, answers, (pass, now));
            }
            Ok(EndedCall::Acknowledged(messages, answers)) => self.acknowledged(messages, answers),
            Ok(EndedCall::Buried(letters, answers)) => self.buried(letters, answers, now),
            Ok(EndedCall::GivenBack(held)) => {
                RelayCounts::add(&self.relay.counts.given_back, held.len());
                for held in &held {
                    self.done_with(held);
                }
            }
            // The fetch that was under way at the end.
            Err(error) if error.is_cancelled() => self.fetching = None,
            Err(error) => resume_unwind(error.into_panic()),
        }
    }

    fn fetched(&mut self, messages: Vec<StreamMessage>) {
        self.fetching = None;
        self.source.succeed();
        (self.is_reached, self.refused_since) = (true, None);
        if messages.is_empty() {
            return;
        }
        self.vain_since = None;
        RelayCounts::add(&self.relay.counts.fetched, messages.len());
        RelayCounts::add(&self.relay.counts.held, messages.len());
        let held: Vec<HeldMessage> = messages.into_iter().map(HeldMessage::new).collect();
        self.held.add(&held.iter().map(HeldMessage::bytes).collect::<Vec<usize>>());
        if self.end.is_some() {
            return self.give_back(held);
        }
        let most = self.relay.target.limits().record_bytes;
        for held in held {
            if self.end.is_some() {
                self.give_back(vec![held]);
                continue;
            }
            match self.relay.map.record(&held.message) {
                Err(why) => self.refuse(held, why),
                Ok(record) if record.bytes() > most => {
                    self.refuse(held, format!("it has more than the {most} bytes of a record"));
                }
                Ok(record) if self.is_at_most_once() => {
                    self.to_acknowledge.push((held, Some(record)));
                }
                Ok(record) => self.waiting.push(RelayItem { held, record }),
            }
        }
    }

    fn not_fetched(&mut self, error: StreamError, now: Instant) {
        self.fetching = None;
        self.source.fail(now, &mut self.relay.random);
        // Nothing is known of what waits there.
        self.vain_since = None;
        self.warn(RelayTrouble::Source, "the source cannot be read", &error);
        let patience = self.relay.options.patience;
        match &error {
            StreamError::Refused(_) => {
                // One that worked may say so for a moment, while it starts again.
                let since = *self.refused_since.get_or_insert(now);
                if !self.is_reached || now.saturating_duration_since(since) > patience {
                    self.end_with(Err(RelayError::Source(error)));
                }
            }
            StreamError::Unavailable(_) => {
                self.refused_since = None;
                if !self.is_reached && now.saturating_duration_since(self.started) > patience {
                    self.end_with(Err(RelayError::Unreachable(error)));
                }
            }
        }
    }

    fn was_put(
        &mut self,
        held: Vec<HeldMessage>,
        records: Vec<Record>,
        answers: Vec<Result<(), PutError>>,
        (pass, now): (PutPass, Instant),
    ) {
        let (mut summary, mut again, mut keys) = (PutSummary::default(), Vec::new(), Vec::new());
        let silent = || Err(PutError::Unknown("the target did not answer for it".to_owned()));
        let answers = answers.into_iter().chain(std::iter::repeat_with(silent));
        let mut taken = 0;
        for ((mut held, record), answer) in held.into_iter().zip(records).zip(answers) {
            keys.extend(record.key.clone());
            let error = match answer {
                Ok(()) => {
                    (summary.answered, taken) = (summary.answered + 1, taken + 1);
                    self.finish(held);
                    continue;
                }
                Err(PutError::Refused(why)) => {
                    summary.answered += 1;
                    self.refuse(held, why);
                    continue;
                }
                Err(error) => error,
            };
            self.warn(RelayTrouble::Target, "the target does not take records now", &error);
            let mut asked = None;
            match &error {
                PutError::Unknown(why) if held.is_acknowledged => {
                    self.refuse(held, format!("it may have been taken: {why}"));
                    continue;
                }
                PutError::Unknown(_) => RelayCounts::add(&self.relay.counts.doubtful, 1),
                PutError::Throttled { after, .. } => {
                    RelayCounts::add(&self.relay.counts.throttled, 1);
                    summary.throttled += 1;
                    (asked, summary.after) = (*after, summary.after.max(*after));
                }
                PutError::NotTaken(_) | PutError::Refused(_) => {}
            }
            held.failures = held.failures.saturating_add(1);
            held.not_before = Some(now + pause(held.failures, asked, &mut self.relay.random));
            again.push(RelayItem { held, record });
        }
        RelayCounts::add(&self.relay.counts.put, taken);
        self.window.end(pass, summary, now, &mut self.relay.random);
        let again = if self.end.is_some() { self.back_at_end(again) } else { again };
        self.waiting.put_ended(&keys, again);
    }

    fn acknowledged(
        &mut self,
        messages: Vec<(HeldMessage, Option<Record>)>,
        answers: Vec<Result<(), StreamError>>,
    ) {
        self.acknowledging -= 1;
        let silent = || Err(StreamError::Unavailable("the source did not answer".to_owned()));
        let answers = answers.into_iter().chain(std::iter::repeat_with(silent));
        let (mut acknowledged, mut failed) = (0, 0);
        for ((mut held, record), answer) in messages.into_iter().zip(answers) {
            match (answer, record) {
                (Ok(()), Some(record)) => {
                    acknowledged += 1;
                    held.is_acknowledged = true;
                    self.waiting.push(RelayItem { held, record });
                }
                (Ok(()), None) => {
                    acknowledged += 1;
                    self.done_with(&held);
                }
                // It comes again, or does not: it must not be put now.
                (Err(error), Some(_record)) => {
                    self.warn(
                        RelayTrouble::Acknowledgements,
                        "messages are not acknowledged",
                        &error,
                    );
                    self.done_with(&held);
                }
                (Err(error), None) => {
                    failed += 1;
                    let text = "messages were put and not acknowledged: they come again";
                    self.warn(RelayTrouble::Acknowledgements, text, &error);
                    self.done_with(&held);
                }
            }
        }
        RelayCounts::add(&self.relay.counts.acknowledged, acknowledged);
        RelayCounts::add(&self.relay.counts.unacknowledged, failed);
    }

    fn buried(
        &mut self,
        letters: Vec<(HeldMessage, String)>,
        answers: Vec<Result<(), PutError>>,
        now: Instant,
    ) {
        self.burying.succeed();
        let silent = || Err(PutError::Unknown("the dead letters did not answer".to_owned()));
        let answers = answers.into_iter().chain(std::iter::repeat_with(silent));
        let mut again = Vec::new();
        for ((held, reason), answer) in letters.into_iter().zip(answers) {
            match answer {
                Ok(()) => {
                    RelayCounts::add(&self.relay.counts.dead, 1);
                    self.finish(held);
                }
                Err(PutError::Refused(why)) => {
                    self.end_with(Err(RelayError::Letter { id: held.message.id.clone(), why }));
                    self.give_back(vec![held]);
                }
                Err(error) => {
                    self.warn(RelayTrouble::Letters, "the dead letters take nothing now", &error);
                    again.push((held, reason));
                }
            }
        }
        if again.is_empty() {
            return;
        }
        self.burying.fail(now, &mut self.relay.random);
        for (held, reason) in again.into_iter().rev() {
            if self.end.is_some() && !held.is_acknowledged {
                self.give_back(vec![held]);
            } else {
                self.refused.push_front((held, reason));
            }
        }
    }

    /// The target, or the dead letters, took it.
    fn finish(&mut self, held: HeldMessage) {
        if held.is_acknowledged {
            self.done_with(&held);
        } else {
            self.to_acknowledge.push((held, None));
        }
    }

    /// It cannot be put as it is.
    fn refuse(&mut self, held: HeldMessage, why: String) {
        if self.relay.dead_letters.is_none() {
            let id = held.message.id.clone();
            self.end_with(Err(RelayError::Refused { id, why }));
        } else if self.end.is_none() || held.is_acknowledged {
            self.refused.push_back((held, why));
            return;
        }
        self.give_back(vec![held]);
    }

    pub(super) fn done_with(&mut self, held: &HeldMessage) {
        self.held.remove(held.bytes());
        self.relay.counts.held.store(self.held.messages() as u64, Ordering::Relaxed);
    }

    fn warn(&self, trouble: RelayTrouble, text: &str, error: &dyn std::fmt::Display) {
        if self.log.get(trouble as usize).is_some_and(|log| log.admits(self.relay.clock)) {
            tracing::warn!(%error, "{text}");
        }
    }
}
