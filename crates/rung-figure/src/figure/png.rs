//! Renders SVG as PNG, the same on every machine.
//!
//! `resvg` renders the SVG with the regular and bold fonts of `DejaVu Sans`, which are part of the program, and without system fonts, so the
//! image does not depend on what is installed. It has twice the resolution of the SVG, for screens and slides.

use std::sync::{Arc, OnceLock};

use resvg::{tiny_skia, usvg};
use thiserror::Error;

/// Pixels in the PNG for each pixel of the SVG.
const MAGNIFICATION: f32 = 2.0;

/// Why a drawing could not be turned into a PNG.
#[derive(Debug, Error)]
pub enum PngError {
    /// The text is not an SVG document.
    #[error("the drawing is not valid SVG: {0}")]
    Svg(#[from] usvg::Error),
    /// The drawing is too large to hold in memory as pixels.
    #[error("a bitmap of {width} x {height} pixels cannot be made; draw the figure smaller")]
    TooLarge {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// The encoder failed.
    #[error("the PNG encoder failed: {0}")]
    Encoding(String),
}

/// Renders an SVG document at twice its size.
///
/// # Errors
/// When the text is not an SVG document, or is too large for a bitmap.
pub fn render_png(svg: &str) -> Result<Vec<u8>, PngError> {
    let options = usvg::Options { font_family: "DejaVu Sans".to_owned(), fontdb: fonts(), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(svg, &options)?;
    let size = tree.size();
    let (width, height) = ((size.width() * MAGNIFICATION).ceil() as u32, (size.height() * MAGNIFICATION).ceil() as u32);
    let mut pixels = tiny_skia::Pixmap::new(width, height).ok_or(PngError::TooLarge { width, height })?;
    let transform = tiny_skia::Transform::from_scale(MAGNIFICATION, MAGNIFICATION);
    resvg::render(&tree, transform, &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| PngError::Encoding(error.to_string()))
}

/// The two fonts, loaded once.
fn fonts() -> Arc<usvg::fontdb::Database> {
    static FONTS: OnceLock<Arc<usvg::fontdb::Database>> = OnceLock::new();
    let load = || {
        let mut fonts = usvg::fontdb::Database::new();
        for font in [dejavu::sans::regular(), dejavu::sans::bold()] {
            fonts.load_font_source(usvg::fontdb::Source::Binary(Arc::new(font)));
        }
        // Any other sans-serif family is replaced by this one.
        fonts.set_sans_serif_family("DejaVu Sans");
        Arc::new(fonts)
    };
    Arc::clone(FONTS.get_or_init(load))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::svg::{Svg, TextStyle};
    use crate::figure::text;

    #[test]
    fn the_png_has_twice_the_size_of_the_svg() {
        let bytes = render_png(&Svg::new(120.0, 45.0).finish("empty")).expect("an empty page renders");
        let pixels = tiny_skia::Pixmap::decode_png(&bytes).expect("a PNG file");
        assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"));
        assert_eq!((pixels.width(), pixels.height()), (240, 90));
    }

    #[test]
    fn letters_are_drawn_without_installed_fonts() {
        let mut svg = Svg::new(60.0, 20.0);
        svg.text((5.0, 15.0), "rung 2⁹⁸", &TextStyle::new(12.0));
        let bytes = render_png(&svg.finish("text")).expect("text renders");
        let pixels = tiny_skia::Pixmap::decode_png(&bytes).expect("a PNG file");
        assert!(pixels.pixels().iter().filter(|pixel| pixel.red() < 128).count() > 50);
    }

    #[test]
    fn text_in_another_sans_serif_family_is_drawn() {
        let svg = r#"<svg xmlns="http://www.w3.org/2000/svg" width="60" height="20" font-family="sans-serif">
            <text x="5" y="15" font-size="12">rung</text></svg>"#;
        let pixels = tiny_skia::Pixmap::decode_png(&render_png(svg).expect("text renders")).expect("a PNG file");
        assert!(pixels.pixels().iter().filter(|pixel| pixel.alpha() > 128).count() > 50);
    }

    #[test]
    fn estimated_widths_match_what_is_drawn() {
        for sample in ["impossible from 2⁹⁸", "tokens in the context", "0.001 10000 papers 128k"] {
            for bold in [false, true] {
                let style = TextStyle { bold, ..TextStyle::new(100.0) };
                let mut svg = Svg::new(4000.0, 200.0);
                svg.text((0.0, 100.0), sample, &style);
                let options = usvg::Options { fontdb: fonts(), ..usvg::Options::default() };
                let tree = usvg::Tree::from_str(&svg.finish("text"), &options).expect("valid SVG");
                let drawn = tree.root().children().last().expect("the text").bounding_box().width();
                let estimate = text::width(sample, 100.0, bold);
                assert!((f64::from(drawn) / estimate - 1.0).abs() < 0.03, "{sample}: {drawn} against {estimate}");
            }
        }
    }

    #[test]
    fn text_that_is_not_svg_is_an_error() {
        assert!(matches!(render_png("<svg"), Err(PngError::Svg(_))));
    }
}
