//! Entry points for fuzzing with arbitrary octets.

use crate::block::Builder;
use crate::codec::Decoder;
use crate::file::{FILE_HEADER_BYTES, Walk};

/// Reads `bytes` as a file after its header: every record found is printed without a panic, and survives re-encoding.
pub fn file(bytes: &[u8]) {
    // Reading a slice cannot fail.
    let Ok(mut walk) = Walk::new(bytes, FILE_HEADER_BYTES as u64) else { return };
    let mut raw = Vec::new();
    while let Ok(Some(found)) = walk.next() {
        if let Ok(true) = walk.records(&found, &mut raw) {
            records(&raw);
        }
    }
}

/// Decodes `raw` as the records of a block.
pub fn records(raw: &[u8]) {
    let mut builder = Builder::default();
    let mut again = Vec::new();
    for record in Decoder::new(raw) {
        let Ok(Some(record)) = record else { continue };
        let at = record.at();
        builder.push(&record);
        again.clear();
        builder.finish(0, &mut again);
        let Ok(mut walk) = Walk::new(again.as_slice(), 0) else { return };
        let mut unpacked = Vec::new();
        let found = walk.next().ok().flatten().filter(|found| found.header.min_ms == at);
        let is_whole = found.is_some_and(|found| walk.records(&found, &mut unpacked).unwrap_or(false));
        assert!(is_whole, "what was written can be read");
        let decoded = Decoder::new(&unpacked).next();
        assert!(decoded.is_some_and(|decoded| decoded.is_ok()), "and decoded");
    }
}
