//! A report for a terminal: their figures beside ours.

use std::fmt::Write as _;

use super::{Check, Point, PublishedPoint, RowReport, Unit, number};

/// One line of the table.
#[derive(Debug, Default)]
struct TableLine {
    setting: String,
    theirs: String,
    ours: String,
    spread: String,
    ratio: String,
    cpu: String,
    /// Processor time to that of the floor.
    floor: String,
    wrong: String,
}

/// The table of `report`, its ratios, and what must hold.
pub fn to_text(report: &RowReport) -> String {
    let mut text = format!("{}: {}\n", report.row, report.title);
    let lines = lines(report);
    let has_floors = report.points.iter().any(|point| point.ratio_to_floor.is_some());
    let heading = TableLine {
        setting: String::new(),
        theirs: if report.published.is_empty() { String::new() } else { "published".into() },
        ours: format!("Belfry, {}", report.unit.as_str()),
        spread: "spread".into(),
        ratio: if report.published.is_empty() { String::new() } else { "ratio".into() },
        cpu: "CPU each".into(),
        floor: if has_floors { "to its floor".into() } else { String::new() },
        wrong: "lost, doubled".into(),
    };
    let all: Vec<&TableLine> = std::iter::once(&heading).chain(&lines).collect();
    let width =
        |of: fn(&TableLine) -> &String| all.iter().map(|line| of(line).chars().count()).max();
    let columns: [fn(&TableLine) -> &String; 8] = [
        |it| &it.setting,
        |it| &it.theirs,
        |it| &it.ours,
        |it| &it.spread,
        |it| &it.ratio,
        |it| &it.cpu,
        |it| &it.floor,
        |it| &it.wrong,
    ];
    for line in &all {
        let mut row = String::new();
        for (place, of) in columns.iter().enumerate() {
            let width = width(*of).unwrap_or(0);
            // A column that is empty for all is left out.
            if width == 0 {
                continue;
            }
            let cell = of(line);
            let padding = " ".repeat(width - cell.chars().count());
            let cell = if place == 0 {
                format!("  {cell}{padding}")
            } else {
                format!("  {padding}{cell}")
            };
            row += &cell;
        }
        let _infallible = writeln!(text, "{}", row.trim_end());
    }
    for line in conclusions(report) {
        let _infallible = writeln!(text, "  {line}");
    }
    for Check { what, found, holds } in &report.checks {
        let word = if *holds { "holds" } else { "FALLS SHORT" };
        let _infallible = writeln!(text, "  {word}: {what}: {found}");
    }
    for note in &report.notes {
        let _infallible = writeln!(text, "  note: {note}");
    }
    text
}

/// The ratios and the fit, in words.
pub(super) fn conclusions(report: &RowReport) -> Vec<String> {
    let mut lines = Vec::new();
    let mut push = |line: Option<String>| lines.extend(line);
    push(
        report
            .ratio_to_best_published
            .map(|ratio| format!("{} times the best published figure", number(ratio))),
    );
    push(
        report
            .ratio_to_best_fixed
            .map(|ratio| format!("auto is {ratio:.2} times the best fixed setting")),
    );
    push(report.floor.as_ref().map(|floor| {
        let each = floor.cpu_us_per_item.map(|us| format!(", {us:.2} us each"));
        let rate = floor.per_minute.map(|rate| format!(", {} a minute", number(rate)));
        let ratio = report.ratio_to_floor.map(|ratio| format!("; ours is {ratio:.2} times that"));
        let parts = [rate, each, ratio].map(Option::unwrap_or_default);
        format!("floor: {}{}", floor.tool, parts.concat())
    }));
    push(report.scalability.as_ref().map(super::Scalability::to_line));
    lines
}

fn lines(report: &RowReport) -> Vec<TableLine> {
    let mut lines: Vec<TableLine> =
        report.points.iter().chain(&report.auto).map(|point| of_point(report, point)).collect();
    // Settings that were not measured here are shown in their place among the published ones.
    let missing = |theirs: &&PublishedPoint| {
        !report.points.iter().any(|point| point.setting == theirs.setting)
    };
    let left: Vec<TableLine> = report
        .published
        .iter()
        .filter(missing)
        .map(|theirs| TableLine {
            setting: theirs.setting.clone(),
            theirs: number(theirs.figure.value()),
            ..TableLine::default()
        })
        .collect();
    lines.splice(0..0, left);
    lines
}

fn of_point(report: &RowReport, point: &Point) -> TableLine {
    let theirs = report.published.iter().find(|theirs| theirs.setting == point.setting);
    // What is learned is compared with the best that was published.
    let of_best = report.auto.as_ref() == Some(point);
    let compared =
        if of_best { report.best_published() } else { theirs.map(|it| it.figure.value()) };
    let ours = point.figure.value();
    let (least, most) = point.spread;
    let is_single = report.repetitions < 2;
    TableLine {
        setting: point.setting.clone(),
        theirs: match (theirs, of_best) {
            (Some(theirs), _) => number(theirs.figure.value()),
            (None, true) => {
                compared.map(|best| format!("best {}", number(best))).unwrap_or_default()
            }
            (None, false) => String::new(),
        },
        ours: number(ours),
        spread: if is_single {
            String::new()
        } else {
            format!("{} to {}", number(least), number(most))
        },
        ratio: compared.map(|it| number(report.unit.ratio(ours, it))).unwrap_or_default(),
        cpu: point.cpu_us_per_item.map(|us| format!("{us:.1} us")).unwrap_or_default(),
        floor: point.ratio_to_floor.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
        wrong: format!("{}, {}", point.lost, point.duplicated),
    }
}

/// The heading that says what a unit is, on an axis.
pub(super) const fn axis(unit: Unit) -> &'static str {
    match unit {
        Unit::PerMinute => "items a minute",
        Unit::Seconds => "seconds",
        Unit::MsPerOp => "milliseconds of one operation",
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
