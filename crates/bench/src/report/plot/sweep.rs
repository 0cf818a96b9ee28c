//! Settings that are places in a sweep: lines over two logarithmic axes.

use super::drawing::{Anchor, Caption, Drawing, Spot, Stroke, width};
use super::place::{Area, LabelRoom, spread};
use super::scale::{Scale, ends, figure, tick};
use super::style::Ink;
use super::{LABEL_SIZE, LEADING, MARGIN, SMALL_SIZE, axis_title, label, small};
use crate::report::{RowReport, Scalability, Unit};

/// A place of a sweep and its figure.
type Plotted = (f64, f64);

/// The axes, and the room for labels between them and to their right.
#[derive(Debug)]
struct SweepField {
    x: Scale,
    y: Scale,
    area: Area,
    room: LabelRoom,
}

/// A label beside what it names, of two lines.
#[derive(Debug)]
struct SeriesLabel {
    ink: Ink,
    name: &'static str,
    figure: String,
    /// It stands beside one of these, best first.
    spots: Vec<Spot>,
}

/// Right of the axes, for labels.
const LABELS_WIDTH: f64 = 168.0;
/// Left of them, for ticks.
const TICKS_WIDTH: f64 = 92.0;
const GAP: f64 = 12.0;
/// A line that ends so close to the right edge has its label beyond that.
const EDGE: f64 = 40.0;
const LABEL_HEIGHT: f64 = 2.0 * LABEL_SIZE * LEADING;
/// Parts of the curve of the law.
const CURVE_PARTS: u32 = 96;

/// True if `report` is drawn as a sweep: it has several places, and each of its points has one.
pub(super) fn is_one(report: &RowReport) -> bool {
    let mut places = report.points.iter().map(|point| point.parallel.filter(|at| *at > 0.0));
    let first = places.next().flatten();
    let all = report.points.iter().all(|point| point.parallel.is_some_and(|at| at > 0.0));
    all && places.any(|place| place != first)
}

/// Draws `report` into `body`; where that ends.
pub(super) fn draw(report: &RowReport, body: Area, drawing: &mut Drawing) -> f64 {
    let mut field = field(report, body);
    axes(report, &field, drawing);
    let mut labels = levels(report, &mut field, drawing);
    labels.extend(series("published", Ink::Theirs, &theirs(report), (report, &mut field, drawing)));
    whiskers(report, &field, drawing);
    let ours_label =
        series("Belfry, fixed", Ink::Ours, &ours(report), (report, &mut field, drawing));
    if labels.is_empty() {
        // A line alone needs no name: each of its dots has its figure.
        values(&ours(report), &mut field, drawing);
    } else {
        labels.extend(ours_label);
    }
    let law = curve(report, &mut field, drawing);
    let is_at_edge =
        |label: &SeriesLabel| label.spots.iter().all(|spot| spot.0 + EDGE > field.area.right());
    let (edge, inside): (Vec<_>, Vec<_>) = labels.into_iter().partition(is_at_edge);
    place_at_edge(edge, &mut field, drawing);
    // The label of the curve is the last one: it may stand anywhere along it.
    for label in inside.iter().chain(&law) {
        let (places, width) = (around(label), label.width());
        let at = field.room.take(&places, width, LABEL_HEIGHT);
        draw_label(label, at, drawing);
    }
    body.bottom()
}

fn ours(report: &RowReport) -> Vec<Plotted> {
    let place = |point: &crate::report::Point| Some((point.parallel?, point.figure.value()));
    report.points.iter().filter_map(place).collect()
}

fn theirs(report: &RowReport) -> Vec<Plotted> {
    let place =
        |point: &crate::report::PublishedPoint| Some((point.parallel?, point.figure.value()));
    report.published.iter().filter_map(place).collect()
}

