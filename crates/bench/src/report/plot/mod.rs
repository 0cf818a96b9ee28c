//! A report as a picture: one SVG for a slide, which follows the light or dark theme of its reader.
//!
//! - [`sweep`]: settings that are places in a sweep, as lines over logarithmic axes.
//! - [`bars`]: settings that are names, as bars.
//!
//! The view box is 960 wide and 540 high, and higher only if there are many bars. Nothing is fetched: fonts are those of the system.

mod bars;
mod drawing;
mod place;
mod scale;
mod style;
mod sweep;
mod words;

use std::fmt::Write as _;

use super::RowReport;
use super::table::axis;
use drawing::{Anchor, Caption, Drawing};
use place::Area;
use style::Ink;

pub(super) use drawing::escape;

/// Of the view box, pixels.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 540.0;
const MARGIN: f64 = 28.0;
const TITLE_SIZE: f64 = 25.0;
/// Of labels and ticks: two thirds of it can still be read, on a page that is 640 wide.
const LABEL_SIZE: f64 = 16.0;
const SMALL_SIZE: f64 = 14.0;
/// Height of a line of text, as a part of the size of its letters.
const LEADING: f64 = 1.25;

/// The picture of `report`: lines if each of its points has a place in a sweep, else bars.
pub fn to_svg(report: &RowReport) -> String {
    let mut drawing = Drawing::default();
    let top = heading(report, &mut drawing);
    let sources = sources(report);
    let below = MARGIN / 2.0 + lines_height(&sources, SMALL_SIZE);
    let body =
        Area { left: MARGIN, top, width: WIDTH - 2.0 * MARGIN, height: HEIGHT - below - top };
    let bottom = if sweep::is_one(report) {
        sweep::draw(report, body, &mut drawing)
    } else {
        bars::draw(report, body, &mut drawing)
    };
    // They stand at the lower edge, where a slide has them.
    let bottom = bottom.max(body.bottom());
    let mut at = bottom;
    for line in &sources {
        at += SMALL_SIZE * LEADING;
        drawing.caption(Caption { at: (MARGIN, at), ..small(line) });
    }
    frame(report, bottom + below, &drawing.into_elements())
}

/// A line that explains.
const fn small(text: &str) -> Caption<'_> {
    let (ink, anchor) = (Ink::Muted, Anchor::Start);
    Caption { text, at: (0.0, 0.0), size: SMALL_SIZE, ink, anchor, is_bold: false }
}

/// A line to be read first.
const fn label(text: &str, ink: Ink) -> Caption<'_> {
    let anchor = Anchor::Start;
    Caption { text, at: (0.0, 0.0), size: LABEL_SIZE, ink, anchor, is_bold: false }
}

/// Title and subtitle; where they end.
fn heading(report: &RowReport, drawing: &mut Drawing) -> f64 {
    let wide = WIDTH - 2.0 * MARGIN;
    let mut at = MARGIN / 2.0;
    for line in words::wrap(&report.title, (TITLE_SIZE, true), wide, 2) {
        at += TITLE_SIZE * LEADING;
        let title = Caption { size: TITLE_SIZE, is_bold: true, ..label(&line, Ink::Text) };
        drawing.caption(Caption { at: (MARGIN, at), ..title });
    }
    at += SMALL_SIZE / 3.0;
    for line in words::wrap(&words::subtitle(report), (SMALL_SIZE, false), wide, 2) {
        at += SMALL_SIZE * LEADING;
        drawing.caption(Caption { at: (MARGIN, at), ..small(&line) });
    }
    at
}

fn sources(report: &RowReport) -> Vec<String> {
    let wide = WIDTH - 2.0 * MARGIN;
    let lines = words::sources(report);
    lines.iter().flat_map(|line| words::wrap(line, (SMALL_SIZE, false), wide, 2)).collect()
}

fn lines_height(lines: &[String], size: f64) -> f64 {
    lines.iter().map(|_| size * LEADING).sum()
}

/// The quantity of an axis and which of its ends is the better one.
fn axis_title(report: &RowReport, scale: &scale::Scale, [more, less]: [&str; 2]) -> String {
    let arrow = if report.unit.is_more_better() { more } else { less };
    let log = if scale.is_log() { ", logarithmic" } else { "" };
    format!("{}{log} · {} {arrow}", axis(report.unit), words::better(report.unit))
}

fn frame(report: &RowReport, height: f64, elements: &str) -> String {
    let [title, description] = [&report.title, &words::description(report)].map(|it| escape(it));
    let (sheet, fonts, ground) = (style::sheet(), style::FONTS, Ink::Ground.fill());
    let mut svg = String::new();
    let _infallible = write!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" class="bp" role="img" viewBox="0 0 {WIDTH} {height:.0}" width="{WIDTH}" height="{height:.0}" font-family="{fonts}">
<title>{title}</title>
<desc>{description}</desc>
<style>
{sheet}</style>
<rect class="{ground}" width="{WIDTH}" height="{height:.0}"/>
{elements}</svg>
"#
    );
    svg
}

#[cfg(test)]
#[path = "plot_tests.rs"]
pub(super) mod tests;
