//! Reads the configuration and names everything that is wrong with it at once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use channel::Secret;
use flow::Clock;
use notification::Name;
use serde::Deserialize;
use toml::{Table, Value};

use crate::credential::{self, Credentials};
use crate::exit::{CliError, FailureKind};

use super::flags::Flags;
use super::places::add_password;
use super::problem::Mistake;
use super::table::read_table;
use super::{
    ChannelConfig, Config, DeliveryConfig, DeliveryFeedConfig, LogConfig, QueueConfig,
    RetentionConfig, ServerConfig, SourceConfig, StoreConfig, SuppressionsConfig, TemplateConfig,
    TenantConfig, TracesConfig,
};

/// Read in the working directory when no file is named.
pub(crate) const USUAL_FILE: &str = "belfry.toml";
/// Read when no file is named and the working directory has none: where the Debian package and the image have it.
pub(crate) const SYSTEM_FILE: &str = "/etc/belfry/belfry.toml";

/// Environment variables that begin so are part of the configuration: `BELFRY__STORE__DIRECTORY=/var/belfry`
/// is `store.directory`. A value that reads as TOML (`8`, `true`, `["a"]`) is that, any other is a text.
const VARIABLE_PREFIX: &str = "BELFRY__";

/// Keys of which one takes the place of the other: whichever is said closest to the command wins.
const RIVALS: [[&str; 2]; 2] = [["store.directory", "store.url"], ["store.url", "store.directory"]];

/// The sources of a configuration.
#[derive(Clone, Default)]
pub(super) struct ConfigSource {
    /// The file, if there is one.
    pub(super) file: Option<PathBuf>,
    /// Its text.
    pub(super) text: String,
    /// Variables of the environment, by name.
    pub(super) variables: BTreeMap<String, String>,
    /// The master key, if the environment has it.
    pub(super) master_key: Option<Secret>,
    /// Settings from the command line.
    pub(super) flags: Flags,
}

/// One key that is set outside of the file.
struct OutsideSetting<'a> {
    /// The name of the place: a flag, a variable.
    said_by: &'a str,
    path: Vec<String>,
    value: Value,
}

/// The file as it is written: channels are read by their kind, in a second step.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Document {
    server: ServerConfig,
    store: StoreConfig,
    queue: QueueConfig,
    delivery: DeliveryConfig,
    log: LogConfig,
    traces: Box<TracesConfig>,
    suppressions: SuppressionsConfig,
    retention: RetentionConfig,
    channels: BTreeMap<String, Table>,
    templates: BTreeMap<Name, TemplateConfig>,
    tenants: BTreeMap<Name, TenantConfig>,
    sources: Vec<SourceConfig>,
    feeds: Vec<DeliveryFeedConfig>,
}

/// The file to read: the one that is `named`, or [`USUAL_FILE`], or else [`SYSTEM_FILE`], if it exists. In a directory that the user may not
/// enter it does not: a caller that names an engine by `--url` needs none.
pub(crate) fn file_to_read(named: Option<&Path>) -> Option<&Path> {
    let mut usual = [USUAL_FILE, SYSTEM_FILE].into_iter().map(Path::new);
    named.or_else(|| usual.find(|file| file.is_file()))
}

// === impl Config ===

impl Config {
    /// The configuration of an engine with the store at `store`, a directory or a URL, and nothing else: no file and no variable counts.
    /// It listens at a free port of the loopback interface.
    ///
    /// # Errors
    /// What is wrong with `store`.
    pub(crate) fn of_store(store: &Secret) -> Result<Self, CliError> {
        let flags = Flags { store: Some(store.clone()), queue: None };
        let source = ConfigSource { flags, ..ConfigSource::default() };
        let mut config = source.read_or_say()?;
        config.server.listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        Ok(config)
    }

    /// Reads the [`file_to_read`], or nothing, and over it the environment and then `flags`.
    ///
    /// # Errors
    /// Everything that is wrong, one line for each.
    pub(crate) fn load(file: Option<&Path>, flags: Flags) -> Result<Self, CliError> {
        let fail = |message: String| CliError::new(FailureKind::Config, message);
        let source = ConfigSource::open(file, flags).map_err(fail)?;
        source.read_or_say()
    }
}

