//! The Sender Rewriting Scheme (SRS): an envelope sender for forwarded mail, and the way back.
//!
//! `SRS0=HASH=DAY=domain=user@ours` means `user@domain`. A sender already rewritten by another forwarder becomes
//! `SRS1=HASH=theirs=REST@ours`, which leads back to `SRS0REST@theirs`, however many forwarders follow each other.
//!
//! Promise: without the secret nobody can make an address that leads anywhere, and none leads back after its time. The
//! hash is the beginning of an HMAC-SHA-256 over the purpose, the tag and each field preceded by its length, so that
//! characters cannot move from one field to the next. The day counts in full, though an address shows it modulo 1,024.
//! Case is ignored, since some hosts change it: eight characters of base64 without case are 41 bits. libsrs2 and
//! postsrsd join the fields without lengths, so that `ictim@bank.examplev` and `victim@bank.example` have one hash;
//! addresses in their form are refused.
//!
//! Failure: an address with a wrong hash, one that has expired, or one that is malformed.

use base64ct::{Base64, Encoding as _};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

/// Days that an address can distinguish: two characters of five bits.
const DAYS: u64 = 1024;
const DIGITS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/// Minimum characters of the hash in an address: fewer than eight can be guessed over the network.
pub const HASH_CHARS_MIN: usize = 8;
pub const HASH_CHARS_MAX: usize = 20;
/// Purpose of the hash, so that no other use of the same secret produces one.
const CONTEXT: &[u8] = b"stentor srs 2";

/// Settings for rewriting senders.
#[derive(Clone)]
pub struct Srs {
    domain: String,
    /// The first one signs, all verify.
    secrets: Vec<Vec<u8>>,
    hash_chars: usize,
    days_max: u64,
}

impl std::fmt::Debug for Srs {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Leaves out the secrets.
        write!(out, "Srs({}, {} characters, {} days)", self.domain, self.hash_chars, self.days_max)
    }
}

/// Why an address does not lead back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SrsError {
    #[error("it is malformed")]
    Malformed,
    #[error("its hash is wrong")]
    Hash,
    #[error("it has expired")]
    Expired,
}

impl Srs {
    /// Creates the settings. Fewer than [`HASH_CHARS_MIN`] characters are raised to that. `None`: there is no secret,
    /// or more than [`HASH_CHARS_MAX`] are requested.
    pub fn new(domain: &str, secrets: Vec<Vec<u8>>, hash_chars: usize, days_max: u64) -> Option<Srs> {
        let is_good = !secrets.is_empty() && secrets.iter().all(|secret| !secret.is_empty());
        (is_good && hash_chars <= HASH_CHARS_MAX).then(|| Srs {
            domain: domain.to_ascii_lowercase(),
            secrets,
            hash_chars: hash_chars.max(HASH_CHARS_MIN),
            days_max: days_max.min(DAYS - 1),
        })
    }

    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the sender for mail forwarded from `user@domain`. `today`: days since the Unix epoch.
    pub fn forward(&self, user: &str, domain: &str, today: u64) -> String {
        let own = &self.domain;
        match split(user) {
            Some((Tag::Srs0, rest)) => {
                let hash = self.hash(&self.secrets[0], Tag::Srs1, &[domain, rest]);
                format!("SRS1={hash}={domain}={rest}@{own}")
            }
            Some((Tag::Srs1, rest)) if first_host(rest).is_some() => {
                let (host, rest) = first_host(rest).unwrap_or_default();
                let hash = self.hash(&self.secrets[0], Tag::Srs1, &[host, rest]);
                format!("SRS1={hash}={host}={rest}@{own}")
            }
            _ => {
                let hash = self.hash(&self.secrets[0], Tag::Srs0, &[&today.to_string(), domain, user]);
                format!("SRS0={hash}={}={domain}={user}@{own}", day(today))
            }
        }
    }

    /// Whether [`Srs::forward`] could have made this local part.
    pub fn is_ours(&self, user: &str, domain: &str) -> bool {
        domain.eq_ignore_ascii_case(&self.domain) && split(user).is_some()
    }

    /// Returns the original address of a local part. `today`: days since the Unix epoch.
    ///
    /// # Errors
    /// It was not made here, or too long ago.
    pub fn reverse(&self, user: &str, today: u64) -> Result<String, SrsError> {
        match split(user).ok_or(SrsError::Malformed)? {
            (Tag::Srs0, rest) => {
                let mut parts = rest[1..].splitn(4, '=');
                let mut next = || parts.next().filter(|part| !part.is_empty()).ok_or(SrsError::Malformed);
                let (hash, day, domain, user) = (next()?, next()?, next()?, next()?);
                let age = age(day, today).ok_or(SrsError::Malformed)?;
                // No address was made before the epoch.
                let made = today.checked_sub(age).ok_or(SrsError::Hash)?;
                self.verify(hash, Tag::Srs0, &[&made.to_string(), domain, user])?;
                if age > self.days_max {
                    return Err(SrsError::Expired);
                }
                Ok(format!("{user}@{domain}"))
            }
            (Tag::Srs1, rest) => {
                let hash = rest[1..].split('=').next().unwrap_or_default();
                let (host, rest) = first_host(rest).ok_or(SrsError::Malformed)?;
                self.verify(hash, Tag::Srs1, &[host, rest])?;
                Ok(format!("SRS0{rest}@{host}"))
            }
        }
    }

