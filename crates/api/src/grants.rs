//! Grants: the calls that a key is good for.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;

use notification::{Name, Priority, Timestamp};
use pipeline::ingest::{EndpointPrefix, FromPattern, InvalidField, SenderGrants, Submission};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

/// A scope of a key. Each route needs one, or several ([`routes`](crate::routes)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyScope {
    /// Hand notifications and broadcasts in, preview them, and send again what was given up.
    Send,
    /// Notifications, broadcasts, events, channels and pauses.
    Read,
    /// Cancel, reschedule, pause, resume, and write down what became of what is in doubt.
    Cancel,
    /// Erase what is stored about a recipient; with [`Operate`](Self::Operate) the suppression list as well.
    Suppress,
    /// Beyond the own tenant: what concerns all of them, and what belongs to another that is named.
    Operate,
    /// The metrics of the process, which are of all tenants.
    Metrics,
}

/// A text that names no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no scope: there are send, read, cancel, suppress, operate and metrics")]
pub struct UnknownScope(String);

/// The calls that a key is good for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grants {
    /// Its scopes.
    pub scopes: BTreeSet<KeyScope>,
    /// The channels that it sends by; `None` is all of them.
    pub channels: Option<BTreeSet<Name>>,
    /// The priorities that it sends with; `None` is all of them.
    pub priorities: Option<BTreeSet<Priority>>,
    /// The senders that it sends as.
    pub senders: Arc<SenderGrants>,
    /// The last instant at which it is good for anything.
    pub not_after: Option<Timestamp>,
    /// Requests in a minute, at each process; `None` is any number. Ten seconds' worth may come at once.
    pub requests_per_minute: Option<NonZeroU32>,
}

// === impl KeyScope ===

impl KeyScope {
    /// Every scope.
    pub const ALL: [Self; 6] =
        [Self::Send, Self::Read, Self::Cancel, Self::Suppress, Self::Operate, Self::Metrics];
    /// The scopes of a key for which none are named: everything that is its tenant's, and the metrics.
    pub const OF_TENANT: [Self; 5] =
        [Self::Send, Self::Read, Self::Cancel, Self::Suppress, Self::Metrics];

    /// The word that users read and write.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Read => "read",
            Self::Cancel => "cancel",
            Self::Suppress => "suppress",
            Self::Operate => "operate",
            Self::Metrics => "metrics",
        }
    }
}

impl fmt::Display for KeyScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl Serialize for KeyScope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl JsonSchema for KeyScope {
    fn schema_name() -> Cow<'static, str> {
        "KeyScope".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words = Self::ALL.map(Self::as_str);
        json_schema!({ "type": "string", "enum": words, "description": "A scope of a key." })
    }
}

impl FromStr for KeyScope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        let found = Self::ALL.into_iter().find(|scope| scope.as_str() == text);
        found.ok_or_else(|| UnknownScope(text.chars().take(80).collect()))
    }
}

// === impl Grants ===

impl Grants {
    /// Everything in `scopes`, by all channels and with all priorities.
    pub fn of(scopes: impl IntoIterator<Item = KeyScope>) -> Self {
        Self { scopes: scopes.into_iter().collect(), ..Self::default() }
    }

    /// True if they are good for everything that may be sent.
    pub(crate) fn send_all(&self) -> bool {
        self.channels.is_none() && self.priorities.is_none() && self.senders.are_all()
    }

    /// Checks that none of `others` goes beyond these: a key makes none that may do more, or for longer, than itself.
    ///
    /// # Errors
    /// The first field that does.
    pub(crate) fn check_within(&self, others: &Self) -> Result<(), InvalidField> {
        let all_of = |field: &str, is_within: bool| {
            let message = "goes beyond what is granted to the key that asks, and no key can grant more than it has";
            if is_within { Ok(()) } else { Err(InvalidField::new(format!("/{field}"), message)) }
        };
        all_of("scopes", others.scopes.is_subset(&self.scopes))?;
        all_of("channels", is_within(self.channels.as_ref(), others.channels.as_ref()))?;
        all_of("priorities", is_within(self.priorities.as_ref(), others.priorities.as_ref()))?;
        let (own, other) = (self.senders.from.as_ref(), others.senders.from.as_ref());
        all_of("from", is_covered(own, other, FromPattern::covers_all_of))?;
        let (own, other) = (self.senders.endpoints.as_ref(), others.senders.endpoints.as_ref());
        all_of("endpoints", is_covered(own, other, EndpointPrefix::covers_all_of))?;
        let is_in_time = match (self.not_after, others.not_after) {
            (None, _) => true,
            (Some(last), other) => other.is_some_and(|other| other <= last),
        };
        all_of("not_after", is_in_time)?;
        let is_as_slow = match (self.requests_per_minute, others.requests_per_minute) {
            (None, _) => true,
            (Some(own), other) => other.is_some_and(|other| other <= own),
        };
        all_of("requests_per_minute", is_as_slow)
    }

