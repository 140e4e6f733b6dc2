//! Any text as a configuration: no panic; it is sound, or at least one finding says what is wrong.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use stentor_config::check_text;

fuzz_target!(|text: &str| {
    if let Err(findings) = check_text(Path::new("/nonexistent/stentor.toml"), text) {
        assert!(!findings.is_empty());
        findings.iter().for_each(|finding| assert!(!finding.to_string().is_empty()));
    }
});
