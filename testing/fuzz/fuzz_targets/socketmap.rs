//! Any octets as replies of a socketmap: no panic, and the same reply however they are cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_tables::socketmap::{Decoder, ProtocolError, SocketmapReply};

/// The first reply, or error, and nothing of what comes behind it.
fn first(data: &[u8], piece: usize) -> Result<Option<SocketmapReply>, ProtocolError> {
    let mut decoder = Decoder::default();
    for octets in data.chunks(piece) {
        if let Some(reply) = decoder.reply(octets)? {
            return Ok(Some(reply));
        }
    }
    Ok(None)
}

fuzz_target!(|data: &[u8]| {
    let by_octet = first(data, 1);
    match first(data, data.len().max(1)) {
        // Octet by octet the reply comes before what is too much.
        Err(ProtocolError::TooMuch) => assert!(matches!(by_octet, Ok(Some(_)) | Err(ProtocolError::UnknownReply))),
        whole => assert_eq!(whole, by_octet),
    }
});