    /// True if all that may be sent with `others` may be sent with these.
    pub(crate) fn send_all_of(&self, others: &Self) -> bool {
        let of_sending = |grants: &Self| Self {
            scopes: grants.scopes.iter().copied().filter(|it| *it == KeyScope::Send).collect(),
            not_after: None,
            requests_per_minute: None,
            ..grants.clone()
        };
        of_sending(self).check_within(&of_sending(others)).is_ok()
    }

    /// Checks that `submission` and its fallbacks go by channels, and with a priority, that are granted; the intake checks its
    /// senders against these grants.
    ///
    /// # Errors
    /// The first field that is not granted, with what would be.
    pub(crate) fn check_sending(
        &self,
        submission: &mut Submission<'_>,
    ) -> Result<(), InvalidField> {
        submission.senders = (!self.senders.are_all()).then(|| Arc::clone(&self.senders));
        if let Some(channels) = &self.channels {
            let check = |channel: &str, pointer: String| {
                let is_granted = channels.iter().any(|granted| granted.as_str() == channel);
                if is_granted {
                    Ok(())
                } else {
                    Err(InvalidField::not_granted(pointer, channel, channels))
                }
            };
            check(&submission.channel, "/channel".to_owned())?;
            for (i, fallback) in submission.fallback.iter().enumerate() {
                check(&fallback.channel, format!("/fallback/{i}/channel"))?;
            }
        }
        if let Some(priorities) = &self.priorities {
            let given = submission.priority.as_deref().map(str::parse);
            // A word that is no priority is found by the next step.
            if let Ok(priority) = given.unwrap_or(Ok(Priority::default()))
                && !priorities.contains(&priority)
            {
                return Err(InvalidField::not_granted("/priority", priority, priorities));
            }
        }
        Ok(())
    }
}

/// True if `others` are all in `own`, where `None` is everything.
fn is_within<T: Ord>(own: Option<&BTreeSet<T>>, others: Option<&BTreeSet<T>>) -> bool {
    own.is_none_or(|own| others.is_some_and(|others| others.is_subset(own)))
}

