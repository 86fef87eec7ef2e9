//! Colours with fixed meanings.
//!
//! Three colours belong to the verdicts of a hop map (solved, unknown, impossible) and three to the kinds of evidence (proved, constructed,
//! measured). They are the same in all figures. People with common forms of colour blindness can distinguish them (green-blue from
//! red-orange, blue from amber), and the three of each group differ in lightness by enough to be distinguished in grey, which a test
//! checks. Areas also have a [`Texture`], and lines a dash pattern and a marker shape, so that no meaning depends on colour only.

use std::fmt;

use super::map::RangeVerdict;
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
pub const TEXT_COLOUR: Colour = Colour(0x1b_1d_22);
/// Secondary text: tick labels, notes.
pub const MUTED: Colour = Colour(0x52_57_60);
/// Grid lines.
pub const GRID: Colour = Colour(0xde_e1_e6);
/// The page.
pub const BACKGROUND: Colour = Colour(0xff_ff_ff);

/// Background, texture and text colour of an area.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fill {
    /// The background.
    pub colour: Colour,
    /// The texture over the background.
    pub texture: Texture,
    /// Colour of the texture.
    pub texture_colour: Colour,
    /// Colour of text on the background.
    pub text_colour: Colour,
}

/// The fill of a verdict on a hop map.
pub fn verdict_fill(verdict: RangeVerdict) -> Fill {
    match verdict {
        RangeVerdict::Solved => Fill {
            colour: Colour(0x7c_cf_b2),
            texture: Texture::Plain,
            texture_colour: TEXT_COLOUR,
            text_colour: TEXT_COLOUR,
        },
        RangeVerdict::Unknown => Fill {
            colour: Colour(0xf4_f4_f1),
            texture: Texture::Dots,
            texture_colour: Colour(0xb4_b4_ac),
            text_colour: TEXT_COLOUR,
        },
        RangeVerdict::Impossible => Fill {
            colour: Colour(0xa6_36_12),
            texture: Texture::Diagonal,
            texture_colour: Colour(0xc9_67_46),
            text_colour: BACKGROUND,
        },
    }
}

/// The colour of a kind of evidence.
pub fn evidence_colour(evidence: Evidence) -> Colour {
    match evidence {
        Evidence::Proved => Colour(0x1d_4f_91),
        Evidence::Constructed => Colour(0x1f_8a_70),
        Evidence::Measured => Colour(0xd9_8a_0b),
    }
}

/// The colour of the `index`th series of a chart, unless the series has the colour of its evidence.
pub fn series_colour(index: usize) -> Colour {
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

    /// The smallest contrast in lightness between any two of three colours.
    fn least_contrast(colours: [Colour; 3]) -> f64 {
        let [a, b, c] = colours;
        a.contrast(b).min(a.contrast(c)).min(b.contrast(c))
    }

    #[test]
    fn colours_of_verdicts_and_of_evidence_differ_in_lightness() {
        assert!(least_contrast(RangeVerdict::ALL.map(|kind| verdict_fill(kind).colour)) > 1.5);
        assert!(least_contrast(Evidence::ALL.map(evidence_colour)) > 1.5);
    }

    #[test]
    fn verdicts_differ_in_texture() {
        let [a, b, c] = RangeVerdict::ALL.map(|kind| verdict_fill(kind).texture);
        assert!(a != b && b != c && a != c);
    }

    #[test]
    fn text_has_enough_contrast_with_its_background() {
        for kind in RangeVerdict::ALL {
            let fill = verdict_fill(kind);
            assert!(fill.text_colour.contrast(fill.colour) > 4.5, "{kind:?}");
        }
        assert!(MUTED.contrast(BACKGROUND) > 4.5);
    }

    #[test]
    fn series_colours_have_enough_contrast_with_paper() {
        for colour in (0..6).map(series_colour) {
            assert!(colour.contrast(BACKGROUND) > 2.9, "{colour}");
        }
    }
}
