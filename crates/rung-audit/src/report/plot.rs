//! The plot: cache bytes against rungs, one labelled point per model.
//!
//! Bytes are on a logarithmic axis; rungs on one that is logarithmic in 1 + rungs, because half of all models stand
//! between 0 and 12. Labels are placed greedily: the most crowded points first, each at the nearest free place around
//! its point, joined to it by a thin line where it had to move away. A place is free if it touches no label, no point
//! and no line that is already there.

use std::fmt::Write;

use super::{bytes, html::escape};
use crate::{Attention, Audit};

const WIDTH: f64 = 1500.0;
const HEIGHT: f64 = 1050.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 96.0;
const BOTTOM: f64 = 70.0;
const FONT: f64 = 13.0;
/// Width of a letter, a little generous: labels are mostly digits and small letters.
const LETTER: f64 = FONT * 0.61;
const RADIUS: f64 = 5.0;

/// What kind of stack it is: decides the colour.
fn family(audit: &Audit) -> usize {
    let any = |test: &dyn Fn(&crate::AuditLayer) -> bool| audit.layers.iter().any(test);
    let full = any(&|layer| layer.is_full());
    let recurrent = any(&|layer| layer.recurrent.is_some());
    let window = any(&|layer| layer.attention == Some(Attention::Window));
    let sparse = any(&|layer| layer.attention == Some(Attention::Sparse));
    match (full, recurrent, window) {
        _ if sparse => 3,
        (false, _, _) => 4,
        (true, true, _) => 1,
        (true, false, true) => 2,
        (true, false, false) => 0,
    }
}

const FAMILIES: [(&str, &str); 5] = [
    ("full in every layer", "#2456a6"),
    ("full and recurrent", "#0b7a75"),
    ("full and window", "#c77d00"),
    ("sparse", "#7b3fa0"),
    ("nothing full", "#c62828"),
];

/// A point with its label.
struct Spot {
    x: f64,
    y: f64,
    label: String,
    colour: &'static str,
}

/// A rectangle: left, top, right, bottom.
#[derive(Clone, Copy)]
struct Frame(f64, f64, f64, f64);

impl Frame {
    fn touches(self, other: Self) -> bool {
        self.0 < other.2 && other.0 < self.2 && self.1 < other.3 && other.1 < self.3
    }