    fn verify(&self, hash: &str, tag: Tag, fields: &[&str]) -> Result<(), SrsError> {
        let folded = hash.to_ascii_lowercase();
        // All secrets are compared, each in constant time. A hash of another length is not ours.
        let matching = self.secrets.iter().filter(|secret| {
            let right = self.hash(secret, tag, fields).to_ascii_lowercase();
            right.as_bytes().ct_eq(folded.as_bytes()).into()
        });
        if matching.count() > 0 { Ok(()) } else { Err(SrsError::Hash) }
    }

    /// Returns the part of the MAC over these fields that an address shows.
    fn hash(&self, secret: &[u8], tag: Tag, fields: &[&str]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
        for part in [CONTEXT, tag.name().as_bytes()].into_iter().chain(fields.iter().map(|field| field.as_bytes())) {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(&part.to_ascii_lowercase());
        }
        let mut text = Base64::encode_string(&mac.finalize().into_bytes());
        text.truncate(self.hash_chars);
        text
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    Srs0,
    Srs1,
}

impl Tag {
    fn name(self) -> &'static str {
        match self {
            Tag::Srs0 => "SRS0",
            Tag::Srs1 => "SRS1",
        }
    }
}

/// Returns the tag, and the rest from the separator on.
fn split(user: &str) -> Option<(Tag, &str)> {
    let (tag, rest) = (user.get(..4)?, user.get(4..)?);
    let tag = match tag.to_ascii_uppercase().as_str() {
        "SRS0" => Tag::Srs0,
        "SRS1" => Tag::Srs1,
        _ => return None,
    };
    rest.starts_with(['=', '+', '-']).then_some((tag, rest))
}

/// Splits the text after `SRS1` into the first forwarder and the text after its `SRS0`.
fn first_host(rest: &str) -> Option<(&str, &str)> {
    let (_, rest) = rest.get(1..)?.split_once('=')?;
    let (host, rest) = rest.split_once('=')?;
    (!host.is_empty() && rest.starts_with(['=', '+', '-'])).then_some((host, rest))
}

/// Returns the days since a day written in two characters; a day in the future was 1,024 days earlier.
fn age(day: &str, today: u64) -> Option<u64> {
    let digit = |octet: u8| DIGITS.iter().position(|digit| *digit == octet.to_ascii_uppercase());
    let &[high, low] = day.as_bytes() else { return None };
    let then = digit(high)? as u64 * 32 + digit(low)? as u64;
    Some((today % DAYS + DAYS - then) % DAYS)
}

