//! The message's octets between DATA and the lone dot, and inside BDAT: exact framing, every violation reported.
//!
//! Promise: only CR LF . CR LF ends a message (RFC 5321 4.1.1.4); a bare CR or LF, and a line that begins with a dot
//! that was not doubled (4.5.2), are reported and taken as content. Input may be cut anywhere: octets that cannot be
//! judged yet (at most two) are left unconsumed and must be passed again with what follows.

use memchr::memchr2;

/// Breaches of the framing, as the recorder names them.
pub const BARE_CR: &str = "bare CR in data";
pub const BARE_LF: &str = "bare LF in data";
pub const UNSTUFFED_DOT: &str = "line begins with an undoubled dot";

/// Takes the dots out and finds the end.
#[derive(Debug)]
pub struct DotScan {
    line_start: bool,
}

/// Receives what the scanners find.
pub trait DataSink {
    fn content(&mut self, bytes: &[u8]);
    fn breach(&mut self, kind: &'static str, around: &[u8]);
}

impl Default for DotScan {
    fn default() -> Self {
        Self { line_start: true }
    }
}

impl DotScan {
    /// How much of the input was consumed, and whether the end of the message was reached in it.
    pub fn scan(&mut self, input: &[u8], sink: &mut impl DataSink) -> (usize, bool) {
        let (mut at, mut run) = (0, 0);
        while at < input.len() {
            if self.line_start && input[at] == b'.' {
                match input[at + 1..] {
                    [] | [b'\r'] => break,
                    [b'\r', b'\n', ..] => {
                        sink.content(&input[run..at]);
                        self.line_start = true;
                        return (at + 3, true);
                    }
                    [b'.', ..] => {}
                    _ => sink.breach(UNSTUFFED_DOT, &input[at..]),
                }
                sink.content(&input[run..at]);
                at += 1;
                run = at;
                self.line_start = false;
                // The doubled dot's second half is content, so that the search below may start at it.
            }
            self.line_start = false;
            let Some(found) = memchr2(b'\r', b'\n', &input[at..]) else {
                at = input.len();
                break;
            };
            at += found;
            match input[at..] {
                [b'\r', b'\n', ..] => {
                    at += 2;
                    self.line_start = true;
                }
                [b'\r'] => break,
                [b'\r', ..] => {
                    sink.breach(BARE_CR, &input[at.saturating_sub(40)..]);
                    at += 1;
                }
                _ => {
                    sink.breach(BARE_LF, &input[at.saturating_sub(40)..]);
                    at += 1;
                }
            }
        }
        sink.content(&input[run..at]);
        (at, false)
    }
}

/// Line ends in BDAT content, which has no dots but the same lines (RFC 3030 3, without BINARYMIME).
#[derive(Debug, Default)]
pub struct LineCheck {
    after_cr: bool,
}

impl LineCheck {
    pub fn check(&mut self, bytes: &[u8], sink: &mut impl DataSink) {
        let mut rest = bytes;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            match rest.strip_prefix(b"\n") {
                Some(behind) => rest = behind,
                None => sink.breach(BARE_CR, bytes),
            }
        }
        while let Some(at) = memchr2(b'\r', b'\n', rest) {
            match rest[at..] {
                [b'\r', b'\n', ..] => rest = &rest[at + 2..],
                [b'\r'] => {
                    self.after_cr = true;
                    return;
                }
                [b'\r', ..] => {
                    sink.breach(BARE_CR, &rest[at..]);
                    rest = &rest[at + 1..];
                }
                _ => {
                    sink.breach(BARE_LF, &rest[at.saturating_sub(40)..]);
                    rest = &rest[at + 1..];
                }
            }
        }
    }

    /// At the end of the message.
    pub fn finish(&mut self, sink: &mut impl DataSink) {
        if std::mem::take(&mut self.after_cr) {
            sink.breach(BARE_CR, b"\r");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default, Debug, PartialEq)]
    struct DataCollector {
        content: Vec<u8>,
        breaches: Vec<&'static str>,
    }

    impl DataSink for DataCollector {
        fn content(&mut self, bytes: &[u8]) {
            self.content.extend_from_slice(bytes);
        }
        fn breach(&mut self, kind: &'static str, _: &[u8]) {
            self.breaches.push(kind);
        }
    }

