//! Secrets of streams: passwords of Kafka, and keys and tokens of AWS, which their servers are told, and which come out nowhere else.

use std::fs;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use testbed::aws::shared_moto_url;

use crate::providers::Parrot;
use crate::support::{Engine, Workspace, eventually};

const SECRET_KEY: &str = "canary/of+an/access/key/of/forty/letters";
const OTHER_SECRET_KEY: &str = "canary/of+another/key/of/forty/letters/x";
const WRONG_PASSWORD: &str = "canary-of-a-cluster";

/// The token of a session: as long as those of AWS.
fn token(name: &str) -> String {
    format!("canary-of-a-session-{name}").repeat(12)
}

fn send(workspace: &mut Workspace, engine: &Engine, to: &str) {
    let body = format!(
        r#"{{"channel":"{}","to":"{}","content":{{"a":1}}}}"#,
        to.split(' ').next().unwrap(),
        to.split(' ').nth(1).unwrap()
    );
    let answer = workspace.call(engine, "", "POST /v1/notifications", &body);
    assert!(answer.starts_with("HTTP/1.1 201"), "{to}: {answer}");
}

/// Creates a queue and a stream called `name` by requests of no signature, which moto takes.
fn create(moto: &str, name: &str) {
    let address = moto.trim_start_matches("http://");
    for (target, version, body) in [
        ("AmazonSQS.CreateQueue", "1.0", format!(r#"{{"QueueName":"{name}"}}"#)),
        (
            "Kinesis_20131202.CreateStream",
            "1.1",
            format!(r#"{{"StreamName":"{name}","ShardCount":1}}"#),
        ),
    ] {
        let service = if version == "1.0" { "sqs" } else { "kinesis" };
        let scope = format!("Credential=key/20261126/eu-central-1/{service}/aws4_request");
        let request = format!(
            "POST / HTTP/1.1\r\nhost: {address}\r\nx-amz-target: {target}\r\ncontent-type: application/x-amz-json-{version}\r\n\
             authorization: AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = crate::support::exchange(address, &request);
        assert!(answer.starts_with("HTTP/1.1 200"), "{target}: {answer}");
    }
}

/// Channels of streams with secrets of all kinds, and what they are.
struct Streams {
    workspace: Workspace,
    /// Repeats what it is told, in place of SQS and of STS.
    parrot: Parrot,
    config: String,
    /// `user@`, where a password of Kafka could be put.
    user: String,
    tokens: [String; 3],
    canaries: Vec<String>,
}

impl Streams {
    fn new(moto: &str) -> Self {
        let kafka = testbed::kafka::shared_url().unwrap();
        let (login, brokers) = kafka.trim_start_matches("kafka://").split_once('@').unwrap();
        let (user, password) = login.split_once(':').unwrap();
        let parrot = Parrot::http();
        let mut workspace = Workspace::new();
        workspace.get(&["credential", "key", "master.key"]);
        let tokens = ["sqs", "kinesis", "parrot"].map(token);
        let mut seal = |setting: &str, secret: &str| {
            workspace.seal("files", &format!("stream.{setting}"), secret)
        };
        let kafka_password = seal("kafka.password", password);
        let sealed_key = seal("sqs.secret_access_key", SECRET_KEY);
        let sealed_token = seal("sqs.session_token", &tokens[0]);
        let kinesis_key = seal("kinesis.secret_access_key", OTHER_SECRET_KEY);
        let kinesis_token = seal("kinesis.session_token", &tokens[1]);
        workspace.write("kinesis.key", &kinesis_key);
        workspace.write("kinesis.token", &kinesis_token);
        let parrot_url = format!("http://{}", parrot.address);
        let pairs = [
            ("user", user),
            ("brokers", brokers),
            ("moto", moto),
            ("parrot_url", &parrot_url),
            ("kafka_password", &kafka_password),
            ("sealed_key", &sealed_key),
            ("sealed_token", &sealed_token),
            ("WRONG_PASSWORD", WRONG_PASSWORD),
            ("SECRET_KEY", SECRET_KEY),
            ("OTHER_SECRET_KEY", OTHER_SECRET_KEY),
            ("parrot_token", &tokens[2]),
            ("other_token", &tokens[1]),
        ];
        let text = include_str!("streams.toml").to_owned();
        let config = pairs
            .iter()
            .fold(text, |text, (name, value)| text.replace(&format!("@{name}@"), value));
        workspace.write("belfry.toml", &config);
        let secrets = [password, WRONG_PASSWORD, SECRET_KEY, OTHER_SECRET_KEY];
        let mut canaries: Vec<String> = secrets.map(str::to_owned).to_vec();
        canaries.extend(tokens.iter().map(|token| token.chars().take(40).collect::<String>()));
        canaries.push(BASE64_STANDARD.encode(format!("\0{user}\0{WRONG_PASSWORD}")));
        Self { workspace, parrot, config, user: format!("{user}@"), tokens, canaries }
    }

    /// Has the engine read configurations that are wrong where a secret stands.
    fn reload_in_vain(&mut self, engine: &Engine) {
        let config = &self.config;
        let key = format!("secret_access_key = \"{SECRET_KEY}\"");
        let sealed = "sealed:v2:files:stream.sqs.session_token:";
        for wrong in [
            config.replace(&key, &format!("secret_access_key = [\"{SECRET_KEY}\"]")),
            config.replace("access_key_id = \"key\"", "profile = \"p\""),
            config.replace(&self.user, &self.user.replace('@', &format!(":{WRONG_PASSWORD}@"))),
            config.replace(sealed, &format!("{sealed}A")),
        ] {
            assert_ne!(&wrong, config);
            self.workspace.write("belfry.toml", &wrong);
            assert!(self.workspace.reload(engine).contains("not reloaded"));
            assert_eq!(self.workspace.run(&["check-config"]).status.code(), Some(78));
        }
    }

    /// Looks for canaries in the log, in everything that was printed or answered, and in the store.
    fn look(&self) {
        let store = fs::read(self.workspace.path("data/belfry.db-wal")).unwrap();
        let store = String::from_utf8_lossy(&store).into_owned();
        let (log, printed) = (self.workspace.read("log"), self.workspace.printed.clone());
        for (place, text) in [("the log", log), ("an answer", printed), ("the store", store)] {
            for canary in &self.canaries {
                assert!(!text.contains(canary), "{place} shows {canary}: {text}");
            }
        }
    }
}

#[test]
fn no_secret_of_a_stream_is_seen() {
    let (moto, name) = (shared_moto_url().unwrap(), testbed::unique_prefix());
    create(&moto, &name);
    let mut streams = Streams::new(&moto);
    let engine = streams.workspace.start();
    for to in [format!("events sqs:{name}"), format!("events kinesis:{name}")] {
        send(&mut streams.workspace, &engine, &to);
    }
    for to in ["events kafka:nowhere", "wrong kafka:t", "wrong sqs:q", "wrong kinesis:s"] {
        send(&mut streams.workspace, &engine, to);
    }
    // Who may look for a topic has logged in.
    let words = ["there is no topic", "refuses this user", "status 400", "loading credentials"];
    eventually("each is attempted", || {
        let log = streams.workspace.get(&["log", "--json"]);
        words.iter().all(|words| log.contains(words)) && log.matches("\"delivered\"").count() == 2
    });
    let heard = streams.parrot.heard();
    assert!(streams.tokens.iter().skip(1).all(|token| heard.contains(token)), "{heard}");
    for path in ["/v1/log", "/v1/status", "/metrics"] {
        streams.workspace.call(&engine, "", &format!("GET {path}"), "");
    }
    streams.reload_in_vain(&engine);
    streams.look();
}

/// By the environment alone, as a pod of Kubernetes has it: a token in a file is exchanged for a session of a role.
#[test]
fn a_web_identity_is_exchanged_for_a_session() {
    let moto = shared_moto_url().unwrap();
    let name = testbed::unique_prefix();
    create(&moto, &name);
    let mut workspace = Workspace::new();
    workspace.write("token", "canary-of-a-web-identity");
    workspace.write(
        "belfry.toml",
        &format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[log]\nlevel = \"trace\"\n[channels.events]\nkind = \"stream\"\n\
             sqs.endpoint = \"{moto}\"\nkinesis.endpoint = \"{moto}\"\n"
        ),
    );
    let token = workspace.path("token").display().to_string();
    workspace.environment = vec![
        ("AWS_REGION", "eu-central-1".to_owned()),
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/belfry".to_owned()),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token),
        ("AWS_ENDPOINT_URL_STS", moto),
        // What a machine of its own has is not to be asked.
        ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
    ];
    let engine = workspace.start();
    for to in [format!("events sqs:{name}"), format!("events kinesis:{name}")] {
        send(&mut workspace, &engine, &to);
    }
    eventually("each is attempted", || workspace.get(&["log", "--json"]).lines().count() >= 2);
    let log = workspace.get(&["log", "--json"]);
    assert_eq!(log.matches("\"delivered\"").count(), 2, "{log}");
    let texts = [workspace.read("log"), workspace.printed.clone()];
    assert!(texts.iter().all(|text| !text.contains("canary")), "{texts:?}");
}
