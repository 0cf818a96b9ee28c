//! Which settings hold secrets: only in these is a sealed text opened.

use clap::builder::PossibleValuesParser;

/// Every setting that holds a secret, after the table that it stands in; of a channel, after the channel's kind. A
/// sealed text names one of them.
pub(crate) const SECRET_SETTINGS: &[&str] = &[
    "apns.certificate",
    "apns.certificate_key",
    "apns.key",
    "fcm.service_account",
    "queue.password",
    "smtp.dkim.key",
    "smtp.password",
    "sources.password",
    "store.password",
    "stream.amqp.password",
    "stream.kafka.password",
    "stream.kinesis.secret_access_key",
    "stream.kinesis.session_token",
    "stream.nats.password",
    "stream.sqs.secret_access_key",
    "stream.sqs.session_token",
    "traces.headers",
    "webhook.endpoints.certificate",
    "webhook.endpoints.headers",
    "webhook.endpoints.key",
    "webhook.endpoints.secrets",
    "webhook.secrets",
    "webpush.key",
];

/// The tables whose every value is a secret, whatever its key.
const SECRET_TABLES: [&str; 2] = ["traces.headers", "webhook.endpoints.headers"];

/// The setting called `name`.
pub(super) fn known(name: &str) -> Option<&'static str> {
    SECRET_SETTINGS.iter().find(|setting| **setting == name).copied()
}

/// The secret settings that `path` may be: `kind` is that of the channel, and `None` in a credential, which any kind may
/// take over.
pub(super) fn at<'a>(
    kind: Option<&'a str>,
    path: &'a str,
) -> impl Iterator<Item = &'static str> + 'a {
    let fits = move |setting: &&'static str| {
        let Some((of_kind, rest)) = setting.split_once('.') else { return false };
        let behind = path.strip_prefix(rest);
        kind.is_none_or(|kind| kind == of_kind)
            && behind.is_some_and(|behind| {
                behind.is_empty() || (SECRET_TABLES.contains(setting) && behind.starts_with('.'))
            })
    };
    SECRET_SETTINGS.iter().copied().filter(fits)
}

/// For the command line: one of the settings, all of which its help names.
pub(super) fn parser() -> PossibleValuesParser {
    PossibleValuesParser::new(SECRET_SETTINGS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_secret_setting_by_its_kind_and_its_whole_path() {
        let check = |kind: Option<&str>, path: &str, expect: &[&str]| {
            assert_eq!(at(kind, path).collect::<Vec<_>>(), expect, "{kind:?} {path}");
        };
        check(Some("apns"), "key", &["apns.key"]);
        check(Some("apns"), "key_id", &[]);
        check(Some("apns"), "password", &[]);
        check(Some("smtp"), "dkim.key", &["smtp.dkim.key"]);
        check(Some("smtp"), "password.x", &[]);
        check(Some("traces"), "headers.x-key", &["traces.headers"]);
        check(Some("webhook"), "endpoints.headers.x-key", &["webhook.endpoints.headers"]);
        check(None, "key", &["apns.key", "webpush.key"]);
        check(None, "topic", &[]);
    }
}
