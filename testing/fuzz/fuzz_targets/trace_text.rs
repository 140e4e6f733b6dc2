//! Any bytes as the text of a trace: no panic, and no function is longer without its callees than with them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_iotrace::text;

fuzz_target!(|data: &[u8]| {
    let Ok(totals) = text::read(data) else { return };
    for function in totals.functions.values() {
        assert!(function.exclusive_ns <= function.sum_ns && function.inclusive_ns <= function.sum_ns);
        assert!(function.durations.count() == function.calls && function.headless <= function.calls);
    }
    assert!(totals.unknown_lines <= totals.lines);
});
