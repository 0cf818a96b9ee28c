//! The page is well-formed, loads nothing, and has everything of every report.

use super::*;
use crate::report::plot::tests::elements;
use crate::report::tests::{edges, hostile, names, sweep};

const VOID: [&str; 3] = ["!doctype", "meta", "br"];

fn elements_of(reports: &[RowReport]) -> Vec<(String, String)> {
    let html = to_html(reports);
    let html = html.strip_prefix("<!doctype html>\n").unwrap();
    elements(html, &VOID)
}

fn count(elements: &[(String, String)], name: &str) -> usize {
    elements.iter().filter(|(it, _)| it == name).count()
}

#[test]
fn a_page_is_well_formed_whatever_is_in_it() {
    let mut all = edges();
    all.extend([sweep(), names(), hostile()]);
    let elements = elements_of(&all);
    assert_eq!((count(&elements, "h1"), count(&elements, "svg")), (1, all.len()));
    assert_eq!(count(&elements_of(&[]), "h1"), 1, "no report is a page, too");
    for report in all {
        elements_of(&[report]);
    }
}

#[test]
fn every_table_has_a_caption_and_headings_and_every_line_as_many_cells() {
    let html = to_html(&[sweep(), names()]);
    for table in html.split("<table").skip(1) {
        let table = table.split("</table>").next().unwrap();
        assert_eq!(table.matches("<caption>").count(), 1);
        let columns = table.matches("scope=\"col\"").count();
        assert!(columns > 1);
        for line in table.split("<tbody>").nth(1).unwrap().split("<tr>").skip(1) {
            assert_eq!(line.matches("scope=\"row\"").count(), 1, "{line}");
            assert_eq!(
                line.matches("<t").count(),
                columns + line.matches("<time").count(),
                "{line}"
            );
        }
    }
}

#[test]
fn ids_are_unique_and_every_link_has_a_target() {
    let elements = elements_of(&[sweep(), names(), sweep(), hostile()]);
    let attribute = |name: &str| -> Vec<String> {
        let value = |(_, it): &(String, String)| {
            let tag = it.split('>').next().unwrap();
            Some(tag.split(&format!(" {name}=\"")).nth(1)?.split('"').next()?.to_owned())
        };
        elements.iter().filter_map(value).collect()
    };
    let mut ids = attribute("id");
    let targets = attribute("href");
    assert_eq!(targets.len(), 4);
    for target in targets.iter().map(|it| it.strip_prefix('#').unwrap().to_owned()) {
        assert!(ids.contains(&target), "{target}");
    }
    for label in attribute("aria-labelledby") {
        assert!(ids.contains(&label), "{label}");
    }
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

#[test]
fn nothing_is_fetched_and_nothing_runs() {
    let html = to_html(&[sweep(), names(), hostile()]);
    let html = html.replace(" xmlns=\"http://www.w3.org/2000/svg\"", "");
    for part in
        ["http://", "https://", "<script", "<link", "<img", " src=", "url(", "@import", "<iframe"]
    {
        assert!(!html.contains(part), "{part}");
    }
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn hostile_text_stays_text() {
    let html = to_html(&[hostile()]);
    assert!(html.contains("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;amp;&#39;"));
    assert_eq!(html.matches("</svg>").count(), 1);
}

#[test]
fn the_runs_of_a_row_stand_together_the_newest_first() {
    let at = |taken_at: &str| RowReport { taken_at: taken_at.into(), ..sweep() };
    let html = to_html(&[
        at("2026-01-02T03:04:05Z"),
        names(),
        at("2026-03-01T00:00:00Z"),
        at("2025-12-31T23:59:59Z"),
    ]);
    assert_eq!(html.matches("<section aria-labelledby").count(), 2, "one for each row");
    let (summary, sections) = html.split_once("<section aria-labelledby").unwrap();
    for part in [summary, sections.split("<section").next().unwrap()] {
        let places: Vec<usize> = ["2026-03-01 00:00", "2026-01-02 03:04", "2025-12-31 23:59"]
            .map(|date| part.find(date).unwrap())
            .to_vec();
        assert!(places.is_sorted(), "{places:?}");
    }
}

#[test]
fn the_summary_has_the_ratios_and_what_went_wrong() {
    let html = to_html(&[sweep(), names()]);
    let summary = html.split("</section>").next().unwrap();
    for part in [
        ">28,330 a minute<",
        ">auto: 6,350,000 a minute<",
        ">224.1<",
        ">1.04<",
        ">1.19<",
        "class=\"held\">0, 0<",
        "class=\"held\">1 of 1<",
        ">449,274 a minute<",
        ">1,204,000 a minute<",
        "class=\"short\">1, 0<",
        "class=\"short\">0 of 1<",
    ] {
        assert!(summary.contains(part), "{part} is not in {summary}");
    }
}

#[test]
fn a_section_has_the_figures_the_conclusions_the_checks_and_the_json() {
    let html = to_html(&[names()]);
    let section = html.split("<section aria-labelledby").nth(1).unwrap();
    for part in [
        "Competing consumers behind a broker",
        "scope=\"row\">2 x 192 consumers<",
        ">falls short<",
        "2.68 times the best published figure",
        ">1,440,000<",
        ">PostgreSQL 31.5 µs, broker 9.2 µs<",
        ">312.0 B<",
        ">0.63<",
        "SQLite, synchronous=FULL",
        "part 3 (2024)",
        "&quot;ratio_to_best_published&quot;: 2.6",
    ] {
        assert!(section.contains(part), "{part}");
    }
}

#[test]
fn the_json_on_the_page_is_the_report() {
    let report = sweep();
    let html = to_html(std::slice::from_ref(&report));
    let json = html.split("<pre tabindex=\"0\">").nth(1).unwrap().split("</pre>").next().unwrap();
    let json = json
        .replace("&quot;", "\"")
        .replace("&gt;", ">")
        .replace("&#39;", "'")
        .replace("&amp;", "&");
    assert_eq!(json, serde_json::to_string_pretty(&report).unwrap());
    assert_eq!(serde_json::from_str::<RowReport>(&json).unwrap().points.len(), 8);
}
