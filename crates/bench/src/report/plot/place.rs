//! Places for labels, where they cover neither figures nor each other.

use super::drawing::Spot;

/// A rectangle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The room for labels, and what is in it.
#[derive(Debug, Clone)]
pub(super) struct LabelRoom {
    within: Area,
    taken: Vec<Area>,
    drawn: Vec<Spot>,
}

/// Distance of the spots that stand for a line, pixels.
const SPACING: f64 = 3.0;
/// Spots of a line, at most: a line is never longer than a drawing is wide.
const SPOTS_MAX: f64 = 1_000.0;

/// Upper edges of labels of `height` below each other in `within`, as close to those that are `wanted` as they can be, from the highest
/// down. `wanted` is in that order.
pub(super) fn spread(wanted: &[f64], height: f64, within: Area) -> Vec<f64> {
    // Labels that would overlap form a block about the mean of their places.
    let mut blocks: Vec<Vec<f64>> = Vec::new();
    let top_of = |block: &[f64]| {
        let (mut sum, mut count) = (0.0, 0.0);
        for wanted in block {
            sum += wanted - count * height;
            count += 1.0;
        }
        let last = within.bottom() - count * height;
        (sum / count).min(last).max(within.top)
    };
    let height_of = |block: &[f64]| block.iter().map(|_| height).sum::<f64>();
    for wanted in wanted {
        let mut block = vec![*wanted];
        while let Some(above) = blocks.pop_if(|it| top_of(it) + height_of(it) > top_of(&block)) {
            block = [above, block].concat();
        }
        blocks.push(block);
    }
    let tops = |block: &Vec<f64>| {
        let first = top_of(block);
        let next = move |top: &f64| Some(top + height);
        std::iter::successors(Some(first), next).take(block.len()).collect::<Vec<f64>>()
    };
    blocks.iter().flat_map(tops).collect()
}

// === impl Area ===

impl Area {
    pub(super) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    fn has(&self, (x, y): Spot) -> bool {
        (self.left..=self.right()).contains(&x) && (self.top..=self.bottom()).contains(&y)
    }

    fn is_over(&self, other: &Self) -> bool {
        self.left < other.right()
            && other.left < self.right()
            && self.top < other.bottom()
            && other.top < self.bottom()
    }

    /// Moved into `room`, as far as it fits.
    fn moved_into(self, room: &Self) -> Self {
        let left = self.left.min(room.right() - self.width).max(room.left);
        let top = self.top.min(room.bottom() - self.height).max(room.top);
        Self { left, top, ..self }
    }
}

// === impl LabelRoom ===

impl LabelRoom {
    pub(super) const fn new(within: Area) -> Self {
        Self { within, taken: Vec::new(), drawn: Vec::new() }
    }

    /// Notes what a line through `spots` covers.
    pub(super) fn draw(&mut self, spots: &[Spot]) {
        self.drawn.extend(spots);
        for pair in spots.windows(2) {
            let [from, to] = pair else { continue };
            let length = (to.0 - from.0).hypot(to.1 - from.1);
            let parts = (length / SPACING).ceil().min(SPOTS_MAX);
            let next = |part: &f64| Some(part + 1.0);
            for part in std::iter::successors(Some(1.0), next).take_while(|part| *part < parts) {
                let share = part / parts;
                let between = |from: f64, to: f64| from + share * (to - from);
                self.drawn.push((between(from.0, to.0), between(from.1, to.1)));
            }
        }
    }

    /// Takes the first of `places` for the upper left corner of a label of `width` and `height` that covers nothing, else the one that
    /// covers least. None of it is outside of the room.
    pub(super) fn take(&mut self, places: &[Spot], width: f64, height: f64) -> Spot {
        let area = |(left, top): &Spot| {
            Area { left: *left, top: *top, width, height }.moved_into(&self.within)
        };
        let best = places.iter().map(area).min_by_key(|area| self.covered(area));
        let Some(best) = best else { return (self.within.left, self.within.top) };
        self.taken.push(best);
        (best.left, best.top)
    }

    /// How much of what is there `area` covers. A label counts for more than any line.
    fn covered(&self, area: &Area) -> usize {
        let labels = self.taken.iter().filter(|taken| taken.is_over(area)).count();
        let spots = self.drawn.iter().filter(|spot| area.has(**spot)).count();
        labels * 10_000 + spots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room() -> LabelRoom {
        LabelRoom::new(Area { left: 0.0, top: 0.0, width: 100.0, height: 100.0 })
    }

    #[test]
    fn a_label_covers_neither_a_line_nor_another_label() {
        let mut room = room();
        room.draw(&[(0.0, 15.0), (100.0, 15.0)]);
        let places = [(10.0, 10.0), (10.0, 30.0), (10.0, 60.0)];
        assert_eq!(room.take(&places, 40.0, 10.0), (10.0, 30.0));
        assert_eq!(room.take(&places, 40.0, 10.0), (10.0, 60.0));
        assert_eq!(room.take(&places, 40.0, 10.0), (10.0, 10.0), "a line is the lesser evil");
    }

    #[test]
    fn labels_at_the_edge_keep_their_order_and_do_not_overlap() {
        let within = room().within;
        assert_eq!(spread(&[10.0, 50.0], 20.0, within), [10.0, 50.0]);
        assert_eq!(spread(&[40.0, 40.0], 20.0, within), [30.0, 50.0]);
        assert_eq!(spread(&[0.0, 5.0, 50.0], 20.0, within), [0.0, 20.0, 50.0]);
        assert_eq!(spread(&[50.0, 95.0, 95.0], 20.0, within), [40.0, 60.0, 80.0]);
        assert_eq!(spread(&[], 20.0, within), [0.0; 0]);
    }

    #[test]
    fn a_label_is_moved_into_the_room() {
        let mut room = room();
        assert_eq!(room.take(&[(90.0, -20.0)], 40.0, 10.0), (60.0, 0.0));
        assert_eq!(room.take(&[(-5.0, 200.0)], 40.0, 10.0), (0.0, 90.0));
    }
}
