//! Any octets as a subscribers file: no panic, and the result does not depend on where the file is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_lists::subscribers::{Occurrence, Parser, SubscribersSummary};

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, SubscribersSummary) {
    let mut people = Vec::new();
    let mut parser = Parser::default();
    let mut visit = |subscriber: stentor_lists::subscribers::Subscriber<'_>| {
        people.push(subscriber.address.to_owned());
        Occurrence::First
    };
    for piece in pieces {
        parser.push(piece, &mut visit);
    }
    let report = parser.finish(&mut visit);
    (people, report)
}

fuzz_target!(|data: &[u8]| {
    assert_eq!(read(std::iter::once(data)), read(data.chunks(7)));
});
