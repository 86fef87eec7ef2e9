//! The width of a text.
//!
//! An SVG viewer sets the text, but layout must know widths before, so that labels do not overlap. The tables below are the advance widths
//! of `DejaVu Sans` for printable ASCII, in units of 1/2048 em, so for the first font of the list the width is exact up to kerning. Verdana,
//! the second font, is within a few percent. Other characters have an approximate width.

/// Units in one em.
const EM: f64 = 2048.0;

/// `DejaVu Sans`, from space to tilde.
#[rustfmt::skip]
const REGULAR: [u16; 95] = [
    651, 821, 942, 1716, 1303, 1946, 1597, 563, 799, 799, 1024, 1716, 651, 739, 651, 690, 1303, 1303, 1303, 1303, 1303, 1303, 1303, 1303,
    1303, 1303, 690, 690, 1716, 1716, 1716, 1087, 2048, 1401, 1405, 1430, 1577, 1294, 1178, 1587, 1540, 604, 604, 1343, 1141, 1767, 1532,
    1612, 1235, 1612, 1423, 1300, 1251, 1499, 1401, 2025, 1403, 1251, 1403, 799, 690, 799, 1716, 1024, 1024, 1255, 1300, 1126, 1300, 1260,
    721, 1300, 1298, 569, 569, 1186, 569, 1995, 1298, 1253, 1300, 1300, 842, 1067, 803, 1298, 1212, 1675, 1212, 1212, 1075, 1303, 690,
    1303, 1716,
];

/// `DejaVu Sans Bold`, from space to tilde.
#[rustfmt::skip]
const BOLD: [u16; 95] = [
    713, 934, 1067, 1716, 1425, 2052, 1786, 627, 936, 936, 1071, 1716, 778, 850, 778, 748, 1425, 1425, 1425, 1425, 1425, 1425, 1425, 1425,
    1425, 1425, 819, 819, 1716, 1716, 1716, 1188, 2048, 1585, 1561, 1503, 1700, 1399, 1399, 1681, 1714, 762, 762, 1587, 1305, 2038, 1714,
    1741, 1501, 1741, 1577, 1475, 1397, 1663, 1585, 2259, 1579, 1483, 1485, 936, 748, 936, 1716, 1024, 1024, 1382, 1466, 1214, 1466, 1389,
    891, 1466, 1458, 702, 702, 1362, 702, 2134, 1458, 1407, 1466, 1466, 1010, 1219, 979, 1458, 1335, 1892, 1321, 1335, 1192, 1458, 748,
    1458, 1716,
];

/// Width of one line of text in pixels.
pub fn width(text: &str, size: f64, bold: bool) -> f64 {
    text.chars().map(|character| f64::from(advance(character, bold))).sum::<f64>() * size / EM
}

fn advance(character: char, bold: bool) -> u16 {
    let table = if bold { &BOLD } else { &REGULAR };
    match character {
        ' '..='~' => table[character as usize - ' ' as usize],
        '⁰' | '¹' | '²' | '³' | '⁴'..='⁹' | '₀'..='₉' => {
            if bold {
                897
            } else {
                821
            }
        }
        '⁻' => 1081,
        '·' | '\u{a0}' => table[0],
        '–' => 1024,
        '×' | '−' | '≤' | '≥' | '→' => 1716,
        // An accented letter is about as wide as the average letter; anything else (ideographs, symbols) gets a full em.
        '\u{a1}'..='\u{24f}' | '\u{370}'..='\u{3ff}' => 1400,
        _ => 2048,
    }
}

/// Breaks a text at spaces so that each line fits `available` pixels. A word that is wider than that keeps a line to
/// itself.
pub fn wrap(text: &str, size: f64, bold: bool, available: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size, bold) <= available => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// `base` to the power of `exponent`, in characters: `2⁻³`.
///
/// An exponent with a fraction is written on the line with one decimal, `2^22.1`: there is no raised point, and a
/// raised dot would be read as a product. An exponent of more than six digits is itself written as a power, on the
/// line: `2^(3.1×10⁹)`.
pub fn power(base: u32, exponent: f64) -> String {
    if exponent.abs() >= 1e6 && exponent.is_finite() {
        let digits = exponent.abs().log10().floor();
        return format!("{base}^({:.1}×{})", exponent / 10f64.powf(digits), power(10, digits));
    }
    let rounded = format!("{exponent:.1}");
    let digits = rounded.strip_suffix(".0").unwrap_or(&rounded);
    if digits.contains('.') {
        return format!("{base}^{digits}");
    }
    base.to_string() + &digits.chars().map(superscript).collect::<String>()
}

fn superscript(character: char) -> char {
    match character {
        '-' => '⁻',
        '0' => '⁰',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        '9' => '⁹',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn width_sums_the_advances_of_the_font() {
        assert!((width("000", 2048.0, false) - 3909.0).abs() < 1e-9);
        assert!((width("Ab", 2048.0, true) - 3051.0).abs() < 1e-9);
    }

    #[test]
    fn wrapped_lines_have_every_word_and_fit() {
        let text = "a title that is much too long for the narrow column it has to fit into";
        let lines = wrap(text, 12.0, true, 120.0);
        assert_eq!(lines.join(" "), text);
        assert!(lines.iter().all(|line| width(line, 12.0, true) <= 120.0));
    }

    #[test]
    fn whole_exponents_are_superscripts() {
        assert_eq!([power(2, 17.0), power(10, -3.0), power(2, 98.25)], ["2¹⁷", "10⁻³", "2^98.2"]);
        assert_eq!(power(2, 3.14e9), "2^(3.1×10⁹)");
    }
}
