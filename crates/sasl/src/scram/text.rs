//! The messages of SCRAM as text (RFC 5802 section 7): one-letter attributes in a fixed order, separated by commas.

use base64ct::{Base64, Encoding as _};

use super::keys::{KEY_BYTES, Key};
use crate::binding::BindingKind;
use crate::error::SaslError;
use crate::limits::{NONCE_BYTES_MAX, SALT_BYTES_MAX, SCRAM_BYTES_MAX, USER_BYTES_MAX};

use SaslError::Malformed;

/// `gs2-cbind-flag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flag {
    /// `n`: the client does not support it.
    Not,
    /// `y`: the client supports it and believes that the server does not.
    ServerCannot,
    /// `p=`; `None` for an unknown kind.
    Bound(Option<BindingKind>),
}

/// `client-first-message`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientFirst<'a> {
    pub flag: Flag,
    /// The user that the client wants to act as, if given.
    pub authzid: Option<String>,
    pub user: String,
    pub nonce: &'a str,
    /// The text before `bare`, for the check of the binding.
    pub gs2_header: &'a str,
    /// `client-first-message-bare`, which is signed.
    pub bare: &'a str,
}

/// `server-first-message`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerFirst<'a> {
    pub nonce: &'a str,
    pub salt: Vec<u8>,
    pub iterations: u32,
}

/// `client-final-message`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientFinal<'a> {
    pub binding: Vec<u8>,
    pub nonce: &'a str,
    pub proof: Key,
    /// Without the proof, as it is signed.
    pub without_proof: &'a str,
}

/// Checks that a message is text.
pub(super) fn text_of(octets: &[u8]) -> Result<&str, SaslError> {
    if octets.len() > SCRAM_BYTES_MAX {
        return Err(SaslError::TooLong);
    }
    std::str::from_utf8(octets).map_err(|_| Malformed("not UTF-8"))
}

/// The value of the next attribute, and the text after its comma.
fn take<'a>(text: &'a str, name: &str) -> Result<(&'a str, &'a str), SaslError> {
    let (head, rest) = text.split_once(',').unwrap_or((text, ""));
    let value = head.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
    Ok((value.ok_or(Malformed("an attribute is missing or out of order"))?, rest))
}

/// Checks the text after the known attributes: only optional extensions may be ignored.
fn check_extensions(text: &str) -> Result<(), SaslError> {
    for one in text.split(',').filter(|one| !one.is_empty()) {
        let octets = one.as_bytes();
        if octets.len() < 3 || !octets[0].is_ascii_alphabetic() || octets[1] != b'=' {
            return Err(Malformed("an extension is not an attribute"));
        }
        if octets[0] == b'm' {
            return Err(SaslError::UnknownExtension);
        }
    }
    Ok(())
}

/// Checks for `printable`: ASCII without the comma.
fn check_nonce(nonce: &str) -> Result<&str, SaslError> {
    if nonce.len() > NONCE_BYTES_MAX {
        return Err(SaslError::TooLong);
    }
    let is_printable = nonce.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    if nonce.is_empty() || !is_printable { Err(Malformed("the nonce is not printable")) } else { Ok(nonce) }
}

/// Parses a `saslname`: `=2C` stands for a comma, `=3D` for an equals sign, and no other equals sign is allowed.
fn read_name(text: &str) -> Result<String, SaslError> {
    if text.len() > 3 * USER_BYTES_MAX {
        return Err(SaslError::TooLong);
    }
    let mut parts = text.split('=');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (character, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return Err(Malformed("an equals sign in a name is not a valid escape")),
        };
        name.push(character);
        name.push_str(rest);
    }
    if name.is_empty() || name.contains('\0') {
        return Err(Malformed("missing user name"));
    }
    if name.len() > USER_BYTES_MAX { Err(SaslError::TooLong) } else { Ok(name) }
}

