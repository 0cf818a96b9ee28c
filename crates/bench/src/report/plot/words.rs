//! The words of a drawing: its heading, its sources, and the figures in words for those who do not see it.

use super::drawing::{fitting, width};
use crate::report::table::{axis, conclusions};
use crate::report::{Point, PublishedPoint, RowReport, Unit, number};

/// Letters of a commit that tell it apart.
const COMMIT_LETTERS: usize = 12;

/// Where and when: the line below the title.
pub(super) fn subtitle(report: &RowReport) -> String {
    let commit: String = report.commit.chars().take(COMMIT_LETTERS).collect();
    let day = report.taken_at.split('T').next().unwrap_or_default();
    let runs = match report.repetitions {
        0 | 1 => "one run each".to_owned(),
        runs => format!("median of {runs} runs"),
    };
    let machine = report.machine.to_line();
    format!("{machine} · commit {commit} · {day} · {runs}")
}

/// Where the figures are from that are not ours.
pub(super) fn sources(report: &RowReport) -> Vec<String> {
    let mut lines = Vec::new();
    if !report.published.is_empty() && !report.published_in.is_empty() {
        lines.push(format!("published: {}", report.published_in));
    }
    lines.extend(report.floor.as_ref().map(|floor| format!("floor: {}", floor.tool)));
    lines
}

/// Which figures are the better ones.
pub(super) const fn better(unit: Unit) -> &'static str {
    if unit.is_more_better() { "more is better" } else { "less is better" }
}

/// All figures, for a screen reader.
pub(super) fn description(report: &RowReport) -> String {
    let unit = report.unit;
    let mut text = format!("In {}; {}.", axis(unit), better(unit));
    let theirs = |point: &PublishedPoint| (point.setting.clone(), point.figure.value());
    let ours = |point: &Point| (point.setting.clone(), point.figure.value());
    text += &series("Published", report.published.iter().map(theirs));
    text += &series("Belfry", report.points.iter().chain(&report.auto).map(ours));
    let conclusions: String = conclusions(report).iter().map(|it| it.clone() + ". ").collect();
    format!("{text} {}", conclusions.trim_end())
}

fn series(name: &str, points: impl Iterator<Item = (String, f64)>) -> String {
    let points: Vec<String> =
        points.map(|(setting, figure)| format!("{setting}: {}", number(figure))).collect();
    if points.is_empty() { String::new() } else { format!(" {name}: {}.", points.join("; ")) }
}

/// `text` in `lines_max` lines of at most `wide` pixels; the last one is cut.
pub(super) fn wrap(
    text: &str,
    (size, is_bold): (f64, bool),
    wide: f64,
    lines_max: usize,
) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let is_wide = |line: &str| width(line, size, is_bold) > wide;
    for word in text.split_whitespace() {
        let is_last = lines.len() == lines_max;
        match lines.last_mut() {
            Some(line) if is_last || !is_wide(&format!("{line} {word}")) => {
                *line += " ";
                *line += word;
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| fitting(line, size, is_bold, wide)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{names, sweep};

    #[test]
    fn a_text_is_wrapped_at_spaces_and_cut_at_the_end() {
        assert_eq!(wrap("a few words", (20.0, true), 800.0, 2), ["a few words"]);
        assert_eq!(wrap("one two three", (20.0, true), 100.0, 3), ["one two", "three"]);
        let cut = wrap("one two three four five six", (20.0, true), 100.0, 2);
        assert_eq!(cut.len(), 2);
        assert!(cut[1].ends_with('…') && width(&cut[1], 20.0, true) <= 100.0, "{cut:?}");
        assert_eq!(wrap("", (20.0, true), 100.0, 2), [""; 0]);
    }

    #[test]
    fn the_description_has_every_figure_and_every_ratio() {
        let words = description(&sweep());
        for part in [
            "In items a minute; more is better.",
            "Published: 4: 7,299; 8: 13,534",
            "auto: 6,350,000",
            "224.1 times the best published figure",
            "floor: h2load",
        ] {
            assert!(words.contains(part), "{part} is not in {words}");
        }
    }

    #[test]
    fn the_heading_says_where_when_and_of_what_build() {
        assert_eq!(
            subtitle(&sweep()),
            "2 cores of AMD EPYC 7B13, 24 GiB, Linux 6.1.0-44-cloud-amd64 · commit 0123abc · 2026-01-02 · median of 3 runs"
        );
        assert_eq!(sources(&sweep()).len(), 2);
        assert_eq!(sources(&names()).len(), 1, "a floor of a single point is beside its bar");
    }
}
