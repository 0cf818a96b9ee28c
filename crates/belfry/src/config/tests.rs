//! The default file, and what is said of a bad one.

use std::path::Path;

use super::keys::KeyConfig;
use super::load::ConfigSource;
use super::server::{OperatorConfig, ServerTlsConfig};
use super::table::expected;
use super::*;

pub(super) fn source(text: &str, variables: &[(&str, &str)]) -> ConfigSource {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    ConfigSource {
        file: Some("f.toml".into()),
        text: text.to_owned(),
        variables: variables.iter().map(owned).collect(),
        ..ConfigSource::default()
    }
}

pub(super) fn complaints(source: &ConfigSource) -> Vec<String> {
    let problems = source.read().err().unwrap_or_default();
    problems.iter().map(|problem| source.describe(problem)).collect()
}

/// The default file with its examples as settings.
pub(super) fn every_key_set() -> String {
    let lines = DEFAULT_FILE.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => rest,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_default_file_is_the_default() {
    assert_eq!(source(DEFAULT_FILE, &[]).read(), Ok(Config::default()));
    assert_eq!(source("", &[]).read(), Ok(Config::default()));
}

#[test]
fn the_reference_page_is_up_to_date() {
    let page = include_str!("../../../../docs/reference/configuration.md");
    assert!(to_markdown() == page, "docs/reference/configuration.md is old: run `make docs`");
}

#[test]
fn the_default_file_documents_every_key_and_no_other() {
    let mut document: toml::Table = every_key_set().parse().unwrap();
    let keys = document["server"]["keys"].as_array_mut().unwrap().remove(0);
    let mut channels = document.remove("channels").unwrap().as_table().unwrap().clone();
    let retry = channels["ios"].as_table_mut().unwrap().remove("retry").unwrap();
    let endpoints = channels["hooks"]["endpoints"][0].clone();
    let stream_server = channels["events"]["nats"].clone();
    for section in ["amqp", "kafka"] {
        let other = channels["events"][section].as_table().unwrap();
        assert!(stream_server.as_table().unwrap().keys().eq(other.keys()), "{section}");
    }
    // Each has a key that is for it alone.
    let mut aws_server = channels["events"]["sqs"].clone();
    let mut kinesis = channels["events"]["kinesis"].as_table().unwrap().clone();
    let ordered = kinesis.remove("ordered").unwrap();
    kinesis.insert("account".to_owned(), toml::Value::Boolean(false));
    assert!(aws_server.as_table().unwrap().keys().eq(kinesis.keys()));
    aws_server.as_table_mut().unwrap().insert("ordered".to_owned(), ordered);
    let template = document["templates"]["welcome"].clone();
    let source = document["sources"][0].clone();
    let tenant = document["tenants"]["shop"].clone();
    let mut tables = vec![
        ("keys", keys),
        ("tls", document["server"]["tls"].clone()),
        ("operator", document["server"]["operator"].clone()),
        ("retry", retry),
        ("endpoints", endpoints),
        ("stream-server", stream_server),
        ("aws-server", aws_server),
        ("source", source),
        ("template", template),
        ("tenant", tenant),
    ];
    for (_, channel) in &mut channels {
        let kind = channel.as_table_mut().unwrap().remove("kind").unwrap();
        let kind = ["apns", "fcm", "webhook", "webpush", "smtp", "stream", "dry-run"]
            .into_iter()
            .find(|name| kind.as_str() == Some(name));
        tables.push((kind.unwrap(), channel.clone()));
    }
    tables.push(("feed", document["suppressions"]["feed"].clone()));
    tables.push(("lifetimes", document["retention"]["states"]["dead"].clone()));
    tables.push(("lifetimes", document["tenants"]["shop"]["retention"].clone()));
    tables.extend(
        ["server", "store", "queue", "delivery", "log", "suppressions", "retention"]
            .map(|name| (name, document[name].clone())),
    );
    for (name, table) in tables {
        let table = table.as_table().unwrap().clone();
        let mut documented: Vec<String> = table.keys().cloned().collect();
        let mut known = known_keys(name);
        documented.sort();
        known.sort();
        assert_eq!(documented, known, "[{name}]");
    }
}

#[test]
fn whatever_can_stand_in_a_file_can_be_said_in_the_configuration() {
    let tables = [
        "store",
        "queue",
        "apns",
        "fcm",
        "webhook",
        "endpoints",
        "webpush",
        "smtp",
        "dkim",
        "stream-server",
        "aws-server",
        "source",
    ];
    let mut files = 0;
    for table in tables {
        let known = known_keys(table);
        // A certificate authority is no secret.
        let named =
            known.iter().filter_map(|key| key.strip_suffix("_file")).filter(|key| *key != "ca");
        for key in named {
            assert!(known.iter().any(|other| other == key), "{table}.{key}");
            files += 1;
        }
    }
    assert_eq!(files, 16);
}

fn known_keys(table: &str) -> Vec<String> {
    fn probe<T: serde::de::DeserializeOwned>() -> String {
        let table: toml::Table = "no_such_key = 0".parse().unwrap();
        table.try_into::<T>().err().unwrap().message().to_owned()
    }
    let message = match table {
        "keys" => probe::<KeyConfig>(),
        "tls" => probe::<ServerTlsConfig>(),
        "operator" => probe::<OperatorConfig>(),
        "retry" => probe::<RetryConfig>(),
        "template" => probe::<TemplateConfig>(),
        "source" => probe::<SourceConfig>(),
        "tenant" => probe::<TenantConfig>(),
        "server" => probe::<ServerConfig>(),
        "store" => probe::<StoreConfig>(),
        "queue" => probe::<QueueConfig>(),
        "delivery" => probe::<DeliveryConfig>(),
        "retention" => probe::<RetentionConfig>(),
        "lifetimes" => probe::<lifetimes::LifetimesConfig>(),
        "suppressions" => probe::<SuppressionsConfig>(),
        "feed" => probe::<suppressions::FeedConfig>(),
        "delivery-feed" => probe::<DeliveryFeedConfig>(),
        "apns" => probe::<channel::apns::Settings>(),
        "fcm" => probe::<channel::fcm::Settings>(),
        "webhook" => probe::<channel::webhook::Settings>(),
        "endpoints" => probe::<channel::webhook::EndpointSettings>(),
        "webpush" => probe::<channel::webpush::Settings>(),
        "smtp" => probe::<channel::smtp::Settings>(),
        "dkim" => probe::<channel::smtp::Dkim>(),
        "stream" => probe::<channel::stream::Settings>(),
        "stream-server" => probe::<channel::stream::StreamServer>(),
        "aws-server" => probe::<channel::stream::AwsServer>(),
        "dry-run" => probe::<channel::dry_run::Settings>(),
        _ => probe::<LogConfig>(),
    };
    expected(&message).map(str::to_owned).collect()
}

#[test]
fn the_examples_of_the_default_file_are_right() {
    // Of some keys only one can be set.
    let rivals = [
        "key = \"\"",
        "certificate_file = \"apns.pem\"",
        "certificate = \"\"",
        "certificate_key = \"\"",
        "service_account = \"\"",
        "password = \"\"",
        "secret_access_key = \"\"",
        "session_token = \"\"",
        // And there is no such master key.
        "key_file = \"/run/credentials/belfry.service/master-key\"",
        "key = \"sealed:v2:apple:apns.key:<your text>\"",
    ];
    let is_rival = |line: &&str| !rivals.contains(line);
    let examples: Vec<String> =
        every_key_set().lines().filter(is_rival).map(str::to_owned).collect();
    // What is shown in the place of a secret is refused: here one's own stand there.
    let examples = examples
        .join("\n")
        .replace("<your key's SHA-256>", &"0f".repeat(32))
        .replace("<your base64>", "bm90IGEgc2VjcmV0LCBidXQgbG9uZyBlbm91Z2g=")
        .replace("<your token>", "0123");
    assert_eq!(
        complaints(&source(&examples, &[])),
        [
            "f.toml: store.password_file: /run/credentials/belfry.service/store-password: cannot be read: No such file or directory (os error 2)",
            "f.toml: queue.password_file: /run/credentials/belfry.service/queue-password: cannot be read: No such file or directory (os error 2)",
            "f.toml: sources[0].password_file: /run/credentials/belfry.service/orders-password: cannot be read: No such file or directory (os error 2)",
            "f.toml: server.tls.certificate_file: /etc/belfry/tls/fullchain.pem: cannot be read: No such file or directory (os error 2)",
            "f.toml: store.ca_file: internal-ca.pem: cannot be read: No such file or directory (os error 2)",
            "f.toml: store.directory: is not used when `url` is set: leave one of them out",
            "f.toml: queue.ca_file: internal-ca.pem: cannot be read: No such file or directory (os error 2)",
            "f.toml: channels.android: shop-1a2b3.json: the account cannot be read: No such file or directory (os error 2)",
            "f.toml: channels.android: internal-ca.pem: cannot be read: I/O error: No such file or directory (os error 2)",
            "f.toml: channels.browsers: vapid.pem: the key cannot be read: No such file or directory (os error 2)",
            "f.toml: channels.browsers: internal-ca.pem: cannot be read: I/O error: No such file or directory (os error 2)",
            "f.toml: channels.events.nats: /run/credentials/belfry.service/nats-password: the secret cannot be read: No such file or directory (os error 2)",
            "f.toml: channels.hooks: internal-ca.pem: cannot be read: I/O error: No such file or directory (os error 2)",
            "f.toml: channels.hooks: client.pem: cannot be read: I/O error: No such file or directory (os error 2)",
            "f.toml: channels.ios: AuthKey_ABCDE12345.p8: the key cannot be read: No such file or directory (os error 2)",
            "f.toml: channels.ios: internal-ca.pem: cannot be read: I/O error: No such file or directory (os error 2)",
            "f.toml: channels.mail.relay: name a relay such as smtp://mail.example.com:587, or set route = \"mx\": one of them",
            "f.toml: channels.mail: /run/credentials/belfry.service/mail-password: cannot be read: No such file or directory (os error 2)",
            "f.toml: channels.mail: dkim.pem: cannot be read: No such file or directory (os error 2)",
            "f.toml: templates.welcome.content: set either this or `file`",
            "f.toml: traces.ca_file: internal-ca.pem: cannot be read: No such file or directory (os error 2)",
            "f.toml: sources[0].dead_letters: where messages go that are no notifications: set either this, `dead_letter_path`, or `drop_bad_messages = true`",
            "f.toml: sources[0].ca_file: internal-ca.pem: cannot be read: No such file or directory (os error 2)",
            "f.toml: sources[0].map_file: not together with `map`: leave one out",
        ]
    );
}

#[test]
fn everything_that_is_wrong_is_named_at_once() {
    let text = r#"
        [server]
        lisen = "127.0.0.1:1"
        listen = "nowhere"
        [store]
        synchronous = "off"
        [delivery]
        senders = -1
        colour = "red"
        [chanels.ios]
        kind = "apns"
        [channels.Ios]
        kind = "dry-run"
        [channels.sms]
        kind = "sms"
        [channels.none]
        [channels.dry]
        kind = "dry-run"
        latency = "soon"
        concurency = 3
        [channels.dry.retry]
        atempts = 3
        [channels.slow]
        kind = "dry-run"
        latency = "1h"
        retry = { attempts = 0, base = "2s", cap = "1s" }
    "#;
    assert_eq!(
        complaints(&source(text, &[])),
        [
            "f.toml: chanels: unknown key, did you mean `channels`?",
            "f.toml: delivery.colour: unknown key, known here: senders",
            "f.toml: delivery.senders: invalid value: integer `-1`, expected usize",
            "f.toml: server.lisen: unknown key, did you mean `listen`?",
            "f.toml: server.listen: \"nowhere\" is not an IP address with a port, such as 127.0.0.1:8473",
            "f.toml: store.synchronous: unknown variant `off`, expected `full` or `normal`",
            "f.toml: channels.Ios: \"Ios\" is not a name (1 to 64 of a-z, 0-9, - and _, starting with a letter or digit)",
            "f.toml: channels.dry.retry.atempts: unknown key, did you mean `attempts`?",
            "f.toml: channels.dry.concurency: unknown key, did you mean `concurrency`?",
            "f.toml: channels.dry.latency: invalid value: string \"soon\", expected a span of time such as 250ms, 30s, 15m or 1h 30m",
            "f.toml: channels.none.kind: missing: `apns`, `fcm`, `webhook`, `webpush`, `smtp`, `stream` or `dry-run`",
            "f.toml: channels.sms.kind: \"sms\" is not `apns`, `fcm`, `webhook`, `webpush`, `smtp`, `stream` or `dry-run`",
            "f.toml: channels.slow.retry.attempts: must be from 1 to 1000",
            "f.toml: channels.slow.retry: the longest delay must not be shorter than the base delay",
            "f.toml: channels.slow.latency: must be at most 20s: an attempt ends after 30s",
        ]
    );
}

#[test]
fn a_key_is_needed_beyond_this_machine_and_must_be_whole() {
    let check = |text: &str, expect: &str| assert_eq!(complaints(&source(text, &[])), [expect]);
    check(
        "server.listen = \"0.0.0.0:80\"",
        "f.toml: server.listen: refusing to listen on 0.0.0.0:80 without an API key: listen on 127.0.0.1, or \
         add a key with `belfry api-key`",
    );
    check(
        "[[server.keys]]\nname = \"a\"\ntenant = \"t\"",
        "f.toml: server.keys[0]: missing field `sha256`",
    );
    check(
        "[[server.keys]]\nname = \"a\"\ntenant = \"t\"\nsha256 = \"0\"",
        "f.toml: server.keys[0].sha256: must be the 64 hexadecimal digits that `belfry api-key` prints",
    );
    let key =
        format!("[[server.keys]]\nname = \"a\"\ntenant = \"t\"\nsha256 = \"{}\"\n", "0".repeat(64));
    let twice = key.clone() + &key.replace("= \"0", "= \"1");
    check(&twice, "f.toml: server.keys[1].name: another key is named \"a\" already");
    let open = source(&format!("server.listen = \"0.0.0.0:80\"\n{key}"), &[]);
    assert_eq!(complaints(&open), Vec::<String>::new());
}

#[test]
fn a_token_for_apple_is_kept_where_there_is_a_place_and_what_has_none_is_named() {
    let check = |store: &str, apple: &str, service: Option<&str>, directory: Option<&str>| {
        let table = format!("kind = \"apns\"\ntopic = \"a.b\"\n{apple}");
        let channel = ChannelConfig::read(toml::from_str(&table).unwrap(), "", &mut Vec::new());
        let config = Config {
            store: toml::from_str(store).unwrap(),
            channels: BTreeMap::from([("ios".parse().unwrap(), channel.unwrap())]),
            ..Config::default()
        };
        let shared = ChannelResources::new(config.store.place(), service.map(Into::into));
        assert_eq!(shared.state_directory.as_deref(), directory.map(Path::new), "{store}");
        config.forgetful_channels(&shared).map(ToString::to_string).collect::<Vec<_>>()
    };
    let (alone, shared) = ("", "url = \"postgres://db/belfry\"");
    let nobody: [&str; 0] = [];
    assert_eq!(check(alone, "", None, Some("./data/state")), nobody);
    assert_eq!(check(alone, "", Some("/var/lib/x"), Some("./data/state")), nobody);
    assert_eq!(check(shared, "", None, None), ["ios"]);
    assert_eq!(check(shared, "", Some("/var/lib/x"), Some("/var/lib/x/state")), nobody);
    assert_eq!(check(shared, "state_directory = \"s\"", None, None), nobody);
    assert_eq!(check(shared, "certificate_file = \"c.pem\"", None, None), nobody);
    assert_eq!(check(shared, "certificate = \"PEM\"", None, None), nobody);
}

#[test]
fn text_that_is_not_toml_is_told_by_its_line() {
    let complaints = complaints(&source("[server]\n\nlisten", &[]));
    assert!(complaints[0].starts_with("f.toml: line 3 is not TOML: "), "{complaints:?}");
}

#[test]
fn the_environment_goes_before_the_file() {
    let variables = [
        ("BELFRY__STORE__DIRECTORY", "/var/belfry"),
        ("BELFRY__DELIVERY__SENDERS", "7"),
        ("BELFRY__CHANNELS__TRY__KIND", "dry-run"),
    ];
    let config = source("store.directory = \"x\"", &variables).read().unwrap();
    assert_eq!(config.store.place(), StorePlace::Directory(Path::new("/var/belfry")));
    assert_eq!(config.delivery.senders, 7);
    assert!(config.channels.contains_key("try"));
}

#[test]
fn a_bad_variable_is_named_as_such() {
    let check = |name: &str, value: &str, expect: &str| {
        assert_eq!(complaints(&source("log.level = \"info\"", &[(name, value)])), [expect]);
    };
    check(
        "BELFRY__STORE__DIRECTORI",
        "x",
        "BELFRY__STORE__DIRECTORI: unknown key, did you mean `directory`?",
    );
    check(
        "BELFRY__DELIVERY__SENDERS",
        "many",
        "BELFRY__DELIVERY__SENDERS: invalid type: a string, expected usize",
    );
    check("BELFRY__LOG__LEVEL__X", "1", "BELFRY__LOG__LEVEL__X: is within a key that is no table");
}

#[test]
fn a_store_is_a_directory_or_a_url() {
    let check = |text: &str, expect: &str| {
        assert_eq!(complaints(&source(text, &[])), [expect], "{text}");
    };
    check(
        "store = { url = 'mysql://me:canary@db/x' }",
        "f.toml: store.url: there is no store for mysql:// URLs: begin it with postgres://, or leave it out and have \
         SQLite in `directory`",
    );
    check(
        "store = { url = 'sqlite:///var/belfry' }",
        "f.toml: store.url: SQLite has no URL: leave it out and set `directory`, or begin it with postgres://",
    );
    check(
        "store = { url = 'db.example.com' }",
        "f.toml: store.url: must be a URL: scheme://user@host/name",
    );
    check(
        "store = { url = 'postgres://db/x', directory = 'd' }",
        "f.toml: store.directory: is not used when `url` is set: leave one of them out",
    );
    check("store.password_file = '/f'", "f.toml: store.password_file: is not used without `url`");
    check("store.password = 'p'", "f.toml: store.password: is not used without `url`");
    check("queue.password = 'p'", "f.toml: queue.password: is not used without `url`");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "can ary\n").unwrap();
    let path = file.path().display();
    let with_password =
        |url: &str| source(&format!("store = {{ url = '{url}', password_file = '{path}' }}"), &[]);
    let config = with_password("postgres://me@db/x").read().unwrap();
    assert_eq!(config.store.url.as_ref().unwrap().expose(), "postgres://me:can%20ary@db/x");
    assert!(!format!("{config:?}").contains("ary"), "{config:?}");
    assert_eq!(
        complaints(&with_password("postgres://db/x")),
        ["f.toml: store.password_file: the URL must name a user: scheme://USER@host"]
    );
}

