//! Lists on a store with a long history: what ended badly, what one recipient got, and what a channel has that is seldom used.

use anyhow::{Context as _, Result, ensure};
use flow::Clock;

use crate::caller::LoadCaller;
use crate::report::{Check, RowReport, percentile};
use crate::workload::token;

/// Of so many recipients of the history one is on the suppression list, and so ends badly.
const SUPPRESSED_EVERY: u64 = 100_000;
/// Pages that are asked for of each list.
const PAGES: usize = 300;
/// Milliseconds that 99 of 100 pages may take.
const PAGE_MAX: f64 = 50.0;

/// Has some of the recipients with numbers below `history` not be tried.
pub(super) fn suppress(caller: &mut LoadCaller, history: u64) -> Result<()> {
    let step = usize::try_from(SUPPRESSED_EVERY)?;
    let to: Vec<String> = (0..history).step_by(step).map(token).collect();
    let body = serde_json::json!({ "channel": "past", "to": to, "reason": "measured" });
    let (status, answer) = caller.request("", "POST /v1/suppressions", &body.to_string())?;
    ensure!(status == 200, "{status} {answer}");
    Ok(())
}

/// Asks for lists, and adds what 99 of 100 pages took.
pub(super) fn measure(
    caller: &mut LoadCaller,
    history: u64,
    name: &str,
    report: &mut RowReport,
) -> Result<()> {
    // Far apart, and each asked for once.
    let recipients = (0..history).step_by(usize::try_from(history)?.div_ceil(PAGES));
    let recipients = recipients.map(|number| format!("order=newest&to={}", token(number)));
    let of = |filter: &str| vec![filter.to_owned(); PAGES];
    let lists: [(&str, Vec<String>); 3] = [
        ("what ended badly", of("order=newest&state=suppressed")),
        ("one recipient", recipients.collect()),
        ("a channel that is seldom used", of("order=oldest&channel=ios")),
    ];
    for (what, filters) in lists {
        let times_ms = pages(caller, &filters)?;
        let found = percentile(&times_ms, 99);
        let what = format!("{name}: 99 of 100 pages of a list, {what}, ms");
        report.checks.push(Check::at_most(&what, found, PAGE_MAX));
    }
    Ok(())
}

/// How long pages of 100 took, milliseconds: one for each filter, that goes on where the page before it ended if it had
/// the same filter, and from the start behind its end.
fn pages(caller: &mut LoadCaller, filters: &[String]) -> Result<Vec<f64>> {
    let clock = Clock::system();
    let (mut times_ms, mut items) = (Vec::new(), 0);
    let mut last: Option<(&String, String)> = None;
    for filter in filters {
        let after = last.as_ref().filter(|(before, _)| *before == filter);
        let after = after.map_or_else(String::new, |(_, next)| format!("&after={next}"));
        let line = format!("GET /v1/notifications?{filter}&limit=100{after}");
        let from = clock.monotonic();
        let (status, answer) = caller.request("", &line, "")?;
        times_ms.push(clock.monotonic().duration_since(from).as_secs_f64() * 1e3);
        ensure!(status == 200, "{status} {answer}");
        let answer: serde_json::Value = serde_json::from_str(&answer)?;
        items += answer.get("items").and_then(|it| it.as_array()).context("no items")?.len();
        let next = answer.get("next").and_then(|next| next.as_str());
        last = next.map(|next| (filter, next.to_owned()));
    }
    ensure!(items > 0, "the list {filters:?} is empty");
    Ok(times_ms)
}