/// Figures that are the same for all places: `auto`, a floor, and what was published without a place.
fn flat(report: &RowReport) -> Vec<(Ink, &'static str, f64)> {
    let auto = report.auto.as_ref().map(|auto| (Ink::Auto, "auto", auto.figure.value()));
    let floor = report.floor.as_ref().and_then(|floor| floor.per_minute);
    let floor = floor.filter(|_| report.unit == Unit::PerMinute);
    let is_placed = report.published.iter().any(|point| point.parallel.is_some());
    let best = report.best_published().filter(|_| !is_placed);
    let floor = floor.map(|rate| (Ink::Law, "floor", rate));
    let best = best.map(|figure| (Ink::Theirs, "published", figure));
    auto.into_iter().chain(floor).chain(best).filter(|(_, _, value)| *value > 0.0).collect()
}

fn field(report: &RowReport, body: Area) -> SweepField {
    let (line, tick_line) = (SMALL_SIZE * LEADING, LABEL_SIZE * LEADING);
    let area = Area {
        left: body.left + TICKS_WIDTH,
        top: body.top + 2.0 * line,
        width: body.width - TICKS_WIDTH - LABELS_WIDTH,
        height: body.height - 2.0 * line - 2.4 * tick_line,
    };
    let all: Vec<Plotted> = ours(report).into_iter().chain(theirs(report)).collect();
    let spreads = report.points.iter().flat_map(|point| [point.spread.0, point.spread.1]);
    let spreads = spreads.filter(|_| report.repetitions > 1);
    let flat = flat(report).into_iter().map(|(_, _, value)| value);
    let figures: Vec<f64> = all.iter().map(|it| it.1).chain(spreads).chain(flat).collect();
    let places: Vec<f64> = all.iter().map(|it| it.0).collect();
    let room = Area { width: body.right() + MARGIN / 2.0 - area.left, ..area };
    SweepField {
        x: Scale::places(&places, area.left, area.right()),
        y: Scale::log(&figures, area.bottom(), area.top),
        area,
        room: LabelRoom::new(room),
    }
}

fn axes(report: &RowReport, field: &SweepField, drawing: &mut Drawing) {
    let SweepField { x, y, area, .. } = field;
    let line = LABEL_SIZE * LEADING;
    for value in y.ticks() {
        let (at, text) = (y.at(value), tick(value));
        drawing.line(Ink::Grid, Stroke::Hair, &[(area.left, at), (area.right(), at)]);
        let at = (area.left - GAP, at + 0.36 * SMALL_SIZE);
        drawing.caption(Caption { at, anchor: Anchor::End, ..small(&text) });
    }
    let bottom = area.bottom();
    drawing.line(Ink::Muted, Stroke::Hair, &[(area.left, bottom), (area.right(), bottom)]);
    let mut settings: Vec<f64> =
        ours(report).into_iter().chain(theirs(report)).map(|it| it.0).collect();
    settings.sort_unstable_by(f64::total_cmp);
    settings.dedup();
    let mut last = f64::NEG_INFINITY;
    for value in settings {
        let (at, text) = (x.at(value), tick(value));
        drawing.line(Ink::Muted, Stroke::Hair, &[(at, bottom), (at, bottom + 5.0)]);
        let half = width(&text, SMALL_SIZE, false) / 2.0;
        if at - half > last {
            let (at, anchor) = ((at, bottom + line + 2.0), Anchor::Middle);
            drawing.caption(Caption { at, anchor, ..small(&text) });
            last = at.0 + half + GAP / 2.0;
        }
    }
    let (middle, anchor) = (area.left + area.width / 2.0, Anchor::Middle);
    let title = format!("{}, logarithmic", x_title(report));
    let at = (middle, bottom + 2.1 * line);
    drawing.caption(Caption { at, anchor, ink: Ink::Text, ..small(&title) });
    let title = axis_title(report, y, ["↑", "↓"]);
    let at = (MARGIN, area.top - 0.8 * SMALL_SIZE);
    drawing.caption(Caption { at, ink: Ink::Text, ..small(&title) });
}

