//! An engine's whole configuration with a secret wherever one may stand, and providers that check each.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bench::SimulatorProcess;
use provider_sim::journal::{JournalChannel, JournalStatus, Reader};
use rcgen::KeyPair;
use serde_json::{Value, json};

use crate::providers::Parrot;
use crate::support::{BELFRY, Engine, Workspace, make_api_key};

const WEBHOOK_SECRET: &str = "YSBjYW5hcnkgb2Ygb25lIHdlYmhvb2sh";
pub(crate) const OTHER_WEBHOOK_SECRET: &str = "YW5vdGhlciBjYW5hcnkgb2Ygd2ViaG9v";
pub(crate) const BEARER: &str = "canary-of-an-endpoint";
pub(crate) const API_KEY_OF_ENDPOINT: &str = "canary-in-a-header";
pub(crate) const PASSWORD: &str = "canary-of-a-mailbox";
pub(crate) const OTHER_PASSWORD: &str = "canary-of-another-mailbox";
pub(crate) const ACCESS_TOKEN: &str = "canary-of-a-mail-account";
/// The prefix of Google's access tokens, and of the simulator's.
const FCM_TOKEN: &str = "ya29.";
const DEVICE: &str = "abababababababababababababababababababababababababababababababab";

/// Everything with a secret in it, and all that must not be seen.
pub(crate) struct World {
    pub(crate) workspace: Workspace,
    simulator: SimulatorProcess,
    pub(crate) parrot: Parrot,
    pub(crate) mail_parrot: Parrot,
    pub(crate) api_key: String,
    /// Texts that must be seen nowhere.
    pub(crate) canaries: Vec<String>,
    /// Texts that must not be seen in a log or a metric; callers of the API may see them.
    private: Vec<String>,
    pub(crate) config: String,
}

/// A second line of a PEM text: some of the key.
pub(crate) fn canary_of(pem: &str) -> String {
    pem.lines().nth(1).unwrap().to_owned()
}

pub(crate) fn pem() -> String {
    KeyPair::generate().unwrap().serialize_pem()
}

/// The pair that `belfry vapid-key` prints: the public key, and the private one.
fn vapid_key(workspace: &mut Workspace) -> (String, String) {
    let printed = workspace.get(&["vapid-key"]);
    workspace.printed.clear();
    let public = printed.lines().nth(2).unwrap().trim_start_matches("# ").to_owned();
    let key = printed.lines().last().unwrap();
    (public, key.trim_start_matches("key = ").trim_matches('"').to_owned())
}

// === impl World ===

impl World {
    pub(crate) fn new() -> Self {
        let mut workspace = Workspace::new();
        workspace.get(&["credential", "key", "master.key"]);
        let master_key = workspace.read("master.key").trim_end().to_owned();
        let (api_key, api_key_table) = make_api_key(&mut workspace, "ops");
        let (vapid_public, vapid) = vapid_key(&mut workspace);
        let apple = KeyPair::generate().unwrap();
        workspace.write("apple.pub", &apple.public_key_pem());
        let (login, whsec) = (format!("me:{PASSWORD}"), format!("whsec_{WEBHOOK_SECRET}"));
        let apple_public = workspace.path("apple.pub");
        let flags = [
            ["--fcm", "127.0.0.1:0"],
            ["--smtp", "127.0.0.1:0"],
            ["--smtp-login", &login],
            ["--web-push", "127.0.0.1:0"],
            ["--web-push-key", &vapid_public],
            ["--web-push-subscriptions", "1"],
            ["--webhook-secret", &whsec],
            ["--apns-public-key", apple_public.to_str().unwrap()],
        ];
        let flags: Vec<String> = flags.concat().into_iter().map(str::to_owned).collect();
        // Its own files have secrets, and are not ours.
        let elsewhere = workspace.path("provider");
        let simulator = SimulatorProcess::start(Path::new(BELFRY), &elsewhere, &flags).unwrap();
        let (parrot, mail_parrot) = (Parrot::http(), Parrot::smtp());

        let keys = Keys { apple: apple.serialize_pem(), vapid, ..Keys::new(&simulator) };
        let mut canaries = vec![master_key, api_key.clone(), FCM_TOKEN.to_owned()];
        canaries.extend(keys.canaries());
        let texts = [BEARER, API_KEY_OF_ENDPOINT, PASSWORD, OTHER_PASSWORD, ACCESS_TOKEN];
        canaries.extend(texts.map(str::to_owned));
        canaries.extend([WEBHOOK_SECRET, OTHER_WEBHOOK_SECRET].map(str::to_owned));
        canaries.push(BASE64_STANDARD.encode(format!("\0me:{OTHER_PASSWORD}").replace(':', "\0")));
        let login = format!("user=me\u{1}auth=Bearer {ACCESS_TOKEN}\u{1}\u{1}");
        canaries.push(BASE64_STANDARD.encode(login));
        let mut world = Self {
            workspace,
            simulator,
            parrot,
            mail_parrot,
            api_key,
            canaries,
            private: vec![DEVICE.to_owned()],
            config: String::new(),
        };
        let subscription = &world.simulator.ready.subscriptions[0]["keys"];
        let keys_of_browser = ["auth", "p256dh"].map(|key| subscription[key].as_str().unwrap());
        world.private.extend(keys_of_browser.map(str::to_owned));
        world.config = world.configure(&keys, &api_key_table);
        let config = world.config.clone();
        world.workspace.write("belfry.toml", &config);
        world
    }

