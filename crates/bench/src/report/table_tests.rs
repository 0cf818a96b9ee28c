//! The table for a terminal.

use super::*;
use crate::report::tests::{names, point, published, sample, sweep};

#[test]
fn figures_have_as_many_digits_as_people_read() {
    for (value, text) in [
        (0.0, "0.00"),
        (1.266, "1.27"),
        (9.99, "9.99"),
        (10.0, "10.0"),
        (-42.25, "-42.2"),
        (999.94, "999.9"),
        (1_000.0, "1,000"),
        (28_330.4, "28,330"),
        (-28_330.0, "-28,330"),
        (-999_999.0, "-999,999"),
        (12_345_678.0, "12,345,678"),
    ] {
        assert_eq!(number(value), text);
    }
}

#[test]
fn the_columns_end_in_line() {
    let text = to_text(&sweep());
    let lines: Vec<&str> = text.lines().skip(1).take(10).collect();
    let end = |line: &str, cell: &str| {
        let before = line.split(cell).next().unwrap();
        before.chars().count() + cell.chars().count()
    };
    let column = end(lines[0], "Belfry, a minute");
    for (line, figure) in
        lines[1..].iter().zip(["22,900", "45,600", "91,000", "180,500", "356,000"])
    {
        assert_eq!(end(line, figure), column, "{text}");
    }
    assert_eq!(end(lines[9], "6,350,000"), column, "{text}");
    let last = lines[0].chars().count();
    assert!(lines.iter().all(|line| line.chars().count() == last), "{text}");
}

#[test]
fn a_published_setting_that_was_not_measured_is_shown_without_a_figure_of_ours() {
    let text = to_text(&names());
    let line = text.lines().find(|line| line.contains("2 x 192 consumers")).unwrap();
    assert_eq!(
        line.split_whitespace().collect::<Vec<_>>(),
        ["2", "x", "192", "consumers", "449,274"]
    );
}

#[test]
fn a_figure_stands_beside_the_published_one_and_the_learned_one_beside_the_best() {
    let text = to_text(&sweep());
    let cells = |setting: &str| -> Vec<String> {
        let of = |line: &&str| line.split_whitespace().next() == Some(setting);
        let line = text.lines().skip(2).find(of).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(cells("64")[..3], ["64", "28,330", "356,000"]);
    assert_eq!(cells("64")[6], "12.6", "{text}");
    assert_eq!(cells("256")[1], "1,360,000", "nothing is published for it");
    assert_eq!(cells("auto")[..4], ["auto", "best", "28,330", "6,350,000"]);
}

#[test]
fn columns_that_no_line_has_are_left_out() {
    let alone = RowReport {
        repetitions: 1,
        points: vec![point("a", Unit::Seconds, 1.5)],
        ..sample(Unit::Seconds)
    };
    let text = to_text(&alone);
    assert!(text.contains("Belfry, seconds") && text.contains("1.50"), "{text}");
    for word in ["published", "ratio", "1.47"] {
        assert!(!text.contains(word), "{word} in {text}");
    }
    let beside = RowReport { published: vec![published("a", Unit::Seconds, 3.0)], ..alone };
    assert!(to_text(&beside).contains("2.00"), "half of the seconds is twice as good");
}

#[test]
fn what_falls_short_and_what_is_to_be_known_is_said() {
    let text = to_text(&sweep());
    for line in [
        "  holds: `auto` is at least 150 times the best published figure: 224 times",
        "  note: the provider has the same two cores",
        "  224.1 times the best published figure",
        "  auto is 1.04 times the best fixed setting",
        "  floor: h2load -t2 to nghttpd, both on these cores, 9,800,000 a minute, 11.90 us each; ours is 1.19 times that",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
    }
    assert!(text.contains("  scalability: sigma "), "{text}");
    assert!(to_text(&names()).contains("FALLS SHORT: RabbitMQ"));
}
