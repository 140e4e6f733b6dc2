//! Facts about a message's header section, gathered while the body streams by.
//!
//! [`HeaderScan`] takes the unstuffed octets of a message in pieces of any size; its results do not depend on where the
//! pieces are cut. Promise: linear time, memory bounded by the constants below, no field interpreted beyond those in
//! [`HeaderFacts`]. Deliberately not a full RFC 5322 parser: the facts serve loop protection, the rules for posts and
//! the log; everything else passes through untouched.
//!
//! [`stentor_mime::field`] defines what a field is and where the section ends, for all code that reads messages.
//!
//! Failure: [`HeaderScan::overflow`] names the limit exceeded; the session drops the transaction with 552.

use std::borrow::Cow;

use stentor_mime::field::{Section, Token};

use crate::author_name::others_shown;
use crate::copy_request::COPY_REQUEST_FIELD;

/// Fields that are never sent on ([`HeaderEdit`](crate::edited::HeaderEdit)).
pub const LEFT_OUT: [&str; 4] = ["Bcc", "Resent-Bcc", "Return-Path", COPY_REQUEST_FIELD];

/// Holds the `List-Id` of another list's post, in the copies of a list that sets its own: so both lists detect loops.
pub const FORMER_LIST_ID: &str = "X-Original-List-Id";
/// Longest header section in octets.
pub const HEADER_BYTES_MAX: u64 = 1024 * 1024;
/// Maximum number of fields in a header section.
pub const HEADER_FIELDS_MAX: u32 = 10_000;
/// Maximum number of lines in a header section, folds included, plus one for each of the following number of octets.
///
/// A line costs each reader as much as tens of octets. Real programs fold at 60 to 78 octets; their shortest repeated
/// lines are those of a `To` with one address each. Lines of 12 octets or more are never too many; of 10 octets 7,200
/// pass, of the shortest 1,600.
pub const HEADER_LINES_MAX: u64 = 1_200;
pub const HEADER_LINE_BYTES: u64 = 12;
/// Maximum number of `List-Id` and `Delivered-To` fields each: bounds the work of loop protection.
pub const LOOP_FIELDS_MAX: usize = 1_000;
/// Octets of these fields kept in memory together.
const LOOP_BYTES_MAX: usize = 64 * 1024;
/// Octets examined of one field's value.
const VALUE_BYTES_MAX: usize = 2_048;
/// Octets kept of a fact (an address, an identifier).
const FACT_BYTES_MAX: usize = 512;

/// Maximum `From` fields that are searched for an address: each costs more than any other field.
const FROM_FIELDS_MAX: u32 = 8;
/// Addresses kept from the name of an author.
const SHOWN_FROM_MAX: usize = 8;

/// Facts about a message, known after its last octet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderFacts {
    /// Number of `Received` fields (not counting our own).
    pub received_count: u32,
    /// Identifiers of all `List-Id` and [`FORMER_LIST_ID`] fields, in lower case, without angle brackets and phrase
    /// (RFC 2919).
    pub list_ids: Vec<String>,
    /// Values of all `Delivered-To` fields, trimmed.
    pub delivered_to: Vec<String>,
    /// First word of `Precedence`, in lower case.
    pub precedence: Option<String>,
    /// `Auto-Submitted` keyword, in lower case, without parameters and comments (RFC 3834 section 5).
    pub auto_submitted: Option<String>,
    /// The first `Message-ID`, with its angle brackets if it has them.
    pub message_id: Option<String>,
    /// Whether any `List-*` field occurs.
    pub has_list_headers: bool,
    /// Whether any `Authentication-Results` field occurs (RFC 8601).
    pub has_auth_results: bool,
    /// The addr-spec of the first mailbox of the first `From` that has one, of the first [`FROM_FIELDS_MAX`].
    pub from: Option<String>,
    /// Whether From has anything else, or a part that another program could take for another address: another mailbox
    /// or field, another unquoted address in place of a name, text after the mailbox, an unclosed comment or quote, or
    /// more than is examined or kept.
    pub has_more_from: bool,
    /// Other addresses in place of the mailbox's name, in it or in a comment: at most [`SHOWN_FROM_MAX`].
    pub shown_from: Vec<String>,
    pub has_date: bool,
    /// Whether any field occurs that is never sent on ([`LEFT_OUT`]).
    pub has_left_out: bool,
    /// There is exactly one `TLS-Required`, with the only defined value `No` (RFC 8689 section 3).
    pub tls_required_no: bool,
    /// Whether any octet over 127 occurs in the header section or in the body.
    pub eight_bit: bool,
    /// Octets of the header section, without the empty line that ends it.
    pub header_bytes: u64,
    /// Number of fields.
    pub fields: u32,
    /// The message begins with an mbox line, or its body with a line that is not empty: it is stored in another form
    /// ([`StoredForm`](crate::stored_form::StoredForm)).
    pub is_irregular: bool,
    /// The limit exceeded, if any: the message must be refused.
    pub overflow: Option<&'static str>,
}

