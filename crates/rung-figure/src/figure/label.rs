//! Labels beside points, none upon another.
//!
//! Placement is greedy: the most crowded points first, each label at the cheapest of some thousand positions around its point. What
//! costs: covering another label (most), a point or a leader line, and distance. A label that had to move away is joined to its point
//! by a leader line.
//!
//! ```
//! use rung_figure::figure::label::{Label, overlaps, place};
//! use rung_figure::figure::svg::Area;
//!
//! let labels = [(50.0, 50.0), (52.0, 51.0)].map(|at| Label { at, text: "a model".to_owned() });
//! let placed = place(&labels, 12.0, 4.0, Area::new(0.0, 0.0, 200.0, 100.0));
//! assert_eq!((placed.len(), overlaps(&placed)), (2, 0));
//! ```

use super::svg::Area;
use super::text;

/// Distance between two circles of candidate positions, in pixels.
const RING_STEP: f64 = 9.0;
/// How many such circles there are.
const RINGS: u32 = 42;

/// A point that is to be named.
#[derive(Debug, Clone, PartialEq)]
pub struct Label {
    /// The point.
    pub at: (f64, f64),
    /// Its name.
    pub text: String,
}

/// Where a label stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlacedLabel {
    /// What its letters cover.
    pub area: Area,
    /// The line from the point to it, where it stands away from the point.
    pub leader: Option<Segment>,
}

/// A straight line between two points.
pub type Segment = ((f64, f64), (f64, f64));

/// Places labels in letters of `size` around points drawn with `radius`, inside `bounds`. One for each label, in their order.
pub fn place(labels: &[Label], size: f64, radius: f64, bounds: Area) -> Vec<PlacedLabel> {
    let crowd = |label: &Label| {
        let near = |other: &&Label| (other.at.0 - label.at.0).abs() < 110.0 && (other.at.1 - label.at.1).abs() < 60.0;
        labels.iter().filter(near).count()
    };
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(crowd(&labels[index])));
    let around =
        |&(x, y): &(f64, f64)| Area::new(x - radius - 1.0, y - radius - 1.0, 2.0 * radius + 2.0, 2.0 * radius + 2.0);
    let points: Vec<Area> = labels.iter().map(|label| around(&label.at)).collect();
    let mut placed: Vec<Option<PlacedLabel>> = vec![None; labels.len()];
    for index in order {
        let scored = candidates(&labels[index], size, radius, bounds).into_iter().map(|candidate| {
            let length = candidate.leader.map_or(0.0, |((x1, y1), (x2, y2))| (x2 - x1).hypot(y2 - y1));
            (cost(&candidate, index, &points, &placed) as f64 + length / 12.0, candidate)
        });
        // A label that is wider than the page stands on its point.
        let fallback = PlacedLabel { area: centred(labels[index].at, extent(&labels[index], size)), leader: None };
        let best = scored.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(fallback, |(_, candidate)| candidate);
        placed[index] = Some(best);
    }
    placed.into_iter().flatten().collect()
}

/// Pairs of labels that overlap: none, unless there are far too many points.
pub fn overlaps(placed: &[PlacedLabel]) -> usize {
    let pairs = |index: usize| placed[..index].iter().filter(|other| meet(placed[index].area, other.area)).count();
    (0..placed.len()).map(pairs).sum()
}

fn extent(label: &Label, size: f64) -> (f64, f64) {
    (text::width(&label.text, size, false) + 4.0, size + 3.0)
}

fn centred((x, y): (f64, f64), (width, height): (f64, f64)) -> Area {
    Area::new(x - width / 2.0, y - height / 2.0, width, height)
}

/// Positions around a point inside the bounds, nearest first.
fn candidates(label: &Label, size: f64, radius: f64, bounds: Area) -> Vec<PlacedLabel> {
    let (width, height) = extent(label, size);
    let mut found = Vec::new();
    for ring in 0..RINGS {
        let reach = radius + 3.0 + f64::from(ring) * RING_STEP;
        let steps = if ring == 0 { 8 } else { 32 };
        for step in 0..steps {
            let angle = std::f64::consts::TAU * f64::from(step) / f64::from(steps);
            // The label's nearest edge, not its middle, stands at that distance.
            let middle =
                (label.at.0 + angle.cos() * (reach + width / 2.0), label.at.1 + angle.sin() * (reach + height / 2.0));
            let area = centred(middle, (width, height));
            let inside = area.x > bounds.x + 2.0
                && area.right() < bounds.right() - 2.0
                && area.y > bounds.y + 2.0
                && area.bottom() < bounds.bottom() - 2.0;
            if inside {
                let end = (label.at.0.clamp(area.x, area.right()), label.at.1.clamp(area.y, area.bottom()));
                found.push(PlacedLabel { area, leader: (ring > 0).then_some((label.at, end)) });
            }
        }
    }
    found
}

