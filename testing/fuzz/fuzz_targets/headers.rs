//! Any message: no panic, and the same facts however it is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_mail::headers::HeaderScan;

fuzz_target!(|data: &[u8]| {
    let Some((&cut, message)) = data.split_first() else { return };
    let mut whole = HeaderScan::new();
    whole.push(message);
    let mut parts = HeaderScan::new();
    for part in message.chunks(usize::from(cut) + 1) {
        parts.push(part);
    }
    assert_eq!(whole.finish(), parts.finish());
});
