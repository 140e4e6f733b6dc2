//! Any octets from Dovecot's auth socket: no panic, and a handshake that ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_auth::dovecot::protocol::{HANDSHAKE_LINES_MAX, Handshake, Line};

fuzz_target!(|data: &[u8]| {
    let mut handshake = Handshake::default();
    for (count, line) in data.split(|octet| *octet == b'\n').enumerate() {
        match Line::parse(line) {
            Ok(Line::Ok { user: Some(user), send_as, limits, .. }) => {
                for limit in limits.own.0 {
                    assert_eq!(limit.to_string().parse(), Ok(limit), "{user:?}");
                }
                for one in send_as {
                    let shown = one.to_string();
                    assert_eq!(shown.parse().as_ref(), Ok(&one), "{user:?}");
                }
            }
            Ok(_) | Err(_) => {}
        }
        if handshake.line(line).is_err() {
            assert!(count <= HANDSHAKE_LINES_MAX);
            return;
        }
    }
});
