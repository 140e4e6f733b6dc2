//! Suppressions as CSV (RFC 4180), for import and export.
//!
//! ```text
//! subject,scope,reason,source,note,since,expires
//! ann@example.org,everything,complaint,fbl,,2026-11-30T12:00:00Z,
//! @example.net,list:news,operator,uid=0(root) pid=812,"closed, says their postmaster",2026-11-30T12:00:00Z,2027-01-01
//! ```
//!
//! The first line names the columns, in any order; only `subject` (or `address`, `email`) is required. Exports have all
//! of them. Times are UTC: `2027-01-01` or `2027-01-01T12:00:00Z`. An entry is one line: its texts have no line ends.
//!
//! Pure: the caller reads lines and counts them. Errors say what is wrong with the line.

use std::borrow::Cow;

use stentor_records::civil::{DAY_S, date, days};
use stentor_records::time::push_rfc3339;

use crate::Ms;
use crate::suppression::{Scope, Subject, Suppression, SuppressionError, SuppressionReason};

/// Longest line in octets.
pub const LINE_BYTES_MAX: usize = 4_096;

const NAMES: [&str; COLUMNS] = ["subject", "scope", "reason", "source", "note", "since", "expires"];
const COLUMNS: usize = 7;
/// Columns of a file that we look at.
const FILE_COLUMNS_MAX: usize = 64;

/// Positions of our columns in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CsvColumns {
    at: [Option<usize>; COLUMNS],
    count: usize,
}

/// Values of columns that a file does not have, or that are empty in a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CsvDefaults {
    pub scope: Scope,
    pub reason: SuppressionReason,
    pub source: String,
    pub since: Ms,
    pub expires: Option<Ms>,
}

/// Why a line is not an entry.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CsvError {
    #[error("the line is longer than {LINE_BYTES_MAX} octets")]
    TooLong,
    #[error("the line is not valid UTF-8")]
    NotUtf8,
    #[error("a quoted field has no closing quote")]
    Quote,
    #[error("unexpected text after the closing quote of a field")]
    AfterQuote,
    #[error("the first line must name the columns, separated by commas: {}; there is no column `subject`", NAMES.join(","))]
    NoSubject,
    #[error("column `{0}` is named twice")]
    Twice(&'static str),
    #[error("too many columns")]
    TooManyColumns,
    #[error("{found} fields; the first line names {expected} columns")]
    Fields { found: usize, expected: usize },
    #[error("{0:?} is not a valid time: 2027-01-01 or 2027-01-01T12:00:00Z")]
    Time(String),
    #[error(transparent)]
    Entry(#[from] SuppressionError),
}

/// Returns a line without its end, and without the byte order mark that some programs write.
pub fn line_of(bytes: &[u8]) -> Result<&str, CsvError> {
    if bytes.len() > LINE_BYTES_MAX {
        return Err(CsvError::TooLong);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| CsvError::NotUtf8)?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    Ok(text.strip_suffix('\r').unwrap_or(text).trim_start_matches('\u{feff}'))
}

impl CsvColumns {
    /// Reads the line that names the columns. Unknown columns are ignored.
    pub fn parse(line: &str) -> Result<CsvColumns, CsvError> {
        let names = fields(line)?;
        let mut at = [None; COLUMNS];
        for (position, name) in names.iter().enumerate() {
            let name = name.trim().to_ascii_lowercase();
            let name = if name == "address" || name == "email" { "subject" } else { &*name };
            let Some(column) = NAMES.iter().position(|known| *known == name) else { continue };
            if at[column].replace(position).is_some() {
                return Err(CsvError::Twice(NAMES[column]));
            }
        }
        if at[0].is_none() {
            return Err(CsvError::NoSubject);
        }
        Ok(CsvColumns { at, count: names.len() })
    }

    /// Reads a line as an entry. `None`: the line is empty.
    pub fn entry(&self, line: &str, defaults: &CsvDefaults) -> Result<Option<Suppression>, CsvError> {
        if line.trim().is_empty() {
            return Ok(None);
        }
        let fields = fields(line)?;
        if fields.len() != self.count {
            return Err(CsvError::Fields { found: fields.len(), expected: self.count });
        }
        let given = |column: usize| {
            let text = fields.get(self.at[column]?)?.trim();
            (!text.is_empty()).then_some(text)
        };
        let subject = Subject::parse(given(0).unwrap_or_default())?;
        let scope = given(1).map_or_else(|| Ok(defaults.scope.clone()), Scope::parse)?;
        let reason = given(2).map(str::to_ascii_lowercase);
        let reason = reason.as_deref().map_or(Ok(defaults.reason), SuppressionReason::parse)?;
        let since = given(5).map_or(Ok(defaults.since), parse_time)?;
        let entry = Suppression {
            note: given(4).unwrap_or_default().into(),
            expires: given(6).map(parse_time).transpose()?.or(defaults.expires),
            ..Suppression::new(subject, scope, reason, given(3).unwrap_or(&defaults.source), since)
        };
        entry.check()?;
        Ok(Some(entry))
    }
}

/// Returns the line that names the columns of an export, with its end.
pub fn header_line() -> String {
    format!("{}\n", NAMES.join(","))
}

/// Returns an entry as a line of an export, with its end.
pub fn entry_line(entry: &Suppression) -> String {
    let (subject, scope) = (entry.key.subject.text(), entry.key.scope.text());
    let (since, expires) = (time_text(entry.since), entry.expires.map(time_text).unwrap_or_default());
    let all = [&subject, &scope, entry.reason.name(), &*entry.source, &*entry.note, &since, &expires];
    let mut line = all.map(quoted).join(",");
    line.push('\n');
    line
}

fn quoted(field: &str) -> Cow<'_, str> {
    let is_plain = !field.contains([',', '"']) && field.trim() == field;
    if is_plain { Cow::Borrowed(field) } else { Cow::Owned(format!("\"{}\"", field.replace('"', "\"\""))) }
}

