//! Sealed texts open in the settings that they were sealed for, and nowhere else; a published secret is refused.

use channel::Secret;
use toml::{Table, Value};

use super::load::ConfigSource;
use super::reference::DEFAULT_FILE;
use super::tests::{complaints, every_key_set};
use crate::credential::{Label, MasterKey, SECRET_SETTINGS, generate, refusal};

const CANARY: &str = "canary-that-was-sealed";

/// A master key, and what is sealed with it for each secret setting.
struct Sealed {
    master_key: String,
    texts: Vec<(&'static str, String)>,
}

impl Sealed {
    fn new() -> Self {
        let master_key = generate().unwrap();
        let key = MasterKey::parse(&master_key, "the test").unwrap();
        let seal = |&setting: &&'static str| {
            let label = Label { name: "apple".parse().unwrap(), setting };
            (setting, key.seal(&label, CANARY).unwrap())
        };
        Self { texts: SECRET_SETTINGS.iter().map(seal).collect(), master_key }
    }

    /// The problems found in `document`.
    fn complaints(&self, document: &Table) -> Vec<String> {
        let master_key = Some(Secret::new(self.master_key.as_str()));
        let text = toml::to_string(document).unwrap();
        complaints(&ConfigSource { text, master_key, ..ConfigSource::default() })
    }
}

/// The default file with every key set and the path of each; texts of lists are settings of their own.
fn every_setting() -> (Table, Vec<Vec<String>>) {
    let mut document: Table = every_key_set().parse().unwrap();
    // The master key of the test stands elsewhere, and a group of settings is tried where a channel has it.
    document.remove("credentials");
    let mut paths = Vec::new();
    add_paths(&Value::Table(document.clone()), &mut Vec::new(), &mut paths);
    (document, paths)
}

fn add_paths(value: &Value, path: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    let below: Vec<(String, &Value)> = if let Some(table) = value.as_table() {
        table.iter().map(|(key, value)| (key.clone(), value)).collect()
    } else if let Some(values) = value.as_array().filter(|values| !values.is_empty()) {
        values.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect()
    } else {
        return paths.push(path.clone());
    };
    for (key, value) in below {
        path.push(key);
        add_paths(value, path, paths);
        path.pop();
    }
}

fn set(document: &mut Table, path: &[String], text: &str) {
    let (first, rest) = path.split_first().unwrap();
    let mut value = document.get_mut(first).unwrap();
    for key in rest {
        value = match key.parse::<usize>() {
            Ok(index) => value.get_mut(index).unwrap(),
            Err(_name) => value.get_mut(key).unwrap(),
        };
    }
    *value = Value::String(text.to_owned());
}

/// The setting's name as [`SECRET_SETTINGS`] has it.
fn setting_of(document: &Table, path: &[String]) -> String {
    let mut keys: Vec<&str> = path.iter().map(String::as_str).collect();
    if keys[0] == "channels" {
        let kind = document["channels"][keys[1]]["kind"].as_str().unwrap();
        keys.splice(..2, [kind]);
    }
    keys.retain(|key| key.parse::<usize>().is_err());
    if let Some(place) = keys.iter().position(|key| *key == "headers") {
        keys.truncate(place + 1);
    }
    keys.join(".")
}

#[test]
fn a_sealed_text_is_refused_in_every_setting_that_is_not_a_secret() {
    let (document, paths) = every_setting();
    let sealed = Sealed::new();
    let (mut secrets, mut others) = (0, 0);
    for path in &paths {
        let setting = setting_of(&document, path);
        if SECRET_SETTINGS.contains(&setting.as_str()) || path.last().unwrap() == "kind" {
            secrets += 1;
            continue;
        }
        others += 1;
        for (label, text) in &sealed.texts {
            let mut document = document.clone();
            set(&mut document, path, text);
            let complaints = sealed.complaints(&document).join("\n");
            assert!(complaints.contains("is sealed, and no secret"), "{path:?}: {complaints}");
            assert!(!complaints.contains("canary"), "{label} at {path:?}: {complaints}");
        }
    }
    assert!(
        secrets >= SECRET_SETTINGS.len() && others >= 90,
        "{secrets} and {others} of {paths:?}"
    );
}

