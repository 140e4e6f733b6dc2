//! Any octets as what is looked up, and as the name of a table: no panic, few keys, the first of them whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_tables::Reference;
use stentor_tables::candidates::{Candidates, Options, Owner};

fuzz_target!(|data: &[u8]| {
    let mut candidates = Candidates::default();
    let options = Options { delimiters: b"+-", is_local: data.len() % 2 == 0, parents: None };
    for (owner, _) in Owner::ALL {
        candidates.set(owner, data, &options);
        assert!(candidates.iter().count() <= 4 * data.len() + 9);
        assert!(candidates.iter().enumerate().all(|(at, candidate)| candidate.is_partial == (at > 0)));
    }
    if let Ok(name) = std::str::from_utf8(data) {
        let _ = Reference::parse(name);
    }
});
