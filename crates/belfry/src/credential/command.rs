//! `belfry credential`: makes master keys, seals secrets, and changes the key of what is sealed.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use notification::Name;
use toml::Table;

use super::sealed::{self, MasterKey, PREFIX};
use crate::config;
use crate::exit::{Failure, FailureKind};
use crate::output;

/// Where the master key may stand in the environment.
pub(crate) const VARIABLE: &str = "BELFRY_MASTER_KEY";

/// What to do with credentials.
#[derive(Debug, Subcommand)]
pub(crate) enum CredentialCommand {
    /// Make a master key, in a file that only its owner can read
    Key(KeyArgs),
    /// Seal the secret on standard input, and print the text that stands for it in a configuration
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
pub(crate) fn run(command: &CredentialCommand, config: Option<&Path>) -> anyhow::Result<ExitCode> {
    match command {
        CredentialCommand::Key(args) => make(&args.file),
        CredentialCommand::Seal(args) => seal(args, config),
        CredentialCommand::Rotate(args) => rotate(args, config),
    }
}

fn make(file: &Path) -> anyhow::Result<ExitCode> {
    let key = sealed::generate()?;
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let written = created.and_then(|mut created| {
        created.write_all(format!("{key}\n").as_bytes())?;
        created.sync_all()
    });
    written.map_err(|error| {
        let message = format!("cannot make {}: {error}", file.display());
        Failure::new(FailureKind::CannotCreate, message)
    })?;
    output::line(format_args!(
        "a master key is in {}: keep a copy in a safe place",
        file.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn seal(args: &SealArgs, config: Option<&Path>) -> anyhow::Result<ExitCode> {
    let key = args.key.open(config)?;
    let mut secret = String::new();
    let read = io::stdin().take(SECRET_BYTES + 1).read_to_string(&mut secret);
    read.context("the secret on standard input cannot be read")?;
    // A line's end is not part of what was typed; a key of several lines keeps them.
    let secret = match secret.strip_suffix('\n') {
        Some(line) if !line.contains('\n') => line.trim_end_matches('\r'),
        _ => &secret,
    };
    let refuse = |message: &str| Failure::new(FailureKind::BadInput, message);
    if secret.is_empty() {
        return Err(refuse("there is no secret on standard input").into());
    }
    if secret.len() as u64 > SECRET_BYTES {
        return Err(refuse("the secret on standard input has more than 64 KiB").into());
    }
    output::line(key.seal(&args.name, secret)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The file is replaced when everything in it is sealed anew, or not at all.
fn rotate(args: &RotateArgs, config: Option<&Path>) -> anyhow::Result<ExitCode> {
    let file = &args.file;
    let old = args.key.open(config)?;
    let new = MasterKey::read(&args.new_key_file).map_err(config_failure)?;
    let cannot_read = || format!("cannot read {}", file.display());
    let text = fs::read_to_string(file).with_context(cannot_read)?;
    let mode = fs::metadata(file).with_context(cannot_read)?.permissions().mode();
    let (text, count) = reseal(&text, &old, &new)
        .map_err(|message| config_failure(format!("{}: {message}", file.display())))?;
    let mut beside = file.clone().into_os_string();
    beside.push(".new");
    let write = || -> io::Result<()> {
        let mut created =
            OpenOptions::new().write(true).create_new(true).mode(mode & 0o777).open(&beside)?;
        created.write_all(text.as_bytes())?;
        created.sync_all()?;
        fs::rename(&beside, file)
    };
    write().map_err(|error| {
        let message = format!("cannot replace {}: {error}", file.display());
        Failure::new(FailureKind::CannotCreate, message)
    })?;
    output::line(format_args!("{count} sealed anew in {}", file.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The same text with every sealed one under another key; everything around them stays.
fn reseal(text: &str, old: &MasterKey, new: &MasterKey) -> Result<(String, usize), String> {
    let (mut resealed, mut count, mut rest) = (String::with_capacity(text.len()), 0, text);
    while let Some((before, after)) = rest.split_once(PREFIX) {
        resealed.push_str(before);
        let is_part =
            |character: char| character.is_ascii_alphanumeric() || "-_:".contains(character);
        let end = after.find(|character| !is_part(character)).unwrap_or(after.len());
        let (data, behind) = after.split_at(end);
        rest = behind;
        let (name, secret) =
            old.open(&format!("{PREFIX}{data}")).map_err(|error| error.to_string())?;
        resealed.push_str(&new.seal(&name, &secret).map_err(|error| error.to_string())?);
        count += 1;
    }
    resealed.push_str(rest);
    Ok((resealed, count))
}

// === impl MasterKeyArgs ===

impl MasterKeyArgs {
    fn open(&self, config: Option<&Path>) -> anyhow::Result<MasterKey> {
        if let Some(file) = &self.key_file {
            return Ok(MasterKey::read(file).map_err(config_failure)?);
        }
        if let Some(key) = config::master_key() {
            let parsed = MasterKey::parse(key.expose());
            return Ok(parsed.map_err(|error| config_failure(format!("{VARIABLE}: {error}")))?);
        }
        let usual = Path::new(config::USUAL_FILE);
        let file = config.or_else(|| usual.is_file().then_some(usual));
        let text = file.map(fs::read_to_string).transpose().unwrap_or_default().unwrap_or_default();
        // Only the one setting is read: the rest may still have to be written.
        let table: Table = text.parse().unwrap_or_default();
        let named = table.get("credentials").and_then(|it| it.get("key_file"));
        match named.and_then(toml::Value::as_str) {
            Some(file) => Ok(MasterKey::read(Path::new(file)).map_err(config_failure)?),
            None => Err(config_failure(format!(
                "there is no master key: set {VARIABLE} in the environment, give --key-file, or set key_file in [credentials]"
            ))
            .into()),
        }
    }
}

fn config_failure(message: String) -> Failure {
    Failure::new(FailureKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_sealed_is_sealed_anew() {
        let key = || MasterKey::parse(&sealed::generate().unwrap()).unwrap();
        let (old, new) = (key(), key());
        let seal = |secret| old.seal(&"ios".parse().unwrap(), secret).unwrap();
        let text =
            format!("# a\nkey = \"{}\"\nlist = ['{}', \"open\"] # b\n", seal("one"), seal("two"));
        let (resealed, count) = reseal(&text, &old, &new).unwrap();
        assert_eq!(count, 2);
        let (opened, _) = reseal(&resealed, &new, &old).unwrap();
        assert_eq!(opened.len(), text.len());
        let secrets: Vec<String> = resealed
            .split(['"', '\''])
            .filter(|part| sealed::is_sealed(part))
            .map(|part| new.open(part).unwrap().1)
            .collect();
        assert_eq!(secrets, ["one", "two"]);
        assert!(
            resealed.starts_with("# a\nkey = \"sealed:v1:ios:")
                && resealed.ends_with(", \"open\"] # b\n")
        );
        assert!(reseal(&text, &new, &old).is_err());
        assert!(
            reseal("nothing", &old, &new)
                .is_ok_and(|(text, count)| text == "nothing" && count == 0)
        );
    }
}
