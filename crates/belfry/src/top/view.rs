//! The picture of an engine: what is wrong, rates, the account, workers, lanes.

use std::cmp::Reverse;

use api::{LaneAnswer, StatusAnswer, WorkerAnswer};
use notification::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table, Wrap};

use super::findings::{TopFinding, findings, is_closed};
use super::history::{StatusHistory, TopRates};
use crate::output;

/// Lanes by which a page goes on.
pub(super) const PAGE: usize = 10;
/// Rows of the sparkline.
const GRAPH_ROWS: u16 = 4;
/// Findings that are shown; of further ones the number.
const FINDINGS: usize = 6;
const WORKERS: usize = 8;
const KEYS: &str = "q quit   w under way   l latency   d due first   t trouble only   ↑↓ lanes";

const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const MILD: Style = Style::new().fg(Color::Yellow);
const GOOD: Style = Style::new().fg(Color::Green);
const HEAD: Style = Style::new().add_modifier(Modifier::DIM);

/// The choices of lanes that keys make.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct View {
    pub(super) order: ViewOrder,
    /// True to show lanes that are closed, paused or parked alone.
    pub(super) only_trouble: bool,
    /// Lanes that have been scrolled past.
    pub(super) skipped: usize,
}

/// The order of lanes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ViewOrder {
    /// Most under way first.
    #[default]
    UnderWay,
    /// Slowest first.
    Latency,
    /// Longest due first.
    Due,
}

// === impl View ===

impl View {
    /// Draws the last answer of `history` as of `now`.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, history: &StatusHistory, now: Timestamp) {
        let Some(status) = &history.status else { return };
        let found = findings(status, now);
        let told = found_lines(&found);
        let workers = status.cluster.as_ref().map_or(0, |it| it.workers.len().min(WORKERS) + 2);
        let [head, wrong, rates, graph, account, workers, lanes, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(rows(told.len()) + 1),
            Constraint::Length(1),
            Constraint::Length(GRAPH_ROWS),
            Constraint::Length(4),
            Constraint::Length(rows(workers)),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(head_line(status, history)), head);
        frame.render_widget(Paragraph::new(told), wrong);
        frame.render_widget(Paragraph::new(rates_line(history.rates())), rates);
        let points = history.delivered(usize::from(graph.width));
        frame.render_widget(Sparkline::default().data(points).style(GOOD), graph);
        let standing = Paragraph::new(account_lines(status)).wrap(Wrap { trim: true });
        frame.render_widget(standing, account);
        draw_workers(frame, workers, status);
        self.draw_lanes(frame, lanes, status, now);
        frame.render_widget(Paragraph::new(Span::styled(KEYS, HEAD)), keys);
    }

    fn draw_lanes(
        &mut self,
        frame: &mut Frame<'_>,
        area: Rect,
        status: &StatusAnswer,
        now: Timestamp,
    ) {
        let shown = self.lanes(status, now);
        // One cannot scroll past the last.
        self.skipped = self.skipped.min(shown.len().saturating_sub(1));
        let heads =
            ["lane", "destination", "priority", "tenant", "way", "limit", "latency", "state"];
        let widths = [
            Constraint::Max(16),
            Constraint::Fill(2),
            Constraint::Length(8),
            Constraint::Max(16),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Length(10),
            Constraint::Fill(3),
        ];
        let lanes = shown.iter().skip(self.skipped).map(|lane| lane_row(lane, now));
        let table = Table::new(lanes, widths).header(Row::new(heads).style(HEAD));
        frame.render_widget(table, area);
    }

    /// The lanes that are shown, in order.
    fn lanes<'a>(&self, status: &'a StatusAnswer, now: Timestamp) -> Vec<&'a LaneAnswer> {
        let is_trouble = |lane: &&LaneAnswer| lane.parked || lane.paused || is_closed(lane, now);
        let all = status.lanes.iter();
        let mut lanes: Vec<&LaneAnswer> =
            if self.only_trouble { all.filter(is_trouble).collect() } else { all.collect() };
        match self.order {
            ViewOrder::UnderWay => lanes.sort_by_key(|lane| Reverse(lane.claimed)),
            ViewOrder::Latency => {
                let latency = |lane: &LaneAnswer| lane.latency_ms.unwrap_or(-1.0);
                lanes.sort_by(|one, other| latency(other).total_cmp(&latency(one)));
            }
            // Instants are texts of one length; those without one come last.
            ViewOrder::Due => {
                lanes.sort_by_key(|lane| (lane.next_due_at.is_none(), lane.next_due_at.clone()));
            }
        }
        lanes
    }
}

