//! Any bytes as a log, cut into blocks anywhere: no panic, and the same records as from one block.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_records::civil::Zone;
use stentor_records::log::Parser;

fuzz_target!(|data: &[u8]| {
    let [size, text @ ..] = data else { return };
    let read = |size: usize| {
        let mut parser = Parser::new(Zone::fixed(3600), 1_795_316_400_000);
        let mut records = Vec::new();
        let mut sink = |record: &stentor_records::record::Record<'_>| records.push(format!("{record:?}"));
        for block in text.chunks(size) {
            parser.block(block, &mut sink);
        }
        parser.finish(&mut sink);
        (records, parser.counters())
    };
    assert_eq!(read(text.len().max(1)), read(usize::from(*size) + 1));
});