impl HeaderFacts {
    /// Whether the message declares itself bulk: `Precedence`, or `List-*` fields.
    pub fn is_bulk(&self) -> bool {
        self.has_list_headers || matches!(self.precedence.as_deref(), Some("bulk" | "list" | "junk"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Received,
    ListId,
    DeliveredTo,
    Precedence,
    AutoSubmitted,
    MessageId,
    From,
    TlsRequired,
}

/// Incremental scan of one message.
#[derive(Debug, Clone, Default)]
pub struct HeaderScan {
    section: Section,
    gathered: GatheredFields,
}

#[derive(Debug, Clone, Default)]
struct GatheredFields {
    facts: HeaderFacts,
    /// The relevant field whose value is being gathered.
    field: Option<Field>,
    value: Vec<u8>,
    from_fields: u32,
    has_tls_required: bool,
    /// Values of the last `Precedence` and the last `Auto-Submitted`, read at the end.
    precedence: Option<Vec<u8>>,
    auto_submitted: Option<Vec<u8>>,
    /// Number of complete lines.
    lines: u64,
    /// Octets kept of `List-Id` and `Delivered-To`.
    loop_bytes: usize,
}

impl HeaderScan {
    /// Creates a scan before the first octet; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the memory used by the facts so far, not counting a few small, bounded ones.
    pub fn kept_bytes(&self) -> usize {
        self.gathered.loop_bytes
    }

    /// Takes the next octets.
    pub fn push(&mut self, bytes: &[u8]) {
        let Self { section, gathered } = self;
        gathered.facts.eight_bit = gathered.facts.eight_bit || !bytes.is_ascii();
        if !section.is_over() && gathered.facts.overflow.is_none() {
            section.push(bytes, &mut |token| gathered.take(token));
        }
    }

    /// Returns the limit exceeded so far, if any.
    pub fn overflow(&self) -> Option<&'static str> {
        self.gathered.facts.overflow
    }

    /// Returns the facts, after the last octet.
    pub fn finish(mut self) -> HeaderFacts {
        self.section.finish(&mut |token| self.gathered.take(token));
        self.gathered.end_field();
        let GatheredFields { mut facts, precedence, auto_submitted, .. } = self.gathered;
        let keyword = |value: Vec<u8>| keyword(text(&value).trim());
        facts.precedence = precedence.map(keyword);
        facts.auto_submitted = auto_submitted.map(keyword);
        facts
    }
}

impl GatheredFields {
    fn take(&mut self, token: Token<'_>) {
        if self.facts.overflow.is_some() {
            return;
        }
        let octets = match token {
            Token::Name { octets, name } => {
                self.end_field();
                if self.facts.fields == HEADER_FIELDS_MAX {
                    return self.overflow_at("too many header fields");
                }
                self.facts.fields += 1;
                self.begin_field(&octets[..name]);
                octets
            }
            Token::Value(part) => {
                self.keep_value(part.strip_suffix(b"\n").unwrap_or(part));
                part
            }
            Token::Mbox(line) => {
                self.facts.is_irregular = true;
                line
            }
            Token::Empty(_) => return self.end_field(),
            Token::Body(_) => {
                self.facts.is_irregular = true;
                return self.end_field();
            }
        };
        self.facts.header_bytes += octets.len() as u64;
        self.lines += u64::from(octets.ends_with(b"\n"));
        if self.facts.header_bytes > HEADER_BYTES_MAX {
            self.overflow_at("header section too large");
        } else if self.lines > HEADER_LINES_MAX + self.facts.header_bytes / HEADER_LINE_BYTES {
            self.overflow_at("too many short header lines");
        }
    }

    fn begin_field(&mut self, name: &[u8]) {
        if name.len() >= 5 && name[..5].eq_ignore_ascii_case(b"List-") {
            self.facts.has_list_headers = true;
        }
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        if is("Authentication-Results") {
            self.facts.has_auth_results = true;
        }
        self.facts.has_left_out |= LEFT_OUT.iter().any(|field| is(field));
        self.facts.has_date |= is("Date");
        if is("From") {
            self.facts.has_more_from |= self.from_fields > 0;
            self.from_fields += 1;
        }
        let may_be_author = self.facts.from.is_none() && self.from_fields <= FROM_FIELDS_MAX;
        self.field = match name.len() {
            4 if is("From") && may_be_author => Some(Field::From),
            7 if is("List-Id") => Some(Field::ListId),
            8 if is("Received") => Some(Field::Received),
            10 if is("Precedence") => Some(Field::Precedence),
            10 if is("Message-ID") && self.facts.message_id.is_none() => Some(Field::MessageId),
            12 if is("Delivered-To") => Some(Field::DeliveredTo),
            12 if is("TLS-Required") => Some(Field::TlsRequired),
            14 if is("Auto-Submitted") => Some(Field::AutoSubmitted),
            18 if is(FORMER_LIST_ID) => Some(Field::ListId),
            _ => None,
        };
    }

    fn keep_value(&mut self, part: &[u8]) {
        if !matches!(self.field, None | Some(Field::Received)) {
            let room = VALUE_BYTES_MAX - self.value.len();
            self.value.extend_from_slice(&part[..part.len().min(room)]);
        }
    }

    /// Turns the gathered value into a fact.
    fn end_field(&mut self) {
        let Some(field) = self.field.take() else { return };
        let is_cut = self.value.len() == VALUE_BYTES_MAX;
        match field {
            Field::Precedence => {
                std::mem::swap(self.precedence.get_or_insert_default(), &mut self.value);
                return self.value.clear();
            }
            Field::AutoSubmitted => {
                std::mem::swap(self.auto_submitted.get_or_insert_default(), &mut self.value);
                return self.value.clear();
            }
            _ => {}
        }
        let value = text(&self.value);
        let value = value.trim();
        let facts = &mut self.facts;
        match field {
            Field::Received => facts.received_count += 1,
            Field::ListId => {
                let id = value.rsplit_once('<').map_or(value, |(_, id)| id.split('>').next().unwrap_or(id));
                let id = clip(id.trim()).to_lowercase();
                self.loop_bytes += size_of::<String>() + id.len();
                facts.list_ids.push(id);
            }
            Field::DeliveredTo => {
                let address = clip(value);
                self.loop_bytes += size_of::<String>() + address.len();
                facts.delivered_to.push(address);
            }
            Field::Precedence | Field::AutoSubmitted => {}
            Field::MessageId => facts.message_id = Some(clip(value)).filter(|id| !id.is_empty()),
            Field::From => {
                let Mailbox { address, is_odd, rest } = first_mailbox(value);
                facts.shown_from = others_shown(value, address.as_deref(), SHOWN_FROM_MAX);
                let is_more = is_cut || is_odd || !is_end_of_list(rest) || facts.shown_from.len() > SHOWN_FROM_MAX;
                facts.has_more_from |= is_more;
                facts.shown_from.truncate(SHOWN_FROM_MAX);
                facts.from = address;
            }
            Field::TlsRequired => {
                let is_second = std::mem::replace(&mut self.has_tls_required, true);
                facts.tls_required_no = !is_second && value.eq_ignore_ascii_case("no");
            }
        }
        self.value.clear();
        if facts.list_ids.len().max(facts.delivered_to.len()) > LOOP_FIELDS_MAX || self.loop_bytes > LOOP_BYTES_MAX {
            self.overflow_at("too many List-Id or Delivered-To fields");
        }
    }

    /// Stops the scan: the message will be refused.
    fn overflow_at(&mut self, why: &'static str) {
        self.facts.overflow.get_or_insert(why);
        self.field = None;
    }
}

/// A value as text, in which spaces stand for controls.
fn text(value: &[u8]) -> Cow<'_, str> {
    // Trimming the final CR leaves most values without control characters, so they need no copy.
    let text = String::from_utf8_lossy(value.trim_ascii_end());
    if text.contains(char::is_control) { text.replace(char::is_control, " ").into() } else { text }
}

fn clip(text: &str) -> String {
    text[..text.floor_char_boundary(FACT_BYTES_MAX)].to_owned()
}

fn keyword(value: &str) -> String {
    let text;
    let mut value = value;
    if value.contains('(') {
        text = without_comments(value);
        value = &text;
    }
    let value = value.trim_start();
    let end = value.find(|c: char| c.is_whitespace() || matches!(c, ';' | '(')).unwrap_or(value.len());
    clip(&value[..end]).to_lowercase()
}

/// Removes comments from the text, including nested ones (RFC 5322 section 3.2.2). An open comment extends to the end.
fn without_comments(value: &str) -> String {
    let mut depth = 0_u32;
    let mut is_escaped = false;
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            _ if std::mem::take(&mut is_escaped) => {}
            '\\' if depth > 0 => is_escaped = true,
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            _ if depth == 0 => text.push(c),
            _ => {}
        }
    }
    text
}

