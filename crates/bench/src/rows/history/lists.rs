//! Lists on a store with a long history, by each filter but the times: of much, of little, and of one.

use anyhow::{Context as _, Result, ensure};
use flow::Clock;

use crate::caller::LoadCaller;
use crate::report::{Check, RowReport, percentile};
use crate::workload::token;

/// The tag of all broadcasts of the history.
pub(super) const BROAD_TAG: &str = "history";
/// The tag of the notifications that are sent one by one among them.
const RARE_TAG: &str = "single";
/// Of so many recipients of the history one is on the suppression list, and so ends badly.
const SUPPRESSED_EVERY: u64 = 100_000;
/// Milliseconds that 99 of 100 pages may take.
const PAGE_MAX: f64 = 50.0;

/// The history of which lists are asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListedHistory {
    /// Recipients of its broadcasts: the first so many tokens.
    pub(super) recipients: u64,
    /// Notifications that were sent one by one.
    pub(super) singles: u64,
    /// Pages that are asked for of each list.
    pub(super) pages: usize,
}

/// Has some of the recipients with numbers below `history` not be tried.
pub(super) fn suppress(caller: &mut LoadCaller, history: u64) -> Result<()> {
    let step = usize::try_from(SUPPRESSED_EVERY)?;
    let to: Vec<String> = (0..history).step_by(step).map(token).collect();
    let body = serde_json::json!({ "channel": "past", "to": to, "reason": "measured" });
    let (status, answer) = caller.request("", "POST /v1/suppressions", &body.to_string())?;
    ensure!(status == 200, "{status} {answer}");
    Ok(())
}

/// Sends a notification of its own, to be found by its key, its external id, or its tag.
pub(super) fn send_single(caller: &mut LoadCaller, number: u64, content: &str) -> Result<()> {
    let content: serde_json::Value = serde_json::from_str(content)?;
    let body = serde_json::json!({
        "channel": "past",
        "to": token(number),
        "content": content,
        "idempotency_key": label(number),
        "external_id": label(number),
        "tags": [RARE_TAG],
    });
    let (status, answer) = caller.request("", "POST /v1/notifications", &body.to_string())?;
    ensure!(status == 201, "{status} {answer}");
    Ok(())
}

fn label(number: u64) -> String {
    format!("single-{number}")
}

// === impl ListedHistory ===

impl ListedHistory {
    /// Asks for lists, and adds what 99 of 100 pages took.
    pub(super) fn measure(
        self,
        caller: &mut LoadCaller,
        name: &str,
        report: &mut RowReport,
    ) -> Result<()> {
        for (what, filters) in self.lists(caller)? {
            let times_ms = pages(caller, &filters)?;
            let found = percentile(&times_ms, 99);
            let what = format!("{name}: 99 of 100 pages of a list, {what}, ms");
            report.checks.push(Check::at_most(&what, found, PAGE_MAX));
        }
        Ok(())
    }

    /// Lists, each with the filters of its pages.
    fn lists(self, caller: &mut LoadCaller) -> Result<Vec<(&'static str, Vec<String>)>> {
        let of = |filter: &str| vec![format!("order=newest&{filter}"); self.pages];
        // Far apart, and each asked for once where there are as many.
        let each = |count: u64, filter: fn(u64) -> String| -> Result<Vec<String>> {
            let pages = u64::try_from(self.pages)?;
            let numbers = (0..pages).map(|page| page * count / pages);
            Ok(numbers.map(|number| format!("order=newest&{}", filter(number))).collect())
        };
        Ok(vec![
            ("the newest", of("")),
            ("what ended badly", of("state=suppressed")),
            ("a reason", of("reason=measured")),
            ("one recipient", each(self.recipients, |number| format!("to={}", token(number)))?),
            (
                "an external id",
                each(self.singles, |number| format!("external_id={}", label(number)))?,
            ),
            ("an idempotency key", each(self.singles, |number| format!("key={}", label(number)))?),
            ("a tag of few", of(&format!("tag={RARE_TAG}"))),
            ("a tag of all", of(&format!("tag={BROAD_TAG}"))),
            ("one broadcast", of(&format!("broadcast={}", broadcast_amid(caller)?))),
            (
                "a channel that is seldom used",
                vec!["order=oldest&channel=ios".to_owned(); self.pages],
            ),
        ])
    }
}

/// The identifier of a broadcast of the history, with as many behind it as before it.
fn broadcast_amid(caller: &mut LoadCaller) -> Result<String> {
    let line = "GET /v1/broadcasts?channel=past&limit=1000";
    let (status, answer) = caller.request("", line, "")?;
    ensure!(status == 200, "{status} {answer}");
    let answer: serde_json::Value = serde_json::from_str(&answer)?;
    let items = answer.get("items").and_then(|items| items.as_array()).context("no items")?;
    let amid = items.get(items.len() / 2).and_then(|broadcast| broadcast.get("id"));
    Ok(amid.and_then(|id| id.as_str()).context("no broadcast")?.to_owned())
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
