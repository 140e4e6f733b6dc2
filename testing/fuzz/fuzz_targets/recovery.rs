//! Recovery of a store made of any bytes ends in `Ok` or an error, and what it opened can be written to and opened
//! again.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stentor_journal::recover_for_fuzz(data));