    /// Every form in which a secret may stand: open and sealed, in a text, in a file, in a credential.
    fn configure(&mut self, keys: &Keys, api_key_table: &str) -> String {
        let workspace = &mut self.workspace;
        let mut seal =
            |setting: &str, name: &str, secret: &str| workspace.seal(name, setting, secret);
        let apple = seal("apns.key", "apple", &keys.apple);
        let certificate = seal("apns.certificate", "apple", &keys.certificate);
        let certificate_key = seal("apns.certificate_key", "apple", &keys.certificate_key);
        let webhook = seal("webhook.secrets", "hooks", &format!("whsec_{WEBHOOK_SECRET}"));
        let bearer = seal("webhook.endpoints.headers", "hooks", &format!("Bearer {BEARER}"));
        let client_key = seal("webhook.endpoints.key", "hooks", &keys.client_key);
        let account = seal("fcm.service_account", "files", &keys.account);
        let vapid = seal("webpush.key", "files", &keys.vapid);
        let password = seal("smtp.password", "files", PASSWORD);
        let dkim = seal("smtp.dkim.key", "files", &keys.dkim);
        let files =
            [("account", account), ("vapid", vapid), ("password", password), ("dkim", dkim)];
        for (name, sealed) in files {
            self.workspace.write(&format!("{name}.sealed"), &sealed);
        }
        self.workspace.write("client.pem", &keys.client_certificate);
        let ready = &self.simulator.ready;
        let pairs: [(&str, &dyn Display); _] = [
            ("api_key_table", &api_key_table),
            ("apple", &apple),
            ("certificate", &certificate),
            ("certificate_key", &certificate_key),
            ("webhook", &webhook),
            ("bearer", &bearer),
            ("client_key", &client_key),
            ("OTHER_WEBHOOK_SECRET", &OTHER_WEBHOOK_SECRET),
            ("API_KEY_OF_ENDPOINT", &API_KEY_OF_ENDPOINT),
            ("OTHER_PASSWORD", &OTHER_PASSWORD),
            ("ACCESS_TOKEN", &ACCESS_TOKEN),
            ("ca", &ready.ca.display()),
            ("apns", &ready.apns),
            ("fcm", &ready.fcm.as_ref().unwrap()),
            ("smtp", &ready.smtp.as_ref().unwrap()),
            ("webhook_address", &ready.webhook),
            ("parrot", &self.parrot.address),
            ("mail_parrot", &self.mail_parrot.address),
        ];
        pairs.iter().fold(include_str!("world.toml").to_owned(), |text, (name, value)| {
            text.replace(&format!("@{name}@"), &value.to_string())
        })
    }

