//! Any octets: no panic, and what is an address is one again in its canonical form, and the same one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_mail::address::{Address, normalise_domain};

fuzz_target!(|data: &[u8]| {
    let (smtputf8, bytes) = match data {
        [flag, bytes @ ..] => (flag & 1 == 1, bytes),
        [] => return,
    };
    if let Ok(address) = Address::parse(bytes, smtputf8) {
        assert!(!address.as_str().chars().any(char::is_control));
        assert!(address.domain().is_ascii());
        assert!(smtputf8 || address.is_ascii());
        let again = Address::parse(address.as_str().as_bytes(), smtputf8).expect("canonical form is an address");
        assert_eq!(again, address);
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(domain) = normalise_domain(text)
    {
        assert_eq!(normalise_domain(&domain).as_ref(), Ok(&domain));
    }
});