/// What a position covers, in points of cost; other labels weigh most.
fn cost(candidate: &PlacedLabel, own: usize, points: &[Area], placed: &[Option<PlacedLabel>]) -> usize {
    let mut sum = 0;
    for (index, point) in points.iter().enumerate() {
        let hit = candidate.leader.is_some_and(|leader| index != own && crosses(*point, leader));
        sum += 90 * usize::from(meet(candidate.area, *point)) + 60 * usize::from(hit);
    }
    for other in placed.iter().flatten() {
        sum += 1000 * usize::from(meet(candidate.area, other.area));
        sum += 90 * usize::from(candidate.leader.is_some_and(|leader| crosses(other.area, leader)));
        if let Some(leader) = other.leader {
            sum += 90 * usize::from(crosses(candidate.area, leader));
            sum += 10 * usize::from(candidate.leader.is_some_and(|own| segments_cross(own, leader)));
        }
    }
    sum
}

fn meet(one: Area, other: Area) -> bool {
    one.x < other.right() && other.x < one.right() && one.y < other.bottom() && other.y < one.bottom()
}

/// Whether a segment passes through an area (clipping by Liang and Barsky).
fn crosses(area: Area, ((x1, y1), (x2, y2)): Segment) -> bool {
    let (dx, dy) = (x2 - x1, y2 - y1);
    let (mut from, mut to) = (0.0_f64, 1.0_f64);
    for (step, room) in [(-dx, x1 - area.x), (dx, area.right() - x1), (-dy, y1 - area.y), (dy, area.bottom() - y1)] {
        if step == 0.0 {
            if room < 0.0 {
                return false;
            }
        } else if step < 0.0 {
            from = from.max(room / step);
        } else {
            to = to.min(room / step);
        }
    }
    from < to
}

fn segments_cross(a: Segment, b: Segment) -> bool {
    let side = |p: (f64, f64), q: (f64, f64), r: (f64, f64)| (q.0 - p.0) * (r.1 - p.1) - (q.1 - p.1) * (r.0 - p.0);
    side(a.0, a.1, b.0) * side(a.0, a.1, b.1) < 0.0 && side(b.0, b.1, a.0) * side(b.0, b.1, a.1) < 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_of_points_is_named_without_overlaps() {
        let at = |index: u32| (400.0 + f64::from(index % 7) * 6.0, 300.0 + f64::from(index / 7) * 6.0);
        let labels: Vec<Label> = (0..40).map(|index| Label { at: at(index), text: format!("model {index}") }).collect();
        let bounds = Area::new(0.0, 0.0, 900.0, 600.0);
        let placed = place(&labels, 13.0, 5.0, bounds);
        assert_eq!((placed.len(), overlaps(&placed)), (40, 0));
        let inside = |label: &PlacedLabel| label.area.x > 0.0 && label.area.right() < 900.0;
        assert!(placed.iter().all(inside));
        assert!(place(&[], 13.0, 5.0, bounds).is_empty());
    }

    #[test]
    fn a_label_that_is_too_wide_stands_on_its_point() {
        let label = Label { at: (20.0, 20.0), text: "much wider than the page".to_owned() };
        let placed = place(&[label], 13.0, 5.0, Area::new(0.0, 0.0, 40.0, 40.0));
        assert!(placed[0].leader.is_none() && overlaps(&placed) == 0);
    }

    #[test]
    fn segments_and_areas_meet_where_they_do() {
        let area = Area::new(10.0, 10.0, 10.0, 10.0);
        assert!(crosses(area, ((0.0, 15.0), (30.0, 15.0))) && !crosses(area, ((0.0, 5.0), (30.0, 5.0))));
        assert!(crosses(area, ((15.0, 0.0), (15.0, 30.0))) && !crosses(area, ((0.0, 0.0), (5.0, 30.0))));
        assert!(segments_cross(((0.0, 0.0), (2.0, 2.0)), ((0.0, 2.0), (2.0, 0.0))));
        assert!(!segments_cross(((0.0, 0.0), (1.0, 0.0)), ((0.0, 1.0), (1.0, 1.0))));
    }
}
