//! TLSA records (RFC 6698 2.1) for mail: which records of a set are usable, and which of those count.

use std::fmt;

/// Maximum records examined in one answer, as in Postfix.
pub const RECORDS_MAX: usize = 100;
/// Maximum size of a record: certificates with keys of post-quantum algorithms fit.
pub const RECORD_BYTES_MAX: usize = 16 * 1024;
/// Maximum total size of the effective records of a set: they are stored with each host, and a domain that changes
/// them often could fill memory.
pub const SET_BYTES_MAX: usize = RECORD_BYTES_MAX;

/// Object that a record is compared with (RFC 6698 2.1.1). Usages 0 and 1 (PKIX) are not for mail (RFC 7672 3.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CertificateUsage {
    /// DANE-TA(2): a certificate above the host's, which must have one of the names and be in date.
    TrustAnchor,
    /// DANE-EE(3): the host's own; names and dates are ignored (RFC 7672 3.1.1).
    EndEntity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// Cert(0).
    Certificate,
    /// SPKI(1), `SubjectPublicKeyInfo`.
    PublicKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Matching {
    /// Full(0), DER.
    Full,
    /// SHA2-256(1).
    Sha256,
    /// SHA2-512(2).
    Sha512,
}

/// One usable record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tlsa {
    pub usage: CertificateUsage,
    pub selector: Selector,
    pub matching: Matching,
    pub data: Box<[u8]>,
}

/// Why a record cannot be used. Such a record still makes encryption mandatory (RFC 7672 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("shorter than four octets")]
    Truncated,
    #[error("longer than {RECORD_BYTES_MAX} octets")]
    TooLong,
    #[error("certificate usage {0} is not valid for mail")]
    Usage(u8),
    #[error("selector {0} is unknown")]
    Selector(u8),
    #[error("matching type {0} is unknown")]
    Matching(u8),
    #[error("{0} octets is the wrong length for its hash")]
    HashLength(usize),
    #[error("the data is not valid DER")]
    NotDer,
}

impl Tlsa {
    /// Parses the data of a record.
    ///
    /// Of Full(0) data only the outermost length is checked; the code that compares certificates parses the rest.
    pub fn parse(rdata: &[u8]) -> Result<Tlsa, Unusable> {
        let (&[usage, selector, matching], data) = rdata.split_first_chunk::<3>().ok_or(Unusable::Truncated)?;
        let usage = match usage {
            2 => CertificateUsage::TrustAnchor,
            3 => CertificateUsage::EndEntity,
            other => return Err(Unusable::Usage(other)),
        };
        let selector = match selector {
            0 => Selector::Certificate,
            1 => Selector::PublicKey,
            other => return Err(Unusable::Selector(other)),
        };
        let (matching, bytes) = match matching {
            0 => (Matching::Full, None),
            1 => (Matching::Sha256, Some(32)),
            2 => (Matching::Sha512, Some(64)),
            other => return Err(Unusable::Matching(other)),
        };
        match bytes {
            Some(bytes) if data.len() != bytes => return Err(Unusable::HashLength(data.len())),
            None if data.is_empty() => return Err(Unusable::Truncated),
            None if data.len() > RECORD_BYTES_MAX => return Err(Unusable::TooLong),
            None if !is_der_sequence(data) => return Err(Unusable::NotDer),
            _ => {}
        }
        Ok(Tlsa { usage, selector, matching, data: data.into() })
    }
}

impl Tlsa {
    /// Usage, selector and matching type as numbers.
    pub fn numbers(&self) -> (u8, u8, u8) {
        (if self.usage == CertificateUsage::TrustAnchor { 2 } else { 3 }, self.selector as u8, self.matching as u8)
    }
}

/// Whether `data` is exactly one DER SEQUENCE, judging by its first octets.
fn is_der_sequence(data: &[u8]) -> bool {
    let Some((&[0x30, first], rest)) = data.split_first_chunk::<2>() else { return false };
    if first < 0x80 {
        return rest.len() == usize::from(first);
    }
    let octets = usize::from(first & 0x7f);
    if octets == 0 || octets > 3 || rest.len() < octets || rest[0] == 0 {
        return false;
    }
    let length = rest[..octets].iter().fold(0, |length, octet| length << 8 | usize::from(*octet));
    length >= 0x80 && rest.len() - octets == length
}

/// Formats as in a zone file, `3 1 1 0123...`; long data is truncated.
impl fmt::Display for Tlsa {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (usage, selector, matching) = self.numbers();
        write!(out, "{usage} {selector} {matching} ")?;
        for octet in self.data.iter().take(64) {
            write!(out, "{octet:02x}")?;
        }
        out.write_str(if self.data.len() > 64 { "..." } else { "" })
    }
}

