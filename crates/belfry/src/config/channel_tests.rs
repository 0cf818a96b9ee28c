//! The problems found in the settings of channels.

use super::load::ConfigSource;
use super::tests::complaints;

fn source(text: &str) -> ConfigSource {
    ConfigSource { text: text.to_owned(), ..ConfigSource::default() }
}

#[test]
fn all_that_is_wrong_with_a_channel_is_named_at_once() {
    let check = |text: &str, expect: &[&str]| {
        let complaints = complaints(&source(text));
        let are_as_expected = complaints.len() == expect.len()
            && complaints
                .iter()
                .zip(expect)
                .all(|(complaint, expect)| complaint.starts_with(expect));
        assert!(are_as_expected, "{text}: {complaints:#?}");
    };
    check(
        "channels.a = { kind = 'dry-run', latency = '1h', concurrency = 0, failure_rate = 2.0 }",
        &["channels.a.latency: ", "channels.a.failure_rate: ", "channels.a.concurrency: "],
    );
    check(
        "channels.a = { kind = 'smtp', relay = 'smtp://a.example', from = 'nobody', helo = 'a b', \
         dkim = { domain = 'a b', selector = 's', key = 'x' } }",
        &[
            "channels.a.from: ",
            "channels.a.helo: ",
            "channels.a.dkim.domain: ",
            "channels.a.dkim.key: is not a private key in PEM form",
        ],
    );
    check(
        "channels.a = { kind = 'smtp', relay = 'smtp://a.example', username = 'u', from = 'x' }",
        &["channels.a.password_file: ", "channels.a.from: "],
    );
    check(
        "channels.a = { kind = 'apns', key_file = '/no', key_id = 'x', topic = 'a b', ca_file = '/no-ca' }",
        &[
            "channels.a.topic: ",
            "channels.a: /no: ",
            "channels.a.key_id: ",
            "channels.a.team_id: ",
            "channels.a: /no-ca: ",
        ],
    );
    check(
        "channels.a = { kind = 'fcm', concurrency = 0, endpoint = 'x', service_account_file = '/no' }",
        &["channels.a.concurrency: ", "channels.a.endpoint: ", "channels.a: /no: "],
    );
    check(
        "channels.a = { kind = 'webpush', subject = 'x', ttl = '700h' }",
        &["channels.a.subject: ", "channels.a.ttl: ", "channels.a.key_file: "],
    );
    check(
        "channels.a = { kind = 'webhook', secrets = [], concurrency = 0, ca_file = '/no', endpoints = [\
         { url = 'x', key = 'y' }, { url = 'https://b.example', headers = { host = 'b', 'x y' = 'z' } }] }",
        &[
            "channels.a.secrets: at least one is needed",
            "channels.a.concurrency: ",
            "channels.a: /no: cannot be read",
            "channels.a.endpoints: x: url ",
            "channels.a.endpoints: x: a certificate and its key belong together",
            "channels.a.endpoints: https://b.example: the header \"host\" ",
            "channels.a.endpoints: https://b.example: the header \"x y\" ",
        ],
    );
}

#[test]
fn an_address_may_stand_where_a_network_is_asked_for() {
    let channels = [
        "kind = 'webhook'\nsecrets = ['whsec_YSBjYW5hcnkgb2Ygb25lIHdlYmhvb2sh']",
        "kind = 'smtp'\nroute = 'mx'\nhelo = 'mail.example.com'",
    ];
    for channel in channels {
        for setting in ["allow_networks", "deny_networks"] {
            let with = |networks: &str| {
                source(&format!("[channels.a]\n{channel}\n{setting} = {networks}"))
            };
            let (alone, spelled) =
                (with("['127.0.0.1', '::1']"), with("['127.0.0.1/32', '::1/128']"));
            let config = alone.read().unwrap();
            assert_eq!(config, spelled.read().unwrap());
            assert_ne!(config, with("[]").read().unwrap());
            assert_eq!(
                complaints(&with("['10.0.0.0/8', 'localhost']")),
                [format!(
                    "channels.a.{setting}[1]: \"localhost\" is not a network such as 10.1.0.0/16, nor an address such \
                     as 10.1.2.3"
                )]
            );
        }
    }
}

#[test]
fn a_key_that_dkim_does_not_have_is_told_with_what_to_do() {
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let text = format!(
        "channels.a = {{ kind = 'smtp', relay = 'smtp://a.example', dkim = {{ domain = 'a.example', selector = 's', \
         key = {key:?} }} }}"
    );
    assert_eq!(
        complaints(&source(&text)),
        [
            "channels.a.dkim.key: is no key for DKIM, or damaged: it must be an RSA key (PKCS#8 or PKCS#1), which \
             `openssl genrsa 2048` makes, or an Ed25519 key (PKCS#8), which `openssl genpkey -algorithm ed25519` makes"
        ]
    );
}

#[test]
fn a_mail_channel_without_a_sender_is_warned_of() {
    let warnings = |more: &str| {
        let text = format!("[channels.mail]\nkind = 'smtp'\nrelay = 'smtp://a.example'\n{more}");
        source(&text).read().unwrap().warnings
    };
    assert_eq!(
        warnings(""),
        ["channels.mail.from: is not set: mail whose content has no `from` of its own is refused"]
    );
    assert_eq!(warnings("from = 'news@example.com'"), Vec::<String>::new());
}

#[test]
fn what_is_wrong_with_a_system_of_streams_is_said_under_its_section() {
    for (section, expect) in [
        ("", "channels.a.nats: a stream channel needs a section"),
        ("kafka.url = 'kafka://host/topic'", "channels.a.kafka: url: recipients name the topics"),
        ("kafka.url = 'kafka://host?group=canary'", "channels.a.kafka: url: recipients name the"),
        ("kafka.url = 'nats://canary@host'", "channels.a.kafka: url: the address of Kafka is not"),
        (
            "kafka = { url = 'kafka://u@host?security=ssl', password = 'canary' }",
            "channels.a.kafka: url: the address of Kafka is not",
        ),
        (
            "kafka = { url = 'kafka://u@host', password = 'canary', password_file = '/no' }",
            "channels.a.kafka: password_file: there is `password` as well",
        ),
        ("sqs.secret_access_key = 'canary'", "channels.a.sqs: an access key needs its secret"),
        (
            "sqs = { access_key_id = 'k', secret_access_key_file = '/no' }",
            "channels.a.sqs: /no: the secret cannot be read",
        ),
        (
            "kinesis = { access_key_id = 'k', secret_access_key = 'canary', profile = 'p' }",
            "channels.a.kinesis: a profile and an access key exclude each other",
        ),
        (
            "kinesis = { session_token = 'canary', session_token_file = '/no' }",
            "channels.a.kinesis: session_token_file: there is `session_token` as well",
        ),
        ("sqs.endpoint = 'https://u:canary@host'", "channels.a.sqs: an endpoint must be https://"),
        ("sqs.ordered = true", "channels.a.sqs: ordered: the name of a queue says it"),
        ("kinesis.account = '1'", "channels.a.kinesis: account: a stream of another account"),
    ] {
        let section =
            if section.is_empty() { String::new() } else { format!("channels.a.{section}") };
        let complaints = complaints(&source(&format!("channels.a.kind = 'stream'\n{section}")));
        let [complaint] = &*complaints else { panic!("{section}: {complaints:?}") };
        assert!(complaint.starts_with(expect), "{section}: {complaint}");
        assert!(!complaint.contains("canary"), "{complaint}");
    }
}
