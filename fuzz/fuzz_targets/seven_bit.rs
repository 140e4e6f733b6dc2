//! Any octets as a message: ASCII or an error, the same however they were split, and linear in size.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_mail::seven_bit::{ConvertError, Converter};

fn convert<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, ConvertError> {
    let (mut converter, mut out) = (Converter::new(), Vec::new());
    for piece in pieces {
        converter.push(piece, &mut out)?;
    }
    converter.finish(&mut out)?;
    Ok(out)
}

fuzz_target!(|data: &[u8]| {
    let [step, bytes @ ..] = data else { return };
    let whole = convert(std::iter::once(bytes));
    assert_eq!(whole, convert(bytes.chunks(usize::from(*step) + 1)));
    if let Ok(out) = whole {
        assert!(out.is_ascii());
        let longest = |bytes: &[u8]| bytes.split(|&b| b == b'\n').map(<[u8]>::len).max().unwrap_or(0);
        assert!(longest(&out) <= (longest(bytes) + 100).max(998));
        // What is 7-bit stays so, and is not encoded a second time.
        let again = convert(std::iter::once(out.as_slice())).expect("7-bit messages convert");
        assert!(again.is_ascii());
    }
});
