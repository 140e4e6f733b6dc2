//! Finds addresses in header fields, octet for octet, so that only these can be changed.
//!
//! Promise: in fields that name senders and recipients, each addr-spec of RFC 5322 section 3.4 is found: in groups,
//! after display names, between comments, quoted strings, encoded words and folds, also with white space and comments
//! within it and after a source route (section 4.4). Only its local part or its domain is replaced; every other octet
//! stays. Time is linear.
//!
//! Failure: text that is not an address is skipped up to the next comma; after an unclosed quote or comment nothing of
//! the field is changed.

use std::ops::Range;

use stentor_mime::field::{self, Line, LineContext};

/// Maximum addresses of one header that are examined.
pub const HEADER_ADDRESSES_MAX: usize = 10_000;

/// The kind of addresses in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressRole {
    Sender,
    Recipient,
}

const FIELDS: [(&str, AddressRole); 17] = [
    ("from", AddressRole::Sender),
    ("sender", AddressRole::Sender),
    ("reply-to", AddressRole::Sender),
    ("resent-from", AddressRole::Sender),
    ("resent-sender", AddressRole::Sender),
    ("resent-reply-to", AddressRole::Sender),
    ("errors-to", AddressRole::Sender),
    ("return-receipt-to", AddressRole::Sender),
    ("disposition-notification-to", AddressRole::Sender),
    ("mail-followup-to", AddressRole::Sender),
    ("to", AddressRole::Recipient),
    ("cc", AddressRole::Recipient),
    ("bcc", AddressRole::Recipient),
    ("apparently-to", AddressRole::Recipient),
    ("resent-to", AddressRole::Recipient),
    ("resent-cc", AddressRole::Recipient),
    ("resent-bcc", AddressRole::Recipient),
];

/// One address of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderAddress {
    pub role: AddressRole,
    /// The address without white space and comments.
    pub address: String,
    local: Range<usize>,
    domain: Range<usize>,
}

/// Returns all addresses of a message's header section, in order. The message may end anywhere after it.
pub fn addresses(message: &[u8]) -> Vec<HeaderAddress> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((name, value)) = field(message, at) {
        let role = FIELDS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes())).map(|(_, role)| *role);
        if let Some(role) = role {
            let before = found.len();
            if list(message, value.clone(), role, &mut found).is_none() {
                found.truncate(before);
            }
        }
        at = value.end;
    }
    found.truncate(HEADER_ADDRESSES_MAX);
    found
}

/// Returns the octets of a message's header section, without the empty line that ends it, as far as the message goes.
pub fn header_octets(message: &[u8]) -> usize {
    let mut at = 0;
    while let Some((_, value)) = field(message, at) {
        at = value.end;
    }
    at
}

/// Examines the header of a message that arrives in pieces: returns the octets of complete fields, and whether the
/// header ends after them.
pub(crate) fn whole_fields(begun: &[u8]) -> (usize, bool) {
    let mut at = 0;
    for whole in field::lines(begun) {
        let is_last = at + whole.len() == begun.len();
        if is_last && !whole.contains(&b'\n') {
            break;
        }
        if !matches!(field::line(LineContext::Bare, whole, true), Some(Line::Field { .. })) {
            return (at, true);
        }
        // A fold may follow unless another line has begun.
        if is_last {
            break;
        }
        at += whole.len();
    }
    (at, false)
}

/// An address to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressChange {
    pub old: HeaderAddress,
    /// The new local part.
    pub local: String,
    /// The new domain.
    pub domain: String,
}

/// Returns the message with changed addresses.
pub fn replaced(message: &[u8], changes: &[AddressChange]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 64);
    let mut at = 0;
    for AddressChange { old, local, domain } in changes {
        for (range, text) in [(&old.local, local), (&old.domain, domain)] {
            let is_same = message.get(range.clone()).is_some_and(|own| own == text.as_bytes());
            if range.start >= at && !is_same {
                out.extend_from_slice(&message[at..range.start]);
                out.extend_from_slice(text.as_bytes());
                at = range.end;
            }
        }
    }
    out.extend_from_slice(&message[at..]);
    out
}

