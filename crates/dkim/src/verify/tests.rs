use std::sync::Arc;

use super::*;
use crate::{Algorithm, BodyHash, Signer, SigningKey, Times, sign};

const NOW: u64 = 1_800_000_000;

fn body(form: CanonicalForm, octets: &[u8]) -> HashedBody {
    let mut hash = BodyHash::new(form);
    hash.push(octets);
    hash.finish_counted()
}

fn result(header: &[u8], octets: &[u8], record: &[u8]) -> Result<(), VerifyError> {
    let fields = FieldIndex::of(header);
    let signature = Signature::parse(SignatureKind::Dkim, fields.all("dkim-signature")[0]).unwrap();
    let key = PublicKey::parse(record).unwrap();
    verify(&fields, &signature, &body(signature.body_form, octets), &key, NOW)
}

fn signer(algorithm: Algorithm) -> Signer {
    let key = Arc::new(SigningKey::generate(algorithm).unwrap().key);
    Signer { domain: "example.org".into(), selector: "s1".into(), key }
}

const HEADER: &[u8] = b"From: Ann <ann@example.org>\r\nSubject: a  b\r\n\tc\r\nTo: x@y\r\n";
const BODY: &[u8] = b"text  with blanks \r\n\r\nend\r\n\r\n  \r\n";

#[test]
fn our_own_signatures_verify_and_changes_are_found() {
    for algorithm in [Algorithm::RsaSha256, Algorithm::Ed25519Sha256] {
        let signer = signer(algorithm);
        let record = signer.key.record();
        let times = Times { signed: NOW - 10, expires: Some(NOW + 10) };
        let digest = body(CanonicalForm::Relaxed, BODY).digest;
        let field = sign(HEADER, digest, std::slice::from_ref(&signer), times).unwrap();
        let signed = [&field[..], HEADER].concat();
        assert_eq!(result(&signed, BODY, record.as_bytes()), Ok(()));
        assert_eq!(result(&signed, b"text with blanks\r\n\r\nend\r\n", record.as_bytes()), Ok(()));
        assert_eq!(result(&signed, b"text with blanks\r\nend\r\n", record.as_bytes()), Err(VerifyError::Body));
        let added = [&signed[..], b"Subject: other\r\n"].concat();
        assert_eq!(result(&added, BODY, record.as_bytes()), Err(VerifyError::Signature));
        let folded = String::from_utf8(signed.clone()).unwrap().replace("a  b\r\n\tc", "a b c");
        assert_eq!(result(folded.as_bytes(), BODY, record.as_bytes()), Ok(()));
        let other = self::signer(algorithm).key.record();
        assert_eq!(result(&signed, BODY, other.as_bytes()), Err(VerifyError::Signature));
        let expired = sign(HEADER, digest, &[signer], Times { signed: NOW - 10, expires: Some(NOW) }).unwrap();
        let expired = [&expired[..], HEADER].concat();
        assert_eq!(result(&expired, BODY, record.as_bytes()), Err(VerifyError::Expired));
    }
    let ed25519 = signer(Algorithm::Ed25519Sha256);
    let times = Times { signed: NOW - 10, expires: None };
    let field = sign(HEADER, body(CanonicalForm::Relaxed, BODY).digest, &[ed25519], times).unwrap();
    let rsa = signer(Algorithm::RsaSha256).key.record();
    assert_eq!(result(&[&field[..], HEADER].concat(), BODY, rsa.as_bytes()), Err(VerifyError::KeyAlgorithm));
}

/// The message of RFC 8463 appendix A, with signatures of both algorithms.
#[test]
fn the_example_of_rfc_8463_verifies() {
    let field = |algorithm: &str, selector: &str, signature: &str| {
        format!(
            "DKIM-Signature: v=1; a={algorithm}; c=relaxed/relaxed;\r\n d=football.example.com; \
             i=@football.example.com;\r\n q=dns/txt; s={selector}; t=1528637909; h=from : to :\r\n \
             subject : date : message-id : from : subject : date;\r\n \
             bh=2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8=;\r\n b={signature}\r\n"
        )
    };
    let ed25519 = field(
        "ed25519-sha256",
        "brisbane",
        "/gCrinpcQOoIfuHNQIbq4pgh9kyIK3AQUdt9OdqQehSwhEIug4D11Bus\r\n Fa3bT3FY5OsU7ZbnKELq+eXdp1Q1Dw==",
    );
    let header = "From: Joe SixPack <joe@football.example.com>\r\nTo: Suzie Q <suzie@shopping.example.net>\r\n\
                  Subject: Is dinner ready?\r\nDate: Fri, 11 Jul 2003 21:00:37 -0700 (PDT)\r\n\
                  Message-ID: <20030712040037.46341.5F8J@football.example.com>\r\n";
    let body = b"Hi.\r\n\r\nWe lost the game.  Are you hungry yet?\r\n\r\nJoe.\r\n";
    let record = b"v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    assert_eq!(result(format!("{ed25519}{header}").as_bytes(), body, record), Ok(()));
}

