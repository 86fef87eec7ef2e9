//! Places labels beside points so that they do not overlap.
//!
//! Placement is greedy: the points with most neighbours first, each label at the cheapest of about a thousand positions around its point.
//! Covering another label costs most; covering a point or a leader line, and distance, cost less. A label that is away from its point is
//! connected to it by a leader line.
//!
//! ```
//! use rung_figure::figure::label::{Label, overlap_count, place};
//! use rung_figure::figure::svg::Area;
//!
//! let labels = [(50.0, 50.0), (52.0, 51.0)].map(|point| Label { point, text: "a model".to_owned() });
//! let placed = place(&labels, 12.0, 4.0, Area::new(0.0, 0.0, 200.0, 100.0));
//! assert_eq!((placed.len(), overlap_count(&placed)), (2, 0));
//! ```

use super::svg::Area;
use super::text;

/// Distance between two rings of candidate positions, in pixels.
const RING_STEP: f64 = 9.0;
/// Number of rings.
const RINGS: u32 = 42;

/// A point and its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Label {
    /// The point.
    pub point: (f64, f64),
    /// Its name.
    pub text: String,
}

/// The position of a label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlacedLabel {
    /// The area of its text.
    pub area: Area,
    /// The leader line from the point to a label that is not directly beside it.
    pub leader: Option<Segment>,
}

/// A straight line between two points.
pub type Segment = ((f64, f64), (f64, f64));

/// Places labels of font size `size` around points drawn with `radius`, inside `bounds`. The result is in the order of the labels.
pub fn place(labels: &[Label], size: f64, radius: f64, bounds: Area) -> Vec<PlacedLabel> {
    let neighbour_count = |label: &Label| {
        let near = |other: &&Label| {
            (other.point.0 - label.point.0).abs() < 110.0 && (other.point.1 - label.point.1).abs() < 60.0
        };
        labels.iter().filter(near).count()
    };
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(neighbour_count(&labels[index])));
    let around =
        |&(x, y): &(f64, f64)| Area::new(x - radius - 1.0, y - radius - 1.0, 2.0 * radius + 2.0, 2.0 * radius + 2.0);
    let points: Vec<Area> = labels.iter().map(|label| around(&label.point)).collect();
    let mut placed: Vec<Option<PlacedLabel>> = vec![None; labels.len()];
    for index in order {
        let scored = candidates(&labels[index], size, radius, bounds).into_iter().map(|candidate| {
            let length = candidate.leader.map_or(0.0, |((x1, y1), (x2, y2))| (x2 - x1).hypot(y2 - y1));
            (cost(&candidate, index, &points, &placed) as f64 + length / 12.0, candidate)
        });
        // A label that is wider than the bounds is centred on its point.
        let fallback = PlacedLabel { area: centred(labels[index].point, extent(&labels[index], size)), leader: None };
        let best = scored.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(fallback, |(_, candidate)| candidate);
        placed[index] = Some(best);
    }
    placed.into_iter().flatten().collect()
}

/// The number of pairs of labels that overlap: 0, unless there are far too many points.
pub fn overlap_count(placed: &[PlacedLabel]) -> usize {
    let pairs =
        |index: usize| placed[..index].iter().filter(|other| areas_overlap(placed[index].area, other.area)).count();
    (0..placed.len()).map(pairs).sum()
}

/// Width and height of a label.
fn extent(label: &Label, size: f64) -> (f64, f64) {
    (text::width(&label.text, size, false) + 4.0, size + 3.0)
}

fn centred((x, y): (f64, f64), (width, height): (f64, f64)) -> Area {
    Area::new(x - width / 2.0, y - height / 2.0, width, height)
}

/// Positions around a point inside the bounds, nearest first.
fn candidates(label: &Label, size: f64, radius: f64, bounds: Area) -> Vec<PlacedLabel> {
    let (width, height) = extent(label, size);
    let mut candidates = Vec::new();
    for ring in 0..RINGS {
        let distance = radius + 3.0 + f64::from(ring) * RING_STEP;
        let steps = if ring == 0 { 8 } else { 32 };
        for step in 0..steps {
            let angle = std::f64::consts::TAU * f64::from(step) / f64::from(steps);
            // The distance is to the label's nearest edge, not to its centre.
            let (x, y) = label.point;
            let centre = (x + angle.cos() * (distance + width / 2.0), y + angle.sin() * (distance + height / 2.0));
            let area = centred(centre, (width, height));
            let inside = area.x > bounds.x + 2.0
                && area.right() < bounds.right() - 2.0
                && area.y > bounds.y + 2.0
                && area.bottom() < bounds.bottom() - 2.0;
            if inside {
                let end = (label.point.0.clamp(area.x, area.right()), label.point.1.clamp(area.y, area.bottom()));
                candidates.push(PlacedLabel { area, leader: (ring > 0).then_some((label.point, end)) });
            }
        }
    }
    candidates
}

