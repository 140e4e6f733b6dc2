//! Splits a message into fields and body as it streams by. A line that is not a field ends the header section, as in
//! [`crate::headers`]. Memory: one field name.

/// Longest name of a field, its colon included (RFC 5322 section 2.1.1: a line).
const NAME_BYTES_MAX: usize = 998;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    LineStart,
    Name,
    Value,
    Body,
}

/// A piece of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// A field begins: its name and colon.
    Name(&'a [u8]),
    /// A part of its value, line ends and continuation lines included.
    Value(&'a [u8]),
    /// The header section is over; comes once, unless the message ends before.
    BodyBegins,
    Body(&'a [u8]),
}

/// Incremental splitter; see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    state: State,
    name: Vec<u8>,
    has_field: bool,
}

impl Splitter {
    /// Takes the next octets.
    pub(crate) fn push(&mut self, bytes: &[u8], sink: &mut impl FnMut(Piece<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match self.state {
                State::Body => {
                    sink(Piece::Body(rest));
                    rest.len()
                }
                State::Value => {
                    let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
                    sink(Piece::Value(&rest[..end]));
                    if rest[end - 1] == b'\n' {
                        self.state = State::LineStart;
                    }
                    end
                }
                State::LineStart if self.has_field && matches!(rest[0], b' ' | b'\t') => {
                    self.state = State::Value;
                    0
                }
                State::LineStart | State::Name => {
                    self.state = State::Name;
                    self.name(rest[0], sink);
                    1
                }
            };
            rest = &rest[taken..];
        }
    }

    /// End of the message. An unfinished line that might have become a field was body.
    pub(crate) fn finish(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        if self.state == State::Name {
            self.body(sink);
        }
    }

    fn name(&mut self, byte: u8, sink: &mut impl FnMut(Piece<'_>)) {
        self.name.push(byte);
        match byte {
            b':' if self.name.len() > 1 => {
                sink(Piece::Name(&self.name));
                self.name.clear();
                self.has_field = true;
                self.state = State::Value;
            }
            b'\n' if self.name == b"\r\n" || self.name == b"\n" => {
                self.name.clear();
                self.body(sink);
            }
            b'\r' if self.name.len() == 1 => {}
            // RFC 5322 section 2.2: printable ASCII without a space; RFC 6532 changes no names.
            b'!'..=b'~' if self.name.len() < NAME_BYTES_MAX && self.name[0] != b'\r' && byte != b':' => {}
            _ => self.body(sink),
        }
    }

    fn body(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        self.state = State::Body;
        sink(Piece::BodyBegins);
        if !self.name.is_empty() {
            sink(Piece::Body(&self.name));
            self.name.clear();
        }
    }
}
