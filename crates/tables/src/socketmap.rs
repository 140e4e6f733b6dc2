//! The protocol of `socketmap:`, by which sendmail and Postfix query another program.
//!
//! A request is the netstring of `name key`, a reply that of `OK value`, `NOTFOUND `, `TEMP why`, `TIMEOUT why` or
//! `PERM why`. This module does no I/O: [`request`] makes the octets to send, [`Decoder::reply`] parses those
//! received. A malformed reply ends the connection and is a temporary failure of the lookup.

/// Maximum length of a reply, as in Postfix, and of a request.
pub const BYTES_MAX: usize = 100_000;
/// Maximum digits of a netstring's length.
const LENGTH_DIGITS_MAX: usize = 6;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketmapReply {
    Found(Vec<u8>),
    NotFound,
    /// TEMP, TIMEOUT or PERM, with the reason. Postfix treats all three as temporary.
    Tempfail(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error("the key is too long for a request")]
    KeyTooLong,
    #[error("the reply is longer than {BYTES_MAX} octets")]
    ReplyTooLong,
    #[error("the reply is not a netstring")]
    NoNetstring,
    #[error("the reply does not begin with OK, NOTFOUND, TEMP, TIMEOUT or PERM")]
    UnknownReply,
    #[error("unexpected octets after the reply")]
    TooMuch,
}

/// Replaces `out` by the request for a key.
pub fn request(name: &str, key: &[u8], out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    let length = name.len() + 1 + key.len();
    if length > BYTES_MAX {
        return Err(ProtocolError::KeyTooLong);
    }
    out.clear();
    out.extend_from_slice(length.to_string().as_bytes());
    out.push(b':');
    out.extend_from_slice(name.as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b',');
    Ok(())
}

/// Octets received of one reply.
#[derive(Debug, Default)]
pub struct Decoder {
    received: Vec<u8>,
}

impl Decoder {
    /// Adds received octets; returns the reply once it is complete, after which the decoder is empty again.
    pub fn reply(&mut self, octets: &[u8]) -> Result<Option<SocketmapReply>, ProtocolError> {
        self.received.extend_from_slice(octets);
        let received = self.received.as_slice();
        let digits = received.iter().take_while(|octet| octet.is_ascii_digit()).count();
        if digits > LENGTH_DIGITS_MAX {
            return Err(ProtocolError::ReplyTooLong);
        }
        let Some(&colon) = received.get(digits) else { return Ok(None) };
        if colon != b':' || digits == 0 || (digits > 1 && received[0] == b'0') {
            return Err(ProtocolError::NoNetstring);
        }
        let length = received[..digits].iter().fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
        if length > BYTES_MAX {
            return Err(ProtocolError::ReplyTooLong);
        }
        let end = digits + 1 + length;
        match received.get(end) {
            None => return Ok(None),
            Some(b',') => {}
            Some(_) => return Err(ProtocolError::NoNetstring),
        }
        if received.len() > end + 1 {
            return Err(ProtocolError::TooMuch);
        }
        let reply = parse(&received[digits + 1..end])?;
        self.received.clear();
        Ok(Some(reply))
    }
}

fn parse(text: &[u8]) -> Result<SocketmapReply, ProtocolError> {
    let (word, rest) = match text.iter().position(|&octet| octet == b' ') {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, &[][..]),
    };
    let failure = || {
        let (word, why) = (String::from_utf8_lossy(word), String::from_utf8_lossy(rest));
        SocketmapReply::Tempfail(if why.trim().is_empty() {
            word.into_owned()
        } else {
            format!("{word}: {}", why.trim())
        })
    };
    match word {
        b"OK" => Ok(SocketmapReply::Found(rest.to_vec())),
        b"NOTFOUND" => Ok(SocketmapReply::NotFound),
        b"TEMP" | b"TIMEOUT" | b"PERM" => Ok(failure()),
        _ => Err(ProtocolError::UnknownReply),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(text: &[u8]) -> Result<Option<SocketmapReply>, ProtocolError> {
        Decoder::default().reply(text)
    }

    #[test]
    fn requests() {
        let mut out = b"old".to_vec();
        request("virtual", b"a@b", &mut out).unwrap();
        assert_eq!(out, b"11:virtual a@b,");
        assert_eq!(request("v", &vec![0; BYTES_MAX], &mut out), Err(ProtocolError::KeyTooLong));
    }

    #[test]
    fn replies() {
        assert_eq!(decode(b"7:OK a  b,"), Ok(Some(SocketmapReply::Found(b"a  b".to_vec()))));
        assert_eq!(decode(b"3:OK ,"), Ok(Some(SocketmapReply::Found(Vec::new()))));
        assert_eq!(decode(b"9:NOTFOUND ,"), Ok(Some(SocketmapReply::NotFound)));
        assert_eq!(decode(b"8:NOTFOUND,"), Ok(Some(SocketmapReply::NotFound)));
        assert_eq!(decode(b"12:TEMP no base,"), Ok(Some(SocketmapReply::Tempfail("TEMP: no base".into()))));
        assert_eq!(decode(b"5:PERM ,"), Ok(Some(SocketmapReply::Tempfail("PERM".into()))));
    }

    #[test]
    fn what_is_no_reply() {
        for (text, error) in [
            (&b"x"[..], ProtocolError::NoNetstring),
            (b":,", ProtocolError::NoNetstring),
            (b"03:OK ,", ProtocolError::NoNetstring),
            (b"3:OK x", ProtocolError::NoNetstring),
            (b"100001:", ProtocolError::ReplyTooLong),
            (b"99999999999", ProtocolError::ReplyTooLong),
            (b"2:HM,", ProtocolError::UnknownReply),
            (b"0:,", ProtocolError::UnknownReply),
            (b"3:OK ,3:OK ,", ProtocolError::TooMuch),
        ] {
            assert_eq!(decode(text), Err(error), "{}", text.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn replies_may_come_in_pieces(value in proptest::collection::vec(any::<u8>(), 0..300), at in 1_usize..50) {
            let text = [format!("{}:OK ", value.len() + 3).as_bytes(), &value, b","].concat();
            let mut decoder = Decoder::default();
            let mut pieces = text.chunks(at).peekable();
            while let Some(piece) = pieces.next() {
                let reply = decoder.reply(piece).unwrap();
                let expected = pieces.peek().is_none().then(|| SocketmapReply::Found(value.clone()));
                prop_assert_eq!(reply, expected);
            }
        }

        #[test]
        fn no_octets_are_too_much(pieces in proptest::collection::vec("[0-9:, OKTEMP]{0,12}", 0..6)) {
            let mut decoder = Decoder::default();
            for piece in pieces {
                if decoder.reply(piece.as_bytes()).is_err() {
                    break;
                }
            }
        }
    }
}
