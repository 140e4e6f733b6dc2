//! Any octets as a message whose lines are made short: never an error, no line over 998 octets, the same however they were split,
//! unchanged the second time, and linear in size.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_recode::{Converter, LINE_BYTES_MAX, LineScan};

fn convert<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let (mut converter, mut out) = (Converter::of_lines(), Vec::new());
    for piece in pieces {
        converter.push(piece, &mut out).expect("lines alone never fail");
    }
    converter.finish(&mut out).expect("lines alone never fail");
    out
}

fn longest(octets: &[u8]) -> usize {
    let lines = octets.split(|&b| b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.map(<[u8]>::len).max().unwrap_or(0)
}

fn has_long_line<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut scan = LineScan::default();
    pieces.for_each(|piece| scan.push(piece));
    scan.has_long_line()
}

fuzz_target!(|data: &[u8]| {
    let [step, bytes @ ..] = data else { return };
    let step = usize::from(*step) * 8 + 1;
    // Bare CR and LF are refused when mail is accepted.
    let text: Vec<u8> = bytes.iter().flat_map(|&b| if b == b'\n' { vec![b'\r', b'\n'] } else if b == b'\r' { vec![] } else { vec![b] }).collect();
    let out = convert(std::iter::once(text.as_slice()));
    assert!(longest(&out) <= LINE_BYTES_MAX);
    assert_eq!(out, convert(text.chunks(step)));
    assert_eq!(out, convert(std::iter::once(out.as_slice())));
    assert!(out.len() <= text.len() * 4 + 1_000);
    assert_eq!(has_long_line(text.chunks(step)), longest(&text) > LINE_BYTES_MAX);
    assert!(!has_long_line(out.chunks(step)));
});
