//! Reports as one page for a browser: all of it is in the file, and nothing is fetched or run.
//!
//! - [`section`]: one report.
//! - [`html`]: elements and tables.
//!
//! The page follows the light or dark theme of its reader, and is read on a screen that is 320 wide: what is wider than that scrolls by
//! itself.

mod html;
mod section;

use super::{RowReport, number};
use html::{HtmlTable, element, list, text};
use section::{figure, ratio, time};

/// Letters of a date and its minute.
const MINUTES: usize = "2026-01-02 03:04".len();
/// The content policy: nothing is loaded but the styles that are in the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
const STYLE: &str = include_str!("style.css");

/// The page of `reports`: a table of all, then each with its picture, its figures, its checks and its JSON. Rows are in the order in which
/// they first come; the reports of one row have the newest first.
pub fn to_html(reports: &[RowReport]) -> String {
    let rows = by_row(reports);
    let mut main = summary(&rows);
    for (place, (name, runs)) in rows.iter().enumerate() {
        main += &section::of_row(&id(place), name, runs);
    }
    let head = format!(
        r#"<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="color-scheme" content="light dark">
<title>Belfry bench</title>
<style>
{STYLE}</style>"#
    );
    let header = header(reports);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n{head}\n</head>\n<body>\n{header}<main>\n{main}</main>\n</body>\n</html>\n"
    )
}

/// The reports of each row, the newest first.
fn by_row(reports: &[RowReport]) -> Vec<(&str, Vec<&RowReport>)> {
    let mut rows: Vec<(&str, Vec<&RowReport>)> = Vec::new();
    for report in reports {
        match rows.iter_mut().find(|(name, _)| *name == report.row) {
            Some((_, runs)) => runs.push(report),
            None => rows.push((&report.row, vec![report])),
        }
    }
    for (_, runs) in &mut rows {
        // RFC 3339 in UTC is in the order of its letters.
        runs.sort_by(|one, other| other.taken_at.cmp(&one.taken_at));
    }
    rows
}

/// Of a section: a name would need its letters checked.
fn id(place: usize) -> String {
    format!("row-{place}")
}

fn header(reports: &[RowReport]) -> String {
    let mut machines: Vec<String> = Vec::new();
    let mut commits: Vec<String> = Vec::new();
    for report in reports {
        let found =
            [(&mut machines, report.machine.to_line()), (&mut commits, report.commit.clone())];
        for (list, found) in found {
            if !list.contains(&found) {
                list.push(found);
            }
        }
    }
    let lead = "Each row does what others have published, or answers a question that comes before a choice. The published figures are \
                of other machines: the ratio to them says that the same job is done, and how far the way of doing it carries.";
    let facts = [
        (if machines.len() == 1 { "machine" } else { "machines" }, machines.join("; ")),
        (if commits.len() == 1 { "commit" } else { "commits" }, commits.join(", ")),
    ];
    let facts: Vec<(&str, &str)> =
        facts.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let parts = [element("h1", "Belfry bench"), element("p", &text(lead)), list(&facts)];
    format!("<header>\n{}</header>\n", parts.concat())
}

fn summary(rows: &[(&str, Vec<&RowReport>)]) -> String {
    let mut table = HtmlTable::new(
        "Summary",
        &[
            "row",
            "published best",
            "ours",
            "ratio",
            "to best fixed",
            "to floor",
            "lost, doubled",
            "checks held",
            "taken",
        ],
    );
    for (place, (name, runs)) in rows.iter().enumerate() {
        for (age, report) in runs.iter().enumerate() {
            let href = section::run_id(&id(place), age);
            let link = format!("<a href=\"#{href}\">{}</a>", text(name));
            table.row(summary_row(report, link));
        }
    }
    format!("<section aria-label=\"Summary\">\n{}</section>\n", table.to_html())
}

fn summary_row(report: &RowReport, link: String) -> Vec<String> {
    let all = || report.points.iter().chain(&report.auto);
    let lost: u64 = all().map(|point| point.lost).sum();
    let doubled: u64 = all().map(|point| point.duplicated).sum();
    let held = report.checks.iter().filter(|check| check.holds).count();
    let wrong = format!("{lost}, {doubled}");
    let checks = format!("{held} of {}", report.checks.len());
    let words = |is_good: bool, words: String| html::verdict(is_good, &words);
    vec![
        link,
        text(&report.best_published().map(|best| figure(report, best)).unwrap_or_default()),
        text(&ours(report)),
        text(&ratio(report.ratio_to_best_published)),
        text(&ratio(report.ratio_to_best_fixed)),
        text(&ratio(report.ratio_to_floor)),
        words(report.is_accounted_for(), wrong),
        if report.checks.is_empty() {
            String::new()
        } else {
            words(held == report.checks.len(), checks)
        },
        time(&report.taken_at, Some(MINUTES)),
    ]
}

/// The learned setting; else the best of several, or all of them where nothing says that they do the same.
fn ours(report: &RowReport) -> String {
    if let Some(auto) = &report.auto {
        return format!("auto: {}", figure(report, auto.figure.value()));
    }
    let Some(best) = report.best_fixed() else { return String::new() };
    let all = report.points.iter().map(|point| point.figure.value());
    let (least, most) = all.fold((best, best), |(least, most), it| (least.min(it), most.max(it)));
    if report.published.is_empty() && least < most {
        return format!("{} to {}", number(least), figure(report, most));
    }
    figure(report, best)
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