// === impl ConfigSource ===

impl ConfigSource {
    /// Opens the [`file_to_read`], and takes what concerns us from the environment.
    pub(super) fn open(file: Option<&Path>, flags: Flags) -> Result<Self, String> {
        let file = file_to_read(file);
        let text = match file {
            Some(path) => std::fs::read_to_string(path).map_err(|error| {
                format!("cannot read the configuration {}: {error}", path.display())
            })?,
            None => String::new(),
        };
        // Not `vars`, which panics at any variable that is no text, whichever program it is for.
        let variables = std::env::vars_os()
            // A name that is no text cannot begin with the prefix and name a key.
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with(VARIABLE_PREFIX))
            .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
            .collect();
        let file = file.map(Path::to_path_buf);
        Ok(Self { file, text, variables, master_key: master_key(), flags })
    }

    /// Reads and checks everything, or says all that is wrong, one line for each.
    fn read_or_say(&self) -> Result<Config, CliError> {
        self.read().map_err(|problems| {
            let lines: Vec<String> =
                problems.iter().map(|problem| self.describe(problem)).collect();
            CliError::new(FailureKind::Config, lines.join("\n"))
        })
    }

    /// Reads and checks everything. Touches no network.
    pub(super) fn read(&self) -> Result<Config, Vec<Mistake>> {
        let mut table = self.text.parse::<Table>().map_err(|error| vec![self.malformed(&error)])?;
        let mut problems = Vec::new();
        for layer in [self.of_variables(), of_flags(&self.flags)] {
            put(&mut table, layer, &mut problems);
        }
        let mut faults = Vec::new();
        let credentials = Credentials::take(&mut table, self.master_key.as_ref(), &mut faults);
        let opened = credentials.apply(&mut table, &mut faults);
        // What did not open is not what the settings say: they would only complain of it again.
        if !faults.is_empty() {
            let faults = faults.into_iter();
            problems.extend(faults.map(|(path, message)| Mistake::new(path, message)));
            return Err(problems);
        }
        let document: Option<Document> = read_table(table, "", &mut problems);
        let config = document.map(|document| {
            let mut config = document.resolve(&mut problems);
            config.warnings.extend(credentials.warnings);
            config
        });
        if let Some(config) = &config {
            problems.extend(config.check());
        }
        match config {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(problems
                .into_iter()
                .map(|Mistake { path, message }| Mistake::new(path, opened.conceal(message)))
                .collect()),
        }
    }

    /// One line for `problem`: where to look, what is wrong.
    pub(super) fn describe(&self, problem: &Mistake) -> String {
        let flags = of_flags(&self.flags);
        let variables = self.of_variables();
        // The flag first: where a variable sets the same key, the flag is what counts.
        let mut settings = flags.iter().chain(&variables);
        let setting = settings.find(|setting| setting.path.join(".") == problem.path);
        match (setting, &self.file) {
            // Set from outside, it is not in the file, or not what counts there.
            (Some(setting), _) => format!("{}: {}", setting.said_by, problem.message),
            (None, Some(file)) => format!("{}: {problem}", file.display()),
            (None, None) => problem.to_string(),
        }
    }

    fn of_variables(&self) -> Vec<OutsideSetting<'_>> {
        let variables = self.variables.iter();
        let settings = variables.map(|(name, value)| OutsideSetting {
            said_by: name,
            path: variable_path(name),
            value: literal(value),
        });
        settings.collect()
    }

    fn malformed(&self, error: &toml::de::Error) -> Mistake {
        let before = error.span().and_then(|span| self.text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        // Each mistake is one line of what is printed.
        let message = error.message().replace('\n', ", ");
        Mistake::new("", format!("line {line} is not TOML: {message}"))
    }
}

/// Where systemd wants this service to keep state (`StateDirectory=`): the first, if there are several.
pub(crate) fn service_directory() -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("STATE_DIRECTORY")?).next()
}

/// The master key, if the environment has it.
pub(crate) fn master_key() -> Option<Secret> {
    // What is no text becomes one that is no key: that is refused, and not passed over as if none were set.
    let key = std::env::var_os(credential::VARIABLE)?.into_string().unwrap_or_default();
    Some(Secret::new(key))
}

