//! `stream`: from a queue to a stream, by blocking threads and by a relay.
//!
//! Messages wait in SQS (`ElasticMQ`) and go to Kinesis (moto). A pool of threads receives one, puts it, and deletes it, one blocking call
//! after the other; `belfry relay --direct` replaces it. Rates are counted at the queue. In a run of its own each empties the queue, and
//! its requests and what is in the stream are counted: by the number that each message has. The servers share the processors with those who
//! are compared, since there are no others.
//!
//! A managed service answers after a round trip, and what a blocking thread does is to wait for it. So each call takes 10 ms longer, for both
//! that are compared, by links between them and the servers. `stream-loopback` is without the links: a call takes there what
//! the servers need for it, and they are the bound of both.
//!
//! Twice the processors are nothing to a relay that waits for its servers. So it is also measured with a twentieth and with a tenth of the
//! time of one, of which it has too little then, as the published worker had before it got twice the CPU.
//!
//! `stream-copy` is of the full size: from one topic of Kafka to another, beside a loop that does nothing but copy.

mod copy;
mod counting;
mod delay;
mod measure;
mod pool;
mod process;
mod rig;

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{Bench, Size};
use crate::processor_share::ProcessorShare;
use crate::published::STREAM;
use crate::report::{Check, Point, RowReport, Unit, median};
use measure::{StreamCounted, StreamDistance, StreamMeasured, StreamSpan, StreamWay};

pub use copy::{KafkaRig, MESSAGES, copy_main};
pub use pool::pool_main;
pub use process::PinnedProcess;
pub use rig::{ArrivedRecords, StreamRig, from_url, to_url};

/// The baseline, and half its threads.
const POOLS: [StreamWay; 2] = [
    StreamWay::Pool { threads: BASELINE_THREADS },
    StreamWay::Pool { threads: BASELINE_THREADS / 2 },
];
/// The relay with less of a processor than it can use, and with twice as much.
const SHARES: [StreamWay; 2] =
    [StreamWay::RelayShare { percent: 5 }, StreamWay::RelayShare { percent: 10 }];
/// The relay on one processor, and on all.
const RELAYS: [StreamWay; 2] =
    [StreamWay::Relay { processors: 1 }, StreamWay::Relay { processors: measure::PROCESSORS }];
const BASELINE_THREADS: usize = 6;
/// Times the baseline.
const OUTRIGHT: f64 = 10.0;
/// Times the baseline with half of its threads, as published.
const HALF_THREADS: f64 = 1.2;
/// Times itself with twice the processor time, as published.
const TWICE_CPU: f64 = 2.1;

/// One of those that are compared, with all its runs.
#[derive(Debug)]
struct WayRuns {
    way: StreamWay,
    counted: StreamCounted,
    runs: Vec<StreamMeasured>,
}

pub(super) fn run(bench: &Bench) -> Result<Vec<RowReport>> {
    let rig = StreamRig::start().context(
        "ElasticMQ and moto are needed: scripts/fetch-aws-servers.sh puts them into the build folder that the binary is in",
    )?;
    let mut reports = Vec::new();
    let shares = ProcessorShare::probe().map(|()| SHARES.to_vec());
    for distance in [StreamDistance::Delayed, StreamDistance::None] {
        let span = StreamSpan {
            distance,
            span: Duration::from_secs(bench.size.pick(5, 10)),
            for_relay: bench.size.pick(100_000, 200_000),
            counted: bench.size.pick(1_000, 3_000),
        };
        let shares = match (&shares, distance) {
            (Ok(shares), StreamDistance::Delayed) => shares.as_slice(),
            (Err(_), _) | (_, StreamDistance::None) => &[],
        };
        let ways = [POOLS.as_slice(), shares, RELAYS.as_slice()].concat();
        let ways = all_runs(bench, &rig, span, &ways)?;
        reports.push(report(bench, &ways, span));
    }
    drop(rig);
    if let (Err(error), Some(report)) = (shares, reports.first_mut()) {
        report.notes.push(format!("the relay with a part of a processor is left out: {error:#}"));
    }
    if bench.size == Size::Full {
        add_copy(bench, &mut reports)?;
    }
    Ok(reports)
}