    /// Feeds the input in pieces as a connection does; returns what was seen and what is behind the end.
    fn feed(input: &[u8], piece: usize) -> (DataCollector, Option<Vec<u8>>) {
        let (mut scan, mut collector, mut held) = (DotScan::default(), DataCollector::default(), Vec::new());
        let mut chunks = input.chunks(piece);
        while let Some(chunk) = chunks.next() {
            held.extend_from_slice(chunk);
            let (used, done) = scan.scan(&held, &mut collector);
            held.drain(..used);
            if done {
                held.extend(chunks.flatten());
                return (collector, Some(held));
            }
            assert!(held.len() <= 2, "at most two octets are held back");
        }
        (collector, None)
    }

    fn check(input: &[u8], content: &[u8], breaches: &[&'static str], behind: Option<&[u8]>) {
        for piece in [1, 2, 3, 5, 1000] {
            let (collector, rest) = feed(input, piece);
            assert_eq!(
                collector.content.escape_ascii().to_string(),
                content.escape_ascii().to_string(),
                "piece {piece}"
            );
            assert_eq!(collector.breaches, breaches, "piece {piece}");
            assert_eq!(rest.as_deref(), behind, "piece {piece}");
        }
    }

    #[test]
    fn proper_data() {
        check(b".\r\n", b"", &[], Some(b""));
        check(b"a\r\n.\r\nMAIL", b"a\r\n", &[], Some(b"MAIL"));
        check(b"..\r\n..x\r\na.\r\n.\r\n", b".\r\n.x\r\na.\r\n", &[], Some(b""));
        check(b"\r\n\r\n.\r\n", b"\r\n\r\n", &[], Some(b""));
    }

    #[test]
    fn look_alikes_are_not_the_end() {
        check(b"a\n.\nb\r\n.\r\n", b"a\n.\nb\r\n", &[BARE_LF, BARE_LF], Some(b""));
        check(b"a\n.\r\nb\r\n.\r\n", b"a\n.\r\nb\r\n", &[BARE_LF], Some(b""));
        check(b"a\r\n.\nb\r\n.\r\n", b"a\r\n\nb\r\n", &[UNSTUFFED_DOT, BARE_LF], Some(b""));
        check(b"a\r.\rb\r\n.\r\n", b"a\r.\rb\r\n", &[BARE_CR, BARE_CR], Some(b""));
        check(b"a\r\n.\rb\r\n.\r\n", b"a\r\n\rb\r\n", &[UNSTUFFED_DOT, BARE_CR], Some(b""));
        check(b"a\r\n.b\r\n.\r\n", b"a\r\nb\r\n", &[UNSTUFFED_DOT], Some(b""));
        check(b"a\r\r\n.\r\n", b"a\r\r\n", &[BARE_CR], Some(b""));
    }

    #[test]
    fn bdat_lines() {
        for piece in [1, 2, 100] {
            let check = |input: &[u8]| {
                let (mut lines, mut collector) = (LineCheck::default(), DataCollector::default());
                input.chunks(piece).for_each(|chunk| lines.check(chunk, &mut collector));
                lines.finish(&mut collector);
                collector.breaches
            };
            assert!(check(b"a\r\n\r\n.\r\nno end").is_empty());
            assert_eq!(check(b"a\rb\r\n"), [BARE_CR]);
            assert_eq!(check(b"a\nb\r\n"), [BARE_LF]);
            assert_eq!(check(b"a\r"), [BARE_CR]);
        }
    }

    proptest::proptest! {
        /// Lines, stuffed as RFC 5321 4.5.2 says, come out as they went in, however the input is cut.
        #[test]
        fn stuffing_is_undone(lines in proptest::collection::vec("[.a]{0,4}", 0..20), piece in 1usize..9) {
            let message: String = lines.iter().flat_map(|line| [line.as_str(), "\r\n"]).collect();
            let wire: String = lines
                .iter()
                .map(|line| format!("{}{line}\r\n", if line.starts_with('.') { "." } else { "" }))
                .chain([".\r\nQUIT".to_owned()])
                .collect();
            let (collector, rest) = feed(wire.as_bytes(), piece);
            proptest::prop_assert_eq!(collector, DataCollector { content: message.into_bytes(), breaches: Vec::new() });
            proptest::prop_assert_eq!(rest.as_deref(), Some(b"QUIT".as_slice()));
        }

        /// Nothing but the exact end ends it, and no octet is lost: what is taken away is dots and the end.
        #[test]
        fn any_octets(input in "[.a\r\n]{0,40}", piece in 1usize..9) {
            let (_, rest) = feed(input.as_bytes(), piece);
            let ends = input.starts_with(".\r\n") || input.contains("\r\n.\r\n");
            proptest::prop_assert_eq!(rest.is_some(), ends);
        }
    }
}
