//! Any octets as a journal record: no panic, and what is an event is one again when it is written anew.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_queue::event::Event;
use stentor_queue::store::Store;

fuzz_target!(|data: &[u8]| {
    let Ok(event) = Event::decode(data) else { return };
    let mut again = Vec::new();
    event.encode(&mut again);
    let decoded = Event::decode(&again).expect("what was written can be read");
    assert_eq!(format!("{decoded:?}"), format!("{event:?}"));
    Store::new().apply(event);
});