fn rows(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

fn head_line(status: &StatusAnswer, history: &StatusHistory) -> Line<'static> {
    let since = status.started_at.clone().unwrap_or_default();
    let mut spans = vec![
        Span::styled(format!("belfry {}", status.version), Modifier::BOLD),
        Span::raw(format!("   running since {since}")),
    ];
    if let Some(space) = &status.space {
        let left = space.left_bytes.map(|left| format!(", {} left", output::bytes(left)));
        let used = output::bytes(space.used_bytes);
        spans.push(Span::raw(format!("   disk {used}{}", left.unwrap_or_default())));
    }
    if let Some(silence) = &history.silence {
        // First, so that it is seen in a narrow terminal too.
        let told = format!("NO ANSWER, this is the last one: {}   ", output::plain(silence));
        spans.insert(0, Span::styled(told, BAD));
    }
    Line::from(spans)
}

fn found_lines(found: &[TopFinding]) -> Vec<Line<'static>> {
    if found.is_empty() {
        return vec![Line::styled("nothing is wrong", GOOD)];
    }
    let line = |finding: &TopFinding| {
        let (mark, style) = if finding.is_bad { ("! ", BAD) } else { ("- ", MILD) };
        Line::styled(format!("{mark}{}", finding.text), style)
    };
    let mut lines: Vec<_> = found.iter().take(FINDINGS).map(line).collect();
    let more = found.len().saturating_sub(FINDINGS);
    if more > 0 {
        lines.push(Line::styled(format!("  and {more} more: belfry status"), MILD));
    }
    lines
}

fn rates_line(rates: Option<TopRates>) -> Line<'static> {
    let Some(TopRates { accepted, delivered, otherwise }) = rates else {
        return Line::styled("rates: in a second", HEAD);
    };
    Line::from(vec![
        Span::raw(format!("accepted {accepted:.0}/s   ")),
        Span::styled(format!("delivered {delivered:.0}/s"), GOOD),
        Span::styled(
            format!("   ended otherwise {otherwise:.0}/s"),
            if otherwise > 0.0 { MILD } else { Style::new() },
        ),
    ])
}

fn account_lines(status: &StatusAnswer) -> Vec<Line<'static>> {
    let standing = status.totals.standing();
    let counts = standing.map(|(state, count)| format!("{} {count}", state.replace('_', " ")));
    let all = counts.into_iter().collect::<Vec<_>>().join("   ");
    let lag = format!("the one that waits longest has been due for {:.1} s", status.lag_seconds);
    vec![Line::raw(format!("accepted {}   {all}", status.totals.accepted)), Line::raw(lag)]
}

fn draw_workers(frame: &mut Frame<'_>, area: Rect, status: &StatusAnswer) {
    let Some(cluster) = &status.cluster else { return };
    let heads = ["worker", "role", "state", "partitions", "way", "per s"];
    let widths = [
        Constraint::Fill(2),
        Constraint::Length(8),
        Constraint::Length(12),
        Constraint::Length(10),
        Constraint::Length(8),
        Constraint::Length(9),
    ];
    let workers = cluster.workers.iter().take(WORKERS).map(worker_row);
    frame.render_widget(Table::new(workers, widths).header(Row::new(heads).style(HEAD)), area);
}

fn worker_row(worker: &WorkerAnswer) -> Row<'static> {
    let (state, style) = match worker {
        _ if worker.alive_for_seconds <= 0.0 => ("gone", BAD),
        _ if worker.standing_by => ("standing by", MILD),
        _ => ("alive", Style::new()),
    };
    Row::new([
        Cell::from(worker.name.clone()),
        Cell::from(worker.role.clone()),
        Cell::from(Span::styled(state, style)),
        Cell::from(worker.partitions.to_string()),
        Cell::from(worker.claimed.to_string()),
        Cell::from(format!("{:.0}", worker.settled_per_second)),
    ])
}

fn lane_row(lane: &LaneAnswer, now: Timestamp) -> Row<'static> {
    let number = |number: Option<usize>| number.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let latency = lane.latency_ms.map_or_else(|| "-".to_owned(), |it| format!("{it:.1} ms"));
    let until = lane.closed_until.as_deref().unwrap_or("-");
    let (state, style) = match lane {
        _ if is_closed(lane, now) => (format!("closed until {until}"), BAD),
        _ if lane.parked => ("parked: no such channel".to_owned(), BAD),
        _ if lane.paused => ("paused".to_owned(), MILD),
        _ => (lane.rate_per_minute.map_or_else(String::new, |it| format!("{it}/min")), HEAD),
    };
    Row::new([
        Cell::from(lane.channel.clone()),
        Cell::from(lane.destination.clone()),
        Cell::from(lane.priority.clone()),
        Cell::from(lane.tenant.clone()),
        Cell::from(lane.claimed.to_string()),
        Cell::from(number(lane.limit)),
        Cell::from(latency),
        Cell::from(Span::styled(state, style)),
    ])
}

#[cfg(test)]
pub(super) mod tests;
