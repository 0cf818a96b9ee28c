//! Settings that are places in a sweep: lines over two logarithmic axes.

use super::drawing::{Anchor, Caption, Drawing, Spot, Stroke, width};
use super::place::{Area, LabelRoom};
use super::scale::{Scale, ends, figure, tick};
use super::style::Ink;
use super::{LABEL_SIZE, LEADING, MARGIN, SMALL_SIZE, axis_title, label, small};
use crate::report::{RowReport, Scalability, Unit};

/// A place of a sweep and its figure.
type SweepPoint = (f64, f64);

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
    name: String,
    figure: String,
    /// Where it may stand, best first: its upper left corner.
    places: Vec<Spot>,
}

/// Right of the axes, for labels.
const LABELS_WIDTH: f64 = 168.0;
/// Left of them, for ticks.
const TICKS_WIDTH: f64 = 92.0;
const GAP: f64 = 12.0;
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
    let law = curve(report, &mut field, drawing);
    let mut labels = levels(report, &mut field, drawing);
    labels.extend(series("published", Ink::Theirs, &theirs(report), (report, &mut field, drawing)));
    whiskers(report, &field, drawing);
    labels.extend(series("Belfry, fixed", Ink::Ours, &ours(report), (report, &mut field, drawing)));
    // The label of the curve is the last one: it may stand anywhere along it.
    for label in labels.iter().chain(&law) {
        place(label, &mut field.room, drawing);
    }
    body.bottom()
}

fn ours(report: &RowReport) -> Vec<SweepPoint> {
    let place = |point: &crate::report::Point| Some((point.parallel?, point.figure.value()));
    report.points.iter().filter_map(place).collect()
}

fn theirs(report: &RowReport) -> Vec<SweepPoint> {
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
    let all: Vec<SweepPoint> = ours(report).into_iter().chain(theirs(report)).collect();
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

/// The name of a place of the sweep: the word that all settings have behind their number, or concurrency where it can be learned.
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
    name: &str,
    ink: Ink,
    places: &[SweepPoint],
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
    Some(SeriesLabel { ink, places: around(last, name, &figure), name: name.into(), figure })
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
        let places = around((field.area.right() - GAP / 2.0, at), name, &figure);
        labels.push(SeriesLabel { ink, name: name.into(), figure, places });
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
    let figure =
        law.knee.map_or("no knee".into(), |knee| format!("knee at {}", tick(knee.round())));
    let name = "scalability law";
    let middle = spots.iter().skip(spots.len() / 4).step_by(4);
    let places = middle.flat_map(|spot| around(*spot, name, &figure)).collect();
    Some(SeriesLabel { ink: Ink::Law, name: name.into(), figure, places })
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

/// Upper left corners of a label beside `spot`: right of it, higher and lower there, then above, below and left.
fn around(spot: Spot, name: &str, figure: &str) -> Vec<Spot> {
    let (x, y) = spot;
    let (width, height) = size(name, figure);
    let right = [0.0, -14.0, 14.0, -28.0, 28.0, -42.0, 42.0, -56.0, 56.0, -84.0, 84.0];
    let mut places: Vec<Spot> = right.map(|shift| (x + GAP, y - height / 2.0 + shift)).to_vec();
    for shift in [GAP, 3.0 * GAP] {
        places.push((x - width / 2.0, y - height - shift));
        places.push((x - width / 2.0, y + shift));
        places.push((x - width - shift, y - height - shift));
        places.push((x + shift, y + shift));
        places.push((x - width - shift, y - height / 2.0));
    }
    places
}

fn size(name: &str, figure: &str) -> (f64, f64) {
    let width = width(name, LABEL_SIZE, true).max(width(figure, LABEL_SIZE, false));
    (width, 2.0 * LABEL_SIZE * LEADING)
}

fn place(series: &SeriesLabel, room: &mut LabelRoom, drawing: &mut Drawing) {
    let SeriesLabel { ink, name, figure, places } = series;
    let (width, height) = size(name, figure);
    let (left, top) = room.take(places, width, height);
    let line = LABEL_SIZE * LEADING;
    let at = (left, top + 0.8 * line);
    drawing.caption(Caption { at, is_bold: true, ..label(name, *ink) });
    drawing.caption(Caption { at: (left, at.1 + line), ..label(figure, *ink) });
}
