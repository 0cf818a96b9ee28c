//! Pictures of an engine, drawn into memory.

use std::time::Duration;

use flow::Clock;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use serde_json::{Value, json};

use super::*;

pub(crate) const NOW: &str = "2026-11-21T08:30:00.000Z";

fn answer(more: &Value) -> StatusAnswer {
    let mut status = json!({
        "version": "0.1.0", "started_at": "2026-11-21T06:00:00.000Z",
        "totals": {"accepted": 500, "delivered": 420, "refused": 10, "expired": 0, "cancelled": 0, "suppressed": 0,
            "in_doubt": 0, "dead": 0, "pending": 70},
        "oldest_due_at": null, "lag_seconds": 0.0, "suppression_feed": null, "cluster": null,
        "lanes": [
            {"channel": "ios", "destination": "api.push.apple.com", "priority": "normal", "tenant": "shop", "claimed": 40,
                "next_due_at": null, "limit": 900, "latency_ms": 82.34},
            {"channel": "hooks", "destination": "slow.example", "priority": "bulk", "tenant": "news", "claimed": 3,
                "next_due_at": "2026-11-21T08:29:00.000Z", "limit": 4, "latency_ms": 900.0, "rate_per_minute": 60},
        ],
    });
    status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(status).unwrap()
}

/// An engine that works.
pub(crate) fn status() -> StatusAnswer {
    answer(&json!({}))
}

/// An engine with which everything is wrong.
pub(crate) fn troubled() -> StatusAnswer {
    let worker = |name: &str, alive_for: f64| {
        json!({"id": 1, "name": name, "role": "serve", "version": "0.1.0", "listen": null, "started_at": NOW,
            "alive_for_seconds": alive_for, "standing_by": false, "partitions": 62, "claimed": 12, "settled": 7,
            "settled_per_second": 81_000.4})
    };
    answer(&json!({
        "lag_seconds": 75.2,
        "lanes": [{"channel": "hooks", "destination": "down.example", "priority": "bulk", "tenant": "shop", "claimed": 1,
            "next_due_at": null, "closed_until": "2026-11-21T08:31:00.000Z"}],
        "parked": [{"channel": "old", "lanes": 1, "notifications": 7, "next_due_at": NOW, "at_least": false}],
        "sources": [{"name": "orders", "read": 0, "accepted": 0, "repeated": 0, "dead_lettered": 0, "acknowledged": 0,
            "waiting_since": NOW, "waits_for": "no such \u{7}queue"}],
        "feeds": [{"name": "ends", "position": "7-2", "waiting_since": NOW, "lag_seconds": 64.2}],
        "pauses": [{"tenant": "shop", "scope": "channel/hooks", "since": "2026-11-21T08:20:00.000Z"}],
        "space": {"used_bytes": 1_024, "left_bytes": 2_048, "grows_per_day": 819, "full_in_days": 2.5},
        "cluster": {"partitions_free": 2, "outbox_rejected": 1, "outbox_waiting": 7, "outbox_oldest_seconds": 61.25,
            "workers": [worker("a-7", 9.5), worker("b-17", 0.0)]},
    }))
}

/// The lines that `view` draws of `statuses`, which came a second apart, without blank ones.
fn drawn(view: &mut View, statuses: Vec<StatusAnswer>, size: (u16, u16)) -> Vec<String> {
    let (mut history, begun) = (StatusHistory::default(), Clock::system().monotonic());
    for (second, status) in statuses.into_iter().enumerate() {
        history.note(begun + Duration::from_secs(second as u64), status);
    }
    draw_history(view, &history, size)
}

fn draw_history(
    view: &mut View,
    history: &StatusHistory,
    (width, height): (u16, u16),
) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame, history, NOW.parse().unwrap())).unwrap();
    let buffer = terminal.backend().buffer();
    let cells: Vec<&str> = buffer.content().iter().map(Cell::symbol).collect();
    let lines = cells.chunks(usize::from(width)).map(|line| line.concat().trim_end().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

fn position(lines: &[String], text: &str) -> usize {
    lines.iter().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{lines:#?}"))
}

#[test]
fn an_engine_that_works_is_told_by_its_rates_and_lanes() {
    let mut later = status();
    later.totals.accepted += 300;
    later.totals.delivered += 250;
    let lines = drawn(&mut View::default(), vec![status(), later], (120, 24));
    assert_eq!(lines[0], "belfry 0.1.0   running since 2026-11-21T06:00:00.000Z");
    assert_eq!(lines[1], "nothing is wrong");
    assert_eq!(lines[2], "accepted 300/s   delivered 250/s   ended otherwise 0/s");
    assert!(lines.iter().any(|line| line.starts_with('█')), "{lines:#?}");
    assert!(position(&lines, "api.push.apple.com") < position(&lines, "slow.example"));
    assert!(lines[position(&lines, "slow.example")].contains("900.0 ms"));
    assert!(lines.last().unwrap().starts_with("q quit"));
}

#[test]
fn lanes_are_ordered_scrolled_and_left_out_as_keys_say() {
    let size = (120, 24);
    let mut view = View { order: ViewOrder::Latency, ..View::default() };
    let lines = drawn(&mut view, vec![status()], size);
    assert!(position(&lines, "slow.example") < position(&lines, "api.push.apple.com"));
    view = View { order: ViewOrder::Due, skipped: 99, ..View::default() };
    let lines = drawn(&mut view, vec![status()], size);
    // The last lane stays.
    assert_eq!(view.skipped, 1);
    assert!(lines.iter().any(|line| line.contains("api.push.apple.com")));
    assert!(!lines.iter().any(|line| line.contains("slow.example")));
    view = View { only_trouble: true, ..View::default() };
    let lines = drawn(&mut view, vec![status()], size);
    assert!(!lines.iter().any(|line| line.contains("example") || line.contains("apple")));
}

#[test]
fn trouble_is_told_on_top_and_a_small_terminal_is_no_error() {
    let lines = drawn(&mut View::default(), vec![troubled()], (120, 30));
    assert_eq!(lines[1], "! worker b-17 is gone: what it held goes to others");
    assert!(lines.iter().any(|line| line == "  and 5 more: belfry status"), "{lines:#?}");
    assert!(lines[position(&lines, "b-17      ")].contains("gone"));
    assert!(lines[position(&lines, "down.example  ")].contains("closed until 2026-11-21T08:31"));
    for size in [(1, 1), (20, 5), (80, 10)] {
        assert!(drawn(&mut View::default(), vec![troubled()], size).len() <= usize::from(size.1));
    }
}

#[test]
fn an_engine_that_does_not_answer_is_shown_as_it_was() {
    let (mut history, now) = (StatusHistory::default(), Clock::system().monotonic());
    history.note(now, status());
    history.note_silence(&anyhow::anyhow!("connection refused"));
    let lines = draw_history(&mut View::default(), &history, (120, 24));
    assert!(lines[0].starts_with("NO ANSWER, this is the last one: connection refused"));
    assert!(lines.iter().any(|line| line.contains("api.push.apple.com")));
    history.note(now + Duration::from_secs(1), status());
    let lines = draw_history(&mut View::default(), &history, (120, 24));
    assert!(lines[0].starts_with("belfry"));
}
