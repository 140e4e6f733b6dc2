//! Charts made of characters: braille dots, or ASCII on simpler terminals; bars.

/// Dots of a braille character from the bottom up, in the left and right column.
const LEFT: [u8; 4] = [0x40, 0x04, 0x02, 0x01];
const RIGHT: [u8; 4] = [0x80, 0x20, 0x10, 0x08];
/// Characters for each quarter of a cell.
const ASCII: [char; 5] = [' ', '.', ':', '|', '#'];

/// Number of values that fit this many columns.
pub fn values_in(width: usize, is_utf8: bool) -> usize {
    if is_utf8 { width * 2 } else { width }
}

/// The area under `values`, as lines from the top, scaled to the largest value. A value above zero shows at least one
/// dot.
pub fn area(values: &[u64], height: usize, is_utf8: bool) -> Vec<String> {
    let (most, steps) = (values.iter().copied().max().unwrap_or(0).max(1), height as u64 * 4);
    let dots = |value: u64| (u128::from(value) * u128::from(steps)).div_ceil(u128::from(most)) as usize;
    let in_row = |value: u64, row: usize| dots(value).saturating_sub(row * 4).min(4);
    let line = |row: usize| -> String {
        if !is_utf8 {
            return values.iter().map(|value| ASCII[in_row(*value, row)]).collect();
        }
        let bits = |dots: usize, column: [u8; 4]| column[..dots].iter().fold(0, |all, bit| all | bit);
        let cell = |pair: &[u64]| {
            let right = pair.get(1).map_or(0, |value| in_row(*value, row));
            let bits = bits(in_row(pair[0], row), LEFT) | bits(right, RIGHT);
            char::from_u32(0x2800 + u32::from(bits)).unwrap_or(' ')
        };
        values.chunks(2).map(cell).collect()
    };
    (0..height).rev().map(line).collect()
}

/// A bar for a share of the width: `||||      `.
pub fn bar(share: f64, width: usize) -> String {
    let filled = ((share.clamp(0.0, 1.0) * width as f64).ceil() as usize).min(width);
    format!("{}{}", "|".repeat(filled), " ".repeat(width - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_rise_to_the_largest_value() {
        assert_eq!(area(&[0, 1, 4, 8], 2, false), ["   #", " .##"]);
        assert_eq!(area(&[0, 1, 4, 8], 2, true), ["\u{2800}\u{28b8}", "\u{2880}\u{28ff}"]);
        assert_eq!(area(&[0, 0], 1, true), ["\u{2800}"]);
        assert_eq!(area(&[1, 1_000_000], 1, false), [".#"], "a little is not nothing");
        assert_eq!(area(&[u64::MAX], 1, false), ["#"]);
        assert_eq!(
            (bar(0.5, 4), bar(0.01, 4), bar(2.0, 4), bar(0.0, 4)),
            ("||  ".into(), "|   ".into(), "||||".into(), "    ".into())
        );
    }
}
