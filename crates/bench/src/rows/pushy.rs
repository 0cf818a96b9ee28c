//! `e2e-pushy`: the client for APNs that a team with a JVM would take, by itself.
//!
//! Pushy keeps nothing: a process that dies has lost what it had. It is Belfry's durable broadcast, without the store, the account, and
//! the limits. A program of one file (`pushy/Send.java`) sends the same content to the same device tokens; Maven gets Pushy.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::floor::{EndedProgram, run as run_program};
use super::{Bench, missing};
use crate::process::{SimulatorProcess, SimulatorReady};
use crate::rate::between;
use crate::report::{Point, RowReport, Unit, median};
use crate::tally::JournalBooks;
use crate::workload::{Workload, token};

/// The programs that it needs.
#[derive(Debug)]
struct Jvm {
    java: std::path::PathBuf,
    /// Where Pushy and what it needs are.
    class_path: String,
}

/// The figures of one run.
#[derive(Debug, Clone, Copy)]
struct PushyFigures {
    per_minute: f64,
    cpu_us: f64,
    lost: u64,
    duplicated: u64,
}

const NAME: &str = "Pushy 0.15.4";
const PROJECT: &str = include_str!("../../pushy/pom.xml");
const PROGRAM: &str = include_str!("../../pushy/Send.java");
/// Connections, for each of which the provider grants 1,000 streams; and what may be under way, all of them.
const CONNECTIONS: usize = 4;
const PLACES: usize = 4_000;

/// Pushy beside `belfry`, the point of `e2e` at the same latency.
pub(super) fn run(bench: &Bench, belfry: &Point) -> Result<RowReport> {
    let title =
        "APNs by Pushy on a JVM, which keeps nothing, beside the durable broadcast of Belfry";
    let mut report = bench.report("e2e-pushy", title, Unit::PerMinute);
    let (warm_up, tokens) = bench.size.pick((500_000, 1_500_000), (1_000_000, 4_000_000));
    report.configuration = vec![
        ("provider".into(), "APNs over TLS on the same cores, answers at once".into()),
        ("notifications".into(), format!("{tokens}, after {warm_up} that warm the JVM up")),
        ("Pushy".into(), format!("{CONNECTIONS} connections, {PLACES} under way, BoringSSL")),
    ];
    let directory = bench.directory()?;
    let jvm = match Jvm::find(directory.path()) {
        Ok(jvm) => jvm,
        Err(error) => {
            report.notes.push(missing(NAME, error)?);
            return Ok(report);
        }
    };
    let mut runs = Vec::new();
    for run in 1..=bench.repetitions {
        bench.say(format!("{NAME}: {tokens}, run {run}"));
        runs.push(jvm.measure(bench, warm_up..warm_up + tokens)?);
    }
    let of = |value: fn(&PushyFigures) -> f64| runs.iter().map(value).collect::<Vec<f64>>();
    report.points.push(Point {
        cpu_us_per_item: Some(median(&of(|run| run.cpu_us))),
        lost: runs.iter().map(|run| run.lost).sum(),
        duplicated: runs.iter().map(|run| run.duplicated).sum(),
        ..Point::of_runs(NAME, Unit::PerMinute, &of(|run| run.per_minute))
    });
    report.auto = Some(Point { setting: "Belfry, durable".into(), ..belfry.clone() });
    Ok(report)
}

// === impl Jvm ===

impl Jvm {
    /// Gets Pushy by Maven, into Maven's own store of what it has got.
    fn find(directory: &Path) -> Result<Self> {
        let find = |program| testbed::find_program(program, &[], &["/usr/bin", "/usr/local/bin"]);
        let (java, maven) = (find("java")?, find("mvn")?);
        std::fs::write(directory.join("pom.xml"), PROJECT)?;
        let listed = directory.join("class-path");
        let mut command = Command::new(maven);
        command.current_dir(directory).args(["-q", "-B", "dependency:build-classpath"]);
        command.arg(format!("-Dmdep.outputFile={}", listed.display()));
        run_program(command).context("Maven does not get Pushy")?;
        let class_path = std::fs::read_to_string(&listed).context("Maven names no class path")?;
        Ok(Self { java, class_path })
    }

    /// To the device tokens of `counted`, and to all below these first.
    fn measure(&self, bench: &Bench, counted: Range<u64>) -> Result<PushyFigures> {
        let directory = bench.directory()?;
        let file = |name: &str| directory.path().join(name);
        std::fs::write(file("Send.java"), PROGRAM)?;
        std::fs::write(file("key.p8"), rcgen::KeyPair::generate()?.serialize_pem())?;
        let mut tokens = BufWriter::new(File::create(file("tokens"))?);
        for number in 0..counted.end {
            writeln!(tokens, "{}", token(number))?;
        }
        tokens.flush()?;
        let simulator = SimulatorProcess::start(bench.binary(), directory.path(), &[])?;
        let SimulatorReady { apns, ca, journal, .. } = &simulator.ready;
        let (host, port) = apns.rsplit_once(':').context("an address has a port")?;
        let mut command = Command::new(&self.java);
        command.args(["-cp", self.class_path.trim()]).arg(file("Send.java")).args([host, port]);
        command.arg(ca).arg(file("key.p8")).arg(file("tokens"));
        command.args([counted.start.to_string(), CONNECTIONS.to_string(), PLACES.to_string()]);
        let EndedProgram { said, .. } = run_program(command)?;
        let cpu_us = said.trim().parse().with_context(|| format!("Pushy said {said:?}"))?;
        let workload = Workload { tokens: counted.end, webhooks: Vec::new() };
        let books = JournalBooks::read_settled(journal, &workload)?;
        let (all, tally) = (books.tally(), books.tally_of(counted));
        ensure!(!tally.accepted_at_us.is_empty(), "nothing arrived");
        Ok(PushyFigures {
            per_minute: 60.0 * between(&tally.accepted_at_us, 0.0, 1.0),
            cpu_us,
            lost: all.missing + all.refused,
            duplicated: all.duplicates,
        })
    }
}