    /// One notification over each channel.
    pub(crate) fn notifications(&self) -> Vec<Value> {
        let webhook = &self.simulator.ready.webhook;
        let mail = json!({ "subject": "s", "text": "t" });
        let subscription = self.simulator.ready.subscriptions[0].to_string();
        let rows = [
            ("ios", DEVICE.to_owned(), json!({ "aps": {} })),
            ("ios-certificate", DEVICE.to_owned(), json!({ "aps": {} })),
            ("android", "device:1".to_owned(), json!({ "data": {} })),
            ("hooks", format!("https://{webhook}/known/1"), json!({})),
            ("hooks", format!("http://{}/x", self.parrot.address), json!({})),
            ("web", subscription, json!({})),
            ("mail", "a@example.com".to_owned(), mail.clone()),
            ("mail-parrot", "b@example.com".to_owned(), mail.clone()),
            ("token-parrot", "c@example.com".to_owned(), mail),
            ("rehearsal", "somebody".to_owned(), json!({})),
        ];
        rows.into_iter()
            .map(|(channel, to, content)| json!({ "channel": channel, "to": to, "content": content }))
            .collect()
    }

    /// Has the engine make a key and put another one in its place, and asks with both.
    pub(crate) fn make_keys(&mut self, engine: &Engine) {
        let url = format!("http://{}", engine.listen);
        let commands =
            [&["keys", "add", "stored", "--tenant", "default"][..], &["keys", "rotate", "stored"]];
        for command in commands {
            let with_call = ["--url", &url, "--api-key", &self.api_key];
            // What makes a key shows it, once.
            let key = self.workspace.get(&[command, &with_call].concat()).trim().to_owned();
            self.workspace.forget(&key);
            self.canaries.push(key.clone());
            let answer = self.workspace.call(engine, &key, "GET /v1/keys/self", "");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            self.workspace.call(engine, &key, "POST /v1/cancel", "{");
            self.workspace.call(engine, &key, "GET /v1/status", "");
            self.workspace.get(&[&["keys", "list"][..], &with_call].concat());
        }
    }

    /// Asks everything that can be asked.
    pub(crate) fn ask(&mut self, engine: &Engine) {
        let (key, url) = (self.api_key.clone(), format!("http://{}", engine.listen));
        let paths = "/healthz /readyz /metrics /v1/status /v1/log /v1/audit /v1/suppressions \
                     /v1/suppressions/events /v1/notifications?limit=100 /v1/nothing /v1/notifications/nobody";
        for path in paths.split(' ').filter(|path| !path.is_empty()) {
            self.workspace.call(engine, &key, &format!("GET {path}"), "");
        }
        for body in ["", "{", "[]", r#"{"channel":"ios"}"#] {
            self.workspace.call(engine, &key, "POST /v1/notifications", body);
            self.workspace.call(engine, &key, "POST /v1/preview", body);
        }
        self.workspace.call(engine, &format!("{key}x"), "GET /v1/status", "");
        let with_call = ["--url", &url, "--api-key", &key];
        for command in ["status", "status --json"] {
            let words: Vec<&str> = command.split(' ').collect();
            self.workspace.get(&[words.as_slice(), &with_call].concat());
        }
        let commands = "log|log --json|audit|audit --json|suppressions export|suppressions feed|check-config\
                        |check-config --reference|check-config --print-default|reference|--help|serve --help";
        for command in commands.split('|') {
            self.workspace.run(&command.split(' ').collect::<Vec<_>>());
        }
    }

    /// How often the simulator answered so.
    pub(crate) fn answered(&self, channel: JournalChannel, status: u16) -> usize {
        let mut reader = Reader::open(&self.simulator.ready.journal).unwrap();
        let mut count = 0;
        while let Some(record) = reader.next_record().unwrap() {
            count += usize::from(
                record.channel == channel && record.status == JournalStatus::Answered(status),
            );
        }
        count
    }

