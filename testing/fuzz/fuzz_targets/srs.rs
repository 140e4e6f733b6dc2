//! Any text as a rewritten sender: no panic, and nothing leads back that was not made here.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_addresses::Srs;

fuzz_target!(|data: &[u8]| {
    let Ok(user) = std::str::from_utf8(data) else { return };
    let Some(srs) = Srs::new("ours.test", vec![b"nobody knows this one".to_vec()], 20, 21) else { return };
    assert!(srs.reverse(user, 20_000).is_err());
    let sent = srs.forward(user, "a.test", 20_000);
    if let Some(local) = sent.strip_suffix("@ours.test")
        && !user.is_empty()
    {
        assert!(srs.reverse(local, 20_001).is_ok());
    }
});
