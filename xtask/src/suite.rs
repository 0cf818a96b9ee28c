//! Runs the test programs of the workspace, several at a time.
//!
//! Most of them wait for servers and for processes that end, so several at a time take half as long as one after the other on two
//! cores. Those in which engines learn how much a provider takes come first: beside others they learn how busy the machine is. What a
//! program printed is shown when it ends, in one piece; a failure does not keep the others from running, and all failures are named at
//! the end.

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
/// Tests that count whole minutes, in which next to nothing is done, so that they do not disturb each other: programs, and the beginning
/// of their names.
const MINUTES: &[(&str, &str)] = &[("rates", ""), ("cluster", "quotas::")];
/// Programs that run by themselves.
const ALONE: &[&str] = &["cluster_kill"];

/// The parts of a run, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SuitePart {
    /// [`MINUTES`], all at a time.
    Minutes,
    /// [`ALONE`], one by one.
    Alone,
    /// The others, [`AT_ONCE`] at a time.
    Others,
}

/// A program with tests, or a part of these.
#[derive(Debug)]
struct Program {
    /// Its package, and its name in there.
    name: String,
    part: SuitePart,
    /// Place in its part; the least begins first.
    rank: usize,
    /// Selects its tests.
    arguments: Vec<&'static str>,
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
    let mut programs = build(root, &selection)?;
    let mut failed = Vec::new();
    for part in [SuitePart::Minutes, SuitePart::Alone, SuitePart::Others] {
        let of_part = programs.extract_if(.., |program| program.part == part).collect();
        failed.extend(run_all(of_part, part.at_once(), &mut std::io::stdout())?);
    }
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
        programs.extend(Program::all_of(
            folder.as_std_path(),
            &artifact.target.name,
            executable.as_std_path(),
        ));
    }
    ensure!(building.wait()?.success(), "the tests do not build");
    ensure!(!programs.is_empty(), "there are no tests");
    programs.sort_by_key(|program| (program.part, program.rank));
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

// === impl SuitePart ===

impl SuitePart {
    /// Programs of it that run at a time.
    const fn at_once(self) -> usize {
        match self {
            Self::Minutes => MINUTES.len(),
            Self::Alone => 1,
            Self::Others => AT_ONCE,
        }
    }
}

// === impl Program ===

impl Program {
    /// The program `target` of the package in `folder`, in two if a part of its tests counts minutes.
    fn all_of(folder: &Path, target: &str, executable: &Path) -> Vec<Self> {
        let program = |part, arguments: &[&'static str]| Self {
            name: format!("{} {target}", folder.file_name().unwrap_or_default().display()),
            part,
            rank: LONGEST.iter().position(|name| *name == target).unwrap_or(LONGEST.len()),
            arguments: arguments.to_vec(),
            folder: folder.to_owned(),
            executable: executable.to_owned(),
        };
        match MINUTES.iter().find(|(name, _)| *name == target) {
            Some((_, "")) => vec![program(SuitePart::Minutes, &[])],
            Some((_, tests)) => {
                vec![
                    program(SuitePart::Minutes, &[tests]),
                    program(SuitePart::Others, &["--skip", tests]),
                ]
            }
            None if ALONE.contains(&target) => vec![program(SuitePart::Alone, &[])],
            None => vec![program(SuitePart::Others, &[])],
        }
    }

    #[expect(clippy::disallowed_methods, reason = "how long a program took is only shown")]
    fn run(&self, limit: u64) -> anyhow::Result<ProgramRun> {
        let began = Instant::now();
        // `timeout` ends a process group of its own: the servers of a test with the test. An interrupt at the terminal does not reach
        // that group, so the kernel ends `timeout` with this process.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "timeout", "--kill-after=10"]);
        command.arg(limit.to_string()).arg(&self.executable).args(&self.arguments);
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

    fn program(name: &str, executable: &str) -> Program {
        let mut all = Program::all_of(Path::new("/"), name, Path::new(executable));
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    #[test]
    fn all_run_when_some_fail_and_those_are_named() {
        let program = |number: usize| {
            let executable = if number % 7 == 3 { "/bin/false" } else { "/bin/pwd" };
            program(&number.to_string(), executable)
        };
        let mut out = Vec::new();
        let mut failed = run_all((0..50).map(program).collect(), AT_ONCE, &mut out).unwrap();
        let number = |name: &str| name.trim().parse::<usize>().unwrap();
        failed.sort_by_key(|name| number(name));
        let failed: Vec<usize> = failed.iter().map(|name| number(name)).collect();
        assert_eq!(failed, [3, 10, 17, 24, 31, 38, 45]);
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.matches("FAILED after").count(), failed.len());
        assert_eq!(out.matches("(/bin/pwd) passed after 0 s\n/\n").count(), 50 - failed.len());
    }

    #[test]
    fn tests_that_count_minutes_run_apart_from_the_others_of_their_program() {
        let all = Program::all_of(Path::new("/"), "cluster", Path::new("/bin/echo"));
        let printed: Vec<_> = all.iter().map(|program| program.run(9).unwrap().printed).collect();
        assert_eq!(printed, [&b"quotas::\n"[..], b"--skip quotas::\n"]);
        assert_eq!(
            all.iter().map(|one| one.part).collect::<Vec<_>>(),
            [SuitePart::Minutes, SuitePart::Others]
        );
        assert_eq!(program("rates", "").part, SuitePart::Minutes);
        assert_eq!(program("cluster_kill", "").part, SuitePart::Alone);
        assert_eq!(program("store", "").part, SuitePart::Others);
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_with_its_children_and_has_failed() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("waits");
        std::fs::write(&script, "#!/bin/sh\necho waits\nsleep 1000 & wait\n").unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .unwrap();
        let run = program("waits", script.to_str().unwrap()).run(1).unwrap();
        assert_eq!((run.end, run.printed.as_slice()), (ProgramEnd::Overdue, &b"waits\n"[..]));
    }

    #[test]
    fn a_program_that_cannot_be_run_is_an_error() {
        let programs = vec![program("nowhere", "/nowhere")];
        let error = run_all(programs, AT_ONCE, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "cannot run /nowhere");
    }
}