/// True if each of `others` is covered by one of `own`, where `None` is everything.
fn is_covered<T>(
    own: Option<&BTreeSet<T>>,
    others: Option<&BTreeSet<T>>,
    covers: impl Fn(&T, &T) -> bool,
) -> bool {
    let Some(own) = own else { return true };
    let is_covered = |other| own.iter().any(|own| covers(own, other));
    others.is_some_and(|others| others.iter().all(is_covered))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipeline::ingest::FallbackSubmission;

    #[test]
    fn a_scope_is_read_as_it_is_written() {
        for scope in KeyScope::ALL {
            assert_eq!(scope.as_str().parse(), Ok(scope));
        }
        let refused = "Send".parse::<KeyScope>().unwrap_err().to_string();
        assert!(refused.contains("send, read, cancel, suppress, operate and metrics"), "{refused}");
    }

    #[test]
    fn nothing_is_granted_that_is_not_had() {
        let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        let channels = |names: &[&str]| Some(names.iter().map(|it| it.parse().unwrap()).collect());
        let own = Grants {
            channels: channels(&["ios", "web"]),
            priorities: Some(BTreeSet::from([Priority::Normal])),
            not_after: at("2027-01-01T00:00:00Z"),
            ..Grants::of([KeyScope::Send, KeyScope::Operate])
        };
        let check = |others: &Grants| {
            own.check_within(others)
                .map_or_else(|fault| fault.pointer.into_owned(), |()| String::new())
        };
        assert_eq!(check(&own), "");
        assert_eq!(check(&Grants { channels: channels(&["ios"]), ..own.clone() }), "");
        let read = Grants { scopes: BTreeSet::from([KeyScope::Read]), ..own.clone() };
        assert_eq!(check(&read), "/scopes");
        for beyond in [None, channels(&["ios", "mail"])] {
            assert_eq!(check(&Grants { channels: beyond, ..own.clone() }), "/channels");
        }
        assert_eq!(check(&Grants { priorities: None, ..own.clone() }), "/priorities");
        let slow = |number| Grants { requests_per_minute: NonZeroU32::new(number), ..own.clone() };
        assert!(slow(60).check_within(&slow(60)).is_ok());
        for beyond in [0, 61] {
            assert_eq!(
                slow(60).check_within(&slow(beyond)).unwrap_err().pointer,
                "/requests_per_minute"
            );
        }
        for beyond in [None, at("2027-01-01T00:00:01Z")] {
            assert_eq!(check(&Grants { not_after: beyond, ..own.clone() }), "/not_after");
        }
        assert!(Grants::of(KeyScope::ALL).check_within(&own).is_ok());
    }

    #[test]
    fn no_sender_is_granted_that_is_not_had() {
        let senders = |from: &[&str], endpoints: &[&str]| {
            let from = from.iter().map(|it| it.parse().unwrap()).collect::<BTreeSet<_>>();
            let endpoints = endpoints.iter().map(|it| it.parse().unwrap()).collect::<BTreeSet<_>>();
            let some = SenderGrants {
                from: Some(from).filter(|from| !from.is_empty()),
                endpoints: Some(endpoints).filter(|endpoints| !endpoints.is_empty()),
            };
            Grants { senders: Arc::new(some), ..Grants::of([KeyScope::Send]) }
        };
        let own = senders(&["@a.example", "b@b.example"], &["https://a.example/x"]);
        let check = |from: &[&str], endpoints: &[&str]| {
            let others = senders(from, endpoints);
            assert_eq!(own.send_all_of(&others), own.check_within(&others).is_ok());
            own.check_within(&others)
                .map_or_else(|fault| fault.pointer.into_owned(), |()| String::new())
        };
        assert_eq!(check(&["a@a.example", "@a.example"], &["https://a.example/x/y"]), "");
        assert_eq!(check(&["b@b.example"], &["https://a.example/x"]), "");
        assert_eq!(check(&[], &["https://a.example/x"]), "/from");
        assert_eq!(check(&["@b.example"], &["https://a.example/x"]), "/from");
        assert_eq!(check(&["a@a.example"], &[]), "/endpoints");
        assert_eq!(check(&["a@a.example"], &["https://a.example/"]), "/endpoints");
        assert_eq!(
            check(&["a@a.example"], &["https://a.example/x", "https://b.example"]),
            "/endpoints"
        );
        assert!(senders(&[], &[]).check_within(&own).is_ok());
    }

    #[test]
    fn what_may_be_sent_has_no_end_and_no_rate() {
        let own = Grants::of([KeyScope::Send]);
        let all = Grants::of(KeyScope::ALL);
        assert!(own.send_all_of(&all));
        let brief = Grants { requests_per_minute: NonZeroU32::new(1), ..own.clone() };
        assert!(brief.send_all_of(&all));
        assert!(!Grants::of([KeyScope::Read]).send_all_of(&own));
    }

    #[test]
    fn channels_and_priorities_that_are_not_granted_are_named() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let grants = Grants {
            channels: Some(BTreeSet::from([name("ios"), name("web")])),
            priorities: Some(BTreeSet::from([Priority::Normal, Priority::Bulk])),
            ..Grants::default()
        };
        let check = |channel: &str, fallback: Option<&str>, priority: Option<&str>| {
            let fallback = fallback.map(|channel| FallbackSubmission {
                channel: channel.to_owned().into(),
                ..FallbackSubmission::default()
            });
            let mut submission = Submission {
                channel: channel.to_owned().into(),
                fallback: fallback.into_iter().collect(),
                priority: priority.map(|priority| priority.to_owned().into()),
                ..Submission::default()
            };
            let checked = grants.check_sending(&mut submission);
            checked.map_or_else(
                |fault| format!("{}: {}", fault.pointer, fault.message),
                |()| String::new(),
            )
        };
        assert_eq!(check("ios", None, None), "");
        assert_eq!(check("web", Some("ios"), Some("bulk")), "");
        assert_eq!(check("ios", None, Some("no-priority")), "", "the next step says what is wrong");
        assert_eq!(
            check("mail", None, None),
            r#"/channel: "mail" is not granted to this key: it has ios, web"#
        );
        assert_eq!(
            check("ios", Some("mail"), None),
            r#"/fallback/0/channel: "mail" is not granted to this key: it has ios, web"#
        );
        assert_eq!(
            check("ios", None, Some("urgent")),
            r#"/priority: "urgent" is not granted to this key: it has normal, bulk"#
        );
        assert!(!grants.send_all() && Grants::of(KeyScope::ALL).send_all());
    }
}
