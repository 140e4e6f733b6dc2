//! Subscribers files: one address or `Name <address>` per line, `#` for comments.
//!
//! [`Parser`] takes the file in pieces of any size and calls the visitor once per good line, with the address in
//! canonical form; it holds at most one unfinished line. [`read`] runs it over a reader.
//!
//! The grammar of a line, after stripping white space at both ends and a byte order mark at the file's start: nothing;
//! `#` and anything; or an address, bare or in angle brackets after an optional name, with an optional comment after it
//! that begins with white space and `#`. A name may be in any character set, an address is UTF-8.
//!
//! Failure: a bad line is skipped, counted and (up to [`BAD_LINES_MAX`]) kept with its number, its text shortened and
//! escaped, and the reason. Only an error of the reader ends the reading.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use stentor_mail::address::{Address, AddressError};

/// Longest line in octets; a longer one is bad and read in constant memory.
pub const LINE_BYTES_MAX: usize = 4_096;
/// Bad lines that a report keeps in full; all are counted.
pub const BAD_LINES_MAX: usize = 100;
/// Characters of a bad line that a report shows.
const SHOWN_CHARS_MAX: usize = 80;
/// Octets read at once.
const READ_BYTES: usize = 256 * 1024;

/// One good line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscriber<'a> {
    /// Line number, from 1.
    pub line: u64,
    /// The address in the form of [`Address::as_str`].
    pub address: &'a str,
    /// The text before the angle brackets, as in the file; empty without them.
    pub name: &'a [u8],
}

/// The visitor's answer: whether it already knew the address. The visitor merges duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occurrence {
    First,
    Again,
}

/// Why a line is bad.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineProblem {
    #[error("{0}")]
    Address(#[from] AddressError),
    #[error("`<` without `>`")]
    NoBracket,
    #[error("unexpected text after the address (one address a line; a comment begins with ` #`)")]
    Behind,
    #[error("line is longer than {LINE_BYTES_MAX} octets")]
    TooLong,
}

/// One bad line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}: {text}")]
pub struct BadLine {
    /// Line number, from 1.
    pub line: u64,
    /// Column in characters, from 1: where the address begins, or the error.
    pub column: u64,
    /// The line, shortened, and escaped for a log.
    pub text: String,
    pub problem: LineProblem,
}

/// Summary of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubscribersSummary {
    /// All lines, including comments and empty ones.
    pub lines: u64,
    /// Addresses that were new to the visitor.
    pub accepted: u64,
    /// Addresses that the visitor already knew.
    pub duplicates: u64,
    /// Total number of bad lines.
    pub bad: u64,
    /// The first bad lines.
    pub bad_lines: Vec<BadLine>,
}

