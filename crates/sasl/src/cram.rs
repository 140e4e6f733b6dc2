//! CRAM-MD5 (RFC 2195), for clients only: a server would have to store passwords in clear.

use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::Md5;

use crate::error::SaslError;
use crate::limits::CRAM_BYTES_MAX;
use crate::secret::Secret;

pub(crate) fn respond(user: &str, password: &Secret, challenge: &[u8]) -> Result<Vec<u8>, SaslError> {
    use std::fmt::Write as _;
    if challenge.is_empty() {
        return Err(SaslError::Malformed("not a challenge of CRAM-MD5"));
    }
    if challenge.len() > CRAM_BYTES_MAX {
        return Err(SaslError::TooLong);
    }
    let keyed = Hmac::<Md5>::new_from_slice(password.expose().as_bytes()).expect("any length is a key");
    let digest = keyed.chain_update(challenge).finalize().into_bytes();
    let mut response = format!("{user} ");
    for octet in digest {
        let _ = write!(response, "{octet:02x}");
    }
    Ok(response.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 2195 section 2.
    #[test]
    fn the_example_of_the_rfc() {
        let password = "tanstaaftanstaaf".into();
        let response = respond("tim", &password, b"<1896.697170952@postoffice.reston.mci.net>").unwrap();
        assert_eq!(response, b"tim b913a602c7eda7a495b4e6e7334d3890");
        assert!(respond("tim", &password, b"").is_err());
        assert_eq!(respond("tim", &password, &[b'x'; CRAM_BYTES_MAX + 1]), Err(SaslError::TooLong));
    }
}
