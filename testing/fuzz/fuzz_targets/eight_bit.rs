//! Any octets as a message whose texts are decoded: the same however they were split, never more than once, and what
//! was ASCII can go back to 7 bits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_mime::recode::{ConvertError, Recoding, Survey, RecodeTarget};

fn recode(target: RecodeTarget, octets: &[u8], step: usize) -> Result<Option<Vec<u8>>, ConvertError> {
    let mut survey = Survey::new(target);
    octets.chunks(step).for_each(|piece| survey.push(piece));
    let (Some(Recoding { mut converter, .. }), _) = survey.finish()? else { return Ok(None) };
    let mut out = Vec::new();
    for piece in octets.chunks(step) {
        converter.push(piece, &mut out)?;
    }
    converter.finish(&mut out)?;
    Ok(Some(out))
}

fuzz_target!(|data: &[u8]| {
    let [step, octets @ ..] = data else { return };
    let whole = recode(RecodeTarget::EightBit, octets, octets.len().max(1));
    assert_eq!(whole, recode(RecodeTarget::EightBit, octets, usize::from(*step) + 1));
    if let Ok(Some(out)) = whole {
        assert_eq!(recode(RecodeTarget::EightBit, &out, out.len()), Ok(None));
        if octets.is_ascii() && !octets.contains(&0) {
            let seven = recode(RecodeTarget::SevenBit, &out, out.len()).expect("only texts are 8-bit");
            assert!(seven.unwrap_or(out).is_ascii());
        }
    }
});