/// The effective records, in order of strength, and the number of unusable ones.
///
/// Of records with the same usage and selector those with the strongest hash count, and those with the full data: a
/// broken hash must not keep replaced data valid (RFC 7671 9, as in OpenSSL).
pub fn usable<'a>(rdata: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Tlsa>, usize) {
    let (mut records, mut unusable, mut octets) = (Vec::new(), 0, 0);
    for rdata in rdata.into_iter().take(RECORDS_MAX) {
        match Tlsa::parse(rdata) {
            Ok(record) if octets + record.data.len() <= SET_BYTES_MAX => {
                octets += record.data.len();
                records.push(record);
            }
            _ => unusable += 1,
        }
    }
    let strongest = |of: &Tlsa| {
        let alike = records.iter().filter(|other| (other.usage, other.selector) == (of.usage, of.selector));
        alike.map(|other| other.matching).max()
    };
    let counts: Vec<bool> =
        records.iter().map(|r| r.matching == Matching::Full || strongest(r) == Some(r.matching)).collect();
    let mut kept: Vec<Tlsa> =
        records.into_iter().zip(counts).filter_map(|(record, counts)| counts.then_some(record)).collect();
    kept.sort_unstable_by(|a, b| b.cmp(a));
    kept.dedup();
    (kept, unusable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(head: [u8; 3], octets: usize) -> Vec<u8> {
        [&head[..], &vec![0xab; octets]].concat()
    }

    #[test]
    fn what_mail_cannot_use_has_a_reason() {
        let of = |rdata: &[u8]| Tlsa::parse(rdata).unwrap_err();
        assert_eq!(of(&[3, 1]), Unusable::Truncated);
        assert_eq!(of(&record([0, 0, 1], 32)), Unusable::Usage(0));
        assert_eq!(of(&record([1, 0, 1], 32)), Unusable::Usage(1));
        assert_eq!(of(&record([3, 2, 1], 32)), Unusable::Selector(2));
        assert_eq!(of(&record([3, 1, 255], 32)), Unusable::Matching(255));
        assert_eq!(of(&record([3, 1, 1], 31)), Unusable::HashLength(31));
        assert_eq!(of(&record([3, 1, 2], 32)), Unusable::HashLength(32));
        assert_eq!(of(&record([3, 0, 0], 0)), Unusable::Truncated);
        assert_eq!(of(&record([3, 0, 0], 10)), Unusable::NotDer);
        assert_eq!(of(&record([3, 0, 0], RECORD_BYTES_MAX + 1)), Unusable::TooLong);
        assert_eq!(of(&[3, 0, 0, 0x30, 0x81, 1, 0]), Unusable::NotDer, "a length longer than it has to be");
        assert!(Tlsa::parse(&[2, 0, 0, 0x30, 1, 0]).is_ok());
    }

    #[test]
    fn of_one_kind_the_strongest_hash_counts_and_the_whole_data_always() {
        let (a, b, c) = (record([3, 1, 1], 32), record([3, 1, 2], 64), record([2, 1, 1], 32));
        let full = [3, 1, 0, 0x30, 0];
        let bad = record([1, 1, 1], 32);
        let (kept, unusable) = usable([&*a, &*b, &*c, &full, &bad, &b]);
        let kept: Vec<String> = kept.iter().map(|r| r.to_string()[..6].to_owned()).collect();
        assert_eq!((kept, unusable), (vec!["3 1 2 ".into(), "3 1 0 ".into(), "2 1 1 ".into()], 1));
    }

    /// The set is stored with each host, site and resumed session.
    #[test]
    fn a_set_has_so_many_octets() {
        let whole = |n: u8| [&[2, 0, 0, 0x30, 0x82, 0x13, 0x88, n][..], &[7; 4_999]].concat();
        let all: Vec<Vec<u8>> = (0..20).map(whole).chain([record([3, 1, 1], 32)]).collect();
        let (kept, unusable) = usable(all.iter().map(Vec::as_slice));
        assert_eq!((kept.len(), unusable), (4, 17));
        assert!(kept.iter().map(|record| record.data.len()).sum::<usize>() <= SET_BYTES_MAX);
        assert_eq!(kept.iter().filter(|record| record.usage == CertificateUsage::EndEntity).count(), 1);
    }

    proptest! {
        #[test]
        fn never_panics(rdata in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Tlsa::parse(&rdata);
        }

        #[test]
        fn whatever_is_usable_keeps_at_least_one(sets in proptest::collection::vec((0..4u8, 0..3u8, 0..4u8, 30..66usize), 0..12)) {
            let rdata: Vec<Vec<u8>> = sets.iter().map(|(u, s, m, bytes)| record([*u, *s, *m], *bytes)).collect();
            let (kept, unusable) = usable(rdata.iter().map(Vec::as_slice));
            prop_assert_eq!(kept.is_empty(), unusable == rdata.len());
        }
    }
}
