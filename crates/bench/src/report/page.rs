//! One page of a set of reports, for a browser: it needs nothing but itself, and follows the reader's theme.

use std::fmt::Write as _;

use super::plot::{self, escape};
use super::table::conclusions;
use super::{Check, Point, RowReport, number};

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--line:#d0d7de;--ground:#fff;--good:#116329;--bad:#a40e26}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa5b1;--line:#30363d;--ground:#0d1117;--good:#56d364;--bad:#ff7b72}}
body{margin:0 auto;max-width:62rem;padding:1.5rem;font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',Arial,sans-serif;color:var(--ink);background:var(--ground)}
h1{font-size:1.8rem}h2{margin-top:3rem;border-top:1px solid var(--line);padding-top:1.5rem}
.soft{color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad);font-weight:600}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);padding:.3rem 0}th,td{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:right}
th:first-child,td:first-child{text-align:left}svg{width:100%;height:auto;border:1px solid var(--line);border-radius:6px}
pre{overflow-x:auto;font-size:.8rem}dt{color:var(--soft)}dd{margin:0 0 .4rem 0}
";

/// The page of `reports`; of several runs of a row the newest comes first.
pub fn to_html(reports: &[RowReport]) -> String {
    let mut sorted: Vec<&RowReport> = reports.iter().collect();
    sorted.sort_by(|one, other| (&one.row, &other.taken_at).cmp(&(&other.row, &one.taken_at)));
    let mut page = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>belfry bench</title>\n<style>",
    );
    page += STYLE;
    page += "</style>\n</head>\n<body>\n<main>\n<h1>What Belfry does on this machine</h1>\n";
    page += "<p>Deliveries are counted from the provider's journal. What was published was measured on other machines: \
             the ratio says how far a way of doing it carries, and does not compare machines.</p>\n";
    page += &summary(&sorted);
    for (place, report) in sorted.iter().enumerate() {
        page += &section(place, report);
    }
    page + "</main>\n</body>\n</html>\n"
}

/// One line for each report.
fn summary(reports: &[&RowReport]) -> String {
    let heads = [
        "row",
        "published, best",
        "Belfry",
        "unit",
        "to published",
        "to best fixed",
        "to floor",
        "lost, doubled",
        "held",
    ];
    let row = |(place, report): (usize, &&RowReport)| {
        let ours = report.auto.as_ref().map(|auto| auto.figure.value());
        let shown = |value: Option<f64>| value.map(number).unwrap_or_default();
        let all = || report.points.iter().chain(&report.auto);
        let lost: u64 = all().map(|point| point.lost).sum();
        let doubled: u64 = all().map(|point| point.duplicated).sum();
        let held = report.checks.iter().filter(|check| check.holds).count();
        let cells = [
            format!("<a href=\"#r{place}\">{}</a>", escape(&report.row)),
            shown(report.best_published()),
            shown(ours.or_else(|| report.best_fixed())),
            report.unit.as_str().to_owned(),
            shown(report.ratio_to_best_published),
            shown(report.ratio_to_best_fixed),
            shown(report.ratio_to_floor),
            format!("{lost}, {doubled}"),
            format!("{held} of {}", report.checks.len()),
        ];
        cells_of("td", cells)
    };
    table("All rows", &heads, reports.iter().enumerate().map(row))
}

