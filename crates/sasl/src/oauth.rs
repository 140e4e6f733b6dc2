//! OAUTHBEARER (RFC 7628) and XOAUTH2, its predecessor at Google and Microsoft: a user's name and a token that a third
//! party issued, and verifies.

use crate::error::SaslError;
use crate::limits::{MESSAGE_BYTES_MAX, TOKEN_BYTES_MAX, USER_BYTES_MAX};
use crate::plain::read_user;
use crate::secret::Secret;

use SaslError::Malformed;

/// Separates the parts of both.
const SEPARATOR: char = '\x01';

/// The data that a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BearerToken {
    /// `None` if the token alone identifies the user (RFC 7628 section 3.1).
    pub user: Option<String>,
    pub token: Secret,
}

/// The client's acknowledgement of a failure, which ends an exchange of OAUTHBEARER (RFC 7628 section 3.2.3).
pub(crate) const ACKNOWLEDGED: &[u8] = b"\x01";

pub(crate) fn write_bearer(user: &str, token: &Secret, host: &str, port: u16) -> Vec<u8> {
    let name = user.replace('=', "=3D").replace(',', "=2C");
    let server = if host.is_empty() { String::new() } else { format!("host={host}\x01port={port}\x01") };
    format!("n,a={name},\x01{server}auth=Bearer {}\x01\x01", token.expose()).into_bytes()
}

pub(crate) fn write_xoauth2(user: &str, token: &Secret) -> Vec<u8> {
    format!("user={user}\x01auth=Bearer {}\x01\x01", token.expose()).into_bytes()
}

/// Parses the value of `auth`: the scheme ignores case, the token follows RFC 6750 section 2.1.
fn read_token(value: &str) -> Result<Secret, SaslError> {
    let (scheme, token) = value.split_once(' ').ok_or(Malformed("missing bearer token"))?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Malformed("missing bearer token"));
    }
    if token.len() > TOKEN_BYTES_MAX {
        return Err(SaslError::TooLong);
    }
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.is_empty() || !token.bytes().all(is_token) {
        return Err(Malformed("missing bearer token"));
    }
    Ok(Secret::from(token))
}

fn text_of(message: &[u8]) -> Result<&str, SaslError> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(SaslError::TooLong);
    }
    std::str::from_utf8(message).map_err(|_| Malformed("not UTF-8"))
}

/// Splits `key=value` pairs, each ended by the separator, with one more at the end.
fn pairs(text: &str) -> Result<impl Iterator<Item = (&str, &str)>, SaslError> {
    let body =
        text.strip_suffix(SEPARATOR).and_then(|text| text.strip_suffix(SEPARATOR)).ok_or(Malformed("missing end"))?;
    Ok(body.split(SEPARATOR).filter_map(|pair| pair.split_once('=')))
}

fn named<'a>(text: &'a str, name: &str) -> Result<Option<&'a str>, SaslError> {
    let mut found = None;
    for (key, value) in pairs(text)? {
        if key == name && found.replace(value).is_some() {
            return Err(Malformed("a value appears twice"));
        }
    }
    Ok(found)
}

pub(crate) fn read_bearer(message: &[u8]) -> Result<BearerToken, SaslError> {
    let text = text_of(message)?;
    let (header, rest) = text.split_once(SEPARATOR).ok_or(Malformed("missing GS2 header"))?;
    // Channel binding is not defined for it (RFC 7628 section 3.1: "n" or "y").
    let name =
        header.strip_prefix("n,").or_else(|| header.strip_prefix("y,")).ok_or(Malformed("missing GS2 header"))?;
    let name = name.strip_suffix(',').ok_or(Malformed("missing GS2 header"))?;
    let user = match name {
        "" => None,
        some => {
            let name = some.strip_prefix("a=").ok_or(Malformed("missing GS2 header"))?;
            if name.len() > 3 * USER_BYTES_MAX {
                return Err(SaslError::TooLong);
            }
            Some(read_user(name.replace("=2C", ",").replace("=3D", "=").as_bytes())?)
        }
    };
    let token = named(rest, "auth")?.ok_or(Malformed("missing bearer token"))?;
    Ok(BearerToken { user, token: read_token(token)? })
}

pub(crate) fn read_xoauth2(message: &[u8]) -> Result<BearerToken, SaslError> {
    let text = text_of(message)?;
    let user = named(text, "user")?.ok_or(Malformed("missing user name"))?;
    let token = named(text, "auth")?.ok_or(Malformed("missing bearer token"))?;
    Ok(BearerToken { user: Some(read_user(user.as_bytes())?), token: read_token(token)? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The example of RFC 7628 section 4.1.
    #[test]
    fn the_example_of_the_rfc() {
        let message = b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01";
        let token = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==".into();
        assert_eq!(write_bearer("user@example.com", &token, "server.example.com", 143), message);
        assert_eq!(read_bearer(message), Ok(BearerToken { user: Some("user@example.com".to_owned()), token }));
    }

    /// The example on Google's page about XOAUTH2.
    #[test]
    fn the_example_of_xoauth2() {
        let message = b"user=someuser@example.com\x01auth=Bearer ya29.vF9dft4qmTc2Nvb3RlckBhdHRhdmlzdGEuY29tCg\x01\x01";
        let token = "ya29.vF9dft4qmTc2Nvb3RlckBhdHRhdmlzdGEuY29tCg".into();
        assert_eq!(write_xoauth2("someuser@example.com", &token), message);
        assert_eq!(read_xoauth2(message), Ok(BearerToken { user: Some("someuser@example.com".to_owned()), token }));
    }

    #[test]
    fn other_messages_are_errors() {
        for bad in [
            "",
            "\x01",
            "n,,",
            "n,,\x01",
            "n,,\x01\x01",
            "n,,\x01auth=Bearer x\x01",
            "n,,\x01auth=Basic x\x01\x01",
            "n,,\x01auth=Bearer \x01\x01",
            "n,,\x01auth=Bearer a b\x01\x01",
            "n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
            "p=x,,\x01auth=Bearer a\x01\x01",
            "n,b,\x01auth=Bearer a\x01\x01",
            "n,a=,\x01auth=Bearer a\x01\x01",
        ] {
            assert!(matches!(read_bearer(bad.as_bytes()), Err(Malformed(_))), "{bad:?}");
        }
        for bad in [
            "",
            "user=a\x01\x01",
            "auth=Bearer a\x01\x01",
            "user=\x01auth=Bearer a\x01\x01",
            "user=a\x01auth=Bearer a\x01",
        ] {
            assert!(matches!(read_xoauth2(bad.as_bytes()), Err(Malformed(_))), "{bad:?}");
        }
        let long = format!("user=a\x01auth=Bearer {}\x01\x01", "x".repeat(TOKEN_BYTES_MAX + 1));
        assert_eq!(read_xoauth2(long.as_bytes()), Err(SaslError::TooLong));
        assert_eq!(read_bearer(b"n,,\x01auth=bearer x\x01\x01").unwrap().user, None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(user in "[a-z=,@]{1,20}", token in "[A-Za-z0-9._~+/=-]{1,60}") {
            let wanted = BearerToken { user: Some(user.clone()), token: Secret::new(token.clone()) };
            prop_assert_eq!(read_bearer(&write_bearer(&user, &wanted.token, "h", 25)).unwrap(), wanted.clone());
            prop_assert_eq!(read_xoauth2(&write_xoauth2(&user, &wanted.token)).unwrap(), wanted);
        }

        #[test]
        fn any_octets_are_a_token_or_an_error(octets in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = (read_bearer(&octets), read_xoauth2(&octets));
        }
    }
}