/// Opens a file, and returns the metadata of the open file. Blocks.
///
/// # Errors
/// The file cannot be opened, or is not a regular file: opening a pipe would wait for a writer, and a device may be
/// endless.
pub fn open(path: &Path) -> io::Result<(File, Metadata)> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// Reads a whole file. The visitor is called in the file's order.
pub fn read(
    input: &mut dyn Read,
    visit: &mut dyn FnMut(Subscriber<'_>) -> Occurrence,
) -> io::Result<SubscribersSummary> {
    let mut parser = Parser::default();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(parser.finish(visit)),
            Ok(count) => parser.push(&buffer[..count], visit),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Parses a file in pieces; the result does not depend on where they are cut.
#[derive(Debug, Default)]
pub struct Parser {
    report: SubscribersSummary,
    /// The beginning of a line whose end has not arrived, at most one octet over [`LINE_BYTES_MAX`].
    unfinished: Vec<u8>,
}

impl Parser {
    /// Takes the next piece.
    pub fn push(&mut self, mut bytes: &[u8], visit: &mut dyn FnMut(Subscriber<'_>) -> Occurrence) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            if self.unfinished.is_empty() {
                self.line(line, visit);
            } else {
                self.keep(line);
                let whole = std::mem::take(&mut self.unfinished);
                self.line(&whole, visit);
                self.unfinished = whole;
                self.unfinished.clear();
            }
            bytes = rest;
        }
        self.keep(bytes);
    }

    /// Parses the last line, if it has no line end, and returns the report.
    pub fn finish(mut self, visit: &mut dyn FnMut(Subscriber<'_>) -> Occurrence) -> SubscribersSummary {
        if !self.unfinished.is_empty() {
            let line = std::mem::take(&mut self.unfinished);
            self.line(&line, visit);
        }
        self.report
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = (LINE_BYTES_MAX + 1).saturating_sub(self.unfinished.len());
        self.unfinished.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn line(&mut self, line: &[u8], visit: &mut dyn FnMut(Subscriber<'_>) -> Occurrence) {
        self.report.lines += 1;
        let number = self.report.lines;
        let line = if number == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        let text = line.trim_ascii();
        if line.len() > LINE_BYTES_MAX {
            return self.bad(line, LINE_BYTES_MAX, LineProblem::TooLong);
        }
        if text.is_empty() || text[0] == b'#' {
            return;
        }
        let begin = line.len() - line.trim_ascii_start().len();
        let Parts { name, address, at } = match split(text) {
            Ok(parts) => parts,
            Err((problem, at)) => return self.bad(line, begin + at, problem),
        };
        let parsed;
        let address = if let Some(plain) = plain_address(address) {
            plain
        } else {
            match Address::parse(address, true) {
                Ok(address) => parsed = address,
                Err(error) => return self.bad(line, begin + at, error.into()),
            }
            parsed.as_str()
        };
        match visit(Subscriber { line: number, address, name }) {
            Occurrence::First => self.report.accepted += 1,
            Occurrence::Again => self.report.duplicates += 1,
        }
    }

    /// Records a bad line. `place`: the octet of the line where the error is.
    fn bad(&mut self, line: &[u8], place: usize, problem: LineProblem) {
        self.report.bad += 1;
        let text = line.trim_ascii();
        if self.report.bad_lines.len() < BAD_LINES_MAX {
            let head = &text[..text.len().min(4 * SHOWN_CHARS_MAX)];
            let mut shown = String::new();
            for (place, c) in String::from_utf8_lossy(head).chars().enumerate() {
                if place == SHOWN_CHARS_MAX {
                    shown.push_str("...");
                    break;
                }
                shown.extend(c.escape_debug());
            }
            let column = String::from_utf8_lossy(&line[..place.min(line.len())]).chars().count() as u64 + 1;
            self.report.bad_lines.push(BadLine { line: self.report.lines, column, text: shown, problem });
        }
    }
}

/// A line without its comment.
struct Parts<'a> {
    name: &'a [u8],
    address: &'a [u8],
    /// Start of the address.
    at: usize,
}

/// Splits a line; the error says what is wrong, and where.
fn split(text: &[u8]) -> Result<Parts<'_>, (LineProblem, usize)> {
    let open = outside_quotes(text, |byte| byte == b'<');
    let (name, at) = open.map_or((&text[..0], 0), |open| (text[..open].trim_ascii(), open + 1));
    let rest = &text[at..];
    let (address, behind) = if let Some(open) = open {
        let end = outside_quotes(rest, |byte| byte == b'>').ok_or((LineProblem::NoBracket, open))?;
        (&rest[..end], &rest[end + 1..])
    } else {
        let end = outside_quotes(rest, |byte| byte == b' ' || byte == b'\t').unwrap_or(rest.len());
        (&rest[..end], &rest[end..])
    };
    match behind.trim_ascii_start() {
        [] | [b'#', ..] => Ok(Parts { name, address, at }),
        other => Err((LineProblem::Behind, text.len() - other.len())),
    }
}

/// Returns the first position of a wanted octet outside quotes; an unclosed quote hides nothing.
fn outside_quotes(text: &[u8], wanted: impl Fn(u8) -> bool) -> Option<usize> {
    let mut place = 0;
    while place < text.len() {
        match text[place] {
            b'"' => place += closing_quote(&text[place + 1..]).map_or(1, |length| length + 2),
            byte if wanted(byte) => return Some(place),
            _ => place += 1,
        }
    }
    None
}

fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut place = 0;
    while place < text.len() {
        match text[place] {
            b'"' => return Some(place),
            b'\\' => place += 2,
            _ => place += 1,
        }
    }
    None
}

/// Returns the address itself if it is plainly in canonical form, as nearly all are: saves [`Address::parse`]'s
/// allocation. `None` decides nothing.
fn plain_address(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (local, domain) = text.split_once('@')?;
    let atom = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_+=".contains(&byte))
    };
    let label = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            && part.as_bytes()[0].is_ascii_lowercase()
    };
    // Well under every limit; the parser handles hyphens, leading digits and A-labels.
    let short = local.len() <= 60 && domain.len() <= 60;
    (short && domain.contains('.') && local.split('.').all(atom) && domain.split('.').all(label)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn collect(input: &[u8], cut: usize) -> (Vec<String>, SubscribersSummary) {
        let mut found: Vec<String> = Vec::new();
        let mut visit = |subscriber: Subscriber<'_>| {
            if found.iter().any(|address| address == subscriber.address) {
                return Occurrence::Again;
            }
            found.push(subscriber.address.to_owned());
            Occurrence::First
        };
        let mut parser = Parser::default();
        for piece in input.chunks(cut.max(1)) {
            parser.push(piece, &mut visit);
        }
        let report = parser.finish(&mut visit);
        (found, report)
    }

    fn one(line: &str) -> String {
        let (found, report) = collect(line.as_bytes(), 4_096);
        match (found.as_slice(), report.bad_lines.as_slice()) {
            ([address], []) => address.clone(),
            ([], [bad]) => format!("! {}", bad.problem),
            _ => "-".to_owned(),
        }
    }

    #[test]
    fn lines_in_every_form() {
        assert_eq!(one("ann@example.org"), "ann@example.org");
        assert_eq!(one("  Ann@Example.ORG \t\r"), "Ann@example.org");
        assert_eq!(one("Ann Other <ann@example.org>"), "ann@example.org");
        assert_eq!(one("\"Other, Ann <x>\" <ann@example.org>"), "ann@example.org");
        assert_eq!(one("<ann@example.org>"), "ann@example.org");
        assert_eq!(one("Ann #1 <ann@example.org> # left in May"), "ann@example.org");
        assert_eq!(one("ann@example.org # left in May"), "ann@example.org");
        assert_eq!(one("an#n@example.org"), "an#n@example.org");
        assert_eq!(one("\"a b\"@example.org"), "\"a b\"@example.org");
        assert_eq!(one("\"a>b\"@example.org"), "\"a>b\"@example.org");
        assert_eq!(one("Tim \"5' 4 <tim@example.org>"), "tim@example.org");
        assert_eq!(one("ann@bücher.example"), "ann@xn--bcher-kva.example");
        assert_eq!(one("jürgen@example.org"), "jürgen@example.org");
        assert_eq!(one("\u{feff}ann@example.org"), "ann@example.org");
        assert_eq!(one("# ann@example.org"), "-");
        assert_eq!(one("   "), "-");
    }

    #[test]
    fn names_may_be_in_any_character_set() {
        assert_eq!(collect(b"J\xfcrgen <j@example.org>\n", 4_096).0, ["j@example.org"]);
    }

    #[test]
    fn bad_lines_in_every_form() {
        assert_eq!(one("ann"), "! address has no domain");
        assert_eq!(
            one("ann at example.org"),
            "! unexpected text after the address (one address a line; a comment begins with ` #`)"
        );
        assert_eq!(
            one("ann@example.org, bob@example.org"),
            "! unexpected text after the address (one address a line; a comment begins with ` #`)"
        );
        assert_eq!(one("Ann <ann@example.org"), "! `<` without `>`");
        assert_eq!(
            one("Ann <ann@example.org> Bob"),
            "! unexpected text after the address (one address a line; a comment begins with ` #`)"
        );
        assert_eq!(one("<>"), "! empty address");
        assert_eq!(one("ann@exa\0mple.org"), "! control character in address");
        assert_eq!(one(&format!("{}@example.org", "x".repeat(5_000))), "! line is longer than 4096 octets");
    }

    #[test]
    fn a_report_counts_all_and_shows_some() {
        let mut file = "# subscribers\nann@example.org\nAnn <ann@EXAMPLE.org>\n\n".to_owned();
        file.push_str(&"no\x1b[2J\n".repeat(150));
        file.push_str("bob@example.org");
        let (found, report) = collect(file.as_bytes(), 7);
        assert_eq!(found, ["ann@example.org", "bob@example.org"]);
        assert_eq!((report.lines, report.accepted, report.duplicates, report.bad), (155, 2, 1, 150));
        assert_eq!(report.bad_lines.len(), BAD_LINES_MAX);
        assert_eq!(report.bad_lines[0].to_string(), "line 5: control character in address: no\\u{1b}[2J");
    }

    #[test]
    fn a_bad_line_has_a_column() {
        for (line, column) in
            [("ann", 1), ("  ann", 3), ("Jürgen <j>", 9), ("ann at x.example", 5), ("Ann <ann@x", 5), ("a@x b\n", 5)]
        {
            let (_, report) = collect(line.as_bytes(), 4_096);
            assert_eq!(report.bad_lines[0].column, column, "{line}");
        }
    }

    #[test]
    fn a_bad_line_is_shown_short() {
        let (_, report) = collect("ü".repeat(3_000).as_bytes(), 4_096);
        assert_eq!(report.bad_lines[0].text, "ü".repeat(80) + "...");
    }

    #[test]
    fn an_endless_line_takes_constant_memory() {
        let mut parser = Parser::default();
        for _ in 0..1_000 {
            parser.push(&[b'x'; 10_000], &mut |_| Occurrence::First);
        }
        assert!(parser.unfinished.capacity() < 4 * LINE_BYTES_MAX);
        parser.push(b"\nann@example.org\n", &mut |_| Occurrence::First);
        let report = parser.finish(&mut |_| Occurrence::First);
        assert_eq!((report.lines, report.accepted, report.bad), (2, 1, 1));
    }

    #[test]
    fn a_million_lines_stream() {
        let mut file = Vec::new();
        for number in 0..1_000_000 {
            file.extend_from_slice(format!("user{number}@site{}.example\n", number % 2_000).as_bytes());
        }
        let mut sum = 0;
        let mut visit = |subscriber: Subscriber<'_>| {
            sum += subscriber.address.len();
            Occurrence::First
        };
        let report = read(&mut file.as_slice(), &mut visit).unwrap();
        assert_eq!((report.accepted, report.bad), (1_000_000, 0));
        assert_eq!(sum, file.len() - 1_000_000);
    }

    fn canonical(address: &str) -> String {
        Address::parse(address.as_bytes(), true).unwrap().to_string()
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_give_the_same(input in any::<Vec<u8>>(), cut in 1_usize..50) {
            let whole = collect(&input, usize::MAX);
            prop_assert_eq!(&collect(&input, cut), &whole);
            for address in &whole.0 {
                prop_assert_eq!(&canonical(address), address);
            }
        }

        #[test]
        fn lines_like_real_ones_agree_with_the_parser(text in "[a-zA-Z0-9.<>@\" #+_-]{0,30}@?[a-z0-9.-]{0,20}") {
            let (found, report) = collect(text.as_bytes(), 4_096);
            prop_assert!(found.len() + report.bad as usize <= 1);
            for address in found {
                prop_assert_eq!(canonical(&address), address);
            }
        }

        #[test]
        fn the_short_cut_is_the_parser(text in "[a-zA-Z0-9._+=-]{0,12}@[a-z0-9.-]{0,16}") {
            if let Some(plain) = plain_address(text.as_bytes()) {
                let address = Address::parse(text.as_bytes(), true).unwrap();
                prop_assert_eq!(address.as_str(), plain);
            }
        }
    }
}
