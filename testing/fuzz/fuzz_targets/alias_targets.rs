//! Any text as the right side of an alias, and as a file that one includes: no panic, and a line of a file is what it
//! is alone.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_addresses::{parse, parse_include};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let line = parse(text);
    if !text.contains(['\n', '\r']) && !text.trim_start().starts_with('#') {
        assert_eq!(line.ok(), parse_include(text).ok());
    } else {
        let _ = parse_include(text);
    }
});
