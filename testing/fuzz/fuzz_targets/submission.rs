//! Any octets as a file of the submission folder, as its settings, a list of addresses and a command line: no panic,
//! and what is taken is written again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_sendmail::format::{Check, SubmissionEnvelope, HEAD_BYTES, Head};
use stentor_sendmail::settings::Settings;
use stentor_sendmail::{addresses, options};

fuzz_target!(|data: &[u8]| {
    if let Some((head, rest)) = data.split_first_chunk::<HEAD_BYTES>()
        && let Ok(head) = Head::read(head, data.len() as u64)
    {
        let (message, envelope) = rest.split_at(head.message as usize);
        let mut check = Check::default();
        check.push(message);
        let _ = check.finish(&head, envelope);
    }
    if let Ok(envelope) = SubmissionEnvelope::decode(data) {
        assert_eq!(SubmissionEnvelope::decode(&envelope.encode()), Ok(envelope));
    }
    if let Some(settings) = std::str::from_utf8(data).ok().and_then(Settings::parse) {
        assert_eq!(Settings::parse(&settings.to_text()), Some(settings));
    }
    let mut last = 0;
    for found in addresses::parse(data) {
        assert!(found.place.start >= last && found.place.end <= data.len());
        last = found.place.end;
    }
    let arguments: Vec<Vec<u8>> = data.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    let _ = options::parse("sendmail", &arguments);
});