fn day(today: u64) -> String {
    let digit = |value: u64| char::from(DIGITS[(value % 32) as usize]);
    [digit(today >> 5), digit(today)].iter().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn srs(secret: &str) -> Srs {
        Srs::new("ours.test", vec![secret.into()], 4, 21).unwrap()
    }

    fn local(address: &str) -> &str {
        address.rsplit_once('@').unwrap().0
    }

    #[test]
    fn there_and_back() {
        let srs = srs("secret");
        let sent = srs.forward("Joe=x", "a.test", 20_000);
        assert!(sent.starts_with("SRS0=") && sent.ends_with("=a.test=Joe=x@ours.test"), "{sent}");
        for day in [20_000, 20_021] {
            assert_eq!(srs.reverse(local(&sent), day).unwrap(), "Joe=x@a.test");
        }
        assert_eq!(srs.reverse(&local(&sent).to_lowercase(), 20_000).unwrap(), "joe=x@a.test");
        assert_eq!(srs.reverse(local(&sent), 20_022), Err(SrsError::Expired));
        assert_eq!(srs.reverse(local(&sent), 19_999), Err(SrsError::Hash), "made tomorrow");
        assert_eq!(
            srs.reverse(local(&sent), 20_000 + DAYS),
            Err(SrsError::Hash),
            "the same two characters, years later"
        );
        assert!(srs.is_ours(local(&sent), "OURS.test") && !srs.is_ours("joe", "ours.test"));
    }

    #[test]
    fn a_chain_of_forwarders_leads_back_in_one_step() {
        let (first, second, third) = (
            Srs::new("one.test", vec![b"1".to_vec()], 4, 21).unwrap(),
            Srs::new("two.test", vec![b"2".to_vec()], 4, 21).unwrap(),
            Srs::new("three.test", vec![b"3".to_vec()], 4, 21).unwrap(),
        );
        let one = first.forward("joe", "a.test", 20_000);
        let two = second.forward(local(&one), "one.test", 20_000);
        let three = third.forward(local(&two), "two.test", 20_000);
        assert!(
            two.starts_with("SRS1=") && two.contains("=one.test==") && two.ends_with("=a.test=joe@two.test"),
            "{two}"
        );
        assert!(three.starts_with("SRS1=") && three.contains("=one.test=="), "{three}");
        assert_eq!(third.reverse(local(&three), 20_000).unwrap(), one);
        assert_eq!(second.reverse(local(&two), 20_000).unwrap(), one);
        assert_eq!(first.reverse(local(&one), 20_000).unwrap(), "joe@a.test");
        assert_eq!(second.reverse(local(&three), 20_000), Err(SrsError::Hash));
    }

    /// Computed with Python's hmac: a change of the format would lose bounces in transit.
    #[test]
    fn the_form_of_addresses_is_kept() {
        let srs = Srs::new("fwd.test", vec![b"a secret of ours 1".to_vec()], 8, 21).unwrap();
        for (user, domain, expected) in [
            ("joe", "a.test", "SRS0=QOHcJ2MZ=JM=a.test=joe@fwd.test"),
            ("Joe=x", "A.test", "SRS0=TNMMlUb3=JM=A.test=Joe=x@fwd.test"),
            ("SRS0=abcd=TR=b.test=ann", "one.test", "SRS1=EaPqvpKX=one.test==abcd=TR=b.test=ann@fwd.test"),
            (
                "SRS1=wxyz=one.test==abcd=TR=b.test=ann",
                "two.test",
                "SRS1=EaPqvpKX=one.test==abcd=TR=b.test=ann@fwd.test",
            ),
        ] {
            assert_eq!(srs.forward(user, domain, 20_780), expected);
            assert!(srs.reverse(local(expected), 20_780).is_ok(), "{expected}");
        }
    }

    #[test]
    fn addresses_in_the_form_of_postsrsd_are_refused() {
        let srs = Srs::new("fwd.test", vec![b"a secret of ours 1".to_vec()], 4, 21).unwrap();
        for old in [
            "SRS0=wVHl=JM=a.test=joe",
            "SRS0=3mZ5=JM=A.test=Joe=x",
            "SRS1=1/br=one.test==abcd=TR=b.test=ann",
            "SRS1=1/br=one.test==abcd=TR=b.test=ann",
        ] {
            assert_eq!(srs.reverse(old, 20_780), Err(SrsError::Hash), "{old}");
        }
    }

    /// Each address is made for the first pair; with a shifted boundary it must lead nowhere.
    #[test]
    fn no_character_moves_from_one_field_to_another() {
        let srs = srs("secret");
        for (user, domain, moved) in [
            ("ictim", "bank.testv", "bank.test=victim"),
            ("victim", "bank.test", "bank.tes=tvictim"),
            ("a", "b.test", "b.test==a"),
            ("a=b", "c.test", "c.test=a=b=c"),
            ("=a", "b.test", "b.test=a"),
            ("x.test=a", "b.test", "b.test=x.test==a"),
        ] {
            let sent = srs.forward(user, domain, 20_000);
            let begin = &local(&sent)[..=4 + HASH_CHARS_MIN + 4];
            assert!(sent.starts_with(&format!("{begin}{domain}={user}")), "{sent}");
            let back = srs.reverse(&format!("{begin}{moved}"), 20_000);
            assert!(back.is_err(), "{sent}: {moved} leads to {back:?}");
        }
        // Between the day and the domain: an address shows two characters for the day, the hash covers the full day.
        let sent = srs.forward("a", "7b.test", 2_000);
        let hash = &sent[5..5 + HASH_CHARS_MIN];
        assert!(srs.reverse(&format!("SRS0={hash}={}=b.test=a", day(20_007)), 20_007).is_err());
        // For SRS1: the first forwarder, and the text after its tag.
        let sent = srs.forward("SRS0=h=TD=c.test=u", "one.testx", 20_000);
        let hash = &sent[5..5 + HASH_CHARS_MIN];
        assert!(srs.reverse(local(&sent), 20_000).is_ok());
        for moved in ["one.test=x=h=TD=c.test=u", "one.test==xh=TD=c.test=u", "one.testx=+h=TD=c.test=u"] {
            assert!(srs.reverse(&format!("SRS1={hash}={moved}"), 20_000).is_err(), "{moved}");
        }
    }

    /// A hash for one kind of address is invalid for the other.
    #[test]
    fn a_hash_has_one_purpose() {
        let srs = srs("secret");
        let fields: [&[&str]; 3] =
            [&["20000", "a.test", "=joe"], &["20000", "a.test=", "joe"], &["20000a.test", "=joe"]];
        let all: Vec<String> = [Tag::Srs0, Tag::Srs1]
            .into_iter()
            .flat_map(|tag| fields.map(|fields| srs.hash(b"secret", tag, fields)))
            .collect();
        let different: std::collections::HashSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
    }

    #[test]
    fn a_hash_shows_eight_characters_at_least() {
        for (chars, shown) in [(0, 8), (1, 8), (4, 8), (7, 8), (8, 8), (9, 9), (20, 20)] {
            let srs = Srs::new("ours.test", vec![b"secret".to_vec()], chars, 21).unwrap();
            let sent = srs.forward("joe", "a.test", 20_000);
            let hash = sent.split('=').nth(1).unwrap();
            assert_eq!(hash.len(), shown, "{chars}: {sent}");
            for length in 1..shown {
                let cut = local(&sent).replacen(hash, &hash[..length], 1);
                assert_eq!(srs.reverse(&cut, 20_000), Err(SrsError::Hash), "{cut}");
            }
        }
        assert!(Srs::new("ours.test", vec![b"secret".to_vec()], HASH_CHARS_MAX + 1, 21).is_none());
    }

    #[test]
    fn an_older_secret_still_verifies() {
        let old = srs("old").forward("joe", "a.test", 20_000);
        let both = Srs::new("ours.test", vec![b"new".to_vec(), b"old".to_vec()], 4, 21).unwrap();
        assert_eq!(both.reverse(local(&old), 20_001).unwrap(), "joe@a.test");
        assert_eq!(srs("new").reverse(local(&old), 20_001), Err(SrsError::Hash));
        assert!(Srs::new("ours.test", vec![], 4, 21).is_none() && Srs::new("ours.test", vec![vec![]], 4, 21).is_none());
    }

    #[test]
    fn what_is_no_srs_address() {
        let srs = srs("secret");
        for bad in [
            "",
            "SRS0",
            "SRS0=",
            "SRS0=a=b",
            "SRS0=a=TD=x",
            "SRS0====",
            "SRS1=a=b",
            "SRS1=a==b",
            "SRS1=a=b=c",
            "srsx=a",
            "é",
        ] {
            assert!(matches!(srs.reverse(bad, 0), Err(SrsError::Malformed)), "{bad}");
        }
        assert_eq!(srs.reverse("SRS0=abcd=TD=a.test=joe", 20_000), Err(SrsError::Hash));
        assert_eq!(srs.reverse("SRS0=abcd=TD=a.test=joe", 0), Err(SrsError::Hash), "before the epoch");
        assert_eq!(srs.reverse("SRS1=abcd=a.test==x=TD=b.test=joe", 0), Err(SrsError::Hash));
    }

    proptest! {
        #[test]
        fn every_sender_comes_back(user in "[a-zA-Z0-9=+._-]{1,30}", day in 0..100_000_u64, later in 0..=21_u64) {
            let srs = srs("secret");
            let sent = srs.forward(&user, "a.test", day);
            let back = srs.reverse(local(&sent), day + later).unwrap();
            prop_assert_eq!(back, format!("{}@a.test", user));
        }

        #[test]
        fn no_other_pair_of_the_same_letters_is_meant(letters in "[a-z.=]{4,30}", at in 1..30_usize, other in 1..30_usize) {
            let (at, other) = (at.min(letters.len() - 1), other.min(letters.len() - 1));
            let srs = srs("secret");
            let sent = srs.forward(&letters[at..], &letters[..at], 20_000);
            let begin = &local(&sent)[..=4 + HASH_CHARS_MIN + 4];
            let moved = format!("{begin}{}={}", &letters[..other], &letters[other..]);
            if let Ok(back) = srs.reverse(&moved, 20_000) {
                prop_assert_eq!(back, format!("{}@{}", &letters[at..], &letters[..at]));
            }
        }

        #[test]
        fn no_change_of_a_letter_is_taken(at in 0..30_usize, letter in "[a-z0-9]") {
            let srs = Srs::new("ours.test", vec![b"secret".to_vec()], 20, 21).unwrap();
            let sent = srs.forward("somebody", "domain.test", 20_000);
            let mut changed = local(&sent).to_owned();
            let at = 5 + at;
            if !changed[at..=at].eq_ignore_ascii_case(&letter) {
                changed.replace_range(at..=at, &letter);
                prop_assert!(srs.reverse(&changed, 20_000).is_err(), "{}", changed);
            }
        }

        #[test]
        fn never_panics(text in "(SRS[01])?[=+a-z2é-]{0,20}", day in any::<u64>()) {
            let _ = srs("x").reverse(&text, day);
            let _ = srs("x").forward(&text, "a.test", day);
        }
    }
}
