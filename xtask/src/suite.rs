//! Runs the test programs of the workspace, several at a time.
//!
//! Most of them wait for servers and for processes that end, so several at a time take half as long as one after the other on two
//! cores. Those in which engines learn how much a provider takes come first, one by one: beside others they learn how busy the machine
//! is. What a program printed is shown when it ends, in one piece; a failure does not keep the others from running, and all
//! failures are named at the end.

use std::collections::VecDeque;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use cargo_metadata::Message;

/// Programs that run at a time.
const AT_ONCE: usize = 2;
/// Seconds that a program may take, several times as long as the longest one does. A test that waits for ever, such as one whose
/// store waits for space on a full disk, fails by its name and does not keep the run from ending.
const LIMIT: u64 = 1200;
/// Exit codes of `timeout` (GNU coreutils) when it ended the program, and when the program could not be run.
const OVERDUE: i32 = 124;
const NOT_RUN: [i32; 2] = [126, 127];
/// Programs that take minutes. They begin first, so that none of them is left running alone at the end.
const LONGEST: &[&str] = &["store", "blame", "cluster", "postgres_conformance", "belfry"];
/// Programs that run by themselves, and how many of their tests at a time. Those of `rates` count whole minutes, in which next to nothing
/// is done.
const ALONE: &[(&str, usize)] = &[("cluster_kill", 1), ("rates", 2)];

/// A program with tests.
#[derive(Debug)]
struct Program {
    /// Its package, and its name in there.
    name: String,
    /// Place in the order; the least begins first.
    rank: usize,
    /// If nothing else is to run meanwhile: how many of its tests run at a time.
    alone: Option<usize>,
    folder: PathBuf,
    executable: PathBuf,
}