/// Splits a line into its fields.
fn fields(line: &str) -> Result<Vec<Cow<'_, str>>, CsvError> {
    let (mut all, mut rest) = (Vec::new(), line);
    loop {
        if all.len() == FILE_COLUMNS_MAX {
            return Err(CsvError::TooManyColumns);
        }
        let Some(inner) = rest.strip_prefix('"') else {
            let end = rest.find(',');
            all.push(Cow::Borrowed(&rest[..end.unwrap_or(rest.len())]));
            let Some(end) = end else { return Ok(all) };
            rest = &rest[end + 1..];
            continue;
        };
        let (field, after) = quoted_field(inner)?;
        all.push(Cow::Owned(field));
        if after.is_empty() {
            return Ok(all);
        }
        rest = after.strip_prefix(',').ok_or(CsvError::AfterQuote)?;
    }
}

/// Reads a field after its opening quote. Returns it and the text after its closing quote.
fn quoted_field(mut rest: &str) -> Result<(String, &str), CsvError> {
    let mut field = String::new();
    loop {
        let end = rest.find('"').ok_or(CsvError::Quote)?;
        field.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        let Some(more) = rest.strip_prefix('"') else { return Ok((field, rest)) };
        field.push('"');
        rest = more;
    }
}

/// Parses a date or a time of UTC.
pub fn parse_time(text: &str) -> Result<Ms, CsvError> {
    let wrong = || CsvError::Time(text.to_owned());
    let (day_text, time) = match text.split_once('T') {
        Some((date, time)) => (date, time.strip_suffix('Z').ok_or_else(wrong)?),
        None => (text, "00:00:00"),
    };
    let [year, month, day] = numbers(day_text, '-', [4, 2, 2]).ok_or_else(wrong)?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let ms = milliseconds(fraction).ok_or_else(wrong)?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2]).ok_or_else(wrong)?;
    let since_1970 = days(i64::from(year), month, day);
    let is_date = (1970..=9999).contains(&year) && date(since_1970) == (i64::from(year), month, day);
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return Err(wrong());
    }
    let seconds = since_1970 * DAY_S + i64::from(hour * 3_600 + minute * 60 + second);
    Ok(seconds as Ms * 1_000 + ms)
}

/// Parses a fraction of a second of up to nine digits.
fn milliseconds(fraction: &str) -> Option<Ms> {
    let is_number = (1..=9).contains(&fraction.len()) && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let digits = format!("{fraction:0<3}");
    digits[..3].parse().ok().filter(|_| is_number)
}