fn section(place: usize, report: &RowReport) -> String {
    let mut text = format!("<section id=\"r{place}\">\n<h2>{}</h2>\n", escape(&report.row));
    let made = format!(
        "{} · {} · {} · {} size, {} runs of each setting",
        report.taken_at,
        report.commit,
        report.machine.to_line(),
        report.size,
        report.repetitions
    );
    let _infallible = writeln!(text, "<p class=\"soft\">{}</p>", escape(&made));
    text += &plot::to_svg(report);
    text += &points(report);
    text += &list(conclusions(report).iter().map(|line| escape(line)));
    text += &list(report.checks.iter().map(check));
    text += &list(report.notes.iter().map(|note| escape(note)));
    if !report.published_in.is_empty() {
        let _infallible =
            writeln!(text, "<p class=\"soft\">Published: {}</p>", escape(&report.published_in));
    }
    text += "<dl>\n";
    for (name, value) in &report.configuration {
        let _infallible = writeln!(text, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    }
    let json = serde_json::to_string_pretty(report).unwrap_or_default();
    let _infallible = writeln!(
        text,
        "</dl>\n<details><summary>JSON</summary><pre>{}</pre></details>\n</section>",
        escape(&json)
    );
    text
}

/// The table of the points.
fn points(report: &RowReport) -> String {
    let heads = [
        "setting",
        report.unit.as_str(),
        "least",
        "greatest",
        "CPU each",
        "to its floor",
        "lost",
        "doubled",
    ];
    let row = |point: &Point| {
        let cells = [
            escape(&point.setting),
            number(point.figure.value()),
            number(point.spread.0),
            number(point.spread.1),
            point.cpu_us_per_item.map(|us| format!("{us:.2} us")).unwrap_or_default(),
            point.ratio_to_floor.map(number).unwrap_or_default(),
            point.lost.to_string(),
            point.duplicated.to_string(),
        ];
        cells_of("td", cells)
    };
    table(&escape(&report.title), &heads, report.points.iter().chain(&report.auto).map(row))
}

fn check(check: &Check) -> String {
    let (class, word) = if check.holds { ("good", "holds") } else { ("bad", "falls short") };
    format!(
        "<span class=\"{class}\">{word}</span>: {}: {}",
        escape(&check.what),
        escape(&check.found)
    )
}

/// A table of cells that are escaped already.
fn table(caption: &str, heads: &[&str], rows: impl Iterator<Item = String>) -> String {
    let heads = heads.iter().map(|head| format!("<th scope=\"col\">{head}</th>"));
    let mut text = format!(
        "<div class=\"wide\"><table>\n<caption>{caption}</caption>\n<thead><tr>{}</tr></thead>\n<tbody>\n",
        heads.collect::<String>()
    );
    for row in rows {
        let _infallible = writeln!(text, "<tr>{row}</tr>");
    }
    text + "</tbody>\n</table></div>\n"
}

fn cells_of<const COUNT: usize>(tag: &str, cells: [String; COUNT]) -> String {
    cells.map(|cell| format!("<{tag}>{cell}</{tag}>")).concat()
}

/// A list of lines that are escaped already; nothing of none.
fn list(lines: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = lines.map(|line| format!("<li>{line}</li>\n")).collect();
    if items.is_empty() { String::new() } else { format!("<ul>\n{}</ul>\n", items.concat()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{edges, hostile, names, sweep};

    /// Fails unless each element that is opened is closed, in order.
    #[track_caller]
    fn assert_balanced(page: &str) {
        let mut open: Vec<&str> = Vec::new();
        for tag in page.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()) {
            let name = tag.trim_start_matches('/').split([' ', '\n']).next().unwrap();
            if tag.starts_with('!') || tag.ends_with('/') || name == "meta" {
                continue;
            }
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "{open:?}");
            } else {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn a_page_needs_nothing_but_itself() {
        let page = to_html(&[sweep(), names(), hostile()]);
        assert_balanced(&page);
        for foreign in ["src=", "<link", "<script", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn reports_of_all_kinds_have_their_place() {
        let reports = edges();
        let page = to_html(&reports);
        assert_balanced(&page);
        assert_eq!(page.matches("<section").count(), reports.len());
    }

    #[test]
    fn the_newest_run_of_a_row_comes_first() {
        let old = RowReport { taken_at: "2026-01-01T00:00:00Z".into(), ..sweep() };
        let new = RowReport { taken_at: "2026-02-01T00:00:00Z".into(), ..sweep() };
        let page = to_html(&[old, new]);
        let place = |text: &str| page.find(text).unwrap();
        assert!(place("2026-02-01") < place("2026-01-01"));
    }
}
