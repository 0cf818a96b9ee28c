//! From a configuration as it is written to one in which every secret is open and every channel has its credential.
//!
//! This works on the text's tables, before any channel reads its own: what a channel of any kind takes as a secret may
//! stand in a credential, in a file, or sealed, and no channel knows. A sealed text is opened only in a secret setting
//! ([`SECRET_SETTINGS`](super::settings::SECRET_SETTINGS)), the one that it was sealed for; nothing else is read here.

use std::collections::BTreeMap;
use std::path::Path;

use channel::Secret;
use toml::{Table, Value};

use super::sealed::{MasterKey, SealError, VARIABLE, exposure, is_sealed};
use super::{published, settings};

/// Opens secrets: with the master key, if there is one, and the named groups of settings.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    key: Option<MasterKey>,
    tables: BTreeMap<String, Table>,
    /// Warnings for the operator.
    pub(crate) warnings: Vec<String>,
}

/// The secrets that were opened, which no complaint may show.
#[derive(Debug, Default)]
pub(crate) struct OpenedSecrets(Vec<Secret>);

/// Where a value stands.
#[derive(Debug, Clone)]
struct SettingPath<'a> {
    /// For people: `channels.hooks.secrets[0]`.
    path: String,
    /// Without the table's name and without indexes: `secrets`.
    setting: String,
    /// The channel's kind or the table; `None` in a credential, which any kind may take over.
    kind: Option<&'a str>,
    /// The credential that it stands in, if it does.
    credential: Option<&'a str>,
}

/// The place of a setting, and what is wrong with it.
type ConfigFault = (String, String);

/// The key of `[credentials]` that names no credential.
const KEY_FILE: &str = "key_file";
/// The setting by which a channel names its credential.
const CREDENTIAL: &str = "credential";
/// The suffix of settings that name a file.
const FILE: &str = "_file";
/// The shortest part of a secret that is recognized in an error message, bytes: less may be there by chance.
const RECOGNIZED_BYTES: usize = 6;

// === impl Credentials ===

impl Credentials {
    /// Takes `[credentials]` out of `document`. `from_environment` is the master key there, which goes before the file's.
    pub(crate) fn take(
        document: &mut Table,
        from_environment: Option<&Secret>,
        faults: &mut Vec<ConfigFault>,
    ) -> Self {
        let mut credentials = Self::default();
        let mut tables = match document.remove("credentials") {
            None => Table::new(),
            Some(Value::Table(tables)) => tables,
            Some(_) => {
                faults.push(("credentials".to_owned(), "must be a table".to_owned()));
                return credentials;
            }
        };
        let key = match (from_environment, tables.remove(KEY_FILE)) {
            (Some(text), _) => MasterKey::parse(text.expose(), VARIABLE)
                .map(Some)
                .map_err(|error| (VARIABLE.to_owned(), error.to_string())),
            (None, Some(Value::String(file))) => {
                credentials.warnings.extend(exposure(Path::new(&file)));
                MasterKey::read(Path::new(&file))
                    .map(Some)
                    .map_err(|message| ("credentials.key_file".to_owned(), message))
            }
            (None, Some(_)) => {
                Err(("credentials.key_file".to_owned(), "must be a path".to_owned()))
            }
            (None, None) => Ok(None),
        };
        credentials.key = key.unwrap_or_else(|fault| {
            faults.push(fault);
            None
        });
        for (name, value) in tables {
            let path = format!("credentials.{name}");
            let Value::Table(mut table) = value else {
                faults.push((path, "must be a table, the settings of one credential".to_owned()));
                continue;
            };
            let before = faults.len();
            // Only tried here: it is opened where a channel takes it over, whose kind must be the one it was sealed for.
            let place =
                SettingPath { path, setting: String::new(), kind: None, credential: Some(&name) };
            credentials.open_table(
                &mut table.clone(),
                &place,
                &mut OpenedSecrets::default(),
                faults,
            );
            if faults.len() > before {
                // What is wrong is said here, and not again where it is used.
                table.clear();
            }
            credentials.tables.insert(name, table);
        }
        credentials
    }

    /// Opens everything sealed in `document`, and gives each channel the settings of its credential.
    pub(crate) fn apply(
        &self,
        document: &mut Table,
        faults: &mut Vec<ConfigFault>,
    ) -> OpenedSecrets {
        let mut opened = OpenedSecrets::default();
        for (table, value) in document.iter_mut() {
            if table == "channels" {
                let Some(channels) = value.as_table_mut() else { continue };
                for (name, channel) in channels.iter_mut() {
                    let path = format!("channels.{name}");
                    let Some(channel) = channel.as_table_mut() else { continue };
                    // Before the kind's secrets are looked for: those of the credential are opened with the channel's own,
                    // as of its kind.
                    self.add_credential(channel, &path, faults);
                    let kind = channel.get("kind").and_then(Value::as_str).map(str::to_owned);
                    let place = SettingPath::table(path, kind.as_deref());
                    self.open_table(channel, &place, &mut opened, faults);
                }
            } else {
                let place = SettingPath::table(table.clone(), Some(table));
                self.open_value(value, &place, &mut opened, faults);
            }
        }
        opened
    }

