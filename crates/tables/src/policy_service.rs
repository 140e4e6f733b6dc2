//! Postfix's access policy delegation protocol (`SMTPD_POLICY_README`): another program decides about a recipient.
//!
//! Requests and replies consist of lines `name=value` and end with an empty line; of a reply only `action` counts.
//! This module does no I/O: [`request`] makes the text to send, [`Decoder::reply`] parses the octets received. A
//! malformed reply ends the connection and is a temporary failure for the recipient.

use std::fmt::Write as _;

/// Maximum length of a reply; Postfix's limit for a line is 2,048.
pub const BYTES_MAX: usize = 16 * 1024;
const ACTION: &str = "action=";

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error("the reply is longer than {BYTES_MAX} octets")]
    TooLong,
    #[error("the reply has no action")]
    NoAction,
    #[error("the reply is not UTF-8")]
    NotUtf8,
    #[error("unexpected octets after the reply")]
    TooMuch,
}

/// Formats a request. Control characters in a value would end it or the request, so they become `?`.
pub fn request<'a>(attributes: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::new();
    for (name, value) in attributes {
        out.push_str(name);
        out.push('=');
        out.extend(value.chars().map(|letter| if letter.is_control() { '?' } else { letter }));
        out.push('\n');
    }
    let _ = writeln!(out);
    out
}

/// Octets received of one reply.
#[derive(Debug, Default)]
pub struct Decoder {
    received: Vec<u8>,
}

impl Decoder {
    /// Adds received octets; returns the action once the reply is complete, after which the decoder is empty again.
    ///
    /// # Errors
    /// It is not a reply of this protocol.
    pub fn reply(&mut self, octets: &[u8]) -> Result<Option<String>, ProtocolError> {
        // The end marker may be split.
        let begin = self.received.len().saturating_sub(1);
        self.received.extend_from_slice(octets);
        let Some(end) = self.received[begin..].windows(2).position(|pair| pair == b"\n\n") else {
            return if self.received.len() > BYTES_MAX { Err(ProtocolError::TooLong) } else { Ok(None) };
        };
        let end = begin + end;
        let received = std::mem::take(&mut self.received);
        if received.len() > end + 2 {
            return Err(ProtocolError::TooMuch);
        }
        let text = std::str::from_utf8(&received[..end]).map_err(|_| ProtocolError::NotUtf8)?;
        let action = text.lines().find_map(|line| line.strip_prefix(ACTION)).map(str::trim);
        match action {
            Some(action) if !action.is_empty() => Ok(Some(action.to_owned())),
            _ => Err(ProtocolError::NoAction),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests() {
        let all = [("request", "smtpd_access_policy"), ("helo_name", "a\nb"), ("sender", "")];
        assert_eq!(request(all), "request=smtpd_access_policy\nhelo_name=a?b\nsender=\n\n");
    }

    #[test]
    fn replies() {
        let reply = |text: &str| Decoder::default().reply(text.as_bytes());
        assert_eq!(reply("action=DUNNO\n\n"), Ok(Some("DUNNO".into())));
        assert_eq!(reply("x=1\naction=550 5.7.1 no\ny=2\n\n"), Ok(Some("550 5.7.1 no".into())));
        assert_eq!(reply("action=DUNNO\n"), Ok(None));
        assert_eq!(reply("\n\n"), Err(ProtocolError::NoAction));
        assert_eq!(reply("action=\n\n"), Err(ProtocolError::NoAction));
        assert_eq!(reply("action=OK\n\nx"), Err(ProtocolError::TooMuch));
        assert_eq!(Decoder::default().reply(b"action=\xff\n\n"), Err(ProtocolError::NotUtf8));
        assert_eq!(reply(&"a".repeat(BYTES_MAX + 1)), Err(ProtocolError::TooLong));
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(text in "(action=[A-Z]{0,6}\n|[a-z]=?\n|\n){0,5}", cut in 1_usize..5) {
            let whole = Decoder::default().reply(text.as_bytes());
            let mut decoder = Decoder::default();
            let mut parts = Ok(None);
            for part in text.as_bytes().chunks(cut) {
                // Octets after a complete reply are an error, in the same read or in a later one.
                parts = if matches!(parts, Ok(Some(_))) { Err(ProtocolError::TooMuch) } else { decoder.reply(part) };
                if parts.is_err() {
                    break;
                }
            }
            prop_assert!(whole == parts || whole == Err(ProtocolError::TooMuch) && parts.is_err(), "{whole:?} {parts:?}");
        }

        #[test]
        fn never_panics(octets in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Decoder::default().reply(&octets);
        }
    }
}
