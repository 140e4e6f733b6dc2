//! Any octets as each kind of table made of text: no panic, lines that exist, and the table answers itself. The first
//! octet chooses the kind, the first line is the key that is looked up.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_tables::{FileContent, Reference, Scratch, load};

const KINDS: [&str; 6] = ["hash:t", "makemap:t", "aliases:t", "regexp:t", "pcre:t", "cidr:t"];

fuzz_target!(|data: &[u8]| {
    let Some((&kind, text)) = data.split_first() else { return };
    let reference = Reference::parse(KINDS[usize::from(kind) % KINDS.len()]).expect("a name that is right");
    let lines = text.split(|&octet| octet == b'\n').count();
    match load(&reference, &mut |_| Ok(FileContent { bytes: text.to_vec(), owner: 0 })) {
        Ok(loaded) => {
            let key = text.split(|&octet| octet == b'\n').next().unwrap_or_default();
            loaded.table.get(key, &mut Scratch::default());
            loaded.table.get(b"192.0.2.1", &mut Scratch::default());
            assert!(loaded.report.diagnostics.iter().all(|found| found.line as usize <= lines));
        }
        Err(report) => assert!(report.has_errors() && report.errors().all(|found| found.line as usize <= lines)),
    }
});
