//! The elements of an SVG: coordinates are pixels of its view box, and text is escaped here.

use std::fmt::Write as _;

use super::style::Ink;

/// Where something is: pixels from the left, and from the top.
pub(super) type Spot = (f64, f64);

/// A line of text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caption<'a> {
    pub(super) text: &'a str,
    /// Of its base line, at the side that `anchor` says.
    pub(super) at: Spot,
    /// Height of its letters, pixels.
    pub(super) size: f64,
    pub(super) ink: Ink,
    pub(super) anchor: Anchor,
    pub(super) is_bold: bool,
}

/// The side of a text that stands at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stroke {
    /// A line of a grid, or of a mark.
    Hair,
    /// A curve that stands behind the figures.
    Thin,
    /// A series.
    Thick,
    /// A figure that holds for the whole width.
    Dashed,
    /// A bound.
    Dotted,
    /// A rim in the colour of the ground, for what is drawn over it.
    Rim,
}

/// Elements, in the order in which they lie over each other.
#[derive(Debug, Default)]
pub(super) struct Drawing {
    elements: String,
}

/// How much wider bold letters are.
const BOLD: f64 = 1.11;

/// Width of `text`, pixels: in the widest of the usual fonts, so that it is hardly ever more.
pub(super) fn width(text: &str, size: f64, is_bold: bool) -> f64 {
    let letters: f64 = text.chars().map(letter_width).sum();
    letters * size * if is_bold { BOLD } else { 1.0 }
}

/// As a part of the height of the letters.
fn letter_width(letter: char) -> f64 {
    match letter {
        ' ' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | 'i' | 'j' | 'l' | 'I' | '·' => 0.33,
        '(' | ')' | '[' | ']' | '-' | '/' | 'f' | 'r' | 't' | '"' => 0.41,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' | '→' | '←' | '↑' | '↓' => 0.96,
        letter if letter.is_uppercase() => 0.73,
        letter if letter.is_ascii() => 0.61,
        _ => 0.8,
    }
}

/// `text` cut to `wide` pixels, with an ellipsis if it was longer.
pub(super) fn fitting(text: &str, size: f64, is_bold: bool, wide: f64) -> String {
    if width(text, size, is_bold) <= wide {
        return text.to_owned();
    }
    let mut cut = String::new();
    for letter in text.chars() {
        let longer = format!("{cut}{letter}…");
        if width(&longer, size, is_bold) > wide {
            break;
        }
        cut.push(letter);
    }
    format!("{}…", cut.trim_end())
}

/// `text` as it may stand in XML and HTML, between tags and in quotes.
pub(in crate::report) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(letter),
            // No document may hold these, however they are written.
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

// === impl Anchor ===

impl Anchor {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

// === impl Stroke ===

impl Stroke {
    const fn attributes(self) -> &'static str {
        match self {
            Self::Hair => r#"stroke-width="1""#,
            Self::Thin => r#"stroke-width="1.5""#,
            Self::Thick => r#"stroke-width="3" stroke-linejoin="round""#,
            Self::Dashed => r#"stroke-width="2.5" stroke-dasharray="9 6""#,
            Self::Dotted => r#"stroke-width="2" stroke-dasharray="2 5""#,
            Self::Rim => r#"stroke-width="5" stroke-linecap="square""#,
        }
    }
}

// === impl Drawing ===

impl Drawing {
    /// The elements as text.
    pub(super) fn into_elements(self) -> String {
        self.elements
    }

    /// A text, with a rim in the colour of the ground, so that a line behind it does not cross it.
    pub(super) fn caption(&mut self, caption: Caption<'_>) {
        let Caption { text, at: (x, y), size, ink, anchor, is_bold } = caption;
        let weight = if is_bold { r#" font-weight="600""# } else { "" };
        let [x, y] = [x, y].map(pixels);
        let (class, anchor, text) = (ink.fill(), anchor.as_str(), escape(text));
        self.add(format_args!(
            r#"<text class="{class} bp-rim" x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}"{weight}>{text}</text>"#
        ));
    }

    /// A filled rectangle between two corners.
    pub(super) fn bar(&mut self, ink: Ink, from: Spot, to: Spot) {
        let [x, y] = [from.0.min(to.0), from.1.min(to.1)].map(pixels);
        let [width, height] = [(to.0 - from.0).abs(), (to.1 - from.1).abs()].map(pixels);
        let class = ink.fill();
        self.add(format_args!(
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" rx="2"/>"#
        ));
    }

    /// A filled dot.
    pub(super) fn dot(&mut self, ink: Ink, at: Spot) {
        let ([x, y], class) = ([at.0, at.1].map(pixels), ink.fill());
        self.add(format_args!(r#"<circle class="{class}" cx="{x}" cy="{y}" r="5"/>"#));
    }

    /// A line through `spots`; nothing for fewer than two.
    pub(super) fn line(&mut self, ink: Ink, stroke: Stroke, spots: &[Spot]) {
        if spots.len() < 2 {
            return;
        }
        let spot = |(x, y): &Spot| format!("{},{}", pixels(*x), pixels(*y));
        let points: Vec<String> = spots.iter().map(spot).collect();
        let (class, attributes, points) = (ink.line(), stroke.attributes(), points.join(" "));
        self.add(format_args!(r#"<polyline class="{class}" {attributes} points="{points}"/>"#));
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        let _infallible = writeln!(self.elements, "{element}");
    }
}

/// A tenth of a pixel is enough. What is no number would make the whole drawing unreadable.
fn pixels(value: f64) -> String {
    let value = if value.is_finite() { value } else { 0.0 };
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}
