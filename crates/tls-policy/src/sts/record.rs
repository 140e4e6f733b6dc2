//! The TXT record at `_mta-sts.DOMAIN` (RFC 8461 3.1): the existence of a policy, and its version.

/// Maximum octets examined of a record's text.
pub const RECORD_BYTES_MAX: usize = 4096;
/// Maximum TXT records examined in an answer.
pub const RECORDS_MAX: usize = 100;

/// Meaning of the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// There is a policy with this ID of 1 to 32 letters and digits.
    Id(String),
    /// No record is about MTA-STS.
    Absent,
    /// Several records are, or one that cannot be parsed: the domain counts as having no policy (RFC 8461 3.1).
    Invalid(RecordError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("more than one record begins with v=STSv1")]
    Several,
    #[error("a field is not NAME=VALUE")]
    Field,
    #[error("there is no id")]
    NoId,
    #[error("the id is not 1 to 32 letters and digits")]
    Id,
    #[error("the record is longer than {RECORD_BYTES_MAX} octets")]
    TooLong,
}

impl Record {
    /// Parses all TXT records of the name, each with its strings joined.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a [u8]>) -> Record {
        let mut own = records.into_iter().take(RECORDS_MAX).filter_map(|record| Some((record, after_version(record)?)));
        let Some((record, fields)) = own.next() else { return Record::Absent };
        if own.next().is_some() {
            return Record::Invalid(RecordError::Several);
        }
        if record.len() > RECORD_BYTES_MAX {
            return Record::Invalid(RecordError::TooLong);
        }
        match id(fields) {
            Ok(id) => Record::Id(id),
            Err(error) => Record::Invalid(error),
        }
    }
}

/// The text after `v=STSv1`, blanks and a semicolon.
fn after_version(record: &[u8]) -> Option<&[u8]> {
    let rest = record.strip_prefix(b"v=STSv1")?;
    trim(rest).strip_prefix(b";")
}

fn id(fields: &[u8]) -> Result<String, RecordError> {
    let mut id = None;
    let mut fields = fields.split(|b| *b == b';').map(trim).peekable();
    while let Some(field) = fields.next() {
        if field.is_empty() && fields.peek().is_none() {
            break; // the last semicolon
        }
        let at = field.iter().position(|b| *b == b'=').ok_or(RecordError::Field)?;
        let (name, value) = (&field[..at], &field[at + 1..]);
        if !is_name(name)
            || value.is_empty()
            || !value.iter().all(|b| matches!(b, 0x21..=0x7e) && !matches!(b, b';' | b'='))
        {
            return Err(if name == b"id" { RecordError::Id } else { RecordError::Field });
        }
        if name == b"id" && id.is_none() {
            if value.len() > 32 || !value.iter().all(u8::is_ascii_alphanumeric) {
                return Err(RecordError::Id);
            }
            id = Some(value.iter().map(|b| char::from(*b)).collect());
        }
    }
    id.ok_or(RecordError::NoId)
}

fn is_name(name: &[u8]) -> bool {
    name.len() <= 32
        && name.first().is_some_and(u8::is_ascii_alphanumeric)
        && name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

fn trim(text: &[u8]) -> &[u8] {
    let is_blank = |b: &u8| matches!(b, b' ' | b'\t');
    let start = text.iter().position(|b| !is_blank(b)).unwrap_or(text.len());
    let end = text.iter().rposition(|b| !is_blank(b)).map_or(start, |last| last + 1);
    &text[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(records: &[&str]) -> Record {
        Record::of(records.iter().map(|record| record.as_bytes()))
    }

    fn id(id: &str) -> Record {
        Record::Id(id.to_owned())
    }

    #[test]
    fn records_with_an_id() {
        assert_eq!(of(&["v=STSv1; id=20160831085700Z;"]), id("20160831085700Z"));
        assert_eq!(of(&["v=STSv1 ;\tid=a1 ; x.y-z_=1"]), id("a1"));
        assert_eq!(of(&["v=STSv1;more=x;id=b;id=c"]), id("b"));
        assert_eq!(of(&["v=spf1 -all", "v=STSv1; id=1", "v=STSv2; id=3", "v=STSv1"]), id("1"));
    }

    #[test]
    fn anything_else_is_no_policy() {
        assert_eq!(of(&[]), Record::Absent);
        assert_eq!(of(&["V=STSv1; id=1", "v=stsv1;id=1", "v=STSv11;id=1", "v=STSv1 id=1"]), Record::Absent);
        let error = |record: &str| match of(&[record]) {
            Record::Invalid(error) => error,
            other => panic!("{record}: {other:?}"),
        };
        assert_eq!(of(&["v=STSv1; id=1", "v=STSv1; id=1"]), Record::Invalid(RecordError::Several));
        assert_eq!(error("v=STSv1;"), RecordError::NoId);
        assert_eq!(error("v=STSv1; id="), RecordError::Id);
        assert_eq!(error("v=STSv1; id=a-b"), RecordError::Id);
        assert_eq!(error(&format!("v=STSv1; id={}", "1".repeat(33))), RecordError::Id);
        assert_eq!(error("v=STSv1;; id=1"), RecordError::Field);
        assert_eq!(error("v=STSv1; id=1; what"), RecordError::Field);
        assert_eq!(error("v=STSv1; id=1; x=a=b"), RecordError::Field);
        assert_eq!(error(&format!("v=STSv1; id=1; x={}", "1".repeat(5000))), RecordError::TooLong);
    }

    proptest! {
        #[test]
        fn never_panics(text in "(v=STSv1)?\\PC{0,60}") {
            if let Record::Id(id) = of(&[&text]) {
                prop_assert!((1..=32).contains(&id.len()) && id.chars().all(|c| c.is_ascii_alphanumeric()));
            }
        }
    }
}