    /// Looks for canaries in everything but what has to have them.
    pub(crate) fn look(&self) {
        let own = ["belfry.toml", "master.key", "apple.pub"];
        let mut texts =
            vec![("what was printed".to_owned(), self.workspace.printed.clone().into_bytes())];
        collect(self.workspace.directory.path(), &own, &mut texts);
        assert!(
            ["belfry.db-wal", "belfry.reserve"]
                .into_iter()
                .all(|file| texts.iter().any(|(name, _)| name == file)),
            "the store is looked at: {:?}",
            texts.iter().map(|(name, _)| name).collect::<Vec<_>>()
        );
        let shows = |bytes: &[u8], canary: &str| {
            bytes.windows(canary.len()).any(|window| window == canary.as_bytes())
        };
        for (place, bytes) in &texts {
            for canary in &self.canaries {
                assert!(!shows(bytes, canary), "{place} shows {canary:?}");
            }
        }
        let (_, log) = texts.iter().find(|(name, _)| name == "log").unwrap();
        for private in &self.private {
            assert!(!shows(log, private), "the log shows {private:?}");
        }
    }
}

/// Keys of all kinds.
#[derive(Default)]
struct Keys {
    apple: String,
    certificate: String,
    certificate_key: String,
    client_certificate: String,
    client_key: String,
    dkim: String,
    vapid: String,
    account: String,
}

// === impl Keys ===

impl Keys {
    fn new(simulator: &SimulatorProcess) -> Self {
        let make = || rcgen::generate_simple_self_signed(["belfry".to_owned()]).unwrap();
        let (certificate, client) = (make(), make());
        let dkim = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        Self {
            certificate: certificate.cert.pem(),
            certificate_key: certificate.signing_key.serialize_pem(),
            client_certificate: client.cert.pem(),
            client_key: client.signing_key.serialize_pem(),
            dkim: dkim.serialize_pem(),
            account: fs::read_to_string(&simulator.ready.fcm_service_account).unwrap(),
            ..Self::default()
        }
    }

    fn canaries(&self) -> Vec<String> {
        let account: Value = serde_json::from_str(&self.account).unwrap();
        let keys = [&*self.apple, &self.certificate_key, &self.client_key, &self.dkim];
        let mut canaries: Vec<String> = keys.into_iter().map(canary_of).collect();
        canaries.push(canary_of(account["private_key"].as_str().unwrap()));
        canaries.push(self.vapid.clone());
        canaries
    }
}

fn collect(directory: &Path, except: &[&str], texts: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let is_own = except.contains(&name.as_str()) || name.starts_with("apns-TEAM");
        if entry.file_type().unwrap().is_dir() {
            // The simulator's.
            if name != "provider" {
                collect(&entry.path(), except, texts);
            }
        } else if !is_own {
            texts.push((name, without_zero_blocks(&fs::read(entry.path()).unwrap())));
        }
    }
}

/// How much is compared with zeros at a time. That is one `memcmp`, which is fast in a build without optimization, too.
const BLOCK_BYTES: usize = 64 * 1024;

/// `bytes` with each block of nothing but zeros, as in the store's disk reserve of 64 MiB, reduced to one zero. No canary
/// has a zero in it, so none is hidden by this and none is made.
fn without_zero_blocks(bytes: &[u8]) -> Vec<u8> {
    static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    let mut rest = Vec::new();
    for block in bytes.chunks(BLOCK_BYTES) {
        let is_zero = ZEROS.get(..block.len()) == Some(block);
        rest.extend_from_slice(if is_zero { &[0] } else { block });
    }
    rest
}

#[test]
fn only_blocks_of_zeros_are_passed_over() {
    let canary = b"canary";
    // Over the edge between two blocks, at the end of a file, and between blocks of zeros.
    for (start, blocks) in [(BLOCK_BYTES - 3, 5), (3 * BLOCK_BYTES - 6, 3), (BLOCK_BYTES, 9)] {
        let mut bytes = vec![0; blocks * BLOCK_BYTES];
        bytes[start..start + canary.len()].copy_from_slice(canary);
        let rest = without_zero_blocks(&bytes);
        assert_eq!(rest.windows(canary.len()).filter(|window| window == canary).count(), 1);
        assert!(rest.len() <= 2 * BLOCK_BYTES + blocks, "{start}: {}", rest.len());
    }
    assert_eq!(without_zero_blocks(&[b"a\0b".as_slice(), &[0; 5]].concat()), b"a\0b\0\0\0\0\0");
    assert_eq!(without_zero_blocks(&vec![0; 2 * BLOCK_BYTES + 1]), [0, 0, 0]);
}