    /// Opens a sealed text that stands at `place`; another one stays as it is.
    fn open(&self, text: &str, place: &SettingPath<'_>) -> Result<Option<String>, String> {
        if !is_sealed(text) {
            return Ok(None);
        }
        // Before it is opened: a complaint about another setting may show what was in it (decision 0014).
        if settings::at(place.kind, &place.setting).next().is_none() {
            return Err("is sealed, and no secret: write it in the clear".to_owned());
        }
        let Some(key) = &self.key else {
            return Err(format!(
                "is sealed, and there is no master key: set {VARIABLE} in the environment, or key_file in [credentials]"
            ));
        };
        let (label, secret) = key.open(text).map_err(|error| error.to_string())?;
        if let Some(credential) = place.credential.filter(|name| label.name.as_str() != *name) {
            let (sealed, place) = (label.name.to_string(), credential.to_owned());
            return Err(SealError::Misplaced { sealed, place }.to_string());
        }
        let mut fitting = settings::at(place.kind, &place.setting);
        if fitting.any(|setting| setting == label.setting) {
            return Ok(Some(secret));
        }
        let place = settings::at(place.kind, &place.setting).collect::<Vec<_>>().join(" or ");
        Err(SealError::OtherSetting { sealed: label.setting, place }.to_string())
    }

    fn add_credential(&self, channel: &mut Table, path: &str, faults: &mut Vec<ConfigFault>) {
        let place = format!("{path}.{CREDENTIAL}");
        let name = match channel.remove(CREDENTIAL) {
            None => return,
            Some(Value::String(name)) => name,
            Some(_) => return faults.push((place, "must be the name of a credential".to_owned())),
        };
        let Some(settings) = self.tables.get(&name) else {
            let known: Vec<&str> = self.tables.keys().map(String::as_str).collect();
            let message = format!("there is no [credentials.{name}], known: {}", known.join(", "));
            return faults.push((place, message));
        };
        for (key, value) in settings {
            if channel.contains_key(key) {
                let message = format!("stands in [credentials.{name}] too: leave one of them out");
                faults.push((format!("{path}.{key}"), message));
            } else {
                channel.insert(key.clone(), value.clone());
            }
        }
    }

    /// Opens what is sealed in `table`, and the files with sealed texts that it names: `key_file` becomes `key`.
    fn open_table(
        &self,
        table: &mut Table,
        place: &SettingPath<'_>,
        opened: &mut OpenedSecrets,
        faults: &mut Vec<ConfigFault>,
    ) {
        let files: Vec<(String, String)> = table
            .iter()
            .filter_map(|(key, value)| Some((key.strip_suffix(FILE)?, value.as_str()?)))
            .map(|(key, file)| (key.to_owned(), file.to_owned()))
            .collect();
        for (key, file) in files {
            // The reader of the setting reports a missing file.
            let Ok(text) = std::fs::read_to_string(&file) else { continue };
            let (place, setting) = (place.below(&key), format!("{key}{FILE}"));
            let secret = self.open(&text, &place).and_then(|secret| {
                // In the clear as well: a file may hold a key that is publicly known.
                let refusal = place.refusal(secret.as_deref().unwrap_or(&text));
                refusal.map_or(Ok(secret), Err)
            });
            match secret {
                Ok(Some(secret)) => {
                    opened.0.push(Secret::new(secret.as_str()));
                    table.remove(&setting);
                    table.insert(key, Value::String(secret));
                }
                Ok(None) => {}
                Err(message) => {
                    faults.push((format!("{}{FILE}", place.path), format!("{file}: {message}")));
                }
            }
        }
        for (key, value) in table.iter_mut() {
            self.open_value(value, &place.below(key), opened, faults);
        }
    }

    fn open_value(
        &self,
        value: &mut Value,
        place: &SettingPath<'_>,
        opened: &mut OpenedSecrets,
        faults: &mut Vec<ConfigFault>,
    ) {
        match value {
            Value::String(text) => match self.open(text, place) {
                Ok(secret) => {
                    if let Some(secret) = secret {
                        opened.0.push(Secret::new(secret.as_str()));
                        *text = secret;
                    }
                    let refusal = place.refusal(text);
                    faults.extend(refusal.map(|message| (place.path.clone(), message)));
                }
                Err(message) => faults.push((place.path.clone(), message)),
            },
            Value::Array(values) => {
                for (index, value) in values.iter_mut().enumerate() {
                    let path = format!("{}[{index}]", place.path);
                    self.open_value(value, &SettingPath { path, ..place.clone() }, opened, faults);
                }
            }
            Value::Table(table) => self.open_table(table, place, opened, faults),
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {}
        }
    }
}

// === impl OpenedSecrets ===

impl OpenedSecrets {
    /// `message` if it shows nothing that was sealed; otherwise words without it. What reads a setting does not know that
    /// it was sealed, and may repeat a part of it.
    pub(crate) fn conceal(&self, message: String) -> String {
        // Piece by piece: a message may repeat one line of a PEM text.
        let pieces = self.0.iter().flat_map(|secret| secret.expose().split_whitespace());
        let mut pieces = pieces.filter(|piece| piece.len() >= RECOGNIZED_BYTES);
        if pieces.any(|piece| message.contains(piece)) {
            return "what was sealed is not right here, and is not shown: seal it anew".to_owned();
        }
        message
    }
}

// === impl SettingPath ===

impl<'a> SettingPath<'a> {
    /// The table at `path`.
    fn table(path: String, kind: Option<&'a str>) -> Self {
        Self { path, setting: String::new(), kind, credential: None }
    }

    /// The setting `key` in it.
    fn below(&self, key: &str) -> Self {
        let setting = match self.setting.as_str() {
            "" => key.to_owned(),
            above => format!("{above}.{key}"),
        };
        Self { path: format!("{}.{key}", self.path), setting, ..self.clone() }
    }

    /// Why `text` is refused, if it is publicly known.
    fn refusal(&self, text: &str) -> Option<String> {
        if self.kind == Some("server") && self.setting == "keys.sha256" {
            return published::refusal_of_key(text);
        }
        // Elsewhere a word that is published as a secret is an ordinary value.
        settings::at(self.kind, &self.setting).next().and_then(|_| published::refusal(text))
    }
}