/// Parses numbers with these widths, divided by `separator`.
fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[u32; 3]> {
    let mut parts = text.split(separator);
    let mut all = [0; 3];
    for (number, width) in all.iter_mut().zip(widths) {
        let part = parts.next().filter(|part| part.len() == width && part.bytes().all(|byte| byte.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(all)
}

fn time_text(ms: Ms) -> String {
    let mut text = Vec::new();
    push_rfc3339(&mut text, ms);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn defaults() -> CsvDefaults {
        let (scope, reason) = (Scope::Everything, SuppressionReason::Operator);
        CsvDefaults { scope, reason, source: "import".to_owned(), since: 5_000, expires: None }
    }

    #[test]
    fn a_file_with_addresses_only_gets_the_defaults() {
        let columns = CsvColumns::parse("Email").unwrap();
        let entry = columns.entry("Ann@Example.org", &defaults()).unwrap().unwrap();
        assert_eq!(entry_line(&entry), "ann@example.org,everything,operator,import,,1970-01-01T00:00:05.000Z,\n");
        assert_eq!(columns.entry("  ", &defaults()), Ok(None));
    }

    #[test]
    fn columns_may_stand_in_any_order_beside_others() {
        let columns = CsvColumns::parse("id,Expires,subject,\"note\",scope,reason").unwrap();
        let line = "7,2027-01-01,@example.net,\"a \"\"b\"\", c\",list:news,Bounce";
        let entry = columns.entry(line, &defaults()).unwrap().unwrap();
        assert_eq!(
            entry_line(&entry),
            "@example.net,list:news,bounce,import,\"a \"\"b\"\", c\",1970-01-01T00:00:05.000Z,2027-01-01T00:00:00.000Z\n"
        );
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let columns = CsvColumns::parse("subject,expires").unwrap();
        for (line, what) in [
            ("a@example.org", "1 fields; the first line names 2 columns"),
            ("\"a@example.org,", "a quoted field has no closing quote"),
            ("\"a@example.org\"x,", "unexpected text after the closing quote of a field"),
            ("a@example.org,soon", "\"soon\" is not a valid time: 2027-01-01 or 2027-01-01T12:00:00Z"),
            ("a@example.org,2027-02-30", "\"2027-02-30\" is not a valid time: 2027-01-01 or 2027-01-01T12:00:00Z"),
            ("ann,", "\"ann\": address has no domain"),
            (",", "\"\": empty address"),
        ] {
            assert_eq!(columns.entry(line, &defaults()).unwrap_err().to_string(), what, "{line}");
        }
        assert_eq!(CsvColumns::parse("a,b"), Err(CsvError::NoSubject));
        assert_eq!(CsvColumns::parse("subject,email"), Err(CsvError::Twice("subject")));
        assert_eq!(line_of(&[b'x'; LINE_BYTES_MAX + 1]), Err(CsvError::TooLong));
        assert_eq!(line_of(&[0xff]), Err(CsvError::NotUtf8));
        assert_eq!(line_of("\u{feff}a\r\n".as_bytes()), Ok("a"));
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in "[\\PC\",]{0,80}") {
            if let Ok(columns) = CsvColumns::parse(&line) {
                let _ = columns.entry(&line, &defaults());
            }
            let _ = parse_time(&line);
        }

        #[test]
        fn an_export_is_an_import(
            note in "[ -~äöü\"]{0,40}", source in "[ -~\"]{0,20}", since in 0u64..4_000_000_000_000, expires in any::<Option<u32>>(),
            scope in prop_oneof![Just("everything".to_owned()), "list:[a-z,\" ]{0,9}[a-z]", "sender:[a-z]{1,5}@[a-z]{1,5}"],
            subject in prop_oneof!["[A-Z]{1,5}@[a-z]{1,9}", "@[a-z]{1,9}", "\"[a,]{1,5}\"@[a-z]{1,9}"],
        ) {
            let entry = Suppression {
                note: note.trim().into(),
                expires: expires.map(|s| u64::from(s) * 1_000),
                ..Suppression::new(
                    Subject::parse(&subject).unwrap(),
                    Scope::parse(&scope).unwrap(),
                    SuppressionReason::Bounce,
                    if source.trim().is_empty() { "import" } else { source.trim() },
                    since,
                )
            };
            let columns = CsvColumns::parse(line_of(header_line().as_bytes()).unwrap()).unwrap();
            let line = entry_line(&entry);
            prop_assert_eq!(columns.entry(line_of(line.as_bytes()).unwrap(), &defaults()).unwrap(), Some(entry));
        }
    }
}
