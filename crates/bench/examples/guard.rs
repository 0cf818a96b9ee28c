//! Compares two builds on rows of `belfry bench`, and names what moved by more than the noise: `guard OLD NEW [PAIRS=5] [ROW...]`.
//!
//! Both run the short size of each row in turn, the first of a pair changing, so that what disturbs the machine for a while disturbs
//! both. Of each setting, the ratio of the new build to the old one is taken by pairs, of its figure and of its processor time. It has
//! moved if the 95 % confidence interval of the ratio (Student) leaves out 1 and its mean is 3 % or more from 1. Prints each setting,
//! marks those that got worse, and fails when there are any. Of forty settings two are marked by chance: what is marked is run again.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use bench::report::{ConfidenceInterval, RowReport, Unit};

/// Rows that take a minute or so and say most about the engine.
const ROWS: [&str; 3] = ["partitions", "e2e", "channels"];
/// Has a point of `e2e` once more, beside another program.
const REPEATED: &str = "e2e-pushy";
/// A difference that is worth a look.
const WORTH: f64 = 0.03;

/// The ratios of one quantity of one setting, new to old, by pairs. Above 1 is better.
type Ratios = BTreeMap<(String, String, &'static str), Vec<f64>>;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: guard OLD NEW [PAIRS] [ROW...]";
    let mut binary = || Ok::<_, anyhow::Error>(PathBuf::from(arguments.next().context(usage)?));
    let (old, new) = (binary()?, binary()?);
    let pairs = arguments.next().map_or(Ok(5), |text| text.parse::<u32>()).context(usage)?;
    // Two ratios may be alike by chance, and then have an interval of nothing.
    ensure!(pairs >= 3, "three pairs at least");
    let mut rows: Vec<String> = arguments.collect();
    if rows.is_empty() {
        rows = ROWS.map(str::to_owned).to_vec();
    }
    let mut ratios = Ratios::new();
    for pair in 0..pairs {
        for row in &rows {
            let (one, other) = if pair % 2 == 0 { (&old, &new) } else { (&new, &old) };
            let (first, second) = (measure(one, row)?, measure(other, row)?);
            let (old, new) = if pair % 2 == 0 { (first, second) } else { (second, first) };
            note(&mut ratios, &old, &new);
        }
    }
    let worse = print(&ratios)?;
    if worse > 0 {
        bail!("{worse} got worse by more than the noise");
    }
    Ok(())
}

/// The reports of one short run.
fn measure(binary: &Path, row: &str) -> Result<Vec<RowReport>> {
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(binary);
    command.args(["bench", row, "--short", "--json", "--output"]).arg(directory.path());
    let output = command.output().with_context(|| binary.display().to_string())?;
    if !output.status.success() {
        bail!("{}: {}", binary.display(), String::from_utf8_lossy(&output.stderr));
    }
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| Ok(serde_json::from_slice(line)?)).collect()
}

fn note(ratios: &mut Ratios, old: &[RowReport], new: &[RowReport]) {
    let once = old.iter().filter(|old| old.row != REPEATED);
    for (old, new) in once.filter_map(|old| Some((old, of_row(new, &old.row)?))) {
        for point in old.points.iter().chain(&old.auto) {
            let mut others = new.points.iter().chain(&new.auto);
            let Some(other) = others.find(|other| other.setting == point.setting) else { continue };
            let mut push = |what, ratio| {
                let key = (old.row.clone(), point.setting.clone(), what);
                ratios.entry(key).or_default().push(ratio);
            };
            push("rate or time", old.unit.ratio(other.figure.value(), point.figure.value()));
            if let (Some(before), Some(after)) = (point.cpu_us_per_item, other.cpu_us_per_item) {
                push("processor time", Unit::Seconds.ratio(after, before));
            }
        }
    }
}

fn of_row<'a>(reports: &'a [RowReport], row: &str) -> Option<&'a RowReport> {
    reports.iter().find(|report| report.row == row)
}

/// Prints all of them; how many got worse.
fn print(ratios: &Ratios) -> Result<u32> {
    let mut out = std::io::stdout().lock();
    let mut worse = 0;
    for ((row, setting, what), ratios) in ratios {
        let interval = ConfidenceInterval::of(ratios);
        let is_worse = interval.leaves_out(1.0) && interval.mean <= 1.0 - WORTH;
        let is_better = interval.leaves_out(1.0) && interval.mean >= 1.0 + WORTH;
        worse += u32::from(is_worse);
        let word = match (is_worse, is_better) {
            (true, _) => "WORSE",
            (_, true) => "better",
            _ => "",
        };
        writeln!(out, "{word:6} {row}, {setting}, {what}: {interval} (above 1 is better)")?;
    }
    Ok(worse)
}
