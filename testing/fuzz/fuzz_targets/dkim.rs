//! A message in two pieces has the header and body hash of the whole, and what is signed is recognised as such.

#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use stentor_dkim::{Algorithm, BodyDigest, MessageHash, Signer, SigningKey, Times, is_signed_by, sign};

static SIGNER: LazyLock<Signer> = LazyLock::new(|| {
    let key = Arc::new(SigningKey::generate(Algorithm::Ed25519Sha256).expect("a key").key);
    Signer { domain: "example.org".into(), selector: "s1".into(), key }
});

fn divided(pieces: &[&[u8]]) -> (Vec<u8>, BodyDigest) {
    let mut message = MessageHash::default();
    for piece in pieces {
        message.push(piece);
    }
    message.finish()
}

fuzz_target!(|data: &[u8]| {
    let Some((at, message)) = data.split_first() else { return };
    let (first, rest) = message.split_at(usize::from(*at).min(message.len()));
    let (header, body) = divided(&[message]);
    assert_eq!((header.clone(), body), divided(&[first, rest]));
    let _ = is_signed_by(&header, body, &SIGNER, 0);
    let _ = SigningKey::from_pem(message);
    if let Ok(signed) = sign(&header, body, std::slice::from_ref(&*SIGNER), Times { signed: 1, expires: None }) {
        assert!(is_signed_by(&[&signed[..], &header].concat(), body, &SIGNER, 1));
    }
});
