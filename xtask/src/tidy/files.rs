//! The bounds of a file.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::words;

/// One text file of the tree.
#[derive(Debug, Clone)]
pub(crate) struct SourceFile {
    /// From the root, with `/`.
    pub(crate) path: String,
    /// Its text.
    pub(crate) text: String,
}

/// Longer files are split. There is no list of exceptions.
const LINES_MAX: usize = 500;

/// Left-over work. Written in two parts, so that this file passes.
const LEFTOVERS: &[&str] =
    &[concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X:"), concat!("todo", "!(")];

/// Paths that exist on one machine only.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

const TEXT_EXTENSIONS: &[&str] =
    &["rs", "toml", "md", "sh", "yml", "yaml", "sql", "ts", "js", "svelte", "css", "html"];
const TEXT_NAMES: &[&str] = &["Makefile", "Dockerfile"];
/// Directories of third-party or generated files.
const FOREIGN: &[&str] = &["target", "node_modules", "dist", "data"];

/// Every text file under `root` that is ours.
pub(crate) fn read(root: &Path) -> anyhow::Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory)
            .with_context(|| format!("cannot read {}", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() && !FOREIGN.contains(&&*name) && !is_hidden(&name) {
                directories.push(path);
            } else if path.is_file() && is_text(&path, &name) {
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                let path = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                files.push(SourceFile { path, text });
            }
        }
    }
    Ok(files)
}

/// One line for each rule that `file` breaks.
pub(crate) fn check(file: &SourceFile) -> Vec<String> {
    let mut offences = Vec::new();
    leftovers(file, &mut offences);
    if Path::new(&file.path).extension().is_some_and(|extension| extension == "rs") {
        length(file, &mut offences);
        module_doc(file, &mut offences);
        words::check(&file.text, &mut offences);
    }
    let path = &file.path;
    offences.into_iter().map(|offence| format!("{path}: {offence}")).collect()
}

fn leftovers(file: &SourceFile, offences: &mut Vec<String>) {
    for (i, line) in file.text.lines().enumerate() {
        for word in LEFTOVERS.iter().filter(|word| line.contains(**word)) {
            offences
                .push(format!("line {} holds {word}: do it, or write it down as an issue", i + 1));
        }
        for path in MACHINE_PATHS.iter().filter(|path| line.contains(**path)) {
            offences.push(format!("line {} holds {path}, which exists on one machine only", i + 1));
        }
    }
}

fn length(file: &SourceFile, offences: &mut Vec<String>) {
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        offences.push(format!("{lines} lines, at most {LINES_MAX} are allowed: split it"));
    }
}

fn module_doc(file: &SourceFile, offences: &mut Vec<String>) {
    if !file.text.starts_with("//! ") {
        offences.push("must begin with a module doc (`//!`)".to_owned());
    }
}

fn is_text(path: &Path, name: &str) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    TEXT_NAMES.contains(&name) || TEXT_EXTENSIONS.contains(&&*extension)
}

/// Of the hidden directories only those of the build are ours.
fn is_hidden(name: &str) -> bool {
    name.starts_with('.') && ![".ci", ".cargo"].contains(&name)
}
