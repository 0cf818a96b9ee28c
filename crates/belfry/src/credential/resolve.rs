//! From a configuration as it is written to one in which every secret is open and every channel has its credential.
//!
//! This works on the text's tables, before any channel reads its own: what a channel of any kind takes as a secret may
//! stand in a credential, in a file, or sealed, and no channel knows.

use std::collections::BTreeMap;
use std::path::Path;

use channel::Secret;
use toml::{Table, Value};

use super::sealed::{MasterKey, SealError, exposure, is_sealed};

/// What opens secrets: the master key, if there is one, and the named groups of settings.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    key: Option<MasterKey>,
    tables: BTreeMap<String, Table>,
    /// What a person should look at.
    pub(crate) warnings: Vec<String>,
}

/// The place of a setting, and what is wrong with it.
type Fault = (String, String);

/// The key of `[credentials]` that names no credential.
const KEY_FILE: &str = "key_file";
/// What a channel names its credential by.
const CREDENTIAL: &str = "credential";
/// What the names of settings end with that name a file.
const FILE: &str = "_file";

// === impl Credentials ===

impl Credentials {
    /// Takes `[credentials]` out of `document`. `from_environment` is the master key there, which goes before the file's.
    pub(crate) fn take(
        document: &mut Table,
        from_environment: Option<&Secret>,
        faults: &mut Vec<Fault>,
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
            (Some(text), _) => MasterKey::parse(text.expose(), super::command::VARIABLE)
                .map(Some)
                .map_err(|error| (super::command::VARIABLE.to_owned(), error.to_string())),
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
            credentials.open_table(&mut table, &path, Some(&name), faults);
            if faults.len() > before {
                // What is wrong is said here, and not again where it is used.
                table.clear();
            }
            credentials.tables.insert(name, table);
        }
        credentials
    }

    /// Opens everything sealed in `document`, and gives each channel the settings of its credential.
    pub(crate) fn apply(&self, document: &mut Table, faults: &mut Vec<Fault>) {
        for (table, value) in document.iter_mut() {
            if table == "channels" {
                let Some(channels) = value.as_table_mut() else { continue };
                for (name, channel) in channels.iter_mut() {
                    let path = format!("channels.{name}");
                    let Some(channel) = channel.as_table_mut() else { continue };
                    self.add_credential(channel, &path, faults);
                    self.open_table(channel, &path, None, faults);
                }
            } else {
                self.open_value(value, table, None, faults);
            }
        }
    }

    /// Opens a sealed text; another one stays as it is.
    pub(crate) fn open(&self, text: &str, place: Option<&str>) -> Result<Option<String>, String> {
        if !is_sealed(text) {
            return Ok(None);
        }
        let Some(key) = &self.key else {
            return Err(format!(
                "is sealed, and there is no master key: set {} in the environment, or key_file in [credentials]",
                super::command::VARIABLE
            ));
        };
        let (name, secret) = key.open(text).map_err(|error| error.to_string())?;
        match place {
            Some(place) if name.as_str() != place => {
                let (sealed, place) = (name.to_string(), place.to_owned());
                Err(SealError::Misplaced { sealed, place }.to_string())
            }
            _ => Ok(Some(secret)),
        }
    }

    fn add_credential(&self, channel: &mut Table, path: &str, faults: &mut Vec<Fault>) {
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
        path: &str,
        place: Option<&str>,
        faults: &mut Vec<Fault>,
    ) {
        let files: Vec<(String, String)> = table
            .iter()
            .filter_map(|(key, value)| Some((key.strip_suffix(FILE)?, value.as_str()?)))
            .map(|(key, file)| (key.to_owned(), file.to_owned()))
            .collect();
        for (key, file) in files {
            // Whoever reads the setting says that a file is missing.
            let Some(text) = sealed_file(Path::new(&file)) else { continue };
            let setting = format!("{key}{FILE}");
            match self.open(&text, place) {
                // What is trusted may be known to everybody: there is no setting for its text.
                Ok(Some(_)) if key == "ca" => {
                    let message =
                        format!("{file}: is sealed, and no secret: write it in the clear");
                    faults.push((format!("{path}.{setting}"), message));
                }
                Ok(Some(secret)) => {
                    table.remove(&setting);
                    table.insert(key, Value::String(secret));
                }
                Ok(None) => {}
                Err(message) => {
                    faults.push((format!("{path}.{setting}"), format!("{file}: {message}")));
                }
            }
        }
        for (key, value) in table.iter_mut() {
            self.open_value(value, &format!("{path}.{key}"), place, faults);
        }
    }

    fn open_value(
        &self,
        value: &mut Value,
        path: &str,
        place: Option<&str>,
        faults: &mut Vec<Fault>,
    ) {
        match value {
            Value::String(text) => match self.open(text, place) {
                Ok(Some(secret)) => *text = secret,
                Ok(None) => {}
                Err(message) => faults.push((path.to_owned(), message)),
            },
            Value::Array(values) => {
                for (index, value) in values.iter_mut().enumerate() {
                    self.open_value(value, &format!("{path}[{index}]"), place, faults);
                }
            }
            Value::Table(table) => self.open_table(table, path, place, faults),
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {}
        }
    }
}

/// What stands in `file`, if it is a sealed text.
fn sealed_file(file: &Path) -> Option<String> {
    std::fs::read_to_string(file).ok().filter(|text| is_sealed(text))
}