/// The quantity of a place of the sweep: the word that all settings have behind their number, or concurrency where it can be learned.
fn x_title(report: &RowReport) -> &str {
    let word = |setting: &'_ str| setting.split_once(' ').map(|(_, word)| word.to_owned());
    let first = report.points.first().and_then(|point| point.setting.split_once(' '));
    match first {
        Some((_, name))
            if report.points.iter().all(|it| word(&it.setting).as_deref() == Some(name)) =>
        {
            name
        }
        _ if report.auto.is_some() => "attempts under way at a time",
        _ => "setting",
    }
}

/// A line with dots through `places`, and its label.
fn series(
    name: &'static str,
    ink: Ink,
    places: &[Plotted],
    (report, field, drawing): (&RowReport, &mut SweepField, &mut Drawing),
) -> Option<SeriesLabel> {
    let spots: Vec<Spot> = places
        .iter()
        .filter(|(_, figure)| figure.is_finite() && *figure > 0.0)
        .map(|(at, figure)| (field.x.at(*at), field.y.at(*figure)))
        .collect();
    drawing.line(ink, Stroke::Thick, &spots);
    for spot in &spots {
        drawing.dot(ink, *spot);
    }
    // Nothing has no place on a logarithmic axis.
    for (at, _) in places.iter().filter(|(_, figure)| *figure <= 0.0) {
        let (at, anchor) = ((field.x.at(*at), field.area.bottom() - 6.0), Anchor::Middle);
        drawing.caption(Caption { at, anchor, is_bold: true, ..label("0", ink) });
    }
    field.room.draw(&spots);
    let best = report.unit.best(places.iter().map(|it| it.1).filter(|it| it.is_finite()))?;
    let last = *spots.last()?;
    let figure = format!("best {}", figure(best));
    Some(SeriesLabel { ink, name, figure, spots: vec![last] })
}

/// Lines over the whole width, and their labels.
fn levels(report: &RowReport, field: &mut SweepField, drawing: &mut Drawing) -> Vec<SeriesLabel> {
    let mut labels = Vec::new();
    for (ink, name, value) in flat(report) {
        let at = field.y.at(value);
        let line = [(field.area.left, at), (field.area.right(), at)];
        let stroke = if ink == Ink::Auto { Stroke::Dashed } else { Stroke::Dotted };
        drawing.line(ink, stroke, &line);
        field.room.draw(&line);
        let figure = figure(value);
        labels.push(SeriesLabel { ink, name, figure, spots: vec![(field.area.right(), at)] });
    }
    labels
}

/// The curve of the law, and its label.
fn curve(report: &RowReport, field: &mut SweepField, drawing: &mut Drawing) -> Option<SeriesLabel> {
    let law = report.scalability.as_ref()?;
    let (least, most) = ends(ours(report).into_iter().map(|it| it.0))?;
    let spots: Vec<Spot> = (0..=CURVE_PARTS)
        .map(|part| least * (most / least).powf(f64::from(part) / f64::from(CURVE_PARTS)))
        .map(|at| (field.x.at(at), field.y.at(by_law(law, report.unit, at))))
        .collect();
    drawing.line(Ink::Law, Stroke::Thin, &spots);
    field.room.draw(&spots);
    let knee = law.knee.filter(|knee| (least..=most).contains(knee));
    if let Some(knee) = knee {
        let (x, y) = (field.x.at(knee), field.y.at(by_law(law, report.unit, knee)));
        drawing.line(Ink::Law, Stroke::Thick, &[(x, y - 9.0), (x, y + 9.0)]);
    }
    let figure = match law.knee {
        None => "no knee".to_owned(),
        // So far from what was measured the law is a guess.
        Some(knee) if knee > most => format!("knee beyond {}", tick(most)),
        Some(knee) => format!("knee at {}", tick(knee.round())),
    };
    let middle = spots.iter().skip(spots.len() / 4).step_by(2).copied().collect();
    Some(SeriesLabel { ink: Ink::Law, name: "scalability law", figure, spots: middle })
}

