//! Any line: no panic, and none with a control character in it is a command.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_smtp::server::fuzz_command;

fuzz_target!(|line: &[u8]| {
    for smtputf8 in [false, true] {
        let is_command = fuzz_command(line, smtputf8);
        let has_control = line.iter().any(|&byte| byte < b' ' || byte == 0x7f);
        assert!(!(is_command && has_control));
    }
});