/// Returns the name of the field that begins here, and the range of its value, including folds and the final line end.
/// `None`: the section has ended.
fn field(message: &[u8], begin: usize) -> Option<(&[u8], Range<usize>)> {
    let whole = field::lines(message.get(begin..)?).next()?;
    let Some(Line::Field { name, colon }) = field::line(LineContext::Bare, whole, true) else { return None };
    Some((&whole[..name], begin + colon + 1..begin + whole.len()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    /// An atom or a quoted string.
    Word,
    /// A domain in brackets.
    Literal,
    Special(u8),
}

/// Returns the tokens of an address list with their positions, without comments, folds and white space. `None`:
/// something is not closed.
fn tokens(message: &[u8], value: Range<usize>) -> Option<Vec<(Token, Range<usize>)>> {
    let mut tokens = Vec::new();
    let mut at = value.start;
    while at < value.end {
        let begin = at;
        match message[at] {
            b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            b'(' => at += field::comment_end(&message[at..value.end])?,
            b'"' => {
                at += field::quoted_end(&message[at..value.end], b'"')?;
                tokens.push((Token::Word, begin..at));
            }
            b'[' => {
                at += field::quoted_end(&message[at..value.end], b']')?;
                tokens.push((Token::Literal, begin..at));
            }
            special @ (b'<' | b'>' | b'@' | b',' | b';' | b':' | b'.') => {
                at += 1;
                tokens.push((Token::Special(special), begin..at));
            }
            b')' | b'\\' | b']' => {
                // A character that cannot occur in an address.
                at += 1;
                tokens.push((Token::Special(b'\\'), begin..at));
            }
            _ => {
                while at < value.end && !b" \t\r\n()\"[]<>@,;:.\\".contains(&message[at]) {
                    at += 1;
                }
                tokens.push((Token::Word, begin..at));
            }
        }
    }
    Some(tokens)
}

/// Adds the addresses of a field.
fn list(message: &[u8], value: Range<usize>, role: AddressRole, found: &mut Vec<HeaderAddress>) -> Option<()> {
    let tokens = tokens(message, value)?;
    let mut rest = tokens.as_slice();
    while !rest.is_empty() {
        // Outside angle brackets, a comma, colon or semicolon ends a mailbox or the name of a group.
        let mut is_within = false;
        let end = rest.iter().position(|(token, _)| {
            match token {
                Token::Special(b'<') => is_within = true,
                Token::Special(b'>') => is_within = false,
                _ => {}
            }
            !is_within && matches!(token, Token::Special(b',' | b':' | b';'))
        });
        let end = end.unwrap_or(rest.len());
        let (mailbox, behind) = rest.split_at(end);
        if !matches!(behind.first(), Some((Token::Special(b':'), _))) {
            found.extend(address(message, inner(mailbox)?, role));
        }
        rest = behind.get(1..).unwrap_or(&[]);
    }
    Some(())
}

type Tokens<'t> = &'t [(Token, Range<usize>)];

/// Returns the tokens in angle brackets, without a source route; else all tokens. `None`: a bracket is not closed.
fn inner(mailbox: Tokens<'_>) -> Option<Tokens<'_>> {
    let is = |special: u8| move |(token, _): &(Token, Range<usize>)| *token == Token::Special(special);
    let Some(open) = mailbox.iter().position(is(b'<')) else { return Some(mailbox) };
    let within = &mailbox[open + 1..];
    let within = &within[..within.iter().position(is(b'>'))?];
    let route = within.first().filter(|token| is(b'@')(token)).and_then(|_| within.iter().position(is(b':')));
    Some(route.map_or(within, |colon| &within[colon + 1..]))
}

/// Parses words separated by dots, `@`, and atoms separated by dots or a literal.
fn address(message: &[u8], tokens: Tokens<'_>, role: AddressRole) -> Option<HeaderAddress> {
    let at = tokens.iter().position(|(token, _)| *token == Token::Special(b'@'))?;
    let (local, domain) = (&tokens[..at], &tokens[at + 1..]);
    let is_quoted = |range: &Range<usize>| message[range.start] == b'"';
    let is_dotted = |part: Tokens<'_>| {
        part.len() % 2 == 1
            && part
                .iter()
                .enumerate()
                .all(|(n, (token, _))| *token == if n % 2 == 0 { Token::Word } else { Token::Special(b'.') })
    };
    let is_domain = match domain {
        [(Token::Literal, _)] => true,
        _ => is_dotted(domain) && !domain.iter().any(|(_, range)| is_quoted(range)),
    };
    if !is_dotted(local) || !is_domain {
        return None;
    }
    let text = |part: Tokens<'_>| -> Option<String> {
        let octets: Vec<u8> = part.iter().flat_map(|(_, range)| &message[range.clone()]).copied().collect();
        String::from_utf8(octets).ok()
    };
    let whole = |part: Tokens<'_>| Some(part.first()?.1.start..part.last()?.1.end);
    Some(HeaderAddress {
        role,
        address: format!("{}@{}", text(local)?, text(domain)?),
        local: whole(local)?,
        domain: whole(domain)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(message: &str) -> Vec<String> {
        addresses(message.as_bytes()).into_iter().map(|found| found.address).collect()
    }

    /// Replaces every address by a fixed one.
    fn renamed(message: &str) -> String {
        let changes: Vec<_> = addresses(message.as_bytes())
            .into_iter()
            .map(|old| AddressChange { old, local: "new".to_owned(), domain: "n.test".to_owned() })
            .collect();
        String::from_utf8(replaced(message.as_bytes(), &changes)).unwrap()
    }

    #[test]
    fn addresses_of_every_form() {
        let list = "To: joe@a.test, Ann <ann@b.test>,\r\n\t\"Bob, the \\\"boss\\\"\" <bob@c.test> (x@y.test),\r\n \
                    =?utf-8?q?J=C3=BCrgen=40z?= <j@d.test>, staff: d@e.test, <f@g.test>;, h@[192.0.2.1], \
                    \"i k\"@l.test, m (o@p) @ (q) r . test, <@s.test,@t.test:u@v.test>, none:;, w@x.test\r\n\r\nTo: body@a.test\r\n";
        assert_eq!(
            shown(list),
            [
                "joe@a.test",
                "ann@b.test",
                "bob@c.test",
                "j@d.test",
                "d@e.test",
                "f@g.test",
                "h@[192.0.2.1]",
                "\"i k\"@l.test",
                "m@r.test",
                "u@v.test",
                "w@x.test"
            ]
        );
        assert_eq!(
            renamed(list),
            "To: new@n.test, Ann <new@n.test>,\r\n\t\"Bob, the \\\"boss\\\"\" <new@n.test> (x@y.test),\r\n \
             =?utf-8?q?J=C3=BCrgen=40z?= <new@n.test>, staff: new@n.test, <new@n.test>;, new@n.test, \
             new@n.test, new (o@p) @ (q) n.test, <@s.test,@t.test:new@n.test>, none:;, new@n.test\r\n\r\nTo: body@a.test\r\n"
        );
    }

    #[test]
    fn which_fields_have_addresses() {
        let header = "Received: from a@b.test\r\nFROM : x@s.test\r\nSubject: y@no.test\r\n z@no.test\r\nCC:\r\n c@r.test\r\nX: To: n@no.test\r\n";
        let found = addresses(header.as_bytes());
        let roles: Vec<_> = found.iter().map(|found| (found.address.as_str(), found.role)).collect();
        assert_eq!(roles, [("x@s.test", AddressRole::Sender), ("c@r.test", AddressRole::Recipient)]);
        // A line that is not a field ends the header, as in a message without one.
        assert_eq!(shown("no field\r\nTo: a@b.test\r\n"), [""; 0]);
        assert_eq!(shown("To: a@b.test"), ["a@b.test"]);
    }

    /// Stored content has no such line.
    #[test]
    fn a_line_of_an_mbox_ends_the_header() {
        let message = "Received: by us\r\nFrom joe@z.test Mon Jan  1 00:00:00 2026\r\nTo: a@b.test\r\n\r\n";
        assert_eq!((shown(message), header_octets(message.as_bytes())), (Vec::new(), 17));
    }

    #[test]
    fn what_is_no_address_is_passed_over() {
        assert_eq!(shown("To: undisclosed-recipients:;\r\n"), [""; 0]);
        assert_eq!(
            shown("To: root, a b@c.test, a@b@c.test, @x.test, a@, a..b@c.test, fine@d.test\r\n"),
            ["fine@d.test"]
        );
        for open in
            ["To: a@b.test, \"x\r\n", "To: a@b.test (x\r\n", "To: a@b.test, <x@y.test\r\n", "To: a@b.test, x@[1\r\n"]
        {
            assert_eq!(renamed(open), open);
        }
        assert_eq!(renamed("From: \u{fc}@b.test\r\n"), "From: new@n.test\r\n");
    }

    #[test]
    fn where_the_header_ends() {
        let octets = |message: &str| header_octets(message.as_bytes());
        assert_eq!(octets("A: b\r\n c\r\nD: e\r\n\r\nF: g\r\n"), 16);
        assert_eq!((octets("\r\nbody"), octets("no field\r\nA: b\r\n"), octets("A: b\r\nSubj")), (0, 0, 6));
        assert_eq!((octets("A: b"), octets("")), (4, 0));
    }

    #[test]
    fn only_what_differs_is_written() {
        let message = b"To: \"joe\" (x) @ a . test\r\n".to_vec();
        let [one] = addresses(&message).try_into().unwrap();
        let same_local = vec![AddressChange { old: one, local: "\"joe\"".to_owned(), domain: "b.test".to_owned() }];
        assert_eq!(replaced(&message, &same_local), b"To: \"joe\" (x) @ b.test\r\n");
    }

    proptest! {
        #[test]
        fn what_is_not_changed_stays_as_it_is(value in "[a-c@.,;:<>()\" \\\\\\[\\]\r\n\t=?é]{0,60}") {
            let message = format!("To: {value}\r\n\r\nbody");
            let found = addresses(message.as_bytes());
            let own = |text: &Range<usize>| String::from_utf8_lossy(&message.as_bytes()[text.clone()]).into_owned();
            let same: Vec<_> = found.iter().map(|old| AddressChange { old: old.clone(), local: own(&old.local), domain: own(&old.domain) }).collect();
            prop_assert_eq!(replaced(message.as_bytes(), &same), message.as_bytes());
            // Positions are in order and do not overlap.
            let places: Vec<_> = found.iter().flat_map(|old| [old.local.clone(), old.domain.clone()]).collect();
            prop_assert!(places.windows(2).all(|two| two[0].end <= two[1].start));
        }

        #[test]
        fn each_of_a_list_is_found(users in proptest::collection::vec("[a-z]{1,6}", 1..8), folds in any::<u8>()) {
            let separator = ["", " ", "\r\n ", " (c, d)", "\r\n\t(\"x)"][usize::from(folds) % 5];
            let list: Vec<String> = users.iter().map(|user| format!("{separator}\"{user}, x\" <{user}@a.test>")).collect();
            let expected: Vec<String> = users.iter().map(|user| format!("{user}@a.test")).collect();
            prop_assert_eq!(shown(&format!("Cc: {}\r\n\r\n", list.join(","))), expected);
        }
    }
}