// === impl Document ===

impl Document {
    fn resolve(self, problems: &mut Vec<Mistake>) -> Config {
        let mut channels = BTreeMap::new();
        for (name, table) in self.channels {
            let path = format!("channels.{name}");
            match name.parse::<Name>() {
                Ok(name) => {
                    if let Some(channel) = ChannelConfig::read(table, &path, problems) {
                        channels.insert(name, channel);
                    }
                }
                Err(error) => problems.push(Mistake::new(path, error.to_string())),
            }
        }
        let Self { server, mut store, mut queue, delivery, log, traces, suppressions, .. } = self;
        let Self { retention, templates, tenants, mut sources, feeds, .. } = self;
        let given = (store.password.as_ref(), store.password_file.as_deref());
        add_password("store", &mut store.url, given, problems);
        let given = (queue.password.as_ref(), queue.password_file.as_deref());
        add_password("queue", &mut queue.url, given, problems);
        for (index, source) in sources.iter_mut().enumerate() {
            source.resolve(&format!("sources[{index}]"), problems);
        }
        let mut warnings = server.warnings(&channels, Clock::system().wall());
        warnings.extend(channels.iter().filter_map(|(name, channel)| channel.warning(name)));
        Config {
            server,
            store,
            queue,
            delivery,
            log,
            traces,
            suppressions,
            retention,
            channels,
            templates,
            tenants,
            sources,
            feeds,
            warnings,
        }
    }
}

/// The settings that `flags` hold.
fn of_flags(flags: &Flags) -> Vec<OutsideSetting<'static>> {
    let setting = |said_by, table: &str, key: &str, value: &str| OutsideSetting {
        said_by,
        path: vec![table.to_owned(), key.to_owned()],
        value: Value::String(value.to_owned()),
    };
    let store = flags.store.as_ref().map(Secret::expose).map(|place| {
        // No URL is without a colon, and hardly a directory has one.
        let key = if place.contains(':') { "url" } else { "directory" };
        setting("--store", "store", key, place)
    });
    let queue =
        flags.queue.as_ref().map(Secret::expose).map(|url| setting("--queue", "queue", "url", url));
    store.into_iter().chain(queue).collect()
}

/// Puts the settings of one place over what stands in `table`.
fn put(table: &mut Table, layer: Vec<OutsideSetting<'_>>, problems: &mut Vec<Mistake>) {
    let names: Vec<String> = layer.iter().map(|setting| setting.path.join(".")).collect();
    for [said, other] in RIVALS {
        let says = |key: &str| names.iter().any(|name| name == key);
        // A place that says both contradicts itself, which the check names.
        if says(said) && !says(other) {
            take_out(table, other);
        }
    }
    for (name, setting) in names.into_iter().zip(layer) {
        if !set(table, &setting.path, setting.value) {
            problems.push(Mistake::new(name, "is within a key that is no table"));
        }
    }
}

fn take_out(table: &mut Table, path: &str) {
    if let Some((name, key)) = path.split_once('.')
        && let Some(inner) = table.get_mut(name).and_then(Value::as_table_mut)
    {
        inner.remove(key);
    }
}

/// `BELFRY__STORE__DIRECTORY` as a path: `store`, `directory`.
fn variable_path(name: &str) -> Vec<String> {
    let rest = name.strip_prefix(VARIABLE_PREFIX).unwrap_or_default();
    // Variables are written in capitals, and keys in small letters.
    rest.split("__").map(str::to_lowercase).collect()
}

fn literal(value: &str) -> Value {
    let line = format!("value = {value}");
    // A line end in the value could set further keys: then it is a text.
    let table = line.parse::<Table>().ok().filter(|table| table.len() == 1);
    table
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(value.to_owned()))
}

fn set(table: &mut Table, path: &[String], value: Value) -> bool {
    match path {
        [] => false,
        [key] => {
            table.insert(key.clone(), value);
            true
        }
        [key, rest @ ..] => {
            let inner = table.entry(key.clone()).or_insert_with(|| Value::Table(Table::new()));
            inner.as_table_mut().is_some_and(|inner| set(inner, rest, value))
        }
    }
}
