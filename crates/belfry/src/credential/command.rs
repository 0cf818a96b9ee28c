//! `belfry credential`: makes master keys, seals secrets, and changes the key of what is sealed.

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use notification::Name;
use toml::Table;

use super::sealed::{self, Label, MasterKey, PREFIX, VARIABLE};
use super::settings;
use crate::config;
use crate::exit::{CliError, FailureKind, complain};
use crate::output;

/// The action on credentials.
#[derive(Debug, Subcommand)]
pub(crate) enum CredentialCommand {
    /// Make a master key, in a file that only its owner can read
    Key(KeyArgs),
    /// Seal the secret on standard input, and print the text that stands for it in a configuration. What an older version
    /// sealed for no setting may be given as it is
    Seal(SealArgs),
    /// Seal everything that is sealed in a file anew, with another master key
    Rotate(RotateArgs),
}

/// `belfry credential key`
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// The file, which must not exist
    file: PathBuf,
}

/// Where the master key is.
#[derive(Debug, Args)]
struct MasterKeyArgs {
    /// File with the master key [default: `BELFRY_MASTER_KEY`, else as configured]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// `belfry credential seal`
#[derive(Debug, Args)]
pub(crate) struct SealArgs {
    /// The credential it belongs to; it opens under no other
    name: Name,
    /// The setting that it is for, after its channel's kind or its table; it opens in no other
    #[arg(value_parser = settings::parser())]
    setting: String,
    #[command(flatten)]
    key: MasterKeyArgs,
}

/// `belfry credential rotate`
#[derive(Debug, Args)]
pub(crate) struct RotateArgs {
    /// The file: a configuration, or a sealed secret
    file: PathBuf,
    /// File with the master key from now on
    #[arg(long, value_name = "FILE")]
    new_key_file: PathBuf,
    #[command(flatten)]
    key: MasterKeyArgs,
}

/// Bytes of a secret at most: whatever is longer is a mistake.
const SECRET_BYTES: u64 = 64 * 1024;

/// Does what `command` says. `config` is the configuration's file, if one was named.
pub(crate) fn run(command: &CredentialCommand, config: Option<&Path>) -> anyhow::Result<()> {
    match command {
        CredentialCommand::Key(args) => make(&args.file),
        CredentialCommand::Seal(args) => seal(args, config),
        CredentialCommand::Rotate(args) => rotate(args, config),
    }
}

fn make(file: &Path) -> anyhow::Result<()> {
    let key = sealed::generate()?;
    // Created with its mode: there is no moment in which another user could open it.
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let written = created.and_then(|mut created| {
        created.write_all(format!("{key}\n").as_bytes())?;
        // What is sealed with a key that a power cut took away is lost.
        created.sync_all()
    });
    written.map_err(|error| {
        let advice = if error.kind() == io::ErrorKind::AlreadyExists {
            ": name another file, a master key is never overwritten"
        } else if error.kind() == io::ErrorKind::NotFound {
            ": make its directory first"
        } else {
            ""
        };
        let message = format!("cannot make {}: {error}{advice}", file.display());
        CliError::new(FailureKind::CannotCreate, message)
    })?;
    let file = file.display();
    output::line(format_args!("a master key is in {file}: keep a copy in a safe place"))
}

fn seal(args: &SealArgs, config: Option<&Path>) -> anyhow::Result<()> {
    let key = args.key.open(config)?;
    if io::stdin().is_terminal() {
        complain("the secret is read from this terminal, where it shows: end it with ctrl-d");
    }
    let refuse = |message: &str| CliError::new(FailureKind::BadInput, message);
    let mut secret = String::new();
    // One byte more than is allowed tells a secret that is too long.
    let read = io::stdin().take(SECRET_BYTES + 1).read_to_string(&mut secret);
    read.map_err(|error| {
        if error.kind() == io::ErrorKind::InvalidData {
            return refuse(
                "the secret on standard input is no text in UTF-8: seal its base64 or PEM form",
            );
        }
        refuse(&format!("the secret on standard input cannot be read: {error}"))
    })?;
    // A line's end is not part of what was typed; a key of several lines keeps them.
    let secret = match secret.strip_suffix('\n') {
        Some(line) if !line.contains('\n') => line.trim_end_matches('\r'),
        _ => &secret,
    };
    if secret.is_empty() {
        return Err(refuse("there is no secret on standard input").into());
    }
    if secret.len() as u64 > SECRET_BYTES {
        return Err(refuse("the secret on standard input has more than 64 KiB").into());
    }
    let opened = match key.open_v1(secret) {
        Some(Ok((name, opened))) if name == args.name => Some(opened),
        Some(Ok((name, _))) => {
            return Err(refuse(&format!(
                "the text on standard input was sealed as {:?}",
                name.as_str()
            ))
            .into());
        }
        Some(Err(error)) => {
            return Err(refuse(&format!("the text on standard input {error}")).into());
        }
        // Sealed twice, it would open to a sealed text, and that would be taken for the secret.
        None if sealed::is_sealed(secret) => {
            return Err(refuse("the text on standard input is sealed already").into());
        }
        None => None,
    };
    let setting = settings::known(&args.setting).context("the setting is not known")?;
    let label = Label { name: args.name.clone(), setting };
    output::line(key.seal(&label, opened.as_deref().unwrap_or(secret))?)
}

/// The file is replaced when everything in it is sealed anew, or not at all.
fn rotate(args: &RotateArgs, config: Option<&Path>) -> anyhow::Result<()> {
    let old = args.key.open(config)?;
    let new = read_key(&args.new_key_file)?;
    let cannot_read = || format!("cannot read {}", args.file.display());
    // A link stays one.
    let file = fs::canonicalize(&args.file).with_context(cannot_read)?;
    let text = fs::read_to_string(&file).with_context(cannot_read)?;
    let Resealed { text, anew, before } = reseal(&text, &old, &new)
        .map_err(|message| config_failure(format!("{}: {message}", args.file.display())))?;
    // Repeated after it was cut off, a rotation leaves alone what is done.
    if anew > 0 {
        replace(&file, &text)?;
    }
    let already = match before {
        0 => String::new(),
        _ => format!(", {before} were sealed with the new key before"),
    };
    output::line(format_args!("{anew} sealed anew in {}{already}", args.file.display()))?;
    output::line(format_args!(
        "once every file is: have the engine use {} (key_file in [credentials], or {VARIABLE}), and restart or reload it",
        args.new_key_file.display()
    ))
}

/// A text in which everything sealed is under the new key.
#[derive(Debug, PartialEq, Eq)]
struct Resealed {
    text: String,
    /// How many were under the old one.
    anew: usize,
    /// How many were under the new one already.
    before: usize,
}

/// `text` with every sealed text in it sealed under `new`; everything around them stays.
fn reseal(text: &str, old: &MasterKey, new: &MasterKey) -> Result<Resealed, String> {
    let mut resealed = Resealed { text: String::with_capacity(text.len()), anew: 0, before: 0 };
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(PREFIX) {
        resealed.text.push_str(before);
        // All that a name, a setting and base64url are made of, and the colons between them.
        let is_part =
            |character: char| character.is_ascii_alphanumeric() || "-_:.".contains(character);
        let end = after.find(|character| !is_part(character)).unwrap_or(after.len());
        let (data, behind) = after.split_at(end);
        rest = behind;
        let sealed = format!("{PREFIX}{data}");
        // A rotation over several files may have been cut off.
        if new.open_with_first(&sealed).is_ok() {
            resealed.text.push_str(&sealed);
            resealed.before += 1;
            continue;
        }
        let (label, secret) = old.open(&sealed).map_err(|error| {
            let line = text.len() - rest.len();
            let line = text.get(..line).unwrap_or_default().matches('\n').count() + 1;
            format!("line {line}: {error}")
        })?;
        let again = new.seal(&label, &secret).map_err(|error| error.to_string())?;
        resealed.text.push_str(&again);
        resealed.anew += 1;
    }
    resealed.text.push_str(rest);
    Ok(resealed)
}

/// Puts `text` in the place of what stands in `file`, whole or not at all; owner and mode stay.
fn replace(file: &Path, text: &str) -> Result<(), CliError> {
    // In the same directory: a rename does not cross file systems.
    let mut beside = file.to_path_buf().into_os_string();
    beside.push(".new");
    let fail = |message: String| {
        let message = format!("cannot replace {}: {message}", file.display());
        CliError::new(FailureKind::CannotCreate, message)
    };
    let before = fs::metadata(file).map_err(|error| fail(error.to_string()))?;
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside);
    let mut created = created.map_err(|error| {
        let advice = if error.kind() == io::ErrorKind::AlreadyExists {
            ": another rotation is under way, or one was cut off: remove it"
        } else {
            ""
        };
        fail(format!("{}: {error}{advice}", beside.display()))
    })?;
    let mut write = || -> io::Result<()> {
        // All before the rename: the file that takes the place has its owner, its mode and its whole content.
        fchown(&created, Some(before.uid()), Some(before.gid()))?;
        created.set_permissions(before.permissions())?;
        created.write_all(text.as_bytes())?;
        created.sync_all()?;
        fs::rename(&beside, file)?;
        match file.parent() {
            // A rename is durable when its directory is.
            Some(directory) => fs::File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(|error| {
        // Gone already when it took the file's place.
        fs::remove_file(&beside).ok();
        fail(error.to_string())
    })
}

/// Reads a master key, and warns when other users can.
fn read_key(file: &Path) -> Result<MasterKey, CliError> {
    if let Some(warning) = sealed::exposure(file) {
        complain(&warning);
    }
    MasterKey::read(file).map_err(config_failure)
}

// === impl MasterKeyArgs ===

impl MasterKeyArgs {
    fn open(&self, config: Option<&Path>) -> anyhow::Result<MasterKey> {
        if let Some(file) = &self.key_file {
            return Ok(read_key(file)?);
        }
        if let Some(key) = config::master_key() {
            let parsed = MasterKey::parse(key.expose(), VARIABLE);
            return Ok(parsed.map_err(|error| config_failure(format!("{VARIABLE}: {error}")))?);
        }
        let file = config::file_to_read(config);
        let text = file.map(fs::read_to_string).transpose().unwrap_or_default().unwrap_or_default();
        // Only the one setting is read: the rest may still have to be written.
        let table: Table = text.parse().unwrap_or_default();
        let named = table.get("credentials").and_then(|it| it.get("key_file"));
        match named.and_then(toml::Value::as_str) {
            Some(file) => Ok(read_key(Path::new(file))?),
            None => Err(config_failure(format!(
                "there is no master key: set {VARIABLE} in the environment, give --key-file, or set key_file in [credentials]"
            ))
            .into()),
        }
    }
}

fn config_failure(message: String) -> CliError {
    CliError::new(FailureKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_sealed_is_sealed_anew() {
        let key = || MasterKey::parse(&sealed::generate().unwrap(), "somewhere").unwrap();
        let (old, new) = (key(), key());
        let label = Label { name: "ios".parse().unwrap(), setting: "apns.key" };
        let seal = |secret| old.seal(&label, secret).unwrap();
        let text =
            format!("# a\nkey = \"{}\"\nlist = ['{}', \"open\"] # b\n", seal("one"), seal("two"));
        let resealed = reseal(&text, &old, &new).unwrap();
        assert_eq!((resealed.anew, resealed.before), (2, 0));
        let secrets: Vec<String> = resealed
            .text
            .split(['"', '\''])
            .filter(|part| sealed::is_sealed(part))
            .map(|part| new.open(part).unwrap().1)
            .collect();
        assert_eq!(secrets, ["one", "two"]);
        assert!(
            resealed.text.starts_with("# a\nkey = \"sealed:v2:ios:apns.key:")
                && resealed.text.ends_with(", \"open\"] # b\n")
        );
        let again = reseal(&resealed.text, &old, &new).unwrap();
        assert_eq!(again, Resealed { text: resealed.text, anew: 0, before: 2 });
        let wrong = reseal(&text, &key(), &new).unwrap_err();
        assert!(wrong.starts_with("line 2: cannot be opened"), "{wrong}");
        assert_eq!(reseal("nothing", &old, &new).unwrap().text, "nothing");
    }
}
