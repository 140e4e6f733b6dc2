//! The TXT record at `_smtp._tls.DOMAIN` (RFC 8460 3): destinations of reports.

use stentor_domain_reports::ReportDestination;

/// Maximum octets examined of a record's text.
pub const RECORD_BYTES_MAX: usize = 4096;
/// Maximum TXT records examined in an answer.
pub const RECORDS_MAX: usize = 100;
/// Maximum destinations of one domain; the first of a longer list are used.
pub const DESTINATIONS_MAX: usize = 5;

/// Meaning of the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Destinations, not empty.
    Destinations(Vec<ReportDestination>),
    Absent,
    /// The domain counts as requesting no reports (RFC 8460 3).
    Invalid(RecordError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("more than one record begins with v=TLSRPTv1")]
    Several,
    #[error("a field is not NAME=VALUE")]
    Field,
    #[error("there is no rua with a mailto: or https: URI")]
    NoDestination,
    #[error("the record is longer than {RECORD_BYTES_MAX} octets")]
    TooLong,
}

impl Record {
    /// Parses all TXT records of the name, each with its strings joined.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a [u8]>) -> Record {
        let mut own = records.into_iter().take(RECORDS_MAX).filter_map(|record| {
            let rest = record.strip_prefix(b"v=TLSRPTv1")?;
            rest.trim_ascii_start().strip_prefix(b";").map(|fields| (record.len(), fields))
        });
        let Some((length, fields)) = own.next() else { return Record::Absent };
        if own.next().is_some() {
            return Record::Invalid(RecordError::Several);
        }
        if length > RECORD_BYTES_MAX {
            return Record::Invalid(RecordError::TooLong);
        }
        match destinations(fields) {
            Ok(destinations) => Record::Destinations(destinations),
            Err(error) => Record::Invalid(error),
        }
    }
}

fn destinations(fields: &[u8]) -> Result<Vec<ReportDestination>, RecordError> {
    let fields = std::str::from_utf8(fields).map_err(|_| RecordError::Field)?;
    let mut found = Vec::new();
    let mut fields = fields.split(';').map(|field| field.trim_matches([' ', '\t'])).peekable();
    while let Some(field) = fields.next() {
        if field.is_empty() && fields.peek().is_none() {
            break; // the last semicolon
        }
        let (name, value) = field.split_once('=').ok_or(RecordError::Field)?;
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')) {
            return Err(RecordError::Field);
        }
        if name == "rua" && found.is_empty() {
            found = different(value.split(',').filter_map(ReportDestination::parse));
        }
    }
    if found.is_empty() { Err(RecordError::NoDestination) } else { Ok(found) }
}

/// The first destinations, without duplicates.
fn different(destinations: impl Iterator<Item = ReportDestination>) -> Vec<ReportDestination> {
    let mut found: Vec<ReportDestination> = Vec::new();
    for destination in destinations {
        if found.len() == DESTINATIONS_MAX {
            break;
        }
        if !found.iter().any(|known| known.is_same(&destination)) {
            found.push(destination);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(records: &[&str]) -> Record {
        Record::of(records.iter().map(|record| record.as_bytes()))
    }

    fn mail(address: &str) -> ReportDestination {
        ReportDestination::Mail(address.to_owned())
    }

    #[test]
    fn the_examples_of_the_rfc() {
        let one = of(&["v=TLSRPTv1;rua=mailto:reports@example.com"]);
        assert_eq!(one, Record::Destinations(vec![mail("reports@example.com")]));
        let https = of(&["v=TLSRPTv1; rua=https://reporting.example.com/v1/tlsrpt"]);
        assert_eq!(
            https,
            Record::Destinations(vec![ReportDestination::Https("https://reporting.example.com/v1/tlsrpt".to_owned())])
        );
        let both = of(&["x", "v=TLSRPTv1; rua=MAILTO:a%2cb@x.test , mailto:c+d@x.test?subject=x,https://r.test ;x=y;"]);
        assert_eq!(
            both,
            Record::Destinations(vec![mail("c+d@x.test"), ReportDestination::Https("https://r.test".to_owned())])
        );
    }

    #[test]
    fn a_destination_that_is_named_twice_is_one() {
        let found = of(&["v=TLSRPTv1; rua=mailto:a@b.test,mailto:a@B.test,MAILTO:%61@b.test,mailto:A@b.test,\
                         https://r.test/a,https://r.test/a,https://r.test/b,https://r.test/c,https://r.test/d"]);
        let https = ["a", "b", "c"].map(|page| ReportDestination::Https(format!("https://r.test/{page}")));
        let all: Vec<ReportDestination> = [mail("a@b.test"), mail("A@b.test")].into_iter().chain(https).collect();
        assert_eq!(found, Record::Destinations(all));
    }

    #[test]
    fn anything_else_gets_no_reports() {
        assert_eq!(of(&["v=TLSRPTv2; rua=mailto:a@b.test"]), Record::Absent);
        let rua = "v=TLSRPTv1; rua=mailto:a@b.test";
        assert_eq!(of(&[rua, rua]), Record::Invalid(RecordError::Several));
        for bad in [
            "",
            "http://a.test/",
            "mailto:",
            "mailto:a",
            "mailto:@b",
            "mailto:a%0d%0ab@c.test",
            "mailto:a%zz@c",
            "https:",
            "https:///x",
        ] {
            assert_eq!(of(&[&format!("v=TLSRPTv1; rua={bad}")]), Record::Invalid(RecordError::NoDestination), "{bad}");
        }
        assert_eq!(of(&["v=TLSRPTv1; x"]), Record::Invalid(RecordError::Field));
        assert_eq!(of(&["v=TLSRPTv1;"]), Record::Invalid(RecordError::NoDestination));
    }

    proptest! {
        #[test]
        fn never_panics_and_no_address_can_end_a_line(text in "(rua=)?(mailto:|https://)?\\PC{0,30}") {
            if let Record::Destinations(destinations) = of(&[&format!("v=TLSRPTv1;{text}")]) {
                for destination in destinations {
                    let (ReportDestination::Mail(text) | ReportDestination::Https(text)) = destination;
                    prop_assert!(!text.chars().any(|c| c.is_ascii_control() || c == ' '));
                }
            }
        }
    }
}
