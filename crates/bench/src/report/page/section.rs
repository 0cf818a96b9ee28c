//! One row on the page: each of its reports with its picture, its figures in full, what holds, and the JSON.

use super::html::{HtmlTable, element, list, text, verdict, wide};
use crate::report::table::conclusions;
use crate::report::{Point, PublishedPoint, RowReport, number, plot};

/// The reports of one row, the newest first.
pub(super) fn of_row(id: &str, name: &str, runs: &[&RowReport]) -> String {
    let title = runs.first().map_or("", |run| run.title.as_str());
    let mut html = format!("<h2 id=\"{id}-title\">{}: {}</h2>\n", text(name), text(title));
    for (age, report) in runs.iter().enumerate() {
        html += &of_run(&run_id(id, age), report);
    }
    format!("<section aria-labelledby=\"{id}-title\">\n{html}</section>\n")
}

/// Of the report of a row that is `age` runs older than the newest.
pub(super) fn run_id(id: &str, age: usize) -> String {
    format!("{id}-run-{age}")
}

/// A figure with its unit.
pub(super) fn figure(report: &RowReport, value: f64) -> String {
    format!("{} {}", number(value), report.unit.as_str())
}

/// A ratio; empty without one, or without sense.
pub(super) fn ratio(ratio: Option<f64>) -> String {
    ratio.filter(|ratio| ratio.is_finite()).map(number).unwrap_or_default()
}

/// A date, for people and for programs; the first `letters` of it.
pub(super) fn time(taken_at: &str, letters: Option<usize>) -> String {
    let words = taken_at.replace('T', " ").replace('Z', " UTC");
    let words: String = words.chars().take(letters.unwrap_or(usize::MAX)).collect();
    format!("<time datetime=\"{}\">{}</time>", text(taken_at), text(&words))
}

fn of_run(id: &str, report: &RowReport) -> String {
    let heading = format!(
        "<h3 id=\"{id}\">{}, {} size, commit {}</h3>\n",
        time(&report.taken_at, None),
        text(&report.size),
        text(&report.commit)
    );
    let picture = wide("figure", &format!("Picture: {}", report.title), &plot::to_svg(report));
    let parts = [
        heading,
        picture,
        figures(report),
        sentences("Conclusions", &conclusions(report)),
        checks(report),
        sentences("Notes", &report.notes),
        configuration(report),
        json(report),
    ];
    format!("<article aria-labelledby=\"{id}\">\n{}</article>\n", parts.concat())
}

/// All figures: a published setting, ours of the same name beside it, and what is learned.
fn figures(report: &RowReport) -> String {
    let caption = format!("Figures, {}", report.unit.as_str());
    let mut table = HtmlTable::new(
        &caption,
        &[
            "setting",
            "published",
            "Belfry",
            "spread",
            "ratio",
            "CPU each",
            "CPU of servers",
            "memory at most",
            "disk each",
            "lost, doubled",
            "floor",
            "to floor",
        ],
    );
    let is_of = |point: &Point, theirs: &PublishedPoint| point.setting == theirs.setting;
    for theirs in &report.published {
        if !report.points.iter().any(|point| is_of(point, theirs)) {
            table.row(vec![text(&theirs.setting), number(theirs.figure.value())]);
        }
    }
    for point in report.points.iter().chain(&report.auto) {
        let theirs = report.published.iter().find(|theirs| is_of(point, theirs));
        table.row(line(report, point, theirs));
    }
    table.to_html()
}

fn line(report: &RowReport, point: &Point, theirs: Option<&PublishedPoint>) -> Vec<String> {
    let ours = point.figure.value();
    let theirs = theirs.map(|theirs| theirs.figure.value());
    // What is learned is compared with the best that was published.
    let is_auto = report.auto.as_ref() == Some(point);
    let compared = if is_auto { report.best_published() } else { theirs };
    let (least, most) = point.spread;
    let spread = format!("{} to {}", number(least), number(most));
    let floor = point.floor.as_ref().and_then(|floor| floor.per_minute).map(number);
    let wrong = format!("{}, {}", point.lost, point.duplicated);
    let is_right = point.lost == 0 && point.duplicated == 0;
    vec![
        text(&point.setting),
        theirs.map(number).unwrap_or_default(),
        number(ours),
        if report.repetitions > 1 { spread } else { String::new() },
        ratio(compared.map(|theirs| report.unit.ratio(ours, theirs))),
        point.cpu_us_per_item.map(|us| format!("{us:.1} µs")).unwrap_or_default(),
        servers(point),
        point.memory_bytes_max.map(|bytes| format!("{} MiB", bytes >> 20)).unwrap_or_default(),
        point.disk_bytes_per_item.map(|bytes| format!("{} B", number(bytes))).unwrap_or_default(),
        verdict(is_right, &wrong),
        floor.unwrap_or_default(),
        ratio(point.ratio_to_floor),
    ]
}

/// Processor time of each server beside Belfry.
fn servers(point: &Point) -> String {
    let server = |(name, us): &(String, f64)| format!("{} {us:.1} µs", text(name));
    let servers: Vec<String> = point.servers_cpu_us_per_item.iter().map(server).collect();
    servers.join(", ")
}

fn sentences(heading: &str, sentences: &[String]) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let items: String = sentences.iter().map(|it| element("li", &text(it))).collect();
    format!("<h4>{heading}</h4>\n<ul>\n{items}</ul>\n")
}

fn checks(report: &RowReport) -> String {
    if report.checks.is_empty() {
        return String::new();
    }
    let mut table = HtmlTable::of_words("What must hold", &["check", "found", "result"]);
    for check in &report.checks {
        let word = if check.holds { "holds" } else { "falls short" };
        table.row(vec![text(&check.what), text(&check.found), verdict(check.holds, word)]);
    }
    table.to_html()
}

fn configuration(report: &RowReport) -> String {
    let machine = report.machine.to_line();
    let load = number(report.machine.load_before);
    let runs = report.repetitions.to_string();
    let seeds: Vec<String> = report.seeds.iter().map(ToString::to_string).collect();
    let seeds = seeds.join(", ");
    let mut facts: Vec<(&str, &str)> =
        report.configuration.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    facts.extend([
        ("machine", machine.as_str()),
        ("load before", &load),
        ("runs of each setting", &runs),
        ("seeds", &seeds),
        ("published in", &report.published_in),
    ]);
    facts.retain(|(_, value)| !value.is_empty());
    format!("<h4>Configuration</h4>\n{}", list(&facts))
}

fn json(report: &RowReport) -> String {
    let json = serde_json::to_string_pretty(report).unwrap_or_default();
    let json = text(&json);
    format!("<details><summary>JSON</summary>\n<pre tabindex=\"0\">{json}</pre></details>\n")
}
