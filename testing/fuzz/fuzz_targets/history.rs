//! Any octets as a file of the history and as the records of a block: no panic, and what is a record is one again when
//! it is written anew.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    stentor_history::fuzz::file(data);
    stentor_history::fuzz::records(data);
});
