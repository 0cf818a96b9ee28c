//! A drawing is well-formed, has no number that is none, and nothing of it is outside of its view box or over something else.

use super::*;
use crate::report::tests::{edges, hostile, names, sweep};
use crate::report::{Point, Unit};

/// The names and attributes of the elements of `markup`, whose tags must balance.
pub(in crate::report) fn elements(markup: &str, void: &[&str]) -> Vec<(String, String)> {
    let mut open: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    for part in markup.split('<').skip(1) {
        let (tag, text) = part.split_once('>').unwrap_or_else(|| panic!("<{part} has no end"));
        assert!(!text.contains('>') || text.contains('{'), "a bare > in {text}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes another");
            continue;
        }
        let name = tag.split([' ', '/', '\n']).next().unwrap();
        assert!(name.chars().all(char::is_alphanumeric) && !name.is_empty(), "<{tag}>");
        assert_eq!(tag.matches('"').count() % 2, 0, "<{tag}>");
        if !tag.ends_with('/') && !void.contains(&name) {
            open.push(name);
        }
        found.push((name.to_owned(), format!("{tag}>{}", text.trim())));
    }
    assert_eq!(open, [""; 0], "never closed");
    // An ampersand begins an entity.
    for part in markup.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;", "quot;", "#39;"];
        assert!(known.iter().any(|entity| part.starts_with(entity)), "&{part:.20}");
    }
    found
}

fn attribute(element: &str, name: &str) -> Option<f64> {
    let value = element.split(&format!(" {name}=\"")).nth(1)?.split('"').next()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is {value}")))
}

/// The rectangle of a text, in the view box.
fn area_of_text(element: &str) -> Area {
    let text = element.split_once('>').unwrap().1;
    let text = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"]
        .iter()
        .fold(text.to_owned(), |text, entity| text.replace(entity, "&"));
    let size = attribute(element, "font-size").unwrap();
    let wide = drawing::width(&text, size, element.contains("font-weight"));
    let (x, y) = (attribute(element, "x").unwrap(), attribute(element, "y").unwrap());
    let left = match element.split("text-anchor=\"").nth(1).unwrap().split('"').next().unwrap() {
        "start" => x,
        "middle" => x - wide / 2.0,
        _ => x - wide,
    };
    Area { left, top: y - 0.75 * size, width: wide, height: size }
}

fn all() -> Vec<RowReport> {
    let mut all = edges();
    all.extend([sweep(), names(), hostile(), fanout(), audiences()]);
    all
}

/// A sweep of seconds, whose lines begin beside each other.
fn fanout() -> RowReport {
    use crate::report::tests::{point, published, sample};
    let unit = Unit::Seconds;
    let theirs =
        [("5", 115.0), ("10", 103.0), ("50", 76.0), ("100", 48.0), ("200", 40.0), ("400", 41.0)];
    let ours =
        [("5", 121.0), ("10", 60.6), ("50", 12.3), ("100", 6.3), ("200", 3.3), ("400", 1.81)];
    let mut report = RowReport {
        row: "fanout".into(),
        title: "First request to last send, by attempts under way at a time; 300 ms for the provider".into(),
        published: theirs.map(|(setting, figure)| published(setting, unit, figure)).to_vec(),
        published_in: "The Guardian, mobile-n10n, docs/testing/08-thread-pool-size.md (2022): threads of a sender, 300 ms for the provider".into(),
        points: ours.map(|(setting, figure)| point(setting, unit, figure)).to_vec(),
        auto: Some(point("auto", unit, 1.27)),
        ..sample(unit)
    };
    report.conclude();
    report
}

/// Sizes of an audience.
fn audiences() -> RowReport {
    use crate::report::tests::{point, sample};
    let audience = |(size, seconds): (f64, f64)| Point {
        parallel: Some(size),
        ..point(&format!("{size} devices"), Unit::Seconds, seconds)
    };
    RowReport {
        row: "fanout-90in2".into(),
        title: "90in2: from the request until 90 % of the devices have it; the goal is 120 s"
            .into(),
        points: [(1e5, 1.9), (1e6, 9.8), (3e6, 28.4), (1e7, 97.0)].map(audience).to_vec(),
        ..sample(Unit::Seconds)
    }
}

#[test]
fn every_drawing_is_well_formed_and_has_a_name_and_a_description() {
    for report in all() {
        let svg = to_svg(&report);
        let elements = elements(&svg, &[]);
        let names: Vec<&str> = elements.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.get(..4).unwrap(), ["svg", "title", "desc", "style"], "{}", report.title);
    }
}