pub(super) fn write_name(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

impl<'a> ClientFirst<'a> {
    pub fn parse(text: &'a str) -> Result<ClientFirst<'a>, SaslError> {
        let (flag, rest) = text.split_once(',').ok_or(Malformed("missing GS2 header"))?;
        let flag = match flag {
            "n" => Flag::Not,
            "y" => Flag::ServerCannot,
            other => Flag::Bound(BindingKind::parse(other.strip_prefix("p=").ok_or(Malformed("missing GS2 header"))?)),
        };
        let (authzid, bare) = rest.split_once(',').ok_or(Malformed("missing GS2 header"))?;
        let authzid = match authzid {
            "" => None,
            some => Some(read_name(some.strip_prefix("a=").ok_or(Malformed("missing GS2 header"))?)?),
        };
        let gs2_header = &text[..text.len() - bare.len()];
        // `reserved-mext`.
        if bare.starts_with("m=") {
            return Err(SaslError::UnknownExtension);
        }
        let (user, rest) = take(bare, "n")?;
        let (nonce, extensions) = take(rest, "r")?;
        check_extensions(extensions)?;
        Ok(ClientFirst { flag, authzid, user: read_name(user)?, nonce: check_nonce(nonce)?, gs2_header, bare })
    }
}

impl<'a> ServerFirst<'a> {
    pub fn parse(text: &'a str) -> Result<ServerFirst<'a>, SaslError> {
        if text.starts_with("m=") {
            return Err(SaslError::UnknownExtension);
        }
        let (nonce, rest) = take(text, "r")?;
        let (salt, rest) = take(rest, "s")?;
        let (iterations, extensions) = take(rest, "i")?;
        check_extensions(extensions)?;
        let salt = Base64::decode_vec(salt).map_err(|_| Malformed("the salt is not base64"))?;
        if salt.is_empty() || salt.len() > SALT_BYTES_MAX {
            return Err(Malformed("the salt is missing or too long"));
        }
        if iterations.is_empty() || !iterations.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Malformed("the iteration count is not a number"));
        }
        let iterations = iterations.parse().unwrap_or(u32::MAX);
        // Both nonces.
        let nonce = if nonce.len() > 2 * NONCE_BYTES_MAX { return Err(SaslError::TooLong) } else { nonce };
        Ok(ServerFirst { nonce, salt, iterations })
    }
}

impl<'a> ClientFinal<'a> {
    pub fn parse(text: &'a str) -> Result<ClientFinal<'a>, SaslError> {
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(Malformed("missing proof"))?;
        let (binding, rest) = take(without_proof, "c")?;
        let (nonce, extensions) = take(rest, "r")?;
        check_extensions(extensions)?;
        let binding = Base64::decode_vec(binding).map_err(|_| Malformed("the channel binding is not base64"))?;
        let mut key = [0; KEY_BYTES];
        let decoded = Base64::decode(proof, &mut key).map_err(|_| Malformed("the proof is not base64"))?;
        if decoded.len() != KEY_BYTES {
            return Err(Malformed("the proof has a wrong length"));
        }
        Ok(ClientFinal { binding, nonce, proof: key, without_proof })
    }
}

/// Parses a `server-final-message`: the signature, or an error if the server reports one.
pub(super) fn parse_server_final(text: &str) -> Result<Key, SaslError> {
    if text.starts_with("e=") {
        return Err(SaslError::Refused);
    }
    let (signature, extensions) = take(text, "v")?;
    check_extensions(extensions)?;
    let mut key = [0; KEY_BYTES];
    match Base64::decode(signature, &mut key) {
        Ok(octets) if octets.len() == KEY_BYTES => Ok(key),
        _ => Err(Malformed("the server's signature is not valid")),
    }
}

/// The user named in a first message, as sent.
pub(crate) fn user_of_first(octets: &[u8]) -> Option<String> {
    Some(ClientFirst::parse(text_of(octets).ok()?).ok()?.user)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_first_message_is_taken_apart() {
        let text = "p=tls-exporter,a=bob,n=a=2Cb=3Dc,r=x1,z=more";
        let first = ClientFirst::parse(text).unwrap();
        assert_eq!(first.flag, Flag::Bound(Some(BindingKind::TlsExporter)));
        assert_eq!((first.authzid.as_deref(), first.user.as_str(), first.nonce), (Some("bob"), "a,b=c", "x1"));
        assert_eq!((first.gs2_header, first.bare), ("p=tls-exporter,a=bob,", "n=a=2Cb=3Dc,r=x1,z=more"));
        assert_eq!(ClientFirst::parse("p=tls-unique,,n=a,r=x").unwrap().flag, Flag::Bound(None));
        assert_eq!(ClientFirst::parse("y,,n=a,r=x").unwrap().flag, Flag::ServerCannot);
    }

    #[test]
    fn other_first_messages_are_errors() {
        for text in [
            "",
            "n",
            "n,",
            "n,,",
            "n,,n=",
            "n,,n=a",
            "n,,n=a,",
            "n,,n=a,r=",
            "x,,n=a,r=x",
            "n,b,n=a,r=x",
            "n,,r=x,n=a",
            "n,,n=a=2x,r=x",
            "n,,n=a=,r=x",
            "n,,n=,r=x",
            "n,,n=a,r=\u{e4}",
            "n,,n=a,r=x y",
            "n,,n=a,r=x,z",
            "n,,n=a,r=x,zz=1",
            "p,,n=a,r=x",
            "n,a=,n=a,r=x",
            "n,,n=a\0b,r=x",
        ] {
            assert!(matches!(ClientFirst::parse(text), Err(Malformed(_))), "{text:?}");
        }
        assert_eq!(ClientFirst::parse("n,,m=x,n=a,r=x"), Err(SaslError::UnknownExtension));
        assert_eq!(ClientFirst::parse("n,,n=a,r=x,m=x"), Err(SaslError::UnknownExtension));
        let long = format!("n,,n=a,r={}", "x".repeat(NONCE_BYTES_MAX + 1));
        assert_eq!(ClientFirst::parse(&long), Err(SaslError::TooLong));
        let long = format!("n,,n={},r=x", "x".repeat(USER_BYTES_MAX + 1));
        assert_eq!(ClientFirst::parse(&long), Err(SaslError::TooLong));
        assert_eq!(text_of(&vec![b'x'; SCRAM_BYTES_MAX + 1]), Err(SaslError::TooLong));
    }

    #[test]
    fn a_final_message_is_taken_apart() {
        let proof = Base64::encode_string(&[7; 32]);
        let text = format!("c=biws,r=x1y2,z=1,p={proof}");
        let last = ClientFinal::parse(&text).unwrap();
        assert_eq!((last.binding.as_slice(), last.nonce, last.proof), (&b"n,,"[..], "x1y2", [7; 32]));
        assert_eq!(last.without_proof, "c=biws,r=x1y2,z=1");
        for bad in [
            "",
            "c=biws,r=x",
            "c=biws,p=",
            "r=x,c=biws,p=AAAA",
            "c=b,r=x,p=AAAA",
            "c=biws,r=x,p=AAAA",
            &format!("c=biws,p={proof}"),
            &format!("c=biws,r=x,p={proof},z=1"),
        ] {
            assert!(ClientFinal::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_a_server_says_is_taken_apart() {
        let first = ServerFirst::parse("r=x1y2,s=c2FsdA==,i=4096").unwrap();
        assert_eq!((first.nonce, first.salt.as_slice(), first.iterations), ("x1y2", &b"salt"[..], 4_096));
        assert_eq!(ServerFirst::parse("r=x,s=c2FsdA==,i=99999999999").unwrap().iterations, u32::MAX);
        for bad in [
            "",
            "r=x",
            "r=x,s=,i=1",
            "r=x,s=c2FsdA==,i=",
            "r=x,s=c2FsdA==,i=-1",
            "r=x,s=c2FsdA==,i=1x",
            "s=c2FsdA==,r=x,i=1",
        ] {
            assert!(ServerFirst::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(parse_server_final("e=invalid-proof"), Err(SaslError::Refused));
        assert_eq!(parse_server_final(&format!("v={}", Base64::encode_string(&[9; 32]))), Ok([9; 32]));
        assert!(parse_server_final("v=AAAA").is_err() && parse_server_final("").is_err());
    }

    proptest! {
        #[test]
        fn names_are_read_as_written(name in "[a-z=,@.\u{e4}]{1,40}") {
            let text = write_name(&name);
            prop_assert!(!text.contains(','));
            prop_assert_eq!(read_name(&text).unwrap(), name);
        }

        #[test]
        fn any_octets_are_a_message_or_an_error(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(text) = text_of(&octets) {
                let _ = (ClientFirst::parse(text), ServerFirst::parse(text), ClientFinal::parse(text), parse_server_final(text));
            }
        }

        #[test]
        fn what_is_nearly_a_message_is_one_or_an_error(text in "([nyp]=?[a-z-]{0,4},(a=[a-z=]{0,3})?,)?([nrscivpm]=[A-Za-z0-9=]{0,8},?){0,6}") {
            if let Ok(first) = ClientFirst::parse(&text) {
                prop_assert_eq!(format!("{}{}", first.gs2_header, first.bare), text.clone());
            }
            let _ = (ServerFirst::parse(&text), ClientFinal::parse(&text), parse_server_final(&text));
        }
    }
}