/// The end of a program that was run.
#[derive(Debug)]
struct ProgramRun {
    end: ProgramEnd,
    took: Duration,
    printed: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgramEnd {
    Passed,
    Failed,
    /// It was ended, with the servers that it had started, for it did not end within its limit.
    Overdue,
}

/// Builds and runs the tests of `packages`, of the whole workspace if there are none, and those in the documentation.
pub(crate) fn run(root: &Path, packages: &[String]) -> anyhow::Result<ExitCode> {
    let mut selection = Vec::new();
    for package in packages {
        selection.extend(["--package", package]);
    }
    if packages.is_empty() {
        selection.push("--workspace");
    }
    let programs = build(root, &selection)?;
    let (alone, others) = programs.into_iter().partition(|program| program.alone.is_some());
    let mut failed = run_all(alone, 1, &mut std::io::stdout())?;
    failed.extend(run_all(others, AT_ONCE, &mut std::io::stdout())?);
    let documentation = cargo(root, &["--doc"], &selection).status().context("cannot run cargo")?;
    if !documentation.success() {
        failed.push("the tests in the documentation".to_owned());
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(std::io::stderr(), "failed: {}", failed.join(", "))?;
    Ok(ExitCode::FAILURE)
}

/// `cargo test` with `options`, for the packages of `selection`.
fn cargo(root: &Path, options: &[&str], selection: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root).args(["test", "--locked"]).args(options).args(selection);
    command
}

/// Builds the programs; the longest first.
fn build(root: &Path, selection: &[&str]) -> anyhow::Result<Vec<Program>> {
    let options = ["--no-run", "--message-format=json-render-diagnostics"];
    let mut building = cargo(root, &options, selection);
    let mut building = building.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let messages = building.stdout.take().context("cargo has no output")?;
    let mut programs = Vec::new();
    for message in Message::parse_stream(std::io::BufReader::new(messages)) {
        let Message::CompilerArtifact(artifact) = message? else { continue };
        // Binaries and examples are built as well, and are no tests.
        let Some(executable) = artifact.executable.filter(|_| artifact.profile.test) else {
            continue;
        };
        let folder = artifact.manifest_path.parent().context("a package without a folder")?;
        let target = artifact.target.name;
        programs.push(Program {
            name: format!("{} {target}", folder.file_name().unwrap_or_default()),
            alone: ALONE.iter().find(|(name, _)| *name == target).map(|(_, tests)| *tests),
            rank: LONGEST.iter().position(|name| *name == target).unwrap_or(LONGEST.len()),
            folder: folder.into(),
            executable: executable.into(),
        });
    }
    ensure!(building.wait()?.success(), "the tests do not build");
    ensure!(!programs.is_empty(), "there are no tests");
    programs.sort_by_key(|program| program.rank);
    Ok(programs)
}

/// Runs `programs`, `at_once` of them at a time, writes what they print to `out`, and returns the names of those that failed.
fn run_all(
    programs: Vec<Program>,
    at_once: usize,
    out: &mut (impl Write + Send),
) -> anyhow::Result<Vec<String>> {
    let waiting = Mutex::new(VecDeque::from(programs));
    let ended = Mutex::new((out, Vec::new()));
    let work = || -> anyhow::Result<()> {
        loop {
            // A statement of its own: the lock is free again while the program runs.
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(program) = next else { return Ok(()) };
            let outcome = program.run(LIMIT)?;
            let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
            write!(ended.0, "\n     {program} {outcome}")?;
            ended.0.write_all(&outcome.printed)?;
            if outcome.end != ProgramEnd::Passed {
                ended.1.push(program.name);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    Ok(ended.into_inner().unwrap_or_else(PoisonError::into_inner).1)
}

// === impl Program ===

impl Program {
    #[expect(clippy::disallowed_methods, reason = "how long a program took is only shown")]
    fn run(&self, limit: u64) -> anyhow::Result<ProgramRun> {
        let began = Instant::now();
        // `timeout` ends a process group of its own: the servers of a test with the test. An interrupt at the terminal does not reach
        // that group, so the kernel ends `timeout` with this process.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "timeout", "--kill-after=10"]);
        command.arg(limit.to_string()).arg(&self.executable);
        if let Some(tests) = self.alone {
            command.arg(format!("--test-threads={tests}"));
        }
        // Cargo runs tests in the folder of their package, and tests read files from there.
        let output = command.current_dir(&self.folder).stdin(Stdio::null()).output();
        let output = output.context("cannot run setpriv, of util-linux")?;
        let end = match output.status.code() {
            Some(0) => ProgramEnd::Passed,
            Some(OVERDUE) => ProgramEnd::Overdue,
            Some(code) if NOT_RUN.contains(&code) => {
                bail!("cannot run {}", self.executable.display())
            }
            _ => ProgramEnd::Failed,
        };
        let printed = [output.stdout, output.stderr].concat();
        Ok(ProgramRun { end, took: began.elapsed(), printed })
    }
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.name, self.executable.display())
    }
}

// === impl ProgramRun ===

impl fmt::Display for ProgramRun {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.end {
            ProgramEnd::Passed => "passed",
            ProgramEnd::Failed => "FAILED",
            ProgramEnd::Overdue => "FAILED: it did not end and was ended",
        };
        writeln!(formatter, "{word} after {} s", self.took.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_run_when_some_fail_and_those_are_named() {
        let program = |number: usize| {
            let executable = if number % 7 == 3 { "/bin/false" } else { "/bin/pwd" };
            Program {
                name: number.to_string(),
                rank: 0,
                alone: None,
                folder: "/".into(),
                executable: executable.into(),
            }
        };
        let mut out = Vec::new();
        let mut failed = run_all((0..50).map(program).collect(), AT_ONCE, &mut out).unwrap();
        failed.sort_by_key(|name| name.parse::<usize>().unwrap());
        assert_eq!(failed, ["3", "10", "17", "24", "31", "38", "45"]);
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.matches("FAILED after").count(), failed.len());
        assert_eq!(out.matches("(/bin/pwd) passed after 0 s\n/\n").count(), 50 - failed.len());
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_with_its_children_and_has_failed() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("waits");
        std::fs::write(&script, "#!/bin/sh\necho waits\nsleep 1000 & wait\n").unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .unwrap();
        let program = Program {
            name: String::new(),
            rank: 0,
            alone: None,
            folder: "/".into(),
            executable: script,
        };
        let run = program.run(1).unwrap();
        assert_eq!((run.end, run.printed.as_slice()), (ProgramEnd::Overdue, &b"waits\n"[..]));
    }

    #[test]
    fn a_program_that_cannot_be_run_is_an_error() {
        let executable = PathBuf::from("/nowhere");
        let program =
            Program { name: String::new(), rank: 0, alone: None, folder: "/".into(), executable };
        let error = run_all(vec![program], AT_ONCE, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "cannot run /nowhere");
    }
}
