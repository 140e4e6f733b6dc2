//! Parses a session's octets into commands and replies, without message data and credentials.
//!
//! States of the client's side: commands; after DATA, until its reply is seen (earlier octets may be data: a 3xx makes
//! the following octets data, another reply does not); data, until the dot; a chunk of BDAT; after AUTH, until its last
//! reply, and if that refuses, until a command known to SMTP; blind, after a chunk of unknown length. In doubt, lines
//! are not shown. Bounded: [`LINE_BYTES_MAX`] of a line are kept. The caller must begin at the start of a session, or
//! where no transaction is open.

/// Longer lines are cut.
pub const LINE_BYTES_MAX: usize = 512;
/// The end of data (RFC 5321 section 4.1.1.4).
const END: &[u8; 5] = b"\r\n.\r\n";
/// Octets of it that are not data.
const DOT_BYTES: u64 = 3;
/// Commands that end the rest of a refused exchange.
const VERBS: [&str; 12] =
    ["EHLO", "HELO", "LHLO", "STARTTLS", "AUTH", "MAIL", "RCPT", "DATA", "BDAT", "RSET", "NOOP", "QUIT"];

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WireEvent {
    Command(String),
    Reply(String),
    /// Number of octets of a message.
    Data(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Commands,
    /// After DATA: `before` replies to commands sent with it (RFC 2920) precede its own.
    AfterData {
        before: u32,
    },
    Data {
        octets: u64,
        matched: usize,
    },
    Chunk {
        octets: u64,
        left: u64,
    },
    /// After AUTH: `before` replies precede its own.
    AfterAuth {
        before: u32,
    },
    /// Input may be the rest of a refused exchange.
    AuthRefused,
    Blind,
}

/// An incomplete line.
#[derive(Default)]
struct Line(Vec<u8>);

impl Line {
    /// Takes octets up to the line's end off the front. Returns the line if it ended.
    fn take(&mut self, bytes: &mut &[u8]) -> Option<String> {
        let all = *bytes;
        let end = all.iter().position(|octet| *octet == b'\n');
        let (part, rest) = all.split_at(end.map_or(all.len(), |end| end + 1));
        let room = LINE_BYTES_MAX.saturating_sub(self.0.len());
        self.0.extend_from_slice(&part[..part.len().min(room)]);
        *bytes = rest;
        end?;
        let text = String::from_utf8_lossy(&self.0).trim_end_matches(['\r', '\n']).to_owned();
        self.0.clear();
        Some(text)
    }
}

#[derive(Default)]
pub struct Wire {
    state: State,
    /// Number of commands whose reply has not been seen.
    open: u32,
    client: Line,
    server: Line,
}

impl Wire {
    /// Processes octets sent by the client of the session.
    pub fn client(&mut self, mut bytes: &[u8], see: &mut dyn FnMut(WireEvent)) {
        while !bytes.is_empty() {
            match self.state {
                State::Data { octets, matched } => self.data(&mut bytes, octets, matched, see),
                State::Chunk { octets, left } => {
                    let taken = left.min(bytes.len() as u64);
                    bytes = &bytes[taken as usize..];
                    self.state = State::Chunk { octets, left: left - taken };
                    if left == taken {
                        self.state = State::Commands;
                        see(WireEvent::Data(octets));
                    }
                }
                State::Commands
                | State::AfterData { .. }
                | State::AfterAuth { .. }
                | State::AuthRefused
                | State::Blind => {
                    let Some(line) = self.client.take(&mut bytes) else { return };
                    self.command(line, see);
                }
            }
        }
    }

    fn data(&mut self, bytes: &mut &[u8], octets: u64, mut matched: usize, see: &mut dyn FnMut(WireEvent)) {
        let all = *bytes;
        for (at, octet) in all.iter().enumerate() {
            matched = if *octet == END[matched] { matched + 1 } else { usize::from(*octet == END[0]) };
            if matched == END.len() {
                (self.state, self.open) = (State::Commands, 1);
                see(WireEvent::Data((octets + at as u64 + 1).saturating_sub(DOT_BYTES)));
                *bytes = &all[at + 1..];
                return;
            }
        }
        self.state = State::Data { octets: octets + all.len() as u64, matched };
        *bytes = &[];
    }

    fn command(&mut self, line: String, see: &mut dyn FnMut(WireEvent)) {
        match self.state {
            State::AfterAuth { .. } => return see(WireEvent::Command("(credentials)".to_owned())),
            State::AfterData { .. } | State::Blind => return see(WireEvent::Command("(not shown)".to_owned())),
            _ => {}
        }
        let before = self.open;
        self.open = before.saturating_add(1);
        let mut words = line.split_ascii_whitespace();
        let verb = words.next().unwrap_or_default().to_ascii_uppercase();
        if self.state == State::AuthRefused {
            if !VERBS.contains(&verb.as_str()) {
                return see(WireEvent::Command("(credentials)".to_owned()));
            }
            self.state = State::Commands;
        }
        match verb.as_str() {
            "AUTH" => {
                let mechanism = words.next().unwrap_or_default();
                self.state = State::AfterAuth { before };
                return see(WireEvent::Command(format!("AUTH {mechanism} (credentials)")));
            }
            "DATA" => self.state = State::AfterData { before },
            "BDAT" => match words.next().and_then(|octets| octets.parse().ok()) {
                Some(0) => {}
                Some(octets) => self.state = State::Chunk { octets, left: octets },
                None => self.state = State::Blind,
            },
            _ => {}
        }
        see(WireEvent::Command(line));
    }

    /// Processes octets sent by the server of the session.
    pub fn server(&mut self, mut bytes: &[u8], see: &mut dyn FnMut(WireEvent)) {
        while !bytes.is_empty() {
            let Some(line) = self.server.take(&mut bytes) else { return };
            if line.as_bytes().get(3) != Some(&b'-') {
                self.replied(line.as_bytes().first().copied().unwrap_or_default());
            }
            see(WireEvent::Reply(line));
        }
    }

    /// Handles the end of a reply.
    fn replied(&mut self, class: u8) {
        let asks_for_more = class == b'3';
        self.open = self.open.saturating_sub(1);
        match self.state {
            State::AfterData { before } if before > 0 => self.state = State::AfterData { before: before - 1 },
            // The following octets are at the beginning of a line. Our own client takes any 3xx for a 354.
            State::AfterData { .. } if asks_for_more => self.state = State::Data { octets: 0, matched: 2 },
            State::AfterData { .. } => self.state = State::Commands,
            State::AfterAuth { before } if before > 0 => self.state = State::AfterAuth { before: before - 1 },
            State::AfterAuth { .. } if class == b'2' => self.state = State::Commands,
            State::AfterAuth { .. } if !asks_for_more => self.state = State::AuthRefused,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Marks the client's octets with `>`, and the server's with `<`.
    fn seen(parts: &[&str], size: usize) -> Vec<String> {
        let (mut wire, mut all) = (Wire::default(), Vec::new());
        let mut see = |seen| {
            all.push(match seen {
                WireEvent::Command(text) => format!("C: {text}"),
                WireEvent::Reply(text) => format!("S: {text}"),
                WireEvent::Data(octets) => format!("({octets})"),
            });
        };
        for part in parts {
            for piece in part.as_bytes()[1..].chunks(size) {
                if part.starts_with('>') { wire.client(piece, &mut see) } else { wire.server(piece, &mut see) }
            }
        }
        all
    }

    #[test]
    fn data_and_credentials_are_blanked_wherever_pieces_end() {
        let parts = [
            "<220 mx ready\r\n",
            ">EHLO me\r\n",
            "<250-mx\r\n250 AUTH PLAIN LOGIN\r\n",
            ">auth LOGIN c2VjcmV0\r\n",
            "<334 cGFzcw==\r\n",
            ">c2VjcmV0\r\n",
            "<235 ok\r\n",
            ">MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n",
            "<250 ok\r\n250 ok\r\n354 go on\r\n",
            ">secret: 1\r\n\r\nMAIL FROM:<secret>\r\n..\r\r\n.\r\nMAIL FROM:<x@y>\r\nDATA\r\n",
            "<250 taken\r\n250 ok\r\n503 no\r\n",
            ">BDAT 8 LAST\r\nsecret\r\nQUIT\r\n",
            "<250 ok\r\n221 bye\r\n",
        ];
        let expected = [
            "S: 220 mx ready",
            "C: EHLO me",
            "S: 250-mx",
            "S: 250 AUTH PLAIN LOGIN",
            "C: AUTH LOGIN (credentials)",
            "S: 334 cGFzcw==",
            "C: (credentials)",
            "S: 235 ok",
            "C: MAIL FROM:<a@b>",
            "C: RCPT TO:<c@d>",
            "C: DATA",
            "S: 250 ok",
            "S: 250 ok",
            "S: 354 go on",
            "(38)",
            "C: MAIL FROM:<x@y>",
            "C: DATA",
            "S: 250 taken",
            "S: 250 ok",
            "S: 503 no",
            "C: BDAT 8 LAST",
            "(8)",
            "C: QUIT",
            "S: 250 ok",
            "S: 221 bye",
        ];
        for size in [1, 2, 3, 7, 1_000] {
            assert_eq!(seen(&parts, size), expected, "pieces of {size}");
        }
    }

    #[test]
    fn what_may_be_data_or_credentials_is_not_shown() {
        let parts = [
            ">MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n",
            "<250 ok\r\n550 no\r\n",
            ">secret\r\n",
            "<350 go\r\n",
            ">secret\r\n.\r\nAUTH LOGIN\r\nsecret\r\nsecret\r\n",
            "<250 taken\r\n",
            ">BDAT many\r\nsecret\r\n",
        ];
        for size in [1, 3, 1_000] {
            let all = seen(&parts, size);
            assert!(!all.iter().any(|line| line.contains("secret")), "{all:?}");
        }
    }

    #[test]
    fn the_rest_of_a_refused_exchange_is_not_shown() {
        let parts = [
            ">EHLO me\r\nAUTH LOGIN\r\n",
            "<250 mx\r\n",
            ">secret\r\n",
            "<538 no\r\n",
            ">secret\r\n",
            "<500 no\r\n",
            ">NOOP\r\nFOO\r\n",
            "<250 ok\r\n500 no\r\n",
        ];
        for size in [1, 3, 1_000] {
            let all = seen(&parts, size);
            assert!(!all.iter().any(|line| line.contains("secret")) && all.contains(&"C: FOO".to_owned()), "{all:?}");
        }
    }

    #[test]
    fn an_empty_message_ends_at_once_and_long_lines_are_cut() {
        assert_eq!(seen(&[">DATA\r\n", "<354 go\r\n", ">.\r\nQUIT\r\n"], 3).last().unwrap(), "C: QUIT");
        let long = format!(">{}\r\nNOOP\r\n", "x".repeat(5_000));
        let all = seen(&[&long], 100);
        assert_eq!((all.len(), all[0].len(), all[1].as_str()), (2, LINE_BYTES_MAX + 3, "C: NOOP"));
    }
}
