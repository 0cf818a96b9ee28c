//! Settings that are names: a bar for each, the published ones beside ours.

use super::drawing::{Anchor, Caption, Drawing, Stroke, fitting, width};
use super::place::Area;
use super::scale::{Scale, ends, figure, is_power, positive, tick};
use super::style::Ink;
use super::{LABEL_SIZE, LEADING, SMALL_SIZE, axis_title, label, small};
use crate::report::{Floor, Point, PublishedPoint, RowReport, Unit};

/// One figure.
#[derive(Debug, Clone, PartialEq)]
struct FigureBar {
    name: String,
    /// Behind the figure: who measured it, where that is not the same for all.
    whose: &'static str,
    ink: Ink,
    figure: f64,
    /// The least and the greatest of its runs.
    spread: Option<(f64, f64)>,
    /// The figure of its floor.
    floor: Option<f64>,
}

/// The body of the drawing, without its labels.
#[derive(Debug, Clone, Copy)]
struct BarField {
    scale: Scale,
    /// Of all bars.
    area: Area,
    /// Height of a bar and the gap to the next one.
    row: f64,
}

/// Figures of which the greatest is more times the least are on a logarithmic axis.
const LINEAR_RATIO: f64 = 20.0;
const ROW_MIN: f64 = 25.0;
const ROW_MAX: f64 = 68.0;
/// Part of a row that its bar fills.
const THICKNESS: f64 = 0.62;
const NAME_WIDTH_MAX: f64 = 290.0;
const GAP: f64 = 10.0;

/// Draws the bars of `report` into `body`, and below it if they need more room; where they end.
pub(super) fn draw(report: &RowReport, body: Area, drawing: &mut Drawing) -> f64 {
    let bars = bars(report);
    let floor = report.floor.as_ref().and_then(|floor| rate(report, floor));
    let field = field(&bars, floor, body);
    let below = axis(report, &field, drawing);
    if bars.is_empty() {
        let text =
            Caption { at: (field.area.left + GAP, field.area.top + 40.0), ..small("no figures") };
        drawing.caption(text);
    }
    for (at, bar) in rows(&field).zip(&bars) {
        draw_bar(bar, at, &field, drawing);
    }
    if let Some(floor) = floor {
        draw_floor(floor, &field, drawing);
    }
    // Over the lines, so that they can be read.
    for (at, bar) in rows(&field).zip(&bars) {
        draw_words(bar, at, &field, drawing);
    }
    below
}

/// The published setting, ours of the same name below it, then the others of ours.
fn bars(report: &RowReport) -> Vec<FigureBar> {
    let mut bars = Vec::new();
    let is_of = |point: &Point, theirs: &PublishedPoint| point.setting == theirs.setting;
    for theirs in &report.published {
        bars.push(FigureBar {
            name: theirs.setting.clone(),
            whose: ", published",
            ink: Ink::Theirs,
            figure: theirs.figure.value(),
            spread: None,
            floor: None,
        });
        let same = report.points.iter().filter(|point| is_of(point, theirs));
        bars.extend(same.map(|point| ours(report, point, Ink::Ours)));
    }
    let is_left = |point: &&Point| !report.published.iter().any(|theirs| is_of(point, theirs));
    let left = report.points.iter().filter(is_left);
    bars.extend(left.map(|point| ours(report, point, Ink::Ours)));
    bars.extend(report.auto.iter().map(|point| ours(report, point, Ink::Auto)));
    bars
}

fn ours(report: &RowReport, point: &Point, ink: Ink) -> FigureBar {
    FigureBar {
        name: point.setting.clone(),
        whose: if report.published.is_empty() { "" } else { ", Belfry" },
        ink,
        figure: point.figure.value(),
        spread: Some(point.spread).filter(|(least, most)| report.repetitions > 1 && least < most),
        floor: point.floor.as_ref().and_then(|floor| rate(report, floor)),
    }
}

/// The figure of a floor, where it is of the unit of the report.
fn rate(report: &RowReport, floor: &Floor) -> Option<f64> {
    floor.per_minute.filter(|rate| report.unit == Unit::PerMinute && rate.is_finite())
}

fn field(bars: &[FigureBar], floor: Option<f64>, body: Area) -> BarField {
    let widest = |texts: &mut dyn Iterator<Item = f64>| texts.fold(60.0, f64::max);
    let names = &mut bars.iter().map(|bar| width(&bar.name, LABEL_SIZE, false));
    let figures = &mut bars.iter().map(|bar| width(&words(bar), LABEL_SIZE, true));
    let (names, figures) = (widest(names).min(NAME_WIDTH_MAX) + GAP, widest(figures) + GAP);
    // A line for the label of the floor above the bars; ticks and a title below.
    let above = if floor.is_some() { 1.6 } else { 0.8 } * SMALL_SIZE * LEADING;
    let below = 2.4 * LABEL_SIZE * LEADING;
    let room = body.height - above - below;
    let count: f64 = bars.iter().map(|_| 1.0).sum::<f64>().max(1.0);
    let row = (room / count).clamp(ROW_MIN, ROW_MAX);
    let area = Area {
        left: body.left + names,
        top: body.top + above,
        width: body.width - names - figures,
        height: row * count,
    };
    BarField { scale: scale(bars, floor, &area), area, row }
}