#[test]
fn a_secret_setting_opens_only_what_was_sealed_for_it_and_never_shows_it() {
    let (document, paths) = every_setting();
    let sealed = Sealed::new();
    let mut tried = Vec::new();
    for path in &paths {
        let setting = setting_of(&document, path);
        let Some(known) = SECRET_SETTINGS.iter().find(|known| **known == setting) else { continue };
        tried.push(*known);
        for (label, text) in &sealed.texts {
            let mut document = document.clone();
            set(&mut document, path, text);
            let complaints = sealed.complaints(&document).join("\n");
            let refused = format!("was sealed for {label} and stands at {setting}");
            assert_eq!(complaints.contains(&refused), label != known, "{path:?}: {complaints}");
            assert!(!complaints.contains("canary"), "{label} at {path:?}: {complaints}");
        }
    }
    // DKIM's key is an example as a file only.
    tried.push("smtp.dkim.key");
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried, SECRET_SETTINGS);
}

#[test]
fn what_is_no_text_takes_no_sealed_one_in_place_of_a_channels_kind() {
    let sealed = Sealed::new();
    for (_, text) in &sealed.texts {
        let document = format!("[channels.a]\nkind = \"{text}\"").parse().unwrap();
        let complaints = sealed.complaints(&document).join("\n");
        assert!(complaints.contains("is sealed, and no secret"), "{complaints}");
    }
}

/// Every text that the documentation shows as the value of a secret setting, with the setting's last key.
fn documented_secrets() -> Vec<(String, String)> {
    let pages = [
        DEFAULT_FILE,
        include_str!("../../../../README.md"),
        include_str!("../../../../docs/credentials.md"),
        include_str!("../../../../docs/sources.md"),
        include_str!("../../../../docs/suppressions.md"),
        include_str!("../../../../docs/templates.md"),
        include_str!("../../../../docs/channels/apns.md"),
        include_str!("../../../../docs/channels/email.md"),
        include_str!("../../../../docs/channels/fcm.md"),
        include_str!("../../../../docs/channels/webhook.md"),
        include_str!("../../../../docs/channels/webpush.md"),
        include_str!("../../../../docs/deploy/README.md"),
        include_str!("../../../../docs/deploy/belfry.toml"),
        include_str!("../../../../docs/reference/http-api.md"),
    ];
    let keys = SECRET_SETTINGS.iter().filter_map(|setting| setting.rsplit('.').next());
    let keys: Vec<&str> = keys.chain(["sha256"]).collect();
    let mut found = Vec::new();
    for line in pages.iter().flat_map(|page| page.lines()) {
        let line = line.trim_start().trim_start_matches('#');
        let Some((key, value)) = line.split_once('=') else { continue };
        let value = value.split(" # ").next().unwrap_or_default();
        let key = key.trim();
        if keys.contains(&key) {
            let texts = value.split('"').skip(1).step_by(2).filter(|text| !text.is_empty());
            found.extend(texts.map(|text| (key.to_owned(), text.to_owned())));
        }
    }
    found
}

#[test]
fn every_secret_that_the_documentation_shows_is_refused_by_name() {
    let documented = documented_secrets();
    assert!(documented.len() >= 6, "{documented:?}");
    for (key, text) in documented {
        let refused = refusal(&text).unwrap_or_default();
        assert!(refused.contains("placeholder of the documentation"), "{key} = {text:?}");
    }
}

#[test]
fn a_configuration_with_a_published_secret_is_refused_by_the_name_of_its_source() {
    let of_test = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let key =
        |sha256| format!("[[server.keys]]\nname = \"a\"\ntenant = \"b\"\nsha256 = \"{sha256}\"");
    let webhook =
        |secret| format!("[channels.hooks]\nkind = \"webhook\"\nsecrets = [\"{secret}\"]");
    let check = |text: String, expect: &str| {
        let complaints = complaints(&ConfigSource { text, ..ConfigSource::default() }).join("\n");
        assert!(complaints.contains(expect), "{complaints}");
    };
    check(key(of_test), "server.keys[0].sha256: is the SHA-256 of \"test\"");
    check(
        webhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        "channels.hooks.secrets[0]: is the example of Standard Webhooks",
    );
    check(webhook("whsec_<your base64>"), "is the placeholder of the documentation");
}
