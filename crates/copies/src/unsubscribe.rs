//! One-click unsubscribing (RFC 8058): a link for one recipient of one list or sender, and the fields that carry it.
//!
//! A token is everything that the server needs to know, sealed: layout version, day, kind and length of the scope,
//! scope, recipient, and 16 octets of HMAC-SHA-256, in base64url. The seal is compared in constant time before
//! anything else is examined.

use base64ct::{Base64UrlUnpadded, Encoding as _};
use hmac::Mac as _;

use crate::key::{CopyKey, SealUse};
use crate::template::CopyValues;

/// Days for which a token is valid.
pub const TOKEN_DAYS: u32 = 400;
/// Longest address of the server in links, such that the field stays within a line (RFC 5322 section 2.1.1).
pub const LINK_BASE_BYTES_MAX: usize = 200;
/// The fields of [`unsubscribe_fields`].
pub(crate) const UNSUBSCRIBE_FIELDS: [&str; 2] = ["List-Unsubscribe", "List-Unsubscribe-Post"];

/// Path prefix of links.
pub const UNSUBSCRIBE_PATH: &str = "/unsubscribe/";

const VERSION: u8 = 1;
const SEAL_BYTES: usize = 16;
/// Version, day, kind and length of the scope.
const FIXED_BYTES: usize = 7;
/// Longest token accepted. Scope and address have at most 254 octets each.
const TOKEN_CHARS_MAX: usize = 720;
const DAY_MS: u64 = 86_400_000;

/// What a link ends: the mail of a list or of a sender to one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Membership {
    List { list: String, recipient: String },
    Sender { sender: String, recipient: String },
}

impl Membership {
    /// Returns what a copy's link ends.
    pub fn of(values: &CopyValues<'_>) -> Membership {
        let recipient = values.recipient.to_owned();
        if values.list.is_empty() {
            Membership::Sender { sender: values.membership_sender.to_owned(), recipient }
        } else {
            Membership::List { list: values.list.to_owned(), recipient }
        }
    }

    fn parts(&self) -> (u8, &str, &str) {
        match self {
            Membership::List { list, recipient } => (b'l', list, recipient),
            Membership::Sender { sender, recipient } => (b's', sender, recipient),
        }
    }

    pub fn recipient(&self) -> &str {
        self.parts().2
    }

    /// Returns its token; `None` if it is too long for one. `now_ms`: since the Unix epoch.
    pub fn token(&self, key: &CopyKey, now_ms: u64) -> Option<String> {
        let (kind, scope, recipient) = self.parts();
        let day = u32::try_from(now_ms / DAY_MS).ok()?;
        let mut octets = Vec::with_capacity(FIXED_BYTES + scope.len() + recipient.len() + SEAL_BYTES);
        octets.push(VERSION);
        octets.extend_from_slice(&day.to_be_bytes());
        octets.extend_from_slice(&[kind, u8::try_from(scope.len()).ok()?]);
        octets.extend_from_slice(scope.as_bytes());
        octets.extend_from_slice(recipient.as_bytes());
        let seal = key.seal(SealUse::Unsubscribe, &[&octets]).finalize().into_bytes();
        octets.extend_from_slice(&seal[..SEAL_BYTES]);
        Some(Base64UrlUnpadded::encode_string(&octets)).filter(|token| token.len() <= TOKEN_CHARS_MAX)
    }

