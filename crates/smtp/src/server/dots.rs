//! Checks which octets a message may hold, however it arrives; finds the end of DATA; removes stuffed dots (RFC 5321
//! sections 4.1.1.4 and 4.5.2).
//!
//! Promise: only CR LF `.` CR LF ends the data (or `.` CR LF at its very start). A violation is a bare CR, a bare LF,
//! or a line that begins with a dot and NULs in any order: some software takes these for the end of the data and reads
//! the rest as commands (CVE-2023-51764, -51765, -51766), also when a host strips NULs from our output. DATA, BDAT and
//! HTTP refuse the same content. Lines may have any length, memory is constant, and nothing is scanned twice. Runs of
//! octets that need no change are copied at once.

use memchr::memchr2;

/// Position of the next octet in its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    LineStart,
    /// After a dot at the start of a line; the dot was removed.
    Dot,
    /// After a dot and a CR; nothing of the line has been passed on.
    DotCr,
    /// After a dot at the start of a line that is content.
    ContentDot,
    /// Only NULs in this line so far.
    Nul,
    Middle,
    /// After a CR, which has been passed on.
    Cr,
}

/// The result of scanning octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanResult {
    /// All octets were taken.
    More,
    /// The end of the data; the remaining octets are commands.
    End,
    /// A bare CR or LF, or NULs next to a dot at the start of a line.
    Violation,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Dots {
    place: Place,
    /// DATA: dots are stuffed and a lone dot is the end. Otherwise there is no end: BDAT.
    stuffed: bool,
}

/// The rule for content submitted neither by DATA nor by BDAT.
#[derive(Debug)]
pub struct ContentRule(Dots);

impl Default for ContentRule {
    fn default() -> Self {
        Self(Dots::plain())
    }
}

impl ContentRule {
    /// Takes the next octets; returns whether all so far may be in a message.
    pub fn allows(&mut self, octets: &[u8]) -> bool {
        self.0.scan(octets, None).1 == ScanResult::More
    }
}

impl Dots {
    /// Creates a scanner for DATA.
    pub(super) fn stuffed() -> Self {
        Self { place: Place::LineStart, stuffed: true }
    }

    /// Creates a scanner for octets whose end is found by other means.
    pub(super) fn plain() -> Self {
        Self { place: Place::LineStart, stuffed: false }
    }

    /// Whether the last octet was a CR: at the end of the content that is a bare CR.
    pub(super) fn is_behind_cr(self) -> bool {
        self.place == Place::Cr
    }

    /// Takes octets off the front of `input`, appends the unstuffed content to `sink` (if any; without one the data is
    /// dropped) and returns how many were taken. An octet that violates the rule is not taken: the next call finds it
    /// again.
    pub(super) fn scan(&mut self, input: &[u8], mut sink: Option<&mut Vec<u8>>) -> (usize, ScanResult) {
        // `input[run..at]` is content that was not copied yet.
        let (mut run, mut at) = (0, 0);
        let mut copy = |run: usize, at: usize| {
            if let Some(sink) = sink.as_deref_mut() {
                sink.extend_from_slice(&input[run..at]);
            }
        };
        let mut found = ScanResult::More;
        while at < input.len() {
            let byte = input[at];
            if self.is_violation(byte) {
                found = ScanResult::Violation;
                break;
            }
            match self.place {
                Place::LineStart if byte == b'.' && self.stuffed => {
                    copy(run, at);
                    at += 1;
                    run = at;
                    self.place = Place::Dot;
                }
                Place::LineStart | Place::Dot if byte == b'.' => {
                    at += 1;
                    self.place = Place::ContentDot;
                }
                Place::LineStart | Place::Nul if byte == 0 => {
                    at += 1;
                    self.place = Place::Nul;
                }
                Place::Dot if byte == b'\r' => {
                    at += 1;
                    run = at;
                    self.place = Place::DotCr;
                }
                Place::Dot | Place::ContentDot => self.place = Place::Middle,
                Place::DotCr => return (at + 1, ScanResult::End),
                Place::Cr => {
                    at += 1;
                    self.place = Place::LineStart;
                }
                Place::LineStart | Place::Nul | Place::Middle => match memchr2(b'\r', b'\n', &input[at..]) {
                    Some(offset) if input[at + offset] == b'\r' => {
                        at += offset + 1;
                        self.place = Place::Cr;
                    }
                    Some(offset) => {
                        at += offset;
                        self.place = if offset == 0 { self.place } else { Place::Middle };
                        found = ScanResult::Violation;
                        break;
                    }
                    None => {
                        at = input.len();
                        self.place = Place::Middle;
                    }
                },
            }
        }
        copy(run, at);
        (at, found)
    }