/// The figure of `at` by the law.
fn by_law(law: &Scalability, unit: Unit, at: f64) -> f64 {
    let throughput = law.throughput(at);
    match unit {
        Unit::PerMinute => 60.0 * throughput,
        Unit::Seconds => 1.0 / throughput,
        Unit::MsPerOp => 1_000.0 * at / throughput,
    }
}

/// The least and the greatest of the runs of each point.
fn whiskers(report: &RowReport, field: &SweepField, drawing: &mut Drawing) {
    for point in report.points.iter().filter(|_| report.repetitions > 1) {
        let Some(at) = point.parallel else { continue };
        let (x, (least, most)) = (field.x.at(at), point.spread);
        let [least, most] = [least, most].map(|value| field.y.at(value));
        drawing.line(Ink::Text, Stroke::Thin, &[(x, least), (x, most)]);
    }
}

/// The figure of each of `places`.
fn values(places: &[Plotted], field: &mut SweepField, drawing: &mut Drawing) {
    let height = LABEL_SIZE * LEADING;
    for (at, value) in places.iter().filter(|(_, value)| *value > 0.0) {
        let (text, (x, y)) = (figure(*value), (field.x.at(*at), field.y.at(*value)));
        let width = width(&text, LABEL_SIZE, true);
        let (left, above) = (x - width - GAP, y - height - GAP);
        let places = [(x - width / 2.0, above), (left, y - height), (x + GAP, y), (left, y + GAP)];
        let (left, top) = field.room.take(&places, width, height);
        let value = Caption { is_bold: true, ..label(&text, Ink::Ours) };
        drawing.caption(Caption { at: (left, top + 0.8 * height), ..value });
    }
}

/// Draws the labels of lines that end at the right edge, in the order of these.
fn place_at_edge(mut labels: Vec<SeriesLabel>, field: &mut SweepField, drawing: &mut Drawing) {
    let height_of = |label: &SeriesLabel| label.spots.first().map_or(0.0, |spot| spot.1);
    labels.sort_by(|one, other| height_of(one).total_cmp(&height_of(other)));
    let wanted: Vec<f64> =
        labels.iter().map(|label| height_of(label) - LABEL_HEIGHT / 2.0).collect();
    let tops = spread(&wanted, LABEL_HEIGHT, field.area);
    for (label, top) in labels.iter().zip(tops) {
        let left = field.area.right() + GAP / 2.0;
        let at = field.room.take(&[(left, top)], label.width(), LABEL_HEIGHT);
        draw_label(label, at, drawing);
    }
}

/// Upper left corners of `label` close to what it names.
fn around(label: &SeriesLabel) -> Vec<Spot> {
    let (width, height) = (label.width(), LABEL_HEIGHT);
    let mut places = Vec::new();
    for (x, y) in &label.spots {
        let (left, above) = (x - width - GAP, y - height - GAP / 2.0);
        let (right, below) = (x + GAP, y + GAP / 2.0);
        places.push((right, y - height / 2.0));
        places.extend([(right, below), (left, above), (right, above), (left, below)]);
        places.extend([(x - width / 2.0, above), (x - width / 2.0, below)]);
    }
    places
}

fn draw_label(series: &SeriesLabel, (left, top): Spot, drawing: &mut Drawing) {
    let line = LABEL_SIZE * LEADING;
    let (first, second) = (top + 0.8 * line, top + 1.8 * line);
    let name = Caption { is_bold: true, ..label(series.name, series.ink) };
    drawing.caption(Caption { at: (left, first), ..name });
    drawing.caption(Caption { at: (left, second), ..label(&series.figure, series.ink) });
}

// === impl SeriesLabel ===

impl SeriesLabel {
    fn width(&self) -> f64 {
        width(self.name, LABEL_SIZE, true).max(width(&self.figure, LABEL_SIZE, false))
    }
}
