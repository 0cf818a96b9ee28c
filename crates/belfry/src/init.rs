//! `belfry init`: makes a configuration, an operator's key and a store, and says how to go on.
//!
//! It asks nothing and overwrites nothing. The configuration names its files by whole paths, so it holds wherever a command is run.

mod table;

use std::fmt::Write as _;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use api::KeyScope;
use clap::Args;

use crate::config::{Config, Flags, SYSTEM_FILE, USUAL_FILE};
use crate::exit::{CliError, FailureKind, complain};
use crate::output;
use table::FirstChannel;

/// `belfry init`
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Where to make it; the directory is made, too, if it is not there
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// The kind of the first channel, which is named so, too
    #[arg(long, value_name = "KIND", default_value = "dry-run")]
    channel: FirstChannel,
    /// Directory of the store; it may be there, if it is empty [default: `data` beside the configuration]
    #[arg(long, value_name = "DIRECTORY")]
    store: Option<PathBuf>,
}

/// The things that are made.
struct InitPlaces {
    directory: PathBuf,
    config: PathBuf,
    key: PathBuf,
    store: PathBuf,
}

/// The mode of what has a secret in it: for its owner alone.
const SECRET_MODE: u32 = 0o600;
/// The mode of a configuration without one.
const PLAIN_MODE: u32 = 0o644;
/// The mode of a configuration in a directory that hands its group on (setgid), as the Debian package makes it: of the group that the
/// engine runs as, which has to read it.
const GROUP_MODE: u32 = 0o640;
/// The bit of a directory that hands its group on.
const SETGID: u32 = 0o2000;
/// The mode of the store's directory: contents and recipients are in it.
const STORE_MODE: u32 = 0o700;

/// Makes everything, checks it, and prints how to go on.
pub(crate) fn run(args: &InitArgs) -> anyhow::Result<()> {
    let places = InitPlaces::new(&args.directory, args.store.as_deref())?;
    places.check_free(args.store.is_some())?;
    let key = api::generate()?;
    let config = config_text(args.channel, &api::hash(&key), &places.store)?;
    make_directory(&places.directory, 0o777)?;
    make_file(&places.key, SECRET_MODE, &format!("{key}\n"))?;
    make_directory(&places.store, STORE_MODE)?;
    let directory = std::fs::metadata(&places.directory)
        .map_err(|error| cannot_make(&places.directory, &error))?;
    let mode = match (directory.permissions().mode() & SETGID, args.channel.has_secret()) {
        (0, true) => SECRET_MODE,
        (0, false) => PLAIN_MODE,
        _ => GROUP_MODE,
    };
    make_file(&places.config, mode, &config)?;
    let checked = Config::load(Some(&places.config), Flags::default());
    let to_fill_in = args.channel.to_fill_in();
    match checked {
        Ok(config) => config.warnings.iter().for_each(|warning| complain(warning)),
        // Nothing is left to the user: what is wrong comes from the environment, and the engine would not start either.
        Err(error) if to_fill_in.is_empty() => return Err(error.into()),
        Err(error) => error.to_string().lines().for_each(complain),
    }
    output::print(&report(args.channel, &places, &args.directory))
}

fn config_text(channel: FirstChannel, hash: &str, store: &Path) -> anyhow::Result<String> {
    let scopes: Vec<String> =
        KeyScope::ALL.iter().map(|scope| format!("\"{}\"", scope.as_str())).collect();
    let store = store.to_str().ok_or_else(|| {
        let message = format!("{} is not UTF-8: name another directory", store.display());
        CliError::new(FailureKind::CannotCreate, message)
    })?;
    let (store, scopes) = (toml::Value::from(store), scopes.join(", "));
    let table = channel.table()?;
    Ok(format!(
        "# Made by `belfry init`. `belfry check-config --print-default` prints every setting, explained.\n\
         \n\
         [store]\n\
         directory = {store}\n\
         \n\
         # The operator's key, which is good for everything. Give callers others, that are good for less: `belfry keys add`.\n\
         [[server.keys]]\n\
         name = \"operator\"\n\
         tenant = \"default\"\n\
         sha256 = \"{hash}\"\n\
         scopes = [{scopes}]\n\
         \n\
         {table}"
    ))
}

