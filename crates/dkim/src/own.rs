//! Recognises signatures made with our own keys, so that no copy is signed twice by the same key.
//!
//! Promise: a field counts only if it verifies against the header and body that are sent. A copied or stale field never
//! keeps a message from being signed. This is not a verifier of others' mail: it reads only the forms that [`sign`]
//! writes, and examines at most [`CANDIDATES_MAX`] fields.
//!
//! [`sign`]: crate::sign()

use std::collections::HashMap;

use aws_lc_rs::digest::{Context, SHA256};
use base64ct::{Base64, Encoding};
use stentor_mime::field;

use crate::body::BodyDigest;
use crate::fields::{NAMES_MAX, relax};
use crate::sign::Signer;

/// Each costs a pass over the header, and senders choose how many there are.
const CANDIDATES_MAX: usize = 2;

/// Whether the header has a valid signature of this signer that will not have expired at `until_s`.
pub fn is_signed_by(header: &[u8], body: BodyDigest, signer: &Signer, until_s: u64) -> bool {
    let is_signature =
        |whole: &&[u8]| field::split(whole).is_some_and(|(name, _)| name.eq_ignore_ascii_case(b"dkim-signature"));
    let candidates = field::lines(header).filter(is_signature).filter_map(|whole| Signature::parse(whole, signer));
    candidates.take(CANDIDATES_MAX).any(|signature| signature.is_valid(header, body, signer, until_s))
}

/// A field with the signer's domain, selector and algorithm.
struct Signature {
    /// The names of `h=`.
    names: Vec<String>,
    body_hash: Vec<u8>,
    octets: Vec<u8>,
    expires: Option<u64>,
    /// The field in relaxed form, with an empty `b=`.
    unsigned: Vec<u8>,
}

impl Signature {
    fn parse(whole: &[u8], signer: &Signer) -> Option<Signature> {
        let mut relaxed = Vec::new();
        relax(whole, &mut relaxed);
        let relaxed = String::from_utf8(relaxed).ok()?;
        let (name, tags) = relaxed.split_once(':')?;
        let value = |wanted: &str| {
            let pairs = tags.split(';').filter_map(|tag| tag.split_once('='));
            pairs.filter(|(tag, _)| tag.trim() == wanted).map(|(_, value)| value.trim()).next()
        };
        let is_ours = value("v") == Some("1")
            && value("a") == Some(signer.key.algorithm().name())
            && value("c") == Some("relaxed/relaxed")
            && value("d").is_some_and(|domain| domain.eq_ignore_ascii_case(&signer.domain))
            && value("s").is_some_and(|selector| selector.eq_ignore_ascii_case(&signer.selector))
            && value("l").is_none();
        if !is_ours {
            return None;
        }
        let decoded = |tag| Base64::decode_vec(&value(tag)?.replace(' ', "")).ok();
        let without_value = |tag: &str| match tag.split_once('=') {
            Some((name, _)) if name.trim() == "b" => format!("{name}="),
            _ => tag.to_owned(),
        };
        let unsigned: Vec<String> = tags.split(';').map(without_value).collect();
        Some(Signature {
            names: value("h")?.split(':').take(NAMES_MAX).map(|name| name.trim().to_owned()).collect(),
            body_hash: decoded("bh")?,
            octets: decoded("b")?,
            expires: value("x").and_then(|text| text.parse().ok()),
            unsigned: format!("{name}:{}", unsigned.join(";")).into_bytes(),
        })
    }

    fn is_valid(&self, header: &[u8], body: BodyDigest, signer: &Signer, until_s: u64) -> bool {
        if self.body_hash != body.0 || self.expires.is_some_and(|expires| expires <= until_s) {
            return false;
        }
        let mut hash = Context::new(&SHA256);
        hash.update(&signed_fields(header, &self.names));
        hash.update(&self.unsigned);
        signer.key.has_signed(&hash.finish(), &self.octets)
    }
}