    /// Verifies a token; `None` if it is not ours or older than [`TOKEN_DAYS`].
    pub fn open(token: &str, key: &CopyKey, now_ms: u64) -> Option<Membership> {
        if token.len() > TOKEN_CHARS_MAX {
            return None;
        }
        let octets = Base64UrlUnpadded::decode_vec(token).ok()?;
        let (body, seal) = octets.split_at_checked(octets.len().checked_sub(SEAL_BYTES)?)?;
        key.seal(SealUse::Unsubscribe, &[body]).verify_truncated_left(seal).ok()?;
        let (&[VERSION, a, b, c, d, kind, scope_bytes], text) = body.split_first_chunk::<FIXED_BYTES>()? else {
            return None;
        };
        let today = now_ms / DAY_MS;
        if today > u64::from(u32::from_be_bytes([a, b, c, d])) + u64::from(TOKEN_DAYS) {
            return None;
        }
        let (scope, recipient) = text.split_at_checked(usize::from(scope_bytes))?;
        let text = |octets: &[u8]| String::from_utf8(octets.to_vec()).ok();
        let (scope, recipient) = (text(scope)?, text(recipient)?);
        match kind {
            b'l' => Some(Membership::List { list: scope, recipient }),
            b's' => Some(Membership::Sender { sender: scope, recipient }),
            _ => None,
        }
    }
}

/// Returns `List-Unsubscribe` and `List-Unsubscribe-Post` with their CRLFs (RFC 8058 section 3.1). `link_base`: `https://`
/// and a host, without a final slash, at most [`LINK_BASE_BYTES_MAX`] octets.
pub(crate) fn unsubscribe_fields(link_base: &str, token: &str) -> String {
    let [link, post] = UNSUBSCRIBE_FIELDS;
    format!("{link}:\r\n <{link_base}{UNSUBSCRIBE_PATH}{token}>\r\n{post}: List-Unsubscribe=One-Click\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 20_000 * DAY_MS;

    fn key() -> CopyKey {
        CopyKey::new(&[7; 32])
    }

    fn ann() -> Membership {
        Membership::List { list: "news".into(), recipient: "ann@x.example".into() }
    }

    #[test]
    fn a_token_opens_for_what_it_was_made_for_and_a_year() {
        let bulk = Membership::Sender { sender: "b@l.example".into(), recipient: "ann@x.example".into() };
        for membership in [ann(), bulk] {
            let token = membership.token(&key(), NOW_MS).unwrap();
            assert_eq!(Membership::open(&token, &key(), NOW_MS), Some(membership.clone()));
            let last = NOW_MS + u64::from(TOKEN_DAYS) * DAY_MS;
            assert_eq!(Membership::open(&token, &key(), last), Some(membership.clone()));
            assert_eq!(Membership::open(&token, &key(), last + DAY_MS), None);
            assert_eq!(Membership::open(&token, &CopyKey::new(&[8; 32]), NOW_MS), None);
        }
    }

    #[test]
    fn a_changed_token_opens_nothing() {
        let token = ann().token(&key(), NOW_MS).unwrap();
        let octets = Base64UrlUnpadded::decode_vec(&token).unwrap();
        for at in 0..octets.len() {
            for bit in 0..8 {
                let mut changed = octets.clone();
                changed[at] ^= 1 << bit;
                let changed = Base64UrlUnpadded::encode_string(&changed);
                assert_eq!(Membership::open(&changed, &key(), NOW_MS), None, "{at}.{bit}");
            }
            let cut = Base64UrlUnpadded::encode_string(&octets[..at]);
            assert_eq!(Membership::open(&cut, &key(), NOW_MS), None, "{at} octets");
        }
        for bad in ["", "a", &format!("{token}="), &"A".repeat(5_000)] {
            assert_eq!(Membership::open(bad, &key(), NOW_MS), None, "{bad:.20}");
        }
    }

    #[test]
    fn the_longest_field_stays_within_a_line() {
        let longest = Membership::List { list: "l".repeat(254), recipient: "r".repeat(254) };
        let token = longest.token(&key(), NOW_MS).unwrap();
        let base = format!("https://{}", "h".repeat(LINK_BASE_BYTES_MAX - 8));
        let fields = unsubscribe_fields(&base, &token);
        assert!(fields.split("\r\n").all(|line| line.len() <= 998), "{}", fields.len());
        let too_long = Membership::List { list: "l".repeat(256), recipient: "r".into() };
        assert_eq!(too_long.token(&key(), NOW_MS), None);
    }
}