/// Says what was made, what is to be filled in, and the commands to type next.
fn report(channel: FirstChannel, places: &InitPlaces, directory: &Path) -> String {
    let name = channel.name();
    let InitPlaces { config, key, store, .. } = places;
    let mut text = format!(
        "{}: the configuration, with the channel {name}\n{}: the operator's key\n{}: the store\n",
        config.display(),
        key.display(),
        store.display(),
    );
    if !channel.to_fill_in().is_empty() {
        let settings = channel.to_fill_in().join(", ");
        let _infallible = write!(
            text,
            "\nFill in before you start, in [channels.{name}]: {settings}. `belfry check-config` says what is missing.\n"
        );
    }
    // In the working directory the file is found without being named.
    let is_here = directory == Path::new(".");
    let is_system = config == Path::new(SYSTEM_FILE);
    let file = |path: &Path| {
        let name = Path::new(path.file_name().unwrap_or_default());
        quoted(if is_here { name } else { path })
    };
    let config =
        if is_here || is_system { String::new() } else { format!(" --config {}", file(config)) };
    let (key, to) = (file(key), channel.recipient());
    // Of the units of the Debian package.
    let serve = if is_system {
        "systemctl enable --now belfry".to_owned()
    } else {
        format!("belfry serve{config} &")
    };
    let _infallible = write!(
        text,
        "\nNext:\n  {serve}\n  belfry test{config} --api-key-file {key} {name} {to}\n  \
         belfry status{config} --api-key-file {key}\n"
    );
    text
}

/// `path` as a shell reads it as one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |character: char| character.is_alphanumeric() || "/._-+".contains(character);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// `path` from the root; a `.` in it leaves no trace.
fn whole(path: &Path) -> std::io::Result<PathBuf> {
    Ok(std::path::absolute(path)?.components().collect())
}

fn make_directory(path: &Path, mode: u32) -> Result<(), CliError> {
    let created = DirBuilder::new().recursive(true).mode(mode).create(path);
    created.map_err(|error| cannot_make(path, &error))
}

/// Makes a file that was not there a moment ago either.
fn make_file(path: &Path, mode: u32, text: &str) -> Result<(), CliError> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = opened.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| cannot_make(path, &error))
}

fn cannot_make(path: &Path, error: &std::io::Error) -> CliError {
    let message = format!("cannot make {}: {error}", path.display());
    CliError::new(FailureKind::CannotCreate, message)
}

// === impl InitPlaces ===

impl InitPlaces {
    fn new(directory: &Path, store: Option<&Path>) -> anyhow::Result<Self> {
        let directory = whole(directory)?;
        Ok(Self {
            config: directory.join(USUAL_FILE),
            key: directory.join("belfry.key"),
            store: store.map_or_else(|| Ok(directory.join("data")), whole)?,
            directory,
        })
    }

    /// Refuses to go on where something is there already; all of it is named. A store that `is_named` may be there as an empty directory,
    /// which a package has made for the engine's user.
    fn check_free(&self, is_named: bool) -> Result<(), CliError> {
        let is_empty = || std::fs::read_dir(&self.store).is_ok_and(|mut it| it.next().is_none());
        let is_usable = is_named && is_empty();
        let store = (!is_usable).then_some(&self.store);
        let places = [&self.config, &self.key].into_iter().chain(store);
        // A link that leads nowhere is something, too.
        let taken = places.filter(|path| path.symlink_metadata().is_ok());
        let taken: Vec<String> = taken.map(|path| path.display().to_string()).collect();
        if taken.is_empty() {
            return Ok(());
        }
        let message = format!(
            "nothing was made, for it is there already: {}; move it away, or name another directory",
            taken.join(", ")
        );
        Err(CliError::new(FailureKind::CannotCreate, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_for_a_shell() {
        assert_eq!(quoted(Path::new("/srv/bell-1/belfry.key")), "/srv/bell-1/belfry.key");
        assert_eq!(quoted(Path::new("/it's a/x")), r"'/it'\''s a/x'");
    }
}
