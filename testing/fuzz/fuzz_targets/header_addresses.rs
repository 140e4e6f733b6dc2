//! Any octets as a message: addresses are found in place, what is not changed stays, and what is changed is found
//! again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_addresses::{AddressChange, addresses, replaced};

fuzz_target!(|data: &[u8]| {
    let found = addresses(data);
    assert_eq!(replaced(data, &[]), data);
    let renamed =
        |old: &_| AddressChange { old: Clone::clone(old), local: "new".to_owned(), domain: "n.test".to_owned() };
    let changes: Vec<_> = found.iter().map(renamed).collect();
    let changed = addresses(&replaced(data, &changes));
    assert_eq!(changed.len(), found.len());
    assert!(changed.iter().all(|found| found.address == "new@n.test"));
});
