//! Answers of a milter: a reply to an event, or a change to the message.

use stentor_mail::reply::{Enhanced, Reply};

use crate::protocol::wire::{Error, shown, take_text, take_u32};

/// Texts of Postfix.
const REJECTED: Reply = Reply::fixed(550, Enhanced::new(5, 7, 1), "Command rejected");
const DEFERRED: Reply = Reply::fixed(451, Enhanced::new(4, 7, 1), "Service unavailable - try again later");
const CLOSING: Reply = Reply::fixed(421, Enhanced::new(4, 7, 0), "Server closing connection");

/// A reply to an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MilterReply {
    Continue,
    /// It does not want any more of this message or, before MAIL, of this connection.
    Accept,
    /// The client gets this 4xx or 5xx reply.
    Refuse(Reply),
    /// The client is told that the message was accepted, but it is dropped.
    Discard,
    /// It does not need the rest of the body.
    Skip,
}

impl MilterReply {
    /// Its name in libmilter, for logs and counters.
    pub fn name(&self) -> &'static str {
        match self {
            MilterReply::Continue => "continue",
            MilterReply::Accept => "accept",
            MilterReply::Refuse(reply) if reply.is_temporary() => "tempfail",
            MilterReply::Refuse(_) => "reject",
            MilterReply::Discard => "discard",
            MilterReply::Skip => "skip",
        }
    }
}

/// A change to the message, before the last reply. Texts are as sent by the milter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    AddHeader {
        name: Vec<u8>,
        value: Vec<u8>,
    },
    /// `index` counts the fields of this name from 1; without a value the field is removed.
    ChangeHeader {
        index: u32,
        name: Vec<u8>,
        value: Vec<u8>,
    },
    /// `index` is the position among all fields; 0 is before the first.
    InsertHeader {
        index: u32,
        name: Vec<u8>,
        value: Vec<u8>,
    },
    /// The next octets of a new body.
    Body(Vec<u8>),
    /// An address, usually in angle brackets, and parameters of RCPT.
    AddRecipient {
        to: Vec<u8>,
        params: Vec<u8>,
    },
    DeleteRecipient(Vec<u8>),
    /// An address, usually in angle brackets, and parameters of MAIL.
    Sender {
        from: Vec<u8>,
        params: Vec<u8>,
    },
    Quarantine(Vec<u8>),
}