/// Whether the text after a mailbox only ends a list of one. An open comment may hide an address from us alone.
fn is_end_of_list(rest: &str) -> bool {
    !first_mailbox(rest).is_odd && without_comments(rest).chars().all(|c| c.is_whitespace() || matches!(c, ',' | ';'))
}

/// The first mailbox of an address list.
struct Mailbox<'a> {
    /// Its addr-spec; `None` without an `@`.
    address: Option<String>,
    /// Another address precedes it in place of a name, or a comment or quote is not closed: programs differ about the
    /// address.
    is_odd: bool,
    /// The text after it.
    rest: &'a str,
}

/// Parses the first mailbox in an unfolded address list (RFC 5322 section 3.4): the text between the first angle
/// brackets outside quotes and comments, else the first list item without its comments.
fn first_mailbox(value: &str) -> Mailbox<'_> {
    let mut item = String::with_capacity(value.len());
    let mut comment_depth = 0_u32;
    let mut quoted = false;
    let mut in_angle = false;
    // Whether the item has an `@` outside quotes, and any address in place of a name.
    let (mut has_at, mut in_place_of_name, mut is_odd) = (false, String::new(), false);
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if quoted || comment_depth > 0 => {
                let escaped = chars.next();
                if comment_depth == 0 {
                    item.push(c);
                    item.extend(escaped);
                }
            }
            '(' if !quoted => comment_depth += 1,
            ')' if !quoted && comment_depth > 0 => comment_depth -= 1,
            _ if comment_depth > 0 => {}
            '"' => {
                quoted = !quoted;
                item.push(c);
            }
            _ if quoted => item.push(c),
            // The name of a group, `Friends: a@x.org;`.
            '<' | ':' if c == '<' || !in_angle => {
                is_odd |= has_at && (c == ':' || !in_place_of_name.is_empty());
                if has_at {
                    item.trim().clone_into(&mut in_place_of_name);
                }
                (in_angle, has_at) = (c == '<', false);
                item.clear();
            }
            '>' | ',' | ';' => {
                if in_angle || item.contains('@') {
                    break;
                }
                item.clear();
            }
            c if c.is_whitespace() && in_angle => {}
            c => {
                has_at |= c == '@';
                item.push(c);
            }
        }
    }
    let item = item.trim();
    // Many programs put the address itself there if they have no name.
    is_odd |= !in_place_of_name.is_empty() && !in_place_of_name.eq_ignore_ascii_case(item);
    is_odd |= quoted || comment_depth > 0;
    let address = (item.contains('@') && !item.is_empty()).then(|| clip(item));
    Mailbox { address, is_odd, rest: chars.as_str() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scan(bytes: &[u8]) -> HeaderFacts {
        let mut scan = HeaderScan::new();
        scan.push(bytes);
        scan.finish()
    }

    #[test]
    fn more_than_one_author_is_noticed() {
        for (header, first, has_more) in [
            ("From: Ann <ann@x>\r\n", Some("ann@x"), false),
            ("From: \"Bob\" <ann@x> (boss)\r\n", Some("ann@x"), false),
            ("From: ann@x, bob@y\r\n", Some("ann@x"), true),
            ("From: Ann <ann@x>,\r\n Bob <bob@y>\r\n", Some("ann@x"), true),
            ("From: <ann@x> <bob@y>\r\n", Some("ann@x"), true),
            ("From: Friends: ann@x; bob@y\r\n", Some("ann@x"), true),
            ("From: ann@x\r\nfrom : bob@y\r\n", Some("ann@x"), true),
            ("From: nobody\r\nFrom: bob@y\r\n", Some("bob@y"), true),
            ("Subject: x\r\n", None, false),
            // Some programs read the boss's address, or show only that name.
            ("From: \"bob@y\" <ann@x> (boss@z)\r\n", Some("ann@x"), true),
            ("From: \"boss@z\" <ann@x>\r\n", Some("ann@x"), true),
            ("From: (\\)) <ann@x> (boss@z (\\())\r\n", Some("ann@x"), true),
            ("From: =?utf-8?q?boss=40z?= <ann@x>\r\n", Some("ann@x"), true),
            ("From: =?utf-8?b?Ym9zc0B6?=\r\n <ann@x>\r\n", Some("ann@x"), true),
            ("From: boss@z: ann@x;\r\n", Some("ann@x"), true),
            ("From: boss@z <ann@x>\r\n", Some("ann@x"), true),
            ("From: boss@z (x) <ann@x>\r\n", Some("ann@x"), true),
            ("From: ann@x, =?utf-8?q?boss=40z?=\r\n", Some("ann@x"), true),
            ("From: <ann@x> boss\r\n", Some("ann@x"), true),
            ("From: ann@x (\r\n", Some("ann@x"), true),
            ("From: ann@x ( <boss@z>\r\n", Some("ann@x"), true),
            ("From: <ann@x> ( <boss@z>\r\n", Some("ann@x"), true),
            ("From: <ann@x> (\\) <boss@z>\r\n", Some("ann@x"), true),
            // All programs read these as Ann's.
            ("From: ann@x <Ann@X>\r\n", Some("Ann@X"), false),
            ("From: \"Ann @ Home\" <ann@x>\r\n", Some("ann@x"), false),
            ("From: Friends: Ann <ann@x>;\r\n", Some("ann@x"), false),
            ("From: <ann@x>,\r\n (Ann)\r\n", Some("ann@x"), false),
            ("From: (\\)) <ann@x> (boss (\\())\r\n", Some("ann@x"), false),
        ] {
            let facts = scan(format!("{header}\r\n").as_bytes());
            let shows_more = facts.has_more_from || !facts.shown_from.is_empty();
            assert_eq!((facts.from.as_deref(), shows_more), (first, has_more), "{header}");
        }
        let facts = scan(b"From: \"ann@y\" <ann@x> (bob@z)\r\n\r\n");
        assert!(!facts.has_more_from && facts.shown_from == ["ann@y", "bob@z"], "{facts:?}");
        let many = scan(format!("From: \"{}\" <ann@x>\r\n\r\n", "a@y b@y c@y ".repeat(2)).as_bytes());
        assert!(!many.has_more_from && many.shown_from.len() == 3);
        let names = (0..9).fold(String::new(), |names, n| names + &format!("a{n}@y "));
        let many = scan(format!("From: \"{names}\" <ann@x>\r\n\r\n").as_bytes());
        assert!(many.has_more_from && many.shown_from.len() == SHOWN_FROM_MAX);
        let long = format!("From: ann@x{}, bob@y\r\n\r\n", " ".repeat(VALUE_BYTES_MAX));
        assert!(scan(long.as_bytes()).has_more_from);
        let facts = scan(b"DATE: x\r\nresent-bcc: y\r\n\r\nBcc: z");
        assert!(facts.has_date && facts.has_left_out && !scan(b"X: y\r\n\r\nBcc: z\r\nDate: x").has_left_out);
        assert!(scan(b"bcc\t: y\r\n\r\n").has_left_out && scan(b"RETURN-PATH: <>\r\n\r\n").has_left_out);
    }

    #[test]
    fn gathers_the_facts() {
        let facts = scan(
            b"Received: from a\r\n\tby b; date\r\nreceived : from c\r\nList-Id: The \"list\"\r\n <Dev.Example.org>\r\n\
              Delivered-To:  dev@x.org \r\nPRECEDENCE: Bulk\r\nAuto-Submitted: auto-replied; owner=x (away)\r\n\
              Message-Id: <1@x.org>\r\nFrom: \"Doe, J. <j>\" (hi <no@no>) <j.doe@x.org>\r\nTo: a@b\r\n\r\n\
              Received: body\r\nFrom: other@x\r\n",
        );
        assert_eq!((facts.received_count, facts.fields), (2, 9));
        assert_eq!(facts.list_ids, ["dev.example.org"]);
        assert_eq!(facts.delivered_to, ["dev@x.org"]);
        assert_eq!(facts.precedence.as_deref(), Some("bulk"));
        assert_eq!(facts.auto_submitted.as_deref(), Some("auto-replied"));
        assert_eq!(facts.message_id.as_deref(), Some("<1@x.org>"));
        assert_eq!(facts.from.as_deref(), Some("j.doe@x.org"));
        assert!(facts.has_list_headers && facts.is_bulk() && !facts.eight_bit && facts.overflow.is_none());
        assert!(scan(b"Precedence: junk\r\n\r\n").is_bulk() && !scan(b"Precedence: first\r\n\r\n").is_bulk());
        assert!(scan(b"List-Unsubscribe: <x>\r\n\r\n").has_list_headers);
        let nested = scan(b"X-Original-List-Id: P <a.x>\r\nList-Id: <b.x>\r\nx-original-list-id:\r\n <C.x>\r\n\r\n");
        assert_eq!(nested.list_ids, ["a.x", "b.x", "c.x"]);
    }

    #[test]
    fn tls_required_says_no_once() {
        for (header, wanted) in [
            ("TLS-Required: No\r\n", true),
            ("tls-required : NO \r\n", true),
            ("TLS-Required:\r\n no\r\n", true),
            ("TLS-Required: Yes\r\n", false),
            ("TLS-Required: No, No\r\n", false),
            ("TLS-Required:\r\n", false),
            ("TLS-Required: No\r\nTLS-Required: No\r\n", false),
            ("TLS-Required: x\r\nTLS-Required: No\r\nTLS-Required: No\r\n", false),
            ("Subject: x\r\n", false),
        ] {
            assert_eq!(
                scan(format!("{header}\r\nTLS-Required: No\r\n").as_bytes()).tls_required_no,
                wanted,
                "{header}"
            );
        }
    }

    #[test]
    fn header_bytes_are_those_before_the_empty_line() {
        assert_eq!(scan(b"A: b\r\n\r\nbody").header_bytes, 6);
        assert_eq!(scan(b"\r\nbody").header_bytes, 0);
        assert_eq!(scan(b"A: b\r\n").header_bytes, 6);
        assert_eq!(scan(b"A: b\r\nno field\r\n\r\n").header_bytes, 6);
    }

    #[test]
    fn eight_bit_anywhere() {
        assert!(scan(b"Subject: \xc3\xa9\r\n\r\n").eight_bit);
        assert!(scan(b"A: b\r\n\r\nbody \xe9").eight_bit);
        assert!(!scan(b"A: b\r\n\r\nbody").eight_bit);
    }

    #[test]
    fn white_space_before_the_colon_hides_no_field() {
        for space in ["", " ", "           ", &" \t".repeat(100)] {
            let facts =
                scan(format!("Authentication-Results{space}: mx; spf=pass\r\nReceived{space}: x\r\n\r\n").as_bytes());
            assert!(facts.has_auth_results, "{}", space.len());
            assert_eq!((facts.received_count, facts.fields), (1, 2), "{}", space.len());
        }
        assert!(!scan(b"Authentication-Results x: mx\r\n\r\n").has_auth_results);
    }

    #[test]
    fn a_line_that_is_no_field_ends_the_section() {
        let facts = scan(b"A: b\r\nHello there\r\nReceived: x\r\n\r\n");
        assert_eq!((facts.fields, facts.received_count), (1, 0));
        assert_eq!(scan(b"Hello you: x\r\nReceived: x\r\n").received_count, 0);
        let facts = scan(b"From a@b Mon Jan 1 10:00:00 2024\r\nReceived: x\r\n\r\n");
        assert_eq!((facts.fields, facts.received_count), (1, 1));
    }

    #[test]
    fn senders() {
        for (value, wanted) in [
            ("a@x.org", Some("a@x.org")),
            ("a@x.org (Jo)", Some("a@x.org")),
            ("Jo <a@x.org>, b@x.org", Some("a@x.org")),
            ("a@x.org, b@x.org", Some("a@x.org")),
            ("\"b@y.org\" <a@x.org>", Some("a@x.org")),
            ("\"\\\"<b@y.org>\" <a@x.org>", Some("a@x.org")),
            ("Friends: Jo <a@x.org>;", Some("a@x.org")),
            ("\"j o\"@x.org", Some("\"j o\"@x.org")),
            ("nobody", None),
            ("<>", None),
            ("(((((", None),
        ] {
            assert_eq!(first_mailbox(value).address.as_deref(), wanted, "{value}");
        }
    }

    #[test]
    fn caps() {
        assert!(scan(&b"To: ann@x.example\r\n".repeat(10_000)).overflow.is_none());
        assert_eq!(scan(&b"To: ann@x.example\r\n".repeat(100_000)).overflow, Some("too many header fields"));
        assert!(scan(&vec![b'a'; 2 << 20]).overflow.is_none());
        let folded = [b"To: ".to_vec(), b"ann@x.example,\r\n ".repeat(100_000)].concat();
        assert_eq!(scan(&folded).overflow, Some("header section too large"));
        let line = [&b"To: "[..], &vec![b'a'; 2 << 20]].concat();
        assert_eq!(scan(&line).overflow, Some("header section too large"));
        assert!(scan(&[&b"A: b\r\n\r\n"[..], &vec![b'a'; 2 << 20]].concat()).overflow.is_none());
        assert!(scan(&b"Delivered-To: a@b\r\n".repeat(1_001)).overflow.is_some());
        let long = [b"Message-ID: <".to_vec(), vec![b'x'; 100_000], b">\r\n\r\n".to_vec()].concat();
        assert_eq!(scan(&long).message_id.unwrap().len(), FACT_BYTES_MAX);
    }

    #[test]
    fn lines_that_no_mail_has_are_too_many() {
        let folded =
            |lines: u64| [b"X-A: b\r\n".to_vec(), b"\t\r\n".repeat(lines as usize - 1), b"\r\nx".to_vec()].concat();
        let is_within = |lines: u64| lines <= HEADER_LINES_MAX + (8 + 3 * (lines - 1)) / HEADER_LINE_BYTES;
        let most = (1..10_000).take_while(|lines| is_within(*lines)).last().unwrap();
        assert!(most > HEADER_LINES_MAX);
        let facts = scan(&folded(most));
        assert_eq!((facts.overflow, facts.header_bytes), (None, 8 + 3 * (most - 1)));
        assert_eq!(scan(&folded(most + 1)).overflow, Some("too many short header lines"));
        // In a body, and with one address of usual length a line, any number.
        assert_eq!(scan(&[b"A: b\r\n\r\n".to_vec(), b"\t\r\n".repeat(9_000)].concat()).overflow, None);
        for (address, lines) in [("ab@example.org", 30_000), ("ann@a.de", 30_000)] {
            let to = format!("To: {address}{}\r\n\r\n", format!(",\r\n {address}").repeat(lines));
            assert_eq!(scan(to.as_bytes()).overflow, None, "{address}");
        }
    }

    /// The author is not looked for in any number of fields.
    #[test]
    fn the_first_fields_of_authors_are_searched() {
        for (fields, wanted) in [(7, Some("ann@x")), (8, None)] {
            let facts = scan(format!("{}From: ann@x\r\n\r\n", "From: Ann\r\n".repeat(fields)).as_bytes());
            assert_eq!((facts.from.as_deref(), facts.has_more_from), (wanted, true), "{fields}");
        }
    }

    proptest! {
        #[test]
        fn segmentation_does_not_matter(
            lines in proptest::collection::vec(
                "(From|List-Id|Received|X|From |Message-ID ?|\u{e9}):? ?[a-z<>@(\"\u{e9}]{0,8}(\r\n|\r\n |\r\n\t|\r|\n|\r\n\r\n)", 0..8),
            cuts in proptest::collection::vec(1usize..9, 1..20),
        ) {
            let bytes = lines.concat().into_bytes();
            let whole = scan(&bytes);
            let mut parts = HeaderScan::new();
            let mut rest = bytes.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (head, tail) = rest.split_at((*cut).min(rest.len()));
                parts.push(head);
                rest = tail;
            }
            prop_assert_eq!(parts.finish(), whole);
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            scan(&bytes);
        }
    }
}
