//! `e2e-pushy`: the client for APNs that a team with a JVM would take, by itself.
//!
//! Pushy keeps nothing: a process that dies has lost what it had. It is Belfry's durable broadcast, without the store, the account, and
//! the limits. A program of one file (`pushy/Send.java`) sends the same content to the same device tokens; Maven gets Pushy.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::Bench;
use super::floor::{EndedProgram, run as run_program};
use crate::process::{SimulatorProcess, SimulatorReady};
use crate::rate::between;
use crate::report::{Floor, Point, RowReport, Unit, median, number};
use crate::tally::JournalBooks;
use crate::workload::{Workload, token};

/// The programs that it needs.
#[derive(Debug)]
struct Jvm {
    java: PathBuf,
    /// Where Pushy and what it needs are.
    class_path: String,
}

/// The figures of one run.
#[derive(Debug, Clone, Copy)]
struct PushyFigures {
    per_minute: f64,
    cpu_us: f64,
}

const NAME: &str = "Pushy 0.15.4";
const PROJECT: &str = include_str!("../../pushy/pom.xml");
const PROGRAM: &str = include_str!("../../pushy/Send.java");
/// Connections, for each of which the provider grants 1,000 streams; and what may be under way, all of them.
const CONNECTIONS: usize = 4;
const PLACES: usize = 4_000;

/// `belfry`, the point of `e2e` with a provider that answers at once, and Pushy as its floor. Where Pushy is not to be had, or does not
/// send all, it is left out: nothing of that is Belfry's.
///
/// # Errors
/// When there is no room for what it writes.
pub(super) fn run(bench: &Bench, belfry: &Point) -> Result<RowReport> {
    let title = "Durable APNs beside Pushy on a JVM, which keeps nothing";
    let mut report = bench.report("e2e-pushy", title, Unit::PerMinute);
    let (warm_up, tokens) = bench.size.pick((500_000, 1_500_000), (1_000_000, 4_000_000));
    report.configuration = vec![
        ("provider".into(), "APNs over TLS on the same cores, answers at once".into()),
        ("to Pushy".into(), format!("{tokens}, after {warm_up} that warm the JVM up")),
        ("Pushy".into(), format!("{CONNECTIONS} connections, {PLACES} under way, BoringSSL")),
    ];
    let directory = bench.directory()?;
    match runs(bench, directory.path(), warm_up..warm_up + tokens) {
        Ok(runs) => {
            let of = |value: fn(&PushyFigures) -> f64| runs.iter().map(value).collect::<Vec<f64>>();
            report.floor = Some(Floor {
                tool: NAME.to_owned(),
                per_minute: Some(median(&of(|run| run.per_minute))),
                cpu_us_per_item: Some(median(&of(|run| run.cpu_us))),
            });
        }
        Err(error) => {
            let reason = format!("{error:#}");
            let reason = reason.lines().next().unwrap_or_default();
            report.notes.push(format!("{NAME} is left out: {reason}"));
        }
    }
    report.points.push(Point { setting: "Belfry".into(), ..belfry.clone() });
    report.notes.extend(belfry.per_minute_from_request.map(|rate| {
        format!("both rates are from the first arrival on; Belfry's is {} from the request on, when it has nothing of the broadcast yet", number(rate))
    }));
    Ok(report)
}

fn runs(bench: &Bench, directory: &Path, counted: Range<u64>) -> Result<Vec<PushyFigures>> {
    let jvm = Jvm::find(directory)?;
    let run = |run| {
        bench.say(format!("{NAME}: {}, run {run}", counted.end - counted.start));
        jvm.measure(bench, counted.clone())
    };
    (1..=bench.repetitions).map(run).collect()
}

// === impl Jvm ===

impl Jvm {
    /// Gets Pushy by Maven, into Maven's own store of what it has got.
    fn find(directory: &Path) -> Result<Self> {
        let find = |program| {
            let places = ["/usr/bin", "/usr/local/bin", "/usr/lib/jvm/*/bin"];
            testbed::find_program(program, &[], &places)
        };
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
        let missing = all.missing + all.refused;
        ensure!(missing == 0, "{missing} device tokens got nothing by it");
        Ok(PushyFigures { per_minute: 60.0 * between(&tally.accepted_at_us, 0.0, 1.0), cpu_us })
    }
}
