//! Any octets as a request on the control socket: no panic, and a request is the same when it is written anew.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_control::Request;

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = Request::parse(data) {
        assert_eq!(Request::parse(request.to_line().trim_end().as_bytes()).ok(), Some(request));
    }
});
