//! Any octets as a message: ASCII without NULs or an error (none where it may be lossy), the same however they were
//! split, and linear in size.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_mime::recode::{ConvertError, Converter};

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
    let mut lossy = (Converter::lossy(), Vec::new());
    let pushed = lossy.0.push(bytes, &mut lossy.1).and_then(|()| lossy.0.finish(&mut lossy.1));
    assert!(matches!(pushed, Ok(()) | Err(ConvertError::HeaderTooLarge)));
    assert!(lossy.1.is_ascii() && !lossy.1.contains(&0));
    let whole = convert(std::iter::once(bytes));
    assert_eq!(whole, convert(bytes.chunks(usize::from(*step) + 1)));
    if let Ok(out) = whole {
        assert!(out.is_ascii() && !out.contains(&0));
        let longest = |bytes: &[u8]| bytes.split(|&b| b == b'\n').map(<[u8]>::len).max().unwrap_or(0);
        assert!(longest(&out) <= 1_000, "a line and its end");
        // What is 7-bit stays so, and is not encoded a second time.
        let again = convert(std::iter::once(out.as_slice())).expect("7-bit messages convert");
        assert!(again.is_ascii());
    }
});