impl Change {
    /// Whether it changes a header field of this name.
    pub fn sets_field(&self, field: &str) -> bool {
        match self {
            Change::AddHeader { name, .. } | Change::ChangeHeader { name, .. } | Change::InsertHeader { name, .. } => {
                name.eq_ignore_ascii_case(field.as_bytes())
            }
            _ => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Reply(MilterReply),
    Change(Change),
    /// It needs more time.
    Progress,
}

impl Answer {
    pub fn read(command: u8, data: &[u8]) -> Result<Answer, Error> {
        let answer = |reply| Ok(Answer::Reply(reply));
        let change = |change, what| change_of(change).map(Answer::Change).ok_or(Error::Malformed(what));
        match command {
            b'c' => answer(MilterReply::Continue),
            b'a' => answer(MilterReply::Accept),
            b'd' => answer(MilterReply::Discard),
            b's' => answer(MilterReply::Skip),
            b'r' => answer(MilterReply::Refuse(REJECTED)),
            b't' => answer(MilterReply::Refuse(DEFERRED)),
            b'4' => answer(MilterReply::Refuse(CLOSING)),
            b'y' => answer(MilterReply::Refuse(reply(data).ok_or(Error::Malformed("reply code"))?)),
            b'p' => Ok(Answer::Progress),
            b'h' => change(RawAnswer { command, data }, "ADDHEADER"),
            b'm' => change(RawAnswer { command, data }, "CHGHEADER"),
            b'i' => change(RawAnswer { command, data }, "INSHEADER"),
            b'b' => Ok(Answer::Change(Change::Body(data.to_vec()))),
            b'+' => change(RawAnswer { command, data }, "ADDRCPT"),
            b'2' => change(RawAnswer { command, data }, "ADDRCPT_PAR"),
            b'-' => change(RawAnswer { command, data }, "DELRCPT"),
            b'e' => change(RawAnswer { command, data }, "CHGFROM"),
            b'q' => change(RawAnswer { command, data }, "QUARANTINE"),
            b'f' => Err(Error::Unexpected("the event", "a connection failure".to_owned())),
            _ => Err(Error::Unexpected("the event", shown(command))),
        }
    }
}

struct RawAnswer<'a> {
    command: u8,
    data: &'a [u8],
}

/// Parses a change of texts and numbers. Data after them is ignored, as libmilter's peers do.
fn change_of(RawAnswer { command, mut data }: RawAnswer<'_>) -> Option<Change> {
    let index = if matches!(command, b'm' | b'i') { take_u32(&mut data)? } else { 0 };
    let first = take_text(&mut data)?.to_vec();
    let second = match take_text(&mut data) {
        Some(text) => text.to_vec(),
        // Without parameters the second text may be missing.
        None if matches!(command, b'h' | b'm' | b'i') => return None,
        None => Vec::new(),
    };
    Some(match command {
        b'h' => Change::AddHeader { name: field_name(first)?, value: second },
        b'm' => Change::ChangeHeader { index, name: field_name(first)?, value: second },
        b'i' => Change::InsertHeader { index, name: field_name(first)?, value: second },
        b'+' | b'2' => Change::AddRecipient { to: first, params: second },
        b'-' => Change::DeleteRecipient(first),
        b'e' => Change::Sender { from: first, params: second },
        b'q' => Change::Quarantine(first),
        _ => return None,
    })
}

/// A field name (RFC 5322 section 2.2): printable ASCII without a colon.
fn field_name(name: Vec<u8>) -> Option<Vec<u8>> {
    const NAME_BYTES_MAX: usize = 500;
    let is_valid = |octet: &u8| matches!(octet, b'!'..=b'~') && *octet != b':';
    ((1..=NAME_BYTES_MAX).contains(&name.len()) && name.iter().all(is_valid)).then_some(name)
}

/// Parses `550 5.7.1 text`, of one or several lines. All lines have the same 4xx or 5xx code, and enhanced codes have
/// its class; `%%` means `%`, since sendmail uses the text as a format.
fn reply(data: &[u8]) -> Option<Reply> {
    let data = data.split(|&octet| octet == 0).next()?;
    let text = String::from_utf8_lossy(data).replace("%%", "%");
    let (mut code, mut enhanced, mut lines) = (None, None, Vec::new());
    for line in text.trim_end_matches(['\r', '\n']).split('\n') {
        let line = line.trim_end_matches('\r');
        let (digits, rest) = line.split_at_checked(3)?;
        let is_code = digits.starts_with(['4', '5']) && digits.bytes().all(|octet| octet.is_ascii_digit());
        if !is_code || code.is_some_and(|code| code != digits) {
            return None;
        }
        code = Some(digits);
        let rest = match rest.split_at_checked(1) {
            Some((" " | "-", rest)) => rest,
            None => "",
            Some(_) => return None,
        };
        let own = Enhanced::parse(rest);
        if own.is_some_and(|own| !digits.starts_with(char::from(b'0' + own.class))) {
            return None;
        }
        let rest = if own.is_some() { rest.split_once(' ').map_or("", |(_, rest)| rest) } else { rest };
        enhanced = enhanced.or(own);
        lines.push(rest);
    }
    Some(Reply { code: code?.parse().ok()?, enhanced, text: lines.join("\n").into(), limit: None })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(data: &[u8]) -> Option<String> {
        let mut out = Vec::new();
        reply(data)?.write_to(&mut out);
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn replies() {
        for (sent, wanted) in [
            ("550 5.7.1 Go away\0", "550 5.7.1 Go away\r\n"),
            ("451 4.3.0 100%% later\0", "451 4.3.0 100% later\r\n"),
            ("550-5.7.1 One\r\n550 5.7.1 two\0", "550-5.7.1 One\r\n550 5.7.1 two\r\n"),
            ("554 No code\0", "554 No code\r\n"),
            ("421 4.7.0 Bye", "421 4.7.0 Bye\r\n"),
            ("550", "550 \r\n"),
        ] {
            assert_eq!(written(sent.as_bytes()).as_deref(), Some(wanted), "{sent}");
        }
        for bad in
            ["", "250 2.0.0 Ok", "354 Go", "55 x", "5500 x", "5x0 x", "550 4.7.1 x", "550-a\r\n451 b", "550 a\r\n250 b"]
        {
            assert_eq!(written(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn changes() {
        let read = |command, data: &[u8]| match Answer::read(command, data) {
            Ok(Answer::Change(change)) => Some(change),
            _ => None,
        };
        let (name, value) = (b"X-A".to_vec(), b"1\n 2".to_vec());
        assert_eq!(read(b'h', b"X-A\x001\n 2\0"), Some(Change::AddHeader { name: name.clone(), value: value.clone() }));
        assert_eq!(
            read(b'i', b"\0\0\0\x01X-A\x001\n 2\0"),
            Some(Change::InsertHeader { index: 1, name: name.clone(), value })
        );
        assert_eq!(read(b'm', b"\0\0\0\x02X-A\0\0"), Some(Change::ChangeHeader { index: 2, name, value: Vec::new() }));
        assert_eq!(
            read(b'+', b"<a@x.test>\0"),
            Some(Change::AddRecipient { to: b"<a@x.test>".to_vec(), params: Vec::new() })
        );
        assert_eq!(
            read(b'2', b"<a@x.test>\0NOTIFY=NEVER\0"),
            Some(Change::AddRecipient { to: b"<a@x.test>".to_vec(), params: b"NOTIFY=NEVER".to_vec() })
        );
        for (command, bad) in [
            (b'h', &b"X-A\0"[..]),
            (b'h', b"X-A\x001"),
            (b'h', b"\x001\0"),
            (b'h', b"X A\x001\0"),
            (b'h', b"X:A\x001\0"),
            (b'h', b"X\r\nA\x001\0"),
            (b'm', b"\0\0\x02X\0"),
            (b'i', b"\0\0\0\x02"),
            (b'-', b"<a@x.test>"),
            (b'q', b""),
        ] {
            assert!(Answer::read(command, bad).is_err(), "{}", bad.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_reply_is_a_refusal_of_one_code(data in proptest::collection::vec(any::<u8>(), 0..80), digits in "[0-9]{3}[ -]") {
            let data = [digits.as_bytes(), &data].concat();
            if let Ok(Answer::Reply(MilterReply::Refuse(reply))) = Answer::read(b'y', &data) {
                prop_assert!((400..600).contains(&reply.code));
                prop_assert!(reply.enhanced.is_none_or(|dsn| u16::from(dsn.class) == reply.code / 100));
            }
        }

        #[test]
        fn any_answer_is_read_without_a_panic(command: u8, data in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Answer::read(command, &data);
        }
    }
}
