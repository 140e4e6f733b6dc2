//! Any octets as a certificate: no panic, and facts that fit together.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_tls::{Certificate, day};

fuzz_target!(|data: &[u8]| {
    if let Some(certificate) = Certificate::read(&data.into()) {
        assert!(certificate.names.len() <= 100);
        assert_eq!(day(certificate.not_after), certificate.ends_on());
    }
});