#[test]
fn a_queue_takes_a_store_that_is_shared() {
    let check = |text: &str, expect: &str| {
        let text = format!("store = {{ url = 'postgres://db/x' }}\n{text}");
        assert_eq!(complaints(&source(&text, &[])), [expect], "{text}");
    };
    check(
        "queue.url = 'mqtt://k'",
        "f.toml: queue.url: there is no broker for mqtt:// URLs: begin it with amqp:// or amqps:// (RabbitMQ), \
         nats:// or tls:// (NATS), kafka:// (Kafka), sqs:// (Amazon SQS)",
    );
    check(
        "queue = { url = 'nats://n', prefix = 'A b' }",
        "f.toml: queue.prefix: \"A b\" is not a name (1 to 64 of a-z, 0-9, - and _, starting with a letter or digit)",
    );
    assert_eq!(
        complaints(&source("queue.url = 'nats://n'", &[])),
        [
            "f.toml: queue.url: a broker carries work between processes, and a SQLite store belongs to one: set `url` in \
          [store] to a postgres:// URL, or leave this out"
        ]
    );
}

#[test]
fn what_is_said_closest_to_the_command_wins() {
    let place = |text: &str, variables: &[(&str, &str)], flag: Option<&str>| {
        let flags = Flags { store: flag.map(channel::Secret::new), queue: None };
        let config = ConfigSource { flags, ..source(text, variables) }.read().unwrap();
        match config.store.place() {
            StorePlace::Directory(path) => path.display().to_string(),
            StorePlace::Server(url) => url.to_string(),
        }
    };
    let (file, url) = ("store.directory = 'f'", "postgres://file/x");
    let url_file = format!("store.url = '{url}'");
    let variable = [("BELFRY__STORE__URL", "postgres://variable/x")];
    assert_eq!(place("", &[], None), "./data");
    assert_eq!(place(file, &variable, None), "postgres://variable/x");
    assert_eq!(place(file, &variable, Some("./flag")), "./flag");
    assert_eq!(place(&url_file, &[("BELFRY__STORE__DIRECTORY", "v")], None), "v");
    assert_eq!(place(&url_file, &[], Some("postgres://flag/x")), "postgres://flag/x");
    assert_eq!(place(&url_file, &[], None), url);
    let flags = Flags { store: Some(channel::Secret::new("mysql://me:canary@db")), queue: None };
    let wrong = ConfigSource { flags, ..source(file, &[]) };
    assert!(complaints(&wrong)[0].starts_with("--store: there is no store for mysql:// URLs"));
}