/// All of `compared` in turn, so that none has the better minutes.
fn all_runs(
    bench: &Bench,
    rig: &StreamRig,
    span: StreamSpan,
    compared: &[StreamWay],
) -> Result<Vec<WayRuns>> {
    let mut ways = Vec::new();
    for &way in compared {
        bench.say(format!("{}: counting the calls of {}", span.distance.row(), way.name()));
        let counted = way.count(rig, bench.binary(), span)?;
        ways.push(WayRuns { way, counted, runs: Vec::new() });
    }
    for run in 1..=bench.repetitions {
        for WayRuns { way, runs, .. } in &mut ways {
            let (row, name) = (span.distance.row(), way.name());
            bench.say(format!("{row}: {name}, {} s, run {run}", span.span.as_secs()));
            runs.push(way.measure(rig, bench.binary(), span)?);
        }
    }
    Ok(ways)
}

fn report(bench: &Bench, ways: &[WayRuns], span: StreamSpan) -> RowReport {
    let title = "From SQS to Kinesis: a pool of blocking threads, and the relay that replaces it";
    let mut report = match span.distance {
        StreamDistance::Delayed => bench.report_beside(span.distance.row(), title, &STREAM),
        StreamDistance::None => {
            let title = format!("{title}, without a round trip");
            bench.report(span.distance.row(), &title, Unit::PerMinute)
        }
    };
    report.configuration = vec![
        ("servers".into(), "ElasticMQ, in memory, and moto, on the same processors".into()),
        ("way to the servers".into(), span.distance.name()),
        ("messages".into(), "256 bytes".into()),
        ("length of a run".into(), format!("{} s", span.span.as_secs())),
        ("messages of a counted run of a relay".into(), span.counted.to_string()),
    ];
    report.points = ways.iter().map(WayRuns::point).collect();
    report.auto = report.points.pop();
    report.notes = ways.iter().map(WayRuns::note).collect();
    report.notes.push(
        "processor time and memory are those of the pool's own process, or of the relay's".into(),
    );
    if let ([six, _three, shares @ .., one, two], StreamDistance::Delayed) = (ways, span.distance) {
        report.checks = checks(six, one, two, shares);
        report.notes.push(one.share_note());
    }
    report
}

fn checks(baseline: &WayRuns, one: &WayRuns, two: &WayRuns, shares: &[WayRuns]) -> Vec<Check> {
    let times = |ours: &WayRuns, theirs: &WayRuns| ours.per_minute() / theirs.per_minute();
    let at_least = |what: String, found: f64, bound: f64| Check {
        what: format!("{what} moves at least {bound} times as many"),
        found: format!("{found:.1} times"),
        holds: found >= bound,
    };
    let name = baseline.way.name();
    let (outright, half) = (times(two, baseline), times(one, baseline));
    let threads = one.threads();
    let mut checks = vec![
        at_least(format!("the relay, beside {name},"), outright, OUTRIGHT),
        Check {
            found: format!("{half:.1} times with {threads} threads"),
            holds: half >= HALF_THREADS && threads <= BASELINE_THREADS as u64 / 2,
            ..at_least(
                format!("the relay on one processor, with no more than half of {name},"),
                half,
                HALF_THREADS,
            )
        },
    ];
    if let [less, twice] = shares {
        let what = format!("the {}, beside the {},", twice.way.name(), less.way.name());
        checks.push(at_least(what, times(twice, less), TWICE_CPU));
    }
    checks
}

/// The copy from Kafka to Kafka; without Kafka a note in its place.
fn add_copy(bench: &Bench, reports: &mut Vec<RowReport>) -> Result<()> {
    match KafkaRig::start() {
        Ok(rig) => reports.push(copy::report(bench, &rig)?),
        Err(error) => {
            let note = format!("stream-copy is left out: {error:#}");
            reports.iter_mut().take(1).for_each(|report| report.notes.push(note.clone()));
        }
    }
    Ok(())
}