#[test]
fn every_number_is_one_and_no_size_is_negative() {
    for report in all() {
        let svg = to_svg(&report);
        let most = WIDTH.max(attribute(&svg, "height").unwrap());
        let drawn = svg.split("</style>").nth(1).unwrap();
        for (name, element) in elements(drawn.trim_end().strip_suffix("</svg>").unwrap(), &[]) {
            let tag = element.split('>').next().unwrap();
            assert!(!tag.contains("NaN") && !tag.contains("inf"), "<{tag}>");
            for size in ["width", "height", "r"] {
                assert!(attribute(tag, size).is_none_or(|size| size >= 0.0), "<{tag}>");
            }
            if name == "polyline" {
                let spots = tag.split("points=\"").nth(1).unwrap().trim_end_matches(['"', '/']);
                for number in spots.split([' ', ',']) {
                    assert!((0.0..=most).contains(&number.parse().unwrap()), "<{tag}>");
                }
            }
        }
    }
}

#[test]
fn every_label_is_within_the_view_box_and_covers_no_other() {
    for report in all() {
        let svg = to_svg(&report);
        let height = attribute(&svg, "height").unwrap();
        assert!(height >= HEIGHT, "{height}");
        let elements = elements(&svg, &[]);
        let texts = elements.iter().filter(|(name, _)| name == "text");
        let texts: Vec<(&String, Area)> = texts.map(|(_, it)| (it, area_of_text(it))).collect();
        for (i, (text, area)) in texts.iter().enumerate() {
            let is_within = area.left >= 0.0 && area.right() <= WIDTH;
            assert!(is_within && area.top >= 0.0 && area.bottom() <= height, "{text}: {area:?}");
            for (other, there) in &texts[i + 1..] {
                let is_over = area.left < there.right()
                    && there.left < area.right()
                    && area.top < there.bottom()
                    && there.top < area.bottom();
                assert!(!is_over, "{}: {text} is over {other}", report.title);
            }
        }
    }
}

#[test]
fn hostile_text_stays_text() {
    let svg = to_svg(&hostile());
    assert!(!svg.contains("<script") && svg.matches("</svg>").count() == 1);
    assert!(
        svg.contains("&lt;/svg&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;amp;&#39;")
    );
    assert_eq!(escape("a\u{0}b\u{ffff}\n"), "a\u{fffd}b\u{fffd}\n");
}

#[test]
fn a_sweep_has_both_series_the_learned_setting_the_law_and_the_floor() {
    let svg = to_svg(&sweep());
    for part in [
        ">published<",
        ">best 28,330<",
        ">Belfry, fixed<",
        ">best 6,100,000<",
        ">auto<",
        ">6,350,000<",
        ">scalability law<",
        ">floor<",
        ">4,096<",
        ">10,000,000<",
        ">items a minute, logarithmic · more is better ↑<",
        "attempts under way at a time, logarithmic<",
    ] {
        assert!(svg.contains(part), "{part}");
    }
    assert_eq!(svg.matches("<circle").count(), 8 + 5);
    assert!(svg.contains(">knee at 2,"));
    let fanout = to_svg(&fanout());
    assert!(fanout.contains("seconds, logarithmic · less is better ↓"));
    assert!(fanout.contains(">knee beyond 400<"), "it was not measured");
    let audiences = to_svg(&audiences());
    for part in [">devices, logarithmic<", ">1.90<", ">9.80<", ">28.4<", ">97.0<"] {
        assert!(audiences.contains(part), "{part}");
    }
    assert!(!audiences.contains("best"), "the smallest audience is not the best one");
}

#[test]
fn a_better_figure_is_drawn_where_the_arrow_points() {
    let svg = to_svg(&sweep());
    let dots: Vec<f64> = elements(&svg, &[])
        .iter()
        .filter(|(name, it)| name == "circle" && it.contains(Ink::Ours.fill()))
        .map(|(_, it)| attribute(it, "cy").unwrap())
        .collect();
    assert!(dots.is_sorted_by(|one, next| one > next), "{dots:?}");
}

#[test]
fn names_have_bars_with_their_figures_whiskers_and_floors() {
    let svg = to_svg(&names());
    for part in [
        ">64 consumers<",
        ">161,000, published<",
        ">RabbitMQ<",
        ">731,000, Belfry<",
        ">912,000, Belfry (floor 1,440,000)<",
        "items a minute · more is better →",
    ] {
        assert!(svg.contains(part), "{part}");
    }
    let elements = elements(&svg, &[]);
    let length = |ink: Ink| -> Vec<f64> {
        let of = elements.iter().filter(|(name, it)| name == "rect" && it.contains(ink.fill()));
        of.map(|(_, it)| attribute(it, "width").unwrap()).collect()
    };
    let [theirs, ours] = [length(Ink::Theirs), length(Ink::Ours)];
    assert_eq!((theirs.len(), ours.len()), (2, 3));
    assert!((ours[0] / theirs[0] - 731.0 / 161.0).abs() < 0.05, "{theirs:?} {ours:?}");
}

#[test]
fn far_apart_figures_are_on_a_logarithmic_axis() {
    let mut report = names();
    report.published[0].figure = Unit::PerMinute.figure(1_000.0);
    assert!(to_svg(&report).contains("items a minute, logarithmic · more is better →"));
}