    /// Whether the next octet is a violation here. A bare LF within a line is found by the search for its end.
    fn is_violation(self, byte: u8) -> bool {
        match self.place {
            Place::Nul => byte == b'.',
            Place::Dot => matches!(byte, 0 | b'\n'),
            Place::ContentDot => byte == 0,
            Place::DotCr | Place::Cr => byte != b'\n',
            Place::LineStart | Place::Middle => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `input` in parts of the given size; returns content, octets taken, and result.
    fn run(input: &[u8], part_bytes: usize) -> (Vec<u8>, usize, ScanResult) {
        let mut dots = Dots::stuffed();
        let mut out = Vec::new();
        let mut taken = 0;
        for part in input.chunks(part_bytes) {
            let (count, found) = dots.scan(part, Some(&mut out));
            taken += count;
            if found != ScanResult::More {
                return (out, taken, found);
            }
            assert_eq!(count, part.len());
        }
        (out, taken, ScanResult::More)
    }

    fn every_split(input: &[u8], check: impl Fn(&[u8], usize, ScanResult)) {
        for part_bytes in 1..=input.len() {
            let (out, taken, found) = run(input, part_bytes);
            check(&out, taken, found);
        }
        for cut in 0..input.len() {
            let mut dots = Dots::stuffed();
            let mut out = Vec::new();
            let (first, mut found) = dots.scan(&input[..cut], Some(&mut out));
            let mut taken = first;
            if found == ScanResult::More {
                let (second, then) = dots.scan(&input[cut..], Some(&mut out));
                taken += second;
                found = then;
            }
            check(&out, taken, found);
        }
    }

    #[test]
    fn the_end_and_nothing_behind_it() {
        every_split(b"a\r\n.\r\nQUIT\r\n", |out, taken, found| {
            assert_eq!((out, taken, found), (&b"a\r\n"[..], 6, ScanResult::End));
        });
        // Nothing after a violation is taken, and it is found again.
        let mut dots = Dots::stuffed();
        assert_eq!(dots.scan(b"ab\nc", None), (2, ScanResult::Violation));
        assert_eq!(dots.scan(b"\nc", None), (0, ScanResult::Violation));
        every_split(b".\r\nQUIT", |out, taken, found| assert_eq!((out, taken, found), (&b""[..], 3, ScanResult::End)));
    }

    #[test]
    fn unstuffs() {
        every_split(b"..\r\n..a\r\n.b\r\n...\r\na.b\r\n.\r\n", |out, _, found| {
            assert_eq!((out, found), (&b".\r\n.a\r\nb\r\n..\r\na.b\r\n"[..], ScanResult::End));
        });
    }

    #[test]
    fn look_alikes_are_never_the_end() {
        for look_alike in [
            &b"\n.\n"[..],
            b"\n.\r\n",
            b"\r.\r",
            b"\r.\r\n",
            b"\r\n.\n",
            b"\r\n.\rX",
            b"\r\n.\r.\r\n",
            b"\n.\r",
            b"\r\r\n.\r\n",
            b"\n\r\n.\r\n",
            b"\r\n.\0\r\n",
            b"\r\n\0.\r\n",
            b"\r\n\0\0.\0\r\n",
            b"\r\n.\r\0\n",
            b"\r\n\0\r\n.\n",
            b"\r\n.\r\r\n",
            b"\r\n..\0\r\n",
            b"\rX",
            b"\n",
        ] {
            let input = [b"Subject: x\r\n\r\ntext", look_alike, b"MAIL FROM:<a@b>\r\n.\r\n"].concat();
            every_split(&input, |out, _, found| {
                assert_eq!(found, ScanResult::Violation, "{look_alike:?}");
                assert!(!out.windows(4).any(|window| window == b"MAIL"), "{look_alike:?}");
            });
        }
    }

    #[test]
    fn look_alikes_at_the_very_start() {
        for look_alike in [&b".\n"[..], b".\r\r\n", b".\0\r\n", b"\0.\r\n", b"\n.\r\n", b"\r.\r\n"] {
            every_split(look_alike, |_, _, found| assert_eq!(found, ScanResult::Violation, "{look_alike:?}"));
        }
    }

    #[test]
    fn nuls_elsewhere_are_content() {
        every_split(b"a\0.\r\n\0\0\r\n\0b.\r\n.\r\n", |out, _, found| {
            assert_eq!((out, found), (&b"a\0.\r\n\0\0\r\n\0b.\r\n"[..], ScanResult::End));
        });
    }

    #[test]
    fn the_same_content_is_refused_without_stuffing() {
        let run = |content: &[u8], cut: usize| {
            let mut rule = ContentRule::default();
            rule.allows(&content[..cut]) && rule.allows(&content[cut..]) && !rule.0.is_behind_cr()
        };
        for (content, allowed) in [
            (&b"a\r\n.\r\n..\r\n.b\r\nc"[..], true),
            (b"a\0.\r\n\0\0\r\n\0b.\r\n.b\0\r\n", true),
            (b".\r\n", true),
            (b"", true),
            (b"\0.\r\n", false),
            (b".\0\r\n", false),
            (b"a\r\n\0\0.\0\r\n", false),
            (b"a\r\n.\0", false),
            (b"a\nb", false),
            (b"a\rb", false),
            (b".\n", false),
            (b".\r", false),
        ] {
            for cut in 0..=content.len() {
                assert_eq!(run(content, cut), allowed, "{content:?} cut at {cut}");
            }
            // As DATA: stuffed, with the end after it.
            let mut data = Vec::new();
            for line in content.split_inclusive(|byte| *byte == b'\n') {
                data.extend_from_slice(if line.starts_with(b".") { b"." } else { b"" });
                data.extend_from_slice(line);
            }
            let end: &[u8] = if content.is_empty() || content.ends_with(b"\n") { b".\r\n" } else { b"\r\n.\r\n" };
            data.extend_from_slice(end);
            every_split(&data, |_, _, found| assert_eq!(found == ScanResult::End, allowed, "{content:?}"));
        }
    }

    #[test]
    fn draining_finds_the_same_end() {
        let input = b"..a\r\nb\r\n.\r\nX";
        assert_eq!(Dots::stuffed().scan(input, None), (11, ScanResult::End));
    }
}