// === impl WayRuns ===

impl WayRuns {
    fn of(&self, value: fn(&StreamMeasured) -> f64) -> Vec<f64> {
        self.runs.iter().map(value).collect()
    }

    fn per_minute(&self) -> f64 {
        median(&self.of(|run| run.per_minute))
    }

    fn threads(&self) -> u64 {
        self.runs.iter().map(|run| run.threads).max().unwrap_or(0)
    }

    fn point(&self) -> Point {
        Point {
            cpu_us_per_item: Some(median(&self.of(|run| run.cpu_us))),
            memory_bytes_max: self.runs.iter().map(|run| run.memory_bytes_max).max(),
            lost: self.counted.lost,
            duplicated: self.counted.duplicated,
            ..Point::of_runs(self.way.name(), Unit::PerMinute, &self.of(|run| run.per_minute))
        }
    }

    /// The part of a processor that it uses.
    fn share_note(&self) -> String {
        let cpu = median(&self.of(|run| run.cpu_us));
        let percent = 100.0 * self.per_minute() / 60.0 * cpu / 1e6;
        format!(
            "{} uses {percent:.0} % of it: the servers are the bound, and a second processor gives it nothing that it lacks",
            self.way.name()
        )
    }

    fn note(&self) -> String {
        let Self { way, counted, .. } = self;
        let (cpu, threads) = (median(&self.of(|run| run.cpu_us)), self.threads());
        format!(
            "{}: {:.3} calls and {cpu:.0} us of processor time for each message, {threads} threads",
            way.name(),
            counted.calls
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(way: StreamWay, per_minute: &[f64], threads: u64) -> WayRuns {
        let measured = |per_minute: &f64| StreamMeasured {
            per_minute: *per_minute,
            cpu_us: 1.0,
            memory_bytes_max: 1,
            threads,
        };
        let counted = StreamCounted { calls: 0.2, lost: 1, duplicated: 2 };
        WayRuns { way, counted, runs: per_minute.iter().map(measured).collect() }
    }

    fn held([one, two, twice]: [f64; 3], threads: u64) -> Vec<bool> {
        let baseline = runs(POOLS[0], &[900.0, 1000.0, 9000.0], 9);
        let shares = [runs(SHARES[0], &[1.0, 10.0, 11.0], 2), runs(SHARES[1], &[twice], 2)];
        let (one, two) = (runs(RELAYS[0], &[one], threads), runs(RELAYS[1], &[two], 3));
        checks(&baseline, &one, &two, &shares).iter().map(|check| check.holds).collect()
    }

    #[test]
    fn each_bound_is_of_medians() {
        assert_eq!(held([4_700.0, 10_000.0, 21.0], 3), [true, true, true]);
        assert_eq!(held([1_100.0, 9_900.0, 21.0], 3), [false, false, true]);
        assert_eq!(held([9_000.0, 10_000.0, 20.9], 3), [true, true, false]);
    }

    #[test]
    fn half_the_threads_are_counted() {
        assert_eq!(held([4_700.0, 10_000.0, 21.0], 4), [true, false, true]);
    }

    #[test]
    fn without_control_groups_twice_the_processor_time_is_no_check() {
        let [six, one, two] = [POOLS[0], RELAYS[0], RELAYS[1]].map(|way| runs(way, &[1.0], 2));
        assert_eq!(checks(&six, &one, &two, &[]).len(), 2);
    }

    #[test]
    fn a_point_has_what_the_counted_run_found() {
        let point = runs(POOLS[0], &[1.0, 3.0, 2.0], 9).point();
        assert_eq!(
            (point.setting.as_str(), point.lost, point.duplicated),
            ("6 blocking threads", 1, 2)
        );
        assert_eq!((point.figure.value(), point.spread), (2.0, (1.0, 3.0)));
    }
}
