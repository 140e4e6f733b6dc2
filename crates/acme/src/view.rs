//! The state of certificates for people, from the files.

use stentor_tls::Certificate;

use crate::order::next_key;
use crate::record::{NextKey, Record, Shelf, held};
use crate::{Settings, schedule};

/// The state of one certificate.
#[derive(Clone, Debug)]
pub struct CertificateStatus {
    pub names: Vec<String>,
    pub certificate: Option<Certificate>,
    pub record: Record,
    /// When the next attempt is due; 0 for now.
    pub due_s: i64,
    pub next_key: NextKey,
}

/// Reads the state from the files. Blocks.
pub fn views(shelf: &dyn Shelf, settings: &Settings, now: i64) -> Vec<CertificateStatus> {
    let view = |names: &Vec<String>| {
        let record = schedule::believed(Record::read(shelf, names), now);
        let certificate = held(shelf, names).map(|identity| identity.certificate);
        let due_s = schedule::due(&record, certificate.as_ref(), names, &settings.directory);
        CertificateStatus {
            names: names.clone(),
            certificate,
            record,
            due_s,
            next_key: next_key(shelf, names, settings),
        }
    };
    settings.certificates.iter().map(view).collect()
}

#[cfg(test)]
mod tests {
    use base64ct::{Base64, Encoding as _};
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _};

    use super::*;
    use crate::Challenge;
    use crate::record::OrderFile;
    use crate::record::tests::Memory;

    const NAME: &str = "mx.example.org";

    fn settings(keep_key: bool) -> Settings {
        Settings {
            directory: "https://ca/".to_owned(),
            ca_file: None,
            contact: Vec::new(),
            challenge: Challenge::Http01,
            certificates: vec![vec![NAME.to_owned()]],
            external: None,
            keep_key,
        }
    }

    #[test]
    fn without_files_everything_is_due() {
        let (shelf, settings) = (Memory::default(), settings(true));
        let views = views(&shelf, &settings, 0);
        assert!(views[0].certificate.is_none() && views[0].due_s == 0, "{views:?}");
        assert_eq!(views[0].next_key, NextKey::New);
        shelf.replace("mx.example.org.pem", b"damaged").unwrap();
        assert!(held(&shelf, &settings.certificates[0]).is_none());
    }

    #[test]
    fn the_next_key_is_known_before_the_renewal() {
        let shelf = Memory::default();
        let key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let (held, ordered) = (key(), key());
        let pem = CertificateParams::new([NAME.to_owned()]).unwrap().self_signed(&held).unwrap().pem();
        shelf.replace("mx.example.org.pem", (pem + &held.serialize_pem()).as_bytes()).unwrap();
        let next = |keep_key| views(&shelf, &settings(keep_key), 0).remove(0).next_key;
        assert_eq!((next(true), next(false)), (NextKey::Kept, NextKey::New));
        let mut order = OrderFile {
            directory: "https://ca/".to_owned(),
            names: vec![NAME.to_owned()],
            url: "https://ca/order/1".to_owned(),
            key: Base64::encode_string(ordered.serialized_der()),
        };
        shelf.replace("mx.example.org.order", &serde_json::to_vec(&order).unwrap()).unwrap();
        let made = NextKey::Made(ordered.subject_public_key_info());
        assert_eq!((next(true), next(false)), (made.clone(), made));
        // An order at another CA is not continued.
        order.directory = "https://other/".to_owned();
        shelf.replace("mx.example.org.order", &serde_json::to_vec(&order).unwrap()).unwrap();
        assert_eq!(next(true), NextKey::Kept);
    }
}
