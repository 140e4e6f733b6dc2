//! Any octets as a message whose lines are made short: never an error, no line over 998 octets, the same however they
//! were split, unchanged the second time, linear in size, and with subjects that readers decode to the same text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_mime::charset::Charset;
use stentor_mime::{field, words};
use stentor_mime::recode::{Converter, LINE_BYTES_MAX, LineScan};

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

/// The subjects of the outermost header; `None` for one of which readers make different things.
fn subjects(message: &[u8]) -> Vec<Option<String>> {
    let end = message.windows(4).position(|octets| octets == b"\r\n\r\n").map_or(message.len(), |at| at + 2);
    let fields = field::lines(&message[..end]).filter_map(field::split);
    let subjects = fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"Subject"));
    let read = |(_, value): (_, &[u8])| {
        let decoded = words::decode(value, Charset::UNDECLARED);
        let is_sound = std::str::from_utf8(value).is_ok() && !decoded.is_broken;
        let is_plain = is_sound && !decoded.text.contains(['\u{fffd}', '\u{feff}', '\0']);
        // White space at the end of a long line goes.
        is_plain.then(|| decoded.text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    subjects.map(read).collect()
}

fuzz_target!(|data: &[u8]| {
    let [step, bytes @ ..] = data else { return };
    let step = usize::from(*step) * 8 + 1;
    // Bare CR and LF are refused when mail is accepted.
    let text: Vec<u8> = bytes
        .iter()
        .flat_map(|&b| {
            if b == b'\n' {
                vec![b'\r', b'\n']
            } else if b == b'\r' {
                vec![]
            } else {
                vec![b]
            }
        })
        .collect();
    let out = convert(std::iter::once(text.as_slice()));
    assert!(longest(&out) <= LINE_BYTES_MAX);
    assert_eq!(out, convert(text.chunks(step)));
    assert_eq!(out, convert(std::iter::once(out.as_slice())));
    assert!(out.len() <= text.len() * 6 + 1_000);
    let read = subjects(&text).into_iter().zip(subjects(&out));
    read.for_each(|(before, after)| assert!(before.is_none() || before == after, "{before:?} {after:?}"));
    assert_eq!(has_long_line(text.chunks(step)), longest(&text) > LINE_BYTES_MAX);
    assert!(!has_long_line(out.chunks(step)));
});
