//! Attempts by channel and by the provider's code, in a bounded number of series.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use notification::{Disposition, OutcomeGroup, State};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Codes of a channel that have a series of their own. A protocol has fewer; a server may say any number, and webhooks go to servers of
/// strangers.
pub(crate) const CODES_MAX: usize = 64;

/// Counts of attempts. Cloning gives another handle on the same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct AttemptCodes {
    counts: Family<AttemptLabels, Counter>,
    /// The codes that have a series, by channel.
    known: Arc<Mutex<BTreeMap<String, BTreeSet<Cow<'static, str>>>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    channel: String,
    code: Cow<'static, str>,
}

// === impl AttemptCodes ===

impl AttemptCodes {
    /// Registers them in `registry`.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Attempts that ended, by the code or the reason of the provider";
        registry.register("belfry_attempts", help, self.counts.clone());
    }

    /// Counts `count` attempts of `channel`, whose outcome is that of `group`, if these were attempts; those that sent nothing are
    /// [counted apart](Self::count_unsent).
    pub(crate) fn count(&self, channel: &str, group: &OutcomeGroup, count: u64) {
        let Some(code) = code_of(group) else { return };
        self.add(channel, code, count);
    }

    /// Counts `count` attempts of `channel` that sent nothing.
    pub(crate) fn count_unsent(&self, channel: &str, count: u64) {
        self.add(channel, Cow::Borrowed("unsent"), count);
    }

    fn add(&self, channel: &str, code: Cow<'static, str>, count: u64) {
        let code = self.bounded(channel, code);
        let labels = AttemptLabels { channel: channel.to_owned(), code };
        self.counts.get_or_create(&labels).inc_by(count);
    }

    /// `code`, or `other` when its channel has as many as have a series.
    fn bounded(&self, channel: &str, code: Cow<'static, str>) -> Cow<'static, str> {
        // A panic leaves nothing half done: each change adds one entry.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(channel) {
            known.insert(channel.to_owned(), BTreeSet::new());
        }
        let Some(codes) = known.get_mut(channel) else { return code };
        if codes.contains(&code) {
            return code;
        }
        if codes.len() >= CODES_MAX {
            return Cow::Borrowed("other");
        }
        codes.insert(code.clone());
        code
    }
}

/// The code under which the attempts of `group` are counted. `None` if they were not attempts.
fn code_of(group: &OutcomeGroup) -> Option<Cow<'static, str>> {
    match group.disposition {
        Disposition::HandedBack { .. } | Disposition::Ended(State::Expired) => return None,
        Disposition::Ended(_) | Disposition::TooLate | Disposition::Retry { .. } => {}
    }
    Some(attempt_code(group.status, &group.detail))
}

/// The code of an attempt with this status and this detail: the reason, if it is a word that the code of a channel lists; otherwise the
/// status of the protocol; `none` without an answer.
#[expect(clippy::ptr_arg, reason = "a text that is owned is a server's, and a borrowed one ours")]
pub(crate) fn attempt_code(status: u16, detail: &Cow<'static, str>) -> Cow<'static, str> {
    match detail {
        // Words of a server are never static: what is comes from a table.
        Cow::Borrowed(word) if is_word(word) => Cow::Borrowed(word),
        Cow::Borrowed(_) | Cow::Owned(_) if status > 0 => Cow::Owned(status.to_string()),
        Cow::Borrowed(_) | Cow::Owned(_) => Cow::Borrowed("none"),
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use notification::Timestamp;
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn group(
        disposition: Disposition,
        status: u16,
        detail: impl Into<Cow<'static, str>>,
    ) -> OutcomeGroup {
        let (detail, gone_since) = (detail.into(), BTreeMap::new());
        OutcomeGroup { disposition, status, detail, suppress: false, gone_since, indexes: vec![0] }
    }

    fn lines(codes: &AttemptCodes) -> Vec<String> {
        let (mut registry, mut text) = (Registry::default(), String::new());
        codes.register(&mut registry);
        encode(&mut text, &registry).unwrap();
        let mut lines: Vec<String> =
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    #[test]
    fn attempts_are_counted_by_a_listed_reason_or_the_status() {
        let codes = AttemptCodes::default();
        let at = Timestamp::from_millis(0);
        let [delivered, refused, expired] =
            [State::Delivered, State::Refused, State::Expired].map(Disposition::Ended);
        for (disposition, status, detail) in [
            (delivered, 200, Cow::Borrowed("")),
            (refused, 410, Cow::Borrowed("Unregistered")),
            (refused, 410, Cow::Owned("Unregistered".to_owned())),
            (refused, 0, Cow::Borrowed("the store holds no content for it")),
            (Disposition::Retry { at }, 503, Cow::Borrowed("")),
            (Disposition::TooLate, 503, Cow::Owned("soon".to_owned())),
            (Disposition::HandedBack { at }, 0, Cow::Borrowed("")),
            (expired, 0, Cow::Borrowed("")),
        ] {
            codes.count("ios", &group(disposition, status, detail), 2);
        }
        let expect = [
            "belfry_attempts_total{channel=\"ios\",code=\"200\"} 2",
            "belfry_attempts_total{channel=\"ios\",code=\"410\"} 2",
            "belfry_attempts_total{channel=\"ios\",code=\"503\"} 4",
            "belfry_attempts_total{channel=\"ios\",code=\"Unregistered\"} 2",
            "belfry_attempts_total{channel=\"ios\",code=\"none\"} 2",
        ];
        assert_eq!(lines(&codes), expect);
    }

    #[test]
    fn a_server_that_says_a_hundred_times_as_many_codes_makes_no_more_series() {
        let codes = AttemptCodes::default();
        let refused = Disposition::Ended(State::Refused);
        let said = u16::try_from(CODES_MAX * 100).unwrap();
        for status in 1..=said {
            codes.count("hooks", &group(refused, status, ""), 1);
        }
        codes.count("hooks", &group(refused, 1, ""), 1);
        let lines = lines(&codes);
        assert_eq!(lines.len(), CODES_MAX + 1);
        let other = usize::from(said) - CODES_MAX;
        for line in [
            "belfry_attempts_total{channel=\"hooks\",code=\"1\"} 2".to_owned(),
            format!("belfry_attempts_total{{channel=\"hooks\",code=\"other\"}} {other}"),
        ] {
            assert!(lines.contains(&line), "{line} {lines:?}");
        }
    }
}
