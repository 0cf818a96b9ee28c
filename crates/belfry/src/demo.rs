//! `belfry demo`: the main job from one end to the other, through a kill -9, counted at the provider.

mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bench::{Finished, Setup, Trial, Workload, WorkloadGuarantee};
use flow::Clock;
use indicatif::ProgressBar;

use crate::output;
use crate::progress::styled;
use report::DemoReport;

/// The arguments of the demo.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DemoArgs {
    /// Device tokens that the breaking news goes to
    #[arg(long, value_name = "COUNT", default_value = "1000000")]
    pub(crate) notifications: u64,

    /// An `index.json` of the npm package @octokit/webhooks-examples: each example becomes a webhook to an
    /// endpoint of its own
    #[arg(long, value_name = "FILE")]
    pub(crate) payloads: Option<PathBuf>,

    /// The guarantee across a crash: `at_least_once` or `at_most_once`
    #[arg(long, default_value = "at_least_once", value_parser = guarantee)]
    pub(crate) guarantee: WorkloadGuarantee,

    /// Fraction of the device tokens that are dead at the provider
    #[arg(long, value_name = "FRACTION", default_value = "0.001")]
    pub(crate) dead_tokens: f64,

    /// How long the provider takes for an answer
    #[arg(long, value_name = "DURATION", default_value = "0ms")]
    pub(crate) latency: String,

    /// Do not kill the engine halfway
    #[arg(long)]
    pub(crate) no_kill: bool,

    /// Where everything goes: empty, or a former demo's; removed at the end unless --keep
    #[arg(long, value_name = "DIRECTORY", default_value = ".demo")]
    pub(crate) directory: PathBuf,

    /// Keep the store, the logs and the provider's books
    #[arg(long)]
    pub(crate) keep: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The file by which a demo knows a directory that a demo made.
const MARKER: &str = ".belfry-demo";
/// A run that takes longer has failed.
const PATIENCE: Duration = Duration::from_mins(20);

/// Runs the demo. The exit code is 1 when a notification is lost or the account does not balance.
///
/// # Errors
/// When something could not be run at all.
pub(crate) fn run(options: &DemoArgs) -> Result<ExitCode> {
    let directory = fresh(&options.directory)?;
    let webhooks = match &options.payloads {
        Some(payloads) => Workload::webhooks_from(payloads)?,
        None => Vec::new(),
    };
    let workload = Workload { tokens: options.notifications, webhooks };
    let report = play(options, &directory, &workload)?;
    output::json_or(options.json, &report.to_json(), || report.to_text())?;
    // After a bad run the store and the provider's books are the evidence.
    if !options.keep && report.is_good() {
        std::fs::remove_dir_all(&directory)?;
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn play(options: &DemoArgs, directory: &Path, workload: &Workload) -> Result<DemoReport> {
    let clock = Clock::system();
    let stage = DemoProgress::new(options.json);
    stage.says("starting the provider and the engine");
    let mut trial = Trial::start(Setup {
        binary: std::env::current_exe().context("where this binary is")?,
        directory: directory.to_owned(),
        engine_settings: Vec::new(),
        simulator_flags: vec![
            "--dead-tokens".into(),
            options.dead_tokens.to_string(),
            "--latency".into(),
            options.latency.clone(),
        ],
    })?;
    let due_at = clock.wall();
    let (tokens, hooks) = (workload.tokens, workload.webhooks.len());
    stage
        .says(&format!("breaking news to {tokens} device tokens, one broadcast; {hooks} webhooks"));
    if hooks > 0 {
        trial.webhooks(workload)?;
    }
    trial.broadcast(0..tokens, r#"{"aps":{"alert":"Breaking: it works"}}"#, options.guarantee)?;
    let accepted_at = clock.wall();
    let expected = tokens + hooks as u64;
    let mut journal = trial.journal()?;
    let progress = stage.progress(expected);
    if !options.no_kill {
        trial.wait_for_lines(expected / 2, PATIENCE, |lines| progress.set_position(lines))?;
        let at = journal.lines()?;
        progress.suspend(|| {
            stage.says(&format!("kill -9 after {at} requests at the provider, and start again"));
        });
        trial.kill()?;
        trial.restart()?;
    }
    trial.drain(PATIENCE, || {
        progress.set_position(journal.lines()?);
        Ok(())
    })?;
    progress.finish_and_clear();
    let finished: Finished = trial.finish(workload)?;
    Ok(DemoReport::new(&finished, due_at, accepted_at))
}

/// The progress that is printed while the demo runs.
#[derive(Debug)]
struct DemoProgress {
    silent: bool,
}

// === impl DemoProgress ===

impl DemoProgress {
    fn new(silent: bool) -> Self {
        Self { silent }
    }

    #[expect(
        clippy::print_stderr,
        reason = "this is the command's output; standard output is for the result"
    )]
    fn says(&self, line: &str) {
        if !self.silent {
            eprintln!("{line}");
        }
    }

    fn progress(&self, expected: u64) -> ProgressBar {
        if self.silent {
            return ProgressBar::hidden();
        }
        let style = "{bar:40} {human_pos} of {human_len} at the provider, {per_sec}, {elapsed}";
        styled(ProgressBar::new(expected), style)
    }
}

/// Makes `directory` empty for this demo. What is in it is removed only if a demo made it: it could be an engine's data.
fn fresh(directory: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(directory)?;
    let directory = directory.canonicalize()?;
    let marker = directory.join(MARKER);
    if std::fs::read_dir(&directory)?.next().is_some() {
        anyhow::ensure!(
            marker.is_file(),
            "{} is not empty, and no demo made it ({MARKER} is missing): choose another --directory, or empty it first",
            directory.display()
        );
        std::fs::remove_dir_all(&directory)?;
        std::fs::create_dir(&directory)?;
    }
    // Before anything else, so that the next demo knows this one's directory wherever this one is cut off.
    std::fs::write(marker, "Made by `belfry demo`, which removes everything here.\n")?;
    Ok(directory)
}

fn guarantee(text: &str) -> Result<WorkloadGuarantee, String> {
    match text {
        "at_least_once" => Ok(WorkloadGuarantee::AtLeastOnce),
        "at_most_once" => Ok(WorkloadGuarantee::AtMostOnce),
        _ => Err("write `at_least_once` or `at_most_once`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_no_demo_made_is_refused_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join(crate::config::USUAL_FILE);
        std::fs::write(&config, "").unwrap();
        let error = fresh(directory.path()).unwrap_err().to_string();
        assert!(error.contains("no demo made it"), "{error}");
        assert!(config.is_file());
    }

    #[test]
    fn the_directory_of_a_former_demo_is_made_anew() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("demo");
        let left = directory.join("data");
        fresh(&directory).unwrap();
        std::fs::create_dir(&left).unwrap();
        fresh(&directory).unwrap();
        assert!(!left.exists());
        fresh(&directory).unwrap();
    }

    #[test]
    fn an_empty_directory_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        fresh(directory.path()).unwrap();
    }
}