/// The canonical fields named in `h=`: each name takes the lowest field that no earlier one took.
fn signed_fields(header: &[u8], names: &[String]) -> Vec<u8> {
    let mut by_name: HashMap<Vec<u8>, Vec<&[u8]>> = HashMap::new();
    for whole in field::lines(header) {
        if let Some((name, _)) = field::split(whole) {
            by_name.entry(name.to_ascii_lowercase()).or_default().push(whole);
        }
    }
    let mut canonical = Vec::new();
    for name in names {
        let fields = by_name.get_mut(name.to_ascii_lowercase().as_bytes());
        if let Some(whole) = fields.and_then(Vec::pop) {
            relax(whole, &mut canonical);
            canonical.extend_from_slice(b"\r\n");
        }
    }
    canonical
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::body::BodyHash;
    use crate::{Algorithm, MessageHash, SigningKey, Times, sign};

    const MESSAGE: &[u8] = b"Received: x\r\nFrom: Ann\r\n <ann@example.org>\r\nTo: b@x.example\r\nSubject: Hi\r\n\
        List-Unsubscribe: <https://x.example/u>\r\n\r\nHello\r\n";

    fn signer(algorithm: Algorithm) -> Signer {
        let key = SigningKey::generate(algorithm).unwrap().key;
        Signer { domain: "example.org".into(), selector: "s1".into(), key: Arc::new(key) }
    }

    fn divided(message: &[u8]) -> (Vec<u8>, BodyDigest) {
        let mut divided = MessageHash::default();
        divided.push(message);
        divided.finish()
    }

    #[test]
    fn signatures_verify_until_something_changes() {
        let (header, body) = divided(MESSAGE);
        let signers = [signer(Algorithm::RsaSha256), signer(Algorithm::Ed25519Sha256)];
        let times = Times { signed: 1_000, expires: Some(2_000) };
        let signed = [sign(&header, body, &signers, times).unwrap(), header.clone()].concat();
        let text = String::from_utf8(signed.clone()).unwrap();
        assert!(text.lines().all(|line| line.len() <= 78) && text.split("\r\n").all(|line| !line.contains('\n')));
        for signer in &signers {
            let is_signed = |header: &[u8], body, now| is_signed_by(header, body, signer, now);
            assert!(is_signed(&signed, body, 1_999), "{text}");
            assert!(!is_signed(&signed, body, 2_000), "expired");
            assert!(!is_signed(&signed, BodyHash::default().finish(), 1_000));
            for (from, to) in [("Subject: Hi", "Subject: Ho"), ("t=1000", "t=1001"), ("d=example.org", "d=example.com")]
            {
                assert!(!is_signed(text.replace(from, to).as_bytes(), body, 1_000), "{to}");
            }
            for added in
                ["From: x@y\r\n", "Reply-To: x@y\r\n", "Subject: x\r\n", "Cc: x@y\r\n", "List-Unsubscribe: <x>\r\n"]
            {
                assert!(!is_signed(&[added.as_bytes(), &signed].concat(), body, 1_000), "{added}");
            }
            let relayed = [b"Received: y\r\nReturn-Path: <z>\r\n", &signed[..]].concat();
            assert!(is_signed(&relayed, body, 1_000));
            let refolded = text.replace("From: Ann\r\n <", "FROM:  Ann <");
            assert!(is_signed(refolded.as_bytes(), body, 1_000));
        }
        assert!(!is_signed_by(&signed, body, &signer(Algorithm::RsaSha256), 1_000), "another key of the same selector");
    }

    #[test]
    fn signatures_do_not_depend_on_each_other() {
        let (header, body) = divided(MESSAGE);
        let signers = [signer(Algorithm::Ed25519Sha256), signer(Algorithm::RsaSha256)];
        let times = Times { signed: 7, expires: None };
        let both = sign(&header, body, &signers, times).unwrap();
        let each: Vec<u8> =
            signers.iter().flat_map(|one| sign(&header, body, std::slice::from_ref(one), times).unwrap()).collect();
        assert_eq!(both, each, "deterministic, in the order of the signers");
        assert_eq!(sign(b"To: x@y\r\n", body, &signers, times), Err(sign::SignError::NoFrom));
    }
}
