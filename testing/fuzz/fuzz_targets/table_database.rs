//! Any octets as a cdb and as an lmdb file: no panic, whatever points where. The first line is the key.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_tables::{FileContent, Reference, Scratch, load};

fuzz_target!(|data: &[u8]| {
    for kind in ["cdb:t", "lmdb:t"] {
        let reference = Reference::parse(kind).expect("a name that is right");
        if let Ok(loaded) = load(&reference, &mut |_| Ok(FileContent { bytes: data.to_vec(), owner: 0 })) {
            let key = data.split(|&octet| octet == b'\n').next().unwrap_or_default();
            loaded.table.get(key, &mut Scratch::default());
            loaded.table.get(b"key1@example.com", &mut Scratch::default());
        }
    }
});
