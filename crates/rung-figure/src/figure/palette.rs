//! Colours that mean something, and keep meaning it.
//!
//! Three colours belong to the verdicts of a hop map (solved, unknown, impossible) and three to the kinds of evidence
//! (proved, constructed, measured). They do not change between figures. They were chosen from families that people with
//! the common colour blindnesses tell apart (green-blue against red-orange, blue against amber), and so that each trio
//! also differs in lightness by enough to survive a grey printer; a test holds that. Areas carry a [`Texture`] as well,
//! lines a dash pattern and a marker shape, so that no meaning hangs on colour alone.

use std::fmt;

use super::map::SpanKind;
use super::texture::Texture;
use crate::Evidence;

/// A colour, as `0xRRGGBB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Colour(pub u32);

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:06x}", self.0)
    }
}

impl Colour {
    /// Relative luminance, from 0 (black) to 1 (white), as the accessibility guidelines define it.
    pub fn luminance(self) -> f64 {
        let channel = |shift: u32| {
            let value = f64::from((self.0 >> shift) & 0xff) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(16) + 0.7152 * channel(8) + 0.0722 * channel(0)
    }

    /// Contrast with another colour, from 1 (none) to 21 (black on white).
    pub fn contrast(self, other: Self) -> f64 {
        let (a, b) = (self.luminance() + 0.05, other.luminance() + 0.05);
        if a > b { a / b } else { b / a }
    }
}

/// Text and frames.
pub const INK: Colour = Colour(0x1b_1d_22);
/// Text of second rank: tick labels, notes.
pub const MUTED: Colour = Colour(0x52_57_60);
/// Grid lines.
pub const GRID: Colour = Colour(0xde_e1_e6);
/// The page.
pub const PAPER: Colour = Colour(0xff_ff_ff);

/// How an area is filled, and what can be written on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fill {
    /// The ground.
    pub colour: Colour,
    /// What is drawn over the ground.
    pub texture: Texture,
    /// Colour of the texture.
    pub thread: Colour,
    /// Colour of letters on the ground.
    pub ink: Colour,
}

/// The fill of a verdict on a hop map.
pub fn verdict(kind: SpanKind) -> Fill {
    match kind {
        SpanKind::Solved => Fill { colour: Colour(0x7c_cf_b2), texture: Texture::Plain, thread: INK, ink: INK },
        SpanKind::Unknown => {
            Fill { colour: Colour(0xf4_f4_f1), texture: Texture::Dots, thread: Colour(0xb4_b4_ac), ink: INK }
        }
        SpanKind::Impossible => {
            Fill { colour: Colour(0xa6_36_12), texture: Texture::Diagonal, thread: Colour(0xc9_67_46), ink: PAPER }
        }
    }
}

/// The colour of a kind of evidence.
pub fn evidence(evidence: Evidence) -> Colour {
    match evidence {
        Evidence::Proved => Colour(0x1d_4f_91),
        Evidence::Constructed => Colour(0x1f_8a_70),
        Evidence::Measured => Colour(0xd9_8a_0b),
    }
}

/// The colour of the `index`th series of a chart, where its evidence does not settle it.
pub fn series(index: usize) -> Colour {
    const SERIES: [Colour; 6] = [
        Colour(0x00_72_b2),
        Colour(0xd5_5e_00),
        Colour(0x00_9e_73),
        Colour(0xa8_4d_84),
        Colour(0x3d_9c_d2),
        Colour(0x55_55_55),
    ];
    SERIES[index % SERIES.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest contrast between any two of three colours, as a grey printer would show them.
    fn least_contrast(colours: [Colour; 3]) -> f64 {
        let [a, b, c] = colours;
        a.contrast(b).min(a.contrast(c)).min(b.contrast(c))
    }

    #[test]
    fn trios_differ_in_grey() {
        assert!(least_contrast(SpanKind::ALL.map(|kind| verdict(kind).colour)) > 1.5);
        assert!(least_contrast(Evidence::ALL.map(evidence)) > 1.5);
    }

    #[test]
    fn verdicts_differ_in_texture() {
        let [a, b, c] = SpanKind::ALL.map(|kind| verdict(kind).texture);
        assert!(a != b && b != c && a != c);
    }

    #[test]
    fn letters_can_be_read_on_their_ground() {
        for kind in SpanKind::ALL {
            let fill = verdict(kind);
            assert!(fill.ink.contrast(fill.colour) > 4.5, "{kind:?}");
        }
        assert!(MUTED.contrast(PAPER) > 4.5);
    }

    #[test]
    fn lines_can_be_seen_on_paper() {
        for colour in (0..6).map(series) {
            assert!(colour.contrast(PAPER) > 2.9, "{colour}");
        }
    }
}