#[test]
fn callers_are_told_of_channels_what_is_no_secret() {
    let text = "channels.b = { kind = 'webhook', secrets = ['whsec_YSBjYW5hcnkgb2Ygb25lIHdlYmhvb2sh'] }\n\
                channels.a = { kind = 'dry-run', messages_per_minute = 60 }";
    let config = source(text, &[]).read().unwrap();
    let channels = config.build_channels(&ChannelResources::default(), None).unwrap();
    let configured = config.configured_channels(&channels);
    let shown = |(name, of): (&Name, &ConfiguredChannel)| {
        format!("{name} {} {:?}", of.kind, of.messages_per_minute.map(NonZeroU32::get))
    };
    let shown = configured.iter().map(shown).collect::<Vec<_>>();
    assert_eq!(shown, ["a dry-run Some(60)", "b webhook None"]);
}

#[test]
fn quotas_are_of_channels_and_of_tenants() {
    let text = "channels.a = { kind = 'dry-run', messages_per_minute = 60 }\n\
                channels.b.kind = 'dry-run'\n\
                tenants.shop.messages_per_minute = 600\ntenants.free.messages_per_minute = 0";
    let config = source(text, &[]).read().unwrap();
    let channels = config.build_channels(&ChannelResources::default(), None).unwrap();
    let numbers = config.quota_numbers(&channels);
    let number = |(name, number): (&Name, &NonZeroU32)| format!("{name} {number}");
    assert_eq!(numbers.channels.iter().map(number).collect::<Vec<_>>(), ["a 60"]);
    assert_eq!(numbers.tenants.iter().map(number).collect::<Vec<_>>(), ["shop 600"]);
    let wrong = |text| complaints(&source(text, &[]));
    assert_eq!(
        wrong("tenants.shop.per_minute = 600")[0],
        "f.toml: tenants.shop.per_minute: unknown key, known here: messages_per_minute, retention"
    );
    assert!(
        wrong("tenants.'A b' = {}")[0].starts_with("f.toml: tenants.A b: \"A b\" is not a name")
    );
}