    /// Whether a line segment passes through it (Liang and Barsky's clipping).
    fn crosses(self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> bool {
        let (dx, dy) = (x2 - x1, y2 - y1);
        let (mut from, mut to) = (0.0_f64, 1.0_f64);
        for (step, room) in [(-dx, x1 - self.0), (dx, self.2 - x1), (-dy, y1 - self.1), (dy, self.3 - y1)] {
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

    /// The point of it that is nearest to another.
    fn nearest(self, (x, y): (f64, f64)) -> (f64, f64) {
        (x.clamp(self.0, self.2), y.clamp(self.1, self.3))
    }
}

fn segments_cross(a: ((f64, f64), (f64, f64)), b: ((f64, f64), (f64, f64))) -> bool {
    let side = |p: (f64, f64), q: (f64, f64), r: (f64, f64)| (q.0 - p.0) * (r.1 - p.1) - (q.1 - p.1) * (r.0 - p.0);
    side(a.0, a.1, b.0) * side(a.0, a.1, b.1) < 0.0 && side(b.0, b.1, a.0) * side(b.0, b.1, a.1) < 0.0
}

/// A label's place, and the line that leads to it.
struct Placed {
    frame: Frame,
    line: Option<((f64, f64), (f64, f64))>,
}

/// Places every label; they never touch each other.
fn place(spots: &[Spot]) -> Vec<Placed> {
    let crowd = |spot: &Spot| {
        spots.iter().filter(|other| (other.x - spot.x).abs() < 110.0 && (other.y - spot.y).abs() < 60.0).count()
    };
    let mut order: Vec<usize> = (0..spots.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(crowd(&spots[index])));
    let mut placed: Vec<Option<Placed>> = spots.iter().map(|_| None).collect();
    let dots: Vec<Frame> = spots
        .iter()
        .map(|spot| Frame(spot.x - RADIUS - 1.0, spot.y - RADIUS - 1.0, spot.x + RADIUS + 1.0, spot.y + RADIUS + 1.0))
        .collect();
    for index in order {
        let scored = candidates(&spots[index]).into_iter().map(|candidate| {
            let length = candidate.line.map_or(0.0, |((x1, y1), (x2, y2))| (x2 - x1).hypot(y2 - y1));
            (trouble(&candidate, index, &dots, &placed) as f64 + length / 12.0, candidate)
        });
        placed[index] = scored.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate);
    }
    placed.into_iter().flatten().collect()
}

/// Places around a point, nearest first.
fn candidates(spot: &Spot) -> Vec<Placed> {
    let (width, height) = (spot.label.chars().count() as f64 * LETTER + 4.0, FONT + 3.0);
    let mut found = Vec::new();
    for ring in 0..42 {
        let reach = RADIUS + 3.0 + f64::from(ring) * 9.0;
        let steps = if ring == 0 { 8 } else { 32 };
        for step in 0..steps {
            let angle = std::f64::consts::TAU * f64::from(step) / f64::from(steps);
            // The label's nearest edge, not its middle, stands at that distance.
            let (middle_x, middle_y) =
                (spot.x + angle.cos() * (reach + width / 2.0), spot.y + angle.sin() * (reach + height / 2.0));
            let frame =
                Frame(middle_x - width / 2.0, middle_y - height / 2.0, middle_x + width / 2.0, middle_y + height / 2.0);
            let inside = frame.0 > LEFT + 2.0
                && frame.2 < WIDTH - RIGHT - 2.0
                && frame.1 > TOP + 2.0
                && frame.3 < HEIGHT - BOTTOM - 2.0;
            if inside {
                let end = frame.nearest((spot.x, spot.y));
                let line = (ring > 0).then_some(((spot.x, spot.y), end));
                found.push(Placed { frame, line });
            }
        }
    }
    found
}

/// How many things a place would touch; labels weigh most.
fn trouble(candidate: &Placed, own: usize, dots: &[Frame], placed: &[Option<Placed>]) -> usize {
    let mut sum = 0;
    for (index, dot) in dots.iter().enumerate() {
        let hit = candidate.line.is_some_and(|(from, to)| index != own && dot.crosses(from, to));
        sum += 90 * usize::from(candidate.frame.touches(*dot)) + 60 * usize::from(hit);
    }
    for other in placed.iter().flatten() {
        sum += 1000 * usize::from(candidate.frame.touches(other.frame));
        sum += 90 * usize::from(candidate.line.is_some_and(|(from, to)| other.frame.crosses(from, to)));
        if let Some((from, to)) = other.line {
            sum += 90 * usize::from(candidate.frame.crosses(from, to));
            sum += 10 * usize::from(candidate.line.is_some_and(|line| segments_cross(line, (from, to))));
        }
    }
    sum
}

/// The plot as SVG. Audits whose sizes or rungs are unknown are left out and named below it.
pub fn cache_against_rungs(audits: &[Audit]) -> String {
    let known: Vec<(&Audit, f64, f64)> = audits
        .iter()
        .filter_map(|audit| {
            let (cache, capacity) = (audit.cache?, audit.capacity.as_ref()?);
            Some((audit, (cache.total.max(1) as f64).log10(), (1.0 + capacity.rungs as f64).log2()))
        })
        .collect();
    let least = known.iter().map(|(_, x, _)| *x).fold(f64::INFINITY, f64::min).min(6.0);
    let most = known.iter().map(|(_, x, _)| *x).fold(0.0, f64::max).max(9.0) + 0.1;
    let least = if least.is_finite() { least - 0.15 } else { 6.0 };
    let top = known.iter().map(|(_, _, y)| *y).fold(1.0, f64::max) + 0.45;
    let bottom = -0.7;
    let at_x = |log10: f64| LEFT + (log10 - least) / (most - least) * (WIDTH - LEFT - RIGHT);
    let at_y = |log2: f64| HEIGHT - BOTTOM - (log2 - bottom) / (top - bottom) * (HEIGHT - TOP - BOTTOM);
    let mut spots: Vec<Spot> = Vec::new();
    for (audit, x, y) in &known {
        let (x, y, colour) = (at_x(*x), at_y(*y), FAMILIES[family(audit)].1);
        // Models that fall on one point share it, and its label.
        let same = |spot: &&mut Spot| (spot.x - x).abs() < 2.0 && (spot.y - y).abs() < 1.0 && spot.colour == colour;
        match spots.iter_mut().find(same) {
            Some(spot) => spot.label.extend([", ", &audit.model]),
            None => spots.push(Spot { x, y, label: audit.model.clone(), colour }),
        }
    }
    let context = audits.first().map_or(0, |audit| audit.context);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"{FONT}\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
    );
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"34\" font-size=\"22\" font-weight=\"bold\" fill=\"#1c2230\">What a rung costs: cache at {} tokens against rungs</text>",
        super::commas(context)
    );
    axes(&mut out, (least, most), top, &at_x, &at_y);
    legend(&mut out);
    let placed = place(&spots);
    for (spot, label) in spots.iter().zip(&placed) {
        if let Some(((x1, y1), (x2, y2))) = label.line {
            let _ = writeln!(
                out,
                "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{}\" stroke-width=\"0.8\" opacity=\"0.6\"/>",
                spot.colour
            );
        }
    }
    for (spot, label) in spots.iter().zip(&placed) {
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{RADIUS}\" fill=\"{}\" opacity=\"0.85\"/>",
            spot.x, spot.y, spot.colour
        );
        let (x, y) = (f64::midpoint(label.frame.0, label.frame.2), label.frame.3 - 4.5);
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" fill=\"#1c2230\">{}</text>",
            escape(&spot.label)
        );
    }
    out.push_str("</svg>\n");
    out
}