fn scale(bars: &[FigureBar], floor: Option<f64>, area: &Area) -> Scale {
    let of = |bar: &FigureBar| {
        let (least, most) = bar.spread.unwrap_or((bar.figure, bar.figure));
        [bar.figure, least, most, bar.floor.unwrap_or(bar.figure)]
    };
    let values: Vec<f64> = bars.iter().flat_map(of).chain(floor).collect();
    let positive = ends(positive(&values));
    let is_log = positive.is_some_and(|(least, most)| most / least >= LINEAR_RATIO);
    let of = if is_log { Scale::log_of_lengths } else { Scale::linear };
    of(&values, area.left, area.right())
}

/// Where each row begins.
fn rows(field: &BarField) -> impl Iterator<Item = f64> + use<> {
    let (top, row) = (field.area.top, field.row);
    std::iter::successors(Some(top), move |at| Some(at + row))
}

/// Lines, ticks and title; where they end.
fn axis(report: &RowReport, field: &BarField, drawing: &mut Drawing) -> f64 {
    let BarField { scale, area, .. } = field;
    let line = LABEL_SIZE * LEADING;
    let ticks = scale.ticks();
    for value in &ticks {
        let at = scale.at(*value);
        drawing.line(Ink::Grid, Stroke::Hair, &[(at, area.top), (at, area.bottom())]);
    }
    for value in labelled(scale, &ticks) {
        let (at, anchor) = ((scale.at(value), area.bottom() + line), Anchor::Middle);
        drawing.caption(Caption { at, anchor, ..small(&tick(value)) });
    }
    let title = axis_title(report, scale, ["→", "←"]);
    let at = (area.left, area.bottom() + 2.1 * line);
    drawing.caption(Caption { at, ink: Ink::Text, ..small(&title) });
    drawing.line(Ink::Muted, Stroke::Hair, &[(area.left, area.top), (area.left, area.bottom())]);
    area.bottom() + 2.4 * line
}

/// The ticks that have room for a label: all, or the powers of ten, or as many of these as there is room for.
fn labelled(scale: &Scale, ticks: &[f64]) -> Vec<f64> {
    let fitting = |ticks: &mut dyn Iterator<Item = f64>| {
        let mut last = f64::NEG_INFINITY;
        let mut is_free = |value: &f64| {
            let (at, half) = (scale.at(*value), width(&tick(*value), SMALL_SIZE, false) / 2.0);
            let is_free = at - half > last;
            last = if is_free { at + half + GAP } else { last };
            is_free
        };
        ticks.filter(|value| is_free(value)).collect::<Vec<f64>>()
    };
    let all = fitting(&mut ticks.iter().copied());
    if all.len() == ticks.len() || !scale.is_log() {
        return all;
    }
    let powers = fitting(&mut ticks.iter().copied().filter(|value| is_power(*value)));
    if powers.len() > 1 { powers } else { all }
}

fn draw_bar(bar: &FigureBar, top: f64, field: &BarField, drawing: &mut Drawing) {
    let height = THICKNESS * field.row;
    let (left, top) = (field.area.left, top + (field.row - height) / 2.0);
    let (right, bottom) = (field.scale.at(bar.figure), top + height);
    if bar.figure > 0.0 {
        drawing.bar(bar.ink, (left, top), (right, bottom));
    }
    if let Some((least, most)) = bar.spread {
        let [least, most] = [least, most].map(|value| field.scale.at(value));
        let (middle, cap) = (f64::midpoint(top, bottom), height / 5.0);
        let ends = [least, most].map(|at| [(at, middle - cap), (at, middle + cap)]);
        for (ink, stroke) in [(Ink::Ground, Stroke::Rim), (Ink::Text, Stroke::Thin)] {
            drawing.line(ink, stroke, &[(least, middle), (most, middle)]);
            for end in &ends {
                drawing.line(ink, stroke, end);
            }
        }
    }
    if let Some(floor) = bar.floor {
        let at = field.scale.at(floor);
        drawing.line(Ink::Law, Stroke::Thick, &[(at, top - 3.0), (at, bottom + 3.0)]);
    }
}

fn draw_words(bar: &FigureBar, top: f64, field: &BarField, drawing: &mut Drawing) {
    let base = top + field.row / 2.0 + 0.36 * LABEL_SIZE;
    let name = fitting(&bar.name, LABEL_SIZE, false, NAME_WIDTH_MAX);
    let ink = if bar.ink == Ink::Theirs { Ink::Muted } else { Ink::Text };
    let at = (field.area.left - GAP, base);
    drawing.caption(Caption { at, anchor: Anchor::End, ..label(&name, ink) });
    let ends = [bar.figure, bar.spread.map_or(0.0, |it| it.1), bar.floor.unwrap_or(0.0)];
    let end = ends.into_iter().map(|value| field.scale.at(value)).fold(field.area.left, f64::max);
    let is_bold = bar.ink != Ink::Theirs;
    let text = words(bar);
    drawing.caption(Caption { at: (end + GAP, base), is_bold, ..label(&text, bar.ink) });
}

/// The label at the end of a bar.
fn words(bar: &FigureBar) -> String {
    let floor = bar.floor.map(|floor| format!(" (floor {})", figure(floor)));
    format!("{}{}{}", figure(bar.figure), bar.whose, floor.unwrap_or_default())
}

/// The floor of all bars.
fn draw_floor(floor: f64, field: &BarField, drawing: &mut Drawing) {
    let (at, area) = (field.scale.at(floor), &field.area);
    drawing.line(Ink::Law, Stroke::Dotted, &[(at, area.top - 4.0), (at, area.bottom())]);
    let text = format!("floor {}", figure(floor));
    let (anchor, size, at) = (Anchor::End, SMALL_SIZE, (at + GAP, area.top - 8.0));
    drawing.caption(Caption { at, size, anchor, ..label(&text, Ink::Law) });
}
