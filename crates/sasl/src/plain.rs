//! PLAIN (RFC 4616): the identity to act as, the user and the password, separated by NULs. LOGIN sends only user and
//! password, in two messages.

use crate::error::SaslError;
use crate::limits::{PASSWORD_BYTES_MAX, USER_BYTES_MAX};
use crate::secret::Secret;

use SaslError::Malformed;

/// LOGIN's prompts. It was never standardised; some clients look for these words.
pub(crate) const LOGIN_USER: &[u8] = b"Username:";
pub(crate) const LOGIN_PASSWORD: &[u8] = b"Password:";

/// A client's credentials as sent: the code that checks them must prepare them ([`crate::prepare`]), or pass them on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user that it wants to act as, if given.
    pub authzid: Option<String>,
    pub user: String,
    pub password: Secret,
}

/// Parses a user's name from a message.
pub(crate) fn read_user(octets: &[u8]) -> Result<String, SaslError> {
    if octets.len() > USER_BYTES_MAX {
        return Err(SaslError::TooLong);
    }
    let text = std::str::from_utf8(octets).map_err(|_| Malformed("not UTF-8"))?;
    if text.is_empty() || text.contains('\0') {
        return Err(Malformed("missing user name"));
    }
    Ok(text.to_owned())
}

pub(crate) fn read_password(octets: &[u8]) -> Result<Secret, SaslError> {
    if octets.len() > PASSWORD_BYTES_MAX {
        return Err(SaslError::TooLong);
    }
    if octets.is_empty() || octets.contains(&0) {
        return Err(Malformed("missing password"));
    }
    Secret::from_utf8(octets).ok_or(Malformed("not UTF-8"))
}

pub(crate) fn read(message: &[u8]) -> Result<Credentials, SaslError> {
    let mut parts = message.splitn(3, |octet| *octet == 0);
    let (Some(authzid), Some(user), Some(password)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(Malformed("PLAIN has two NULs"));
    };
    let authzid = if authzid.is_empty() { None } else { Some(read_user(authzid)?) };
    Ok(Credentials { authzid, user: read_user(user)?, password: read_password(password)? })
}

/// Formats a message without an identity to act as: the server derives it from the user.
pub(crate) fn write(user: &str, password: &Secret) -> Vec<u8> {
    [b"\0", user.as_bytes(), b"\0", password.expose().as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The examples of RFC 4616 section 4.
    #[test]
    fn the_examples_of_the_rfc() {
        let of = |authzid: Option<&str>, user: &str, password: &str| {
            Ok(Credentials { authzid: authzid.map(str::to_owned), user: user.to_owned(), password: password.into() })
        };
        assert_eq!(read(b"\0tim\0tanstaaftanstaaf"), of(None, "tim", "tanstaaftanstaaf"));
        assert_eq!(read(b"Ursel\0Kurt\0xipj3plmq"), of(Some("Ursel"), "Kurt", "xipj3plmq"));
        assert_eq!(write("tim", &"tanstaaftanstaaf".into()), b"\0tim\0tanstaaftanstaaf");
    }

    #[test]
    fn other_messages_are_errors() {
        for bad in [&b""[..], b"tim", b"\0tim", b"\0\0pw", b"\0tim\0", b"\0tim\0p\0w", b"\0\xff\0pw", b"\0tim\0\xff"] {
            assert!(matches!(read(bad), Err(Malformed(_))), "{bad:?}");
        }
        let long = |user: usize, password: usize| [vec![0], vec![b'u'; user], vec![0], vec![b'p'; password]].concat();
        assert!(read(&long(USER_BYTES_MAX, PASSWORD_BYTES_MAX)).is_ok());
        assert_eq!(read(&long(USER_BYTES_MAX + 1, 1)), Err(SaslError::TooLong));
        assert_eq!(read(&long(1, PASSWORD_BYTES_MAX + 1)), Err(SaslError::TooLong));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(user in "[^\0]{1,40}", password in "[^\0]{1,40}") {
            let read = read(&write(&user, &Secret::new(password.clone()))).unwrap();
            prop_assert_eq!((read.user, read.password.expose()), (user, password.as_str()));
        }

        #[test]
        fn any_octets_are_credentials_or_an_error(octets in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = read(&octets);
        }
    }
}
