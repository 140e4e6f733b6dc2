//! The stored state: small files in one folder, each replaced whole.
//!
//! | file | contents |
//! |---|---|
//! | `account-HASH.json` | the account at one CA (by the directory's URL), with its key |
//! | `NAME.pem` | the certificate in force for the set of names that begins with NAME: chain, then key |
//! | `NAME.order` | an order in progress, with its key; written before the CA sees the key |
//! | `NAME.json` | time and result of the last attempt, and time of the next |
//!
//! Promise: the key of a certificate that a CA has issued is on the disk before it can be issued, and `NAME.order` is
//! removed only once `NAME.pem` is durable: after a crash in between, the certificate is downloaded again. An
//! unreadable record is treated as missing; nothing else depends on it.

use std::io;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stentor_tls::Identity;

/// Storage for files. Calls block.
pub trait Shelf: Send + Sync {
    /// Reads a file; `None` if it is missing.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// Replaces a file atomically and durably, readable only by the server's user.
    fn replace(&self, name: &str, octets: &[u8]) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// The file name of a certificate for these names.
pub fn certificate_file(names: &[String]) -> String {
    format!("{}.pem", first(names))
}

pub(crate) fn order_file(names: &[String]) -> String {
    format!("{}.order", first(names))
}

pub(crate) fn record_file(names: &[String]) -> String {
    format!("{}.json", first(names))
}

pub(crate) fn account_file(directory: &str) -> String {
    let hash = Sha256::digest(directory.as_bytes());
    let octets = hash.iter().take(6).fold(0_u64, |number, octet| number << 8 | u64::from(*octet));
    format!("account-{octets:012x}.json")
}

/// The first name: letters, digits, `-` and `.`; the configuration allows no others.
fn first(names: &[String]) -> &str {
    names.first().map_or("none", String::as_str)
}

/// The account at one CA. Its credentials include the key and are never shown.
#[derive(Serialize, Deserialize)]
pub(crate) struct AccountFile {
    pub contact: Vec<String>,
    pub credentials: serde_json::Value,
}

/// An order in progress.
#[derive(Serialize, Deserialize)]
pub(crate) struct OrderFile {
    pub directory: String,
    pub names: Vec<String>,
    pub url: String,
    /// The key: PKCS #8, base64.
    pub key: String,
}

/// The key that the next certificate will have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextKey {
    /// The key of the certificate in force.
    Kept,
    /// This key (`SubjectPublicKeyInfo`, DER), for which an order is in progress.
    Made(Vec<u8>),
    /// A key that does not exist yet.
    New,
}

/// The history of one certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The CA of the certificate in force, and the names requested for it.
    pub directory: String,
    pub names: Vec<String>,
    pub obtained_s: Option<i64>,
    pub tried_s: Option<i64>,
    /// Failures in a row.
    pub failures: u32,
    /// The error of the last attempt.
    pub error: Option<String>,
    /// No attempt is made before this time.
    pub next_s: Option<i64>,
    /// The CA demanded the pause until then.
    pub is_demanded: bool,
    pub warned_s: Option<i64>,
    /// The renewal window suggested by the CA.
    pub window: Option<(i64, i64)>,
    /// When to ask the CA for that window again.
    pub ask_s: Option<i64>,
}

impl Record {
    pub(crate) fn read(shelf: &dyn Shelf, names: &[String]) -> Record {
        let octets = shelf.read(&record_file(names)).ok().flatten();
        octets.and_then(|octets| serde_json::from_slice(&octets).ok()).unwrap_or_default()
    }
}

/// The stored certificate, if it is usable.
pub(crate) fn held(shelf: &dyn Shelf, names: &[String]) -> Option<Identity> {
    let text = shelf.read(&certificate_file(names)).ok().flatten()?;
    Identity::from_bundle(&text).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use parking_lot::Mutex;

    use super::*;

    /// A shelf in memory.
    #[derive(Default)]
    pub struct Memory {
        pub files: Mutex<BTreeMap<String, Vec<u8>>>,
        /// Makes writes fail.
        pub is_full: Mutex<bool>,
    }

    impl Shelf for Memory {
        fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
            Ok(self.files.lock().get(name).cloned())
        }

        fn replace(&self, name: &str, octets: &[u8]) -> io::Result<()> {
            if *self.is_full.lock() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.files.lock().insert(name.to_owned(), octets.to_vec());
            Ok(())
        }

        fn remove(&self, name: &str) -> io::Result<()> {
            self.files.lock().remove(name);
            Ok(())
        }
    }

    #[test]
    fn a_record_survives_what_it_does_not_know() {
        let shelf = Memory::default();
        let names = ["mx.example.org".to_owned()];
        assert_eq!(Record::read(&shelf, &names), Record::default());
        let record = Record {
            directory: "https://ca/".to_owned(),
            failures: 3,
            error: Some("no answer".to_owned()),
            window: Some((1, 2)),
            ..Record::default()
        };
        shelf.replace("mx.example.org.json", &serde_json::to_vec(&record).unwrap()).unwrap();
        assert_eq!(Record::read(&shelf, &names), record);
        shelf.replace("mx.example.org.json", b"{\"failures\":2,\"of a later version\":true}").unwrap();
        assert_eq!(Record::read(&shelf, &names).failures, 2);
        for damaged in [&b""[..], b"{", b"[1]", b"\xff", b"{\"failures\":\"x\"}"] {
            shelf.replace("mx.example.org.json", damaged).unwrap();
            assert_eq!(Record::read(&shelf, &names), Record::default());
        }
    }

    #[test]
    fn each_ca_has_an_account_of_its_own() {
        let (a, b) = (account_file("https://a/directory"), account_file("https://b/directory"));
        assert!(a != b && a.starts_with("account-"), "{a} {b}");
        assert_eq!(a, account_file("https://a/directory"));
    }
}