#[test]
fn what_leaves_a_part_of_the_body_unsigned_is_not_accepted() {
    let field = |l: &str| {
        let tags = "v=1; a=rsa-sha256; c=simple; d=a.test; s=s; h=From; bh=AAAA; b=AAAA";
        format!("DKIM-Signature: {tags}{l}\r\nFrom: a@a.test\r\n")
    };
    let record = b"p=AAAA";
    for (l, why) in [("; l=0", VerifyError::PartialBody), ("; l=6", VerifyError::Body), ("", VerifyError::Body)] {
        assert_eq!(result(field(l).as_bytes(), b"abc\r\n", record), Err(why), "{l}");
    }
}

#[test]
fn forms_of_a_body() {
    let hashed = |form, octets: &[u8]| body(form, octets);
    let plain = |octets: &[u8]| aws_lc_rs::digest::digest(&SHA256, octets);
    for (form, sent, canonical) in [
        (CanonicalForm::Simple, &b""[..], &b"\r\n"[..]),
        (CanonicalForm::Simple, b"\r\n\r\n", b"\r\n"),
        (CanonicalForm::Simple, b" \r\n", b" \r\n"),
        (CanonicalForm::Simple, b"a  b \r\n\r\n\r\n", b"a  b \r\n"),
        (CanonicalForm::Simple, b"a", b"a\r\n"),
        (CanonicalForm::Relaxed, b"", b""),
        (CanonicalForm::Relaxed, b"a  b \r\n \r\n\t\r\n", b"a b\r\n"),
    ] {
        let hashed = hashed(form, sent);
        assert_eq!(hashed.digest.0, plain(canonical).as_ref(), "{form:?} {sent:?}");
        assert_eq!(hashed.bytes, canonical.len() as u64, "{form:?} {sent:?}");
    }
}

#[test]
fn unusable_signatures_are_named() {
    let parsed = |kind, tags: &str| Signature::parse(kind, format!("X: {tags}\r\n").as_bytes());
    let good = "v=1; a=rsa-sha256; d=A.test; s=s; h=From : To; bh=AAAA; b=AA\r\n AA; i=@sub.a.test; l=3; x=9; t=8";
    let signature = parsed(SignatureKind::Dkim, good).unwrap();
    assert_eq!((&*signature.domain, &*signature.text), ("a.test", "AAAA"));
    assert_eq!((signature.identity_domain.as_deref(), signature.body_bytes), (Some("sub.a.test"), Some(3)));
    for (from, to, why) in [
        ("v=1", "v=2", SignatureError::Version),
        ("v=1;", "", SignatureError::Version),
        ("rsa-sha256", "rsa-sha1", SignatureError::Algorithm),
        ("d=A.test", "d=a..test", SignatureError::Tag("d")),
        ("s=s", "s=s s", SignatureError::Tag("s")),
        ("From : To", "To", SignatureError::FromUnsigned),
        ("From : To", "From:", SignatureError::Tag("h")),
        ("bh=AAAA", "bh=*", SignatureError::Tag("bh")),
        ("@sub.a.test", "@suba.test", SignatureError::Identity),
        ("l=3", "l=-3", SignatureError::Tag("l")),
        ("x=9", "x=8", SignatureError::Times),
        ("; x=9", "; x=9; x=9", SignatureError::Tags),
    ] {
        let tags = good.replacen(from, to, 1);
        assert_eq!(parsed(SignatureKind::Dkim, &tags), Err(why), "{tags}");
    }
    let seal = "i=1; a=rsa-sha256; cv=none; d=a.test; s=s; b=AAAA";
    assert_eq!(parsed(SignatureKind::ArcSeal, seal).unwrap().instance, Some(1));
    assert!(parsed(SignatureKind::ArcSeal, &format!("{seal}; h=from")).is_err());
    assert!(parsed(SignatureKind::ArcSeal, &seal.replace("i=1", "i=0")).is_err());
}
