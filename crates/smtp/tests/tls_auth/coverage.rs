//! Observations of a world: the steps that were reached, and secrets where they must not be.

use std::collections::BTreeMap;

use base64ct::{Base64, Encoding as _};

/// `Err` describes what did not hold.
pub type InvariantResult<T = ()> = Result<T, String>;

pub const USER: &str = "ann";
pub const PASSWORD: &str = "s3cret-p4ssword";
/// Too long to fit into an AUTH command.
pub const LONG_PASSWORD: &str = concat!(
    "s3cret-l0ng-p4ssword-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-",
    "0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-",
    "0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-",
    "0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789",
);
pub const TOKEN: &str = "t0ken-of-ann-and-nobody-else";
/// A guess. It may be a real password elsewhere, and must not be shown either.
pub const WRONG: &str = "wr0ng-p4ssword";
const SECRETS: [&str; 4] = [PASSWORD, LONG_PASSWORD, TOKEN, WRONG];

/// How often each step was reached.
#[derive(Debug, Default)]
pub struct Coverage(pub BTreeMap<&'static str, u64>);

impl Coverage {
    pub fn step(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    pub fn add(&mut self, other: &Coverage) {
        for (name, count) in &other.0 {
            *self.0.entry(name).or_default() += count;
        }
    }
}

pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> InvariantResult {
    if holds { Ok(()) } else { Err(what()) }
}

/// The forms of a secret: plain, in base64 at any offset, and as numbers of a `Debug`.
pub struct Forms(Vec<String>);

impl Forms {
    pub fn new() -> Forms {
        // The first `prefix` octets share the first `skipped` characters.
        let encoded = |secret: &str, prefix: usize, skipped: usize| {
            let text = Base64::encode_string(&[&b"xxx"[..prefix], secret.as_bytes()].concat());
            // The last octets share theirs with the following ones.
            text[skipped..text.len() - 4].to_owned()
        };
        let numbers = |text: &String| format!("{:?}", text.as_bytes()).trim_matches(['[', ']']).to_owned();
        let of = |secret: &str| {
            let texts = [secret.to_owned(), encoded(secret, 0, 0), encoded(secret, 1, 2), encoded(secret, 2, 3)];
            let numbers = texts.each_ref().map(numbers);
            texts.into_iter().chain(numbers)
        };
        Forms(SECRETS.into_iter().flat_map(of).collect())
    }

    pub fn shown_in(&self, octets: &[u8]) -> bool {
        let text = String::from_utf8_lossy(octets);
        self.0.iter().any(|form| text.contains(form.as_str()))
    }

    /// An error if a text for people shows a secret.
    pub fn hidden_in(&self, text: &str) -> InvariantResult {
        ensure(!self.shown_in(text.as_bytes()), || format!("a secret is shown: {text}"))
    }
}

#[test]
fn each_form_of_a_secret_is_found() {
    let forms = Forms::new();
    for before in ["", "\0", "\0ann\0", "user=ann\x01auth=Bearer "] {
        let message = format!("{before}{PASSWORD}\x01\x01");
        let encoded = Base64::encode_string(message.as_bytes());
        for shown in [message.clone(), encoded, format!("{:?}", message.as_bytes())] {
            assert!(forms.shown_in(shown.as_bytes()), "{shown}");
        }
    }
    assert!(forms.hidden_in("AUTH PLAIN (hidden), Secret(..)").is_ok());
}
