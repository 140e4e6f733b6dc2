//! Where the data of DATA ends, and dot-unstuffing (RFC 5321 sections 4.1.1.4 and 4.5.2).
//!
//! Promise: only CR LF `.` CR LF ends the data (or `.` CR LF at its very start). A bare CR, a bare LF, or a dot line
//! with NULs in it is an error that ends the session, since some software takes such things for the end of the data and
//! what follows for commands (CVE-2023-51764, -51765, -51766). Any line length, in constant memory: what has been looked
//! at is never looked at again. Octets between two line ends that need no change are copied in one go.

use memchr::memchr2;

/// Where in a line the next octet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    LineStart,
    /// Behind a dot at the start of a line; the dot is taken off.
    Dot,
    /// Behind a dot and a CR; nothing of the line has been given out.
    DotCr,
    /// Nothing but NULs in this line so far.
    Nul,
    Middle,
    /// Behind a CR, which has been given out.
    Cr,
}

/// What the octets that were taken have led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// All was taken.
    More,
    /// The end of the data; what is behind the octets taken are commands.
    End,
    /// A bare CR or LF, or a dot line with NULs.
    Violation,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Dots {
    place: Place,
}

impl Dots {
    /// Takes octets off the front of `input`, appends what they mean to `sink` (nothing if there is none: the data is
    /// being drained) and says how many were taken. The octet of a violation is not: asked again, it is found again.
    pub(super) fn scan(&mut self, input: &[u8], mut sink: Option<&mut Vec<u8>>) -> (usize, Found) {
        // `input[run..at]` is content that was not copied yet.
        let (mut run, mut at) = (0, 0);
        let mut copy = |run: usize, at: usize| {
            if let Some(sink) = sink.as_deref_mut() {
                sink.extend_from_slice(&input[run..at]);
            }
        };
        let mut found = Found::More;
        while at < input.len() {
            let byte = input[at];
            match self.place {
                Place::LineStart if byte == b'.' => {
                    copy(run, at);
                    at += 1;
                    run = at;
                    self.place = Place::Dot;
                }
                Place::LineStart | Place::Nul if byte == 0 => {
                    at += 1;
                    self.place = Place::Nul;
                }
                Place::Nul if byte == b'.' => {
                    found = Found::Violation;
                    break;
                }
                Place::Dot => match byte {
                    b'\r' => {
                        at += 1;
                        run = at;
                        self.place = Place::DotCr;
                    }
                    0 | b'\n' => {
                        found = Found::Violation;
                        break;
                    }
                    _ => self.place = Place::Middle,
                },
                Place::DotCr if byte == b'\n' => {
                    return (at + 1, Found::End);
                }
                Place::Cr if byte == b'\n' => {
                    at += 1;
                    self.place = Place::LineStart;
                }
                Place::DotCr | Place::Cr => {
                    found = Found::Violation;
                    break;
                }
                Place::LineStart | Place::Nul | Place::Middle => match memchr2(b'\r', b'\n', &input[at..]) {
                    Some(offset) if input[at + offset] == b'\r' => {
                        at += offset + 1;
                        self.place = Place::Cr;
                    }
                    Some(offset) => {
                        at += offset;
                        self.place = if offset == 0 { self.place } else { Place::Middle };
                        found = Found::Violation;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `input` in parts of the given size: content, octets taken, how it ended.
    fn run(input: &[u8], part_bytes: usize) -> (Vec<u8>, usize, Found) {
        let mut dots = Dots::default();
        let mut out = Vec::new();
        let mut taken = 0;
        for part in input.chunks(part_bytes) {
            let (count, found) = dots.scan(part, Some(&mut out));
            taken += count;
            if found != Found::More {
                return (out, taken, found);
            }
            assert_eq!(count, part.len());
        }
        (out, taken, Found::More)
    }

    fn every_split(input: &[u8], check: impl Fn(&[u8], usize, Found)) {
        for part_bytes in 1..=input.len() {
            let (out, taken, found) = run(input, part_bytes);
            check(&out, taken, found);
        }
        for cut in 0..input.len() {
            let mut dots = Dots::default();
            let mut out = Vec::new();
            let (first, mut found) = dots.scan(&input[..cut], Some(&mut out));
            let mut taken = first;
            if found == Found::More {
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
            assert_eq!((out, taken, found), (&b"a\r\n"[..], 6, Found::End));
        });
        // Nothing behind a violation is taken, and it is found again.
        let mut dots = Dots::default();
        assert_eq!(dots.scan(b"ab\nc", None), (2, Found::Violation));
        assert_eq!(dots.scan(b"\nc", None), (0, Found::Violation));
        every_split(b".\r\nQUIT", |out, taken, found| assert_eq!((out, taken, found), (&b""[..], 3, Found::End)));
    }

    #[test]
    fn unstuffs() {
        every_split(b"..\r\n..a\r\n.b\r\n...\r\na.b\r\n.\r\n", |out, _, found| {
            assert_eq!((out, found), (&b".\r\n.a\r\nb\r\n..\r\na.b\r\n"[..], Found::End));
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
            b"\rX",
            b"\n",
        ] {
            let input = [b"Subject: x\r\n\r\ntext", look_alike, b"MAIL FROM:<a@b>\r\n.\r\n"].concat();
            every_split(&input, |out, _, found| {
                assert_eq!(found, Found::Violation, "{look_alike:?}");
                assert!(!out.windows(4).any(|window| window == b"MAIL"), "{look_alike:?}");
            });
        }
    }

    #[test]
    fn look_alikes_at_the_very_start() {
        for look_alike in [&b".\n"[..], b".\r\r\n", b".\0\r\n", b"\0.\r\n", b"\n.\r\n", b"\r.\r\n"] {
            every_split(look_alike, |_, _, found| assert_eq!(found, Found::Violation, "{look_alike:?}"));
        }
    }

    #[test]
    fn nuls_elsewhere_are_content() {
        every_split(b"a\0.\r\n\0\0\r\n\0b.\r\n.\r\n", |out, _, found| {
            assert_eq!((out, found), (&b"a\0.\r\n\0\0\r\n\0b.\r\n"[..], Found::End));
        });
    }

    #[test]
    fn draining_finds_the_same_end() {
        let input = b"..a\r\nb\r\n.\r\nX";
        assert_eq!(Dots::default().scan(input, None), (11, Found::End));
    }
}