/// The cost of what a position covers, without distance; `own_index` is the index of the label's point.
fn cost(candidate: &PlacedLabel, own_index: usize, points: &[Area], placed: &[Option<PlacedLabel>]) -> usize {
    let mut sum = 0;
    for (index, point) in points.iter().enumerate() {
        let crossed = candidate.leader.is_some_and(|leader| index != own_index && segment_crosses(*point, leader));
        sum += 90 * usize::from(areas_overlap(candidate.area, *point)) + 60 * usize::from(crossed);
    }
    for other in placed.iter().flatten() {
        sum += 1000 * usize::from(areas_overlap(candidate.area, other.area));
        sum += 90 * usize::from(candidate.leader.is_some_and(|leader| segment_crosses(other.area, leader)));
        if let Some(leader) = other.leader {
            sum += 90 * usize::from(segment_crosses(candidate.area, leader));
            sum += 10 * usize::from(candidate.leader.is_some_and(|own_leader| segments_cross(own_leader, leader)));
        }
    }
    sum
}

fn areas_overlap(first: Area, second: Area) -> bool {
    first.x < second.right() && second.x < first.right() && first.y < second.bottom() && second.y < first.bottom()
}

/// Whether a segment passes through an area (clipping by Liang and Barsky).
fn segment_crosses(area: Area, ((x1, y1), (x2, y2)): Segment) -> bool {
    let (dx, dy) = (x2 - x1, y2 - y1);
    let (mut from, mut to) = (0.0_f64, 1.0_f64);
    for (step, distance) in [(-dx, x1 - area.x), (dx, area.right() - x1), (-dy, y1 - area.y), (dy, area.bottom() - y1)]
    {
        if step == 0.0 {
            if distance < 0.0 {
                return false;
            }
        } else if step < 0.0 {
            from = from.max(distance / step);
        } else {
            to = to.min(distance / step);
        }
    }
    from < to
}

fn segments_cross(a: Segment, b: Segment) -> bool {
    // Positive if r is to one side of the line from p to q, negative on the other.
    let cross = |p: (f64, f64), q: (f64, f64), r: (f64, f64)| (q.0 - p.0) * (r.1 - p.1) - (q.1 - p.1) * (r.0 - p.0);
    cross(a.0, a.1, b.0) * cross(a.0, a.1, b.1) < 0.0 && cross(b.0, b.1, a.0) * cross(b.0, b.1, a.1) < 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_many_close_points_do_not_overlap() {
        let point = |index: u32| (400.0 + f64::from(index % 7) * 6.0, 300.0 + f64::from(index / 7) * 6.0);
        let labels: Vec<Label> =
            (0..40).map(|index| Label { point: point(index), text: format!("model {index}") }).collect();
        let bounds = Area::new(0.0, 0.0, 900.0, 600.0);
        let placed = place(&labels, 13.0, 5.0, bounds);
        assert_eq!((placed.len(), overlap_count(&placed)), (40, 0));
        let inside = |label: &PlacedLabel| label.area.x > 0.0 && label.area.right() < 900.0;
        assert!(placed.iter().all(inside));
        assert!(place(&[], 13.0, 5.0, bounds).is_empty());
    }

    #[test]
    fn a_label_wider_than_the_bounds_is_placed_on_its_point() {
        let label = Label { point: (20.0, 20.0), text: "much wider than the page".to_owned() };
        let placed = place(&[label], 13.0, 5.0, Area::new(0.0, 0.0, 40.0, 40.0));
        assert!(placed[0].leader.is_none() && overlap_count(&placed) == 0);
    }

    #[test]
    fn crossings_of_segments_and_areas_are_detected() {
        let area = Area::new(10.0, 10.0, 10.0, 10.0);
        assert!(
            segment_crosses(area, ((0.0, 15.0), (30.0, 15.0))) && !segment_crosses(area, ((0.0, 5.0), (30.0, 5.0)))
        );
        assert!(
            segment_crosses(area, ((15.0, 0.0), (15.0, 30.0))) && !segment_crosses(area, ((0.0, 0.0), (5.0, 30.0)))
        );
        assert!(segments_cross(((0.0, 0.0), (2.0, 2.0)), ((0.0, 2.0), (2.0, 0.0))));
        assert!(!segments_cross(((0.0, 0.0), (1.0, 0.0)), ((0.0, 1.0), (1.0, 1.0))));
    }
}