fn axes(out: &mut String, (least, most): (f64, f64), top: f64, at_x: &dyn Fn(f64) -> f64, at_y: &dyn Fn(f64) -> f64) {
    let (right, low) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for power in 10..60 {
        // A tick at every fourfold, named in binary units.
        let log10 = f64::from(power) * 2.0_f64.log10();
        if power % 2 == 1 || log10 < least || log10 > most {
            continue;
        }
        let x = at_x(log10);
        let _ = writeln!(out, "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{low}\" stroke=\"#eceef3\"/>");
        let name = bytes(1_u64 << power).replace(".00", "").replace(".0 ", " ");
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{name}</text>",
            low + 20.0
        );
    }
    for rungs in [0_u32, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256] {
        let log2 = f64::from(1 + rungs).log2();
        if log2 > top {
            break;
        }
        let y = at_y(log2);
        let _ = writeln!(out, "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#eceef3\"/>");
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{rungs}</text>",
            LEFT - 10.0,
            y + 4.5
        );
    }
    let _ = writeln!(
        out,
        "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"none\" stroke=\"#9aa1b0\"/>",
        right - LEFT,
        low - TOP
    );
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#1c2230\" font-size=\"15\">cache, batch of one</text>",
        f64::midpoint(LEFT, right),
        low + 48.0
    );
    let middle = f64::midpoint(TOP, low);
    let _ = writeln!(
        out,
        "<text x=\"24\" y=\"{middle:.1}\" text-anchor=\"middle\" fill=\"#1c2230\" font-size=\"15\" transform=\"rotate(-90 24 {middle:.1})\">rungs</text>"
    );
}

fn legend(out: &mut String) {
    let mut x = LEFT;
    for (name, colour) in FAMILIES {
        let _ = writeln!(out, "<circle cx=\"{:.1}\" cy=\"64\" r=\"{RADIUS}\" fill=\"{colour}\"/>", x + 6.0);
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"69\" fill=\"#1c2230\">{name}</text>", x + 18.0);
        x += 44.0 + name.len() as f64 * LETTER;
    }
}

/// How many pairs of labels touch: none, unless there are far too many points.
pub fn collisions(audits: &[Audit]) -> usize {
    // Reads the drawn labels back, so that a test sees what a reader sees.
    let svg = cache_against_rungs(audits);
    let frames: Vec<Frame> = svg
        .lines()
        .filter(|line| line.contains("text-anchor=\"middle\" fill=\"#1c2230\">"))
        .filter_map(|line| {
            let number = |key: &str| line.split(&format!(" {key}=\"")).nth(1)?.split('"').next()?.parse::<f64>().ok();
            let label = line.split('>').nth(1)?.split('<').next()?;
            let (x, y, width) = (number("x")?, number("y")?, label.chars().count() as f64 * LETTER);
            Some(Frame(x - width / 2.0, y - FONT + 2.0, x + width / 2.0, y + 2.0))
        })
        .collect();
    let pairs = |index: usize| frames[..index].iter().filter(|other| frames[index].touches(**other)).count();
    (0..frames.len()).map(pairs).sum()
}
